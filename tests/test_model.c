/* test_model.c - small models, real and made: golden answers, the scalar reference, and P1:
 * the same bits however a sequence is chunked, batched, paged and threaded. */
#include "model_bench.h"

#include "gear/model_reference.h"

#include <jansson.h>
#include <math.h>

static gguf_file *open_model(const char *path)
{
    gguf_file *file = NULL;
    rad_error err = {0};
    rad_status status = gguf_open(NULL, path, &file, &err);
    CHECKF(status == RAD_OK, "%s: %s\n", path, err.text);
    return file;
}

static rad_token argmax(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (rad_token)best;
}

/* ---- golden ---- */

static void check_golden_case(gguf_file *file, const json_t *c)
{
    const json_t *prompt = json_object_get(c, "prompt_ids"),
                 *want = json_object_get(c, "last_prompt_logits"),
                 *greedy = json_object_get(c, "greedy_ids");
    size_t n = json_array_size(prompt), steps = json_array_size(greedy);
    CHECK(n && steps && n + steps < BENCH_ROW_TOKENS);
    rad_token tokens[BENCH_ROW_TOKENS];
    for (size_t i = 0; i < n; i++)
        tokens[i] = (rad_token)json_integer_value(json_array_get(prompt, i));

    bench b = bench_create(file, RAD_F32, 1, NULL, 1);
    uint32_t vocab = b.model->info.vocab_size;
    CHECK(json_array_size(want) == vocab);
    float *logits = malloc(n * vocab * sizeof *logits), *last = logits + (n - 1) * vocab;
    bench_prefill(&b, 1, tokens, (uint32_t)n, logits);
    for (uint32_t i = 0; i < vocab; i++) {
        double golden = json_number_value(json_array_get(want, i));
        CHECKF(fabs((double)last[i] - golden) < 1e-3, "logit %u: %g, golden %g\n", i,
               (double)last[i], golden);
    }
    for (size_t i = 0; i < steps; i++) {
        tokens[n + i] = argmax(last, vocab);
        rad_token golden = (rad_token)json_integer_value(json_array_get(greedy, i));
        CHECKF(tokens[n + i] == golden, "step %zu: token %d, golden %d\n", i, tokens[n + i],
               golden);
        bench_run(&b, &(piece){1, tokens, (uint32_t)(n + i), (uint32_t)(n + i + 1)}, 1, &last);
    }
    free(logits);
    bench_destroy(&b);
}

/* What another program says of a model, and the model, which the caller closes. */
typedef struct golden {
    gguf_file *file;
    json_t *said;
} golden;

static golden open_golden(const char *model, const char *said)
{
    golden g = {.file = open_model(model),
                .said = json_load_file(said, JSON_REJECT_DUPLICATES, NULL)};
    CHECKF(json_array_size(json_object_get(g.said, "cases")) > 1, "%s\n", said);
    return g;
}

static void close_golden(golden g)
{
    gguf_close(g.file);
    json_decref(g.said);
}

static golden made_golden(void)
{
    char said[1024];
    snprintf(said, sizeof said, "%s", test_made("story.golden.json"));
    return open_golden(test_made("story.gguf"), said);
}

static golden shared_golden(void)
{
    char model[1024], said[1024];
    snprintf(model, sizeof model, "%s/models/stories260K.gguf", test_data());
    snprintf(said, sizeof said, "%s/models/stories260K.golden.json", test_data());
    return open_golden(model, said);
}

static void check_golden(golden g)
{
    json_t *cases = json_object_get(g.said, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_golden_case(g.file, json_array_get(cases, i));
    close_golden(g);
}

TEST(a_story_model_says_what_numpy_says)
{
    check_golden(made_golden());
}

TEST_WITH_DATA(stories260k_says_what_its_author_says, "models/stories260K.golden.json")
{
    check_golden(shared_golden());
}

/* ---- synthetic models ---- */

static gguf_file *open_made(const char *name, const char *type)
{
    char file[64];
    snprintf(file, sizeof file, "%s-%s.gguf", name, type);
    return open_model(test_made(file));
}

static void random_tokens(rad_token *tokens, uint32_t n, uint32_t vocab, uint64_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (rad_token)(test_random(&seed) % vocab);
}

/* The largest difference in units of the largest logit. */
static double difference(const float *got, const double *want, size_t n)
{
    double most = 0, scale = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - want[i]) <= most)) most = fabs((double)got[i] - want[i]);
        scale = fmax(scale, fabs(want[i]));
    }
    return most / scale;
}

/* The length of the difference in units of the length of what is wanted. */
static double relative(const float *got, const double *want, size_t n)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        off += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        all += want[i] * want[i];
    }
    return sqrt(off / all);
}

enum { SEQ = 70 }; /* past one attention block of 64 */

