/* model_reference.c - see model_reference.h. Meant to be read beside a paper, not to be
 * fast: activations are double, [token][element], and a weight's row is converted when
 * it is needed. */
#include "gear/model_reference.h"

#include "gear/reference_judge.h"
#include "model/tensor_rows.h"
#include "model/weights.h"

#include <math.h>
#include <stdio.h>

/* Where the tensor is; the layer's number goes into the name. */
rad_status judge_find(const judge *j, const char *fmt, uint32_t layer, uint64_t rows, uint64_t cols,
                      const gguf_tensor **out)
{
    char name[64];
    if (strstr(fmt, "%u"))
        snprintf(name, sizeof name, "blk.%u.%s", layer, fmt + strlen("blk.%u."));
    else
        snprintf(name, sizeof name, "%s", fmt);
    return tensor_find(j->file, name, rows, cols, out, j->err);
}

/* out[t][n] = sum over k of W[from + n][k] * in[t][k], W having `all` rows */
rad_status judge_matmul_part(const judge *j, const char *name, uint32_t layer, uint32_t all,
                             uint32_t from, uint32_t rows, uint32_t cols, const double *in,
                             double *out)
{
    const gguf_tensor *w;
    rad_status status = judge_find(j, name, layer, all, cols, &w);
    if (status != RAD_OK) return status;
    for (uint32_t n = 0; n < rows; n++) {
        tensor_row(w, from + n, j->row);
        for (uint32_t t = 0; t < j->num_tokens; t++) {
            const double *x = in + (size_t)t * cols;
            double sum = 0;
            for (uint32_t k = 0; k < cols; k++)
                sum += (double)j->row[k] * x[k];
            out[(size_t)t * rows + n] = sum;
        }
    }
    return RAD_OK;
}

rad_status judge_matmul(const judge *j, const char *name, uint32_t layer, uint32_t rows,
                        uint32_t cols, const double *in, double *out)
{
    return judge_matmul_part(j, name, layer, rows, 0, rows, cols, in, out);
}

rad_status judge_add_bias(const judge *j, const char *name, uint32_t layer, uint32_t n, double *out)
{
    const gguf_tensor *bias;
    rad_status status = judge_find(j, name, layer, 0, n, &bias);
    if (status != RAD_OK) return status;
    tensor_row(bias, 0, j->row);
    for (size_t i = 0; i < (size_t)j->num_tokens * n; i++)
        out[i] += (double)j->row[i % n];
    return RAD_OK;
}

/* `count` vectors of n elements, each divided by its root mean square and weighted */
rad_status judge_rms_norm(const judge *j, const char *name, uint32_t layer, uint32_t n,
                          size_t count, const double *in, double *out)
{
    const gguf_tensor *w;
    rad_status status = judge_find(j, name, layer, 0, n, &w);
    if (status != RAD_OK) return status;
    tensor_row(w, 0, j->row);
    for (size_t v = 0; v < count; v++) {
        double sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += in[v * n + i] * in[v * n + i];
        double scale = 1 / sqrt(sum / n + (double)j->c.rms_eps);
        for (uint32_t i = 0; i < n; i++)
            out[v * n + i] = in[v * n + i] * scale * (double)j->row[i];
    }
    return RAD_OK;
}

/* x += scale * what a block has left in `added`, normed first where the family does so */
rad_status judge_add_to_residual(const judge *j, const char *post_norm, uint32_t l)
{
    const model_config *c = &j->c;
    if (c->arch->post_norms) {
        rad_status s = judge_rms_norm(j, post_norm, l, c->dim, j->num_tokens, j->added, j->added);
        if (s != RAD_OK) return s;
    }
    for (size_t i = 0; i < (size_t)j->num_tokens * c->dim; i++)
        j->x[i] += (double)c->residual_scale * j->added[i];
    return RAD_OK;
}

/* What is normed before a block, or the residual stream itself. */
rad_status judge_read_residual(const judge *j, const char *norm, uint32_t l)
{
    const model_config *c = &j->c;
    if (!c->arch->no_pre_norms)
        return judge_rms_norm(j, norm, l, c->dim, j->num_tokens, j->x, j->normed);
    memcpy(j->normed, j->x, (size_t)j->num_tokens * c->dim * sizeof *j->x);
    return RAD_OK;
}

