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
#include "bench_answers.h"

#include "text/tokenizer.h"

#include <math.h>

enum { PROMPT = 8, MOST_QUADS = 20000 };
static const char usage[] =
    "bench_forms MODEL.gguf [requests] [tokens of an answer] [rounds] [masks|jump]";

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

static uint32_t num_reqs, num_new, num_rounds, vocab_size;
static logit_bias *lengths; /* [num_lengths] a bias for each token that has bytes */
static uint32_t num_lengths;

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
    for (uint32_t i = 0; i < num_reqs; i++) {
        const req_params p = {.max_new_tokens = num_new,
                              .ignore_eos = true,
                              .sampling = {.temperature = l->drawn ? 1 : 0,
                                           .top_p = l->drawn ? 0.95f : 1,
                                           .seed = seed + i,
                                           .bias = lengths,
                                           .num_bias = l->usual ? num_lengths : 0}};
        server_ask(v, i, PROMPT, seed, l->half && i % 2 ? NULL : l->form, p);
    }
}

/* Seconds of decoding the answers to the prompts of `seed`. */
static double run(server *v, const load *l, uint64_t seed)
{
    ask(v, l, seed);
    return server_run(v, num_reqs);
}

static const char *name_of(const load *l)
{
    return l->half ? "half" : l->name;
}

/* ---- masks ---- */

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
            while (both[side]->started < num_reqs)
                scheduler_step(both[side]->s);
        }
        for (uint32_t done = 1; done + 2 <= num_new && q.count < MOST_QUADS; done += 2)
            run_quad(both, &q, q.count % 2);
        (void)server_run(of_free, num_reqs); /* what is left of them */
        (void)server_run(of_form, num_reqs);
    }
    scheduler_get_stats(of_form->s, &after);
    const double masks = (double)(after.masks - before.masks);
    const double steps = (double)(after.forward_steps - before.forward_steps);
    const uint32_t n = q.count, off = (uint32_t)(0.98 * sqrt(n));
    const double middle = bench_median(q.ratio, n), step = bench_median(q.step, n);
    printf("%-7s %-6s ratio %5.3f (95%%: %.3f to %.3f; half of %u: %.3f to %.3f)  %6.1f tokens/s  "
           "mask %4.1f us  a step %.1f ms: waits %.1f us, chooses in %.0f us (free: %.0f)\n",
           name_of(form), form->drawn ? "drawn" : "greedy", middle,
           q.ratio[n / 2 - RAD_MIN(off, n / 2)], q.ratio[RAD_MIN(n / 2 + off, n - 1)], n,
           q.ratio[n / 4], q.ratio[n * 3 / 4], num_reqs / step,
           (double)(after.mask_ns - before.mask_ns) / masks * 1e-3, step * 1e3,
           (double)(after.mask_wait_ns - before.mask_wait_ns) / steps * 1e-3,
           bench_median(q.choosing[1], n) * 1e6, bench_median(q.choosing[0], n) * 1e6);
    fflush(stdout);
}

/* ---- jump ---- */

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
        compare_answers(without, with, num_reqs);
        ratios[round] = times[0] / times[1];
        rates[round] = num_reqs * (num_new - 1) / times[1];
    }
    scheduler_get_stats(with->s, &after);
    const double middle = bench_median(ratios, num_rounds);
    printf("%2u requests  %-7s %-6s ratio %5.3f (%.3f to %.3f)  %7.1f tokens/s  ", num_reqs,
           name_of(l), l->usual ? "usual" : "greedy", middle, ratios[0], ratios[num_rounds - 1],
           bench_median(rates, num_rounds));
    print_drafts(&before.drafts, &after.drafts, DRAFT_FORCED);
    putchar('\n');
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
    num_reqs = number_of(argc, argv, 2, 8, 1, MOST_REQS, usage);
    num_new = number_of(argc, argv, 3, 64, 8, MOST_NEW, usage);
    num_rounds = number_of(argc, argv, 4, 7, 1, MOST_ROUNDS, usage);
    const char *only = argc > 5 ? argv[5] : NULL;
    if (argc < 2 || argc > 6 || (only && strcmp(only, "masks") != 0 && strcmp(only, "jump") != 0))
        show_usage(usage);
    must(gguf_open(NULL, argv[1], &file, &err), &err);
    must(tokenizer_create(NULL, file, &tok, &err), &err);
    const uint32_t context = PROMPT + num_new;
    model = answers_model(file, context, 2048 + 3 * MOST_REQS,
                          scheduler_max_batch_logits(MOST_REQS), NULL, false);
    gguf_close(file);
    vocab_size = model->info.vocab_size;
    make_vocab(tok, &vocab);
    tokenizer_destroy(tok);
    server with, without, beside;
    server_start(&with, model, context, (scheduler_params){.max_draft_tokens = DRAFTS});
    server_start(&without, model, context, (scheduler_params){0});
    server_start(&beside, model, context, (scheduler_params){0});
    grammar *of_records = compile(vocab, records), *of_texts = compile(vocab, texts);
    printf("%s, %u tokens, %u requests, %u new tokens, %u rounds in turn\n", argv[1], vocab_size,
           num_reqs, num_new, num_rounds);
    if (!only || !strcmp(only, "masks")) compare_masks(&beside, &without, of_records, of_texts);
    if (!only || !strcmp(only, "jump")) compare_jump(&without, &with, of_records);
    server_stop(&with);
    server_stop(&without);
    server_stop(&beside);
    grammar_unref(of_records);
    grammar_unref(of_texts);
    grammar_vocab_destroy(vocab);
    free(lengths);
    runner_destroy(model);
    return 0;
}
