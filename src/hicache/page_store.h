/* page_store.h - the pages of a host pool, or its states, as records of a store.
 *
 *     host page | K/V |  <->  record | header, K/V |  <->  the store, under H(fingerprint || hash)
 *
 * Where the pool's pages are records already, they are handed to the store as they lie; else they
 * pass through staging, which each worker of the storage lane has its own of. A lot is one call's
 * worth: its keys, where its records lie, which of them went well. A store that fails is a miss,
 * and its words are put down for the owner (store_trouble).
 *
 * Stores come and go in the owner's thread while no transfer with them is out; lots are the
 * workers'. */
#ifndef HICACHE_PAGE_STORE_H
#define HICACHE_PAGE_STORE_H

#include <radish/page_hash.h>
#include <radish/storage.h>
#include <stdatomic.h>

#include "hicache/cache_controller.h"
#include "mem/host_kv_pool.h"
#include "mem/state_pool.h"

/* Whether a store has an optional call: a table compiled against an older header is shorter. */
#define STORE_HAS(ops, call)                                                                       \
    ((ops)->struct_size >= offsetof(rad_storage_ops, call) + sizeof(ops)->call && (ops)->call)

enum { STORE_LOT_PAGES = 128 };

/* What a store says when it fails, as far as a person wants to read it.
 *
 *     worker: none -> being put down -> there        owner: there -> logged -> none
 *
 * Workers meet the trouble, but only the owner's thread logs. A store that is down fails with
 * every page: what finds older words there is not told, and the owner tells no more than one of
 * them in half a minute. */
typedef struct store_trouble {
    atomic_uint_fast64_t failed_calls;
    atomic_uint_fast64_t bad_records; /* that did not verify; counted by who finds one */
    atomic_uint state;
    char text[200];
    uint64_t quiet_until_ns;
} store_trouble;

/* A store answered `status`. Any thread. */
void store_trouble_note(store_trouble *t, rad_status status, const rad_error *err);

/* Logs what is there, as `who`. The owner's thread. */
void store_trouble_tell(store_trouble *t, const rad_env *env, const char *who);

typedef struct page_store {
    rad_storage backend; /* ops NULL: none */
    rad_storage_fingerprint fingerprint;
    rad_host_kv_pool *pool; /* NULL: there are no such records */
    rad_state_pool *states; /* or these are the host's states */
    store_trouble *trouble;
    uint64_t *saved; /* a bit per host page or state: in storage, or on its way there */
    size_t record_bytes;
    uint32_t num_pages;  /* on the host, whatever the pool has */
    uint32_t page_size;  /* tokens */
    uint32_t call_pages; /* most in one call */
    uint32_t first_worker, num_workers;
    char *staging; /* [num_workers][call_pages][record_bytes], or NULL */
    size_t staging_bytes;
} page_store;

/* Whether a store has the functions that are needed; else RAD_E_INVAL. */
rad_status page_store_check_backend(const rad_storage *backend, rad_error *err);

/* False: no memory; page_store_fini has to run all the same, and takes a zeroed one. */
bool page_store_init(page_store *s, const rad_env *env, rad_host_kv_pool *pool, uint32_t num_pages,
                     const controller_params *workers, store_trouble *trouble);
/* The same of states; and of marks, records of nothing but their key. */
bool page_store_init_states(page_store *s, const rad_env *env, rad_state_pool *states,
                            uint32_t page_size, store_trouble *trouble);
bool page_store_init_marks(page_store *s, const rad_env *env, uint32_t page_size,
                           const controller_params *workers, store_trouble *trouble);
void page_store_fini(page_store *s, const rad_env *env);
size_t page_store_bytes(const page_store *s);

/* Nothing is known to be saved. */
void page_store_forget(page_store *s);

typedef struct store_lot {
    rad_storage_key keys[STORE_LOT_PAGES];
    void *records[STORE_LOT_PAGES];
    uint8_t done[STORE_LOT_PAGES];
    rad_storage_batch batch;
} store_lot;

/* Begins a lot of `count` pages by their hashes. False: this build cannot hash. */
bool store_lot_chain(const page_store *s, store_lot *l, const rad_page_hash *chain, uint32_t count);

/* How many the store has, from the first on. */
rad_status store_lot_exists(const page_store *s, store_lot *l, uint64_t deadline_ns,
                            uint32_t *present);

/* Gets the records of host[0..batch.count); l->done says which came. */
rad_status store_lot_get(const page_store *s, store_lot *l, const rad_page *host, uint32_t worker,
                         uint64_t deadline_ns);

/* Record i is of no use: it leaves the store, where that can be said. */
void store_lot_remove(const page_store *s, const store_lot *l, uint32_t i);

/* Whether record i is what was asked for; then it is in its host page. Else it is bad, is counted
 * and leaves the store. */
bool store_lot_accept(const page_store *s, const store_lot *l, uint32_t i, rad_page host);

/* Seals the K/V of host[0..batch.count) into records and stores them; l->done says which went
 * well. */
rad_status store_lot_set(const page_store *s, store_lot *l, const rad_page *host, uint32_t worker,
                         uint64_t namespace_digest);

#endif
