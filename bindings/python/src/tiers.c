/* tiers.c - HiRadixCache's own calls: the host's memory and a store behind the tree. */
#include "python.h"

#include <string.h>

PyTypeObject *hiradix_type;

static const char *const write_policies[] = {"write_through", "write_through_selective",
                                             "write_back", NULL};
static const char *const prefetch_policies[] = {"best_effort", "wait_complete", "timeout", NULL};
static const char *const policies[] = {"lru",      "lfu",  "fifo", "mru", "filo",
                                       "priority", "slru", "cost", NULL};

enum { H_HOST_POOL, H_WINDOW_POOL, H_STATES, H_IDENTITY, H_STORAGE, H_OBJECTS };

#define MEMBER(name, kind)                                                                         \
    {                                                                                              \
#name, kind, offsetof(rad_hicache_params, name), NULL                                      \
    }
static const param hicache_table[] = {
    {"host_pool", P_OBJECT, H_HOST_POOL, NULL},
    {"window_host_pool", P_OBJECT, H_WINDOW_POOL, NULL},
    {"host_states", P_OBJECT, H_STATES, NULL},
    {"identity", P_OBJECT, H_IDENTITY, NULL},
    {"storage", P_OBJECT, H_STORAGE, NULL},
    {"write_policy", P_NAME, offsetof(rad_hicache_params, write_policy), write_policies},
    {"prefetch_policy", P_NAME, offsetof(rad_hicache_params, prefetch_policy), prefetch_policies},
    {"host_eviction_policy", P_NAME, offsetof(rad_hicache_params, host_eviction.policy), policies},
    MEMBER(load_back_threshold, P_U32),
    MEMBER(prefetch_threshold, P_U32),
    MEMBER(max_transfers, P_U32),
    MEMBER(copy_threads, P_U32),
    MEMBER(store_threads, P_U32),
    MEMBER(deterministic, P_FLAG),
    MEMBER(demote_tokens, P_U64),
    MEMBER(prefetch_tokens, P_U64),
    MEMBER(timeout_base_ns, P_U64),
    MEMBER(timeout_per_ki_ns, P_U64),
    MEMBER(timeout_max_ns, P_U64),
    MEMBER(host_max_pinned_tokens, P_U64),
    MEMBER(tier_events, P_FLAG),
    MEMBER(recheck_ns, P_U64),
    {0},
};

#define IDENTITY(name, kind)                                                                       \
    {                                                                                              \
#name, kind, offsetof(rad_storage_identity, name), NULL                                    \
    }
static const param identity_table[] = {
    IDENTITY(model, P_TEXT),
    IDENTITY(build, P_TEXT),
    {"dtype", P_NAME, offsetof(rad_storage_identity, dtype), dtype_names},
    {"kind", P_NAME, offsetof(rad_storage_identity, kind), kind_names},
    IDENTITY(page_size, P_U32),
    IDENTITY(num_layers, P_U32),
    IDENTITY(start_layer, P_U32),
    IDENTITY(num_kv_heads, P_U32),
    IDENTITY(head_dim, P_U32),
    IDENTITY(v_head_dim, P_U32),
    IDENTITY(is_eagle, P_FLAG),
    {0},
};

/* A model's name (the rest is the pool's), or a dict that says more. */
static bool identity_of(cache_object *c, PyObject *from, rad_storage_identity *id)
{
    *id = (rad_storage_identity){.struct_size = sizeof *id};
    host_pool_object *host = c->host_pool ? c->host_pool : c->window_host_pool;
    if (host) {
        const rad_token_to_kv_pool_params *p = rad_kv_pool_params(host->device_pool->pool);
        id->dtype = p->dtype;
        id->kind = p->kind;
        id->num_layers = p->num_layers;
        id->start_layer = p->start_layer;
        id->num_kv_heads = p->num_kv_heads;
        id->head_dim = p->head_dim;
        id->v_head_dim = p->v_head_dim;
    }
    id->page_size = c->page_size;
    id->is_eagle = c->is_eagle;
    if (PyUnicode_Check(from) || PyBytes_Check(from)) return arg_name(from, "identity", &id->model);
    if (PyDict_Check(from))
        return params_read("identity", NULL, from, identity_table, 0, 0, NULL, id, NULL);
    PyErr_SetString(PyExc_TypeError, "identity must be the model's name, or a dict with more");
    return false;
}

