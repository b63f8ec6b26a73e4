/* regex.h - regular expressions.
 *
 * Served: characters, . (all but line ends), classes [a-z] [^...], \d \w \s \D \W \S (ASCII), \n \r
 * \t \f \v \0, \xHH, \uHHHH (and pairs of surrogates), \u{H...}, \cX, groups (...), (?:...) and
 * (?<name>...), alternatives, * + ? {n} {n,} {n,m}, each also lazy (the same texts), ^ and $, which
 * mean the ends of the text. \p{Lu} and \P{Lu}: general categories of Unicode, also as {Letter} or
 * {gc=Lu}; Any, ASCII, and what emoji are made of: Extended_Pictographic, Emoji_Component,
 * Regional_Indicator.
 *
 * Lookahead (?=...), (?!...), but in a group that is repeated without end: regex_look.c.
 *
 * Refused in words: what is not regular (backreferences), lookbehind, word borders, flags, atomic
 * groups, possessive quantifiers.
 *
 * Private to this room. */
#ifndef GRAMMAR_REGEX_H
#define GRAMMAR_REGEX_H

#include "grammar/builder.h"
#include "grammar/chars.h"

/* A fragment of the texts that match text[0..len). `at` is where the text stands in what the user
 * wrote, for words. ^ and $ are edges of their own (nfa.h): see regex_dfa. */
nfa_frag regex_frag(gr_builder *b, nfa *n, const char *text, size_t len, chars_form form,
                    size_t at);

/* The texts in which a match is found somewhere; `whole`: which match as a whole. */
bool regex_dfa(gr_builder *b, dfa *d, const char *text, size_t len, chars_form form, bool whole);

/* The same of an expression with lookahead (regex_looks), which regex_frag does not read. */
bool regex_look_dfa(gr_builder *b, dfa *d, const char *text, size_t len, chars_form form,
                    bool whole);
bool regex_looks(const char *text, size_t len);

/* A class, of which text[*i] is behind the [: fills `set`, and *i is behind the ] then. */
bool regex_class(gr_builder *b, const char *text, size_t len, size_t *i, char_set *set, size_t at);

/* Adds what \p{name} stands for. False: it is not served. */
bool regex_property(char_set *set, const char *name, size_t len);

/* {n}, {n,} or {n,m}: true and *i behind it; false: none begins at text[*i]. */
bool regex_counts(gr_builder *b, const char *text, size_t len, size_t *i, uint32_t *min,
                  uint32_t *max, size_t at);

#endif
