/* fuzz_cache.c - a byte stream as a life of the cache, misuse included.
 *
 * The first bytes choose page size, limits, bigrams, partial pages, whether the cache has the
 * allocator or only tells of pages (free_list.h), and what is written down
 * beside them (events, hashes, evicted pages); then each byte is an operation and the next ones
 * its arguments. After each operation the cache checks itself, and each slot must be free,
 * cached or ours; who counts the events must arrive at what is cached. What is misuse (a stale
 * name, a receipt handed back twice, pages that are not ours, a foreign slot) must be refused. */
#include <radish/cache_dump.h>
#include <radish/explain.h>
#include <radish/kv_events.h>
#include <radish/match_handle.h>
#include <radish/partial_page.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem/kv_window.h"

enum { PAGES = 48, MOST_TOKENS = 128, LOCKS = 4, REQS = 3, HANDLES = 4 };

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

typedef struct world {
    const uint8_t *at;
    const uint8_t *end;
    uint32_t window; /* tokens; 0: there are none */
    uint32_t ps;
    uint32_t eagle;
    uint32_t few_nodes;
    rad_kv_allocator *kv; /* with `tells` it is ours alone, and there are no requests */
    bool tells;
    rad_req_to_token_pool *rows;
    rad_cache *cache;
    rad_receipt locks[LOCKS];
    rad_receipt returned; /* given back once already */
    rad_match_handle handles[HANDLES];
    rad_req_kv reqs[REQS];
    rad_token req_tokens[REQS][MOST_TOKENS];
    bool events, hashes;
    bool lost;       /* a gap in the events: ask for all of it */
    uint64_t blocks; /* cached, as the events tell it */
} world;

static uint32_t byte(world *w)
{
    return w->at < w->end ? *w->at++ : 0;
}

static rad_status copy_slots(void *user, rad_slot from, rad_slot to, uint32_t count)
{
    world *w = user;
    MUST(from % (rad_slot)w->ps == 0 && to % (rad_slot)w->ps == 0 && count < w->ps + 1);
    MUST(rad_kv_is_taken(w->kv, from / (rad_slot)w->ps));
    MUST(rad_kv_is_taken(w->kv, to / (rad_slot)w->ps) && from != to);
    return count % 7 == 6 ? RAD_E_IO : RAD_OK;
}

static void free_pages(void *user, const rad_page *pages, uint32_t count)
{
    world *w = user;
    MUST(count && !rad_kv_free(w->kv, pages, count, NULL));
}

static void free_windows(void *user, const rad_page *pages, uint32_t count)
{
    world *w = user;
    for (uint32_t i = 0; i < count; i++)
        MUST(rad_kv_has_window(w->kv, pages[i]));
    MUST(count && !rad_kv_free_window(w->kv, pages, count, NULL));
}

static void move_window(void *user, rad_page from, rad_page to)
{
    world *w = user;
    MUST(rad_kv_is_taken(w->kv, from) && rad_kv_has_window(w->kv, from));
    MUST(rad_kv_is_taken(w->kv, to) && !rad_kv_has_window(w->kv, to));
    kv_window_move(w->kv, from, to);
}

/* Tokens that share, diverge and repeat: one byte says how many, one how they go. */
static rad_key key(world *w, rad_token tokens[MOST_TOKENS])
{
    static const char *salts[] = {NULL, "", "a", "b"};
    uint32_t shape = byte(w), turn = byte(w), n = byte(w) % MOST_TOKENS;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = i < turn % MOST_TOKENS ? (rad_token)(i & 1) : (rad_token)(shape >> (i & 7) & 1);
    return (rad_key){.tokens = tokens,
                     .num_tokens = n,
                     .cache_salt = salts[turn >> 6 & shape & 3],
                     .extra_key = shape == 77 ? "lora" : NULL};
}

/* Pages carry no name: what one holder of a page passes for its own, nobody can tell. */
static bool is_a_requests(world *w, rad_slot slot)
{
    for (int i = 0; i < REQS; i++) {
        const rad_req_kv *r = &w->reqs[i];
        if (!r->row) continue;
        const rad_slot *row = rad_req_to_token_row(w->rows, r->row);
        for (uint32_t at = r->protected_len; at < r->allocated_len; at++)
            if (row[at] / (rad_slot)w->ps == slot / (rad_slot)w->ps) return true;
    }
    return false;
}

