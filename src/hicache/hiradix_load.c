/* hiradix_load.c - host -> device, layer by layer, into pages that are the request's own.
 *
 * Of the layers that see a window only the window before the load's end comes, into pages that have
 * a window side for it; a window before the load's begin the request holds on the device.
 *
 * With states the snapshot comes first, into the request's spare; what the device still has before
 * it becomes the request's prefix (hi_extend_prefix, hiradix_states.c).
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

/* The pool's layers that come with this step of the load. */
static rad_status load_step(const hi_pool *p, uint32_t step, const rad_page *host,
                            const rad_page *device, uint32_t count)
{
    uint64_t steps = p->of->load_steps, layers = p->num_layers;
    rad_status status = RAD_OK;
    for (uint64_t i = step * layers / steps; i < (step + 1) * layers / steps && !status; i++)
        if (count)
            status =
                host_kv_pool_load_layer(p->host, p->start_layer + (uint32_t)i, host, device, count);
    return status;
}

rad_status hi_run_load(void *cache, hi_ticket *k, uint32_t worker)
{
    hiradix_cache *c = cache;
    (void)worker;
    /* First: who reads it waits for the first layer (hi_wait_states). */
    if (((const hi_op *)k)->host_state) {
        rad_status status = hi_run_load_state(c, (const hi_op *)k);
        if (status) return status;
    }
    for (uint32_t step = 0; step < c->load_steps; step++) {
        if (atomic_load(&k->t.cancelled)) return RAD_NONE;
        rad_status status = load_step(&c->full, step, k->host, k->device, k->count);
        if (!status)
            status =
                load_step(&c->window, step, k->host_windows, k->device_windows, k->num_windows);
        if (status) return status;
        controller_layers_done(c->out.controller, &k->t, step + 1);
    }
    return RAD_OK;
}

/* The last num_windows of them with a window side. */
static bool take_device_pages(hiradix_cache *c, rad_page *pages, uint32_t count,
                              uint32_t num_windows)
{
    uint32_t have = rad_kv_available_pages(c->base.kv);
    uint32_t windows = rad_kv_window_available_pages(c->base.kv);
    uint64_t ps = c->page_size;
    if (have + rad_cache_evictable_size(c->device) / ps < count ||
        windows + rad_cache_window_evictable_size(c->device) / ps < num_windows)
        return false; /* nothing is evicted in vain */
    if (have < count) (void)rad_cache_evict(c->device, (count - have) * ps, NULL, NULL);
    windows = rad_kv_window_available_pages(c->base.kv); /* some went with those pages */
    if (windows < num_windows)
        (void)rad_cache_evict_window(c->device, (num_windows - windows) * ps, NULL);
    return rad_kv_alloc_tail(c->base.kv, pages, count, num_windows) == RAD_OK;
}

/* The window pages beside those of the last pages that are loaded, on both tiers. */
static void list_windows(const hiradix_cache *c, hi_ticket *k)
{
    const rad_page *host = rad_kv_window_page_map(c->host_pages);
    const rad_page *device = rad_kv_window_page_map(c->base.kv);
    uint32_t first = k->count - k->num_windows;
    for (uint32_t i = 0; i < k->num_windows; i++) {
        k->host_windows[i] = host[k->host[first + i]];
        k->device_windows[i] = device[k->device[first + i]];
        RAD_ASSERT_ENV(&c->base.env, k->host_windows[i] && k->device_windows[i]);
    }
}

/* How many of the host pages came from storage and are used for the first time. */
static uint32_t count_fetched(hiradix_cache *c, const hi_op *op)
{
    return c->has_identity ? bits_take(c->fetched, op->k.host, op->k.count) : 0;
}

static rad_status refuse(hiradix_cache *c, rad_load_result *result, rad_load_refusal why)
{
    c->stats.refused_loads[why]++;
    result->why = why;
    return RAD_NONE;
}

/* As far as the host has the key's first pages, and the request can go on with it; from the node
 * that the request holds on the device, behind which the host goes on, or from the root where that
 * node ends elsewhere. */
