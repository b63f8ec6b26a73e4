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
} entry;

typedef struct model {
    entry entries[PAGES];
    uint32_t count;
    uint32_t page_size;
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

/* The longest common front with any page that continues the first `length` elements. */
static uint32_t model_partial(const model *m, const int64_t *e, uint32_t n, uint32_t length)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        const entry *x = &m->entries[i];
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

static void run(uint32_t ps, bool eagle, uint32_t max_nodes, uint64_t steps)
{
    uint64_t seed = test_seed(), state = seed, stale = 0, went_on = 0;
    uint32_t copied = 0;
    static model m;
    static kept handles[HANDLES];
    m = (model){.page_size = ps};
    memset(handles, 0, sizeof handles);
    rad_kv_allocator *kv;
    rad_cache *cache;
    CHECK_OK(rad_kv_allocator_create(
        NULL, &(rad_kv_allocator_params){sizeof(rad_kv_allocator_params), PAGES, ps}, &kv, NULL));
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = ps,
                               .kv_allocator = kv,
                               .is_eagle = eagle,
                               .max_nodes = max_nodes,
                               .copy_slots = copy_slots,
                               .copy_user = &copied};
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    for (uint64_t step = 0; step < steps; step++) {
        rad_token tokens[MOST_TOKENS];
        rad_slot slots[MOST_TOKENS], got[MOST_TOKENS];
        int64_t e[MOST_TOKENS];
        uint32_t op = (uint32_t)(test_random(&state) % 10), prefix = 0;
        kept *h = &handles[test_random(&state) % HANDLES];
        uint32_t num = (uint32_t)(test_random(&state) % (ps < 4 ? 20 * ps : MOST_TOKENS));
        for (uint32_t i = 0; i < num; i++)
            tokens[i] = test_random(&state) % (2 * ps + 2) ? (rad_token)(i & 1)
                                                           : (rad_token)(test_random(&state) % 3);
        bool from_handle = op >= 3 && op < 5;
        if (from_handle) { /* the handle's key, and something behind it */
            uint32_t most = h->num_tokens + (uint32_t)(test_random(&state) % (2 * ps + 2));
            memcpy(tokens, h->tokens, h->num_tokens * sizeof *tokens);
            num = most < MOST_TOKENS ? most : MOST_TOKENS;
            for (uint32_t i = h->num_tokens; i < num; i++)
                tokens[i] = (rad_token)(test_random(&state) % 3);
        }
        rad_key key = {.tokens = tokens, .num_tokens = num};
        uint32_t n = elements(&key, eagle, e), want = model_match(&m, e, n);
        if (op < 5) { /* insert, from the root or from a handle */
            uint32_t start = from_handle ? h->handle.num_tokens : 0;
            uint32_t pages = n / ps > start / ps ? n / ps - start / ps : 0;
            rad_page page[MOST_TOKENS];
            if (rad_kv_alloc(kv, page, pages)) {
                CHECK_OK(rad_cache_evict(cache, (uint64_t)pages * ps, NULL));
                for (uint32_t i = m.count; i-- > 0;)
                    if (!rad_kv_is_taken(kv, m.entries[i].page))
                        m.entries[i] = m.entries[--m.count];
                CHECK_OK(rad_kv_alloc(kv, page, pages));
                want = model_match(&m, e, n);
            }
            for (uint32_t i = 0; i < pages * ps; i++)
                slots[i] = page[i / ps] * (rad_slot)ps + (rad_slot)(i % ps);
            rad_status status =
                from_handle
                    ? rad_cache_insert_from(cache, &h->handle, &key, slots, NULL, &prefix, NULL)
                    : rad_cache_insert(cache, &key, slots, NULL, &prefix, NULL);
            if (status) {
                CHECKF(status == RAD_FULL ? max_nodes != 0 : from_handle, "%s, seed %llu step %llu",
                       rad_status_name(status), (unsigned long long)seed, (unsigned long long)step);
                stale += status == RAD_E_STATE;
                CHECK_OK(rad_kv_free(kv, page, pages, NULL));
                if (from_handle) *h = (kept){0};
            } else {
                CHECKF(prefix == want || max_nodes, "insert: %u, want %u, seed %llu step %llu",
                       prefix, want, (unsigned long long)seed, (unsigned long long)step);
                CHECK_OK(rad_kv_free(kv, page, (prefix - start) / ps, NULL));
                went_on += from_handle && start > 0;
                for (uint32_t i = m.count; max_nodes && i-- > 0;) /* it may give up more */
                    if (!rad_kv_is_taken(kv, m.entries[i].page))
                        m.entries[i] = m.entries[--m.count];
                for (uint32_t end = prefix + ps; end <= n; end += ps) {
                    entry *x = &m.entries[m.count++];
                    CHECK(m.count <= PAGES);
                    *x = (entry){.length = end, .page = page[(end - start) / ps - 1]};
                    memcpy(x->elements, e, end * sizeof *e);
                }
                if (from_handle) {
                    CHECK(h->handle.num_tokens == n / ps * ps);
                    h->num_tokens = n < ps ? 0 : n / ps * ps + eagle;
                    memcpy(h->tokens, tokens, h->num_tokens * sizeof *tokens);
                }
            }
        } else if (op < 8) { /* match, in all its forms */
            rad_match match, peek;
            rad_match_handle handle;
            rad_page_span spans[MOST_TOKENS];
            uint32_t count, at = 0, partial = model_partial(&m, e, n, want);
            CHECK_OK(rad_cache_match_handle(cache, &key, &handle));
            CHECK_OK(rad_cache_lookup(cache, &key, &peek));
            CHECKF(handle.num_tokens == want && peek.prefix_tokens == want,
                   "handle %u, lookup %u, want %u, seed %llu step %llu", handle.num_tokens,
                   peek.prefix_tokens, want, (unsigned long long)seed, (unsigned long long)step);
            CHECK(peek.partial_tokens == (ps > 1 ? partial : 0));
            CHECK_OK(rad_match_handle_slots(cache, &handle, 0, want, got));
            for (uint32_t i = 0; i < want; i++)
                CHECK(got[i] ==
                      find(&m, e, (i / ps + 1) * ps)->page * (rad_slot)ps + (rad_slot)(i % ps));
            CHECK_OK(rad_cache_match_spans(cache, &key, spans, MOST_TOKENS, &count, &match));
            CHECK(match.prefix_tokens == want && match.partial_tokens == peek.partial_tokens);
            for (uint32_t s = 0; s < count; s++) {
                CHECK(spans[s].first_token == at * ps);
                for (uint32_t k = 0; k < spans[s].num_pages; k++, at++)
                    CHECK(spans[s].pages[k] * (rad_slot)ps == got[at * ps]);
            }
            CHECK(at * ps == want);
            if (ps > 1 && rad_kv_available_pages(kv)) {
                copied = 0;
                CHECK_OK(rad_cache_reuse_partial(cache, &key, &match, slots, &count));
                CHECK(count == partial && copied == partial);
                CHECK_OK(rad_kv_free_slots(kv, slots, count, NULL));
            }
            CHECK_OK(rad_match_handle_slots(cache, &handle, 0, want, slots)); /* still good */
            uint32_t common;
            if (!rad_match_handle_common(cache, &handle, &h->handle, &common)) {
                rad_key other = {.tokens = h->tokens, .num_tokens = h->num_tokens};
                int64_t f[MOST_TOKENS];
                uint32_t len = elements(&other, eagle, f), same = 0;
                while (same < len && same < want && e[same] == f[same])
                    same++;
                CHECKF(common == same / ps * ps, "common: %u, want %u, seed %llu step %llu", common,
                       same / ps * ps, (unsigned long long)seed, (unsigned long long)step);
            }
            h->handle = handle;
            h->num_tokens = want ? want + eagle : 0;
            memcpy(h->tokens, tokens, h->num_tokens * sizeof *tokens);
        } else { /* evict a little */
            CHECK_OK(rad_cache_evict(cache, test_random(&state) % (4 * ps), NULL));
            for (uint32_t i = m.count; i-- > 0;)
                if (!rad_kv_is_taken(kv, m.entries[i].page)) m.entries[i] = m.entries[--m.count];
        }
        rad_error err = {0};
        uint64_t all;
        CHECKF(rad_cache_check(cache, &err) == RAD_OK, "%s, seed %llu step %llu", err.text,
               (unsigned long long)seed, (unsigned long long)step);
        CHECK_OK(rad_cache_all_values_flatten(cache, NULL, 0, &all));
        CHECKF(all == (uint64_t)m.count * ps && rad_kv_available_pages(kv) + m.count == PAGES,
               "%llu cached, want %u pages, seed %llu step %llu", (unsigned long long)all, m.count,
               (unsigned long long)seed, (unsigned long long)step);
    }
    CHECKF(went_on > 0 && stale > 0, "%llu cursors went on, %llu were stale, seed %llu",
           (unsigned long long)went_on, (unsigned long long)stale, (unsigned long long)seed);
    rad_cache_destroy(cache);
    rad_kv_allocator_destroy(kv);
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

TEST_MAIN()
