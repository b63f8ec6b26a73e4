/* radix_journal.c - what is written down when pages enter, leave and move.
 *
 * A chain is computed once, when its leaf is hung, from the last page of its parent;
 * from then on a page's hash lies beside it:
 *
 *     tokens        | t t t t | t t t t | t t t t |
 *     hashes        |   h0    |   h1    |   h2    |      h1 = SHA-256(h0 || tokens)
 *     fingerprints  |   f0    |   f1    |   f2    |      f1 = XXH3(tokens, seed f0)
 *
 * Under bigram keys a page has the second halves of its pairs, and the token before it,
 * its lead, is the first half of the first. Hashes take both halves of each pair. For
 * fingerprints all tokens of the path are enough, so the path's first lead goes into
 * their seed.
 *
 * Fingerprints are not SHA-256 because they serve explanations only, at a fraction of the
 * cost; a tenant who finds two keys that collide fools himself. Namespaces are told
 * apart by the seed, and that is SHA-256.
 *
 * Invariant, verified by journal_check(): the chains of all nodes are what their tokens
 * give. */
#include "cache/radix_journal.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { FEWEST_EVENTS = 1 << 16, MOST_EVENTS = 1 << 20 }; /* pages, when 0 was asked for */

static const node_part_ops journal_ops;

static void journal_destroy(radix_journal *j)
{
    rad_env env = j->env;
    rad_free(&env, j->hashes, (size_t)j->arena_pages * sizeof *j->hashes);
    rad_free(&env, j->fingerprints, (size_t)j->arena_pages * sizeof *j->fingerprints);
    event_ring_fini(&j->events, &env);
    eviction_log_fini(&j->evictions);
    eviction_log_fini(&j->host_evictions);
    rad_page_hasher_destroy(j->hasher);
    rad_free(&env, j, sizeof *j);
}

rad_status radix_journal_create(const rad_env *env, const rad_cache_params *p, radix_tree *t,
                                rad_error *err)
{
    if (!p->enable_kv_events && !p->enable_page_hashes && !p->explain_pages &&
        !p->explain_namespaces)
        return RAD_OK;
    if (p->kv_event_pages > INT32_MAX || p->explain_pages > INT32_MAX / 2)
        return rad_fail(err, RAD_E_LIMIT, "radix_cache: %u pages of events, %u of explanations",
                        p->kv_event_pages, p->explain_pages);
    radix_journal *j = rad_alloc(env, sizeof *j);
    if (!j) return rad_fail(err, RAD_E_NOMEM, "radix_cache: no memory");
    j->env = *env;
    j->arena_pages = t->spans.capacity;
    j->has_events = p->enable_kv_events != 0;
    j->explains_namespaces = p->explain_namespaces != 0;
    bool ok = true;
    if (p->enable_kv_events || p->enable_page_hashes) {
        j->hashes = rad_alloc(env, rad_mul(j->arena_pages, sizeof *j->hashes));
        ok = j->hashes != NULL;
    }
    if (ok && p->enable_kv_events) {
        uint32_t usual = RAD_MIN(t->limits.max_pages, (uint32_t)MOST_EVENTS);
        uint32_t pages = p->kv_event_pages ? p->kv_event_pages : RAD_MAX(usual, FEWEST_EVENTS);
        ok = event_ring_init(&j->events, env, pages, p->page_size, t->limits.bigram != 0);
    }
    if (ok && p->explain_pages) {
        j->fingerprints = rad_alloc(env, rad_mul(j->arena_pages, sizeof *j->fingerprints));
        ok = eviction_log_init(&j->evictions, env, p->explain_pages) && j->fingerprints;
        if (ok && t->host.of) ok = eviction_log_init(&j->host_evictions, env, p->explain_pages);
    }
    rad_status status = ok ? rad_page_hasher_create(env, &j->hasher, err) : RAD_E_NOMEM;
    if (!ok) rad_fail(err, status, "radix_cache: no memory for hashes, events or explanations");
    if (status) {
        journal_destroy(j);
        return status;
    }
    t->journal = j;
    radix_add_part(t, &journal_ops, j);
    return RAD_OK;
}

size_t radix_journal_bytes(const radix_journal *j)
{
    size_t arena = j ? j->arena_pages : 0;
    if (!j) return 0;
    return sizeof *j + (j->hashes ? arena * sizeof *j->hashes : 0) +
           (j->fingerprints ? arena * sizeof *j->fingerprints : 0) + event_ring_bytes(&j->events) +
           eviction_log_bytes(&j->evictions) + eviction_log_bytes(&j->host_evictions);
}

/* --- chains --- */

static const rad_page_hash no_hash;

static bool is_hashed(const rad_page_hash *hash)
{
    return memcmp(hash, &no_hash, sizeof no_hash) != 0;
}

