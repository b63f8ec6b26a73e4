/* test_grammar.c - grammars beside a naive reading of them, and what they refuse. */
#include "grammar_rig.h"
#include "test.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <pthread.h>

static grammar *compile(rig_vocab *r, grammar_kind kind, const char *text, rad_error *err)
{
    grammar_spec spec = {.kind = kind, .text = text, .len = text ? strlen(text) : 0};
    grammar *g = NULL;
    rad_status status = grammar_compile(r->v, &spec, NULL, &g, err);
    CHECKF((status == RAD_OK) == (g != NULL), "%s: status %d\n", text, status);
    return g;
}

static bool matches(grammar *g, const char *text)
{
    return grammar_try(g, text, strlen(text), true) == RAD_OK;
}

static bool begins(grammar *g, const char *text)
{
    return grammar_try(g, text, strlen(text), false) == RAD_OK;
}

/* ---- a naive reading: which stretches of a text each rule covers ---- */

enum { MOST_NODES = 200, MOST_RULES = 4, MOST_TEXT = 14 };

typedef enum node_kind { N_CHARS, N_RULE, N_SEQ, N_ALT, N_REPEAT } node_kind;

typedef struct node {
    node_kind kind;
    char chars[4]; /* any of them */
    int rule, a, b;
    int min, max; /* max -1: no end */
} node;

typedef struct naive {
    node nodes[MOST_NODES];
    int num_nodes;
    int rules[MOST_RULES], num_rules;
    /* While reading: bit j of ends[r][i] says that rule r may cover [i, j). */
    uint32_t ends[MOST_RULES][MOST_TEXT + 1];
    uint32_t memo[MOST_NODES][MOST_TEXT + 1], passes[MOST_NODES][MOST_TEXT + 1], pass;
    const char *text;
    int len;
    bool wild; /* behind the text anything may follow */
} naive;

static uint32_t ends_of(naive *n, int id, int from);

static uint32_t ends_of_all(naive *n, int id, uint32_t from)
{
    uint32_t to = 0;
    for (int i = 0; i <= n->len; i++)
        if (from >> i & 1) to |= ends_of(n, id, i);
    return to;
}

static uint32_t find_ends(naive *n, int id, int from);

static uint32_t ends_of(naive *n, int id, int from)
{
    if (n->passes[id][from] != n->pass) {
        n->memo[id][from] = find_ends(n, id, from);
        n->passes[id][from] = n->pass;
    }
    return n->memo[id][from];
}

static uint32_t find_ends(naive *n, int id, int from)
{
    const node *x = &n->nodes[id];
    switch (x->kind) {
    case N_CHARS:
        if (from == n->len) return n->wild ? 1u << from : 0;
        return strchr(x->chars, n->text[from]) ? 1u << (from + 1) : 0;
    case N_RULE: return n->ends[x->rule][from];
    case N_SEQ: return ends_of_all(n, x->b, ends_of(n, x->a, from));
    case N_ALT: return ends_of(n, x->a, from) | ends_of(n, x->b, from);
    case N_REPEAT: break;
    }
    uint32_t at = 1u << from, to = x->min ? 0 : at;
    int most = x->max < 0 ? x->min + n->len + 2 : x->max;
    for (int i = 1; i <= most && at; i++) {
        at = ends_of_all(n, x->a, at);
        if (i >= x->min) to |= at;
    }
    return to;
}

/* Whether text[0..len) is one of the grammar's; or, when wild, the beginning of one. */
static bool naive_reads(naive *n, const char *text, int len, bool wild)
{
    n->text = text;
    n->len = len;
    n->wild = wild;
    memset(n->ends, 0, sizeof n->ends);
    for (bool changed = true; changed;) {
        changed = false;
        n->pass++;
        for (int r = 0; r < n->num_rules; r++) {
            for (int i = 0; i <= len; i++) {
                uint32_t ends = ends_of(n, n->rules[r], i);
                changed |= ends != n->ends[r][i];
                n->ends[r][i] = ends;
            }
        }
    }
    return n->ends[0][0] >> len & 1;
}

static int new_node(naive *n, node x)
{
    if (n->num_nodes == MOST_NODES) abort();
    n->nodes[n->num_nodes] = x;
    return n->num_nodes++;
}

