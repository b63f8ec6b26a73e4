/* test_sampler.c - from logits to a token: ties, NaN, filters against a naive sort,
 * penalties against a naive count, logprobs, the drawn distribution, and that nothing but the
 * arguments matters. */
#include "test.h"

#include "base/base.h"
#include "base/mix64.h"
#include "model/ops.h"
#include "model/sampler.h"

#include <math.h>

enum { MOST = 4096 };

static const sampling_params OFF = {.temperature = 1, .top_p = 1, .min_p = 0, .top_k = 0};

static rad_token sample(const float *logits, uint32_t n, sampling_params p, uint32_t position)
{
    static uint64_t scratch[MOST];
    return sampler_sample(logits, n, &p, position, scratch);
}

/* Against one plain loop, over vocabularies of no, some and many whole blocks of the search,
 * with few distinct values, so that equals are everywhere. */
TEST(greedy_finds_the_first_largest_in_any_vocabulary)
{
    enum { WORDS = 5000 };
    static float logits[WORDS];
    uint64_t seed = test_told_seed();
    sampling_params greedy = {.temperature = 0, .top_p = 1};
    for (int round = 0; round < 300; round++) {
        uint32_t n = 1 + (uint32_t)(test_random(&seed) % WORDS), kinds = 1 + round % 7;
        rad_token want = -1;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t kind = (uint32_t)(test_random(&seed) % (kinds * (round % 3 ? 1 : 900)));
            logits[i] = kind == 0 ? NAN : kind == 1 ? -INFINITY : -(float)kind;
            if (!isnan(logits[i]) && (want < 0 || logits[i] > logits[want])) want = (rad_token)i;
        }
        CHECK(sampler_sample(logits, n, &greedy, 0, NULL) == want);
    }
}

TEST(greedy_takes_the_smallest_id_among_equals)
{
    sampling_params greedy = {.temperature = 0, .top_p = 1};
    CHECK(sampler_sample((float[]){1, 3, 2, 3}, 4, &greedy, 0, NULL) == 1);
    CHECK(sampler_sample((float[]){5, 5, 5}, 3, &greedy, 9, NULL) == 0);
    CHECK(sampler_sample((float[]){-INFINITY, -INFINITY, -3}, 3, &greedy, 9, NULL) == 2);
    CHECK(sampler_sample((float[]){-INFINITY, -INFINITY}, 2, &greedy, 9, NULL) == 0);
    CHECK(sampler_sample((float[]){0.5f}, 1, &greedy, 9, NULL) == 0);
}

TEST(nan_is_never_chosen)
{
    sampling_params greedy = {.temperature = 0, .top_p = 1};
    CHECK(sampler_sample((float[]){NAN, -1, NAN, -2}, 4, &greedy, 0, NULL) == 1);
    CHECK(sampler_sample((float[]){NAN, NAN}, 2, &greedy, 0, NULL) == -1);
    for (uint32_t i = 0; i < 200; i++) {
        rad_token t = sample((float[]){NAN, 1, NAN, 1, NAN}, 5, OFF, i);
        CHECK(t == 1 || t == 3);
        CHECK(sample((float[]){NAN, NAN}, 2, OFF, i) == -1);
    }
}

TEST(an_infinite_logit_leaves_only_its_equals)
{
    bool seen[4] = {0};
    for (uint32_t i = 0; i < 200; i++)
        seen[sample((float[]){INFINITY, 1, INFINITY, 1e30f}, 4, OFF, i)] = true;
    CHECK(seen[0] && seen[2] && !seen[1] && !seen[3]);
}

