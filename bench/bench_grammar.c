/* bench_grammar.c - what structured output costs: compiling, and masks over 151,936 tokens.
 *
 *     bench_grammar [SMALL]
 *
 * Masks are measured as a server meets them: a grammar is compiled, one document of it is followed
 * token by token, and then another one that nobody has seen, with a mask before each token; the
 * times of that one are printed. Documents come from a random walk over the schema. The vocabulary
 * is the scheme of tools/make-model.py (bytes, syllables, words with and without a space before
 * them) and what real ones have besides: runs of digits, blanks and punctuation, pieces of JSON,
 * characters of three bytes and parts of such. With an argument all is small, to see that it runs.
 */
#include "bench.h"

#include <stdarg.h>

#include "grammar/grammar.h"

enum { VOCAB = 151936, MOST_TIMES = 100000 };

static grammar_piece *pieces;
static uint32_t num_pieces, most_pieces;
static uint64_t seed = 1;

static uint32_t pick(uint32_t count)
{
    uint64_t z = (seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % count);
}

/* ---- the vocabulary ---- */

static void add(const char *bytes, size_t len)
{
    if (num_pieces == most_pieces) return;
    char *copy = malloc(len);
    if (!copy) abort();
    memcpy(copy, bytes, len);
    pieces[num_pieces++] = (grammar_piece){.bytes = copy, .len = (uint32_t)len};
}

static void add_text(const char *text)
{
    add(text, strlen(text));
}

static void add_word(const char *a, const char *b, const char *c, const char *d)
{
    char word[32];
    snprintf(word, sizeof word, "%.7s%.7s%.7s%.7s", a, b, c, d);
    add_text(word);
}

