/* hiradix_fetch.c - storage -> host, before an admission.
 *
 *     fetch   asks how much is there -> takes host pages for so much -> gets it
 *                        | too little: over             | some are missing or bad: what came
 *                                                       | before them is what there is
 *
 * What a fetch gets is its own until somebody asks for it at admission; then the pages that
 * have come and verified enter the host tree, in which the front before them is locked. If
 * the worker is still at it, the rest is given back when it has let go.
 *
 * Waiting has a price. A request that has waited t, for n tokens of which f have come, has
 * so far lost t and won f * r, where r is what a token costs to compute. So it waits while
 *
 *     t <= n * r / 8 + f * r
 *
 * and whatever the store does, it is done with its n tokens within 9/8 of n * r. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"

static rad_status ask(hiradix_cache *c, hi_op *op)
{
    store_lot l;
    for (uint32_t at = 0, n; at < op->k.count; at += n) {
        uint32_t present = 0;
        n = RAD_MIN((uint32_t)STORE_LOT_PAGES, op->k.count - at);
        if (atomic_load(&op->k.t.cancelled)) return RAD_NONE;
        if (!store_lot_chain(&c->store, &l, op->k.chain + at, n)) return RAD_E_UNSUPPORTED;
        rad_status status = store_lot_exists(&c->store, &l, op->k.deadline_ns, &present);
        if (status) return status;
        atomic_store(&op->present, at + present);
        if (present < n) break;
    }
    return RAD_OK;
}

/* What is missing then has perhaps not come, but is there. */
static bool is_late(const hiradix_cache *c, const hi_op *op)
{
    return c->base.env.now_ns(c->base.env.user) >= op->k.deadline_ns;
}

static rad_status get(hiradix_cache *c, hi_op *op, uint32_t worker)
{
    store_lot l;
    for (uint32_t at = 0, n; at < op->k.count; at += n) {
        n = RAD_MIN(c->store.call_pages, op->k.count - at);
        if (atomic_load(&op->k.t.cancelled)) return RAD_NONE;
        if (!store_lot_chain(&c->store, &l, op->k.chain + at, n)) return RAD_E_UNSUPPORTED;
        rad_status status =
            store_lot_get(&c->store, &l, op->k.host + at, worker, op->k.deadline_ns);
        for (uint32_t i = 0; i < n; i++) {
            if (!l.done[i] || !store_lot_accept(&c->store, &l, i, op->k.host[at + i])) {
                if (l.done[i] || (status == RAD_OK && !is_late(c, op))) op->lost_page = at + i + 1;
                return status < 0 ? status : RAD_NONE;
            }
            atomic_store(&op->fetched, at + i + 1);
        }
        if (status) return status;
    }
    return RAD_OK;
}

rad_status hi_run_fetch(void *cache, hi_ticket *k, uint32_t worker)
{
    hi_op *op = (hi_op *)k;
    return k->gets ? get(cache, op, worker) : ask(cache, op);
}

/* What is there is known: takes host pages for it and gets it, unless it is too little. */
static bool go_on(hiradix_cache *c, hi_op *op)
{
    uint32_t present = atomic_load(&op->present), ps = c->page_size;
    c->stats.present_tokens += (uint64_t)present * ps;
    if (op->k.t.status != RAD_OK || op->k.orphan || !present) return false;
    if ((uint64_t)present * ps < c->params.prefetch_threshold) return false;
    uint64_t room = rad_kv_available_pages(c->host_pages) + rad_cache_evictable_size(c->host) / ps;
    uint32_t count = (uint32_t)RAD_MIN(room, (uint64_t)present);
    if ((uint64_t)count * ps < c->params.prefetch_threshold) return false;
    if (!hi_take_host_pages(c, op->k.host, count)) return false;
    op->k.count = count;
    op->k.gets = true;
    tickets_reserve(&c->out, &op->k, count);
    tickets_submit(&c->out, &op->k);
    return true;
}

void hi_fetch_done(void *cache, hi_ticket *k)
{
    hiradix_cache *c = cache;
    hi_op *op = (hi_op *)k;
    if (!k->gets && go_on(c, op)) return;
    k->ended = true;
    hi_events_lost(c, op);
    if (k->orphan) tickets_drop(&c->out, k);
}

