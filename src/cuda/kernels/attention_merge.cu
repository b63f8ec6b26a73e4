/* attention_merge.cu - the spans of a row of attention.h, merged in ascending order.
 *
 * One block a token and head, in a grid of [tokens][heads]. What a span is multiplied with follows
 * from the maxima of the spans before it alone: 32 spans at a time the lanes of every warp find
 * theirs, and then a thread adds up its dim, one FMA after the other. */
#define ONE_FORM
#include "device/kernels/dialect.h"

#include "cuda/kernels/kernel_args.h"

#include "cuda/kernels/attention_math.h"

enum { THREADS = 256, AHEAD = 16 };

/* The thread's dim in AHEAD spans from `at` on, of which there are `count`. */
INLINE void load_spans(float v[AHEAD], const attention_merge_args *a, u64 at, u32 count)
{
    UNROLL for (u32 i = 0; i < AHEAD; i++) {
        v[i] = 0;
        if (i < count && THREAD_X < a->v_head_dim)
            v[i] = a->part_v[(at + (u64)i * a->heads) * a->v_head_dim + THREAD_X];
    }
}

KERNEL(attention_merge, THREADS, attention_merge_args)
{
    /* Tables of a step are there before its first kernel begins. */
    u32 token = BLOCK_X, head = BLOCK_Y, dim = a.v_head_dim;
    u32 part = token < a.tokens ? a.parts_at[token] : ~0u;
    u32 last = token < a.tokens ? a.positions[token] : 0;
    launch_next();
    wait_previous();
    if (part == ~0u || WARP * 32 >= dim) return;
    u32 low = a.window && last >= a.window ? last - a.window + 1 : 0;
    u32 spans = last / ATTN_SPAN - low / ATTN_SPAN + 1;
    u64 at = (u64)part * a.heads + head; /* of the next span; a.heads further */
    float factor = score_factor(a.scale, a.cap), max = NEG_INFINITY, sum = 0, v = 0;

    for (u32 first = 0; first < spans; first += 32, at += (u64)a.heads * 32) {
        u32 count = spans - first < 32 ? spans - first : 32;
        float span_v[AHEAD];
        float span_max = NEG_INFINITY, span_sum = 0, before = max, keep, add;
        if (LANE < count) {
            span_max = a.part_ms[(at + (u64)LANE * a.heads) * 2];
            span_sum = a.part_ms[(at + (u64)LANE * a.heads) * 2 + 1];
        }
        load_spans(span_v, &a, at, count);
        float most = span_max; /* of this span and those before, of these 32 */
        UNROLL for (u32 x = 1; x < 32; x *= 2) {
            float other = bits_float(shuffle_u32(float_bits(most), LANE < x ? LANE : LANE - x));
            most = larger(most, other);
        }
        float previous = bits_float(shuffle_u32(float_bits(most), LANE ? LANE - 1 : 0));
        if (LANE) before = larger(before, previous);
        fold_weights(&before, span_max, factor, &keep, &add);
        for (u32 from = 0; from < count; from += AHEAD) {
            if (from) load_spans(span_v, &a, at + (u64)from * a.heads, count - from);
            UNROLL for (u32 i = 0; i < AHEAD; i++) {
                if (from + i < count) { /* the same for all lanes */
                    float k = bits_float(shuffle_u32(float_bits(keep), from + i));
                    float w = bits_float(shuffle_u32(float_bits(add), from + i));
                    sum = fold(sum, bits_float(shuffle_u32(float_bits(span_sum), from + i)), k, w);
                    v = fold(v, span_v[i], k, w);
                }
            }
        }
        max = bits_float(shuffle_u32(float_bits(before), 31));
    }
    float w = close_weight(max, sum, factor, a.sinks, head);
    if (THREAD_X < dim)
        a.out[(u64)token * a.out_ld + head * dim + THREAD_X] = (u16)float_bf16(close_row(v, w));
}
