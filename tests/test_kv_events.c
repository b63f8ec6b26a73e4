/* test_kv_events.c - a consumer that replays the events has exactly the cache's content.
 *
 * The consumer is strict: a stored block's parent must be known in the same namespace, a
 * block must not be stored twice, a removed block must be there and have no children. What it
 * ends with is compared, block by block, with a walk over the cache that computes hashes
 * with a hasher of its own, and so are the tokens of each block. What SGLang's own tests ask of
 * hashes and events is here too. */
#include "cache_failing.h"
#include "cache_literals.h"
#include "test.h"

#include <radish/kv_events.h>

enum {
    MOST_BLOCKS = 4096,
    MOST_EVENTS = 4096,
    MOST_TOKENS = 192,
    MOST_OF_BLOCK = 32,
    SPACES = 4,
    DEPTH = 64
};

typedef struct block {
    int64_t hash;
    int64_t parent;
    bool has_parent;
    uint64_t space;
    rad_token tokens[MOST_OF_BLOCK];
} block;

typedef struct consumer {
    block blocks[MOST_BLOCKS];
    uint32_t count;
    uint32_t eagle;                         /* 1: blocks are pairs */
    uint32_t stores, removes, clears, gaps; /* events */
    uint32_t stored_blocks;
    uint64_t lost;
    const char *wrong;
} consumer;

static block *block_of(consumer *c, int64_t hash, uint64_t space)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (c->blocks[i].hash == hash && c->blocks[i].space == space) return &c->blocks[i];
    return NULL;
}

static void store(consumer *c, const rad_kv_event *e)
{
    block b = {
        .parent = e->parent_block_hash, .has_parent = e->has_parent, .space = e->namespace_id};
    uint32_t len = e->block_size << c->eagle;
    if (e->num_token_ids != e->num_blocks * len || len > MOST_OF_BLOCK) {
        c->wrong = "tokens of a store";
        return;
    }
    for (uint32_t i = 0; i < e->num_blocks; i++) {
        memcpy(b.tokens, e->token_ids + (size_t)i * len, len * sizeof *b.tokens);
        b.hash = e->block_hashes[i];
        if (b.has_parent && !block_of(c, b.parent, b.space)) c->wrong = "an unknown parent";
        if (block_of(c, b.hash, b.space)) c->wrong = "a block stored twice";
        if (c->count == MOST_BLOCKS)
            c->wrong = "too many blocks";
        else
            c->blocks[c->count++] = b;
        b.parent = b.hash;
        b.has_parent = true;
    }
    c->stored_blocks += e->num_blocks;
    c->stores++;
}

static void removed(consumer *c, const rad_kv_event *e)
{
    for (uint32_t i = 0; i < e->num_blocks; i++) {
        block *b = block_of(c, e->block_hashes[i], e->namespace_id);
        if (!b) {
            c->wrong = "a removed block that was not stored";
            return;
        }
        for (uint32_t k = 0; k < c->count; k++)
            if (c->blocks[k].has_parent && c->blocks[k].parent == b->hash &&
                c->blocks[k].space == b->space)
                c->wrong = "a removed block with children";
        *b = c->blocks[--c->count];
    }
    c->removes++;
}

static void consume(void *user, const rad_kv_event *e)
{
    consumer *c = user;
    if (e->type != RAD_KV_CLEARED && e->type != RAD_KV_LOST && !e->num_blocks)
        c->wrong = "an event about nothing";
    if (!e->medium || strcmp(e->medium, "GPU") != 0) c->wrong = "the medium";
    if ((e->namespace_id != 0) != (e->has_extra_key || e->has_cache_salt))
        c->wrong = "a namespace without a number";
    switch (e->type) {
    case RAD_KV_STORED: store(c, e); break;
    case RAD_KV_REMOVED: removed(c, e); break;
    case RAD_KV_CLEARED:
        c->count = 0;
        c->clears++;
        break;
    case RAD_KV_LOST:
        c->lost += e->lost_blocks;
        c->gaps++;
        break;
    default: c->wrong = "an unknown type";
    }
}

