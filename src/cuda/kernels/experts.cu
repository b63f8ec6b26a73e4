/* experts.cu - which experts each token uses, where its rows lie among theirs, and the sum of what
 * they say (experts_args.h). The router's numbers decide what else is computed, so they are f32. */
#define ONE_FORM
#include "cuda/kernels/experts_args.h"
#include "cuda/kernels/glu.h"
#include "cuda/kernels/vectors.h"
#include "device/kernels/dialect.h"

INLINE float sum_of_warp(float sum)
{
    UNROLL
    for (u32 apart = 16; apart; apart /= 2)
        sum += shuffle_xor(sum, apart);
    return sum;
}

/* ---- scores ---- */

INLINE u32 score_rows(const experts_scores_args *a)
{
    return a->count + (a->shared_gate ? 1 : 0);
}
/* The last one past the end. */
INLINE const float *router_row(const experts_scores_args *a, u32 row)
{
    if (row < a->count) return a->router + (u64)row * a->dim;
    return a->shared_gate ? a->shared_gate : a->router + (u64)(a->count - 1) * a->dim;
}
INLINE const float *token_row(const experts_scores_args *a, u32 token)
{
    return a->x + (u64)(token < a->tokens ? token : a->tokens - 1) * a->dim;
}
INLINE float add_products(float sum, const float x[4], const float w[4])
{
    UNROLL
    for (int e = 0; e < 4; e++)
        sum = FMA(x[e], w[e], sum);
    return sum;
}

/* A warp has one row and all tokens of the block; most of its row is on its way before anything
 * waits. */
INLINE void score_few(const experts_scores_args *a, const int whole)
{
    enum { TOKENS = EXPERTS_SCORES_TOKENS, EARLY = 8 };
    const u32 row = BLOCK_X * EXPERTS_SCORES_ROWS + WARP, token = BLOCK_Y * TOKENS, n = a->dim;
    const float *router = router_row(a, row);
    float w[EARLY][4], sum[TOKENS] = {0};
    launch_next();
    for (u32 first = 4 * LANE; first < n || first == 4 * LANE; first += EARLY * 128) {
        UNROLL
        for (u32 i = 0; i < EARLY; i++)
            if (first + i * 128 < n) load4(w[i], router, first + i * 128, n, whole);
        if (first == 4 * LANE) wait_previous();
        UNROLL
        for (u32 i = 0; i < EARLY; i++)
            if (first + i * 128 < n) {
                UNROLL
                for (u32 t = 0; t < TOKENS; t++) {
                    float x[4];
                    read4(x, token_row(a, token + t), first + i * 128, n, whole);
                    sum[t] = add_products(sum[t], x, w[i]);
                }
            }
    }
    UNROLL
    for (u32 t = 0; t < TOKENS; t++) {
        sum[t] = sum_of_warp(sum[t]);
        if (LANE == 0 && row < score_rows(a) && token + t < a->tokens)
            a->scores[(u64)(token + t) * a->ld + row] = sum[t];
    }
}

KERNEL(experts_scores, EXPERTS_SCORES_THREADS, experts_scores_args)
{
    if (a.dim % 4 == 0 && aligned16((u64)a.router | (u64)a.shared_gate | (u64)a.x))
        score_few(&a, 1);
    else
        score_few(&a, 0);
}

/* Of 2 * apart sums a lane keeps those of its half, with what the lane `apart` of it has of
 * them. */
INLINE void halve(float *sum, const u32 apart)
{
    const int upper = (LANE & apart) != 0;
    UNROLL
    for (u32 s = 0; s < apart; s++) {
        const float low = sum[s], high = sum[s + apart];
        sum[s] = (upper ? high : low) + shuffle_xor(upper ? low : high, apart);
    }
}

/* For many tokens: a warp has 4 rows and 8 tokens. Each addition of the tree is made by one lane of
 * two: a + b has the bits of b + a, so the sums are score_few's. Lane l is left with row l / 8 and
 * token l % 8. */
