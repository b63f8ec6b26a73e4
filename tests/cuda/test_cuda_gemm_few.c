/* Products for few tokens, and quantised ones for many: gemm_few.cu has the sums of the tensor
 * core's model in the order that P1 fixes, whatever the tokens and the plan; gemm_quant.cu,
 * gemm_quant_many.cu and quantise_rows.cu have the CPU's bits.
 */
#include "cuda_rig.h"

#include "base/bf16.h"
#include "cuda/gemm_plan.h"
#include "cuda/quant_many_plan.h"
#include "cuda/quant_pack.h"
#include "emulator.h"
#include "gguf/quant.h"
#include "model/gemm_quant.h"
#include "model/ops.h"

#include <math.h>

static uint64_t state;
static const cuda_gemm_room small_gpu = {3, 227 << 10};

static uint32_t less(uint32_t n)
{
    return (uint32_t)(test_random(&state) % n);
}

/* Both signs, some 16 powers of two apart. */
static float number(void)
{
    const float v = 1 + (float)less(128) / 128;
    return ldexpf(less(2) ? v : -v, -(int)less(16));
}

/* ---- bf16 ---- */

typedef struct matrices {
    uint32_t n, k, splits;
    uint16_t *w, *x; /* x: GEMM_FEW_TOKENS rows */
    float *want;     /* [splits][GEMM_FEW_TOKENS][n] by the model */
} matrices;

/* The order of kernel_args.h, a k16 after the other. */
static void multiply(const matrices *m, tensor_core_model model)
{
    const uint32_t range = m->k / m->splits;
    for (uint32_t s = 0; s < m->splits; s++)
        for (uint32_t row = 0; row < m->n; row += 16)
            for (uint32_t token = 0; token < GEMM_FEW_TOKENS; token += 8) {
                float d[16][8] = {{0}};
                for (uint32_t k = s * range; k < (s + 1) * range; k += 16) {
                    uint16_t a[16][16], b[8][16];
                    for (uint32_t i = 0; i < 16; i++)
                        memcpy(a[i], m->w + (row + i) * m->k + k, 32);
                    for (uint32_t i = 0; i < 8; i++)
                        memcpy(b[i], m->x + (token + i) * m->k + k, 32);
                    tensor_core_bf16(model, d, a, b);
                }
                for (uint32_t i = 0; i < 16; i++)
                    for (uint32_t t = 0; t < 8; t++)
                        m->want[(s * GEMM_FEW_TOKENS + token + t) * m->n + row + i] = d[i][t];
            }
}

static matrices make(cuda_rig *rig, uint32_t n, uint32_t k, uint32_t splits)
{
    matrices m = {.n = n, .k = k, .splits = splits};
    m.w = rig_alloc(rig, (size_t)n * k * 2);
    m.x = rig_alloc(rig, (size_t)GEMM_FEW_TOKENS * k * 2);
    m.want = malloc(sizeof(float) * splits * GEMM_FEW_TOKENS * n);
    for (size_t i = 0; i < (size_t)n * k; i++)
        m.w[i] = bf16_from_f32(number());
    for (size_t i = 0; i < (size_t)GEMM_FEW_TOKENS * k; i++)
        m.x[i] = bf16_from_f32(number());
    return m;
}

/* Tokens [first, first + tokens) by a plan drawn at random; `out` has ld_out numbers a row. */
static void launch(cuda_rig *rig, const matrices *m, void *out, uint32_t first, uint32_t tokens,
                   uint32_t n_out, uint32_t ld_out, uint32_t epilogue, tensor_core_model model)
{
    cuda_gemm_plan plan;
    cuda_gemm_choice choice;
    do
        choice = (cuda_gemm_choice){1 + less(4), 3 + less(6), 1 + less(2), less(2)};
    while (!cuda_gemm_few_plan_of(CUDA_GEMM_BF16, m->n, m->k, tokens, m->splits, small_gpu, choice,
                                  &plan));
    const gemm_args args = {.w = m->w,
                            .x = m->x + (size_t)first * m->k,
                            .out = out,
                            .n = m->n,
                            .n_out = n_out,
                            .k = m->k,
                            .tokens = tokens,
                            .splits = m->splits,
                            .ld_out = ld_out,
                            .epilogue = epilogue,
                            .warps = plan.warps,
                            .stages = plan.stages};
    rig_launch(rig, "gemm_few",
               (emulation){.kernel = plan.kernel,
                           .grid = {plan.grid, 1, 1},
                           .threads = plan.threads,
                           .shared_bytes = plan.shared_bytes,
                           .args = &args,
                           .order = less(4),
                           .model = model},
               sizeof args);
}

