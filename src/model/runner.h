/* runner.h - what the scheduler knows of a model: a batch goes in, logits or tokens come out.
 *
 * model_runner is a GGUF model on this CPU. A runner has its own threads and its own memory, K and
 * V included: the scheduler says how many pages there are, the runner makes the pools. So whoever
 * computes elsewhere (a GPU) keeps weights, K/V and logits there, and everything above it stays as
 * it is: pools are handles, tiers copy by the pool's device (radish/device.h), and tokens are
 * chosen where the logits are.
 *
 * One thread calls a runner. */
#ifndef MODEL_RUNNER_H
#define MODEL_RUNNER_H

#include "attn/forward_batch.h"
#include "model/pooling.h"
#include "model/sampler.h"

typedef struct runner_info {
    uint32_t vocab_size;
    uint32_t context_length; /* what the model was made for, in tokens */
    uint32_t num_layers;     /* that have K and V */
    uint32_t num_kv_heads;
    uint32_t head_dim;
    uint32_t v_head_dim;
    rad_dtype kv_dtype;      /* store dtype the runner wants */
    uint32_t window_layers;  /* of num_layers: those that see sliding_window tokens and no more */
    uint32_t sliding_window; /* the newest token included; 0 when window_layers is */
    uint32_t kv_lora_rank;   /* > 0: K/V are MLA's latent rows, of which so many numbers are V */
    uint32_t num_threads;    /* of this CPU that compute; 0: none, it computes elsewhere */
    uint32_t state_layers;   /* beside num_layers: recurrent ones, which have a state instead */

    /* Of layers with a window, where their heads are not as the others'; else 0. Then there is no
     * pool of all layers: the two lie apart. */
    uint32_t window_kv_heads;
    uint32_t window_head_dim;
    uint32_t window_v_head_dim;

    /* K and V of a token: in layers without a window, and in those with one. */
    size_t full_token_bytes;
    size_t window_token_bytes;

    size_t state_bytes; /* of one state, all recurrent layers; 0: there are none */

    uint32_t nextn_layers; /* of num_layers the last: a head that guesses (model/nextn.h); or 0 */
    uint32_t nextn_reserved;

    uint32_t hidden_dim;    /* numbers of a hidden state (forward_pool); 0: it gives none */
    hidden_pooling pooling; /* that it was trained with; NONE: it does not say */

    char weights[128]; /* what matrices are held as: "bf16", "bf16+q8_0"; "" for none */
    char gemm[16];     /* the instructions of its products: "amx", "avx512bf16"; "" for none */
} runner_info;

/* Of hidden states that a runner keeps for guesses. */
enum { RUNNER_PLACES = 288 };

/* Which layers' K and V a pool holds. */
typedef enum runner_layers {
    RUNNER_ALL_LAYERS,   /* there is one pool: layers with a window mask what lies before it */
    RUNNER_FULL_LAYERS,  /* of two: layers without a window, */
    RUNNER_WINDOW_LAYERS /* and those with one */
} runner_layers;

static inline bool runner_layers_differ(const runner_info *info)
{
    return info->window_kv_heads > 0;
}

static inline size_t runner_token_bytes(const runner_info *info, runner_layers layers)
{
    return (layers == RUNNER_WINDOW_LAYERS ? 0 : info->full_token_bytes) +
           (layers == RUNNER_FULL_LAYERS ? 0 : info->window_token_bytes);
}

typedef struct runner_pool_params {
    runner_layers layers;
    uint32_t num_pages; /* page 0 not counted */
    uint32_t page_size;
    uint32_t reserved;
} runner_pool_params;

/* How the token behind one row of logits is to be chosen: by sampler_next, or as it does. */
typedef struct runner_sample {
    const sampling_params *params; /* NULL: no token is to be chosen behind this row */
    const rad_token *output;       /* [num_output] what the request has said so far */
    uint32_t num_output;
    uint32_t position;       /* of the token that is chosen; the draw depends on it */
    const uint32_t *allowed; /* a bit per token, as sampler_next has them; NULL: every one */
} runner_sample;

