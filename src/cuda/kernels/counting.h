/* counting.h - whole numbers that threads add up, compare and put in order: what sampling is
 * made of. Sums are exact, so nothing depends on who adds first. */
#ifndef CUDA_KERNELS_COUNTING_H
#define CUDA_KERNELS_COUNTING_H

#include "device/kernels/dialect.h"

#ifdef ON_GPU
INLINE u32 shared_add_u32(u32 *to, u32 v) /* returns what was there */
{
    u32 r;
    asm volatile("atom.shared.add.u32 %0, [%1], %2;"
                 : "=r"(r)
                 : "r"(shared_address(to)), "r"(v)
                 : "memory");
    return r;
}
INLINE void shared_add_u64(u64 *to, u64 v)
{
    asm volatile("red.shared.add.u64 [%0], %1;" ::"r"(shared_address(to)), "l"(v) : "memory");
}
INLINE void global_add_u64(u64 *to, u64 v)
{
    asm volatile("red.global.add.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
}
/* What other blocks of this launch wrote, behind a fence: not from this multiprocessor's cache. */
INLINE u32 fresh_u32(const u32 *from)
{
    u32 r;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(from) : "memory");
    return r;
}
INLINE u64 fresh_u64(const u64 *from)
{
    u64 r;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(r) : "l"(from) : "memory");
    return r;
}
INLINE u32 warp_most(u32 v) /* of all lanes */
{
    u32 r;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v));
    return r;
}
INLINE u32 warp_least(u32 v)
{
    u32 r;
    asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v));
    return r;
}
INLINE u64 upper_product(u64 a, u64 b) /* a * b / 2^64 */
{
    u64 r;
    asm("mul.hi.u64 %0, %1, %2;" : "=l"(r) : "l"(a), "l"(b));
    return r;
}
#else
INLINE u32 shared_add_u32(u32 *to, u32 v)
{
    const u32 was = *to;
    *to += v;
    return was;
}
INLINE void shared_add_u64(u64 *to, u64 v)
{
    *to += v;
}
INLINE void global_add_u64(u64 *to, u64 v)
{
    *to += v;
}
INLINE u32 fresh_u32(const u32 *from)
{
    return *from;
}
INLINE u64 fresh_u64(const u64 *from)
{
    return *from;
}
INLINE u32 warp_most(u32 v)
{
    for (u32 apart = 16; apart; apart /= 2) {
        const u32 other = shuffle_xor_u32(v, apart);
        v = other > v ? other : v;
    }
    return v;
}
INLINE u32 warp_least(u32 v)
{
    return ~warp_most(~v);
}
INLINE u64 upper_product(u64 a, u64 b)
{
    return (u64)((unsigned __int128)a * b >> 64);
}
#endif

/* `share` / 2^64 of a whole, rounded up. */
INLINE u64 share_of(u64 share, u64 whole)
{
    return upper_product(share, whole) + (share * whole != 0);
}

/* Grows with v, -0 and 0 are one; 0 for NaN alone. */
INLINE u32 order_of(float v)
{
    const u32 u = float_bits(v + 0.0f);
    if (!(v == v)) return 0;
    return u >> 31 ? ~u : u | 0x80000000u;
}
INLINE float of_order(u32 order)
{
    return bits_float(order >> 31 ? order & 0x7fffffffu : ~order);
}
enum { ORDER_OF_MINUS_INFINITY = 0x007fffff };

/* Among numbers of any lanes the largest, among equals the smallest id. */
typedef struct best {
    u32 order, id;
} best;

INLINE best better(best a, best b)
{
    return b.order > a.order || (b.order == a.order && b.id < a.id) ? b : a;
}
INLINE best warp_best(best b)
{
    const u32 order = warp_most(b.order);
    const u32 id = warp_least(b.order == order ? b.id : ~0u);
    best r = {order, id};
    return r;
}

INLINE u64 shuffle_u64(u64 v, u32 lane)
{
    return shuffle_u32((u32)v, lane) | (u64)shuffle_u32((u32)(v >> 32), lane) << 32;
}
/* The sum of v over the lanes up to this one. */
INLINE u64 warp_scan(u64 v)
{
    UNROLL
    for (u32 apart = 1; apart < 32; apart *= 2) {
        const u64 other = shuffle_u64(v, (LANE - apart) & 31);
        if (LANE >= apart) v += other;
    }
    return v;
}
/* The same over the threads of a block of 8 warps; begins and ends with a barrier. */
INLINE u64 block_scan(u64 v, u64 *warp_sums /* [8] */)
{
    v = warp_scan(v);
    SYNC_BLOCK();
    if (LANE == 31) warp_sums[WARP] = v;
    SYNC_BLOCK();
    UNROLL
    for (u32 w = 0; w < 7; w++)
        if (w < WARP) v += warp_sums[w];
    return v;
}

#endif
