/* schema_allows.c - whether a value satisfies a schema.
 *
 * Asked of the values of enum and const that stand beside other keywords: those that do not fit are
 * no values of the schema; and of names, by propertyNames. */
#include "grammar/schema_impl.h"

#include "base/utf8.h"

static bool is_multiple(const decimal *x, const decimal *step)
{
    uint64_t p = 0, rest = 0;
    for (unsigned i = 0; i < step->num_whole; i++)
        p = RAD_MIN(p * 10 + (uint64_t)(step->whole[i] - '0'), (uint64_t)1 << 50);
    for (unsigned i = 0; i < step->num_part; i++)
        p = RAD_MIN(p * 10 + (uint64_t)(step->part[i] - '0'), (uint64_t)1 << 50);
    if (!p || x->num_part > step->num_part) return false;
    for (unsigned i = 0; i < x->num_whole; i++)
        rest = (rest * 10 + (uint64_t)(x->whole[i] - '0')) % p;
    for (unsigned i = 0; i < step->num_part; i++)
        rest = (rest * 10 + (i < x->num_part ? (uint64_t)(x->part[i] - '0') : 0)) % p;
    return !rest;
}

static bool allows_number(const json_t *schema, const json_t *value)
{
    static const struct {
        const char *name;
        bool low, high, equal;
    } bounds[] = {{"minimum", true, false, true},
                  {"maximum", false, true, true},
                  {"exclusiveMinimum", true, false, false},
                  {"exclusiveMaximum", false, true, false}};
    decimal x, bound;
    if (!decimal_of(value, &x)) return false;
    for (size_t i = 0; i < RAD_COUNT(bounds); i++) {
        const json_t *at = json_object_get(schema, bounds[i].name);
        if (!at || !decimal_of(at, &bound)) continue;
        int order = decimal_compare(&x, &bound);
        if ((order < 0 && bounds[i].low) || (order > 0 && bounds[i].high) ||
            (!order && !bounds[i].equal))
            return false;
    }
    const json_t *step = json_object_get(schema, "multipleOf");
    return !step || !decimal_of(step, &bound) || is_multiple(&x, &bound);
}

static bool fits(const json_t *schema, const char *least, const char *most, size_t count)
{
    const json_t *min = json_object_get(schema, least), *max = json_object_get(schema, most);
    return (!min || (double)count >= json_number_value(min)) &&
           (!max || (double)count <= json_number_value(max));
}

bool schema_dfa_has(const dfa *d, const char *text, size_t len, chars_form form)
{
    uint32_t s = 0;
    for (size_t i = 0; i < len && s != NO_RULE;) {
        unsigned char bytes[8];
        utf8_char c = utf8_next((const unsigned char *)text + i, len - i);
        uint32_t n = chars_bytes(c.code, form, bytes);
        for (uint32_t k = 0; k < n && s != NO_RULE; k++)
            s = dfa_step(d, s, bytes[k]);
        i += c.len;
    }
    return s != NO_RULE && d->accepts[s];
}

