/* hiradix_impl.h - the struct behind HiRadixCache, and what its files share.
 *
 *     hiradix_cache.c     the cache's table, create, destroy
 *     hiradix_tickets.c   what transfers hold; poll, drain
 *     hiradix_check.c     stats and check
 *     hiradix_write.c     device -> host: what gets a copy, and when it is found
 *     hiradix_load.c      host -> device
 *     hiradix_storage.c   stores come and go
 *     hiradix_backup.c    host -> storage
 *     hiradix_fetch.c     storage -> host
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

#include "base/slab.h"
#include "base/span.h"
#include "cache/cache_impl.h"
#include "hicache/cache_controller.h"
#include "hicache/store_trouble.h"
#include "hicache/tree_path.h"

enum {
    HI_MOST_TRANSFERS = 65535, /* an id is half a ticket */
    HI_WRITE_TOKENS = 1024,    /* of one write: short, so that a load does not wait long */
    HI_SLOTS = 4096,           /* tokens whose slots are looked up at a time */
    HI_HASH_UNITS = sizeof(rad_page_hash) / sizeof(rad_page),
    HI_STORE_PAGES = 128 /* most pages in one call of a store */
};

/* One transfer and all that it holds: its ticket. */
typedef struct hi_op {
    transfer t; /* first */
    uint32_t id;
    uint32_t run; /* in the arena of lists */
    uint32_t count;
    uint32_t begin;        /* the first page's number on its path */
    rad_page *host;        /* [count], in the arena */
    rad_page *device;      /* [count]: loads and writes; backups: hi_backup_end of each */
    rad_page_hash *chain;  /* [count], in the arena: fetches */
    rad_receipt on_device; /* what is locked meanwhile */
    rad_receipt on_host;
    uint64_t pin_ttl; /* a write: the copy is to be pinned so long; 0: not */
    bool submitted;
    bool acked;  /* taken from the controller */
    bool orphan; /* a load or fetch whose request has gone */
    bool gets;   /* a fetch that has asked what is there, and has host pages for it */
    bool ended;  /* a fetch that nothing more will come of */
    bool checks; /* a backup that asks first */
    bool reserved[3];
    uint32_t hung;    /* of a fetch's pages, already the host tree's */
    uint32_t reserve; /* pages that a fetch counts for in the budget */
    uint64_t namespace_digest;
    uint32_t asked;        /* of a fetch: pages that the store was asked for */
    uint32_t event_spaces; /* of a fetch whose events are told: EVENT_HAS_... */
    uint32_t lost_page;    /* of a fetch: 1 + the page that storage had and that was bad, or gone
                            * when it was asked for; 0: none. The worker's until it is acked */

    atomic_uint fetched; /* pages that are on the host, verified */
    atomic_uint present; /* pages that storage has */
    uint64_t start_ns;
    uint64_t deadline_ns;
    uint64_t recompute_ns;       /* a token */
    struct hi_op *older, *newer; /* writes, by their start */
} hi_op;

typedef struct hiradix_cache {
    rad_cache base;
    rad_cache *device; /* a RadixCache */
    rad_cache *host;   /* a RadixCache over the host pool's pages */
    radix_cache *device_tree;
    radix_cache *counted; /* the host's tree, where its policy asks for hits or priority; or NULL */
    rad_host_kv_pool *pool;
    rad_token_to_kv_pool *device_pool;
    rad_kv_allocator *host_pages;
    rad_hicache_params params; /* defaults filled in; pointers are not kept */
    uint32_t page_size;
    uint32_t bigram;
    uint32_t num_host_pages;
    uint32_t num_layers, start_layer;

    cache_controller *controller;
    controller_params workers;
    slab ids;
    hi_op *ops; /* [max_transfers + 1] */
    span_arena runs;
    rad_page *lists; /* the arena: the pages of transfers */
    hi_op *oldest_write, *newest_write;
    uint32_t pending_loads; /* not submitted yet */
    uint32_t orphans;       /* loads that own device pages for nobody */
    uint64_t orphan_pages;
    uint64_t last_done_ns; /* when a transfer ended */
    bool complained;       /* that none does */

    rad_token *tokens; /* scratch: the longest path */
    size_t num_tokens;
    rad_slot *slots; /* scratch [num_slots] */
    uint32_t num_slots;

    uint64_t demote_pages;
    uint64_t demoted_at;  /* pages in and out of the device tree when demotion last looked */
    bool sweeping;        /* and beyond the coldest: */
    uint32_t sweep_place; /* where it is in the heap of leaves */
    uint64_t sweep_pages; /* what it has seen */
    uint64_t swept_at;    /* as demoted_at, when it began */
    uint32_t *looked_at;  /* [device nodes + 1]: when a leaf was last found to have its copy */
    uint32_t *looked_gen;
    uint32_t epoch; /* grows when copies may have gone */

    bool has_identity;
    rad_storage_fingerprint fingerprint;
    rad_storage storage; /* ops NULL: none */
    bool store_held;     /* no transfer with it begins */
    rad_page_hasher *hasher;
    rad_page_hash *hashes; /* [num_host_pages + 1] of what is cached */
    uint64_t *saved;       /* a bit per host page: in storage, or on its way there */
    uint64_t *fetched;     /* a bit: came from storage and was not loaded yet */
    uint64_t *in_storage;  /* a bit: storage acknowledged it; with events of tiers only */
    uint32_t *stored_at;   /* [num_host_pages + 1], see hiradix_recheck.c */
    uint32_t checks;       /* out now */
    size_t record_bytes;
    uint32_t store_pages; /* a call */
    char *staging;        /* [workers][store_pages][record_bytes] in layer_first, else NULL */
    size_t staging_bytes;
    uint64_t prefetch_reserved; /* pages */
    rad_prefetch_report last_prefetch;
    uint32_t storage_ops; /* out now */

    void (*next_wait_layer)(void *user, uint32_t layer);
    void *next_wait_user;
    rad_hicache_stats stats;
    atomic_uint_fast64_t bad_pages, storage_errors;
    store_trouble trouble;
} hiradix_cache;

