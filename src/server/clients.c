/* clients.c - see clients.h.
 *
 *     name --hash--> buckets[] -> record -> record      `next`, an index; NONE ends the chain
 *     alone: first .. last                              nobody holds them; first: longest alone
 *
 * Invariant: a record with a name is in the chain of its hash; it is in `alone` exactly while
 * nobody holds it, and then it has neither connections nor prompts that wait. */
#include "server/clients.h"

#include "base/hash_key.h"
#include "base/list.h"

#include <math.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { NAME_BYTES = 24 };
#define NONE UINT32_MAX

struct client {
    clients *all;
    char name[NAME_BYTES]; /* 'K' and an owner, or 'A' and an address */
    uint32_t next;
    uint32_t holds;
    uint32_t connections;
    _Atomic uint32_t queued;
    double left; /* tokens, at: */
    uint64_t at_ns;
    client *prev_alone, *next_alone;
};

struct clients {
    client_limits limits;
    hash_key key;
    uint32_t most, used; /* records; those behind `used` never had a name */
    uint32_t num_buckets;
    uint32_t *buckets;
    client *records;
    struct {
        client *first, *last;
    } alone;
};

rad_status clients_create(const rad_env *env, const client_limits *limits, uint32_t most,
                          clients **out)
{
    clients *all = calloc(1, sizeof *all);
    *out = NULL;
    if (!all) return RAD_E_NOMEM;
    all->limits = *limits;
    all->most = most;
    for (all->num_buckets = 64; all->num_buckets < most && all->num_buckets < 1u << 30;)
        all->num_buckets *= 2;
    all->records = calloc(most, sizeof *all->records);
    all->buckets = malloc(all->num_buckets * sizeof *all->buckets);
    if (!all->records || !all->buckets) {
        clients_destroy(all);
        return RAD_E_NOMEM;
    }
    memset(all->buckets, 0xff, all->num_buckets * sizeof *all->buckets); /* NONE */
    hash_key_init(&all->key, env);
    *out = all;
    return RAD_OK;
}

void clients_destroy(clients *all)
{
    if (!all) return;
    free(all->buckets);
    free(all->records);
    free(all);
}

/* ---- records ---- */

static uint32_t *bucket_of(clients *all, const char *name)
{
    return &all->buckets[hash_bytes(&all->key, name, NAME_BYTES) & (all->num_buckets - 1)];
}

static void unname(clients *all, client *c)
{
    uint32_t *at = bucket_of(all, c->name);
    while (&all->records[*at] != c)
        at = &all->records[*at].next;
    *at = c->next;
}

/* One that never had a name, or the one that was alone longest. */
static client *take_record(clients *all)
{
    client *c = all->alone.first;
    if (all->used < all->most) return &all->records[all->used++];
    if (!c) return NULL;
    LIST_REMOVE(&all->alone, c, prev_alone, next_alone);
    unname(all, c);
    return c;
}

static client *find(clients *all, const char *name)
{
    uint32_t *bucket = bucket_of(all, name);
    client *c;
    for (uint32_t i = *bucket; i != NONE; i = c->next) {
        c = &all->records[i];
        if (memcmp(c->name, name, NAME_BYTES) == 0) return client_hold(c);
    }
    c = take_record(all);
    if (!c) return NULL;
    *c = (client){
        .all = all, .next = *bucket, .holds = 1, .left = (double)all->limits.tokens_per_minute};
    memcpy(c->name, name, NAME_BYTES);
    *bucket = (uint32_t)(c - all->records);
    return c;
}

client *clients_by_key(clients *all, const char *owner)
{
    char name[NAME_BYTES] = "K";
    size_t len = strlen(owner);
    RAD_ASSERT(len < NAME_BYTES);
    memcpy(name + 1, owner, len);
    return find(all, name);
}

client *clients_by_fd(clients *all, int fd)
{
    char name[NAME_BYTES] = "A";
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    if (getpeername(fd, (struct sockaddr *)&a, &len) != 0) a.ss_family = AF_UNSPEC; /* it is gone */
    const struct in6_addr *v6 = &((struct sockaddr_in6 *)&a)->sin6_addr;
    if (a.ss_family == AF_INET)
        memcpy(name + 13, &((struct sockaddr_in *)&a)->sin_addr, 4);
    else if (a.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(v6))
        memcpy(name + 13, v6->s6_addr + 12, 4);
    else if (a.ss_family == AF_INET6)
        memcpy(name + 1, v6->s6_addr, 8);
    return find(all, name);
}

client *client_hold(client *c)
{
    if (!c) return NULL;
    if (!c->holds++) LIST_REMOVE(&c->all->alone, c, prev_alone, next_alone);
    return c;
}

void client_let_go(client *c)
{
    if (!c || --c->holds) return;
    RAD_ASSERT(c->connections == 0);
    RAD_ASSERT(c->queued == 0);
    LIST_APPEND(&c->all->alone, c, prev_alone, next_alone);
}

/* ---- what is limited ---- */

const client_limits *client_limits_of(const client *c)
{
    return &c->all->limits;
}

void client_connect(client *c)
{
    if (c) c->connections++;
}

void client_disconnect(client *c)
{
    if (c) c->connections--;
}

bool client_is_crowded(const client *c)
{
    return c && c->all->limits.connections && c->connections > c->all->limits.connections;
}

bool client_queue(client *c, uint32_t prompts)
{
    if (!c) return true;
    uint32_t most = c->all->limits.queued ? c->all->limits.queued : UINT32_MAX;
    uint32_t now = atomic_load(&c->queued);
    do {
        if (now > most || prompts > most - now) return false;
    } while (!atomic_compare_exchange_weak(&c->queued, &now, now + prompts));
    return true;
}

void client_unqueue(client *c, uint32_t prompts)
{
    if (c) atomic_fetch_sub(&c->queued, prompts);
}

static void refill(client *c, uint64_t now_ns)
{
    double most = (double)c->all->limits.tokens_per_minute;
    if (now_ns > c->at_ns) c->left += (double)(now_ns - c->at_ns) * 1e-9 * most / 60;
    c->left = RAD_MIN(c->left, most);
    c->at_ns = now_ns;
}

uint32_t client_wait_s(client *c, uint64_t now_ns)
{
    if (!c || !c->all->limits.tokens_per_minute) return 0;
    refill(c, now_ns);
    if (c->left >= 1) return 0;
    double s = ceil((1 - c->left) * 60 / (double)c->all->limits.tokens_per_minute);
    return s > 86400 ? 86400 : (uint32_t)RAD_MAX(s, 1.0);
}

void client_spend(client *c, int64_t tokens, uint64_t now_ns)
{
    if (!c || !c->all->limits.tokens_per_minute) return;
    refill(c, now_ns);
    c->left -= (double)tokens;
}
