/* llama.c - embedding, layers, logits; see llama.h.
 *
 *     x = embed(ids)                    [* sqrt(dim)]
 *     per layer:   x += [rms] attn_output . attention(rope([rms] qkv . rms(x) [+ bias]))
 *                  x += [rms] ffn_down . glu(gate_up . rms(x))
 *     logits = [cap] output . rms(x)    (only rows that were asked for)
 *
 * What stands in brackets only some architectures do; see model_arch in config.h.
 *
 * Matrix products and attention parallelise themselves; what lies between works on
 * rows, a few per tile. Rows are rounded for the product that reads them where they are
 * made: a norm or a glu leaves them in scratch memory, and the product begins at once. Of one
 * request's decode step all this is too little to be spread further (llama-110m in q8_0 behind
 * 512 tokens, 2 Zen 5 cores, us): products 1430 for 106 MB, attention and the K/V store 210 for
 * 6 MB, norms, rounding and RoPE 25 together. In the last layer everything behind
 * attention is done for the rows with logits only: the others had to write their K/V and are
 * done.
 *
 * Invariant (P1): each region maps a row to a row by operations that depend on that row
 * alone, so batching, chunking and threads do not change a bit. */
#include "model/llama.h"
#include "model/rope.h"

#include <math.h>

enum { ROWS_PER_TILE = 4 };

/* ---- memory ---- */

/* Takes `count` rows of `size` bytes from an arena that is being measured or cut. Sums
 * that do not fit in size_t stick at SIZE_MAX. */
static size_t take(size_t *used, size_t count, size_t size)
{
    size_t bytes, end, at = *used;
    if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, 63, &bytes) ||
        __builtin_add_overflow(at, bytes & ~(size_t)63, &end))
        end = SIZE_MAX;
    *used = end;
    return at;
}

static size_t scratch_bytes(const model_weights *w, uint32_t max_tokens, uint32_t max_logits)
{
    size_t most = gemm_scratch_bytes(w->output, max_logits);
    /* All layers have one shape, and what a product needs does not depend on the type that its
     * weights have (which may differ from layer to layer): the first one speaks for all. */
    const layer_weights *l = &w->layers[0];
    const gemm_weight *all[] = {l->qkv, l->attn_output, l->gate_up};
    for (size_t i = 0; i < RAD_COUNT(all); i++)
        most = RAD_MAX(most, gemm_scratch_bytes(all[i], max_tokens));
    return most;
}

rad_status llama_buffers_init(const rad_env *env, const model_weights *w, uint32_t max_tokens,
                              uint32_t max_logits, llama_buffers *out, rad_error *err)
{
    const model_config *c = &w->config;
    llama_buffers b = {.max_tokens = max_tokens, .max_logits = max_logits};
    uint32_t attn_wide = RAD_MAX(config_qkv_dim(c), config_attn_dim(c));
    b.wide_dim = RAD_MAX(attn_wide, 2 * c->ffn_dim);

    const size_t f = sizeof(float);
    size_t used = 0;
    size_t x = take(&used, max_tokens, c->dim * f), norm = take(&used, max_tokens, c->dim * f);
    size_t wide = take(&used, max_tokens, b.wide_dim * f);
    size_t q = take(&used, max_tokens, config_q_dim(c) * f);
    size_t k = take(&used, max_tokens, config_k_dim(c) * f);
    size_t v = take(&used, max_tokens, config_v_dim(c) * f);
    size_t rope = take(&used, max_tokens, 2 * c->rope_dim * f);
    size_t logits = take(&used, max_logits, c->vocab_size * f);
    size_t scratch = take(&used, 1, scratch_bytes(w, max_tokens, max_logits));
    size_t down = gemm_scratch_bytes(w->layers[0].ffn_down, max_tokens);
    size_t ffn_scratch = take(&used, 1, down);
    size_t freqs = take(&used, c->rope_dim / 2, sizeof(double));

    /* Not rad_alloc: everything is written before it is read, and pages that no batch
     * is large enough for are never touched. */
    b.bytes = used;
    b.memory = used == SIZE_MAX ? NULL : env->alloc(env->user, used);
    if (!b.memory)
        return rad_fail(err, RAD_E_NOMEM,
                        "model: no memory for batches of %u tokens and %u logits (%zu bytes)",
                        max_tokens, max_logits, used);
    char *base = b.memory;
    b.x = (float *)(base + x);
    b.norm = (float *)(base + norm);
    b.wide = (float *)(base + wide);
    b.q = (float *)(base + q);
    b.k = (float *)(base + k);
    b.v = (float *)(base + v);
    b.rope = (float *)(base + rope);
    b.logits = (float *)(base + logits);
    b.gemm_scratch = base + scratch;
    b.ffn_scratch = base + ffn_scratch;
    b.freqs = (double *)(base + freqs);
    rope_freqs(b.freqs, c->rope_base, c->rope_dim, &c->scaling, w->rope_divisors);
    *out = b;
    return RAD_OK;
}

