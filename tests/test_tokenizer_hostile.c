/* test_tokenizer_hostile.c - any text comes back from vocabularies of the kinds that people have,
 * and no text is slow or takes more memory than its length allows.
 *
 * The vocabularies are the shipped model's, those that tests/made makes and, where it is there, the
 * shared test data's, of public models. A text that is UTF-8
 * must come back from each of them; one that is not, from those that have a token for every
 * byte. SPM reads U+2581 as a space and qwen2 normalizes, so what is compared is what they
 * promise: the text as they read it. */
#include "round_trip.h"
#include "test.h"

typedef enum place { SHIPPED, MADE, SHARED } place;

static const struct source {
    place place;
    const char *path;
    bool spm;
    bool lacks_bytes; /* 13 bytes that are in no UTF-8 have no token */
} sources[] = {
    {SHIPPED, "models/radish-tiny.gguf", false, false},
    {MADE, "vocab-gpt-2.gguf", false, false},
    {MADE, "vocab-llama-bpe.gguf", false, false},
    {MADE, "vocab-deepseek-llm.gguf", false, true},
    {MADE, "vocab-deepseek-coder.gguf", false, true},
    {MADE, "vocab-deepseek-v3.gguf", false, false},
    {MADE, "vocab-kimi-k2.gguf", false, false},
    {MADE, "vocab-gemma4.gguf", true, false},
    {MADE, "vocab-spm.gguf", true, false},
    {MADE, "story.gguf", true, false},
    {SHARED, "tokenizers/ggml-vocab-gpt-2.gguf", false, false},
    {SHARED, "tokenizers/ggml-vocab-llama-spm.gguf", true, false},
    {SHARED, "tokenizers/ggml-vocab-deepseek-llm.gguf", false, true},
    {SHARED, "models/stories260K.gguf", true, false},
};
enum { SOURCES = sizeof sources / sizeof sources[0] };

/* NULL where the shared data is not there. */
static tokenizer *open_source(const rad_env *env, int i)
{
    char path[1024];
    const char *name = sources[i].path;
    if (sources[i].place == MADE)
        snprintf(path, sizeof path, "%s", test_made(name));
    else
        snprintf(path, sizeof path, "%s/%s",
                 sources[i].place == SHIPPED ? RADISH_SOURCE_DIR : test_data(), name);
    tokenizer *t = open_tokenizer(env, path);
    CHECKF(t || sources[i].place == SHARED, "%s\n", path);
    return t;
}

/* ---- texts ---- */

static size_t put_code(char *out, uint32_t code)
{
    unsigned char *p = (unsigned char *)out;
    if (code < 0x80) return p[0] = (unsigned char)code, 1;
    if (code < 0x800) return p[0] = 0xc0 | code >> 6, p[1] = 0x80 | (code & 63), 2;
    if (code < 0x10000)
        return p[0] = 0xe0 | code >> 12, p[1] = 0x80 | (code >> 6 & 63), p[2] = 0x80 | (code & 63),
               3;
    p[0] = 0xf0 | code >> 18;
    p[1] = 0x80 | (code >> 12 & 63);
    p[2] = 0x80 | (code >> 6 & 63);
    p[3] = 0x80 | (code & 63);
    return 4;
}

/* First and last of what a run of characters is taken from. */
static const uint32_t blocks[][2] = {
    {0x20, 0x7e},       {0, 0x1f},          {0x7f, 0xff},       {0x100, 0x24f},   /* Latin */
    {0x300, 0x36f},     {0x370, 0x3ff},     {0x400, 0x52f},     {0x530, 0x58f},   /* marks .. */
    {0x590, 0x5ff},     {0x600, 0x6ff},     {0x900, 0x97f},     {0xe00, 0xe7f},   /* Hebrew .. */
    {0x10a0, 0x10ff},   {0x1100, 0x11ff},   {0x1780, 0x17ff},   {0x1e00, 0x1fff}, /* Georgian .. */
    {0x2000, 0x206f},   {0x20d0, 0x20ff},   {0x2580, 0x259f},   {0x3000, 0x30ff}, /* spaces .. */
    {0x4e00, 0x9fff},   {0xac00, 0xd7a3},   {0xe000, 0xf8ff},   {0xfe00, 0xfe0f}, /* Han .. */
    {0x10000, 0x100ff}, {0x1d400, 0x1d7ff}, {0x1f1e6, 0x1f1ff}, {0x1f300, 0x1faff},
    {0x20000, 0x2a6df}, {0xe0001, 0xe007f}, {0xfff0, 0xffff},   {0x10fff0, 0x10ffff},
    {'0', '9'},         {' ', ' '},         {'\n', '\n'},       {0x200d, 0x200d},
};

/* Runs of characters of one kind after another: every script, emoji and their joiners, control
 * characters, noncharacters; now and then any code point at all. UTF-8 throughout. */