static bool untouched(const void *memory, size_t bytes)
{
    for (const unsigned char *p = memory; bytes; p++, bytes--)
        if (*p != 0xa5) return false;
    return true;
}

static void check_parts(cuda_rig *rig, const matrices *m, uint32_t first, uint32_t tokens,
                        tensor_core_model model)
{
    const uint32_t n_out = m->n - less(16), ld_out = n_out + less(3), keep = rig->num_buffers;
    float *out = rig_alloc(rig, sizeof(float) * m->splits * tokens * ld_out);
    launch(rig, m, out, first, tokens, n_out, ld_out, GEMM_PARTS, model);
    for (uint32_t s = 0; s < m->splits; s++)
        for (uint32_t t = 0; t < tokens; t++) {
            const float *row = out + (s * tokens + t) * ld_out;
            const float *want = m->want + (s * GEMM_FEW_TOKENS + first + t) * m->n;
            CHECKF(memcmp(row, want, n_out * 4) == 0, "n %u k %u: token %u of %u differs\n", m->n,
                   m->k, t, tokens);
            CHECK(untouched(row + n_out, (ld_out - n_out) * 4));
        }
    rig_free(rig, keep);
}

static const uint32_t shapes[][3] = {{48, 256, 1}, {80, 320, 1}, {112, 512, 2}, {16, 1024, 4}};

static void check_shapes(tensor_core_model model, uint32_t draws)
{
    cuda_rig rig = rig_open();
    for (size_t i = 0; i < RAD_COUNT(shapes); i++) {
        matrices m = make(&rig, shapes[i][0], shapes[i][1], shapes[i][2]);
        multiply(&m, model);
        check_parts(&rig, &m, 0, GEMM_FEW_TOKENS, model);
        for (uint32_t d = 0; d < draws; d++) {
            const uint32_t tokens = 1 + less(d % 2 ? 16 : GEMM_FEW_TOKENS);
            check_parts(&rig, &m, less(GEMM_FEW_TOKENS + 1 - tokens), tokens, model);
        }
        free(m.want);
        rig_free(&rig, 0);
    }
    rig_close(&rig);
}

TEST(a_token_has_its_bits_among_any_and_by_any_plan)
{
    state = test_told_seed();
    check_shapes(TENSOR_CORE_SM90, (uint32_t)test_scale(4, 60));
    check_shapes(TENSOR_CORE_SM80, (uint32_t)test_scale(1, 30));
}

/* What the model itself is held to. A fused sum cuts each of its 17 addends (sm_80: 9) by less than
 * a unit, 2^-25 (2^-24) of the largest, and its result by 2^-23; no addend is larger than all sizes
 * together. There is one such sum for each 16 k (8). */
TEST(products_are_near_those_of_doubles)
{
    state = test_told_seed();
    cuda_rig rig = rig_open();
    matrices m = make(&rig, 32, 512, 1);
    const double of_size[] = {[TENSOR_CORE_SM90] = 512 / 16 * (17 * 0x1p-25 + 0x1p-23),
                              [TENSOR_CORE_SM80] = 512 / 8 * (9 * 0x1p-24 + 0x1p-23)};
    for (int model = 0; model < 2; model++) {
        multiply(&m, (tensor_core_model)model);
        for (uint32_t t = 0; t < GEMM_FEW_TOKENS; t++)
            for (uint32_t r = 0; r < m.n; r++) {
                double sum = 0, size = 0;
                for (uint32_t k = 0; k < m.k; k++) {
                    const double v = (double)bf16_to_f32(m.w[r * m.k + k]) *
                                     bf16_to_f32(m.x[t * m.k + k]);
                    sum += v, size += fabs(v);
                }
                CHECK(fabs(m.want[t * m.n + r] - sum) <= size * of_size[model]);
            }
    }
    free(m.want);
    rig_close(&rig);
}

