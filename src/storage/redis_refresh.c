/* redis_refresh.c - the map of slots, asked of whoever answers.
 *
 * CLUSTER SLOTS is a list of [first, last, [host, port, ...], replicas...]. All of it comes
 * from outside: what makes no sense is passed over, and a slot that nobody has is a miss. A
 * Redis that is no cluster says so, and has all slots. */
#include "storage/redis_store.h"

#include <stdio.h>

enum { REFRESH_NS = 100 * 1000 * 1000, TRIES = 4, ANSWER_BYTES = 4 << 20 };

void redis_blame(redis_store *s, uint16_t node)
{
    uint64_t now = s->env.now_ns(s->env.user);
    pthread_mutex_lock(&s->lock);
    redis_map_failed(&s->map, node, now, s->max_backoff_ns);
    s->stats.down = redis_map_is_down(&s->map);
    pthread_mutex_unlock(&s->lock);
}

redis_link *redis_reach(redis_store *s, redis_lane *lane, uint16_t node, uint64_t deadline_ns,
                        char *why, size_t why_bytes)
{
    uint64_t now = s->env.now_ns(s->env.user);
    uint64_t probe = (uint64_t)(s->connect_timeout_ms + s->timeout_ms) * 1000000u;
    if (now >= deadline_ns) return NULL;
    pthread_mutex_lock(&s->lock);
    bool may = redis_map_may_try(&s->map, node, now, probe);
    redis_node n = s->map.nodes[node];
    pthread_mutex_unlock(&s->lock);
    redis_link *l = &lane->links[node];
    if (!may) {
        snprintf(why, why_bytes, "%.80s:%u failed a moment ago", n.host, n.port);
        return NULL;
    }
    if (l->ctx && l->number == n.number) return l;
    redis_link_close(l);
    uint64_t left_ms = (deadline_ns - now) / 1000000u + 1;
    uint32_t limit = (uint32_t)RAD_MIN(left_ms, (uint64_t)s->connect_timeout_ms);
    if (redis_link_open(l, &s->env, n.host, n.port, s->has_user ? s->user : NULL,
                        s->has_password ? s->password : NULL, limit)) {
        l->number = n.number;
        if (n.fails) {
            pthread_mutex_lock(&s->lock);
            s->stats.retries++;
            pthread_mutex_unlock(&s->lock);
        }
        return l;
    }
    snprintf(why, why_bytes, "%.60s:%u: %.80s", n.host, n.port, l->why);
    redis_blame(s, node);
    return NULL;
}

/* The node that a range names; an unknown host is that of the one we asked. */
static uint16_t range_node(redis_map *m, const redisReply *r, uint16_t asked)
{
    if (r->type != REDIS_REPLY_ARRAY || r->elements < 2 ||
        r->element[1]->type != REDIS_REPLY_INTEGER)
        return REDIS_NOWHERE;
    const redisReply *host = r->element[0];
    bool known = host->type == REDIS_REPLY_STRING && host->len > 0 &&
                 !((size_t)host->len == 1 && host->str[0] == '?');
    if (known && !redis_map_may_name(m, host->str, (size_t)host->len)) return REDIS_NOWHERE;
    if (known) return redis_map_node(m, host->str, (size_t)host->len, r->element[1]->integer);
    return redis_map_node(m, m->nodes[asked].host, strlen(m->nodes[asked].host),
                          r->element[1]->integer);
}

/* Under lock. */
static bool take_map(redis_map *m, const redisReply *reply, uint16_t asked)
{
    uint16_t slots[REDIS_SLOTS];
    uint32_t count = 0;
    memset(slots, 0xff, sizeof slots);
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *r = reply->element[i];
        if (r->type != REDIS_REPLY_ARRAY || r->elements < 3 ||
            r->element[0]->type != REDIS_REPLY_INTEGER ||
            r->element[1]->type != REDIS_REPLY_INTEGER)
            continue;
        long long first = r->element[0]->integer, last = r->element[1]->integer;
        uint16_t node = range_node(m, r->element[2], asked);
        if (first < 0 || last >= REDIS_SLOTS || first > last || node == REDIS_NOWHERE) continue;
        for (long long slot = first; slot <= last; slot++, count++)
            slots[slot] = node;
    }
    if (!count) return false;
    memcpy(m->slots, slots, sizeof slots);
    redis_map_forget_names(m);
    for (int slot = 0; slot < REDIS_SLOTS; slot++)
        if (slots[slot] != REDIS_NOWHERE) m->nodes[slots[slot]].is_named = 1;
    return true;
}

