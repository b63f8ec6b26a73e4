/* block_moe.c - x += [rms] sum over the chosen experts of weight * down . glu(gate_up . rms(x)),
 * and an expert that every token uses, where there is one. Gemma 4 has its dense block beside it:
 *
 *     x += rms(rms(dense block) + rms(sum of experts)), each of which reads a norm of x of its own
 *
 *     route     scores of all experts in f32, the best of them, their weights
 *     order     rows by expert: place p of a token's choice r, ascending tokens within an expert
 *     gather    the normed row to each of its places, rounded
 *     experts   one region over (expert, panel) for gates and ups, one for downs
 *     sum       weight * row at the place, in the order of ranks
 *
 * So each expert that any row chose is read once for all of a step's rows.
 *
 * Invariant (P1): what is chosen, the weights and the order of the sum depend on the row alone; a
 * row's place among an expert's rows decides only where its numbers lie. Of equal scores the lower
 * id is taken. */
#include "model/block.h"

#include <math.h>

enum { NOBODY = UINT32_MAX };

/* ---- which experts ---- */

/* Scores become what the router's kind says, in place. */
static void make_scores(const step *s, float *score)
{
    const uint32_t n = s->c->experts.count;
    if (s->c->experts.router == ROUTER_SOFTMAX) {
        const float max = s->m->ops->max(score, n);
        float sum = 0;
        for (uint32_t e = 0; e < n; e++)
            score[e] -= max;
        s->m->ops->exps(score, score, n);
        for (uint32_t e = 0; e < n; e++)
            sum += score[e];
        for (uint32_t e = 0; e < n; e++)
            score[e] /= sum;
    } else if (s->c->experts.router == ROUTER_SIGMOID) {
        for (uint32_t e = 0; e < n; e++)
            score[e] = -score[e];
        s->m->ops->exps(score, score, n);
        for (uint32_t e = 0; e < n; e++)
            score[e] = 1 / (1 + score[e]);
    }
}

/* The largest; of what is not comparable (NaN, all taken) the first that is not chosen. */
static uint32_t best_of(const float *by, uint32_t n, const block_choice *chosen, uint32_t ranks)
{
    uint32_t best = NOBODY;
    float most = -INFINITY;
    for (uint32_t e = 0; e < n; e++)
        if (by[e] > most) most = by[e], best = e;
    for (uint32_t e = 0; best == NOBODY && e < n; e++) {
        bool taken = false;
        for (uint32_t r = 0; r < ranks; r++)
            taken = taken || chosen[r].expert == e;
        if (!taken) best = e;
    }
    return best;
}

/* DeepSeek-V3: a group is worth what its two best experts are; those of other groups than the best
 * are out. */
static void keep_best_groups(const experts_config *x, float *by)
{
    const uint32_t size = x->count / x->groups;
    for (uint32_t left = x->groups - x->groups_used; left > 0; left--) {
        uint32_t worst = NOBODY;
        float least = INFINITY;
        for (uint32_t g = 0; g < x->groups; g++) {
            float first = -INFINITY, second = -INFINITY;
            for (uint32_t e = g * size; e < (g + 1) * size; e++) {
                if (by[e] > first)
                    second = first, first = by[e];
                else if (by[e] > second)
                    second = by[e];
            }
            if (first == -INFINITY) continue;                               /* out already */
            if (first + second <= least) least = first + second, worst = g; /* ties: the last */
        }
        for (uint32_t e = 0; worst != NOBODY && e < size; e++)
            by[worst * size + e] = -INFINITY;
    }
}

static void choose(const step *s, float *by, block_choice *chosen)
{
    if (s->c->experts.groups > s->c->experts.groups_used) keep_best_groups(&s->c->experts, by);
    for (uint32_t r = 0; r < s->c->experts.used; r++) {
        chosen[r].expert = best_of(by, s->c->experts.count, chosen, r);
        by[chosen[r].expert] = -INFINITY;
    }
}

static void weigh(const step *s, const float *score, block_choice *chosen)
{
    const experts_config *x = &s->c->experts;
    float sum = 0;
    for (uint32_t r = 0; r < x->used; r++) {
        float w = score[chosen[r].expert];
        if (x->router == ROUTER_SOFTMAX_OF_CHOSEN) {
            w -= score[chosen[0].expert]; /* the largest */
            s->m->ops->exps(&w, &w, 1);
        }
        chosen[r].weight = w;
        sum += w;
    }
    /* Sigmoids can all be next to nothing: f16's smallest normal number is enough to divide by. */
    const float by = x->normed ? RAD_MAX(sum, 0x1p-14f) : 1;
    for (uint32_t r = 0; r < x->used; r++)
        chosen[r].weight = chosen[r].weight / by * x->scale;
    for (uint32_t r = 0; s->w->expert_scales && r < x->used; r++)
        chosen[r].weight *= s->w->expert_scales[chosen[r].expert];
}

