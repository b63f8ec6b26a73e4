/* history_rig.h - what random histories over tiers of either kind are made of: dice, faults in the
 * copies and in the stores, prompts that share documents, and what it came to. */
#ifndef TESTS_HISTORY_RIG_H
#define TESTS_HISTORY_RIG_H

#include "test.h"

#include "base/mix64.h"
#include "gear/device_sim.h"
#include "gear/storage_mem.h"

enum { REQS = 6, DOCS = 5, DOC_TOKENS = 150, OWN_TOKENS = 30 };

typedef enum req_stage { IDLE, ARRIVED, ADMITTED, COMPUTED } req_stage;

typedef struct dice {
    uint64_t rng;
    uint64_t fault_every;       /* 0: none */
    atomic_uint_fast64_t fates; /* drawn so far; any thread */
    rad_token docs[DOCS][DOC_TOKENS];
} dice;

static inline uint32_t below(dice *d, uint32_t n)
{
    return (uint32_t)(test_random(&d->rng) % n);
}

/* Documents begin alike, some longer than others. */
static inline void dice_draw_docs(dice *d)
{
    for (int doc = 0; doc < DOCS; doc++)
        for (int t = 0; t < DOC_TOKENS; t++)
            d->docs[doc][t] = doc && t < 40 * (doc % 3) ? d->docs[0][t] : (rad_token)below(d, 50);
}

static inline const char *dice_draw_name(dice *d)
{
    static const char *const names[] = {NULL, "a", "b"};
    return below(d, 6) ? NULL : names[below(d, 3)];
}

/* The front of a document and some tokens of its own, DOC_TOKENS + OWN_TOKENS at most; returns how
 * many, 2 at least. */
static inline uint32_t dice_draw_prompt(dice *d, rad_token *tokens)
{
    uint32_t shared = 1 + below(d, DOC_TOKENS), own = below(d, OWN_TOKENS);
    memcpy(tokens, d->docs[below(d, DOCS)], shared * sizeof *tokens);
    for (uint32_t t = 0; t < own; t++)
        tokens[shared + t] = (rad_token)below(d, 3);
    if (shared + own < 2) tokens[1] = 1;
    return RAD_MAX(shared + own, 2u);
}

static inline bool dice_strike(dice *d, uint64_t *what)
{
    uint64_t drawn = mix64(atomic_fetch_add(&d->fates, 1) + d->fault_every);
    *what = drawn >> 32;
    return d->fault_every && drawn % d->fault_every == 0;
}

static inline sim_fate dice_copy_fate(void *user, uint64_t copy)
{
    uint64_t what;
    (void)copy;
    return dice_strike(user, &what) ? (what % 2 ? SIM_FAIL : SIM_TORN) : SIM_COPY;
}

static inline storage_fate dice_store_fate(void *user, storage_call call, uint64_t number)
{
    uint64_t what;
    (void)call;
    (void)number;
    return dice_strike(user, &what) ? (storage_fate)(1 + what % 4) : STORAGE_WELL;
}

/* From now on the dice say what becomes of copies and of calls of these stores. */
static inline void dice_rule(dice *d, device_sim *sim, storage_mem *stores, int num_stores)
{
    sim->script = dice_copy_fate;
    sim->user = d;
    for (int i = 0; i < num_stores; i++) {
        stores[i].script = dice_store_fate;
        stores[i].user = d;
    }
}

/* What a history, or many of them, came to. */
typedef struct tally {
    uint64_t written, loaded, windows, fetched; /* tokens; windows: loaded of the window side */
    uint64_t states, fetched_states;            /* loaded, and from storage */
    uint64_t failed, bad;                       /* calls, records */
    uint64_t io;                                /* requests hit by a failure */
    uint64_t restarts;
} tally;

static inline void tally_add(tally *sum, const tally *h)
{
    sum->written += h->written;
    sum->loaded += h->loaded;
    sum->windows += h->windows;
    sum->states += h->states;
    sum->fetched_states += h->fetched_states;
    sum->fetched += h->fetched;
    sum->failed += h->failed;
    sum->bad += h->bad;
    sum->io += h->io;
    sum->restarts += h->restarts;
}

static inline void tally_print(const tally *t)
{
    print_message("  %llu tokens written, %llu loaded", (unsigned long long)t->written,
                  (unsigned long long)t->loaded);
    if (t->states)
        print_message(" (%llu states, %llu fetched)", (unsigned long long)t->states,
                      (unsigned long long)t->fetched_states);
    if (t->windows) print_message(" (%llu of window)", (unsigned long long)t->windows);
    print_message(", %llu fetched; %llu calls failed, %llu bad pages, %llu requests hit by them, "
                  "%llu restarts\n",
                  (unsigned long long)t->fetched, (unsigned long long)t->failed,
                  (unsigned long long)t->bad, (unsigned long long)t->io,
                  (unsigned long long)t->restarts);
}

#endif
