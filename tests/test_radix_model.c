/* test_radix_model.c - the tree against a list of prefixes (prefix_model.h), in random steps. Pages
 * are an allocator's, or an engine's own (own_pages.h): then free + held + cached == all holds page
 * by page by what the tree has told.
 *
 * Tokens come from an alphabet of two or three, so that keys share, diverge and repeat all the
 * time. With a tight limit on nodes the tree may give up more than the model; then only what
 * it still has must be right, and the model forgets the rest. */
#include "own_pages.h"
#include "prefix_model.h"
#include "test.h"

#include <radish/retention.h>

#include "cache/radix_cache.h"

enum { MOST_LOCKS = 8, SPACES = 4, STATES = 12 };

typedef struct config {
    uint32_t page_size;
    uint32_t num_pages;
    uint32_t max_nodes; /* 0: never short */
    uint32_t alphabet;
    uint32_t policy;
    bool keeps;      /* pins and retention as well */
    uint32_t window; /* tokens; 0: there are no window layers */
    uint32_t window_pages;
    bool states;
    bool own; /* pages are the engine's */
} config;

typedef struct walked {
    model *m;
    bool *seen;
    const char *wrong;
    entry *of_page[MOST_PAGES + 1];
    rad_token path[64][MOST_TOKENS]; /* tokens up to the end of the node at a depth */
    uint32_t path_len[64];
    rad_ref node[64];
    const rad_cache *cache;
    bool (*has_window)(const void *user, rad_page page);
    void (*lost)(const void *user, entry *e); /* its snapshot has gone */
    const void *user;
    uint64_t evictable, window_tokens; /* by what each node says of itself */
    uint32_t states;
} walked;

/* Each page that the tree has must be an entry, with the same page and locks. */
static void compare_node(void *user, rad_ref node, uint32_t depth, const rad_token *tokens,
                         const rad_slot *slots, uint32_t num_tokens, uint32_t lock_ref,
                         uint32_t hit_count)
{
    walked *w = user;
    uint32_t ps = w->m->page_size, before = depth > 1 ? w->path_len[depth - 1] : 0;
    if (depth >= 64 || before + num_tokens > MOST_TOKENS) {
        w->wrong = "too deep";
        return;
    }
    rad_node_info info = {.struct_size = sizeof info};
    CHECK_OK(rad_cache_get_node_info(w->cache, node, &info, NULL));
    w->node[depth] = node;
    if (memcmp(&info.parent, &w->node[depth - 1], sizeof node) != 0 ||
        info.num_tokens != num_tokens || info.depth_tokens != before + num_tokens ||
        info.lock_ref != lock_ref || info.hit_count != hit_count || !info.on_device ||
        info.on_host || info.is_evictable != (!lock_ref && !info.num_children))
        w->wrong = "a node is not what it says";
    w->evictable += lock_ref ? 0 : num_tokens;
    w->window_tokens += info.window_tokens;
    memcpy(w->path[depth], w->path[depth - 1], before * sizeof(rad_token));
    memcpy(w->path[depth] + before, tokens, num_tokens * sizeof(rad_token));
    w->path_len[depth] = before + num_tokens;
    for (uint32_t i = 0; i < num_tokens; i += ps) {
        rad_page page = slots[i] / (rad_slot)ps;
        entry *e = page >= 0 && page <= MOST_PAGES ? w->of_page[page] : NULL;
        if (!e || e->num_tokens != before + i + ps || w->seen[e - w->m->entries] ||
            memcmp(e->tokens, w->path[depth], e->num_tokens * sizeof *e->tokens) != 0) {
            w->wrong = "a page that nobody put there";
            return;
        }
        w->seen[e - w->m->entries] = true;
        if (e->locks > lock_ref) w->wrong = "a page with too few locks";
        if (e->priority > info.priority) w->wrong = "a page with too low a priority";
        if (w->has_window(w->user, page) != (i + info.window_tokens >= num_tokens))
            w->wrong = "a page whose window side is not where the node says";
        rad_state state = i + ps == num_tokens ? info.state : 0;
        if (state && state != e->state) w->wrong = "a snapshot that is somewhere else";
        if (e->state && !state) w->lost(w->user, e);
        w->states += state != 0;
    }
}

