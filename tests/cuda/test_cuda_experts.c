/* Kernels of mixtures of experts beside plain C: scores, choices, places, products and the sum. */
#include "cuda_rig.h"

#include "base/bf16.h"
#include "cuda/experts_plan.h"
#include "cuda/gemm_plan.h"
#include "emulator.h"

#include <math.h>

static uint64_t state;

static uint32_t less(uint32_t n)
{
    return (uint32_t)(test_random(&state) % n);
}

static float number(void) /* [-1, 1) */
{
    return (float)(int32_t)(less(65536) - 32768u) / 32768;
}

static void launch(cuda_rig *rig, const char *file, const char *kernel, uint32_t x, uint32_t y,
                   uint32_t threads, uint32_t shared_bytes, const void *args, size_t bytes)
{
    rig_launch(rig, file,
               (emulation){.kernel = kernel,
                           .grid = {x, y, 1},
                           .threads = threads,
                           .shared_bytes = shared_bytes,
                           .args = args,
                           .order = less(4)},
               bytes);
}

static uint32_t div_up_of(uint32_t n, uint32_t by)
{
    return (n + by - 1) / by;
}

/* ---- scores ---- */

TEST(scores_have_one_order_for_few_tokens_and_many)
{
    state = test_told_seed();
    for (uint32_t round = 0; round < test_scale(6, 60); round++) {
        cuda_rig rig = rig_open();
        const uint32_t tokens = 1 + less(20), count = 1 + less(21), dim = 1 + less(1300);
        const bool gate = less(2);
        const uint32_t rows = count + gate, ld = rows + less(3);
        float *router = rig_alloc(&rig, sizeof(float) * count * dim);
        float *shared = rig_alloc(&rig, sizeof(float) * dim);
        float *x = rig_alloc(&rig, sizeof(float) * tokens * dim);
        for (uint32_t i = 0; i < count * dim; i++)
            router[i] = number();
        for (uint32_t i = 0; i < dim; i++)
            shared[i] = number();
        for (uint32_t i = 0; i < tokens * dim; i++)
            x[i] = number();
        experts_scores_args a = {.router = router,
                                 .shared_gate = gate ? shared : NULL,
                                 .x = x,
                                 .scores = rig_alloc(&rig, sizeof(float) * tokens * ld),
                                 .tokens = tokens,
                                 .dim = dim,
                                 .count = count,
                                 .ld = ld};
        const float *few = a.scores;
        launch(&rig, "experts", "experts_scores", div_up_of(rows, EXPERTS_SCORES_ROWS),
               div_up_of(tokens, EXPERTS_SCORES_TOKENS), EXPERTS_SCORES_THREADS, 0, &a, sizeof a);
        a.scores = rig_alloc(&rig, sizeof(float) * tokens * ld);
        launch(&rig, "experts", "experts_scores_many", div_up_of(rows, EXPERTS_SCORES_MANY_ROWS),
               div_up_of(tokens, EXPERTS_SCORES_MANY_TOKENS), EXPERTS_SCORES_MANY_THREADS, 0, &a,
               sizeof a);
        CHECK(!memcmp(few, a.scores, sizeof(float) * tokens * ld));
        for (uint32_t t = 0; t < tokens; t++)
            for (uint32_t e = 0; e < rows; e++) {
                const float *w = e < count ? router + (size_t)e * dim : shared;
                double sum = 0;
                for (uint32_t i = 0; i < dim; i++)
                    sum += (double)w[i] * (double)x[(size_t)t * dim + i];
                CHECKF(fabs(sum - (double)few[(size_t)t * ld + e]) < 1e-4, "%u of %u\n", e, rows);
            }
        rig_close(&rig);
    }
}

/* ---- choices ---- */

/* By the words of block_moe.c, in doubles where that decides nothing. */
static uint32_t best_of(const float *by, uint32_t n, const bool *taken)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t e = 0; e < n; e++)
        if (by[e] > -INFINITY && (best == UINT32_MAX || by[e] > by[best])) best = e;
    for (uint32_t e = 0; best == UINT32_MAX; e++)
        if (!taken[e]) best = e;
    return best;
}

