/* test_storage_file.c - the file backend keeps what it acknowledged, in the order of use,
 * within its budget, for several users at once; and never hands out anything else. */
#define _GNU_SOURCE
#include "storage_rig.h"

#include "storage/file_store.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

enum { R = RIG_RECORD };

static void check_tables(rad_storage store)
{
    file_store *s = store.self;
    rad_error err = {0};
    pthread_mutex_lock(&s->state);
    rad_status status = file_table_check(&s->table, &err);
    pthread_mutex_unlock(&s->state);
    CHECKF(status == RAD_OK, "%s", err.text);
}

TEST(what_was_set_is_there_after_reopening)
{
    char dir[64];
    rad_storage store = rig_open(rig_dir(dir), 0);
    CHECK(!rig_get(store, R, 1, NULL));
    for (uint64_t id = 0; id < 100; id++)
        CHECK(rig_set(store, R, id, NULL));
    CHECK(rig_set(store, R, 5, NULL)); /* again */
    CHECK(rig_stats(store).pages == 100 && rig_stats(store).sets == 100);
    store.ops->close(store.self);
    store = rig_open(dir, 0);
    for (uint64_t id = 0; id < 100; id++)
        CHECK(rig_get(store, R, id, NULL));
    CHECK(!rig_get(store, R, 100, NULL));
    CHECK(rig_stats(store).bytes == 100 * R && rig_stats(store).hits == 100);
    CHECK(!rig_get(store, R + 64, 1, NULL)); /* of another size */
    check_tables(store);
    store.ops->close(store.self);
    rig_remove_dir(dir);
}

TEST(a_batch_is_read_and_written_whole)
{
    enum { N = 150 };
    char dir[64];
    rad_storage store = rig_open(rig_dir(dir), 0);
    static uint8_t bytes[N][R], want[R];
    rad_storage_key keys[N];
    void *records[N];
    uint8_t done[N];
    for (uint64_t i = 0; i < N; i++) {
        keys[i] = rig_key(i);
        records[i] = bytes[i];
        rig_record(bytes[i], R, i);
    }
    keys[149] = keys[3]; /* twice in one batch */
    memcpy(bytes[149], bytes[3], R);
    rad_storage_batch b = {
        .keys = keys, .records = records, .record_bytes = R, .count = N, .done = done};
    uint32_t present = 99;
    CHECK(store.ops->batch_exists(store.self, &b, &present, NULL) == RAD_OK && present == 0);
    CHECK(store.ops->batch_set(store.self, &b, NULL) == RAD_OK);
    for (int i = 0; i < N; i++)
        CHECK(done[i] == 1);
    CHECK(store.ops->batch_exists(store.self, &b, &present, NULL) == RAD_OK && present == N);
    CHECK(store.ops->remove(store.self, &keys[70], NULL) == RAD_OK);
    CHECK(store.ops->batch_exists(store.self, &b, &present, NULL) == RAD_OK && present == 70);
    memset(bytes, 0, sizeof bytes);
    CHECK(store.ops->batch_get(store.self, &b, NULL) == RAD_OK);
    for (uint64_t i = 0; i < N; i++) {
        CHECK(done[i] == (i != 70));
        rig_record(want, R, i == 149 ? 3 : i);
        CHECK(i == 70 || memcmp(want, bytes[i], R) == 0);
    }
    CHECK(rig_stats(store).pages == N - 2);
    check_tables(store);
    store.ops->close(store.self);
    rig_remove_dir(dir);
}

