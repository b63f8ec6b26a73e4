/* batch_result.c - what a forward pass means for its requests.
 *
 *     forward ok -> committed_len = seq_len -> more of the prompt?  publish the chunk
 *                                           -> append              finished? release,
 *                                                                  then output
 *                                                                  else output
 *              -> logprobs of the chunk go out with either of them
 *
 * A request with drafts says more than one token: draft_verify.c.
 *
 * Behind a publication hang_saves gives the tree the snapshots of recurrent states that the step
 * left.
 *
 * Order is the point here. Committed before published: the tree never holds a position
 * whose K/V may not be written. Released before the last output: whoever sees a request
 * end can send the next turn and will find this one in the tree. */
#include "sched/draft_plan.h"

#include <radish/retention.h>

/* What the request asked for of what it leaves in the tree. A budget that is used up keeps less,
 * and who asked can see how much is pinned (scheduler_stats). */
static void keep_longer(scheduler *s, req *r, uint32_t num_tokens)
{
    rad_key key = req_key(r, num_tokens), pinned = key;
    if (!num_tokens) return;
    if (r->pin_tokens) pinned.num_tokens = RAD_MIN(pinned.num_tokens, r->pin_tokens);
    if (r->pin_ns) {
        (void)rad_cache_pin_prefix(s->pools.tree_cache, &pinned, r->pin_ns, NULL);
        CACHE_TAP(&s->pools.tap, TAP_PIN, r, pinned.num_tokens, .asked = r->pin_ns);
    }
    if (r->retention_priority) {
        (void)rad_cache_retain_prefix(s->pools.tree_cache, &key, r->retention_priority,
                                      r->retention_idle_ns, NULL);
        CACHE_TAP(&s->pools.tap, TAP_RETAIN, r, num_tokens);
    }
}

/* Of a request: those of the batch's state_saves. */
typedef struct step_saves {
    uint32_t first, end;
} step_saves;

/* ---- the one exit ---- */

/* False: it holds nothing, or something went wrong. */
static bool give_back_kv(scheduler *s, req *r, bool is_insert)
{
    draft_release(s, r);
    if (!r->kv.row) return false;
    rad_error err;
    /* What is told of it, read before the call takes the record: its row, its lock and its states
     * are the cache's or nobody's then. A record that is refused is given up as well, and what it
     * held is lost: nothing here could set it right, and the pools' check names the pages. */
    const uint32_t committed = r->kv.committed_len;
    const uint32_t state_len = r->kv.state ? r->kv.state_len : 0;
    const uint32_t spare_len = r->kv.spare_state ? r->kv.spare_len : 0;
    rad_status status = rad_cache_finished_req(s->pools.tree_cache, &r->kv, is_insert, &err);
    memset(&r->kv, 0, sizeof r->kv);
    CACHE_TAP(&s->pools.tap, TAP_FINISHED, r, committed, status, is_insert, 0, state_len,
              spare_len);
    if (status >= 0) return true;
    s->stats.kv_errors++;
    rad_log(&s->env, RAD_LOG_ERROR, "scheduler: releasing a request: %s", err.text);
    return false;
}

void req_release_kv(scheduler *s, req *r, bool is_insert)
{
    uint32_t computed = r->kv.committed_len - r->kv.committed_len % s->pools.page_size;
    if (!give_back_kv(s, r, is_insert) || !is_insert) return;
    wait_queue_published(&s->waiting, r, computed);
    keep_longer(s, r, computed);
}

void req_put_back_kv(scheduler *s, req *r)
{
    /* A turn that began with its session's own record is published from the start. */
    (void)give_back_kv(s, r, r->kv.turn && r->kv.published);
}

void release_window(scheduler *s, req *r, rad_req_kv *kv)
{
    rad_error err;
    uint32_t upto;
    const rad_status status =
        window_release(&s->pools.window, s->pools.tree_cache, kv, &upto, &err);
    if (r && upto)
        CACHE_TAP(&s->pools.tap, TAP_WINDOW, r, kv->committed_len, status, .asked = upto);
    if (status >= 0) return;
    s->stats.kv_errors++;
    rad_log(&s->env, RAD_LOG_ERROR, "scheduler: giving back what a window has passed: %s",
            err.text);
}

/* The snapshots that this step's saves [first, end) have go into the tree, where r's path is. */
static void hang_saves(scheduler *s, req *r, step_saves saves)
{
    schedule_batch *b = &s->batch;
    for (uint32_t i = saves.first; i < saves.end; i++) {
        forward_state_save *save = &b->state_saves[i];
        uint32_t depth = b->extend_prefix_lens[save->req] + save->tokens;
        if (!save->state || depth > r->kv.protected_len) continue;
        rad_status status =
            rad_cache_put_state(s->pools.tree_cache, r->kv.lock.node, depth, save->state, NULL);
        CACHE_TAP(&s->pools.tap, TAP_PUT_STATE, r, 0, status, .asked = depth);
        if (status == RAD_OK) save->state = 0;
    }
}