static void insert(world *w, rad_match_handle *from)
{
    rad_token tokens[MOST_TOKENS];
    rad_slot slots[MOST_TOKENS];
    rad_page pages[MOST_TOKENS];
    rad_key k = key(w, tokens);
    uint32_t ps = w->ps, start = from ? from->num_tokens : 0, misuse = byte(w);
    uint32_t length = k.num_tokens > w->eagle ? k.num_tokens - w->eagle : 0;
    if (start > length || start % ps) start = length;
    uint32_t num = (length - start) / ps;
    if (rad_kv_alloc(w->kv, pages, num)) return;
    for (uint32_t i = 0; i < num * ps; i++)
        slots[i] = pages[i / ps] * (rad_slot)ps + (rad_slot)(i % ps);
    for (uint32_t i = num * ps; i < k.num_tokens; i++)
        slots[i] = -1;
    bool foreign = misuse == 7 && num;
    rad_slot other = (rad_slot)byte(w) - 3; /* free, cached, or none */
    foreign = foreign && !is_a_requests(w, other);
    for (uint32_t i = 0; i < num; i++)
        foreign = foreign && pages[i] != other / (rad_slot)ps;
    if (w->tells) /* which pages are free it is not told */
        foreign = foreign &&
                  (other < 0 || other / (rad_slot)ps > PAGES ||
                   (other >= (rad_slot)ps && rad_kv_is_taken(w->kv, other / (rad_slot)ps)));
    if (foreign) slots[(num - 1) * ps] = other;
    rad_insert_params params = {.priority = (int32_t)misuse - 100, .chunked = misuse & 1};
    uint64_t before = rad_cache_total_size(w->cache);
    rad_inserted in;
    rad_status status = from ? rad_cache_insert_from(w->cache, from, &k, slots, &params, &in, NULL)
                             : rad_cache_insert(w->cache, &k, slots, &params, &in, NULL);
    uint32_t prefix = in.prefix_tokens;
    if (status) {
        MUST(status == RAD_FULL ? w->few_nodes : from || foreign);
        MUST(status != RAD_FULL || rad_cache_total_size(w->cache) <= before);
        MUST(!rad_kv_free(w->kv, pages, num, NULL));
        return;
    }
    MUST(prefix % ps == 0 && prefix >= start && prefix <= length);
    rad_node_info info = {.struct_size = sizeof info};
    MUST(!rad_cache_get_node_info(w->cache, in.node, &info, NULL));
    MUST(info.depth_tokens == length / ps * ps && info.on_device == (length >= ps));
    uint32_t dup = (prefix - start) / ps;
    MUST(!rad_kv_free(w->kv, pages, dup < num ? dup : num, NULL));
    MUST(!foreign || dup >= num);
}

static void match(world *w)
{
    rad_token tokens[MOST_TOKENS];
    rad_slot slots[MOST_TOKENS], again[MOST_TOKENS], mine[MOST_TOKENS];
    rad_page_span spans[8];
    rad_match peek, m, m2;
    rad_match_handle h;
    uint32_t count, how = byte(w), l = byte(w) % LOCKS;
    rad_key k = key(w, tokens);
    MUST(!rad_cache_lookup(w->cache, &k, &peek));
    MUST(!rad_cache_match_handle(w->cache, &k, &h));
    MUST(!rad_match_handle_slots(w->cache, &h, 0, h.num_tokens, again));
    MUST(!rad_cache_match_prefix(w->cache, &k, slots, &m, NULL));
    MUST(peek.prefix_tokens == m.prefix_tokens && h.num_tokens == m.prefix_tokens);
    MUST(peek.partial_tokens == m.partial_tokens && m.partial_tokens < w->ps + 1);
    MUST(memcmp(slots, again, m.prefix_tokens * sizeof *slots) == 0);
    for (uint32_t i = 0; i < m.prefix_tokens; i += w->ps)
        MUST(rad_kv_is_taken(w->kv, slots[i] / (rad_slot)w->ps));
    MUST(!rad_cache_match_spans(w->cache, &k, spans, 8, &count, &m2));
    MUST(m2.prefix_tokens == m.prefix_tokens);
    for (uint32_t i = 0; i < count && i < 8; i++)
        for (uint32_t p = 0; p < spans[i].num_pages; p++)
            MUST(spans[i].pages[p] * (rad_slot)w->ps == slots[spans[i].first_token + p * w->ps]);
    MUST(!rad_cache_match_batch(w->cache, (rad_key[]){k, k}, 2, NULL, (rad_match[2]){0}, NULL));
    w->handles[how % HANDLES] = h;
    if (how & 8 && !w->locks[l].held)
        MUST(!rad_cache_inc_lock_ref(w->cache, m2.last_node, &w->locks[l], NULL));
    if (how & 16 && w->ps > 1) {
        rad_status status = rad_cache_reuse_partial(w->cache, &k, &m2, mine, &count);
        if (!status && count) MUST(!rad_kv_free_slots(w->kv, mine, count, NULL));
    }
}

