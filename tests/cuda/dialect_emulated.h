/* dialect_emulated.h - the dialect of kernels as C, over fibers: emulator.h. */
#ifndef TESTS_CUDA_DIALECT_EMULATED_H
#define TESTS_CUDA_DIALECT_EMULATED_H

#include "emulator.h"
#include <math.h>
#include <string.h>

#define INLINE static inline

#ifdef HOPPER
#define EMULATED_NAME(name) "sm90:" #name
#else
#define EMULATED_NAME(name) #name
#endif

/* ASan guards variables that are in no section of their own; without it, theirs can be filled. */
#ifdef __SANITIZE_ADDRESS__
#define SHARED                static __attribute__((aligned(16)))
#define EMULATED_SHARED_BEGIN NULL
#define EMULATED_SHARED_END   NULL
#else
#define SHARED                static __attribute__((aligned(16), section("emulated_shared")))
extern char __start_emulated_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_emulated_shared[] __attribute__((weak, visibility("hidden")));
#define EMULATED_SHARED_BEGIN __start_emulated_shared
#define EMULATED_SHARED_END   __stop_emulated_shared
#endif

#define KERNEL(kernel_name, most_threads, args_type)                                               \
    static void kernel_name(const args_type a);                                                    \
    static void kernel_name##_entry(const void *args)                                              \
    {                                                                                              \
        kernel_name(*(const args_type *)args);                                                     \
    }                                                                                              \
    __attribute__((constructor)) static void kernel_name##_register(void)                          \
    {                                                                                              \
        static emulated_kernel kernel = {.name = EMULATED_NAME(kernel_name),                       \
                                         .entry = kernel_name##_entry,                             \
                                         .threads = most_threads,                                  \
                                         .args_bytes = sizeof(args_type)};                         \
        kernel.shared_begin = EMULATED_SHARED_BEGIN;                                               \
        kernel.shared_end = EMULATED_SHARED_END;                                                   \
        emulator_register(&kernel);                                                                \
    }                                                                                              \
    static void kernel_name(const args_type a)

#define KERNEL_ALONE KERNEL

/* Where the running thread is. */
extern uint32_t emulated_thread, emulated_block[3], emulated_grid[3];
extern void *emulated_dynamic_shared;

#define THREAD_X                   emulated_thread
#define BLOCK_X                    emulated_block[0]
#define BLOCK_Y                    emulated_block[1]
#define BLOCK_Z                    emulated_block[2]
#define GRID_X                     emulated_grid[0]
#define GRID_Y                     emulated_grid[1]
#define LANE                       (THREAD_X & 31)
#define WARP                       (THREAD_X >> 5)
#define SHARED_DYNAMIC(type, name) type *name = (type *)emulated_dynamic_shared
#define UNROLL
#define ROLLED
#define FMA(x, y, z) fmaf(x, y, z)

#define EMULATED_TEXT_(x) #x
#define EMULATED_TEXT(x)  EMULATED_TEXT_(x)
#define EMULATED_HERE     __FILE__ ":" EMULATED_TEXT(__LINE__)

/* Waits of a thread; `where` names the line for a person. */
void emulated_sync_block(const char *where);
void emulated_sync_warp(const char *where);
u32 emulated_shuffle(u32 v, u32 lane, const char *where);
u32 emulated_ballot(int predicate, const char *where);
void emulated_load_matrix4(u32 r[4], const void *row, int transposed, const char *where);
void emulated_mma_bf16(float d[4], const u32 a[4], const u32 b[2], const char *where);
void emulated_mma_i8(i32 d[4], const u32 a[4], const u32 b[2], const char *where);
void emulated_load16(u32 to[4], const void *from, const char *where);
void emulated_copy16_async(void *shared, const void *global, int yes, const char *where);
void emulated_copy_commit(const char *where);
void emulated_copy_wait(u32 groups);
void emulated_wait_previous(const char *where);
void emulated_fence_device(void);
u32 emulated_atomic_add_u32(u32 *to, u32 v);

#define SYNC_BLOCK()                    emulated_sync_block(EMULATED_HERE)
#define sync_warp()                     emulated_sync_warp(EMULATED_HERE)
#define shuffle_u32(v, lane)            emulated_shuffle(v, lane, EMULATED_HERE)
#define shuffle_xor_u32(v, mask)        emulated_shuffle(v, LANE ^ (mask), EMULATED_HERE)
#define ballot(predicate)               emulated_ballot((predicate) != 0, EMULATED_HERE)
#define load_matrix4(r, row)            emulated_load_matrix4(r, row, 0, EMULATED_HERE)
#define load_matrix4_transposed(r, row) emulated_load_matrix4(r, row, 1, EMULATED_HERE)
#define mma_bf16(d, a, b)               emulated_mma_bf16(d, a, b, EMULATED_HERE)
#define mma_i8(d, a, b)                 emulated_mma_i8(d, a, b, EMULATED_HERE)
#define load16(to, from)                emulated_load16(to, from, EMULATED_HERE)
#define copy16_async(shared, global)    emulated_copy16_async(shared, global, 1, EMULATED_HERE)
#define copy16_async_if(shared, global, yes)                                                       \
    emulated_copy16_async(shared, global, yes, EMULATED_HERE)
