/* radix_part.h - what a node carries besides its key and its pages, behind one table.
 *
 * The tree tells each part whenever a node comes, goes, or changes its length:
 *
 *     on_add      a new leaf hangs in its place
 *     on_split    | upper | child |     the first pages of `child` are a node of their own now
 *     on_merge    | lower         |     `lower` took in `upper`, which is about to go
 *     on_trim     | node  |  .  . |     a leaf is about to lose the pages behind `kept`
 *     on_drop                           a node without children is about to go
 *     on_move                           pages of the arenas went to other places, in one run
 *
 * In all of them but on_trim the nodes have their new lengths; in on_merge `upper` still has its
 * own. A part that is not concerned leaves an entry NULL. */
#ifndef CACHE_RADIX_PART_H
#define CACHE_RADIX_PART_H

#include "base/base.h"

struct radix_tree;

typedef struct node_part_ops {
    const char *name;
    void (*fini)(void *self, struct radix_tree *t);
    void (*clear)(void *self, struct radix_tree *t); /* all nodes have gone */

    void (*on_add)(void *self, struct radix_tree *t, uint32_t leaf);
    void (*on_split)(void *self, struct radix_tree *t, uint32_t upper, uint32_t child);
    void (*on_merge)(void *self, struct radix_tree *t, uint32_t upper, uint32_t lower);
    void (*on_trim)(void *self, struct radix_tree *t, uint32_t leaf, uint32_t kept);
    void (*on_drop)(void *self, struct radix_tree *t, uint32_t node);
    void (*on_move)(void *self, struct radix_tree *t, uint32_t to, uint32_t from, uint32_t len);

    /* Whether a node and its only child may be one again without anybody noticing; and whether
     * they may when nodes are short, at the price of what is lost then. */
    bool (*equal)(void *self, const struct radix_tree *t, uint32_t upper, uint32_t lower);
    bool (*can_merge)(void *self, const struct radix_tree *t, uint32_t upper, uint32_t lower);

    /* NULL when the node is sound; and when everything together is. */
    const char *(*node_fault)(void *self, const struct radix_tree *t, uint32_t node);
    const char *(*fault)(void *self, const struct radix_tree *t);
} node_part_ops;

typedef struct node_part {
    const node_part_ops *ops;
    void *self;
} node_part;

#endif
