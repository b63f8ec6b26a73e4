/* dfa_impl.h - between dfa.c and dfa_minimise.c. Private to these. */
#ifndef GRAMMAR_DFA_IMPL_H
#define GRAMMAR_DFA_IMPL_H

#include "grammar/dfa.h"

#define DFA_DROPPED UINT32_MAX

/* Replaces `d` by the automaton of what name[] tells apart: states with one name are one, those
 * named DFA_DROPPED are none. Numbered by a breadth-first walk from `start`. */
bool dfa_select(dfa *d, const uint32_t *name, uint32_t start);

/* Joins states that have the same texts before them. All states are on a way (dfa_finish). */
bool dfa_minimise(dfa *d);

#endif