static const char *salts[SPACES] = {NULL, "", "a", "b"};

/* A cache beside its model, and the step that both are in. */
typedef struct world {
    config cfg;
    model m;
    rad_kv_allocator *kv; /* or */
    own_pages own;
    rad_req_to_token_pool *rows;
    rad_cache *cache;
    struct {
        rad_receipt receipt;
        rad_token tokens[MOST_TOKENS];
        uint32_t len, space;
    } locks[MOST_LOCKS];
    rad_state_pool *states;
    uint64_t seed, dice, step;
    rad_token tokens[MOST_TOKENS]; /* the step's key: */
    rad_key key;
    uint32_t space;
} world;

static uint32_t draw(world *w, uint32_t sides)
{
    return (uint32_t)(test_random(&w->dice) % sides);
}

static void holds(const world *w, bool fact, const char *otherwise)
{
    CHECKF(fact, "%s, seed %llu step %llu\n", otherwise, (unsigned long long)w->seed,
           (unsigned long long)w->step);
}

/* Unless the tree may have less than the model. */
static void same(const world *w, const char *what, uint64_t got, uint64_t want)
{
    CHECKF(got == want || w->cfg.max_nodes, "%s: %llu, want %llu, seed %llu step %llu\n", what,
           (unsigned long long)got, (unsigned long long)want, (unsigned long long)w->seed,
           (unsigned long long)w->step);
}

static bool is_taken(void *user, rad_page page)
{
    const world *w = user;
    return w->cfg.own ? w->own.of[page] != OWN_FREE : rad_kv_is_taken(w->kv, page) != 0;
}

static rad_status alloc_pages(world *w, rad_page *pages, uint32_t count)
{
    if (w->cfg.own) return own_alloc(&w->own, pages, count, w->cfg.window != 0);
    return rad_kv_alloc(w->kv, pages, count);
}

static void free_pages(world *w, const rad_page *pages, uint32_t count)
{
    if (w->cfg.own)
        own_pass(&w->own, pages, count, OWN_HELD, OWN_FREE);
    else
        CHECK_OK(rad_kv_free(w->kv, pages, count, NULL));
}

static void free_windows(world *w, const rad_page *pages, uint32_t count)
{
    for (uint32_t i = 0; w->cfg.own && i < count; i++)
        own_drop_window(&w->own, pages[i]);
    if (!w->cfg.own) CHECK_OK(rad_kv_free_window(w->kv, pages, count, NULL));
}

static bool has_window(const void *user, rad_page page)
{
    const world *w = user;
    return w->cfg.own ? w->own.has_window[page] : rad_kv_has_window(w->kv, page) != 0;
}

static uint32_t available(const world *w)
{
    return w->cfg.own ? w->own.num_free : rad_kv_available_pages(w->kv);
}

static uint32_t window_available(const world *w)
{
    return w->cfg.own ? w->own.window_free : rad_kv_window_available_pages(w->kv);
}

static void lost(const void *user, entry *e)
{
    holds(user, ((const world *)user)->cfg.max_nodes, "a snapshot is lost");
    e->state = 0;
}

