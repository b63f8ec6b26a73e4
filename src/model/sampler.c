/* sampler.c - filters as prefixes of one order, found by counting instead of sorting.
 *
 * Order the vocabulary by (logit down, id up). Then every filter keeps a prefix:
 * top_k the first k, top_p the shortest that holds its share of the mass that top_k
 * left, min_p all with p >= min_p * p(first). So the answer is the shortest of three
 * prefixes, and its end is all that has to be found:
 *
 *     x = (logit - max) / T    0 ............................ CUTOFF
 *     buckets of equal width   |  |  |  | B|  |  |  |  |  |  |  |
 *                              | all in | ?| all out
 *
 * A histogram over x (count and mass of each bucket) tells the bucket B in which the
 * prefix ends; what is before it is in, and only the few inside it are put in order,
 * by a quickselect that weighs the parts. Should all lie in one bucket, that is
 * still expected O(n). Weights are e^x; what lies below e^-40 of the best is left
 * out at once: a whole vocabulary of it weighs less than the resolution of the random
 * number.
 *
 * The draw walks what was kept. Its order is a function of the logits alone (also
 * the pivots are), and ops has one e^x for all machines, so the same logits, seed and
 * position give the same token everywhere. */
#include "model/sampler.h"

#include "base/base.h"
#include "base/mix64.h"
#include "model/ops.h"

#include <math.h>

enum { BUCKETS = 1024, BLOCK = 256, ARGMAX_BLOCK = 1024 };
static const float CUTOFF = -40.0f;

/* Tokens that may be chosen, in no order. Both arrays lie in the caller's scratch. */
typedef struct candidates {
    float *x;
    uint32_t *id;
    uint32_t count;
} candidates;

/* Where a prefix ends: everything before `bucket` is in, and of those in it as many
 * as it takes to reach max_count or `mass`. */
typedef struct cut {
    uint32_t bucket;
    uint32_t max_count;
    double mass;
} cut;

typedef struct source { /* what x is computed from */
    const float *logits;
    uint32_t vocab_size;
    float max, temperature;
    const model_ops *ops;
} source;

/* The smallest id with the largest logit; -1 when all are NaN. Which block has it is known
 * when its size is, so that one is all that is looked through. */
static rad_token argmax(const model_ops *ops, const float *logits, uint32_t vocab_size)
{
    float max = -INFINITY;
    uint32_t at = 0, end = vocab_size; /* all, where nothing is more than minus infinity */
    for (uint32_t first = 0; first < vocab_size; first += ARGMAX_BLOCK) {
        uint32_t n = RAD_MIN((uint32_t)ARGMAX_BLOCK, vocab_size - first);
        float most = ops->max(logits + first, n);
        if (!(most > max)) continue;
        max = most;
        at = first;
        end = first + n;
    }
    for (; at < end; at++)
        if (logits[at] == max) return (rad_token)at;
    return -1;
}

/* x of tokens [first, first + n), n <= BLOCK; returns n. NaN stays NaN and fails every
 * test, and an infinite maximum leaves only its equals. */
static uint32_t x_of(const source *s, uint32_t first, float x[BLOCK])
{
    uint32_t n = RAD_MIN((uint32_t)BLOCK, s->vocab_size - first);
    s->ops->scale_logits(x, s->logits + first, s->max, s->temperature, n);
    return n;
}

/* Grows with falling x; `x` is in [CUTOFF, 0]. */
static inline uint32_t bucket_of(float x)
{
    return (uint32_t)(x * ((BUCKETS - 1) / CUTOFF));
}

/* ---- where the prefix ends ---- */

/* The bucket in which the first max_count tokens, or `share` of the mass, end. */
static cut find_cut(const source *s, uint32_t max_count, double share)
{
    uint32_t count[BUCKETS] = {0};
    double mass[BUCKETS] = {0}, total = 0;
    float x[BLOCK], weight[BLOCK];
    for (uint32_t first = 0; first < s->vocab_size; first += BLOCK) {
        uint32_t n = x_of(s, first, x);
        if (share < 1) s->ops->exps(weight, x, n);
        for (uint32_t i = 0; i < n; i++) {
            if (!(x[i] >= CUTOFF)) continue;
            uint32_t b = bucket_of(x[i]);
            count[b]++;
            if (share < 1) mass[b] += (double)weight[i];
        }
    }
    for (uint32_t b = 0; b < BUCKETS; b++)
        total += mass[b];

    cut c = {.max_count = max_count, .mass = share < 1 ? share * total : INFINITY};
    while (c.bucket < BUCKETS - 1 && c.max_count > count[c.bucket] && c.mass > mass[c.bucket]) {
        c.max_count -= count[c.bucket];
        c.mass -= mass[c.bucket++];
    }
    return c;
}

/* Appends the tokens of buckets [from, to) whose x is at least `least`. Which ones they
 * are cannot be predicted, so a block is picked without branches, then appended. */
static void gather(const source *s, uint32_t from, uint32_t to, float least, candidates *c)
{
    float x[BLOCK];
    uint32_t id[BLOCK];
    for (uint32_t first = 0; first < s->vocab_size; first += BLOCK) {
        uint32_t n = x_of(s, first, x), picked = 0;
        for (uint32_t i = 0; i < n; i++) {
            float at = x[i];
            bool enough = at >= least;
            uint32_t b = bucket_of(enough ? at : 0);
            x[picked] = at;
            id[picked] = first + i;
            picked += enough & (b >= from) & (b < to);
        }
        memcpy(c->x + c->count, x, picked * sizeof *x);
        memcpy(c->id + c->count, id, picked * sizeof *id);
        c->count += picked;
    }
}

