/* wait_queue.c - keys, closed nodes, and an estimate of what is cached.
 *
 * Each node estimates how many of its leading tokens the cache has, on the device or on the host (a
 * copy there is nearly as good). A publication raises the estimate at once; an eviction does not
 * lower it. So an estimate can be too high and never too low. Before a request is admitted on one,
 * the cache is looked up again if it has evicted anything since the last lookup. If the request has
 * less than estimated, the estimates on its path are lowered, and another request may be first
 * then. At most WAIT_LOOKUPS lookups a step bound the cost. */
#include "sched/wait_queue.h"

#include "base/mix64.h"

enum { WAIT_LOOKUPS = 8, OLDEST_TRIES = 4 };

static bool looks_at_cache(const wait_queue *q)
{
    return q->params.policy == SCHEDULE_LPM || q->params.policy == SCHEDULE_DFS_WEIGHT;
}

static uint32_t whole_pages(const wait_queue *q, uint32_t num_tokens)
{
    return num_tokens - num_tokens % q->params.page_size;
}

rad_status wait_queue_init(wait_queue *q, const rad_env *env, const wait_queue_params *params,
                           const rad_cache *cache)
{
    *q = (wait_queue){.params = *params, .cache = cache};
    if (params->policy == SCHEDULE_PRIORITY) q->params.by_priority = true;
    return wait_tree_init(&q->tree, env, params->max_waiting + params->max_running);
}

void wait_queue_fini(wait_queue *q, const rad_env *env)
{
    wait_tree_fini(&q->tree, env);
}

/* ---- keys ---- */

static uint32_t priority_rank(const wait_queue *q, const req *r)
{
    if (!q->params.by_priority) return 0;
    uint32_t rank = (uint32_t)r->priority ^ 0x80000000u;
    return q->params.low_priority_values_first ? rank : ~rank;
}

static wait_key leaf_key(const wait_queue *q, const wait_node *n)
{
    uint32_t metric = 0;
    switch (q->params.policy) {
    case SCHEDULE_LPM: metric = ~whole_pages(q, n->cached); break;
    case SCHEDULE_LOF: metric = ~(n->r->max_new_tokens - n->r->num_output); break;
    case SCHEDULE_RANDOM:
        metric = (uint32_t)mix64(q->params.random_seed ^ mix64(n->r->arrival));
        break;
    default: break;
    }
    return (wait_key){.major = ((uint64_t)priority_rank(q, n->r) << 32) | metric,
                      .arrival = n->r->arrival};
}

/* dfs-weight: branches with something cached first, where most wait; the rest by arrival. */
static wait_key branch_key(const wait_queue *q, uint32_t node)
{
    const wait_node *n = &q->tree.nodes[node];
    bool warm = n->parent == WAIT_TOP || n->cached > wait_start(&q->tree, node);
    return (wait_key){.major = warm ? UINT32_MAX - n->weight : UINT64_MAX,
                      .arrival = n->r ? n->r->arrival : q->tree.nodes[n->heap].key.arrival};
}

static wait_key key_of(const wait_queue *q, uint32_t node)
{
    const wait_node *n = &q->tree.nodes[node];
    if (q->params.policy == SCHEDULE_DFS_WEIGHT) return branch_key(q, node);
    if (n->r) return leaf_key(q, n);
    wait_key key = q->tree.nodes[n->heap].key;
    /* The cache ends inside this node: all below have that much. */
    if (q->params.policy == SCHEDULE_LPM && n->cached < n->depth)
        key.major = (key.major & ~(uint64_t)UINT32_MAX) | (uint32_t)~whole_pages(q, n->cached);
    return key;
}

/* ---- closed nodes ---- */

/* The leader while enough of the node is still to come from it, else 0. */
static uint32_t holder(const wait_queue *q, uint32_t node)
{
    const wait_node *n = &q->tree.nodes[node];
    if (!n->leader) return 0;
    const wait_node *leader = &q->tree.nodes[n->leader];
    uint32_t end = whole_pages(q, n->depth);
    return end >= leader->base + SCHEDULE_HOLD_TOKENS && leader->done < end ? n->leader : 0;
}

/* The outermost holder above a leaf: it has most to wait for, and the rest follows. */
static uint32_t holder_above(const wait_queue *q, uint32_t leaf)
{
    uint32_t held = 0;
    for (uint32_t id = q->tree.nodes[leaf].parent; id; id = q->tree.nodes[id].parent) {
        uint32_t by = holder(q, id);
        if (by) held = by;
    }
    return held;
}

