/* amx_gear.c - looks kernels up by name, the emulated ones too. */
#include "gear/amx_gear.h"

#include <string.h>

const gemm_isa *gear_gemm_isa(const char *name)
{
    return name && strcmp(name, "amx-emulated") == 0 ? &gemm_amx_emulated : gemm_isa_find(name);
}

const attn_backend *gear_attn_cpu(const char *isa)
{
    static const attn_cpu_backend emulated = {{"cpu-amx-emulated", attn_cpu_forward},
                                              &attn_isa_avx512,
                                              &attn_tiles_emulated,
                                              "cpu-amx-emulated-codes"};
    if (!isa || strcmp(isa, "amx-emulated") != 0) return attn_cpu(isa);
    return attn_tiles_emulated.attend && attn_cpu("avx512bf16") ? &emulated.base : NULL;
}
