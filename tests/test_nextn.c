/* test_nextn.c - heads that files carry for guessing (nextn.h): their numbers against the scalar
 * reference, however the text was computed; what becomes of entries; and that the model beside them
 * says what it says without. */
#include "model_bench.h"
#include "nextn_models.h"

#include "gear/model_reference.h"

#include <math.h>

enum { VOCAB = NEXTN_VOCAB, TOKENS = 90, GUESSES = 3, PAGE = 16 };

static const tiny_model dense = {NEXTN_LATENT, .context = 256};
static const tiny_model hybrid = {NEXTN_HYBRID, .layers = 3, .context = 256, .tied = true};

/* And two mixtures; the first has a second head, which is left out. */
static tiny_model model_of(int which)
{
    tiny_model m = which % 2 ? hybrid : dense;
    if (which < 2) return m;
    m.experts = 6, m.used = 2, m.expert_ffn = 32;
    if (which == 2) {
        m.shared_experts = 1, m.dense = 1, m.gating = 2, m.nextn = 2;
    } else {
        m.arch = "qwen35moe", m.shared_ffn = 32;
    }
    return m;
}
enum { MODELS = 4 };

typedef struct rig {
    tiny_writer w;
    gguf_file *file;
    bench b;
    rad_token ids[TOKENS + GUESSES + 1];
} rig;

static void open_file(rig *r, const tiny_model *m, uint64_t *state)
{
    r->file = tiny_model_open(&r->w, m, state);
    for (uint32_t i = 0; i < RAD_COUNT(r->ids); i++)
        r->ids[i] = (rad_token)(test_random(state) % m->vocab);
}

