/* schema.c - a JSON Schema becomes rules, one for each set of schemas that must hold at once.
 *
 * Such a set is a goal. Expanding it follows $ref and allOf, which add schemas to the set, and then
 * takes each way through its anyOf and oneOf, of which one branch each joins the set. What is left
 * are plain keywords: they are united (the highest minimum, all patterns ...), and each type that
 * is still possible becomes a fragment. Where a value has parts, the schemas that the members of
 * the set have for a part are a goal again; equal sets are one goal, so recursion by $ref ends, and
 * becomes recursion of rules.
 *
 * oneOf is anyOf where no two branches have a value in common. That is so if the goal of the schema
 * with both has no value: no type is left, or no number or text, or a property that is required can
 * have none. What cannot be shown to be empty is refused. */
#include "grammar/schema.h"

#include "base/json_look.h"
#include "base/mix64.h"
#include "grammar/regex.h"

enum { MOST_TEXTS = 32, MOST_LAYERS = 1000, MOST_NESTED = 100 };

enum {
    IS_NULL = 1,
    IS_BOOLEAN = 2,
    IS_INTEGER = 4,
    IS_FRACTION = 8, /* numbers that are no integers */
    IS_STRING = 16,
    IS_ARRAY = 32,
    IS_OBJECT = 64,
    IS_ANY = 127
};

typedef struct merged {
    const schema_set *set;
    unsigned types;
    const json_t *values; /* an enum, or NULL */
    const json_t *only;   /* a const, or NULL */
    bool bare;            /* no keyword restricts anything */
    number_bounds bounds;
    uint64_t min_length, max_length; /* UINT64_MAX: none */
    const json_t *texts[MOST_TEXTS]; /* patterns and formats */
    bool is_format[MOST_TEXTS];
    uint32_t num_texts;
    uint64_t min_items, max_items, min_members, max_members;
} merged;

static bool failed(const schema_compiler *c)
{
    return c->b->mem.status != RAD_OK;
}

/* ---- goals ---- */

/* Schemas have numbers in the order in which the document was checked: its own. */
static uint32_t number_of(const schema_compiler *c, const json_t *schema)
{
    return keys_find(&c->checked, (uintptr_t)schema);
}

/* Adds a schema to what must hold: nothing for true; false: it is `false`. */
static bool hold(schema_compiler *c, schema_set *set, const json_t *schema)
{
    if (!schema || json_is_true(schema)) return true;
    if (json_is_false(schema)) return false;
    for (uint32_t i = 0; i < set->count; i++)
        if (set->at[i] == schema) return true;
    if (!gr_work(&c->b->mem, set->count)) return true;
    if (set->count == SCHEMA_MOST_SET) {
        gr_fail(&c->b->mem, RAD_E_LIMIT, "more than %d schemas hold at once", SCHEMA_MOST_SET);
        return true;
    }
    set->at[set->count++] = schema;
    return true;
}

#define NEVER    UINT32_MAX /* the goal that nothing satisfies */
#define ANYTHING (UINT32_MAX - 1)

static uint64_t set_hash(const schema_compiler *c, const json_t *const *at, uint32_t count)
{
    uint64_t h = count;
    for (uint32_t i = 0; i < count; i++)
        h = mix64(h ^ number_of(c, at[i]));
    return h;
}

static void sort_set(schema_compiler *c, schema_set *set)
{
    for (uint32_t i = 1; i < set->count; i++) {
        const json_t *at = set->at[i];
        uint32_t number = number_of(c, at), k = i;
        for (; k && number_of(c, set->at[k - 1]) > number; k--)
            set->at[k] = set->at[k - 1];
        set->at[k] = at;
        gr_work(&c->b->mem, 1 + i - k);
    }
}

static uint64_t goal_hash(const void *owner, uint32_t id)
{
    const schema_compiler *c = owner;
    return set_hash(c, c->members + c->goals[id].first, c->goals[id].count);
}

/* The goal of a set; sorts it. */
static uint32_t goal_of(schema_compiler *c, schema_set *set)
{
    gr_mem *mem = &c->b->mem;
    if (!set->count) return ANYTHING;
    sort_set(c, set);
    if (!gr_slots_room(mem, &c->by_hash, 0, c->num_goals, goal_hash, c)) return NEVER;
    uint64_t h = set_hash(c, set->at, set->count);
    for (uint32_t id; (id = *gr_slot(&c->by_hash, h)); h++) {
        const schema_goal *g = &c->goals[id - 1];
        if (g->count == set->count &&
            memcmp(c->members + g->first, set->at, set->count * sizeof *set->at) == 0)
            return id - 1;
    }
    if (!GR_GROW(mem, c->members, c->cap_members, (uint64_t)c->num_members + set->count) ||
        !GR_GROW(mem, c->goals, c->cap_goals, (uint64_t)c->num_goals + 1))
        return NEVER;
    uint32_t rule = builder_rule(c->b);
    if (failed(c)) return NEVER;
    c->goals[c->num_goals] =
        (schema_goal){.first = c->num_members, .count = set->count, .rule = rule};
    memcpy(c->members + c->num_members, set->at, set->count * sizeof *set->at);
    c->num_members += set->count;
    *gr_slot(&c->by_hash, h) = c->num_goals + 1;
    return c->num_goals++;
}

