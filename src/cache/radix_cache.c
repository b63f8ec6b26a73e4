/* radix_cache.c - SGLang's RadixCache: the tree with its allocator and its clock.
 *
 * The tree says which pages enter and leave it; here they are given back to the
 * allocator, and here is the clock, which counts operations, so that a replay of the
 * same calls evicts in the same order. It is made in radix_cache_create.c. Keys enter in
 * radix_publish.c; what requests do with all of it is in radix_req.c.
 *
 * Invariant, verified by radix_cache_check.c: the tree's pages are handed out by the allocator,
 * each stands in the tree once, and `cached` has the bits of just these. */
#include "cache/radix_cache.h"

#include "base/bits.h"
#include "cache/radix_host.h"
#include "cache/radix_journal.h"
#include "cache/radix_path.h"
#include "cache/radix_state.h"
#include "cache/radix_window.h"
#include "mem/kv_bits.h"

void radix_cache_drop_windows(void *user, const rad_page *pages, const kv_run *runs, uint32_t count)
{
    radix_cache *c = user;
    (void)runs;
    if (c->list.num_pages) {
        c->list.free_windows(c->list.user, pages, count);
        return;
    }
    rad_status status = rad_kv_free_window(c->base.kv, pages, count, NULL);
    if (status && !c->drop_status) c->drop_status = status;
}

void radix_cache_drop_state(void *user, rad_state state)
{
    radix_cache *c = user;
    rad_status status = rad_state_free(c->base.states, state);
    if (status && !c->drop_status) c->drop_status = status;
}

radix_cache *radix_cache_of(const rad_cache *cache)
{
    if (cache->ops->nodes_of) cache = cache->ops->nodes_of(cache);
    return cache->ops == &radix_cache_ops ? (radix_cache *)cache : NULL;
}

/* Pages on their way back to whoever gave them, a lot at a time. */
typedef struct page_lot {
    radix_drop_fn drop;
    void *user;
    uint32_t count;
    rad_page pages[128];
} page_lot;

static void give_back_lot(page_lot *lot)
{
    if (lot->count) lot->drop(lot->user, lot->pages, NULL, lot->count);
    lot->count = 0;
}

static void give_back(void *user, rad_page page)
{
    page_lot *lot = user;
    lot->pages[lot->count++] = page;
    if (lot->count == RAD_COUNT(lot->pages)) give_back_lot(lot);
}

static void free_lot(void *user, const rad_page *pages, const kv_run *runs, uint32_t count)
{
    radix_cache *c = user;
    rad_status status = RAD_OK;
    (void)runs;
    if (c->list.num_pages) c->list.free_pages(c->list.user, pages, count);
    if (c->base.kv) status = rad_kv_free(c->base.kv, pages, count, NULL);
    if (status && !c->drop_status) c->drop_status = status;
}

static void tell_list(radix_cache *c, const rad_page *pages, const kv_run *runs, uint32_t count)
{
    page_lot lot = {.drop = free_lot, .user = c};
    if (pages) c->list.free_pages(c->list.user, pages, count);
    for (uint32_t i = 0; !pages && i < count; i++)
        for (uint32_t k = 0; k < runs[i].count; k++)
            give_back(&lot, runs[i].first + (rad_page)k);
    give_back_lot(&lot);
}

/* Pages that left the tree. A page the allocator does not know as taken means that
 * somebody cleared it under us; the first such answer is kept for the caller. */
void radix_cache_drop(void *user, const rad_page *pages, const kv_run *runs, uint32_t count)
{
    radix_cache *c = user;
    rad_kv_allocator *kv = c->base.kv;
    uint64_t dropped = pages ? count : 0;
    for (uint32_t i = 0, run; c->cached.words && pages && i < count; i += run) {
        run = bits_run(pages + i, count - i);
        lane_flip_range(c->cached, (size_t)pages[i], run);
    }
    for (uint32_t i = 0; c->cached.words && !pages && i < count; i++) {
        lane_prefetch_range(c->cached, (size_t)runs[i].first, runs[i].count);
        if (kv) lane_prefetch_range(kv_taken_lane(kv), (size_t)runs[i].first, runs[i].count);
    }
    for (uint32_t i = 0; !pages && i < count; i++) {
        dropped += runs[i].count;
        if (c->cached.words) lane_flip_range(c->cached, (size_t)runs[i].first, runs[i].count);
    }
    c->evicted += dropped;
    if (c->list.num_pages) tell_list(c, pages, runs, count);
    if (!kv) return;
    rad_status status = pages ? rad_kv_free(kv, pages, count, NULL)
                              : kv_free_runs(kv, runs, count, NULL);
    if (status && !c->drop_status) c->drop_status = status;
}

