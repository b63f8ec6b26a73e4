/* gguf_source.h - which bytes a model was loaded from, for those who file things under them.
 *
 * A path says little: the file behind it may be replaced while it is read. So the source keeps the
 * very file that gguf_open opened, and the digest is of its bytes:
 *
 *     gguf_open -> gguf_source_create -> (digest) -> load -> gguf_source_check -> ... -> digest
 *
 * Somebody else may still write into the open file. That changes its times, which are compared with
 * those that it had when it was opened; where times cannot tell (they changed for another reason,
 * or the file was written so shortly before that a clock's tick does not separate the two), the
 * bytes are read again and decide.
 *
 * Of a model in several files the source keeps each, and one that changed is enough. */
#ifndef GGUF_GGUF_SOURCE_H
#define GGUF_GGUF_SOURCE_H

#include "gguf/gguf.h"

enum { GGUF_DIGEST_BYTES = 48 };

typedef struct gguf_source gguf_source;

/* Before anything is loaded from the file. It needs the file no longer afterwards; `digest_now`
 * reads all of it at once, else that waits for the first gguf_source_digest. RAD_E_INVAL: the file
 * is of gguf_open_memory; RAD_E_NOMEM, RAD_E_IO. */
rad_status gguf_source_create(const rad_env *env, const gguf_file *file, bool digest_now,
                              gguf_source **out, rad_error *err);
void gguf_source_destroy(gguf_source *s); /* NULL is fine */

/* After the load: RAD_E_IO in words when the bytes may not be those that the file was opened with.
 * Reads the file only where its times do not tell. */
rad_status gguf_source_check(gguf_source *s, rad_error *err);

/* "xxh3-128:" and 32 digits: of all bytes of all its files, which are those that were loaded; valid
 * as long as the source. The first call reads the whole file. RAD_E_IO in words: it cannot be read,
 * or was changed meanwhile. One thread at a time, as the others. */
rad_status gguf_source_digest(gguf_source *s, const char **digest, rad_error *err);

#endif
