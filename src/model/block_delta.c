/* block_delta.c - the gated delta rule (Gated DeltaNet's paper; Qwen 3.5).
 *
 *     q k v z         = in . rms(x)                    alpha beta = gates . rms(x)
 *     q k v           = silu(convolution(q k v))
 *     q, k            of each head by its length; q by sqrt(key), too
 *     d               = e^(a softplus(alpha + dt))     w = sigmoid(beta)
 *     S               = d S + k w (v - d k.S)          out = q.S
 *     x              += ssm_out . (rms(out) silu(z))
 *
 * rms and length are of a head. */
#include "model/block_state.h"

#include <math.h>

static state_inputs inputs_of(const step *s)
{
    return (state_inputs){s->b->wide, gemm_weight_n(s->w->qkv)};
}

/* Of `n` numbers: as long as `length`, in place. */
static void scale_to(const step *s, float *x, uint32_t n, float length)
{
    const float by = length / sqrtf(s->m->ops->dot(x, x, n) + s->c->rms_eps);
    for (uint32_t i = 0; i < n; i++)
        x[i] *= by;
}

static void delta_row(const step *s, uint32_t i)
{
    const recurrent_config *x = &s->c->recurrent;
    const uint32_t heads = x->heads, keys = x->groups * x->key;
    const state_inputs in = inputs_of(s);
    float *q = s->b->q + (size_t)i * x->conv_dim, *k = q + keys;
    float *decay = s->b->k + (size_t)i * (2 * heads + x->groups), *weight = decay + heads,
          *product = weight + heads;
    const float *alpha = s->b->v + (size_t)i * 2 * heads, *beta = alpha + heads;
    block_convolve(s, &in, i, q);
    s->m->ops->silu(q, x->conv_dim);
    for (uint32_t g = 0; g < x->groups; g++, q += x->key, k += x->key) {
        scale_to(s, q, x->key, 1 / sqrtf((float)x->key));
        scale_to(s, k, x->key, 1);
        product[g] = s->m->ops->dot(q, k, x->key);
    }
    memcpy(decay, alpha, heads * sizeof *decay);
    s->m->ops->add(decay, s->w->ssm_dt, heads);
    s->m->ops->softplus(decay, heads);
    s->m->ops->mul(decay, s->w->ssm_a, heads);
    s->m->ops->exps(decay, decay, heads);
    s->m->ops->sigmoids(weight, beta, heads);
}

/* Left where z is. */
static void gate_row(const step *s, uint32_t i)
{
    const recurrent_config *x = &s->c->recurrent;
    float *z = s->said + i * s->said_ld, *out = s->b->unpacked + (size_t)i * state_inner(x);
    for (uint32_t h = 0; h < x->heads; h++, z += x->value, out += x->value) {
        s->m->ops->rms_norm(out, out, s->w->ssm_norm, x->value, s->c->rms_eps);
        s->m->ops->swiglu(z, out, x->value);
    }
}

rad_status block_delta(step *s, rad_error *err)
{
    const recurrent_config *x = &s->c->recurrent;
    const forward_buffers *b = s->b;
    const state_inputs in = inputs_of(s);
    const state_scan scan = {.run = s->m->scan->delta,
                             .query_at = 0,
                             .key_at = x->groups * x->key,
                             .value_at = 2 * x->groups * x->key,
                             .gate_ld = 2 * x->heads + x->groups,
                             .tiled = true};
    (void)err;
    block_norm(s, s->w->attn_norm, s->w->qkv);
    block_gemm_of_norm(s, b->wide);
    gemm_run(s->w->ssm_gates, b->norm, s->c->dim, s->rows, b->v, 2 * (size_t)x->heads, false,
             s->m->pool, b->gemm_scratch);
    block_for_rows(s, delta_row);
    block_scan(s, &in, &scan);
    s->said = b->wide + x->conv_dim, s->said_ld = in.ld, s->said_dim = state_inner(x);
    block_for_rows(s, gate_row);
    return RAD_OK;
}