uint32_t radix_cache_root(const radix_cache *c, const rad_key *key)
{
    if (!namespace_fits(key->extra_key, key->cache_salt)) return 0;
    uint32_t ns = namespace_find(&c->tree.names, key->extra_key, key->cache_salt);
    return ns ? c->tree.names.entries[ns].root : 0;
}

rad_ref radix_cache_ref(const radix_cache *c, uint32_t node)
{
    const radix_tree *t = &c->tree;
    if (!t->nodes[node].parent) return (rad_ref){0, 0}; /* no node, or a root */
    return (rad_ref){node, t->ids.generation[node]};
}

/* How many pages of the key the host goes on with where the device ends. Most matches know without
 * a walk that there are none, and pay for no call. */
static inline uint32_t host_hit(const radix_cache *c, const rad_key *key, const radix_pos *device,
                                uint32_t num_pages)
{
    const radix_tree *t = &c->tree;
    uint32_t from = device->pages;
    if (!t->host.of || device->child || from == num_pages ||
        !t->host.of[device->node].host_children)
        return 0;
    const rad_token *rest = radix_cache_tokens(c, key) + (size_t)from * c->base.page_size;
    return radix_walk(t, device->node, rest, num_pages - from).pages;
}

/* The same with components, for a key of which all tiers together know what was walked: the device
 * may have a part of what is behind its end, too, and no window there. */
static uint32_t walked_host_hit(const radix_tree *t, const radix_pos *device, radix_pos walked)
{
    uint32_t from = device->pages;
    if (!t->host.of || device->child || walked.pages == from) return 0;
    radix_host_end(t, &walked, from);
    return walked.pages > from ? walked.pages - from : 0;
}

/* What a match that ended here says of its end: behind it the host goes on with `host` pages, and
 * all tiers together know `seen`. */
static inline void fill_match(const radix_cache *c, const rad_key *key, const radix_pos *pos,
                              uint32_t host, uint32_t seen, rad_match *match)
{
    const radix_tree *t = &c->tree;
    uint32_t unused, ps = c->base.page_size;
    rad_page page;
    if (c->copy_slots) match->partial_tokens = radix_cache_partial(c, key, pos, &page, &unused);
    match->prefix_tokens = pos->pages * ps;
    match->host_hit_tokens = host * ps;
    match->seen_tokens = seen * ps;
    if (t->states[RADIX_DEVICE] && pos->pages)
        match->state = radix_state_of(t, RADIX_DEVICE, pos->node);
}

static void radix_match_prefix(rad_cache *cache, const rad_key *key, rad_slot *slots,
                               rad_match *match)
{
    radix_cache *c = (radix_cache *)cache;
    radix_tree *t = &c->tree;
    uint32_t root = radix_cache_root(c, key), num_pages = radix_cache_pages(c, key);
    if (!root || (!num_pages && !(c->copy_slots && key->num_tokens))) return;
    const rad_token *tokens = radix_cache_tokens(c, key);
    uint64_t now = ++t->clock;
    uint32_t host, seen;
    radix_pos pos;
    if (t->num_components) {
        const radix_pos walked = pos = radix_walk(t, root, tokens, num_pages);
        radix_match_walked(t, &pos, now, slots);
        host = walked_host_hit(t, &pos, walked);
        seen = walked.pages;
    } else {
        pos = radix_match(t, root, tokens, num_pages, now, slots);
        host = host_hit(c, key, &pos, num_pages);
        seen = pos.pages + host;
    }
    namespace_touch(&t->names, t->nodes[root].ns, pos.pages > 0);
    fill_match(c, key, &pos, host, seen, match);
    uint32_t node = pos.node;
    if (pos.child) {
        /* With no node left to split with, the whole child stands for its front part:
         * locking it keeps more than was asked, which is safe. */
        bool can_split = radix_nodes_available(t) > 0;
        node = can_split ? radix_split(t, pos.child, pos.part, now) : pos.child;
        t->nodes[node].last_access = now;
    }
    radix_used(t, node);
    radix_components_used(t, node, 0);
    match->last_node = radix_cache_ref(c, node);
}

