/* test_tokenizer.c - small vocabularies, any bytes, threads, memory and bad files: text comes back,
 * and no input is slow. Ids of large vocabularies are in test_tokenizer_vectors.c. */
#define _GNU_SOURCE /* memmem */
#include "gguf_builder.h"
#include "round_trip.h"
#include "test.h"

#include "text/tokenizer.h"
#include "tiny_vocab.h"

#include <pthread.h>
#include <sys/mman.h>

/* ---- small vocabularies made here ---- */

static tokenizer *open_tiny_bpe(const char *pre)
{
    gguf_builder b;
    rad_error err = {0};
    tiny_bpe(&b, pre);
    tokenizer *t = tiny_open(NULL, &b, &err);
    CHECKF(t, "%s\n", err.text);
    return t;
}

static tokenizer *open_tiny_spm(bool prefix, bool inner_space)
{
    gguf_builder b;
    rad_error err = {0};
    tiny_spm(&b, prefix, inner_space);
    tokenizer *t = tiny_open(NULL, &b, &err);
    CHECKF(t, "%s\n", err.text);
    return t;
}

/* Encodes and compares with tokens written as "[a][b]", special ones by name. */
static void expect_tokens(const tokenizer *t, const char *text, size_t len, unsigned flags,
                          const char *wanted)
{
    token_buf ids = {0};
    char shown[4096] = "";
    CHECK_OK(tokenizer_encode(t, text, len, flags, 0, &ids, NULL));
    size_t n = 0;
    for (uint32_t i = 0; i < ids.len; i++) {
        shown[n++] = '[';
        n += tokenizer_piece(t, ids.ids[i], true, shown + n, 1024);
        shown[n++] = ']';
    }
    shown[n] = 0;
    CHECKF(strcmp(shown, wanted) == 0, "\"%s\" became %s, wanted %s\n", text, shown, wanted);
    token_buf_fini(&ids);
}

static void expect_text(const tokenizer *t, const char *text, unsigned flags, const char *wanted)
{
    expect_tokens(t, text, strlen(text), flags, wanted);
}

TEST(merges_go_by_rank_and_special_tokens_by_length)
{
    tokenizer *t = open_tiny_bpe("gpt-2");
    expect_text(t, "", 0, "");
    expect_text(t, "hello world", 0, "[hello][ world]");
    expect_text(t, "abab", 0, "[abab]");
    expect_text(t, "ababa", 0, "[ab][aba]");
    expect_text(t, "aaaaa", 0, "[aaaa][a]");
    expect_text(t, "xyz", 0, "[xyz]");     /* by way of "xy", which is no token */
    expect_text(t, "xyw", 0, "[x][y][w]"); /* "xy" is spelled out */
    expect_text(t, "<u>", 0, "[<u>]");
    expect_text(t, "a<u><u><u>b", 0, "[a][<u><u>][<u>][b]");
    expect_text(t, "aab<b", 0, "[a][ab<][b]");
    expect_text(t, "<|im_end|>", TOKENIZER_PARSE_SPECIAL, "[<|im_end|>]");
    expect_text(t, "a<|im_end|>b", TOKENIZER_PARSE_SPECIAL, "[a][<|im_end|>][b]");
    expect_text(t, "<|im_e", TOKENIZER_PARSE_SPECIAL, "[<][|][i][m][_][e]");
    expect_text(t, "<|im_end|>", 0, "[<][|][i][m][_][e][n][d][|][>]");
    expect_text(t, "a", TOKENIZER_ADD_BOS, "[a]"); /* gpt-2 does not ask for it */
    expect_tokens(t, "a\0b", 3, 0, "[a][");        /* a NUL ends the shown text */
    tokenizer_destroy(t);
}

