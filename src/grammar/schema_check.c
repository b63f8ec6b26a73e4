/* schema_check.c - what a schema may say.
 *
 * Every keyword of a document is looked up before any rule is made: one that is not served is
 * refused by its name and place, whatever the rest says. */
#include "grammar/schema_impl.h"

#include <stdio.h>

typedef enum takes {
    TAKES_ANYTHING, /* an annotation, or looked at elsewhere */
    TAKES_SCHEMA,
    TAKES_SCHEMAS,        /* a list */
    TAKES_SCHEMA_OR_LIST, /* items of older drafts */
    TAKES_NAMED_SCHEMAS,  /* an object */
    TAKES_NUMBER,
    TAKES_COUNT,
    TAKES_TEXT,
    TAKES_NAMES, /* a list of strings */
    TAKES_LIST,
    TAKES_TYPES,
    TAKES_NAME_SCHEMA, /* of names: of strings, by plain keywords */
    TAKES_NOT,         /* {} or true, which nothing satisfies then */
    TAKES_ROOT_ID,     /* of the whole document, where it moves no $ref */
    TAKES_ENCODING,    /* an annotation, and served where a pattern says it */
    TAKES_BOOLEAN
} takes;

static const struct keyword {
    const char *name;
    takes takes;
    bool annotates; /* no value depends on it */
} keywords[] = {
    {"$comment", TAKES_ANYTHING, true},
    {"$defs", TAKES_NAMED_SCHEMAS, true},
    {"$id", TAKES_ROOT_ID, true},
    {"$ref", TAKES_TEXT},
    {"$schema", TAKES_ANYTHING, true},
    {"additionalItems", TAKES_SCHEMA},
    {"additionalProperties", TAKES_SCHEMA},
    {"allOf", TAKES_SCHEMAS},
    {"anyOf", TAKES_SCHEMAS},
    {"const", TAKES_ANYTHING},
    {"contentEncoding", TAKES_ENCODING, true},
    {"default", TAKES_ANYTHING, true},
    {"definitions", TAKES_NAMED_SCHEMAS, true},
    {"deprecated", TAKES_ANYTHING, true},
    {"description", TAKES_ANYTHING, true},
    {"discriminator", TAKES_ANYTHING, true},
    {"enum", TAKES_LIST},
    {"example", TAKES_ANYTHING, true},
    {"examples", TAKES_ANYTHING, true},
    {"exclusiveMaximum", TAKES_NUMBER},
    {"exclusiveMinimum", TAKES_NUMBER},
    {"format", TAKES_TEXT},
    {"items", TAKES_SCHEMA_OR_LIST},
    {"maxItems", TAKES_COUNT},
    {"maxLength", TAKES_COUNT},
    {"maxProperties", TAKES_COUNT},
    {"maximum", TAKES_NUMBER},
    {"minItems", TAKES_COUNT},
    {"minLength", TAKES_COUNT},
    {"minProperties", TAKES_COUNT},
    {"minimum", TAKES_NUMBER},
    {"multipleOf", TAKES_NUMBER},
    {"not", TAKES_NOT},
    {"oneOf", TAKES_SCHEMAS},
    {"pattern", TAKES_TEXT},
    {"patternProperties", TAKES_NAMED_SCHEMAS},
    {"prefixItems", TAKES_SCHEMAS},
    {"properties", TAKES_NAMED_SCHEMAS},
    {"propertyNames", TAKES_NAME_SCHEMA},
    {"readOnly", TAKES_ANYTHING, true},
    {"required", TAKES_NAMES},
    {"title", TAKES_ANYTHING, true},
    {"type", TAKES_TYPES},
    {"uniqueItems", TAKES_BOOLEAN},
    {"writeOnly", TAKES_ANYTHING, true},
};

/* NULL: it is not served. */
static const struct keyword *find_keyword(const char *name)
{
    for (size_t i = 0; i < RAD_COUNT(keywords); i++)
        if (strcmp(name, keywords[i].name) == 0) return &keywords[i];
    return NULL;
}

/* Words that clients have between themselves. */
static bool is_private(const char *keyword)
{
    return keyword[0] == 'x' && keyword[1] == '-';
}

