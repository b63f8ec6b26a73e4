/* request.c - Request, and the calls that take one.
 *
 * A Request is a rad_req_kv with tokens of its own. It belongs to the cache that it was admitted to
 * until finished_req; if it goes before, the cache gives back what it holds and publishes nothing.
 *
 * admit and extend are what every engine does between the library's calls: a row, a match into it
 * and a lock; slots for new tokens, evicting when there are none. */
#include "python.h"

#include <string.h>

PyTypeObject *request_type;

static bool is_live(const request_object *r)
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
    bool live = is_live(r);
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
    if (c->rows && !c->h.closed &&
        r->kv.allocated_len > rad_req_to_token_row_tokens(c->rows->rows)) {
        PyErr_Format(PyExc_ValueError, "%s: allocated_len is %u and a row has %u tokens", call,
                     r->kv.allocated_len, rad_req_to_token_row_tokens(c->rows->rows));
        return NULL;
    }
    return r;
}

/* Enters for a call with this request, or NULL, of request_of. It is busy until request_leave: so
 * callbacks find it, and other threads while the interpreter's lock is given away. */
static bool request_enter(cache_object *c, request_object *r, const char *call)
{
    if (!r || !cache_enter(c, call)) return false;
    r->busy = true;
    return true;
}

static bool request_leave(cache_object *c, request_object *r)
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
    rows_object *rows = c ? (c->inner ? c->inner->rows : c->rows) : NULL;
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

/* ---- admit ---- */

static rows_object *rows_of(cache_object *c, const char *call)
{
    rows_object *rows = cache_base(c)->rows;
    if (!rows)
        PyErr_Format(error_class, "%s: the cache was made without a req_to_token_pool", call);
    return rows;
}

/* Match and lock, again where windows went in between. */
static rad_status match_and_lock(cache_object *c, rad_req_kv *kv, rad_slot *slots, rad_match *match,
                                 rad_error *err)
{
    enum { TRIES = 3 };
    rad_key look = kv->key;
    *match = (rad_match){0};
    if (look.num_tokens < 2) return RAD_OK; /* the last token is always computed */
    look.num_tokens--;
    for (int i = 0;; i++) {
        rad_status status = rad_cache_match_prefix(c->cache, &look, slots, match, err);
        if (!status) status = rad_cache_inc_lock_ref(c->cache, match->last_node, &kv->lock, err);
        if (status || !kv->lock.window_missing) return status;
        if (i == TRIES)
            return rad_fail(err, RAD_E_STATE, "admit: windows go while they are matched");
        rad_cache_dec_lock_ref(c->cache, &kv->lock, NULL);
    }
}

static void begin_at(rad_req_kv *kv, const rad_match *match)
{
    kv->protected_len = kv->committed_len = kv->allocated_len = match->prefix_tokens;
}

/* RAD_FULL: no row. */
static rad_status admit(cache_object *c, rad_req_to_token_pool *rows, rad_req_kv *kv,
                        rad_match *match, rad_error *err)
{
    rad_status status = kv->row ? RAD_OK : rad_req_to_token_alloc(rows, &kv->row);
    if (status) return status;
    status = match_and_lock(c, kv, rad_req_to_token_row(rows, kv->row), match, err);
    if (!status) begin_at(kv, match);
    return status;
}

/* A turn of a session, whose row may be kept: the row comes last. */
static rad_status admit_turn(cache_object *c, rad_req_to_token_pool *rows, rad_req_kv *kv,
                             rad_match *match, rad_error *err)
{
    rad_slot *slots = malloc(((size_t)kv->key.num_tokens + 1) * sizeof *slots);
    if (!slots) return rad_fail(err, RAD_E_NOMEM, "admit: no memory");
    rad_status status;
    do {
        status = match_and_lock(c, kv, slots, match, err);
        if (!status) status = rad_session_begin(c->cache, kv, err);
    } while (status == RAD_AGAIN);
    if (!status && !kv->row) {
        status = rad_req_to_token_alloc(rows, &kv->row);
        if (!status) {
            memcpy(rad_req_to_token_row(rows, kv->row), slots,
                   match->prefix_tokens * sizeof *slots);
            begin_at(kv, match);
        }
    }
    free(slots);
    return status;
}

