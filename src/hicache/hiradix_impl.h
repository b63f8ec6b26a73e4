/* hiradix_impl.h - the struct behind HiRadixCache, and what its files share.
 *
 *     hiradix_cache.c     the cache's table: begin here
 *     hiradix_create.c    create and destroy
 *     tickets.c           what transfers hold; poll, drain
 *     hiradix_tickets.c   what of it is this cache's own, and pages
 *     hiradix_check.c     stats and check
 *     hiradix_write.c     device -> host: what gets a copy, and when it is found
 *     hiradix_backup_storage.c
 *                         host -> storage
 *     hiradix_fetch.c     storage -> host
 *     hiradix_load.c      host -> device
 *     hiradix_states.c    snapshots of recurrent states, between device and host
 *     hiradix_storage.c   stores are attached and detached
 *     hiradix_recheck.c   whether storage still has what it had
 *     hiradix_events.c    KV events of all tiers
 *     hiradix_explain.c   where a match ends, what became of a prefetch
 *
 * Lengths are in pages where they are not named otherwise. */
#ifndef HICACHE_HIRADIX_IMPL_H
#define HICACHE_HIRADIX_IMPL_H

#include <radish/hicache.h>
#include <radish/hicache_explain.h>
#include <radish/match_handle.h>
#include <radish/retention.h>

#include "cache/radix_cache.h"
#include "cache/radix_host.h"
#include "cache/radix_state.h"
#include "cache/radix_window.h"
#include "hicache/page_store.h"
#include "hicache/tickets.h"

enum {
    HI_WRITE_TOKENS = 1024 /* of one write: short, so that a load does not wait long */
};

/* A place in the tree that a transfer holds: the node is locked on a tier, so its name stays good
 * and its end stays where it is, whatever is cut or joined above it. */
typedef struct hi_hold {
    rad_ref node;         /* {0, 0}: nothing is held */
    uint32_t depth;       /* pages from the root to its end */
    uint32_t window_from; /* the window side of pages [here, depth) is locked too */
    uint32_t state_held;  /* 1: and the snapshot behind it */
} hi_hold;

/* One transfer and all that it holds. A storage backup has no device pages: its k.device[] say what
 * became of each page (hi_backup_storage_end). */
typedef struct hi_op {
    hi_ticket k;       /* first */
    hi_hold on_device; /* what is locked meanwhile */
    hi_hold on_host;
    rad_state host_state; /* of a write that moves a snapshot, of a storage backup of one, and of */
    rad_state device_state; /* a load or fetch that ends with one; 0: of none. See hi_loose_state */
    bool checks;            /* a storage backup that asks first */
    bool reserved[3];
    uint32_t hung;         /* of the pages that a fetch got, already the tree's */
    uint32_t of_use;       /* of a fetch: pages that can be gone on behind now */
    uint32_t asked;        /* of a fetch: pages that the store was asked for */
    uint32_t event_spaces; /* of a fetch whose events are told: EVENT_HAS_... */
    uint32_t window_from;  /* of a fetch: the window before its begin is there from this page on */
    uint32_t lost_page;    /* of a fetch: 1 + the page that storage had and that was bad, or gone
                            * when it was asked for; 0: none. The worker's until it is acked */

    atomic_uint fetched;   /* pages that are on the host, verified */
    atomic_uint present;   /* pages that storage has */
    uint64_t recompute_ns; /* a token */
} hi_op;

/* Where the K/V of some layers lie: of those that see every position, or of those that see a
 * window.
 */
typedef struct hi_pool {
    struct hiradix_cache *of;
    rad_host_kv_pool *host; /* NULL: the model has no such layers */
    rad_token_to_kv_pool *device;
    uint32_t num_layers, start_layer;
} hi_pool;

/* Of a path on the host that ends in this node: the node's first `pages` pages, and all before
 * them, need nothing of the store before `until`. */
