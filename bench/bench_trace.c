/* bench_trace.c - what the cache costs a request of a real traffic pattern.
 *
 *     bench_trace FILE.rxtrace [--page-size N] [--json]
 *
 * Plays an RXTRACE1 file (tools/make-trace.py writes one) twice and times
 * every request of the second half of the first run and of the whole second one by
 * itself: match, lock, evict, allocate, insert, unlock. The limit beside it is what no
 * cache can avoid for the same request, in the same run: comparing the tokens that were
 * found with the tree's (memcmp), copying their indices into the row, one per token at any
 * page size, and copying the tokens and page indices that are new (memcpy), each at a random
 * place of buffers as large as the cache. It is measured once for each request: a second time
 * would push more of the cache's own memory out of the processor's than a request does. */
#include "bench.h"

#include "replay/trace.h"

#include <radish/match_handle.h>

typedef struct rig {
    trace *t;
    rad_token *scratch;
    rad_kv_allocator *alloc;
    rad_cache *cache;
    rad_slot *row;
    rad_page *pages;
    uint32_t page_size;
    /* For the limit: a cache's worth of each, equal tokens everywhere so that a compare
     * goes to its end, and a prompt of such tokens that is warm like a real one. */
    int32_t *tokens, *indices, *taken, *prompt;
    size_t room;
    uint64_t dice;
} rig;

static void must(rad_status status, const rad_error *err)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "bench_trace: %s\n", err->text);
    exit(1);
}

static size_t some_place(rig *r, size_t len)
{
    r->dice = r->dice * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(r->dice >> 16) % (r->room - len);
}

/* One request; returns the tokens found. */
static uint32_t play(rig *r, const trace_request *q)
{
    rad_key key = {.tokens = q->elements, .num_tokens = q->num_prompt};
    uint32_t ps = r->page_size, all = q->num_elements;
    rad_match match;
    rad_receipt lock = {0};
    rad_cache_match_prefix(r->cache, &key, r->row, &match, NULL);
    rad_cache_inc_lock_ref(r->cache, match.last_node, &lock, NULL);
    rad_inserted in;
    uint32_t hit = match.prefix_tokens;
    uint32_t need = (all + ps - 1) / ps - hit / ps, have = rad_kv_available_pages(r->alloc);
    if (need > have) rad_cache_evict(r->cache, (uint64_t)(need - have) * ps, NULL, NULL);
    rad_slot last = hit ? r->row[hit - 1] : -1;
    if (rad_kv_alloc_extend(r->alloc, 1, &hit, &all, &last, r->row + hit, NULL) != RAD_OK) abort();
    key.num_tokens = all;
    rad_match_handle at = {.node = match.last_node, .num_tokens = hit};
    if (rad_cache_insert_from(r->cache, &at, &key, r->row + hit, NULL, &in, NULL) != RAD_OK)
        abort();
    uint32_t whole = all / ps * ps, had = in.prefix_tokens;
    if (had > hit) rad_kv_free_slots(r->alloc, r->row + hit, had - hit, NULL);
    if (all > whole) rad_kv_free_slots(r->alloc, r->row + whole, all - whole, NULL);
    rad_cache_dec_lock_ref(r->cache, &lock, NULL);
    return hit;
}

static int unavoidable_for_hit(rig *r, uint32_t hit)
{
    int differ = memcmp(r->tokens + some_place(r, hit), r->prompt, hit * sizeof *r->prompt);
    memcpy(r->row, r->indices + some_place(r, hit), hit * sizeof *r->row);
    return differ;
}

/* The same bytes compared and copied, and nothing else. */
static int unavoidable(rig *r, const trace_request *q, uint32_t hit)
{
    uint32_t fresh = q->num_elements - hit, ps = r->page_size;
    int differ = unavoidable_for_hit(r, hit);
    memcpy(r->taken + some_place(r, fresh), q->elements + hit, fresh * sizeof *q->elements);
    memcpy(r->indices + some_place(r, fresh), r->row + hit, fresh / ps * sizeof *r->row);
    return differ;
}

static double quantile(double *sorted, size_t count, double q)
{
    return sorted[(size_t)((double)(count - 1) * q)];
}

