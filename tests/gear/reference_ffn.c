/* reference_ffn.c - the scalar reference's feed-forward blocks (model_reference.h): dense ones,
 * mixtures of experts, and both beside each other. */
#include "gear/reference_judge.h"
#include "model/tensor_rows.h"
#include "model/weights.h"

#include <math.h>
#include <stdio.h>

static rad_status add_bias_to(const judge *j, const char *name, uint32_t layer, uint32_t n,
                              double *out)
{
    const gguf_tensor *bias;
    rad_status status = judge_find(j, name, layer, 0, n, &bias);
    if (status == RAD_OK) tensor_row(bias, 0, j->row);
    for (uint32_t i = 0; status == RAD_OK && i < n; i++)
        out[i] += (double)j->row[i];
    return status;
}

/* Each number by another. */
static rad_status scale_by(const judge *j, const char *name, uint32_t layer, uint32_t n, double *x)
{
    const gguf_tensor *by;
    rad_status status = judge_find(j, name, layer, 0, n, &by);
    if (status == RAD_OK) tensor_row(by, 0, j->row);
    for (uint32_t i = 0; status == RAD_OK && i < n; i++)
        x[i] *= (double)j->row[i];
    return status;
}

static const char *ffn_norm_name(const judge *j)
{
    return j->c.arch->one_block       ? "blk.%u.attn_norm.weight"
           : j->c.arch->late_ffn_norm ? "blk.%u.post_attention_norm.weight"
                                      : "blk.%u.ffn_norm.weight";
}

/* The gated unit: SwiGLU, GEGLU, or gpt-oss's own with limits (its model card's swiglu). */
double judge_activated(const judge *j, double g, double up)
{
    if (j->c.arch->ffn == FFN_RELU2) return up > 0 ? up * up : 0; /* there is no gate */
    if (j->c.arch->ffn == FFN_SWIGLU) return g * sigmoid(g) * up;
    if (j->c.arch->ffn == FFN_GEGLU)
        return 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * up;
    g = fmin(g, 7);
    return g * sigmoid(1.702 * g) * (fmax(fmin(up, 7), -7) + 1);
}

/* out[n] = [bias +] sum over k of W[first + n][k] * in[k], W having `all` matrices of `rows` */
static rad_status expert_matvec(const judge *j, const char *name, uint32_t l, uint32_t expert,
                                uint32_t all, uint32_t rows, uint32_t cols, const double *in,
                                double *out)
{
    const gguf_tensor *w;
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s.weight", l, name);
    rad_status s = tensor_find_many(j->file, full, all, rows, cols, &w, j->err);
    for (uint32_t n = 0; s == RAD_OK && n < rows; n++) {
        tensor_row(w, (uint64_t)expert * rows + n, j->row);
        out[n] = 0;
        for (uint32_t k = 0; k < cols; k++)
            out[n] += (double)j->row[k] * in[k];
    }
    snprintf(full, sizeof full, "blk.%u.%s.bias", l, name);
    if (s != RAD_OK || !gguf_find_tensor(j->file, full)) return s;
    s = tensor_find(j->file, full, all, rows, &w, j->err);
    if (s == RAD_OK) tensor_row(w, expert, j->row);
    for (uint32_t n = 0; s == RAD_OK && n < rows; n++)
        out[n] += (double)j->row[n];
    return s;
}

/* Gates and ups in one tensor: the gates of each expert, then its ups. */
static rad_status expert_pair(const judge *j, uint32_t l, uint32_t expert, uint32_t all,
                              uint32_t width, const double *in)
{
    const gguf_tensor *w;
    char full[64];
    snprintf(full, sizeof full, "blk.%u.ffn_gate_up_exps.weight", l);
    rad_status s = tensor_find_many(j->file, full, all, 2 * width, j->c.dim, &w, j->err);
    for (uint32_t n = 0; s == RAD_OK && n < 2 * width; n++) {
        double sum = 0;
        tensor_row(w, (uint64_t)expert * 2 * width + n, j->row);
        for (uint32_t k = 0; k < j->c.dim; k++)
            sum += (double)j->row[k] * in[k];
        *(n < width ? &j->gate[n] : &j->up[n - width]) = sum;
    }
    return s;
}

