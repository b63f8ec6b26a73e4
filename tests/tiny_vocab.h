/* tiny_vocab.h - two small vocabularies made in code, for tests and fuzz targets.
 *
 *   BPE: 256 byte tokens (ids 0..255), tokens with merges, then special tokens.
 *   SPM: <unk> <s> </s>, 256 byte tokens (ids 3..258), pieces with scores, specials. */
#ifndef TESTS_TINY_VOCAB_H
#define TESTS_TINY_VOCAB_H

#include "gguf_builder.h"
#include "text/tokenizer.h"
#include <stdio.h>

/* The character that stands for a byte in byte-level BPE, as UTF-8. */
static inline const char *tiny_byte_text(int byte, char out[4])
{
    int code = byte;
    bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    if (!printable) {
        code = 256;
        for (int b = 0; b < byte; b++)
            code += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
    }
    if (code < 0x80)
        snprintf(out, 4, "%c", code);
    else
        snprintf(out, 4, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
    return out;
}

/* Merges in rank order; a space stands between the halves, bytes as BPE writes them. */
static const char *const tiny_merges[] = {
    "a b", "b a",   "ab a",  "a a",    "aa aa", "ab ab", "c d",   "cd cd", "Ġ a",     "Ġ ab",
    "h e", "l l",   "he ll", "hell o", "Ġ w",   "o r",   "Ġw or", "l d",   "Ġwor ld", "Ċ Ċ",
    "Ġ Ġ", "ĠĠ ĠĠ", "1 2",   "3 4",    "Ã ©",   "r o",   "x y",   "y z",   "xy z",    "d c",
};
enum { TINY_MERGES = sizeof tiny_merges / sizeof tiny_merges[0] };

/* "x y" is left out of the tokens: a merge on the way to "xyz" that is no token. */
static inline bool tiny_is_token(size_t merge)
{
    return strcmp(tiny_merges[merge], "x y") != 0;
}

typedef struct tiny_special {
    const char *text;
    int32_t type; /* 3: control, 4: user-defined */
} tiny_special;

static const tiny_special tiny_specials[] = {
    {"<|endoftext|>", 3},
    {"<|im_start|>", 3},
    {"<|im_end|>", 3},
    {"<u>", 4},
    {"<u><u>", 4},
    {"ab<", 4},
    {"<|begin_of_text|>", 3},
    {"<|start_header_id|>", 3},
    {"<|end_header_id|>", 3},
    {"<|eot_id|>", 3},
    {"<|bos|>", 3},
    {"<|eos|>", 3},
    {"<|system|>", 3},
    {"<|user|>", 3},
    {"<|assistant|>", 3},
    {"<|end|>", 3},
    {"<|pad|>", 3},
    {"<start_of_turn>", 4}, /* as some Gemma files have them */
    {"<end_of_turn>", 4},
    {"<|eom_id|>", 3},
};
enum { TINY_SPECIALS = sizeof tiny_specials / sizeof tiny_specials[0] };

static inline void tiny_put_i32s(gguf_builder *b, const char *key, const int32_t *v, size_t n)
{
    gguf_put_kv_arr(b, key, GGUF_I32, n);
    gguf_put(b, v, n * sizeof *v);
}

/* The keys of the BPE vocabulary, with these specials (the first is BOS and EOS); the caller may
 * add more and ends the builder. */
static inline void tiny_bpe_with(gguf_builder *b, const char *pre, const tiny_special *specials,
                                 size_t num_specials)
{
    enum { MOST_SPECIALS = 64 };
    int32_t types[256 + TINY_MERGES + MOST_SPECIALS];
    size_t n = 256 + num_specials;
    for (size_t i = 0; i < TINY_MERGES; i++)
        n += tiny_is_token(i);
    gguf_builder_init(b, 3);
    gguf_put_kv_str(b, "tokenizer.ggml.model", "gpt2");
    if (pre) gguf_put_kv_str(b, "tokenizer.ggml.pre", pre);
    gguf_put_kv_arr(b, "tokenizer.ggml.tokens", GGUF_STR, n);
    size_t at = 0;
    for (int byte = 0; byte < 256; byte++, at++) {
        char text[4];
        gguf_put_str(b, tiny_byte_text(byte, text));
        types[at] = 1;
    }
    for (size_t i = 0; i < TINY_MERGES; i++) {
        if (!tiny_is_token(i)) continue;
        const char *space = strchr(tiny_merges[i], ' ');
        gguf_put_u64(b, strlen(tiny_merges[i]) - 1);
        gguf_put(b, tiny_merges[i], (size_t)(space - tiny_merges[i]));
        gguf_put(b, space + 1, strlen(space + 1));
        types[at++] = 1;
    }
    for (size_t i = 0; i < num_specials; i++) {
        gguf_put_str(b, specials[i].text);
        types[at++] = specials[i].type;
    }
    tiny_put_i32s(b, "tokenizer.ggml.token_type", types, n);
    gguf_put_kv_arr(b, "tokenizer.ggml.merges", GGUF_STR, TINY_MERGES);
    for (size_t i = 0; i < TINY_MERGES; i++)
        gguf_put_str(b, tiny_merges[i]);
    gguf_put_kv_u32(b, "tokenizer.ggml.bos_token_id", (uint32_t)(n - num_specials));
    gguf_put_kv_u32(b, "tokenizer.ggml.eos_token_id", (uint32_t)(n - num_specials));
}

static inline void tiny_bpe(gguf_builder *b, const char *pre)
{
    tiny_bpe_with(b, pre, tiny_specials, TINY_SPECIALS);
}

/* Pieces of the SPM vocabulary, best score first where scores differ. */
static const struct tiny_piece {
    const char *text;
    float score;
} tiny_pieces[] = {
    {"▁a", -1},   {"ab", -2}, {"ba", -2}, {"aba", -3},   {"aa", -4},     {"aaaa", -5}, {"▁▁", -6},
    {"▁▁▁▁", -7}, {"he", -8}, {"ll", -9}, {"hell", -10}, {"▁hell", -11}, {"né", -12},  {"cd", -13},
    {"cdc", -13}, {"a", -20}, {"b", -21}, {"▁", -22},    {"h", -23},     {"e", -24},   {"l", -25},
    {"o", -26},   {"c", -27}, {"d", -28}, {"n", -29},
};
enum { TINY_PIECES = sizeof tiny_pieces / sizeof tiny_pieces[0] };

/* `inner_space`: adds a piece with a space inside, so that words are not apart. */
static inline void tiny_spm(gguf_builder *b, bool add_space_prefix, bool inner_space)
{
    enum { MOST = 259 + TINY_PIECES + 1 + TINY_SPECIALS };
    size_t n = MOST - !inner_space, at = 0;
    int32_t types[MOST];
    float scores[MOST] = {0};
    gguf_builder_init(b, 3);
    gguf_put_kv_str(b, "tokenizer.ggml.model", "llama");
    gguf_put_kv_arr(b, "tokenizer.ggml.tokens", GGUF_STR, n);
    for (int i = 0; i < 3; i++) {
        gguf_put_str(b, i == 0 ? "<unk>" : i == 1 ? "<s>" : "</s>");
        types[at++] = i ? 3 : 2;
    }
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", byte);
        gguf_put_str(b, text);
        types[at++] = 6;
    }
    for (size_t i = 0; i < TINY_PIECES; i++) {
        gguf_put_str(b, tiny_pieces[i].text);
        scores[at] = tiny_pieces[i].score;
        types[at++] = 1;
    }
    if (inner_space) {
        gguf_put_str(b, "b▁");
        scores[at] = -0.5f;
        types[at++] = 1;
    }
    for (size_t i = 0; i < TINY_SPECIALS; i++) {
        gguf_put_str(b, tiny_specials[i].text);
        types[at++] = tiny_specials[i].type;
    }
    tiny_put_i32s(b, "tokenizer.ggml.token_type", types, n);
    gguf_put_kv_arr(b, "tokenizer.ggml.scores", GGUF_F32, n);
    gguf_put(b, scores, n * sizeof *scores);
    gguf_put_kv_u32(b, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_kv_u32(b, "tokenizer.ggml.eos_token_id", 2);
    gguf_put_kv_bool(b, "tokenizer.ggml.add_space_prefix", add_space_prefix);
}

/* Ends the builder, opens it and makes the tokenizer; NULL and words when refused. */
static inline tokenizer *tiny_open(const rad_env *env, gguf_builder *b, rad_error *err)
{
    gguf_file *f = NULL;
    tokenizer *t = NULL;
    gguf_builder_end(b, NULL, 0);
    if (gguf_open_memory(NULL, b->bytes, b->len, &f, err) == RAD_OK)
        tokenizer_create(env, f, &t, err);
    gguf_close(f);
    gguf_builder_fini(b);
    return t;
}

#endif