static rad_cache *make_keyed(uint32_t page_size, uint32_t ring, uint32_t is_eagle)
{
    rad_cache *cache;
    CHECK_OK(rad_cache_create(NULL,
                              &(rad_cache_params){.struct_size = sizeof(rad_cache_params),
                                                  .page_size = page_size,
                                                  .max_tokens = 4096,
                                                  .is_eagle = is_eagle,
                                                  .enable_kv_events = 1,
                                                  .kv_event_pages = ring},
                              &cache, NULL));
    return cache;
}

static rad_cache *make(uint32_t page_size, uint32_t ring)
{
    return make_keyed(page_size, ring, 0);
}

static void insert(rad_cache *cache, const rad_key *key, rad_page first)
{
    rad_slot slots[1024];
    CHECK(key->num_tokens <= 1024);
    for (uint32_t i = 0; i < key->num_tokens; i++)
        slots[i] = first + (rad_slot)i;
    CHECK_OK(rad_cache_insert(cache, key, slots, NULL, NULL, NULL));
    rad_error err = {0};
    CHECKF(rad_cache_check(cache, &err) == RAD_OK, "%s", err.text);
}

static void take(rad_cache *cache, consumer *c)
{
    CHECK_OK(rad_cache_take_events(cache, consume, c));
    CHECKF(!c->wrong, "the consumer met %s", c->wrong);
}

/* --- plain cases --- */

TEST(a_chain_of_blocks_is_one_event_and_evictions_go_tail_first)
{
    rad_cache *cache = make(2, 64);
    static consumer c;
    c = (consumer){0};
    insert(cache, KEY(1, 2, 3, 4, 5), 2);
    take(cache, &c);
    CHECK(c.stores == 1 && c.count == 2 && !c.blocks[0].has_parent);
    CHECK(c.blocks[1].parent == c.blocks[0].hash);
    insert(cache, KEY(1, 2, 7, 8), 100); /* a split says nothing, the new page has a parent */
    take(cache, &c);
    CHECK(c.stores == 2 && c.count == 3 && c.blocks[2].parent == c.blocks[0].hash);
    CHECK_OK(rad_cache_evict(cache, 100, NULL, NULL));
    take(cache, &c);
    CHECK(c.count == 0 && c.removes == 1);
    take(cache, &c); /* nothing is left in the queue */
    CHECK(c.stores == 2 && c.removes == 1);
    rad_cache_destroy(cache);
}

TEST(repeating_pages_have_hashes_of_their_own)
{
    rad_cache *cache = make(4, 64);
    static consumer c;
    c = (consumer){0};
    insert(cache, KEY(1, 2, 3, 4, 1, 2, 3, 4), 4);
    take(cache, &c);
    CHECK(c.count == 2 && c.blocks[0].hash == -3488128144981237669);
    CHECK(c.blocks[1].hash == 9163096264030462659 && c.blocks[1].parent == c.blocks[0].hash);
    rad_page_hash hashes[4];
    uint32_t count;
    CHECK_OK(rad_cache_get_page_hashes(cache, KEY(1, 2, 3, 4, 1, 2, 3, 4, 5), hashes, 4, &count));
    CHECK(count == 2 && rad_page_hash_event(&hashes[1]) == c.blocks[1].hash);
    CHECK_OK(rad_cache_get_page_hashes(cache, KEY(1, 2, 3, 4, 9, 9, 9, 9), hashes, 4, &count));
    CHECK(count == 1 && rad_page_hash_event(&hashes[0]) == c.blocks[0].hash);
    CHECK_OK(rad_cache_get_page_hashes(cache, KEY(9, 9, 9, 9), hashes, 4, &count));
    CHECK(count == 0);
    rad_cache_destroy(cache);
}

