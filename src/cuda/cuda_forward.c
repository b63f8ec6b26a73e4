/* cuda_forward.c - see cuda_forward.h. */
#include "cuda/cuda_forward.h"

/* What was added to x last and is not in it yet. */
typedef struct added {
    uint32_t parts, ld;
    cuda_ptr bias; /* 0: none */
    uint64_t norm; /* where its norm lies among the weights; 0: none */
} added;

typedef struct walk {
    const cuda_pass *p;
    const cuda_step *s;
    cuda_queue *q;
    added y;
} walk;

/* Memory of the device as kernels' arguments have it. */
static void *at(cuda_ptr p)
{
    return (void *)(uintptr_t)p;
}

static void *weight(const walk *w, uint64_t place)
{
    return place ? at(w->p->weights + place) : NULL;
}

static void *table(const walk *w, uint32_t place)
{
    return at(w->p->buffers->step + place);
}

/* `count` rows of `x`, which m multiplies next. */
static void round_rows(walk *w, const cuda_matrix *m, uint32_t from, cuda_ptr x, uint32_t ldx,
                       uint32_t count)
{
    const cuda_buffers *b = w->p->buffers;
    const quantise_args a = {.x = at(x),
                             .q = at(b->rounded),
                             .scales = at(b->scales),
                             .rows = count,
                             .k = m->k,
                             .padded_k = m->ld,
                             .ldx = ldx,
                             .parts = from == QUANTISE_SWIGLU ? w->y.parts : 1,
                             .ld_tokens = cuda_rounded_tokens(count),
                             .from = from};
    launch_quantise(w->q, &a);
}

/* norm = rms(x += y) as bf16, as f32 or both; or, of the rows that logits are asked of, without
 * changing x. Returns how many rows. */
static uint32_t norm_as(walk *w, uint64_t norm, const cuda_matrix *m, bool bf16, bool f32,
                        bool of_logits)
{
    const model_config *c = w->p->config;
    const cuda_buffers *b = w->p->buffers;
    const add_norm_args a = {.x = at(b->x),
                             .y = at(b->y),
                             .bias = w->y.bias ? at(w->y.bias) : NULL,
                             .weight = weight(w, norm),
                             .post = weight(w, w->y.norm),
                             .rows = of_logits ? table(w, w->s->at_rows) : NULL,
                             .out = bf16 ? at(b->norm) : NULL,
                             .out_f32 = f32 ? at(b->norm_f32) : NULL,
                             .count = of_logits ? w->s->logits : w->s->tokens,
                             .dim = c->dim,
                             .ld = m->x_ld,
                             .ldy = w->y.ld,
                             .parts = w->y.parts,
                             .y_tokens = w->s->tokens,
                             .store = !of_logits && w->y.parts,
                             .eps = c->rms_eps,
                             .scale = c->residual_scale};
    launch_add_norm(w->q, &a);
    return a.count;
}

/* As m reads it. */
static void add_norm(walk *w, uint64_t norm, const cuda_matrix *m, bool of_logits)
{
    const bool quantised = m->num_pieces > 0;
    const uint32_t count = norm_as(w, norm, m, !quantised, quantised, of_logits);
    if (quantised)
        round_rows(w, m, QUANTISE_F32, w->p->buffers->norm_f32, w->p->config->dim, count);
}

/* Maps of what a product reads of each token: one of the buffers. */
static const tensor_map *maps_of(const cuda_buffers *b, cuda_ptr x, uint32_t ld)
{
    if (!b->maps) return NULL;
    if (x == b->norm) return ld == b->norm_ld ? b->norm_maps : NULL;
    if (x == b->attn) return ld == b->attn_ld ? b->attn_maps : NULL;
    return ld == b->act_ld ? b->act_maps : NULL;
}

static cuda_product product_of(const walk *w, const cuda_matrix *m, cuda_ptr x, uint32_t tokens)
{
    const tensor_map *x_maps = maps_of(w->p->buffers, x, m->ld);
    return (cuda_product){.args = {.w = weight(w, m->at),
                                   .x = at(x),
                                   .n = m->rows,
                                   .n_out = m->n,
                                   .k = m->ld,
                                   .tokens = tokens,
                                   .splits = m->splits,
                                   .ld_out = m->rows,
                                   .epilogue = GEMM_PARTS},
                          .w_map = x_maps ? &m->map : NULL,
                          .x_maps = x_maps};
}

