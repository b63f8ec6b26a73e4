/* vectors.h - four floats of a row at once, whatever the row's length and place.
 *
 * `whole` says that every row of the kernel begins at a multiple of 16 bytes and has a multiple of
 * 4 numbers; a launch's alone, so a branch on it costs nothing. Where it does not hold, the same
 * four numbers are moved one by one: the order of sums is the same. */
#ifndef CUDA_KERNELS_VECTORS_H
#define CUDA_KERNELS_VECTORS_H

#include "device/kernels/dialect.h"

#ifdef ON_GPU
/* What other kernels write: not past the L1 cache as load16 does. */
INLINE void read16(u32 to[4], const void *from)
{
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from)
                 : "memory");
}
INLINE void write16(void *to, const u32 from[4])
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(from[0]), "r"(from[1]),
                 "r"(from[2]), "r"(from[3])
                 : "memory");
}
INLINE void write8(void *to, u32 first, u32 second)
{
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(first), "r"(second) : "memory");
}
#else
typedef struct {
    u32 word[4];
} __attribute__((aligned(16))) words4; /* sanitizers see an address that is not */
typedef struct {
    u32 word[2];
} __attribute__((aligned(8))) words2;
INLINE void read16(u32 to[4], const void *from)
{
    const words4 w = *(const words4 *)from;
    memcpy(to, w.word, 16);
}
INLINE void write16(void *to, const u32 from[4])
{
    words4 w;
    memcpy(w.word, from, 16);
    *(words4 *)to = w;
}
INLINE void write8(void *to, u32 first, u32 second)
{
    *(words2 *)to = (words2){{first, second}};
}
#endif

INLINE int aligned16(u64 addresses) /* or several, their bits together */
{
    return (addresses & 15) == 0;
}
/* Numbers at .. at + 3 of a row of n; 0 behind its end, and at + 3 may lie behind it only where
 * it is not whole. written: by kernels; a constant. */
INLINE void four_at(float to[4], const float *row, u32 at, u32 n, int whole, const int written)
{
    if (whole) {
        u32 bits[4];
        if (written)
            read16(bits, row + at);
        else
            load16(bits, row + at);
        UNROLL
        for (int e = 0; e < 4; e++)
            to[e] = bits_float(bits[e]);
    } else {
        UNROLL
        for (u32 e = 0; e < 4; e++)
            to[e] = at + e < n ? row[at + e] : 0.0f;
    }
}
INLINE void read4(float to[4], const float *row, u32 at, u32 n, int whole)
{
    four_at(to, row, at, n, whole, 1);
}
INLINE void load4(float to[4], const float *row, u32 at, u32 n, int whole)
{
    four_at(to, row, at, n, whole, 0);
}
INLINE void add4(float to[4], const float from[4])
{
    UNROLL
    for (int e = 0; e < 4; e++)
        to[e] += from[e];
}
INLINE void add_loaded(float to[4], const float *row, u32 at, u32 n, int whole)
{
    float from[4];
    load4(from, row, at, n, whole);
    add4(to, from);
}
INLINE void write4(float *row, u32 at, u32 n, int whole, const float from[4])
{
    if (whole) {
        u32 bits[4];
        UNROLL
        for (int e = 0; e < 4; e++)
            bits[e] = float_bits(from[e]);
        write16(row + at, bits);
    } else {
        UNROLL
        for (u32 e = 0; e < 4; e++)
            if (at + e < n) row[at + e] = from[e];
    }
}
/* Rounded to bf16; `whole`: 8 bytes at a time, at a multiple of 8. */
INLINE void write4_bf16(u16 *row, u32 at, u32 n, int whole, const float from[4])
{
    if (whole) {
        write8(row + at, pack_bf16(from[0], from[1]), pack_bf16(from[2], from[3]));
    } else {
        UNROLL
        for (u32 e = 0; e < 4; e++)
            if (at + e < n) row[at + e] = (u16)float_bf16(from[e]);
    }
}

/* Sums of the parts of a product in their order: part p of this row is at y + p * step. Four parts
 * are on their way before the first is added, where they are whole. */
INLINE void add_parts(float sum[4], const float *y, u64 step, u32 parts, u32 at, u32 n, int whole)
{
    const u32 together = whole ? 3 : 1;
    read4(sum, y, at, n, whole);
    ROLLED
    for (u32 first = 1; first < parts; first += together) {
        float part[3][4];
        UNROLL
        for (u32 p = 0; p < together; p++)
            if (first + p < parts) read4(part[p], y + (first + p) * step, at, n, whole);
        UNROLL
        for (u32 p = 0; p < together; p++)
            if (first + p < parts) add4(sum, part[p]);
    }
}

#endif
