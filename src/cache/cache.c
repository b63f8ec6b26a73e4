/* cache.c - the door: checks what comes in, and hands it to the cache behind. */
#include "base/params.h"
#include "cache/radix_cache.h"
#include "mem/kv_window.h"

/* RAD_E_INVAL in words: the list is none, or does not go with the other params. */
static rad_status read_free_list(const rad_cache_params *p, rad_free_list *list, rad_error *err)
{
    rad_status status = rad_params_read(list, sizeof *list, p->free_list, "free_list", err);
    if (status) return status;
    if (p->kv_allocator)
        return rad_fail(err, RAD_E_INVAL, "cache: a kv_allocator and a free list: one of the two");
    if (!list->num_pages || list->num_pages > (uint32_t)INT32_MAX / p->page_size)
        return rad_fail(err, RAD_E_INVAL, "cache: a free list of %u pages of %u tokens",
                        list->num_pages, p->page_size);
    if (!list->free_pages || (p->window_tokens != 0) != (list->free_windows && list->move_window) ||
        (list->free_windows != NULL) != (list->move_window != NULL))
        return rad_fail(err, RAD_E_INVAL,
                        "cache: a free list has free_pages, and with windows, only then, "
                        "free_windows and move_window");
    return RAD_OK;
}

static rad_status create(const rad_env *env, const rad_cache_params *params,
                         const struct radix_host_params *host, rad_cache **out, rad_error *err)
{
    rad_cache_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "cache: no place for the result");
    *out = NULL;
    rad_status status = rad_params_read(&p, sizeof p, params, "cache", err);
    if (status) return status;
    if (!p.page_size) p.page_size = 1;
    if (p.page_size > INT32_MAX / 2)
        return rad_fail(err, RAD_E_INVAL, "cache: page_size %u", p.page_size);
    if (p.kv_allocator && rad_kv_page_size(p.kv_allocator) != p.page_size)
        return rad_fail(err, RAD_E_INVAL, "cache: page_size %u, but the allocator's is %u",
                        p.page_size, rad_kv_page_size(p.kv_allocator));
    if (p.state_pool && p.is_eagle)
        return rad_fail(err, RAD_E_INVAL,
                        "cache: a state pool and is_eagle: bigram keys have no snapshots");
    if (p.req_to_token_pool && !p.kv_allocator)
        return rad_fail(err, RAD_E_INVAL, "cache: a req_to_token_pool without a kv_allocator");
    rad_free_list list = {0};
    if (p.free_list) status = read_free_list(&p, &list, err);
    if (status) return status;
    p.free_list = p.free_list ? &list : NULL;
    if (p.window_tokens && !p.free_list &&
        (!p.kv_allocator || !rad_kv_window_num_pages(p.kv_allocator)))
        return rad_fail(err, RAD_E_INVAL,
                        "cache: a window of %u tokens, but no allocator with a window side, and "
                        "no free list",
                        p.window_tokens);

    rad_env full = rad_env_or_default(env);
    uint32_t kind = p.kind == RAD_CACHE_RADIX && p.disable ? RAD_CACHE_CHUNK : p.kind;
    switch (kind) {
    case RAD_CACHE_RADIX: status = radix_cache_create(&full, &p, host, out, err); break;
    case RAD_CACHE_CHUNK: status = chunk_cache_create(&full, &p, out, err); break;
    default: return rad_fail(err, RAD_E_INVAL, "cache: there is no kind %u", p.kind);
    }
    if (status) return status;
    (*out)->page_size = p.page_size;
    (*out)->never_insert_finished = p.disable_finished_insert != 0;
    (*out)->window_pages = p.window_tokens / p.page_size + (p.window_tokens % p.page_size != 0);
    (*out)->states = p.state_pool;
    (*out)->kv = p.kv_allocator;
    (*out)->rows = p.req_to_token_pool;
    return RAD_OK;
}

rad_status rad_cache_create(const rad_env *env, const rad_cache_params *params, rad_cache **out,
                            rad_error *err)
{
    return create(env, params, NULL, out, err);
}

