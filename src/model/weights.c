/* weights.c - see weights.h.
 *
 * Loading goes twice over the tensors. The first time it only finds each, compares its shape
 * with the config and counts what the matrices take packed; then there is one block for all of
 * them, and the second time they are packed into it. One block, since a huge page is larger than
 * most matrices of a small model, which in small pages are read slower.
 *
 * The first pass also notes the order, in which a thread asks for the bytes while others pack
 * (weights_ahead.h).
 *
 * A tensor that was found lies in the file with all its bytes, so what is allocated is bounded
 * by the file's size (times 8 at most: Q4_0 to f32), whatever the metadata claims.
 * weights_pack.c fills it. */
#include "model/weights.h"

#include "base/bf16.h"
#include "gguf/quant.h"
#include "model/rope.h"
#include "model/tensor_rows.h"
#include "model/tensors.h"
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
    weights_ahead ahead;
} load;

/* A tensor is done: its pages of the file need not stay mapped. */
static void report(load *l, const gguf_tensor *t)
{
    if (l->loader->sizes_only) return;
    gguf_forget(l->file, t);
    l->done += t->bytes;
    if (l->loader->progress) l->loader->progress(l->loader->progress_user, l->done, l->total);
}

/* In the first pass: what will be packed, in this order. */
static void note(load *l, ahead_field field)
{
    if (l->counts && !l->loader->sizes_only) weights_ahead_note(&l->ahead, &field);
}

/* The vectors of several tensors (parts' rows are their lengths), one behind the other; of tensors
 * with `count` rows the first of each, then the second of each ... */
static rad_status load_vectors(load *l, const weights_part *parts, uint32_t num_parts,
                               uint32_t count, float **out)
{
    const gguf_tensor *t[WEIGHTS_MOST_PARTS];
    size_t n = 0, at = 0;
    for (uint32_t i = 0; i < num_parts; n += parts[i++].rows) {
        rad_status status =
            tensor_find(l->file, parts[i].name, count, parts[i].rows, &t[i], l->err);
        if (status != RAD_OK) return status;
        note(l, (ahead_field){{t[i]}, 1, 1});
    }
    if (l->counts) return RAD_OK;
    n = rad_mul(n, count);
    l->w->bytes += rad_mul(n, sizeof **out);
    if (l->loader->sizes_only) return RAD_OK;
    *out = rad_alloc(l->env, rad_mul(n, sizeof **out));
    if (!*out)
        return rad_fail(l->err, RAD_E_NOMEM, "model: no memory for %s (%zu bytes)", parts[0].name,
                        n * sizeof **out);
    for (uint32_t e = 0; e < count; e++)
        for (uint32_t i = 0; i < num_parts; at += parts[i++].rows)
            tensor_row(t[i], e, *out + at);
    for (uint32_t i = 0; i < num_parts; i++) {
        weights_ahead_advance(&l->ahead, t[i]->bytes);
        report(l, t[i]);
    }
    return RAD_OK;
}

/* A tensor of `count` rows, turned: the first of each row, the second of each ... */
static rad_status load_columns(load *l, const char *name, uint32_t count, uint32_t cols,
                               float **out)
{
    const gguf_tensor *t;
    rad_status status = tensor_find(l->file, name, count, cols, &t, l->err);
    if (status != RAD_OK || l->counts) return status;
    const size_t bytes = rad_mul(rad_mul(count, cols), sizeof **out);
    l->w->bytes += bytes;
    if (l->loader->sizes_only) return RAD_OK;
    *out = rad_alloc(l->env, bytes);
    if (!*out)
        return rad_fail(l->err, RAD_E_NOMEM, "model: no memory for %s (%zu bytes)", name, bytes);
    for (uint32_t r = 0; r < count; r++) {
        float row[MOST_TAPS];
        tensor_row(t, r, row);
        for (uint32_t i = 0; i < cols; i++)
            (*out)[(size_t)i * count + r] = row[i];
    }
    report(l, t);
    return RAD_OK;
}

static rad_status load_vector(load *l, const char *name, uint32_t n, float **out)
{
    return load_vectors(l, &(weights_part){.name = name, .rows = n}, 1, 1, out);
}

static rad_status load_rope_divisors(load *l)
{
    const rope_config *rope = &l->w->config.ropes[0];
    if (!rope->scaling.divisors) return RAD_OK;
    rad_status status = load_vector(l, rope->scaling.divisors, rope->dim / 2, &l->w->rope_divisors);
    if (status != RAD_OK || l->counts || l->loader->sizes_only) return status;
    return rope_divisors_check(&rope->scaling, l->w->rope_divisors, rope->dim, l->err);
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

/* As the stack, without its rows. */
static rad_status make_shape(const load *l, const gemm_part *types, uint32_t num_types,
                             uint32_t cols, gemm_weight **out)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < num_types; i++)
        rows += types[i].n;
    return gemm_weight_create_shape(l->env, types[0].type, rows, cols, l->loader->gemm, out,
                                    l->err);
}