static void route_row(const step *s, uint32_t i)
{
    const uint32_t n = s->c->experts.count;
    float *score = s->b->moe.scores + (size_t)i * 2 * n, *by = score + n;
    block_choice *chosen = s->b->moe.choices + (size_t)i * s->c->experts.used;
    if (s->w->router_bias) s->m->ops->add(score, s->w->router_bias, n);
    make_scores(s, score);
    memcpy(by, score, n * sizeof *by);
    if (s->w->select_bias) s->m->ops->add(by, s->w->select_bias, n);
    choose(s, by, chosen);
    weigh(s, score, chosen);
}

/* ---- where their rows lie ---- */

/* Gives every choice its place, and every expert that was chosen an item. Returns how many. */
static uint32_t order_choices(const step *s)
{
    const forward_moe *m = &s->b->moe;
    const experts_config *x = &s->c->experts;
    const size_t pairs = (size_t)s->rows * x->used;
    uint32_t place = 0, num_items = 0;
    memset(m->rows, 0, x->count * sizeof *m->rows);
    for (size_t k = 0; k < pairs; k++)
        m->rows[m->choices[k].expert]++;
    for (uint32_t e = 0; e < x->count; e++) {
        const uint32_t rows = m->rows[e];
        if (rows) m->items[num_items++] = (gemm_item){.first = place, .rows = rows};
        if (rows) m->chosen[num_items - 1] = e;
        m->rows[e] = place; /* where its next row goes */
        place += rows;
    }
    for (size_t k = 0; k < pairs; k++)
        m->choices[k].place = m->rows[m->choices[k].expert]++;
    return num_items;
}

/* For a product of the f32 rows `x`, ldx floats apart. */
static void fill_items(const step *s, uint32_t num_items, gemm_weight *const *weights,
                       const float *x, size_t ldx, float *out, size_t ldo)
{
    const forward_moe *m = &s->b->moe;
    for (uint32_t k = 0; k < num_items; k++) {
        gemm_item *item = &m->items[k];
        const uint32_t e = m->chosen[k];
        item->w = weights[e];
        item->x = x + item->first * ldx;
        item->out = out + item->first * ldo;
        item->then = s->w->expert_down[e];
        item->bias = s->w->expert_gate_up_bias
                         ? s->w->expert_gate_up_bias + (size_t)e * 2 * s->c->experts.dim
                         : NULL;
    }
}

static void gather_row(const step *s, uint32_t i)
{
    const forward_moe *m = &s->b->moe;
    const uint32_t dim = s->c->dim, used = s->c->experts.used;
    const float *norm = s->b->norm + (size_t)i * dim;
    const gemm_weight *reader = s->w->expert_gate_up[0];
    const block_choice *chosen = m->choices + (size_t)i * used;
    gemm_round_row(reader, norm, chosen[0].place, m->scratch);
    for (uint32_t r = 0; r < used; r++) {
        const uint32_t place = chosen[r].place;
        if (m->x) memcpy(m->x + (size_t)place * dim, norm, dim * sizeof *norm);
        if (r) gemm_copy_rounded(reader, chosen[0].place, place, m->scratch);
    }
    if (!s->w->shared_gate_up) return;
    gemm_round_row(s->w->shared_gate_up, norm, i, s->b->gemm_scratch);
    float gate = 1;
    if (s->w->shared_gate) {
        float dot = 0;
        for (uint32_t d = 0; d < dim; d++)
            dot += norm[d] * s->w->shared_gate[d];
        float e = -dot;
        s->m->ops->exps(&e, &e, 1);
        gate = 1 / (1 + e);
    }
    m->shared_weight[i] = gate;
}

/* ---- what they say ---- */

/* All that the row's experts said, for their downs. */
static void relu2_row(const step *s, uint32_t i)
{
    const forward_moe *m = &s->b->moe;
    const uint32_t n = s->c->experts.dim, used = s->c->experts.used;
    for (uint32_t r = 0; r < used; r++) {
        const block_choice *c = &m->choices[(size_t)i * used + r];
        block_relu2(s, s->w->expert_down[c->expert], m->wide + (size_t)c->place * n, n, c->place,
                    m->then_scratch);
    }
}

static void run_ungated(step *s, uint32_t num_items)
{
    const forward_moe *m = &s->b->moe;
    const uint32_t dim = s->c->dim, n = s->c->experts.dim;
    fill_items(s, num_items, s->w->expert_gate_up, m->x ? m->x : s->b->norm, m->x ? dim : 0,
               m->wide, n);
    gemm_run_items(m->items, num_items, dim, n, s->m->pool, m->scratch);
    block_for_rows(s, relu2_row);
    fill_items(s, num_items, s->w->expert_down, m->wide, n, m->out, dim);
    gemm_run_items(m->items, num_items, n, dim, s->m->pool, m->then_scratch);
}

