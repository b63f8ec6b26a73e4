/* gemm_quant_avxvnni.c - quantised kernels with VPDPBUSD over vectors of 256 bits. */
#include "model/gemm_kernels.h"

#if defined(__AVXVNNI__) && defined(__FMA__) && defined(__F16C__)
#include "model/gemm_quant_avx2_body.h"

const gemm_quant_isa gemm_quant_avxvnni = GEMM_QUANT_ISA;
#else
const gemm_quant_isa gemm_quant_avxvnni = {0}; /* not this architecture */
#endif
