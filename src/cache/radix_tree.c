/* radix_tree.c - the tree's memory, and how it splits, grows, merges and shrinks.
 *
 * A node's tokens and pages lie in two arenas under one offset, so a split is two
 * offsets into one counted span and copies nothing:
 *
 *     before   span 5: | a b c d e f g h |      node 7 = [a..h]
 *     after            | a b c | d e f g h |    node 9 = [a b c] -> node 7 = [d..h]
 *
 * The pages are mostly kept as runs (page_runs.h), which a split shares out between the two.
 *
 * `child` stays the deep half, so every receipt that names it stays right.
 *
 * Invariants, verified by radix_check(): a span's users lie in it without gap from its
 * first unit to its last, each the parent of the next; so the deepest is at the end,
 * and evicting suffixes first shrinks spans from their ends. */
#include "cache/radix_tree.h"

#include "cache/radix_host.h"
#include "cache/radix_tags.h"
#include "cache/radix_worth.h"

/* A key is as long as the longer of its tiers' pages, so those of all keys are at most as many as
 * the tiers' pages. */
static uint32_t arena_pages(const radix_limits *l)
{
    uint64_t pages = (uint64_t)l->max_pages + l->host_pages;
    return (uint32_t)RAD_MIN(pages + pages / 16 + 16, UINT32_MAX);
}

/* A span for each node, and one more while two are joined. */
static uint32_t max_spans(const radix_limits *l)
{
    return l->max_nodes + 1;
}

static uint64_t metadata_bytes(const radix_tree *t)
{
    uint64_t arena = t->arena_pages;
    return ((uint64_t)t->num_nodes + 1) * (sizeof(radix_node) + sizeof(radix_cold)) +
           slab_bytes(t->num_nodes) + map_bytes(t->limits.max_nodes) + heap_bytes(t->num_nodes) +
           namespaces_bytes(t->limits.max_namespaces) + span_arena_bytes(max_spans(&t->limits)) +
           arena * (t->limits.page_size * sizeof(rad_token) + sizeof(rad_page));
}

rad_status radix_tree_init(radix_tree *t, const rad_env *env, const radix_limits *limits)
{
    *t = (radix_tree){
        .env = *env, .limits = *limits, .policy = evict_policy_of(limits->eviction.policy)};
    t->num_nodes = limits->max_nodes + limits->max_namespaces;
    uint32_t ps = limits->page_size;
    t->shift = (ps & (ps - 1)) == 0 ? (uint32_t)__builtin_ctz(ps) : 32;

    hash_key_init(&t->key, env);
    t->arena_pages = arena_pages(limits);
    size_t nodes = (size_t)t->num_nodes + 1, arena = t->arena_pages;
    t->nodes = rad_alloc_sparse(env, rad_mul(nodes, sizeof *t->nodes));
    t->cold = rad_alloc_sparse(env, rad_mul(nodes, sizeof *t->cold));
    t->tokens = rad_alloc(env, rad_mul(rad_mul(arena, ps), sizeof *t->tokens));
    t->regions = rad_alloc(env, rad_mul(arena, sizeof *t->regions));
    if (!t->nodes || !t->cold || !t->tokens || !t->regions) return RAD_E_NOMEM;
    if (!slab_init(&t->ids, env, t->num_nodes) || !map_init(&t->children, env, limits->max_nodes) ||
        !heap_init(&t->leaves, env, t->num_nodes) ||
        !namespaces_init(&t->names, env, limits->max_namespaces) ||
        !span_arena_init(&t->spans, env, (uint32_t)arena, max_spans(limits)))
        return RAD_E_NOMEM;
    map_keep_small(&t->children);
    t->watches = !t->policy->grows;
    t->metadata_bytes = metadata_bytes(t);
    bool cost = t->policy->wants_worth;
    bool host_cost = limits->host_pages &&
                     evict_policy_of(limits->host_eviction.policy)->wants_worth;
    if (cost || host_cost) { /* heat is the node's, so it has one half-life: the device's first */
        uint64_t part = cost ? (uint64_t)limits->max_pages * limits->eviction.cost_half_life_percent
                             : (uint64_t)limits->host_pages *
                                   limits->host_eviction.cost_half_life_percent;
        if (!worth_init(t, part / 100)) return RAD_E_NOMEM;
    }
    if (limits->keeps && !keep_init(t, limits->max_pinned_pages, limits->host_max_pinned_pages))
        return RAD_E_NOMEM;
    if (limits->max_sessions && !tags_init(t, limits->max_sessions)) return RAD_E_NOMEM;
    if (!limits->host_pages) return RAD_OK;
    rad_status status = radix_host_init(t);
    t->watches = t->watches || !t->host.policy->grows;
    return status;
}

