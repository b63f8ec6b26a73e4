/* test_model_random.c - models of random odd shapes against the scalar reference: every
 * architecture, head counts and widths that no vector length divides, V narrower or wider
 * than K, partial and stretched RoPE, windows shorter than the prompt, caps, tied or not,
 * tensors of mixed types. */
#include "model_bench.h"
#include "tiny_models.h"

#include "gear/model_reference.h"
#include "model/config.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SHAPES = 40 }; /* at a tenth of the speed */
#else
enum { SHAPES = 160 };
#endif
enum { MOST_TOKENS = 200 };

static const char *const archs[] = {
    "llama",       "qwen2",         "qwen3",        "phi3",       "gemma2",        "gemma3",
    "granite",     "granitemoe",    "mistral3",     "olmo2",      "qwen3vl",       "smollm3",
    "gemma4",      "llama-moe",     "olmoe",        "qwen2moe",   "qwen3moe",      "gpt-oss",
    "deepseek2",   "granitehybrid", "lfm2",         "lfm2moe",    "qwen35",        "qwen35moe",
    "bailingmoe2", "ernie4_5",      "ernie4_5-moe", "nemotron_h", "nemotron_h_moe"};
enum { ARCHS = sizeof archs / sizeof archs[0] };
static double worst[ARCHS][2]; /* by dtype */
static uint32_t num_compared;  /* of those with experts */
static uint32_t num_far;       /* in f32: large terms that cancel, in one of a million shapes */

static uint32_t between(uint64_t *state, uint32_t least, uint32_t most)
{
    return least + (uint32_t)(test_random(state) % (most - least + 1));
}

static bool maybe(uint64_t *state)
{
    return test_random(state) % 2;
}

static void stretch_rope(tiny_model *s, uint64_t *state)
{
    if (maybe(state)) s->attn_factor = 1 + (float)between(state, 1, 30) / 100;
    if (maybe(state)) s->original_context = between(state, 8, 2 * s->context);
    switch (test_random(state) % 5) {
    case 0: s->rope_freqs = true; break;
    case 1: s->rope_factor = (float)between(state, 1, 64) / 4; break; /* no type: linear */
    case 2:
        s->rope_type = "linear";
        s->rope_factor = 4;
        break;
    case 3:
        s->rope_type = "yarn";
        s->rope_factor = (float)between(state, 4, 64) / 4;
        s->rope_freqs = maybe(state);
        if (maybe(state)) s->beta_fast = (float)between(state, 2, 8);
        if (maybe(state)) s->beta_slow = 0.5f;
        if (maybe(state)) s->ext_factor = 0.75f;
        break;
    default: s->rope_type = maybe(state) ? "longrope" : NULL; s->longrope = true;
    }
}

static void add_experts(tiny_model *s, uint64_t *state)
{
    s->experts = between(state, 1, 12);
    s->used = maybe(state) ? s->experts : between(state, 1, s->experts);
    if (maybe(state)) s->expert_ffn = between(state, 1, 3) * (maybe(state) ? 32 : 5);
    if (tiny_is(s, "bailingmoe2") && maybe(state)) s->shared_experts = between(state, 1, 2);
    if (tiny_is(s, "nemotron_h_moe")) {
        s->select_bias = maybe(state), s->dense = 0;
        s->expert_ffn = between(state, 1, 3) * (maybe(state) ? 32 : 5);
    }
    if (tiny_is(s, "ernie4_5-moe"))
        s->moe_step = between(state, 0, 2), s->select_bias = maybe(state);
    if (tiny_is(s, "qwen2moe qwen35moe") ||
        (tiny_is(s, "granitemoe granitehybrid ernie4_5-moe bailingmoe2 nemotron_h_moe") &&
         maybe(state)))
        s->shared_ffn = between(state, 1, 3) * (maybe(state) ? 32 : 5);
    s->ffn = RAD_MAX(s->ffn, s->used);
    s->dense = between(state, 0, 3) ? 0 : between(state, 1, s->layers);
    s->gating = between(state, 0, 3);
    s->normed = (int)between(state, 0, 2) - 1;
    if (s->gating == 2) s->normed = RAD_MAX(s->normed, 0);
    if (maybe(state)) s->expert_scale = (float)between(state, 1, 8) / 4;
    s->flat_router = between(state, 0, 7) == 0;
    if (maybe(state)) return;
    s->groups = between(state, 2, 3), s->groups_used = between(state, 1, s->groups);
    s->experts = s->groups * between(state, 2, 4);
    s->used = between(state, 1, s->experts / s->groups * s->groups_used);
    if (maybe(state)) s->groups_used = s->groups, s->used = s->experts;
    s->ffn = RAD_MAX(s->ffn, s->used);
}

