/* test_cuda_runner.c - models on a GPU, over an emulated driver (fake_libcuda.h): near the CPU's
 * logits; the same bits however requests are batched, cut, retracted or restored; and whatever call
 * of the driver fails, there are words and nothing is left behind. */
#include "p1_rig.h"

#include "runner_rig.h"

#include "cuda/cuda_slots.h"
#include "mem/host_kv_pool.h"

#include <limits.h>

/* ---- beside the CPU ---- */

/* Every way in which the models differ that the GPU runs. */
static const tiny_model near[] = {
    {.arch = "llama", NEAR_SIZES},
    {.arch = "llama", NEAR_SIZES, .tied = true, .rope_freqs = true, .quantised = true},
    {.arch = "llama", NEAR_SIZES, .window = 24, .arrays = true, .rope_factor = 4},
    {.arch = "qwen2", NEAR_SIZES, .rope_type = "yarn", .rope_factor = 4, .original_context = 64},
    {.arch = "qwen3", ODD_SIZES, .tied = true},
    {.arch = "phi3", NEAR_SIZES, .longrope = true, .original_context = 32},
    {.arch = "granite",
     NEAR_SIZES,
     .embedding_scale = 2,
     .residual_scale = 0.5f,
     .logit_scale = 4,
     .attn_scale = 0.2f},
    {.arch = "smollm3", NEAR_SIZES},
    {.arch = "ernie4_5", NEAR_SIZES, .tied = true},
    {.arch = "qwen3vl", NEAR_SIZES},
    {.arch = "gemma2", NEAR_SIZES, .window = 24, .attn_cap = 5, .final_cap = 4, .tied = true},
    {.arch = "gemma3",
     .vocab = 83,
     .layers = 3,
     .dim = 72,
     .ffn = 96,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 32,
     .v_head_dim = 32,
     .rope_dim = 32,
     .context = BENCH_ROW_TOKENS,
     .window = 24,
     .pattern = 1,
     .window_base = 3000,
     .rope_factor = 8,
     .tied = true,
     .quantised = true},
    {.arch = "olmo2", NEAR_SIZES, .window = 24, .rope_factor = 8, .pattern = 2},
    {.arch = "mistral3",
     NEAR_SIZES,
     .rope_type = "yarn",
     .rope_factor = 4,
     .original_context = 16,
     .temperature = 0.3f},
    {.arch = "qwen3moe", NEAR_SIZES, .experts = 5, .used = 2, .expert_ffn = 48},
    {.arch = "qwen2moe", NEAR_SIZES, .experts = 4, .used = 2, .expert_ffn = 32, .shared_ffn = 72},
    {.arch = "gpt-oss",
     NEAR_SIZES,
     .window = 24,
     .experts = 4,
     .used = 2,
     .expert_ffn = 40,
     .rope_type = "yarn",
     .rope_factor = 4,
     .original_context = 32},
    {.arch = "llama", NEAR_SIZES, .experts = 6, .used = 2}, /* Mixtral */
    {.arch = "olmoe", NEAR_SIZES, .experts = 6, .used = 3},
    {.arch = "granitemoe",
     NEAR_SIZES,
     .tied = true,
     .experts = 6,
     .used = 3,
     .shared_ffn = 40,
     .embedding_scale = 2,
     .residual_scale = 0.5f,
     .logit_scale = 0.5f},
    {.arch = "ernie4_5-moe",
     NEAR_SIZES,
     .tied = true,
     .experts = 6,
     .used = 2,
     .expert_ffn = 32,
     .shared_ffn = 48,
     .moe_step = 2,
     .select_bias = true},
    {.arch = "bailingmoe2",
     NEAR_SIZES,
     .experts = 8,
     .used = 3,
     .expert_ffn = 32,
     .dense = 1,
     .gating = 2,
     .normed = 1,
     .expert_scale = 2.5f,
     .groups = 4,
     .groups_used = 2,
     .shared_ffn = 40,
     .shared_experts = 2},
};