/* ---- what holds for a part of a value ---- */

static uint32_t property_goal(schema_compiler *c, const schema_set *set, const char *name)
{
    schema_set part = {.count = 0};
    for (uint32_t i = 0; i < set->count && !failed(c); i++) {
        const json_t *at = json_object_get(json_object_get(set->at[i], "properties"), name);
        if (!at) at = json_object_get(set->at[i], "additionalProperties");
        if (!hold(c, &part, at) || !schema_allows_name(c, set->at[i], name)) return NEVER;
    }
    return goal_of(c, &part);
}

/* The names that "propertyNames" lists, or NULL. */
static const json_t *names_of(const json_t *schema)
{
    return json_object_get(json_object_get(schema, "propertyNames"), "enum");
}

static bool lists_names(const schema_set *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (names_of(set->at[i])) return true;
    return false;
}

/* What holds for properties that "properties" does not list, whatever they may be called. */
static uint32_t others_goal(schema_compiler *c, const schema_set *set)
{
    schema_set part = {.count = 0};
    bool said = false, listed = false;
    for (uint32_t i = 0; i < set->count && !failed(c); i++) {
        const json_t *at = json_object_get(set->at[i], "additionalProperties");
        said |= at != NULL;
        listed |= json_object_get(set->at[i], "properties") != NULL;
        if (!hold(c, &part, at)) return NEVER;
    }
    if (c->b->closed_objects && listed && !said) return NEVER;
    return goal_of(c, &part);
}

static const json_t *prefix_of(const json_t *schema, const json_t **rest)
{
    const json_t *items = json_object_get(schema, "items");
    if (json_is_array(items)) {
        *rest = json_object_get(schema, "additionalItems");
        return items;
    }
    *rest = items;
    return json_object_get(schema, "prefixItems");
}

static uint32_t item_goal(schema_compiler *c, const schema_set *set, uint64_t index)
{
    schema_set part = {.count = 0};
    for (uint32_t i = 0; i < set->count && !failed(c); i++) {
        const json_t *rest, *prefix = prefix_of(set->at[i], &rest);
        const json_t *at = index < json_array_size(prefix) ? json_array_get(prefix, index) : rest;
        if (!hold(c, &part, at)) return NEVER;
    }
    return goal_of(c, &part);
}

/* Items from this one on have one goal. */
static uint64_t prefix_length(const schema_set *set)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        const json_t *rest;
        longest = RAD_MAX(longest, (uint64_t)json_array_size(prefix_of(set->at[i], &rest)));
    }
    return longest;
}

/* ---- plain keywords, united ---- */

static unsigned type_bits(const json_t *type)
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
    if (to->has_step && decimal_compare(&to->step, &d) != 0)
        gr_fail(&c->b->mem, RAD_E_UNSUPPORTED,
                "\"multipleOf\" of two numbers at once is not served");
    to->has_step = true;
    to->step = d;
}

static void raise_count(uint64_t *to, const json_t *value)
{
    if (value) *to = RAD_MAX(*to, (uint64_t)json_number_value(value));
}

static void lower_count(uint64_t *to, const json_t *value)
{
    if (value) *to = RAD_MIN(*to, (uint64_t)json_number_value(value));
}

static bool is_one_of(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, words[i]) == 0) return true;
    return false;
}

bool schema_is_annotation(const char *keyword)
{
    static const char *const words[] = {"$comment",        "$defs",       "$id",     "$schema",
                                        "contentEncoding", "definitions", "default", "description",
                                        "examples",        "example",     "title",   "deprecated",
                                        "readOnly",        "writeOnly"};
    return (keyword[0] == 'x' && keyword[1] == '-') || is_one_of(keyword, words, RAD_COUNT(words));
}

static bool restricts(const char *keyword)
{
    static const char *const lead_on[] = {"$ref", "allOf", "anyOf", "oneOf"};
    return !schema_is_annotation(keyword) && !is_one_of(keyword, lead_on, RAD_COUNT(lead_on));
}

static void add_text(schema_compiler *c, merged *m, const json_t *text, bool is_format)
{
    if (!text || (is_format && !format_expression(json_string_value(text)))) return;
    if (m->num_texts == MOST_TEXTS) {
        gr_fail(&c->b->mem, RAD_E_LIMIT, "more than %d patterns hold at once", MOST_TEXTS);
        return;
    }
    m->is_format[m->num_texts] = is_format;
    m->texts[m->num_texts++] = text;
}

