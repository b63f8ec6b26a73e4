/* request_calls.c - what an engine does with a request, from its admission to its end.
 *
 * admit and extend are what every engine does between the library's calls: a row, a match into it
 * and a lock; slots for new tokens, evicting when there are none. */
#include "python.h"

#include <string.h>

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
    if (request_is_live(r) && (r->kv.lock.held || r->kv.allocated_len)) {
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
    PyObject *a[4], *result = NULL;
    ints_in tokens;
    ints_out out;
    rad_key key;
    if (!args_read(&s, args, nargs, kwnames, a)) return NULL;
    const rad_match *match = match_of(a[1]);
    if (!match || !key_take(a[0], a[2], a[3], NULL, &tokens, &key)) return NULL;
    if (ints_place(NULL, "slots", c->page_size, &out)) {
        uint32_t count = 0;
        rad_status status = RAD_OK;
        bool good = cache_enter(c, "reuse_partial");
        if (good) {
            status = rad_cache_reuse_partial(c->cache, &key, match, out.data, &count);
            good = cache_leave(c);
        }
        if (good)
            result = ints_told(&out, NULL, count, status, NULL,
                               "reuse_partial: the match is stale, the copy failed, or the cache "
                               "copies no pages");
        else
            ints_drop(&out);
    }
    ints_give_back(&tokens);
    return result;
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
    {0},
};
