/* block_attention.c - x += [rms] attn_output . attention(rope([rms] qkv . rms(x) [+ bias])); what
 * stands in brackets only some architectures do.
 *
 * Two halves: behind attention itself, the last layer goes on with fewer rows. */
#include "model/block.h"
#include "model/rope.h"

static void warm_q(const step *s, uint32_t i, float *q)
{
    const float by = rope_q_factor(s->c, s->batch->positions[i]);
    for (uint32_t d = 0; d < layer_q_dim(s->l); d++)
        q[d] *= by;
}

/* Heads of q or k: out of the stack, in which they are `step` floats apart, normed if the family
 * says so, rotated. */
static void place_heads(const step *s, uint32_t i, const float *from, uint32_t step_from, float *to,
                        uint32_t heads, const float *weight)
{
    const model_config *c = s->c;
    const uint32_t head_dim = s->l->head_dim;
    const float *table = s->b->rope + ((size_t)i * c->num_ropes + s->l->rope) * 2 * c->rope_dim;
    const uint32_t turns = s->l->rope == ROPE_NONE ? 0 : c->ropes[s->l->rope].dim;
    const bool by_head = weight && c->arch->qk_norm == QK_NORM_HEAD;
    if (weight && !by_head) s->m->ops->rms_norm(to, from, weight, heads * head_dim, c->rms_eps);
    for (uint32_t h = 0; h < heads; h++, from += step_from, to += head_dim) {
        if (by_head)
            s->m->ops->rms_norm(to, from, weight, head_dim, c->rms_eps);
        else if (!weight)
            memcpy(to, from, head_dim * sizeof *to);
        if (turns) s->m->ops->rope(c->arch->rope, to, table, turns);
    }
}

/* As it is, or of K, and normed by heads where the family does so. */
static void place_v(const step *s, const float *from, float *to)
{
    const layer_config *l = s->l;
    if (!s->c->arch->v_norm) memcpy(to, from, layer_v_dim(l) * sizeof *to);
    for (uint32_t h = 0; s->c->arch->v_norm && h < l->num_kv_heads; h++)
        s->m->ops->rms_norm(to + (size_t)h * l->v_head_dim, from + (size_t)h * l->v_head_dim,
                            s->b->ones, l->v_head_dim, s->c->rms_eps);
}

static void qkv_row(const step *s, uint32_t i)
{
    const layer_config *l = s->l;
    const forward_buffers *b = s->b;
    uint32_t q_rows = layer_q_rows(l), k_dim = layer_k_dim(l), v_dim = layer_v_dim(l);
    float *qkv = b->wide + (size_t)i * layer_qkv_dim(l), *q = b->q + (size_t)i * layer_q_dim(l);
    if (s->w->qkv_bias) s->m->ops->add(qkv, s->w->qkv_bias, layer_qkv_dim(l));
    place_heads(s, i, qkv, q_rows / l->num_heads, q, l->num_heads, s->w->q_norm);
    if (!l->shares_kv) {
        place_heads(s, i, qkv + q_rows, l->head_dim, b->k + (size_t)i * k_dim, l->num_kv_heads,
                    s->w->k_norm);
        place_v(s, qkv + q_rows + (l->v_is_k ? 0 : k_dim), b->v + (size_t)i * v_dim);
    }
    for (uint32_t h = 0; l->gated && h < l->num_heads; h++)
        s->m->ops->sigmoids(b->unpacked + (size_t)i * layer_q_dim(l) + (size_t)h * l->head_dim,
                            qkv + (2 * (size_t)h + 1) * l->head_dim, l->head_dim);
    if (s->c->q_temperature > 0) warm_q(s, i, q);
}

/* Of heads as wide as their gates. */
static void gate_row(const step *s, uint32_t i)
{
    const size_t n = s->said_dim;
    s->m->ops->mul(s->said + i * n, s->b->unpacked + i * n, s->said_dim);
}

radix_attention block_attention_of(const step *s)
{
    const layer_config *l = s->l;
    return (radix_attention){.layer_id = s->batch->window_kv_pool ? l->kv_layer : l->attn_layer,
                             .num_heads = l->num_heads,
                             .num_kv_heads = l->num_kv_heads,
                             .head_dim = l->head_dim,
                             .v_head_dim = l->v_head_dim,
                             .scaling = s->c->attn_scale,
                             .logit_cap = s->c->attn_logit_cap,
                             .sliding_window = layer_window(l),
                             .sinks = s->w->sinks};
}

const forward_batch *block_batch_of(const step *s)
{
    return s->batch->window_kv_pool && s->l->window ? &s->window : s->batch;
}

rad_status block_attention_check(const step *s, rad_error *err)
{
    const radix_attention attention = block_attention_of(s);
    return radix_attention_check(&attention, block_batch_of(s)->token_to_kv_pool, err);
}

void block_attention_kv(step *s)
{
    block_norm(s, s->w->attn_norm, s->w->qkv);
    block_gemm_of_norm(s, s->b->wide);
    block_for_rows(s, qkv_row);
}

rad_status block_attention(step *s, rad_error *err)
{
    const forward_buffers *b = s->b;
    const radix_attention attention = block_attention_of(s);
    block_attention_kv(s);
    const bool own = !s->l->shares_kv;
    rad_status status = radix_attention_run(&attention, s->m->attn, block_batch_of(s), b->q,
                                            own ? b->k : NULL, own ? b->v : NULL, own, b->wide,
                                            s->m->pool, err);
    s->said = b->wide, s->said_ld = s->said_dim = layer_attn_dim(s->l);
    if (status == RAD_OK && s->l->gated) block_for_rows(s, gate_row);
    return status;
}
