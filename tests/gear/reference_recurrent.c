/* reference_recurrent.c - the scalar reference's recurrent layers (model_reference.h), as their
 * papers write them: one step after the other, from no state. */
#include "gear/reference_judge.h"
#include "model/tensor_rows.h"

#include <math.h>

static double silu(double x)
{
    return x * sigmoid(x);
}

static double softplus(double x)
{
    return x > 30 ? x : log1p(exp(x));
}

/* One number of a tensor whose rows are `cols` wide. */
static rad_status numbers(const judge *j, const char *name, uint32_t l, uint32_t rows,
                          uint32_t cols, double *out)
{
    const gguf_tensor *t;
    rad_status s = judge_find(j, name, l, rows, cols, &t);
    for (uint32_t r = 0; s == RAD_OK && r < (rows ? rows : 1); r++) {
        tensor_row(t, r, j->row);
        for (uint32_t i = 0; i < cols; i++)
            out[(size_t)r * cols + i] = (double)j->row[i];
    }
    return s;
}

/* out[t] = [bias +] sum over taps of w[channel][tap] in[t - taps + 1 + tap]; in[t] begins at `at`
 * in rows of `ld`, and there is nothing before the first. */
static rad_status convolve(const judge *j, const char *name, const char *bias, uint32_t l,
                           const double *in, size_t ld, double *out)
{
    const recurrent_config *x = &j->c.recurrent;
    double *w = j->gate; /* free meanwhile */
    rad_status s = RAD_OK;
    for (uint32_t c = 0; c < x->conv_dim && s == RAD_OK; c++) {
        const gguf_tensor *t;
        s = judge_find(j, name, l, x->conv_dim, x->taps, &t);
        if (s != RAD_OK) return s;
        tensor_row(t, c, j->row);
        for (uint32_t i = 0; i < x->taps; i++)
            w[i] = (double)j->row[i];
        for (uint32_t n = 0; n < j->num_tokens; n++) {
            double sum = 0;
            for (uint32_t i = 0; i < x->taps; i++)
                if (n + i + 1 >= x->taps) sum += w[i] * in[(n + i + 1 - x->taps) * ld + c];
            out[(size_t)n * x->conv_dim + c] = sum;
        }
    }
    if (s == RAD_OK && bias) s = judge_add_bias(j, bias, l, x->conv_dim, out);
    return s;
}

