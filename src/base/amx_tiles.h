/* amx_tiles.h - the tile operations of amx.h as instructions. Tiles are numbers 0..7,
 * written as literals.
 *
 * As assembly rather than intrinsics: those of some compilers (gcc 12) tell the
 * optimiser of 8 of the configuration's 64 bytes, and of none that a load reads. */
#ifndef BASE_AMX_TILES_H
#define BASE_AMX_TILES_H

#include "base/amx.h"

#include <stddef.h>

/* All tiles become zero and get the shapes of `c`. Some hundred cycles. */
#define AMX_CONFIGURE(c) __asm__ volatile("ldtilecfg %0" : : "m"(*(const amx_config *)(c)))

/* Ends what AMX_CONFIGURE began: a thread whose tiles hold nothing is cheap to switch. */
#define AMX_RELEASE() __asm__ volatile("tilerelease")

#define AMX_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)

/* Rows lie `pitch` bytes apart. */
#define AMX_LOAD(t, from, pitch)                                                                   \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t                                               \
                     :                                                                             \
                     : "r"((const void *)(from)), "r"((size_t)(pitch))                             \
                     : "memory")
#define AMX_STORE(t, to, pitch)                                                                    \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)"                                           \
                     :                                                                             \
                     : "r"((void *)(to)), "r"((size_t)(pitch))                                     \
                     : "memory")

/* c[m][n] += sum over k of a[m][2k] * b[k][2n] + a[m][2k + 1] * b[k][2n + 1]. The even
 * halves and the odd ones each have a sum that begins at 0, k ascending, one rounding a product;
 * the two are added, then that to c. Denormals count as zero, on the way in and out. */
#define AMX_DP(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

/* The same of signed bytes, four in the place of a pair, with 32-bit integers as sums. */
#define AMX_DP_INT8(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

#endif
