/* storage_file.c - pages in a directory: slots in a few big files, and an index that is a log.
 *
 * A file per page would be the simplest store that a crash cannot hurt. Measured on ext4, with
 * records of 16 KiB / 128 KiB / 1.8 MiB: put 0.2 / 0.15 / 1.1 GB/s and get 2.5 / 12 / 20 GB/s,
 * where slots of one file that exists give 6-10 / 14 / 16 and 14-19 / 24 / 24: making,
 * renaming and opening files is most of the work. So records of one size share a file, and
 * what makes that safe is the index. A database library (LMDB) as index was ruled out: it
 * follows the pointers of a damaged file, its writers wait for each other without a
 * deadline, and a test cannot fail its writes. The index is an append-only log of entries
 * with checksums (file_log.h), which every process replays into a table (file_table.h).
 *
 * A set of one record:
 *
 *     lock   DROP the pages used longest ago, TAKE a slot       unlock
 *     write the record into the slot (fsync=always: and sync)
 *     lock   PUT key -> slot (fsync=always: sync the index)     unlock, acknowledge
 *
 * So a page enters the index after its bytes are complete, and leaves it before they change.
 * Killed anywhere in between, the slot was only TAKEN, by a number that nobody holds any more.
 * Readers lock nothing that others wait for: they look a slot up, read it, and verify; when
 * it was given to another page meanwhile, the key betrays it and the page is a miss.
 *
 * Invariant: what is handed out has just been verified under the key that was asked for. */
#define _GNU_SOURCE
#include "storage/file_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/params.h"

enum { READ_BYTES = 1 << 20 };

static rad_status file_batch_exists(void *self, const rad_storage_batch *b, uint32_t *present,
                                    rad_error *err)
{
    file_store *s = self;
    *present = 0;
    rad_status status = file_check_batch(b, false, err);
    if (!status && b->count) {
        status = file_enter(s, b->deadline_ns, err);
        if (status) return file_give_up(s, b, status, err);
        uint32_t n = 0;
        while (n < b->count && file_table_find(&s->table, &b->keys[n]) != FILE_NONE)
            n++;
        file_leave(s);
        *present = n;
    }
    return status;
}

/* A record that did not verify: unless the slot was given to another page meanwhile, its
 * page goes, and its bytes are kept aside. */
static void put_away(file_store *s, const rad_storage_key *key, uint64_t seq, const void *record,
                     size_t bytes, uint64_t deadline_ns)
{
    if (file_store_begin(s, deadline_ns, NULL)) return; /* it will be found bad again */
    pthread_mutex_lock(&s->state);
    uint32_t page = file_table_find(&s->table, key);
    if (page != FILE_NONE && s->table.pages[page].seq == seq)
        file_store_put_away(s, page, record, bytes);
    pthread_mutex_unlock(&s->state);
    file_store_end(s);
}

/* One chunk of a get. *failed gets the errno of a read that the disk refused.
 *
 * The locks of file_store.h, in turn: world and state to look slots up; world alone while the disk
 * reads; none while records are verified; state again to count. Between the two times of `state`
 * writers may change everything, so nothing that was looked up is believed the second time. */
