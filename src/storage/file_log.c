/* file_log.c - appending, catching up and rewriting; see file_log.h.
 *
 * Numbers are in the machine's order: an index is a cache of what the pages' own headers
 * say, and on another machine it is not recognised and built again from them. */
#define _GNU_SOURCE
#include "storage/file_log.h"

#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/mix64.h"

enum { CHUNK = 256 }; /* entries read or written at once */

typedef struct header {
    char magic[8];
    uint64_t generation, era;
    uint64_t zero[4];
    uint64_t sum;
} header;
static_assert(sizeof(header) == FILE_ENTRY_BYTES, "");

static const char magic[8] = {'R', 'A', 'D', 'I', 'D', 'X', '1', '\n'};

static uint64_t sum_of(const file_log *log, const file_entry *e, uint64_t offset)
{
    return XXH3_64bits_withSeed((const char *)e + sizeof e->sum, sizeof *e - sizeof e->sum,
                                log->generation ^ mix64(offset));
}

static rad_status io_failed(rad_error *err, const char *what)
{
    return rad_fail(err, RAD_E_IO, "storage: %s: %s", what, strerror(errno));
}

rad_status file_log_open(file_log *log, const file_io *io, const file_place *place, rad_error *err)
{
    *log = (file_log){.io = io, .fd = -1};
    int fd = file_place_file(place, place->dir, FILE_LOG_NAME, O_RDWR);
    if (fd < 0 && errno == ENOENT) return RAD_NONE;
    if (fd < 0)
        return rad_fail(err, RAD_E_IO, "storage: cannot open the index: %s", file_place_why(errno));
    header h;
    ssize_t got = file_read_all(io, fd, &h, sizeof h, 0);
    rad_status status = RAD_OK;
    if (got < 0)
        status = io_failed(err, "cannot read the index");
    else if (got < (ssize_t)sizeof h || memcmp(h.magic, magic, sizeof magic) != 0 ||
             h.sum != XXH3_64bits(&h, sizeof h - sizeof h.sum))
        status = rad_fail(err, RAD_E_FORMAT, "storage: the index is damaged");
    if (status) {
        close(fd);
        return status;
    }
    log->fd = fd;
    log->generation = h.generation;
    log->era = h.era;
    log->end = sizeof h;
    return RAD_OK;
}

void file_log_close(file_log *log)
{
    if (log->fd >= 0) close(log->fd);
    log->fd = -1;
}

static rad_status apply(file_log *log, file_table *table, const file_entry *e, rad_error *err)
{
    if (file_table_apply(table, e) == RAD_E_NOMEM) /* one that makes no sense is passed over */
        return rad_fail(err, RAD_E_NOMEM, "storage: no memory for an index of %u pages",
                        table->num_pages);
    log->entries++;
    return RAD_OK;
}

rad_status file_log_catch_up(file_log *log, file_table *table, rad_error *err)
{
    file_entry chunk[CHUNK];
    for (;;) {
        ssize_t got = file_read_all(log->io, log->fd, chunk, sizeof chunk, log->end);
        if (got < 0) return io_failed(err, "cannot read the index");
        size_t count = (size_t)got / sizeof *chunk, i = 0;
        for (; i < count && chunk[i].sum == sum_of(log, &chunk[i], log->end); i++) {
            rad_status status = apply(log, table, &chunk[i], err);
            if (status) return status;
            log->end += sizeof *chunk;
        }
        if (i < CHUNK) return RAD_OK;
    }
}

rad_status file_log_repair(file_log *log, file_table *table, rad_error *err)
{
    struct stat st;
    if (fstat(log->fd, &st)) return io_failed(err, "cannot look at the index");
    if ((uint64_t)st.st_size == log->end) return RAD_OK;
    uint64_t whole = 0, at = log->end;
    file_entry chunk[CHUNK];
    for (ssize_t got; (got = file_read_all(log->io, log->fd, chunk, sizeof chunk, at)) > 0;) {
        size_t count = (size_t)got / sizeof *chunk;
        for (size_t i = 0; i < count; i++, at += sizeof *chunk) {
            whole++;
            if (chunk[i].sum != sum_of(log, &chunk[i], at)) continue;
            rad_status status = apply(log, table, &chunk[i], err);
            if (status) return status;
        }
        if (count < CHUNK) break;
    }
    if (whole || (uint64_t)st.st_size < log->end)
        return rad_fail(err, RAD_E_CORRUPT, "storage: the index is damaged");
    return RAD_OK;
}