static void make_latent(tiny_model *s, uint64_t *state)
{
    s->q_rank = maybe(state) ? between(state, 1, 3) * (maybe(state) ? 32 : 7) : 0;
    s->kv_rank = between(state, 1, 3) * (maybe(state) ? 32 : 7);
    s->rope_dim = 2 * between(state, 1, 10);
    s->key = s->rope_dim + between(state, 1, 40);
    s->value = between(state, 1, 40);
    s->head_dim = s->kv_rank + s->rope_dim, s->v_head_dim = s->kv_rank;
    s->kv_heads = 1, s->heads = between(state, 1, 8);
    s->attn_scale = 0;
    s->shared_experts = between(state, 0, 2);
    if (s->rope_type && !strcmp(s->rope_type, "yarn") && maybe(state)) s->log_multiplier = 0.0707f;
}

/* Layers of both kinds, two of attention at most. */
static void make_recurrent(tiny_model *s, uint64_t *state)
{
    const bool conv = tiny_is(s, "lfm2 lfm2moe"), gated = tiny_is(s, "qwen35 qwen35moe");
    s->taps = between(state, conv ? 2 : 1, 5);
    s->attention = between(state, 2, 4);
    s->layers = between(state, s->attention, s->attention + 3);
    if (tiny_one_block(s)) s->layers = between(state, 3, 7);
    if (gated) s->v_head_dim = s->head_dim;
    if (gated) s->rope_dim = RAD_MIN(s->rope_dim + 2, s->head_dim / 2 * 2); /* sections */
    if (conv) return;
    s->state_groups = between(state, 1, 3);
    s->state_heads = s->state_groups * between(state, 1, 3);
    s->state_key = between(state, 1, 3) * (maybe(state) ? 16 : 5);
    s->state_value = between(state, 1, 3) * (maybe(state) ? 32 : 11);
}

static void make_gemma4(tiny_model *s, uint64_t *state)
{
    s->v_head_dim = s->head_dim;
    s->layers = between(state, 3, 7);
    s->window = between(state, 1, MOST_TOKENS + 20);
    s->shared_kv = between(state, 0, s->layers - 3);
    if (maybe(state)) s->window_head_dim = between(state, 2, 40);
    if (maybe(state)) s->window_kv_heads = maybe(state) ? 1 : s->heads;
    if (maybe(state)) s->layer_embd = maybe(state) ? 32 : between(state, 20, 50);
    if (maybe(state)) s->final_cap = (float)between(state, 1, 40) / 4;
    s->v_is_k = maybe(state), s->output_scale = maybe(state);
    s->pairs = s->experts && maybe(state), s->expert_scales = s->experts && maybe(state);
    s->dense = 0;
}

