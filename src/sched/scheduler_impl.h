/* scheduler_impl.h - the scheduler's struct, what its files share, and the index of this room.
 *
 *     scheduler.c            a step, and the scheduler's life: requests come, are cancelled
 *     get_next_batch.c       plans a step: decoding requests, prefills in flight, admissions
 *         wait_queue.c           who waits, in which order (schedule_policy.h), who is held back
 *         wait_tree.c            the tree of their prompts
 *         prefill_adder.c        may one more start, and how many tokens of it
 *         step_cost.c            what a step will take, for --max-itl-ms
 *     schedule_batch.c       makes the plan real: pages, slots, rows, arrays for the runner
 *         window_memory.c        the second table of slots, for layers with a window
 *         state_memory.c         states of recurrent layers, and where to keep them
 *         batch_groups.c         which requests read the same slots
 *     draft.c                tokens that are computed before they are known to be right
 *         draft_source.c         who guesses: a table
 *         draft_ngram.c          guessed from the request's own text, by suffix_index.c
 *         draft_recent.c         and from recent answers
 *         draft_price.c          what rows of drafts take (least_squares.c)
 *         draft_budget.c         and what they may take in vain
 *         draft_model.c          computed by a small model
 *         draft_nextn.c          and by a head of the model itself; draft_guess.c is theirs
 *         draft_verify.c         kept or given back
 *     rule_masks.c           what constrained requests (token_rule.h, grammar_rule.c) may say next
 *     batch_result.c         what was computed: published, the next token (next_token.c), released
 *     tiers.c                fetches before the queue, loads before the forward pass
 *     req.c, req_why.c       a request; where its cached tokens came from
 *     verify.c, verify_run.c promise P1 while the server runs; self_check.c: P2
 *     scheduler_inspect.c    figures (scheduler_stats.h), sessions, flush, the store */
#ifndef SCHED_SCHEDULER_IMPL_H
#define SCHED_SCHEDULER_IMPL_H

#include "sched/batch_groups.h"
#include "sched/draft_model.h"
#include "sched/draft_nextn.h"
#include "sched/drafter.h"
#include "sched/rule_masks.h"
#include "sched/scheduler.h"
#include "sched/self_check.h"
#include "sched/step_cost.h"
#include "sched/tiers.h"
#include "sched/verify.h"
#include "sched/wait_queue.h"

enum { SCHEDULER_OUTPUTS = 256 }; /* handed out in lots of at most so many */

struct scheduler {
    rad_env env;
    scheduler_params params;
    schedule_pools pools; /* owned */
    uint32_t context_length;
    uint32_t max_total_pages;

    wait_queue waiting;
    sched_tiers tiers;
    req **running; /* oldest admission first */
    uint32_t num_running;
    uint32_t reserved;
    uint64_t num_arrivals;
    atomic_bool cancels; /* somebody cancelled something */

    schedule_batch batch;
    forward_batch forward;
    batch_groups groups;
    step_cost cost;
    verifier verify;
    self_check check;
    runner_sample *samples; /* [batch.max_logits] how each row of logits is sampled, */
    rad_token *next_tokens; /* and what came of it */
    char *sample_scratch;   /* NULL: the runner samples */
    rule_masks masks;       /* a row for each of logits */
    drafter drafts;
    draft_model draft_model; /* DRAFT_MODEL's */
    draft_nextn draft_nextn; /* DRAFT_NEXTN's */

    double new_token_ratio;

    req_output outputs[SCHEDULER_OUTPUTS];
    uint32_t num_outputs;
    scheduler_stats stats;
};

/* ---- scheduler.c ---- */

/* When no page is out they are handed out from the first one again, in memory that was used. */
void begin_anew(scheduler *s);
/* Empties the cache, and begins anew. */
rad_status reset_cache(scheduler *s);

/* ---- get_next_batch.c ---- */

/* Plans the next step into s->batch; false when there is nothing to compute. */
bool get_next_batch_to_run(scheduler *s);

/* Throws the running request that loses least back into the queue, with its old arrival. What is
 * computed goes into the tree, evictable: if the memory is really short it leaves in turn, else the
 * request finds it again. Something is running, and no batch is under way. */
void scheduler_retract_one(scheduler *s);

/* What --max-itl-ms leaves of a step beside its decoding requests and what a verifier took
 * before it. */
double itl_left_ns(const scheduler *s, const step_work *decodes);

/* ---- next_token.c ---- */

/* Whether anybody looks at the logits of this step. */
bool wants_logits(const scheduler *s);

/* Around the forward pass: has the masks of constrained requests computed. */
void begin_masks(scheduler *s);
void wait_for_masks(scheduler *s);

/* Samples from all rows of logits of a step into s->next_tokens. */
rad_status sample_batch(scheduler *s, const float *logits, rad_error *err);

/* The token that was sampled for r from this row, with the logprobs it asked for in r->logprobs:
 * then, and where the scheduler samples, `logits` are the row's. r's rule goes on behind it. -1:
 * there is none, see r->error. */
rad_token accept_token(scheduler *s, req *r, uint32_t row, const float *logits);

/* A chunk of its prompt is computed, with `rows` rows that it wanted of it: logprobs are put into
 * r->new_prompt_logprobs. False: no memory, see r->error. */
bool take_prompt_rows(scheduler *s, req *r, const float *logits, uint32_t rows);

/* ---- batch_result.c ---- */

/* The forward pass succeeded and tokens are chosen: commit, publish, finish. `logits` is NULL when
 * nobody wanted them. */
void process_batch_result(scheduler *s, const float *logits);

/* It failed: every request of the batch ends with the error. */
void fail_batch(scheduler *s, const rad_error *error);

/* The one exit: gives pages, lock and row of a request back, publishing what is
 * computed when is_insert. Nothing happens to one that holds nothing. */
void req_release_kv(scheduler *s, req *r, bool is_insert);

/* The same of one that was looked at and not admitted: all is as before. What its session had it
 * has again; a turn that began with what the tree has leaves nothing, neither an idle session that
 * locks a prefix, nor a pin, nor a copy on its way to the host. */
void req_put_back_kv(scheduler *s, req *r);

/* What the window has passed goes back while the request runs. r: whose it is, for the tap; NULL:
 * the verifier's, of which that hears nothing. */
void release_window(scheduler *s, req *r, rad_req_kv *kv);

/* Ends a request for good: release, take it from `running`, output. `token` as in
 * req_output. */
void finish_req(scheduler *s, req *r, req_finish finish, rad_token token, bool is_insert);

/* The request says the token that was sampled from this row of logits (accept_token): it is
 * appended and r->finish set, if it ends the answer. False: there is none, in r->error, and nothing
 * of r's ids changed. */
bool say_token(scheduler *s, req *r, uint32_t row, const float *logits, rad_token *token);
bool is_end_token(const scheduler *s, rad_token token);

void emit_output(scheduler *s, req *r, rad_token token);
void flush_outputs(scheduler *s);
void remove_running(scheduler *s, req *r);

#endif