static void radix_lookup(const rad_cache *cache, const rad_key *key, rad_match *match)
{
    const radix_cache *c = (const radix_cache *)cache;
    uint32_t root = radix_cache_root(c, key), num_pages = radix_cache_pages(c, key);
    if (!root || (!num_pages && !(c->copy_slots && key->num_tokens))) return;
    const radix_pos walked = radix_walk(&c->tree, root, radix_cache_tokens(c, key), num_pages);
    radix_pos pos = walked;
    radix_to_tier(&c->tree, &pos, RADIX_DEVICE);
    radix_usable(&c->tree, &pos);
    uint32_t host = c->tree.num_components ? walked_host_hit(&c->tree, &pos, walked)
                                           : walked.pages - pos.pages;
    fill_match(c, key, &pos, host, walked.pages, match);
    match->last_node = radix_cache_ref(c, pos.child ? pos.child : pos.node);
}

static rad_status radix_inc_lock_ref(rad_cache *cache, rad_ref node, rad_receipt *receipt,
                                     rad_error *err)
{
    radix_tree *t = &((radix_cache *)cache)->tree;
    bool is_root = !node.index && !node.generation;
    if (!is_root && (!radix_is_ref(t, node) || !radix_on_device(t, node.index)))
        return radix_refuse_ref(t, "inc_lock_ref", node, err);
    if (!is_root) {
        if (t->nodes[t->names.entries[t->nodes[node.index].ns].root].lock_ref == UINT32_MAX)
            return rad_fail(err, RAD_E_LIMIT,
                            "inc_lock_ref: node %u (generation %u): too many locks", node.index,
                            node.generation);
    }
    *receipt = (rad_receipt){.node = node, .held = 1, .stamp = (uint32_t)t->clock};
    if (is_root) return RAD_OK;
    uint64_t before = t->evictable;
    radix_cache_hold((radix_cache *)cache, receipt);
    receipt->evictable_change = (int64_t)(t->evictable - before) * cache->page_size;
    if (t->windows[RADIX_DEVICE])
        receipt->window_missing =
            radix_window_missing(t, node.index, receipt->window_from / cache->page_size) *
            cache->page_size;
    return RAD_OK;
}

void radix_cache_hold_components(radix_cache *c, rad_receipt *receipt)
{
    radix_tree *t = &c->tree;
    for (uint32_t i = 0; i < t->num_components; i++) {
        const radix_component *comp = &t->components[i];
        uint32_t what = comp->ops->lock(comp->self, t, receipt->node.index);
        if (comp->ops->kind == RADIX_WINDOW) receipt->window_from = what * c->base.page_size;
        if (comp->ops->kind == RADIX_STATE) receipt->state_held = what;
    }
}

/* What the component's `lock` answered. */
static uint32_t locked_by(const radix_component *comp, const rad_receipt *r, uint32_t page_size)
{
    return comp->ops->kind == RADIX_STATE ? r->state_held : r->window_from / page_size;
}

void radix_cache_let_go_components(radix_cache *c, const rad_receipt *receipt)
{
    radix_tree *t = &c->tree;
    for (uint32_t i = 0; i < t->num_components; i++)
        t->components[i].ops->unlock(t->components[i].self, t, receipt->node.index,
                                     locked_by(&t->components[i], receipt, c->base.page_size));
}

void radix_cache_let_go_state(radix_cache *c, rad_receipt *receipt)
{
    if (!receipt->state_held) return;
    radix_state_unlock(&c->tree, RADIX_DEVICE, receipt->node.index, 1);
    receipt->state_held = 0;
}