typedef struct hi_settled {
    uint32_t pages; /* 0: nothing is known */
    uint32_t until; /* as marks have it */
    uint32_t epoch; /* holds while this is store_epoch */
} hi_settled;

typedef struct hiradix_cache {
    rad_cache base;
    rad_cache *device;  /* a RadixCache over both tiers */
    radix_cache *nodes; /* the same */
    radix_tree *tree;   /* its tree */
    hi_pool full, window;
    rad_state_pool *host_states;  /* NULL: snapshots are the device's alone */
    rad_kv_allocator *host_pages; /* the full pool's, or, */
    rad_kv_allocator *own_pages;  /* where there are windows, one with a window side */
    rad_hicache_params params;    /* defaults filled in; pointers are not kept */
    uint32_t page_size;
    uint32_t bigram;
    uint32_t num_host_pages;
    uint32_t load_steps; /* of a load: in each, some layers of each pool */

    tickets out; /* transfers */

    uint64_t demote_pages;
    uint64_t demoted_at;  /* pages in and out on the device when demotion last looked */
    bool sweeping;        /* and beyond the coldest: */
    uint32_t sweep_place; /* where it is in the heap of leaves */
    uint64_t sweep_pages; /* what it has seen */
    uint64_t swept_at;    /* as demoted_at, when it began */
    uint32_t *looked_at;  /* [nodes + 1]: when a leaf was last found to have its copy */
    uint32_t *looked_gen;
    uint32_t epoch; /* grows when copies may have gone */

    bool has_identity;
    page_store store;        /* records of the full pool's pages, */
    page_store window_store; /* and of window pages, under the same hashes of tokens; */
    page_store state_store;  /* of snapshots, by the host's states, */
    page_store mark_store;   /* and where they are */
    bool store_held;         /* no transfer with it begins */
    uint64_t *fetched;       /* a bit: came from storage and was not loaded yet */
    uint64_t *in_storage;    /* a bit: storage acknowledged it; with events of tiers only */
    uint32_t *stored_at;     /* [num_host_pages + 1], see hiradix_recheck.c */
    hi_settled *settled;     /* [nodes + 1], the same */
    uint32_t store_epoch;    /* grows when marks of stored pages were taken back */
    uint32_t checks;         /* out now */
    rad_prefetch_report last_prefetch;

    rad_hicache_stats stats;
} hiradix_cache;

/* ---- hiradix_cache.c ---- */

extern const cache_ops hiradix_ops;

/* The cache if it is one with tiers, else NULL. */
hiradix_cache *hiradix_of(const rad_cache *cache);

/* ---- hiradix_create.c ---- */

void hi_destroy(rad_cache *cache);
size_t hi_own_bytes(const hiradix_cache *c); /* of memory, the tree not counted */

/* The store of all records. */
static inline void hi_set_store(hiradix_cache *c, const rad_storage *storage)
{
    c->store.backend = c->window_store.backend = *storage;
    c->state_store.backend = c->mark_store.backend = *storage;
}

/* What records are filed under from now on. */
rad_status hi_set_fingerprint(hiradix_cache *c, const rad_storage_fingerprint *fingerprint,
                              rad_error *err);

/* ---- hiradix_tickets.c ---- */

extern const ticket_ops hi_ticket_ops;

static inline hi_op *hi_op_take(hiradix_cache *c, transfer_kind kind, uint32_t count)
{
    return (hi_op *)tickets_take(&c->out, kind, count, 0);
}

/* Where there are windows on the host, NULL where not. */
static inline const radix_window *hi_windows(const hiradix_cache *c)
{
    return c->tree->windows[RADIX_HOST];
}

/* The same of snapshots. */
static inline const radix_state *hi_states(const hiradix_cache *c)
{
    return c->tree->states[RADIX_HOST];
}

/* The host's state that is a transfer's alone: nobody else's until it has ended well. */
static inline rad_state hi_loose_state(const hi_ticket *k)
{
    return k->t.kind == TRANSFER_WRITE || k->gets ? ((const hi_op *)k)->host_state : 0;
}

