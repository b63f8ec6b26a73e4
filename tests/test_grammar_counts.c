/* test_grammar_counts.c - repeats that are counted, beside the same ones written out as states, and
 * around bounds that are too far for that. */
#include "grammar_compiled.h"

static void make_vocab(rig_vocab *r, uint64_t cache_bytes)
{
    static const char *const pieces[] = {"\"",
                                         "\",",
                                         "\", \"",
                                         "\"]",
                                         "\"}",
                                         "ab",
                                         "ab\"",
                                         "abc",
                                         "a\", ",
                                         "aaaa",
                                         "\\n",
                                         "\\",
                                         "\\u00",
                                         "e9",
                                         "\\n\\",
                                         "n\"",
                                         "\xc3",
                                         "\xa9",
                                         "\xc3\xa9",
                                         "\xc3\xa9\xc3\xa9",
                                         "\xc3\xa9\"",
                                         "\xe6\x97\xa5",
                                         "\xe6\x97",
                                         "\xa5\xe6",
                                         "\xa5",
                                         "\xf0\x9f",
                                         "\x98\x80",
                                         "a\xe6",
                                         "1",
                                         "12",
                                         "1,",
                                         ", 1",
                                         "1]",
                                         "], ",
                                         ", ",
                                         "[\"",
                                         "[",
                                         "{\"",
                                         "\": ",
                                         "a, b",
                                         "null",
                                         " ",
                                         "  ",
                                         "\n",
                                         "aaaaaaaaaaaa",
                                         "\\\"",
                                         "ud83d",
                                         "\\ude00",
                                         "\\ud83d\\ude00",
                                         "]",
                                         "]}",
                                         "x",
                                         "xx",
                                         "xa",
                                         "ax",
                                         "bcde",
                                         "; ",
                                         "a;",
                                         "0123456"};
    rig_begin(r);
    for (size_t i = 0; i < RAD_COUNT(pieces); i++)
        rig_add(r, pieces[i], strlen(pieces[i]));
    CHECK_OK(rig_finish(r, NULL, cache_bytes));
}

static grammar *compile(rig_vocab *r, grammar_kind kind, grammar_space space, const char *text,
                        uint32_t unrolled)
{
    rad_error err = {0};
    grammar_limits limits = {.unrolled = unrolled, .steps = 2000000};
    grammar_spec spec = {.kind = kind, .space = space, .text = text, .len = strlen(text)};
    grammar *g = NULL;
    rad_status status = grammar_compile(r->v, &spec, &limits, &g, &err);
    CHECKF(status == RAD_OK || strstr(err.text, "no text") || strstr(err.text, "steps"), "%s: %s\n",
           text, err.text);
    return g;
}

/* ---- the same masks as states ---- */

static void random_schema(char *out, uint64_t *seed)
{
    static const char *const items[] = {"{\"type\":\"integer\"}",
                                        "{\"type\":\"string\",\"maxLength\":3}",
                                        "{\"enum\":[\"a\",\"ab\",1]}",
                                        "{\"type\":\"string\"}",
                                        "{\"type\":\"array\",\"items\":{\"type\":\"null\"},"
                                        "\"maxItems\":3}",
                                        "{\"type\":[\"string\",\"integer\"],\"minLength\":2}"};
    unsigned a = test_random(seed) % 6, b = a + test_random(seed) % 7, kind = test_random(seed) % 8;
    char low[40] = "", high[40] = "";
    const char *what = kind < 4 ? "Length" : "Items";
    if (a) sprintf(low, ",\"min%s\":%u", what, a);
    if (b < 11 || !a) sprintf(high, ",\"max%s\":%u", what, b);
    if (kind < 2) {
        sprintf(out, "{\"type\":\"string\"%s%s}", low, high);
    } else if (kind == 2) {
        sprintf(out,
                "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"%s%s},"
                "\"b\":{\"type\":\"string\"%s%s}},\"additionalProperties\":false}",
                low, high, high, low);
    } else if (kind == 3) {
        sprintf(out,
                "{\"anyOf\":[{\"type\":\"string\"%s%s},{\"const\":\"ab\"},"
                "{\"type\":\"string\",\"maxLength\":%u}]}",
                low, high, b + 2);
    } else if (kind < 7) {
        const char *item = items[test_random(seed) % RAD_COUNT(items)];
        const bool prefix = test_random(seed) % 3 == 0;
        sprintf(out, "{\"type\":\"array\",%s\"items\":%s%s%s}",
                prefix ? "\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"string\"}]," : "", item,
                low, high);
    } else {
        sprintf(out, "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}%s,\"maxItems\":%u}", low,
                b + 3);
    }
}