/* Whether that is certain: false where two groups' worths are all but equal. */
static bool drop_groups(const experts_choose_args *a, float *by)
{
    bool certain = true;
    const uint32_t size = a->count / a->groups;
    bool out[EXPERTS_MOST] = {false};
    for (uint32_t left = a->groups - a->groups_used; left; left--) {
        uint32_t worst = UINT32_MAX;
        float least = INFINITY;
        for (uint32_t g = 0; g < a->groups; g++) {
            float best[2] = {-INFINITY, -INFINITY};
            for (uint32_t e = g * size; e < (g + 1) * size; e++) {
                if (by[e] > best[0])
                    best[1] = best[0], best[0] = by[e];
                else if (by[e] > best[1])
                    best[1] = by[e];
            }
            const float worth = best[0] + best[1];
            if (out[g] || !(best[0] > -INFINITY)) continue;
            if (worst != UINT32_MAX && worth != least && fabsf(worth - least) < 1e-5f)
                certain = false;
            if (worth <= least) least = worth, worst = g;
        }
        if (worst == UINT32_MAX) return certain;
        out[worst] = true;
        for (uint32_t e = 0; e < size; e++)
            by[worst * size + e] = -INFINITY;
    }
    return certain;
}

static void check_choice(const experts_choose_args *a, uint32_t token)
{
    float score[EXPERTS_MOST], by[EXPERTS_MOST];
    bool taken[EXPERTS_MOST] = {false};
    double weight[EXPERTS_MOST_USED], sum = 0, max = -INFINITY, all = 0;
    for (uint32_t e = 0; e < a->count; e++) {
        score[e] = a->scores[(size_t)token * a->ld + e] + (a->router_bias ? a->router_bias[e] : 0);
        max = fmax(max, (double)score[e]);
    }
    for (uint32_t e = 0; e < a->count; e++)
        all += exp((double)score[e] - max);
    for (uint32_t e = 0; e < a->count; e++) {
        if (a->router == EXPERTS_SOFTMAX) score[e] = (float)(exp((double)score[e] - max) / all);
        if (a->router == EXPERTS_SIGMOID) score[e] = (float)(1 / (1 + exp(-(double)score[e])));
        by[e] = score[e] + (a->select_bias ? a->select_bias[e] : 0);
    }
    if (a->groups > a->groups_used && !drop_groups(a, by)) return;
    /* exp may round otherwise than the kernel's: what a bias is added to it may tie nearly. */
    const bool near = a->select_bias && a->router != EXPERTS_SOFTMAX_OF_CHOSEN;
    for (uint32_t r = 0; r < a->used; r++) {
        const uint32_t best = best_of(by, a->count, taken), at = token * a->used + r;
        const uint32_t e = a->chosen[at];
        CHECK(e < a->count && !taken[e]);
        CHECKF(e == best || (near && by[e] > by[best] - 1e-5f), "router %u, rank %u: %u for %u\n",
               a->router, r, e, best);
        by[e] = -INFINITY, taken[e] = true;
        weight[r] = (double)score[e];
        if (a->router == EXPERTS_SOFTMAX_OF_CHOSEN)
            weight[r] = exp(weight[r] - (double)score[a->chosen[token * a->used]]);
        sum += weight[r];
    }
    for (uint32_t r = 0; r < a->used; r++) {
        const double w = weight[r] / (a->normed ? fmax(sum, 0x1p-14) : 1) * (double)a->scale;
        const float got = a->weights[token * a->used + r];
        const double most = 1e-5 * fmax(1, fabs(w)); /* beside NaN they are not normed */
        CHECKF(isnan(w) ? isnan(got) : fabs((double)got - w) < most, "%g for %g\n", (double)got, w);
    }
}

