/* block_ffn.c - x += [rms] ffn_down . glu(gate_up . rms(x)) */
#include "model/block.h"

gemm_glu *block_glu(const step *s)
{
    switch (s->c->arch->ffn) {
    case FFN_GEGLU: return s->m->ops->geglu;
    case FFN_SWIGLU_CLAMPED: return s->m->ops->swiglu_clamped;
    case FFN_SWIGLU: break;
    }
    return s->m->ops->swiglu;
}

void block_ffn(step *s)
{
    const model_config *c = s->c;
    const forward_buffers *b = s->b;
    const layer_weights *w = s->w;
    size_t ld = 2 * (size_t)s->l->ffn_dim;
    block_norm(s, w->ffn_norm, w->gate_up);
    gemm_run_glu(w->gate_up, b->norm, c->dim, s->rows, block_glu(s), b->wide, ld, w->ffn_down,
                 b->ffn_scratch, s->m->pool, b->gemm_scratch);
    block_project(s, w->ffn_down, b->wide, ld, b->ffn_scratch, NULL, w->post_ffn_norm);
}