static void run_experts(step *s, uint32_t num_items, gemm_glu *glu)
{
    const forward_moe *m = &s->b->moe;
    const uint32_t dim = s->c->dim;
    if (s->c->arch->ffn == FFN_RELU2) {
        run_ungated(s, num_items);
        return;
    }
    const size_t wide = 2 * (size_t)s->c->experts.dim;
    fill_items(s, num_items, s->w->expert_gate_up, m->x ? m->x : s->b->norm, m->x ? dim : 0,
               m->wide, wide);
    gemm_run_items_glu(m->items, num_items, dim, wide, glu, m->then_scratch, s->m->pool,
                       m->scratch);
    fill_items(s, num_items, s->w->expert_down, m->wide, wide, m->out, dim);
    gemm_run_items(m->items, num_items, wide, dim, s->m->pool, m->then_scratch);
}

static void shared_relu2_row(const step *s, uint32_t i)
{
    const uint32_t n = s->c->experts.shared_dim;
    block_relu2(s, s->w->shared_down, s->b->wide + (size_t)i * n, n, i, s->b->ffn_scratch);
}

static void run_ungated_shared(step *s)
{
    const forward_buffers *b = s->b;
    const size_t n = s->c->experts.shared_dim;
    gemm_run_rounded(s->w->shared_gate_up, b->norm, s->c->dim, s->rows, b->wide, n, false,
                     s->m->pool, b->gemm_scratch);
    block_for_rows(s, shared_relu2_row);
    gemm_run_rounded(s->w->shared_down, b->wide, n, s->rows, b->moe.shared, s->c->dim, false,
                     s->m->pool, b->ffn_scratch);
}

static void run_shared(step *s, gemm_glu *glu)
{
    const forward_buffers *b = s->b;
    if (s->c->arch->ffn == FFN_RELU2) {
        run_ungated_shared(s);
        return;
    }
    const size_t ld = 2 * (size_t)s->c->experts.shared_dim;
    gemm_run_glu(s->w->shared_gate_up, b->norm, s->c->dim, s->rows, glu, b->wide, ld,
                 s->w->shared_down, b->ffn_scratch, s->m->pool, b->gemm_scratch);
    gemm_run_rounded(s->w->shared_down, b->wide, ld, s->rows, b->moe.shared, s->c->dim, false,
                     s->m->pool, b->ffn_scratch);
}

/* Each behind its norm. */
static void add_dense(const step *s, float *sum, float *dense)
{
    const uint32_t dim = s->c->dim;
    s->m->ops->rms_norm(sum, sum, s->w->post_experts_norm, dim, s->c->rms_eps);
    s->m->ops->rms_norm(dense, dense, s->w->dense_norm, dim, s->c->rms_eps);
    s->m->ops->add(sum, dense, dim);
}

static void sum_row(const step *s, uint32_t i)
{
    const forward_moe *m = &s->b->moe;
    const uint32_t dim = s->c->dim, used = s->c->experts.used;
    float *sum = s->b->norm + (size_t)i * dim;
    memset(sum, 0, dim * sizeof *sum);
    for (uint32_t r = 0; r < used; r++) {
        const block_choice *c = &m->choices[(size_t)i * used + r];
        float *said = m->out + (size_t)c->place * dim;
        if (s->w->expert_down_bias)
            s->m->ops->add(said, s->w->expert_down_bias + (size_t)c->expert * dim, dim);
        s->m->ops->add_scaled(sum, said, c->weight, dim);
    }
    if (s->w->shared_gate_up)
        s->m->ops->add_scaled(sum, m->shared + (size_t)i * dim, m->shared_weight[i], dim);
    if (s->w->dense_norm) add_dense(s, sum, m->shared + (size_t)i * dim);
    block_add_row(s, i);
}

/* The layer's dense block, whose answer waits until the experts have theirs. */
static void run_dense(step *s, gemm_glu *glu)
{
    const forward_buffers *b = s->b;
    const layer_weights *w = s->w;
    const size_t ld = 2 * (size_t)s->l->ffn_dim;
    block_norm(s, w->ffn_norm, w->gate_up);
    gemm_run_glu(w->gate_up, b->norm, s->c->dim, s->rows, glu, b->wide, ld, w->ffn_down,
                 b->ffn_scratch, s->m->pool, b->gemm_scratch);
    gemm_run_rounded(w->ffn_down, b->wide, ld, s->rows, b->moe.shared, s->c->dim, false, s->m->pool,
                     b->ffn_scratch);
}

void block_moe(step *s)
{
    const forward_buffers *b = s->b;
    gemm_glu *glu = block_glu(s);
    if (s->w->dense_norm) run_dense(s, glu);
    block_norm(s, s->w->router_norm ? s->w->router_norm : s->w->ffn_norm, NULL);
    gemm_run(s->w->router, b->norm, s->c->dim, s->rows, b->moe.scores,
             2 * (size_t)s->c->experts.count, false, s->m->pool, b->gemm_scratch);
    block_for_rows(s, route_row);
    const uint32_t num_items = order_choices(s);
    if (s->w->experts_norm) block_norm(s, s->w->experts_norm, NULL);
    s->experts_read += num_items;
    block_for_rows(s, gather_row);
    run_experts(s, num_items, glu);
    if (s->w->shared_gate_up) run_shared(s, glu);
    s->bias = NULL;
    s->norm_weight = s->w->post_ffn_norm;
    block_for_rows(s, sum_row);
}