TEST(bad_params_are_refused_in_words)
{
    rad_error err;
    CHECK_OK(sampling_params_check(&OFF, NULL));
    const sampling_params bad[] = {
        {.temperature = -1, .top_p = 1},
        {.temperature = NAN, .top_p = 1},
        {.temperature = INFINITY, .top_p = 1},
        {.temperature = 1, .top_p = 0},
        {.temperature = 1, .top_p = 1.5f},
        {.temperature = 1, .top_p = NAN},
        {.temperature = 1, .top_p = 1, .min_p = -0.1f},
        {.temperature = 1, .top_p = 1, .min_p = 1.1f},
        {.temperature = 1, .top_p = 1, .min_p = NAN},
        {.temperature = 1, .top_p = 1, .repetition_penalty = -0.1f},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 2.1f},
        {.temperature = 1, .top_p = 1, .repetition_penalty = NAN},
        {.temperature = 1, .top_p = 1, .presence_penalty = -2.1f},
        {.temperature = 1, .top_p = 1, .presence_penalty = NAN},
        {.temperature = 1, .top_p = 1, .frequency_penalty = INFINITY},
        {.temperature = 1, .top_p = 1, .frequency_penalty = NAN},
        {.temperature = 1, .top_p = 1, .num_bias = 1, .bias = &(logit_bias){3, 101}},
        {.temperature = 1, .top_p = 1, .num_bias = 1, .bias = &(logit_bias){3, NAN}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err.text[0] = 0;
        CHECK(sampling_params_check(&bad[i], &err) == RAD_E_INVAL);
        CHECK(strlen(err.text) > 10);
    }
}

/* The naive model: sort everything, then cut. */
typedef struct ranked {
    double p;
    float logit;
    uint32_t id;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* How many of the sorted candidates stay. *close: a cut hangs on a rounding. */
static uint32_t naive_filter(const float *logits, uint32_t n, sampling_params p, ranked *out,
                             bool *close)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (ranked){0, logits[i], i};
    qsort(out, n, sizeof out[0], by_rank);
    for (uint32_t i = 0; i < n; i++)
        out[i].p = exp(((double)out[i].logit - (double)out[0].logit) / (double)p.temperature);

    uint32_t kept = p.top_k > 0 && (uint32_t)p.top_k < n ? (uint32_t)p.top_k : n;
    double total = 0, before = 0;
    for (uint32_t i = 0; i < kept; i++)
        total += out[i].p;
    *close = false;
    uint32_t k = 0;
    for (; k < kept; k++) { /* top_p, min_p */
        double share = before / total - (double)p.top_p, least = out[k].p - (double)p.min_p;
        if (p.top_p < 1 && fabs(share) < 1e-5) *close = true;
        if (p.min_p > 0 && fabs(least) < 1e-5) *close = true;
        if (k && ((p.top_p < 1 && share >= 0) || least < 0)) break;
        before += out[k].p;
    }
    return k;
}

TEST(filters_keep_what_a_sort_would_keep)
{
    uint64_t seed = test_seed(), state = seed;
    static float logits[MOST];
    static ranked order[MOST];
    static bool kept[MOST], seen[MOST];

    for (uint64_t run = 0; run < test_scale(400, 20000); run++) {
        uint32_t n = 1 + (uint32_t)(test_random(&state) % 60);
        bool ties = test_random(&state) % 4 == 0;
        for (uint32_t i = 0; i < n; i++)
            logits[i] = ties ? (float)(test_random(&state) % 4)
                             : (float)(test_random(&state) % 100000) / 20000.0f;
        sampling_params p = OFF;
        p.seed = test_random(&state);
        p.temperature = 0.25f + (float)(test_random(&state) % 1000) / 500.0f;
        if (test_random(&state) % 2) p.top_k = 1 + (int32_t)(test_random(&state) % 70);
        if (test_random(&state) % 2) p.top_p = (float)(1 + test_random(&state) % 99) / 100.0f;
        if (test_random(&state) % 2) p.min_p = (float)(1 + test_random(&state) % 99) / 100.0f;

        bool close;
        uint32_t count = naive_filter(logits, n, p, order, &close);
        if (close) continue;
        memset(kept, 0, sizeof kept);
        memset(seen, 0, sizeof seen);
        for (uint32_t i = 0; i < count; i++)
            kept[order[i].id] = true;
        for (uint32_t position = 0; position < 300; position++) {
            rad_token t = sample(logits, n, p, position);
            CHECKF(t >= 0 && (uint32_t)t < n && kept[t],
                   "run %llu seed %llu: token %d of %u kept\n", (unsigned long long)run,
                   (unsigned long long)seed, t, count);
            seen[t] = true;
        }
        for (uint32_t i = 0; i < count; i++) /* missed with a chance below 1e-9 */
            if (order[i].p > 0.07 * count)
                CHECKF(seen[order[i].id], "run %llu seed %llu: token %u of %u never drawn\n",
                       (unsigned long long)run, (unsigned long long)seed, order[i].id, count);
    }
}

