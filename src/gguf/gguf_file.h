/* gguf_file.h - what gguf.c fills and gguf_get.c reads; private to this room. */
#ifndef GGUF_GGUF_FILE_H
#define GGUF_GGUF_FILE_H

#include <sys/stat.h>
#include <time.h>

#include "gguf/gguf_names.h"

/* What tells whether a file is still as it was. */
typedef struct gguf_stamp {
    uint64_t bytes, links;
    struct timespec mtime, ctime;
} gguf_stamp;

gguf_stamp gguf_stamp_of(const struct stat *st);

struct gguf_file {
    rad_env env;
    const uint8_t *bytes;
    size_t num_bytes;
    bool mapped; /* ours to unmap; then `fd` is open, too */
    int fd;
    gguf_stamp stamp; /* before the first byte was read */
    uint32_t version;
    uint32_t alignment;
    uint64_t num_kvs;
    uint64_t num_tensors;
    gguf_kv *kvs;         /* in the order of the file */
    gguf_tensor *tensors; /* likewise */
    gguf_names keys;
    gguf_names tensor_names;
};

#endif
