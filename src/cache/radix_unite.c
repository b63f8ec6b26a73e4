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
#include "cache/radix_window.h"
#include "mem/kv_window.h"

enum { LOT = 128 };

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
        for (uint32_t i = lot; i-- > 0; at--) {
            rad_page ours = radix_page_of(t, slots[(at - 1 - from) * ps]);
            if (!rad_kv_has_window(c->base.kv, ours) || lane_get(c->cached, (size_t)ours))
                return first - at;
            kv_window_move(c->base.kv, ours, theirs[i]);
        }
    }
    return first - at;
}

void radix_unite_windows(radix_cache *c, uint32_t node, uint32_t end, const rad_slot *slots,
                         uint32_t from)
{
    radix_tree *t = &c->tree;
    for (uint32_t id = node; end > from; id = t->nodes[id].parent) {
        const radix_node *n = &t->nodes[id];
        uint32_t start = end - n->pages, first = radix_window_of(t, id)->first;
        uint32_t begin = from > start ? from - start : 0;
        const rad_slot *of_begin = slots + (size_t)(start + begin - from) * c->base.page_size;
        uint32_t more = first > begin ? take_before(c, n, first, begin, of_begin) : 0;
        if (more) radix_window_grow(t, id, first - more);
        end = start;
    }
}

void radix_adopt_windows(radix_cache *c, uint32_t leaf)
{
    radix_tree *t = &c->tree;
    const radix_node *n = &t->nodes[leaf];
    uint32_t first = n->pages;
    bool gap = false;
    for (uint32_t end = n->pages, lot; end; end -= lot) {
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
    if (first < n->pages) radix_window_grow(t, leaf, first);
}
