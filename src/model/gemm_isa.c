/* gemm_isa.c - the best of what this CPU can do. */
#include "base/amx.h"
#include "model/gemm_kernels.h"

#include <string.h>

/* AMX is compiled in, and the CPU and the system let this process use it; `why` as amx.h has it. */
static bool amx_usable(const char **why)
{
    *why = NULL;
    return gemm_amx.bf16_block && amx_permitted(why);
}

static bool amx_int8_usable(const char **why)
{
    *why = NULL;
    return gemm_amx.quant_block && amx_int8_permitted(why);
}

static bool cpu_has(const gemm_isa *isa)
{
    if (!isa->f32) return false; /* compiled for another architecture */
    if (isa == &gemm_scalar) return true;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (isa == &gemm_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const char *why;
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (isa == &gemm_avx512) return avx512;
    bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    if (isa == &gemm_avx512vnni) return vnni;
    if (isa == &gemm_avx512bf16) return vnni && __builtin_cpu_supports("avx512bf16");
    if (isa == &gemm_amx_vnni) return vnni && amx_usable(&why);
    if (isa == &gemm_amx) return vnni && amx_usable(&why) && amx_int8_usable(&why);
#endif
    return false;
}

const gemm_isa *gemm_isa_find(const char *name)
{
    static const gemm_isa *const best_first[] = {&gemm_amx,        &gemm_amx_vnni, &gemm_avx512bf16,
                                                 &gemm_avx512vnni, &gemm_avx512,   &gemm_avx2,
                                                 &gemm_scalar};
    for (size_t i = 0; i < RAD_COUNT(best_first); i++)
        if ((!name || strcmp(name, best_first[i]->name) == 0) && cpu_has(best_first[i]))
            return best_first[i];
    return NULL;
}

const char *gemm_isa_name(const gemm_isa *isa)
{
    return isa->name;
}

const char *gemm_amx_refusal(void)
{
    const char *why;
    return amx_usable(&why) ? NULL : why;
}

const char *gemm_amx_int8_refusal(void)
{
    const char *why;
    return amx_int8_usable(&why) ? NULL : why;
}
