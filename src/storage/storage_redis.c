/* storage_redis.c - pages as strings in Redis: the backend's table and its callers' lanes.
 *
 *     caller -> a lane of its own (a connection per node) -> redis_ask: rounds of questions
 *                   map of slots, rests of failed nodes: shared, under a lock (redis_map)
 *
 * hiredis connects and parses; everything that decides is here. Its blocking interface is
 * not used, since it waits per read and a server that sends one byte at a time would hold
 * a call for ever. */
#define _GNU_SOURCE
#include "storage/redis_store.h"

#include <ctype.h>
#include <stdio.h>
#include <time.h>

#include "base/params.h"

static redis_lane *take_lane(redis_store *s, uint64_t deadline_ns)
{
    for (long pause = 50000;; pause = RAD_MIN(pause * 2, 2000000)) {
        for (uint32_t i = 0; i < s->num_lanes; i++)
            if (!pthread_mutex_trylock(&s->lanes[i].busy)) return &s->lanes[i];
        if (s->env.now_ns(s->env.user) >= deadline_ns) return NULL;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    }
}

/* One kind of question about a whole batch. `stop`: at the first page that is not there. */
static rad_status ask_batch(redis_store *s, redis_what what, const rad_storage_batch *b, bool stop,
                            uint8_t *there, bool *full, rad_error *err)
{
    redis_found found = {.there = there};
    uint64_t now = s->env.now_ns(s->env.user);
    uint64_t deadline = now + (uint64_t)s->timeout_ms * 1000000u;
    if (b->deadline_ns) deadline = RAD_MIN(deadline, b->deadline_ns);
    if (now >= deadline) return RAD_OK;
    redis_lane *lane = take_lane(s, deadline);
    if (!lane) return RAD_OK;
    bool go_on = true;
    for (uint32_t from = 0; from < b->count && go_on; from += REDIS_CHUNK) {
        uint32_t count = RAD_MIN(b->count - from, (uint32_t)REDIS_CHUNK), before = found.answered;
        redis_ask(s, lane, what, b, from, count, deadline, &found);
        go_on = found.answered > before && s->env.now_ns(s->env.user) < deadline;
        for (uint32_t i = from; stop && i < from + count; i++)
            go_on &= there[i] != 0;
    }
    pthread_mutex_unlock(&lane->busy);
    if (full) *full = found.full;
    if (found.answered || !found.errors) return RAD_OK;
    return rad_fail(err, RAD_E_IO, "storage: Redis: %s",
                    found.why[0] ? found.why : "no node can be asked");
}

static rad_status check(const rad_storage_batch *b, bool records, rad_error *err)
{
    if (!b || (b->count && (!b->keys || (records && !b->records))))
        return rad_fail(err, RAD_E_INVAL, "storage: a batch without keys or records");
    if (records && (b->record_bytes < RAD_STORAGE_HEADER_BYTES || b->record_bytes > 512u << 20))
        return rad_fail(err, RAD_E_INVAL, "storage: Redis takes no records of %zu bytes",
                        b->record_bytes);
    if (b->done) memset(b->done, 0, b->count);
    return RAD_OK;
}

enum { PART = 1024 }; /* pages of a batch that are asked for together */

/* Large batches in parts, so that what is known of them fits on the stack. */
static rad_status ask_parts(redis_store *s, redis_what what, const rad_storage_batch *b,
                            uint32_t *yes, rad_error *err)
{
    bool exists = what == REDIS_EXISTS, any_full = false;
    *yes = 0;
    for (uint32_t from = 0; from < b->count; from += PART) {
        uint8_t there[PART] = {0};
        bool full = false;
        rad_storage_batch part = *b;
        part.keys += from;
        if (b->records) part.records += from;
        part.count = RAD_MIN(b->count - from, (uint32_t)PART);
        rad_status status = ask_batch(s, what, &part, exists, there, &full, err);
        any_full |= full;
        for (uint32_t i = 0; i < part.count; i++) {
            if (exists && !there[i]) return status;
            *yes += there[i];
            if (b->done && !exists) b->done[from + i] = there[i];
        }
        if (status && !any_full) return status;
    }
    return any_full ? RAD_FULL : RAD_OK;
}

static rad_status redis_batch_exists(void *self, const rad_storage_batch *b, uint32_t *present,
                                     rad_error *err)
{
    *present = 0;
    rad_status status = check(b, false, err);
    return status ? status : ask_parts(self, REDIS_EXISTS, b, present, err);
}

static rad_status redis_batch_get(void *self, const rad_storage_batch *b, rad_error *err)
{
    redis_store *s = self;
    uint32_t yes;
    rad_status status = check(b, true, err);
    if (status) return status;
    status = ask_parts(s, REDIS_GET, b, &yes, err);
    pthread_mutex_lock(&s->lock);
    s->stats.gets += b->count;
    s->stats.hits += yes;
    pthread_mutex_unlock(&s->lock);
    return status;
}

static rad_status redis_batch_set(void *self, const rad_storage_batch *b, rad_error *err)
{
    redis_store *s = self;
    uint32_t yes;
    rad_status status = check(b, true, err);
    if (status) return status;
    status = ask_parts(s, REDIS_SET, b, &yes, err);
    pthread_mutex_lock(&s->lock);
    s->stats.sets += yes;
    pthread_mutex_unlock(&s->lock);
    return status;
}

static rad_status redis_remove(void *self, const rad_storage_key *key, rad_error *err)
{
    uint32_t yes;
    rad_storage_batch b = {.keys = key, .count = 1};
    return ask_parts(self, REDIS_DEL, &b, &yes, err);
}

