/* gemm_isa.c - the best of what this CPU can do. */
#include "model/gemm_kernels.h"

#include <string.h>

static bool cpu_has(const gemm_isa *isa)
{
    if (!isa->f32) return false; /* compiled for another architecture */
    if (isa == &gemm_scalar || isa == &gemm_amx_emulated) return true;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (isa == &gemm_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (isa == &gemm_avx512) return avx512;
    bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    if (isa == &gemm_avx512vnni) return vnni;
    if (isa == &gemm_avx512bf16) return vnni && __builtin_cpu_supports("avx512bf16");
    if (isa == &gemm_amx_vnni) return vnni && gemm_amx_usable(NULL);
    if (isa == &gemm_amx) return vnni && gemm_amx_usable(NULL) && gemm_amx_int8_usable(NULL);
#endif
    return false;
}

const gemm_isa *gemm_isa_find(const char *name)
{
    static const gemm_isa *const best_first[] = {
        &gemm_amx,    &gemm_amx_vnni, &gemm_avx512bf16, &gemm_avx512vnni,
        &gemm_avx512, &gemm_avx2,     &gemm_scalar,     &gemm_amx_emulated};
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
    return gemm_amx_usable(&why) ? NULL : why;
}

const char *gemm_amx_int8_refusal(void)
{
    const char *why;
    return gemm_amx_int8_usable(&why) ? NULL : why;
}
