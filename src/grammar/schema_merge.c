/* schema_merge.c - the plain keywords of a set of schemas, united: the highest minimum, all
 * patterns, the types that are left. */
#include "grammar/schema_impl.h"

#include <math.h>

unsigned schema_types(const json_t *type)
{
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {{"null", IS_NULL},
                 {"boolean", IS_BOOLEAN},
                 {"integer", IS_INTEGER},
                 {"string", IS_STRING},
                 {"array", IS_ARRAY},
                 {"object", IS_OBJECT},
                 {"number", IS_INTEGER | IS_FRACTION}};
    unsigned bits = 0;
    size_t n = json_is_array(type) ? json_array_size(type) : 1;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_is_array(type) ? json_array_get(type, i) : type);
        for (size_t t = 0; t < RAD_COUNT(types); t++)
            if (strcmp(name, types[t].name) == 0) bits |= types[t].bits;
    }
    return bits;
}

static void raise_low(number_bounds *to, const json_t *value, bool open)
{
    decimal d;
    if (!value || !decimal_of(value, &d)) return;
    int order = to->has_low ? decimal_compare(&d, &to->low) : 1;
    if (order < 0 || (!order && !open)) return;
    to->has_low = true;
    to->low = d;
    to->low_open = open;
}

static void lower_high(number_bounds *to, const json_t *value, bool open)
{
    decimal d;
    if (!value || !decimal_of(value, &d)) return;
    int order = to->has_high ? decimal_compare(&d, &to->high) : -1;
    if (order > 0 || (!order && !open)) return;
    to->has_high = true;
    to->high = d;
    to->high_open = open;
}

static void add_step(schema_compiler *c, number_bounds *to, const json_t *value)
{
    decimal d;
    if (!value || !decimal_of(value, &d)) return;
    if (!to->has_step)
        to->step = d;
    else if (!decimal_common_multiple(&to->step, &d))
        gr_fail(&c->b->mem, RAD_E_LIMIT, "\"multipleOf\": of both numbers it is too large");
    to->has_step = true;
}

static void raise_count(uint64_t *to, const json_t *value)
{
    if (value) *to = RAD_MAX(*to, (uint64_t)json_number_value(value));
}

static void lower_count(uint64_t *to, const json_t *value)
{
    const double most = value ? json_number_value(value) : INFINITY;
    if (most <= SCHEMA_MOST_COUNT) *to = RAD_MIN(*to, (uint64_t)most); /* more bounds nothing */
}

static bool is_one_of(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, words[i]) == 0) return true;
    return false;
}

static bool restricts(const char *keyword)
{
    static const char *const lead_on[] = {"$ref", "allOf", "anyOf", "oneOf"};
    return !schema_is_annotation(keyword) && !is_one_of(keyword, lead_on, RAD_COUNT(lead_on));
}

static void add_text(schema_compiler *c, schema_merged *m, const char *expression, bool whole)
{
    if (!expression) return;
    if (m->num_texts == SCHEMA_MOST_TEXTS) {
        gr_fail(&c->b->mem, RAD_E_LIMIT, "more than %d patterns hold at once", SCHEMA_MOST_TEXTS);
        return;
    }
    m->whole[m->num_texts] = whole;
    m->texts[m->num_texts++] = expression;
}

void schema_merge(schema_compiler *c, const schema_set *set, schema_merged *m)
{
    memset(m, 0, sizeof *m);
    m->set = set;
    m->types = IS_ANY;
    m->bare = true;
    m->max_length = m->max_items = m->max_members = UINT64_MAX;
    for (uint32_t i = 0; i < set->count && !schema_failed(c); i++) {
        const json_t *s = set->at[i], *type = json_object_get(s, "type");
        const json_t *format = json_object_get(s, "format");
        const char *keyword;
        json_t *value;
        json_object_foreach((json_t *)s, keyword, value) m->bare = m->bare && !restricts(keyword);
        if (type) m->types &= schema_types(type);
        if (!m->only) m->only = json_object_get(s, "const");
        if (!m->values) m->values = json_object_get(s, "enum");
        raise_low(&m->bounds, json_object_get(s, "minimum"), false);
        raise_low(&m->bounds, json_object_get(s, "exclusiveMinimum"), true);
        lower_high(&m->bounds, json_object_get(s, "maximum"), false);
        lower_high(&m->bounds, json_object_get(s, "exclusiveMaximum"), true);
        add_step(c, &m->bounds, json_object_get(s, "multipleOf"));
        raise_count(&m->min_length, json_object_get(s, "minLength"));
        lower_count(&m->max_length, json_object_get(s, "maxLength"));
        raise_count(&m->min_items, json_object_get(s, "minItems"));
        lower_count(&m->max_items, json_object_get(s, "maxItems"));
        raise_count(&m->min_members, json_object_get(s, "minProperties"));
        lower_count(&m->max_members, json_object_get(s, "maxProperties"));
        m->unique |= json_is_true(json_object_get(s, "uniqueItems"));
        add_text(c, m, json_string_value(json_object_get(s, "pattern")), false);
        if (format) add_text(c, m, format_expression(json_string_value(format)), true);
        gr_work(&c->b->mem, 50);
    }
}

bool schema_all_allow(schema_compiler *c, const schema_merged *m, const json_t *value)
{
    c->candidates = m->only ? NULL : m->values;
    bool ok = true;
    for (uint32_t i = 0; i < m->set->count && ok && !schema_failed(c); i++) {
        /* Branches of a oneOf that is being looked at are in the set themselves. */
        bool undecided = false;
        for (uint32_t k = 0; k < c->num_undecided; k++)
            undecided |= c->undecided[k] == m->set->at[i];
        ok = undecided || schema_allows(c, m->set->at[i], value);
    }
    c->candidates = NULL;
    return ok;
}
