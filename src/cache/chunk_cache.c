/* chunk_cache.c - no reuse: what stands behind --disable-radix-cache.
 *
 * Every match is a miss, locks and evictions do nothing (what its table lacks the door answers),
 * and a request takes all its pages with it when it leaves. Chunks of a prompt need no tree: their
 * slots stay in the request's own row. */
#include "cache/cache_impl.h"

typedef struct chunk_cache {
    rad_cache base;
} chunk_cache;

static void chunk_destroy(rad_cache *cache)
{
    rad_env env = cache->env;
    rad_free(&env, cache, sizeof(chunk_cache));
}

static rad_status chunk_insert(rad_cache *cache, const rad_key *key, const rad_slot *slots,
                               const rad_insert_params *params, rad_inserted *inserted,
                               rad_error *err)
{
    (void)cache, (void)key, (void)slots, (void)params, (void)inserted;
    return rad_fail(err, RAD_E_UNSUPPORTED, "chunk_cache: it keeps nothing");
}

static rad_status chunk_inc_lock_ref(rad_cache *cache, rad_ref node, rad_receipt *receipt,
                                     rad_error *err)
{
    (void)cache;
    if (node.index || node.generation)
        return rad_fail(err, RAD_E_STATE,
                        "chunk_cache: there are no nodes, so none is %u (generation %u)",
                        node.index, node.generation);
    *receipt = (rad_receipt){.held = 1};
    return RAD_OK;
}

static bool chunk_receipt_holds(const rad_cache *cache, const rad_receipt *receipt)
{
    (void)cache;
    return receipt->held && !receipt->node.index && !receipt->node.generation;
}

static rad_status chunk_dec_lock_ref(rad_cache *cache, rad_receipt *receipt, rad_error *err)
{
    if (!chunk_receipt_holds(cache, receipt))
        return rad_fail(err, RAD_E_STATE,
                        "chunk_cache: the receipt of node %u (generation %u) is not held, or "
                        "another cache's",
                        receipt->node.index, receipt->node.generation);
    *receipt = (rad_receipt){0};
    return RAD_OK;
}

static rad_status chunk_unfinished_req(rad_cache *cache, rad_req_kv *req, int chunked,
                                       rad_error *err)
{
    (void)cache, (void)err;
    if (!chunked) req->published = 1;
    return RAD_OK;
}

static rad_status chunk_finished_req(rad_cache *cache, rad_req_kv *req, int is_insert,
                                     rad_error *err)
{
    (void)is_insert;
    return req_kv_free(cache, req, 0, req->allocated_len, err);
}

static cache_sizes chunk_sizes(const rad_cache *cache)
{
    (void)cache;
    return (cache_sizes){0};
}

static void chunk_get_stats(const rad_cache *cache, rad_cache_stats *stats)
{
    (void)cache;
    *stats = (rad_cache_stats){.metadata_bytes = sizeof(chunk_cache)};
}

static void chunk_visit_pages(const rad_cache *cache, cache_page_fn visit, void *user)
{
    (void)cache, (void)visit, (void)user;
}

static rad_status chunk_check(const rad_cache *cache, rad_error *err)
{
    return cache->kv ? rad_kv_check(cache->kv, err) : RAD_OK;
}

static bool chunk_owns_prefix(const rad_cache *cache, const rad_receipt *lock, const rad_slot *row,
                              uint32_t protected_len)
{
    (void)cache, (void)lock, (void)row;
    return protected_len == 0;
}

static bool chunk_owns_any(const rad_cache *cache, kv_run pages)
{
    (void)cache, (void)pages;
    return false;
}

static const cache_ops chunk_ops = {
    .destroy = chunk_destroy,
    .insert = chunk_insert,
    .inc_lock_ref = chunk_inc_lock_ref,
    .dec_lock_ref = chunk_dec_lock_ref,
    .receipt_holds = chunk_receipt_holds,
    .owns_any = chunk_owns_any,
    .unfinished_req = chunk_unfinished_req,
    .finished_req = chunk_finished_req,
    .sizes = chunk_sizes,
    .get_stats = chunk_get_stats,
    .visit_pages = chunk_visit_pages,
    .check = chunk_check,
    .owns_prefix = chunk_owns_prefix,
};

rad_status chunk_cache_create(const rad_env *env, const rad_cache_params *params, rad_cache **out,
                              rad_error *err)
{
    (void)params;
    chunk_cache *c = rad_alloc(env, sizeof *c);
    if (!c) return rad_fail(err, RAD_E_NOMEM, "chunk_cache: no memory");
    c->base.ops = &chunk_ops;
    c->base.env = *env;
    *out = &c->base;
    return RAD_OK;
}
