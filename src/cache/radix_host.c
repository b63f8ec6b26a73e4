/* radix_host.c - pages of nodes on the host: put, cut, evicted, locked; see the header. */
#include "cache/radix_host.h"

#include "cache/radix_journal.h"
#include "cache/radix_path.h"

/* ---- a part of the tree ---- */

/* One child more of `parent` is on the host, or one less. */
static void count_child(radix_tree *t, uint32_t parent, bool more)
{
    uint32_t *children = &t->host.of[parent].host_children;
    bool is_root = !t->nodes[parent].parent;
    t->host.namespaces += is_root && more && *children == 0;
    *children += more ? 1 : UINT32_MAX;
    t->host.namespaces -= is_root && !more && *children == 0;
}

static void host_fini(void *self, radix_tree *t)
{
    radix_host *h = self;
    rad_free_sparse(&t->env, h->of, ((size_t)t->num_nodes + 1) * sizeof *h->of);
    rad_free(&t->env, h->regions, t->arena_pages * sizeof *h->regions);
    heap_fini(&h->leaves);
}

static void host_clear(void *self, radix_tree *t)
{
    radix_host *h = self;
    (void)t;
    heap_clear(&h->leaves);
    h->evictable = h->locked = h->namespaces = 0;
}

static void host_add(void *self, radix_tree *t, uint32_t leaf)
{
    (void)self;
    t->host.of[leaf] = (radix_tiers){0};
    *radix_host_value(t, leaf) = (radix_value){0};
    t->host.regions[t->nodes[leaf].at] = 0;
}

static void host_split(void *self, radix_tree *t, uint32_t upper, uint32_t child)
{
    radix_tiers *c = &t->host.of[child], *u = &t->host.of[upper];
    radix_value *cv = radix_host_value(t, child), *uv = radix_host_value(t, upper);
    uint32_t at = t->nodes[upper].pages, pages = t->nodes[child].pages;
    rad_page *region = t->host.regions + t->nodes[upper].at;
    (void)self;
    *u = *c;
    u->own = 0; /* locks name the child */
    u->host_children = cv->end != 0;
    u->device_children = c->on_device;
    u->promised = RAD_MIN(c->promised, at);
    c->promised -= u->promised;
    *uv = *cv;
    if (cv->end) {
        page_runs_split(region, at + pages, at);
        uv->end = at;
        cv->end = pages;
    } else {
        region[at] = 0;
    }
    if (!c->on_device) t->regions[t->nodes[child].at] = 0;
}

static void host_merge(void *self, radix_tree *t, uint32_t upper, uint32_t lower)
{
    radix_tiers *u = &t->host.of[upper], *l = &t->host.of[lower];
    uint32_t front = t->nodes[upper].pages, pages = t->nodes[lower].pages;
    (void)self;
    if (radix_host_value(t, lower)->end) {
        page_runs_join(t->host.regions + t->nodes[lower].at, front, pages - front);
        radix_host_value(t, lower)->end = pages;
    }
    l->promised = u->promised < front ? u->promised : front + l->promised;
    heap_remove(&t->host.leaves, upper);
}

/* The key gets shorter: the node is on one tier alone. */
static void host_trim(void *self, radix_tree *t, uint32_t leaf, uint32_t kept)
{
    radix_value *v = radix_host_value(t, leaf);
    (void)self;
    if (kept) v->end = RAD_MIN(v->end, kept); /* else it is dropped as what it was */
    t->host.of[leaf].promised = RAD_MIN(t->host.of[leaf].promised, kept);
}

static void host_drop(void *self, radix_tree *t, uint32_t node)
{
    (void)self;
    if (radix_on_host(t, node)) count_child(t, t->nodes[node].parent, false);
    t->host.of[t->nodes[node].parent].device_children -= t->host.of[node].on_device;
    heap_remove(&t->host.leaves, node);
}

