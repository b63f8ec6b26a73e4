/* bench_states.c - prompt tokens that a conversation computes, turn by turn, beside all of them.
 *
 * A model with recurrent layers goes on only where a snapshot of its state was taken; one that has
 * none computes each prompt from the start. Three courses, greedy, one request at a time:
 *
 *     chat      ten turns, each a message of N tokens, an opening of 3 and an answer of N / 4
 *     last      the last answer once more, and the last message in other words
 *     branches  16 messages behind a text of 8 N tokens
 *
 * computed: prompt tokens of the turn that the forward passes had; all: the prompt's, which a
 * server without such snapshots computes. Times are of the same scheduler with the cache on and
 * off.
 *
 * usage: bench_states MODEL.gguf [N, default 96] */
#include "bench.h"

#include "model/model_runner.h"
#include "sched/scheduler_impl.h"

enum { TURNS = 10, BRANCHES = 16, OPENING = 3, TURN_TOKEN = 5 };

typedef struct text {
    rad_token *ids;
    uint32_t n, message; /* where its last message begins */
} text;

typedef struct server {
    scheduler *s;
    double started, first; /* of the request's first token */
    uint32_t num_out, cached;
    rad_token *out;
    bool ended;
} server;

static uint32_t message_tokens, answer_tokens, vocab_size;
static uint64_t rng = 1;

static void must(rad_status status, const rad_error *err)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static void on_output(void *user, const req_output *outputs, uint32_t count)
{
    server *v = user;
    for (uint32_t i = 0; i < count; i++) {
        if (outputs[i].token >= 0 && !v->num_out) v->first = bench_now();
        if (outputs[i].token >= 0) v->out[v->num_out++] = outputs[i].token;
        v->cached = outputs[i].hits.cached;
        v->ended = outputs[i].finish != REQ_FINISH_NONE;
        if (outputs[i].finish == REQ_FINISH_ERROR) must(RAD_E_STATE, &outputs[i].req->error);
    }
}

static void say(text *t, uint32_t n)
{
    t->message = t->n;
    t->ids[t->n++] = TURN_TOKEN;
    while (n-- > 1) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        t->ids[t->n++] = (rad_token)(TURN_TOKEN + 1 + (rng >> 33) % (vocab_size - TURN_TOKEN - 1));
    }
}

static void open_answer(text *t)
{
    t->ids[t->n++] = TURN_TOKEN;
    for (uint32_t i = 1; i < OPENING; i++)
        t->ids[t->n++] = (rad_token)(TURN_TOKEN + i);
}

/* Its answer goes behind the text. */
static void ask(server *v, text *t)
{
    req r;
    rad_error err = {0};
    const req_params p = {.ids = t->ids,
                          .num_ids = t->n,
                          .max_new_tokens = answer_tokens,
                          .sampling = {.top_p = 1},
                          .ignore_eos = true};
    v->out = t->ids + t->n;
    v->num_out = 0;
    v->ended = false;
    v->started = bench_now();
    must(req_init(&r, NULL, &p, &err), &err);
    must(scheduler_add(v->s, &r, &err), &err);
    while (!v->ended)
        scheduler_step(v->s);
    req_fini(&r);
}

static uint64_t total[2];

/* The same prompt with the cache and without. */
static void row(server *with, server *without, const char *what, text *t)
{
    const uint32_t n = t->n;
    ask(without, t);
    t->n = n;
    ask(with, t);
    const uint32_t computed = n - with->cached;
    total[0] += computed;
    total[1] += n;
    printf("  %-12s %6u %9u %8.1f %9.1f\n", what, n, computed, 1e3 * (with->first - with->started),
           1e3 * (without->first - without->started));
    t->n = n + with->num_out;
}

static void head(const char *what)
{
    printf("  %-12s %6s %9s %8s %9s\n", what, "all", "computed", "ms", "ms of all");
    total[0] = total[1] = 0;
}

static void foot(void)
{
    printf("  %-12s %6llu %9llu, one in %.1f\n", "together", (unsigned long long)total[1],
           (unsigned long long)total[0], (double)total[1] / (double)total[0]);
}