rad_status radix_cache_create_tiered(const rad_env *env, const rad_cache_params *params,
                                     const radix_host_params *host, rad_cache **out, rad_error *err)
{
    return create(env, params, host, out, err);
}

void rad_cache_destroy(rad_cache *cache)
{
    if (cache) cache->ops->destroy(cache);
}

bool cache_key_is_sound(const rad_key *key)
{
    return key && (key->tokens || !key->num_tokens) && key->num_tokens <= INT32_MAX;
}

static rad_status refuse_key(const char *who, const rad_key *key, rad_error *err)
{
    if (!key) return rad_fail(err, RAD_E_INVAL, "%s: no key", who);
    if (key->num_tokens > INT32_MAX)
        return rad_fail(err, RAD_E_INVAL, "%s: a key of %u tokens (%d at most)", who,
                        key->num_tokens, INT32_MAX);
    return rad_fail(err, RAD_E_INVAL, "%s: a key of %u tokens without the tokens", who,
                    key->num_tokens);
}

rad_status rad_cache_match_prefix(rad_cache *cache, const rad_key *key, rad_slot *slots,
                                  rad_match *match, rad_error *err)
{
    if (!match) return rad_fail(err, RAD_E_INVAL, "match_prefix: no place for the answer");
    if (!cache_key_is_sound(key)) return refuse_key("match_prefix", key, err);
    *match = (rad_match){0};
    CACHE_WITH(cache, match_prefix);
    if (cache->ops->match_prefix) cache->ops->match_prefix(cache, key, slots, match);
    return RAD_OK;
}

rad_status rad_cache_match_batch(rad_cache *cache, const rad_key *keys, uint32_t count,
                                 rad_slot *const *slots, rad_match *matches, rad_error *err)
{
    if (count && (!keys || !matches))
        return rad_fail(err, RAD_E_INVAL, "match_batch: no keys, or no place for the answers");
    for (uint32_t i = 0; i < count; i++)
        if (!cache_key_is_sound(&keys[i]))
            return rad_fail(err, RAD_E_INVAL,
                            "match_batch: key %u of %u: %u tokens that are not there, or more than "
                            "%d",
                            i, count, keys[i].num_tokens, INT32_MAX);
    for (uint32_t i = 0; i < count; i++)
        (void)rad_cache_match_prefix(cache, &keys[i], slots ? slots[i] : NULL, &matches[i], NULL);
    return RAD_OK;
}

rad_status rad_cache_lookup(const rad_cache *cache, const rad_key *key, rad_match *match)
{
    if (!match || !cache_key_is_sound(key)) return RAD_E_INVAL;
    *match = (rad_match){0};
    CACHE_WITH(cache, lookup);
    if (cache->ops->lookup) cache->ops->lookup(cache, key, match);
    return RAD_OK;
}

rad_status rad_cache_insert(rad_cache *cache, const rad_key *key, const rad_slot *slots,
                            const rad_insert_params *params, rad_inserted *inserted, rad_error *err)
{
    rad_inserted unused;
    if (!inserted) inserted = &unused;
    *inserted = (rad_inserted){0};
    if (!cache_key_is_sound(key) || (!slots && key->num_tokens))
        return rad_fail(err, RAD_E_INVAL, "cache: a key without tokens, or without slots");
    return cache->ops->insert(cache, key, slots, params, inserted, err);
}

rad_status rad_cache_inc_lock_ref(rad_cache *cache, rad_ref node, rad_receipt *receipt,
                                  rad_error *err)
{
    if (!receipt) return rad_fail(err, RAD_E_INVAL, "cache: no place for the receipt");
    CACHE_WITH(cache, inc_lock_ref);
    return cache->ops->inc_lock_ref(cache, node, receipt, err);
}

rad_status rad_cache_dec_lock_ref(rad_cache *cache, rad_receipt *receipt, rad_error *err)
{
    if (!receipt) return rad_fail(err, RAD_E_INVAL, "cache: no receipt");
    CACHE_WITH(cache, dec_lock_ref);
    return cache->ops->dec_lock_ref(cache, receipt, err);
}

