/* attn_strip_chain.h - strips (attn_strip.h) of f32, bf16 and f16 pools by vectors of 8 lanes, for
 * the arithmetic `chain`.
 *
 *     scores   8 keys x 4 words are transposed in registers: a lane is a key. 16 keys at a time
 *              where a KV head has up to 4 rows, so that enough chains of fmas run side by side
 *     values   a token after the other: a lane is a dimension. Of bf16 even and odd dimensions are
 *              summed apart, and put in order behind the block's last token
 *
 * attn_cpu_avx2.c includes this behind its kernels. */

/* Lines are asked for twice, as in attn_strip_body.h: FIRST rows ahead, as they lie, and again when
 * the line at their place is read in an earlier row. The first asking goes on a little slower than
 * keys are read, seven for eight: the rest is asked for in the softmax, which reads nothing. */
enum { FIRST = 28, LINE = ATTN_STRIP_LINE, QUADS = 4 /* of 16 bytes, of a line */ };

_Static_assert(FIRST + ATTN_STRIP_TOKENS < ATTN_STRIP_AHEAD, "");

/* How many vectors of keys have their scores made side by side. */
#define KEY_VECTORS(sharing) ((sharing) <= 4 ? 2 : 1)

/* Asks again for the line at `at` of row `i`, counted from the one that is read. */
TILE void ask_again(const char *const *row, size_t at)
{
    __builtin_prefetch(row[ATTN_STRIP_TOKENS] + at, 0, 3);
}

/* One dimension of some keys, times that of each row of q. */
#define ADD_DIMENSION(first, end, KEY, at)                                                         \
    _Pragma("GCC unroll 8") for (uint32_t r = 0; r < sharing; r++)                                 \
    {                                                                                              \
        const vf factor = vf_set1(q[r * ldq + (at)]);                                              \
        _Pragma("GCC unroll 2") for (int g = (first); g < (end); g++)                              \
            sum[g][r] = vf_fma(factor, (KEY), sum[g][r]);                                          \
    }

/* Eight f16 of each of eight rows, from byte `at` on, become eight vectors of one of every row. */
TILE void transpose_f16(const char *const row[W], size_t at, vf to[W])
{
    __m256i r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m128i low = _mm_loadu_si128((const __m128i *)(row[i] + at));
        __m128i high = _mm_loadu_si128((const __m128i *)(row[i + 4] + at));
        r[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    }
    __m256i a = _mm256_unpacklo_epi16(r[0], r[1]), b = _mm256_unpackhi_epi16(r[0], r[1]);
    __m256i c = _mm256_unpacklo_epi16(r[2], r[3]), d = _mm256_unpackhi_epi16(r[2], r[3]);
    const __m256i two[4] = {/* dimensions of rows 0 to 3, then of 4 to 7 */
                            _mm256_unpacklo_epi32(a, c), _mm256_unpackhi_epi32(a, c),
                            _mm256_unpacklo_epi32(b, d), _mm256_unpackhi_epi32(b, d)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m256i in_order = _mm256_permute4x64_epi64(two[i], 0xd8);
        to[2 * i] = _mm256_cvtph_ps(_mm256_castsi256_si128(in_order));
        to[2 * i + 1] = _mm256_cvtph_ps(_mm256_extracti128_si256(in_order, 1));
    }
}

/* The scores of KV head h with some vectors of keys, `token` and what follows. */
TILE void strip_scores(const rad_dtype dtype, const uint32_t sharing, const int groups,
                       attn_strip *s, uint32_t h, uint32_t token)
{
    const vf high = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000));
    const uint32_t dims = dtype == RAD_F32 ? 4 : 8; /* of 16 bytes */
    const char *const *rows = s->rows + token;
    const float *q = (const float *)(s->q + (size_t)h * sharing * s->q_bytes);
    const size_t ldq = s->q_bytes / sizeof *q, begin = h * s->head_bytes;
    vf sum[2][ATTN_STRIP_SHARING];
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++)
#pragma GCC unroll 8
        for (uint32_t r = 0; r < sharing; r++)
            sum[g][r] = vf_set1(0);
    for (size_t line = begin; line < begin + s->head_bytes; line += LINE)
#pragma GCC unroll 4
        for (int quad = 0; quad < QUADS; quad++, q += dims) {
#pragma GCC unroll 4
            for (int i = 0; i < groups * W / QUADS; i++)
                ask_again(rows + quad * groups * W / QUADS + i, line);
            if (groups == 2 ? (line & LINE) || quad < 3 : quad % 2 == 0) attn_strip_ask(s, 1);
            const size_t at = line + (size_t)quad * LINE / QUADS;
#pragma GCC unroll 2
            for (int one = 0; one < groups && dtype == RAD_F16; one++) {
                vf key[W];
                transpose_f16(rows + one * W, at, key);
#pragma GCC unroll 8
                for (uint32_t i = 0; i < W; i++) {
                    ADD_DIMENSION(one, one + 1, key[i], i)
                }
            }
            if (dtype == RAD_F16) continue;
            vf word[2][W / 2];
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++)
                transpose_words(rows + g * W, at, word[g]);
