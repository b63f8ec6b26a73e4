/* forward.c - embedding, layers, logits; see forward.h.
 *
 *     x = embed(ids)   [* scale]
 *     per layer:   x += its mixer's block     (attention, or a recurrence)
 *                  x += its feed-forward block
 *                  [x += what it makes of the token's second embedding] [* scale]
 *     hidden = rms(x)                            (only rows that were asked for,
 *     logits = [cap] output . rms(x) [/ scale]    each of these two for itself)
 *
 * What stands in brackets only some architectures do; see model_arch in config.h.
 *
 * Of one request's decode step all that is neither product nor attention is too little to be
 * spread further (llama-110m in q8_0 behind
 * 512 tokens, 2 Zen 5 cores, us): products 1430 for 106 MB, attention and the K/V store 210 for
 * 6 MB, norms, rounding and RoPE 25 together. In the last layer everything behind
 * attention is done for the rows that are asked for only: the others had to write their K/V and
 * are done. */
#include "model/forward.h"
#include "model/block.h"
#include "model/nextn.h"
#include "model/rope.h"

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

/* The largest of all layers. What a product needs does not depend on the type of its weights. */
static size_t scratch_bytes(const model_weights *w, uint32_t max_tokens, uint32_t max_logits)
{
    size_t most = gemm_scratch_bytes(w->output, max_logits);
    if (w->layer_embd_proj)
        most = RAD_MAX(most, gemm_scratch_bytes(w->layer_embd_proj, max_tokens));
    for (uint32_t i = 0; i < config_all_layers(&w->config); i++) {
        const layer_weights *l = &w->layers[i];
        const gemm_weight *all[] = {l->qkv,       l->attn_output, l->gate_up,   l->shared_gate_up,
                                    l->latent_q,  l->ssm_gates,   l->embd_gate, l->embd_proj,
                                    l->nextn_proj};
        for (size_t k = 0; k < RAD_COUNT(all); k++)
            if (all[k]) most = RAD_MAX(most, gemm_scratch_bytes(all[k], max_tokens));
    }
    return most;
}

static uint32_t most_heads(const model_config *c)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < config_all_layers(c); i++)
        if (c->layers[i].mixer == MIXER_LATENT) most = RAD_MAX(most, c->layers[i].num_heads);
    return most;
}

/* Of one token: a row for each head. */
static size_t head_scratch_bytes(const model_weights *w)
{
    size_t most = 0;
    for (uint32_t i = 0; i < config_all_layers(&w->config); i++) {
        const layer_weights *l = &w->layers[i];
        const uint32_t heads = w->config.layers[i].num_heads;
        if (!l->latent_k) continue;
        most = RAD_MAX(most, gemm_scratch_bytes(l->latent_k[0], heads));
        most = RAD_MAX(most, gemm_scratch_bytes(l->latent_v[0], heads));
    }
    return most;
}

static size_t ffn_scratch_bytes(const model_weights *w, uint32_t max_tokens)
{
    size_t most = 0;
    for (uint32_t i = 0; i < config_all_layers(&w->config); i++) {
        const layer_weights *l = &w->layers[i];
        const gemm_weight *down = l->ffn_down ? l->ffn_down : l->shared_down;
        if (down) most = RAD_MAX(most, gemm_scratch_bytes(down, max_tokens));
    }
    return most;
}

/* Where a mixture's buffers begin, from the arena's start; 0 for those that the model lacks. */
typedef struct moe_places {
    size_t scores, choices, rows, chosen, items, x, wide, out, shared, shared_weight, scratch, then;
} moe_places;

static moe_places take_moe(const model_weights *w, uint32_t max_tokens, size_t *used)
{
    const experts_config *x = &w->config.experts;
    const size_t f = sizeof(float), row = w->config.dim * f;
    const layer_weights *l = w->layers;
    moe_places at = {0};
    const layer_weights *end = w->layers + config_all_layers(&w->config);
    while (l < end && !l->router)
        l++;
    if (!x->count || l == end) return at;
    at.scores = take(used, max_tokens, 2 * x->count * f);
    at.choices = take(used, max_tokens, x->used * sizeof(block_choice));
    at.rows = take(used, x->count, sizeof(uint32_t));
    at.chosen = take(used, x->count, sizeof(uint32_t));
    at.items = take(used, x->count, sizeof(gemm_item));
    for (const layer_weights *any = l; any < end && !at.x; any++)
        if (any->router && gemm_weight_reads_x(any->expert_gate_up[0]))
            at.x = take(used, max_tokens, x->used * row);
    at.wide = take(used, max_tokens, (size_t)x->used * 2 * x->dim * f);
    at.out = take(used, max_tokens, x->used * row);
    if (x->shared_dim || w->config.arch->experts_beside) at.shared = take(used, max_tokens, row);
    at.shared_weight = take(used, max_tokens, f);
    at.scratch = take(used, max_tokens, gemm_scratch_bytes(l->expert_gate_up[0], x->used));
    at.then = take(used, max_tokens, gemm_scratch_bytes(l->expert_down[0], x->used));
    return at;
}