/* The same tiers, and the same locks there. */
static bool host_equal(void *self, const radix_tree *t, uint32_t upper, uint32_t lower)
{
    const radix_value *u = radix_host_value(t, upper), *l = radix_host_value(t, lower);
    (void)self;
    return t->host.of[upper].on_device == t->host.of[lower].on_device && !u->end == !l->end &&
           u->lock_ref == l->lock_ref;
}

static const char *host_fault(void *self, const radix_tree *t, uint32_t node)
{
    (void)self;
    return radix_host_fault(t, node);
}

static rad_status host_check(void *self, const radix_tree *t, rad_error *err)
{
    const radix_host *h = self;
    uint64_t evictable = 0, locked = 0;
    uint32_t depth, spaces = 0;
    for (uint32_t ns = t->names.newest; ns; ns = t->names.entries[ns].older)
        spaces += t->host.of[t->names.entries[ns].root].host_children != 0;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));)
        *(radix_host_value(t, id)->lock_ref ? &locked : &evictable) += radix_host_value(t, id)->end;
    if (spaces != h->namespaces || evictable != h->evictable || locked != h->locked)
        return rad_fail(err, RAD_E_CORRUPT,
                        "radix_check: on the host %u namespaces, %llu evictable and %llu locked "
                        "pages; the counters say %u, %llu, %llu",
                        spaces, (unsigned long long)evictable, (unsigned long long)locked,
                        h->namespaces, (unsigned long long)h->evictable,
                        (unsigned long long)h->locked);
    if (!heap_check(&h->leaves))
        return rad_fail(err, RAD_E_CORRUPT, "radix_check: the heap of host leaves is inconsistent");
    return RAD_OK;
}

static const node_part_ops host_part = {
    .fini = host_fini,
    .clear = host_clear,
    .on_add = host_add,
    .on_split = host_split,
    .on_merge = host_merge,
    .on_trim = host_trim,
    .on_drop = host_drop,
    .equal = host_equal,
    .can_merge = host_equal,
    .fault = host_fault,
    .check = host_check,
};

rad_status radix_host_init(radix_tree *t)
{
    radix_host *h = &t->host;
    size_t nodes = (size_t)t->num_nodes + 1, arena = t->arena_pages;
    h->policy = evict_policy_of(t->limits.host_eviction.policy);
    radix_add_part(t, &host_part, h);
    h->of = rad_alloc_sparse(&t->env, rad_mul(nodes, sizeof *h->of));
    h->regions = rad_alloc(&t->env, rad_mul(arena, sizeof *h->regions));
    rad_status status = radix_add_values(t, RADIX_FULL, RADIX_HOST);
    if (!heap_init(&h->leaves, &t->env, t->num_nodes) || !h->of || !h->regions || status)
        return RAD_E_NOMEM;
    t->metadata_bytes += nodes * sizeof *h->of + arena * sizeof *h->regions +
                         heap_bytes(t->num_nodes);
    return RAD_OK;
}

void radix_host_add_root(radix_tree *t, uint32_t root)
{
    t->host.of[root] = (radix_tiers){.on_device = 1};
    *radix_host_value(t, root) = (radix_value){.end = 1}; /* of no page, but there */
}

static bool can_shift(const radix_tree *t, uint32_t upper, uint32_t lower, bool host_goes)
{
    const radix_node *u = &t->nodes[upper], *l = &t->nodes[lower];
    for (uint32_t i = 0; i < t->num_parts; i++) {
        const node_part_ops *ops = t->parts[i].ops;
        if (ops != &host_part && ops->equal && !ops->equal(t->parts[i].self, t, upper, lower))
            return false;
    }
    return u->num_children == 1 && u->span == l->span && u->lock_ref == l->lock_ref &&
           u->hit_count == l->hit_count && u->priority == l->priority && !t->cold[upper].own &&
           !t->host.of[upper].own && !t->num_components &&
           radix_host_locks(t, upper) == radix_host_locks(t, lower) &&
           (host_goes ? !radix_on_host(t, lower) : !radix_on_device(t, lower));
}

