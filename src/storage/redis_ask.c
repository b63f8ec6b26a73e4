/* redis_ask.c - one question per page, pipelined to all nodes at once, until all is answered.
 *
 *     round:  page -> slot -> node     commands to every node, then answers from every node
 *             MOVED, ASK, TRYAGAIN, a link that failed: those pages go into the next round
 *
 * Rounds are few and end at the deadline. A page is only called there after the answer that
 * says so; on whatever is unexpected the link is closed and the page is a miss. */
#include "storage/redis_store.h"

#include <stdio.h>
#include <time.h>

enum { ROUNDS = 6, BLAME_NS = 100 * 1000 * 1000 };

typedef enum item_state { WAITS, SENT, FINAL } item_state;

typedef struct item {
    item_state state;
    uint16_t slot, node;
    bool ask;   /* the node has it only for who says ASKING */
    bool asked; /* the answer to ASKING is here */
} item;

/* With one node, in one round. */
typedef struct talk {
    redis_link *link;
    uint16_t node;
    uint32_t items[REDIS_CHUNK], count, next;
} talk;

typedef struct asking {
    redis_store *s;
    redis_lane *lane;
    redis_what what;
    const rad_storage_batch *b;
    uint32_t from, count;
    uint64_t deadline_ns;
    redis_found *found;
    item items[REDIS_CHUNK];
    talk talks[REDIS_CHUNK];
    uint32_t num_talks;
    bool refresh, pause;
} asking;

static void count(redis_store *s, uint64_t errors, uint64_t retries)
{
    pthread_mutex_lock(&s->lock);
    s->stats.errors += errors;
    s->stats.retries += retries;
    pthread_mutex_unlock(&s->lock);
}

static void give_up(asking *a, item *it, const char *why)
{
    it->state = FINAL;
    a->found->errors++;
    if (why) snprintf(a->found->why, sizeof a->found->why, "%.150s", why);
    count(a->s, 1, 0);
}

static void answer(asking *a, uint32_t index, bool there)
{
    a->items[index].state = FINAL;
    a->found->answered++;
    a->found->there[a->from + index] = there;
}

static bool begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* Redis says no. */
static void on_error(asking *a, talk *t, item *it, const char *text)
{
    redis_store *s = a->s;
    uint16_t slot, node;
    bool moved = begins(text, "MOVED "), ask = begins(text, "ASK ");
    if (moved || ask) {
        pthread_mutex_lock(&s->lock);
        bool known = redis_map_redirect(&s->map, text, t->node, &slot, &node);
        if (known && moved && slot == it->slot && node != REDIS_NOWHERE) s->map.slots[slot] = node;
        s->stats.retries++;
        pthread_mutex_unlock(&s->lock);
        if (!known || slot != it->slot) {
            give_up(a, it, text);
            return;
        }
        it->state = WAITS;
        if (node == REDIS_NOWHERE) { /* a new map names it, if it is of the cluster */
            snprintf(a->found->why, sizeof a->found->why,
                     "%.100s: the cluster's map names no such node", text);
            it->ask = false;
            a->refresh = true;
            return;
        }
        it->ask = ask;
        it->node = node;
        a->refresh |= moved;
    } else if (begins(text, "TRYAGAIN")) { /* a slot is moving, and this page is on neither side */
        it->state = WAITS;
        a->pause = true;
        count(s, 0, 1);
    } else if (begins(text, "READONLY")) { /* it was a master when we last asked */
        it->state = WAITS;
        it->ask = false;
        a->refresh = true;
        count(s, 0, 1);
    } else {
        a->found->full |= begins(text, "OOM ");
        a->refresh |= begins(text, "CLUSTERDOWN") || begins(text, "MASTERDOWN");
        give_up(a, it, text);
    }
}