static void make_vocab(uint32_t size, grammar_vocab **v)
{
    static const char *const json[] = {
        "{\"",  "\":",  "\": ",  "\": \"", "\":\"", "\",",  "\", \"", "\",\"",  "\"}",
        "\"]",  "\"},", "\"],",  "}}",     "]}",    "},",   "},{",    "}, {\"", "],",
        "[]",   "{}",   "[\"",   "[{\"",   "null",  "true", "false",  ", \"",   ": {\"",
        ": [",  "\"\n", "\",\n", "{\n",    "}\n",   "},\n", "]\n",    "],\n",   "[\n",
        "\"\"", " \"",  "\\\"",  "\\n",    "\\u",   "\\\\"};
    static const char punctuation[] = "\"',:;.!?(){}[]<>/\\|=+-*&^%$#@~`_ \n";
    char syllables[105][3], text[64];
    uint32_t n = 0;
    most_pieces = size - 2;
    pieces = calloc(size, sizeof *pieces);
    if (!pieces) abort();
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        add(&byte, 1);
    }
    for (size_t i = 0; i < RAD_COUNT(json); i++)
        add_text(json[i]);
    for (int i = 0; i < 1110; i++) {
        snprintf(text, sizeof text,
                 i < 10    ? "%d"
                 : i < 110 ? "%02d"
                           : "%03d",
                 i < 10    ? i
                 : i < 110 ? i - 10
                           : i - 110);
        add_text(text);
    }
    for (int i = 2; i < 60; i++) {
        memset(text, i % 3 ? ' ' : i % 2 ? '-' : '\n', sizeof text);
        add(text, (size_t)i);
    }
    for (int i = 0; i < 6000; i++) { /* runs of two to four */
        size_t len = 2 + pick(3);
        for (size_t k = 0; k < len; k++)
            text[k] = punctuation[pick(sizeof punctuation - 1)];
        add(text, len);
    }
    for (const char *c = "bcdfghjklmnpqrstvwxyz"; *c; c++)
        for (const char *v_ = "aeiou"; *v_; v_++) {
            syllables[n][0] = *c;
            syllables[n][1] = *v_;
            syllables[n++][2] = 0;
        }
    for (uint32_t code = 0x4e00; code < 0x4e00 + 22000 && size > 50000;
         code++) { /* CJK: whole, and a part */
        char three[] = {(char)(0xe0 | code >> 12), (char)(0x80 | (code >> 6 & 63)),
                        (char)(0x80 | (code & 63))};
        add(three, code % 16 ? 3 : 2);
    }
    for (uint32_t i = 0; i < n; i++) {
        add_word(syllables[i], "", "", "");
        add_word(" ", syllables[i], "", "");
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++) {
            add_word(syllables[i], syllables[k], "", "");
            add_word(" ", syllables[i], syllables[k], "");
            if (i % 8 == 0) add_word(syllables[i], syllables[k], "\"", "");
            if (i % 8 == 1) add_word("_", syllables[i], syllables[k], "");
        }
    while (num_pieces < most_pieces)
        add_word(pick(2) ? " " : "", syllables[pick(n)], syllables[pick(n)], syllables[pick(n)]);
    pieces[num_pieces++] = (grammar_piece){.control = true};
    pieces[num_pieces++] = (grammar_piece){.control = true};
    rad_token end = (rad_token)num_pieces - 1;
    grammar_vocab_params params = {
        .pieces = pieces, .vocab_size = num_pieces, .end_tokens = &end, .num_end_tokens = 1};
    rad_error err;
    double t = bench_now();
    if (grammar_vocab_create(NULL, &params, v, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    double made = bench_now();
    if (grammar_vocab_warm(*v)) abort();
    double warm = bench_now();
    grammar_vocab_stats stats;
    grammar_vocab_get_stats(*v, &stats);
    printf("vocabulary    %u tokens, %llu nodes, %.1f MB: made in %.0f ms, JSON's own masks in "
           "%.1f ms\n",
           num_pieces, (unsigned long long)stats.nodes, (double)stats.bytes * 1e-6,
           (made - t) * 1e3, (warm - made) * 1e3);
}

/* ---- schemas ---- */

static char *text;
static size_t text_len, text_cap;

static void put(const char *format, ...) RAD_PRINTF(1, 2);
static void put(const char *format, ...)
{
    va_list args;
    if (text_cap - text_len < 4096) {
        text_cap = text_cap * 2 + 8192;
        text = realloc(text, text_cap);
        if (!text) abort();
    }
    va_start(args, format);
    text_len += (size_t)vsnprintf(text + text_len, text_cap - text_len, format, args);
    va_end(args);
}

static const char weather[] = "{\"type\": \"object\", \"properties\": {\"location\": {\"type\": "
                              "\"string\", \"description\": \"City and "
                              "country\"}, \"unit\": {\"type\": \"string\", \"enum\": "
                              "[\"celsius\", \"fahrenheit\"]}, \"days\": {\"type\": "
                              "\"integer\", \"minimum\": 1, \"maximum\": 14}, \"hourly\": "
                              "{\"type\": \"boolean\"}}, \"required\": "
                              "[\"location\", \"unit\"], \"additionalProperties\": false}";
static const char orders[] =
    "{\"type\": \"object\", \"properties\": {\"id\": {\"type\": \"string\", \"format\": \"uuid\"}, "
    "\"created\": "
    "{\"type\": \"string\", \"format\": \"date-time\"}, \"customer\": {\"type\": \"object\", "
    "\"properties\": "
    "{\"name\": {\"type\": \"string\", \"minLength\": 1, \"maxLength\": 80}, \"email\": {\"type\": "
    "\"string\", "
    "\"format\": \"email\"}, \"tags\": {\"type\": \"array\", \"items\": {\"type\": \"string\"}, "
    "\"maxItems\": 8}}, "
    "\"required\": [\"name\", \"email\"], \"additionalProperties\": false}, \"lines\": {\"type\": "
    "\"array\", "
    "\"minItems\": 1, \"items\": {\"type\": \"object\", \"properties\": {\"sku\": {\"type\": "
    "\"string\", \"pattern\": "
    "\"^[A-Z]{3}-[0-9]{4}$\"}, \"count\": {\"type\": \"integer\", \"minimum\": 1}, \"price\": "
    "{\"type\": "
    "\"number\", \"minimum\": 0}, \"note\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": "
    "\"null\"}]}}, "
    "\"required\": [\"sku\", \"count\", \"price\"], \"additionalProperties\": false}}, \"total\": "
    "{\"type\": "
    "\"number\", \"minimum\": 0}}, \"required\": [\"id\", \"customer\", \"lines\", \"total\"], "
    "\"additionalProperties\": false}";
static const char tree[] = "{\"$defs\": {\"node\": {\"type\": \"object\", \"properties\": "
                           "{\"type\": {\"enum\": [\"div\", \"button\", "
                           "\"field\", \"form\"]}, \"label\": {\"type\": \"string\"}, "
                           "\"children\": {\"type\": \"array\", \"items\": {\"$ref\": "
                           "\"#/$defs/node\"}}, \"attributes\": {\"type\": \"object\", "
                           "\"additionalProperties\": {\"type\": "
                           "\"string\"}}}, \"required\": [\"type\", \"label\", \"children\"], "
                           "\"additionalProperties\": false}}, \"$ref\": "
                           "\"#/$defs/node\"}";

/* Bounds that are far, and texts that go to theirs. */
static const char article[] =
    "{\"type\": \"object\", \"properties\": {\"title\": {\"type\": \"string\", \"minLength\": 1, "
    "\"maxLength\": 255}, \"summary\": {\"type\": \"string\", \"maxLength\": 2000}, \"body\": "
    "{\"type\": "
    "\"string\", \"minLength\": 10, \"maxLength\": 10000}, \"notes\": {\"type\": \"string\", "
    "\"maxLength\": 10000}, \"tags\": {\"type\": \"array\", \"maxItems\": 1000, \"items\": "
    "{\"type\": "
    "\"string\", \"maxLength\": 100}}}, \"required\": [\"title\", \"summary\", \"body\"], "
    "\"additionalProperties\": false}";
static const char full[] =
    "{\"type\": \"array\", \"maxItems\": 100, \"items\": {\"type\": \"string\", "
    "\"minLength\": 290, \"maxLength\": 300}}";

/* The tools of a coding agent: some thirty, with long descriptions. Each a name and its arguments.
 */
static void put_tools(uint32_t count)
{
    static const struct {
        const char *name, *more;
    } parts[] = {
        {"file_path", "{\"type\": \"string\", \"description\": \"The absolute path to the file, "
                      "which must begin with "
                      "a slash; relative paths are refused with an error\"}"},
        {"old_string", "{\"type\": \"string\", \"description\": \"The text to replace; it must "
                       "occur exactly once in "
                       "the file unless replace_all is set\"}"},
        {"new_string", "{\"type\": \"string\", \"description\": \"The text to put in its place, "
                       "which must differ from "
                       "the old one\"}"},
        {"replace_all", "{\"type\": \"boolean\", \"default\": false, \"description\": \"Replace "
                        "all occurrences instead of one\"}"},
        {"limit", "{\"type\": \"integer\", \"minimum\": 1, \"maximum\": 2000, \"description\": "
                  "\"How many lines to read\"}"},
        {"offset",
         "{\"type\": \"integer\", \"minimum\": 0, \"description\": \"The line to begin with\"}"},
        {"pattern", "{\"type\": \"string\", \"description\": \"A regular expression that is "
                    "searched for in the "
                    "contents of files\"}"},
        {"output_mode",
         "{\"type\": \"string\", \"enum\": [\"content\", \"files_with_matches\", \"count\"]}"},
        {"timeout", "{\"type\": \"number\", \"exclusiveMinimum\": 0, \"maximum\": 600000}"},
        {"todos", "{\"type\": \"array\", \"items\": {\"type\": \"object\", \"properties\": "
                  "{\"content\": {\"type\": "
                  "\"string\", \"minLength\": 1}, \"status\": {\"type\": \"string\", \"enum\": "
                  "[\"pending\", "
                  "\"in_progress\", \"completed\"]}, \"activeForm\": {\"type\": \"string\", "
                  "\"minLength\": 1}}, "
                  "\"required\": [\"content\", \"status\", \"activeForm\"], "
                  "\"additionalProperties\": false}}"},
        {"command", "{\"type\": \"string\", \"description\": \"The command to run; quote paths "
                    "that have spaces\"}"},
        {"url", "{\"type\": \"string\", \"format\": \"uri\"}"},
        {"edits",
         "{\"type\": \"array\", \"minItems\": 1, \"items\": {\"type\": \"object\", \"properties\": "
         "{\"old_string\": {\"type\": \"string\"}, \"new_string\": {\"type\": \"string\"}, "
         "\"replace_all\": "
         "{\"type\": \"boolean\"}}, \"required\": [\"old_string\", \"new_string\"], "
         "\"additionalProperties\": false}}"},
        {"options", "{\"type\": \"object\", \"additionalProperties\": {\"anyOf\": [{\"type\": "
                    "\"string\"}, {\"type\": "
                    "\"number\"}, {\"type\": \"null\"}]}}"}};
    text_len = 0;
    put("{\"anyOf\": [");
    for (uint32_t t = 0; t < count; t++) {
        put("%s{\"type\": \"object\", \"properties\": {\"name\": {\"const\": \"tool_%u\"}, "
            "\"arguments\": {\"type\": "
            "\"object\", \"properties\": {",
            t ? ", " : "", t);
        for (uint32_t i = 0; i < 6; i++) {
            uint32_t part = (t * 5 + i) % (uint32_t)RAD_COUNT(parts);
            put("%s\"%s\": %s", i ? ", " : "", parts[part].name, parts[part].more);
        }
        put("}, \"required\": [\"%s\", \"%s\"], \"additionalProperties\": false}}, \"required\": "
            "[\"name\", "
            "\"arguments\"], \"additionalProperties\": false}",
            parts[t * 5 % RAD_COUNT(parts)].name, parts[(t * 5 + 1) % RAD_COUNT(parts)].name);
    }
    put("]}");
}

/* ---- rows ---- */

static double times[MOST_TIMES];

static uint32_t random_token(const uint32_t *bits, uint32_t step)
{
    uint32_t end = num_pieces - 1;
    if (bits[end / 32] >> end % 32 & 1) return end;
    /* Mostly a token that is allowed, whatever it is; late in a document what ends something. */
    static const char *const closing[] = {"\"", "}", "]", "\"}", "0"};
    for (int i = 0; i < 5 && (step > 150 ? pick(4) : !pick(12)); i++)
        for (uint32_t t = 0; t < 300; t++)
            if (pieces[t].len == strlen(closing[i]) &&
                !memcmp(pieces[t].bytes, closing[i], pieces[t].len) && bits[t / 32] >> t % 32 & 1)
                return t;
    for (;;) {
        uint32_t t = pick(num_pieces), word = t / 32;
        for (uint32_t tries = 0; tries <= num_pieces / 32;
             tries++, word = (word + 1) % ((num_pieces + 31) / 32)) {
            if (!bits[word]) continue;
            uint32_t skip = pick((uint32_t)__builtin_popcount(bits[word])), left = bits[word];
            while (skip--)
                left &= left - 1;
            return word * 32 + (uint32_t)__builtin_ctz(left);
        }
    }
}

static uint32_t follow(grammar *g, uint32_t *bits, uint32_t count)
{
    grammar_matcher *m = grammar_matcher_create(g);
    uint32_t step = 0;
    if (!m) abort();
    while (step < 2000 && count < MOST_TIMES) {
        double t = bench_now();
        if (grammar_mask(m, bits)) abort();
        times[count++] = bench_now() - t;
        uint32_t token = random_token(bits, step++);
        if (grammar_accept(m, (rad_token)token)) abort();
        if (token == num_pieces - 1) break;
    }
    grammar_matcher_destroy(m);
    return count;
}

static void row(grammar_vocab *v, const char *name, grammar_kind kind, const char *spec_text,
                size_t len, uint32_t documents)
{
    grammar_spec spec = {.kind = kind, .text = spec_text, .len = len};
    rad_error err;
    grammar *g = NULL;
    uint32_t *bits = calloc(grammar_mask_words(num_pieces), sizeof *bits), count = 0;
    double compile[5], worst = 0;
    if (!bits) abort();
    for (int i = 0; i < 5; i++) {
        double t = bench_now();
        if (grammar_compile(v, &spec, NULL, &g, &err)) {
            printf("%s: %s\n", name, err.text);
            exit(1);
        }
        compile[i] = bench_now() - t;
        if (i < 4) grammar_unref(g);
    }
    qsort(compile, 5, sizeof *compile, bench_compare);
    /* Each unseen document is one after one other: with a grammar of its own. */
    for (uint32_t d = 0; d < documents; d++) {
        follow(g, bits, count);
        count = follow(g, bits, count);
        grammar_unref(g);
        if (grammar_compile(v, &spec, NULL, &g, &err)) abort();
    }
    grammar_stats stats;
    grammar_get_stats(g, &stats);
    grammar_unref(g);
    qsort(times, count, sizeof *times, bench_compare);
    worst = times[count - 1];
    printf("%-13s compile %6.2f ms, %6u states; %6u masks: p50 %6.1f us, p90 %6.1f, p99 %7.1f, "
           "worst %7.1f\n",
           name, compile[2] * 1e3, stats.states, count, times[count / 2] * 1e6,
           times[count * 9 / 10] * 1e6, times[count * 99 / 100] * 1e6, worst * 1e6);
    free(bits);
}

static void hostile(grammar_vocab *v, const char *name, grammar_kind kind)
{
    grammar_spec spec = {.kind = kind, .text = text, .len = text_len};
    rad_error err = {0};
    grammar *g = NULL;
    double t = bench_now();
    rad_status status = grammar_compile(v, &spec, NULL, &g, &err);
    t = bench_now() - t;
    grammar_stats stats = {0};
    if (g) grammar_get_stats(g, &stats);
    printf("%-28s %7.1f ms: %.70s", name, t * 1e3, status ? err.text : "served");
    if (!status)
        printf(", %u states, %.1f MB at the most", stats.states, (double)stats.peak_bytes * 1e-6);
    printf("\n");
    grammar_unref(g);
}

int main(int argc, char **argv)
{
    bool small = argc > 1;
    uint32_t documents = small ? 2 : 40;
    grammar_vocab *v;
    (void)argv;
    make_vocab(small ? 20000 : VOCAB, &v);
    row(v, "any object", GRAMMAR_JSON_OBJECT, NULL, 0, documents);
    row(v, "one tool", GRAMMAR_JSON_SCHEMA, weather, strlen(weather), documents);
    row(v, "orders", GRAMMAR_JSON_SCHEMA, orders, strlen(orders), documents);
    row(v, "recursive", GRAMMAR_JSON_SCHEMA, tree, strlen(tree), documents);
    put_tools(22);
    printf("22 tools: %zu bytes of schemas\n", text_len);
    row(v, "22 tools", GRAMMAR_JSON_SCHEMA, text, text_len, documents);
    row(v, "[a-z]+( [a-z]+)*", GRAMMAR_REGEX, "[a-z]+( [a-z]+)*[.]", 19, documents);
    row(v, "long texts", GRAMMAR_JSON_SCHEMA, article, strlen(article), documents);
    row(v, "full texts", GRAMMAR_JSON_SCHEMA, full, strlen(full), documents);
    row(v, "[a-z ]{280,300}[.]", GRAMMAR_REGEX, "[a-z ]{280,300}[.]", 18, documents);
    grammar_vocab_stats stats;
    grammar_vocab_get_stats(v, &stats);
    printf("masks kept: %.1f MB; found %llu times, computed %llu times, evicted %llu\n",
           (double)stats.cache_bytes * 1e-6, (unsigned long long)stats.hits,
           (unsigned long long)stats.misses, (unsigned long long)stats.evicted);

    text_len = 0;
    put("(((a{1,100}){1,100}){1,100}){1,100}");
    hostile(v, "nested quantifiers", GRAMMAR_REGEX);
    text_len = 0;
    put("(a|b)*a(a|b){30}");
    hostile(v, "an exploding expression", GRAMMAR_REGEX);
    text_len = 0;
    for (int i = 0; i < (small ? 10000 : 500000); i++)
        put("%s%d", i ? "|" : "", i);
    hostile(v, "500,000 alternatives", GRAMMAR_REGEX);
    text_len = 0;
    for (int i = 0; i < (small ? 10000 : 1000000); i++)
        put("%c", 'a' + i % 26);
    hostile(v, "an expression of 1 MB", GRAMMAR_REGEX);
    text_len = 0;
    put("{\"enum\": [");
    for (int i = 0; i < (small ? 1000 : 200000); i++)
        put("%s\"value %d\"", i ? "," : "", i);
    put("]}");
    hostile(v, "an enum of 200,000", GRAMMAR_JSON_SCHEMA);
    text_len = 0;
    put("{\"$ref\": \"#/$defs/d0\", \"$defs\": {");
    for (int i = 0; i < (small ? 100 : 20000); i++)
        put("%s\"d%d\": {\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": "
            "\"#/$defs/d%d\"}}}",
            i ? "," : "", i, (i + 1) % (small ? 100 : 20000));
    put("}}");
    hostile(v, "a circle of 20,000 $refs", GRAMMAR_JSON_SCHEMA);
    free(text);
    grammar_vocab_destroy(v);
    return 0;
}
