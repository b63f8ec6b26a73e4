/* radix_tree.h - the tree: nodes, spans, children, locks. It moves pages in and out of
 * itself and tells the caller which; it frees none and knows no request.
 *
 *     namespaces ("", salt "x", ...)     one root each
 *         root -- [system prompt] -+- [question 1] -- [answer 1]
 *                                  +- [question 2]
 *
 * Lengths are in pages here. */
#ifndef CACHE_RADIX_TREE_H
#define CACHE_RADIX_TREE_H

#include <radish/types.h>

#include "base/heap.h"
#include "base/map.h"
#include "base/slab.h"
#include "base/span.h"
#include "cache/evict_policy.h"
#include "cache/namespace.h"
#include "cache/page_runs.h"
#include "cache/radix_component.h"
#include "cache/radix_keep.h"
#include "cache/radix_key.h"
#include "cache/radix_node.h"

typedef struct radix_limits {
    uint32_t page_size;
    uint32_t max_nodes; /* roots not counted */
    uint32_t max_namespaces;
    uint32_t max_pages;
    uint32_t bigram;               /* 1: keys are pairs of tokens, see radix_key.h */
    rad_eviction_options eviction; /* defaults filled in */
    rad_evict_key_fn evict_key;
    void *evict_user;
    uint64_t max_pinned_pages;
    bool keeps; /* pins or retention are on */
    uint32_t max_sessions;

    uint32_t host_pages; /* of the host tier; 0: there is none */
    rad_eviction_options host_eviction;
    uint64_t host_max_pinned_pages;
} radix_limits;

/* Where the pages of evicted nodes go, before their memory is used again: `count` pages, or,
 * where `pages` is NULL, `count` runs of them. */
typedef void (*radix_drop_fn)(void *user, const rad_page *pages, const kv_run *runs,
                              uint32_t count);

/* The host tier's side of the tree; radix_host.h has what is done with it. */
typedef struct radix_host {
    radix_tiers *of;   /* [num_nodes + 1], or NULL: there is no host tier */
    rad_page *regions; /* [arena pages] */
    heap leaves;       /* as the device's */
    const evict_policy *policy;
    uint64_t evictable;  /* pages */
    uint64_t locked;     /* pages */
    uint64_t evicted;    /* pages, since the start */
    uint32_t namespaces; /* that have something there */
    uint32_t reserved;
    radix_drop_fn drop; /* where its pages go */
    void *user;         /* of both functions */

    /* The unlocked device leaf, which the host does not have, is about to lose its last `pages`
     * pages, or, with 0 pages, a node the window before its end or its snapshot: the last chance to
     * copy it. NULL: nothing is done about it. */
    void (*save)(void *user, uint32_t leaf, uint32_t pages);
} radix_host;

enum { RADIX_PARTS = 10 };

typedef struct radix_tree {
    rad_env env;
    radix_limits limits;
    uint32_t shift; /* log2(page_size), or 32 when it is no power of two */
    const evict_policy *policy;
    uint32_t num_nodes; /* of the slab: max_nodes + max_namespaces */
    uint32_t arena_pages;

    radix_node *nodes; /* [num_nodes + 1] */
    radix_cold *cold;
    slab ids;
    map children;
    hash_key key; /* of `children` */
    heap leaves;  /* every evictable leaf, and others that have ceased to be one */
    namespaces names;

    span_arena spans;
    rad_token *tokens; /* [arena pages][page_size] */
    rad_page *regions; /* [arena pages]: the nodes' pages, to be read through page_runs.h */

    uint64_t clock;          /* grows with each operation that touches */
    uint64_t evictable;      /* pages */
    uint64_t locked;         /* pages */
    uint32_t unlocked_nodes; /* roots not counted: what eviction could free */
    uint32_t kept_nodes;     /* promised to whoever makes room now: a cut must not take them */
    uint64_t splits;
    uint64_t merges;
    uint64_t metadata_bytes;

    bool watches;            /* uses of leaves have to be told to a heap or to a part */
    radix_keep keep;         /* pins and retention */
    radix_worth *worth;      /* [num_nodes + 1] under the policies cost and user, else NULL */
    uint64_t heat_clock;     /* pages added since the start */
    uint64_t heat_now;       /* of what is used now */
    uint64_t heat_half_life; /* pages */
    radix_host host;

    /* What a node carries besides. Values: [num_nodes + 1], NULL where none are kept; those of
     * (full, device) are in the nodes themselves. */
    uint32_t num_parts;
    uint32_t num_components;
    node_part parts[RADIX_PARTS];
    radix_component components[RADIX_KINDS];
    radix_value *values[RADIX_KINDS][RADIX_TIERS];
    struct radix_window *windows[RADIX_TIERS]; /* radix_window.h; NULL: no windows */
    struct radix_state *states[RADIX_TIERS];   /* radix_state.h; NULL: no snapshots */

    struct radix_journal *journal; /* hashes, events, fingerprints; NULL: all off */
} radix_tree;

