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
 * still expected O(n). The draw is a prefix too: the shortest that holds a random share
 * of what was kept; its last token is the one.
 *
 * Masses are whole numbers, e^x in units of 2^-bits with bits as many as 64 leave for the
 * sum of a whole vocabulary (45 for 152k words), the rest cut off. So sums do not depend on
 * their order, and whoever finds the prefixes otherwise (sorting, on a GPU) chooses the same
 * token. ops has one e^x for all machines: the same logits, seed and position give the same
 * token everywhere. What lies below e^-40 of the best is left out at once. */
#include "model/sampler.h"

#include "base/base.h"
#include "base/mix64.h"
#include "model/ops.h"

#include <math.h>

/* FEW: so many candidates are put in order without a histogram. */
enum { BUCKETS = 1024, BLOCK = 256, ARGMAX_BLOCK = 1024, FEW = 2048 };
static const float CUTOFF = SAMPLER_CUTOFF;

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
    uint64_t mass;
} cut;

static const uint32_t ANY_COUNT = UINT32_MAX;
static const uint64_t ANY_MASS = UINT64_MAX;

typedef struct histogram {
    uint32_t count[BUCKETS];
    uint64_t mass[BUCKETS];
} histogram;

typedef struct source { /* what x is computed from */
    const float *logits;
    uint32_t vocab_size;
    float max, temperature, unit; /* unit: a mass is e^x times this */
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

/* ---- masses ---- */

static inline uint64_t mass_of_weight(const source *s, float weight)
{
    return (uint64_t)(int64_t)(weight * s->unit); /* exact but for the cut */
}

/* `share` (of 2^64) of a mass, rounded up. */
static uint64_t share_of(uint64_t share, uint64_t mass)
{
    const unsigned __int128 product = (unsigned __int128)share * mass;
    return (uint64_t)(product >> 64) + ((uint64_t)product != 0);
}

/* ---- where the prefix ends ---- */

/* n <= BLOCK; x below the cutoff and NaN are left out. Masses only where they are wanted. */
static void count_block(const source *s, const float *x, uint32_t n, bool masses, histogram *h)
{
    float weight[BLOCK];
    if (masses) s->ops->exps(weight, x, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!(x[i] >= CUTOFF)) continue;
        uint32_t b = bucket_of(x[i]);
        h->count[b]++;
        if (masses) h->mass[b] += mass_of_weight(s, weight[i]);
    }
}

static void count_all(const source *s, bool masses, histogram *h)
{
    float x[BLOCK];
    memset(h, 0, sizeof *h);
    for (uint32_t first = 0; first < s->vocab_size; first += BLOCK) {
        uint32_t n = x_of(s, first, x);
        count_block(s, x, n, masses, h);
    }
}

static void count_candidates(const source *s, const candidates *c, histogram *h)
{
    memset(h, 0, sizeof *h);
    for (uint32_t first = 0; first < c->count; first += BLOCK)
        count_block(s, c->x + first, RAD_MIN((uint32_t)BLOCK, c->count - first), true, h);
}

static uint64_t total_mass(const histogram *h)
{
    uint64_t total = 0;
    for (uint32_t b = 0; b < BUCKETS; b++)
        total += h->mass[b];
    return total;
}

