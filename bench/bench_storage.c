/* bench_storage.c - the file store beside raw reads and writes of the same sizes.
 *
 *     bench_storage [DIR]             default /tmp; what it makes there it removes
 *     bench_storage --fill DIR N      leaves a store of N pages of 16 KiB behind
 *
 * Per record size: a plain file is written and read with pwrite and pread, one record a call,
 * and a store is set and asked in batches of 32, in the same order, 256 MiB each, three times;
 * medians. Everything is in the page cache: this shows what the store costs, not the disk.
 * `again` sets into slots that were there before (a full budget), as the plain file's
 * second writing does. `verify` is what checking the records alone costs, `cold` asks the
 * kernel to drop the pages first. */
#define _GNU_SOURCE
#include "bench.h"

#include <fcntl.h>
#include <radish/storage_file.h>
#include <unistd.h>

enum { BATCH = 32, RUNS = 3 };

typedef struct rig {
    size_t bytes; /* of a record */
    uint32_t count;
    uint8_t *memory; /* BATCH records */
    rad_storage store;
    int raw;
    char dir[4096];
} rig;

static void name_page(rad_storage_key *key, uint64_t id)
{
    memset(key, 0, sizeof *key);
    memcpy(key->bytes, &id, sizeof id);
}

static void seal(uint8_t *record, size_t bytes, uint64_t id)
{
    rad_storage_record about = {.num_tokens = 16,
                                .payload_bytes = bytes - RAD_STORAGE_HEADER_BYTES};
    name_page(&about.key, id);
    rad_storage_seal(record, &about);
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* Seconds for all records; sealing them is not part of it. */
static double set_all(rig *r, uint64_t first)
{
    double seconds = 0;
    for (uint32_t i = 0; i < r->count; i += BATCH) {
        rad_storage_key keys[BATCH];
        void *records[BATCH];
        uint8_t done[BATCH];
        uint32_t n = RAD_MIN(r->count - i, (uint32_t)BATCH);
        for (uint32_t k = 0; k < n; k++) {
            records[k] = r->memory + k * r->bytes;
            name_page(&keys[k], first + i + k);
            seal(records[k], r->bytes, first + i + k);
        }
        rad_storage_batch b = {
            .keys = keys, .records = records, .record_bytes = r->bytes, .count = n, .done = done};
        rad_error err = {0};
        double t = bench_now();
        if (r->store.ops->batch_set(r->store.self, &b, &err)) die(err.text);
        seconds += bench_now() - t;
        for (uint32_t k = 0; k < n; k++)
            if (!done[k]) die("a record was not stored");
    }
    return seconds;
}

static double get_all(rig *r, uint64_t first)
{
    double t = bench_now();
    for (uint32_t i = 0; i < r->count; i += BATCH) {
        rad_storage_key keys[BATCH];
        void *records[BATCH];
        uint8_t done[BATCH];
        uint32_t n = RAD_MIN(r->count - i, (uint32_t)BATCH);
        for (uint32_t k = 0; k < n; k++) {
            records[k] = r->memory + k * r->bytes;
            name_page(&keys[k], first + i + k);
        }
        rad_storage_batch b = {
            .keys = keys, .records = records, .record_bytes = r->bytes, .count = n, .done = done};
        if (r->store.ops->batch_get(r->store.self, &b, NULL)) die("get");
        for (uint32_t k = 0; k < n; k++)
            if (!done[k]) die("a record is missing");
    }
    return bench_now() - t;
}

static double raw_all(rig *r, bool writing)
{
    double t = bench_now();
    for (uint32_t i = 0; i < r->count; i++) {
        uint8_t *at = r->memory + i % BATCH * r->bytes;
        off_t offset = (off_t)((uint64_t)i * r->bytes);
        ssize_t n = writing ? pwrite(r->raw, at, r->bytes, offset)
                            : pread(r->raw, at, r->bytes, offset);
        if (n != (ssize_t)r->bytes) die("raw file");
    }
    return bench_now() - t;
}

static double verify_all(rig *r)
{
    for (uint32_t k = 0; k < BATCH; k++)
        seal(r->memory + k * r->bytes, r->bytes, k);
    double t = bench_now();
    for (uint32_t i = 0; i < r->count; i++)
        if (rad_storage_verify(r->memory + i % BATCH * r->bytes, r->bytes, NULL, NULL, NULL, NULL))
            die("verify");
    return bench_now() - t;
}

static void drop_cache(const char *path)
{
    int fd = open(path, O_RDONLY);
    if (fd < 0) return;
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static rad_storage open_store(const char *dir, uint64_t max_bytes)
{
    rad_storage_file_params p = {.struct_size = sizeof p, .dir = dir, .max_bytes = max_bytes};
    p.no_uring = getenv("BENCH_NO_URING") != NULL;
    rad_storage store;
    rad_error err;
    if (rad_storage_file_open(NULL, &p, &store, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return store;
}

static double median(double *x)
{
    return bench_median(x, RUNS);
}

static void bench_size(const char *where, size_t bytes)
{
    rig r = {.bytes = bytes, .count = (uint32_t)((256u << 20) / bytes)};
    char raw[4200], data[4200];
    r.memory = aligned_alloc(4096, (BATCH * bytes + 4095) / 4096 * 4096);
    if (!r.memory) die("memory");
    memset(r.memory, 3, BATCH * bytes);
    snprintf(r.dir, sizeof r.dir, "%s/radish-bench-XXXXXX", where);
    if (!mkdtemp(r.dir)) die(r.dir);
    snprintf(raw, sizeof raw, "%s/raw", r.dir);
    snprintf(data, sizeof data, "%s/pages-%zu.data", r.dir, bytes);
    r.raw = open(raw, O_RDWR | O_CREAT, 0666);
    r.store = open_store(r.dir, (r.count + BATCH) * (uint64_t)(bytes + 4095) / 4096 * 4096);

    double raw_new = raw_all(&r, true), set_new = set_all(&r, 0);
    double raw_write[RUNS], raw_read[RUNS], set[RUNS], get[RUNS], verify[RUNS], raw_cold[RUNS],
        get_cold[RUNS];
    for (int i = 0; i < RUNS; i++) {
        raw_write[i] = raw_all(&r, true);
        set[i] = set_all(&r, (uint64_t)(i + 1) << 32);
        raw_read[i] = raw_all(&r, false);
        get[i] = get_all(&r, (uint64_t)(i + 1) << 32);
        verify[i] = verify_all(&r);
        drop_cache(raw);
        drop_cache(data);
        raw_cold[i] = raw_all(&r, false);
        get_cold[i] = get_all(&r, (uint64_t)(i + 1) << 32);
    }
    double gb = (double)r.count * (double)bytes * 1e-9;
    double rr = gb / median(raw_read), g = gb / median(get), rw = gb / median(raw_write),
           s = gb / median(set), rc = gb / median(raw_cold), gc = gb / median(get_cold);
    printf("%8zu B  set new %5.2f of raw %5.2f | again %5.2f of %5.2f (%3.0f%%) | "
           "get %5.2f of %5.2f (%3.0f%%) | cold %5.2f of %5.2f (%3.0f%%) | verify %5.2f\n",
           bytes, gb / set_new, gb / raw_new, s, rw, 100 * s / rw, g, rr, 100 * g / rr, gc, rc,
           100 * gc / rc, gb / median(verify));
    r.store.ops->close(r.store.self);
    close(r.raw);
    unlink(raw);
    char path[4200];
    const char *const left[] = {"index", "lock"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", r.dir, left[i]);
        unlink(path);
    }
    unlink(data);
    rmdir(r.dir);
    free(r.memory);
}

static int fill(const char *dir, uint32_t count)
{
    rig r = {.bytes = 16384, .count = count, .store = open_store(dir, UINT64_MAX)};
    r.memory = calloc(BATCH, r.bytes);
    if (!r.memory) die("memory");
    set_all(&r, 0);
    r.store.ops->close(r.store.self);
    free(r.memory);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "--fill")) return fill(argv[2], (uint32_t)atoi(argv[3]));
    const char *dir = argc > 1 ? argv[1] : "/tmp";
    compute_pool *pool = NULL;
    if (compute_pool_create(NULL, 1, &pool, NULL) == RAD_OK) bench_print_machine(pool);
    compute_pool_destroy(pool);
    printf("# GB/s, 1 thread, in %s\n", dir);
    static const size_t sizes[] = {16384 + 128, 131072 + 128, 1835008 + 128};
    for (size_t i = 0; i < RAD_COUNT(sizes); i++)
        bench_size(dir, sizes[i]);
    return 0;
}
