/* gemm_scalar.c - the kernels in plain C: any CPU, and the judge of the others.
 *
 * fmaf rounds once, as the vector instruction does, so an output has the same
 * bits here and there. */
#include "model/gemm_kernels.h"

#include <math.h>

static void start(float *sum, const float *c, bool fresh)
{
    if (fresh)
        memset(sum, 0, GEMM_PANEL * sizeof *sum);
    else
        memcpy(sum, c, GEMM_PANEL * sizeof *sum);
}

void gemm_scalar_f32(const gemm_tile *t)
{
    for (uint32_t r = 0; r < t->rows; r++) {
        const float *row = (const float *)t->x + r * t->ldx;
        const float *panel = t->w;
        float sum[GEMM_PANEL];
        start(sum, t->c + r * t->ldc, t->fresh);
        for (uint32_t k = 0; k < t->depth; k++, panel += GEMM_PANEL)
            for (uint32_t j = 0; j < GEMM_PANEL; j++)
                sum[j] = fmaf(row[k], panel[j], sum[j]);
        memcpy(t->c + r * t->ldc, sum, sizeof sum);
    }
}

void gemm_scalar_bf16(const gemm_tile *t)
{
    for (uint32_t r = 0; r < t->rows; r++) {
        const float *row = (const float *)t->x + r * t->ldx;
        const uint32_t *panel = t->w;
        float sum[GEMM_PANEL];
        start(sum, t->c + r * t->ldc, t->fresh);
        for (uint32_t k = 0; k < t->depth; k++, panel += GEMM_PANEL)
            for (uint32_t j = 0; j < GEMM_PANEL; j++) {
                sum[j] = fmaf(row[2 * k], gemm_pair_low(panel[j]), sum[j]);
                sum[j] = fmaf(row[2 * k + 1], gemm_pair_high(panel[j]), sum[j]);
            }
        memcpy(t->c + r * t->ldc, sum, sizeof sum);
    }
}

void gemm_scalar_f16(const gemm_tile *t)
{
    for (uint32_t r = 0; r < t->rows; r++) {
        const float *row = (const float *)t->x + r * t->ldx;
        const uint16_t *panel = t->w;
        float sum[GEMM_PANEL];
        start(sum, t->c + r * t->ldc, t->fresh);
        for (uint32_t k = 0; k < 2 * t->depth; k++, panel += GEMM_PANEL)
            for (uint32_t j = 0; j < GEMM_PANEL; j++)
                sum[j] = fmaf(row[k], f16_to_f32(panel[j]), sum[j]);
        memcpy(t->c + r * t->ldc, sum, sizeof sum);
    }
}

const gemm_isa gemm_scalar = {.name = "scalar",
                              .f32 = gemm_scalar_f32,
                              .bf16 = gemm_scalar_bf16,
                              .bf16w = gemm_scalar_bf16,
                              .f16w = gemm_scalar_f16,
                              .quant = &gemm_quant_scalar,
                              .widens = true,
                              .round_row = gemm_round_to_f32};
