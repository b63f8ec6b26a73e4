/* continuation.c - what stands in the tree behind a text: what others went on with.
 *
 *     key     | ... a b c d e f | g h        page size 4: whole pages are walked, and among what
 *     tree    | ... a b c d | e f g h |      hangs there the page that begins with the rest is
 *                             \ x y . .      found; its tokens behind the rest are the answer, and
 *                                            those of the child that was used last, and so on
 *
 * Tokens stay in the tree as long as they have pages on any tier, so a text whose K/V the host
 * alone has still says how it went on. */
#include "cache/radix_cache.h"

/* Where the next token stands: token `at` of the node's edge. */
typedef struct place {
    uint32_t node;
    uint32_t at;
} place;

enum { MOST_CHILDREN = 64 };

/* The child that was used last, of those that were added last; 0: there is none. */
static uint32_t latest_child(const radix_tree *t, uint32_t node)
{
    uint32_t latest = 0, id = t->nodes[node].first_child;
    for (int tries = MOST_CHILDREN; id && tries > 0; tries--, id = t->nodes[id].next)
        if (!latest || t->nodes[id].last_access > t->nodes[latest].last_access) latest = id;
    return latest;
}

/* The place behind the `rest` of a page (fewer than a page's tokens) that follows `pos`. */
static place behind(const radix_tree *t, const radix_pos *pos, const rad_token *rest,
                    uint32_t num_rest)
{
    const uint32_t ps = t->limits.page_size;
    uint32_t owner = 0;
    if (!num_rest && pos->child) return (place){pos->child, pos->part * ps};
    if (!num_rest) return (place){latest_child(t, pos->node), 0};
    if (radix_front_of_page(t, RADIX_DEVICE, false, pos, rest, num_rest, &owner) < num_rest)
        return (place){0};
    return (place){owner, (pos->child ? pos->part * ps : 0) + num_rest};
}

static uint32_t read_on(const radix_tree *t, place from, rad_token *tokens, uint32_t room)
{
    uint32_t count = 0;
    while (from.node && count < room) {
        const radix_node *n = &t->nodes[from.node];
        const uint32_t left = n->pages * t->limits.page_size - from.at;
        const uint32_t take = RAD_MIN(left, room - count);
        memcpy(tokens + count, radix_tokens(t, n) + from.at, take * sizeof *tokens);
        count += take;
        from = (place){latest_child(t, from.node), 0};
    }
    return count;
}

rad_status rad_cache_continuation(const rad_cache *cache, const rad_key *key, rad_ref node,
                                  uint32_t node_tokens, rad_token *tokens, uint32_t room,
                                  uint32_t *num_tokens)
{
    const radix_cache *c = radix_cache_of(cache);
    const uint32_t ps = cache->page_size;
    if (!cache_key_is_sound(key) || !num_tokens || (room && !tokens)) return RAD_E_INVAL;
    *num_tokens = 0;
    if (!c || c->bigram) return RAD_E_UNSUPPORTED;
    if (node_tokens % ps || node_tokens > key->num_tokens) return RAD_E_INVAL;
    const radix_tree *t = &c->tree;
    radix_pos pos;
    rad_status status = radix_cache_seek(c, node, node_tokens / ps, &pos);
    if (status) return status;
    const uint32_t root = radix_cache_root(c, key);
    if (!pos.node) pos.node = root;
    if (!root) return pos.pages ? RAD_E_STATE : RAD_OK;
    if (t->nodes[pos.node].ns != t->nodes[root].ns) return RAD_E_STATE;

    const uint32_t from = pos.pages - pos.part, whole = key->num_tokens / ps - from;
    const rad_token *rest = key->tokens + (size_t)from * ps;
    pos = radix_walk(t, pos.node, rest, whole);
    if (pos.pages < whole) return RAD_OK; /* nobody went this way */
    *num_tokens =
        read_on(t, behind(t, &pos, rest + (size_t)whole * ps, key->num_tokens % ps), tokens, room);
    return RAD_OK;
}
