/* file_rebuild.c - when an index is lost, and when a page is bad.
 *
 * Each record begins with a header that says whose it is, so the index can be made again by
 * reading 128 bytes per slot. What lies in a slot that was free is either nothing, or a page
 * that was evicted and is still right, or one that a writer did not finish: that one is found
 * out when it is read, as every damaged page is. */
#define _GNU_SOURCE
#include "storage/file_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* "pages-16512.data" -> 16512; 0 for any other name. */
static uint64_t record_bytes_of(const char *name)
{
    uint64_t bytes;
    char again[64];
    if (sscanf(name, "pages-%" SCNu64, &bytes) != 1) return 0;
    snprintf(again, sizeof again, "pages-%" PRIu64 ".data", bytes);
    return strcmp(again, name) ? 0 : bytes;
}

static uint32_t class_for(file_table *t, uint64_t record_bytes)
{
    uint32_t c = file_table_class(t, record_bytes);
    for (uint16_t i = 0; i < FILE_CLASSES && c == FILE_NONE; i++) {
        file_entry e = {.op = FILE_CLASS, .class_ = i, .record_bytes = record_bytes};
        if (!t->classes[i].record_bytes && !file_table_apply(t, &e)) c = i;
    }
    return c;
}

static rad_status scan_class(file_store *s, uint32_t class_, rad_error *err)
{
    file_table *t = &s->table;
    uint64_t stride = t->classes[class_].stride, record_bytes = t->classes[class_].record_bytes;
    struct stat st;
    int fd = file_store_data(s, record_bytes);
    if (fd < 0 || fstat(fd, &st))
        return rad_fail(err, RAD_E_IO, "storage: %s: a data file: %s", s->dir,
                        file_place_why(errno));
    uint64_t slots = ((uint64_t)st.st_size + stride - 1) / stride;
    for (uint32_t slot = 0; slot < RAD_MIN(slots, (uint64_t)FILE_MAX_SLOTS); slot++) {
        const file_class *c = &t->classes[class_];
        if (slot < c->num_slots && c->slots[slot] != FILE_SLOT_FREE) continue;
        char header[RAD_STORAGE_HEADER_BYTES];
        rad_storage_record about;
        if (file_read_all(s->io, fd, header, sizeof header, slot * stride) != sizeof header ||
            rad_storage_peek(header, &about, NULL) ||
            about.payload_bytes != record_bytes - RAD_STORAGE_HEADER_BYTES ||
            file_table_find(t, &about.key) != FILE_NONE)
            continue;
        uint32_t now = (uint32_t)st.st_mtime;
        file_entry e = {.op = FILE_PUT,
                        .class_ = (uint16_t)class_,
                        .slot = slot,
                        .seq = t->max_seq + 1,
                        .made = now,
                        .used = now,
                        .key = about.key};
        if (file_table_apply(t, &e) == RAD_E_NOMEM)
            return rad_fail(err, RAD_E_NOMEM, "storage: no memory for an index");
    }
    return RAD_OK;
}

rad_status file_store_scan(file_store *s, rad_error *err)
{
    int fd = openat(s->place.dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0) close(fd);
        return rad_fail(err, RAD_E_IO, "storage: %s: %s", s->dir, strerror(errno));
    }
    rad_status status = RAD_OK;
    for (struct dirent *entry; !status && (entry = readdir(dir));) {
        uint64_t bytes = record_bytes_of(entry->d_name);
        uint32_t class_ = bytes ? class_for(&s->table, bytes) : FILE_NONE;
        if (class_ != FILE_NONE) status = scan_class(s, class_, err);
    }
    closedir(dir);
    return status;
}

/* "1732290000-64 digits.bad", and a file of ours: whatever else lies in quarantine is somebody
 * else's, and stays. */
static bool is_quarantined(const file_store *s, int dir, const char *name)
{
    struct stat st;
    size_t digits = strspn(name, "0123456789");
    if (digits < 10 || name[digits] != '-') return false;
    const char *key = name + digits + 1;
    return strspn(key, "0123456789abcdef") == 64 && strcmp(key + 64, ".bad") == 0 &&
           fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && file_place_owns(&s->place, &st);
}

/* The number of records in quarantine; the name of the oldest in `oldest`. */
static uint32_t count_quarantined(const file_store *s, int fd, char oldest[256])
{
    uint32_t count = 0;
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    if (!dir && again >= 0) close(again);
    oldest[0] = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (!is_quarantined(s, fd, entry->d_name)) continue;
        if (!count++ || strcmp(entry->d_name, oldest) < 0)
            snprintf(oldest, 256, "%s", entry->d_name); /* names begin with the time */
    }
    if (dir) closedir(dir);
    return count;
}

static void quarantine(file_store *s, const rad_storage_key *key, const void *record, size_t bytes)
{
    char name[128], oldest[256];
    int dir = file_place_below(&s->place, "quarantine", true);
    if (dir < 0) return;
    bool room = true;
    while (room && count_quarantined(s, dir, oldest) >= FILE_QUARANTINED)
        room = unlinkat(dir, oldest, 0) == 0;
    int at = snprintf(name, sizeof name, "%010u-", file_store_seconds());
    for (int i = 0; i < 32; i++)
        at += snprintf(name + at, sizeof name - (size_t)at, "%02x", key->bytes[i]);
    snprintf(name + at, sizeof name - (size_t)at, ".bad");
    int fd = room ? file_place_file(&s->place, dir, name, O_RDWR | O_CREAT | O_TRUNC) : -1;
    if (fd >= 0 && !file_write_all(s->io, fd, record, bytes, 0, NULL)) unlinkat(dir, name, 0);
    if (fd >= 0) close(fd);
    close(dir);
}

void file_store_put_away(file_store *s, uint32_t page, const void *record, size_t bytes)
{
    const file_page p = s->table.pages[page];
    file_entry e = {.op = FILE_DROP, .key = p.key};
    quarantine(s, &p.key, record, bytes);
    (void)file_table_apply(&s->table, &e);
    (void)file_store_append(s, &e, 1, NULL); /* else it comes back, and is found bad again */
    file_store_punch(s, p.class_, p.slot, 1);
    s->stats.quarantined++;
}
