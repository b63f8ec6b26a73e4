/* redis_clear.c - forgets all pages under our prefix, of whichever server they are.
 *
 * SCAN walks each node that has slots, and what has the shape of a name of ours is deleted
 * page by page, since a cluster takes only names of one slot together. What others store
 * meanwhile may stay. */
#include "storage/redis_store.h"

#include <stdio.h>

#define CLEAR_NS 60000000000ull
enum { SCAN_BYTES = 4 << 20 };

/* PREFIX + 64 digits -> key. */
static bool key_of(const redis_store *s, const redisReply *name, rad_storage_key *key)
{
    size_t prefix = strlen(s->prefix);
    if (name->type != REDIS_REPLY_STRING || (size_t)name->len != prefix + 64 ||
        memcmp(name->str, s->prefix, prefix) != 0)
        return false;
    for (size_t i = 0; i < 64; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = memchr(digits, name->str[prefix + i], 16);
        if (!digit) return false;
        uint8_t *byte = &key->bytes[i / 2];
        *byte = (uint8_t)(*byte << 4 | (digit - digits));
    }
    return true;
}

/* As a pattern that matches only itself, and then whatever follows. */
static void pattern_of(const char *prefix, char pattern[140])
{
    size_t at = 0;
    for (; *prefix; prefix++) {
        if (strchr("*?[]\\^-", *prefix)) pattern[at++] = '\\';
        pattern[at++] = *prefix;
    }
    pattern[at++] = '*';
    pattern[at] = 0;
}

/* The deadline of one command: no command of a clear waits longer than any other call. */
static uint64_t command_deadline(const redis_store *s, uint64_t deadline_ns)
{
    return RAD_MIN(deadline_ns, s->env.now_ns(s->env.user) + (uint64_t)s->timeout_ms * 1000000u);
}

/* Deletes what one answer of SCAN names. */
static bool delete_all(redis_store *s, redis_lane *lane, const redisReply *names,
                       uint64_t deadline_ns)
{
    rad_storage_key keys[REDIS_CHUNK];
    uint32_t count = 0;
    for (size_t i = 0; i <= names->elements; i++) {
        if (i < names->elements) count += key_of(s, names->element[i], &keys[count]);
        if (count < REDIS_CHUNK && i < names->elements) continue;
        uint8_t there[REDIS_CHUNK];
        redis_found found = {.there = there};
        rad_storage_batch b = {.keys = keys, .count = count};
        if (count)
            redis_ask(s, lane, REDIS_DEL, &b, 0, count, command_deadline(s, deadline_ns), &found);
        if (found.errors || atomic_load(&s->clear_cancelled)) return false;
        count = 0;
    }
    return true;
}

static bool clear_node(redis_store *s, redis_lane *lane, uint16_t node, uint64_t deadline_ns,
                       char *why, size_t why_bytes)
{
    char cursor[32] = "0", pattern[140];
    pattern_of(s->prefix, pattern);
    do {
        if (atomic_load(&s->clear_cancelled)) {
            snprintf(why, why_bytes, "the clear was cancelled, the store is closing");
            return false;
        }
        snprintf(why, why_bytes, "SCAN does not end");
        const char *argv[] = {"SCAN", cursor, "MATCH", pattern, "COUNT", "500"};
        redis_link *l = redis_reach(s, lane, node, deadline_ns, why, why_bytes);
        if (!l) return false;
        l->stop = &s->clear_cancelled;
        redisReply *r =
            redis_link_ask(l, &s->env, command_deadline(s, deadline_ns), SCAN_BYTES, 6, argv);
        l->stop = NULL;
        bool good = r && r->type == REDIS_REPLY_ARRAY && r->elements == 2 &&
                    r->element[0]->type == REDIS_REPLY_STRING && r->element[0]->len < 32 &&
                    r->element[1]->type == REDIS_REPLY_ARRAY;
        if (good) {
            snprintf(cursor, sizeof cursor, "%s", r->element[0]->str);
            good = delete_all(s, lane, r->element[1], deadline_ns);
            if (!good) snprintf(why, why_bytes, "not all pages could be deleted");
        } else
            snprintf(why, why_bytes, "SCAN: %.100s",
                     !r                             ? l->why
                     : r->type == REDIS_REPLY_ERROR ? r->str
                                                    : "a strange answer");
        if (!r) redis_blame(s, node);
        if (r) freeReplyObject(r);
        if (!good) return false;
    } while (strcmp(cursor, "0") != 0);
    return true;
}

rad_status redis_clear(redis_store *s, redis_lane *lane, rad_error *err)
{
    uint64_t deadline = s->env.now_ns(s->env.user) + CLEAR_NS;
    bool used[REDIS_NODES] = {false};
    char why[160] = "no node is known";
    if (atomic_load(&s->clear_cancelled))
        return rad_fail(err, RAD_E_IO,
                        "storage: Redis: the clear was cancelled, the store is closing");
    (void)redis_refresh(s, lane, command_deadline(s, deadline), why, sizeof why);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < REDIS_SLOTS; i++)
        if (s->map.slots[i] != REDIS_NOWHERE) used[s->map.slots[i]] = true;
    pthread_mutex_unlock(&s->lock);
    bool any = false, all = true;
    for (uint16_t node = 0; node < REDIS_NODES; node++) {
        if (!used[node]) continue;
        any = true;
        all &= clear_node(s, lane, node, deadline, why, sizeof why);
    }
    return any && all ? RAD_OK : rad_fail(err, RAD_E_IO, "storage: Redis: %s", why);
}
