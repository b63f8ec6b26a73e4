/* tree_path.c - walking up the parents of a node; see the header. */
#include "hicache/tree_path.h"

void tree_path_key(const radix_cache *c, rad_ref node, uint32_t pages, rad_token *tokens,
                   rad_key *key)
{
    const radix_tree *t = &c->tree;
    size_t ps = c->base.page_size;
    uint32_t end = radix_cache_depth(c, node.index), top = node.index;
    RAD_ASSERT_ENV(&t->env, end >= pages);
    for (uint32_t id = node.index; t->nodes[id].parent; id = t->nodes[id].parent) {
        const radix_node *n = &t->nodes[id];
        uint32_t start = end - n->pages;
        if (start < pages)
            memcpy(tokens + c->bigram + start * ps, radix_tokens(t, n),
                   (RAD_MIN(end, pages) - start) * ps * sizeof *tokens);
        end = start;
        top = id;
    }
    if (c->bigram) tokens[0] = radix_lead(t, &t->nodes[top]);
    const namespace_entry *e = &t->names.entries[t->nodes[node.index].ns];
    *key = (rad_key){.tokens = tokens,
                     .num_tokens = (uint32_t)(pages * ps) + (pages ? c->bigram : 0),
                     .extra_key = e->has_extra ? e->text : NULL,
                     .cache_salt = e->has_salt ? e->text + e->salt_at : NULL};
}

uint32_t tree_path_hit(const radix_cache *c, rad_ref node, uint32_t pages)
{
    const radix_tree *t = &c->tree;
    uint32_t end = radix_cache_depth(c, node.index);
    for (uint32_t id = node.index; t->nodes[id].parent; id = t->nodes[id].parent) {
        if (t->nodes[id].hit_count) return RAD_MIN(end, pages);
        end -= t->nodes[id].pages;
    }
    return 0;
}

enum { MOST_LOOKED_AT = 64 };

uint32_t tree_coldest_leaves(const radix_cache *c, rad_ref *leaves, uint32_t max)
{
    const radix_tree *t = &c->tree;
    heap_key keys[MOST_LOOKED_AT];
    uint32_t count = 0, end = RAD_MIN(t->leaves.count, (uint32_t)MOST_LOOKED_AT);
    max = RAD_MIN(max, (uint32_t)MOST_LOOKED_AT);
    for (uint32_t i = 0; i < end; i++) {
        uint32_t id = heap_entry_id(&t->leaves.entries[i]);
        if (!radix_is_evictable_leaf(&t->nodes[id])) continue;
        heap_key key = t->policy->grows ? radix_leaf_key(t, id) : heap_key_of(&t->leaves, id);
        if (count == max && key >= keys[max - 1]) continue;
        uint32_t at = count < max ? count++ : max - 1;
        for (; at && keys[at - 1] > key; at--) {
            keys[at] = keys[at - 1];
            leaves[at] = leaves[at - 1];
        }
        keys[at] = key;
        leaves[at] = radix_cache_ref(c, id);
    }
    return count;
}

rad_ref tree_leaf_at(const radix_cache *c, uint32_t place, bool *evictable)
{
    const radix_tree *t = &c->tree;
    uint32_t id = heap_entry_id(&t->leaves.entries[place]);
    *evictable = radix_is_evictable_leaf(&t->nodes[id]);
    return radix_cache_ref(c, id);
}

static bool is_below_root(const radix_tree *t, uint32_t id)
{
    return t->nodes[id].parent != 0;
}

void tree_path_hits(radix_cache *c, rad_ref node, int32_t priority)
{
    radix_tree *t = &c->tree;
    for (uint32_t id = node.index; is_below_root(t, id); id = t->nodes[id].parent) {
        t->nodes[id].hit_count += t->nodes[id].hit_count < UINT32_MAX;
        t->nodes[id].priority = RAD_MAX(t->nodes[id].priority, priority);
        if (t->worth) t->worth[id].heat = evict_heat_add(t->worth[id].heat, t->heat_now);
    }
    radix_refile(t, node.index);
}

void tree_path_carry(const radix_cache *c, rad_ref node, radix_cache *to, rad_ref to_node)
{
    const radix_tree *t = &c->tree;
    radix_tree *u = &to->tree;
    uint32_t here = node.index, there = to_node.index;
    uint32_t end = radix_cache_depth(c, here), to_end = radix_cache_depth(to, there);
    for (uint32_t id = there; is_below_root(u, id); id = u->nodes[id].parent) {
        /* The node here that has the last page of the one there, or of all that is here. */
        while (is_below_root(t, here) && end - t->nodes[here].pages >= to_end) {
            end -= t->nodes[here].pages;
            here = t->nodes[here].parent;
        }
        to_end -= u->nodes[id].pages;
        if (to_end >= end) continue; /* all of it is behind */
        u->nodes[id].hit_count = RAD_MAX(u->nodes[id].hit_count, t->nodes[here].hit_count);
        u->nodes[id].priority = RAD_MAX(u->nodes[id].priority, t->nodes[here].priority);
    }
    radix_refile(u, there);
}