TEST(a_batch_that_makes_no_sense_is_refused)
{
    char dir[64];
    rad_storage store = rig_open(rig_dir(dir), 0), other;
    rad_storage_key key = rig_key(1);
    void *record = &key;
    rad_storage_batch b = {.keys = &key, .records = &record, .record_bytes = 100, .count = 1};
    CHECK(store.ops->batch_set(store.self, &b, NULL) == RAD_E_INVAL);
    CHECK(store.ops->batch_get(store.self, &b, NULL) == RAD_E_INVAL);
    b.keys = NULL;
    CHECK(store.ops->batch_get(store.self, &b, NULL) == RAD_E_INVAL);
    b.count = 0;
    b.record_bytes = R;
    CHECK(store.ops->batch_get(store.self, &b, NULL) == RAD_OK);
    CHECK(store.ops->medium == RAD_STORAGE_DISK);
    store.ops->close(store.self);
    rig_remove_dir(dir);

    rad_error err = {0};
    rad_storage_file_params p = {.struct_size = sizeof p};
    CHECK(rad_storage_file_open(NULL, &p, &other, &err) == RAD_E_INVAL && err.text[0]);
    p.dir = "/proc/radish/store";
    CHECK(rad_storage_file_open(NULL, &p, &other, &err) == RAD_E_IO && !other.ops);
    CHECK(strstr(err.text, "/proc/radish/store"));
    p.fsync = 3;
    CHECK(rad_storage_file_open(NULL, &p, &other, &err) == RAD_E_INVAL);
}

TEST(a_deadline_that_passed_gives_misses)
{
    char dir[64];
    rad_storage store = rig_open(rig_dir(dir), 0);
    CHECK(rig_set(store, R, 1, NULL));
    rad_storage_key key = rig_key(1);
    uint8_t record[R], done = 9;
    void *records[1] = {record};
    rad_storage_batch b = {.keys = &key,
                           .records = records,
                           .record_bytes = R,
                           .count = 1,
                           .deadline_ns = 1,
                           .done = &done};
    CHECK(store.ops->batch_get(store.self, &b, NULL) == RAD_OK && done == 0);
    CHECK(store.ops->batch_set(store.self, &b, NULL) == RAD_OK);
    store.ops->close(store.self);
    rig_remove_dir(dir);
}

TEST(every_failing_allocation_is_survived)
{
    char dir[64];
    rig_dir(dir);
    for (long n = 0, good = 0; !good; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_storage_file_params p = {.struct_size = sizeof p, .dir = dir};
        rad_storage store;
        rad_error err = {0};
        rad_status status = rad_storage_file_open(&env, &p, &store, &err);
        CHECKF(!status || (status == RAD_E_NOMEM && err.text[0]), "%d %s", status, err.text);
        for (uint64_t id = 0; !status && id < 40; id++)
            if (!rig_set(store, R, id, NULL)) status = RAD_E_NOMEM;
        good = !status;
        if (store.ops) {
            if (good) CHECK(rig_stats(store).pages == 40);
            store.ops->close(store.self);
        }
        CHECKF(t.bytes == 0, "%zu bytes are left after failing allocation %ld", t.bytes, n);
        CHECK(n < 1000);
    }
    rig_remove_dir(dir);
}

/* A dictionary with times of use is the model: the store must agree about every key after
 * every operation, evict exactly what was used longest ago, and remember all of it when it
 * is closed and opened. Two record sizes share the budget. */
TEST(random_operations_agree_with_a_dictionary)
{
    enum { IDS = 60, OPS = 3000, BUDGET = 24 };
    uint64_t seed = test_seed(), random = seed;
    struct {
        size_t bytes;
        uint64_t used;
    } model[IDS] = {{0}};
    char dir[64];
    rad_storage store = rig_open(rig_dir(dir), BUDGET * R);
    uint64_t clock = 0;
    for (uint64_t op = 0, ops = test_scale(OPS, 30 * OPS); op < ops; op++) {
        uint64_t id = test_random(&random) % IDS, what = test_random(&random) % 100;
        size_t bytes = id % 4 ? R : 2 * R;
        uint64_t total = 0;
        for (int i = 0; i < IDS; i++)
            total += model[i].bytes;
        if (what < 45) {
            CHECKF(rig_set(store, bytes, id, NULL), "seed %llu", (unsigned long long)seed);
            for (; !model[id].bytes && total + bytes > BUDGET * R;) {
                int oldest = -1;
                for (int i = 0; i < IDS; i++)
                    if (model[i].bytes && (oldest < 0 || model[i].used < model[oldest].used))
                        oldest = i;
                total -= model[oldest].bytes;
                model[oldest].bytes = 0;
            }
            model[id].bytes = bytes;
            model[id].used = ++clock;
        } else if (what < 90) {
            bool got = rig_get(store, bytes, id, NULL);
            CHECKF(got == (model[id].bytes != 0), "op %llu, id %llu: %d, seed %llu",
                   (unsigned long long)op, (unsigned long long)id, got, (unsigned long long)seed);
            if (got) model[id].used = ++clock;
        } else if (what < 95) {
            rad_storage_key key = rig_key(id);
            CHECK(store.ops->remove(store.self, &key, NULL) == RAD_OK);
            model[id].bytes = 0;
        } else if (what < 99) {
            store.ops->close(store.self);
            store = rig_open(dir, BUDGET * R);
        } else if (op % 7 == 0) {
            CHECK(store.ops->clear(store.self, NULL) == RAD_OK);
            memset(model, 0, sizeof model);
        }
        uint64_t pages = 0;
        total = 0;
        for (int i = 0; i < IDS; i++) {
            pages += model[i].bytes != 0;
            total += model[i].bytes;
        }
        rad_storage_stats stats = rig_stats(store);
        CHECKF(stats.pages == pages && stats.bytes == total, "op %llu, seed %llu",
               (unsigned long long)op, (unsigned long long)seed);
        if (op % 16 == 0) check_tables(store);
    }
    store.ops->close(store.self);
    rig_remove_dir(dir);
}

