/* file_world.c - who may change a file store, and what to do when the world changes.
 *
 * The lock between processes is a byte of the file `lock`, so that the kernel lets go of it
 * when its holder is killed, wherever that was; we ask for it again and again rather than
 * wait in the kernel, so that a holder who is stopped costs a deadline and not a hang. Byte
 * 16 + n is held by the backend with number n as long as it lives: slots that a number nobody
 * holds was writing when it died are free again.
 *
 * The world is a set of descriptors below one directory. When the directory was removed or
 * the index deleted, they are without a name; then all are closed and opened again, as if the
 * process had just come. */
#define _GNU_SOURCE
#include "storage/file_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RETRY_NS = 500 * 1000 * 1000, OWNER_BYTE = 16 };

uint32_t file_store_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint32_t)now.tv_sec;
}

static rad_status failed(rad_error *err, const file_store *s, const char *what)
{
    return rad_fail(err, RAD_E_IO, "storage: %s: %s: %s", s->dir, what, file_place_why(errno));
}

static bool has_no_name(int fd)
{
    struct stat st;
    return fd < 0 || fstat(fd, &st) || st.st_nlink == 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Under writer. Waits for readers to be done with the descriptors. */
static void close_world(file_store *s)
{
    pthread_rwlock_wrlock(&s->world);
    pthread_mutex_lock(&s->state);
    file_log_close(&s->log);
    for (int i = 0; i < FILE_CLASSES; i++)
        close_fd(&s->data[i].fd);
    close_fd(&s->lock_fd);
    file_place_close(&s->place);
    file_table_reset(&s->table);
    s->owner = 0;
    pthread_mutex_unlock(&s->state);
    pthread_rwlock_unlock(&s->world);
}

static rad_status open_world(file_store *s, rad_error *err)
{
    rad_status status = RAD_OK;
    pthread_rwlock_wrlock(&s->world);
    pthread_mutex_lock(&s->state);
    status = file_place_open(&s->place, s->dir, s->params.mode, err);
    if (!status) {
        s->lock_fd = file_place_file(&s->place, s->place.dir, "lock", O_RDWR | O_CREAT);
        if (s->lock_fd < 0) status = failed(err, s, "cannot make a lock file");
    }
    pthread_mutex_unlock(&s->state);
    pthread_rwlock_unlock(&s->world);
    if (status) close_world(s);
    return status;
}

static rad_status release(file_store *s, bool ours, bool tell, rad_error *err)
{
    for (uint16_t i = 0; i < FILE_CLASSES && s->table.num_taken; i++) {
        const file_class *c = &s->table.classes[i];
        for (uint32_t slot = 0; slot < c->num_slots; slot++) {
            if (c->slots[slot] == FILE_SLOT_FREE || c->slots[slot] < FILE_SLOT_TAKEN) continue;
            uint8_t owner = (uint8_t)(c->slots[slot] - FILE_SLOT_TAKEN);
            if (owner == s->owner ? !ours : file_lock_is_held(s->lock_fd, OWNER_BYTE + owner))
                continue;
            file_entry e = {.op = FILE_RELEASE, .class_ = i, .slot = slot, .owner = owner};
            (void)file_table_apply(&s->table, &e);
            rad_status status = tell ? file_store_append(s, &e, 1, err) : RAD_OK;
            if (status) return status;
        }
    }
    return RAD_OK;
}

rad_status file_store_release(file_store *s, bool ours, rad_error *err)
{
    return release(s, ours, true, err);
}

/* Under writer and state: a number of our own. Who had it before is dead. RAD_AGAIN: a lock that
 * is none of ours is in the way. */
static rad_status join(file_store *s, rad_error *err)
{
    bool foreign = false;
    for (uint8_t n = 1; n <= FILE_OWNERS && !s->owner; n++)
        if (file_lock_take(s->lock_fd, OWNER_BYTE + n))
            s->owner = n;
        else
            foreign |= !file_lock_is_held(s->lock_fd, OWNER_BYTE + n);
    char words[96];
    if (!s->owner && foreign)
        return rad_fail(err, RAD_AGAIN, "storage: %s: %s", s->dir,
                        file_lock_holder(s->lock_fd, OWNER_BYTE + 1, words));
    if (!s->owner)
        return rad_fail(err, RAD_E_LIMIT, "storage: %s: %d backends use it already", s->dir,
                        FILE_OWNERS);
    return file_store_release(s, true, err);
}

static bool durable(const file_store *s)
{
    return s->params.fsync != RAD_FSYNC_NEVER;
}

/* Under writer and state: the table from the index, or from the pages. */
static rad_status load(file_store *s, rad_error *err)
{
    file_log_close(&s->log);
    file_table_reset(&s->table);
    s->reload = false;
    rad_error why = {0};
    rad_status status = file_log_open(&s->log, s->io, &s->place, &why);
    if (!status) status = file_log_catch_up(&s->log, &s->table, &why);
    if (!status) status = file_log_repair(&s->log, &s->table, &why);
    if (status == RAD_E_FORMAT || status == RAD_E_CORRUPT)
        rad_log(&s->env, RAD_LOG_WARN, "%s; it is made again from the pages", why.text);
    else if (status && status != RAD_NONE)
        return rad_fail(err, status, "%s", why.text);
    if (status) {
        /* A slot that was only taken may be a page whose entry was in the damage. */
        (void)release(s, true, false, NULL);
        status = file_store_scan(s, err);
        if (!status)
            status = file_log_rewrite(&s->log, s->io, &s->place, &s->table, 0, durable(s), err);
    }
    if (s->log.era != s->era) s->epoch++;
    s->era = s->log.era;
    return status;
}

rad_status file_store_refresh(file_store *s, rad_error *err)
{
    if (s->place.dir < 0 || s->reload || file_log_is_stale(&s->log)) return RAD_AGAIN;
    return file_log_catch_up(&s->log, &s->table, err);
}

/* Under writer, with the file lock. */
static rad_status bring_up_to_date(file_store *s, rad_error *err)
{
    pthread_mutex_lock(&s->state);
    rad_status status = file_store_refresh(s, err);
    if (!status) status = file_log_repair(&s->log, &s->table, err);
    if (status == RAD_AGAIN || status == RAD_E_CORRUPT) status = load(s, err);
    if (!status && !s->owner) status = join(s, err);
    if (status && status != RAD_AGAIN) s->reload = true;
    pthread_mutex_unlock(&s->state);
    return status;
}

static bool wait_for(file_store *s, uint64_t until_ns, uint64_t *pause_ns)
{
    if (s->env.now_ns(s->env.user) >= until_ns) return false;
    nanosleep(&(struct timespec){.tv_nsec = (long)*pause_ns}, NULL);
    *pause_ns = RAD_MIN(*pause_ns * 2, 2000000u);
    return true;
}

static bool lost(const file_store *s)
{
    bool data = false;
    for (int i = 0; i < FILE_CLASSES; i++)
        data |= s->data[i].fd >= 0 && has_no_name(s->data[i].fd);
    return data || has_no_name(s->lock_fd) || has_no_name(s->place.dir);
}

/* Under writer: the lock between processes, on files that still have their names. */
static rad_status lock_world(file_store *s, uint64_t until_ns, rad_error *err)
{
    uint64_t pause = 20000;
    for (int tries = 0; tries < 5; tries++) {
        if (s->place.dir < 0) {
            rad_status status = open_world(s, err);
            if (status) return status;
        }
        while (!file_lock_take(s->lock_fd, 0)) {
            if (errno != EAGAIN && errno != EACCES && errno != EINTR)
                return failed(err, s, "cannot be locked");
            char words[96];
            if (!wait_for(s, until_ns, &pause))
                return rad_fail(err, RAD_AGAIN, "storage: %s: %s", s->dir,
                                file_lock_holder(s->lock_fd, 0, words));
        }
        pthread_mutex_lock(&s->state);
        bool gone = lost(s);
        pthread_mutex_unlock(&s->state);
        if (!gone) return RAD_OK;
        close_world(s); /* the lock goes with its descriptor */
    }
    return rad_fail(err, RAD_E_IO, "storage: %s: is removed again and again", s->dir);
}

rad_status file_store_begin(file_store *s, uint64_t deadline_ns, rad_error *err)
{
    uint64_t now = s->env.now_ns(s->env.user), pause = 20000;
    uint64_t until = now + (uint64_t)s->params.lock_timeout_ms * 1000000u;
    if (deadline_ns) until = RAD_MIN(until, deadline_ns);
    while (pthread_mutex_trylock(&s->writer))
        if (!wait_for(s, until, &pause))
            return rad_fail(err, RAD_AGAIN, "storage: %s: other writers were faster", s->dir);
    rad_status status = RAD_OK;
    if (now < s->retry_ns)
        status = rad_fail(err, RAD_E_IO, "storage: %s: out of reach, tried a moment ago", s->dir);
    else {
        do {
            status = lock_world(s, until, err);
            if (status) break;
            status = bring_up_to_date(s, err);
            if (status) file_lock_leave(s->lock_fd, 0);
        } while (status == RAD_AGAIN && wait_for(s, until, &pause));
        pthread_mutex_lock(&s->state);
        if (status < 0) s->retry_ns = now + RETRY_NS;
        if (status != RAD_AGAIN) s->stats.down = status != RAD_OK;
        pthread_mutex_unlock(&s->state);
    }
    if (status) pthread_mutex_unlock(&s->writer);
    return status;
}

void file_store_end(file_store *s)
{
    file_lock_leave(s->lock_fd, 0);
    pthread_mutex_unlock(&s->writer);
}

rad_status file_store_append(file_store *s, file_entry *entries, uint32_t count, rad_error *err)
{
    rad_status status = count ? file_log_append(&s->log, entries, count, err) : RAD_OK;
    if (status) {
        s->reload = true;
        s->full_ns = s->env.now_ns(s->env.user) + RETRY_NS;
        return status;
    }
    /* A rewrite that fails is tried again at the next append; nothing is lost by it. */
    if (s->log.entries > 2ull * (s->table.num_pages + s->table.num_taken) + 4096)
        if (file_log_rewrite(&s->log, s->io, &s->place, &s->table, s->log.era, durable(s), NULL))
            rad_log(&s->env, RAD_LOG_WARN, "storage: %s: the index cannot be rewritten", s->dir);
    return RAD_OK;
}

static void data_name(uint64_t record_bytes, char name[64])
{
    snprintf(name, 64, "pages-%llu.data", (unsigned long long)record_bytes);
}

uint64_t file_store_records(void *store, uint64_t record_bytes)
{
    const file_store *s = store;
    char name[64];
    struct stat st;
    data_name(record_bytes, name);
    if (fstatat(s->place.dir, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode)) return 0;
    uint64_t bytes = (uint64_t)st.st_size, stride = file_stride(record_bytes);
    return bytes < record_bytes ? 0 : (bytes - record_bytes) / stride + 1;
}

int file_store_data(file_store *s, uint64_t record_bytes)
{
    if (s->place.dir < 0) return -1;
    for (int i = 0; i < FILE_CLASSES; i++) {
        if (s->data[i].fd >= 0 && s->data[i].record_bytes != record_bytes) continue;
        if (s->data[i].fd >= 0) return s->data[i].fd;
        char name[64];
        data_name(record_bytes, name);
        s->data[i].fd = file_place_file(&s->place, s->place.dir, name, O_RDWR | O_CREAT);
        s->data[i].record_bytes = record_bytes;
        return s->data[i].fd;
    }
    errno = EMFILE; /* sizes that the index does not know any more have the places */
    return -1;
}

void file_store_punch(file_store *s, uint32_t class_, uint32_t slot, uint32_t count)
{
    static const char zero[RAD_STORAGE_HEADER_BYTES];
    uint64_t stride = s->table.classes[class_].stride;
    int fd = file_store_data(s, s->table.classes[class_].record_bytes);
    if (fd < 0 || !s->io->punch(s->io->user, fd, slot * stride, count * stride)) return;
    for (uint32_t i = 0; i < count; i++) /* then it is at least no page any more */
        (void)file_write_all(s->io, fd, zero, sizeof zero, (slot + i) * stride, NULL);
}

rad_status file_store_tell(file_store *s, file_news *news, rad_error *err)
{
    rad_status status = file_store_append(s, news->entries, news->count, err);
    news->count = 0;
    return status;
}

rad_status file_store_add(file_store *s, file_news *news, const file_entry *e, rad_error *err)
{
    news->entries[news->count++] = *e;
    return news->count == RAD_COUNT(news->entries) ? file_store_tell(s, news, err) : RAD_OK;
}

rad_status file_store_make_room(file_store *s, uint64_t bytes, uint64_t max_bytes, uint32_t keep,
                                file_news *news, rad_error *err)
{
    file_table *t = &s->table;
    if (bytes > max_bytes) return RAD_FULL;
    while (t->bytes > max_bytes - bytes) {
        if (t->oldest == FILE_NONE) return RAD_FULL;
        const file_page page = t->pages[t->oldest];
        file_entry e = {.op = FILE_DROP, .key = page.key};
        (void)file_table_apply(t, &e);
        s->stats.evicted++;
        rad_status status = file_store_add(s, news, &e, err);
        if (!status && page.class_ != keep) { /* not before the index knows */
            status = file_store_tell(s, news, err);
            if (!status) file_store_punch(s, page.class_, page.slot, 1);
        }
        if (status) return status;
    }
    return RAD_OK;
}
