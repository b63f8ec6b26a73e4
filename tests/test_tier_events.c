/* test_tier_events.c - a consumer that replays the events of all tiers has exactly what each of
 * them has.
 *
 * The consumer is strict about device and host: a stored block's parent must be known on
 * the same medium, no block is stored twice, a removed one is there and has no children. Of
 * storage it is told what was acknowledged; that is held against the store itself. What it
 * was told is also the model of what an explanation must say. */
#include "hicache_rig.h"

#include <radish/hicache_explain.h>
#include <radish/kv_events.h>

enum { DEVICE, HOST, STORAGE, TIERS, TABLE = 1 << 14, UNIVERSE = 1 << 13 };

typedef struct block {
    bool used, there;
    uint32_t tier, children;
    int64_t hash, parent;
    bool has_parent;
    uint64_t space, tokens; /* a digest of its tokens */
} block;

/* A page of some prompt, with what the store calls it. */
typedef struct page {
    int64_t hash;
    uint64_t space;
    rad_storage_key key;
} page;

typedef struct consumer {
    block table[TABLE];
    uint32_t count[TIERS];
    uint32_t stores[TIERS], removes[TIERS], clears;
    uint64_t lost;
    bool strict;
    bool restarted; /* storage was told anew: what only it has is unknown */
    const char *wrong, *storage_medium;
    page universe[UNIVERSE];
    uint32_t num_universe;
    rad_page_hasher *hasher;
    uint64_t seed;
} consumer;

static consumer c; /* large */

static void reset_consumer(uint64_t seed)
{
    rad_page_hasher_destroy(c.hasher);
    c = (consumer){.strict = true, .storage_medium = "EXTERNAL", .seed = seed};
    CHECK_OK(rad_page_hasher_create(NULL, &c.hasher, NULL));
}

static void end_consumer(void)
{
    rad_page_hasher_destroy(c.hasher);
    c.hasher = NULL;
}

/* Its place, or where it would stand. */
static block *find(uint32_t tier, int64_t hash, uint64_t space)
{
    uint32_t at = (uint32_t)mix64((uint64_t)hash ^ mix64(space + tier)) % TABLE;
    for (uint32_t tries = 0; tries < TABLE; tries++, at = (at + 1) % TABLE) {
        block *b = &c.table[at];
        if (!b->used || (b->hash == hash && b->space == space && b->tier == tier)) return b;
    }
    fail_msg("the table is full");
    return NULL;
}

static uint64_t digest(const rad_token *tokens, uint32_t count)
{
    uint64_t d = count;
    for (uint32_t i = 0; i < count; i++)
        d = hrig_digest(d, tokens[i]);
    return d;
}

static void on_stored(uint32_t tier, const rad_kv_event *e)
{
    uint32_t len = e->num_token_ids / e->num_blocks;
    int64_t parent = e->parent_block_hash;
    bool has_parent = e->has_parent;
    for (uint32_t i = 0; i < e->num_blocks; i++) {
        block *b = find(tier, e->block_hashes[i], e->namespace_id);
        block *p = has_parent ? find(tier, parent, e->namespace_id) : NULL;
        if (tier != STORAGE) {
            if (b->used && b->there) c.wrong = "a block stored twice";
            if (p && !p->there) c.wrong = "an unknown parent";
            if (p) p->children++;
        }
        c.count[tier] += !b->there;
        *b = (block){.used = true,
                     .there = true,
                     .tier = tier,
                     .hash = e->block_hashes[i],
                     .parent = parent,
                     .has_parent = has_parent,
                     .space = e->namespace_id,
                     .tokens = digest(e->token_ids + (size_t)i * len, len)};
        parent = b->hash;
        has_parent = true;
    }
    c.stores[tier] += e->num_blocks;
}

static void on_removed(uint32_t tier, const rad_kv_event *e)
{
    for (uint32_t i = 0; i < e->num_blocks; i++) {
        block *b = find(tier, e->block_hashes[i], e->namespace_id);
        if (tier == STORAGE && !b->there) continue;
        if (!b->there) {
            c.wrong = "a removed block that was not stored";
            return;
        }
        if (b->children) c.wrong = "a removed block with children";
        if (b->has_parent && tier != STORAGE) find(tier, b->parent, b->space)->children--;
        b->there = false;
        c.count[tier]--;
    }
    c.removes[tier] += e->num_blocks;
}

