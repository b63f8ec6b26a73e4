/* array.c - Array: memory of the library, for numpy and torch without a copy.
 *
 * An Array has memory of its own (what a call returned) or shows memory of another object (the row
 * pool's matrix, K and V of a layer), which cannot be closed as long as the Array is there. The
 * buffer protocol and DLPack hand the memory on: numpy.asarray(a) and torch.from_dlpack(a) copy
 * nothing. */
#include "python.h"

#include <string.h>

enum { MOST_DIMS = 3 };

struct array {
    PyObject_HEAD PyObject *keeper; /* a handle or an Array; NULL: the memory is its own */
    void *data;
    element e;
    int ndim;
    bool readonly;
    Py_ssize_t shape[MOST_DIMS], strides[MOST_DIMS];
};

static const struct {
    const char *format, *name;
    uint8_t bytes, code; /* of DLPack: 0 signed, 1 unsigned, 2 float */
} about[] = {
    [E_I32] = {"i", "int32", 4, 0},   [E_I64] = {"q", "int64", 8, 0},
    [E_U8] = {"B", "uint8", 1, 1},    [E_I8] = {"b", "int8", 1, 0},
    [E_U16] = {"H", "uint16", 2, 1},  [E_F16] = {"e", "float16", 2, 2},
    [E_F32] = {"f", "float32", 4, 2}, [E_U32] = {"I", "uint32", 4, 1},
};

static PyTypeObject *array_type;

static array *array_make(element e)
{
    array *a = (array *)PyType_GenericAlloc(array_type, 0);
    if (a) a->e = e;
    return a;
}

PyObject *array_new(element e, Py_ssize_t count, void **data)
{
    array *a = array_make(e);
    if (!a) return NULL;
    a->data = malloc(count ? (size_t)count * about[e].bytes : 1);
    if (!a->data) {
        DECREF(a);
        return PyErr_NoMemory();
    }
    a->ndim = 1;
    a->shape[0] = count;
    a->strides[0] = about[e].bytes;
    *data = a->data;
    return (PyObject *)a;
}

PyObject *array_view(PyObject *keeper, element e, void *data, int ndim, const Py_ssize_t *shape,
                     const Py_ssize_t *strides, bool readonly)
{
    array *a = array_make(e);
    if (!a) return NULL;
    a->data = data;
    a->ndim = ndim;
    a->readonly = readonly;
    memcpy(a->shape, shape, (size_t)ndim * sizeof *shape);
    memcpy(a->strides, strides, (size_t)ndim * sizeof *strides);
    if (Py_TYPE(keeper) != array_type) ((handle *)keeper)->users++;
    INCREF(keeper);
    a->keeper = keeper;
    return (PyObject *)a;
}

PyObject *array_shaped(PyObject *fresh, int ndim, const Py_ssize_t *shape)
{
    array *a = (array *)fresh;
    if (!a) return NULL;
    a->ndim = ndim;
    Py_ssize_t stride = about[a->e].bytes;
    for (int i = ndim; i-- > 0; stride *= shape[i]) {
        a->shape[i] = shape[i];
        a->strides[i] = stride;
    }
    return fresh;
}

