/* model_digest.h - a name for a model file's bytes, for clients that want one. */
#ifndef SERVER_MODEL_DIGEST_H
#define SERVER_MODEL_DIGEST_H

enum { MODEL_DIGEST_BYTES = 65 }; /* 64 digits and a NUL */

/* SHA-256 of the file's length, its first and its last mebibyte, and 4 KiB of each 256th of it: so
 * it costs milliseconds, whatever the size, and other metadata, types or weights give another one.
 * All zeros for a file that cannot be read. */
void model_digest(const char *path, char out[MODEL_DIGEST_BYTES]);

#endif