/* One answer on a link; false: it was not what was asked for. */
static bool on_answer(asking *a, talk *t)
{
    uint32_t index = t->items[t->next];
    item *it = &a->items[index];
    const redis_answer *r = &t->link->answer;
    if (it->ask && !it->asked) {
        it->asked = true;
        return r->type == REDIS_REPLY_STATUS;
    }
    t->next++;
    if (r->type == REDIS_REPLY_ERROR) {
        on_error(a, t, it, r->text);
        return true;
    }
    switch (a->what) {
    case REDIS_GET:
        if (r->type != REDIS_REPLY_STRING && r->type != REDIS_REPLY_NIL) return false;
        if (r->type == REDIS_REPLY_STRING && !r->taken) count(a->s, 1, 0); /* cut, or not ours */
        answer(a, index, r->taken);
        return true;
    case REDIS_SET:
        if (r->type != REDIS_REPLY_STATUS || strcmp(r->text, "OK") != 0) return false;
        answer(a, index, true);
        return true;
    default:
        if (r->type != REDIS_REPLY_INTEGER || r->integer < 0 || r->integer > 1) return false;
        answer(a, index, r->integer == 1);
        return true;
    }
}

static void queue_command(asking *a, redis_link *l, uint32_t index)
{
    const redis_store *s = a->s;
    char *head = a->lane->heads[index], name[REDIS_NAME + 1];
    memcpy(name, a->lane->names[index], sizeof name);
    static const char *const words[] = {"*2\r\n$6\r\nEXISTS\r\n", "*2\r\n$3\r\nGET\r\n",
                                        "*3\r\n$3\r\nSET\r\n", "*2\r\n$3\r\nDEL\r\n"};
    static const char with_ttl[] = "*5\r\n$3\r\nSET\r\n";
    bool ttl = a->what == REDIS_SET && s->ttl_seconds;
    int len = snprintf(head, REDIS_HEAD, "%s%s$%zu\r\n%s\r\n",
                       a->items[index].ask ? "*1\r\n$6\r\nASKING\r\n" : "",
                       ttl ? with_ttl : words[a->what], strlen(name), name);
    l->expected += a->items[index].ask ? 2 : 1;
    a->items[index].asked = false;
    if (a->what != REDIS_SET) {
        redis_link_queue(l, head, (size_t)len);
        return;
    }
    int tail_at = len +
                  snprintf(head + len, REDIS_HEAD - (size_t)len, "$%zu\r\n", a->b->record_bytes);
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%u", s->ttl_seconds);
    int tail = ttl ? snprintf(head + tail_at, REDIS_HEAD - (size_t)tail_at,
                              "\r\n$2\r\nEX\r\n$%zu\r\n%s\r\n", strlen(seconds), seconds)
                   : snprintf(head + tail_at, REDIS_HEAD - (size_t)tail_at, "\r\n");
    redis_link_queue(l, head, (size_t)tail_at);
    redis_link_queue(l, a->b->records[a->from + index], a->b->record_bytes);
    redis_link_queue(l, head + tail_at, (size_t)tail);
}

static talk *talk_with(asking *a, uint16_t node)
{
    for (uint32_t i = 0; i < a->num_talks; i++)
        if (a->talks[i].node == node) return &a->talks[i];
    talk *t = &a->talks[a->num_talks++];
    *t = (talk){.node = node};
    char why[160] = "";
    t->link = redis_reach(a->s, a->lane, node, a->deadline_ns, why, sizeof why);
    if (!t->link) {
        a->refresh = true; /* whoever has its slots now */
        if (why[0]) snprintf(a->found->why, sizeof a->found->why, "%s", why);
    } else
        t->link->most = a->b->record_bytes + 131072;
    return t;
}

/* Sends what waits; false: nothing could be sent. */
static bool send_all(asking *a)
{
    bool any = false;
    a->num_talks = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        item *it = &a->items[i];
        if (it->state != WAITS) continue;
        if (!it->ask) {
            pthread_mutex_lock(&a->s->lock);
            it->node = a->s->map.slots[it->slot];
            pthread_mutex_unlock(&a->s->lock);
        }
        if (it->node == REDIS_NOWHERE) {
            a->refresh = true;
            continue;
        }
        talk *t = talk_with(a, it->node);
        if (!t->link) {
            it->ask = false;
            continue;
        }
        it->state = SENT;
        t->items[t->count++] = i;
        queue_command(a, t->link, i);
        any = true;
    }
    return any;
}