static void merge(schema_compiler *c, const schema_set *set, merged *m)
{
    memset(m, 0, sizeof *m);
    m->set = set;
    m->types = IS_ANY;
    m->bare = true;
    m->max_length = m->max_items = m->max_members = UINT64_MAX;
    for (uint32_t i = 0; i < set->count && !failed(c); i++) {
        const json_t *s = set->at[i], *type = json_object_get(s, "type");
        const char *keyword;
        json_t *value;
        json_object_foreach((json_t *)s, keyword, value) m->bare = m->bare && !restricts(keyword);
        if (type) m->types &= type_bits(type);
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
        add_text(c, m, json_object_get(s, "pattern"), false);
        add_text(c, m, json_object_get(s, "format"), true);
        gr_work(&c->b->mem, 20);
    }
}

/* Whether all schemas of the set allow a value that one of them names. */
static bool all_allow(schema_compiler *c, const merged *m, const json_t *value)
{
    c->candidates = m->only ? NULL : m->values;
    bool ok = true;
    for (uint32_t i = 0; i < m->set->count && ok && !failed(c); i++) {
        /* Branches of a oneOf that is being looked at are in the set themselves. */
        bool undecided = false;
        for (uint32_t k = 0; k < c->num_undecided; k++)
            undecided |= c->undecided[k] == m->set->at[i];
        ok = undecided || schema_allows(c, m->set->at[i], value);
    }
    c->candidates = NULL;
    return ok;
}

/* ---- strings ---- */

const dfa *schema_pattern_dfa(schema_compiler *c, const json_t *text, bool is_format)
{
    gr_mem *mem = &c->b->mem;
    uint32_t id = keys_find(&c->pattern_of, (uintptr_t)text);
    if (id == NO_KEY) {
        dfa d;
        const char *expression = json_string_value(text);
        rad_error *err = mem->err, words = {0};
        if (is_format) expression = format_expression(expression);
        mem->err = &words;
        bool ok = regex_dfa(c->b, &d, expression, strlen(expression), CHARS_JSON, is_format);
        mem->err = err;
        if (!ok) {
            if (err)
                rad_fail(err, mem->status, "\"pattern\" %.100s: %.300s", expression, words.text);
            return NULL;
        }
        id = keys_add(&c->pattern_of, (uintptr_t)text);
        if (failed(c) || !GR_GROW(mem, c->patterns, c->cap_patterns, (uint64_t)id + 1)) {
            dfa_fini(&d);
            return NULL;
        }
        c->patterns[id] = (schema_pattern){text, d};
        c->num_patterns = id + 1;
    }
    return &c->patterns[id].d;
}

/* All strings of the merged keywords, without quotes. One way to write characters where there are
 * patterns or names, any where there are lengths alone. */
static bool string_dfa(schema_compiler *c, const merged *m, dfa *d)
{
    gr_builder *b = c->b;
    nfa n;
    bool lengths = m->min_length || m->max_length != UINT64_MAX || !m->num_texts;
    *d = (dfa){0};
    if (m->max_length != UINT64_MAX && m->max_length > SCHEMA_MOST_LENGTH) {
        gr_fail(&b->mem, RAD_E_LIMIT, "\"maxLength\": more than %d is not served",
                SCHEMA_MOST_LENGTH);
        return false;
    }
    if (lengths) {
        uint32_t most = m->max_length == UINT64_MAX ? UINT32_MAX : (uint32_t)m->max_length;
        nfa_init(&n, &b->mem, b->n.bytes);
        nfa kept = b->n;
        b->n = n; /* json_char builds there */
        nfa_frag f =
            m->min_length <= m->max_length
                ? nfa_repeat(&b->n, json_char(b, m->num_texts > 0), (uint32_t)m->min_length, most)
                : nfa_never(&b->n);
        n = b->n;
        b->n = kept;
        if (!b->mem.status) dfa_make(d, &n, f);
        nfa_fini(&n);
    }
    for (uint32_t i = 0; i < m->num_texts && !failed(c); i++) {
        const dfa *text = schema_pattern_dfa(c, m->texts[i], m->is_format[i]);
        if (!text) break;
        dfa both = {0};
        if (!d->mem)
            dfa_both(&both, text, text); /* a copy */
        else
            dfa_both(&both, d, text);
        dfa_fini(d);
        *d = both;
    }
    if (failed(c)) dfa_fini(d);
    return !failed(c);
}

/* ---- whether there is any value ---- */

static bool goal_is_empty(schema_compiler *c, uint32_t goal);

static bool number_is_empty(schema_compiler *c, const merged *m, bool integer)
{
    number_bounds bounds = m->bounds;
    dfa d;
    bounds.integer = integer;
    if (!number_dfa(c->b, &bounds, &d)) return false;
    bool never = dfa_is_never(&d);
    dfa_fini(&d);
    return never;
}

static bool string_is_empty(schema_compiler *c, const merged *m)
{
    dfa d;
    if (!m->num_texts) return m->min_length > m->max_length;
    if (!string_dfa(c, m, &d)) return false;
    bool never = dfa_is_never(&d);
    dfa_fini(&d);
    return never;
}

