/* gguf_file.h - what gguf.c and gguf_split.c fill and gguf_get.c reads; private to this room. */
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

    /* Of the first file of several: the others, which are its own, and whose tensors stand behind
     * its in `tensors`; see gguf_split.c. */
    struct gguf_file **others;
    uint32_t num_others;
};

enum { GGUF_MOST_TENSORS = 1 << 20 };

/* Opens one file, whether it is one of several or not. */
rad_status gguf_open_one(const rad_env *env, const char *path, gguf_file **out, rad_error *err);

/* What the file that was opened as `path` is part of: itself where it is whole, else the first of
 * its parts, with all others opened, checked and joined to it. Takes `file` over, also when it
 * fails. Errors as gguf_open's, with the part's number and name. */
rad_status gguf_join(gguf_file *file, const char *path, gguf_file **out, rad_error *err);

/* "split.count", where it is more than 1; else 0. */
rad_status gguf_split_count(const gguf_file *file, uint32_t *count, rad_error *err);

#endif
