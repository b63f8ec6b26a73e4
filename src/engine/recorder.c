/* recorder.c - see the header.
 *
 * A batch of the queue is messages, one behind the other, each with the hashes of the pages that it
 * tells of. The thread gives pages and namespaces their numbers and writes frames.
 *
 * What of a request has been told stands in the request (req.recorded): how many pages, and the
 * hash of the last one. An operation that reaches further tells of the pages between first. */
#include "engine/recorder.h"

#include "base/compute_pool.h"
#include "engine/kv_queue.h"
#include "sched/cache_tap.h"
#include "sched/scheduler_stats.h"
#include "trace/record_hash.h"
#include "trace/record_write.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MOST_BATCHES = 1 << 16,
    QUEUE_BYTES = 64 << 20,
    BATCH_BYTES = 1 << 18, /* then it goes to the thread, flush or not */
    FRAME_BYTES = 1 << 16,
    MOST_NAMES = 1000, /* FILE.1 ... */
    END_BYTES = 64,    /* kept for the last frame */
    COUNTERS_S = 5
};

typedef struct message {
    record_op op;
    uint64_t before;
    uint64_t namespace; /* its hash */
    uint32_t count;     /* of hashes behind it */
    uint32_t reserved;
} message;

struct recorder {
    rad_env env;
    char *path;
    size_t path_bytes;
    int fd;
    uint64_t limit;
    uint64_t start_ns;
    record_salt salt;
    kv_queue queue;
    int wake_fd;
    pthread_t thread;
    bool started;
    atomic_bool stop;
    atomic_bool closed; /* the file is at its limit, or could not be written */

    /* The scheduler's thread: */
    uint32_t page_size;
    bool has_tier;
    bool kept; /* something is pinned or retained on it, and that was told */
    uint8_t *batch;
    size_t batch_len, batch_cap;
    uint64_t batch_ops;
    uint64_t lost; /* operations that the next batch is to tell of */
    uint64_t counters_ns;
    uint64_t counted_steps;

    _Atomic uint64_t bytes, operations, dropped;

    /* The thread's: */
    record_writer *writer;
    uint64_t frame_ops; /* in the writer, not written yet */
    record_end why;
};

/* ---- the scheduler's thread: messages ---- */

static void push_batch(recorder *r)
{
    if (!r->batch_len) return;
    if (!kv_queue_push(&r->queue, 0, r->batch, r->batch_len)) {
        atomic_fetch_add(&r->dropped, r->batch_ops);
        r->lost += r->batch_ops;
    }
    r->batch_len = 0;
    r->batch_ops = 0;
}

static bool make_room(recorder *r, size_t bytes)
{
    size_t cap = RAD_MAX(r->batch_cap, (size_t)BATCH_BYTES);
    while (cap < r->batch_len + bytes)
        cap *= 2;
    if (cap == r->batch_cap) return true;
    uint8_t *grown = rad_alloc(&r->env, cap);
    if (!grown) return false;
    if (r->batch_len) memcpy(grown, r->batch, r->batch_len);
    rad_free(&r->env, r->batch, r->batch_cap);
    r->batch = grown;
    r->batch_cap = cap;
    return true;
}

/* A place for a message with so many hashes behind it; NULL: it is dropped. */
static message *add(recorder *r, record_kind kind, uint32_t count)
{
    const size_t bytes = sizeof(message) + 8 * (size_t)count;
    if (atomic_load_explicit(&r->closed, memory_order_relaxed) || !make_room(r, bytes)) {
        atomic_fetch_add(&r->dropped, 1);
        r->lost++;
        return NULL;
    }
    message *m = (message *)(r->batch + r->batch_len);
    const uint64_t now_ns = r->env.now_ns(r->env.user);
    *m = (message){.op = {.kind = kind, .time_us = (now_ns - r->start_ns) / 1000}, .count = count};
    r->batch_len += bytes;
    r->batch_ops++;
    return m;
}

static message *begin(recorder *r, record_kind kind, uint32_t count)
{
    if (r->batch_len > BATCH_BYTES) push_batch(r);
    if (r->lost && !atomic_load_explicit(&r->closed, memory_order_relaxed)) {
        const uint64_t lost = r->lost;
        message *m = add(r, RECORD_LOST, 0);
        if (!m) return NULL;
        m->op.field[0] = lost;
        r->lost = 0;
    }
    return add(r, kind, count);
}