journal_seed radix_journal_seed(const radix_journal *j, const char *extra_key,
                                const char *cache_salt)
{
    journal_seed seed = {.spaces = (extra_key ? EVENT_HAS_EXTRA_KEY : 0u) |
                                   (cache_salt ? EVENT_HAS_CACHE_SALT : 0u)};
    if (!seed.spaces) return seed;
    rad_status status = rad_page_hash_seed(j->hasher, extra_key, cache_salt, &seed.hash);
    RAD_ASSERT_ENV(&j->env, status == RAD_OK || !j->has_events);
    if (status != RAD_OK) seed.hash = no_hash; /* never the default namespace's none */
    seed.seeded = true;
    seed.id = (uint64_t)rad_page_hash_event(&seed.hash);
    return seed;
}

journal_seed radix_journal_seed_of(const radix_journal *j, const radix_tree *t, uint32_t node)
{
    const namespace_name *name = &t->names.entries[t->nodes[node].ns].name;
    return radix_journal_seed(j, namespace_extra_key(name), namespace_cache_salt(name));
}

uint64_t radix_journal_start(const radix_tree *t, const journal_seed *seed, rad_token lead)
{
    return t->limits.bigram ? XXH3_64bits_withSeed(&lead, sizeof lead, seed->id) : seed->id;
}

uint64_t radix_journal_fingerprint(uint64_t prior, const rad_token *page, uint32_t page_size)
{
    return XXH3_64bits_withSeed(page, (size_t)page_size * sizeof *page, prior);
}

/* The offset of the page before the node's first one; false: nothing is before it. */
static bool page_before(const radix_tree *t, const radix_node *n, uint32_t *at)
{
    const radix_node *p = &t->nodes[n->parent];
    *at = p->at + p->pages - 1;
    return p->pages != 0;
}

static const rad_token *page_tokens(const radix_tree *t, const radix_node *n, uint32_t at)
{
    return radix_tokens(t, n) + (size_t)at * t->limits.page_size;
}

/* Under bigram keys the first half of the first pair of page `at`, otherwise 0. */
static rad_token page_lead(const radix_tree *t, const radix_node *n, uint32_t at)
{
    if (!t->limits.bigram) return 0;
    return at ? page_tokens(t, n, at)[-1] : radix_lead(t, n);
}

/* `lead`: under bigram keys the token before the page. */
static rad_status hash_tokens(const radix_journal *j, const radix_tree *t,
                              const rad_page_hash *prior, rad_token lead, const rad_token *page,
                              rad_page_hash *hash)
{
    uint32_t ps = t->limits.page_size;
    return t->limits.bigram ? rad_page_hash_bigrams(j->hasher, prior, lead, page, ps, hash)
                            : rad_page_hash_tokens(j->hasher, prior, page, ps, hash);
}

/* Behind a page without a hash there is none. */
static void hash_page(const radix_journal *j, const radix_tree *t, const radix_node *n, uint32_t at,
                      const rad_page_hash *prior, rad_page_hash *hash)
{
    *hash = no_hash;
    if (prior && !is_hashed(prior)) return;
    rad_status status = hash_tokens(j, t, prior, page_lead(t, n, at), page_tokens(t, n, at), hash);
    RAD_ASSERT_ENV(&j->env, status == RAD_OK || !j->has_events);
    if (status != RAD_OK) *hash = no_hash;
}

rad_status radix_journal_hash_key(const radix_journal *j, const radix_tree *t, const rad_key *key,
                                  uint32_t begin, uint32_t count, const rad_page_hash *prior,
                                  rad_page_hash *hashes)
{
    rad_page_hash seed;
    rad_status status = RAD_OK;
    if (!begin) {
        status = rad_page_hash_seed(j->hasher, key->extra_key, key->cache_salt, &seed);
        prior = status == RAD_NONE ? NULL : &seed; /* none: the default namespace's */
        if (status == RAD_NONE) status = RAD_OK;
    }
    const rad_token *page = key->tokens + (size_t)begin * t->limits.page_size;
    for (uint32_t i = 0; !status && i < count; prior = &hashes[i++], page += t->limits.page_size)
        status = hash_tokens(j, t, prior, page[0], page + t->limits.bigram, &hashes[i]);
    return status;
}

static const rad_page_hash *first_prior(const radix_journal *j, const radix_tree *t,
                                        const radix_node *n, const journal_seed *seed)
{
    uint32_t before;
    if (page_before(t, n, &before)) return &j->hashes[before];
    return seed->seeded ? &seed->hash : NULL;
}

static uint64_t first_fingerprint(const radix_journal *j, const radix_tree *t, const radix_node *n,
                                  const journal_seed *seed)
{
    uint32_t before;
    if (page_before(t, n, &before)) return j->fingerprints[before];
    return radix_journal_start(t, seed, page_lead(t, n, 0));
}