static void world_init(world *w, const config *cfg, uint64_t seed)
{
    uint32_t ps = cfg->page_size;
    *w = (world){.cfg = *cfg, .seed = seed, .dice = seed};
    w->m = (model){.page_size = ps,
                   .policy = cfg->policy,
                   .keeps = cfg->keeps,
                   .max_pinned = cfg->keeps ? cfg->num_pages / 3 : 0,
                   .half_life = cfg->num_pages * HALF_LIFE_PERCENT / 100,
                   .window = (cfg->window + ps - 1) / ps,
                   .states = cfg->states};
    rad_env env = {.struct_size = sizeof env, .user = &w->m, .now_ns = model_time};
    rad_free_list list = own_init(&w->own, cfg->own ? cfg->num_pages : 0, cfg->window_pages);
    if (!cfg->own)
        CHECK_OK(rad_kv_allocator_create(
            NULL,
            &(rad_kv_allocator_params){.struct_size = sizeof(rad_kv_allocator_params),
                                       .num_pages = cfg->num_pages,
                                       .page_size = ps,
                                       .swa_num_pages = cfg->window_pages},
            &w->kv, NULL));
    if (!cfg->own)
        CHECK_OK(rad_req_to_token_pool_create(
            NULL, &(rad_req_to_token_pool_params){sizeof(rad_req_to_token_pool_params), 1, 1},
            &w->rows, NULL));
    rad_state_pool_params states = {
        .struct_size = sizeof states, .state_bytes = 64, .num_states = STATES};
    if (cfg->states) CHECK_OK(rad_state_pool_create(NULL, &states, &w->states, NULL));
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = ps,
                               .kv_allocator = w->kv,
                               .req_to_token_pool = w->rows,
                               .max_nodes = cfg->max_nodes,
                               .max_namespaces = cfg->max_nodes ? 2 : 0,
                               .eviction = {.policy = cfg->policy,
                                            .protected_threshold = THRESHOLD,
                                            .cost_half_life_percent = HALF_LIFE_PERCENT,
                                            .cost_attention_tokens = ATTENTION_TOKENS},
                               .evict_key = evict_key,
                               .max_pinned_tokens = w->m.max_pinned * ps,
                               .retention = cfg->keeps,
                               .window_tokens = cfg->window,
                               .free_list = cfg->own ? &list : NULL,
                               .state_pool = w->states};
    CHECK_OK(rad_cache_create(&env, &params, &w->cache, NULL));
    w->m.is_taken = is_taken;
    w->m.user = w;
}

/* Everything comes back. */
static void world_fini(world *w)
{
    for (int l = 0; l < MOST_LOCKS; l++)
        if (w->locks[l].receipt.held)
            CHECK_OK(rad_cache_dec_lock_ref(w->cache, &w->locks[l].receipt, NULL));
    CHECK(rad_cache_protected_size(w->cache) == 0);
    CHECK(rad_cache_window_protected_size(w->cache) == 0);
    CHECK(rad_cache_state_protected_size(w->cache) == 0);
    CHECK_OK(rad_cache_reset(w->cache));
    CHECK(!w->states || rad_state_available(w->states) == STATES);
    CHECK(available(w) == w->cfg.num_pages && window_available(w) == w->cfg.window_pages);
    rad_cache_destroy(w->cache);
    rad_req_to_token_pool_destroy(w->rows);
    rad_kv_allocator_destroy(w->kv);
    rad_state_pool_destroy(w->states);
}

static void draw_key(world *w)
{
    uint32_t ps = w->cfg.page_size, space = draw(w, 8);
    uint32_t n = draw(w, ps < 4 ? 24 * ps : 8 * ps + 3);
    w->space = space < SPACES ? space : 0;
    for (uint32_t i = 0; i < n; i++) /* whole pages repeat, so that they share */
        w->tokens[i] = i % ps && draw(w, 64) ? 7 : (rad_token)draw(w, w->cfg.alphabet);
    w->key = (rad_key){.tokens = w->tokens, .num_tokens = n, .cache_salt = salts[w->space]};
}

/* Pins, retains, or ends that. */
static void step_keep(world *w)
{
    uint64_t ns = draw(w, 3) ? 1 + draw(w, 100) : 0, pinned = 0;
    uint32_t priority = draw(w, 4), got, want;
    if (draw(w, 2)) {
        want = model_pin(&w->m, &w->key, w->space, ns);
        CHECK_OK(rad_cache_pin_prefix(w->cache, &w->key, ns, &got));
        for (uint32_t i = 0; i < w->m.count; i++)
            pinned += w->m.entries[i].pin_ttl != 0;
        same(w, "pinned", rad_cache_pinned_size(w->cache), pinned * w->cfg.page_size);
    } else {
        want = model_retain(&w->m, &w->key, w->space, priority, ns);
        CHECK_OK(rad_cache_retain_prefix(w->cache, &w->key, (int32_t)priority, ns, &got));
    }
    same(w, "kept", got, want);
}

