/* cuda_layout.c - see cuda_layout.h.
 *
 * One walk over the table of tensors serves all: the first visitor gives each matrix and vector its
 * place, later ones fill it. */
#include "cuda/cuda_layout.h"

#include "cuda/gemm_many_plan.h"
#include "cuda/quant_pack.h"
#include "model/tensor_rows.h"
#include "model/weights.h"
#include "model/weights_pack.h"

#include <stdio.h>

/* Fields of layer_weights that the GPU has, and where. */
typedef struct place {
    size_t field; /* of layer_weights */
    size_t to;    /* of cuda_layer */
    bool matrix;
} place;

#define MATRIX(name)                                                                               \
    {                                                                                              \
        offsetof(layer_weights, name), offsetof(cuda_layer, name), true                            \
    }
#define VECTOR(name)                                                                               \
    {                                                                                              \
        offsetof(layer_weights, name), offsetof(cuda_layer, name), false                           \
    }
static const place places[] = {
    MATRIX(qkv),
    MATRIX(attn_output),
    MATRIX(gate_up),
    MATRIX(ffn_down),
    MATRIX(expert_gate_up),
    MATRIX(expert_down),
    MATRIX(shared_gate_up),
    MATRIX(shared_down),
    VECTOR(attn_norm),
    VECTOR(ffn_norm),
    VECTOR(q_norm),
    VECTOR(k_norm),
    VECTOR(qkv_bias),
    VECTOR(sinks),
    VECTOR(output_bias),
    VECTOR(post_attn_norm),
    VECTOR(post_ffn_norm),
    VECTOR(router),
    VECTOR(router_bias),
    VECTOR(select_bias),
    VECTOR(expert_gate_up_bias),
    VECTOR(expert_down_bias),
    VECTOR(shared_gate),
};

static const place *place_of(const tensor_def *def)
{
    for (size_t i = 0; i < RAD_COUNT(places); i++)
        if (places[i].field == def->field) return &places[i];
    return NULL;
}

static bool is_matrix(tensor_form form)
{
    return form == TENSOR_MATRIX || form == TENSOR_MATRICES;
}

/* How many a tensor has; of a router, whose rows are vectors here, these. */
static uint32_t count_of(const model_config *c, const layer_config *l, const tensor_def *def)
{
    if (def->form == TENSOR_F32_MATRIX) return tensor_size_of(c, l, def->rows);
    const bool many = def->form == TENSOR_MATRICES || def->form == TENSOR_VECTORS;
    return many ? tensor_size_of(c, l, def->count) : 1;
}

static bool is_gate_up(const place *p)
{
    return p->to == offsetof(cuda_layer, gate_up) ||
           p->to == offsetof(cuda_layer, shared_gate_up) ||
           p->to == offsetof(cuda_layer, expert_gate_up);
}

/* What a layer has of the field whose rows of the table are [first, end); no parts: nothing. */
static rad_status layer_field(const model_config *c, cuda_layout *layout, uint32_t layer,
                              tensor_when set, uint32_t first, uint32_t end, cuda_field *out,
                              rad_error *err)
{
    const layer_config *l = &c->layers[layer];
    *out = (cuda_field){.cols = 1, .count = 1, .scale = 1};
    for (uint32_t r = first; r < end; r++) {
        const tensor_def *def = &tensor_defs[r];
        if (!(set & def->when)) continue;
        const place *to = place_of(def);
        const tensor_name name = tensor_name_of(layer, def);
        if (!to || to->matrix != is_matrix(def->form) || def->form == TENSOR_COLUMNS ||
            out->num_parts == CUDA_MOST_PARTS)
            return rad_fail(err, RAD_E_UNSUPPORTED,
                            "cuda: there is no kernel for tensor %s; --device cpu runs this model",
                            name.text);
        const uint32_t rows = tensor_size_of(c, l, to->matrix ? def->rows : def->cols);
        out->parts[out->num_parts++] = (cuda_part){name, rows};
        out->rows += rows;
        out->count = count_of(c, l, def);
        if (to->matrix) out->cols = tensor_size_of(c, l, def->cols);
        void *at = (char *)&layout->layers[layer] + to->to;
        out->gate_up = is_gate_up(to);
        out->experts = def->form == TENSOR_MATRICES;
        out->router = def->form == TENSOR_F32_MATRIX;
        if (to->matrix)
            out->matrix = at;
        else
            out->vector = at;
    }
    return RAD_OK;
}

