/* cache.c - the caches: create, match, insert, lock, evict.
 *
 *     Cache              what all have; not made itself
 *       RadixCache       cache_new
 *       ChunkCache       cache_new, kind = RAD_CACHE_CHUNK
 *       HiRadixCache     tiers.c
 *       StreamingCache   takes another one's rad_cache over
 *
 * An object of Python's may go at any moment and in any thread: the collector runs where it likes.
 * A lock or a request that goes while its cache cannot be entered waits in `left_over` for the next
 * call that enters. */
#include "python.h"

#include <string.h>

PyTypeObject *cache_type;
static PyTypeObject *match_type, *lock_type, *handle_type, *inserted_type, *facts_type;

struct left_over {
    left_over *next;
    bool is_request;
    rad_receipt receipt;
    rad_req_kv req;
    int32_t *tokens;
    PyObject *extra_key, *cache_salt;
};

/* ---- entering and leaving ---- */

static void free_left_over(left_over *l)
{
    PyMem_Free(l->tokens);
    XDECREF(l->extra_key);
    XDECREF(l->cache_salt);
    PyMem_Free(l);
}

static void give_left_over(cache_object *c)
{
    while (c->left_over) {
        left_over *l = c->left_over;
        c->left_over = l->next;
        if (l->is_request)
            rad_cache_finished_req(c->cache, &l->req, 0, NULL);
        else
            rad_cache_dec_lock_ref(c->cache, &l->receipt, NULL);
        free_left_over(l);
    }
}

bool cache_enter(cache_object *c, const char *call)
{
    if (!handle_enter(&c->h, call)) return false;
    if (c->left_over) give_left_over(c);
    return true;
}

static cache_object *base_of(cache_object *c)
{
    return c->inner ? c->inner : c;
}

void cache_note_raised(cache_object *c)
{
    PyObject *raised[3];
    PyErr_Fetch(&raised[0], &raised[1], &raised[2]);
    if (c->raised[0]) { /* the first one is told */
        for (int i = 0; i < 3; i++)
            XDECREF(raised[i]);
        return;
    }
    memcpy(c->raised, raised, sizeof raised);
}

bool cache_leave(cache_object *c)
{
    handle_leave(&c->h);
    cache_object *b = base_of(c);
    if (!b->raised[0]) return true;
    PyErr_Restore(b->raised[0], b->raised[1], b->raised[2]);
    memset(b->raised, 0, sizeof b->raised);
    return false;
}

bool cache_part(cache_object *c, parting *p)
{
    if (!handle_is_free(&c->h) || !handle_enter(&c->h, "the end of a lock or a request"))
        return false;
    PyErr_Fetch(&p->raised[0], &p->raised[1], &p->raised[2]);
    return true;
}

void cache_parted(cache_object *c, parting *p)
{
    handle_leave(&c->h); /* what a callback raised is told by the next call */
    PyErr_Restore(p->raised[0], p->raised[1], p->raised[2]);
}

bool cache_leave_request(cache_object *c, const rad_req_kv *req, int32_t *tokens,
                         PyObject *extra_key, PyObject *cache_salt)
{
    left_over *l = PyMem_Calloc(1, sizeof *l);
    if (!l) return false;
    *l = (left_over){c->left_over, true, {.held = 0}, *req, tokens, extra_key, cache_salt};
    c->left_over = l;
    return true;
}

/* ---- callbacks ---- */

static const record_field facts_fields[] = {
    {"last_access", F_U64, offsetof(rad_evict_facts, last_access), NULL, NULL},
    {"created", F_U64, offsetof(rad_evict_facts, created), NULL, NULL},
    {"num_tokens", F_U32, offsetof(rad_evict_facts, num_tokens), NULL, NULL},
    {"depth_tokens", F_U32, offsetof(rad_evict_facts, depth_tokens), NULL, NULL},
    {"hit_count", F_U32, offsetof(rad_evict_facts, hit_count), NULL, NULL},
    {"priority", F_I32, offsetof(rad_evict_facts, priority), NULL, NULL},
    {"page_size", F_U32, offsetof(rad_evict_facts, page_size), NULL, NULL},
    {0},
};

static uint64_t call_evict_key(void *user, const rad_evict_facts *facts)
{
    cache_object *c = user;
    uint64_t key = 0;
    PyGILState_STATE state = PyGILState_Ensure();
    if (c->evict_key) {
        PyObject *record = record_new(facts_type, facts_fields, facts);
        PyObject *answer = record ? PyObject_CallFunctionObjArgs(c->evict_key, record, NULL) : NULL;
        if (answer) key = PyLong_AsUnsignedLongLongMask(answer);
        if (PyErr_Occurred()) {
            cache_note_raised(c);
            key = 0;
        }
        XDECREF(answer);
        XDECREF(record);
    }
    PyGILState_Release(state);
    return key;
}

static rad_status call_copy_slots(void *user, rad_slot from, rad_slot to, uint32_t count)
{
    cache_object *c = user;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *answer = c->copy_slots ? PyObject_CallFunction(c->copy_slots, "iiI", from, to, count)
                                     : NULL;
    rad_status status = answer ? RAD_OK : RAD_E_IO;
    if (!answer && PyErr_Occurred()) cache_note_raised(c);
    XDECREF(answer);
    PyGILState_Release(state);
    return status;
}

static void tell_pages(cache_object *c, const char *method, const rad_page *pages, uint32_t count)
{
    PyGILState_STATE state = PyGILState_Ensure();
    void *to;
    PyObject *these = c->free_list ? array_new(E_I32, count, &to) : NULL, *answer = NULL;
    if (these) {
        memcpy(to, pages, count * sizeof *pages);
        answer = PyObject_CallMethod(c->free_list, method, "O", these);
    }
    if (!answer && PyErr_Occurred()) cache_note_raised(c);
    XDECREF(answer);
    XDECREF(these);
    PyGILState_Release(state);
}