/* Scores that are multiples of 1/8 are equal often, and never nearly: exp cannot decide. */
TEST(choices_are_those_of_the_cpu)
{
    state = test_told_seed();
    for (uint32_t round = 0; round < test_scale(60, 600); round++) {
        cuda_rig rig = rig_open();
        const uint32_t groups = round % 4 ? 1 : 2 + less(6);
        const uint32_t count = groups > 1 ? groups * (2 + less(20)) : 1 + less(256);
        const uint32_t tokens = 1 + less(6), ld = count + less(2);
        const uint32_t groups_used = groups > 1 ? 1 + less(groups - 1) : 1;
        const uint32_t can = RAD_MIN(count / groups * groups_used, (uint32_t)EXPERTS_MOST_USED);
        float *scores = rig_alloc(&rig, sizeof(float) * tokens * ld);
        float *bias[2];
        for (uint32_t i = 0; i < tokens * ld; i++)
            scores[i] = (float)((int)less(65) - 32) / 8;
        for (int b = 0; b < 2; b++) {
            bias[b] = rig_alloc(&rig, sizeof(float) * count);
            for (uint32_t e = 0; e < count; e++)
                bias[b][e] = (float)((int)less(33) - 16) / 8;
        }
        /* Groups of numbers that exp makes could tie nearly, unless a bias keeps them apart. */
        const bool select = less(2);
        const uint32_t router = groups > 1 && !select ? EXPERTS_SOFTMAX_OF_CHOSEN : 1 + less(3);
        for (uint32_t e = 0; router != EXPERTS_SOFTMAX_OF_CHOSEN && e < count; e++)
            bias[1][e] = number() / 2;
        /* What is not a number makes a softmax none at all, and else is chosen last. */
        for (uint32_t i = 0; round % 5 == 0 && i < 3; i++)
            scores[less(tokens * ld)] = less(2) ? NAN : -INFINITY;
        const experts_choose_args a = {.scores = scores,
                                       .router_bias = less(2) ? bias[0] : NULL,
                                       .select_bias = select ? bias[1] : NULL,
                                       .chosen = rig_alloc(&rig, sizeof(u32) * tokens * can),
                                       .weights = rig_alloc(&rig, sizeof(float) * tokens * can),
                                       .tokens = tokens,
                                       .ld = ld,
                                       .count = count,
                                       .used = 1 + less(can),
                                       .router = router,
                                       .normed = less(2) || router == EXPERTS_SOFTMAX_OF_CHOSEN,
                                       .groups = groups,
                                       .groups_used = groups_used,
                                       .scale = 0.5f + (float)less(4)};
        launch(&rig, "experts", "experts_choose", div_up_of(tokens, EXPERTS_CHOOSE_TOKENS), 1,
               EXPERTS_CHOOSE_THREADS, 0, &a, sizeof a);
        for (uint32_t t = 0; t < tokens; t++)
            check_choice(&a, t);
        rig_close(&rig);
    }
}

/* ---- places ---- */

static void choose_any(u32 *chosen, uint32_t tokens, uint32_t used, uint32_t count, bool same)
{
    for (uint32_t t = 0; t < tokens; t++)
        for (uint32_t r = 0; r < used; r++) {
            bool again;
            do {
                again = false;
                chosen[t * used + r] = same ? r : less(count);
                for (uint32_t q = 0; q < r; q++)
                    again |= chosen[t * used + q] == chosen[t * used + r];
            } while (again);
        }
}

