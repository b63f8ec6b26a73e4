/* cache.c - what all caches have: entering and leaving, the end, sizes.
 *
 *     Cache              not made itself
 *       RadixCache       create.c
 *       ChunkCache       create.c
 *       StreamingCache   create.c
 *       HiRadixCache     tiers.c
 *
 * Its calls are in other files, a table in each: python.h names them.
 *
 * An object of Python's may go at any moment and in any thread: the collector runs where it likes.
 * A lock or a request that goes while its cache cannot be entered waits in `left_over` for the next
 * call that enters. */
#include "python.h"

#include <string.h>

PyTypeObject *cache_type;

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

cache_object *cache_base(cache_object *c)
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
    cache_object *b = cache_base(c);
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

bool cache_leave_lock(cache_object *c, const rad_receipt *receipt)
{
    left_over *l = PyMem_Calloc(1, sizeof *l);
    if (!l) return false;
    l->next = c->left_over;
    l->receipt = *receipt;
    c->left_over = l;
    return true;
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
    handle_unuse(&c->inner);
    handle_unuse(&c->kv);
    handle_unuse(&c->rows);
    handle_unuse(&c->states);
    handle_unuse(&c->host_states);
    handle_unuse(&c->host_pool);
    handle_unuse(&c->window_host_pool);
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
    PyObject_GC_UnTrack(self);
    if (!handle_is_foreign(&c->h)) cache_end(c);
    handle_free(self);
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
    page_hash_at_exit();
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
    cache_object *c = cache_base((cache_object *)self);
    PyObject *part = *(PyObject **)(void *)((char *)c + (intptr_t)offset);
    if (!part) part = Py_None;
    INCREF(part);
    return part;
}

static PyMethodDef own_calls[] = {
    {"poll", call_poll, METH_NOARGS,
     "poll() -> None\n\nFinished transfers become visible: once a step."},
    {"reset", call_reset, METH_NOARGS, "reset() -> None\n\nForgets everything."},
    {"close", cache_close, METH_NOARGS,
     "close() -> None\n\nGives its memory back. Its locks, requests and handles are dead then. "
     "What it "
     "cached stays taken in its allocator: reset() before, where that goes on."},
    {"take_over", handle_take_over, METH_NOARGS,
     "take_over() -> None\n\nMakes the calling thread the owner of the cache, its allocator and "
     "its pools."},
    {"__enter__", call_itself, METH_NOARGS, NULL},
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
    HANDLE_CLOSED,
    {0},
};

enum { METHODS = 0 }; /* its place among the slots: the table is put together at the start */

static PyType_Slot slots[] = {
    [METHODS] = {Py_tp_methods, NULL},
    {Py_tp_doc,
     "What all caches have. Lengths are tokens (pairs under is_eagle). One thread owns a "
     "cache together with its allocator and pools: see take_over."},
    {Py_tp_dealloc, cache_dealloc},
    {Py_tp_traverse, cache_traverse},
    {Py_tp_clear, cache_clear},
    {Py_tp_members, members},
    {Py_tp_getset, getters},
    {0},
};
static PyType_Spec spec = {"radish.Cache", sizeof(cache_object), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
                               Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           slots};

/* The calls of all files in one table, as long as they are: the type refers to it ever after. */
static PyMethodDef *all_methods(void)
{
    static const PyMethodDef *const parts[] = {
        own_calls,       match_calls,        insert_calls, lock_calls,  request_calls,
        session_calls,   ownership_calls,    look_calls,   event_calls, hash_calls,
        retention_calls, match_handle_calls, row_calls};
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        for (const PyMethodDef *m = parts[i]; m->ml_name; m++)
            count++;
    PyMethodDef *all = PyMem_Calloc(count + 1, sizeof *all);
    if (!all) {
        PyErr_NoMemory();
        return NULL;
    }
    size_t at = 0;
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        for (const PyMethodDef *m = parts[i]; m->ml_name; m++)
            all[at++] = *m;
    return all;
}

bool cache_init(PyObject *module)
{
    slots[METHODS].pfunc = all_methods();
    return slots[METHODS].pfunc && add_type(module, &spec, NULL, &cache_type) && call_at_exit();
}
