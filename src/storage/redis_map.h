/* redis_map.h - which node has which slot of a Redis Cluster, and which nodes to leave alone.
 *
 * Plain data; whoever shares it locks it. */
#ifndef STORAGE_REDIS_MAP_H
#define STORAGE_REDIS_MAP_H

#include "base/base.h"

enum { REDIS_SLOTS = 16384, REDIS_NODES = 128, REDIS_HOST = 254, REDIS_NOWHERE = 0xffff };

typedef struct redis_node {
    char host[REDIS_HOST + 2];
    uint16_t port;
    uint16_t is_named;     /* 1: a seed, or of the newest map */
    uint32_t fails;        /* one after another */
    uint64_t try_after_ns; /* leave it alone until then */
    uint64_t number;       /* another one when the place was given to another node */
} redis_node;

typedef struct redis_map {
    redis_node nodes[REDIS_NODES]; /* the seeds come first, and stay */
    uint32_t num_nodes, num_seeds;
    uint64_t last_number;
    uint16_t slots[REDIS_SLOTS]; /* node, or REDIS_NOWHERE */
    uint64_t random;             /* for jitter */
    char allowed[1024];          /* hosts, each behind a comma; empty: not given */
} redis_map;

/* Adds "HOST:PORT,..." as seeds. RAD_E_INVAL in words. */
rad_status redis_map_seeds(redis_map *m, const char *nodes, rad_error *err);

/* Hosts that may be connected to besides the seeds', "HOST,HOST,..."; NULL: any that the map names.
 * RAD_E_INVAL in words. After the seeds. */
rad_status redis_map_allow(redis_map *m, const char *hosts, rad_error *err);

/* Whether a map of slots may name this host. */
bool redis_map_may_name(const redis_map *m, const char *host, size_t len);

/* A new map of slots: nodes of the former ones are no longer named. */
void redis_map_forget_names(redis_map *m);

/* The number of a node, added if it is new: a full table forgets one that is no seed and has no
 * slots. REDIS_NOWHERE when the host or port makes no sense, or all have slots. */
uint16_t redis_map_node(redis_map *m, const char *host, size_t len, int64_t port);

/* The slot of a name: CRC16 (XMODEM) of it, modulo 16384. The name has no braces. */
uint16_t redis_slot(const char *name, size_t len);

/* What "MOVED 3999 10.0.0.1:6381" (or ASK) says; an empty host is that of `from`. *node is
 * REDIS_NOWHERE when that is no node that the map names, nor an allowed host: whoever answers could
 * send us, and our password, anywhere. False: it makes no sense. */
bool redis_map_redirect(redis_map *m, const char *text, uint16_t from, uint16_t *slot,
                        uint16_t *node);

/* Whether the node may be asked now. When its time of rest is over, the first who asks may try
 * it, the others wait for what he finds, at most probe_ns. */
bool redis_map_may_try(redis_map *m, uint16_t node, uint64_t now_ns, uint64_t probe_ns);
void redis_map_failed(redis_map *m, uint16_t node, uint64_t now_ns, uint64_t most_ns);
void redis_map_worked(redis_map *m, uint16_t node);

/* None of the nodes that have slots (or, if none has, of all) worked when it was last asked. */
bool redis_map_is_down(const redis_map *m);

#endif
