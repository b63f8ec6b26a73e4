/* dfa.h - deterministic automata over bytes, and over calls of rules.
 *
 * State 0 is where it begins. A state's edges are ranges of bytes, ascending and apart from each
 * other, and behind them calls, by rule; so that a state knows for each byte and for each rule at
 * most one next state. Every state can be reached and leads to an accepting one, but state 0 of
 * the automaton of no text. Private. */
#ifndef GRAMMAR_DFA_H
#define GRAMMAR_DFA_H

#include "grammar/nfa.h"

typedef struct dfa_edge {
    uint32_t to;
    uint32_t rule; /* NO_RULE: bytes */
    uint8_t lo, hi;
    uint16_t reserved;
} dfa_edge;
#define NO_RULE UINT32_MAX

typedef struct dfa {
    gr_mem *mem;
    dfa_edge *edges;
    uint32_t num_edges, cap_edges;
    uint32_t *first; /* [num_states + 1], of edges */
    uint32_t cap_first;
    uint8_t *accepts; /* by state */
    uint32_t num_states, cap_states;
} dfa;

void dfa_fini(dfa *d);

/* Of all texts from f.in to f.out; minimised. *d is written anew; false: mem->status,
 * and *d holds nothing. */
bool dfa_make(dfa *d, nfa *n, nfa_frag f);

/* Both, or the first without the second. Without calls. */
bool dfa_both(dfa *d, const dfa *a, const dfa *b);
bool dfa_without(dfa *d, const dfa *a, const dfa *b);

bool dfa_is_never(const dfa *d); /* it has no text */
/* Where byte `b` leads from state `s`; NO_RULE: nowhere. Without calls. */
uint32_t dfa_step(const dfa *d, uint32_t s, unsigned char b);

nfa_frag dfa_embed(nfa *n, const dfa *d);

/* For who builds one by hand, state by state: after dfa_begin, for each state its edges, then
 * dfa_state. dfa_finish removes what leads nowhere and minimises. */
void dfa_begin(dfa *d, gr_mem *mem);
void dfa_add(dfa *d, unsigned lo, unsigned hi, uint32_t rule, uint32_t to);
void dfa_state(dfa *d, bool accepts);
bool dfa_finish(dfa *d);

#endif
