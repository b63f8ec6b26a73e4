/* draft_guess.h - what sources share that compute their guesses, a token behind another: how many
 * tokens pay, and how the next one is chosen.
 *
 * It is chosen as the request chooses its own: with its temperature, its random number of that
 * position, its penalties and its rule's mask. So where a source agrees with the model about
 * probabilities, it agrees about the token, at any temperature.
 *
 * Paying: a step of D requests takes C ns and brings D tokens. A token more for each of n requests
 * takes P (a pass of the source) and n rows of the model, and brings the chance that it and those
 * before it are right. As in draft.c it pays as long as it brings tokens at a better rate, and at a
 * better one than with what others guess, who need no pass. What all of it may cost in vain, passes
 * and rows, is bounded by a budget of its own (drafter.computed).
 *
 * While a price is not sure (draft_tries.h), a likely token is guessed though it would not pay; and
 * once in a while when it has not paid for long. */
#ifndef SCHED_DRAFT_GUESS_H
#define SCHED_DRAFT_GUESS_H

#include "model/runner.h"
#include "sched/draft.h"
#include "sched/draft_price.h"
#include "sched/draft_tries.h"

/* Of a token for 1, 2, 4, 8 and 16 requests or more. */
typedef struct guess_prices {
    draft_tries of[DRAFT_PRICES];
} guess_prices;

draft_tries *guess_price_of(guess_prices *p, uint32_t num_reqs);

/* A token for so many requests took ns. */
void guess_passed(struct scheduler *s, guess_prices *prices, uint32_t num_reqs, double ns);

/* Of one request. */
typedef struct draft_guessing {
    struct req *r;
    uint32_t room;     /* tokens that there is a use for */
    float chance;      /* that one is right, if those before it were */
    uint32_t count;    /* of tokens so far; they stand behind fill_ids, too, until the end */
    uint32_t accepted; /* by its rule, to be taken back */
    bool stopped;
    rad_token tokens[DRAFT_MOST];
    rad_token tail[DRAFT_MOST]; /* what stood behind its fill_ids */
} draft_guessing;

/* Nothing is guessed of r yet, by a source of this kind; it has a use for `room` tokens. */
void guessing_init(draft_guessing *g, const struct scheduler *s, struct req *r, draft_kind kind,
                   uint32_t room);

/* What came of it, for propose. Zeroed: nothing. */
typedef struct guess_kept {
    uint32_t at;    /* it stands behind so many ids: */
    uint32_t count; /* so many tokens */
    rad_token tokens[DRAFT_MOST];
} guess_kept;

void guess_keep(guess_kept *kept, const draft_guessing *g);
uint32_t guess_propose(const guess_kept *kept, const struct req *r, rad_token *out, uint32_t room);

/* How many tokens each of these requests of the planned step should guess; *saves: ns for each
 * token that one of them says. most: of each. */
uint32_t guess_best_count(struct scheduler *s, guess_prices *prices, draft_guessing *const *all,
                          uint32_t count, uint32_t most, double *saves);

/* Chooses the tokens behind a pass of `runner`, whose tokens are the model's, or the first of them.
 */
typedef struct guess_chooser {
    runner *runner;
    uint32_t vocab_size;  /* of the model */
    uint32_t words;       /* of a mask */
    uint32_t *bits;       /* [DRAFT_FULL][words] */
    char *sample_scratch; /* NULL: the runner samples */
    uint32_t count;       /* rows of the pass */
    draft_guessing *who[DRAFT_FULL];
    runner_sample samples[DRAFT_FULL];
    sampling_params plain[DRAFT_FULL]; /* without what names tokens, where vocabularies differ */
    rad_token next[DRAFT_FULL];
} guess_chooser;

/* RAD_E_NOMEM; fini in any case. */
rad_status guess_chooser_init(guess_chooser *c, const rad_env *env, runner *guesser,
                              uint32_t vocab_size);
void guess_chooser_fini(guess_chooser *c, const rad_env *env);

/* What stands behind the requests' fill_ids is put aside, and put back. */
void guess_begin(draft_guessing *const *all, uint32_t count);
void guess_end(draft_guessing *const *all, uint32_t count);

/* A pass: begin, add whom it is for, in the order of its rows of logits (false: it has stopped),
 * and take what comes of them. False: nothing could be chosen, and all of them have stopped. */
void guess_begin_pass(guess_chooser *c);
bool guess_add(guess_chooser *c, draft_guessing *g);
bool guess_take(struct scheduler *s, guess_chooser *c, const float *logits);

#endif