/* Tokens that are not near. Where a router's scores of two experts are nearly equal the GPU may
 * choose the other one: that token says something else, and those behind it hardly. */
static uint32_t count_far(const float *cpu, const float *gpu, uint32_t tokens, uint32_t vocab)
{
    uint32_t far = 0;
    for (uint32_t t = 0; t < tokens; t++, cpu += vocab, gpu += vocab)
        far += distance(cpu, gpu, vocab) >= 0.05;
    return far;
}

TEST(logits_are_near_the_cpus)
{
    enum { TOKENS = 70, BEGIN = 30, MOST_VOCAB = 83 };
    static float cpu[TOKENS * MOST_VOCAB], gpu[TOKENS * MOST_VOCAB];
    const cuda_runner_params params = params_of(2 * BENCH_ROW_TOKENS, BENCH_ROW_TOKENS, BENCH_ROWS);
    for (size_t i = 0; i < RAD_COUNT(near); i++) {
        rad_token ids[TOKENS];
        uint64_t state = 7 + i;
        model m;
        if (i == 0) /* which runs what is for sm_80 */
            start_gpu_of(11080, 90);
        else
            start_gpu(i % 2 ? 90 : 80);
        make_model(&m, &near[i], 5 + i);
        bench on_cpu = bench_create(m.file, RAD_BF16, 1, NULL, 1);
        bench on_gpu = bench_of(make_runner(m.file, &params), i % 3 ? 16 : 1);
        for (uint32_t k = 0; k < TOKENS; k++)
            ids[k] = (rad_token)(test_random(&state) % near[i].vocab);
        bench_prefill(&on_cpu, 1, ids, TOKENS, cpu);
        run_cut(&on_gpu, ids, BEGIN, TOKENS, gpu);
        const double d = distance(cpu, gpu, TOKENS * near[i].vocab);
        const uint32_t far = count_far(cpu, gpu, TOKENS, near[i].vocab);
        CHECKF(near[i].experts ? far <= TOKENS / 10 : d < 0.03, "%zu, %s: %g, %u tokens are far\n",
               i, near[i].arch, d, far);
        bench_destroy(&on_cpu);
        bench_destroy(&on_gpu);
        end_model(&m);
        nothing_is_left();
    }
}

TEST(what_there_are_no_kernels_for_is_refused_by_name)
{
    static const struct {
        tiny_model shape;
        uint32_t head_dim, v_head_dim; /* where they are not the others' */
        const char *words;
    } refused[] = {
        {{.arch = "gemma4", NEAR_SIZES}, 16, 16, "cuda: gemma4 has norms of V"},
        {{.arch = "qwen3moe", NEAR_SIZES, .experts = 300, .used = 2, .expert_ffn = 8},
         16,
         16,
         "cuda: qwen3moe has more than 256 experts"},
        {{.arch = "lfm2", NEAR_SIZES, .taps = 3, .attention = 2}, 16, 16, "recurrent layers"},
        {{.arch = "llama", NEAR_SIZES}, 16, 8, "heads of V"},
        {{.arch = "llama", NEAR_SIZES},
         24,
         24,
         "there are kernels for 16, 32, 64, 96, 128 and 256; --device cpu runs it"},
    };
    cuda_runner_params params = params_of(64, 64, 4);
    rad_error err;
    for (size_t i = 0; i < RAD_COUNT(refused); i++) {
        model m;
        tiny_model shape = refused[i].shape;
        shape.head_dim = refused[i].head_dim, shape.v_head_dim = refused[i].v_head_dim;
        make_model(&m, &shape, 3);
        CHECK(cuda_runner_supports(m.file, &params, &err) == RAD_E_UNSUPPORTED);
        CHECKF(strstr(err.text, refused[i].words), "%s\n", err.text);
        end_model(&m);
    }
    model m;
    make_model(&m, &near[0], 3);
    CHECK_OK(cuda_runner_supports(m.file, &params, &err));
    params.model.dtype = RAD_F32;
    CHECK(cuda_runner_supports(m.file, &params, &err) == RAD_E_UNSUPPORTED);
    CHECK(strstr(err.text, "weights of bf16"));
    params = params_of(64, 64, 4);
    params.model.set_kv_dtype = true;
    params.model.kv_dtype = RAD_I8;
    CHECK(cuda_runner_supports(m.file, &params, &err) == RAD_E_UNSUPPORTED);
    CHECKF(strstr(err.text, "K and V as bf16, fp8_e4m3 or fp8_e5m2, not as int8"), "%s\n",
           err.text);
    end_model(&m);
}

