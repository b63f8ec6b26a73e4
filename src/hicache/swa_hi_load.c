/* swa_hi_load.c - host -> device, layer by layer of both sides, into pages that are the request's.
 *
 *     row      | the tree's | on their way ............ | to be computed
 *              0            protected_len   |           committed_len = allocated_len
 *     window                                |<- window->|
 *                                           swa_evicted_len
 *
 * As in hiradix_load.c. The two pools number their layers each for itself, and only the model
 * knows how they follow each other: mostly evenly, so a load takes them evenly, and keeps for each
 * layer the step after which it is there.
 *
 *     4 full, 2 window layers    step   0     1     2         3     4     5
 *                                     full 0 full 1 window 0 full 2 full 3 window 1 */
#include "hicache/swa_hi_impl.h"

#include "mem/host_kv_pool.h"
#include "mem/kv_pool.h"

/* Which side has the next layer after `full` and `swa` of them. */
static int next_side(const rad_swa_hicache *c, uint32_t full, uint32_t swa)
{
    uint64_t num_full = c->side[SIDE_FULL].num_layers, num_swa = c->side[SIDE_SWA].num_layers;
    if (full == num_full || swa == num_swa) return full == num_full ? SIDE_SWA : SIDE_FULL;
    return (full + 1) * num_swa <= (swa + 1) * num_full ? SIDE_FULL : SIDE_SWA;
}

uint32_t swa_hi_load_steps(const rad_swa_hicache *c)
{
    return c->side[SIDE_FULL].num_layers + c->side[SIDE_SWA].num_layers;
}

void swa_hi_order_layers(rad_swa_hicache *c)
{
    uint32_t done[2] = {0, 0};
    for (uint32_t step = 0; step < swa_hi_load_steps(c); step++) {
        int s = next_side(c, done[SIDE_FULL], done[SIDE_SWA]);
        c->side[s].step[done[s]++] = step;
    }
}

void swa_hi_wait_layer(void *side, uint32_t layer)
{
    const swa_side *s = side;
    controller_gate(s->tiers->out.controller, s->step[layer - s->device_pool->params.start_layer]);
    if (s->next_wait_layer) s->next_wait_layer(s->next_wait_user, layer);
}

rad_status swa_hi_run_load(void *cache, hi_ticket *k, uint32_t worker)
{
    rad_swa_hicache *c = cache;
    const swa_op *op = (swa_op *)k;
    (void)worker;
    uint32_t done[2] = {0, 0};
    for (uint32_t step = 0; step < swa_hi_load_steps(c); step++) {
        int s = next_side(c, done[SIDE_FULL], done[SIDE_SWA]);
        const swa_side *side = &c->side[s];
        const rad_page *from = s == SIDE_FULL ? k->host : op->swa_host;
        const rad_page *to = s == SIDE_FULL ? k->device : op->swa_device;
        if (atomic_load(&k->t.cancelled)) return RAD_NONE;
        rad_status status = rad_host_kv_pool_load_layer(
            side->pool, side->device_pool->params.start_layer + done[s]++, from, to,
            s == SIDE_FULL ? k->count : op->num_swa);
        if (status) return status;
        controller_layers_done(c->out.controller, &k->t, step + 1);
    }
    return RAD_OK;
}

static bool take_device_pages(rad_swa_hicache *c, rad_page *pages, uint32_t count, uint32_t num_swa)
{
    rad_swa_allocator *kv = c->device->kv;
    uint64_t ps = c->page_size, full = rad_swa_full_available_size(kv) / ps;
    uint64_t swa = rad_swa_swa_available_size(kv) / ps;
    if (full + rad_swa_cache_get_sizes(c->device).full_evictable / ps < count)
        return false; /* nothing is evicted in vain */
    if (full < count || swa < num_swa)
        (void)rad_swa_cache_evict(c->device, full < count ? (count - full) * ps : 0,
                                  swa < num_swa ? (num_swa - swa) * ps : 0, NULL);
    return rad_swa_alloc_tail(kv, pages, count, num_swa) == RAD_OK;
}

/* How many of the host pages came from storage and are used for the first time. */
static uint32_t count_fetched(rad_swa_hicache *c, const swa_op *op)
{
    return c->has_identity ? bits_take(c->fetched, op->k.host, op->k.count) : 0;
}

static rad_status refuse(rad_swa_hicache *c, rad_load_result *result, rad_load_refusal why)
{
    c->stats.refused_loads[why]++;
    result->why = why;
    return RAD_NONE;
}