static rad_status get_chunk(file_store *s, const rad_storage_batch *b, uint32_t from,
                            uint32_t count, uint32_t *came, int *failed, rad_error *err)
{
    file_read reads[FILE_CHUNK];
    uint32_t which[FILE_CHUNK], n = 0, num_bad = 0;
    uint64_t seqs[FILE_CHUNK];
    bool bad[FILE_CHUNK] = {0}, good[FILE_CHUNK] = {0};
    rad_status status = file_enter(s, b->deadline_ns, err);
    if (status) return status;
    for (uint32_t i = from; i < from + count; i++) { /* a miss leaves no gap in reads[] */
        uint32_t page = file_table_find(&s->table, &b->keys[i]);
        if (page == FILE_NONE) continue;
        const file_page *p = &s->table.pages[page];
        const file_class *c = &s->table.classes[p->class_];
        int fd = c->record_bytes == b->record_bytes ? file_store_data(s, b->record_bytes) : -1;
        if (fd < 0) continue; /* of another size: not what is asked for, whatever it is */
        reads[n] = (file_read){
            .to = b->records[i], .bytes = b->record_bytes, .offset = p->slot * c->stride, .fd = fd};
        seqs[n] = p->seq; /* tells put_away whether it is still this page's record */
        which[n++] = i;
    }
    s->stats.gets += count;
    pthread_mutex_unlock(&s->state);
    file_read_batch(s->rings, s->io, reads, n); /* under `world`, so that no descriptor is closed */
    pthread_rwlock_unlock(&s->world);

    for (uint32_t i = 0; i < n; i++) {
        if (reads[i].error) /* the disk failed; the record may be good, so it is not put away */
            *failed = reads[i].error;
        else
            good[i] = reads[i].got == (ssize_t)b->record_bytes &&
                      !rad_storage_verify(reads[i].to, b->record_bytes, &b->keys[which[i]], NULL,
                                          NULL, NULL);
        bad[i] = !good[i] && !reads[i].error;
        num_bad += bad[i];
    }
    uint32_t seconds = file_store_seconds();
    pthread_mutex_lock(&s->state);
    for (uint32_t i = 0; i < n; i++) {
        if (reads[i].error) s->stats.errors++;
        if (!good[i]) continue;
        /* Looked up anew, since it may have been evicted; what was read is good all the same. */
        uint32_t page = file_table_find(&s->table, &b->keys[which[i]]);
        if (page != FILE_NONE) file_touch_page(s, page, seconds);
        if (b->done) b->done[which[i]] = 1;
        s->stats.hits++;
        *came += 1;
    }
    bool tell = s->num_touches == FILE_TOUCHES;
    pthread_mutex_unlock(&s->state);
    for (uint32_t i = 0; num_bad && i < n; i++)
        if (bad[i])
            put_away(s, &b->keys[which[i]], seqs[i], reads[i].to, (size_t)reads[i].got,
                     b->deadline_ns);
    /* The list of touches is full. A get waits 1 ms at most for the writer lock to append them:
     * when somebody else has it, only the order of use is a little older. */
    if (tell && !file_store_begin(s, file_now(s) + 1000000, NULL)) {
        pthread_mutex_lock(&s->state);
        (void)file_write_touches(s, NULL);
        pthread_mutex_unlock(&s->state);
        file_store_end(s);
    }
    return RAD_OK;
}

static rad_status file_batch_get(void *self, const rad_storage_batch *b, rad_error *err)
{
    file_store *s = self;
    uint32_t came = 0;
    int failed = 0;
    rad_status status = file_check_batch(b, true, err);
    if (status) return status;
    /* As many at once as a CPU's own cache holds, so that verifying finds them there. */
    uint32_t most = (uint32_t)RAD_MIN(RAD_MAX(READ_BYTES / b->record_bytes, 2), FILE_CHUNK);
    for (uint32_t from = 0; from < b->count && !file_late(s, b); from += most) {
        uint32_t count = RAD_MIN(b->count - from, most);
        status = get_chunk(s, b, from, count, &came, &failed, err);
        if (status) return file_give_up(s, b, status, err);
    }
    if (failed && !came)
        return rad_fail(err, RAD_E_IO, "storage: %s: cannot read: %s", s->dir, strerror(failed));
    return RAD_OK;
}

static rad_status file_remove(void *self, const rad_storage_key *key, rad_error *err)
{
    file_store *s = self;
    rad_status status = file_store_begin(s, 0, err);
    if (status) return status == RAD_AGAIN ? RAD_E_IO : status;
    pthread_mutex_lock(&s->state);
    uint32_t page = file_table_find(&s->table, key);
    if (page != FILE_NONE) {
        const file_page p = s->table.pages[page];
        file_entry e = {.op = FILE_DROP, .key = *key};
        (void)file_table_apply(&s->table, &e);
        status = file_store_append(s, &e, 1, err);
        if (!status) file_store_punch(s, p.class_, p.slot, 1);
    }
    pthread_mutex_unlock(&s->state);
    file_store_end(s);
    return status;
}

