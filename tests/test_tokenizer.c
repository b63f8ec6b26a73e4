/* test_tokenizer.c - ids equal those of the models' own tokenizers, any bytes come back,
 * and no input is slow. */
#define _GNU_SOURCE /* memmem */
#include "gguf_builder.h"
#include "test.h"

#include "text/tokenizer.h"

#include <unistd.h>

/* ---- the vocabularies that public models use, with vectors ---- */

static const char *const vocabs[] = {"gpt-2", "llama-spm", "deepseek-llm"};
static const char separator[] = "\n__ggml_vocab_test__\n";

static char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
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

static tokenizer *open_vocab(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizers/ggml-vocab-%s.gguf", test_data(), name);
    if (access(path, R_OK) != 0) return NULL;
    gguf_file *f = NULL;
    tokenizer *t = NULL;
    rad_error err = {0};
    CHECKF(gguf_open(NULL, path, &f, &err) == RAD_OK, "%s\n", err.text);
    CHECKF(tokenizer_create(NULL, f, &t, &err) == RAD_OK, "%s\n", err.text);
    gguf_close(f);
    return t;
}

/* The whole decoded, by plain concatenation. */
static char *join_pieces(const tokenizer *t, const token_buf *ids, size_t *len)
{
    char *text = malloc((size_t)ids->len * TOKENIZER_MAX_PIECE + 1);
    *len = 0;
    for (uint32_t i = 0; i < ids->len; i++)
        *len += tokenizer_piece(t, ids->ids[i], true, text + *len, TOKENIZER_MAX_PIECE);
    return text;
}

/* Encodes, decodes and compares. SPM cannot tell U+2581 from a space. */
static void check_round_trip(const tokenizer *t, const char *text, size_t len, const char *what)
{
    token_buf ids = {0};
    CHECK_OK(tokenizer_encode(t, text, len, TOKENIZER_NO_PREFIX, 0, &ids, NULL));
    size_t back_len;
    char *back = join_pieces(t, &ids, &back_len);
    CHECKF(back_len == len && memcmp(back, text, len) == 0, "%s: %zu bytes became %zu\n", what, len,
           back_len);
    free(back);
    token_buf_fini(&ids);
}

TEST(the_vectors_of_every_vocabulary_are_exact)
{
    int seen = 0;
    for (size_t v = 0; v < sizeof vocabs / sizeof vocabs[0]; v++) {
        char path[512];
        tokenizer *t = open_vocab(vocabs[v]);
        if (!t) continue;
        size_t in_len, out_len;
        snprintf(path, sizeof path, "%s/tokenizers/ggml-vocab-%s.gguf.inp", test_data(), vocabs[v]);
        char *in = read_file(path, &in_len);
        snprintf(path, sizeof path, "%s/tokenizers/ggml-vocab-%s.gguf.out", test_data(), vocabs[v]);
        char *want = read_file(path, &out_len);
        CHECK(in && want);
        int n = 0;
        char *line = want;
        for (char *text = in, *end; text < in + in_len; text = end + sizeof separator - 1, n++) {
            end = memmem(text, (size_t)(in + in_len - text), separator, sizeof separator - 1);
            if (!end) break;
            token_buf ids = {0};
            CHECK_OK(tokenizer_encode(t, text, (size_t)(end - text), 0, 0, &ids, NULL));
            char *rest = strchr(line, '\n');
            CHECK(rest);
            *rest = 0;
            uint32_t i = 0;
            for (char *p = line;; i++) {
                char *after;
                long id = strtol(p, &after, 10);
                if (after == p) break;
                CHECKF(i < ids.len && ids.ids[i] == id, "%s, string %d, id %u: %d, wanted %ld\n",
                       vocabs[v], n, i, i < ids.len ? ids.ids[i] : -1, id);
                p = after;
            }
            CHECKF(i == ids.len, "%s, string %d: %u ids, wanted %u\n", vocabs[v], n, ids.len, i);
            token_buf_fini(&ids);
            check_round_trip(t, text, (size_t)(end - text), vocabs[v]);
            line = rest + 1;
        }
        CHECKF(n == 46, "%s: %d strings\n", vocabs[v], n);
        seen++;
        free(in);
        free(want);
        tokenizer_destroy(t);
    }
    SKIP_UNLESS(seen == 3, "no test data (set RADISH_TESTDATA)");
}

TEST_MAIN()