static void unlock(world *w)
{
    uint32_t pick = byte(w), l = pick % LOCKS;
    if (pick & 128) { /* the same receipt twice, or one that was never issued */
        rad_receipt copy = {.node = {byte(w), byte(w)}, .held = pick & 1};
        if (pick & 64) copy = w->returned;
        if (pick & 32) copy.held = 0;
        bool held = false; /* a forged one may be right: then it is a lock of ours */
        for (int i = 0; i < LOCKS; i++)
            held |= w->locks[i].held;
        for (int i = 0; i < REQS; i++)
            held |= w->reqs[i].lock.held;
        if (!held && copy.node.index)
            MUST(rad_cache_dec_lock_ref(w->cache, &copy, NULL) == RAD_E_STATE);
        return;
    }
    rad_receipt copy = w->locks[l];
    MUST(rad_cache_dec_lock_ref(w->cache, &w->locks[l], NULL) ==
         (copy.held ? RAD_OK : RAD_E_STATE));
    if (copy.held) w->returned = copy;
}

static void request(world *w)
{
    uint32_t pick = byte(w), i = pick % REQS;
    rad_req_kv *r = &w->reqs[i];
    rad_error err;
    if (w->tells) return;
    if (!r->row) {
        rad_slot slots[MOST_TOKENS];
        rad_match m;
        rad_row row;
        if (rad_req_to_token_alloc(w->rows, &row)) return;
        r->row = row;
        r->key = key(w, w->req_tokens[i]);
        MUST(!rad_cache_match_prefix(w->cache, &r->key, slots, &m, NULL));
        MUST(!rad_cache_inc_lock_ref(w->cache, m.last_node, &r->lock, NULL));
        memcpy(rad_req_to_token_row(w->rows, row), slots, m.prefix_tokens * sizeof *slots);
        r->protected_len = r->committed_len = r->allocated_len = m.prefix_tokens;
        return;
    }
    rad_slot *row = rad_req_to_token_row(w->rows, r->row);
    uint32_t op = pick >> 2 & 7, left = r->key.num_tokens - r->allocated_len;
    if (op < 3 && left) {
        uint32_t from = r->allocated_len, to = from + 1 + byte(w) % left;
        rad_slot last = from ? row[from - 1] : -1;
        if (rad_kv_alloc_extend(w->kv, 1, &from, &to, &last, row + from, NULL)) return;
        r->allocated_len = to;
        r->committed_len = pick & 64 ? to : from + (to - from) / 2;
        if (r->committed_len < r->protected_len) r->committed_len = r->protected_len;
    } else if (op < 5) {
        rad_status status = rad_cache_unfinished_req(w->cache, r, pick >> 7, NULL);
        MUST(!status || (status == RAD_FULL && w->few_nodes));
    } else if (op == 5) { /* a record that is wrong changes nothing */
        rad_req_kv wrong = *r;
        uint32_t what = byte(w) % 5;
        if (what == 0) wrong.committed_len = wrong.allocated_len + 1;
        if (what == 1) wrong.lock.node.generation += 2;
        if (what == 2) wrong.row = 99;
        if (what == 3) wrong.allocated_len = 100000;
        if (what == 4) wrong.protected_len = wrong.allocated_len + w->ps;
        if (what == 1 && !wrong.lock.node.index) return;
        MUST(rad_cache_finished_req(w->cache, &wrong, 1, &err) < 0 && err.text[0]);
    } else {
        MUST(!rad_cache_finished_req(w->cache, r, op == 6, NULL));
    }
    if (w->window && r->row && pick & 32 && r->committed_len > w->window)
        MUST(!rad_cache_release_window(w->cache, r, r->committed_len - w->window, NULL));
}

static void evict(world *w)
{
    uint32_t tokens = byte(w);
    uint64_t done, there = rad_cache_window_evictable_size(w->cache);
    if (!w->window || tokens & 1) {
        MUST(!rad_cache_evict(w->cache, tokens, NULL, NULL));
        return;
    }
    MUST(!rad_cache_evict_window(w->cache, tokens, &done));
    MUST(done <= there && (done >= tokens || done == there));
}