bool radix_host_shift(radix_tree *t, uint32_t node, uint32_t kept, bool host_goes)
{
    radix_node *u = &t->nodes[node];
    uint32_t lower = u->first_child, front = u->pages;
    radix_node *l = &t->nodes[lower];
    if (!lower || !can_shift(t, node, lower, host_goes)) return false;
    rad_page *gone = (host_goes ? t->host.regions : t->regions) + u->at;
    rad_page *stays = (host_goes ? t->regions : t->host.regions) + u->at;
    page_runs_cut(gone, kept);
    gone[kept] = 0;
    page_runs_shift(stays, front, l->pages, kept);

    bool filed = map_remove(&t->children, l->hash, lower);
    RAD_ASSERT_ENV(&t->env, filed);
    l->at = u->at + kept;
    l->pages += front - kept;
    u->pages = kept;
    l->hash = radix_child_hash(t, node, radix_tokens(t, l), l->lead);
    map_insert(&t->children, l->hash, lower);
    l->last_access = RAD_MAX(l->last_access, u->last_access);
    radix_tiers *tu = &t->host.of[node], *tl = &t->host.of[lower];
    radix_host_value(t, node)->end = tu->promised = kept;
    if (!host_goes) radix_host_value(t, lower)->end = tl->promised = l->pages;
    if (host_goes) tl->promised = 0;
    RADIX_TELL(t, on_shift, node, lower);
    radix_refile_used(t, node);
    radix_refile_used(t, lower);
    return true;
}

/* ---- leaves ---- */

void radix_host_consider_leaf(radix_tree *t, uint32_t node)
{
    if (!radix_is_evictable_host_leaf(t, node)) return;
    if (!heap_contains(&t->host.leaves, node))
        heap_push(&t->host.leaves, node, radix_leaf_key(t, node, RADIX_HOST));
    else
        radix_refile(t, node);
}

/* ---- pages come and go ---- */

void radix_host_put(radix_tree *t, uint32_t node, const rad_page *pages)
{
    const radix_node *n = &t->nodes[node];
    radix_value *v = radix_host_value(t, node);
    rad_page *region = t->host.regions + n->at;
    kv_run runs[PAGE_RUNS];
    RAD_ASSERT_ENV(&t->env, !v->end && radix_on_host(t, n->parent));
    uint32_t num_runs = page_runs_find(pages ? pages : region, n->pages, 1, runs);
    if (num_runs)
        page_runs_put(region, n->pages, runs, num_runs);
    else if (pages)
        memcpy(region, pages, n->pages * sizeof *region);
    v->end = n->pages;
    t->host.of[node].promised = n->pages;
    count_child(t, n->parent, true);
    *(v->lock_ref ? &t->host.locked : &t->host.evictable) += n->pages;
    radix_host_consider_leaf(t, node);
    RADIX_TELL(t, on_enter, node, RADIX_HOST);
}

void radix_leave_host(radix_tree *t, uint32_t node)
{
    radix_host_value(t, node)->end = 0;
    t->host.of[node].promised = 0;
    count_child(t, t->nodes[node].parent, false);
    t->host.regions[t->nodes[node].at] = 0;
    heap_remove(&t->host.leaves, node);
    RADIX_TELL(t, on_leave, node, RADIX_HOST);
}

static uint32_t trim(radix_tree *t, uint32_t leaf, uint64_t num_pages)
{
    uint32_t count = radix_trim(t, leaf, RADIX_HOST, num_pages, t->host.drop, t->host.user);
    t->host.evicted += count;
    return count;
}

uint64_t radix_host_evict(radix_tree *t, uint64_t num_pages)
{
    uint64_t done = 0;
    bool asked = t->journal && t->journal->asked;
    radix_before_eviction(t);
    if (t->journal) t->journal->asked = true;
    for (uint32_t leaf; done < num_pages && (leaf = radix_coldest_leaf(t, RADIX_HOST));)
        done += trim(t, leaf, num_pages - done);
    if (t->journal) t->journal->asked = asked;
    return done;
}

void radix_host_drop_leaf(radix_tree *t, uint32_t leaf)
{
    trim(t, leaf, t->nodes[leaf].pages);
}