void remove_running(scheduler *s, req *r)
{
    for (uint32_t i = 0; i < s->num_running; i++) {
        if (s->running[i] != r) continue;
        memmove(&s->running[i], &s->running[i + 1], (--s->num_running - i) * sizeof *s->running);
        return;
    }
}

void flush_outputs(scheduler *s)
{
    if (s->num_outputs) s->params.on_output(s->params.user, s->outputs, s->num_outputs);
    s->num_outputs = 0;
}

void emit_output(scheduler *s, req *r, rad_token token)
{
    if (s->num_outputs == SCHEDULER_OUTPUTS) flush_outputs(s);
    s->outputs[s->num_outputs++] = (req_output){.req = r,
                                                .token = token,
                                                .completion_tokens = r->num_output,
                                                .hits = r->hits,
                                                .finish = r->finish,
                                                .logprobs = r->logprobs,
                                                .prompt_logprobs = r->new_prompt_logprobs,
                                                .num_prompt_logprobs = r->num_prompt_logprobs};
    r->logprobs = r->new_prompt_logprobs = NULL;
    r->num_prompt_logprobs = 0;
}

void finish_req(scheduler *s, req *r, req_finish finish, rad_token token, bool is_insert)
{
    r->finish = finish;
    req_release_kv(s, r, is_insert);
    tiers_leave(s, r);
    wait_queue_remove(&s->waiting, r);
    verify_submit(&s->verify, r, finish != REQ_FINISH_ERROR);
    remove_running(s, r);
    r->state = REQ_FINISHED;
    CACHE_TAP(&s->pools.tap, TAP_LEAVE, r);
    if (finish == REQ_FINISH_ERROR)
        s->stats.num_failed++;
    else if (finish == REQ_FINISH_ABORT)
        s->stats.num_aborted++;
    else
        s->stats.num_finished++;
    emit_output(s, r, token);
}

/* ---- results ---- */

/* With the snapshots that the step left of it. RAD_FULL (the tree's metadata is at its limit) is
 * fine: the request keeps its pages for itself. False: the request has been failed. */
static bool publish(scheduler *s, req *r, bool chunked, step_saves saves)
{
    uint32_t from = r->kv.protected_len;
    rad_status status =
        rad_cache_unfinished_req(s->pools.tree_cache, &r->kv, chunked, &r->error);
    CACHE_TAP(&s->pools.tap, TAP_UNFINISHED, r, r->kv.committed_len, status, chunked,
              r->kv.protected_len, r->kv.state ? r->kv.state_len : 0,
              r->kv.spare_state ? r->kv.spare_len : 0);
    if (status >= 0) {
        window_row_changed(&s->pools.window, r->kv.row, from);
        hang_saves(s, r, saves);
        wait_queue_published(&s->waiting, r, r->kv.protected_len);
        if (!chunked) keep_longer(s, r, r->kv.protected_len);
        return true;
    }
    s->stats.kv_errors++;
    rad_log(&s->env, RAD_LOG_ERROR, "scheduler: publishing a prefix: %s", r->error.text);
    finish_req(s, r, REQ_FINISH_ERROR, -1, false);
    return false;
}

/* A prompt that ends with its request: the exit publishes it, and the snapshots need its path. */
static bool publish_saves(scheduler *s, req *r, step_saves saves)
{
    return saves.first == saves.end || publish(s, r, true, saves);
}

bool is_end_token(const scheduler *s, rad_token token)
{
    return s->params.is_end_token && s->params.is_end_token(s->params.user, token);
}

/* There is more of fill_ids. */
static void process_chunk(scheduler *s, req *r, step_saves saves)
{
    if (publish(s, r, true, saves) && r->num_prompt_logprobs) emit_output(s, r, -1);
}

bool say_token(scheduler *s, req *r, uint32_t row, const float *logits, rad_token *token)
{
    if (verify_notes(&s->verify, r))
        verify_note(&s->verify, r, logits, s->params.runner->info.vocab_size);
    *token = accept_token(s, r, row, logits);
    if (*token < 0) return false;
    if (req_append(r, *token) != RAD_OK) {
        rad_fail(&r->error, RAD_E_NOMEM, "no memory for more than %u tokens", req_num_fill(r));
        return false;
    }
    s->stats.generated_tokens++;
    req_check_finished(r, is_end_token(s, *token));
    return true;
}

/* All of fill_ids is computed: the next token, if one is wanted. `row` and `logits` as accept_token
 * has them. */
