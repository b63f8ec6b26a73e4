/* swa_hi_fetch.c - storage -> host, before an admission: all or nothing.
 *
 *     key      | device, host | asked for .................... |
 *              0              begin
 *     full     which are there, from `begin` on                | o o o o o o o o . .
 *     window   backwards from the end of these, a window long  |         . o o o
 *              where one is missing, the end goes back to it   | o o o o o
 *
 * So the end is where both sides allow it, as in a match. Host pages are taken for just so much,
 * a window side for the last window; full records come first, then those of the window. A front
 * without its window is of no use to anybody: what does not come whole is not kept.
 *
 * A request that has waited t for n tokens has lost t and won nothing yet, so it waits as long as
 * t <= n * r / 8, where r is what a token costs to compute. */
#include "hicache/swa_hi_impl.h"

#include "base/bits.h"

/* ---- a worker's part ---- */

static rad_status exists(const swa_op *op, const page_store *s, const rad_page_hash *const *hashes,
                         uint32_t count, uint32_t *present)
{
    store_lot l;
    *present = 0;
    if (atomic_load(&op->k.t.cancelled)) return RAD_NONE;
    if (!store_lot_keys(s, &l, hashes, count)) return RAD_E_UNSUPPORTED;
    return store_lot_exists(s, &l, op->k.deadline_ns, present);
}

/* How many full records there are, from `begin` on. */
static rad_status ask_full(rad_swa_hicache *c, swa_op *op, uint32_t *found)
{
    const rad_page_hash *hashes[SWA_HI_STORE_PAGES];
    *found = 0;
    for (uint32_t n, present; *found < op->k.count; *found += present) {
        n = RAD_MIN((uint32_t)SWA_HI_STORE_PAGES, op->k.count - *found);
        for (uint32_t i = 0; i < n; i++)
            hashes[i] = &op->k.chain[*found + i];
        rad_status status = exists(op, &c->side[SIDE_FULL].store, hashes, n, &present);
        if (status) return status;
        if (present < n) {
            *found += present;
            break;
        }
    }
    return RAD_OK;
}

/* Takes *found back to where a window of window records ends. */
static rad_status ask_window(rad_swa_hicache *c, swa_op *op, uint32_t *found)
{
    enum { MOST_CALLS = 64 };
    const rad_page_hash *hashes[SWA_HI_STORE_PAGES];
    uint32_t have = 0; /* of the window, counted from the end */
    for (int calls = 0; have < RAD_MIN(*found, c->window); calls++) {
        uint32_t n = RAD_MIN((uint32_t)SWA_HI_STORE_PAGES, RAD_MIN(*found, c->window) - have);
        uint32_t present;
        for (uint32_t i = 0; i < n; i++)
            hashes[i] = &op->k.chain[*found - have - i - 1];
        rad_status status = calls < MOST_CALLS
                                ? exists(op, &c->side[SIDE_SWA].store, hashes, n, &present)
                                : RAD_NONE;
        if (status) return status;
        have += present;
        if (present < n) {
            *found -= have + 1; /* no window that has the missing one is whole */
            have = 0;
        }
    }
    return RAD_OK;
}

static rad_status ask(rad_swa_hicache *c, swa_op *op)
{
    uint32_t found;
    rad_status status = ask_full(c, op, &found);
    if (!status) status = ask_window(c, op, &found);
    if (!status) op->found = found;
    return status;
}

/* Gets the records of chain[first ..) into host[0..count). RAD_NONE: not all came. */
static rad_status get(const swa_op *op, const page_store *s, const rad_page *host, uint32_t first,
                      uint32_t count, uint32_t worker)
{
    store_lot l;
    for (uint32_t at = 0, n; at < count; at += n) {
        n = RAD_MIN(s->call_pages, count - at);
        if (atomic_load(&op->k.t.cancelled)) return RAD_NONE;
        if (!store_lot_chain(s, &l, op->k.chain + first + at, n)) return RAD_E_UNSUPPORTED;
        rad_status status = store_lot_get(s, &l, host + at, worker, op->k.deadline_ns);
        for (uint32_t i = 0; i < n; i++)
            if (!l.done[i] || !store_lot_accept(s, &l, i, host[at + i]))
                return status < 0 ? status : RAD_NONE;
        if (status) return status;
    }
    return RAD_OK;
}

