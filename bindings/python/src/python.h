/* python.h - what the parts of the Python module share.
 *
 *     module.c    the module, its exceptions and constants
 *     args.c      arguments by place and by name, numbers with their limits
 *     ints.c      token ids and slots, from and to whatever holds int32 or int64
 *     array.c     Array: memory of the library, for numpy and torch without a copy
 *     handle.c    who may call what: owner threads, reentrancy, forks, what is closed
 *     record.c    structs of the library as named tuples
 *     kv_allocator.c  KVAllocator
 *     req_to_token_pool.c  ReqToTokenPool
 *     state_pool.c  StatePool
 *     kv_pool.c   TokenToKVPool
 *     kv_pool_create.c  how one is made: params, the caller's memory and scales
 *     host_kv_pool.c  HostKVPool
 *     cuda_device.c  CudaDevice
 *     cache.c     what all caches have: entering and leaving, the end, sizes
 *     create.c    RadixCache, ChunkCache, StreamingCache: params, callbacks
 *     match.c     Match, and the calls that give one
 *     insert.c    insert, evict, take_freed
 *     lock.c      Lock
 *     match_handle.c  MatchHandle
 *     row.c       publish_row, for engines whose requests and rows are Python's
 *     request.c   Request
 *     request_calls.c  what an engine does with one: admit, extend, publish, end
 *     sessions.c  sessions of a cache
 *     ownership.c  check_ownership and report_ownership, of all requests
 *     look.c      what a cache holds, and why: walks, dumps, explanations
 *     kv_events.c  what entered and left
 *     page_hash.c  the hashes of pages, with a cache and without
 *     retention.c  pins, priorities
 *     tiers.c     HiRadixCache's own calls
 *     storage.c   storage backends written in Python
 *
 * The module uses Python's limited API of 3.11 and nothing else, so one file serves that version
 * and all later ones. 3.11 is the first whose stable ABI has the buffer protocol (arrays come in
 * and go out by it) and the second whose stable ABI has METH_FASTCALL (without it a call takes
 * twice the time). The module may be loaded by one interpreter of a process: it keeps its types
 * and exceptions in globals.
 *
 * The interpreter's lock is what guards globals and objects. What takes long runs without it; the
 * objects in use are marked busy then (handle.c), so that nobody else gets into them. */
#ifndef RADISH_PYTHON_H
#define RADISH_PYTHON_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <structmember.h>

#include <radish/radish.h>

#include <stdbool.h>
#include <stdlib.h>

/* The limited API's functions take a PyObject and nothing derived from it. */
#define INCREF(object)  Py_INCREF((PyObject *)(object))
#define DECREF(object)  Py_DECREF((PyObject *)(object))
#define XDECREF(object) Py_XDECREF((PyObject *)(object))

#define COUNT_OF(a) (sizeof(a) / sizeof *(a))

/* ---- module.c ---- */

extern PyObject *error_class; /* radish.Error */

/* Raises what stands for a negative status, with the words in `err`, or, where the call has none,
 * with `what`. Returns NULL. A pending exception of a callback goes before. */
PyObject *raise_status(rad_status status, const rad_error *err, const char *what);

/* The env that objects are made with: messages go to the logging module's logger "radish". */
const rad_env *module_env(void);

bool add_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base, PyTypeObject **out);

/* Each part adds its types; an exception is set where one answers false. */
bool array_init(PyObject *module);
bool kv_allocator_init(PyObject *module);
bool req_to_token_pool_init(PyObject *module);
bool state_pool_init(PyObject *module);
bool cuda_device_init(PyObject *module);
bool kv_pool_init(PyObject *module);
bool host_kv_pool_init(PyObject *module); /* after kv_pool_init */
bool cache_init(PyObject *module);
bool create_init(PyObject *module); /* after cache_init */
bool match_init(PyObject *module);
bool insert_init(PyObject *module);
bool lock_init(PyObject *module);
bool match_handle_init(PyObject *module);
bool request_init(PyObject *module);
bool sessions_init(PyObject *module);
bool look_init(PyObject *module);
bool kv_events_init(PyObject *module);
bool page_hash_init(PyObject *module);
bool storage_init(PyObject *module);

/* ---- args.c ---- */

typedef PyObject *const *fast_args;

enum { MOST_ARGS = 14 };

/* A call's arguments: the first `positional` by place or name, the others by name only. */
typedef struct signature {
    const char *call;
    int required, positional;
    const char *names[MOST_ARGS + 1]; /* NULL behind the last */
    PyObject *interned[MOST_ARGS];
} signature;