/* Follows both with the same tokens: at each place they allow the same ones, and say the same. */
static void check_same(rig_vocab *r, grammar *counted, grammar *states, const char *text,
                       uint64_t *seed)
{
    const uint64_t begun = *seed;
    uint32_t bits[RIG_TOKENS / 32], want[RIG_TOKENS / 32];
    const uint32_t words = grammar_mask_words(r->count + 2);
    grammar_matcher *a = grammar_matcher_create(counted), *b = grammar_matcher_create(states);
    CHECK(a && b);
    for (int step = 0; step < 40; step++) {
        rad_token allowed[RIG_TOKENS];
        uint32_t count = 0;
        CHECK_OK(grammar_mask(a, bits));
        CHECK_OK(grammar_mask(b, want));
        for (uint32_t t = 0; t < r->count + 2; t++) {
            CHECKF(rig_bit(bits, t) == rig_bit(want, t),
                   "%s: step %d, token '%.*s' (%u) is %sallowed, seed %llu\n", text, step,
                   (int)r->pieces[t].len, r->pieces[t].bytes, t, rig_bit(bits, t) ? "" : "not ",
                   (unsigned long long)begun);
            if (rig_bit(bits, t)) allowed[count++] = (rad_token)t;
        }
        CHECK(memcmp(bits, want, words * sizeof *bits) == 0);
        CHECKF(grammar_may_end(a) == grammar_may_end(b) &&
                   grammar_must_end(a) == grammar_must_end(b),
               "%s: step %d, seed %llu\n", text, step, (unsigned long long)begun);
        if (grammar_has_ended(a)) break;
        CHECK(count);
        const rad_token other = (rad_token)(test_random(seed) % (r->count + 2));
        const rad_status status = grammar_accept(a, other);
        CHECK(status == (rig_bit(bits, (uint32_t)other) ? RAD_OK : RAD_NONE));
        if (!status) CHECK_OK(grammar_rollback(a, 1));
        /* Longer tokens more often: single bytes are most of the vocabulary. */
        rad_token next = allowed[test_random(seed) % count];
        for (int i = 0; i < 2 && next < 256; i++)
            next = allowed[test_random(seed) % count];
        if (step % 8 == 7) {
            grammar_matcher *fork = grammar_matcher_copy(a);
            CHECK(fork != NULL);
            grammar_matcher_destroy(a);
            a = fork;
        }
        CHECK_OK(grammar_accept(a, next));
        CHECK_OK(grammar_accept(b, next));
    }
    grammar_matcher_destroy(a);
    grammar_matcher_destroy(b);
}

/* A piece that is repeated, and what may stand behind it; EBNF writes some otherwise. */
static size_t random_repeat(char *out, bool ebnf, int depth, uint64_t *seed)
{
    static const char *const regex[] = {"[a-c]",  "x",        "[^;]",  "(ab|c)", "(a|aa)",
                                        "\\w",    "[\\s\\S]", "(xa?)", "(a;)",   "[ab\xc3\xa9]",
                                        "(aa?b?)"};
    static const char *const rules[] = {"[a-c]", "\"x\"",        "[^;]",         "(\"ab\"|\"c\")",
                                        "item",  "(\"x\" item)", "(\"a\" \";\")"};
    const unsigned min = test_random(seed) % 5, max = min + test_random(seed) % 5;
    size_t n = 0;
    if (depth < 2 && test_random(seed) % 4 == 0) {
        n += (size_t)sprintf(out + n, "(");
        n += random_repeat(out + n, ebnf, depth + 1, seed);
        n += (size_t)sprintf(out + n, ebnf ? " \";\")" : ";)");
    } else {
        n += (size_t)sprintf(out + n, "%s",
                             ebnf ? rules[test_random(seed) % RAD_COUNT(rules)]
                                  : regex[test_random(seed) % RAD_COUNT(regex)]);
    }
    switch (test_random(seed) % 4) {
    case 0: n += (size_t)sprintf(out + n, "{%u,}", min + 2); break;
    case 1: n += (size_t)sprintf(out + n, "{%u}", max + 2); break;
    default: n += (size_t)sprintf(out + n, "{%u,%u}", min, max + 2); break;
    }
    return n;
}

