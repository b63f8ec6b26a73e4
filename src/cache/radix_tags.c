/* radix_tags.c - sessions of the RadixCache, as soft references on paths; see the header. */
#include "cache/radix_tags.h"

#include "cache/radix_cache.h"

typedef struct session_tag {
    uint32_t node; /* where the session ends, 0: nowhere */
    uint32_t next; /* sessions that end there */
    uint32_t prev;
} session_tag;

typedef struct radix_tags {
    slab ids;
    session_tag *sessions; /* [max_sessions + 1] */
    uint32_t *refs;        /* [num_nodes + 1] */
    uint32_t *first;       /* [num_nodes + 1]: the sessions that end at a node */
} radix_tags;

static const node_part_ops tags_ops;

static radix_tags *tags_of(const rad_cache *cache)
{
    return radix_part_of(&((const radix_cache *)cache)->tree, &tags_ops);
}

static void tags_fini(void *self, radix_tree *t)
{
    radix_tags *g = self;
    size_t nodes = (size_t)t->num_nodes + 1;
    rad_free(&t->env, g->sessions, ((size_t)g->ids.capacity + 1) * sizeof *g->sessions);
    rad_free(&t->env, g->refs, nodes * sizeof *g->refs);
    rad_free(&t->env, g->first, nodes * sizeof *g->first);
    slab_fini(&g->ids);
    rad_free(&t->env, g, sizeof *g);
}

static void tags_clear(void *self, radix_tree *t)
{
    radix_tags *g = self;
    size_t nodes = (size_t)t->num_nodes + 1;
    memset(g->refs, 0, nodes * sizeof *g->refs);
    memset(g->first, 0, nodes * sizeof *g->first);
    memset(g->sessions, 0, ((size_t)g->ids.capacity + 1) * sizeof *g->sessions);
}

/* Adds `by` to the counts from `node` up; the leaf at its end, if it is one, is refiled, and so are
 * the snapshots on the way. */
static void count_path(radix_tags *g, radix_tree *t, uint32_t node, uint32_t by)
{
    for (uint32_t id = node; t->nodes[id].parent; id = t->nodes[id].parent)
        g->refs[id] += by;
    for (uint32_t id = node; t->states[RADIX_DEVICE] && t->nodes[id].parent;
         id = t->nodes[id].parent)
        radix_state_refile(t, id);
    radix_refile(t, node);
}

static void link_end(radix_tags *g, uint32_t session, uint32_t node)
{
    session_tag *s = &g->sessions[session];
    *s = (session_tag){.node = node, .next = g->first[node]};
    if (s->next) g->sessions[s->next].prev = session;
    g->first[node] = session;
}

static void unlink_end(radix_tags *g, uint32_t session)
{
    session_tag *s = &g->sessions[session];
    if (!s->node) return;
    *(s->prev ? &g->sessions[s->prev].next : &g->first[s->node]) = s->next;
    if (s->next) g->sessions[s->next].prev = s->prev;
    *s = (session_tag){0};
}

static void leave(radix_tags *g, radix_tree *t, uint32_t session)
{
    uint32_t node = g->sessions[session].node;
    if (!node) return;
    unlink_end(g, session);
    count_path(g, t, node, UINT32_MAX); /* less one */
}

uint32_t tags_refs(const radix_tree *t, uint32_t node)
{
    const radix_tags *g = radix_part_of(t, &tags_ops);
    return g ? g->refs[node] : 0;
}

void tags_move(radix_tree *t, rad_session session, uint32_t node)
{
    radix_tags *g = radix_part_of(t, &tags_ops);
    uint32_t id = g ? slab_find(&g->ids, session) : 0;
    if (!id || !node || !t->nodes[node].parent || g->sessions[id].node == node) return;
    leave(g, t, id);
    link_end(g, id, node);
    count_path(g, t, node, 1);
}

rad_status radix_session_open(rad_cache *cache, rad_session *session)
{
    radix_tags *g = tags_of(cache);
    if (!g) return RAD_E_UNSUPPORTED;
    uint32_t id = slab_alloc(&g->ids);
    if (!id) return RAD_FULL;
    *session = slab_name(&g->ids, id);
    return RAD_OK;
}

rad_status radix_session_begin(rad_cache *cache, rad_req_kv *req, rad_error *err)
{
    const radix_tags *g = tags_of(cache);
    if (g && slab_find(&g->ids, req->key.session)) return RAD_OK;
    return rad_fail(err, RAD_E_STATE, "session %u is not open", req->key.session);
}

rad_status radix_session_close(rad_cache *cache, rad_session session)
{
    radix_tags *g = tags_of(cache);
    if (!g) return RAD_E_UNSUPPORTED;
    uint32_t id = slab_find(&g->ids, session);
    if (!id) return RAD_E_STATE;
    leave(g, &((radix_cache *)cache)->tree, id);
    slab_free(&g->ids, id);
    return RAD_OK;
}

