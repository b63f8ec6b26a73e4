/* tree_look.h - a copy of the tree's nodes for people who look at it, taken in slices.
 *
 * The thread that owns a cache cannot walk a large tree while requests wait for their next token.
 * So a look goes over the node slab by ids, a slice at a time, and between two slices the owner
 * does something else:
 *
 *     ids    1 ........ 4096 | 4097 ...... 8192 | ...
 *            slice           | slice            |
 *
 * What changes meanwhile may be seen half: a node whose parent was made, or went, between two
 * slices names a parent that the copy does not have. Whoever puts the copy together compares
 * generations and leaves out what does not fit; the next look has it. A tree of one slice is whole.
 *
 * Owner's thread; nothing is touched or changed. Some 12 ns a node (bench_cache, the line `look`).
 */
#ifndef CACHE_TREE_LOOK_H
#define CACHE_TREE_LOOK_H

#include <radish/cache.h>

#include "cache/eviction_log.h"

typedef struct tree_node_look {
    uint32_t id, generation;            /* as in rad_ref */
    uint32_t parent, parent_generation; /* 0: it is below a namespace's root */
    uint32_t namespace_id;              /* a number; 0 is none */
    uint32_t num_tokens;                /* of its own edge */
    uint32_t num_children;              /* on whatever tier */
    uint32_t lock_ref, host_lock_ref;
    uint32_t hit_count;
    uint32_t sessions; /* open ones whose path goes through it */
    int32_t priority;
    uint32_t window_tokens;        /* with windows: its last so many have a window side */
    uint32_t retention;            /* 1..99, 0: not retained */
    uint64_t pinned_ns;            /* for so long still; 0: not pinned */
    uint64_t last_access, created; /* in operations of the cache */
    uint64_t order[2]; /* of an evictable one: its place among them, the lowest goes first. order[0]
                        * before order[1] */
    uint32_t tokens_at; /* in tree_look.tokens; with `want_tokens` */
    bool on_device, on_host, is_evictable, has_state;
    bool in_default_namespace; /* without extra_key and cache_salt */
} tree_node_look;

enum { TREE_LOOK_SLICE = 4096 };

typedef struct tree_look {
    tree_node_look *nodes; /* the caller's, with room for `room` */
    uint32_t room, count;
    rad_token *tokens; /* likewise; NULL: keys are not copied */
    uint32_t token_room, num_tokens;

    /* The look's own: 0 at first. */
    uint32_t next; /* id; */
    bool done;     /* no slice is left */
    bool cut;      /* there was no room for all: what there is was copied */

    /* Of the last slice. */
    uint32_t most_id; /* ids that were in use at some time are 1 to this */
    uint64_t clock;   /* operations of the cache so far */
} tree_look;

/* Copies one slice. A cache without nodes is done at once. */
void tree_look_slice(const rad_cache *cache, tree_look *look);

/* Copies tokens [from, from + *count) of the node's own edge, fewer where it ends before; *total:
 * all that it has. RAD_E_STATE: there is no such node. */
rad_status tree_look_tokens(const rad_cache *cache, rad_ref node, uint32_t from, rad_token *tokens,
                            uint32_t *count, uint32_t *total);

/* Operations of the cache so far, which last_access and created count; 0: it has no nodes. */
uint64_t tree_look_clock(const rad_cache *cache);

/* What was evicted last, NULL where nothing is remembered. */
const eviction_notes *tree_look_evictions(const rad_cache *cache);

#endif
