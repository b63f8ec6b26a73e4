/* detokenize.h - token ids to text as they come, whole UTF-8 characters only.
 *
 * Bytes of an unfinished character are held back until the rest arrives; bytes
 * that can never become one are replaced by U+FFFD, as decoding all at once would.
 * So the concatenation of all deltas equals the decoding of the whole. SPM's dummy
 * space in front of the first word is dropped when `at_start`. */
#ifndef TEXT_DETOKENIZE_H
#define TEXT_DETOKENIZE_H

#include "text/tokenizer.h"

typedef struct detokenizer {
    const tokenizer *tok;
    unsigned char held[8]; /* an unfinished character */
    uint8_t num_held;
    bool at_start;
    bool skip_special; /* control tokens give no text */
    const rad_token *keep_ids;
    uint32_t num_keep_ids;
} detokenizer;

void detokenizer_init(detokenizer *d, const tokenizer *tok, bool at_start, bool skip_special);

/* These control tokens give their text all the same; not copied. */
void detokenizer_keep(detokenizer *d, const rad_token *ids, uint32_t count);

/* A growable text, NUL-terminated when not NULL. */
typedef struct text_buf {
    char *data;
    size_t len;
    size_t cap;
} text_buf;
void text_buf_fini(text_buf *buf);
rad_status text_buf_append(text_buf *buf, const char *bytes, size_t len);

/* Appends what this token adds. */
rad_status detokenizer_push(detokenizer *d, rad_token id, text_buf *out);

/* The end: an unfinished character becomes U+FFFD. */
rad_status detokenizer_finish(detokenizer *d, text_buf *out);

#endif