/* The first hash is SGLang's for the page (1,2)(2,3)(3,4). */
TEST(blocks_of_pairs_have_both_tokens_of_each)
{
    rad_cache *cache = make_keyed(3, 64, 1);
    static consumer c;
    c = (consumer){.eagle = 1};
    insert(cache, KEY(1, 2, 3), 3); /* two pairs are no page */
    insert(cache, KEY(1, 2, 3, 4, 5, 6, 7), 3);
    take(cache, &c);
    CHECK(c.stores == 1 && c.count == 2 && !c.blocks[0].has_parent);
    CHECK(c.blocks[0].hash == -7887351555237476356 && c.blocks[1].hash == -1112361195000487007);
    CHECK(memcmp(c.blocks[0].tokens, (rad_token[]){1, 2, 2, 3, 3, 4}, 24) == 0);
    CHECK(memcmp(c.blocks[1].tokens, (rad_token[]){4, 5, 5, 6, 6, 7}, 24) == 0);
    rad_page_hash hashes[4];
    uint32_t count;
    CHECK_OK(rad_cache_get_page_hashes(cache, KEY(1, 2, 3, 4, 5, 6, 7), hashes, 4, &count));
    CHECK(count == 2 && rad_page_hash_event(&hashes[1]) == c.blocks[1].hash);
    CHECK_OK(rad_cache_get_page_hashes(cache, KEY(1, 2, 3, 4, 5, 6), hashes, 4, &count));
    CHECK(count == 1 && rad_page_hash_event(&hashes[0]) == c.blocks[0].hash);

    insert(cache, KEY(9, 2, 3, 4), 102);                   /* another first token, another page */
    insert(cache, KEY(1, 2, 3, 4, 8, 8, 8), 201);          /* after a split */
    insert(cache, KEY(1, 2, 3, 4, 8, 8, 8, 1, 1, 1), 201); /* below a node of its own */
    take(cache, &c);
    CHECK(c.count == 5 && c.blocks[2].hash == 2238373387930196090 && !c.blocks[2].has_parent);
    CHECK(memcmp(c.blocks[2].tokens, (rad_token[]){9, 2, 2, 3, 3, 4}, 24) == 0);
    CHECK(c.blocks[3].parent == c.blocks[0].hash && c.blocks[4].parent == c.blocks[3].hash);
    CHECK(memcmp(c.blocks[3].tokens, (rad_token[]){4, 8, 8, 8, 8, 8}, 24) == 0);
    CHECK(memcmp(c.blocks[4].tokens, (rad_token[]){8, 1, 1, 1, 1, 1}, 24) == 0);
    CHECK_OK(rad_cache_snapshot_events(cache, consume, &c));
    CHECKF(!c.wrong, "the consumer met %s", c.wrong);
    CHECK(c.count == 5);
    CHECK_OK(rad_cache_evict(cache, 100, NULL, NULL));
    take(cache, &c);
    CHECK(c.count == 0);
    rad_cache_destroy(cache);
}

TEST(namespaces_have_other_hashes)
{
    rad_cache *cache = make(1, 64);
    static consumer c;
    c = (consumer){0};
    const char *names[] = {NULL, "", "key1", "key2"};
    for (uint32_t i = 0; i < 4; i++) {
        rad_key key = *KEY(1, 2, 3);
        key.extra_key = names[i];
        insert(cache, &key, (rad_page)(1 + 10 * i));
    }
    take(cache, &c);
    CHECK(c.count == 12 && c.stores == 4);
    for (uint32_t i = 0; i < 12; i++)
        for (uint32_t k = 0; k < i; k++)
            CHECK(c.blocks[i].hash != c.blocks[k].hash);
    rad_cache_destroy(cache);
}

