/* test_storage_power.c - with fsync=always, what was acknowledged survives a power loss.
 *
 * The system calls go through a table that remembers, per file, what was written since the
 * file was last synced. At a random write the power goes: every call fails from then on, and
 * of what was not synced a random part is undone, as a disk would have it that had not got it
 * yet: in the index all after some point, in a data file any of the writes, whole or in
 * half. Then the store is opened again. */
#define _GNU_SOURCE
#include "storage_rig.h"

#include "storage/file_store.h"

#include <errno.h>
#include <fcntl.h>

enum { R = RIG_RECORD, MOST = 4096 };

typedef struct written {
    ino_t inode;
    uint64_t offset;
    size_t bytes;
    uint8_t *before; /* zeros past the end of the file */
    bool append;
} written;

typedef struct power {
    long left; /* calls until it goes */
    written list[MOST];
    size_t count;
} power;

static ino_t inode_of(int fd)
{
    struct stat st;
    CHECK(!fstat(fd, &st));
    return st.st_ino;
}

static bool is_gone(power *p)
{
    if (p->left > 0) p->left--;
    if (!p->left) errno = EIO;
    return !p->left;
}

static ssize_t p_pread(void *user, int fd, void *to, size_t bytes, uint64_t offset)
{
    (void)user;
    return pread(fd, to, bytes, (off_t)offset);
}

static ssize_t p_pwrite(void *user, int fd, const void *from, size_t bytes, uint64_t offset)
{
    power *p = user;
    if (is_gone(p)) return -1;
    CHECK(p->count < MOST);
    written *w = &p->list[p->count++];
    *w = (written){inode_of(fd), offset, bytes, calloc(1, bytes), false};
    ssize_t before = pread(fd, w->before, bytes, (off_t)offset);
    CHECK(before >= 0);
    w->append = before == 0;
    return pwrite(fd, from, bytes, (off_t)offset);
}

static int p_sync(void *user, int fd)
{
    power *p = user;
    if (is_gone(p)) return -1;
    size_t kept = 0;
    for (size_t i = 0; i < p->count; i++)
        if (p->list[i].inode == inode_of(fd))
            free(p->list[i].before);
        else
            p->list[kept++] = p->list[i];
    p->count = kept;
    return 0;
}

static int p_rename(void *user, int dir, const char *from, const char *to)
{
    return is_gone(user) ? -1 : file_io_real.rename(NULL, dir, from, to);
}

static int p_punch(void *user, int fd, uint64_t offset, uint64_t bytes)
{
    return is_gone(user) ? -1 : file_io_real.punch(NULL, fd, offset, bytes);
}

static void undo(int dir, const char *name, const written *w, size_t from, bool shorten)
{
    int fd = openat(dir, name, O_WRONLY);
    struct stat st;
    if (fd >= 0 && !fstat(fd, &st) && st.st_ino == w->inode) {
        if (shorten && w->append)
            CHECK(!ftruncate(fd, (off_t)(w->offset + from)));
        else
            CHECK(pwrite(fd, w->before + from, w->bytes - from, (off_t)(w->offset + from)) >= 0);
    }
    if (fd >= 0) close(fd);
}

static void lose(power *p, const char *path, uint64_t *random)
{
    int dir = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(dir >= 0);
    bool shorten = test_random(random) % 2;            /* or the new end is zeros */
    size_t cut = test_random(random) % (p->count + 1); /* of the index: all from here on */
    for (size_t i = p->count; i-- > 0;) {
        written *w = &p->list[i];
        size_t half = test_random(random) % 2 ? 0 : test_random(random) % w->bytes;
        if (i >= cut) undo(dir, "index", w, i == cut ? half : 0, shorten);
        if (test_random(random) % 2) undo(dir, "pages-4096.data", w, half, false);
        free(w->before);
    }
    p->count = 0;
    close(dir);
}

TEST(what_fsync_always_acknowledged_survives_a_power_loss)
{
    uint64_t seed = test_seed(), random = seed, total = 0;
    static power p;
    for (uint64_t round = 0; round < test_scale(150, 5000); round++) {
        char dir[64];
        p = (power){.left = 1 + (long)(test_random(&random) % 250)};
        file_io io = {&p, p_pread, p_pwrite, p_sync, p_rename, p_punch};
        rad_storage_file_params params = {.struct_size = sizeof params,
                                          .dir = rig_dir(dir),
                                          .fsync = RAD_FSYNC_ALWAYS,
                                          .no_uring = 1};
        bool acked[60] = {false};
        file_store *s;
        if (!file_store_open(NULL, &params, &io, &s, NULL)) {
            rad_storage store = {&file_store_ops, s};
            for (uint64_t i = 0; i < 60 && p.left; i++) {
                uint64_t id = test_random(&random) % 60;
                acked[id] |= rig_set(store, R, id, NULL);
                (void)rig_get(store, R, test_random(&random) % 60, NULL);
            }
            p.left = 0; /* a close is no rescue */
            store.ops->close(store.self);
        }
        p.left = 0;
        lose(&p, dir, &random);
        rad_storage store = rig_open(dir, 0);
        for (uint64_t id = 0; id < 60; id++) {
            bool got = rig_get(store, R, id, NULL); /* and right, if it is there */
            CHECKF(got || !acked[id], "page %d is lost in round %d, seed %llu", (int)id, (int)round,
                   (unsigned long long)seed);
            total += acked[id];
        }
        for (uint64_t id = 0; id < 60; id++)
            CHECK(rig_set(store, R, id, NULL) && rig_get(store, R, id, NULL));
        store.ops->close(store.self);
        rig_remove_dir(dir);
    }
    print_message("%llu pages acknowledged, none lost\n", (unsigned long long)total);
}

TEST_MAIN()