void radix_host_clear(radix_tree *t)
{
    uint64_t evicted = t->host.evicted;
    if (t->journal) t->journal->muted = true; /* nothing of it is told as an eviction */
    RAD_ASSERT_ENV(&t->env, !t->host.locked);
    (void)radix_host_evict(t, UINT64_MAX);
    t->host.evicted = evicted;
    if (!t->journal) return;
    t->journal->muted = false;
    radix_journal_cleared(t->journal, false, true);
}

/* ---- locks ---- */

void radix_host_lock(radix_tree *t, uint32_t node)
{
    RAD_ASSERT_ENV(&t->env, radix_on_host(t, node));
    t->host.of[node].own++;
    for (uint32_t id = node; id; id = t->nodes[id].parent) {
        bool first = radix_host_value(t, id)->lock_ref++ == 0;
        if (!first) continue;
        t->host.evictable -= t->nodes[id].pages;
        t->host.locked += t->nodes[id].pages;
        t->unlocked_nodes -= t->nodes[id].parent && !t->nodes[id].lock_ref;
    }
}

void radix_host_unlock(radix_tree *t, uint32_t node)
{
    RAD_ASSERT_ENV(&t->env, t->host.of[node].own > 0);
    t->host.of[node].own--;
    for (uint32_t id = node; id; id = t->nodes[id].parent) {
        RAD_ASSERT_ENV(&t->env, radix_host_value(t, id)->lock_ref > 0);
        bool last = --radix_host_value(t, id)->lock_ref == 0;
        if (!last) continue;
        t->host.evictable += t->nodes[id].pages;
        t->host.locked -= t->nodes[id].pages;
        t->unlocked_nodes += t->nodes[id].parent && !t->nodes[id].lock_ref;
    }
    radix_host_consider_leaf(t, node); /* the nodes above have a child */
}

/* ---- paths ---- */

radix_covered radix_host_covered(const radix_tree *t, uint32_t node, uint32_t depth)
{
    radix_path p = radix_path_of(t, node, depth);
    uint32_t promised = 0;
    bool all = false; /* the nodes below the one it is at are promised up to `promised` */
    for (; !radix_on_host(t, p.node); radix_path_up(t, &p)) {
        if (t->host.of[p.node].promised < t->nodes[p.node].pages || !all)
            promised = p.begin + t->host.of[p.node].promised;
        all = true;
    }
    return (radix_covered){.on_host = p.end, .promised = all ? promised : p.end, .node = p.node};
}

void radix_host_promise(radix_tree *t, uint32_t node, uint32_t depth, uint32_t end)
{
    for (radix_path p = radix_path_of(t, node, depth); !radix_on_host(t, p.node);
         radix_path_up(t, &p)) {
        if (p.begin >= end) continue;
        uint32_t pages = RAD_MIN(end - p.begin, t->nodes[p.node].pages);
        t->host.of[p.node].promised = RAD_MAX(t->host.of[p.node].promised, pages);
    }
}

void radix_host_unpromise(radix_tree *t, uint32_t node, uint32_t depth, uint32_t begin)
{
    for (radix_path p = radix_path_of(t, node, depth); !radix_on_host(t, p.node) && p.end > begin;
         radix_path_up(t, &p)) {
        uint32_t pages = begin > p.begin ? begin - p.begin : 0;
        t->host.of[p.node].promised = RAD_MIN(t->host.of[p.node].promised, pages);
    }
}

