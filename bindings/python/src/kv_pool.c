/* kv_pool.c - TokenToKVPool: its numbers in and out, its copies, what it is. */
#include "python.h"

PyTypeObject *kv_pool_type;

const char *const dtype_names[] = {"float32",  "bfloat16", "float16", "fp8_e4m3",
                                   "fp8_e5m2", "int8",     NULL};
const char *const kind_names[] = {"mha", "mla", NULL};
static const element elements[] = {[RAD_F32] = E_F32,    [RAD_BF16] = E_U16,   [RAD_F16] = E_F16,
                                   [RAD_F8_E4M3] = E_U8, [RAD_F8_E5M2] = E_U8, [RAD_I8] = E_I8};

static void kv_pool_end(PyObject *self)
{
    kv_pool_object *o = (kv_pool_object *)self;
    rad_token_to_kv_pool_destroy(o->pool);
    o->pool = NULL;
    while (o->num_given)
        bytes_give_back(&o->given[--o->num_given]);
    PyMem_Free(o->given);
    o->given = NULL;
    handle_unuse(&o->device);
}

static void kv_pool_dealloc(PyObject *self)
{
    handle_gone(self, kv_pool_end);
}

static PyObject *kv_pool_close(PyObject *self, PyObject *none)
{
    (void)none;
    return handle_close(self, kv_pool_end);
}

static Py_ssize_t num_slots(const kv_pool_object *o)
{
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(o->pool);
    return ((Py_ssize_t)p->num_pages + 1) * p->page_size;
}

static PyObject *side(kv_pool_object *o, void *data, size_t stride, element e, Py_ssize_t heads,
                      Py_ssize_t dim)
{
    if (!data) Py_RETURN_NONE;
    if (o->device) return PyLong_FromVoidPtr(data);
    Py_ssize_t item = e == E_F32 ? 4 : e == E_U16 || e == E_F16 ? 2 : 1;
    Py_ssize_t shape[3] = {num_slots(o), heads, dim};
    Py_ssize_t strides[3] = {(Py_ssize_t)stride, dim * item, item};
    return array_view((PyObject *)o, e, data, 3, shape, strides, false);
}

static PyObject *kv_pool_buffers(PyObject *self, PyObject *layer_arg)
{
    kv_pool_object *o = (kv_pool_object *)self;
    uint32_t layer = 0;
    if (!arg_u32(layer_arg, "layer", &layer) || !handle_enter(&o->h, "buffers")) return NULL;
    rad_kv_buffers b;
    rad_status status;
    WITHOUT_GIL(status = rad_kv_pool_get_buffers(o->pool, layer, &b)); /* waits for a load */
    handle_leave(&o->h);
    if (status) {
        PyErr_Format(PyExc_IndexError, "TokenToKVPool.buffers: there is no layer %u", layer);
        return NULL;
    }
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(o->pool);
    element e = elements[p->dtype];
    bool mla = p->kind == RAD_KV_MLA;
    PyObject *parts[4] = {
        side(o, b.k, b.k_stride, e, p->num_kv_heads, p->head_dim),
        side(o, b.v, b.v_stride, e, p->num_kv_heads, p->v_head_dim),
        side(o, b.k_scale, b.k_scale_stride, E_F32, mla ? 2 : p->num_kv_heads, 1),
        side(o, b.v_scale, b.v_scale_stride, E_F32, mla ? 2 : p->num_kv_heads, 1),
    };
    PyObject *all = parts[0] && parts[1] && parts[2] && parts[3]
                        ? PyTuple_Pack(4, parts[0], parts[1], parts[2], parts[3])
                        : NULL;
    for (int i = 0; i < 4; i++)
        XDECREF(parts[i]);
    return all;
}

/* Slots that are the pool's, where the library would take others for its caller's bug. */
static bool take_loc(kv_pool_object *o, PyObject *from, ints_in *in)
{
    if (!ints_take(from, "loc", INTS_SLOTS, in)) return false;
    Py_ssize_t most = num_slots(o);
    for (Py_ssize_t i = 0; i < in->count; i++) {
        if (in->data[i] >= 0 && in->data[i] < most) continue;
        PyErr_Format(PyExc_IndexError, "loc[%zd] is %d: the pool has the slots 0 to %zd", i,
                     in->data[i], most - 1);
        ints_give_back(in);
        return false;
    }
    return true;
}