static void consume(void *user, const rad_kv_event *e)
{
    (void)user;
    uint32_t tier = STORAGE;
    if (strcmp(e->medium, "GPU") == 0)
        tier = DEVICE;
    else if (strcmp(e->medium, "CPU_PINNED") == 0)
        tier = HOST;
    else if (strcmp(e->medium, c.storage_medium) != 0)
        c.wrong = "the medium";
    switch (e->type) {
    case RAD_KV_STORED: on_stored(tier, e); break;
    case RAD_KV_REMOVED: on_removed(tier, e); break;
    case RAD_KV_CLEARED:
        memset(c.table, 0, sizeof c.table);
        memset(c.count, 0, sizeof c.count);
        c.restarted = true;
        c.clears++;
        break;
    default: c.lost += e->lost_blocks;
    }
}

/* Takes what is queued; after a gap everything is told anew. */
static void take(hrig *r)
{
    uint64_t lost = c.lost;
    CHECK_OK(rad_cache_take_events(r->cache, consume, NULL));
    if (c.lost != lost) CHECK_OK(rad_cache_snapshot_events(r->cache, consume, NULL));
    CHECKF(!c.wrong, "seed %llu: the consumer met %s\n", (unsigned long long)c.seed, c.wrong);
}

/* ---- against the trees and the store ---- */

typedef struct walk {
    const hrig *r;
    uint32_t tier, blocks;
    rad_page_hash last[64]; /* of the node at this depth */
} walk;

static void hash_page(const hrig *r, const rad_page_hash *prior, const rad_token *tokens,
                      uint64_t *seen, rad_page_hash *hash)
{
    rad_token pairs[2 * HRIG_ROW_TOKENS];
    if (!hiradix_of(r->cache)->bigram) {
        CHECK_OK(rad_page_hash_tokens(c.hasher, prior, tokens, r->ps, hash));
        *seen = digest(tokens, r->ps);
        return;
    }
    CHECK_OK(rad_page_hash_bigrams(c.hasher, prior, tokens[0], tokens + 1, r->ps, hash));
    for (uint32_t i = 0; i < 2 * r->ps; i++)
        pairs[i] = tokens[i / 2 + i % 2];
    *seen = digest(pairs, 2 * r->ps);
}

static void compare(void *user, rad_ref node, uint32_t depth, const rad_token *tokens,
                    const rad_slot *slots, uint32_t num_tokens, uint32_t lock_ref,
                    uint32_t hit_count)
{
    walk *w = user;
    (void)slots, (void)lock_ref, (void)hit_count;
    const radix_tree *t = hrig_tree(w->r);
    const namespace_entry *e = &t->names.entries[t->nodes[node.index].ns];
    rad_page_hash seed, prior;
    bool named = rad_page_hash_seed(c.hasher, namespace_extra_key(&e->name),
                                    namespace_cache_salt(&e->name), &seed) == RAD_OK;
    bool has_prior = depth > 1 || named;
    prior = depth > 1 ? w->last[depth - 1] : seed;
    for (uint32_t i = 0; i < num_tokens; i += w->r->ps, has_prior = true) {
        rad_page_hash hash;
        uint64_t seen;
        hash_page(w->r, has_prior ? &prior : NULL, tokens + i, &seen, &hash);
        const block *b = find(w->tier, rad_page_hash_event(&hash),
                              named ? (uint64_t)rad_page_hash_event(&seed) : 0);
        if (!b->there) c.wrong = "a cached page that the consumer does not know";
        if (b->tokens != seen) c.wrong = "other tokens";
        prior = hash;
        w->blocks++;
    }
    CHECK(depth < 64);
    w->last[depth] = prior;
}

static void same_trees(hrig *r)
{
    const hiradix_cache *hi = hiradix_of(r->cache);
    take(r);
    for (uint32_t tier = DEVICE; tier <= HOST; tier++) {
        walk w = {.r = r, .tier = tier};
        CHECK_OK(tier == DEVICE ? rad_cache_walk(hi->device, compare, &w)
                                : radix_cache_walk_host(hi->nodes, compare, &w));
        CHECKF(!c.wrong, "seed %llu: tier %u: %s\n", (unsigned long long)c.seed, tier, c.wrong);
        CHECKF(w.blocks == c.count[tier], "seed %llu: tier %u has %u pages, the consumer %u\n",
               (unsigned long long)c.seed, tier, w.blocks, c.count[tier]);
    }
}

