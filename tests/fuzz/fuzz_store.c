/* fuzz_store.c - any bytes as the files of a store: its index, its data file, its records.
 *
 *     how, 1 byte | bytes of index, 2 | the index | the data file
 *
 * Bit 0 of `how` seals the index: its bytes are entries, whose checksums are then right, since
 * nobody would guess them. Bit 1 does so with the data file's records: each has a header of which
 * the first bytes are the input's. Bit 2 opens the store a second time, from what the first left.
 *
 * Whatever they say: the store opens, or an error says why not; its table is whole; it takes no
 * more memory than its files can account for; what it hands out verifies; and it can be written to,
 * looked through and pruned. */
#define _GNU_SOURCE
#include "storage/file_inspect.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/mix64.h"

enum { RECORD = 256, MOST_MEMORY = 48 << 20, MOST_INDEX = 1 << 14, MOST_DATA = 1 << 14 };

static char dir[64];
static size_t in_use;

static void *bounded_alloc(void *user, size_t bytes)
{
    (void)user;
    in_use += bytes;
    if (in_use > MOST_MEMORY) abort(); /* 16 KB of files do not account for it */
    return aligned_alloc(64, (bytes + 63) & ~(size_t)63);
}

static void bounded_free(void *user, void *memory, size_t bytes)
{
    (void)user;
    if (memory) in_use -= bytes;
    free(memory);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void write_file(const char *name, const void *bytes, size_t len)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, len) != (ssize_t)len) abort();
    close(fd);
}

static void seal_index(uint8_t *bytes, size_t len)
{
    const uint64_t generation = 7, era = 9, head[3] = {0, generation, era};
    if (len < 64) return;
    memcpy(bytes, head, sizeof head);
    memcpy(bytes, "RADIDX1\n", 8);
    memset(bytes + 24, 0, 32);
    uint64_t sum = XXH3_64bits(bytes, 56);
    memcpy(bytes + 56, &sum, 8);
    for (size_t at = 64; at + 64 <= len; at += 64) {
        uint8_t *e = bytes + at;
        e[14] = e[14] > FILE_CLEAR ? e[14] % (FILE_CLEAR + 2) : e[14];
        sum = XXH3_64bits_withSeed(e + 8, 56, generation ^ mix64(at));
        memcpy(e, &sum, 8);
    }
}

/* Good records under the keys that the input gives, but for a few. */
static void seal_records(uint8_t *bytes, size_t len)
{
    for (size_t at = 0; at + RECORD <= len; at += RECORD) {
        rad_storage_record about = {.num_tokens = bytes[at],
                                    .payload_bytes = RECORD - RAD_STORAGE_HEADER_BYTES};
        memcpy(about.key.bytes, bytes + at, sizeof about.key.bytes);
        if (bytes[at + 40] != 0xff) rad_storage_seal(bytes + at, &about);
    }
}

/* Keys that the index may name, and one that it does not. */
static void use(file_store *s, const uint8_t *index, size_t len)
{
    static uint8_t record[RECORD];
    void *records[1] = {record};
    rad_storage_key key;
    uint8_t done;
    for (size_t at = 64; at + 64 <= len && at < 64 * 24; at += 64) {
        memcpy(key.bytes, index + at + 32, sizeof key.bytes);
        rad_storage_batch b = {
            .keys = &key, .records = records, .record_bytes = RECORD, .count = 1, .done = &done};
        uint32_t present;
        (void)file_store_ops.batch_exists(s, &b, &present, NULL);
        if (!file_store_ops.batch_get(s, &b, NULL) && done &&
            rad_storage_verify(record, RECORD, &key, NULL, NULL, NULL))
            abort();
    }
    memset(key.bytes, 0xa5, sizeof key.bytes);
    rad_storage_record about = {.key = key, .payload_bytes = RECORD - RAD_STORAGE_HEADER_BYTES};
    rad_storage_seal(record, &about);
    rad_storage_batch b = {
        .keys = &key, .records = records, .record_bytes = RECORD, .count = 1, .done = &done};
    rad_error err = {0};
    rad_status status = file_store_ops.batch_set(s, &b, &err);
    if (status < 0 && !err.text[0]) abort();
    if (!status && done && (file_store_ops.batch_get(s, &b, &err) || !done)) abort();
}

static void open_and_use(const uint8_t *index, size_t len)
{
    rad_env env = rad_env_or_default(NULL);
    env.alloc = bounded_alloc;
    env.free = bounded_free;
    rad_storage_file_params p = {.struct_size = sizeof p,
                                 .dir = dir,
                                 .max_bytes = 1 << 20,
                                 .fsync = RAD_FSYNC_NEVER,
                                 .no_uring = 1,
                                 .lock_timeout_ms = 1000};
    file_store *s;
    rad_error err = {0};
    if (file_store_open(&env, &p, &file_io_real, &s, &err)) {
        if (!err.text[0]) abort();
    } else {
        static file_inspection found;
        const file_inspect_options look = {
            .has_prune = true, .prune_bytes = 1 << 12, .prune_bad = true};
        if (file_table_check(&s->table, &err)) abort();
        use(s, index, len);
        (void)file_inspect(s, &look, &found, &err);
        if (file_table_check(&s->table, &err)) abort();
        file_store_ops.close(s);
    }
    if (in_use) abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    snprintf(dir, sizeof dir, "%s/radish-fuzz-%ld", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm",
             (long)getpid());
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t index[MOST_INDEX], records[MOST_DATA];
    if (size < 3) return 0;
    size_t len = data[1] | (size_t)data[2] << 8, rest;
    len = RAD_MIN(RAD_MIN(len, size - 3), (size_t)MOST_INDEX);
    rest = RAD_MIN(size - 3 - len, (size_t)MOST_DATA);
    memcpy(index, data + 3, len);
    memcpy(records, data + 3 + len, rest);
    if (data[0] & 1) seal_index(index, len);
    if (data[0] & 2) seal_records(records, rest);
    if (mkdir(dir, 0700)) abort();
    write_file("index", index, len);
    write_file("pages-256.data", records, rest);
    open_and_use(index, len);
    if (data[0] & 4) open_and_use(index, len);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