/* out[i] is names[i]'s, NULL where it is absent. All are borrowed. */
bool args_read(signature *s, fast_args args, Py_ssize_t nargs, PyObject *kwnames, PyObject **out);

/* Numbers in their limits; OverflowError or TypeError in words that name the argument. An absent
 * one (NULL) leaves *out. */
bool arg_u32(PyObject *value, const char *name, uint32_t *out);
bool arg_u64(PyObject *value, const char *name, uint64_t *out);
bool arg_i32(PyObject *value, const char *name, int32_t *out);
bool arg_flag(PyObject *value, uint32_t *out);
/* A text without a zero byte, None for NULL. It lives as long as `value`. */
bool arg_name(PyObject *value, const char *name, const char **out);
bool arg_ref(PyObject *value, const char *name, rad_ref *out); /* a node, as node_new makes it */
PyObject *node_new(rad_ref node);

/* One of a constructor's arguments: a member of a params struct, or (P_OBJECT) an entry of an array
 * of borrowed objects, by its number. */
typedef enum param_kind {
    P_U32,
    P_U64,
    P_I32,
    P_F64,
    P_SIZE,
    P_FLAG,
    P_TEXT,
    P_NAME,
    P_OBJECT
} param_kind;
typedef struct param {
    const char *name;
    param_kind kind;
    size_t at;
    const char *const *names; /* P_NAME: what stands for 0, 1, ...; NULL at the end */
} param;
/* `table` ends with a name of NULL; the first `positional` may come by place, the first `required`
 * must come. None is as good as absent, except for a flag. Keywords that `others` names (a table
 * too, or NULL) are left alone. */
bool params_read(const char *noun, PyObject *args, PyObject *kwargs, const param *table,
                 int required, int positional, const param *others, void *params,
                 PyObject **objects);

