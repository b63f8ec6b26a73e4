/* probe.c - grammars for a script: what they refuse, what they allow, and what comes out of a
 * sampler that takes any token that is allowed.
 *
 *     grammar_probe < requests
 *
 * A request is a line of JSON, and so is its answer:
 *
 *     {"kind": "schema", "text": "...", "space": 0, "closed": false, "seed": 1, "samples": 3,
 *      "accept": ["...", ...]}
 *     {"error": "", "samples": ["...", ...], "accept": [true, ...], "states": 12}
 *
 * kind is schema, object, value, regex, ebnf or choice. A text of "accept" is cut into tokens at
 * random, each must be in the mask and is then accepted, and at the end the end token. The
 * vocabulary has every byte, pieces of JSON, and letters and digits in twos and threes. A sample
 * that does not come to an end in MOST_STEPS tokens is null. */
#include "grammar_rig.h"

#include <jansson.h>
#include <stdio.h>

enum { MOST_STEPS = 3000, EAGER_STEPS = 60 };

static rig_vocab vocab;
static uint32_t bits[RIG_TOKENS / 32];
static uint64_t state;

static uint32_t pick(uint32_t count)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % count);
}

static void make_vocab(void)
{
    static const char *const pieces[] = {
        "{\"",  "\":",   "\": ",  "\",",  "\", \"", "\"}",      "\"]",   "}}",       "]}",
        "},",   "}, {",  "], ",   "[]",   "{}",     "[\"",      "[{",    "[[",       "null",
        "true", "false", ", ",    ": ",   ":\"",    ": \"",     ",\"",   ", \"",     "\"\"",
        " \"",  "1,",    "0]",    "0}",   "12",     "-1",       ".5",    "e1",       "\\n",
        "\\\"", "\\u00", "\n  ",  "é",    "日本",   "\xe6\x97", "\xa5",  "\xf0\x9f", "\x98\x80",
        "name", "type",  "value", "id",   "the ",   " of",      "items", "2024-",    "-01",
        "00:",  "http",  "://",   ".com", "@",      "ab\"",     "\"a",   "\n",       "\n ",
        "},\n", "{\n"};
    rig_begin(&vocab);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        rig_add(&vocab, pieces[i], strlen(pieces[i]));
    for (char a = 'a'; a <= 'z'; a++)
        for (char b = 'a'; b <= 'i'; b += 2) {
            char two[3] = {a, b, (char)(b + 1)};
            rig_add(&vocab, two, 1 + (size_t)((a + b) % 3));
        }
    for (char a = '0'; a <= '9'; a++)
        for (char b = '0'; b <= '9'; b++) {
            char two[3] = {a, b, '0'};
            rig_add(&vocab, two, (a + b) % 4 ? 2 : 3);
        }
    if (rig_finish(&vocab, NULL, 0)) abort();
}

/* Bytes that end something: taken first once a sample has become long. */
static int eagerness(uint32_t token)
{
    if (token == (uint32_t)vocab.end) return 4;
    const grammar_piece *p = &vocab.pieces[token];
    if (p->len != 1) return 0;
    return strchr("\"}]", p->bytes[0]) && p->bytes[0] ? 3 : 0;
}

static json_t *sample(grammar *g)
{
    char *text = malloc(MOST_STEPS * RIG_PIECE);
    size_t len = 0;
    grammar_matcher *m = grammar_matcher_create(g);
    if (!text || !m) abort();
    json_t *out = NULL;
    for (uint32_t step = 0; step < MOST_STEPS; step++) {
        uint32_t allowed[RIG_TOKENS], n = 0, best[RIG_TOKENS], num_best = 0;
        if (grammar_mask(m, bits)) abort();
        int most = 1;
        for (uint32_t t = 0; t < vocab.count + 2; t++) {
            if (!rig_bit(bits, t)) continue;
            allowed[n++] = t;
            int eager = eagerness(t);
            if (eager > most) {
                most = eager;
                num_best = 0;
            }
            if (eager == most) best[num_best++] = t;
        }
        if (!n) abort(); /* what was begun can be ended */
        bool hurry = num_best && (step > EAGER_STEPS ? pick(4) > 0 : pick(4) == 0);
        uint32_t token = hurry ? best[pick(num_best)] : allowed[pick(n)];
        if (grammar_accept(m, (rad_token)token)) abort();
        if (token == (uint32_t)vocab.end) {
            out = json_stringn_nocheck(text, len);
            break;
        }
        memcpy(text + len, vocab.bytes[token], vocab.pieces[token].len);
        len += vocab.pieces[token].len;
    }
    grammar_matcher_destroy(m);
    free(text);
    return out ? out : json_null();
}

static bool accepts(grammar *g, const char *text, size_t len)
{
    grammar_matcher *m = grammar_matcher_create(g);
    size_t at = 0;
    bool ok = m != NULL;
    while (ok && at < len) {
        uint32_t fits[RIG_TOKENS], n = 0;
        for (uint32_t t = 0; t < vocab.count; t++) {
            const grammar_piece *p = &vocab.pieces[t];
            if (p->len <= len - at && memcmp(p->bytes, text + at, p->len) == 0) fits[n++] = t;
        }
        uint32_t t = fits[pick(n)];
        if (grammar_mask(m, bits)) abort();
        ok = rig_bit(bits, t);
        if (ok != (grammar_accept(m, (rad_token)t) == RAD_OK)) abort();
        at += vocab.pieces[t].len;
    }
    if (ok && grammar_mask(m, bits)) abort();
    ok = ok && rig_bit(bits, (uint32_t)vocab.end);
    grammar_matcher_destroy(m);
    return ok;
}

static grammar_kind kind_of(const char *name)
{
    static const char *const names[] = {"object", "value", "schema", "regex", "ebnf", "choice"};
    for (int i = 0; i < 6; i++)
        if (strcmp(name, names[i]) == 0) return (grammar_kind)(i + 1);
    abort();
}

static json_t *answer(json_t *request)
{
    const char *text = json_string_value(json_object_get(request, "text"));
    grammar_spec spec = {
        .kind = kind_of(json_string_value(json_object_get(request, "kind"))),
        .space = (grammar_space)json_integer_value(json_object_get(request, "space")),
        .text = text,
        .len = text ? strlen(text) : 0,
        .closed_objects = json_is_true(json_object_get(request, "closed"))};
    rad_error err = {0};
    grammar *g;
    json_t *out = json_object();
    rad_status status = grammar_compile(vocab.v, &spec, NULL, &g, &err);
    json_object_set_new(out, "error", json_string_nocheck(status ? err.text : ""));
    if (status) return out;
    grammar_stats stats;
    grammar_get_stats(g, &stats);
    json_object_set_new(out, "states", json_integer(stats.states));
    json_t *samples = json_array(), *accept = json_array(), *each;
    size_t i;
    state = (uint64_t)json_integer_value(json_object_get(request, "seed"));
    for (json_int_t k = json_integer_value(json_object_get(request, "samples")); k > 0; k--)
        json_array_append_new(samples, sample(g));
    json_array_foreach(json_object_get(request, "accept"), i, each) json_array_append_new(
        accept, json_boolean(accepts(g, json_string_value(each), json_string_length(each))));
    json_object_set_new(out, "samples", samples);
    json_object_set_new(out, "accept", accept);
    grammar_unref(g);
    return out;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    make_vocab();
    while (getline(&line, &cap, stdin) > 0) {
        json_t *request = json_loads(line, 0, NULL);
        if (!request) abort();
        json_t *out = answer(request);
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(request);
    }
    free(line);
    grammar_vocab_destroy(vocab.v);
    return 0;
}