/* Every sum is exact, so the token is what a plain walk over the sorted vocabulary finds: with
 * ties, numbers that are nothing beside the best, NaN, and more candidates than are put in order
 * at once. */
static rad_token naive_choice(const float *logits, uint32_t n, const sampling_params *p,
                              uint32_t position, ranked *out)
{
    const model_ops *ops = model_ops_find(NULL);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!isnan(logits[i])) out[kept++] = (ranked){0, logits[i], i};
    if (!kept) return -1;
    qsort(out, kept, sizeof out[0], by_rank);
    uint64_t total = 0, unit = 1;
    while ((unit << 1) * (unsigned __int128)n < (uint64_t)1 << 63)
        unit <<= 1;
    const float max = out[0].logit;
    for (uint32_t i = 0; i < kept; i++) {
        float x = 0, weight;
        if (out[i].logit != max) x = (out[i].logit - max) / p->temperature;
        if (x < -40 || (p->min_p > 0 && i && x < logf(p->min_p))) out[i].logit = NAN; /* min_p */
        ops->exps(&weight, &x, 1);
        out[i].p = x < -40 ? 0 : floor((double)weight * (double)unit);
    }
    while (kept && isnan(out[kept - 1].logit) && out[kept - 1].p == 0)
        kept--;
    if (p->top_k > 0) kept = RAD_MIN(kept, (uint32_t)p->top_k);
    for (uint32_t i = 0; i < kept; i++)
        total += (uint64_t)out[i].p;
    if (p->top_p < 1) {
        const double share = (double)p->top_p * (double)(1 << 30); /* whole in these tests */
        unsigned __int128 before = 0;
        uint32_t k = 0;
        for (; k < kept && before << 30 < (unsigned __int128)total * (uint64_t)share; k++)
            before += (uint64_t)out[k].p;
        kept = k;
    }
    while (isnan(out[kept - 1].logit))
        kept--;
    total = 0;
    for (uint32_t i = 0; i < kept; i++)
        total += (uint64_t)out[i].p;
    uint64_t below = (uint64_t)((unsigned __int128)mix64(mix64(p->seed) + position) * total >> 64);
    uint32_t at = 0;
    for (; below >= (uint64_t)out[at].p; at++)
        below -= (uint64_t)out[at].p;
    return (rad_token)out[at].id;
}

TEST(the_draw_is_a_place_in_the_sorted_vocabulary)
{
    uint64_t seed = test_seed(), state = seed;
    static float logits[MOST];
    static ranked order[MOST];
    for (uint64_t run = 0; run < test_scale(3000, 100000); run++) {
        const uint32_t n = 1 + (uint32_t)(test_random(&state) % (run % 50 ? 70 : MOST));
        const uint64_t kinds = 1 + test_random(&state) % (run % 3 ? 5 : 100000);
        const float width = (float[]){1, 10, 100}[test_random(&state) % 3];
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = (float)(test_random(&state) % kinds) / (float)kinds * width;
            if (run % 7 == 0 && test_random(&state) % 9 == 0) logits[i] = NAN;
            if (run % 11 == 0 && test_random(&state) % 9 == 0) logits[i] = -INFINITY;
            if (run % 101 == 0 && test_random(&state) % 9 == 0) logits[i] = INFINITY;
        }
        sampling_params p = OFF;
        p.seed = test_random(&state);
        p.temperature = 0.01f + (float)(test_random(&state) % 1000) / 200.0f;
        if (test_random(&state) % 2) p.top_k = 2 + (int32_t)(test_random(&state) % n);
        if (test_random(&state) % 2) p.top_p = (float)(1 + test_random(&state) % 127) / 128.0f;
        if (test_random(&state) % 2) p.min_p = (float)(1 + test_random(&state) % 99) / 100.0f;
        const rad_token want = naive_choice(logits, n, &p, (uint32_t)run, order);
        const rad_token got = sample(logits, n, p, (uint32_t)run);
        CHECKF(got == want, "run %llu seed %llu: token %d, not %d\n", (unsigned long long)run,
               (unsigned long long)seed, got, want);
    }
}