TEST(a_runner_takes_what_was_measured)
{
    const cuda_runner_params params = params_of(64, 64, 4);
    model_sizes sizes;
    model m;
    for (size_t i = 0; i < RAD_COUNT(near); i++) {
        make_model(&m, &near[i], 3);
        start_gpu(90);
        CHECK_OK(cuda_runner_measure(NULL, m.file, &params, &sizes, NULL));
        runner *r = make_runner(m.file, &params);
        (void)check_device_bytes(&sizes);
        runner_destroy(r);
        end_model(&m);
        nothing_is_left();
    }
    make_model(&m, &near[0], 3);
    start_gpu(80);
    CHECK_OK(cuda_runner_measure(NULL, m.file, &params, &sizes, NULL));
    runner *r = make_runner(m.file, &params);
    const size_t ours = check_device_bytes(&sizes);
    CHECK(sizes.matrix_bytes[GEMM_BF16] > 0 && !strcmp(r->info.weights, "bf16"));
    CHECK(!strcmp(cuda_runner_attn(r), "cuda-sm80") && r->info.kv_dtype == RAD_BF16);
    runner_destroy(r);
    nothing_is_left();

    /* GPUs whose sums nobody has seen to be alike share no stored pages. */
    static const int others[] = {89, 100, 120};
    for (size_t i = 0; i < RAD_COUNT(others); i++) {
        char name[16];
        start_gpu_of(13000, others[i]);
        r = make_runner(m.file, &params);
        snprintf(name, sizeof name, "cuda-sm%d", others[i]);
        CHECKF(!strcmp(cuda_runner_attn(r), name), "%s\n", cuda_runner_attn(r));
        runner_destroy(r);
    }

    /* With less memory it says how much was wanted, and for what. */
    rad_error err = {0};
    start_gpu(80);
    the_fake()->fake_cuda_memory(ours / 2);
    CHECK(cuda_runner_create(NULL, m.file, &params, &r, &err) == RAD_E_NOMEM);
    CHECKF(!r && strstr(err.text, "cuda: no memory for ") && strstr(err.text, " MB wanted, "),
           "%s\n", err.text);
    nothing_is_left();
    end_model(&m);
}

/* ---- P1 ---- */

#define SMALL_SIZES                                                                                \
    .vocab = 40, .dim = 32, .ffn = 32, .heads = 2, .kv_heads = 1, .head_dim = 16,                  \
    .v_head_dim = 16, .rope_dim = 16, .context = 96
static const tiny_model small = {.arch = "qwen3", SMALL_SIZES, .layers = 1};

/* Blocks without norms before them, but behind them, and norms over all heads; and caps. */
static const tiny_model small_normed = {.arch = "olmo2", SMALL_SIZES, .layers = 1};
static const tiny_model small_capped = {.arch = "gemma2",
                                        SMALL_SIZES,
                                        .layers = 2,
                                        .window = 24,
                                        .attn_cap = 5,
                                        .final_cap = 4,
                                        .tied = true};

