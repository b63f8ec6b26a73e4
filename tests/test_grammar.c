/* test_grammar.c - what expressions and rules mean, what they refuse, and how matchers go on. */
#include "grammar_compiled.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <pthread.h>

/* ---- expressions beside PCRE2 ---- */

TEST(expressions_match_what_pcre2_matches)
{
    static const char *const expressions[] = {"abc",
                                              "a|b|cd",
                                              "a*",
                                              "(ab)+c?",
                                              "[a-cx]{2,3}",
                                              "[^a-y]",
                                              ".",
                                              "..?",
                                              "\\d{3}-\\d{4}",
                                              "\\w+",
                                              "\\s\\S",
                                              "\\D",
                                              "\\W",
                                              "[\\d.]+",
                                              "[^\\w]",
                                              "(?:a|(b|c)*d){2}",
                                              "(?<name>x)y",
                                              "\\x41\\u0042",
                                              "a{0}b",
                                              "a{2,}",
                                              "x*?y+?",
                                              "\\.\\*\\[\\]",
                                              "[-a]",
                                              "[a-]",
                                              "[]]?a|^b$",
                                              "^abc$",
                                              "(^a|b)c",
                                              "a$|b",
                                              "é+",
                                              "[à-ü]",
                                              "[^é]",
                                              "日本?",
                                              "\\p{Lu}\\p{Ll}*",
                                              "\\P{N}",
                                              "[\\p{N}_]",
                                              "[^\\s]",
                                              "\\n\\t",
                                              "",
                                              "a||b",
                                              "()",
                                              "(a*)*",
                                              "(a|b)*abb",
                                              "[\\x00-\\x1f]",
                                              "\\^\\$",
                                              "[.]",
                                              "\\/",
                                              "a{3}{1}",
                                              "[一-龥]{2}",
                                              "\\u{1F600}",
                                              "[^a]\\x{0}"};
    static const char *const texts[] = {"",         "a",
                                        "b",        "c",
                                        "ab",       "abc",
                                        "abd",      "aab",
                                        "abcab",    "cd",
                                        "xx",       "acx",
                                        "z",        "é",
                                        "éé",       "à",
                                        "日",       "日本",
                                        "123-4567", "123-456",
                                        "1.5",      " a",
                                        "\ta",      "foo_1",
                                        "A",        "Ab",
                                        "AB",       "ABc",
                                        "y",        "xy",
                                        "xxyy",     "aa",
                                        "aaa",      "aaaa",
                                        "-",        "]",
                                        "]a",       "ac",
                                        "bc",       "dd",
                                        "bdcd",     ".*[]",
                                        "\n\t",     "\n",
                                        "\r",       "^$",
                                        "abb",      "babb",
                                        "\x1f",     "\xe2\x80\xa8",
                                        "_9",       "龥一",
                                        "一",       "\xf0\x9f\x98\x80",
                                        "/",        "aaab",
                                        "٣"};
    rig_vocab *r = malloc(sizeof *r);
    int served = 0;
    rig_begin(r);
    CHECK_OK(rig_finish(r, NULL, 0));
    for (size_t e = 0; e < sizeof expressions / sizeof *expressions; e++) {
        rad_error err = {0};
        int code;
        size_t where;
        grammar *g = rig_compile(r, GRAMMAR_REGEX, expressions[e], &err);
        if (!g) continue;
        served++;
        pcre2_compile_context *context = pcre2_compile_context_create(NULL);
        pcre2_set_compile_extra_options(context, PCRE2_EXTRA_ALT_BSUX);
        char whole[200]; /* PCRE2_ENDANCHORED forbids partial matches */
        snprintf(whole, sizeof whole, "(?:%s)\\z", expressions[e]);
        pcre2_code *p = pcre2_compile((PCRE2_SPTR)whole, PCRE2_ZERO_TERMINATED,
                                      PCRE2_UTF | PCRE2_ANCHORED | PCRE2_NO_START_OPTIMIZE |
                                          PCRE2_DOLLAR_ENDONLY,
                                      &code, &where, context);
        CHECKF(p != NULL, "%s: PCRE2 says %d at %zu\n", expressions[e], code, where);
        pcre2_match_data *data = pcre2_match_data_create(1, NULL);
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
            bool line_end = strpbrk(texts[t], "\r") || strstr(texts[t], "\xe2\x80\xa8");
            if (strchr(expressions[e], '.') && line_end) continue; /* . is less with us */
            int found = pcre2_match(p, (PCRE2_SPTR)texts[t], strlen(texts[t]), 0, 0, data, NULL);
            CHECKF((found >= 0) == rig_matches(g, texts[t]), "%s on '%s': PCRE2 %d\n",
                   expressions[e], texts[t], found);
            /* A partial match that still could have read more says that texts begin so. */
            int part = pcre2_match(p, (PCRE2_SPTR)texts[t], strlen(texts[t]), 0, PCRE2_PARTIAL_HARD,
                                   data, NULL);
            if (found >= 0 || part == PCRE2_ERROR_PARTIAL)
                CHECKF(rig_begins(g, texts[t]) || strchr(expressions[e], '$'), "%s on '%s'\n",
                       expressions[e], texts[t]);
            else
                CHECKF(!rig_begins(g, texts[t]) || !*texts[t], "%s on '%s'\n", expressions[e],
                       texts[t]);
        }
        pcre2_match_data_free(data);
        pcre2_code_free(p);
        pcre2_compile_context_free(context);
        grammar_unref(g);
    }
    CHECKF(served >= 46, "%d served\n", served);
    grammar_vocab_destroy(r->v);
    free(r);
}

