/* model_reference.c - see model_reference.h. Meant to be read beside a paper, not to be
 * fast: activations are double, [token][element], and a weight's row is converted when
 * it is needed. */
#include "model/model_reference.h"
#include "base/base.h"
#include "model/config.h"
#include "model/tensor_rows.h"
#include "model/weights.h"

#include <math.h>
#include <stdio.h>

typedef struct judge {
    const gguf_file *file;
    model_config c;
    uint32_t num_tokens;
    rad_error *err;
    double *x, *normed, *q, *k, *v, *attended, *gate, *up, *scores;
    float *row; /* of a weight */
} judge;

/* Where the tensor is; the layer's number goes into the name. */
static rad_status find(const judge *j, const char *fmt, uint32_t layer, uint64_t rows,
                       uint64_t cols, const gguf_tensor **out)
{
    char name[64];
    if (strstr(fmt, "%u"))
        snprintf(name, sizeof name, "blk.%u.%s", layer, fmt + strlen("blk.%u."));
    else
        snprintf(name, sizeof name, "%s", fmt);
    return tensor_find(j->file, name, rows, cols, out, j->err);
}

/* out[t][n] = sum over k of W[n][k] * in[t][k], added to out or replacing it */
static rad_status matmul(const judge *j, const char *name, uint32_t layer, uint32_t rows,
                         uint32_t cols, const double *in, double *out, bool add)
{
    const gguf_tensor *w;
    rad_status status = find(j, name, layer, rows, cols, &w);
    if (status != RAD_OK) return status;
    for (uint32_t n = 0; n < rows; n++) {
        tensor_row(w, n, j->row);
        for (uint32_t t = 0; t < j->num_tokens; t++) {
            const double *x = in + (size_t)t * cols;
            double sum = 0;
            for (uint32_t k = 0; k < cols; k++)
                sum += (double)j->row[k] * x[k];
            double *y = &out[(size_t)t * rows + n];
            *y = add ? *y + sum : sum;
        }
    }
    return RAD_OK;
}

