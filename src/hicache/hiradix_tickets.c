/* hiradix_tickets.c - what a ticket (tickets.h) is to this cache, and the pages of keys and of the
 * host that transfers are made of. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"
#include "mem/kv_runs.h"
#include "mem/kv_window.h"

/* ---- keys and pages ---- */

uint32_t hi_key_pages(const hiradix_cache *c, const rad_key *key)
{
    return radix_cache_pages(c->nodes, key);
}

radix_pos hi_follow(const hiradix_cache *c, const rad_key *key, uint32_t pages, uint32_t node,
                    uint32_t depth, uint32_t from)
{
    const radix_tree *t = c->tree;
    if (!node) node = radix_cache_root(c->nodes, key);
    if (!node) return (radix_pos){0};
    for (; t->nodes[node].parent && depth > from; node = t->nodes[node].parent)
        depth -= t->nodes[node].pages;
    const rad_token *tokens = radix_cache_tokens(c->nodes, key) + (size_t)depth * c->page_size;
    radix_pos pos = radix_walk(t, node, tokens, pages - RAD_MIN(depth, pages));
    pos.pages += depth;
    return pos;
}

static hi_hold hold_of(const hiradix_cache *c, uint32_t node, uint32_t depth)
{
    return (hi_hold){.node = radix_cache_ref(c->nodes, node), .depth = depth, .window_from = depth};
}

hi_hold hi_lock_device(hiradix_cache *c, uint32_t node, uint32_t depth)
{
    radix_lock(c->tree, node);
    return hold_of(c, node, depth);
}

hi_hold hi_lock_host(hiradix_cache *c, uint32_t node, uint32_t depth)
{
    if (!c->tree->nodes[node].parent) return (hi_hold){0};
    radix_host_lock(c->tree, node);
    return hold_of(c, node, depth);
}

void hi_lock_window(hiradix_cache *c, radix_tier tier, hi_hold *hold, uint32_t from)
{
    RAD_ASSERT_ENV(&c->base.env, hold->node.index && hold->window_from == hold->depth);
    if (!c->tree->windows[tier] || from >= hold->depth) return;
    radix_window_lock(c->tree, tier, hold->node.index, hold->depth, from);
    hold->window_from = from;
}

static void unlock_window(hiradix_cache *c, radix_tier tier, const hi_hold *hold)
{
    if (hold->window_from < hold->depth)
        radix_window_unlock(c->tree, tier, hold->node.index, hold->depth, hold->window_from);
}

/* The node that is held; 0: none. A hold outlives whatever happens to its node's neighbours. */
static uint32_t held(const hiradix_cache *c, const hi_hold *hold)
{
    RAD_ASSERT_ENV(&c->base.env, !hold->node.index || radix_is_ref(c->tree, hold->node));
    return hold->node.index;
}

void hi_unlock_host(hiradix_cache *c, hi_hold *hold)
{
    if (held(c, hold)) {
        unlock_window(c, RADIX_HOST, hold);
        radix_state_unlock(c->tree, RADIX_HOST, hold->node.index, hold->state_held);
        radix_host_unlock(c->tree, hold->node.index);
    }
    *hold = (hi_hold){0};
}

bool hi_make_host_room(hiradix_cache *c, uint32_t count)
{
    uint32_t have = rad_kv_available_pages(c->host_pages);
    if (have >= count) return true;
    if (have + c->tree->host.evictable < count) return false; /* nothing is evicted in vain */
    (void)radix_host_evict(c->tree, count - have);
    c->epoch++;
    return rad_kv_available_pages(c->host_pages) >= count;
}

rad_status rad_hicache_evict_host(rad_cache *cache, uint64_t num_tokens, uint64_t *evicted_tokens)
{
    hiradix_cache *c = hiradix_of(cache);
    if (evicted_tokens) *evicted_tokens = 0;
    if (!c) return RAD_E_UNSUPPORTED;
    uint64_t ps = c->page_size, pages = num_tokens / ps + (num_tokens % ps != 0);
    uint64_t done = pages ? radix_host_evict(c->tree, pages) : 0;
    if (done) c->epoch++; /* what was found to have its copy may have none now */
    if (evicted_tokens) *evicted_tokens = done * ps;
    return RAD_OK;
}

void hi_note_taken(hiradix_cache *c, const rad_page *pages, uint32_t count)
{
    for (uint32_t i = 0; c->has_identity && i < count; i++) {
        if (c->store.pool) bits_clear(c->store.saved, (size_t)pages[i]);
        if (c->window_store.pool) bits_clear(c->window_store.saved, (size_t)pages[i]);
        bits_clear(c->fetched, (size_t)pages[i]);
        c->stored_at[pages[i]] = 0;
    }
    hi_events_taken(c, pages, count);
}

bool hi_take_host_pages(hiradix_cache *c, rad_page *pages, uint32_t count)
{
    if (!hi_make_host_room(c, count)) return false;
    if (rad_kv_alloc_tail(c->host_pages, pages, count, 0) != RAD_OK) return false;
    hi_note_taken(c, pages, count);
    return true;
}

