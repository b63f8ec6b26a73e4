/* radix_keep.c - pins and retention.
 *
 * A record raises the key of its node in the heap of leaves; nothing else knows about it,
 * so what is kept is evicted last but is never an obstacle. A key that gets lower must be
 * refiled, and time lowers it without anybody calling: so whatever will end is also filed
 * by its deadline, and before an eviction looks at the heap of leaves, those whose time
 * has come are ended. Hits move deadlines into the future without touching their heap: the
 * cached deadline is early then, and put right when it is reached.
 *
 * Invariant, verified by keep_fault() and keep_check(): the deadline of each record that
 * ends is filed, not later than it is; on each tier the pages of the nodes that are pinned there
 * add up to what its counter says, which is never above its budget. */
#include <radish/retention.h>

#include "cache/radix_cache.h"
#include "cache/radix_path.h"

static void keep_fini(void *self, radix_tree *t)
{
    radix_keep *k = self;
    rad_free(&t->env, k->records, ((size_t)t->num_nodes + 1) * sizeof *k->records);
    heap_fini(&k->deadlines);
    *k = (radix_keep){0};
}

static void keep_clear(void *self, radix_tree *t)
{
    radix_keep *k = self;
    memset(k->records, 0, ((size_t)t->num_nodes + 1) * sizeof *k->records);
    heap_clear(&k->deadlines);
    k->pinned[RADIX_DEVICE] = k->pinned[RADIX_HOST] = 0;
}

static bool is_pinned_on(const keep_record *r, radix_tier tier)
{
    return r->pinned_on >> tier & 1;
}

static heap_key keep_rank(void *self, const radix_tree *t, uint32_t node, radix_tier tier)
{
    const keep_record *r = &((const radix_keep *)self)->records[node];
    (void)t;
    return (heap_key)is_pinned_on(r, tier) << 95 | (heap_key)r->retention << EVICT_POLICY_BITS;
}