static void against_reference(const char *preset, const char *type)
{
    gguf_file *file = open_made(preset, type);
    bench f32 = bench_create(file, RAD_F32, 16, NULL, 1);
    bench bf16 = bench_create(file, RAD_BF16, 16, NULL, 1);
    uint32_t vocab = f32.model->info.vocab_size;
    size_t n = (size_t)SEQ * vocab;
    rad_token tokens[SEQ];
    random_tokens(tokens, SEQ, vocab, 11);
    double *want = malloc(n * sizeof *want);
    float *got = malloc(n * sizeof *got);
    CHECK_OK(model_reference_logits(NULL, file, tokens, SEQ, want, NULL));

    bench_prefill(&f32, 1, tokens, SEQ, got);
    double off = difference(got, want, n);
    CHECKF(off < 1e-4, "%s %s f32: off by %g\n", preset, type, off);
    bench_prefill(&bf16, 1, tokens, SEQ, got);
    /* 1% where the file's weights are bf16; else rounding those, too, is in it. */
    double off_bf16 = relative(got, want, n), limit = strcmp(type, "bf16") == 0 ? 1e-2 : 1.5e-2;
    CHECKF(off_bf16 <= limit, "%s %s bf16: off by %g\n", preset, type, off_bf16);
    CHECK(difference(got, want, n) < 2e-2);
    print_message("%s %s: f32 off by %.1e, bf16 by %.1e\n", preset, type, off, off_bf16);

    free(want), free(got);
    bench_destroy(&f32), bench_destroy(&bf16);
    gguf_close(file);
}

TEST(tiny_llama_f32_agrees_with_the_reference)
{
    against_reference("tiny-llama", "f32");
}
TEST(tiny_llama_f16_agrees_with_the_reference)
{
    against_reference("tiny-llama", "f16");
}
TEST(tiny_llama_bf16_agrees_with_the_reference)
{
    against_reference("tiny-llama", "bf16");
}
TEST(tiny_llama_q8_0_agrees_with_the_reference)
{
    against_reference("tiny-llama", "q8_0");
}
TEST(tiny_qwen3_f32_agrees_with_the_reference)
{
    against_reference("tiny-qwen3", "f32");
}
TEST(tiny_qwen3_f16_agrees_with_the_reference)
{
    against_reference("tiny-qwen3", "f16");
}
TEST(tiny_qwen3_bf16_agrees_with_the_reference)
{
    against_reference("tiny-qwen3", "bf16");
}
TEST(tiny_qwen3_q8_0_agrees_with_the_reference)
{
    against_reference("tiny-qwen3", "q8_0");
}

static void check_reference(golden g)
{
    const json_t *c = json_array_get(json_object_get(g.said, "cases"), 1);
    const json_t *prompt = json_object_get(c, "prompt_ids"),
                 *want = json_object_get(c, "last_prompt_logits");
    rad_token tokens[16];
    uint32_t n = (uint32_t)json_array_size(prompt), vocab = (uint32_t)json_array_size(want);
    CHECK(n && n <= 16);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (rad_token)json_integer_value(json_array_get(prompt, i));
    double *logits = malloc((size_t)n * vocab * sizeof *logits);
    CHECK_OK(model_reference_logits(NULL, g.file, tokens, n, logits, NULL));
    for (uint32_t i = 0; i < vocab; i++)
        CHECK(fabs(logits[(n - 1) * vocab + i] - json_number_value(json_array_get(want, i))) <
              1e-4);

    rad_error err = {0};
    CHECK(model_reference_logits(NULL, g.file, &(rad_token){512}, 1, logits, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "512"));
    free(logits);
    close_golden(g);
}

TEST(the_reference_agrees_with_numpy)
{
    check_reference(made_golden());
}

TEST_WITH_DATA(the_reference_agrees_with_the_story_models_author, "models/stories260K.golden.json")
{
    check_reference(shared_golden());
}

/* ---- P1 ---- */

enum { LONG = 150, OTHERS = BENCH_ROWS - 1 };

typedef struct p1 {
    const char *what;
    rad_token tokens[LONG], others[OTHERS][LONG];
    uint32_t vocab;
    size_t bytes; /* of `want` */
    float *want, *got;
    uint64_t seed;
} p1;

static void p1_compare(const p1 *t, const char *how)
{
    for (uint32_t i = 0; i < LONG; i++)
        CHECKF(!memcmp(t->got + (size_t)i * t->vocab, t->want + (size_t)i * t->vocab,
                       t->vocab * sizeof *t->got),
               "%s, %s: the logits of token %u differ, seed %llu\n", t->what, how, i,
               (unsigned long long)t->seed);
}

/* In chunks of 1..most tokens; `company` runs other requests, some of them in mid-prompt and
 * some decoding, in the same batches, at changing places. */
static void p1_chunked(p1 *t, bench *b, uint32_t most, bool company, const char *how)
{
    uint64_t state = t->seed ^ most;
    uint32_t done[OTHERS] = {0};
    memset(t->got, 0, t->bytes);
    for (uint32_t at = 0; at < LONG;) {
        uint32_t end = at + 1 + (uint32_t)(test_random(&state) % most);
        if (end > LONG) end = LONG;
        piece pieces[BENCH_ROWS];
        float *logits[BENCH_ROWS] = {0};
        uint32_t n = 0, me = company ? (uint32_t)(test_random(&state) % BENCH_ROWS) : 0;
        for (uint32_t i = 0; company && i < OTHERS; i++) {
            if (n == me) n++;
            uint32_t left = LONG - done[i];
            uint32_t step = test_random(&state) % 2 ? 1 : 1 + (uint32_t)(test_random(&state) % 40);
            if (step > left) step = left;
            if (!step) continue;
            pieces[n++] = (piece){2 + i, t->others[i], done[i], done[i] + step};
            done[i] += step;
        }
        if (me >= n) me = n;
        pieces[me] = (piece){1, t->tokens, at, end};
        logits[me] = t->got + (size_t)at * t->vocab;
        bench_run(b, pieces, me >= n ? n + 1 : n, logits);
        at = end;
    }
    p1_compare(t, how);
}

