/* gguf_cursor.c - one cursor walks the metadata once, and checks each step before it takes it.
 *
 * It compares what is asked with what remains before it moves: `need` never adds, so a length
 * of 2^64 - 1 cannot wrap. An array's count is compared with the bytes that its elements must
 * at least take before anything is allocated for them.
 *
 * Invariant: pos <= num_bytes, and every string and array that was read lies in between. */
#include "gguf/gguf_cursor.h"

rad_status gguf_need(const gguf_cursor *c, uint64_t bytes, const char *what)
{
    if (bytes <= gguf_remaining(c)) return RAD_OK;
    return rad_fail(c->err, RAD_E_FORMAT,
                    "gguf: %s at byte %zu needs %llu bytes, but only %zu are left of the file",
                    what, c->pos, (unsigned long long)bytes, gguf_remaining(c));
}

/* Little-endian, so that a big-endian host reads files as well. */
static uint64_t load_le(const uint8_t *bytes, size_t size)
{
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;)
        value = value << 8 | bytes[i];
    return value;
}

rad_status gguf_read_u32(gguf_cursor *c, const char *what, uint32_t *out)
{
    rad_status status = gguf_need(c, 4, what);
    if (status) return status;
    *out = (uint32_t)load_le(c->bytes + c->pos, 4);
    c->pos += 4;
    return RAD_OK;
}

rad_status gguf_read_u64(gguf_cursor *c, const char *what, uint64_t *out)
{
    rad_status status = gguf_need(c, 8, what);
    if (status) return status;
    *out = load_le(c->bytes + c->pos, 8);
    c->pos += 8;
    return RAD_OK;
}

rad_status gguf_read_str(gguf_cursor *c, const char *what, gguf_str *out)
{
    uint64_t len;
    rad_status status = gguf_read_u64(c, what, &len);
    if (status) return status;
    status = gguf_need(c, len, what);
    if (status) return status;
    *out = (gguf_str){(const char *)c->bytes + c->pos, (size_t)len};
    c->pos += (size_t)len;
    return RAD_OK;
}

size_t gguf_scalar_bytes(uint32_t type)
{
    switch (type) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL: return 1;
    case GGUF_U16:
    case GGUF_I16: return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32: return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64: return 8;
    default: return 0;
    }
}

static rad_status read_scalar(gguf_cursor *c, gguf_kv *kv, size_t size)
{
    rad_status status = gguf_need(c, size, "a value");
    if (status) return status;
    uint64_t raw = load_le(c->bytes + c->pos, size);
    switch (kv->type) {
    case GGUF_I8: kv->i = (int8_t)raw; break;
    case GGUF_I16: kv->i = (int16_t)raw; break;
    case GGUF_I32: kv->i = (int32_t)raw; break;
    case GGUF_I64: kv->i = (int64_t)raw; break;
    case GGUF_F32: {
        uint32_t bits = (uint32_t)raw;
        float f;
        memcpy(&f, &bits, sizeof f);
        kv->f = f;
        break;
    }
    case GGUF_F64: memcpy(&kv->f, &raw, sizeof kv->f); break;
    case GGUF_BOOL:
        if (raw > 1)
            return rad_fail(c->err, RAD_E_FORMAT, "gguf: key '%s' at byte %zu: a bool of %u",
                            gguf_show(kv->key).text, c->pos, (unsigned)raw);
        kv->u = raw;
        break;
    default: kv->u = raw; break;
    }
    c->pos += size;
    return RAD_OK;
}

static rad_status read_array(gguf_cursor *c, const rad_env *env, gguf_kv *kv)
{
    size_t start = c->pos;
    uint32_t type;
    uint64_t count;
    rad_status status = gguf_read_u32(c, "an array's type", &type);
    if (!status) status = gguf_read_u64(c, "an array's count", &count);
    if (status) return status;
    if (type == GGUF_ARR)
        return rad_fail(c->err, RAD_E_UNSUPPORTED, "gguf: key '%s' at byte %zu: array of arrays",
                        gguf_show(kv->key).text, start);

    size_t least = type == GGUF_STR ? 8 : gguf_scalar_bytes(type);
    if (!least)
        return rad_fail(c->err, RAD_E_FORMAT, "gguf: key '%s' at byte %zu: unknown array type %u",
                        gguf_show(kv->key).text, start, type);
    if (count > gguf_remaining(c) / least)
        return rad_fail(c->err, RAD_E_FORMAT,
                        "gguf: key '%s' at byte %zu: %llu elements do not fit into the %zu bytes "
                        "that are left of the file",
                        gguf_show(kv->key).text, start, (unsigned long long)count,
                        gguf_remaining(c));

    gguf_array *arr = &kv->arr;
    *arr = (gguf_array){.type = (gguf_type)type, .data = c->bytes + c->pos};
    if (type != GGUF_STR) {
        arr->count = count;
        c->pos += (size_t)count * least;
        return RAD_OK;
    }
    if (!count) return RAD_OK;
    gguf_str *strs = rad_alloc(env, rad_mul((size_t)count, sizeof *strs));
    if (!strs)
        return rad_fail(c->err, RAD_E_NOMEM, "gguf: no memory for %llu strings",
                        (unsigned long long)count);
    arr->strs = strs; /* from here on gguf_kv_fini frees them */
    arr->count = count;
    for (uint64_t i = 0; i < count && !status; i++)
        status = gguf_read_str(c, "an array's string", &strs[i]);
    return status;
}

rad_status gguf_read_kv(gguf_cursor *c, const rad_env *env, gguf_kv *kv)
{
    uint32_t type;
    rad_status status = gguf_read_str(c, "a key", &kv->key);
    if (!status) status = gguf_read_u32(c, "a value's type", &type);
    if (status) return status;
    kv->type = (gguf_type)type;
    if (type == GGUF_STR) return gguf_read_str(c, "a string value", &kv->str);
    if (type == GGUF_ARR) return read_array(c, env, kv);
    size_t size = gguf_scalar_bytes(type);
    if (size) return read_scalar(c, kv, size);
    kv->type = GGUF_U8;
    return rad_fail(c->err, RAD_E_FORMAT, "gguf: key '%s': unknown value type %u at byte %zu",
                    gguf_show(kv->key).text, type, c->pos - 4);
}

void gguf_kv_fini(gguf_kv *kv, const rad_env *env)
{
    if (kv->type == GGUF_ARR)
        rad_free(env, (void *)kv->arr.strs, (size_t)kv->arr.count * sizeof(gguf_str));
}