/* How many more pages may be pinned on the tier. */
static uint64_t room(const radix_keep *k, radix_tier tier)
{
    return k->max_pinned[tier] - k->pinned[tier];
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

/* When something about the record ends; UINT64_MAX: never. */
static uint64_t deadline(const keep_record *r)
{
    uint64_t pin = r->pin_ttl ? r->pin_until : UINT64_MAX;
    uint64_t idle = r->retention && r->idle_ns ? plus(r->used, r->idle_ns) : UINT64_MAX;
    return RAD_MIN(pin, idle);
}

static uint64_t time_now(const radix_tree *t)
{
    return t->env.now_ns(t->env.user);
}

/* The record has changed: files its deadline and its node's key. */
static void refile(radix_tree *t, uint32_t node)
{
    heap *h = &t->keep.deadlines;
    uint64_t at = deadline(&t->keep.records[node]);
    if (at == UINT64_MAX)
        heap_remove(h, node);
    else if (heap_contains(h, node))
        heap_rekey(h, node, at);
    else
        heap_push(h, node, at);
    radix_refile(t, node);
}

static void unpin(radix_tree *t, uint32_t node)
{
    keep_record *r = &t->keep.records[node];
    for (radix_tier tier = RADIX_DEVICE; tier < RADIX_TIERS; tier++)
        if (is_pinned_on(r, tier)) t->keep.pinned[tier] -= t->nodes[node].pages;
    r->pin_ttl = r->pin_until = 0;
    r->pinned_on = 0;
}

/* The node's pin counts on this tier as well, if its pages there are within the budget. */
static void pin_on(radix_tree *t, uint32_t node, radix_tier tier)
{
    keep_record *r = &t->keep.records[node];
    uint32_t pages = t->nodes[node].pages;
    if (is_pinned_on(r, tier) || !radix_is_on(t, node, tier) || room(&t->keep, tier) < pages)
        return;
    t->keep.pinned[tier] += pages;
    r->pinned_on |= 1u << tier;
}

static void end_retention(keep_record *r)
{
    r->retention = 0;
    r->idle_ns = r->used = 0;
}

/* Ends what is over in one record. */
static void expire(radix_tree *t, uint32_t node, uint64_t now)
{
    keep_record *r = &t->keep.records[node];
    if (r->pin_ttl && r->pin_until <= now) unpin(t, node);
    if (r->retention && r->idle_ns && plus(r->used, r->idle_ns) <= now) end_retention(r);
}

static void keep_on_evict(void *self, radix_tree *t)
{
    heap *h = &((radix_keep *)self)->deadlines;
    if (!h->count) return;
    uint64_t now = time_now(t);
    while (h->count && heap_entry_key(&h->entries[0]) <= now) {
        uint32_t node = heap_entry_id(&h->entries[0]);
        expire(t, node, now);
        refile(t, node);
    }
}

static void keep_on_use(void *self, radix_tree *t, uint32_t node)
{
    (void)self;
    if (!t->keep.deadlines.count) return; /* nothing kept, or for good */
    uint64_t now = time_now(t);
    for (uint32_t id = node; id; id = t->nodes[id].parent) {
        keep_record *r = &t->keep.records[id];
        uint64_t end = deadline(r);
        if (end <= now) {
            expire(t, id, now);
            refile(t, id);
        }
        if (r->pin_ttl) r->pin_until = plus(now, r->pin_ttl);
        if (r->retention) r->used = now;
    }
}

static void keep_on_split(void *self, radix_tree *t, uint32_t upper, uint32_t child)
{
    (void)self;
    t->keep.records[upper] = t->keep.records[child];
    refile(t, upper);
}

bool keep_is_stronger(uint32_t priority, uint64_t idle_ns, const keep_record *than)
{
    if (priority != than->retention) return priority > than->retention;
    return idle_ns - 1 > than->idle_ns - 1; /* 0, for good, is the longest */
}

/* Where only one of the two is pinned both are, or none where the budget has no room for that. */
static void merge_pins(radix_keep *k, radix_tier tier, keep_record *u, uint32_t upper_pages,
                       keep_record *l, uint32_t lower_pages)
{
    if (is_pinned_on(u, tier) == is_pinned_on(l, tier)) return;
    bool is_upper = is_pinned_on(u, tier);
    uint32_t more = is_upper ? lower_pages : upper_pages;
    if (more <= room(k, tier)) {
        k->pinned[tier] += more;
        l->pinned_on |= 1u << tier;
    } else {
        k->pinned[tier] -= is_upper ? upper_pages : lower_pages;
        l->pinned_on &= ~(1u << tier);
    }
}

static void keep_on_drop(void *self, radix_tree *t, uint32_t node)
{
    (void)self;
    t->keep.records[node] = (keep_record){0};
    heap_remove(&t->keep.deadlines, node);
}

static void keep_on_merge(void *self, radix_tree *t, uint32_t upper, uint32_t lower)
{
    radix_keep *k = self;
    uint32_t upper_pages = t->nodes[upper].pages, lower_pages = t->nodes[lower].pages - upper_pages;
    keep_record *u = &k->records[upper], *l = &k->records[lower];
    merge_pins(k, RADIX_DEVICE, u, upper_pages, l, lower_pages);
    merge_pins(k, RADIX_HOST, u, upper_pages, l, lower_pages);
    l->pin_ttl = l->pinned_on ? RAD_MAX(l->pin_ttl, u->pin_ttl) : 0;
    l->pin_until = l->pinned_on ? RAD_MAX(l->pin_until, u->pin_until) : 0;
    if (u->retention && keep_is_stronger(u->retention, u->idle_ns, l)) {
        l->retention = u->retention;
        l->idle_ns = u->idle_ns;
    }
    l->used = RAD_MAX(l->used, u->used);
    keep_on_drop(k, t, upper);
    refile(t, lower);
}

static void keep_on_cut(void *self, radix_tree *t, uint32_t leaf, radix_tier tier, uint32_t kept)
{
    radix_keep *k = self;
    if (is_pinned_on(&k->records[leaf], tier)) k->pinned[tier] -= t->nodes[leaf].pages - kept;
}

static void keep_on_enter(void *self, radix_tree *t, uint32_t node, radix_tier tier)
{
    radix_keep *k = self;
    if (!k->records[node].pin_ttl) return;
    pin_on(t, node, tier);
    radix_refile(t, node);
}

static void keep_on_leave(void *self, radix_tree *t, uint32_t node, radix_tier tier)
{
    keep_record *r = &((radix_keep *)self)->records[node];
    if (!is_pinned_on(r, tier)) return;
    r->pinned_on &= ~(1u << tier);
    if (!r->pinned_on) r->pin_ttl = r->pin_until = 0;
    refile(t, node);
}

static bool keep_equal(void *self, const radix_tree *t, uint32_t upper, uint32_t lower)
{
    const radix_keep *k = self;
    (void)t;
    return memcmp(&k->records[upper], &k->records[lower], sizeof(keep_record)) == 0;
}

/* The node at which the first num_pages pages of the key end on the device: split off where they
 * end inside of one. *num_pages shrinks to what is there, and to whole nodes when there is no node
 * to split with. The access times stay. */
static uint32_t node_at(radix_tree *t, uint32_t root, const rad_token *tokens, uint32_t *num_pages)
{
    radix_pos pos = radix_walk(t, root, tokens, *num_pages);
    radix_to_tier(t, &pos, RADIX_DEVICE);
    *num_pages = pos.pages;
    if (!pos.child) return pos.node;
    if (radix_nodes_available(t))
        return radix_split(t, pos.child, pos.part, t->nodes[pos.child].last_access);
    *num_pages -= pos.part;
    return pos.node;
}

static bool is_pinned(const radix_keep *k, uint32_t node)
{
    return is_pinned_on(&k->records[node], RADIX_DEVICE);
}

/* How many of the key's cached pages may be pinned: all, or what the budget leaves. */
static uint32_t pages_within_budget(const radix_tree *t, const radix_pos *pos)
{
    const radix_keep *k = &t->keep;
    uint64_t total = k->pinned[RADIX_DEVICE], most = k->max_pinned[RADIX_DEVICE];
    radix_path p = radix_path_to(t, pos);
    for (; radix_path_is(t, &p); radix_path_up(t, &p))
        total += is_pinned(k, p.node) ? 0 : p.end - p.begin;
    uint64_t over = total > most ? total - most : 0;
    uint32_t pages = pos->pages;
    for (p = radix_path_to(t, pos); over; radix_path_up(t, &p)) {
        uint64_t len = p.end - p.begin, cut = is_pinned(k, p.node) ? len : RAD_MIN(over, len);
        pages -= (uint32_t)cut;
        over -= is_pinned(k, p.node) ? 0 : cut;
    }
    return pages;
}

/* The path to `node` is pinned on a tier, whole nodes, as far from the root as the budget has room
 * for. */
static void pin_path(radix_tree *t, uint32_t node, radix_tier tier, uint64_t ttl_ns)
{
    uint64_t now = time_now(t), missing = 0;
    for (uint32_t id = node; t->nodes[id].parent; id = t->nodes[id].parent)
        if (radix_is_on(t, id, tier) && !is_pinned_on(&t->keep.records[id], tier))
            missing += t->nodes[id].pages;
    for (uint32_t id = node; t->nodes[id].parent; id = t->nodes[id].parent) {
        keep_record *r = &t->keep.records[id];
        if (!radix_is_on(t, id, tier)) continue;
        if (!is_pinned_on(r, tier)) {
            bool fits = missing <= room(&t->keep, tier); /* this one and all above it */
            missing -= t->nodes[id].pages;
            if (!fits) continue;
            pin_on(t, id, tier);
        }
        r->pin_ttl = RAD_MAX(r->pin_ttl, ttl_ns);
        r->pin_until = RAD_MAX(r->pin_until, plus(now, ttl_ns));
        refile(t, id);
    }
}

static void unpin_path(radix_tree *t, uint32_t node)
{
    for (uint32_t id = node; t->nodes[id].parent; id = t->nodes[id].parent) {
        unpin(t, id);
        refile(t, id);
    }
}

static const char *keep_fault(void *self, const radix_tree *t, uint32_t node)
{
    (void)self;
    const keep_record *r = &t->keep.records[node];
    const heap *h = &t->keep.deadlines;
    uint64_t end = deadline(r);
    if (r->retention > 99) return "is retained with an impossible priority";
    if (!r->pin_ttl != !r->pinned_on) return "is pinned on no tier, or without a time";
    if ((is_pinned_on(r, RADIX_DEVICE) && !radix_on_device(t, node)) ||
        (is_pinned_on(r, RADIX_HOST) && !radix_on_host(t, node)))
        return "is pinned where it has no pages";
    if (!r->retention && (r->idle_ns || r->used)) return "has a retention without a priority";
    if (end == UINT64_MAX) return NULL;
    if (!heap_contains(h, node)) return "has a pin or retention without a deadline";
    return heap_key_of(h, node) > end ? "has a deadline that is filed too late" : NULL;
}

static rad_status keep_check(void *self, const radix_tree *t, rad_error *err)
{
    const radix_keep *k = self;
    uint64_t pinned = 0, host_pinned = 0;
    uint32_t depth;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));) {
        pinned += is_pinned_on(&k->records[id], RADIX_DEVICE) ? t->nodes[id].pages : 0;
        host_pinned += is_pinned_on(&k->records[id], RADIX_HOST) ? t->nodes[id].pages : 0;
    }
    if (pinned != k->pinned[RADIX_DEVICE] || pinned > k->max_pinned[RADIX_DEVICE] ||
        host_pinned != k->pinned[RADIX_HOST] || host_pinned > k->max_pinned[RADIX_HOST])
        return rad_fail(
            err, RAD_E_CORRUPT,
            "radix_check: %llu pages are pinned, and %llu on the host; the counters say "
            "%llu of %llu, and %llu of %llu",
            (unsigned long long)pinned, (unsigned long long)host_pinned,
            (unsigned long long)k->pinned[RADIX_DEVICE],
            (unsigned long long)k->max_pinned[RADIX_DEVICE],
            (unsigned long long)k->pinned[RADIX_HOST],
            (unsigned long long)k->max_pinned[RADIX_HOST]);
    if (!heap_check(&k->deadlines))
        return rad_fail(err, RAD_E_CORRUPT, "radix_check: the heap of deadlines is inconsistent");
    return RAD_OK;
}

