/* pretokenize.h - cuts text into the pieces inside which byte-level BPE merges.
 *
 * Immutable after create; many threads may use one, each with its own run.
 * Private to this room. */
#ifndef TEXT_PRETOKENIZE_H
#define TEXT_PRETOKENIZE_H

#include "base/base.h"
#include "gguf/gguf.h"

typedef struct pretokenizer pretokenizer;

/* `name` as in tokenizer.ggml.pre; the table in pretokenize.c and radish(1) have the list.
 * "default" cuts as llama.cpp does where a file names none. RAD_E_UNSUPPORTED names any other. */
rad_status pretokenizer_create(const rad_env *env, gguf_str name, pretokenizer **out,
                               rad_error *err);
void pretokenizer_destroy(pretokenizer *p); /* NULL is fine */

/* From now on without JIT, as on a machine that does not allow it (tests). */
void pretokenizer_interpret(pretokenizer *p);

/* A piece that is a token is taken whole, whatever the merges say. */
bool pretokenizer_ignores_merges(const pretokenizer *p);
bool pretokenizer_wants_bos(const pretokenizer *p);  /* where the file does not say */
bool pretokenizer_needs_bos(const pretokenizer *p);  /* also where the file says no */
bool pretokenizer_normalizes(const pretokenizer *p); /* text becomes NFC first */

/* The tokens are text as it is, spaces as U+2581, and <0xNN> for single bytes (Gemma 4), not
 * bytes written as letters. */
bool pretokenizer_is_raw(const pretokenizer *p);

typedef rad_status (*pretokenize_fn)(void *user, const char *piece, size_t len);

/* Hands text[0..len) to `piece` in pieces, in order, none empty, nothing left out.
 * Stops at the first status that is not RAD_OK and returns it. `match` is a
 * pretokenizer_match, one per thread. Linear in len. */
typedef struct pretokenizer_match pretokenizer_match;
rad_status pretokenizer_match_create(const pretokenizer *p, pretokenizer_match **out);
void pretokenizer_match_destroy(pretokenizer_match *match); /* NULL is fine */
rad_status pretokenize(const pretokenizer *p, pretokenizer_match *match, const char *text,
                       size_t len, pretokenize_fn piece, void *user);

#endif
