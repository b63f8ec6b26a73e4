/* gguf_get.c - looking things up in an open GGUF file.
 *
 * Everything was checked at open; what can still be wrong is that a key has another
 * type than the asker wants. */
#include "gguf/gguf_file.h"

#include <float.h>
#include <math.h>

uint32_t gguf_version(const gguf_file *f)
{
    return f->version;
}
uint64_t gguf_file_bytes(const gguf_file *f)
{
    uint64_t bytes = f->num_bytes;
    for (uint32_t i = 0; i < f->num_others; i++)
        bytes += f->others[i]->num_bytes;
    return bytes;
}
uint32_t gguf_num_parts(const gguf_file *f)
{
    return 1 + f->num_others;
}
uint64_t gguf_num_kvs(const gguf_file *f)
{
    return f->num_kvs;
}
const gguf_kv *gguf_kv_at(const gguf_file *f, uint64_t i)
{
    return &f->kvs[i];
}
uint64_t gguf_num_tensors(const gguf_file *f)
{
    return f->num_tensors;
}
const gguf_tensor *gguf_tensor_at(const gguf_file *f, uint64_t i)
{
    return &f->tensors[i];
}

const gguf_kv *gguf_find_kv(const gguf_file *f, const char *key)
{
    int64_t i = gguf_names_find(&f->keys, (gguf_str){key, strlen(key)});
    return i < 0 ? NULL : &f->kvs[i];
}

const gguf_tensor *gguf_find_tensor(const gguf_file *f, const char *name)
{
    int64_t i = gguf_names_find(&f->tensor_names, (gguf_str){name, strlen(name)});
    return i < 0 ? NULL : &f->tensors[i];
}

static const char *type_name(gguf_type type)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return (size_t)type < RAD_COUNT(names) ? names[type] : "unknown";
}

static rad_status misfit(const gguf_kv *kv, const char *wanted, rad_error *err)
{
    return rad_fail(err, RAD_E_FORMAT, "gguf: key '%s' is %s%s%s; wanted %s",
                    gguf_show(kv->key).text, type_name(kv->type),
                    kv->type == GGUF_ARR ? " of " : "",
                    kv->type == GGUF_ARR ? type_name(kv->arr.type) : "", wanted);
}

rad_status gguf_get_u32(const gguf_file *f, const char *key, uint32_t *out, rad_error *err)
{
    const gguf_kv *kv = gguf_find_kv(f, key);
    if (!kv) return RAD_NONE;
    switch (kv->type) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        if (kv->u > UINT32_MAX) break;
        *out = (uint32_t)kv->u;
        return RAD_OK;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        if (kv->i < 0 || kv->i > UINT32_MAX) break;
        *out = (uint32_t)kv->i;
        return RAD_OK;
    default: return misfit(kv, "an integer", err);
    }
    return rad_fail(err, RAD_E_FORMAT, "gguf: key '%s': the value does not fit into 32 bits",
                    gguf_show(kv->key).text);
}

rad_status gguf_get_f32(const gguf_file *f, const char *key, float *out, rad_error *err)
{
    const gguf_kv *kv = gguf_find_kv(f, key);
    if (!kv) return RAD_NONE;
    if (kv->type != GGUF_F32 && kv->type != GGUF_F64) return misfit(kv, "a float", err);
    if (isfinite(kv->f) && fabs(kv->f) > (double)FLT_MAX)
        return rad_fail(err, RAD_E_FORMAT, "gguf: key '%s': %g does not fit into a float",
                        gguf_show(kv->key).text, kv->f);
    *out = (float)kv->f;
    return RAD_OK;
}

rad_status gguf_get_bool(const gguf_file *f, const char *key, bool *out, rad_error *err)
{
    const gguf_kv *kv = gguf_find_kv(f, key);
    if (!kv) return RAD_NONE;
    if (kv->type != GGUF_BOOL) return misfit(kv, "a bool", err);
    *out = kv->u != 0;
    return RAD_OK;
}

rad_status gguf_get_str(const gguf_file *f, const char *key, gguf_str *out, rad_error *err)
{
    const gguf_kv *kv = gguf_find_kv(f, key);
    if (!kv) return RAD_NONE;
    if (kv->type != GGUF_STR) return misfit(kv, "a string", err);
    *out = kv->str;
    return RAD_OK;
}

rad_status gguf_get_arr(const gguf_file *f, const char *key, gguf_type type, gguf_array *out,
                        rad_error *err)
{
    const gguf_kv *kv = gguf_find_kv(f, key);
    if (!kv) return RAD_NONE;
    if (kv->type != GGUF_ARR || kv->arr.type != type) {
        char wanted[32] = "array of ";
        strcat(wanted, type_name(type));
        return misfit(kv, wanted, err);
    }
    *out = kv->arr;
    return RAD_OK;
}

static uint64_t load_le32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int32_t gguf_arr_i32(const gguf_array *arr, uint64_t i)
{
    RAD_ASSERT(i < arr->count && (arr->type == GGUF_I32 || arr->type == GGUF_U32));
    return (int32_t)load_le32(arr->data + 4 * i);
}

float gguf_arr_f32(const gguf_array *arr, uint64_t i)
{
    RAD_ASSERT(i < arr->count && arr->type == GGUF_F32);
    uint32_t bits = (uint32_t)load_le32(arr->data + 4 * i);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
