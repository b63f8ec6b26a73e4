/* bench_cache.c - what the cache costs a request, beside the least it could cost.
 *
 * The limit of a match is to compare its tokens and to copy its slots: memcmp and
 * memcpy of the same lengths on buffers of the same age, measured in the same run. A
 * row prints the median and p99 of single operations (batches of them where one is
 * shorter than the clock) and the ratio to its limit. Memory is touched in advance.
 *
 *     bench_cache [--json]
 *     bench_cache --sizing     only what create takes per token of KV memory */
#include "cache/tree_look.h"
#include <radish/cache.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool json;
static bool first_row = true;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t random_state = 42;

static uint64_t random64(void)
{
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void die(const char *what)
{
    fprintf(stderr, "bench_cache: %s\n", what);
    exit(1);
}

static void ok(rad_status status, const char *what)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "bench_cache: %s: %s\n", what, rad_status_name(status));
    exit(1);
}

static void *need(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) die("no memory");
    return memset(memory, 0, bytes);
}

/* --- samples --- */

enum { MOST_SAMPLES = 20000 };

typedef struct samples {
    double ns[MOST_SAMPLES];
    uint32_t count;
} samples;

static void add(samples *s, double ns)
{
    if (s->count < MOST_SAMPLES) s->ns[s->count++] = ns;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(samples *s, double q)
{
    qsort(s->ns, s->count, sizeof *s->ns, by_value);
    return s->count ? s->ns[(uint32_t)((s->count - 1) * q)] : 0;
}

static void row(const char *name, samples *cost, samples *limit)
{
    double p50 = quantile(cost, 0.5), p99 = quantile(cost, 0.99);
    double least = limit ? quantile(limit, 0.5) : 0;
    if (json) {
        printf("%s\n  {\"name\": \"%s\", \"p50_ns\": %.1f, \"p99_ns\": %.1f", first_row ? "" : ",",
               name, p50, p99);
        if (limit) printf(", \"limit_ns\": %.1f, \"ratio\": %.3f", least, p50 / least);
        printf("}");
    } else if (limit) {
        printf("%-46s %12.1f %12.1f %12.1f %8.2f\n", name, p50, p99, least, p50 / least);
    } else {
        printf("%-46s %12.1f %12.1f %12s %8s\n", name, p50, p99, "-", "-");
    }
    first_row = false;
    fflush(stdout);
}

/* --- caches --- */

static rad_cache *make(uint32_t page_size, uint64_t max_tokens, uint32_t max_nodes)
{
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = page_size,
                               .max_tokens = max_tokens,
                               .max_nodes = max_nodes};
    rad_cache *cache = NULL;
    rad_error err = {0};
    if (rad_cache_create(NULL, &params, &cache, &err)) die(err.text);
    return cache;
}

static void fill(rad_token *tokens, rad_slot *slots, uint32_t count, rad_slot first_slot)
{
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = (rad_token)(random64() % 128000);
        slots[i] = first_slot + (rad_slot)i;
    }
}

/* Matches one of `num_keys` cached keys after another, so that the tokens come from
 * where they would in a server: not from the first level cache. */