/* Stacks the parts, which were found, into one packed weight, in their own types where the policy
 * keeps these. */
static rad_status pack_matrix(load *l, weights_policy policy, gemm_type dtype, weights_part *parts,
                              uint32_t num_parts, uint32_t cols, gemm_weight **out)
{
    gemm_part types[WEIGHTS_MOST_PARTS] = {0};
    uint32_t num_types = weights_choose_types(policy, dtype, parts, num_parts, types);
    const size_t at = l->packed;
    l->packed = with_parts(at, types, num_types, cols);
    if (l->counts) return RAD_OK;

    RAD_ASSERT_ENV(l->env, l->packed <= l->w->matrices_bytes);
    rad_status status = l->loader->sizes_only
                            ? make_shape(l, types, num_types, cols, out)
                            : gemm_weight_create_stack(l->env, (char *)l->w->matrices + at, types,
                                                       num_types, cols, l->loader->gemm, out,
                                                       l->err);
    if (status != RAD_OK) return status;
    l->w->bytes += l->packed - at;
    for (uint32_t i = 0; i < num_types; i++)
        l->w->matrix_bytes[types[i].type] += gemm_weight_bytes(types[i].type, types[i].n, cols);
    if (l->loader->sizes_only) return RAD_OK;
    weights_pack(*out, parts, l->panels, l->panel_floats, &l->ahead, l->loader->pool);
    return RAD_OK;
}

static rad_status find_parts(load *l, weights_part *parts, uint32_t num_parts, uint32_t count,
                             uint32_t cols)
{
    ahead_field field = {.num_tensors = num_parts, .count = count};
    for (uint32_t i = 0; i < num_parts; i++) {
        rad_status status = tensor_find_many(l->file, parts[i].name, count, parts[i].rows, cols,
                                             &parts[i].tensor, l->err);
        if (status != RAD_OK) return status;
        field.tensors[i] = parts[i].tensor;
    }
    note(l, field);
    return RAD_OK;
}

static void report_parts(load *l, const weights_part *parts, uint32_t num_parts)
{
    for (uint32_t i = 0; i < num_parts && !l->counts; i++)
        report(l, parts[i].tensor);
}

static gemm_type dense_type(const load *l)
{
    return l->w->dtype == RAD_F32 ? GEMM_F32 : GEMM_BF16;
}

/* Of tensors with `cols` columns. */
static rad_status load_matrix(load *l, weights_part *parts, uint32_t num_parts, uint32_t cols,
                              gemm_weight **out)
{
    rad_status status = find_parts(l, parts, num_parts, 1, cols);
    if (status == RAD_OK)
        status = pack_matrix(l, l->loader->policy, dense_type(l), parts, num_parts, cols, out);
    if (status == RAD_OK) report_parts(l, parts, num_parts);
    return status;
}

/* One whose numbers decide what else is computed. */
static rad_status load_f32_matrix(load *l, weights_part *part, uint32_t cols, gemm_weight **out)
{
    rad_status status = find_parts(l, part, 1, 1, cols);
    if (status == RAD_OK) status = pack_matrix(l, WEIGHTS_AS_DTYPE, GEMM_F32, part, 1, cols, out);
    if (status == RAD_OK) report_parts(l, part, 1);
    return status;
}

/* Of tensors with `count` matrices each: the first of each, the second of each ... */
static rad_status load_matrices(load *l, weights_part *parts, uint32_t num_parts, uint32_t count,
                                uint32_t cols, gemm_weight ***out)
{
    rad_status status = find_parts(l, parts, num_parts, count, cols);
    if (status != RAD_OK) return status;
    if (!l->counts) {
        *out = rad_alloc(l->env, count * sizeof **out);
        if (!*out) return rad_fail(l->err, RAD_E_NOMEM, "model: no memory for %u matrices", count);
    }
    for (uint32_t e = 0; e < count && status == RAD_OK; e++) {
        for (uint32_t i = 0; i < num_parts; i++)
            parts[i].first = (uint64_t)e * parts[i].rows;
        status = pack_matrix(l, l->loader->policy, dense_type(l), parts, num_parts, cols,
                             l->counts ? NULL : &(*out)[e]);
    }
    if (status == RAD_OK) report_parts(l, parts, num_parts);
    return status;
}

