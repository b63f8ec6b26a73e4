/* block_mamba.c - Mamba 2 (its paper's recurrent form; Granite 4 h).
 *
 *     z v k q dt   = in . rms(x)                      v, k, q are the paper's x, B, C
 *     v k q        = silu(convolution(v k q) + bias)
 *     w            = softplus(dt + dt_bias)           d = e^(a w)
 *     S            = d S + k w v                      out = q.S + D v
 *     x           += ssm_out . rms(out silu(z))
 *
 * rms is of a group of heads. */
#include "model/block_state.h"

static state_inputs inputs_of(const step *s)
{
    return (state_inputs){s->b->wide + state_inner(&s->c->recurrent), gemm_weight_n(s->w->qkv)};
}

static void mamba_row(const step *s, uint32_t i)
{
    const recurrent_config *x = &s->c->recurrent;
    const uint32_t heads = x->heads;
    const state_inputs in = inputs_of(s);
    float *v = s->b->q + (size_t)i * x->conv_dim;
    float *decay = s->b->k + (size_t)i * 2 * heads, *weight = decay + heads;
    block_convolve(s, &in, i, v);
    s->m->ops->silu(v, x->conv_dim);
    memcpy(weight, in.at + i * in.ld + x->conv_dim, heads * sizeof *weight);
    s->m->ops->add(weight, s->w->ssm_dt, heads);
    s->m->ops->softplus(weight, heads);
    memcpy(decay, weight, heads * sizeof *decay);
    s->m->ops->mul(decay, s->w->ssm_a, heads);
    s->m->ops->exps(decay, decay, heads);
}

/* Left where z is. */
static void gate_row(const step *s, uint32_t i)
{
    const recurrent_config *x = &s->c->recurrent;
    const uint32_t inner = state_inner(x), group = inner / x->groups;
    float *z = s->said + i * s->said_ld, *out = s->b->unpacked + (size_t)i * inner;
    const float *v = s->b->q + (size_t)i * x->conv_dim;
    for (uint32_t h = 0; h < x->heads; h++)
        s->m->ops->add_scaled(out + (size_t)h * x->value, v + (size_t)h * x->value, s->w->ssm_d[h],
                              x->value);
    s->m->ops->swiglu(z, out, inner);
    for (uint32_t g = 0; g < x->groups; g++)
        s->m->ops->rms_norm(z + (size_t)g * group, z + (size_t)g * group,
                            s->w->ssm_norm + (size_t)g * group, group, s->c->rms_eps);
}

rad_status block_mamba(step *s, rad_error *err)
{
    const recurrent_config *x = &s->c->recurrent;
    const state_inputs in = inputs_of(s);
    const state_scan scan = {.run = s->m->scan->mamba,
                             .value_at = 0,
                             .key_at = state_inner(x),
                             .query_at = state_inner(x) + x->groups * x->key,
                             .gate_ld = 2 * x->heads};
    (void)err;
    block_norm(s, s->w->attn_norm, s->w->qkv);
    block_gemm_of_norm(s, s->b->wide);
    block_for_rows(s, mamba_row);
    block_scan(s, &in, &scan);
    s->said = s->b->wide, s->said_ld = in.ld, s->said_dim = state_inner(x);
    block_for_rows(s, gate_row);
    return RAD_OK;
}
