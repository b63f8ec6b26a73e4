/* jinja_value.c - lists, dicts, and how values compare, as Python has it.
 *
 * A dict is two arrays in the order of insertion, searched from the start: those of a
 * conversation are small, and a search is paid for in steps. */
#include "text/jinja_value.h"

#include "base/utf8.h"

#include <math.h>

/* ---- lists ---- */

jval jlist_new(jctx *c, jlist_kind kind, uint32_t cap)
{
    jlist *l = jalloc(c, 1, sizeof *l);
    l->kind = kind;
    l->cap = cap;
    if (cap) l->items = jalloc(c, cap, sizeof *l->items);
    return (jval){.type = J_LIST, .u.l = l};
}

void jlist_push(jctx *c, jlist *l, jval v)
{
    if (l->len == l->cap) {
        if (l->cap > UINT32_MAX / 4) jinja_fail(c, RAD_E_LIMIT, "a list is too long");
        uint32_t cap = l->cap ? l->cap * 2 : 4;
        jval *items = jalloc(c, cap, sizeof *items);
        if (l->len) memcpy(items, l->items, l->len * sizeof *items);
        l->items = items;
        l->cap = cap;
    }
    jwork(c, 2 * sizeof v);
    l->items[l->len++] = v;
}

jval jpair(jctx *c, jval a, jval b)
{
    jval pair = jlist_new(c, TUPLE, 2);
    jlist_push(c, pair.u.l, a);
    jlist_push(c, pair.u.l, b);
    return pair;
}

/* ---- dicts ---- */

jval jdict_new(jctx *c, jtype type)
{
    return (jval){.type = (uint8_t)type, .u.d = jalloc(c, 1, sizeof(jdict))};
}

static void want_hashable(jctx *c, jval key)
{
    const int kind = key.type == J_LIST ? key.u.l->kind : -1;
    jwork(c, JINJA_LOOK);
    for (uint32_t i = 0; kind == TUPLE && i < key.u.l->len; i++) {
        jenter(c);
        want_hashable(c, key.u.l->items[i]);
        jleave(c);
    }
    if (key.type == J_DICT || kind == LIST || kind == DICT_KEYS || kind == DICT_ITEMS)
        jinja_fail(c, RAD_E_INVAL, "a %s cannot be a key", jtype_name(key));
}

const jval *jdict_get(jctx *c, const jdict *d, const char *p, size_t len)
{
    for (uint32_t i = 0; i < d->len; i++) {
        jwork(c, JINJA_LOOK);
        if (d->keys[i].type != J_STR) continue;
        const jstr *key = d->keys[i].u.s;
        if (key->len != len) continue;
        jwork(c, len);
        if (memcmp(key->p, p, len) == 0) return &d->values[i];
    }
    return NULL;
}

const jval *jdict_find(jctx *c, const jdict *d, jval key)
{
    if (key.type == J_STR) return jdict_get(c, d, key.u.s->p, key.u.s->len);
    want_hashable(c, key);
    jwork(c, (uint64_t)d->len * JINJA_LOOK);
    for (uint32_t i = 0; i < d->len; i++)
        if (d->keys[i].type != J_STR && jequal(c, d->keys[i], key)) return &d->values[i];
    return NULL;
}

void jdict_append(jctx *c, jdict *d, jval key, jval value)
{
    if (d->len == d->cap) {
        if (d->cap > UINT32_MAX / 4) jinja_fail(c, RAD_E_LIMIT, "a dict is too large");
        uint32_t cap = d->cap ? d->cap * 2 : 4;
        jval *keys = jalloc(c, cap, 2 * sizeof *keys);
        jval *values = keys + cap;
        if (d->len) memcpy(keys, d->keys, d->len * sizeof *keys);
        if (d->len) memcpy(values, d->values, d->len * sizeof *values);
        d->keys = keys;
        d->values = values;
        d->cap = cap;
    }
    jwork(c, 4 * sizeof key);
    d->keys[d->len] = key;
    d->values[d->len++] = value;
}