/* The model's part of an insert that found `prefix` tokens there: used, and new ones behind. */
static void model_insert(world *w, const rad_insert_params *how, uint32_t prefix,
                         const rad_page *page, uint32_t slid)
{
    model *m = &w->m;
    uint32_t ps = w->cfg.page_size, n = w->key.num_tokens;
    model_match(m, &w->key, w->space, true);
    for (uint32_t end = ps; end <= prefix; end += ps) {
        entry *e = find(m, &w->key, w->space, end);
        e->priority = how->priority > e->priority ? how->priority : e->priority;
        e->window = e->window || (m->window && end > slid);
        if (how->chunked) continue;
        e->hits++;
        e->heat = evict_heat_add(e->heat, evict_heat_at(m->added, m->half_life));
    }
    m->added += (n / ps * ps - prefix) / ps;
    free_pages(w, page, prefix / ps);
    for (uint32_t end = prefix + ps; end <= n; end += ps) {
        forget_page(m, page[end / ps - 1]);
        entry *e = find(m, &w->key, w->space, end);
        if (!e) e = &m->entries[m->count++]; /* else the tree had given it up */
        CHECK(m->count <= MOST_PAGES);
        *e = (entry){.space = w->space,
                     .num_tokens = end,
                     .page = page[end / ps - 1],
                     .used = m->now,
                     .created = m->now,
                     .priority = how->priority,
                     .heat = evict_heat_at(m->added, m->half_life),
                     .window = m->window && end > slid};
        memcpy(e->tokens, w->tokens, end * sizeof *w->tokens);
    }
}

/* Which window sides go is the cache's to say (test_window_cache.c has the order); that none goes
 * that a lock keeps shows when everything is compared. */
static void evict_windows(world *w, uint64_t tokens)
{
    model *m = &w->m;
    uint64_t done, had = 0, have = 0, before = rad_cache_window_evictable_size(w->cache);
    CHECK_OK(rad_cache_evict_window(w->cache, tokens, &done));
    for (uint32_t i = 0; i < m->count; i++) {
        had += m->entries[i].window;
        m->entries[i].window = m->entries[i].window && has_window(w, m->entries[i].page);
        have += m->entries[i].window;
    }
    uint64_t want = (tokens + m->page_size - 1) / m->page_size * m->page_size;
    CHECK(done == (want < before ? want : before));
    same(w, "windows", done, (had - have) * m->page_size);
}

/* Likewise of snapshots (test_state_cache.c has the order). */
static void evict_states(world *w, uint32_t count)
{
    model *m = &w->m;
    uint64_t done, evictable = rad_cache_state_evictable_size(w->cache);
    uint32_t before = rad_state_available(w->states);
    CHECK_OK(rad_cache_evict_state(w->cache, count, &done));
    CHECK(done == (count < evictable ? count : evictable));
    CHECK(rad_state_available(w->states) == before + done);
    for (uint32_t i = 0; i < m->count; i++)
        if (!rad_state_is_taken(w->states, m->entries[i].state)) m->entries[i].state = 0;
}

/* Hangs a snapshot in somewhere on the path of the step's key, which `node` ends. */
static void put_state(world *w, rad_ref node)
{
    uint32_t ps = w->cfg.page_size, pages = w->key.num_tokens / ps;
    uint32_t depth = (draw(w, 2) ? pages : 1 + draw(w, pages)) * ps;
    rad_state state;
    if (rad_state_alloc(w->states, &state) == RAD_FULL) {
        evict_states(w, 1);
        if (rad_state_alloc(w->states, &state) == RAD_FULL) return;
    }
    CHECK(rad_cache_put_state(w->cache, node, depth + ps * MOST_TOKENS, 0, NULL) == RAD_E_STATE);
    CHECK_OK(rad_cache_put_state(w->cache, node, depth, state, NULL));
    entry *e = find(&w->m, &w->key, w->space, depth);
    if (!rad_state_is_taken(w->states, state)) {
        holds(w, e->state || w->cfg.max_nodes, "a snapshot was not taken");
        return;
    }
    holds(w, !e->state || w->cfg.max_nodes, "a place has two snapshots");
    CHECK(rad_cache_put_state(w->cache, node, depth, state, NULL) == RAD_E_STATE);
    e->state = state;
}