static experts_order_args order(cuda_rig *rig, uint32_t tokens, uint32_t real, uint32_t used,
                                uint32_t count, uint32_t width, const u32 *chosen)
{
    const uint32_t most = experts_most_tiles(tokens, used, count, width);
    u32 *num = rig_alloc(rig, sizeof *num);
    *num = real;
    const experts_order_args a = {.chosen = chosen,
                                  .num_tokens = num,
                                  .tiles = rig_alloc(rig, most * sizeof(expert_tile)),
                                  .num_tiles = rig_alloc(rig, sizeof(u32)),
                                  .row_of = rig_alloc(rig, sizeof(u32) * most * width),
                                  .place_of = rig_alloc(rig, sizeof(u32) * tokens * used),
                                  .tokens = tokens,
                                  .used = used,
                                  .count = count,
                                  .width = width,
                                  .threads = 32 * (1 + less(EXPERTS_ORDER_THREADS / 32))};
    launch(rig, "experts", "experts_order", 1, 1, a.threads, 0, &a, sizeof a);
    CHECK(*a.num_tiles <= most);
    return a;
}

/* Every choice has a place of its expert's, in order of tokens; the rest of a tile is nobody's. */
static void check_order(const experts_order_args *a)
{
    const uint32_t real = *a->num_tokens;
    uint32_t place = 0, tile = 0;
    for (uint32_t e = 0; e < a->count; e++) {
        uint32_t n = 0;
        place = tile * a->width;
        for (uint32_t pair = 0; pair < real * a->used; pair++) {
            if (a->chosen[pair] != e) continue;
            CHECKF(a->place_of[pair] == place + n, "pair %u: %u\n", pair, a->place_of[pair]);
            CHECK(a->row_of[place + n++] == pair / a->used);
        }
        for (uint32_t at = 0; at < n; at += a->width, tile++)
            CHECK(a->tiles[tile].expert == e && a->tiles[tile].count == RAD_MIN(n - at, a->width));
        for (; n % a->width; n++)
            CHECK(a->row_of[place + n] == EXPERTS_NONE);
    }
    CHECKF(*a->num_tiles == tile, "%u tiles, not %u\n", *a->num_tiles, tile);
    for (uint32_t pair = real * a->used; pair < a->tokens * a->used; pair++)
        CHECK(a->place_of[pair] == EXPERTS_NONE);
}

TEST(every_choice_has_a_place_among_its_experts)
{
    state = test_told_seed();
    for (uint32_t round = 0; round < test_scale(30, 300); round++) {
        cuda_rig rig = rig_open();
        const uint32_t tokens = 1 + less(round % 6 ? 20 : 150), count = 1 + less(EXPERTS_MOST);
        const uint32_t used = 1 + less(RAD_MIN(count, round % 3 ? 8u : 32u));
        u32 *chosen = rig_alloc(&rig, sizeof(u32) * tokens * used);
        choose_any(chosen, tokens, used, count, round % 4 == 1);
        const experts_order_args a = order(&rig, tokens, less(3) ? tokens : less(tokens + 1), used,
                                           count, 8u << less(4), chosen);
        check_order(&a);
        rig_close(&rig);
    }
}

/* ---- products and the sum ---- */

/* Numbers of (token, expert, row): whatever tile they were in, the first one's bits (known NULL:
 * rows are places', and may differ). */
static void check_products(const experts_order_args *o, const gemm_experts_args *a, float *seen,
                           bool *known)
{
    for (uint32_t place = 0; place < *o->num_tiles * o->width; place++) {
        const uint32_t token = o->row_of[place], e = o->tiles[place / o->width].expert;
        if (token == EXPERTS_NONE) continue;
        for (uint32_t r = 0; r < a->n_out; r++) {
            const float got = ((float *)a->out)[(size_t)place * a->ld_out + r];
            const size_t at = ((size_t)token * o->count + e) * a->n_out + r;
            const uint16_t *x = a->x + (size_t)(a->gathered ? token : place) * a->k;
            double sum = 0;
            for (uint32_t k = 0; k < a->k; k++)
                sum += (double)bf16_to_f32(a->w[(size_t)e * (a->w_bytes / 2) + r * a->k + k]) *
                       (double)bf16_to_f32(x[k]);
            CHECKF(fabs(sum - (double)got) < 1e-3, "place %u: %g for %g\n", place, (double)got,
                   sum);
            if (!known) continue;
            CHECKF(!known[at] || seen[at] == got, "width %u has other bits\n", o->width);
            seen[at] = got, known[at] = true;
        }
    }
}

