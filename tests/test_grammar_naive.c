/* test_grammar_naive.c - random rules and expressions beside a naive reading of them. */
#include "grammar_compiled.h"

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

static void compare_with_naive(bool ebnf, uint64_t rounds)
{
    static naive n;
    static char said[65536];
    uint64_t seed = test_told_seed(), served = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        rig_vocab *r = malloc(sizeof *r);
        uint64_t begun = seed;
        rad_error err = {0};
        rig_random(r, &seed);
        random_grammar(&n, &seed, said, ebnf);
        grammar *g = rig_compile(r, ebnf ? GRAMMAR_EBNF : GRAMMAR_REGEX, said, &err);
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

TEST_MAIN()