TEST(a_smaller_budget_keeps_what_was_used_last)
{
    char dir[64];
    rad_storage store = rig_open(rig_dir(dir), 0);
    for (uint64_t id = 0; id < 50; id++)
        CHECK(rig_set(store, R, id, NULL));
    CHECK(rig_get(store, R, 7, NULL));
    store.ops->close(store.self);
    store = rig_open(dir, 10 * R);
    CHECK(rig_stats(store).pages == 10 && rig_stats(store).evicted == 40);
    CHECK(rig_get(store, R, 7, NULL) && rig_get(store, R, 41, NULL));
    CHECK(!rig_get(store, R, 40, NULL));
    rad_status status;
    CHECK(!rig_set(store, 11 * R, 1000, &status) && status == RAD_FULL);
    store.ops->close(store.self);
    rig_remove_dir(dir);
}

TEST(the_index_does_not_grow_with_history)
{
    char dir[64], path[80];
    rad_storage store = rig_open(rig_dir(dir), 16 * R);
    for (uint64_t id = 0; id < 8000; id++)
        CHECK(rig_set(store, R, id, NULL));
    for (uint64_t id = 7990; id < 8000; id++)
        CHECK(rig_get(store, R, id, NULL));
    struct stat st;
    snprintf(path, sizeof path, "%s/index", dir);
    CHECK(!stat(path, &st) && st.st_size < 64 * (4096 + 200));
    snprintf(path, sizeof path, "%s/pages-%d.data", dir, R);
    CHECK(!stat(path, &st) && st.st_size <= 17 * R);
    store.ops->close(store.self);
    rig_remove_dir(dir);
}

/* Two opens are as two processes: nothing is shared but the directory. */
TEST(two_stores_on_one_directory_see_each_other)
{
    char dir[64];
    rad_storage a = rig_open(rig_dir(dir), 40 * R), b = rig_open(dir, 40 * R);
    uint64_t seed = test_seed(), random = seed;
    for (uint64_t id = 0; id < 3000; id++) {
        rad_storage one = test_random(&random) % 2 ? a : b, other = one.self == a.self ? b : a;
        CHECK(rig_set(one, R, id, NULL));
        CHECKF(rig_get(other, R, id, NULL), "id %llu seed %llu", (unsigned long long)id,
               (unsigned long long)seed);
        if (id >= 40) CHECK(!rig_get(one, R, id - 40, NULL));
    }
    CHECK(rig_stats(a).pages == 40);
    check_tables(a);
    check_tables(b);
    a.ops->close(a.self);
    b.ops->close(b.self);
    rig_remove_dir(dir);
}

typedef struct crowd {
    rad_storage store;
    uint64_t seed, got, set;
} crowd;