/* RAD_E_NOMEM leaves nothing behind once radix_tree_fini has run. */
rad_status radix_tree_init(radix_tree *t, const rad_env *env, const radix_limits *limits);
void radix_tree_fini(radix_tree *t);

/* Adds a part, values of a component on a tier, or a component with those on the device, to a tree
 * without nodes. RAD_E_NOMEM: the part's fini is called with the tree all the same. */
void radix_add_part(radix_tree *t, const node_part_ops *ops, void *self);
rad_status radix_add_values(radix_tree *t, radix_kind kind, radix_tier tier);
rad_status radix_add_component(radix_tree *t, const radix_component_ops *ops, void *self);

/* What the part with these ops was added with, for its own calls; NULL: this tree has none. */
static inline void *radix_part_of(const radix_tree *t, const node_part_ops *ops)
{
    for (uint32_t i = 0; i < t->num_parts; i++)
        if (t->parts[i].ops == ops) return t->parts[i].self;
    return NULL;
}

/* Which tiers a node is on. A root is on all. */
static inline bool radix_on_device(const radix_tree *t, uint32_t node)
{
    return !t->host.of || t->host.of[node].on_device;
}
static inline bool radix_on_host(const radix_tree *t, uint32_t node)
{
    return t->host.of && t->values[RADIX_FULL][RADIX_HOST][node].end;
}
static inline bool radix_is_on(const radix_tree *t, uint32_t node, radix_tier tier)
{
    return tier == RADIX_DEVICE ? radix_on_device(t, node) : radix_on_host(t, node);
}

/* The arena of a tier's regions. */
static inline rad_page *radix_regions(const radix_tree *t, radix_tier tier)
{
    return tier == RADIX_DEVICE ? t->regions : t->host.regions;
}

/* Whether nothing locks the node, on no tier. */
static inline bool radix_is_unlocked(const radix_tree *t, uint32_t node)
{
    return !t->nodes[node].lock_ref &&
           !(t->host.of && t->values[RADIX_FULL][RADIX_HOST][node].lock_ref);
}

/* Where a walk ended: `pages` pages of the key matched. `node` was passed whole (a root
 * at least); the last `part` pages lie in its child `child`, 0 when there is none. */
typedef struct radix_pos {
    uint32_t node;
    uint32_t child;
    uint32_t part;
    uint32_t pages;
} radix_pos;

/* Follows num_pages pages of tokens from `root`. Changes nothing. Under bigram keys
 * `tokens` begins with the second half of the first pair; tokens[-1] is the first. */
radix_pos radix_walk(const radix_tree *t, uint32_t root, const rad_token *tokens,
                     uint32_t num_pages);

/* The same walk on the device, as far as every component can go on; gives every node that it passed
 * the time `touched` (a node passed in part keeps its own until it is split), and writes the slots
 * unless NULL. */
radix_pos radix_match(radix_tree *t, uint32_t root, const rad_token *tokens, uint32_t num_pages,
                      uint64_t touched, rad_slot *slots);

/* The same of a walk that has been made. */
void radix_match_walked(radix_tree *t, radix_pos *pos, uint64_t touched, rad_slot *slots);

/* Moves the end of a walk back to where every component can go on, which is at a node's end where
 * no node is left to split with. O(nodes of a window) mostly. */
void radix_usable_end(const radix_tree *t, radix_pos *pos);
static inline void radix_usable(const radix_tree *t, radix_pos *pos)
{
    if (t->num_components) radix_usable_end(t, pos);
}

/* Among the pages of the tier that follow a walk's end, of those that may be copied if `to_copy`,
 * the one that shares the longest front with rest[0..num_rest): how many tokens that is, and whose
 * page it is. 0: none. Looks at 64 children at most, the youngest first. Under bigram keys rest[-1]
 * is there. */
