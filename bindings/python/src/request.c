/* request.c - Request.
 *
 * A Request is a rad_req_kv with tokens of its own. It belongs to the cache that it was admitted to
 * until finished_req; if it goes before, the cache gives back what it holds and publishes nothing.
 * The calls that take one are in request_calls.c and sessions.c. */
#include "python.h"

#include <string.h>

PyTypeObject *request_type;

bool request_is_live(const request_object *r)
{
    return r->kv.row || r->kv.lock.held || r->kv.state || r->kv.spare_state;
}

/* A call reads it at this moment: another thread's, or the one whose callback asks. */
static bool request_is_busy(const request_object *r)
{
    if (r->busy) PyErr_SetString(error_class, "the request is in use by a call that has not ended");
    return r->busy;
}

/* After a call that may have begun or ended what it holds. */
static void bind(request_object *r, cache_object *c)
{
    bool live = request_is_live(r);
    if (live && !r->cache) {
        INCREF(c);
        r->cache = c;
        c->num_out++;
    } else if (!live && r->cache) {
        r->cache->num_out--;
        DECREF(r->cache);
        r->cache = NULL;
    }
}

request_object *request_of(cache_object *c, PyObject *arg, const char *call)
{
    if (!arg || !PyObject_TypeCheck(arg, request_type)) {
        PyErr_Format(PyExc_TypeError, "%s() takes a Request", call);
        return NULL;
    }
    request_object *r = (request_object *)arg;
    if (request_is_busy(r)) return NULL;
    if (r->cache && r->cache != c) {
        PyErr_Format(error_class, "%s: the request is another cache's", call);
        return NULL;
    }
    rows_object *rows = cache_base(c)->rows;
    if (rows && !c->h.closed && r->kv.allocated_len > rad_req_to_token_row_tokens(rows->rows)) {
        PyErr_Format(PyExc_ValueError, "%s: allocated_len is %u and a row has %u tokens", call,
                     r->kv.allocated_len, rad_req_to_token_row_tokens(rows->rows));
        return NULL;
    }
    return r;
}

bool request_enter(cache_object *c, request_object *r, const char *call)
{
    if (!r || !cache_enter(c, call)) return false;
    r->busy = true;
    return true;
}

bool request_leave(cache_object *c, request_object *r)
{
    r->busy = false;
    bind(r, c);
    return cache_leave(c);
}

/* ---- tokens ---- */

static bool make_room(request_object *r, uint64_t count)
{
    if (request_is_busy(r)) return false;
    if (count <= r->room) return true;
    uint64_t room = r->room ? r->room : 64;
    while (room < count)
        room *= 2;
    int32_t *longer = room < UINT32_MAX / 8 ? PyMem_Realloc(r->tokens, room * sizeof *longer)
                                            : NULL;
    if (!longer) {
        PyErr_NoMemory();
        return false;
    }
    r->tokens = longer;
    r->room = (uint32_t)room;
    r->kv.key.tokens = longer;
    return true;
}

static bool add_tokens(request_object *r, PyObject *tokens)
{
    ints_in in;
    if (!ints_take(tokens, "tokens", INTS_TOKENS, &in)) return false;
    uint32_t have = r->kv.key.num_tokens;
    bool good = make_room(r, (uint64_t)have + (uint64_t)in.count);
    if (good && in.count) {
        memcpy(r->tokens + have, in.data, (size_t)in.count * sizeof *in.data);
        r->kv.key.num_tokens = have + (uint32_t)in.count;
    }
    ints_give_back(&in);
    return good;
}

enum { R_TOKENS, R_EXTRA_KEY, R_CACHE_SALT, R_OBJECTS };
static const param request_table[] = {
    {"tokens", P_OBJECT, R_TOKENS, NULL},
    {"extra_key", P_OBJECT, R_EXTRA_KEY, NULL},
    {"cache_salt", P_OBJECT, R_CACHE_SALT, NULL},
    {"priority", P_I32, offsetof(rad_req_kv, priority), NULL},
    {"session", P_U32, offsetof(rad_req_kv, key.session), NULL},
    {0},
};

