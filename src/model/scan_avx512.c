/* scan_avx512.c - the recurrences sixteen columns at a time. */
#include "model/scan.h"

#if defined(__x86_64__)
#include <immintrin.h>

typedef __m512 vec;
enum { WIDTH = 16 };
#define vec_load  _mm512_load_ps
#define vec_store _mm512_store_ps
#define vec_set1  _mm512_set1_ps
#define vec_mul   _mm512_mul_ps
#define vec_fma   _mm512_fmadd_ps
#define vec_fnma  _mm512_fnmadd_ps

#include "model/scan_body.h"

const scan_isa scan_avx512 = {"avx512", run_delta, run_mamba};
#else
const scan_isa scan_avx512 = {0};
#endif