static void step_insert(world *w)
{
    uint32_t ps = w->cfg.page_size, n = w->key.num_tokens, pages = n / ps;
    rad_insert_params how = {.priority = (int32_t)draw(w, 5) - 2, .chunked = draw(w, 4) == 0};
    rad_page page[MOST_TOKENS];
    rad_slot slots[MOST_TOKENS];
    if (alloc_pages(w, page, pages)) {
        uint32_t there = available(w);
        uint64_t need = pages > there ? (uint64_t)(pages - there) * ps : 0;
        CHECK_OK(rad_cache_evict(w->cache, need, NULL, NULL));
        while (!w->cfg.max_nodes && need > 0 && model_evict_page(&w->m))
            need -= ps;
        if (w->cfg.window && window_available(w) < pages)
            evict_windows(w, (uint64_t)(pages - window_available(w)) * ps);
        if (alloc_pages(w, page, pages)) return; /* all locked */
    }
    uint32_t want = model_match(&w->m, &w->key, w->space, false);
    uint32_t slid = w->cfg.window && draw(w, 2) ? draw(w, pages + 1) : 0; /* as a request slides */
    if (slid) free_windows(w, page, slid);
    if (w->cfg.own) how.window_from = slid * ps;
    for (uint32_t i = 0; i < n; i++)
        slots[i] = i / ps < pages ? page[i / ps] * (rad_slot)ps + (rad_slot)(i % ps) : -5;
    rad_inserted in;
    uint64_t before = rad_cache_evictable_size(w->cache);
    rad_status status = rad_cache_insert(w->cache, &w->key, slots, &how, &in, NULL);
    CHECK((uint64_t)in.evictable_change == rad_cache_evictable_size(w->cache) - before);
    if (status == RAD_FULL && w->cfg.max_nodes) {
        free_pages(w, page, pages);
        return;
    }
    holds(w, status == RAD_OK, rad_status_name(status));
    rad_node_info info = {.struct_size = sizeof info};
    CHECK_OK(rad_cache_get_node_info(w->cache, in.node, &info, NULL));
    holds(w, info.depth_tokens == pages * ps, "an insert names another node than its end");
    if (w->cfg.own)
        own_pass(&w->own, page + in.prefix_tokens / ps, pages - in.prefix_tokens / ps, OWN_HELD,
                 OWN_CACHED);
    same(w, "insert", in.prefix_tokens, want);
    model_insert(w, &how, in.prefix_tokens, page, slid * ps);
    if (w->cfg.states && pages && draw(w, 3)) put_state(w, in.node);
}

/* What a match of this key answered, which touched what it found; returns its length. */
static uint32_t holds_match(world *w, const rad_key *key, uint32_t space, const rad_match *match,
                            const rad_slot *got)
{
    uint32_t ps = w->cfg.page_size, want = model_usable(&w->m, key, space);
    same(w, "seen", match->seen_tokens, model_match(&w->m, key, space, false));
    if (w->cfg.max_nodes && (w->cfg.window || w->cfg.states) && match->prefix_tokens < want &&
        model_can_end(&w->m, key, space, match->prefix_tokens))
        want = match->prefix_tokens; /* there was no node to split with */
    rad_key used = {.tokens = key->tokens, .num_tokens = want};
    model_match(&w->m, &used, space, true);
    CHECKF(match->prefix_tokens == want, "match: %u, want %u, seed %llu step %llu\n",
           match->prefix_tokens, want, (unsigned long long)w->seed, (unsigned long long)w->step);
    holds(w, match->state == (want ? find(&w->m, key, space, want)->state : 0),
          "a match names another snapshot than the one it ends at");
    for (uint32_t i = 0; i < want; i++)
        CHECK(got[i] ==
              find(&w->m, key, space, (i / ps + 1) * ps)->page * (rad_slot)ps + (rad_slot)(i % ps));
    return want;
}

static void step_match_batch(world *w)
{
    enum { MOST_KEYS = 4 };
    rad_token tokens[MOST_KEYS][MOST_TOKENS];
    rad_slot got[MOST_KEYS][MOST_TOKENS], *slots[MOST_KEYS] = {0};
    rad_match matches[MOST_KEYS];
    rad_key keys[MOST_KEYS] = {0};
    uint32_t spaces[MOST_KEYS], count = 1 + draw(w, MOST_KEYS);
    for (uint32_t i = 0; i < count; i++) {
        draw_key(w);
        memcpy(tokens[i], w->tokens, sizeof tokens[i]);
        keys[i] = w->key;
        keys[i].tokens = tokens[i];
        spaces[i] = w->space;
        slots[i] = got[i];
    }
    CHECK_OK(rad_cache_match_batch(w->cache, keys, count, slots, matches, NULL));
    for (uint32_t i = 0; i < count; i++, w->m.now++)
        holds_match(w, &keys[i], spaces[i], &matches[i], got[i]);
}