/* ---- a few candidates in order ---- */

static inline bool before(const candidates *c, uint32_t i, float x, uint32_t id)
{
    return c->x[i] > x || (c->x[i] == x && c->id[i] < id);
}

static inline void swap(const candidates *c, uint32_t i, uint32_t j)
{
    float x = c->x[i];
    uint32_t id = c->id[i];
    c->x[i] = c->x[j], c->id[i] = c->id[j];
    c->x[j] = x, c->id[j] = id;
}

static double mass_of(const source *s, const candidates *c, uint32_t from, uint32_t to)
{
    double mass = 0;
    float weight[BLOCK];
    for (uint32_t first = from; first < to; first += BLOCK) {
        uint32_t n = RAD_MIN((uint32_t)BLOCK, to - first);
        s->ops->exps(weight, c->x + first, n);
        for (uint32_t i = 0; i < n; i++)
            mass += (double)weight[i];
    }
    return mass;
}

/* Moves the tokens that come first to the front of [lo, count) and forgets the others: the
 * fewest that are max_count or weigh `mass`. Expected O(count - lo); the pivot is drawn
 * by a hash, so that no arrangement of the logits is a bad one. */
static void select_first(const source *s, candidates *c, uint32_t lo, uint32_t max_count,
                         double mass)
{
    uint32_t hi = c->count; /* [.., lo) is in, [hi, ..) is out */
    uint64_t end = (uint64_t)lo + max_count;
    while (lo < hi && lo < end && mass > 0) {
        swap(c, lo, lo + (uint32_t)(mix64(((uint64_t)lo << 32) | hi) % (hi - lo)));
        float x = c->x[lo];
        uint32_t id = c->id[lo], mid = lo; /* (lo, mid] come before the pivot */
        for (uint32_t i = lo + 1; i < hi; i++)
            if (before(c, i, x, id)) swap(c, ++mid, i);
        swap(c, lo, mid);
        double ahead = isinf(mass) ? 0 : mass_of(s, c, lo, mid);
        if (mid >= end || ahead >= mass) {
            hi = mid; /* the pivot is past the end already */
        } else {
            mass -= ahead + (isinf(mass) ? 0 : mass_of(s, c, mid, mid + 1));
            lo = mid + 1;
        }
    }
    c->count = lo;
}

static void keep_at_least(candidates *c, float least)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        c->x[kept] = c->x[i];
        c->id[kept] = c->id[i];
        kept += c->x[i] >= least;
    }
    c->count = kept;
}

/* ---- the draw ---- */

/* [0, 1), 53 bits. */
static double uniform(uint64_t seed, uint32_t position)
{
    return (double)(mix64(mix64(seed) + position) >> 11) * 0x1p-53;
}

static rad_token draw(const source *s, const candidates *c, double u)
{
    double left = u * mass_of(s, c, 0, c->count);
    float weight[BLOCK];
    for (uint32_t first = 0; first < c->count; first += BLOCK) {
        uint32_t n = RAD_MIN((uint32_t)BLOCK, c->count - first);
        s->ops->exps(weight, c->x + first, n);
        for (uint32_t i = 0; i < n; i++) {
            left -= (double)weight[i];
            if (left < 0) return (rad_token)c->id[first + i];
        }
    }
    return (rad_token)c->id[c->count - 1]; /* u close to 1 and a rounding */
}

rad_token sampler_sample(const float *logits, uint32_t vocab_size, const sampling_params *params,
                         uint32_t position, void *scratch)
{
    const model_ops *ops = model_ops_find(NULL);
    rad_token best = argmax(ops, logits, vocab_size);
    if (best < 0 || params->temperature < SAMPLER_GREEDY_BELOW || params->top_k == 1) return best;

    const source s = {logits, vocab_size, logits[best], params->temperature, ops};
    candidates c = {.x = scratch, .id = (uint32_t *)scratch + vocab_size};
    bool top_k = params->top_k > 0 && (uint32_t)params->top_k < vocab_size;
    bool top_p = params->top_p < 1;
    float least = params->min_p > 0 ? RAD_MAX(logf(params->min_p), CUTOFF) : CUTOFF;

    if (top_k || top_p) {
        /* top_p counts its share of what top_k left, so top_k goes first. */
        cut end = find_cut(&s, top_k ? (uint32_t)params->top_k : UINT32_MAX,
                           top_k ? 1 : (double)params->top_p);
        gather(&s, 0, end.bucket, CUTOFF, &c);
        uint32_t in = c.count;
        gather(&s, end.bucket, end.bucket + 1, CUTOFF, &c);
        select_first(&s, &c, in, end.max_count, end.mass);
        if (top_k && top_p)
            select_first(&s, &c, 0, UINT32_MAX,
                         (double)params->top_p * mass_of(&s, &c, 0, c.count));
        if (params->min_p > 0) keep_at_least(&c, least);
    } else {
        gather(&s, 0, BUCKETS, least, &c);
    }
    return draw(&s, &c, uniform(params->seed, position));
}