static int random_node(naive *n, uint64_t *seed, int depth, bool with_rules)
{
    uint64_t pick = test_random(seed) % (depth > 3 || n->num_nodes > 100 ? 3 : 8);
    if (pick < 2 || (pick == 2 && !with_rules)) {
        static const char *const some[] = {"a", "b", "c", "ab", "ac", "abc"};
        node x = {.kind = N_CHARS};
        strcpy(x.chars, some[test_random(seed) % 6]);
        return new_node(n, x);
    }
    if (pick == 2)
        return new_node(
            n, (node){.kind = N_RULE, .rule = (int)(test_random(seed) % (uint64_t)n->num_rules)});
    if (pick < 5 || pick == 6) {
        int a = random_node(n, seed, depth + 1, with_rules);
        int b = random_node(n, seed, depth + 1, with_rules);
        return new_node(n, (node){.kind = pick == 4 ? N_ALT : N_SEQ, .a = a, .b = b});
    }
    if (pick == 7) {
        int a = random_node(n, seed, depth + 1, with_rules);
        int b = random_node(n, seed, depth + 1, with_rules);
        return new_node(n, (node){.kind = N_ALT, .a = a, .b = b});
    }
    static const int counts[][2] = {{0, -1}, {1, -1}, {0, 1}, {2, 2}, {1, 3}, {2, -1}, {0, 2}};
    const int *c = counts[test_random(seed) % 7];
    int a = random_node(n, seed, depth + 1, with_rules);
    return new_node(n, (node){.kind = N_REPEAT, .a = a, .min = c[0], .max = c[1]});
}

/* As EBNF, or as a regular expression when there are no rules: the same but for quotes. */
static size_t print_node(const naive *n, int id, char *out, bool ebnf)
{
    const node *x = &n->nodes[id];
    size_t len = 0;
    switch (x->kind) {
    case N_CHARS:
        if (x->chars[1]) return (size_t)sprintf(out, "[%s]", x->chars);
        return (size_t)sprintf(out, ebnf ? "\"%s\"" : "%s", x->chars);
    case N_RULE: return (size_t)sprintf(out, "r%d", x->rule);
    case N_SEQ:
    case N_ALT:
        out[len++] = '(';
        len += print_node(n, x->a, out + len, ebnf);
        if (x->kind == N_ALT)
            out[len++] = '|';
        else if (ebnf)
            out[len++] = ' ';
        len += print_node(n, x->b, out + len, ebnf);
        out[len++] = ')';
        out[len] = 0;
        return len;
    case N_REPEAT: break;
    }
    len += (size_t)sprintf(out, "(");
    len += print_node(n, x->a, out + len, ebnf);
    if (x->max < 0 && x->min < 2)
        len += (size_t)sprintf(out + len, x->min ? ")+" : ")*");
    else if (x->max < 0)
        len += (size_t)sprintf(out + len, "){%d,}", x->min);
    else if (!x->min && x->max == 1)
        len += (size_t)sprintf(out + len, ")?");
    else if (x->min == x->max)
        len += (size_t)sprintf(out + len, "){%d}", x->min);
    else
        len += (size_t)sprintf(out + len, "){%d,%d}", x->min, x->max);
    return len;
}

static void random_grammar(naive *n, uint64_t *seed, char *text, bool ebnf)
{
    size_t len = 0;
    do {
        memset(n, 0, sizeof *n);
        n->num_rules = ebnf ? 1 + (int)(test_random(seed) % MOST_RULES) : 1;
        for (int r = 0; r < n->num_rules; r++)
            n->rules[r] = random_node(n, seed, 0, ebnf);
    } while (n->num_nodes > 60);
    for (int r = 0; r < n->num_rules; r++) {
        if (ebnf) len += (size_t)sprintf(text + len, "r%d ::= ", r);
        len += print_node(n, n->rules[r], text + len, ebnf);
        if (ebnf) len += (size_t)sprintf(text + len, "\n");
    }
}

