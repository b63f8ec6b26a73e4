/* gemm_quant_neon.c - the quantised kernels of every aarch64. */
#include "model/gemm_kernels.h"

#if defined(__aarch64__)
#include "model/gemm_quant_neon_body.h"

const gemm_quant_isa gemm_quant_neon = QUANT_NEON;
#else
const gemm_quant_isa gemm_quant_neon = {.round_row = NULL}; /* not this architecture */
#endif
