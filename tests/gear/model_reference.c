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

/* How far rotation i turns per position: base^(-2i/d), slower where the context was
 * stretched. */
static double frequency(const rope_config *r, uint32_t i, double divisor)
{
    const rope_scaling *s = &r->scaling;
    double d = r->dim, base = (double)r->base, factor = (double)s->factor;
    double freq = pow(base, -2.0 * i / d) / divisor;
    if (!s->yarn) return freq / factor;
    /* The rotations that make beta_fast and beta_slow turns in the original context. */
    double context = s->original_context / (2 * M_PI);
    double fast = floor(d / 2 * log(context / (double)s->beta_fast) / log(base));
    double slow = ceil(d / 2 * log(context / (double)s->beta_slow) / log(base));
    fast = fmax(fast, 0), slow = fmin(slow, d - 1);
    double slowed = fmin(1, fmax(0, (i - fast) / fmax(slow - fast, 0.001)));
    double own = (1 - slowed) * (double)s->ext_factor;
    return own * freq + (1 - own) * freq / factor;
}

/* x is [token][heads][width], of which the numbers from `at` on are rotated; token t is at position
 * t */
static rad_status rope_at(const judge *j, uint32_t l, double *x, uint32_t heads, uint32_t width,
                          uint32_t at)
{
    const model_config *c = &j->c;
    if (c->layers[l].rope == ROPE_NONE) return RAD_OK;
    const rope_config *r = &c->ropes[c->layers[l].rope];
    uint32_t half = r->dim / 2;
    const gguf_tensor *divisors = NULL;
    if (r->scaling.divisors) {
        rad_status status = judge_find(j, r->scaling.divisors, 0, 0, half, &divisors);
        if (status != RAD_OK) return status;
        tensor_row(divisors, 0, j->row);
        for (uint32_t i = 0; i < half; i++)
            if (!(j->row[i] > 0) || isinf(j->row[i]))
                return rad_fail(j->err, RAD_E_FORMAT, "reference: %s[%u] is %g",
                                r->scaling.divisors, i, (double)j->row[i]);
    }
    for (uint32_t i = 0; i < half; i++) {
        double freq = frequency(r, i, divisors ? (double)j->row[i] : 1);
        uint32_t first = c->arch->rope == ROPE_NEOX ? i : 2 * i;
        uint32_t second = c->arch->rope == ROPE_NEOX ? i + half : 2 * i + 1;
        for (uint32_t t = 0; t < j->num_tokens; t++)
            for (uint32_t h = 0; h < heads; h++) {
                double *head = x + ((size_t)t * heads + h) * width + at;
                double a = head[first], b = head[second], size = (double)r->scaling.magnitude;
                head[first] = size * (a * cos(t * freq) - b * sin(t * freq));
                head[second] = size * (a * sin(t * freq) + b * cos(t * freq));
            }
    }
    return RAD_OK;
}

static rad_status rope(const judge *j, uint32_t l, double *x, uint32_t heads)
{
    return rope_at(j, l, x, heads, j->c.layers[l].head_dim, 0);
}

static double capped(double x, double cap)
{
    return cap > 0 ? cap * tanh(x / cap) : x;
}

/* One score more, without a value; -INFINITY where there is none. */
static double sink_of_head(const judge *j, uint32_t l, uint32_t head)
{
    const gguf_tensor *sinks;
    if (!j->c.arch->sinks ||
        judge_find(j, "blk.%u.attn_sinks.weight", l, 0, j->c.layers[l].num_heads, &sinks) != RAD_OK)
        return -INFINITY;
    tensor_row(sinks, 0, j->row);
    return (double)j->row[head];
}