static void misuse(world *w)
{
    rad_error err = {0};
    rad_page page = (rad_page)byte(w) - 5;
    uint32_t common;
    rad_slot slot;
    rad_receipt receipt;
    rad_match_handle forged = w->handles[byte(w) % HANDLES];
    if (!rad_kv_is_taken(w->kv, page)) {
        MUST(rad_kv_free(w->kv, &page, 1, &err) == RAD_E_STATE && err.text[0]);
        MUST(rad_kv_free(w->kv, (rad_page[]){page, page}, 2, &err) == RAD_E_STATE);
    }
    MUST(rad_cache_inc_lock_ref(w->cache, (rad_ref){byte(w), 2 * byte(w)}, &receipt, NULL) !=
             RAD_OK ||
         (!receipt.node.index && receipt.held));
    forged.node.index += byte(w) % 3;
    forged.num_tokens += byte(w) % 3 * w->ps;
    rad_node_info info = {.struct_size = sizeof info};
    rad_status told = rad_cache_get_node_info(w->cache, forged.node, &info, NULL);
    MUST(told == RAD_OK || told == RAD_E_STATE);
    rad_status status =
        rad_match_handle_slots(w->cache, &forged, 0, forged.num_tokens ? 1 : 0, &slot);
    MUST(status == RAD_OK || status == RAD_E_STATE);
    status = rad_match_handle_common(w->cache, &forged, &w->handles[0], &common);
    MUST(status == RAD_E_STATE || (status == RAD_OK && common <= forged.num_tokens));
}

static rad_status swallow(void *user, const char *text, size_t bytes)
{
    (void)text;
    *(size_t *)user += bytes;
    return RAD_OK;
}

static void count_event(void *user, const rad_kv_event *e)
{
    world *w = user;
    if (e->type == RAD_KV_STORED) {
        MUST(e->num_token_ids == e->num_blocks * w->ps * (1 + w->eagle));
        w->blocks += e->num_blocks;
    } else if (e->type == RAD_KV_REMOVED) {
        MUST(w->lost || w->blocks >= e->num_blocks);
        w->blocks -= e->num_blocks;
    } else if (e->type == RAD_KV_CLEARED) {
        w->blocks = 0;
        w->lost = false;
    } else {
        w->lost = true;
    }
}

/* What was written down agrees with what is there. */
static void listen(world *w)
{
    static rad_page_hash hashes[MOST_TOKENS];
    rad_token tokens[MOST_TOKENS];
    rad_explanation e;
    rad_match m;
    uint32_t count;
    rad_key k = key(w, tokens);
    MUST(!rad_cache_lookup(w->cache, &k, &m));
    MUST(!rad_cache_explain(w->cache, &k, &e) && e.prefix_tokens == m.prefix_tokens);
    rad_status status = rad_cache_get_page_hashes(w->cache, &k, hashes, MOST_TOKENS, &count);
    MUST(status == (w->hashes ? RAD_OK : RAD_E_STATE));
    MUST(status || count * w->ps == m.prefix_tokens || w->window);
    status = rad_cache_take_events(w->cache, count_event, w);
    MUST(status == (w->events ? RAD_OK : RAD_E_STATE));
    if (w->lost) MUST(!rad_cache_snapshot_events(w->cache, count_event, w));
    MUST(!w->events || w->blocks * w->ps == rad_cache_total_size(w->cache));
}

static void look(world *w)
{
    if (byte(w) & 1) {
        listen(w);
        return;
    }
    rad_slot slots[PAGES * 16];
    size_t bytes = 0;
    uint64_t count;
    MUST(!rad_cache_dump(w->cache, byte(w) & 1, swallow, &bytes) && bytes);
    MUST(!rad_cache_all_values_flatten(w->cache, slots, sizeof slots / sizeof *slots, &count));
    MUST(count == rad_cache_total_size(w->cache));
}