INLINE void score_many(const experts_scores_args *a, const int whole)
{
    enum { ROWS = 4, TOKENS = 8, SUMS = ROWS * TOKENS };
    const u32 row = BLOCK_X * EXPERTS_SCORES_MANY_ROWS + WARP / 2 * ROWS, n = a->dim;
    const u32 token = BLOCK_Y * EXPERTS_SCORES_MANY_TOKENS + WARP % 2 * TOKENS;
    const float *router[ROWS], *tokens[TOKENS];
    float sum[SUMS] = {0};
    launch_next();
    UNROLL
    for (u32 r = 0; r < ROWS; r++)
        router[r] = router_row(a, row + r);
    UNROLL
    for (u32 t = 0; t < TOKENS; t++)
        tokens[t] = token_row(a, token + t);
    wait_previous();
    ROLLED
    for (u32 at = 4 * LANE; at < n; at += 128) {
        float w[ROWS][4];
        UNROLL
        for (u32 r = 0; r < ROWS; r++)
            read4(w[r], router[r], at, n, whole);
        UNROLL
        for (u32 t = 0; t < TOKENS; t++) {
            float x[4];
            read4(x, tokens[t], at, n, whole);
            UNROLL
            for (u32 r = 0; r < ROWS; r++)
                sum[r * TOKENS + t] = add_products(sum[r * TOKENS + t], x, w[r]);
        }
    }
    halve(sum, 16);
    halve(sum, 8);
    halve(sum, 4);
    halve(sum, 2);
    halve(sum, 1);
    const u32 r = row + LANE / TOKENS, t = token + LANE % TOKENS;
    if (r < score_rows(a) && t < a->tokens) a->scores[(u64)t * a->ld + r] = sum[0];
}

KERNEL(experts_scores_many, EXPERTS_SCORES_MANY_THREADS, experts_scores_args)
{
    if (a.dim % 4 == 0 && aligned16((u64)a.router | (u64)a.shared_gate | (u64)a.x))
        score_many(&a, 1);
    else
        score_many(&a, 0);
}

/* ---- choices ---- */

/* What a warp finds: the largest number and whose it is. */
typedef struct best {
    float most;
    u32 id;
} best;

INLINE best best_of_warp(best b)
{
    UNROLL
    for (u32 apart = 16; apart; apart /= 2) {
        const float most = shuffle_xor(b.most, apart);
        const u32 id = shuffle_xor_u32(b.id, apart);
        if (most > b.most || (most == b.most && id < b.id)) b.most = most, b.id = id;
    }
    return b;
}
INLINE u32 lowest_of_warp(u32 id)
{
    UNROLL
    for (u32 apart = 16; apart; apart /= 2) {
        const u32 other = shuffle_xor_u32(id, apart);
        id = other < id ? other : id;
    }
    return id;
}

/* A token's scores: lane l has those of experts l, l + 32, ... and what they are chosen by. */
enum {
    EACH = EXPERTS_MOST / 32,
    NUMBERS = EXPERTS_MOST + EXPERTS_MOST / 2 /* and groups, of two experts at least */
};

/* Scores become what the router's kind says. */
INLINE void make_scores(const experts_choose_args *a, float score[EACH])
{
    if (a->router == EXPERTS_SOFTMAX) {
        float max = NEG_INFINITY, sum = 0;
        UNROLL
        for (u32 i = 0; i < EACH; i++)
            max = larger(max, score[i]);
        UNROLL
        for (u32 apart = 16; apart; apart /= 2)
            max = larger(max, shuffle_xor(max, apart));
        UNROLL
        for (u32 i = 0; i < EACH; i++)
            if (LANE + 32 * i < a->count) sum += score[i] = exp_clamped(score[i] - max);
        sum = sum_of_warp(sum);
        UNROLL
        for (u32 i = 0; i < EACH; i++)
            score[i] = divide(score[i], sum);
    } else if (a->router == EXPERTS_SIGMOID) {
        UNROLL
        for (u32 i = 0; i < EACH; i++)
            score[i] = divide(1.0f, 1.0f + exp_clamped(-score[i]));
    }
}

/* DeepSeek-V3: a group is worth what its two best experts are. One of which nothing can be compared
 * is out of this: NaN. */
