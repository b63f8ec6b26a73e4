/* test_storage_faults.c - whatever the disk does, the file backend hands out right pages or
 * none, keeps what it acknowledged, and works again when the disk does. */
#define _GNU_SOURCE
#include "storage_rig.h"

#include "storage/file_store.h"

#include <errno.h>
#include <fcntl.h>

enum { R = RIG_RECORD };

/* System calls of which number `at` goes wrong, and with `stay` all after it. */
typedef struct faulty {
    long calls, at;
    int error; /* errno */
    bool half; /* a write gets half way first */
    bool stay;
    bool reads; /* reads go wrong too */
    bool happened;
} faulty;

static bool goes_wrong(faulty *f)
{
    long call = f->calls++;
    if (f->at < 0 || (f->stay ? call < f->at : call != f->at)) return false;
    f->happened = true;
    errno = f->error;
    return true;
}

static ssize_t f_pread(void *user, int fd, void *to, size_t bytes, uint64_t offset)
{
    faulty *f = user;
    if (f->reads && goes_wrong(f)) return -1;
    return file_io_real.pread(NULL, fd, to, bytes, offset);
}

static ssize_t f_pwrite(void *user, int fd, const void *from, size_t bytes, uint64_t offset)
{
    faulty *f = user;
    if (goes_wrong(f)) {
        int error = errno;
        if (f->half) (void)!pwrite(fd, from, bytes / 2 + 1, (off_t)offset);
        errno = error;
        return -1;
    }
    return file_io_real.pwrite(NULL, fd, from, bytes, offset);
}

static int f_sync(void *user, int fd)
{
    return goes_wrong(user) ? -1 : file_io_real.sync(NULL, fd);
}

static int f_rename(void *user, int dir, const char *from, const char *to)
{
    return goes_wrong(user) ? -1 : file_io_real.rename(NULL, dir, from, to);
}

static int f_punch(void *user, int fd, uint64_t offset, uint64_t bytes)
{
    return goes_wrong(user) ? -1 : file_io_real.punch(NULL, fd, offset, bytes);
}

static file_io faulty_io(faulty *f)
{
    return (file_io){f, f_pread, f_pwrite, f_sync, f_rename, f_punch};
}

/* A store with its clock in our hands: waits between retries cost no time. */
static rad_storage open_with(const char *dir, test_env *t, const file_io *io, uint32_t fsync,
                             uint64_t max_bytes)
{
    rad_env env = test_env_init(t);
    rad_storage_file_params p = {
        .struct_size = sizeof p, .dir = dir, .fsync = fsync, .max_bytes = max_bytes};
    file_store *s = NULL;
    rad_error err = {0};
    rad_status status = file_store_open(&env, &p, io, &s, &err);
    CHECK(!status || (err.status == status && err.text[0]));
    return status ? (rad_storage){0} : (rad_storage){&file_store_ops, s};
}

static void later(test_env *t)
{
    t->now += 1000000000;
}

static void close_store(rad_storage store)
{
    if (store.ops) store.ops->close(store.self);
}

/* Sets 12 pages, with a get, a remove and a flush between, while something goes wrong. What
 * was acknowledged must be there right away and after reopening with a disk that is well;
 * everything can be stored again then. */
static bool one_fault(faulty f, uint32_t fsync)
{
    char dir[64];
    test_env t;
    file_io io = faulty_io(&f);
    rad_storage store = open_with(rig_dir(dir), &t, &io, fsync, 0);
    bool acked[12] = {0};
    for (uint64_t id = 0; store.ops && id < 12; id++) {
        acked[id] = rig_set(store, R, id, NULL);
        if (f.happened) later(&t);
        rad_storage_key key = rig_key(2);
        if (id == 5) acked[2] = false;
        if (id == 5) (void)store.ops->remove(store.self, &key, NULL);
        if (id == 7) (void)store.ops->flush(store.self, NULL);
        if (!f.stay && !f.reads)
            for (uint64_t i = 0; i <= id; i++)
                CHECKF(!acked[i] || rig_get(store, R, i, NULL), "fault at %ld: page %d\n", f.at,
                       (int)i);
    }
    long at = f.at;
    close_store(store);
    f.at = -1;
    f.calls = 0;
    store = open_with(dir, &t, &io, fsync, 0);
    CHECKF(store.ops, "fault at %ld: does not open again", at);
    for (uint64_t id = 0; id < 12; id++)
        CHECKF(!acked[id] || rig_get(store, R, id, NULL), "fault at %ld: page %d is lost", at,
               (int)id);
    for (uint64_t id = 0; id < 12; id++)
        CHECK(rig_set(store, R, id, NULL) && rig_get(store, R, id, NULL));
    rad_error err = {0};
    CHECKF(!file_table_check(&((file_store *)store.self)->table, &err), "%s", err.text);
    CHECK(((file_store *)store.self)->table.num_taken == 0);
    close_store(store);
    CHECK(t.bytes == 0);
    rig_remove_dir(dir);
    return f.happened;
}