static tiny_model random_shape(uint64_t *state)
{
    tiny_model s = {.arch = archs[test_random(state) % ARCHS],
                    .vocab = between(state, 2, 150),
                    .layers = between(state, 1, 3),
                    .dim = between(state, 1, 5) * (maybe(state) ? 32 : 7),
                    .ffn = between(state, 1, 5) * (maybe(state) ? 32 : 5),
                    .kv_heads = between(state, 1, 3),
                    .head_dim = between(state, 2, 40),
                    .v_head_dim = between(state, 1, 40),
                    .context = MOST_TOKENS,
                    .tied = maybe(state)};
    s.heads = s.kv_heads * between(state, 1, 4);
    s.rope_dim = 2 * between(state, 1, s.head_dim / 2);
    if (maybe(state)) stretch_rope(&s, state);
    if (tiny_is(&s, "llama phi3 gemma2 gemma3 olmo2 gpt-oss") && maybe(state))
        s.window = between(state, 1, MOST_TOKENS + 20);
    if (tiny_is(&s, "gemma3 olmo2 smollm3")) s.layers = between(state, 1, 7);
    if (tiny_is(&s, "gemma2 gemma3 olmo2 gpt-oss")) s.pattern = between(state, 0, 2);
    if (s.window && tiny_is(&s, "gemma3 olmo2") && maybe(state)) s.window_base = 3000;
    s.arrays = maybe(state);
    if (between(state, 0, 3) == 0) s.attn_scale = 0.3f;
    const bool mixtral = tiny_is(&s, "llama-moe");
    if (mixtral) s.arch = "llama";
    if (tiny_is(&s, "granitehybrid lfm2 lfm2moe qwen35 qwen35moe nemotron_h nemotron_h_moe"))
        make_recurrent(&s, state);
    if (mixtral ||
        tiny_is(&s, "granitemoe olmoe qwen2moe qwen3moe gpt-oss deepseek2 lfm2moe qwen35moe "
                    "bailingmoe2 ernie4_5-moe nemotron_h_moe") ||
        (tiny_is(&s, "granitehybrid gemma4") && maybe(state)))
        add_experts(&s, state);
    if (tiny_is(&s, "gemma4")) make_gemma4(&s, state);
    if (tiny_is(&s, "qwen35moe") && s.expert_ffn && !s.dense) s.no_ffn = maybe(state);
    if (tiny_is(&s, "granite granitemoe granitehybrid")) {
        s.logit_scale = (float)between(state, 1, 32) / 4;
        s.no_rope = between(state, 0, 3) == 0;
        if (maybe(state)) s.embedding_scale = (float)between(state, 1, 32) / 4;
        if (maybe(state)) s.residual_scale = (float)between(state, 1, 6) / 4;
    }
    if (tiny_is(&s, "mistral3") && maybe(state)) {
        s.temperature = 0.1f * (float)between(state, 1, 8);
        s.original_context = between(state, 5, 60);
        if (s.rope_type && !strcmp(s.rope_type, "yarn")) s.log_multiplier = 0.8f;
    }
    if (tiny_is(&s, "deepseek2")) make_latent(&s, state);
    if (tiny_is(&s, "gemma2 gemma3 gemma4 olmo2")) {
        /* A post-norm of a vector that is nearly nothing makes much of its rounding: the sums
         * behind it need some terms. */
        s.dim += 14, s.ffn += 20;
        if (!tiny_is(&s, "gemma4")) s.v_head_dim += 8;
    }
    if (tiny_is(&s, "gemma2")) {
        if (maybe(state)) s.attn_cap = (float)between(state, 1, 40) / 8;
        if (maybe(state)) s.final_cap = (float)between(state, 1, 40) / 4;
    }
    return s;
}

/* f32: the largest difference in units of the largest logit. bf16: the root mean square of
 * the differences in units of that of the logits, for in models this small a single element
 * can be ill-conditioned; a wrong formula is off by about 1. */
static double difference(const float *got, const double *want, size_t n, bool bf16)
{
    double most = 0, largest = 0, squares = 0, scale = 0;
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - want[i]);
        if (!(off <= most)) most = off;
        largest = fmax(largest, fabs(want[i]));
        squares += off * off, scale += want[i] * want[i];
    }
    return bf16 ? sqrt(squares / scale) : most / largest;
}

static bool same_state(const bench *b, rad_state x, rad_state y)
{
    return !memcmp(rad_state_address(b->states, x), rad_state_address(b->states, y),
                   b->model->info.state_bytes);
}