void jdict_set(jctx *c, jdict *d, jval key, jval value)
{
    jval *there = (jval *)(uintptr_t)jdict_find(c, d, key);
    if (there)
        *there = value;
    else
        jdict_append(c, d, key, value);
}

/* ---- from JSON ---- */

/* A role is put together with a template's markers ('<|' + role + '|>'). The usual ones
 * cannot forge anything; any other word is the conversation's. */
static bool usual_role(const char *role)
{
    static const char *const roles[] = {"system",    "user",  "assistant", "tool",
                                        "developer", "model", "ipython",   "function"};
    for (size_t i = 0; i < RAD_COUNT(roles); i++)
        if (strcmp(role, roles[i]) == 0) return true;
    return false;
}

static jval from_json_string(jctx *c, const char *text, size_t len, bool user)
{
    if (len > c->max_string) jinja_fail(c, RAD_E_LIMIT, "a string is longer than the limit");
    jstr *s = jalloc(c, 1, sizeof *s);
    *s = (jstr){.p = text, .len = (uint32_t)len, .taint = user ? USER : CLEAN};
    return (jval){.type = J_STR, .u.s = s};
}

static jval from_json_object(jctx *c, const json_t *json, bool user)
{
    jval dict = jdict_new(c, J_DICT);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        bool role = strcmp(key, "role") == 0 && json_is_string(value) &&
                    usual_role(json_string_value(value));
        jdict_append(c, dict.u.d, from_json_string(c, key, strlen(key), user),
                     jfrom_json(c, value, user && !role));
    }
    return dict;
}

jval jfrom_json(jctx *c, const json_t *json, bool user)
{
    jval v = jnone();
    jenter(c);
    switch (json_typeof(json)) {
    case JSON_OBJECT: v = from_json_object(c, json, user); break;
    case JSON_ARRAY:
        v = jlist_new(c, LIST, (uint32_t)json_array_size(json));
        for (size_t i = 0; i < json_array_size(json); i++)
            jlist_push(c, v.u.l, jfrom_json(c, json_array_get(json, i), user));
        break;
    case JSON_STRING:
        v = from_json_string(c, json_string_value(json), json_string_length(json), user);
        break;
    case JSON_INTEGER: v = jint(json_integer_value(json)); break;
    case JSON_REAL: v = jfloat(json_real_value(json)); break;
    case JSON_TRUE: v = jbool(true); break;
    case JSON_FALSE: v = jbool(false); break;
    default: break;
    }
    jleave(c);
    return v;
}

/* ---- questions ---- */

const char *jtype_name(jval v)
{
    static const char *const lists[] = {"list",        "tuple",      "range",    "dict_keys",
                                        "dict_values", "dict_items", "generator"};
    switch ((jtype)v.type) {
    case J_UNDEFINED: return "Undefined";
    case J_NONE: return "NoneType";
    case J_BOOL: return "bool";
    case J_INT: return "int";
    case J_FLOAT: return "float";
    case J_STR: return v.u.s->markup ? "Markup" : "str";
    case J_LIST: return lists[v.u.l->kind];
    case J_DICT: return "dict";
    case J_NAMESPACE: return "Namespace";
    case J_MACRO: return "Macro";
    case J_LOOP: return "LoopContext";
    default: return "function";
    }
}

bool jis_int(jval v)
{
    return v.type == J_BOOL || v.type == J_INT;
}
bool jis_number(jval v)
{
    return jis_int(v) || v.type == J_FLOAT;
}
int64_t jas_int(jval v)
{
    return v.type == J_BOOL ? v.u.b : v.u.i;
}
double jas_float(jval v)
{
    return v.type == J_FLOAT ? v.u.f : (double)jas_int(v);
}

bool jtrue(jval v)
{
    switch ((jtype)v.type) {
    case J_UNDEFINED:
    case J_NONE: return false;
    case J_BOOL: return v.u.b;
    case J_INT: return v.u.i != 0;
    case J_FLOAT: return v.u.f != 0;
    case J_STR: return v.u.s->len > 0;
    case J_LIST: return v.u.l->kind == ITERATOR || v.u.l->len > 0;
    case J_DICT: return v.u.d->len > 0;
    default: return true;
    }
}