/* chi-square of 20,000 draws against the exact probabilities, for several filters. The
 * seed is fixed, so this either holds for ever or never did. */
TEST(draws_follow_the_distribution)
{
    enum { N = 40, DRAWS = 20000 };
    float logits[N];
    uint64_t state = 7;
    for (uint32_t i = 0; i < N; i++)
        logits[i] = (float)(test_random(&state) % 10000) / 4000.0f;
    const sampling_params cases[] = {
        {.temperature = 1, .top_p = 1, .seed = 1},
        {.temperature = 0.7f, .top_p = 1, .seed = 2},
        {.temperature = 1, .top_p = 1, .top_k = 10, .seed = 3},
        {.temperature = 1.3f, .top_p = 0.8f, .seed = 4},
        {.temperature = 1, .top_p = 0.9f, .min_p = 0.2f, .top_k = 30, .seed = 5},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        ranked order[N];
        bool close;
        uint32_t kept = naive_filter(logits, N, cases[c], order, &close);
        CHECK(!close && kept > 2);
        uint32_t drawn[N] = {0};
        for (uint32_t position = 0; position < DRAWS; position++)
            drawn[sample(logits, N, cases[c], position)]++;
        double total = 0, chi = 0;
        for (uint32_t i = 0; i < kept; i++)
            total += order[i].p;
        for (uint32_t i = 0; i < kept; i++) {
            double want = DRAWS * order[i].p / total, off = drawn[order[i].id] - want;
            chi += off * off / want;
        }
        double df = kept - 1; /* mean df, variance 2 df: 4 sigma */
        CHECKF(chi < df + 4 * sqrt(2 * df), "case %zu: chi-square %g with %g degrees\n", c, chi,
               df);
    }
}

TEST(the_same_arguments_give_the_same_token)
{
    static float logits[1000];
    uint64_t state = 3;
    for (uint32_t i = 0; i < 1000; i++)
        logits[i] = (float)(test_random(&state) % 1000) / 200.0f;
    sampling_params p = {
        .temperature = 0.9f, .top_p = 0.95f, .min_p = 0.01f, .top_k = 200, .seed = 42};
    rad_token first[64];
    for (uint32_t i = 0; i < 64; i++)
        first[i] = sample(logits, 1000, p, i);
    uint32_t other_seed = 0, other_position = 0;
    for (uint32_t i = 64; i-- > 0;) {
        CHECK(sample(logits, 1000, p, i) == first[i]);
        sampling_params q = p;
        q.seed = 43;
        other_seed += sample(logits, 1000, q, i) != first[i];
        other_position += first[i] != first[0];
    }
    CHECK(other_seed > 32 && other_position > 32);
}

/* A bad arrangement for fixed pivots: sorted, reversed and all equal must not
 * make selection quadratic (150,000^2 steps would run into the test's time limit). */
TEST(no_arrangement_of_the_logits_is_slow)
{
    enum { N = 150000 };
    float *logits = malloc(N * sizeof *logits);
    uint64_t *scratch = malloc(N * sizeof *scratch);
    sampling_params p = {.temperature = 5, .top_p = 0.5f, .top_k = 100000, .seed = 1};
    for (int kind = 0; kind < 3; kind++) {
        for (uint32_t i = 0; i < N; i++)
            logits[i] = kind == 2 ? 1.0f : (float)(kind ? N - i : i) / N;
        for (uint32_t position = 0; position < 20; position++) {
            rad_token t = sampler_sample(logits, N, &p, position, scratch);
            CHECK(t >= 0 && t < N);
        }
    }
    free(logits);
    free(scratch);
}

/* ---- penalties, bias, min_new_tokens ---- */

