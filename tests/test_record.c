/* test_record.c - a record is read as it was written, whatever the writer has forgotten meanwhile;
 * what is damaged is refused in words; and what cannot be written down is counted. */
#include "engine/recorder.h"
#include "replay/replay_record.h"
#include "replay/simulate.h"
#include "sched/cache_tap.h"
#include "sched/scheduler_stats.h"
#include "test.h"
#include "trace/record_hash.h"
#include "trace/record_read.h"
#include "trace/record_write.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* The vector of SipHash's authors: 15 bytes 0, 1, 2 ... under the key 0, 1 ... 15. */
TEST(pages_are_named_by_siphash)
{
    const record_salt salt = {{0x0706050403020100u, 0x0f0e0d0c0b0a0908u}};
    const uint8_t rest[] = {8, 9, 10, 11, 12, 13, 14};
    CHECK(record_hash(&salt, 0x0706050403020100u, rest, sizeof rest) == 0xa129ca6149be45e5u);
    CHECK(record_hash(&salt, 1, rest, 4) != record_hash(&salt, 1, rest, 5));
}

/* ---- files in memory ---- */

typedef struct file {
    uint8_t *bytes;
    size_t len, cap;
    record_writer *w;
} file;

static const record_head head = {
    .max_total_tokens = 64, .page_size = 2, .max_rows = 8, .row_tokens = 64};

static void take_frame(file *f)
{
    const uint8_t *bytes;
    size_t len;
    record_write_frame(f->w, &bytes, &len);
    if (f->len + len > f->cap) f->bytes = realloc(f->bytes, f->cap = 2 * (f->len + len));
    if (len) memcpy(f->bytes + f->len, bytes, len);
    f->len += len;
}

static void file_init_of(file *f, uint32_t known_pages, const record_head *of)
{
    *f = (file){.w = record_writer_create(NULL, known_pages)};
    CHECK(f->w && record_write_head(f->w, of));
    take_frame(f);
}

static void file_init(file *f, uint32_t known_pages)
{
    file_init_of(f, known_pages, &head);
}

static void file_end(file *f)
{
    const uint8_t *bytes;
    size_t len;
    take_frame(f);
    CHECK(record_write_end(f->w, RECORD_STOPPED, &bytes, &len) && f->len + len <= f->cap);
    memcpy(f->bytes + f->len, bytes, len);
    f->len += len;
    record_writer_destroy(f->w);
}

static void put(file *f, record_kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                uint64_t e)
{
    const record_op op = {.kind = kind, .time_us = f->len, .field = {a, b, c, d, e}};
    CHECK(record_write(f->w, &op, 0, NULL, 0));
}

/* A chain of `count` pages: those of a random walk in a small tree of texts, so that many share. */
static void walk(uint64_t *dice, uint64_t *hashes, uint32_t count)
{
    uint64_t at = 1;
    for (uint32_t i = 0; i < count; i++) {
        at = at * 0x9e3779b97f4a7c15u + test_random(dice) % 2 + 1;
        hashes[i] = at | 1;
    }
}

enum { OPS = 400, MOST = 12 };

TEST(chains_come_back_whatever_was_forgotten)
{
    static const uint32_t known[] = {2, 16, 0};
    uint64_t seed = test_seed(), dice = seed;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        static uint64_t chains[OPS][MOST];
        uint32_t counts[OPS];
        file f;
        file_init(&f, known[k]);
        for (int i = 0; i < OPS; i++) {
            counts[i] = (uint32_t)(test_random(&dice) % MOST);
            walk(&dice, chains[i], counts[i]);
            const record_op op = {.kind = RECORD_ARRIVE,
                                  .time_us = (uint64_t)i * 7,
                                  .field = {(uint64_t)i, 0, 0, 0, counts[i] * 2}};
            CHECK(record_write(f.w, &op, 0, chains[i], counts[i]));
            if (test_random(&dice) % 20 == 0) take_frame(&f);
        }
        file_end(&f);

        record_reader *r;
        record_op op;
        rad_error err = {0};
        static uint64_t hash_of[OPS * MOST + 1]; /* by page */
        memset(hash_of, 0, sizeof hash_of);
        CHECK_OK(record_open(NULL, f.bytes, f.len, &r, &err));
        CHECK(record_get_head(r)->page_size == 2 && record_get_head(r)->row_tokens == 64);
        for (int i = 0; i < OPS; i++) {
            uint32_t pages[MOST];
            CHECKF(record_next(r, &op, &err) == RAD_OK, "seed %llu: %s\n", (unsigned long long)seed,
                   err.text);
            CHECK(op.kind == RECORD_ARRIVE && op.time_us == (uint64_t)i * 7 &&
                  op.field[0] == (uint64_t)i);
            CHECKF(op.num_pages == counts[i], "seed %llu, op %d\n", (unsigned long long)seed, i);
            record_chain(r, op.page, pages);
            for (uint32_t p = 0; p < counts[i]; p++) {
                if (!hash_of[pages[p]]) hash_of[pages[p]] = chains[i][p];
                CHECKF(hash_of[pages[p]] == chains[i][p], "seed %llu, op %d, page %u\n",
                       (unsigned long long)seed, i, p);
            }
        }
        /* And one page has one number. */
        for (uint32_t a = 1; a <= record_num_pages(r); a++)
            for (uint32_t b = 1; hash_of[a] && b < a; b++)
                CHECK(hash_of[a] != hash_of[b]);
        CHECK(record_next(r, &op, &err) == RAD_NONE && record_get_end(r) == RECORD_STOPPED);
        record_close(r);
        free(f.bytes);
    }
}