/* What all layers add of the tokens, when x is their embedding. */
static rad_status embed_layers(const judge *j, const rad_token *tokens)
{
    const uint32_t width = j->c.layer_embd, all = j->c.num_layers * width, n = j->num_tokens;
    const gguf_tensor *table;
    if (!width) return RAD_OK;
    rad_status s = judge_matmul(j, "per_layer_model_proj.weight", 0, all, j->c.dim, j->x, j->embd);
    for (size_t i = 0; i < (size_t)n * all; i++)
        j->embd[i] /= sqrt(j->c.dim);
    if (s == RAD_OK)
        s = judge_rms_norm(j, "per_layer_proj_norm.weight", 0, width, (size_t)n * j->c.num_layers,
                           j->embd, j->embd);
    if (s == RAD_OK)
        s = judge_find(j, "per_layer_token_embd.weight", 0, j->c.vocab_size, all, &table);
    for (uint32_t t = 0; s == RAD_OK && t < n; t++) {
        tensor_row(table, (uint64_t)tokens[t], j->row);
        for (uint32_t i = 0; i < all; i++) {
            double *e = &j->embd[(size_t)t * all + i];
            *e = (*e + (double)j->row[i] * sqrt(width)) / sqrt(2);
        }
    }
    return s;
}

static rad_status embedding_block(const judge *j, uint32_t l)
{
    const uint32_t width = j->c.layer_embd, all = j->c.num_layers * width, n = j->num_tokens;
    rad_status s = judge_matmul(j, "blk.%u.inp_gate.weight", l, width, j->c.dim, j->x, j->wide);
    for (uint32_t t = 0; s == RAD_OK && t < n; t++)
        for (uint32_t i = 0; i < width; i++) {
            double *g = &j->wide[(size_t)t * width + i];
            *g = judge_activated(j, *g, j->embd[(size_t)t * all + (size_t)l * width + i]);
        }
    if (s == RAD_OK)
        s = judge_matmul(j, "blk.%u.proj.weight", l, j->c.dim, width, j->wide, j->added);
    return s == RAD_OK ? judge_add_to_residual(j, "blk.%u.post_norm.weight", l) : s;
}

static rad_status scale_output(const judge *j, uint32_t l)
{
    const gguf_tensor *scale;
    rad_status s = judge_find(j, "blk.%u.layer_output_scale.weight", l, 0, 1, &scale);
    if (s == RAD_OK) tensor_row(scale, 0, j->row);
    for (size_t i = 0; s == RAD_OK && i < (size_t)j->num_tokens * j->c.dim; i++)
        j->x[i] *= (double)j->row[0];
    return s;
}

static rad_status embed(const judge *j, const rad_token *tokens)
{
    const model_config *c = &j->c;
    const gguf_tensor *table;
    rad_status status = judge_find(j, "token_embd.weight", 0, c->vocab_size, c->dim, &table);
    if (status != RAD_OK) return status;
    for (uint32_t t = 0; t < j->num_tokens; t++) {
        tensor_row(table, (uint64_t)tokens[t], j->row);
        for (uint32_t i = 0; i < c->dim; i++)
            j->x[(size_t)t * c->dim + i] = (double)j->row[i] * (c->arch->scale_embedding
                                                                    ? sqrt(c->dim)
                                                                    : (double)c->embedding_scale);
    }
    return RAD_OK;
}

static rad_status mixer_block(const judge *j, uint32_t l)
{
    switch (j->c.layers[l].mixer) {
    case MIXER_LATENT: return judge_latent_block(j, l);
    case MIXER_DELTA: return judge_delta_block(j, l);
    case MIXER_MAMBA: return judge_mamba_block(j, l);
    case MIXER_CONV: return judge_conv_block(j, l);
    case MIXER_NONE: return RAD_OK;
    case MIXER_ATTENTION: break;
    }
    return judge_attention_block(j, l);
}

static rad_status layer(const judge *j, uint32_t l)
{
    const layer_config *lc = &j->c.layers[l];
    rad_status s = mixer_block(j, l);
    return s != RAD_OK || lc->no_ffn ? s : judge_feed_forward_block(j, l);
}

static rad_status forward(const judge *j, const rad_token *tokens, double *logits)
{
    const model_config *c = &j->c;
    rad_status s = embed(j, tokens);
    if (s == RAD_OK) s = embed_layers(j, tokens);
    for (uint32_t l = 0; l < c->num_layers && s == RAD_OK; l++) {
        s = layer(j, l);
        if (s == RAD_OK && c->layer_embd) s = embedding_block(j, l);
        if (s == RAD_OK && c->layers[l].scaled) s = scale_output(j, l);
    }
    if (s == RAD_OK)
        s = judge_rms_norm(j, c->arch->last_norm ? c->arch->last_norm : "output_norm.weight", 0,
                           c->dim, j->num_tokens, j->x, j->normed);
    if (s != RAD_OK) return s;
    s = judge_matmul(j, c->tied ? "token_embd.weight" : "output.weight", 0, c->vocab_size, c->dim,
                     j->normed, logits);
    for (size_t i = 0; s == RAD_OK && i < (size_t)j->num_tokens * c->vocab_size; i++)
        logits[i] = capped(logits[i] / (double)c->logit_scale, (double)c->final_logit_cap);
    return s;
}

