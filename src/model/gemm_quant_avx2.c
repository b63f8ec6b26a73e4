/* gemm_quant_avx2.c - quantised kernels without integer dot products. */
#include "model/gemm_kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "model/gemm_quant_avx2_body.h"

const gemm_quant_isa gemm_quant_avx2 = GEMM_QUANT_ISA;
#else
const gemm_quant_isa gemm_quant_avx2 = {0}; /* not this architecture */
#endif