/* ---- hostile files ---- */

/* A request that comes, computes, publishes and leaves; with other bytes where the dice say so. */
static void write_requests(file *f, uint64_t *dice, bool wild)
{
    for (uint64_t id = 1; id <= 12; id++) {
        uint64_t hashes[MOST];
        uint32_t pages = (uint32_t)(2 + test_random(dice) % 6), tokens = 2 * pages + 1;
        const uint64_t name = record_write_namespace(f->w, id % 3, 0);
        walk(dice, hashes, pages);
        record_op op = {.kind = RECORD_ARRIVE, .field = {id, name, 0, 0, tokens}};
        if (wild && test_random(dice) % 4 == 0)
            op.field[test_random(dice) % 5] = test_random(dice) >> test_random(dice) % 64;
        if (op.field[1] > name) op.field[1] = name;
        CHECK(record_write(f->w, &op, 0, hashes, pages));
        for (int i = 0; wild && i < 4; i++) {
            record_kind kind =
                (record_kind)(RECORD_MATCH + test_random(dice) % (RECORD_KINDS - RECORD_MATCH));
            uint64_t v[5];
            for (int n = 0; n < 5; n++)
                v[n] = test_random(dice) % 3 ? test_random(dice) % 20
                                             : test_random(dice) >> test_random(dice) % 64;
            if (test_random(dice) % 2) v[0] = id;
            put(f, kind, v[0], v[1], v[2], v[3], v[4]);
        }
        put(f, RECORD_MATCH, id, tokens - 1, 0, 0, 0);
        put(f, RECORD_ADMIT, id, 0, 0, 0, 0);
        put(f, RECORD_EVICT, 4, 0, 0, 0, 0);
        put(f, RECORD_UNFINISHED, id, tokens, 0, 0, tokens - 1);
        put(f, RECORD_FINISHED, id, tokens, 1, 0, 0);
        put(f, RECORD_LEAVE, id, 1, 1, 0, 0);
    }
}

/* Whatever it says: words or a result, and all memory comes back. */
static rad_status read_all(const uint8_t *bytes, size_t len)
{
    test_env counted;
    rad_env env = test_env_failing_at(&counted, -1);
    rad_error err = {0};
    replay_result result;
    trace *t = NULL;
    rad_status status = replay_record(&env, bytes, len, &result, &err);
    CHECKF(status == RAD_OK || err.text[0], "%s\n", rad_status_name(status));
    if (trace_is_record(bytes, len)) {
        rad_status parsed = trace_parse(&env, bytes, len, &t, &err);
        CHECK(parsed == RAD_OK || (!t && err.text[0]));
        trace_free(t);
    }
    CHECK(counted.bytes == 0);
    return status;
}

TEST(a_record_of_wild_operations_is_replayed_or_refused)
{
    uint64_t seed = test_seed(), dice = seed;
    record_head tiers = head;
    tiers.host_tokens = 96;
    int fine = 0;
    for (int i = 0; i < 120; i++) {
        file f;
        file_init_of(&f, 0, i % 2 ? &tiers : &head);
        tiers.write_policy = (uint64_t)i % 3;
        write_requests(&f, &dice, i > 1);
        file_end(&f);
        rad_status status = read_all(f.bytes, f.len);
        CHECKF(i > 1 || status == RAD_OK, "seed %llu\n", (unsigned long long)seed);
        fine += status == RAD_OK;
        free(f.bytes);
    }
    CHECKF(fine > 2, "seed %llu: %d\n", (unsigned long long)seed, fine);
}

