/* tool_grammar_impl.h - between tool_grammar.c, which writes what stands around calls, and
 * tool_grammar_families.c, which writes them. Private to these. */
#ifndef TEXT_TOOL_GRAMMAR_IMPL_H
#define TEXT_TOOL_GRAMMAR_IMPL_H

#include "text/tool_call_impl.h"
#include "text/tool_grammar.h"

typedef struct tool_writer {
    const tool_grammar_params *p;
    text_buf *out;
    size_t ways; /* of calls in Python so far: their rules' names */
    bool failed; /* no memory, or */
    bool too_long;
    /* A parameter that this family's calls cannot have: its name, or that of what its schema refers
     * to, has no place in them. NULL: there is none. */
    const char *unsaid;
    /* What its schema says of all parameters at once and nothing here keeps to; NULL: there is
     * none. */
    const char *unkept;
} tool_writer;

/* Besides text, words have: */
#define SOME_DIGITS "\1"
#define MAYBE_LINE  "\2" /* a newline, or nothing */

typedef struct tool_family {
    const char *name;
    /* Around all calls; between NULL: there is one. Two ways, where models of the family differ and
     * the vocabulary does not say which this is; before[1] NULL: one. */
    const char *before[2], *between, *after[2];
    void (*call)(tool_writer *w, const json_t *function, const json_t *name);
    const void *words; /* of the call's kind */
    const char *token; /* the row is of vocabularies with this control token; NULL: of all */
} tool_family;

/* NULL: calls of this format cannot be written. */
const tool_family *tool_family_of(const tool_grammar_params *p);

void tool_put(tool_writer *w, const char *text); /* EBNF */
RAD_PRINTF(2, 3) void tool_say(tool_writer *w, const char *format, ...);
void tool_quoted(tool_writer *w, const char *text, size_t len); /* what is written, in quotes */
void tool_words(tool_writer *w, const char *text);              /* the same with words' marks */
void tool_json(tool_writer *w, const json_t *value);
void tool_regex(tool_writer *w, const char *text); /* the text, in a regular expression */

static inline bool tool_is_strict(const tool_writer *w, const json_t *function)
{
    return !w->p->strict_only || json_is_true(json_object_get(function, "strict"));
}

#endif
