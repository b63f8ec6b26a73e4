/* runner_playback.h - a runner that says what it is told to, for tests of what is around a model.
 *
 * It has no network: whoever made it names the next token of each request. K and V hold the tokens,
 * and every step reads its whole context back through the pool before it asks: a page that is
 * wrong, stale or another's is found there, and fails the step in words. */
#ifndef GEAR_RUNNER_PLAYBACK_H
#define GEAR_RUNNER_PLAYBACK_H

#include "model/runner.h"

enum { RUNNER_PLAYBACK_HIDDEN = 8 }; /* a hidden state: the last bits of its token, 0 or 1 each */

/* The token behind prompt[0..num_prompt) and output[0..num_output). On the thread of the steps. */
typedef rad_token (*playback_choose)(void *user, const rad_token *prompt, uint32_t num_prompt,
                                     const rad_token *output, uint32_t num_output);

typedef struct runner_playback_params {
    uint32_t vocab_size;
    uint32_t context_length;
    uint32_t max_batch_logits;
    uint32_t reserved;
    playback_choose choose;
    void (*destroy)(void *user); /* NULL: nothing to do */
    void *user;
} runner_playback_params;

/* `user` is the runner's from here on where `destroy` is given, also after an error. */
rad_status runner_playback_create(const rad_env *env, const runner_playback_params *params,
                                  runner **out, rad_error *err);

#endif
