/* hiradix_backup_storage.c - host -> storage, behind a write: what storage lacks of a path, and
 * what of it the store may have lost since (hiradix_recheck.c).
 *
 *     hi_write_backup_storage   owner: which runs of pages need it; a ticket for each
 *     hi_run_backup_storage     worker: records into the store, in lots
 *     hi_backup_storage_done    owner: marks what storage has, counts what it has not taken
 *
 * hi_write_backup_storage_windows and hi_write_backup_storage_state are the same of window sides
 * and of snapshots: records of their own under the same hashes. Most pages have none. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"
#include "cache/radix_journal.h"
#include "cache/radix_path.h"

/* The hashes of a ticket's pages, which are on the path to `node`. */
static void list_hashes(const hiradix_cache *c, hi_ticket *k, uint32_t node, uint32_t depth)
{
    const radix_tree *t = c->tree;
    uint32_t left = k->begin + k->count; /* from the back: pages [begin, left) */
    for (radix_path p = radix_path_of(t, node, depth); left > k->begin; radix_path_up(t, &p)) {
        uint32_t from = RAD_MAX(p.begin, k->begin);
        if (from >= left) continue;
        memcpy(k->chain + (from - k->begin),
               t->journal->hashes + t->nodes[p.node].at + (from - p.begin),
               (left - from) * sizeof *k->chain);
        left = from;
    }
}

/* Pages [begin, begin + count) of what ends `depth` pages deep: their hashes go along, since the
 * worker must not look into the tree. */
static bool begin_backup_storage(hiradix_cache *c, uint32_t node, uint32_t depth, uint64_t digest,
                                 uint32_t begin, const rad_page *host, uint32_t count, bool checks)
{
    hi_op *op = c->store_held ? NULL : hi_op_take(c, TRANSFER_BACKUP_STORAGE, count);
    if (!op) return false;
    op->checks = checks;
    c->checks += checks;
    op->k.begin = begin;
    op->k.namespace_digest = digest;
    memcpy(op->k.host, host, count * sizeof *host);
    for (uint32_t i = 0; i < count; i++)
        op->k.device[i] = checks ? HI_AS_IT_WAS : HI_NOT_STORED;
    list_hashes(c, &op->k, node, depth);
    op->on_host = hi_lock_host(c, node, depth);
    uint32_t time = hi_recheck_time(c);
    for (uint32_t i = 0; i < count; i++)
        hi_mark_out(c, host[i], time);
    tickets_submit(&c->out, &op->k);
    return true;
}

/* What stands for the namespace in a record; false: its pages have no name. */
static bool find_digest(const hiradix_cache *c, uint32_t node, uint64_t *digest)
{
    return radix_journal_digest(c->tree->journal, c->tree, node, digest) &&
           radix_journal_rehash(c->tree->journal, c->tree, node);
}

void hi_write_backup_storage(hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t begin,
                             uint32_t end)
{
    rad_page pages[256];
    if (!c->store.pool) return; /* all layers see a window: there is nothing of this kind */
    uint32_t most =
        RAD_MIN(RAD_MAX((uint32_t)HI_WRITE_TOKENS / c->page_size, 1u), (uint32_t)RAD_COUNT(pages));
    uint64_t digest = 0;
    bool has_digest = false;
    uint32_t time = hi_recheck_time(c), lasts, more;
    uint32_t settled = hi_settled_pages(c, node, depth, time, &lasts);
    for (uint32_t at = RAD_MAX(begin, settled), n; at < end; at += n) {
        n = RAD_MIN(most, end - at);
        radix_path_pages(c->tree, true, node, depth, at, n, pages);
        for (uint32_t i = 0, run; i < n; i += run) {
            hi_need need = hi_what_is_needed(c, pages[i], time, &more);
            lasts = RAD_MIN(lasts, more);
            for (run = 1; i + run < n; run++) {
                if (hi_what_is_needed(c, pages[i + run], time, &more) != need) break;
                lasts = RAD_MIN(lasts, more);
            }
            if (need == HI_NOTHING) continue;
            if (!has_digest && !find_digest(c, node, &digest)) {
                c->stats.dropped_backup_tokens += (uint64_t)(end - at - i) * c->page_size;
                return; /* it has no name to be stored under */
            }
            has_digest = true;
            if (begin_backup_storage(c, node, depth, digest, at + i, pages + i, run,
                                     need == HI_CHECK))
                continue;
            if (need == HI_CHECK) return; /* another time */
            c->stats.dropped_backup_tokens += (uint64_t)(end - at - i) * c->page_size;
            return; /* the next request that comes this way tries again */
        }
    }
    if (settled >= begin && settled < end) hi_settle(c, node, depth, end, time, lasts);
}

