/* detokenizer_manager.c - the thread that turns ids into events.
 *
 * Text goes out as whole characters, and never a part of a stop string: what may be the
 * beginning of one stays in `pending` until it is decided.
 *
 *     pending   | text that can go | <|im_    |
 *                                  ^ stop_matcher_held bytes wait
 *
 * The scheduler is a few tokens ahead when a stop string is found here. It is told to
 * stop, and whatever it sampled after the match is dropped: so the answer is the same
 * however fast either thread was. The last event waits for the scheduler's own last word
 * in any case, since only then is the request in the tree. */
#include "engine/engine_impl.h"

#include <math.h>

/* Appends what the token adds to `pending`, and looks for a stop string in it. */
static rad_status take_text(engine_job *job, rad_token token, bool at_end)
{
    size_t before = job->pending.len;
    rad_status status = RAD_OK;
    if (token >= 0) status = detokenizer_push(&job->detok, token, &job->pending);
    if (status == RAD_OK && at_end) status = detokenizer_finish(&job->detok, &job->pending);
    if (status != RAD_OK || job->pending.len == before) return status;

    size_t end;
    const stop_string *stop =
        stop_matcher_feed(&job->stops, job->pending.data + before, job->pending.len - before, &end);
    if (!stop) return RAD_OK;
    job->stopped = true;
    job->matched_stop = stop->text;
    job->pending.len = before + end - (job->no_stop_trim ? 0 : stop->len);
    return RAD_OK;
}

/* A token that ended the request is counted, but its text is not part of the answer. */
static bool is_trimmed(const engine_job *job, const detok_message *m)
{
    return m->finish == REQ_FINISH_STOP && m->token == job->r.matched_token && !job->no_stop_trim;
}

/* True when the message's token belongs to the answer. */
static bool take_token(engine *e, engine_job *job, const detok_message *m)
{
    if (job->stopped || job->failed) return false;
    rad_token text_of = m->token >= 0 && !is_trimmed(job, m) ? m->token : -1;
    if (take_text(job, text_of, m->finish != REQ_FINISH_NONE) != RAD_OK) job->failed = true;
    if (m->token >= 0) job->completion_tokens = m->completion_tokens;
    if ((job->stopped || job->failed) && !m->finish)
        scheduler_cancel(e->scheduler, &job->r, REQ_FINISH_STOP);
    return m->token >= 0;
}

static void set_finish(engine_event *event, const engine_job *job, const detok_message *m)
{
    event->finish = ENGINE_FINISH_ERROR;
    if (job->stopped) {
        event->finish = ENGINE_FINISH_STOP;
        event->matched_stop = job->matched_stop;
    } else if (job->failed) {
        event->status = RAD_E_NOMEM;
        event->message = "no memory for the text";
    } else if (m->finish == REQ_FINISH_STOP) {
        event->finish = ENGINE_FINISH_STOP;
        event->matched_token = job->r.matched_token;
    } else if (m->finish == REQ_FINISH_LENGTH) {
        event->finish = ENGINE_FINISH_LENGTH;
    } else if (m->finish == REQ_FINISH_ABORT) {
        event->finish = ENGINE_FINISH_ABORT;
    } else if (job->early_status != RAD_OK) {
        event->status = job->early_status;
        event->message = job->error.text;
    } else {
        event->status = job->r.error.status;
        event->message = job->r.error.text;
    }
}

/* The sum becomes the mean. The request is ours again. */
static void set_hidden(engine_event *event, engine_job *job)
{
    req *r = &job->r;
    bool finite = true;
    if (!r->pooling || event->finish != ENGINE_FINISH_LENGTH) return;
    for (uint32_t d = 0; d < r->hidden_dim; d++) {
        r->hidden_sum[d] /= req_pooled(r);
        finite = finite && isfinite(r->hidden_sum[d]);
    }
    if (finite) {
        event->hidden = r->hidden_sum;
        event->num_hidden = r->hidden_dim;
        return;
    }
    event->finish = ENGINE_FINISH_ERROR;
    event->status = RAD_E_CORRUPT;
    event->message = "the model's hidden states are not numbers";
}