static void call_free_pages(void *user, const rad_page *pages, uint32_t count)
{
    tell_pages(user, "free_pages", pages, count);
}

static void call_free_windows(void *user, const rad_page *pages, uint32_t count)
{
    tell_pages(user, "free_windows", pages, count);
}

static void call_move_window(void *user, rad_page from, rad_page to)
{
    cache_object *c = user;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *answer =
        c->free_list ? PyObject_CallMethod(c->free_list, "move_window", "ii", from, to) : NULL;
    if (!answer && PyErr_Occurred()) cache_note_raised(c);
    XDECREF(answer);
    PyGILState_Release(state);
}

/* The list of a cache that was made with a number of pages: for take_freed. The room was made in
 * create, so this needs no memory. */
static void collect_pages(void *user, const rad_page *pages, uint32_t count)
{
    cache_object *c = user;
    if (count > c->most_freed - c->num_freed) { /* a page came in again that was not taken */
        PyGILState_STATE state = PyGILState_Ensure();
        PyErr_Format(error_class,
                     "more pages left the tree than there are: an insert brought pages "
                     "back that take_freed had not given out");
        cache_note_raised(c);
        PyGILState_Release(state);
        return;
    }
    memcpy(c->freed + c->num_freed, pages, count * sizeof *pages);
    c->num_freed += count;
}

/* ---- create ---- */

static const char *const policies[] = {"lru",      "lfu",  "fifo", "mru",  "filo",
                                       "priority", "slru", "cost", "user", NULL};

enum { C_KV, C_ROWS, C_STATES, C_EVICT_KEY, C_COPY_SLOTS, C_FREE_LIST, C_OBJECTS };

#define MEMBER(name, kind)                                                                         \
    {                                                                                              \
#name, kind, offsetof(rad_cache_params, name), NULL                                        \
    }
static const param cache_table[] = {
    MEMBER(page_size, P_U32),
    {"kv_allocator", P_OBJECT, C_KV, NULL},
    {"req_to_token_pool", P_OBJECT, C_ROWS, NULL},
    {"state_pool", P_OBJECT, C_STATES, NULL},
    {"evict_key", P_OBJECT, C_EVICT_KEY, NULL},
    {"copy_slots", P_OBJECT, C_COPY_SLOTS, NULL},
    {"free_list", P_OBJECT, C_FREE_LIST, NULL},
    {"eviction_policy", P_NAME, offsetof(rad_cache_params, eviction.policy), policies},
    {"protected_threshold", P_U32, offsetof(rad_cache_params, eviction.protected_threshold), NULL},
    {"cost_half_life_percent", P_U32, offsetof(rad_cache_params, eviction.cost_half_life_percent),
     NULL},
    {"cost_attention_tokens", P_U32, offsetof(rad_cache_params, eviction.cost_attention_tokens),
     NULL},
    MEMBER(max_nodes, P_U32),
    MEMBER(max_namespaces, P_U32),
    MEMBER(max_tokens, P_U64),
    MEMBER(max_pinned_tokens, P_U64),
    MEMBER(retention, P_FLAG),
    MEMBER(max_sessions, P_U32),
    MEMBER(is_eagle, P_FLAG),
    MEMBER(disable, P_FLAG),
    MEMBER(disable_finished_insert, P_FLAG),
    MEMBER(enable_kv_events, P_FLAG),
    MEMBER(kv_event_pages, P_U32),
    MEMBER(enable_page_hashes, P_FLAG),
    MEMBER(explain_pages, P_U32),
    MEMBER(explain_namespaces, P_FLAG),
    MEMBER(window_tokens, P_U32),
    {0},
};

const param *cache_params_table(void)
{
    return cache_table;
}

cache_object *cache_begin(PyTypeObject *type, const char *noun)
{
    cache_object *c = (cache_object *)PyType_GenericAlloc(type, 0);
    if (c && handle_init(&c->h, noun)) return c;
    XDECREF(c);
    return NULL;
}

static bool part(cache_object *c, void *place, PyObject *value, PyTypeObject *type,
                 const char *name)
{
    PyObject **to = place;
    if (!value) return true;
    if (!PyObject_TypeCheck(value, type)) {
        PyErr_Format(PyExc_TypeError, "%s(): %s must be a %R, not %R", c->h.noun, name, type,
                     (PyObject *)Py_TYPE(value));
        return false;
    }
    if (!handle_join(&c->h, (handle *)value)) return false;
    INCREF(value);
    ((handle *)value)->users++;
    *to = value;
    return true;
}

static bool callback(cache_object *c, PyObject **to, PyObject *value, const char *name)
{
    if (!value) return true;
    if (!PyCallable_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s(): %s must be callable", c->h.noun, name);
        return false;
    }
    INCREF(value);
    *to = value;
    return true;
}

static bool read_free_list(cache_object *c, PyObject *value, rad_free_list *list)
{
    *list = (rad_free_list){.struct_size = sizeof *list, .user = c};
    if (PyLong_Check(value)) {
        if (!arg_u32(value, "free_list", &list->num_pages)) return false;
        c->freed = malloc(((size_t)list->num_pages + 1) * sizeof *c->freed);
        if (!c->freed) {
            PyErr_NoMemory();
            return false;
        }
        c->most_freed = list->num_pages;
        c->collects = true;
        list->free_pages = collect_pages;
        return true;
    }
    PyObject *pages = PyObject_GetAttrString(value, "num_pages");
    bool good = pages && arg_u32(pages, "free_list.num_pages", &list->num_pages);
    XDECREF(pages);
    if (!good) return false;
    list->free_pages = call_free_pages;
    if (PyObject_HasAttrString(value, "free_windows")) list->free_windows = call_free_windows;
    if (PyObject_HasAttrString(value, "move_window")) list->move_window = call_move_window;
    INCREF(value);
    c->free_list = value;
    return true;
}