static void every_fault(faulty f, uint32_t fsync)
{
    long n = 0;
    for (f.at = 0; one_fault(f, fsync); f.at++)
        n++;
    CHECK(n > 20);
}

TEST(every_write_failing_once_loses_nothing)
{
    every_fault((faulty){.error = ENOSPC}, RAD_FSYNC_DEFAULT);
    every_fault((faulty){.error = EIO}, RAD_FSYNC_ALWAYS);
}

TEST(every_write_torn_once_loses_nothing)
{
    every_fault((faulty){.error = EIO, .half = true}, RAD_FSYNC_DEFAULT);
}

TEST(a_disk_that_stays_broken_from_any_write_on_loses_nothing)
{
    every_fault((faulty){.error = ENOSPC, .half = true, .stay = true}, RAD_FSYNC_DEFAULT);
    every_fault((faulty){.error = EROFS, .stay = true}, RAD_FSYNC_ALWAYS);
}

TEST(every_read_failing_once_loses_nothing)
{
    every_fault((faulty){.error = EIO, .reads = true}, RAD_FSYNC_DEFAULT);
}

TEST(a_full_disk_is_words_and_misses_until_there_is_room)
{
    char dir[64];
    test_env t;
    faulty f = {.at = -1, .error = ENOSPC, .half = true, .stay = true};
    file_io io = faulty_io(&f);
    rad_storage store = open_with(rig_dir(dir), &t, &io, RAD_FSYNC_DEFAULT, 0);
    CHECK(rig_set(store, R, 1, NULL));
    f.at = 0;
    rad_status status;
    for (int i = 0; i < 3; i++, later(&t)) {
        CHECK(!rig_set(store, R, 2, &status) && status == RAD_E_IO);
        CHECK(rig_get(store, R, 1, NULL) && !rig_get(store, R, 2, NULL));
    }
    f.at = -1;
    CHECK(rig_set(store, R, 2, NULL) && rig_get(store, R, 2, NULL));
    CHECK(rig_stats(store).errors >= 3 && rig_stats(store).down == 0);
    close_store(store);
    rig_remove_dir(dir);
}

/* A disk under which, while a record is written, another process takes the lock and stops. */
typedef struct thief {
    char path[80];
    int fd;
} thief;

static ssize_t steal_and_write(void *user, int fd, const void *from, size_t bytes, uint64_t offset)
{
    thief *t = user;
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    if (bytes == R && t->fd < 0) {
        t->fd = open(t->path, O_RDWR);
        CHECK(t->fd >= 0 && !fcntl(t->fd, F_OFD_SETLK, &l));
    }
    return pwrite(fd, from, bytes, (off_t)offset);
}

TEST(a_set_that_cannot_end_in_time_gives_its_slots_back_later)
{
    char dir[64];
    thief t = {.fd = -1};
    file_io io = file_io_real;
    io.user = &t;
    io.pwrite = steal_and_write;
    rad_storage_file_params p = {.struct_size = sizeof p, .dir = rig_dir(dir)};
    file_store *s;
    CHECK(!file_store_open(NULL, &p, &io, &s, NULL));
    rad_storage store = {&file_store_ops, s};
    snprintf(t.path, sizeof t.path, "%s/lock", dir);
    rad_storage_key key = rig_key(1);
    uint8_t record[R], done = 9;
    void *records[1] = {record};
    rig_record(record, R, 1);
    rad_storage_batch b = {.keys = &key,
                           .records = records,
                           .record_bytes = R,
                           .count = 1,
                           .deadline_ns = file_now(s) + 500000000, /* a round begins */
                           .done = &done};
    uint64_t start = file_now(s);
    CHECK(store.ops->batch_set(s, &b, NULL) == RAD_OK && done == 0); /* late is no error */
    CHECK(file_now(s) - start < 4000000000u && s->table.num_taken == 1);
    close(t.fd);
    CHECK(rig_set(store, R, 2, NULL) && s->table.num_taken == 0);
    CHECK(rig_set(store, R, 1, NULL) && rig_get(store, R, 1, NULL) && s->table.num_pages == 2);
    store.ops->close(s);
    rig_remove_dir(dir);
}