uint32_t radix_front_of_page(const radix_tree *t, radix_tier tier, bool to_copy,
                             const radix_pos *pos, const rad_token *rest, uint32_t num_rest,
                             uint32_t *owner);

/* The part of a walk that is on the tier: what lies behind it is on the other one alone. */
void radix_to_tier(const radix_tree *t, radix_pos *pos, radix_tier tier);

/* How far one who has what every component needs at page `from` gets by what the host has behind
 * it: the walk's end moves back to there. Where that is not behind `from` there is nothing for him,
 * and pos->pages is `from` or less. */
void radix_host_end(const radix_tree *t, radix_pos *pos, uint32_t from);

/* Whether the node is found under its key, and is filed under the right hash. */
bool radix_is_filed(const radix_tree *t, uint32_t node);

static inline const rad_token *radix_tokens(const radix_tree *t, const radix_node *n)
{
    return t->tokens + (size_t)n->at * t->limits.page_size;
}

/* Under bigram keys: the first half of the node's first pair. */
static inline rad_token radix_lead(const radix_tree *t, const radix_node *n)
{
    const radix_node *p = &t->nodes[n->parent];
    if (!p->parent) return n->lead;
    return radix_tokens(t, p)[(size_t)p->pages * t->limits.page_size - 1];
}

/* What a child of `parent` that begins with this page is filed under. Below a root and under bigram
 * keys `lead` is the key's token 0, which is part of the first pair; everywhere else it is 0, as it
 * is in the nodes. */
static inline uint32_t radix_child_hash(const radix_tree *t, uint32_t parent, const rad_token *page,
                                        rad_token lead)
{
    uint32_t hash = key_child_hash(&t->key, parent, page, t->limits.page_size);
    return lead ? key_lead_hash(&t->key, hash, lead) : hash;
}

/* The lead of what hangs below `from` and begins with these tokens. */
static inline rad_token radix_first_lead(const radix_tree *t, uint32_t from,
                                         const rad_token *tokens)
{
    return t->limits.bigram && !t->nodes[from].parent ? tokens[-1] : 0;
}

/* Cuts `child` behind its first `at` pages (0 < at < its length): a new upper node takes
 * the front half and is returned; `child` keeps its name and the deep half. The upper
 * half has the same hits, locks, priority and creation time, and time `touched`. A node
 * must be available. */
uint32_t radix_split(radix_tree *t, uint32_t child, uint32_t at, uint64_t touched);

/* Hangs a new leaf below `parent`. `slots` are its tokens' slots, `runs` the same as found by
 * page_runs_find (num_runs 0: the pages are kept one by one, and stay so). Needs what
 * radix_make_room has made sure of. */
uint32_t radix_add_leaf(radix_tree *t, uint32_t parent, const rad_token *tokens,
                        const rad_slot *slots, uint32_t num_pages, const kv_run *runs,
                        uint32_t num_runs, int32_t priority);

/* The node and its front [to the root] that are on the host alone, `pages` pages in all, get device
 * pages: those of slots[0..pages * page_size). */
void radix_adopt(radix_tree *t, uint32_t node, uint32_t pages, const rad_slot *slots);

/* A new node with this key below `parent`, on no tier yet. */
uint32_t radix_new_leaf(radix_tree *t, uint32_t parent, const rad_token *tokens, uint32_t num_pages,
                        int32_t priority);

uint32_t radix_add_root(radix_tree *t, const char *extra_key, const char *cache_salt);
void radix_drop_root_if_empty(radix_tree *t, uint32_t root);

/* Whether a name from outside is that of a live node which is no root. O(1). */
static inline bool radix_is_ref(const radix_tree *t, rad_ref ref)
{
    return slab_is_live(&t->ids, ref.index) && t->ids.generation[ref.index] == ref.generation &&
           t->nodes[ref.index].parent;
}

/* RAD_E_STATE in words: `who` was asked to lock or unlock a node that `ref` does not name any
 * more, or that has no lock of its own left. */
rad_status radix_refuse_ref(const radix_tree *t, const char *who, rad_ref ref, rad_error *err);

/* Pages from the root to the node's end. O(depth). */
static inline uint32_t radix_depth(const radix_tree *t, uint32_t node)
{
    uint32_t pages = 0;
    for (uint32_t id = node; id; id = t->nodes[id].parent)
        pages += t->nodes[id].pages;
    return pages;
}