#pragma GCC unroll 4
            for (uint32_t i = 0; i < W / 2; i++) {
                if (dtype == RAD_F32) {
                    ADD_DIMENSION(0, groups, word[g][i], i)
                    continue;
                }
                vf odd[2];
#pragma GCC unroll 2
                for (int g = 0; g < groups; g++) {
                    odd[g] = _mm256_and_ps(word[g][i], high);
                    word[g][i] =
                        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(word[g][i]), 16));
                }
                ADD_DIMENSION(0, groups, word[g][i], 2 * i)
                ADD_DIMENSION(0, groups, odd[g], 2 * i + 1)
            }
        }
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++)
#pragma GCC unroll 8
        for (uint32_t r = 0; r < sharing; r++)
            vf_store(s->weights + (h * sharing + r) * BLOCK + token + g * W, sum[g][r]);
}

/* Dimensions [d, d + count * W) of the values that are seen among the tokens from `token` on,
 * times the weights of rows [row, row + rows), onto their part. */
TILE void strip_values(const rad_dtype dtype, const uint32_t rows, const int count, attn_strip *s,
                       uint32_t h, uint32_t row, uint32_t d, uint32_t token, const bool asks)
{
    const size_t size = dtype == RAD_F32 ? 4 : 2, bytes = (size_t)count * W * size;
    const uint32_t every = (uint32_t)(ATTN_STRIP_PIECE / bytes);
    const uint32_t begin = RAD_MAX(s->begin, token),
                   end = RAD_MIN(s->end, token + ATTN_STRIP_TOKENS);
    const char *const *value = s->rows + s->tokens;
    const size_t at = h * s->head_bytes + d * size;
    const float *p = s->weights + (size_t)row * BLOCK;
    float *part = s->part + (size_t)row * s->dim + d;
    const bool pairs = dtype == RAD_BF16 && count % 2 == 0;
    vf sum[ATTN_TILE_ROWS][MOST_VECTORS], x[MOST_VECTORS];
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < count; v++)
            sum[r][v] = begin == s->begin ? vf_set1(0) : vf_load(part + r * s->dim + v * W);
    for (uint32_t j = begin; j < end; j++) {
        const char *from = value[j] + at;
        if (asks && j % every == 0) attn_strip_ask(s, 1);
        if (asks) ask_again(value + j, at);
        for (size_t line = LINE; asks && line < bytes; line += LINE)
            ask_again(value + j, at + line);
#pragma GCC unroll 8
        for (int v = 0; v < count; v++) {
            if (dtype == RAD_F32)
                x[v] = vf_load((const float *)from + v * W);
            else if (dtype == RAD_F16)
                x[v] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from + v));
            else if (!pairs)
                x[v] = vf_load_bf16((const uint16_t *)from + v * W);
            else if (v % 2 == 0)
                vf_load_bf16_pairs((const uint16_t *)from + v * W, &x[v], &x[v + 1]);
        }
        TILE_STEP(rows, count, vf_set1(p[r * BLOCK + j]), x[v], sum)
    }
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < count; v += 2)
            if (pairs && end == s->end) vf_join(&sum[r][v], &sum[r][v + 1]);
#pragma GCC unroll 8
        for (int v = 0; v < count; v++)
            vf_store(part + r * s->dim + v * W, sum[r][v]);
    }
}

TILE void strip_values_rows(const rad_dtype dtype, const uint32_t rows, attn_strip *s, uint32_t h,
                            uint32_t row, uint32_t token, const bool asks)
{
    const int count = VECTORS_OF(rows);
    uint32_t d = 0;
    for (; d + (uint32_t)count * W <= s->dim; d += (uint32_t)count * W)
        strip_values(dtype, rows, count, s, h, row, d, token, asks);
    if (d < s->dim) strip_values(dtype, rows, 4, s, h, row, d, token, asks);
}

/* A score is one chain of fmas, a weight's row a function of its 64 scores, a value one chain over
 * the tokens that are seen: strips only cut them into pieces (P1). */
TILE void strip_of(const rad_dtype dtype, const uint32_t sharing, attn_strip *s)
{
    const uint32_t groups = KEY_VECTORS(sharing), step = ATTN_STRIP_TOKENS;
    const uint32_t first = s->begin / step * step, half = sharing > ATTN_TILE_ROWS ? 4 : sharing;
    attn_strip_ask_from(s, FIRST);
    for (uint32_t token = first; token < s->tokens; token += step)
        for (uint32_t h = 0; h < s->kv_heads; h++)
            for (uint32_t j = 0; j < step; j += groups * W)
                strip_scores(dtype, sharing, (int)groups, s, h, token + j);
    for (uint32_t r = 0; r < s->kv_heads * sharing; r++) {
        if (r % sharing == 0)
            attn_strip_ask(s, (uint32_t)(s->tokens / 8 * s->head_bytes / ATTN_STRIP_PIECE));
        s->sum[r] = softmax(s->weights + (size_t)r * BLOCK, s->begin, s->end, s->scaling,
                            s->logit_cap, &s->max[r]);
    }
    for (uint32_t token = first; token < s->tokens; token += step)
        for (uint32_t h = 0; h < s->kv_heads; h++) {
            strip_values_rows(dtype, half, s, h, h * sharing, token, true);
            if (half < sharing)
                strip_values_rows(dtype, sharing - half, s, h, h * sharing + half, token, false);
        }
    while (s->ask_row < 2 * s->tokens + FIRST) /* where the next block begins to ask */
        attn_strip_ask(s, 1);
}

#include "attn/attn_strip_sharing.h"

void attn_strip_avx2_f32(attn_strip *s)
{
    if (s->dtype == RAD_F16)
        strip(RAD_F16, s);
    else
        strip(RAD_F32, s);
}

void attn_strip_avx2_bf16(attn_strip *s)
{
    strip(RAD_BF16, s);
}