/* The hashes of the request's whole pages; returns how many. */
static uint32_t hash_prompt(const hrig *r, const hreq *q, rad_page_hash *hashes, uint64_t *space)
{
    rad_page_hash seed;
    bool named = rad_page_hash_seed(c.hasher, q->extra_key, q->cache_salt, &seed) == RAD_OK;
    const rad_page_hash *prior = named ? &seed : NULL;
    uint32_t count = q->num_tokens / r->ps;
    *space = named ? (uint64_t)rad_page_hash_event(&seed) : 0;
    for (uint32_t i = 0; i < count; prior = &hashes[i++])
        CHECK_OK(rad_page_hash_tokens(c.hasher, prior, q->tokens + i * r->ps, r->ps, &hashes[i]));
    return count;
}

/* Remembers what the store would call the request's pages. */
static void know(const hrig *r, const hreq *q)
{
    rad_page_hash hashes[HRIG_ROW_TOKENS];
    rad_storage_fingerprint fingerprint;
    page p;
    CHECK_OK(rad_storage_fingerprint_of(&r->identity, &fingerprint, NULL));
    for (uint32_t i = 0, count = hash_prompt(r, q, hashes, &p.space); i < count; i++) {
        p.hash = rad_page_hash_event(&hashes[i]);
        bool known = false;
        for (uint32_t k = 0; k < c.num_universe && !known; k++)
            known = c.universe[k].hash == p.hash && c.universe[k].space == p.space;
        if (known) continue;
        CHECK_OK(rad_storage_key_of(&fingerprint, &hashes[i], &p.key));
        CHECK(c.num_universe < UNIVERSE);
        c.universe[c.num_universe++] = p;
    }
}

/* Told of storage: all that it has, or after a restart of the consumer no more than that, and
 * what the host has. */
static void same_storage(hrig *r)
{
    uint32_t known = 0;
    take(r);
    rad_storage open = storage_mem_open(&r->store);
    storage_fate (*script)(void *, storage_call, uint64_t) = r->store.script;
    r->store.script = NULL;
    for (uint32_t i = 0; i < c.num_universe; i++) {
        const page *p = &c.universe[i];
        rad_storage_batch batch = {.keys = &p->key, .count = 1};
        uint32_t present;
        CHECK_OK(open.ops->batch_exists(open.self, &batch, &present, NULL));
        bool told = find(STORAGE, p->hash, p->space)->there;
        known += told;
        if (told && !present) c.wrong = "a stored page that storage does not have";
        if (!told && present && !c.restarted) c.wrong = "a page of storage that was not told";
    }
    r->store.script = script;
    CHECKF(!c.wrong, "seed %llu: %s\n", (unsigned long long)c.seed, c.wrong);
    CHECK(known == c.count[STORAGE]);
}

/* The pages of a key that a tier has from the start on, and behind them those that it once had,
 * by what the consumer was told. */
static void pages_of(const hrig *r, const hreq *q, uint32_t tier, uint32_t *there, uint32_t *gone)
{
    rad_page_hash hashes[HRIG_ROW_TOKENS];
    uint64_t space;
    *there = *gone = 0;
    for (uint32_t i = 0, count = hash_prompt(r, q, hashes, &space); i < count; i++) {
        const block *b = find(tier, rad_page_hash_event(&hashes[i]), space);
        if (!b->used) return;
        if (b->there) CHECK(!*gone);
        *(b->there ? there : gone) += 1;
    }
}