static void run_products(cuda_rig *rig, const char *kernel_of_plan, const gemm_experts_args *args,
                         uint32_t width, uint32_t most_tiles, bool many)
{
    const cuda_gemm_room room = {many ? 3 : 1, 227 << 10};
    gemm_experts_args a = *args;
    const cuda_gemm_plan plan =
        cuda_gemm_tiles_plan(CUDA_GEMM_BF16, a.n, a.k, width, most_tiles, room);
    a.warps = plan.warps, a.stages = plan.stages;
    launch(rig, kernel_of_plan, plan.kernel, plan.grid, 1, plan.threads, plan.shared_bytes, &a,
           sizeof a);
}

TEST(products_by_tiles_have_the_same_bits_in_tiles_of_any_width)
{
    enum { TOKENS = 9, COUNT = 4, USED = 2, N = 48, K = 192 };
    static float seen[TOKENS * COUNT * N];
    static bool known[TOKENS * COUNT * N];
    state = test_told_seed();
    memset(known, 0, sizeof known);
    cuda_rig rig = rig_open();
    uint16_t *w = rig_alloc(&rig, sizeof *w * COUNT * N * K);
    uint16_t *x = rig_alloc(&rig, sizeof *x * TOKENS * K);
    u32 *chosen = rig_alloc(&rig, sizeof(u32) * TOKENS * USED);
    for (uint32_t i = 0; i < COUNT * N * K; i++)
        w[i] = bf16_from_f32(number() / 8);
    for (uint32_t i = 0; i < TOKENS * K; i++)
        x[i] = bf16_from_f32(number());
    const uint32_t keep = rig.num_buffers;
    for (uint32_t width = 8; width <= 64; width *= 2)
        for (int same = 0; same < 2; same++) {
            choose_any(chosen, TOKENS, USED, COUNT - 1, same); /* nobody has the last one */
            const experts_order_args o = order(&rig, TOKENS, TOKENS, USED, COUNT, width, chosen);
            const uint32_t most = experts_most_tiles(TOKENS, USED, COUNT, width);
            const gemm_experts_args a = {.w = w,
                                         .w_bytes = sizeof *w * N * K,
                                         .x = x,
                                         .out = rig_alloc(&rig, sizeof(float) * most * width * N),
                                         .by = {o.tiles, o.num_tiles, o.row_of, width, 0},
                                         .n = N,
                                         .n_out = N - 5,
                                         .k = K,
                                         .ld_out = N,
                                         .epilogue = GEMM_PARTS,
                                         .gathered = 1};
            run_products(&rig, "gemm_experts", &a, width, most, same);
            check_products(&o, &a, seen, known);
            rig_free(&rig, keep);
        }
    rig_close(&rig);
}

/* What the unit makes of gates and ups, in doubles. */
static double gated(double gate, double up, bool clamped)
{
    if (!clamped) return gate / (1 + exp(-gate)) * up;
    gate = fmin(gate, 7);
    up = fmax(fmin(up, 7), -7);
    return gate / (1 + exp(-1.702 * gate)) * (up + 1);
}

/* `a` made gates and ups of the sums in `parts`: 8 gates, their 8 ups, and so on. Nothing is
 * written where nobody has the place, or behind the last unit. */
