/* test_model_mangled.c - models of every architecture with bytes of their header changed: each
 * is refused in words or runs, and asks for no more memory than its file justifies. */
#include "model_bench.h"
#include "tiny_models.h"

#include "gear/model_reference.h"
#include "model/config.h"

enum { TOKENS = 3, MOST_BYTES = 64 << 20 };

/* A machine with little memory: what a lying header asks for beyond it is an error. */
static void *small_alloc(void *user, size_t bytes)
{
    size_t *held = user;
    if (bytes > MOST_BYTES || *held + bytes > MOST_BYTES) return NULL;
    *held += bytes;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void small_free(void *user, void *memory, size_t bytes)
{
    *(size_t *)user -= bytes;
    free(memory);
}

static tiny_model model_of(const char *arch)
{
    return (tiny_model){.arch = arch,
                        .vocab = 9,
                        .layers = 2,
                        .dim = 32,
                        .ffn = 32,
                        .heads = 2,
                        .kv_heads = 1,
                        .head_dim = 8,
                        .v_head_dim = 8,
                        .rope_dim = 8,
                        .context = 64,
                        .window = arch[0] == 'q' ? 0 : 5,
                        .rope_type = arch[0] == 'q' ? "yarn" : "linear",
                        .rope_factor = 4,
                        .attn_factor = 1.1f,
                        .original_context = 32,
                        .beta_fast = 4,
                        .attn_scale = 0.3f,
                        .rope_freqs = arch[0] == 'l',
                        .longrope = arch[0] == 'p'};
}

/* Where the tensors' data begin: behind all that is looked at. */
static size_t header_bytes(const tiny_writer *w)
{
    return w->b.len - w->len;
}

static bool check_bytes(const uint8_t *bytes, size_t len, uint64_t seed)
{
    size_t held = 0;
    const rad_env env = {
        .struct_size = sizeof env, .user = &held, .alloc = small_alloc, .free = small_free};
    gguf_file *file = NULL;
    rad_error err = {0};
    if (gguf_open_memory(&env, bytes, len, &file, &err) != RAD_OK) {
        CHECKF(held == 0 && err.text[0], "seed %llu\n", (unsigned long long)seed);
        return false;
    }
    model_config config;
    char words[64];
    if (model_config_read(file, 0, &config, &err) == RAD_OK)
        model_config_describe(&config, words, sizeof words);
    runner *r = NULL;
    const model_runner_params params = {.dtype = RAD_F32, .max_batch_tokens = 4, .num_threads = 1};
    rad_status status = model_runner_create(&env, file, &params, &r, &err);
    CHECKF((status == RAD_OK) == (r != NULL) && (r || strlen(err.text) > 5), "%s, seed %llu\n",
           err.text, (unsigned long long)seed);
    runner_destroy(r);
    gguf_close(file);
    CHECKF(held == 0, "%zu bytes left, seed %llu\n", held, (unsigned long long)seed);
    return r != NULL;
}

/* What loads is run as well, whatever its numbers have become. */
static void run_it(const uint8_t *bytes, size_t len)
{
    gguf_file *file = NULL;
    CHECK_OK(gguf_open_memory(NULL, bytes, len, &file, NULL));
    bench b = bench_create(file, RAD_F32, 1, NULL, 1);
    uint32_t vocab = b.model->info.vocab_size;
    if (b.model->info.context_length >= TOKENS && vocab < 1000) {
        rad_token tokens[TOKENS] = {0, 0, 0};
        float *logits = malloc((size_t)TOKENS * vocab * sizeof *logits);
        bench_prefill(&b, 1, tokens, TOKENS, logits);
        free(logits);
    }
    bench_destroy(&b);
    gguf_close(file);
}

TEST(mangled_headers_are_refused_or_run)
{
    static const char *const archs[] = {"llama", "qwen2", "qwen3", "phi3", "gemma2"};
    static const uint8_t favourites[] = {0, 1, 2, 0x7f, 0x80, 0xff};
    uint64_t seed = test_told_seed(), state = seed, loaded = 0, rounds = test_scale(600, 30000);
    for (size_t a = 0; a < sizeof archs / sizeof archs[0]; a++) {
        tiny_model m = model_of(archs[a]);
        tiny_writer w;
        tiny_model_write(&w, &m, &state);
        uint8_t *bytes = malloc(w.b.len);
        for (uint64_t i = 0; i < rounds; i++) {
            memcpy(bytes, w.b.bytes, w.b.len);
            size_t len = w.b.len;
            for (uint64_t n = test_random(&state) % 3 + (i > 0); n > 0; n--) {
                size_t at = test_random(&state) % header_bytes(&w);
                bytes[at] = test_random(&state) % 2 ? (uint8_t)test_random(&state)
                                                    : favourites[test_random(&state) % 6];
            }
            if (test_random(&state) % 20 == 0) len -= test_random(&state) % len;
            /* a copy of just so many bytes, so that a read behind them is seen */
            uint8_t *exact = malloc(len ? len : 1);
            memcpy(exact, bytes, len);
            bool runs = check_bytes(exact, len, seed);
            if (runs) run_it(exact, len);
            loaded += runs;
            free(exact);
        }
        free(bytes);
        tiny_model_fini(&w);
    }
    print_message("%llu of %llu run\n", (unsigned long long)loaded,
                  (unsigned long long)(rounds * (sizeof archs / sizeof archs[0])));
    CHECK(loaded > rounds / 10);
}

TEST_MAIN()
