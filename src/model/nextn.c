/* nextn.c - see nextn.h.
 *
 * Entries are written some rows at a time, through buffers of their own, since x is still needed:
 *
 *     hidden ---- rms --.
 *                        pair -- eh_proj --> x -- rms, qkv --> k, v --> the pool
 *     token -- embed, rms'
 *
 * A guess takes the same way, and goes on through the layer. */
#include "model/nextn.h"

#include "model/block.h"
#include "model/rope.h"

/* The head's layer, with x and norm of its own where the trunk's are still needed. */
static step head_of(const forward_pass *m, const forward_batch *batch, const forward_buffers *b)
{
    const model_config *c = &m->weights->config;
    return (step){.m = m,
                  .c = c,
                  .b = b,
                  .batch = batch,
                  .l = &c->layers[c->num_layers],
                  .w = &m->weights->layers[c->num_layers]};
}

/* ---- entries ---- */

typedef struct pair_job {
    const step *s;
    const nextn_entry *entries;
} pair_job;

enum { ROWS_PER_TILE = 4 };

static void pair_tile(void *arg, uint32_t tile, uint32_t thread)
{
    const pair_job *job = arg;
    const step *s = job->s;
    const size_t dim = s->c->dim;
    const uint32_t first = tile * ROWS_PER_TILE, end = RAD_MIN(first + ROWS_PER_TILE, s->rows);
    (void)thread;
    for (uint32_t i = first; i < end; i++) {
        const nextn_entry *e = &job->entries[i];
        float *pair = s->b->wide + i * 2 * dim;
        forward_embed(s, e->token, pair);
        s->m->ops->rms_norm(pair, pair, s->w->nextn_token_norm, s->c->dim, s->c->rms_eps);
        s->m->ops->rms_norm(pair + dim, e->hidden, s->w->nextn_hidden_norm, s->c->dim,
                            s->c->rms_eps);
        forward_rope(s, i, e->position);
    }
}

/* s->b->x = what the head's layer reads of them. */
static void make_entries(step *s, const nextn_entry *entries, uint32_t count)
{
    pair_job job = {s, entries};
    s->rows = count;
    compute_pool_run(s->m->pool, (count + ROWS_PER_TILE - 1) / ROWS_PER_TILE, pair_tile, &job);
    gemm_run(s->w->nextn_proj, s->b->wide, 2 * s->c->dim, count, s->b->x, s->c->dim, false,
             s->m->pool, s->b->gemm_scratch);
}

/* ---- what a forward pass leaves ---- */

/* Entries that wait to be made, and slots that get zeros. */
typedef struct writer {
    step s;
    const forward_nextn_buffers *n;
    uint32_t num_entries, num_zeros;
    rad_error *err;
} writer;

static rad_status store(writer *w, uint32_t count)
{
    const bool latent = w->s.l->mixer == MIXER_LATENT;
    const rad_status status = rad_kv_pool_set_kv_buffer(w->s.batch->token_to_kv_pool,
                                                        w->s.l->attn_layer, w->n->slots, count,
                                                        w->s.b->k, latent ? NULL : w->s.b->v);
    if (status == RAD_OK) return RAD_OK;
    return rad_fail(w->err, status, "model: entries of the head that guesses could not be stored");
}

static rad_status flush_entries(writer *w)
{
    const uint32_t count = w->num_entries;
    if (!count) return RAD_OK;
    w->num_entries = 0;
    make_entries(&w->s, w->n->entries, count);
    (w->s.l->mixer == MIXER_LATENT ? block_latent_kv : block_attention_kv)(&w->s);
    for (uint32_t i = 0; i < count; i++)
        w->n->slots[i] = w->n->entries[i].slot;
    return store(w, count);
}

static rad_status add_entry(writer *w, const nextn_entry *e)
{
    w->n->entries[w->num_entries++] = *e;
    return w->num_entries == w->n->rows ? flush_entries(w) : RAD_OK;
}

static rad_status flush_zeros(writer *w)
{
    const uint32_t count = w->num_zeros;
    if (!count) return RAD_OK;
    w->num_zeros = 0;
    memset(w->s.b->k, 0, (size_t)count * layer_k_dim(w->s.l) * sizeof(float));
    memset(w->s.b->v, 0, (size_t)count * layer_v_dim(w->s.l) * sizeof(float));
    return store(w, count);
}

static rad_status add_zero(writer *w, rad_slot slot)
{
    w->n->slots[w->num_zeros++] = slot;
    return w->num_zeros == w->n->rows ? flush_zeros(w) : RAD_OK;
}

/* The last token of a request, unless it is known what follows. */
static bool next_unknown(const forward_batch *b, uint32_t req, uint32_t token)
{
    const uint32_t last = b->extend_start_loc[req] + b->extend_seq_lens[req] - 1;
    return !b->next_ids || (token == last && b->next_ids[req] < 0);
}

