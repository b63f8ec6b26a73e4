/* draft_verify.c - what agrees is kept, and the rest was never there.
 *
 *     slots     | committed ... | t | d1 | d2 | d3 |        t and d1 agree with what was sampled,
 *                                             ^ here        d2 does not: its K/V and d3's go back
 *
 * A row is right when its input is what the answer says there, so the first row always is, and each
 * one up to the first draft that was not sampled. Its token is accepted as in a step of its own:
 * noted for the verifier, told to the rule, appended, handed out. No draft ends an answer
 * (possible, draft.c), so only the last token that is kept can.
 *
 * Afterwards the request is as if it had taken so many steps: committed_len is one less than its
 * ids, no slot lies behind it but the rest of its page, window rows are translated again from
 * there, and the recurrent state is the one that was saved behind its last row. */
#include "sched/draft_plan.h"

/* Of request i's rows the first `kept` are right. */
static void settle(scheduler *s, uint32_t i, uint32_t kept, forward_state_save *saves)
{
    schedule_batch *b = &s->batch;
    rad_req_kv *kv = &b->reqs[i]->kv;
    const uint32_t prefix = b->extend_prefix_lens[i], page_size = s->pools.page_size;
    const uint32_t drafts = b->num_drafts[i], end = prefix + kept;
    const uint32_t whole = (end + page_size - 1) / page_size * page_size;
    kv->committed_len = end;
    state_end_step(&s->pools.states, kv, b->state_out[i], prefix + drafts + 1);
    state_keep(&s->pools.states, kv, prefix, kept, saves, drafts);
    if (whole < kv->allocated_len) {
        rad_error err;
        const rad_slot *row = rad_req_to_token_row(s->pools.req_to_token_pool, kv->row);
        if (rad_kv_free_slots(s->pools.kv_allocator, row + whole, kv->allocated_len - whole,
                              &err) != RAD_OK) {
            s->stats.kv_errors++;
            rad_log(&s->env, RAD_LOG_ERROR, "scheduler: giving slots of drafts back: %s", err.text);
        }
    }
    kv->allocated_len = end;
    window_row_changed(&s->pools.window, kv->row, end);
}

void draft_verify(scheduler *s, uint32_t i, uint32_t row, const float *logits,
                  forward_state_save *saves)
{
    const size_t vocab_size = s->params.runner->info.vocab_size;
    const uint32_t drafts = s->batch.num_drafts[i];
    req *r = s->batch.reqs[i];
    uint32_t right = 0;
    rad_token token, draft;
    bool said;
    if (tiers_lost(s, r)) return;
    for (uint32_t k = 0;; k++) {
        draft = k < drafts ? r->fill_ids[req_num_fill(r)] : -1;
        said = say_token(s, r, row + k, logits ? logits + vocab_size * (row + k) : NULL, &token);
        if (!said || token != draft) break;
        RAD_ASSERT(!r->finish);
        right++;
        emit_output(s, r, token);
    }
    settle(s, i, right + 1, saves);
    s->stats.drafts.proposed[r->draft.kind] += drafts;
    s->stats.drafts.accepted[r->draft.kind] += right;
    r->draft.counts.proposed[r->draft.kind] += drafts;
    r->draft.counts.accepted[r->draft.kind] += right;
    draft_spend(&s->drafts, r->draft.kind, -(double)right / s->drafts.requests);
    if (said) draft_learn(&s->drafts, r, right + 1);
    r->draft.count = 0;
    if (!said)
        finish_req(s, r, REQ_FINISH_ERROR, -1, r->error.status == RAD_E_NOMEM);
    else if (r->finish)
        finish_req(s, r, r->finish, token, true);
    else {
        draft_nextn_keep(s, r, row + right);
        emit_output(s, r, token);
    }
}