static void same_explanation(hrig *r, const hreq *q)
{
    rad_tier_explanation e = {.struct_size = sizeof e};
    rad_key key = hreq_key(q, q->num_tokens);
    uint32_t there[2], gone[2], whole = q->num_tokens / r->ps * r->ps;
    CHECK_OK(rad_hicache_explain(r->cache, &key, &e));
    const uint32_t end[2] = {e.device_tokens, e.host_end}, why[2] = {e.device_why, e.host_why};
    const uint32_t evicted[2] = {e.device_evicted_tokens, e.host_evicted_tokens};
    for (uint32_t tier = DEVICE; tier <= HOST; tier++) {
        pages_of(r, q, tier, &there[tier], &gone[tier]);
        uint32_t want = gone[tier] ? RAD_END_EVICTED : RAD_END_NEVER_SEEN;
        if (end[tier] == whole)
            want = whole == q->num_tokens ? RAD_END_COMPLETE : RAD_END_PAGE_ROUNDING;
        CHECKF(end[tier] == there[tier] * r->ps && evicted[tier] == gone[tier] * r->ps &&
                   why[tier] == want,
               "seed %llu: tier %u: %u tokens and %u evicted, why %u; expected %u, %u, %u\n",
               (unsigned long long)c.seed, tier, end[tier], evicted[tier], why[tier],
               there[tier] * r->ps, gone[tier] * r->ps, want);
    }
    rad_match match;
    CHECK_OK(rad_cache_lookup(r->cache, &key, &match));
    CHECK(e.device_tokens == match.prefix_tokens && e.host_tokens == match.host_hit_tokens);
    CHECK(e.fetched_tokens <= e.host_tokens);
    uint32_t threshold = r->params.load_back_threshold ? r->params.load_back_threshold : 10;
    if (e.load != RAD_LOAD_NO_TICKET)
        CHECK(e.load == (!e.host_tokens              ? RAD_LOAD_NOTHING
                         : e.host_tokens < threshold ? RAD_LOAD_BELOW_THRESHOLD
                                                     : RAD_LOAD_TAKEN));
}

/* ---- plain cases ---- */

static hrig_options plain(void)
{
    return (hrig_options){.page_size = 2,
                          .device_pages = 40,
                          .host_pages = 60,
                          .no_threads = true,
                          .storage = true,
                          .events = true,
                          .demote_tokens = UINT64_MAX,
                          .tiers = {.prefetch_threshold = 2, .tier_events = 1}};
}

/* The consumer takes what is queued: it has so many blocks on each tier then. */
static bool told(hrig *r, uint32_t on_device, uint32_t on_host, uint32_t in_store)
{
    take(r);
    return c.count[DEVICE] == on_device && c.count[HOST] == on_host && c.count[STORAGE] == in_store;
}

static void begin(hrig *r, const hrig_options *o)
{
    hrig_start(r, o, NULL);
    reset_consumer(0);
}

static void end(hrig *r)
{
    hrig_stop(r, false);
    end_consumer();
}

/* Under the request's names; all transfers end. */
static void serve_ten_pages(hrig *r, hreq *q)
{
    hreq_ask(q, 0, 20, 100);
    hrig_serve(r, q);
    hrig_settle(r);
}

/* Runs whatever is under way, so that a prefetch can be taken. */
static void run_prefetch(hrig *r)
{
    for (int i = 0; i < 9; i++)
        (void)hi_pump(r->cache, 0), (void)rad_cache_poll(r->cache);
}

TEST(a_page_goes_through_all_tiers)
{
    static hreq q;
    hrig r;
    hrig_options o = plain();
    begin(&r, &o);
    q = (hreq){.cache_salt = "s"};
    hreq_ask(&q, 0, 20, 100);
    hrig_serve(&r, &q);
    CHECK(told(&r, 10, 0, 0));
    CHECK_OK(hi_pump(r.cache, 0)); /* copied, but nobody has taken that */
    take(&r);
    CHECK(c.count[HOST] == 0);
    CHECK_OK(rad_cache_poll(r.cache));
    take(&r);
    CHECK(c.count[HOST] == 10 && c.count[STORAGE] == 0);
    hrig_settle(&r);
    CHECK(told(&r, 10, 10, 10));
    CHECK_OK(rad_cache_evict(r.cache, 20, NULL, NULL)); /* demoted */
    take(&r);
    CHECK(c.count[DEVICE] == 0 && c.count[HOST] == 10 && c.removes[DEVICE] == 10);
    CHECK(hrig_serve(&r, &q) == 18);
    take(&r);
    CHECK(c.count[DEVICE] == 10 && c.count[HOST] == 10 && c.stores[HOST] == 10);
    hrig_settle(&r);
    same_trees(&r);
    know(&r, &q);
    same_storage(&r);

    /* A restart: the store is told of as a prefetch finds out. */
    hrig_stop(&r, true);
    hrig old = r;
    hrig_start(&r, &o, &old);
    reset_consumer(0);
    rad_key key = hreq_key(&q, 20);
    CHECK_OK(rad_hicache_prefetch_start(r.cache, &key, 0, &q.prefetch));
    hrig_settle(&r);
    run_prefetch(&r);
    take(&r);
    CHECK(c.count[HOST] == 0 && c.count[STORAGE] == 0);
    CHECK_OK(rad_hicache_prefetch_progress(r.cache, &q.prefetch, &key, NULL));
    CHECK(told(&r, 0, 10, 10));
    same_trees(&r);
    end(&r);
}