static grammar_kind random_rules(char *out, uint64_t *seed)
{
    static const char *const between[] = {";", "x", "; ", "", "[ab]"}, *const quoted[] = {
                                                                           "\";\"", "\"x\"",
                                                                           "\"; \"", "", "[ab]"};
    const bool ebnf = test_random(seed) % 3 == 0;
    size_t n = ebnf ? (size_t)sprintf(out, "root ::= ") : 0;
    for (unsigned i = 0, count = 1 + test_random(seed) % 3; i < count; i++) {
        n += random_repeat(out + n, ebnf, 0, seed);
        n += (size_t)sprintf(out + n, ebnf ? " %s " : "%s",
                             (ebnf ? quoted : between)[test_random(seed) % 5]);
    }
    if (ebnf)
        sprintf(out + n, "\nitem ::= \"a\" [bx]{0,%u} | \"(\" item \")\"\n",
                (unsigned)(test_random(seed) % 6));
    return ebnf ? GRAMMAR_EBNF : GRAMMAR_REGEX;
}

static void compare_with_states(bool schemas)
{
    uint64_t seed = test_told_seed(), compared = 0, counters = 0;
    const uint64_t rounds = test_scale(120, 20000);
    rig_vocab *r = malloc(sizeof *r);
    make_vocab(r, 1 << 16);
    for (uint64_t round = 0; round < rounds; round++) {
        char text[1024];
        const grammar_space space = (grammar_space)(test_random(&seed) % 3);
        grammar_kind kind = GRAMMAR_JSON_SCHEMA;
        if (schemas)
            random_schema(text, &seed);
        else
            kind = random_rules(text, &seed);
        grammar *a = compile(r, kind, space, text, 1);
        grammar *b = compile(r, kind, space, text, UINT32_MAX);
        for (int i = 0; a && b && i < 3; i++)
            check_same(r, a, b, text, &seed);
        if (a && b) { /* states may be too many */
            grammar_stats stats;
            grammar_get_stats(a, &stats);
            counters += stats.counters > 0;
            grammar_get_stats(b, &stats);
            CHECK(!stats.counters);
            compared++;
        }
        grammar_unref(a);
        grammar_unref(b);
    }
    CHECKF(compared > rounds / 2 && counters > rounds / 5, "%llu, %llu with counters\n",
           (unsigned long long)compared, (unsigned long long)counters);
    grammar_vocab_destroy(r->v);
    free(r);
}

TEST(what_schemas_count_allows_what_states_allow)
{
    compare_with_states(true);
}

TEST(what_rules_count_allows_what_states_allow)
{
    compare_with_states(false);
}

/* ---- bounds that are far ---- */

static void accept_text(rig_vocab *r, grammar_matcher *m, const char *text)
{
    CHECKF(grammar_accept(m, rig_token(r, text)) == RAD_OK, "'%s'\n", text);
}

/* Whether each byte is a character of a string's contents. */
static bool is_plain(const char *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c < 0x20 || c == '"' || c == '\\' || c >= 0x80) return false;
    }
    return true;
}

/* A string is within `come` of its bounds; every token of plain characters is judged by its length,
 * and those that end the string by what they end with. */
static void check_bound(rig_vocab *r, grammar_matcher *m, uint32_t come, uint32_t min, uint32_t max)
{
    uint32_t bits[RIG_TOKENS / 32];
    CHECK_OK(grammar_mask(m, bits));
    for (uint32_t t = 0; t < r->count; t++) {
        const grammar_piece *p = &r->pieces[t];
        const bool ends = p->len && p->bytes[p->len - 1] == '"';
        const uint32_t n = p->len - ends;
        if (!is_plain(p->bytes, n)) continue;
        const bool want = come + n <= max && (!ends || come + n >= min);
        CHECKF(rig_bit(bits, t) == want, "behind %u of %u to %u: '%.*s'\n", come, min, max,
               (int)p->len, p->bytes);
        rad_status status = grammar_accept(m, (rad_token)t);
        CHECK(status == (want ? RAD_OK : RAD_NONE));
        if (!status) CHECK_OK(grammar_rollback(m, 1));
    }
}