TEST(spm_merges_by_score_and_falls_back_to_bytes)
{
    for (int inner = 0; inner < 2; inner++) {
        tokenizer *t = open_tiny_spm(true, inner);
        expect_text(t, "", 0, "");
        expect_text(t, "a", 0, "[ a]");
        expect_text(t, "a", TOKENIZER_NO_PREFIX, "[a]");
        expect_text(t, "a", TOKENIZER_ADD_BOS, "[<s>][ a]");
        expect_text(t, "hello", 0, "[ hell][o]");
        expect_text(t, "aba", TOKENIZER_NO_PREFIX, "[aba]"); /* leftmost of two equals */
        expect_text(t, " a", 0, "[ ][ a]");
        expect_text(t, "   ", 0, "[    ]");
        expect_text(t, "né", TOKENIZER_NO_PREFIX, "[né]"); /* "é" alone is no token */
        expect_text(t, "é", TOKENIZER_NO_PREFIX, "[\xc3][\xa9]");
        expect_text(t, "z", TOKENIZER_NO_PREFIX, "[z]");
        expect_text(t, "a▁a", TOKENIZER_NO_PREFIX, "[a][ a]");
        expect_text(t, "o▁ ", TOKENIZER_NO_PREFIX, "[o][  ]");
        expect_text(t, "<u>a", 0, "[ ][<u>][a]");
        expect_text(t, "a</s>a", TOKENIZER_PARSE_SPECIAL, "[ a][</s>][ a]");
        expect_text(t, "</s>", 0, inner ? "[ ][<][/][s][>]" : "[ ][<][/][s][>]");
        expect_text(t, "b a", TOKENIZER_NO_PREFIX, inner ? "[b ][a]" : "[b][ a]");
        tokenizer_destroy(t);
    }
    tokenizer *t = open_tiny_spm(false, false);
    expect_text(t, "a", 0, "[a]");
    tokenizer_destroy(t);
}

/* Spaces after a run of newlines, digits, contractions, by each family. "[" and "]" are
 * in no sample. Every piece here is spelled out in bytes, so what is compared are the
 * places where merges "ab" or "12" or "  " could not cross. */