bool schema_is_annotation(const char *name)
{
    const struct keyword *keyword = find_keyword(name);
    return is_private(name) || (keyword && keyword->annotates);
}

static const char *const unchecked_formats[] = {"int32",    "int64",  "float", "double",
                                                "password", "binary", "path"};

/* ---- the document ---- */

typedef struct checker {
    schema_compiler *c;
    char path[160];
    size_t len;
    unsigned depth;
} checker;

static bool refuse(checker *k, rad_status status, const char *keyword, const char *what)
{
    gr_fail(&k->c->b->mem, status, "%s: \"%.80s\" %s", k->len ? k->path : "#", keyword, what);
    return false;
}

static size_t enter(checker *k, const char *name, size_t index)
{
    size_t before = k->len;
    char number[24];
    if (!name) {
        snprintf(number, sizeof number, "%zu", index);
        name = number;
    }
    size_t len = strlen(name);
    if (!k->len) k->path[k->len++] = '#';
    if (k->len + len + 2 < sizeof k->path) {
        k->path[k->len++] = '/';
        memcpy(k->path + k->len, name, len);
        k->len += len;
    }
    k->path[k->len] = 0;
    return before;
}

static void leave(checker *k, size_t before)
{
    k->len = before;
    k->path[before] = 0;
}

static bool check_schema(checker *k, const json_t *schema);

static bool check_below(checker *k, const char *name, size_t index, const json_t *schema)
{
    size_t before = enter(k, name, index);
    bool ok = check_schema(k, schema);
    leave(k, before);
    return ok;
}

static bool check_list(checker *k, const char *keyword, const json_t *value)
{
    size_t i;
    json_t *item;
    if (!json_is_array(value) || !json_array_size(value))
        return refuse(k, RAD_E_INVAL, keyword, "is no list of schemas");
    size_t before = enter(k, keyword, 0);
    json_array_foreach((json_t *)value, i, item)
    {
        if (!check_below(k, NULL, i, item)) return false;
    }
    leave(k, before);
    return true;
}

static bool check_type(checker *k, const json_t *value)
{
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    if (!n) return refuse(k, RAD_E_INVAL, "type", "has no type");
    for (size_t i = 0; i < n; i++) {
        const json_t *type = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_string(type) || !schema_types(type))
            return refuse(k, RAD_E_INVAL, "type", "is not a type that JSON has");
    }
    return true;
}

static bool check_number(checker *k, const char *keyword, const json_t *value)
{
    decimal d;
    if (!json_is_number(value)) return refuse(k, RAD_E_INVAL, keyword, "is no number");
    if (!decimal_of(value, &d)) return refuse(k, RAD_E_LIMIT, keyword, "has too many digits");
    if (strcmp(keyword, "multipleOf") == 0 && (d.negative || (d.whole[0] == '0' && !d.num_part)))
        return refuse(k, RAD_E_INVAL, keyword, "is not above zero");
    return true;
}

static bool check_count(checker *k, const char *keyword, const json_t *value)
{
    double n = json_number_value(value);
    if (!json_is_number(value) || n < 0 || n != (double)(json_int_t)RAD_MIN(n, 1e15))
        return refuse(k, RAD_E_INVAL, keyword, "is no count");
    bool most = strncmp(keyword, "max", 3) == 0;
    if (n > SCHEMA_MOST_COUNT && !most)
        return refuse(k, RAD_E_LIMIT, keyword, "is more than is served");
    return true;
}

/* Clients have formats of their own ("nanoid", "starts_with") and say them as patterns, too. A
 * format that JSON Schema does not know restricts nothing; alone it is refused all the same, for
 * somebody would miss it. */
static bool check_text(checker *k, const char *keyword, const json_t *value, const json_t *schema)
{
    if (!json_is_string(value)) return refuse(k, RAD_E_INVAL, keyword, "is no text");
    if (strcmp(keyword, "format") != 0) return true;
    const char *name = json_string_value(value);
    bool known = format_expression(name) || json_is_string(json_object_get(schema, "pattern"));
    size_t at;
    json_t *each;
    json_array_foreach(json_object_get(schema, "allOf"), at, each)
        known |= json_is_string(json_object_get(each, "pattern"));
    for (size_t i = 0; i < RAD_COUNT(unchecked_formats); i++)
        known |= strcmp(name, unchecked_formats[i]) == 0;
    if (!known) return refuse(k, RAD_E_UNSUPPORTED, name, "is a format that is not served");
    return true;
}

