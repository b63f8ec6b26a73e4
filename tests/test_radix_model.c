/* test_radix_model.c - the tree against a list of prefixes.
 *
 * The model knows no nodes: it is a list with an entry for each cached page, named by
 * its namespace and all tokens up to its end. Matching is "how many prefixes are in the
 * list", eviction takes the unlocked page that no other entry continues and that has the
 * lowest key, found by looking at all. A page carries what a node does (times, hits,
 * priority, heat, pin, retention), so policies and pins are checked page by page, however
 * the tree cuts its nodes. Tokens come from an alphabet of two or three, so that keys
 * share, diverge and repeat all the time.
 *
 * With a tight limit on nodes the tree may give up more than the model; then only what
 * it still has must be right, and the model forgets the rest. */
#include "test.h"

#include <radish/retention.h>

#include "cache/evict_policy.h"

enum { MOST_PAGES = 256, MOST_TOKENS = 160, MOST_LOCKS = 8, SPACES = 4 };

typedef struct entry {
    uint32_t space;
    uint32_t num_tokens; /* of the prefix that ends with this page */
    rad_token tokens[MOST_TOKENS];
    rad_page page;
    uint64_t used;
    uint32_t locks;
    uint32_t hits;
    int32_t priority;
    uint32_t retention;
    uint64_t created;
    uint64_t heat;
    uint64_t pin_ttl, pin_until, idle, used_ns;
    uint64_t uncovered_at; /* the step in which the page behind it was evicted */
} entry;

typedef struct model {
    entry entries[MOST_PAGES];
    uint32_t count;
    uint32_t page_size;
    uint64_t now;    /* operations */
    uint64_t now_ns; /* what env says */
    uint32_t policy;
    bool keeps;
    uint64_t max_pinned; /* pages */
    uint64_t half_life, added;
    const rad_kv_allocator *kv;
    entry worst; /* the highest key that step `worst_at` evicted */
    uint64_t worst_at;
} model;

enum { THRESHOLD = 2, ATTENTION_TOKENS = 24, HALF_LIFE_PERCENT = 60 };

/* The user's policy: the more hits the sooner, else what was used last. Both fall by use. */
static uint64_t user_key(uint32_t hits, uint64_t used)
{
    return (uint64_t)(0xffff - (hits < 0xffff ? hits : 0xffff)) << 40 | (0xffffffffff - used);
}

static uint64_t evict_key(void *user, const rad_evict_facts *f)
{
    (void)user;
    return user_key(f->hit_count, f->last_access);
}

/* Whether `a` is to be evicted before `b`: -1, 1, or 0 for a tie, which ids decide. */
static int compare_keys(const model *m, const entry *a, const entry *b)
{
    double ka[4] = {a->pin_ttl != 0, a->retention, 0, (double)a->used};
    double kb[4] = {b->pin_ttl != 0, b->retention, 0, (double)b->used};
    switch (m->policy) {
    case RAD_EVICT_LFU: ka[2] = a->hits, kb[2] = b->hits; break;
    case RAD_EVICT_SLRU: ka[2] = a->hits >= THRESHOLD, kb[2] = b->hits >= THRESHOLD; break;
    case RAD_EVICT_PRIORITY: ka[2] = a->priority, kb[2] = b->priority; break;
    case RAD_EVICT_FIFO: ka[3] = (double)a->created, kb[3] = (double)b->created; break;
    case RAD_EVICT_FILO: ka[3] = -(double)a->created, kb[3] = -(double)b->created; break;
    case RAD_EVICT_MRU: ka[3] = -ka[3], kb[3] = -kb[3]; break;
    case RAD_EVICT_USER:
        ka[2] = -(double)a->hits, kb[2] = -(double)b->hits;
        ka[3] = -ka[3], kb[3] = -kb[3];
        break;
    case RAD_EVICT_COST:
        ka[3] = (double)(a->heat + evict_cost(a->num_tokens, ATTENTION_TOKENS));
        kb[3] = (double)(b->heat + evict_cost(b->num_tokens, ATTENTION_TOKENS));
        break;
    default: break;
    }
    for (int i = 0; i < 4; i++)
        if (ka[i] != kb[i]) return ka[i] < kb[i] ? -1 : 1;
    return 0;
}