static rad_status file_clear(void *self, rad_error *err)
{
    file_store *s = self;
    rad_status status = file_store_begin(s, 0, err);
    if (status) return status == RAD_AGAIN ? RAD_E_IO : status;
    pthread_mutex_lock(&s->state);
    file_entry e = {.op = FILE_CLEAR};
    (void)file_table_apply(&s->table, &e);
    status = file_store_append(s, &e, 1, err);
    for (uint32_t i = 0; !status && i < FILE_CLASSES; i++) {
        const file_class *c = &s->table.classes[i];
        for (uint32_t slot = 0, run; slot < c->num_slots; slot += RAD_MAX(run, 1u)) {
            for (run = 0; slot + run < c->num_slots && c->slots[slot + run] == FILE_SLOT_FREE;)
                run++;
            if (run) file_store_punch(s, i, slot, run);
        }
    }
    s->num_touches = 0;
    pthread_mutex_unlock(&s->state);
    file_store_end(s);
    return status;
}

static rad_status file_flush(void *self, rad_error *err)
{
    file_store *s = self;
    rad_status status = file_store_begin(s, 0, err);
    if (status) return status == RAD_AGAIN ? RAD_E_IO : status;
    pthread_mutex_lock(&s->state);
    status = file_write_touches(s, err);
    int index = fcntl(s->log.fd, F_DUPFD_CLOEXEC, 0);
    pthread_mutex_unlock(&s->state);
    file_store_end(s);
    /* Data first: an index that is ahead of its data names pages that are not there. */
    int failed = 0;
    pthread_rwlock_rdlock(&s->world);
    for (int i = 0; i < FILE_CLASSES && s->params.fsync != RAD_FSYNC_NEVER; i++) {
        pthread_mutex_lock(&s->state);
        int fd = s->data[i].fd;
        pthread_mutex_unlock(&s->state);
        if (fd >= 0 && s->io->sync(s->io->user, fd)) failed = errno;
    }
    pthread_rwlock_unlock(&s->world);
    if (failed && !status)
        status = rad_fail(err, RAD_E_IO, "storage: %s: cannot sync: %s", s->dir, strerror(failed));
    if (status || s->params.fsync == RAD_FSYNC_NEVER) {
        if (index >= 0) close(index);
        return status;
    }
    return file_sync_index(s, index, err);
}

static void file_get_stats(void *self, rad_storage_stats *out)
{
    file_store *s = self;
    pthread_mutex_lock(&s->state);
    *out = s->stats;
    out->pages = s->table.num_pages;
    out->bytes = s->table.bytes;
    out->max_bytes = s->params.max_bytes;
    pthread_mutex_unlock(&s->state);
}

void file_store_close(file_store *s)
{
    file_log_close(&s->log);
    for (int i = 0; i < FILE_CLASSES; i++)
        if (s->data[i].fd >= 0) close(s->data[i].fd);
    if (s->lock_fd >= 0) close(s->lock_fd);
    file_place_close(&s->place);
    file_table_reset(&s->table);
    file_rings_destroy(s->rings);
    pthread_mutex_destroy(&s->writer);
    pthread_rwlock_destroy(&s->world);
    pthread_mutex_destroy(&s->state);
    rad_env env = s->env;
    rad_free(&env, s->dir, s->dir_bytes);
    rad_free(&env, s, sizeof *s);
}

static void file_close(void *self)
{
    (void)file_flush(self, NULL);
    file_store_close(self);
}

const rad_storage_ops file_store_ops = {
    .struct_size = sizeof file_store_ops,
    .name = "file",
    .batch_exists = file_batch_exists,
    .batch_get = file_batch_get,
    .batch_set = file_batch_set,
    .remove = file_remove,
    .clear = file_clear,
    .flush = file_flush,
    .get_stats = file_get_stats,
    .close = file_close,
    .medium = RAD_STORAGE_DISK,
};

