/* match.c - what of a key is cached: Match, and the calls that give one.
 *
 * A key's tokens are taken before the cache is entered and given back when it was left: taking them
 * may run Python's code, which may call the cache. */
#include "python.h"

#include <string.h>

static PyTypeObject *match_type;

/* ---- keys ---- */

bool key_words(PyObject *extra_key, PyObject *cache_salt, PyObject *session, rad_key *key)
{
    key->session = 0;
    return arg_name(extra_key, "extra_key", &key->extra_key) &&
           arg_name(cache_salt, "cache_salt", &key->cache_salt) &&
           arg_u32(session, "session", &key->session);
}

bool key_take(PyObject *tokens, PyObject *extra_key, PyObject *cache_salt, PyObject *session,
              ints_in *in, rad_key *key)
{
    if (!key_words(extra_key, cache_salt, session, key) ||
        !ints_take(tokens, "tokens", INTS_TOKENS, in))
        return false;
    key->tokens = in->data;
    key->num_tokens = (uint32_t)in->count;
    return true;
}

/* ---- Match ---- */

typedef struct match_object {
    PyObject_HEAD rad_match match;
    PyObject *slots;
    unsigned long long last_node;
} match_object;

PyObject *match_new(const rad_match *match, PyObject *slots)
{
    match_object *m = (match_object *)PyType_GenericAlloc(match_type, 0);
    if (!m) {
        XDECREF(slots);
        return NULL;
    }
    m->match = *match;
    m->slots = slots;
    m->last_node = ((uint64_t)match->last_node.generation << 32) | match->last_node.index;
    return (PyObject *)m;
}

const rad_match *match_of(PyObject *match)
{
    if (match && Py_TYPE(match) == match_type) return &((match_object *)match)->match;
    PyErr_SetString(PyExc_TypeError, "match must be the Match of a match_prefix");
    return NULL;
}

static void match_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    XDECREF(((match_object *)self)->slots);
    PyObject_Free(self);
    DECREF(type);
}

static PyObject *match_repr(PyObject *self)
{
    const match_object *m = (match_object *)self;
    return PyUnicode_FromFormat("Match(prefix_tokens=%u, host_hit_tokens=%u, last_node=%llu)",
                                m->match.prefix_tokens, m->match.host_hit_tokens, m->last_node);
}

