/* tokenizer.h - text to token ids and back, from the vocabulary in a GGUF file.
 *
 * Three models: byte-level BPE ("gpt2", with the pre-tokenizers of pretokenize.c),
 * SentencePiece-style BPE with scores and byte fallback ("llama"), and BPE with listed merges
 * over text as it is, with byte fallback ("gemma4"). Immutable after create; encode may be
 * called from several threads, each with its own buffers, if the env's alloc may.
 *
 * Encoding loses nothing, with three exceptions: some families normalize to NFC (qwen2), the
 * last two models read U+2581 as a space, and a byte that byte-level BPE has no token for
 * becomes U+FFFD (Falcon's control characters; in many vocabularies what is in no UTF-8).
 *
 * Known turn markers (<|im_start|>, <|eot_id|>, ...; markers.c) are control tokens whatever type
 * the file gives them. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "gguf/gguf.h"
#include <radish/types.h>

typedef struct tokenizer tokenizer;

/* Works on files without tensors too. The file may be closed afterwards. */
rad_status tokenizer_create(const rad_env *env, const gguf_file *file, tokenizer **out,
                            rad_error *err);
void tokenizer_destroy(tokenizer *t); /* NULL is fine */

uint32_t tokenizer_vocab_size(const tokenizer *t);
rad_token tokenizer_bos(const tokenizer *t); /* -1: none */
rad_token tokenizer_eos(const tokenizer *t); /* -1: none */
bool tokenizer_add_bos(const tokenizer *t);
bool tokenizer_adds_space(const tokenizer *t); /* SPM: a dummy space in front of a text */

/* Ends a generation: eos, eot and eom of the file, and the markers that are known by name
 * (<|im_end|>, <turn|>, <|return|>, ...; markers.c) that it has as control tokens. */
bool tokenizer_is_eog(const tokenizer *t, rad_token id);
bool tokenizer_is_control(const tokenizer *t, rad_token id);

/* The id whose text is exactly `text` (a special token by name), or -1. */
rad_token tokenizer_find(const tokenizer *t, const char *text, size_t len);

/* The control token that text[0..len) begins with (the longest one), or -1; *taken: its bytes. */
rad_token tokenizer_control_at(const tokenizer *t, const char *text, size_t len, size_t *taken);

typedef enum tokenizer_flags {
    TOKENIZER_PARSE_SPECIAL = 1, /* control tokens written in the text become their ids */
    TOKENIZER_ADD_BOS = 2,       /* put BOS first when the vocabulary asks for it */
    TOKENIZER_NO_PREFIX = 4,     /* SPM: no dummy space in front (text continues something) */
    TOKENIZER_ADD_EOS = 8        /* put EOS last when the vocabulary asks for it */
} tokenizer_flags;

/* A growable array of ids, freed by its owner with token_buf_fini. */
typedef struct token_buf {
    rad_token *ids;
    uint32_t len;
    uint32_t cap;
} token_buf;
void token_buf_fini(token_buf *buf);
rad_status token_buf_push(token_buf *buf, rad_token id);

/* Appends the ids of text[0..len) to `out`. Any bytes are accepted (bytes that are
 * not UTF-8 go through byte tokens). Linear in len. RAD_E_LIMIT when more than
 * max_tokens (0 = no limit) would come out; RAD_E_NOMEM. */
rad_status tokenizer_encode(const tokenizer *t, const char *text, size_t len, unsigned flags,
                            uint32_t max_tokens, token_buf *out, rad_error *err);

/* The bytes of one token (not NUL-terminated), "" for control tokens unless
 * `special`. Returns the length; writes at most `room` bytes. At most
 * TOKENIZER_MAX_PIECE bytes for any token of any accepted vocabulary. */
enum { TOKENIZER_MAX_PIECE = 1024 };
size_t tokenizer_piece(const tokenizer *t, rad_token id, bool special, char *bytes, size_t room);

#endif
