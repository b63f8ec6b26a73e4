/* builder.h - rules under construction, and the automaton that they become.
 *
 * Whoever reads a form of grammar (regex.c, ebnf.c, schema.c) makes rules, builds a fragment for
 * each in the one NFA, and hands the rule that begins to builder_link. Rules may name each other
 * before they have a fragment. Private to this room. */
#ifndef GRAMMAR_BUILDER_H
#define GRAMMAR_BUILDER_H

#include "grammar/automaton.h"
#include "grammar/dfa.h"

typedef struct gr_rule {
    nfa_frag frag;
    dfa d;
    const char *name; /* for words; NULL */
    uint32_t name_len;
    uint32_t shared;     /* the same in every grammar of a vocabulary: its masks are kept there */
    uint32_t component;  /* 1 + number; rules of one call each other */
    uint32_t first;      /* its first state in the automaton */
    uint32_t min, max;   /* of a rule that is repeated: a call is for so many of its texts */
    uint32_t shortest;   /* bytes that each of its texts has at least; 0: builder_shortest */
    bool defined, apart; /* apart: never copied into its callers */
    bool repeated, sure; /* sure: how many there are follows from any text */
    bool nullable, productive, recursive, copied, placed;
} gr_rule;

/* JSON whose strings stand as they are between marks, and whose names are words:
 * {key:<|"|>text<|"|>}. No string has the mark in it. */
typedef struct gr_marks {
    uint32_t token; /* the mark as a control token, or NO_RULE */
    const char *text;
    size_t len;
    dfa barred, texts, words; /* with the mark, without it; what a name may be without marks */
} gr_marks;

typedef struct gr_builder {
    gr_mem mem;
    nfa n;
    gr_rule *rules;
    uint32_t num_rules, cap_rules;
    grammar_space space;
    uint32_t unrolled; /* of grammar_limits */
    bool must_unroll;  /* it failed for that alone */
    bool closed_objects;
    bool python;                       /* JSON is written as Python does: True, False, None */
    const gr_marks *marks;             /* or with these; NULL. Set by json_set_marks */
    const struct grammar_vocab *vocab; /* whose control tokens can be named */
    uint32_t known[24];                /* rule + 1 of what many schemas use: json_rules.c */
} gr_builder;

void builder_init(gr_builder *b, const rad_env *env, const uint64_t bytes[4],
                  const grammar_limits *limits, rad_error *err);
void builder_fini(gr_builder *b);

uint32_t builder_rule(gr_builder *b);
void builder_define(gr_builder *b, uint32_t rule, nfa_frag f);

/* A rule whose calls stand for `min` to `max` (NO_END) texts of `f` one behind the other. None of
 * them is empty. How many there are must follow from the text, as a place has a stack for each way
 * to count; who is not sure of it clears rules[].sure. */
uint32_t builder_repeat(gr_builder *b, nfa_frag f, uint32_t min, uint32_t max);

/* Whether a repeat with these bounds (UINT64_MAX: no end) is to be counted; `usual`: what is not,
 * unless grammar_limits say it. */
static inline bool builder_counts(const gr_builder *b, uint64_t min, uint64_t max, uint32_t usual)
{
    return (max == UINT64_MAX ? min : max) > (b->unrolled ? b->unrolled : usual);
}
enum {
    COUNTED_PARTS = 8,  /* characters of a string, items of a list, where they are more */
    COUNTED_TIMES = 128 /* of what an expression repeats: below, each count has a mask as well */
};

/* `f`, which is the fragment made last, from `min` to `max` (NO_END) times: counted, where that can
 * be and they are many, or as nfa_repeat. What cannot be counted is found when rules are linked. */
nfa_frag builder_times(gr_builder *b, nfa_frag f, uint32_t min, uint32_t max);

/* Fails, and whoever builds begins again and counts nothing. */
bool builder_unroll(gr_builder *b);

/* A length in bytes that no text of a rule with a DFA is below: at least 1, as the empty one is no
 * text of a rule that is called (repeat.c). */
uint32_t builder_shortest(gr_builder *b, uint32_t rule, unsigned depth);

/* Of an automaton with its counters (repeat.c): whether each can be counted, which else is
 * builder_unroll; and which are simple. */
bool repeats_check(gr_builder *b, gr_automaton *a);

/* The automaton of `root` in *out, zeroed before. */
rad_status builder_link(gr_builder *b, uint32_t root, gr_automaton *out);

/* Words with the place, as "at byte 17". */
rad_status builder_refuse(gr_builder *b, rad_status status, size_t at, const char *what);

/* ---- forms of grammars; each returns mem.status and the rule that begins ---- */

rad_status regex_build(gr_builder *b, const char *text, size_t len, uint32_t *root);
rad_status ebnf_build(gr_builder *b, const char *text, size_t len, uint32_t *root);

#endif