static const tiny_model small_experts = {.arch = "qwen3moe",
                                         SMALL_SIZES,
                                         .layers = 2,
                                         .experts = 4,
                                         .used = 2,
                                         .expert_ffn = 32};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { HISTORIES = 2, A_FEW = 1, HISTORIES_LONG = 50, CROWD = 9 };
#else
enum { HISTORIES = 5, A_FEW = 1, HISTORIES_LONG = 300, CROWD = 17 };
#endif
TEST(decoding_in_a_crowd_gives_the_bits_of_a_prefill)
{
    run_crowd(&near[0], WEIGHTS_AS_DTYPE, 80, (uint32_t)test_scale(4, MANY), false);
    run_crowd(&near[4], WEIGHTS_AS_DTYPE, 90, (uint32_t)test_scale(CROWD, MANY), false);
    run_crowd(&near[11], WEIGHTS_AS_DTYPE, 80, (uint32_t)test_scale(4, MANY), false);
}

/* Launches that may begin early see memory as it was before all that overlap, until they wait: who
 * reads too early has other numbers. */
TEST(kernels_that_begin_early_change_no_bits)
{
    run_crowd(&small, WEIGHTS_AS_DTYPE, 90, 3, true);
    run_crowd(&small_normed, WEIGHTS_AS_DTYPE, 90, 2, true);
}

TEST(norms_behind_blocks_and_over_heads_give_the_bits_of_a_prefill)
{
    run_crowd(&small_normed, WEIGHTS_AS_DTYPE, 80, (uint32_t)test_scale(5, MANY), false);
    run_crowd(&small_capped, WEIGHTS_AS_DTYPE, 90, (uint32_t)test_scale(3, MANY), true);
}

TEST(mixtures_of_experts_give_the_bits_of_a_prefill)
{
    run_crowd(&small_experts, WEIGHTS_AS_DTYPE, 80, (uint32_t)test_scale(5, MANY), false);
    run_crowd(&small_experts, WEIGHTS_AS_DTYPE, 90, 2, true);
    run_crowd(&small_experts, WEIGHTS_AS_Q8_0, 90, (uint32_t)test_scale(3, MANY), true);
}

/* Questions about three documents in turn, of which the pool holds little more than one. */
static uint32_t make_question(rad_token *ids)
{
    static uint32_t questions;
    uint64_t document = 1 + questions++ % 3;
    for (uint32_t n = 0; n < 270; n++)
        ids[n] =
            (rad_token)(test_random(n < 256 ? &document : &w.state) % w.model->info.vocab_size);
    return 270;
}

static uint32_t make_prompt(rad_token *ids)
{
    const uint32_t vocab = w.model->info.vocab_size, most = CONTEXT - MOST_NEW - 1;
    uint32_t how = below(10), n = 0, from = below(KEPT);
    if (how >= 6) { /* a document that many ask about at one time */
        uint64_t document = 1 + below(2);
        for (n = 0; n < 266; n++) /* which is more than a span of attention */
            ids[n] = (rad_token)(test_random(&document) % vocab);
    } else if (w.kept_len[from]) { /* a fork, or a repetition */
        n = RAD_MIN(w.kept_len[from], most);
        if (below(3)) n = 1 + below(n);
        memcpy(ids, w.kept[from], n * sizeof *ids);
    }
    uint32_t own = n ? below(RAD_MIN(40, most - n + 1)) : 1 + below(below(2) ? 40 : most);
    for (uint32_t i = 0; i < own && n < most; i++)
        ids[n++] = (rad_token)below(vocab);
    return n;
}

/* Histories through a scheduler with a pool that is too small: prompts cut anywhere, decoding alone
 * and among others, shared blocks read once, evictions, retractions; with `tiers`, what was evicted
 * comes back from the host. Every row of logits has the bits of a cold prefill. */