/* The naive model: a count for every token of the vocabulary. */
static void naive_adjust(float *logits, uint32_t n, const sampling_params *p,
                         const rad_token *output, uint32_t num_output)
{
    for (uint32_t id = 0; id < n; id++) {
        float count = 0;
        for (uint32_t i = 0; i < num_output; i++)
            count += output[i] == (rad_token)id;
        if (count > 0) logits[id] -= p->presence_penalty + p->frequency_penalty * count;
        float r = p->repetition_penalty > 0 ? p->repetition_penalty : 1;
        if (count > 0) logits[id] = logits[id] > 0 ? logits[id] / r : logits[id] * r;
        for (uint32_t i = 0; i < p->num_bias; i++)
            if (p->bias[i].id == (rad_token)id) logits[id] += p->bias[i].bias;
        for (uint32_t i = 0; i < p->num_end_ids; i++)
            if (p->end_ids[i] == (rad_token)id && num_output < p->min_new_tokens)
                logits[id] = -INFINITY;
    }
}

static float one_of(uint64_t *state, float a, float b)
{
    uint64_t draw = test_random(state) % 3;
    return draw == 0 ? 0 : draw == 1 ? a : b;
}

TEST(penalties_and_bias_are_what_a_count_of_everything_says)
{
    uint64_t seed = test_seed(), state = seed, changed = 0;
    for (uint64_t run = 0; run < test_scale(3000, 100000); run++) {
        float logits[64], before[64], own[64];
        rad_token output[40], end_ids[3];
        logit_bias bias[4];
        uint64_t scratch[64 * 12 / 8];
        uint32_t n = 1 + (uint32_t)(test_random(&state) % 64);
        uint32_t num_output = (uint32_t)(test_random(&state) % 40);
        for (uint32_t i = 0; i < n; i++)
            logits[i] = (float)(test_random(&state) % 2001) / 200 - 5;
        if (run % 7 == 0) logits[0] = NAN;
        if (run % 11 == 0) logits[n - 1] = -INFINITY;
        for (uint32_t i = 0; i < num_output; i++)
            output[i] = (rad_token)(test_random(&state) % n);
        sampling_params p = {.temperature = test_random(&state) % 2 ? 0.9f : 0,
                             .top_p = 1,
                             .seed = run,
                             .presence_penalty = one_of(&state, 1.5f, -0.5f),
                             .frequency_penalty = one_of(&state, 0.3f, -0.2f),
                             .repetition_penalty = one_of(&state, 1.3f, 0.8f),
                             .min_new_tokens = (uint32_t)(test_random(&state) % 30),
                             .bias = bias,
                             .end_ids = end_ids};
        p.num_bias = (uint32_t)RAD_MIN(test_random(&state) % 5, n);
        p.num_end_ids = (uint32_t)(test_random(&state) % 4);
        for (uint32_t i = 0; i < p.num_bias; i++)
            bias[i] = (logit_bias){(rad_token)i, (float)(test_random(&state) % 9) - 4};
        for (uint32_t i = 0; i < p.num_end_ids; i++)
            end_ids[i] = (rad_token)(test_random(&state) % n);

        memcpy(before, logits, sizeof before);
        memcpy(own, logits, sizeof own);
        naive_adjust(own, n, &p, output, num_output);
        rad_token want = sampler_sample(own, n, &p, 77, scratch);
        memset(scratch, 0xa5, sizeof scratch); /* nothing is expected of it */
        rad_token got = sampler_next(logits, n, &p, output, num_output, 77, NULL, scratch);
        CHECKF(got == want, "run %llu: token %d, not %d, seed %llu\n", (unsigned long long)run, got,
               want, (unsigned long long)seed);
        CHECK(memcmp(before, logits, n * sizeof *logits) == 0); /* the model's own stay */
        changed += want != sampler_sample(logits, n, &p, 77, scratch);
    }
    CHECK(changed > 100);
}

static bool is_allowed(const uint32_t *allowed, uint32_t id)
{
    return allowed[id / 32] >> id % 32 & 1;
}

/* What is left of the adjusted logits, or -INFINITY for all. */
static float keep_allowed(float *own, uint32_t n, const uint32_t *allowed)
{
    float most = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_allowed(allowed, i)) own[i] = -INFINITY;
        if (own[i] > most) most = own[i];
    }
    return most;
}

/* Masks of no, one, some and all tokens; ends that are held back and nothing else allowed; tokens
 * that the model gives no chance, or NaN. */
