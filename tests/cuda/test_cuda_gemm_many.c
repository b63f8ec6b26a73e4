/* Products for many tokens: their numbers are a chain of matrix instructions in ascending k,
 * whatever the tile, the kernel and the tokens beside them. */
#include "cuda_rig.h"

#include "cuda/gemm_many_plan.h"

typedef struct product_case {
    uint32_t n, n_out, k, tokens, splits, epilogue;
} product_case;

typedef struct matrices {
    product_case c;
    uint16_t *w, *x;
    float *want; /* [splits][tokens][n]: each range's chain */
} matrices;

static uint64_t state;
static uint32_t rnd(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static uint16_t number(void)
{
    /* Signs, mantissas and 8 exponents at random; a zero now and then. */
    uint32_t r = rnd();
    return r % 31 == 0 ? 0 : (uint16_t)((r & 0x807f) | (122 + (r >> 20) % 8) << 7);
}

/* Each range of k by the model of a tensor core alone, 16 tokens by 8 rows at a time. */
static void chains(matrices *m, tensor_core_model model)
{
    const product_case *c = &m->c;
    const uint32_t range = c->k / c->splits;
    for (uint32_t s = 0; s < c->splits; s++)
        for (uint32_t t = 0; t < c->tokens; t += 16)
            for (uint32_t n = 0; n < c->n; n += 8) {
                float d[16][8] = {0};
                for (uint32_t k = s * range; k < (s + 1) * range; k += 16) {
                    uint16_t a[16][16] = {0}, b[8][16];
                    for (uint32_t i = 0; i < 16 && t + i < c->tokens; i++)
                        memcpy(a[i], m->x + (size_t)(t + i) * c->k + k, sizeof a[i]);
                    for (uint32_t i = 0; i < 8; i++)
                        memcpy(b[i], m->w + (size_t)(n + i) * c->k + k, sizeof b[i]);
                    tensor_core_bf16(model, d, a, b);
                }
                for (uint32_t i = 0; i < 16 && t + i < c->tokens; i++)
                    memcpy(m->want + ((size_t)s * c->tokens + t + i) * c->n + n, d[i], sizeof d[i]);
            }
}

static matrices make(cuda_rig *rig, product_case c, tensor_core_model model)
{
    matrices m = {.c = c};
    m.w = rig_alloc(rig, (size_t)c.n * c.k * 2);
    m.x = rig_alloc(rig, (size_t)c.tokens * c.k * 2);
    m.want = malloc((size_t)c.splits * c.tokens * c.n * sizeof *m.want);
    CHECK(m.want);
    for (size_t i = 0; i < (size_t)c.n * c.k; i++)
        m.w[i] = number();
    for (size_t i = 0; i < (size_t)c.tokens * c.k; i++)
        m.x[i] = number();
    /* Gates that are zero, and some far beyond what exp takes. */
    for (size_t i = 0; c.epilogue == GEMM_SWIGLU && i < c.k; i++) {
        m.x[i] = 0;
        m.x[c.k + i] = (uint16_t)(m.x[c.k + i] ? m.x[c.k + i] + (60 << 7) : 0);
        m.x[2 * c.k + i] = (uint16_t)(m.x[2 * c.k + i] ? m.x[2 * c.k + i] - (110 << 7) : 0);
    }
    chains(&m, model);
    return m;
}

/* glu.h, as the CPU has it */
static float swiglu_of(float gate, float up)
{
    float x = -gate;
    x = x > 87.0f ? 87.0f : x;
    x = x < -87.0f ? -87.0f : x;
    float k = x * 1.44269504f + 12582912.0f;
    uint32_t power;
    memcpy(&power, &k, 4);
    power = (power - 0x4b400000u + 127) << 23;
    k -= 12582912.0f;
    float r = x - k * 0.693359375f, p = 1.0f / 5040, scale;
    r -= k * -2.12194440e-4f;
    const float more[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    for (int i = 0; i < 7; i++)
        p = p * r + more[i];
    memcpy(&scale, &power, 4);
    return gate / (p * scale + 1.0f) * up;
}

static uint16_t rounded(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

/* Number `column` of token t in part p of the output. */
static float wanted(const matrices *m, uint32_t parts, uint32_t p, uint32_t t, uint32_t column)
{
    const product_case *c = &m->c;
    const size_t step = (size_t)c->tokens * c->n;
    const float *at = m->want + p * step + (size_t)t * c->n + column;
    float sum = at[0];
    if (parts == 1)
        for (uint32_t s = 1; s < c->splits; s++)
            sum += at[s * step];
    return sum;
}

static void run(cuda_rig *rig, const matrices *m, const cuda_gemm_many_plan *plan,
                tensor_core_model model, uint64_t order, void *out, uint32_t ld)
{
    const product_case *c = &m->c;
    const gemm_args args = {.w = m->w,
                            .x = m->x,
                            .out = out,
                            .n = c->n,
                            .n_out = c->n_out,
                            .k = c->k,
                            .tokens = c->tokens,
                            .splits = c->splits,
                            .ld_out = ld,
                            .epilogue = c->epilogue};
    gemm_wgmma_args maps = {.out = out,
                            .n = c->n,
                            .n_out = c->n_out,
                            .k = c->k,
                            .tokens = c->tokens,
                            .splits = c->splits,
                            .ld_out = ld,
                            .epilogue = c->epilogue};
    char name[64];
    snprintf(name, sizeof name, "%s%s", plan->wgmma ? "sm90:" : "", plan->kernel);
    emulation launch = {.kernel = name,
                        .grid = {plan->grid, 1, 1},
                        .threads = plan->threads,
                        .shared_bytes = plan->shared_bytes,
                        .args = plan->wgmma ? (const void *)&maps : (const void *)&args,
                        .order = order,
                        .model = model};
    if (plan->wgmma) {
        rig_map(rig, &maps.w, m->w, c->n, c->k, 64);
        rig_map(rig, &maps.x, m->x, c->tokens, c->k, plan->x_box);
    }
    rig_launch(rig, plan->wgmma ? "gemm_wgmma" : "gemm_many", launch,
               plan->wgmma ? sizeof maps : sizeof args);
}

static void check(cuda_rig *rig, const matrices *m, const cuda_gemm_many_plan *plan,
                  tensor_core_model model, uint64_t order)
{
    const product_case *c = &m->c;
    const bool glu = c->epilogue == GEMM_SWIGLU;
    const uint32_t columns = glu ? c->n_out / 2 : c->n_out, ld = (columns + 7) / 8 * 8;
    const size_t bytes = (size_t)plan->parts * c->tokens * ld * (glu ? 2 : 4);
    const uint32_t keep = rig->num_buffers;
    unsigned char *out = rig_alloc(rig, bytes);
    run(rig, m, plan, model, order, out, ld);
    for (uint32_t p = 0; p < plan->parts; p++)
        for (uint32_t t = 0; t < c->tokens; t++)
            for (uint32_t i = 0; i < ld; i++) {
                const size_t at = ((size_t)p * c->tokens + t) * ld + i;
                uint32_t got = 0, want = glu ? 0xa5a5 : 0xa5a5a5a5;
                memcpy(&got, out + at * (glu ? 2 : 4), glu ? 2 : 4);
                if (i < columns && glu) {
                    const uint32_t gate = i / 8 * 16 + i % 8;
                    want =
                        rounded(swiglu_of(wanted(m, 1, 0, t, gate), wanted(m, 1, 0, t, gate + 8)));
                } else if (i < columns) {
                    const float number = wanted(m, plan->parts, p, t, i);
                    memcpy(&want, &number, 4);
                }
                if (got != want)
                    fail_msg("%s, n %u (%u) k %u tokens %u splits %u, order %u: part %u token %u "
                             "number %u is %08x, not %08x",
                             plan->kernel, c->n, c->n_out, c->k, c->tokens, c->splits,
                             (unsigned)order, p, t, i, got, want);
            }
    rig_free(rig, keep);
}

static const cuda_gemm_many_room all_kernels = {
    .multiprocessors = 3, .shared_bytes = 232448, .wgmma = true, .part_rows = 1 << 20};

/* Every kernel that is for such a matrix. */
static void check_all(product_case c, tensor_core_model model, uint64_t order)
{
    cuda_rig rig = rig_open();
    matrices m = make(&rig, c, model);
    cuda_gemm_many_plan plan;
    int checked = 0;
    for (uint32_t i = 0;; i++) {
        bool fits = cuda_gemm_many_plan_of(i, c.n, c.k, c.tokens, c.splits, all_kernels, &plan);
        if (!plan.kernel) break;
        if (!fits || (plan.wgmma && model != TENSOR_CORE_SM90)) continue;
        check(&rig, &m, &plan, model, order);
        checked++;
    }
    CHECK(checked >= (c.splits == 1 ? 3 : 5));
    free(m.want);
    rig_close(&rig);
}

/* Rows of tokens and of W that fill no tile, a k that fills no ring, columns that end in a row. */
TEST(products_are_chains_in_ascending_k)
{
    state = 1;
    check_all((product_case){.n = 16, .n_out = 13, .k = 64, .tokens = 1, .splits = 1},
              TENSOR_CORE_SM90, 0);
    check_all((product_case){.n = 80, .n_out = 77, .k = 256, .tokens = 67, .splits = 1},
              TENSOR_CORE_SM80, 1);
    check_all((product_case){.n = 272, .n_out = 272, .k = 64, .tokens = 9, .splits = 1},
              TENSOR_CORE_SM90, 7);
}

TEST(ranges_of_k_are_added_in_order_or_left_as_parts)
{
    state = 2;
    check_all((product_case){.n = 48, .n_out = 48, .k = 512, .tokens = 66, .splits = 2},
              TENSOR_CORE_SM90, 3);
    check_all((product_case){.n = 16, .n_out = 16, .k = 512, .tokens = 3, .splits = 8},
              TENSOR_CORE_SM80, 0);
}

TEST(gated_units_are_rounded_products)
{
    state = 3;
    check_all(
        (product_case){
            .n = 96, .n_out = 96, .k = 128, .tokens = 18, .splits = 1, .epilogue = GEMM_SWIGLU},
        TENSOR_CORE_SM90, 5);
    check_all(
        (product_case){
            .n = 48, .n_out = 48, .k = 64, .tokens = 5, .splits = 1, .epilogue = GEMM_SWIGLU},
        TENSOR_CORE_SM80, 1);
}

TEST(plans_fit_every_gpu)
{
    const cuda_gemm_many_room rooms[] = {
        {.multiprocessors = 132, .shared_bytes = 232448, .wgmma = true, .part_rows = 2048},
        {.multiprocessors = 132, .shared_bytes = 232448},
        {.multiprocessors = 108, .shared_bytes = 166912, .part_rows = 512},
        {.multiprocessors = 20, .shared_bytes = 101376},
    };
    const uint32_t sizes[] = {64, 1024, 2048, 3072, 4096, 14336};
    for (int r = 0; r < 4; r++)
        for (uint32_t n = 16; n < 200000; n = n * 3 / 32 * 16 + 16)
            for (int i = 0; i < 6; i++)
                for (uint32_t tokens = 1; tokens <= 8192; tokens = tokens * 2 + 1) {
                    const uint32_t splits = cuda_splits(n, sizes[i]);
                    cuda_gemm_many_plan p =
                        cuda_gemm_many_plan_make(n, sizes[i], tokens, splits, rooms[r]);
                    CHECK(p.shared_bytes + 1024 <= rooms[r].shared_bytes);
                    CHECK(p.parts == 1 ||
                          (p.parts == splits && p.parts * tokens <= rooms[r].part_rows));
                    CHECK(!p.wgmma || (rooms[r].wgmma && p.grid <= rooms[r].multiprocessors));
                    CHECK(!strstr(p.kernel, "_few_") && !strstr(p.kernel, "_192_")); /* untried */
                }
    /* What the kernels are for: large tiles fill an H100, small ones share it out. */
    CHECK(strcmp(cuda_gemm_many_plan_make(6144, 4096, 2048, 1, rooms[0]).kernel,
                 "gemm_wgmma_256") == 0);
    CHECK(strcmp(cuda_gemm_many_plan_make(6144, 4096, 2048, 1, rooms[1]).kernel, "gemm_many_256") ==
          0);
    CHECK(strcmp(cuda_gemm_many_plan_make(1024, 2048, 2048, 4, rooms[0]).kernel,
                 "gemm_wgmma_128_sum") == 0);
    CHECK(cuda_gemm_many_plan_make(1024, 2048, 128, 4, rooms[0]).parts == 4);
    CHECK(cuda_gemm_many_plan_make(1024, 2048, 128, 4, rooms[1]).parts == 1);
}

TEST_MAIN()