/* Saves behind `first` and `second` tokens are what runs leave that end there, and what goes on
 * from one says what it would have said. want: the logits of all tokens. */
static void check_saves(bench *b, const rad_token *tokens, uint32_t n, uint32_t first,
                        uint32_t second, const float *want, const char *words)
{
    const size_t vocab = b->model->info.vocab_size;
    float *got = malloc(n * vocab * sizeof *got);
    forward_state_save saves[] = {{0, first, 0}, {0, second, 0}}, third = {0, second - first, 0};
    CHECK_OK(rad_state_alloc(b->states, &saves[0].state));
    CHECK_OK(rad_state_alloc(b->states, &saves[1].state));
    CHECK_OK(rad_state_alloc(b->states, &third.state));
    b->saves = saves, b->num_saves = 2;
    bench_run(b, &(piece){1, tokens, 0, n}, 1, &(float *){NULL});
    bench_run(b, &(piece){4, tokens, 0, first}, 1, &(float *){NULL});
    CHECKF(same_state(b, saves[0].state, b->now[4]), "%s: save at %u of %u\n", words, first, n);

    const rad_state old = b->now[4];
    b->now[4] = saves[0].state;
    b->saves = &third, b->num_saves = 1;
    bench_run(b, &(piece){4, tokens, first, n}, 1, &(float *){got});
    CHECKF(!memcmp(got, want + first * vocab, (n - first) * vocab * sizeof *got),
           "%s: from the save at %u of %u other logits\n", words, first, n);
    CHECKF(same_state(b, third.state, saves[1].state), "%s: saves at %u of %u\n", words, second, n);
    CHECKF(same_state(b, b->now[4], b->now[1]), "%s: states behind %u\n", words, n);
    CHECK_OK(rad_state_free(b->states, old));
    CHECK_OK(rad_state_free(b->states, saves[1].state));
    CHECK_OK(rad_state_free(b->states, third.state));
    free(got);
}

