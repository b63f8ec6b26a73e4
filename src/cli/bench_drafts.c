/* bench_drafts.c - what guessed tokens do to the pace of answers, beside the same answers without.
 *
 * One engine, drafts on and off in turn; who is first changes from round to round. The model
 * computes whatever it is, random weights or not, and the answers are told (engine_request.told):
 * how often a guess is right is then that of the text (bench_texts.h), and what a row costs is the
 * model's.
 *
 *     file      an answer that repeats a file of its prompt with edits
 *     foretold  the same, and the file is the request's prediction
 *     calls     calls of tools, whose schema the answer is held to
 *     again     a prompt that was asked before, at temperature 0
 *     alike     another prompt of the namespace got the file before its edits
 *     talk      prose
 *     own       what the model itself says, at temperature 0
 *     never     a text in which nothing ever comes back
 *
 * Two runs of the same differ by some percent, whatever is on: what guessing itself takes is told
 * apart, as a share of the steps' time.
 *
 * Prompts are computed before a run. Its time is what its steps took: the model, choosing tokens,
 * tree and scheduling, handing over; when others hear of it depends on who else wants this
 * processor. Every request is in a namespace of its own: what the tree knows is what a case put
 * there. */
#include "cli/bench.h"
#include "cli/bench_texts.h"

#include "base/mix64.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    ALONE_TOKENS = 192, /* of an answer */
    FULL_TOKENS = 32,   /* where many are at one time */
    MANY = 32,
    LEAST_TOKENS = 16,
    MOST_RUNS = 101,
    ROUNDS = 7,
    FUNCTIONS = 4, /* of a file */
    CALLS = 12
};

/* What is run in a case. */
typedef struct drafts_form {
    uint32_t requests; /* at one time */
    uint32_t tokens;   /* of each answer */
    uint32_t rounds;
    uint32_t functions;
} drafts_form;

#define CASE(id, name) id,
typedef enum draft_case { BENCH_DRAFTS_CASES(CASE, CASE) NUM_CASES } draft_case;
#undef CASE
#define NAME(id, name) name,
static const char *const names[NUM_CASES] = {BENCH_DRAFTS_CASES(NAME, NAME)};
#undef NAME

static const char EARLIER_PROMPT[] = "Please write that file.";

/* One request's prompt and answer. */
typedef struct telling {
    text_buf prompt, prediction;
    token_buf ids, answer; /* ids: a prompt that is no text */
    token_buf earlier;     /* what EARLIER_PROMPT got; none: it was not asked */
    char salt[32];
    engine_form form;
} telling;

typedef struct drafts_run {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    uint32_t open;
    double seconds; /* of its steps, */
    double guess;   /* and of these, asking for guesses */
    uint64_t tokens;
    uint64_t digest;
    uint64_t steps, proposed, accepted;
    rad_status status;
    rad_error err;
} drafts_run;

typedef struct drafts_call {
    drafts_run *run;
    uint64_t digest;
} drafts_call;

static void on_event(void *user, const engine_event *event)
{
    drafts_call *c = user;
    drafts_run *r = c->run;
    pthread_mutex_lock(&r->lock);
    r->tokens += event->num_ids;
    for (uint32_t i = 0; i < event->num_ids; i++)
        c->digest = mix64(c->digest + (uint32_t)event->ids[i]);
    if (event->finish) {
        r->digest += mix64(c->digest);
        r->steps += event->drafts.steps;
        r->proposed += draft_counts_sum(event->drafts.proposed);
        r->accepted += draft_counts_sum(event->drafts.accepted);
        if (event->finish != ENGINE_FINISH_LENGTH && r->status == RAD_OK)
            r->status = rad_fail(&r->err, event->status ? event->status : RAD_E_STATE,
                                 "drafts: an answer ended early: %s",
                                 event->message ? event->message : "no reason given");
        r->open--;
        pthread_cond_signal(&r->ended);
    }
    pthread_mutex_unlock(&r->lock);
}

