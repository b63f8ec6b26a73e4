/* draft_model.h - a small model that says what the large one will probably say.
 *
 * It computes batches of its own, on the scheduler's thread, before a step: what it has not seen of
 * a request's text (catching up), then a token behind another for all requests that draft
 * (draft_guess.h).
 *
 * Its K and V lie in a pool of their own that has the large model's slots: what it computed of the
 * token in slot i stands in slot i. So rows, tree, eviction and retraction hold for both, and a
 * cached prefix needs no prompt of the small model either. Nobody tells it what becomes of a slot;
 * instead each slot of its pool has a mark, which says of what text the K/V there are:
 *
 *     text     | the | cat | sat |        mark = hash(mark before it, token), begun with a secret
 *     row      |  7  |  3  |  9  |        and the request's namespace
 *     marks[]    a     b     x            the cat is known; sat is to be computed, into slot 9
 *
 * So K/V that were evicted, loaded from a tier or exchanged for another's are found out where they
 * stand, whoever did it, and nothing that was computed in one namespace is looked at in another.
 *
 * A guess is written behind the large model's slots, to slots that no row has (scratch); what of it
 * came true is copied to where the request's tokens went.
 *
 * Everything is paid for: how many tokens are guessed follows from what its own steps take, from
 * what rows cost and from how often it was right; a prompt is only caught up with where the answer
 * to come is long enough to win the time back. */
#ifndef SCHED_DRAFT_MODEL_H
#define SCHED_DRAFT_MODEL_H

#include "base/hash_key.h"
#include "model/runner.h"
#include "sched/draft_guess.h"

#include <radish/req_to_token_pool.h>

enum {
    DRAFT_MODEL_TOKENS = 512,       /* that the small model's runner takes at one time, */
    DRAFT_MODEL_LOGITS = DRAFT_FULL /* and rows of logits */
};

/* Of a request, by its row. Zeroed: nothing is known. */
typedef struct draft_model_req {
    bool begun;
    bool never;     /* it has a token that the small model does not, or is too long for it */
    uint32_t known; /* positions of the row whose K/V are in their slots */
    uint64_t mark;  /* of the last of them; of the namespace where there are none */
    guess_kept guess;
    uint32_t computed; /* of fill_ids[guess.at - 1] and guess.tokens so many have K/V in */
    uint32_t scratch;  /* the slots from this one of the scratch on */
} draft_model_req;

typedef struct draft_model {
    runner *runner; /* not owned; NULL: there is none */
    bool failed;    /* a step of it did: it guesses no more */
    rad_token_to_kv_pool *kv_pool;
    rad_token_to_kv_pool *window_kv_pool; /* of layers with heads of another shape; or NULL */
    uint64_t *marks;                      /* [num_slots] */
    uint32_t num_slots;                   /* of the large model's, scratch not counted */
    uint32_t num_scratch;
    draft_model_req *reqs; /* [num_rows + 1] */
    uint32_t num_rows;
    uint32_t num_pending;
    struct req *pending[DRAFT_FULL]; /* whose guesses lie in the scratch */
    rad_row pending_rows[DRAFT_FULL];
    hash_key key;
    guess_chooser chooser;
    draft_guessing guessing[DRAFT_FULL]; /* of a step */

    /* A batch. */
    rad_token input_ids[DRAFT_MODEL_TOKENS];
    uint32_t positions[DRAFT_MODEL_TOKENS];
    rad_slot out_cache_loc[DRAFT_MODEL_TOKENS];
    rad_row rows[DRAFT_FULL];
    uint32_t prefix_lens[DRAFT_FULL], seq_lens[DRAFT_FULL];
    uint32_t extend_lens[DRAFT_FULL], starts[DRAFT_FULL], logits_indices[DRAFT_FULL];
    uint32_t num_reqs, num_tokens;

    guess_prices steps;   /* of a token */
    draft_tries token;    /* of a text that is caught up with */
    double answer_tokens; /* the mean of answers that ended */
} draft_model;

/* Takes all its memory, beside the scheduler's pools, which are there. RAD_E_UNSUPPORTED in words
 * for a runner with recurrent layers; RAD_E_NOMEM. fini in any case. No draft_runner: nothing. */
rad_status draft_model_init(struct scheduler *s, rad_error *err);
void draft_model_fini(struct scheduler *s);

/* Bytes that a token of the large model's pool takes besides, with this small one. */
size_t draft_model_token_bytes(const runner_info *small);

/* A draft_source's. */
void draft_model_prepare(struct scheduler *s, struct req *const *reqs, uint32_t count,
                         uint32_t room);
uint32_t draft_model_propose(struct scheduler *s, struct req *r, rad_token *out, uint32_t room,
                             uint32_t *grade);
void draft_model_release(struct scheduler *s, struct req *r);

#endif