static void tell(recorder *r, record_kind kind, const uint64_t *fields, uint32_t count)
{
    message *m = begin(r, kind, 0);
    if (m) memcpy(m->op.field, fields, count * sizeof *fields);
}

#define TELL(r, kind, ...)                                                                         \
    do {                                                                                           \
        const uint64_t fields_[] = {__VA_ARGS__};                                                  \
        tell((r), (kind), fields_, RAD_COUNT(fields_));                                            \
    } while (0)

/* Hashes of `count` pages, behind the page of the hash `before`; written behind m where that is not
 * NULL. The last one's. */
static uint64_t hash_pages(const recorder *r, message *m, uint64_t before, const rad_token *tokens,
                           uint32_t count)
{
    const uint32_t ps = r->page_size;
    uint64_t hash = before;
    for (uint32_t i = 0; i < count; i++) {
        hash = record_hash(&r->salt, hash, tokens + (size_t)i * ps, ps * sizeof *tokens);
        if (!hash) hash = 1; /* 0 is no page */
        if (m) memcpy((uint8_t *)(m + 1) + 8 * (size_t)i, &hash, sizeof hash);
    }
    return hash;
}

/* The pages of q's first num_tokens tokens that were not told yet: hashes behind the message. */
static void tell_pages(recorder *r, message *m, req *q, uint32_t count)
{
    const rad_token *tokens = q->fill_ids + (size_t)q->recorded.pages * r->page_size;
    q->recorded.hash = hash_pages(r, m, q->recorded.hash, tokens, count);
    q->recorded.pages += count;
}

/* Nobody's name is 0, and NULL is another one than "". */
static uint64_t namespace_of(const recorder *r, const char *extra_key, const char *cache_salt)
{
    const char *const names[] = {extra_key, cache_salt};
    uint64_t hash = 0;
    if (!names[0] && !names[1]) return 0;
    for (int i = 0; i < 2; i++)
        hash = record_hash(&r->salt, hash + (names[i] != NULL), names[i] ? names[i] : "",
                           names[i] ? strlen(names[i]) : 0);
    return hash ? hash : 1;
}

static void tell_arrival(recorder *r, req *q)
{
    const uint32_t count = q->num_input / r->page_size;
    q->recorded.hash = q->recorded.pages = 0;
    message *m = begin(r, RECORD_ARRIVE, count);
    tell_pages(r, m, q, count);
    if (!m) return;
    m->namespace = namespace_of(r, q->extra_key, q->cache_salt);
    const uint64_t fields[] = {q->arrival, 0, q->session, record_zigzag(q->priority), q->num_input};
    memcpy(m->op.field, fields, sizeof fields);
}

static void tell_growth(recorder *r, req *q, uint32_t num_tokens)
{
    const uint32_t pages = num_tokens / r->page_size;
    if (pages <= q->recorded.pages) return;
    const uint32_t count = pages - q->recorded.pages;
    const uint64_t before = q->recorded.hash;
    message *m = begin(r, RECORD_GROW, count);
    tell_pages(r, m, q, count);
    if (!m) return;
    m->before = before;
    m->op.field[0] = q->arrival;
    m->op.field[1] = num_tokens;
}

/* Nodes that are renewed in one call have moments a little apart there, which keeps some from being
 * joined; a replay has one moment for the call. */
static void tell_kept(recorder *r)
{
    if (!r->has_tier || r->kept) return;
    recorder_inexact(r, RECORD_INEXACT_KEPT);
    r->kept = true;
}

static void tell_pin(recorder *r, const rad_key *key, uint64_t ttl_us)
{
    const uint32_t count = key->num_tokens / r->page_size;
    message *m = begin(r, RECORD_PIN_KEY, count);
    if (!m) return;
    (void)hash_pages(r, m, 0, key->tokens, count);
    m->namespace = namespace_of(r, key->extra_key, key->cache_salt);
    m->op.field[0] = key->num_tokens;
    m->op.field[2] = ttl_us;
}