/* out = m . what was rounded last, piece beside piece */
static void multiply_rounded(walk *w, const cuda_matrix *m, cuda_ptr out, uint32_t tokens)
{
    const cuda_buffers *b = w->p->buffers;
    for (uint32_t i = 0; i < m->num_pieces; i++) {
        const cuda_piece *piece = &m->pieces[i];
        const gemm_quant_args a = {.w = weight(w, piece->at),
                                   .x = at(b->rounded),
                                   .scales = at(b->scales),
                                   .out = at(out),
                                   .n = cuda_pad(piece->rows, 16),
                                   .n_out = piece->rows,
                                   .k = m->ld,
                                   .tokens = tokens,
                                   .ld_tokens = cuda_rounded_tokens(tokens),
                                   .ld_out = m->rows};
        launch_gemm_quant(w->q, piece->type, &a);
        out += piece->rows * sizeof(float);
    }
}

/* y = m . x, as parts */
static void multiply(walk *w, const cuda_matrix *m, cuda_ptr x, uint64_t bias)
{
    if (m->num_pieces) {
        multiply_rounded(w, m, w->p->buffers->y, w->s->tokens);
        w->y.parts = 1;
    } else {
        cuda_product p = product_of(w, m, x, w->s->tokens);
        p.args.out = at(w->p->buffers->y);
        p.part_rows = (uint32_t)RAD_MIN(w->p->buffers->y_numbers / m->rows, (size_t)UINT32_MAX);
        w->y.parts = launch_gemm(w->q, &p);
    }
    w->y.ld = m->rows;
    w->y.bias = bias ? w->p->weights + bias : 0;
    w->y.norm = 0;
}

/* Whether K and V of this layer lie in window memory. */
static bool in_window_memory(const walk *w, const layer_config *l)
{
    return w->p->window_pool && l->window;
}

static void scale_rows(walk *w, const layer_config *l, const cuda_layer *m)
{
    const row_scales_args a = {.y = at(w->p->buffers->y),
                               .bias = weight(w, m->qkv_bias),
                               .scales = at(w->p->buffers->row_scales),
                               .tokens = w->s->tokens,
                               .q_dim = layer_q_dim(l),
                               .k_dim = layer_k_dim(l),
                               .ldy = w->y.ld,
                               .parts = w->y.parts,
                               .eps = w->p->config->rms_eps};
    launch_row_scales(w->q, &a);
}

static rad_status kv_of(rad_token_to_kv_pool *pool, uint32_t layer, cuda_kv *out, rad_error *err)
{
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(pool);
    *out = (cuda_kv){.k_scale = 1, .v_scale = 1};
    if (rad_kv_pool_get_buffers(pool, layer, &out->at) != RAD_OK)
        return rad_fail(err, RAD_E_INVAL, "cuda: the pool has no layer %u", layer);
    if (p->k_scales) out->k_scale = p->k_scales[layer - p->start_layer];
    if (p->v_scales) out->v_scale = p->v_scales[layer - p->start_layer];
    return RAD_OK;
}

static void place_qkv(walk *w, const layer_config *l, const cuda_layer *m, const cuda_kv *kv)
{
    const model_config *c = w->p->config;
    const bool turns = l->rope != ROPE_NONE, of_rows = c->arch->qk_norm == QK_NORM_ROW;
    const bool windowed = in_window_memory(w, l);
    const qkv_args a = {.y = at(w->p->buffers->y),
                        .bias = weight(w, m->qkv_bias),
                        .q_norm = weight(w, m->q_norm),
                        .k_norm = weight(w, m->k_norm),
                        .row_scales = of_rows ? at(w->p->buffers->row_scales) : NULL,
                        .rope = turns ? weight(w, w->p->layout->rope[l->rope]) : NULL,
                        .q_factors = weight(w, w->p->layout->q_factors),
                        .positions = table(w, w->s->at_positions),
                        .slots = table(w, windowed ? w->s->at_window_slots : w->s->at_slots),
                        .q = at(w->p->buffers->q),
                        .k = kv->at.k,
                        .v = kv->at.v,
                        .k_stride = kv->at.k_stride,
                        .v_stride = kv->at.v_stride,
                        .tokens = w->s->tokens,
                        .heads = l->num_heads,
                        .kv_heads = l->num_kv_heads,
                        .head_dim = l->head_dim,
                        .v_head_dim = l->v_head_dim,
                        .rope_dim = turns ? c->ropes[l->rope].dim : 0,
                        .interleaved = c->arch->rope == ROPE_INTERLEAVED,
                        .parts = w->y.parts,
                        .ldy = w->y.ld,
                        .eps = c->rms_eps,
                        .kv = w->p->limits->views[0].kv,
                        .k_scale = kv->k_scale,
                        .v_scale = kv->v_scale};
    if (of_rows) scale_rows(w, l, m);
    launch_qkv(w->q, &a);
}

static const cuda_step_view *view_of(const cuda_step *s, const layer_config *l)
{
    const cuda_step_view *v = s->views;
    while (v->window != l->window)
        v++;
    return v;
}

