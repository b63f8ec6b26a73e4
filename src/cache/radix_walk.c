/* radix_walk.c - from a root as far as a key goes.
 *
 *     tokens   | a b c d | e f g | h i . .
 *     nodes    | a b c d | e f g | h i x y        pos: node 2 passed whole, 2 pages of its child
 *
 * A node's child is found in the map of all children, under the hash of the node and of the key's
 * next page; a node with one child asks nobody. Both only propose: the comparison of the tokens,
 * which a walk needs anyway, decides. So
 *
 * Invariant, verified by radix_check() through radix_is_filed(): among the children of a node no
 * two begin with the same page, and each is filed under the hash that a walk asks for. */
#include "cache/radix_path.h"

/* A walk is compiled twice, with and without bigram keys, so that neither asks at each
 * node which it is. */
#if defined(__GNUC__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NOINLINE      __attribute__((noinline)) /* keeps the walk's own code small */
#else
#define ALWAYS_INLINE static inline
#define NOINLINE
#endif

/* How many pages of the node's edge the key follows. */
static inline uint32_t match_pages(const radix_tree *t, const radix_node *n,
                                   const rad_token *tokens, uint32_t num_pages)
{
    uint32_t ps = t->limits.page_size, most = RAD_MIN(n->pages, num_pages);
    uint32_t len = key_match_len(radix_tokens(t, n), tokens, most * ps);
    return t->shift < 32 ? len >> t->shift : len / ps;
}

/* Asks for what a walk reads behind this node while its tokens are compared: the pages, and
 * the place of the child that the key goes on with, if it goes on. */
ALWAYS_INLINE void prefetch_behind(const radix_tree *t, uint32_t node, const rad_token *tokens,
                                   uint32_t num_pages)
{
    const radix_node *n = &t->nodes[node];
    __builtin_prefetch(t->regions + n->at);
    if (n->num_children <= 1) {
        __builtin_prefetch(&t->nodes[n->first_child]);
    } else if (num_pages > n->pages) {
        const rad_token *page = tokens + (size_t)n->pages * t->limits.page_size;
        map_prefetch(&t->children, radix_child_hash(t, node, page, 0));
    }
}

/* The child that the key goes on with, 0 when there is none; *matched pages of its edge
 * agree, at least one. The hash, or being the only child, makes a candidate; the
 * comparison that is needed anyway decides. */
ALWAYS_INLINE uint32_t follow(const radix_tree *t, uint32_t parent, bool bigram, rad_token lead,
                              const rad_token *tokens, uint32_t num_pages, uint32_t *matched)
{
    const radix_node *p = &t->nodes[parent];
    if (p->num_children <= 1) { /* a chain needs no hash */
        uint32_t only = p->first_child;
        if (!only || (bigram && t->nodes[only].lead != lead)) return 0;
        prefetch_behind(t, only, tokens, num_pages);
        *matched = match_pages(t, &t->nodes[only], tokens, num_pages);
        return *matched ? only : 0;
    }
    uint32_t hash = radix_child_hash(t, parent, tokens, bigram ? lead : 0);
    uint32_t at = map_start(&t->children, hash);
    for (uint32_t id; (id = map_next(&t->children, hash, &at));) {
        if (t->nodes[id].parent != parent) continue;
        if (bigram && t->nodes[id].lead != lead) continue;
        prefetch_behind(t, id, tokens, num_pages);
        *matched = match_pages(t, &t->nodes[id], tokens, num_pages);
        if (*matched) return id;
    }
    return 0;
}

bool radix_is_filed(const radix_tree *t, uint32_t node)
{
    const radix_node *n = &t->nodes[node];
    uint32_t hash = radix_child_hash(t, n->parent, radix_tokens(t, n), n->lead), found = 0;
    uint32_t at = map_start(&t->children, hash), ps = t->limits.page_size;
    for (uint32_t id; (id = map_next(&t->children, hash, &at));) {
        const radix_node *other = &t->nodes[id];
        if (other->parent != n->parent || other->lead != n->lead) continue;
        found += key_match_len(radix_tokens(t, other), radix_tokens(t, n), ps) == ps;
        if (found == 1 && id != node) return false;
    }
    return n->hash == hash && found == 1;
}

ALWAYS_INLINE radix_pos walk(const radix_tree *t, uint32_t root, bool bigram,
                             const rad_token *tokens, uint32_t num_pages)
{
    radix_pos pos = {.node = root};
    rad_token lead = bigram && num_pages ? radix_first_lead(t, root, tokens) : 0;
    while (pos.pages < num_pages) {
        const rad_token *rest = tokens + (size_t)pos.pages * t->limits.page_size;
        uint32_t matched;
        uint32_t child = follow(t, pos.node, bigram, lead, rest, num_pages - pos.pages, &matched);
        if (!child) break;
        lead = 0;
        pos.pages += matched;
        if (matched < t->nodes[child].pages) {
            pos.child = child;
            pos.part = matched;
            break;
        }
        pos.node = child;
    }
    return pos;
}

radix_pos radix_walk(const radix_tree *t, uint32_t root, const rad_token *tokens,
                     uint32_t num_pages)
{
    if (t->limits.bigram) return walk(t, root, true, tokens, num_pages);
    return walk(t, root, false, tokens, num_pages);
}

static bool has_page(const radix_tree *t, radix_tier tier, bool to_copy, uint32_t node,
                     uint32_t part)
{
    return radix_is_on(t, node, tier) && (!to_copy || radix_can_copy(t, node, part));
}