/* Each bit of it, the last frame's and the lengths' too: none may read as another record, nor as
 * one whose end was cut off. And wherever it is cut off: that is what it says. */
TEST(a_record_with_a_wrong_bit_is_refused_and_a_cut_one_is_read_so_far)
{
    uint64_t dice = test_seed();
    file f;
    file_init(&f, 0);
    write_requests(&f, &dice, false);
    take_frame(&f);
    put(&f, RECORD_EVICT, 4, 0, 0, 0, 0);
    file_end(&f);
    uint64_t before = 0;
    for (size_t len = 0; len < f.len; len++) {
        replay_result r;
        rad_error err = {0};
        uint8_t *exactly = malloc(len + !len);
        memcpy(exactly, f.bytes, len);
        rad_status status = replay_record(NULL, exactly, len, &r, &err);
        /* Within the magic and the head nothing was recorded; behind them it is what it is. */
        const bool headless = status == RAD_E_FORMAT && !before && len < 600;
        CHECKF(headless || (status == RAD_OK && r.end == RECORD_CUT && r.operations >= before),
               "%zu of %zu bytes: %s\n", len, f.len, err.text);
        if (status == RAD_OK) before = r.operations;
        free(exactly);
    }
    CHECK(before > 50);
    for (size_t bit = 0; bit < 8 * f.len; bit++) {
        replay_result r;
        rad_error err = {0};
        f.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        const rad_status status = replay_record(NULL, f.bytes, f.len, &r, &err);
        CHECKF(status == RAD_E_FORMAT && err.text[0], "bit %zu of byte %zu of %zu: %s\n", bit % 8,
               bit / 8, f.len, rad_status_name(status));
        f.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CHECK_OK(read_all(f.bytes, f.len));
    f.bytes[f.len++] = 0; /* something behind the end */
    CHECK(read_all(f.bytes, f.len) == RAD_E_FORMAT);
    free(f.bytes);
}

TEST(reading_survives_every_allocation_failing)
{
    uint64_t dice = 7;
    file f;
    file_init(&f, 0);
    write_requests(&f, &dice, false);
    file_end(&f);
    rad_status status = RAD_E_NOMEM;
    for (long n = 0; status == RAD_E_NOMEM; n++) {
        test_env counted;
        rad_env env = test_env_failing_at(&counted, n);
        replay_result r;
        trace *t = NULL;
        status = replay_record(&env, f.bytes, f.len, &r, NULL);
        CHECK(counted.bytes == 0);
        rad_status parsed = trace_parse(&env, f.bytes, f.len, &t, NULL);
        CHECK(parsed == RAD_OK || (parsed == RAD_E_NOMEM && !t));
        trace_free(t);
        CHECK(counted.bytes == 0);
    }
    CHECK_OK(status);
    free(f.bytes);
}

/* ---- the recorder ---- */

static void temp_name(char path[64])
{
    strcpy(path, "/tmp/radish-record-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    unlink(path);
}

static uint8_t *read_file(const char *path, size_t *len)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    uint8_t *bytes = malloc((size_t)st.st_size + 1);
    CHECK(bytes && read(fd, bytes, (size_t)st.st_size) == st.st_size);
    close(fd);
    *len = (size_t)st.st_size;
    return bytes;
}

/* Operations that nobody takes from the queue, as when the disk stands still. */
TEST(what_does_not_fit_is_counted_and_the_record_says_where)
{
    char path[64];
    rad_error err = {0};
    recorder *r;
    temp_name(path);
    const recorder_params p = {.path = path, .max_queue_bytes = 4096};
    CHECK_OK(recorder_create(NULL, &p, &r, &err));
    CHECK_OK(recorder_start(r, &head, &err));
    rad_token ids[1000];
    for (int i = 0; i < 1000; i++)
        ids[i] = i;
    req big = {.fill_ids = ids, .num_input = 1000, .arrival = 1},
        small = {.fill_ids = ids, .num_input = 5, .arrival = 2};
    recorder_tap(r, &(cache_tap_op){.kind = TAP_EVICT, .asked = 1});
    recorder_flush(r);
    /* 500 pages of 8 bytes: more than the queue ever has room for. */
    recorder_tap(r, &(cache_tap_op){.kind = TAP_ARRIVE, .r = &big});
    recorder_flush(r);
    recorder_tap(r, &(cache_tap_op){.kind = TAP_ARRIVE, .r = &small});
    recorder_flush(r);
    recorder_stats stats;
    recorder_get_stats(r, &stats);
    CHECK(stats.dropped == 1);
    recorder_destroy(r);
    size_t len;
    uint8_t *bytes = read_file(path, &len);
    static const record_kind want[] = {RECORD_EVICT, RECORD_LOST, RECORD_ARRIVE};
    record_reader *reader;
    record_op op;
    CHECK_OK(record_open(NULL, bytes, len, &reader, &err));
    for (int i = 0; i < 3; i++)
        CHECK(record_next(reader, &op, &err) == RAD_OK && op.kind == want[i]);
    CHECK(op.field[0] == 2 && op.num_pages == 2 && record_get_lost(reader) == 1);
    CHECK(record_next(reader, &op, &err) == RAD_NONE && record_get_end(reader) == RECORD_STOPPED);
    record_close(reader);
    free(bytes);
    unlink(path);
}

static void ignore_log(void *user, rad_log_level level, const char *message)
{
    *(int *)user += level == RAD_LOG_WARN && strstr(message, "cannot be written") != NULL;
}

/* A file that cannot grow any more, in the middle of a frame: as a full disk leaves it. */
TEST(a_full_disk_ends_the_record_and_nothing_else)
{
    char path[64];
    int warned = 0;
    rad_error err = {0};
    recorder *r;
    rad_env env = rad_env_or_default(NULL);
    struct rlimit before, small;
    env.user = &warned;
    env.log = ignore_log;
    temp_name(path);
    const recorder_params p = {.path = path};
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, SIG_IGN);
    small = before;
    small.rlim_cur = 1000;
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK_OK(recorder_create(&env, &p, &r, &err));
    CHECK_OK(recorder_start(r, &head, &err));
    for (int i = 0; i < 1000; i++) {
        recorder_tap(r, &(cache_tap_op){.kind = TAP_EVICT, .asked = (uint64_t)i});
        if (i % 100 == 99) recorder_flush(r);
    }
    recorder_destroy(r);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, SIG_DFL);
    CHECK(warned == 1);
    size_t len;
    uint8_t *bytes = read_file(path, &len);
    replay_result result;
    CHECK(len == 1000);
    CHECK_OK(replay_record(NULL, bytes, len, &result, &err));
    CHECK(result.end == RECORD_CUT && result.operations >= 100 && result.operations < 1000);
    free(bytes);
    unlink(path);
}

