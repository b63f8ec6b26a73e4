/* file_io.h - the system calls of the file store, in a table that a test can replace.
 *
 * All of them as their namesakes: -1 and errno on failure. The table is the only way that
 * the store changes anything on disk, so a test that lets the n-th call fail, be short or
 * end the process has tried every fault there is. */
#ifndef STORAGE_FILE_IO_H
#define STORAGE_FILE_IO_H

#include "base/base.h"

#include <sys/types.h>

typedef struct file_io {
    void *user;
    ssize_t (*pread)(void *user, int fd, void *to, size_t bytes, uint64_t offset);
    ssize_t (*pwrite)(void *user, int fd, const void *from, size_t bytes, uint64_t offset);
    int (*sync)(void *user, int fd);
    int (*rename)(void *user, int dir, const char *from, const char *to);
    int (*punch)(void *user, int fd, uint64_t offset, uint64_t bytes);
} file_io;

extern const file_io file_io_real;

/* All of it, through short reads and EINTR: the bytes read, less at the end of the file; -1. */
ssize_t file_read_all(const file_io *io, int fd, void *to, size_t bytes, uint64_t offset);

/* All of it: true; else false with errno (ENOSPC for a write of nothing), and what was
 * written is in *written (may be NULL). */
bool file_write_all(const file_io *io, int fd, const void *from, size_t bytes, uint64_t offset,
                    size_t *written);

/* A read that waits its turn in a batch. */
typedef struct file_read {
    void *to;
    size_t bytes;
    uint64_t offset;
    int fd;
    int error;   /* errno, or 0 */
    ssize_t got; /* bytes, less at the end of the file */
} file_read;

/* Rings for reading many records at once, where the kernel grants io_uring. */
typedef struct file_rings file_rings;

/* NULL where io_uring is not to be had (old kernel, seccomp, no library): reads are then
 * plain. */
file_rings *file_rings_create(const rad_env *env, uint32_t count);
void file_rings_destroy(file_rings *rings); /* NULL is fine */

/* Does all reads; returns when none is under way. `rings` may be NULL. Any thread. */
void file_read_batch(file_rings *rings, const file_io *io, file_read *reads, uint32_t count);

#endif
