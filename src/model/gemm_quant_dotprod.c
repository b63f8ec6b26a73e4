/* gemm_quant_dotprod.c - the same with FEAT_DotProd's SDOT. */
#include "model/gemm_kernels.h"

#if defined(__aarch64__)
#define NEON_DOT
#include "model/gemm_quant_neon_body.h"

const gemm_quant_isa gemm_quant_dotprod = QUANT_NEON;
#else
const gemm_quant_isa gemm_quant_dotprod = {.round_row = NULL}; /* not this architecture */
#endif
