/* test_plan.c - what the planner says of a trace: the optimum and reuse distances beside naive
 * ones, why what was computed was, tiers, servers and times. */
#include "replay/simulate.h"
#include "test.h"

enum { REQUESTS = 120, ROOM = 1 << 16 };

/* Mooncake lines of requests that walk a random tree: an id names a block and all before it. */
static trace *random_trace(uint64_t *dice, uint32_t requests)
{
    static char text[ROOM];
    size_t len = 0;
    for (uint32_t i = 0; i < requests; i++) {
        const uint32_t count = 1 + (uint32_t)(test_random(dice) % 9);
        uint32_t node = 1;
        len += (size_t)snprintf(
            text + len, ROOM - len,
            "{\"timestamp\":%u,\"input_length\":%u,\"output_length\":2,\"hash_ids\":[", i * 1000,
            count * 512 - 100);
        for (uint32_t k = 0; k < count; k++) {
            node = node * 3 % 1000003 +
                   (uint32_t)(test_random(dice) % 8 == 0 ? test_random(dice) % 40
                                                         : test_random(dice) % 2) +
                   k * 1000;
            len += (size_t)snprintf(text + len, ROOM - len, "%s%u", k ? "," : "", node);
        }
        len += (size_t)snprintf(text + len, ROOM - len, "]}\n");
    }
    trace *t = NULL;
    rad_error err = {0};
    CHECKF(trace_parse(NULL, text, len, &t, &err) == RAD_OK, "%s\n", err.text);
    return t;
}

/* ---- as one would write it down in a minute ---- */

typedef struct naive {
    const page_chains *c;
    uint32_t pages[1 << 12], count; /* there now */
} naive;

static bool naive_has(const naive *n, uint32_t id)
{
    for (uint32_t i = 0; i < n->count; i++)
        if (n->pages[i] == id) return true;
    return false;
}

static uint64_t next_use(const page_chains *c, uint32_t id, uint64_t after)
{
    for (uint64_t i = after + 1; i < c->num_requests; i++)
        for (uint64_t at = c->start[i]; at < c->start[i + 1]; at++)
            if (c->ids[at] == id) return i;
    return UINT64_MAX;
}

static bool is_of(const page_chains *c, uint32_t id, uint64_t request)
{
    for (uint64_t at = c->start[request]; at < c->start[request + 1]; at++)
        if (c->ids[at] == id) return true;
    return false;
}

/* Whether another page that is there continues this one: such a page stays. */
static uint32_t depth_of(const page_chains *c, uint32_t id)
{
    const uint64_t i = c->first_use[id];
    uint64_t at = c->start[i];
    while (c->ids[at] != id)
        at++;
    return (uint32_t)(at - c->start[i]);
}

static uint64_t naive_optimum(const page_chains *c, uint32_t capacity)
{
    static naive n;
    uint64_t hits = 0;
    n = (naive){.c = c};
    for (uint64_t i = 0; i < c->num_requests; i++) {
        const uint64_t from = c->start[i], all = c->start[i + 1] - from;
        uint32_t hit = 0, fresh = 0;
        while (hit < all && naive_has(&n, c->ids[from + hit]))
            hit++;
        hits += hit;
        if (all > capacity) continue;
        fresh = (uint32_t)all - hit;
        while (n.count + fresh > capacity) {
            uint32_t worst = UINT32_MAX;
            for (uint32_t k = 0; k < n.count; k++) {
                if (is_of(c, n.pages[k], i)) continue;
                if (worst == UINT32_MAX) worst = k;
                const uint64_t a = next_use(c, n.pages[k], i), b = next_use(c, n.pages[worst], i);
                if (a > b || (a == b && depth_of(c, n.pages[k]) > depth_of(c, n.pages[worst])))
                    worst = k;
            }
            n.pages[worst] = n.pages[--n.count];
        }
        for (uint64_t k = hit; k < all; k++)
            n.pages[n.count++] = c->ids[from + k];
    }
    return hits;
}