/* Flips, cuts and overwrites of the data file, one page each. */
static void damage(const char *dir, const char *name, off_t at, const char *bytes, size_t count)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, bytes, count, at) == (ssize_t)count);
    close(fd);
}

TEST(a_bad_page_is_put_away_and_its_neighbours_are_well)
{
    char dir[64], path[128];
    rad_storage store = rig_open(rig_dir(dir), 0);
    for (uint64_t id = 0; id < 10; id++)
        CHECK(rig_set(store, R, id, NULL));
    snprintf(path, sizeof path, "%s/pages-%d.data", dir, R);
    uint8_t record[R], other[R];
    rig_record(record, R, 3);
    char flipped = (char)(record[2000] ^ 4);
    damage(dir, "pages-4096.data", 3 * R + 2000, &flipped, 1);
    rig_record(other, R, 99); /* whole, but not what was asked for */
    damage(dir, "pages-4096.data", 5 * R, (char *)other, R);
    CHECK(truncate(path, 9 * R + 100) == 0);
    for (uint64_t id = 0; id < 10; id++)
        CHECK(rig_get(store, R, id, NULL) == (id != 3 && id != 5 && id != 9));
    CHECK(rig_stats(store).quarantined == 3 && rig_stats(store).pages == 7);
    CHECK(!rig_get(store, R, 3, NULL) && rig_stats(store).quarantined == 3);
    CHECK(rig_set(store, R, 3, NULL) && rig_get(store, R, 3, NULL));
    snprintf(path, sizeof path, "ls %s/quarantine | wc -l", dir);
    FILE *ls = popen(path, "r");
    int files = 0;
    CHECK(fscanf(ls, "%d", &files) == 1 && files == 3);
    pclose(ls);
    close_store(store);
    rig_remove_dir(dir);
}

TEST(quarantine_is_bounded)
{
    char dir[64], path[128];
    rad_storage store = rig_open(rig_dir(dir), 0);
    for (uint64_t id = 0; id < 50; id++)
        CHECK(rig_set(store, R, id, NULL));
    for (uint64_t id = 0; id < 50; id++) {
        damage(dir, "pages-4096.data", (off_t)id * R + 200, "bad", 3);
        CHECK(!rig_get(store, R, id, NULL));
    }
    snprintf(path, sizeof path, "ls %s/quarantine | wc -l", dir);
    FILE *ls = popen(path, "r");
    int files = 0;
    CHECK(fscanf(ls, "%d", &files) == 1 && files == FILE_QUARANTINED);
    pclose(ls);
    close_store(store);
    rig_remove_dir(dir);
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0);
    fclose(f);
}

TEST(foreign_files_are_left_alone)
{
    char dir[64];
    rig_dir(dir);
    CHECK(mkdir(dir, 0777) == 0);
    write_file(dir, "README", "not a page\n");
    write_file(dir, "pages-.data", "nor this\n");
    write_file(dir, "pages-12x.data", "nor this\n");
    write_file(dir, "pages-99999999999999999999999.data", "nor this\n");
    write_file(dir, "pages-4096.data", "nor this, although it says so\n");
    write_file(dir, "index.new", "left by somebody\n");
    rad_storage store = rig_open(dir, 0);
    CHECK(rig_stats(store).pages == 0);
    CHECK(rig_set(store, R, 1, NULL) && rig_get(store, R, 1, NULL));
    close_store(store);
    char path[128];
    snprintf(path, sizeof path, "%s/README", dir);
    CHECK(access(path, F_OK) == 0);
    rig_remove_dir(dir);
}

/* The index is deleted, cut anywhere, replaced by noise, or has a byte changed anywhere: the
 * pages say themselves who they are. */