static radix_pos follow_on_host(const hiradix_cache *c, const rad_req_kv *req, const rad_key *key,
                                uint32_t num_pages)
{
    const radix_tree *t = c->tree;
    size_t ps = c->page_size, pages = req->protected_len / ps;
    uint32_t node = req->lock.held ? req->lock.node.index : 0;
    uint32_t root = radix_cache_root(c->nodes, key);
    if (!root) return (radix_pos){0};
    if (node && pages && pages <= num_pages && t->nodes[node].ns == t->nodes[root].ns &&
        radix_depth(c->tree, node) == pages) {
        size_t last = (pages - 1) * ps; /* of the key, and it must be the node's too */
        const radix_node *n = &t->nodes[node];
        const rad_token *ours = radix_tokens(t, n) + (n->pages - 1) * ps;
        if (memcmp(ours, radix_cache_tokens(c->nodes, key) + last, ps * sizeof *ours) != 0)
            node = 0;
    } else {
        node = 0;
    }
    radix_pos pos = hi_follow(c, key, num_pages, node, node ? (uint32_t)pages : 0, (uint32_t)pages);
    radix_host_end(t, &pos, (uint32_t)pages);
    return pos;
}

/* Whether the window before what is to be loaded is held on the device, where there are windows. */
static bool has_window(const hiradix_cache *c, const rad_req_kv *req)
{
    const radix_window *w = hi_windows(c);
    uint64_t window = w ? (uint64_t)w->pages * c->page_size : 0;
    return !w || req->protected_len == 0 || !req->lock.held ||
           req->lock.window_from <= (req->protected_len > window ? req->protected_len - window : 0);
}

/* The path was used: what of it is on the host stays there longer. */
static void touch(radix_tree *t, uint32_t node)
{
    t->clock++;
    for (uint32_t id = node; id; id = t->nodes[id].parent)
        t->nodes[id].last_access = t->clock;
    radix_used(t, node);
    radix_components_used(t, node, 0);
}

/* What stands before the window at the load's end is not looked at any more: neither is it held on
 * the device, nor do the new pages have it. Else a request would hold two windows. */
static void pass_window(hiradix_cache *c, rad_req_kv *req, uint32_t end)
{
    uint32_t window = hi_windows(c)->pages, from = end > window ? (end - window) * c->page_size : 0;
    if (from > req->protected_len) req->window_len = from;
    if (from) cache_hold_window(c->device, &req->lock, from);
}

/* A ticket with all that the load of the walk's last `count` pages needs. */
static rad_load_refusal begin_load(hiradix_cache *c, const rad_req_kv *req, const radix_pos *pos,
                                   uint32_t count, uint64_t max_tokens, hi_op **begun)
{
    if ((uint64_t)count * c->page_size > max_tokens) return RAD_LOAD_OVER_QUOTA;
    uint32_t windows = hi_windows(c) ? RAD_MIN(count, hi_windows(c)->pages) : 0;
    hi_op *op = (hi_op *)tickets_take(&c->out, TRANSFER_LOAD, count, windows);
    if (!op) return RAD_LOAD_NO_TICKET;
    uint32_t depth, node = hi_end_of(c, pos, &depth);
    op->on_host = hi_lock_host(c, node, depth);
    hi_lock_window(c, RADIX_HOST, &op->on_host, pos->pages - windows);
    if (hi_states(c)) {
        hi_lock_state(c, RADIX_HOST, &op->on_host);
        op->host_state = radix_state_of(c->tree, RADIX_HOST, node);
        op->device_state = hi_take_spare(c, req);
    }
    if ((!hi_states(c) || op->device_state) && take_device_pages(c, op->k.device, count, windows)) {
        *begun = op;
        return RAD_LOAD_TAKEN;
    }
    if (op->device_state && op->device_state != req->spare_state)
        (void)rad_state_free(c->base.states, op->device_state);
    tickets_give(&c->out, &op->k);
    return RAD_LOAD_NO_DEVICE_PAGES;
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
    if (!req->row || req->load || req->allocated_len != from || req->spare_len) return RAD_E_STATE;

    uint32_t most = RAD_MIN(rad_req_to_token_row_tokens(c->base.rows), req->key.num_tokens);
    radix_pos pos = follow_on_host(c, req, key, RAD_MIN(hi_key_pages(c, key), most / ps));
    uint32_t end = has_window(c, req) ? pos.pages : 0;
    if (end * ps <= from) return refuse(c, result, RAD_LOAD_NOTHING);
    uint32_t tokens = end * ps - from;
    if (tokens < c->params.load_back_threshold) return refuse(c, result, RAD_LOAD_BELOW_THRESHOLD);
    rad_receipt prefix; /* what the device has behind its last snapshot */
    uint32_t begin = hi_extend_prefix(c, req, pos, &prefix), count = end - begin;
    hi_op *op = NULL;
    rad_load_refusal why = begin_load(c, req, &pos, count, max_tokens, &op);
    if (why) {
        if (prefix.held) radix_cache_let_go(c->nodes, &prefix);
        return refuse(c, result, why);
    }
    uint32_t node = op->on_host.node.index, depth = op->on_host.depth;
    if (prefix.held) hi_move_prefix(c, req, &prefix, begin);
    from = begin * ps;
    touch(c->tree, node);
    op->k.begin = begin;
    radix_path_pages(c->tree, true, node, depth, op->k.begin, count, op->k.host);
    rad_slot *row = rad_req_to_token_row(c->base.rows, req->row);
    radix_expand(c->tree, op->k.device, count, row + from);
    req->committed_len = req->allocated_len = end * ps;
    if (op->device_state) {
        req->spare_state = op->device_state;
        req->spare_len = end * ps;
        radix_cache_let_go_state(c->nodes, &req->lock); /* the one at its match is passed */
    }
    if (hi_windows(c)) pass_window(c, req, end);
    list_windows(c, &op->k);
    req->load = tickets_number(&c->out, &op->k);
    result->tokens = tokens;
    c->stats.refused_loads[RAD_LOAD_TAKEN]++;
    result->storage_tokens = count_fetched(c, op) * ps;
    return RAD_OK;
}

