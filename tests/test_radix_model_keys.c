/* test_radix_model_keys.c - bigram keys, cursors, handles, spans and partial pages against
 * a list of prefixes.
 *
 * The model is a list with an entry for each cached page: all elements up to its end, as
 * pairs under bigram keys, written out. Matching is "how many prefixes are in the list".
 * The tree evicts as it likes here (its order is test_radix_model.c's matter): after an
 * eviction the model forgets the pages that the allocator has back. */
#include "test.h"

#include <radish/cache_dump.h>
#include <radish/match_handle.h>
#include <radish/partial_page.h>

enum { PAGES = 64, MOST_TOKENS = 66, HANDLES = 6 };

typedef struct entry {
    uint32_t length; /* elements of the prefix that ends with this page */
    int64_t elements[MOST_TOKENS];
    rad_page page;
    bool window; /* has a window side */
} entry;

typedef struct model {
    entry entries[PAGES];
    uint32_t count;
    uint32_t page_size;
    uint32_t window; /* pages; 0: there are none */
} model;

/* The key's elements, materialised. */
static uint32_t elements(const rad_key *key, bool eagle, int64_t *out)
{
    if (!eagle) {
        for (uint32_t i = 0; i < key->num_tokens; i++)
            out[i] = key->tokens[i];
        return key->num_tokens;
    }
    for (uint32_t i = 0; i + 1 < key->num_tokens; i++)
        out[i] = (int64_t)key->tokens[i] << 32 | key->tokens[i + 1];
    return key->num_tokens ? key->num_tokens - 1 : 0;
}

static const entry *find(const model *m, const int64_t *e, uint32_t length)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->entries[i].length == length &&
            memcmp(m->entries[i].elements, e, length * sizeof *e) == 0)
            return &m->entries[i];
    return NULL;
}

static uint32_t model_match(const model *m, const int64_t *e, uint32_t n)
{
    uint32_t length = 0;
    while (length + m->page_size <= n && find(m, e, length + m->page_size))
        length += m->page_size;
    return length;
}

/* How far a match goes: the window before its end must be there. */
static uint32_t model_usable(const model *m, const int64_t *e, uint32_t n)
{
    uint32_t length = model_match(m, e, n), ps = m->page_size;
    for (uint32_t i = 0, end = length; i < m->window && end; i++, end -= ps)
        if (!find(m, e, end)->window) return end > ps ? model_usable(m, e, end - 1) : 0;
    return length;
}

/* The longest common front with any page that continues the first `length` elements. */
static uint32_t model_partial(const model *m, const int64_t *e, uint32_t n, uint32_t length)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        const entry *x = &m->entries[i];
        if (m->window && !x->window) continue;
        if (x->length != length + m->page_size || memcmp(x->elements, e, length * sizeof *e) != 0)
            continue;
        uint32_t k = 0;
        while (k < m->page_size && length + k < n && x->elements[length + k] == e[length + k])
            k++;
        best = k > best ? k : best;
    }
    return best;
}

static rad_status copy_slots(void *user, rad_slot from, rad_slot to, uint32_t count)
{
    uint32_t *copied = user;
    CHECK(from != to && count > 0);
    *copied = count;
    return RAD_OK;
}

typedef struct kept {
    rad_match_handle handle;
    rad_token tokens[MOST_TOKENS];
    uint32_t num_tokens;
} kept;

/* A cache beside its model, and the step that both are in. */
typedef struct world {
    model m;
    uint32_t ps, max_nodes;
    bool eagle;
    rad_kv_allocator *kv;
    rad_cache *cache;
    uint32_t copied;
    kept handles[HANDLES];
    uint64_t seed, dice, step, stale, went_on;
    rad_token tokens[MOST_TOKENS]; /* the step's key: */
    rad_key key;
    int64_t e[MOST_TOKENS]; /* its n elements, of which the model has `have`, and can use `want` */
    uint32_t n, have, want;
} world;

