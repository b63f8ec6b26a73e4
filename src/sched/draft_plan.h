/* draft_plan.h - the drafts of a step: planned before it, kept or given back after it. */
#ifndef SCHED_DRAFT_PLAN_H
#define SCHED_DRAFT_PLAN_H

#include "sched/scheduler_impl.h"

/* Before the step's decoding requests are added: sets their draft.count, all of which are 0, and
 * leaves the tokens behind their fill_ids. The requests take decode_pages without drafts, and those
 * are to be had. */
void draft_plan(scheduler *s, uint32_t num_decodes, uint64_t decode_pages);

/* The step has been computed, and tokens are chosen: request i of the batch, which has drafts, says
 * what it would have said in steps of one token, as far as the drafts were right. Its rows of
 * logits begin with `row`; logits: of all rows, or NULL. saves: what stood behind each of its rows
 * but the last, where there are states; what it does not keep is left there. */
void draft_verify(scheduler *s, uint32_t i, uint32_t row, const float *logits,
                  forward_state_save *saves);

#endif