static forward_moe moe_at(char *base, const moe_places *at)
{
    if (!at->choices) return (forward_moe){0};
    return (forward_moe){.scores = (float *)(base + at->scores),
                         .choices = (block_choice *)(base + at->choices),
                         .rows = (uint32_t *)(base + at->rows),
                         .chosen = (uint32_t *)(base + at->chosen),
                         .items = (gemm_item *)(base + at->items),
                         .x = at->x ? (float *)(base + at->x) : NULL,
                         .wide = (float *)(base + at->wide),
                         .out = (float *)(base + at->out),
                         .shared = (float *)(base + at->shared),
                         .shared_weight = (float *)(base + at->shared_weight),
                         .scratch = base + at->scratch,
                         .then_scratch = base + at->then};
}

/* The same of a head that guesses. */
typedef struct nextn_places {
    size_t x, norm, hidden, places, entries, slots;
    uint32_t rows;
} nextn_places;

enum { NEXTN_ROWS = 256 };

static nextn_places take_nextn(const model_config *c, uint32_t max_tokens, uint32_t max_logits,
                               size_t *used)
{
    nextn_places at = {.rows = RAD_MIN(max_tokens, (uint32_t)NEXTN_ROWS)};
    const size_t row = c->dim * sizeof(float);
    if (!c->num_nextn) return (nextn_places){0};
    at.x = take(used, at.rows, row);
    at.norm = take(used, at.rows, row);
    at.hidden = take(used, max_logits, row);
    at.places = take(used, RUNNER_PLACES, row);
    at.entries = take(used, at.rows, sizeof(nextn_entry));
    at.slots = take(used, at.rows, sizeof(rad_slot));
    return at;
}

static forward_nextn_buffers nextn_at(char *base, const nextn_places *at)
{
    if (!at->rows) return (forward_nextn_buffers){0};
    return (forward_nextn_buffers){.rows = at->rows,
                                   .x = (float *)(base + at->x),
                                   .norm = (float *)(base + at->norm),
                                   .hidden = (float *)(base + at->hidden),
                                   .places = (float *)(base + at->places),
                                   .entries = (nextn_entry *)(base + at->entries),
                                   .slots = (rad_slot *)(base + at->slots)};
}

rad_status forward_buffers_init(const rad_env *env, const model_weights *w, uint32_t max_tokens,
                                uint32_t max_logits, forward_buffers *out, rad_error *err)
{
    const model_config *c = &w->config;
    forward_buffers b = {.max_tokens = max_tokens, .max_logits = max_logits};
    const config_widths most = config_widest(c);
    const uint32_t embd = c->num_layers * c->layer_embd;
    b.wide_dim = RAD_MAX(RAD_MAX(most.qkv, most.attn), RAD_MAX(2 * most.ffn, embd));
    if (c->num_nextn) b.wide_dim = RAD_MAX(b.wide_dim, 2 * c->dim);

    const size_t f = sizeof(float);
    size_t used = 0;
    size_t x = take(&used, max_tokens, c->dim * f), norm = take(&used, max_tokens, c->dim * f);
    size_t wide = take(&used, max_tokens, b.wide_dim * f);
    size_t q = take(&used, max_tokens, most.q * f);
    size_t k = take(&used, max_tokens, most.k * f);
    size_t v = take(&used, max_tokens, most.v * f);
    size_t unpacked = take(&used, max_tokens, most.unpacked * f);
    size_t rope = take(&used, max_tokens, c->num_ropes * 2 * c->rope_dim * f);
    size_t logits = take(&used, max_logits, c->vocab_size * f);
    size_t embd_at = take(&used, max_tokens, embd * f);
    size_t ones = take(&used, c->arch->v_norm ? most.v : 0, f);
    size_t scratch = take(&used, 1, scratch_bytes(w, max_tokens, max_logits));
    size_t ffn_scratch = take(&used, 1, ffn_scratch_bytes(w, max_tokens));
    size_t heads = take(&used, most_heads(c), sizeof(gemm_item));
    size_t head_scratch = take(&used, max_tokens, head_scratch_bytes(w));
    size_t freqs = take(&used, c->num_ropes * (c->rope_dim / 2), sizeof(double));

    const moe_places moe = take_moe(w, max_tokens, &used);
    const nextn_places nextn = take_nextn(c, max_tokens, max_logits, &used);

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
    b.unpacked = (float *)(base + unpacked);
    b.rope = (float *)(base + rope);
    b.logits = (float *)(base + logits);
    b.embd = (float *)(base + embd_at);
    b.ones = (float *)(base + ones);
    for (uint32_t i = 0; c->arch->v_norm && i < most.v; i++)
        b.ones[i] = 1;
    b.gemm_scratch = base + scratch;
    b.ffn_scratch = base + ffn_scratch;
    b.head_scratch = base + head_scratch;
    b.heads = (gemm_item *)(base + heads);
    b.freqs = (double *)(base + freqs);
    b.moe = moe_at(base, &moe);
    b.nextn = nextn_at(base, &nextn);
    for (uint32_t r = 0; r < c->num_ropes; r++)
        rope_freqs(b.freqs + r * (c->rope_dim / 2), c->ropes[r].base, c->ropes[r].dim,
                   &c->ropes[r].scaling, c->ropes[r].scaling.divisors ? w->rope_divisors : NULL);
    *out = b;
    return RAD_OK;
}