/* All texts over a, b and c of at most `longest` bytes. */
static void check_texts(naive *n, grammar *g, const char *said, int longest, uint64_t seed)
{
    char text[16] = "";
    for (int len = 0; len <= longest; len++) {
        int count = 1;
        for (int i = 0; i < len; i++)
            count *= 3;
        for (int k = 0; k < count; k++) {
            for (int i = 0, rest = k; i < len; i++, rest /= 3)
                text[i] = (char)('a' + rest % 3);
            text[len] = 0;
            rad_status whole = grammar_try(g, text, (size_t)len, true);
            rad_status part = grammar_try(g, text, (size_t)len, false);
            CHECKF(whole >= 0 && part >= 0, "%s on '%s': %d %d, seed %llu\n", said, text, whole,
                   part, (unsigned long long)seed);
            CHECKF((whole == RAD_OK) == naive_reads(n, text, len, false), "%s on '%s', seed %llu\n",
                   said, text, (unsigned long long)seed);
            CHECKF((part == RAD_OK) == naive_reads(n, text, len, true),
                   "%s as the beginning of '%s', seed %llu\n", said, text,
                   (unsigned long long)seed);
        }
    }
}

static bool is_abc(char c)
{
    return c >= 'a' && c <= 'c';
}

/* A walk over tokens that are allowed, and each mask on it beside the naive reading. */
static void check_walk(naive *n, grammar *g, rig_vocab *r, const char *said, uint64_t *seed)
{
    uint32_t bits[RIG_TOKENS / 32], words = grammar_mask_words(r->count + 2);
    char text[MOST_TEXT + RIG_PIECE] = "";
    int len = 0;
    grammar_matcher *m = grammar_matcher_create(g);
    CHECK(m != NULL && words <= RIG_TOKENS / 32);
    for (int step = 0; step < 12; step++) {
        rad_token allowed[RIG_TOKENS];
        uint32_t count = 0;
        CHECK_OK(grammar_mask(m, bits));
        CHECK(rig_bit(bits, (uint32_t)r->end) == naive_reads(n, text, len, false));
        CHECK(!rig_bit(bits, r->count)); /* the control token */
        for (uint32_t t = 0; t < r->count; t++) {
            int more = (int)r->pieces[t].len;
            bool may = false;
            if (len + more <= MOST_TEXT && is_abc(r->bytes[t][0])) {
                memcpy(text + len, r->bytes[t], (size_t)more);
                may = naive_reads(n, text, len + more, true);
            } else if (rig_bit(bits, t)) {
                may = len + more > MOST_TEXT && is_abc(r->bytes[t][0]);
            }
            if (len + more <= MOST_TEXT)
                CHECKF(may == rig_bit(bits, t), "%s behind '%.*s', token '%.*s', seed %llu\n", said,
                       len, text, more, r->bytes[t], (unsigned long long)*seed);
            if (may && len + more <= MOST_TEXT) allowed[count++] = (rad_token)t;
        }
        for (int i = 0; i < 4; i++) { /* accept says what the mask says */
            rad_token t = (rad_token)(test_random(seed) % r->count);
            rad_status status = grammar_accept(m, t);
            CHECK(status == (rig_bit(bits, (uint32_t)t) ? RAD_OK : RAD_NONE));
            if (status == RAD_OK) CHECK_OK(grammar_rollback(m, 1));
        }
        if (!count) break;
        rad_token next = allowed[test_random(seed) % count];
        CHECK_OK(grammar_accept(m, next));
        memcpy(text + len, r->bytes[next], r->pieces[next].len);
        len += (int)r->pieces[next].len;
    }
    grammar_matcher_destroy(m);
}

static void random_vocab(rig_vocab *r, uint64_t *seed)
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

static void compare_with_naive(bool ebnf, uint64_t rounds)
{
    static naive n;
    static char said[65536];
    uint64_t seed = test_told_seed(), served = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        rig_vocab *r = malloc(sizeof *r);
        uint64_t begun = seed;
        rad_error err = {0};
        random_vocab(r, &seed);
        random_grammar(&n, &seed, said, ebnf);
        grammar *g = compile(r, ebnf ? GRAMMAR_EBNF : GRAMMAR_REGEX, said, &err);
        if (!g) {
            if (err.status == RAD_E_INVAL) /* it has no text */
                CHECKF(!naive_reads(&n, "", 0, true), "%s: %s, seed %llu\n", said, err.text,
                       (unsigned long long)begun);
            else if (err.status ==
                     RAD_E_LIMIT) /* rules that begin with each other, several times */
                CHECKF(strstr(err.text, "steps to compile"), "%s: %s\n", said, err.text);
            else
                CHECKF(err.status == RAD_E_UNSUPPORTED && strstr(err.text, "left recursion"),
                       "%s: %s\n", said, err.text);
        } else {
            served++;
            check_texts(&n, g, said, 4, begun);
            for (int i = 0; i < 2; i++)
                check_walk(&n, g, r, said, &seed);
        }
        grammar_unref(g);
        grammar_vocab_destroy(r->v);
        free(r);
    }
    CHECKF(served > rounds / 2, "%llu served of %llu\n", (unsigned long long)served,
           (unsigned long long)rounds);
}

