/* wait_tree.c - inserting, cutting and joining; and the pairing heaps. */
#include "sched/wait_tree.h"

#include "cache/radix_key.h"

rad_status wait_tree_init(wait_tree *t, const rad_env *env, uint32_t max_reqs)
{
    *t = (wait_tree){0};
    hash_key_init(&t->key, env);
    uint64_t capacity = 3 * (uint64_t)max_reqs + 2; /* leaf, fork, namespace; spare, top */
    if (capacity > UINT32_MAX / 2) return RAD_E_NOMEM;
    t->capacity = (uint32_t)capacity;
    t->nodes = rad_alloc(env, rad_mul(capacity + 1, sizeof *t->nodes));
    if (!t->nodes || !map_init(&t->children, env, t->capacity)) return RAD_E_NOMEM;
    t->num_fresh = WAIT_TOP;
    return RAD_OK;
}

void wait_tree_fini(wait_tree *t, const rad_env *env)
{
    if (t->nodes) {
        map_fini(&t->children);
        rad_free(env, t->nodes, ((size_t)t->capacity + 1) * sizeof *t->nodes);
    }
    *t = (wait_tree){0};
}

/* ---- heaps ---- */

/* Joins two heaps; either may be empty. The better root wins. */
static uint32_t meld(wait_node *n, uint32_t a, uint32_t b)
{
    if (!a || !b) return a ? a : b;
    if (wait_before(n[b].key, n[a].key)) {
        uint32_t c = a;
        a = b;
        b = c;
    }
    n[b].heap_next = n[a].heap_child;
    if (n[b].heap_next) n[n[b].heap_next].heap_prev = b;
    n[b].heap_prev = a;
    n[a].heap_child = b;
    return a;
}

/* Joins a list of heaps: in pairs from the front, then all from the back. */
static uint32_t meld_all(wait_node *n, uint32_t list)
{
    uint32_t pairs = 0;
    while (list) {
        uint32_t a = list, b = n[a].heap_next;
        list = b ? n[b].heap_next : 0;
        n[a].heap_next = n[a].heap_prev = 0;
        if (b) n[b].heap_next = n[b].heap_prev = 0;
        a = meld(n, a, b);
        n[a].heap_next = pairs;
        pairs = a;
    }
    uint32_t all = 0;
    while (pairs) {
        uint32_t next = n[pairs].heap_next;
        n[pairs].heap_next = 0;
        all = meld(n, all, pairs);
        pairs = next;
    }
    return all;
}

void wait_tree_file(wait_tree *t, uint32_t node, wait_key key)
{
    wait_node *n = t->nodes, *parent = &n[n[node].parent];
    n[node].key = key;
    n[node].filed = true;
    n[node].heap_child = n[node].heap_next = n[node].heap_prev = 0;
    parent->heap = meld(n, parent->heap, node);
}

void wait_tree_unfile(wait_tree *t, uint32_t node)
{
    wait_node *n = t->nodes, *x = &n[node], *parent = &n[x->parent];
    /* A pairing heap: heap_child is the first child, heap_next the next sibling, and heap_prev
     * either the previous sibling or, for a first child, the parent. The root alone has no
     * heap_prev. */
    if (x->heap_prev) { /* not the root: cut out, and its children become a heap beside the rest */
        wait_node *before = &n[x->heap_prev];
        *(before->heap_child == node ? &before->heap_child : &before->heap_next) = x->heap_next;
        if (x->heap_next) n[x->heap_next].heap_prev = x->heap_prev;
        parent->heap = meld(n, parent->heap, meld_all(n, x->heap_child));
    } else { /* the root: its children are all that is left */
        parent->heap = meld_all(n, x->heap_child);
    }
    x->heap_child = x->heap_next = x->heap_prev = 0;
    x->filed = false;
}

/* ---- children ---- */

