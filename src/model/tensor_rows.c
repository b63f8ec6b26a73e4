/* tensor_rows.c - see tensor_rows.h.
 *
 *     F32    4 bytes each
 *     F16    2 bytes each, IEEE half
 *     BF16   2 bytes each, the upper half of an f32
 *     Q8_0   blocks of 34 bytes: f16 scale d, then 32 int8 q; value = d * q
 *
 * All little endian and possibly unaligned, so values are copied before they are
 * looked at. The product d * q has at most 11 + 7 significant bits: exact in f32. */
#include "model/tensor_rows.h"
#include "base/base.h"

enum { Q8_0_BLOCK = 32, Q8_0_BYTES = 34 };

float f16_to_f32(uint16_t bits)
{
    /* Place exponent and fraction where f32 has them and correct the bias by a
     * multiplication, which also normalises subnormals. */
    uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13;
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    float value;
    memcpy(&value, &magnitude, sizeof value);
    value *= 0x1p112f;
    uint32_t out;
    memcpy(&out, &value, sizeof out);
    if (magnitude >= 0x0f800000) out = magnitude | 0x7f800000; /* infinity, NaN */
    out |= sign;
    memcpy(&value, &out, sizeof value);
    return value;
}

static uint16_t load_u16(const uint8_t *p)
{
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits;
}

/* Bytes of a row; 0 for a type we do not have or a width its blocks do not divide. */
static uint64_t row_bytes(uint32_t type, uint64_t cols)
{
    switch (type) {
    case GGML_F32: return cols * 4;
    case GGML_F16:
    case GGML_BF16: return cols * 2;
    case GGML_Q8_0: return cols % Q8_0_BLOCK ? 0 : cols / Q8_0_BLOCK * Q8_0_BYTES;
    default: return 0;
    }
}

rad_status tensor_find(const gguf_file *file, const char *name, uint64_t rows, uint64_t cols,
                       const gguf_tensor **out, rad_error *err)
{
    const gguf_tensor *t = gguf_find_tensor(file, name);
    if (!t) return rad_fail(err, RAD_E_FORMAT, "model: tensor %s is missing", name);
    if (t->dims[0] != cols || t->dims[1] != (rows ? rows : 1) || t->dims[2] != 1 || t->dims[3] != 1)
        return rad_fail(err, RAD_E_FORMAT,
                        "model: tensor %s is %llu x %llu x %llu x %llu, expected %llu x %llu", name,
                        (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                        (unsigned long long)t->dims[2], (unsigned long long)t->dims[3],
                        (unsigned long long)cols, (unsigned long long)(rows ? rows : 1));
    if (t->type != GGML_F32 && t->type != GGML_F16 && t->type != GGML_BF16 && t->type != GGML_Q8_0)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "model: tensor %s has type %s, which is not supported (these are: F32, "
                        "F16, BF16, Q8_0)",
                        name, ggml_type_name(t->type));
    uint64_t want = row_bytes(t->type, cols);
    if (!want || t->bytes / want < t->dims[1])
        return rad_fail(err, RAD_E_FORMAT, "model: tensor %s holds %llu bytes, too few for %s",
                        name, (unsigned long long)t->bytes, ggml_type_name(t->type));
    *out = t;
    return RAD_OK;
}

static void rows_f16(const uint8_t *p, uint64_t cols, float *out)
{
    for (uint64_t i = 0; i < cols; i++)
        out[i] = f16_to_f32(load_u16(p + 2 * i));
}

static void rows_bf16(const uint8_t *p, uint64_t cols, float *out)
{
    for (uint64_t i = 0; i < cols; i++) {
        uint32_t bits = (uint32_t)load_u16(p + 2 * i) << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
}

static void rows_q8_0(const uint8_t *p, uint64_t cols, float *out)
{
    for (uint64_t b = 0; b < cols / Q8_0_BLOCK; b++, p += Q8_0_BYTES) {
        float d = f16_to_f32(load_u16(p));
        for (uint64_t i = 0; i < Q8_0_BLOCK; i++)
            out[b * Q8_0_BLOCK + i] = d * (float)(int8_t)p[2 + i];
    }
}

void tensor_row(const gguf_tensor *tensor, uint64_t row, float *out)
{
    uint64_t cols = tensor->dims[0];
    const uint8_t *p = (const uint8_t *)tensor->data + row * row_bytes(tensor->type, cols);
    switch (tensor->type) {
    case GGML_F32: memcpy(out, p, cols * sizeof *out); break;
    case GGML_F16: rows_f16(p, cols, out); break;
    case GGML_BF16: rows_bf16(p, cols, out); break;
    case GGML_Q8_0: rows_q8_0(p, cols, out); break;
    default: RAD_ASSERT(!"a tensor that tensor_find refuses");
    }
}
