/* own_policy.c - your own eviction policy.
 *
 * The engine here serves a few popular prompts and now and then a batch job that reads
 * thousands of documents once. LRU lets the job flush everything. The policy below lets
 * each hit stand for some operations of age, and sets apart what the engine marked with a
 * priority: a prompt that came back often outlives the job, and is still forgotten in the
 * end when nobody asks for it any more.
 *
 * The cache runs without allocator and rows (index-only), as a simulation would; in an
 * engine, only the params differ. */
#include <radish/radish.h>

#include <stdio.h>
#include <stdlib.h>

enum { CAPACITY = 4096, PROMPT = 256, POPULAR = 4 };

typedef struct policy {
    uint64_t hit_is_worth; /* operations of age per hit */
    uint64_t asked;        /* how often the cache wanted a key */
} policy;

/* The leaf with the lowest key goes first. The upper bits hold what must not be mixed,
 * the lower ones a time: when it was used last, moved into the future by its hits. */
static uint64_t key_of(void *user, const rad_evict_facts *facts)
{
    policy *p = user;
    p->asked++;
    uint64_t hits = facts->hit_count < 1000 ? facts->hit_count : 1000;
    uint64_t class_ = facts->priority > 0 ? 1 : 0;
    return class_ << 63 | (facts->last_access + hits * p->hit_is_worth);
}

/* One prompt through the cache: returns how many of its tokens were there. */
static uint32_t use(rad_cache *cache, rad_token first)
{
    rad_token tokens[PROMPT];
    rad_slot slots[PROMPT]; /* index-only: any slots do */
    for (int i = 0; i < PROMPT; i++) {
        tokens[i] = first + i;
        slots[i] = i + 1;
    }
    rad_key key = {.tokens = tokens, .num_tokens = PROMPT};
    rad_inserted in;
    if (rad_cache_insert(cache, &key, slots, NULL, &in, NULL)) exit(1);
    uint64_t total = rad_cache_total_size(cache);
    if (total > CAPACITY && rad_cache_evict(cache, total - CAPACITY, NULL, NULL)) exit(1);
    return in.prefix_tokens;
}

/* Tokens of popular prompts found: on the day of the job, and much later. */
static void simulate(uint32_t which, policy *p, uint32_t found[2])
{
    rad_cache_params params = {.struct_size = sizeof params,
                               .max_tokens = CAPACITY + PROMPT,
                               .eviction = {.policy = which},
                               .evict_key = p ? key_of : NULL,
                               .evict_user = p};
    rad_cache *cache;
    rad_error err;
    if (rad_cache_create(NULL, &params, &cache, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    for (int day = 0; day < 20; day++)
        for (int i = 0; i < POPULAR; i++)
            use(cache, 1000 * i);
    for (int part = 0; part < 2; part++) {
        int documents = part ? 5000 : 100; /* 100 documents are six times the capacity */
        for (int i = 0; i < documents; i++)
            use(cache, 1000000 + 1000 * (100 * part + i));
        found[part] = 0;
        for (int i = 0; i < POPULAR; i++)
            found[part] += use(cache, 1000 * i);
    }
    if (rad_cache_check(cache, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    rad_cache_destroy(cache);
}

int main(void)
{
    uint32_t lru[2], own[2];
    policy p = {.hit_is_worth = 100};
    simulate(RAD_EVICT_LRU, NULL, lru);
    simulate(RAD_EVICT_USER, &p, own);
    printf("popular tokens found after a batch job of 100 documents: lru %u, own %u of %d\n",
           lru[0], own[0], POPULAR * PROMPT);
    printf("and after 5000 more:                                     lru %u, own %u of %d\n",
           lru[1], own[1], POPULAR * PROMPT);
    printf("the cache asked for %llu keys\n", (unsigned long long)p.asked);
    return lru[0] == 0 && own[0] == POPULAR * PROMPT && own[1] == 0 && p.asked > 0 ? 0 : 1;
}