static uint32_t child_hash(const wait_tree *t, uint32_t parent, rad_token token)
{
    uint32_t hash = hash_mix(&t->key, (uint64_t)parent << 32 | (uint32_t)token);
    return hash ? hash : 1;
}

static uint32_t namespace_hash(const wait_tree *t, const req *r)
{
    uint32_t hash = key_namespace_hash(&t->key, r->extra_key, r->cache_salt);
    return hash ? hash : 1;
}

static void hang(wait_tree *t, uint32_t node, uint32_t parent, uint32_t hash)
{
    wait_node *n = &t->nodes[node], *p = &t->nodes[parent];
    n->parent = parent;
    n->prev = 0;
    n->next = p->first_child;
    if (n->next) t->nodes[n->next].prev = node;
    p->first_child = node;
    n->hash = hash;
    if (hash) map_insert(&t->children, hash, node);
}

static void unhang(wait_tree *t, uint32_t node)
{
    wait_node *n = &t->nodes[node];
    if (n->hash) map_remove(&t->children, n->hash, node);
    *(n->prev ? &t->nodes[n->prev].next : &t->nodes[n->parent].first_child) = n->next;
    if (n->next) t->nodes[n->next].prev = n->prev;
    n->hash = 0;
}

static uint32_t new_node(wait_tree *t)
{
    uint32_t id = t->free;
    if (id)
        t->free = t->nodes[id].next;
    else
        id = ++t->num_fresh;
    RAD_ASSERT(id <= t->capacity);
    t->nodes[id] = (wait_node){0};
    return id;
}

static void free_node(wait_tree *t, uint32_t node)
{
    t->nodes[node] = (wait_node){.next = t->free};
    t->free = node;
}

static uint32_t find_namespace(const wait_tree *t, const req *r, uint32_t hash)
{
    uint32_t at = map_start(&t->children, hash);
    for (uint32_t id; (id = map_next(&t->children, hash, &at));)
        if (t->nodes[id].parent == WAIT_TOP && req_same_namespace(t->nodes[id].witness, r))
            return id;
    return 0;
}

static uint32_t find_child(const wait_tree *t, uint32_t parent, rad_token token)
{
    uint32_t hash = child_hash(t, parent, token), depth = t->nodes[parent].depth;
    uint32_t at = map_start(&t->children, hash);
    for (uint32_t id; (id = map_next(&t->children, hash, &at));)
        if (t->nodes[id].parent == parent && t->nodes[id].witness->fill_ids[depth] == token)
            return id;
    return 0;
}

/* How far r's ids follow the node's edge, up to `most` tokens from the beginning. */
static uint32_t follow(wait_tree *t, uint32_t node, const req *r, uint32_t from, uint32_t most)
{
    const wait_node *n = &t->nodes[node];
    const rad_token *a = n->witness->fill_ids, *b = r->fill_ids;
    uint32_t end = RAD_MIN(n->depth, most), at = from;
    while (at < end && a[at] == b[at])
        at++;
    t->tokens_compared += at - from + 1;
    return at;
}

/* ---- the tree ---- */

/* Cuts a node at `depth`: a new upper one takes its place and its front part. */
static uint32_t split(wait_tree *t, uint32_t node, uint32_t depth)
{
    uint32_t upper = new_node(t);
    wait_node *u = &t->nodes[upper], *n = &t->nodes[node];
    bool filed = n->filed;
    wait_key key = n->key;
    uint32_t hash = n->hash, parent = n->parent;
    u->depth = depth;
    u->cached = RAD_MIN(n->cached, depth);
    n->cached = RAD_MAX(n->cached, depth);
    u->weight = n->weight;
    u->witness = n->witness;
    u->leader = n->running ? node : n->leader;
    if (filed) wait_tree_unfile(t, node);
    unhang(t, node);
    hang(t, upper, parent, hash);
    hang(t, node, upper, depth < n->depth ? child_hash(t, upper, n->witness->fill_ids[depth]) : 0);
    if (filed) { /* both where they were; the caller brings the keys up to date */
        wait_tree_file(t, node, key);
        wait_tree_file(t, upper, key);
    }
    return upper;
}

