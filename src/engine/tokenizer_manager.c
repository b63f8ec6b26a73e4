/* tokenizer_manager.c - the thread that turns prompts into ids.
 *
 * It owns a job from submit until it hands it on: to the scheduler with its req made, or
 * straight to the detokenizer when there is nothing to schedule (an error, an abort that
 * came first). */
#include "base/json_look.h"
#include "engine/engine_impl.h"

#include <time.h>

enum { TREE_WAIT_MS = 1000 };

/* Who holds the memory is likely a parser that is about to let go, of this very request at times:
 * that is worth waiting a second for, others' prompts or not. */
static bool take_soon(memory_budget *budget, uint64_t bytes)
{
    for (int ms = 0; ms < TREE_WAIT_MS; ms++) {
        if (memory_budget_take(budget, bytes)) return true;
        if (bytes > budget->limit) return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

/* Its tree is built for the template and gone when that has run. */
static rad_status encode_json(const engine *e, const job_prompt *p, uint32_t most, token_buf *out,
                              rad_error *err)
{
    json_look look;
    json_look_at(&look, p->text, p->text_bytes);
    uint64_t tree = json_look_bytes(&look);
    if (!take_soon(e->params.request_memory, tree))
        return rad_fail(err, RAD_FULL, "no memory for this conversation now; try again soon");
    rad_status status =
        chat_template_encode_json(e->chat, p->text, p->text_bytes, true, most, out, err);
    memory_budget_give(e->params.request_memory, tree);
    return status;
}

/* The ids of a text or a conversation. Tokens written out in a raw text count as such,
 * so that a prompt may spell its model's format; inside messages they do not. */
static rad_status encode(const engine *e, const job_prompt *p, token_buf *out, rad_error *err)
{
    uint32_t most = e->info.context_length;
    rad_status status;
    if (p->is_text)
        status = tokenizer_encode(e->tok, p->text, p->text_bytes,
                                  TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_BOS, most, out, err);
    else if (p->is_chat_json)
        status = encode_json(e, p, most, out, err);
    else
        status = chat_template_encode(e->chat, p->messages, p->num_messages, true, most, out, err);
    if (status == RAD_E_LIMIT)
        return rad_fail(err, RAD_E_INVAL, "the prompt is longer than the context of %u tokens",
                        most);
    if (status == RAD_OK && !out->len) return rad_fail(err, RAD_E_INVAL, "the prompt is empty");
    if (status == RAD_OK && out->len > most)
        return rad_fail(err, RAD_E_INVAL, "the prompt has %u tokens, the context is %u tokens long",
                        out->len, most);
    return status;
}

static rad_status make_req(engine *e, engine_job *job, rad_error *err)
{
    job_prompt *p = job->prompt;
    token_buf ids = {0};
    rad_status status = RAD_OK;
    if (!p->ids) {
        status = encode(e, p, &ids, err);
        if (status == RAD_OK) job_prompt_keep_ids(p, ids.ids, ids.len);
    }
    job->params.ids = p->ids ? p->ids : ids.ids;
    job->params.num_ids = p->ids ? p->num_ids : ids.len;
    if (status == RAD_OK)
        status =
            engine_charge(e, job->params.num_ids * sizeof *job->params.ids, &job->charged, err);
    if (status == RAD_OK) status = req_init(&job->r, &e->env, &job->params, err);
    if (status == RAD_OK) {
        job->prompt_tokens = job->params.num_ids;
        /* A sentence that starts here drops SPM's dummy space; one that goes on keeps it. */
        bool at_start = job->prompt_tokens == 1 && tokenizer_is_control(e->tok, job->r.fill_ids[0]);
        detokenizer_init(&job->detok, e->tok, at_start, !job->keep_special);
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
