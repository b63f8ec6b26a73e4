/* handle.c - who may call what: owner threads, reentrancy, forks, what is closed.
 *
 * Objects that work together (a cache, its allocator, its row pool) form a realm. One thread owns
 * a realm: the one that made the objects, until another one takes it over. A call enters the realm
 * and leaves it; between the two no other call may, whether it comes from a callback or from
 * another thread while the interpreter's lock is given away.
 *
 *     KVAllocator --+
 *     ReqToTokenPool+-- realm {owner, busy, forks}      joined when the cache is made: it has its
 *     RadixCache  --+                                   first part's, to which the others' point
 *
 * A child of a fork has copies of all objects, but neither the threads that move K/V nor a claim on
 * memory that the parent goes on using: there every call is refused, and nothing is destroyed. */
#include "python.h"

#include <pthread.h>

struct realm {
    unsigned long owner;
    const char *busy; /* the call that is under way */
    unsigned forks;
    uint32_t refs;
    realm *into; /* this realm is part of another now */
};

static unsigned forks; /* of this process's line since the module was loaded */

static void count_fork(void)
{
    forks++;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

static realm *root(const handle *h)
{
    realm *r = h->home;
    while (r->into)
        r = r->into;
    return r;
}

static void drop(realm *r)
{
    while (r && --r->refs == 0) {
        realm *into = r->into;
        PyMem_Free(r);
        r = into;
    }
}

bool handle_init(handle *h, const char *noun)
{
    pthread_once(&once, watch_forks);
    h->noun = noun;
    h->home = PyMem_Calloc(1, sizeof *h->home);
    if (!h->home) {
        PyErr_NoMemory();
        return false;
    }
    h->home->refs = 1;
    h->home->owner = PyThread_get_thread_ident();
    h->home->forks = forks;
    return true;
}

void handle_fini(handle *h)
{
    drop(h->home);
    h->home = NULL;
}

bool handle_is_foreign(const handle *h)
{
    return h->home && root(h)->forks != forks;
}

bool handle_is_busy(const handle *h)
{
    return h->home && root(h)->busy;
}

bool handle_is_free(const handle *h)
{
    const realm *r = root(h);
    return !h->closed && !r->busy && r->owner == PyThread_get_thread_ident() && r->forks == forks;
}

/* Why not, in words. */
static bool refuse(const handle *h, const char *call)
{
    if (h->closed) {
        PyErr_Format(error_class, "%s.%s: the %s is closed", h->noun, call, h->noun);
        return false;
    }
    const realm *r = root(h);
    if (r->forks != forks)
        PyErr_Format(error_class,
                     "%s.%s: the %s was made before this process was forked and is its parent's: "
                     "make another one here",
                     h->noun, call, h->noun);
    else if (r->owner != PyThread_get_thread_ident())
        PyErr_Format(error_class,
                     "%s.%s: the %s is thread %lu's and this is thread %lu: call it there, or "
                     "take_over() here first",
                     h->noun, call, h->noun, r->owner, PyThread_get_thread_ident());
    else
        PyErr_Format(error_class, "%s.%s: called from within %s, which has not ended", h->noun,
                     call, r->busy);
    return false;
}

bool handle_enter(handle *h, const char *call)
{
    if (h->home && !h->closed) {
        realm *r = root(h);
        if (r->owner == PyThread_get_thread_ident() && r->forks == forks && !r->busy) {
            r->busy = call;
            return true;
        }
    }
    if (h->home) return refuse(h, call);
    PyErr_Format(error_class, "%s: the object was never made: __init__ or __new__ was left out",
                 call);
    return false;
}

void handle_leave(handle *h)
{
    root(h)->busy = NULL;
}

bool handle_join(handle *h, handle *other)
{
    if (!handle_is_free(other)) return refuse(other, "use by another object");
    realm *into = root(h), *r = root(other);
    if (into == r) return true;
    if (h->home == into && into->refs == 1) { /* of an object being made: it joins the older realm,
                                               * or an allocator of many caches had a line of them */
        r->refs++;
        drop(into);
        h->home = r;
        return true;
    }
    r->into = into;
    into->refs++;
    return true;
}

static bool may_close(handle *h)
{
    if (!handle_enter(h, "close")) return false;
    if (!h->users) return true;
    handle_leave(h);
    PyErr_Format(error_class,
                 "%s.close: %u caches, pools or arrays still use it: close or drop these first",
                 h->noun, h->users);
    return false;
}

bool handle_is_open(PyObject *value, PyTypeObject *type, const char *name, const char *noun)
{
    if (!value) return true;
    if (!PyObject_TypeCheck(value, type))
        PyErr_Format(PyExc_TypeError, "%s must be %s, not %R", name, noun,
                     (PyObject *)Py_TYPE(value));
    else if (((handle *)value)->closed)
        PyErr_Format(error_class, "%s: the %s is closed", name, ((handle *)value)->noun);
    else
        return true;
    return false;
}

void handle_use(void *place, PyObject *what)
{
    *(PyObject **)place = what;
    if (!what) return;
    INCREF(what);
    ((handle *)what)->users++;
}

void handle_unuse(void *place)
{
    PyObject **at = place;
    if (*at) ((handle *)*at)->users--;
    Py_CLEAR(*at);
}

void handle_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    handle_fini((handle *)self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self); /* a class derived in Python has another */
    DECREF(type);
}

void handle_gone(PyObject *self, handle_end *end)
{
    if (!handle_is_foreign((handle *)self)) end(self);
    handle_free(self);
}

PyObject *handle_close(PyObject *self, handle_end *end)
{
    handle *h = (handle *)self;
    if (h->closed) Py_RETURN_NONE;
    if (!may_close(h)) return NULL;
    end(self);
    handle_leave(h);
    h->closed = true;
    Py_RETURN_NONE;
}

PyObject *handle_closed(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((handle *)self)->closed);
}

PyObject *call_itself(PyObject *self, PyObject *none)
{
    (void)none;
    INCREF(self);
    return self;
}

PyObject *handle_take_over(PyObject *self, PyObject *none)
{
    (void)none;
    handle *h = (handle *)self;
    realm *r = h->home ? root(h) : NULL;
    if (!r || h->closed || r->forks != forks || r->busy) {
        if (r) refuse(h, "take_over");
        return NULL;
    }
    r->owner = PyThread_get_thread_ident();
    Py_RETURN_NONE;
}
