/* gemm_quant_avx512vnni.c - VPDPBUSD: 64 products of bytes an instruction, four to a lane.
 *
 * A tile needs two sums an output, the block's integers and the chain in f32, so half as
 * many outputs fit as in gemm_tile_avx512.h: up to three rows go over the whole width of the
 * panel (decode reads every line once, in order), four to six over one half after the
 * other. In a block of 32 an output costs 8 dot products, a conversion, a product of two
 * scales and an fma. */
#include "model/gemm_kernels.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>

#define TILE static inline __attribute__((always_inline))

enum { WIDE = GEMM_PANEL / 16, HALF = WIDE / 2, LOW_ROWS = 3 };

/* A tile and its share of the panel: V vectors from vector `v0` on. */
TILE void load_sums(const uint32_t rows, const int V, __m512 acc[][WIDE], const gemm_tile *t,
                    int v0)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            acc[r][v] = t->fresh ? _mm512_setzero_ps()
                                 : _mm512_loadu_ps(t->c + r * t->ldc + 16 * (v0 + v));
}

TILE void store_sums(const uint32_t rows, const int V, __m512 acc[][WIDE], const gemm_tile *t,
                     int v0)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            _mm512_storeu_ps(t->c + r * t->ldc + 16 * (v0 + v), acc[r][v]);
}

/* This step's share of what comes next, to the L2 cache: all of it, or every other line. */
TILE void prefetch(const gemm_tile *t, uint32_t step, const int V, int v0)
{
    const char *ahead = t->ahead + step * t->ahead_stride;
    for (size_t i = V == WIDE ? 0 : 64 * (size_t)(v0 / HALF); i < t->ahead_stride;
         i += V == WIDE ? 64 : 128)
        _mm_prefetch(ahead + i, _MM_HINT_T1);
}

/* sum[r][v] += word `at` of each row's block times w[v]. */
TILE void dot(const uint32_t rows, const int V, __m512i sum[][WIDE], const gemm_xblock *x,
              size_t ldx, uint32_t at, const __m512i w[WIDE])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        int32_t word;
        memcpy(&word, x[r * ldx].q + at, sizeof word);
        __m512i four = _mm512_set1_epi32(word);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], w[v], four);
    }
}

TILE void start(const uint32_t rows, const int V, __m512i sum[][WIDE], const gemm_xblock *x,
                size_t ldx)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            sum[r][v] = _mm512_set1_epi32(x[r * ldx].start);
}

TILE void finish(const uint32_t rows, const int V, __m512 acc[][WIDE], __m512i sum[][WIDE],
                 const gemm_xblock *x, size_t ldx, const __m512 d[WIDE])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            acc[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][v]),
                                        _mm512_mul_ps(d[v], _mm512_set1_ps(x[r * ldx].d)),
                                        acc[r][v]);
}

TILE void load_words(const int V, __m512i w[WIDE], const uint32_t *words)
{
#pragma GCC unroll 4
    for (int v = 0; v < V; v++)
        w[v] = _mm512_loadu_si512(words + 16 * v);
}

/* A block of 32 nibbles: q points at this half's first row. */
TILE void dot_q4(const uint32_t rows, const int V, __m512i sum[][WIDE], const gemm_xblock *x,
                 size_t ldx, const uint32_t *q)
{
    const __m512i nibble = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (uint32_t g = 0; g < 4; g++) {
        __m512i w[WIDE], half[WIDE];
        load_words(V, w, q + g * GEMM_PANEL);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            half[v] = _mm512_and_si512(w[v], nibble);
        dot(rows, V, sum, x, ldx, 4 * g, half);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            half[v] = _mm512_and_si512(_mm512_srli_epi16(w[v], 4), nibble);
        dot(rows, V, sum, x, ldx, 16 + 4 * g, half);
    }
}

TILE void load_f16(const int V, __m512 d[WIDE], const uint16_t *from)
{
#pragma GCC unroll 4
    for (int v = 0; v < V; v++)
        d[v] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + 16 * v)));
}

/* d times a byte each: exact. */
TILE void scale_f16(const int V, __m512 out[WIDE], const uint16_t *from, const uint8_t *by)
{
    load_f16(V, out, from);
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
        __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(by + 16 * v)));
        out[v] = _mm512_mul_ps(out[v], _mm512_cvtepi32_ps(wide));
    }
}

TILE void tile_q8_0(const uint32_t rows, const int V, const gemm_tile *t, int v0)
{
    const gemm_xblock *x = t->x;
    const gemm_q8_0_step *step = t->w;
    __m512 acc[GEMM_TILE_ROWS][WIDE];
    load_sums(rows, V, acc, t, v0);
    for (uint32_t s = 0; s < t->depth; s++, step++, x++) {
        __m512i sum[GEMM_TILE_ROWS][WIDE], w[WIDE];
        __m512 d[WIDE];
        prefetch(t, s, V, v0);
        start(rows, V, sum, x, t->ldx);
#pragma GCC unroll 8
        for (uint32_t g = 0; g < 8; g++) {
            load_words(V, w, step->q[g] + 16 * v0);
            dot(rows, V, sum, x, t->ldx, 4 * g, w);
        }
        load_f16(V, d, step->d + 16 * v0);
        finish(rows, V, acc, sum, x, t->ldx, d);
    }
    store_sums(rows, V, acc, t, v0);
}