#define FAST(name, function, text)                                                                 \
    {                                                                                              \
        name, (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, text           \
    }

/* ---- ints.c ---- */

/* Integers that a caller handed over. `data` points to the caller's own memory when that holds
 * int32, else to a copy. Must be given back, whatever happened behind a true answer. */
typedef struct ints_in {
    const int32_t *data;
    Py_ssize_t count;
    Py_buffer view;
    PyObject *keeps; /* a tensor or capsule whose memory it is */
    int32_t *copy;
    bool viewed;
    int32_t few[32];
} ints_in;

typedef enum ints_what { INTS_TOKENS, INTS_SLOTS, INTS_LENGTHS } ints_what;

/* Tokens and lengths below zero are refused; slots are the library's to judge. */
bool ints_take(PyObject *from, const char *name, ints_what what, ints_in *in);
void ints_give_back(ints_in *in);

/* Where integers go: an array of the caller's (numpy, torch, array, Array; int32 or int64), or
 * "int32" (NULL, too) or "int64" for a new one. `data` is the caller's own memory when that holds
 * int32. */
typedef struct ints_out {
    int32_t *data; /* room for `room` */
    Py_ssize_t room;
    void *wide; /* the caller's memory when it holds int64 */
    Py_buffer view;
    PyObject *keeps;
    PyObject *fresh; /* the Array that is made */
    int32_t *copy;
    bool viewed, is_fresh, fresh_wide;
    int32_t few[32];
} ints_out;

/* `room` is what the call may write at most: a caller's array must have it. */
bool ints_place(PyObject *into, const char *name, Py_ssize_t room, ints_out *out);
/* The first `count` are written: widens them where needed. A new reference to what the caller sees:
 * its own object, or a new Array of `count`. */
PyObject *ints_done(ints_out *out, PyObject *into, Py_ssize_t count);
void ints_drop(ints_out *out); /* on an error, instead */
/* One of these two by the status of what wrote them: None where that is RAD_FULL, else an exception
 * as raise_status makes it. */
PyObject *ints_told(ints_out *out, PyObject *into, Py_ssize_t count, rad_status status,
                    const rad_error *err, const char *what);
PyObject *arg_into(PyObject *into); /* NULL for None */

/* Row `index` of a matrix of int32 in the host's memory (numpy, torch, Array), which is read and
 * written where it lies. */
typedef struct ints_row {
    int32_t *data;
    Py_buffer view;
    PyObject *keeps;
} ints_row;
/* It must have `count` columns. Given back by ints_row_end, if true. */
bool ints_row_begin(PyObject *matrix, PyObject *index, Py_ssize_t count, ints_row *row);
void ints_row_end(ints_row *row);
/* A new Array of these, "int64" or "int32" as `wide` says; NULL with an exception. */
PyObject *ints_array(const int32_t *from, Py_ssize_t count, bool wide);
PyObject *ints_of_pages(const rad_page *pages, Py_ssize_t count, uint32_t page_size, bool wide);
bool arg_wide(PyObject *dtype); /* whether it is "int64"; anything else, and NULL: int32 */

/* ---- array.c ---- */

typedef enum element { E_I32, E_I64, E_U8, E_I8, E_U16, E_F16, E_F32, E_U32 } element;

typedef struct array array;
/* New memory of its own, zeroed or not as it comes. */
PyObject *array_new(element e, Py_ssize_t count, void **data);
/* The same numbers in other dimensions: of a new Array, before anybody has it. */
PyObject *array_shaped(PyObject *fresh, int ndim, const Py_ssize_t *shape);
/* A view of memory of `keeper`, which is kept, and cannot be closed while the view is there. */
PyObject *array_view(PyObject *keeper, element e, void *data, int ndim, const Py_ssize_t *shape,
                     const Py_ssize_t *strides, bool readonly);

/* Contiguous memory that a caller handed over, as bytes. */
typedef struct bytes_in {
    void *data;
    size_t bytes;
    Py_ssize_t item; /* bytes of an element; 0: not known */
    char kind;       /* 'f', 'i', 'u', '?' not known */
    Py_buffer view;
    PyObject *keeps;
    bool viewed;
} bytes_in;
/* on_device: memory of a device may come, by data_ptr() or __cuda_array_interface__. */
bool bytes_take(PyObject *from, const char *name, bool writable, bool on_device, bytes_in *in);
void bytes_give_back(bytes_in *in);

/* ---- handle.c ---- */

/* Objects that were made for each other are one realm: one thread calls them. */
typedef struct realm realm;

/* How every object of the library begins. */
typedef struct handle {
    PyObject_HEAD realm *home;
    uint32_t users; /* objects and views that need it */
    bool closed;
    const char *noun; /* "KVAllocator" */
} handle;

bool handle_init(handle *h, const char *noun); /* a realm of its own, this thread's */
bool handle_join(handle *h, handle *other);    /* the two realms become one */
void handle_fini(handle *h);
bool handle_enter(handle *h, const char *call); /* or an exception in words */
void handle_leave(handle *h);
bool handle_is_foreign(const handle *h); /* of the process that forked this one */
bool handle_is_busy(const handle *h);    /* a call is under way, of whatever thread */
bool handle_is_free(const handle *h);    /* this thread's, and nothing under way */
/* Whether an argument, NULL too, is one of this type that is open, or an exception: `noun` is the
 * type's name with its article. */
bool handle_is_open(PyObject *value, PyTypeObject *type, const char *name, const char *noun);
/* Into *place, and counts as its user; NULL too. The other gives that back and clears it. */
void handle_use(void *place, PyObject *what);
void handle_unuse(void *place);
void handle_free(PyObject *self); /* the end of a dealloc */
/* Gives back what an object has, and is called for a half-made one and for a closed one, too. */
typedef void handle_end(PyObject *self);
void handle_gone(PyObject *self, handle_end *end);       /* all of a dealloc */
PyObject *handle_close(PyObject *self, handle_end *end); /* refused while it has users */
PyObject *handle_closed(PyObject *self, void *closure);
#define HANDLE_CLOSED                                                                              \
    {                                                                                              \
        "closed", handle_closed, NULL, "Whether close() was called.", NULL                         \
    }
PyObject *handle_take_over(PyObject *self, PyObject *none);
PyObject *call_itself(PyObject *self, PyObject *none); /* any object's __enter__ */

/* What KVAllocator, ReqToTokenPool and StatePool have besides; they are contexts, too. */
#define HANDLE_CALLS(close)                                                                        \
    {"close", close, METH_NOARGS,                                                                  \
     "close() -> None\n\nGives its memory back. Refused while a cache, a pool or an Array uses "   \
     "it."},                                                                                       \
        {"take_over", handle_take_over, METH_NOARGS,                                               \
         "take_over() -> None\n\nMakes the calling thread the owner of this and of all that "      \
         "works "                                                                                  \
         "with it."},                                                                              \
        {"__enter__", call_itself, METH_NOARGS, NULL},                                             \
    {                                                                                              \
        "__exit__", close##_at_exit, METH_VARARGS, NULL                                            \
    }
/* TokenToKVPool, HostKVPool and CudaDevice. */
#define CLOSE_CALLS(close)                                                                         \
    {"close", close, METH_NOARGS, "close() -> None\n\nGives its memory back."},                    \
    {                                                                                              \
        "take_over", handle_take_over, METH_NOARGS,                                                \
            "take_over() -> None\n\nMakes the calling thread the owner."                           \
    }

/* Calls `expression` without the interpreter's lock. */
#define WITHOUT_GIL(expression)                                                                    \
    do {                                                                                           \
        PyThreadState *saved_state_ = PyEval_SaveThread();                                         \
        expression;                                                                                \
        PyEval_RestoreThread(saved_state_);                                                        \
    } while (0)
/* The same where `when` says that it takes long. */
#define LONG_CALL(when, expression)                                                                \
    do {                                                                                           \
        if (when) {                                                                                \
            WITHOUT_GIL(expression);                                                               \
        } else {                                                                                   \
            expression;                                                                            \
        }                                                                                          \
    } while (0)
enum { LONG_TOKENS = 65536 }; /* some 10 us of work, as much as giving the lock away may cost */

/* ---- record.c ---- */

typedef enum field_kind {
    F_U32,
    F_U64,
    F_I32,
    F_I64,
    F_F64,
    F_SIZE,
    F_FLAG,
    F_REF,
    F_TEXT,
    F_NAME
} field_kind;
typedef struct record_field {
    const char *name;
    field_kind kind;
    size_t offset;
    const char *const *names; /* F_NAME: of a uint32 */
    const char *doc;
} record_field;
/* A named tuple type; `fields` ends with a name of NULL. `extra` fields come behind, set by hand.
 */
PyTypeObject *record_type(PyObject *module, const char *name, const char *doc,
                          const record_field *fields, const char *const *extra);
PyObject *record_new(PyTypeObject *type, const record_field *fields, const void *from);
void record_set(PyObject *record, const record_field *fields, int extra, PyObject *value);

/* ---- kv_allocator.c, req_to_token_pool.c, state_pool.c, the pools of K/V, cuda_device.c ---- */

typedef struct kv_object {
    handle h;
    rad_kv_allocator *kv;
} kv_object;
typedef struct rows_object {
    handle h;
    rad_req_to_token_pool *rows;
} rows_object;
typedef struct state_object {
    handle h;
    rad_state_pool *pool;
    PyObject *device;
    bytes_in given;
} state_object;
typedef struct kv_pool_object {
    handle h;
    rad_token_to_kv_pool *pool;
    PyObject *device, *buffers;
    bytes_in *given;
    uint32_t num_given;
} kv_pool_object;
typedef struct host_pool_object {
    handle h;
    rad_host_kv_pool *pool;
    kv_pool_object *device_pool;
    PyObject *device;
} host_pool_object;
typedef struct device_object {
    handle h;
    rad_device *device;
} device_object;
extern PyTypeObject *kv_type, *rows_type, *state_type, *kv_pool_type, *host_pool_type, *device_type;
extern const char *const dtype_names[]; /* by rad_dtype, NULL at the end */
extern const char *const kind_names[];  /* by rad_kv_kind, as well */
/* kv_pool_create.c: TokenToKVPool() and TokenToKVPool.mla() */
PyObject *kv_pool_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);
PyObject *kv_pool_mla(PyObject *type, PyObject *args, PyObject *kwargs);
bool name_to_number(PyObject *value, const char *what, const char *const *names, uint32_t *out);