bool file_log_is_stale(const file_log *log)
{
    struct stat st;
    return log->fd < 0 || fstat(log->fd, &st) || st.st_nlink == 0;
}

rad_status file_log_append(file_log *log, file_entry *entries, uint32_t count, rad_error *err)
{
    for (uint32_t i = 0; i < count; i++)
        entries[i].sum = sum_of(log, &entries[i], log->end + (uint64_t)i * sizeof *entries);
    if (!file_write_all(log->io, log->fd, entries, count * sizeof *entries, log->end, NULL))
        return io_failed(err, "cannot write the index");
    log->end += (uint64_t)count * sizeof *entries;
    log->entries += count;
    return RAD_OK;
}

/* Entries gathered and written CHUNK at a time. */
typedef struct writer {
    file_log log;
    file_entry chunk[CHUNK];
    uint32_t count;
    rad_status status;
    rad_error *err;
} writer;

static void write_chunk(writer *w)
{
    if (!w->status) w->status = file_log_append(&w->log, w->chunk, w->count, w->err);
    w->count = 0;
}

static void write_entry(writer *w, file_entry e)
{
    w->chunk[w->count++] = e;
    if (w->count == CHUNK) write_chunk(w);
}

static void write_state(writer *w, const file_table *t)
{
    for (uint16_t i = 0; i < FILE_CLASSES; i++) {
        const file_class *c = &t->classes[i];
        if (!c->record_bytes) continue;
        write_entry(w, (file_entry){.op = FILE_CLASS,
                                    .class_ = i,
                                    .slot = c->num_slots,
                                    .seq = t->max_seq,
                                    .record_bytes = c->record_bytes});
        for (uint32_t slot = 0; slot < c->num_slots; slot++)
            if (c->slots[slot] != FILE_SLOT_FREE && c->slots[slot] >= FILE_SLOT_TAKEN)
                write_entry(w, (file_entry){.op = FILE_TAKE,
                                            .class_ = i,
                                            .slot = slot,
                                            .owner = (uint8_t)(c->slots[slot] - FILE_SLOT_TAKEN)});
    }
    for (uint32_t p = t->oldest; p != FILE_NONE; p = t->pages[p].newer)
        write_entry(w, (file_entry){.op = FILE_PUT,
                                    .class_ = t->pages[p].class_,
                                    .slot = t->pages[p].slot,
                                    .seq = t->pages[p].seq,
                                    .made = t->pages[p].made,
                                    .used = t->pages[p].used,
                                    .key = t->pages[p].key});
    if (w->count) write_chunk(w);
}

rad_status file_log_rewrite(file_log *log, const file_io *io, const file_place *place,
                            const file_table *table, uint64_t era, bool durable, rad_error *err)
{
    static const char temporary[] = FILE_LOG_NAME ".new";
    writer w = {.err = err};
    w.log = (file_log){.io = io, .end = sizeof(header)};
    const int dir = place->dir;
    w.log.fd = file_place_file(place, dir, temporary, O_RDWR | O_CREAT | O_TRUNC);
    if (w.log.fd < 0)
        return rad_fail(err, RAD_E_IO, "storage: cannot make a new index: %s",
                        file_place_why(errno));
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    w.log.generation = mix64((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) ^
                       mix64(log->generation);
    w.log.era = era ? era : w.log.generation;
    header h = {.generation = w.log.generation, .era = w.log.era};
    memcpy(h.magic, magic, sizeof magic);
    h.sum = XXH3_64bits(&h, sizeof h - sizeof h.sum);
    if (!file_write_all(io, w.log.fd, &h, sizeof h, 0, NULL))
        w.status = io_failed(err, "cannot write a new index");
    if (!w.status) write_state(&w, table);
    if (!w.status && durable && io->sync(io->user, w.log.fd))
        w.status = io_failed(err, "cannot sync a new index");
    if (!w.status && io->rename(io->user, dir, temporary, FILE_LOG_NAME))
        w.status = io_failed(err, "cannot rename a new index");
    if (w.status) {
        close(w.log.fd);
        unlinkat(dir, temporary, 0); /* its room may be what is missing */
        return w.status;
    }
    if (durable) (void)io->sync(io->user, dir);
    file_log_close(log);
    *log = w.log;
    return RAD_OK;
}
