/* hiradix_tickets.c - what a ticket (tickets.h) is to this cache, and the pages of keys and of the
 * host that transfers are made of. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"

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
        (void)rad_cache_evict(c->host, (uint64_t)(count - have) * c->page_size, NULL, NULL);
        c->epoch++;
    }
    if (rad_kv_alloc(c->host_pages, pages, count) != RAD_OK) return false;
    for (uint32_t i = 0; c->has_identity && i < count; i++) {
        bits_clear(c->store.saved, (size_t)pages[i]);
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

/* ---- tickets ---- */

static void unlock(void *cache, hi_ticket *k)
{
    hiradix_cache *c = cache;
    hi_op *op = (hi_op *)k;
    if (op->on_device.held) (void)rad_cache_dec_lock_ref(c->device, &op->on_device, NULL);
    if (op->on_host.held) (void)rad_cache_dec_lock_ref(c->host, &op->on_host, NULL);
    c->checks -= op->checks;
}

static void free_pages(void *cache, hi_ticket *k)
{
    hiradix_cache *c = cache;
    uint32_t hung = ((hi_op *)k)->hung, host = ticket_host_pages(k);
    if (host > hung) hi_free_host_pages(c, k->host + hung, host - hung);
    if (k->t.kind != TRANSFER_LOAD || !k->orphan) return;
    if (rad_kv_free(c->base.kv, k->device, k->count, NULL) != RAD_OK)
        rad_log(&c->base.env, RAD_LOG_ERROR, "hicache: %u pages of a load were not handed out",
                k->count);
}

const ticket_ops hi_ticket_ops = {
    .who = "hicache",
    .run = {hi_run_load, hi_run_write, hi_run_fetch, hi_run_backup},
    .done = {hi_load_done, hi_write_done, hi_fetch_done, hi_backup_done},
    .unlock = unlock,
    .free_pages = free_pages,
    .demote = hi_demote,
};

rad_status rad_hicache_wait(rad_cache *cache, uint64_t timeout_ns)
{
    hiradix_cache *c = hiradix_of(cache);
    return c ? tickets_wait(&c->out, timeout_ns) : RAD_E_UNSUPPORTED;
}

rad_status rad_hicache_drain(rad_cache *cache, uint64_t timeout_ns)
{
    hiradix_cache *c = hiradix_of(cache);
    return c ? tickets_drain(&c->out, timeout_ns) : RAD_E_UNSUPPORTED;
}

rad_status rad_hicache_pump(rad_cache *cache, uint64_t pick)
{
    hiradix_cache *c = hiradix_of(cache);
    return c ? tickets_pump(&c->out, pick) : RAD_E_UNSUPPORTED;
}

rad_status rad_hicache_describe(const rad_cache *cache, char *text, size_t bytes)
{
    const hiradix_cache *c = hiradix_of(cache);
    if (!text || !bytes) return RAD_E_INVAL;
    *text = 0;
    if (!c) return RAD_E_UNSUPPORTED;
    tickets_describe(&c->out, text, bytes);
    return RAD_OK;
}