TEST(gates_and_ups_of_one_product_become_what_the_next_one_reads)
{
    state = test_told_seed();
    cuda_rig rig = rig_open();
    matrices m = make(&rig, 80, 192, 1);
    multiply(&m, TENSOR_CORE_SM90);
    for (uint32_t round = 0; round < test_scale(4, 40); round++) {
        const uint32_t tokens = 1 + less(GEMM_FEW_TOKENS), ld = m.n / 2 + less(3);
        const uint32_t keep = rig.num_buffers;
        uint16_t *out = rig_alloc(&rig, (size_t)tokens * ld * 2);
        launch(&rig, &m, out, 0, tokens, m.n, ld, GEMM_SWIGLU, TENSOR_CORE_SM90);
        for (uint32_t t = 0; t < tokens; t++) {
            float gate[40], up[40];
            for (uint32_t i = 0; i < 40; i++) {
                gate[i] = m.want[t * m.n + i / 8 * 16 + i % 8];
                up[i] = m.want[t * m.n + i / 8 * 16 + 8 + i % 8];
            }
            model_ops_find(NULL)->swiglu(gate, up, 40);
            for (uint32_t i = 0; i < 40; i++)
                CHECK(out[t * ld + i] == bf16_from_f32(gate[i]));
            CHECK(untouched(out + t * ld + 40, (ld - 40) * 2));
        }
        rig_free(&rig, keep);
    }
    free(m.want);
    rig_close(&rig);
}

/* ---- quantised ---- */

static void quantise(cuda_rig *rig, const quantise_args *args)
{
    rig_launch(rig, "quantise_rows",
               (emulation){.kernel = "quantise_rows",
                           .grid = {args->rows, quantise_blocks(args->padded_k), 1},
                           .threads = QUANTISE_THREADS,
                           .args = args,
                           .order = less(4)},
               sizeof *args);
}

static bool same(float a, float b)
{
    return f32_bits(a) == f32_bits(b) || (isnan(a) && isnan(b));
}

TEST(activations_are_rounded_as_the_cpu_rounds_them)
{
    state = test_told_seed();
    for (uint32_t round = 0; round < test_scale(12, 200); round++) {
        cuda_rig rig = rig_open();
        const uint32_t rows = 1 + less(3), k = 32 * (1 + less(10)), ldx = 2 * k + less(4);
        const uint32_t parts = 1 + less(3), from = round % 3;
        quantise_args args = {.rows = rows,
                              .k = k,
                              .padded_k = cuda_quant_k(k),
                              .ldx = ldx,
                              .parts = from == QUANTISE_BF16 ? 1 : parts,
                              .ld_tokens = 4,
                              .from = from};
        float *x = rig_alloc(&rig, sizeof(float) * parts * rows * ldx), *row = malloc(2 * k * 4);
        args.x = x;
        const uint32_t blocks = args.padded_k / 32;
        args.q = rig_alloc(&rig, (size_t)rows * args.padded_k);
        args.scales = rig_alloc(&rig, sizeof(float) * 2 * blocks * 4);
        for (size_t i = 0; i < (size_t)parts * rows * ldx; i++) {
            x[i] = number();
            if (less(200) == 0) x[i] = less(2) ? NAN : INFINITY;
            if (i / 64 % 3 == 0) x[i] *= less(2) ? 0x1p-96f : 0x1p-120f;
        }
        quantise(&rig, &args);
        gemm_xblock want[10];
        for (uint32_t r = 0; r < rows; r++) {
            for (uint32_t i = 0; i < 2 * k; i++) {
                row[i] = from == QUANTISE_BF16 ? bf16_to_f32(((uint16_t *)x)[r * ldx + i])
                                               : x[r * ldx + i];
                for (uint32_t p = 1; p < args.parts; p++)
                    row[i] += x[(p * rows + r) * ldx + i];
            }
            if (from == QUANTISE_SWIGLU) model_ops_find(NULL)->swiglu(row, row + k, k);
            gemm_round_to_blocks(row, k, want);
            for (uint32_t b = 0; b < blocks; b++) {
                const int8_t *q = args.q + r * args.padded_k + b * 32;
                const float d = args.scales[b * 4 + r], sum = args.scales[(blocks + b) * 4 + r];
                if (b * 32 < k) {
                    CHECK(memcmp(q, want[b].q, 32) == 0);
                    CHECK(same(d, want[b].d) && same(sum, want[b].sum));
                } else {
                    for (uint32_t i = 0; i < 32; i++)
                        CHECK(q[i] == 0);
                    CHECK(d == 0 && sum == 0);
                }
            }
        }
        free(row);
        rig_close(&rig);
    }
}