static void array_dealloc(PyObject *self)
{
    array *a = (array *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (!a->keeper) {
        free(a->data);
    } else {
        if (Py_TYPE(a->keeper) != array_type) ((handle *)a->keeper)->users--;
        DECREF(a->keeper);
    }
    PyObject_Free(self);
    DECREF(type);
}

static bool is_packed(const array *a)
{
    Py_ssize_t next = about[a->e].bytes;
    for (int i = a->ndim; i-- > 0;) {
        if (a->shape[i] > 1 && a->strides[i] != next) return false;
        next *= a->shape[i];
    }
    return true;
}

static Py_ssize_t count_of(const array *a)
{
    Py_ssize_t count = 1;
    for (int i = 0; i < a->ndim; i++)
        count *= a->shape[i];
    return count;
}

static int array_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    array *a = (array *)self;
    view->obj = NULL;
    if ((flags & PyBUF_WRITABLE) && a->readonly) {
        PyErr_SetString(PyExc_BufferError, "this Array is read-only");
        return -1;
    }
    /* Who asks for strides can do with gaps, unless it asks for an order without them, too. */
    int packed = (PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS | PyBUF_ANY_CONTIGUOUS) & ~PyBUF_STRIDES;
    bool may_have_gaps = (flags & PyBUF_STRIDES) == PyBUF_STRIDES && !(flags & packed);
    if (!may_have_gaps && !is_packed(a)) {
        PyErr_SetString(PyExc_BufferError, "this Array has gaps");
        return -1;
    }
    *view = (Py_buffer){.buf = a->data,
                        .obj = self,
                        .len = count_of(a) * about[a->e].bytes,
                        .itemsize = about[a->e].bytes,
                        .readonly = a->readonly,
                        .ndim = a->ndim,
                        .format = flags & PyBUF_FORMAT ? (char *)about[a->e].format : NULL,
                        .shape = flags & PyBUF_ND ? a->shape : NULL,
                        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? a->strides : NULL};
    INCREF(self);
    return 0;
}

static Py_ssize_t array_length(PyObject *self)
{
    return ((array *)self)->shape[0];
}

static PyObject *number_at(const array *a, const char *at)
{
    switch (a->e) {
    case E_I32: return PyLong_FromLong(*(const int32_t *)(const void *)at);
    case E_I64: return PyLong_FromLongLong(*(const int64_t *)(const void *)at);
    case E_U8: return PyLong_FromLong(*(const uint8_t *)at);
    case E_I8: return PyLong_FromLong(*(const int8_t *)at);
    case E_U16: return PyLong_FromLong(*(const uint16_t *)(const void *)at);
    case E_U32: return PyLong_FromUnsignedLong(*(const uint32_t *)(const void *)at);
    case E_F32: return PyFloat_FromDouble((double)*(const float *)(const void *)at);
    default: PyErr_SetString(PyExc_TypeError, "half floats: use numpy.asarray()"); return NULL;
    }
}

static PyObject *array_item(PyObject *self, Py_ssize_t i)
{
    array *a = (array *)self;
    if (i < 0 || i >= a->shape[0]) {
        PyErr_SetString(PyExc_IndexError, "Array index out of range");
        return NULL;
    }
    char *at = (char *)a->data + i * a->strides[0];
    if (a->ndim == 1) return number_at(a, at);
    return array_view(self, a->e, at, a->ndim - 1, a->shape + 1, a->strides + 1, a->readonly);
}

static PyObject *array_subscript(PyObject *self, PyObject *key)
{
    array *a = (array *)self;
    if (Py_TYPE(key) == &PySlice_Type) {
        Py_ssize_t start, stop, step;
        if (PySlice_Unpack(key, &start, &stop, &step)) return NULL;
        Py_ssize_t shape[MOST_DIMS], strides[MOST_DIMS];
        memcpy(shape, a->shape, sizeof shape);
        memcpy(strides, a->strides, sizeof strides);
        shape[0] = PySlice_AdjustIndices(a->shape[0], &start, &stop, step);
        strides[0] = a->strides[0] * step;
        return array_view(self, a->e, (char *)a->data + start * a->strides[0], a->ndim, shape,
                          strides, a->readonly);
    }
    Py_ssize_t i = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (i == -1 && PyErr_Occurred()) return NULL;
    return array_item(self, i < 0 ? i + a->shape[0] : i);
}

static PyObject *to_list(const array *a, const char *at, int dim)
{
    if (dim >= MOST_DIMS) return NULL; /* never; so that the compiler sees an end */
    PyObject *list = PyList_New(a->shape[dim]);
    for (Py_ssize_t i = 0; list && i < a->shape[dim]; i++, at += a->strides[dim]) {
        PyObject *item = dim + 1 == a->ndim ? number_at(a, at) : to_list(a, at, dim + 1);
        if (!item || PyList_SetItem(list, i, item)) Py_CLEAR(list);
    }
    return list;
}