static bool take_floats(PyObject *from, const char *name, bool writable, size_t numbers,
                        bytes_in *in)
{
    *in = (bytes_in){.kind = '?'};
    if (!from || from == Py_None) return true;
    if (!bytes_take(from, name, writable, false, in)) return false;
    if (in->item == 4 && in->kind == 'f' && in->bytes == numbers * sizeof(float)) return true;
    PyErr_Format(PyExc_ValueError, "%s: %zu bytes of numbers of %zd bytes: %zu float32 are needed",
                 name, in->bytes, in->item, numbers);
    bytes_give_back(in);
    *in = (bytes_in){.kind = '?'};
    return false;
}

static bool layer_is_there(kv_pool_object *o, uint32_t layer)
{
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(o->pool);
    if (layer >= p->start_layer && layer - p->start_layer < p->num_layers) return true;
    PyErr_Format(PyExc_IndexError, "there is no layer %u: the pool has %u to %u", layer,
                 p->start_layer, p->start_layer + p->num_layers - 1);
    return false;
}

static PyObject *kv_pool_set(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"set_kv_buffer", 2, 4, {"layer", "loc", "k", "v"}, {0}};
    kv_pool_object *o = (kv_pool_object *)self;
    PyObject *a[4], *result = NULL;
    uint32_t layer = 0;
    ints_in loc;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_u32(a[0], "layer", &layer) ||
        !handle_enter(&o->h, "set_kv_buffer"))
        return NULL;
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(o->pool);
    bool mla = p->kind == RAD_KV_MLA;
    if (layer_is_there(o, layer) && take_loc(o, a[1], &loc)) {
        size_t n = (size_t)loc.count;
        /* MLA: k is the latent and v the rope part. */
        size_t k_dim = mla ? p->v_head_dim : (size_t)p->num_kv_heads * p->head_dim;
        size_t v_dim = mla ? p->head_dim - p->v_head_dim : (size_t)p->num_kv_heads * p->v_head_dim;
        bytes_in k = {0}, v = {0};
        if (take_floats(a[2], "k", false, n * k_dim, &k) &&
            take_floats(a[3], "v", false, n * v_dim, &v)) {
            rad_status status;
            WITHOUT_GIL(status = mla ? rad_mla_kv_pool_set_kv_buffer(o->pool, layer, loc.data,
                                                                     (uint32_t)n, k.data, v.data)
                                     : rad_kv_pool_set_kv_buffer(o->pool, layer, loc.data,
                                                                 (uint32_t)n, k.data, v.data));
            if (status) {
                raise_status(status, NULL, "TokenToKVPool.set_kv_buffer: the device failed");
            } else {
                INCREF(Py_None);
                result = Py_None;
            }
        }
        bytes_give_back(&k);
        bytes_give_back(&v);
        ints_give_back(&loc);
    }
    handle_leave(&o->h);
    return result;
}

/* A caller's place for one side, or a new Array; `numbers` of them. */
static PyObject *float_place(PyObject *into, const char *name, Py_ssize_t count, Py_ssize_t heads,
                             Py_ssize_t dim, bytes_in *in)
{
    if (into && into != Py_None) {
        if (!take_floats(into, name, true, (size_t)(count * heads * dim), in)) return NULL;
        INCREF(into);
        return into;
    }
    Py_ssize_t shape[3] = {count, heads, dim};
    *in = (bytes_in){.kind = '?'};
    return array_shaped(array_new(E_F32, count * heads * dim, &in->data), 3, shape);
}