rad_status rad_hicache_prefetch_start(rad_cache *cache, const rad_key *key,
                                      uint64_t recompute_ns_per_token, rad_prefetch *ticket)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!ticket) return RAD_E_INVAL;
    *ticket = 0;
    if (!c) return RAD_E_UNSUPPORTED;
    if (!cache_key_is_sound(key)) return RAD_E_INVAL;
    uint32_t ps = c->page_size, pages = hi_key_pages(c, key);
    rad_key front = hi_key_front(c, key, pages);
    rad_match here, host;
    if (!c->store.backend.ops || c->store_held)
        return hi_prefetch_note(c, RAD_PREFETCH_NOT_ASKED, RAD_NONE);
    if (!pages || rad_cache_lookup(cache, &front, &here) != RAD_OK ||
        rad_cache_lookup(c->host, &front, &host) != RAD_OK)
        return hi_prefetch_note(c, RAD_PREFETCH_TOO_SHORT, RAD_NONE);
    uint32_t have = here.prefix_tokens + here.host_hit_tokens, begin = host.prefix_tokens / ps;
    if (pages * ps < have + c->params.prefetch_threshold)
        return hi_prefetch_note(c, RAD_PREFETCH_TOO_SHORT, RAD_NONE);
    /* What only the device has in front is fetched as well: the host's tree has no gaps. */
    uint64_t budget = c->params.prefetch_tokens / ps;
    uint64_t left = budget > c->out.reserved ? budget - c->out.reserved : 0;
    uint32_t count = (uint32_t)RAD_MIN(left, (uint64_t)(pages - begin));
    if ((uint64_t)(begin + count) * ps < (uint64_t)have + c->params.prefetch_threshold)
        return hi_prefetch_note(c, RAD_PREFETCH_OVER_BUDGET, RAD_FULL);
    hi_op *op = hi_op_take(c, TRANSFER_FETCH, count);
    if (!op) return hi_prefetch_note(c, RAD_PREFETCH_NO_TICKET, RAD_FULL);
    op->k.begin = begin;
    rad_match_handle path = {.node = host.last_node, .num_tokens = begin * ps};
    rad_page before = 0;
    if (begin) hi_pages_of(c, c->host, &path, begin - 1, 1, &before);
    rad_status status =
        page_chain_hash(&c->chain, key, begin, count, &c->hashes[before], op->k.chain);
    if (!status && begin) status = rad_match_handle_lock(c->host, &path, &op->on_host, NULL);
    if (status) {
        tickets_give(&c->out, &op->k);
        return hi_prefetch_note(c, RAD_PREFETCH_NOT_ASKED, status);
    }
    hi_events_note_space(c, op, key);
    op->asked = count;
    op->recompute_ns = recompute_ns_per_token;
    op->k.deadline_ns = op->k.start_ns + c->params.timeout_max_ns;
    if (recompute_ns_per_token) {
        uint64_t worth = (uint64_t)count * ps * recompute_ns_per_token;
        op->k.deadline_ns = RAD_MIN(op->k.deadline_ns, op->k.start_ns + worth + worth / 8);
    }
    tickets_reserve(&c->out, &op->k, count);
    c->stats.prefetches++;
    c->stats.asked_tokens += (uint64_t)count * ps;
    tickets_submit(&c->out, &op->k);
    *ticket = tickets_number(&c->out, &op->k);
    return hi_prefetch_note(c, RAD_PREFETCH_UNDER_WAY, RAD_OK);
}

/* Whether the policy goes on waiting. */
static bool is_worth_waiting(const hiradix_cache *c, const hi_op *op)
{
    if (op->k.ended || c->params.prefetch_policy == RAD_PREFETCH_BEST_EFFORT) return false;
    uint64_t passed = c->base.env.now_ns(c->base.env.user) - op->k.start_ns;
    uint64_t tokens = (uint64_t)op->k.count * c->page_size;
    if (c->params.prefetch_policy == RAD_PREFETCH_TIMEOUT) {
        double most = (double)c->params.timeout_base_ns +
                      (double)c->params.timeout_per_ki_ns * (double)tokens / 1024;
        if ((double)passed > RAD_MIN(most, (double)c->params.timeout_max_ns)) return false;
    }
    if (!op->recompute_ns) return true;
    uint64_t won = (uint64_t)atomic_load(&op->fetched) * c->page_size * op->recompute_ns;
    return passed <= tokens * op->recompute_ns / 8 + won;
}