TEST(what_is_not_allowed_is_never_chosen)
{
    enum { WORDS = 200 };
    uint64_t seed = test_seed(), state = seed;
    uint64_t scratch[WORDS * 12 / 8];
    uint32_t only_ends = 0, hopeless = 0, none = 0;
    for (uint64_t run = 0; run < test_scale(3000, 100000); run++) {
        float logits[WORDS], own[WORDS];
        rad_token output[5], end_ids[] = {0, 1, 1};
        uint32_t allowed[(WORDS + 31) / 32], n = 3 + (uint32_t)(test_random(&state) % (WORDS - 3));
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = (float)(test_random(&state) % 2001) / 200 - 5;
            if (run % 5 == 0 && test_random(&state) % 2) logits[i] = run % 10 ? -INFINITY : NAN;
        }
        for (uint32_t i = 0; i < 5; i++)
            output[i] = (rad_token)(test_random(&state) % n);
        memset(allowed, run % 6 == 0 ? 0xff : 0, sizeof allowed);
        for (uint32_t i = 0; run % 6 > 2 && i < RAD_COUNT(allowed); i++)
            allowed[i] = (uint32_t)test_random(&state);
        const uint32_t one = (uint32_t)(test_random(&state) % (run % 6 == 1 ? 2 : n));
        if (run % 6 == 1 || run % 6 == 2) allowed[one / 32] |= 1u << one % 32;
        if (run % 61 == 0) memset(allowed, 0, sizeof allowed);
        sampling_params p = {.temperature = test_random(&state) % 2 ? 0.9f : 0,
                             .top_p = run % 3 ? 1 : 0.8f,
                             .seed = run,
                             .presence_penalty = one_of(&state, 1.5f, -0.5f),
                             .repetition_penalty = one_of(&state, 1.3f, 0.8f),
                             .min_new_tokens = (uint32_t)(test_random(&state) % 9),
                             .num_bias = 1,
                             .bias = &(logit_bias){2, 3},
                             .end_ids = end_ids,
                             .num_end_ids = 3};
        if (test_random(&state) % 4 == 0) { /* nothing but the mask, of whatever kind */
            p.presence_penalty = p.repetition_penalty = 0;
            p.min_new_tokens = p.num_bias = 0;
            p.top_k = test_random(&state) % 2 ? 5 : 0;
            p.min_p = one_of(&state, 0.2f, 0);
        }
        rad_token want = -1;
        memcpy(own, logits, sizeof own);
        naive_adjust(own, n, &p, output, 5);
        if (!(keep_allowed(own, n, allowed) > -INFINITY)) {
            sampling_params free_end = p;
            free_end.min_new_tokens = 0;
            memcpy(own, logits, sizeof own);
            naive_adjust(own, n, &free_end, output, 5);
            only_ends += p.min_new_tokens > 5;
        }
        if (keep_allowed(own, n, allowed) > -INFINITY)
            want = sampler_sample(own, n, &p, 77, scratch);
        for (uint32_t i = 0; want < 0 && i < n; i++)
            if (is_allowed(allowed, i) && !isnan(logits[i])) want = (rad_token)i, hopeless++;
        rad_token got = sampler_next(logits, n, &p, output, 5, 77, allowed, scratch);
        CHECKF(got == want, "run %llu: token %d, not %d, seed %llu\n", (unsigned long long)run, got,
               want, (unsigned long long)seed);
        none += want < 0;
    }
    CHECK(only_ends > 10 && hopeless > 10 && none > 10);
}

TEST(a_request_that_asks_for_nothing_needs_no_scratch)
{
    const sampling_params greedy = {.top_p = 1, .repetition_penalty = 1};
    const rad_token output[] = {1, 1};
    CHECK(sampler_next((float[]){0, 5, 3}, 3, &greedy, output, 2, 0, NULL, NULL) == 1);
}

TEST(frequency_counts_and_presence_does_not)
{
    uint64_t scratch[8];
    const float logits[] = {1.0f, 1.6f};
    const rad_token output[] = {1, 1, 1};
    sampling_params p = {.top_p = 1, .presence_penalty = 0.5f};
    CHECK(sampler_next(logits, 2, &p, output, 3, 0, NULL, scratch) == 1);
    p = (sampling_params){.top_p = 1, .frequency_penalty = 0.25f};
    CHECK(sampler_next(logits, 2, &p, output, 2, 0, NULL, scratch) == 1);
    CHECK(sampler_next(logits, 2, &p, output, 3, 0, NULL, scratch) == 0);
    p = (sampling_params){.top_p = 1, .repetition_penalty = 1.7f};
    CHECK(sampler_next(logits, 2, &p, output, 0, 0, NULL, scratch) == 1);
    CHECK(sampler_next(logits, 2, &p, output, 1, 0, NULL, scratch) == 0);
}

