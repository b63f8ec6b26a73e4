/* swa_hi_impl.h - the struct behind the tiers of a sliding-window cache, and what its files share.
 *
 *     swa_hicache.c      the calls that pass through to the device
 *     swa_hi_create.c    create and destroy
 *     tickets.c          what transfers hold; poll, drain
 *     swa_hi_tickets.c   what of it is this cache's own, and pages
 *     swa_hi_write.c     device -> host: what gets a copy, and when it is found
 *     swa_hi_load.c      host -> device
 *     swa_hi_storage.c   host -> storage, and stores
 *     swa_hi_fetch.c     storage -> host
 *     swa_hi_check.c     stats and check
 *
 * Both tiers are a rad_swa_cache over a rad_swa_allocator: a page is named by its full side and
 * its window side, if any, is in the allocator's map. Lengths are in pages where they are not
 * named otherwise. */
#ifndef HICACHE_SWA_HI_IMPL_H
#define HICACHE_SWA_HI_IMPL_H

#include <radish/swa_hicache.h>

#include "cache/swa_cache_impl.h"
#include "hicache/page_chain.h"
#include "hicache/page_store.h"
#include "hicache/tickets.h"

enum {
    SWA_HI_WRITE_TOKENS = 1024, /* of one write: short, so that a load does not wait long */
    SWA_HI_STORE_PAGES = 64     /* most pages in one call of a store */
};

/* One transfer and all that it holds. Of a backup k.device[] are the full pages that have the
 * hashes. */
typedef struct swa_op {
    hi_ticket k;               /* first */
    uint32_t num_swa;          /* of the two lists of window pages */
    uint32_t side;             /* of a backup */
    rad_page *swa_host;        /* [num_swa]; a backup: [count], 1 where the store has it now */
    rad_page *swa_device;      /* [num_swa] */
    rad_swa_receipt on_device; /* what is locked meanwhile */
    rad_swa_receipt on_host;
    bool whole; /* a fetch that got all it has pages for */
    bool unused[3];
    uint32_t found; /* pages that a fetch can have, from `begin` on */
} swa_op;

/* What the tiers have of each kind of layer. */
typedef struct swa_side {
    rad_host_kv_pool *pool;
    rad_token_to_kv_pool *device_pool;
    uint32_t num_layers;
    uint32_t *step; /* [num_layers]: when a load has brought it, see swa_hi_load.c */
    void (*next_wait_layer)(void *user, uint32_t layer);
    void *next_wait_user;
    rad_swa_hicache *tiers;

    page_store store;
    uint32_t num_host_pages;
} swa_side;

enum { SIDE_FULL = 0, SIDE_SWA = 1 };

struct rad_swa_hicache {
    rad_env env;
    rad_swa_cache *device;
    rad_swa_cache *host;
    rad_swa_allocator *host_kv; /* who has which host page of both sides */
    swa_side side[2];
    rad_swa_hicache_params params; /* defaults filled in; pointers are not kept */
    uint32_t page_size;
    uint32_t window; /* pages */
    uint32_t num_device_pages;
    uint32_t num_host_pages;

    tickets out; /* transfers */

    rad_token *tokens; /* scratch: the longest path */
    rad_page *path;    /* scratch [num_device_pages + 1] */
    rad_page *on_host; /* scratch [num_host_pages + 1] */
    rad_slot *slots;   /* scratch [num_slots] */
    size_t num_tokens;
    uint32_t num_slots;

    uint64_t demote_pages[2];
    uint64_t demoted_at; /* the device tree's clock when demotion last looked */
    uint64_t *looked_at; /* [device nodes + 1]: epoch and generation of a node that had its copy */
    uint32_t epoch;      /* grows when copies may have gone */

    bool has_identity;
    page_chain chain;
    rad_page_hash *hashes; /* [num_host_pages + 1] of what is cached */
    uint64_t *fetched;     /* a bit: came from storage and was not loaded yet */
    rad_swa_hicache_stats stats;
};

/* ---- swa_hicache.c ---- */

/* The first `pages` pages of a key. */
rad_key swa_hi_front(const rad_swa_hicache *c, const rad_key *key, uint32_t pages);

