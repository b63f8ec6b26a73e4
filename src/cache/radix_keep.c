/* radix_keep.c - pins and retention.
 *
 * A record raises the key of its node in the heap of leaves; nothing else knows about it,
 * so what is kept is evicted last but is never an obstacle. A key that gets lower must be
 * refiled, and time lowers it without anybody calling: so whatever will end is also filed
 * by its deadline, and before an eviction looks at the heap of leaves, those whose time
 * has come are ended. Hits move deadlines into the future without touching their heap: the
 * cached deadline is early then, and put right when it is reached.
 *
 * Invariant, verified by keep_fault() and radix_check(): the deadline of each record that
 * ends is filed, not later than it is; on each tier the pages of the nodes that are pinned there
 * add up to what its counter says, which is never above its budget. */
#include "cache/radix_keep.h"

#include "cache/radix_tree.h"

size_t keep_bytes(uint32_t num_nodes)
{
    return ((size_t)num_nodes + 1) * sizeof(keep_record) + heap_bytes(num_nodes);
}

bool keep_init(radix_tree *t, uint64_t max_pinned_pages, uint64_t host_max_pinned_pages)
{
    radix_keep *k = &t->keep;
    k->max_pinned = max_pinned_pages;
    k->host_max_pinned = host_max_pinned_pages;
    k->records = rad_alloc(&t->env, ((size_t)t->num_nodes + 1) * sizeof *k->records);
    return k->records && heap_init(&k->deadlines, &t->env, t->num_nodes);
}

void keep_fini(radix_tree *t)
{
    radix_keep *k = &t->keep;
    rad_free(&t->env, k->records, ((size_t)t->num_nodes + 1) * sizeof *k->records);
    heap_fini(&k->deadlines);
    *k = (radix_keep){0};
}

void keep_clear(radix_tree *t)
{
    radix_keep *k = &t->keep;
    if (!k->records) return;
    memset(k->records, 0, ((size_t)t->num_nodes + 1) * sizeof *k->records);
    heap_clear(&k->deadlines);
    k->pinned = k->host_pinned = 0;
}

heap_key keep_rank(const keep_record *r, keep_tier tier)
{
    return (heap_key)((r->pinned_on & tier) != 0) << 95 | (heap_key)r->retention
                                                              << EVICT_POLICY_BITS;
}

static uint64_t *pinned_of(radix_keep *k, keep_tier tier)
{
    return tier == KEEP_ON_DEVICE ? &k->pinned : &k->host_pinned;
}

/* How many more pages may be pinned on the tier. */
static uint64_t room(const radix_keep *k, keep_tier tier)
{
    return tier == KEEP_ON_DEVICE ? k->max_pinned - k->pinned : k->host_max_pinned - k->host_pinned;
}

static bool is_on(const radix_tree *t, uint32_t node, keep_tier tier)
{
    return tier == KEEP_ON_DEVICE ? radix_on_device(t, node) : radix_on_host(t, node);
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
    if (r->pinned_on & KEEP_ON_DEVICE) t->keep.pinned -= t->nodes[node].pages;
    if (r->pinned_on & KEEP_ON_HOST) t->keep.host_pinned -= t->nodes[node].pages;
    r->pin_ttl = r->pin_until = 0;
    r->pinned_on = 0;
}

