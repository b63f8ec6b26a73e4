/* ops.c - the portable kernels, and the choice among instruction sets. */
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
    if (wanted(isa, "avx512") && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma"))
        return &model_ops_avx512;
    /* f16c is not asked for: every CPU with AVX2 has it, and clang knows no name for it. */
    if (wanted(isa, "avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &model_ops_avx2;
#endif
    return wanted(isa, "portable") ? &portable : NULL;
}
