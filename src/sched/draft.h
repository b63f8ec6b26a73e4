/* draft.h - tokens that are probably right, computed before it is known.
 *
 * A decode step of eight rows costs hardly more than one of one row: it reads the same weights. So
 * a request that decodes may have further rows in its step, with tokens that somebody guessed:
 *
 *     fill_ids   | ... t |  d1  d2  d3      drafts stand behind the ids, and are not counted
 *     rows           t      d1  d2  d3
 *     sampled        d1     d2  x   (y)     each from its own logits
 *     kept           d1     d2  x           what agrees, and the token behind it
 *
 * Each row is sampled as it would be in a step of its own: with the penalties of the answer up to
 * there, under its rule's mask there, with the random number of its position. A row's logits have
 * the same bits whatever is beside it. So a draft is an answer computed earlier or nothing at all,
 * and no token, logprob or bit depends on who drafts how much (promise P1). draft_verify.c keeps
 * and gives back.
 *
 * Who guesses is a table (draft_source.h); whoever was right most often is believed. How many
 * follows from what rows cost (draft_price.h) and how often that source was right (draft.c), so
 * that guessing makes nothing slower that can be known. */
#ifndef SCHED_DRAFT_H
#define SCHED_DRAFT_H

#include "sched/draft_copy.h"
#include "sched/draft_ngram.h"
#include "sched/draft_prediction.h"
#include "sched/draft_source.h"
#include "sched/token_rule.h"

enum {
    DRAFT_MOST = TOKEN_RULE_BACK, /* tokens of one request in a step */
    DRAFT_ROWS = 32,              /* of all requests, or one's, if that is more */
    DRAFT_FULL = 32,              /* as many requests decode as fill a step: none is drafted for */
    DRAFT_GUESS = 4               /* tokens of a guess that are compared though it is not drafted */
};

struct req;
struct scheduler;

/* DRAFT_GIVEN. Up to `room` tokens that r's fill_ids may go on with; 0: it knows none. */
typedef struct draft_guesser {
    uint32_t (*propose)(void *user, const struct req *r, rad_token *out, uint32_t room);
    void *user;
} draft_guesser;

/* How often a source was right: tokens that were said, and that were not though all before them
 * were; older ones count less. */
typedef struct draft_trust {
    float right, wrong;
} draft_trust;

/* What a source said this step, drafted or not. */
typedef struct draft_guess {
    uint16_t count; /* 0: nothing */
    uint16_t grade;
    rad_token ids[DRAFT_GUESS];
} draft_guess;

/* A request's part; zeroed at first. */
typedef struct req_draft {
    uint32_t count; /* tokens behind its fill_ids that are rows of this step; 0 between steps */
    uint32_t kind;  /* draft_kind of them */
    uint32_t grade;
    uint32_t offered;    /* tokens that others guess, for those who compute theirs; */
    float offered_right; /* each is, with this chance, if those before it are */
    uint32_t reserved;
    draft_counts counts;
    draft_guess guesses[DRAFT_KINDS]; /* until the step's tokens are said */
    draft_trust own[DRAFT_KINDS][DRAFT_GRADES];
    ngram_index *ngrams; /* NULL: none yet */
    copy_cursor copy;    /* what those are asked for follows */
    prediction_cursor prediction;
} req_draft;

/* Rows of drafts that a step has at most, with so many tokens for one request. */
static inline uint32_t draft_max_rows(uint32_t most)
{
    return most ? RAD_MAX(most, (uint32_t)DRAFT_ROWS) : 0;
}

#endif