typedef struct table_job {
    load *l;
    const gguf_tensor *tensor;
    const weights_table *table;
    uint32_t rows, cols;
} table_job;

static void table_tile(void *arg, uint32_t tile, uint32_t thread)
{
    const table_job *job = arg;
    const weights_table *to = job->table;
    float *row = job->l->panels + thread * job->l->panel_floats;
    uint32_t first = tile * GEMM_PANEL, end = RAD_MIN(first + GEMM_PANEL, job->rows);
    for (uint32_t id = first; id < end; id++) {
        char *out = (char *)to->data + id * to->row;
        if (to->type == job->tensor->type) {
            memcpy(out, tensor_row_bytes(job->tensor, id), to->row);
        } else if (to->type == GGML_F32) {
            tensor_row(job->tensor, id, (float *)out);
        } else {
            tensor_row(job->tensor, id, row);
            for (uint32_t i = 0; i < job->cols; i++)
                ((uint16_t *)out)[i] = bf16_from_f32(row[i]);
        }
    }
    weights_ahead_advance(&job->l->ahead, (end - first) * tensor_row_size(job->tensor));
}

/* The table's own type where the policy keeps such, and it has blocks or is BF16 (F16, where the
 * others become f32). */
static uint32_t table_type(const load *l, const gguf_tensor *t)
{
    uint32_t values = 1, bytes;
    ggml_type_layout(t->type, &values, &bytes);
    if (l->loader->policy != WEIGHTS_AS_DTYPE && values > 1) return t->type;
    if (l->loader->policy == WEIGHTS_AS_FILE && t->type == GGML_BF16) return GGML_BF16;
    if (l->loader->policy == WEIGHTS_AS_FILE && l->w->dtype == RAD_F32 && t->type == GGML_F16)
        return GGML_F16;
    return l->w->dtype == RAD_F32 ? GGML_F32 : GGML_BF16;
}

static rad_status load_table(load *l, const char *name, uint32_t rows, uint32_t cols,
                             weights_table *out)
{
    table_job job = {.l = l, .table = out, .rows = rows, .cols = cols};
    rad_status status = tensor_find(l->file, name, rows, cols, &job.tensor, l->err);
    if (status == RAD_OK) note(l, (ahead_field){{job.tensor}, 1, 1});
    if (status != RAD_OK || l->counts) return status;
    uint32_t values = 1, bytes = 0;
    out->type = table_type(l, job.tensor);
    ggml_type_layout(out->type, &values, &bytes);
    out->row = cols / values * bytes;
    out->bytes = rad_mul(rows, out->row);
    l->w->bytes += out->bytes;
    if (l->loader->sizes_only) return RAD_OK;
    out->data = rad_alloc(l->env, out->bytes);
    if (!out->data)
        return rad_fail(l->err, RAD_E_NOMEM, "model: no memory for %s (%zu bytes)", name,
                        out->bytes);
    compute_pool_run(l->loader->pool, (rows + GEMM_PANEL - 1) / GEMM_PANEL, table_tile, &job);
    report(l, job.tensor);
    return RAD_OK;
}

static rad_status load_embedding(load *l)
{
    model_weights *w = l->w;
    const model_config *c = &w->config;
    weights_part output = {.name = c->tied ? "token_embd.weight" : "output.weight",
                           .rows = c->vocab_size};
    rad_status status = load_matrix(l, &output, 1, c->dim, &w->output);
    if (status == RAD_OK && !c->tied)
        status = load_table(l, "token_embd.weight", c->vocab_size, c->dim, &w->token_embd);
    if (status != RAD_OK || !c->layer_embd) return status;
    const uint32_t all = c->num_layers * c->layer_embd;
    weights_part proj = {.name = "per_layer_model_proj.weight", .rows = all};
    status = load_table(l, "per_layer_token_embd.weight", c->vocab_size, all, &w->layer_embd);
    if (status == RAD_OK) status = load_matrix(l, &proj, 1, c->dim, &w->layer_embd_proj);
    if (status == RAD_OK)
        status = load_vector(l, "per_layer_proj_norm.weight", c->layer_embd, &w->layer_embd_norm);
    return status;
}