/* True: the map is new. */
static bool ask_one(redis_store *s, redis_lane *lane, uint16_t node, uint64_t deadline_ns,
                    char *why, size_t why_bytes)
{
    static const char *const argv[] = {"CLUSTER", "SLOTS"};
    redis_link *l = redis_reach(s, lane, node, deadline_ns, why, why_bytes);
    if (!l) return false;
    uint64_t limit = s->env.now_ns(s->env.user) + (uint64_t)s->connect_timeout_ms * 1000000u;
    redisReply *reply =
        redis_link_ask(l, &s->env, RAD_MIN(limit, deadline_ns), ANSWER_BYTES, 2, argv);
    bool fresh = false;
    if (!reply) {
        snprintf(why, why_bytes, "%.120s", l->why);
        redis_blame(s, node);
        return false;
    }
    pthread_mutex_lock(&s->lock);
    if (reply->type == REDIS_REPLY_ARRAY) {
        fresh = take_map(&s->map, reply, node);
        if (!fresh) snprintf(why, why_bytes, "the cluster has no slots yet");
    } else if (reply->type == REDIS_REPLY_ERROR &&
               (strstr(reply->str, "cluster support") || strstr(reply->str, "unknown command"))) {
        fresh = true;
        for (int i = 0; i < REDIS_SLOTS; i++)
            s->map.slots[i] = node;
    } else
        snprintf(why, why_bytes, "CLUSTER SLOTS: %.100s",
                 reply->type == REDIS_REPLY_ERROR ? reply->str : "a strange answer");
    if (fresh) redis_map_worked(&s->map, node);
    s->stats.down = redis_map_is_down(&s->map);
    pthread_mutex_unlock(&s->lock);
    freeReplyObject(reply);
    return fresh;
}

bool redis_refresh(redis_store *s, redis_lane *lane, uint64_t deadline_ns, char *why,
                   size_t why_bytes)
{
    uint64_t now = s->env.now_ns(s->env.user);
    pthread_mutex_lock(&s->lock);
    bool wait = now < s->refresh_after_ns;
    if (!wait) s->refresh_after_ns = now + REFRESH_NS;
    uint32_t nodes = s->map.num_nodes;
    s->map.random += 0x9e3779b97f4a7c15u;
    uint32_t first = (uint32_t)(s->map.random >> 33) % nodes;
    pthread_mutex_unlock(&s->lock);
    if (wait) return false;
    uint32_t asked = 0;
    for (uint32_t i = 0; i < nodes && asked < TRIES; i++) {
        uint16_t node = (uint16_t)((first + i) % nodes);
        pthread_mutex_lock(&s->lock);
        bool resting = s->map.nodes[node].fails && now < s->map.nodes[node].try_after_ns;
        pthread_mutex_unlock(&s->lock);
        if (resting) continue;
        asked++;
        if (ask_one(s, lane, node, deadline_ns, why, why_bytes)) return true;
    }
    return false;
}

void redis_advise(redis_store *s, redis_lane *lane, uint64_t deadline_ns)
{
    static const char *const argv[] = {"CONFIG", "GET", "maxmemory-policy"};
    char why[160];
    for (uint16_t node = 0; node < s->map.num_nodes; node++) {
        redis_link *l = &lane->links[node];
        if (!l->ctx || !redis_reach(s, lane, node, deadline_ns, why, sizeof why)) continue;
        redisReply *r = redis_link_ask(l, &s->env, deadline_ns, 65536, 3, argv);
        if (r && r->type == REDIS_REPLY_ARRAY && r->elements == 2 &&
            r->element[1]->type == REDIS_REPLY_STRING && !s->ttl_seconds &&
            !strcmp(r->element[1]->str, "noeviction"))
            rad_log(&s->env, RAD_LOG_WARN,
                    "storage: Redis at %s:%u has maxmemory-policy noeviction: it will be full one "
                    "day and take no more pages; set allkeys-lru, or a ttl",
                    s->map.nodes[node].host, s->map.nodes[node].port);
        if (r) freeReplyObject(r); /* where CONFIG is not allowed there is nothing to say */
        return;
    }
}