void radix_tree_fini(radix_tree *t)
{
    size_t nodes = (size_t)t->num_nodes + 1, arena = t->arena_pages;
    for (uint32_t i = 0; i < t->num_parts; i++)
        if (t->parts[i].ops->fini) t->parts[i].ops->fini(t->parts[i].self, t);
    for (int kind = 0; kind < RADIX_KINDS; kind++)
        for (int tier = 0; tier < RADIX_TIERS; tier++)
            rad_free_sparse(&t->env, t->values[kind][tier], nodes * sizeof(radix_value));
    rad_free_sparse(&t->env, t->nodes, nodes * sizeof *t->nodes);
    rad_free_sparse(&t->env, t->cold, nodes * sizeof *t->cold);
    rad_free(&t->env, t->tokens, arena * t->limits.page_size * sizeof *t->tokens);
    rad_free(&t->env, t->regions, arena * sizeof *t->regions);
    slab_fini(&t->ids);
    map_fini(&t->children);
    heap_fini(&t->leaves);
    namespaces_fini(&t->names);
    span_arena_fini(&t->spans);
}

void radix_add_part(radix_tree *t, const node_part_ops *ops, void *self)
{
    RAD_ASSERT_ENV(&t->env, t->num_parts < RADIX_PARTS && !t->ids.num_live);
    t->parts[t->num_parts++] = (node_part){ops, self};
    t->watches = t->watches || ops->on_use || ops->rank;
}

rad_status radix_add_values(radix_tree *t, radix_kind kind, radix_tier tier)
{
    size_t bytes = ((size_t)t->num_nodes + 1) * sizeof(radix_value);
    RAD_ASSERT_ENV(&t->env, !t->values[kind][tier] && !t->ids.num_live);
    t->values[kind][tier] = rad_alloc_sparse(&t->env, bytes);
    if (!t->values[kind][tier]) return RAD_E_NOMEM;
    t->metadata_bytes += bytes;
    return RAD_OK;
}

rad_status radix_add_component(radix_tree *t, const radix_component_ops *ops, void *self)
{
    radix_add_part(t, &ops->part, self);
    t->components[t->num_components++] = (radix_component){ops, self};
    return radix_add_values(t, ops->kind, RADIX_DEVICE);
}

void radix_clear(radix_tree *t)
{
    for (uint32_t id = 1; id <= t->ids.num_fresh; id++)
        if (slab_is_live(&t->ids, id)) slab_free(&t->ids, id);
    while (t->names.oldest)
        namespace_remove(&t->names, t->names.oldest);
    map_clear(&t->children);
    map_keep_small(&t->children);
    heap_clear(&t->leaves);
    span_arena_clear(&t->spans);
    for (uint32_t i = 0; i < t->num_parts; i++)
        if (t->parts[i].ops->clear) t->parts[i].ops->clear(t->parts[i].self, t);
    t->evictable = t->locked = t->unlocked_nodes = 0;
}