TEST(families_cut_differently)
{
    static const struct {
        const char *pre, *text, *wanted;
    } cases[] = {
        {"gpt-2", "12 34", "[12][ ][34]"},
        {"gpt-2", "112", "[1][12]"},
        {"llama-bpe", "34112", "[34][1][12]"}, /* 341 12 */
        {"llama-bpe", "00012", "[0][0][0][12]"},
        {"llama-bpe", "0012", "[0][0][1][2]"}, /* 001 2 */
        {"qwen2", "12", "[1][2]"},             /* each digit alone */
        {"deepseek-llm", "12", "[1][2]"},
        {"gpt-2", "    a", "[  ][ ][ a]"}, /* the last space belongs to the word */
        {"llama-bpe", "\n\n", "[\n\n]"},
        {"llama-bpe", "\n\n\n\na", "[\n\n][\n\n][a]"},
        {"deepseek-llm", "\n\n", "[\n][\n]"},
        {"gpt-2", "    ", "[    ]"},
        {"qwen2", "    \n\n    a", "[    ][\n\n][  ][ ][ a]"},
        {"deepseek-llm", "    ", "[    ]"},
        {"gpt-2", "e\xcc\x81", "[e][\xcc][\x81]"},
        {"qwen2", "e\xcc\x81", "[\xc3\xa9]"}, /* NFC: é */
        {"llama-bpe", "hello", "[hello]"},
        {"gpt-4o", "00012", "[0][0][0][12]"},
        {"gpt-4o", "\n\n", "[\n\n]"},
        {"tekken", "12", "[1][2]"},
        {"dbrx", "00012", "[0][0][0][12]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tokenizer *t = open_tiny_bpe(cases[i].pre);
        expect_text(t, cases[i].text, 0, cases[i].wanted);
        tokenizer_destroy(t);
    }
}

TEST(questions_about_tokens_are_answered)
{
    tokenizer *t = open_tiny_bpe("llama-bpe");
    rad_token end = tokenizer_find(t, "<|im_end|>", 10);
    CHECK(end >= 256 && tokenizer_is_eog(t, end) && tokenizer_is_control(t, end));
    rad_token start = tokenizer_find(t, "<|im_start|>", 12);
    CHECK(start >= 0 && !tokenizer_is_eog(t, start) && tokenizer_is_control(t, start));
    rad_token user = tokenizer_find(t, "<u>", 3);
    CHECK(user >= 0 && !tokenizer_is_control(t, user));
    rad_token turn = tokenizer_find(t, "<end_of_turn>", 13); /* though the file says user-defined */
    CHECK(turn >= 0 && tokenizer_is_eog(t, turn) && tokenizer_is_control(t, turn));
    CHECK(tokenizer_find(t, "hello", 5) >= 256 && tokenizer_find(t, "a", 1) == 'a');
    CHECK(tokenizer_find(t, "hel", 3) == -1 && tokenizer_find(t, "", 0) == -1);
    CHECK(tokenizer_find(t, "xy", 2) == -1); /* only merges know it */
    CHECK(tokenizer_find(t, "<|im_end|", 9) == -1);
    CHECK(tokenizer_bos(t) == tokenizer_eos(t) && tokenizer_is_eog(t, tokenizer_eos(t)));
    CHECK(tokenizer_add_bos(t)); /* llama-bpe's default */
    CHECK(!tokenizer_is_eog(t, -1) && !tokenizer_is_control(t, INT32_MAX));
    char bytes[8] = "......";
    CHECK(tokenizer_piece(t, end, false, bytes, 8) == 0);
    CHECK(tokenizer_piece(t, end, true, bytes, 4) == 10 && memcmp(bytes, "<|im..", 6) == 0);
    CHECK(tokenizer_piece(t, -1, true, bytes, 8) == 0);
    CHECK(tokenizer_piece(t, (rad_token)tokenizer_vocab_size(t), true, bytes, 8) == 0);
    tokenizer_destroy(t);
}

/* What ends an answer of each family, and what looks like it and does not: of a file that names
 * the first one, and calls the rest control tokens (3), user-defined (4) or normal (1). */
TEST(each_familys_answers_end)
{
    static const struct {
        tiny_special specials[8];
        const char *ends, *goes_on;
    } families[] = {
        {{{"<|endoftext|>", 3},
          {"<|start|>", 3},
          {"<|end|>", 3},
          {"<|return|>", 3},
          {"<|call|>", 3},
          {"<|channel|>", 3}},
         "<|endoftext|> <|return|> <|call|>",
         "<|start|> <|end|> <|channel|>"}, /* harmony */
        {{{"<|endoftext|>", 3}, {"<|end|>", 3}, {"<|user|>", 3}},
         "<|endoftext|> <|end|>",
         "<|user|>"}, /* Phi */
        {{{"<s>", 3}, {"<|end|>", 3}, {"<|flush|>", 3}, {"<|calls|>", 3}},
         "<s> <|flush|> <|calls|>",
         "<|end|>"}, /* Solar Open */
        {{{"<bos>", 3},
          {"<eos>", 3},
          {"<|turn>", 3},
          {"<turn|>", 4},
          {"<|tool_response>", 4},
          {"</s>", 3},
          {"<|tool_call>", 4}},
         "<eos> <turn|> <|tool_response>",
         "<|turn> </s> <|tool_call>"}, /* Gemma 4 */
        {{{"<bos>", 3}, {"<eos>", 3}, {"<end_of_turn>", 1}, {"</s>", 4}},
         "<eos> <end_of_turn>",
         "</s>"},                                                     /* Gemma 3: HTML */
        {{{"<s>", 3}, {"</s>", 3}, {"[INST]", 3}}, "</s>", "[INST]"}, /* Mistral */
        {{{"<|begin_of_text|>", 3}, {"<|end_of_text|>", 3}, {"<|eot_id|>", 3}, {"<|eom_id|>", 3}},
         "<|end_of_text|> <|eot_id|> <|eom_id|>",
         ""}, /* Llama 3 */
        {{{"<|endoftext|>", 3}, {"<|im_start|>", 3}, {"<|im_end|>", 3}, {"<think>", 4}},
         "<|im_end|>",
         "<|im_start|> <think>"}, /* Qwen */
        {{{"<\uff5cbegin\u2581of\u2581sentence\uff5c>", 3},
          {"<\uff5cend\u2581of\u2581sentence\uff5c>", 3},
          {"<|EOT|>", 4}},
         "<\uff5cend\u2581of\u2581sentence\uff5c> <|EOT|>",
         ""}, /* DeepSeek */
        {{{"[BOS]", 3}, {"[EOS]", 3}, {"[EOT]", 3}, {"<|im_end|>", 3}, {"<|im_middle|>", 3}},
         "[EOS] [EOT] <|im_end|>",
         "<|im_middle|>"},                                               /* Kimi */
        {{{"]!p~[", 3}, {"[e~[", 3}, {"]~b]", 3}}, "[e~[", "]~b]"},      /* MiniMax */
        {{{"[BOS]", 3}, {"[EOS]", 1}, {"<EOT>", 1}}, "", "[EOS] <EOT>"}, /* text */
    };
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        gguf_builder b;
        rad_error err = {0};
        size_t count = 0;
        while (count < 8 && families[f].specials[count].text)
            count++;
        tiny_bpe_with(&b, "gpt-2", families[f].specials, count);
        tokenizer *t = tiny_open(NULL, &b, &err);
        CHECKF(t, "%s\n", err.text);
        for (int ends = 0; ends < 2; ends++) {
            const char *at = ends ? families[f].ends : families[f].goes_on;
            for (size_t len; (len = strcspn(at, " ")) > 0; at += len + (at[len] == ' ')) {
                rad_token id = tokenizer_find(t, at, len);
                CHECKF(id >= 0 && tokenizer_is_eog(t, id) == ends, "%.*s\n", (int)len, at);
                CHECKF(!ends || tokenizer_is_control(t, id), "%.*s\n", (int)len, at);
            }
        }
        tokenizer_destroy(t);
    }
}