static PyMemberDef match_members[] = {
    {"prefix_tokens", T_UINT, offsetof(match_object, match.prefix_tokens), READONLY,
     "Tokens that are on the device (pairs under is_eagle)."},
    {"host_hit_tokens", T_UINT, offsetof(match_object, match.host_hit_tokens), READONLY,
     "Behind them, in the host tier."},
    {"last_node", T_ULONGLONG, offsetof(match_object, last_node), READONLY,
     "The node that ends the prefix: lock this one to keep it. 0: the root."},
    {"partial_tokens", T_UINT, offsetof(match_object, match.partial_tokens), READONLY,
     "Of the next page, to be had by copying (reuse_partial)."},
    {"seen_tokens", T_UINT, offsetof(match_object, match.seen_tokens), READONLY,
     "How far the tree knows the key, on any tier."},
    {"state", T_INT, offsetof(match_object, match.state), READONLY,
     "The snapshot behind the prefix; 0: the beginning."},
    {"slots", T_OBJECT, offsetof(match_object, slots), READONLY,
     "The prefix's slots: the array that was given, or a new one; None where none was asked for."},
    {0},
};
static PyType_Slot match_slots[] = {
    {Py_tp_doc, "What a match found."},
    {Py_tp_dealloc, match_dealloc},
    {Py_tp_repr, match_repr},
    {Py_tp_members, match_members},
    {0},
};
static PyType_Spec match_spec = {"radish.Match", sizeof(match_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 match_slots};

/* ---- matching ---- */

static PyObject *call_match(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {
        "match_prefix", 1, 2, {"tokens", "slots", "extra_key", "cache_salt", "session"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[5];
    ints_in tokens;
    rad_key key;
    if (!args_read(&s, args, nargs, kwnames, a) || !key_take(a[0], a[2], a[3], a[4], &tokens, &key))
        return NULL;
    ints_out out;
    bool placed = a[1] && a[1] != Py_None;
    PyObject *slots = NULL, *result = NULL;
    if (placed && !ints_place(a[1], "slots", tokens.count, &out)) goto done;
    if (cache_enter(c, "match_prefix")) {
        rad_match match;
        rad_error err;
        rad_status status;
        LONG_CALL(key.num_tokens >= LONG_TOKENS,
                  status = rad_cache_match_prefix(c->cache, &key, placed ? out.data : NULL, &match,
                                                  &err));
        bool good = cache_leave(c);
        if (status) {
            raise_status(status, &err, NULL);
        } else if (good) {
            if (placed) {
                slots = ints_done(&out, a[1], match.prefix_tokens);
                placed = false;
                good = slots != NULL;
            }
            if (good) result = match_new(&match, slots);
        }
    }
    if (placed) ints_drop(&out);
done:
    ints_give_back(&tokens);
    return result;
}

static PyObject *call_lookup(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"lookup", 1, 1, {"tokens", "extra_key", "cache_salt", "session"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[4], *result = NULL;
    ints_in tokens;
    rad_key key;
    if (!args_read(&s, args, nargs, kwnames, a) || !key_take(a[0], a[1], a[2], a[3], &tokens, &key))
        return NULL;
    if (cache_enter(c, "lookup")) {
        rad_match match;
        rad_status status;
        LONG_CALL(key.num_tokens >= LONG_TOKENS, status = rad_cache_lookup(c->cache, &key, &match));
        bool good = cache_leave(c);
        if (status)
            raise_status(status, NULL, "lookup: the key has no tokens");
        else if (good)
            result = match_new(&match, NULL);
    }
    ints_give_back(&tokens);
    return result;
}

/* Entry i of a sequence that may be absent; a new reference, NULL without an exception if so. */
static PyObject *entry(PyObject *list, Py_ssize_t i)
{
    if (!list || list == Py_None) return NULL;
    return PySequence_GetItem(list, i);
}

static PyObject *call_match_batch(PyObject *self, fast_args args, Py_ssize_t nargs,
                                  PyObject *kwnames)
{
    static signature s = {
        "match_batch", 1, 2, {"tokens", "slots", "extra_keys", "cache_salts"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[4], *result = NULL;
    if (!args_read(&s, args, nargs, kwnames, a)) return NULL;
    Py_ssize_t count = PySequence_Size(a[0]), taken = 0, placed = 0;
    if (count < 0) return NULL;
    typedef struct one {
        ints_in in;
        ints_out out;
        PyObject *into, *extra_key, *cache_salt;
    } one;
    one *all = PyMem_Calloc((size_t)count + 1, sizeof *all);
    rad_key *keys = PyMem_Calloc((size_t)count + 1, sizeof *keys);
    rad_match *matches = PyMem_Calloc((size_t)count + 1, sizeof *matches);
    rad_slot **slots = PyMem_Calloc((size_t)count + 1, sizeof *slots);
    if (!all || !keys || !matches || !slots) {
        PyErr_NoMemory();
        goto done;
    }
    bool fresh = a[1] && PyUnicode_Check(a[1]), places = a[1] && a[1] != Py_None;
    for (; taken < count; taken++) {
        one *o = &all[taken];
        o->extra_key = entry(a[2], taken);
        o->cache_salt = entry(a[3], taken);
        PyObject *tokens = PyErr_Occurred() ? NULL : PySequence_GetItem(a[0], taken);
        bool good = tokens &&
                    key_take(tokens, o->extra_key, o->cache_salt, NULL, &o->in, &keys[taken]);
        XDECREF(tokens); /* a buffer or a tensor is kept by `in` */
        if (!good) {
            XDECREF(o->extra_key);
            XDECREF(o->cache_salt);
            goto done;
        }
    }
    for (; places && placed < count; placed++) {
        one *o = &all[placed];
        o->into = fresh ? a[1] : PySequence_GetItem(a[1], placed);
        if (fresh) INCREF(o->into);
        if (!o->into || !ints_place(o->into, "slots", o->in.count, &o->out)) {
            XDECREF(o->into);
            goto done;
        }
        slots[placed] = o->out.data;
    }
    if (!cache_enter(c, "match_batch")) goto done;
    rad_error err;
    rad_status status;
    LONG_CALL(count >= 16, status = rad_cache_match_batch(c->cache, keys, (uint32_t)count,
                                                          places ? slots : NULL, matches, &err));
    bool good = cache_leave(c);
    if (status) {
        raise_status(status, &err, NULL);
        goto done;
    }
    result = good ? PyList_New(count) : NULL;
    for (Py_ssize_t i = 0; result && i < count; i++) {
        PyObject *written = NULL;
        if (places) written = ints_done(&all[i].out, all[i].into, matches[i].prefix_tokens);
        PyObject *match = places && !written ? NULL : match_new(&matches[i], written);
        if (!match || PyList_SetItem(result, i, match)) Py_CLEAR(result);
    }
done:
    for (Py_ssize_t i = 0; all && i < taken; i++) {
        ints_give_back(&all[i].in);
        XDECREF(all[i].extra_key);
        XDECREF(all[i].cache_salt);
    }
    for (Py_ssize_t i = 0; all && i < placed; i++) {
        ints_drop(&all[i].out);
        DECREF(all[i].into);
    }
    PyMem_Free(all);
    PyMem_Free(keys);
    PyMem_Free(matches);
    PyMem_Free(slots);
    return result;
}

static PyObject *call_match_spans(PyObject *self, fast_args args, Py_ssize_t nargs,
                                  PyObject *kwnames)
{
    static signature s = {
        "match_spans", 1, 1, {"tokens", "extra_key", "cache_salt", "session"}, {0}};
    enum { FEW = 64 };
    cache_object *c = (cache_object *)self;
    PyObject *a[4], *list = NULL, *match_found = NULL, *result = NULL;
    ints_in tokens;
    rad_key key;
    if (!args_read(&s, args, nargs, kwnames, a) || !key_take(a[0], a[1], a[2], a[3], &tokens, &key))
        return NULL;
    if (cache_enter(c, "match_spans")) {
        rad_page_span few[FEW], *spans = few, *more = NULL;
        rad_match match;
        uint32_t count = 0;
        rad_status status = rad_cache_match_spans(c->cache, &key, few, FEW, &count, &match);
        if (status == RAD_OK && count > FEW) { /* the second match finds the same */
            spans = more = PyMem_Calloc(count, sizeof *more);
            if (more)
                status = rad_cache_match_spans(c->cache, &key, more, count, &count, &match);
            else
                PyErr_NoMemory();
        }
        list = !status && !PyErr_Occurred() ? PyList_New(count) : NULL;
        for (uint32_t i = 0; list && i < count; i++) {
            void *to;
            PyObject *pages = array_new(E_I32, spans[i].num_pages, &to);
            if (pages) memcpy(to, spans[i].pages, spans[i].num_pages * sizeof(rad_page));
            PyObject *span = pages ? Py_BuildValue("(IN)", spans[i].first_token, pages) : NULL;
            if (!span || PyList_SetItem(list, i, span)) Py_CLEAR(list);
        }
        PyMem_Free(more);
        if (cache_leave(c) && status)
            raise_status(status, NULL, "match_spans: the key has no tokens, or the cache has none");
        match_found = list ? match_new(&match, NULL) : NULL;
        if (match_found) result = PyTuple_Pack(2, match_found, list);
        XDECREF(match_found);
        XDECREF(list);
    }
    ints_give_back(&tokens);
    return result;
}

static PyObject *call_continuation(PyObject *self, fast_args args, Py_ssize_t nargs,
                                   PyObject *kwnames)
{
    static signature s = {"continuation",
                          2,
                          2,
                          {"tokens", "room", "node", "node_tokens", "extra_key", "cache_salt"},
                          {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[6], *result = NULL;
    ints_in tokens;
    ints_out out;
    rad_key key;
    rad_ref node;
    uint32_t room = 0, node_tokens = 0, count = 0;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_u32(a[1], "room", &room) ||
        !arg_ref(a[2], "node", &node) || !arg_u32(a[3], "node_tokens", &node_tokens) ||
        !key_take(a[0], a[4], a[5], NULL, &tokens, &key))
        return NULL;
    if (ints_place(NULL, "room", room, &out)) {
        rad_status status = RAD_OK;
        bool good = cache_enter(c, "continuation");
        if (good) {
            status =
                rad_cache_continuation(c->cache, &key, node, node_tokens, out.data, room, &count);
            good = cache_leave(c);
        }
        if (good && !status)
            result = ints_done(&out, NULL, count);
        else
            ints_drop(&out);
        if (good && status)
            raise_status(status, NULL,
                         "continuation: a stale node, lengths that do not go "
                         "together, or a cache that cannot tell");
    }
    ints_give_back(&tokens);
    return result;
}

PyMethodDef match_calls[] = {
    FAST("match_prefix", call_match,
         "match_prefix(tokens, slots=None, *, extra_key=None, cache_salt=None, session=0) -> "
         "Match\n\nThe longest cached prefix, in whole pages. Its slots are written to `slots`, an "
         "array or tensor with room for all tokens, or come as a new Array of 'int32' or 'int64'; "
         "None: nowhere. Touches access times and may split a node; locks nothing."),
    FAST("match_batch", call_match_batch,
         "match_batch(tokens, slots=None, *, extra_keys=None, cache_salts=None) -> list[Match]\n\n"
         "The matches of several keys: sequences with an entry for each; slots may be 'int32' or "
         "'int64'."),
    FAST("match_spans", call_match_spans,
         "match_spans(tokens, *, extra_key=None, cache_salt=None, session=0) -> (Match, "
         "list[(first_token, pages)])\n\nThe same match, and the runs of pages that hold it."),
    FAST("lookup", call_lookup,
         "lookup(tokens, *, extra_key=None, cache_salt=None, session=0) -> Match\n\nLike a match, "
         "but neither touches nor splits."),
    FAST("continuation", call_continuation,
         "continuation(tokens, room, *, node=0, node_tokens=0, extra_key=None, cache_salt=None) -> "
         "Array\n\nUp to `room` tokens that requests which began so went on with."),
    {0},
};

bool match_init(PyObject *module)
{
    return add_type(module, &match_spec, NULL, &match_type);
}
