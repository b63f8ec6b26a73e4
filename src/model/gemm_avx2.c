/* gemm_avx2.c - up to 6 rows x a column of the panel: 8 to 12 sums in flight and no spills in 16
 * registers (gemm_columns_body.h).
 *
 *     rows   column   sums
 *        1      64      8    the whole panel: every line is read once, in order
 *        2      32      8
 *     3..6      16   6..12 */
#include "model/gemm_kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

enum { LANES = 8, WIDTH_1 = 8, WIDTH_2 = 4, WIDTH_TALL = 2 };
typedef __m256 vec;

#define vec_zero()         _mm256_setzero_ps()
#define vec_load(from)     _mm256_loadu_ps(from)
#define vec_store(to, v)   _mm256_storeu_ps(to, v)
#define vec_fma(sum, x, w) _mm256_fmadd_ps(_mm256_broadcast_ss(x), w, sum)
#define vec_of_f16(from)   _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from)))
#define ask_near(line)     _mm_prefetch(line, _MM_HINT_T0)
#define ask_next(line)     _mm_prefetch(line, _MM_HINT_T1)
#define rest_after(r)      (void)(r)

static inline __attribute__((always_inline)) vec vec_of_low(const uint32_t *pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)pairs), 16));
}

static inline __attribute__((always_inline)) vec vec_of_high(const uint32_t *pairs)
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000);
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256((const __m256i *)pairs), high));
}

#include "model/gemm_columns_body.h"

const gemm_isa gemm_avx2 = GEMM_COLUMNS_ISA("avx2", gemm_quant_avx2);
const gemm_isa gemm_avxvnni = GEMM_COLUMNS_ISA("avxvnni", gemm_quant_avxvnni);
#else
const gemm_isa gemm_avxvnni = {.name = "avxvnni"};
const gemm_isa gemm_avx2 = {.name = "avx2"}; /* not this architecture */
#endif