/* Reads the configuration, and takes memory for a text of j->num_tokens. */
static rad_status begin(judge *out, const rad_env *env, const rad_token *tokens)
{
    judge j = *out;
    model_config *c = &j.c;
    const uint32_t num_tokens = j.num_tokens;
    rad_error *err = j.err;
    if (j.clear) *j.clear = INFINITY;
    rad_status status = model_config_read(j.file, 0, c, err);
    if (status == RAD_OK) status = model_tensors_check(j.file, c, err);
    if (status != RAD_OK) return status;
    if (num_tokens > c->context_length)
        return rad_fail(err, RAD_E_INVAL, "reference: %u tokens, the context holds %u", num_tokens,
                        c->context_length);
    for (uint32_t t = 0; t < num_tokens; t++)
        if (tokens[t] < 0 || (uint32_t)tokens[t] >= c->vocab_size)
            return rad_fail(err, RAD_E_INVAL, "reference: token id %d, the vocabulary has %u",
                            tokens[t], c->vocab_size);

    /* One block of memory: the arrays of a token, a row of scores, a row of weights. */
    config_widths most = config_widest(c);
    uint32_t added = c->dim;
    most.ffn = RAD_MAX(most.ffn, c->experts.dim);
    most.attn = RAD_MAX(most.attn, c->dim); /* an expert's answer goes there, too */
    if (c->latent.kv_rank) { /* K and V of all heads, and few numbers in the place of `attended` */
        const uint32_t key = c->latent.plain + c->rope_dim, heads = c->layers[0].num_heads;
        most.q = most.k = heads * key;
        most.v = heads * c->latent.value;
        most.qkv = most.q + most.k + most.v;
        most.attn =
            RAD_MAX(RAD_MAX(most.attn, most.v), RAD_MAX(c->latent.q_rank, c->latent.kv_rank));
        added = RAD_MAX(added, c->latent.kv_rank + c->rope_dim);
    }
    most.attn = RAD_MAX(most.attn, c->recurrent.heads * c->recurrent.value);
    most.ffn = RAD_MAX(most.ffn, c->recurrent.taps);
    const size_t sums = (size_t)c->recurrent.key * c->recurrent.value;
    const size_t embd = (size_t)c->num_layers * c->layer_embd;
    const size_t kept = c->arch->shared_kv ? 1 : 0, beside = c->arch->experts_beside ? 2 : 0;
    most.qkv = RAD_MAX(RAD_MAX(most.qkv, c->layer_embd), 2 * c->dim); /* a head's pair */
    size_t per_token = 2 * (size_t)c->dim + added + most.q + most.k + most.v + most.attn +
                       2 * (size_t)most.ffn + 1 + most.qkv + embd + beside * c->dim +
                       2 * kept * (most.k + most.v);
    size_t widest = RAD_MAX(RAD_MAX(c->dim, most.ffn), RAD_MAX(most.attn, most.qkv));
    const size_t routed = 3 * (size_t)c->experts.count;
    widest = RAD_MAX(widest, c->experts.count);
    widest = RAD_MAX(RAD_MAX(widest, most.q), embd);
    size_t bytes = rad_mul(rad_mul(num_tokens, per_token) + routed + sums + widest, sizeof(double));
    double *memory = rad_alloc(env, bytes), *at = memory;
    if (!memory) return rad_fail(err, RAD_E_NOMEM, "reference: no memory (%zu bytes)", bytes);

    const struct {
        double **array;
        size_t width;
    } arrays[] = {{&j.x, c->dim},
                  {&j.normed, c->dim},
                  {&j.added, added},
                  {&j.q, most.q},
                  {&j.k, most.k},
                  {&j.v, most.v},
                  {&j.attended, most.attn},
                  {&j.gate, most.ffn},
                  {&j.up, most.ffn},
                  {&j.scores, 1},
                  {&j.wide, most.qkv},
                  {&j.kept_k[0], kept * most.k},
                  {&j.kept_k[1], kept * most.k},
                  {&j.kept_v[0], kept * most.v},
                  {&j.kept_v[1], kept * most.v},
                  {&j.embd, embd + beside * c->dim}};
    for (size_t i = 0; i < RAD_COUNT(arrays); i++) {
        *arrays[i].array = at;
        at += num_tokens * arrays[i].width;
    }
    j.router = at;
    j.sums = at + routed;
    j.row = (float *)(at + routed + sums);
    j.memory = memory, j.bytes = bytes;
    *out = j;
    return RAD_OK;
}