static uint32_t draw(world *w, uint32_t sides)
{
    return (uint32_t)(test_random(&w->dice) % sides);
}

static void same(const world *w, const char *what, uint64_t got, uint64_t want)
{
    CHECKF(got == want, "%s: %llu, want %llu, seed %llu step %llu\n", what, (unsigned long long)got,
           (unsigned long long)want, (unsigned long long)w->seed, (unsigned long long)w->step);
}

/* A key of its own or, `from` a handle, that one's with something behind it. */
static void draw_key(world *w, const kept *from)
{
    uint32_t num = draw(w, w->ps < 4 ? 20 * w->ps : MOST_TOKENS);
    for (uint32_t i = 0; i < num; i++)
        w->tokens[i] = draw(w, 2 * w->ps + 2) ? (rad_token)(i & 1) : (rad_token)draw(w, 3);
    if (from) {
        uint32_t most = from->num_tokens + draw(w, 2 * w->ps + 2);
        memcpy(w->tokens, from->tokens, from->num_tokens * sizeof *w->tokens);
        num = most < MOST_TOKENS ? most : MOST_TOKENS;
        for (uint32_t i = from->num_tokens; i < num; i++)
            w->tokens[i] = (rad_token)draw(w, 3);
    }
    w->key = (rad_key){.tokens = w->tokens, .num_tokens = num};
    w->n = elements(&w->key, w->eagle, w->e);
    w->have = model_match(&w->m, w->e, w->n);
    w->want = model_usable(&w->m, w->e, w->n);
}

static void forget_what_is_free(world *w)
{
    for (uint32_t i = w->m.count; i-- > 0;)
        if (!rad_kv_is_taken(w->kv, w->m.entries[i].page))
            w->m.entries[i] = w->m.entries[--w->m.count];
}

/* From the root, or from a handle. */
static void step_insert(world *w, kept *from)
{
    uint32_t ps = w->ps, n = w->n, start = from ? from->handle.num_tokens : 0;
    uint32_t pages = n / ps > start / ps ? n / ps - start / ps : 0;
    rad_page page[MOST_TOKENS];
    rad_slot slots[MOST_TOKENS];
    rad_inserted in;
    if (rad_kv_alloc(w->kv, page, pages)) {
        CHECK_OK(rad_cache_evict(w->cache, (uint64_t)pages * ps, NULL, NULL));
        forget_what_is_free(w);
        CHECK_OK(rad_kv_alloc(w->kv, page, pages));
        w->have = model_match(&w->m, w->e, n);
    }
    for (uint32_t i = 0; i < pages * ps; i++)
        slots[i] = page[i / ps] * (rad_slot)ps + (rad_slot)(i % ps);
    rad_status status =
        from ? rad_cache_insert_from(w->cache, &from->handle, &w->key, slots, NULL, &in, NULL)
             : rad_cache_insert(w->cache, &w->key, slots, NULL, &in, NULL);
    uint32_t prefix = in.prefix_tokens;
    if (status) {
        CHECKF(status == RAD_FULL ? w->max_nodes != 0 : from != NULL, "%s, seed %llu step %llu\n",
               rad_status_name(status), (unsigned long long)w->seed, (unsigned long long)w->step);
        w->stale += status == RAD_E_STATE;
        CHECK_OK(rad_kv_free(w->kv, page, pages, NULL));
        if (from) *from = (kept){0};
        return;
    }
    if (!w->max_nodes) same(w, "insert", prefix, w->have);
    for (uint32_t end = start + ps; end <= prefix; end += ps) {
        const entry *x = find(&w->m, w->e, end);
        CHECK(x);
        w->m.entries[x - w->m.entries].window = true; /* the one it came with stays */
    }
    CHECK_OK(rad_kv_free(w->kv, page, (prefix - start) / ps, NULL));
    w->went_on += from && start > 0;
    if (w->max_nodes) forget_what_is_free(w); /* it may give up more */
    for (uint32_t end = prefix + ps; end <= n; end += ps) {
        entry *x = &w->m.entries[w->m.count++];
        CHECK(w->m.count <= PAGES);
        *x = (entry){.length = end, .page = page[(end - start) / ps - 1], .window = true};
        memcpy(x->elements, w->e, end * sizeof *w->e);
    }
    if (!from) return;
    CHECK(from->handle.num_tokens == n / ps * ps);
    from->num_tokens = n < ps ? 0 : n / ps * ps + w->eagle;
    memcpy(from->tokens, w->tokens, from->num_tokens * sizeof *w->tokens);
}

