/* file_store.h - the inside of the file backend, shared by its files and by
 * `radish inspect store`.
 *
 *     storage_file.c   the backend's table; get, exists, remove, clear
 *     file_set.c       set
 *     file_call.c      what every call begins and ends with
 *     file_world.c     descriptors, and who may change the store (file_lock.c)
 *     file_table.c     key -> slot in memory: the sum of the index (file_log.c)
 *     file_rebuild.c   an index that is lost, a page that is bad
 *     file_place.c     opens directories and files; file_io.c: the system calls
 *     file_inspect.c   `radish inspect store`
 *
 * Locks, in the order they are taken:
 *
 *     writer   one thread of this process at a time may hold the lock of the store's `lock`
 *              file, which in turn one process at a time holds. Index changes.
 *     world    read by who uses file descriptors, written by who closes and reopens them all
 *     state    the table, the log's position, the figures. Held for microseconds; no record
 *              is read or written under it */
#ifndef STORAGE_FILE_STORE_H
#define STORAGE_FILE_STORE_H

#include <radish/storage_file.h>

#include "storage/file_io.h"
#include "storage/file_lock.h"
#include "storage/file_log.h"
#include "storage/file_place.h"
#include "storage/file_table.h"

#include <pthread.h>

enum {
    FILE_OWNERS = 200,    /* backends on one directory */
    FILE_CHUNK = 32,      /* records between two looks at the clock */
    FILE_TOUCHES = 256,   /* uses remembered until the index is told */
    FILE_QUARANTINED = 32 /* bad records kept to be looked at */
};

/* A use that the index was not told of yet. A page's `touched` is its place + 1. */
typedef struct file_touch {
    rad_storage_key key;
    uint64_t order;
} file_touch;

typedef struct file_store {
    rad_env env;
    rad_storage_file_params params;
    const file_io *io;
    char *dir;
    size_t dir_bytes;
    file_rings *rings;

    pthread_mutex_t writer;
    pthread_rwlock_t world;
    pthread_mutex_t state;

    /* The world: all -1 while the directory is out of reach. */
    file_place place;
    int lock_fd;
    struct {
        int fd;
        uint64_t record_bytes;
    } data[FILE_CLASSES]; /* in the order of opening */
    uint64_t era;
    uint64_t epoch;    /* grows when slots that were taken are not ours any more */
    uint8_t owner;     /* our place among the backends on this directory; 0: none yet */
    uint64_t retry_ns; /* do not try to open before */
    uint64_t full_ns;  /* do not try to write before */

    file_log log;
    file_table table;
    bool reload;     /* the table does not go with the log any more */
    bool leaked;     /* slots may be ours in the index that no round knows of */
    uint32_t rounds; /* of sets that have slots now */
    file_touch touches[FILE_TOUCHES];
    uint32_t num_touches;
    uint64_t touch_order;
    rad_storage_stats stats;
} file_store;

/* As rad_storage_file_open, with the system calls of a test. */
rad_status file_store_open(const rad_env *env, const rad_storage_file_params *params,
                           const file_io *io, file_store **out, rad_error *err);
void file_store_close(file_store *s);

/* file_world.c */

/* Becomes the one who may change the store: opens the world where necessary, brings the table
 * up to date. RAD_AGAIN in words: the deadline (0: lock_timeout_ms from now) came first.
 * RAD_E_IO: the store is out of reach. On RAD_OK file_store_end must follow. */
rad_status file_store_begin(file_store *s, uint64_t deadline_ns, rad_error *err);
void file_store_end(file_store *s);

/* Under state: brings the table up to date for reading. RAD_AGAIN: only file_store_begin can. */
rad_status file_store_refresh(file_store *s, rad_error *err);

/* Under writer and state: appends entries the table has, and rewrites an index that is mostly
 * history. On failure the table will be read anew. */
rad_status file_store_append(file_store *s, file_entry *entries, uint32_t count, rad_error *err);

/* Under writer and state: slots that the dead were writing are free again, and with `ours`
 * those in our own name too. */
rad_status file_store_release(file_store *s, bool ours, rad_error *err);

/* Whole records that the data file for this size has room for: what an index may name. */
uint64_t file_store_records(void *store, uint64_t record_bytes);

/* Under state: the data file for records of this size, opened on first use; -1 with errno. */
int file_store_data(file_store *s, uint64_t record_bytes);

/* Under writer and state: gives places that nobody needs back to the file system. */
void file_store_punch(file_store *s, uint32_t class_, uint32_t slot, uint32_t count);

/* Entries that the table has, on their way to the index. */
typedef struct file_news {
    file_entry entries[128];
    uint32_t count;
} file_news;

/* Under writer and state: appends what was gathered; or adds one entry, appending when full. */
rad_status file_store_tell(file_store *s, file_news *news, rad_error *err);
rad_status file_store_add(file_store *s, file_news *news, const file_entry *e, rad_error *err);

/* Under writer and state: gives up the pages used longest ago until `bytes` more fit below
 * max_bytes, and adds that to the news. Slots of class `keep` are not punched: they are about
 * to be written again. RAD_FULL: there is nothing more to give up. */
rad_status file_store_make_room(file_store *s, uint64_t bytes, uint64_t max_bytes, uint32_t keep,
                                file_news *news, rad_error *err);

/* file_rebuild.c */

/* Under writer and state: adds every page that the data files' headers name and the table does
 * not have. O(pages) small reads. */
rad_status file_store_scan(file_store *s, rad_error *err);

/* Under writer and state: a page whose record is bad is dropped, and its bytes are kept in
 * quarantine/, if they can be. */
void file_store_put_away(file_store *s, uint32_t page, const void *record, size_t bytes);

/* file_call.c */

uint64_t file_now(const file_store *s);
bool file_late(const file_store *s, const rad_storage_batch *b); /* its deadline passed */

/* RAD_E_INVAL in words; else nothing is done yet. `records`: it must have some. */
rad_status file_check_batch(const rad_storage_batch *b, bool records, rad_error *err);

/* What a failed begin or enter is to the caller: RAD_OK when the batch is late, since that is
 * no error and what came is used; else negative, and counted. */
rad_status file_give_up(file_store *s, const rad_storage_batch *b, rad_status status,
                        rad_error *err);

/* Takes world for reading and state, with the table up to date; on failure neither. */
rad_status file_enter(file_store *s, uint64_t deadline_ns, rad_error *err);
void file_leave(file_store *s);

/* Under state: a page was used. */
void file_touch_page(file_store *s, uint32_t page, uint32_t seconds);

/* Under writer and state: tells the index what was used, in the order of the last uses. */
rad_status file_write_touches(file_store *s, rad_error *err);

/* Syncs and closes a descriptor of the index; others may write meanwhile. When the index is
 * written anew, that syncs what we wait for as well. */
rad_status file_sync_index(file_store *s, int fd, rad_error *err);

/* file_set.c */
rad_status file_batch_set(void *self, const rad_storage_batch *b, rad_error *err);

/* storage_file.c */
extern const rad_storage_ops file_store_ops;

uint32_t file_store_seconds(void); /* since 1970 */

#endif