static bool check_names(checker *k, const char *keyword, const json_t *value)
{
    size_t i;
    json_t *item;
    if (!json_is_array(value)) return refuse(k, RAD_E_INVAL, keyword, "is no list of names");
    json_array_foreach((json_t *)value, i, item)
    {
        if (!json_is_string(item)) return refuse(k, RAD_E_INVAL, keyword, "is no list of names");
    }
    return true;
}

bool schema_lists_names(schema_compiler *c, const json_t *names, unsigned depth)
{
    size_t i;
    json_t *each;
    const json_t *branches = json_object_get(names, "anyOf");
    bool all = json_array_size(branches) > 0;
    if (depth > SCHEMA_MOST_DEPTH || !gr_work(&c->b->mem, 20)) return false;
    if (json_object_get(names, "const") || json_object_get(names, "enum")) return true;
    if (json_is_string(json_object_get(names, "$ref")))
        return schema_lists_names(c, schema_resolve(c, names), depth + 1);
    json_array_foreach((json_t *)branches, i, each)
        all = all && schema_lists_names(c, each, depth + 1);
    return all;
}

static bool check_name_schema(checker *k, const char *keyword, const json_t *value)
{
    const char *name;
    json_t *item;
    static const char *const served[] = {"minLength", "maxLength", "pattern", "format"};
    if (!check_below(k, keyword, 0, value)) return false;
    if (json_is_false(value))
        return refuse(k, RAD_E_UNSUPPORTED, keyword, "as false is not served");
    if (schema_lists_names(k->c, value, 0)) return true;
    if (k->c->b->mem.status) return false;
    json_object_foreach((json_t *)value, name, item)
    {
        bool known = schema_is_annotation(name) || (!strcmp(name, "type") && json_is_string(item) &&
                                                    !strcmp(json_string_value(item), "string"));
        for (size_t i = 0; i < RAD_COUNT(served); i++)
            known |= !strcmp(name, served[i]);
        if (!known)
            return refuse(k, RAD_E_UNSUPPORTED, keyword,
                          "is served of {\"type\": \"string\"} with lengths, a \"pattern\" or a "
                          "\"format\", and where it lists names");
    }
    return true;
}

/* As clients write a schema that has no values. */
static bool check_not(checker *k, const char *keyword, const json_t *value)
{
    const char *name;
    json_t *item;
    bool all = json_is_true(value) || json_is_object(value);
    json_object_foreach((json_t *)value, name, item) all = all && schema_is_annotation(name);
    return all || refuse(k, RAD_E_UNSUPPORTED, keyword, "is served as {\"not\": {}}");
}

static bool check_keyword(checker *k, const char *keyword, takes kind, const json_t *value,
                          const json_t *schema)
{
    const char *name;
    json_t *item;
    switch (kind) {
    case TAKES_ANYTHING: return true;
    case TAKES_SCHEMA: return check_below(k, keyword, 0, value);
    case TAKES_SCHEMAS: return check_list(k, keyword, value);
    case TAKES_SCHEMA_OR_LIST:
        return json_is_array(value) ? check_list(k, keyword, value)
                                    : check_below(k, keyword, 0, value);
    case TAKES_NAMED_SCHEMAS: {
        if (!json_is_object(value)) return refuse(k, RAD_E_INVAL, keyword, "has no names");
        size_t before = enter(k, keyword, 0);
        json_object_foreach((json_t *)value, name, item)
        {
            if (!check_below(k, name, 0, item)) return false;
        }
        leave(k, before);
        return true;
    }
    case TAKES_NUMBER: return check_number(k, keyword, value);
    case TAKES_COUNT: return check_count(k, keyword, value);
    case TAKES_TEXT: return check_text(k, keyword, value, schema);
    case TAKES_NAMES: return check_names(k, keyword, value);
    case TAKES_LIST:
        return (json_is_array(value) && json_array_size(value)) ||
               refuse(k, RAD_E_INVAL, keyword, "is no list with values");
    case TAKES_TYPES: return check_type(k, value);
    case TAKES_NAME_SCHEMA: return check_name_schema(k, keyword, value);
    case TAKES_NOT: return check_not(k, keyword, value);
    case TAKES_ROOT_ID:
        if (!json_is_string(value)) return refuse(k, RAD_E_INVAL, keyword, "is no text");
        return schema == k->c->root ||
               refuse(k, RAD_E_UNSUPPORTED, keyword, "is not served below the root");
    case TAKES_ENCODING:
        return json_is_string(json_object_get(schema, "pattern")) ||
               refuse(k, RAD_E_UNSUPPORTED, keyword, "is not served where no \"pattern\" says it");
    case TAKES_BOOLEAN:
        return json_is_boolean(value) || refuse(k, RAD_E_INVAL, keyword, "is not true or false");
    }
    return true;
}