/* softmax(scale q . k) v over positions 0..t, or the window's last ones of them */
static void attend(const judge *j, const layer_config *c, double sink, uint32_t t, uint32_t head,
                   uint32_t first)
{
    uint32_t kv_head = head / (c->num_heads / c->num_kv_heads);
    const double *q = j->q + ((size_t)t * c->num_heads + head) * c->head_dim;
    double *out = j->attended + ((size_t)t * c->num_heads + head) * c->v_head_dim;
    double max = -INFINITY, total = 0;
    for (uint32_t p = first; p <= t; p++) {
        const double *k = j->k + ((size_t)p * c->num_kv_heads + kv_head) * c->head_dim;
        double dot = 0;
        for (uint32_t i = 0; i < c->head_dim; i++)
            dot += q[i] * k[i];
        j->scores[p] = capped(dot * (double)j->c.attn_scale, (double)j->c.attn_logit_cap);
        max = fmax(max, j->scores[p]);
    }
    max = fmax(max, sink);
    total = exp(sink - max);
    for (uint32_t i = 0; i < c->v_head_dim; i++)
        out[i] = 0;
    for (uint32_t p = first; p <= t; p++) {
        const double *v = j->v + ((size_t)p * c->num_kv_heads + kv_head) * c->v_head_dim;
        double weight = exp(j->scores[p] - max);
        total += weight;
        for (uint32_t i = 0; i < c->v_head_dim; i++)
            out[i] += weight * v[i];
    }
    for (uint32_t i = 0; i < c->v_head_dim; i++)
        out[i] /= total;
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

/* Of each head the query, then its gate; the gates stay in `wide`. */
static rad_status project_gated_q(const judge *j, uint32_t l)
{
    const layer_config *lc = &j->c.layers[l];
    const uint32_t width = lc->head_dim, heads = lc->num_heads;
    rad_status s =
        judge_matmul(j, "blk.%u.attn_q.weight", l, 2 * heads * width, j->c.dim, j->normed, j->wide);
    for (size_t h = 0; s == RAD_OK && h < (size_t)j->num_tokens * heads; h++)
        memcpy(j->q + h * width, j->wide + 2 * h * width, width * sizeof *j->q);
    return s;
}

static void gate_attended(const judge *j, uint32_t l)
{
    const layer_config *lc = &j->c.layers[l];
    const size_t width = lc->head_dim;
    for (size_t h = 0; h < (size_t)j->num_tokens * lc->num_heads; h++)
        for (size_t i = 0; i < width; i++)
            j->attended[h * width + i] *= sigmoid(j->wide[(2 * h + 1) * width + i]);
}

/* q, k, v of normed: three matrices, or three parts of one */
static rad_status project_qkv(const judge *j, uint32_t l)
{
    const model_config *c = &j->c;
    const layer_config *lc = &c->layers[l];
    const struct {
        const char *weight, *bias;
        uint32_t rows;
        double *out;
    } parts[] = {{"blk.%u.attn_q.weight", "blk.%u.attn_q.bias", layer_q_dim(lc), j->q},
                 {"blk.%u.attn_k.weight", "blk.%u.attn_k.bias", layer_k_dim(lc), j->k},
                 {"blk.%u.attn_v.weight", "blk.%u.attn_v.bias", layer_v_dim(lc), j->v}};
    rad_status s = RAD_OK;
    for (uint32_t i = 0, row = 0; i < 3 && s == RAD_OK; row += parts[i++].rows) {
        if (i && lc->shares_kv) break;
        if (i == 2 && lc->v_is_k)
            memcpy(j->v, j->k, (size_t)j->num_tokens * parts[i].rows * sizeof *j->v);
        else if (i == 0 && lc->gated)
            s = project_gated_q(j, l);
        else if (c->arch->fused_qkv)
            s = judge_matmul_part(j, "blk.%u.attn_qkv.weight", l, layer_qkv_dim(lc), row,
                                  parts[i].rows, c->dim, j->normed, parts[i].out);
        else
            s = judge_matmul(j, parts[i].weight, l, parts[i].rows, c->dim, j->normed, parts[i].out);
        if (s == RAD_OK && (c->arch->qkv_bias || c->arch->biases))
            s = judge_add_bias(j, parts[i].bias, l, parts[i].rows, parts[i].out);
    }
    return s;
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

/* Gemma 4: without weights. */
static void plain_norm(const judge *j, uint32_t n, size_t count, double *x)
{
    for (size_t v = 0; v < count; v++, x += n) {
        double sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += x[i] * x[i];
        for (uint32_t i = 0; i < n; i++)
            x[i] /= sqrt(sum / n + (double)j->c.rms_eps);
    }
}

/* The last layers may have none: they see what the last one before them that sees as far has. */
static void keep_or_take_kv(const judge *j, const layer_config *lc)
{
    const size_t k = (size_t)j->num_tokens * layer_k_dim(lc) * sizeof(double),
                 v = (size_t)j->num_tokens * layer_v_dim(lc) * sizeof(double);
    double *kept_k = j->kept_k[lc->window > 0], *kept_v = j->kept_v[lc->window > 0];
    if (!j->c.arch->shared_kv) return;
    memcpy(lc->shares_kv ? j->k : kept_k, lc->shares_kv ? kept_k : j->k, k);
    memcpy(lc->shares_kv ? j->v : kept_v, lc->shares_kv ? kept_v : j->v, v);
}

/* Of each head, or of all heads of q and of k together. */
static rad_status norm_qk(const judge *j, uint32_t l)
{
    const layer_config *lc = &j->c.layers[l];
    const bool row = j->c.arch->qk_norm == QK_NORM_ROW;
    const size_t n = j->num_tokens;
    if (j->c.arch->qk_norm == QK_NORM_NONE) return RAD_OK;
    rad_status s = judge_rms_norm(j, "blk.%u.attn_q_norm.weight", l,
                                  row ? layer_q_dim(lc) : lc->head_dim, row ? n : n * lc->num_heads,
                                  j->q, j->q);
    if (s != RAD_OK || lc->shares_kv) return s;
    if (j->c.arch->v_norm) plain_norm(j, lc->v_head_dim, n * lc->num_kv_heads, j->v);
    return judge_rms_norm(j, "blk.%u.attn_k_norm.weight", l, row ? layer_k_dim(lc) : lc->head_dim,
                          row ? n : n * lc->num_kv_heads, j->k, j->k);
}

/* 1 + t ln(1 + floor(position / period)), where a model has that */
static void warm_q(const judge *j, uint32_t l)
{
    const size_t width = layer_q_dim(&j->c.layers[l]);
    for (uint32_t t = 0; j->c.q_temperature > 0 && t < j->num_tokens; t++)
        for (size_t i = 0; i < width; i++)
            j->q[t * width + i] *= 1 +
                                   (double)j->c.q_temperature * log(1.0 + floor(t / j->c.q_period));
}

static rad_status attention_block(const judge *j, uint32_t l)
{
    const model_config *c = &j->c;
    const layer_config *lc = &c->layers[l];
    rad_status s = judge_read_residual(j, "blk.%u.attn_norm.weight", l);
    if (s == RAD_OK) s = project_qkv(j, l);
    if (s == RAD_OK) s = norm_qk(j, l);
    if (s == RAD_OK) s = rope(j, l, j->q, lc->num_heads);
    if (s == RAD_OK && !lc->shares_kv) s = rope(j, l, j->k, lc->num_kv_heads);
    if (s != RAD_OK) return s;
    keep_or_take_kv(j, lc);
    warm_q(j, l);
    for (uint32_t t = 0; t < j->num_tokens; t++)
        for (uint32_t h = 0; h < lc->num_heads; h++)
            attend(j, lc, sink_of_head(j, l, h), t, h,
                   lc->window && t >= lc->window ? t - lc->window + 1 : 0);
    if (lc->gated) gate_attended(j, l);
    s = judge_matmul(j, "blk.%u.attn_output.weight", l, c->dim, layer_attn_dim(lc), j->attended,
                     j->added);
    if (s == RAD_OK && c->arch->biases)
        s = judge_add_bias(j, "blk.%u.attn_output.bias", l, c->dim, j->added);
    return s == RAD_OK ? judge_add_to_residual(j, "blk.%u.post_attention_norm.weight", l) : s;
}

/* Out of one tensor's `heads` matrices: out[t][h] = W[h] . in[t], or with `down` W[h]^T . in[t], of
 * [rows][cols] each; rows of out are out_ld apart. */
static rad_status per_head(const judge *j, const char *name, uint32_t l, uint32_t heads,
                           uint32_t rows, uint32_t cols, bool down, const double *in, double *out,
                           uint32_t out_ld)
{
    const gguf_tensor *w;
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s.weight", l, name);
    rad_status s = tensor_find_many(j->file, full, heads, rows, cols, &w, j->err);
    const uint32_t n_in = down ? rows : cols, n_out = down ? cols : rows;
    for (uint32_t h = 0; s == RAD_OK && h < heads; h++)
        for (uint32_t t = 0; t < j->num_tokens; t++)
            for (uint32_t i = 0; i < n_out; i++)
                out[((size_t)t * heads + h) * out_ld + i] = 0;
    for (uint32_t h = 0; s == RAD_OK && h < heads; h++)
        for (uint32_t r = 0; r < rows; r++) {
            tensor_row(w, (uint64_t)h * rows + r, j->row);
            for (uint32_t t = 0; t < j->num_tokens; t++) {
                const double *x = in + (size_t)t * n_in;
                double *y = out + ((size_t)t * heads + h) * out_ld;
                for (uint32_t k = 0; k < cols; k++)
                    y[down ? k : r] += (double)j->row[k] * x[down ? r : k];
            }
        }
    return s;
}

/* DeepSeek-V2's paper as it is written, not absorbed: K and V of every head are made. */
static rad_status latent_attention_block(const judge *j, uint32_t l)
{
    const model_config *c = &j->c;
    const latent_config *x = &c->latent;
    const uint32_t heads = c->layers[l].num_heads, key = x->plain + c->rope_dim,
                   row = x->kv_rank + c->rope_dim;
    const layer_config plain = {
        .num_heads = heads, .num_kv_heads = heads, .head_dim = key, .v_head_dim = x->value};
    double *few = j->attended; /* q's few numbers, then K's latent */
    rad_status s = judge_read_residual(j, "blk.%u.attn_norm.weight", l);
    if (s == RAD_OK && x->q_rank) {
        s = judge_matmul(j, "blk.%u.attn_q_a.weight", l, x->q_rank, c->dim, j->normed, few);
        if (s == RAD_OK)
            s = judge_rms_norm(j, "blk.%u.attn_q_a_norm.weight", l, x->q_rank, j->num_tokens, few,
                               few);
        if (s == RAD_OK)
            s = judge_matmul(j, "blk.%u.attn_q_b.weight", l, heads * key, x->q_rank, few, j->q);
    } else if (s == RAD_OK) {
        s = judge_matmul(j, "blk.%u.attn_q.weight", l, heads * key, c->dim, j->normed, j->q);
    }
    if (s == RAD_OK)
        s = judge_matmul(j, "blk.%u.attn_kv_a_mqa.weight", l, row, c->dim, j->normed, j->added);
    if (s != RAD_OK) return s;
    for (uint32_t t = 0; t < j->num_tokens; t++)
        memcpy(few + (size_t)t * x->kv_rank, j->added + (size_t)t * row, x->kv_rank * sizeof *few);
    s = judge_rms_norm(j, "blk.%u.attn_kv_a_norm.weight", l, x->kv_rank, j->num_tokens, few, few);
    if (s == RAD_OK)
        s = per_head(j, "attn_k_b", l, heads, x->kv_rank, x->plain, true, few, j->k, key);
    if (s == RAD_OK)
        s = per_head(j, "attn_v_b", l, heads, x->value, x->kv_rank, false, few, j->v, x->value);
    for (uint32_t t = 0; s == RAD_OK && t < j->num_tokens; t++)
        for (uint32_t h = 0; h < heads; h++)
            memcpy(j->k + ((size_t)t * heads + h) * key + x->plain,
                   j->added + (size_t)t * row + x->kv_rank, c->rope_dim * sizeof *few);
    if (s == RAD_OK) s = rope_at(j, l, j->q, heads, key, x->plain);
    if (s == RAD_OK) s = rope_at(j, l, j->k, heads, key, x->plain);
    for (uint32_t t = 0; s == RAD_OK && t < j->num_tokens; t++)
        for (uint32_t h = 0; h < heads; h++)
            attend(j, &plain, -INFINITY, t, h, 0);
    if (s == RAD_OK)
        s = judge_matmul(j, "blk.%u.attn_output.weight", l, c->dim, heads * x->value, j->attended,
                         j->added);
    return s == RAD_OK ? judge_add_to_residual(j, "", l) : s;
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
    case MIXER_LATENT: return latent_attention_block(j, l);
    case MIXER_DELTA: return judge_delta_block(j, l);
    case MIXER_MAMBA: return judge_mamba_block(j, l);
    case MIXER_CONV: return judge_conv_block(j, l);
    case MIXER_NONE: return RAD_OK;
    case MIXER_ATTENTION: break;
    }
    return attention_block(j, l);
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
