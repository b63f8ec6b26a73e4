/* trace_bytes.h - a stranger's file in memory, plain or gzip-compressed, as far as trace.h allows.
 */
#ifndef REPLAY_TRACE_BYTES_H
#define REPLAY_TRACE_BYTES_H

#include "base/base.h"

typedef struct trace_bytes {
    rad_env env;
    uint8_t *data;
    uint64_t len, cap;
} trace_bytes;

/* Errors: RAD_E_IO, RAD_E_FORMAT, RAD_E_NOMEM, RAD_E_LIMIT (it expands too far) name the path. */
rad_status trace_bytes_read(const rad_env *env, const char *path, trace_bytes *out, rad_error *err);
void trace_bytes_free(trace_bytes *b); /* a zeroed one is fine */

#endif
