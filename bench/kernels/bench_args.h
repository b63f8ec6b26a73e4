/* bench_args.h - what the kernels that only benchmarks use are launched with. */
#ifndef BENCH_KERNELS_BENCH_ARGS_H
#define BENCH_KERNELS_BENCH_ARGS_H

#ifndef DEVICE_KERNELS_DIALECT_H /* the host */
#include <stdint.h>
typedef uint32_t u32;
typedef unsigned long long u64;
#endif

typedef struct bench_fill_args { /* random bf16, 2^-5 to 2^-1 and both signs */
    u32 *to;
    u64 words;
} bench_fill_args;

typedef struct bench_read_args { /* reads `lines` times 16 bytes */
    const u32 *from;
    u64 lines;
    u32 *sink; /* written in the one case of 2^32 */
} bench_read_args;

#endif