/* Ends pins and retentions whose time has come. */
static void model_expire(model *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        entry *e = &m->entries[i];
        if (e->pin_ttl && e->pin_until <= m->now_ns) e->pin_ttl = 0;
        if (e->retention && e->idle && e->used_ns + e->idle <= m->now_ns) e->retention = 0;
    }
}

static entry *find(model *m, const rad_key *key, uint32_t space, uint32_t num_tokens)
{
    for (uint32_t i = 0; i < m->count; i++) {
        entry *e = &m->entries[i];
        if (e->space == space && e->num_tokens == num_tokens &&
            memcmp(e->tokens, key->tokens, num_tokens * sizeof *e->tokens) == 0)
            return e;
    }
    return NULL;
}

static uint32_t model_match(model *m, const rad_key *key, uint32_t space, bool touch)
{
    uint32_t len = 0;
    for (entry *e;
         len + m->page_size <= key->num_tokens && (e = find(m, key, space, len + m->page_size));
         len += m->page_size)
        if (touch) {
            e->used = m->now;
            e->used_ns = m->now_ns;
            if (e->pin_ttl) e->pin_until = m->now_ns + e->pin_ttl;
        }
    return len;
}

static bool has_continuation(const model *m, const entry *e)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->entries[i].space == e->space &&
            m->entries[i].num_tokens == e->num_tokens + m->page_size &&
            memcmp(m->entries[i].tokens, e->tokens, e->num_tokens * sizeof *e->tokens) == 0)
            return true;
    return false;
}

/* Takes the page with the lowest key of those that end a path.
 *
 * Under `cost` keys can be equal, as heat is rounded, and which of two goes first decides
 * what comes to light below it. There the cache is believed about the pages themselves, and
 * untouched_fault looks whether anything with a lower key was left. */
static bool model_evict_page(model *m)
{
    bool ties = m->policy == RAD_EVICT_COST;
    entry *victim = NULL;
    for (uint32_t i = 0; i < m->count; i++) {
        entry *e = &m->entries[i];
        if (e->locks || has_continuation(m, e)) continue;
        if (ties && rad_kv_is_taken(m->kv, e->page)) continue;
        if (!victim || compare_keys(m, e, victim) < 0) victim = e;
    }
    if (!victim) return false;
    if (ties) {
        if (m->worst_at != m->now || compare_keys(m, victim, &m->worst) > 0) m->worst = *victim;
        m->worst_at = m->now;
        rad_key path = {.tokens = victim->tokens, .num_tokens = victim->num_tokens};
        entry *above = find(m, &path, victim->space, victim->num_tokens - m->page_size);
        if (above) above->uncovered_at = m->now;
    }
    *victim = m->entries[--m->count];
    return true;
}

/* Whether this step evicted a page although one with a lower key ended a path all the time. */
static bool untouched_fault(const model *m)
{
    if (m->worst_at != m->now) return false;
    for (uint32_t i = 0; i < m->count; i++) {
        const entry *e = &m->entries[i];
        if (!e->locks && e->uncovered_at != m->now && e->created != m->now &&
            !has_continuation(m, e) && compare_keys(m, e, &m->worst) < 0)
            return true;
    }
    return false;
}

/* The tree gave this page up and somebody has it anew: nobody else's entry names it. */
static void forget_page(model *m, rad_page page)
{
    for (uint32_t i = m->count; i-- > 0;)
        if (m->entries[i].page == page) m->entries[i] = m->entries[--m->count];
}

typedef struct walked {
    model *m;
    bool *seen;
    const char *wrong;
    rad_token path[64][MOST_TOKENS]; /* tokens up to the end of the node at a depth */
    uint32_t path_len[64];
} walked;

