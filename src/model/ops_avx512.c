/* ops_avx512.c - the kernels of ops_kernels.h for AVX-512. */
#if defined(__x86_64__)
#include "model/ops_isa.h"
#include "model/ops_kernels.h"

const model_ops model_ops_avx512 = {"avx512", ops_rms_norm,     ops_swiglu, ops_exps,
                                    ops_max,  ops_scale_logits, ops_rope};
#else
typedef int no_avx512_here;
#endif
