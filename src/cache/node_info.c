/* node_info.c - what a node is, for whoever has its name. */
#include "cache/radix_cache.h"
#include "cache/radix_host.h"
#include "cache/radix_state.h"
#include "cache/radix_window.h"

static void fill_window(const radix_tree *t, radix_tier tier, uint32_t node, uint32_t *tokens,
                        uint32_t *lock_ref)
{
    if (!t->windows[tier]) return;
    const radix_value *window = radix_window_of(t, tier, node);
    *tokens = (window->end - window->first) * t->limits.page_size;
    *lock_ref = window->lock_ref;
}

static void fill_state(const radix_tree *t, radix_tier tier, uint32_t node, rad_state *state,
                       uint32_t *lock_ref)
{
    if (!t->states[tier]) return;
    *state = radix_state_of(t, tier, node);
    *lock_ref = t->values[RADIX_STATE][tier][node].lock_ref;
}

static void fill(const radix_cache *c, uint32_t node, rad_node_info *info)
{
    const radix_tree *t = &c->tree;
    const radix_node *n = &t->nodes[node];
    uint32_t ps = c->base.page_size;
    info->parent = radix_cache_ref(c, n->parent);
    info->num_tokens = n->pages * ps;
    info->depth_tokens = radix_depth(t, node) * ps;
    info->num_children = n->num_children;
    info->on_device = radix_on_device(t, node);
    info->on_host = radix_on_host(t, node);
    info->is_evictable = radix_is_evictable_leaf(t, node);
    info->lock_ref = n->lock_ref;
    info->host_lock_ref = radix_host_locks(t, node);
    fill_window(t, RADIX_DEVICE, node, &info->window_tokens, &info->window_lock_ref);
    fill_window(t, RADIX_HOST, node, &info->host_window_tokens, &info->host_window_lock_ref);
    fill_state(t, RADIX_DEVICE, node, &info->state, &info->state_lock_ref);
    fill_state(t, RADIX_HOST, node, &info->host_state, &info->host_state_lock_ref);
    info->hit_count = n->hit_count;
    info->priority = n->priority;
    info->last_access = n->last_access;
    info->created = t->cold[node].created;
}

rad_status rad_cache_get_node_info(const rad_cache *cache, rad_ref node, rad_node_info *info,
                                   rad_error *err)
{
    rad_node_info i = {.struct_size = sizeof i};
    if (!info || info->struct_size < sizeof i)
        return rad_fail(err, RAD_E_INVAL, "node_info: no place for the answer");
    const radix_cache *c = radix_cache_of(cache);
    if (!c) return rad_fail(err, RAD_E_UNSUPPORTED, "node_info: this cache has no nodes");
    if (node.index || node.generation) {
        if (!radix_is_ref(&c->tree, node))
            return radix_refuse_ref(&c->tree, "node_info", node, err);
        fill(c, node.index, &i);
    }
    i.struct_size = info->struct_size;
    memcpy(info, &i, sizeof i);
    return RAD_OK;
}