TEST(a_marker_that_the_file_calls_normal_is_a_control_token_all_the_same)
{
    gguf_builder b;
    tiny_bpe(&b, "gpt-2");
    /* Turn every control type (the array is the only one of its key) into 1. */
    uint8_t *at = memmem(b.bytes, b.len, "tokenizer.ggml.token_type", 25);
    CHECK(at);
    uint64_t count;
    memcpy(&count, at + 25 + 8, 8);
    for (uint64_t i = 0; i < count; i++)
        if (at[25 + 16 + 4 * i] == 3) at[25 + 16 + 4 * i] = i & 1 ? 1 : 4;
    rad_error err = {0};
    tokenizer *t = tiny_open(NULL, &b, &err);
    CHECKF(t, "%s\n", err.text);
    rad_token id = tokenizer_find(t, "<|im_start|>", 12);
    CHECK(tokenizer_is_control(t, id));
    expect_text(t, "<|im_start|>", 0, "[<][|][i][m][_][s][t][a][r][t][|][>]");
    tokenizer_destroy(t);
}

/* ---- against a naive model ---- */

typedef struct naive_part {
    size_t start, len;
} naive_part;

/* Merges parts of `text` by trying all neighbours, best first; rank < 0: no merge. */
static size_t naive_merge(const char *text, naive_part *parts, size_t n,
                          double (*rank)(const char *, size_t, size_t))
{
    for (;;) {
        size_t best = n;
        double least = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            double r = rank(text + parts[i].start, parts[i].len, parts[i + 1].len);
            if (r >= 0 && (best == n || r < least)) {
                best = i;
                least = r;
            }
        }
        if (best == n) return n;
        parts[best].len += parts[best + 1].len;
        memmove(&parts[best + 1], &parts[best + 2], (n - best - 2) * sizeof *parts);
        n--;
    }
}

/* Only for text of ASCII letters, which stand for themselves. */
static double bpe_rank(const char *text, size_t left, size_t right)
{
    char line[256];
    if (left + right > 200) return -1;
    snprintf(line, sizeof line, "%.*s %.*s", (int)left, text, (int)right, text + left);
    for (size_t i = 0; i < TINY_MERGES; i++)
        if (strcmp(tiny_merges[i], line) == 0) return (double)i;
    return -1;
}

