/* grammar.h - which tokens may come next, so that an answer has the form that was asked for.
 *
 *     grammar_vocab    the vocabulary's bytes as a tree; made once per model
 *     grammar          a form (JSON, a JSON Schema, a regular expression, EBNF) as an automaton
 *                      over bytes with a stack; made once per request, or shared by many
 *     grammar_matcher  how far one sequence is; made once per running sequence
 *
 * Masks are exact: a token is allowed if and only if what was accepted so far, and then its bytes,
 * is the beginning of a text that the grammar has. An end token is allowed if and only if the text
 * may end here. A byte that no token of the vocabulary has to itself never occurs in such a text:
 * so whatever was begun can be ended, token by token.
 *
 * Tokens without bytes (len 0) are never allowed, but end tokens. A control token that a grammar
 * names, %token 17 in EBNF, is allowed where it stands and nowhere else, whatever its bytes say.
 *
 * Threads: a vocab and a grammar may be used by any number; references are counted. A matcher
 * belongs to one thread at a time. Masks are kept in the vocab, below cache_bytes for all its
 * grammars; a mutex guards them for the time of a lookup and not while a mask is computed.
 *
 * The same calls give the same bits, whatever was kept or evicted. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include "base/base.h"

#include <radish/types.h>

/* ---- the vocabulary ---- */

typedef struct grammar_vocab grammar_vocab;

typedef struct grammar_piece {
    const char *bytes; /* read during create only */
    uint32_t len;      /* 0: never allowed; at most GRAMMAR_MAX_PIECE */
    bool control;      /* allowed only where a grammar names it */
} grammar_piece;

enum { GRAMMAR_MAX_PIECE = 1024 };

typedef struct grammar_vocab_params {
    const grammar_piece *pieces; /* vocab_size of them, by token id */
    uint32_t vocab_size;
    const rad_token *end_tokens; /* any of them ends a text */
    uint32_t num_end_tokens;
    uint64_t cache_bytes; /* of masks, over all grammars; 0: 64 MiB */
} grammar_vocab_params;

/* RAD_E_INVAL: a piece is too long, an end token is none. O(bytes * log(vocab_size)). */
rad_status grammar_vocab_create(const rad_env *env, const grammar_vocab_params *params,
                                grammar_vocab **out, rad_error *err);
void grammar_vocab_destroy(grammar_vocab *v); /* NULL is fine; no grammar of it is left */

/* Computes what every grammar of JSON allows in strings, numbers and values, which is then the same
 * for all: for who starts a server, before the first request. RAD_E_NOMEM. */
rad_status grammar_vocab_warm(grammar_vocab *v);

/* Words of 32 bits in a mask of this vocabulary. */
static inline uint32_t grammar_mask_words(uint32_t vocab_size)
{
    return (vocab_size + 31) / 32;
}

/* ---- a grammar ---- */

typedef struct grammar grammar;

typedef enum grammar_kind {
    GRAMMAR_JSON_OBJECT = 1, /* any JSON object; no text */
    GRAMMAR_JSON_VALUE,      /* any JSON value; no text */
    GRAMMAR_JSON_SCHEMA,     /* text: a schema */
    GRAMMAR_REGEX,           /* text: a regular expression that the whole answer matches */
    GRAMMAR_EBNF,            /* text: rules, the first or the one named root begins; GBNF too */
    GRAMMAR_CHOICE           /* text: a JSON list of strings, one of which is the answer */
} grammar_kind;

/* White space between the tokens of JSON. There is none before the first and behind the last. */
typedef enum grammar_space {
    GRAMMAR_SPACE_ONE = 0, /* {"a": 1, "b": [1, 2]}: one space behind each comma and colon */
    GRAMMAR_SPACE_NONE,    /* {"a":1,"b":[1,2]} */
    GRAMMAR_SPACE_ANY /* between two tokens nothing, a space, or a newline and up to 40 blanks */
} grammar_space;

typedef struct grammar_spec {
    grammar_kind kind;
    grammar_space space;
    const char *text;
    size_t len;
    /* Objects of a schema that lists properties and says nothing of others have no others. JSON
     * Schema lets them have any. */
    bool closed_objects;
} grammar_spec;

