/* test_storage_crash.c - kill -9 at any point loses nothing that was acknowledged.
 *
 * Children store pages and say through a pipe which were acknowledged; they are killed, by
 * the test at a random time or by themselves before or in the middle of a random write. What
 * was acknowledged must then be there and right, for a store that was open all along and for
 * one that is opened after. RADISH_TEST_LONG=1: 200 rounds and more of each kind. */
#define _GNU_SOURCE
#include "storage_rig.h"

#include "storage/file_inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

enum { R = RIG_RECORD, BATCH = 8 };

typedef struct deadly {
    long left; /* writes until the end */
    bool half; /* which comes in the middle of one */
} deadly;

static bool now(deadly *d)
{
    return d->left-- == 0;
}

static ssize_t d_pread(void *user, int fd, void *to, size_t bytes, uint64_t offset)
{
    (void)user;
    return pread(fd, to, bytes, (off_t)offset);
}

static ssize_t d_pwrite(void *user, int fd, const void *from, size_t bytes, uint64_t offset)
{
    deadly *d = user;
    if (now(d)) {
        if (d->half) (void)!pwrite(fd, from, bytes / 2 + 1, (off_t)offset);
        raise(SIGKILL);
    }
    return pwrite(fd, from, bytes, (off_t)offset);
}

static int d_sync(void *user, int fd)
{
    if (now(user)) raise(SIGKILL);
    return file_io_real.sync(NULL, fd);
}

static int d_rename(void *user, int dir, const char *from, const char *to)
{
    if (now(user)) raise(SIGKILL);
    return file_io_real.rename(NULL, dir, from, to);
}

static int d_punch(void *user, int fd, uint64_t offset, uint64_t bytes)
{
    if (now(user)) raise(SIGKILL);
    return file_io_real.punch(NULL, fd, offset, bytes);
}

/* Stores pages from..from+4999 in batches, reads some, until it is killed. */
static void child(const char *dir, int pipe_fd, deadly d, uint64_t from, uint64_t max_bytes)
{
    file_io io = {&d, d_pread, d_pwrite, d_sync, d_rename, d_punch};
    rad_storage_file_params p = {
        .struct_size = sizeof p, .dir = dir, .max_bytes = max_bytes, .no_uring = 1};
    file_store *s;
    if (file_store_open(NULL, &p, &io, &s, NULL)) _exit(3);
    static uint8_t bytes[BATCH][R];
    for (uint64_t id = from; id < from + 5000; id += BATCH) {
        rad_storage_key keys[BATCH];
        void *records[BATCH];
        uint8_t done[BATCH];
        for (uint64_t i = 0; i < BATCH; i++) {
            keys[i] = rig_key(id + i);
            rig_record(bytes[i], R, id + i);
            records[i] = bytes[i];
        }
        rad_storage_batch b = {
            .keys = keys, .records = records, .record_bytes = R, .count = BATCH, .done = done};
        if (file_store_ops.batch_set(s, &b, NULL)) _exit(4);
        for (uint64_t i = 0; i < BATCH; i++) {
            uint64_t acked = id + i;
            if (done[i] && write(pipe_fd, &acked, sizeof acked) != sizeof acked) _exit(5);
        }
        if (id % 3 == 0) (void)file_store_ops.batch_get(s, &b, NULL);
    }
    _exit(0);
}

typedef struct spawned {
    pid_t pid;
    int acks;
} spawned;

static spawned spawn(const char *dir, deadly d, uint64_t from, uint64_t max_bytes)
{
    int ends[2];
    CHECK(!pipe(ends));
    fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
    spawned c = {fork(), ends[0]};
    CHECK(c.pid >= 0);
    if (!c.pid) {
        close(ends[0]);
        child(dir, ends[1], d, from, max_bytes);
    }
    close(ends[1]);
    return c;
}

/* After the end of the child: what it said. */
static uint64_t read_acks(spawned c, uint64_t *ids)
{
    uint64_t count = 0;
    int status;
    while (count < 5000 && read(c.acks, &ids[count], sizeof *ids) == sizeof *ids)
        count++;
    close(c.acks);
    CHECK(waitpid(c.pid, &status, 0) == c.pid);
    CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return count;
}

static void check_rounds(uint64_t rounds, bool by_itself, uint64_t budget_pages)
{
    uint64_t seed = test_seed(), random = seed, total = 0;
    static uint64_t ids[2][5000];
    uint64_t max_bytes = budget_pages * R;
    char dir[64];
    rad_storage watch = rig_open(rig_dir(dir), max_bytes);
    for (uint64_t round = 0; round < rounds; round++) {
        spawned children[2];
        uint64_t counts[2];
        for (uint64_t i = 0; i < 2; i++) {
            deadly d = {-1, test_random(&random) % 2};
            if (by_itself) d.left = (long)(test_random(&random) % 300);
            children[i] = spawn(dir, d, (round * 2 + i) * 10000, max_bytes);
        }
        for (int i = 0; i < 2 && !by_itself; i++) {
            struct pollfd said = {.fd = children[i].acks, .events = POLLIN};
            if (test_random(&random) % 4) poll(&said, 1, 5000); /* it is at work by then */
            usleep((unsigned)(test_random(&random) % 15000));
            kill(children[i].pid, SIGKILL);
        }
        for (int i = 0; i < 2; i++)
            counts[i] = read_acks(children[i], ids[i]);
        rad_storage after = rig_open(dir, max_bytes);
        /* Between them the children acknowledged at most what fits, or else the last of each
         * can be asked for: half the budget is younger than anything evicted for it. */
        for (int i = 0; i < 2; i++) {
            total += counts[i];
            uint64_t n = 0;
            if (counts[0] + counts[1] + 4 * BATCH > budget_pages) continue;
            for (uint64_t k = 0; k < counts[i]; k++, n++) {
                CHECKF(rig_get(after, R, ids[i][k], NULL),
                       "page %llu lost in round %llu, seed %llu", (unsigned long long)ids[i][k],
                       (unsigned long long)round, (unsigned long long)seed);
                if (k % 8 == 0) CHECK(rig_get(watch, R, ids[i][k], NULL));
            }
        }
        rad_storage_stats seen = rig_stats(after), watched = rig_stats(watch);
        CHECKF(seen.quarantined == 0 && watched.quarantined == 0, "seed %llu",
               (unsigned long long)seed);
        CHECK(seen.bytes <= max_bytes && ((file_store *)after.self)->table.num_taken == 0);
        if (budget_pages < 5000) { /* every page of the index, also those nobody told us of */
            static file_inspection in;
            CHECK(!file_inspect(after.self, &(file_inspect_options){.verify = true}, &in, NULL));
            CHECKF(in.bad == 0, "%llu bad, seed %llu", (unsigned long long)in.bad,
                   (unsigned long long)seed);
        }
        rad_error err = {0};
        CHECKF(!file_table_check(&((file_store *)after.self)->table, &err), "%s", err.text);
        after.ops->close(after.self);
    }
    print_message("%llu rounds, %llu pages acknowledged, none lost, none bad\n",
                  (unsigned long long)rounds, (unsigned long long)total);
    CHECK(total > 0);
    watch.ops->close(watch.self);
    rig_remove_dir(dir);
}

TEST(killed_at_a_random_time)
{
    check_rounds(test_scale(10, 250), false, 20000);
}
TEST(killed_in_a_random_write)
{
    check_rounds(test_scale(20, 500), true, 20000);
}
TEST(killed_while_pages_are_evicted)
{
    check_rounds(test_scale(10, 250), true, 1500);
}

TEST_MAIN()
