/* amx_emulated.h - the tile operations of amx.h in C, for any machine: what Intel's
 * manual says of TDPBF16PS, to the last bit, and of TDPBSSD (integers: nothing is rounded,
 * nothing saturates). Of the former:
 *
 * - A product of the even halves and one of the odd halves are each added to a sum of
 *   their own, which begin at 0, k ascending, with one rounding each (fma, to nearest even).
 * - The two sums are added to each other, then that to the destination.
 * - Denormal inputs, of the destination too, count as zero; a result that is too small
 *   for a normal number once it is rounded becomes zero.
 *
 * NaN stays NaN; which one of the many is not said. A wrong shape, which the CPU
 * answers with a fault, is an assertion here. */
#ifndef GEAR_AMX_EMULATED_H
#define GEAR_AMX_EMULATED_H

#include "base/amx.h"
#include "base/base.h"
#include "base/bf16.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

typedef struct amx_emulated {
    bool configured;
    amx_config config;
    float tile[AMX_TILES][AMX_ROWS][AMX_ROW_BYTES / 4];
} amx_emulated;

static _Thread_local amx_emulated amx_thread;

/* Denormal: zero, its sign stays. */
static inline float amx_flush(float v)
{
    return fabsf(v) < FLT_MIN ? copysignf(0, v) : v;
}

/* a * b + c of numbers without denormals, flushed as the CPU flushes: it looks at the
 * result as rounded with no limit below. fmaf has the limit, and may round up to
 * FLT_MIN what is less by a hair: seen from 2^64 above, where both agree. */
static inline float amx_fma(float a, float b, float c)
{
    float sum = fmaf(a, b, c);
    if (fabsf(sum) > FLT_MIN || sum != sum) return sum;
    if (fabsf(sum) == FLT_MIN) {
        float high = fmaf(a * 0x1p32f, b * 0x1p32f, c * 0x1p64f);
        if (fabsf(high) >= FLT_MIN * 0x1p64f) return sum;
    }
    return copysignf(0, sum);
}

static inline void amx_emulate_configure(const amx_config *config)
{
    RAD_ASSERT(config->palette == 1 && config->start_row == 0);
    for (int t = 0; t < 16; t++) {
        RAD_ASSERT(config->rows[t] <= AMX_ROWS && config->row_bytes[t] <= AMX_ROW_BYTES);
        RAD_ASSERT((config->rows[t] == 0) == (config->row_bytes[t] == 0));
        RAD_ASSERT(t < AMX_TILES || config->rows[t] == 0);
    }
    amx_thread = (amx_emulated){.configured = true, .config = *config};
}

static inline void amx_emulate_release(void)
{
    amx_thread = (amx_emulated){.configured = false};
}

/* Using a tile without a shape is a fault. */
static inline void amx_emulate_uses(int t)
{
    RAD_ASSERT(amx_thread.configured && amx_thread.config.rows[t] > 0);
}

static inline void amx_emulate_zero(int t)
{
    amx_emulate_uses(t);
    memset(amx_thread.tile[t], 0, sizeof amx_thread.tile[t]);
}

static inline void amx_emulate_load(int t, const void *from, size_t pitch)
{
    amx_emulate_zero(t);
    for (uint32_t r = 0; r < amx_thread.config.rows[t]; r++)
        memcpy(amx_thread.tile[t][r], (const char *)from + r * pitch,
               amx_thread.config.row_bytes[t]);
}

static inline void amx_emulate_store(int t, void *to, size_t pitch)
{
    amx_emulate_uses(t);
    for (uint32_t r = 0; r < amx_thread.config.rows[t]; r++)
        memcpy((char *)to + r * pitch, amx_thread.tile[t][r], amx_thread.config.row_bytes[t]);
}

/* The two halves of a pair, denormals gone. */
static inline void amx_emulate_halves(float pair, float half[2])
{
    uint16_t bits[2];
    memcpy(bits, &pair, sizeof bits);
    half[0] = amx_flush(bf16_to_f32(bits[0]));
    half[1] = amx_flush(bf16_to_f32(bits[1]));
}

/* Shapes that do not fit are a fault. */
static inline void amx_emulate_fits(int c, int a, int b)
{
    const amx_config *shape = &amx_thread.config;
    amx_emulate_uses(c), amx_emulate_uses(a), amx_emulate_uses(b);
    RAD_ASSERT(c != a && c != b && a != b);
    RAD_ASSERT(shape->rows[a] == shape->rows[c] && shape->row_bytes[b] == shape->row_bytes[c] &&
               shape->row_bytes[a] == 4 * shape->rows[b] && shape->row_bytes[c] % 4 == 0);
}

static inline void amx_emulate_dp(int c, int a, int b)
{
    const amx_config *shape = &amx_thread.config;
    amx_emulate_fits(c, a, b);
    uint32_t columns = shape->row_bytes[c] / 4, depth = shape->rows[b];
    float factor[AMX_ROWS][AMX_ROWS][2]; /* b, widened once for all rows of a */
    for (uint32_t k = 0; k < depth; k++)
        for (uint32_t n = 0; n < columns; n++)
            amx_emulate_halves(amx_thread.tile[b][k][n], factor[k][n]);
    for (uint32_t m = 0; m < shape->rows[c]; m++) {
        float sum[AMX_ROWS][2] = {{0}};
        for (uint32_t k = 0; k < depth; k++) {
            float one[2];
            amx_emulate_halves(amx_thread.tile[a][m][k], one);
            for (uint32_t n = 0; n < columns; n++)
                for (int half = 0; half < 2; half++)
                    sum[n][half] = amx_fma(one[half], factor[k][n][half], sum[n][half]);
        }
        for (uint32_t n = 0; n < columns; n++) {
            float *to = &amx_thread.tile[c][m][n];
            *to = amx_flush(amx_flush(*to) + amx_flush(sum[n][0] + sum[n][1]));
        }
    }
}

static inline void amx_emulate_dp_int8(int c, int a, int b)
{
    const amx_config *shape = &amx_thread.config;
    amx_emulate_fits(c, a, b);
    for (uint32_t m = 0; m < shape->rows[c]; m++) {
        int32_t sum[AMX_ROWS];
        int8_t left[AMX_ROW_BYTES], right[AMX_ROW_BYTES];
        memcpy(left, amx_thread.tile[a][m], sizeof left);
        memcpy(sum, amx_thread.tile[c][m], sizeof sum);
        for (uint32_t k = 0; k < shape->rows[b]; k++) {
            memcpy(right, amx_thread.tile[b][k], sizeof right);
            for (uint32_t n = 0; n < shape->row_bytes[c] / 4u; n++) {
                int32_t four = 0;
                for (uint32_t i = 0; i < 4; i++)
                    four += left[4 * k + i] * right[4 * n + i];
                sum[n] = (int32_t)((uint32_t)sum[n] + (uint32_t)four); /* wraps */
            }
        }
        memcpy(amx_thread.tile[c][m], sum, sizeof sum);
    }
}

#define AMX_CONFIGURE(c)         amx_emulate_configure(c)
#define AMX_RELEASE()            amx_emulate_release()
#define AMX_ZERO(t)              amx_emulate_zero(t)
#define AMX_LOAD(t, from, pitch) amx_emulate_load(t, from, pitch)
#define AMX_STORE(t, to, pitch)  amx_emulate_store(t, to, pitch)
#define AMX_DP(c, a, b)          amx_emulate_dp(c, a, b)
#define AMX_DP_INT8(c, a, b)     amx_emulate_dp_int8(c, a, b)

#endif
