/* radix_part.h - what a node carries besides its key and its pages, behind one table.
 *
 * Values of components (radix_component.h) and attachments: pins and retention (radix_keep.c), tags
 * of sessions (radix_tags.c), worth (radix_worth.c), hashes and events (radix_journal.c). A new one
 * is a file of its own and a line where the tree or the cache is made.
 *
 * The tree tells each part whenever a node comes, goes, or changes its length:
 *
 *     on_add      a new leaf hangs in its place, on no tier yet
 *     on_split    | upper | child |     the first pages of `child` are a node of their own now
 *     on_merge    | lower         |     `lower` took in `upper`, which is about to go
 *     on_shift    | upper | lower |     the last pages of `upper` are the first of its only child now
 *     on_trim     | node  |  .  . |     a leaf is about to lose the pages behind `kept`
 *     on_drop                           a node without children is about to go
 *     on_move                           pages of the arenas went to other places, in one run
 *
 * and when pages come to a tier or leave it:
 *
 *     on_enter    the node has all its pages on the tier now
 *     on_cut      those behind the first `kept` of its pages are about to leave the tier
 *     on_leave    it has none there any more, and stays for the other tier
 *
 * In all of them but on_trim and on_cut the nodes have their new lengths; in on_merge `upper` still
 * has its own. A part that is not concerned leaves an entry NULL. */
#ifndef CACHE_RADIX_PART_H
#define CACHE_RADIX_PART_H

#include "base/heap.h"

struct radix_tree;

typedef enum radix_tier { RADIX_DEVICE, RADIX_HOST, RADIX_TIERS } radix_tier;

typedef struct node_part_ops {
    void (*fini)(void *self, struct radix_tree *t);
    void (*clear)(void *self, struct radix_tree *t); /* all nodes have gone */

    void (*on_add)(void *self, struct radix_tree *t, uint32_t leaf);
    void (*on_split)(void *self, struct radix_tree *t, uint32_t upper, uint32_t child);
    void (*on_merge)(void *self, struct radix_tree *t, uint32_t upper, uint32_t lower);
    void (*on_shift)(void *self, struct radix_tree *t, uint32_t upper, uint32_t lower);
    void (*on_trim)(void *self, struct radix_tree *t, uint32_t leaf, uint32_t kept);
    void (*on_drop)(void *self, struct radix_tree *t, uint32_t node);
    void (*on_move)(void *self, struct radix_tree *t, uint32_t to, uint32_t from, uint32_t len);

    void (*on_enter)(void *self, struct radix_tree *t, uint32_t node, radix_tier tier);
    void (*on_cut)(void *self, struct radix_tree *t, uint32_t leaf, radix_tier tier, uint32_t kept);
    void (*on_leave)(void *self, struct radix_tree *t, uint32_t node, radix_tier tier);

    /* A match or an insert ended at `node`; the order of eviction is about to be looked at. */
    void (*on_use)(void *self, struct radix_tree *t, uint32_t node);
    void (*on_evict)(void *self, struct radix_tree *t);

    /* The bits of a leaf's key above the policy's (evict_policy.h): no two parts set the same. */
    heap_key (*rank)(void *self, const struct radix_tree *t, uint32_t node, radix_tier tier);

    /* Whether a node and its only child may be one again without anybody noticing; and whether
     * they may when nodes are short, at the price of what is lost then. */
    bool (*equal)(void *self, const struct radix_tree *t, uint32_t upper, uint32_t lower);
    bool (*can_merge)(void *self, const struct radix_tree *t, uint32_t upper, uint32_t lower);

    /* NULL when the node is sound; and whether everything together is, RAD_E_CORRUPT in words. */
    const char *(*fault)(void *self, const struct radix_tree *t, uint32_t node);
    rad_status (*check)(void *self, const struct radix_tree *t, rad_error *err);
} node_part_ops;

typedef struct node_part {
    const node_part_ops *ops;
    void *self;
} node_part;

/* Tells all parts of an event that has arguments: a function cannot be given the name of an entry.
 */
#define RADIX_TELL(t, event, ...)                                                                  \
    for (uint32_t part_ = 0; part_ < (t)->num_parts; part_++)                                      \
        if ((t)->parts[part_].ops->event)                                                          \
    (t)->parts[part_].ops->event((t)->parts[part_].self, (t), __VA_ARGS__)

#endif