#define copy_commit()         emulated_copy_commit(EMULATED_HERE)
#define fence_device()        emulated_fence_device()
#define atomic_add_u32(to, v) emulated_atomic_add_u32(to, v)
#define wait_previous()       emulated_wait_previous(EMULATED_HERE)
#define COPY_WAIT(groups)     emulated_copy_wait(groups)

INLINE float bits_float(u32 u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
INLINE u32 float_bits(float f)
{
    u32 u;
    memcpy(&u, &f, 4);
    return u;
}
#define pack_bf16_numbers(low, high) pack_bf16(low, high)
INLINE float larger(float x, float y)
{
    return fmaxf(x, y);
}
INLINE float divide(float x, float y)
{
    return x / y;
}
INLINE float square_root(float x)
{
    return sqrtf(x);
}
INLINE float half_float(u32 bits)
{
    float size = bits_float((bits & 0x7fff) << 13);
    size = (bits & 0x7c00) == 0x7c00 ? bits_float(0x7f800000 | (bits & 0x3ff) << 13)
                                     : size * 0x1p112f;
    return bits & 0x8000 ? -size : size;
}
INLINE u32 permute_bytes(u32 low, u32 high, u32 selector)
{
    const u64 both = (u64)high << 32 | low;
    u32 r = 0;
    for (int i = 0; i < 4; i++) {
        const u32 nibble = selector >> 4 * i & 15, byte = (u32)(both >> 8 * (nibble & 7)) & 255;
        r |= (nibble < 8 ? byte : byte & 128 ? 255u : 0) << 8 * i;
    }
    return r;
}
/* x * y is exact in a double. Its sum with z is rounded to odd, so that rounding it once more, to 8
 * bits, is rounding it once. */
INLINE u32 fma_bf16(u32 x, u32 y, u32 z)
{
    const double product = (double)bits_float(x << 16) * (double)bits_float(y << 16);
    const double add = (double)bits_float(z << 16);
    double sum = product + add;
    const double of_add = sum - product, off = (product - (sum - of_add)) + (add - of_add);
    if (isnan(sum)) return 0x7fff;
    if (isfinite(sum) && off != 0) {
        u64 bits;
        memcpy(&bits, &sum, 8);
        if (bits % 2 == 0) sum = nextafter(sum, off > 0 ? INFINITY : -INFINITY);
    }
    if (sum == 0 || isinf(sum)) return float_bits((float)sum) >> 16;
    const int exponent = ilogb(sum), least = exponent > -126 ? exponent - 7 : -133;
    return float_bits((float)ldexp(nearbyint(ldexp(sum, -least)), least)) >> 16;
}
INLINE u32 fma_bf16x2(u32 x, u32 y, u32 z)
{
    return fma_bf16(x & 0xffff, y & 0xffff, z & 0xffff) | fma_bf16(x >> 16, y >> 16, z >> 16) << 16;
}
INLINE void launch_next(void) {}

#ifdef HOPPER
enum { EMULATED_FENCE, EMULATED_COMMIT, EMULATED_WAIT };

void emulated_barrier_init(u64 *barrier, u32 arrivals, const char *where);
void emulated_barrier_arrive(u64 *barrier, u32 bytes, const char *where);
void emulated_barrier_wait(u64 *barrier, u32 parity, const char *where);
void emulated_copy_box(void *shared, u64 map, u32 x, u32 y, u64 *barrier, const char *where);
void emulated_warpgroup_meet(u32 kind, u32 value, const char *where);
void emulated_warpgroup_mma(u32 n, float *d, u64 a, u64 b, u32 accumulate, const char *where);

#define ARGUMENT_ADDRESS(kernel, type, field) ((u64)(uintptr_t)&a.field)
#define barrier_init(barrier, arrivals)       emulated_barrier_init(barrier, arrivals, EMULATED_HERE)
#define barrier_arrive(barrier)               emulated_barrier_arrive(barrier, 0, EMULATED_HERE)
#define barrier_expect(barrier, bytes)        emulated_barrier_arrive(barrier, bytes, EMULATED_HERE)
#define barrier_wait(barrier, parity)         emulated_barrier_wait(barrier, parity, EMULATED_HERE)
#define copy_box(shared, map, x, y, barrier)                                                       \
    emulated_copy_box(shared, map, x, y, barrier, EMULATED_HERE)
#define warpgroup_fence()      emulated_warpgroup_meet(EMULATED_FENCE, 0, EMULATED_HERE)
#define warpgroup_commit()     emulated_warpgroup_meet(EMULATED_COMMIT, 0, EMULATED_HERE)
#define WARPGROUP_WAIT(groups) emulated_warpgroup_meet(EMULATED_WAIT, groups, EMULATED_HERE)
#define warpgroup_mma(n, d, a, b, accumulate)                                                      \
    emulated_warpgroup_mma(n, d, a, b, accumulate, EMULATED_HERE)
#define REGISTERS_AT_MOST(n)
#define REGISTERS_AT_LEAST(n)

INLINE void barriers_ready(void) {}
INLINE void fence_shared(void) {}
INLINE u64 matrix_descriptor(const void *shared) /* offsets in dynamic shared memory */
{
    u64 at = (u64)((const char *)shared - (const char *)emulated_dynamic_shared);
    return (at & 0x3ffff) >> 4 | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62;
}
#endif /* HOPPER */

#endif