TEST(the_optimum_is_a_naive_ones_and_no_policy_is_better)
{
    static const char *const policies[] = {"lru", "lfu", "fifo", "mru", "filo", "slru", "cost"};
    uint64_t seed = test_seed(), dice = seed;
    for (int round = 0; round < 4; round++) {
        trace *t = random_trace(&dice, REQUESTS);
        page_chains *c;
        CHECK_OK(page_chains_make(NULL, t, 1, &c, NULL));
        for (uint32_t capacity = 10; capacity <= 160; capacity *= 2) {
            optimum_result o;
            CHECK_OK(page_chains_optimum(NULL, c, t, capacity, &o, NULL));
            const uint64_t want = naive_optimum(c, capacity);
            CHECKF(o.hit_blocks == want && o.requests == REQUESTS, "seed %llu: %llu, naive %llu\n",
                   (unsigned long long)seed, (unsigned long long)o.hit_blocks,
                   (unsigned long long)want);
            for (size_t k = 0; k < sizeof policies / sizeof *policies; k++) {
                const simulate_params p = {
                    .policy = policies[k], .capacity_elements = capacity, .chains = c};
                simulate_result r;
                CHECK_OK(simulate(NULL, t, &p, &r, NULL));
                CHECKF(r.hit_blocks <= o.hit_blocks && r.prompt_blocks == o.prompt_blocks &&
                           r.prompt_tokens == o.prompt_tokens,
                       "seed %llu: %s %llu, opt %llu\n", (unsigned long long)seed, policies[k],
                       (unsigned long long)r.hit_blocks, (unsigned long long)o.hit_blocks);
                const simulate_misses *m = &r.misses;
                CHECK(r.hit_tokens + m->first_seen + m->evicted + m->rounded == r.prompt_tokens &&
                      !m->other_server && !m->other_namespace);
            }
        }
        page_chains_free(c);
        trace_free(t);
    }
}

TEST(reuse_distances_are_naive_ones)
{
    uint64_t seed = test_seed(), dice = seed;
    trace *t = random_trace(&dice, REQUESTS);
    page_chains *c;
    CHECK_OK(page_chains_make(NULL, t, 1, &c, NULL));
    uint64_t buckets[REUSE_BUCKETS], first, want[REUSE_BUCKETS] = {0}, want_first = 0;
    CHECK_OK(page_chains_reuse(NULL, c, t, buckets, &first, NULL));
    static uint32_t order[1 << 12]; /* least recently used first */
    uint32_t count = 0;
    for (uint64_t i = 0; i < c->num_requests; i++) {
        for (uint64_t at = c->start[i]; at < c->start[i + 1]; at++) {
            uint32_t place = 0, k = 0;
            while (place < count && order[place] != c->ids[at])
                place++;
            if (place == count) {
                want_first++;
                continue;
            }
            while (k + 1 < REUSE_BUCKETS && count - 1 - place + 1 >= 2u << k)
                k++;
            want[k]++;
        }
        for (uint64_t at = c->start[i + 1]; at-- > c->start[i];) {
            uint32_t place = 0;
            while (place < count && order[place] != c->ids[at])
                place++;
            if (place < count)
                memmove(&order[place], &order[place + 1], (--count - place) * sizeof *order);
            order[count++] = c->ids[at];
        }
    }
    CHECKF(first == want_first && memcmp(buckets, want, sizeof want) == 0, "seed %llu\n",
           (unsigned long long)seed);
    page_chains_free(c);
    trace_free(t);
}

/* ---- tiers, servers, times, by hand ---- */

static trace *load(const char *text)
{
    trace *t = NULL;
    rad_error err = {0};
    CHECKF(trace_parse(NULL, text, strlen(text), &t, &err) == RAD_OK, "%s\n", err.text);
    return t;
}

#define LINE(time, ids)                                                                            \
    "{\"timestamp\":" #time ",\"input_length\":1024,\"output_length\":10,\"hash_ids\":[" ids "]}"  \
                                                                                             "\n"

TEST(a_host_tier_and_storage_have_what_the_device_evicted)
{
    trace *t = load(LINE(0, "1,2") LINE(1000, "3,4") LINE(2000, "1,2"));
    page_chains *c;
    simulate_result r;
    CHECK_OK(page_chains_make(NULL, t, 1, &c, NULL));
    simulate_params p = {.capacity_elements = 2, .chains = c};
    CHECK_OK(simulate(NULL, t, &p, &r, NULL));
    CHECK(r.hit_tokens == 0 && r.misses.evicted == 1024 && r.misses.first_seen == 2048);
    p.host_elements = 4;
    CHECK_OK(simulate(NULL, t, &p, &r, NULL));
    CHECK(r.hit_tokens == 1024 && r.host_tokens == 1024 && !r.misses.evicted && r.hit_blocks == 2);
    p.host_elements = 2;
    p.storage_elements = UINT64_MAX;
    CHECK_OK(simulate(NULL, t, &p, &r, NULL));
    CHECK(r.hit_tokens == 1024 && r.host_tokens == 0 && r.storage_tokens == 1024);
    page_chains_free(c);
    trace_free(t);
}

