/* bench_memory.cu - fills memory, and reads it as fast as can be: the ceiling that products are
 * held to. */
#include "device/kernels/dialect.h"

#include "bench/kernels/bench_args.h"

KERNEL(bench_fill, 256, bench_fill_args)
{
    for (u64 i = BLOCK_X * 256 + THREAD_X; i < a.words; i += (u64)GRID_X * 256) {
        u64 h = (i + 1) * 0x9e3779b97f4a7c15ull;
        h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ull;
        const u32 bits = (u32)(h >> 32);
        a.to[i] = (bits & 0x81bf81bfu) + 0x3d003d00u; /* numbers of e4m3 and e5m2, too */
    }
}

KERNEL(bench_read, 512, bench_read_args)
{
    enum { AHEAD = 8 };
    const u64 stride = (u64)GRID_X * 512;
    u32 sum = 0;
    for (u64 i = BLOCK_X * 512 + THREAD_X; i < a.lines; i += stride * AHEAD) {
        u32 line[AHEAD][4];
        UNROLL
        for (u32 j = 0; j < AHEAD; j++)
            load16(line[j], a.from + 4 * (i + j * stride < a.lines ? i + j * stride : i));
        UNROLL
        for (u32 j = 0; j < AHEAD; j++)
            sum ^= line[j][0] ^ line[j][1] ^ line[j][2] ^ line[j][3];
    }
    if (sum == 0x12345678) *a.sink = sum;
}