static void p1_dtype(gguf_file *file, const char *name, rad_dtype dtype)
{
    uint64_t seed = test_seed();
    char what[128];
    snprintf(what, sizeof what, "%s %s", name, dtype == RAD_F32 ? "f32" : "bf16");
    p1 t = {.what = what, .seed = seed};

    bench b = bench_create(file, dtype, 1, NULL, 1);
    t.vocab = b.model->info.vocab_size;
    t.bytes = (size_t)LONG * t.vocab * sizeof *t.want;
    t.want = malloc(t.bytes), t.got = malloc(t.bytes);
    random_tokens(t.tokens, LONG, t.vocab, seed);
    for (uint32_t i = 0; i < OTHERS; i++)
        random_tokens(t.others[i], LONG, t.vocab, seed + 1 + i);
    bench_prefill(&b, 1, t.tokens, LONG, t.want);

    p1_chunked(&t, &b, 1, false, "one token at a time");
    p1_chunked(&t, &b, 64, false, "in chunks");
    p1_chunked(&t, &b, 30, true, "in chunks among others");
    bench_destroy(&b);

    b = bench_create(file, dtype, 16, NULL, 3);
    bench_prefill(&b, 1, t.tokens, LONG, t.got);
    p1_compare(&t, "whole, pages of 16, three threads");
    p1_chunked(&t, &b, 1, true, "decoding among others, pages of 16, three threads");
    p1_chunked(&t, &b, 50, true, "in chunks among others, pages of 16, three threads");
    bench_destroy(&b);
    free(t.want), free(t.got);
}

static void p1_model(gguf_file *file, const char *name)
{
    p1_dtype(file, name, RAD_F32);
    p1_dtype(file, name, RAD_BF16);
    gguf_close(file);
}

TEST(p1_holds_for_a_story_model)
{
    p1_model(open_model(test_made("story.gguf")), "story");
}
TEST(p1_holds_for_tiny_llama)
{
    p1_model(open_made("tiny-llama", "f16"), "tiny-llama");
}
TEST(p1_holds_for_tiny_qwen3)
{
    p1_model(open_made("tiny-qwen3", "bf16"), "tiny-qwen3");
}

/* All layers are looked at before the first one writes. */
TEST(a_pool_that_is_not_the_models_is_refused_before_anything_is_written)
{
    gguf_file *file = open_made("tiny-llama", "f32");
    bench b = bench_create(file, RAD_F32, 1, NULL, 1);
    rad_token_to_kv_pool_params odd = *rad_kv_pool_params(b.kv);
    rad_token_to_kv_pool *later;
    odd.start_layer = 1; /* so it has the second layer, and not the first */
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &odd, &later, NULL));
    const uint32_t zero = 0, one = 1;
    const rad_row row = 1;
    const rad_token token = 1;
    const rad_slot slot = rad_req_to_token_row(b.rows, 1)[0];
    forward_batch batch = {.num_reqs = 1,
                           .num_tokens = 1,
                           .input_ids = &token,
                           .positions = &zero,
                           .out_cache_loc = &slot,
                           .req_pool_indices = &row,
                           .seq_lens = &one,
                           .extend_prefix_lens = &zero,
                           .extend_seq_lens = &one,
                           .extend_start_loc = &zero,
                           .req_to_token_pool = b.rows,
                           .token_to_kv_pool = later};
    rad_error err = {0};
    const float *logits;
    CHECK(runner_forward(b.model, &batch, &logits, &err) == RAD_E_INVAL);
    CHECKF(strstr(err.text, "layer 0"), "%s\n", err.text);
    batch.token_to_kv_pool = b.kv;
    batch.num_groups = 1; /* which are not there */
    CHECK(runner_forward(b.model, &batch, &logits, &err) == RAD_E_INVAL);
    CHECKF(strstr(err.text, "not given"), "%s\n", err.text);
    const size_t numbers = (size_t)odd.num_kv_heads * odd.head_dim;
    float *k = malloc(numbers * sizeof *k);
    for (uint32_t layer = 0; layer < odd.num_layers; layer++)
        for (int pool = 0; pool < 2; pool++) {
            CHECK_OK(
                rad_kv_pool_get_kv(pool ? later : b.kv, layer + (pool ? 1 : 0), &slot, 1, k, NULL));
            for (size_t i = 0; i < numbers; i++)
                CHECK(k[i] == 0);
        }
    free(k);
    rad_token_to_kv_pool_destroy(later);
    bench_destroy(&b);
    gguf_close(file);
}

TEST_MAIN()