static void attend(walk *w, const layer_config *l, const cuda_layer *m, const cuda_kv *kv)
{
    const cuda_buffers *b = w->p->buffers;
    const cuda_step_view *v = view_of(w->s, l);
    const cuda_step_limits *limits = w->p->limits;
    const size_t rows = in_window_memory(w, l) ? cuda_slots_bytes(limits->requests, limits->context)
                                               : 0;
    const attention_args a = {.q = at(b->q),
                              .k = kv->at.k,
                              .v = kv->at.v,
                              .k_stride = kv->at.k_stride,
                              .v_stride = kv->at.v_stride,
                              .slots = at(b->table + rows),
                              .units = table(w, v->at_units),
                              .num_units = table(w, v->at_count),
                              .unit_tokens = at(b->step),
                              .positions = table(w, w->s->at_positions),
                              .parts_at = table(w, v->at_parts_at),
                              .part_v = at(b->part_v),
                              .part_ms = at(b->part_ms),
                              .sinks = weight(w, m->sinks),
                              .out = at(b->attn),
                              .heads = l->num_heads,
                              .kv_heads = l->num_kv_heads,
                              .head_dim = l->head_dim,
                              .v_head_dim = l->v_head_dim,
                              .slots_ld = w->p->limits->context,
                              .out_ld = m->attn_output.x_ld,
                              .window = l->window,
                              .scale = w->p->config->attn_scale * kv->k_scale,
                              .cap = w->p->config->attn_logit_cap,
                              .stages = w->p->limits->attention.stages,
                              .kv = w->p->limits->views[0].kv,
                              .v_scale = kv->v_scale};
    launch_attention(w->q, &a, &w->p->limits->attention);
    const attention_merge_args merge = {.part_v = a.part_v,
                                        .part_ms = a.part_ms,
                                        .positions = a.positions,
                                        .parts_at = a.parts_at,
                                        .sinks = a.sinks,
                                        .out = a.out,
                                        .tokens = w->s->tokens,
                                        .heads = a.heads,
                                        .v_head_dim = a.v_head_dim,
                                        .out_ld = a.out_ld,
                                        .window = a.window,
                                        .scale = a.scale,
                                        .cap = a.cap};
    if (v->merges) launch_attention_merge(w->q, &merge);
    if (m->attn_output.num_pieces)
        round_rows(w, &m->attn_output, QUANTISE_BF16, b->attn, a.out_ld, w->s->tokens);
}

static void activate_paired(walk *w, const cuda_matrix *gate_up, const cuda_matrix *down)
{
    const cuda_buffers *b = w->p->buffers;
    cuda_product p = product_of(w, gate_up, b->norm, w->s->tokens);
    p.args.out = at(b->act);
    p.args.n_out = gate_up->rows;
    p.args.ld_out = down->x_ld;
    p.args.epilogue = GEMM_SWIGLU;
    launch_gemm(w->q, &p);
}

static void apply_glu(walk *w, const cuda_matrix *down)
{
    const cuda_buffers *b = w->p->buffers;
    const glu_args a = {.y = at(b->y),
                        .out = at(b->act),
                        .tokens = w->s->tokens,
                        .dim = down->k,
                        .ld = down->x_ld,
                        .ldy = w->y.ld,
                        .parts = w->y.parts,
                        .kind = w->p->config->arch->ffn == FFN_GEGLU            ? GLU_GEGLU
                                : w->p->config->arch->ffn == FFN_SWIGLU_CLAMPED ? GLU_SWIGLU_CLAMPED
                                                                                : GLU_SWIGLU};
    launch_glu(w->q, &a);
}

/* act = glu(gate_up . norm), as the downs read it */
static void activate(walk *w, const cuda_matrix *gate_up, const cuda_matrix *down)
{
    const cuda_buffers *b = w->p->buffers;
    const bool rounded = down->num_pieces > 0;
    if (gate_up->paired) {
        activate_paired(w, gate_up, down);
    } else {
        multiply(w, gate_up, b->norm, 0);
        if (rounded && w->p->config->arch->ffn == FFN_SWIGLU) {
            round_rows(w, down, QUANTISE_SWIGLU, b->y, w->y.ld, w->s->tokens);
            return;
        }
        apply_glu(w, down);
    }
    if (rounded) round_rows(w, down, QUANTISE_BF16, b->act, down->x_ld, w->s->tokens);
}

static void run_shared(walk *w, const cuda_layer *m)
{
    const cuda_buffers *b = w->p->buffers;
    if (m->shared_gate_up.num_pieces)
        round_rows(w, &m->shared_gate_up, QUANTISE_F32, b->norm_f32, w->p->config->dim,
                   w->s->tokens);
    activate(w, &m->shared_gate_up, &m->shared_down);
    multiply(w, &m->shared_down, b->act, 0);
}