event_page radix_journal_page(const radix_journal *j, const radix_tree *t, uint32_t node,
                              uint32_t at, const journal_seed *seed)
{
    const radix_node *n = &t->nodes[node];
    uint32_t before = n->at + at - 1;
    event_page page = {.hash = rad_page_hash_event(&j->hashes[n->at + at]),
                       .tokens = page_tokens(t, n, at),
                       .lead = page_lead(t, n, at),
                       .entry = {.type = RAD_KV_STORED, .space = seed->id}};
    page.entry.spaces = (uint8_t)seed->spaces;
    page.entry.medium = EVENT_GPU;
    page.entry.has_parent = at || page_before(t, n, &before);
    if (page.entry.has_parent) page.entry.parent = rad_page_hash_event(&j->hashes[before]);
    return page;
}

/* --- what the tree tells --- */

static void hash_node(radix_journal *j, const radix_tree *t, uint32_t node,
                      const journal_seed *seed)
{
    const radix_node *n = &t->nodes[node];
    const rad_page_hash *prior = first_prior(j, t, n, seed);
    for (uint32_t i = 0; i < n->pages; i++, prior = &j->hashes[n->at + i - 1])
        hash_page(j, t, n, i, prior, &j->hashes[n->at + i]);
}

static void journal_on_add(void *self, radix_tree *t, uint32_t leaf)
{
    radix_journal *j = self;
    const radix_node *n = &t->nodes[leaf];
    uint32_t ps = t->limits.page_size;
    journal_seed seed = radix_journal_seed_of(j, t, leaf);
    if (j->hashes) hash_node(j, t, leaf, &seed);
    if (j->fingerprints) {
        uint64_t chain = first_fingerprint(j, t, n, &seed);
        for (uint32_t i = 0; i < n->pages; i++)
            j->fingerprints[n->at + i] = chain =
                radix_journal_fingerprint(chain, page_tokens(t, n, i), ps);
    }
}

bool radix_journal_digest(const radix_journal *j, const radix_tree *t, uint32_t node,
                          uint64_t *digest)
{
    journal_seed seed = radix_journal_seed_of(j, t, node);
    *digest = seed.id;
    return !seed.seeded || is_hashed(&seed.hash);
}

const rad_page_hash *radix_journal_hash(const radix_journal *j, uint32_t unit)
{
    return is_hashed(&j->hashes[unit]) ? &j->hashes[unit] : NULL;
}

bool radix_journal_rehash(radix_journal *j, radix_tree *t, uint32_t node)
{
    uint32_t below = 0, id = node;
    for (; t->nodes[id].parent; below = id, id = t->nodes[id].parent) {
        if (is_hashed(&j->hashes[t->nodes[id].at + t->nodes[id].pages - 1])) break;
        t->host.of[id].below = below;
    }
    if (!below) return true;
    journal_seed seed = radix_journal_seed_of(j, t, node);
    for (id = below; id; id = t->host.of[id].below)
        hash_node(j, t, id, &seed);
    return is_hashed(&j->hashes[t->nodes[node].at + t->nodes[node].pages - 1]);
}

static void journal_on_enter(void *self, radix_tree *t, uint32_t node, radix_tier tier)
{
    radix_journal *j = self;
    bool on_host = tier == RADIX_HOST;
    if (on_host ? !j->has_tier_events : !j->has_events) return;
    journal_seed seed = radix_journal_seed_of(j, t, node);
    for (uint32_t i = 0; i < t->nodes[node].pages; i++) {
        event_page stored = radix_journal_page(j, t, node, i, &seed);
        if (on_host) stored.entry.medium = EVENT_CPU_PINNED;
        event_ring_push(&j->events, &stored);
    }
}

