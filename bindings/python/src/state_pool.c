/* state_pool.c - StatePool: memory for recurrent states. */
#include "python.h"

PyTypeObject *state_type;

enum { STATE_DEVICE, STATE_MEMORY, STATE_OBJECTS };

static const param state_params[] = {
    {"state_bytes", P_SIZE, offsetof(rad_state_pool_params, state_bytes), NULL},
    {"num_states", P_U32, offsetof(rad_state_pool_params, num_states), NULL},
    {"on_host", P_FLAG, offsetof(rad_state_pool_params, on_host), NULL},
    {"device", P_OBJECT, STATE_DEVICE, NULL},
    {"memory", P_OBJECT, STATE_MEMORY, NULL},
    {0},
};

static PyObject *state_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    rad_state_pool_params p = {.struct_size = sizeof p};
    PyObject *with[STATE_OBJECTS] = {0};
    if (!params_read("StatePool", args, kwargs, state_params, 2, 2, NULL, &p, with)) return NULL;
    if (!handle_is_open(with[STATE_DEVICE], device_type, "device", "a CudaDevice")) return NULL;
    state_object *s = (state_object *)PyType_GenericAlloc(type, 0);
    if (!s || !handle_init(&s->h, "StatePool")) goto fail;
    if (with[STATE_DEVICE]) {
        handle_use(&s->device, with[STATE_DEVICE]);
        p.device = ((device_object *)s->device)->device;
    }
    if (with[STATE_MEMORY]) {
        if (!bytes_take(with[STATE_MEMORY], "memory", true, p.device != NULL, &s->given)) goto fail;
        size_t each = (p.state_bytes + 63) / 64 * 64;
        if (s->given.bytes / (each ? each : 1) < (uint64_t)p.num_states + 1) {
            PyErr_Format(PyExc_ValueError,
                         "StatePool(): memory has %zu bytes; %u states and the one of zeros take "
                         "%zu each",
                         s->given.bytes, p.num_states, each);
            goto fail;
        }
        p.memory = s->given.data;
    }
    rad_error err;
    rad_status status = rad_state_pool_create(module_env(), &p, &s->pool, &err);
    if (status == RAD_OK) return (PyObject *)s;
    raise_status(status, &err, NULL);
fail:
    XDECREF(s);
    return NULL;
}

static void state_end(PyObject *self)
{
    state_object *s = (state_object *)self;
    rad_state_pool_destroy(s->pool);
    s->pool = NULL;
    bytes_give_back(&s->given);
    handle_unuse(&s->device);
}

static void state_dealloc(PyObject *self)
{
    handle_gone(self, state_end);
}

static PyObject *state_close(PyObject *self, PyObject *none)
{
    (void)none;
    return handle_close(self, state_end);
}

static PyObject *state_close_at_exit(PyObject *self, PyObject *args)
{
    return state_close(self, args);
}

static PyObject *state_alloc(PyObject *self, PyObject *none)
{
    (void)none;
    state_object *s = (state_object *)self;
    if (!handle_enter(&s->h, "alloc")) return NULL;
    rad_state state = 0;
    rad_status status = rad_state_alloc(s->pool, &state);
    handle_leave(&s->h);
    if (status) Py_RETURN_NONE;
    return PyLong_FromLong(state);
}

static PyObject *state_free(PyObject *self, PyObject *arg)
{
    state_object *s = (state_object *)self;
    int32_t state = 0;
    if (!arg_i32(arg, "state", &state) || !handle_enter(&s->h, "free")) return NULL;
    rad_status status = rad_state_free(s->pool, state);
    handle_leave(&s->h);
    if (status) return raise_status(status, NULL, "StatePool.free: the state is not handed out");
    Py_RETURN_NONE;
}

static PyObject *state_copy(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature sig = {"copy", 2, 2, {"source", "target"}, {0}};
    state_object *s = (state_object *)self;
    PyObject *a[2];
    int32_t from = 0, to = 0;
    if (!args_read(&sig, args, nargs, kwnames, a) || !arg_i32(a[0], "source", &from) ||
        !arg_i32(a[1], "target", &to) || !handle_enter(&s->h, "copy"))
        return NULL;
    rad_status status;
    WITHOUT_GIL(status = rad_state_copy(s->pool, from, to));
    handle_leave(&s->h);
    if (status)
        return raise_status(status, NULL,
                            status == RAD_E_IO
                                ? "StatePool.copy: the device failed"
                                : "StatePool.copy: one of them is not the pool's, or "
                                  "the target is 0");
    Py_RETURN_NONE;
}