static void run_p1(const tiny_model *shape, rad_dtype kv, int capability, uint32_t page_size,
                   bool tiers, uint32_t histories)
{
    model m;
    start_gpu(capability);
    make_model(&m, shape, 11);
    cuda_runner_params params = params_of(4 * CONTEXT, CONTEXT, 8);
    params.model.set_kv_dtype = true;
    params.model.kv_dtype = kv;
    runner *gpu = make_runner(m.file, &params);
    witness_take(gpu, shape->arch);
    the_fake()->fake_cuda_order(w.seed);
    w.make_prompt = tiers ? make_question : make_prompt;
    scheduler_params p = witness_params(page_size, tiers ? CONTEXT + 48 : 3 * CONTEXT);
    p.window_total_tokens = shape->window ? 4 * shape->window + 80 : 0; /* a mask when it is cold */
    rad_host_kv_pool_params host = {.struct_size = sizeof host, .layout = below(2), .ratio = 4};
    rad_hicache_params cache = {.struct_size = sizeof cache, .write_policy = below(2) * 2};
    if (tiers) p.hicache = &cache, p.host_pool = &host;
    witness_scheduler(&p);
    w.s->groups.member_cost = w.s->groups.token_cost = 0;
    scheduler_stats st = {0};
    for (int i = 0; i < 10 && (!w.rows_checked || (tiers && !st.loaded_tokens)); i++) {
        run_histories(histories);
        scheduler_get_stats(w.s, &st);
    }
    scheduler_destroy(w.s);
    CHECK(w.wrong == 0 && w.rows_checked > 0 && (!tiers || st.loaded_tokens > 0));
    CHECK(!shape->window == !st.window_total_tokens);
    const cuda_runner_stats stats = cuda_runner_get_stats(gpu);
    print_message("  %s, page %u, seed %llu: %llu rows of logits, %llu steps with groups, %llu of "
                  "%llu in graphs, %llu tokens loaded\n",
                  w.what, page_size, (unsigned long long)w.seed, (unsigned long long)w.rows_checked,
                  (unsigned long long)w.grouped_steps, (unsigned long long)stats.graph_steps,
                  (unsigned long long)stats.steps, (unsigned long long)st.loaded_tokens);
    witness_end();
    end_model(&m);
    nothing_is_left();
}

TEST(a_llama_gives_the_same_bits_warm_and_cold)
{
    run_p1(&p1_llama, RAD_BF16, 80, 1, false, (uint32_t)test_scale(HISTORIES, HISTORIES_LONG));
}

TEST(a_qwen3_gives_the_same_bits_warm_and_cold)
{
    run_p1(&p1_qwen3, RAD_BF16, 90, 16, false, (uint32_t)test_scale(HISTORIES, HISTORIES_LONG));
}

TEST(a_model_with_windows_gives_the_same_bits_warm_and_cold)
{
    run_p1(&p1_windowed[0], RAD_BF16, 80, 16, false,
           (uint32_t)test_scale(HISTORIES / 2, HISTORIES_LONG));
    run_p1(&p1_windowed[2], RAD_BF16, 90, 1, false, (uint32_t)test_scale(A_FEW, HISTORIES_LONG));
}

TEST(windows_that_come_back_from_the_host_give_the_same_bits)
{
    run_p1(&p1_windowed[2], RAD_BF16, 80, 16, true, (uint32_t)test_scale(A_FEW, HISTORIES_LONG));
}

TEST(what_comes_back_from_the_host_gives_the_same_bits)
{
    run_p1(&p1_llama, RAD_BF16, 90, 16, true, (uint32_t)test_scale(HISTORIES / 2, HISTORIES_LONG));
    run_p1(&p1_qwen3, RAD_F8_E4M3, 80, 16, true, (uint32_t)test_scale(1, HISTORIES_LONG));
}

/* ---- layers that come while others are computed ---- */

enum { HELD = 30, LATE_TOKENS = 40, LATE_LAYERS = 3 };
typedef struct late_load {
    rad_host_kv_pool *host;
    const rad_slot *slots;
    rad_page pages[HELD];
    uint32_t next;           /* layer that is to be waited for */
    long calls, least_calls; /* of the driver: so far; from one layer to the next */
} late_load;