/* Adds 1 to the locks from `node` up to its root, or takes 1 away. */
void radix_lock(radix_tree *t, uint32_t node);
void radix_unlock(radix_tree *t, uint32_t node);

/* A merge of `upper` into its only child `lower`, which keeps its name. Lengths add up;
 * of times, hits and priorities the higher stay. False, and nothing changed, when the two
 * lie in different spans and there is no room for a common one. */
bool radix_merge(radix_tree *t, uint32_t upper, uint32_t lower);

/* Files `node` as an evictable leaf if it is one. */
void radix_consider_leaf(radix_tree *t, uint32_t node);

/* What parts put above the policy's key. */
static inline heap_key radix_rank(const radix_tree *t, uint32_t node, radix_tier tier)
{
    heap_key rank = 0;
    for (uint32_t i = 0; i < t->num_parts; i++)
        if (t->parts[i].ops->rank) rank |= t->parts[i].ops->rank(t->parts[i].self, t, node, tier);
    return rank;
}

/* The present key of a node among the evictable leaves of a tier. */
static inline heap_key radix_leaf_key(const radix_tree *t, uint32_t node, radix_tier tier)
{
    heap_key key = tier == RADIX_DEVICE ? t->policy->key(t, node, &t->limits.eviction)
                                        : t->host.policy->key(t, node, &t->limits.host_eviction);
    return key | radix_rank(t, node, tier);
}

/* The same for its snapshot (radix_state.c). */
void radix_state_refile(radix_tree *t, uint32_t node);

/* Brings the node's keys in the heaps up to date, where it is there. */
static inline void radix_refile(radix_tree *t, uint32_t node)
{
    if (t->states[RADIX_DEVICE]) radix_state_refile(t, node);
    if (heap_contains(&t->leaves, node))
        heap_rekey(&t->leaves, node, radix_leaf_key(t, node, RADIX_DEVICE));
    if (t->host.of && heap_contains(&t->host.leaves, node))
        heap_rekey(&t->host.leaves, node, radix_leaf_key(t, node, RADIX_HOST));
}

/* The same where a policy wants it after each use or cut. */
static inline void radix_refile_used(radix_tree *t, uint32_t node)
{
    if (!t->policy->grows || (t->host.of && !t->host.policy->grows)) radix_refile(t, node);
}

/* A match or an insert ended at `node`; the last node of each tier on its path may be a leaf
 * there. */
static inline void radix_used(radix_tree *t, uint32_t node)
{
    if (!t->watches) return;
    RADIX_TELL(t, on_use, node);
    radix_refile_used(t, node);
    if (!t->host.of) return;
    uint32_t id = node;
    while (!radix_on_device(t, id) || !radix_on_host(t, id))
        id = t->nodes[id].parent;
    radix_refile_used(t, id);
}

/* The same for the components, on all tiers; of an insert, the last `fresh` pages are new. */
static inline void radix_components_used(radix_tree *t, uint32_t node, uint32_t fresh)
{
    for (uint32_t i = 0; i < t->num_components; i++)
        if (t->components[i].ops->used)
            t->components[i].ops->used(t->components[i].self, t, node, fresh);
}

/* Whether page i of the node may be copied for somebody who shares only its front. */
static inline bool radix_can_copy(const radix_tree *t, uint32_t node, uint32_t i)
{
    for (uint32_t k = 0; k < t->num_components; k++) {
        const radix_component *c = &t->components[k];
        if (!c->ops->can_copy || !c->ops->can_copy(c->self, t, node, i)) return false;
    }
    return true;
}

/* A span for `pages` pages, compacting the arena if need be; 0 when there is no room. */
uint32_t radix_alloc_run(radix_tree *t, uint32_t pages);

/* Takes the node's pages [at, at + pages) out of its span, which it leaves. */
void radix_leave_span(radix_tree *t, uint32_t span, uint32_t at, uint32_t pages);

static inline bool radix_is_evictable_leaf(const radix_tree *t, uint32_t node)
{
    const radix_node *n = &t->nodes[node];
    if (!n->parent || n->lock_ref) return false;
    if (!t->host.of) return !n->num_children;
    return t->host.of[node].on_device && !t->host.of[node].device_children;
}