static void bench_match(const char *what, uint32_t len, uint32_t node_tokens, uint32_t page_size)
{
    uint32_t num_keys = len >= 65536 ? 4 : len >= 4096 ? 16 : 64;
    uint32_t batch = len <= 4096 ? 4096 / len : 1;
    if (batch > 64) batch = 64;
    rad_cache *cache =
        make(page_size, (uint64_t)num_keys * len * 2, num_keys * (len / node_tokens + 8) + 64);
    rad_token **keys = need(num_keys * sizeof *keys), **copies = need(num_keys * sizeof *copies);
    rad_slot **kept = need(num_keys * sizeof *kept);
    rad_slot *slots = need(len * sizeof *slots);
    for (uint32_t k = 0; k < num_keys; k++) {
        keys[k] = need(len * sizeof **keys);
        copies[k] = need(len * sizeof **copies);
        kept[k] = need(len * sizeof **kept);
        fill(keys[k], slots, len, (rad_slot)(k * len));
        memcpy(copies[k], keys[k], len * sizeof **keys);
        memcpy(kept[k], slots, len * sizeof *slots);
        for (uint32_t end = node_tokens; end <= len; end += node_tokens) {
            rad_key key = {.tokens = keys[k], .num_tokens = end};
            ok(rad_cache_insert(cache, &key, slots, NULL, NULL, NULL), "insert");
        }
    }
    static samples cost, limit;
    cost.count = limit.count = 0;
    uint32_t rounds = len >= 65536 ? 400 : 3000;
    for (uint32_t r = 0; r < rounds; r++) {
        uint64_t t0 = now_ns();
        uint32_t sum = 0;
        for (uint32_t b = 0; b < batch; b++) {
            rad_key key = {.tokens = keys[(r + b) % num_keys], .num_tokens = len};
            rad_match m;
            rad_cache_match_prefix(cache, &key, slots, &m, NULL);
            sum += m.prefix_tokens;
        }
        uint64_t t1 = now_ns();
        if (sum != len * batch) die("a match fell short");
        int differ = 0;
        for (uint32_t b = 0; b < batch; b++) {
            uint32_t k = (r + b) % num_keys;
            differ |= memcmp(keys[k], copies[k], len * sizeof **keys);
            memcpy(slots, kept[k], len * sizeof *slots);
            __asm__ volatile("" ::"r"(slots) : "memory");
        }
        uint64_t t2 = now_ns();
        if (differ) die("memcmp");
        add(&cost, (double)(t1 - t0) / batch);
        add(&limit, (double)(t2 - t1) / batch);
    }
    row(what, &cost, &limit);
    for (uint32_t k = 0; k < num_keys; k++) {
        free(keys[k]);
        free(copies[k]);
        free(kept[k]);
    }
    free(keys);
    free(copies);
    free(kept);
    free(slots);
    rad_cache_destroy(cache);
}

static void bench_miss(void)
{
    enum { KEYS = 1000, LEN = 128, BATCH = 64 };
    rad_cache *cache = make(1, KEYS * LEN * 2, KEYS * 2);
    rad_token tokens[LEN];
    rad_slot slots[LEN];
    for (int k = 0; k < KEYS; k++) {
        fill(tokens, slots, LEN, k * LEN);
        tokens[0] = k;
        ok(rad_cache_insert(cache, &(rad_key){.tokens = tokens, .num_tokens = LEN}, slots, NULL,
                            NULL, NULL),
           "insert");
    }
    static samples cost;
    cost.count = 0;
    for (int r = 0; r < 5000; r++) {
        uint32_t hits = 0;
        uint64_t t0 = now_ns();
        for (int b = 0; b < BATCH; b++) {
            rad_match m;
            tokens[0] = 1000000 + r * BATCH + b;
            rad_cache_match_prefix(cache, &(rad_key){.tokens = tokens, .num_tokens = LEN}, slots,
                                   &m, NULL);
            hits += m.prefix_tokens;
        }
        add(&cost, (double)(now_ns() - t0) / BATCH);
        if (hits) die("a miss hit");
    }
    row("miss among 1000 keys", &cost, NULL);
    rad_cache_destroy(cache);
}

/* 1,000 new tokens behind 512 shared ones; the limit compares 512 and copies tokens and
 * slots of 1,000. */
static void bench_insert(void)
{
    enum { SHARED = 512, NEW = 1000, ROUNDS = 2000 };
    rad_cache *cache = make(1, (uint64_t)ROUNDS * NEW + SHARED, ROUNDS * 2 + 64);
    rad_token *tokens = need((SHARED + NEW) * sizeof *tokens);
    rad_token *shared = need(SHARED * sizeof *shared), *to = need(NEW * sizeof *to);
    rad_slot *slots = need((SHARED + NEW) * sizeof *slots), *slots_to = need(NEW * sizeof *to);
    fill(tokens, slots, SHARED + NEW, 0);
    memcpy(shared, tokens, SHARED * sizeof *shared);
    static samples cost, limit;
    for (int pass = 0; pass < 2; pass++) { /* the first one touches the arenas */
        cost.count = limit.count = 0;
        ok(rad_cache_reset(cache), "reset");
        for (int r = 0; r < ROUNDS; r++) {
            fill(tokens + SHARED, slots + SHARED, NEW, r * NEW);
            rad_key key = {.tokens = tokens, .num_tokens = SHARED + NEW};
            rad_inserted in;
            uint64_t t0 = now_ns();
            rad_status status = rad_cache_insert(cache, &key, slots, NULL, &in, NULL);
            uint64_t t1 = now_ns();
            int differ = memcmp(tokens, shared, SHARED * sizeof *tokens);
            memcpy(to, tokens + SHARED, NEW * sizeof *to);
            memcpy(slots_to, slots + SHARED, NEW * sizeof *to);
            __asm__ volatile("" ::"r"(to), "r"(slots_to) : "memory");
            uint64_t t2 = now_ns();
            ok(status, "insert");
            if (differ || (r && in.prefix_tokens < SHARED)) die("the shared part was lost");
            if (r) add(&cost, (double)(t1 - t0));
            if (r) add(&limit, (double)(t2 - t1));
        }
    }
    row("insert 1000 new behind 512 shared", &cost, &limit);
    free(tokens);
    free(shared);
    free(to);
    free(slots);
    free(slots_to);
    rad_cache_destroy(cache);
}