TEST(a_full_queue_says_what_is_missing_and_a_snapshot_heals)
{
    rad_cache *cache = make(1, 4);
    static consumer c;
    c = (consumer){0};
    insert(cache, KEY(1, 2, 3), 1);
    insert(cache, KEY(1, 2, 3, 4, 5, 6), 1);
    insert(cache, KEY(9), 50);
    take(cache, &c);
    CHECK(c.count == 4 && c.gaps == 1 && c.lost == 3);
    insert(cache, KEY(9, 10), 50); /* queued, but contained in the snapshot */
    CHECK_OK(rad_cache_snapshot_events(cache, consume, &c));
    CHECKF(!c.wrong, "the consumer met %s", c.wrong);
    CHECK(c.count == 8 && c.clears == 1);
    take(cache, &c);
    CHECK(c.count == 8 && c.gaps == 1);

    insert(cache, KEY(20, 21, 22, 23, 24, 25), 60);
    CHECK_OK(rad_cache_reset(cache)); /* heals a gap as well */
    insert(cache, KEY(7), 1);
    take(cache, &c);
    CHECK(c.count == 1 && c.gaps == 1 && c.clears == 2);
    rad_cache_destroy(cache);
}

TEST(without_events_there_are_none)
{
    rad_cache *cache;
    rad_cache_params params = {.struct_size = sizeof params, .max_tokens = 64};
    rad_page_hash hash;
    uint32_t count;
    static consumer c;
    c = (consumer){0};
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    insert(cache, KEY(1, 2), 1);
    CHECK(rad_cache_take_events(cache, consume, &c) == RAD_E_STATE);
    CHECK(rad_cache_snapshot_events(cache, consume, &c) == RAD_E_STATE);
    CHECK(rad_cache_get_page_hashes(cache, KEY(1), &hash, 1, &count) == RAD_E_STATE);
    CHECK(rad_cache_take_events(cache, NULL, NULL) == RAD_E_INVAL);
    rad_cache_destroy(cache);
    params.kind = RAD_CACHE_CHUNK;
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    CHECK(rad_cache_take_events(cache, consume, &c) == RAD_E_STATE);
    rad_cache_destroy(cache);
}

TEST(create_survives_every_allocation_failing)
{
    rad_cache_params params = {.struct_size = sizeof params,
                               .max_tokens = 256,
                               .enable_kv_events = 1,
                               .kv_event_pages = 16,
                               .explain_pages = 16};
    test_env t;
    rad_cache *cache = cache_after_every_failure(&params, &t);
    CHECK(metadata_bytes(cache) <= t.bytes);
    rad_cache_destroy(cache);
    CHECK(t.bytes == 0);
}

/* --- random operations --- */

/* A walk does not say whose namespace a root is, so all are followed that fit. */
typedef struct walk {
    consumer *c;
    rad_page_hasher *hasher;
    rad_page_hash last[DEPTH][SPACES]; /* of the node at this depth */
    bool fits[DEPTH][SPACES];
    uint32_t page_size;
    uint32_t blocks;
} walk;

static const char *const salts[SPACES] = {NULL, "", "a", "b"};

/* Whether the event had the tokens of a page as a walk shows it; pairs are t0 t1, t1 t2 ... */
static bool same_tokens(const walk *w, const block *b, const rad_token *page)
{
    uint32_t eagle = w->c->eagle;
    for (uint32_t i = 0; i < w->page_size << eagle; i++)
        if (b->tokens[i] != page[eagle ? i / 2 + i % 2 : i]) return false;
    return true;
}

static void hash_page(walk *w, const rad_page_hash *prior, const rad_token *page,
                      rad_page_hash *hash)
{
    if (w->c->eagle)
        CHECK_OK(rad_page_hash_bigrams(w->hasher, prior, page[0], page + 1, w->page_size, hash));
    else
        CHECK_OK(rad_page_hash_tokens(w->hasher, prior, page, w->page_size, hash));
}

