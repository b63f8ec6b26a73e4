/* draft_prediction.h - an answer that its client foretold, and where the answer agrees with it.
 *
 *     prediction   a b c d e f g h ...          the file as it was
 *     answer       a b X Y e f | g h ...        as it becomes: behind the edit it goes on
 *                              ^ proposed
 *
 * While the answer says what the prediction says, the rest of the prediction is proposed. Where it
 * says something else (an edit), the place at which it goes on is looked for with each token that
 * follows: the nearer it is to the edit, the fewer tokens must agree. So a word that was changed
 * costs some tokens and not the rest of the file; a part that was moved is found by three tokens.
 *
 * A prediction is an index of ids that nobody changes: many requests and threads may read one. What
 * belongs to one answer is its cursor. A token of an answer costs at most PREDICTION_NEAR +
 * PREDICTION_TRIES * PREDICTION_LONGEST comparisons, whatever the ids. */
#ifndef SCHED_DRAFT_PREDICTION_H
#define SCHED_DRAFT_PREDICTION_H

#include "base/base.h"
#include <radish/types.h>

enum {
    PREDICTION_KEY = 3,   /* tokens that must agree anywhere, */
    PREDICTION_NEAR = 64, /* two within so many behind the edit, and */
    PREDICTION_NEXT = 8,  /* one within so many */
    PREDICTION_TRIES = 8,
    PREDICTION_LONGEST = 32 /* tokens that are compared */
};

typedef struct prediction prediction;

/* A copy of the ids. RAD_E_NOMEM. O(num_ids). */
rad_status prediction_create(const rad_env *env, const rad_token *ids, uint32_t num_ids,
                             prediction **out, rad_error *err);
void prediction_destroy(const rad_env *env, prediction *p); /* NULL is fine */
size_t prediction_bytes(uint32_t num_ids);                  /* that one takes */
uint32_t prediction_tokens(const prediction *p);

/* Zeroed at first: the answer has no token, and is expected to say what the prediction says. */
typedef struct prediction_cursor {
    uint32_t seen; /* tokens of the answer */
    uint32_t at;   /* of the prediction: what comes next, if it goes on */
    uint32_t same; /* tokens before `at` that the answer ends in; 0: it has left the prediction */
    uint32_t left; /* where it did so, after agreeing for some time */
} prediction_cursor;

/* answer[0..num) is the answer so far, of which the cursor has seen a beginning. Writes up to
 * `room` tokens that may follow, and how many before them agree (*match). */
uint32_t prediction_propose(const prediction *p, prediction_cursor *c, const rad_token *answer,
                            uint32_t num, rad_token *out, uint32_t room, uint32_t *match);

/* How many of the prediction's tokens this answer has: each counts once, however often the answer
 * came by. The same whatever was proposed. 0 where there is no memory to count. */
uint32_t prediction_accepted(const rad_env *env, const prediction *p, const rad_token *answer,
                             uint32_t num);

#endif
