/* kv_pool_create.c - makes a TokenToKVPool: its params, MHA's and MLA's, and what of the caller's
 * is in it: memory, scales, a device. */
#include "python.h"

static const size_t dtype_bytes[] = {4, 2, 2, 1, 1, 1};

enum { KV_DEVICE, KV_BUFFERS, KV_K_SCALES, KV_V_SCALES, KV_OBJECTS };

static const param kv_pool_params[] = {
    {"num_pages", P_U32, offsetof(rad_token_to_kv_pool_params, num_pages), NULL},
    {"page_size", P_U32, offsetof(rad_token_to_kv_pool_params, page_size), NULL},
    {"num_layers", P_U32, offsetof(rad_token_to_kv_pool_params, num_layers), NULL},
    {"num_kv_heads", P_U32, offsetof(rad_token_to_kv_pool_params, num_kv_heads), NULL},
    {"head_dim", P_U32, offsetof(rad_token_to_kv_pool_params, head_dim), NULL},
    {"v_head_dim", P_U32, offsetof(rad_token_to_kv_pool_params, v_head_dim), NULL},
    {"dtype", P_NAME, offsetof(rad_token_to_kv_pool_params, dtype), dtype_names},
    {"start_layer", P_U32, offsetof(rad_token_to_kv_pool_params, start_layer), NULL},
    {"device", P_OBJECT, KV_DEVICE, NULL},
    {"buffers", P_OBJECT, KV_BUFFERS, NULL},
    {"k_scales", P_OBJECT, KV_K_SCALES, NULL},
    {"v_scales", P_OBJECT, KV_V_SCALES, NULL},
    {0},
};

/* MLA's words. */
static const param mla_params[] = {
    {"num_pages", P_U32, offsetof(rad_mla_kv_pool_params, num_pages), NULL},
    {"page_size", P_U32, offsetof(rad_mla_kv_pool_params, page_size), NULL},
    {"num_layers", P_U32, offsetof(rad_mla_kv_pool_params, num_layers), NULL},
    {"kv_lora_rank", P_U32, offsetof(rad_mla_kv_pool_params, kv_lora_rank), NULL},
    {"rope_dim", P_U32, offsetof(rad_mla_kv_pool_params, rope_dim), NULL},
    {"dtype", P_NAME, offsetof(rad_mla_kv_pool_params, dtype), dtype_names},
    {"start_layer", P_U32, offsetof(rad_mla_kv_pool_params, start_layer), NULL},
    {"device", P_OBJECT, KV_DEVICE, NULL},
    {"buffers", P_OBJECT, KV_BUFFERS, NULL},
    {"scales", P_OBJECT, KV_K_SCALES, NULL},
    {0},
};

/* The caller's memory: for each layer (k, v), or (k, v, scales of k, scales of v); None for what
 * there is not. Each must hold as many slots as the pool has. */
static rad_kv_buffers *take_buffers(kv_pool_object *o, PyObject *list, uint32_t num_layers,
                                    uint64_t slots, const size_t *slot_bytes, bool on_device)
{
    Py_ssize_t layers = PySequence_Check(list) ? PySequence_Size(list) : -1;
    if (layers != (Py_ssize_t)num_layers) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "buffers: one entry for each of the %u layers is needed",
                     num_layers);
        return NULL;
    }
    rad_kv_buffers *buffers = PyMem_Calloc((size_t)layers, sizeof *buffers);
    o->given = PyMem_Calloc((size_t)layers * 4, sizeof *o->given);
    if (!buffers || !o->given) {
        PyMem_Free(buffers);
        PyErr_NoMemory();
        return NULL;
    }
    bool good = true;
    for (Py_ssize_t i = 0; good && i < layers; i++) {
        PyObject *entry = PySequence_GetItem(list, i);
        Py_ssize_t parts = entry && PySequence_Check(entry) ? PySequence_Size(entry) : -1;
        if (parts < 1 || parts > 4) {
            PyErr_Clear();
            PyErr_SetString(PyExc_TypeError, "buffers: each layer's entry is (k, v) or (k, v, "
                                             "k_scale, v_scale)");
            good = false;
        }
        void *at[4] = {0};
        for (Py_ssize_t j = 0; good && j < parts; j++) {
            PyObject *part = PySequence_GetItem(entry, j);
            if (part && part != Py_None) {
                bytes_in *in = &o->given[o->num_given];
                good = bytes_take(part, "buffers", true, on_device, in);
                if (good) o->num_given++;
                if (good && in->bytes < slots * slot_bytes[j]) {
                    PyErr_Format(PyExc_ValueError,
                                 "buffers: %zu bytes, and %llu slots (that of page 0 is one) take "
                                 "%llu",
                                 in->bytes, (unsigned long long)slots,
                                 (unsigned long long)(slots * slot_bytes[j]));
                    good = false;
                }
                at[j] = in->data;
            }
            good = good && part;
            XDECREF(part);
        }
        buffers[i] = (rad_kv_buffers){at[0], at[1], at[2], at[3], 0, 0, 0, 0};
        XDECREF(entry);
    }
    if (good) return buffers;
    PyMem_Free(buffers);
    return NULL;
}

