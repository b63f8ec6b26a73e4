/* create.c - making a cache: its params, the objects it works with, the callbacks into Python.
 *
 *     RadixCache       a tree
 *     ChunkCache       the same interface without reuse
 *     StreamingCache   takes another one's rad_cache over
 *
 * HiRadixCache is in tiers.c; it reads its own params and has the rest read here. */
#include "python.h"

#include <string.h>

static PyTypeObject *facts_type;

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

bool cache_takes_part(cache_object *c, void *place, PyObject *value, PyTypeObject *type,
                      const char *name)
{
    if (!value) return true;
    if (!PyObject_TypeCheck(value, type)) {
        PyErr_Format(PyExc_TypeError, "%s(): %s must be a %R, not %R", c->h.noun, name, type,
                     (PyObject *)Py_TYPE(value));
        return false;
    }
    if (!handle_join(&c->h, (handle *)value)) return false;
    handle_use(place, value);
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
    if (!cache_takes_part(c, &c->kv, with[C_KV], kv_type, "kv_allocator") ||
        !cache_takes_part(c, &c->rows, with[C_ROWS], rows_type, "req_to_token_pool") ||
        !cache_takes_part(c, &c->states, with[C_STATES], state_type, "state_pool") ||
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
    c->has_receipts = c->states || p->window_tokens;
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
    handle_use(&c->inner, (PyObject *)inner);
    c->page_size = inner->page_size;
    c->is_eagle = inner->is_eagle;
    c->has_receipts = inner->has_receipts;
    if (inner->has_threads) cache_with_threads(c);
    return (PyObject *)c;
fail:
    XDECREF(c);
    return NULL;
}

/* ---- the types ---- */

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

bool create_init(PyObject *module)
{
    facts_type = record_type(module, "radish.EvictFacts", "What a policy is told of a leaf.",
                             facts_fields, NULL);
    PyTypeObject *made;
    return facts_type && add_type(module, &radix_spec, cache_type, &made) &&
           add_type(module, &chunk_spec, cache_type, &made) &&
           add_type(module, &streaming_spec, cache_type, &made);
}