void hi_free_host_pages(hiradix_cache *c, const rad_page *pages, uint32_t count)
{
    rad_status status = rad_kv_free(c->host_pages, pages, count, NULL);
    RAD_ASSERT_ENV(&c->base.env, status == RAD_OK);
}

void hi_drop_host(void *cache, const rad_page *pages, const kv_run *runs, uint32_t count)
{
    hiradix_cache *c = cache;
    rad_status status = pages ? rad_kv_free(c->host_pages, pages, count, NULL)
                              : kv_free_runs(c->host_pages, runs, count, NULL);
    RAD_ASSERT_ENV(&c->base.env, status == RAD_OK);
}

bool hi_take_host_windows(hiradix_cache *c, rad_page *pages, uint32_t count)
{
    const radix_window *w = hi_windows(c);
    uint32_t have = rad_kv_window_available_pages(c->host_pages);
    if (have + (w->there - w->held) < count) return false; /* nothing is evicted in vain */
    if (have < count) (void)radix_window_evict(c->tree, RADIX_HOST, count - have);
    return kv_window_take_loose(c->host_pages, pages, count) == RAD_OK;
}

void hi_drop_host_windows(void *cache, const rad_page *pages, const kv_run *runs, uint32_t count)
{
    hiradix_cache *c = cache;
    (void)runs;
    rad_status status = rad_kv_free_window(c->host_pages, pages, count, NULL);
    RAD_ASSERT_ENV(&c->base.env, status == RAD_OK);
}

/* ---- tickets ---- */

static void unlock(void *cache, hi_ticket *k)
{
    hiradix_cache *c = cache;
    hi_op *op = (hi_op *)k;
    if (held(c, &op->on_device)) {
        unlock_window(c, RADIX_DEVICE, &op->on_device);
        radix_state_unlock(c->tree, RADIX_DEVICE, op->on_device.node.index,
                           op->on_device.state_held);
        radix_unlock(c->tree, op->on_device.node.index);
    }
    op->on_device = (hi_hold){0};
    hi_unlock_host(c, &op->on_host);
    c->checks -= op->checks;
}

static void free_pages(void *cache, hi_ticket *k)
{
    hiradix_cache *c = cache;
    uint32_t hung = ((hi_op *)k)->hung, host = ticket_host_pages(k);
    if (host > hung) hi_free_host_pages(c, k->host + hung, host - hung);
    if (ticket_loose_windows(k))
        kv_window_free_loose(c->host_pages, k->host_windows, k->num_windows);
    if (hi_loose_state(k)) hi_drop_host_state(c, hi_loose_state(k));
    if (k->t.kind != TRANSFER_LOAD || !k->orphan) return;
    rad_state state = ((hi_op *)k)->device_state;
    if (state && rad_state_free(c->base.states, state) != RAD_OK)
        rad_log(&c->base.env, RAD_LOG_ERROR, "hicache: state %d of a load was not handed out",
                state);
    if (rad_kv_free(c->base.kv, k->device, k->count, NULL) != RAD_OK)
        rad_log(&c->base.env, RAD_LOG_ERROR, "hicache: %u pages of a load were not handed out",
                k->count);
}

const ticket_ops hi_ticket_ops = {
    .who = "hicache",
    .run = {hi_run_load, hi_run_write, hi_run_fetch, hi_run_backup_storage},
    .done = {hi_load_done, hi_write_done, hi_fetch_done, hi_backup_storage_done},
    .unlock = unlock,
    .free_pages = free_pages,
    .demote = hi_demote,
};

rad_status hi_tell_completions(rad_cache *cache, hi_completion_fn fn, void *user)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!c) return RAD_E_UNSUPPORTED;
    c->out.tell = fn;
    c->out.tell_user = user;
    return RAD_OK;
}

rad_status hi_begin_script(rad_cache *cache)
{
    hiradix_cache *c = hiradix_of(cache);
    return c ? tickets_begin_script(&c->out) : RAD_E_UNSUPPORTED;
}

rad_status hi_add_to_script(rad_cache *cache, const hi_completion *done)
{
    hiradix_cache *c = hiradix_of(cache);
    return c ? tickets_add_to_script(&c->out, done) : RAD_E_UNSUPPORTED;
}

uint32_t hi_end_of_call(rad_cache *cache)
{
    hiradix_cache *c = hiradix_of(cache);
    return c ? tickets_end_of_call(&c->out) : 0;
}

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

rad_status hi_pump(rad_cache *cache, uint64_t pick)
{
    hiradix_cache *c = hiradix_of(cache);
    return c ? tickets_pump(&c->out, pick) : RAD_E_UNSUPPORTED;
}

rad_status hi_describe(const rad_cache *cache, char *text, size_t bytes)
{
    const hiradix_cache *c = hiradix_of(cache);
    if (!text || !bytes) return RAD_E_INVAL;
    *text = 0;
    if (!c) return RAD_E_UNSUPPORTED;
    tickets_describe(&c->out, text, bytes);
    return RAD_OK;
}