bool cache_params_read(cache_object *c, PyObject *args, PyObject *kwargs, const param *others,
                       rad_cache_params *p, rad_free_list *list)
{
    PyObject *with[C_OBJECTS] = {0};
    if (!params_read(c->h.noun, args, kwargs, cache_table, 0, 0, others, p, with)) return false;
    if (!part(c, &c->kv, with[C_KV], kv_type, "kv_allocator") ||
        !part(c, &c->rows, with[C_ROWS], rows_type, "req_to_token_pool") ||
        !part(c, &c->states, with[C_STATES], state_type, "state_pool") ||
        !callback(c, &c->evict_key, with[C_EVICT_KEY], "evict_key") ||
        !callback(c, &c->copy_slots, with[C_COPY_SLOTS], "copy_slots"))
        return false;
    if (with[C_FREE_LIST]) {
        if (!read_free_list(c, with[C_FREE_LIST], list)) return false;
        p->free_list = list;
    }
    if (c->kv) {
        p->kv_allocator = c->kv->kv;
        if (!p->page_size) p->page_size = rad_kv_page_size(c->kv->kv);
    }
    if (c->rows) p->req_to_token_pool = c->rows->rows;
    if (c->states) p->state_pool = c->states->pool;
    if (c->evict_key) {
        if (p->eviction.policy == RAD_EVICT_LRU) p->eviction.policy = RAD_EVICT_USER;
        p->evict_key = call_evict_key;
        p->evict_user = c;
    }
    if (c->copy_slots) {
        p->copy_slots = call_copy_slots;
        p->copy_user = c;
    }
    c->page_size = p->page_size ? p->page_size : 1;
    c->is_eagle = p->is_eagle;
    return true;
}

static PyObject *plain_new(PyTypeObject *type, PyObject *args, PyObject *kwargs, uint32_t kind)
{
    rad_cache_params p = {.struct_size = sizeof p, .kind = kind};
    rad_free_list list;
    rad_error err;
    cache_object *c = cache_begin(type, kind == RAD_CACHE_CHUNK ? "ChunkCache" : "RadixCache");
    if (c && cache_params_read(c, args, kwargs, NULL, &p, &list)) {
        rad_status status;
        WITHOUT_GIL(status = rad_cache_create(module_env(), &p, &c->cache, &err));
        if (status == RAD_OK) return (PyObject *)c;
        raise_status(status, &err, NULL);
    }
    XDECREF(c);
    return NULL;
}

static PyObject *radix_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return plain_new(type, args, kwargs, RAD_CACHE_RADIX);
}

static PyObject *chunk_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return plain_new(type, args, kwargs, RAD_CACHE_CHUNK);
}

enum { STREAM_INNER, STREAM_OBJECTS };
static const param stream_table[] = {
    {"inner", P_OBJECT, STREAM_INNER, NULL},
    {"max_sessions", P_U32, offsetof(rad_streaming_cache_params, max_sessions), NULL},
    {0},
};

static PyObject *streaming_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    rad_streaming_cache_params p = {.struct_size = sizeof p};
    PyObject *with[STREAM_OBJECTS] = {0};
    if (!params_read("StreamingCache", args, kwargs, stream_table, 1, 2, NULL, &p, with))
        return NULL;
    cache_object *inner = (cache_object *)with[STREAM_INNER];
    if (!inner || !PyObject_TypeCheck((PyObject *)inner, cache_type)) {
        PyErr_SetString(PyExc_TypeError, "StreamingCache(): inner must be a cache");
        return NULL;
    }
    cache_object *c = cache_begin(type, "StreamingCache");
    if (!c || !handle_join(&c->h, &inner->h)) goto fail;
    if (inner->num_out) {
        PyErr_SetString(error_class, "StreamingCache(): inner is in use: locks or requests of it "
                                     "are out");
        goto fail;
    }
    p.inner = inner->cache;
    rad_error err;
    rad_status status = rad_streaming_cache_create(module_env(), &p, &c->cache, &err);
    if (status) {
        raise_status(status, &err, NULL);
        goto fail;
    }
    inner->cache = NULL; /* the wrapper's now */
    inner->h.closed = true;
    inner->h.users++;
    INCREF(inner);
    c->inner = inner;
    c->page_size = inner->page_size;
    if (inner->has_threads) cache_with_threads(c);
    return (PyObject *)c;
fail:
    XDECREF(c);
    return NULL;
}

/* ---- the end ---- */

static cache_object *with_threads; /* all of them, for the interpreter's exit */

void cache_with_threads(cache_object *c)
{
    c->has_threads = true;
    c->next = with_threads;
    c->link = &with_threads;
    if (c->next) c->next->link = &c->next;
    with_threads = c;
}

static void unpart(void *place)
{
    PyObject **at = place;
    if (*at) ((handle *)*at)->users--;
    Py_CLEAR(*at);
}