rad_status swa_hi_run_fetch(void *cache, hi_ticket *k, uint32_t worker)
{
    rad_swa_hicache *c = cache;
    swa_op *op = (swa_op *)k;
    if (!k->gets) return ask(c, op);
    rad_status status = get(op, &c->side[SIDE_FULL].store, k->host, 0, k->count, worker);
    if (!status)
        status = get(op, &c->side[SIDE_SWA].store, op->swa_host, k->count - op->num_swa,
                     op->num_swa, worker);
    op->whole = status == RAD_OK;
    return status;
}

/* ---- the owner's part ---- */

/* What is there is known: takes host pages for it and gets it, unless it is too little. */
static bool go_on(rad_swa_hicache *c, swa_op *op)
{
    uint32_t count = op->found, ps = c->page_size;
    if (op->k.t.status != RAD_OK || op->k.orphan || !count) return false;
    if ((uint64_t)count * ps < c->params.prefetch_threshold) return false;
    uint32_t windows = RAD_MIN(count, c->window), asked = op->k.count;
    op->k.count = count;
    for (uint32_t i = 0; i < count; i++)
        op->swa_device[i] = i + windows >= count;
    if (!swa_hi_take_host(c, op)) {
        op->k.count = asked;
        return false;
    }
    op->k.gets = true;
    tickets_reserve(&c->out, &op->k, count);
    swa_op_list_windows(c, op, false);
    if (op->num_swa < windows) return false;
    tickets_submit(&c->out, &op->k);
    return true;
}

void swa_hi_fetch_done(void *cache, hi_ticket *k)
{
    rad_swa_hicache *c = cache;
    if (!k->gets && go_on(c, (swa_op *)k)) return;
    k->ended = true;
    if (k->orphan) tickets_drop(&c->out, k);
}

rad_status rad_swa_hicache_prefetch_start(rad_swa_hicache *c, const rad_key *key,
                                          uint64_t recompute_ns_per_token, rad_prefetch *ticket)
{
    if (!ticket) return RAD_E_INVAL;
    *ticket = 0;
    if (!cache_key_is_sound(key)) return RAD_E_INVAL;
    uint32_t ps = c->page_size, pages = key->num_tokens / ps, on_device = 0, node, at;
    if (!c->side[SIDE_FULL].store.backend.ops || !pages) return RAD_NONE;
    swa_hi_place place = swa_hi_find(c->device, key, pages, false);
    if (place.pages)
        on_device = swa_usable(c->device, place.node, place.part, place.pages, 0, &node, &at);
    place = swa_hi_find(c->host, key, pages, false);
    uint32_t usable = swa_hi_usable(c, place, on_device), have = RAD_MAX(usable, on_device);
    /* What only the device has in front is fetched as well: the host's tree has no gaps. */
    uint32_t begin = usable > on_device ? usable : RAD_MIN(place.pages, on_device);
    uint64_t threshold = c->params.prefetch_threshold;
    if ((uint64_t)pages * ps < (uint64_t)have * ps + threshold) return RAD_NONE;
    uint64_t budget = c->params.prefetch_tokens / ps;
    uint64_t left = budget > c->out.reserved ? budget - c->out.reserved : 0;
    uint32_t count = (uint32_t)RAD_MIN(left, (uint64_t)(pages - begin));
    if ((uint64_t)(begin + count) * ps < (uint64_t)have * ps + threshold) return RAD_FULL;
    swa_op *op = swa_op_take(c, TRANSFER_FETCH, count);
    if (!op) return RAD_FULL;
    op->k.begin = begin;
    const rad_page_hash *prior = NULL;
    if (begin) {
        place = swa_hi_find(c->host, key, begin, true);
        swa_hi_path_pages(&c->host->tree, place.node, begin, c->on_host);
        prior = &c->hashes[c->on_host[begin - 1]];
    }
    rad_status status = page_chain_hash(&c->chain, key, begin, count, prior, op->k.chain);
    if (status) {
        tickets_give(&c->out, &op->k);
        return status;
    }
    if (begin) op->on_host = swa_lock_from(c->host, place.node, begin - RAD_MIN(begin, c->window));
    op->k.deadline_ns = op->k.start_ns + c->params.timeout_max_ns;
    if (recompute_ns_per_token)
        op->k.deadline_ns = RAD_MIN(
            op->k.deadline_ns, op->k.start_ns + (uint64_t)count * ps * recompute_ns_per_token / 8);
    tickets_reserve(&c->out, &op->k, count);
    c->stats.prefetches++;
    tickets_submit(&c->out, &op->k);
    *ticket = tickets_number(&c->out, &op->k);
    return RAD_OK;
}