static rad_status end(judge *j, const rad_env *env, rad_status status)
{
    rad_free(env, j->memory, j->bytes);
    return status;
}

rad_status model_reference_logits(const rad_env *env, const gguf_file *file,
                                  const rad_token *tokens, uint32_t num_tokens, double *logits,
                                  rad_error *err)
{
    return model_reference_routed(env, file, tokens, num_tokens, logits, NULL, NULL, err);
}

rad_status model_reference_routed(const rad_env *env, const gguf_file *file,
                                  const rad_token *tokens, uint32_t num_tokens, double *logits,
                                  double *hidden, double *clear, rad_error *err)
{
    judge j = {.file = file, .num_tokens = num_tokens, .err = err, .clear = clear};
    const rad_env full = rad_env_or_default(env);
    rad_status status = begin(&j, &full, tokens);
    if (status != RAD_OK || !num_tokens) return end(&j, &full, status);
    status = forward(&j, tokens, logits);
    if (status == RAD_OK && hidden)
        memcpy(hidden, j.normed, (size_t)num_tokens * j.c.dim * sizeof *hidden);
    return end(&j, &full, status);
}

/* The head over the entries of positions [0, count), whose hidden states are given: its own, and
 * logits behind each. */
static rad_status run_head(judge *j, const rad_token *tokens, uint32_t count, const double *hidden,
                           double *logits)
{
    const model_config *c = &j->c;
    const uint32_t dim = c->dim, l = c->num_layers;
    double *pair = j->wide;
    j->num_tokens = count;
    rad_status s = embed(j, tokens + 1);
    if (s == RAD_OK)
        s = judge_rms_norm(j, "blk.%u.nextn.enorm.weight", l, dim, count, j->x, j->normed);
    for (uint32_t i = 0; s == RAD_OK && i < count; i++)
        memcpy(pair + 2 * (size_t)i * dim, j->normed + (size_t)i * dim, dim * sizeof *pair);
    if (s == RAD_OK)
        s = judge_rms_norm(j, "blk.%u.nextn.hnorm.weight", l, dim, count, hidden, j->normed);
    for (uint32_t i = 0; s == RAD_OK && i < count; i++)
        memcpy(pair + (2 * (size_t)i + 1) * dim, j->normed + (size_t)i * dim, dim * sizeof *pair);
    if (s == RAD_OK)
        s = judge_matmul(j, "blk.%u.nextn.eh_proj.weight", l, dim, 2 * dim, pair, j->x);
    if (s == RAD_OK) s = layer(j, l);
    if (s != RAD_OK) return s;
    if (c->layers[l].own_last_norm)
        s = judge_rms_norm(j, "blk.%u.nextn.shared_head_norm.weight", l, dim, count, j->x,
                           j->normed);
    else
        s = judge_rms_norm(j, "output_norm.weight", 0, dim, count, j->x, j->normed);
    if (s != RAD_OK) return s;
    return judge_matmul(j, c->tied ? "token_embd.weight" : "output.weight", 0, c->vocab_size, dim,
                        j->normed, logits);
}

rad_status model_reference_nextn(const rad_env *env, const gguf_file *file, const rad_token *tokens,
                                 uint32_t num_tokens, uint32_t known, double *logits, double *clear,
                                 rad_error *err)
{
    judge j = {.file = file, .num_tokens = num_tokens, .err = err, .clear = clear};
    const rad_env full = rad_env_or_default(env);
    rad_status status = begin(&j, &full, tokens);
    if (status == RAD_OK) status = model_config_use_nextn(file, &j.c, err);
    if (status != RAD_OK) return end(&j, &full, status);
    const size_t dim = j.c.dim, hidden_bytes = num_tokens * dim * sizeof(double),
                 logits_bytes = (size_t)num_tokens * j.c.vocab_size * sizeof(double);
    double *hidden = rad_alloc(&full, hidden_bytes), *scratch = rad_alloc(&full, logits_bytes);
    if (!hidden || !scratch) {
        status = rad_fail(err, RAD_E_NOMEM, "reference: no memory (%zu bytes)",
                          hidden_bytes + logits_bytes);
        goto done;
    }
    status = forward(&j, tokens, scratch);
    memcpy(hidden, j.normed, known * dim * sizeof *hidden);
    for (uint32_t count = known; status == RAD_OK && count < num_tokens; count++) {
        status = run_head(&j, tokens, count, hidden, logits);
        memcpy(hidden + count * dim, j.normed + (count - 1) * dim, dim * sizeof *hidden);
    }
done:
    rad_free(&full, hidden, hidden_bytes);
    rad_free(&full, scratch, logits_bytes);
    return end(&j, &full, status);
}