static rad_status visit_one(const char *name, cuda_matrix *matrix, uint64_t *vector, uint32_t rows,
                            uint32_t cols, float scale, cuda_visit *visit, void *user,
                            rad_error *err)
{
    cuda_field field = {.matrix = matrix,
                        .vector = vector,
                        .num_parts = 1,
                        .rows = rows,
                        .cols = cols,
                        .count = 1,
                        .scale = scale};
    field.parts[0].rows = rows;
    snprintf(field.parts[0].name.text, sizeof field.parts[0].name.text, "%s", name);
    return visit(user, &field, err);
}

rad_status cuda_layout_visit(const model_config *c, cuda_layout *layout, cuda_visit *visit,
                             void *user, rad_error *err)
{
    rad_status status = visit_one(c->tied ? "token_embd.weight" : "output.weight", &layout->output,
                                  NULL, c->vocab_size, c->dim, 1, visit, user, err);
    if (status == RAD_OK && !c->tied)
        status = visit_one("token_embd.weight", &layout->token_embd, NULL, c->vocab_size, c->dim, 1,
                           visit, user, err);
    for (uint32_t i = 0; i < c->num_layers; i++) {
        const tensor_when set = tensors_of_layer(c, &c->layers[i]);
        for (uint32_t first = 0, end; first < num_tensor_defs && status == RAD_OK; first = end) {
            cuda_field field;
            end = tensor_field_end(first);
            status = layer_field(c, layout, i, set, first, end, &field, err);
            if (status == RAD_OK && field.num_parts) status = visit(user, &field, err);
        }
    }
    if (status != RAD_OK) return status;
    /* Logits are divided by logit_scale: so is what they are products of. */
    return visit_one(tensor_last_norm(c), NULL, &layout->output_norm, c->dim, 1, 1 / c->logit_scale,
                     visit, user, err);
}

rad_status cuda_field_tensors(const gguf_file *file, const cuda_field *f,
                              const gguf_tensor *out[CUDA_MOST_PARTS], rad_error *err)
{
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < f->num_parts && status == RAD_OK; i++) {
        const char *name = f->parts[i].name.text;
        const uint32_t rows = f->parts[i].rows;
        status = f->matrix ? tensor_find_many(file, name, f->count, rows, f->cols, &out[i], err)
                           : tensor_find(file, name, f->count, rows, &out[i], err);
    }
    return status;
}

/* Takes a place behind *end. */
static uint64_t take(uint64_t *end, uint64_t bytes)
{
    const uint64_t at = *end;
    *end += (bytes + CUDA_PLACE_ALIGN - 1) / CUDA_PLACE_ALIGN * CUDA_PLACE_ALIGN;
    return at;
}

typedef struct placing {
    const model_config *c;
    const gguf_file *file;
    weights_policy policy;
    cuda_layout *layout;
} placing;

/* Which types the rows of a matrix have, neighbours of one type as one, and how many of them; 0: it
 * becomes bf16. A table that is not multiplied by is not rounded to q8_0. Errors as
 * cuda_field_tensors'. */
static rad_status choose_types(const placing *p, const cuda_field *f,
                               gemm_part out[WEIGHTS_MOST_PARTS], uint32_t *num, rad_error *err)
{
    const gguf_tensor *tensors[CUDA_MOST_PARTS];
    weights_part parts[CUDA_MOST_PARTS] = {0};
    const bool table = f->matrix == &p->layout->token_embd;
    const weights_policy policy = table && p->policy == WEIGHTS_AS_Q8_0 ? WEIGHTS_AS_FILE
                                                                        : p->policy;
    *num = 0;
    if (policy == WEIGHTS_AS_DTYPE || (policy == WEIGHTS_AS_FILE && !p->file)) return RAD_OK;
    rad_status status = p->file ? cuda_field_tensors(p->file, f, tensors, err) : RAD_OK;
    if (status != RAD_OK) return status;
    for (uint32_t i = 0; i < f->num_parts; i++)
        parts[i] = (weights_part){.name = f->parts[i].name.text,
                                  .rows = f->parts[i].rows,
                                  .tensor = p->file ? tensors[i] : NULL};
    *num = weights_choose_types(policy, GEMM_BF16, parts, f->num_parts, out);
    for (uint32_t i = 0; i < *num; i++)
        if (!cuda_quant_packs(out[i].type)) *num = 0;
    return RAD_OK;
}

static void place_pieces(cuda_layout *layout, cuda_matrix *m, const gemm_part *types, uint32_t num)
{
    m->splits = 1;
    m->ld = cuda_quant_k(m->k);
    m->num_pieces = num;
    for (uint32_t i = 0; i < num; i++) {
        const uint64_t bytes = cuda_quant_bytes(types[i].type, types[i].n, m->k);
        m->pieces[i] = (cuda_piece){take(&m->bytes, bytes), types[i].type, types[i].n};
        if (m != &layout->token_embd) layout->matrix_bytes[types[i].type] += m->count * bytes;
    }
    m->at = take(&layout->bytes, m->count * m->bytes);
    for (uint32_t i = 0; i < num; i++)
        m->pieces[i].at += m->at;
    layout->quantised = true;
}