/* Brings a layer at the last moment at which it may come. */
static void load_late(void *user, uint32_t layer)
{
    late_load *l = user;
    const long calls = the_fake()->fake_cuda_calls();
    CHECK(layer == l->next);
    if (l->next++) l->least_calls = RAD_MIN(l->least_calls, calls - l->calls);
    CHECK_OK(host_kv_pool_load_layer(l->host, layer, l->pages, l->slots, HELD));
    l->calls = the_fake()->fake_cuda_calls();
}

/* A prefix is on the host, and its slots have another's K and V. Each of its layers may come as
 * late as the step waits for it, and by then the layer in front has been launched: what is loaded
 * overlaps with what is computed. */
TEST(a_layer_is_waited_for_when_those_in_front_are_launched)
{
    enum { VOCAB = 40 };
    static const tiny_model shape = {.arch = "qwen3", SMALL_SIZES, .layers = LATE_LAYERS};
    static float cold[LATE_TOKENS * VOCAB], spoilt[HELD * VOCAB], late[LATE_TOKENS * VOCAB];
    const cuda_runner_params params = params_of(LATE_TOKENS, LATE_TOKENS, BENCH_ROWS);
    rad_token ids[LATE_TOKENS], others[HELD];
    uint64_t state = 3;
    model m;
    start_gpu(80);
    make_model(&m, &shape, 3);
    bench b = bench_of(make_runner(m.file, &params), 1);
    for (uint32_t i = 0; i < LATE_TOKENS; i++)
        ids[i] = (rad_token)(test_random(&state) % VOCAB);
    for (uint32_t i = 0; i < HELD; i++)
        others[i] = (rad_token)(test_random(&state) % VOCAB);
    late_load l = {.slots = rad_req_to_token_row(b.rows, 1), .least_calls = LONG_MAX};
    for (uint32_t i = 0; i < HELD; i++)
        l.pages[i] = (rad_page)i + 1;
    const rad_host_kv_pool_params host = {
        .struct_size = sizeof host, .device_pool = b.kv, .ratio = 1};
    CHECK_OK(rad_host_kv_pool_create(NULL, &host, &l.host, NULL));

    run_cut(&b, ids, HELD, LATE_TOKENS, cold);
    CHECK_OK(host_kv_pool_backup(l.host, l.slots, l.pages, HELD));
    float *to = spoilt;
    bench_run(&b, &(piece){1, others, 0, HELD}, 1, &to);
    CHECK_OK(rad_kv_pool_add_wait(b.kv, load_late, &l, NULL));
    to = late;
    bench_run(&b, &(piece){1, ids, HELD, LATE_TOKENS}, 1, &to);
    CHECK(l.next == LATE_LAYERS);
    CHECKF(l.least_calls >= 5, "%ld calls from layer to layer\n", l.least_calls);
    CHECK(!memcmp(late, cold + HELD * VOCAB, (LATE_TOKENS - HELD) * VOCAB * sizeof *late));
    CHECK(memcmp(spoilt, cold, sizeof spoilt) != 0);
    CHECK_OK(rad_kv_pool_remove_wait(b.kv, load_late, &l));
    rad_host_kv_pool_destroy(l.host);
    bench_destroy(&b);
    end_model(&m);
    nothing_is_left();
}

/* ---- slots ---- */