rad_status rad_swa_hicache_load_back(rad_swa_hicache *c, rad_swa_req *req, const rad_key *key,
                                     uint64_t max_tokens, rad_load_result *result)
{
    if (!result) return RAD_E_INVAL;
    *result = (rad_load_result){0};
    if (!cache_key_is_sound(key)) return RAD_E_INVAL;
    rad_status status = swa_check_req(c->device, req, NULL);
    if (status) return status;
    uint32_t ps = c->page_size, from = req->protected_len / ps;
    if (!req->row || req->load || req->allocated_len != req->protected_len) return RAD_E_STATE;

    uint32_t most = RAD_MIN(rad_req_to_token_row_tokens(c->device->rows), req->key.num_tokens);
    swa_hi_place place = swa_hi_find(c->host, key, RAD_MIN(most, key->num_tokens) / ps, true);
    uint32_t end = swa_hi_usable(c, place, from);
    if (end <= from) return refuse(c, result, RAD_LOAD_NOTHING);
    uint32_t count = end - from, num_swa = RAD_MIN(count, c->window);
    if (count * ps < c->params.load_back_threshold)
        return refuse(c, result, RAD_LOAD_BELOW_THRESHOLD);
    if (count * ps > max_tokens) return refuse(c, result, RAD_LOAD_OVER_QUOTA);

    swa_op *op = swa_op_take(c, TRANSFER_LOAD, count);
    if (!op) return refuse(c, result, RAD_LOAD_NO_TICKET);
    op->on_host = swa_lock_from(c->host, place.node, end - num_swa);
    if (!take_device_pages(c, op->k.device, count, num_swa)) {
        tickets_give(&c->out, &op->k);
        return refuse(c, result, RAD_LOAD_NO_DEVICE_PAGES);
    }
    op->k.begin = from;
    swa_hi_path_pages(&c->host->tree, place.node, end, c->on_host);
    memcpy(op->k.host, c->on_host + from, count * sizeof *op->k.host);
    swa_op_list_windows(c, op, true);
    RAD_ASSERT_ENV(&c->env, op->num_swa == num_swa);
    rad_slot *row = rad_req_to_token_row(c->device->rows, req->row) + req->protected_len;
    for (uint32_t i = 0; i < count * ps; i++)
        row[i] = op->k.device[i / ps] * (rad_slot)ps + (rad_slot)(i % ps);
    req->committed_len = req->allocated_len = end * ps;
    if (num_swa < count) req->swa_evicted_len = RAD_MAX(req->swa_evicted_len, (end - num_swa) * ps);
    req->load = tickets_number(&c->out, &op->k);
    c->stats.refused_loads[RAD_LOAD_TAKEN]++;
    result->tokens = count * ps;
    result->storage_tokens = count_fetched(c, op) * ps;
    return RAD_OK;
}

rad_status rad_swa_hicache_ready_to_load(rad_swa_hicache *c)
{
    tickets_submit_loads(&c->out);
    return RAD_OK;
}

void swa_hi_load_done(void *cache, hi_ticket *k)
{
    rad_swa_hicache *c = cache;
    swa_op *op = (swa_op *)k;
    if (k->t.status == RAD_OK) {
        c->stats.loaded_tokens[SIDE_FULL] += (uint64_t)k->count * c->page_size;
        c->stats.loaded_tokens[SIDE_SWA] += (uint64_t)op->num_swa * c->page_size;
    } else {
        c->stats.failed_loads += k->t.status != RAD_NONE;
    }
    if (k->orphan) {
        tickets_drop(&c->out, k);
        return;
    }
    /* What it read may go; its request still asks for it. */
    if (op->on_host.held) (void)rad_swa_cache_dec_lock_ref(c->host, &op->on_host, NULL);
}

rad_status rad_swa_hicache_load_status(rad_swa_hicache *c, const rad_swa_req *req)
{
    return req->load ? tickets_load_status(&c->out, req->load) : RAD_OK;
}

/* Nothing of the load is worth keeping. */
static void forget_load(rad_swa_req *req)
{
    req->committed_len = req->protected_len;
    req->swa_evicted_len = RAD_MIN(req->swa_evicted_len, req->committed_len);
}

rad_status swa_hi_load_leave(rad_swa_hicache *c, rad_swa_req *req, rad_error *err)
{
    rad_status status, freed = RAD_OK;
    hi_ticket *k = tickets_leave_load(&c->out, &req->load, &status);
    if (!k) {
        if (status) forget_load(req);
        return RAD_OK;
    }
    /* The worker may be writing: the pages stay the load's. */
    uint32_t end = (k->begin + k->count) * c->page_size;
    if (req->allocated_len > end)
        freed = rad_swa_free_slots(c->device->kv,
                                   rad_req_to_token_row(c->device->rows, req->row) + end,
                                   req->allocated_len - end, err);
    forget_load(req);
    req->allocated_len = req->committed_len;
    tickets_orphan(&c->out, k);
    return freed;
}