/* Whether the pages that came are pages of this key. */
static bool is_the_same_key(hiradix_cache *c, const hi_op *op, const rad_key *key, uint32_t count)
{
    const hi_ticket *k = &op->k;
    rad_page before = 0;
    if (hi_key_pages(c, key) < k->begin + count) return false;
    rad_match_handle path = {.node = op->on_host.node, .num_tokens = k->begin * c->page_size};
    if (k->begin) hi_pages_of(c, c->host, &path, k->begin - 1, 1, &before); /* it is locked */
    return page_chain_is_of(&c->chain, key, k->begin, count, &c->hashes[before], k->chain);
}

/* Where it is, storage has it. */
static void tell_fetched(hiradix_cache *c, const hi_op *op, const rad_key *key)
{
    rad_key front = hi_key_front(c, key, op->k.begin + op->hung);
    rad_match match;
    if (!c->in_storage || rad_cache_lookup(c->host, &front, &match) != RAD_OK) return;
    uint32_t there = match.prefix_tokens / c->page_size;
    if (there <= op->k.begin) return;
    hi_events_stored(c, match.last_node, op->k.begin, RAD_MIN(there - op->k.begin, op->hung), NULL);
}

rad_status rad_hicache_prefetch_progress(rad_cache *cache, rad_prefetch *ticket, const rad_key *key,
                                         uint32_t *tokens)
{
    hiradix_cache *c = hiradix_of(cache);
    if (tokens) *tokens = 0;
    if (!ticket || !*ticket) return ticket ? RAD_OK : RAD_E_INVAL;
    if (!c) return RAD_E_UNSUPPORTED;
    hi_op *op = (hi_op *)tickets_find_fetch(&c->out, *ticket);
    if (!op) {
        *ticket = 0;
        return RAD_E_STATE;
    }
    if (!cache_key_is_sound(key)) return RAD_E_INVAL;
    tickets_take_done(&c->out);
    if (is_worth_waiting(c, op)) return RAD_AGAIN;
    *ticket = 0;
    uint32_t came = op->k.gets ? atomic_load(&op->fetched) : 0;
    rad_status status = RAD_OK;
    if (came && !is_the_same_key(c, op, key, came)) {
        came = 0;
        status = RAD_E_STATE;
    }
    if (came) {
        op->hung = hi_hang(c, key, op->k.begin, op->k.host, came, op->k.chain);
        /* Pages that were there already are freed, and may be somebody else's by now; but
         * nobody else took one in between, so the bits of those are of no account. */
        uint32_t time = hi_recheck_time(c);
        for (uint32_t i = 0; i < op->hung; i++) {
            hi_mark_stored(c, op->k.host[i], time);
            bits_set(c->fetched, (size_t)op->k.host[i]);
        }
        tell_fetched(c, op, key);
        c->stats.fetched_tokens += (uint64_t)op->hung * c->page_size;
        if (tokens) *tokens = op->hung * c->page_size;
    }
    c->stats.revoked_prefetches += !came;
    hi_prefetch_ended(c, op, false);
    tickets_leave_fetch(&c->out, &op->k);
    return status;
}

rad_status rad_hicache_prefetch_revoke(rad_cache *cache, rad_prefetch *ticket)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!ticket || !*ticket) return ticket ? RAD_OK : RAD_E_INVAL;
    if (!c) return RAD_E_UNSUPPORTED;
    hi_op *op = (hi_op *)tickets_find_fetch(&c->out, *ticket);
    *ticket = 0;
    if (!op) return RAD_E_STATE;
    c->stats.revoked_prefetches++;
    hi_prefetch_ended(c, op, true);
    tickets_leave_fetch(&c->out, &op->k);
    return RAD_OK;
}