/* Brings a node and all above it up to date in the heaps. */
static void refresh(wait_queue *q, uint32_t node)
{
    wait_tree *t = &q->tree;
    for (uint32_t id = node; id != WAIT_TOP; id = t->nodes[id].parent) {
        wait_node *n = &t->nodes[id];
        bool open = n->r ? !n->running : n->heap && !holder(q, id);
        wait_key key = open ? key_of(q, id) : (wait_key){0};
        if (n->filed && open && n->key.major == key.major && n->key.arrival == key.arrival)
            continue;
        if (n->filed) wait_tree_unfile(t, id);
        if (open) wait_tree_file(t, id, key);
    }
}

static void add_weight(wait_queue *q, uint32_t node, int32_t change)
{
    for (uint32_t id = node; id; id = q->tree.nodes[id].parent)
        q->tree.nodes[id].weight += (uint32_t)change;
}

/* ---- what is cached ---- */

/* A lookup found num_tokens of this leaf's prompt: sets the estimates on its path. */
static void set_cached(wait_queue *q, uint32_t leaf, uint32_t num_tokens)
{
    wait_tree *t = &q->tree;
    /* A lookup answers in whole pages. The cache may have up to page_size - 1 tokens more of the
     * prompt, which it did not tell, so an old estimate in that range is kept. */
    uint32_t most = num_tokens + q->params.page_size - 1;
    for (uint32_t id = leaf; id != WAIT_TOP; id = t->nodes[id].parent) {
        uint32_t start = wait_start(t, id), end = t->nodes[id].depth;
        uint32_t cached = RAD_MIN(RAD_MAX(t->nodes[id].cached, num_tokens), most);
        t->nodes[id].cached = RAD_MIN(RAD_MAX(cached, start), end);
    }
}

/* The estimate for a leaf: where the first node on its path is not cached to its end. */
static uint32_t known(const wait_queue *q, uint32_t leaf)
{
    const wait_tree *t = &q->tree;
    uint32_t tokens = t->nodes[leaf].cached;
    for (uint32_t id = t->nodes[leaf].parent; id != WAIT_TOP; id = t->nodes[id].parent)
        if (t->nodes[id].cached < t->nodes[id].depth) tokens = t->nodes[id].cached;
    return tokens;
}

/* Tokens that have left any tier since the start. O(1). */
static uint64_t evicted(const wait_queue *q)
{
    rad_cache_stats stats;
    rad_cache_get_stats(q->cache, &stats);
    return stats.evicted_tokens + stats.host_evicted_tokens;
}

static uint32_t look_up(wait_queue *q, uint32_t leaf)
{
    wait_node *n = &q->tree.nodes[leaf];
    rad_key key = req_key(n->r, n->depth);
    rad_match match = {0};
    n->seen = evicted(q);
    if (n->depth) rad_cache_lookup(q->cache, &key, &match);
    uint32_t cached = match.prefix_tokens + match.host_hit_tokens;
    q->tokens_compared += cached + 1;
    return cached;
}

/* ---- in and out ---- */

static void link_by_arrival(wait_queue *q, req *r)
{
    req *after = q->last; /* mostly the newest; a retracted one is among the oldest */
    if (q->first && r->arrival < q->first->arrival) after = NULL;
    while (after && after->arrival > r->arrival)
        after = after->wait_prev;
    r->wait_prev = after;
    r->wait_next = after ? after->wait_next : q->first;
    *(r->wait_prev ? &r->wait_prev->wait_next : &q->first) = r;
    *(r->wait_next ? &r->wait_next->wait_prev : &q->last) = r;
    q->count++;
}

static void unlink_req(wait_queue *q, req *r)
{
    *(r->wait_prev ? &r->wait_prev->wait_next : &q->first) = r->wait_next;
    *(r->wait_next ? &r->wait_next->wait_prev : &q->last) = r->wait_prev;
    r->wait_prev = r->wait_next = NULL;
    q->count--;
}

/* It waits for a leader: counted, and bounded for the oldest. */
static void count_hold(wait_queue *q, req *r, uint32_t leader)
{
    uint64_t arrival = q->tree.nodes[leader].r->arrival;
    if (r->hold_leader == arrival) return;
    r->hold_leader = arrival;
    r->num_holds++;
}

