/* test_gemm_stack.c - a stack of parts of several types computes what its parts compute alone,
 * bit by bit. test_gemm_quant.c says that those are right. */
#include "gear/amx_gear.h"
#include "gemm_rig.h"

#include "gguf/quant.h"

enum { MOST_PARTS = 4, MOST_ROWS = 200, MOST_M = 230 };

static const char *const isa_names[] = {"scalar",  "avx512bf16", "avx512vnni", "avx512",
                                        "avxvnni", "avx2",       "amx",        "amx-emulated",
                                        "i8mm",    "dotprod",    "neon"};

static const struct quant {
    gemm_type type;
    uint32_t values, bytes, d;
} quants[] = {{GEMM_Q8_0, 32, 34, 0},    {GEMM_Q4_0, 32, 18, 0},   {GEMM_Q5_1, 32, 24, 0},
              {GEMM_IQ4_NL, 32, 18, 0},  {GEMM_Q2_K, 256, 84, 80}, {GEMM_Q3_K, 256, 110, 108},
              {GEMM_Q4_K, 256, 144, 0},  {GEMM_Q5_K, 256, 176, 0}, {GEMM_Q6_K, 256, 210, 208},
              {GEMM_IQ4_XS, 256, 136, 0}};
enum { BLOCKS_OF_32 = 4 };

/* A stack, and each of its parts as a weight of its own. */
typedef struct stacked {
    gemm_weight *stack, *alone[MOST_PARTS];
    gemm_part parts[MOST_PARTS];
    uint32_t num_parts;
    guarded memory; /* the stack's, of every other one */
} stacked;

static void set_random_rows(const struct quant *q, const stacked *s, uint32_t part, uint32_t first,
                            uint32_t k, uint64_t *seed)
{
    uint32_t n = s->parts[part].n;
    size_t pitch = (size_t)k / q->values * q->bytes;
    uint8_t *blocks = malloc(n * pitch);
    for (size_t i = 0; i < n * pitch; i++)
        blocks[i] = (uint8_t)(test_random(seed) >> 13);
    for (size_t b = 0; b < n * pitch; b += q->bytes) {
        uint16_t d = (uint16_t)(test_random(seed) % 0x2000);
        memcpy(blocks + b + q->d, &d, sizeof d);
        if (q->type == GEMM_Q5_1 || q->type == GEMM_Q2_K || q->type == GEMM_Q4_K ||
            q->type == GEMM_Q5_K)
            memcpy(blocks + b + q->d + 2, &d, sizeof d); /* a minimum */
    }
    gemm_weight_set_blocks(s->alone[part], 0, n, blocks, pitch);
    uint32_t half = n / 2; /* a stack's part in two pieces */
    gemm_weight_set_blocks(s->stack, first, half, blocks, pitch);
    gemm_weight_set_blocks(s->stack, first + half, n - half, blocks + half * pitch, pitch);
    free(blocks);
}

static stacked make_stack(const uint32_t *rows, uint32_t num_parts, uint32_t k, const gemm_isa *isa,
                          uint64_t *seed)
{
    stacked s = {.num_parts = num_parts};
    const struct quant *q[MOST_PARTS];
    size_t bytes = 0;
    for (uint32_t p = 0; p < num_parts; p++) {
        q[p] = &quants[test_random(seed) % (k % 256 ? BLOCKS_OF_32 : RAD_COUNT(quants))];
        s.parts[p] = (gemm_part){q[p]->type, rows[p]};
        CHECK_OK(gemm_weight_create(NULL, q[p]->type, rows[p], k, isa, &s.alone[p], NULL));
        bytes += gemm_weight_bytes(q[p]->type, rows[p], k);
    }
    if (test_random(seed) % 2) s.memory = guarded_alloc(bytes);
    CHECK_OK(
        gemm_weight_create_stack(NULL, s.memory.data, s.parts, num_parts, k, isa, &s.stack, NULL));
    for (uint32_t p = 0, first = 0; p < num_parts; first += rows[p++])
        set_random_rows(q[p], &s, p, first, k, seed);
    return s;
}

static void free_stack(stacked *s)
{
    gemm_weight_destroy(s->stack);
    if (s->memory.data) guarded_free(&s->memory);
    for (uint32_t p = 0; p < s->num_parts; p++)
        gemm_weight_destroy(s->alone[p]);
}

