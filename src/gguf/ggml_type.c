/* ggml_type.c - the names of tensor types, and how many bytes a block of each takes. */
#include "gguf/gguf.h"

#include <stdio.h>

static const struct type_info {
    const char *name;
    uint16_t block_values;
    uint16_t block_bytes;
} types[] = {
    [GGML_F32] = {"F32", 1, 4},       [GGML_F16] = {"F16", 1, 2},
    [GGML_Q4_0] = {"Q4_0", 32, 18},   [GGML_Q4_1] = {"Q4_1", 32, 20},
    [GGML_Q5_0] = {"Q5_0", 32, 22},   [GGML_Q5_1] = {"Q5_1", 32, 24},
    [GGML_Q8_0] = {"Q8_0", 32, 34},   [GGML_Q2_K] = {"Q2_K", 256, 84},
    [GGML_Q3_K] = {"Q3_K", 256, 110}, [GGML_Q4_K] = {"Q4_K", 256, 144},
    [GGML_Q5_K] = {"Q5_K", 256, 176}, [GGML_Q6_K] = {"Q6_K", 256, 210},
    [GGML_BF16] = {"BF16", 1, 2},     [GGML_MXFP4] = {"MXFP4", 32, 17},
};

static const struct type_info *find_type(uint32_t type)
{
    return type < sizeof types / sizeof types[0] && types[type].name ? &types[type] : NULL;
}

const char *ggml_type_name(uint32_t type)
{
    const struct type_info *info = find_type(type);
    if (info) return info->name;
    static _Thread_local char unknown[24];
    snprintf(unknown, sizeof unknown, "type %u", type);
    return unknown;
}

bool ggml_type_layout(uint32_t type, uint32_t *block_values, uint32_t *block_bytes)
{
    const struct type_info *info = find_type(type);
    if (!info) return false;
    *block_values = info->block_values;
    *block_bytes = info->block_bytes;
    return true;
}
