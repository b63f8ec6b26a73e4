/* gguf_cursor.h - reads a GGUF file's bytes from front to back, and believes none; private to this
 * room.
 *
 * Everything fails with RAD_E_FORMAT, which says what was to be read and at which byte. `what`
 * is for these words. */
#ifndef GGUF_GGUF_CURSOR_H
#define GGUF_GGUF_CURSOR_H

#include "base/base.h"
#include "gguf/gguf.h"

typedef struct gguf_cursor {
    const uint8_t *bytes;
    size_t num_bytes;
    size_t pos; /* of the next byte; at most num_bytes */
    rad_error *err;
} gguf_cursor;

static inline size_t gguf_remaining(const gguf_cursor *c)
{
    return c->num_bytes - c->pos;
}

/* So many are left; moves nothing. */
rad_status gguf_need(const gguf_cursor *c, uint64_t bytes, const char *what);

rad_status gguf_read_u32(gguf_cursor *c, const char *what, uint32_t *out);
rad_status gguf_read_u64(gguf_cursor *c, const char *what, uint64_t *out);
rad_status gguf_read_str(gguf_cursor *c, const char *what, gguf_str *out);

/* Of a value that is neither string nor array; 0 for all others. */
size_t gguf_scalar_bytes(uint32_t type);

/* A key, its type and its value. An array of strings is allocated from `env`: gguf_kv_fini frees
 * it, also after a failure. RAD_E_NOMEM, and RAD_E_UNSUPPORTED for arrays of arrays. */
rad_status gguf_read_kv(gguf_cursor *c, const rad_env *env, gguf_kv *kv);
void gguf_kv_fini(gguf_kv *kv, const rad_env *env);

#endif
