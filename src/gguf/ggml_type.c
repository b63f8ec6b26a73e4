/* ggml_type.c - the names of tensor types. */
#include "gguf/gguf.h"

#include <stdio.h>

const char *ggml_type_name(uint32_t type)
{
    switch (type) {
    case GGML_F32: return "F32";
    case GGML_F16: return "F16";
    case GGML_Q4_0: return "Q4_0";
    case GGML_Q4_1: return "Q4_1";
    case GGML_Q5_0: return "Q5_0";
    case GGML_Q5_1: return "Q5_1";
    case GGML_Q8_0: return "Q8_0";
    case GGML_Q2_K: return "Q2_K";
    case GGML_Q3_K: return "Q3_K";
    case GGML_Q4_K: return "Q4_K";
    case GGML_Q5_K: return "Q5_K";
    case GGML_Q6_K: return "Q6_K";
    case GGML_BF16: return "BF16";
    default: break;
    }
    static _Thread_local char unknown[24];
    snprintf(unknown, sizeof unknown, "type %u", type);
    return unknown;
}