/* Of all steps so far; *guess: what asking for guesses took of it. */
static double busy_seconds(engine *e, double *guess)
{
    engine_stats now;
    engine_get_stats(e, &now);
    const scheduler_stats *s = &now.sched;
    *guess = (double)s->drafts.guess_ns * 1e-9;
    return (double)(s->forward_ns + s->sample_ns + s->schedule_ns + s->output_ns) * 1e-9;
}

/* All answers, at one time; or, `earlier`, those of other prompts. */
static rad_status run_once(bench_plan *plan, telling *tellings, uint32_t count, draft_case which,
                           bool earlier, uint32_t num_tokens, drafts_run *r, rad_error *err)
{
    engine *e = plan->engine.e;
    *r = (drafts_run){.open = count};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->ended, NULL);
    drafts_call calls[MANY];
    rad_status status = RAD_OK;
    uint32_t submitted = 0;
    double guess_before;
    const double before = busy_seconds(e, &guess_before);
    engine_pause(e);
    for (; submitted < count && status == RAD_OK; submitted++) {
        telling *t = &tellings[submitted];
        const token_buf *answer = earlier ? &t->earlier : &t->answer;
        uint64_t id;
        calls[submitted] = (drafts_call){.run = r};
        const engine_request q = {.text = earlier ? EARLIER_PROMPT : t->prompt.data,
                                  .text_len = earlier ? strlen(EARLIER_PROMPT) : t->prompt.len,
                                  .ids = t->ids.ids,
                                  .num_ids = t->ids.len,
                                  .sampling = {.top_p = 1},
                                  .has_seed = true,
                                  .ignore_eos = true,
                                  .max_new_tokens = num_tokens,
                                  .cache_salt = t->salt,
                                  .form = which == CALLED ? &t->form : NULL,
                                  .prediction = t->prediction.len ? t->prediction.data : NULL,
                                  .prediction_len = t->prediction.len,
                                  .told = answer->len ? answer->ids : NULL,
                                  .num_told = answer->len,
                                  .on_event = on_event,
                                  .user = &calls[submitted]};
        status = engine_submit(e, &q, &id, err);
        if (status != RAD_OK) break;
    }
    engine_continue(e);
    pthread_mutex_lock(&r->lock);
    r->open -= count - submitted;
    while (r->open)
        pthread_cond_wait(&r->ended, &r->lock);
    pthread_mutex_unlock(&r->lock);
    r->seconds = busy_seconds(e, &r->guess) - before;
    r->guess -= guess_before;
    pthread_cond_destroy(&r->ended);
    pthread_mutex_destroy(&r->lock);
    if (status == RAD_OK && r->status != RAD_OK) {
        *err = r->err;
        status = r->status;
    }
    return status;
}

/* ---- what is asked and told ---- */

static void telling_fini(telling *t)
{
    text_buf_fini(&t->prompt);
    text_buf_fini(&t->prediction);
    token_buf_fini(&t->ids);
    token_buf_fini(&t->answer);
    token_buf_fini(&t->earlier);
    *t = (telling){0};
}

static rad_status put_words(text_buf *out, const char *words)
{
    return text_buf_append(out, words, strlen(words));
}

/* Ids of words. An answer that is too short is told again from its beginning. */
static rad_status tell(const engine *e, const text_buf *words, uint32_t num_tokens, token_buf *out,
                       rad_error *err)
{
    rad_status status = tokenizer_encode(engine_tokenizer(e), words->data, words->len,
                                         TOKENIZER_NO_PREFIX, 0, out, err);
    if (status == RAD_OK && !out->len) status = rad_fail(err, RAD_E_INVAL, "drafts: no tokens");
    for (uint32_t i = 0; status == RAD_OK && out->len < num_tokens; i++)
        status = token_buf_push(out, out->ids[i]);
    if (status == RAD_OK) out->len = num_tokens;
    return status;
}

/* Each token of the vocabulary once, but for control tokens, from the `skip`th on; and anew where
 * it has too few. */