TEST(what_is_not_served_is_refused_in_words)
{
    static const struct {
        grammar_kind kind;
        const char *text, *words;
    } cases[] = {
        {GRAMMAR_REGEX, "(a", "this group has no end"},
        {GRAMMAR_REGEX, "a)", "without its ("},
        {GRAMMAR_REGEX, "ab\\1", "backreferences"},
        {GRAMMAR_REGEX, "(?=a)b", "no text has this form"},
        {GRAMMAR_REGEX, "(a(?=b)c)*", "at byte 9: lookahead in a group that is repeated"},
        {GRAMMAR_REGEX, "a(?=b)+b", "at byte 6: a lookahead that is repeated"},
        {GRAMMAR_REGEX, "a(?=b^)b", "at byte 5: beside lookahead ^"},
        {GRAMMAR_REGEX, "(?=a)(?<!b)a", "lookbehind"},
        {GRAMMAR_REGEX, "(?=a", "no end"},
        {GRAMMAR_REGEX, "(?<!a)b", "lookbehind"},
        {GRAMMAR_REGEX, "\\ba", "word borders"},
        {GRAMMAR_REGEX, "(?i)a", "flags"},
        {GRAMMAR_REGEX, "(?>a)", "atomic"},
        {GRAMMAR_REGEX, "a++", "possessive"},
        {GRAMMAR_REGEX, "*a", "nothing to repeat"},
        {GRAMMAR_REGEX, "a**", "quantifier of a quantifier"},
        {GRAMMAR_REGEX, "[z-a]", "upside down"},
        {GRAMMAR_REGEX, "[a", "no end"},
        {GRAMMAR_REGEX, "[]", "empty"},
        {GRAMMAR_REGEX, "[[:alpha:]]", "[:alpha:]"},
        {GRAMMAR_REGEX, "a{3,2}", "at byte 1: the most times are fewer"},
        {GRAMMAR_REGEX, "a{1999999999}", "no more than 1073741824 times"},
        {GRAMMAR_REGEX, "a{b", "\\{"},
        {GRAMMAR_REGEX, "\\p{Greek}", "category"},
        {GRAMMAR_REGEX, "\\p{Q}", "no general category"},
        {GRAMMAR_REGEX, "\\", "backslash at the end"},
        {GRAMMAR_REGEX, "\\ud800", "names no character"},
        {GRAMMAR_REGEX, "\xff", "not UTF-8"},
        {GRAMMAR_REGEX, "a^b", "no text has this form"},
        {GRAMMAR_EBNF, "", "there is no rule"},
        {GRAMMAR_EBNF, "root ::= other", "there is no rule named other"},
        {GRAMMAR_EBNF, "root ::= \"a\" root", "no text has this form"},
        {GRAMMAR_EBNF, "a ::= \"x\" a ::= \"y\"", "defined before"},
        {GRAMMAR_EBNF, "root ::= (\"a\"", "no end"},
        {GRAMMAR_EBNF, "root ::= \"a", "no end"},
        {GRAMMAR_EBNF, "root = \"a\"", "a rule begins with its name and ::="},
        {GRAMMAR_EBNF, "root ::= \"a\" )", "without its ("},
        {GRAMMAR_EBNF, "root ::= ?", "begins nothing"},
        {GRAMMAR_EBNF, "root ::= %token x", "the id of a token"},
        {GRAMMAR_EBNF, "root ::= %regex a", "between slashes"},
        {GRAMMAR_EBNF, "root ::= %lark", "only %token"},
        {GRAMMAR_EBNF, "root ::= %marked {}", "a mark is wanted"},
        {GRAMMAR_EBNF, "root ::= %marked \"|", "a mark is wanted"},
        {GRAMMAR_EBNF, "root ::= %marked \"\\", "a mark is wanted"},
        {GRAMMAR_EBNF, "root ::= %marked \"\" {}", "a mark is wanted"},
        {GRAMMAR_EBNF, "root ::= %marked %token 999999999999 \"|\" {}", "%token"},
        {GRAMMAR_EBNF, "root ::= %marked \"|\" {\"const\":\"a|\"}", "no text has this form"},
        {GRAMMAR_EBNF, "root ::= %text {} \"a\"", "between slashes"},
        {GRAMMAR_EBNF, "root ::= %text /a/", "a schema in braces"},
        {GRAMMAR_EBNF, "root ::= %text {\"type\": \"null\"} /a/", "no text has this form"},
        {GRAMMAR_EBNF, "root ::= \"\\q\"", "names no character"},
        {GRAMMAR_EBNF, "a ::= b \"x\" | \"y\"\nb ::= a \"z\" | \"w\"", "left recursion"},
    };
    rig_vocab *r = malloc(sizeof *r);
    rig_begin(r);
    CHECK_OK(rig_finish(r, NULL, 0));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rad_error err = {0};
        grammar *g = rig_compile(r, cases[i].kind, cases[i].text, &err);
        CHECKF(!g, "%s was compiled\n", cases[i].text);
        CHECKF(strstr(err.text, cases[i].words) && err.status < 0, "%s: %s\n", cases[i].text,
               err.text);
    }
    grammar_vocab_destroy(r->v);
    free(r);
}

