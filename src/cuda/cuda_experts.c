/* cuda_experts.c - see cuda_experts.h. */
#include "cuda/cuda_experts.h"

#include "cuda/cuda_places.h"
#include "cuda/experts_plan.h"

#include <assert.h>

static_assert((int)EXPERTS_SOFTMAX == (int)ROUTER_SOFTMAX &&
                  (int)EXPERTS_SIGMOID == (int)ROUTER_SIGMOID &&
                  (int)EXPERTS_SOFTMAX_OF_CHOSEN == (int)ROUTER_SOFTMAX_OF_CHOSEN,
              "");

static uint32_t scores_ld(const model_config *c)
{
    return cuda_pad(c->experts.count + 1, 4); /* and the shared expert's gate */
}

bool cuda_experts_read_bf16(const cuda_layer *l)
{
    return !l->expert_gate_up.num_pieces || (l->shared_gate_up.at && !l->shared_gate_up.num_pieces);
}

void cuda_experts_rooms(const model_config *c, const cuda_layout *layout, uint32_t tokens,
                        cuda_experts_room rooms[CUDA_EXPERTS_BUFFERS])
{
    const experts_config *x = &c->experts;
    const cuda_experts_plan most = cuda_experts_most(tokens, x->used, x->count);
    const size_t pairs = (size_t)tokens * x->used;
    size_t wide = 0, act = 0, down = 0, rounded = 0; /* of a place */
    for (uint32_t i = 0; i < c->num_layers; i++) {
        const cuda_matrix *up = &layout->layers[i].expert_gate_up;
        const cuda_matrix *to = &layout->layers[i].expert_down;
        if (!up->at) continue;
        if (up->num_pieces) wide = RAD_MAX(wide, up->rows);
        if (!up->num_pieces || !to->num_pieces) act = RAD_MAX(act, to->x_ld);
        if (up->num_pieces) rounded = RAD_MAX(rounded, up->ld);
        if (to->num_pieces) rounded = RAD_MAX(rounded, to->ld);
        down = RAD_MAX(down, to->rows);
    }
    const cuda_experts_room each[CUDA_EXPERTS_BUFFERS] = {
        {tokens, scores_ld(c) * sizeof(float)},
        {pairs, sizeof(uint32_t)},
        {pairs, sizeof(float)},
        {pairs, sizeof(uint32_t)},
        {most.most_tiles, sizeof(expert_tile)},
        {1, sizeof(uint32_t)},
        {most.places, sizeof(uint32_t)},
        {most.places, wide * sizeof(float)},
        {most.places, act * sizeof(uint16_t)},
        {most.places, down * sizeof(float)},
        {most.places, rounded},
        {most.places, rounded / 32 * 2 * sizeof(float)},
    };
    memcpy(rooms, each, sizeof each);
}

static void *at(cuda_ptr p)
{
    return (void *)(uintptr_t)p;
}

static void *weight(const cuda_experts_pass *p, uint64_t place)
{
    return place ? at(p->weights + place) : NULL;
}

static void choose(cuda_queue *q, const cuda_experts_pass *p)
{
    const experts_config *x = &p->config->experts;
    const cuda_experts_buffers *b = p->buffers;
    const experts_scores_args scores = {.router = weight(p, p->layer->router),
                                        .shared_gate = weight(p, p->layer->shared_gate),
                                        .x = at(p->norm_f32),
                                        .scores = at(b->scores),
                                        .tokens = p->tokens,
                                        .dim = p->config->dim,
                                        .count = x->count,
                                        .ld = scores_ld(p->config)};
    const experts_choose_args choices = {.scores = at(b->scores),
                                         .router_bias = weight(p, p->layer->router_bias),
                                         .select_bias = weight(p, p->layer->select_bias),
                                         .chosen = at(b->chosen),
                                         .weights = at(b->weights),
                                         .tokens = p->tokens,
                                         .ld = scores.ld,
                                         .count = x->count,
                                         .used = x->used,
                                         .router = x->router,
                                         .normed = x->normed,
                                         .groups = x->groups,
                                         .groups_used = x->groups_used,
                                         .scale = x->scale};
    launch_experts_scores(q, &scores);
    launch_experts_choose(q, &choices);
}