static void copy_text(text *to, const text *from, uint32_t n)
{
    memcpy(to->ids, from->ids, n * sizeof *to->ids);
    to->n = n;
    to->message = from->message;
}

static void run_chat(server *with, server *without, text *t, text *other)
{
    char what[32];
    head("chat");
    say(t, 2 * message_tokens);
    uint32_t asked = 0;
    for (int turn = 1; turn <= TURNS; turn++) {
        say(t, message_tokens);
        open_answer(t);
        asked = t->n;
        snprintf(what, sizeof what, "turn %d", turn);
        row(with, without, what, t);
    }
    foot();
    head("last");
    copy_text(other, t, asked);
    row(with, without, "regenerated", other);
    copy_text(other, t, t->message);
    say(other, message_tokens);
    open_answer(other);
    row(with, without, "edited", other);
}

static void run_branches(server *with, server *without, text *t)
{
    char what[32];
    head("branches");
    t->n = 0;
    say(t, 8 * message_tokens);
    const uint32_t stem = t->n;
    for (int i = 1; i <= BRANCHES; i++) {
        t->n = stem;
        say(t, message_tokens);
        t->ids[stem + 1] = (rad_token)(TURN_TOKEN + i);
        open_answer(t);
        snprintf(what, sizeof what, "branch %d", i);
        row(with, without, what, t);
    }
    foot();
}

static scheduler *start(runner *model, uint32_t cache_kind, uint32_t context, server *v)
{
    rad_error err = {0};
    const scheduler_params p = {.runner = model,
                                .cache_kind = cache_kind,
                                .page_size = 1,
                                .max_total_tokens = 4ull * context,
                                .max_running_requests = 1,
                                .max_queued_requests = 1,
                                .chunked_prefill_size = 512,
                                .context_length = context,
                                .turn_token = TURN_TOKEN,
                                .on_output = on_output,
                                .user = v};
    must(scheduler_create(NULL, &p, &v->s, &err), &err);
    return v->s;
}

int main(int argc, char **argv)
{
    rad_error err = {0};
    gguf_file *file;
    runner *model;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: bench_states MODEL.gguf [tokens of a message]\n");
        return 2;
    }
    message_tokens = argc > 2 ? (uint32_t)atoi(argv[2]) : 96;
    if (message_tokens < 16 || message_tokens > 4096) {
        fprintf(stderr, "bench_states: a message has 16 to 4096 tokens\n");
        return 2;
    }
    answer_tokens = message_tokens / 4;
    const uint32_t context = 16 * (message_tokens + answer_tokens + OPENING);
    must(gguf_open(NULL, argv[1], &file, &err), &err);
    const model_runner_params params = {.dtype = RAD_BF16,
                                        .kv_dtype = RAD_BF16,
                                        .set_kv_dtype = true,
                                        .max_batch_tokens = 512 + 1,
                                        .max_batch_logits = 1,
                                        .context_length = context,
                                        .attn = attn_cpu(NULL)};
    must(model_runner_create(NULL, file, &params, &model, &err), &err);
    gguf_close(file);
    vocab_size = model->info.vocab_size;

    server with = {0}, without = {0};
    text t = {.ids = malloc(context * sizeof *t.ids)};
    text other = {.ids = malloc(context * sizeof *t.ids)};
    if (!t.ids || !other.ids) return 1;
    start(model, RAD_CACHE_RADIX, context, &with);
    start(model, RAD_CACHE_CHUNK, context, &without);
    printf("%s: %u layers with K/V, %zu bytes a token; %u recurrent ones, %zu bytes a state\n",
           argv[1], model->info.num_layers, runner_token_bytes(&model->info, RUNNER_ALL_LAYERS),
           model->info.state_layers, model->info.state_bytes);
    run_chat(&with, &without, &t, &other);
    run_branches(&with, &without, &t);
    free(t.ids);
    free(other.ids);
    scheduler_destroy(with.s);
    scheduler_destroy(without.s);
    runner_destroy(model);
    return 0;
}
