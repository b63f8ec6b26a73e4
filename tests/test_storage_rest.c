/* test_storage_rest.c - a store at rest: whose its files are and who may read them, what is not
 * opened, what an index may claim, and locks that are none of ours. */
#define _GNU_SOURCE
#include "storage_rig.h"

#include "storage/file_store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/mix64.h"

enum { R = RIG_RECORD, NOBODY = 65534 };

static rad_status open_as(const rad_env *env, const char *dir, uint32_t mode, rad_storage *store,
                          rad_error *err)
{
    rad_storage_file_params p = {
        .struct_size = sizeof p, .dir = dir, .mode = mode, .lock_timeout_ms = 20, .no_uring = 1};
    *err = (rad_error){0};
    return rad_storage_file_open(env, &p, store, err);
}

static uint32_t mode_of(const char *dir, const char *name)
{
    char path[160];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECKF(lstat(path, &st) == 0, "%s\n", path);
    return st.st_mode & 07777;
}

static void path_of(char path[160], const char *dir, const char *name)
{
    snprintf(path, 160, "%s/%s", dir, name);
}

static void write_file(const char *dir, const char *name, const void *bytes, size_t len)
{
    char path[160];
    path_of(path, dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, bytes, len) == (ssize_t)len && close(fd) == 0);
}

/* A page that a reader finds bad, so that there is a quarantine. */
static void spoil(rad_storage store, const char *dir, uint64_t id)
{
    char path[160];
    path_of(path, dir, "pages-4096.data");
    CHECK(rig_set(store, R, id, NULL));
    int fd = open(path, O_RDWR);
    struct stat st;
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    for (off_t at = 0; at < st.st_size; at += R)
        CHECK(pwrite(fd, "spoilt", 6, at + 2000) == 6);
    close(fd);
    CHECK(!rig_get(store, R, id, NULL));
}

/* ---- modes ---- */

/* The umask neither opens a store nor closes one that a group is to share. */
TEST(files_are_ours_alone_unless_a_group_is_given)
{
    static const struct {
        uint32_t asked, file, dir;
    } cases[] = {{0, 0600, 0700}, {0600, 0600, 0700}, {0640, 0640, 02750}, {0660, 0660, 02770}};
    static const char *const names[] = {"index", "lock", "pages-4096.data"};
    for (size_t i = 0; i < RAD_COUNT(cases) * 2; i++) {
        char dir[64];
        rad_storage store;
        rad_error err;
        uint32_t file = cases[i / 2].file, want = cases[i / 2].dir;
        mode_t before = umask(i % 2 ? 0077 : 0);
        rig_dir(dir);
        CHECKF(!open_as(NULL, dir, cases[i / 2].asked, &store, &err), "%s\n", err.text);
        spoil(store, dir, 1);
        CHECK(rig_set(store, R, 2, NULL));
        store.ops->close(store.self);
        CHECKF(mode_of(dir, ".") == want, "%04o\n", mode_of(dir, "."));
        CHECK(mode_of(dir, "quarantine") == want);
        for (size_t k = 0; k < RAD_COUNT(names); k++)
            CHECKF(mode_of(dir, names[k]) == file, "%s %04o\n", names[k], mode_of(dir, names[k]));
        umask(before);
        rig_remove_dir(dir);
    }
    rad_storage store;
    rad_error err;
    CHECK(open_as(NULL, "/tmp/radish-none", 0666, &store, &err) == RAD_E_INVAL);
    CHECK(open_as(NULL, "/tmp/radish-none", 0400, &store, &err) == RAD_E_INVAL);
}

/* What an older version left readable for all. */
TEST(files_that_are_too_open_are_closed)
{
    char dir[64], path[160];
    rad_storage store = rig_open(rig_dir(dir), 1 << 20);
    rad_error err;
    CHECK(rig_set(store, R, 1, NULL));
    store.ops->close(store.self);
    path_of(path, dir, "index");
    CHECK(chmod(path, 0644) == 0 && chmod(dir, 0755) == 0);
    CHECKF(!open_as(NULL, dir, 0, &store, &err), "%s\n", err.text);
    CHECK(rig_get(store, R, 1, NULL));
    CHECK(mode_of(dir, "index") == 0600 && mode_of(dir, ".") == 0755); /* its maker's business */
    store.ops->close(store.self);
    rig_remove_dir(dir);
}