static double dot(const double *a, const double *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* S = d S + k (x) u, where u = w v, or by the delta rule w (v - k . d S); out = q . S */
static void recur(const judge *j, bool delta, double d, double w, const double *k, const double *q,
                  const double *v, double *out)
{
    const uint32_t keys = j->c.recurrent.key, values = j->c.recurrent.value;
    for (uint32_t c = 0; c < values; c++) {
        double seen = 0;
        out[c] = 0;
        for (uint32_t i = 0; i < keys; i++) {
            j->sums[i * values + c] *= d;
            seen += k[i] * j->sums[i * values + c];
        }
        const double u = w * (v[c] - (delta ? seen : 0));
        for (uint32_t i = 0; i < keys; i++) {
            j->sums[i * values + c] += k[i] * u;
            out[c] += q[i] * j->sums[i * values + c];
        }
    }
}

static void normalise(double *x, uint32_t n, double eps)
{
    const double by = 1 / sqrt(dot(x, x, n) + eps);
    for (uint32_t i = 0; i < n; i++)
        x[i] *= by;
}

/* Gated DeltaNet's paper; value heads take turns with key heads. */
rad_status judge_delta_block(const judge *j, uint32_t l)
{
    const model_config *c = &j->c;
    const recurrent_config *x = &c->recurrent;
    const uint32_t keys = x->groups * x->key, inner = x->heads * x->value, n = j->num_tokens;
    double *z = j->wide + (size_t)n * x->conv_dim, *alpha = j->k, *beta = j->v, a[4096];
    rad_status s = judge_read_residual(j, "blk.%u.attn_norm.weight", l);
    if (s == RAD_OK)
        s = judge_matmul(j, "blk.%u.attn_qkv.weight", l, x->conv_dim, c->dim, j->normed, j->wide);
    if (s == RAD_OK) s = judge_matmul(j, "blk.%u.attn_gate.weight", l, inner, c->dim, j->normed, z);
    if (s == RAD_OK)
        s = judge_matmul(j, "blk.%u.ssm_alpha.weight", l, x->heads, c->dim, j->normed, alpha);
    if (s == RAD_OK)
        s = judge_matmul(j, "blk.%u.ssm_beta.weight", l, x->heads, c->dim, j->normed, beta);
    if (s == RAD_OK) s = judge_add_bias(j, "blk.%u.ssm_dt.bias", l, x->heads, alpha);
    if (s == RAD_OK) s = numbers(j, "blk.%u.ssm_a", l, 0, x->heads, a);
    if (s == RAD_OK)
        s = convolve(j, "blk.%u.ssm_conv1d.weight", NULL, l, j->wide, x->conv_dim, j->q);
    if (s != RAD_OK) return s;
    for (size_t i = 0; i < (size_t)n * x->conv_dim; i++)
        j->q[i] = silu(j->q[i]);
    for (size_t t = 0; t < n; t++)
        for (uint32_t g = 0; g < 2 * x->groups; g++)
            normalise(j->q + t * x->conv_dim + g * x->key, x->key, (double)c->rms_eps);
    for (uint32_t h = 0; h < x->heads; h++) {
        memset(j->sums, 0, (size_t)x->key * x->value * sizeof *j->sums);
        for (size_t t = 0; t < n; t++) {
            const double *q = j->q + t * x->conv_dim + (h % x->groups) * x->key, *k = q + keys;
            double *out = j->attended + t * inner + h * x->value;
            recur(j, true, exp(a[h] * softplus(alpha[t * x->heads + h])),
                  sigmoid(beta[t * x->heads + h]), k, q,
                  j->q + t * x->conv_dim + 2 * keys + h * x->value, out);
            for (uint32_t i = 0; i < x->value; i++)
                out[i] /= sqrt(x->key);
        }
    }
    s = judge_rms_norm(j, "blk.%u.ssm_norm.weight", l, x->value, (size_t)n * x->heads, j->attended,
                       j->attended);
    for (size_t i = 0; i < (size_t)n * inner; i++)
        j->attended[i] *= silu(z[i]);
    if (s == RAD_OK)
        s = judge_matmul(j, "blk.%u.ssm_out.weight", l, c->dim, inner, j->attended, j->added);
    return s == RAD_OK ? judge_add_to_residual(j, "", l) : s;
}

/* The Mamba-2 paper, a state for each head; B and C are shared by the heads of a group. */
rad_status judge_mamba_block(const judge *j, uint32_t l)
{
    const model_config *c = &j->c;
    const recurrent_config *x = &c->recurrent;
    const uint32_t keys = x->groups * x->key, inner = x->heads * x->value, n = j->num_tokens;
    const size_t ld = inner + x->conv_dim + x->heads;
    double a[4096], dt[4096], skip[4096];
    rad_status s = judge_read_residual(j, "blk.%u.attn_norm.weight", l);
    if (s == RAD_OK)
        s = judge_matmul(j, "blk.%u.ssm_in.weight", l, (uint32_t)ld, c->dim, j->normed, j->wide);
    if (s == RAD_OK) s = numbers(j, "blk.%u.ssm_a", l, x->heads, 1, a);
    if (s == RAD_OK) s = numbers(j, "blk.%u.ssm_d", l, x->heads, 1, skip);
    if (s == RAD_OK) s = numbers(j, "blk.%u.ssm_dt.bias", l, 0, x->heads, dt);
    if (s == RAD_OK)
        s = convolve(j, "blk.%u.ssm_conv1d.weight", "blk.%u.ssm_conv1d.bias", l, j->wide + inner,
                     ld, j->q);
    if (s != RAD_OK) return s;
    for (size_t i = 0; i < (size_t)n * x->conv_dim; i++)
        j->q[i] = silu(j->q[i]);
    for (uint32_t h = 0; h < x->heads; h++) {
        memset(j->sums, 0, (size_t)x->key * x->value * sizeof *j->sums);
        for (size_t t = 0; t < n; t++) {
            const double *v = j->q + t * x->conv_dim + h * x->value,
                         *b = j->q + t * x->conv_dim + inner + h / (x->heads / x->groups) * x->key;
            double *out = j->attended + t * inner + h * x->value;
            const double step = softplus(j->wide[t * ld + inner + x->conv_dim + h] + dt[h]);
            recur(j, false, exp(step * a[h]), step, b, b + keys, v, out);
            for (uint32_t i = 0; i < x->value; i++)
                out[i] = (out[i] + skip[h] * v[i]) * silu(j->wide[t * ld + h * x->value + i]);
        }
    }
    /* A norm for each group, with weights of its own. */
    const uint32_t group = inner / x->groups;
    const gguf_tensor *weights;
    s = judge_find(j, "blk.%u.ssm_norm.weight", l, x->groups, group, &weights);
    if (s != RAD_OK) return s;
    for (uint32_t g = 0; g < x->groups; g++) {
        tensor_row(weights, g, j->row);
        for (size_t t = 0; t < n; t++) {
            double *out = j->attended + t * inner + g * group;
            const double by = 1 / sqrt(dot(out, out, group) / group + (double)c->rms_eps);
            for (uint32_t i = 0; i < group; i++)
                out[i] *= by * (double)j->row[i];
        }
    }
    s = judge_matmul(j, "blk.%u.ssm_out.weight", l, c->dim, inner, j->attended, j->added);
    return s == RAD_OK ? judge_add_to_residual(j, "", l) : s;
}

/* LFM2's double-gated convolution. */
rad_status judge_conv_block(const judge *j, uint32_t l)
{
    const uint32_t dim = j->c.dim, n = j->num_tokens;
    rad_status s = judge_read_residual(j, "blk.%u.attn_norm.weight", l);
    if (s == RAD_OK)
        s = judge_matmul(j, "blk.%u.shortconv.in_proj.weight", l, 3 * dim, dim, j->normed, j->wide);
    for (size_t t = 0; s == RAD_OK && t < n; t++)
        for (uint32_t i = 0; i < dim; i++)
            j->wide[t * 3 * dim + i] *= j->wide[(t * 3 + 2) * dim + i];
    if (s == RAD_OK)
        s = convolve(j, "blk.%u.shortconv.conv.weight", NULL, l, j->wide, 3 * (size_t)dim, j->q);
    for (size_t t = 0; s == RAD_OK && t < n; t++)
        for (uint32_t i = 0; i < dim; i++)
            j->q[t * dim + i] *= j->wide[(t * 3 + 1) * dim + i];
    if (s == RAD_OK)
        s = judge_matmul(j, "blk.%u.shortconv.out_proj.weight", l, dim, dim, j->q, j->added);
    return s == RAD_OK ? judge_add_to_residual(j, "", l) : s;
}
