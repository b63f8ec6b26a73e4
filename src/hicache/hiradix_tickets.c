/* hiradix_tickets.c - what transfers hold, and what is done when they are.
 *
 * A ticket is taken before anything else and given back last; between the two it owns its
 * pages, locks and a run in the arena of lists. Some tickets are kept for what cannot wait:
 * a prompt that waits for its load must not find all of them out for backups. */
#include "hicache/hiradix_impl.h"

#include <stdio.h>

#include "base/bits.h"

hi_op *hi_op_take(hiradix_cache *c, transfer_kind kind, uint32_t count)
{
    if (slab_available(&c->ids) <= controller_kept_tickets(kind, c->params.max_transfers) ||
        !count || count > INT32_MAX / 16)
        return NULL;
    uint32_t hashes = kind == TRANSFER_FETCH ? count * HI_HASH_UNITS : 0;
    uint32_t run = span_alloc(&c->runs, 2 * count + hashes);
    if (!run) return NULL;
    uint32_t id = slab_alloc(&c->ids);
    hi_op *op = &c->ops[id];
    *op = (hi_op){.t.kind = kind, .id = id, .run = run, .count = count};
    op->host = c->lists + c->runs.spans[run].at;
    op->device = op->host + count;
    if (hashes) op->chain = (rad_page_hash *)(void *)(op->device + count);
    op->start_ns = c->base.env.now_ns(c->base.env.user);
    c->storage_ops += kind >= TRANSFER_FETCH;
    return op;
}

void hi_op_give(hiradix_cache *c, hi_op *op)
{
    if (op->on_device.held) (void)rad_cache_dec_lock_ref(c->device, &op->on_device, NULL);
    if (op->on_host.held) (void)rad_cache_dec_lock_ref(c->host, &op->on_host, NULL);
    c->storage_ops -= op->t.kind >= TRANSFER_FETCH;
    c->checks -= op->checks;
    span_unref(&c->runs, op->run);
    slab_free(&c->ids, op->id);
}

uint32_t hi_op_ticket(const hiradix_cache *c, const hi_op *op)
{
    return c->ids.generation[op->id] << 16 | op->id;
}

hi_op *hi_op_find(const hiradix_cache *c, uint32_t ticket)
{
    uint32_t id = ticket & 0xffff;
    if (!slab_is_live(&c->ids, id) || (uint16_t)c->ids.generation[id] != ticket >> 16) return NULL;
    return &c->ops[id];
}

void hi_op_submit(hiradix_cache *c, hi_op *op)
{
    op->submitted = true;
    controller_submit(c->controller, &op->t);
}

rad_status hi_run(void *user, transfer *t, uint32_t worker)
{
    hiradix_cache *c = user;
    switch (t->kind) {
    case TRANSFER_LOAD: return hi_run_load(c, (hi_op *)t);
    case TRANSFER_WRITE: return hi_run_write(c, (hi_op *)t);
    case TRANSFER_FETCH: return hi_run_fetch(c, (hi_op *)t, worker);
    default: return hi_run_backup(c, (hi_op *)t, worker);
    }
}

/* ---- keys and pages ---- */

uint32_t hi_key_pages(const hiradix_cache *c, const rad_key *key)
{
    return radix_cache_pages(c->device_tree, key);
}

rad_key hi_key_front(const hiradix_cache *c, const rad_key *key, uint32_t pages)
{
    rad_key front = *key;
    front.num_tokens = pages * c->page_size + (pages ? c->bigram : 0);
    front.session = 0;
    return front;
}

void hi_pages_of(hiradix_cache *c, rad_cache *tree, const rad_match_handle *handle, uint32_t first,
                 uint32_t count, rad_page *pages)
{
    uint32_t ps = c->page_size, lot = c->num_slots / ps;
    for (uint32_t at = 0; at < count; at += lot) {
        uint32_t n = RAD_MIN(lot, count - at);
        rad_status status =
            rad_match_handle_slots(tree, handle, (first + at) * ps, n * ps, c->slots);
        RAD_ASSERT_ENV(&c->base.env, status == RAD_OK);
        for (uint32_t i = 0; i < n; i++)
            pages[at + i] = c->slots[(size_t)i * ps] / (rad_slot)ps;
    }
}

bool hi_take_host_pages(hiradix_cache *c, rad_page *pages, uint32_t count)
{
    uint32_t have = rad_kv_available_pages(c->host_pages);
    if (have < count) {
        uint64_t most = have + rad_cache_evictable_size(c->host) / c->page_size;
        if (most < count) return false; /* nothing is evicted in vain */
        hi_explain_taken(c);
        (void)rad_cache_evict(c->host, (uint64_t)(count - have) * c->page_size, NULL);
        c->epoch++;
    }
    if (rad_kv_alloc(c->host_pages, pages, count) != RAD_OK) return false;
    for (uint32_t i = 0; c->has_identity && i < count; i++) {
        bits_clear(c->saved, (size_t)pages[i]);
        bits_clear(c->fetched, (size_t)pages[i]);
        c->stored_at[pages[i]] = 0;
    }
    hi_events_taken(c, pages, count);
    return true;
}

void hi_free_host_pages(hiradix_cache *c, const rad_page *pages, uint32_t count)
{
    rad_status status = rad_kv_free(c->host_pages, pages, count, NULL);
    RAD_ASSERT_ENV(&c->base.env, status == RAD_OK);
}

/* ---- what is done ---- */

static uint64_t now(const hiradix_cache *c)
{
    return c->base.env.now_ns(c->base.env.user);
}

