/* ops_avx512.c - the kernels of ops_kernels.h for AVX-512. */
#if defined(__x86_64__)
#include "model/ops_isa.h"
#include "model/ops_kernels.h"

const model_ops model_ops_avx512 = OPS_TABLE("avx512");
#else
typedef int no_avx512_here;
#endif