static rad_status read_params(rad_storage_file_params *p, const rad_storage_file_params *given,
                              rad_error *err)
{
    rad_status status = rad_params_read(p, sizeof *p, given, "storage_file", err);
    if (status) return status;
    if (!p->dir || !*p->dir) return rad_fail(err, RAD_E_INVAL, "storage_file: which directory?");
    if (p->fsync > RAD_FSYNC_ALWAYS)
        return rad_fail(err, RAD_E_INVAL, "storage_file: there is no fsync mode %u", p->fsync);
    if (p->threads > 64)
        return rad_fail(err, RAD_E_INVAL, "storage_file: %u threads, at most 64", p->threads);
    if (!p->max_bytes) p->max_bytes = 8ull << 30;
    if (!p->threads) p->threads = 4;
    if (!p->lock_timeout_ms) p->lock_timeout_ms = 5000;
    if (!p->mode) p->mode = 0600;
    if (p->mode != FILE_MODE_AS_FOUND && !file_place_mode_is_good(p->mode))
        return rad_fail(err, RAD_E_INVAL, "storage_file: mode %04o: 0600, 0640 or 0660", p->mode);
    return RAD_OK;
}

/* A world that must be reopened does not wait for ever: with glibc a waiting writer goes before new
 * readers. Other C libraries have no such attribute; there it waits for a moment without readers,
 * who hold the lock for one batch each. */
static void init_world(pthread_rwlock_t *world)
{
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
#ifdef __GLIBC__
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
    pthread_rwlock_init(world, &attr);
    pthread_rwlockattr_destroy(&attr);
}

rad_status file_store_open(const rad_env *env_or_null, const rad_storage_file_params *given,
                           const file_io *io, file_store **out, rad_error *err)
{
    rad_env env = rad_env_or_default(env_or_null);
    rad_storage_file_params p;
    *out = NULL;
    rad_status status = read_params(&p, given, err);
    if (status) return status;
    file_store *s = rad_alloc(&env, sizeof *s);
    size_t dir_bytes = strlen(p.dir) + 1;
    while (dir_bytes > 2 && p.dir[dir_bytes - 2] == '/')
        dir_bytes--; /* behind a slash the kernel follows a link, O_NOFOLLOW or not */
    char *dir = rad_alloc(&env, dir_bytes);
    if (!s || !dir) {
        rad_free(&env, s, sizeof *s);
        rad_free(&env, dir, dir_bytes);
        return rad_fail(err, RAD_E_NOMEM, "storage_file: no memory");
    }
    s->env = env;
    s->params = p;
    s->io = io;
    s->dir = memcpy(dir, p.dir, dir_bytes - 1);
    s->dir[dir_bytes - 1] = 0;
    s->dir_bytes = dir_bytes;
    s->params.dir = dir;
    s->log.fd = s->place.dir = s->lock_fd = -1;
    for (int i = 0; i < FILE_CLASSES; i++)
        s->data[i].fd = -1;
    pthread_mutex_init(&s->writer, NULL);
    pthread_mutex_init(&s->state, NULL);
    init_world(&s->world);
    file_table_init(&s->table, &s->env);
    s->table.records = file_store_records;
    s->table.user = s;
    if (!p.no_uring) s->rings = file_rings_create(&s->env, p.threads);

    rad_error why = {0};
    status = file_store_begin(s, 0, &why);
    if (!status) {
        pthread_mutex_lock(&s->state);
        file_news news = {.count = 0};
        status = file_store_make_room(s, 0, p.max_bytes, FILE_NONE, &news, err);
        if (status >= 0 && file_store_tell(s, &news, err)) status = RAD_E_IO;
        if (status == RAD_FULL) status = RAD_OK; /* others write more than we want to keep */
        pthread_mutex_unlock(&s->state);
        file_store_end(s);
    } else if (status == RAD_AGAIN) {
        rad_log(&s->env, RAD_LOG_WARN, "%s; its pages are misses until that has ended", why.text);
        s->stats.down = 1;
        status = RAD_OK;
    } else
        status = rad_fail(err, status, "%s", why.text);
    if (status) {
        file_store_close(s);
        return status;
    }
    *out = s;
    return RAD_OK;
}

rad_status rad_storage_file_open(const rad_env *env, const rad_storage_file_params *params,
                                 rad_storage *out, rad_error *err)
{
    file_store *s;
    rad_status status = file_store_open(env, params, &file_io_real, &s, err);
    *out = status ? (rad_storage){0} : (rad_storage){.ops = &file_store_ops, .self = s};
    return status;
}
