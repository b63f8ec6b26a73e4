/* round_trip.h - the vocabularies that people have, and text that must come back from its ids. */
#ifndef TESTS_ROUND_TRIP_H
#define TESTS_ROUND_TRIP_H

#include "test.h"

#include "text/tokenizer.h"

#include <unistd.h>

/* The tokenizer of a model file; NULL when there is no such file. */
static inline tokenizer *open_tokenizer(const rad_env *env, const char *path)
{
    if (access(path, R_OK) != 0) return NULL;
    gguf_file *f = NULL;
    tokenizer *t = NULL;
    rad_error err = {0};
    CHECKF(gguf_open(NULL, path, &f, &err) == RAD_OK, "%s\n", err.text);
    CHECKF(tokenizer_create(env, f, &t, &err) == RAD_OK, "%s\n", err.text);
    gguf_close(f);
    return t;
}

/* One of those that tests/made/vocabulary.py learnt. */
static inline tokenizer *open_made(const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "vocab-%s.gguf", name);
    tokenizer *t = open_tokenizer(NULL, test_made(file));
    CHECK(t);
    return t;
}

/* text with each U+2581 as a space, which is how SPM reads it. */
static inline size_t as_spm_reads(const char *text, size_t len, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len; n++) {
        bool mark = len - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0;
        out[n] = mark ? ' ' : text[i];
        i += mark ? 3 : 1;
    }
    return n;
}

/* Encodes, puts the pieces of the ids one behind the other, and compares. */
static inline bool comes_back(const tokenizer *t, bool spm, const char *text, size_t len)
{
    token_buf ids = {0};
    CHECK_OK(tokenizer_encode(t, text, len, TOKENIZER_NO_PREFIX, 0, &ids, NULL));
    CHECK(ids.len <= len);
    char *wanted = malloc(len + 1), piece[TOKENIZER_MAX_PIECE];
    size_t wanted_len = len, n = 0;
    memcpy(wanted, text, len);
    if (spm) wanted_len = as_spm_reads(text, len, wanted);
    bool same = true;
    for (uint32_t i = 0; i < ids.len && same; i++) {
        size_t piece_len = tokenizer_piece(t, ids.ids[i], true, piece, sizeof piece);
        same = piece_len <= wanted_len - n && memcmp(wanted + n, piece, piece_len) == 0;
        n += piece_len;
    }
    token_buf_fini(&ids);
    free(wanted);
    return same && n == wanted_len;
}

#endif
