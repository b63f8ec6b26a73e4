/* attention.h - attention over the slots of a paged pool: decode, extend and shared prefixes.
 *
 * A block of 8 warps walks pieces of work, a unit's rows and one KV head each (kernel_args.h). K
 * and V come to shared memory by copies, one stream over all pieces of the block, so that memory
 * is never idle where one piece ends and the next begins:
 *
 *     slots of the next | copies under way | what is computed
 *
 * A tile is 16 query rows. With few rows all warps compute one tile (attention_few.h), with many
 * each has its own (attention_many.h). Which warp computes a number is all that differs:
 *
 *     S = Q K^T      ascending dims from 0
 *     m = max(m, S)  alpha = 2^((m_old - m) * factor)    P = bf16(2^((S - m) * factor))
 *     O = O * alpha  O += P V, ascending keys            L likewise, with a V of ones
 *
 * Keys that no row of the unit sees are zeros, not what lies in the pool: 0 * NaN is NaN. */
#ifndef CUDA_KERNELS_ATTENTION_H
#define CUDA_KERNELS_ATTENTION_H

#include "cuda/kernels/attention_few.h"
#include "cuda/kernels/attention_many.h"

INLINE void attention(const attention_args *a, u8 *shared, u32 dim, const int f8)
{
    /* Tables of a step are there before its first kernel begins; slots are not. */
    u32 pieces = *a->num_units * a->kv_heads, round = 0;
    piece p;
    launch_next();
    wait_previous();
    while (piece_at(a, pieces, round, &p)) {
        if (is_few(a, &p))
            round = few_pieces(a, shared, pieces, round, dim, f8);
        else
            round = many_pieces(a, shared, pieces, round, dim, dim > 128 ? 2 : 1,
                                dim == 64 || dim == 16, f8);
        SYNC_BLOCK(); /* the other way lays out shared memory anew */
    }
}

#define ATTENTION(dim)                                                                            \
    KERNEL_ALONE(attention_d##dim, ATTN_THREADS, attention_args)                                  \
    {                                                                                             \
        SHARED_DYNAMIC(u8, shared);                                                               \
        attention(&a, shared, dim, 0);                                                            \
    }

/* The same over a pool of either type of fp8. */
#define ATTENTION_F8(dim)                                                                         \
    KERNEL_ALONE(attention_d##dim##_f8, ATTN_THREADS, attention_args)                             \
    {                                                                                             \
        SHARED_DYNAMIC(u8, shared);                                                               \
        attention(&a, shared, dim, 1);                                                            \
    }

#endif
