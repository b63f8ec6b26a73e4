/* swa_cache_impl.h - what swa_cache.c, swa_insert.c and swa_req.c share: the cache of a
 * sliding-window model and its small helpers. swa_cache.c tells how it works. */
#ifndef CACHE_SWA_CACHE_IMPL_H
#define CACHE_SWA_CACHE_IMPL_H

#include <radish/swa_cache.h>

#include "base/bits.h"
#include "cache/cache_impl.h"
#include "cache/radix_tree.h"

struct rad_swa_cache {
    rad_env env;
    radix_tree tree;
    rad_swa_allocator *kv;
    rad_req_to_token_pool *rows;
    uint32_t page_size;
    uint32_t window; /* pages */
    uint32_t num_pages;
    heap windows;
    uint64_t *cached; /* a bit for each page of the tree */
    uint64_t swa_cached;
    uint64_t swa_locked;
    uint64_t merges; /* the tree's when `windows` was complete */
    rad_status drop_status;
};

static inline bool swa_has(const rad_swa_cache *c, rad_page page)
{
    return rad_swa_has_swa(c->kv, page);
}

static inline rad_status swa_take_drop_status(rad_swa_cache *c)
{
    rad_status status = c->drop_status;
    c->drop_status = RAD_OK;
    return status;
}

static inline uint32_t swa_root(const rad_swa_cache *c, const rad_key *key)
{
    if (!namespace_fits(key->extra_key, key->cache_salt)) return 0;
    uint32_t ns = namespace_find(&c->tree.names, key->extra_key, key->cache_salt);
    return ns ? c->tree.names.entries[ns].root : 0;
}

static inline uint32_t swa_depth(const radix_tree *t, uint32_t node)
{
    uint32_t pages = 0;
    for (uint32_t id = node; id; id = t->nodes[id].parent)
        pages += t->nodes[id].pages;
    return pages;
}

/* Above the keys of windows that no match is known to end behind. */
#define SWA_LIVE ((heap_key)1 << 64)

/* Where the window before the node's end stands in the order of eviction. */
static inline heap_key swa_tail_key(const rad_swa_cache *c, uint32_t node)
{
    uint64_t used = c->tree.window_used[node];
    return used ? SWA_LIVE | used : (heap_key)c->tree.nodes[node].last_access;
}

/* Files a node that may have something to give, or has something to give sooner. The key may be
 * lower than it should be: that is found out at the top. */
static inline void swa_file_window(rad_swa_cache *c, uint32_t node)
{
    const radix_node *n = &c->tree.nodes[node];
    heap_key key = n->pages > c->window ? (heap_key)n->last_access : swa_tail_key(c, node);
    if (!heap_contains(&c->windows, node))
        heap_push(&c->windows, node, key);
    else if (key < heap_key_of(&c->windows, node))
        heap_rekey(&c->windows, node, key);
}

/* A match ended with `node`, or an insert, of which the last `fresh` pages are new: the window
 * before that end is of use now. What was the window before a shorter end of the same chat, and
 * is before no other one, is not any more. O(nodes of the two windows). */
void swa_use_window(rad_swa_cache *c, uint32_t node, uint32_t fresh);

/* Pages of the node that have a window side. */
uint32_t swa_pages_of(const rad_swa_cache *c, uint32_t node);

/* The pages are the tree's no more; they stay handed out. */
void swa_forget_pages(rad_swa_cache *c, const rad_page *pages, uint32_t count);

/* A radix_drop_fn: pages leave the tree. */
void swa_drop(void *user, const rad_page *pages, const kv_run *runs, uint32_t count);

/* Locks the node, and the window that ends with it; the second form more of the window side, from
 * page `from` at the latest. */
rad_swa_receipt swa_lock_node(rad_swa_cache *c, uint32_t node);
rad_swa_receipt swa_lock_from(rad_swa_cache *c, uint32_t node, uint32_t from);

/* The longest front of the `pages` pages that end in `node` (or in its first `part`, when that is
 * not 0) behind which a window is there, as far as it lies behind page `floor`; *end is the node in
 * which it ends and *at how many of its pages it has. */
uint32_t swa_usable(const rad_swa_cache *c, uint32_t node, uint32_t part, uint32_t pages,
                    uint32_t floor, uint32_t *end, uint32_t *at);

/* Pages [from, pages) of a key are to be the tree's, which has those before. Their slots become
 * those of the pages that stay; the others are freed. */
typedef struct swa_insertion {
    const rad_key *key;
    rad_slot *slots; /* [pages - from] times page_size, whole pages */
    uint32_t from;
    uint32_t pages;
    int32_t priority;
    uint32_t reserved;
} swa_insertion;

/* *end is the node that ends the first *published pages of the key; 0 and 0 when there is nothing
 * to publish. What is behind *published stays the caller's. RAD_FULL: no room, nothing changed.
 * RAD_E_STATE: the tree has less than [0, from), or a page stands twice. */
rad_status swa_insert(rad_swa_cache *c, const swa_insertion *what, uint32_t *end,
                      uint32_t *published, rad_error *err);

rad_status swa_check_req(const rad_swa_cache *c, const rad_swa_req *req, rad_error *err);

/* Marks in owner[num_pages + 1], zero for a page without one, whose each page is; with `reqs`,
 * pages without any must be free. */
rad_status swa_check_pages(const rad_swa_cache *c, const rad_swa_req *const *reqs,
                           uint32_t num_reqs, uint32_t *owner, rad_error *err);

/* Whether a receipt was issued here and can be returned. O(depth). */
bool swa_receipt_holds(const rad_swa_cache *c, const rad_swa_receipt *r);

#endif