TEST(a_long_string_is_held_to_its_bounds)
{
    enum { MIN = 9950, MAX = 10000 };
    rig_vocab *r = malloc(sizeof *r);
    make_vocab(r, 0);
    CHECK_OK(grammar_vocab_warm(r->v));
    char text[256];
    sprintf(text, "{\"type\":\"string\",\"minLength\":%d,\"maxLength\":%d}", MIN, MAX);
    grammar *g = compile(r, GRAMMAR_JSON_SCHEMA, GRAMMAR_SPACE_ONE, text, 0);
    grammar_stats stats;
    grammar_vocab_stats before, after;
    grammar_get_stats(g, &stats);
    CHECKF(stats.states < 60 && stats.counters == 1, "%u states\n", stats.states);
    grammar_matcher *m = grammar_matcher_create(g);
    uint32_t bits[RIG_TOKENS / 32], come = 0;
    accept_text(r, m, "\"");
    grammar_vocab_get_stats(r->v, &before);
    while (come < MIN - 40) { /* far from both there are few masks, whatever the count is */
        static const char *const some[] = {"aaaa", "\xe6\x97\xa5", "\\n", "\\ud83d\\ude00", "x"};
        static const uint32_t lengths[] = {4, 1, 1, 1, 1};
        accept_text(r, m, some[come % 5]);
        come += lengths[come % 5];
        if (come % 7 == 0) CHECK_OK(grammar_mask(m, bits));
    }
    grammar_vocab_get_stats(r->v, &after);
    CHECKF(after.misses - before.misses <= 4, "%llu masks computed\n",
           (unsigned long long)(after.misses - before.misses));
    for (; come < MAX; come++) {
        check_bound(r, m, come, MIN, MAX);
        accept_text(r, m, come % 3 ? "a" : come % 2 ? "\xc3\xa9" : "\\n");
    }
    CHECK_OK(grammar_mask(m, bits));
    for (uint32_t t = 0; t < r->count; t++) /* nothing but the end of the string */
        CHECK(rig_bit(bits, t) == (r->pieces[t].len == 1 && r->pieces[t].bytes[0] == '"'));
    char forced[4];
    CHECK(grammar_forced_bytes(m, forced, sizeof forced) == 1 && forced[0] == '"');
    accept_text(r, m, "\"");
    CHECK(grammar_must_end(m));
    grammar_matcher_destroy(m);
    grammar_unref(g);
    grammar_vocab_destroy(r->v);
    free(r);
}

/* Half of a character that was begun counts: no other begins behind it. */
TEST(bytes_of_one_character_count_once)
{
    rig_vocab *r = malloc(sizeof *r);
    make_vocab(r, 0);
    grammar *g = compile(r, GRAMMAR_JSON_SCHEMA, GRAMMAR_SPACE_ONE,
                         "{\"type\":\"string\",\"maxLength\":5000}", 0);
    char text[6 * 5000 + 8] = "\"";
    size_t len = 1;
    for (int i = 0; i < 5000; i++) {
        static const char *const some[] = {"\xf0\x9f\x98\x80", "\\u00e9", "\xc3\xa9"};
        len += (size_t)sprintf(text + len, "%s", some[i % 3]);
    }
    CHECK(grammar_try(g, text, len, false) == RAD_OK);
    strcpy(text + len, "\"");
    CHECK(grammar_try(g, text, len + 1, true) == RAD_OK);
    static const char *const more[] = {"a", "\\", "\xf0", "\xc3"};
    for (size_t i = 0; i < RAD_COUNT(more); i++) {
        strcpy(text + len, more[i]);
        CHECK(grammar_try(g, text, len + 1, false) == RAD_NONE);
    }
    grammar_unref(g);
    grammar_vocab_destroy(r->v);
    free(r);
}

/* No token has more than a part of two items: so the masks of all but the last are the same. */
TEST(items_that_are_long_share_their_masks_up_to_the_last)
{
    enum { MOST = 100 };
    static const char item[] = "{\"identifier\": 12, \"a longer name\": null}";
    rig_vocab *r = malloc(sizeof *r);
    make_vocab(r, 0);
    grammar *g = compile(r, GRAMMAR_JSON_SCHEMA, GRAMMAR_SPACE_ONE,
                         "{\"type\":\"array\",\"maxItems\":100,\"items\":{\"type\":\"object\","
                         "\"properties\":{\"identifier\":{\"type\":\"integer\"},"
                         "\"a longer name\":{\"type\":\"null\"}},\"additionalProperties\":false,"
                         "\"required\":[\"identifier\",\"a longer name\"]}}",
                         0);
    grammar_matcher *m = grammar_matcher_create(g);
    grammar_vocab_stats before = {0}, after;
    uint32_t bits[RIG_TOKENS / 32];
    CHECK_OK(grammar_accept(m, '['));
    for (int i = 0; i < MOST; i++) {
        if (i == 3) grammar_vocab_get_stats(r->v, &before);
        if (i == MOST - 3) grammar_vocab_get_stats(r->v, &after);
        char text[64];
        const int len = sprintf(text, "%s%s", i ? ", " : "", item);
        for (int k = 0; k < len; k++) {
            CHECK_OK(grammar_mask(m, bits));
            CHECK(rig_bit(bits, (unsigned char)text[k]));
            CHECK_OK(grammar_accept(m, (rad_token)(unsigned char)text[k]));
        }
    }
    CHECK(after.misses == before.misses);
    CHECK_OK(grammar_mask(m, bits));
    CHECK(rig_bit(bits, ']') && !rig_bit(bits, ','));
    grammar_matcher_destroy(m);
    grammar_unref(g);
    grammar_vocab_destroy(r->v);
    free(r);
}