TEST(a_directory_that_others_may_write_into_is_refused)
{
    static const struct {
        mode_t mode;
        uint32_t asked;
        bool good;
    } cases[] = {{0700, 0, true},     {0755, 0, true},   {0775, 0, false},    {0770, 0660, true},
                 {0777, 0660, false}, {01777, 0, false}, {0702, 0640, false}, {0770, 0640, false}};
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        char dir[64];
        rad_storage store;
        rad_error err;
        CHECK(mkdir(rig_dir(dir), 0700) == 0 && chmod(dir, cases[i].mode) == 0);
        rad_status status = open_as(NULL, dir, cases[i].asked, &store, &err);
        CHECKF(status == (cases[i].good ? RAD_OK : RAD_E_IO), "%zu: %s\n", i, err.text);
        if (status)
            CHECKF(strstr(err.text, "others may write into it") != NULL, "%s\n", err.text);
        else
            store.ops->close(store.self);
        rig_remove_dir(dir);
    }
}

/* ---- what is not opened ---- */

TEST(no_link_is_followed)
{
    char dir[64], other[64], path[160], target[160];
    rad_storage store;
    rad_error err;
    static const char *const names[] = {"lock", "index", "pages-4096.data"};
    CHECK(mkdir(rig_dir(other), 0700) == 0);
    rig_dir(dir);
    CHECK(symlink(other, dir) == 0);
    CHECK(open_as(NULL, dir, 0, &store, &err) == RAD_E_IO && strstr(err.text, "symbolic link"));
    snprintf(path, sizeof path, "%s//", dir); /* a slash behind it makes the kernel follow */
    CHECK(open_as(NULL, path, 0, &store, &err) == RAD_E_IO && strstr(err.text, "symbolic link"));
    CHECK(unlink(dir) == 0);
    for (size_t i = 0; i < RAD_COUNT(names); i++) {
        CHECK(mkdir(dir, 0700) == 0);
        path_of(path, dir, names[i]);
        path_of(target, other, "precious");
        write_file(other, "precious", "as it was", 9);
        CHECK(symlink(target, path) == 0);
        rad_status status = open_as(NULL, dir, 0, &store, &err);
        if (!status) { /* the data file is opened with the first page */
            CHECK(!rig_set(store, R, 1, &status));
            store.ops->close(store.self);
        }
        CHECKF(status == RAD_E_IO, "%s\n", names[i]);
        char bytes[16] = "";
        int fd = open(target, O_RDONLY);
        CHECK(read(fd, bytes, sizeof bytes) == 9 && !memcmp(bytes, "as it was", 9));
        close(fd);
        rig_remove_dir(dir);
    }
    /* A new index is written beside the old one: not through a link that waits there. */
    store = rig_open(dir, 1 << 20);
    store.ops->close(store.self);
    path_of(path, dir, "index");
    CHECK(unlink(path) == 0);
    path_of(path, dir, "index.new");
    CHECK(symlink(target, path) == 0);
    CHECK(open_as(NULL, dir, 0, &store, &err) == RAD_E_IO && strstr(err.text, "symbolic link"));
    CHECK(mode_of(other, "precious") == 0600);
    rig_remove_dir(dir);
    rig_remove_dir(other);
}

