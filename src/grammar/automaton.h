/* automaton.h - a compiled grammar: states with ranges of bytes, and calls.
 *
 * A state that calls goes on in the callee's first state, with `back` on the stack; a state that
 * accepts goes on in the state on top of the stack. No rule's first state accepts, and no chain of
 * calls comes back to where it began without a byte (link.c sees to both), so what a state stands
 * for without reading is found in finitely many steps. Every state leads to the end of its rule.
 *
 *     state   0 | 1 | 2 | ...
 *     ranges  [states[s].ranges, states[s + 1].ranges), ascending, apart
 *     calls   [states[s].calls, states[s + 1].calls)
 *
 * States that read many ranges have a row of 256 next states besides.
 *
 * A rule that is repeated, from min to max times, is called once: the call's `back` is then no
 * state but the first number of a counter, and numbers from there on say how many have come. Such a
 * number is what lies on top of the stack while one more is read, above the state behind them all:
 *
 *     calls     {start of the rule, first}      counters   {first, start, back, min, max}
 *     stack     first + 2 | back | ...          two have come, the third is being read
 *
 * So a repeat costs the states of what is repeated, whatever its bounds are. States of such rules
 * are the last ones, from `repeated` on. Private to this room. */
#ifndef GRAMMAR_AUTOMATON_H
#define GRAMMAR_AUTOMATON_H

#include "grammar/grammar.h"
#include "grammar/memory.h"

#define NOWHERE UINT32_MAX

enum {
    GR_ACCEPTS = 1,
    GR_READS = 2, /* has ranges */
    GR_CALLS = 4,
    GR_TURNS = GR_ACCEPTS | GR_CALLS /* goes on elsewhere without reading */
};

#define NO_END UINT32_MAX /* of a repeat */

typedef struct gr_state {
    uint32_t ranges, calls;
    uint32_t row;    /* 1 + number of its row; 0: none */
    uint32_t shared; /* its name among masks of the vocabulary; 0: none */
    uint32_t flags;
} gr_state;

typedef struct gr_range {
    uint32_t to;
    uint8_t lo, hi;
    uint16_t reserved;
} gr_range;

typedef struct gr_call {
    uint32_t start, back;
} gr_call;

typedef struct gr_counter {
    uint32_t first;       /* the number that says: none have come */
    uint32_t start, back; /* where one begins; what is behind the last one */
    uint32_t states;      /* of the rule, from `start` on */
    uint32_t min, max;    /* max NO_END: and then counting ends at min */
    uint32_t shortest;    /* bytes that each has at least */
    bool sure, simple;    /* see repeat.c */
} gr_counter;

typedef struct gr_automaton {
    gr_state *states; /* num_states + 1 */
    gr_range *ranges;
    gr_call *calls;
    uint32_t *rows;
    gr_counter *counters; /* ascending by `first` */
    uint32_t num_states, num_ranges, num_calls, num_rows, num_counters, num_rules;
    uint32_t cap_states, cap_ranges, cap_calls, cap_rows, cap_counters;
    uint32_t start;
    uint32_t repeated; /* the first state of a rule that is repeated; num_states: there is none */
    uint32_t last; /* states before it are of a rule that nothing returns from: 0, or the root's */
    bool empty;    /* the empty text is one */
} gr_automaton;

void automaton_fini(gr_automaton *a, gr_mem *mem);

/* Whether what lies on a stack is the number of a counter. */
static inline bool automaton_counts(const gr_automaton *a, uint32_t back)
{
    return back > a->num_states;
}

/* The counter that has this number. */
static inline const gr_counter *automaton_counter(const gr_automaton *a, uint32_t number)
{
    uint32_t lo = 0, hi = a->num_counters;
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (a->counters[mid].first <= number)
            lo = mid;
        else
            hi = mid;
    }
    return &a->counters[lo];
}

/* Where byte `b` leads from state `s`, or NOWHERE. */
static inline uint32_t automaton_next(const gr_automaton *a, uint32_t s, unsigned char b)
{
    const gr_state *state = &a->states[s];
    if (state->row) return a->rows[(size_t)(state->row - 1) * 256 + b];
    for (uint32_t r = state->ranges; r < state[1].ranges; r++)
        if (b <= a->ranges[r].hi) return b >= a->ranges[r].lo ? a->ranges[r].to : NOWHERE;
    return NOWHERE;
}

#endif