static void process_complete(scheduler *s, req *r, bool wanted, uint32_t row, const float *logits,
                             step_saves saves)
{
    if (!wanted) {
        if (publish_saves(s, r, saves)) finish_req(s, r, REQ_FINISH_LENGTH, -1, true);
        return;
    }
    rad_token token;
    if (!say_token(s, r, row, logits, &token)) { /* what it computed is right but for lost logits */
        finish_req(s, r, REQ_FINISH_ERROR, -1, r->error.status == RAD_E_NOMEM);
        return;
    }
    if (r->state == REQ_DECODE) draft_learn(&s->drafts, r, 1);
    if (r->finish) {
        if (publish_saves(s, r, saves)) finish_req(s, r, r->finish, token, true);
        return;
    }
    if (r->state == REQ_PREFILL && !publish(s, r, false, saves)) return;
    if (r->state == REQ_PREFILL) wait_queue_remove(&s->waiting, r); /* leads nobody any more */
    r->state = REQ_DECODE;
    draft_nextn_keep(s, r, row);
    emit_output(s, r, token);
}

/* Those from `first` on that are request i's, but for its spare, which stands there now. */
static step_saves saves_of(schedule_batch *b, uint32_t i, uint32_t first)
{
    rad_req_kv *kv = &b->reqs[i]->kv;
    step_saves saves = {first, first};
    for (; saves.end < b->num_saves && b->state_saves[saves.end].req == i; saves.end++) {
        forward_state_save *save = &b->state_saves[saves.end];
        if (save->state != kv->spare_state) continue;
        kv->spare_len = b->extend_prefix_lens[i] + save->tokens;
        save->state = 0;
    }
    return saves;
}

/* One with drafts, whose rows of logits begin with `row` and whose saves with `first`. Returns
 * where the latter end. */
static uint32_t process_drafts(scheduler *s, uint32_t i, uint32_t row, const float *logits,
                               uint32_t first)
{
    schedule_batch *b = &s->batch;
    const uint32_t end = first + (s->pools.states.pool ? b->num_drafts[i] : 0);
    draft_verify(s, i, row, logits, b->state_saves + first);
    schedule_batch_drop_saves(b, &s->pools, first, end);
    if (b->reqs[i]->kv.row) release_window(s, b->reqs[i], &b->reqs[i]->kv);
    return end;
}

void process_batch_result(scheduler *s, const float *logits)
{
    const schedule_batch *b = &s->batch;
    uint32_t vocab_size = s->params.runner->info.vocab_size;
    uint32_t next_logits = 0;
    step_saves saves = {0};
    for (uint32_t i = 0; i < b->num_reqs; i++) {
        req *r = b->reqs[i];
        s->stats.drafts.req_steps += r->state == REQ_DECODE;
        r->draft.counts.steps += r->state == REQ_DECODE;
        if (b->num_drafts[i]) {
            saves.end = process_drafts(s, i, next_logits, logits, saves.end);
            next_logits += 1 + b->num_drafts[i];
            continue;
        }
        r->kv.committed_len = b->seq_lens[i];
        state_end_step(&s->pools.states, &r->kv, b->state_out[i], b->seq_lens[i]);
        r->state_from = 0;
        saves = saves_of(&s->batch, i, saves.end);
        if (r->state == REQ_PREFILL) s->stats.prefill_tokens += b->extend_seq_lens[i];

        const uint32_t rows = req_rows_within(r, b->extend_prefix_lens[i], b->seq_lens[i]);
        const float *prompt_rows = logits ? logits + (size_t)vocab_size * next_logits : NULL;
        if (r->prompt_logprobs) next_logits += rows;
        const uint32_t row = next_logits;
        bool wanted = row < b->num_logits && b->logits_reqs[row] == i;
        const float *row_logits = logits ? logits + (size_t)vocab_size * row : NULL;
        next_logits += wanted;
        if (tiers_lost(s, r))
            req_drop_hidden(r); /* and what it computed with that */
        else if (!take_prompt_rows(s, r, prompt_rows, rows))
            finish_req(s, r, REQ_FINISH_ERROR, -1, true);
        else if (r->kv.committed_len < req_num_fill(r))
            process_chunk(s, r, saves);
        else
            process_complete(s, r, wanted, row, row_logits, saves);
        schedule_batch_drop_saves(&s->batch, &s->pools, saves.first, saves.end);
        if (r->kv.row) release_window(s, r, &r->kv); /* after publishing, so that all is cached */
    }
}

void fail_batch(scheduler *s, const rad_error *error)
{
    schedule_batch_drop_saves(&s->batch, &s->pools, 0, s->batch.num_saves);
    for (uint32_t i = 0; i < s->batch.num_reqs; i++) {
        s->batch.reqs[i]->error = *error;
        finish_req(s, s->batch.reqs[i], REQ_FINISH_ERROR, -1, false);
    }
}
