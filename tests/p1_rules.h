/* p1_rules.h - what histories may say: anything that a hash allows (hash_rule.h), or what a grammar
 * does, a JSON Schema or a regular expression over a vocabulary of ASCII and some longer tokens. */
#ifndef TESTS_P1_RULES_H
#define TESTS_P1_RULES_H

#include "hash_rule.h"
#include "test.h"

#include "sched/grammar_rule.h"

enum { P1_GRAMMARS = 2, P1_LETTERS = 128, P1_PIECE = 8 };

/* Of one model's vocabulary. Zeroed: there are none yet. */
typedef struct p1_grammars {
    grammar_vocab *vocab;
    grammar *all[P1_GRAMMARS];
} p1_grammars;

/* One history's; zeroed at first. */
typedef struct p1_rule {
    hash_rule hash;
    grammar_rule grammar;
    grammar *of; /* NULL: it is the hash's */
} p1_rule;

/* Tokens: a letter each, then words, then pairs of letters; the last one ends an answer. */
static inline void p1_grammars_make(p1_grammars *g, uint32_t vocab_size)
{
    static const char *const words[] = {"{\"", "\": ", "\", \"", "name", "kind", "\"}", "true",
                                        "12",  "ab",   "cd",     "[",    "]",    ", ",  "-"};
    static const char schema[] =
        "{\"type\": \"object\", \"additionalProperties\": false, \"properties\": {"
        "\"name\": {\"enum\": [\"ab\", \"cd\"]}, \"kind\": {\"type\": \"boolean\"}, "
        "\"of\": {\"type\": \"array\", \"items\": {\"type\": \"integer\"}}}, "
        "\"required\": [\"name\", \"kind\"]}";
    static const char expression[] = "(ab|cd|[0-9]{1,3}-)*[x-z]{2,5}";
    const grammar_spec specs[P1_GRAMMARS] = {
        {.kind = GRAMMAR_JSON_SCHEMA, .text = schema, .len = strlen(schema)},
        {.kind = GRAMMAR_REGEX, .text = expression, .len = strlen(expression)}};
    rad_error err = {0};
    char(*bytes)[P1_PIECE] = calloc(vocab_size, sizeof *bytes);
    grammar_piece *pieces = calloc(vocab_size, sizeof *pieces);
    const rad_token end = (rad_token)vocab_size - 1;
    CHECK(bytes && pieces && vocab_size > P1_LETTERS + RAD_COUNT(words));
    for (uint32_t i = 1; i < vocab_size; i++) {
        const uint32_t word = i - P1_LETTERS;
        if (i < P1_LETTERS)
            bytes[i][0] = (char)i;
        else if (word < RAD_COUNT(words))
            snprintf(bytes[i], P1_PIECE, "%s", words[word]);
        else
            snprintf(bytes[i], P1_PIECE, "%c%c", (char)('a' + i % 26), (char)('a' + i / 26 % 26));
        pieces[i] = (grammar_piece){.bytes = bytes[i],
                                    .len = (uint32_t)strlen(bytes[i]),
                                    .control = i == (uint32_t)end};
    }
    const grammar_vocab_params params = {
        .pieces = pieces, .vocab_size = vocab_size, .end_tokens = &end, .num_end_tokens = 1};
    CHECK_OK(grammar_vocab_create(NULL, &params, &g->vocab, NULL));
    for (int i = 0; i < P1_GRAMMARS; i++) {
        const rad_status status = grammar_compile(g->vocab, &specs[i], NULL, &g->all[i], &err);
        CHECKF(status == RAD_OK, "%s\n", err.text);
    }
    free(pieces);
    free(bytes);
}

static inline void p1_grammars_fini(p1_grammars *g)
{
    for (int i = 0; i < P1_GRAMMARS; i++)
        grammar_unref(g->all[i]);
    grammar_vocab_destroy(g->vocab);
    *g = (p1_grammars){0};
}

/* Either kind in half of the cases; a grammar of g's. */
static inline token_rule *p1_rule_draw(p1_rule *r, uint64_t *state, p1_grammars *g,
                                       uint32_t vocab_size, uint32_t most_new)
{
    if (test_random(state) % 2)
        return hash_rule_init(&r->hash, test_random(state), vocab_size,
                              test_random(state) % 2 ? (uint32_t)(test_random(state) % most_new)
                                                     : UINT32_MAX,
                              5);
    if (!g->vocab) p1_grammars_make(g, vocab_size);
    r->of = g->all[test_random(state) % P1_GRAMMARS];
    CHECK_OK(grammar_rule_init(&r->grammar, r->of, NULL));
    return &r->grammar.base;
}

/* The same rule at the beginning of an answer; `copy` is the caller's to end. */
static inline token_rule *p1_rule_anew(const p1_rule *r, p1_rule *copy)
{
    *copy = (p1_rule){.of = r->of};
    if (r->of) {
        CHECK_OK(grammar_rule_init(&copy->grammar, r->of, NULL));
        return &copy->grammar.base;
    }
    copy->hash = r->hash;
    copy->hash.count = 0;
    return &copy->hash.base;
}

static inline void p1_rule_fini(p1_rule *r)
{
    if (r->of) grammar_rule_fini(&r->grammar);
    *r = (p1_rule){0};
}

#endif
