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

static uint64_t now_ns(const file_store *s)
{
    return s->env.now_ns(s->env.user);
}

static bool late(const file_store *s, const rad_storage_batch *b)
{
    return b->deadline_ns && now_ns(s) >= b->deadline_ns;
}

static rad_status check_batch(const rad_storage_batch *b, bool records, rad_error *err)
{
    if (!b || (b->count && (!b->keys || (records && !b->records))))
        return rad_fail(err, RAD_E_INVAL, "storage: a batch without keys or records");
    if (records && b->record_bytes < RAD_STORAGE_HEADER_BYTES)
        return rad_fail(err, RAD_E_INVAL, "storage: records of %zu bytes have no room for a header",
                        b->record_bytes);
    if (b->done) memset(b->done, 0, b->count);
    return RAD_OK;
}

static void count_error(file_store *s)
{
    pthread_mutex_lock(&s->state);
    s->stats.errors++;
    pthread_mutex_unlock(&s->state);
}

/* What a failed begin is to the caller: late is no error, and what came is used. */
static rad_status give_up(file_store *s, const rad_storage_batch *b, rad_status status,
                          rad_error *err)
{
    if (status == RAD_AGAIN && late(s, b)) return RAD_OK;
    count_error(s);
    if (status == RAD_AGAIN) {
        if (err) err->status = RAD_E_IO;
        return RAD_E_IO;
    }
    return status;
}

/* Under state. */
static void touch(file_store *s, uint32_t page, uint32_t seconds)
{
    file_page *p = &s->table.pages[page];
    uint32_t at = p->touched - 1u;
    if (at >= s->num_touches || memcmp(&s->touches[at].key, &p->key, sizeof p->key) != 0) {
        at = s->num_touches;
        if (at < FILE_TOUCHES) {
            s->touches[s->num_touches++].key = p->key;
            p->touched = (uint16_t)(at + 1);
        }
    }
    if (at < FILE_TOUCHES) s->touches[at].order = ++s->touch_order;
    file_entry e = {.op = FILE_TOUCH, .key = p->key, .used = seconds};
    (void)file_table_apply(&s->table, &e);
}

static int by_order(const void *a, const void *b)
{
    const file_touch *x = a, *y = b;
    return (x->order > y->order) - (x->order < y->order);
}

/* Under writer and state: tells the index what was used, in the order of the last uses. */
static rad_status write_touches(file_store *s, rad_error *err)
{
    file_entry entries[FILE_TOUCHES];
    uint32_t count = 0;
    qsort(s->touches, s->num_touches, sizeof *s->touches, by_order);
    for (uint32_t i = 0; i < s->num_touches; i++) {
        uint32_t page = file_table_find(&s->table, &s->touches[i].key);
        if (page == FILE_NONE) continue;
        s->table.pages[page].touched = 0;
        entries[count++] = (file_entry){
            .op = FILE_TOUCH, .key = s->touches[i].key, .used = s->table.pages[page].used};
    }
    s->num_touches = 0;
    return file_store_append(s, entries, count, err);
}

/* Takes world for reading and state, with the table up to date; on failure neither. */
static rad_status enter(file_store *s, uint64_t deadline_ns, rad_error *err)
{
    for (int tries = 0; tries < 3; tries++) {
        pthread_rwlock_rdlock(&s->world);
        pthread_mutex_lock(&s->state);
        rad_status status = file_store_refresh(s, err);
        if (!status) return RAD_OK;
        pthread_mutex_unlock(&s->state);
        pthread_rwlock_unlock(&s->world);
        if (status < 0) return status;
        status = file_store_begin(s, deadline_ns, err);
        if (status) return status;
        file_store_end(s);
    }
    return rad_fail(err, RAD_E_IO, "storage: %s: changes again and again", s->dir);
}

static void leave(file_store *s)
{
    pthread_mutex_unlock(&s->state);
    pthread_rwlock_unlock(&s->world);
}

