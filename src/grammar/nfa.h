/* nfa.h - automata under construction: states with edges for bytes, for nothing, and for rules.
 *
 * A fragment is what a piece of a text means: a way from `in` to `out`. Its states and edges are
 * the last ones made, from first_state and first_edge on, and no edge leaves them; so it can be
 * copied as it lies, for a{3}. Fragments are built in the order of the text and put together by
 * edges for nothing (Thompson's construction).
 *
 * Edges for ^ and $ are taken only at the beginning and at the end of a text: dfa.h resolves them
 * when it makes a DFA of one text (a pattern); in what is embedded elsewhere none are left.
 *
 * `bytes` are those that may occur (grammar.h): an edge for others is not made. Private. */
#ifndef GRAMMAR_NFA_H
#define GRAMMAR_NFA_H

#include "grammar/memory.h"

enum { NO_EDGE = UINT32_MAX };

typedef enum nfa_kind {
    NFA_EMPTY = 0,
    NFA_BYTES,
    NFA_RULE,
    NFA_BEGIN, /* ^ */
    NFA_END,   /* $ */
    NFA_NEVER  /* not to be taken */
} nfa_kind;

typedef struct nfa_edge {
    uint32_t to, next; /* of the same state; NO_EDGE */
    uint32_t rule;
    uint8_t kind, lo, hi, reserved;
} nfa_edge;

typedef struct nfa {
    gr_mem *mem;
    nfa_edge *edges;
    uint32_t num_edges, cap_edges;
    uint32_t *head; /* by state: its last edge */
    uint32_t num_states, cap_states;
    uint64_t bytes[4]; /* the set of those that may occur */
    uint32_t *stamp;   /* by state: the last walk that came there, see nfa_walk */
    uint32_t cap_stamp, now;
    uint32_t *stack; /* of that walk */
    uint32_t cap_stack;
    bool has_end; /* an edge for $ was made */
} nfa;

typedef struct nfa_frag {
    uint32_t in, out;
    uint32_t first_state, first_edge;
} nfa_frag;

void nfa_init(nfa *n, gr_mem *mem, const uint64_t bytes[4]);
void nfa_fini(nfa *n);

/* Begins a walk: no state has been met. False: mem->status. */
bool nfa_walk(nfa *n);
/* Puts a state on the stack, unless this walk met it before. */
static inline void nfa_meet(nfa *n, uint32_t *depth, uint32_t state)
{
    if (n->stamp[state] == n->now) return;
    n->stamp[state] = n->now;
    if (GR_GROW(n->mem, n->stack, n->cap_stack, (uint64_t)*depth + 1)) n->stack[(*depth)++] = state;
}

/* After a failure (n->mem->status) states are 0 and edges are not made. */
uint32_t nfa_state(nfa *n);
void nfa_edge_add(nfa *n, uint32_t from, uint32_t to, nfa_kind kind, uint8_t lo, uint8_t hi,
                  uint32_t rule);
static inline void nfa_empty(nfa *n, uint32_t from, uint32_t to)
{
    nfa_edge_add(n, from, to, NFA_EMPTY, 0, 0, 0);
}
void nfa_range(nfa *n, uint32_t from, uint32_t to, unsigned lo, unsigned hi);
/* Bytes that stand for a control token: those of the range, whatever may occur. */
void nfa_raw(nfa *n, uint32_t from, uint32_t to, unsigned lo, unsigned hi);

nfa_frag nfa_nothing(nfa *n); /* the empty text */
nfa_frag nfa_never(nfa *n);   /* no text */
nfa_frag nfa_literal(nfa *n, const char *bytes, size_t len);
static inline nfa_frag nfa_text(nfa *n, const char *text)
{
    return nfa_literal(n, text, strlen(text));
}

nfa_frag nfa_rule(nfa *n, uint32_t rule);
nfa_frag nfa_anchor(nfa *n, nfa_kind kind);
nfa_frag nfa_control(nfa *n, uint32_t token);

/* `b` is the fragment made last, `a` the one before it. */
nfa_frag nfa_concat(nfa *n, nfa_frag a, nfa_frag b);
nfa_frag nfa_either(nfa *n, nfa_frag a, nfa_frag b);

/* `a`, which is the fragment made last, from `min` to `max` times; UINT32_MAX: without end. */
nfa_frag nfa_repeat(nfa *n, nfa_frag a, uint32_t min, uint32_t max);

#endif
