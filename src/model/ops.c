/* ops.c - the portable kernels, and the choice among instruction sets. */
#include "base/cpu.h"
#include "model/ops_isa.h"
#include "model/ops_kernels.h"

#include <stdbool.h>

static const model_ops portable = OPS_TABLE("portable");

static bool wanted(const char *isa, const char *name)
{
    return !isa || !strcmp(isa, name);
}

const model_ops *model_ops_find(const char *isa)
{
#if defined(__x86_64__)
    if (wanted(isa, "avx512") && cpu_has(CPU_AVX512)) return &model_ops_avx512;
    if (wanted(isa, "avx2") && cpu_has(CPU_AVX2)) return &model_ops_avx2;
#endif
    return wanted(isa, "portable") ? &portable : NULL;
}