/* Whether the consumer knows all blocks of a node, were it in this namespace. */
static bool node_is_known(walk *w, uint32_t depth, uint32_t space, const rad_token *tokens,
                          uint32_t num_tokens)
{
    rad_page_hash prior = w->last[depth - 1][space];
    bool has_prior = depth > 1;
    if (depth == 1) has_prior = rad_page_hash_seed(w->hasher, NULL, salts[space], &prior) == RAD_OK;
    for (uint32_t i = 0; i < num_tokens; i += w->page_size, has_prior = true) {
        rad_page_hash hash;
        hash_page(w, has_prior ? &prior : NULL, tokens + i, &hash);
        bool known = false;
        for (uint32_t k = 0; k < w->c->count && !known; k++) {
            const block *b = &w->c->blocks[k];
            known = b->hash == rad_page_hash_event(&hash);
            if (known && !same_tokens(w, b, tokens + i)) w->c->wrong = "other tokens";
        }
        if (!known) return false;
        prior = hash;
    }
    w->last[depth][space] = prior;
    return true;
}

static void compare(void *user, rad_ref node, uint32_t depth, const rad_token *tokens,
                    const rad_slot *slots, uint32_t num_tokens, uint32_t lock_ref,
                    uint32_t hit_count)
{
    walk *w = user;
    bool known = false;
    (void)node, (void)slots, (void)lock_ref, (void)hit_count;
    if (depth >= DEPTH) {
        w->c->wrong = "a deep tree";
        return;
    }
    for (uint32_t space = 0; space < SPACES; space++) {
        w->fits[depth][space] = (depth == 1 || w->fits[depth - 1][space]) &&
                                node_is_known(w, depth, space, tokens, num_tokens);
        known |= w->fits[depth][space];
    }
    if (!known) w->c->wrong = "a cached page that the consumer does not know";
    w->blocks += num_tokens / w->page_size;
}

typedef struct config {
    uint32_t page_size;
    uint32_t num_pages;
    uint32_t max_nodes;
    uint32_t ring; /* small: gaps */
    uint32_t eagle;
} config;

static void same_content(rad_cache *cache, const config *cfg, consumer *c, rad_page_hasher *hasher,
                         uint64_t seed)
{
    static walk w;
    w = (walk){.c = c, .hasher = hasher, .page_size = cfg->page_size};
    CHECK_OK(rad_cache_walk(cache, compare, &w));
    CHECKF(!c->wrong, "seed %llu: %s\n", (unsigned long long)seed, c->wrong);
    CHECKF(w.blocks == c->count, "seed %llu: %u blocks cached, the consumer has %u\n",
           (unsigned long long)seed, w.blocks, c->count);
    CHECK(rad_cache_total_size(cache) == (uint64_t)c->count * cfg->page_size);
}