/* Whatever is there. The tree first: it uses the rest. */
static void cache_end(cache_object *c)
{
    rad_cache *cache = c->cache;
    c->cache = NULL;
    if (c->link) {
        *c->link = c->next;
        if (c->next) c->next->link = c->link;
        c->link = NULL;
    }
    if (c->has_threads) { /* waits for workers, which may call a backend of Python's */
        WITHOUT_GIL(rad_cache_destroy(cache));
    } else {
        rad_cache_destroy(cache);
    }
    while (c->left_over) {
        left_over *l = c->left_over;
        c->left_over = l->next;
        free_left_over(l);
    }
    if (c->inner) cache_end(c->inner);
    unpart(&c->inner);
    unpart(&c->kv);
    unpart(&c->rows);
    unpart(&c->states);
    unpart(&c->host_states);
    unpart(&c->host_pool);
    unpart(&c->window_host_pool);
    Py_CLEAR(c->evict_key);
    Py_CLEAR(c->copy_slots);
    Py_CLEAR(c->free_list);
    Py_CLEAR(c->storage);
    for (int i = 0; i < 3; i++)
        Py_CLEAR(c->raised[i]);
    free(c->freed);
    c->freed = NULL;
    c->num_freed = 0;
}

static void cache_dealloc(PyObject *self)
{
    cache_object *c = (cache_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (!handle_is_foreign(&c->h)) cache_end(c);
    handle_fini(&c->h);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    DECREF(type);
}

static int cache_traverse(PyObject *self, visitproc visit, void *arg)
{
    cache_object *c = (cache_object *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(c->inner);
    Py_VISIT(c->evict_key);
    Py_VISIT(c->copy_slots);
    Py_VISIT(c->free_list);
    Py_VISIT(c->storage);
    return 0;
}

/* A cycle through a callback is cut; a callback that is gone is not called. */
static int cache_clear(PyObject *self)
{
    cache_object *c = (cache_object *)self;
    Py_CLEAR(c->evict_key);
    Py_CLEAR(c->copy_slots);
    Py_CLEAR(c->free_list);
    return 0;
}

static PyObject *cache_close(PyObject *self, PyObject *none)
{
    (void)none;
    cache_object *c = (cache_object *)self;
    if (c->h.closed) Py_RETURN_NONE;
    if (!handle_enter(&c->h, "close")) return NULL;
    c->h.closed = true; /* while a backend of Python's may still be called */
    cache_end(c);
    handle_leave(&c->h);
    Py_RETURN_NONE;
}

static PyObject *cache_close_at_exit(PyObject *self, PyObject *args)
{
    return cache_close(self, args);
}

/* Worker threads must not outlive the interpreter, which they may call. */
static PyObject *close_all(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    while (with_threads) {
        cache_object *c = with_threads;
        /* A parent's threads are not here; a daemon thread may be within a call for ever. */
        bool leave = handle_is_foreign(&c->h) || handle_is_busy(&c->h);
        INCREF(c);
        if (leave) {
            *c->link = c->next;
            if (c->next) c->next->link = c->link;
            c->link = NULL;
        } else {
            c->h.closed = true;
            cache_end(c);
        }
        DECREF(c);
    }
    look_at_exit();
    Py_RETURN_NONE;
}

static PyMethodDef exit_method = {"_close_all", close_all, METH_NOARGS, NULL};

static bool call_at_exit(void)
{
    PyObject *atexit = PyImport_ImportModule("atexit");
    PyObject *f = atexit ? PyCFunction_NewEx(&exit_method, NULL, NULL) : NULL;
    PyObject *done = f ? PyObject_CallMethod(atexit, "register", "O", f) : NULL;
    bool good = done != NULL;
    XDECREF(done);
    XDECREF(f);
    XDECREF(atexit);
    return good;
}

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
    PyObject *a[6], *result = NULL, *dtype = NULL;
    ints_in tokens;
    ints_out out;
    rad_key key;
    rad_ref node;
    uint32_t room = 0, node_tokens = 0, count = 0;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_u32(a[1], "room", &room) ||
        !arg_ref(a[2], "node", &node) || !arg_u32(a[3], "node_tokens", &node_tokens) ||
        !key_take(a[0], a[4], a[5], NULL, &tokens, &key))
        return NULL;
    dtype = PyUnicode_FromString("int32");
    if (dtype && ints_place(dtype, "room", room, &out)) {
        rad_status status = RAD_OK;
        bool good = cache_enter(c, "continuation");
        if (good) {
            status =
                rad_cache_continuation(c->cache, &key, node, node_tokens, out.data, room, &count);
            good = cache_leave(c);
        }
        if (good && !status)
            result = ints_done(&out, dtype, count);
        else
            ints_drop(&out);
        if (good && status)
            raise_status(status, NULL,
                         "continuation: a stale node, lengths that do not go "
                         "together, or a cache that cannot tell");
    }
    XDECREF(dtype);
    ints_give_back(&tokens);
    return result;
}

/* ---- inserting ---- */

static const record_field inserted_fields[] = {
    {"prefix_tokens", F_U32, offsetof(rad_inserted, prefix_tokens), NULL,
     "Leading tokens that the tree had already."},
    {"node", F_REF, offsetof(rad_inserted, node), NULL,
     "Ends the key's last whole page; 0: there is none."},
    {"evictable_change", F_I64, offsetof(rad_inserted, evictable_change), NULL,
     "Of evictable_size."},
    {0},
};

PyObject *inserted_new(const rad_inserted *in)
{
    return record_new(inserted_type, inserted_fields, in);
}

static bool same_count(const ints_in *tokens, uint32_t first, bool is_eagle, const ints_in *slots)
{
    Py_ssize_t positions = tokens->count - (is_eagle && tokens->count ? 1 : 0) - first;
    if (slots->count >= positions) return true;
    PyErr_Format(PyExc_ValueError, "slots: %zd of them for %zd positions", slots->count, positions);
    return false;
}