/* `node` takes the place of `old` among the children of old's parent. */
static void take_place(radix_tree *t, uint32_t node, uint32_t old)
{
    radix_node *n = &t->nodes[node], *o = &t->nodes[old];
    bool filed = map_replace(&t->children, o->hash, old, node);
    RAD_ASSERT_ENV(&t->env, filed);
    n->hash = o->hash;
    n->parent = o->parent;
    n->prev = o->prev;
    n->next = o->next;
    *(n->prev ? &t->nodes[n->prev].next : &t->nodes[n->parent].first_child) = node;
    if (n->next) t->nodes[n->next].prev = node;
}

static void hang(radix_tree *t, uint32_t node, uint32_t parent)
{
    radix_node *n = &t->nodes[node], *p = &t->nodes[parent];
    n->parent = parent;
    n->prev = 0;
    n->next = p->first_child;
    if (n->next) t->nodes[n->next].prev = node;
    p->first_child = node;
    p->num_children++;
    n->hash = radix_child_hash(t, parent, radix_tokens(t, n), n->lead);
    map_insert(&t->children, n->hash, node);
}

static uint32_t new_node(radix_tree *t)
{
    uint32_t id = slab_alloc(&t->ids);
    RAD_ASSERT_ENV(&t->env, id != 0);
    t->nodes[id] = (radix_node){0};
    t->cold[id] = (radix_cold){.created = t->clock};
    return id;
}

uint32_t radix_split(radix_tree *t, uint32_t child, uint32_t at, uint64_t touched)
{
    radix_node *c = &t->nodes[child];
    RAD_ASSERT_ENV(&t->env, at > 0 && at < c->pages);
    uint32_t upper = new_node(t);
    radix_node *u = &t->nodes[upper];
    *u = *c;
    t->cold[upper] = (radix_cold){.created = t->cold[child].created}; /* locks name the child */
    u->pages = at;
    u->num_children = u->first_child = 0;
    u->last_access = touched;
    take_place(t, upper, child);
    c->lead = 0;
    span_ref(&t->spans, c->span);
    if (radix_on_device(t, child)) page_runs_split(t->regions + c->at, c->pages, at);
    c->at += at;
    c->pages -= at;
    hang(t, child, upper);
    RADIX_TELL(t, on_split, upper, child);
    radix_refile_used(t, child);
    t->unlocked_nodes += radix_is_unlocked(t, upper);
    t->splits++;
    return upper;
}

uint32_t radix_add_root(radix_tree *t, const char *extra_key, const char *cache_salt)
{
    uint32_t root = new_node(t);
    t->nodes[root].ns = namespace_add(&t->names, extra_key, cache_salt, root);
    if (t->host.of) radix_host_add_root(t, root);
    return root;
}

void radix_drop_root_if_empty(radix_tree *t, uint32_t root)
{
    radix_node *r = &t->nodes[root];
    if (r->num_children || !radix_is_unlocked(t, root)) return;
    namespace_remove(&t->names, r->ns);
    slab_free(&t->ids, root);
}

static void move_pages(void *user, uint32_t to, uint32_t from, uint32_t len)
{
    radix_tree *t = user;
    size_t ps = t->limits.page_size;
    memmove(t->tokens + to * ps, t->tokens + from * ps, len * ps * sizeof *t->tokens);
    page_runs_move(&t->env, t->regions + to, t->regions + from, len);
    if (t->host.of) page_runs_move(&t->env, t->host.regions + to, t->host.regions + from, len);
    RADIX_TELL(t, on_move, to, from, len);
}

uint32_t radix_alloc_run(radix_tree *t, uint32_t pages)
{
    uint32_t span = span_alloc(&t->spans, pages);
    if (span || pages > t->spans.free_units) return span;
    /* More than is needed now, so that the next few find room without another pass. */
    span_compact(&t->spans, RAD_MAX(pages, t->spans.free_units / 4), move_pages, t);
    for (uint32_t id = 1; id <= t->ids.num_fresh; id++)
        if (slab_is_live(&t->ids, id) && t->nodes[id].span)
            t->nodes[id].at -= span_moved(&t->spans, t->nodes[id].span);
    return span_alloc(&t->spans, pages);
}

