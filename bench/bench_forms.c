/* bench_forms.c - decoding under a grammar, beside decoding without; and forced text as drafts.
 *
 *     masks    no drafts: a batch under a grammar, beside the same batch without one
 *     jump     under a grammar: with forced text as drafts, beside the same without drafts
 *
 * Loads: `records`, an array of objects whose text is mostly forced (names, words of an enum, small
 * numbers, short texts); `texts`, an array of strings, where nearly all tokens are allowed. `half`:
 * every other request has a grammar.
 *
 * masks: one model, two schedulers, each with its batch, which step in turn: free, form, form,
 * free, and the other way round. So what the machine does besides falls on both, and each four
 * steps give a ratio, (time of the free ones) / (time of those with a form). The row has the median
 * of all these, their quartiles, and between which two the median lies with 95 % of confidence; and
 * what a form takes itself: a mask, of the helper's CPU time; the wait for it; and choosing the
 * tokens of a step from its logits, beside the same without a form (medians of the steps).
 *
 * jump: two schedulers, one that drafts and one that never does, which run the answers in turn;
 * both must say the same. Random weights take any spelling of a forced text; a trained model takes
 * its usual one. `usual`: longer tokens are made likelier, which comes to the same; both sides have
 * that. ratio: the median over the rounds of (time without drafts / time with them), of decoding
 * alone.
 *
 * With BENCH_CPU_TIME in the environment one thread computes, and CPU time counts: that of the
 * masks as well, which stand beside the forward pass otherwise.
 *
 * usage: bench_forms MODEL.gguf [requests, 8] [tokens of an answer, 64] [rounds, 7] [masks|jump,
 * both] */
#include "bench.h"

#include "base/mix64.h"
#include "model/model_runner.h"
#include "sched/grammar_rule.h"
#include "sched/scheduler_impl.h"
#include "text/tokenizer.h"

#include <math.h>

enum {
    MOST_REQS = 32,
    PROMPT = 8,
    MOST_NEW = 4096,
    MOST_ROUNDS = 99,
    DRAFTS = 8,
    MOST_QUADS = 20000
};

#define RECORD                                                                                     \
    "{\"type\": \"object\", \"additionalProperties\": false, \"properties\": {"                    \
    "\"product_identifier\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 999}, "          \
    "\"availability\": {\"enum\": [\"in_stock\", \"out_of_stock\", \"discontinued\"]}, "           \
    "\"customer_rating\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 5}, "               \
    "\"short_name\": {\"type\": \"string\", \"minLength\": 1, \"maxLength\": 8}, "                 \
    "\"is_refundable\": {\"type\": \"boolean\"}, "                                                 \
    "\"warehouse_location\": {\"type\": \"object\", \"additionalProperties\": false, "             \
    "\"properties\": {\"country_code\": {\"enum\": [\"DE\", \"FR\", \"US\"]}, "                    \
    "\"shelf_number\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 99}}, "                \
    "\"required\": [\"country_code\", \"shelf_number\"]}}, \"required\": "                         \
    "[\"product_identifier\", \"availability\", \"customer_rating\", \"short_name\", "             \
    "\"is_refundable\", \"warehouse_location\"]}"

/* Neither ends before its answer is as long as it is to be. */
static const char records[] = "{\"type\": \"array\", \"minItems\": 4096, \"items\": " RECORD "}";
static const char texts[] =
    "{\"type\": \"array\", \"minItems\": 4096, \"items\": {\"type\": \"string\"}}";

typedef struct load {
    const char *name;
    grammar *form; /* NULL: free */
    bool half;
    bool drawn; /* at temperature 1, top_p 0.95 */
    bool usual;
} load;

typedef struct answer {
    req r;
    grammar_rule rule;
    uint32_t count;
    rad_token ids[MOST_NEW];
} answer;

typedef struct server {
    scheduler *s;
    answer *answers; /* [MOST_REQS] */
    uint32_t begun, ended;
    double from; /* when the last request got its first token */
} server;