void recorder_tap(recorder *r, const cache_tap_op *op)
{
    req *q = op->r;
    const uint64_t id = q ? q->arrival : 0, status = record_zigzag(op->status);
    if (q && op->kind != TAP_ARRIVE) tell_growth(r, q, op->num_tokens);
    switch (op->kind) {
    case TAP_ARRIVE: tell_arrival(r, q); break;
    case TAP_MATCH: TELL(r, RECORD_MATCH, id, op->num_tokens, op->answer); break;
    case TAP_BEGIN: TELL(r, RECORD_BEGIN, id, status); break;
    case TAP_DROP: TELL(r, RECORD_DROP, id); break;
    case TAP_ADMIT:
        TELL(r, RECORD_ADMIT, id, q->hits.cached, q->hits.loaded, q->hits.fetched, q->hits.copied);
        break;
    case TAP_UNFINISHED:
        TELL(r, RECORD_UNFINISHED, id, op->num_tokens, op->asked, status, op->answer, op->state_len,
             op->spare_len);
        break;
    case TAP_FINISHED:
        TELL(r, RECORD_FINISHED, id, op->num_tokens, op->asked, status, op->state_len,
             op->spare_len);
        break;
    case TAP_WINDOW: TELL(r, RECORD_WINDOW, id, op->num_tokens, op->asked, status); break;
    case TAP_EVICT_WINDOW: TELL(r, RECORD_EVICT_WINDOW, op->asked, op->answer); break;
    case TAP_PUT_STATE: TELL(r, RECORD_PUT_STATE, id, op->asked, status); break;
    case TAP_EVICT_STATE: TELL(r, RECORD_EVICT_STATE, op->asked, op->answer); break;
    case TAP_EVICT: TELL(r, RECORD_EVICT, op->asked, op->answer); break;
    case TAP_RELEASE_IDLE: TELL(r, RECORD_RELEASE_IDLE, op->asked, op->answer); break;
    case TAP_OPEN: TELL(r, RECORD_OPEN, op->asked, status); break;
    case TAP_CLOSE: TELL(r, RECORD_CLOSE, op->asked, status); break;
    case TAP_PIN:
        tell_kept(r);
        if (q)
            TELL(r, RECORD_PIN, id, op->num_tokens, op->asked / 1000);
        else
            tell_pin(r, op->key, op->asked / 1000);
        break;
    case TAP_RETAIN:
        tell_kept(r);
        TELL(r, RECORD_RETAIN, id, op->num_tokens, record_zigzag(q->retention_priority),
             q->retention_idle_ns / 1000);
        break;
    case TAP_RESET: TELL(r, RECORD_RESET, 0); break;
    case TAP_LEAVE: TELL(r, RECORD_LEAVE, id, (uint64_t)q->finish, q->num_output); break;
    case TAP_POLL: TELL(r, RECORD_POLL, op->free_pages); break;
    case TAP_COMPLETED: TELL(r, RECORD_COMPLETED, op->ticket, op->asked, status); break;
    case TAP_LOAD:
        TELL(r, RECORD_LOAD, id, op->num_tokens, op->asked, op->free_pages, op->answer,
             (uint64_t)op->status);
        break;
    case TAP_READY: TELL(r, RECORD_READY, 0); break;
    case TAP_LOADED: TELL(r, RECORD_LOADED, id, status); break;
    case TAP_CLEAR: TELL(r, RECORD_CLEAR, op->asked, status); break;
    case TAP_STORE: recorder_inexact(r, RECORD_INEXACT_TIERS); break;
    }
}

void recorder_inexact(recorder *r, record_inexact why)
{
    TELL(r, RECORD_INEXACT, why);
}

/* Of ns, as picoseconds; nothing for what no step has told yet. */
static uint64_t price(double ns)
{
    return ns > 0 && ns < 1e12 ? (uint64_t)(ns * 1000) : 0;
}

void recorder_counters(recorder *r, const scheduler_stats *stats, const rad_cache_stats *cache,
                       const recorder_prices *prices)
{
    r->counters_ns = r->env.now_ns(r->env.user);
    r->counted_steps = stats->forward_steps;
    TELL(r, RECORD_COUNTERS, stats->prompt_tokens, stats->cached_tokens, cache->evicted_tokens,
         cache->inserted_tokens, cache->num_nodes, cache->splits, cache->merges);
    const rad_hicache_stats *tiers = &stats->tiers;
    if (tiers->host_tokens)
        TELL(r, RECORD_TIER_COUNTERS, tiers->written_tokens, tiers->loaded_tokens,
             tiers->host_evicted_tokens, tiers->dropped_write_tokens, tiers->host_cached_tokens,
             tiers->failed_loads, tiers->failed_writes, tiers->tickets);
    if (prices->prompt_token > 0)
        TELL(r, RECORD_PRICES, price(prices->prompt_token), price(prices->pair),
             price(prices->decode), price(prices->step));
}