static PyObject *call_admit(PyObject *self, PyObject *req)
{
    cache_object *c = (cache_object *)self;
    request_object *r = request_of(c, req, "admit");
    rows_object *rows = r ? rows_of(c, "admit") : NULL;
    if (!rows) return NULL;
    if (is_live(r) && (r->kv.lock.held || r->kv.allocated_len)) {
        PyErr_SetString(error_class, "admit: the request is admitted already");
        return NULL;
    }
    if (!request_enter(c, r, "admit")) return NULL;
    if (r->kv.key.num_tokens > rad_req_to_token_row_tokens(rows->rows)) {
        PyErr_Format(PyExc_ValueError, "admit: the request has %u tokens and a row %u",
                     r->kv.key.num_tokens, rad_req_to_token_row_tokens(rows->rows));
        request_leave(c, r);
        return NULL;
    }
    bool had_row = r->kv.row != 0;
    rad_match match;
    rad_error err;
    rad_status status;
    LONG_CALL(
        r->kv.key.num_tokens >= LONG_TOKENS,
        status = (r->kv.key.session ? admit_turn : admit)(c, rows->rows, &r->kv, &match, &err));
    if (status) { /* all is as before */
        if (r->kv.lock.held) rad_cache_dec_lock_ref(c->cache, &r->kv.lock, NULL);
        if (r->kv.row && !had_row) {
            rad_req_to_token_free(rows->rows, r->kv.row);
            r->kv.row = 0;
        }
    }
    if (!request_leave(c, r)) return NULL;
    if (status == RAD_FULL) Py_RETURN_NONE;
    if (status) return raise_status(status, &err, "admit");
    return match_new(&match, NULL);
}

/* ---- extend ---- */

static rad_status take_slots(rad_kv_allocator *kv, rad_slot *row, uint32_t have, uint32_t len,
                             rad_error *err)
{
    rad_slot last = have ? row[have - 1] : -1;
    if (len - have == 1) return rad_kv_alloc_decode(kv, 1, &len, &last, row + have, err);
    return rad_kv_alloc_extend(kv, 1, &have, &len, &last, row + have, err);
}

static rad_status extend(cache_object *c, rad_kv_allocator *kv, rad_slot *row, uint32_t have,
                         uint32_t len, rad_error *err)
{
    rad_status status = take_slots(kv, row, have, len, err);
    if (status != RAD_FULL) return status;
    uint32_t page = rad_kv_page_size(kv);
    uint64_t pages = ((uint64_t)len + page - 1) / page - ((uint64_t)have + page - 1) / page;
    uint64_t there = rad_kv_available_pages(kv);
    if (pages > there) status = rad_cache_evict(c->cache, (pages - there) * page, NULL, err);
    if (status < 0) return status;
    if (rad_kv_window_num_pages(kv)) {
        there = rad_kv_window_available_pages(kv);
        if (pages > there) status = rad_cache_evict_window(c->cache, (pages - there) * page, NULL);
        if (status < 0) return rad_fail(err, status, "extend: windows could not be evicted");
    }
    return take_slots(kv, row, have, len, err);
}

static PyObject *call_extend(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"extend", 1, 2, {"req", "upto"}, {0}};
    cache_object *c = (cache_object *)self;
    kv_object *kv = cache_base(c)->kv;
    PyObject *a[2];
    if (!args_read(&s, args, nargs, kwnames, a)) return NULL;
    request_object *r = request_of(c, a[0], "extend");
    rows_object *rows = r ? rows_of(c, "extend") : NULL;
    uint32_t upto = r ? r->kv.key.num_tokens : 0;
    if (!rows || (a[1] && a[1] != Py_None && !arg_u32(a[1], "upto", &upto)) ||
        !request_enter(c, r, "extend"))
        return NULL;
    rad_error err;
    rad_status status = RAD_OK;
    rad_slot *row = r->kv.row ? rad_req_to_token_row(rows->rows, r->kv.row) : NULL;
    if (!row)
        status = rad_fail(&err, RAD_E_STATE, "extend: the request has no row: admit it first");
    else if (upto > rad_req_to_token_row_tokens(rows->rows))
        status = rad_fail(&err, RAD_E_INVAL, "extend: to %u tokens, and a row has %u", upto,
                          rad_req_to_token_row_tokens(rows->rows));
    else if (!kv)
        status = rad_fail(&err, RAD_E_UNSUPPORTED, "extend: the cache has no allocator");
    bool more = !status && upto > r->kv.allocated_len;
    if (more)
        LONG_CALL(c->has_threads, status = extend(c, kv->kv, row, r->kv.allocated_len, upto, &err));
    if (!status && more) r->kv.allocated_len = upto;
    if (!request_leave(c, r)) return NULL;
    if (status < 0) return raise_status(status, &err, "extend");
    return PyBool_FromLong(status == RAD_OK);
}

/* ---- the library's own calls ---- */

static PyObject *call_lock_req(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"lock_req", 2, 2, {"req", "node"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[2];
    rad_ref node;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_ref(a[1], "node", &node)) return NULL;
    request_object *r = request_of(c, a[0], "lock_req");
    if (!request_enter(c, r, "lock_req")) return NULL;
    rad_error err;
    rad_status status =
        r->kv.lock.held ? rad_fail(&err, RAD_E_STATE, "lock_req: the request holds a lock already")
                        : rad_cache_inc_lock_ref(c->cache, node, &r->kv.lock, &err);
    if (!request_leave(c, r)) return NULL;
    if (status) return raise_status(status, &err, "lock_req");
    Py_RETURN_NONE;
}

