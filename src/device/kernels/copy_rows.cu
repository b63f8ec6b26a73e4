/* copy_rows.cu - gathers and scatters rows: between device slots and pages of the host, which it
 * reads and writes where they are (pinned memory has an address that kernels see).
 *
 * A copy per row would be a call of the driver per row, microseconds for 256 bytes. Here a thread
 * has COPY_ROWS_FLIGHT units on their way before it stores the first: what bounds a copy over PCIe
 * are the bytes in flight, and few blocks suffice, so that the rest of the GPU computes. */
#include "dialect.h"

#include "copy_rows_args.h"

typedef struct unit16 {
    u32 word[4];
} unit16;

/* The numbers of the rows of a thread's pieces, all of them asked for before one is needed. */
INLINE void row_numbers(const i32 *rows, const u32 i[COPY_ROWS_FLIGHT], u32 number[COPY_ROWS_FLIGHT])
{
    if (rows)
        UNROLL for (u32 f = 0; f < COPY_ROWS_FLIGHT; f++)
            number[f] = (u32)rows[i[f]];
    else
        UNROLL for (u32 f = 0; f < COPY_ROWS_FLIGHT; f++)
            number[f] = i[f];
}

KERNEL(copy_rows, COPY_ROWS_THREADS, copy_rows_args)
{
    u32 lane = THREAD_X & ((1u << a.lanes_log2) - 1);
    u32 group = (BLOCK_X * COPY_ROWS_THREADS + THREAD_X) >> a.lanes_log2;
    u32 groups = (GRID_X * COPY_ROWS_THREADS) >> a.lanes_log2;
    for (u32 first = group; first < a.items; first += groups * COPY_ROWS_FLIGHT) {
        u32 i[COPY_ROWS_FLIGHT], at[COPY_ROWS_FLIGHT], number[COPY_ROWS_FLIGHT];
        u32 have[COPY_ROWS_FLIGHT]; /* else behind the row's end, or there is no such piece */
        u8 *to[COPY_ROWS_FLIGHT];
        const u8 *from[COPY_ROWS_FLIGHT];
        UNROLL for (u32 f = 0; f < COPY_ROWS_FLIGHT; f++)
        {
            u32 item = first + f * groups;
            have[f] = item < a.items;
            i[f] = have[f] ? item : first; /* a row that there is: its number may be read */
            at[f] = lane * a.unit;
        }
        if (a.pieces > 1)
            UNROLL for (u32 f = 0; f < COPY_ROWS_FLIGHT; f++)
            {
                u32 row = i[f] / a.pieces;
                at[f] += ((i[f] - row * a.pieces) << a.lanes_log2) * a.unit;
                i[f] = row;
            }
        row_numbers(a.dst_rows, i, number);
        UNROLL for (u32 f = 0; f < COPY_ROWS_FLIGHT; f++)
        {
            have[f] = have[f] && at[f] < a.row_bytes;
            to[f] = a.dst + number[f] * a.dst_stride + at[f];
        }
        row_numbers(a.src_rows, i, number);
        UNROLL for (u32 f = 0; f < COPY_ROWS_FLIGHT; f++)
            from[f] = a.src + number[f] * a.src_stride + at[f];

        if (a.unit == 16) {
            unit16 v[COPY_ROWS_FLIGHT];
            UNROLL for (u32 f = 0; f < COPY_ROWS_FLIGHT; f++)
                if (have[f]) load16(v[f].word, from[f]);
            UNROLL for (u32 f = 0; f < COPY_ROWS_FLIGHT; f++)
                if (have[f]) *(unit16 *)__builtin_assume_aligned(to[f], 16) = v[f];
        } else if (a.unit == 4) {
            u32 v[COPY_ROWS_FLIGHT];
            UNROLL for (u32 f = 0; f < COPY_ROWS_FLIGHT; f++)
                if (have[f]) v[f] = *(const u32 *)from[f];
            UNROLL for (u32 f = 0; f < COPY_ROWS_FLIGHT; f++)
                if (have[f]) *(u32 *)to[f] = v[f];
        } else {
            u8 v[COPY_ROWS_FLIGHT];
            UNROLL for (u32 f = 0; f < COPY_ROWS_FLIGHT; f++)
                if (have[f]) v[f] = *from[f];
            UNROLL for (u32 f = 0; f < COPY_ROWS_FLIGHT; f++)
                if (have[f]) *to[f] = v[f];
        }
    }
}
