/* reference_attention.c - the judge's attention: rotations, windows, sinks, gates; K and V that
 * layers share; the latent kind. */
#include "gear/reference_judge.h"
#include "model/tensor_rows.h"

#include <stdio.h>

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

rad_status judge_attention_block(const judge *j, uint32_t l)
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
rad_status judge_latent_block(const judge *j, uint32_t l)
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