bool radix_receipt_holds(const rad_cache *cache, const rad_receipt *r)
{
    const radix_tree *t = &((const radix_cache *)cache)->tree;
    if (!r->held) return false;
    if (!r->node.index && !r->node.generation) return true;
    if (!radix_is_ref(t, r->node) || !t->cold[r->node.index].own) return false;
    for (uint32_t i = 0; i < t->num_components; i++)
        if (r->window_from % cache->page_size ||
            !t->components[i].ops->holds(t->components[i].self, t, r->node.index,
                                         locked_by(&t->components[i], r, cache->page_size)))
            return false;
    return true;
}

static void radix_hold_window(rad_cache *cache, rad_receipt *r, uint32_t from)
{
    radix_tree *t = &((radix_cache *)cache)->tree;
    uint32_t ps = cache->page_size;
    if (!r->node.index) return;
    r->window_from = radix_window_advance(t, r->node.index, r->window_from / ps, from / ps) * ps;
}

static rad_status radix_dec_lock_ref(rad_cache *cache, rad_receipt *receipt, rad_error *err)
{
    radix_cache *c = (radix_cache *)cache;
    if (!radix_receipt_holds(cache, receipt)) {
        rad_ref r = receipt->node;
        if (receipt->held && radix_is_ref(&c->tree, r) && c->tree.cold[r.index].own)
            return rad_fail(err, RAD_E_STATE,
                            "dec_lock_ref: node %u (generation %u) has no window locked from "
                            "position %u on, or no snapshot %u times",
                            r.index, r.generation, receipt->window_from, receipt->state_held);
        return radix_refuse_ref(&c->tree, "dec_lock_ref", r, err);
    }
    uint64_t before = c->tree.evictable;
    if (receipt->node.index) radix_cache_let_go(c, receipt);
    *receipt =
        (rad_receipt){.evictable_change = (int64_t)(c->tree.evictable - before) * cache->page_size};
    return RAD_OK;
}

static rad_status radix_evict_tokens(rad_cache *cache, uint64_t num_tokens,
                                     uint64_t *evicted_tokens)
{
    radix_cache *c = (radix_cache *)cache;
    uint32_t ps = cache->page_size;
    uint64_t pages = num_tokens / ps + (num_tokens % ps != 0);
    if (c->tree.journal) c->tree.journal->asked = true;
    uint64_t done = radix_evict(&c->tree, pages, radix_cache_drop, c);
    if (c->tree.journal) c->tree.journal->asked = false;
    if (evicted_tokens) *evicted_tokens = done * ps;
    return radix_cache_take_drop_status(c);
}

static rad_status radix_evict_window(rad_cache *cache, uint64_t window_tokens,
                                     uint64_t *evicted_tokens)
{
    radix_cache *c = (radix_cache *)cache;
    uint32_t ps = cache->page_size;
    uint64_t pages = window_tokens / ps + (window_tokens % ps != 0);
    for (uint32_t i = 0; i < c->tree.num_components; i++) {
        const radix_component *comp = &c->tree.components[i];
        if (comp->ops->kind == RADIX_WINDOW)
            *evicted_tokens = comp->ops->evict(comp->self, &c->tree, pages) * ps;
    }
    return radix_cache_take_drop_status(c);
}

static rad_status radix_evict_states(rad_cache *cache, uint64_t count, uint64_t *evicted)
{
    radix_cache *c = (radix_cache *)cache;
    *evicted = radix_state_evict(&c->tree, RADIX_DEVICE, count);
    return radix_cache_take_drop_status(c);
}

/* The node whose end is at page `depth` of the path to `node`, which is cut for it if need be; 0:
 * the path does not reach so far on the device, or there is no node to cut with. */
static uint32_t node_at(radix_cache *c, uint32_t node, uint32_t depth)
{
    radix_tree *t = &c->tree;
    for (bool made_room = false;; made_room = true) {
        radix_path p = radix_path_of(t, node, radix_depth(t, node));
        if (p.end < depth) return 0;
        while (p.begin >= depth)
            radix_path_up(t, &p);
        if (!radix_on_device(t, p.node)) return 0;
        if (p.end == depth) return p.node;
        if (radix_nodes_available(t))
            return radix_split(t, p.node, depth - p.begin, t->nodes[p.node].last_access);
        /* Merges chains and evicts; the path may have other nodes then. */
        if (made_room || !radix_make_room(t, 1, 0, false, node, radix_cache_drop, c)) return 0;
    }
}