/* `text` holds U+2581 for spaces. */
static double spm_rank(const char *text, size_t left, size_t right)
{
    for (size_t i = 0; i < TINY_PIECES; i++)
        if (strlen(tiny_pieces[i].text) == left + right &&
            memcmp(tiny_pieces[i].text, text, left + right) == 0)
            return -(double)tiny_pieces[i].score;
    return -1;
}

static void check_ids(const tokenizer *t, const char *text, size_t len, const token_buf *want,
                      uint64_t seed)
{
    token_buf ids = {0};
    CHECK_OK(tokenizer_encode(t, text, len, 0, 0, &ids, NULL));
    CHECKF(ids.len == want->len && memcmp(ids.ids, want->ids, 4 * ids.len) == 0,
           "\"%.*s\", seed %llu\n", (int)len, text, (unsigned long long)seed);
    token_buf_fini(&ids);
}

TEST(bpe_agrees_with_trying_all_pairs)
{
    uint64_t seed = test_seed(), state = seed;
    tokenizer *t = open_tiny_bpe("gpt-2");
    for (uint64_t round = 0; round < test_scale(2000, 50000); round++) {
        char text[300];
        naive_part parts[300];
        size_t len = 1 + test_random(&state) % (round % 8 ? 30 : 299);
        unsigned letters = 2 + (unsigned)(test_random(&state) % 3);
        for (size_t i = 0; i < len; i++) {
            text[i] = "abcdxyz"[test_random(&state) % (round & 1 ? letters : 7)];
            parts[i] = (naive_part){i, 1};
        }
        size_t n = naive_merge(text, parts, len, bpe_rank);
        token_buf want = {0};
        for (size_t i = 0; i < n; i++) {
            rad_token id = tokenizer_find(t, text + parts[i].start, parts[i].len);
            if (id >= 0) {
                token_buf_push(&want, id);
                continue;
            }
            for (size_t k = 0; k < parts[i].len; k++)
                token_buf_push(&want, (unsigned char)text[parts[i].start + k]);
        }
        check_ids(t, text, len, &want, seed);
        token_buf_fini(&want);
    }
    tokenizer_destroy(t);
}

TEST(spm_agrees_with_trying_all_pairs)
{
    static const char *const chars[] = {"a", "b", " ", "h", "e", "l", "o", "c", "d", "é", "n", "z"};
    uint64_t seed = test_seed(), state = seed;
    tokenizer *t = open_tiny_spm(false, false);
    for (uint64_t round = 0; round < test_scale(2000, 50000); round++) {
        char text[700] = "", escaped[1200] = "";
        naive_part parts[300];
        size_t chars_len = 1 + test_random(&state) % (round % 8 ? 30 : 299);
        size_t used = round & 1 ? 3 : 12, len = 0, escaped_len = 0;
        for (size_t i = 0; i < chars_len; i++) {
            const char *c = chars[test_random(&state) % used];
            len += (size_t)sprintf(text + len, "%s", c);
            const char *e = *c == ' ' ? "▁" : c;
            parts[i] = (naive_part){escaped_len, strlen(e)};
            escaped_len += (size_t)sprintf(escaped + escaped_len, "%s", e);
        }
        size_t n = naive_merge(escaped, parts, chars_len, spm_rank);
        token_buf want = {0};
        for (size_t i = 0; i < n; i++) {
            size_t k = 0;
            while (k < TINY_PIECES &&
                   (strlen(tiny_pieces[k].text) != parts[i].len ||
                    memcmp(tiny_pieces[k].text, escaped + parts[i].start, parts[i].len) != 0))
                k++;
            if (k < TINY_PIECES) token_buf_push(&want, (rad_token)(259 + k));
            for (size_t j = 0; j < parts[i].len && k == TINY_PIECES; j++)
                token_buf_push(&want, 3 + (unsigned char)escaped[parts[i].start + j]);
        }
        check_ids(t, text, len, &want, seed);
        token_buf_fini(&want);
    }
    tokenizer_destroy(t);
}

/* ---- any bytes, any length ---- */