/* A pipe would hold whoever opens it, a directory is no file, another user's file is his. */
TEST(what_is_no_plain_file_of_ours_is_refused)
{
    for (int kind = 0; kind < 3; kind++) {
        if (kind == 2 && geteuid() != 0) continue; /* only root can give files away */
        for (int which = 0; which < 3; which++) {
            static const char *const names[] = {"lock", "index", "pages-4096.data"};
            char dir[64], path[160];
            rad_storage store;
            rad_error err;
            CHECK(mkdir(rig_dir(dir), 0700) == 0);
            path_of(path, dir, names[which]);
            if (kind == 0) CHECK(mkfifo(path, 0600) == 0);
            if (kind == 1) CHECK(mkdir(path, 0700) == 0);
            if (kind == 2) {
                write_file(dir, names[which], "", 0);
                CHECK(chown(path, NOBODY, NOBODY) == 0);
            }
            rad_status status = open_as(NULL, dir, 0, &store, &err);
            if (!status) {
                CHECK(!rig_set(store, R, 1, &status));
                store.ops->close(store.self);
            }
            CHECKF(status == RAD_E_IO, "%d %s: %s\n", kind, names[which], err.text);
            rig_remove_dir(dir);
        }
    }
    if (geteuid() != 0) return;
    char dir[64];
    rad_storage store;
    rad_error err;
    CHECK(mkdir(rig_dir(dir), 0700) == 0 && chown(dir, NOBODY, NOBODY) == 0);
    CHECK(open_as(NULL, dir, 0, &store, &err) == RAD_E_IO && strstr(err.text, "belongs to user"));
    rig_remove_dir(dir);
}

static void check_owner(const char *dir, const char *name, uid_t user, gid_t group)
{
    char path[160];
    struct stat st;
    path_of(path, dir, name);
    CHECK(lstat(path, &st) == 0);
    CHECKF(st.st_uid == user && st.st_gid == group, "%s %u:%u\n", name, st.st_uid, st.st_gid);
}

/* `radish inspect store` by root: a server's user owns the files, those too that are made again. */
TEST(root_may_look_at_a_store_and_takes_nothing_away)
{
    static const char *const names[] = {"index", "lock", "pages-4096.data"};
    char dir[64], path[160];
    rad_error err;
    if (geteuid() != 0) return;
    rad_storage store = rig_open(rig_dir(dir), 64 << 20);
    CHECK(rig_set(store, R, 1, NULL));
    store.ops->close(store.self);
    CHECK(chown(dir, NOBODY, NOBODY) == 0);
    for (size_t i = 0; i < RAD_COUNT(names); i++) {
        path_of(path, dir, names[i]);
        CHECK(chown(path, NOBODY, NOBODY) == 0);
    }
    for (int lost = 0; lost < 2; lost++) {
        CHECKF(!open_as(NULL, dir, FILE_MODE_AS_FOUND, &store, &err), "%s\n", err.text);
        CHECK(rig_get(store, R, 1, NULL));
        store.ops->close(store.self);
        for (size_t i = 0; i < RAD_COUNT(names); i++) {
            check_owner(dir, names[i], NOBODY, NOBODY);
            path_of(path, dir, names[i]);
            if (i < 2) CHECK(unlink(path) == 0); /* the index, the lock */
        }
    }
    rig_remove_dir(dir);
}

/* Also where the directory does not hand its group on. */
TEST(all_of_a_shared_store_is_its_groups)
{
    char dir[64];
    rad_storage store;
    rad_error err;
    if (geteuid() != 0) return; /* who else has a second group? */
    CHECK(mkdir(rig_dir(dir), 0700) == 0 && chown(dir, 0, NOBODY) == 0 && chmod(dir, 0770) == 0);
    CHECKF(!open_as(NULL, dir, 0660, &store, &err), "%s\n", err.text);
    spoil(store, dir, 1);
    store.ops->close(store.self);
    check_owner(dir, "index", 0, NOBODY);
    check_owner(dir, "quarantine", 0, NOBODY);
    rig_remove_dir(dir);
}

