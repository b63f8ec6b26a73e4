/* radix_cache.h - what the files behind a RadixCache share. */
#ifndef CACHE_RADIX_CACHE_H
#define CACHE_RADIX_CACHE_H

#include <radish/explain.h>

#include "base/bits.h"
#include "cache/cache_impl.h"
#include "cache/radix_key.h"
#include "cache/radix_tree.h"

typedef struct radix_cache {
    rad_cache base;
    radix_tree tree;
    uint64_t evicted;  /* pages that left the tree since create */
    uint64_t inserted; /* pages that entered it */
    rad_status drop_status;
    rad_copy_slots_fn copy_slots; /* NULL: no partial pages */
    void *copy_user;
    uint32_t bigram;       /* 0 or 1 */
    uint32_t cached_pages; /* bits in `cached`, page 0's too; 0: anybody's slots come in */
    bits_lane cached;      /* which of the allocator's or the list's pages the tree owns */
    uint64_t *own_bits;    /* the same when the allocator's lane was lent; else NULL */
    bool retains;          /* rad_cache_params.retention */
    rad_free_list list; /* the engine's, in the place of an allocator; num_pages 0: there is none */
} radix_cache;

typedef struct radix_insert {
    int32_t priority;
    bool count_hits;
    uint64_t before; /* nodes created after this time do not count the hit */

    /* Optional cursor: a locked node at or behind the end of the key's first from_pages
     * pages, which are in the tree already. */
    uint32_t from;
    uint32_t from_pages;
    uint32_t slots_from; /* slots[0] belongs to the first token of this page of the key */

    uint32_t window_from; /* of a free list's pages, those before this one have no window side */
} radix_insert;

typedef struct radix_inserted {
    uint32_t matched_pages; /* the tree had them before */
    uint32_t end;           /* the node that ends the key; 0 when the key has no page */
} radix_inserted;

/* The whole pages of a key, and the tokens that the tree compares for them; these begin
 * one later under bigram keys. */
static inline uint32_t radix_cache_pages(const radix_cache *c, const rad_key *key)
{
    return key_length(key->num_tokens, c->bigram) / c->base.page_size;
}

static inline const rad_token *radix_cache_tokens(const radix_cache *c, const rad_key *key)
{
    return key->tokens ? key->tokens + c->bigram : NULL; /* no arithmetic on no tokens */
}

/* Inserts the whole pages of `key`. RAD_FULL: nothing changed. RAD_E_STATE, and
 * nothing changed: the key is not the one that the cursor belongs to, or one of its new
 * pages is not handed out or is the tree's already. */
rad_status radix_cache_publish(radix_cache *c, const rad_key *key, const rad_slot *slots,
                               const radix_insert *how, radix_inserted *result, rad_error *err);

/* The raw inserts, by their params and a cursor. `inserted` is all 0. */
rad_status radix_cache_insert(radix_cache *c, const rad_key *key, const rad_slot *slots,
                              const rad_insert_params *params, const radix_insert *cursor,
                              rad_inserted *inserted, rad_error *err);

/* radix_claim.c: makes slots[0..num_pages * page_size), which stand at `position` of a key, the
 * tree's, all or nothing; finds their runs, or 0 when they have to be kept one by one. */
rad_status radix_claim(radix_cache *c, const rad_slot *slots, uint32_t num_pages, uint32_t position,
                       kv_run runs[PAGE_RUNS], uint32_t *num_runs, rad_error *err);
void radix_unclaim(radix_cache *c, const rad_slot *slots, uint32_t num_pages);

/* radix_unite.c: of the pages [from, end) of a key the tree's, which end with `node`, get the
 * window side of those at `slots` (slots[0] belongs to page `from`) where they have lost theirs.
 * What a free list's pages have begins at page `window_from` of the key. */
void radix_unite_windows(radix_cache *c, uint32_t node, uint32_t end, const rad_slot *slots,
                         uint32_t from, uint32_t window_from);
/* The same for a node that begins at page `begin` and has got its device pages just now, with what
 * these have. */
void radix_adopt_windows(radix_cache *c, uint32_t node, uint32_t begin, uint32_t window_from);

/* A host tier below the cache, of so many pages; its pages go to `drop`. */
typedef struct radix_host_params {
    uint32_t pages;
    rad_eviction_options eviction; /* defaults not filled in; not the user's policy */
    uint64_t max_pinned_tokens;
    bool events; /* the host's too, where the cache has events */
    radix_drop_fn drop;
    radix_drop_fn drop_windows; /* pages lose their window side; where the cache has windows */
    uint32_t states;            /* of its own pool, where the cache has states; 0: none */
    void (*drop_state)(void *user, rad_state state);
    void (*save)(void *user, uint32_t leaf, uint32_t pages); /* see radix_host; or NULL */
    void *user;
} radix_host_params;

/* rad_cache_create of a RadixCache over two tiers. */
rad_status radix_cache_create_tiered(const rad_env *env, const rad_cache_params *params,
                                     const radix_host_params *host, rad_cache **out,
                                     rad_error *err);

/* As rad_cache_walk, of the host: its slots and locks. */
rad_status radix_cache_walk_host(const radix_cache *c, rad_cache_visit_fn visit, void *user);

