/* evict_policy.c - the policies. */
#include "cache/evict_policy.h"

static uint64_t lru_key(const radix_node *node, const radix_cold *cold)
{
    (void)cold;
    return node->last_access;
}

const evict_policy evict_policy_lru = {.name = "lru", .key = lru_key, .grows = true};