static bool array_is_empty(schema_compiler *c, const merged *m)
{
    uint64_t prefix = prefix_length(m->set);
    if (m->min_items > m->max_items) return true;
    for (uint64_t i = 0; i < m->min_items && i <= prefix; i++)
        if (goal_is_empty(c, item_goal(c, m->set, i))) return true;
    return false;
}

static bool object_is_empty(schema_compiler *c, const merged *m)
{
    if (m->min_members > m->max_members) return true;
    for (uint32_t i = 0; i < m->set->count; i++) {
        size_t k;
        json_t *name;
        const json_t *required = json_object_get(m->set->at[i], "required");
        if (json_array_size(required) > m->max_members) return true;
        json_array_foreach((json_t *)required, k, name)
        {
            if (goal_is_empty(c, property_goal(c, m->set, json_string_value(name)))) return true;
        }
    }
    return false;
}

static bool is_empty(schema_compiler *c, const merged *m)
{
    size_t i;
    json_t *value;
    if (m->only) return !all_allow(c, m, m->only);
    if (m->values) {
        json_array_foreach((json_t *)m->values, i, value)
        {
            if (all_allow(c, m, value)) return false;
        }
        return true;
    }
    if (m->types & (IS_NULL | IS_BOOLEAN)) return false;
    if (m->types & IS_INTEGER && !number_is_empty(c, m, true)) return false;
    if (m->types & IS_FRACTION && !number_is_empty(c, m, false)) return false;
    if (m->types & IS_STRING && !string_is_empty(c, m)) return false;
    if (m->types & IS_ARRAY && !array_is_empty(c, m)) return false;
    return !(m->types & IS_OBJECT) || object_is_empty(c, m);
}

/* ---- expanding a set ---- */

typedef struct expansion {
    schema_compiler *c;
    schema_set set;
    uint32_t ways;
    bool (*visit)(struct expansion *x, const merged *m); /* false: that is enough */
    uint32_t in, out; /* of visit_frag: what all ways lie between */
    bool has_values;  /* of visit_empty */
} expansion;

/* A schema joins the set, and right behind it what it refers to: so properties keep the order in
 * which somebody reads them. False: nothing satisfies it. As deep as the set is large. */
static bool join(expansion *x, const json_t *schema)
{
    schema_compiler *c = x->c;
    uint32_t before = x->set.count;
    size_t i;
    json_t *each;
    if (!hold(c, &x->set, schema)) return false;
    if (x->set.count == before || failed(c)) return true; /* it is there */
    if (json_object_get(schema, "$ref")) {
        const json_t *target = schema_resolve(c, schema);
        if (target && !join(x, target)) return false;
    }
    json_array_foreach(json_object_get(schema, "allOf"), i, each)
    {
        if (!join(x, each)) return false;
    }
    return true;
}

static bool check_apart(schema_compiler *c, const json_t *schema, const json_t *branches);

static bool expand_from(expansion *x, uint32_t at, unsigned choice)
{
    schema_compiler *c = x->c;
    for (; at < x->set.count && !failed(c); at++, choice = 0) {
        const json_t *schema = x->set.at[at];
        for (; choice < 2; choice++) {
            const json_t *branches = json_object_get(schema, choice ? "oneOf" : "anyOf");
            bool undecided = false;
            for (uint32_t i = 0; choice && i < c->num_undecided; i++)
                undecided |= c->undecided[i] == schema;
            if (!branches || undecided) continue;
            if (choice && !check_apart(c, schema, branches)) return false;
            uint32_t before = x->set.count;
            size_t i;
            json_t *branch;
            json_array_foreach((json_t *)branches, i, branch)
            {
                if (join(x, branch) && !expand_from(x, at, choice + 1)) return false;
                if (failed(c)) return false;
                x->set.count = before;
            }
            return true;
        }
    }
    if (failed(c)) return false;
    if (++x->ways > SCHEMA_MOST_BRANCHES) {
        gr_fail(&c->b->mem, RAD_E_LIMIT, "anyOf and oneOf have more than %d combinations",
                SCHEMA_MOST_BRANCHES);
        return false;
    }
    merged m;
    merge(c, &x->set, &m);
    return !failed(c) && x->visit(x, &m);
}

static bool visit_empty(expansion *x, const merged *m)
{
    x->has_values |= !is_empty(x->c, m);
    return !x->has_values;
}

/* Whether nothing satisfies all of them. */
static bool set_is_empty(schema_compiler *c, const json_t *const *at, uint32_t count)
{
    expansion *x = rad_alloc(&c->b->mem.env, sizeof *x);
    bool fits = true;
    if (!x) {
        gr_fail(&c->b->mem, RAD_E_NOMEM, "no memory for a grammar");
        return false;
    }
    x->c = c;
    x->visit = visit_empty;
    for (uint32_t i = 0; i < count && fits; i++)
        fits = join(x, at[i]);
    if (fits && !failed(c)) expand_from(x, 0, 0);
    bool empty = !failed(c) && !x->has_values;
    rad_free(&c->b->mem.env, x, sizeof *x);
    return empty;
}