static void check_rows(const stacked *s, uint32_t k)
{
    float *row = malloc(k * sizeof *row), *want = malloc(k * sizeof *want);
    uint32_t n = 0;
    for (uint32_t p = 0; p < s->num_parts; p++)
        for (uint32_t r = 0; r < s->parts[p].n; r++, n++) {
            CHECK(gemm_weight_type_of_row(s->stack, n) == s->parts[p].type);
            gemm_weight_get_row(s->stack, n, row);
            gemm_weight_get_row(s->alone[p], r, want);
            CHECK(memcmp(row, want, k * sizeof *row) == 0);
        }
    CHECK(gemm_weight_n(s->stack) == n && gemm_weight_k(s->stack) == k);
    free(row);
    free(want);
}

/* All parts' columns of `want`, one weight after the other. */
static void run_alone(const stacked *s, const float *x, size_t ldx, uint32_t m, float *want,
                      size_t ldo, bool accumulate, void *scratch)
{
    for (uint32_t p = 0; p < s->num_parts; want += s->parts[p++].n)
        gemm_run(s->alone[p], x, ldx, m, want, ldo, accumulate, NULL, scratch);
}

static void check_products(const stacked *s, const gemm_weight *next, uint32_t m,
                           compute_pool *pool, uint64_t *seed)
{
    uint32_t k = gemm_weight_k(s->stack), n = gemm_weight_n(s->stack);
    operands o = operands_alloc(n, k, m, seed);
    guarded scratch = guarded_alloc(gemm_scratch_bytes(s->stack, m));
    bool accumulate = test_random(seed) % 2;
    operands_fill(&o, seed);
    float *want = o.before;
    run_alone(s, o.x, o.ldx, m, want, o.ldo, accumulate, scratch.data);
    gemm_weight_set_next(s->stack, next);
    gemm_run(s->stack, o.x, o.ldx, m, o.out, o.ldo, accumulate, pool, scratch.data);
    CHECKF(memcmp(o.out, want, o.out_count * sizeof *want) == 0, "n %u k %u m %u\n", n, k, m);
    operands_free(&o);
    guarded_free(&scratch);
}

TEST(a_stack_computes_what_its_parts_compute)
{
    uint64_t seed = test_told_seed();
    compute_pool *pools[3];
    start_pools(pools);
    for (uint64_t round = 0; round < test_scale(12, 300); round++)
        for (size_t i = round % 3 ? 1 : 0; i < RAD_COUNT(isa_names); i++) {
            const gemm_isa *isa = gear_gemm_isa(isa_names[i]);
            if (!isa) continue;
            uint32_t rows[MOST_PARTS], parts = 1 + (uint32_t)(test_random(&seed) % MOST_PARTS);
            for (uint32_t p = 0; p < parts; p++)
                rows[p] = test_random(&seed) % 2 ? 64 * (1 + (uint32_t)(test_random(&seed) % 3))
                                                 : 1 + (uint32_t)(test_random(&seed) % MOST_ROWS);
            uint32_t k = test_random(&seed) % 4 ? 256 * (1 + (uint32_t)(test_random(&seed) % 2))
                                                : 32 * (1 + (uint32_t)(test_random(&seed) % 9));
            stacked s = make_stack(rows, parts, k, isa, &seed);
            stacked next = make_stack(rows, 1 + (uint32_t)round % parts, k, isa, &seed);
            check_rows(&s, k);
            for (int small = 0; small < 2; small++) {
                uint32_t most = small ? 7 : i ? MOST_M : 20;
                check_products(&s, round % 2 ? next.stack : NULL,
                               1 + (uint32_t)(test_random(&seed) % most), pools[round % 3], &seed);
            }
            free_stack(&s);
            free_stack(&next);
        }
    stop_pools(pools);
}

/* down . glu(gate_up . x) in one step, against parts alone and three steps. */
static void check_gated(const stacked *gate_up, const stacked *down, uint32_t m, compute_pool *pool,
                        uint64_t *seed)
{
    uint32_t k = gemm_weight_k(gate_up->stack), ffn = gemm_weight_k(down->stack);
    uint32_t n = gemm_weight_n(down->stack);
    size_t ldo = 2 * (size_t)ffn;
    float *x = malloc((size_t)m * k * sizeof *x), *wide = malloc(m * ldo * sizeof *wide);
    float *want = malloc((size_t)m * n * sizeof *want), *out = malloc((size_t)m * n * sizeof *out);
    guarded scratch = guarded_alloc(gemm_scratch_bytes(gate_up->stack, m));
    guarded then = guarded_alloc(gemm_scratch_bytes(down->stack, m));
    fill(x, (size_t)m * k, seed);
    run_alone(gate_up, x, k, m, wide, ldo, false, scratch.data);
    for (uint32_t i = 0; i < m; i++)
        some_glu(wide + i * ldo, wide + i * ldo + ffn, ffn);
    run_alone(down, wide, ldo, m, want, n, false, then.data);

    memset(then.data, 0xff, gemm_scratch_bytes(down->stack, m));
    gemm_weight_set_next(gate_up->stack, down->stack);
    gemm_weight_set_next(down->stack, gate_up->stack);
    for (uint32_t i = 0; i < m; i++)
        gemm_round_row(gate_up->stack, x + (size_t)i * k, i, scratch.data);
    gemm_run_glu(gate_up->stack, x, k, m, some_glu, wide, ldo, down->stack, then.data, pool,
                 scratch.data);
    gemm_run_rounded(down->stack, wide, ldo, m, out, n, false, pool, then.data);
    CHECKF(memcmp(out, want, (size_t)m * n * sizeof *out) == 0, "k %u ffn %u n %u m %u\n", k, ffn,
           n, m);
    guarded_free(&scratch);
    guarded_free(&then);
    free(x);
    free(wide);
    free(want);
    free(out);
}