TEST(a_tier_that_is_cleared_alone_leaves_the_others)
{
    static hreq q;
    hrig r;
    hrig_options o = plain();
    begin(&r, &o);
    q = (hreq){0};
    serve_ten_pages(&r, &q);
    CHECK_OK(rad_hicache_clear(r.cache, RAD_TIER_DEVICE, NULL));
    CHECK(told(&r, 0, 10, 10));
    CHECK(c.clears == 1);
    CHECK_OK(rad_hicache_clear(r.cache, RAD_TIER_STORAGE, NULL));
    CHECK(told(&r, 0, 10, 0));
    hrig_serve(&r, &q); /* host -> device, and what storage lacks goes there */
    hrig_settle(&r);
    CHECK(told(&r, 10, 10, 10));
    rad_storage was;
    CHECK_OK(rad_hicache_detach_storage(r.cache, &was, NULL));
    CHECK(told(&r, 10, 10, 0));
    CHECK_OK(rad_hicache_clear(r.cache, RAD_TIER_HOST, NULL));
    take(&r);
    CHECK(c.count[DEVICE] == 10 && c.count[HOST] == 0);
    CHECK_OK(rad_cache_reset(r.cache));
    uint32_t before = c.clears;
    take(&r);
    CHECK(c.count[DEVICE] == 0 && c.clears == before + 1);
    end(&r);
}

TEST(a_bad_page_is_removed_from_storage)
{
    static hreq q;
    hrig r;
    hrig_options o = plain();
    begin(&r, &o);
    q = (hreq){.extra_key = "x"};
    serve_ten_pages(&r, &q);
    know(&r, &q);
    CHECK_OK(rad_hicache_clear(r.cache, RAD_TIER_DEVICE | RAD_TIER_HOST, NULL));
    storage_mem_spoil(&r.store, 4, 1);
    CHECK_OK(rad_cache_take_events(r.cache, consume, NULL));
    rad_key key = hreq_key(&q, 20);
    CHECK_OK(rad_hicache_prefetch_start(r.cache, &key, 0, &q.prefetch));
    run_prefetch(&r);
    CHECK_OK(rad_hicache_prefetch_progress(r.cache, &q.prefetch, &key, NULL));
    take(&r);
    CHECK(hrig_stats(&r).bad_pages == 1 && c.removes[STORAGE] == 1);
    CHECK(c.count[HOST] > 0 && c.count[HOST] < 10 && c.count[STORAGE] == c.count[HOST]);
    same_trees(&r);
    same_storage(&r);
    end(&r);
}

/* And one whose table is older than the question is elsewhere. */
TEST(a_stores_table_says_where_its_pages_are)
{
    for (int old = 0; old < 2; old++) {
        static hreq q;
        hrig r;
        hrig_options o = plain();
        begin(&r, &o);
        hiradix_cache *hi = hiradix_of(r.cache);
        rad_storage_ops ops = *hi->store.backend.ops;
        ops.medium = RAD_STORAGE_DISK;
        if (old) ops.struct_size = offsetof(rad_storage_ops, medium);
        hi->store.backend.ops = &ops;
        if (!old) c.storage_medium = "DISK";
        q = (hreq){0};
        serve_ten_pages(&r, &q);
        take(&r);
        CHECK(c.count[STORAGE] == 10);
        end(&r);
    }
}

/* Whoever did not ask for more is told what he always was. */
TEST(without_tier_events_the_device_alone_is_told)
{
    static hreq q;
    hrig r;
    hrig_options o = plain();
    o.tiers.tier_events = 0;
    begin(&r, &o);
    q = (hreq){0};
    serve_ten_pages(&r, &q);
    CHECK_OK(rad_cache_evict(r.cache, 6, NULL, NULL));
    CHECK_OK(rad_hicache_clear(r.cache, RAD_TIER_HOST, NULL));
    take(&r);
    CHECK(c.count[DEVICE] == 7 && !c.stores[HOST] && !c.stores[STORAGE] && !c.clears);
    CHECK_OK(rad_hicache_clear(r.cache, RAD_TIER_DEVICE, NULL));
    take(&r);
    CHECK(c.count[DEVICE] == 0 && c.clears == 1);
    end(&r);
}