static bool goal_is_empty(schema_compiler *c, uint32_t goal)
{
    if (goal == NEVER || goal == ANYTHING) return goal == NEVER;
    if (c->goals[goal].empty) return c->goals[goal].empty == 3;
    if (c->depth >= MOST_NESTED) return false; /* not shown to be */
    c->depth++;
    c->goals[goal].empty = 1;
    schema_goal g = c->goals[goal];
    const json_t *at[SCHEMA_MOST_SET]; /* members may move */
    memcpy(at, c->members + g.first, g.count * sizeof *at);
    bool empty = set_is_empty(c, at, g.count);
    c->goals[goal].empty = empty ? 3 : c->num_undecided ? 0 : 2;
    c->depth--;
    return empty;
}

/* Whether no two branches of a oneOf have a value in common, of those that its schema allows. */
static bool check_apart(schema_compiler *c, const json_t *schema, const json_t *branches)
{
    size_t n = json_array_size(branches);
    gr_mem *mem = &c->b->mem;
    if (keys_find(&c->checked, (uintptr_t)branches) != NO_KEY) return true;
    keys_add(&c->checked, (uintptr_t)branches);
    if (c->num_undecided == RAD_COUNT(c->undecided)) {
        gr_fail(mem, RAD_E_LIMIT, "\"oneOf\" is nested too deep");
        return false;
    }
    c->undecided[c->num_undecided++] = schema;
    for (size_t i = 0; i < n && !failed(c); i++) {
        for (size_t k = i + 1; k < n && !failed(c); k++) {
            const json_t *at[] = {schema, json_array_get(branches, i), json_array_get(branches, k)};
            if (set_is_empty(c, at, 3) || failed(c)) continue;
            gr_fail(mem, RAD_E_UNSUPPORTED,
                    "\"oneOf\": branches %zu and %zu may hold for one value (anyOf is served)", i,
                    k);
        }
    }
    c->num_undecided--;
    return !failed(c);
}

/* ---- fragments ---- */

static nfa_frag literal(gr_builder *b, const char *text)
{
    return nfa_literal(&b->n, text, strlen(text));
}

static nfa_frag goal_frag(schema_compiler *c, uint32_t goal)
{
    nfa *n = &c->b->n;
    if (goal == NEVER || failed(c)) return nfa_never(n);
    return nfa_rule(n, goal == ANYTHING ? json_value_rule(c->b) : c->goals[goal].rule);
}

static nfa_frag number_frag(schema_compiler *c, const merged *m)
{
    gr_builder *b = c->b;
    number_bounds bounds = m->bounds;
    bounds.integer = !(m->types & IS_FRACTION);
    if (!bounds.has_low && !bounds.has_high && !bounds.has_step)
        return nfa_rule(&b->n, json_number_rule(b, bounds.integer));
    dfa d;
    if (!number_dfa(b, &bounds, &d)) return nfa_never(&b->n);
    nfa_frag f = dfa_embed(&b->n, &d);
    dfa_fini(&d);
    return f;
}

static nfa_frag string_frag(schema_compiler *c, const merged *m)
{
    gr_builder *b = c->b;
    nfa *n = &b->n;
    nfa_frag f = literal(b, "\"");
    if (!m->num_texts && !m->min_length && m->max_length == UINT64_MAX)
        return nfa_concat(n, f, nfa_rule(n, json_string_rule(b)));
    dfa d;
    if (!string_dfa(c, m, &d)) return f;
    f = nfa_concat(n, f, dfa_embed(n, &d));
    dfa_fini(&d);
    return nfa_concat(n, f, literal(b, "\""));
}

/* States by how many items there are so far, up to where the count says nothing new. */
static nfa_frag array_frag(schema_compiler *c, const merged *m)
{
    gr_builder *b = c->b;
    nfa *n = &b->n;
    uint64_t prefix = prefix_length(m->set), most = m->max_items;
    nfa_frag f = json_mark(b, JSON_OPEN, '[');
    uint32_t out = nfa_state(n), at = f.out;
    for (uint64_t i = 0; i < prefix && i < most; i++) /* no more than can have a value */
        if (item_goal(c, m->set, i) == NEVER) most = i;
    if (most > prefix && item_goal(c, m->set, prefix) == NEVER) most = prefix;
    bool bounded = most != UINT64_MAX;
    uint64_t last = bounded ? most : RAD_MAX(m->min_items, prefix) + 1;
    if (last > SCHEMA_MOST_LENGTH) {
        gr_fail(&b->mem, RAD_E_LIMIT, "\"maxItems\": more than %d is not served",
                SCHEMA_MOST_LENGTH);
        return f;
    }
    for (uint64_t i = 0; i <= last && !failed(c); i++) {
        if (i >= m->min_items) {
            nfa_frag close = json_mark(b, JSON_CLOSE, ']');
            nfa_empty(n, at, close.in);
            nfa_empty(n, close.out, out);
        }
        if (i == last && bounded) break;
        nfa_frag item = i ? json_mark(b, JSON_COMMA, ',') : json_lead(b);
        uint32_t goal = item_goal(c, m->set, RAD_MIN(i, prefix));
        item = nfa_concat(n, item, goal_frag(c, goal));
        nfa_empty(n, at, item.in);
        if (i == last)
            nfa_empty(n, item.out, at);
        else
            at = item.out;
    }
    f.out = out;
    return f;
}

