/* radix_worth.c - heat, and how far from the root.
 *
 * Heat is a logarithm that is fixed between two hits and grows with each (evict_policy.h); its
 * clock counts the pages that were added.
 *
 * Invariant, verified by worth_fault(): `above` is the number of pages above the node. Records of
 * roots and of names that are free are all zero. */
#include "cache/radix_worth.h"

void worth_pages_came(radix_tree *t, uint32_t pages)
{
    t->heat_clock += pages;
    t->heat_now = evict_heat_at(t->heat_clock, t->heat_half_life);
}

static void worth_on_add(void *self, radix_tree *t, uint32_t leaf)
{
    uint32_t parent = t->nodes[leaf].parent;
    (void)self;
    worth_pages_came(t, t->nodes[leaf].pages);
    t->worth[leaf] = (radix_worth){.heat = t->heat_now,
                                   .above = t->worth[parent].above + t->nodes[parent].pages};
}

static void worth_on_split(void *self, radix_tree *t, uint32_t upper, uint32_t child)
{
    (void)self;
    t->worth[upper] = t->worth[child];
    t->worth[child].above += t->nodes[upper].pages;
}

static void worth_on_merge(void *self, radix_tree *t, uint32_t upper, uint32_t lower)
{
    (void)self;
    t->worth[lower].heat = RAD_MAX(t->worth[lower].heat, t->worth[upper].heat);
    t->worth[lower].above = t->worth[upper].above;
    t->worth[upper] = (radix_worth){0};
}

static void worth_on_shift(void *self, radix_tree *t, uint32_t upper, uint32_t lower)
{
    (void)self;
    t->worth[lower].above = t->worth[upper].above + t->nodes[upper].pages;
}

static void worth_on_drop(void *self, radix_tree *t, uint32_t node)
{
    (void)self;
    t->worth[node] = (radix_worth){0};
}

static bool worth_equal(void *self, const radix_tree *t, uint32_t upper, uint32_t lower)
{
    (void)self;
    return t->worth[upper].heat == t->worth[lower].heat;
}

static const char *worth_fault(void *self, const radix_tree *t, uint32_t node)
{
    uint32_t parent = t->nodes[node].parent;
    (void)self;
    return t->worth[node].above == t->worth[parent].above + t->nodes[parent].pages
               ? NULL
               : "miscounts the pages above it";
}

static void worth_clear(void *self, radix_tree *t)
{
    (void)self;
    memset(t->worth, 0, ((size_t)t->ids.num_fresh + 1) * sizeof *t->worth);
}

static void worth_fini(void *self, radix_tree *t)
{
    (void)self;
    rad_free_sparse(&t->env, t->worth, ((size_t)t->num_nodes + 1) * sizeof *t->worth);
}

static const node_part_ops worth_ops = {
    .fini = worth_fini,
    .clear = worth_clear,
    .on_add = worth_on_add,
    .on_split = worth_on_split,
    .on_merge = worth_on_merge,
    .on_shift = worth_on_shift,
    .on_drop = worth_on_drop,
    .equal = worth_equal,
    .fault = worth_fault,
};

bool worth_init(radix_tree *t, uint64_t half_life)
{
    size_t bytes = ((size_t)t->num_nodes + 1) * sizeof *t->worth;
    radix_add_part(t, &worth_ops, NULL);
    t->heat_half_life = RAD_MAX(half_life, (uint64_t)1);
    t->worth = rad_alloc_sparse(&t->env, bytes);
    t->metadata_bytes += bytes;
    return t->worth != NULL;
}