static PyObject *kv_pool_get_kv(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"get_kv", 2, 4, {"layer", "loc", "k", "v"}, {0}};
    kv_pool_object *o = (kv_pool_object *)self;
    PyObject *a[4], *result = NULL;
    uint32_t layer = 0;
    ints_in loc;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_u32(a[0], "layer", &layer) ||
        !handle_enter(&o->h, "get_kv"))
        return NULL;
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(o->pool);
    if (layer_is_there(o, layer) && take_loc(o, a[1], &loc)) {
        bytes_in k = {0}, v = {0};
        PyObject *to_k = float_place(a[2], "k", loc.count, p->num_kv_heads, p->head_dim, &k);
        PyObject *to_v =
            to_k ? float_place(a[3], "v", loc.count, p->num_kv_heads, p->v_head_dim, &v) : NULL;
        if (to_v) {
            rad_status status;
            WITHOUT_GIL(status = rad_kv_pool_get_kv(o->pool, layer, loc.data, (uint32_t)loc.count,
                                                    k.data, v.data));
            result = status ? raise_status(status, NULL, "TokenToKVPool.get_kv: the device failed")
                            : PyTuple_Pack(2, to_k, to_v);
        }
        bytes_give_back(&k);
        bytes_give_back(&v);
        XDECREF(to_k);
        XDECREF(to_v);
        ints_give_back(&loc);
    }
    handle_leave(&o->h);
    return result;
}

static size_t bytes_per_token(const kv_pool_object *o)
{
    return rad_kv_pool_bytes_per_token(rad_kv_pool_params(o->pool));
}

static PyObject *kv_pool_get_copy(PyObject *self, fast_args args, Py_ssize_t nargs,
                                  PyObject *kwnames)
{
    static signature s = {"get_cpu_copy", 1, 2, {"slots", "out"}, {0}};
    kv_pool_object *o = (kv_pool_object *)self;
    PyObject *a[2], *result = NULL;
    ints_in slots;
    if (!args_read(&s, args, nargs, kwnames, a) || !handle_enter(&o->h, "get_cpu_copy"))
        return NULL;
    if (ints_take(a[0], "slots", INTS_SLOTS, &slots)) {
        size_t bytes = (size_t)slots.count * bytes_per_token(o);
        bytes_in to = {0};
        bool good = true;
        if (a[1] && a[1] != Py_None) {
            good = bytes_take(a[1], "out", true, false, &to);
            result = a[1];
            INCREF(result);
            bytes = good ? to.bytes : 0; /* the library compares */
        } else {
            result = array_new(E_U8, (Py_ssize_t)bytes, &to.data);
            good = result != NULL;
        }
        rad_status status = RAD_OK;
        if (good)
            WITHOUT_GIL(status = rad_kv_pool_get_cpu_copy(o->pool, slots.data,
                                                          (uint32_t)slots.count, to.data, bytes));
        if (status)
            raise_status(status, NULL,
                         status == RAD_E_IO ? "TokenToKVPool.get_cpu_copy: the device failed"
                                            : "TokenToKVPool.get_cpu_copy: a slot is not the "
                                              "pool's, or out has another size");
        if (!good || status) Py_CLEAR(result);
        bytes_give_back(&to);
        ints_give_back(&slots);
    }
    handle_leave(&o->h);
    return result;
}

static PyObject *kv_pool_load_copy(PyObject *self, fast_args args, Py_ssize_t nargs,
                                   PyObject *kwnames)
{
    static signature s = {"load_cpu_copy", 2, 2, {"slots", "data"}, {0}};
    kv_pool_object *o = (kv_pool_object *)self;
    PyObject *a[2];
    ints_in slots;
    bytes_in from;
    rad_status status = RAD_OK;
    if (!args_read(&s, args, nargs, kwnames, a) || !handle_enter(&o->h, "load_cpu_copy"))
        return NULL;
    bool good = ints_take(a[0], "slots", INTS_SLOTS, &slots);
    if (good) {
        good = bytes_take(a[1], "data", false, false, &from);
        if (good) {
            WITHOUT_GIL(status = rad_kv_pool_load_cpu_copy(
                            o->pool, slots.data, (uint32_t)slots.count, from.data, from.bytes));
            bytes_give_back(&from);
        }
        ints_give_back(&slots);
    }
    handle_leave(&o->h);
    if (!good) return NULL;
    if (status)
        return raise_status(status, NULL,
                            status == RAD_E_IO ? "TokenToKVPool.load_cpu_copy: the device failed"
                                               : "TokenToKVPool.load_cpu_copy: a slot is not the "
                                                 "pool's, or data has another size");
    Py_RETURN_NONE;
}