/* The bucket in which the first max_count tokens, or the first that weigh `mass`, end. */
static cut find_cut(const histogram *h, uint32_t max_count, uint64_t mass)
{
    cut c = {.max_count = max_count, .mass = mass};
    for (uint32_t b = 0; b < BUCKETS - 1; b++) {
        if (max_count != ANY_COUNT && c.max_count <= h->count[b]) break;
        if (mass != ANY_MASS && c.mass <= h->mass[b]) break;
        if (max_count != ANY_COUNT) c.max_count -= h->count[b];
        if (mass != ANY_MASS) c.mass -= h->mass[b];
        c.bucket++;
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

static uint64_t mass_of(const source *s, const candidates *c, uint32_t from, uint32_t to)
{
    uint64_t mass = 0;
    float weight[BLOCK];
    for (uint32_t first = from; first < to; first += BLOCK) {
        uint32_t n = RAD_MIN((uint32_t)BLOCK, to - first);
        s->ops->exps(weight, c->x + first, n);
        for (uint32_t i = 0; i < n; i++)
            mass += mass_of_weight(s, weight[i]);
    }
    return mass;
}

/* Moves the tokens that come first to the front of [lo, count) and forgets the others: the
 * fewest that are max_count or weigh `mass`. The last of them in order stands last, if either was
 * reached. Expected O(count - lo); the pivot is drawn by a hash, so that no arrangement of the
 * logits is a bad one. */
static void select_first(const source *s, candidates *c, uint32_t lo, uint32_t max_count,
                         uint64_t mass)
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
        uint64_t ahead = mass == ANY_MASS ? 0 : mass_of(s, c, lo, mid);
        if (mid >= end || ahead >= mass) {
            hi = mid; /* the pivot is past the end already */
        } else {
            if (mass != ANY_MASS) mass -= RAD_MIN(mass, ahead + mass_of(s, c, mid, mid + 1));
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

/* A random number below `mass`, and one: what the prefix of the draw weighs at least. */
static uint64_t drawn_mass(const sampler_choice *p, uint64_t mass)
{
    return (uint64_t)((unsigned __int128)p->random * mass >> 64) + 1;
}

static void keep_bucket(candidates *c, uint32_t bucket)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        const bool in = bucket_of(c->x[i]) == bucket;
        c->x[kept] = c->x[i];
        c->id[kept] = c->id[i];
        kept += in;
    }
    c->count = kept;
}

/* Of what was kept: the last token of the prefix that the random share ends in. `of` is the
 * candidates' histogram, NULL where it is not known. */
static rad_token draw(const source *s, candidates *c, const histogram *of, const sampler_choice *p)
{
    histogram own;
    uint64_t mass;
    if (!of && c->count > FEW) {
        count_candidates(s, c, &own);
        of = &own;
    }
    if (of) {
        const cut end = find_cut(of, ANY_COUNT, drawn_mass(p, total_mass(of)));
        keep_bucket(c, end.bucket);
        mass = end.mass;
    } else {
        mass = drawn_mass(p, mass_of(s, c, 0, c->count));
    }
    select_first(s, c, 0, ANY_COUNT, mass);
    return (rad_token)c->id[c->count - 1];
}

/* Of the whole vocabulary: tokens of other buckets are never gathered. */
static rad_token draw_of_all(const source *s, candidates *c, const sampler_choice *p)
{
    histogram h;
    count_all(s, true, &h);
    const cut end = find_cut(&h, ANY_COUNT, drawn_mass(p, total_mass(&h)));
    gather(s, end.bucket, end.bucket + 1, CUTOFF, c);
    select_first(s, c, 0, ANY_COUNT, end.mass);
    return (rad_token)c->id[c->count - 1];
}

sampler_choice sampler_choice_of(const sampling_params *p, uint32_t vocab_size, uint32_t position)
{
    const uint32_t width = 32 - (uint32_t)__builtin_clz(vocab_size);
    return (sampler_choice){
        .greedy = p->temperature < SAMPLER_GREEDY_BELOW || p->top_k == 1,
        .top_k = p->top_k > 0 && (uint32_t)p->top_k < vocab_size ? (uint32_t)p->top_k : 0,
        .top_p = p->top_p < 1 ? RAD_MAX((uint64_t)((double)p->top_p * 0x1p64), 1u) : 0,
        .random = mix64(mix64(p->seed) + position),
        .least = p->min_p > 0 ? RAD_MAX(logf(p->min_p), CUTOFF) : CUTOFF,
        .unit = (float)((uint64_t)1 << (63 - width))};
}

rad_token sampler_sample(const float *logits, uint32_t vocab_size, const sampling_params *params,
                         uint32_t position, void *scratch)
{
    return sampler_sample_some(logits, vocab_size, vocab_size, params, position, scratch);
}

rad_token sampler_sample_some(const float *logits, uint32_t count, uint32_t vocab_size,
                              const sampling_params *params, uint32_t position, void *scratch)
{
    const model_ops *ops = model_ops_find(NULL);
    rad_token best = argmax(ops, logits, count);
    if (best < 0) return best;
    const sampler_choice p = sampler_choice_of(params, vocab_size, position);
    if (p.greedy) return best;

    const source s = {logits, count, logits[best], params->temperature, p.unit, ops};
    candidates c = {.x = scratch, .id = (uint32_t *)scratch + count};
    if (!p.top_k && !p.top_p) {
        if (p.least == CUTOFF) return draw_of_all(&s, &c, &p);
        gather(&s, 0, BUCKETS, p.least, &c);
        return draw(&s, &c, NULL, &p);
    }
    /* top_p counts its share of what top_k left, so top_k goes first. */
    histogram h;
    count_all(&s, !p.top_k, &h);
    const cut end = p.top_k ? find_cut(&h, p.top_k, ANY_MASS)
                            : find_cut(&h, ANY_COUNT, share_of(p.top_p, total_mass(&h)));
    gather(&s, 0, end.bucket, CUTOFF, &c);
    uint32_t in = c.count;
    gather(&s, end.bucket, end.bucket + 1, CUTOFF, &c);
    select_first(&s, &c, in, end.max_count, end.mass);
    if (!p.top_k) { /* what is left of the histogram */
        h.mass[end.bucket] = mass_of(&s, &c, in, c.count);
        memset(h.mass + end.bucket + 1, 0, (BUCKETS - 1 - end.bucket) * sizeof *h.mass);
    }
    if (p.top_k && p.top_p)
        select_first(&s, &c, 0, ANY_COUNT, share_of(p.top_p, mass_of(&s, &c, 0, c.count)));
    if (p.least > CUTOFF) keep_at_least(&c, p.least);
    return draw(&s, &c, p.top_k || p.least > CUTOFF ? NULL : &h, &p);
}