/* The cache if it is one with tiers, else NULL. */
hiradix_cache *hiradix_of(const rad_cache *cache);

/* How many of op->host are the transfer's own: a fetch has none before it knows how many. */
static inline uint32_t hi_op_host_pages(const hi_op *op)
{
    return op->t.kind == TRANSFER_WRITE || op->gets ? op->count : 0;
}

/* ---- hiradix_tickets.c ---- */

/* A ticket with room for `count` pages; NULL when there is none, or no list space. */
hi_op *hi_op_take(hiradix_cache *c, transfer_kind kind, uint32_t count);
void hi_op_give(hiradix_cache *c, hi_op *op);               /* unlocks, too; frees no page */
hi_op *hi_op_find(const hiradix_cache *c, uint32_t ticket); /* NULL: stale */
uint32_t hi_op_ticket(const hiradix_cache *c, const hi_op *op);
void hi_op_submit(hiradix_cache *c, hi_op *op);

/* The key's first `pages` pages. */
rad_key hi_key_front(const hiradix_cache *c, const rad_key *key, uint32_t pages);
uint32_t hi_key_pages(const hiradix_cache *c, const rad_key *key);

/* Pages [first, first + count) on the path of a handle of one of the two trees. */
void hi_pages_of(hiradix_cache *c, rad_cache *tree, const rad_match_handle *handle, uint32_t first,
                 uint32_t count, rad_page *pages);

/* Host pages, evicting if need be; all or nothing. */
bool hi_take_host_pages(hiradix_cache *c, rad_page *pages, uint32_t count);
void hi_free_host_pages(hiradix_cache *c, const rad_page *pages, uint32_t count);

/* Runs a transfer, in a worker's thread. */
rad_status hi_run(void *user, transfer *t, uint32_t worker);

/* Takes what is done, and does what follows from it. poll looks after demotion too, which locks
 * pages on the device: only when the owner asks for it, so that what it sees as evictable
 * between two polls stays so. */
void hi_take_done(hiradix_cache *c);
void hi_poll(hiradix_cache *c);

/* Ends all transfers, and gives back what they hold without a trace in the trees. Pages of
 * loads whose requests are there still are those requests'. */
void hi_abandon_all(hiradix_cache *c);

/* ---- hiradix_check.c ---- */

rad_status hi_check(const rad_cache *cache, rad_error *err);

/* ---- hiradix_write.c ---- */

/* The first `end` pages of `key`, whose last node on the device is `node`, have been published:
 * begins to copy what the policy wants copied and the host lacks. False: there is no ticket or
 * no room for all of it. */
bool hi_back_up(hiradix_cache *c, const rad_key *key, rad_ref node, uint32_t end, bool force,
                uint64_t pin_ttl);
rad_status hi_run_write(hiradix_cache *c, hi_op *op);
void hi_settle_writes(hiradix_cache *c);

/* Pages host[0..count) hold the K/V of pages [begin, begin + count) of a key: they enter the
 * host tree, which has what is before. Returns how many did, or were there already and are
 * freed; the rest stays the caller's. `chain`: their hashes, or NULL to compute them. */
uint32_t hi_hang(hiradix_cache *c, const rad_key *key, uint32_t begin, const rad_page *host,
                 uint32_t count, const rad_page_hash *chain);
void hi_demote(hiradix_cache *c);

/* Ends the newest write that can be ended: at once when no worker has begun it, else it is asked
 * to. False: there is none. */
bool hi_give_up_a_write(hiradix_cache *c);

/* ---- hiradix_load.c ---- */

rad_status hi_run_load(hiradix_cache *c, hi_op *op);
void hi_load_acked(hiradix_cache *c, hi_op *op);

/* Before a request publishes: RAD_OK when its load arrived, and then it is over. */
rad_status hi_load_settle(hiradix_cache *c, rad_req_kv *req, rad_error *err);