uint32_t radix_front_of_page(const radix_tree *t, radix_tier tier, bool to_copy,
                             const radix_pos *pos, const rad_token *rest, uint32_t num_rest,
                             uint32_t *owner)
{
    enum { MOST_CHILDREN = 64 };
    uint32_t best = 0, ps = t->limits.page_size, most = RAD_MIN(num_rest, ps);
    if (pos->child) {
        const rad_token *page = radix_tokens(t, &t->nodes[pos->child]) + (size_t)pos->part * ps;
        *owner = pos->child;
        return has_page(t, tier, to_copy, *owner, pos->part) ? key_match_len(page, rest, most) : 0;
    }
    bool led = t->limits.bigram && !t->nodes[pos->node].parent; /* a pair has its lead, too */
    uint32_t id = t->nodes[pos->node].first_child;
    for (int tries = MOST_CHILDREN; id && tries > 0; tries--, id = t->nodes[id].next) {
        const radix_node *n = &t->nodes[id];
        if ((led && n->lead != rest[-1]) || !has_page(t, tier, to_copy, id, 0)) continue;
        uint32_t len = key_match_len(radix_tokens(t, n), rest, most);
        if (len > best) *owner = id;
        best = RAD_MAX(best, len);
    }
    return best;
}

void radix_to_tier(const radix_tree *t, radix_pos *pos, radix_tier tier)
{
    if (pos->child && !radix_is_on(t, pos->child, tier)) {
        pos->pages -= pos->part;
        pos->child = pos->part = 0;
    }
    for (; !radix_is_on(t, pos->node, tier); pos->node = t->nodes[pos->node].parent)
        pos->pages -= t->nodes[pos->node].pages;
}

ALWAYS_INLINE radix_pos match(radix_tree *t, uint32_t root, bool bigram, const rad_token *tokens,
                              uint32_t num_pages, uint64_t touched, rad_slot *slots)
{
    radix_pos pos = {.node = root};
    uint32_t ps = t->limits.page_size;
    rad_token lead = bigram && num_pages ? radix_first_lead(t, root, tokens) : 0;
    t->nodes[root].last_access = touched;
    while (pos.pages < num_pages) {
        size_t at = (size_t)pos.pages * ps;
        uint32_t left = num_pages - pos.pages, matched;
        uint32_t child = follow(t, pos.node, bigram, lead, tokens + at, left, &matched);
        if (!child || !radix_on_device(t, child)) break;
        lead = 0;
        radix_node *n = &t->nodes[child];
        if (slots) radix_expand(t, t->regions + n->at, matched, slots + at);
        pos.pages += matched;
        if (matched < n->pages) {
            pos.child = child;
            pos.part = matched;
            break;
        }
        n->last_access = touched;
        pos.node = child;
    }
    return pos;
}

static void ask_components(const radix_tree *t, radix_pos *pos)
{
    for (uint32_t before = UINT32_MAX; pos->pages != before;) {
        before = pos->pages;
        for (uint32_t i = 0; i < t->num_components; i++)
            t->components[i].ops->usable(t->components[i].self, t, pos);
    }
}

void radix_usable_end(const radix_tree *t, radix_pos *pos)
{
    ask_components(t, pos);
    if (!pos->child || radix_nodes_available(t)) return;
    /* No node to split with, and what the components need before the whole child's end is not what
     * they need before its front part's: the match ends where the child begins. */
    *pos = (radix_pos){.node = pos->node, .pages = pos->pages - pos->part};
    ask_components(t, pos);
}

void radix_host_end(const radix_tree *t, radix_pos *pos, uint32_t from)
{
    radix_to_tier(t, pos, RADIX_HOST);
    for (uint32_t before = UINT32_MAX; pos->pages != before && pos->pages > from;) {
        before = pos->pages;
        for (uint32_t i = 0; i < t->num_components && pos->pages > from; i++) {
            const radix_component *c = &t->components[i];
            if (!c->ops->loadable) {
                *pos = (radix_pos){.pages = from};
                return;
            }
            c->ops->loadable(c->self, t, pos, from);
        }
    }
}

/* With components the end is known only behind the walk: what it used is touched on the way back.
 */
NOINLINE void radix_match_walked(radix_tree *t, radix_pos *pos, uint64_t touched, rad_slot *slots)
{
    size_t ps = t->limits.page_size;
    radix_to_tier(t, pos, RADIX_DEVICE);
    radix_usable(t, pos);
    radix_path p = radix_path_to(t, pos);
    for (; radix_path_is(t, &p); radix_path_up(t, &p)) {
        radix_node *n = &t->nodes[p.node];
        if (p.node != pos->child) n->last_access = touched;
        if (slots) radix_expand(t, t->regions + n->at, p.end - p.begin, slots + p.begin * ps);
    }
    t->nodes[p.node].last_access = touched;
}

NOINLINE static radix_pos match_usable(radix_tree *t, uint32_t root, const rad_token *tokens,
                                       uint32_t num_pages, uint64_t touched, rad_slot *slots)
{
    radix_pos pos = radix_walk(t, root, tokens, num_pages);
    radix_match_walked(t, &pos, touched, slots);
    return pos;
}

radix_pos radix_match(radix_tree *t, uint32_t root, const rad_token *tokens, uint32_t num_pages,
                      uint64_t touched, rad_slot *slots)
{
    if (t->num_components) return match_usable(t, root, tokens, num_pages, touched, slots);
    if (t->limits.bigram) return match(t, root, true, tokens, num_pages, touched, slots);
    return match(t, root, false, tokens, num_pages, touched, slots);
}
