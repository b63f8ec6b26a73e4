/* hiradix_backup_storage.c - host -> storage, behind a write: what storage lacks of a path, and
 * what of it the store may have lost since (hiradix_recheck.c).
 *
 *     hi_write_backup_storage   owner: which runs of pages need it; a ticket for each
 *     hi_run_backup_storage     worker: records into the store, in lots
 *     hi_backup_storage_done    owner: marks what storage has, counts what it has not taken */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"
#include "cache/radix_journal.h"
#include "cache/radix_path.h"

/* Pages [begin, begin + count) of what ends `depth` pages deep: their hashes go along, since the
 * worker must not look into the tree. */
static bool begin_backup_storage(hiradix_cache *c, uint32_t node, uint32_t depth, uint64_t digest,
                                 uint32_t begin, const rad_page *host, uint32_t count, bool checks)
{
    const radix_tree *t = c->tree;
    hi_op *op = c->store_held ? NULL : hi_op_take(c, TRANSFER_BACKUP_STORAGE, count);
    if (!op) return false;
    op->checks = checks;
    c->checks += checks;
    op->k.begin = begin;
    op->k.namespace_digest = digest;
    memcpy(op->k.host, host, count * sizeof *host);
    for (uint32_t i = 0; i < count; i++)
        op->k.device[i] = checks ? HI_AS_IT_WAS : HI_NOT_STORED;
    uint32_t left = begin + count; /* from the back: pages [begin, left) */
    for (radix_path p = radix_path_of(t, node, depth); left > begin; radix_path_up(t, &p)) {
        uint32_t from = RAD_MAX(p.begin, begin);
        if (from >= left) continue;
        memcpy(op->k.chain + (from - begin),
               t->journal->hashes + t->nodes[p.node].at + (from - p.begin),
               (left - from) * sizeof *op->k.chain);
        left = from;
    }
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

rad_status hi_run_backup_storage(void *cache, hi_ticket *k, uint32_t worker)
{
    hiradix_cache *c = cache;
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
        } else {
            c->stats.dropped_backup_tokens += c->page_size;
            bits_flip(c->store.saved, (size_t)k->host[i]);
            unsettled = true;
        }
    }
    c->store_epoch += unsettled;
    tickets_give(&c->out, k);
}