/* The node's pin counts on this tier as well, if its pages there are within the budget. */
static void pin_on(radix_tree *t, uint32_t node, keep_tier tier)
{
    keep_record *r = &t->keep.records[node];
    uint32_t pages = t->nodes[node].pages;
    if ((r->pinned_on & tier) || !is_on(t, node, tier) || room(&t->keep, tier) < pages) return;
    *pinned_of(&t->keep, tier) += pages;
    r->pinned_on |= tier;
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

void keep_expire(radix_tree *t)
{
    heap *h = &t->keep.deadlines;
    if (!h->count) return;
    uint64_t now = time_now(t);
    while (h->count && heap_entry_key(&h->entries[0]) <= now) {
        uint32_t node = heap_entry_id(&h->entries[0]);
        expire(t, node, now);
        refile(t, node);
    }
}

void keep_used(radix_tree *t, uint32_t node)
{
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

void keep_split(radix_tree *t, uint32_t upper, uint32_t child)
{
    t->keep.records[upper] = t->keep.records[child];
    refile(t, upper);
}

bool keep_is_stronger(uint32_t priority, uint64_t idle_ns, const keep_record *than)
{
    if (priority != than->retention) return priority > than->retention;
    return idle_ns - 1 > than->idle_ns - 1; /* 0, for good, is the longest */
}

/* Where only one of the two is pinned both are, or none where the budget has no room for that. */
static void merge_pins(radix_keep *k, keep_tier tier, keep_record *u, uint32_t upper_pages,
                       keep_record *l, uint32_t lower_pages)
{
    if (!(u->pinned_on & tier) == !(l->pinned_on & tier)) return;
    bool is_upper = u->pinned_on & tier;
    uint32_t more = is_upper ? lower_pages : upper_pages;
    if (more <= room(k, tier)) {
        *pinned_of(k, tier) += more;
        l->pinned_on |= tier;
    } else {
        *pinned_of(k, tier) -= is_upper ? upper_pages : lower_pages;
        l->pinned_on &= ~(uint32_t)tier;
    }
}

void keep_merge(radix_tree *t, uint32_t upper, uint32_t upper_pages, uint32_t lower,
                uint32_t lower_pages)
{
    radix_keep *k = &t->keep;
    keep_record *u = &k->records[upper], *l = &k->records[lower];
    merge_pins(k, KEEP_ON_DEVICE, u, upper_pages, l, lower_pages);
    merge_pins(k, KEEP_ON_HOST, u, upper_pages, l, lower_pages);
    l->pin_ttl = l->pinned_on ? RAD_MAX(l->pin_ttl, u->pin_ttl) : 0;
    l->pin_until = l->pinned_on ? RAD_MAX(l->pin_until, u->pin_until) : 0;
    if (u->retention && keep_is_stronger(u->retention, u->idle_ns, l)) {
        l->retention = u->retention;
        l->idle_ns = u->idle_ns;
    }
    l->used = RAD_MAX(l->used, u->used);
    keep_drop(t, upper);
    refile(t, lower);
}

void keep_cut(radix_tree *t, uint32_t node, keep_tier tier, uint32_t pages)
{
    if (t->keep.records[node].pinned_on & tier) *pinned_of(&t->keep, tier) -= pages;
}

void keep_enter(radix_tree *t, uint32_t node, keep_tier tier)
{
    if (!t->keep.records[node].pin_ttl) return;
    pin_on(t, node, tier);
    radix_refile(t, node);
}

void keep_leave(radix_tree *t, uint32_t node, keep_tier tier)
{
    keep_record *r = &t->keep.records[node];
    if (!(r->pinned_on & tier)) return;
    r->pinned_on &= ~(uint32_t)tier;
    if (!r->pinned_on) r->pin_ttl = r->pin_until = 0;
    refile(t, node);
}

void keep_drop(radix_tree *t, uint32_t node)
{
    t->keep.records[node] = (keep_record){0};
    heap_remove(&t->keep.deadlines, node);
}

bool keep_equal(const radix_tree *t, uint32_t a, uint32_t b)
{
    return memcmp(&t->keep.records[a], &t->keep.records[b], sizeof(keep_record)) == 0;
}

/* The node at which the first num_pages pages of the key end on the device: split off where they
 * end inside of one. *num_pages shrinks to what is there, and to whole nodes when there is no node
 * to split with. The access times stay. */
static uint32_t node_at(radix_tree *t, uint32_t root, const rad_token *tokens, uint32_t *num_pages)
{
    radix_pos pos = radix_walk(t, root, tokens, *num_pages);
    radix_to_device(t, &pos);
    *num_pages = pos.pages;
    if (!pos.child) return pos.node;
    if (radix_nodes_available(t))
        return radix_split(t, pos.child, pos.part, t->nodes[pos.child].last_access);
    *num_pages -= pos.part;
    return pos.node;
}

static bool is_pinned(const radix_keep *k, uint32_t node)
{
    return k->records[node].pinned_on & KEEP_ON_DEVICE;
}

/* How many of the key's cached pages may be pinned: all, or what the budget leaves. */
static uint32_t pages_within_budget(const radix_tree *t, const radix_pos *pos)
{
    const radix_keep *k = &t->keep;
    uint32_t end = pos->child ? pos->child : pos->node;
    uint32_t end_len = pos->child ? pos->part : t->nodes[end].pages;
    uint64_t total = k->pinned;
    uint32_t len = end_len;
    for (uint32_t id = end; id; id = t->nodes[id].parent, len = t->nodes[id].pages)
        total += is_pinned(k, id) ? 0 : len;
    uint64_t over = total > k->max_pinned ? total - k->max_pinned : 0;
    uint32_t pages = pos->pages;
    len = end_len;
    for (uint32_t id = end; over; id = t->nodes[id].parent, len = t->nodes[id].pages) {
        uint32_t cut = is_pinned(k, id) ? len : (uint32_t)RAD_MIN(over, (uint64_t)len);
        pages -= cut;
        over -= is_pinned(k, id) ? 0 : cut;
    }
    return pages;
}

/* The path to `node` is pinned on a tier, whole nodes, as far from the root as the budget has room
 * for. */
static void pin_path(radix_tree *t, uint32_t node, keep_tier tier, uint64_t ttl_ns)
{
    uint64_t now = time_now(t), missing = 0;
    for (uint32_t id = node; t->nodes[id].parent; id = t->nodes[id].parent)
        if (is_on(t, id, tier) && !(t->keep.records[id].pinned_on & tier))
            missing += t->nodes[id].pages;
    for (uint32_t id = node; t->nodes[id].parent; id = t->nodes[id].parent) {
        keep_record *r = &t->keep.records[id];
        if (!is_on(t, id, tier)) continue;
        if (!(r->pinned_on & tier)) {
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

uint32_t keep_pin(radix_tree *t, uint32_t root, const rad_token *tokens, uint32_t num_pages,
                  uint64_t ttl_ns)
{
    radix_pos pos = radix_walk(t, root, tokens, num_pages);
    uint32_t host = pos.node; /* whole nodes only, what the host has of them */
    if (ttl_ns) {
        radix_to_device(t, &pos);
        num_pages = pages_within_budget(t, &pos);
    }
    uint32_t node = node_at(t, root, tokens, &num_pages);
    if (!ttl_ns) unpin_path(t, node);
    if (!ttl_ns) unpin_path(t, host);
    if (!ttl_ns) return num_pages;
    pin_path(t, node, KEEP_ON_DEVICE, ttl_ns);
    if (t->host.of) pin_path(t, node, KEEP_ON_HOST, ttl_ns);
    if (t->host.of) pin_path(t, host, KEEP_ON_HOST, ttl_ns); /* what the host alone has */
    return num_pages;
}

uint32_t keep_retain(radix_tree *t, uint32_t root, const rad_token *tokens, uint32_t num_pages,
                     uint32_t priority, uint64_t idle_ns)
{
    uint64_t now = time_now(t);
    for (uint32_t id = node_at(t, root, tokens, &num_pages); t->nodes[id].parent;
         id = t->nodes[id].parent) {
        keep_record *r = &t->keep.records[id];
        if (!priority) {
            end_retention(r);
        } else {
            if (keep_is_stronger(priority, idle_ns, r)) {
                r->retention = priority;
                r->idle_ns = idle_ns;
            }
            r->used = now;
        }
        refile(t, id);
    }
    return num_pages;
}

const char *keep_fault(const radix_tree *t, uint32_t node)
{
    const keep_record *r = &t->keep.records[node];
    const heap *h = &t->keep.deadlines;
    uint64_t end = deadline(r);
    if (r->retention > 99) return "is retained with an impossible priority";
    if (!r->pin_ttl != !r->pinned_on) return "is pinned on no tier, or without a time";
    if ((r->pinned_on & KEEP_ON_DEVICE && !radix_on_device(t, node)) ||
        (r->pinned_on & KEEP_ON_HOST && !radix_on_host(t, node)))
        return "is pinned where it has no pages";
    if (!r->retention && (r->idle_ns || r->used)) return "has a retention without a priority";
    if (end == UINT64_MAX) return NULL;
    if (!heap_contains(h, node)) return "has a pin or retention without a deadline";
    return heap_key_of(h, node) > end ? "has a deadline that is filed too late" : NULL;
}