uint32_t radix_new_leaf(radix_tree *t, uint32_t parent, const rad_token *tokens, uint32_t num_pages,
                        int32_t priority)
{
    size_t ps = t->limits.page_size;
    /* The span first: finding it may compact the arena, which moves every node that has a span. */
    uint32_t span = radix_alloc_run(t, num_pages), id = new_node(t);
    RAD_ASSERT_ENV(&t->env, span != 0);
    radix_node *n = &t->nodes[id];
    n->span = span;
    n->at = t->spans.spans[span].at;
    n->pages = num_pages;
    n->priority = priority;
    n->ns = t->nodes[parent].ns;
    n->lead = radix_first_lead(t, parent, tokens);
    n->last_access = t->clock;
    memcpy(t->tokens + n->at * ps, tokens, num_pages * ps * sizeof *tokens);
    t->regions[n->at] = 0; /* a tier that the node is not on has a plain region: see radix_host.h */
    hang(t, id, parent);   /* hashes the tokens, so they and the lead are in place */
    t->unlocked_nodes++;
    RADIX_TELL(t, on_add, id);
    return id;
}

static void put_pages(radix_tree *t, uint32_t node, const rad_slot *slots, const kv_run *runs,
                      uint32_t num_runs)
{
    const radix_node *n = &t->nodes[node];
    size_t ps = t->limits.page_size;
    if (num_runs)
        page_runs_put(t->regions + n->at, n->pages, runs, num_runs);
    else if (ps == 1)
        memcpy(t->regions + n->at, slots, n->pages * sizeof *slots);
    else
        for (uint32_t i = 0; i < n->pages; i++)
            t->regions[n->at + i] = radix_page_of(t, slots[i * ps]);
}

/* The node's device pages are there: counts them. Nobody on the device hangs below it. */
static void enter_device(radix_tree *t, uint32_t node)
{
    t->evictable += t->nodes[node].pages;
    if (t->host.of) {
        t->host.of[node].on_device = 1;
        t->host.of[t->nodes[node].parent].device_children++;
    }
    radix_consider_leaf(t, node); /* behind the counts: they say whether it is a leaf */
    RADIX_TELL(t, on_enter, node, RADIX_DEVICE);
}

uint32_t radix_add_leaf(radix_tree *t, uint32_t parent, const rad_token *tokens,
                        const rad_slot *slots, uint32_t num_pages, const kv_run *runs,
                        uint32_t num_runs, int32_t priority)
{
    uint32_t id = radix_new_leaf(t, parent, tokens, num_pages, priority);
    put_pages(t, id, slots, runs, num_runs);
    enter_device(t, id);
    return id;
}

void radix_adopt(radix_tree *t, uint32_t node, uint32_t pages, const rad_slot *slots)
{
    uint32_t ps = t->limits.page_size, top = node, left = pages;
    for (uint32_t id = node, below = 0; left; below = id, id = t->nodes[id].parent) {
        RAD_ASSERT_ENV(&t->env, !radix_on_device(t, id) && t->nodes[id].pages <= left);
        left -= t->nodes[id].pages;
        t->host.of[id].below = below;
        top = id;
    }
    for (uint32_t id = top; id; id = t->host.of[id].below) { /* a parent's event comes first */
        kv_run runs[PAGE_RUNS];
        uint32_t count = t->nodes[id].pages, num_runs = page_runs_find(slots, count, ps, runs);
        if (t->worth) worth_pages_came(t, count);
        put_pages(t, id, slots, runs, num_runs);
        enter_device(t, id);
        slots += (size_t)count * ps;
    }
}

