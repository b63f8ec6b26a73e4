/* spm.h - SentencePiece's BPE: merges that follow from the tokens' scores; and the symbols of
 * text, for all vocabularies whose tokens are text (vocab.h).
 * Private to this room. */
#ifndef TEXT_SPM_H
#define TEXT_SPM_H

#include "text/bpe.h"

typedef struct spm {
    uint32_t chars[128];  /* symbols of ASCII characters, or NO_SYMBOL */
    bool words_are_apart; /* no token has a space behind something else */
    bool add_space_prefix;
    bool has_byte_fallback; /* all 256 byte tokens are there */
} spm;

/* After the merges were read: what spm_symbols needs to know. */
void spm_init_symbols(spm *s, const vocab *v);

/* Derives all merges from the tokens and tokenizer.ggml.scores; spm_init_symbols included. */
rad_status spm_init(spm *s, bpe *b, vocab *v, const gguf_file *file, rad_error *err);

/* Writes the symbols of one chunk's characters to `symbols` (room for `len`). What no
 * token has becomes its byte tokens. Returns how many. */
size_t spm_symbols(const spm *s, const vocab *v, const char *text, size_t len, uint32_t *symbols);

/* How many bytes from text[0..len) on can be merged on their own: nothing merges across
 * that place. >= 1 for len >= 1. */
size_t spm_chunk(const spm *s, const char *text, size_t len);

#endif