TEST(patches_are_what_changed_in_a_row)
{
    enum { ROWS = 3, LD = 40, ROUNDS = 3000 };
    rad_slot table[ROWS][LD] = {{0}}, row[LD] = {0}, values[2 * LD];
    uint32_t seen[ROWS] = {0}; /* rows of windows: what lies before is not on the device */
    const rad_env env = rad_env_or_default(NULL);
    uint64_t state = test_seed();
    uint32_t sent = 0;
    cuda_slots s;
    CHECK_OK(cuda_slots_init(&env, ROWS, LD, &s, NULL));
    memset(table, 0x77, sizeof table);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t r = (uint32_t)(test_random(&state) % ROWS);
        const uint32_t count = 1 + (uint32_t)(test_random(&state) % LD), at = round % LD;
        for (uint32_t i = (uint32_t)(test_random(&state) % LD); i < count; i++)
            row[i] += test_random(&state) % 3 == 0;
        const uint32_t from = r ? RAD_MAX(seen[r], (uint32_t)(test_random(&state) % count)) : 0;
        seen[r] = from;
        if (from >= count || test_random(&state) % 20 == 0) {
            seen[r] = 0; /* another request's */
            continue;
        }
        slot_patch p = {0};
        const uint32_t room = test_random(&state) % 8 ? LD : 2;
        uint32_t n = cuda_slots_compare(&s, r, row, from, count, values, at, room, &p);
        if (n == UINT32_MAX) {
            const uint32_t first = cuda_slots_take(&s, r, row, from, count);
            memcpy(&table[r][first], row + first, (count - first) * sizeof *row);
        } else if (n) {
            CHECK(n <= room && p.from == at && p.count == n && p.to >= r * LD);
            memcpy(&table[0][0] + p.to, values + p.from, n * sizeof *row);
            sent += n;
        }
        CHECK(!memcmp(table[r] + from, row + from, (count - from) * sizeof *row));
        if (round % 500 == 0) {
            cuda_slots_forget(&s);
            memset(table, 0x77, sizeof table);
        }
    }
    CHECK(s.patched >= sent && s.patched < ROUNDS * LD);
    cuda_slots_fini(&env, &s);
    CHECK(cuda_slots_init(&env, 1 << 20, 1 << 20, &s, NULL) == RAD_E_LIMIT);
}

/* ---- what fails ---- */

/* A prefill and two steps that decode, the second one a graph's replay, each with a token chosen;
 * a step that fails is taken once more. Returns how often that happened. */
static uint32_t run_steps(runner *r, rad_token tokens[3])
{
    enum { PROMPT = 5 };
    rad_error err = {0};
    rad_token_to_kv_pool *kv = NULL;
    rad_req_to_token_pool *rows;
    rad_row row;
    uint32_t failed = 0;
    const rad_req_to_token_pool_params row_params = {
        .struct_size = sizeof row_params, .num_rows = 1, .row_tokens = 64};
    CHECK_OK(rad_req_to_token_pool_create(NULL, &row_params, &rows, NULL));
    CHECK_OK(rad_req_to_token_alloc(rows, &row));
    while (runner_create_pool(r, NULL, RUNNER_ALL_LAYERS, 64, 1, &kv, &err) != RAD_OK)
        CHECK(!failed++ && strlen(err.text) > 10);
    rad_token ids[PROMPT + 3] = {7, 3, 9, 1, 30};
    for (uint32_t step = 0, from = 0, to = PROMPT; step < 3;) {
        const uint32_t n = to - from, last = n - 1;
        uint32_t positions[PROMPT];
        rad_slot *slots = rad_req_to_token_row(rows, row);
        for (uint32_t i = 0; i < to; i++)
            slots[i] = (rad_slot)i + 3;
        for (uint32_t i = 0; i < n; i++)
            positions[i] = from + i;
        const forward_batch batch = {.num_reqs = 1,
                                     .num_tokens = n,
                                     .input_ids = ids + from,
                                     .positions = positions,
                                     .out_cache_loc = slots + from,
                                     .req_pool_indices = &row,
                                     .seq_lens = &to,
                                     .extend_prefix_lens = &from,
                                     .extend_seq_lens = &n,
                                     .extend_start_loc = &(uint32_t){0},
                                     .num_logits = 1,
                                     .logits_indices = &last,
                                     .req_to_token_pool = rows,
                                     .token_to_kv_pool = kv};
        const sampling_params params = {.temperature = step == 1 ? 0.8f : 0, .top_p = 1};
        const runner_sample sample = {.params = &params, .position = to};
        rad_status status = runner_forward(r, &batch, NULL, &err);
        if (status == RAD_OK) status = r->ops->sample(r, &sample, 1, &tokens[step], &err);
        if (status != RAD_OK) {
            CHECKF(strstr(err.text, "cuda: ") && strstr(err.text, "CUDA_ERROR_"), "%s\n", err.text);
            CHECKF(!failed++, "%s\n", err.text);
            continue;
        }
        ids[to] = tokens[step++];
        from = to++;
    }
    rad_token_to_kv_pool_destroy(kv);
    rad_req_to_token_pool_destroy(rows);
    return failed;
}

