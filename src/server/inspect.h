/* inspect.h - what the cache holds and why, for people and what shows it to them.
 *
 *     GET  /inspect/status   pools, counters, times, requests, evictions     inspect_status.c
 *     GET  /inspect/tree     its nodes; what changed since the last time     inspect_tree.c
 *     GET  /inspect/node     one of them, with what it says and why          inspect_node.c
 *     POST /inspect/search   those with this text                            inspect_search.c
 *     GET  /                 the page that shows all this                    dashboard.c
 *
 * docs/dashboard.md has the fields. A worker of its own asks the scheduler's thread for copies
 * (engine_inspect.h) and makes the JSON of them. All of the tree is copied at most once in
 * INSPECT_FRESH_MS, whoever asks.
 *
 * Who may look: what stands here tells of all namespaces. Where there is an administrator's key,
 * who has it; else everybody on loopback where no keys are given, and nobody elsewhere. */
#ifndef SERVER_INSPECT_H
#define SERVER_INSPECT_H

#include "engine/engine_inspect.h"
#include "server/json_in.h"

#include <event2/http.h>

struct server;
struct call;

enum {
    INSPECT_FRESH_MS = 200,
    INSPECT_MOST_NODES = 1 << 18,  /* of a tree are copied, */
    INSPECT_MOST_SHOWN = 1 << 14,  /* and so many of them told, those with the most tokens below */
    INSPECT_MOST_TOKENS = 1 << 12, /* of one node at one time */
    INSPECT_MOST_SEARCHED = 1 << 22, /* tokens that a search looks through */
    INSPECT_MOST_FOUND = 1000,
    INSPECT_NEEDLE = 256 /* bytes, or ids, that are searched */
};

/* A node as it was told last. */
typedef struct tree_row {
    uint64_t changed; /* the version in which it became what it is, or went; 0: never told */
    uint64_t last_access;
    uint64_t used_ms;       /* when that was, since the server's start; an estimate */
    uint64_t hidden_tokens; /* below it, in nodes that are not told */
    uint32_t hidden_nodes;
    uint32_t generation; /* 0: it is not there, or not told */
    uint32_t parent, namespace_id, tokens, locks, hits, sessions;
    uint32_t tiers, flags;
} tree_row;

/* The tree as it was copied last. The worker's. */
typedef struct tree_picture {
    tree_look look;
    uint32_t *at;    /* [look.most_id + 1]: where a node lies in look.nodes, less 1; 0: nowhere */
    uint32_t *order; /* [num_order]: places in look.nodes, parents before their children */
    uint64_t *below; /* [look.count]: tokens of the node and all below it */
    uint32_t num_order, num_shown;
    uint64_t tokens, shown_tokens;
    tree_row *rows; /* [num_rows] by id */
    uint32_t num_rows;
    uint32_t reserved;
    uint64_t base, version; /* versions of this server are above `base` */
    uint64_t taken_ns, taken_ms, clock;
} tree_picture;

/* Brings the picture up to date where it is older than INSPECT_FRESH_MS. The worker. RAD_E_NOMEM,
 * RAD_E_STATE: the engine is ending. */
rad_status picture_refresh(struct server *s);
void picture_destroy(tree_picture *p); /* NULL is fine */
/* The copied node of this id, NULL: there is none. */
const tree_node_look *picture_find(const tree_picture *p, uint32_t id);

/* Whether the request may look; else words. The loop. */
bool inspect_may(struct server *s, api_error *err);

/* A number of the query, 0 to `most`; not there: *out stays. False: it is none. */
bool inspect_number(struct evhttp_request *http, const char *name, uint64_t most, uint64_t *out,
                    api_error *err);
/* Refuses what is not in `known`, names with a space between them. */
bool inspect_query(struct evhttp_request *http, const char *known, api_error *err);

/* Sends what a call's work has written into c->out, or why there is nothing. The loop. */
void inspect_answer(struct call *c);
/* Before work writes. False: no memory, and the call's error says so. */
bool inspect_begin(struct call *c);
bool inspect_fail(struct call *c, rad_status status);

#endif