uint32_t radix_cache_put_state(radix_cache *c, uint32_t node, uint32_t depth, rad_state state)
{
    radix_tree *t = &c->tree;
    uint32_t at = node_at(c, node, depth);
    if (at && !radix_state_of(t, RADIX_DEVICE, at)) {
        radix_state_put(t, RADIX_DEVICE, at, state);
        return at;
    }
    radix_cache_drop_state(c, state);
    return 0;
}

static rad_status radix_put_state(rad_cache *cache, rad_ref node, uint32_t depth_tokens,
                                  rad_state state, rad_error *err)
{
    radix_cache *c = (radix_cache *)cache;
    if (!radix_is_ref(&c->tree, node)) return radix_refuse_ref(&c->tree, "put_state", node, err);
    uint32_t at = radix_cache_put_state(c, node.index, depth_tokens / cache->page_size, state);
    if (at) radix_state_supersede(&c->tree, at);
    return radix_cache_take_drop_status(c);
}

static bool radix_owns_state(const rad_cache *cache, rad_state state)
{
    return radix_state_owns(&((const radix_cache *)cache)->tree, RADIX_DEVICE, state);
}

static void radix_visit_states(const rad_cache *cache, cache_state_fn visit, void *user)
{
    radix_state_visit(&((const radix_cache *)cache)->tree, RADIX_DEVICE, visit, user);
}

static void visit_device(const rad_cache *cache, cache_page_fn visit, void *user)
{
    radix_visit_pages(&((const radix_cache *)cache)->tree, RADIX_DEVICE, visit, user);
}

rad_status radix_cache_clear_device(radix_cache *c)
{
    uint64_t evicted = c->evicted;
    radix_clear_device(&c->tree, radix_cache_drop, c);
    c->evicted = evicted;
    return radix_cache_take_drop_status(c);
}

static rad_status radix_reset(rad_cache *cache)
{
    radix_cache *c = (radix_cache *)cache;
    page_lot lots[] = {[RADIX_DEVICE] = {.drop = free_lot, .user = c},
                       [RADIX_HOST] = {.drop = c->tree.host.drop, .user = c->tree.host.user}};
    /* A group of frees is handed out again in its order: a prompt's pages in runs, as they were. */
    bool grouped = cache->kv && rad_kv_free_group_begin(cache->kv) == RAD_OK;
    for (radix_tier tier = RADIX_DEVICE; tier < RADIX_TIERS; tier++) {
        radix_visit_pages(&c->tree, tier, give_back, &lots[tier]);
        give_back_lot(&lots[tier]);
    }
    if (grouped) (void)rad_kv_free_group_end(cache->kv);
    for (size_t w = 0; c->cached.words && w < bits_words(c->cached_pages); w++)
        c->cached.words[w * c->cached.step] = 0;
    radix_clear(&c->tree);
    return radix_cache_take_drop_status(c);
}

static cache_sizes radix_sizes(const rad_cache *cache)
{
    const radix_tree *t = &((const radix_cache *)cache)->tree;
    cache_sizes sizes = {t->evictable * cache->page_size, t->locked * cache->page_size};
    const radix_window *w = t->windows[RADIX_DEVICE];
    if (w) {
        sizes.window_protected = w->held * cache->page_size;
        sizes.window_evictable = (w->there - w->held) * cache->page_size;
    }
    const radix_state *s = t->states[RADIX_DEVICE];
    if (s) {
        sizes.state_protected = s->held;
        sizes.state_evictable = s->there - s->held;
    }
    return sizes;
}

