/* batch_check.h - does a batch fit the runner that got it?
 *
 * The scheduler builds batches and runners index memory with them, so a runner
 * looks at every number once before it uses any. */
#ifndef MODEL_BATCH_CHECK_H
#define MODEL_BATCH_CHECK_H

#include "model/runner.h"

/* RAD_E_INVAL with words that name the request or token: lengths that do not add
 * up, a token id outside the vocabulary, positions or slots that are not the
 * row's, groups or ranges that contradict themselves, a pool that is not the runner's, a state that
 * is not taken, or read by one request and written by another. RAD_E_LIMIT: more tokens or logits
 * than the runner has memory for, or a sequence past the context length. An empty batch is fine.
 * O(positions of all requests). */
rad_status batch_check(const runner_info *info, const forward_batch *batch,
                       uint32_t max_batch_tokens, uint32_t max_batch_logits, rad_error *err);

#endif