/* The cache that the trace names, and memory that was touched in advance. */
static void rig_init(rig *r, const char *file)
{
    rad_error err = {0};
    must(trace_load(NULL, file, &r->t, &err), &err);
    size_t capacity = (size_t)trace_capacity_tokens(r->t);
    if (!capacity) must(rad_fail(&err, RAD_E_INVAL, "no capacity"), &err);
    rad_kv_allocator_params a = {.struct_size = sizeof a,
                                 .num_pages = (uint32_t)(capacity / r->page_size),
                                 .page_size = r->page_size};
    must(rad_kv_allocator_create(NULL, &a, &r->alloc, &err), &err);
    rad_cache_params c = {
        .struct_size = sizeof c, .page_size = r->page_size, .kv_allocator = r->alloc};
    must(rad_cache_create(NULL, &c, &r->cache, &err), &err);
    size_t longest = trace_longest(r->t) + r->page_size;
    r->room = capacity + longest;
    r->scratch = calloc(longest, sizeof *r->scratch);
    r->row = calloc(longest, sizeof *r->row);
    r->tokens = malloc(r->room * sizeof *r->tokens);
    r->indices = malloc(r->room * sizeof *r->indices);
    r->taken = malloc(r->room * sizeof *r->taken);
    r->prompt = malloc(longest * sizeof *r->prompt);
    if (!r->row || !r->tokens || !r->indices || !r->taken || !r->prompt) abort();
    memset(r->tokens, 1, r->room * sizeof *r->tokens);
    memset(r->prompt, 1, longest * sizeof *r->prompt);
    memset(r->taken, 1, r->room * sizeof *r->taken);
    memset(r->indices, 1, r->room * sizeof *r->indices);
}

static void rig_fini(rig *r)
{
    free(r->row), free(r->tokens), free(r->indices), free(r->taken), free(r->prompt);
    rad_cache_destroy(r->cache);
    rad_kv_allocator_destroy(r->alloc);
    trace_free(r->t);
}

/* `cost` and `least` of m requests, in ns; sorts them. */
static void report(const rig *r, double *cost, double *least, size_t m, double hit_rate, bool json)
{
    double sum = 0, sum_least = 0;
    for (size_t i = 0; i < m; i++)
        sum += cost[i], sum_least += least[i];
    qsort(cost, m, sizeof *cost, bench_compare);
    qsort(least, m, sizeof *least, bench_compare);
    double p50 = quantile(cost, m, 0.5), p99 = quantile(cost, m, 0.99);
    double least50 = quantile(least, m, 0.5);
    double mean = sum / (double)m, mean_least = sum_least / (double)m;
    const char *form =
        json ? "{\"page_size\": %u, \"requests\": %zu, \"hit_rate\": %.4f, \"mean_ns\": %.0f, "
               "\"p50_ns\": %.0f, \"p99_ns\": %.0f, \"p99_over_p50\": %.2f, \"limit_mean_ns\": "
               "%.0f, \"limit_p50_ns\": %.0f, \"of_limit\": %.2f, \"of_limit_p50\": %.2f, "
               "\"requests_per_s\": %.0f}\n"
             : "page size %u: %zu requests, hit rate %.4f\n  a request: mean %.0f ns, p50 %.0f, "
               "p99 %.0f (p99/p50 %.2f)\n  limit: mean %.0f ns, p50 %.0f; reached %.2fx (p50 "
               "%.2fx); %.0f requests/s\n";
    printf(form, r->page_size, m, hit_rate, mean, p50, p99, p99 / p50, mean_least, least50,
           mean_least / mean, least50 / p50, 1e9 / mean);
}

int main(int argc, char **argv)
{
    const char *file = NULL;
    rig r = {.page_size = 1, .dice = 1};
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json"))
            json = true;
        else if (!strcmp(argv[i], "--page-size") && i + 1 < argc)
            r.page_size = (uint32_t)atoi(argv[++i]);
        else
            file = argv[i];
    }
    if (!file || !r.page_size) {
        fprintf(stderr, "usage: bench_trace FILE.rxtrace [--page-size N] [--json]\n");
        return 2;
    }
    rig_init(&r, file);
    size_t n = (size_t)trace_num_requests(r.t), half = n / 2, m = 0;
    double *cost = malloc((2 * n) * sizeof *cost), *least = malloc((2 * n) * sizeof *least);
    if (!cost || !least) abort();
    uint64_t found = 0, asked = 0;
    volatile int sink = 0; /* so that nothing is left out */
    for (size_t i = 0; i < 2 * n; i++) {
        trace_request q;
        trace_get(r.t, i % n, r.scratch, &q);
        double t0 = bench_now();
        uint32_t hit = play(&r, &q);
        double t1 = bench_now();
        if (i < half) continue;
        memset(r.prompt, 1, hit * sizeof *r.prompt); /* warm, as q.elements was */
        double t2 = bench_now();
        sink = sink + unavoidable(&r, &q, hit);
        double t3 = bench_now();
        cost[m] = (t1 - t0) * 1e9;
        least[m++] = (t3 - t2) * 1e9;
        found += hit;
        asked += q.num_prompt;
    }
    report(&r, cost, least, m, (double)found / (double)asked, json);
    free(cost);
    free(least);
    rig_fini(&r);
    return 0;
}
