/* forward_batch.h - one step's work as flat arrays, the way a device wants it.
 *
 * A batch is num_reqs requests, each with extend_seq_lens[i] new tokens behind
 * extend_prefix_lens[i] positions whose K/V are in the pool already. A decoding
 * request is one with a single new token, so prefill, decode and a mix of both
 * are one path. The new tokens of all requests lie one behind the other:
 *
 *     request       0                1     2
 *     input_ids   | a b c d e f g  | h   | i j k  |     num_tokens = 11
 *     start_loc     0                7     8
 *
 * All arrays are the caller's and stay unchanged during forward.
 *
 * Layers with a sliding window may have memory of their own, in which a request has K/V of its last
 * tokens alone (window_kv_pool below); for attention that is a batch with other rows.
 *
 * Recurrent layers keep no K/V but a state, one slot of a state pool for all of a request's
 * recurrent layers. A step reads what state_in has behind the request's prefix and writes what
 * stands behind its last new token to state_out. Copies of what stands behind tokens in between
 * are saves, so that a prefill need not be cut where somebody wants a snapshot:
 *
 *     prefix           | a b c d e f g |
 *        state_in ----'      |         '---- state_out
 *                            '-- save {req, tokens 3, state}
 *
 * States are computed token by token in one order: how a prompt is cut changes no bit of them.
 *
 * Tree-driven attention: requests whose rows begin with the same slots (they hold the same
 * tree nodes) may be handed over as groups, so that a backend reads those K/V once for all
 * of them. Groups never change a result, only how often memory is read; none is fine.
 *
 *     [system prompt 0..2048)  reqs 0 1 2 3      group_reqs  | 2 0 | 3 1 |
 *        [document A 2048..3072)  reqs 2 0       groups      {0, 2048, first 0, count 4}
 *        [document B 2048..2560)  reqs 3 1                   {2048, 3072, 0, 2} {2048, 2560, 2, 2}
 */
#ifndef ATTN_FORWARD_BATCH_H
#define ATTN_FORWARD_BATCH_H

#include <radish/req_to_token_pool.h>
#include <radish/state_pool.h>
#include <radish/token_to_kv_pool.h>

/* The requests group_reqs[first .. first + count) have the same slots at the positions
 * [begin, end); in window_rows where both see. Both are multiples of 64 (ATTN_BLOCK), and no
 * member's extend_prefix_lens is below `end`. The groups of one request do not overlap; parents
 * come before children. */
typedef struct forward_group {
    uint32_t begin;
    uint32_t end;
    uint32_t first;
    uint32_t count; /* >= 2 */
} forward_group;

/* What attention reads of the pool: bytes of K, V and scales at the positions that the new
 * tokens see, each position once per request and layer. `bytes` counts what the members of
 * a group share once, `unshared_bytes` as often as there are members. Decode brings exactly
 * this from memory; prefill at least this. */
typedef struct attn_kv_reads {
    uint64_t bytes;
    uint64_t unshared_bytes;
} attn_kv_reads;

/* What stands behind the first `tokens` new tokens of request `req` is left in `state`, too. */
typedef struct forward_state_save {
    uint32_t req;
    uint32_t tokens; /* 1 to extend_seq_lens[req] */
    rad_state state;
} forward_state_save;

/* The hidden states of the new tokens [first, first + count), behind the model's last norm, are
 * added to `sum`, one token after the other: so a sum has the same bits however a prompt is cut. */
typedef struct forward_pool {
    uint32_t first; /* in input_ids */
    uint32_t count; /* >= 1 */
    double *sum;    /* [runner_info.hidden_dim] the caller's */
} forward_pool;

typedef struct forward_batch {
    uint32_t num_reqs;
    uint32_t num_tokens;                /* new tokens of all requests */
    const rad_token *input_ids;         /* [num_tokens] */
    const uint32_t *positions;          /* [num_tokens] absolute */
    const rad_slot *out_cache_loc;      /* [num_tokens] where their K/V go */
    const rad_row *req_pool_indices;    /* [num_reqs] rows of req_to_token */
    const uint32_t *seq_lens;           /* [num_reqs] prefix + new */
    const uint32_t *extend_prefix_lens; /* [num_reqs] */
    const uint32_t *extend_seq_lens;    /* [num_reqs] new tokens, >= 1 */
    const uint32_t *extend_start_loc;   /* [num_reqs] first of them in input_ids */

    /* Which tokens want logits: indices into input_ids, ascending. */
    uint32_t num_logits;
    uint32_t reserved;
    const uint32_t *logits_indices; /* [num_logits] */

    uint32_t num_pools;
    uint32_t pool_reserved;
    const forward_pool *pools; /* [num_pools] ascending, none overlaps another */

    uint32_t num_groups; /* 0: nothing is known to be shared */
    uint32_t group_reserved;
    const forward_group *groups; /* [num_groups] */
    const uint32_t *group_reqs;  /* [num_reqs] request indices, each once, so ordered that a
                                  * group's members lie side by side; NULL without groups */

    const rad_req_to_token_pool *req_to_token_pool; /* rows hold slots for [0, seq_len) */
    rad_token_to_kv_pool *token_to_kv_pool;

    /* Window memory; all NULL: there is none, token_to_kv_pool has every layer, and layers with a
     * window mask what lies before it. Else they have a pool of their own with rows of its slots,
     * which are true only where a new token of the request sees; token_to_kv_pool has the other
     * layers, or is NULL when there are none. */
    const rad_req_to_token_pool *window_rows;
    rad_token_to_kv_pool *window_kv_pool;
    const rad_slot *window_out_cache_loc; /* [num_tokens] */

    /* States; NULL and 0 for a model without recurrent layers. All are taken from the pool. One
     * that is written (state_out and saves) is named once and is no state_in, but a request's
     * state_out may be its own state_in, if that is nobody else's. Requests may share a
     * state_in that is not written. */
    rad_state_pool *state_pool;
    const rad_state *state_in;  /* [num_reqs] 0 where the prefix is empty, and only there */
    const rad_state *state_out; /* [num_reqs] */
    uint32_t num_state_saves;
    uint32_t state_reserved;
    const forward_state_save *state_saves; /* ascending by req, then tokens */

    /* For a head that guesses (model/nextn.h), whose entries are made of what the model says at a
     * position and of the token behind it. */
    const rad_token *next_ids; /* [num_reqs] the token behind the last new one; -1: nobody knows.
                                * NULL: nothing is to be guessed behind these tokens */

    attn_kv_reads *kv_reads; /* every layer adds to it; NULL: nobody asks */
} forward_batch;

/* The first position that a query at `position` sees through a window; 0: there is none. */
static inline uint32_t forward_first_key(uint32_t window, uint32_t position)
{
    return window && position >= window ? position - window + 1 : 0;
}

/* Adds to kv_reads, if anybody asks, what attention reads where a token has `token_bytes` of K, V
 * and scales, in layers with this window (0: none); members of the first num_groups groups share.
 */
void forward_batch_count_reads(const forward_batch *batch, uint32_t window, uint32_t num_groups,
                               uint64_t token_bytes);

/* The batch as layers with a window see it, where there is window memory. */
static inline forward_batch forward_batch_of_window(const forward_batch *batch)
{
    forward_batch window = *batch;
    window.req_to_token_pool = batch->window_rows;
    window.token_to_kv_pool = batch->window_kv_pool;
    window.out_cache_loc = batch->window_out_cache_loc;
    return window;
}

#endif