static void radix_get_stats(const rad_cache *cache, rad_cache_stats *stats)
{
    const radix_cache *c = (const radix_cache *)cache;
    *stats = (rad_cache_stats){
        .num_nodes = c->tree.ids.num_live - c->tree.names.ids.num_live,
        .num_namespaces = c->tree.names.ids.num_live,
        .metadata_bytes = c->tree.metadata_bytes + sizeof *c +
                          bits_words(c->cached_pages) * sizeof(uint64_t) +
                          radix_journal_bytes(c->tree.journal),
        .evicted_tokens = c->evicted * cache->page_size,
        .inserted_tokens = c->inserted * cache->page_size,
        .splits = c->tree.splits,
        .merges = c->tree.merges,
        .host_evicted_tokens = c->tree.host.evicted * cache->page_size,
    };
    const radix_state *s = c->tree.states[RADIX_DEVICE];
    if (!s) return;
    stats->states_put = s->put;
    stats->states_evicted = s->evicted;
    stats->states_dropped = s->dropped;
}

static void radix_namespace_stats(const rad_cache *cache, rad_namespace_stats *stats)
{
    const namespaces *n = &((const radix_cache *)cache)->tree.names;
    stats->most = n->ids.capacity;
    stats->used = n->ids.num_live;
    stats->given_up = n->given_up;
}

static rad_status visit_tier(const radix_cache *c, radix_tier tier, rad_cache_visit_fn visit,
                             void *user)
{
    const rad_cache *cache = &c->base;
    const radix_tree *t = &c->tree;
    uint32_t depth, longest = 0;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));)
        longest = RAD_MAX(longest, t->nodes[id].pages);
    if (!longest) return RAD_OK;
    size_t most = (size_t)longest * cache->page_size, bytes = (2 * most + 1) * sizeof(rad_slot);
    rad_slot *slots = rad_alloc(&cache->env, bytes);
    if (!slots) return RAD_E_NOMEM;
    rad_token *raw = slots + most; /* pairs are shown with both halves */
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));) {
        const radix_node *n = &t->nodes[id];
        const rad_token *tokens = radix_tokens(t, n);
        uint32_t count = n->pages * cache->page_size;
        if (!radix_is_on(t, id, tier)) continue;
        radix_expand(t, radix_regions(t, tier) + n->at, n->pages, slots);
        if (t->limits.bigram) {
            raw[0] = radix_lead(t, n);
            memcpy(raw + 1, tokens, count * sizeof *raw);
            tokens = raw;
        }
        visit(user, radix_cache_ref(c, id), depth, tokens, slots, count,
              tier == RADIX_HOST ? radix_host_locks(t, id) : n->lock_ref, n->hit_count);
    }
    rad_free(&cache->env, slots, bytes);
    return RAD_OK;
}

static rad_status radix_visit(const rad_cache *cache, rad_cache_visit_fn visit, void *user)
{
    return visit_tier((const radix_cache *)cache, RADIX_DEVICE, visit, user);
}

rad_status radix_cache_walk_host(const radix_cache *c, rad_cache_visit_fn visit, void *user)
{
    return visit_tier(c, RADIX_HOST, visit, user);
}

const cache_ops radix_cache_ops = {
    .destroy = radix_cache_destroy,
    .match_prefix = radix_match_prefix,
    .lookup = radix_lookup,
    .insert = radix_insert_key,
    .inc_lock_ref = radix_inc_lock_ref,
    .dec_lock_ref = radix_dec_lock_ref,
    .evict = radix_evict_tokens,
    .evict_window = radix_evict_window,
    .hold_window = radix_hold_window,
    .put_state = radix_put_state,
    .evict_state = radix_evict_states,
    .owns_state = radix_owns_state,
    .visit_states = radix_visit_states,
    .receipt_holds = radix_receipt_holds,
    .owns_any = radix_owns_any,
    .unfinished_req = radix_unfinished_req,
    .finished_req = radix_finished_req,
    .reset = radix_reset,
    .sizes = radix_sizes,
    .get_stats = radix_get_stats,
    .namespace_stats = radix_namespace_stats,
    .walk = radix_visit,
    .visit_pages = visit_device,
    .check = radix_check_all,
    .owns_prefix = radix_owns_prefix,
    .pin_prefix = radix_pin_prefix,
    .retain_prefix = radix_retain_prefix,
    .pinned_size = radix_pinned_size,
    .session_open = radix_session_open,
    .session_begin = radix_session_begin,
    .session_close = radix_session_close,
    .session_stats = radix_session_stats,
};