bool recorder_wants_counters(const recorder *r, uint64_t forward_steps)
{
    return forward_steps != r->counted_steps &&
           r->env.now_ns(r->env.user) - r->counters_ns >= (uint64_t)COUNTERS_S * 1000000000;
}

static void wake(const recorder *r)
{
    const uint64_t one = 1;
    const ssize_t n = write(r->wake_fd, &one, sizeof one);
    (void)n; /* a full counter wakes as well */
}

void recorder_flush(recorder *r)
{
    push_batch(r);
    if (kv_queue_count(&r->queue)) wake(r);
}

void recorder_get_stats(const recorder *r, recorder_stats *stats)
{
    *stats = (recorder_stats){.bytes = atomic_load(&r->bytes),
                              .operations = atomic_load(&r->operations),
                              .dropped = atomic_load(&r->dropped)};
}

const char *recorder_path(const recorder *r)
{
    return r->path;
}

/* ---- the thread: a file ---- */

static bool write_all(recorder *r, const uint8_t *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        const ssize_t n = write(r->fd, bytes + done, len - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            rad_log(&r->env, RAD_LOG_WARN,
                    "record: %s cannot be written, and ends here after %llu bytes: %s", r->path,
                    (unsigned long long)atomic_load(&r->bytes), n ? strerror(errno) : "disk full");
            atomic_store(&r->closed, true);
            return false;
        }
        done += (size_t)n;
    }
    atomic_fetch_add(&r->bytes, len);
    return true;
}

static void write_frame(recorder *r)
{
    const uint8_t *bytes;
    size_t len;
    record_write_frame(r->writer, &bytes, &len);
    const uint64_t ops = r->frame_ops;
    r->frame_ops = 0;
    if (!len) return;
    if (atomic_load(&r->closed)) {
        atomic_fetch_add(&r->dropped, ops);
        return;
    }
    if (atomic_load(&r->bytes) + len + END_BYTES > r->limit) {
        rad_log(&r->env, RAD_LOG_WARN,
                "record: %s is at its limit of %llu bytes and ends here; serving goes on", r->path,
                (unsigned long long)r->limit);
        r->why = RECORD_LIMIT;
        atomic_store(&r->closed, true);
        atomic_fetch_add(&r->dropped, ops);
        return;
    }
    if (write_all(r, bytes, len))
        atomic_fetch_add(&r->operations, ops);
    else
        atomic_fetch_add(&r->dropped, ops);
}

static void take_message(recorder *r, message *m, const uint64_t *hashes)
{
    bool fine = true;
    if (m->op.kind == RECORD_ARRIVE || m->op.kind == RECORD_PIN_KEY) {
        const uint32_t number = record_write_namespace(r->writer, m->namespace, m->op.time_us);
        m->op.field[1] = number;
        fine = number != UINT32_MAX;
    }
    if (fine && record_write(r->writer, &m->op, m->before, hashes, m->count))
        r->frame_ops++;
    else
        atomic_fetch_add(&r->dropped, 1); /* readers notice that a request was not told of */
}

static void take_batch(recorder *r, kv_batch *b)
{
    size_t frame = 0;
    for (size_t at = 0; at < b->len;) {
        message *m = (message *)(b->bytes + at);
        const size_t bytes = sizeof *m + 8 * (size_t)m->count;
        take_message(r, m, (const uint64_t *)(const void *)(m + 1));
        at += bytes;
        frame += bytes;
        if (frame < FRAME_BYTES) continue;
        write_frame(r);
        frame = 0;
    }
    kv_batch_free(b);
    write_frame(r);
}

static void *record_loop(void *arg)
{
    recorder *r = arg;
    for (;;) {
        const bool stop = atomic_load(&r->stop); /* before the queue is looked at */
        kv_batch *b;
        while ((b = kv_queue_pop(&r->queue)))
            take_batch(r, b);
        if (stop) return NULL;
        uint64_t count;
        const ssize_t n = read(r->wake_fd, &count, sizeof count); /* until there is something */
        (void)n;
    }
}

static void write_end(recorder *r)
{
    const uint8_t *bytes;
    size_t len;
    if (r->why == RECORD_STOPPED && atomic_load(&r->closed)) return; /* it cannot be written */
    if (record_write_end(r->writer, r->why, &bytes, &len)) (void)write_all(r, bytes, len);
}

/* ---- life ---- */