static const node_part_ops keep_ops = {
    .fini = keep_fini,
    .clear = keep_clear,
    .on_split = keep_on_split,
    .on_merge = keep_on_merge,
    .on_drop = keep_on_drop,
    .on_enter = keep_on_enter,
    .on_cut = keep_on_cut,
    .on_leave = keep_on_leave,
    .on_use = keep_on_use,
    .on_evict = keep_on_evict,
    .rank = keep_rank,
    .equal = keep_equal,
    .fault = keep_fault,
    .check = keep_check,
};

bool keep_init(radix_tree *t, uint64_t max_pinned_pages, uint64_t host_max_pinned_pages)
{
    radix_keep *k = &t->keep;
    size_t bytes = ((size_t)t->num_nodes + 1) * sizeof *k->records;
    radix_add_part(t, &keep_ops, k);
    k->max_pinned[RADIX_DEVICE] = max_pinned_pages;
    k->max_pinned[RADIX_HOST] = host_max_pinned_pages;
    k->records = rad_alloc(&t->env, bytes);
    t->metadata_bytes += bytes + heap_bytes(t->num_nodes);
    return k->records && heap_init(&k->deadlines, &t->env, t->num_nodes);
}

/* ---- <radish/retention.h>: the door, and what a RadixCache does ---- */