/* Which products have the gated unit in their epilogue. */
static bool is_paired(ffn_kind ffn, bool experts)
{
    return ffn == FFN_SWIGLU || (experts && ffn == FFN_SWIGLU_CLAMPED);
}

static rad_status place_field(void *user, const cuda_field *f, rad_error *err)
{
    const placing *p = user;
    cuda_layout *layout = p->layout;
    if (f->vector) {
        *f->vector = take(&layout->bytes, (uint64_t)f->count * f->rows * sizeof(float));
        layout->experts |= f->router;
        return RAD_OK;
    }
    gemm_part types[WEIGHTS_MOST_PARTS];
    uint32_t num;
    rad_status status = choose_types(p, f, types, &num, err);
    if (status != RAD_OK) return status;
    cuda_matrix *m = f->matrix;
    *m = (cuda_matrix){.n = f->rows,
                       .k = f->cols,
                       .rows = cuda_pad(f->rows, 16),
                       .ld = cuda_pad(f->cols, 64),
                       .count = f->count};
    m->x_ld = m->ld;
    if (num) {
        place_pieces(layout, m, types, num);
        return RAD_OK;
    }
    m->splits = f->experts ? 1 : cuda_splits(m->rows, m->ld);
    if (f->gate_up && is_paired(p->c->arch->ffn, f->experts)) {
        m->paired = true;
        m->splits = 1;                           /* the epilogue cannot add ranges */
        m->rows = 2 * cuda_pad(f->rows / 2, 64); /* so it writes all that ffn_down reads */
    }
    m->bytes = (uint64_t)m->rows * m->ld * sizeof(uint16_t);
    m->at = take(&layout->bytes, m->count * m->bytes);
    if (m != &layout->token_embd) layout->matrix_bytes[GEMM_BF16] += m->count * m->bytes;
    return RAD_OK;
}

rad_status cuda_layout_init(const rad_env *env, const model_config *c, const gguf_file *file,
                            weights_policy policy, uint32_t context, cuda_layout *out,
                            rad_error *err)
{
    *out = (cuda_layout){.context = context, .bytes = CUDA_PLACE_ALIGN}; /* 0 is no place */
    out->layers = rad_alloc(env, c->num_layers * sizeof *out->layers);
    if (!out->layers)
        return rad_fail(err, RAD_E_NOMEM, "cuda: no memory for %u layers", c->num_layers);
    placing p = {c, file, policy, out};
    rad_status status = cuda_layout_visit(c, out, place_field, &p, err);
    for (uint32_t r = 0; r < c->num_ropes; r++)
        out->rope[r] = take(&out->bytes, (uint64_t)context * c->ropes[r].dim * sizeof(float));
    if (c->q_temperature > 0) out->q_factors = take(&out->bytes, (uint64_t)context * sizeof(float));
    if (status != RAD_OK) cuda_layout_fini(env, c, out);
    return status;
}

void cuda_layout_fini(const rad_env *env, const model_config *c, cuda_layout *layout)
{
    rad_free(env, layout->layers, c->num_layers * sizeof *layout->layers);
    *layout = (cuda_layout){0};
}

uint32_t cuda_matrix_source(const cuda_matrix *m, uint32_t row)
{
    if (!m->paired) return row < m->n ? row : UINT32_MAX;
    const uint32_t half = m->n / 2, of_half = row / 16 * 8 + row % 8;
    if (of_half >= half) return UINT32_MAX;
    return of_half + (row % 16 < 8 ? 0 : half);
}

typedef struct mapping {
    const cuda_driver *cu;
    cuda_ptr block;
} mapping;

static rad_status map_field(void *user, const cuda_field *f, rad_error *err)
{
    const mapping *m = user;
    if (!f->matrix || f->matrix->num_pieces || f->experts) return RAD_OK;
    return cuda_matrix_map(m->cu, m->block + f->matrix->at, f->matrix->rows, f->matrix->ld, 64,
                           &f->matrix->map, err);
}

rad_status cuda_layout_map(const cuda_driver *cu, const model_config *c, cuda_layout *layout,
                           cuda_ptr block, rad_error *err)
{
    mapping m = {cu, block};
    return cuda_layout_visit(c, layout, map_field, &m, err);
}
