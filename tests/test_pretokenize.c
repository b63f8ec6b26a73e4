/* test_pretokenize.c - the expressions, rewritten to be linear, cut text where the ones
 * that the models' authors wrote do; and NFC is what utf8proc says. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "test.h"

#include "base/utf8.h"
#include "text/nfc.h"
#include "text/pretokenize.h"

#include <pcre2.h>
#include <utf8proc.h>

/* The script, as Rust's regex has it; without sc: newer versions of PCRE2 take the script
 * extensions. */
#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40
#define HAN "\\p{sc:Han}"
#else
#define HAN "\\p{Han}"
#endif

/* As published. For deepseek-llm the list of letters is written as what it lists. */
static const struct {
    const char *name;
    const char *steps[7];
} published[] = {
    {"gpt-2",
     {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"}},
    {"llama-bpe",
     {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"qwen2",
     {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"dbrx",
     {"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
      "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"gpt-4o",
     {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
      "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"tekken",
     {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
      "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"default",
     {"[\\p{P}\\$\\+<=>\\^~\\|]+",
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)", "\\p{N}+",
      "[0-9][0-9][0-9]"}},
    {"falcon",
     {"[\\p{P}\\$\\+<=>\\^~\\|`]+",
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)",
      "[0-9][0-9][0-9]"}},
    {"starcoder",
     {"\\p{N}", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"}},
    {"qwen35",
     {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
      " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"minicpm5",
     {"\\p{N}{1,3}", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+|"
                     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"youtu",
     {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]"
      "+",
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
      "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"poro-chat", {" ?[^(\\s|.,!?…。，、।۔،)]+"}},
    {"viking", {" ?[^(\\s|.,!?…。，、।۔،)]+", "\\p{N}"}},
    {"bailingmoe",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}|"
      " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"seed-coder",
     {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}|"
      " ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    /* Its [A&&[^H]] is written (?!H)[A] in PCRE2. */
    {"kimi-k2",
     {HAN "+|"
          "[^\\r\\n\\p{L}\\p{N}]?(?:(?!" HAN ")[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])*"
          "(?:(?!" HAN ")[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
          "[^\\r\\n\\p{L}\\p{N}]?(?:(?!" HAN ")[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])+"
          "(?:(?!" HAN ")[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
          "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"deepseek-coder",
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"}},
    {"deepseek-v3",
     {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
      "[!\"#$%&'()*+,\\-./"
      ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
      " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"gemma4", {"[^\\n]+|[\\n]+"}},
    {"deepseek-llm",
     {"[\\r\\n]", "\\s?[\\p{Lu}\\p{Ll}\\p{Lt}]+", "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$",
      "[一-龥ࠀ-一가-퟿]+", "\\p{N}"}},
};
enum { FAMILIES = sizeof published / sizeof published[0] };

/* Where pieces end. */
typedef struct cuts {
    const char *text;
    size_t at[4096];
    size_t count;
    size_t bytes; /* so far; pieces must follow each other */
} cuts;

static rad_status note_piece(void *user, const char *piece, size_t len)
{
    cuts *c = user;
    CHECK(len > 0 && c->count < 4096);
    CHECK(memcmp(piece, c->text + c->bytes, len) == 0);
    c->bytes += len;
    c->at[c->count++] = c->bytes;
    return RAD_OK;
}

static void cut_plainly(pcre2_code *const *steps, const char *text, size_t len, cuts *c)
{
    if (!*steps) {
        if (len) note_piece(c, text, len);
        return;
    }
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    size_t from = 0;
    while (pcre2_match(*steps, (PCRE2_SPTR)text, len, from, 0, data, NULL) > 0) {
        size_t start = pcre2_get_ovector_pointer(data)[0], end = pcre2_get_ovector_pointer(data)[1];
        cut_plainly(steps + 1, text + from, start - from, c);
        cut_plainly(steps + 1, text + start, end - start, c);
        from = end;
    }
    pcre2_match_data_free(data);
    cut_plainly(steps + 1, text + from, len - from, c);
}

/* Without `marks` nothing in it changes when it is normalized. */
static size_t random_text(uint64_t *state, char *text, size_t most, bool marks)
{
    static const char *const bits[] = {
        "a",    "B",
        "é",    "ж",
        "µ",    "世",
        "가",   "ب",
        "ʰ",    "1",
        "²",    "Ⅷ",
        "١",    " ",
        "  ",   "\t",
        "\n",   "\r",
        "\r\n", "\xc2\xa0",
        "　",   "\xe2\x80\xa8",
        "\x0b", "'",
        "'s",   "'LL",
        "'Re",  ".",
        "!",    "。",
        "‘",    "_",
        "😀",    "ࠀ",
        "~",    "\x7f",
        "\x1c", "\xc2\x85",
        "㐀",   "ﬁ",
        "Ǆ",    "ǅ",
        "ʼ",    "\xe0\xa4\xbe",
        "/",    "CD",
        "12",   "`",
        "$",    "々",
        "〇",   "あ",
        "(",    "…",
        "।",    "|",
        "ㄅ",   "ㄱ",
        "dє",   "\xcc\x81",
    };
    size_t num_bits = sizeof bits / sizeof bits[0] - !marks;
    size_t len = 0, used = 3 + test_random(state) % (num_bits - 3);
    size_t first = test_random(state) % num_bits;
    for (size_t n = test_random(state) % 60; n > 0; n--) {
        const char *bit = bits[(first + test_random(state) % used) % num_bits];
        if (len + strlen(bit) > most) break;
        memcpy(text + len, bit, strlen(bit));
        len += strlen(bit);
    }
    return len;
}

TEST(text_is_cut_where_the_published_expressions_cut)
{
    uint64_t seed = test_seed(), state = seed;
    for (int f = 0; f < FAMILIES; f++) {
        pcre2_code *steps[8] = {0};
        for (int i = 0; published[f].steps[i]; i++) {
            int code;
            PCRE2_SIZE at;
            steps[i] = pcre2_compile((PCRE2_SPTR)published[f].steps[i], PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &code, &at,
                                     NULL);
            CHECKF(steps[i], "%s\n", published[f].steps[i]);
        }
        for (int interpreted = 0; interpreted < 2; interpreted++) {
            pretokenizer *p = NULL;
            pretokenizer_match *match = NULL;
            gguf_str name = {published[f].name, strlen(published[f].name)};
            CHECK_OK(pretokenizer_create(NULL, name, &p, NULL));
            CHECK_OK(pretokenizer_match_create(p, &match));
            if (interpreted) pretokenizer_interpret(p);
            for (uint64_t round = 0; round < test_scale(1500, 200000); round++) {
                char text[1024];
                size_t len = random_text(&state, text, sizeof text, !pretokenizer_normalizes(p));
                cuts *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
                want->text = got->text = text;
                cut_plainly(steps, text, len, want);
                CHECK_OK(pretokenize(p, match, text, len, note_piece, got));
                CHECKF(got->bytes == len && got->count == want->count &&
                           memcmp(got->at, want->at, got->count * sizeof *got->at) == 0,
                       "%s, seed %llu: \"%.*s\"\n", published[f].name, (unsigned long long)seed,
                       (int)len, text);
                free(want);
                free(got);
            }
            pretokenizer_match_destroy(match);
            pretokenizer_destroy(p);
        }
        for (int i = 0; steps[i]; i++)
            pcre2_code_free(steps[i]);
    }
}

/* Each line: names that files give, of one family; its first one is in the table above. */
TEST(the_names_that_files_give_are_known)
{
    static const struct {
        const char *names;
        bool ignores_merges, bos, nfc;
    } lines[] = {
        {"gpt-2 gpt2 phi-2 jais mellum exaone4 trillion gigachat a.x-4.0 granite-docling jina-es "
         "jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe",
         false, false, false},
        {"mpt olmo modern-bert", false, false, true},
        {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", true,
         true, false},
        {"dbrx smaug-bpe glm4 chatglm-bpe", false, false, false},
        {"qwen2 deepseek-r1-qwen f2llmv2 hunyuan stablelm2", false, false, true},
        {"megrez grok-2 solar-open kormo bailingmoe bailingmoe2 llada-moe", false, false, false},
        {"qwen35", false, false, true},
        {"seed-coder", false, false, false},
        {"minicpm5 youtu", true, false, false},
        {"poro-chat bloom gpt3-finnish viking", false, false, false},
        {"gpt-4o llama4 kanana2 minimax-m2 talkie", false, false, false},
        {"tekken", true, true, false},
        {"kimi-k2", false, false, false},
        {"deepseek-llm deepseek-coder", false, false, false},
        {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", false, false, false},
        {"default falcon", false, false, false},
        {"starcoder refact smollm codeshell exaone minerva-7b mellum2", false, false, false},
        {"command-r", false, false, true},
        {"gemma4 sarvam-moe", false, false, false},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        for (const char *name = lines[i].names, *end; *name; name = end + (*end == ' ')) {
            end = name + strcspn(name, " ");
            pretokenizer *p = NULL;
            rad_error err = {0};
            gguf_str one = {name, (uint64_t)(end - name)};
            CHECKF(pretokenizer_create(NULL, one, &p, &err) == RAD_OK, "%s\n", err.text);
            CHECKF(pretokenizer_ignores_merges(p) == lines[i].ignores_merges &&
                       pretokenizer_wants_bos(p) == lines[i].bos &&
                       pretokenizer_normalizes(p) == lines[i].nfc,
                   "%.*s\n", (int)one.len, name);
            pretokenizer_destroy(p);
        }
    }
    pretokenizer *p = NULL;
    CHECK(pretokenizer_create(NULL, (gguf_str){"qwen", 4}, &p, NULL) == RAD_E_UNSUPPORTED && !p);
}

static rad_status add_len(void *user, const char *piece, size_t len)
{
    (void)piece;
    *(size_t *)user += len;
    return RAD_OK;
}

/* The worst texts for expressions that back up, also where there is no JIT. */
TEST(long_runs_are_cut_without_a_limit_being_hit)
{
    static const char *const units[] = {
        " ",  "\n",   " \n",        "a", "é",  "1",   "!",        "'",  "\xc2\xa0", "世",
        " a", "\xff", "\xc2\xa0\r", "A", "aA", "世A", "\xcc\x81", "!A", "/\n",      "'s"};
    static const char *const ends[] = {"", "1", "²", "a", "\n", "世", "!"};
    size_t big = test_scale(50000, 2000000);
    char *text = malloc(big + 8);
    CHECK(text);
    for (int f = 0; f < FAMILIES; f++) {
        pretokenizer *p = NULL;
        pretokenizer_match *match = NULL;
        gguf_str name = {published[f].name, strlen(published[f].name)};
        CHECK_OK(pretokenizer_create(NULL, name, &p, NULL));
        CHECK_OK(pretokenizer_match_create(p, &match));
        for (int interpreted = 0; interpreted < 2; interpreted++) {
            /* The interpreter is slow, and has no stack that could be too small. */
            size_t most = interpreted ? test_scale(big / 4, big) : big;
            if (interpreted) pretokenizer_interpret(p);
            for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
                for (size_t e = 0; e < sizeof ends / sizeof ends[0]; e++) {
                    size_t len = 0, n = strlen(units[u]), seen = 0;
                    for (; len + n <= most; len += n)
                        memcpy(text + len, units[u], n);
                    memcpy(text + len, ends[e], strlen(ends[e]));
                    len += strlen(ends[e]);
                    rad_status status = pretokenize(p, match, text, len, add_len, &seen);
                    CHECKF(status == RAD_OK && seen == len, "%s, \"%s\" ... \"%s\": %s\n",
                           published[f].name, units[u], ends[e], rad_status_name(status));
                    if (!interpreted && e) break;
                }
            }
        }
        pretokenizer_match_destroy(match);
        pretokenizer_destroy(p);
    }
    free(text);
}

/* An expression that looped over line ends with a possessive group ran out of JIT stack
 * and then into the match limit, but only from some megabytes on. */
TEST(megabytes_of_line_ends_are_one_piece)
{
    size_t big = 12 << 20;
    char *text = malloc(big);
    CHECK(text);
    for (size_t i = 0; i < big; i++)
        text[i] = i & 1 ? '\n' : ' ';
    pretokenizer *p = NULL;
    pretokenizer_match *match = NULL;
    CHECK_OK(pretokenizer_create(NULL, (gguf_str){"qwen2", 5}, &p, NULL));
    CHECK_OK(pretokenizer_match_create(p, &match));
    for (int interpreted = 0; interpreted < 2; interpreted++) {
        size_t seen = 0;
        if (interpreted) pretokenizer_interpret(p);
        CHECK_OK(pretokenize(p, match, text, big, add_len, &seen));
        CHECK(seen == big);
    }
    pretokenizer_match_destroy(match);
    pretokenizer_destroy(p);
    free(text);
}

TEST(bytes_that_are_not_utf8_are_pieces_of_their_own)
{
    pretokenizer *p = NULL;
    pretokenizer_match *match = NULL;
    CHECK_OK(pretokenizer_create(NULL, (gguf_str){"gpt-2", 5}, &p, NULL));
    CHECK_OK(pretokenizer_match_create(p, &match));
    const char text[] = "ab\xff\xfe"
                        "cd\xe2\x82";
    cuts c = {.text = text};
    CHECK_OK(pretokenize(p, match, text, sizeof text - 1, note_piece, &c));
    CHECK(c.count == 4 && c.at[0] == 2 && c.at[1] == 4 && c.at[2] == 6 && c.at[3] == 8);
    pretokenizer_match_destroy(match);
    pretokenizer_destroy(p);
}

/* ---- NFC ---- */

TEST(what_looks_normal_is_normal_next_to_anything)
{
    /* Alone; and behind what composes with most: a Latin letter, a jamo, a kana. */
    static const char *const before[] = {"", "e", "\xe1\x84\x80", "\xea\xb0\x80", "か", "ا", "ে"};
    for (int32_t code = 0; code < 0x110000; code++) {
        if (code >= 0xd800 && code < 0xe000) continue;
        utf8proc_uint8_t text[16];
        for (size_t b = 0; b < sizeof before / sizeof before[0]; b++) {
            size_t start = strlen(before[b]);
            memcpy(text, before[b], start);
            size_t len = start + (size_t)utf8proc_encode_char(code, text + start);
            if (!nfc_is_plain((char *)text + start, len - start)) break;
            text[len] = 0;
            if (!code) break;
            utf8proc_uint8_t *normal = utf8proc_NFC(text);
            CHECKF(normal && strcmp((char *)normal, (char *)text) == 0, "U+%04X\n", code);
            free(normal);
        }
    }
}

TEST(normalizing_in_parts_equals_normalizing_at_once)
{
    static const char *const bits[] = {"e",
                                       "a",
                                       "\xcc\x81",
                                       "\xcc\xa3",
                                       "\xcc\x96",
                                       "é",
                                       "世",
                                       "가",
                                       "\xe1\x84\x80",
                                       "\xe1\x85\xa1",
                                       "\xe1\x86\xa8",
                                       "Ω",
                                       "か",
                                       "\xe3\x82\x99",
                                       "ে",
                                       "\xe0\xa6\xbe"};
    uint64_t seed = test_seed(), state = seed;
    rad_env env = rad_env_or_default(NULL);
    for (uint64_t round = 0; round < test_scale(1500, 200000); round++) {
        char text[512] = "";
        size_t len = 0;
        for (size_t n = test_random(&state) % 100; n > 0; n--)
            len += (size_t)sprintf(text + len, "%s",
                                   bits[test_random(&state) % (sizeof bits / sizeof bits[0])]);
        char *want = (char *)utf8proc_NFC((const utf8proc_uint8_t *)text);
        nfc_text got = {0};
        CHECK_OK(nfc_normalize(&env, text, len, &got));
        CHECKF(got.len == strlen(want) && (!got.len || memcmp(got.data, want, got.len) == 0),
               "seed %llu\n", (unsigned long long)seed);
        CHECK(!nfc_is_plain(text, len) || strcmp(text, want) == 0);
        nfc_fini(&env, &got);
        free(want);
    }
}

TEST_MAIN()