rad_status rad_cache_pin_prefix(rad_cache *cache, const rad_key *key, uint64_t ttl_ns,
                                uint32_t *pinned_tokens)
{
    uint32_t unused, *result = pinned_tokens ? pinned_tokens : &unused;
    *result = 0;
    if (!cache_key_is_sound(key)) return RAD_E_INVAL;
    CACHE_WITH(cache, pin_prefix);
    if (!cache->ops->pin_prefix) return RAD_E_UNSUPPORTED;
    return cache->ops->pin_prefix(cache, key, ttl_ns, result);
}

rad_status rad_cache_retain_prefix(rad_cache *cache, const rad_key *key, int32_t priority,
                                   uint64_t idle_ns, uint32_t *retained_tokens)
{
    uint32_t unused, *result = retained_tokens ? retained_tokens : &unused;
    *result = 0;
    if (!cache_key_is_sound(key)) return RAD_E_INVAL;
    CACHE_WITH(cache, retain_prefix);
    if (!cache->ops->retain_prefix) return RAD_E_UNSUPPORTED;
    return cache->ops->retain_prefix(cache, key, priority, idle_ns, result);
}

uint64_t rad_cache_pinned_size(const rad_cache *cache)
{
    CACHE_WITH(cache, pinned_size);
    return cache->ops->pinned_size ? cache->ops->pinned_size(cache) : 0;
}