/* added += weight * down . (act(gate . in) * up . in) */
static rad_status add_expert(const judge *j, uint32_t l, const char *const names[3],
                             uint32_t expert, uint32_t all, uint32_t width, double weight,
                             const double *in, double *added)
{
    const uint32_t dim = j->c.dim;
    double *said = j->attended; /* free by now; attention's heads may be narrower than dim */
    rad_status s = RAD_OK;
    if (j->c.experts.pairs)
        s = expert_pair(j, l, expert, all, width, in);
    else if (j->c.arch->ffn != FFN_RELU2)
        s = expert_matvec(j, names[0], l, expert, all, width, dim, in, j->gate);
    if (s == RAD_OK && !j->c.experts.pairs)
        s = expert_matvec(j, names[1], l, expert, all, width, dim, in, j->up);
    for (uint32_t i = 0; s == RAD_OK && i < width; i++)
        j->gate[i] = judge_activated(j, j->gate[i], j->up[i]);
    if (s == RAD_OK) s = expert_matvec(j, names[2], l, expert, all, dim, width, j->gate, said);
    for (uint32_t i = 0; s == RAD_OK && i < dim; i++)
        added[i] += weight * said[i];
    return s;
}

/* What a router makes of its scores, Mixtral's and DeepSeek's papers: probabilities of all, or
 * sigmoids; gpt-oss: of the chosen. `by` is what is chosen by. */
static void weigh_experts(const judge *j, const double *by, double *score, double *weight)
{
    const experts_config *x = &j->c.experts;
    double sum = 0, all = 0, first_left = -INFINITY, last_taken = INFINITY;
    for (uint32_t e = 0; e < x->count; e++) {
        if (x->router == ROUTER_SIGMOID)
            score[e] = sigmoid(score[e]);
        else
            score[e] = exp(score[e]);
        all += score[e];
    }
    for (uint32_t e = 0; e < x->count; e++) {
        uint32_t before = 0; /* experts that come first: larger, or as large with a lower id */
        for (uint32_t o = 0; o < x->count; o++)
            before += by[o] > by[e] || (by[o] == by[e] && o < e);
        weight[e] = before < x->used ? score[e] : 0;
        if (before < x->used)
            last_taken = fmin(last_taken, by[e]);
        else
            first_left = fmax(first_left, by[e]);
        sum += weight[e];
    }
    if (x->router == ROUTER_SOFTMAX && !x->normed) sum = all;
    if (x->router == ROUTER_SIGMOID)
        sum = x->normed ? fmax(sum, 0x1p-14) : 1; /* llama.cpp's least */
    for (uint32_t e = 0; e < x->count; e++)
        weight[e] *= (double)x->scale / sum;
    if (j->clear) *j->clear = fmin(*j->clear, last_taken - first_left);
}

/* DeepSeek-V3's paper: experts of the groups whose two best are best together; others are out. */
static void mask_groups(const judge *j, double *by)
{
    const experts_config *x = &j->c.experts;
    const uint32_t size = x->count / x->groups;
    double worth[4096];
    for (uint32_t g = 0; g < x->groups; g++) {
        double best[2] = {-INFINITY, -INFINITY};
        for (uint32_t e = 0; e < size; e++) {
            const double v = by[g * size + e];
            if (v > best[0])
                best[1] = best[0], best[0] = v;
            else
                best[1] = fmax(best[1], v);
        }
        worth[g] = best[0] + best[1];
    }
    double least_in = INFINITY, most_out = -INFINITY;
    for (uint32_t g = 0; x->groups > x->groups_used && g < x->groups; g++) {
        uint32_t before = 0;
        for (uint32_t o = 0; o < x->groups; o++)
            before += worth[o] > worth[g] || (worth[o] == worth[g] && o < g);
        if (before < x->groups_used)
            least_in = fmin(least_in, worth[g]);
        else
            most_out = fmax(most_out, worth[g]);
        for (uint32_t e = 0; before >= x->groups_used && e < size; e++)
            by[g * size + e] = -INFINITY;
    }
    if (j->clear) *j->clear = fmin(*j->clear, least_in - most_out);
}