void llama_buffers_fini(const rad_env *env, llama_buffers *b)
{
    rad_free(env, b->memory, b->bytes);
    *b = (llama_buffers){0};
}

/* ---- regions over rows ---- */

typedef struct step {
    const llama *m;
    const model_config *c;
    const llama_buffers *b;
    const forward_batch *batch;
    forward_batch window; /* of layers with a window, where they have memory of their own */
    const layer_weights *layer;
    const float *norm_weight;
    const gemm_weight *reader; /* of the norm's rows */
    uint32_t rows;
    void (*row)(const struct step *s, uint32_t row);
} step;

static void rows_tile(void *arg, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const step *s = arg;
    uint32_t first = tile * ROWS_PER_TILE, end = RAD_MIN(first + ROWS_PER_TILE, s->rows);
    for (uint32_t i = first; i < end; i++)
        s->row(s, i);
}

static void for_rows(step *s, void (*row)(const step *, uint32_t))
{
    s->row = row;
    compute_pool_run(s->m->pool, (s->rows + ROWS_PER_TILE - 1) / ROWS_PER_TILE, rows_tile, s);
}

static void embed_row(const step *s, uint32_t i)
{
    const model_config *c = s->c;
    float *x = s->b->x + (size_t)i * c->dim;
    model_weights_embed(s->m->weights, s->batch->input_ids[i], x);
    float scale = c->arch->scale_embedding ? sqrtf((float)c->dim) : 1;
    for (uint32_t d = 0; d < c->dim && scale != 1; d++)
        x[d] *= scale;
    rope_fill(c->arch->rope, s->b->rope + (size_t)i * 2 * c->rope_dim, s->batch->positions[i],
              s->b->freqs, c->rope_dim, c->scaling.magnitude);
}

static void norm_row(const step *s, uint32_t i)
{
    size_t at = (size_t)i * s->c->dim;
    s->m->ops->rms_norm(s->b->norm + at, s->b->x + at, s->norm_weight, s->c->dim, s->c->rms_eps);
    gemm_round_row(s->reader, s->b->norm + at, i, s->b->gemm_scratch);
}

/* Heads of q or k: out of the stack, normed if the family says so, rotated. */
static void place_heads(const step *s, uint32_t i, const float *from, float *to, uint32_t heads,
                        const float *weight)
{
    const model_config *c = s->c;
    const float *table = s->b->rope + (size_t)i * 2 * c->rope_dim;
    for (uint32_t h = 0; h < heads; h++, from += c->head_dim, to += c->head_dim) {
        if (weight)
            s->m->ops->rms_norm(to, from, weight, c->head_dim, c->rms_eps);
        else
            memcpy(to, from, c->head_dim * sizeof *to);
        s->m->ops->rope(c->arch->rope, to, table, c->rope_dim);
    }
}

static void qkv_row(const step *s, uint32_t i)
{
    const model_config *c = s->c;
    const llama_buffers *b = s->b;
    uint32_t q_dim = config_q_dim(c), k_dim = config_k_dim(c), v_dim = config_v_dim(c);
    float *qkv = b->wide + (size_t)i * config_qkv_dim(c);
    if (s->layer->qkv_bias) s->m->ops->add(qkv, s->layer->qkv_bias, config_qkv_dim(c));
    place_heads(s, i, qkv, b->q + (size_t)i * q_dim, c->num_heads, s->layer->q_norm);
    place_heads(s, i, qkv + q_dim, b->k + (size_t)i * k_dim, c->num_kv_heads, s->layer->k_norm);
    memcpy(b->v + (size_t)i * v_dim, qkv + q_dim + k_dim, v_dim * sizeof *qkv);
}

/* x += rms(norm) */
static void post_norm_row(const step *s, uint32_t i)
{
    size_t at = (size_t)i * s->c->dim;
    float *added = s->b->norm + at;
    s->m->ops->rms_norm(added, added, s->norm_weight, s->c->dim, s->c->rms_eps);
    s->m->ops->add(s->b->x + at, added, s->c->dim);
}

static void cap_row(const step *s, uint32_t i)
{
    uint32_t n = s->c->vocab_size;
    s->m->ops->cap(s->b->logits + (size_t)i * n, n, s->c->final_logit_cap);
}

/* ---- the pass ---- */

/* rms(x), rounded for `reader`. */
static void norm(step *s, const float *weight, const gemm_weight *reader)
{
    s->norm_weight = weight;
    s->reader = reader;
    for_rows(s, norm_row);
}

