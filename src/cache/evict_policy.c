/* evict_policy.c - the policies.
 *
 * Times are those of the operation counter. Counters share the key with a time below
 * them, and stop at what their bits hold: 2^22 hits are as good as more. */
#include "cache/evict_policy.h"

#include "base/word_list.h"
#include "cache/radix_tree.h"

static uint64_t reversed(uint64_t time)
{
    return UINT64_MAX - time;
}

static heap_key lru_key(const radix_tree *t, uint32_t node, const rad_eviction_options *options)
{
    (void)options;
    return t->nodes[node].last_access;
}

static heap_key lfu_key(const radix_tree *t, uint32_t node, const rad_eviction_options *options)
{
    (void)options;
    const radix_node *n = &t->nodes[node];
    return (heap_key)n->hit_count << EVICT_TIME_BITS | n->last_access;
}

static heap_key fifo_key(const radix_tree *t, uint32_t node, const rad_eviction_options *options)
{
    (void)options;
    return t->cold[node].created;
}

static heap_key mru_key(const radix_tree *t, uint32_t node, const rad_eviction_options *options)
{
    (void)options;
    return reversed(t->nodes[node].last_access);
}

static heap_key filo_key(const radix_tree *t, uint32_t node, const rad_eviction_options *options)
{
    (void)options;
    return reversed(t->cold[node].created);
}

static heap_key priority_key(const radix_tree *t, uint32_t node,
                             const rad_eviction_options *options)
{
    (void)options;
    const radix_node *n = &t->nodes[node];
    uint32_t raised = (uint32_t)n->priority ^ 0x80000000u; /* the same order, unsigned */
    return (heap_key)raised << EVICT_TIME_BITS | n->last_access;
}

static heap_key slru_key(const radix_tree *t, uint32_t node, const rad_eviction_options *options)
{
    const radix_node *n = &t->nodes[node];
    bool is_protected = n->hit_count >= options->protected_threshold;
    return (heap_key)is_protected << EVICT_TIME_BITS | n->last_access;
}

/* From the start of the context to the node's end. */
static uint64_t end_tokens(const radix_tree *t, uint32_t node)
{
    return ((uint64_t)t->worth[node].above + t->nodes[node].pages) * t->limits.page_size;
}

/* What stands at the tail goes first, so the tail's cost counts. A leaf that is cut gets
 * cheaper, hence stays the one to be cut: a victim can give all that is asked at once. */
static heap_key cost_key(const radix_tree *t, uint32_t node, const rad_eviction_options *options)
{
    return t->worth[node].heat + evict_cost(end_tokens(t, node), options->cost_attention_tokens);
}

static heap_key user_key(const radix_tree *t, uint32_t node, const rad_eviction_options *options)
{
    (void)options;
    const radix_node *n = &t->nodes[node];
    uint32_t ps = t->limits.page_size;
    rad_evict_facts facts = {.last_access = n->last_access,
                             .created = t->cold[node].created,
                             .num_tokens = n->pages * ps,
                             .depth_tokens = (uint32_t)end_tokens(t, node),
                             .hit_count = n->hit_count,
                             .priority = n->priority,
                             .page_size = ps};
    return t->limits.evict_key(t->limits.evict_user, &facts);
}

/* A new policy is a value of rad_eviction_policy and a row here. RAD_EVICT_USER stays the last: it
 * is no name that anybody can choose. */
static const evict_policy policies[] = {
    [RAD_EVICT_LRU] = {"lru", lru_key, .grows = true},
    [RAD_EVICT_LFU] = {"lfu", lfu_key, .grows = true},
    [RAD_EVICT_FIFO] = {"fifo", fifo_key, .grows = true},
    [RAD_EVICT_MRU] = {"mru", mru_key},
    [RAD_EVICT_FILO] = {"filo", filo_key, .grows = true},
    [RAD_EVICT_PRIORITY] = {"priority", priority_key, .grows = true},
    [RAD_EVICT_SLRU] = {"slru", slru_key, .grows = true},
    [RAD_EVICT_COST] = {"cost", cost_key, .wants_worth = true},
    [RAD_EVICT_USER] = {"user", user_key, .wants_worth = true},
};

const evict_policy *evict_policy_of(uint32_t policy)
{
    return policy < RAD_COUNT(policies) ? &policies[policy] : NULL;
}

const char *rad_eviction_policy_name(uint32_t policy)
{
    return policy < RAD_COUNT(policies) ? policies[policy].name : NULL;
}

rad_status rad_eviction_policy_parse(const char *name, uint32_t *policy, rad_error *err)
{
    if (!policy) return rad_fail(err, RAD_E_INVAL, "no place for the policy");
    for (uint32_t i = 0; name && i < RAD_COUNT(policies); i++)
        if (strcmp(name, policies[i].name) == 0) {
            *policy = i;
            return RAD_OK;
        }
    char names[128];
    for (uint32_t i = 0; i < RAD_EVICT_USER; i++)
        word_list_add(names, sizeof names, i, RAD_EVICT_USER, "and", policies[i].name);
    return rad_fail(err, RAD_E_INVAL, "no eviction policy '%.40s'; there are %s", name ? name : "",
                    names);
}

/* --- heat: binary logarithms in whole numbers, the same on every machine --- */

/* log2 of x / 2^16, x >= 2^16; 16 binary places. Squares the mantissa: each time it
 * passes two, the next place is one. */
static uint64_t log2_of(uint64_t x)
{
    uint32_t whole = 63 - (uint32_t)__builtin_clzll(x);
    uint64_t m = whole > 31 ? x >> (whole - 31) : x << (31 - whole); /* in [2^31, 2^32) */
    uint64_t result = whole - 16;
    for (int i = 0; i < 16; i++) {
        m = (m * m) >> 31;
        result = result << 1 | m >> 32;
        m >>= m >> 32;
    }
    return result;
}

/* 2^-d, d with 16 binary places, the result as well: a cubic for 2^x between 0 and 1. */
static uint64_t exp2_minus(uint64_t d)
{
    uint64_t x = 65536 - (d & 65535), whole = (d >> 16) + 1; /* 2^-d = 2^x / 2^whole */
    if (whole > 17) return 0;
    uint64_t p = 5099;           /* 0.0778 */
    p = 14903 + ((p * x) >> 16); /* 0.2274 */
    p = 45534 + ((p * x) >> 16); /* 0.6948; together they make one */
    p = 65536 + ((p * x) >> 16);
    return p >> whole;
}

uint64_t evict_heat_at(uint64_t clock, uint64_t half_life)
{
    uint64_t whole = clock / half_life, rest = clock % half_life;
    return (whole << EVICT_HEAT_BITS) + (uint64_t)(((heap_key)rest << EVICT_HEAT_BITS) / half_life);
}

uint64_t evict_heat_add(uint64_t a, uint64_t b)
{
    uint64_t more = RAD_MAX(a, b), less = RAD_MIN(a, b);
    uint64_t part = exp2_minus((more - less) >> (EVICT_HEAT_BITS - 16));
    return more + (log2_of(65536 + part) << (EVICT_HEAT_BITS - 16));
}

uint64_t evict_cost(uint64_t tokens, uint32_t attention_tokens)
{
    return log2_of(65536 + (tokens << 16) / attention_tokens) << (EVICT_HEAT_BITS - 16);
}
