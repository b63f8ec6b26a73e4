/* bench_draft_model.c - what a draft model, or a head of the model's own, does to the time of
 * answers, by how often it is right.
 *
 * Two schedulers over one model: one has a draft model besides, one has not. Answers are told
 * (req_params.told), and so is what the small model says: with a chance the next token of the
 * answer, else another. It computes all the same, prompts that are caught up with included. So what
 * is measured is what it costs and what it wins, for any pair of shapes, random weights or not.
 *
 * ratio: the median over the rounds of (time without / time with), of decoding alone, in turn;
 * tokens a step: of a request, with drafts; prompts: the ratio of the time up to the last of the
 * first tokens, what follows at once in the same steps included.
 *
 * With "nextn" in the place of the small model it is the head of MODEL.gguf that guesses; then the
 * other scheduler's model is loaded without it.
 *
 * usage: bench_draft_model MODEL.gguf SMALL.gguf|nextn [tokens of an answer, 192] [rounds, 5] */
#include "bench_answers.h"

enum { PROMPT = 256 };
static const char usage[] =
    "bench_draft_model MODEL.gguf SMALL.gguf|nextn [tokens of an answer] [rounds]";

static uint32_t num_new, num_rounds, vocab_size;
static rad_token told[MOST_REQS][MOST_NEW];
static double right; /* how often the small model is */
static const runner_ops *real_small;
static draft_kind kind = DRAFT_MODEL;

/* Chooses as it would, so that it takes the time, and says something else. A request's seed is its
 * number; whether a position is guessed right is the same each time. */
static rad_status told_sample(runner *self, const runner_sample *rows, uint32_t num_rows,
                              rad_token *tokens, rad_error *err)
{
    const rad_status status = real_small->sample(self, rows, num_rows, tokens, err);
    for (uint32_t i = 0; i < num_rows; i++) {
        if (!rows[i].params) continue;
        const uint32_t at = rows[i].position - PROMPT;
        const rad_token next = told[rows[i].params->seed][at];
        const double draw = (double)(mix64(next + ((uint64_t)rows[i].position << 32)) >> 11) /
                            (1ull << 53);
        tokens[i] = draw < right ? next : (rad_token)((uint32_t)(next + 1) % vocab_size);
    }
    return status;
}

/* Seconds of decoding `n` answers at one time. */
static double run(server *v, uint32_t n, uint64_t seed)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t state = ~(seed * MOST_REQS + i);
        for (uint32_t t = 0; t < num_new; t++)
            told[i][t] = (rad_token)((state = mix64(state + t)) % vocab_size);
        const req_params p = {.max_new_tokens = num_new,
                              .told = told[i],
                              .num_told = num_new,
                              .sampling = {.top_p = 1, .seed = i}};
        server_ask(v, i, PROMPT, seed, NULL, p);
    }
    return server_run(v, n);
}

static void run_case(server *with, server *without, uint32_t n)
{
    double ratios[MOST_ROUNDS], prompts[MOST_ROUNDS];
    scheduler_stats before, after;
    static uint64_t seed;
    scheduler_get_stats(with->s, &before);
    for (uint32_t round = 0; round < num_rounds; round++, seed++) {
        double on = 0, off = 0;
        for (int turn = 0; turn < 2; turn++)
            if ((turn + round) % 2)
                on = run(with, n, seed);
            else
                off = run(without, n, seed);
        ratios[round] = off / on;
        prompts[round] = without->prompts / with->prompts;
    }
    scheduler_get_stats(with->s, &after);
    const double middle = bench_median(ratios, num_rounds);
    printf("%3.0f%% right %2u requests  ratio %5.2f (%.2f to %.2f)  ", 100 * right, n, middle,
           ratios[0], ratios[num_rounds - 1]);
    print_drafts(&before.drafts, &after.drafts, kind);
    printf("  %.1f ms for guesses  prompts %.2f\n",
           (double)(after.drafts.prepare_ns - before.drafts.prepare_ns) * 1e-6,
           bench_median(prompts, num_rounds));
    fflush(stdout);
}

static runner *load(const char *path, uint32_t max_tokens, uint32_t max_logits,
                    const runner *beside, bool nextn)
{
    rad_error err = {0};
    gguf_file *file;
    must(gguf_open(NULL, path, &file, &err), &err);
    runner *model = answers_model(file, PROMPT + num_new, max_tokens, max_logits, beside, nextn);
    gguf_close(file);
    return model;
}

int main(int argc, char **argv)
{
    num_new = number_of(argc, argv, 3, 192, 8, MOST_NEW, usage);
    num_rounds = number_of(argc, argv, 4, 5, 1, MOST_ROUNDS, usage);
    if (argc < 3 || argc > 5) show_usage(usage);
    const bool nextn = strcmp(argv[2], "nextn") == 0;
    const uint32_t max_tokens = 2048 + MOST_REQS + draft_max_rows(DRAFTS);
    const uint32_t max_logits = scheduler_max_batch_logits(MOST_REQS);
    runner *model = load(argv[1], max_tokens, max_logits, NULL, false);
    /* Who guesses: a small model beside the other, or the same one with its head. */
    runner *small = nextn ? load(argv[1], max_tokens, max_logits, model, true)
                          : load(argv[2], DRAFT_MODEL_TOKENS, DRAFT_MODEL_LOGITS, model, false);
    if (nextn) kind = DRAFT_NEXTN;
    if (nextn && !small->info.nextn_layers) {
        fprintf(stderr, "bench_draft_model: %s has no head\n", argv[1]);
        return 2;
    }
    vocab_size = model->info.vocab_size;
    if (small->info.vocab_size != vocab_size) {
        fprintf(stderr, "bench_draft_model: %u tokens and %u\n", vocab_size,
                small->info.vocab_size);
        return 2;
    }
    real_small = small->ops;
    runner_ops ops = *real_small;
    ops.sample = told_sample;
    small->ops = &ops;
    printf("%s and %s, %u new tokens, %u rounds in turn\n", argv[1], argv[2], num_new, num_rounds);
    static const double rights[] = {0.9, 0.7, 0.5, 0};
    static const uint32_t sizes[] = {1, 4, MOST_REQS};
    for (size_t i = 0; i < RAD_COUNT(rights); i++)
        for (size_t k = 0; k < RAD_COUNT(sizes); k++) {
            server with, without; /* what was learned of one rate is not another's */
            right = rights[i];
            scheduler_params p = {.max_states = 64 + sizes[k] * (DRAFTS + 4)};
            server_start(&without, model, PROMPT + num_new, p);
            p.max_draft_tokens = DRAFTS;
            p.draft_sources = draft_bit(DRAFT_NEXTN);
            p.draft_runner = nextn ? NULL : small;
            server_start(&with, nextn ? small : model, PROMPT + num_new, p);
            run_case(&with, &without, sizes[k]);
            server_stop(&with);
            server_stop(&without);
        }
    small->ops = real_small;
    runner_destroy(small);
    runner_destroy(model);
    return 0;
}