/* ---- what costs few states, and what is refused ---- */

TEST(large_bounds_cost_no_states)
{
    rig_vocab *r = malloc(sizeof *r);
    char *text = malloc(1 << 16);
    make_vocab(r, 0);
    size_t len = (size_t)sprintf(text, "{\"type\":\"object\",\"properties\":{\"a\":{}");
    for (int i = 0; i < 50; i++)
        len += (size_t)sprintf(text + len, ",\"p%d\":{\"type\":\"string\",\"maxLength\":%d}", i,
                               10000 + i % 7);
    for (int i = 0; i < 50; i++)
        len +=
            (size_t)sprintf(text + len,
                            ",\"q%d\":{\"type\":\"array\",\"maxItems\":%d,\"items\":{\"type\":"
                            "\"array\",\"minItems\":99999,\"items\":{\"maxLength\":2147483647}}}",
                            i, 50000 + i % 7);
    sprintf(text + len, "}}");
    grammar *g = compile(r, GRAMMAR_JSON_SCHEMA, GRAMMAR_SPACE_ONE, text, 0);
    grammar_stats stats;
    grammar_get_stats(g, &stats);
    CHECKF(stats.states < 6000, "%u states\n", stats.states);
    CHECK(rig_begins(g, "{\"p3\": \"ab\", \"q0\": [[\"x\", 1, true"));
    CHECK(!rig_begins(g, "{\"q0\": [[\"x\", 1]"));
    grammar_unref(g);
    grammar_vocab_destroy(r->v);
    free(text);
    free(r);
}

/* Lists in lists in lists, each counted: places stay small, and what was begun can be ended. */
TEST(counts_in_counts_are_followed)
{
    enum { DEEP = 60 };
    rig_vocab *r = malloc(sizeof *r);
    char text[DEEP * 64] = "";
    size_t len = 0;
    make_vocab(r, 0);
    for (int i = 0; i < DEEP; i++)
        len += (size_t)sprintf(text + len, "{\"type\":\"array\",\"maxItems\":99999,\"items\":");
    len += (size_t)sprintf(text + len, "{\"type\":\"string\",\"maxLength\":99999}");
    memset(text + len, '}', DEEP);
    text[len + DEEP] = 0;
    grammar *g = compile(r, GRAMMAR_JSON_SCHEMA, GRAMMAR_SPACE_NONE, text, 0);
    CHECK(g != NULL);
    grammar_matcher *m = grammar_matcher_create(g);
    uint32_t bits[RIG_TOKENS / 32];
    uint64_t seed = test_told_seed();
    for (int step = 0; step < 300; step++) {
        CHECK_OK(grammar_mask(m, bits));
        if (grammar_has_ended(m)) break;
        uint32_t t = step < DEEP ? '[' : (uint32_t)(test_random(&seed) % r->count);
        for (uint32_t i = 0; i < r->count + 2 && !rig_bit(bits, t); i++)
            t = (t + 1) % (r->count + 2);
        CHECK_OK(grammar_accept(m, (rad_token)t));
    }
    grammar_matcher_destroy(m);
    grammar_unref(g);
    grammar_vocab_destroy(r->v);
    free(r);
}

