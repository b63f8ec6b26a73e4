/* attention_merge.cu - the spans of a row of attention.cu, merged in ascending order.
 *
 * One block a token and head, in a grid of [tokens][heads]. What a span is multiplied with follows
 * from the maxima of the spans before it alone: 32 spans at a time the lanes of every warp find
 * theirs, and then a thread adds up its dims, one FMA after the other. */
#include "device/kernels/dialect.h"

#include "cuda/kernels/kernel_args.h"

#include "cuda/kernels/attention_math.h"

enum { THREADS = 128, MOST_DIMS = 2 /* of a thread: 256 in all */, AHEAD = 8 };

KERNEL(attention_merge, THREADS, attention_merge_args)
{
    u32 token = BLOCK_X, head = BLOCK_Y, dim = a.v_head_dim;
    wait_previous();
    launch_next();
    if (token >= a.tokens || a.parts_at[token] == ~0u) return;
    u32 last = a.positions[token];
    u32 low = a.window && last >= a.window ? last - a.window + 1 : 0;
    u32 spans = last / ATTN_SPAN - low / ATTN_SPAN + 1;
    u64 at = (u64)a.parts_at[token] * a.heads + head; /* of the next span; a.heads further */
    float factor = score_factor(a.scale, a.cap), max = NEG_INFINITY, sum = 0, v[MOST_DIMS] = {0, 0};

    for (u32 first = 0; first < spans; first += 32, at += (u64)a.heads * 32) {
        u32 count = spans - first < 32 ? spans - first : 32;
        float span_max = NEG_INFINITY, span_sum = 0, before = max, keep, add;
        if (LANE < count) {
            span_max = a.part_ms[(at + (u64)LANE * a.heads) * 2];
            span_sum = a.part_ms[(at + (u64)LANE * a.heads) * 2 + 1];
        }
        float most = span_max; /* of this span and those before, of these 32 */
        UNROLL for (u32 x = 1; x < 32; x *= 2) {
            float other = bits_float(shuffle_u32(float_bits(most), LANE < x ? LANE : LANE - x));
            most = larger(most, other);
        }
        float previous = bits_float(shuffle_u32(float_bits(most), LANE ? LANE - 1 : 0));
        if (LANE) before = larger(before, previous);
        fold_weights(&before, span_max, factor, &keep, &add);
        for (u32 from = 0; from < count; from += AHEAD) {
            float span_v[AHEAD][MOST_DIMS];
            UNROLL for (u32 i = 0; i < AHEAD; i++) UNROLL for (u32 d = 0; d < MOST_DIMS; d++) {
                u32 column = d * THREADS + THREAD_X;
                span_v[i][d] = 0;
                if (from + i < count && column < dim)
                    span_v[i][d] = a.part_v[(at + (u64)(from + i) * a.heads) * dim + column];
            }
            UNROLL for (u32 i = 0; i < AHEAD; i++) {
                if (from + i < count) { /* the same for all lanes */
                    float k = bits_float(shuffle_u32(float_bits(keep), from + i));
                    float w = bits_float(shuffle_u32(float_bits(add), from + i));
                    sum = fold(sum, bits_float(shuffle_u32(float_bits(span_sum), from + i)), k, w);
                    UNROLL for (u32 d = 0; d < MOST_DIMS; d++)
                        v[d] = fold(v[d], span_v[i][d], k, w);
                }
            }
        }
        max = bits_float(shuffle_u32(float_bits(before), 31));
    }
    float w = close_weight(max, sum, factor, a.sinks, head);
    UNROLL for (u32 d = 0; d < MOST_DIMS; d++) {
        u32 column = d * THREADS + THREAD_X;
        if (column < dim)
            a.out[(u64)token * a.out_ld + head * dim + column] =
                (u16)float_bf16(close_row(v[d], w));
    }
}