/* What `in` says of a list. In keys and items of a dict it is a look-up. */
static bool holds(jctx *c, const jlist *l, jval item)
{
    jsteps(c, l->len / 4);
    if (l->kind == DICT_KEYS) want_hashable(c, item);
    if (l->kind == DICT_ITEMS) {
        if (item.type != J_LIST || item.u.l->kind != TUPLE || item.u.l->len != 2) return false;
        want_hashable(c, item.u.l->items[0]);
    }
    for (uint32_t i = 0; i < l->len; i++)
        if (jequal(c, l->items[i], item)) return true;
    return false;
}

static bool equal_lists(jctx *c, const jlist *a, const jlist *b)
{
    if (a == b) return true;
    if (a->kind != b->kind || a->len != b->len || a->kind == ITERATOR || a->kind == DICT_VALUES)
        return false;
    const bool sets = a->kind == DICT_KEYS || a->kind == DICT_ITEMS; /* in any order */
    for (uint32_t i = 0; i < a->len; i++)
        if (sets ? !holds(c, b, a->items[i]) : !jequal(c, a->items[i], b->items[i])) return false;
    return true;
}

static bool equal_dicts(jctx *c, const jdict *a, const jdict *b)
{
    if (a == b) return true;
    if (a->len != b->len) return false;
    for (uint32_t i = 0; i < a->len; i++) {
        const jval *there = jdict_find(c, b, a->keys[i]);
        if (!there || !jequal(c, a->values[i], *there)) return false;
    }
    return true;
}

/* -1, 0, 1, or 2 where one of them is no number. Exact also where a double is not. */
static int compare_numbers(jval a, jval b)
{
    if (jis_int(a) && jis_int(b)) return (jas_int(a) > jas_int(b)) - (jas_int(a) < jas_int(b));
    long double x = jis_int(a) ? (long double)jas_int(a) : (long double)a.u.f;
    long double y = jis_int(b) ? (long double)jas_int(b) : (long double)b.u.f;
    if (isnan(x) || isnan(y)) return 2;
    return (x > y) - (x < y);
}

static int compare_strings(const jstr *a, const jstr *b)
{
    int order = memcmp(a->p, b->p, RAD_MIN(a->len, b->len)); /* UTF-8 sorts as its characters */
    if (order) return order < 0 ? -1 : 1;
    return (a->len > b->len) - (a->len < b->len);
}

/* The same method of the same thing, not of an equal one. */
static bool equal_methods(const jmethod *a, const jmethod *b)
{
    if (a->function != b->function || a->self.type != b->self.type) return false;
    return jis_number(a->self) ? compare_numbers(a->self, b->self) == 0
                               : a->self.u.hint == b->self.u.hint;
}

bool jequal(jctx *c, jval a, jval b)
{
    bool equal = false;
    jenter(c);
    if (jis_number(a) && jis_number(b)) {
        equal = compare_numbers(a, b) == 0;
    } else if (a.type == b.type) {
        switch ((jtype)a.type) {
        case J_UNDEFINED:
        case J_NONE: equal = true; break;
        case J_STR:
            if (a.u.s->len == b.u.s->len) jwork(c, a.u.s->len);
            equal = a.u.s->len == b.u.s->len && memcmp(a.u.s->p, b.u.s->p, a.u.s->len) == 0;
            break;
        case J_LIST: equal = equal_lists(c, a.u.l, b.u.l); break;
        case J_DICT: equal = equal_dicts(c, a.u.d, b.u.d); break;
        case J_METHOD: equal = equal_methods(a.u.method, b.u.method); break;
        default: equal = a.u.hint == b.u.hint; break; /* the same pointer */
        }
    }
    jleave(c);
    return equal;
}