static PyObject *kv_pool_copy_slots(PyObject *self, fast_args args, Py_ssize_t nargs,
                                    PyObject *kwnames)
{
    static signature s = {"copy_slots", 3, 3, {"source", "target", "count"}, {0}};
    kv_pool_object *o = (kv_pool_object *)self;
    PyObject *a[3];
    int32_t from = 0, to = 0;
    uint32_t count = 0;
    rad_status status;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_i32(a[0], "source", &from) ||
        !arg_i32(a[1], "target", &to) || !arg_u32(a[2], "count", &count) ||
        !handle_enter(&o->h, "copy_slots"))
        return NULL;
    WITHOUT_GIL(status = rad_kv_pool_copy_slots(o->pool, from, to, count));
    handle_leave(&o->h);
    if (status)
        return raise_status(status, NULL,
                            status == RAD_E_IO ? "TokenToKVPool.copy_slots: the device failed"
                                               : "TokenToKVPool.copy_slots: a slot is not the "
                                                 "pool's, or the two overlap");
    Py_RETURN_NONE;
}

static PyObject *kv_pool_populate(PyObject *self, fast_args args, Py_ssize_t nargs,
                                  PyObject *kwnames)
{
    static signature s = {"populate", 3, 3, {"layer", "first", "count"}, {0}};
    kv_pool_object *o = (kv_pool_object *)self;
    PyObject *a[3];
    uint32_t layer = 0;
    uint64_t first = 0, count = 0;
    rad_status status;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_u32(a[0], "layer", &layer) ||
        !arg_u64(a[1], "first", &first) || !arg_u64(a[2], "count", &count) ||
        !handle_enter(&o->h, "populate"))
        return NULL;
    WITHOUT_GIL(status = rad_kv_pool_populate(o->pool, layer, first, count));
    handle_leave(&o->h);
    if (status)
        return raise_status(status, NULL,
                            "TokenToKVPool.populate: not slots of the pool's, no "
                            "memory, or this system cannot");
    Py_RETURN_NONE;
}

static const record_field params_fields[] = {
    {"num_pages", F_U32, offsetof(rad_token_to_kv_pool_params, num_pages), NULL, NULL},
    {"page_size", F_U32, offsetof(rad_token_to_kv_pool_params, page_size), NULL, NULL},
    {"num_layers", F_U32, offsetof(rad_token_to_kv_pool_params, num_layers), NULL, NULL},
    {"num_kv_heads", F_U32, offsetof(rad_token_to_kv_pool_params, num_kv_heads), NULL, NULL},
    {"head_dim", F_U32, offsetof(rad_token_to_kv_pool_params, head_dim), NULL, NULL},
    {"v_head_dim", F_U32, offsetof(rad_token_to_kv_pool_params, v_head_dim), NULL, NULL},
    {"dtype", F_NAME, offsetof(rad_token_to_kv_pool_params, dtype), dtype_names, NULL},
    {"kind", F_NAME, offsetof(rad_token_to_kv_pool_params, kind), kind_names, NULL},
    {"start_layer", F_U32, offsetof(rad_token_to_kv_pool_params, start_layer), NULL, NULL},
    {0},
};
static PyTypeObject *params_type;

enum { POOL_PARAMS, POOL_PER_TOKEN, POOL_BYTES, POOL_SLOTS, POOL_PACKED };

static PyObject *kv_pool_get(PyObject *self, void *what)
{
    kv_pool_object *o = (kv_pool_object *)self;
    PyObject *answer = NULL;
    if (!handle_enter(&o->h, "a property")) return NULL;
    switch ((intptr_t)what) {
    case POOL_PARAMS:
        answer = record_new(params_type, params_fields, rad_kv_pool_params(o->pool));
        break;
    case POOL_PER_TOKEN: answer = PyLong_FromSize_t(bytes_per_token(o)); break;
    case POOL_BYTES: answer = PyLong_FromSize_t(rad_kv_pool_size_bytes(o->pool)); break;
    case POOL_SLOTS: answer = PyLong_FromSsize_t(num_slots(o)); break;
    case POOL_PACKED: answer = PyBool_FromLong(rad_kv_pool_is_packed(o->pool)); break;
    }
    handle_leave(&o->h);
    return answer;
}