static size_t random_unicode(uint64_t *state, char *text, size_t most)
{
    size_t len = 0;
    for (size_t runs = test_random(state) % 12; runs > 0; runs--) {
        const uint32_t *block = blocks[test_random(state) % (sizeof blocks / sizeof *blocks)];
        bool any = test_random(state) % 16 == 0;
        for (size_t n = 1 + test_random(state) % 8; n > 0 && len + 4 <= most; n--) {
            uint32_t code = any ? (uint32_t)(test_random(state) % 0x110000)
                                : block[0] +
                                      (uint32_t)(test_random(state) % (block[1] - block[0] + 1));
            if (code >= 0xd800 && code < 0xe000) code -= 0x800;
            len += put_code(text + len, code);
        }
    }
    return len;
}

/* The same, then bytes are changed, so that characters are cut and bad bytes stand anywhere. */
static size_t random_bytes(uint64_t *state, char *text, size_t most)
{
    size_t len = random_unicode(state, text, most);
    for (size_t n = test_random(state) % 6; n > 0 && len; n--)
        text[test_random(state) % len] = (char)test_random(state);
    return len;
}

/* ---- there and back ---- */

TEST(random_text_comes_back_from_every_vocabulary)
{
    uint64_t seed = test_seed();
    for (int i = 0; i < SOURCES; i++) {
        tokenizer *t = open_source(NULL, i);
        uint64_t state = seed;
        for (uint64_t round = 0; t && round < test_scale(3000, 100000); round++) {
            char text[1024];
            bool broken = round % 3 == 0 && !sources[i].lacks_bytes;
            size_t len = (broken ? random_bytes : random_unicode)(&state, text, sizeof text);
            CHECKF(comes_back(t, sources[i].spm, text, len), "%s, round %llu, seed %llu\n",
                   sources[i].path, (unsigned long long)round, (unsigned long long)seed);
        }
        tokenizer_destroy(t);
    }
}

/* ---- long ---- */

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void repeat(char *text, size_t len, const char *unit)
{
    size_t n = strlen(unit);
    for (size_t i = 0; i < len; i++)
        text[i] = unit[i % n];
}

/* Merging keeps 40 bytes a symbol in hand, of up to one symbol a byte (three where bytes lack
 * tokens), and the symbols themselves; all else is small. Four times the text may take some more
 * than four times as long (heaps, caches), but not sixteen times; that is looked at in the long run
 * only. */
TEST(long_monotonous_text_stays_linear)
{
    static const char *const units[] = {
        "a",  " ", "\n",    "\t \r\n", "7",    "!",   "'s", "\xcc\x81\xcc\x96", "\xff",
        "aA", "é", "世a가", "😀\u200d", "\xf0", "世A", "</", "\xe2\x96\x81"};
    size_t most = test_scale(1 << 18, 10000000);
    char *text = malloc(most);
    CHECK(text);
    for (int i = 0; i < SOURCES; i++) {
        test_env m;
        rad_env env = test_env_init(&m);
        tokenizer *t = open_source(&env, i);
        size_t each = sources[i].lacks_bytes ? 192 : 64;
        for (size_t u = 0; t && u < sizeof units / sizeof units[0]; u++) {
            size_t big = u ? most / 4 : most; /* 10 MB of the letter a */
            double took[2] = {0};
            repeat(text, big, units[u]);
            for (int whole = 0; whole < 2; whole++) {
                size_t len = whole ? big : big / 4, before = m.bytes;
                token_buf ids = {0};
                m.most = m.bytes;
                double start = cpu_seconds();
                CHECK_OK(tokenizer_encode(t, text, len, 0, 0, &ids, NULL));
                took[whole] = cpu_seconds() - start;
                CHECKF(m.most - before < each * len + (1 << 16) && m.bytes == before,
                       "%s, \"%s\": %zu bytes for %zu\n", sources[i].path, units[u],
                       m.most - before, len);
                token_buf_fini(&ids);
            }
            if (test_scale(0, 1))
                CHECKF(took[1] < 0.2 + 8 * took[0], "%s, \"%s\": %.2f s, a quarter %.2f s\n",
                       sources[i].path, units[u], took[1], took[0]);
        }
        tokenizer_destroy(t);
    }
    free(text);
}

/* A prompt that cannot fit is refused at the first token too many, not tokenized to its end. */
TEST(a_limit_stops_work_early)
{
    size_t big = 10000000;
    char *text = malloc(big);
    CHECK(text);
    repeat(text, big, "a ");
    for (int i = 0; i < SOURCES; i++) {
        tokenizer *t = open_source(NULL, i);
        if (!t) continue;
        token_buf ids = {0};
        rad_error err = {0};
        CHECK(tokenizer_encode(t, text, big, 0, 2048, &ids, &err) == RAD_E_LIMIT);
        CHECK(ids.len == 0 && ids.cap <= 4096 && strstr(err.text, "2048 tokens"));
        token_buf_fini(&ids);
        tokenizer_destroy(t);
    }
    free(text);
}

TEST_MAIN()