TEST(an_index_that_is_lost_or_damaged_is_made_again)
{
    enum { N = 30 };
    uint64_t seed = test_seed(), random = seed;
    for (uint64_t i = 0; i < test_scale(60, 2000); i++) {
        char dir[64], path[128];
        rad_storage store = rig_open(rig_dir(dir), 0);
        for (uint64_t id = 0; id < N; id++)
            CHECK(rig_set(store, id % 3 ? R : 2 * R, id, NULL));
        bool running = test_random(&random) % 2; /* or damaged while nobody looks */
        if (!running) close_store(store);
        snprintf(path, sizeof path, "%s/index", dir);
        struct stat st;
        CHECK(!stat(path, &st) && st.st_size > 64);
        off_t at = (off_t)(test_random(&random) % (uint64_t)st.st_size);
        int fd = open(path, O_RDWR);
        char noise[256];
        switch (i % 4) {
        case 0: unlink(path); break;
        case 1: CHECK(!ftruncate(fd, at)); break;
        case 2:
            CHECK(pread(fd, noise, 1, at) == 1);
            noise[0] ^= (char)(1 << test_random(&random) % 8);
            CHECK(pwrite(fd, noise, 1, at) == 1);
            break;
        default:
            for (size_t k = 0; k < sizeof noise; k++)
                noise[k] = (char)test_random(&random);
            CHECK(pwrite(fd, noise, sizeof noise, at) == sizeof noise);
        }
        close(fd);
        if (running) CHECK(rig_set(store, R, N, NULL)); /* a writer notices */
        if (running && i % 4 == 0)
            for (uint64_t id = 0; id <= N; id++)
                CHECK(rig_get(store, id % 3 && id < N ? R : id < N ? 2 * R : R, id, NULL));
        if (running) close_store(store);
        store = rig_open(dir, 0);
        if (i % 4 != 1) /* cut at an entry, an index is a right one of an earlier day */
            for (uint64_t id = 0; id < N; id++)
                CHECKF(rig_get(store, id % 3 ? R : 2 * R, id, NULL),
                       "round %d, page %d, at %d, seed %llu", (int)i, (int)id, (int)at,
                       (unsigned long long)seed);
        for (uint64_t id = 0; id < N; id++)
            CHECK(rig_set(store, id % 3 ? R : 2 * R, id, NULL));
        rad_error err = {0};
        CHECKF(!file_table_check(&((file_store *)store.self)->table, &err), "%s", err.text);
        close_store(store);
        rig_remove_dir(dir);
    }
}

TEST(a_directory_that_goes_away_is_misses_until_it_is_back)
{
    char dir[64], aside[80];
    test_env t;
    rad_storage store = open_with(rig_dir(dir), &t, &file_io_real, RAD_FSYNC_DEFAULT, 0);
    for (uint64_t id = 0; id < 10; id++)
        CHECK(rig_set(store, R, id, NULL));
    rig_remove_dir(dir);
    CHECK(!rig_get(store, R, 1, NULL)); /* it is empty now, and made again */
    CHECK(rig_set(store, R, 1, NULL) && rig_get(store, R, 1, NULL));
    CHECK(rig_stats(store).pages == 1);

    rig_remove_dir(dir);
    FILE *f = fopen(dir, "w"); /* nothing can be made here */
    CHECK(f);
    fclose(f);
    rad_status status;
    for (int i = 0; i < 3; i++, later(&t)) {
        CHECK(!rig_get(store, R, 1, &status) && status == RAD_E_IO);
        CHECK(!rig_set(store, R, 1, &status) && status == RAD_E_IO);
        CHECK(rig_stats(store).down == 1);
    }
    unlink(dir);
    CHECK(rig_set(store, R, 1, NULL) && rig_get(store, R, 1, NULL) && !rig_stats(store).down);

    snprintf(aside, sizeof aside, "%s.aside", dir);
    rig_remove_dir(aside);
    CHECK(!rename(dir, aside) && rig_get(store, R, 1, NULL)); /* it is still the same one */
    char path[128];
    snprintf(path, sizeof path, "%s/pages-%d.data", aside, R);
    CHECK(!unlink(path));
    CHECK(rig_set(store, R, 2, NULL) && rig_get(store, R, 2, NULL));
    close_store(store);
    rig_remove_dir(aside);
    rig_remove_dir(dir);
    CHECK(t.bytes == 0);
}

TEST_MAIN()
