/* gguf_builder.h - GGUF files made in memory, by tests and fuzz targets.
 *
 *     gguf_builder b;
 *     gguf_builder_init(&b, 3);
 *     gguf_put_kv_str(&b, "general.architecture", "llama");
 *     gguf_put_tensor(&b, "x", GGML_F32, 1, (uint64_t[]){8}, 0);
 *     gguf_builder_end(&b, data, data_bytes); // b.bytes, b.len
 *     gguf_builder_fini(&b);
 *
 * Keys first, then tensors. The counts in the header follow by themselves. Nothing is
 * checked: a builder can lie. Running out of memory ends the program. */
#ifndef TESTS_GGUF_BUILDER_H
#define TESTS_GGUF_BUILDER_H

#include "gguf/gguf.h"
#include <stdlib.h>
#include <string.h>

typedef struct gguf_builder {
    uint8_t *bytes;
    size_t len, cap;
    uint64_t num_kvs, num_tensors;
    uint32_t alignment;
} gguf_builder;

static inline void gguf_put(gguf_builder *b, const void *bytes, size_t len)
{
    if (b->len + len > b->cap) {
        b->cap = (b->len + len) * 2 + 64;
        b->bytes = realloc(b->bytes, b->cap);
        if (!b->bytes) abort();
    }
    if (len) memcpy(b->bytes + b->len, bytes, len);
    b->len += len;
}

static inline void gguf_put_u32(gguf_builder *b, uint32_t v)
{
    gguf_put(b, &v, sizeof v);
}
static inline void gguf_put_u64(gguf_builder *b, uint64_t v)
{
    gguf_put(b, &v, sizeof v);
}

static inline void gguf_put_strn(gguf_builder *b, const char *s, size_t len)
{
    gguf_put_u64(b, len);
    gguf_put(b, s, len);
}

static inline void gguf_put_str(gguf_builder *b, const char *s)
{
    gguf_put_strn(b, s, strlen(s));
}

static inline void gguf_builder_init(gguf_builder *b, uint32_t version)
{
    *b = (gguf_builder){.alignment = 32};
    gguf_put(b, "GGUF", 4);
    gguf_put_u32(b, version);
    gguf_put_u64(b, 0);
    gguf_put_u64(b, 0);
}

static inline void gguf_put_key(gguf_builder *b, const char *key, uint32_t type)
{
    gguf_put_str(b, key);
    gguf_put_u32(b, type);
    b->num_kvs++;
}

static inline void gguf_put_kv_u32(gguf_builder *b, const char *key, uint32_t v)
{
    gguf_put_key(b, key, GGUF_U32);
    gguf_put_u32(b, v);
}

static inline void gguf_put_kv_bool(gguf_builder *b, const char *key, bool v)
{
    gguf_put_key(b, key, GGUF_BOOL);
    gguf_put(b, &(uint8_t){v}, 1);
}

static inline void gguf_put_kv_str(gguf_builder *b, const char *key, const char *v)
{
    gguf_put_key(b, key, GGUF_STR);
    gguf_put_str(b, v);
}

/* Elements follow by gguf_put*. */
static inline void gguf_put_kv_arr(gguf_builder *b, const char *key, uint32_t type, uint64_t count)
{
    gguf_put_key(b, key, GGUF_ARR);
    gguf_put_u32(b, type);
    gguf_put_u64(b, count);
}

static inline void gguf_put_tensor(gguf_builder *b, const char *name, uint32_t type,
                                   uint32_t num_dims, const uint64_t *dims, uint64_t offset)
{
    gguf_put_str(b, name);
    gguf_put_u32(b, num_dims);
    for (uint32_t i = 0; i < num_dims; i++)
        gguf_put_u64(b, dims[i]);
    gguf_put_u32(b, type);
    gguf_put_u64(b, offset);
    b->num_tensors++;
}

static inline void gguf_builder_end(gguf_builder *b, const void *data, size_t data_bytes)
{
    memcpy(b->bytes + 8, &b->num_tensors, 8);
    memcpy(b->bytes + 16, &b->num_kvs, 8);
    if (b->num_tensors)
        while (b->len % b->alignment)
            gguf_put(b, "", 1);
    gguf_put(b, data, data_bytes);
}

static inline void gguf_builder_fini(gguf_builder *b)
{
    free(b->bytes);
    *b = (gguf_builder){0};
}

#endif
