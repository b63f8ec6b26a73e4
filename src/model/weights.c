/* weights.c - see weights.h.
 *
 * Loading goes twice over the tensors. The first time it only finds each, compares its shape
 * with the config and counts what the matrices take packed; then there is one block for all of
 * them, and the second time they are packed into it. One block, since a huge page is larger than
 * most matrices of a small model, which in small pages are read slower.
 *
 * A tensor that was found lies in the file with all its bytes, so what is allocated is bounded
 * by the file's size (times 8 at most: Q4_0 to f32), whatever the metadata claims.
 * weights_pack.c fills it. */
#include "model/weights.h"

#include "base/bf16.h"
#include "gguf/quant.h"
#include "model/tensor_rows.h"
#include "model/weights_pack.h"

#include <math.h>
#include <stdio.h>

typedef struct load {
    const rad_env *env;
    const gguf_file *file;
    const weights_loader *loader;
    model_weights *w;
    rad_error *err;
    bool counts;          /* the first time */
    size_t packed;        /* bytes of matrices that were counted, or have their place */
    uint64_t done, total; /* bytes of tensors */
    float *panels;        /* [num_threads][GEMM_PANEL][widest] */
    size_t panels_bytes;
    size_t panel_floats;
} load;

/* A tensor is done: its pages of the file need not stay mapped. */
static void report(load *l, const gguf_tensor *t)
{
    gguf_forget(l->file, t);
    l->done += t->bytes;
    if (l->loader->progress) l->loader->progress(l->loader->progress_user, l->done, l->total);
}

/* A name within a layer: "blk.3.attn_q.weight". */
typedef struct tensor_name {
    char text[64];
} tensor_name;

static tensor_name blk(uint32_t layer, const char *name)
{
    tensor_name n;
    snprintf(n.text, sizeof n.text, "blk.%u.%s.weight", layer, name);
    return n;
}

static tensor_name blk_bias(uint32_t layer, const char *name)
{
    tensor_name n;
    snprintf(n.text, sizeof n.text, "blk.%u.%s.bias", layer, name);
    return n;
}

/* The vectors of several tensors (parts' rows are their lengths), one behind the other. */
static rad_status load_vectors(load *l, const weights_part *parts, uint32_t num_parts, float **out)
{
    const gguf_tensor *t[WEIGHTS_MOST_PARTS];
    size_t n = 0, at = 0;
    for (uint32_t i = 0; i < num_parts; n += parts[i++].rows) {
        rad_status status = tensor_find(l->file, parts[i].name, 0, parts[i].rows, &t[i], l->err);
        if (status != RAD_OK) return status;
    }
    if (l->counts) return RAD_OK;
    *out = rad_alloc(l->env, n * sizeof **out);
    if (!*out)
        return rad_fail(l->err, RAD_E_NOMEM, "model: no memory for %s (%zu bytes)", parts[0].name,
                        n * sizeof **out);
    l->w->bytes += n * sizeof **out;
    for (uint32_t i = 0; i < num_parts; at += parts[i++].rows) {
        tensor_row(t[i], 0, *out + at);
        report(l, t[i]);
    }
    return RAD_OK;
}

static rad_status load_vector(load *l, const char *name, uint32_t n, float **out)
{
    return load_vectors(l, &(weights_part){name, n, NULL}, 1, out);
}

/* Divisors of RoPE's angles: any other number would turn all that follows into NaN. */
static rad_status load_rope_divisors(load *l)
{
    const model_config *c = &l->w->config;
    const char *name = c->scaling.divisors;
    if (!name) return RAD_OK;
    rad_status status = load_vector(l, name, c->rope_dim / 2, &l->w->rope_divisors);
    if (l->counts) return status;
    for (uint32_t i = 0; status == RAD_OK && i < c->rope_dim / 2; i++)
        if (!(l->w->rope_divisors[i] > 0) || isinf(l->w->rope_divisors[i]))
            return rad_fail(l->err, RAD_E_FORMAT, "model: %s[%u] is %g, expected a number > 0",
                            name, i, (double)l->w->rope_divisors[i]);
    return status;
}