static void bench_evict(uint32_t leaves)
{
    enum { LEN = 8 };
    rad_cache *cache = make(1, (uint64_t)leaves * LEN, leaves + 64);
    rad_token tokens[LEN];
    rad_slot slots[LEN];
    fill(tokens, slots, LEN, 0);
    for (uint32_t i = 0; i < leaves; i++) {
        tokens[0] = (rad_token)i;
        ok(rad_cache_insert(cache, &(rad_key){.tokens = tokens, .num_tokens = LEN}, slots, NULL,
                            NULL, NULL),
           "insert");
    }
    static samples cost;
    cost.count = 0;
    for (int r = 0; r < 300; r++) {
        uint64_t evicted, t0 = now_ns();
        ok(rad_cache_evict(cache, 1000, &evicted, NULL), "evict");
        add(&cost, (double)(now_ns() - t0));
        if (evicted != 1000) die("evict fell short");
        for (int k = 0; k < 1000 / LEN; k++) { /* as many new ones, other nodes used again */
            rad_match m;
            tokens[0] = (rad_token)(leaves + (uint32_t)(r * 125 + k));
            rad_key key = {.tokens = tokens, .num_tokens = LEN};
            ok(rad_cache_insert(cache, &key, slots, NULL, NULL, NULL), "insert");
            tokens[0] = (rad_token)(random64() % (leaves + (uint64_t)(r * 125 + k)));
            ok(rad_cache_match_prefix(cache, &key, NULL, &m, NULL), "match");
        }
    }
    char name[64];
    snprintf(name, sizeof name, "evict 1000 tokens, %u leaves of 8", leaves);
    row(name, &cost, NULL);
    rad_cache_destroy(cache);
}

/* A slice of a look at the tree, which the scheduler's thread copies between two steps: of many
 * nodes, which other work has driven out of the near caches. */
static void bench_look(uint32_t leaves)
{
    enum { LEN = 8, ROUNDS = 20 };
    rad_cache *cache = make(1, (uint64_t)leaves * LEN, leaves + 64);
    rad_token tokens[LEN];
    rad_slot slots[LEN];
    fill(tokens, slots, LEN, 0);
    for (uint32_t i = 0; i < leaves; i++) {
        tokens[0] = (rad_token)i;
        ok(rad_cache_insert(cache, &(rad_key){.tokens = tokens, .num_tokens = LEN}, slots, NULL,
                            NULL, NULL),
           "insert");
    }
    static samples cost;
    cost.count = 0;
    tree_look look = {.nodes = need(leaves * sizeof(tree_node_look)), .room = leaves};
    for (int r = 0; r < ROUNDS; r++) {
        look.count = look.next = 0;
        for (look.done = false; !look.done;) {
            uint64_t t0 = now_ns();
            tree_look_slice(cache, &look);
            if (!look.done) add(&cost, (double)(now_ns() - t0));
        }
        if (look.count != leaves) die("look fell short");
    }
    char name[64];
    snprintf(name, sizeof name, "look at %d of %u nodes", TREE_LOOK_SLICE, leaves);
    row(name, &cost, NULL);
    free(look.nodes);
    rad_cache_destroy(cache);
}