static void load(rig *r, rad_dtype dtype, bool nextn)
{
    runner *model;
    rad_error err = {0};
    const model_runner_params params = {.dtype = dtype,
                                        .max_batch_tokens = BENCH_ROWS * BENCH_ROW_TOKENS,
                                        .max_batch_logits = BENCH_ROWS * BENCH_ROW_TOKENS,
                                        .num_threads = 2,
                                        .nextn = nextn};
    const rad_status status = model_runner_create(NULL, r->file, &params, &model, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    CHECK(model->info.nextn_layers == nextn);
    r->b = bench_of(model, PAGE);
}

static void close_file(rig *r)
{
    gguf_close(r->file);
    tiny_model_fini(&r->w);
}

/* What the head says behind token `id` of each of these rows, which stands behind `at` tokens; or
 * nothing (`to` NULL): the entry is written. */
static void guess(rig *r, const rad_row *rows, uint32_t count, uint32_t at, rad_token id,
                  const uint32_t *from, const uint32_t *to, float *logits)
{
    uint32_t lens[BENCH_ROWS], prefix[BENCH_ROWS], extend[BENCH_ROWS], start[BENCH_ROWS];
    uint32_t positions[BENCH_ROWS];
    rad_slot loc[BENCH_ROWS];
    rad_token ids[BENCH_ROWS];
    for (uint32_t i = 0; i < count; i++) {
        lens[i] = at, prefix[i] = positions[i] = at - 1, extend[i] = 1, start[i] = i, ids[i] = id;
        loc[i] = rad_req_to_token_row(r->b.rows, rows[i])[at - 1];
    }
    const forward_batch batch = {.num_reqs = count,
                                 .num_tokens = count,
                                 .input_ids = ids,
                                 .positions = positions,
                                 .out_cache_loc = loc,
                                 .req_pool_indices = rows,
                                 .seq_lens = lens,
                                 .extend_prefix_lens = prefix,
                                 .extend_seq_lens = extend,
                                 .extend_start_loc = start,
                                 .num_logits = to ? count : 0,
                                 .logits_indices = start,
                                 .req_to_token_pool = r->b.rows,
                                 .token_to_kv_pool = r->b.kv};
    const float *out;
    rad_error err = {0};
    const rad_status status = r->b.model->ops->guess(r->b.model, &batch, from, to, &out, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    if (to) memcpy(logits, out, count * (size_t)VOCAB * sizeof *logits);
}

enum { NOWHERE = UINT32_MAX };

/* Tokens [from, to) of a row; behind them stands the next of the text. What the model said before
 * them is in place `before`, whose entry is late; the last one's goes to `place`. */
static void feed(rig *r, rad_row row, uint32_t from, uint32_t to, bool known, uint32_t before,
                 uint32_t place, float *logits)
{
    float *all = logits ? logits : malloc((to - from) * (size_t)VOCAB * sizeof *all);
    const rad_token next = known ? r->ids[to] : -1;
    r->b.next_ids = &next;
    if (before != NOWHERE) guess(r, &row, 1, from, r->ids[from], &before, NULL, NULL);
    bench_run(&r->b, &(piece){row, r->ids, from, to}, 1, &all);
    r->b.model->ops->keep_hidden(r->b.model, to - from - 1, place);
    if (!logits) free(all);
}

/* GUESSES rows of logits behind the whole text: the first behind its next token, and so on, each
 * from what the head made before. */
static void guess_on(rig *r, rad_row row, uint32_t place, float *logits)
{
    for (uint32_t k = 0; k < GUESSES; k++)
        guess(r, &row, 1, TOKENS + k, r->ids[TOKENS + k], &(uint32_t){k ? place + 1 : place},
              &(uint32_t){place + 1}, logits + (size_t)k * VOCAB);
}

static double rms_off(const float *got, const double *want, size_t n)
{
    double squares = 0, scale = 0;
    for (size_t i = 0; i < n; i++) {
        const double off = (double)got[i] - want[i];
        squares += off * off, scale += want[i] * want[i];
    }
    return sqrt(squares / scale);
}

/* All of it at once; in pieces that know what follows; and token by token, where each entry is made
 * when the next token has come. */
TEST(a_head_says_what_the_reference_says_however_the_text_was_cut)
{
    uint64_t state = test_seed();
    double worst[2] = {0, 0};
    for (int which = 0; which < MODELS * (int)test_scale(1, 40); which++) {
        const tiny_model m = model_of(which % MODELS);
        rig r;
        open_file(&r, &m, &state);
        enum { ALL = TOKENS + GUESSES };
        double *want = malloc((size_t)ALL * VOCAB * sizeof *want), clear;
        rad_error err = {0};
        const rad_status status =
            model_reference_nextn(NULL, r.file, r.ids, ALL, TOKENS, want, &clear, &err);
        CHECKF(status == RAD_OK, "%s\n", err.text);
        for (int d = 0; d < 2; d++) {
            float got[GUESSES * VOCAB], pieces[GUESSES * VOCAB], tokens[GUESSES * VOCAB];
            load(&r, d ? RAD_BF16 : RAD_F32, true);
            feed(&r, 1, 0, TOKENS, false, NOWHERE, 0, NULL);
            guess_on(&r, 1, 0, got);
            const double off = rms_off(got, want + (TOKENS - 1) * VOCAB, GUESSES * VOCAB);
            const bool compared = clear >= (d ? INFINITY : 1e-4);
            if (compared) worst[d] = fmax(worst[d], off);
            CHECKF(!compared || off < (d ? 0.1 : 1e-3), "%s %s: off by %g\n", m.arch,
                   d ? "bf16" : "f32", off);

            feed(&r, 2, 0, 33, true, NOWHERE, 2, NULL);
            feed(&r, 2, 33, 34, true, NOWHERE, 2, NULL);
            feed(&r, 2, 34, 70, false, NOWHERE, 2, NULL);
            feed(&r, 2, 70, TOKENS, false, 2, 2, NULL);
            guess_on(&r, 2, 2, pieces);
            CHECKF(!memcmp(got, pieces, sizeof got), "%s: in pieces another guess\n", m.arch);

            feed(&r, 3, 0, 20, false, NOWHERE, 4, NULL);
            for (uint32_t t = 20; t < TOKENS; t++)
                feed(&r, 3, t, t + 1, false, 4, 4, NULL);
            guess_on(&r, 3, 4, tokens);
            CHECKF(!memcmp(got, tokens, sizeof got), "%s: token by token another\n", m.arch);
            bench_destroy(&r.b);
        }
        free(want);
        close_file(&r);
    }
    print_message("heads: f32 off by %.1e rms, bf16 by %.1e\n", worst[0], worst[1]);
    CHECK(worst[0] > 0 && worst[1] > 0);
}

/* Several at one time, each what it is alone. */
TEST(a_guess_does_not_depend_on_its_neighbours)
{
    uint64_t state = test_seed();
    for (int which = 0; which < MODELS; which++) {
        const tiny_model m = model_of(which);
        static const rad_row rows[] = {3, 1, 2};
        static const uint32_t from[] = {7, 7, 7}, to[] = {8, 9, 10};
        float alone[VOCAB], all[3 * VOCAB];
        rig r;
        open_file(&r, &m, &state);
        load(&r, RAD_BF16, true);
        for (rad_row row = 1; row <= 3; row++)
            feed(&r, row, 0, TOKENS, false, NOWHERE, 7, NULL);
        guess(&r, rows, 1, TOKENS, 5, from, to, alone);
        guess(&r, rows, 3, TOKENS, 5, from, to, all);
        for (int i = 0; i < 3; i++)
            CHECK(!memcmp(alone, all + (size_t)i * VOCAB, sizeof alone));
        bench_destroy(&r.b);
        close_file(&r);
    }
}

/* The same bits with a head that is told of the batch, with one that is not, and without. */
TEST(the_model_says_the_same_with_and_without_its_head)
{
    uint64_t state = test_seed();
    for (int which = 0; which < MODELS; which++) {
        const tiny_model m = model_of(which);
        rig r;
        open_file(&r, &m, &state);
        for (int d = 0; d < 2; d++) {
            float *got[3];
            for (int how = 0; how < 3; how++) {
                got[how] = malloc(sizeof(float) * TOKENS * VOCAB);
                load(&r, d ? RAD_BF16 : RAD_F32, how > 0);
                double *sum = calloc(m.dim, sizeof *sum);
                r.b.hidden_sum = sum;
                if (how == 2) {
                    feed(&r, 1, 0, 50, true, NOWHERE, 0, got[how]);
                    feed(&r, 1, 50, TOKENS, false, NOWHERE, 0, got[how] + 50 * VOCAB);
                } else {
                    bench_prefill(&r.b, 1, r.ids, TOKENS, got[how]);
                }
                CHECK(!memcmp(got[0], got[how], sizeof(float) * TOKENS * VOCAB));
                free(sum);
                bench_destroy(&r.b);
            }
            for (int how = 0; how < 3; how++)
                free(got[how]);
        }
        close_file(&r);
    }
}

/* Nothing of what lay in a slot before is left where nobody wants guesses, or nobody knows what
 * comes next. */
TEST(entries_that_cannot_be_made_are_zeros)
{
    uint64_t state = test_seed();
    for (int which = 0; which < 2; which++) {
        const tiny_model m = model_of(which);
        rig r;
        open_file(&r, &m, &state);
        load(&r, RAD_F32, true);
        const uint32_t layer = r.b.model->info.num_layers - 1;
        const uint32_t width = r.b.model->info.num_kv_heads * r.b.model->info.head_dim;
        const rad_slot *row = rad_req_to_token_row(r.b.rows, 1);
        float *k = malloc(sizeof *k * width * TOKENS);
        for (int how = 0; how < 2; how++) {
            feed(&r, 1, 0, TOKENS, true, NOWHERE, 0, NULL);
            if (how)
                feed(&r, 1, 0, TOKENS, false, NOWHERE, 0, NULL);
            else
                bench_run(&r.b, &(piece){1, r.ids, 0, TOKENS}, 1, &(float *){NULL});
            CHECK_OK(rad_kv_pool_get_kv(r.b.kv, layer, row, TOKENS, k, NULL));
            for (uint32_t t = 0; t < TOKENS; t++) {
                bool zeros = true;
                for (uint32_t i = 0; i < width; i++)
                    zeros = zeros && k[t * width + i] == 0;
                CHECK(zeros == (!how || t + 1 == TOKENS));
            }
        }
        free(k);
        bench_destroy(&r.b);
        close_file(&r);
    }
}

static void count_layer(void *user, uint32_t layer)
{
    ((uint32_t *)user)[layer]++;
}

/* A load from the host whose last layer is not there behind the forward pass counts as failed, and
 * its request is computed anew. Nothing in a pass reads the head's layer: so nobody waited for it,
 * and on a busy machine prompts were computed twice whose loads were merely late. */
TEST(a_pass_waits_for_the_layer_of_the_head_as_well)
{
    uint64_t state = test_seed();
    for (int which = 0; which < MODELS; which++) {
        const tiny_model m = model_of(which);
        rig r;
        open_file(&r, &m, &state);
        load(&r, RAD_F32, true);
        const uint32_t layers = r.b.model->info.num_layers;
        CHECK(layers > 1 && layers < 8 && rad_kv_pool_params(r.b.kv)->num_layers == layers);
        for (int told = 0; told < 3; told++) { /* nothing, of all tokens but the last, of all */
            uint32_t waits[8] = {0};
            const rad_token next = told == 2 ? r.ids[TOKENS] : -1;
            float *none = NULL;
            r.b.next_ids = told ? &next : NULL;
            CHECK_OK(rad_kv_pool_add_wait(r.b.kv, count_layer, waits, NULL));
            bench_run(&r.b, &(piece){1, r.ids, 0, TOKENS}, 1, &none);
            CHECK_OK(rad_kv_pool_remove_wait(r.b.kv, count_layer, waits));
            for (uint32_t i = 0; i < layers; i++)
                CHECKF(waits[i] > 0, "%s: nobody waited for layer %u of %u\n", m.arch, i, layers);
        }
        bench_destroy(&r.b);
        close_file(&r);
    }
}

/* The one that p1 and benchmarks use: it is nearly always right. With the weights that p1 draws: of
 * others some know less, and one text in seven was guessed wrongly more than once in ten. */
TEST(a_head_that_knows_is_right)
{
    uint64_t state = 5;
    for (int which = 0; which < 2; which++) {
        tiny_model m = model_of(which);
        m.nextn_knows = true, m.layers = 2, m.tied = false;
        uint32_t right = 0, wrong = 0;
        rig r;
        open_file(&r, &m, &state);
        load(&r, RAD_F32, true);
        float *said = malloc(sizeof *said * TOKENS * VOCAB), guessed[VOCAB];
        for (uint32_t n = 4; n < TOKENS; n++) {
            feed(&r, 1, 0, n, false, NOWHERE, 0, NULL);
            guess(&r, &(rad_row){1}, 1, n, r.ids[n], &(uint32_t){0}, &(uint32_t){1}, guessed);
            bench_run(&r.b, &(piece){2, r.ids, 0, n + 1}, 1, &said);
            uint32_t best = 0, best_guess = 0;
            for (uint32_t v = 1; v < VOCAB; v++) {
                if (said[n * VOCAB + v] > said[n * VOCAB + best]) best = v;
                if (guessed[v] > guessed[best_guess]) best_guess = v;
            }
            right += best == best_guess, wrong += best != best_guess;
        }
        print_message("%s: right %u times, wrong %u\n", m.arch, right, wrong);
        CHECK(right > 9 * wrong);
        free(said);
        bench_destroy(&r.b);
        close_file(&r);
    }
}

/* ---- heads that cannot be used ---- */

typedef enum fault {
    FAULT_MISSING, /* it has another name, */
    FAULT_NARROW,  /* half as many numbers a row, */
    FAULT_SHORT,   /* half as many rows, */
    FAULT_TURNED,  /* rows and columns exchanged, */
    FAULT_TYPE,    /* a type that is no number to compute with */
    FAULTS
} fault;

/* Spoils what a file says of a tensor. False: this one cannot have that fault. */
static bool spoil(gguf_builder *b, const char *name, fault how)
{
    enum { I32 = 26, BLOCK = 32 /* numbers, of types but F32 */ };
    const size_t len = strlen(name);
    size_t at = 8;
    uint64_t named;
    do {
        memcpy(&named, b->bytes + ++at - 8, sizeof named);
        CHECK(at + len < b->len);
    } while (named != len || memcmp(b->bytes + at, name, len));
    unsigned char *num_dims = (unsigned char *)b->bytes + at + len, *dims = num_dims + 4;
    unsigned char *type = dims + 8 * num_dims[0];
    CHECK(num_dims[0] >= 1 && num_dims[0] <= 3);
    if (how == FAULT_MISSING) b->bytes[at + len - 8] ^= 1; /* before ".weight" */
    if (how == FAULT_NARROW || how == FAULT_SHORT) {
        if (how == FAULT_SHORT && num_dims[0] == 1) return false;
        uint64_t n;
        memcpy(&n, dims + (how == FAULT_SHORT ? 8 : 0), sizeof n);
        CHECK(n > 1);
        n /= 2;
        if (how == FAULT_NARROW && type[0] && n % BLOCK) return false;
        memcpy(dims + (how == FAULT_SHORT ? 8 : 0), &n, sizeof n);
    }
    if (how == FAULT_TURNED) {
        unsigned char rows[8];
        if (num_dims[0] == 1 || !memcmp(dims, dims + 8, sizeof rows)) return false;
        if (type[0] && dims[8] % BLOCK) return false;
        memcpy(rows, dims + 8, sizeof rows);
        memcpy(dims + 8, dims, sizeof rows);
        memcpy(dims, rows, sizeof rows);
    }
    if (how == FAULT_TYPE) type[0] = I32;
    return true;
}

/* Each tensor of the head with each fault: the model is loaded without, and the words name it. */
TEST(a_head_that_lacks_something_is_left_out)
{
    uint64_t state = 5;
    uint32_t tried = 0, used = 0;
    for (int which = 0; which < MODELS; which++) {
        const tiny_model m = model_of(which);
        rig r;
        open_file(&r, &m, &state);
        gguf_builder *b = &r.w.b;
        char *whole = malloc(b->len), names[40][64], head[16];
        memcpy(whole, b->bytes, b->len);
        uint32_t count = 0;
        snprintf(head, sizeof head, "blk.%u.", m.layers);
        for (uint64_t i = 0; i < gguf_num_tensors(r.file); i++) {
            const gguf_str name = gguf_tensor_at(r.file, i)->name;
            if (strncmp(name.data, head, strlen(head))) continue;
            CHECK(count < RAD_COUNT(names));
            snprintf(names[count++], sizeof names[0], "%.*s", (int)name.len, name.data);
        }
        CHECK(count > 10);
        for (uint32_t i = 0; i < count * FAULTS; i++) {
            const char *name = names[i / FAULTS];
            const fault how = (fault)(i % FAULTS);
            rad_error err = {0};
            model_config config;
            gguf_close(r.file);
            memcpy(b->bytes, whole, b->len);
            const bool spoilt = spoil(b, name, how);
            const rad_status opened = gguf_open_memory(NULL, b->bytes, b->len, &r.file, &err);
            CHECKF(opened == RAD_OK, "%s, fault %d: %s\n", name, (int)how, err.text);
            if (!spoilt) continue;
            CHECK_OK(model_config_read(r.file, 0, &config, &err));
            const rad_status status = model_config_use_nextn(r.file, &config, &err);
            const bool not_read = strstr(name, "embed_tokens") ||
                                  (strstr(name, "shared_head_norm") && how == FAULT_MISSING);
            used += status == RAD_OK;
            tried++;
            CHECKF(status == (not_read ? RAD_OK : RAD_E_UNSUPPORTED), "%s, fault %d: %s\n", name,
                   (int)how, err.text);
            CHECK(config.num_nextn == not_read && config.num_skipped == m.nextn - not_read);
            /* A head without a router is one without experts. */
            if (!not_read && !strstr(name, "ffn_gate_inp.") && !strstr(name, "exps"))
                CHECKF(strstr(err.text, name) && strstr(err.text, "is left out"), "%s: %s\n", name,
                       err.text);
            runner *model;
            const model_runner_params params = {
                .dtype = RAD_F32, .max_batch_tokens = 8, .num_threads = 1, .nextn = true};
            const rad_status loaded = model_runner_create(NULL, r.file, &params, &model, &err);
            CHECKF(loaded == RAD_OK, "%s, fault %d: %s\n", name, (int)how, err.text);
            CHECK(model->info.nextn_layers == not_read);
            CHECK(model->info.num_layers == config.num_attention + not_read);
            runner_destroy(model);
        }
        free(whole);
        close_file(&r);
    }
    print_message("%u files, the head of %u used all the same\n", tried, used);
    CHECK(tried > 200 && used > 5);
}

/* The same fault in a layer of the model's is none to do without. */
TEST(a_layer_that_lacks_something_is_an_error)
{
    uint64_t state = 5;
    rig r;
    open_file(&r, &dense, &state);
    CHECK(spoil(&r.w.b, "blk.1.ffn_up.weight", FAULT_SHORT));
    gguf_close(r.file);
    CHECK_OK(gguf_open_memory(NULL, r.w.b.bytes, r.w.b.len, &r.file, NULL));
    runner *model;
    rad_error err = {0};
    const model_runner_params params = {.dtype = RAD_F32, .max_batch_tokens = 8, .nextn = true};
    CHECK(model_runner_create(NULL, r.file, &params, &model, &err) == RAD_E_FORMAT);
    CHECKF(strstr(err.text, "blk.1.ffn_up.weight"), "%s\n", err.text);
    close_file(&r);
}

/* The judge is a program as well: short of memory at any place it says so, and keeps none. */
TEST(a_judge_without_memory_says_so)
{
    uint64_t state = 7;
    rig r;
    open_file(&r, &dense, &state);
    double logits[5 * NEXTN_VOCAB], clear;
    rad_status status = RAD_E_NOMEM;
    long tries = 0;
    for (; status != RAD_OK; tries++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, tries);
        status = model_reference_nextn(&env, r.file, r.ids, 6, 4, logits, &clear, NULL);
        CHECK(status == RAD_OK || status == RAD_E_NOMEM);
        CHECK(t.bytes == 0);
    }
    CHECK(tries == 4); /* the arrays, hidden states, logits; none fails */
    close_file(&r);
}

TEST_MAIN()