/* What was rounded, and by which tiles: that of `tokens`. */
static cuda_places order(cuda_queue *q, const cuda_experts_pass *p)
{
    const experts_config *x = &p->config->experts;
    const cuda_experts_buffers *b = p->buffers;
    const cuda_experts_plan plan = cuda_experts_plan_of(p->tokens, x->used, x->count);
    const experts_order_args a = {.chosen = at(b->chosen),
                                  .num_tokens = p->num_tokens,
                                  .tiles = at(b->tiles),
                                  .num_tiles = at(b->num_tiles),
                                  .row_of = at(b->row_of),
                                  .place_of = at(b->place_of),
                                  .tokens = p->tokens,
                                  .used = x->used,
                                  .count = x->count,
                                  .width = plan.width};
    launch_experts_order(q, &a);
    return (cuda_places){
        .by = {.tiles = a.tiles, .num_tiles = a.num_tiles, .row_of = a.row_of, .width = plan.width},
        .most_tiles = plan.most_tiles,
        .ld = plan.places,
        .rounded = at(b->rounded),
        .scales = at(b->scales)};
}

/* A product in bf16. */
static void multiply(cuda_queue *q, const cuda_experts_pass *p, const cuda_places *by,
                     const cuda_matrix *m, gemm_experts_args a)
{
    a.w = weight(p, m->at);
    a.w_bytes = m->bytes;
    a.by = by->by;
    a.n = m->rows;
    a.k = m->ld;
    launch_gemm_experts(q, &a, by->most_tiles);
}

static void gate_up_bf16(cuda_queue *q, const cuda_experts_pass *p, const cuda_places *by)
{
    const cuda_matrix *m = &p->layer->expert_gate_up;
    const bool clamped = p->config->arch->ffn == FFN_SWIGLU_CLAMPED;
    multiply(q, p, by, m,
             (gemm_experts_args){.x = at(p->norm),
                                 .bias = weight(p, p->layer->expert_gate_up_bias),
                                 .out = at(p->buffers->act),
                                 .n_out = m->rows,
                                 .ld_out = p->layer->expert_down.x_ld,
                                 .epilogue = clamped ? GEMM_SWIGLU_CLAMPED : GEMM_SWIGLU,
                                 .gathered = 1,
                                 .n_bias = m->n});
}

/* Gates and ups as f32, then the gated unit as the downs read it. */
static void gate_up_quantised(cuda_queue *q, const cuda_experts_pass *p, const cuda_places *by)
{
    const cuda_experts_buffers *b = p->buffers;
    const cuda_matrix *m = &p->layer->expert_gate_up, *down = &p->layer->expert_down;
    const uint32_t from = p->config->arch->ffn == FFN_SWIGLU_CLAMPED ? QUANTISE_SWIGLU_CLAMPED
                                                                     : QUANTISE_SWIGLU;
    const float *bias = weight(p, p->layer->expert_gate_up_bias);
    cuda_places_round(q, by, m, QUANTISE_F32, at(p->norm_f32), p->config->dim, NULL);
    cuda_places_multiply(q, by, m, p->weights, at(b->wide));
    if (down->num_pieces)
        cuda_places_round(q, by, down, from, at(b->wide), m->rows, bias);
    else
        cuda_places_activate(q, by, down, from, at(b->wide), m->rows, bias, at(b->act));
}

void cuda_experts_run(cuda_queue *q, const cuda_experts_pass *p)
{
    const cuda_experts_buffers *b = p->buffers;
    const cuda_matrix *down = &p->layer->expert_down;
    choose(q, p);
    const cuda_places by = order(q, p);
    if (p->layer->expert_gate_up.num_pieces) {
        gate_up_quantised(q, p, &by);
    } else {
        gate_up_bf16(q, p, &by);
        if (down->num_pieces)
            cuda_places_round(q, &by, down, QUANTISE_BF16, at(b->act), down->x_ld, NULL);
    }
    if (down->num_pieces)
        cuda_places_multiply(q, &by, down, p->weights, at(b->down));
    else
        multiply(q, p, &by, down,
                 (gemm_experts_args){.x = at(b->act),
                                     .out = at(b->down),
                                     .n_out = down->n,
                                     .ld_out = down->rows,
                                     .epilogue = GEMM_PARTS});
}

void cuda_experts_add(cuda_queue *q, const cuda_experts_pass *p, cuda_ptr y, uint32_t ld,
                      uint32_t shared_parts)
{
    const experts_config *x = &p->config->experts;
    const cuda_experts_buffers *b = p->buffers;
    const experts_sum_args a = {.down = at(b->down),
                                .bias = weight(p, p->layer->expert_down_bias),
                                .chosen = at(b->chosen),
                                .place_of = at(b->place_of),
                                .weights = at(b->weights),
                                .shared = shared_parts ? at(y) : NULL,
                                .scores = at(b->scores),
                                .y = at(y),
                                .tokens = p->tokens,
                                .dim = p->config->dim,
                                .used = x->used,
                                .count = x->count,
                                .ld_down = p->layer->expert_down.rows,
                                .ld_y = ld,
                                .ld_scores = scores_ld(p->config),
                                .shared_parts = shared_parts,
                                .shared_gated = p->layer->shared_gate != 0};
    launch_experts_sum(q, &a);
}