static void check_gated(const experts_order_args *o, const gemm_experts_args *a, const float *parts)
{
    const uint32_t units = a->n / 2, half = a->n_bias / 2;
    for (uint32_t place = 0; place < *o->num_tiles * o->width; place++)
        for (uint32_t u = 0; u < a->ld_out; u++) {
            const uint16_t got = ((uint16_t *)a->out)[(size_t)place * a->ld_out + u];
            if (o->row_of[place] == EXPERTS_NONE || u >= units) {
                CHECKF(got == 0x7777, "place %u, %u: written\n", place, u);
                continue;
            }
            const float *sums = parts + (size_t)place * a->n + u / 8 * 16 + u % 8;
            const bool biased = a->bias && u < half;
            const float *bias = a->bias + o->tiles[place / o->width].expert * a->n_bias + u;
            const double want = gated((double)(sums[0] + (biased ? bias[0] : 0)),
                                      (double)(sums[8] + (biased ? bias[half] : 0)),
                                      a->epilogue == GEMM_SWIGLU_CLAMPED);
            CHECKF(fabs((double)bf16_to_f32(got) - want) <= fabs(want) / 256 + 1e-6,
                   "width %u, place %u, unit %u: %g for %g\n", o->width, place, u,
                   (double)bf16_to_f32(got), want);
        }
}

/* Of rows that are tokens' or places', with biases of the first units and without. Biases go far
 * beyond 7, where the clamped unit's gates and ups end. */
TEST(products_by_tiles_end_in_gated_units)
{
    enum { TOKENS = 9, COUNT = 4, USED = 2, N = 48, K = 192, N_BIAS = 42, LD = N / 2 + 2 };
    state = test_told_seed();
    for (uint32_t round = 0; round < 8; round++) {
        cuda_rig rig = rig_open();
        const uint32_t width = 8u << round / 2;
        const uint32_t most = experts_most_tiles(TOKENS, USED, COUNT, width);
        const uint32_t places = most * width; /* more than tokens */
        uint16_t *w = rig_alloc(&rig, sizeof *w * COUNT * N * K);
        uint16_t *x = rig_alloc(&rig, sizeof *x * places * K);
        float *bias = rig_alloc(&rig, sizeof(float) * COUNT * N_BIAS);
        u32 *chosen = rig_alloc(&rig, sizeof(u32) * TOKENS * USED);
        for (uint32_t i = 0; i < COUNT * N * K; i++)
            w[i] = bf16_from_f32(number() / 8);
        for (uint32_t i = 0; i < places * K; i++)
            x[i] = bf16_from_f32(number());
        for (uint32_t i = 0; i < COUNT * N_BIAS; i++)
            bias[i] = 12 * number();
        choose_any(chosen, TOKENS, USED, COUNT, false);
        const experts_order_args o = order(&rig, TOKENS, TOKENS, USED, COUNT, width, chosen);
        gemm_experts_args a = {.w = w,
                               .w_bytes = sizeof *w * N * K,
                               .x = x,
                               .out = rig_alloc(&rig, sizeof(float) * places * N),
                               .by = {o.tiles, o.num_tiles, o.row_of, width, 0},
                               .n = N,
                               .n_out = N,
                               .k = K,
                               .ld_out = N,
                               .epilogue = GEMM_PARTS,
                               .gathered = round % 2};
        run_products(&rig, "gemm_experts", &a, width, most, less(2));
        check_products(&o, &a, NULL, NULL);
        const float *parts = a.out;
        a.ld_out = LD;
        for (uint32_t form = 0; form < 4; form++) {
            a.epilogue = form & 1 ? GEMM_SWIGLU_CLAMPED : GEMM_SWIGLU;
            a.bias = form & 2 ? bias : NULL;
            a.n_bias = N_BIAS;
            a.out = rig_alloc(&rig, sizeof(uint16_t) * places * LD);
            memset(a.out, 0x77, sizeof(uint16_t) * places * LD);
            run_products(&rig, "gemm_experts", &a, width, most, less(2));
            check_gated(&o, &a, parts);
        }
        rig_close(&rig);
    }
}

