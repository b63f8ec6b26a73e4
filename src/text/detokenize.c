/* detokenize.c - a UTF-8 decoder that is fed a token at a time.
 *
 * A byte-level token may end in the middle of a character, so the bytes of an unfinished
 * one wait in `held`:
 *
 *     token "..\xe2\x82"   -> ".."           held: e2 82
 *     token "\xac!"        -> "\xe2\x82\xac!"  held: -
 *
 * Each call decodes held + new bytes as far as whole characters (or whole mistakes) go.
 * utf8_next finds the same characters whatever the bytes are cut into, because a cut
 * prefix is held and not judged; so the deltas join to what one decoding would give.
 *
 * Invariant: `held` is a proper prefix of some character, so at most 3 bytes. */
#include "text/detokenize.h"

#include "base/base.h"
#include "base/utf8.h"

#include <stdlib.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

void text_buf_fini(text_buf *buf)
{
    free(buf->data);
    *buf = (text_buf){0};
}

/* Room for `more` bytes and a NUL. */
static rad_status text_buf_reserve(text_buf *buf, size_t more)
{
    if (more >= SIZE_MAX / 4 - buf->len) return RAD_E_NOMEM;
    size_t wanted = buf->len + more + 1;
    if (wanted <= buf->cap) return RAD_OK;
    size_t cap = RAD_MAX(wanted, buf->cap * 2);
    char *data = realloc(buf->data, cap);
    if (!data) return RAD_E_NOMEM;
    buf->data = data;
    buf->cap = cap;
    return RAD_OK;
}

rad_status text_buf_append(text_buf *buf, const char *bytes, size_t len)
{
    rad_status status = text_buf_reserve(buf, len);
    if (status) return status;
    if (len) memcpy(buf->data + buf->len, bytes, len);
    buf->len += len;
    buf->data[buf->len] = 0;
    return RAD_OK;
}

void detokenizer_init(detokenizer *d, const tokenizer *tok, bool at_start, bool skip_special)
{
    *d = (detokenizer){.tok = tok, .at_start = at_start, .skip_special = skip_special};
}

void detokenizer_keep(detokenizer *d, const rad_token *ids, uint32_t count)
{
    d->keep_ids = ids;
    d->num_keep_ids = count;
}

static bool keeps(const detokenizer *d, rad_token id)
{
    bool kept = !d->skip_special;
    for (uint32_t i = 0; i < d->num_keep_ids && !kept; i++)
        kept = d->keep_ids[i] == id;
    return kept;
}

rad_status detokenizer_push(detokenizer *d, rad_token id, text_buf *out)
{
    char bytes[sizeof d->held + TOKENIZER_MAX_PIECE];
    memcpy(bytes, d->held, d->num_held);
    char *piece = bytes + d->num_held;
    size_t len = tokenizer_piece(d->tok, id, keeps(d, id), piece, TOKENIZER_MAX_PIECE);
    if (!len) return RAD_OK;
    /* Reserved for the worst case, so that failing leaves everything as it was. */
    rad_status status = text_buf_reserve(out, 3 * (len + d->num_held));
    if (status) return status;
    if (d->at_start && !tokenizer_is_control(d->tok, id)) {
        d->at_start = false;
        if (piece[0] == ' ' && tokenizer_adds_space(d->tok)) memmove(piece, piece + 1, --len);
    }
    len += d->num_held;
    d->num_held = 0;
    for (size_t i = 0; i < len;) {
        utf8_char c = utf8_next((const unsigned char *)bytes + i, len - i);
        if (c.cut) { /* to the end: only there can more bytes follow */
            memcpy(d->held, bytes + i, c.len);
            d->num_held = c.len;
        } else if (c.valid) {
            text_buf_append(out, bytes + i, c.len);
        } else {
            text_buf_append(out, replacement, 3);
        }
        i += c.len;
    }
    return RAD_OK;
}

rad_status detokenizer_finish(detokenizer *d, text_buf *out)
{
    if (!d->num_held) return RAD_OK;
    rad_status status = text_buf_append(out, replacement, 3);
    if (!status) d->num_held = 0;
    return status;
}