/* insert, and insert_from where `at` is not NULL. */
static PyObject *insert(cache_object *c, PyObject *const *a, rad_match_handle *at)
{
    ints_in tokens, slots;
    rad_key key;
    rad_insert_params p = {0};
    PyObject *result = NULL;
    if (!arg_i32(a[4], "priority", &p.priority) || !arg_flag(a[5], &p.chunked) ||
        !arg_u32(a[6], "window_from", &p.window_from) ||
        !key_take(a[0], a[2], a[3], NULL, &tokens, &key))
        return NULL;
    if (ints_take(a[1], "slots", INTS_SLOTS, &slots)) {
        uint32_t first = at ? at->num_tokens : 0;
        if (same_count(&tokens, first, c->is_eagle, &slots) && cache_enter(c, "insert")) {
            rad_inserted inserted;
            rad_error err;
            rad_status status;
            LONG_CALL(
                key.num_tokens - first >= LONG_TOKENS,
                status =
                    at ? rad_cache_insert_from(c->cache, at, &key, slots.data, &p, &inserted, &err)
                       : rad_cache_insert(c->cache, &key, slots.data, &p, &inserted, &err));
            bool good = cache_leave(c);
            if (status < 0) {
                raise_status(status, &err, "insert");
            } else if (good && status == RAD_FULL) {
                INCREF(Py_None);
                result = Py_None;
            } else if (good) {
                result = inserted_new(&inserted);
            }
        }
        ints_give_back(&slots);
    }
    ints_give_back(&tokens);
    return result;
}

static PyObject *call_insert(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {
        "insert",
        2,
        2,
        {"tokens", "slots", "extra_key", "cache_salt", "priority", "chunked", "window_from"},
        {0}};
    PyObject *a[7];
    if (!args_read(&s, args, nargs, kwnames, a)) return NULL;
    return insert((cache_object *)self, a, NULL);
}

/* ---- locks ---- */

PyObject *lock_new(cache_object *c, const rad_receipt *receipt)
{
    lock_object *l = (lock_object *)PyType_GenericAlloc(lock_type, 0);
    if (!l) return NULL;
    INCREF(c);
    l->cache = c;
    l->receipt = *receipt;
    c->num_out++;
    return (PyObject *)l;
}

static void lock_dealloc(PyObject *self)
{
    lock_object *l = (lock_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    cache_object *c = l->cache;
    if (c && l->receipt.held) c->num_out--;
    if (c && l->receipt.held && !c->h.closed && !handle_is_foreign(&c->h)) {
        parting p;
        if (cache_part(c, &p)) {
            rad_cache_dec_lock_ref(c->cache, &l->receipt, NULL);
            cache_parted(c, &p);
        } else {
            left_over *o = PyMem_Calloc(1, sizeof *o);
            if (o) {
                o->next = c->left_over;
                o->receipt = l->receipt;
                c->left_over = o;
            }
        }
    }
    XDECREF(c);
    PyObject_Free(self);
    DECREF(type);
}

static PyObject *unlock(cache_object *c, lock_object *l)
{
    if (l->cache != c) {
        PyErr_SetString(error_class, "dec_lock_ref: the lock is another cache's");
        return NULL;
    }
    if (!cache_enter(c, "dec_lock_ref")) return NULL;
    rad_error err;
    rad_status status = rad_cache_dec_lock_ref(c->cache, &l->receipt, &err);
    if (!cache_leave(c)) return NULL;
    if (status) return raise_status(status, &err, "dec_lock_ref: the lock was released already");
    c->num_out--;
    return PyLong_FromLongLong(l->receipt.evictable_change);
}

static PyObject *lock_release(PyObject *self, PyObject *none)
{
    (void)none;
    return unlock(((lock_object *)self)->cache, (lock_object *)self);
}

static PyObject *lock_enter(PyObject *self, PyObject *none)
{
    (void)none;
    INCREF(self);
    return self;
}

static PyObject *lock_exit(PyObject *self, PyObject *args)
{
    (void)args;
    lock_object *l = (lock_object *)self;
    if (!l->receipt.held) Py_RETURN_NONE;
    PyObject *done = lock_release(self, NULL);
    if (!done) return NULL;
    DECREF(done);
    Py_RETURN_NONE;
}

static PyObject *lock_node(PyObject *self, void *closure)
{
    (void)closure;
    return node_new(((lock_object *)self)->receipt.node);
}

static PyObject *lock_flag(PyObject *self, void *offset)
{
    return PyBool_FromLong(*(uint32_t *)(void *)((char *)self + (intptr_t)offset) != 0);
}

static PyMethodDef lock_methods[] = {
    {"release", lock_release, METH_NOARGS,
     "release() -> int\n\nGives the lock back; by how much evictable_size grew. StateError when it "
     "was given back already."},
    {"__enter__", lock_enter, METH_NOARGS, NULL},
    {"__exit__", lock_exit, METH_VARARGS, NULL},
    {0},
};
static PyMemberDef lock_members[] = {
    {"window_from", T_UINT, offsetof(lock_object, receipt.window_from), READONLY,
     "From here on the window side is held."},
    {"window_missing", T_UINT, offsetof(lock_object, receipt.window_missing), READONLY,
     "Not 0: windows were given back since the match; release, and match again."},
    {"evictable_change", T_LONGLONG, offsetof(lock_object, receipt.evictable_change), READONLY,
     "What the lock added to evictable_size: 0 or less."},
    {0},
};
static PyGetSetDef lock_getters[] = {
    {"node", lock_node, NULL, "What was locked; 0: the root.", NULL},
    {"held", lock_flag, NULL, "Whether it is not given back yet.",
     (void *)offsetof(lock_object, receipt.held)},
    {"state_held", lock_flag, NULL, "Whether the snapshot behind the node is held too.",
     (void *)offsetof(lock_object, receipt.state_held)},
    {0},
};
static PyType_Slot lock_slots[] = {
    {Py_tp_doc, "Keeps a prefix from being evicted until release(), the end of a `with`, or until "
                "the object goes."},
    {Py_tp_dealloc, lock_dealloc},
    {Py_tp_methods, lock_methods},
    {Py_tp_members, lock_members},
    {Py_tp_getset, lock_getters},
    {0},
};
static PyType_Spec lock_spec = {"radish.Lock", sizeof(lock_object), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, lock_slots};

static PyObject *call_lock(PyObject *self, PyObject *node_arg)
{
    cache_object *c = (cache_object *)self;
    rad_ref node;
    if (!arg_ref(node_arg, "node", &node) || !cache_enter(c, "inc_lock_ref")) return NULL;
    rad_receipt receipt = {0};
    rad_error err;
    rad_status status = rad_cache_inc_lock_ref(c->cache, node, &receipt, &err);
    if (!cache_leave(c)) return NULL;
    if (status) return raise_status(status, &err, "inc_lock_ref");
    PyObject *lock = lock_new(c, &receipt);
    if (!lock) rad_cache_dec_lock_ref(c->cache, &receipt, NULL);
    return lock;
}

static PyObject *call_unlock(PyObject *self, PyObject *lock)
{
    if (Py_TYPE(lock) == lock_type) return unlock((cache_object *)self, (lock_object *)lock);
    PyErr_SetString(PyExc_TypeError, "dec_lock_ref() takes the Lock that inc_lock_ref() gave");
    return NULL;
}

/* ---- MatchHandle ---- */

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
    PyObject *lock = lock_new(c, &receipt);
    if (!lock) rad_cache_dec_lock_ref(c->cache, &receipt, NULL);
    return lock;
}