/* Rows of blocks as a file has them: any bits as integers, scales up to 2^-4, some of them odd. */
static uint8_t *random_blocks(gemm_type type, uint32_t n, uint32_t k, size_t *pitch)
{
    const uint32_t values = type == GEMM_Q8_0 || type == GEMM_MXFP4 ? 32 : 256;
    const uint32_t bytes = type == GEMM_Q8_0    ? 34
                           : type == GEMM_MXFP4 ? 17
                           : type == GEMM_Q4_K  ? 144
                                                : 210;
    *pitch = k / values * bytes;
    uint8_t *blocks = malloc(n * *pitch);
    for (size_t i = 0; i < n * *pitch; i++)
        blocks[i] = (uint8_t)less(256);
    for (size_t b = 0; b < n * *pitch; b += bytes)
        if (type == GEMM_MXFP4)
            blocks[b] = (uint8_t)(less(50) ? 118 + less(8) : less(256));
        else
            for (uint32_t s = 0; s < (type == GEMM_Q4_K ? 2u : 1u); s++) {
                uint16_t d = (uint16_t)(less(0x2c00) | less(2) << 15);
                if (less(100) == 0) d = (uint16_t)less(65536);
                memcpy(blocks + b + (type == GEMM_Q6_K ? 208 : 2 * s), &d, 2);
            }
    return blocks;
}

static void launch_quant(cuda_rig *rig, const char *file, const cuda_gemm_plan *plan,
                         gemm_quant_args args, bool hopper)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", hopper ? "sm90:" : "", plan->kernel);
    args.warps = plan->warps;
    args.stages = plan->stages;
    rig_launch(rig, file,
               (emulation){.kernel = name,
                           .grid = {plan->grid, 1, 1},
                           .threads = plan->threads,
                           .shared_bytes = plan->shared_bytes,
                           .args = &args,
                           .order = less(4),
                           .model = hopper ? TENSOR_CORE_SM90 : TENSOR_CORE_SM80},
               sizeof args);
}

/* What a kernel wrote: `want` [tokens][n_out], and nothing beside it. */
static void check_numbers(const char *kernel, const gemm_quant_args *a, const float *want)
{
    for (uint32_t t = 0; t < a->tokens; t++) {
        const float *row = a->out + t * a->ld_out;
        for (uint32_t r = 0; r < a->n_out; r++)
            CHECKF(same(row[r], want[t * a->n_out + r]),
                   "%s n %u k %u: token %u of %u, row %u: %a, by the CPU %a\n", kernel, a->n_out,
                   a->k, t, a->tokens, r, row[r], want[t * a->n_out + r]);
        CHECK(untouched(row + a->n_out, (a->ld_out - a->n_out) * 4));
    }
    memset(a->out, 0xa5, sizeof(float) * a->tokens * a->ld_out);
}

static void check_quant(gemm_type type, uint32_t n, uint32_t k, uint32_t tokens)
{
    cuda_rig rig = rig_open();
    const cuda_gemm_kind kind = cuda_gemm_kind_of(type);
    const uint32_t padded_n = (n + 15) / 16 * 16, ld_out = n + less(3);
    size_t pitch;
    uint8_t *blocks = random_blocks(type, n, k, &pitch);
    gemm_weight *weight;
    CHECK_OK(gemm_weight_create(NULL, type, n, k, gemm_isa_find("scalar"), &weight, NULL));
    gemm_weight_set_blocks(weight, 0, n, blocks, pitch);

    float *x = rig_alloc(&rig, sizeof(float) * tokens * k);
    for (size_t i = 0; i < (size_t)tokens * k; i++)
        x[i] = number();
    if (tokens > 2) x[2 * k + 5] = NAN; /* says so, and no other token does */
    float *want = malloc(sizeof(float) * tokens * n);
    void *scratch = aligned_alloc(64, (gemm_scratch_bytes(weight, tokens) + 63) / 64 * 64);
    gemm_run(weight, x, k, tokens, want, n, false, NULL, scratch);

    uint8_t *w = rig_alloc(&rig, cuda_quant_bytes(type, n, k));
    memset(w, 0, cuda_quant_bytes(type, n, k));
    for (uint32_t r = 0; r < n; r++)
        cuda_quant_pack(type, w, k, r, blocks + r * pitch);
    const uint32_t padded_k = cuda_quant_k(k), ld_tokens = (tokens + 3) / 4 * 4;
    quantise_args rounding = {.x = x,
                              .q = rig_alloc(&rig, (size_t)tokens * padded_k),
                              .scales = rig_alloc(&rig, (size_t)padded_k / 32 * 8 * ld_tokens),
                              .rows = tokens,
                              .k = k,
                              .padded_k = padded_k,
                              .ldx = k,
                              .parts = 1,
                              .ld_tokens = ld_tokens,
                              .from = QUANTISE_F32};
    quantise(&rig, &rounding);

    float *out = rig_alloc(&rig, sizeof(float) * tokens * ld_out);
    const gemm_quant_args args = {.w = w,
                                  .x = rounding.q,
                                  .scales = rounding.scales,
                                  .out = out,
                                  .n = padded_n,
                                  .n_out = n,
                                  .k = padded_k,
                                  .tokens = tokens,
                                  .ld_tokens = ld_tokens,
                                  .ld_out = ld_out};
    cuda_gemm_plan plan;
    cuda_gemm_choice choice;
    do
        choice = (cuda_gemm_choice){1 + less(4), 3 + less(6), 1 + less(2), false};
    while (!cuda_gemm_few_plan_of(kind, padded_n, padded_k, tokens, 1, small_gpu, choice, &plan));
    launch_quant(&rig, "gemm_quant", &plan, args, false);
    check_numbers(plan.kernel, &args, want);
    for (uint32_t tile = 64; tile <= 128; tile *= 2) {
        CHECK(cuda_quant_many_plan_of(kind, padded_n, tokens, small_gpu, tile, 1 + less(4), &plan));
        launch_quant(&rig, "gemm_quant_many", &plan, args, less(2));
        check_numbers(plan.kernel, &args, want);
    }
    gemm_weight_destroy(weight);
    free(blocks);
    free(want);
    free(scratch);
    rig_close(&rig);
}