/* Matches, and perhaps locks. */
static void step_match(world *w, bool lock)
{
    uint32_t ps = w->cfg.page_size, l = draw(w, MOST_LOCKS);
    rad_match match, peek;
    rad_slot got[MOST_TOKENS];
    CHECK_OK(rad_cache_lookup(w->cache, &w->key, &peek));
    CHECK_OK(rad_cache_match_prefix(w->cache, &w->key, got, &match, NULL));
    uint32_t want = holds_match(w, &w->key, w->space, &match, got);
    CHECK(peek.prefix_tokens == want && peek.state == match.state &&
          peek.seen_tokens == match.seen_tokens);
    if (!lock || w->locks[l].receipt.held) return;
    rad_receipt *receipt = &w->locks[l].receipt;
    uint64_t before = rad_cache_evictable_size(w->cache);
    CHECK_OK(rad_cache_inc_lock_ref(w->cache, match.last_node, receipt, NULL));
    CHECK((uint64_t)receipt->evictable_change == rad_cache_evictable_size(w->cache) - before);
    CHECK(!receipt->window_missing); /* a match ends only where the window is whole */
    CHECK(receipt->state_held == (match.state != 0));
    memcpy(w->locks[l].tokens, w->tokens, want * sizeof *w->tokens);
    w->locks[l].len = want;
    w->locks[l].space = w->space;
    for (uint32_t end = ps; end <= want; end += ps)
        find(&w->m, &w->key, w->space, end)->locks++;
}

static void step_unlock(world *w)
{
    uint32_t ps = w->cfg.page_size, l = draw(w, MOST_LOCKS);
    bool held = w->locks[l].receipt.held;
    rad_key key = {.tokens = w->locks[l].tokens};
    uint64_t before = rad_cache_evictable_size(w->cache);
    CHECK(rad_cache_dec_lock_ref(w->cache, &w->locks[l].receipt, NULL) ==
          (held ? RAD_OK : RAD_E_STATE));
    uint64_t change = held ? (uint64_t)w->locks[l].receipt.evictable_change : 0;
    CHECK(change == rad_cache_evictable_size(w->cache) - before);
    for (uint32_t end = ps; held && end <= w->locks[l].len; end += ps)
        find(&w->m, &key, w->locks[l].space, end)->locks--;
}

static void step_evict(world *w, bool all)
{
    uint64_t ask = draw(w, 8 * w->cfg.page_size), done = 0, want = 0;
    if (all) ask = 1u << 30;
    CHECK_OK(rad_cache_evict(w->cache, ask, &done, NULL));
    while (!w->cfg.max_nodes && want < ask && model_evict_page(&w->m))
        want += w->cfg.page_size;
    same(w, "evict", done, want);
}

/* Windows, or snapshots: there the cache says which. */
static void step_evict_component(world *w)
{
    if (w->cfg.window && draw(w, 3)) {
        evict_windows(w, draw(w, 12 * w->cfg.page_size));
    } else if (w->cfg.states) {
        evict_states(w, draw(w, 3));
    }
}

/* Page by page: a lock keeps the last window before its end. */
static uint64_t model_held_windows(world *w)
{
    uint32_t ps = w->cfg.page_size;
    bool held[MOST_PAGES] = {false};
    uint64_t count = 0;
    for (int l = 0; l < MOST_LOCKS; l++) {
        rad_key key = {.tokens = w->locks[l].tokens};
        uint32_t end = w->locks[l].receipt.held ? w->locks[l].len : 0;
        for (uint32_t i = 0; i < w->m.window && end; i++, end -= ps)
            held[find(&w->m, &key, w->locks[l].space, end) - w->m.entries] = true;
    }
    for (uint32_t i = 0; i < w->m.count; i++)
        count += held[i] && w->m.entries[i].window;
    return count * ps;
}