/* As spans, and what of a page behind them can be copied. */
static void check_spans(world *w, const rad_slot *got)
{
    rad_match match;
    rad_page_span spans[MOST_TOKENS];
    rad_slot slots[MOST_TOKENS];
    uint32_t count, at = 0, partial = model_partial(&w->m, w->e, w->n, w->want);
    CHECK_OK(rad_cache_match_spans(w->cache, &w->key, spans, MOST_TOKENS, &count, &match));
    same(w, "spans", match.prefix_tokens, w->want);
    same(w, "partial", match.partial_tokens, w->ps > 1 ? partial : 0);
    for (uint32_t s = 0; s < count; s++) {
        CHECK(spans[s].first_token == at * w->ps);
        for (uint32_t k = 0; k < spans[s].num_pages; k++, at++)
            CHECK(spans[s].pages[k] * (rad_slot)w->ps == got[at * w->ps]);
    }
    CHECK(at * w->ps == w->want);
    if (w->ps == 1 || !rad_kv_available_pages(w->kv)) return;
    w->copied = 0;
    CHECK_OK(rad_cache_reuse_partial(w->cache, &w->key, &match, slots, &count));
    CHECK(count == partial && w->copied == partial);
    CHECK_OK(rad_kv_free_slots(w->kv, slots, count, NULL));
}

/* In all forms of a match; the handle is kept instead of *h. */
static void step_match(world *w, kept *h)
{
    rad_match peek;
    rad_match_handle handle;
    rad_slot got[MOST_TOKENS];
    uint32_t common;
    CHECK_OK(rad_cache_match_handle(w->cache, &w->key, &handle));
    CHECK_OK(rad_cache_lookup(w->cache, &w->key, &peek));
    same(w, "handle", handle.num_tokens, w->want);
    same(w, "lookup", peek.prefix_tokens, w->want);
    same(w, "partial", peek.partial_tokens,
         w->ps > 1 ? model_partial(&w->m, w->e, w->n, w->want) : 0);
    CHECK_OK(rad_match_handle_slots(w->cache, &handle, 0, w->want, got));
    for (uint32_t i = 0; i < w->want; i++)
        CHECK(got[i] == find(&w->m, w->e, (i / w->ps + 1) * w->ps)->page * (rad_slot)w->ps +
                            (rad_slot)(i % w->ps));
    check_spans(w, got);
    CHECK_OK(rad_match_handle_slots(w->cache, &handle, 0, w->want, got)); /* still good */
    if (!rad_match_handle_common(w->cache, &handle, &h->handle, &common)) {
        rad_key other = {.tokens = h->tokens, .num_tokens = h->num_tokens};
        int64_t f[MOST_TOKENS];
        uint32_t len = elements(&other, w->eagle, f), both = 0;
        while (both < len && both < w->want && w->e[both] == f[both])
            both++;
        same(w, "common", common, both / w->ps * w->ps);
    }
    h->handle = handle;
    h->num_tokens = w->want ? w->want + w->eagle : 0;
    memcpy(h->tokens, w->tokens, h->num_tokens * sizeof *w->tokens);
}

static void compare(const world *w)
{
    rad_error err = {0};
    uint64_t all;
    CHECKF(rad_cache_check(w->cache, &err) == RAD_OK, "%s, seed %llu step %llu\n", err.text,
           (unsigned long long)w->seed, (unsigned long long)w->step);
    CHECK_OK(rad_cache_all_values_flatten(w->cache, NULL, 0, &all));
    same(w, "cached", all, (uint64_t)w->m.count * w->ps);
    same(w, "taken", PAGES - rad_kv_available_pages(w->kv), w->m.count);
}

