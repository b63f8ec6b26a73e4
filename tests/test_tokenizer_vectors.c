/* test_tokenizer_vectors.c - ids equal those that other programs give the same texts: one made from
 * the definitions, and, of public models, their own. */
#define _GNU_SOURCE /* memmem */
#include "round_trip.h"
#include "test.h"

#include "text/tokenizer.h"

#include <jansson.h>

/* ---- vocabularies and texts with the ids that another program gives them ---- */

static const struct made {
    const char *name;
    bool spm;     /* U+2581 is read as a space */
    bool changes; /* a text may come back as another: composed, or with U+FFFD */
} made[] = {{"gpt-2", false, false},       {"llama-bpe", false, false},
            {"qwen2", false, true},        {"deepseek-llm", false, false},
            {"spm", true, false},          {"default", false, false},
            {"falcon", false, true},       {"starcoder", false, false},
            {"qwen35", false, true},       {"bailingmoe", false, false},
            {"seed-coder", false, false},  {"kimi-k2", false, false},
            {"deepseek-v3", false, false}, {"deepseek-coder", false, false},
            {"gemma4", true, false},       {"minicpm5", false, false},
            {"youtu", false, false},       {"poro-chat", false, false},
            {"viking", false, false}};

static void check_text(const tokenizer *t, const char *name, const char *text, size_t len,
                       const rad_token *wanted, uint32_t num_wanted)
{
    token_buf ids = {0};
    CHECK_OK(tokenizer_encode(t, text, len, 0, 0, &ids, NULL));
    for (uint32_t i = 0; i < num_wanted; i++)
        CHECKF(i < ids.len && ids.ids[i] == wanted[i], "%s, \"%.*s\", id %u: %d, wanted %d\n", name,
               (int)len, text, i, i < ids.len ? ids.ids[i] : -1, wanted[i]);
    CHECKF(ids.len == num_wanted, "%s, \"%.*s\": %u ids, wanted %u\n", name, (int)len, text,
           ids.len, num_wanted);
    token_buf_fini(&ids);
}

TEST(ids_are_those_of_a_slow_tokenizer_made_from_the_definitions)
{
    for (size_t v = 0; v < sizeof made / sizeof made[0]; v++) {
        tokenizer *t = open_made(made[v].name);
        char file[64];
        snprintf(file, sizeof file, "vocab-%s.json", made[v].name);
        json_t *cases = json_load_file(test_made(file), JSON_ALLOW_NUL, NULL), *one, *id;
        CHECKF(json_array_size(cases) > 100, "%s\n", file);
        size_t at, i;
        json_array_foreach(cases, at, one)
        {
            const json_t *text = json_object_get(one, "text"), *list = json_object_get(one, "ids");
            rad_token wanted[1024];
            CHECK(json_array_size(list) <= 1024);
            json_array_foreach(list, i, id) wanted[i] = (rad_token)json_integer_value(id);
            check_text(t, made[v].name, json_string_value(text), json_string_length(text), wanted,
                       (uint32_t)json_array_size(list));
            CHECKF(made[v].changes || comes_back(t, made[v].spm, json_string_value(text),
                                                 json_string_length(text)),
                   "%s, \"%s\"\n", made[v].name, json_string_value(text));
        }
        json_decref(cases);
        tokenizer_destroy(t);
    }
}

/* ---- the same of vocabularies that public models use, beside the repository ---- */

static const char separator[] = "\n__ggml_vocab_test__\n";

static char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    CHECKF(f, "%s\n", path);
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    char *bytes = malloc((size_t)size + 1);
    CHECK(bytes && fread(bytes, 1, (size_t)size, f) == (size_t)size);
    bytes[size] = 0;
    *len = (size_t)size;
    fclose(f);
    return bytes;
}

static void check_public(const char *name, bool spm)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/tokenizers/ggml-vocab-%s.gguf", test_data(), name);
    tokenizer *t = open_tokenizer(NULL, path);
    size_t in_len, out_len;
    snprintf(path, sizeof path, "%s/tokenizers/ggml-vocab-%s.gguf.inp", test_data(), name);
    char *in = read_file(path, &in_len);
    snprintf(path, sizeof path, "%s/tokenizers/ggml-vocab-%s.gguf.out", test_data(), name);
    char *line = read_file(path, &out_len), *lines = line;
    int n = 0;
    for (char *text = in, *end; text < in + in_len; text = end + sizeof separator - 1, n++) {
        end = memmem(text, (size_t)(in + in_len - text), separator, sizeof separator - 1);
        if (!end) break;
        rad_token wanted[1024];
        uint32_t num_wanted = 0;
        for (char *after; *line != '\n'; line = after) {
            CHECK(num_wanted < 1024);
            wanted[num_wanted++] = (rad_token)strtol(line, &after, 10);
            CHECK(after > line);
            while (*after == ' ')
                after++;
        }
        line++;
        check_text(t, name, text, (size_t)(end - text), wanted, num_wanted);
        CHECKF(comes_back(t, spm, text, (size_t)(end - text)), "%s, string %d\n", name, n);
    }
    CHECKF(n == 46, "%s: %d strings\n", name, n);
    free(in);
    free(lines);
    tokenizer_destroy(t);
}

TEST_WITH_DATA(gpt_2s_vectors_are_exact, "tokenizers/ggml-vocab-gpt-2.gguf")
{
    check_public("gpt-2", false);
}
TEST_WITH_DATA(llamas_vectors_are_exact, "tokenizers/ggml-vocab-llama-spm.gguf")
{
    check_public("llama-spm", true);
}
TEST_WITH_DATA(deepseeks_vectors_are_exact, "tokenizers/ggml-vocab-deepseek-llm.gguf")
{
    check_public("deepseek-llm", false);
}

TEST_WITH_DATA(falcons_vectors_are_exact, "tokenizers/ggml-vocab-falcon.gguf")
{
    check_public("falcon", false);
}
TEST_WITH_DATA(mpts_vectors_are_exact, "tokenizers/ggml-vocab-mpt.gguf")
{
    check_public("mpt", false);
}
TEST_WITH_DATA(starcoders_vectors_are_exact, "tokenizers/ggml-vocab-starcoder.gguf")
{
    check_public("starcoder", false);
}
TEST_WITH_DATA(refacts_vectors_are_exact, "tokenizers/ggml-vocab-refact.gguf")
{
    check_public("refact", false);
}
TEST_WITH_DATA(deepseek_coders_vectors_are_exact, "tokenizers/ggml-vocab-deepseek-coder.gguf")
{
    check_public("deepseek-coder", false);
}

TEST_WITH_DATA(the_story_model_sees_the_prompt_that_it_was_made_with, "models/stories260K.gguf")
{
    char path[1024];
    snprintf(path, sizeof path, "%s/models/stories260K.gguf", test_data());
    tokenizer *t = open_tokenizer(NULL, path);
    static const rad_token wanted[] = {1, 403, 407, 261, 378};
    token_buf ids = {0};
    CHECK_OK(tokenizer_encode(t, "Once upon a time", 16, TOKENIZER_ADD_BOS, 0, &ids, NULL));
    CHECK(ids.len == 5 && memcmp(ids.ids, wanted, sizeof wanted) == 0);
    token_buf_fini(&ids);
    tokenizer_destroy(t);
}

TEST_MAIN()