typedef struct object_member {
    const char *name;
    bool required;
} object_member;

typedef struct object_maker {
    schema_compiler *c;
    const merged *m;
    object_member *members;
    uint32_t num_members, cap_members, num_required;
    gr_keys by_name; /* hashes, unequal ones in the next place */
    uint32_t *nodes; /* [num_members + 1][layers + 1] */
    uint32_t cap_nodes, layers;
    bool bounded;
} object_maker;

static uint64_t name_hash(const char *name)
{
    uint64_t h = 14695981039346656037u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    return h;
}

static void add_member(object_maker *o, const char *name, bool required)
{
    gr_mem *mem = &o->c->b->mem;
    uint64_t h = name_hash(name);
    uint32_t id;
    while ((id = keys_find(&o->by_name, h)) != NO_KEY && strcmp(o->members[id].name, name) != 0)
        h++;
    if (id == NO_KEY) {
        id = keys_add(&o->by_name, h);
        if (mem->status || !GR_GROW(mem, o->members, o->cap_members, (uint64_t)id + 1)) return;
        o->members[id] = (object_member){name, false};
        o->num_members = id + 1;
    }
    if (required && !o->members[id].required) {
        o->members[id].required = true;
        o->num_required++;
    }
}

/* Those of "properties", those that may be there beside by the names of "propertyNames", and those
 * that must be there. */
static void find_members(object_maker *o, uint32_t others)
{
    const schema_set *set = o->m->set;
    for (int pass = 0; pass < 3; pass++) {
        for (uint32_t i = 0; i < set->count && !failed(o->c); i++) {
            const char *name;
            size_t k;
            json_t *value;
            if (pass == 1 && others == NEVER) continue;
            if (!pass) {
                json_object_foreach(json_object_get(set->at[i], "properties"), name, value)
                    add_member(o, name, false);
                continue;
            }
            const json_t *names = pass == 1 ? names_of(set->at[i])
                                            : json_object_get(set->at[i], "required");
            json_array_foreach((json_t *)names, k, value)
            {
                if (json_is_string(value)) add_member(o, json_string_value(value), pass == 2);
            }
        }
    }
}

/* Names that no member has, with the closing quote. */
static nfa_frag other_name(object_maker *o)
{
    schema_compiler *c = o->c;
    gr_builder *b = c->b;
    nfa *n = &b->n, names;
    if (!o->num_members) return nfa_rule(n, json_string_rule(b));
    if (!c->has_any_name) {
        nfa_init(&names, &b->mem, b->n.bytes);
        nfa kept = b->n;
        b->n = names;
        nfa_frag f = nfa_repeat(&b->n, json_char(b, true), 0, UINT32_MAX);
        names = b->n;
        b->n = kept;
        if (!failed(c)) c->has_any_name = dfa_make(&c->any_name, &names, f);
        nfa_fini(&names);
    }
    nfa_init(&names, &b->mem, b->n.bytes);
    uint32_t in = nfa_state(&names), out = nfa_state(&names);
    for (uint32_t i = 0; i < o->num_members && !failed(c); i++) {
        const char *name = o->members[i].name;
        nfa_frag each = chars_literal(&names, name, strlen(name), CHARS_JSON);
        nfa_empty(&names, in, each.in);
        nfa_empty(&names, each.out, out);
    }
    dfa listed = {0}, others = {0};
    nfa_frag f = nfa_never(n);
    if (!failed(c) && dfa_make(&listed, &names, (nfa_frag){.in = in, .out = out}) &&
        dfa_without(&others, &c->any_name, &listed))
        f = dfa_embed(n, &others);
    dfa_fini(&listed);
    dfa_fini(&others);
    nfa_fini(&names);
    return nfa_concat(n, f, literal(b, "\""));
}

static uint32_t *node(object_maker *o, uint32_t member, uint32_t layer)
{
    return &o->nodes[(size_t)member * (o->layers + 1) + layer];
}

/* From where there are so many members into the next one: behind a comma, or as the first. */
static void lead_to(object_maker *o, uint32_t member, uint32_t layer, nfa_frag next)
{
    gr_builder *b = o->c->b;
    nfa_frag before = layer ? json_mark(b, JSON_COMMA, ',') : json_lead(b);
    nfa_empty(&b->n, *node(o, member, layer), before.in);
    nfa_empty(&b->n, before.out, next.in);
}