void wait_queue_add(wait_queue *q, req *r)
{
    wait_tree *t = &q->tree;
    link_by_arrival(q, r);
    uint32_t leaf = wait_tree_add(t, r);
    r->wait_node = leaf;
    add_weight(q, leaf, 1);
    uint32_t start = wait_start(t, leaf);
    /* Beyond the fork it shares nothing with anybody here: only a look can tell. */
    bool shared = whole_pages(q, known(q, leaf)) >= whole_pages(q, start);
    if (looks_at_cache(q) && shared) set_cached(q, leaf, look_up(q, leaf));
    uint32_t other = t->nodes[leaf].next; /* a new fork has one more child: what it cut in two */
    if (other && !t->nodes[other].next) refresh(q, other);
    refresh(q, leaf);
    q->num_held += holder_above(q, leaf) != 0;
}

void wait_queue_remove(wait_queue *q, req *r)
{
    wait_tree *t = &q->tree;
    uint32_t leaf = r->wait_node;
    if (!leaf) return;
    r->wait_node = 0;
    if (t->nodes[leaf].running) { /* nobody waits for it any more */
        for (uint32_t id = t->nodes[leaf].parent; id != WAIT_TOP; id = t->nodes[id].parent)
            if (t->nodes[id].leader == leaf) t->nodes[id].leader = 0;
    } else {
        if (q->first == r) q->passed_over = 0;
        unlink_req(q, r);
        add_weight(q, leaf, -1);
    }
    uint32_t at = wait_tree_remove(t, leaf);
    if (!t->nodes[q->cursor].parent) q->cursor = at;
    refresh(q, at);
}

void wait_queue_admitted(wait_queue *q, req *r)
{
    wait_tree *t = &q->tree;
    q->passed_over = q->first == r ? 0 : q->passed_over + 1;
    uint32_t leaf = r->wait_node;
    q->cursor = t->nodes[leaf].parent;
    if (!q->params.shares) {
        wait_queue_remove(q, r);
        return;
    }
    unlink_req(q, r);
    add_weight(q, leaf, -1);
    wait_node *n = &t->nodes[leaf];
    n->running = true;
    n->base = n->done = r->kv.protected_len;
    if (looks_at_cache(q)) set_cached(q, leaf, r->kv.committed_len);
    uint32_t held = 0;
    for (uint32_t id = n->parent; id != WAIT_TOP; id = t->nodes[id].parent) {
        if (!t->nodes[id].leader) t->nodes[id].leader = leaf;
        if (holder(q, id) == leaf) held = t->nodes[id].weight;
    }
    q->num_held += held;
    refresh(q, leaf);
}

void wait_queue_published(wait_queue *q, req *r, uint32_t num_tokens)
{
    wait_tree *t = &q->tree;
    if (!q->params.shares) return;
    uint32_t leaf = r->wait_node, at = leaf, matched = num_tokens;
    if (leaf) t->nodes[leaf].done = num_tokens;
    /* A leaf's way is known; what goes beyond it (the last token, outputs) is looked for. */
    bool beyond = !leaf || num_tokens > t->nodes[leaf].depth;
    if (beyond && looks_at_cache(q)) at = wait_tree_walk(t, r, num_tokens, &matched);
    if (!at) return;
    for (uint32_t id = at; looks_at_cache(q) && id != WAIT_TOP; id = t->nodes[id].parent) {
        uint32_t upto = RAD_MIN(matched, t->nodes[id].depth);
        t->nodes[id].cached = RAD_MAX(t->nodes[id].cached, upto);
    }
    refresh(q, at);
    if (leaf && at != leaf) refresh(q, leaf);
}

uint32_t wait_queue_forks(const wait_queue *q, const req *r, uint32_t *forks)
{
    uint32_t count = 0, weight = 0; /* of those further down on this way */
    for (uint32_t id = r->wait_node; id; id = q->tree.nodes[id].parent) {
        const wait_node *n = &q->tree.nodes[id];
        if (n->weight > weight && id != r->wait_node) forks[count++ % REQ_MOST_FORKS] = n->depth;
        weight = n->weight;
    }
    return RAD_MIN(count, (uint32_t)REQ_MOST_FORKS);
}

/* ---- who is next ---- */

/* The oldest, when it is its turn, and it is not held back (or has been often enough). */
static req *oldest_in_turn(wait_queue *q)
{
    if (q->passed_over < SCHEDULE_MAX_PASSED_OVER) return NULL;
    req *r = q->first;
    for (int i = 0; r && i < OLDEST_TRIES; i++, r = r->wait_next) {
        uint32_t leader = holder_above(q, r->wait_node);
        if (!leader) return r;
        count_hold(q, r, leader);
        if (r->num_holds > SCHEDULE_MAX_HOLDS) return r;
    }
    return NULL;
}

static bool is_open(const wait_queue *q, uint32_t node)
{
    for (uint32_t id = node; id != WAIT_TOP; id = q->tree.nodes[id].parent)
        if (!q->tree.nodes[id].filed) return false;
    return true;
}

