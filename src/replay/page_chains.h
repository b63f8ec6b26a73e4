/* page_chains.h - a trace as numbered pages: a number stands for a page and all before it.
 *
 * What the optimum, reuse distances and the reasons of misses are computed from; made once for a
 * page size, and read by any thread. Equal are pages whose 64-bit hashes under a secret of ours are
 * equal: of 10 million pages some two are confused with a chance of 3 in a million. */
#ifndef REPLAY_PAGE_CHAINS_H
#define REPLAY_PAGE_CHAINS_H

#include "replay/trace.h"

enum { PAGE_NEVER = UINT32_MAX };

typedef struct page_chains {
    rad_env env;
    uint32_t page_size; /* elements */
    uint32_t num_ids;   /* ids are 0 .. num_ids - 1 */
    uint64_t num_requests, num_pages;
    uint64_t *start; /* [num_requests + 1]: pages of request i are ids[start[i] .. start[i + 1]) */
    uint32_t *ids;   /* whole pages of prompt and output, and what is left of a prompt in a page
                      * where elements are whole anyway (page size 1) */
    uint32_t *first_use; /* [num_ids]: the request that had it first */
    uint32_t *content;   /* [num_ids]: a number that the page has in every namespace, and */
    uint32_t *first_any; /* [num_ids], by content: who had it first, in whatever namespace */
} page_chains;

/* RAD_E_LIMIT: more than 2^31 pages; RAD_E_NOMEM. */
rad_status page_chains_make(const rad_env *env, const trace *t, uint32_t page_size,
                            page_chains **out, rad_error *err);
void page_chains_free(page_chains *c); /* NULL is fine */

/* What an all-knowing cache of so many pages finds: of those that are there when a request needs
 * room, the one goes that is asked for last (Belady 1966). A page is never asked for later than one
 * behind it, so prefixes stay whole. Every request has all its pages at its turn, as in a server;
 * one that is larger than the cache leaves nothing. O(n log n). */
typedef struct optimum_result { /* as in simulate_result */
    uint64_t requests, prompt_blocks, prompt_tokens, hit_blocks, hit_tokens;
} optimum_result;

rad_status page_chains_optimum(const rad_env *env, const page_chains *c, const trace *t,
                               uint64_t num_pages, optimum_result *result, rad_error *err);

enum { REUSE_BUCKETS = 32 };

/* Of each page that a prompt asks for and that was there before: how many others were used since,
 * in buckets of powers of two: buckets[k] has those with 2^k - 1 up to 2^(k+1) - 2 others. What an
 * LRU cache of so many pages finds is about the sum of those below its size. *first: of pages
 * that were never there before. O(n log n). */
rad_status page_chains_reuse(const rad_env *env, const page_chains *c, const trace *t,
                             uint64_t buckets[REUSE_BUCKETS], uint64_t *first, rad_error *err);

#endif
