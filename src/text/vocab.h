/* vocab.h - the tokens of a vocabulary as bytes, and the symbols that merges work on.
 *
 * Tokens are written in one of two ways. Byte-level BPE has a letter for each byte. The others
 * ("text") have the text itself, U+2581 for a space, and <0xNN> for single bytes: SentencePiece,
 * and the BPE of Gemma 4.
 *
 * A symbol is a string of bytes with a number. The symbols 0..num_tokens) are the
 * tokens; behind them come strings that only merges know (halves of tokens that are no
 * tokens themselves), which are spelled out in byte tokens if one survives to the end.
 *
 * Only normal tokens are found by their bytes: text that a user wrote can never
 * become a control token by way of merges. Private to this room. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include "base/hash_key.h"
#include "text/tokenizer.h"

#define NO_SYMBOL UINT32_MAX

typedef enum token_type { /* as in the file */
                          TOKEN_NORMAL = 1,
                          TOKEN_UNKNOWN = 2,
                          TOKEN_CONTROL = 3,
                          TOKEN_USER_DEFINED = 4,
                          TOKEN_UNUSED = 5,
                          TOKEN_BYTE = 6
} token_type;

typedef struct vocab_symbol {
    size_t start; /* in bytes */
    uint32_t len;
} vocab_symbol;

typedef struct vocab_slot {
    uint32_t hash;
    uint32_t symbol_plus_1; /* 0: free */
} vocab_slot;

typedef struct vocab {
    rad_env env;
    bool is_spm;  /* merges follow from scores; else they are listed */
    bool is_text; /* tokens are text (above), not bytes as letters; an SPM's always are */
    uint32_t num_tokens;
    uint32_t num_symbols, cap_symbols;
    vocab_symbol *symbols;
    uint8_t *types; /* token_type, num_tokens of them */
    char *bytes;
    size_t num_bytes, cap_bytes;
    vocab_slot *slots; /* symbols by their bytes; open addressing */
    size_t num_slots;  /* a power of two, or 0 */
    size_t num_used;
    hash_key key;            /* of the slots */
    rad_token byte_ids[256]; /* the token of a single byte, or -1 */
    rad_token unknown;       /* or -1; never a control token */
    bool lacks_bytes;        /* some byte has neither a token nor an unknown token */
    uint32_t longest;        /* bytes of the longest token */
    bool has_types;          /* the file said which tokens are what */
    /* Control and user-defined tokens in the order of their bytes; those that begin
     * with byte b are special[special_first[b]..special_first[b + 1]). */
    rad_token *special;
    uint32_t num_special;
    uint32_t special_first[257];
} vocab;

/* Reads tokens and types; is_spm and is_text are set already, all else of `v` is zeroed.
 * vocab_fini is due also after a failure. */
rad_status vocab_init(vocab *v, const rad_env *env, const gguf_file *file, rad_error *err);
void vocab_fini(vocab *v);

static inline const char *vocab_bytes(const vocab *v, uint32_t symbol)
{
    return v->bytes + v->symbols[symbol].start;
}

/* The symbol with these bytes, or NO_SYMBOL. */
uint32_t vocab_find(const vocab *v, const char *bytes, size_t len);

/* The same; made if there is none. RAD_E_NOMEM, RAD_E_LIMIT. */
rad_status vocab_intern(vocab *v, const char *bytes, size_t len, uint32_t *symbol);

/* The longest control or user-defined token that text[0..len) begins with, or -1.
 * Control tokens only when `control`. O(longest * log(special)). */
rad_token vocab_special_prefix(const vocab *v, const char *text, size_t len, bool control);

/* The control or user-defined token with exactly this text, or -1. */
rad_token vocab_special_find(const vocab *v, const char *text, size_t len);

/* Byte-level BPE writes each byte as a printable character. Undoes this into out (room
 * for `len`), which may be `text` itself. false when the text is not written so. */
bool vocab_unmap_bytes(const char *text, size_t len, char *out, size_t *out_len);

/* U+2581 in bytes[0..len) back to spaces; the new length. */
size_t vocab_unmap_spaces(char *bytes, size_t len);

/* An array grown through an env: *cap to at least `wanted` elements. */
bool vocab_grow(const rad_env *env, void **array, size_t *cap, size_t used, size_t wanted,
                size_t element);

#endif
