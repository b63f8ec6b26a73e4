/* file_call.c - what every call on a file store does: looks at its batch and the clock, gets an
 * up to date table, and remembers what was used. */
#define _GNU_SOURCE
#include "storage/file_store.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

uint64_t file_now(const file_store *s)
{
    return s->env.now_ns(s->env.user);
}

bool file_late(const file_store *s, const rad_storage_batch *b)
{
    return b->deadline_ns && file_now(s) >= b->deadline_ns;
}

rad_status file_check_batch(const rad_storage_batch *b, bool records, rad_error *err)
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

rad_status file_give_up(file_store *s, const rad_storage_batch *b, rad_status status,
                        rad_error *err)
{
    if (status == RAD_AGAIN && file_late(s, b)) return RAD_OK;
    count_error(s);
    if (status == RAD_AGAIN) {
        if (err) err->status = RAD_E_IO;
        return RAD_E_IO;
    }
    return status;
}

void file_touch_page(file_store *s, uint32_t page, uint32_t seconds)
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

rad_status file_write_touches(file_store *s, rad_error *err)
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

rad_status file_enter(file_store *s, uint64_t deadline_ns, rad_error *err)
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

void file_leave(file_store *s)
{
    pthread_mutex_unlock(&s->state);
    pthread_rwlock_unlock(&s->world);
}

rad_status file_sync_index(file_store *s, int fd, rad_error *err)
{
    rad_status status = RAD_OK;
    if (fd < 0 || s->io->sync(s->io->user, fd))
        status = rad_fail(err, RAD_E_IO, "storage: %s: cannot sync the index: %s", s->dir,
                          strerror(errno));
    if (fd >= 0) close(fd);
    return status;
}
