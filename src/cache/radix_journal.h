/* radix_journal.h - what the tree remembers about pages beyond their tokens: hashes,
 * events, fingerprints. Each is off unless asked for; a tree without any has no journal
 * and pays one test of a pointer where pages enter, leave or move.
 *
 * Hashes and fingerprints lie in arenas of their own under the same offsets as the tokens: a
 * split is nothing to them, a trim is nothing, a merge or a compaction moves them along. */
#ifndef CACHE_RADIX_JOURNAL_H
#define CACHE_RADIX_JOURNAL_H

#include <radish/explain.h>
#include <radish/page_hash.h>

#include "cache/event_ring.h"
#include "cache/eviction_log.h"
#include "cache/radix_tree.h"

typedef struct radix_journal {
    rad_env env;
    rad_page_hasher *hasher;
    rad_page_hash *hashes;  /* [arena pages] or NULL */
    uint64_t *fingerprints; /* [arena pages] or NULL */
    uint32_t arena_pages;
    bool explains_namespaces;
    bool asked; /* an eviction now is what rad_cache_evict was asked for */
    bool muted; /* what leaves a tier now is cleared, and not evicted: it is told as a whole */
    bool has_events;
    bool has_tier_events; /* of the host and of storage too: then whoever manages these tiers tells
                           * of clears, and of everything: */
    event_ring events;
    void (*tell_all)(void *user, rad_kv_event_fn visit, void *visit_user);
    void *tell_user;
    eviction_log evictions, host_evictions;
    eviction_notes notes; /* of both; kept where fingerprints are */
} radix_journal;

/* What a namespace's chains start from; all zero in the default one. */
typedef struct journal_seed {
    bool seeded;
    uint32_t spaces; /* EVENT_HAS_... */
    uint64_t id;
    rad_page_hash hash;
} journal_seed;

/* Makes what the params ask for a part of the tree, which has no nodes yet: t->journal, NULL when
 * that is nothing. It goes with the tree. */
rad_status radix_journal_create(const rad_env *env, const rad_cache_params *params, radix_tree *t,
                                rad_error *err);
size_t radix_journal_bytes(const radix_journal *j);

/* All of a tier is forgotten, or of both. */
void radix_journal_cleared(radix_journal *j, bool device, bool host);

/* A page that could not be hashed (libcrypto failed) has the hash of all zeros, and so have those
 * behind it: it has no name in a store. Tries those of the path to `node` again; false: some are
 * left. O(pages of the nodes that have some). */
bool radix_journal_rehash(radix_journal *j, radix_tree *t, uint32_t node);

/* Hashes of pages [begin, begin + count) of a key that need not be in the tree. `prior` is the hash
 * of page begin - 1; where begin is 0 it is not looked at, the namespace's seed stands there.
 * Negative (RAD_E_LIMIT: a name of the namespace is too long): `hashes` is not to be used. */
rad_status radix_journal_hash_key(const radix_journal *j, const radix_tree *t, const rad_key *key,
                                  uint32_t begin, uint32_t count, const rad_page_hash *prior,
                                  rad_page_hash *hashes);

/* What stands for a node's namespace in a record, 0 for the default one. False: it cannot be made,
 * and nothing may be stored. */
bool radix_journal_digest(const radix_journal *j, const radix_tree *t, uint32_t node,
                          uint64_t *digest);

/* The hash of the page at this place in the arenas, NULL when it has none. */
const rad_page_hash *radix_journal_hash(const radix_journal *j, uint32_t unit);

journal_seed radix_journal_seed(const radix_journal *j, const char *extra_key,
                                const char *cache_salt);

/* What the fingerprints of a chain start from, whose first token is `lead`: under bigram
 * keys that one is in no page. */
uint64_t radix_journal_start(const radix_tree *t, const journal_seed *seed, rad_token lead);

/* The fingerprint of the page that follows one with the fingerprint `prior`. */
uint64_t radix_journal_fingerprint(uint64_t prior, const rad_token *page, uint32_t page_size);

/* The event of page `at` of a node; parents and tokens set. */
event_page radix_journal_page(const radix_journal *j, const radix_tree *t, uint32_t node,
                              uint32_t at, const journal_seed *seed);
journal_seed radix_journal_seed_of(const radix_journal *j, const radix_tree *t, uint32_t node);

/* Pushes a store for each page of a tier, parents first. With `visit` the ring is handed
 * over whenever it is full, so that nothing is lost. */
void radix_journal_push_all(radix_journal *j, const radix_tree *t, bool on_host,
                            rad_kv_event_fn visit, void *user);

#endif