/* Evicts `count` of what `evict` gives on the device. What waits to be copied is locked, and
 * whoever needs room now needs it more: while it is too little, writes that hold some of it are
 * given up. */
typedef rad_status (*hi_evict_fn)(rad_cache *device, uint64_t count, uint64_t *evicted);
rad_status hi_evict_by(hiradix_cache *c, hi_evict_fn evict, ticket_holds_fn holds, uint64_t count,
                       uint64_t *evicted);

uint32_t hi_key_pages(const hiradix_cache *c, const rad_key *key);

/* Follows the key's first `pages` pages, as far as they go on any tier, from a node on its path
 * whose end or any place behind it is `from` pages deep; `node` 0: from its namespace's root. The
 * result is all zero when there is none. */
radix_pos hi_follow(const hiradix_cache *c, const rad_key *key, uint32_t pages, uint32_t node,
                    uint32_t depth, uint32_t from);

/* The node in which a walk ended, and how deep that one ends. */
static inline uint32_t hi_end_of(const hiradix_cache *c, const radix_pos *pos, uint32_t *depth)
{
    *depth = pos->pages;
    if (!pos->child) return pos->node;
    *depth += c->tree->nodes[pos->child].pages - pos->part;
    return pos->child;
}

/* Locks the node, which ends `depth` pages deep, on a tier, and the hold that goes with it. */
hi_hold hi_lock_device(hiradix_cache *c, uint32_t node, uint32_t depth);
hi_hold hi_lock_host(hiradix_cache *c, uint32_t node, uint32_t depth);
void hi_unlock_host(hiradix_cache *c, hi_hold *hold);

/* And the window side of pages [from, its depth) with it, once. */
void hi_lock_window(hiradix_cache *c, radix_tier tier, hi_hold *hold, uint32_t from);

/* Host pages, evicting if need be; all or nothing. */
bool hi_take_host_pages(hiradix_cache *c, rad_page *pages, uint32_t count);
bool hi_make_host_room(hiradix_cache *c, uint32_t count);
void hi_note_taken(hiradix_cache *c, const rad_page *pages, uint32_t count);
void hi_free_host_pages(hiradix_cache *c, const rad_page *pages, uint32_t count);
void hi_drop_host(void *cache, const rad_page *pages, const kv_run *runs, uint32_t count);

/* The same of window pages on the host, which are no page's yet. */
bool hi_take_host_windows(hiradix_cache *c, rad_page *pages, uint32_t count);

/* Pages [begin, end) of a path to a node, which ends `depth` pages deep. */
typedef struct hi_run {
    uint32_t node, depth;
    uint32_t begin, end;
} hi_run;

/* These window pages, which are loose and hold the K/V of the run, become those of its host pages.
 * What would leave a gap within its node, or stands in a node that the host has not, is given back,
 * as is what the host has already. Returns how many it has got by it. */
uint32_t hi_fill_windows(hiradix_cache *c, const hi_run *run, const rad_page *windows);
void hi_drop_host_windows(void *cache, const rad_page *pages, const kv_run *runs, uint32_t count);

/* Deterministic only: runs the (pick % queued)-th of the queued transfers. RAD_NONE: none is. */
rad_status hi_pump(rad_cache *cache, uint64_t pick);

/* Queues and tickets in words, one line each, cut to `bytes`, its end included. RAD_E_INVAL without
 * room for it. */
rad_status hi_describe(const rad_cache *cache, char *text, size_t bytes);

/* ---- hiradix_states.c; all of it does nothing where the host has no states ---- */

/* A state of the host, evicting if need be; 0: there is none. */
rad_state hi_take_host_state(hiradix_cache *c);
void hi_drop_host_state(void *cache, rad_state state);

/* Locks the snapshot behind the held node with it, once. */
void hi_lock_state(hiradix_cache *c, radix_tier tier, hi_hold *hold);