/* What the parts take packed beside `packed` bytes; SIZE_MAX, which nobody has, where that is no
 * number. */
static size_t with_parts(size_t packed, const gemm_part *parts, uint32_t num_parts, uint32_t cols)
{
    for (uint32_t i = 0; i < num_parts; i++) {
        const size_t bytes = gemm_weight_bytes(parts[i].type, parts[i].n, cols);
        if (!bytes || __builtin_add_overflow(packed, bytes, &packed)) return SIZE_MAX;
    }
    return packed;
}

/* Stacks the parts, each with `cols` columns, into one packed weight, in their own types where
 * the policy keeps these. */
static rad_status load_matrix(load *l, weights_part *parts, uint32_t num_parts, uint32_t cols,
                              gemm_weight **out)
{
    for (uint32_t i = 0; i < num_parts; i++) {
        rad_status status =
            tensor_find(l->file, parts[i].name, parts[i].rows, cols, &parts[i].tensor, l->err);
        if (status != RAD_OK) return status;
    }
    gemm_part types[WEIGHTS_MOST_PARTS] = {0};
    uint32_t num_types = weights_choose_types(
        l->loader->policy, l->w->dtype == RAD_F32 ? GEMM_F32 : GEMM_BF16, parts, num_parts, types);
    const size_t at = l->packed;
    l->packed = with_parts(at, types, num_types, cols);
    if (l->counts) return RAD_OK;

    RAD_ASSERT_ENV(l->env, l->packed <= l->w->matrices_bytes);
    for (uint32_t i = 0; i < num_parts; i++)
        gguf_will_need(l->file, parts[i].tensor);
    rad_status status = gemm_weight_create_stack(l->env, (char *)l->w->matrices + at, types,
                                                 num_types, cols, l->loader->gemm, out, l->err);
    if (status != RAD_OK) return status;
    l->w->bytes += l->packed - at;
    for (uint32_t i = 0; i < num_types; i++)
        l->w->matrix_bytes[types[i].type] += gemm_weight_bytes(types[i].type, types[i].n, cols);
    weights_pack(*out, parts, l->panels, l->panel_floats, l->loader->pool);
    for (uint32_t i = 0; i < num_parts; i++)
        report(l, parts[i].tensor);
    return RAD_OK;
}

typedef struct embd_job {
    load *l;
    const gguf_tensor *tensor;
} embd_job;

static void embd_tile(void *arg, uint32_t tile, uint32_t thread)
{
    const embd_job *job = arg;
    const model_weights *w = job->l->w;
    float *row = job->l->panels + thread * job->l->panel_floats;
    uint32_t dim = w->config.dim, first = tile * GEMM_PANEL;
    uint32_t end = RAD_MIN(first + GEMM_PANEL, w->config.vocab_size);
    for (uint32_t id = first; id < end; id++) {
        char *out = (char *)w->token_embd + id * w->token_embd_row;
        if (w->token_embd_type == job->tensor->type) {
            memcpy(out, tensor_row_bytes(job->tensor, id), w->token_embd_row);
        } else if (w->token_embd_type == GGML_F32) {
            tensor_row(job->tensor, id, (float *)out);
        } else {
            tensor_row(job->tensor, id, row);
            for (uint32_t i = 0; i < dim; i++)
                ((uint16_t *)out)[i] = bf16_from_f32(row[i]);
        }
    }
}

/* The table's own type where the policy keeps such and it has blocks. */
static uint32_t embedding_type(const load *l, const gguf_tensor *t)
{
    uint32_t values = 1, bytes;
    ggml_type_layout(t->type, &values, &bytes);
    if (l->loader->policy != WEIGHTS_AS_DTYPE && values > 1) return t->type;
    return l->w->dtype == RAD_F32 ? GGML_F32 : GGML_BF16;
}