static bool begin_backup_windows(hiradix_cache *c, const hi_run *run, uint64_t digest,
                                 const rad_page *host)
{
    const rad_page *window_of = rad_kv_window_page_map(c->host_pages);
    uint32_t count = run->end - run->begin;
    hi_op *op = NULL;
    if (!c->store_held) op = (hi_op *)tickets_take(&c->out, TRANSFER_BACKUP_STORAGE, count, count);
    if (!op) return false;
    op->k.begin = op->k.window_begin = run->begin;
    op->k.namespace_digest = digest;
    list_hashes(c, &op->k, run->node, run->depth);
    for (uint32_t i = 0; i < count; i++) {
        op->k.host[i] = host[i];
        op->k.host_windows[i] = window_of[host[i]];
        op->k.device[i] = HI_NOT_STORED;
        bits_set(c->window_store.saved, (size_t)host[i]);
    }
    op->on_host = hi_lock_host(c, run->node, run->depth);
    hi_lock_window(c, RADIX_HOST, &op->on_host, run->begin);
    tickets_submit(&c->out, &op->k);
    return true;
}

static bool lacks_window(const hiradix_cache *c, rad_page page)
{
    return rad_kv_has_window(c->host_pages, page) && !bits_get(c->window_store.saved, (size_t)page);
}

void hi_write_backup_storage_windows(hiradix_cache *c, uint32_t node, uint32_t depth)
{
    if (!c->window_store.pool || !c->window_store.backend.ops) return;
    rad_page pages[256];
    uint32_t window = hi_windows(c)->pages + 1, n; /* and a page more: see hiradix_write.c */
    uint64_t digest = 0;
    bool has_digest = false;
    for (uint32_t at = depth > window ? depth - window : 0; at < depth; at += n) {
        n = RAD_MIN((uint32_t)RAD_COUNT(pages), depth - at);
        radix_path_pages(c->tree, true, node, depth, at, n, pages);
        for (uint32_t i = 0, count; i < n; i += count) {
            bool lacks = lacks_window(c, pages[i]);
            for (count = 1; i + count < n && lacks_window(c, pages[i + count]) == lacks;)
                count++;
            if (!lacks) continue;
            hi_run run = {node, depth, at + i, at + i + count};
            if (!has_digest) has_digest = find_digest(c, node, &digest);
            if (has_digest && begin_backup_windows(c, &run, digest, pages + i)) continue;
            c->stats.dropped_window_tokens += (uint64_t)(depth - run.begin) * c->page_size;
            return; /* the next request that comes this way tries again */
        }
    }
}

static rad_status run_backup_windows(hiradix_cache *c, hi_ticket *k, uint32_t worker)
{
    store_lot l;
    for (uint32_t at = 0, n; at < k->count; at += n) {
        n = RAD_MIN(c->window_store.call_pages, k->count - at);
        if (atomic_load(&k->t.cancelled)) return RAD_NONE;
        if (!store_lot_chain(&c->window_store, &l, k->chain + at, n)) return RAD_E_UNSUPPORTED;
        rad_status status =
            store_lot_set(&c->window_store, &l, k->host_windows + at, worker, k->namespace_digest);
        for (uint32_t i = 0; i < n; i++)
            k->device[at + i] = l.done[i] ? HI_STORED : HI_NOT_STORED;
        if (status) return status;
    }
    return RAD_OK;
}

static void backup_windows_done(hiradix_cache *c, hi_ticket *k)
{
    for (uint32_t i = 0; i < k->count; i++) {
        bool stored = k->device[i] == HI_STORED;
        if (!stored) bits_clear(c->window_store.saved, (size_t)k->host[i]);
        *(stored ? &c->stats.backed_up_window_tokens : &c->stats.dropped_window_tokens) +=
            c->page_size;
    }
    tickets_give(&c->out, k);
}

/* ---- snapshots ---- */

void hi_write_backup_storage_state(hiradix_cache *c, uint32_t node, uint32_t depth)
{
    if (!c->state_store.states || !c->state_store.backend.ops) return;
    rad_state state = radix_state_of(c->tree, RADIX_HOST, node);
    uint64_t digest;
    if (!state || bits_get(c->state_store.saved, (size_t)state)) return;
    hi_op *op = NULL;
    if (find_digest(c, node, &digest) && !c->store_held)
        op = hi_op_take(c, TRANSFER_BACKUP_STORAGE, 1);
    if (!op) {
        c->stats.dropped_states++; /* the next request that comes this way tries again */
        return;
    }
    op->k.begin = depth - 1;
    op->k.namespace_digest = digest;
    op->k.device[0] = HI_NOT_STORED;
    op->host_state = state;
    list_hashes(c, &op->k, node, depth);
    op->on_host = hi_lock_host(c, node, depth);
    hi_lock_state(c, RADIX_HOST, &op->on_host);
    bits_set(c->state_store.saved, (size_t)state);
    tickets_submit(&c->out, &op->k);
}