typedef struct grammar_limits {
    uint64_t bytes;      /* while compiling, a schema's JSON included; 0: 64 MiB */
    uint32_t states;     /* of the automaton; 0: 1 << 20 */
    uint64_t steps;      /* of work; 0: 25 million, some 200 ms */
    uint32_t text_bytes; /* of the spec's text; 0: 4 MiB */
    uint32_t unrolled;   /* longer repeats are counted, where they can be; 0: 8 in schemas, 128 in
                          * expressions and rules. Changes no mask */
} grammar_limits;

/* One reference in *out. The vocab must outlive it. `limits` may be NULL.
 *
 * RAD_E_INVAL: the text is wrong; RAD_E_UNSUPPORTED: it has something that is not served, and the
 * words name the keyword or the place; RAD_E_LIMIT: it is too large; RAD_E_NOMEM. */
rad_status grammar_compile(grammar_vocab *v, const grammar_spec *spec, const grammar_limits *limits,
                           grammar **out, rad_error *err);
grammar *grammar_ref(grammar *g);
void grammar_unref(grammar *g); /* NULL is fine */

typedef struct grammar_stats {
    uint32_t states, edges, calls; /* of the automaton */
    uint32_t rules;                /* that call each other; 1: it is regular */
    uint32_t counters;             /* repeats that are counted */
    uint64_t bytes;                /* of the automaton */
    uint64_t peak_bytes;           /* while it was compiled */
    uint64_t steps;                /* of the limit */
} grammar_stats;
void grammar_get_stats(const grammar *g, grammar_stats *out);

/* ---- where a sequence is ---- */

typedef struct grammar_matcher grammar_matcher;

/* Holds a reference of its grammar. NULL: no memory. */
grammar_matcher *grammar_matcher_create(grammar *g);
grammar_matcher *grammar_matcher_copy(const grammar_matcher *m); /* a fork; NULL: no memory */
void grammar_matcher_destroy(grammar_matcher *m);                /* NULL is fine */

/* One more token of the answer, as sampled. RAD_OK; RAD_NONE: it is not allowed here and nothing
 * changed; RAD_E_LIMIT, RAD_E_NOMEM: the place has become too deep or too ambiguous to be followed,
 * and nothing changed. After an end token only grammar_rollback is of use. */
rad_status grammar_accept(grammar_matcher *m, rad_token token);

/* The last `count` tokens were not accepted after all. At least GRAMMAR_ROLLBACK are remembered;
 * RAD_E_INVAL: so many were not accepted or are forgotten. O(1). */
enum { GRAMMAR_ROLLBACK = 64 };
rad_status grammar_rollback(grammar_matcher *m, uint32_t count);

/* bits[grammar_mask_words(vocab_size)]: bit i % 32 of word i / 32 says whether token i may come.
 * RAD_OK; RAD_E_LIMIT, RAD_E_NOMEM as in grammar_accept, and then the bits mean nothing. */
rad_status grammar_mask(grammar_matcher *m, uint32_t *bits);

bool grammar_may_end(const grammar_matcher *m);   /* end tokens are allowed */
bool grammar_must_end(const grammar_matcher *m);  /* and nothing else is */
bool grammar_has_ended(const grammar_matcher *m); /* an end token was accepted */

/* Bytes that must come next, whatever is sampled: at most `room`, fewer where the text may end or
 * go on in two ways. Returns how many. */
size_t grammar_forced_bytes(grammar_matcher *m, char *bytes, size_t room);

/* The same as tokens, taking the longest token of the vocabulary again and again, to be tried as a
 * draft: the usual tokenisation may be another one, which grammar_mask allows just as well. When
 * the text must end, the first end token is the last draft. Returns how many of at most `room`. */
uint32_t grammar_forced(grammar_matcher *m, rad_token *tokens, uint32_t room);

/* ---- for tests ---- */

/* Whether bytes[0..len) are the beginning of a text (RAD_OK), and with `whole` a text: RAD_NONE
 * says no. Starts at the beginning, the matcher stays as it is. */
rad_status grammar_try(grammar *g, const char *bytes, size_t len, bool whole);

typedef struct grammar_vocab_stats {
    uint64_t bytes;       /* of the tree */
    uint64_t cache_bytes; /* of masks kept now */
    uint64_t hits, misses, evicted;
    uint64_t nodes; /* of the tree */
} grammar_vocab_stats;
void grammar_vocab_get_stats(grammar_vocab *v, grammar_vocab_stats *out);

#endif
