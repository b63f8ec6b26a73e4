/* file_log.h - the index of a file store: entries that are only ever appended.
 *
 *     | header, 64 bytes | entry, 64 bytes | entry | entry | ... |
 *
 * Whoever holds the store's writer lock appends; everybody reads what is new since they last
 * looked. An entry's checksum covers its place in the file and the file's generation, so a
 * torn, moved or stale entry is none. When the log is mostly history its state is written to
 * a new file under a temporary name, which then takes the name: readers notice that their
 * file has no name any more and begin again with the new one. */
#ifndef STORAGE_FILE_LOG_H
#define STORAGE_FILE_LOG_H

#include "storage/file_io.h"
#include "storage/file_place.h"
#include "storage/file_table.h"

#define FILE_LOG_NAME "index"

typedef struct file_log {
    const file_io *io;
    int fd; /* -1: none */
    uint64_t generation;
    uint64_t era;     /* stays when the index is rewritten, changes when it is made anew */
    uint64_t end;     /* what was applied ends here */
    uint64_t entries; /* of them */
} file_log;

/* Opens the index in the directory. RAD_NONE: there is none. RAD_E_FORMAT: it is no index.
 * RAD_E_IO in words. Nothing is read yet. */
rad_status file_log_open(file_log *log, const file_io *io, const file_place *place, rad_error *err);
void file_log_close(file_log *log);

/* Applies what is new, up to the end or the first entry that is none. RAD_E_NOMEM, RAD_E_IO.
 * The cost of a look when nothing is new: one read of nothing. */
rad_status file_log_catch_up(file_log *log, file_table *table, rad_error *err);

/* For the holder of the writer lock, after catching up. A piece of an entry at the end is what
 * an append left that was killed: the next one writes over it. RAD_E_CORRUPT: there are whole
 * entries that are none; the good ones after them were applied too. */
rad_status file_log_repair(file_log *log, file_table *table, rad_error *err);

/* The file lost its name: somebody wrote a new one, or the directory is gone. */
bool file_log_is_stale(const file_log *log);

/* Appends entries that the table has already and counts how many are in the file. On failure
 * (RAD_E_IO in words) the table knows more than the file: it must be read anew. */
rad_status file_log_append(file_log *log, file_entry *entries, uint32_t count, rad_error *err);

/* Writes the table's state as a new index that takes the name; `log` then goes on with it.
 * `era`: of the log it replaces, or 0 for another one.
 * RAD_E_IO: the old one stays. `durable`: it also survives a power loss. */
rad_status file_log_rewrite(file_log *log, const file_io *io, const file_place *place,
                            const file_table *table, uint64_t era, bool durable, rad_error *err);

#endif