static bool tier_part(cache_object *c, void *place, PyObject *value, PyTypeObject *type,
                      const char *name)
{
    if (!cache_takes_part(c, place, value, type, name)) return false;
    return !value || type != host_pool_type ||
           handle_join(&c->h, &((host_pool_object *)value)->device_pool->h);
}

/* The tables of caches are all that a HiRadixCache may be made with: each skips the other's. */
static PyObject *hiradix_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    rad_cache_params p = {.struct_size = sizeof p};
    rad_hicache_params hp = {.struct_size = sizeof hp, .cache = &p};
    rad_storage_identity identity;
    rad_storage storage;
    rad_free_list list;
    rad_error err;
    PyObject *with[H_OBJECTS] = {0};
    cache_object *c = cache_begin(type, "HiRadixCache");
    if (!c || !cache_params_read(c, args, kwargs, hicache_table, &p, &list)) goto fail;
    if (!params_read("HiRadixCache", NULL, kwargs, hicache_table, 0, 0, cache_params_table(), &hp,
                     with))
        goto fail;
    if (!tier_part(c, &c->host_pool, with[H_HOST_POOL], host_pool_type, "host_pool") ||
        !tier_part(c, &c->window_host_pool, with[H_WINDOW_POOL], host_pool_type,
                   "window_host_pool") ||
        !tier_part(c, &c->host_states, with[H_STATES], state_type, "host_states"))
        goto fail;
    if (c->host_pool) hp.host_pool = c->host_pool->pool;
    if (c->window_host_pool) hp.window_host_pool = c->window_host_pool->pool;
    if (c->host_states) hp.host_states = c->host_states->pool;
    if (with[H_IDENTITY]) {
        if (!identity_of(c, with[H_IDENTITY], &identity)) goto fail;
        hp.identity = &identity;
    }
    if (with[H_STORAGE]) {
        c->storage = storage_of(with[H_STORAGE], &storage);
        if (!c->storage) goto fail;
        hp.storage = &storage;
    }
    rad_status status;
    WITHOUT_GIL(status = rad_hicache_create(module_env(), &hp, &c->cache, &err));
    if (status) {
        raise_status(status, &err, NULL);
        goto fail;
    }
    cache_with_threads(c);
    return (PyObject *)c;
fail:
    XDECREF(c);
    return NULL;
}

/* ---- host to device ---- */

static const char *const refusals[] = {
    "taken", "nothing", "below_threshold", "over_quota", "no_device_pages", "no_ticket", NULL};
static const record_field load_fields[] = {
    {"tokens", F_U32, offsetof(rad_load_result, tokens), NULL, "That come from the host."},
    {"storage_tokens", F_U32, offsetof(rad_load_result, storage_tokens), NULL,
     "Of them prefetched, and loaded for the first time."},
    {"why", F_NAME, offsetof(rad_load_result, why), refusals, "'taken', or why not."},
    {0},
};
static PyTypeObject *load_type, *stats_type, *explanation_type, *report_type;

static request_object *admitted_request(cache_object *c, PyObject *arg, const char *call)
{
    request_object *r = request_of(c, arg, call);
    if (!r || r->cache) return r;
    PyErr_Format(error_class, "%s: the request was not admitted to this cache", call);
    return NULL;
}