static uint32_t num_reqs, num_new, num_rounds, vocab_size;
static logit_bias *lengths; /* [num_lengths] a bias for each token that has bytes */
static uint32_t num_lengths;

static void must(rad_status status, const rad_error *err)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "bench_forms: %s\n", err->text);
    exit(1);
}

static void *need(void *p)
{
    if (!p) must(RAD_E_NOMEM, &(rad_error){.text = "no memory"});
    return p;
}

static void on_output(void *user, const req_output *outputs, uint32_t count)
{
    server *v = user;
    for (uint32_t i = 0; i < count; i++) {
        const req_output *o = &outputs[i];
        answer *a = o->req->user;
        if (o->finish == REQ_FINISH_ERROR) must(RAD_E_STATE, &o->req->error);
        if (o->token >= 0 && !a->count) {
            v->from = bench_now();
            v->begun++;
        }
        if (o->token >= 0) a->ids[a->count++] = o->token;
        v->ended += o->finish != REQ_FINISH_NONE;
    }
}

/* The scheduler prices steps by the clock that they are measured with. */
static uint64_t now_ns(void *user)
{
    (void)user;
    return (uint64_t)(bench_now() * 1e9);
}

static void start(runner *model, bool drafts, server *v)
{
    rad_error err = {0};
    rad_env env = rad_env_or_default(NULL);
    env.now_ns = now_ns;
    const scheduler_params p = {.runner = model,
                                .page_size = 1,
                                .max_total_tokens = 2ull * MOST_REQS * (PROMPT + num_new) + 4096,
                                .max_running_requests = MOST_REQS,
                                .max_queued_requests = MOST_REQS,
                                .chunked_prefill_size = 2048,
                                .context_length = PROMPT + num_new,
                                .max_draft_tokens = drafts ? DRAFTS : 0,
                                .on_output = on_output,
                                .user = v};
    v->answers = need(calloc(MOST_REQS, sizeof *v->answers));
    must(scheduler_create(&env, &p, &v->s, &err), &err);
}

/* ---- the vocabulary ---- */

static void make_vocab(const tokenizer *tok, grammar_vocab **v)
{
    rad_error err = {0};
    char *bytes = need(malloc((size_t)vocab_size * TOKENIZER_MAX_PIECE)), *at = bytes;
    grammar_piece *pieces = need(calloc(vocab_size, sizeof *pieces));
    lengths = need(calloc(vocab_size, sizeof *lengths));
    for (uint32_t id = 0; id < RAD_MIN(vocab_size, tokenizer_vocab_size(tok)); id++) {
        const size_t n = tokenizer_piece(tok, (rad_token)id, true, at, TOKENIZER_MAX_PIECE);
        const bool control = tokenizer_is_control(tok, (rad_token)id);
        pieces[id] = (grammar_piece){.bytes = at, .len = (uint32_t)n, .control = control};
        at += n;
        if (!n || control) continue;
        lengths[num_lengths++] = (logit_bias){(rad_token)id, 4 * (float)RAD_MIN(n, (size_t)24)};
    }
    const rad_token end = tokenizer_eos(tok);
    const grammar_vocab_params p = {
        .pieces = pieces, .vocab_size = vocab_size, .end_tokens = &end, .num_end_tokens = end >= 0};
    must(grammar_vocab_create(NULL, &p, v, &err), &err);
    if (grammar_vocab_warm(*v)) exit(1);
    free(bytes);
    free(pieces);
}

static grammar *compile(grammar_vocab *v, const char *schema)
{
    rad_error err = {0};
    const grammar_spec spec = {.kind = GRAMMAR_JSON_SCHEMA, .text = schema, .len = strlen(schema)};
    grammar *g;
    must(grammar_compile(v, &spec, NULL, &g, &err), &err);
    return g;
}

/* ---- cases ---- */

