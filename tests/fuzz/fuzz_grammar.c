/* fuzz_grammar.c - any bytes as a regular expression, EBNF, a JSON Schema or a choice: refused in
 * words, or compiled within its limits; and then whatever is allowed can be accepted, what is not
 * cannot, and there is always something that is.
 *
 * The first byte picks kind and white space; what is behind a zero byte picks tokens. */
#include "grammar_rig.h"

static rig_vocab vocab;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const pieces[] = {
        "{\"", "\":",      "\": ",     "\",",  "\"}", "true", "null",  "[]",  "12",  "ab",
        "abc", "\xc3\xa9", "\xe6\x97", "\xa5", "]}",  ", ",   "\\u00", "a\"", "\n  "};
    (void)argc;
    (void)argv;
    rig_begin(&vocab);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        rig_add(&vocab, pieces[i], strlen(pieces[i]));
    if (rig_finish(&vocab, NULL, 1 << 16)) abort();
    return 0;
}

static void follow(grammar *g, const uint8_t *data, size_t size)
{
    static uint32_t bits[RIG_TOKENS / 32], again[RIG_TOKENS / 32];
    grammar_matcher *m = grammar_matcher_create(g);
    if (!m) return; /* too ambiguous at its very beginning */
    for (size_t step = 0; step < 24; step++) {
        uint32_t n = vocab.count + 2, pick = step < size ? data[step] : (uint32_t)step * 37,
                 token = n;
        rad_token forced[4];
        char bytes[16];
        if (grammar_mask(m, bits)) break;
        if (grammar_has_ended(m)) break;
        uint32_t count = grammar_forced(m, forced, 4);
        grammar_forced_bytes(m, bytes, sizeof bytes);
        if (count && !rig_bit(bits, (uint32_t)forced[0])) abort();
        for (uint32_t i = 0; i < n && token == n; i++)
            if (rig_bit(bits, (pick * 3 + i) % n)) token = (pick * 3 + i) % n;
        if (token == n) abort(); /* what was begun can be ended */
        uint32_t other = pick * 7 % n;
        rad_status status = grammar_accept(m, (rad_token)other);
        if (status < 0) break;
        if ((status == RAD_OK) != rig_bit(bits, other)) abort();
        if (status == RAD_OK && grammar_rollback(m, 1)) abort();
        grammar_matcher *fork = grammar_matcher_copy(m);
        if (!fork || grammar_mask(fork, again) || memcmp(bits, again, sizeof bits) != 0) abort();
        grammar_matcher_destroy(m);
        m = fork;
        status = grammar_accept(m, (rad_token)token);
        if (status < 0) break;
        if (status != RAD_OK) abort();
    }
    grammar_matcher_destroy(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const grammar_kind kinds[] = {GRAMMAR_REGEX, GRAMMAR_EBNF, GRAMMAR_JSON_SCHEMA,
                                         GRAMMAR_CHOICE};
    if (!size) return 0;
    const uint8_t *zero = memchr(data + 1, 0, size - 1);
    size_t len = zero ? (size_t)(zero - data) - 1 : size - 1;
    char *text =
        malloc(len + 1); /* a copy of its own, so that one byte too far is a byte outside */
    if (!text) return 0;
    memcpy(text, data + 1, len);
    grammar_spec spec = {.kind = kinds[data[0] % 4],
                         .space = (grammar_space)(data[0] / 4 % 3),
                         .text = text,
                         .len = len,
                         .closed_objects = data[0] & 128};
    grammar_limits limits = {
        .bytes = 4 << 20,
        .steps = 400000,
        .states = 20000,
        .text_bytes = 1 << 16,
        .unrolled = data[0] & 64 ? 1 : 0}; /* short repeats counted as well, which are at hand */
    grammar *g = NULL;
    rad_error err = {0};
    rad_status status = grammar_compile(vocab.v, &spec, &limits, &g, &err);
    free(text);
    if (status ? g || status > 0 || !err.text[0] : !g) abort();
    if (g) {
        grammar_stats stats;
        grammar_get_stats(g, &stats);
        if (stats.peak_bytes > limits.bytes || stats.states > limits.states) abort();
        follow(g, zero ? zero + 1 : NULL, zero ? size - len - 2 : 0);
    }
    grammar_unref(g);
    return 0;
}