/* A full cache that lives on: each request evicts what it needs and inserts. The holes
 * left behind are of all sizes; the limit copies the tokens and the slots. */
static void bench_churn(uint32_t shortest, uint32_t longest)
{
    enum { CAPACITY = 1 << 20 };
    rad_cache *cache = make(1, CAPACITY, 0);
    rad_token *tokens = need(longest * sizeof *tokens), *to = need(longest * sizeof *to);
    rad_slot *slots = need(longest * sizeof *slots);
    static samples cost, limit;
    cost.count = limit.count = 0;
    uint32_t warm = 3 * CAPACITY / shortest;
    for (uint32_t r = 0; r < warm + 5000; r++) {
        uint32_t len = shortest + (uint32_t)(random64() % (longest - shortest));
        fill(tokens, slots, len, 0);
        uint64_t t0 = now_ns();
        uint64_t used = rad_cache_total_size(cache);
        if (used + len > CAPACITY) rad_cache_evict(cache, used + len - CAPACITY, NULL, NULL);
        rad_status status = rad_cache_insert(cache, &(rad_key){.tokens = tokens, .num_tokens = len},
                                             slots, NULL, NULL, NULL);
        uint64_t t1 = now_ns();
        memcpy(to, tokens, len * sizeof *to);
        __asm__ volatile("" ::"r"(to) : "memory");
        memcpy(to, slots, len * sizeof *to);
        __asm__ volatile("" ::"r"(to) : "memory");
        uint64_t t2 = now_ns();
        ok(status, "insert");
        if (r < warm) continue;
        add(&cost, (double)(t1 - t0));
        add(&limit, (double)(t2 - t1));
    }
    char name[64];
    snprintf(name, sizeof name, "evict + insert when full, %u-%u tokens", shortest, longest);
    row(name, &cost, &limit);
    free(tokens);
    free(to);
    free(slots);
    rad_cache_destroy(cache);
}

/* Locks and unlocks the end of a chain; the limit walks as many cache lines by index. */
static void bench_lock(uint32_t depth)
{
    rad_cache *cache = make(1, 100000, 4096);
    rad_token tokens[1024];
    rad_slot slots[1024];
    fill(tokens, slots, depth, 0);
    for (uint32_t end = 1; end <= depth; end++)
        ok(rad_cache_insert(cache, &(rad_key){.tokens = tokens, .num_tokens = end}, slots, NULL,
                            NULL, NULL),
           "insert");
    rad_match m;
    ok(rad_cache_match_prefix(cache, &(rad_key){.tokens = tokens, .num_tokens = depth}, NULL, &m,
                              NULL),
       "match");
    typedef struct line {
        uint32_t parent, lock;
        char rest[56];
    } line;
    line *lines = need((depth + 1) * sizeof *lines);
    for (uint32_t i = 1; i <= depth; i++)
        lines[i].parent = i - 1;
    static samples cost, limit;
    cost.count = limit.count = 0;
    for (int r = 0; r < 3000; r++) {
        rad_receipt receipt;
        uint64_t t0 = now_ns();
        for (int b = 0; b < 16; b++) {
            rad_cache_inc_lock_ref(cache, m.last_node, &receipt, NULL);
            rad_cache_dec_lock_ref(cache, &receipt, NULL);
        }
        uint64_t t1 = now_ns();
        for (int b = 0; b < 16; b++) {
            for (uint32_t i = depth; i; i = lines[i].parent)
                lines[i].lock++;
            __asm__ volatile("" ::"r"(lines) : "memory");
            for (uint32_t i = depth; i; i = lines[i].parent)
                lines[i].lock--;
            __asm__ volatile("" ::"r"(lines) : "memory");
        }
        uint64_t t2 = now_ns();
        add(&cost, (double)(t1 - t0) / 16);
        add(&limit, (double)(t2 - t1) / 16);
    }
    char name[64];
    snprintf(name, sizeof name, "lock + unlock at depth %u", depth);
    row(name, &cost, &limit);
    free(lines);
    rad_cache_destroy(cache);
}