/* The prompts of `seed`, to be answered. */
static void ask(server *v, const load *l, uint64_t seed)
{
    rad_error err = {0};
    v->begun = v->ended = 0;
    for (uint32_t i = 0; i < num_reqs; i++) {
        rad_token ids[PROMPT];
        answer *a = &v->answers[i];
        uint64_t state = seed * MOST_REQS + i + 1;
        for (uint32_t t = 0; t < PROMPT; t++)
            ids[t] = (rad_token)((state = mix64(state + t)) % vocab_size);
        req_params p = {.ids = ids,
                        .num_ids = PROMPT,
                        .max_new_tokens = num_new,
                        .ignore_eos = true,
                        .sampling = {.temperature = l->drawn ? 1 : 0,
                                     .top_p = l->drawn ? 0.95f : 1,
                                     .seed = seed + i,
                                     .bias = lengths,
                                     .num_bias = l->usual ? num_lengths : 0},
                        .user = a};
        memset(a, 0, offsetof(answer, ids));
        if (l->form && !(l->half && i % 2)) {
            must(grammar_rule_init(&a->rule, l->form, &err), &err);
            p.rule = &a->rule.base;
        }
        must(req_init(&a->r, NULL, &p, &err), &err);
        must(scheduler_add(v->s, &a->r, &err), &err);
    }
}

static void finish(server *v)
{
    while (v->ended < num_reqs)
        scheduler_step(v->s);
    for (uint32_t i = 0; i < num_reqs; i++) {
        req_fini(&v->answers[i].r);
        if (v->answers[i].rule.matcher) grammar_rule_fini(&v->answers[i].rule);
    }
}

/* Seconds of decoding the answers to the prompts of `seed`. */
static double run(server *v, const load *l, uint64_t seed)
{
    ask(v, l, seed);
    while (v->ended < num_reqs)
        scheduler_step(v->s);
    const double seconds = bench_now() - v->from;
    finish(v);
    return seconds;
}

static const char *name_of(const load *l)
{
    return l->half ? "half" : l->name;
}

/* ---- masks ---- */

static double median(double *of, uint32_t count)
{
    qsort(of, count, sizeof *of, bench_compare);
    return of[count / 2];
}

/* Seconds of one step; *choosing: of it, what making tokens of logits took. */
static double timed_step(server *v, double *choosing)
{
    scheduler_stats before, after;
    scheduler_get_stats(v->s, &before);
    const double start = bench_now();
    scheduler_step(v->s);
    const double seconds = bench_now() - start;
    scheduler_get_stats(v->s, &after);
    *choosing = (double)(after.sample_ns - before.sample_ns) * 1e-9 -
                (double)(after.mask_wait_ns - before.mask_wait_ns) * 1e-9;
    return seconds;
}

/* Four steps in turn are a quad. */
typedef struct quads {
    double ratio[MOST_QUADS], step[MOST_QUADS], choosing[2][MOST_QUADS];
    uint32_t count;
} quads;

static void run_quad(server *both[2], quads *q, bool form_first)
{
    double seconds[2] = {0}, choosing[2] = {0};
    for (int turn = 0; turn < 4; turn++) {
        const int side = form_first ^ (turn == 1 || turn == 2);
        double one;
        seconds[side] += timed_step(both[side], &one);
        choosing[side] += one;
    }
    q->ratio[q->count] = seconds[0] / seconds[1];
    q->step[q->count] = seconds[1] / 2;
    for (int side = 0; side < 2; side++)
        q->choosing[side][q->count] = choosing[side] / 2;
    q->count++;
}