TEST(gates_and_ups_of_different_types)
{
    uint64_t seed = test_told_seed();
    compute_pool *pool;
    CHECK_OK(compute_pool_create(NULL, 2, &pool, NULL));
    /* Gates that fill panels, that do not, and parts that end elsewhere than gates do. */
    static const uint32_t shapes[][4] = {
        {256, 256, 0, 0}, {64, 64, 0, 0},   {96, 96, 0, 0},
        {100, 28, 0, 0},  {64, 64, 128, 0}, {32, 96, 64, 64},
    };
    for (size_t i = 0; i < RAD_COUNT(isa_names); i++) {
        const gemm_isa *isa = gear_gemm_isa(isa_names[i]);
        for (size_t t = 0; isa && t < RAD_COUNT(shapes); t++) {
            uint32_t parts = 0, ffn = 0;
            while (parts < 4 && shapes[t][parts])
                ffn += shapes[t][parts++];
            stacked gate_up = make_stack(shapes[t], parts, 256, isa, &seed);
            stacked down = make_stack((uint32_t[]){70, 60}, 2, ffn / 2, isa, &seed);
            check_gated(&gate_up, &down, 1 + (uint32_t)(test_random(&seed) % (i ? 110 : 5)),
                        i % 2 ? pool : NULL, &seed);
            free_stack(&gate_up);
            free_stack(&down);
        }
    }
    compute_pool_destroy(pool);
}

TEST(stacks_that_cannot_be)
{
    gemm_weight *w = NULL;
    rad_error err = {0};
    const gemm_part mixed[] = {{GEMM_Q8_0, 5}, {GEMM_BF16, 5}},
                    floats[] = {{GEMM_BF16, 5}, {GEMM_F32, 5}};
    const gemm_part many[] = {{GEMM_Q8_0, UINT32_MAX - 5}, {GEMM_Q4_0, 6}};
    const gemm_part empty[] = {{GEMM_Q8_0, 5}, {GEMM_Q4_0, 0}};
    const gemm_part odd[] = {{GEMM_Q8_0, 5}, {GEMM_Q6_K, 5}};
    CHECK(gemm_weight_create_stack(NULL, NULL, mixed, 2, 64, NULL, &w, &err) == RAD_E_INVAL && !w);
    CHECK(strstr(err.text, "q8_0") && strstr(err.text, "bf16"));
    CHECK(gemm_weight_create_stack(NULL, NULL, floats, 2, 64, NULL, &w, &err) == RAD_E_INVAL && !w);
    CHECK(gemm_weight_create_stack(NULL, NULL, many, 2, 64, NULL, &w, &err) == RAD_E_INVAL && !w);
    CHECK(gemm_weight_create_stack(NULL, NULL, empty, 2, 64, NULL, &w, &err) == RAD_E_INVAL && !w);
    CHECK(gemm_weight_create_stack(NULL, NULL, odd, 2, 64, NULL, &w, &err) == RAD_E_INVAL && !w);
    CHECK(gemm_weight_create_stack(NULL, NULL, odd, 0, 64, NULL, &w, &err) == RAD_E_INVAL && !w);
}

TEST(creating_survives_every_allocation_failing)
{
    const gemm_part parts[] = {{GEMM_Q8_0, 5}, {GEMM_Q4_K, 70}, {GEMM_Q6_K, 64}};
    gemm_weight *w = NULL;
    for (long n = 0; !w; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = gemm_weight_create_stack(&env, NULL, parts, 3, 512, NULL, &w, NULL);
        CHECK(status == (w ? RAD_OK : RAD_E_NOMEM));
        gemm_weight_destroy(w);
        CHECK(t.bytes == 0);
    }
}

TEST_MAIN()