static PyObject *call_unfinished(PyObject *self, fast_args args, Py_ssize_t nargs,
                                 PyObject *kwnames)
{
    static signature s = {"unfinished_req", 1, 2, {"req", "chunked"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[2];
    uint32_t chunked = 0;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_flag(a[1], &chunked)) return NULL;
    request_object *r = request_of(c, a[0], "unfinished_req");
    if (!request_enter(c, r, "unfinished_req")) return NULL;
    rad_error err;
    rad_status status;
    LONG_CALL(r->kv.committed_len - r->kv.protected_len >= LONG_TOKENS,
              status = rad_cache_unfinished_req(c->cache, &r->kv, (int)chunked, &err));
    if (!request_leave(c, r)) return NULL;
    if (status < 0) return raise_status(status, &err, "unfinished_req");
    return PyBool_FromLong(status == RAD_OK);
}

static PyObject *call_finished(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"finished_req", 1, 2, {"req", "is_insert"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[2];
    uint32_t is_insert = 1;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_flag(a[1], &is_insert)) return NULL;
    request_object *r = request_of(c, a[0], "finished_req");
    if (!request_enter(c, r, "finished_req")) return NULL;
    rad_key key = r->kv.key;
    int32_t priority = r->kv.priority;
    rad_error err;
    rad_status status;
    LONG_CALL(r->kv.committed_len - r->kv.protected_len >= LONG_TOKENS,
              status = rad_cache_finished_req(c->cache, &r->kv, (int)is_insert, &err));
    r->kv.key = key; /* the record is empty; its tokens, names and priority are the object's */
    r->kv.priority = priority;
    if (!request_leave(c, r)) return NULL;
    if (status) return raise_status(status, &err, "finished_req");
    Py_RETURN_NONE;
}

static PyObject *call_release_window(PyObject *self, fast_args args, Py_ssize_t nargs,
                                     PyObject *kwnames)
{
    static signature s = {"release_window", 2, 2, {"req", "upto"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[2];
    uint32_t upto = 0;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_u32(a[1], "upto", &upto)) return NULL;
    request_object *r = request_of(c, a[0], "release_window");
    if (!request_enter(c, r, "release_window")) return NULL;
    rad_error err;
    rad_status status = rad_cache_release_window(c->cache, &r->kv, upto, &err);
    if (!request_leave(c, r)) return NULL;
    if (status) return raise_status(status, &err, "release_window");
    Py_RETURN_NONE;
}

static PyObject *call_reuse_partial(PyObject *self, fast_args args, Py_ssize_t nargs,
                                    PyObject *kwnames)
{
    static signature s = {
        "reuse_partial", 2, 2, {"tokens", "match", "extra_key", "cache_salt"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[4], *result = NULL, *dtype = NULL;
    ints_in tokens;
    ints_out out;
    rad_key key;
    if (!args_read(&s, args, nargs, kwnames, a)) return NULL;
    const rad_match *match = match_of(a[1]);
    if (!match || !key_take(a[0], a[2], a[3], NULL, &tokens, &key)) return NULL;
    dtype = PyUnicode_FromString("int32");
    if (dtype && ints_place(dtype, "slots", c->page_size, &out)) {
        uint32_t count = 0;
        rad_status status = RAD_OK;
        bool good = cache_enter(c, "reuse_partial");
        if (good) {
            status = rad_cache_reuse_partial(c->cache, &key, match, out.data, &count);
            good = cache_leave(c);
        }
        if (good && !status) {
            result = ints_done(&out, dtype, count);
        } else {
            ints_drop(&out);
            if (good && status == RAD_FULL) {
                INCREF(Py_None);
                result = Py_None;
            } else if (good) {
                raise_status(status, NULL,
                             "reuse_partial: the match is stale, the copy failed, or "
                             "the cache copies no pages");
            }
        }
    }
    XDECREF(dtype);
    ints_give_back(&tokens);
    return result;
}

/* ---- sessions ---- */

static PyObject *call_session_open(PyObject *self, PyObject *none)
{
    (void)none;
    cache_object *c = (cache_object *)self;
    if (!cache_enter(c, "session_open")) return NULL;
    rad_session session = 0;
    rad_status status = rad_session_open(c->cache, &session);
    if (!cache_leave(c)) return NULL;
    if (status == RAD_FULL) Py_RETURN_NONE;
    if (status) return raise_status(status, NULL, "session_open: this cache has no sessions");
    return PyLong_FromUnsignedLong(session);
}

static PyObject *call_session_close(PyObject *self, PyObject *session_arg)
{
    cache_object *c = (cache_object *)self;
    uint32_t session = 0;
    if (!arg_u32(session_arg, "session", &session) || !cache_enter(c, "session_close")) return NULL;
    rad_status status = rad_session_close(c->cache, session);
    if (!cache_leave(c)) return NULL;
    if (status) return raise_status(status, NULL, "session_close: the session is not open");
    Py_RETURN_NONE;
}

static PyObject *call_session_begin(PyObject *self, PyObject *req)
{
    cache_object *c = (cache_object *)self;
    request_object *r = request_of(c, req, "session_begin");
    if (!request_enter(c, r, "session_begin")) return NULL;
    rad_error err;
    rad_status status = rad_session_begin(c->cache, &r->kv, &err);
    if (!request_leave(c, r)) return NULL;
    if (status < 0) return raise_status(status, &err, "session_begin");
    return PyBool_FromLong(status == RAD_OK);
}

static PyObject *call_release_idle(PyObject *self, PyObject *count_arg)
{
    cache_object *c = (cache_object *)self;
    uint32_t count = 0;
    if (!arg_u32(count_arg, "count", &count) || !cache_enter(c, "session_release_idle"))
        return NULL;
    uint32_t given = rad_session_release_idle(c->cache, count);
    if (!cache_leave(c)) return NULL;
    return PyLong_FromUnsignedLong(given);
}

static const record_field session_fields[] = {
    {"open", F_U64, offsetof(rad_session_stats, open), NULL, NULL},
    {"held", F_U64, offsetof(rad_session_stats, held), NULL, NULL},
    {"held_tokens", F_U64, offsetof(rad_session_stats, held_tokens), NULL, NULL},
    {"active", F_U64, offsetof(rad_session_stats, active), NULL, NULL},
    {"restored", F_U64, offsetof(rad_session_stats, restored), NULL, NULL},
    {"dropped", F_U64, offsetof(rad_session_stats, dropped), NULL, NULL},
    {0},
};
static PyTypeObject *session_type;

static PyObject *call_session_stats(PyObject *self, PyObject *none)
{
    (void)none;
    cache_object *c = (cache_object *)self;
    if (!cache_enter(c, "session_stats")) return NULL;
    rad_session_stats stats;
    rad_session_get_stats(c->cache, &stats);
    if (!cache_leave(c)) return NULL;
    return record_new(session_type, session_fields, &stats);
}

PyMethodDef request_calls[] = {
    {"admit", call_admit, METH_O,
     "admit(req) -> Match | None\n\nA row, what is cached of all tokens but the last one into it, "
     "and a lock on that; with a session, its turn. None: no row is free. Go on with extend()."},
    FAST("extend", call_extend,
         "extend(req, upto=None) -> bool\n\nSlots up to position `upto` (all its tokens) in the "
         "request's row, evicting where there are none. False: not even so."),
    FAST("lock_req", call_lock_req,
         "lock_req(req, node) -> None\n\ninc_lock_ref into the request's record, for who matches "
         "himself."),
    FAST("unfinished_req", call_unfinished,
         "unfinished_req(req, chunked=False) -> bool\n\nPublishes what is committed; the row may "
         "change. False: the metadata's limits leave no room; it goes on unshared."),
    FAST("finished_req", call_finished,
         "finished_req(req, is_insert=True) -> None\n\nThe one exit of a request: publishes what "
         "is committed, or drops it, and gives all back."),
    FAST("release_window", call_release_window,
         "release_window(req, upto) -> None\n\nNo token to come looks before `upto` with a window "
         "layer."),
    FAST("reuse_partial", call_reuse_partial,
         "reuse_partial(tokens, match, *, extra_key=None, cache_salt=None) -> Array | None\n\nThe "
         "slots of a private page with the tokens that the next page has in common; None: no "
         "page."),
    {"session_open", call_session_open, METH_NOARGS,
     "session_open() -> int | None\n\nNone: as many are open as may be."},
    {"session_close", call_session_close, METH_O, "session_close(session) -> None"},
    {"session_begin", call_session_begin, METH_O,
     "session_begin(req) -> bool\n\nClaims the session for the request's turn (admit does it). "
     "False: what was matched has gone; match again."},
    {"session_release_idle", call_release_idle, METH_O,
     "session_release_idle(count) -> int\n\nGives idle sessions' K/V and rows back."},
    {"session_stats", call_session_stats, METH_NOARGS, "session_stats() -> SessionStats"},
    {0},
};

bool request_init(PyObject *module)
{
    session_type =
        record_type(module, "radish.SessionStats", "Sessions of a cache.", session_fields, NULL);
    return session_type && add_type(module, &request_spec, NULL, &request_type);
}