TEST(a_sum_is_in_the_order_of_ranks)
{
    enum { TOKENS = 5, COUNT = 6, USED = 3, DIM = 70, LD = 72 };
    state = test_told_seed();
    for (uint32_t round = 0; round < 8; round++) {
        cuda_rig rig = rig_open();
        u32 *chosen = rig_alloc(&rig, sizeof(u32) * TOKENS * USED);
        choose_any(chosen, TOKENS, USED, COUNT, false);
        const experts_order_args o =
            order(&rig, TOKENS, TOKENS - round % 2, USED, COUNT, 8, chosen);
        const uint32_t places = 8 * experts_most_tiles(TOKENS, USED, COUNT, 8);
        float *down = rig_alloc(&rig, sizeof(float) * places * LD);
        float *bias = rig_alloc(&rig, sizeof(float) * COUNT * DIM);
        float *weights = rig_alloc(&rig, sizeof(float) * TOKENS * USED);
        float *scores = rig_alloc(&rig, sizeof(float) * TOKENS * (COUNT + 1));
        float *y = rig_alloc(&rig, sizeof(float) * 2 * TOKENS * LD), was[2 * TOKENS * LD];
        for (uint32_t i = 0; i < places * LD; i++)
            down[i] = number();
        for (uint32_t i = 0; i < COUNT * DIM; i++)
            bias[i] = number();
        for (uint32_t i = 0; i < TOKENS * USED; i++)
            weights[i] = number();
        for (uint32_t i = 0; i < TOKENS * (COUNT + 1); i++)
            scores[i] = number();
        for (uint32_t i = 0; i < 2 * TOKENS * LD; i++)
            was[i] = y[i] = number();
        const bool shared = round & 2;
        const experts_sum_args a = {.down = down,
                                    .bias = round & 4 ? bias : NULL,
                                    .chosen = chosen,
                                    .place_of = o.place_of,
                                    .weights = weights,
                                    .shared = shared ? y : NULL,
                                    .scores = scores,
                                    .y = y,
                                    .tokens = TOKENS,
                                    .dim = DIM,
                                    .used = USED,
                                    .count = COUNT,
                                    .ld_down = LD,
                                    .ld_y = LD,
                                    .ld_scores = COUNT + 1,
                                    .shared_parts = 2,
                                    .shared_gated = round & 1};
        launch(&rig, "experts", "experts_sum", TOKENS, experts_sum_blocks(DIM), EXPERTS_SUM_THREADS,
               0, &a, sizeof a);
        for (uint32_t t = 0; t < *o.num_tokens; t++)
            for (uint32_t d = 0; d < DIM; d++) {
                double sum = 0;
                for (uint32_t r = 0; r < USED; r++) {
                    const uint32_t pair = t * USED + r;
                    double said = (double)down[o.place_of[pair] * LD + d];
                    if (a.bias) said += (double)bias[chosen[pair] * DIM + d];
                    sum += (double)weights[pair] * said;
                }
                const double both = (double)was[t * LD + d] + (double)was[(TOKENS + t) * LD + d];
                const double by = 1 / (1 + exp(-(double)scores[t * (COUNT + 1) + COUNT]));
                if (shared) sum += a.shared_gated ? by * both : both;
                CHECKF(fabs(sum - (double)y[t * LD + d]) < 1e-5, "token %u, %u: %g for %g\n", t, d,
                       (double)y[t * LD + d], sum);
            }
        rig_close(&rig);
    }
}

TEST(plans_of_places_have_room_for_any_choice)
{
    for (uint32_t count = 1; count <= 128; count *= 4)
        for (uint32_t used = 1; used <= RAD_MIN(count, 8u); used++) {
            const cuda_experts_plan most = cuda_experts_most(300, used, count);
            for (uint32_t t = 1; t <= 300; t++) {
                const cuda_experts_plan p = cuda_experts_plan_of(t, used, count);
                CHECK(p.width >= 8 && p.width <= 64 && p.places == p.width * p.most_tiles);
                CHECK(p.places <= most.places && p.most_tiles <= most.most_tiles);
                /* All to one expert each rank; and as evenly as can be. */
                CHECK(used * div_up_of(t, p.width) <= p.most_tiles);
                CHECK(RAD_MIN(count, t * used) <= p.most_tiles);
            }
        }
}

TEST_MAIN()
