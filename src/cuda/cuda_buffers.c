/* cuda_buffers.c - see cuda_buffers.h. */
#include "cuda/cuda_buffers.h"

#include "cuda/gemm_many_plan.h"
#include "cuda/gemm_plan.h"

static cuda_ptr take(size_t *used, size_t count, size_t size)
{
    enum { ALIGN = 256 };
    size_t bytes, end;
    const size_t at = *used;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(bytes, ALIGN - 1, &bytes) ||
        __builtin_add_overflow(at, bytes & ~(size_t)(ALIGN - 1), &end))
        end = SIZE_MAX;
    *used = end;
    return at;
}

/* Rows of a product's parts that there is place for. Kernels for few tokens leave parts of 64
 * tokens at most; those for many leave one where parts do not fit. */
static uint32_t part_rows_of(const cuda_matrix *m, uint32_t tokens)
{
    if (!m->at || m->paired) return 0;
    return RAD_MAX(RAD_MIN(tokens, (uint32_t)GEMM_FEW_TOKENS) * m->splits, tokens);
}

/* Numbers of what it multiplies as int8. */
static uint32_t quantised_ld(const cuda_matrix *m)
{
    return m->num_pieces ? m->ld : 0;
}

static void place_experts(const model_config *c, const cuda_layout *layout,
                          const cuda_step_limits *l, cuda_buffers *b, size_t *used)
{
    cuda_experts_room rooms[CUDA_EXPERTS_BUFFERS] = {0};
    if (layout->experts) cuda_experts_rooms(c, layout, l->tokens, rooms);
    for (uint32_t i = 0; i < CUDA_EXPERTS_BUFFERS; i++)
        b->experts.all[i] = take(used, rooms[i].count, rooms[i].size);
}

static size_t place(const model_config *c, const cuda_layout *layout, const cuda_step_limits *l,
                    cuda_buffers *b)
{
    size_t used = 0, parts = 0;
    uint32_t q = 0, attn = 0, act = 0, widest = quantised_ld(&layout->output);
    for (uint32_t i = 0; i < c->num_layers; i++) {
        const cuda_layer *w = &layout->layers[i];
        const cuda_matrix *all[] = {&w->qkv,      &w->attn_output,    &w->gate_up,
                                    &w->ffn_down, &w->shared_gate_up, &w->shared_down};
        for (size_t k = 0; k < RAD_COUNT(all); k++) {
            parts = RAD_MAX(parts, (size_t)part_rows_of(all[k], l->tokens) * all[k]->rows);
            widest = RAD_MAX(widest, quantised_ld(all[k]));
        }
        q = RAD_MAX(q, layer_q_dim(&c->layers[i]));
        attn = RAD_MAX(attn, w->attn_output.x_ld);
        act = RAD_MAX(act, RAD_MAX(w->ffn_down.x_ld, w->shared_down.x_ld));
        parts = RAD_MAX(parts, (size_t)l->tokens * w->expert_down.rows);
    }
    const size_t f = sizeof(float), h = sizeof(uint16_t);
    b->logits_ld = layout->output.rows;
    b->norm_ld = layout->output.x_ld;
    b->attn_ld = attn;
    b->act_ld = act;
    b->x = take(&used, l->tokens, c->dim * f);
    b->norm = take(&used, l->tokens, b->norm_ld * h);
    b->y_numbers = parts;
    b->y = take(&used, parts, f);
    b->row_scales = take(&used, c->arch->qk_norm == QK_NORM_ROW ? l->tokens : 0, 2 * f);
    b->q = take(&used, l->tokens, q * h);
    b->attn = take(&used, l->tokens, attn * h);
    b->act = take(&used, l->tokens, act * h);
    b->norm_f32 = take(&used, widest || layout->experts ? l->tokens : 0, c->dim * f);
    b->rounded = take(&used, widest ? l->tokens : 0, widest);
    b->scales = take(&used, cuda_rounded_tokens(l->tokens), widest / 32 * 2 * f);
    place_experts(c, layout, l, b, &used);
    b->part_v = take(&used, cuda_attention_part_v_bytes(&l->views[0], l->most_parts), 1);
    b->part_ms = take(&used, cuda_attention_part_ms_bytes(&l->views[0], l->most_parts), 1);
    b->step = take(&used, cuda_step_block_bytes(l), 1);
    b->table = take(&used, cuda_slots_bytes(cuda_step_slot_rows(l), l->context), 1);
    b->logits = take(&used, l->logits, b->logits_ld * f);
    size_t zeros; /* all of it is */
    b->sample_block = take(&used, cuda_sample_block_bytes(&l->sample), 1);
    b->sample_scratch = take(&used, cuda_sample_scratch_bytes(&l->sample, &zeros), 1);
    b->tokens = take(&used, l->logits, sizeof(rad_token));
    return used;
}

size_t cuda_buffers_bytes(const model_config *c, const cuda_layout *layout,
                          const cuda_step_limits *l)
{
    cuda_buffers b;
    return place(c, layout, l, &b);
}

static rad_status make_maps(const cuda_gpu *gpu, uint32_t tokens, cuda_buffers *b, rad_error *err)
{
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < CUDA_X_MAPS && status == RAD_OK; i++) {
        const uint32_t box = 16u << i;
        status = cuda_matrix_map(gpu->cu, b->norm, tokens, b->norm_ld, box, &b->norm_maps[i], err);
        if (status == RAD_OK)
            status =
                cuda_matrix_map(gpu->cu, b->attn, tokens, b->attn_ld, box, &b->attn_maps[i], err);
        if (status == RAD_OK && b->act_ld) /* mixtures of experts may have no other block */
            status = cuda_matrix_map(gpu->cu, b->act, tokens, b->act_ld, box, &b->act_maps[i], err);
    }
    b->maps = status == RAD_OK;
    return status;
}

rad_status cuda_buffers_init(const cuda_gpu *gpu, cuda_stream stream, bool maps,
                             const model_config *c, const cuda_layout *layout,
                             const cuda_step_limits *l, cuda_buffers *out, rad_error *err)
{
    cuda_buffers b = {0};
    const size_t bytes = place(c, layout, l, &b);
    rad_status status = cuda_block_alloc(gpu, bytes, "activations and logits", &b.block, err);
    if (status == RAD_OK)
        status = cuda_ok(gpu->cu, gpu->cu->set_bytes(b.block.at, 0, bytes, stream),
                         "cuMemsetD8Async", err);
    if (status != RAD_OK) {
        cuda_block_free(gpu, &b.block);
        return status;
    }
    cuda_ptr *all[] = {&b.x,
                       &b.norm,
                       &b.y,
                       &b.row_scales,
                       &b.q,
                       &b.attn,
                       &b.act,
                       &b.norm_f32,
                       &b.rounded,
                       &b.scales,
                       &b.part_v,
                       &b.part_ms,
                       &b.step,
                       &b.table,
                       &b.logits,
                       &b.sample_block,
                       &b.sample_scratch,
                       &b.tokens};
    for (size_t i = 0; i < RAD_COUNT(all); i++)
        *all[i] += b.block.at;
    for (uint32_t i = 0; i < CUDA_EXPERTS_BUFFERS; i++)
        b.experts.all[i] += b.block.at;
    if (maps) status = make_maps(gpu, l->tokens, &b, err);
    if (status != RAD_OK)
        cuda_block_free(gpu, &b.block);
    else
        *out = b;
    return status;
}