INLINE float worth_of(const float *by, u32 first, u32 size)
{
    float most = NEG_INFINITY, second = NEG_INFINITY;
    for (u32 e = first; e < first + size; e++) {
        const float v = by[e];
        if (v > most)
            second = most, most = v;
        else if (v > second)
            second = v;
    }
    return most == NEG_INFINITY ? bits_float(0x7fc00000) : most + second;
}

/* Experts of the worst groups (of equal ones the last) are worth nothing any more. `numbers` is the
 * warp's: what is chosen by, then groups' worth. */
INLINE void keep_best_groups(const experts_choose_args *a, float by[EACH], float *numbers)
{
    const u32 size = a->count / a->groups;
    float *worth = numbers + EXPERTS_MOST;
    UNROLL
    for (u32 i = 0; i < EACH; i++)
        numbers[LANE + 32 * i] = by[i];
    sync_warp();
    for (u32 g = LANE; g < a->groups; g += 32)
        worth[g] = worth_of(numbers, g * size, size);
    for (u32 left = a->groups - a->groups_used; left; left--) {
        /* The best of what is negative and counted from behind is the worst; a lane reads and
         * writes its own groups alone. */
        best b = {NEG_INFINITY, EXPERTS_NONE};
        for (u32 g = LANE; g < a->groups; g += 32)
            if (-worth[g] >= b.most) b.most = -worth[g], b.id = EXPERTS_MOST - g;
        b = best_of_warp(b);
        const u32 g = EXPERTS_MOST - b.id;
        if (b.id != EXPERTS_NONE && g % 32 == LANE) worth[g] = bits_float(0x7fc00001); /* is out */
    }
    sync_warp();
    UNROLL
    for (u32 i = 0; i < EACH; i++) {
        const u32 e = LANE + 32 * i;
        if (e < a->count && float_bits(worth[e / size]) == 0x7fc00001) by[i] = NEG_INFINITY;
    }
}

/* Chooses and weighs: lane r writes what is of rank r. */
INLINE void choose(const experts_choose_args *a, u32 token, const float score[EACH], float by[EACH])
{
    u32 taken = 0, expert = 0; /* a bit for each of the lane's experts */
    float weight = 0, first = 0, sum = 0;
    UNROLL
    for (u32 i = 0; i < EACH; i++)
        taken |= (LANE + 32 * i >= a->count) << i;
    for (u32 r = 0; r < a->used; r++) {
        best b = {NEG_INFINITY, EXPERTS_NONE};
        UNROLL
        for (u32 i = 0; i < EACH; i++)
            if (by[i] > b.most) b.most = by[i], b.id = LANE + 32 * i;
        b = best_of_warp(b);
        if (b.id == EXPERTS_NONE) {
            UNROLL
            for (u32 i = 0; i < EACH; i++)
                if (b.id == EXPERTS_NONE && !(taken >> i & 1)) b.id = LANE + 32 * i;
            b.id = lowest_of_warp(b.id);
        }
        float of_best = 0;
        UNROLL
        for (u32 i = 0; i < EACH; i++)
            if (b.id == LANE + 32 * i) {
                of_best = score[i];
                by[i] = NEG_INFINITY;
                taken |= 1u << i;
            }
        of_best = bits_float(shuffle_u32(float_bits(of_best), b.id & 31));
        if (r == 0) first = of_best; /* the largest */
        if (LANE == r) weight = of_best, expert = b.id;
    }
    if (a->router == EXPERTS_SOFTMAX_OF_CHOSEN) weight = exp_clamped(weight - first);
    for (u32 r = 0; r < a->used; r++)
        sum += bits_float(shuffle_u32(float_bits(weight), r));
    /* Sigmoids can all be next to nothing: f16's smallest normal number is enough to divide by. */
    const float divisor = !a->normed ? 1.0f : sum > 0x1p-14f ? sum : 0x1p-14f;
    if (LANE >= a->used) return;
    a->chosen[(u64)token * a->used + LANE] = expert;
    a->weights[(u64)token * a->used + LANE] = divide(weight, divisor) * a->scale;
}