/* What a layer has of the field whose rows of the table are [first, end). */
static rad_status load_field(load *l, uint32_t layer, tensor_when set, uint32_t first, uint32_t end)
{
    const model_config *c = &l->w->config;
    const layer_config *lc = &c->layers[layer];
    void *field = (char *)&l->w->layers[layer] + tensor_defs[first].field;
    tensor_name names[WEIGHTS_MOST_PARTS];
    weights_part parts[WEIGHTS_MOST_PARTS];
    const tensor_def *def = NULL; /* of the last part: what it has in common with the others */
    uint32_t num_parts = 0;
    for (uint32_t r = first; r < end; r++) {
        if (!(set & tensor_defs[r].when)) continue;
        def = &tensor_defs[r];
        RAD_ASSERT_ENV(l->env, num_parts < WEIGHTS_MOST_PARTS);
        names[num_parts] = tensor_name_of(layer, def);
        parts[num_parts] = (weights_part){
            .name = names[num_parts].text,
            .rows = tensor_size_of(c, lc, tensor_is_vector(def->form) ? def->cols : def->rows)};
        num_parts++;
    }
    if (!num_parts) return RAD_OK;
    const uint32_t cols = tensor_size_of(c, lc, def->cols);
    const uint32_t count = tensor_size_of(c, lc, def->count);
    switch (def->form) {
    case TENSOR_VECTOR: return load_vectors(l, parts, num_parts, 1, field);
    case TENSOR_VECTORS: return load_vectors(l, parts, num_parts, count, field);
    case TENSOR_COLUMNS: return load_columns(l, parts[0].name, count, cols, field);
    case TENSOR_F32_MATRIX: return load_f32_matrix(l, parts, cols, field);
    case TENSOR_MATRICES: return load_matrices(l, parts, num_parts, count, cols, field);
    case TENSOR_MATRIX: break;
    }
    return load_matrix(l, parts, num_parts, cols, field);
}

static rad_status load_layer(load *l, uint32_t layer)
{
    const model_config *c = &l->w->config;
    const tensor_when set = tensors_of_layer(c, &c->layers[layer]);
    rad_status status = RAD_OK;
    for (uint32_t first = 0, end; first < num_tensor_defs && status == RAD_OK; first = end) {
        end = tensor_field_end(first);
        status = load_field(l, layer, set, first, end);
    }
    float *norm = l->w->layers[layer].router_norm; /* of rms(x) / sqrt(dim) */
    for (uint32_t i = 0; norm && !l->counts && status == RAD_OK && i < c->dim; i++)
        norm[i] = (float)((double)norm[i] / sqrt(c->dim));
    return status;
}

