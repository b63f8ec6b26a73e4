/* insert.c - what goes into the tree and what leaves it: insert, evict, take_freed. */
#include "python.h"

static PyTypeObject *inserted_type;

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

static bool same_count(const ints_in *tokens, uint32_t first, bool is_eagle, const ints_in *slots)
{
    Py_ssize_t positions = tokens->count - (is_eagle && tokens->count ? 1 : 0) - first;
    if (slots->count >= positions) return true;
    PyErr_Format(PyExc_ValueError, "slots: %zd of them for %zd positions", slots->count, positions);
    return false;
}

PyObject *cache_insert(cache_object *c, PyObject *const *a, rad_match_handle *at)
{
    ints_in tokens, slots;
    rad_key key;
    rad_insert_params p = {0};
    PyObject *result = NULL;
    if (!arg_i32(a[4], "priority", &p.priority) || !arg_flag(a[5], &p.chunked) ||
        !arg_u32(a[6], "window_from", &p.window_from) ||
        !key_take(a[0], a[2], a[3], a[7], &tokens, &key))
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
                result = record_new(inserted_type, inserted_fields, &inserted);
            }
        }
        ints_give_back(&slots);
    }
    ints_give_back(&tokens);
    return result;
}

static PyObject *call_insert(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"insert",
                          2,
                          2,
                          {"tokens", "slots", "extra_key", "cache_salt", "priority", "chunked",
                           "window_from", "session"},
                          {0}};
    PyObject *a[8];
    if (!args_read(&s, args, nargs, kwnames, a)) return NULL;
    return cache_insert((cache_object *)self, a, NULL);
}

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
    cache_object *c = (cache_object *)self, *b = cache_base(c);
    PyObject *a[2];
    uint32_t as_slots = 0;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_flag(a[1], &as_slots) ||
        !cache_enter(c, "take_freed"))
        return NULL;
    PyObject *result = NULL;
    if (!b->collects) {
        PyErr_SetString(error_class, "take_freed: the cache was not made with a number of pages "
                                     "as its free_list");
    } else {
        result = ints_of_pages(b->freed, b->num_freed, as_slots ? c->page_size : 1, arg_wide(a[0]));
        if (result) b->num_freed = 0;
    }
    if (cache_leave(c)) return result;
    XDECREF(result);
    return NULL;
}

PyMethodDef insert_calls[] = {
    FAST("insert", call_insert,
         "insert(tokens, slots, *, extra_key=None, cache_salt=None, priority=0, chunked=False, "
         "window_from=0, session=0) -> Inserted | None\n\nGives the slots to the tree, whole pages "
         "of them. "
         "Those before prefix_tokens stay the caller's. None: the metadata's limits leave no "
         "room."),
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
    {0},
};

bool insert_init(PyObject *module)
{
    inserted_type =
        record_type(module, "radish.Inserted", "What an insert did.", inserted_fields, NULL);
    return inserted_type != NULL;
}