/* Each page that the tree has must be an entry, with the same page and locks. */
static void compare_node(void *user, rad_ref node, uint32_t depth, const rad_token *tokens,
                         const rad_slot *slots, uint32_t num_tokens, uint32_t lock_ref,
                         uint32_t hit_count)
{
    walked *w = user;
    (void)node, (void)hit_count;
    uint32_t ps = w->m->page_size, before = depth > 1 ? w->path_len[depth - 1] : 0;
    if (depth >= 64 || before + num_tokens > MOST_TOKENS) {
        w->wrong = "too deep";
        return;
    }
    memcpy(w->path[depth], w->path[depth - 1], before * sizeof(rad_token));
    memcpy(w->path[depth] + before, tokens, num_tokens * sizeof(rad_token));
    w->path_len[depth] = before + num_tokens;
    rad_key key = {.tokens = w->path[depth], .num_tokens = w->path_len[depth]};
    for (uint32_t i = 0; i < num_tokens; i += ps) {
        entry *e = NULL;
        for (uint32_t space = 0; space < SPACES && !e; space++) {
            e = find(w->m, &key, space, before + i + ps);
            if (e && e->page != slots[i] / (rad_slot)ps) e = NULL; /* another space's */
        }
        if (!e || w->seen[e - w->m->entries]) {
            w->wrong = "a page that nobody put there";
            return;
        }
        w->seen[e - w->m->entries] = true;
        if (e->locks > lock_ref) w->wrong = "a page with too few locks";
    }
}

typedef struct config {
    uint32_t page_size;
    uint32_t num_pages;
    uint32_t max_nodes; /* 0: never short */
    uint32_t alphabet;
    uint32_t policy;
    bool keeps; /* pins and retention as well */
} config;

static uint64_t model_time(void *user)
{
    return ((model *)user)->now_ns;
}

static uint32_t model_pin(model *m, const rad_key *key, uint32_t space, uint64_t ttl)
{
    uint32_t len = model_match(m, key, space, false), ps = m->page_size;
    uint64_t pinned = 0;
    for (uint32_t i = 0; i < m->count; i++)
        pinned += m->entries[i].pin_ttl != 0;
    for (uint32_t end = ps; end <= len; end += ps)
        pinned += !find(m, key, space, end)->pin_ttl;
    for (; ttl && pinned > m->max_pinned; len -= ps)
        pinned -= !find(m, key, space, len)->pin_ttl;
    for (uint32_t end = ps; end <= len; end += ps) {
        entry *e = find(m, key, space, end);
        uint64_t until = m->now_ns + ttl;
        if (!e->pin_ttl || until > e->pin_until) e->pin_until = until;
        e->pin_ttl = ttl ? (ttl > e->pin_ttl ? ttl : e->pin_ttl) : 0;
    }
    return len;
}

static uint32_t model_retain(model *m, const rad_key *key, uint32_t space, uint32_t priority,
                             uint64_t idle)
{
    uint32_t len = model_match(m, key, space, false), ps = m->page_size;
    for (uint32_t end = ps; end <= len; end += ps) {
        entry *e = find(m, key, space, end);
        bool longer = e->idle && (!idle || idle > e->idle);
        if (!priority || priority > e->retention || (priority == e->retention && longer)) {
            e->retention = priority;
            e->idle = idle;
        }
        e->used_ns = m->now_ns;
    }
    return len;
}

static const char *salts[SPACES] = {NULL, "", "a", "b"};

