/* storage_rig.h - records that say which they are, and a directory to keep them in. */
#ifndef TESTS_STORAGE_RIG_H
#define TESTS_STORAGE_RIG_H

#include "test.h"

#include <ftw.h>
#include <radish/storage_file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { RIG_PAYLOAD = 4096 - RAD_STORAGE_HEADER_BYTES, RIG_RECORD = 4096 };

static inline rad_storage_key rig_key(uint64_t id)
{
    rad_storage_key key = {{0}};
    for (int i = 0; i < 4; i++) {
        uint64_t state = id * 4 + (uint64_t)i, word = test_random(&state);
        memcpy(key.bytes + 8 * i, &word, 8);
    }
    return key;
}

/* The record of a page: its bytes follow from the id, so that a wrong one is seen. */
static inline void rig_record(uint8_t *record, size_t bytes, uint64_t id)
{
    rad_storage_record about = {
        .key = rig_key(id), .num_tokens = 16, .payload_bytes = bytes - RAD_STORAGE_HEADER_BYTES};
    about.fingerprint.bytes[0] = (uint8_t)(id % 3);
    uint64_t state = id ^ 0x5eed;
    for (size_t i = RAD_STORAGE_HEADER_BYTES; i < bytes; i++)
        record[i] = i % 8 ? record[i - 1] + 3 : (uint8_t)test_random(&state);
    rad_storage_seal(record, &about);
}

static inline int rig_unlink(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static inline void rig_remove_dir(const char *dir)
{
    nftw(dir, rig_unlink, 16, FTW_DEPTH | FTW_PHYS);
}

/* A fresh name in memory or below /tmp; nothing is there. */
static inline const char *rig_dir(char dir[64])
{
    struct statvfs fs; /* a container's is often of 64 MB */
    bool memory = access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &fs) == 0 &&
                  (uint64_t)fs.f_bavail * fs.f_frsize >= 512u << 20; /* a sync costs nothing */
    snprintf(dir, 64, "%s/radish-store-XXXXXX", memory ? "/dev/shm" : "/tmp");
    if (!mkdtemp(dir)) abort();
    rmdir(dir);
    return dir;
}

static inline rad_storage rig_open(const char *dir, uint64_t max_bytes)
{
    rad_storage_file_params params = {
        .struct_size = sizeof params, .dir = dir, .max_bytes = max_bytes};
    rad_storage store;
    rad_error err = {0};
    rad_status status = rad_storage_file_open(NULL, &params, &store, &err);
    CHECKF(status == RAD_OK, "%s", err.text);
    return store;
}

/* One record in; true when it was acknowledged. */
static inline bool rig_set(rad_storage store, size_t bytes, uint64_t id, rad_status *status)
{
    rad_storage_key key = rig_key(id);
    uint8_t *record = malloc(bytes), done = 9;
    void *records[1] = {record};
    rig_record(record, bytes, id);
    rad_storage_batch b = {
        .keys = &key, .records = records, .record_bytes = bytes, .count = 1, .done = &done};
    rad_error err = {0};
    rad_status s = store.ops->batch_set(store.self, &b, &err);
    if (s < 0) CHECK(err.status == s && err.text[0]);
    if (status) *status = s;
    free(record);
    return done == 1;
}

/* One record out; true when it came. What comes must be right. */
static inline bool rig_get(rad_storage store, size_t bytes, uint64_t id, rad_status *status)
{
    rad_storage_key key = rig_key(id);
    uint8_t *record = malloc(bytes), *want = malloc(bytes), done = 9;
    void *records[1] = {record};
    rad_storage_batch b = {
        .keys = &key, .records = records, .record_bytes = bytes, .count = 1, .done = &done};
    rad_error err = {0};
    rad_status s = store.ops->batch_get(store.self, &b, &err);
    if (s < 0) CHECK(err.status == s && err.text[0]);
    if (status) *status = s;
    rig_record(want, bytes, id);
    CHECK(done == 0 || memcmp(record, want, bytes) == 0);
    free(record);
    free(want);
    return done == 1;
}

static inline rad_storage_stats rig_stats(rad_storage store)
{
    rad_storage_stats stats = {0};
    store.ops->get_stats(store.self, &stats);
    return stats;
}

#endif