rad_status rad_cache_evict(rad_cache *cache, uint64_t num_tokens, uint64_t *evicted_tokens,
                           rad_error *err)
{
    uint64_t done = 0;
    rad_status status = cache->ops->evict ? cache->ops->evict(cache, num_tokens, &done) : RAD_OK;
    if (evicted_tokens) *evicted_tokens = done;
    if (status >= 0) return status;
    return rad_fail(err, status, "evict: %llu of %llu tokens went, but %s",
                    (unsigned long long)done, (unsigned long long)num_tokens,
                    status == RAD_E_STATE ? "the allocator did not know all of their pages as "
                                            "handed out: it was cleared, or they were freed, "
                                            "under the cache"
                                          : rad_status_name(status));
}

static rad_status refuse_window(const char *who, rad_error *err)
{
    return rad_fail(err, RAD_E_UNSUPPORTED, "%s: the cache has no windows", who);
}

rad_status rad_cache_evict_window(rad_cache *cache, uint64_t window_tokens, uint64_t *evicted)
{
    uint64_t done = 0;
    if (evicted) *evicted = 0;
    if (!cache->window_pages) return refuse_window("evict_window", NULL);
    rad_status status =
        cache->ops->evict_window ? cache->ops->evict_window(cache, window_tokens, &done) : RAD_OK;
    if (evicted) *evicted = done;
    return status;
}

rad_status rad_cache_put_state(rad_cache *cache, rad_ref node, uint32_t depth_tokens,
                               rad_state state, rad_error *err)
{
    if (!cache->states)
        return rad_fail(err, RAD_E_UNSUPPORTED, "put_state: the cache has no state pool");
    if (!depth_tokens || depth_tokens % cache->page_size)
        return rad_fail(err, RAD_E_INVAL, "put_state: %u tokens are no whole pages of %u",
                        depth_tokens, cache->page_size);
    if (!rad_state_is_taken(cache->states, state) || cache_owns_state(cache, state))
        return rad_fail(err, RAD_E_STATE, "put_state: state %d is %s", state,
                        rad_state_is_taken(cache->states, state) ? "the cache's already"
                                                                 : "not handed out");
    CACHE_WITH(cache, put_state);
    if (cache->ops->put_state) return cache->ops->put_state(cache, node, depth_tokens, state, err);
    return rad_state_free(cache->states, state);
}

rad_status rad_cache_evict_state(rad_cache *cache, uint64_t count, uint64_t *evicted)
{
    uint64_t done = 0;
    if (evicted) *evicted = 0;
    if (!cache->states) return RAD_E_UNSUPPORTED;
    CACHE_WITH(cache, evict_state);
    rad_status status = cache->ops->evict_state ? cache->ops->evict_state(cache, count, &done)
                                                : RAD_OK;
    if (evicted) *evicted = done;
    return status;
}

rad_status rad_cache_release_window(rad_cache *cache, rad_req_kv *req, uint32_t upto,
                                    rad_error *err)
{
    if (!cache->window_pages) return refuse_window("release_window", err);
    rad_status status = req_kv_check(cache, req, err);
    if (!status && cache->ops->session_check) status = cache->ops->session_check(cache, req, err);
    if (status) return status;
    if (upto > req->committed_len)
        return rad_fail(err, RAD_E_INVAL, "release_window: row %u: position %u of %u committed",
                        req->row, upto, req->committed_len);
    if (req->load)
        return rad_fail(err, RAD_E_STATE, "release_window: row %u is being loaded", req->row);
    uint32_t to = upto / cache->page_size * cache->page_size;
    cache_hold_window(cache, &req->lock, to);
    uint32_t from = RAD_MAX(req->protected_len, req->window_len);
    if (from < to) {
        const rad_slot *row = rad_req_to_token_row(cache->rows, req->row);
        status = kv_free_window_slots(cache->kv, row + from, to - from, err);
    }
    if (!status) req->window_len = RAD_MAX(req->window_len, to);
    return status;
}