/* dfs-weight goes on in the branch where it is until nobody warm is left there. */
static uint32_t branch_to_go_on_in(const wait_queue *q)
{
    const wait_node *n = q->tree.nodes;
    uint32_t at = q->cursor;
    while (n[at].parent && (!n[at].filed || (!n[at].r && n[at].cached < n[at].depth)))
        at = n[at].parent;
    return at && is_open(q, at) ? at : WAIT_TOP;
}

req *wait_queue_next(wait_queue *q)
{
    const wait_node *n = q->tree.nodes;
    req *oldest = oldest_in_turn(q);
    if (oldest) return oldest;
    for (int i = 0;; i++) {
        uint32_t at = WAIT_TOP;
        if (q->params.policy == SCHEDULE_DFS_WEIGHT) at = branch_to_go_on_in(q);
        while (at && !n[at].r)
            at = n[at].heap;
        if (!at) return NULL;
        if (i == WAIT_LOOKUPS || !looks_at_cache(q) || n[at].seen == evicted(q)) return n[at].r;
        uint32_t before = whole_pages(q, known(q, at)), now = look_up(q, at);
        if (now == before) return n[at].r;
        set_cached(q, at, now);
        refresh(q, at);
    }
}

/* ---- checking ---- */

static rad_status check_node(const wait_queue *q, uint32_t id, rad_error *err)
{
    const wait_tree *t = &q->tree;
    const wait_node *n = &t->nodes[id];
    uint32_t start = wait_start(t, id), weight = 0, num_children = 0;
    for (uint32_t c = n->first_child; c; c = t->nodes[c].next) {
        weight += t->nodes[c].weight;
        num_children++;
    }
    bool fork = n->parent == WAIT_TOP ? num_children >= 1 : num_children >= 2;
    if (n->r ? num_children : !fork)
        return rad_fail(err, RAD_E_CORRUPT, "wait_queue: node %u has %u children", id,
                        num_children);
    if (n->weight != (n->r ? !n->running : weight))
        return rad_fail(err, RAD_E_CORRUPT, "wait_queue: node %u weighs %u", id, n->weight);
    if (n->depth < start || n->cached < start || n->cached > n->depth)
        return rad_fail(err, RAD_E_CORRUPT, "wait_queue: node %u from %u to %u, %u cached", id,
                        start, n->depth, n->cached);
    if (n->leader && (!t->nodes[n->leader].r || !t->nodes[n->leader].running))
        return rad_fail(err, RAD_E_CORRUPT, "wait_queue: node %u has no leader %u", id, n->leader);
    bool open = n->r ? !n->running : n->heap && !holder(q, id);
    if (n->filed != open)
        return rad_fail(err, RAD_E_CORRUPT, "wait_queue: node %u is filed: %d", id, n->filed);
    wait_key key = open ? key_of(q, id) : n->key;
    if (open && (n->key.major != key.major || n->key.arrival != key.arrival))
        return rad_fail(err, RAD_E_CORRUPT, "wait_queue: node %u has an old key", id);
    uint32_t best = t->nodes[n->parent].heap;
    if (open && (!best || wait_before(n->key, t->nodes[best].key)))
        return rad_fail(err, RAD_E_CORRUPT, "wait_queue: node %u ought to be first", id);
    return RAD_OK;
}

rad_status wait_queue_check(const wait_queue *q, rad_error *err)
{
    const wait_tree *t = &q->tree;
    uint32_t leaves = 0, listed = 0;
    for (uint32_t id = WAIT_TOP + 1; id <= t->num_fresh; id++) {
        const wait_node *n = &t->nodes[id];
        if (!n->parent) continue;
        rad_status status = check_node(q, id, err);
        if (status != RAD_OK) return status;
        leaves += n->r && !n->running;
        if (n->r && n->r->wait_node != id)
            return rad_fail(err, RAD_E_CORRUPT, "wait_queue: leaf %u is not its request's", id);
    }
    uint64_t before = 0;
    for (const req *r = q->first; r; before = r->arrival, r = r->wait_next, listed++)
        if (r->arrival <= before || !r->wait_node)
            return rad_fail(err, RAD_E_CORRUPT, "wait_queue: request %llu is out of order",
                            (unsigned long long)r->arrival);
    if (leaves != q->count || listed != q->count)
        return rad_fail(err, RAD_E_CORRUPT, "wait_queue: %u leaves, %u listed, %u counted", leaves,
                        listed, q->count);
    return RAD_OK;
}
