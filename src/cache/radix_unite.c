/* radix_unite.c - of two pages for the same tokens the tree's stays, and with it the window side
 * that either has.
 *
 *     tree     | o     .     o |                          o: with a window side
 *     comes    | o     o     . | o   o                    .: has lost it
 *     stays    | tree  tree  tree | new new
 *                      ^ with the window side of the one that came
 *
 * A window side moves by two entries of the allocator's map; nothing is copied, and whoever holds
 * the tree's page goes on reading what it read. What a node has ends at its end, so window sides
 * are taken from behind, as far as they reach without a gap. */
#include "cache/radix_cache.h"
#include "cache/radix_path.h"
#include "cache/radix_window.h"
#include "mem/kv_window.h"

enum { LOT = 128 };

/* The page that a request brings has a window side, and is not the tree's: that goes to `theirs`.
 */
static bool take_window(radix_cache *c, rad_page ours, rad_page theirs)
{
    if (c->list.num_pages) {
        if ((uint32_t)ours >= c->list.num_pages || lane_get(c->cached, (size_t)ours)) return false;
        c->list.move_window(c->list.user, ours, theirs);
        return true;
    }
    if (!rad_kv_has_window(c->base.kv, ours) || lane_get(c->cached, (size_t)ours)) return false;
    kv_window_move(c->base.kv, ours, theirs);
    return true;
}

/* How many of the node's pages before page `first` get a window side; slots[0] belongs to its page
 * `from`. */
static uint32_t take_before(radix_cache *c, const radix_node *n, uint32_t first, uint32_t from,
                            const rad_slot *slots)
{
    const radix_tree *t = &c->tree;
    size_t ps = c->base.page_size;
    uint32_t at = first;
    for (rad_page theirs[LOT]; at > from;) {
        uint32_t lot = RAD_MIN(at - from, (uint32_t)LOT);
        page_runs_expand(t->regions + n->at, at - lot, lot, 1, theirs); /* as pages */
        for (uint32_t i = lot; i-- > 0; at--)
            if (!take_window(c, radix_page_of(t, slots[(at - 1 - from) * ps]), theirs[i]))
                return first - at;
    }
    return first - at;
}

void radix_unite_windows(radix_cache *c, uint32_t node, uint32_t end, const rad_slot *slots,
                         uint32_t from, uint32_t window_from)
{
    radix_tree *t = &c->tree;
    uint32_t stop = RAD_MAX(from, window_from);
    for (radix_path p = radix_path_of(t, node, end); p.end > stop; radix_path_up(t, &p)) {
        uint32_t at = RAD_MAX(p.begin, stop), begin = at - p.begin;
        uint32_t first = radix_window_of(t, RADIX_DEVICE, p.node)->first;
        const rad_slot *of_begin = slots + (size_t)(at - from) * c->base.page_size;
        if (first <= begin) continue;
        uint32_t more = take_before(c, &t->nodes[p.node], first, begin, of_begin);
        if (more) radix_window_grow(t, RADIX_DEVICE, p.node, first - more);
    }
}

void radix_adopt_windows(radix_cache *c, uint32_t node, uint32_t begin, uint32_t window_from)
{
    radix_tree *t = &c->tree;
    const radix_node *n = &t->nodes[node];
    uint32_t first = c->list.num_pages ? RAD_MAX(begin, window_from) - begin : n->pages;
    bool gap = false;
    for (uint32_t end = c->list.num_pages ? 0 : n->pages, lot; end; end -= lot) {
        rad_page pages[LOT];
        lot = RAD_MIN(end, (uint32_t)LOT);
        page_runs_expand(t->regions + n->at, end - lot, lot, 1, pages);
        for (uint32_t i = lot; i-- > 0;) {
            bool has = rad_kv_has_window(c->base.kv, pages[i]);
            gap = gap || !has;
            if (!gap) first = end - lot + i;
            if (gap && has) (void)rad_kv_free_window(c->base.kv, &pages[i], 1, NULL);
        }
    }
    if (first < n->pages) radix_window_grow(t, RADIX_DEVICE, node, first);
}
