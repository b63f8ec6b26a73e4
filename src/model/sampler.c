/* sampler.c - filters as prefixes of one order, found by selection instead of sorting.
 *
 * Order the vocabulary by (logit down, id up). Then every filter keeps a prefix:
 * top_k the first k, top_p the shortest that holds its share of the mass that top_k
 * left, min_p all with p >= min_p * p(first). So the answer is the shortest of three
 * prefixes, and none of them needs a sorted array:
 *
 *     | kept, in any order          | dropped, in any order       |
 *     0                             n                             vocab_size
 *
 * A quickselect that weighs the parts finds n in expected O(vocab_size); where a
 * filter is off, nothing is done for it. Weights are exp((logit - max) / T); what
 * lies below e^-40 of the best is left out at once: a whole vocabulary of it weighs
 * less than the resolution of the random number.
 *
 * The draw walks what was kept. Its order is a function of the logits alone (also
 * the pivots are), so the same logits, seed and position give the same token. */
#include "model/sampler.h"
#include "base/base.h"
#include "model/mix64.h"

#include <assert.h>
#include <math.h>

static const float CUTOFF = -40.0f;

typedef struct candidate {
    float x; /* (logit - max) / temperature, <= 0 */
    uint32_t id;
} candidate;

static_assert(sizeof(candidate) == 8, "sampler.h promises 8 bytes of scratch per token");

static bool before(candidate a, candidate b)
{
    return a.x > b.x || (a.x == b.x && a.id < b.id);
}

static double weight(candidate c)
{
    return (double)expf(c.x);
}

rad_status sampling_params_check(const sampling_params *p, rad_error *err)
{
    if (!(p->temperature >= 0) || isinf(p->temperature))
        return rad_fail(err, RAD_E_INVAL, "temperature must be a number >= 0, got %g",
                        (double)p->temperature);
    if (!(p->top_p > 0 && p->top_p <= 1))
        return rad_fail(err, RAD_E_INVAL, "top_p must be in (0, 1], got %g", (double)p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return rad_fail(err, RAD_E_INVAL, "min_p must be in [0, 1], got %g", (double)p->min_p);
    return RAD_OK;
}

/* The smallest id with the largest logit; -1 when all are NaN. */
static rad_token argmax(const float *logits, uint32_t vocab_size)
{
    rad_token best = -1;
    for (uint32_t i = 0; i < vocab_size; i++)
        if (best < 0 ? !isnan(logits[i]) : logits[i] > logits[best]) best = (rad_token)i;
    return best;
}

/* Candidates that can be chosen at all, best known: x = 0 for the maximum. An
 * infinite maximum leaves only its equals. */
static uint32_t gather(const float *logits, uint32_t vocab_size, float max, float temperature,
                       float least, candidate *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < vocab_size; i++) {
        float x = logits[i] == max ? 0 : (logits[i] - max) / temperature;
        if (x >= least) out[count++] = (candidate){x, i}; /* false for NaN */
    }
    return count;
}

static void swap(candidate *c, uint32_t i, uint32_t j)
{
    candidate t = c[i];
    c[i] = c[j];
    c[j] = t;
}

/* Moves a prefix of the order to the front and returns its length: the shortest that
 * has max_count candidates or at least `mass`. Expected O(count); the pivot is
 * drawn by a hash, so that no arrangement of the logits is a bad one. */
static uint32_t select_prefix(candidate *c, uint32_t count, uint32_t max_count, double mass)
{
    uint32_t lo = 0, hi = count; /* c[0..lo) is in; c[hi..) is out */
    double mass_lo = 0;
    while (lo < hi) {
        swap(c, lo, lo + (uint32_t)(mix64(((uint64_t)lo << 32) | hi) % (hi - lo)));
        candidate pivot = c[lo];
        uint32_t mid = lo; /* c(lo..mid] come before the pivot */
        double mass_before = 0;
        for (uint32_t i = lo + 1; i < hi; i++) {
            if (!before(c[i], pivot)) continue;
            mass_before += isinf(mass) ? 0 : weight(c[i]);
            swap(c, ++mid, i);
        }
        swap(c, lo, mid);
        if (mid >= max_count || mass_lo + mass_before >= mass) {
            hi = mid; /* the pivot is past the end already */
        } else {
            lo = mid + 1;
            mass_lo += mass_before + weight(pivot);
            if (lo >= max_count || mass_lo >= mass) return lo;
        }
    }
    return lo;
}

static double sum(const candidate *c, uint32_t count)
{
    double total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += weight(c[i]);
    return total;
}

/* Drops what cannot be in the top_p prefix: all that is lighter than an equal share
 * of the rest weighs less than the rest together. Cheap, and leaves few. */
static uint32_t drop_light(candidate *c, uint32_t count, double rest)
{
    double least = rest / count;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (weight(c[i]) >= least) c[kept++] = c[i];
    return kept ? kept : count;
}

static uint32_t keep_top_p(candidate *c, uint32_t count, double top_p)
{
    double total = sum(c, count);
    uint32_t heavy = drop_light(c, count, (1 - top_p) * total);
    return select_prefix(c, heavy, heavy, top_p * total);
}

static uint32_t keep_min_p(candidate *c, uint32_t count, float least)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (c[i].x >= least) c[kept++] = c[i];
    return kept;
}

/* [0, 1), 53 bits. */
static double uniform(uint64_t seed, uint32_t position)
{
    return (double)(mix64(mix64(seed) + position) >> 11) * 0x1p-53;
}

static rad_token draw(const candidate *c, uint32_t count, double u)
{
    double left = u * sum(c, count);
    for (uint32_t i = 0; i + 1 < count; i++) {
        left -= weight(c[i]);
        if (left < 0) return (rad_token)c[i].id;
    }
    return (rad_token)c[count - 1].id;
}

rad_token sampler_sample(const float *logits, uint32_t vocab_size, const sampling_params *params,
                         uint32_t position, void *scratch)
{
    rad_token best = argmax(logits, vocab_size);
    if (best < 0 || params->temperature < SAMPLER_GREEDY_BELOW || params->top_k == 1) return best;

    candidate *c = scratch;
    uint32_t top_k = params->top_k > 0 ? (uint32_t)params->top_k : UINT32_MAX;
    float min_p_x = params->min_p > 0 ? RAD_MAX(logf(params->min_p), CUTOFF) : CUTOFF;
    /* min_p cannot change what top_k keeps but top_p counts the mass before it. */
    float least = params->top_p < 1 ? CUTOFF : min_p_x;

    uint32_t count = gather(logits, vocab_size, logits[best], params->temperature, least, c);
    if (top_k < count) count = select_prefix(c, count, top_k, INFINITY);
    if (params->top_p < 1) {
        count = keep_top_p(c, count, (double)params->top_p);
        if (params->min_p > 0) count = keep_min_p(c, count, min_p_x);
    }
    return draw(c, count, uniform(params->seed, position));
}