static void check(world *w)
{
    rad_error err = {0};
    const rad_req_kv *reqs[REQS];
    for (int i = 0; i < REQS; i++)
        reqs[i] = &w->reqs[i];
    if (rad_cache_check(w->cache, &err) || rad_cache_check_ownership(w->cache, reqs, REQS, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    if (!w->tells) return;
    uint64_t cached = rad_cache_total_size(w->cache) / w->ps, windows = 0;
    MUST(rad_kv_available_pages(w->kv) + cached == PAGES);
    for (rad_page page = 1; page <= PAGES; page++)
        windows += rad_kv_has_window(w->kv, page) != 0;
    MUST(windows * w->ps ==
         rad_cache_window_evictable_size(w->cache) + rad_cache_window_protected_size(w->cache));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t page_sizes[] = {1, 2, 3, 4, 16};
    world w = {.at = data, .end = data + size};
    uint32_t shape = byte(&w), limits = byte(&w);
    w.ps = page_sizes[shape % 5];
    w.eagle = shape >> 3 & 1;
    w.few_nodes = limits & 3 ? limits % 20 + 1 : 0;
    w.window = limits & 32 ? 1 + limits % 7 : 0;
    w.tells = shape >> 4 == 10 || shape >> 4 == 6;
    rad_kv_allocator_params kv = {.struct_size = sizeof kv,
                                  .num_pages = PAGES,
                                  .page_size = w.ps,
                                  .need_sort = shape >> 7,
                                  .swa_num_pages = w.window ? PAGES : 0};
    rad_req_to_token_pool_params rows = {sizeof rows, REQS, MOST_TOKENS};
    MUST(!rad_kv_allocator_create(NULL, &kv, &w.kv, NULL));
    MUST(!rad_req_to_token_pool_create(NULL, &rows, &w.rows, NULL));
    rad_free_list list = {.struct_size = sizeof list,
                          .num_pages = PAGES + 1,
                          .user = &w,
                          .free_pages = free_pages,
                          .free_windows = w.window ? free_windows : NULL,
                          .move_window = w.window ? move_window : NULL};
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = w.ps,
                               .kv_allocator = w.tells ? NULL : w.kv,
                               .req_to_token_pool = w.tells ? NULL : w.rows,
                               .free_list = w.tells ? &list : NULL,
                               .max_nodes = w.few_nodes,
                               .max_namespaces = limits & 64 ? 3 : 0,
                               .is_eagle = w.eagle,
                               .window_tokens = w.window,
                               .disable_finished_insert = shape >> 4 == 5,
                               .copy_slots = shape & 32 ? copy_slots : NULL,
                               .copy_user = &w};
    if (limits & 128) { /* the journal, or parts of it */
        uint32_t what = byte(&w);
        params.enable_kv_events = what & 1;
        params.enable_page_hashes = what >> 1 & 1;
        params.explain_pages = what & 4 ? 1 + (what >> 4) : 0;
        params.explain_namespaces = what >> 3 & 1;
        params.kv_event_pages = what & 16 ? 1 + (what >> 5) : 0;
        w.events = params.enable_kv_events;
        w.hashes = w.events || params.enable_page_hashes;
    }
    if (limits & 64) w.few_nodes += 1; /* RAD_FULL is possible: all namespaces in use */
    if (limits & 64) params.max_nodes = w.few_nodes;
    MUST(!rad_cache_create(NULL, &params, &w.cache, NULL));
    while (w.at < w.end) {
        uint32_t op = byte(&w) % 16;
        if (op < 4)
            insert(&w, NULL);
        else if (op < 5)
            insert(&w, &w.handles[byte(&w) % HANDLES]);
        else if (op < 8)
            match(&w);
        else if (op < 10)
            unlock(&w);
        else if (op < 12)
            evict(&w);
        else if (op < 14)
            request(&w);
        else if (op < 15)
            misuse(&w);
        else
            look(&w);
        check(&w);
    }
    for (int i = 0; i < REQS; i++)
        if (w.reqs[i].row) MUST(!rad_cache_finished_req(w.cache, &w.reqs[i], i & 1, NULL));
    for (int i = 0; i < LOCKS; i++)
        if (w.locks[i].held) MUST(!rad_cache_dec_lock_ref(w.cache, &w.locks[i], NULL));
    check(&w);
    MUST(rad_cache_protected_size(w.cache) == 0);
    MUST(rad_cache_window_protected_size(w.cache) == 0);
    MUST(!rad_cache_reset(w.cache));
    MUST(rad_kv_available_pages(w.kv) == PAGES);
    MUST(rad_kv_window_available_pages(w.kv) == (w.window ? PAGES : 0));
    rad_cache_destroy(w.cache);
    rad_req_to_token_pool_destroy(w.rows);
    rad_kv_allocator_destroy(w.kv);
    return 0;
}
