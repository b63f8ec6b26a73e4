/* runner_fake.h - a runner without a network, for tests of the scheduler.
 *
 * Each token stores a hash of itself and of all that the pool holds for the positions before
 * it, read back through the row; its logits are a hash of the same with its own. So an answer is
 * right only if every slot of the row holds what this very context wrote, and one wrong, stale or
 * swapped page changes everything after it. */
#ifndef GEAR_RUNNER_FAKE_H
#define GEAR_RUNNER_FAKE_H

#include "model/runner.h"

typedef struct runner_fake_params {
    uint32_t vocab_size;       /* 0 = 256 */
    uint32_t context_length;   /* 0 = 4096 */
    uint32_t max_batch_logits; /* 0 = 256 */
    uint32_t fail_every;       /* n > 0: every n-th forward fails with RAD_E_IO */
    uint32_t mla;              /* 1: for an MLA pool, whose row holds what K and V hold else */
    uint32_t window;           /* tokens of a sliding window, the newest included; 0: none. Layer 0
                                * has it then, and layer 1 sees everything, */
    uint32_t window_only;      /* 1: but there is no layer 1 */
    uint32_t chooses;          /* 1: it samples itself, and has no logits that nobody asks for */
    rad_dtype kv_dtype;        /* 0 = f32; bf16 */
    uint32_t states;    /* 1: it has a recurrent layer besides, whose state is a rolling hash of
                         * the tokens: what a token stores and its logits depend on it */
    rad_device *device; /* where its K/V are; NULL: the host, or a guarded device if tests are asked
                         * to run over one (device_guarded.h) */
} runner_fake_params;

/* What was asked of it so far. */
typedef struct runner_fake_counts {
    uint64_t forwards, with_logits, sampled;
} runner_fake_counts;

rad_status runner_fake_create(const rad_env *env, const runner_fake_params *params, runner **out,
                              rad_error *err);

runner_fake_counts runner_fake_asked(const runner *fake);

/* The token greedy decoding gives after `tokens`, computed without any cache: the
 * oracle of the tests. */
rad_token runner_fake_next(uint32_t vocab_size, const rad_token *tokens, uint32_t num_tokens);

/* The same of a runner made with these params, with a window or without. */
rad_token runner_fake_next_of(const runner_fake_params *params, const rad_token *tokens,
                              uint32_t num_tokens);

enum { RUNNER_FAKE_HIDDEN = 4 }; /* numbers of a hidden state */

/* What each of the tokens stores, as computed without any cache: values[num_tokens]. And how a
 * value is stored, in any layer of a pool that fits the runner, MHA or MLA. So a test can say
 * of every page of every tier which bytes it must have. */
void runner_fake_values(const rad_token *tokens, uint32_t num_tokens, uint64_t *values);
void runner_fake_store(rad_token_to_kv_pool *pool, uint32_t layer, rad_slot slot, uint64_t value);

#endif
