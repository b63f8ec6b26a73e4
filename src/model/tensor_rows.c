/* tensor_rows.c - see tensor_rows.h. How numbers lie in bytes is gguf/quant.h's matter. */
#include "model/tensor_rows.h"

#include "base/base.h"
#include "gguf/quant.h"

#include <stdio.h>

/* Bytes of a row; 0 for a type we do not have or a width its blocks do not divide. */
static uint64_t row_bytes(uint32_t type, uint64_t cols)
{
    uint32_t values, bytes;
    if (!ggml_type_decodes(type) || !ggml_type_layout(type, &values, &bytes)) return 0;
    return cols % values ? 0 : cols / values * bytes;
}

rad_status tensor_find(const gguf_file *file, const char *name, uint64_t rows, uint64_t cols,
                       const gguf_tensor **out, rad_error *err)
{
    return tensor_find_many(file, name, 1, rows, cols, out, err);
}

rad_status tensor_find_many(const gguf_file *file, const char *name, uint64_t count, uint64_t rows,
                            uint64_t cols, const gguf_tensor **out, rad_error *err)
{
    const gguf_tensor *t = gguf_find_tensor(file, name);
    if (!t) return rad_fail(err, RAD_E_FORMAT, "model: tensor %s is missing", name);
    char of_many[32] = "";
    if (count > 1) snprintf(of_many, sizeof of_many, " x %llu", (unsigned long long)count);
    if (t->dims[0] != cols || t->dims[1] != (rows ? rows : 1) || t->dims[2] != count ||
        t->dims[3] != 1)
        return rad_fail(err, RAD_E_FORMAT,
                        "model: tensor %s is %llu x %llu x %llu x %llu, expected %llu x %llu%s",
                        name, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                        (unsigned long long)t->dims[2], (unsigned long long)t->dims[3],
                        (unsigned long long)cols, (unsigned long long)(rows ? rows : 1), of_many);
    if (!ggml_type_decodes(t->type))
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "model: tensor %s has type %s, which is not supported (these are: %s)",
                        name, ggml_type_name(t->type), ggml_decodable_types());
    uint64_t want = row_bytes(t->type, cols);
    if (!want || t->bytes / want / t->dims[1] < count)
        return rad_fail(err, RAD_E_FORMAT, "model: tensor %s holds %llu bytes, too few for %s",
                        name, (unsigned long long)t->bytes, ggml_type_name(t->type));
    *out = t;
    return RAD_OK;
}

uint64_t tensor_row_size(const gguf_tensor *tensor)
{
    return row_bytes(tensor->type, tensor->dims[0]);
}

const void *tensor_row_bytes(const gguf_tensor *tensor, uint64_t row)
{
    return (const uint8_t *)tensor->data + row * row_bytes(tensor->type, tensor->dims[0]);
}

void tensor_row(const gguf_tensor *tensor, uint64_t row, float *out)
{
    ggml_decode(tensor->type, tensor_row_bytes(tensor, row), tensor->dims[0], out);
}

double tensor_share(const gguf_file *file, const gguf_tensor *tensor)
{
    static const char experts[] = "_exps.weight";
    const size_t tail = sizeof experts - 1;
    gguf_str arch = {0};
    char key[96];
    uint32_t used = 0;
    if (tensor->num_dims != 3 || tensor->name.len < tail ||
        memcmp(tensor->name.data + tensor->name.len - tail, experts, tail) ||
        gguf_get_str(file, "general.architecture", &arch, NULL) != RAD_OK)
        return 1;
    snprintf(key, sizeof key, "%.*s.expert_used_count", (int)RAD_MIN(arch.len, (size_t)64),
             arch.data);
    if (gguf_get_u32(file, key, &used, NULL) != RAD_OK || used > tensor->dims[2]) return 1;
    return (double)used / (double)tensor->dims[2];
}
