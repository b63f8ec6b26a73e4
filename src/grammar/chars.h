/* chars.h - sets of characters, and their bytes as UTF-8 or as JSON writes them in a string.
 *
 * In a JSON string each character of a pattern, a name or a value of an enum is written in one way,
 * so that two texts are equal if and only if their bytes are: as itself, but for " and \ and what
 * is below U+0020, which are \" \\ \b \f \n \r \t or \u00xx with small letters. Private. */
#ifndef GRAMMAR_CHARS_H
#define GRAMMAR_CHARS_H

#include "grammar/nfa.h"

enum { CHARS_LAST = 0x10ffff };

typedef struct char_range {
    uint32_t lo, hi;
} char_range;

typedef struct char_set {
    gr_mem *mem;
    char_range *ranges;
    uint32_t count, cap;
} char_set;

void chars_init(char_set *c, gr_mem *mem);
void chars_fini(char_set *c);
void chars_add(char_set *c, uint32_t lo, uint32_t hi);
void chars_add_all(char_set *c, const char_set *from);
void chars_invert(char_set *c); /* of all characters; surrogates are none */

typedef enum chars_form { CHARS_UTF8, CHARS_JSON } chars_form;

/* One character of the set. Sorts the set. */
nfa_frag chars_frag(nfa *n, char_set *c, chars_form form);

/* A text as a literal: text[0..len) is UTF-8. Appends to an NFA from `from`, returns its end. */
uint32_t chars_append(nfa *n, uint32_t from, uint32_t code, chars_form form);
nfa_frag chars_literal(nfa *n, const char *text, size_t len, chars_form form);

/* Its bytes in out[0..6]; returns how many. */
uint32_t chars_bytes(uint32_t code, chars_form form, unsigned char out[8]);

#endif
