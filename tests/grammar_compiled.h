/* grammar_compiled.h - for tests of grammars: one that is compiled, which texts it has, and a
 * random vocabulary. */
#ifndef TESTS_GRAMMAR_COMPILED_H
#define TESTS_GRAMMAR_COMPILED_H

#include "grammar_rig.h"
#include "test.h"

static inline grammar *rig_compile(rig_vocab *r, grammar_kind kind, const char *text,
                                   rad_error *err)
{
    grammar_spec spec = {.kind = kind, .text = text, .len = text ? strlen(text) : 0};
    grammar *g = NULL;
    rad_status status = grammar_compile(r->v, &spec, NULL, &g, err);
    CHECKF((status == RAD_OK) == (g != NULL), "%s: status %d\n", text ? text : "no text", status);
    return g;
}

static inline bool rig_matches(grammar *g, const char *text)
{
    return grammar_try(g, text, strlen(text), true) == RAD_OK;
}

static inline bool rig_begins(grammar *g, const char *text)
{
    return grammar_try(g, text, strlen(text), false) == RAD_OK;
}

/* Sixty pieces of a, b and c. */
static inline void rig_random(rig_vocab *r, uint64_t *seed)
{
    rig_begin(r);
    for (int i = 0; i < 60; i++) {
        char piece[8];
        size_t len = 1 + test_random(seed) % 5;
        for (size_t k = 0; k < len; k++)
            piece[k] = (char)('a' + test_random(seed) % 3);
        rig_add(r, piece, len);
    }
    CHECK_OK(rig_finish(r, NULL, test_random(seed) % 4 ? 0 : 4096));
}

#endif