static nfa_frag member_frag(object_maker *o, uint32_t member, uint32_t goal)
{
    gr_builder *b = o->c->b;
    nfa *n = &b->n;
    nfa_frag f = literal(b, "\"");
    if (member < o->num_members) {
        const char *name = o->members[member].name;
        f = nfa_concat(n, f, chars_literal(n, name, strlen(name), CHARS_JSON));
        f = nfa_concat(n, f, literal(b, "\""));
    } else {
        f = nfa_concat(n, f, other_name(o));
    }
    f = nfa_concat(n, f, json_mark(b, JSON_COLON, ':'));
    return nfa_concat(n, f, goal_frag(o->c, goal));
}

/* All ways to write this member (or, behind the last one, another) in each layer. */
static void put_member(object_maker *o, uint32_t member, uint32_t goal)
{
    nfa *n = &o->c->b->n;
    bool listed = member < o->num_members;
    for (uint32_t to = 1; to <= o->layers && !failed(o->c); to++) {
        nfa_frag f = member_frag(o, member, goal);
        lead_to(o, member, to - 1, f);
        if (to == o->layers && !o->bounded) lead_to(o, member, to, f);
        nfa_empty(n, f.out, *node(o, listed ? member + 1 : member, to));
    }
}

static nfa_frag object_frag(schema_compiler *c, const merged *m)
{
    gr_builder *b = c->b;
    nfa *n = &b->n;
    gr_mem *mem = &b->mem;
    object_maker o = {.c = c, .m = m};
    nfa_frag f = json_mark(b, JSON_OPEN, '{');
    uint32_t out = nfa_state(n);
    keys_init(&o.by_name, mem);
    uint32_t others = others_goal(c, m->set);
    find_members(&o, others);
    if (lists_names(m->set)) others = NEVER; /* they are members now */
    uint64_t least = m->min_members > o.num_required ? m->min_members : 0;
    o.bounded = m->max_members != UINT64_MAX && (others != NEVER || m->max_members < o.num_members);
    if (least > o.num_required + 1u && others != NEVER) /* others may have one name twice */
        gr_fail(mem, RAD_E_UNSUPPORTED,
                "\"minProperties\" is served where it is reached by properties that are listed");
    uint64_t layers = o.bounded ? m->max_members : RAD_MAX(least, 1u);
    if (layers > MOST_LAYERS || layers < least) {
        if (layers > MOST_LAYERS)
            gr_fail(mem, RAD_E_LIMIT, "\"%sProperties\": more than %d is not served",
                    o.bounded ? "max" : "min", MOST_LAYERS);
        layers = 0;
        least = UINT64_MAX; /* nothing has both */
    }
    o.layers = (uint32_t)layers;
    uint64_t count = ((uint64_t)o.num_members + 1) * (layers + 1);
    if (!failed(c) && GR_GROW(mem, o.nodes, o.cap_nodes, count)) {
        for (uint64_t i = 0; i < count; i++)
            o.nodes[i] = nfa_state(n);
        nfa_empty(n, f.out, *node(&o, 0, 0));
        for (uint32_t i = 0; i < o.num_members && !failed(c); i++) {
            uint32_t goal = property_goal(c, m->set, o.members[i].name);
            put_member(&o, i, goal);
            for (uint32_t k = 0; k <= o.layers && !o.members[i].required; k++)
                nfa_empty(n, *node(&o, i, k), *node(&o, i + 1, k));
        }
        if (others != NEVER) put_member(&o, o.num_members, others);
        for (uint32_t k = 0; k <= o.layers && !failed(c); k++) {
            if (k < least) continue;
            nfa_frag close = json_mark(b, JSON_CLOSE, '}');
            nfa_empty(n, *node(&o, o.num_members, k), close.in);
            nfa_empty(n, close.out, out);
        }
    }
    GR_DROP(mem, o.members, o.cap_members);
    GR_DROP(mem, o.nodes, o.cap_nodes);
    keys_fini(&o.by_name);
    f.out = out;
    return f;
}

static void put_way(expansion *x, nfa_frag f)
{
    nfa_empty(&x->c->b->n, x->in, f.in);
    nfa_empty(&x->c->b->n, f.out, x->out);
}

static bool visit_frag(expansion *x, const merged *m)
{
    schema_compiler *c = x->c;
    gr_builder *b = c->b;
    size_t i;
    json_t *value;
    if (m->bare) {
        put_way(x, nfa_rule(&b->n, json_value_rule(b)));
    } else if (m->only) {
        if (all_allow(c, m, m->only)) put_way(x, json_literal(b, m->only));
    } else if (m->values) {
        json_array_foreach((json_t *)m->values, i, value)
        {
            if (all_allow(c, m, value)) put_way(x, json_literal(b, value));
        }
    } else {
        if (m->types & IS_NULL) put_way(x, literal(b, "null"));
        if (m->types & IS_BOOLEAN) put_way(x, literal(b, "true"));
        if (m->types & IS_BOOLEAN) put_way(x, literal(b, "false"));
        if (m->types & (IS_INTEGER | IS_FRACTION)) put_way(x, number_frag(c, m));
        if (m->types & IS_STRING) put_way(x, string_frag(c, m));
        if (m->types & IS_ARRAY) put_way(x, array_frag(c, m));
        if (m->types & IS_OBJECT) put_way(x, object_frag(c, m));
    }
    return !failed(c);
}