static void run(const config *cfg, uint64_t seed, uint64_t steps)
{
    uint64_t state = seed;
    uint32_t ps = cfg->page_size;
    static model m;
    m = (model){.page_size = ps,
                .policy = cfg->policy,
                .keeps = cfg->keeps,
                .max_pinned = cfg->keeps ? cfg->num_pages / 3 : 0,
                .half_life = cfg->num_pages * HALF_LIFE_PERCENT / 100};
    rad_env env = {.struct_size = sizeof env, .user = &m, .now_ns = model_time};
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_cache *cache;
    CHECK_OK(rad_kv_allocator_create(
        NULL, &(rad_kv_allocator_params){sizeof(rad_kv_allocator_params), cfg->num_pages, ps}, &kv,
        NULL));
    CHECK_OK(rad_req_to_token_pool_create(
        NULL, &(rad_req_to_token_pool_params){sizeof(rad_req_to_token_pool_params), 1, 1}, &rows,
        NULL));
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = ps,
                               .kv_allocator = kv,
                               .req_to_token_pool = rows,
                               .max_nodes = cfg->max_nodes,
                               .max_namespaces = cfg->max_nodes ? 2 : 0,
                               .eviction = {.policy = cfg->policy,
                                            .protected_threshold = THRESHOLD,
                                            .cost_half_life_percent = HALF_LIFE_PERCENT,
                                            .cost_attention_tokens = ATTENTION_TOKENS},
                               .evict_key = evict_key,
                               .max_pinned_tokens = m.max_pinned * ps,
                               .retention = cfg->keeps};
    CHECK_OK(rad_cache_create(&env, &params, &cache, NULL));
    m.kv = kv;

    struct {
        rad_receipt receipt;
        rad_token tokens[MOST_TOKENS];
        uint32_t len, space;
    } locks[MOST_LOCKS] = {0};

    for (uint64_t step = 0; step < steps; step++) {
        rad_token tokens[MOST_TOKENS];
        rad_slot slots[MOST_TOKENS], got[MOST_TOKENS];
        uint32_t op = (uint32_t)(test_random(&state) % 100);
        uint32_t space = (uint32_t)(test_random(&state) % 8);
        space = space < SPACES ? space : 0;
        uint32_t n = (uint32_t)(test_random(&state) % (ps < 4 ? 24 * ps : 8 * ps + 3));
        for (uint32_t i = 0; i < n; i++) /* whole pages repeat, so that they share */
            tokens[i] = i % ps && test_random(&state) % 64
                            ? 7
                            : (rad_token)(test_random(&state) % cfg->alphabet);
        rad_key key = {.tokens = tokens, .num_tokens = n, .cache_salt = salts[space]};
        rad_match match;
        m.now++;
        m.now_ns += test_random(&state) % 4;
        model_expire(&m);

        if (cfg->keeps && test_random(&state) % 8 == 0) { /* pin, retain, or end that */
            uint64_t ns = test_random(&state) % 3 ? 1 + test_random(&state) % 100 : 0;
            uint32_t priority = (uint32_t)(test_random(&state) % 4), got_len, want;
            if (op % 2) {
                want = model_pin(&m, &key, space, ns);
                CHECK_OK(rad_cache_pin_prefix(cache, &key, ns, &got_len));
                uint64_t pinned = 0;
                for (uint32_t i = 0; i < m.count; i++)
                    pinned += m.entries[i].pin_ttl != 0;
                CHECKF(rad_cache_pinned_size(cache) == pinned * ps || cfg->max_nodes,
                       "pinned %llu, want %llu, seed %llu step %llu",
                       (unsigned long long)rad_cache_pinned_size(cache),
                       (unsigned long long)pinned * ps, (unsigned long long)seed,
                       (unsigned long long)step);
            } else {
                want = model_retain(&m, &key, space, priority, ns);
                CHECK_OK(rad_cache_retain_prefix(cache, &key, (int32_t)priority, ns, &got_len));
            }
            CHECKF(got_len == want || cfg->max_nodes, "kept %u, want %u, seed %llu step %llu",
                   got_len, want, (unsigned long long)seed, (unsigned long long)step);
        } else if (op < 35) { /* insert */
            rad_insert_params how = {.priority = (int32_t)(test_random(&state) % 5) - 2,
                                     .chunked = test_random(&state) % 4 == 0};
            uint32_t want = model_match(&m, &key, space, false), pages = n / ps;
            rad_page page[MOST_TOKENS];
            if (rad_kv_alloc(kv, page, pages)) {
                uint64_t need = (uint64_t)(pages - rad_kv_available_pages(kv)) * ps;
                CHECK_OK(rad_cache_evict(cache, need, NULL));
                while (!cfg->max_nodes && need > 0 && model_evict_page(&m))
                    need -= ps;
                if (rad_kv_alloc(kv, page, pages)) goto compare; /* all locked */
                want = model_match(&m, &key, space, false);
            }
            for (uint32_t i = 0; i < n; i++)
                slots[i] = i / ps < pages ? page[i / ps] * (rad_slot)ps + (rad_slot)(i % ps) : -5;
            uint32_t prefix = 0;
            rad_status status = rad_cache_insert(cache, &key, slots, &how, &prefix, NULL);
            if (status == RAD_FULL && cfg->max_nodes) {
                CHECK_OK(rad_kv_free(kv, page, pages, NULL));
            } else {
                CHECKF(status == RAD_OK, "%s, seed %llu step %llu", rad_status_name(status),
                       (unsigned long long)seed, (unsigned long long)step);
                CHECKF(prefix == want || cfg->max_nodes, "insert: %u, want %u, seed %llu step %llu",
                       prefix, want, (unsigned long long)seed, (unsigned long long)step);
                model_match(&m, &key, space, true);
                for (uint32_t end = ps; end <= prefix; end += ps) {
                    entry *e = find(&m, &key, space, end);
                    e->priority = how.priority > e->priority ? how.priority : e->priority;
                    if (how.chunked) continue;
                    e->hits++;
                    e->heat = evict_heat_add(e->heat, evict_heat_at(m.added, m.half_life));
                }
                m.added += (n / ps * ps - prefix) / ps;
                CHECK_OK(rad_kv_free(kv, page, prefix / ps, NULL));
                for (uint32_t end = prefix + ps; end <= n; end += ps) {
                    forget_page(&m, page[end / ps - 1]);
                    entry *e = find(&m, &key, space, end);
                    if (!e) e = &m.entries[m.count++]; /* else the tree had given it up */
                    CHECK(m.count <= MOST_PAGES);
                    *e = (entry){.space = space,
                                 .num_tokens = end,
                                 .page = page[end / ps - 1],
                                 .used = m.now,
                                 .created = m.now,
                                 .priority = how.priority,
                                 .heat = evict_heat_at(m.added, m.half_life)};
                    memcpy(e->tokens, tokens, end * sizeof *tokens);
                }
            }
        } else if (op < 70) { /* match, and perhaps lock */
            uint32_t want = model_match(&m, &key, space, false);
            rad_match peek;
            CHECK_OK(rad_cache_lookup(cache, &key, &peek));
            CHECK_OK(rad_cache_match_prefix(cache, &key, got, &match));
            model_match(&m, &key, space, true);
            CHECKF(match.prefix_tokens == want && peek.prefix_tokens == want,
                   "match: %u, lookup: %u, want %u, seed %llu step %llu", match.prefix_tokens,
                   peek.prefix_tokens, want, (unsigned long long)seed, (unsigned long long)step);
            for (uint32_t i = 0; i < want; i++)
                CHECK(got[i] == find(&m, &key, space, (i / ps + 1) * ps)->page * (rad_slot)ps +
                                    (rad_slot)(i % ps));
            uint32_t l = (uint32_t)(test_random(&state) % MOST_LOCKS);
            if (op >= 50 && !locks[l].receipt.held) {
                CHECK_OK(rad_cache_inc_lock_ref(cache, match.last_node, &locks[l].receipt, NULL));
                memcpy(locks[l].tokens, tokens, want * sizeof *tokens);
                locks[l].len = want;
                locks[l].space = space;
                for (uint32_t end = ps; end <= want; end += ps)
                    find(&m, &key, space, end)->locks++;
            }
        } else if (op < 85) { /* unlock */
            uint32_t l = (uint32_t)(test_random(&state) % MOST_LOCKS);
            rad_receipt copy = locks[l].receipt;
            CHECK(rad_cache_dec_lock_ref(cache, &locks[l].receipt, NULL) ==
                  (copy.held ? RAD_OK : RAD_E_STATE));
            if (copy.held) {
                key.tokens = locks[l].tokens;
                for (uint32_t end = ps; end <= locks[l].len; end += ps)
                    find(&m, &key, locks[l].space, end)->locks--;
            }
        } else { /* evict */
            uint64_t ask = test_random(&state) % (8 * ps), done = 0, want = 0;
            if (op == 99) ask = 1u << 30;
            CHECK_OK(rad_cache_evict(cache, ask, &done));
            while (!cfg->max_nodes && want < ask && model_evict_page(&m))
                want += ps;
            CHECKF(done == want || cfg->max_nodes, "evict: %llu, want %llu, seed %llu step %llu",
                   (unsigned long long)done, (unsigned long long)want, (unsigned long long)seed,
                   (unsigned long long)step);
        }

    compare:;
        /* The tree has exactly the model's pages (or fewer, where it may). */
        rad_error err = {0};
        CHECKF(rad_cache_check(cache, &err) == RAD_OK, "%s, seed %llu step %llu", err.text,
               (unsigned long long)seed, (unsigned long long)step);
        bool seen[MOST_PAGES] = {false};
        static walked w;
        w = (walked){.m = &m, .seen = seen};
        CHECK_OK(rad_cache_walk(cache, compare_node, &w));
        CHECKF(!w.wrong, "%s, seed %llu step %llu", w.wrong, (unsigned long long)seed,
               (unsigned long long)step);
        CHECKF(cfg->max_nodes || !untouched_fault(&m), "a lower key was left, seed %llu step %llu",
               (unsigned long long)seed, (unsigned long long)step);
        uint64_t locked = 0;
        for (uint32_t i = m.count; i-- > 0;) {
            locked += seen[i] && m.entries[i].locks > 0;
            if (seen[i]) continue;
            CHECKF(cfg->max_nodes && !m.entries[i].locks, "a page is missing, seed %llu step %llu",
                   (unsigned long long)seed, (unsigned long long)step);
            seen[i] = seen[m.count - 1];
            m.entries[i] = m.entries[--m.count];
        }
        CHECK(rad_cache_total_size(cache) == (uint64_t)m.count * ps);
        CHECKF(rad_cache_protected_size(cache) == locked * ps || cfg->max_nodes,
               "protected %llu, want %llu, seed %llu step %llu",
               (unsigned long long)rad_cache_protected_size(cache), (unsigned long long)locked * ps,
               (unsigned long long)seed, (unsigned long long)step);
        CHECK(rad_kv_available_pages(kv) + m.count == cfg->num_pages);
    }
    for (int l = 0; l < MOST_LOCKS; l++)
        if (locks[l].receipt.held) CHECK_OK(rad_cache_dec_lock_ref(cache, &locks[l].receipt, NULL));
    CHECK(rad_cache_protected_size(cache) == 0);
    CHECK_OK(rad_cache_reset(cache));
    CHECK(rad_kv_available_pages(kv) == cfg->num_pages);
    rad_cache_destroy(cache);
    rad_req_to_token_pool_destroy(rows);
    rad_kv_allocator_destroy(kv);
}