/* A lock keeps the snapshot at its end. */
static uint64_t model_held_states(world *w)
{
    bool held[STATES + 1] = {false};
    uint64_t count = 0;
    for (int l = 0; l < MOST_LOCKS; l++) {
        rad_key key = {.tokens = w->locks[l].tokens};
        if (!w->locks[l].receipt.held || !w->locks[l].receipt.state_held) continue;
        rad_state state = find(&w->m, &key, w->locks[l].space, w->locks[l].len)->state;
        holds(w, state != 0, "a locked snapshot has gone");
        count += !held[state];
        held[state] = true;
    }
    return count;
}

/* Window sides and snapshots, which the tree may have lost where nodes are short. */
static void compare_components(world *w)
{
    model *m = &w->m;
    uint64_t there = 0, states = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        entry *e = &m->entries[i];
        bool has = has_window(w, e->page);
        holds(w, e->window || !has, "a page has a window side that nobody gave it");
        holds(w, e->window == has || w->cfg.max_nodes, "a page lost its window side");
        e->window = has;
        there += has;
        states += e->state != 0;
    }
    uint64_t size = rad_cache_window_evictable_size(w->cache),
             held = rad_cache_window_protected_size(w->cache);
    CHECK(size + held == there * m->page_size);
    same(w, "held windows", held, model_held_windows(w));
    rad_cache_stats stats;
    rad_cache_get_stats(w->cache, &stats);
    if (!w->states) return;
    CHECK(states + rad_state_available(w->states) == STATES);
    CHECK(stats.states_put == states + stats.states_evicted + stats.states_dropped);
    held = rad_cache_state_protected_size(w->cache);
    CHECK(rad_cache_state_evictable_size(w->cache) + held == states);
    CHECK(held == model_held_states(w));
    same(w, "dropped states", stats.states_dropped, m->states_dropped);
}

/* The tree has exactly the model's pages (or fewer, where it may: the model forgets the rest). */
static void compare(world *w)
{
    model *m = &w->m;
    uint64_t ps = w->cfg.page_size, locked = 0;
    rad_error err = {0};
    holds(w, rad_cache_check(w->cache, &err) == RAD_OK, err.text);
    bool seen[MOST_PAGES] = {false};
    static walked walk;
    walk.m = m;
    walk.seen = seen;
    walk.wrong = NULL;
    walk.cache = w->cache;
    walk.has_window = has_window;
    walk.lost = lost;
    walk.states = 0;
    walk.user = w;
    walk.evictable = walk.window_tokens = 0;
    memset(walk.of_page, 0, sizeof walk.of_page);
    for (uint32_t i = 0; i < m->count; i++) {
        CHECK(m->entries[i].page <= MOST_PAGES && !walk.of_page[m->entries[i].page]);
        walk.of_page[m->entries[i].page] = &m->entries[i];
    }
    CHECK_OK(rad_cache_walk(w->cache, compare_node, &walk));
    holds(w, !walk.wrong, walk.wrong);
    CHECK(walk.evictable == rad_cache_evictable_size(w->cache));
    CHECK(walk.window_tokens ==
          rad_cache_window_evictable_size(w->cache) + rad_cache_window_protected_size(w->cache));
    holds(w, w->cfg.max_nodes || !untouched_fault(m), "a lower key was left");
    for (uint32_t i = m->count; i-- > 0;) {
        locked += seen[i] && m->entries[i].locks > 0;
        if (seen[i]) continue;
        holds(w, w->cfg.max_nodes && !m->entries[i].locks, "a page is missing");
        seen[i] = seen[m->count - 1];
        m->entries[i] = m->entries[--m->count];
    }
    CHECK(rad_cache_total_size(w->cache) == m->count * ps);
    same(w, "protected", rad_cache_protected_size(w->cache), locked * ps);
    CHECK(available(w) + m->count == w->cfg.num_pages);
    for (uint32_t i = 0; i < m->count && w->cfg.own; i++)
        holds(w, w->own.of[m->entries[i].page] == OWN_CACHED, "a cached page was told of");
    compare_components(w);
}