/* The same of the host. */
static inline bool radix_is_evictable_host_leaf(const radix_tree *t, uint32_t node)
{
    const radix_value *v = &t->values[RADIX_FULL][RADIX_HOST][node];
    return t->nodes[node].parent && v->end && !t->host.of[node].host_children && !v->lock_ref;
}

/* The evictable leaf of a tier with the lowest key; 0: there is none. */
uint32_t radix_coldest_leaf(radix_tree *t, radix_tier tier);

/* Takes up to num_pages off the end of an evictable leaf of a tier, and the leaf itself when none
 * are left, and gives them to `drop`; returns how many. What the other tier has too stays there.
 * Where cutting off those would need a node and there is none, all of them go. */
uint32_t radix_trim(radix_tree *t, uint32_t leaf, radix_tier tier, uint64_t num_pages,
                    radix_drop_fn drop, void *user);

/* A child of `parent` has gone, or is not on one of the tiers any more: the parent may be a leaf
 * now, or one with its last child. */
void radix_child_is_gone(radix_tree *t, uint32_t parent);

/* The node becomes one with its only child where nothing but the cut tells them apart. */
void radix_rejoin(radix_tree *t, uint32_t node);

/* A leaf that is on one tier alone keeps its first `kept` pages, whose region there this is: the
 * rest of its key goes, or all of it. */
void radix_cut_leaf(radix_tree *t, uint32_t leaf, uint32_t kept, rad_page *region);

/* The node, without the device pages that it had, stays for its host pages. */
void radix_leave_device(radix_tree *t, uint32_t node);

/* Gives back all of the device's pages, also those of locked nodes: as radix_clear, but what the
 * host has stays. */
void radix_clear_device(radix_tree *t, radix_drop_fn drop, void *user);

/* Takes a node without children out of the tree: its parent, the map, the heap, the slab. */
void radix_unhook(radix_tree *t, uint32_t node);

/* Parts bring the order of eviction up to date. */
void radix_before_eviction(radix_tree *t);

/* Evicts up to num_pages from the tails of the leaves with the lowest keys; returns how
 * many. */
uint64_t radix_evict(radix_tree *t, uint64_t num_pages, radix_drop_fn drop, void *user);

/* Evicts this evictable leaf, whatever its key; nothing of it is saved. */
void radix_drop_leaf(radix_tree *t, uint32_t leaf, radix_drop_fn drop, void *user);

/* Nodes that may still be made; roots have places of their own. */
static inline uint32_t radix_nodes_available(const radix_tree *t)
{
    return t->limits.max_nodes + t->names.ids.num_live - t->ids.num_live;
}

/* Whether an eviction may cut a node in two. */
static inline bool radix_can_cut(const radix_tree *t)
{
    return radix_nodes_available(t) > t->kept_nodes;
}

/* Makes sure of `nodes` free nodes, of `pages` free pages in one run, and, when
 * `root` is set, of a free namespace; merges and evicts for it. Keeps `pin` (0: nothing)
 * and its path. False when that cannot be had. */
bool radix_make_room(radix_tree *t, uint32_t nodes, uint32_t pages, bool root, uint32_t pin,
                     radix_drop_fn drop, void *user);

/* Forgets everything; all refs become stale. Nothing is dropped through a callback. */
void radix_clear(radix_tree *t);

/* The next node of a walk over everything below the roots, parents first: start with
 * 0, ends with 0. *depth is 1 for the children of a root. */
uint32_t radix_next(const radix_tree *t, uint32_t node, uint32_t *depth);

/* Calls visit for each page of the tier. */
void radix_visit_pages(const radix_tree *t, radix_tier tier,
                       void (*visit)(void *user, rad_page page), void *user);

/* Walks all of it against all counters. RAD_E_CORRUPT names the node. */
rad_status radix_check(const radix_tree *t, rad_error *err);

/* Slots <-> pages. */
static inline rad_page radix_page_of(const radix_tree *t, rad_slot slot)
{
    return t->shift < 32 ? slot >> t->shift : slot / (rad_slot)t->limits.page_size;
}
static inline void radix_expand(const radix_tree *t, const rad_page *region, uint32_t count,
                                rad_slot *slots)
{
    page_runs_expand(region, 0, count, t->limits.page_size, slots);
}
static inline rad_page radix_page_at(const radix_tree *t, const radix_node *n, uint32_t i)
{
    return page_runs_at(&t->env, t->regions + n->at, i);
}

#endif
