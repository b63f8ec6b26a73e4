/* file_set.c - storing records, round by round; the order of writes is explained at the top of
 * storage_file.c.
 *
 * A round is what goes between two looks at the clock: it takes as many slots as it has
 * places and the budget gives, so a budget smaller than a batch is no obstacle. */
#define _GNU_SOURCE
#include "storage/file_store.h"

#include <errno.h>
#include <fcntl.h>

enum { GRACE_NS = 50 * 1000 * 1000 };

static void mark_done(const rad_storage_batch *b, uint32_t i)
{
    if (b->done) b->done[i] = 1;
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
    if (file_store_data(s, record_bytes) < 0)
        return rad_fail(err, RAD_E_IO, "storage: %s: a data file: %s", s->dir,
                        file_place_why(errno));
    return RAD_OK;
}

/* Under writer and state: takes slots for records *next.. of the batch, as many as a round
 * has and the budget gives. RAD_FULL: not one. */
static rad_status take_slots(file_store *s, const rad_storage_batch *b, uint32_t *next, round *r,
                             rad_error *err)
{
    file_news news = {.count = 0};
    uint32_t seconds = file_store_seconds();
    rad_status status = get_class(s, b->record_bytes, &r->class_, err);
    if (!status) status = file_write_touches(s, err);
    if (!status && s->leaked && !s->rounds) {
        status = file_store_release(s, true, err);
        s->leaked = status != RAD_OK;
    }
    for (; !status && *next < b->count && r->count < FILE_CHUNK; *next += 1) {
        uint32_t page = file_table_find(&s->table, &b->keys[*next]);
        if (page != FILE_NONE) {
            file_touch_page(s, page, seconds);
            mark_done(b, *next);
            continue;
        }
        uint64_t stride = s->table.classes[r->class_].stride;
        status = file_store_make_room(s, stride, s->params.max_bytes, r->class_, &news, err);
        if (status) break;
        uint32_t slot = file_table_free_slot(&s->table, r->class_);
        file_entry e = {
            .op = FILE_TAKE, .class_ = (uint16_t)r->class_, .slot = slot, .owner = s->owner};
        if (file_table_apply(&s->table, &e)) {
            status = rad_fail(err, RAD_E_NOMEM, "storage: no memory for a slot");
            break;
        }
        r->slots[r->count] = slot;
        r->which[r->count++] = *next;
        status = file_store_add(s, &news, &e, err);
    }
    r->epoch = s->epoch;
    if (status >= 0 && !s->reload) {
        rad_status told = file_store_tell(s, &news, err);
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
    int fd = s->epoch == r->epoch ? file_store_data(s, b->record_bytes) : -1;
    pthread_mutex_unlock(&s->state);
    uint64_t stride = file_stride(b->record_bytes);
    for (uint32_t i = 0; fd >= 0 && i < r->count && !failed; i++) {
        if (i && file_late(s, b)) break;
        r->written[i] = file_write_all(s->io, fd, b->records[r->which[i]], b->record_bytes,
                                       r->slots[i] * stride, NULL);
        if (!r->written[i]) failed = errno;
    }
    if (fd >= 0 && s->params.fsync == RAD_FSYNC_ALWAYS &&
        (s->io->sync(s->io->user, fd) || s->io->sync(s->io->user, s->place.dir))) {
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
    if (s->epoch != r->epoch) {
        s->leaked = true;
        return rad_fail(err, RAD_E_IO, "storage: %s: was replaced meanwhile", s->dir);
    }
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

/* One round: RAD_OK when it went on, RAD_FULL, or an error. */
static rad_status set_round(file_store *s, const rad_storage_batch *b, uint32_t *next,
                            rad_error *err)
{
    round r = {0};
    bool always = s->params.fsync == RAD_FSYNC_ALWAYS;
    rad_status status = file_store_begin(s, b->deadline_ns, err);
    if (status) return status;
    pthread_mutex_lock(&s->state);
    if (file_now(s) < s->full_ns)
        status = rad_fail(err, RAD_E_IO, "storage: %s: could not be written a moment ago", s->dir);
    else
        status = take_slots(s, b, next, &r, err);
    pthread_mutex_unlock(&s->state);
    file_store_end(s);
    if (status || !r.count) return status;

    int failed = write_records(s, b, &r);
    /* Late or not, the slots should go back; where another process sits on the lock, a later
     * round gives them back. */
    uint64_t until = b->deadline_ns ? RAD_MAX(b->deadline_ns, file_now(s) + GRACE_NS) : 0;
    status = file_store_begin(s, until, err);
    bool begun = !status;
    int index = -1;
    pthread_mutex_lock(&s->state);
    s->rounds--;
    if (status)
        s->leaked = true;
    else
        status = publish(s, b, &r, err);
    if (!status && always) index = fcntl(s->log.fd, F_DUPFD_CLOEXEC, 0);
    if (failed) s->full_ns = file_now(s) + 500000000u;
    pthread_mutex_unlock(&s->state);
    if (begun) file_store_end(s);
    if (!status && always) status = file_sync_index(s, index, err);
    for (uint32_t i = 0; !status && i < r.count; i++)
        if (r.stored[i]) mark_done(b, r.which[i]);
    if (!status && failed)
        status = rad_fail(err, RAD_E_IO, "storage: %s: cannot write: %s", s->dir, strerror(failed));
    return status;
}

/* Most of a set is often there already, and then needs no lock. */
static rad_status mark_present(file_store *s, const rad_storage_batch *b, uint32_t *next,
                               rad_error *err)
{
    rad_status status = file_enter(s, b->deadline_ns, err);
    if (status) return status;
    uint32_t seconds = file_store_seconds(), page;
    while (*next < b->count && (page = file_table_find(&s->table, &b->keys[*next])) != FILE_NONE) {
        file_touch_page(s, page, seconds);
        mark_done(b, *next);
        *next += 1;
    }
    file_leave(s);
    return RAD_OK;
}

rad_status file_batch_set(void *self, const rad_storage_batch *b, rad_error *err)
{
    file_store *s = self;
    rad_status status = file_check_batch(b, true, err);
    if (status) return status;
    uint32_t next = 0;
    status = mark_present(s, b, &next, err);
    while (!status && next < b->count && !file_late(s, b))
        status = set_round(s, b, &next, err);
    if (status == RAD_FULL) return RAD_FULL;
    return status ? file_give_up(s, b, status, err) : RAD_OK;
}
