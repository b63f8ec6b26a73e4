/* draft_price.h - what a row of drafts costs, beside what its step takes anyway.
 *
 *     ns = step + at * (positions that the requests see) + rows * row + row_at * (that drafts see)
 *
 * So long contexts are priced, and experts, of which every row reads others: both are in what rows
 * took. Measured apart for 1, 2, 4, 8 and 16 decoding requests or more, in steps without prompts:
 * eight rows more cost another share of a step of one request than of one of eight, and a straight
 * line through both is wrong where it matters. (step_cost.h has one line for all, and prompts.)
 * What the first steps say, of which any may have been disturbed, is draft_tries.h's matter. */
#ifndef SCHED_DRAFT_PRICE_H
#define SCHED_DRAFT_PRICE_H

#include "sched/draft_tries.h"
#include "sched/step_cost.h"

enum { DRAFT_PRICES = 5, DRAFT_PRICE_TERMS = 4 };
static const double DRAFT_MARGIN = 1.1; /* prices are noisy, and what is lost is the users' */
static const float DRAFT_LIKELY = 0.5f; /* only such a guess says that something is too dear */

typedef struct draft_price {
    double step;   /* ns of a step without drafts */
    double row;    /* that one more adds, */
    double row_at; /* and for each position that it sees */
    bool guessed;  /* no row was seen yet: they are taken for free */
    bool unsure;   /* too few were: some may be tried though they seem too dear */
} draft_price;

/* A step that was seen before its price was sure. */
typedef struct draft_first {
    double x[DRAFT_PRICE_TERMS], ns;
} draft_first;

typedef struct draft_prices {
    struct draft_prices_of {
        least_squares ls;
        double spread;  /* of steps around what is expected */
        uint32_t plain; /* that were seen without rows of drafts, */
        uint32_t with;  /* and with some, once rows are sure: they are in ls */
        draft_tries row;
        draft_first first[TRIES_SURE]; /* that ls is told when they are sure */
    } of[DRAFT_PRICES];
} draft_prices;

void draft_prices_init(draft_prices *p);

/* Which of DRAFT_PRICES so many requests have: 1, 2, 4, 8, 16 or more. */
static inline uint32_t draft_price_bucket(uint32_t num_reqs)
{
    uint32_t i = 0;
    while (i + 1 < DRAFT_PRICES && num_reqs >> (i + 1))
        i++;
    return i;
}

/* A step without prompts took `ns`. */
void draft_prices_observe(draft_prices *p, const step_work *work, double ns);

/* False: too little is known of steps of so many requests. pairs: positions that they see, all
 * together. */
bool draft_prices_get(const draft_prices *p, uint32_t num_decodes, double pairs, draft_price *out);

/* Some rows may be tried again though they seem too dear. */
void draft_prices_doubt_rows(draft_prices *p, uint32_t num_decodes);

/* The price of rows of so many requests, as far as it is tried. */
static inline draft_tries *draft_prices_row(draft_prices *p, uint32_t num_decodes)
{
    return &p->of[draft_price_bucket(num_decodes)].row;
}

static inline double draft_price_of_row(const draft_price *p, double positions)
{
    return p->row + p->row_at * positions;
}

/* How many of `count` drafts pay, the first behind so many positions, of which each is right with
 * this chance if those before it are; in a step that takes *ns and brings *tokens, to which they
 * are added. */
uint32_t draft_price_pays(const draft_price *p, uint32_t positions, double right, uint32_t count,
                          double *ns, double *tokens);

#endif
