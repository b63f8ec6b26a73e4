/* test_grammar_limits.c - grammars that are too much: of memory, of states, of work. */
#include "grammar_compiled.h"

/* ---- memory ---- */

TEST(every_allocation_may_fail)
{
    static const char *const texts[] = {
        "(a|b)*abb|\\w+\\p{Lu}?", "r ::= r \"+\" t | t\nt ::= \"(\" r \")\" | [a-c]{2}",
        "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
        "\"string\", \"maxLength\": 3}, \"b\": "
        "{\"oneOf\": [{\"type\": \"integer\", \"minimum\": 3}, "
        "{\"$ref\": \"#\"}]}}, \"required\": [\"b\"], "
        "\"patternProperties\": {\"^c\": {\"uniqueItems\": true, \"items\": {\"enum\": "
        "[1, \"x\"]}}}}",
        "root ::= %marked \"|\" {\"properties\": {\"a\": {\"maxLength\": 2}}}"};
    static const grammar_kind kinds[] = {GRAMMAR_REGEX, GRAMMAR_EBNF, GRAMMAR_JSON_SCHEMA,
                                         GRAMMAR_EBNF};
    rig_vocab *r = malloc(sizeof *r);
    for (int i = 0; i < 4; i++) {
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
            if (fork && !status) status = grammar_accept(fork, "a({{"[i]);
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
        {"nested counts", GRAMMAR_REGEX, "",
         "((((([a-c]{1,9999};){1,9999}:){1,9999},){1,9999}!){0,9999}-)", "", 1, 0},
        {"counts that a text does not tell", GRAMMAR_REGEX, "", "(([a-c]{1,9999};?){1,9999}x)?", "",
         9, 0},
        {"huge counts", GRAMMAR_REGEX, "", "[a-c]{1,1073741824};", "", 9, 0},
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
    test_env counted;
    rad_env env = test_env_init(&counted);
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
        size_t len, before = counted.most = counted.bytes;
        char *text = write_hostile(&texts[i], &len);
        grammar_spec spec = {.kind = texts[i].kind, .text = text, .len = len};
        grammar *g = NULL;
        rad_status status = grammar_compile(r->v, &spec, &limits, &g, &err);
        CHECKF(status == RAD_OK || status == RAD_E_LIMIT || status == RAD_E_UNSUPPORTED ||
                   status == RAD_E_INVAL,
               "%s: %d %s\n", texts[i].name, status, err.text);
        CHECKF(counted.most - before <= limits.bytes + 65536, "%s: %zu bytes\n", texts[i].name,
               counted.most - before);
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

/* Values nest as deep as there is room for cells (place.h), and then it is said: whatever the
 * depth, nothing calls itself for a level. */
TEST(nesting_is_followed_up_to_a_limit)
{
    enum { SERVED = 50000, TOO_DEEP = 1050000 };
    rig_vocab *r = malloc(sizeof *r);
    char *text = malloc(TOO_DEEP);
    rad_error err = {0};
    rig_begin(r);
    CHECK_OK(rig_finish(r, NULL, 0));
    grammar *g = rig_compile(r, GRAMMAR_JSON_VALUE, NULL, &err);
    memset(text, '[', TOO_DEEP);
    CHECK(grammar_try(g, text, SERVED, false) == RAD_OK);
    CHECK(grammar_try(g, text, TOO_DEEP, false) == RAD_E_LIMIT);
    memset(text + SERVED, ']', SERVED);
    CHECK(grammar_try(g, text, 2 * SERVED, true) == RAD_OK);
    CHECK(grammar_try(g, text, 2 * SERVED + 1, false) == RAD_NONE);
    grammar_unref(g);
    grammar_vocab_destroy(r->v);
    free(text);
    free(r);
}

/* Clients write a pattern again for each property that has it. It is compiled once, and another
 * beside it once more; forty times would be refused. */
TEST(a_pattern_is_compiled_once)
{
    enum { MANY = 40 };
    rig_vocab *r = malloc(sizeof *r);
    uint64_t steps[2];
    rig_begin(r);
    CHECK_OK(rig_finish(r, NULL, 0));
    for (int other = 0; other < 2; other++) {
        char text[8192];
        size_t len = (size_t)sprintf(text, "{\"type\": \"object\", \"properties\": {\"p\": {}");
        for (int i = 0; i < MANY; i++)
            len += (size_t)sprintf(
                text + len, ", \"p%d\": {\"type\": \"string\", \"pattern\": \"^\\\\p{Lu}%s$\"}", i,
                other && i % 2 ? "+" : "");
        sprintf(text + len, "}}");
        rad_error err = {0};
        grammar_stats stats;
        grammar *g = rig_compile(r, GRAMMAR_JSON_SCHEMA, text, &err);
        CHECKF(g != NULL, "%s\n", err.text);
        grammar_get_stats(g, &stats);
        steps[other] = stats.steps;
        grammar_unref(g);
    }
    CHECKF(steps[0] < 12000000 && steps[1] > steps[0] + 1000000, "%llu, %llu\n",
           (unsigned long long)steps[0], (unsigned long long)steps[1]);
    grammar_vocab_destroy(r->v);
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
        grammar *g = rig_compile(r, GRAMMAR_JSON_SCHEMA, text, &err);
        CHECKF(g != NULL, "%s\n", err.text);
        grammar_get_stats(g, &stats);
        CHECKF(stats.steps > (uint64_t)WAYS * 40, "%llu\n", (unsigned long long)stats.steps);
        grammar_unref(g);
    }
    grammar_vocab_destroy(r->v);
    free(r);
}

TEST_MAIN()