void radix_leave_device(radix_tree *t, uint32_t node)
{
    radix_node *n = &t->nodes[node];
    t->host.of[node].on_device = 0;
    t->host.of[n->parent].device_children--;
    t->regions[n->at] = 0;
    heap_remove(&t->leaves, node);
    RADIX_TELL(t, on_leave, node, RADIX_DEVICE);
}

void radix_leave_span(radix_tree *t, uint32_t id, uint32_t at, uint32_t pages)
{
    const span_run *s = &t->spans.spans[id];
    if (s->refs > 1) {
        if (at + pages == s->at + s->len)
            span_cut_tail(&t->spans, id, pages);
        else
            span_cut_head(&t->spans, id, pages);
    }
    span_unref(&t->spans, id);
}

void radix_unhook(radix_tree *t, uint32_t node)
{
    radix_node *n = &t->nodes[node];
    RAD_ASSERT_ENV(&t->env, !n->num_children && n->parent);
    bool filed = map_remove(&t->children, n->hash, node);
    RAD_ASSERT_ENV(&t->env, filed);
    *(n->prev ? &t->nodes[n->prev].next : &t->nodes[n->parent].first_child) = n->next;
    if (n->next) t->nodes[n->next].prev = n->prev;
    t->nodes[n->parent].num_children--;
    t->unlocked_nodes -= radix_is_unlocked(t, node);
    heap_remove(&t->leaves, node);
    RADIX_TELL(t, on_drop, node);
    slab_free(&t->ids, node);
}

bool radix_merge(radix_tree *t, uint32_t upper, uint32_t lower)
{
    radix_node *u = &t->nodes[upper], *l = &t->nodes[lower];
    uint32_t lower_pages = l->pages, pages = u->pages + lower_pages;
    RAD_ASSERT_ENV(&t->env, u->num_children == 1 && l->parent == upper);
    /* Equal counts: nobody locks `upper` itself, so no receipt names it and its id may go. */
    RAD_ASSERT_ENV(&t->env, u->lock_ref == l->lock_ref && u->parent);

    /* `lower` was found below `upper`; take_place files it under the hash that `upper` had. */
    bool filed = map_remove(&t->children, l->hash, lower);
    RAD_ASSERT_ENV(&t->env, filed);
    if (u->span == l->span) { /* cut by a split, and still side by side: nothing is copied */
        RAD_ASSERT_ENV(&t->env, u->at + u->pages == l->at);
        span_unref(&t->spans, l->span);
        l->at = u->at;
    } else {
        uint32_t span = radix_alloc_run(t, pages);
        if (!span) {
            map_insert(&t->children, l->hash, lower);
            return false;
        }
        /* u->at and l->at are read only now: radix_alloc_run may have compacted the arena. */
        uint32_t at = t->spans.spans[span].at;
        move_pages(t, at, u->at, u->pages);
        move_pages(t, at + u->pages, l->at, l->pages);
        radix_leave_span(t, u->span, u->at, u->pages);
        radix_leave_span(t, l->span, l->at, l->pages);
        l->span = span;
        l->at = at;
    }
    /* The two regions lie side by side, each in a form of its own (page_runs.h): made one before
     * anybody reads them with the new length. The host's are joined in its on_merge. */
    if (radix_on_device(t, lower)) page_runs_join(t->regions + l->at, u->pages, lower_pages);
    l->pages = pages;
    l->lead = u->lead;
    take_place(t, lower, upper);
    l->last_access = RAD_MAX(l->last_access, u->last_access);
    l->hit_count = RAD_MAX(l->hit_count, u->hit_count);
    l->priority = RAD_MAX(l->priority, u->priority);
    t->cold[lower].created = RAD_MIN(t->cold[lower].created, t->cold[upper].created);

    t->unlocked_nodes -= radix_is_unlocked(t, upper);
    heap_remove(&t->leaves, upper);
    RADIX_TELL(t, on_merge, upper, lower); /* parts read `upper`, so its id goes last */
    radix_refile(t, lower);
    slab_free(&t->ids, upper);
    t->merges++;
    return true;
}