/* Before a request ends: takes what has not arrived out of its record. */
rad_status hi_load_leave(hiradix_cache *c, rad_req_kv *req, rad_error *err);

/* What became of a page of a backup. The last two are a check's: where it got no answer all is
 * as it was. */
typedef enum hi_backup_end { HI_NOT_STORED, HI_STORED, HI_FOUND, HI_AS_IT_WAS } hi_backup_end;

/* ---- hiradix_recheck.c ---- */

typedef enum hi_need { HI_NOTHING, HI_BACKUP, HI_CHECK } hi_need;

/* Now, as marks have it. */
uint32_t hi_recheck_time(const hiradix_cache *c);

/* What a host page that somebody comes by needs. O(1). */
hi_need hi_what_is_needed(const hiradix_cache *c, rad_page page, uint32_t time);

/* The page is in storage; or a backup of it begins, and until that has ended it needs nothing. */
void hi_mark_stored(hiradix_cache *c, rad_page page, uint32_t time);
void hi_mark_out(hiradix_cache *c, rad_page page, uint32_t time);

/* What a check says: it is there; or it was not there any more, and is now. */
void hi_mark_found(hiradix_cache *c, rad_page page);
void hi_mark_stored_anew(hiradix_cache *c, rad_page page);

/* ---- hiradix_events.c; all of it does nothing without params.tier_events ---- */

/* What the trees' params need for it, and that the trees are made. */
void hi_events_params(const hiradix_cache *c, rad_cache_params *device, rad_cache_params *host);
rad_status hi_events_join(hiradix_cache *c, rad_error *err);
size_t hi_events_bytes(const hiradix_cache *c); /* of in_storage */

/* Tiers (RAD_TIER_...) have been cleared: tells so, and what is left. */
void hi_events_cleared(hiradix_cache *c, uint32_t tiers);

/* These host pages are somebody else's from now on. */
void hi_events_taken(hiradix_cache *c, const rad_page *pages, uint32_t count);

/* Storage has pages [begin, begin + count) on the path to a node of the host tree; where `done`
 * is not NULL, those for which it is HI_STORED. */
void hi_events_stored(hiradix_cache *c, rad_ref node, uint32_t begin, uint32_t count,
                      const rad_page *done);

/* A fetch begins for this key; and it has ended: its lost page is told. */
void hi_events_note_space(hiradix_cache *c, hi_op *op, const rad_key *key);
void hi_events_lost(hiradix_cache *c, const hi_op *op);

/* ---- hiradix_explain.c ---- */

/* A prefetch was refused or has just begun: returns `status`. It has ended or was revoked, and
 * what came of it is in the host tree. */
rad_status hi_prefetch_note(hiradix_cache *c, rad_prefetch_end why, rad_status status);
void hi_prefetch_ended(hiradix_cache *c, const hi_op *op, bool revoked);

/* The host is about to evict: for whom. */
void hi_explain_taken(hiradix_cache *c);

/* ---- hiradix_storage.c ---- */

rad_status hi_check_storage(const rad_storage *s, rad_error *err);

/* Hashes of pages [begin, begin + count) of a key behind `prior` (NULL: behind nothing). */
void hi_hash_pages(hiradix_cache *c, const rad_key *key, uint32_t begin, uint32_t count,
                   const rad_page_hash *prior, rad_page_hash *hashes);

/* What the chain at page `begin` of the key goes on from; false: nothing. `before` is the host
 * page in front of it, not looked at when begin is 0. */
bool hi_prior_hash(hiradix_cache *c, const rad_key *key, uint32_t begin, rad_page before,
                   rad_page_hash *prior);

/* A call's worth of records: keys, and where the bytes lie or are put. */
typedef struct hi_lot {
    rad_storage_key keys[HI_STORE_PAGES];
    void *records[HI_STORE_PAGES];
    uint8_t done[HI_STORE_PAGES];
    rad_storage_batch batch;
} hi_lot;

/* False: this build cannot hash. */
bool hi_lot_keys(const hiradix_cache *c, hi_lot *l, const rad_page_hash *const *hashes,
                 uint32_t count);

/* The records of these host pages, or the worker's staging for them. */
void hi_lot_records(hiradix_cache *c, hi_lot *l, const rad_page *host, uint32_t count,
                    uint32_t worker);

/* A store answered so, in a worker's thread: failures are counted, and their words put down. */
void hi_note_trouble(hiradix_cache *c, rad_status status, const rad_error *err);

/* ---- hiradix_backup.c ---- */

/* Pages [begin, end) of the key are on the host: what storage lacks of them goes there. */
void hi_save(hiradix_cache *c, const rad_key *key, uint32_t begin, uint32_t end);
rad_status hi_run_backup(hiradix_cache *c, hi_op *op, uint32_t worker);
void hi_backup_acked(hiradix_cache *c, hi_op *op);

/* ---- hiradix_fetch.c ---- */

rad_status hi_run_fetch(hiradix_cache *c, hi_op *op, uint32_t worker);
void hi_fetch_acked(hiradix_cache *c, hi_op *op);

#endif
