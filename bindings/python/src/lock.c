/* lock.c - Lock: keeps a node and its path from being evicted, and gives that back when it goes. */
#include "python.h"

static PyTypeObject *lock_type;

typedef struct lock_object {
    PyObject_HEAD cache_object *cache;
    rad_receipt receipt;
} lock_object;

PyObject *lock_new(cache_object *c, rad_receipt *receipt)
{
    lock_object *l = (lock_object *)PyType_GenericAlloc(lock_type, 0);
    if (!l) {
        rad_cache_dec_lock_ref(c->cache, receipt, NULL);
        return NULL;
    }
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
            cache_leave_lock(c, &l->receipt);
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

static PyObject *lock_release_window(PyObject *self, PyObject *args)
{
    lock_object *l = (lock_object *)self;
    PyObject *given = NULL;
    uint32_t upto = UINT32_MAX;
    if (!PyArg_ParseTuple(args, "|O:release_window", &given)) return NULL;
    if (given && !arg_u32(given, "upto", &upto)) return NULL;
    if (!cache_enter(l->cache, "release_window")) return NULL;
    rad_error err;
    rad_status status = rad_cache_release_lock_window(l->cache->cache, &l->receipt, upto, &err);
    if (!cache_leave(l->cache)) return NULL;
    if (status) return raise_status(status, &err, "release_window");
    Py_RETURN_NONE;
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
    {"release_window", lock_release_window, METH_VARARGS,
     "release_window(upto=all)\n\nNo token to come looks before position upto with a window layer: "
     "from there on the window side stays held, and the path as it was."},
    {"__enter__", call_itself, METH_NOARGS, NULL},
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
    return lock_new(c, &receipt);
}

static PyObject *call_unlock(PyObject *self, PyObject *lock)
{
    if (Py_TYPE(lock) == lock_type) return unlock((cache_object *)self, (lock_object *)lock);
    PyErr_SetString(PyExc_TypeError, "dec_lock_ref() takes the Lock that inc_lock_ref() gave");
    return NULL;
}

/* ---- locks by node ---- */

rad_status node_lock(cache_object *c, rad_ref node, int64_t *change, rad_error *err)
{
    rad_receipt receipt = {0};
    if (c->has_receipts)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "a cache with windows or states needs a Lock: inc_lock_ref");
    rad_status status = rad_cache_inc_lock_ref(c->cache, node, &receipt, err);
    *change = receipt.evictable_change;
    if (status == RAD_OK) c->num_out++;
    return status;
}

rad_status node_unlock(cache_object *c, rad_ref node, int64_t *change, rad_error *err)
{
    /* Receipts of one node are alike where there are no windows and no states. */
    rad_receipt receipt = {.node = node, .held = 1};
    rad_status status = rad_cache_dec_lock_ref(c->cache, &receipt, err);
    *change = receipt.evictable_change;
    if (status == RAD_OK && c->num_out) c->num_out--;
    return status;
}

static PyObject *by_node(PyObject *self, PyObject *node_arg, const char *call,
                         rad_status (*f)(cache_object *, rad_ref, int64_t *, rad_error *))
{
    cache_object *c = (cache_object *)self;
    rad_ref node;
    int64_t change;
    rad_error err;
    if (!arg_ref(node_arg, "node", &node) || !cache_enter(c, call)) return NULL;
    rad_status status = f(c, node, &change, &err);
    if (!cache_leave(c)) return NULL;
    if (status) return raise_status(status, &err, call);
    return PyLong_FromLongLong(change);
}

static PyObject *call_lock_node(PyObject *self, PyObject *node)
{
    return by_node(self, node, "lock_node", node_lock);
}

static PyObject *call_unlock_node(PyObject *self, PyObject *node)
{
    return by_node(self, node, "unlock_node", node_unlock);
}

PyMethodDef lock_calls[] = {
    {"lock_node", call_lock_node, METH_O,
     "lock_node(node) -> int\n\nLocks like inc_lock_ref, for engines that keep no Lock: whoever "
     "knows the node may give one back. What it added to evictable_size. Not with windows or "
     "states."},
    {"unlock_node", call_unlock_node, METH_O,
     "unlock_node(node) -> int\n\nGives one of lock_node's back. StateError: it has none."},
    {"inc_lock_ref", call_lock, METH_O,
     "inc_lock_ref(node) -> Lock\n\nKeeps the node and its path from being evicted."},
    {"dec_lock_ref", call_unlock, METH_O, "dec_lock_ref(lock) -> int\n\nAs lock.release()."},
    {0},
};

bool lock_init(PyObject *module)
{
    return add_type(module, &lock_spec, NULL, &lock_type);
}
