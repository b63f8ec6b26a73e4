/* jinja_methods.c - the methods of Python's str, dict, list and float that templates may call.
 *
 * What Python has and we have not fails when it is called, by its name; what would change a
 * list or a dict is refused, as in Jinja's sandbox. What Python has not either is undefined. */
#include "text/jinja_methods.h"

#define METHOD(name) static jval m_##name(jctx *c, jval self, const jval *args, const jargs *all)

static jval bound(jctx *c, jval self, const jfunction *f)
{
    jmethod *m = jalloc(c, 1, sizeof *m);
    *m = (jmethod){.self = self, .function = f};
    return (jval){.type = J_METHOD, .u.method = m};
}
METHOD(absent)
{
    UNUSED;
    jinja_fail(c, RAD_E_UNSUPPORTED, "this method of %s is not supported", jtype_name(self));
}

jval jstr_method(jctx *c, jval v, const char *name, size_t len)
{
#define ROW(name, spec) {#name, jstr_##name, spec},
    static const jfunction methods[] = {
        JSTR_METHODS(ROW){"casefold", m_absent, NULL},
        {"encode", m_absent, NULL},
        {"expandtabs", m_absent, NULL},
        {"format_map", m_absent, NULL},
        {"isidentifier", m_absent, NULL},
        {"isprintable", m_absent, NULL},
        {"istitle", m_absent, NULL},
        {"maketrans", m_absent, NULL},
        {"translate", m_absent, NULL},
    };
#undef ROW
    const jfunction *f = jfind(methods, RAD_COUNT(methods), name, len);
    return f ? bound(c, v, f) : (jval){.type = J_UNSET};
}

/* ---- dict ---- */

static jval view(jctx *c, const jdict *d, jlist_kind kind)
{
    jval list = jlist_new(c, kind, d->len);
    jsteps(c, d->len / 4);
    for (uint32_t i = 0; i < d->len; i++)
        jlist_push(c, list.u.l,
                   kind == DICT_ITEMS  ? jpair(c, d->keys[i], d->values[i])
                   : kind == DICT_KEYS ? d->keys[i]
                                       : d->values[i]);
    return list;
}

METHOD(items)
{
    UNUSED;
    return view(c, self.u.d, DICT_ITEMS);
}
METHOD(keys)
{
    UNUSED;
    return view(c, self.u.d, DICT_KEYS);
}
METHOD(values)
{
    UNUSED;
    return view(c, self.u.d, DICT_VALUES);
}

METHOD(get)
{
    UNUSED;
    const jval *item = jdict_find(c, self.u.d, args[0]);
    return item ? *item : args[1].type == J_UNSET ? jnone() : args[1];
}

METHOD(copy)
{
    UNUSED;
    jval copy = jdict_new(c, J_DICT);
    for (uint32_t i = 0; i < self.u.d->len; i++)
        jdict_append(c, copy.u.d, self.u.d->keys[i], self.u.d->values[i]);
    return copy;
}

jval jdict_method(jctx *c, jval v, const char *name, size_t len)
{
    static const jfunction methods[] = {
        {"items", m_items, ""},  {"get", m_get, "key,default?"},
        {"keys", m_keys, ""},    {"values", m_values, ""},
        {"copy", m_copy, ""},    {"fromkeys", m_absent, NULL},
        {"clear", NULL, NULL},   {"pop", NULL, NULL},
        {"popitem", NULL, NULL}, {"setdefault", NULL, NULL},
        {"update", NULL, NULL},
    };
    const jfunction *f = jfind(methods, RAD_COUNT(methods), name, len);
    if (!f) return (jval){.type = J_UNSET};
    return f->call ? bound(c, v, f) : jundefined("a method that changes a dict");
}

/* ---- list, tuple ---- */

METHOD(list_count)
{
    UNUSED;
    int64_t n = 0;
    for (uint32_t i = 0; i < self.u.l->len; i++)
        n += jequal(c, self.u.l->items[i], args[0]);
    return jint(n);
}

METHOD(list_index)
{
    UNUSED;
    for (uint32_t i = 0; i < self.u.l->len; i++)
        if (jequal(c, self.u.l->items[i], args[0])) return jint(i);
    jinja_fail(c, RAD_E_INVAL, "index: the item is not there");
}

METHOD(list_copy)
{
    UNUSED;
    jval copy = jlist_new(c, LIST, self.u.l->len);
    for (uint32_t i = 0; i < self.u.l->len; i++)
        jlist_push(c, copy.u.l, self.u.l->items[i]);
    return copy;
}

jval jlist_method(jctx *c, jval v, const char *name, size_t len)
{
    static const jfunction methods[] = {
        {"count", m_list_count, "value"},
        {"index", m_list_index, "value"},
        {"copy", m_list_copy, ""},
        {"append", NULL, NULL},
        {"clear", NULL, NULL},
        {"extend", NULL, NULL},
        {"insert", NULL, NULL},
        {"pop", NULL, NULL},
        {"remove", NULL, NULL},
        {"reverse", NULL, NULL},
        {"sort", NULL, NULL},
    };
    bool list = v.u.l->kind == LIST;
    const jfunction *f = list || v.u.l->kind == TUPLE || v.u.l->kind == RANGE
                             ? jfind(methods, list ? RAD_COUNT(methods) : 2, name, len)
                             : NULL;
    if (!f) return (jval){.type = J_UNSET};
    return f->call ? bound(c, v, f) : jundefined("a method that changes a list");
}

/* ---- numbers ---- */

METHOD(is_integer)
{
    UNUSED;
    return jbool(jis_int(self) ||
                 self.u.f == (double)(int64_t)RAD_MAX(RAD_MIN(self.u.f, 9e18), -9e18));
}

jval jnumber_method(jctx *c, jval v, const char *name, size_t len)
{
    static const jfunction methods[] = {
        {"is_integer", m_is_integer, ""}, {"as_integer_ratio", m_absent, NULL},
        {"bit_count", m_absent, NULL},    {"bit_length", m_absent, NULL},
        {"conjugate", m_absent, NULL},    {"hex", m_absent, NULL},
    };
    if (v.type != J_FLOAT) return (jval){.type = J_UNSET};
    const jfunction *f = jfind(methods, RAD_COUNT(methods), name, len);
    return f ? bound(c, v, f) : (jval){.type = J_UNSET};
}
