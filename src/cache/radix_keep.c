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
 * ends is filed, not later than it is; the pages of pinned nodes add up to `pinned`, which
 * is never above the budget. */
#include "cache/radix_keep.h"

#include "cache/radix_tree.h"

size_t keep_bytes(uint32_t num_nodes)
{
    return ((size_t)num_nodes + 1) * sizeof(keep_record) + heap_bytes(num_nodes);
}

bool keep_init(radix_tree *t, uint64_t max_pinned_pages)
{
    radix_keep *k = &t->keep;
    k->max_pinned = max_pinned_pages;
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
    k->pinned = 0;
}

heap_key keep_rank(const keep_record *r)
{
    return (heap_key)(r->pin_ttl != 0) << 95 | (heap_key)r->retention << EVICT_POLICY_BITS;
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
    if (!r->pin_ttl) return;
    t->keep.pinned -= t->nodes[node].pages;
    r->pin_ttl = r->pin_until = 0;
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

void keep_merge(radix_tree *t, uint32_t upper, uint32_t upper_pages, uint32_t lower,
                uint32_t lower_pages)
{
    radix_keep *k = &t->keep;
    keep_record *u = &k->records[upper], *l = &k->records[lower];
    if (!u->pin_ttl != !l->pin_ttl) {
        uint64_t more = u->pin_ttl ? lower_pages : upper_pages;
        if (k->pinned + more > k->max_pinned) {
            k->pinned -= u->pin_ttl ? upper_pages : lower_pages;
            u->pin_ttl = l->pin_ttl = u->pin_until = l->pin_until = 0;
        } else {
            k->pinned += more;
        }
    }
    l->pin_ttl = RAD_MAX(l->pin_ttl, u->pin_ttl);
    l->pin_until = RAD_MAX(l->pin_until, u->pin_until);
    if (u->retention && keep_is_stronger(u->retention, u->idle_ns, l)) {
        l->retention = u->retention;
        l->idle_ns = u->idle_ns;
    }
    l->used = RAD_MAX(l->used, u->used);
    keep_drop(t, upper);
    refile(t, lower);
}

void keep_cut(radix_tree *t, uint32_t node, uint32_t pages)
{
    if (t->keep.records[node].pin_ttl) t->keep.pinned -= pages;
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

/* The node that ends the first num_pages pages of the key, which are in the tree: split
 * off where they end inside of one. *num_pages shrinks to the whole nodes when there is no
 * node to split with. The access times stay. */
static uint32_t node_at(radix_tree *t, uint32_t root, const rad_token *tokens, uint32_t *num_pages)
{
    radix_pos pos = radix_walk(t, root, tokens, *num_pages);
    *num_pages = pos.pages;
    if (!pos.child) return pos.node;
    if (radix_nodes_available(t))
        return radix_split(t, pos.child, pos.part, t->nodes[pos.child].last_access);
    *num_pages -= pos.part;
    return pos.node;
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
        total += k->records[id].pin_ttl ? 0 : len;
    uint64_t over = total > k->max_pinned ? total - k->max_pinned : 0;
    uint32_t pages = pos->pages;
    len = end_len;
    for (uint32_t id = end; over; id = t->nodes[id].parent, len = t->nodes[id].pages) {
        uint32_t cut = k->records[id].pin_ttl ? len : (uint32_t)RAD_MIN(over, (uint64_t)len);
        pages -= cut;
        over -= k->records[id].pin_ttl ? 0 : cut;
    }
    return pages;
}

uint32_t keep_pin(radix_tree *t, uint32_t root, const rad_token *tokens, uint32_t num_pages,
                  uint64_t ttl_ns)
{
    if (ttl_ns) {
        radix_pos pos = radix_walk(t, root, tokens, num_pages);
        num_pages = pages_within_budget(t, &pos);
    }
    uint64_t now = time_now(t);
    for (uint32_t id = node_at(t, root, tokens, &num_pages); t->nodes[id].parent;
         id = t->nodes[id].parent) {
        keep_record *r = &t->keep.records[id];
        if (!ttl_ns) {
            unpin(t, id);
        } else {
            t->keep.pinned += r->pin_ttl ? 0 : t->nodes[id].pages;
            r->pin_ttl = RAD_MAX(r->pin_ttl, ttl_ns);
            r->pin_until = RAD_MAX(r->pin_until, plus(now, ttl_ns));
        }
        refile(t, id);
    }
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
    if (!r->retention && (r->idle_ns || r->used)) return "has a retention without a priority";
    if (end == UINT64_MAX) return NULL;
    if (!heap_contains(h, node)) return "has a pin or retention without a deadline";
    return heap_key_of(h, node) > end ? "has a deadline that is filed too late" : NULL;
}