typedef struct runner runner;
typedef struct runner_ops {
    /* Computes the batch and writes its K/V into the pool, which create_pool made, its states into
     * that of create_state_pool. The logits of batch->logits_indices are [num_logits][vocab_size]
     * in memory of the runner that stays valid until the next call of forward; `logits` is NULL
     * when nobody wants to look at them. Waits for each layer of the pools, also for a head's,
     * which it does not read (rad_kv_pool_get_buffers): afterwards the loads of its requests have
     * ended. On an error nothing may be read from the pages of out_cache_loc, nor from the states
     * that were to be written. */
    rad_status (*forward)(runner *self, const forward_batch *batch, const float **logits,
                          rad_error *err);

    /* Makes a pool for these layers, whose memory is the runner's: it is destroyed before the
     * runner. What of it is on the heap is env's. No such layer: RAD_OK, and *out is NULL.
     * Errors as rad_token_to_kv_pool_create's. */
    rad_status (*create_pool)(runner *self, const rad_env *env, const runner_pool_params *params,
                              rad_token_to_kv_pool **out, rad_error *err);

    /* Makes the pool of `num_states` states, each info.state_bytes, as create_pool does. NULL: the
     * model has no recurrent layers. */
    rad_status (*create_state_pool)(runner *self, const rad_env *env, uint32_t num_states,
                                    rad_state_pool **out, rad_error *err);

    void (*destroy)(runner *self);

    /* Optional: chooses the token behind each row of logits that the last forward computed.
     * tokens[num_rows]; -1 where no logit is a number, anything where none is to be chosen. A row's
     * token depends on its logits and its runner_sample alone (P1). NULL: the scheduler chooses
     * from the logits itself. On an error nothing was chosen. */
    rad_status (*sample)(runner *self, const runner_sample *rows, uint32_t num_rows,
                         rad_token *tokens, rad_error *err);

    /* Both where info.nextn_layers is not 0. A row of logits of the last forward: what the model
     * says there is kept in a place, one of RUNNER_PLACES. */
    void (*keep_hidden)(runner *self, uint32_t row, uint32_t place);

    /* The head's logits behind the one token of each request of `batch`, in the place of forward's,
     * for `sample`, too. The token is the one behind the request's position; what the model says
     * at that position is in place from[i], and what the head says goes to place to[i], for a guess
     * at the next position. The entry's K and V go to out_cache_loc. With num_logits 0 that is all:
     * requests may have the same row then, and `to` may be NULL. Errors as forward's. */
    rad_status (*guess)(runner *self, const forward_batch *batch, const uint32_t *from,
                        const uint32_t *to, const float **logits, rad_error *err);
} runner_ops;

/* First member of every implementation. */
struct runner {
    const runner_ops *ops;
    runner_info info;
};

static inline rad_status runner_forward(runner *r, const forward_batch *batch, const float **logits,
                                        rad_error *err)
{
    return r->ops->forward(r, batch, logits, err);
}

static inline rad_status runner_create_pool(runner *r, const rad_env *env, runner_layers layers,
                                            uint32_t num_pages, uint32_t page_size,
                                            rad_token_to_kv_pool **out, rad_error *err)
{
    const runner_pool_params params = {layers, num_pages, page_size, 0};
    return r->ops->create_pool(r, env, &params, out, err);
}

/* No recurrent layers: RAD_OK, and *out is NULL. */
static inline rad_status runner_create_state_pool(runner *r, const rad_env *env,
                                                  uint32_t num_states, rad_state_pool **out,
                                                  rad_error *err)
{
    *out = NULL;
    if (!r->info.state_bytes) return RAD_OK;
    return r->ops->create_state_pool(r, env, num_states, out, err);
}

static inline void runner_destroy(runner *r)
{
    if (r) r->ops->destroy(r);
}

/* For runners whose layers have the K and V that their info says, those that see as far alike. What
 * full_token_bytes and window_token_bytes are then; and create_pool and create_state_pool, on a
 * device of the runner's, NULL: the host. */
runner_info runner_with_token_bytes(runner_info info);
rad_status runner_make_pool(const runner_info *info, rad_device *device, const rad_env *env,
                            const runner_pool_params *params, rad_token_to_kv_pool **out,
                            rad_error *err);
rad_status runner_make_state_pool(const runner_info *info, rad_device *device, const rad_env *env,
                                  uint32_t num_states, rad_state_pool **out, rad_error *err);

#endif