static size_t random_text(uint64_t *state, char *text, size_t most)
{
    static const char *const bits[] = {"ab",     " ",        "\n",           "é",
                                       "世",     "<u>",      "12",           "'s",
                                       "\xff",   "\xc3",     "\xe2\x96",     "\xf0\x9f\x98\x80",
                                       "\r\n",   "!?",       "hello",        "\x81",
                                       " world", "\xcc\x81", "\xed\xa0\x80", "<|im_end|>"};
    size_t len = 0, n = test_random(state) % 40;
    for (size_t i = 0; i < n; i++) {
        uint64_t r = test_random(state);
        const char *bit = bits[r % (sizeof bits / sizeof bits[0])];
        char any[2] = {(char)(r >> 50), 0}; /* may be "" */
        if (r >> 60 == 0) bit = any;
        size_t bit_len = strlen(bit);
        if (len + bit_len + 1 > most) break;
        memcpy(text + len, bit, bit_len);
        len += bit_len;
        if (r >> 60 == 1) text[len++] = 0;
    }
    return len;
}

TEST(random_bytes_come_back)
{
    uint64_t seed = test_seed(), state = seed;
    char text[1024];
    tokenizer *all[] = {open_tiny_bpe("gpt-2"),
                        open_tiny_bpe("llama-bpe"),
                        open_tiny_bpe("deepseek-llm"),
                        open_tiny_spm(true, false),
                        open_tiny_spm(true, true),
                        open_made("gpt-2"),
                        open_made("spm")};
    for (uint64_t round = 0; round < test_scale(3000, 100000); round++) {
        size_t len = random_text(&state, text, sizeof text);
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            CHECKF(comes_back(all[i], i == 3 || i == 4 || i == 6, text, len),
                   "tokenizer %zu, seed %llu\n", i, (unsigned long long)seed);
        }
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tokenizer_destroy(all[i]);
}

TEST(a_byte_without_a_token_becomes_a_replacement_character)
{
    /* Falcon's has no \x0b; StarCoder's names its end token for what has none, which a user must
     * not be able to write. */
    static const char *const cases[][2] = {
        {"deepseek-llm", "\xff"}, {"falcon", "\xff"}, {"falcon", "\x0b"}, {"starcoder", "\xff"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tokenizer *t = open_made(cases[i][0]);
        token_buf ids = {0}, want = {0};
        CHECK_OK(tokenizer_encode(t, cases[i][1], 1, 0, 0, &ids, NULL));
        CHECK_OK(tokenizer_encode(t, "\xef\xbf\xbd", 3, 0, 0, &want, NULL));
        CHECK(ids.len == want.len && memcmp(ids.ids, want.ids, 4 * ids.len) == 0);
        token_buf_fini(&ids);
        token_buf_fini(&want);
        tokenizer_destroy(t);
    }
}

TEST(gemma_4_begins_with_bos_whatever_its_file_says)
{
    tokenizer *t = open_made("gemma4"); /* add_bos_token: false */
    token_buf ids = {0};
    CHECK(tokenizer_bos(t) == 2 && tokenizer_add_bos(t) && !tokenizer_adds_space(t));
    CHECK_OK(tokenizer_encode(t, "\n\n\n", 3, TOKENIZER_ADD_BOS, 0, &ids, NULL));
    char piece[8];
    CHECK(ids.len == 2 && ids.ids[0] == 2 && tokenizer_piece(t, ids.ids[1], false, piece, 8) == 3);
    token_buf_fini(&ids);
    tokenizer_destroy(t);
}

/* Of CPU time: other programs do not count. */
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Work that grows with the square of half a megabyte runs into the time limit of all tests. In the
 * long run ten times the text may take some more than ten times as long, but not a hundred. */
TEST(long_monotonous_text_is_not_slow)
{
    static const char *const units[] = {
        "a", " ",  "\n", "1",   "!",     "é", "ab", " \n", "\xff", "'", "\xcc\x81\xcc\x96",
        "<", "世", "a ", "世A", "aж世ب", "<|"};
    tokenizer *all[] = {open_tiny_bpe("gpt-2"),     open_tiny_bpe("llama-bpe"),
                        open_tiny_bpe("qwen2"),     open_tiny_bpe("deepseek-llm"),
                        open_tiny_bpe("gpt-4o"),    open_tiny_bpe("tekken"),
                        open_tiny_spm(true, false), open_tiny_spm(true, true)};
    size_t big = test_scale(1 << 19, 10 << 20);
    char *text = malloc(big + 8);
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        size_t len = 0, n = strlen(units[u]);
        for (; len + n <= big; len += n)
            memcpy(text + len, units[u], n);
        memcpy(text + len - 2, "\xc2\xb2", 2); /* a digit that ends a run of spaces */
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            token_buf ids = {0};
            double start = seconds();
            CHECK_OK(tokenizer_encode(all[i], text, len / 10, 0, 0, &ids, NULL));
            double brief = seconds() - start;
            start = seconds();
            CHECK_OK(tokenizer_encode(all[i], text, len, 0, 0, &ids, NULL));
            double whole = seconds() - start;
            CHECKF(!test_scale(0, 1) || whole < 0.2 + 60 * brief,
                   "unit \"%s\", tokenizer %zu: %.3f s, a tenth %.3f s\n", units[u], i, whole,
                   brief);
            token_buf_fini(&ids);
        }
    }
    free(text);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tokenizer_destroy(all[i]);
}