static rad_status tell_anything(const engine *e, uint64_t seed, uint32_t skip, uint32_t num_tokens,
                                token_buf *out)
{
    const tokenizer *tok = engine_tokenizer(e);
    const uint32_t vocab = engine_get_info(e)->vocab_size;
    rad_status status = RAD_OK;
    /* Odd steps of a power of two visit all places once. */
    uint32_t places = 1;
    while (places < vocab)
        places *= 2;
    uint32_t plain = 0;
    for (uint32_t id = 0; id < vocab; id++)
        plain += !tokenizer_is_control(tok, (rad_token)id);
    if (!plain) return RAD_E_INVAL;
    for (uint64_t at = mix64(seed); status == RAD_OK && out->len < num_tokens;) {
        at += mix64(seed + 1) | 1;
        const rad_token id = (rad_token)(at % places);
        if ((uint32_t)id >= vocab || tokenizer_is_control(tok, id)) continue;
        if (skip)
            skip--;
        else
            status = token_buf_push(out, id);
    }
    return status;
}

static rad_status telling_make(const engine *e, draft_case which, uint64_t seed,
                               const drafts_form *f, telling *t, rad_error *err)
{
    text_buf answer = {0};
    rad_status status = RAD_OK;
    *t = (telling){0};
    snprintf(t->salt, sizeof t->salt, "drafts-%llu", (unsigned long long)seed);
    switch (which) {
    case FILE_AGAIN:
    case FORETOLD:
        status = put_words(&t->prompt, "Use better names, and answer with the whole file.\n\n");
        if (!status) status = bench_text_file(&t->prompt, seed, f->functions, false);
        if (!status && which == FORETOLD)
            status = bench_text_file(&t->prediction, seed, f->functions, false);
        if (!status) status = bench_text_file(&answer, seed, f->functions, true);
        break;
    case ALIKE:
        status = put_words(&t->prompt, "Use better names in that file.");
        if (!status) status = bench_text_file(&answer, seed, f->functions, false);
        if (!status) status = tell(e, &answer, f->tokens, &t->earlier, err);
        answer.len = 0;
        if (!status) status = bench_text_file(&answer, seed, f->functions, true);
        break;
    case CALLED:
        status = put_words(&t->prompt, "What is the weather there, and may I have a table?\n");
        if (!status) status = bench_text_calls(&answer, seed, CALLS);
        t->form = (engine_form){.spec = {.kind = GRAMMAR_JSON_SCHEMA,
                                         .text = bench_text_calls_schema(),
                                         .len = strlen(bench_text_calls_schema())},
                                .name = "json_schema"};
        break;
    case AGAIN:
    case TALK:
    case OWN:
        status = put_words(&t->prompt, bench_text_question(seed));
        if (!status && which != OWN) status = bench_text_talk(&answer, seed);
        break;
    default:
        status = tell_anything(e, seed, 0, 32, &t->ids);
        if (!status) status = tell_anything(e, seed, 32, f->tokens, &t->answer);
        break;
    }
    if (status == RAD_OK && answer.len) status = tell(e, &answer, f->tokens, &t->answer, err);
    if (status == RAD_E_NOMEM) rad_fail(err, status, "drafts: no memory");
    if (status == RAD_E_INVAL) rad_fail(err, status, "drafts: the vocabulary has no text");
    text_buf_fini(&answer);
    return status;
}

/* ---- cases ---- */

typedef struct drafts_result {
    double rate[2];       /* tokens a second without drafts and with, medians */
    double ratio[3];      /* with / without: least, median, most */
    double rows, right;   /* drafts a step of a request, and of them the right ones */
    double tokens_a_step; /* of a request */
    double guess;         /* what asking took of the steps' time */
} drafts_result;