static void *one_of_a_crowd(void *arg)
{
    crowd *c = arg;
    for (int i = 0; i < 400; i++) {
        uint64_t id = test_random(&c->seed) % 60;
        if (test_random(&c->seed) % 2)
            c->set += rig_set(c->store, R, id, NULL);
        else
            c->got += rig_get(c->store, R, id, NULL);
    }
    return NULL;
}

/* Four threads on two stores with a budget of half the keys: slots change hands all the time
 * while others read them. rig_get checks every byte that is handed out. */
TEST(many_threads_never_get_a_wrong_page)
{
    char dir[64];
    rad_storage stores[2] = {rig_open(rig_dir(dir), 30 * R), rig_open(dir, 30 * R)};
    pthread_t threads[4];
    crowd crowds[4];
    for (uint64_t i = 0; i < 4; i++) {
        crowds[i] = (crowd){.store = stores[i % 2], .seed = test_seed() + i};
        CHECK(!pthread_create(&threads[i], NULL, one_of_a_crowd, &crowds[i]));
    }
    uint64_t got = 0, set = 0;
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        got += crowds[i].got;
        set += crowds[i].set;
    }
    CHECK(got > 100 && set > 100);
    for (int i = 0; i < 2; i++) {
        CHECK(rig_stats(stores[i]).quarantined == 0 && rig_stats(stores[i]).errors == 0);
        check_tables(stores[i]);
        stores[i].ops->close(stores[i].self);
    }
    rig_remove_dir(dir);
}

TEST(a_holder_of_the_lock_who_is_stopped_costs_a_deadline)
{
    char dir[64], path[80];
    rad_storage_file_params p = {
        .struct_size = sizeof p, .dir = rig_dir(dir), .lock_timeout_ms = 20};
    rad_storage store;
    CHECK(rad_storage_file_open(NULL, &p, &store, NULL) == RAD_OK);
    CHECK(rig_set(store, R, 1, NULL));
    snprintf(path, sizeof path, "%s/lock", dir);
    int fd = open(path, O_RDWR);
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    CHECK(fcntl(fd, F_OFD_SETLK, &l) == 0);
    rad_status status;
    CHECK(!rig_set(store, R, 2, &status) && status == RAD_E_IO);
    CHECK(rig_get(store, R, 1, NULL)); /* readers do not care */
    close(fd);
    CHECK(rig_set(store, R, 2, NULL));
    store.ops->close(store.self);
    rig_remove_dir(dir);
}

/* Entries that make no sense, or contradict each other, as a damaged index could have them. */
TEST(any_entries_leave_a_table_that_is_right)
{
    uint64_t seed = test_seed(), random = seed, most = 0;
    test_env t;
    rad_env env = test_env_init(&t);
    file_table table;
    file_table_init(&table, &env);
    for (uint64_t i = 0; i < test_scale(20000, 1000000); i++) {
        uint64_t dice = test_random(&random);
        file_entry e = {.op = (uint8_t)(dice % 10),
                        .class_ = (uint16_t)(dice >> 8 & 3),
                        .owner = (uint8_t)(dice >> 16 & 3),
                        .slot = (uint32_t)(dice >> 24 & 63),
                        .seq = dice >> 32,
                        .used = (uint32_t)i};
        if (e.op == FILE_CLASS)
            e.record_bytes = (dice >> 32 & 7) * 4000;
        else
            e.key = rig_key(dice >> 32 & 63);
        if (e.op == FILE_CLEAR && dice >> 40 & 63) continue;
        if (dice >> 50 & 1 && !(dice >> 51 & 31)) e.slot = 0x80000000u | (uint32_t)dice;
        if (dice >> 50 & 1 && !(dice >> 56 & 31)) e.class_ = (uint16_t)(dice >> 20);
        rad_status status = file_table_apply(&table, &e);
        CHECK(status == RAD_OK || status == RAD_E_FORMAT);
        most = RAD_MAX(most, (uint64_t)table.num_pages);
        rad_error err = {0};
        if (i % 16 == 0)
            CHECKF(!file_table_check(&table, &err), "%s, seed %llu", err.text,
                   (unsigned long long)seed);
    }
    CHECK(most > 0); /* the last event may have cleared it */
    file_table_reset(&table);
    CHECK(t.bytes == 0);
}

TEST_MAIN()
