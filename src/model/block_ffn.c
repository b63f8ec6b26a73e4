/* block_ffn.c - x += [rms] ffn_down . glu(gate_up . rms(x)), or ffn_down . relu2(up . rms(x)) */
#include "model/block.h"

gemm_glu *block_glu(const step *s)
{
    switch (s->c->arch->ffn) {
    case FFN_GEGLU: return s->m->ops->geglu;
    case FFN_SWIGLU_CLAMPED: return s->m->ops->swiglu_clamped;
    case FFN_RELU2: /* has no gates */
    case FFN_SWIGLU: break;
    }
    return s->m->ops->swiglu;
}

void block_relu2(const step *s, const gemm_weight *then, float *x, uint32_t n, uint32_t row,
                 void *scratch)
{
    s->m->ops->relu2(x, n);
    gemm_round_row(then, x, row, scratch);
}

static void relu2_row(const step *s, uint32_t i)
{
    const uint32_t n = s->l->ffn_dim;
    block_relu2(s, s->w->ffn_down, s->b->wide + (size_t)i * n, n, i, s->b->ffn_scratch);
}

static void ungated(step *s)
{
    const forward_buffers *b = s->b;
    block_norm(s, s->w->ffn_norm, s->w->gate_up);
    block_gemm_of_norm(s, b->wide);
    block_for_rows(s, relu2_row);
    block_project(s, s->w->ffn_down, b->wide, s->l->ffn_dim, b->ffn_scratch, NULL,
                  s->w->post_ffn_norm);
}

void block_ffn(step *s)
{
    if (s->c->arch->ffn == FFN_RELU2) {
        ungated(s);
        return;
    }
    const model_config *c = s->c;
    const forward_buffers *b = s->b;
    const layer_weights *w = s->w;
    size_t ld = 2 * (size_t)s->l->ffn_dim;
    block_norm(s, w->ffn_norm, w->gate_up);
    gemm_run_glu(w->gate_up, b->norm, c->dim, s->rows, block_glu(s), b->wide, ld, w->ffn_down,
                 b->ffn_scratch, s->m->pool, b->gemm_scratch);
    block_project(s, w->ffn_down, b->wide, ld, b->ffn_scratch, NULL, w->post_ffn_norm);
}
