/* swa_hi_tickets.c - what transfers of a sliding-window cache hold, and what is done when they are.
 *
 * As hiradix_tickets.c: a ticket is taken before anything else and given back last; between the
 * two it owns its pages, locks and a run in the arena of lists. Some tickets are kept for what
 * cannot wait. */
#include "hicache/swa_hi_impl.h"

#include <stdio.h>

#include "base/bits.h"

swa_op *swa_op_take(rad_swa_hicache *c, transfer_kind kind, uint32_t count)
{
    if (slab_available(&c->ids) <= controller_kept_tickets(kind, c->params.max_transfers) ||
        !count || count > INT32_MAX / 16)
        return NULL;
    uint32_t hashes = kind == TRANSFER_FETCH ? count * SWA_HI_HASH_UNITS : 0;
    uint32_t run = span_alloc(&c->runs, 4 * count + hashes);
    if (!run) return NULL;
    uint32_t id = slab_alloc(&c->ids);
    swa_op *op = &c->ops[id];
    *op = (swa_op){.t.kind = kind, .id = id, .run = run, .count = count};
    op->host = c->lists + c->runs.spans[run].at;
    op->device = op->host + count;
    op->swa_host = op->device + count;
    op->swa_device = op->swa_host + count;
    if (hashes) op->chain = (rad_page_hash *)(void *)(op->swa_device + count);
    op->start_ns = c->env.now_ns(c->env.user);
    c->storage_ops += kind >= TRANSFER_FETCH;
    return op;
}

void swa_op_give(rad_swa_hicache *c, swa_op *op)
{
    if (op->on_device.held) (void)rad_swa_cache_dec_lock_ref(c->device, &op->on_device, NULL);
    if (op->on_host.held) (void)rad_swa_cache_dec_lock_ref(c->host, &op->on_host, NULL);
    c->storage_ops -= op->t.kind >= TRANSFER_FETCH;
    span_unref(&c->runs, op->run);
    slab_free(&c->ids, op->id);
}

uint32_t swa_op_ticket(const rad_swa_hicache *c, const swa_op *op)
{
    return c->ids.generation[op->id] << 16 | op->id;
}

swa_op *swa_op_find(const rad_swa_hicache *c, uint32_t ticket)
{
    uint32_t id = ticket & 0xffff;
    if (!slab_is_live(&c->ids, id) || (uint16_t)c->ids.generation[id] != ticket >> 16) return NULL;
    return &c->ops[id];
}

void swa_op_submit(rad_swa_hicache *c, swa_op *op)
{
    op->submitted = true;
    controller_submit(c->controller, &op->t);
}

rad_status swa_hi_run(void *user, transfer *t, uint32_t worker)
{
    rad_swa_hicache *c = user;
    switch (t->kind) {
    case TRANSFER_LOAD: return swa_hi_run_load(c, (swa_op *)t);
    case TRANSFER_WRITE: return swa_hi_run_write(c, (swa_op *)t);
    case TRANSFER_FETCH: return swa_hi_run_fetch(c, (swa_op *)t, worker);
    default: return swa_hi_run_backup(c, (swa_op *)t, worker);
    }
}

/* ---- host pages ---- */

bool swa_hi_take_host(rad_swa_hicache *c, swa_op *op)
{
    uint64_t ps = c->page_size;
    uint32_t num_swa = 0, count = op->count;
    for (uint32_t i = 0; i < count; i++)
        num_swa += op->swa_device[i] != 0;
    uint64_t full = rad_swa_full_available_size(c->host_kv) / ps;
    uint64_t swa = rad_swa_swa_available_size(c->host_kv) / ps;
    if (full < count || swa < num_swa) {
        if (full + rad_swa_cache_get_sizes(c->host).full_evictable / ps < count)
            return false; /* nothing is evicted in vain */
        (void)rad_swa_cache_evict(c->host, full < count ? (count - full) * ps : 0,
                                  swa < num_swa ? (num_swa - swa) * ps : 0, NULL);
        c->epoch++;
        swa = rad_swa_swa_available_size(c->host_kv) / ps;
        num_swa = (uint32_t)RAD_MIN(swa, (uint64_t)num_swa);
    }
    if (rad_swa_alloc_tail(c->host_kv, op->swa_host, count, num_swa) != RAD_OK) return false;
    /* Those with a window side stand last; they go where one is wanted, from the end on. */
    uint32_t with = count, without = count - num_swa;
    for (uint32_t i = count; i-- > 0;)
        op->host[i] =
            op->swa_host[op->swa_device[i] && with > count - num_swa ? --with : --without];
    const rad_page *window_of = rad_swa_page_map(c->host_kv);
    for (uint32_t i = 0; c->has_identity && i < count; i++)
        for (int s = 0; s < 2; s++) {
            rad_page page = s == SIDE_FULL ? op->host[i] : window_of[op->host[i]];
            bits_clear(c->side[s].saved, (size_t)page);
            if (s == SIDE_FULL) bits_clear(c->fetched, (size_t)page);
        }
    return true;
}

void swa_hi_free_host(rad_swa_hicache *c, const rad_page *pages, uint32_t count)
{
    rad_status status = rad_swa_free(c->host_kv, pages, count, NULL);
    RAD_ASSERT_ENV(&c->env, status == RAD_OK);
}

void swa_op_list_windows(rad_swa_hicache *c, swa_op *op, bool pairs)
{
    const rad_page *host = rad_swa_page_map(c->host_kv), *device = rad_swa_page_map(c->device->kv);
    op->num_swa = 0;
    for (uint32_t i = 0; i < op->count; i++) {
        if (!host[op->host[i]] || (pairs && !device[op->device[i]])) continue;
        op->swa_host[op->num_swa] = host[op->host[i]];
        op->swa_device[op->num_swa++] = pairs ? device[op->device[i]] : 0;
    }
}