rad_status radix_pin_prefix(rad_cache *cache, const rad_key *key, uint64_t ttl_ns,
                            uint32_t *pinned_tokens)
{
    radix_cache *c = (radix_cache *)cache;
    radix_tree *t = &c->tree;
    if (!t->keep.max_pinned[RADIX_DEVICE]) return RAD_E_UNSUPPORTED;
    keep_on_evict(&t->keep, t);
    uint32_t root = radix_cache_root(c, key), pages = radix_cache_pages(c, key);
    const rad_token *tokens = radix_cache_tokens(c, key);
    if (!root || !pages) return RAD_OK;
    radix_pos pos = radix_walk(t, root, tokens, pages);
    uint32_t host = pos.node; /* whole nodes only, what the host has of them */
    if (ttl_ns) {
        radix_to_tier(t, &pos, RADIX_DEVICE);
        pages = pages_within_budget(t, &pos);
    }
    uint32_t node = node_at(t, root, tokens, &pages);
    *pinned_tokens = pages * cache->page_size;
    if (!ttl_ns) {
        unpin_path(t, node);
        unpin_path(t, host);
        return RAD_OK;
    }
    pin_path(t, node, RADIX_DEVICE, ttl_ns);
    if (!t->host.of) return RAD_OK;
    pin_path(t, node, RADIX_HOST, ttl_ns);
    pin_path(t, host, RADIX_HOST, ttl_ns); /* what the host alone has */
    return RAD_OK;
}

rad_status radix_retain_prefix(rad_cache *cache, const rad_key *key, int32_t priority,
                               uint64_t idle_ns, uint32_t *retained_tokens)
{
    radix_cache *c = (radix_cache *)cache;
    radix_tree *t = &c->tree;
    if (!c->retains) return RAD_E_UNSUPPORTED;
    keep_on_evict(&t->keep, t);
    uint32_t root = radix_cache_root(c, key), pages = radix_cache_pages(c, key);
    uint32_t strength = (uint32_t)RAD_MAX(0, RAD_MIN(priority, 99));
    if (!root || !pages) return RAD_OK;
    uint64_t now = time_now(t);
    uint32_t id = node_at(t, root, radix_cache_tokens(c, key), &pages);
    for (; t->nodes[id].parent; id = t->nodes[id].parent) {
        keep_record *r = &t->keep.records[id];
        if (!strength) {
            end_retention(r);
        } else {
            if (keep_is_stronger(strength, idle_ns, r)) {
                r->retention = strength;
                r->idle_ns = idle_ns;
            }
            r->used = now;
        }
        refile(t, id);
    }
    *retained_tokens = pages * cache->page_size;
    return RAD_OK;
}

uint64_t radix_pinned_size(const rad_cache *cache)
{
    return ((const radix_cache *)cache)->tree.keep.pinned[RADIX_DEVICE] * cache->page_size;
}