/* out = the reader . what norm() left */
static void gemm_of_norm(const step *s, float *out)
{
    const gemm_weight *w = s->reader;
    gemm_run_rounded(w, s->b->norm, s->c->dim, s->rows, out, gemm_weight_n(w), false, s->m->pool,
                     s->b->gemm_scratch);
}

/* What a block adds to x goes there at once, or through a norm of its own. */
static float *added_to(const step *s, const float *post)
{
    return post ? s->b->norm : s->b->x;
}

static void add_normed(step *s, const float *post)
{
    if (!post) return;
    s->norm_weight = post;
    for_rows(s, post_norm_row);
}

static rad_status attend(step *s, uint32_t layer, rad_error *err)
{
    const model_config *c = s->c;
    const llama_buffers *b = s->b;
    const bool apart = s->batch->window_kv_pool, slides = apart && config_slides(c, layer);
    const radix_attention attention = {.layer_id = apart ? config_kv_layer(c, layer) : layer,
                                       .num_heads = c->num_heads,
                                       .num_kv_heads = c->num_kv_heads,
                                       .head_dim = c->head_dim,
                                       .v_head_dim = c->v_head_dim,
                                       .scaling = c->attn_scale,
                                       .logit_cap = c->attn_logit_cap,
                                       .sliding_window = config_window(c, layer)};
    norm(s, s->layer->attn_norm, s->layer->qkv);
    gemm_of_norm(s, b->wide);
    for_rows(s, qkv_row);
    return radix_attention_forward(&attention, s->m->attn, slides ? &s->window : s->batch, b->q,
                                   b->k, b->v, 1, b->wide, s->m->pool, err);
}

/* Moves the rows that want logits to the front; indices ascend, so nothing is
 * overwritten before it has moved. */
static void keep_logits_rows(step *s)
{
    const model_config *c = s->c;
    size_t dim = c->dim, attn_dim = config_attn_dim(c);
    for (uint32_t i = 0; i < s->batch->num_logits; i++) {
        size_t from = s->batch->logits_indices[i];
        if (from == i) continue;
        memcpy(s->b->x + i * dim, s->b->x + from * dim, dim * sizeof(float));
        memcpy(s->b->wide + i * attn_dim, s->b->wide + from * attn_dim, attn_dim * sizeof(float));
    }
    s->rows = s->batch->num_logits;
}

static void project_attention(step *s)
{
    const llama_buffers *b = s->b;
    const gemm_weight *w = s->layer->attn_output;
    const float *post = s->layer->post_attn_norm;
    gemm_run(w, b->wide, config_attn_dim(s->c), s->rows, added_to(s, post), s->c->dim, !post,
             s->m->pool, b->gemm_scratch);
    add_normed(s, post);
}

static void feed_forward(step *s)
{
    const model_config *c = s->c;
    const llama_buffers *b = s->b;
    const layer_weights *l = s->layer;
    const float *post = l->post_ffn_norm;
    gemm_glu *glu = c->arch->ffn == FFN_GEGLU ? s->m->ops->geglu : s->m->ops->swiglu;
    size_t ld = 2 * (size_t)c->ffn_dim;
    norm(s, l->ffn_norm, l->gate_up);
    gemm_run_glu(l->gate_up, b->norm, c->dim, s->rows, glu, b->wide, ld, l->ffn_down,
                 b->ffn_scratch, s->m->pool, b->gemm_scratch);
    gemm_run_rounded(l->ffn_down, b->wide, ld, s->rows, added_to(s, post), c->dim, !post,
                     s->m->pool, b->ffn_scratch);
    add_normed(s, post);
}

rad_status llama_forward(const llama *model, const forward_batch *batch, rad_error *err)
{
    const model_weights *w = model->weights;
    const model_config *c = &w->config;
    step s = {.m = model, .c = c, .b = model->buffers, .batch = batch, .rows = batch->num_tokens};
    if (!s.rows) return RAD_OK;
    if (batch->window_kv_pool) s.window = forward_batch_of_window(batch);

    for_rows(&s, embed_row);
    for (uint32_t i = 0; i < c->num_layers; i++) {
        s.layer = &w->layers[i];
        rad_status status = attend(&s, i, err);
        if (status != RAD_OK) return status;
        if (i + 1 == c->num_layers) keep_logits_rows(&s);
        if (!s.rows) return RAD_OK;
        project_attention(&s);
        feed_forward(&s);
    }
    norm(&s, w->output_norm, w->output);
    gemm_of_norm(&s, s.b->logits);
    if (c->final_logit_cap > 0) for_rows(&s, cap_row);
    return RAD_OK;
}