/* The key of the first `pages` pages on the path to a live node; tokens go to c->tokens, the names
 * point into the tree. */
rad_key swa_hi_path_key(rad_swa_hicache *c, const radix_tree *t, uint32_t node, uint32_t pages);

/* The first `end` pages on the path to a node, into pages[]. */
void swa_hi_path_pages(const radix_tree *t, uint32_t node, uint32_t end, rad_page *pages);

/* Where the key's first `pages` pages end in a tree. */
typedef struct swa_hi_place {
    uint32_t node;  /* the last node that has some of them; 0: none does */
    uint32_t part;  /* so many of its pages belong to it; 0: all */
    uint32_t pages; /* are there */
} swa_hi_place;
swa_hi_place swa_hi_find(rad_swa_cache *tree, const rad_key *key, uint32_t pages, bool touch);

/* How many pages of the key the host has such that a request with `floor` pages on the device can
 * go on from there; at most `place` is found. <= floor: none. */
uint32_t swa_hi_usable(const rad_swa_hicache *c, swa_hi_place place, uint32_t floor);

/* ---- swa_hi_tickets.c ---- */

extern const ticket_ops swa_ticket_ops;

/* A ticket with room for `count` pages; NULL when there is none, or no list space. */
swa_op *swa_op_take(rad_swa_hicache *c, transfer_kind kind, uint32_t count);

/* op->count host pages into op->host; those with op->swa_device[i] get a window side while there
 * are some, the last ones first. Evicts if need be; op->swa_host is scratch. */
bool swa_hi_take_host(rad_swa_hicache *c, swa_op *op);
void swa_hi_free_host(rad_swa_hicache *c, const rad_page *pages, uint32_t count);

/* Fills the op's lists of window pages: of pages that have one on both tiers (`pairs`), or on the
 * host. */
void swa_op_list_windows(rad_swa_hicache *c, swa_op *op, bool pairs);

/* ---- swa_hi_write.c ---- */

/* The first `end` pages on the path to a device node have been published, or are to be evicted:
 * begins to copy what the host lacks. False: there is no ticket or no room for all of it. */
bool swa_hi_back_up(rad_swa_hicache *c, uint32_t node, uint32_t end);
rad_status swa_hi_run_write(void *cache, hi_ticket *k, uint32_t worker);
void swa_hi_write_done(void *cache, hi_ticket *k);

/* host[0..count) hold pages [begin, begin + count) of a key: they enter the host tree. Returns how
 * many did; the rest stays the caller's. `chain`: their hashes, or NULL to compute them. */
uint32_t swa_hi_hang(rad_swa_hicache *c, const rad_key *key, uint32_t begin, const rad_page *host,
                     uint32_t count, const rad_page_hash *chain);
void swa_hi_demote(void *cache);

/* ---- swa_hi_load.c ---- */

/* Brings the layers of both sides into the order in which they are loaded. */
void swa_hi_order_layers(rad_swa_hicache *c);
uint32_t swa_hi_load_steps(const rad_swa_hicache *c); /* layers of both sides */
void swa_hi_wait_layer(void *side, uint32_t layer);
rad_status swa_hi_run_load(void *cache, hi_ticket *k, uint32_t worker);
void swa_hi_load_done(void *cache, hi_ticket *k);
rad_status swa_hi_load_leave(rad_swa_hicache *c, rad_swa_req *req, rad_error *err);

/* ---- swa_hi_storage.c ---- */

rad_status swa_hi_open_storage(rad_swa_hicache *c, const rad_swa_hicache_params *p, rad_error *err);
void swa_hi_close_storage(rad_swa_hicache *c);

/* The first `end` pages of a key are on the host: what storage lacks of them goes there. */
void swa_hi_save(rad_swa_hicache *c, const rad_key *key, uint32_t end);
rad_status swa_hi_run_backup(void *cache, hi_ticket *k, uint32_t worker);
void swa_hi_backup_done(void *cache, hi_ticket *k);

/* ---- swa_hi_fetch.c ---- */

rad_status swa_hi_run_fetch(void *cache, hi_ticket *k, uint32_t worker);
void swa_hi_fetch_done(void *cache, hi_ticket *k);

#endif