static rad_status clear(void *self, rad_error *err)
{
    redis_store *s = self;
    uint64_t limit = s->env.now_ns(s->env.user) + (uint64_t)s->timeout_ms * 1000000u;
    redis_lane *lane = take_lane(s, limit);
    if (!lane) return rad_fail(err, RAD_E_IO, "storage: Redis: too many callers");
    rad_status status = redis_clear(s, lane, err);
    pthread_mutex_unlock(&lane->busy);
    return status;
}

static void redis_end_clear(void *self)
{
    redis_store *s = self;
    atomic_store(&s->clear_cancelled, true);
}

static void redis_get_stats(void *self, rad_storage_stats *stats)
{
    redis_store *s = self;
    pthread_mutex_lock(&s->lock);
    *stats = s->stats;
    pthread_mutex_unlock(&s->lock);
}

static void redis_close(void *self)
{
    redis_store *s = self;
    rad_env env = s->env;
    for (uint32_t i = 0; s->lanes && i < s->num_lanes; i++) {
        for (int node = 0; node < REDIS_NODES; node++)
            redis_link_close(&s->lanes[i].links[node]);
        pthread_mutex_destroy(&s->lanes[i].busy);
    }
    rad_free(&env, s->lanes, s->num_lanes * sizeof *s->lanes);
    pthread_mutex_destroy(&s->lock);
    explicit_bzero(s->password, sizeof s->password);
    rad_free(&env, s, sizeof *s);
}

static const rad_storage_ops ops = {
    .struct_size = sizeof ops,
    .name = "redis",
    .batch_exists = redis_batch_exists,
    .batch_get = redis_batch_get,
    .batch_set = redis_batch_set,
    .remove = redis_remove,
    .clear = clear,
    .get_stats = redis_get_stats,
    .close = redis_close,
    .end_clear = redis_end_clear,
};

static bool good_prefix(const char *prefix)
{
    for (const char *c = prefix; *c; c++)
        if (!isgraph((unsigned char)*c) || *c == '{' || *c == '}') return false;
    return strlen(prefix) <= 64;
}

static rad_status take_params(redis_store *s, const rad_storage_redis_params *p, rad_error *err)
{
    const char *prefix = p->prefix ? p->prefix : "radish:";
    if (!good_prefix(prefix))
        return rad_fail(err, RAD_E_INVAL, "storage_redis: '%.80s' is no prefix for names", prefix);
    if (p->user && !p->password)
        return rad_fail(err, RAD_E_INVAL, "storage_redis: a user without a password");
    if ((p->user && strlen(p->user) >= sizeof s->user) ||
        (p->password && strlen(p->password) >= sizeof s->password))
        return rad_fail(err, RAD_E_INVAL, "storage_redis: a user or password that is too long");
    if (p->threads > 64)
        return rad_fail(err, RAD_E_INVAL, "storage_redis: %u threads, at most 64", p->threads);
    snprintf(s->prefix, sizeof s->prefix, "%s", prefix);
    s->has_user = p->user != NULL;
    s->has_password = p->password != NULL;
    snprintf(s->user, sizeof s->user, "%s", p->user ? p->user : "");
    snprintf(s->password, sizeof s->password, "%s", p->password ? p->password : "");
    s->ttl_seconds = p->ttl_seconds;
    s->connect_timeout_ms = p->connect_timeout_ms ? p->connect_timeout_ms : 500;
    s->timeout_ms = p->timeout_ms ? p->timeout_ms : 2000;
    s->num_lanes = p->threads ? p->threads : 4;
    s->max_backoff_ns = (p->max_backoff_ms ? p->max_backoff_ms : 10000) * 1000000ull;
    rad_status status = redis_map_seeds(&s->map, p->nodes, err);
    return status ? status : redis_map_allow(&s->map, p->allowed_hosts, err);
}

rad_status rad_storage_redis_open(const rad_env *env_or_null,
                                  const rad_storage_redis_params *params, rad_storage *out,
                                  rad_error *err)
{
    rad_env env = rad_env_or_default(env_or_null);
    rad_storage_redis_params p;
    *out = (rad_storage){0};
    rad_status status = rad_params_read(&p, sizeof p, params, "storage_redis", err);
    if (status) return status;
    redis_store *s = rad_alloc(&env, sizeof *s);
    if (!s) return rad_fail(err, RAD_E_NOMEM, "storage_redis: no memory");
    s->env = env;
    pthread_mutex_init(&s->lock, NULL);
    status = take_params(s, &p, err);
    if (!status) {
        s->lanes = rad_alloc(&env, s->num_lanes * sizeof *s->lanes);
        if (!s->lanes)
            status =
                rad_fail(err, RAD_E_NOMEM, "storage_redis: no memory for %u callers", s->num_lanes);
    }
    for (uint32_t i = 0; s->lanes && i < s->num_lanes; i++)
        pthread_mutex_init(&s->lanes[i].busy, NULL);
    if (status) {
        redis_close(s);
        return status;
    }
    s->map.random = env.now_ns(env.user) ^ (uint64_t)(uintptr_t)s;
    char why[160] = "";
    uint64_t deadline = env.now_ns(env.user) +
                        (uint64_t)(s->connect_timeout_ms + s->timeout_ms) * 1000000u;
    if (redis_refresh(s, &s->lanes[0], deadline, why, sizeof why))
        redis_advise(s, &s->lanes[0], deadline);
    else
        rad_log(&env, RAD_LOG_WARN, "storage: Redis at %.200s cannot be used yet: %s", p.nodes,
                why);
    *out = (rad_storage){&ops, s};
    return RAD_OK;
}
