/* host_kv_pool.c - HostKVPool: the memory of a HiRadixCache's second tier. */
#include "python.h"

PyTypeObject *host_pool_type;

enum { HOST_DEVICE_POOL, HOST_DEVICE, HOST_OBJECTS };
static const char *const layouts[] = {"layer_first", "page_first", NULL};

static const param host_params[] = {
    {"device_pool", P_OBJECT, HOST_DEVICE_POOL, NULL},
    {"ratio", P_F64, offsetof(rad_host_kv_pool_params, ratio), NULL},
    {"bytes", P_U64, offsetof(rad_host_kv_pool_params, bytes), NULL},
    {"layout", P_NAME, offsetof(rad_host_kv_pool_params, layout), layouts},
    {"pinned", P_FLAG, offsetof(rad_host_kv_pool_params, pinned), NULL},
    {"device", P_OBJECT, HOST_DEVICE, NULL},
    {0},
};

static PyObject *host_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    rad_host_kv_pool_params p = {.struct_size = sizeof p};
    PyObject *with[HOST_OBJECTS] = {0};
    if (!params_read("HostKVPool", args, kwargs, host_params, 1, 2, NULL, &p, with)) return NULL;
    if (!with[HOST_DEVICE_POOL]) {
        PyErr_SetString(PyExc_TypeError, "HostKVPool(): device_pool must be a TokenToKVPool");
        return NULL;
    }
    if (!handle_is_open(with[HOST_DEVICE_POOL], kv_pool_type, "device_pool", "a TokenToKVPool") ||
        !handle_is_open(with[HOST_DEVICE], device_type, "device", "a CudaDevice"))
        return NULL;
    host_pool_object *o = (host_pool_object *)PyType_GenericAlloc(type, 0);
    if (!o || !handle_init(&o->h, "HostKVPool")) goto fail;
    handle_use(&o->device_pool, with[HOST_DEVICE_POOL]);
    handle_use(&o->device, with[HOST_DEVICE]);
    p.device_pool = o->device_pool->pool;
    p.device = o->device ? ((device_object *)o->device)->device : NULL;
    rad_error err;
    rad_status status;
    WITHOUT_GIL(status = rad_host_kv_pool_create(module_env(), &p, &o->pool, &err));
    if (status == RAD_OK) return (PyObject *)o;
    raise_status(status, &err, NULL);
fail:
    XDECREF(o);
    return NULL;
}

static void host_end(PyObject *self)
{
    host_pool_object *o = (host_pool_object *)self;
    rad_host_kv_pool_destroy(o->pool);
    o->pool = NULL;
    handle_unuse(&o->device_pool);
    handle_unuse(&o->device);
}

static void host_dealloc(PyObject *self)
{
    handle_gone(self, host_end);
}

static PyObject *host_close(PyObject *self, PyObject *none)
{
    (void)none;
    return handle_close(self, host_end);
}

static PyMethodDef host_methods[] = {CLOSE_CALLS(host_close), {0}};
static PyGetSetDef closed_getters[] = {
    HANDLE_CLOSED,
    {0},
};
static PyType_Slot host_slots[] = {
    {Py_tp_doc, "HostKVPool(device_pool, ratio=2.0, *, bytes=0, layout='layer_first', "
                "pinned=False, device=None)\n\nThe second tier's memory, for one HiRadixCache."},
    {Py_tp_new, host_new},
    {Py_tp_dealloc, host_dealloc},
    {Py_tp_methods, host_methods},
    {Py_tp_getset, closed_getters},
    {0},
};
static PyType_Spec host_spec = {"radish.HostKVPool", sizeof(host_pool_object), 0,
                                Py_TPFLAGS_DEFAULT, host_slots};

bool host_kv_pool_init(PyObject *module)
{
    return add_type(module, &host_spec, NULL, &host_pool_type);
}