static PyObject *handle_slots(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"slots", 0, 3, {"first", "count", "out"}, {0}};
    handle_object *h = (handle_object *)self;
    PyObject *a[3], *fresh = NULL, *result = NULL;
    uint32_t first = 0, count;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_u32(a[0], "first", &first)) return NULL;
    count = h->handle.num_tokens > first ? h->handle.num_tokens - first : 0;
    if (a[1] && a[1] != Py_None && !arg_u32(a[1], "count", &count)) return NULL;
    if ((uint64_t)first + count > h->handle.num_tokens) {
        PyErr_Format(PyExc_IndexError, "positions %u to %llu are not all in the handle's %u tokens",
                     first, (unsigned long long)first + count, h->handle.num_tokens);
        return NULL;
    }
    PyObject *into = a[2];
    if (!into || into == Py_None) into = fresh = PyUnicode_FromString("int32");
    ints_out out;
    if (into && ints_place(into, "out", count, &out)) {
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
    XDECREF(fresh);
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
    static signature s = {
        "insert",
        2,
        2,
        {"tokens", "slots", "extra_key", "cache_salt", "priority", "chunked", "window_from"},
        {0}};
    handle_object *h = (handle_object *)self;
    PyObject *a[7];
    if (!args_read(&s, args, nargs, kwnames, a)) return NULL;
    return insert(h->cache, a, &h->handle);
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
         "window_from=0) -> Inserted | None\n\nInserts from the handle's end on and moves it to "
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

/* ---- evicting ---- */

static PyObject *call_evict(PyObject *self, PyObject *count_arg)
{
    cache_object *c = (cache_object *)self;
    uint64_t count = 0, evicted = 0;
    if (!arg_u64(count_arg, "num_tokens", &count) || !cache_enter(c, "evict")) return NULL;
    rad_error err;
    rad_status status;
    LONG_CALL(count >= LONG_TOKENS || c->has_threads,
              status = rad_cache_evict(c->cache, count, &evicted, &err));
    if (!cache_leave(c)) return NULL;
    if (status) return raise_status(status, &err, "evict");
    return PyLong_FromUnsignedLongLong(evicted);
}

static PyObject *evict_other(PyObject *self, PyObject *count_arg, const char *call,
                             rad_status (*f)(rad_cache *, uint64_t, uint64_t *))
{
    cache_object *c = (cache_object *)self;
    uint64_t count = 0, evicted = 0;
    if (!arg_u64(count_arg, "count", &count) || !cache_enter(c, call)) return NULL;
    rad_status status;
    LONG_CALL(count >= LONG_TOKENS || c->has_threads, status = f(c->cache, count, &evicted));
    if (!cache_leave(c)) return NULL;
    if (status)
        return raise_status(status, NULL,
                            status == RAD_E_UNSUPPORTED ? "the cache has none of this kind"
                                                        : "something was not known as handed out");
    return PyLong_FromUnsignedLongLong(evicted);
}

static PyObject *call_evict_window(PyObject *self, PyObject *count)
{
    return evict_other(self, count, "evict_window", rad_cache_evict_window);
}

static PyObject *call_evict_state(PyObject *self, PyObject *count)
{
    return evict_other(self, count, "evict_state", rad_cache_evict_state);
}

static PyObject *call_put_state(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"put_state", 3, 3, {"node", "depth_tokens", "state"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[3];
    rad_ref node;
    uint32_t depth = 0;
    int32_t state = 0;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_ref(a[0], "node", &node) ||
        !arg_u32(a[1], "depth_tokens", &depth) || !arg_i32(a[2], "state", &state) ||
        !cache_enter(c, "put_state"))
        return NULL;
    rad_error err;
    rad_status status = rad_cache_put_state(c->cache, node, depth, state, &err);
    if (!cache_leave(c)) return NULL;
    if (status) return raise_status(status, &err, "put_state");
    Py_RETURN_NONE;
}

static PyObject *call_take_freed(PyObject *self, fast_args args, Py_ssize_t nargs,
                                 PyObject *kwnames)
{
    static signature s = {"take_freed", 0, 1, {"dtype", "slots"}, {0}};
    cache_object *c = (cache_object *)self, *b = base_of(c);
    PyObject *a[2];
    uint32_t as_slots = 0;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_flag(a[1], &as_slots) ||
        !cache_enter(c, "take_freed"))
        return NULL;
    PyObject *result = NULL;
    bool wide = a[0] && PyUnicode_Check(a[0]) && !PyUnicode_CompareWithASCIIString(a[0], "int64");
    if (!b->collects) {
        PyErr_SetString(error_class, "take_freed: the cache was not made with a number of pages "
                                     "as its free_list");
    } else {
        uint32_t each = as_slots ? c->page_size : 1;
        void *to;
        result = array_new(wide ? E_I64 : E_I32, (Py_ssize_t)b->num_freed * each, &to);
        for (size_t i = 0; result && i < b->num_freed; i++) {
            for (uint32_t j = 0; j < each; j++) {
                int32_t index = b->freed[i] * (int32_t)each + (int32_t)j;
                if (wide)
                    ((int64_t *)to)[i * each + j] = index;
                else
                    ((int32_t *)to)[i * each + j] = index;
            }
        }
        if (result) b->num_freed = 0;
    }
    if (cache_leave(c)) return result;
    XDECREF(result);
    return NULL;
}

