/* test_gemm_items.c - several products in one region, as the experts of a mixture run: each has
 * the bits that it has alone, whatever the shapes, the types, the rows of the others and the
 * threads. */
#include "gemm_rig.h"

enum { MOST_ITEMS = 9, MOST_ROWS = 130 };

typedef struct experts {
    gemm_type type;
    uint32_t count, dim, ffn, total; /* rows of all items */
    gemm_weight *gate_up[MOST_ITEMS], *down[MOST_ITEMS];
    float *bias[MOST_ITEMS]; /* or NULL */
    uint32_t rows[MOST_ITEMS];
    float *x, *want, *got; /* [total][dim] */
} experts;

static uint32_t some(uint32_t n, uint64_t *seed)
{
    return (uint32_t)(test_random(seed) % n);
}

static gemm_weight *random_weight(gemm_type type, uint32_t n, uint32_t k, uint64_t *seed)
{
    gemm_weight *w;
    CHECK_OK(gemm_weight_create(NULL, type, n, k, NULL, &w, NULL));
    float *rows = malloc((size_t)n * k * sizeof *rows);
    fill(rows, (size_t)n * k, seed);
    gemm_weight_set_rows(w, 0, n, rows, k);
    free(rows);
    return w;
}

static experts make(uint64_t *seed)
{
    static const gemm_type types[] = {GEMM_F32, GEMM_BF16, GEMM_Q8_0, GEMM_BF16W, GEMM_F16W};
    experts e = {.type = types[some(4, seed)],
                 .count = 1 + some(MOST_ITEMS, seed),
                 .dim = 1 + some(200, seed),
                 .ffn = some(2, seed) ? 64 * (1 + some(3, seed)) : 1 + some(150, seed)};
    if (e.type == GEMM_BF16W || e.type == GEMM_F16W) e.dim += e.dim % 2, e.ffn += e.ffn % 2;
    for (uint32_t i = 0; i < e.count; i++) {
        e.gate_up[i] = random_weight(e.type, 2 * e.ffn, e.dim, seed);
        e.down[i] = random_weight(e.type, e.dim, e.ffn, seed);
        e.rows[i] = 1 + some(some(3, seed) ? 4 : MOST_ROWS, seed);
        e.total += e.rows[i];
        if (some(2, seed)) {
            e.bias[i] = malloc(2 * e.ffn * sizeof *e.bias[i]);
            fill(e.bias[i], 2 * e.ffn, seed);
        }
    }
    const size_t bytes = (size_t)e.total * e.dim * sizeof *e.x;
    e.x = malloc(bytes), e.want = malloc(bytes), e.got = malloc(bytes);
    fill(e.x, (size_t)e.total * e.dim, seed);
    return e;
}

static void drop(experts *e)
{
    for (uint32_t i = 0; i < e->count; i++) {
        gemm_weight_destroy(e->gate_up[i]);
        gemm_weight_destroy(e->down[i]);
        free(e->bias[i]);
    }
    free(e->x), free(e->want), free(e->got);
}

/* One after the other, each in three steps. */
static void run_alone(const experts *e)
{
    const size_t wide = 2 * (size_t)e->ffn;
    for (uint32_t i = 0, first = 0; i < e->count; first += e->rows[i++]) {
        const uint32_t m = e->rows[i];
        float *out = malloc(m * wide * sizeof *out);
        guarded scratch = guarded_alloc(
            RAD_MAX(gemm_scratch_bytes(e->gate_up[i], m), gemm_scratch_bytes(e->down[i], m)));
        gemm_run(e->gate_up[i], e->x + (size_t)first * e->dim, e->dim, m, out, wide, false, NULL,
                 scratch.data);
        for (uint32_t r = 0; r < m; r++) {
            float *gate = out + r * wide;
            for (uint32_t k = 0; e->bias[i] && k < wide; k++)
                gate[k] += e->bias[i][k];
            some_glu(gate, gate + e->ffn, e->ffn);
        }
        gemm_run(e->down[i], out, wide, m, e->want + (size_t)first * e->dim, e->dim, false, NULL,
                 scratch.data);
        guarded_free(&scratch);
        free(out);
    }
}

static void run_together(const experts *e, compute_pool *pool)
{
    const size_t wide = 2 * (size_t)e->ffn;
    float *mid = malloc(e->total * wide * sizeof *mid);
    guarded scratch = guarded_alloc(gemm_scratch_bytes(e->gate_up[0], e->total));
    guarded then = guarded_alloc(gemm_scratch_bytes(e->down[0], e->total));
    gemm_item items[MOST_ITEMS];
    for (uint32_t i = 0, first = 0; i < e->count; first += e->rows[i++]) {
        items[i] = (gemm_item){.w = e->gate_up[i],
                               .x = e->x + (size_t)first * e->dim,
                               .out = mid + first * wide,
                               .rows = e->rows[i],
                               .first = first,
                               .then = e->down[i],
                               .bias = e->bias[i]};
        for (uint32_t r = 0; r < e->rows[i]; r++)
            gemm_round_row(e->gate_up[i], items[i].x + (size_t)r * e->dim, first + r, scratch.data);
    }
    gemm_run_items_glu(items, e->count, e->dim, wide, some_glu, then.data, pool, scratch.data);
    for (uint32_t i = 0; i < e->count; i++) {
        items[i].w = e->down[i];
        items[i].x = items[i].out;
        items[i].out = e->got + (size_t)items[i].first * e->dim;
    }
    gemm_run_items(items, e->count, wide, e->dim, pool, then.data);
    guarded_free(&scratch);
    guarded_free(&then);
    free(mid);
}

TEST(items_have_the_bits_of_products_alone)
{
    uint64_t seed = test_told_seed();
    compute_pool *pools[3];
    start_pools(pools);
    for (uint64_t round = 0; round < test_scale(60, 3000); round++) {
        experts e = make(&seed);
        run_alone(&e);
        for (uint32_t t = 0; t < 3; t++) {
            memset(e.got, 0xff, (size_t)e.total * e.dim * sizeof *e.got);
            run_together(&e, pools[t]);
            CHECKF(memcmp(e.got, e.want, (size_t)e.total * e.dim * sizeof *e.got) == 0,
                   "%s: %u items of %u rows, dim %u, ffn %u, %u threads\n", gemm_type_name(e.type),
                   e.count, e.total, e.dim, e.ffn, t + 1);
        }
        drop(&e);
    }
    stop_pools(pools);
}

TEST(no_items_are_no_work)
{
    gemm_run_items(NULL, 0, 1, 1, NULL, NULL);
    gemm_run_items_glu(NULL, 0, 1, 1, some_glu, NULL, NULL, NULL);
}

TEST_MAIN()