/* Begins to copy the live snapshots of the path to `node`, which ends `depth` pages deep, in its
 * first `end` pages, where the host has the pages before them, or gets them. O(nodes up to one that
 * the host has). */
void hi_write_states(hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t end);
rad_status hi_run_write_state(hiradix_cache *c, const hi_op *op);
void hi_state_written(hiradix_cache *c, hi_op *op);

/* The same here and now, of a path that is on the host. */
void hi_save_states(hiradix_cache *c, uint32_t leaf, uint32_t depth);

/* What of the walk's pages, which end where the request is going to go on by the host's snapshot,
 * the device has still: locks them by the receipt, and returns how many it has, or those that the
 * request has locked already, and an empty receipt. And: they are the request's prefix now. */
uint32_t hi_extend_prefix(hiradix_cache *c, const rad_req_kv *req, radix_pos pos,
                          rad_receipt *receipt);
void hi_move_prefix(hiradix_cache *c, rad_req_kv *req, const rad_receipt *receipt, uint32_t pages);

/* A device state for a load: the request's spare one, or, evicting if need be, another; 0: none. */
rad_state hi_take_spare(hiradix_cache *c, const rad_req_kv *req);
rad_status hi_run_load_state(hiradix_cache *c, const hi_op *op);

/* The snapshot behind the node's end, which is on the host and ends `depth` pages deep, goes to
 * storage if it is not there. */
void hi_write_backup_storage_state(hiradix_cache *c, uint32_t node, uint32_t depth);

rad_status hi_put_state(rad_cache *cache, rad_ref node, uint32_t depth_tokens, rad_state state,
                        rad_error *err);
rad_status hi_evict_state(rad_cache *cache, uint64_t count, uint64_t *evicted);
bool hi_owns_state(const rad_cache *cache, rad_state state);
void hi_visit_states(const rad_cache *cache, cache_state_fn visit, void *user);
uint64_t hi_orphaned_states(const hiradix_cache *c);
rad_status hi_check_states(const hiradix_cache *c, rad_error *err);

/* ---- hiradix_check.c ---- */

rad_status hi_check(const rad_cache *cache, rad_error *err);

/* ---- hiradix_write.c ---- */

/* The first `end` pages of the path to `node`, which ends `depth` pages deep, have been published:
 * begins to copy what the policy wants copied and the host lacks. False: there is no ticket or
 * no room for all of it. */
bool hi_write_backup(hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t end, bool force);

/* A request goes on behind the prefix that it has locked, as others did in other ways: the window
 * before its end goes to the host, although no prompt ended there. */
void hi_write_shared_window(hiradix_cache *c, const rad_req_kv *req);

/* A snapshot has come behind the path's first `end` pages: begins to copy it if the policy wants
 * that. */
void hi_write_put_state(hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t end);
rad_status hi_run_write(void *cache, hi_ticket *k, uint32_t worker);
void hi_write_done(void *cache, hi_ticket *k);

/* radix_host.save: copies the leaf and what the host lacks of its path, here and now. */
void hi_save_leaf(void *cache, uint32_t leaf, uint32_t pages);
void hi_demote(void *cache);

/* ---- hiradix_load.c ---- */

rad_status hi_run_load(void *cache, hi_ticket *k, uint32_t worker);
void hi_load_done(void *cache, hi_ticket *k);

/* Before a request ends: takes what has not arrived out of its record. */
rad_status hi_load_leave(hiradix_cache *c, rad_req_kv *req, rad_error *err);

/* What became of a page of a storage backup. The last two are a check's: where it got no answer all
 * is as it was. */
typedef enum hi_backup_storage_end {
    HI_NOT_STORED,
    HI_STORED,
    HI_FOUND,
    HI_AS_IT_WAS
} hi_backup_storage_end;

/* ---- hiradix_recheck.c ---- */

typedef enum hi_need { HI_NOTHING, HI_BACKUP_STORAGE, HI_CHECK } hi_need;

