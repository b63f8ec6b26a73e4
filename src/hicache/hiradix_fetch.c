/* hiradix_fetch.c - storage -> host, before an admission.
 *
 *     fetch   asks how much is there -> takes host pages for so much -> gets it
 *                        | too little: over             | some are missing or bad: what came
 *                                                       | before them is what there is
 *
 *     rad_hicache_prefetch_start      owner: takes a ticket
 *     hi_run_fetch                    worker: asks, gets
 *     rad_hicache_prefetch_progress   owner: enter_tree, enter_windows, enter_state
 *
 * What a fetch gets is its own until somebody asks for it at admission; then the pages that
 * have come and verified enter the tree, in which the front before them is locked. If
 * the worker is still at it, the rest is given back when it has let go.
 *
 * Where some layers see a window, what is there is worth something up to the last place before
 * which the window is there as well (ask_windows); the window is got first, and then all or
 * nothing: a window record that is missing or bad then is a miss.
 *
 * Likewise with states: up to the last place behind which a snapshot is stored, which is got first.
 *
 * Where the host has pages, but behind them no window or snapshot with which to go on, a fetch
 * begins before them, at the last place from which one can; of those pages (`had`, locked) it asks
 * and gets nothing:
 *
 *     host      o o o o o s o o o o             s: the last snapshot there
 *     stored    o o o o o s o o o o o o s o
 *     fetch                 had     | get | s
 *
 * Waiting has a price. A request that has waited t, for n tokens of which f have come, has
 * so far lost t and won f * r, where r is what a token costs to compute. So it waits while
 *
 *     t <= n * r / 8 + f * r
 *
 * and whatever the store does, it is done with its n tokens within 9/8 of n * r. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"
#include "cache/radix_journal.h"
#include "cache/radix_path.h"
#include "mem/kv_window.h"

static rad_status ask_pages(hiradix_cache *c, hi_op *op)
{
    store_lot l;
    atomic_store(&op->present, op->k.had);
    for (uint32_t at = op->k.had, n; at < op->k.count; at += n) {
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

/* Of the fetch's pages [from, to), how many have a window record without a gap: from the front on,
 * or, `back`, from the end. */
static rad_status count_windows(hiradix_cache *c, const hi_op *op, uint32_t from, uint32_t to,
                                bool back, uint32_t *count)
{
    store_lot l;
    *count = 0;
    for (uint32_t left = to - from, n; left; left -= n) {
        rad_page_hash hashes[STORE_LOT_PAGES];
        uint32_t present = 0;
        n = RAD_MIN((uint32_t)STORE_LOT_PAGES, left);
        for (uint32_t i = 0; i < n; i++)
            hashes[i] = op->k.chain[back ? from + left - 1 - i : to - left + i];
        if (atomic_load(&op->k.t.cancelled)) return RAD_NONE;
        if (!store_lot_chain(&c->window_store, &l, hashes, n)) return RAD_E_UNSUPPORTED;
        rad_status status = store_lot_exists(&c->window_store, &l, op->k.deadline_ns, &present);
        if (status) return status;
        *count += present;
        if (present < n) break;
    }
    return RAD_OK;
}

/* The last of the first `most` pages behind which one can go on: the window before it is stored, or
 * the part of it that the fetch begins with, and the rest is there already.
 *
 *     window records   . . . . . o . . . . o o o o . . o     window = 4
 *     probes                     ^       ^       ^           every 4th page: a window has one of
 * them found                                    --- -         from there to both sides
 *
 * So what is stored of a long prompt costs a call for each window's length of it. */
static rad_status ask_windows(hiradix_cache *c, hi_op *op, uint32_t most, uint32_t *end)
{
    uint32_t window = hi_windows(c)->pages, up, down;
    *end = 0;
    for (uint32_t last = most; last;) {
        uint32_t probe = (last - 1) / window * window;
        rad_status status = count_windows(c, op, probe, last, false, &up);
        if (status) return status;
        if (!up) {
            last = probe;
            continue;
        }
        status = count_windows(c, op, probe > window ? probe - window : 0, probe, true, &down);
        if (status) return status;
        uint32_t at = probe + up, before = op->k.begin + at;
        bool joins = down == probe && op->window_from <= (before > window ? before - window : 0);
        if (up + down >= window || joins) {
            *end = at;
            return RAD_OK;
        }
        if (down == probe) return RAD_OK; /* nothing before it either */
        last = probe - down - 1;
    }
    return RAD_OK;
}