/* ---- what is done ---- */

static uint64_t now(const rad_swa_hicache *c)
{
    return c->env.now_ns(c->env.user);
}

static void acknowledge(rad_swa_hicache *c, swa_op *op)
{
    op->acked = true;
    switch (op->t.kind) {
    case TRANSFER_LOAD: swa_hi_load_acked(c, op); break;
    case TRANSFER_FETCH: swa_hi_fetch_acked(c, op); break;
    case TRANSFER_BACKUP: swa_hi_backup_acked(c, op); break;
    default: break; /* writes are settled in their order */
    }
}

void swa_hi_take_done(rad_swa_hicache *c)
{
    bool writes = false;
    for (transfer *t; (t = controller_take(c->controller));) {
        writes |= t->kind == TRANSFER_WRITE;
        c->complained = false;
        c->last_done_ns = now(c);
        acknowledge(c, (swa_op *)t);
    }
    if (writes) swa_hi_settle_writes(c);
    store_trouble_tell(&c->trouble, &c->env, "swa_hicache");
}

static bool is_under_way(const rad_swa_hicache *c, uint32_t id)
{
    return slab_is_live(&c->ids, id) && c->ops[id].submitted && !c->ops[id].acked;
}

/* Something is under way and nothing ended for long: says what, once, until something does. */
static void watch(rad_swa_hicache *c)
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
    (void)rad_swa_hicache_describe(c, text, sizeof text);
    rad_log(&c->env, RAD_LOG_WARN, "swa_hicache: no transfer has ended for %d s\n%s", PATIENCE_S,
            text);
}

rad_status rad_swa_hicache_poll(rad_swa_hicache *c)
{
    swa_hi_take_done(c);
    watch(c);
    swa_hi_demote(c);
    return RAD_OK;
}

void swa_hi_abandon_all(rad_swa_hicache *c)
{
    for (uint32_t id = 1; id <= c->ids.num_fresh; id++)
        if (is_under_way(c, id)) controller_cancel(c->controller, &c->ops[id].t);
    for (uint32_t id = 1; id <= c->ids.num_fresh; id++)
        if (is_under_way(c, id)) controller_wait(c->controller, &c->ops[id].t);
    while (c->controller && controller_take(c->controller)) {
    }
    for (uint32_t id = 1; id <= c->ids.num_fresh; id++) {
        swa_op *op = &c->ops[id];
        if (!slab_is_live(&c->ids, id)) continue;
        if (swa_op_host_pages(op)) swa_hi_free_host(c, op->host, op->count);
        if (op->t.kind == TRANSFER_LOAD && op->orphan)
            (void)rad_swa_free(c->device->kv, op->device, op->count, NULL);
        swa_op_give(c, op);
    }
    c->oldest_write = c->newest_write = NULL;
    c->pending_loads = c->orphans = 0;
    c->prefetch_reserved = 0;
    c->epoch++;
}

static bool writes_under_way(const rad_swa_hicache *c)
{
    for (uint32_t id = 1; id <= c->ids.num_fresh; id++)
        if (slab_is_live(&c->ids, id) &&
            (c->ops[id].t.kind == TRANSFER_WRITE || c->ops[id].t.kind == TRANSFER_BACKUP))
            return true;
    return false;
}

rad_status rad_swa_hicache_wait(rad_swa_hicache *c, uint64_t timeout_ns)
{
    bool under_way = false;
    for (uint32_t id = 1; id <= c->ids.num_fresh && !under_way; id++)
        under_way = is_under_way(c, id);
    bool any = under_way && controller_wait_any(c->controller, timeout_ns);
    (void)rad_swa_hicache_poll(c);
    return !under_way ? RAD_NONE : any ? RAD_OK : RAD_AGAIN;
}

rad_status rad_swa_hicache_drain(rad_swa_hicache *c, uint64_t timeout_ns)
{
    uint64_t start = now(c);
    for (;;) {
        (void)rad_swa_hicache_poll(c);
        if (!writes_under_way(c)) return RAD_OK;
        uint64_t passed = now(c) - start;
        if (passed >= timeout_ns) return RAD_AGAIN;
        (void)controller_wait_any(c->controller, timeout_ns - passed);
    }
}

rad_status rad_swa_hicache_pump(rad_swa_hicache *c, uint64_t pick)
{
    if (!c->params.deterministic) return RAD_E_UNSUPPORTED;
    return controller_pump(c->controller, pick) ? RAD_OK : RAD_NONE;
}

rad_status rad_swa_hicache_describe(const rad_swa_hicache *c, char *text, size_t bytes)
{
    if (!text || !bytes) return RAD_E_INVAL;
    size_t at = controller_describe(c->controller, text, bytes);
    uint64_t moment = now(c);
    for (uint32_t id = 1; id <= c->ids.num_fresh && at < bytes; id++) {
        const swa_op *op = &c->ops[id];
        if (!slab_is_live(&c->ids, id)) continue;
        at += (size_t)snprintf(
            text + at, bytes - at,
            "ticket %u: %s of %u pages, %u of the window side, from page %u, %s%s, %.3f s old\n",
            id, transfer_name(op->t.kind), op->count, op->num_swa, op->begin,
            op->acked       ? "done"
            : op->submitted ? "submitted"
                            : "not submitted",
            op->orphan ? ", of nobody" : "", (double)(moment - op->start_ns) * 1e-9);
    }
    return RAD_OK;
}