/* The mark behind the record: who finds it finds that, too. */
static rad_status run_backup_state(hiradix_cache *c, hi_op *op, uint32_t worker)
{
    const page_store *stores[] = {&c->state_store, &c->mark_store};
    store_lot l;
    for (int i = 0; i < 2; i++) {
        if (atomic_load(&op->k.t.cancelled)) return RAD_NONE;
        if (!store_lot_chain(stores[i], &l, op->k.chain, 1)) return RAD_E_UNSUPPORTED;
        rad_status status =
            store_lot_set(stores[i], &l, &op->host_state, worker, op->k.namespace_digest);
        if (status || !l.done[0]) return status;
    }
    op->k.device[0] = HI_STORED;
    return RAD_OK;
}

static void backup_state_done(hiradix_cache *c, hi_op *op)
{
    bool stored = op->k.device[0] == HI_STORED;
    if (!stored) bits_clear(c->state_store.saved, (size_t)op->host_state);
    ++*(stored ? &c->stats.backed_up_states : &c->stats.dropped_states);
    tickets_give(&c->out, &op->k);
}

/* What the store lost of page `at` of the held path it may have lost of the snapshot behind it,
 * too. */
static void forget_state(hiradix_cache *c, const hi_hold *hold, uint32_t at)
{
    const radix_tree *t = c->tree;
    if (!c->state_store.states) return;
    radix_path p = radix_path_of(t, hold->node.index, hold->depth);
    while (p.begin > at)
        radix_path_up(t, &p);
    rad_state state = p.end == at + 1 ? radix_state_of(t, RADIX_HOST, p.node) : 0;
    if (state) bits_clear(c->state_store.saved, (size_t)state);
}

rad_status hi_run_backup_storage(void *cache, hi_ticket *k, uint32_t worker)
{
    hiradix_cache *c = cache;
    if (k->num_windows) return run_backup_windows(c, k, worker);
    if (((const hi_op *)k)->host_state) return run_backup_state(c, (hi_op *)k, worker);
    bool checks = ((const hi_op *)k)->checks;
    store_lot l;
    uint32_t most = checks ? 1 : c->store.call_pages;
    for (uint32_t at = 0, n; at < k->count; at += n) {
        n = RAD_MIN(c->store.call_pages, k->count - at);
        if (atomic_load(&k->t.cancelled)) return RAD_NONE;
        if (!store_lot_chain(&c->store, &l, k->chain + at, n)) return RAD_E_UNSUPPORTED;
        uint32_t present = 0;
        if (checks) {
            rad_status status = store_lot_exists(&c->store, &l, 0, &present);
            if (status) return status;
        }
        if (present) { /* behind it, and in front of what is missing, the next lot begins */
            most = 1;
            n = present;
            for (uint32_t i = 0; i < n; i++)
                k->device[at + i] = HI_FOUND;
            continue;
        }
        /* All that a check knows is that the first is missing. Not every store leaves a record that
         * is there as it is, so what follows is asked about again, after one, two, four, ... */
        l.batch.count = n = RAD_MIN(n, most);
        most = RAD_MIN(2 * most, c->store.call_pages);
        rad_status status = store_lot_set(&c->store, &l, k->host + at, worker, k->namespace_digest);
        for (uint32_t i = 0; i < n; i++)
            k->device[at + i] = l.done[i] ? HI_STORED : HI_NOT_STORED;
        if (status) return status;
    }
    return RAD_OK;
}

void hi_backup_storage_done(void *cache, hi_ticket *k)
{
    hiradix_cache *c = cache;
    hi_op *op = (hi_op *)k;
    uint32_t time = hi_recheck_time(c);
    bool unsettled = false;
    if (k->num_windows) {
        backup_windows_done(c, k);
        return;
    }
    if (op->host_state) {
        backup_state_done(c, op);
        return;
    }
    hi_events_stored(c, op->on_host.node.index, op->on_host.depth, k->begin, k->count, k->device);
    for (uint32_t i = 0; i < k->count; i++) {
        hi_mark_stored(c, k->host[i], time);
        if (k->device[i] == HI_AS_IT_WAS) {
            continue;
        } else if (k->device[i] == HI_FOUND) {
            hi_mark_found(c, k->host[i]);
        } else if (k->device[i] == HI_STORED) {
            c->stats.backed_up_tokens += c->page_size;
            if (op->checks) hi_mark_stored_anew(c, k->host[i]);
            if (op->checks) forget_state(c, &op->on_host, k->begin + i);
            /* What the store lost of a page it may have lost of its window side, too. */
            if (op->checks && c->window_store.pool)
                bits_clear(c->window_store.saved, (size_t)k->host[i]);
        } else {
            c->stats.dropped_backup_tokens += c->page_size;
            bits_flip(c->store.saved, (size_t)k->host[i]);
            unsettled = true;
        }
    }
    c->store_epoch += unsettled;
    tickets_give(&c->out, k);
}