/* ---- cache.c ---- */

typedef struct left_over left_over;

typedef struct cache_object {
    handle h;
    rad_cache *cache;
    kv_object *kv;
    rows_object *rows;
    state_object *states, *host_states;
    host_pool_object *host_pool, *window_host_pool;
    struct cache_object *inner; /* a StreamingCache's; its callbacks are called */
    PyObject *evict_key, *copy_slots, *free_list, *storage;
    rad_page *freed; /* collected for take_freed */
    uint32_t num_freed, most_freed;
    uint32_t page_size, num_out; /* locks and requests that hold something of it */
    bool is_eagle, collects, has_threads;
    bool has_receipts;                 /* its locks differ: windows, states */
    PyObject *raised[3];               /* by a callback, for when the call has ended */
    left_over *left_over;              /* locks and requests that were dropped at a bad time */
    struct cache_object *next, **link; /* all that have threads, for the interpreter's exit */
} cache_object;
extern PyTypeObject *cache_type, *hiradix_type;

bool cache_enter(cache_object *c, const char *call);
/* False when a callback raised: then that is the exception. */
bool cache_leave(cache_object *c);
void cache_note_raised(cache_object *c); /* keeps the exception that is set */
/* Itself, or what a StreamingCache wraps: whose the callbacks are. */
cache_object *cache_base(cache_object *c);