TEST(tier_events_want_the_events_of_the_cache)
{
    hrig r;
    hrig_options o = plain();
    hrig_start(&r, &o, NULL);
    rad_cache_params tree = {.struct_size = sizeof tree,
                             .page_size = 2,
                             .kv_allocator = r.kv,
                             .req_to_token_pool = r.rows};
    rad_hicache_params p = {
        .struct_size = sizeof p, .cache = &tree, .host_pool = r.host, .tier_events = 1};
    rad_cache *none = NULL;
    rad_error err = {0};
    CHECK(rad_hicache_create(NULL, &p, &none, &err) == RAD_E_INVAL && !none);
    CHECK(strstr(err.text, "events"));
    hrig_stop(&r, false);
}

TEST(create_survives_every_allocation_failing)
{
    hrig r;
    hrig_options o = plain();
    o.event_pages = o.explain_pages = 16;
    hrig_start(&r, &o, NULL);
    test_env t;
    hrig_create_failing(&r, &t);
    rad_cache_stats stats;
    rad_cache_get_stats(r.cache, &stats);
    CHECK(stats.metadata_bytes <= t.bytes);
    hrig_stop(&r, false);
    CHECK(t.bytes == 0);
}

/* ---- random histories ---- */

typedef struct history {
    hrig r;
    uint64_t rng;
    atomic_uint_fast64_t calls; /* any thread */
    rad_token docs[4][90];
    bool faults;
    bool quiet; /* nothing is cleared, no snapshot is asked for */
} history;

static uint32_t below(history *h, uint32_t n)
{
    return (uint32_t)(test_random(&h->rng) % n);
}

/* A record that is not handed out although it is there would be told as gone. */
static storage_fate fate(void *user, storage_call call, uint64_t number)
{
    history *h = user;
    (void)number;
    uint64_t drawn = mix64(atomic_fetch_add(&h->calls, 1));
    if (!h->faults || drawn % 40 || call == STORAGE_REMOVE) return STORAGE_WELL;
    if (call == STORAGE_GET) return STORAGE_FAILS;
    return drawn >> 32 & 1 ? STORAGE_FAILS : STORAGE_MISSING;
}

static void draw(history *h, hreq *q)
{
    static const char *const names[] = {NULL, "", "a"};
    *q = (hreq){.extra_key = below(h, 5) ? NULL : names[below(h, 3)],
                .cache_salt = below(h, 5) ? NULL : names[below(h, 3)]};
    uint32_t shared = 1 + below(h, 90), own = 1 + below(h, 20);
    memcpy(q->tokens, h->docs[below(h, 4)], shared * sizeof *q->tokens);
    for (uint32_t i = 0; i < own; i++)
        q->tokens[shared + i] = (rad_token)below(h, 3);
    q->num_tokens = shared + own;
}

static void run_some(history *h)
{
    if (h->r.params.deterministic)
        (void)hi_pump(h->r.cache, test_random(&h->rng));
    else
        (void)rad_hicache_wait(h->r.cache, 100000);
}

static void serve(history *h)
{
    static hreq q;
    draw(h, &q);
    if (h->r.has_store && !hiradix_of(h->r.cache)->bigram) know(&h->r, &q);
    rad_key key = hreq_key(&q, q.num_tokens - 1);
    if (below(h, 2)) (void)rad_hicache_prefetch_start(h->r.cache, &key, 0, &q.prefetch);
    for (uint32_t i = below(h, 4); i; i--) {
        run_some(h);
        if (below(h, 2)) CHECK_OK(rad_cache_poll(h->r.cache));
    }
    CHECK(rad_hicache_prefetch_progress(h->r.cache, &q.prefetch, &key, NULL) == RAD_OK);
    CHECK_OK(hreq_admit(&h->r, &q));
    if (hreq_extend(&h->r, &q) != RAD_OK || hreq_forward(&h->r, &q) != RAD_OK) {
        hreq_finish(&h->r, &q, false);
        return;
    }
    if (below(h, 2)) CHECK(rad_cache_unfinished_req(h->r.cache, &q.kv, 0, NULL) >= 0);
    hreq_finish(&h->r, &q, below(h, 8) != 0);
}