TEST(a_router_decides_who_has_what)
{
    trace *t = load(LINE(0, "1,2") LINE(1000, "1,2") LINE(2000, "1,2") LINE(3000, "7,8")
                        LINE(4000, "7,8"));
    page_chains *c;
    simulate_result r;
    CHECK_OK(page_chains_make(NULL, t, 1, &c, NULL));
    simulate_params p = {.capacity_elements = 100, .num_servers = 2, .chains = c};
    CHECK_OK(simulate(NULL, t, &p, &r, NULL)); /* 0 1 0 1 0: only the third finds something */
    CHECK(r.hit_tokens == 1024 && r.misses.other_server == 2048 && r.misses.first_seen == 2048);
    p.router = ROUTE_HASH;
    CHECK_OK(simulate(NULL, t, &p, &r, NULL));
    CHECK(r.hit_tokens == 3 * 1024 && !r.misses.other_server);
    p.router = ROUTE_CACHE;
    CHECK_OK(simulate(NULL, t, &p, &r, NULL));
    CHECK(r.hit_tokens == 3 * 1024 && !r.misses.other_server);
    p.router = ROUTE_ROUND_ROBIN;
    p.storage_elements = UINT64_MAX;
    CHECK_OK(simulate(NULL, t, &p, &r, NULL));
    CHECK(r.hit_tokens == 3 * 1024 && r.storage_tokens == 2048);
    p.num_servers = SIMULATE_MOST_SERVERS + 1;
    CHECK(simulate(NULL, t, &p, &r, NULL) == RAD_E_INVAL);
    page_chains_free(c);
    trace_free(t);
}

/* 1 ms a prompt token, 10 ms a token said: the first takes 1.024 s and 0.1 s more; the second comes
 * after 1 s, waits 0.124 s, finds all and takes no time; the third finds nothing. */
TEST(times_are_those_of_one_server_that_computes_in_order)
{
    trace *t = load(LINE(0, "1,2") LINE(1000, "1,2") LINE(9000, "3,4"));
    simulate_result r;
    const simulate_params p = {.capacity_elements = 100,
                               .prices = {.prompt_token_s = 1e-3, .decode_s = 1e-2}};
    CHECK_OK(simulate(NULL, t, &p, &r, NULL));
    const double mean = (1.024 + 0.124 + 1.024) / 3;
    CHECKF(r.first_token_s > mean - 1e-6 && r.first_token_s < mean + 1e-6, "%g\n", r.first_token_s);
    CHECKF(r.saved_s > 1.0239 && r.saved_s < 1.0241 && r.compute_s > 3.0719 && r.compute_s < 3.0721,
           "%g %g\n", r.saved_s, r.compute_s);
    CHECKF(r.busiest > 0.23 && r.busiest < 0.24, "%g\n", r.busiest); /* 2.348 s of 10.124 */
    CHECK(r.span_prompt[0] == 1024 && r.span_hit[0] == 0 && r.span_hit[6] == 1024 &&
          r.span_prompt[SIMULATE_SPANS - 1] == 1024);
    trace_free(t);
}

TEST_WITH_DATA(the_conversation_trace_has_its_known_optimum, "traces/conversation_trace.jsonl.gz")
{
    static const struct {
        uint64_t blocks;
        const char *rate;
    } known[] = {{1000, "0.1792"}, {10000, "0.3664"}};
    char path[1024], rate[16];
    trace *t;
    page_chains *c;
    snprintf(path, sizeof path, "%s/traces/conversation_trace.jsonl.gz", test_data());
    CHECK_OK(trace_load(NULL, path, &t, NULL));
    CHECK_OK(page_chains_make(NULL, t, 1, &c, NULL));
    CHECK(c->num_pages == 288500 && c->num_ids == 182790);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        optimum_result o;
        CHECK_OK(page_chains_optimum(NULL, c, t, known[i].blocks, &o, NULL));
        snprintf(rate, sizeof rate, "%.4f", (double)o.hit_blocks / (double)o.prompt_blocks);
        CHECKF(strcmp(rate, known[i].rate) == 0, "%s, not %s\n", rate, known[i].rate);
    }
    page_chains_free(c);
    trace_free(t);
}

TEST_MAIN()