/* Drafts on or off, everything before it as the case has it. */
static rad_status run_turn(bench_plan *plan, draft_case which, uint64_t seed, const drafts_form *f,
                           bool on, drafts_run *r, rad_error *err)
{
    telling tellings[MANY];
    uint32_t made = 0;
    rad_status status = RAD_OK;
    for (; made < f->requests && status == RAD_OK; made++) {
        status = telling_make(plan->engine.e, which, seed + made, f, &tellings[made], err);
        /* A name of its own for each turn: the other one's answer is not in the tree. */
        snprintf(tellings[made].salt, sizeof tellings[made].salt, "drafts-%d-%llu", on,
                 (unsigned long long)(seed + made));
    }
    engine_set_drafts(plan->engine.e, on);
    /* The prompts are cached then, and all begin in one step. */
    const uint32_t before = which == AGAIN ? f->tokens : 1;
    if (status == RAD_OK && which == ALIKE)
        status = run_once(plan, tellings, f->requests, which, true, f->tokens, r, err);
    if (status == RAD_OK)
        status = run_once(plan, tellings, f->requests, which, false, before, r, err);
    if (status == RAD_OK)
        status = run_once(plan, tellings, f->requests, which, false, f->tokens, r, err);
    while (made)
        telling_fini(&tellings[--made]);
    return status;
}

static rad_status run_case(bench_plan *plan, draft_case which, const drafts_form *f,
                           drafts_result *out, rad_error *err)
{
    const uint32_t rounds = f->rounds;
    double rates[2][MOST_RUNS], ratios[MOST_RUNS];
    uint64_t proposed = 0, accepted = 0, steps = 0;
    double guess = 0, seconds = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        uint64_t digests[2];
        for (uint32_t turn = 0; turn < 2; turn++) {
            const bool on = (turn + round) % 2;
            drafts_run r;
            const uint64_t seed = ((uint64_t)which * MOST_RUNS + round) * MANY * 2;
            rad_status status = run_turn(plan, which, seed, f, on, &r, err);
            if (status != RAD_OK) return status;
            rates[on][round] = (double)r.tokens / r.seconds;
            digests[on] = r.digest;
            if (!on) continue;
            proposed += r.proposed;
            accepted += r.accepted;
            steps += r.steps;
            guess += r.guess;
            seconds += r.seconds;
        }
        if (digests[0] != digests[1])
            return rad_fail(err, RAD_E_CORRUPT, "%s: the answers differ between drafts on and off",
                            names[which]);
        ratios[round] = rates[1][round] / rates[0][round];
    }
    for (int on = 0; on < 2; on++) {
        sort_seconds(rates[on], rounds);
        out->rate[on] = rates[on][rounds / 2];
    }
    sort_seconds(ratios, rounds);
    out->ratio[0] = ratios[0];
    out->ratio[1] = ratios[rounds / 2];
    out->ratio[2] = ratios[rounds - 1];
    out->rows = steps ? (double)proposed / (double)steps : 0;
    out->right = proposed ? (double)accepted / (double)proposed : 0;
    out->guess = guess / seconds;
    out->tokens_a_step = steps ? (double)(steps + accepted) / (double)steps : 0;
    return RAD_OK;
}

static void print_result(const bench_plan *plan, draft_case which, const drafts_form *f,
                         const drafts_result *r)
{
    if (plan->json)
        printf("{\"bench\":\"drafts\",\"case\":\"%s\",\"requests\":%u,\"tokens\":%u,\"rounds\":%u,"
               "\"off_tokens_per_s\":%.2f,\"on_tokens_per_s\":%.2f,\"ratio\":%.4f,\"least\":%.4f,"
               "\"most\":%.4f,\"drafts_a_step\":%.3f,\"right\":%.4f,\"tokens_a_step\":%.3f,"
               "\"guess_share\":%.5f}\n",
               names[which], f->requests, f->tokens, f->rounds, r->rate[0], r->rate[1], r->ratio[1],
               r->ratio[0], r->ratio[2], r->rows, r->right, r->tokens_a_step, r->guess);
    else
        printf(
            "  %-8s %2u at a time  %8.1f -> %8.1f tokens/s  %5.2fx (%.2f to %.2f)   %5.2f drafts "
            "a step, %3.0f %% right, %5.2f tokens a step, %.2f %% to ask\n",
            names[which], f->requests, r->rate[0], r->rate[1], r->ratio[1], r->ratio[0],
            r->ratio[2], r->rows, 100 * r->right, r->tokens_a_step, 100 * r->guess);
    fflush(stdout);
}