static rad_status write_zeros(writer *w)
{
    const forward_batch *b = w->s.batch;
    rad_status status = RAD_OK;
    for (uint32_t r = 0; r < b->num_reqs; r++)
        for (uint32_t i = 0; i < b->extend_seq_lens[r] && status == RAD_OK; i++) {
            const uint32_t t = b->extend_start_loc[r] + i;
            if (next_unknown(b, r, t)) status = add_zero(w, b->out_cache_loc[t]);
        }
    return status == RAD_OK ? flush_zeros(w) : status;
}

static rad_status write_known(writer *w, const float *norm)
{
    const forward_batch *b = w->s.batch;
    rad_status status = RAD_OK;
    for (uint32_t r = 0; r < b->num_reqs; r++) {
        const uint32_t start = b->extend_start_loc[r], last = start + b->extend_seq_lens[r] - 1;
        for (uint32_t t = start; t <= last && status == RAD_OK; t++)
            if (!next_unknown(b, r, t))
                status =
                    add_entry(w, &(nextn_entry){norm + (size_t)t * w->s.c->dim,
                                                t < last ? b->input_ids[t + 1] : b->next_ids[r],
                                                b->positions[t], b->out_cache_loc[t]});
    }
    return status == RAD_OK ? flush_entries(w) : status;
}

static bool any_known(const forward_batch *b)
{
    for (uint32_t r = 0; r < b->num_reqs; r++)
        if (b->extend_seq_lens[r] > 1 || b->next_ids[r] >= 0) return true;
    return false;
}

/* Nothing in a forward pass reads the head's layer, but a load brings it with the others, and one
 * that is still under way behind the pass counts as failed (rad_hicache_load_status). */
static rad_status wait_for_layer(const writer *w)
{
    rad_kv_buffers any;
    const rad_status status =
        rad_kv_pool_get_buffers(w->s.batch->token_to_kv_pool, w->s.l->attn_layer, &any);
    if (status == RAD_OK) return RAD_OK;
    return rad_fail(w->err, status, "model: the pool has no layer of the head that guesses");
}

rad_status nextn_write(step *s, rad_error *err)
{
    forward_buffers own = *s->b;
    own.x = s->b->nextn.x, own.norm = s->b->nextn.norm;
    writer w = {.s = head_of(s->m, s->batch, &own), .n = &s->b->nextn, .err = err};
    rad_status status = write_zeros(&w);
    if (status == RAD_OK && s->batch->next_ids) {
        if (any_known(s->batch)) block_norm(s, s->m->weights->output_norm, NULL);
        status = write_known(&w, s->b->norm);
    }
    return status == RAD_OK ? wait_for_layer(&w) : status;
}

void nextn_keep_rows(const step *s)
{
    memcpy(s->b->nextn.hidden, s->b->norm, (size_t)s->rows * s->c->dim * sizeof(float));
}

void nextn_keep(const forward_pass *pass, uint32_t row, uint32_t place)
{
    const size_t dim = pass->weights->config.dim;
    const forward_nextn_buffers *n = &pass->buffers->nextn;
    memcpy(n->places + place * dim, n->hidden + row * dim, dim * sizeof(float));
}

/* ---- a guess ---- */

rad_status nextn_guess(const forward_pass *pass, const forward_batch *batch, const uint32_t *from,
                       const uint32_t *to, rad_error *err)
{
    const model_weights *w = pass->weights;
    const forward_nextn_buffers *n = &pass->buffers->nextn;
    const size_t dim = w->config.dim;
    step s = head_of(pass, batch, pass->buffers);
    rad_status status = block_attention_check(&s, err);
    if (status != RAD_OK) return status;
    writer late = {.s = s, .n = n, .num_entries = batch->num_tokens, .err = err};
    for (uint32_t i = 0; i < batch->num_tokens; i++)
        n->entries[i] = (nextn_entry){n->places + from[i] * dim, batch->input_ids[i],
                                      batch->positions[i], batch->out_cache_loc[i]};
    if (!batch->num_logits) return flush_entries(&late);
    make_entries(&s, n->entries, batch->num_tokens);
    status = forward_mixer(&s, err);
    if (status != RAD_OK) return status;
    forward_rest_of_layer(&s);
    block_norm(&s, s.w->nextn_last_norm ? s.w->nextn_last_norm : w->output_norm, w->output);
    for (uint32_t i = 0; i < batch->num_tokens; i++)
        memcpy(n->places + to[i] * dim, s.b->norm + i * dim, dim * sizeof(float));
    forward_logits(&s);
    return RAD_OK;
}
