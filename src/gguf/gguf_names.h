/* gguf_names.h - the names in a table, in order; private to this room. */
#ifndef GGUF_GGUF_NAMES_H
#define GGUF_GGUF_NAMES_H

#include "base/base.h"
#include "gguf/gguf.h"

typedef struct gguf_names {
    const char *base; /* of the table; its entry i has its gguf_str at base + i * stride */
    size_t stride;
    size_t count;
    uint32_t *order; /* [count]: indices into the table, by name */
} gguf_names;

/* `first` is the first entry's name; the table stays where it is. RAD_E_FORMAT: a name is there
 * twice, `what` and the byte of `file` (NULL: they are of several) say which. RAD_E_NOMEM. Either
 * way gguf_names_fini. O(count log count). */
rad_status gguf_names_init(gguf_names *names, const rad_env *env, const gguf_str *first,
                           size_t stride, size_t count, const char *what, const uint8_t *file,
                           rad_error *err);
void gguf_names_fini(gguf_names *names, const rad_env *env);

/* The index of the entry, or -1. O(log count). */
int64_t gguf_names_find(const gguf_names *names, gguf_str name);

#endif