/* rad_cache_explain of one tier. */
rad_status radix_cache_explain(const radix_cache *c, const rad_key *key, bool host,
                               rad_explanation *explanation);

/* All of the device's pages go back, locked or not; the host's stay. */
rad_status radix_cache_clear_device(radix_cache *c);

/* The cache if it is a tree, else NULL. */
radix_cache *radix_cache_of(const rad_cache *cache);

/* The root of the key's namespace, 0 when there is none. */
uint32_t radix_cache_root(const radix_cache *c, const rad_key *key);

/* The name of a node; all zero for none and for a root. */
rad_ref radix_cache_ref(const radix_cache *c, uint32_t node);

/* The position `pages` pages from the root on the path to the named node; `child` and
 * `part` say how it lies inside a node. RAD_E_STATE: the name is stale, or the node ends
 * before. All zero names the empty prefix, which has no node. O(depth). */
rad_status radix_cache_seek(const radix_cache *c, rad_ref name, uint32_t pages, radix_pos *pos);

/* How many tokens of the page behind `pos` the key shares with a page that may be copied, which is
 * *page of the node *owner. */
uint32_t radix_cache_partial(const radix_cache *c, const rad_key *key, const radix_pos *pos,
                             rad_page *page, uint32_t *owner);

/* Locks the receipt's node, which is no root, with what every component needs behind it; and lets
 * that go. */
void radix_cache_hold_components(radix_cache *c, rad_receipt *receipt);
void radix_cache_let_go_components(radix_cache *c, const rad_receipt *receipt);

/* The receipt's snapshot is held no more. */
void radix_cache_let_go_state(radix_cache *c, rad_receipt *receipt);

static inline void radix_cache_hold(radix_cache *c, rad_receipt *receipt)
{
    radix_lock(&c->tree, receipt->node.index);
    if (c->tree.num_components) radix_cache_hold_components(c, receipt);
}

static inline void radix_cache_let_go(radix_cache *c, const rad_receipt *receipt)
{
    if (c->tree.num_components) radix_cache_let_go_components(c, receipt);
    radix_unlock(&c->tree, receipt->node.index);
}

/* rad_cache_put_state at page `depth` of the path to a live node; the state is the tree's, or goes
 * back to the pool. */
uint32_t radix_cache_put_state(radix_cache *c, uint32_t node, uint32_t depth, rad_state state);

/* Gives back what left the tree: pages to the allocator or to the free list, of some only the
 * window side; a snapshot to its pool. `user` is the radix_cache. */
void radix_cache_drop(void *user, const rad_page *pages, const kv_run *runs, uint32_t count);
void radix_cache_drop_windows(void *user, const rad_page *pages, const kv_run *runs,
                              uint32_t count);
void radix_cache_drop_state(void *user, rad_state state);

/* What went wrong since the last call when pages were given back; RAD_OK mostly. */
static inline rad_status radix_cache_take_drop_status(radix_cache *c)
{
    rad_status status = c->drop_status;
    c->drop_status = RAD_OK;
    return status;
}

/* Its table, and what of it is in other files. The end accepts a half-made one. */
extern const cache_ops radix_cache_ops;
void radix_cache_destroy(rad_cache *cache); /* radix_cache_create.c */

/* <radish/cache.h>: check, and who owns what, in radix_cache_check.c. */
rad_status radix_check_all(const rad_cache *cache, rad_error *err);
bool radix_owns_prefix(const rad_cache *cache, const rad_receipt *lock, const rad_slot *row,
                       uint32_t protected_len);
bool radix_owns_any(const rad_cache *cache, kv_run pages);
bool radix_receipt_holds(const rad_cache *cache, const rad_receipt *receipt);

/* <radish/cache.h>: insert, in radix_publish.c. */
rad_status radix_insert_key(rad_cache *cache, const rad_key *key, const rad_slot *slots,
                            const rad_insert_params *params, rad_inserted *inserted,
                            rad_error *err);

/* <radish/retention.h>, in radix_keep.c. */
rad_status radix_pin_prefix(rad_cache *cache, const rad_key *key, uint64_t ttl_ns,
                            uint32_t *pinned_tokens);
rad_status radix_retain_prefix(rad_cache *cache, const rad_key *key, int32_t priority,
                               uint64_t idle_ns, uint32_t *retained_tokens);
uint64_t radix_pinned_size(const rad_cache *cache);

rad_status radix_unfinished_req(rad_cache *cache, rad_req_kv *req, int chunked, rad_error *err);
rad_status radix_finished_req(rad_cache *cache, rad_req_kv *req, int is_insert, rad_error *err);

/* The same. *end is the node that ends what was published, `pages` from the root; 0: nothing was.
 */
rad_status radix_cache_finish(radix_cache *c, rad_req_kv *req, bool is_insert, uint32_t *end,
                              uint32_t *pages, rad_error *err);

/* <radish/session.h>, in radix_tags.c. */
rad_status radix_session_open(rad_cache *cache, rad_session *session);
rad_status radix_session_begin(rad_cache *cache, rad_req_kv *req, rad_error *err);
rad_status radix_session_close(rad_cache *cache, rad_session session);
void radix_session_stats(const rad_cache *cache, rad_session_stats *stats);

#endif
