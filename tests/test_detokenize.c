/* test_detokenize.c - what is streamed is what decoding all at once would give, and
 * never half a character. */
#include "test.h"
#include "tiny_vocab.h"

#include "text/detokenize.h"

static tokenizer *open_tiny(bool spm)
{
    gguf_builder b;
    rad_error err = {0};
    if (spm)
        tiny_spm(&b, true, false);
    else
        tiny_bpe(&b, "gpt-2");
    tokenizer *t = tiny_open(NULL, &b, &err);
    CHECKF(t, "%s\n", err.text);
    return t;
}

/* Bytes to valid UTF-8 by the table of well-formed sequences (Unicode, table 3-7): each
 * maximal prefix of one that is not completed becomes one U+FFFD. */
static size_t naive_decode(const unsigned char *in, size_t len, char *out)
{
    static const unsigned char forms[][5] = {
        /* bytes, first low, first high, second low, second high */
        {1, 0x00, 0x7f, 0, 0},       {2, 0xc2, 0xdf, 0x80, 0xbf}, {3, 0xe0, 0xe0, 0xa0, 0xbf},
        {3, 0xe1, 0xec, 0x80, 0xbf}, {3, 0xed, 0xed, 0x80, 0x9f}, {3, 0xee, 0xef, 0x80, 0xbf},
        {4, 0xf0, 0xf0, 0x90, 0xbf}, {4, 0xf1, 0xf3, 0x80, 0xbf}, {4, 0xf4, 0xf4, 0x80, 0x8f},
    };
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        size_t form = 0, have = 1;
        while (form < 9 && (in[i] < forms[form][1] || in[i] > forms[form][2]))
            form++;
        if (form < 9) {
            while (have < forms[form][0] && i + have < len) {
                unsigned char low = have == 1 ? forms[form][3] : 0x80;
                unsigned char high = have == 1 ? forms[form][4] : 0xbf;
                if (in[i + have] < low || in[i + have] > high) break;
                have++;
            }
            if (have == forms[form][0]) {
                memcpy(out + n, in + i, have);
                n += have;
                i += have;
                continue;
            }
        }
        memcpy(out + n, "\xef\xbf\xbd", 3);
        n += 3;
        i += have;
    }
    return n;
}

/* Nothing but whole characters: decoding changes nothing. */
static bool is_utf8(const char *text, size_t len)
{
    char out[8192];
    if (len > sizeof out / 3) return false;
    size_t n = naive_decode((const unsigned char *)text, len, out);
    return n == len && memcmp(out, text, len) == 0;
}

TEST(streamed_text_equals_the_whole_decoding)
{
    uint64_t seed = test_seed(), state = seed;
    static const unsigned char likely[] = {0xf0, 0x9f, 0x98, 0x80, 0xe2, 0x82, 0xac, 0xc3,
                                           0xa9, 0xed, 0xa0, 0xf4, 0x90, 0xc0, 0xff, 'a'};
    for (int spm = 0; spm < 2; spm++) {
        tokenizer *t = open_tiny(spm);
        for (uint64_t round = 0; round < test_scale(20000, 1000000); round++) {
            unsigned char bytes[64 * TOKENIZER_MAX_PIECE];
            char whole[4096];
            size_t len = 0;
            text_buf text = {0};
            detokenizer d;
            detokenizer_init(&d, t, false, false);
            size_t n = test_random(&state) % 24;
            for (size_t i = 0; i < n; i++) {
                uint64_t r = test_random(&state);
                rad_token id = (rad_token)((r >> 8) % tokenizer_vocab_size(t));
                if (r % 8) id = likely[(r >> 8) % sizeof likely] + (spm ? 3 : 0);
                len += tokenizer_piece(t, id, true, (char *)bytes + len, TOKENIZER_MAX_PIECE);
                CHECK_OK(detokenizer_push(&d, id, &text));
                CHECKF(is_utf8(text.data, text.len), "seed %llu\n", (unsigned long long)seed);
                CHECK(d.num_held <= 3);
            }
            CHECK_OK(detokenizer_finish(&d, &text));
            CHECK(d.num_held == 0);
            size_t whole_len = naive_decode(bytes, len, whole);
            CHECKF(text.len == whole_len && (!whole_len || !memcmp(text.data, whole, whole_len)),
                   "seed %llu\n", (unsigned long long)seed);
            text_buf_fini(&text);
        }
        tokenizer_destroy(t);
    }
}