static void run_masks(server *of_free, server *of_form, const load *form)
{
    static quads q;
    static uint64_t seed;
    const load no_form = {.name = "free", .drawn = form->drawn};
    const load *loads[2] = {&no_form, form};
    server *both[2] = {of_free, of_form};
    scheduler_stats before, after;
    q.count = 0;
    run(of_form, form, seed++); /* masks that are met for the first time */
    scheduler_get_stats(of_form->s, &before);
    for (uint32_t round = 0; round < num_rounds; round++, seed++) {
        for (int side = 0; side < 2; side++) {
            ask(both[side], loads[side], seed);
            while (both[side]->begun < num_reqs)
                scheduler_step(both[side]->s);
        }
        for (uint32_t done = 1; done + 2 <= num_new && q.count < MOST_QUADS; done += 2)
            run_quad(both, &q, q.count % 2);
        finish(of_free);
        finish(of_form);
    }
    scheduler_get_stats(of_form->s, &after);
    const double masks = (double)(after.masks - before.masks);
    const double steps = (double)(after.forward_steps - before.forward_steps);
    const uint32_t n = q.count, off = (uint32_t)(0.98 * sqrt(n));
    const double middle = median(q.ratio, n), step = median(q.step, n);
    printf("%-7s %-6s ratio %5.3f (95%%: %.3f to %.3f; half of %u: %.3f to %.3f)  %6.1f tokens/s  "
           "mask %4.1f us  a step %.1f ms: waits %.1f us, chooses in %.0f us (free: %.0f)\n",
           name_of(form), form->drawn ? "drawn" : "greedy", middle,
           q.ratio[n / 2 - RAD_MIN(off, n / 2)], q.ratio[RAD_MIN(n / 2 + off, n - 1)], n,
           q.ratio[n / 4], q.ratio[n * 3 / 4], num_reqs / step,
           (double)(after.mask_ns - before.mask_ns) / masks * 1e-3, step * 1e3,
           (double)(after.mask_wait_ns - before.mask_wait_ns) / steps * 1e-3,
           median(q.choosing[1], n) * 1e6, median(q.choosing[0], n) * 1e6);
    fflush(stdout);
}

/* ---- jump ---- */

static void compare(const server *a, const server *b)
{
    for (uint32_t i = 0; i < num_reqs; i++)
        if (a->answers[i].count != b->answers[i].count ||
            memcmp(a->answers[i].ids, b->answers[i].ids, a->answers[i].count * sizeof(rad_token))) {
            fprintf(stderr, "bench_forms: answer %u is another one with drafts\n", i);
            exit(1);
        }
}

/* With drafts beside the same without; prints the row. */
static void run_jump(server *without, server *with, const load *l)
{
    double ratios[MOST_ROUNDS], rates[MOST_ROUNDS];
    scheduler_stats before, after;
    static uint64_t seed;
    run(with, l, seed++); /* prices of rows */
    scheduler_get_stats(with->s, &before);
    for (uint32_t round = 0; round < num_rounds; round++, seed++) {
        double times[2];
        for (unsigned turn = 0; turn < 2; turn++) {
            const unsigned drafts = (turn + round) % 2;
            times[drafts] = run(drafts ? with : without, l, seed);
        }
        compare(without, with);
        ratios[round] = times[0] / times[1];
        rates[round] = num_reqs * (num_new - 1) / times[1];
    }
    scheduler_get_stats(with->s, &after);
    const double middle = median(ratios, num_rounds);
    const uint64_t proposed = after.drafts.proposed[DRAFT_FORCED] -
                              before.drafts.proposed[DRAFT_FORCED];
    const uint64_t accepted = after.drafts.accepted[DRAFT_FORCED] -
                              before.drafts.accepted[DRAFT_FORCED];
    printf(
        "%2u requests  %-7s %-6s ratio %5.3f (%.3f to %.3f)  %7.1f tokens/s  %llu drafts, %.0f%% "
        "right, %.2f tokens a step\n",
        num_reqs, name_of(l), l->usual ? "usual" : "greedy", middle, ratios[0],
        ratios[num_rounds - 1], median(rates, num_rounds), (unsigned long long)proposed,
        proposed ? 100.0 * (double)accepted / (double)proposed : 0,
        1 + (double)accepted / (double)(after.drafts.req_steps - before.drafts.req_steps));
    fflush(stdout);
}