static void acknowledge(hiradix_cache *c, hi_op *op)
{
    op->acked = true;
    switch (op->t.kind) {
    case TRANSFER_LOAD: hi_load_acked(c, op); break;
    case TRANSFER_FETCH: hi_fetch_acked(c, op); break;
    case TRANSFER_BACKUP: hi_backup_acked(c, op); break;
    default: break; /* writes are settled in their order */
    }
}

void hi_take_done(hiradix_cache *c)
{
    bool writes = false;
    for (transfer *t; (t = controller_take(c->controller));) {
        writes |= t->kind == TRANSFER_WRITE;
        c->complained = false;
        c->last_done_ns = now(c);
        acknowledge(c, (hi_op *)t);
    }
    if (writes) hi_settle_writes(c);
    store_trouble_tell(&c->trouble, &c->base.env, "hicache");
}

static bool is_under_way(const hiradix_cache *c, uint32_t id)
{
    return slab_is_live(&c->ids, id) && c->ops[id].submitted && !c->ops[id].acked;
}

/* Something is under way and nothing ended for long: says what, once, until something does. */
static void watch(hiradix_cache *c)
{
    enum { PATIENCE_S = 60 };
    if (!c->ids.num_live || c->complained) return;
    uint64_t moment = now(c), oldest = moment;
    for (uint32_t id = 1; id <= c->ids.num_fresh; id++)
        if (is_under_way(c, id))
            oldest = RAD_MIN(oldest, RAD_MAX(c->ops[id].start_ns, c->last_done_ns));
    if (moment - oldest < (uint64_t)PATIENCE_S * 1000000000) return;
    char text[1024];
    c->complained = true;
    (void)rad_hicache_describe(&c->base, text, sizeof text);
    rad_log(&c->base.env, RAD_LOG_WARN, "hicache: no transfer has ended for %d s\n%s", PATIENCE_S,
            text);
}

void hi_poll(hiradix_cache *c)
{
    hi_take_done(c);
    watch(c);
    hi_demote(c);
}

void hi_abandon_all(hiradix_cache *c)
{
    for (uint32_t id = 1; id <= c->ids.num_fresh; id++)
        if (is_under_way(c, id)) controller_cancel(c->controller, &c->ops[id].t);
    for (uint32_t id = 1; id <= c->ids.num_fresh; id++)
        if (is_under_way(c, id)) controller_wait(c->controller, &c->ops[id].t);
    while (controller_take(c->controller)) {
    }
    for (uint32_t id = 1; id <= c->ids.num_fresh; id++) {
        hi_op *op = &c->ops[id];
        if (!slab_is_live(&c->ids, id)) continue;
        if (op->t.kind == TRANSFER_WRITE || op->t.kind == TRANSFER_FETCH)
            hi_free_host_pages(c, op->host + op->hung, hi_op_host_pages(op) - op->hung);
        if (op->t.kind == TRANSFER_LOAD && op->orphan)
            (void)rad_kv_free(c->base.kv, op->device, op->count, NULL);
        hi_op_give(c, op);
    }
    c->oldest_write = c->newest_write = NULL;
    c->pending_loads = c->orphans = 0;
    c->orphan_pages = c->prefetch_reserved = 0;
    c->epoch++;
}

static bool writes_under_way(const hiradix_cache *c)
{
    for (uint32_t id = 1; id <= c->ids.num_fresh; id++)
        if (slab_is_live(&c->ids, id) &&
            (c->ops[id].t.kind == TRANSFER_WRITE || c->ops[id].t.kind == TRANSFER_BACKUP))
            return true;
    return false;
}

rad_status rad_hicache_wait(rad_cache *cache, uint64_t timeout_ns)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!c) return RAD_E_UNSUPPORTED;
    bool under_way = false;
    for (uint32_t id = 1; id <= c->ids.num_fresh && !under_way; id++)
        under_way = is_under_way(c, id);
    bool any = under_way && controller_wait_any(c->controller, timeout_ns);
    hi_poll(c);
    return !under_way ? RAD_NONE : any ? RAD_OK : RAD_AGAIN;
}

rad_status rad_hicache_drain(rad_cache *cache, uint64_t timeout_ns)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!c) return RAD_E_UNSUPPORTED;
    uint64_t start = now(c);
    for (;;) {
        hi_poll(c);
        if (!writes_under_way(c)) return RAD_OK;
        uint64_t passed = now(c) - start;
        if (passed >= timeout_ns) return RAD_AGAIN;
        (void)controller_wait_any(c->controller, timeout_ns - passed);
    }
}

rad_status rad_hicache_pump(rad_cache *cache, uint64_t pick)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!c || !c->params.deterministic) return RAD_E_UNSUPPORTED;
    return controller_pump(c->controller, pick) ? RAD_OK : RAD_NONE;
}

rad_status rad_hicache_describe(const rad_cache *cache, char *text, size_t bytes)
{
    const hiradix_cache *c = hiradix_of(cache);
    if (!text || !bytes) return RAD_E_INVAL;
    *text = 0;
    if (!c) return RAD_E_UNSUPPORTED;
    size_t at = controller_describe(c->controller, text, bytes);
    uint64_t moment = now(c);
    for (uint32_t id = 1; id <= c->ids.num_fresh && at < bytes; id++) {
        const hi_op *op = &c->ops[id];
        if (!slab_is_live(&c->ids, id)) continue;
        at += (size_t)snprintf(
            text + at, bytes - at, "ticket %u: %s of %u pages from page %u, %s%s, %.3f s old\n", id,
            transfer_name(op->t.kind), op->count, op->begin,
            op->acked       ? "done"
            : op->submitted ? "submitted"
                            : "not submitted",
            op->orphan ? ", of nobody" : "", (double)(moment - op->start_ns) * 1e-9);
    }
    return RAD_OK;
}