/* ---- the rest ---- */

static PyObject *simple(PyObject *self, const char *call, rad_status (*f)(rad_cache *))
{
    cache_object *c = (cache_object *)self;
    if (!cache_enter(c, call)) return NULL;
    rad_status status;
    LONG_CALL(c->has_threads || f == rad_cache_reset, status = f(c->cache));
    if (!cache_leave(c)) return NULL;
    if (status < 0) return raise_status(status, NULL, call);
    Py_RETURN_NONE;
}

static PyObject *call_poll(PyObject *self, PyObject *none)
{
    (void)none;
    return simple(self, "poll", rad_cache_poll);
}

static PyObject *call_reset(PyObject *self, PyObject *none)
{
    (void)none;
    return simple(self, "reset", rad_cache_reset);
}

typedef uint64_t size_fn(const rad_cache *cache);
static size_fn *const sizes[] = {
    rad_cache_evictable_size,
    rad_cache_protected_size,
    rad_cache_total_size,
    rad_cache_window_evictable_size,
    rad_cache_window_protected_size,
    rad_cache_state_evictable_size,
    rad_cache_state_protected_size,
    rad_cache_pinned_size,
};

static PyObject *get_size(PyObject *self, void *which)
{
    cache_object *c = (cache_object *)self;
    if (!cache_enter(c, "a property")) return NULL;
    uint64_t size = sizes[(intptr_t)which](c->cache);
    if (!cache_leave(c)) return NULL;
    return PyLong_FromUnsignedLongLong(size);
}

static PyObject *get_part(PyObject *self, void *offset)
{
    cache_object *c = base_of((cache_object *)self);
    PyObject *part = *(PyObject **)(void *)((char *)c + (intptr_t)offset);
    if (!part) part = Py_None;
    INCREF(part);
    return part;
}

static PyObject *get_closed(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((handle *)self)->closed);
}

static PyObject *itself(PyObject *self, PyObject *none)
{
    (void)none;
    INCREF(self);
    return self;
}

static PyMethodDef methods[] = {
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
    FAST("match_handle", call_match_handle,
         "match_handle(tokens, *, extra_key=None, cache_salt=None, session=0) -> MatchHandle\n\n"
         "The match as a value; splits nothing."),
    FAST("lookup", call_lookup,
         "lookup(tokens, *, extra_key=None, cache_salt=None, session=0) -> Match\n\nLike a match, "
         "but neither touches nor splits."),
    FAST("continuation", call_continuation,
         "continuation(tokens, room, *, node=0, node_tokens=0, extra_key=None, cache_salt=None) -> "
         "Array\n\nUp to `room` tokens that requests which began so went on with."),
    FAST("insert", call_insert,
         "insert(tokens, slots, *, extra_key=None, cache_salt=None, priority=0, chunked=False, "
         "window_from=0) -> Inserted | None\n\nGives the slots to the tree, whole pages of them. "
         "Those before prefix_tokens stay the caller's. None: the metadata's limits leave no "
         "room."),
    {"inc_lock_ref", call_lock, METH_O,
     "inc_lock_ref(node) -> Lock\n\nKeeps the node and its path from being evicted."},
    {"dec_lock_ref", call_unlock, METH_O, "dec_lock_ref(lock) -> int\n\nAs lock.release()."},
    {"evict", call_evict, METH_O,
     "evict(num_tokens) -> int\n\nFrees unlocked tokens, least valuable first; how many."},
    {"evict_window", call_evict_window, METH_O,
     "evict_window(num_tokens) -> int\n\nGives back window sides; the pages stay cached."},
    {"evict_state", call_evict_state, METH_O, "evict_state(count) -> int"},
    FAST("put_state", call_put_state,
         "put_state(node, depth_tokens, state) -> None\n\nHangs a snapshot in: it is the cache's "
         "now."),
    FAST("take_freed", call_take_freed,
         "take_freed(dtype='int32', *, slots=False) -> Array\n\nThe pages (or their slots) that "
         "left the tree since the last call; for a cache made with free_list=NUMBER."),
    {"poll", call_poll, METH_NOARGS,
     "poll() -> None\n\nFinished transfers become visible: once a step."},
    {"reset", call_reset, METH_NOARGS, "reset() -> None\n\nForgets everything."},
    {"close", cache_close, METH_NOARGS,
     "close() -> None\n\nGives its memory back. Its locks, requests and handles are dead then."},
    {"take_over", handle_take_over, METH_NOARGS,
     "take_over() -> None\n\nMakes the calling thread the owner of the cache, its allocator and "
     "its pools."},
    {"__enter__", itself, METH_NOARGS, NULL},
    {"__exit__", cache_close_at_exit, METH_VARARGS, NULL},
    {0},
};