static void evict_windows(world *w)
{
    CHECK_OK(rad_cache_evict_window(w->cache, draw(w, 12 * w->ps), NULL));
    for (uint32_t i = 0; i < w->m.count; i++)
        w->m.entries[i].window = rad_kv_has_window(w->kv, w->m.entries[i].page);
}

static void run_windows(uint32_t ps, bool eagle, uint32_t max_nodes, uint32_t window,
                        uint64_t steps)
{
    static world w;
    w = (world){.m = {.page_size = ps, .window = (window + ps - 1) / ps},
                .ps = ps,
                .eagle = eagle,
                .max_nodes = max_nodes};
    w.seed = w.dice = test_seed();
    CHECK_OK(rad_kv_allocator_create(
        NULL,
        &(rad_kv_allocator_params){.struct_size = sizeof(rad_kv_allocator_params),
                                   .num_pages = PAGES,
                                   .page_size = ps,
                                   .swa_num_pages = window ? PAGES : 0},
        &w.kv, NULL));
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = ps,
                               .kv_allocator = w.kv,
                               .is_eagle = eagle,
                               .max_nodes = max_nodes,
                               .window_tokens = window,
                               .copy_slots = copy_slots,
                               .copy_user = &w.copied};
    CHECK_OK(rad_cache_create(NULL, &params, &w.cache, NULL));
    for (; w.step < steps; w.step++) {
        uint32_t op = draw(&w, 10);
        kept *h = &w.handles[draw(&w, HANDLES)];
        kept *from = op >= 3 && op < 5 ? h : NULL;
        draw_key(&w, from);
        if (op < 5) {
            step_insert(&w, from);
        } else if (op < 8) {
            step_match(&w, h);
        } else if (window && draw(&w, 2)) {
            evict_windows(&w);
        } else { /* evict a little */
            CHECK_OK(rad_cache_evict(w.cache, draw(&w, 4 * ps), NULL, NULL));
            forget_what_is_free(&w);
        }
        compare(&w);
    }
    CHECKF(w.went_on > 0 && (w.stale > 0 || window),
           "%llu cursors went on, %llu were stale, seed %llu\n", (unsigned long long)w.went_on,
           (unsigned long long)w.stale, (unsigned long long)w.seed);
    rad_cache_destroy(w.cache);
    rad_kv_allocator_destroy(w.kv);
}

static void run(uint32_t ps, bool eagle, uint32_t max_nodes, uint64_t steps)
{
    run_windows(ps, eagle, max_nodes, 0, steps);
}

TEST(plain_keys)
{
    run(1, false, 0, test_scale(4000, 1000000));
    run(2, false, 0, test_scale(3000, 1000000));
    run(16, false, 0, test_scale(3000, 1000000));
}

TEST(bigram_keys)
{
    run(1, true, 0, test_scale(4000, 1000000));
    run(2, true, 0, test_scale(3000, 1000000));
    run(16, true, 0, test_scale(3000, 1000000));
}

TEST(few_nodes)
{
    run(1, false, 6, test_scale(3000, 1000000));
    run(2, true, 5, test_scale(3000, 1000000));
    run(16, true, 4, test_scale(3000, 1000000));
}

TEST(all_of_them_with_windows)
{
    run_windows(1, false, 0, 4, test_scale(2000, 1000000));
    run_windows(2, false, 0, 5, test_scale(2000, 1000000));
    run_windows(16, false, 0, 16, test_scale(2000, 1000000));
    run_windows(1, true, 0, 4, test_scale(2000, 1000000));
    run_windows(2, true, 0, 5, test_scale(2000, 1000000));
    run_windows(16, true, 0, 16, test_scale(2000, 1000000));
}

TEST_MAIN()