TEST(quarantine_removes_only_what_is_ours)
{
    static const char *const others[] = {
        "0000000001-notes.txt", "a.bad", "0000000000-", "backup",
        "0000000001-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.bad.old"};
    char dir[64], below[80], path[160], victim[160];
    rad_storage store = rig_open(rig_dir(dir), 64 << 20);
    spoil(store, dir, 1);
    snprintf(below, sizeof below, "%s/quarantine", dir);
    for (size_t i = 0; i < RAD_COUNT(others); i++)
        write_file(below, others[i], "mine", 4);
    /* Names like ours: a link, and a directory. */
    path_of(victim, dir, "victim");
    write_file(dir, "victim", "mine", 4);
    snprintf(path, sizeof path, "%s/0000000002-%064d.bad", below, 0);
    CHECK(symlink(victim, path) == 0);
    snprintf(path, sizeof path, "%s/0000000003-%064d.bad", below, 0);
    CHECK(mkdir(path, 0700) == 0);
    for (uint64_t id = 2; id < 2 * FILE_QUARANTINED; id++)
        spoil(store, dir, id);
    for (size_t i = 0; i < RAD_COUNT(others); i++)
        CHECK(mode_of(below, others[i]) == 0600);
    CHECK(mode_of(dir, "victim") == 0600);
    CHECK(mode_of(below,
                  "0000000002-0000000000000000000000000000000000000000000000000000000000000000"
                  ".bad") == 0777); /* the link itself */
    char command[200];
    snprintf(command, sizeof command, "test $(find %s -type f -name '[1-9]*.bad' | wc -l) -eq %d",
             below, FILE_QUARANTINED);
    CHECK(system(command) == 0); /* and of ours as many as there may be */
    store.ops->close(store.self);
    rig_remove_dir(dir);
}

/* ---- what an index claims ---- */

typedef struct test_header {
    char magic[8];
    uint64_t generation, era, zero[4], sum;
} test_header;

/* An index whose checksums are right. */
static void write_index(const char *dir, file_entry *entries, uint32_t count)
{
    struct {
        test_header h;
        file_entry entries[8];
    } file = {.h = {.magic = {'R', 'A', 'D', 'I', 'D', 'X', '1', '\n'}, .generation = 7, .era = 7}};
    file.h.sum = XXH3_64bits(&file.h, sizeof file.h - 8);
    for (uint32_t i = 0; i < count; i++) {
        entries[i].sum = XXH3_64bits_withSeed((char *)&entries[i] + 8, sizeof *entries - 8,
                                              7 ^ mix64(sizeof file.h + i * sizeof *entries));
        file.entries[i] = entries[i];
    }
    write_file(dir, "index", &file, sizeof file.h + count * sizeof *entries);
}

static size_t largest; /* block that was asked for */

static void *watch_alloc(void *user, size_t bytes)
{
    largest = RAD_MAX(largest, bytes);
    return test_env_alloc(user, bytes);
}

/* 192 bytes of index once took 2.1 GB: a class with very many slots, and one of the last. */
TEST(an_index_costs_no_more_than_what_it_is_an_index_of)
{
    static const file_op last[] = {FILE_TAKE, FILE_RELEASE, FILE_PUT};
    for (size_t i = 0; i < RAD_COUNT(last); i++) {
        char dir[64];
        test_env t;
        rad_env env = test_env_init(&t);
        env.alloc = watch_alloc;
        largest = 0;
        rad_storage store;
        rad_error err;
        file_entry entries[2] = {
            {.op = FILE_CLASS, .slot = FILE_MAX_SLOTS - 1, .record_bytes = R},
            {.op = (uint8_t)last[i], .slot = FILE_MAX_SLOTS - 1, .owner = 9, .key = {{1}}}};
        CHECK(mkdir(rig_dir(dir), 0700) == 0);
        write_index(dir, entries, 2);
        CHECKF(!open_as(&env, dir, 0, &store, &err), "%s\n", err.text);
        CHECKF(largest < 2 << 20, "%zu bytes\n", largest);
        file_store *s = store.self;
        CHECK(s->table.num_pages == 0);
        CHECK_OK(file_table_check(&s->table, &err));
        CHECK(rig_set(store, R, 1, NULL) && rig_get(store, R, 1, NULL));
        store.ops->close(store.self);
        CHECK(t.bytes == 0);
        rig_remove_dir(dir);
    }
}