rad_status rad_hicache_ready_to_load(rad_cache *cache)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!c) return RAD_E_UNSUPPORTED;
    tickets_submit_loads(&c->out);
    return RAD_OK;
}

void hi_load_done(void *cache, hi_ticket *k)
{
    hiradix_cache *c = cache;
    hi_op *op = (hi_op *)k;
    if (k->t.status == RAD_OK) {
        c->stats.loaded_tokens += (uint64_t)k->count * c->page_size;
        c->stats.loaded_window_tokens += (uint64_t)k->num_windows * c->page_size;
        c->stats.loaded_states += op->device_state != 0;
    } else {
        c->stats.failed_loads += k->t.status != RAD_NONE;
    }
    if (!k->orphan) { /* what it read may go; its request still asks for it */
        hi_unlock_host(c, &op->on_host);
        return;
    }
    c->stats.device_releases += k->submitted;
    tickets_drop(&c->out, k);
}

rad_status rad_hicache_load_status(rad_cache *cache, const rad_req_kv *req)
{
    hiradix_cache *c = hiradix_of(cache);
    return c && req->load ? tickets_load_status(&c->out, req->load) : RAD_OK;
}

/* A state that went on from what did not come is of no use, wherever it stands. */
static void forget_load(rad_req_kv *req)
{
    req->committed_len = req->protected_len;
    if (req->state_len > req->committed_len) req->state_len = 0;
    req->spare_len = 0;
}

rad_status hi_load_leave(hiradix_cache *c, rad_req_kv *req, rad_error *err)
{
    rad_status status;
    hi_ticket *k = tickets_leave_load(&c->out, &req->load, &status);
    if (!k) {
        if (status) forget_load(req); /* nothing of it is worth keeping */
        req->window_len = RAD_MIN(req->window_len, req->committed_len);
        return RAD_OK;
    }
    /* The worker may be writing: the pages stay the load's. */
    uint32_t end = (k->begin + k->count) * c->page_size;
    rad_status freed = req_kv_free(&c->base, req, end, req->allocated_len, err);
    forget_load(req);
    req->allocated_len = req->protected_len;
    req->window_len = RAD_MIN(req->window_len, req->committed_len);
    if (((const hi_op *)k)->device_state) req->spare_state = 0; /* and so does the state */
    tickets_orphan(&c->out, k);
    return freed;
}
