/* file_inspect.c - counts, verifies and prunes; see file_inspect.h.
 *
 * The list of pages is copied first, so that no lock is held while records are read. A page
 * that was evicted meanwhile is left out: its slot may hold another by now. */
#define _GNU_SOURCE
#include "storage/file_inspect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

rad_status file_inspect_is_store(const char *path, rad_error *err)
{
    DIR *dir = opendir(path);
    if (!dir) return rad_fail(err, RAD_E_IO, "%s: %s", path, strerror(errno));
    bool found = false;
    for (struct dirent *entry; !found && (entry = readdir(dir));) {
        size_t len = strlen(entry->d_name);
        found = !strcmp(entry->d_name, FILE_LOG_NAME) ||
                (!strncmp(entry->d_name, "pages-", 6) && len > 5 &&
                 !strcmp(entry->d_name + len - 5, ".data"));
    }
    closedir(dir);
    return found ? RAD_OK : rad_fail(err, RAD_E_FORMAT, "%s: is no store of radish", path);
}

static file_inspect_model *model_of(file_inspection *out, const rad_storage_fingerprint *print,
                                    uint64_t record_bytes)
{
    for (uint32_t i = 0; i < out->num_models; i++)
        if (out->models[i].record_bytes == record_bytes &&
            !memcmp(&out->models[i].fingerprint, print, sizeof *print))
            return &out->models[i];
    if (out->num_models == FILE_INSPECT_MODELS) return NULL;
    file_inspect_model *m = &out->models[out->num_models++];
    *m = (file_inspect_model){
        .fingerprint = *print, .record_bytes = record_bytes, .used_first = UINT32_MAX};
    return m;
}

/* Reads one page as far as asked; true when it is well so far. */
static bool look_at(file_store *s, const file_page *page, uint64_t record_bytes, bool whole,
                    void *buffer, size_t *got, rad_storage_record *about)
{
    *got = 0;
    pthread_rwlock_rdlock(&s->world);
    pthread_mutex_lock(&s->state);
    int fd = file_store_data(s, record_bytes);
    pthread_mutex_unlock(&s->state);
    size_t bytes = whole ? (size_t)record_bytes : RAD_STORAGE_HEADER_BYTES;
    ssize_t n =
        fd < 0 ? -1
               : file_read_all(s->io, fd, buffer, bytes, page->slot * file_stride(record_bytes));
    pthread_rwlock_unlock(&s->world);
    if (n > 0) *got = (size_t)n;
    if (n < RAD_STORAGE_HEADER_BYTES || rad_storage_peek(buffer, about, NULL)) {
        *about = (rad_storage_record){0};
        return false;
    }
    if (whole)
        return n == (ssize_t)bytes &&
               !rad_storage_verify(buffer, bytes, &page->key, NULL, NULL, NULL);
    return !memcmp(&about->key, &page->key, sizeof page->key) &&
           about->payload_bytes == record_bytes - RAD_STORAGE_HEADER_BYTES;
}

/* The page is still where it was: 1, else 0. With `prune`, no more after this. */
static bool still_there(file_store *s, const file_page *page, bool prune, const void *record,
                        size_t bytes)
{
    if (file_store_begin(s, 0, NULL)) return false;
    pthread_mutex_lock(&s->state);
    uint32_t at = file_table_find(&s->table, &page->key);
    bool there = at != FILE_NONE && s->table.pages[at].seq == page->seq;
    if (there && prune) file_store_put_away(s, at, record, bytes);
    pthread_mutex_unlock(&s->state);
    file_store_end(s);
    return there;
}

static void count_page(file_inspection *out, const file_page *page, uint64_t record_bytes,
                       const rad_storage_record *about, bool good)
{
    file_inspect_model *m = model_of(out, &about->fingerprint, record_bytes);
    out->pages++;
    out->bytes += file_stride(record_bytes);
    out->bad += !good;
    if (!m) return;
    m->pages++;
    m->bytes += file_stride(record_bytes);
    m->bad += !good;
    m->tokens += about->num_tokens;
    m->used_first = RAD_MIN(m->used_first, page->used);
    m->used_last = RAD_MAX(m->used_last, page->used);
}

static uint64_t count_quarantine(file_store *s)
{
    uint64_t count = 0;
    int fd = file_place_below(&s->place, "quarantine", false);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    if (dir) closedir(dir);
    return count;
}

/* A copy of the table's pages, in the order of use; NULL: none, or no memory. */
static file_page *copy_pages(file_store *s, uint64_t *sizes, uint32_t *count)
{
    const file_table *t = &s->table;
    pthread_mutex_lock(&s->state);
    *count = t->num_pages;
    file_page *pages = rad_alloc(&s->env, rad_mul(*count, sizeof *pages));
    uint32_t n = 0;
    for (uint32_t p = t->oldest; pages && p != FILE_NONE; p = t->pages[p].newer)
        pages[n++] = t->pages[p];
    for (int i = 0; i < FILE_CLASSES; i++)
        sizes[i] = t->classes[i].record_bytes;
    pthread_mutex_unlock(&s->state);
    return pages;
}

rad_status file_inspect(file_store *s, const file_inspect_options *o, file_inspection *out,
                        rad_error *err)
{
    *out = (file_inspection){0};
    rad_status status = file_store_begin(s, 0, err);
    if (status) return status;
    pthread_mutex_lock(&s->state);
    uint64_t before = s->stats.evicted;
    if (o->has_prune) {
        file_news news = {.count = 0};
        status = file_store_make_room(s, 0, o->prune_bytes, FILE_NONE, &news, err);
        if (status >= 0 && file_store_tell(s, &news, err)) status = RAD_E_IO;
    }
    out->pruned = s->stats.evicted - before;
    out->busy = s->table.num_taken;
    pthread_mutex_unlock(&s->state);
    file_store_end(s);
    if (status < 0) return status;

    uint64_t sizes[FILE_CLASSES], largest = RAD_STORAGE_HEADER_BYTES;
    uint32_t count;
    file_page *pages = copy_pages(s, sizes, &count);
    for (int i = 0; i < FILE_CLASSES && o->verify; i++)
        largest = RAD_MAX(largest, sizes[i]);
    void *buffer = rad_alloc(&s->env, (size_t)largest);
    if (!buffer || (count && !pages)) {
        rad_free(&s->env, buffer, (size_t)largest);
        rad_free(&s->env, pages, count * sizeof *pages);
        return rad_fail(err, RAD_E_NOMEM, "storage: no memory to look at %u pages", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = sizes[pages[i].class_];
        rad_storage_record about;
        size_t got;
        bool good = look_at(s, &pages[i], bytes, o->verify, buffer, &got, &about);
        bool prune = !good && o->prune_bad;
        if (!good && !still_there(s, &pages[i], prune, buffer, got)) continue;
        if (prune)
            out->pruned++;
        else
            count_page(out, &pages[i], bytes, &about, good);
    }
    rad_free(&s->env, buffer, (size_t)largest);
    rad_free(&s->env, pages, count * sizeof *pages);
    out->quarantined = count_quarantine(s);
    return RAD_OK;
}
