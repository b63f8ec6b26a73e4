/* gemm_isa.c - the best of what this CPU can do, up to the cap of base/cpu.h. */
#include "base/amx.h"
#include "base/cpu.h"
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

static bool usable(const gemm_isa *isa)
{
    const char *why;
    if (!isa->f32) return false; /* compiled for another architecture */
    if (isa == &gemm_scalar) return true;
    if (isa == &gemm_neon) return cpu_has(CPU_NEON);
    if (isa == &gemm_dotprod) return cpu_has(CPU_DOTPROD);
    if (isa == &gemm_i8mm) return cpu_has(CPU_I8MM);
    if (isa == &gemm_avx2) return cpu_has(CPU_AVX2);
    if (isa == &gemm_avxvnni) return cpu_has(CPU_AVXVNNI);
    if (isa == &gemm_avx512) return cpu_has(CPU_AVX512);
    if (!cpu_has(CPU_AVX512VNNI)) return false;
    if (isa == &gemm_avx512bf16) return cpu_has(CPU_AVX512BF16);
    if (isa == &gemm_amx_vnni) return amx_usable(&why);
    if (isa == &gemm_amx) return amx_usable(&why) && amx_int8_usable(&why);
    return true;
}

const gemm_isa *gemm_isa_find(const char *name)
{
    static const gemm_isa *const best_first[] = {
        &gemm_amx,  &gemm_amx_vnni, &gemm_avx512bf16, &gemm_avx512vnni, &gemm_avx512, &gemm_avxvnni,
        &gemm_avx2, &gemm_i8mm,     &gemm_dotprod,    &gemm_neon,       &gemm_scalar};
    for (size_t i = 0; i < RAD_COUNT(best_first); i++)
        if ((!name || strcmp(name, best_first[i]->name) == 0) && usable(best_first[i]))
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