static PyObject *array_tolist(PyObject *self, PyObject *none)
{
    (void)none;
    array *a = (array *)self;
    return to_list(a, a->data, 0);
}

static PyObject *array_repr(PyObject *self)
{
    array *a = (array *)self;
    if (a->ndim > 1 || a->shape[0] > 32 || a->e == E_F16)
        return PyUnicode_FromFormat("Array(%zd numbers, dtype='%s')", count_of(a),
                                    about[a->e].name);
    PyObject *list = array_tolist(self, NULL);
    PyObject *text = list ? PyUnicode_FromFormat("Array(%R, dtype='%s')", list, about[a->e].name)
                          : NULL;
    XDECREF(list);
    return text;
}

/* ---- DLPack ---- */

typedef struct dl_managed {
    struct {
        void *data;
        struct {
            int32_t type, id;
        } device;
        int32_t ndim;
        struct {
            uint8_t code, bits;
            uint16_t lanes;
        } dtype;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } t;
    void *context; /* the Array */
    void (*deleter)(struct dl_managed *self);
    int64_t dims[2 * MOST_DIMS];
} dl_managed;

static void let_go(dl_managed *m)
{
    PyGILState_STATE state = PyGILState_Ensure(); /* a consumer's thread may hold nothing */
    DECREF((PyObject *)m->context);
    PyGILState_Release(state);
    free(m);
}

static void capsule_done(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, "dltensor")) return; /* its consumer deletes it */
    dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor");
    if (m) m->deleter(m);
}

static PyObject *array_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)args, (void)kwargs; /* stream: none, memory is the host's */
    array *a = (array *)self;
    if (a->readonly) {
        PyErr_SetString(PyExc_BufferError, "this Array is read-only, and DLPack cannot say so");
        return NULL;
    }
    for (int i = 0; i < a->ndim; i++) {
        if (a->strides[i] >= 0) continue; /* torch has none such, and 1.13 aborts over them */
        PyErr_SetString(PyExc_BufferError,
                        "this Array runs backwards, which a DLPack tensor does not: copy it first");
        return NULL;
    }
    dl_managed *m = calloc(1, sizeof *m);
    if (!m) return PyErr_NoMemory();
    m->t.data = a->data;
    m->t.device.type = 1;
    m->t.ndim = a->ndim;
    m->t.dtype.code = about[a->e].code;
    m->t.dtype.bits = (uint8_t)(8 * about[a->e].bytes);
    m->t.dtype.lanes = 1;
    m->t.shape = m->dims;
    m->t.strides = m->dims + MOST_DIMS;
    for (int i = 0; i < a->ndim; i++) {
        m->t.shape[i] = a->shape[i];
        m->t.strides[i] = a->strides[i] / about[a->e].bytes;
    }
    m->context = self;
    m->deleter = let_go;
    INCREF(self);
    PyObject *capsule = PyCapsule_New(m, "dltensor", capsule_done);
    if (!capsule) let_go(m);
    return capsule;
}

static PyObject *array_dlpack_device(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return Py_BuildValue("(ii)", 1, 0);
}

static PyObject *get_dtype(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(about[((array *)self)->e].name);
}

static PyObject *get_shape(PyObject *self, void *closure)
{
    (void)closure;
    array *a = (array *)self;
    PyObject *shape = PyTuple_New(a->ndim);
    for (int i = 0; shape && i < a->ndim; i++)
        if (PyTuple_SetItem(shape, i, PyLong_FromSsize_t(a->shape[i]))) Py_CLEAR(shape);
    return shape;
}

static PyObject *get_address(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromVoidPtr(((array *)self)->data);
}

static PyMethodDef methods[] = {
    {"tolist", array_tolist, METH_NOARGS, "tolist() -> list\n\nThe numbers as Python's own."},
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
     "For torch.from_dlpack and its like; nothing is copied."},
    {"__dlpack_device__", array_dlpack_device, METH_NOARGS, "(1, 0): the host's memory."},
    {0},
};

