/* block.c - see block.h. */
#include "model/block.h"

enum { ROWS_PER_TILE = 4 };

static void rows_tile(void *arg, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const step *s = arg;
    uint32_t first = tile * ROWS_PER_TILE, end = RAD_MIN(first + ROWS_PER_TILE, s->rows);
    for (uint32_t i = first; i < end; i++)
        s->row(s, i);
}

void block_for_rows(step *s, void (*row)(const step *, uint32_t))
{
    s->row = row;
    compute_pool_run(s->m->pool, (s->rows + ROWS_PER_TILE - 1) / ROWS_PER_TILE, rows_tile, s);
}

static void norm_row(const step *s, uint32_t i)
{
    const uint32_t dim = s->c->dim;
    float *norm = s->b->norm + (size_t)i * dim, *x = s->b->x + (size_t)i * dim;
    if (s->norm_weight)
        s->m->ops->rms_norm(norm, x, s->norm_weight, dim, s->c->rms_eps);
    else
        memcpy(norm, x, dim * sizeof *x);
    if (s->reader) gemm_round_row(s->reader, norm, i, s->b->gemm_scratch);
}

void block_norm(step *s, const float *weight, const gemm_weight *reader)
{
    s->norm_weight = weight;
    s->reader = reader;
    block_for_rows(s, norm_row);
}

void block_gemm_of_norm(const step *s, float *out)
{
    const gemm_weight *w = s->reader;
    gemm_run_rounded(w, s->b->norm, s->c->dim, s->rows, out, gemm_weight_n(w), false, s->m->pool,
                     s->b->gemm_scratch);
}

void block_add_row(const step *s, uint32_t i)
{
    const uint32_t dim = s->c->dim;
    const float scale = s->c->residual_scale;
    float *added = s->b->norm + (size_t)i * dim;
    if (s->bias) s->m->ops->add(added, s->bias, dim);
    if (s->norm_weight) s->m->ops->rms_norm(added, added, s->norm_weight, dim, s->c->rms_eps);
    for (uint32_t d = 0; d < dim && scale != 1; d++)
        added[d] *= scale;
    s->m->ops->add(s->b->x + (size_t)i * dim, added, dim);
}

void block_project(step *s, const gemm_weight *w, const float *in, size_t ld, void *rounded,
                   const float *bias, const float *post_norm)
{
    const forward_buffers *b = s->b;
    const bool at_once = !bias && !post_norm && s->c->residual_scale == 1;
    float *out = at_once ? b->x : b->norm;
    if (rounded)
        gemm_run_rounded(w, in, ld, s->rows, out, s->c->dim, at_once, s->m->pool, rounded);
    else
        gemm_run(w, in, ld, s->rows, out, s->c->dim, at_once, s->m->pool, b->gemm_scratch);
    if (at_once) return;
    s->bias = bias;
    s->norm_weight = post_norm;
    block_for_rows(s, block_add_row);
}

void block_mixer_project(step *s)
{
    block_project(s, s->w->attn_output, s->said, s->said_ld, NULL, s->w->output_bias,
                  s->w->post_attn_norm);
}
