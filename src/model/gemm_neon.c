/* gemm_neon.c - f32, bf16 and f16 over vectors of four lanes, of which every aarch64 has 32
 * (gemm_columns_body.h).
 *
 *     rows   column   sums
 *        1      64     16    the whole panel: every line is read once, in order
 *        2      32     16
 *     3..6      16   12..24
 *
 * fmla rounds once, so the chain of gemm.h has the bits of any other set. BFDOT and BFMMLA are not
 * used: they add two products (four) before they round, in a way of their own, and round to odd
 * where FEAT_EBF16 is not switched on; so bf16 is widened in registers. */
#include "model/gemm_kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

enum { LANES = 4, WIDTH_1 = 16, WIDTH_2 = 8, WIDTH_TALL = 4 };
typedef float32x4_t vec;

#define vec_zero()         vdupq_n_f32(0)
#define vec_load(from)     vld1q_f32(from)
#define vec_store(to, v)   vst1q_f32(to, v)
#define vec_fma(sum, x, w) vfmaq_n_f32(sum, w, *(x))
#define vec_of_low(pairs)  vreinterpretq_f32_u32(vshlq_n_u32(vld1q_u32(pairs), 16))
#define vec_of_high(pairs)                                                                         \
    vreinterpretq_f32_u32(vandq_u32(vld1q_u32(pairs), vdupq_n_u32(0xffff0000)))
#define vec_of_f16(from) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)))
#define ask_near(line)   __builtin_prefetch(line, 0, 3)
#define ask_next(line)   __builtin_prefetch(line, 0, 3)

/* Six x at a time would drive sums out of registers. */
#define rest_after(r)                                                                              \
    if ((r) % 2) __asm__("" ::: "memory")

#include "model/gemm_columns_body.h"

/* The sets differ in their integer products alone. */
const gemm_isa gemm_neon = GEMM_COLUMNS_ISA("neon", gemm_quant_neon);
const gemm_isa gemm_dotprod = GEMM_COLUMNS_ISA("dotprod", gemm_quant_dotprod);
const gemm_isa gemm_i8mm = GEMM_COLUMNS_ISA("i8mm", gemm_quant_i8mm);
#else
const gemm_isa gemm_neon = {.name = "neon"}; /* not this architecture */
const gemm_isa gemm_dotprod = {.name = "dotprod"};
const gemm_isa gemm_i8mm = {.name = "i8mm"};
#endif