TILE void tile_q4_0(const uint32_t rows, const int V, const gemm_tile *t, int v0)
{
    const gemm_xblock *x = t->x;
    const gemm_q4_0_step *step = t->w;
    __m512 acc[GEMM_TILE_ROWS][WIDE];
    load_sums(rows, V, acc, t, v0);
    for (uint32_t s = 0; s < t->depth; s++, step++, x++) {
        __m512i sum[GEMM_TILE_ROWS][WIDE];
        __m512 d[WIDE];
        prefetch(t, s, V, v0);
        start(rows, V, sum, x, t->ldx);
        dot_q4(rows, V, sum, x, t->ldx, step->q[0] + 16 * v0);
        load_f16(V, d, step->d + 16 * v0);
        finish(rows, V, acc, sum, x, t->ldx, d);
    }
    store_sums(rows, V, acc, t, v0);
}

TILE void tile_q4_k(const uint32_t rows, const int V, const gemm_tile *t, int v0)
{
    const gemm_xblock *x = t->x;
    const gemm_q4_k_step *step = t->w;
    __m512 acc[GEMM_TILE_ROWS][WIDE];
    load_sums(rows, V, acc, t, v0);
    for (uint32_t s = 0; s < t->depth; s++, step++) {
        prefetch(t, s, V, v0);
        for (uint32_t j = 0; j < GEMM_K_GROUPS; j++, x++) {
            __m512i sum[GEMM_TILE_ROWS][WIDE];
            __m512 d[WIDE];
            start(rows, V, sum, x, t->ldx);
            dot_q4(rows, V, sum, x, t->ldx, step->group[j].q[0] + 16 * v0);
            scale_f16(V, d, step->d + 16 * v0, step->group[j].scale + 16 * v0);
            finish(rows, V, acc, sum, x, t->ldx, d);
            scale_f16(V, d, step->dmin + 16 * v0, step->group[j].min + 16 * v0);
#pragma GCC unroll 6
            for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
                for (int v = 0; v < V; v++)
                    acc[r][v] =
                        _mm512_fnmadd_ps(d[v], _mm512_set1_ps(x[r * t->ldx].sum), acc[r][v]);
        }
    }
    store_sums(rows, V, acc, t, v0);
}

/* One kernel: the tile of `name` at every height. */
#define KERNEL(name)                                                                               \
    static void avx512_##name(const gemm_tile *t)                                                  \
    {                                                                                              \
        switch (t->rows) {                                                                         \
        case 1: tile_##name(1, WIDE, t, 0); return;                                                \
        case 2: tile_##name(2, WIDE, t, 0); return;                                                \
        case LOW_ROWS: tile_##name(LOW_ROWS, WIDE, t, 0); return;                                  \
        default: break;                                                                            \
        }                                                                                          \
        for (int v0 = 0; v0 < WIDE; v0 += HALF) {                                                  \
            switch (t->rows) {                                                                     \
            case 4: tile_##name(4, HALF, t, v0); break;                                            \
            case 5: tile_##name(5, HALF, t, v0); break;                                            \
            default: tile_##name(6, HALF, t, v0); break;                                           \
            }                                                                                      \
        }                                                                                          \
    }

KERNEL(q8_0)
KERNEL(q4_0)
KERNEL(q4_k)

/* gemm_round_to_blocks for whole blocks, the same operations 16 at a time. */
static void round_row(const float *x, uint32_t k, int32_t offset, gemm_xblock *dst)
{
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
    for (; k >= GEMM_XBLOCK; k -= GEMM_XBLOCK, x += GEMM_XBLOCK, dst++) {
        __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
        uint32_t most = _mm512_reduce_max_epu32(
            _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), no_sign),
                             _mm512_and_si512(_mm512_castps_si512(high), no_sign)));
        if (most >= 0x7f800000 || most < 0x0d800000) { /* not finite, or next to nothing */
            gemm_round_to_blocks(x, GEMM_XBLOCK, offset, dst);
            continue;
        }
        __m512 up = _mm512_set1_ps(127.0f / f32_of_bits(most));
        __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(low, up));
        __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(high, up));
        int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
        _mm_storeu_si128((__m128i *)dst->q, _mm512_cvtepi32_epi8(a));
        _mm_storeu_si128((__m128i *)(dst->q + 16), _mm512_cvtepi32_epi8(b));
        dst->d = f32_of_bits(most) / 127.0f;
        dst->start = -offset * sum;
        dst->sum = dst->d * (float)sum;
        dst->unused = 0;
    }
    gemm_round_to_blocks(x, k, offset, dst);
}

const gemm_quant_isa gemm_quant_avx512vnni = {avx512_q8_0, avx512_q4_0, avx512_q4_k, round_row};
#else
const gemm_quant_isa gemm_quant_avx512vnni = {0}; /* not this architecture */
#endif