void forward_buffers_fini(const rad_env *env, forward_buffers *b)
{
    rad_free(env, b->memory, b->bytes);
    *b = (forward_buffers){0};
}

/* ---- the pass ---- */

void forward_embed(const step *s, rad_token token, float *x)
{
    const model_config *c = s->c;
    model_weights_embed(s->m->weights, token, x);
    float scale = c->embedding_scale;
    for (uint32_t d = 0; d < c->dim && scale != 1; d++)
        x[d] *= scale;
}

void forward_rope(const step *s, uint32_t i, uint32_t position)
{
    const model_config *c = s->c;
    for (uint32_t r = 0; r < c->num_ropes; r++)
        rope_fill(c->arch->rope, s->b->rope + ((size_t)i * c->num_ropes + r) * 2 * c->rope_dim,
                  position, s->b->freqs + r * (c->rope_dim / 2), c->ropes[r].dim,
                  c->ropes[r].scaling.magnitude);
}

static void embed_row(const step *s, uint32_t i)
{
    forward_embed(s, s->batch->input_ids[i], s->b->x + (size_t)i * s->c->dim);
    forward_rope(s, i, s->batch->positions[i]);
}

static void scale_row(const step *s, uint32_t i)
{
    float *x = s->b->x + (size_t)i * s->c->dim;
    for (uint32_t d = 0; d < s->c->dim; d++)
        x[d] *= s->w->output_scale[0];
}

static void finish_row(const step *s, uint32_t i)
{
    const model_config *c = s->c;
    float *logits = s->b->logits + (size_t)i * c->vocab_size;
    const float by = 1 / c->logit_scale;
    for (uint32_t v = 0; v < c->vocab_size && by != 1; v++)
        logits[v] *= by;
    if (c->final_logit_cap > 0) s->m->ops->cap(logits, c->vocab_size, c->final_logit_cap);
}

/* Whether the logits of token t, or its hidden state, are asked for. *l and *p are the first of
 * logits_indices and of pools that are not before it: it is asked for ascending t. */
static bool has_logits(const forward_batch *b, uint32_t t, uint32_t *l)
{
    while (*l < b->num_logits && b->logits_indices[*l] < t)
        ++*l;
    return *l < b->num_logits && b->logits_indices[*l] == t;
}

static bool has_hidden(const forward_batch *b, uint32_t t, uint32_t *p)
{
    while (*p < b->num_pools && b->pools[*p].first + b->pools[*p].count <= t)
        ++*p;
    return *p < b->num_pools && b->pools[*p].first <= t;
}

/* Moves the rows that something is asked of to the front; tokens ascend, so nothing is overwritten
 * before it has moved. */
static void keep_rows(step *s)
{
    const size_t dim = s->c->dim;
    uint32_t l = 0, p = 0, i = 0;
    for (uint32_t from = 0; from < s->rows; from++) {
        const bool logits = has_logits(s->batch, from, &l), hidden = has_hidden(s->batch, from, &p);
        if (!logits && !hidden) continue;
        if (from != i) {
            memcpy(s->b->x + i * dim, s->b->x + from * dim, dim * sizeof(float));
            block_embd_move_row(s, from, i);
            if (s->said_dim)
                memcpy(s->said + i * s->said_ld, s->said + from * s->said_ld,
                       s->said_dim * sizeof(float));
        }
        i++;
    }
    s->rows = i;
}

