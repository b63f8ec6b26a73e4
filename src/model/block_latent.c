/* block_latent.c - multi-head latent attention, absorbed: what K and V are made of is what the
 * cache has, one row a token for all heads.
 *
 *     q      = [q_b . rms(]q_a . rms(x)[)]        per head: plain | rotated
 *     row    = kv_a . rms(x)                      rms(latent) | rope(rotated)
 *     q'     = k_b . plain | rope(rotated)        per head, as wide as the row
 *     said   = attention(q', row)                 V is the row's latent
 *     x     += attn_output . (v_b . said)
 *
 * q . K with K = k_b^T . latent is (k_b . q) . latent: so K is never made, and attention sees one
 * KV head. The products of all heads run as one (gemm_run_items).
 *
 * Decode and prefill compute the same, so the bits are the same (P1). */
#include "model/block.h"

/* q's few numbers, normed and rounded for the product that makes heads of them. */
static void q_row(const step *s, uint32_t i)
{
    float *few = s->b->wide + (size_t)i * gemm_weight_n(s->w->qkv);
    s->m->ops->rms_norm(few, few, s->w->q_norm, s->c->latent.q_rank, s->c->rms_eps);
    gemm_round_row(s->w->latent_q, few, i, s->b->gemm_scratch);
}

/* q of all heads, and how far it is from one token's to the next's. */
static float *heads_of_q(const step *s, size_t *ld)
{
    *ld = s->w->latent_q ? gemm_weight_n(s->w->latent_q) : gemm_weight_n(s->w->qkv);
    return s->w->latent_q ? s->b->unpacked : s->b->wide;
}

static const float *angles_of_row(const step *s, uint32_t i)
{
    const model_config *c = s->c;
    return s->b->rope + ((size_t)i * c->num_ropes + s->l->rope) * 2 * c->rope_dim;
}

/* K's row. */
static void k_row(const step *s, uint32_t i)
{
    const model_config *c = s->c;
    const latent_config *x = &c->latent;
    const uint32_t row = x->kv_rank + c->rope_dim, n = gemm_weight_n(s->w->qkv);
    const float *from = s->b->wide + (size_t)(i + 1) * n - row;
    float *k = s->b->k + (size_t)i * row;
    s->m->ops->rms_norm(k, from, s->w->k_norm, x->kv_rank, c->rms_eps);
    memcpy(k + x->kv_rank, from + x->kv_rank, c->rope_dim * sizeof *k);
    s->m->ops->rope(c->arch->rope, k + x->kv_rank, angles_of_row(s, i), c->rope_dim);
}

/* The same, the rotated part of each head's q, and the rest of it rounded for k_b. */
static void latent_row(const step *s, uint32_t i)
{
    const model_config *c = s->c;
    const latent_config *x = &c->latent;
    const uint32_t key = x->plain + c->rope_dim, row = x->kv_rank + c->rope_dim;
    const float *table = angles_of_row(s, i);
    k_row(s, i);

    size_t ld;
    const float *q = heads_of_q(s, &ld);
    q += i * ld;
    for (uint32_t h = 0; h < s->l->num_heads; h++, q += key) {
        float *to = s->b->q + ((size_t)i * s->l->num_heads + h) * row + x->kv_rank;
        memcpy(to, q + x->plain, c->rope_dim * sizeof *to);
        s->m->ops->rope(c->arch->rope, to, table, c->rope_dim);
        gemm_round_row(s->w->latent_k[0], q, h * s->rows + i, s->b->head_scratch);
    }
}

/* One product for each head; what head h reads and writes begins h * step_x and h * step_out on. */
static void run_heads(const step *s, gemm_weight *const *w, const float *x, size_t step_x,
                      size_t ldx, float *out, size_t step_out, size_t ldo)
{
    for (uint32_t h = 0; h < s->l->num_heads; h++)
        s->b->heads[h] = (gemm_item){.w = w[h],
                                     .x = x + h * step_x,
                                     .out = out + h * step_out,
                                     .rows = s->rows,
                                     .first = h * s->rows};
    gemm_run_items(s->b->heads, s->l->num_heads, ldx, ldo, s->m->pool, s->b->head_scratch);
}

void block_latent_kv(step *s)
{
    block_norm(s, s->w->attn_norm, s->w->qkv);
    block_gemm_of_norm(s, s->b->wide);
    block_for_rows(s, k_row);
}

rad_status block_latent(step *s, rad_error *err)
{
    const forward_buffers *b = s->b;
    const layer_weights *w = s->w;
    const latent_config *x = &s->c->latent;
    const uint32_t key = x->plain + s->c->rope_dim, row = x->kv_rank + s->c->rope_dim;
    const radix_attention attention = block_attention_of(s);
    block_norm(s, w->attn_norm, w->qkv);
    block_gemm_of_norm(s, b->wide);
    if (w->latent_q) {
        block_for_rows(s, q_row);
        gemm_run_rounded(w->latent_q, b->wide, gemm_weight_n(w->qkv), s->rows, b->unpacked,
                         gemm_weight_n(w->latent_q), false, s->m->pool, b->gemm_scratch);
    }
    block_for_rows(s, latent_row);
    size_t ld;
    const float *q = heads_of_q(s, &ld);
    run_heads(s, w->latent_k, q, key, ld, b->q, row, (size_t)s->l->num_heads * row);
    s->said = b->wide, s->said_ld = s->said_dim = layer_attn_dim(s->l);
    return radix_attention_run(&attention, s->m->attn, block_batch_of(s), b->q, b->k, NULL, 1,
                               b->wide, s->m->pool, err);
}

static void said_row(const step *s, uint32_t i)
{
    const uint32_t rank = s->c->latent.kv_rank;
    const float *said = s->b->wide + (size_t)i * s->l->num_heads * rank;
    for (uint32_t h = 0; h < s->l->num_heads; h++, said += rank)
        gemm_round_row(s->w->latent_v[0], said, h * s->rows + i, s->b->head_scratch);
}

void block_latent_project(step *s)
{
    const forward_buffers *b = s->b;
    const latent_config *x = &s->c->latent;
    const size_t value = (size_t)s->l->num_heads * x->value;
    block_for_rows(s, said_row);
    run_heads(s, s->w->latent_v, b->wide, x->kv_rank, layer_attn_dim(s->l), b->unpacked, x->value,
              value);
    block_project(s, s->w->attn_output, b->unpacked, value, NULL, NULL, s->w->post_attn_norm);
}
