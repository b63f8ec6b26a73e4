/* scan_avx2.c - the recurrences eight columns at a time. */
#include "model/scan.h"

#if defined(__x86_64__)
#include <immintrin.h>

typedef __m256 vec;
enum { WIDTH = 8 };
#define vec_load  _mm256_load_ps
#define vec_store _mm256_store_ps
#define vec_set1  _mm256_set1_ps
#define vec_mul   _mm256_mul_ps
#define vec_fma   _mm256_fmadd_ps
#define vec_fnma  _mm256_fnmadd_ps

#include "model/scan_body.h"

const scan_isa scan_avx2 = {"avx2", run_delta, run_mamba};
#else
const scan_isa scan_avx2 = {0};
#endif