static bool check_schema(checker *k, const json_t *schema)
{
    const char *keyword;
    json_t *value;
    gr_mem *mem = &k->c->b->mem;
    if (json_is_boolean(schema)) return true;
    if (!json_is_object(schema)) {
        gr_fail(mem, RAD_E_INVAL, "%s: this is no schema", k->len ? k->path : "#");
        return false;
    }
    if (keys_find(&k->c->checked, (uintptr_t)schema) != NO_KEY) return true;
    keys_add(&k->c->checked, (uintptr_t)schema);
    if (++k->depth > SCHEMA_MOST_DEPTH) {
        gr_fail(mem, RAD_E_LIMIT, "%s: schemas are nested too deep", k->path);
        return false;
    }
    json_object_foreach((json_t *)schema, keyword, value)
    {
        gr_work(mem, 1);
        if (is_private(keyword)) continue;
        const struct keyword *served = find_keyword(keyword);
        if (!served) return refuse(k, RAD_E_UNSUPPORTED, keyword, "is not served");
        if (mem->status || !check_keyword(k, keyword, served->takes, value, schema)) return false;
    }
    k->depth--;
    return !mem->status;
}

bool schema_check(schema_compiler *c, const json_t *schema)
{
    checker k = {.c = c};
    return check_schema(&k, schema);
}

/* ---- $ref ---- */

/* The next part of a JSON pointer, with ~0, ~1 and %XX undone. False: it is too long. */
static bool pointer_part(const char **at, char part[256])
{
    size_t n = 0;
    const char *c = *at;
    for (; *c && *c != '/'; c++) {
        unsigned byte = (unsigned char)*c, used = 0;
        char hex[3] = {0};
        if (*c == '~' && (c[1] == '0' || c[1] == '1')) {
            byte = *++c == '0' ? '~' : '/';
        } else if (*c == '%' && c[1] && c[2]) {
            memcpy(hex, c + 1, 2);
            if (sscanf(hex, "%2x", &used) == 1) {
                byte = used;
                c += 2;
            }
        }
        if (n == 255) return false;
        part[n++] = (char)byte;
    }
    part[n] = 0;
    *at = *c ? c + 1 : c;
    return true;
}

const json_t *schema_resolve(schema_compiler *c, const json_t *schema)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    const json_t *at = c->root;
    gr_mem *mem = &c->b->mem;
    gr_work(mem, 20 + strlen(ref) / 2);
    if (ref[0] != '#' || (ref[1] && ref[1] != '/')) {
        gr_fail(mem, RAD_E_UNSUPPORTED, "\"$ref\": %.100s: only # and #/... are served", ref);
        return NULL;
    }
    const char *rest = ref[1] ? ref + 2 : ref + 1;
    for (bool more = ref[1]; more && at;) {
        char part[256];
        more = strchr(rest, '/') != NULL;
        if (!pointer_part(&rest, part)) at = NULL;
        if (json_is_array(at)) {
            char *end;
            unsigned long i = strtoul(part, &end, 10);
            at = *part && !*end ? json_array_get(at, i) : NULL;
        } else {
            at = json_object_get(at, part);
        }
    }
    if (!at)
        gr_fail(mem, RAD_E_INVAL, "\"$ref\": there is no %.100s", ref);
    else if (!schema_check(c, at))
        at = NULL;
    return at;
}