TEST(random_rules_allow_what_a_naive_reading_allows)
{
    compare_with_naive(true, test_scale(150, 20000));
}

TEST(random_expressions_allow_what_a_naive_reading_allows)
{
    compare_with_naive(false, test_scale(100, 10000));
}

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
        grammar *g = compile(r, GRAMMAR_REGEX, expressions[e], &err);
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
            CHECKF((found >= 0) == matches(g, texts[t]), "%s on '%s': PCRE2 %d\n", expressions[e],
                   texts[t], found);
            /* A partial match that still could have read more says that texts begin so. */
            int part = pcre2_match(p, (PCRE2_SPTR)texts[t], strlen(texts[t]), 0, PCRE2_PARTIAL_HARD,
                                   data, NULL);
            if (found >= 0 || part == PCRE2_ERROR_PARTIAL)
                CHECKF(begins(g, texts[t]) || strchr(expressions[e], '$'), "%s on '%s'\n",
                       expressions[e], texts[t]);
            else
                CHECKF(!begins(g, texts[t]) || !*texts[t], "%s on '%s'\n", expressions[e],
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
        {GRAMMAR_REGEX, "a{999999}", "too many states"},
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
        grammar *g = compile(r, cases[i].kind, cases[i].text, &err);
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
        grammar *g = compile(r, GRAMMAR_EBNF, cases[i].text, &err);
        CHECKF(g, "%s: %s\n", cases[i].text, err.text);
        for (int k = 0; k < 4; k++) {
            if (cases[i].yes[k])
                CHECKF(matches(g, cases[i].yes[k]), "%s has no '%s'\n", cases[i].text,
                       cases[i].yes[k]);
            if (cases[i].no[k])
                CHECKF(!matches(g, cases[i].no[k]), "%s has '%s'\n", cases[i].text, cases[i].no[k]);
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
    grammar *g = compile(r, GRAMMAR_EBNF, nested, NULL);
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
    grammar *g = compile(r, GRAMMAR_EBNF, text, NULL);
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
    grammar *g = compile(&r, GRAMMAR_REGEX, "(xcb|xca|[abc])*", NULL);
    CHECK(g && matches(g, "abab") && !begins(g, "x") && !begins(g, "c"));
    grammar_matcher *m = grammar_matcher_create(g);
    CHECK_OK(grammar_mask(m, bits));
    CHECK(bits[0] == 0xb);
    grammar_matcher_destroy(m);
    grammar_unref(g);
    rad_error err;
    CHECK(!compile(&r, GRAMMAR_REGEX, "xca", &err) && strstr(err.text, "no text"));
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
        grammar *g = round % 2 ? compile(t->r, GRAMMAR_JSON_SCHEMA, own, NULL)
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
    random_vocab(r, &seed);
    grammar *g = compile(r, GRAMMAR_JSON_OBJECT, NULL, NULL);
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

/* ---- memory ---- */

TEST(every_allocation_may_fail)
{
    static const char *const texts[] = {"(a|b)*abb|\\w+\\p{Lu}?",
                                        "r ::= r \"+\" t | t\nt ::= \"(\" r \")\" | [a-c]{2}",
                                        "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
                                        "\"string\", \"maxLength\": 3}, \"b\": "
                                        "{\"oneOf\": [{\"type\": \"integer\", \"minimum\": 3}, "
                                        "{\"$ref\": \"#\"}]}}, \"required\": [\"b\"]}"};
    static const grammar_kind kinds[] = {GRAMMAR_REGEX, GRAMMAR_EBNF, GRAMMAR_JSON_SCHEMA};
    rig_vocab *r = malloc(sizeof *r);
    for (int i = 0; i < 3; i++) {
        bool done = false;
        for (long n = 0; !done; n += n < 60 ? 1 : 61) {
            test_env t;
            rad_env env = test_env_failing_at(&t, n);
            rig_begin(r);
            rad_status status = rig_finish(r, &env, 0);
            grammar *g = NULL;
            CHECK(status == (r->v ? RAD_OK : RAD_E_NOMEM));
            if (r->v) {
                rad_error err = {0};
                grammar_spec spec = {.kind = kinds[i], .text = texts[i], .len = strlen(texts[i])};
                status = grammar_compile(r->v, &spec, NULL, &g, &err);
                CHECKF(status == (g ? RAD_OK : RAD_E_NOMEM), "%ld: %d %s\n", n, status, err.text);
            }
            grammar_matcher *m = g ? grammar_matcher_create(g) : NULL;
            grammar_matcher *fork = m ? grammar_matcher_copy(m) : NULL;
            uint32_t bits[RIG_TOKENS / 32];
            if (fork) status = grammar_mask(fork, bits);
            if (fork && !status) status = grammar_accept(fork, "a({"[i]);
            CHECK(status == RAD_OK || status == RAD_E_NOMEM);
            done = fork && !status;
            grammar_matcher_destroy(fork);
            grammar_matcher_destroy(m);
            grammar_unref(g);
            grammar_vocab_destroy(r->v);
            CHECKF(t.bytes == 0, "allocation %ld: %zu bytes left\n", n, t.bytes);
        }
    }
    free(r);
}

/* ---- what explodes ---- */

typedef struct counted_env {
    size_t bytes, peak;
} counted_env;

static void *counted_alloc(void *user, size_t bytes)
{
    counted_env *c = user;
    c->bytes += bytes;
    if (c->bytes > c->peak) c->peak = c->bytes;
    return aligned_alloc(64, (bytes + 63) & ~(size_t)63);
}

static void counted_free(void *user, void *memory, size_t bytes)
{
    ((counted_env *)user)->bytes -= bytes;
    free(memory);
}

typedef struct hostile_text {
    const char *name;
    grammar_kind kind;
    const char *head, *each, *tail; /* `each` has a %d, twice */
    int count;
    bool circle; /* the second number is that of the next, the last one's of the first */
} hostile_text;

static char *write_hostile(const hostile_text *h, size_t *len)
{
    size_t cap = strlen(h->head) + strlen(h->tail) + (size_t)h->count * (strlen(h->each) + 24) + 1;
    char *text = malloc(cap);
    CHECK(text != NULL);
    *len = (size_t)sprintf(text, "%s", h->head);
    for (int i = 0; i < h->count; i++)
        *len += (size_t)snprintf(text + *len, cap - *len, h->each, i,
                                 h->circle ? (i + 1) % h->count : i);
    *len += (size_t)sprintf(text + *len, "%s", h->tail);
    return text;
}

/* A tenth of what a server allows, so that the test is short; RADISH_TEST_LONG takes all of it. */
TEST(what_explodes_is_refused_or_served_within_its_limits)
{
    static const hostile_text texts[] = {
        {"nested quantifiers", GRAMMAR_REGEX, "", "(((((a{1,99}){1,99}){1,99}){1,99})*)*", "", 1,
         0},
        {"stars of stars", GRAMMAR_REGEX, "(((((((((a*)*)*b*)*)*c*)*)*d*)*)*", "", "x{1,9})*", 1,
         0},
        {"subsets", GRAMMAR_REGEX, "(a|b)*a", "(a|b){24}", "", 1, 0},
        {"alternatives", GRAMMAR_REGEX, "0", "|%d-%d", "", 1000000, 0},
        {"few alternatives", GRAMMAR_REGEX, "0", "|%d-%d", "", 3000, 0},
        {"a long text", GRAMMAR_REGEX, "", "literal ", "", 130000, 0},
        {"any lengths", GRAMMAR_REGEX, "", ".{0,99999}x", "", 8, 0},
        {"classes", GRAMMAR_REGEX, "", "[^%d\\w]*\\p{L}{%d}", "", 60, 0},
        {"groups", GRAMMAR_REGEX, "", "(", "a", 100000, 0},
        {"groups behind lookahead", GRAMMAR_REGEX, "(?=a)", "(", "a", 1000000, 0},
        {"a class in groups with lookahead", GRAMMAR_REGEX, "((((?=a)[", "x", "]){16}){16}){16}",
         100000, 0},
        {"rules that double", GRAMMAR_EBNF, "root ::= r0 ", "r%d ::= r%d r0 | \"x\" ", "", 3000, 1},
        {"rules in a chain", GRAMMAR_EBNF, "root ::= r0 ", "r%d ::= \"a\" r%d \"b\" | \"c\" ", "",
         3000, 1},
        {"a rule of rules", GRAMMAR_EBNF, "root ::= (", "root \"%d\" | \"%d\" root | ", "\"x\")",
         3000, 0},
        {"an ambiguous rule", GRAMMAR_EBNF, "root ::= ", "(\"a\" root \"%d\" root) | ", "\"\"", 60,
         0},
        {"a circle of references", GRAMMAR_JSON_SCHEMA,
         "{\"$ref\": \"#/$defs/d0\", \"$defs\": {\"x\": {}",
         ", \"d%d\": {\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#/$defs/d%d\"}}}",
         "}}", 20000, 1},
        {"references to references", GRAMMAR_JSON_SCHEMA,
         "{\"$ref\": \"#/$defs/d0\", \"$defs\": {\"x\": {}",
         ", \"d%d\": {\"$ref\": \"#/$defs/d%d\"}", "}}", 3000, 1},
        {"a large enum", GRAMMAR_JSON_SCHEMA, "{\"enum\": [0", ", \"value %d of %d\"", "]}", 100000,
         0},
        {"an enum", GRAMMAR_JSON_SCHEMA, "{\"enum\": [0", ", \"value %d of %d\"", "]}", 1000, 0},
        {"an enum with a pattern", GRAMMAR_JSON_SCHEMA,
         "{\"pattern\": \"(a|b)*e.{4}$\", \"enum\": [\"\"", ", \"value %d of %d\"", "]}", 20000, 0},
        {"ways", GRAMMAR_JSON_SCHEMA, "{\"allOf\": [{}",
         ", {\"anyOf\": [{\"minimum\": %d}, {\"maxLength\": %d}]}", "]}", 40, 0},
        {"branches of oneOf", GRAMMAR_JSON_SCHEMA, "{\"oneOf\": [{\"type\": \"null\"}",
         ", {\"type\": \"string\", \"pattern\": \"^%d-[a-z]{3,9}%d$\"}", "]}", 400, 0},
        {"large strings", GRAMMAR_JSON_SCHEMA, "{\"type\": \"object\", \"properties\": {\"x\": {}",
         ", \"p%d\": {\"type\": \"string\", \"maxLength\": 9000%d}", "}}", 9, 0},
        {"long lists", GRAMMAR_JSON_SCHEMA,
         "{\"type\": \"array\", \"minItems\": 99999, \"items\": {\"enum\": [0", ", %d.%d", "]}}",
         100, 0},
        {"members", GRAMMAR_JSON_SCHEMA,
         "{\"type\": \"object\", \"maxProperties\": 999, \"properties\": {\"x\": {}",
         ", \"p%d %d\": {}", "}}", 900, 0},
        {"items that differ", GRAMMAR_JSON_SCHEMA,
         "{\"uniqueItems\": true, \"items\": {\"enum\": [0", ", \"value %d of %d\"", "]}}", 9, 0},
        {"more of them", GRAMMAR_JSON_SCHEMA,
         "{\"maxItems\": 3, \"uniqueItems\": true, \"items\": {\"enum\": [0",
         ", \"value %d of %d\"", "]}}", 60, 0},
        {"a list whose items differ at their end", GRAMMAR_JSON_SCHEMA,
         "{\"uniqueItems\": true, \"const\": [0", ", [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, %d]",
         "]}", 9000, 0},
        {"forms of names", GRAMMAR_JSON_SCHEMA, "{\"patternProperties\": {\"x\": {}",
         ", \"^%d.{9}%d$\": {\"const\": 5}", "}}", 50, 0},
        {"forms that meet", GRAMMAR_JSON_SCHEMA, "{\"patternProperties\": {\"x\": {}",
         ", \"a.*%d\": {}", "}, \"type\": \"object\"}", 30, 0},
        {"names between marks", GRAMMAR_EBNF,
         "root ::= %marked \"|\" {\"type\": \"object\", \"properties\": {\"x\": {}",
         ", \"p%d %d\": {}", "}}", 900, 0},
        {"choices", GRAMMAR_CHOICE, "[\"\"", ", \"%d or %d\"", "]", 50000, 0}};
    rig_vocab *r = malloc(sizeof *r);
    counted_env counted = {0, 0};
    rad_env env = {
        .struct_size = sizeof env, .user = &counted, .alloc = counted_alloc, .free = counted_free};
    uint64_t part = test_scale(12, 1);
    grammar_limits limits = {.bytes = (64u << 20) / part,
                             .steps = 25000000 / part,
                             .states = (1u << 20) / (uint32_t)part,
                             .text_bytes = 32u << 20};
    int served = 0, refused = 0;
    rig_begin(r);
    CHECK_OK(rig_finish(r, &env, 0));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        rad_error err = {0};
        size_t len, before = counted.peak = counted.bytes;
        char *text = write_hostile(&texts[i], &len);
        grammar_spec spec = {.kind = texts[i].kind, .text = text, .len = len};
        grammar *g = NULL;
        rad_status status = grammar_compile(r->v, &spec, &limits, &g, &err);
        CHECKF(status == RAD_OK || status == RAD_E_LIMIT || status == RAD_E_UNSUPPORTED ||
                   status == RAD_E_INVAL,
               "%s: %d %s\n", texts[i].name, status, err.text);
        CHECKF(counted.peak - before <= limits.bytes + 65536, "%s: %zu bytes\n", texts[i].name,
               counted.peak - before);
        if (g) {
            grammar_stats stats;
            grammar_get_stats(g, &stats);
            CHECKF(stats.states <= limits.states && stats.peak_bytes <= limits.bytes &&
                       stats.steps <= limits.steps,
                   "%s: %u states\n", texts[i].name, stats.states);
            grammar_matcher *m = grammar_matcher_create(g);
            uint32_t bits[RIG_TOKENS / 32];
            for (int step = 0; m && step < 40; step++) { /* served is served, or ends in words */
                if (grammar_mask(m, bits)) break;
                uint32_t t = 0;
                while (t < r->count && !rig_bit(bits, t))
                    t++;
                if (t == r->count || grammar_accept(m, (rad_token)t)) break;
            }
            grammar_matcher_destroy(m);
        }
        served += g != NULL;
        refused += g == NULL;
        grammar_unref(g);
        free(text);
        CHECK(counted.bytes == before || g); /* masks of JSON's own rules stay */
    }
    CHECKF(served >= 4 && refused >= 8, "%d served, %d refused\n", served, refused);
    grammar_vocab_destroy(r->v);
    CHECK(counted.bytes == 0);
    free(r);
}

/* References that double from one to the next: each way through them counts as work. */
TEST(every_way_through_references_is_counted)
{
    enum { DOUBLES = 12, WAYS = 1 << DOUBLES };
    static const char *const heads[] = {
        "{\"type\":\"object\",\"propertyNames\":{\"$ref\":\"#/$defs/d0\"},\"$defs\":{",
        "{\"enum\":[[\"x\"]],\"items\":{\"$ref\":\"#/$defs/d0\"},\"$defs\":{"};
    rig_vocab *r = malloc(sizeof *r);
    rig_begin(r);
    CHECK_OK(rig_finish(r, NULL, 0));
    for (size_t i = 0; i < RAD_COUNT(heads); i++) {
        char text[4096];
        size_t len = (size_t)sprintf(text, "%s", heads[i]);
        for (int k = 0; k < DOUBLES; k++)
            len += (size_t)sprintf(text + len,
                                   "\"d%d\":{\"anyOf\":[{\"$ref\":\"#/$defs/d%d\"},"
                                   "{\"$ref\":\"#/$defs/d%d\"}]},",
                                   k, k + 1, k + 1);
        sprintf(text + len, "\"d%d\":{\"const\":\"x\"}}}", DOUBLES);
        rad_error err = {0};
        grammar_stats stats;
        grammar *g = compile(r, GRAMMAR_JSON_SCHEMA, text, &err);
        CHECKF(g != NULL, "%s\n", err.text);
        grammar_get_stats(g, &stats);
        CHECKF(stats.steps > (uint64_t)WAYS * 40, "%llu\n", (unsigned long long)stats.steps);
        grammar_unref(g);
    }
    grammar_vocab_destroy(r->v);
    free(r);
}

TEST_MAIN()