/* What was guessed of the answer, by whomever. */
static void set_drafts(const engine *e, engine_event *event, const engine_job *job)
{
    const req *r = &job->r;
    event->drafts = r->draft.counts;
    if (!r->prediction) return;
    event->prediction_tokens = prediction_tokens(r->prediction);
    event->accepted_prediction_tokens = prediction_accepted(
        &e->env, r->prediction, r->fill_ids + r->num_input, job->completion_tokens);
}

static void count_finish(engine *e, engine_finish finish)
{
    pthread_mutex_lock(&e->lock);
    if (finish == ENGINE_FINISH_ERROR)
        e->counts.num_failed++;
    else if (finish == ENGINE_FINISH_ABORT)
        e->counts.num_aborted++;
    else
        e->counts.num_finished++;
    pthread_mutex_unlock(&e->lock);
}

static void free_logprobs(engine *e, const detok_message *m)
{
    const sampling_params *p = &m->job->r.sampling;
    rad_free(&e->env, m->logprobs, req_logprobs_bytes(p, m->logprobs ? 1 : 0));
    rad_free(&e->env, m->prompt_logprobs, req_logprobs_bytes(p, m->num_prompt_logprobs));
}

/* A token is there: how long it took. By the scheduler's time, not ours: what waited here in a row
 * would seem to have come at once. */
static void count_token(engine *e, engine_job *job, uint64_t made_ns)
{
    latency_add(&e->latency, job->token_ns ? LATENCY_INTER_TOKEN : LATENCY_FIRST_TOKEN,
                made_ns - (job->token_ns ? job->token_ns : job->submitted_ns));
    job->token_ns = made_ns;
}

static void handle(engine *e, const detok_message *m)
{
    engine_job *job = m->job;
    bool started = job->early_status == RAD_OK && job->detok.tok;
    bool has_token = started && take_token(e, job, m);
    if (!m->finish && !has_token && !m->num_prompt_logprobs) { /* after the answer's end */
        free_logprobs(e, m);
        return;
    }

    if (has_token) count_token(e, job, m->made_ns);
    size_t held = m->finish || job->stopped ? 0 : stop_matcher_held(&job->stops);
    size_t ready = job->pending.len > held ? job->pending.len - held : 0;
    engine_event event = {.id = job->id,
                          .text = ready ? job->pending.data : "",
                          .text_len = ready,
                          .ids = has_token ? &m->token : NULL,
                          .num_ids = has_token,
                          .logprobs = has_token ? m->logprobs : NULL,
                          .prompt_logprobs = m->prompt_logprobs,
                          .num_prompt_logprobs = m->num_prompt_logprobs,
                          .prompt_tokens = job->prompt_tokens,
                          .completion_tokens = job->completion_tokens,
                          .hits = m->hits,
                          .admitted_ns = job->admitted_ns,
                          /* Final since before the first output. */
                          .why = m->finish || has_token ? &job->r.why : NULL,
                          .matched_token = -1,
                          .prompt_tail = job->prompt_tail,
                          .prompt_tail_len = job->prompt_tail_len};
    if (m->finish) {
        set_finish(&event, job, m);
        set_hidden(&event, job);
        if (started) set_drafts(e, &event, job);
        const uint64_t taken_ns = e->env.now_ns(e->env.user) - job->submitted_ns;
        event.e2e_latency_s = (double)taken_ns * 1e-9;
        if (event.finish == ENGINE_FINISH_STOP || event.finish == ENGINE_FINISH_LENGTH)
            latency_add(&e->latency, LATENCY_END_TO_END, taken_ns);
        count_finish(e, event.finish);
        engine_forget_job(e, job);
    }
    job->on_event(job->user, &event);
    free_logprobs(e, m);
    if (m->finish) {
        job_destroy(e, job);
        return;
    }
    if (ready) {
        job->pending.len -= ready;
        memmove(job->pending.data, job->pending.data + ready, job->pending.len);
    }
}

void *detokenizer_manager(void *arg)
{
    engine *e = arg;
    detok_message messages[64];
    uint32_t n;
    while ((n = message_ring_pop(&e->to_detokenizer, messages, RAD_COUNT(messages), RING_FOR_EVER)))
        for (uint32_t i = 0; i < n; i++)
            handle(e, &messages[i]);
    return NULL;
}