static void report_metadata(uint32_t page_size)
{
    enum { SEQUENCES = 1000, LEN = 1000 };
    uint64_t tokens = (uint64_t)SEQUENCES * (LEN + page_size);
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = page_size,
                               .max_tokens = tokens,
                               .max_nodes = SEQUENCES + 64,
                               .max_namespaces = 1};
    rad_cache *cache = NULL;
    rad_cache_stats stats;
    ok(rad_cache_create(NULL, &params, &cache, NULL), "create");
    rad_cache_get_stats(cache, &stats);
    double bytes = (double)stats.metadata_bytes / (SEQUENCES * (double)LEN);
    if (json)
        printf(",\n  {\"name\": \"metadata, page %u\", \"bytes_per_token\": %.3f}", page_size,
               bytes);
    else
        printf("metadata at page size %-2u: %.2f bytes per cached token (1000 sequences of 1000)\n",
               page_size, bytes);
    rad_cache_destroy(cache);
}

static void *counting_alloc(void *user, size_t bytes)
{
    *(uint64_t *)user += bytes;
    return aligned_alloc(64, (bytes + 63) & ~(size_t)63);
}

static void counting_free(void *user, void *memory, size_t bytes)
{
    (void)user, (void)bytes;
    free(memory);
}

/* Bytes that a cache of `tokens` takes over this allocator. */
static uint64_t cache_bytes(rad_kv_allocator *alloc, uint32_t page_size, uint32_t max_nodes)
{
    uint64_t bytes = 0;
    rad_env env = {
        .struct_size = sizeof env, .user = &bytes, .alloc = counting_alloc, .free = counting_free};
    rad_cache_params c = {.struct_size = sizeof c,
                          .page_size = page_size,
                          .kv_allocator = alloc,
                          .max_nodes = max_nodes,
                          .max_namespaces = 1};
    rad_cache *cache = NULL;
    ok(rad_cache_create(&env, &c, &cache, NULL), "create");
    rad_cache_destroy(cache);
    return bytes;
}

/* What docs/embedding.md's table of sizes has: a million tokens; keys and pages without nodes, and
 * the default number of nodes. Namespaces come on top. */
static void report_sizing(uint32_t page_size)
{
    enum { TOKENS = 1000000 };
    uint64_t bytes = 0;
    rad_env env = {
        .struct_size = sizeof env, .user = &bytes, .alloc = counting_alloc, .free = counting_free};
    rad_kv_allocator_params a = {
        .struct_size = sizeof a, .num_pages = TOKENS / page_size, .page_size = page_size};
    rad_kv_allocator *alloc = NULL;
    ok(rad_kv_allocator_create(&env, &a, &alloc, NULL), "create");
    uint64_t keys = cache_bytes(alloc, page_size, 1), all = cache_bytes(alloc, page_size, 0);
    printf("page size %-2u: keys %.1f, nodes %.1f, allocator %.1f bytes per token of KV memory\n",
           page_size, (double)keys / TOKENS, (double)(all - keys) / TOKENS, (double)bytes / TOKENS);
    rad_kv_allocator_destroy(alloc);
}

int main(int argc, char **argv)
{
    static const uint32_t pages[] = {1, 16, 64};
    json = argc > 1 && strcmp(argv[1], "--json") == 0;
    if (argc > 1 && strcmp(argv[1], "--sizing") == 0) {
        for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
            report_sizing(pages[i]);
        return 0;
    }
    if (argc > 1 && !json) {
        fprintf(stderr, "usage: bench_cache [--json | --sizing]\n");
        return 2;
    }
    if (json)
        printf("[");
    else
        printf("%-46s %12s %12s %12s %8s\n", "operation", "p50 ns", "p99 ns", "limit ns", "ratio");
    static const uint32_t lens[] = {128, 1024, 4096, 16384, 131072};
    char name[64];
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        snprintf(name, sizeof name, "match %u tokens, one node", lens[i]);
        bench_match(name, lens[i], lens[i], 1);
    }
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        snprintf(name, sizeof name, "match 4096 tokens, 64-token nodes, page %u", pages[i]);
        bench_match(name, 4096, 64, pages[i]);
    }
    bench_miss();
    bench_insert();
    bench_evict(1000);
    bench_evict(1000000);
    bench_look(100000);
    bench_churn(500, 1500);
    bench_churn(1000, 20000);
    bench_lock(16);
    bench_lock(128);
    report_metadata(1);
    report_metadata(16);
    if (json) printf("\n]\n");
    return 0;
}
