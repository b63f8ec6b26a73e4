/* tool_grammar.h - a grammar of answers with calls, as a family writes them.
 *
 *     root     ::= text calls          tools may be called: what the calls are, is kept to
 *     root     ::= calls               one must be
 *     root     ::= form | calls        what is no call has a form of its own
 *     calls    ::= call-0 | call-1 ...
 *     call-0   ::= "<tool_call>\n{\"name\": \"f\", \"arguments\": " %json {...} "}\n</tool_call>"
 *
 * Markers that are control tokens of the vocabulary stand there as such (%token), since text never
 * becomes them. Free text does not contain what begins a call, so that the parser (tool_call.h)
 * finds the same calls that the grammar has. */
#ifndef TEXT_TOOL_GRAMMAR_H
#define TEXT_TOOL_GRAMMAR_H

#include "text/detokenize.h"
#include "text/tool_call.h"

typedef struct tool_grammar_params {
    const tool_format *calls; /* NULL: not known */
    const tokenizer *tok;
    const json_t *tools; /* OpenAI's list; empty: only `form` is wanted */
    const char *form;    /* EBNF of what is said where no call is; NULL: any text */
    const char *only;    /* the function that is to be called; NULL: any of them */
    bool required;       /* a call must come, and nothing before it but reasoning */
    bool one_call;
    bool strict_only; /* arguments of tools that do not say "strict" are any object */
} tool_grammar_params;

/* Whether the family tells reasoning, content and calls apart by channels, so that a form of the
 * content has to stand in one. */
bool tool_format_has_channels(const tool_format *f);

/* EBNF (grammar/grammar.h) in *out, which the caller gives to text_buf_fini. RAD_E_INVAL: there is
 * no such function, or a tool without a name that a call can have; RAD_E_UNSUPPORTED: nobody has
 * written down how this family's calls are constrained, or they cannot have one of the parameters,
 * or be kept to what is said of all of them; RAD_E_LIMIT: what parameters share ($defs) makes it
 * too long; RAD_E_NOMEM. */
rad_status tool_grammar_write(const tool_grammar_params *p, text_buf *out, rad_error *err);

#endif