static rad_status file_batch_exists(void *self, const rad_storage_batch *b, uint32_t *present,
                                    rad_error *err)
{
    file_store *s = self;
    *present = 0;
    rad_status status = check_batch(b, false, err);
    if (!status && b->count) {
        status = enter(s, b->deadline_ns, err);
        if (status) return give_up(s, b, status, err);
        uint32_t n = 0;
        while (n < b->count && file_table_find(&s->table, &b->keys[n]) != FILE_NONE)
            n++;
        leave(s);
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
    if (page != FILE_NONE && s->table.pages[page].seq == seq) {
        const file_page p = s->table.pages[page];
        file_entry e = {.op = FILE_DROP, .key = *key};
        file_store_quarantine(s, key, record, bytes);
        (void)file_table_apply(&s->table, &e);
        (void)file_store_append(s, &e, 1, NULL);
        file_store_punch(s, p.class_, p.slot, 1);
        s->stats.quarantined++;
    }
    pthread_mutex_unlock(&s->state);
    file_store_end(s);
}

/* One chunk of a get. *failed gets the errno of a read that the disk refused. */
static rad_status get_chunk(file_store *s, const rad_storage_batch *b, uint32_t from,
                            uint32_t count, uint32_t *came, int *failed, rad_error *err)
{
    file_read reads[FILE_CHUNK];
    uint32_t which[FILE_CHUNK], n = 0, num_bad = 0;
    uint64_t seqs[FILE_CHUNK];
    bool bad[FILE_CHUNK] = {0}, good[FILE_CHUNK] = {0};
    rad_status status = enter(s, b->deadline_ns, err);
    if (status) return status;
    for (uint32_t i = from; i < from + count; i++) {
        uint32_t page = file_table_find(&s->table, &b->keys[i]);
        if (page == FILE_NONE) continue;
        const file_page *p = &s->table.pages[page];
        const file_class *c = &s->table.classes[p->class_];
        int fd = c->record_bytes == b->record_bytes ? file_store_data(s, p->class_) : -1;
        if (fd < 0) continue; /* of another size: not what is asked for, whatever it is */
        reads[n] = (file_read){
            .to = b->records[i], .bytes = b->record_bytes, .offset = p->slot * c->stride, .fd = fd};
        seqs[n] = p->seq;
        which[n++] = i;
    }
    s->stats.gets += count;
    pthread_mutex_unlock(&s->state);
    file_read_batch(s->rings, s->io, reads, n);
    pthread_rwlock_unlock(&s->world);

    for (uint32_t i = 0; i < n; i++) {
        if (reads[i].error)
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
        uint32_t page = file_table_find(&s->table, &b->keys[which[i]]);
        if (page != FILE_NONE) touch(s, page, seconds);
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
    if (tell && !file_store_begin(s, now_ns(s) + 1000000, NULL)) {
        pthread_mutex_lock(&s->state);
        (void)write_touches(s, NULL);
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
    rad_status status = check_batch(b, true, err);
    if (status) return status;
    for (uint32_t from = 0; from < b->count && !late(s, b); from += FILE_CHUNK) {
        uint32_t count = RAD_MIN(b->count - from, (uint32_t)FILE_CHUNK);
        status = get_chunk(s, b, from, count, &came, &failed, err);
        if (status) return give_up(s, b, status, err);
    }
    if (failed && !came)
        return rad_fail(err, RAD_E_IO, "storage: %s: cannot read: %s", s->dir, strerror(failed));
    return RAD_OK;
}

/* What one round of a set has under way. */
typedef struct round {
    uint32_t which[FILE_CHUNK]; /* of the batch */
    uint32_t slots[FILE_CHUNK];
    bool written[FILE_CHUNK];
    bool stored[FILE_CHUNK];
    uint32_t count;
    uint32_t class_;
    uint64_t epoch;
} round;

static void mark_done(const rad_storage_batch *b, uint32_t i)
{
    if (b->done) b->done[i] = 1;
}

/* Under writer and state: the class of these records, told to the index when it is new. */
static rad_status get_class(file_store *s, size_t record_bytes, uint32_t *class_, rad_error *err)
{
    *class_ = file_table_class(&s->table, record_bytes);
    for (uint16_t i = 0; i < FILE_CLASSES && *class_ == FILE_NONE; i++) {
        if (s->table.classes[i].record_bytes) continue;
        file_entry e = {.op = FILE_CLASS, .class_ = i, .record_bytes = record_bytes};
        rad_status status = file_table_apply(&s->table, &e);
        if (!status) status = file_store_append(s, &e, 1, err);
        if (status)
            return rad_fail(err, status, "storage: %s: no class for records of %zu bytes", s->dir,
                            record_bytes);
        *class_ = i;
    }
    if (*class_ == FILE_NONE)
        return rad_fail(err, RAD_E_LIMIT, "storage: %s: %d record sizes are all it can have",
                        s->dir, FILE_CLASSES);
    if (file_store_data(s, *class_) < 0)
        return rad_fail(err, RAD_E_IO, "storage: %s: a data file: %s", s->dir, strerror(errno));
    return RAD_OK;
}

/* Under writer and state: takes slots for records *next.. of the batch, as many as a round
 * has and the budget gives. RAD_FULL: not one. */
static rad_status take_slots(file_store *s, const rad_storage_batch *b, uint32_t *next, round *r,
                             rad_error *err)
{
    file_entry entries[FILE_CHUNK];
    uint32_t seconds = file_store_seconds();
    rad_status status = get_class(s, b->record_bytes, &r->class_, err);
    if (!status) status = write_touches(s, err);
    if (!status && s->leaked && !s->rounds) {
        status = file_store_release(s, true, err);
        s->leaked = status != RAD_OK;
    }
    for (; !status && *next < b->count && r->count < FILE_CHUNK; *next += 1) {
        uint32_t page = file_table_find(&s->table, &b->keys[*next]);
        if (page != FILE_NONE) {
            touch(s, page, seconds);
            mark_done(b, *next);
            continue;
        }
        uint64_t stride = s->table.classes[r->class_].stride;
        status = file_store_make_room(s, stride, s->params.max_bytes, r->class_, err);
        if (status) break;
        uint32_t slot = file_table_free_slot(&s->table, r->class_);
        file_entry e = {
            .op = FILE_TAKE, .class_ = (uint16_t)r->class_, .slot = slot, .owner = s->owner};
        if (file_table_apply(&s->table, &e)) {
            status = rad_fail(err, RAD_E_NOMEM, "storage: no memory for a slot");
            break;
        }
        entries[r->count] = e;
        r->slots[r->count] = slot;
        r->which[r->count++] = *next;
    }
    r->epoch = s->epoch;
    if (r->count && status >= 0 && !s->reload) {
        rad_status told = file_store_append(s, entries, r->count, err);
        if (told) status = told;
    }
    if (status == RAD_FULL && r->count) status = RAD_OK; /* the rest in the next round */
    if (status < 0)
        s->reload = s->leaked = true; /* what was taken and not told is free again */
    else
        s->rounds += r->count > 0;
    return status;
}

/* Writes the records of a round; returns the errno of one that could not be. */
static int write_records(file_store *s, const rad_storage_batch *b, round *r)
{
    int failed = 0;
    pthread_rwlock_rdlock(&s->world);
    pthread_mutex_lock(&s->state);
    int fd = s->epoch == r->epoch ? s->data_fd[r->class_] : -1;
    pthread_mutex_unlock(&s->state);
    uint64_t stride = file_stride(b->record_bytes);
    for (uint32_t i = 0; fd >= 0 && i < r->count && !failed; i++) {
        if (i && late(s, b)) break;
        r->written[i] = file_write_all(s->io, fd, b->records[r->which[i]], b->record_bytes,
                                       r->slots[i] * stride, NULL);
        if (!r->written[i]) failed = errno;
    }
    if (fd >= 0 && s->params.fsync == RAD_FSYNC_ALWAYS &&
        (s->io->sync(s->io->user, fd) || s->io->sync(s->io->user, s->dir_fd))) {
        failed = errno;
        memset(r->written, 0, sizeof r->written);
    }
    pthread_rwlock_unlock(&s->world);
    return failed;
}

/* Under writer and state: what was written becomes pages, the other slots go back. */
static rad_status publish(file_store *s, const rad_storage_batch *b, round *r, rad_error *err)
{
    file_entry entries[FILE_CHUNK];
    uint32_t count = 0, seconds = file_store_seconds(), fresh = 0;
    if (s->epoch != r->epoch)
        return rad_fail(err, RAD_E_IO, "storage: %s: was replaced meanwhile", s->dir);
    for (uint32_t i = 0; i < r->count; i++) {
        const rad_storage_key *key = &b->keys[r->which[i]];
        const file_class *c = &s->table.classes[r->class_];
        if (r->slots[i] >= c->num_slots || c->slots[r->slots[i]] != FILE_SLOT_TAKEN + s->owner)
            continue; /* the index was made anew and does not know of us */
        bool there = file_table_find(&s->table, key) != FILE_NONE; /* another was faster */
        r->stored[i] = there || r->written[i];
        file_entry e = {.op = !there && r->written[i] ? FILE_PUT : FILE_RELEASE,
                        .class_ = (uint16_t)r->class_,
                        .slot = r->slots[i],
                        .owner = s->owner,
                        .seq = s->table.max_seq + 1,
                        .made = seconds,
                        .used = seconds};
        if (e.op == FILE_PUT) e.key = *key;
        if (file_table_apply(&s->table, &e)) {
            s->reload = s->leaked = true;
            return rad_fail(err, RAD_E_NOMEM, "storage: no memory for a page");
        }
        fresh += e.op == FILE_PUT;
        entries[count++] = e;
    }
    rad_status status = file_store_append(s, entries, count, err);
    if (status)
        s->leaked = true;
    else
        s->stats.sets += fresh;
    return status;
}

/* Index entries of a round, on the disk. Others may write meanwhile; when the index is
 * written anew, that syncs what we wait for as well. */
static rad_status sync_index(file_store *s, int fd, rad_error *err)
{
    rad_status status = RAD_OK;
    if (fd < 0 || s->io->sync(s->io->user, fd))
        status = rad_fail(err, RAD_E_IO, "storage: %s: cannot sync the index: %s", s->dir,
                          strerror(errno));
    if (fd >= 0) close(fd);
    return status;
}

/* One round: RAD_OK when it went on, RAD_FULL, or an error. */
static rad_status set_round(file_store *s, const rad_storage_batch *b, uint32_t *next,
                            rad_error *err)
{
    round r = {0};
    bool always = s->params.fsync == RAD_FSYNC_ALWAYS;
    rad_status status = file_store_begin(s, b->deadline_ns, err);
    if (status) return status;
    pthread_mutex_lock(&s->state);
    if (now_ns(s) < s->full_ns)
        status = rad_fail(err, RAD_E_IO, "storage: %s: could not be written a moment ago", s->dir);
    else
        status = take_slots(s, b, next, &r, err);
    pthread_mutex_unlock(&s->state);
    file_store_end(s);
    if (status || !r.count) return status;

    int failed = write_records(s, b, &r);
    status = file_store_begin(s, 0, err); /* the slots must go back, late or not */
    bool begun = !status;
    int index = -1;
    pthread_mutex_lock(&s->state);
    s->rounds--;
    if (status)
        s->leaked = true;
    else
        status = publish(s, b, &r, err);
    if (!status && always) index = fcntl(s->log.fd, F_DUPFD_CLOEXEC, 0);
    if (failed) s->full_ns = now_ns(s) + 500000000u;
    pthread_mutex_unlock(&s->state);
    if (begun) file_store_end(s);
    if (!status && always) status = sync_index(s, index, err);
    for (uint32_t i = 0; !status && i < r.count; i++)
        if (r.stored[i]) mark_done(b, r.which[i]);
    if (!status && failed)
        status = rad_fail(err, RAD_E_IO, "storage: %s: cannot write: %s", s->dir, strerror(failed));
    return status == RAD_AGAIN ? RAD_E_IO : status;
}

/* Most of a set is often there already, and then needs no lock. */
static rad_status mark_present(file_store *s, const rad_storage_batch *b, uint32_t *next,
                               rad_error *err)
{
    rad_status status = enter(s, b->deadline_ns, err);
    if (status) return status;
    uint32_t seconds = file_store_seconds(), page;
    while (*next < b->count && (page = file_table_find(&s->table, &b->keys[*next])) != FILE_NONE) {
        touch(s, page, seconds);
        mark_done(b, *next);
        *next += 1;
    }
    leave(s);
    return RAD_OK;
}

static rad_status file_batch_set(void *self, const rad_storage_batch *b, rad_error *err)
{
    file_store *s = self;
    rad_status status = check_batch(b, true, err);
    if (status) return status;
    uint32_t next = 0;
    status = mark_present(s, b, &next, err);
    while (!status && next < b->count && !late(s, b))
        status = set_round(s, b, &next, err);
    if (status == RAD_FULL) return RAD_FULL;
    return status ? give_up(s, b, status, err) : RAD_OK;
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
    status = write_touches(s, err);
    int index = fcntl(s->log.fd, F_DUPFD_CLOEXEC, 0);
    pthread_mutex_unlock(&s->state);
    file_store_end(s);
    /* Data first: an index that is ahead of its data names pages that are not there. */
    int failed = 0;
    pthread_rwlock_rdlock(&s->world);
    for (int i = 0; i < FILE_CLASSES && s->params.fsync != RAD_FSYNC_NEVER; i++) {
        pthread_mutex_lock(&s->state);
        int fd = s->data_fd[i];
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
    return sync_index(s, index, err);
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
        if (s->data_fd[i] >= 0) close(s->data_fd[i]);
    if (s->lock_fd >= 0) close(s->lock_fd);
    if (s->dir_fd >= 0) close(s->dir_fd);
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

static const rad_storage_ops ops = {
    .struct_size = sizeof ops,
    .name = "file",
    .batch_exists = file_batch_exists,
    .batch_get = file_batch_get,
    .batch_set = file_batch_set,
    .remove = file_remove,
    .clear = file_clear,
    .flush = file_flush,
    .get_stats = file_get_stats,
    .close = file_close,
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
    return RAD_OK;
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
    char *dir = rad_alloc(&env, dir_bytes);
    if (!s || !dir) {
        rad_free(&env, s, sizeof *s);
        rad_free(&env, dir, dir_bytes);
        return rad_fail(err, RAD_E_NOMEM, "storage_file: no memory");
    }
    s->env = env;
    s->params = p;
    s->io = io;
    s->dir = memcpy(dir, p.dir, dir_bytes);
    s->dir_bytes = dir_bytes;
    s->params.dir = dir;
    s->log.fd = s->dir_fd = s->lock_fd = -1;
    memset(s->data_fd, -1, sizeof s->data_fd);
    pthread_mutex_init(&s->writer, NULL);
    pthread_mutex_init(&s->state, NULL);
    pthread_rwlockattr_t attr; /* a world that must be reopened does not wait for ever */
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&s->world, &attr);
    pthread_rwlockattr_destroy(&attr);
    file_table_init(&s->table, &s->env);
    if (!p.no_uring) s->rings = file_rings_create(&s->env, p.threads);

    status = file_store_begin(s, 0, err);
    if (!status) {
        pthread_mutex_lock(&s->state);
        status = file_store_make_room(s, 0, p.max_bytes, FILE_NONE, err);
        if (status == RAD_FULL) status = RAD_OK; /* others write more than we want to keep */
        pthread_mutex_unlock(&s->state);
        file_store_end(s);
    } else if (status == RAD_AGAIN)
        status = rad_fail(err, RAD_E_IO, "storage: %s: another process holds the lock", p.dir);
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
    *out = status ? (rad_storage){0} : (rad_storage){.ops = &ops, .self = s};
    return status;
}
