/* match_handle.c - MatchHandle: a match as a value, which splits and holds nothing. */
#include "python.h"

static PyTypeObject *handle_type;

typedef struct handle_object {
    PyObject_HEAD cache_object *cache;
    rad_match_handle handle;
} handle_object;

static PyObject *call_match_handle(PyObject *self, fast_args args, Py_ssize_t nargs,
                                   PyObject *kwnames)
{
    static signature s = {
        "match_handle", 1, 1, {"tokens", "extra_key", "cache_salt", "session"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[4];
    ints_in tokens;
    rad_key key;
    handle_object *h = NULL;
    if (!args_read(&s, args, nargs, kwnames, a) || !key_take(a[0], a[1], a[2], a[3], &tokens, &key))
        return NULL;
    if (cache_enter(c, "match_handle")) {
        rad_match_handle found;
        rad_status status;
        LONG_CALL(key.num_tokens >= LONG_TOKENS,
                  status = rad_cache_match_handle(c->cache, &key, &found));
        bool good = cache_leave(c);
        if (status)
            raise_status(status, NULL,
                         "match_handle: the key has no tokens, or the cache has no "
                         "handles");
        else if (good)
            h = (handle_object *)PyType_GenericAlloc(handle_type, 0);
        if (h) {
            INCREF(c);
            h->cache = c;
            h->handle = found;
        }
    }
    ints_give_back(&tokens);
    return (PyObject *)h;
}

static void handle_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    XDECREF(((handle_object *)self)->cache);
    PyObject_Free(self);
    DECREF(type);
}

static PyObject *handle_lock(PyObject *self, PyObject *none)
{
    (void)none;
    handle_object *h = (handle_object *)self;
    cache_object *c = h->cache;
    if (!cache_enter(c, "MatchHandle.lock")) return NULL;
    rad_receipt receipt = {0};
    rad_error err;
    rad_status status = rad_match_handle_lock(c->cache, &h->handle, &receipt, &err);
    if (!cache_leave(c)) return NULL;
    if (status == RAD_FULL) Py_RETURN_NONE;
    if (status) return raise_status(status, &err, "MatchHandle.lock");
    return lock_new(c, &receipt);
}

static PyObject *handle_slots(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"slots", 0, 3, {"first", "count", "out"}, {0}};
    handle_object *h = (handle_object *)self;
    PyObject *a[3], *result = NULL;
    uint32_t first = 0, count;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_u32(a[0], "first", &first)) return NULL;
    count = h->handle.num_tokens > first ? h->handle.num_tokens - first : 0;
    if (a[1] && a[1] != Py_None && !arg_u32(a[1], "count", &count)) return NULL;
    if ((uint64_t)first + count > h->handle.num_tokens) {
        PyErr_Format(PyExc_IndexError, "positions %u to %llu are not all in the handle's %u tokens",
                     first, (unsigned long long)first + count, h->handle.num_tokens);
        return NULL;
    }
    PyObject *into = arg_into(a[2]);
    ints_out out;
    if (ints_place(into, "out", count, &out)) {
        rad_status status = RAD_OK;
        bool good = cache_enter(h->cache, "MatchHandle.slots");
        if (good) {
            status = rad_match_handle_slots(h->cache->cache, &h->handle, first, count, out.data);
            good = cache_leave(h->cache);
        }
        if (good && !status)
            result = ints_done(&out, into, count);
        else
            ints_drop(&out);
        if (good && status)
            raise_status(status, NULL,
                         "MatchHandle.slots: the handle is stale: its tokens were "
                         "evicted or merged away");
    }
    return result;
}

static PyObject *handle_common(PyObject *self, PyObject *other_arg)
{
    handle_object *h = (handle_object *)self, *other = (handle_object *)other_arg;
    if (Py_TYPE(other_arg) != handle_type || h->cache != other->cache) {
        PyErr_SetString(PyExc_TypeError, "common() takes another MatchHandle of the same cache");
        return NULL;
    }
    if (!cache_enter(h->cache, "MatchHandle.common")) return NULL;
    uint32_t count = 0;
    rad_status status =
        rad_match_handle_common(h->cache->cache, &h->handle, &other->handle, &count);
    if (!cache_leave(h->cache)) return NULL;
    if (status) return raise_status(status, NULL, "MatchHandle.common: one of them is stale");
    return PyLong_FromUnsignedLong(count);
}

static PyObject *handle_insert(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"insert",
                          2,
                          2,
                          {"tokens", "slots", "extra_key", "cache_salt", "priority", "chunked",
                           "window_from", "session"},
                          {0}};
    handle_object *h = (handle_object *)self;
    PyObject *a[8];
    if (!args_read(&s, args, nargs, kwnames, a)) return NULL;
    return cache_insert(h->cache, a, &h->handle);
}

static PyObject *handle_node(PyObject *self, void *closure)
{
    (void)closure;
    return node_new(((handle_object *)self)->handle.node);
}

static PyObject *handle_cache(PyObject *self, void *closure)
{
    (void)closure;
    PyObject *c = (PyObject *)((handle_object *)self)->cache;
    INCREF(c);
    return c;
}

static PyMethodDef handle_methods[] = {
    {"lock", handle_lock, METH_NOARGS,
     "lock() -> Lock | None\n\nLocks its node. StateError: stale. None: with windows, no node was "
     "left to cut with."},
    FAST("slots", handle_slots,
         "slots(first=0, count=None, out='int32') -> Array | out\n\nThe slots of these positions."),
    {"common", handle_common, METH_O,
     "common(other) -> int\n\nHow many leading tokens the two have in common."},
    FAST("insert", handle_insert,
         "insert(tokens, slots, *, extra_key=None, cache_salt=None, priority=0, chunked=False, "
         "window_from=0, session=0) -> Inserted | None\n\nInserts from the handle's end on and "
         "moves it to "
         "the new end: tokens are the whole key, slots those behind num_tokens."),
    {0},
};
static PyMemberDef handle_members[] = {
    {"num_tokens", T_UINT, offsetof(handle_object, handle.num_tokens), READONLY,
     "Tokens of the prefix, whole pages."},
    {0},
};
static PyGetSetDef handle_getters[] = {
    {"node", handle_node, NULL, "The node that it ends in.", NULL},
    {"cache", handle_cache, NULL, "Whose it is.", NULL},
    {0},
};
static PyType_Slot handle_slots_table[] = {
    {Py_tp_doc, "A match as a value: a position in the tree, which holds nothing. Stale when its "
                "tokens are evicted."},
    {Py_tp_dealloc, handle_dealloc},
    {Py_tp_methods, handle_methods},
    {Py_tp_members, handle_members},
    {Py_tp_getset, handle_getters},
    {0},
};
static PyType_Spec handle_spec = {"radish.MatchHandle", sizeof(handle_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  handle_slots_table};

PyMethodDef match_handle_calls[] = {
    FAST("match_handle", call_match_handle,
         "match_handle(tokens, *, extra_key=None, cache_salt=None, session=0) -> MatchHandle\n\n"
         "The match as a value; splits nothing."),
    {0},
};

bool match_handle_init(PyObject *module)
{
    return add_type(module, &handle_spec, NULL, &handle_type);
}
