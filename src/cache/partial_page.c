/* partial_page.c - the front of a cached page, copied into a private one.
 *
 * The source is locked while a page is evicted for the private one. Where one is free, nothing is
 * locked and the tree stays as it is, to the places in its heaps: who repeats the other calls on
 * another tree (replay/replay_record.c) knows nothing of this one. The private page is the caller's
 * from the start: the tree never learns of it unless a later publication brings it, complete. */
#include <radish/partial_page.h>

#include "cache/radix_cache.h"

uint32_t radix_cache_partial(const radix_cache *c, const rad_key *key, const radix_pos *pos,
                             rad_page *page, uint32_t *owner)
{
    const radix_tree *t = &c->tree;
    uint32_t behind = pos->pages * c->base.page_size;
    uint32_t left = key_length(key->num_tokens, c->bigram) - behind;
    if (!left || !pos->node) return 0;
    const rad_token *rest = radix_cache_tokens(c, key) + behind;
    uint32_t len = radix_front_of_page(t, RADIX_DEVICE, true, pos, rest, left, owner);
    if (len) *page = radix_page_at(t, &t->nodes[*owner], pos->child ? pos->part : 0);
    return len;
}

/* A page of the allocator's; one is evicted if there is none left, and none of the source's. */
static rad_status take_page(radix_cache *c, uint32_t source, rad_page *page)
{
    rad_status status = rad_kv_alloc(c->base.kv, page, 1);
    if (status != RAD_FULL) return status;
    radix_lock(&c->tree, source);
    if (!rad_kv_available_pages(c->base.kv)) radix_evict(&c->tree, 1, radix_cache_drop, c);
    if (c->base.window_pages && !rad_kv_window_available_pages(c->base.kv))
        (void)rad_cache_evict_window(&c->base, 1, NULL);
    radix_unlock(&c->tree, source);
    return rad_kv_alloc(c->base.kv, page, 1);
}

rad_status rad_cache_reuse_partial(rad_cache *cache, const rad_key *key, const rad_match *match,
                                   rad_slot *slots, uint32_t *num_tokens)
{
    radix_cache *c = radix_cache_of(cache);
    uint32_t ps = cache->page_size, owner = 0;
    if (!cache_key_is_sound(key) || !match || !slots || !num_tokens) return RAD_E_INVAL;
    *num_tokens = 0;
    if (!c || !c->copy_slots || !cache->kv) return RAD_E_UNSUPPORTED;
    uint32_t length = key_length(key->num_tokens, c->bigram);
    if (match->prefix_tokens % ps || match->prefix_tokens > length) return RAD_E_INVAL;
    uint32_t root = radix_cache_root(c, key);
    radix_pos pos;
    rad_page from = 0, to = 0;
    rad_status status = radix_cache_seek(c, match->last_node, match->prefix_tokens / ps, &pos);
    if (status) return status;
    if (!pos.node) pos.node = root;
    if (!root) return pos.pages ? RAD_E_STATE : RAD_OK;
    if (c->tree.nodes[pos.node].ns != c->tree.nodes[root].ns) return RAD_E_STATE;
    uint32_t count = radix_cache_partial(c, key, &pos, &from, &owner);
    if (!count) return RAD_OK;

    status = take_page(c, owner, &to);
    if (!status && c->base.window_pages && !rad_kv_has_window(cache->kv, from))
        status = RAD_FULL; /* taking a page took its window side */
    rad_slot first = to * (rad_slot)ps;
    if (!status) status = c->copy_slots(c->copy_user, from * (rad_slot)ps, first, count);
    if (status && to) (void)rad_kv_free(cache->kv, &to, 1, NULL);
    rad_status dropped = radix_cache_take_drop_status(c);
    if (status) return status;
    for (uint32_t i = 0; i < count; i++)
        slots[i] = first + (rad_slot)i;
    *num_tokens = count;
    return dropped;
}
