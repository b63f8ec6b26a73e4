/* tokenizer_manager.c - the thread that turns prompts into ids.
 *
 * It owns a job from submit until it hands it on: to the scheduler with its req made, or
 * straight to the detokenizer when there is nothing to schedule (an error, an abort that
 * came first). */
#include "engine/engine_impl.h"

/* The event that refuses it says how long it is. */
static rad_status check_length(const engine *e, engine_job *job, uint32_t len, rad_error *err)
{
    if (len <= e->info.context_length) return RAD_OK;
    job->prompt_tokens = len;
    return rad_fail(err, RAD_E_LIMIT, "the prompt has %u tokens, the context is %u tokens long",
                    len, e->info.context_length);
}

/* The last tokens as text, as many as there is room for. */
static void keep_tail(const engine *e, engine_job *job)
{
    char text[TOKENIZER_MAX_PIECE];
    size_t at = sizeof job->prompt_tail;
    for (uint32_t i = job->params.num_ids; i-- > 0;) {
        size_t len = tokenizer_piece(e->tok, job->params.ids[i], true, text, sizeof text);
        if (len > at) break;
        at -= len;
        memcpy(job->prompt_tail + at, text, len);
    }
    job->prompt_tail_len = (uint8_t)(sizeof job->prompt_tail - at);
    memmove(job->prompt_tail, job->prompt_tail + at, job->prompt_tail_len);
}

static rad_status make_rule(engine *e, engine_job *job, rad_error *err)
{
    keep_tail(e, job);
    rad_status status = answer_rule_create(e, job, &job->rule, err);
    if (!job->wants_prompt_tail) job->prompt_tail_len = 0;
    job->params.rule = job->rule;
    return status;
}

static rad_status make_req(engine *e, engine_job *job, rad_error *err)
{
    job_prompt *p = job->prompt;
    token_buf ids = {0};
    rad_status status = RAD_OK;
    if (!p->ids) {
        status = engine_encode_prompt(e, p, &ids, err);
        if (status == RAD_OK) status = check_length(e, job, ids.len, err);
        if (status == RAD_OK) job_prompt_keep_ids(p, ids.ids, ids.len);
    }
    job->params.ids = p->ids ? p->ids : ids.ids;
    job->params.num_ids = p->ids ? p->num_ids : ids.len;
    if (status == RAD_OK)
        status =
            engine_charge(e, job->params.num_ids * sizeof *job->params.ids, &job->charged, err);
    if (status == RAD_OK && job->form) status = make_rule(e, job, err);
    if (status == RAD_OK && job->prediction) {
        status = job_prediction_encode(job->prediction, p->is_text, err);
        job->params.prediction = job->prediction->ids;
    }
    if (status == RAD_OK) status = req_init(&job->r, &e->env, &job->params, err);
    if (status == RAD_OK) {
        job->prompt_tokens = job->params.num_ids;
        /* A sentence that starts here drops SPM's dummy space; one that goes on keeps it. */
        bool at_start = job->prompt_tokens == 1 && tokenizer_is_control(e->tok, job->r.fill_ids[0]);
        detokenizer_init(&job->detok, e->tok, at_start, !job->keep_special);
        detokenizer_keep(&job->detok, job->keep_ids, job->num_keep_ids);
        if (job->wants_prompt_tail) keep_tail(e, job);
    }
    token_buf_fini(&ids);
    return status;
}

static bool is_aborted(engine *e, const engine_job *job)
{
    pthread_mutex_lock(&e->lock);
    bool aborted = job->aborted;
    pthread_mutex_unlock(&e->lock);
    return aborted;
}

static void handle(engine *e, engine_job *job)
{
    bool aborted = is_aborted(e, job); /* nobody waits for these ids any more */
    if (!aborted) job->early_status = make_req(e, job, &job->error);
    job->error.status = job->early_status;
    job_free_prompt(e, job);

    pthread_mutex_lock(&e->lock);
    aborted = aborted || job->aborted;
    job->req_ready = !aborted && job->early_status == RAD_OK;
    pthread_mutex_unlock(&e->lock);

    if (job->early_status == RAD_OK && !aborted) {
        sched_message message = {.job = job};
        message_ring_push(&e->to_scheduler, &message, 1);
        return;
    }
    detok_message message = {
        .job = job, .token = -1, .finish = aborted ? REQ_FINISH_ABORT : REQ_FINISH_ERROR};
    message_ring_push(&e->to_detokenizer, &message, 1);
}

void *tokenizer_manager(void *arg)
{
    engine *e = arg;
    engine_job *job;
    while (message_ring_pop(&e->to_tokenizer, &job, 1, RING_FOR_EVER)) {
        sched_message go_on = {0};
        if (job)
            handle(e, job);
        else /* behind all jobs that came before it */
            message_ring_push(&e->to_scheduler, &go_on, 1);
    }
    return NULL;
}