TEST(rules_are_read_as_gbnf_and_w3c_write_them)
{
    static const struct {
        const char *text, *yes[4], *no[4];
    } cases[] = {
        {"root ::= \"a\" | 'b' # or\nx ::= \"y\"", {"a", "b"}, {"c", "y", ""}},
        {"root ::= %python {\"enum\": [true, [null, \"'\\\"\"]]} | %json {\"const\": true}",
         {"True", "true", "[None, \"'\\\"\"]"},
         {"None", "[null, \"'\\\"\"]", "\"True\""}},
        {"root ::= %text {\"type\": [\"string\", \"null\"], \"minLength\": 2} /<\\/p>/ \"</p>\"",
         {"a\"</p>", "</p</p>", "\n\\</p>"},
         {"a</p>", "x</p></p>", "null</", "ab"}},
        {"root ::= %text {\"enum\": [\"no\", \"null\", 3]} /^null$/",
         {"no"},
         {"null", "3", "\"no\""}},
        {"x ::= \"y\"\nroot ::= x x", {"yy"}, {"y", "yyy"}},
        {"first ::= [a-c]+ /* some */ \"!\"?", {"abc", "a!"}, {"", "!", "d"}},
        {"root ::= (\"a\" |\n \"b\" \"c\")* next\nnext ::= \"\\n\" \"\\x41\\u00e9\\U0001F600\"",
         {"\nAé\xf0\x9f\x98\x80", "abca\nAé\xf0\x9f\x98\x80"},
         {"\nA", "b\nAé\xf0\x9f\x98\x80"}},
        {"root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= [0-9] | \"(\" expr \")\"",
         {"1", "1+2+3", "(1+2)+3", "((1))"},
         {"", "1+", "(1", "1)"}},
        {"root ::= \"a\" root \"b\" | \"\"", {"", "ab", "aaabbb"}, {"a", "abb", "ba"}},
        {"root ::= %regex /[ab]+\\/c/ \";\"", {"ab/c;"}, {"/c;", "a/c"}},
        {"root ::= a{2,3} a ::= \"x\" | .", {"xx", "éx\n"}, {"x", "xxxx"}},
    };
    rig_vocab *r = malloc(sizeof *r);
    rig_begin(r);
    CHECK_OK(rig_finish(r, NULL, 0));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rad_error err = {0};
        grammar *g = rig_compile(r, GRAMMAR_EBNF, cases[i].text, &err);
        CHECKF(g, "%s: %s\n", cases[i].text, err.text);
        for (int k = 0; k < 4; k++) {
            if (cases[i].yes[k])
                CHECKF(rig_matches(g, cases[i].yes[k]), "%s has no '%s'\n", cases[i].text,
                       cases[i].yes[k]);
            if (cases[i].no[k])
                CHECKF(!rig_matches(g, cases[i].no[k]), "%s has '%s'\n", cases[i].text,
                       cases[i].no[k]);
        }
        grammar_unref(g);
    }
    grammar_vocab_destroy(r->v);
    free(r);
}