TEST(quantised_products_have_the_bits_of_the_cpu)
{
    state = test_told_seed();
    const uint32_t tokens[] = {1, 9, 30, 64, 70};
    for (size_t i = 0; i < RAD_COUNT(tokens); i++) {
        check_quant(GEMM_Q8_0, 1 + less(60), 32 * (1 + less(20)), tokens[i]);
        check_quant(GEMM_MXFP4, 1 + less(60), 32 * (1 + less(20)), tokens[i]);
        check_quant(GEMM_Q4_K, 1 + less(60), 256 * (1 + less(2)), tokens[i]);
        check_quant(GEMM_Q6_K, 1 + less(60), 256 * (1 + less(2)), tokens[i]);
    }
    /* Enough stages that a ring's are used again. */
    check_quant(GEMM_Q8_0, 33, 1024, 70);
    check_quant(GEMM_MXFP4, 33, 32 * 31, 66);
    check_quant(GEMM_Q4_K, 33, 1024, 131);
    check_quant(GEMM_Q6_K, 33, 768, 129);
    for (uint32_t i = 0; i < test_scale(0, 60); i++) {
        check_quant(GEMM_Q8_0, 1 + less(100), 32 * (1 + less(40)), 1 + less(140));
        check_quant(GEMM_MXFP4, 1 + less(100), 32 * (1 + less(40)), 1 + less(140));
        check_quant(GEMM_Q4_K, 1 + less(100), 256 * (1 + less(5)), 1 + less(140));
        check_quant(GEMM_Q6_K, 1 + less(100), 256 * (1 + less(5)), 1 + less(140));
    }
}