rad_status rad_cache_release_lock_window(rad_cache *cache, rad_receipt *receipt, uint32_t upto,
                                         rad_error *err)
{
    if (!cache->window_pages) return refuse_window("release_lock_window", err);
    if (!receipt) return rad_fail(err, RAD_E_INVAL, "release_lock_window: no receipt");
    if (!cache_receipt_holds(cache, receipt))
        return rad_fail(err, RAD_E_STATE,
                        "release_lock_window: the receipt holds nothing at node %u (generation %u)",
                        receipt->node.index, receipt->node.generation);
    cache_hold_window(cache, receipt, upto / cache->page_size * cache->page_size);
    return RAD_OK;
}

rad_status rad_cache_unfinished_req(rad_cache *cache, rad_req_kv *req, int chunked, rad_error *err)
{
    rad_status status = req_kv_check(cache, req, err);
    if (!status && !req->row)
        status =
            rad_fail(err, RAD_E_INVAL, "cache: a request without a row has nothing to publish");
    if (!status && cache->ops->session_check) status = cache->ops->session_check(cache, req, err);
    return status ? status : cache->ops->unfinished_req(cache, req, chunked, err);
}

rad_status rad_cache_finished_req(rad_cache *cache, rad_req_kv *req, int is_insert, rad_error *err)
{
    rad_status status = req_kv_check(cache, req, err);
    if (!status && cache->ops->session_check) status = cache->ops->session_check(cache, req, err);
    if (status) return status;
    if (cache->never_insert_finished) is_insert = 0;
    status = cache->ops->finished_req(cache, req, is_insert, err);
    if (req->state) (void)rad_state_free(cache->states, req->state); /* handed out: was checked */
    if (req->spare_state) (void)rad_state_free(cache->states, req->spare_state);
    if (req->row) { /* else the cache keeps it */
        rad_status freed = rad_req_to_token_free(cache->rows, req->row);
        if (!status) status = freed;
    }
    *req = (rad_req_kv){0};
    return status;
}

rad_status rad_cache_poll(rad_cache *cache)
{
    CACHE_WITH(cache, poll);
    return cache->ops->poll ? cache->ops->poll(cache) : RAD_OK;
}

rad_status rad_cache_reset(rad_cache *cache)
{
    return cache->ops->reset ? cache->ops->reset(cache) : RAD_OK;
}

uint64_t rad_cache_evictable_size(const rad_cache *cache)
{
    return cache->ops->sizes(cache).evictable;
}

uint64_t rad_cache_protected_size(const rad_cache *cache)
{
    return cache->ops->sizes(cache).protected_;
}

uint64_t rad_cache_total_size(const rad_cache *cache)
{
    cache_sizes sizes = cache->ops->sizes(cache);
    return sizes.evictable + sizes.protected_;
}

uint64_t rad_cache_window_evictable_size(const rad_cache *cache)
{
    return cache->ops->sizes(cache).window_evictable;
}

uint64_t rad_cache_window_protected_size(const rad_cache *cache)
{
    return cache->ops->sizes(cache).window_protected;
}

uint64_t rad_cache_state_evictable_size(const rad_cache *cache)
{
    return cache->ops->sizes(cache).state_evictable;
}

uint64_t rad_cache_state_protected_size(const rad_cache *cache)
{
    return cache->ops->sizes(cache).state_protected;
}

void rad_cache_get_stats(const rad_cache *cache, rad_cache_stats *stats)
{
    cache->ops->get_stats(cache, stats);
}

rad_status rad_cache_get_namespace_stats(const rad_cache *cache, rad_namespace_stats *stats)
{
    rad_namespace_stats s = {.struct_size = sizeof s};
    if (!cache || !stats || stats->struct_size < sizeof s) return RAD_E_INVAL;
    CACHE_WITH(cache, namespace_stats);
    if (cache->ops->namespace_stats) cache->ops->namespace_stats(cache, &s);
    s.struct_size = stats->struct_size;
    memcpy(stats, &s, sizeof s);
    return RAD_OK;
}

rad_status rad_cache_walk(const rad_cache *cache, rad_cache_visit_fn visit, void *user)
{
    if (!visit) return RAD_E_INVAL;
    CACHE_WITH(cache, walk);
    return cache->ops->walk ? cache->ops->walk(cache, visit, user) : RAD_OK;
}

rad_status rad_cache_check(const rad_cache *cache, rad_error *err)
{
    return cache->ops->check(cache, err);
}