uint32_t wait_tree_add(wait_tree *t, req *r)
{
    uint32_t len = req_most_cached(r), hash = namespace_hash(t, r);
    uint32_t at = find_namespace(t, r, hash);
    if (!at) {
        at = new_node(t);
        t->nodes[at].witness = r;
        hang(t, at, WAIT_TOP, hash);
    }
    for (uint32_t depth; (depth = t->nodes[at].depth) < len;) {
        uint32_t child = find_child(t, at, r->fill_ids[depth]);
        if (!child) break;
        uint32_t end = follow(t, child, r, depth, len);
        bool whole = end == t->nodes[child].depth && !t->nodes[child].r;
        at = whole ? child : split(t, child, end);
    }
    uint32_t leaf = new_node(t), depth = t->nodes[at].depth;
    wait_node *n = &t->nodes[leaf];
    n->depth = len;
    n->cached = depth;
    n->witness = n->r = r;
    hang(t, leaf, at, depth < len ? child_hash(t, at, r->fill_ids[depth]) : 0);
    return leaf;
}

/* A fork with one child left is none: the child takes its place. */
static uint32_t join(wait_tree *t, uint32_t node)
{
    wait_node *n = &t->nodes[node];
    uint32_t child = n->first_child, parent = n->parent, hash = n->hash;
    wait_node *c = &t->nodes[child];
    bool filed = c->filed;
    wait_key key = n->key; /* what the heap above knows; the caller brings it up to date */
    /* Both leave their heaps before either is unhung: unfiling needs the parents as they were. */
    if (filed) wait_tree_unfile(t, child);
    if (n->filed) {
        wait_tree_unfile(t, node);
    } else if (filed) {
        filed = false; /* the fork was held back; the caller opens the child if need be */
    }
    /* Where the cache ended inside the fork's edge, it ends there: the child's own number was meant
     * only behind a fork that is cached whole. */
    if (n->cached < n->depth) c->cached = n->cached;
    unhang(t, child);
    unhang(t, node);
    hang(t, child, parent, hash); /* the fork's hash: the edge now begins where the fork's began */
    if (filed) wait_tree_file(t, child, key);
    free_node(t, node);
    return child;
}

uint32_t wait_tree_remove(wait_tree *t, uint32_t leaf)
{
    req *r = t->nodes[leaf].r;
    uint32_t at = t->nodes[leaf].parent;
    if (t->nodes[leaf].filed) wait_tree_unfile(t, leaf);
    unhang(t, leaf);
    free_node(t, leaf);
    while (at != WAIT_TOP && !t->nodes[at].first_child) {
        uint32_t parent = t->nodes[at].parent;
        if (t->nodes[at].filed) wait_tree_unfile(t, at);
        unhang(t, at);
        free_node(t, at);
        at = parent;
    }
    bool inner = at != WAIT_TOP && t->nodes[at].parent != WAIT_TOP;
    if (inner && !t->nodes[t->nodes[at].first_child].next) at = join(t, at);
    for (uint32_t id = at; id != WAIT_TOP; id = t->nodes[id].parent) /* who spells it now? */
        if (t->nodes[id].witness == r)
            t->nodes[id].witness = t->nodes[t->nodes[id].first_child].witness;
    return at;
}

uint32_t wait_tree_walk(wait_tree *t, const req *r, uint32_t num_tokens, uint32_t *matched)
{
    *matched = 0;
    uint32_t at = find_namespace(t, r, namespace_hash(t, r));
    while (at && t->nodes[at].depth < num_tokens) {
        uint32_t child = find_child(t, at, r->fill_ids[t->nodes[at].depth]);
        if (!child) break;
        *matched = follow(t, child, r, t->nodes[at].depth, num_tokens);
        at = child;
        if (*matched < t->nodes[at].depth) break;
    }
    return at;
}