uint32_t radix_host_fill(radix_tree *t, uint32_t node, uint32_t depth, uint32_t begin,
                         const rad_page *pages, uint32_t count, uint32_t *last,
                         uint32_t *last_depth)
{
    uint32_t id = node, start = depth, done = 0;
    *last = *last_depth = 0;
    for (uint32_t below = 0;; below = id, id = t->nodes[id].parent) {
        start -= t->nodes[id].pages;
        t->host.of[id].below = below;
        if (start <= begin) break;
    }
    for (uint32_t len; done < count && id; start += len, id = t->host.of[id].below) {
        uint32_t from = begin + done - start;
        len = t->nodes[id].pages;
        uint32_t part = RAD_MIN(len - from, count - done);
        if (radix_on_host(t, id)) { /* somebody else's copy came first */
            t->host.drop(t->host.user, pages + done, NULL, part);
            done += part;
            *last = id;
            *last_depth = start + len;
            continue;
        }
        if (from || !radix_on_host(t, t->nodes[id].parent)) break; /* a gap before it */
        uint32_t to = id;
        if (part < len) {
            if (!radix_nodes_available(t)) break;
            to = radix_split(t, id, part, t->nodes[id].last_access);
        }
        radix_host_put(t, to, pages + done);
        done += part;
        *last = to;
        *last_depth = begin + done;
        radix_rejoin(t, t->nodes[to].parent); /* with what the write before it brought */
        if (to != id) break;                  /* that was the last of them */
    }
    return done;
}

void radix_path_pages(const radix_tree *t, bool host, uint32_t node, uint32_t depth, uint32_t first,
                      uint32_t count, rad_page *pages)
{
    const rad_page *regions = radix_regions(t, host ? RADIX_HOST : RADIX_DEVICE);
    uint32_t left = first + count; /* from the back: pages [first, left) */
    RAD_ASSERT_ENV(&t->env, left <= depth);
    for (radix_path p = radix_path_of(t, node, depth); left > first; radix_path_up(t, &p)) {
        uint32_t from = RAD_MAX(p.begin, first);
        if (from >= left) continue;
        page_runs_expand(regions + t->nodes[p.node].at, from - p.begin, left - from, 1,
                         pages + (from - first));
        left = from;
    }
}

uint32_t radix_path_unit(const radix_tree *t, uint32_t node, uint32_t depth, uint32_t at)
{
    radix_path p = radix_path_of(t, node, depth);
    RAD_ASSERT_ENV(&t->env, at < depth);
    while (p.begin > at)
        radix_path_up(t, &p);
    return t->nodes[p.node].at + at - p.begin;
}

const char *radix_host_fault(const radix_tree *t, uint32_t node)
{
    const radix_tiers *tiers = &t->host.of[node];
    const radix_value *v = radix_host_value(t, node);
    const radix_node *n = &t->nodes[node];
    uint64_t locks = 0, host = 0, device = 0;
    if (!tiers->on_device && !v->end) return "is on no tier";
    for (uint32_t c = n->first_child; c; c = t->nodes[c].next) {
        locks += radix_host_value(t, c)->lock_ref;
        host += radix_on_host(t, c);
        device += t->host.of[c].on_device;
    }
    if (host != tiers->host_children || device != tiers->device_children)
        return "miscounts its children on a tier";
    if ((host && !v->end) || (device && !tiers->on_device)) return "has a gap above it on a tier";
    if (locks + tiers->own != v->lock_ref) return "has other host locks than were taken";
    if (v->lock_ref && !v->end) return "is locked on the host and not there";
    if (n->lock_ref && !tiers->on_device) return "is locked on the device and not there";
    if (!n->parent) return NULL;
    if (v->first || (v->end && v->end != n->pages)) return "has a part of its pages on the host";
    if (tiers->promised > n->pages || (v->end && tiers->promised != n->pages))
        return "promises other pages than it has";
    const rad_page *region = t->host.regions + n->at;
    if (v->end ? !page_runs_check(region, n->pages) : region[0] != 0)
        return "miscounts its runs of host pages";
    if (!tiers->on_device && t->regions[n->at] != 0) return "has a region of pages that it has not";
    if (!radix_is_evictable_host_leaf(t, node)) return NULL;
    if (!heap_contains(&t->host.leaves, node))
        return "is evictable on the host and not in the heap";
    heap_key cached = heap_key_of(&t->host.leaves, node), key = radix_leaf_key(t, node, RADIX_HOST);
    if (t->host.policy->grows ? cached > key : cached != key)
        return "has a wrong key in the host's heap";
    return NULL;
}