/* NULL: a file, or nothing. */
static const char *what_is(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) return lstat(path, &st) == 0 ? "a link to nothing" : NULL;
    switch (st.st_mode & S_IFMT) {
    case S_IFREG: return NULL;
    case S_IFDIR: return "a directory";
    case S_IFIFO: return "a pipe";
    case S_IFSOCK: return "a socket";
    default: return "a device";
    }
}

/* The first name that nobody has. */
static rad_status open_file(recorder *r, const char *path, rad_error *err)
{
    r->path_bytes = strlen(path) + 16;
    r->path = rad_alloc(&r->env, r->path_bytes);
    if (!r->path) return rad_fail(err, RAD_E_NOMEM, "record: no memory");
    const char *wrong = what_is(path);
    if (wrong)
        return rad_fail(err, RAD_E_INVAL,
                        "record: %s is %s; a record is a file: name one that is not there yet",
                        path, wrong);
    for (int i = 0; i < MOST_NAMES; i++) {
        if (i)
            snprintf(r->path, r->path_bytes, "%s.%d", path, i);
        else
            snprintf(r->path, r->path_bytes, "%s", path);
        r->fd = open(r->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
        if (r->fd >= 0) return RAD_OK;
        if (errno != EEXIST)
            return rad_fail(err, RAD_E_IO, "record: %s: %s", r->path, strerror(errno));
    }
    return rad_fail(err, RAD_E_IO, "record: %s and %s are there already: remove some", path,
                    r->path);
}

rad_status recorder_create(const rad_env *env, const recorder_params *params, recorder **out,
                           rad_error *err)
{
    *out = NULL;
    rad_env full = rad_env_or_default(env);
    recorder *r = rad_alloc(&full, sizeof *r);
    if (!r) return rad_fail(err, RAD_E_NOMEM, "record: no memory");
    r->env = full;
    r->fd = r->wake_fd = -1;
    r->limit = params->limit_bytes ? params->limit_bytes : RECORDER_LIMIT_BYTES;
    r->writer = record_writer_create(&full, 0);
    rad_status status = r->writer ? kv_queue_init(&r->queue, &full, MOST_BATCHES,
                                                  params->max_queue_bytes ? params->max_queue_bytes
                                                                          : (uint64_t)QUEUE_BYTES)
                                  : RAD_E_NOMEM;
    if (status != RAD_OK) rad_fail(err, status, "record: no memory");
    if (status == RAD_OK && getrandom(&r->salt, sizeof r->salt, 0) != sizeof r->salt)
        status =
            rad_fail(err, RAD_E_IO, "record: no random numbers for its salt: %s", strerror(errno));
    if (status == RAD_OK && (r->wake_fd = eventfd(0, EFD_CLOEXEC)) < 0)
        status = rad_fail(err, RAD_E_IO, "record: no file for its thread: %s", strerror(errno));
    if (status == RAD_OK) status = open_file(r, params->path, err);
    if (status != RAD_OK) {
        recorder_destroy(r);
        return status;
    }
    *out = r;
    return RAD_OK;
}

rad_status recorder_start(recorder *r, const record_head *head, rad_error *err)
{
    const uint8_t *bytes;
    size_t len;
    r->page_size = (uint32_t)head->page_size;
    r->has_tier = head->host_tokens > 0;
    r->start_ns = r->counters_ns = r->env.now_ns(r->env.user);
    if (!record_write_head(r->writer, head)) return rad_fail(err, RAD_E_NOMEM, "record: no memory");
    record_write_frame(r->writer, &bytes, &len);
    if (!write_all(r, bytes, len))
        return rad_fail(err, RAD_E_IO, "record: %s cannot be written", r->path);
    if (compute_thread_create(&r->thread, record_loop, r) != 0)
        return rad_fail(err, RAD_E_NOMEM, "record: no more threads");
    r->started = true;
    return RAD_OK;
}

void recorder_destroy(recorder *r)
{
    if (!r) return;
    if (r->started) {
        recorder_flush(r);
        atomic_store(&r->stop, true);
        wake(r);
        pthread_join(r->thread, NULL);
        write_end(r);
        (void)fdatasync(r->fd);
    }
    if (r->fd >= 0) close(r->fd);
    if (r->wake_fd >= 0) close(r->wake_fd);
    kv_queue_fini(&r->queue);
    record_writer_destroy(r->writer);
    rad_free(&r->env, r->batch, r->batch_cap);
    rad_free(&r->env, r->path, r->path_bytes);
    rad_env env = r->env;
    rad_free(&env, r, sizeof *r);
}