/* The last of the first `most` pages behind which a snapshot is stored, by its mark. */
static rad_status ask_states(hiradix_cache *c, hi_op *op, uint32_t most, uint32_t worker,
                             uint32_t *end)
{
    store_lot l;
    *end = 0;
    for (uint32_t left = most, n; left; left -= n) {
        n = RAD_MIN((uint32_t)STORE_LOT_PAGES, left);
        if (atomic_load(&op->k.t.cancelled)) return RAD_NONE;
        if (!store_lot_chain(&c->mark_store, &l, op->k.chain + left - n, n))
            return RAD_E_UNSUPPORTED;
        rad_status status = store_lot_get(&c->mark_store, &l, NULL, worker, op->k.deadline_ns);
        for (uint32_t i = n; i-- > 0;)
            if (l.done[i] && store_lot_accept(&c->mark_store, &l, i, 0)) {
                *end = left - n + i + 1;
                return RAD_OK;
            }
        if (status) return status;
    }
    return RAD_OK;
}

static rad_status ask(hiradix_cache *c, hi_op *op, uint32_t worker)
{
    bool windows = c->window_store.pool != NULL, states = c->state_store.states != NULL;
    if (!windows && !states) return ask_pages(c, op);
    rad_status status = RAD_OK;
    if (c->store.pool)
        status = ask_pages(c, op);
    else
        atomic_store(&op->present, op->k.count);
    uint32_t end = atomic_load(&op->present), most = 0;
    atomic_store(&op->present, 0);
    while (!status && end && end != most) { /* until both say the same place */
        most = end;
        if (states) status = ask_states(c, op, most, worker, &end);
        if (!status && windows) status = ask_windows(c, op, end, &end);
        if (!states || !windows) break;
    }
    if (!status) atomic_store(&op->present, end);
    return status;
}

/* What is missing then has perhaps not come, but is there. */
static bool is_late(const hiradix_cache *c, const hi_op *op)
{
    return c->base.env.now_ns(c->base.env.user) >= op->k.deadline_ns;
}

/* All of the window before the end, or nothing of the fetch is of use. */
static rad_status get_windows(hiradix_cache *c, const hi_op *op, uint32_t worker)
{
    const hi_ticket *k = &op->k;
    store_lot l;
    for (uint32_t at = 0, n; at < k->num_windows; at += n) {
        n = RAD_MIN(c->window_store.call_pages, k->num_windows - at);
        if (atomic_load(&k->t.cancelled)) return RAD_NONE;
        const rad_page_hash *hashes = k->chain + (k->window_begin - k->begin) + at;
        if (!store_lot_chain(&c->window_store, &l, hashes, n)) return RAD_E_UNSUPPORTED;
        rad_status status =
            store_lot_get(&c->window_store, &l, k->host_windows + at, worker, k->deadline_ns);
        for (uint32_t i = 0; i < n && !status; i++)
            if (!l.done[i] || !store_lot_accept(&c->window_store, &l, i, k->host_windows[at + i]))
                return RAD_NONE;
        if (status) return status;
    }
    return RAD_OK;
}

/* The same of the snapshot at its end. A mark without one goes. */
static rad_status get_state(hiradix_cache *c, const hi_op *op, uint32_t worker)
{
    const rad_page_hash *hash = op->k.chain + op->k.count - 1;
    store_lot l, mark;
    if (!op->host_state) return RAD_OK;
    if (!store_lot_chain(&c->state_store, &l, hash, 1) ||
        !store_lot_chain(&c->mark_store, &mark, hash, 1))
        return RAD_E_UNSUPPORTED;
    rad_status status =
        store_lot_get(&c->state_store, &l, &op->host_state, worker, op->k.deadline_ns);
    if (status) return status;
    if (l.done[0] && store_lot_accept(&c->state_store, &l, 0, op->host_state)) return RAD_OK;
    if (l.done[0] || !is_late(c, op)) store_lot_remove(&c->mark_store, &mark, 0);
    return RAD_NONE;
}