void radix_session_stats(const rad_cache *cache, rad_session_stats *stats)
{
    const radix_tags *g = tags_of(cache);
    if (!g) return;
    stats->open = g->ids.num_live;
    for (uint32_t id = 1; id <= g->ids.num_fresh; id++)
        stats->held += g->sessions[id].node != 0;
}

/* All sessions that end at `from` end at `to` now; to a root: nowhere. */
static void move_ends(radix_tags *g, const radix_tree *t, uint32_t from, uint32_t to)
{
    bool to_root = !t->nodes[to].parent;
    for (uint32_t id; (id = g->first[from]);) {
        unlink_end(g, id);
        if (!to_root) link_end(g, id, to);
    }
}

static void tags_on_split(void *self, radix_tree *t, uint32_t upper, uint32_t child)
{
    radix_tags *g = self;
    (void)t;
    g->refs[upper] = g->refs[child];
}

static void tags_on_merge(void *self, radix_tree *t, uint32_t upper, uint32_t lower)
{
    radix_tags *g = self;
    move_ends(g, t, upper, lower);
    g->refs[lower] = g->refs[upper];
    g->refs[upper] = 0;
}

static void tags_on_drop(void *self, radix_tree *t, uint32_t node)
{
    radix_tags *g = self;
    move_ends(g, t, node, t->nodes[node].parent);
    g->refs[node] = 0;
}

/* Tags order eviction on the device: what has left it is nobody's any more. */
static void tags_on_leave(void *self, radix_tree *t, uint32_t node, radix_tier tier)
{
    if (tier == RADIX_DEVICE) tags_on_drop(self, t, node);
}

/* The two places of a leaf's key between pins and retention: more than two sessions count as
 * three. */
static heap_key tags_rank(void *self, const radix_tree *t, uint32_t node, radix_tier tier)
{
    const radix_tags *g = self;
    (void)t;
    return tier == RADIX_DEVICE ? (heap_key)RAD_MIN(g->refs[node], 3u) << 93 : 0;
}

static bool tags_equal(void *self, const radix_tree *t, uint32_t upper, uint32_t lower)
{
    const radix_tags *g = self;
    (void)t;
    return g->refs[upper] == g->refs[lower];
}

static const char *tags_fault(void *self, const radix_tree *t, uint32_t node)
{
    const radix_tags *g = self;
    uint64_t refs = 0;
    for (uint32_t c = t->nodes[node].first_child; c; c = t->nodes[c].next)
        refs += g->refs[c];
    for (uint32_t s = g->first[node], prev = 0; s; prev = s, s = g->sessions[s].next) {
        if (!slab_is_live(&g->ids, s) || g->sessions[s].node != node ||
            g->sessions[s].prev != prev || refs > g->refs[node])
            return "has a wrong list of sessions";
        refs++;
    }
    return refs == g->refs[node] ? NULL : "miscounts its sessions";
}

static rad_status tags_check(void *self, const radix_tree *t, rad_error *err)
{
    const radix_tags *g = self;
    for (uint32_t id = 1; id <= g->ids.num_fresh; id++) {
        uint32_t node = g->sessions[id].node;
        if (!node) continue;
        if (!slab_is_live(&g->ids, id) || !slab_is_live(&t->ids, node) || !t->nodes[node].parent)
            return rad_fail(err, RAD_E_CORRUPT, "radix_check: session %u refers to no node", id);
    }
    return RAD_OK;
}

static const node_part_ops tags_ops = {
    .fini = tags_fini,
    .clear = tags_clear,
    .on_split = tags_on_split,
    .on_merge = tags_on_merge,
    .on_drop = tags_on_drop,
    .on_leave = tags_on_leave,
    .rank = tags_rank,
    .equal = tags_equal,
    .fault = tags_fault,
    .check = tags_check,
};

bool tags_init(radix_tree *t, uint32_t max_sessions)
{
    radix_tags *g = rad_alloc(&t->env, sizeof *g);
    if (!g) return false;
    size_t nodes = (size_t)t->num_nodes + 1, places = (size_t)max_sessions + 1;
    radix_add_part(t, &tags_ops, g);
    bool ok = slab_init(&g->ids, &t->env, max_sessions);
    g->sessions = rad_alloc(&t->env, places * sizeof *g->sessions);
    g->refs = rad_alloc(&t->env, nodes * sizeof *g->refs);
    g->first = rad_alloc(&t->env, nodes * sizeof *g->first);
    t->metadata_bytes += sizeof *g + slab_bytes(max_sessions) + places * sizeof *g->sessions +
                         nodes * (sizeof *g->refs + sizeof *g->first);
    return ok && g->sessions && g->refs && g->first;
}