static void run(const config *cfg, uint64_t seed, uint64_t steps)
{
    uint64_t state = seed;
    uint32_t ps = cfg->page_size, gaps = 0;
    static consumer c;
    c = (consumer){.eagle = cfg->eagle};
    rad_kv_allocator *kv;
    rad_cache *cache;
    rad_page_hasher *hasher;
    CHECK_OK(rad_page_hasher_create(NULL, &hasher, NULL));
    CHECK_OK(rad_kv_allocator_create(
        NULL, &(rad_kv_allocator_params){sizeof(rad_kv_allocator_params), cfg->num_pages, ps}, &kv,
        NULL));
    CHECK_OK(rad_cache_create(NULL,
                              &(rad_cache_params){.struct_size = sizeof(rad_cache_params),
                                                  .page_size = ps,
                                                  .kv_allocator = kv,
                                                  .max_nodes = cfg->max_nodes,
                                                  .max_namespaces = 3, /* less than are used */
                                                  .is_eagle = cfg->eagle,
                                                  .enable_kv_events = 1,
                                                  .kv_event_pages = cfg->ring,
                                                  .explain_pages = 20},
                              &cache, NULL));
    rad_receipt lock = {0};
    for (uint64_t step = 0; step < steps; step++) {
        rad_token tokens[MOST_TOKENS];
        rad_slot slots[MOST_TOKENS];
        uint32_t len = (uint32_t)(test_random(&state) % (12 * ps));
        for (uint32_t i = 0; i < len; i++) /* pages part at their ends, mostly */
            tokens[i] = (i + 1 - cfg->eagle) % ps == 0 ? (rad_token)(test_random(&state) % 2) : 7;
        rad_key key = {
            .tokens = tokens, .num_tokens = len, .cache_salt = salts[test_random(&state) % SPACES]};
        uint64_t what = test_random(&state) % 100;
        if (what < 60) {
            rad_page pages[MOST_TOKENS];
            rad_inserted in;
            uint32_t num_pages = (len ? len - cfg->eagle : 0) / ps;
            if (rad_kv_alloc(kv, pages, num_pages)) {
                CHECK_OK(rad_cache_evict(cache, (uint64_t)num_pages * ps, NULL, NULL));
                if (rad_kv_alloc(kv, pages, num_pages)) continue;
            }
            for (uint32_t i = 0; i < num_pages * ps; i++)
                slots[i] = pages[i / ps] * (rad_slot)ps + (rad_slot)(i % ps);
            rad_status status = rad_cache_insert(cache, &key, slots, NULL, &in, NULL);
            CHECK(status == RAD_OK || status == RAD_FULL);
            uint32_t prefix = status == RAD_FULL ? num_pages * ps : in.prefix_tokens;
            CHECK_OK(rad_kv_free(kv, pages, prefix / ps, NULL));
        } else if (what < 75) {
            rad_match match;
            CHECK_OK(rad_cache_match_prefix(cache, &key, NULL, &match, NULL));
            if (lock.held) CHECK_OK(rad_cache_dec_lock_ref(cache, &lock, NULL));
            CHECK_OK(rad_cache_inc_lock_ref(cache, match.last_node, &lock, NULL));
        } else if (what < 98) {
            CHECK_OK(rad_cache_evict(cache, test_random(&state) % (4 * ps), NULL, NULL));
        } else if (what == 98 && test_random(&state) % 4 == 0) {
            lock = (rad_receipt){0};
            CHECK_OK(rad_cache_reset(cache));
        } else {
            CHECK_OK(rad_cache_snapshot_events(cache, consume, &c));
        }
        rad_error err = {0};
        CHECKF(rad_cache_check(cache, &err) == RAD_OK, "seed %llu step %llu: %s\n",
               (unsigned long long)seed, (unsigned long long)step, err.text);
        if (test_random(&state) % 4) continue;
        CHECK_OK(rad_cache_take_events(cache, consume, &c));
        CHECKF(!c.wrong, "seed %llu step %llu: %s\n", (unsigned long long)seed,
               (unsigned long long)step, c.wrong);
        if (c.gaps) {
            gaps += c.gaps;
            c.gaps = 0;
            CHECK_OK(rad_cache_snapshot_events(cache, consume, &c));
        }
        same_content(cache, cfg, &c, hasher, seed);
    }
    rad_cache_stats stats;
    rad_cache_get_stats(cache, &stats);
    CHECK(stats.splits && stats.evicted_tokens && c.clears);
    CHECK(stats.merges || !cfg->max_nodes);
    CHECK((gaps > 0) == (cfg->ring < 100));
    rad_cache_destroy(cache);
    rad_kv_allocator_destroy(kv);
    rad_page_hasher_destroy(hasher);
}

TEST(a_consumer_has_exactly_the_caches_content)
{
    static const config configs[] = {
        {1, 60, 0, 4096},      {2, 60, 0, 4096},    {16, 60, 0, 4096},   {1, 60, 12, 4096},
        {2, 60, 0, 20},        {16, 60, 12, 20},    {1, 60, 0, 4096, 1}, {2, 60, 12, 20, 1},
        {16, 60, 12, 4096, 1}, {2, 60, 0, 4096, 1},
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++)
        run(&configs[i], test_seed() + i, test_scale(2000, 100000));
}

TEST_MAIN()