static rad_status get(hiradix_cache *c, hi_op *op, uint32_t worker)
{
    store_lot l;
    rad_status before = get_state(c, op, worker);
    if (!before) before = get_windows(c, op, worker);
    if (before) return before;
    if (!c->store.pool) { /* all layers see a window: that was it */
        atomic_store(&op->fetched, op->k.count);
        return RAD_OK;
    }
    const uint32_t had = op->k.had;
    atomic_store(&op->fetched, had);
    for (uint32_t at = had, n; at < op->k.count; at += n) {
        n = RAD_MIN(c->store.call_pages, op->k.count - at);
        const rad_page *host = op->k.host + (at - had);
        if (atomic_load(&op->k.t.cancelled)) return RAD_NONE;
        if (!store_lot_chain(&c->store, &l, op->k.chain + at, n)) return RAD_E_UNSUPPORTED;
        rad_status status = store_lot_get(&c->store, &l, host, worker, op->k.deadline_ns);
        for (uint32_t i = 0; i < n; i++) {
            if (!l.done[i] || !store_lot_accept(&c->store, &l, i, host[i])) {
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
    return k->gets ? get(cache, op, worker) : ask(cache, op, worker);
}

/* What is there is known: takes host pages for it and gets it, unless it is too little. */
static bool begin_get(hiradix_cache *c, hi_op *op)
{
    uint32_t present = atomic_load(&op->present), ps = c->page_size;
    c->stats.present_tokens += (uint64_t)(present - RAD_MIN(present, op->k.had)) * ps;
    if (op->k.t.status != RAD_OK || op->k.orphan || !present) return false;
    if ((uint64_t)present * ps < c->params.prefetch_threshold) return false;
    uint64_t room = rad_kv_available_pages(c->host_pages) + c->tree->host.evictable;
    op->k.had = RAD_MIN(op->k.had, present);
    uint32_t own = (uint32_t)RAD_MIN(room, (uint64_t)present - op->k.had), count = op->k.had + own;
    uint32_t windows = hi_windows(c) ? RAD_MIN(present, hi_windows(c)->pages) : 0;
    if ((uint64_t)count * ps < c->params.prefetch_threshold) return false;
    /* The window is before the end, and the snapshot behind it. */
    if ((windows || hi_states(c)) && count < present) return false;
    if (!hi_take_host_pages(c, op->k.host, own)) return false;
    if (windows && !hi_take_host_windows(c, op->k.host_windows, windows)) {
        hi_free_host_pages(c, op->k.host, own);
        return false;
    }
    if (hi_states(c) && !(op->host_state = hi_take_host_state(c))) {
        hi_free_host_pages(c, op->k.host, own);
        if (windows) kv_window_free_loose(c->host_pages, op->k.host_windows, windows);
        return false;
    }
    op->k.num_windows = windows;
    op->k.window_begin = op->k.begin + count - windows;
    op->k.count = count;
    op->k.gets = true;
    tickets_reserve(&c->out, &op->k, own);
    tickets_submit(&c->out, &op->k);
    return true;
}

void hi_fetch_done(void *cache, hi_ticket *k)
{
    hiradix_cache *c = cache;
    hi_op *op = (hi_op *)k;
    if (!k->gets && begin_get(c, op)) return;
    k->ended = true;
    hi_events_lost(c, op);
    if (k->orphan) tickets_drop(&c->out, k);
}

/* The hash of the page before a fetch's first one. NULL: there is no such page, or it could not be
 * hashed. */
static const rad_page_hash *hash_before(hiradix_cache *c, const hi_op *op, uint32_t begin)
{
    if (!begin) return NULL;
    (void)radix_journal_rehash(c->tree->journal, c->tree, op->on_host.node.index);
    uint32_t unit = radix_path_unit(c->tree, op->on_host.node.index, op->on_host.depth, begin - 1);
    return radix_journal_hash(c->tree->journal, unit);
}

/* Where a fetch begins: behind what the host has (*host), since there are no gaps there. Where
 * nobody can go on from its end, already behind what can be loaded of it. *have: pages of the key,
 * on what tier ever, as far as one can go on. */
static radix_pos find_begin(const hiradix_cache *c, const radix_pos *pos, radix_pos *host,
                            uint32_t *have)
{
    const radix_tree *t = c->tree;
    radix_pos device = *pos, end;
    *host = *pos;
    *have = pos->pages;
    radix_to_tier(t, host, RADIX_HOST);
    if (!t->num_components) return *host;
    radix_to_tier(t, &device, RADIX_DEVICE);
    radix_usable(t, &device);
    end = *host;
    radix_host_end(t, &end, device.pages);
    if (end.pages <= device.pages) end = device;
    *have = end.pages;
    return end.pages < host->pages ? end : *host;
}

/* The window before the walk's end is there from this page on, on one tier or the other. */
static uint32_t window_before(const radix_tree *t, const radix_pos *pos)
{
    uint32_t window = t->windows[RADIX_HOST]->pages, from = pos->pages;
    for (radix_path p = radix_path_to(t, pos);
         radix_path_is(t, &p) && from == p.end && pos->pages - from < window;
         radix_path_up(t, &p)) {
        uint32_t first = RAD_MIN(radix_window_of(t, RADIX_DEVICE, p.node)->first,
                                 radix_window_of(t, RADIX_HOST, p.node)->first);
        from = RAD_MIN(p.begin + first, p.end);
    }
    return from;
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
    if (!c->store.backend.ops || c->store_held || (c->base.states && !hi_states(c)))
        return hi_prefetch_note(c, RAD_PREFETCH_NOT_ASKED, RAD_NONE);
    if (!pages) return hi_prefetch_note(c, RAD_PREFETCH_TOO_SHORT, RAD_NONE);
    radix_pos pos = hi_follow(c, key, pages, 0, 0, 0), host = {0};
    uint32_t have = 0;
    /* What only the device has in front is fetched as well: there are no gaps on the host. */
    if (pos.node) pos = find_begin(c, &pos, &host, &have);
    have *= ps;
    if ((uint64_t)pages * ps < (uint64_t)have + c->params.prefetch_threshold)
        return hi_prefetch_note(c, RAD_PREFETCH_TOO_SHORT, RAD_NONE);
    uint32_t begin = pos.pages;
    uint64_t budget = c->params.prefetch_tokens / ps;
    uint64_t left = budget > c->out.reserved ? budget - c->out.reserved : 0;
    uint32_t count = (uint32_t)RAD_MIN(left, (uint64_t)(pages - begin));
    if ((uint64_t)(begin + count) * ps < (uint64_t)have + c->params.prefetch_threshold)
        return hi_prefetch_note(c, RAD_PREFETCH_OVER_BUDGET, RAD_FULL);
    uint32_t windows = hi_windows(c) ? RAD_MIN(count, hi_windows(c)->pages) : 0;
    hi_op *op = (hi_op *)tickets_take(&c->out, TRANSFER_FETCH, count, windows);
    if (!op) return hi_prefetch_note(c, RAD_PREFETCH_NO_TICKET, RAD_FULL);
    op->k.begin = begin;
    op->k.had = RAD_MIN(host.pages - begin, count);
    if (windows && begin) op->window_from = window_before(c->tree, &pos);
    if (host.pages) {
        uint32_t depth, node = hi_end_of(c, &host, &depth);
        op->on_host = hi_lock_host(c, node, depth);
    }
    const rad_page_hash *prior = hash_before(c, op, begin);
    rad_status status = begin && !prior ? RAD_E_UNSUPPORTED
                                        : radix_journal_hash_key(c->tree->journal, c->tree, key,
                                                                 begin, count, prior, op->k.chain);
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
    c->stats.asked_tokens += (uint64_t)(count - op->k.had) * ps;
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

static bool is_hash_of(const hiradix_cache *c, const rad_key *key, uint32_t page,
                       const rad_page_hash *prior, const rad_page_hash *hash)
{
    rad_page_hash own;
    return !radix_journal_hash_key(c->tree->journal, c->tree, key, page, 1, prior, &own) &&
           memcmp(&own, hash, sizeof own) == 0;
}

/* Whether the pages that came are pages of this key: they hang together, so the first and the last
 * say it. */
static bool is_the_same_key(hiradix_cache *c, const hi_op *op, const rad_key *key, uint32_t count)
{
    const hi_ticket *k = &op->k;
    const rad_page_hash *prior = hash_before(c, op, k->begin), *last = &k->chain[count - 1];
    if (hi_key_pages(c, key) < k->begin + count || (k->begin && !prior)) return false;
    return is_hash_of(c, key, k->begin, prior, k->chain) &&
           (count == 1 || is_hash_of(c, key, k->begin + count - 1, last - 1, last));
}

/* The pages up to the fetch's number `came`, which is of this key, become the host's: what of them
 * the tree has already gets them as its host pages, the rest a new node. Returns how many did, or
 * were there already and are freed, those that the host had not counted; *end is the node that has
 * the last, and *depth its end. */
static uint32_t enter_tree(hiradix_cache *c, hi_op *op, const rad_key *key, uint32_t came,
                           uint32_t *end, uint32_t *depth)
{
    radix_tree *t = c->tree;
    uint32_t begin = op->k.begin + op->k.had, all = op->k.begin + came, ps = c->page_size, done = 0;
    *end = *depth = 0;
    if (!namespace_fits(key->extra_key, key->cache_salt)) return 0;
    uint32_t root = radix_cache_root(c->nodes, key);
    if (!radix_make_room(t, 2, 0, !root, root, radix_cache_drop, c->nodes)) {
        if (root) radix_drop_root_if_empty(t, root);
        return 0;
    }
    if (!root) (void)radix_add_root(t, key->extra_key, key->cache_salt);
    radix_pos pos = hi_follow(c, key, all, op->on_host.node.index, op->on_host.depth, begin);
    if (came == op->k.had) *end = hi_end_of(c, &pos, depth);
    if (pos.pages > begin) { /* somebody has computed them meanwhile, or fetched them */
        uint32_t node_depth, node = hi_end_of(c, &pos, &node_depth);
        done =
            radix_host_fill(t, node, node_depth, begin, op->k.host, pos.pages - begin, end, depth);
        if (begin + done < pos.pages) return done;
        pos = hi_follow(c, key, all, *end, *depth, begin + done); /* it may have been cut */
    }
    if (pos.pages == all) return done;
    t->clock++;
    if (pos.child) {
        if (!radix_nodes_available(t)) return done;
        pos.node = radix_split(t, pos.child, pos.part, t->nodes[pos.child].last_access);
    }
    if (!radix_nodes_available(t)) return done;
    const rad_token *tokens = radix_cache_tokens(c->nodes, key) + (size_t)pos.pages * ps;
    *end = radix_new_leaf(t, pos.node, tokens, all - pos.pages, 0);
    *depth = all;
    radix_host_put(t, *end, op->k.host + done);
    return all - begin;
}

/* All of it is the tree's, and ends with this node: so is the window before its end. */
static void enter_windows(hiradix_cache *c, hi_op *op, uint32_t node, uint32_t depth)
{
    uint32_t begin = op->k.window_begin, count = op->k.num_windows, more = depth - begin - count;
    if (more && radix_nodes_available(c->tree)) { /* a node's window side is before its end */
        uint32_t kept = c->tree->nodes[node].pages - more;
        node = radix_split(c->tree, node, kept, c->tree->nodes[node].last_access);
        depth -= more;
    }
    hi_run run = {node, depth, begin, begin + count};
    uint64_t filled = hi_fill_windows(c, &run, op->k.host_windows);
    op->k.num_windows = 0; /* they are nobody's, or the pages' */
    c->stats.fetched_window_tokens += filled * c->page_size;
    rad_page pages[64];
    for (uint32_t at = 0, n; at < count; at += n) {
        n = RAD_MIN((uint32_t)RAD_COUNT(pages), count - at);
        radix_path_pages(c->tree, true, node, depth, begin + at, n, pages);
        for (uint32_t i = 0; i < n; i++)
            bits_set(c->window_store.saved, (size_t)pages[i]);
    }
}

/* The same of the snapshot. */
static void enter_state(hiradix_cache *c, hi_op *op, uint32_t node, uint32_t depth)
{
    radix_tree *t = c->tree;
    uint32_t end = op->k.begin + op->k.count;
    radix_path p = radix_path_of(t, node, depth);
    while (p.begin >= end)
        radix_path_up(t, &p);
    if (p.end > end && !radix_nodes_available(t)) return; /* it goes back with the ticket */
    if (p.end > end) p.node = radix_split(t, p.node, end - p.begin, t->nodes[p.node].last_access);
    if (radix_state_of(t, RADIX_HOST, p.node)) return;
    radix_state_put(t, RADIX_HOST, p.node, op->host_state);
    bits_set(c->state_store.saved, (size_t)op->host_state);
    c->stats.fetched_states++;
    op->host_state = 0;
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
        uint32_t end, depth;
        op->hung = enter_tree(c, op, key, came, &end, &depth);
        /* Pages that were there already are freed, and may be somebody else's by now; but
         * nobody else took one in between, so the bits of those are of no account. */
        uint32_t time = hi_recheck_time(c);
        for (uint32_t i = 0; i < op->hung; i++) {
            hi_mark_stored(c, op->k.host[i], time);
            bits_set(c->fetched, (size_t)op->k.host[i]);
        }
        const uint32_t had = op->k.had;
        hi_events_stored(c, end, depth, op->k.begin + had, op->hung, NULL); /* where it is */
        const bool all = end && had + op->hung == op->k.count;
        if (op->k.num_windows && all) enter_windows(c, op, end, depth);
        if (op->host_state && all) enter_state(c, op, end, depth);
        c->stats.fetched_tokens += (uint64_t)op->hung * c->page_size;
        op->of_use = op->hung + (all ? had : 0);
        if (tokens) *tokens = op->of_use * c->page_size;
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