static float *take_scales(PyObject *list, uint32_t num_layers, const char *name)
{
    Py_ssize_t count = PySequence_Check(list) ? PySequence_Size(list) : -1;
    float *scales = count == (Py_ssize_t)num_layers ? PyMem_Calloc(num_layers, sizeof *scales)
                                                    : NULL;
    if (!scales) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s: one number for each of the %u layers is needed", name,
                     num_layers);
        return NULL;
    }
    for (uint32_t i = 0; i < num_layers; i++) {
        PyObject *number = PySequence_GetItem(list, (Py_ssize_t)i);
        scales[i] = number ? (float)PyFloat_AsDouble(number) : 0;
        XDECREF(number);
    }
    if (!PyErr_Occurred()) return scales;
    PyMem_Free(scales);
    return NULL;
}

static PyObject *kv_pool_make(PyTypeObject *type, rad_token_to_kv_pool_params *p,
                              rad_mla_kv_pool_params *mla, PyObject **with)
{
    if (!handle_is_open(with[KV_DEVICE], device_type, "device", "a CudaDevice")) return NULL;
    kv_pool_object *o = (kv_pool_object *)PyType_GenericAlloc(type, 0);
    rad_kv_buffers *buffers = NULL;
    float *k_scales = NULL, *v_scales = NULL;
    rad_error err;
    rad_status status = RAD_OK;
    if (!o || !handle_init(&o->h, "TokenToKVPool")) goto done;
    handle_use(&o->device, with[KV_DEVICE]);
    rad_device *device = o->device ? ((device_object *)o->device)->device : NULL;
    uint32_t layers = mla ? mla->num_layers : p->num_layers;
    if (with[KV_BUFFERS]) {
        uint32_t num_pages = mla ? mla->num_pages : p->num_pages;
        uint32_t page_size = mla ? mla->page_size : p->page_size;
        uint64_t slots = ((uint64_t)num_pages + 1) * (page_size ? page_size : 1);
        size_t bytes = dtype_bytes[mla ? mla->dtype : p->dtype];
        size_t v_dim = mla ? 0 : p->v_head_dim ? p->v_head_dim : p->head_dim;
        size_t k = mla ? ((size_t)mla->kv_lora_rank + mla->rope_dim) * bytes
                       : (size_t)p->num_kv_heads * p->head_dim * bytes;
        size_t each[4] = {k, mla ? 0 : p->num_kv_heads * v_dim * bytes,
                          (mla ? 2 : (size_t)p->num_kv_heads) * sizeof(float),
                          (mla ? 0 : (size_t)p->num_kv_heads) * sizeof(float)};
        buffers = take_buffers(o, with[KV_BUFFERS], layers, slots, each, device != NULL);
        if (!buffers) goto done;
    }
    if (with[KV_K_SCALES] && !(k_scales = take_scales(with[KV_K_SCALES], layers, "scales")))
        goto done;
    if (with[KV_V_SCALES] && !(v_scales = take_scales(with[KV_V_SCALES], layers, "scales")))
        goto done;
    if (mla) {
        mla->device = device;
        mla->buffers = buffers;
        mla->scales = k_scales;
        status = rad_mla_kv_pool_create(module_env(), mla, &o->pool, &err);
    } else {
        p->device = device;
        p->buffers = buffers;
        p->k_scales = k_scales;
        p->v_scales = v_scales;
        status = rad_token_to_kv_pool_create(module_env(), p, &o->pool, &err);
    }
    if (status) raise_status(status, &err, NULL);
done:
    PyMem_Free(buffers);
    PyMem_Free(k_scales);
    PyMem_Free(v_scales);
    if (o && o->pool) return (PyObject *)o;
    XDECREF(o);
    return NULL;
}

PyObject *kv_pool_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p, .page_size = 1};
    PyObject *with[KV_OBJECTS] = {0};
    if (!params_read("TokenToKVPool", args, kwargs, kv_pool_params, 1, 2, NULL, &p, with))
        return NULL;
    return kv_pool_make(type, &p, NULL, with);
}

PyObject *kv_pool_mla(PyObject *type, PyObject *args, PyObject *kwargs)
{
    rad_mla_kv_pool_params p = {.struct_size = sizeof p, .page_size = 1};
    PyObject *with[KV_OBJECTS] = {0};
    if (!params_read("TokenToKVPool.mla", args, kwargs, mla_params, 1, 2, NULL, &p, with))
        return NULL;
    return kv_pool_make((PyTypeObject *)type, NULL, &p, with);
}