/* ---- matchers ---- */

TEST(tokens_are_taken_back_and_forks_go_their_own_ways)
{
    static const char nested[] = "root ::= \"[\" (root (\",\" root)*)? \"]\" | [0-9]+";
    static const char *const pieces[] = {"[", "]", "[[", "]]", ",", "],[", "12", "1,", "[]", "]]]"};
    uint64_t seed = test_told_seed();
    rig_vocab *r = malloc(sizeof *r);
    uint32_t bits[RIG_TOKENS / 32], again[RIG_TOKENS / 32];
    rig_begin(r);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        rig_add(r, pieces[i], strlen(pieces[i]));
    CHECK_OK(rig_finish(r, NULL, 0));
    grammar *g = rig_compile(r, GRAMMAR_EBNF, nested, NULL);
    CHECK(g != NULL);
    for (uint64_t round = 0; round < test_scale(20, 2000); round++) {
        rad_token taken[1000];
        uint32_t count = 0;
        grammar_matcher *m = grammar_matcher_create(g);
        for (int step = 0; step < 300; step++) {
            CHECK_OK(grammar_mask(m, bits));
            rad_token t = -1;
            for (int tries = 0; tries < 1000 && t < 0; tries++) {
                rad_token some = (rad_token)(test_random(&seed) % (r->count + 2));
                if (rig_bit(bits, (uint32_t)some) && some != r->end) t = some;
            }
            if (t < 0 || test_random(&seed) % 5 == 0) {
                uint32_t back = (uint32_t)(test_random(&seed) % (GRAMMAR_ROLLBACK + 1));
                rad_status status = grammar_rollback(m, back);
                CHECK(status == (back <= count ? RAD_OK : RAD_E_INVAL));
                if (status == RAD_OK) count -= back;
            } else {
                CHECK_OK(grammar_accept(m, t));
                taken[count++] = t;
            }
            if (step % 10 == 0) { /* the same from the beginning, and in a fork */
                grammar_matcher *fresh = grammar_matcher_create(g);
                for (uint32_t i = 0; i < count; i++)
                    CHECK_OK(grammar_accept(fresh, taken[i]));
                grammar_matcher *fork = grammar_matcher_copy(m);
                CHECK_OK(grammar_mask(m, bits));
                CHECK_OK(grammar_mask(fresh, again));
                CHECK(memcmp(bits, again, grammar_mask_words(r->count + 2) * 4) == 0);
                CHECK_OK(grammar_mask(fork, again));
                CHECK(memcmp(bits, again, grammar_mask_words(r->count + 2) * 4) == 0);
                CHECK(grammar_may_end(m) == grammar_may_end(fresh));
                if (step % 20 == 0) {
                    grammar_matcher_destroy(m);
                    m = fork;
                } else {
                    grammar_matcher_destroy(fork);
                }
                grammar_matcher_destroy(fresh);
                if (step % 20 == 0 && count > GRAMMAR_ROLLBACK) CHECK_OK(grammar_rollback(m, 0));
            }
        }
        grammar_matcher_destroy(m);
    }
    grammar_unref(g);
    grammar_vocab_destroy(r->v);
    free(r);
}

