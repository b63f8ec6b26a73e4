/* schedule_batch.h - the requests of one step and their flat arrays.
 *
 * A step is planned first (schedule_batch_add: who computes how many tokens) and
 * then made real in one go (schedule_batch_prepare_for_extend): evict if short, take
 * the slots, write them into the rows, lay the arrays out for the runner. A decoding
 * request is an extend by one token, so there is one path. */
#ifndef SCHED_SCHEDULE_BATCH_H
#define SCHED_SCHEDULE_BATCH_H

#include "attn/forward_batch.h"
#include "sched/cache_tap.h"
#include "sched/req.h"
#include "sched/state_memory.h"
#include "sched/window_memory.h"

/* What a batch is made of; not owned. */
typedef struct schedule_pools {
    rad_cache *tree_cache;
    rad_cache *inner_cache; /* behind the wrapper of streaming sessions; else tree_cache */
    rad_kv_allocator *kv_allocator;
    rad_req_to_token_pool *req_to_token_pool;
    rad_token_to_kv_pool *token_to_kv_pool; /* NULL: every layer has a window, and its K/V there */
    cache_tap tap;
    uint32_t page_size;
    window_memory window;
    state_memory states;
} schedule_pools;

/* Pages of both kinds: each new page takes one of the window side, where there is one. And states:
 * those that requests cannot do without. */
typedef struct kv_pages {
    uint64_t full;
    uint64_t window;
    uint64_t states;
} kv_pages;

typedef struct schedule_batch {
    uint32_t max_reqs;
    uint32_t max_tokens;
    uint32_t max_logits;
    uint32_t num_draft_states; /* taken for this step's drafts and not among the saves yet */
    uint32_t num_reqs;
    uint32_t num_tokens;
    uint64_t num_pages;  /* that the step will take */
    uint32_t num_states; /* likewise */
    uint32_t max_saves;
    uint32_t num_saves;
    uint32_t num_logits;
    uint32_t num_hidden;
    uint32_t turn; /* of the decoding requests: whose slot comes first, see schedule_batch.c */

    req **reqs;                   /* [max_reqs] */
    uint32_t *extend_prefix_lens; /* [max_reqs], and so on as in forward_batch */
    uint32_t *extend_seq_lens;
    uint32_t *extend_start_loc;
    uint32_t *seq_lens;
    rad_row *req_pool_indices;
    rad_slot *last_loc;
    uint32_t *num_drafts;     /* [max_reqs] of extend_seq_lens: tokens that are not fill_ids yet */
    uint32_t *logits_indices; /* [max_logits] */
    uint32_t *logits_reqs;    /* which request a row of logits belongs to */
    forward_pool *hidden;
    rad_token *input_ids; /* [max_tokens] */
    uint32_t *positions;
    rad_slot *out_cache_loc;
    rad_slot *window_out_cache_loc;
    rad_state *state_in; /* [max_reqs] */
    rad_state *state_out;
    forward_state_save *state_saves; /* [max_saves] ours until they are hung into the tree, or what
                                      * a draft is right up to is known */
    rad_state *draft_states;         /* [max_logits] */
} schedule_batch;

/* max_saves: of snapshots that a step can leave; 0 is fine. */
rad_status schedule_batch_init(schedule_batch *b, const rad_env *env, uint32_t max_reqs,
                               uint32_t max_tokens, uint32_t max_logits, uint32_t max_saves);
void schedule_batch_fini(schedule_batch *b, const rad_env *env);
void schedule_batch_clear(schedule_batch *b);

/* Pages that a request with `allocated` positions takes for `num_tokens` more. */
static inline uint64_t pages_for(uint32_t allocated, uint64_t num_tokens, uint32_t page_size)
{
    uint64_t ceil_before = ((uint64_t)allocated + page_size - 1) / page_size;
    return (allocated + num_tokens + page_size - 1) / page_size - ceil_before;
}

/* Plans `num_tokens` (>= 1) more of a request's fill_ids into the step, and its drafts behind them.
 * A request that reaches the end of its fill_ids and still wants tokens gets a row of logits, and
 * one for each draft, and one behind each position of its prompt whose logprobs it wants. */
void schedule_batch_add(schedule_batch *b, req *r, uint32_t num_tokens, uint32_t page_size);

/* Whether a token is chosen from this row of logits: its request's last one, and those before it
 * whose drafts may be wrong. Until the step's tokens are appended. */
static inline bool schedule_batch_chooses(const schedule_batch *b, uint32_t row)
{
    const uint32_t i = b->logits_reqs[row], drafts = b->num_drafts[i];
    return b->seq_lens[i] == req_num_fill(b->reqs[i]) + drafts &&
           b->logits_indices[row] + drafts >= b->extend_start_loc[i] + b->extend_seq_lens[i] - 1;
}

/* Pages and states that are free or can be evicted. Of what there is not, there is no end. */
kv_pages kv_room(const schedule_pools *pools);

/* Frees cached tokens until `pages` pages are free, with their window side; false, in words, when
 * that many cannot be. */
bool evict_until_free(const schedule_pools *pools, uint64_t pages, rad_error *err);

/* What a runner gets: the batch's arrays, of which num_reqs and num_tokens are filled. */
forward_batch schedule_batch_forward(const schedule_batch *b, const schedule_pools *pools,
                                     uint32_t num_reqs, uint32_t num_tokens);

/* Takes slots and states and fills the arrays. RAD_FULL: not enough pages or states even after
 * evicting (the plan was made from free + evictable, so this is a broken promise of the cache).
 * What is not RAD_OK comes in words, and no slot changed hands; working copies of states may have,
 * which their requests hold then. */
rad_status schedule_batch_prepare_for_extend(schedule_batch *b, schedule_pools *pools,
                                             forward_batch *out, rad_error *err);

/* Gives back what is left of the states that the step's saves [first, end) have. */
void schedule_batch_drop_saves(schedule_batch *b, const schedule_pools *pools, uint32_t first,
                               uint32_t end);

#endif
