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
 * All arrays are the caller's and stay unchanged during forward. */
#ifndef ATTN_FORWARD_BATCH_H
#define ATTN_FORWARD_BATCH_H

#include <radish/req_to_token_pool.h>
#include <radish/token_to_kv_pool.h>

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

    const rad_req_to_token_pool *req_to_token_pool; /* rows hold slots for [0, seq_len) */
    rad_token_to_kv_pool *token_to_kv_pool;
} forward_batch;

#endif