/* The rest of a talk goes back: to the next round, or not at all when time is over. */
static void end_talk(asking *a, talk *t, bool late, uint64_t sent_ns)
{
    redis_store *s = a->s;
    bool waited = s->env.now_ns(s->env.user) - sent_ns >= BLAME_NS;
    if (late) snprintf(t->link->why, sizeof t->link->why, "no answer in time");
    snprintf(a->found->why, sizeof a->found->why, "%s", t->link->why);
    redis_link_close(t->link);
    if (!late || waited) redis_blame(s, t->node);
    for (uint32_t i = t->next; i < t->count; i++) {
        item *it = &a->items[t->items[i]];
        it->ask = false;
        it->state = WAITS;
        if (late) give_up(a, it, NULL);
    }
    t->next = t->count;
    a->refresh = true;
}

/* Reads until every talk has ended. */
static void receive_all(asking *a)
{
    redis_store *s = a->s;
    uint64_t sent_ns = s->env.now_ns(s->env.user);
    for (;;) {
        redis_link *open[REDIS_CHUNK];
        uint32_t num_open = 0;
        for (uint32_t i = 0; i < a->num_talks; i++) {
            talk *t = &a->talks[i];
            int got = 0;
            while (t->link && t->next < t->count) {
                uint32_t index = t->items[t->next];
                bool get = a->what == REDIS_GET;
                t->link->target = get ? a->b->records[a->from + index] : NULL;
                t->link->target_bytes = get ? a->b->record_bytes : 0;
                got = redis_link_next(t->link);
                if (got == 1 && !on_answer(a, t)) {
                    snprintf(t->link->why, sizeof t->link->why, "an answer of the wrong kind");
                    if (t->next && a->items[t->items[t->next - 1]].state == SENT)
                        give_up(a, &a->items[t->items[t->next - 1]], t->link->why);
                    got = -1;
                }
                if (got < 0) end_talk(a, t, false, sent_ns);
                if (got <= 0) break;
            }
            if (!t->link || !t->count) continue;
            if (got < 0) {
                t->link = NULL;
            } else if (t->next < t->count)
                open[num_open++] = t->link;
            else {
                pthread_mutex_lock(&s->lock);
                redis_map_worked(&s->map, t->node);
                s->stats.down = redis_map_is_down(&s->map);
                pthread_mutex_unlock(&s->lock);
                if (t->link->out_at < t->link->out_count) redis_link_close(t->link);
                t->link->target = NULL;
                t->link = NULL;
            }
        }
        if (!num_open) return;
        if (redis_links_move(&s->env, open, num_open, a->deadline_ns)) continue;
        for (uint32_t i = 0; i < a->num_talks; i++)
            if (a->talks[i].link && a->talks[i].next < a->talks[i].count)
                end_talk(a, &a->talks[i], true, sent_ns);
        return;
    }
}

void redis_ask(redis_store *s, redis_lane *lane, redis_what what, const rad_storage_batch *b,
               uint32_t from, uint32_t num, uint64_t deadline_ns, redis_found *found)
{
    asking a = {.s = s,
                .lane = lane,
                .what = what,
                .b = b,
                .from = from,
                .count = num,
                .deadline_ns = deadline_ns,
                .found = found};
    for (uint32_t i = 0; i < num; i++) {
        int at = snprintf(lane->names[i], sizeof lane->names[i], "%s", s->prefix);
        for (int k = 0; k < 32; k++)
            at += snprintf(lane->names[i] + at, sizeof lane->names[i] - (size_t)at, "%02x",
                           b->keys[from + i].bytes[k]);
        a.items[i].slot = redis_slot(lane->names[i], (size_t)at);
    }
    for (int round = 0; round < ROUNDS; round++) {
        if (a.pause) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        a.refresh = a.pause = false;
        bool sent = send_all(&a);
        receive_all(&a);
        bool left = false;
        for (uint32_t i = 0; i < num; i++)
            left |= a.items[i].state == WAITS;
        if (!left && !a.refresh) return;
        if (s->env.now_ns(s->env.user) >= deadline_ns) break;
        bool fresh = a.refresh &&
                     redis_refresh(s, lane, deadline_ns, found->why, sizeof found->why);
        if (!left) return;
        if (!sent && !fresh) break; /* nobody to ask, and nothing new to know */
    }
    for (uint32_t i = 0; i < num; i++)
        if (a.items[i].state == WAITS) give_up(&a, &a.items[i], NULL);
}