static void compare_masks(server *of_free, server *of_form, grammar *of_records, grammar *of_texts)
{
    static const struct {
        bool texts, half, drawn;
    } cases[] = {
        {0}, {.drawn = true}, {.texts = true}, {.texts = true, .drawn = true}, {.half = true}};
    printf("masks: no drafts, in turn with the same batch without a grammar, step by step\n");
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        const load form = {.name = cases[i].texts ? "texts" : "records",
                           .form = cases[i].texts ? of_texts : of_records,
                           .half = cases[i].half,
                           .drawn = cases[i].drawn};
        run_masks(of_free, of_form, &form);
    }
}

static void compare_jump(server *without, server *with, grammar *of_records)
{
    const uint32_t counts[] = {num_reqs, 1};
    printf("jump: forced text as drafts, beside the same without drafts\n");
    for (int usual = 1; usual >= 0; usual--)
        for (size_t i = 0; i < RAD_COUNT(counts) - (counts[0] == 1); i++) {
            const load form = {.name = "records", .form = of_records, .usual = usual};
            num_reqs = counts[i];
            run_jump(without, with, &form);
        }
}

int main(int argc, char **argv)
{
    rad_error err = {0};
    gguf_file *file;
    runner *model;
    tokenizer *tok;
    grammar_vocab *vocab;
    num_reqs = argc > 2 ? (uint32_t)atoi(argv[2]) : 8;
    num_new = argc > 3 ? (uint32_t)atoi(argv[3]) : 64;
    num_rounds = argc > 4 ? (uint32_t)atoi(argv[4]) : 7;
    const char *only = argc > 5 ? argv[5] : NULL;
    if (argc < 2 || argc > 6 || num_reqs < 1 || num_reqs > MOST_REQS || num_new < 8 ||
        num_new > MOST_NEW || num_rounds < 1 || num_rounds > MOST_ROUNDS ||
        (only && strcmp(only, "masks") != 0 && strcmp(only, "jump") != 0)) {
        fprintf(stderr, "usage: bench_forms MODEL.gguf [requests] [tokens of an answer] [rounds] "
                        "[masks|jump]\n");
        return 2;
    }
    must(gguf_open(NULL, argv[1], &file, &err), &err);
    must(tokenizer_create(NULL, file, &tok, &err), &err);
    const model_runner_params params = {.dtype = RAD_BF16,
                                        .kv_dtype = RAD_BF16,
                                        .set_kv_dtype = true,
                                        .max_batch_tokens = 2048 + 3 * MOST_REQS,
                                        .max_batch_logits = scheduler_max_batch_logits(MOST_REQS),
                                        .context_length = PROMPT + num_new,
                                        .attn = attn_cpu(NULL),
                                        .num_threads = getenv("BENCH_CPU_TIME") ? 1 : 0};
    must(model_runner_create(NULL, file, &params, &model, &err), &err);
    gguf_close(file);
    vocab_size = model->info.vocab_size;
    make_vocab(tok, &vocab);
    tokenizer_destroy(tok);
    server with = {0}, without = {0}, beside = {0};
    start(model, true, &with);
    start(model, false, &without);
    start(model, false, &beside);
    grammar *of_records = compile(vocab, records), *of_texts = compile(vocab, texts);
    printf("%s, %u tokens, %u requests, %u new tokens, %u rounds in turn\n", argv[1], vocab_size,
           num_reqs, num_new, num_rounds);
    if (!only || !strcmp(only, "masks")) compare_masks(&beside, &without, of_records, of_texts);
    if (!only || !strcmp(only, "jump")) compare_jump(&without, &with, of_records);
    scheduler_destroy(with.s);
    scheduler_destroy(without.s);
    scheduler_destroy(beside.s);
    grammar_unref(of_records);
    grammar_unref(of_texts);
    grammar_vocab_destroy(vocab);
    free(lengths);
    free(with.answers);
    free(without.answers);
    free(beside.answers);
    runner_destroy(model);
    return 0;
}
