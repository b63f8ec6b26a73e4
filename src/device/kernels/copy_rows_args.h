/* copy_rows_args.h - what the kernel that copies rows is launched with: shared by kernel, host and
 * tests.
 *
 * Row i of `count` goes from src + (src_rows ? src_rows[i] : i) * src_stride to dst likewise. Both
 * sides may be the GPU's memory or pinned memory of the host; the indices are where the GPU reads
 * fast. Addresses, strides and row_bytes are multiples of `unit`: 16, 4 or 1.
 *
 *     row    | 2^lanes_log2 units | 2^lanes_log2 units | ... rest |     `pieces` of them
 *
 * A piece is what that many neighbouring threads copy at once, a unit each; so rows of 256 bytes
 * are taken by 16 threads, and a block of 256 has 16 of them. */
#ifndef DEVICE_KERNELS_COPY_ROWS_ARGS_H
#define DEVICE_KERNELS_COPY_ROWS_ARGS_H

#ifndef DEVICE_KERNELS_DIALECT_H /* the host */
#include <stdint.h>
typedef uint8_t u8;
typedef uint32_t u32;
typedef int32_t i32;
typedef unsigned long long u64;
#endif

enum { COPY_ROWS_THREADS = 256, COPY_ROWS_FLIGHT = 4 /* units on their way, of a thread */ };

typedef struct copy_rows_args {
    u8 *dst;
    const u8 *src;
    u64 dst_stride, src_stride;
    const i32 *dst_rows, *src_rows; /* NULL: row i is the i-th */
    u32 row_bytes, count;
    u32 unit, lanes_log2; /* at most 8: COPY_ROWS_THREADS */
    u32 pieces;           /* of a row */
    u32 items;            /* count * pieces, which fits */
} copy_rows_args;

#endif