TEST(a_limit_is_kept_and_nothing_is_left_behind)
{
    tokenizer *t = open_tiny_bpe("gpt-2");
    token_buf ids = {0};
    rad_error err = {0};
    CHECK_OK(token_buf_push(&ids, 7));
    CHECK(tokenizer_encode(t, "zzzzz", 5, 0, 4, &ids, &err) == RAD_E_LIMIT);
    CHECK(ids.len == 1 && strstr(err.text, "longer than 4 tokens"));
    CHECK_OK(tokenizer_encode(t, "zzzzz", 5, 0, 5, &ids, &err));
    CHECK(ids.len == 6 && ids.ids[0] == 7);
    /* What is too long by its length is refused unread: nobody may read this. */
    void *huge =
        mmap(NULL, 64 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(huge != MAP_FAILED);
    CHECK(tokenizer_encode(t, huge, 64 << 20, 0, 2048, &ids, &err) == RAD_E_LIMIT);
    CHECK(ids.len == 6);
    munmap(huge, 64 << 20);
    token_buf_fini(&ids);
    tokenizer_destroy(t);
}

/* ---- threads, memory, bad files ---- */

typedef struct job {
    const tokenizer *t;
    uint64_t sum;
} job;

static void *encode_much(void *arg)
{
    job *j = arg;
    uint64_t state = 1;
    char text[1024];
    for (int i = 0; i < 500; i++) {
        size_t len = random_text(&state, text, sizeof text);
        token_buf ids = {0};
        tokenizer_encode(j->t, text, len, 0, 0, &ids, NULL);
        for (uint32_t k = 0; k < ids.len; k++)
            j->sum = j->sum * 31 + (uint64_t)ids.ids[k];
        token_buf_fini(&ids);
    }
    return NULL;
}

TEST(threads_encode_side_by_side)
{
    tokenizer *t = open_tiny_bpe("qwen2");
    pthread_t threads[4];
    job jobs[4];
    for (int i = 0; i < 4; i++) {
        jobs[i] = (job){t, 0};
        CHECK(pthread_create(&threads[i], NULL, encode_much, &jobs[i]) == 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 1; i < 4; i++)
        CHECK(jobs[i].sum == jobs[0].sum && jobs[0].sum != 0);
    tokenizer_destroy(t);
}

TEST(create_and_encode_survive_every_allocation_failing)
{
    char text[600];
    memset(text, 'a', sizeof text); /* long enough for the heap and for more symbols */
    memcpy(text, "e\xcc\x81 ", 4);  /* and NFC */
    for (int spm = 0; spm < 2; spm++) {
        tokenizer *t = NULL;
        bool done = false;
        for (long n = 0; !done; n++) {
            test_env e;
            rad_env env = test_env_failing_at(&e, n);
            rad_error err = {0};
            gguf_builder b;
            if (spm)
                tiny_spm(&b, true, false);
            else
                tiny_bpe(&b, "qwen2");
            t = tiny_open(&env, &b, &err);
            CHECKF(t || err.status == RAD_E_NOMEM, "%s\n", err.text);
            if (t) {
                token_buf ids = {0};
                rad_status status =
                    tokenizer_encode(t, text, sizeof text, TOKENIZER_ADD_BOS, 0, &ids, &err);
                CHECK(status == RAD_OK || (status == RAD_E_NOMEM && ids.len == 0));
                done = status == RAD_OK;
                token_buf_fini(&ids);
            }
            tokenizer_destroy(t);
            CHECK(e.bytes == 0);
        }
    }
}

static void expect_refused(gguf_builder *b, rad_status wanted, const char *words)
{
    rad_error err = {0};
    tokenizer *t = tiny_open(NULL, b, &err);
    CHECKF(!t && err.status == wanted && strstr(err.text, words), "status %d: \"%s\"\n", err.status,
           err.text);
}

/* The beginning of a vocabulary of one token. */
static void only_token(gguf_builder *b, const char *model, const char *text)
{
    gguf_builder_init(b, 3);
    gguf_put_kv_str(b, "tokenizer.ggml.model", model);
    gguf_put_kv_arr(b, "tokenizer.ggml.tokens", GGUF_STR, 1);
    gguf_put_str(b, text);
}

TEST(vocabularies_that_make_no_sense_are_refused)
{
    gguf_builder b;
    gguf_builder_init(&b, 3);
    expect_refused(&b, RAD_E_UNSUPPORTED, "holds no vocabulary");
    gguf_builder_init(&b, 3);
    gguf_put_kv_str(&b, "tokenizer.ggml.model", "bert");
    expect_refused(&b, RAD_E_UNSUPPORTED, "'bert' is not one we know");
    tiny_bpe(&b, "superbpe");
    expect_refused(&b, RAD_E_UNSUPPORTED, "'superbpe' is not one we know");
    gguf_builder_init(&b, 3);
    gguf_put_kv_str(&b, "tokenizer.ggml.model", "gpt2");
    expect_refused(&b, RAD_E_FORMAT, "no tokens");
    tiny_bpe(&b, NULL);
    gguf_put_kv_u32(&b, "tokenizer.ggml.eot_token_id", 100000);
    expect_refused(&b, RAD_E_FORMAT, "eot_token_id is 100000");

    /* One token "a" only: 255 bytes cannot be written. */
    only_token(&b, "gpt2", "a");
    expect_refused(&b, RAD_E_UNSUPPORTED, "no token for byte 0x00");
    only_token(&b, "llama", "a");
    gguf_put_kv_u32(&b, "tokenizer.ggml.unknown_token_id", 0);
    expect_refused(&b, RAD_E_FORMAT, "scores");
    only_token(&b, "gpt2", "a");
    gguf_put_kv_u32(&b, "tokenizer.ggml.unknown_token_id", 0);
    gguf_put_kv_arr(&b, "tokenizer.ggml.merges", GGUF_STR, 1);
    gguf_put_str(&b, "ab");
    expect_refused(&b, RAD_E_FORMAT, "merge 0 is not two strings");
    char endless[TOKENIZER_MAX_PIECE + 2];
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    only_token(&b, "gpt2", endless);
    expect_refused(&b, RAD_E_UNSUPPORTED, "token 0 is 1025 bytes long");
    only_token(&b, "gpt2", "a");
    tiny_put_i32s(&b, "tokenizer.ggml.token_type", (int32_t[]){1, 1}, 2);
    expect_refused(&b, RAD_E_FORMAT, "1 tokens, but 2 entries");
    only_token(&b, "gpt2", "a");
    tiny_put_i32s(&b, "tokenizer.ggml.token_type", (int32_t[]){9}, 1);
    expect_refused(&b, RAD_E_FORMAT, "unknown type 9");
}

TEST_MAIN()