/* Now, as marks have it. */
uint32_t hi_recheck_time(const hiradix_cache *c);

/* What a host page needs that a request has matched; and for how long nothing more, once it has
 * that: 0, it cannot have it now. O(1). */
hi_need hi_what_is_needed(const hiradix_cache *c, rad_page page, uint32_t time, uint32_t *lasts);

/* How many pages of the path to `node`, which ends `depth` pages deep, are settled, and for how
 * long still. O(nodes that are not). And: its first `end` pages are, for so long. */
uint32_t hi_settled_pages(const hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t time,
                          uint32_t *lasts);
void hi_settle(hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t end, uint32_t time,
               uint32_t lasts);

/* Whether that is so of the node on the host, and of its parent. */
bool hi_settled_is_sound(const hiradix_cache *c, uint32_t node);

/* Settled paths, as a part of the tree. */
extern const node_part_ops hi_settled_part;

/* Nothing is known to be stored. */
void hi_forget_stored(hiradix_cache *c);

/* The page is in storage; or a storage backup of it begins, and needs nothing until that has ended.
 */
void hi_mark_stored(hiradix_cache *c, rad_page page, uint32_t time);
void hi_mark_out(hiradix_cache *c, rad_page page, uint32_t time);

/* What a check says: it is there; or it was not there any more, and is now. */
void hi_mark_found(hiradix_cache *c, rad_page page);
void hi_mark_stored_anew(hiradix_cache *c, rad_page page);

/* ---- hiradix_events.c; all of it does nothing without params.tier_events ---- */

/* What the cache's params need for it, and that it is made. */
void hi_events_params(const hiradix_cache *c, rad_cache_params *params);
rad_status hi_events_begin(hiradix_cache *c, rad_error *err);
size_t hi_events_bytes(const hiradix_cache *c); /* of in_storage */

/* Tiers (RAD_TIER_...) have been cleared: tells so, and what is left. */
void hi_events_cleared(hiradix_cache *c, uint32_t tiers);

/* These host pages are somebody else's from now on. */
void hi_events_taken(hiradix_cache *c, const rad_page *pages, uint32_t count);

/* Storage has pages [begin, begin + count) on the path to a node that ends `depth` pages deep and
 * is on the host; where `done` is not NULL, those for which it is HI_STORED. */
void hi_events_stored(hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t begin,
                      uint32_t count, const rad_page *done);

/* A fetch begins for this key; and it has ended: its lost page is told. */
void hi_events_note_space(hiradix_cache *c, hi_op *op, const rad_key *key);
void hi_events_lost(hiradix_cache *c, const hi_op *op);

/* ---- hiradix_explain.c ---- */

/* A prefetch was refused or has just begun: returns `status`. It has ended or was revoked, and
 * what came of it is in the tree. */
rad_status hi_prefetch_note(hiradix_cache *c, rad_prefetch_end why, rad_status status);
void hi_prefetch_ended(hiradix_cache *c, const hi_op *op, bool revoked);

/* ---- hiradix_backup_storage.c ---- */

/* Pages [begin, end) of the path to `node`, which ends `depth` pages deep, are on the host, as the
 * node is: what storage lacks of them goes there. O(pages that are not settled). */
void hi_write_backup_storage(hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t begin,
                             uint32_t end);
/* The same of the window sides before the end of `node`, which is on the host and ends `depth`
 * pages deep. (Whether it still has them is not asked: see hi_backup_storage_done.) */
void hi_write_backup_storage_windows(hiradix_cache *c, uint32_t node, uint32_t depth);
rad_status hi_run_backup_storage(void *cache, hi_ticket *k, uint32_t worker);
void hi_backup_storage_done(void *cache, hi_ticket *k);

/* ---- hiradix_fetch.c ---- */

rad_status hi_run_fetch(void *cache, hi_ticket *k, uint32_t worker);
void hi_fetch_done(void *cache, hi_ticket *k);

#endif
