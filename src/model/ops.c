/* ops.c - the portable kernels, the choice among instruction sets, and RoPE's angles. */
#include "model/ops_isa.h"
#include "model/ops_kernels.h"

#include <stdbool.h>

static const model_ops portable = {"portable", ops_rms_norm,     ops_swiglu, ops_exps,
                                   ops_max,    ops_scale_logits, ops_rope};

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

void rope_freqs(double *freqs, float base, uint32_t rope_dim)
{
    for (uint32_t i = 0; i < rope_dim / 2; i++)
        freqs[i] = pow((double)base, -2.0 * i / rope_dim);
}

void rope_fill(rope_kind kind, float *table, uint32_t position, const double *freqs,
               uint32_t rope_dim)
{
    float *cosine = table, *sine = table + rope_dim;
    for (uint32_t i = 0; i < rope_dim / 2; i++) {
        double angle = position * freqs[i];
        float c = (float)cos(angle), s = (float)sin(angle);
        if (kind == ROPE_NEOX) {
            cosine[i] = cosine[i + rope_dim / 2] = c;
            sine[i] = sine[i + rope_dim / 2] = s;
        } else {
            cosine[2 * i] = cosine[2 * i + 1] = c;
            sine[2 * i] = -s;
            sine[2 * i + 1] = s;
        }
    }
}
