/* hiradix_load.c - host -> device, layer by layer, into pages that are the request's own.
 *
 *     row      | the tree's | on their way ....... | to be computed
 *              0            protected_len          committed_len = allocated_len
 *
 *     layer 0  copied    | attention of layer 0 runs
 *     layer 1  copied    |                           | attention of layer 1 runs
 *     layer 2  being copied                          |
 *
 * The pages are shared only when the request publishes them, which it may once all layers
 * have arrived: so a load that fails is nobody's problem but the request's, which starts
 * anew. Siblings that need the same pages are held back by the scheduler meanwhile.
 *
 * A request that goes while its load runs leaves the pages to the load, which gives them
 * back when the worker has let go of them. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"

rad_status hi_run_load(hiradix_cache *c, hi_op *op)
{
    for (uint32_t layer = 0; layer < c->num_layers; layer++) {
        if (atomic_load(&op->t.cancelled)) return RAD_NONE;
        rad_status status = rad_host_kv_pool_load_layer(c->pool, c->start_layer + layer, op->host,
                                                        op->device, op->count);
        if (status) return status;
        controller_layers_done(c->controller, &op->t, layer + 1);
    }
    return RAD_OK;
}

static bool take_device_pages(hiradix_cache *c, rad_page *pages, uint32_t count)
{
    uint32_t have = rad_kv_available_pages(c->base.kv);
    if (have + rad_cache_evictable_size(c->device) / c->page_size < count)
        return false; /* nothing is evicted in vain */
    if (have < count)
        (void)rad_cache_evict(c->device, (uint64_t)(count - have) * c->page_size, NULL);
    return rad_kv_alloc(c->base.kv, pages, count) == RAD_OK;
}

/* How many of the host pages came from storage and are used for the first time. */
static uint32_t count_fetched(hiradix_cache *c, const hi_op *op)
{
    return c->has_identity ? bits_take(c->fetched, op->host, op->count) : 0;
}

static rad_status refuse(hiradix_cache *c, rad_load_result *result, rad_load_refusal why)
{
    c->stats.refused_loads[why]++;
    result->why = why;
    return RAD_NONE;
}

rad_status rad_hicache_load_back(rad_cache *cache, rad_req_kv *req, const rad_key *key,
                                 uint64_t max_tokens, rad_load_result *result)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!result) return RAD_E_INVAL;
    *result = (rad_load_result){0};
    if (!c) return RAD_E_UNSUPPORTED;
    if (!cache_key_is_sound(key)) return RAD_E_INVAL;
    rad_status status = req_kv_check(cache, req, NULL);
    if (status) return status;
    uint32_t ps = c->page_size, from = req->protected_len;
    if (!req->row || req->load || req->allocated_len != from) return RAD_E_STATE;

    rad_match_handle host;
    rad_key front = hi_key_front(c, key, hi_key_pages(c, key));
    uint32_t row_tokens = rad_req_to_token_row_tokens(c->base.rows);
    if (!front.num_tokens || rad_cache_match_handle(c->host, &front, &host) != RAD_OK)
        return refuse(c, result, RAD_LOAD_NOTHING);
    uint32_t most = RAD_MIN(row_tokens, req->key.num_tokens);
    host.num_tokens = RAD_MIN(host.num_tokens, most / ps * ps);
    if (host.num_tokens <= from) return refuse(c, result, RAD_LOAD_NOTHING);
    uint32_t tokens = host.num_tokens - from, count = tokens / ps;
    if (tokens < c->params.load_back_threshold) return refuse(c, result, RAD_LOAD_BELOW_THRESHOLD);
    if (tokens > max_tokens) return refuse(c, result, RAD_LOAD_OVER_QUOTA);

    hi_op *op = hi_op_take(c, TRANSFER_LOAD, count);
    if (!op) return refuse(c, result, RAD_LOAD_NO_TICKET);
    if (rad_match_handle_lock(c->host, &host, &op->on_host, NULL) != RAD_OK ||
        !take_device_pages(c, op->device, count)) {
        hi_op_give(c, op);
        return refuse(c, result, RAD_LOAD_NO_DEVICE_PAGES);
    }
    if (c->counted) tree_path_hits(c->counted, host.node, req->priority);
    op->begin = from / ps;
    hi_pages_of(c, c->host, &host, op->begin, count, op->host);
    rad_slot *row = rad_req_to_token_row(c->base.rows, req->row);
    for (uint32_t i = 0; i < tokens; i++)
        row[from + i] = op->device[i / ps] * (rad_slot)ps + (rad_slot)(i % ps);
    req->committed_len = req->allocated_len = host.num_tokens;
    req->load = hi_op_ticket(c, op);
    c->pending_loads++;
    result->tokens = tokens;
    c->stats.refused_loads[RAD_LOAD_TAKEN]++;
    result->storage_tokens = count_fetched(c, op) * ps;
    return RAD_OK;
}