static PyObject *request_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    rad_req_kv kv = {0};
    PyObject *with[R_OBJECTS] = {0};
    if (!params_read("Request", args, kwargs, request_table, 1, 1, NULL, &kv, with)) return NULL;
    request_object *r = (request_object *)PyType_GenericAlloc(type, 0);
    if (!r) return NULL;
    r->kv = kv;
    r->extra_key = with[R_EXTRA_KEY];
    r->cache_salt = with[R_CACHE_SALT];
    Py_XINCREF(r->extra_key);
    Py_XINCREF(r->cache_salt);
    if (arg_name(r->extra_key, "extra_key", &r->kv.key.extra_key) &&
        arg_name(r->cache_salt, "cache_salt", &r->kv.key.cache_salt) &&
        (!with[R_TOKENS] || add_tokens(r, with[R_TOKENS])))
        return (PyObject *)r;
    DECREF(r);
    return NULL;
}

static void request_dealloc(PyObject *self)
{
    request_object *r = (request_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    cache_object *c = r->cache;
    if (c) {
        c->num_out--;
        bool can = !c->h.closed && !handle_is_foreign(&c->h);
        parting p;
        if (can && cache_part(c, &p)) {
            rad_cache_finished_req(c->cache, &r->kv, 0, NULL);
            cache_parted(c, &p);
        } else if (can && cache_leave_request(c, &r->kv, r->tokens, r->extra_key, r->cache_salt)) {
            r->tokens = NULL;
            r->extra_key = r->cache_salt = NULL;
        }
        DECREF(c);
    }
    PyMem_Free(r->tokens);
    XDECREF(r->extra_key);
    XDECREF(r->cache_salt);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    DECREF(type);
}

static PyObject *request_append(PyObject *self, PyObject *token_arg)
{
    request_object *r = (request_object *)self;
    int32_t token = 0;
    if (!arg_i32(token_arg, "token", &token)) return NULL;
    if (token < 0) {
        PyErr_Format(PyExc_ValueError, "token is %d: token ids are 0 to 2**31 - 1", token);
        return NULL;
    }
    if (!make_room(r, (uint64_t)r->kv.key.num_tokens + 1)) return NULL;
    r->tokens[r->kv.key.num_tokens++] = token;
    Py_RETURN_NONE;
}

static PyObject *request_extend(PyObject *self, PyObject *tokens)
{
    if (!add_tokens((request_object *)self, tokens)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *request_truncate(PyObject *self, PyObject *count_arg)
{
    request_object *r = (request_object *)self;
    uint32_t count = 0;
    if (!arg_u32(count_arg, "num_tokens", &count) || request_is_busy(r)) return NULL;
    if (count < r->kv.committed_len || count > r->kv.key.num_tokens) {
        PyErr_Format(PyExc_ValueError,
                     "truncate: %u is not between committed_len, %u, and the %u "
                     "tokens that there are",
                     count, r->kv.committed_len, r->kv.key.num_tokens);
        return NULL;
    }
    r->kv.key.num_tokens = count;
    Py_RETURN_NONE;
}

static PyObject *request_tokens(PyObject *self, void *closure)
{
    (void)closure;
    request_object *r = (request_object *)self;
    void *to;
    PyObject *a = array_new(E_I32, r->kv.key.num_tokens, &to);
    if (a && r->kv.key.num_tokens) memcpy(to, r->tokens, r->kv.key.num_tokens * sizeof *r->tokens);
    return a;
}

static PyObject *request_name(PyObject *self, void *which)
{
    request_object *r = (request_object *)self;
    PyObject *name = which ? r->cache_salt : r->extra_key;
    if (!name) name = Py_None;
    INCREF(name);
    return name;
}

static PyObject *request_node(PyObject *self, void *closure)
{
    (void)closure;
    return node_new(((request_object *)self)->kv.lock.node);
}

static PyObject *request_row(PyObject *self, void *closure)
{
    (void)closure;
    request_object *r = (request_object *)self;
    cache_object *c = r->cache;
    rows_object *rows = c ? cache_base(c)->rows : NULL;
    if (!rows || !r->kv.row || rows->h.closed) {
        PyErr_SetString(error_class, "the request has no row");
        return NULL;
    }
    Py_ssize_t shape = rad_req_to_token_row_tokens(rows->rows), stride = sizeof(rad_slot);
    return array_view((PyObject *)rows, E_I32, rad_req_to_token_row(rows->rows, r->kv.row), 1,
                      &shape, &stride, false);
}

static Py_ssize_t request_length(PyObject *self)
{
    return ((request_object *)self)->kv.key.num_tokens;
}

static PyObject *request_get_cache(PyObject *self, void *closure)
{
    (void)closure;
    PyObject *c = (PyObject *)((request_object *)self)->cache;
    if (!c) c = Py_None;
    INCREF(c);
    return c;
}

static PyObject *request_repr(PyObject *self)
{
    const rad_req_kv *k = &((request_object *)self)->kv;
    return PyUnicode_FromFormat("Request(%u tokens, row=%u, protected_len=%u, committed_len=%u, "
                                "allocated_len=%u)",
                                k->key.num_tokens, k->row, k->protected_len, k->committed_len,
                                k->allocated_len);
}

/* Numbers of the record that a caller sets, with their limits: T_UINT would take -1. */
static PyObject *get_u32(PyObject *self, void *offset)
{
    return PyLong_FromUnsignedLong(*(uint32_t *)(void *)((char *)self + (intptr_t)offset));
}

static int set_u32(PyObject *self, PyObject *value, void *offset)
{
    uint32_t number = 0;
    if (!value) {
        PyErr_SetString(PyExc_AttributeError, "it cannot be deleted");
        return -1;
    }
    if (!arg_u32(value, "the length", &number) || request_is_busy((request_object *)self))
        return -1;
    *(uint32_t *)(void *)((char *)self + (intptr_t)offset) = number;
    return 0;
}

#define KV(member) ((void *)offsetof(request_object, kv.member))
static PyGetSetDef request_getters[] = {
    {"row", get_u32, set_u32, "Its row; 0: none.", KV(row)},
    {"protected_len", get_u32, set_u32, "Leading positions that belong to the tree.",
     KV(protected_len)},
    {"committed_len", get_u32, set_u32,
     "Positions whose K/V are completely written: raise it behind the forward pass.",
     KV(committed_len)},
    {"allocated_len", get_u32, set_u32, "Positions that have a slot.", KV(allocated_len)},
    {"state", get_u32, set_u32, "The state it works with; 0: none.", KV(state)},
    {"state_len", get_u32, set_u32, "Tokens that it has seen.", KV(state_len)},
    {"spare_state", get_u32, set_u32, "A second one.", KV(spare_state)},
    {"spare_len", get_u32, set_u32, "Tokens that it has seen.", KV(spare_len)},
    {"turn", get_u32, NULL, "Of its session.", KV(turn)},
    {"load", get_u32, NULL, "The ticket of a load; 0: none.", KV(load)},
    {"published", get_u32, NULL, "1 behind the first publication.", KV(published)},
    {"window_len", get_u32, NULL, "Positions before it have no window side of its own.",
     KV(window_len)},
    {"session", get_u32, NULL, "Its session; 0: none.", KV(key.session)},
    {"window_missing", get_u32, NULL, "Of the lock; not 0: match again.", KV(lock.window_missing)},
    {"node", request_node, NULL, "The node that its lock holds; 0: the root.", NULL},
    {"tokens", request_tokens, NULL, "A copy of its tokens.", NULL},
    {"extra_key", request_name, NULL, "Of its namespace.", (void *)0},
    {"cache_salt", request_name, NULL, "Of its namespace.", (void *)1},
    {"slots", request_row, NULL,
     "Its row's slots, where they are: row_tokens of them, of which allocated_len are set.", NULL},
    {"cache", request_get_cache, NULL, "Where it was admitted; None: nowhere.", NULL},
    {0},
};

static PyMemberDef request_members[] = {
    {"priority", T_INT, offsetof(request_object, kv.priority), 0, "Of its nodes."},
    {0},
};

static PyMethodDef request_methods[] = {
    {"append", request_append, METH_O,
     "append(token) -> None\n\nA token more, as decode makes it."},
    {"extend", request_extend, METH_O, "extend(tokens) -> None"},
    {"truncate", request_truncate, METH_O,
     "truncate(num_tokens) -> None\n\nForgets tokens behind committed_len."},
    {0},
};

static PyType_Slot request_slots[] = {
    {Py_tp_doc,
     "Request(tokens, *, extra_key=None, cache_salt=None, priority=0, session=0)\n\nThe K/V record "
     "of one request:\n\n    tokens 0 ...... protected_len ...... committed_len ... allocated_len\n"
     "           | the tree's      | its own, K/V written | slots only\n\nTokens are copied. A "
     "request that goes without finished_req gives back what it holds and publishes nothing."},
    {Py_tp_new, request_new},
    {Py_tp_dealloc, request_dealloc},
    {Py_tp_repr, request_repr},
    {Py_tp_methods, request_methods},
    {Py_tp_members, request_members},
    {Py_tp_getset, request_getters},
    {Py_sq_length, request_length},
    {0},
};
static PyType_Spec request_spec = {"radish.Request", sizeof(request_object), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, request_slots};

bool request_init(PyObject *module)
{
    return add_type(module, &request_spec, NULL, &request_type);
}