static rad_status run_cases(bench_plan *plan, const drafts_form *f, rad_error *err)
{
    drafts_result r;
    rad_status status = RAD_OK;
    for (int which = 0; which < NUM_CASES && status == RAD_OK; which++) {
        if (!bench_is_chosen(plan, names[which])) continue;
        if (!plan->quiet) fprintf(stderr, "\033[K%s ...\r", names[which]);
        status = run_case(plan, (draft_case)which, f, &r, err);
        if (!plan->quiet) fputs("\033[K", stderr);
        if (status == RAD_OK) print_result(plan, (draft_case)which, f, &r);
    }
    return status;
}

bool bench_drafts_has(const char *name)
{
    for (int i = 0; i < NUM_CASES; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

/* Of the longest prompts, a file's; UINT32_MAX: no memory. */
static uint32_t prompt_tokens(const engine *e, uint32_t functions)
{
    rad_error err;
    const drafts_form form = {.functions = functions, .tokens = LEAST_TOKENS};
    uint32_t longest = 0;
    for (uint64_t seed = 0; seed < 16 && longest != UINT32_MAX; seed++) {
        telling t;
        rad_status status = telling_make(e, FILE_AGAIN, seed, &form, &t, &err);
        if (status == RAD_OK)
            status = tokenizer_encode(engine_tokenizer(e), t.prompt.data, t.prompt.len, 0, 0,
                                      &t.ids, &err);
        longest = status == RAD_OK ? RAD_MAX(longest, t.ids.len) : UINT32_MAX;
        telling_fini(&t);
    }
    return longest == UINT32_MAX ? longest : longest + longest / 8; /* others are longer */
}

rad_status bench_drafts(bench_plan *plan, rad_error *err)
{
    bench_engine_free(plan); /* the others' has no drafts */
    plan->with_drafts = true;
    rad_status status = bench_engine_make(plan, 0, err);
    plan->with_drafts = false;
    if (status != RAD_OK) return status;
    const engine_info *info = engine_get_info(plan->engine.e);
    const uint32_t most = (uint32_t)RAD_MIN((uint64_t)info->context_length, info->max_total_tokens);
    const uint32_t short_prompt = prompt_tokens(plan->engine.e, 1);
    uint32_t prompt;
    drafts_form alone = {.requests = 1, .rounds = ROUNDS, .functions = FUNCTIONS};
    drafts_form full = {.requests = MANY, .tokens = FULL_TOKENS, .rounds = ROUNDS, .functions = 1};
    if (plan->pairs_given) alone.rounds = full.rounds = plan->pairs;
    while ((prompt = prompt_tokens(plan->engine.e, alone.functions)) > most / 2 &&
           alone.functions > 1)
        alone.functions--;
    if (most < short_prompt || most - short_prompt < LEAST_TOKENS) {
        status = rad_fail(err, RAD_E_INVAL,
                          "drafts: prompts of %u tokens and answers of %d are the least that is "
                          "measured; the context has %u, the pool %llu",
                          short_prompt, LEAST_TOKENS, info->context_length,
                          (unsigned long long)info->max_total_tokens);
        bench_engine_free(plan);
        return status;
    }
    alone.tokens = RAD_MIN(most - prompt, (uint32_t)ALONE_TOKENS);
    if (!plan->json)
        printf("%s, %s, %s, %s: %s, up to %u at one time\n", info->model_name, info->dtype,
               info->attn_backend, info->computes_on, plan->draft_sources, plan->draft_tokens);
    drafts_run warm;
    status = run_turn(plan, OWN, 1, &alone, false, &warm, err);
    if (status == RAD_OK) status = run_cases(plan, &alone, err);
    if (status == RAD_OK && info->max_running_requests >= MANY &&
        info->context_length >= short_prompt + FULL_TOKENS &&
        info->max_total_tokens >= (uint64_t)MANY * (short_prompt + FULL_TOKENS))
        status = run_cases(plan, &full, err);
    bench_engine_free(plan);
    return status;
}
