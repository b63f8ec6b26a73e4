/* gemm_quant_i8mm.c - the same with FEAT_I8MM's SMMLA. */
#include "model/gemm_kernels.h"

#if defined(__aarch64__)
#define NEON_DOT
#define NEON_MMLA
#include "model/gemm_quant_neon_body.h"

const gemm_quant_isa gemm_quant_i8mm = QUANT_NEON;
#else
const gemm_quant_isa gemm_quant_i8mm = {.round_row = NULL}; /* not this architecture */
#endif