/* Of the rows that were kept: adds up those whose hidden states are asked for, and keeps those
 * with logits. A sum takes the tokens in their order, whatever else is in the batch (P1). */
static void sum_hidden(step *s)
{
    const size_t dim = s->c->dim;
    uint32_t l = 0, p = 0, row = 0, kept = 0;
    block_norm(s, s->m->weights->output_norm, NULL);
    for (uint32_t t = 0; t < s->batch->num_tokens; t++) {
        const bool logits = has_logits(s->batch, t, &l), hidden = has_hidden(s->batch, t, &p);
        if (!logits && !hidden) continue;
        const float *norm = s->b->norm + row * dim;
        for (size_t d = 0; hidden && d < dim; d++)
            s->batch->pools[p].sum[d] += (double)norm[d];
        if (logits && kept != row)
            memcpy(s->b->x + kept * dim, s->b->x + row * dim, dim * sizeof(float));
        kept += logits;
        row++;
    }
    s->rows = kept;
}

rad_status forward_mixer(step *s, rad_error *err)
{
    switch (s->l->mixer) {
    case MIXER_LATENT: return block_latent(s, err);
    case MIXER_DELTA: return block_delta(s, err);
    case MIXER_MAMBA: return block_mamba(s, err);
    case MIXER_CONV: return block_conv(s, err);
    case MIXER_NONE: s->said_dim = 0; return RAD_OK;
    case MIXER_ATTENTION: break;
    }
    return block_attention(s, err);
}

void forward_rest_of_layer(step *s)
{
    if (s->l->mixer != MIXER_NONE)
        (s->l->mixer == MIXER_LATENT ? block_latent_project : block_mixer_project)(s);
    if (!s->l->no_ffn) (s->l->experts ? block_moe : block_ffn)(s);
    if (s->c->layer_embd) block_embd(s);
    if (s->w->output_scale) block_for_rows(s, scale_row);
}

void forward_logits(step *s)
{
    block_gemm_of_norm(s, s->b->logits);
    if (s->c->final_logit_cap > 0 || s->c->logit_scale != 1) block_for_rows(s, finish_row);
}

/* Each layer fits the batch's pools. */
static rad_status check_layers(step *s, rad_error *err)
{
    for (uint32_t i = 0; i < config_all_layers(s->c); i++) {
        s->l = &s->c->layers[i];
        s->w = &s->m->weights->layers[i];
        rad_status status = s->l->num_kv_heads ? block_attention_check(s, err) : RAD_OK;
        if (status != RAD_OK) return status;
    }
    return RAD_OK;
}

/* All but a head needs what the last layer makes of each token; the head does, if it is told of
 * them. */
static rad_status run_layers(step *s, rad_error *err)
{
    const model_config *c = s->c;
    for (uint32_t i = 0; i < c->num_layers; i++) {
        s->l = &c->layers[i];
        s->w = &s->m->weights->layers[i];
        rad_status status = forward_mixer(s, err);
        if (status != RAD_OK) return status;
        if (i + 1 == c->num_layers && !(c->num_nextn && s->batch->next_ids)) keep_rows(s);
        if (s->rows) forward_rest_of_layer(s);
    }
    if (!c->num_nextn) return RAD_OK;
    rad_status status = nextn_write(s, err);
    s->said_dim = 0;
    if (status == RAD_OK && s->batch->next_ids) keep_rows(s);
    return status;
}

rad_status forward_run(const forward_pass *pass, const forward_batch *batch, rad_error *err)
{
    const model_weights *w = pass->weights;
    const model_config *c = &w->config;
    step s = {.m = pass, .c = c, .b = pass->buffers, .batch = batch, .rows = batch->num_tokens};
    if (!s.rows) return RAD_OK;
    if (batch->window_kv_pool) s.window = forward_batch_of_window(batch);
    rad_status status = check_layers(&s, err);
    if (status != RAD_OK) return status;

    block_for_rows(&s, embed_row);
    if (c->layer_embd) block_embd_begin(&s);
    status = run_layers(&s, err);
    if (status != RAD_OK) return status;
    pass->buffers->moe.experts_read = s.experts_read;
    if (batch->num_pools) sum_hidden(&s);
    if (!s.rows) return RAD_OK;
    block_norm(&s, w->output_norm, w->output);
    if (c->num_nextn) nextn_keep_rows(&s);
    forward_logits(&s);
    return RAD_OK;
}
