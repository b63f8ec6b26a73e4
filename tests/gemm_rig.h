/* gemm_rig.h - what the GEMM's tests do with a weight of any type: they multiply in guarded memory
 * whose rows lie apart, on one to three threads, and hold random batches to promise P1. */
#ifndef TESTS_GEMM_RIG_H
#define TESTS_GEMM_RIG_H

#include "guarded.h"
#include "test.h"

#include "base/base.h"
#include "model/gemm.h"

#include <math.h>

/* pools[i] has i + 1 threads, the first is none. */
static inline void start_pools(compute_pool *pools[3])
{
    pools[0] = NULL;
    for (uint32_t t = 1; t < 3; t++)
        CHECK_OK(compute_pool_create(NULL, t + 1, &pools[t], NULL));
}

static inline void stop_pools(compute_pool *pools[3])
{
    for (uint32_t t = 1; t < 3; t++)
        compute_pool_destroy(pools[t]);
}

/* x of m rows and a product of them. Rows may lie apart; both end where no byte can be read. */
typedef struct operands {
    uint32_t m, n;
    size_t ldx, ldo, x_count, out_count;
    float *x, *out, *before; /* before: what was in `out` */
    guarded gx, gout;
} operands;

static inline operands operands_alloc(uint32_t n, uint32_t k, uint32_t m, uint64_t *seed)
{
    operands o = {.m = m, .n = n};
    o.ldx = k + test_random(seed) % 3;
    o.ldo = n + test_random(seed) % 3;
    o.x_count = (size_t)(m - 1) * o.ldx + k;
    o.out_count = (size_t)(m - 1) * o.ldo + n;
    o.gx = guarded_alloc(o.x_count * sizeof *o.x);
    o.gout = guarded_alloc(o.out_count * sizeof *o.out);
    o.x = o.gx.data;
    o.out = o.gout.data;
    o.before = malloc(o.out_count * sizeof *o.before);
    return o;
}

static inline void operands_fill(operands *o, uint64_t *seed)
{
    fill(o->x, o->x_count, seed);
    fill(o->out, o->out_count, seed);
    memcpy(o->before, o->out, o->out_count * sizeof *o->out);
}

/* What lies between the rows of the product is as it was. */
static inline void operands_check_between(const operands *o)
{
    for (uint32_t i = 0; i < o->m; i++)
        for (size_t j = o->n; j < o->ldo && i * o->ldo + j < o->out_count; j++)
            CHECK(o->out[i * o->ldo + j] == o->before[i * o->ldo + j]);
}

static inline void operands_free(operands *o)
{
    guarded_free(&o->gx);
    guarded_free(&o->gout);
    free(o->before);
}

enum { KNOWN_ROWS = 24, MOST_BATCH_ROWS = 230 };

typedef struct batches {
    uint64_t rounds;
    uint32_t few;   /* rows at most, in three rounds of four */
    uint32_t first; /* rows of the first round; 0: as drawn */
} batches;

/* P1. KNOWN_ROWS rows are computed alone once; then random batches of them, with neighbours that
 * are NaN or infinite, on 1 to 3 threads, must give the same bits. `next`, if any, is said to run
 * next every other time. */
static inline void check_batches_of(gemm_weight *w, const gemm_weight *next, const char *isa,
                                    const float *known, batches b, compute_pool *const pools[3],
                                    uint64_t *seed)
{
    uint32_t n = gemm_weight_n(w), k = gemm_weight_k(w), which[MOST_BATCH_ROWS];
    float *x = malloc((size_t)MOST_BATCH_ROWS * k * sizeof *x);
    float *alone = malloc((size_t)KNOWN_ROWS * n * sizeof *alone);
    float *out = malloc((size_t)MOST_BATCH_ROWS * n * sizeof *out);
    guarded scratch = guarded_alloc(gemm_scratch_bytes(w, MOST_BATCH_ROWS));
    for (uint32_t i = 0; i < KNOWN_ROWS; i++)
        gemm_run(w, known + (size_t)i * k, k, 1, alone + (size_t)i * n, n, false, NULL,
                 scratch.data);

    for (uint64_t round = 0; round < b.rounds; round++) {
        uint32_t most = round % 4 == 3 ? MOST_BATCH_ROWS : b.few;
        uint32_t m = 1 + (uint32_t)(test_random(seed) % most);
        if (round == 0 && b.first) m = b.first;
        for (uint32_t i = 0; i < m; i++) {
            which[i] = (uint32_t)(test_random(seed) % (KNOWN_ROWS + 2));
            for (uint32_t l = 0; l < k; l++)
                x[(size_t)i * k + l] = which[i] == KNOWN_ROWS  ? NAN
                                       : which[i] > KNOWN_ROWS ? INFINITY
                                                               : known[(size_t)which[i] * k + l];
        }
        gemm_weight_set_next(w, round % 2 ? next : NULL);
        gemm_run(w, x, k, m, out, n, false, pools[round % 3], scratch.data);
        for (uint32_t i = 0; i < m; i++)
            if (which[i] < KNOWN_ROWS)
                CHECKF(memcmp(out + (size_t)i * n, alone + (size_t)which[i] * n, n * 4) == 0,
                       "%s %s n %u k %u: row %u of %u differs from the row alone\n", isa,
                       gemm_type_name(gemm_weight_type(w)), n, k, i, m);
            else
                CHECK(isnan(out[(size_t)i * n])); /* and says so */
    }
    guarded_free(&scratch);
    free(x);
    free(alone);
    free(out);
}

static inline void some_glu(float *gate, const float *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        gate[i] = gate[i] / (1 + fabsf(gate[i])) * up[i];
}

#endif