static PyMethodDef kv_pool_methods[] = {
    {"mla", (PyCFunction)(void (*)(void))kv_pool_mla, METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "mla(num_pages, page_size=1, *, num_layers, kv_lora_rank, rope_dim, dtype='float32', "
     "start_layer=0, device=None, buffers=None, scales=None) -> TokenToKVPool\n\nOne latent and "
     "rope row for each token and layer."},
    {"buffers", kv_pool_buffers, METH_O,
     "buffers(layer) -> (k, v, k_scale, v_scale)\n\nWhere a layer's numbers lie, after waiting for "
     "what a tier still brings: Arrays [slots, heads, dim] (bfloat16 as uint16, fp8 as uint8); "
     "addresses where the memory is a device's."},
    FAST("set_kv_buffer", kv_pool_set,
         "set_kv_buffer(layer, loc, k=None, v=None) -> None\n\nStores float32 K and V of the slots "
         "`loc` in the pool's dtype. MLA: k is the latent, v the rope part."),
    FAST("get_kv", kv_pool_get_kv,
         "get_kv(layer, loc, k=None, v=None) -> (k, v)\n\nReads them back as float32, into arrays "
         "of the caller's or new ones."),
    FAST("get_cpu_copy", kv_pool_get_copy,
         "get_cpu_copy(slots, out=None) -> Array | out\n\nAll layers' bytes of these slots."),
    FAST("load_cpu_copy", kv_pool_load_copy,
         "load_cpu_copy(slots, data) -> None\n\nWhat get_cpu_copy gave, at other slots maybe."),
    FAST("copy_slots", kv_pool_copy_slots,
         "copy_slots(source, target, count) -> None\n\nWithin the pool, all layers; for the "
         "copy_slots of a cache."),
    FAST("populate", kv_pool_populate,
         "populate(layer, first, count) -> None\n\nHas the system provide the memory of these "
         "slots before it is written."),
    CLOSE_CALLS(kv_pool_close),
    {0},
};

static PyGetSetDef kv_pool_getters[] = {
    {"params", kv_pool_get, NULL, "What it was made with.", (void *)POOL_PARAMS},
    {"bytes_per_token", kv_pool_get, NULL, "Over all layers.", (void *)POOL_PER_TOKEN},
    {"size_bytes", kv_pool_get, NULL, "Of all slots.", (void *)POOL_BYTES},
    {"num_slots", kv_pool_get, NULL, "Those of page 0 among them.", (void *)POOL_SLOTS},
    {"is_packed", kv_pool_get, NULL, "Whether K and V are separate and without gaps.",
     (void *)POOL_PACKED},
    HANDLE_CLOSED,
    {0},
};

static PyType_Slot kv_pool_slots[] = {
    {Py_tp_doc,
     "TokenToKVPool(num_pages, page_size=1, *, num_layers, num_kv_heads, head_dim, v_head_dim=0, "
     "dtype='float32', start_layer=0, device=None, buffers=None, k_scales=None, v_scales=None)\n\n"
     "The memory behind the slots. `buffers`, a (k, v) for each layer, is the caller's: numpy "
     "arrays or torch tensors, on the GPU with a CudaDevice."},
    {Py_tp_new, kv_pool_new},
    {Py_tp_dealloc, kv_pool_dealloc},
    {Py_tp_methods, kv_pool_methods},
    {Py_tp_getset, kv_pool_getters},
    {0},
};
static PyType_Spec kv_pool_spec = {"radish.TokenToKVPool", sizeof(kv_pool_object), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, kv_pool_slots};

bool kv_pool_init(PyObject *module)
{
    params_type = record_type(module, "radish.KVPoolParams", "What a TokenToKVPool was made with.",
                              params_fields, NULL);
    return params_type && add_type(module, &kv_pool_spec, NULL, &kv_pool_type);
}