TEST(counts_that_are_too_large_are_refused_in_words)
{
    static const struct {
        const char *text, *words; /* NULL: it is served */
    } cases[] = {
        {"{\"type\":\"string\",\"maxLength\":2147483647}", NULL}, /* bounds nothing */
        {"{\"type\":\"string\",\"maxLength\":1000000000000}", NULL},
        {"{\"type\":\"string\",\"minLength\":1000000000}", NULL},
        {"{\"type\":\"string\",\"minLength\":2147483647}", "is more than is served"},
        {"{\"type\":\"array\",\"minItems\":2147483647}", "is more than is served"},
        {"{\"type\":\"array\",\"minItems\":100000000,\"items\":{\"type\":\"array\",\"minItems\":"
         "100000000,\"items\":{\"type\":\"array\",\"maxItems\":100000000}}}",
         NULL},
        {"{\"prefixItems\":[{\"type\":\"array\",\"minItems\":1000000000},{\"type\":\"array\","
         "\"minItems\":1000000001},{\"type\":\"array\",\"minItems\":1000000002},{\"type\":"
         "\"array\","
         "\"minItems\":1000000003},{\"type\":\"array\",\"minItems\":1000000004}],\"type\":"
         "\"array\"}",
         "more than 4 billion"},
        {"{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":200000}", "\"maxLength\": beside"},
        {"{\"type\":\"string\",\"minLength\":20,\"maxLength\":10}", "no text has this form"},
        {"{\"type\":\"array\",\"minItems\":20,\"maxItems\":10}", "no text has this form"},
        {"{\"type\":\"array\",\"minItems\":20,\"maxItems\":30,\"items\":{\"$ref\":\"#\"}}",
         "no text has this form"},
    };
    rig_vocab *r = malloc(sizeof *r);
    make_vocab(r, 0);
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        rad_error err = {0};
        grammar *g = rig_compile(r, GRAMMAR_JSON_SCHEMA, cases[i].text, &err);
        CHECKF(!g == (cases[i].words != NULL), "%s: %s\n", cases[i].text, err.text);
        CHECKF(g || strstr(err.text, cases[i].words), "%s: %s\n", cases[i].text, err.text);
        grammar_unref(g);
    }
    grammar_vocab_destroy(r->v);
    free(r);
}

/* Which repeats are counted shows in their states: one that is not has some for each time. */
TEST(what_a_text_does_not_count_is_written_out)
{
    static const struct {
        grammar_kind kind;
        const char *text;
        bool counted;
    } cases[] = {
        {GRAMMAR_REGEX, "[a-z]{1,900}@[a-z.]{2,900}", true},
        {GRAMMAR_REGEX, "\"[^\"]{0,900}\"", true},
        {GRAMMAR_REGEX, "([a-z]{1,900} ){1,900}x?", false}, /* x may begin a word, too */
        {GRAMMAR_REGEX, "([a-z]{1,900} ){1,900}X?", true},
        {GRAMMAR_REGEX, "[a-f0-9]{900}[a-z]*", true}, /* it ends when it is full */
        {GRAMMAR_REGEX, "[a-f0-9]{1,900}[a-z]*", false},
        {GRAMMAR_REGEX, "[a-z]*[a-f]{900}", false},
        {GRAMMAR_REGEX, "(a|ab){1,900}", true},
        {GRAMMAR_REGEX, "(a|ab){1,900}b", false},
        {GRAMMAR_REGEX, "(a|aa){1,900}", false},
        {GRAMMAR_REGEX, "(a?){1,900}", false},
        {GRAMMAR_REGEX, "(^a){1,900}", false},
        {GRAMMAR_REGEX, "a{1,100}", false},
        {GRAMMAR_EBNF, "root ::= word \":\" word\nword ::= [a-z]{1,900}", true},
        {GRAMMAR_EBNF, "root ::= word word\nword ::= [a-z]{1,900}", false},
        {GRAMMAR_EBNF, "root ::= \"(\" root \")\" word | word\nword ::= [a-z]{1,900}", true},
        {GRAMMAR_EBNF, "root ::= \"(\" root \")\" word | word\nword ::= [a-z)]{1,900}", false},
    };
    rig_vocab *r = malloc(sizeof *r);
    make_vocab(r, 0);
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        rad_error err = {0};
        grammar *g = rig_compile(r, cases[i].kind, cases[i].text, &err);
        grammar_stats stats = {0};
        if (g) grammar_get_stats(g, &stats);
        CHECKF(g ? (stats.counters > 0) == cases[i].counted
                 : !cases[i].counted && err.status == RAD_E_LIMIT,
               "%s: %u counters, %s\n", cases[i].text, stats.counters, err.text);
        grammar_unref(g);
    }
    grammar_vocab_destroy(r->v);
    free(r);
}

TEST_MAIN()
