/* swa_hi_tickets.c - what a ticket (tickets.h) is to a sliding-window cache, and the host pages
 * that transfers are made of.
 *
 *     lists of a ticket   | host | device | swa_host | swa_device |        a fetch: hashes */
#include "hicache/swa_hi_impl.h"

#include <stdio.h>

#include "base/bits.h"

swa_op *swa_op_take(rad_swa_hicache *c, transfer_kind kind, uint32_t count)
{
    swa_op *op = (swa_op *)tickets_take(&c->out, kind, count);
    if (!op) return NULL;
    op->swa_host = op->k.device + count;
    op->swa_device = op->swa_host + count;
    return op;
}

/* ---- host pages ---- */

bool swa_hi_take_host(rad_swa_hicache *c, swa_op *op)
{
    uint64_t ps = c->page_size;
    uint32_t num_swa = 0, count = op->k.count;
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
        op->k.host[i] =
            op->swa_host[op->swa_device[i] && with > count - num_swa ? --with : --without];
    const rad_page *window_of = rad_swa_page_map(c->host_kv);
    for (uint32_t i = 0; c->has_identity && i < count; i++)
        for (int s = 0; s < 2; s++) {
            rad_page page = s == SIDE_FULL ? op->k.host[i] : window_of[op->k.host[i]];
            bits_clear(c->side[s].store.saved, (size_t)page);
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
    for (uint32_t i = 0; i < op->k.count; i++) {
        if (!host[op->k.host[i]] || (pairs && !device[op->k.device[i]])) continue;
        op->swa_host[op->num_swa] = host[op->k.host[i]];
        op->swa_device[op->num_swa++] = pairs ? device[op->k.device[i]] : 0;
    }
}

/* ---- tickets ---- */

static void unlock(void *cache, hi_ticket *k)
{
    rad_swa_hicache *c = cache;
    swa_op *op = (swa_op *)k;
    if (op->on_device.held) (void)rad_swa_cache_dec_lock_ref(c->device, &op->on_device, NULL);
    if (op->on_host.held) (void)rad_swa_cache_dec_lock_ref(c->host, &op->on_host, NULL);
}

static void free_pages(void *cache, hi_ticket *k)
{
    rad_swa_hicache *c = cache;
    if (ticket_host_pages(k)) swa_hi_free_host(c, k->host, k->count);
    if (k->t.kind != TRANSFER_LOAD || !k->orphan) return;
    if (rad_swa_free(c->device->kv, k->device, k->count, NULL) != RAD_OK)
        rad_log(&c->env, RAD_LOG_ERROR, "swa_hicache: %u pages of a load were not handed out",
                k->count);
}

static void describe(const hi_ticket *k, char *text, size_t bytes)
{
    snprintf(text, bytes, ", %u of the window side,", ((const swa_op *)k)->num_swa);
}

const ticket_ops swa_ticket_ops = {
    .who = "swa_hicache",
    .run = {swa_hi_run_load, swa_hi_run_write, swa_hi_run_fetch, swa_hi_run_backup},
    .done = {swa_hi_load_done, swa_hi_write_done, swa_hi_fetch_done, swa_hi_backup_done},
    .unlock = unlock,
    .free_pages = free_pages,
    .demote = swa_hi_demote,
    .describe = describe,
};

rad_status rad_swa_hicache_poll(rad_swa_hicache *c)
{
    tickets_poll(&c->out);
    return RAD_OK;
}

rad_status rad_swa_hicache_wait(rad_swa_hicache *c, uint64_t timeout_ns)
{
    return tickets_wait(&c->out, timeout_ns);
}

rad_status rad_swa_hicache_drain(rad_swa_hicache *c, uint64_t timeout_ns)
{
    return tickets_drain(&c->out, timeout_ns);
}

rad_status rad_swa_hicache_pump(rad_swa_hicache *c, uint64_t pick)
{
    return tickets_pump(&c->out, pick);
}

rad_status rad_swa_hicache_describe(const rad_swa_hicache *c, char *text, size_t bytes)
{
    if (!text || !bytes) return RAD_E_INVAL;
    tickets_describe(&c->out, text, bytes);
    return RAD_OK;
}