static PyGetSetDef getters[] = {
    {"dtype", get_dtype, NULL, "The numbers' type, in numpy's words.", NULL},
    {"shape", get_shape, NULL, "How many numbers there are in each dimension.", NULL},
    {"address", get_address, NULL, "Where the memory lies; good as long as the Array.", NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Numbers that the library wrote or owns. numpy.asarray(a), memoryview(a) and\n"
                "torch.from_dlpack(a) use its memory where it is."},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_repr, array_repr},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_bf_getbuffer, array_getbuffer},
    {Py_mp_length, array_length},
    {Py_sq_length, array_length},
    {Py_sq_item, array_item},
    {Py_mp_subscript, array_subscript},
    {0},
};
static PyType_Spec spec = {"radish.Array", sizeof(array), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

bool array_init(PyObject *module)
{
    return add_type(module, &spec, NULL, &array_type);
}

/* ---- bytes of others ---- */

static PyObject *ask(PyObject *from, const char *method)
{
    PyObject *f = PyObject_GetAttrString(from, method);
    PyObject *answer = f ? PyObject_CallNoArgs(f) : NULL;
    XDECREF(f);
    return answer;
}

static bool ask_size(PyObject *from, const char *method, size_t *out)
{
    PyObject *number = ask(from, method);
    if (!number) return false;
    *out = (size_t)PyLong_AsUnsignedLongLong(number);
    DECREF(number);
    return !PyErr_Occurred();
}

/* What is told by data_ptr() or __cuda_array_interface__. */
static bool take_pointer(PyObject *from, const char *name, bool on_device, bytes_in *in)
{
    size_t address, count, item;
    PyObject *together = ask(from, "is_contiguous");
    if (!together) return false;
    bool row = together == Py_True;
    DECREF(together);
    if (!row) {
        PyErr_Format(PyExc_TypeError, "%s: the tensor has gaps: it must be contiguous", name);
        return false;
    }
    PyObject *flag = PyObject_GetAttrString(from, "is_cpu");
    if (!flag) return false;
    bool on_cpu = flag == Py_True;
    DECREF(flag);
    if (!on_cpu && !on_device) {
        PyErr_Format(PyExc_TypeError, "%s: the tensor is not in the host's memory", name);
        return false;
    }
    if (!ask_size(from, "data_ptr", &address) || !ask_size(from, "numel", &count) ||
        !ask_size(from, "element_size", &item))
        return false;
    PyObject *floating = ask(from, "is_floating_point");
    if (!floating) return false;
    in->kind = floating == Py_True ? 'f' : 'i';
    DECREF(floating);
    in->data = (void *)address;
    in->bytes = count * item;
    in->item = (Py_ssize_t)item;
    in->keeps = from;
    INCREF(from);
    return true;
}

bool bytes_take(PyObject *from, const char *name, bool writable, bool on_device, bytes_in *in)
{
    *in = (bytes_in){.kind = '?'};
    if (PyObject_CheckBuffer(from)) {
        int flags = PyBUF_FORMAT | PyBUF_ND | (writable ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(from, &in->view, flags)) return false;
        in->viewed = true;
        in->data = in->view.buf;
        in->bytes = (size_t)in->view.len;
        in->item = in->view.itemsize;
        const char *f = in->view.format ? in->view.format : "B";
        if (*f == '<' || *f == '=' || *f == '@') f++;
        in->kind = strchr("efd", *f) && *f ? 'f' : 'i';
        return true;
    }
    if (PyObject_HasAttrString(from, "data_ptr")) return take_pointer(from, name, on_device, in);
    PyErr_Format(PyExc_TypeError, "%s must be a contiguous array or a tensor, not %R", name,
                 (PyObject *)Py_TYPE(from));
    return false;
}

void bytes_give_back(bytes_in *in)
{
    if (in->viewed) PyBuffer_Release(&in->view);
    XDECREF(in->keeps);
    in->viewed = false;
    in->keeps = NULL;
}