static rad_status load_embedding(load *l)
{
    model_weights *w = l->w;
    const model_config *c = &w->config;
    if (c->tied) {
        weights_part both = {"token_embd.weight", c->vocab_size, NULL};
        return load_matrix(l, &both, 1, c->dim, &w->output);
    }
    weights_part output = {"output.weight", c->vocab_size, NULL};
    rad_status status = load_matrix(l, &output, 1, c->dim, &w->output);
    if (status != RAD_OK) return status;

    embd_job job = {.l = l};
    status = tensor_find(l->file, "token_embd.weight", c->vocab_size, c->dim, &job.tensor, l->err);
    if (status != RAD_OK || l->counts) return status;
    uint32_t values = 1, bytes = 0;
    w->token_embd_type = embedding_type(l, job.tensor);
    ggml_type_layout(w->token_embd_type, &values, &bytes);
    w->token_embd_row = c->dim / values * bytes;
    w->token_embd_bytes = rad_mul(c->vocab_size, w->token_embd_row);
    w->token_embd = rad_alloc(l->env, w->token_embd_bytes);
    if (!w->token_embd)
        return rad_fail(l->err, RAD_E_NOMEM, "model: no memory for token_embd.weight (%zu bytes)",
                        w->token_embd_bytes);
    w->bytes += w->token_embd_bytes;
    compute_pool_run(l->loader->pool, (c->vocab_size + GEMM_PANEL - 1) / GEMM_PANEL, embd_tile,
                     &job);
    report(l, job.tensor);
    return RAD_OK;
}

/* q, k and v, or gate and up: the parts that `fused` has in one tensor already. */
static rad_status load_stack(load *l, uint32_t i, const char *fused, const char *const *names,
                             const uint32_t *rows, uint32_t num_parts, gemm_weight **out)
{
    tensor_name texts[WEIGHTS_MOST_PARTS];
    weights_part parts[WEIGHTS_MOST_PARTS];
    uint32_t all = 0;
    for (uint32_t p = 0; p < num_parts; p++) {
        texts[p] = blk(i, names[p]);
        parts[p] = (weights_part){texts[p].text, rows[p], NULL};
        all += rows[p];
    }
    if (fused) {
        texts[0] = blk(i, fused);
        parts[0] = (weights_part){texts[0].text, all, NULL};
        num_parts = 1;
    }
    return load_matrix(l, parts, num_parts, l->w->config.dim, out);
}

static rad_status load_bias(load *l, uint32_t i)
{
    const model_config *c = &l->w->config;
    tensor_name q = blk_bias(i, "attn_q"), k = blk_bias(i, "attn_k"), v = blk_bias(i, "attn_v");
    const weights_part parts[] = {{q.text, config_q_dim(c), NULL},
                                  {k.text, config_k_dim(c), NULL},
                                  {v.text, config_v_dim(c), NULL}};
    return load_vectors(l, parts, 3, &l->w->layers[i].qkv_bias);
}

static rad_status load_layer(load *l, uint32_t i)
{
    static const char *const qkv[] = {"attn_q", "attn_k", "attn_v"}, *const gate_up[] = {"ffn_gate",
                                                                                         "ffn_up"};
    const model_config *c = &l->w->config;
    const model_arch *a = c->arch;
    layer_weights *w = &l->w->layers[i];
    const uint32_t qkv_rows[] = {config_q_dim(c), config_k_dim(c), config_v_dim(c)},
                   gate_up_rows[] = {c->ffn_dim, c->ffn_dim};
    tensor_name output = blk(i, "attn_output"), down = blk(i, "ffn_down");
    weights_part attn_output = {output.text, c->dim, NULL}, ffn_down = {down.text, c->dim, NULL};
    const struct {
        bool there;
        const char *name;
        uint32_t n;
        float **out;
    } vectors[] = {
        {true, "attn_norm", c->dim, &w->attn_norm},
        {true, "ffn_norm", c->dim, &w->ffn_norm},
        {a->qk_norm, "attn_q_norm", c->head_dim, &w->q_norm},
        {a->qk_norm, "attn_k_norm", c->head_dim, &w->k_norm},
        {a->post_norms, "post_attention_norm", c->dim, &w->post_attn_norm},
        {a->post_norms, "post_ffw_norm", c->dim, &w->post_ffn_norm},
    };

    rad_status s = RAD_OK;
    for (size_t v = 0; v < RAD_COUNT(vectors) && s == RAD_OK; v++)
        if (vectors[v].there)
            s = load_vector(l, blk(i, vectors[v].name).text, vectors[v].n, vectors[v].out);
    if (s == RAD_OK && a->qkv_bias) s = load_bias(l, i);
    if (s == RAD_OK) s = load_stack(l, i, a->fused ? "attn_qkv" : NULL, qkv, qkv_rows, 3, &w->qkv);
    if (s == RAD_OK) s = load_matrix(l, &attn_output, 1, config_attn_dim(c), &w->attn_output);
    if (s == RAD_OK)
        s = load_stack(l, i, a->fused ? "ffn_up" : NULL, gate_up, gate_up_rows, 2, &w->gate_up);
    if (s == RAD_OK) s = load_matrix(l, &ffn_down, 1, c->ffn_dim, &w->ffn_down);
    return s;
}