rad_status rad_hicache_ready_to_load(rad_cache *cache)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!c) return RAD_E_UNSUPPORTED;
    for (uint32_t id = 1; c->pending_loads && id <= c->ids.num_fresh; id++) {
        hi_op *op = &c->ops[id];
        if (!slab_is_live(&c->ids, id) || op->t.kind != TRANSFER_LOAD || op->submitted) continue;
        c->pending_loads--;
        hi_op_submit(c, op);
    }
    return RAD_OK;
}

void hi_load_acked(hiradix_cache *c, hi_op *op)
{
    if (op->t.status == RAD_OK)
        c->stats.loaded_tokens += (uint64_t)op->count * c->page_size;
    else
        c->stats.failed_loads += op->t.status != RAD_NONE;
    if (!op->orphan) { /* what it read may go; its request still asks for it */
        if (op->on_host.held) (void)rad_cache_dec_lock_ref(c->host, &op->on_host, NULL);
        return;
    }
    rad_status status = rad_kv_free(c->base.kv, op->device, op->count, NULL);
    if (status)
        rad_log(&c->base.env, RAD_LOG_ERROR, "hicache: %u pages of a load were not handed out",
                op->count);
    c->stats.device_releases += op->submitted;
    c->orphans--;
    c->orphan_pages -= op->count;
    hi_op_give(c, op);
}

/* Where a load is. One that is gone was forgotten by a reset: it has failed. */
static rad_status state_of(hiradix_cache *c, uint32_t ticket, hi_op **op)
{
    *op = hi_op_find(c, ticket);
    if (!*op || (*op)->t.kind != TRANSFER_LOAD) return RAD_E_IO;
    if (!(*op)->acked) hi_take_done(c);
    if (!(*op)->acked) return RAD_AGAIN;
    return (*op)->t.status == RAD_OK ? RAD_OK : RAD_E_IO;
}

rad_status rad_hicache_load_status(rad_cache *cache, const rad_req_kv *req)
{
    hiradix_cache *c = hiradix_of(cache);
    hi_op *op;
    if (!c || !req->load) return RAD_OK;
    rad_status status = state_of(c, req->load, &op);
    if (status != RAD_AGAIN || atomic_load(&op->t.layers_done) < c->num_layers) return status;
    controller_wait(c->controller, &op->t); /* it has arrived, and is about to say so */
    return state_of(c, req->load, &op);
}

rad_status hi_load_settle(hiradix_cache *c, rad_req_kv *req, rad_error *err)
{
    hi_op *op;
    if (!req->load) return RAD_OK;
    rad_status status = rad_hicache_load_status(&c->base, req);
    if (status == RAD_AGAIN)
        return rad_fail(err, RAD_AGAIN, "hicache: row %u: its load is still under way", req->row);
    if (status)
        return rad_fail(err, status, "hicache: row %u: its load failed, it cannot be published",
                        req->row);
    if ((op = hi_op_find(c, req->load))) hi_op_give(c, op);
    req->load = 0;
    return RAD_OK;
}

rad_status hi_load_leave(hiradix_cache *c, rad_req_kv *req, rad_error *err)
{
    hi_op *op;
    if (!req->load) return RAD_OK;
    rad_status status = rad_hicache_load_status(&c->base, req);
    op = hi_op_find(c, req->load);
    req->load = 0;
    if (status == RAD_OK || !op || op->acked) {
        if (op) hi_op_give(c, op);
        if (status) req->committed_len = req->protected_len; /* nothing of it is worth keeping */
        return RAD_OK;
    }
    /* The worker may be writing: the pages stay the load's. */
    uint32_t end = (op->begin + op->count) * c->page_size;
    rad_status freed = req_kv_free(&c->base, req, end, req->allocated_len, err);
    req->committed_len = req->allocated_len = req->protected_len;
    op->orphan = true;
    c->orphans++;
    c->orphan_pages += op->count;
    if (op->submitted) {
        controller_cancel(c->controller, &op->t);
        hi_take_done(c);
        return freed;
    }
    c->pending_loads--;
    op->t.status = RAD_NONE;
    op->acked = true;
    hi_load_acked(c, op);
    return freed;
}