/* Rows of a table that is quantised, where it lies as products want it. */
TEST(embeddings_out_of_quantised_tables_are_the_files_numbers)
{
    static const struct {
        gemm_type type;
        uint32_t ggml;
        const char *kernel;
    } all[] = {{GEMM_Q8_0, GGML_Q8_0, "embed_q8_0"},
               {GEMM_MXFP4, GGML_MXFP4, "embed_mxfp4"},
               {GEMM_Q4_K, GGML_Q4_K, "embed_q4_k"},
               {GEMM_Q6_K, GGML_Q6_K, "embed_q6_k"}};
    enum { VOCAB = 37, IDS = 9, MOST_DIM = 1536 };
    state = test_told_seed();
    for (size_t i = 0; i < RAD_COUNT(all); i++) {
        cuda_rig rig = rig_open();
        const uint32_t dim = i > 1 ? 256 * (1 + less(MOST_DIM / 256)) : 32 * (1 + less(40));
        size_t pitch;
        uint8_t *blocks = random_blocks(all[i].type, VOCAB, dim, &pitch);
        const size_t bytes = cuda_quant_bytes(all[i].type, VOCAB, dim);
        uint8_t *table = rig_alloc(&rig, bytes);
        memset(table, 0, bytes);
        for (uint32_t r = 0; r < VOCAB; r++)
            cuda_quant_pack(all[i].type, table, dim, r, blocks + r * pitch);
        int32_t *ids = rig_alloc(&rig, IDS * sizeof *ids);
        float *x = rig_alloc(&rig, IDS * dim * sizeof *x), row[MOST_DIM];
        for (uint32_t t = 0; t < IDS; t++)
            ids[t] = t == 0 ? VOCAB - 1 : (int32_t)less(VOCAB);
        const embed_args args = {.table = table,
                                 .ids = ids,
                                 .x = x,
                                 .tokens = IDS,
                                 .dim = dim,
                                 .ld = cuda_quant_k(dim),
                                 .scale = 1.5f};
        rig_launch(&rig, "embed_quant",
                   (emulation){.kernel = all[i].kernel,
                               .grid = {IDS, 1, 1},
                               .threads = EMBED_THREADS,
                               .args = &args,
                               .order = less(4)},
                   sizeof args);
        for (uint32_t t = 0; t < IDS; t++) {
            ggml_decode(all[i].ggml, blocks + (uint32_t)ids[t] * pitch, dim, row);
            for (uint32_t k = 0; k < dim; k++)
                CHECKF(same(x[t * dim + k], row[k] * 1.5f), "%s: token %u, number %u: %a for %a\n",
                       all[i].kernel, t, k, x[t * dim + k], row[k] * 1.5f);
        }
        free(blocks);
        rig_close(&rig);
    }
}

/* ---- plans ---- */

/* On small and large GPUs: within its shared memory, no block without work, no number of threads
 * beyond what the kernels are built for. */
TEST(a_plan_fits_the_gpu)
{
    const cuda_gemm_room rooms[] = {
        {1, 99 << 10}, {20, 99 << 10}, {108, 163 << 10}, {132, 227 << 10}};
    const uint32_t rows[] = {16, 48, 1024, 4096, 6144, 28672, 151936};
    for (size_t g = 0; g < RAD_COUNT(rooms); g++)
        for (int kind = CUDA_GEMM_BF16; kind < CUDA_GEMM_KINDS; kind++)
            for (size_t i = 0; i < RAD_COUNT(rows); i++)
                for (uint32_t tokens = 1; tokens <= GEMM_FEW_TOKENS; tokens++) {
                    const uint32_t splits = kind == CUDA_GEMM_BF16 ? cuda_splits(rows[i], 4096) : 1;
                    const cuda_gemm_plan p = cuda_gemm_few_plan((cuda_gemm_kind)kind, rows[i], 4096,
                                                                tokens, splits, rooms[g]);
                    CHECK(p.shared_bytes <= rooms[g].shared_bytes && p.threads <= 320);
                    CHECK(p.grid >= 1 && p.grid <= rooms[g].multiprocessors);
                    CHECK(p.warps >= 1 && p.grid <= (rows[i] + 16 * p.warps - 1) / 16 * splits);
                }
}

/* Of many tokens, too: and it is the few kernels' up to 64 tokens. */
TEST(a_plan_for_many_tokens_fits_the_gpu)
{
    const cuda_gemm_room rooms[] = {{1, 99 << 10}, {108, 163 << 10}, {132, 227 << 10}};
    const uint32_t rows[] = {16, 1024, 4096, 28672};
    const uint32_t tokens[] = {1, 64, 65, 128, 300, 2048};
    for (size_t g = 0; g < RAD_COUNT(rooms); g++)
        for (int kind = CUDA_GEMM_Q8_0; kind < CUDA_GEMM_KINDS; kind++)
            for (size_t i = 0; i < RAD_COUNT(rows); i++)
                for (size_t t = 0; t < RAD_COUNT(tokens); t++) {
                    const cuda_gemm_plan p = cuda_quant_many_plan((cuda_gemm_kind)kind, rows[i],
                                                                  4096, tokens[t], rooms[g]);
                    if (tokens[t] <= GEMM_FEW_TOKENS) CHECK(!p.kernel);
                    if (rows[i] >= 1024 && tokens[t] == 2048) CHECK(p.kernel);
                    if (!p.kernel) continue;
                    CHECK(p.shared_bytes <= rooms[g].shared_bytes);
                    CHECK(p.threads == 32 * p.warps && p.threads <= 128 && p.grid >= 1);
                }
}

TEST_MAIN()