/* routed_by: what the router reads of all tokens; NULL: what the experts read. */
static rad_status experts_of_token(const judge *j, uint32_t l, uint32_t t, const double *routed_by)
{
    static const char *const each[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"},
                             *const shared[] = {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};
    const model_config *c = &j->c;
    const experts_config *x = &c->experts;
    const double *in = j->normed + (size_t)t * c->dim;
    double *added = j->added + (size_t)t * c->dim;
    double *score = j->router, *by = score + x->count, *weight = by + x->count;
    memset(added, 0, c->dim * sizeof *added);
    rad_status s = expert_matvec(j, "ffn_gate_inp", l, 0, 1, x->count, c->dim,
                                 routed_by ? routed_by + (size_t)t * c->dim : in, score);
    if (s != RAD_OK) return s;
    double all = 0; /* what a softmax divides by: groups are compared by sums of probabilities */
    for (uint32_t e = 0; e < x->count; e++)
        all += exp(score[e]);
    for (uint32_t e = 0; e < x->count; e++)
        by[e] = x->router == ROUTER_SIGMOID   ? sigmoid(score[e])
                : x->router == ROUTER_SOFTMAX ? exp(score[e]) / all
                                              : score[e];
    if (x->select_bias) s = add_bias_to(j, "blk.%u.exp_probs_b.bias", l, x->count, by);
    mask_groups(j, by);
    weigh_experts(j, by, score, weight);
    if (s == RAD_OK && x->scaled)
        s = scale_by(j, "blk.%u.ffn_down_exps.scale", l, x->count, weight);
    for (uint32_t e = 0; s == RAD_OK && e < x->count; e++)
        if (weight[e] > 0) s = add_expert(j, l, each, e, x->count, x->dim, weight[e], in, added);
    if (s != RAD_OK || !x->shared_dim) return s;
    double gate = 1;
    if (c->arch->shared == SHARED_GATED) {
        double dot;
        s = expert_matvec(j, "ffn_gate_inp_shexp", l, 0, 1, 1, c->dim, in, &dot);
        gate = sigmoid(dot);
    }
    if (s == RAD_OK) s = add_expert(j, l, shared, 0, 1, x->shared_dim, gate, in, added);
    return s;
}

static rad_status experts_block(const judge *j, uint32_t l)
{
    rad_status s = judge_read_residual(j, ffn_norm_name(j), l);
    for (uint32_t t = 0; t < j->num_tokens && s == RAD_OK; t++)
        s = experts_of_token(j, l, t, NULL);
    return s == RAD_OK ? judge_add_to_residual(j, "blk.%u.post_ffw_norm.weight", l) : s;
}

/* What a dense block makes of the residual stream, in `added`. */
static rad_status dense_answer(const judge *j, uint32_t l)
{
    const model_config *c = &j->c;
    bool fused = c->arch->fused_ffn;
    uint32_t f = c->layers[l].ffn_dim;
    rad_status s = judge_read_residual(j, ffn_norm_name(j), l);
    if (s == RAD_OK && !fused && c->arch->ffn != FFN_RELU2)
        s = judge_matmul(j, "blk.%u.ffn_gate.weight", l, f, c->dim, j->normed, j->gate);
    if (s == RAD_OK && fused)
        s = judge_matmul_part(j, "blk.%u.ffn_up.weight", l, 2 * f, 0, f, c->dim, j->normed,
                              j->gate);
    if (s == RAD_OK)
        s = judge_matmul_part(j, "blk.%u.ffn_up.weight", l, fused ? 2 * f : f, fused ? f : 0, f,
                              c->dim, j->normed, j->up);
    if (s != RAD_OK) return s;
    for (size_t i = 0; i < (size_t)j->num_tokens * f; i++)
        j->gate[i] = judge_activated(j, j->gate[i], j->up[i]);
    return judge_matmul(j, "blk.%u.ffn_down.weight", l, c->dim, f, j->gate, j->added);
}

static rad_status dense_block(const judge *j, uint32_t l)
{
    rad_status s = dense_answer(j, l);
    return s == RAD_OK ? judge_add_to_residual(j, "blk.%u.post_ffw_norm.weight", l) : s;
}

/* Gemma 4: a dense block and experts, each between norms of its own; the router reads rms(x) times
 * a vector / sqrt(dim). */
static rad_status both_block(const judge *j, uint32_t l)
{
    const uint32_t dim = j->c.dim, n = j->num_tokens;
    double *dense = j->embd + (size_t)n * j->c.num_layers * j->c.layer_embd,
           *routed = dense + (size_t)n * dim;
    rad_status s = dense_answer(j, l);
    if (s == RAD_OK)
        s = judge_rms_norm(j, "blk.%u.post_ffw_norm_1.weight", l, dim, n, j->added, dense);
    if (s == RAD_OK) s = judge_rms_norm(j, "blk.%u.ffn_gate_inp.scale", l, dim, n, j->x, routed);
    for (size_t i = 0; i < (size_t)n * dim; i++)
        routed[i] /= sqrt(dim);
    if (s == RAD_OK)
        s = judge_rms_norm(j, "blk.%u.pre_ffw_norm_2.weight", l, dim, n, j->x, j->normed);
    for (uint32_t t = 0; t < n && s == RAD_OK; t++)
        s = experts_of_token(j, l, t, routed);
    if (s == RAD_OK)
        s = judge_rms_norm(j, "blk.%u.post_ffw_norm_2.weight", l, dim, n, j->added, j->added);
    for (size_t i = 0; i < (size_t)n * dim; i++)
        j->added[i] += dense[i];
    return s == RAD_OK ? judge_add_to_residual(j, "blk.%u.post_ffw_norm.weight", l) : s;
}

rad_status judge_feed_forward_block(const judge *j, uint32_t l)
{
    return !j->c.layers[l].experts     ? dense_block(j, l)
           : j->c.arch->experts_beside ? both_block(j, l)
                                       : experts_block(j, l);
}
