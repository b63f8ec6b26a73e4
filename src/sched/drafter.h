/* drafter.h - a scheduler's part of drafting: what it knows of sources and prices. */
#ifndef SCHED_DRAFTER_H
#define SCHED_DRAFTER_H

#include "sched/draft.h"
#include "sched/draft_budget.h"
#include "sched/draft_price.h"
#include "sched/draft_recent.h"

typedef struct drafter {
    uint32_t most;          /* tokens of a request in a step; 0: nothing is drafted */
    uint32_t rows;          /* of a step */
    uint32_t most_planned;  /* rows of a step so far: the next has at most four times as many */
    uint32_t planned_at;    /* the newest of `steps` with rows */
    uint32_t steps;         /* that could have had some */
    uint32_t apart;         /* so many steps lie between those in which guesses are asked for */
    uint32_t sources;       /* draft_bit of those that are on */
    bool at_any_price;      /* as many as there are, whatever they cost (tests) */
    draft_prices prices;
    draft_price price;   /* of the step that is planned */
    draft_budget budget;
    draft_budget computed; /* of what sources that compute their guesses cost, passes included */
    uint32_t requests;   /* that decode in that step, */
    uint32_t tried;      /* and its rows of drafts, if nobody is sure what they cost; */
    double tried_steps;  /* so much is taken for them already */
    uint64_t prepare_ns; /* that its sources took to prepare */
    draft_guesser given;
    draft_trust trust[DRAFT_KINDS][DRAFT_GRADES]; /* of all requests */
    ngram_pool ngrams;
    draft_recent recent; /* zeroed: it is off */
} drafter;

/* Each token of a guess of this grade is right, if those before it were, with this chance. */
float draft_chance(const drafter *d, const struct req *r, draft_kind kind, uint32_t grade);

/* It would not have paid to compute this guess: what speaks against it counts a little less, so
 * that it is tried again some time. For sources whose guesses are only known once it has cost
 * something. */
void draft_doubt(drafter *d, struct req *r, draft_kind kind, uint32_t grade);

/* r has said `said` tokens: its drafts, as far as they were right, and one more. */
void draft_learn(drafter *d, struct req *r, uint32_t said);

/* This source's rows are planned, which take so many steps' time; negative: it was right. */
void draft_spend(drafter *d, draft_kind kind, double steps);

/* What the budgets pay for a row that sees so many positions, in times of the planned step. */
double draft_row_in_steps(const drafter *d, uint32_t positions);

/* A step took `ns`. */
void draft_observe(drafter *d, const step_work *work, double ns);

/* The request has ended, or waits again. */
void draft_release(struct scheduler *s, struct req *r);

#endif
