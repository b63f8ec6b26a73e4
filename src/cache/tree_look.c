/* tree_look.c - see tree_look.h. */
#include "cache/tree_look.h"

#include "cache/radix_cache.h"
#include "cache/radix_host.h"
#include "cache/radix_journal.h"
#include "cache/radix_state.h"
#include "cache/radix_tags.h"
#include "cache/radix_window.h"

static void look_at_keep(const radix_tree *t, uint32_t id, uint64_t now_ns, tree_node_look *n)
{
    if (!t->keep.records) return;
    const keep_record *k = &t->keep.records[id];
    n->retention = k->retention;
    if (k->pinned_on && k->pin_until > now_ns) n->pinned_ns = k->pin_until - now_ns;
}

static bool is_default(const namespaces *names, uint32_t ns)
{
    const namespace_name *name = &names->entries[ns].name;
    return !namespace_extra_key(name) && !namespace_cache_salt(name);
}

static void look_at(const radix_tree *t, uint32_t id, uint64_t now_ns, tree_node_look *n)
{
    const radix_node *of = &t->nodes[id];
    const bool below_root = !t->nodes[of->parent].parent;
    *n = (tree_node_look){.id = id,
                          .generation = t->ids.generation[id],
                          .parent = below_root ? 0 : of->parent,
                          .parent_generation = below_root ? 0 : t->ids.generation[of->parent],
                          .namespace_id = of->ns,
                          .num_tokens = of->pages * t->limits.page_size,
                          .num_children = of->num_children,
                          .lock_ref = of->lock_ref,
                          .host_lock_ref = radix_host_locks(t, id),
                          .hit_count = of->hit_count,
                          .sessions = tags_refs(t, id),
                          .priority = of->priority,
                          .last_access = of->last_access,
                          .created = t->cold[id].created,
                          .on_device = radix_on_device(t, id),
                          .on_host = radix_on_host(t, id),
                          .is_evictable = radix_is_evictable_leaf(t, id),
                          .in_default_namespace = is_default(&t->names, of->ns)};
    if (t->windows[RADIX_DEVICE]) {
        const radix_value *window = radix_window_of(t, RADIX_DEVICE, id);
        n->window_tokens = (window->end - window->first) * t->limits.page_size;
    }
    if (t->states[RADIX_DEVICE]) n->has_state = radix_state_of(t, RADIX_DEVICE, id) != 0;
    look_at_keep(t, id, now_ns, n);
    if (!n->is_evictable) return;
    heap_key key = radix_leaf_key(t, id, RADIX_DEVICE);
    n->order[0] = (uint64_t)(key >> 64);
    n->order[1] = (uint64_t)key;
}

static bool copy_tokens(const radix_tree *t, tree_look *look, tree_node_look *n)
{
    if (!look->tokens) return true;
    if (look->token_room - look->num_tokens < n->num_tokens) return false;
    n->tokens_at = look->num_tokens;
    memcpy(look->tokens + look->num_tokens, radix_tokens(t, &t->nodes[n->id]),
           n->num_tokens * sizeof *look->tokens);
    look->num_tokens += n->num_tokens;
    return true;
}

void tree_look_slice(const rad_cache *cache, tree_look *look)
{
    const radix_cache *c = radix_cache_of(cache);
    if (!c) {
        look->done = true;
        return;
    }
    const radix_tree *t = &c->tree;
    const uint64_t now_ns = t->env.now_ns(t->env.user);
    const uint32_t first = RAD_MAX(look->next, 1u);
    const uint32_t end =
        (uint32_t)RAD_MIN((uint64_t)first + TREE_LOOK_SLICE, (uint64_t)t->ids.num_fresh + 1);
    for (uint32_t id = first; id < end && !look->cut; id++) {
        if (!slab_is_live(&t->ids, id) || !t->nodes[id].parent) continue; /* roots have no key */
        tree_node_look *n = &look->nodes[look->count];
        look->cut = look->count == look->room;
        if (look->cut) break;
        look_at(t, id, now_ns, n);
        look->cut = !copy_tokens(t, look, n);
        look->count += !look->cut;
    }
    look->next = end;
    look->clock = t->clock;
    look->most_id = t->ids.num_fresh;
    look->done = look->cut || end > t->ids.num_fresh;
}

rad_status tree_look_tokens(const rad_cache *cache, rad_ref node, uint32_t from, rad_token *tokens,
                            uint32_t *count, uint32_t *total)
{
    const radix_cache *c = radix_cache_of(cache);
    if (!c || !radix_is_ref(&c->tree, node)) return RAD_E_STATE;
    const radix_node *n = &c->tree.nodes[node.index];
    *total = n->pages * c->base.page_size;
    *count = from < *total ? RAD_MIN(*count, *total - from) : 0;
    memcpy(tokens, radix_tokens(&c->tree, n) + from, *count * sizeof *tokens);
    return RAD_OK;
}

uint64_t tree_look_clock(const rad_cache *cache)
{
    const radix_cache *c = radix_cache_of(cache);
    return c ? c->tree.clock : 0;
}

const eviction_notes *tree_look_evictions(const rad_cache *cache)
{
    const radix_cache *c = radix_cache_of(cache);
    return c && c->tree.journal ? &c->tree.journal->notes : NULL;
}