INLINE void choose_token(const experts_choose_args *a, u32 token, float *numbers)
{
    const float *row = a->scores + (u64)token * a->ld;
    float score[EACH], by[EACH];
    UNROLL
    for (u32 i = 0; i < EACH; i++) {
        const u32 e = LANE + 32 * i;
        score[i] = e < a->count ? row[e] : NEG_INFINITY;
        if (a->router_bias && e < a->count) score[i] += a->router_bias[e];
    }
    make_scores(a, score);
    UNROLL
    for (u32 i = 0; i < EACH; i++) {
        const u32 e = LANE + 32 * i;
        by[i] = e < a->count ? score[i] : NEG_INFINITY;
        if (a->select_bias && e < a->count) by[i] += a->select_bias[e];
    }
    if (a->groups > a->groups_used) keep_best_groups(a, by, numbers);
    choose(a, token, score, by);
}

KERNEL(experts_choose, EXPERTS_CHOOSE_THREADS, experts_choose_args)
{
    SHARED float numbers[EXPERTS_CHOOSE_TOKENS][NUMBERS];
    const u32 token = BLOCK_X * EXPERTS_CHOOSE_TOKENS + WARP;
    launch_next();
    wait_previous();
    if (token < a.tokens) choose_token(&a, token, numbers[WARP]);
}

/* ---- places ---- */

enum { ORDER_WARPS = EXPERTS_ORDER_THREADS / 32 };

/* What a warp does with each choice of its tokens, in their order: counts it, or gives it a place
 * behind those counted before. A token's experts differ, so its lanes touch numbers of their own;
 * the tokens of a round take turns. */
INLINE void go_through(const experts_order_args *a, u32 tokens, u32 *next /* [count] */,
                       const u32 *first_place /* NULL: counts */)
{
    const u32 per_warp = div_up(tokens, a->threads / 32), together = 32 / a->used;
    const u32 begin = WARP * per_warp, end = begin + per_warp < tokens ? begin + per_warp : tokens;
    const u32 turn = LANE / a->used;
    ROLLED
    for (u32 t = begin; t < end; t += together) {
        const u64 pair = (u64)t * a->used + LANE;
        const int mine = turn < together && t + turn < end;
        const u32 expert = mine ? a->chosen[pair] : 0;
        u32 place = 0;
        ROLLED
        for (u32 of = 0; of < together; of++) {
            if (mine && turn == of) place = next[expert]++;
            sync_warp();
        }
        if (!mine || !first_place) continue;
        place += first_place[expert];
        a->row_of[place] = t + turn;
        a->place_of[pair] = place;
    }
}

/* The sum of `mine` of the threads before this one; *all: of all of them. */
INLINE u32 sum_before(u32 mine, u32 *warp_sums, u32 warps, u32 *all)
{
    u32 sum = mine, before = 0, total = 0;
    UNROLL
    for (u32 apart = 1; apart < 32; apart *= 2) {
        const u32 other = shuffle_u32(sum, (LANE - apart) & 31);
        if (LANE >= apart) sum += other;
    }
    if (LANE == 31) warp_sums[WARP] = sum;
    SYNC_BLOCK();
    for (u32 w = 0; w < warps; w++) {
        if (w < WARP) before += warp_sums[w];
        total += warp_sums[w];
    }
    *all = total;
    return before + sum - mine;
}

/* Tiles of one expert, from tile `tile` on. */
INLINE void write_tiles(const experts_order_args *a, u32 expert, u32 tile, u32 count)
{
    for (u32 at = 0; at < count; at += a->width) {
        const u32 left = count - at;
        a->tiles[tile++] = (expert_tile){expert, left < a->width ? left : a->width};
    }
    for (u32 at = count; at % a->width; at++) /* what the last tile lacks */
        a->row_of[(tile - 1) * a->width + at % a->width] = EXPERTS_NONE;
}