static PyObject *call_load_back(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"load_back", 1, 2, {"req", "max_tokens"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[2];
    uint64_t most = UINT64_MAX;
    if (!args_read(&s, args, nargs, kwnames, a)) return NULL;
    request_object *r = admitted_request(c, a[0], "load_back");
    if (!r || (a[1] && a[1] != Py_None && !arg_u64(a[1], "max_tokens", &most)) ||
        !request_enter(c, r, "load_back"))
        return NULL;
    rad_key look = r->kv.key;
    rad_load_result result = {.why = RAD_LOAD_NOTHING};
    rad_status status = RAD_NONE;
    if (look.num_tokens > 1) { /* the last one is always computed: as admit matched it */
        look.num_tokens--;
        WITHOUT_GIL(status = rad_hicache_load_back(c->cache, &r->kv, &look, most, &result));
    }
    if (!request_leave(c, r)) return NULL;
    if (status < 0)
        return raise_status(status, NULL,
                            "load_back: the request has more than its prefix, or no "
                            "row");
    if (status == RAD_NONE) result.tokens = result.storage_tokens = 0;
    return record_new(load_type, load_fields, &result);
}

static PyObject *call_ready(PyObject *self, PyObject *none)
{
    (void)none;
    cache_object *c = (cache_object *)self;
    if (!cache_enter(c, "ready_to_load")) return NULL;
    rad_status status;
    WITHOUT_GIL(status = rad_hicache_ready_to_load(c->cache));
    if (!cache_leave(c)) return NULL;
    if (status < 0) return raise_status(status, NULL, "ready_to_load");
    Py_RETURN_NONE;
}

static PyObject *call_load_status(PyObject *self, PyObject *req)
{
    cache_object *c = (cache_object *)self;
    request_object *r = admitted_request(c, req, "load_status");
    if (!request_enter(c, r, "load_status")) return NULL;
    rad_status status = rad_hicache_load_status(c->cache, &r->kv);
    if (!request_leave(c, r)) return NULL;
    if (status < 0)
        return raise_status(status, NULL,
                            "load_status: the load failed: finish the request "
                            "without inserting and compute it anew");
    return PyBool_FromLong(status == RAD_OK);
}

/* ---- storage to host ---- */

static PyObject *call_prefetch(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"prefetch_start",
                          1,
                          1,
                          {"tokens", "recompute_ns_per_token", "extra_key", "cache_salt"},
                          {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[4], *result = NULL;
    ints_in tokens;
    rad_key key;
    uint64_t cost = 0;
    if (!args_read(&s, args, nargs, kwnames, a) ||
        !arg_u64(a[1], "recompute_ns_per_token", &cost) ||
        !key_take(a[0], a[2], a[3], NULL, &tokens, &key))
        return NULL;
    if (cache_enter(c, "prefetch_start")) {
        rad_prefetch ticket = 0;
        rad_status status;
        WITHOUT_GIL(status = rad_hicache_prefetch_start(c->cache, &key, cost, &ticket));
        if (cache_leave(c)) {
            if (status < 0) {
                raise_status(status, NULL, "prefetch_start");
            } else if (ticket) {
                result = PyLong_FromUnsignedLong(ticket);
            } else {
                INCREF(Py_None);
                result = Py_None;
            }
        }
    }
    ints_give_back(&tokens);
    return result;
}

static PyObject *call_progress(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {
        "prefetch_progress", 2, 2, {"ticket", "tokens", "extra_key", "cache_salt"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[4], *result = NULL;
    ints_in tokens;
    rad_key key;
    uint32_t ticket = 0;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_u32(a[0], "ticket", &ticket) ||
        !key_take(a[1], a[2], a[3], NULL, &tokens, &key))
        return NULL;
    if (cache_enter(c, "prefetch_progress")) {
        uint32_t came = 0;
        rad_status status;
        WITHOUT_GIL(status = rad_hicache_prefetch_progress(c->cache, &ticket, &key, &came));
        if (cache_leave(c)) {
            if (status < 0) {
                raise_status(status, NULL, "prefetch_progress: not a ticket that is out");
            } else if (status == RAD_OK) {
                result = PyLong_FromUnsignedLong(came);
            } else {
                INCREF(Py_None);
                result = Py_None;
            }
        }
    }
    ints_give_back(&tokens);
    return result;
}

static PyObject *call_revoke(PyObject *self, PyObject *ticket_arg)
{
    cache_object *c = (cache_object *)self;
    uint32_t ticket = 0;
    if (!arg_u32(ticket_arg, "ticket", &ticket) || !cache_enter(c, "prefetch_revoke")) return NULL;
    rad_status status;
    WITHOUT_GIL(status = rad_hicache_prefetch_revoke(c->cache, &ticket));
    if (!cache_leave(c)) return NULL;
    if (status < 0) return raise_status(status, NULL, "prefetch_revoke: not a ticket that is out");
    Py_RETURN_NONE;
}

static PyObject *call_attach(PyObject *self, PyObject *backend)
{
    cache_object *c = (cache_object *)self;
    rad_storage storage;
    PyObject *holder = storage_of(backend, &storage);
    if (!holder) return NULL;
    if (!cache_enter(c, "attach_storage")) {
        DECREF(holder);
        return NULL;
    }
    rad_error err = {0};
    rad_status status;
    WITHOUT_GIL(status = rad_hicache_attach_storage(c->cache, &storage, &err));
    if (status == RAD_OK) {
        PyObject *old = c->storage;
        c->storage = holder;
        holder = old;
    }
    XDECREF(holder);
    if (!cache_leave(c)) return NULL;
    if (status < 0) return raise_status(status, &err, "attach_storage");
    return PyBool_FromLong(status == RAD_OK);
}

static PyObject *call_detach(PyObject *self, PyObject *none)
{
    (void)none;
    cache_object *c = (cache_object *)self;
    if (!cache_enter(c, "detach_storage")) return NULL;
    rad_error err = {0};
    rad_status status;
    WITHOUT_GIL(status = rad_hicache_detach_storage(c->cache, NULL, &err));
    if (status == RAD_OK) Py_CLEAR(c->storage);
    if (!cache_leave(c)) return NULL;
    if (status < 0) return raise_status(status, &err, "detach_storage");
    return PyBool_FromLong(status == RAD_OK);
}

static PyObject *call_identify(PyObject *self, PyObject *identity_arg)
{
    cache_object *c = (cache_object *)self;
    rad_storage_identity identity;
    if (!cache_enter(c, "identify")) return NULL;
    rad_error err = {0};
    rad_status status = RAD_OK;
    bool good = identity_of(c, identity_arg, &identity);
    if (good) status = rad_hicache_identify(c->cache, &identity, &err);
    if (!cache_leave(c) || !good) return NULL;
    if (status < 0) return raise_status(status, &err, "identify");
    return PyBool_FromLong(status == RAD_OK);
}

/* ---- all of it ---- */

static PyObject *timed(PyObject *self, PyObject *timeout_arg, const char *call,
                       rad_status (*f)(rad_cache *, uint64_t))
{
    cache_object *c = (cache_object *)self;
    uint64_t timeout = 0;
    if (!arg_u64(timeout_arg, "timeout_ns", &timeout) || !cache_enter(c, call)) return NULL;
    rad_status status;
    WITHOUT_GIL(status = f(c->cache, timeout));
    if (!cache_leave(c)) return NULL;
    if (status < 0) return raise_status(status, NULL, call);
    if (status == RAD_NONE) Py_RETURN_NONE;
    return PyBool_FromLong(status == RAD_OK);
}

static PyObject *call_drain(PyObject *self, PyObject *timeout)
{
    return timed(self, timeout, "drain", rad_hicache_drain);
}

static PyObject *call_wait(PyObject *self, PyObject *timeout)
{
    return timed(self, timeout, "wait", rad_hicache_wait);
}

static PyObject *call_evict_host(PyObject *self, PyObject *tokens_arg)
{
    cache_object *c = (cache_object *)self;
    uint64_t tokens = 0, evicted = 0;
    if (!arg_u64(tokens_arg, "num_tokens", &tokens) || !cache_enter(c, "evict_host")) return NULL;
    rad_status status;
    WITHOUT_GIL(status = rad_hicache_evict_host(c->cache, tokens, &evicted));
    if (!cache_leave(c)) return NULL;
    if (status < 0) return raise_status(status, NULL, "evict_host");
    return PyLong_FromUnsignedLongLong(evicted);
}

static PyObject *call_clear(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"clear", 0, 0, {"device", "host", "storage"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[3];
    uint32_t device = 0, host = 0, storage = 0;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_flag(a[0], &device) ||
        !arg_flag(a[1], &host) || !arg_flag(a[2], &storage) || !cache_enter(c, "clear"))
        return NULL;
    uint32_t tiers = (device ? RAD_TIER_DEVICE : 0) | (host ? RAD_TIER_HOST : 0) |
                     (storage ? RAD_TIER_STORAGE : 0);
    rad_error err = {0};
    rad_status status;
    WITHOUT_GIL(status = rad_hicache_clear(c->cache, tiers, &err));
    if (!cache_leave(c)) return NULL;
    if (status < 0) return raise_status(status, &err, "clear");
    return PyBool_FromLong(status == RAD_OK);
}

#define STAT(name)                                                                                 \
    {                                                                                              \
#name, F_U64, offsetof(rad_hicache_stats, name), NULL, NULL                                \
    }
static const record_field stats_fields[] = {
    STAT(host_tokens),
    STAT(host_used_tokens),
    STAT(host_cached_tokens),
    STAT(written_tokens),
    STAT(loaded_tokens),
    STAT(fetched_tokens),
    STAT(backed_up_tokens),
    STAT(host_evicted_tokens),
    STAT(dropped_write_tokens),
    STAT(dropped_backup_tokens),
    STAT(failed_loads),
    STAT(failed_writes),
    STAT(device_releases),
    STAT(bad_pages),
    STAT(storage_errors),
    STAT(prefetches),
    STAT(revoked_prefetches),
    STAT(asked_tokens),
    STAT(present_tokens),
    STAT(prefetch_reserved_tokens),
    {"tickets", F_U32, offsetof(rad_hicache_stats, tickets), NULL, NULL},
    {"max_tickets", F_U32, offsetof(rad_hicache_stats, max_tickets), NULL, NULL},
    {"storage_attached", F_FLAG, offsetof(rad_hicache_stats, storage_attached), NULL, NULL},
    STAT(rechecked_tokens),
    STAT(stored_anew_tokens),
    STAT(host_window_tokens),
    STAT(host_window_used_tokens),
    STAT(host_window_cached_tokens),
    STAT(written_window_tokens),
    STAT(loaded_window_tokens),
    STAT(dropped_window_tokens),
    STAT(backed_up_window_tokens),
    STAT(fetched_window_tokens),
    STAT(host_states),
    STAT(host_used_states),
    STAT(host_cached_states),
    STAT(written_states),
    STAT(loaded_states),
    STAT(dropped_states),
    STAT(backed_up_states),
    STAT(fetched_states),
    {0},
};

static PyObject *call_tier_stats(PyObject *self, PyObject *none)
{
    (void)none;
    cache_object *c = (cache_object *)self;
    if (!cache_enter(c, "hicache_stats")) return NULL;
    rad_hicache_stats stats;
    rad_status status = rad_hicache_get_stats(c->cache, &stats);
    if (!cache_leave(c)) return NULL;
    if (status) return raise_status(status, NULL, "hicache_stats");
    return record_new(stats_type, stats_fields, &stats);
}

#define TIER(name, kind, names)                                                                    \
    {                                                                                              \
#name, kind, offsetof(rad_tier_explanation, name), names, NULL                             \
    }
static const record_field explanation_fields[] = {
    TIER(device_tokens, F_U32, NULL),       TIER(host_tokens, F_U32, NULL),
    TIER(fetched_tokens, F_U32, NULL),      TIER(host_end, F_U32, NULL),
    TIER(device_why, F_NAME, match_ends),   TIER(host_why, F_NAME, match_ends),
    TIER(load, F_NAME, refusals),           TIER(device_evicted_tokens, F_U32, NULL),
    TIER(host_evicted_tokens, F_U32, NULL), {0},
};
static const char *const explanation_extra[] = {"device_eviction", "host_eviction", NULL};

static PyObject *call_explain_tiers(PyObject *self, fast_args args, Py_ssize_t nargs,
                                    PyObject *kwnames)
{
    static signature s = {"explain_tiers", 1, 1, {"tokens", "extra_key", "cache_salt"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[3], *record = NULL;
    ints_in tokens;
    rad_key key;
    if (!args_read(&s, args, nargs, kwnames, a) || !key_take(a[0], a[1], a[2], NULL, &tokens, &key))
        return NULL;
    if (cache_enter(c, "explain_tiers")) {
        rad_tier_explanation e = {.struct_size = sizeof e};
        rad_status status = rad_hicache_explain(c->cache, &key, &e);
        if (cache_leave(c)) {
            if (status)
                raise_status(status, NULL, "explain_tiers: the key has no tokens");
            else
                record = record_new(explanation_type, explanation_fields, &e);
        }
        if (record) {
            record_set(record, explanation_fields, 0,
                       eviction_new(&e.device_eviction, e.device_why == RAD_END_EVICTED));
            record_set(record, explanation_fields, 1,
                       eviction_new(&e.host_eviction, e.host_why == RAD_END_EVICTED));
        }
    }
    ints_give_back(&tokens);
    return record;
}

static const char *const prefetch_ends[] = {
    "not_asked",  "too_short",     "over_budget", "no_ticket",    "under_way", "all",     "missed",
    "too_little", "no_host_pages", "late",        "store_failed", "bad_page",  "revoked", NULL};
#define REPORT(name, kind)                                                                         \
    {                                                                                              \
#name, kind, offsetof(rad_prefetch_report, name), NULL, NULL                               \
    }
static const record_field report_fields[] = {
    {"why", F_NAME, offsetof(rad_prefetch_report, why), prefetch_ends, NULL},
    REPORT(asked_tokens, F_U32),
    REPORT(present_tokens, F_U32),
    REPORT(tokens, F_U32),
    REPORT(waited_ns, F_U64),
    {0},
};

static PyObject *call_last_prefetch(PyObject *self, PyObject *none)
{
    (void)none;
    cache_object *c = (cache_object *)self;
    if (!cache_enter(c, "last_prefetch")) return NULL;
    rad_prefetch_report report = {.struct_size = sizeof report};
    rad_status status = rad_hicache_last_prefetch(c->cache, &report);
    if (!cache_leave(c)) return NULL;
    if (status == RAD_NONE) Py_RETURN_NONE;
    if (status) return raise_status(status, NULL, "last_prefetch");
    return record_new(report_type, report_fields, &report);
}

static PyMethodDef methods[] = {
    FAST("load_back", call_load_back,
         "load_back(req, max_tokens=None) -> LoadResult\n\nBrings what the host has behind an "
         "admitted request's prefix to the device, all of it or nothing: `why` says which."),
    {"ready_to_load", call_ready, METH_NOARGS,
     "ready_to_load() -> None\n\nStarts the loads taken so far."},
    {"load_status", call_load_status, METH_O,
     "load_status(req) -> bool\n\nWhether its load has arrived. IOError: it failed."},
    FAST("prefetch_start", call_prefetch,
         "prefetch_start(tokens, *, recompute_ns_per_token=0, extra_key=None, cache_salt=None) -> "
         "int | None\n\nA ticket; None: nothing is fetched."),
    FAST("prefetch_progress", call_progress,
         "prefetch_progress(ticket, tokens, *, extra_key=None, cache_salt=None) -> int | None\n\n"
         "None: wait. Else the tokens that came; the ticket is over."),
    {"prefetch_revoke", call_revoke, METH_O, "prefetch_revoke(ticket) -> None"},
    {"attach_storage", call_attach, METH_O,
     "attach_storage(backend) -> bool\n\nFalse: transfers are under way, or one is attached."},
    {"detach_storage", call_detach, METH_NOARGS, "detach_storage() -> bool"},
    {"identify", call_identify, METH_O, "identify(identity) -> bool"},
    {"drain", call_drain, METH_O,
     "drain(timeout_ns) -> bool\n\nWaits until nothing is written any more; False: not in time."},
    {"wait", call_wait, METH_O,
     "wait(timeout_ns) -> bool | None\n\nUntil a transfer is done; None: none is under way."},
    {"evict_host", call_evict_host, METH_O,
     "evict_host(num_tokens) -> int\n\nThe host gives up so many tokens, those that go next; how "
     "many it had to give."},
    FAST("clear", call_clear,
         "clear(*, device=False, host=False, storage=False) -> bool\n\nForgets tiers. False: "
         "transfers are under way."),
    {"hicache_stats", call_tier_stats, METH_NOARGS, "hicache_stats() -> HiCacheStats"},
    FAST("explain_tiers", call_explain_tiers,
         "explain_tiers(tokens, *, extra_key=None, cache_salt=None) -> TierExplanation"),
    {"last_prefetch", call_last_prefetch, METH_NOARGS, "last_prefetch() -> PrefetchReport | None"},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "HiRadixCache(*, kv_allocator, req_to_token_pool, host_pool, write_policy='write_through', "
     "prefetch_policy='best_effort', identity=None, storage=None, ...)\n\nA RadixCache whose "
     "evicted pages live on in host memory and in a store. `identity`: the model's name, or a dict "
     "of rad_storage_identity; `storage`: an object with batch_exists, batch_get and batch_set. "
     "Besides RadixCache's arguments those of rad_hicache_params, by their names."},
    {Py_tp_new, hiradix_new},
    {Py_tp_methods, methods},
    {0},
};
static PyType_Spec spec = {"radish.HiRadixCache", sizeof(cache_object), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

bool tiers_init(PyObject *module)
{
    load_type = record_type(module, "radish.LoadResult", "What load_back did.", load_fields, NULL);
    stats_type =
        record_type(module, "radish.HiCacheStats", "Counters of the tiers.", stats_fields, NULL);
    explanation_type = record_type(module, "radish.TierExplanation",
                                   "Where a match over all tiers ends, and why.",
                                   explanation_fields, explanation_extra);
    report_type = record_type(module, "radish.PrefetchReport", "What became of a prefetch.",
                              report_fields, NULL);
    return load_type && stats_type && explanation_type && report_type &&
           add_type(module, &spec, cache_type, &hiradix_type);
}