TEST(a_recorder_survives_every_allocation_failing)
{
    char path[64];
    recorder *r = NULL;
    temp_name(path);
    for (long n = 0; !r; n++) {
        test_env counted;
        rad_env env = test_env_failing_at(&counted, n);
        rad_error err = {0};
        const recorder_params p = {.path = path};
        rad_status status = recorder_create(&env, &p, &r, &err);
        CHECK(status == (r ? RAD_OK : RAD_E_NOMEM) && (r || err.text[0]));
        recorder_destroy(r);
        CHECK(counted.bytes == 0);
        unlink(path);
    }
}

TEST(a_record_that_is_there_is_kept)
{
    char path[64], second[80];
    rad_error err = {0};
    recorder *r;
    temp_name(path);
    const recorder_params p = {.path = path};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(recorder_create(NULL, &p, &r, &err));
        snprintf(second, sizeof second, "%s%s", path, i ? ".1" : "");
        CHECK(strcmp(recorder_path(r), second) == 0);
        recorder_destroy(r);
    }
    unlink(path);
    unlink(second);
    const recorder_params nowhere = {.path = "/tmp/no/such/place"};
    CHECK(recorder_create(NULL, &nowhere, &r, &err) == RAD_E_IO && !r &&
          strstr(err.text, "/tmp/no/such/place"));
}

/* Not beside it, either: a name without a record would stay behind. */
TEST(what_is_there_and_no_file_is_refused)
{
    static const char *const words[] = {"is a pipe", "is a directory", "is a link to nothing",
                                        "is a device"};
    for (int i = 0; i < 4; i++) {
        char path[64], beside[80];
        rad_error err = {0};
        recorder *r;
        struct stat st;
        temp_name(path);
        if (i == 0) CHECK(mkfifo(path, 0600) == 0);
        if (i == 1) CHECK(mkdir(path, 0700) == 0);
        if (i == 2) CHECK(symlink("/tmp/no/such/place", path) == 0);
        if (i == 3) CHECK(symlink("/dev/null", path) == 0);
        const recorder_params p = {.path = path};
        CHECK(recorder_create(NULL, &p, &r, &err) == RAD_E_INVAL && !r);
        CHECKF(strstr(err.text, words[i]) && strstr(err.text, path), "%s\n", err.text);
        snprintf(beside, sizeof beside, "%s.1", path);
        CHECK(stat(beside, &st) != 0);
        CHECK(remove(path) == 0);
    }
}

TEST_MAIN()
