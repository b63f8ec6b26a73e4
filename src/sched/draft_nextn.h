/* draft_nextn.h - what the model's own head says will come (model/nextn.h).
 *
 * The head goes on from what the model said at a request's last committed position, and from the
 * token that came of it; then from what it said itself:
 *
 *     text      | a   b   c   d | t                  t is said, and not computed yet
 *     entries   | ab  bc  cd |                       what the head knows: written by the steps
 *     pass 1                   dt   -> d1            from what the model said at d
 *     pass 2                       td1  -> d2        from what the head said there
 *
 * Entries lie in the slots of the model's own pool, one layer more, so they are shared, evicted,
 * retracted and moved between tiers with the K/V beside them. Nobody keys them by two tokens: where
 * a prefix ends that another request began, that entry is of the other one's next token, or zeros,
 * if nobody had one; and so are the last one of a prompt that was published before its answer
 * began, and those of an answer's end that were late still (NEXTN_LATE at most) when it ended or
 * went back. A guess that sees one is a little worse. (With bigram keys each match would be one token shorter,
 * and that token computed anew by all layers.) What belongs to the tree is never written: such an
 * entry, and those of guesses, go to slots behind those that are handed out (scratch).
 *
 * What the model said is kept, until its entry is written, for as many requests as are drafted for
 * at one time: they have places, from their first token on, until they end. */
#ifndef SCHED_DRAFT_NEXTN_H
#define SCHED_DRAFT_NEXTN_H

#include "sched/draft_guess.h"

#include <radish/req_to_token_pool.h>

/* Of the runner's places each request that guesses has some for what the model said at positions
 * whose entries are not written yet; behind all of them there is one for what the head said. */
enum { NEXTN_PLACES = DRAFT_FULL, NEXTN_LATE = 8 };

/* Entries cost eh_proj, K and V: of a prompt with its step, which also makes of each token what the
 * last layer does; of an answer with the pass that guesses, or NEXTN_LATE at one time where none
 * does, since they read the same weights. So a head of which so many steps kept no guess, be it
 * wrong or too dear to ask, is not fed for as many, and twice as many each time that it was in vain
 * again. */
enum { NEXTN_FED = 1 << 10, NEXTN_UNFED_MOST = 1 << 16 };

/* What a request has that guesses. */
typedef struct nextn_place {
    struct req *owner; /* NULL: nobody */
    uint32_t behind;   /* tokens behind which stands what is kept last; 0: nothing yet */
    uint32_t first_late, end_late; /* of these: positions without entries, the last is behind - 1 */
    uint32_t late[NEXTN_LATE];
    guess_kept guess;
} nextn_place;

typedef struct draft_nextn {
    runner *runner; /* not owned; NULL: its model has no head, or nobody wants its guesses */
    bool failed;    /* a pass of it did: it guesses no more */
    uint32_t first_scratch; /* slot */
    uint32_t num_scratch;
    uint64_t kept;    /* of its guesses, so far; and since then */
    uint32_t in_vain; /* so many steps in which something could be guessed */
    uint32_t unfed; /* after NEXTN_FED of these so many are without it; 0: no such time came yet */
    rad_token *next_ids; /* [max_running_requests] of a step */
    nextn_place places[NEXTN_PLACES];
    guess_chooser chooser;
    draft_guessing guessing[DRAFT_FULL];
    guess_prices prices;
} draft_nextn;

/* Pages that the model's pool has behind its num_pages, where drafts have `max_rows` rows. */
uint32_t draft_nextn_pages(const runner *model, uint32_t max_rows, uint32_t page_size);

/* Takes all its memory. RAD_E_NOMEM; fini in any case. Where the source is off: nothing. */
rad_status draft_nextn_init(struct scheduler *s, rad_error *err);
void draft_nextn_fini(struct scheduler *s);

/* Before a forward pass of the scheduler's batch: what the head is to know of it. */
void draft_nextn_tell(struct scheduler *s);

/* After it: r has said the token that was chosen from this row of logits, which stands behind all
 * that it has committed, and goes on. */
void draft_nextn_keep(struct scheduler *s, struct req *r, uint32_t row);

/* A draft_source's. */
void draft_nextn_prepare(struct scheduler *s, struct req *const *reqs, uint32_t count,
                         uint32_t room);
uint32_t draft_nextn_propose(struct scheduler *s, struct req *r, rad_token *out, uint32_t room,
                             uint32_t *grade);
void draft_nextn_release(struct scheduler *s, struct req *r);

#endif