/* Pages behind the end of their file are no pages; those within it are. */
TEST(a_page_lies_within_its_file)
{
    char dir[64], path[160];
    rad_storage store = rig_open(rig_dir(dir), 64 << 20);
    for (uint64_t id = 0; id < 10; id++)
        CHECK(rig_set(store, R, id, NULL));
    store.ops->close(store.self);
    path_of(path, dir, "pages-4096.data");
    CHECK(truncate(path, 6 * R - 1) == 0);
    store = rig_open(dir, 64 << 20);
    CHECK(rig_stats(store).pages == 5);
    for (uint64_t id = 0; id < 10; id++)
        CHECK(rig_get(store, R, id, NULL) == (id < 5));
    CHECK(rig_stats(store).quarantined == 0);
    for (uint64_t id = 0; id < 20; id++)
        CHECK(rig_set(store, R, id, NULL) && rig_get(store, R, id, NULL));
    store.ops->close(store.self);
    rig_remove_dir(dir);
}

/* ---- locks of others ---- */

static int lock_range(const char *dir, short type, off_t start, off_t len)
{
    char path[160];
    path_of(path, dir, "lock");
    int fd = open(path, O_RDWR);
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    CHECK(fd >= 0 && fcntl(fd, F_OFD_SETLK, &l) == 0);
    return fd;
}

typedef struct heard {
    char text[400];
    int count;
} heard;

static void hear(void *user, rad_log_level level, const char *text)
{
    heard *h = user;
    if (level != RAD_LOG_WARN) return;
    snprintf(h->text, sizeof h->text, "%s", text);
    h->count++;
}

/* Somebody reads the lock file under a shared lock, on all of it or on the owners' bytes alone: the
 * store is opened, says why its pages are misses, and is well once the lock is gone. */
TEST(a_shared_lock_of_somebody_else_is_reported_and_waited_for)
{
    for (int part = 0; part < 2; part++) {
        char dir[64];
        heard h = {0};
        rad_env env = rad_env_or_default(NULL);
        env.log = hear;
        env.user = &h;
        rad_storage store = rig_open(rig_dir(dir), 64 << 20);
        CHECK(rig_set(store, R, 1, NULL));
        store.ops->close(store.self);

        int fd = lock_range(dir, F_RDLCK, part ? 16 : 0, 0);
        rad_error err;
        rad_status status = open_as(&env, dir, 0, &store, &err);
        CHECKF(status == RAD_OK, "%s\n", err.text);
        CHECKF(h.count == 1 && strstr(h.text, "shared lock") && strstr(h.text, dir), "%s\n",
               h.text);
        CHECK(rig_stats(store).down);
        CHECK(!rig_set(store, R, 2, &status) && status == RAD_E_IO);
        CHECK(rig_get(store, R, 1, &status) ==
              part); /* with a number or without: readers need none */
        CHECK(status == (part ? RAD_OK : RAD_E_IO));
        close(fd);
        CHECK(rig_get(store, R, 1, NULL) && rig_set(store, R, 2, NULL));
        CHECK(!rig_stats(store).down);

        fd = lock_range(dir, F_RDLCK, 0, 1); /* in the middle of its life: who reads goes on */
        CHECK(!rig_set(store, R, 3, &status) && status == RAD_E_IO);
        CHECK(rig_get(store, R, 1, NULL) && rig_get(store, R, 2, NULL));
        close(fd);
        CHECK(rig_set(store, R, 3, NULL));
        store.ops->close(store.self);
        rig_remove_dir(dir);
    }
}

/* Slots of the dead are free again, also where somebody has shared locks on their bytes. */
TEST(a_shared_lock_keeps_nobody_alive)
{
    char dir[64];
    rad_storage store;
    rad_error err;
    file_entry entries[] = {{.op = FILE_CLASS, .record_bytes = R},
                            {.op = FILE_TAKE, .slot = 0, .owner = 150}};
    CHECK(mkdir(rig_dir(dir), 0700) == 0);
    write_index(dir, entries, 2);
    write_file(dir, "lock", "", 0);
    int fd = lock_range(dir, F_RDLCK, 16 + 100, 0);
    CHECKF(!open_as(NULL, dir, 0, &store, &err), "%s\n", err.text);
    CHECK(((file_store *)store.self)->table.num_taken == 0);
    store.ops->close(store.self);
    close(fd);
    rig_remove_dir(dir);
}

TEST_MAIN()
