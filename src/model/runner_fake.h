/* runner_fake.h - a runner without a network, for tests of the scheduler.
 *
 * Layer 0's K of each token stores a 64-bit-ish chain value: a hash of the token
 * and of the chain value read back from the pool at the position before it (through
 * the row). The logits of a token are a deterministic function of its chain value.
 * So an answer is right only if every slot of the row holds what this very
 * context wrote, and one wrong, stale or swapped page changes everything after it. */
#ifndef MODEL_RUNNER_FAKE_H
#define MODEL_RUNNER_FAKE_H

#include "model/runner.h"

typedef struct runner_fake_params {
    uint32_t vocab_size;       /* 0 = 256 */
    uint32_t context_length;   /* 0 = 4096 */
    uint32_t max_batch_logits; /* 0 = 256 */
    uint32_t fail_every;       /* n > 0: every n-th forward fails with RAD_E_IO */
} runner_fake_params;

rad_status runner_fake_create(const rad_env *env, const runner_fake_params *params,
                              runner **out, rad_error *err);

/* The token greedy decoding gives after `tokens`, computed without any cache: the
 * oracle of the tests. */
rad_token runner_fake_next(uint32_t vocab_size, const rad_token *tokens, uint32_t num_tokens);

#endif