TEST(page_size_1)
{
    run(&(config){1, 100, 0, 2}, test_seed(), test_scale(4000, 1000000));
    run(&(config){1, 200, 0, 3}, test_seed(), test_scale(2000, 500000));
}

TEST(page_size_2)
{
    run(&(config){2, 60, 0, 2}, test_seed(), test_scale(4000, 1000000));
}

TEST(page_size_16)
{
    run(&(config){16, 40, 0, 2}, test_seed(), test_scale(4000, 1000000));
}

TEST(few_nodes_and_few_namespaces)
{
    run(&(config){1, 100, 12, 2, .keeps = true}, test_seed(), test_scale(4000, 1000000));
    run(&(config){2, 60, 6, 2}, test_seed(), test_scale(4000, 1000000));
    run(&(config){3, 60, 30, 3}, test_seed(), test_scale(4000, 1000000));
    for (uint32_t policy = 0; policy <= RAD_EVICT_USER; policy++)
        run(&(config){1, 60, 9, 2, policy, true}, test_seed(), test_scale(500, 1000000));
}

/* Every policy, with pins and retention and without. */
TEST(policies_at_page_size_1)
{
    for (uint32_t policy = 0; policy <= RAD_EVICT_USER; policy++) {
        run(&(config){1, 80, 0, 2, policy, false}, test_seed(), test_scale(1500, 1000000));
        run(&(config){1, 80, 0, 3, policy, true}, test_seed(), test_scale(1500, 1000000));
    }
}

TEST(policies_at_page_size_2)
{
    for (uint32_t policy = 0; policy <= RAD_EVICT_USER; policy++) {
        run(&(config){2, 50, 0, 2, policy, false}, test_seed(), test_scale(1000, 1000000));
        run(&(config){2, 50, 0, 2, policy, true}, test_seed(), test_scale(1000, 1000000));
    }
}

TEST(policies_at_page_size_16)
{
    for (uint32_t policy = 0; policy <= RAD_EVICT_USER; policy++) {
        run(&(config){16, 30, 0, 2, policy, false}, test_seed(), test_scale(1000, 1000000));
        run(&(config){16, 30, 0, 2, policy, true}, test_seed(), test_scale(1000, 1000000));
    }
}

TEST_MAIN()