/* y = what the layer's experts say */
static void run_experts(walk *w, const cuda_layer *m)
{
    const cuda_buffers *b = w->p->buffers;
    const cuda_experts_pass p = {.config = w->p->config,
                                 .layer = m,
                                 .buffers = &b->experts,
                                 .weights = w->p->weights,
                                 .norm_f32 = b->norm_f32,
                                 .norm = b->norm,
                                 .num_tokens = table(w, w->s->at_num_tokens),
                                 .tokens = w->s->tokens};
    norm_as(w, m->ffn_norm, &m->expert_gate_up, cuda_experts_read_bf16(m), true, false);
    cuda_experts_run(w->q, &p);
    w->y = (added){.ld = m->expert_down.rows};
    if (m->shared_gate_up.at) run_shared(w, m);
    cuda_experts_add(w->q, &p, b->y, w->y.ld, m->shared_gate_up.at ? w->y.parts : 0);
    w->y.parts = 1;
}

rad_status cuda_pass_kv(const cuda_pass *p, uint32_t layer, cuda_kv *out, rad_error *err)
{
    const layer_config *l = &p->config->layers[layer];
    if (!p->window_pool) return kv_of(p->pool, l->attn_layer, out, err);
    return kv_of(l->window ? p->window_pool : p->pool, l->kv_layer, out, err);
}

static rad_status run_layer(walk *w, uint32_t i)
{
    const layer_config *l = &w->p->config->layers[i];
    const cuda_layer *m = &w->p->layout->layers[i];
    const cuda_buffers *b = w->p->buffers;
    cuda_kv kv;
    add_norm(w, m->attn_norm, &m->qkv, false);
    multiply(w, &m->qkv, b->norm, 0);
    rad_status status = cuda_pass_kv(w->p, i, &kv, w->q->err);
    if (status != RAD_OK) return status;
    place_qkv(w, l, m, &kv);
    if (i + 1 == w->p->config->num_layers && !w->s->logits) return RAD_OK; /* K and V are written */
    attend(w, l, m, &kv);
    multiply(w, &m->attn_output, b->attn, m->output_bias);
    w->y.norm = m->post_attn_norm;
    if (l->experts) {
        run_experts(w, m);
    } else {
        add_norm(w, m->ffn_norm, &m->gate_up, false);
        activate(w, &m->gate_up, &m->ffn_down);
        multiply(w, &m->ffn_down, b->act, 0);
    }
    w->y.norm = m->post_ffn_norm;
    return RAD_OK;
}

static void project_logits(walk *w)
{
    const cuda_matrix *m = &w->p->layout->output;
    const cuda_buffers *b = w->p->buffers;
    const cap_args cap = {.x = at(b->logits),
                          .rows = w->s->logits,
                          .n = w->p->config->vocab_size,
                          .ld = b->logits_ld,
                          .cap = w->p->config->final_logit_cap};
    add_norm(w, w->p->layout->output_norm, m, true);
    if (m->num_pieces) {
        multiply_rounded(w, m, b->logits, w->s->logits);
    } else {
        cuda_product p = product_of(w, m, b->norm, w->s->logits);
        p.args.out = at(b->logits);
        launch_gemm(w->q, &p);
    }
    if (cap.cap > 0) launch_cap(w->q, &cap);
}

static void begin(walk *w)
{
    const model_config *c = w->p->config;
    const cuda_buffers *b = w->p->buffers;
    const cuda_layout *layout = w->p->layout;
    const cuda_matrix *embd = layout->token_embd.at ? &layout->token_embd : &layout->output;
    const patch_slots_args patch = {
        .patches = table(w, w->s->at_patches), .values = at(b->step), .slots = at(b->table)};
    const embed_args embed = {.table = weight(w, embd->at),
                              .ids = table(w, w->s->at_ids),
                              .x = at(b->x),
                              .tokens = w->s->tokens,
                              .dim = c->dim,
                              .ld = embd->ld,
                              .scale = c->embedding_scale};
    launch_patch_slots(w->q, &patch, w->s->patches);
    launch_embed(w->q, embd->num_pieces ? embd->pieces[0].type : GEMM_BF16, &embed);
}

rad_status cuda_forward(const cuda_pass *p, const cuda_step *s, cuda_queue *q)
{
    walk w = {.p = p, .s = s, .q = q};
    begin(&w);
    for (uint32_t i = 0; i < p->config->num_layers && q->status == RAD_OK; i++) {
        rad_status status = run_layer(&w, i);
        if (status != RAD_OK) return status;
    }
    if (s->logits) project_logits(&w);
    return q->status;
}