TEST(what_must_come_is_said)
{
    rig_vocab *r = malloc(sizeof *r);
    char bytes[64];
    rad_token tokens[8];
    rig_begin(r);
    rig_add(r, "{\"na", 4);
    rig_add(r, "me\":", 4);
    rig_add(r, "true", 4);
    CHECK_OK(rig_finish(r, NULL, 0));
    char text[200];
    sprintf(text, "root ::= \"{\\\"name\\\":\" (\"true\" | \"talk\") \"}\" %%token %u", r->count);
    grammar *g = rig_compile(r, GRAMMAR_EBNF, text, NULL);
    grammar_matcher *m = grammar_matcher_create(g);
    size_t len = grammar_forced_bytes(m, bytes, sizeof bytes);
    CHECKF(len == 9 && memcmp(bytes, "{\"name\":t", 9) == 0, "%zu: %.*s\n", len, (int)len, bytes);
    CHECK(grammar_forced_bytes(m, bytes, 3) == 3);
    CHECK(grammar_forced(m, tokens, 8) == 3);
    CHECK(tokens[0] == rig_token(r, "{\"na") && tokens[1] == rig_token(r, "me\":") &&
          tokens[2] == 't');
    CHECK(grammar_forced(m, tokens, 1) == 1);
    CHECK(grammar_accept(m, 'x') == RAD_NONE);
    CHECK_OK(grammar_accept(m, tokens[0]));
    CHECK_OK(grammar_accept(m, rig_token(r, "me\":")));
    CHECK(grammar_accept(m, r->end) == RAD_NONE && !grammar_may_end(m));
    CHECK_OK(grammar_accept(m, rig_token(r, "true")));
    CHECK(grammar_forced(m, tokens, 8) == 2 && tokens[0] == '}' &&
          tokens[1] == (rad_token)r->count);
    CHECK_OK(grammar_accept(m, '}'));
    CHECK_OK(grammar_accept(m, (rad_token)r->count)); /* a control token where it is named */
    CHECK(grammar_must_end(m) && !grammar_has_ended(m));
    CHECK(grammar_forced(m, tokens, 8) == 1 && tokens[0] == r->end);
    CHECK_OK(grammar_accept(m, r->end));
    CHECK(grammar_has_ended(m) && !grammar_may_end(m) && grammar_accept(m, 'a') == RAD_NONE);
    CHECK_OK(grammar_rollback(m, 2));
    CHECK(!grammar_has_ended(m) && !grammar_may_end(m));
    CHECK(grammar_rollback(m, 100) == RAD_E_INVAL);
    CHECK(grammar_accept(m, -1) == RAD_NONE && grammar_accept(m, 1 << 20) == RAD_NONE);
    grammar_matcher_destroy(m);
    grammar_unref(g);
    grammar_vocab_destroy(r->v);
    free(r);
}

