/* optimum.c - the offline optimum and reuse distances of numbered pages (page_chains.h). */
#include "replay/page_chains.h"

#include "base/heap.h"

/* Pages of request i's prompt that may come from a cache. */
static uint32_t match_pages(const page_chains *c, const trace *t, uint64_t i, trace_request *r)
{
    trace_get(t, i, NULL, r);
    return r->num_match / c->page_size;
}

/* next[at]: the next request that has the page at ids[at]. */
static uint32_t *find_next_uses(const rad_env *env, const page_chains *c)
{
    const size_t bytes = rad_mul(c->num_pages + 1, sizeof(uint32_t));
    uint32_t *next = rad_alloc(env, bytes), *last = rad_alloc(env, bytes);
    if (next && last) {
        memset(last, 0xff, bytes);
        for (uint64_t i = c->num_requests; i-- > 0;)
            for (uint64_t at = c->start[i]; at < c->start[i + 1]; at++) {
                next[at] = last[c->ids[at]];
                last[c->ids[at]] = (uint32_t)i;
            }
    } else {
        rad_free(env, next, bytes);
        next = NULL;
    }
    rad_free(env, last, bytes);
    return next;
}

/* The one that is asked for last goes first; of equals the one that is deepest. */
static heap_key key_of(uint32_t next_use, uint64_t depth)
{
    return (heap_key)(UINT32_MAX - next_use) << 32 | (UINT32_MAX - (uint32_t)depth);
}

typedef struct belady {
    const page_chains *c;
    const uint32_t *next;
    heap heap;     /* pages that are there, but the current request's: id + 1 */
    uint64_t left; /* pages that are free */
} belady;

/* Of request i's pages so many at the front are there; all of them leave the heap. */
static void take_out(belady *b, uint64_t i, uint64_t *there)
{
    *there = 0;
    for (uint64_t at = b->c->start[i]; at < b->c->start[i + 1]; at++) {
        if (!heap_contains(&b->heap, b->c->ids[at] + 1)) return;
        heap_remove(&b->heap, b->c->ids[at] + 1);
        ++*there;
    }
}

static void play(belady *b, uint64_t i, uint64_t there)
{
    const page_chains *c = b->c;
    const uint64_t from = c->start[i], all = c->start[i + 1] - from;
    uint64_t keep = all;
    if (all - there > b->left + b->heap.count) {
        keep = there; /* it is larger than the cache */
    } else {
        for (; b->left < all - there; b->left++)
            heap_remove(&b->heap, heap_entry_id(&b->heap.entries[0]));
        b->left -= all - there;
    }
    for (uint64_t k = 0; k < keep; k++)
        heap_push(&b->heap, c->ids[from + k] + 1, key_of(b->next[from + k], k));
}

rad_status page_chains_optimum(const rad_env *env, const page_chains *c, const trace *t,
                               uint64_t num_pages, optimum_result *result, rad_error *err)
{
    rad_env full = rad_env_or_default(env);
    uint32_t *next = find_next_uses(&full, c);
    belady b = {.c = c, .next = next, .left = num_pages};
    const bool ok = heap_init(&b.heap, &full, c->num_ids + 1) && next;
    const uint64_t tokens = trace_tokens_per_element(t);
    *result = (optimum_result){0};
    for (uint64_t i = 0; ok && i < c->num_requests; i++) {
        trace_request r;
        uint64_t there, most = match_pages(c, t, i, &r);
        take_out(&b, i, &there);
        const uint64_t hit = RAD_MIN(there, most);
        result->requests++;
        result->prompt_blocks += (r.num_prompt + c->page_size - 1) / c->page_size;
        result->prompt_tokens += r.prompt_tokens;
        result->hit_blocks += hit;
        result->hit_tokens += RAD_MIN(hit * c->page_size * tokens, r.prompt_tokens);
        play(&b, i, there);
    }
    heap_fini(&b.heap);
    rad_free(&full, next, rad_mul(c->num_pages + 1, sizeof *next));
    return ok ? RAD_OK : rad_fail(err, RAD_E_NOMEM, "no memory for the optimum");
}

/* ---- reuse distances ---- */

/* A sum over places 1..n that changes (Fenwick 1994). */
static void add(uint32_t *tree, uint64_t n, uint64_t at, uint32_t by)
{
    for (; at <= n; at += at & (~at + 1))
        tree[at] += by;
}

static uint64_t sum_to(const uint32_t *tree, uint64_t at)
{
    uint64_t sum = 0;
    for (; at; at -= at & (~at + 1))
        sum += tree[at];
    return sum;
}

static uint32_t bucket_of(uint64_t others)
{
    uint32_t k = 0;
    while (k + 1 < REUSE_BUCKETS && others + 1 >= (uint64_t)2 << k)
        k++;
    return k;
}

rad_status page_chains_reuse(const rad_env *env, const page_chains *c, const trace *t,
                             uint64_t buckets[REUSE_BUCKETS], uint64_t *first, rad_error *err)
{
    rad_env full = rad_env_or_default(env);
    const size_t bytes = rad_mul(c->num_pages + 1, sizeof(uint32_t));
    uint32_t *last = rad_alloc(&full, bytes); /* where a page was used last, from 1 on; 0: never */
    uint32_t *uses = rad_alloc(&full, bytes); /* 1 at each page's last use */
    const bool ok = last && uses;
    uint64_t pages = 0; /* that were used so far, different ones */
    memset(buckets, 0, REUSE_BUCKETS * sizeof *buckets);
    *first = 0;
    for (uint64_t i = 0; ok && i < c->num_requests; i++) {
        trace_request r;
        const uint64_t from = c->start[i], end = c->start[i + 1];
        const uint64_t asked = match_pages(c, t, i, &r);
        for (uint64_t at = from; at < from + asked; at++) {
            const uint32_t was = last[c->ids[at]];
            if (was)
                buckets[bucket_of(pages - sum_to(uses, was))]++;
            else
                ++*first;
        }
        /* From its end to its front: what stands before is used as late as what comes behind it. */
        for (uint64_t at = end; at-- > from;) {
            uint32_t *was = &last[c->ids[at]];
            const uint32_t place = (uint32_t)(from + (end - at));
            if (*was)
                add(uses, c->num_pages, *was, (uint32_t)-1);
            else
                pages++;
            add(uses, c->num_pages, place, 1);
            *was = place;
        }
    }
    rad_free(&full, last, bytes);
    rad_free(&full, uses, bytes);
    return ok ? RAD_OK : rad_fail(err, RAD_E_NOMEM, "no memory for reuse distances");
}