static void one_thing(history *h)
{
    rad_cache *cache = h->r.cache;
    uint32_t what = below(h, 100);
    if (what < 35) {
        serve(h);
    } else if (what < 60) {
        run_some(h);
    } else if (what < 78) {
        CHECK_OK(rad_cache_poll(cache));
    } else if (what < 88) {
        CHECK_OK(rad_cache_evict(cache, below(h, 100), NULL, NULL));
    } else if (what < 95) {
        take(&h->r);
    } else if (what < 96 && !h->quiet) {
        CHECK_OK(rad_cache_snapshot_events(cache, consume, NULL));
        same_trees(&h->r);
    } else if (what < 98 && h->r.has_store && h->faults) {
        for (int i = 0; i < 64; i++)
            storage_mem_spoil(&h->r.store, (uint32_t)test_random(&h->rng), below(h, 16));
    } else if (h->quiet) {
        return;
    } else if (what == 98 && below(h, 4) == 0) {
        rad_status status = rad_hicache_clear(cache, 1 + below(h, h->r.has_store ? 7 : 3), NULL);
        CHECK(status == RAD_OK || status == RAD_AGAIN);
    } else if (what == 99 && below(h, 4) == 0) {
        CHECK_OK(rad_cache_reset(cache)); /* whatever is under way */
    }
}

/* What the sums at the end need comes from the round's number, the rest by chance. */
static void histories(uint64_t rounds, bool threads)
{
    uint64_t seed = test_told_seed(), rng = seed;
    uint64_t stores[TIERS] = {0}, removes[TIERS] = {0}, gaps = 0, exact = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t bits = test_random(&rng);
        static history h;
        h = (history){.rng = test_random(&rng), .faults = round / 8 % 2, .quiet = round / 4 % 2};
        for (int d = 0; d < 4; d++)
            for (int i = 0; i < 90; i++)
                h.docs[d][i] = d && i < 20 * d ? h.docs[0][i] : (rad_token)below(&h, 50);
        hrig_options o = {.page_size = bits & 2 ? 4 : 1,
                          .no_threads = !threads,
                          .storage = round % 4 != 0,
                          .events = true,
                          .explain_pages = 1 << 16,
                          .eagle = (bits >> 4 & 3) == 0,
                          .event_pages = round % 4 == 1 ? 30 + (bits >> 8 & 63) : 0,
                          .demote_tokens = bits >> 14 & 1 ? 0 : 60};
        o.device_pages = (160 + (bits >> 20 & 127)) / o.page_size;
        o.host_pages = (130 + (bits >> 28 & 255)) / o.page_size;
        o.tiers = (rad_hicache_params){
            .write_policy = (bits >> 36) % 3, .prefetch_threshold = 8, .tier_events = 1};
        hrig_start(&h.r, &o, NULL);
        reset_consumer(seed);
        h.r.store.script = fate;
        h.r.store.user = &h;
        for (int step = 0; step < 400; step++) {
            one_thing(&h);
            if (step % 16) continue;
            same_trees(&h.r);
            if (h.quiet && !c.restarted && !o.eagle)
                for (int i = 0; i < 4; i++) {
                    static hreq q;
                    draw(&h, &q);
                    same_explanation(&h.r, &q);
                }
            if (step % 64) continue;
            hrig_settle(&h.r);
            same_trees(&h.r);
            /* Calls that cross may be acknowledged in another order than the store had them. */
            if (!threads && o.storage && !o.eagle && !(c.restarted && h.faults)) same_storage(&h.r);
        }
        exact += o.storage && !c.restarted;
        gaps += c.lost != 0;
        for (int t = 0; t < TIERS; t++) {
            stores[t] += c.stores[t];
            removes[t] += c.removes[t];
        }
        hrig_check_idle(&h.r);
        hrig_stop(&h.r, false);
    }
    end_consumer();
    print_message("  blocks stored, removed: device %llu %llu, host %llu %llu, storage %llu %llu; "
                  "%llu rounds with gaps, %llu with all of storage known\n",
                  (unsigned long long)stores[0], (unsigned long long)removes[0],
                  (unsigned long long)stores[1], (unsigned long long)removes[1],
                  (unsigned long long)stores[2], (unsigned long long)removes[2],
                  (unsigned long long)gaps, (unsigned long long)exact);
    CHECK(removes[DEVICE] && stores[STORAGE] &&
          (threads || (removes[HOST] && removes[STORAGE] && gaps && exact)));
}

TEST(a_consumer_has_what_the_tiers_have)
{
    histories(test_scale(40, 2000), false);
}

TEST(a_consumer_has_what_the_tiers_have_with_threads)
{
    histories(test_scale(10, 300), true);
}

TEST_MAIN()
