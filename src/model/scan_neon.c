/* scan_neon.c - the recurrences four columns at a time. */
#include "model/scan.h"

#if defined(__aarch64__)
#include <arm_neon.h>

typedef float32x4_t vec;
enum { WIDTH = 4 };
#define vec_load          vld1q_f32
#define vec_store         vst1q_f32
#define vec_set1          vdupq_n_f32
#define vec_mul           vmulq_f32
#define vec_fma(a, b, c)  vfmaq_f32(c, a, b)
#define vec_fnma(a, b, c) vfmsq_f32(c, a, b)

#include "model/scan_body.h"

const scan_isa scan_neon = {"neon", run_delta, run_mamba};
#else
const scan_isa scan_neon = {0};
#endif
