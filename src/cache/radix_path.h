/* radix_path.h - from a place in the tree up to its root, node by node.
 *
 *     path      | 0 . . . . | 5 . . 8 |        pages
 *     nodes     [ upper     ] [ node    . . ]  the first one may reach further than the path
 *     first                   begin   end
 *     then      begin       end
 *
 *     for (radix_path p = radix_path_of(t, node, end); radix_path_is(t, &p); radix_path_up(t, &p))
 */
#ifndef CACHE_RADIX_PATH_H
#define CACHE_RADIX_PATH_H

#include "cache/radix_tree.h"

/* Pages [begin, end) of the path are the first ones of `node`. */
typedef struct radix_path {
    uint32_t node;
    uint32_t begin;
    uint32_t end;
} radix_path;

/* The path that ends where the node ends, at page `end`. */
static inline radix_path radix_path_of(const radix_tree *t, uint32_t node, uint32_t end)
{
    return (radix_path){.node = node, .begin = end - t->nodes[node].pages, .end = end};
}

/* The path of a walk. */
static inline radix_path radix_path_to(const radix_tree *t, const radix_pos *pos)
{
    if (!pos->child) return radix_path_of(t, pos->node, pos->pages);
    return (radix_path){.node = pos->child, .begin = pos->pages - pos->part, .end = pos->pages};
}

/* False at the root, which holds no page. */
static inline bool radix_path_is(const radix_tree *t, const radix_path *p)
{
    return t->nodes[p->node].parent != 0;
}

static inline void radix_path_up(const radix_tree *t, radix_path *p)
{
    *p = radix_path_of(t, t->nodes[p->node].parent, p->begin);
}

#endif