/* Whatever call of the driver fails, once: create says so and leaves nothing, a step says so and
 * gives the same tokens when it is taken again. */
static void fail_each_call(const tiny_model *shape, weights_policy weights, long step)
{
    enum { MEMORY = 900 }; /* an error that no call gives by itself */
    rad_token right[3], tokens[3];
    cuda_runner_params params = params_of(16, 4, 2);
    params.model.weights = weights;
    model m;
    make_model(&m, shape, 2);
    start_gpu(90);
    runner *r = make_runner(m.file, &params);
    CHECK(run_steps(r, right) == 0);
    const long calls = the_fake()->fake_cuda_calls();
    runner_destroy(r);
    nothing_is_left();

    uint32_t refused = 0, repeated = 0;
    for (long n = (long)(test_seed() % (uint64_t)step); n < calls; n += step) {
        rad_error err = {0};
        uint32_t failed = 1;
        start_gpu(90);
        the_fake()->fake_cuda_fail_at(n, n % 3 ? MEMORY : CUDA_OUT_OF_MEMORY);
        rad_status status = cuda_runner_create(NULL, m.file, &params, &r, &err);
        if (status != RAD_OK) {
            CHECKF(!r && strstr(err.text, "cuda: "), "call %ld: %s\n", n, err.text);
            refused++;
        } else {
            failed = run_steps(r, tokens);
            CHECKF(!memcmp(tokens, right, sizeof tokens), "call %ld\n", n);
            repeated += failed;
        }
        the_fake()->fake_cuda_fail_at(-1, 0);
        runner_destroy(r);
        if (failed) nothing_is_left(); /* else it was a call that gives something back */
    }
    print_message("  %ld calls: %u times no runner, %u steps repeated\n", calls, refused, repeated);
    CHECK(refused > 0 && repeated > 0);
    end_model(&m);
}

TEST(every_call_of_the_driver_may_fail)
{
    fail_each_call(&small, WEIGHTS_AS_DTYPE, test_scale(7, 1));
    fail_each_call(&small, WEIGHTS_AS_Q8_0, test_scale(19, 1));
    fail_each_call(&small_experts, WEIGHTS_AS_DTYPE, test_scale(31, 1));
    fail_each_call(&small_experts, WEIGHTS_AS_Q8_0, test_scale(37, 1));
}

TEST(every_allocation_may_fail)
{
    const cuda_runner_params params = params_of(16, 4, 2);
    runner *r = NULL;
    model m;
    make_model(&m, &small, 2);
    long n = 0;
    for (; !r; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_error err = {0};
        start_gpu(80);
        rad_status status = cuda_runner_create(&env, m.file, &params, &r, &err);
        CHECK(status == (r ? RAD_OK : RAD_E_NOMEM));
        CHECK(r || strlen(err.text) > 10);
        runner_destroy(r);
        CHECK(t.bytes == 0);
        nothing_is_left();
    }
    CHECK(n > 6);
    end_model(&m);
}

TEST_MAIN()
