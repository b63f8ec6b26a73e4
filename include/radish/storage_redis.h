/* storage_redis.h - a storage backend in a Redis Cluster, or in a single Redis.
 *
 * A page is one string under the name PREFIX + 64 hexadecimal digits of its key, so pages
 * spread over the cluster by Redis's own slots, and any number of radish servers may share
 * one cluster. Redis evicts by its own rules: give it a maxmemory and the policy allkeys-lru
 * (a warning is logged where it is noeviction), or a ttl here.
 *
 * A cluster that is slow, away, half gone or talking nonsense costs misses and never more
 * than the deadline. A node that failed is left alone for a while that doubles from 100 ms up
 * to 10 s, plus or minus a quarter, and is then tried by one caller; meanwhile its pages are
 * misses at once. After MOVED, or when a node cannot be reached, the map of slots is asked
 * for again, from any node that answers.
 *
 * Who is sent a password: the nodes that the params name, those that their CLUSTER SLOTS names, and
 * allowed_hosts. A MOVED or ASK to any other address is not followed; it makes the map be asked for
 * again, in which a node that has really come is named.
 *
 * There is no TLS and no SELECT; host names are resolved by the system's resolver, which has
 * time limits of its own, so numeric addresses are safer. Values travel as they are: whoever
 * can write to the Redis can forge pages, so keep it private.
 *
 * Link radish-storage for it, besides radish. */
#ifndef RADISH_STORAGE_REDIS_H
#define RADISH_STORAGE_REDIS_H

#include <radish/storage.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_storage_redis_params {
    size_t struct_size;          /* sizeof(rad_storage_redis_params) */
    const char *nodes;           /* "HOST:PORT,HOST:PORT,[V6]:PORT": some of the cluster, the
                                  * others are asked for; a port is 6379 if not given */
    const char *user;            /* of an ACL; NULL: the default user */
    const char *password;        /* NULL: no AUTH is sent */
    const char *prefix;          /* of all names, at most 64 printable characters without
                                  * spaces and braces; NULL: "radish:" */
    uint32_t ttl_seconds;        /* a page is forgotten so long after it was stored; 0: never */
    uint32_t connect_timeout_ms; /* 0: 500 */
    uint32_t timeout_ms;         /* of a call that has no earlier deadline; 0: 2000 */
    uint32_t threads;            /* callers at a time, each with connections of its own to the
                                  * nodes it needs; others wait. 0: 4 */
    uint32_t max_backoff_ms;     /* longest time that a failed node is left alone; 0: 10000 */
    uint32_t reserved;           /* 0 */
    const char *allowed_hosts; /* "HOST,HOST,...", without ports: besides those of `nodes`, the only
                                * ones that are connected to, whoever names them; MOVED and ASK
                                * to them are followed at once. NULL: those of CLUSTER SLOTS */
} rad_storage_redis_params;

/* Opens the store. A Redis that cannot be reached now is no error: it is logged
 * (RAD_LOG_WARN), stats.down is 1 and everything a miss until it is there. RAD_E_INVAL in
 * words for params that make no sense; RAD_E_NOMEM. stats.pages and bytes stay 0: ask Redis.
 *
 * clear deletes what is under the prefix, also what other servers stored (it needs SCAN), and
 * takes up to a minute, however long SCAN goes on; end_clear cancels it within timeout_ms.
 * batch_set gives RAD_FULL when Redis has no memory left and does not evict.
 * The env's functions but alloc and free are called from every thread that calls the backend. */
RAD_API rad_status rad_storage_redis_open(const rad_env *env,
                                          const rad_storage_redis_params *params, rad_storage *out,
                                          rad_error *err);

#ifdef __cplusplus
}
#endif
#endif