static void run(const config *cfg, uint64_t seed, uint64_t steps)
{
    static world w;
    world_init(&w, cfg, seed);
    for (w.step = 0; w.step < steps; w.step++) {
        uint32_t op = draw(&w, 100);
        draw_key(&w);
        w.m.now++;
        w.m.now_ns += draw(&w, 4);
        model_expire(&w.m);
        if (cfg->keeps && draw(&w, 8) == 0)
            step_keep(&w);
        else if ((cfg->window || cfg->states) && draw(&w, 16) == 0)
            step_evict_component(&w);
        else if (op < 33)
            step_insert(&w);
        else if (op < 36)
            step_match_batch(&w);
        else if (op < 70)
            step_match(&w, op >= 50);
        else if (op < 85)
            step_unlock(&w);
        else
            step_evict(&w, op == 99);
        compare(&w);
    }
    world_fini(&w);
}

TEST(page_size_1)
{
    run(&(config){1, 100, 0, 2}, test_seed(), test_scale(20000, 1000000));
    run(&(config){1, 200, 0, 3}, test_seed(), test_scale(2000, 500000));
}

TEST(page_size_2)
{
    run(&(config){2, 60, 0, 2}, test_seed(), test_scale(20000, 1000000));
}

TEST(page_size_16)
{
    run(&(config){16, 40, 0, 2}, test_seed(), test_scale(20000, 1000000));
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

/* The same steps over {full, window} and {full, window, state}. */
static void run_components(const config *cfg, uint64_t steps)
{
    config c = *cfg;
    c.window = cfg->page_size == 1 ? 5 : 2 * cfg->page_size + 1;
    c.window_pages = cfg->num_pages * 2 / 3;
    run(&c, test_seed(), steps);
    c.states = true;
    run(&c, test_seed() + 1, steps);
    c.window = c.window_pages = 0;
    run(&c, test_seed() + 2, steps / 4);
}

TEST(components_at_page_size_1)
{
    run_components(&(config){1, 100, 0, 2}, test_scale(20000, 1000000));
}

TEST(components_at_page_size_2)
{
    run_components(&(config){2, 60, 0, 2}, test_scale(20000, 1000000));
}

TEST(components_at_page_size_16)
{
    run_components(&(config){16, 40, 0, 2}, test_scale(20000, 1000000));
}

TEST(components_and_few_nodes)
{
    run_components(&(config){1, 100, 12, 2, .keeps = true}, test_scale(2000, 1000000));
    run_components(&(config){3, 60, 30, 3}, test_scale(2000, 1000000));
}

/* The pages are the engine's own; where nodes are few, inserts tell of what goes for them. */
TEST(an_engines_own_free_list)
{
    run(&(config){1, 100, 0, 2, .own = true}, test_told_seed(), test_scale(5000, 1000000));
    run(&(config){2, 60, 0, 2, .own = true}, test_seed(), test_scale(5000, 1000000));
    run(&(config){16, 40, 0, 2, .own = true}, test_seed(), test_scale(5000, 1000000));
    run(&(config){1, 100, 12, 2, .own = true, .keeps = true}, test_seed(),
        test_scale(2000, 1000000));
    run(&(config){3, 60, 30, 3, .own = true}, test_seed(), test_scale(2000, 1000000));
    for (uint32_t policy = 0; policy <= RAD_EVICT_USER; policy++)
        run(&(config){2, 60, 0, 2, policy, true, .own = true}, test_seed(),
            test_scale(300, 200000));
}

TEST(an_engines_own_free_list_with_windows)
{
    run_components(&(config){1, 100, 0, 2, .own = true}, test_scale(4000, 1000000));
    run_components(&(config){2, 60, 0, 2, .own = true}, test_scale(4000, 1000000));
    run_components(&(config){16, 40, 0, 2, .own = true}, test_scale(4000, 1000000));
    run_components(&(config){1, 100, 12, 2, .own = true, .keeps = true}, test_scale(1000, 1000000));
    run_components(&(config){3, 60, 30, 3, .own = true}, test_scale(1000, 1000000));
}

TEST(components_and_policies)
{
    for (uint32_t policy = 0; policy <= RAD_EVICT_USER; policy++) {
        run_components(&(config){1, 80, 0, 2, policy, true}, test_scale(300, 1000000));
        run_components(&(config){2, 50, 0, 2, policy, true}, test_scale(300, 1000000));
        run_components(&(config){16, 30, 0, 2, policy, true}, test_scale(300, 1000000));
    }
}

TEST_MAIN()