static bool allows_string(schema_compiler *c, const json_t *schema, const json_t *value)
{
    static const char *const keys[] = {"pattern", "format"};
    const char *text = json_string_value(value);
    size_t len = json_string_length(value), count = 0;
    for (size_t i = 0; i < len; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    if (!fits(schema, "minLength", "maxLength", count)) return false;
    for (int i = 0; i < 2; i++) {
        const json_t *at = json_object_get(schema, keys[i]);
        if (!at) continue;
        const char *expression = i ? format_expression(json_string_value(at))
                                   : json_string_value(at);
        if (expression && !schema_matches(c, expression, i == 1, text, len)) return false;
    }
    return true;
}

static bool allows_array(schema_compiler *c, const json_t *schema, const json_t *value)
{
    size_t i;
    json_t *item;
    const json_t *rest, *prefix = schema_prefix_of(schema, &rest);
    if (!fits(schema, "minItems", "maxItems", json_array_size(value))) return false;
    json_array_foreach((json_t *)value, i, item)
    {
        const json_t *at = i < json_array_size(prefix) ? json_array_get(prefix, i) : rest;
        if (at && !schema_allows(c, at, item)) return false;
        for (size_t k = 0; k < i && json_is_true(json_object_get(schema, "uniqueItems")); k++)
            if (schema_equal(c, json_array_get(value, k), item) || c->b->mem.status) return false;
    }
    return true;
}

bool schema_allows_name(schema_compiler *c, const json_t *schema, const char *name)
{
    const json_t *names = json_object_get(schema, "propertyNames");
    if (!names) return true;
    json_t *text = json_string(name);
    const bool allowed = text && schema_allows(c, names, text);
    if (!text) gr_fail(&c->b->mem, RAD_E_NOMEM, "no memory for a grammar");
    json_decref(text);
    return allowed;
}

static bool allows_object(schema_compiler *c, const json_t *schema, const json_t *value)
{
    size_t i;
    const char *name;
    json_t *item;
    const json_t *required = json_object_get(schema, "required");
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *others = json_object_get(schema, "additionalProperties");
    if (!fits(schema, "minProperties", "maxProperties", json_object_size(value))) return false;
    json_array_foreach((json_t *)required, i, item)
    {
        if (!json_object_get(value, json_string_value(item))) return false;
    }
    json_object_foreach((json_t *)value, name, item)
    {
        const json_t *at = json_object_get(properties, name);
        const char *pattern;
        json_t *by_pattern;
        bool said = at != NULL;
        if (at && !schema_allows(c, at, item)) return false;
        json_object_foreach(json_object_get(schema, "patternProperties"), pattern, by_pattern)
        {
            if (!schema_matches(c, pattern, false, name, strlen(name))) continue;
            said = true;
            if (!schema_allows(c, by_pattern, item)) return false;
        }
        if (!said && others && !schema_allows(c, others, item)) return false;
        if (!schema_allows_name(c, schema, name)) return false;
    }
    return true;
}

static unsigned type_of(const json_t *value)
{
    decimal d;
    switch (json_typeof(value)) {
    case JSON_NULL: return IS_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return IS_BOOLEAN;
    case JSON_STRING: return IS_STRING;
    case JSON_ARRAY: return IS_ARRAY;
    case JSON_OBJECT: return IS_OBJECT;
    case JSON_INTEGER: return IS_INTEGER;
    case JSON_REAL: break; /* 1.0 is an integer */
    }
    return decimal_of(value, &d) && !d.num_part ? IS_INTEGER : IS_FRACTION;
}

bool schema_equal(schema_compiler *c, const json_t *a, const json_t *b)
{
    size_t i;
    const char *name;
    json_t *item;
    decimal x, y;
    if (!gr_work(&c->b->mem, 20 + json_string_length(a) / 16)) return false;
    if (json_is_number(a) && json_is_number(b))
        return decimal_of(a, &x) && decimal_of(b, &y) && !decimal_compare(&x, &y);
    if (json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        json_array_foreach((json_t *)a, i, item)
        {
            if (!schema_equal(c, item, json_array_get(b, i))) return false;
        }
        return true;
    }
    if (json_is_object(a)) {
        if (json_object_size(a) != json_object_size(b)) return false;
        json_object_foreach((json_t *)a, name, item)
        {
            const json_t *other = json_object_get(b, name);
            if (!other || !schema_equal(c, item, other)) return false;
        }
        return true;
    }
    return json_equal(a, b);
}

static bool allows_branches(schema_compiler *c, const json_t *schema, const json_t *value)
{
    static const char *const keys[] = {"allOf", "anyOf", "oneOf"};
    for (int k = 0; k < 3; k++) {
        const json_t *list = json_object_get(schema, keys[k]);
        size_t fit = 0, n = json_array_size(list);
        for (size_t i = 0; i < n; i++)
            fit += schema_allows(c, json_array_get(list, i), value);
        if (list && (k == 0 ? fit != n : k == 1 ? !fit : fit != 1)) return false;
    }
    return true;
}

bool schema_allows(schema_compiler *c, const json_t *schema, const json_t *value)
{
    size_t i;
    json_t *item;
    gr_mem *mem = &c->b->mem;
    if (!json_is_object(schema)) return json_is_true(schema);
    if (!gr_work(mem, 40) || json_object_get(schema, "not")) return false;
    if (c->depth > SCHEMA_MOST_DEPTH) {
        gr_fail(mem, RAD_E_LIMIT, "schemas lead to each other too deep");
        return false;
    }
    c->depth++;
    const json_t *type = json_object_get(schema, "type");
    bool ok = !type || (schema_types(type) & type_of(value));
    const json_t *one = json_object_get(schema, "const"), *some = json_object_get(schema, "enum");
    if (ok && one) ok = schema_equal(c, one, value);
    if (ok && some && some != c->candidates) {
        ok = false;
        gr_work(mem, json_array_size(some));
        json_array_foreach((json_t *)some, i, item)
        {
            if ((ok = schema_equal(c, item, value))) break;
        }
    }
    if (ok && json_is_number(value)) ok = allows_number(schema, value);
    if (ok && json_is_string(value)) ok = allows_string(c, schema, value);
    if (ok && json_is_array(value)) ok = allows_array(c, schema, value);
    if (ok && json_is_object(value)) ok = allows_object(c, schema, value);
    if (ok && json_object_get(schema, "$ref")) {
        const json_t *target = schema_resolve(c, schema);
        ok = target && schema_allows(c, target, value);
    }
    ok = ok && allows_branches(c, schema, value);
    c->depth--;
    return ok && !mem->status;
}