int jcompare(jctx *c, jval a, jval b, const char *op)
{
    if (jis_number(a) && jis_number(b)) return compare_numbers(a, b);
    if (a.type == J_STR && b.type == J_STR) {
        jwork(c, JINJA_CALL + RAD_MIN(a.u.s->len, b.u.s->len));
        return compare_strings(a.u.s, b.u.s);
    }
    if (a.type == J_UNDEFINED || b.type == J_UNDEFINED)
        jinja_fail(c, RAD_E_INVAL, "%s is undefined", a.type == J_UNDEFINED ? a.u.hint : b.u.hint);
    bool lists = a.type == J_LIST && b.type == J_LIST && a.u.l->kind == b.u.l->kind &&
                 (a.u.l->kind == LIST || a.u.l->kind == TUPLE);
    if (!lists)
        jinja_fail(c, RAD_E_INVAL, "'%s' does not compare %s and %s", op, jtype_name(a),
                   jtype_name(b));
    int order = 0;
    jenter(c);
    for (uint32_t i = 0; i < a.u.l->len && i < b.u.l->len && !order; i++)
        if (!jequal(c, a.u.l->items[i], b.u.l->items[i])) {
            order = jcompare(c, a.u.l->items[i], b.u.l->items[i], op);
            if (!order) order = 2; /* neither equal nor less nor more */
        }
    jleave(c);
    return order ? order : (a.u.l->len > b.u.l->len) - (a.u.l->len < b.u.l->len);
}

bool jcontains(jctx *c, jval item, jval in)
{
    if (in.type == J_STR) {
        if (item.type != J_STR)
            jinja_fail(c, RAD_E_INVAL, "'in' looks for a str in a str, not for a %s",
                       jtype_name(item));
        return jfind_text(c, in.u.s->p, in.u.s->len, item.u.s) != NULL;
    }
    if (in.type == J_DICT) return jdict_find(c, in.u.d, item) != NULL;
    return holds(c, jiterate(c, in), item);
}

int64_t jlength(jctx *c, jval v)
{
    if (v.type == J_STR) {
        jwork(c, (uint64_t)v.u.s->len * JINJA_LOOK / 2);
        return (int64_t)jchars(v.u.s);
    }
    if (v.type == J_LIST && v.u.l->kind != ITERATOR) return v.u.l->len;
    if (v.type == J_DICT) return v.u.d->len;
    if (v.type == J_UNDEFINED) return 0;
    jinja_fail(c, RAD_E_INVAL, "a %s has no length", jtype_name(v));
}

jlist *jiterate(jctx *c, jval v)
{
    if (v.type == J_LIST && v.u.l->kind != ITERATOR) return v.u.l;
    jlist *l = jlist_new(c, LIST, 0).u.l;
    if (v.type == J_LIST) { /* what is left of it */
        if (v.u.l->len) l->items = v.u.l->items + v.u.l->taken;
        l->len = l->cap = v.u.l->len - v.u.l->taken;
        v.u.l->taken = v.u.l->len;
    } else if (v.type == J_DICT) {
        for (uint32_t i = 0; i < v.u.d->len; i++)
            jlist_push(c, l, v.u.d->keys[i]);
    } else if (v.type == J_STR) {
        const jstr *s = jplain(c, v.u.s).u.s; /* the characters of Markup are none */
        jsteps(c, s->len);
        for (size_t at = 0, n; at < s->len; at += n) {
            n = utf8_next((const unsigned char *)s->p + at, s->len - at).len;
            jlist_push(c, l, jsub(c, s, at, n));
        }
    } else if (v.type != J_UNDEFINED) {
        jinja_fail(c, RAD_E_INVAL, "a %s cannot be iterated over", jtype_name(v));
    }
    return l;
}

const jstr *jwant_str(jctx *c, jval v, const char *who)
{
    if (v.type == J_UNDEFINED) jinja_fail(c, RAD_E_INVAL, "%s: %s is undefined", who, v.u.hint);
    if (v.type != J_STR) jinja_fail(c, RAD_E_INVAL, "%s wants a str, not a %s", who, jtype_name(v));
    return v.u.s;
}

int64_t jwant_int(jctx *c, jval v, const char *who)
{
    if (v.type == J_UNDEFINED) jinja_fail(c, RAD_E_INVAL, "%s: %s is undefined", who, v.u.hint);
    if (!jis_int(v)) jinja_fail(c, RAD_E_INVAL, "%s wants an int, not a %s", who, jtype_name(v));
    return jas_int(v);
}