TEST(a_character_comes_when_its_last_byte_does)
{
    tokenizer *t = open_tiny(false);
    text_buf text = {0};
    detokenizer d;
    detokenizer_init(&d, t, true, true);
    const unsigned char euro[] = {0xe2, 0x82, 0xac};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(detokenizer_push(&d, euro[i], &text));
        CHECK(text.len == (i < 2 ? 0 : 3));
    }
    CHECK(strcmp(text.data, "\xe2\x82\xac") == 0);
    CHECK_OK(detokenizer_push(&d, 0xf0, &text));
    CHECK_OK(detokenizer_finish(&d, &text));
    CHECK(strcmp(text.data, "\xe2\x82\xac\xef\xbf\xbd") == 0);
    CHECK_OK(detokenizer_finish(&d, &text)); /* nothing more */
    CHECK(text.len == 6);
    text_buf_fini(&text);
    tokenizer_destroy(t);
}

TEST(special_tokens_are_shown_or_skipped)
{
    tokenizer *t = open_tiny(false);
    rad_token end = tokenizer_find(t, "<|im_end|>", 10), user = tokenizer_find(t, "<u>", 3);
    for (int skip = 0; skip < 2; skip++) {
        text_buf text = {0};
        detokenizer d;
        detokenizer_init(&d, t, true, skip);
        CHECK_OK(detokenizer_push(&d, end, &text));
        CHECK_OK(detokenizer_push(&d, user, &text));
        CHECK_OK(detokenizer_push(&d, -5, &text)); /* ids that are none give no text */
        CHECK_OK(detokenizer_push(&d, INT32_MAX, &text));
        CHECK(strcmp(text.data, skip ? "<u>" : "<|im_end|><u>") == 0);
        text_buf_fini(&text);
    }
    tokenizer_destroy(t);
}

TEST(the_dummy_space_of_spm_is_dropped_once_and_only_at_the_start)
{
    tokenizer *t = open_tiny(true);
    rad_token space_a = tokenizer_find(t, " a", 2), bos = tokenizer_bos(t);
    CHECK(space_a >= 0 && bos >= 0);
    for (int at_start = 0; at_start < 2; at_start++) {
        text_buf text = {0};
        detokenizer d;
        detokenizer_init(&d, t, at_start, true);
        CHECK_OK(detokenizer_push(&d, bos, &text));
        CHECK_OK(detokenizer_push(&d, space_a, &text));
        CHECK_OK(detokenizer_push(&d, space_a, &text));
        CHECK(strcmp(text.data, at_start ? "a a" : " a a") == 0);
        text_buf_fini(&text);
    }
    tokenizer_destroy(t);
    t = open_tiny(false); /* BPE has none */
    text_buf text = {0};
    detokenizer d;
    detokenizer_init(&d, t, true, true);
    CHECK_OK(detokenizer_push(&d, ' ', &text));
    CHECK(strcmp(text.data, " ") == 0);
    text_buf_fini(&text);
    tokenizer_destroy(t);
}

TEST(a_text_grows_and_stays_terminated)
{
    text_buf text = {0};
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(text_buf_append(&text, "abc", 3));
        CHECK(text.len == 3u * (unsigned)(i + 1) && text.data[text.len] == 0);
    }
    CHECK_OK(text_buf_append(&text, NULL, 0));
    CHECK(text_buf_append(&text, "", SIZE_MAX / 2) == RAD_E_NOMEM && text.len == 3000);
    text_buf_fini(&text);
    CHECK(!text.data && !text.len);
}

TEST_MAIN()