static bool name_is(gguf_str name, const char *text)
{
    return name.len == strlen(text) && !memcmp(name.data, text, name.len);
}

static bool known_tensor(const model_config *c, gguf_str name)
{
    static const char *const whole[] = {
        "token_embd.weight", "output_norm.weight",       "output.weight",
        "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};
    const model_arch *a = c->arch;
    const struct {
        bool there;
        bool bias;
        const char *name;
    } in_layer[] = {
        {true, false, "attn_norm"},
        {true, false, "attn_output"},
        {true, false, "ffn_norm"},
        {true, false, "ffn_up"},
        {true, false, "ffn_down"},
        {!a->fused, false, "attn_q"},
        {!a->fused, false, "attn_k"},
        {!a->fused, false, "attn_v"},
        {!a->fused, false, "ffn_gate"},
        {a->fused, false, "attn_qkv"},
        {a->qk_norm, false, "attn_q_norm"},
        {a->qk_norm, false, "attn_k_norm"},
        {a->qkv_bias, true, "attn_q"},
        {a->qkv_bias, true, "attn_k"},
        {a->qkv_bias, true, "attn_v"},
        {a->post_norms, false, "post_attention_norm"},
        {a->post_norms, false, "post_ffw_norm"},
    };
    for (size_t i = 0; i < RAD_COUNT(whole); i++)
        if (name_is(name, whole[i])) return true;

    char text[sizeof(tensor_name)];
    if (name.len >= sizeof text) return false;
    memcpy(text, name.data, name.len);
    text[name.len] = 0;
    uint32_t layer;
    if (sscanf(text, "blk.%9u.", &layer) != 1 || layer >= c->num_layers) return false;
    for (size_t i = 0; i < RAD_COUNT(in_layer); i++) {
        tensor_name n = in_layer[i].bias ? blk_bias(layer, in_layer[i].name)
                                         : blk(layer, in_layer[i].name);
        if (in_layer[i].there && !strcmp(text, n.text)) return true;
    }
    return false;
}

rad_status model_tensors_check(const gguf_file *file, const model_config *config, rad_error *err)
{
    for (uint64_t i = 0; i < gguf_num_tensors(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        if (known_tensor(config, t->name)) continue;
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "model: tensor %s is not part of the %s architecture as we know it",
                        gguf_show(t->name).text, config->arch->name);
    }
    return RAD_OK;
}

/* In the order of a forward pass, the first of the next one behind the last. */
static void link_weights(model_weights *w)
{
    gemm_weight *last = w->output;
    for (uint32_t i = 0; i < w->config.num_layers; i++) {
        layer_weights *l = &w->layers[i];
        gemm_weight *in_order[] = {l->qkv, l->attn_output, l->gate_up, l->ffn_down};
        for (size_t k = 0; k < RAD_COUNT(in_order); k++) {
            gemm_weight_set_next(last, in_order[k]);
            last = in_order[k];
        }
    }
    gemm_weight_set_next(last, w->output);
}

static rad_status load_tensors(load *l)
{
    model_weights *w = l->w;
    const model_config *c = &w->config;
    rad_status status = load_embedding(l);
    for (uint32_t i = 0; i < c->num_layers && status == RAD_OK; i++)
        status = load_layer(l, i);
    if (status == RAD_OK) status = load_vector(l, "output_norm.weight", c->dim, &w->output_norm);
    return status == RAD_OK ? load_rope_divisors(l) : status;
}

/* The block for all matrices. */
static rad_status make_room(load *l)
{
    model_weights *w = l->w;
    l->counts = true;
    rad_status status = load_tensors(l);
    l->counts = false;
    if (status != RAD_OK) return status;
    w->matrices_bytes = l->packed;
    w->matrices = gemm_alloc(l->env, l->packed);
    l->packed = 0;
    if (w->matrices) return RAD_OK;
    return rad_fail(l->err, RAD_E_NOMEM, "model: no memory for %zu bytes of matrices",
                    w->matrices_bytes);
}

static rad_status load_all(load *l)
{
    model_weights *w = l->w;
    const model_config *c = &w->config;
    rad_status status = model_tensors_check(l->file, c, l->err);
    if (status != RAD_OK) return status;
    for (uint64_t i = 0; i < gguf_num_tensors(l->file); i++)
        l->total += gguf_tensor_at(l->file, i)->bytes;

    uint32_t widest = RAD_MAX(RAD_MAX(c->dim, c->ffn_dim), config_attn_dim(c));
    uint32_t threads = l->loader->pool ? compute_pool_num_threads(l->loader->pool) : 1;
    l->panel_floats = (size_t)GEMM_PANEL * widest;
    l->panels_bytes = rad_mul(rad_mul(threads, l->panel_floats), sizeof *l->panels);
    l->panels = rad_alloc(l->env, l->panels_bytes);
    w->layers = rad_alloc(l->env, c->num_layers * sizeof *w->layers);
    if (!l->panels || !w->layers)
        return rad_fail(l->err, RAD_E_NOMEM, "model: no memory to convert weights (%zu bytes)",
                        l->panels_bytes);

    status = make_room(l);
    if (status == RAD_OK) status = load_tensors(l);
    if (status == RAD_OK) link_weights(w);
    return status;
}

rad_status model_weights_load(const rad_env *env, const gguf_file *file, const model_config *config,
                              rad_dtype dtype, const weights_loader *loader, model_weights *out,
                              rad_error *err)
{
    *out = (model_weights){.config = *config, .dtype = dtype};
    load l = {.env = env, .file = file, .loader = loader, .w = out, .err = err};
    rad_status status = load_all(&l);
    rad_free(env, l.panels, l.panels_bytes);
    if (status != RAD_OK) model_weights_fini(env, out);
    return status;
}

void model_weights_fini(const rad_env *env, model_weights *w)
{
    const model_config *c = &w->config;
    for (uint32_t i = 0; w->layers && i < c->num_layers; i++) {
        layer_weights *l = &w->layers[i];
        rad_free(env, l->attn_norm, c->dim * sizeof(float));
        rad_free(env, l->ffn_norm, c->dim * sizeof(float));
        rad_free(env, l->q_norm, c->head_dim * sizeof(float));
        rad_free(env, l->k_norm, c->head_dim * sizeof(float));
        rad_free(env, l->qkv_bias, config_qkv_dim(c) * sizeof(float));
        rad_free(env, l->post_attn_norm, c->dim * sizeof(float));
        rad_free(env, l->post_ffn_norm, c->dim * sizeof(float));
        gemm_weight_destroy(l->qkv);
        gemm_weight_destroy(l->attn_output);
        gemm_weight_destroy(l->gate_up);
        gemm_weight_destroy(l->ffn_down);
    }
    rad_free(env, w->layers, c->num_layers * sizeof *w->layers);
    rad_free(env, w->output_norm, c->dim * sizeof(float));
    rad_free(env, w->rope_divisors, c->rope_dim / 2 * sizeof(float));
    gemm_weight_destroy(w->output);
    rad_free(env, w->matrices, w->matrices_bytes);
    rad_free(env, w->token_embd, w->token_embd_bytes);
    *w = (model_weights){0};
}

void model_weights_embed(const model_weights *w, rad_token id, float *out)
{
    uint32_t dim = w->config.dim;
    if (w->config.tied)
        gemm_weight_get_row(w->output, (uint32_t)id, out);
    else
        ggml_decode(w->token_embd_type,
                    (const char *)w->token_embd + (size_t)id * w->token_embd_row, dim, out);
}