static PyObject *state_address(PyObject *self, PyObject *arg)
{
    state_object *s = (state_object *)self;
    int32_t state = 0;
    if (!arg_i32(arg, "state", &state) || !handle_enter(&s->h, "address")) return NULL;
    void *memory = rad_state_address(s->pool, state);
    handle_leave(&s->h);
    if (memory) return PyLong_FromVoidPtr(memory);
    PyErr_Format(PyExc_IndexError, "StatePool.address: there is no state %d", state);
    return NULL;
}

static PyObject *state_view(PyObject *self, PyObject *arg)
{
    state_object *s = (state_object *)self;
    int32_t state = 0;
    if (!arg_i32(arg, "state", &state) || !handle_enter(&s->h, "view")) return NULL;
    void *memory = rad_state_address(s->pool, state);
    Py_ssize_t shape = (Py_ssize_t)rad_state_bytes(s->pool), stride = 1;
    handle_leave(&s->h);
    if (s->device) {
        PyErr_SetString(PyExc_TypeError, "StatePool.view: the memory is a device's: use address()");
        return NULL;
    }
    if (memory) return array_view(self, E_U8, memory, 1, &shape, &stride, state == 0);
    PyErr_Format(PyExc_IndexError, "StatePool.view: there is no state %d", state);
    return NULL;
}

static PyObject *state_is_taken(PyObject *self, PyObject *arg)
{
    state_object *s = (state_object *)self;
    int32_t state = 0;
    if (!arg_i32(arg, "state", &state) || !handle_enter(&s->h, "is_taken")) return NULL;
    int answer = rad_state_is_taken(s->pool, state);
    handle_leave(&s->h);
    return PyBool_FromLong(answer);
}

static PyObject *state_check(PyObject *self, PyObject *none)
{
    (void)none;
    state_object *s = (state_object *)self;
    if (!handle_enter(&s->h, "check")) return NULL;
    rad_error err;
    rad_status status = rad_state_pool_check(s->pool, &err);
    handle_leave(&s->h);
    if (status) return raise_status(status, &err, "StatePool.check");
    Py_RETURN_NONE;
}

static PyObject *state_get(PyObject *self, void *what)
{
    state_object *s = (state_object *)self;
    if (!handle_enter(&s->h, "a property")) return NULL;
    size_t n = !what                 ? rad_state_pool_num_states(s->pool)
               : (intptr_t)what == 1 ? rad_state_available(s->pool)
                                     : rad_state_bytes(s->pool);
    handle_leave(&s->h);
    return PyLong_FromSize_t(n);
}

static PyMethodDef state_methods[] = {
    {"alloc", state_alloc, METH_NOARGS,
     "alloc() -> int | None\n\nA state, whose content is undefined; None: all are out."},
    {"free", state_free, METH_O, "free(state) -> None"},
    FAST("copy", state_copy, "copy(source, target) -> None\n\nFrom 0 it is the beginning: zeros."),
    {"address", state_address, METH_O,
     "address(state) -> int\n\nWhere it lies, in the device's words; good as long as the pool."},
    {"view", state_view, METH_O,
     "view(state) -> Array\n\nIts bytes where they are, in host memory; of state 0 read-only."},
    {"is_taken", state_is_taken, METH_O, "is_taken(state) -> bool"},
    {"check", state_check, METH_NOARGS, "check() -> None"},
    HANDLE_CALLS(state_close),
    {0},
};

static PyGetSetDef state_getters[] = {
    {"num_states", state_get, NULL, "States to hand out.", (void *)0},
    {"available", state_get, NULL, "Those that are free.", (void *)1},
    {"state_bytes", state_get, NULL, "Bytes of one, a multiple of 64.", (void *)2},
    HANDLE_CLOSED,
    {0},
};

static PyType_Slot state_slots[] = {
    {Py_tp_doc, "StatePool(state_bytes, num_states, *, on_host=False, device=None, memory=None)\n\n"
                "Memory for what recurrent layers carry from token to token. State 0 is the "
                "beginning of every text: zeros."},
    {Py_tp_new, state_new},
    {Py_tp_dealloc, state_dealloc},
    {Py_tp_methods, state_methods},
    {Py_tp_getset, state_getters},
    {0},
};
static PyType_Spec state_spec = {"radish.StatePool", sizeof(state_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, state_slots};

bool state_pool_init(PyObject *module)
{
    return add_type(module, &state_spec, NULL, &state_type);
}
