/* ops_avx2.c - the kernels of ops_kernels.h for AVX2. */
#if defined(__x86_64__)
#include "model/ops_isa.h"
#include "model/ops_kernels.h"

const model_ops model_ops_avx2 = OPS_TABLE("avx2");
#else
typedef int no_avx2_here;
#endif
