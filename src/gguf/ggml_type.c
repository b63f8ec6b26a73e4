/* ggml_type.c - the names of tensor types, and how many bytes a block of each takes. */
#include "gguf/gguf.h"

#include <stdio.h>

static const struct type_info {
    const char *name;
    uint16_t block_values;
    uint16_t block_bytes;
} types[] = {
    [GGML_F32] = {"F32", 1, 4},
    [GGML_F16] = {"F16", 1, 2},
    [GGML_BF16] = {"BF16", 1, 2},
    [GGML_Q4_0] = {"Q4_0", 32, 18},
    [GGML_Q4_1] = {"Q4_1", 32, 20},
    [GGML_Q5_0] = {"Q5_0", 32, 22},
    [GGML_Q5_1] = {"Q5_1", 32, 24},
    [GGML_Q8_0] = {"Q8_0", 32, 34},
    [GGML_IQ4_NL] = {"IQ4_NL", 32, 18},
    [GGML_MXFP4] = {"MXFP4", 32, 17},
    [GGML_Q2_K] = {"Q2_K", 256, 84},
    [GGML_Q3_K] = {"Q3_K", 256, 110},
    [GGML_Q4_K] = {"Q4_K", 256, 144},
    [GGML_Q5_K] = {"Q5_K", 256, 176},
    [GGML_Q6_K] = {"Q6_K", 256, 210},
    [GGML_IQ4_XS] = {"IQ4_XS", 256, 136},
    /* Known by name alone. */
    [GGML_IQ1_S] = {"IQ1_S", 256, 50},
    [GGML_IQ1_M] = {"IQ1_M", 256, 56},
    [GGML_IQ2_XXS] = {"IQ2_XXS", 256, 66},
    [GGML_IQ2_XS] = {"IQ2_XS", 256, 74},
    [GGML_IQ2_S] = {"IQ2_S", 256, 82},
    [GGML_IQ3_XXS] = {"IQ3_XXS", 256, 98},
    [GGML_IQ3_S] = {"IQ3_S", 256, 110},
    [GGML_TQ1_0] = {"TQ1_0", 256, 54},
    [GGML_TQ2_0] = {"TQ2_0", 256, 66},
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
