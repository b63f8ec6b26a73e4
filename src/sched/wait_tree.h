/* wait_tree.h - a compressed tree over the prompts of the requests that wait.
 *
 * Edges are spelled by the ids of some request below (`witness`), so nothing is copied. A
 * request is always a leaf; one whose prompt is the beginning of another's is a leaf with
 * an empty edge. Its key is its prompt without the last token, which no match may cover.
 * Every node keeps its open children in a pairing heap: taking one in is O(1), taking
 * one out O(log children), and nothing is allocated after init.
 *
 * Invariant: a child is in its parent's heap if and only if somebody below may be
 * admitted; `key` is what it was filed under. */
#ifndef SCHED_WAIT_TREE_H
#define SCHED_WAIT_TREE_H

#include "base/hash_key.h"
#include "base/map.h"
#include "sched/req.h"

enum { WAIT_TOP = 1 }; /* the root of all namespaces */

typedef struct wait_key { /* lower goes first */
    uint64_t major;
    uint64_t arrival;
} wait_key;

typedef struct wait_node {
    uint32_t parent; /* 0: free, or the top */
    uint32_t first_child, next, prev;
    uint32_t depth;  /* tokens to its end */
    uint32_t cached; /* of these the cache agrees with; meant only when it does with all of
                      * the parent's. A match is this in whole pages. */
    uint32_t weight; /* requests below that wait */
    uint32_t hash;   /* in the map; 0 = not in it (an empty edge, the top) */
    uint32_t leader; /* a running leaf below that computes this node, or 0 */
    uint32_t base;   /* of a running leaf: what was cached when it was admitted */
    uint32_t done;   /* of a running leaf: what it has published */
    uint32_t heap;   /* the best open child */
    uint32_t heap_child, heap_next, heap_prev;
    bool filed; /* in the parent's heap */
    bool running;
    wait_key key;
    uint64_t seen; /* evicted tokens when a leaf was looked up */
    req *witness;
    req *r; /* of a leaf */
} wait_node;

typedef struct wait_tree {
    wait_node *nodes; /* [capacity + 1] */
    uint32_t capacity;
    uint32_t num_fresh; /* ids handed out so far */
    uint32_t free;      /* linked by `next` */
    map children;
    hash_key key; /* of `children`: prompts are chosen by whoever sends them */
    uint64_t tokens_compared;
} wait_tree;

/* Room for max_reqs leaves. RAD_E_NOMEM leaves nothing behind once fini has run. */
rad_status wait_tree_init(wait_tree *t, const rad_env *env, uint32_t max_reqs);
void wait_tree_fini(wait_tree *t, const rad_env *env);

/* Hangs a leaf for `r` in and returns it. Nodes that are cut in two on the way keep what
 * they know. The caller files it. */
uint32_t wait_tree_add(wait_tree *t, req *r);

/* Takes a leaf out of the tree and of its parent's heap; returns the nearest ancestor that
 * still stands. */
uint32_t wait_tree_remove(wait_tree *t, uint32_t leaf);

/* The deepest node on the way of key[0..num_tokens) that lies on it at least in part; its
 * shared length goes to *matched. 0 when not even the namespace is there. */
uint32_t wait_tree_walk(wait_tree *t, const req *r, uint32_t num_tokens, uint32_t *matched);

void wait_tree_file(wait_tree *t, uint32_t node, wait_key key); /* must not be filed */
void wait_tree_unfile(wait_tree *t, uint32_t node);             /* must be */

static inline uint32_t wait_start(const wait_tree *t, uint32_t node)
{
    return t->nodes[t->nodes[node].parent].depth;
}

static inline bool wait_before(wait_key a, wait_key b)
{
    return a.major != b.major ? a.major < b.major : a.arrival < b.arrival;
}

#endif