TEST(a_byte_that_is_no_token_never_occurs)
{
    static const grammar_piece pieces[] = {
        {"a", 1, false}, {"b", 1, false}, {"xc", 2, false}, {NULL, 0, false}};
    rad_token end = 3;
    grammar_vocab_params params = {
        .pieces = pieces, .vocab_size = 4, .end_tokens = &end, .num_end_tokens = 1};
    rig_vocab r = {0};
    uint32_t bits[1];
    CHECK_OK(grammar_vocab_create(NULL, &params, &r.v, NULL));
    grammar *g = rig_compile(&r, GRAMMAR_REGEX, "(xcb|xca|[abc])*", NULL);
    CHECK(g && rig_matches(g, "abab") && !rig_begins(g, "x") && !rig_begins(g, "c"));
    grammar_matcher *m = grammar_matcher_create(g);
    CHECK_OK(grammar_mask(m, bits));
    CHECK(bits[0] == 0xb);
    grammar_matcher_destroy(m);
    grammar_unref(g);
    rad_error err;
    CHECK(!rig_compile(&r, GRAMMAR_REGEX, "xca", &err) && strstr(err.text, "no text"));
    grammar_vocab_destroy(r.v);
}

/* ---- threads ---- */

typedef struct mask_thread {
    rig_vocab *r;
    grammar *shared;
    uint64_t seed, sum;
} mask_thread;

/* Masks of a shared grammar, and between them grammars of its own that come and go. */
static void *make_masks(void *arg)
{
    mask_thread *t = arg;
    static const char own[] =
        "{\"type\": \"array\", \"items\": {\"type\": \"string\", \"maxLength\": 9}}";
    for (int round = 0; round < 20; round++) {
        grammar *g = round % 2 ? rig_compile(t->r, GRAMMAR_JSON_SCHEMA, own, NULL)
                               : grammar_ref(t->shared);
        grammar_matcher *m = grammar_matcher_create(g);
        grammar_unref(g); /* the matcher holds it */
        for (int step = 0; step < 30; step++) {
            uint32_t bits[RIG_TOKENS / 32], token;
            if (grammar_mask(m, bits) || grammar_must_end(m)) break;
            do
                token = (uint32_t)(test_random(&t->seed) % t->r->count);
            while (!rig_bit(bits, token));
            for (uint32_t i = 0; i < grammar_mask_words(t->r->count + 2); i++)
                t->sum = t->sum * 31 + bits[i];
            if (grammar_accept(m, (rad_token)token)) break;
        }
        grammar_matcher_destroy(m);
    }
    return NULL;
}

TEST(threads_share_a_vocabulary_and_get_the_same_masks)
{
    rig_vocab *r = malloc(sizeof *r);
    uint64_t seed = test_told_seed();
    rig_random(r, &seed);
    grammar *g = rig_compile(r, GRAMMAR_JSON_OBJECT, NULL, NULL);
    mask_thread threads[4];
    pthread_t ids[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = (mask_thread){r, g, seed + (uint64_t)(i % 2), 0};
        CHECK(pthread_create(&ids[i], NULL, make_masks, &threads[i]) == 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(ids[i], NULL);
    CHECK(threads[0].sum == threads[2].sum && threads[1].sum == threads[3].sum);
    grammar_unref(g);
    grammar_vocab_stats stats;
    grammar_vocab_get_stats(r->v, &stats);
    CHECK(stats.cache_bytes <= 64 << 20 && stats.misses > 0);
    grammar_vocab_destroy(r->v);
    free(r);
}

TEST_MAIN()