KERNEL(experts_order, EXPERTS_ORDER_THREADS, experts_order_args)
{
    SHARED u32 counts[ORDER_WARPS][EXPERTS_MOST]; /* by warp; then, of the warps before it */
    SHARED u32 first_place[EXPERTS_MOST];
    SHARED u32 warp_sums[ORDER_WARPS];
    const u32 warps = a.threads / 32, each = div_up(a.count, a.threads);
    const u32 first = THREAD_X * each, end = first + each < a.count ? first + each : a.count;
    launch_next();
    for (u32 e = LANE; e < a.count; e += 32)
        counts[WARP][e] = 0;
    sync_warp();
    wait_previous();
    const u32 tokens = *a.num_tokens;
    go_through(&a, tokens, counts[WARP], 0);
    SYNC_BLOCK();
    u32 tiles = 0, num_tiles;
    for (u32 e = first; e < end; e++) {
        u32 sum = 0;
        for (u32 w = 0; w < warps; w++) {
            const u32 of_warp = counts[w][e];
            counts[w][e] = sum;
            sum += of_warp;
        }
        first_place[e] = sum; /* how many, until the tiles before are known */
        tiles += div_up(sum, a.width);
    }
    u32 tile = sum_before(tiles, warp_sums, warps, &num_tiles);
    for (u32 e = first; e < end; e++) {
        const u32 count = first_place[e];
        write_tiles(&a, e, tile, count);
        first_place[e] = tile * a.width;
        tile += div_up(count, a.width);
    }
    if (THREAD_X == 0) *a.num_tiles = num_tiles;
    SYNC_BLOCK();
    go_through(&a, tokens, counts[WARP], first_place);
    for (u32 pair = tokens * a.used + THREAD_X; pair < a.tokens * a.used; pair += a.threads)
        a.place_of[pair] = EXPERTS_NONE;
}

/* ---- the sum ---- */

/* Four numbers a thread; eight ranks' are on their way together. */
INLINE void sum_token(const experts_sum_args *a, const int whole)
{
    enum { TOGETHER = 8 };
    launch_next();
    wait_previous();
    const u32 at = 4 * (BLOCK_Y * EXPERTS_SUM_THREADS + THREAD_X), n = a->dim, t = BLOCK_X;
    if (at >= n) return;
    const u64 pairs = (u64)t * a->used;
    float sum[4] = {0};
    ROLLED
    for (u32 first = 0; first < a->used; first += TOGETHER) {
        float said[TOGETHER][4];
        UNROLL
        for (u32 r = 0; r < TOGETHER; r++) {
            const u32 place = first + r < a->used ? a->place_of[pairs + first + r] : EXPERTS_NONE;
            said[r][0] = said[r][1] = said[r][2] = said[r][3] = 0;
            if (place != EXPERTS_NONE)
                read4(said[r], a->down + (u64)place * a->ld_down, at, n, whole);
        }
        UNROLL
        for (u32 r = 0; r < TOGETHER; r++) {
            if (first + r >= a->used) continue;
            const float weight = a->weights[pairs + first + r];
            if (a->bias) {
                float bias[4];
                load4(bias, a->bias + (u64)a->chosen[pairs + first + r] * n, at, n, whole);
                add4(said[r], bias);
            }
            UNROLL
            for (int e = 0; e < 4; e++)
                sum[e] = FMA(weight, said[r][e], sum[e]);
        }
    }
    float *y = a->y + (u64)t * a->ld_y;
    if (a->shared) {
        float shared[4], by = 1;
        add_parts(shared, a->shared + (u64)t * a->ld_y, (u64)a->tokens * a->ld_y, a->shared_parts,
                  at, n, whole);
        if (a->shared_gated)
            by = divide(1.0f, 1.0f + exp_clamped(-a->scores[(u64)t * a->ld_scores + a->count]));
        UNROLL
        for (int e = 0; e < 4; e++)
            sum[e] = FMA(by, shared[e], sum[e]);
    }
    write4(y, at, n, whole, sum);
}

KERNEL(experts_sum, EXPERTS_SUM_THREADS, experts_sum_args)
{
    if ((a.dim | a.ld_down | a.ld_y) % 4 == 0 &&
        aligned16((u64)a.down | (u64)a.bias | (u64)a.shared | (u64)a.y))
        sum_token(&a, 1);
    else
        sum_token(&a, 0);
}
