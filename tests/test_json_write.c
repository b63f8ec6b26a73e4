/* test_json_write.c - answers are spelled as jansson spells them. */
#include "test.h"

#include "server/json_write.h"

static char *text_of(struct evbuffer *buffer)
{
    size_t len = evbuffer_get_length(buffer);
    char *text = calloc(1, len + 1);
    CHECK(text != NULL);
    evbuffer_remove(buffer, text, len);
    return text;
}

/* One value in a list, by us and by jansson. */
static void same(json_writer *w, struct evbuffer *buffer, json_t *wanted)
{
    jw_close(w, ']');
    CHECK(json_writer_end(w));
    char *ours = text_of(buffer);
    json_t *list = json_pack("[o]", wanted);
    char *theirs = json_dumps(list, JSON_COMPACT);
    CHECKF(strcmp(ours, theirs) == 0, "%s, not %s", ours, theirs);
    free(ours);
    free(theirs);
    json_decref(list);
    json_writer_begin(w, buffer);
    jw_open(w, '[');
}

TEST(values_are_spelled_as_jansson_does)
{
    static const double reals[] = {0,     -0.0,   1,     -1.5,   1e-5,   1.25e-300, 1e300,
                                   -9999, 123456, 1e16,  1e17,   1e-4,   -2.5e-7,   0.1,
                                   1e22,  3e-10,  1e100, 5e-324, 1.7e308};
    static const char *const texts[] = {"",          "a",
                                        "\"\\/",     "\b\t\n\f\r\v\x01\x1f\x7f",
                                        "h\xc3\xa9", "\xe2\x82\xac\xf0\x9f\x98\x80",
                                        "</script>"};
    uint64_t seed = test_told_seed();
    struct evbuffer *buffer = evbuffer_new();
    json_writer w;
    json_writer_begin(&w, buffer);
    jw_open(&w, '[');
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        jw_real(&w, reals[i]), same(&w, buffer, json_real(reals[i]));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        jw_word(&w, texts[i]), same(&w, buffer, json_string(texts[i]));
    for (int i = 0; i < 20000; i++) {
        union {
            uint64_t bits;
            double real;
        } u = {test_random(&seed)};
        if (i % 2) u.real = (double)(float)((double)(int64_t)u.bits / 1e18);
        if (!__builtin_isfinite(u.real)) continue;
        jw_real(&w, u.real), same(&w, buffer, json_real(u.real));
        jw_int(&w, (int64_t)u.bits), same(&w, buffer, json_integer((json_int_t)u.bits));
    }
    jw_null(&w), same(&w, buffer, json_null());
    jw_word(&w, NULL), same(&w, buffer, json_null());
    jw_json(&w, json_pack("{s:[i]}", "a", 1)), same(&w, buffer, json_pack("{s:[i]}", "a", 1));
    evbuffer_free(buffer);
}

/* What is text and what is not is decided as jansson decides it. */
TEST(any_bytes_are_text_where_jansson_says_so)
{
    uint64_t seed = test_told_seed();
    struct evbuffer *buffer = evbuffer_new();
    json_writer w;
    json_writer_begin(&w, buffer);
    jw_open(&w, '[');
    for (uint64_t round = 0; round < test_scale(30000, 3000000); round++) {
        static const unsigned char parts[] = {0xc1, 0xc2, 0xdf, 0xe0, 0xed, 0xef, 0xf0, 0xf4, 0xf5,
                                              0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 'a',  '"',  0};
        char bytes[6];
        size_t len = test_random(&seed) % sizeof bytes;
        for (size_t i = 0; i < len; i++)
            bytes[i] = (char)parts[test_random(&seed) % sizeof parts];
        json_t *theirs = json_stringn(bytes, len);
        CHECK(json_is_utf8(bytes, len) == (theirs != NULL));
        jw_text(&w, bytes, len);
        same(&w, buffer, theirs ? theirs : json_string("\xef\xbf\xbd"));
    }
    evbuffer_free(buffer);
}

TEST(commas_and_long_texts_are_in_their_place)
{
    static char longer[20000];
    struct evbuffer *buffer = evbuffer_new();
    json_writer w;
    memset(longer, 'l', sizeof longer - 1);
    json_writer_begin(&w, buffer);
    jw_open(&w, '{');
    jw_name(&w, "a"), jw_open(&w, '['), jw_int(&w, 1), jw_open(&w, '['), jw_close(&w, ']');
    jw_int(&w, 2), jw_close(&w, ']'), jw_name(&w, "b"), jw_word(&w, longer);
    jw_name(&w, "c"), jw_open(&w, '{'), jw_close(&w, '}'), jw_close(&w, '}');
    CHECK(w.values == 7 && json_writer_end(&w));
    char *text = text_of(buffer);
    CHECKF(strncmp(text, "{\"a\":[1,[],2],\"b\":\"lll", 22) == 0, "%.40s", text);
    CHECK(strlen(text) == 22 - 3 + sizeof longer - 1 + strlen("\",\"c\":{}}"));
    free(text);
    jw_json(&w, NULL);
    CHECK(!json_writer_end(&w));
    evbuffer_free(buffer);
}

TEST_MAIN()