/* `count` vectors of n elements, each divided by its root mean square and weighted */
static rad_status rms_norm(const judge *j, const char *name, uint32_t layer, uint32_t n,
                           size_t count, const double *in, double *out)
{
    const gguf_tensor *w;
    rad_status status = find(j, name, layer, 0, n, &w);
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

/* x is [token][heads][head_dim]; token t is at position t */
static void rope(const judge *j, double *x, uint32_t heads)
{
    const model_config *c = &j->c;
    uint32_t half = c->rope_dim / 2;
    for (uint32_t t = 0; t < j->num_tokens; t++)
        for (uint32_t h = 0; h < heads; h++) {
            double *head = x + ((size_t)t * heads + h) * c->head_dim;
            for (uint32_t i = 0; i < half; i++) {
                double angle = t * pow((double)c->rope_base, -2.0 * i / c->rope_dim);
                double *a = c->arch->rope == ROPE_NEOX ? &head[i] : &head[2 * i];
                double *b = c->arch->rope == ROPE_NEOX ? &head[i + half] : &head[2 * i + 1];
                double old_a = *a, old_b = *b;
                *a = old_a * cos(angle) - old_b * sin(angle);
                *b = old_a * sin(angle) + old_b * cos(angle);
            }
        }
}

/* softmax(q . k / sqrt(d)) v over positions 0..t */
static void attend(const judge *j, uint32_t t, uint32_t head)
{
    const model_config *c = &j->c;
    uint32_t kv_head = head / (c->num_heads / c->num_kv_heads);
    const double *q = j->q + ((size_t)t * c->num_heads + head) * c->head_dim;
    double *out = j->attended + ((size_t)t * c->num_heads + head) * c->v_head_dim;
    double max = -INFINITY, total = 0;
    for (uint32_t p = 0; p <= t; p++) {
        const double *k = j->k + ((size_t)p * c->num_kv_heads + kv_head) * c->head_dim;
        double dot = 0;
        for (uint32_t i = 0; i < c->head_dim; i++)
            dot += q[i] * k[i];
        j->scores[p] = dot / sqrt(c->head_dim);
        max = fmax(max, j->scores[p]);
    }
    for (uint32_t i = 0; i < c->v_head_dim; i++)
        out[i] = 0;
    for (uint32_t p = 0; p <= t; p++) {
        const double *v = j->v + ((size_t)p * c->num_kv_heads + kv_head) * c->v_head_dim;
        double weight = exp(j->scores[p] - max);
        total += weight;
        for (uint32_t i = 0; i < c->v_head_dim; i++)
            out[i] += weight * v[i];
    }
    for (uint32_t i = 0; i < c->v_head_dim; i++)
        out[i] /= total;
}

static rad_status attention_block(const judge *j, uint32_t l)
{
    const model_config *c = &j->c;
    size_t n = j->num_tokens;
    rad_status s = rms_norm(j, "blk.%u.attn_norm.weight", l, c->dim, n, j->x, j->normed);
    if (s == RAD_OK)
        s = matmul(j, "blk.%u.attn_q.weight", l, config_q_dim(c), c->dim, j->normed, j->q, false);
    if (s == RAD_OK)
        s = matmul(j, "blk.%u.attn_k.weight", l, config_k_dim(c), c->dim, j->normed, j->k, false);
    if (s == RAD_OK)
        s = matmul(j, "blk.%u.attn_v.weight", l, config_v_dim(c), c->dim, j->normed, j->v, false);
    if (s == RAD_OK && c->arch->qk_norm)
        s = rms_norm(j, "blk.%u.attn_q_norm.weight", l, c->head_dim, n * c->num_heads, j->q, j->q);
    if (s == RAD_OK && c->arch->qk_norm)
        s = rms_norm(j, "blk.%u.attn_k_norm.weight", l, c->head_dim, n * c->num_kv_heads, j->k,
                     j->k);
    if (s != RAD_OK) return s;
    rope(j, j->q, c->num_heads);
    rope(j, j->k, c->num_kv_heads);
    for (uint32_t t = 0; t < j->num_tokens; t++)
        for (uint32_t h = 0; h < c->num_heads; h++)
            attend(j, t, h);
    return matmul(j, "blk.%u.attn_output.weight", l, c->dim, config_attn_dim(c), j->attended, j->x,
                  true);
}

static rad_status feed_forward_block(const judge *j, uint32_t l)
{
    const model_config *c = &j->c;
    rad_status s = rms_norm(j, "blk.%u.ffn_norm.weight", l, c->dim, j->num_tokens, j->x, j->normed);
    if (s == RAD_OK)
        s = matmul(j, "blk.%u.ffn_gate.weight", l, c->ffn_dim, c->dim, j->normed, j->gate, false);
    if (s == RAD_OK)
        s = matmul(j, "blk.%u.ffn_up.weight", l, c->ffn_dim, c->dim, j->normed, j->up, false);
    if (s != RAD_OK) return s;
    for (size_t i = 0; i < (size_t)j->num_tokens * c->ffn_dim; i++)
        j->gate[i] = j->gate[i] / (1 + exp(-j->gate[i])) * j->up[i];
    return matmul(j, "blk.%u.ffn_down.weight", l, c->dim, c->ffn_dim, j->gate, j->x, true);
}

static rad_status embed(const judge *j, const rad_token *tokens)
{
    const model_config *c = &j->c;
    const gguf_tensor *table;
    rad_status status = find(j, "token_embd.weight", 0, c->vocab_size, c->dim, &table);
    if (status != RAD_OK) return status;
    for (uint32_t t = 0; t < j->num_tokens; t++) {
        tensor_row(table, (uint64_t)tokens[t], j->row);
        for (uint32_t i = 0; i < c->dim; i++)
            j->x[(size_t)t * c->dim + i] = (double)j->row[i];
    }
    return RAD_OK;
}

static rad_status forward(const judge *j, const rad_token *tokens, double *logits)
{
    const model_config *c = &j->c;
    rad_status s = embed(j, tokens);
    for (uint32_t l = 0; l < c->num_layers && s == RAD_OK; l++) {
        s = attention_block(j, l);
        if (s == RAD_OK) s = feed_forward_block(j, l);
    }
    if (s == RAD_OK)
        s = rms_norm(j, "output_norm.weight", 0, c->dim, j->num_tokens, j->x, j->normed);
    if (s != RAD_OK) return s;
    return matmul(j, c->tied ? "token_embd.weight" : "output.weight", 0, c->vocab_size, c->dim,
                  j->normed, logits, false);
}

rad_status model_reference_logits(const rad_env *env, const gguf_file *file,
                                  const rad_token *tokens, uint32_t num_tokens, double *logits,
                                  rad_error *err)
{
    judge j = {.file = file, .num_tokens = num_tokens, .err = err};
    model_config *c = &j.c;
    rad_status status = model_config_read(file, c, err);
    if (status == RAD_OK) status = model_tensors_check(file, c, err);
    if (status != RAD_OK || !num_tokens) return status;
    if (num_tokens > c->context_length)
        return rad_fail(err, RAD_E_INVAL, "reference: %u tokens, the context holds %u", num_tokens,
                        c->context_length);
    for (uint32_t t = 0; t < num_tokens; t++)
        if (tokens[t] < 0 || (uint32_t)tokens[t] >= c->vocab_size)
            return rad_fail(err, RAD_E_INVAL, "reference: token id %d, the vocabulary has %u",
                            tokens[t], c->vocab_size);

    /* One block of memory: the arrays of a token, a row of scores, a row of weights. */
    size_t per_token = 2 * (size_t)c->dim + config_qkv_dim(c) + config_attn_dim(c) +
                       2 * (size_t)c->ffn_dim + 1;
    size_t widest = RAD_MAX(RAD_MAX(c->dim, c->ffn_dim), config_attn_dim(c));
    widest = RAD_MAX(widest, c->head_dim); /* q_norm, where heads are wider than the rest */
    size_t bytes = rad_mul(rad_mul(num_tokens, per_token) + widest, sizeof(double));
    rad_env full = rad_env_or_default(env);
    double *memory = rad_alloc(&full, bytes), *at = memory;
    if (!memory) return rad_fail(err, RAD_E_NOMEM, "reference: no memory (%zu bytes)", bytes);

    const struct {
        double **array;
        size_t width;
    } arrays[] = {
        {&j.x, c->dim},          {&j.normed, c->dim},     {&j.q, config_q_dim(c)},
        {&j.k, config_k_dim(c)}, {&j.v, config_v_dim(c)}, {&j.attended, config_attn_dim(c)},
        {&j.gate, c->ffn_dim},   {&j.up, c->ffn_dim},     {&j.scores, 1}};
    for (size_t i = 0; i < RAD_COUNT(arrays); i++) {
        *arrays[i].array = at;
        at += num_tokens * arrays[i].width;
    }
    j.row = (float *)at;

    status = forward(&j, tokens, logits);
    rad_free(&full, memory, bytes);
    return status;
}
