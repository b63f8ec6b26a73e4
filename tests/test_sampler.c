/* test_sampler.c - from logits to a token: ties, NaN, filters against a naive sort,
 * the drawn distribution, and that nothing but the arguments matters. */
#include "test.h"

#include "model/sampler.h"

#include <math.h>

enum { MOST = 4096 };

static const sampling_params OFF = {.temperature = 1, .top_p = 1, .min_p = 0, .top_k = 0};

static rad_token sample(const float *logits, uint32_t n, sampling_params p, uint32_t position)
{
    static uint64_t scratch[MOST];
    return sampler_sample(logits, n, &p, position, scratch);
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

TEST_MAIN()