/* For an object that goes, at whatever moment: enters if that can be done now, and keeps the
 * exception that may be set. */
typedef struct parting {
    PyObject *raised[3];
} parting;
bool cache_part(cache_object *c, parting *p);
void cache_parted(cache_object *c, parting *p);
/* Where cache_part says no: given back by the next call that enters. False: no memory. The
 * request's takes all that it is given. */
bool cache_leave_lock(cache_object *c, const rad_receipt *receipt);
bool cache_leave_request(cache_object *c, const rad_req_kv *req, int32_t *tokens,
                         PyObject *extra_key, PyObject *cache_salt);

/* Its calls, by file; each table ends with NULL. */
extern PyMethodDef match_calls[], insert_calls[], lock_calls[], match_handle_calls[], row_calls[],
    request_calls[], session_calls[], ownership_calls[], look_calls[], event_calls[],
    hash_calls[], retention_calls[];

/* ---- create.c ---- */

/* A cache's own part of a constructor's arguments; `others` is the table of what is not its own.
 * Takes references, which cache_end gives back. `list` must live until the cache is made. */
cache_object *cache_begin(PyTypeObject *type, const char *noun);
bool cache_params_read(cache_object *c, PyObject *args, PyObject *kwargs, const param *others,
                       rad_cache_params *params, rad_free_list *list);
/* An object that the cache works with, of this type, to *place; NULL: none. */
bool cache_takes_part(cache_object *c, void *place, PyObject *value, PyTypeObject *type,
                      const char *name);
const param *cache_params_table(void);
void cache_with_threads(cache_object *c);

/* ---- match.c ---- */

/* The words of a key. */
bool key_words(PyObject *extra_key, PyObject *cache_salt, PyObject *session, rad_key *key);
/* Takes tokens into `in` and makes the key. */
bool key_take(PyObject *tokens, PyObject *extra_key, PyObject *cache_salt, PyObject *session,
              ints_in *in, rad_key *key);

PyObject *match_new(const rad_match *match, PyObject *slots); /* takes the reference to slots */
const rad_match *match_of(PyObject *match);                   /* NULL with an exception */

/* ---- lock.c ---- */

/* Takes the receipt: without memory the lock is given back. */
PyObject *lock_new(cache_object *c, rad_receipt *receipt);
/* Locks that are counted by node, without an object: of caches without windows and states. */
rad_status node_lock(cache_object *c, rad_ref node, int64_t *change, rad_error *err);
rad_status node_unlock(cache_object *c, rad_ref node, int64_t *change, rad_error *err);

/* ---- insert.c ---- */

/* a: tokens, slots, extra_key, cache_salt, priority, chunked, window_from, session. From the
 * handle's end on where `at` is not NULL. */
PyObject *cache_insert(cache_object *c, PyObject *const *a, rad_match_handle *at);

/* ---- request.c ---- */

typedef struct request_object {
    PyObject_HEAD rad_req_kv kv;
    cache_object *cache; /* where it has a row or a lock, else NULL */
    int32_t *tokens;
    uint32_t room;
    bool busy; /* a call reads it, maybe without the interpreter's lock */
    PyObject *extra_key, *cache_salt;
} request_object;
extern PyTypeObject *request_type;
/* The request of a call on `c`, or an exception. */
request_object *request_of(cache_object *c, PyObject *arg, const char *call);
bool request_is_live(const request_object *r); /* it has a row, a lock or a state */
/* Enters for a call with this request, or NULL, of request_of. It is busy until request_leave: so
 * callbacks find it, and other threads while the interpreter's lock is given away. */
bool request_enter(cache_object *c, request_object *r, const char *call);
bool request_leave(cache_object *c, request_object *r); /* as cache_leave */

/* ---- look.c ---- */

extern const char *const match_ends[];                      /* by rad_match_end */
PyObject *eviction_new(const rad_eviction *e, bool is_one); /* None where there was none */

/* ---- page_hash.c ---- */

void page_hash_at_exit(void);

/* ---- tiers.c, storage.c ---- */

bool tiers_init(PyObject *module);
/* The table of a backend, an object of Python's, which it wraps. A new reference to what must live
 * as long as it is used. */
PyObject *storage_of(PyObject *backend, rad_storage *storage);

#endif