static void journal_on_cut(void *self, radix_tree *t, uint32_t leaf, radix_tier tier, uint32_t kept)
{
    radix_journal *j = self;
    bool on_host = tier == RADIX_HOST;
    if (j->muted) return;
    const radix_node *n = &t->nodes[leaf];
    if (on_host ? j->has_tier_events : j->has_events) {
        journal_seed seed = radix_journal_seed_of(j, t, leaf);
        event_page gone = {.entry = {.type = RAD_KV_REMOVED, .space = seed.id}};
        gone.entry.spaces = (uint8_t)seed.spaces;
        gone.entry.medium = on_host ? EVENT_CPU_PINNED : EVENT_GPU;
        for (uint32_t i = n->pages; i-- > kept;) {
            gone.hash = rad_page_hash_event(&j->hashes[n->at + i]);
            event_ring_push(&j->events, &gone);
        }
    }
    if (j->fingerprints) {
        eviction_record record = {.operation = t->clock,
                                  .time_ns = j->env.now_ns(j->env.user),
                                  .cause = j->asked ? RAD_EVICTION_ASKED : RAD_EVICTION_ROOM};
        eviction_log *log = on_host ? &j->host_evictions : &j->evictions;
        /* Deepest first: the front of a prompt is what the ring remembers longest. */
        for (uint32_t i = n->pages; i-- > kept;) {
            record.fingerprint = j->fingerprints[n->at + i];
            eviction_log_add(log, &record);
        }
        const eviction_note note = {.time_ns = record.time_ns,
                                    .idle_operations = t->clock - n->last_access,
                                    .node = leaf,
                                    .generation = t->ids.generation[leaf],
                                    .namespace_id = n->ns,
                                    .tokens = (n->pages - kept) * t->limits.page_size,
                                    .hit_count = n->hit_count,
                                    .cause = (uint16_t)record.cause,
                                    .on_host = on_host,
                                    .whole = kept == 0};
        eviction_notes_add(&j->notes, &note);
    }
}

static void journal_on_move(void *self, radix_tree *t, uint32_t to, uint32_t from, uint32_t len)
{
    radix_journal *j = self;
    (void)t;
    if (j->hashes) memmove(j->hashes + to, j->hashes + from, len * sizeof *j->hashes);
    if (j->fingerprints)
        memmove(j->fingerprints + to, j->fingerprints + from, len * sizeof *j->fingerprints);
}

/* After AllBlocksCleared a consumer is in step again, whatever it missed; so when there is
 * no room for it, it takes the place of all that is queued. */
void radix_journal_cleared(radix_journal *j, bool device, bool host)
{
    if (device) eviction_log_forget(&j->evictions);
    if (host) eviction_log_forget(&j->host_evictions);
    if (j->has_tier_events || !device) return; /* the others may have theirs still */
    if (j->events.lost || j->events.count == j->events.capacity) event_ring_forget(&j->events);
    event_page cleared = {.entry = {.type = RAD_KV_CLEARED}};
    if (j->has_events) event_ring_push(&j->events, &cleared);
}

void radix_journal_push_all(radix_journal *j, const radix_tree *t, bool on_host,
                            rad_kv_event_fn visit, void *user)
{
    uint32_t depth;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));) {
        journal_seed seed = radix_journal_seed_of(j, t, id);
        if (!radix_is_on(t, id, on_host ? RADIX_HOST : RADIX_DEVICE)) continue;
        for (uint32_t i = 0; i < t->nodes[id].pages; i++) {
            event_page page = radix_journal_page(j, t, id, i, &seed);
            if (on_host) page.entry.medium = EVENT_CPU_PINNED;
            if (visit && j->events.count == j->events.capacity)
                event_ring_take(&j->events, visit, user);
            event_ring_push(&j->events, &page);
        }
    }
}

static rad_status journal_check(void *self, const radix_tree *t, rad_error *err)
{
    const radix_journal *j = self;
    uint32_t depth, ps = t->limits.page_size;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));) {
        const radix_node *n = &t->nodes[id];
        journal_seed seed = radix_journal_seed_of(j, t, id);
        const rad_page_hash *prior = j->hashes ? first_prior(j, t, n, &seed) : NULL;
        uint64_t chain = j->fingerprints ? first_fingerprint(j, t, n, &seed) : 0;
        for (uint32_t i = 0; i < n->pages; i++) {
            rad_page_hash hash;
            bool ok = true;
            if (j->hashes) {
                hash_page(j, t, n, i, prior, &hash);
                prior = &j->hashes[n->at + i];
                /* What cannot be hashed, then or now, is not compared. */
                ok = !is_hashed(prior) || !is_hashed(&hash) ||
                     memcmp(prior, &hash, sizeof hash) == 0;
            }
            if (j->fingerprints) {
                chain = radix_journal_fingerprint(chain, page_tokens(t, n, i), ps);
                ok = ok && chain == j->fingerprints[n->at + i];
            }
            if (!ok)
                return rad_fail(err, RAD_E_CORRUPT,
                                "radix_check: node %u has a wrong hash of page %u", id, i);
        }
    }
    return RAD_OK;
}

static void journal_clear(void *self, radix_tree *t)
{
    (void)t;
    radix_journal_cleared(self, true, true);
}

static void journal_fini(void *self, radix_tree *t)
{
    t->journal = NULL;
    journal_destroy(self);
}

static const node_part_ops journal_ops = {
    .fini = journal_fini,
    .clear = journal_clear,
    .on_add = journal_on_add,
    .on_move = journal_on_move,
    .on_enter = journal_on_enter,
    .on_cut = journal_on_cut,
    .check = journal_check,
};
