/* block_conv.c - a gated short convolution (LFM2): it looks a few tokens back and no further.
 *
 *     b c v   = in_proj . rms(x)
 *     x      += out_proj . (c * convolution(b * v)) */
#include "model/block_state.h"

static state_inputs inputs_of(const step *s)
{
    return (state_inputs){s->b->wide, gemm_weight_n(s->w->qkv)};
}

/* b becomes b * v. */
static void input_row(const step *s, uint32_t i)
{
    const uint32_t dim = s->c->dim;
    float *b = s->b->wide + (size_t)i * gemm_weight_n(s->w->qkv);
    s->m->ops->mul(b, b + 2 * (size_t)dim, dim);
}

/* Left where c is. */
static void conv_row(const step *s, uint32_t i)
{
    const state_inputs in = inputs_of(s);
    float *out = s->b->q + (size_t)i * s->c->dim;
    block_convolve(s, &in, i, out);
    s->m->ops->mul(s->said + i * s->said_ld, out, s->c->dim);
}

rad_status block_conv(step *s, rad_error *err)
{
    const state_inputs in = inputs_of(s);
    (void)err;
    block_norm(s, s->w->attn_norm, s->w->qkv);
    block_gemm_of_norm(s, s->b->wide);
    s->said = s->b->wide + s->c->dim, s->said_ld = in.ld, s->said_dim = s->c->dim;
    block_for_rows(s, input_row);
    block_for_rows(s, conv_row);
    block_scan(s, &in, NULL);
    return RAD_OK;
}