static PyMemberDef members[] = {
    {"page_size", T_UINT, offsetof(cache_object, page_size), READONLY, "Tokens of a page."},
    {"is_eagle", T_BOOL, offsetof(cache_object, is_eagle), READONLY, "Whether keys are bigrams."},
    {0},
};

static PyGetSetDef getters[] = {
    {"evictable_size", get_size, NULL, "Tokens that an eviction may take.", (void *)0},
    {"protected_size", get_size, NULL, "Tokens that locks hold.", (void *)1},
    {"total_size", get_size, NULL, "Tokens cached.", (void *)2},
    {"window_evictable_size", get_size, NULL, "The same of window sides.", (void *)3},
    {"window_protected_size", get_size, NULL, "The same of window sides.", (void *)4},
    {"state_evictable_size", get_size, NULL, "Snapshots that an eviction may take.", (void *)5},
    {"state_protected_size", get_size, NULL, "Snapshots that locks hold.", (void *)6},
    {"pinned_size", get_size, NULL, "Tokens pinned now.", (void *)7},
    {"kv_allocator", get_part, NULL, "What it was made with.", (void *)offsetof(cache_object, kv)},
    {"req_to_token_pool", get_part, NULL, "What it was made with.",
     (void *)offsetof(cache_object, rows)},
    {"state_pool", get_part, NULL, "What it was made with.",
     (void *)offsetof(cache_object, states)},
    {"closed", get_closed, NULL, "Whether close() was called.", NULL},
    {0},
};

static PyMethodDef all_methods[96];

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "What all caches have. Lengths are tokens (pairs under is_eagle). One thread owns a "
     "cache together with its allocator and pools: see take_over."},
    {Py_tp_dealloc, cache_dealloc},
    {Py_tp_traverse, cache_traverse},
    {Py_tp_clear, cache_clear},
    {Py_tp_methods, all_methods},
    {Py_tp_members, members},
    {Py_tp_getset, getters},
    {0},
};
static PyType_Spec spec = {"radish.Cache", sizeof(cache_object), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
                               Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           slots};

/* These have the collector's functions of their base. */
static PyType_Slot radix_slots[] = {
    {Py_tp_doc,
     "RadixCache(*, page_size=1, kv_allocator=None, req_to_token_pool=None, state_pool=None, "
     "free_list=None, eviction_policy='lru', evict_key=None, copy_slots=None, ...)\n\nA radix tree "
     "over token ids: which pages a prompt can reuse. free_list: an object with num_pages and "
     "free_pages(pages), or a number of pages for take_freed(). The rest are rad_cache_params, by "
     "their names."},
    {Py_tp_new, radix_new},
    {0},
};
static PyType_Spec radix_spec = {"radish.RadixCache", sizeof(cache_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, radix_slots};
static PyType_Slot chunk_slots[] = {
    {Py_tp_doc, "ChunkCache(*, page_size=1, kv_allocator=None, req_to_token_pool=None, ...)\n\n"
                "The same interface without any reuse."},
    {Py_tp_new, chunk_new},
    {0},
};
static PyType_Spec chunk_spec = {"radish.ChunkCache", sizeof(cache_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, chunk_slots};
static PyType_Slot streaming_slots[] = {
    {Py_tp_doc,
     "StreamingCache(inner, max_sessions=0)\n\nKeeps a session's row and K/V between its "
     "turns. `inner` is the wrapper's from now on."},
    {Py_tp_new, streaming_new},
    {0},
};
static PyType_Spec streaming_spec = {"radish.StreamingCache", sizeof(cache_object), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, streaming_slots};

static size_t append(size_t at, const PyMethodDef *some)
{
    for (; some->ml_name && at + 1 < COUNT_OF(all_methods); some++)
        all_methods[at++] = *some;
    return at;
}

bool cache_init(PyObject *module)
{
    size_t at = append(0, methods);
    at = append(at, request_calls);
    append(at, look_calls);
    inserted_type =
        record_type(module, "radish.Inserted", "What an insert did.", inserted_fields, NULL);
    facts_type = record_type(module, "radish.EvictFacts", "What a policy is told of a leaf.",
                             facts_fields, NULL);
    PyTypeObject *made;
    return inserted_type && facts_type && add_type(module, &match_spec, NULL, &match_type) &&
           add_type(module, &lock_spec, NULL, &lock_type) &&
           add_type(module, &handle_spec, NULL, &handle_type) &&
           add_type(module, &spec, NULL, &cache_type) &&
           add_type(module, &radix_spec, cache_type, &made) &&
           add_type(module, &chunk_spec, cache_type, &made) &&
           add_type(module, &streaming_spec, cache_type, &made) && call_at_exit();
}
