/* gguf_file.h - what gguf.c fills and gguf_get.c reads; private to this room. */
#ifndef GGUF_GGUF_FILE_H
#define GGUF_GGUF_FILE_H

#include "base/base.h"
#include "gguf/gguf.h"

struct gguf_file {
    rad_env env;
    const uint8_t *bytes;
    size_t num_bytes;
    bool mapped; /* ours to unmap */
    uint32_t version;
    uint32_t alignment;
    uint64_t num_kvs;
    uint64_t num_tensors;
    gguf_kv *kvs;              /* in the order of the file */
    gguf_tensor *tensors;      /* likewise */
    uint32_t *kvs_by_key;      /* indices into kvs, sorted by key */
    uint32_t *tensors_by_name; /* indices into tensors, sorted by name */
};

/* memcmp order, a prefix before what it begins. */
int gguf_str_compare(gguf_str a, gguf_str b);

#endif