rad_status model_tensors_check(const gguf_file *file, const model_config *config, rad_error *err)
{
    bool skipped;
    for (uint64_t i = 0; i < gguf_num_tensors(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        if (tensor_known(config, t->name, &skipped)) continue;
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
    if (w->layer_embd_proj) gemm_weight_set_next(last, w->layer_embd_proj);
    if (w->layer_embd_proj) last = w->layer_embd_proj;
    for (uint32_t i = 0; i < config_all_layers(&w->config); i++)
        for (uint32_t first = 0; first < num_tensor_defs; first = tensor_field_end(first)) {
            if (tensor_defs[first].form != TENSOR_MATRIX &&
                tensor_defs[first].form != TENSOR_F32_MATRIX)
                continue;
            gemm_weight *next = *(gemm_weight **)((char *)&w->layers[i] + tensor_defs[first].field);
            if (!next) continue;
            gemm_weight_set_next(last, next);
            last = next;
        }
    gemm_weight_set_next(last, w->output);
}

static rad_status load_tensors(load *l)
{
    model_weights *w = l->w;
    const model_config *c = &w->config;
    rad_status status = load_embedding(l);
    for (uint32_t i = 0; i < config_all_layers(c) && status == RAD_OK; i++)
        status = load_layer(l, i);
    if (status == RAD_OK) status = load_vector(l, tensor_last_norm(c), c->dim, &w->output_norm);
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
    w->matrices = l->loader->sizes_only ? NULL : gemm_alloc(l->env, l->packed);
    l->packed = 0;
    if (w->matrices || l->loader->sizes_only) return RAD_OK;
    return rad_fail(l->err, RAD_E_NOMEM, "model: no memory for %zu bytes of matrices",
                    w->matrices_bytes);
}

/* The bytes to come; what is left out is said once. */
static void count_tensors(load *l)
{
    uint64_t left_out = 0, left_out_bytes = 0;
    for (uint64_t i = 0; i < gguf_num_tensors(l->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(l->file, i);
        bool skipped;
        tensor_known(&l->w->config, t->name, &skipped);
        *(skipped ? &left_out_bytes : &l->total) += t->bytes;
        left_out += skipped;
    }
    if (left_out && !l->loader->sizes_only)
        rad_log(l->env, RAD_LOG_INFO,
                "model: %llu tensors (%.1f MB) of %u layers that predict further tokens are left "
                "out",
                (unsigned long long)left_out, (double)left_out_bytes * 1e-6,
                l->w->config.num_skipped);
}

static rad_status load_all(load *l)
{
    model_weights *w = l->w;
    const model_config *c = &w->config;
    rad_status status = model_tensors_check(l->file, c, l->err);
    if (status != RAD_OK) return status;
    count_tensors(l);

    const uint32_t widest = tensors_widest(c);
    uint32_t threads = l->loader->pool ? compute_pool_num_threads(l->loader->pool) : 1;
    l->panel_floats = (size_t)GEMM_PANEL * widest;
    l->panels_bytes = rad_mul(rad_mul(threads, l->panel_floats), sizeof *l->panels);
    if (l->loader->sizes_only) l->panels_bytes = 0;
    l->panels = l->panels_bytes ? rad_alloc(l->env, l->panels_bytes) : NULL;
    w->layers = rad_alloc(l->env, config_all_layers(c) * sizeof *w->layers);
    if ((!l->panels && !l->loader->sizes_only) || !w->layers)
        return rad_fail(l->err, RAD_E_NOMEM, "model: no memory to convert weights (%zu bytes)",
                        l->panels_bytes);

    if (!l->loader->sizes_only)
        status = weights_ahead_init(&l->ahead, l->env, l->file, gguf_num_tensors(l->file), l->err);
    if (status == RAD_OK) status = make_room(l);
    if (status == RAD_OK && !l->loader->sizes_only) weights_ahead_start(&l->ahead);
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
    weights_ahead_fini(&l.ahead);
    rad_free(env, l.panels, l.panels_bytes);
    if (status != RAD_OK) model_weights_fini(env, out);
    return status;
}

static void free_field(const rad_env *env, model_weights *w, uint32_t layer, uint32_t first)
{
    const model_config *c = &w->config;
    const layer_config *lc = &c->layers[layer];
    void **field = (void **)((char *)&w->layers[layer] + tensor_defs[first].field);
    const tensor_form form = tensor_defs[first].form;
    const uint32_t count = tensor_size_of(c, lc, tensor_defs[first].count);
    if (form == TENSOR_MATRIX || form == TENSOR_F32_MATRIX) {
        gemm_weight_destroy(*field);
        return;
    }
    if (form == TENSOR_MATRICES) {
        gemm_weight **each = *field;
        for (uint32_t e = 0; each && e < count; e++)
            gemm_weight_destroy(each[e]);
        rad_free(env, each, count * sizeof *each);
        return;
    }
    const tensor_when set = tensors_of_layer(c, lc);
    const uint32_t end = tensor_field_end(first);
    size_t n = 0;
    for (uint32_t r = first; r < end; r++) {
        if (!(set & tensor_defs[r].when)) continue;
        const bool many = tensor_defs[r].form != TENSOR_VECTOR;
        n += (size_t)tensor_size_of(c, lc, tensor_defs[r].cols) *
             (many ? tensor_size_of(c, lc, tensor_defs[r].count) : 1);
    }
    rad_free(env, *field, n * sizeof(float));
}

void model_weights_fini(const rad_env *env, model_weights *w)
{
    const model_config *c = &w->config;
    for (uint32_t i = 0; w->layers && i < config_all_layers(c); i++)
        for (uint32_t first = 0; first < num_tensor_defs; first = tensor_field_end(first))
            free_field(env, w, i, first);
    rad_free(env, w->layers, config_all_layers(c) * sizeof *w->layers);
    rad_free(env, w->output_norm, c->dim * sizeof(float));
    rad_free(env, w->rope_divisors, c->ropes[0].dim / 2 * sizeof(float));
    rad_free(env, w->layer_embd_norm, c->layer_embd * sizeof(float));
    gemm_weight_destroy(w->output);
    gemm_weight_destroy(w->layer_embd_proj);
    rad_free(env, w->matrices, w->matrices_bytes);
    rad_free(env, w->token_embd.data, w->token_embd.bytes);
    rad_free(env, w->layer_embd.data, w->layer_embd.bytes);
    *w = (model_weights){0};
}

static void table_read(const weights_table *t, rad_token id, uint32_t cols, float *out)
{
    ggml_decode(t->type, (const char *)t->data + (size_t)id * t->row, cols, out);
}

void model_weights_embed(const model_weights *w, rad_token id, float *out)
{
    if (w->config.tied)
        gemm_weight_get_row(w->output, (uint32_t)id, out);
    else
        table_read(&w->token_embd, id, w->config.dim, out);
}

void model_weights_embed_layers(const model_weights *w, rad_token id, float *out)
{
    table_read(&w->layer_embd, id, w->config.num_layers * w->config.layer_embd, out);
}