static void make_goal(schema_compiler *c, uint32_t goal)
{
    expansion *x = rad_alloc(&c->b->mem.env, sizeof *x);
    nfa *n = &c->b->n;
    bool possible = true;
    if (!x) {
        gr_fail(&c->b->mem, RAD_E_NOMEM, "no memory for a grammar");
        return;
    }
    x->c = c;
    x->visit = visit_frag;
    nfa_frag all = nfa_never(n);
    x->in = all.in;
    x->out = all.out;
    for (uint32_t i = 0; i < c->goals[goal].count && possible; i++)
        possible = join(x, c->members[c->goals[goal].first + i]);
    if (possible && !failed(c)) expand_from(x, 0, 0);
    if (!failed(c)) builder_define(c->b, c->goals[goal].rule, all);
    rad_free(&c->b->mem.env, x, sizeof *x);
}

/* ---- documents ---- */

static void compiler_fini(schema_compiler *c)
{
    gr_mem *mem = &c->b->mem;
    for (uint32_t i = 0; i < c->num_patterns; i++)
        dfa_fini(&c->patterns[i].d);
    if (c->has_any_name) dfa_fini(&c->any_name);
    GR_DROP(mem, c->patterns, c->cap_patterns);
    GR_DROP(mem, c->members, c->cap_members);
    GR_DROP(mem, c->goals, c->cap_goals);
    gr_slots_drop(mem, &c->by_hash);
    keys_fini(&c->pattern_of);
    keys_fini(&c->checked);
}

/* The document as a tree, whose size counts as memory of the compilation until release_json. */
static json_t *parse(gr_builder *b, const char *text, size_t len, uint64_t *bytes)
{
    json_look look;
    json_error_t where;
    gr_mem *mem = &b->mem;
    json_look_at(&look, text, len);
    *bytes = json_look_bytes(&look);
    if (*bytes > mem->limit || mem->used > mem->limit - *bytes) {
        *bytes = 0;
        gr_fail(mem, RAD_E_LIMIT, "as JSON it takes more than %llu MiB",
                (unsigned long long)(mem->limit >> 20));
        return NULL;
    }
    mem->used += *bytes;
    mem->peak = RAD_MAX(mem->peak, mem->used);
    json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
    if (!json)
        gr_fail(mem, RAD_E_INVAL, "at byte %d: this is no JSON: %.100s", where.position,
                where.text);
    return json;
}

static void release_json(gr_builder *b, json_t *json, uint64_t bytes)
{
    json_decref(json);
    b->mem.used -= bytes;
}

rad_status schema_build(gr_builder *b, const char *text, size_t len, uint32_t *root)
{
    uint64_t bytes;
    schema_compiler c = {.b = b, .root = parse(b, text, len, &bytes)};
    schema_set set = {.count = 0};
    uint32_t goal = NEVER;
    keys_init(&c.pattern_of, &b->mem);
    keys_init(&c.checked, &b->mem);
    if (!failed(&c) && schema_check(&c, c.root) && hold(&c, &set, c.root)) goal = goal_of(&c, &set);
    if (goal == ANYTHING) {
        *root = json_value_rule(b);
    } else if (goal == NEVER) {
        gr_fail(&b->mem, RAD_E_INVAL, "no text has this form");
    } else {
        *root = c.goals[goal].rule;
        for (uint32_t i = 0; i < c.num_goals && !failed(&c); i++)
            make_goal(&c, i);
    }
    compiler_fini(&c);
    release_json(b, c.root, bytes);
    return b->mem.status;
}

rad_status choice_build(gr_builder *b, const char *text, size_t len, uint32_t *root)
{
    uint64_t bytes;
    json_t *list = parse(b, text, len, &bytes), *item;
    nfa *n = &b->n;
    size_t i;
    if (!b->mem.status && (!json_is_array(list) || !json_array_size(list)))
        gr_fail(&b->mem, RAD_E_INVAL, "a choice is a list of texts");
    nfa_frag all = nfa_never(n);
    json_array_foreach(list, i, item)
    {
        if (!json_is_string(item)) gr_fail(&b->mem, RAD_E_INVAL, "a choice is a list of texts");
        if (b->mem.status) break;
        nfa_frag f =
            chars_literal(n, json_string_value(item), json_string_length(item), CHARS_UTF8);
        nfa_empty(n, all.in, f.in);
        nfa_empty(n, f.out, all.out);
    }
    *root = builder_rule(b);
    builder_define(b, *root, all);
    release_json(b, list, bytes);
    return b->mem.status;
}