/* Whether the pages that came are pages of this key. */
static bool is_the_same_key(rad_swa_hicache *c, const swa_op *op, const rad_key *key)
{
    const hi_ticket *k = &op->k;
    const rad_page_hash *prior = NULL;
    if (key->num_tokens / c->page_size < k->begin + k->count) return false;
    if (k->begin) { /* locked, so it is where it was */
        swa_hi_path_pages(&c->host->tree, op->on_host.node.index, k->begin, c->on_host);
        prior = &c->hashes[c->on_host[k->begin - 1]];
    }
    return page_chain_is_of(&c->chain, key, k->begin, k->count, prior, k->chain);
}

/* All that was asked for has come: into the host tree with it. Returns how many pages are there. */
static uint32_t keep_fetched(rad_swa_hicache *c, swa_op *op, const rad_key *key)
{
    const rad_page *window_of = rad_swa_page_map(c->host_kv);
    if (op->on_host.held) (void)rad_swa_cache_dec_lock_ref(c->host, &op->on_host, NULL);
    uint32_t hung = swa_hi_hang(c, key, op->k.begin, op->k.host, op->k.count, op->k.chain);
    for (uint32_t i = 0; i < hung; i++) {
        if (!bits_get(c->host->cached, (size_t)op->k.host[i])) continue; /* was there already */
        bits_set(c->side[SIDE_FULL].store.saved, (size_t)op->k.host[i]);
        bits_set(c->fetched, (size_t)op->k.host[i]);
        c->stats.fetched_tokens[SIDE_FULL] += c->page_size;
        if (!window_of[op->k.host[i]]) continue;
        bits_set(c->side[SIDE_SWA].store.saved, (size_t)window_of[op->k.host[i]]);
        c->stats.fetched_tokens[SIDE_SWA] += c->page_size;
    }
    if (hung < op->k.count) swa_hi_free_host(c, op->k.host + hung, op->k.count - hung);
    op->k.gets = false; /* it holds no page any more */
    return hung;
}

rad_status rad_swa_hicache_prefetch_progress(rad_swa_hicache *c, rad_prefetch *ticket,
                                             const rad_key *key, uint32_t *tokens)
{
    if (tokens) *tokens = 0;
    if (!ticket || !*ticket) return ticket ? RAD_OK : RAD_E_INVAL;
    swa_op *op = (swa_op *)tickets_find_fetch(&c->out, *ticket);
    if (!op) {
        *ticket = 0;
        return RAD_E_STATE;
    }
    if (!cache_key_is_sound(key)) return RAD_E_INVAL;
    tickets_take_done(&c->out);
    if (!op->k.ended && c->env.now_ns(c->env.user) < op->k.deadline_ns) return RAD_AGAIN;
    *ticket = 0;
    bool came = op->k.ended && op->k.gets && op->whole;
    rad_status status = RAD_OK;
    if (came && !is_the_same_key(c, op, key)) {
        came = false;
        status = RAD_E_STATE;
    }
    uint32_t pages = came ? keep_fetched(c, op, key) : 0;
    if (tokens) *tokens = pages * c->page_size;
    c->stats.revoked_prefetches += !came;
    tickets_leave_fetch(&c->out, &op->k);
    return status;
}

rad_status rad_swa_hicache_prefetch_revoke(rad_swa_hicache *c, rad_prefetch *ticket)
{
    if (!ticket || !*ticket) return ticket ? RAD_OK : RAD_E_INVAL;
    swa_op *op = (swa_op *)tickets_find_fetch(&c->out, *ticket);
    *ticket = 0;
    if (!op) return RAD_E_STATE;
    c->stats.revoked_prefetches++;
    tickets_leave_fetch(&c->out, &op->k);
    return RAD_OK;
}