static void check_shape(const tiny_model *s, uint64_t *state, uint64_t seed,
                        const attn_backend *attn)
{
    tiny_writer w;
    gguf_file *file = tiny_model_open(&w, s, state);
    rad_error err = {0};
    model_config config;
    char words[400];
    rad_status status = model_config_read(file, 0, &config, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    model_config_describe(&config, words, sizeof words);

    rad_token tokens[MOST_TOKENS];
    uint32_t n = between(state, 2, MOST_TOKENS), split = between(state, 1, n - 1);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (rad_token)between(state, 0, s->vocab - 1);
    size_t count = (size_t)n * s->vocab;
    double *want = malloc(count * sizeof *want);
    float *got = malloc(count * sizeof *got), *chunked = malloc(count * sizeof *chunked);
    double clear; /* a router's choice that rounding could turn is none that can be compared */
    double *hidden = calloc((size_t)n * s->dim, sizeof *hidden), *wanted_sum = hidden;
    CHECK_OK(model_reference_routed(NULL, file, tokens, n, want, hidden, &clear, NULL));
    for (size_t i = s->dim; i < (size_t)n * s->dim; i++)
        wanted_sum[i % s->dim] += hidden[i];
    if (s->flat_router) clear = INFINITY; /* all are ties, and rounding has no part in them */

    for (int d = 0; d < 2; d++) {
        bench b = bench_create(file, d ? RAD_BF16 : RAD_F32, 16, attn, 1);
        double *sum = calloc(2 * s->dim, sizeof *sum), *sum_of_chunks = sum + s->dim;
        CHECK(b.model->info.hidden_dim == s->dim);
        b.hidden_sum = sum;
        bench_prefill(&b, 2, tokens, n, got);
        double off = difference(got, want, count, d), most = d ? 0.25 : 1e-3;
        if (clear < (d ? INFINITY : 1e-4)) off = 0;
        num_compared += s->experts && off > 0;
        num_far += !d && off >= 1e-4;
        CHECKF(off < most,
               "%s %s: off by %g; vocab %u layers %u dim %u ffn %u heads %u/%u, V %u, %s, %u "
               "tokens, seed %llu\n",
               s->arch, d ? "bf16" : "f32", off, s->vocab, s->layers, s->dim, s->ffn, s->heads,
               s->kv_heads, s->v_head_dim, words, n, (unsigned long long)seed);
        for (size_t a = 0; a < ARCHS; a++)
            if (!strcmp(s->arch == archs[0] && s->experts ? "llama-moe" : s->arch, archs[a]))
                worst[a][d] = fmax(worst[a][d], off);

        /* A chunk, then a chunk, then token by token: the same bits. */
        uint32_t last = n - split > 4 ? n - 3 : split;
        b.hidden_sum = sum_of_chunks;
        bench_run(&b, &(piece){3, tokens, 0, split}, 1, &chunked);
        for (uint32_t from = split, to = last > split ? last : split + 1; from < n;
             from = to, to++) {
            float *rest = chunked + (size_t)from * s->vocab;
            b.hidden_sum = sum_of_chunks;
            bench_run(&b, &(piece){3, tokens, from, to}, 1, &rest);
        }
        CHECKF(!memcmp(got, chunked, count * sizeof *got),
               "%s: cut at %u of %u tokens the logits differ; %s, seed %llu\n", s->arch, split, n,
               words, (unsigned long long)seed);
        CHECKF(!memcmp(sum, sum_of_chunks, s->dim * sizeof *sum),
               "%s: cut at %u of %u tokens the hidden states' sum differs; %s, seed %llu\n",
               s->arch, split, n, words, (unsigned long long)seed);
        float *sums = calloc(s->dim, sizeof *sums);
        for (uint32_t i = 0; i < s->dim; i++)
            sums[i] = (float)sum[i];
        off = clear < (d ? INFINITY : 1e-4) ? 0 : difference(sums, wanted_sum, s->dim, d);
        CHECKF(off < most, "%s: hidden states off by %g; %s, seed %llu\n", s->arch, off, words,
               (unsigned long long)seed);
        free(sum), free(sums);
        if (b.states) check_saves(&b, tokens, n, split, between(state, split + 1, n), got, words);
        bench_destroy(&b);
    }
    free(want), free(got), free(chunked), free(hidden);
    gguf_close(file);
    tiny_model_fini(&w);
}

TEST(odd_shapes_agree_with_the_reference)
{
    uint64_t seed = test_seed(), state = seed;
    for (uint64_t i = 0; i < test_scale(SHAPES, 3000); i++) {
        tiny_model s = random_shape(&state);
        check_shape(&s, &state, seed, i % 4 == 3 ? attn_ref() : NULL);
    }
    for (size_t a = 0; a < ARCHS; a++)
        print_message("%s: f32 off by %.1e of the largest logit, bf16 by %.1e rms\n", archs[a],
                      worst[a][0], worst[a][1]);
    CHECK(num_far <= 1 && num_compared >= SHAPES / 20);
}

/* Each architecture with all that it may have; matrices have rows of `n` numbers or a multiple. */
static tiny_model full_shape(const char *arch, uint32_t n)
{
    tiny_model m = {.arch = arch,
                    .vocab = 9,
                    .layers = 2,
                    .dim = n,
                    .ffn = 2 * n,
                    .heads = 2,
                    .kv_heads = 1,
                    .head_dim = n,
                    .v_head_dim = n,
                    .rope_dim = 6,
                    .context = 40,
                    .logit_scale = 1};
    if (tiny_is(&m, "granitehybrid lfm2 lfm2moe qwen35 qwen35moe nemotron_h nemotron_h_moe"))
        m.taps = 3, m.attention = 2;
    if (tiny_one_block(&m)) m.layers = 3, m.expert_ffn = 2 * n;
    if (tiny_is(&m, "gemma2 gemma3 gemma4 gpt-oss")) m.window = 5;
    if (tiny_is(&m, "gemma4")) {
        m.layers = 4, m.shared_kv = 1, m.window_head_dim = 2 * n, m.layer_embd = n;
        m.v_is_k = m.expert_scales = m.pairs = m.output_scale = true;
    }
    if (tiny_is(&m, "granitehybrid qwen35 qwen35moe nemotron_h nemotron_h_moe"))
        m.state_heads = 2, m.state_groups = 1, m.state_key = n / 2, m.state_value = n;
    if (tiny_is(&m, "llama-moe olmoe granitemoe qwen2moe qwen3moe gpt-oss deepseek2 "
                    "granitehybrid lfm2moe qwen35moe bailingmoe2 ernie4_5-moe nemotron_h_moe "
                    "gemma4")) {
        m.experts = 3, m.used = 2, m.expert_ffn = n;
        if (tiny_is(&m, "granitemoe qwen2moe granitehybrid qwen35moe")) m.shared_ffn = n;
        if (tiny_is(&m, "deepseek2")) {
            m.q_rank = n, m.kv_rank = n, m.key = n + 6, m.value = n;
            m.head_dim = n + 6, m.v_head_dim = n, m.shared_experts = 1, m.gating = 2;
        }
        if (tiny_is(&m, "llama-moe")) m.arch = "llama";
    }
    return m;
}

/* Files all of whose matrices are of one type: widened they are what the judge computes on; as they
 * are, all bits are those of a prompt in pieces. (How near such products are is test_gemm_quant's:
 * a model this small makes much of what they round.) */
static void check_type(const char *arch, uint32_t type)
{
    enum { TOKENS = 12 };
    static const weights_policy policies[] = {WEIGHTS_AS_DTYPE, WEIGHTS_AS_FILE};
    uint64_t state = 7 + type;
    tiny_model m = full_shape(arch, 32);
    m.one_type = type == GGML_F32 ? TINY_F32 : type;
    tiny_writer w;
    gguf_file *file = tiny_model_open(&w, &m, &state);
    rad_token ids[TOKENS];
    double want[TOKENS * 9], clear;
    float got[TOKENS * 9], pieces[TOKENS * 9], *rest = pieces + 7 * 9, *first = pieces;
    const gguf_tensor *out = gguf_find_tensor(file, "blk.1.ffn_down_exps.weight");
    if (!out) out = gguf_find_tensor(file, "blk.1.ffn_down.weight");
    CHECKF(out && out->type == type, "%s: not of type %s\n", arch, ggml_type_name(type));
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = (rad_token)between(&state, 0, 8);
    CHECK_OK(model_reference_routed(NULL, file, ids, TOKENS, want, NULL, &clear, NULL));
    for (size_t p = 0; p < RAD_COUNT(policies); p++) {
        bench b = bench_create_with(file, RAD_F32, policies[p], 16, NULL, 1);
        bench_prefill(&b, 2, ids, TOKENS, got);
        bench_run(&b, &(piece){3, ids, 0, 7}, 1, &first);
        bench_run(&b, &(piece){3, ids, 7, TOKENS}, 1, &rest);
        CHECKF(!memcmp(got, pieces, sizeof got), "%s in %s, policy %d: other bits in pieces\n",
               arch, ggml_type_name(type), (int)policies[p]);
        const double off = difference(got, want, RAD_COUNT(want), false);
        CHECKF(p || off < 1e-3 || clear < 1e-4, "%s in %s: off by %g\n", arch, ggml_type_name(type),
               off);
        bench_destroy(&b);
    }
    gguf_close(file);
    tiny_model_fini(&w);
}

TEST(every_architecture_is_read_from_files_of_every_common_type)
{
    static const uint32_t types[] = {GGML_F32, GGML_F16, GGML_BF16, GGML_Q8_0, GGML_MXFP4};
    const uint64_t turn = test_seed(); /* under sanitizers a file of each */
    for (size_t a = 0; a < ARCHS; a++)
        for (size_t t = 0; t < RAD_COUNT(types); t++)
            if (SHAPES > 100 || test_scale(0, 1) || (a + turn) % RAD_COUNT(types) == t)
                check_type(archs[a], types[t]);
}

/* Biases, post-norms, fused tensors and divisors come and go like the rest. */
TEST(loading_any_architecture_survives_every_allocation_failing)
{
    for (size_t a = 0; a < ARCHS; a++) {
        uint64_t state = a + 1;
        tiny_model m = full_shape(archs[a], 8);
        m.longrope = !tiny_is(&m, "gemma4");
        tiny_writer w;
        gguf_file *file = tiny_model_open(&w, &m, &state);
        bench_fail_every_allocation(file, RAD_F32);
        gguf_close(file);
        tiny_model_fini(&w);
    }
}

/* Where layers with a window have other heads, no pool is made for all, and no batch goes without
 * the second one. */
TEST(heads_of_two_shapes_lie_apart)
{
    uint64_t state = 3;
    tiny_writer w;
    const tiny_model m = {.arch = "gemma4",
                          .vocab = 20,
                          .layers = 6,
                          .dim = 32,
                          .ffn = 32,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 16,
                          .v_head_dim = 16,
                          .rope_dim = 16,
                          .context = 64,
                          .window = 10,
                          .window_head_dim = 8,
                          .window_kv_heads = 4,
                          .shared_kv = 1};
    gguf_file *file = tiny_model_open(&w, &m, &state);
    rad_error err = {0};
    rad_token_to_kv_pool *pool = NULL;
    bench b = bench_create(file, RAD_F32, 1, NULL, 1);
    const runner_info *info = &b.model->info;
    CHECK(info->num_layers == 5 && info->window_layers == 4 && runner_layers_differ(info));
    CHECK(info->full_token_bytes == 2 * 2 * 16 * sizeof(float));
    CHECK(info->window_token_bytes == 4 * 2 * 4 * 8 * sizeof(float));
    CHECK(runner_create_pool(b.model, NULL, RUNNER_ALL_LAYERS, 8, 1, &pool, &err) ==
          RAD_E_UNSUPPORTED);
    CHECKF(!pool && strstr(err.text, "heads of 8 and others of 16"), "%s\n", err.text);
    const forward_batch batch = {.req_to_token_pool = b.rows, .token_to_kv_pool = b.kv};
    CHECK(runner_forward(b.model, &batch, NULL, &err) == RAD_E_INVAL);
    CHECKF(strstr(err.text, "the window KV pool is missing"), "%s\n", err.text);
    bench_destroy(&b);
    gguf_close(file);
    tiny_model_fini(&w);
}

/* As in a file cut short of its first full layer: key_length and rope.dimension_count are of heads
 * that no layer has, narrower ones and wider ones. */
TEST(no_layer_rotates_more_than_its_head)
{
    uint64_t state = 5;
    for (uint32_t width = 8; width <= 24; width += 8)
        check_shape(&(tiny_model){.arch = "gemma4",
                                  .vocab = 40,
                                  .layers = 2,
                                  .dim = 32,
                                  .ffn = 64,
                                  .heads = 2,
                                  .kv_heads = 1,
                                  .head_dim = 16,
                                  .v_head_dim = 16,
                                  .rope_dim = 16,
                                  .context = MOST_TOKENS,
                                  .window = 50,
                                  .window_head_dim = width},
                    &state, 5, NULL);
}

TEST(each_kind_of_head_is_described_with_its_own_rotation)
{
    uint64_t state = 7;
    const tiny_model m = {.arch = "gemma4",
                          .vocab = 20,
                          .layers = 6,
                          .dim = 32,
                          .ffn = 32,
                          .heads = 2,
                          .kv_heads = 1,
                          .head_dim = 16,
                          .v_head_dim = 16,
                          .rope_dim = 12,
                          .context = 64,
                          .window = 10,
                          .window_head_dim = 24,
                          .shared_kv = 3};
    static const char *const words[] = {
        "NEOX RoPE over 12 of 16, base", "(sliding layers over 12 of 24, base",
        "sliding window of 10 in 4 of 6 layers", "3 layers read others' K/V"};
    tiny_writer w;
    gguf_file *file = tiny_model_open(&w, &m, &state);
    model_config config;
    char said[400];
    CHECK_OK(model_config_read(file, 0, &config, NULL));
    model_config_describe(&config, said, sizeof said);
    for (size_t i = 0; i < RAD_COUNT(words); i++)
        CHECKF(strstr(said, words[i]), "no \"%s\" in %s\n", words[i], said);
    gguf_close(file);
    tiny_model_fini(&w);
}

/* The key that says how far layers slide is missing or 0: those with heads of their own would lie
 * in one pool with the others. */
TEST(heads_of_two_shapes_without_a_window_are_refused)
{
    const char *const words[] = {"RoPE turns 16 numbers of a head, but layer 0 has heads of 8",
                                 "heads of 8 in layer 0 and of 16 in layer 2 (gemma4)"};
    for (uint32_t full = 0; full < 2; full++) {
        uint64_t state = 6;
        const tiny_model m = {.arch = "gemma4",
                              .vocab = 20,
                              .layers = 2 + full,
                              .dim = 32,
                              .ffn = 32,
                              .heads = 2,
                              .kv_heads = 1,
                              .head_dim = 16,
                              .v_head_dim = 16,
                              .rope_dim = 16,
                              .context = 64,
                              .window_head_dim = 8};
        tiny_writer w;
        gguf_file *file = tiny_model_open(&w, &m, &state);
        model_config config;
        rad_error err = {0};
        CHECK(model_config_read(file, 0, &config, &err) ==
              (full ? RAD_E_UNSUPPORTED : RAD_E_FORMAT));
        CHECKF(strstr(err.text, words[full]), "%s\n", err.text);
        gguf_close(file);
        tiny_model_fini(&w);
    }
}

/* Gemma 4's own: 256 numbers where a layer slides, 512 where it does not. */
TEST(heads_as_wide_as_in_real_files)
{
    uint64_t state = 4;
    for (uint32_t experts = 0; experts <= 8; experts += 8)
        check_shape(&(tiny_model){.arch = "gemma4",
                                  .vocab = 40,
                                  .layers = 3 + !experts,
                                  .dim = 32,
                                  .ffn = 64,
                                  .heads = 2,
                                  .kv_heads = 1,
                                  .head_dim = 512,
                                  .v_head_dim = 512,
                                  .rope_dim = 512,
                                  .context = MOST_TOKENS,
                                  .window = 50,
                                  .window_head_dim = 256,
                                  .window_kv_heads = experts ? 2 : 1,
                                  .shared_kv = experts ? 0 : 1,
                                  .layer_embd = experts ? 0 : 32,
                                  .experts = experts,
                                  .used = experts / 4,
                                  .expert_ffn = 32,
                                  .v_is_k = experts > 0,
                                  .pairs = experts > 0,
                                  .expert_scales = experts > 0,
                                  .output_scale = true,
                                  .rope_freqs = true,
                                  .final_cap = 30,
                                  .tied = true},
                    &state, 4, NULL);
}

/* The reference once had no room for a q_norm wider than every other row. */
TEST(heads_may_be_wider_than_all_else)
{
    uint64_t state = 1;
    check_shape(&(tiny_model){.arch = "qwen3",
                              .vocab = 9,
                              .layers = 1,
                              .dim = 7,
                              .ffn = 5,
                              .heads = 1,
                              .kv_heads = 1,
                              .head_dim = 40,
                              .v_head_dim = 3,
                              .rope_dim = 40,
                              .context = MOST_TOKENS},
                &state, 1, NULL);
}

TEST(the_smallest_model_there_can_be)
{
    uint64_t state = 1;
    check_shape(&(tiny_model){.arch = "llama",
                              .vocab = 2,
                              .layers = 1,
                              .dim = 1,
                              .ffn = 1,
                              .heads = 1,
                              .kv_heads = 1,
                              .head_dim = 2,
                              .v_head_dim = 1,
                              .rope_dim = 2,
                              .context = MOST_TOKENS},
                &state, 1, NULL);
}

TEST_MAIN()
