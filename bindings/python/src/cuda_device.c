/* cuda_device.c - CudaDevice: an NVIDIA GPU as a place for K/V. */
#include "python.h"

PyTypeObject *device_type;

static const param device_params[] = {
    {"ordinal", P_U32, offsetof(rad_device_cuda_params, ordinal), NULL},
    {"copy_blocks", P_U32, offsetof(rad_device_cuda_params, copy_blocks), NULL},
    {"context", P_SIZE, offsetof(rad_device_cuda_params, context), NULL},
    {"library", P_TEXT, offsetof(rad_device_cuda_params, library), NULL},
    {0},
};

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    rad_device_cuda_params p = {.struct_size = sizeof p};
    if (!params_read("CudaDevice", args, kwargs, device_params, 0, 1, NULL, &p, NULL)) return NULL;
    device_object *d = (device_object *)PyType_GenericAlloc(type, 0);
    rad_error err;
    rad_status status = RAD_OK;
    if (d && handle_init(&d->h, "CudaDevice"))
        WITHOUT_GIL(status = rad_device_cuda_create(module_env(), &p, &d->device, &err));
    if (d && d->device) return (PyObject *)d;
    XDECREF(d);
    return status ? raise_status(status, &err, NULL) : NULL;
}

static void device_end(PyObject *self)
{
    device_object *d = (device_object *)self;
    WITHOUT_GIL(rad_device_cuda_destroy(d->device));
    d->device = NULL;
}

static void device_dealloc(PyObject *self)
{
    handle_gone(self, device_end);
}

static PyObject *device_close(PyObject *self, PyObject *none)
{
    (void)none;
    return handle_close(self, device_end);
}

static const record_field info_fields[] = {
    {"ordinal", F_U32, offsetof(rad_device_cuda_info, ordinal), NULL, NULL},
    {"capability", F_U32, offsetof(rad_device_cuda_info, capability), NULL, NULL},
    {"multiprocessors", F_U32, offsetof(rad_device_cuda_info, multiprocessors), NULL, NULL},
    {"driver_version", F_U32, offsetof(rad_device_cuda_info, driver_version), NULL, NULL},
    {"free_bytes", F_SIZE, offsetof(rad_device_cuda_info, free_bytes), NULL, NULL},
    {"total_bytes", F_SIZE, offsetof(rad_device_cuda_info, total_bytes), NULL, NULL},
    {"context", F_SIZE, offsetof(rad_device_cuda_info, context), NULL, NULL},
    {"copy_calls", F_U64, offsetof(rad_device_cuda_info, copy_calls), NULL, NULL},
    {"copied_bytes", F_U64, offsetof(rad_device_cuda_info, copied_bytes), NULL, NULL},
    {"failures", F_U64, offsetof(rad_device_cuda_info, failures), NULL, NULL},
    {0},
};
static const char *const info_extra[] = {"name", NULL};
static PyTypeObject *info_type;

static PyObject *device_info(PyObject *self, PyObject *none)
{
    (void)none;
    device_object *d = (device_object *)self;
    if (!handle_enter(&d->h, "info")) return NULL;
    rad_device_cuda_info info = {.struct_size = sizeof info};
    rad_error err;
    rad_status status = rad_device_cuda_get_info(d->device, &info, &err);
    handle_leave(&d->h);
    if (status) return raise_status(status, &err, "CudaDevice.info");
    PyObject *record = record_new(info_type, info_fields, &info);
    if (record) record_set(record, info_fields, 0, PyUnicode_FromString(info.name));
    return record;
}

static PyObject *with_stream(PyObject *self, PyObject *arg, const char *call,
                             rad_status (*f)(rad_device *, void *, rad_error *))
{
    device_object *d = (device_object *)self;
    uint64_t stream = 0;
    if (!arg_u64(arg, "stream", &stream) || !handle_enter(&d->h, call)) return NULL;
    rad_error err;
    rad_status status = f(d->device, (void *)(uintptr_t)stream, &err);
    handle_leave(&d->h);
    if (status) return raise_status(status, &err, call);
    Py_RETURN_NONE;
}

static PyObject *device_copy_after(PyObject *self, PyObject *stream)
{
    return with_stream(self, stream, "copy_after", rad_device_cuda_copy_after);
}

static PyObject *device_stream_after(PyObject *self, PyObject *stream)
{
    return with_stream(self, stream, "stream_after", rad_device_cuda_stream_after);
}

static PyMethodDef device_methods[] = {
    {"info", device_info, METH_NOARGS, "info() -> CudaInfo"},
    {"copy_after", device_copy_after, METH_O,
     "copy_after(stream) -> None\n\nCopies begun from now on wait for what is enqueued in `stream` "
     "(torch.cuda.current_stream().cuda_stream)."},
    {"stream_after", device_stream_after, METH_O,
     "stream_after(stream) -> None\n\nWhat is enqueued in `stream` from now on waits for the "
     "copies that this thread began."},
    CLOSE_CALLS(device_close),
    {0},
};
static PyGetSetDef device_getters[] = {HANDLE_CLOSED, {0}};
static PyType_Slot device_slots[] = {
    {Py_tp_doc, "CudaDevice(ordinal=0, *, copy_blocks=0, context=0, library=None)\n\nAn NVIDIA GPU "
                "as a place for K/V."},
    {Py_tp_new, device_new},
    {Py_tp_dealloc, device_dealloc},
    {Py_tp_methods, device_methods},
    {Py_tp_getset, device_getters},
    {0},
};
static PyType_Spec device_spec = {"radish.CudaDevice", sizeof(device_object), 0, Py_TPFLAGS_DEFAULT,
                                  device_slots};

bool cuda_device_init(PyObject *module)
{
    info_type =
        record_type(module, "radish.CudaInfo", "What a CudaDevice is.", info_fields, info_extra);
    return info_type && add_type(module, &device_spec, NULL, &device_type);
}