/* ---- logprobs ---- */

TEST(logprobs_are_a_sorted_log_softmax)
{
    uint64_t seed = test_seed(), state = seed;
    static float logits[1000];
    static ranked order[1000];
    for (uint64_t run = 0; run < test_scale(300, 10000); run++) {
        uint32_t n = 1 + (uint32_t)(test_random(&state) % 1000);
        uint32_t top = (uint32_t)(test_random(&state) % 30), real = 0;
        bool ties = test_random(&state) % 2;
        double total = 0, max = -INFINITY;
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = (float)((double)(test_random(&state) >> 11) * 0x1p-53 * 40 - 20);
            if (ties) logits[i] = roundf(logits[i] / 4);
            if (test_random(&state) % 20 == 0) logits[i] = -INFINITY;
            if (i && test_random(&state) % 20 == 0) logits[i] = NAN;
        }
        if (!isfinite(logits[0])) logits[0] = 1;
        for (uint32_t i = 0; i < n; i++) {
            if (isnan(logits[i])) continue;
            order[real++] = (ranked){0, logits[i], i};
            max = fmax(max, (double)logits[i]);
        }
        for (uint32_t i = 0; i < real; i++)
            total += exp((double)order[i].logit - max);
        qsort(order, real, sizeof order[0], by_rank);

        token_logprob out[34];
        rad_token token = (rad_token)(test_random(&state) % n);
        const rad_token ids[] = {(rad_token)(test_random(&state) % n), 0, token};
        const sampling_params p = {
            .num_top_logprobs = top, .num_id_logprobs = 3, .id_logprobs = ids};
        sampler_logprobs(logits, n, token, &p, out);
        for (uint32_t i = 0; i < 3; i++) { /* what they would have as the token itself */
            token_logprob alone;
            const token_logprob *got = &out[1 + top + i];
            sampler_logprobs(logits, n, ids[i], &(sampling_params){0}, &alone);
            CHECK(got->id == ids[i] && memcmp(&got->logprob, &alone.logprob, sizeof(float)) == 0);
        }
        double own = isnan(logits[token]) ? -INFINITY : (double)logits[token] - max - log(total);
        CHECK(out[0].id == token);
        CHECKF(own == (double)out[0].logprob || fabs(own - (double)out[0].logprob) < 1e-5,
               "%g, not %g, seed %llu\n", (double)out[0].logprob, own, (unsigned long long)seed);
        for (uint32_t i = 0; i < top; i++) {
            const token_logprob *got = &out[1 + i];
            if (i >= real) {
                CHECK(got->id == -1);
                continue;
            }
            double want = (double)order[i].logit - max - log(total);
            CHECKF(got->id == (rad_token)order[i].id, "place %u: %d, not %u, seed %llu\n", i,
                   got->id, order[i].id, (unsigned long long)seed);
            CHECK(want == (double)got->logprob || fabs(want - (double)got->logprob) < 1e-5);
        }
    }
}

TEST(logprobs_of_strange_logits)
{
    token_logprob out[3];
    const sampling_params one = {.num_top_logprobs = 1}, two = {.num_top_logprobs = 2};
    sampler_logprobs((float[]){INFINITY, 0, INFINITY}, 3, 2, &two, out);
    CHECK(fabs((double)out[0].logprob + log(2)) < 1e-6 && out[1].id == 0 && out[2].id == 2);
    sampler_logprobs((float[]){-INFINITY, -INFINITY}, 2, 1, &one, out);
    CHECK(out[0].id == 1 && fabs((double)out[0].logprob + log(2)) < 1e-6 && out[1].id == 0);
    sampler_logprobs((float[]){3}, 1, 0, &two, out);
    CHECK(out[0].logprob == 0 && out[1].id == 0 && out[2].id == -1);
}

TEST_MAIN()
