/* storage_file.h - a storage backend in a directory.
 *
 * The directory holds an index and one data file per record size; see the top of
 * src/storage/storage_file.c. What is in it:
 *
 *     index               which page is where, in the order of use
 *     pages-16512.data    the records of 16512 bytes
 *     quarantine/         records that were found bad (the last 32 of them)
 *     lock                held while the index is changed
 *
 * Any number of processes (at most 200 at a time), and any number of backends in one
 * process, may use a directory; pages of different models may lie in one. It must be on a
 * file system of this machine, or on one whose fcntl locks and caches work like it.
 *
 * What a set has acknowledged survives kill -9, and with RAD_FSYNC_ALWAYS a power loss,
 * until the budget evicts it (rad_storage_stats.evicted). Every record is verified when it is
 * read; a bad one goes to quarantine and is a miss. An index that is lost or damaged is made
 * again from the records' headers. A full or read-only disk, or a directory that goes away,
 * is an error in words and a miss, until it is well again. So is a lock that somebody else holds:
 * it is logged and waited for, lock_timeout_ms a call.
 *
 * Who can write into the directory can forge pages. A directory that is made has mode 0700 and its
 * files 0600, whatever the umask; one that is there must belong to this user or root and not be
 * writable for others. Nothing is opened through a symbolic link, and only plain files of this user
 * (or root, or with mode 0660 of the directory's group) are used. What an index claims is held
 * against the size of the data files, so that a few bytes of it cost no memory.
 *
 * Memory: about 80 bytes per page of the directory, twice that while a table grows.
 *
 * Link radish-storage for it, besides radish. */
#ifndef RADISH_STORAGE_FILE_H
#define RADISH_STORAGE_FILE_H

#include <radish/storage.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RAD_FSYNC_DEFAULT = 0, /* on flush and close; the kernel writes back when it likes */
    RAD_FSYNC_NEVER = 1,
    RAD_FSYNC_ALWAYS = 2 /* before a set acknowledges */
};

typedef struct rad_storage_file_params {
    size_t struct_size;       /* sizeof(rad_storage_file_params) */
    const char *dir;          /* made when it is not there, its parents are not */
    uint64_t max_bytes;       /* of all records in the directory, those least recently used
                               * make room; 0: 8 GiB */
    uint32_t fsync;           /* RAD_FSYNC_DEFAULT, _NEVER, _ALWAYS */
    uint32_t threads;         /* callers that read at a time; 0: 4. Each has an io_uring
                               * (where granted) for reading a batch at once */
    uint32_t lock_timeout_ms; /* longest wait for another process; 0: 5000 */
    uint32_t no_uring;        /* 1: plain reads */
    uint32_t mode;            /* of files: 0600, 0640 (a group may read them) or 0660 (a group's
                               * users share the store); 0: 0600 */
    uint32_t reserved;        /* 0 */
} rad_storage_file_params;

/* Opens the store: reads the index (64 bytes per page, a million pages in less than a second), or
 * makes it again when it is damaged or missing (one small read per page).
 *
 * The env's functions are called from every thread that calls the backend; alloc and free
 * from one at a time. RAD_E_IO in words: the directory cannot be made, read or written.
 * RAD_E_INVAL, RAD_E_NOMEM; RAD_E_LIMIT: 200 backends use the directory. */
RAD_API rad_status rad_storage_file_open(const rad_env *env, const rad_storage_file_params *params,
                                         rad_storage *out, rad_error *err);

#ifdef __cplusplus
}
#endif
#endif
