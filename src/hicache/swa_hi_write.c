/* swa_hi_write.c - device -> host, both sides: what gets a copy, and when it can be found.
 *
 *     path     | has its copy | lost its window |  to be written ...... |
 *              0            end - window        F                      end
 *     writes                  | op 3            | op 4  | op 5 | ...
 *
 * What the host lacks behind F is written, with the window side of what has one. In front of it,
 * only the last window before `end` is: what had no window side on the host is written anew, as
 * a page with both, and takes the tombstone's place, unless that is in use.
 *
 * A write locks its pages on the device, both sides, so that nobody evicts what is copied, and
 * the front of the path on the host, so that its place there stays (a write in front of F does
 * not: it could not take a place that it locks itself). When it is acknowledged its pages enter
 * the host tree, in the order in which writes began. What cannot be hung any more is dropped.
 *
 * Demotion is as in hiradix_write.c; what is evicted next is a leaf on the full side, and on the
 * window side any node. */
#include "hicache/swa_hi_impl.h"

#include "mem/host_kv_pool.h"

enum { DEMOTE_NODES = 16, DEMOTE_LOOKED_AT = 64 }; /* in one poll, of each side */

static rad_status copy_side(const swa_op *op, const swa_side *s, const rad_page *from,
                            const rad_page *to, uint32_t count)
{
    enum { LOT = 32 }; /* pages between two looks at `cancelled` */
    for (uint32_t at = 0; at < count; at += LOT) {
        if (atomic_load(&op->k.t.cancelled)) return RAD_NONE;
        rad_status status =
            rad_host_kv_pool_backup(s->pool, from + at, to + at, RAD_MIN(LOT, count - at));
        if (status) return status;
    }
    return RAD_OK;
}

rad_status swa_hi_run_write(void *cache, hi_ticket *k, uint32_t worker)
{
    rad_swa_hicache *c = cache;
    const swa_op *op = (swa_op *)k;
    (void)worker;
    rad_status status = copy_side(op, &c->side[SIDE_FULL], k->device, k->host, k->count);
    return status ? status
                  : copy_side(op, &c->side[SIDE_SWA], op->swa_device, op->swa_host, op->num_swa);
}

static void drop_write(rad_swa_hicache *c, uint64_t pages)
{
    c->stats.dropped_write_tokens += pages * c->page_size;
}

/* What is being written already is taken off the path. */
static void leave_out_what_is_under_way(rad_swa_hicache *c, uint32_t end)
{
    for (const hi_ticket *k = c->out.oldest_write; k; k = k->newer)
        for (uint32_t i = 0; i < k->count && k->begin + i < end; i++) {
            if (c->path[k->begin + i] != k->device[i]) break; /* the paths part here */
            c->path[k->begin + i] = 0;
        }
}

static bool begin_write(rad_swa_hicache *c, uint32_t node, swa_hi_place place, uint32_t begin,
                        uint32_t count)
{
    swa_op *op = swa_op_take(c, TRANSFER_WRITE, count);
    if (!op) return false;
    op->k.begin = begin;
    for (uint32_t i = 0; i < count; i++) {
        op->k.device[i] = c->path[begin + i];
        op->swa_device[i] = swa_has(c->device, op->k.device[i]);
    }
    op->on_device = swa_lock_from(c->device, node, begin);
    if (place.pages && begin >= place.pages) op->on_host = swa_lock_node(c->host, place.node);
    if (!swa_hi_take_host(c, op)) {
        tickets_give(&c->out, &op->k);
        return false;
    }
    swa_op_list_windows(c, op, true);
    tickets_submit(&c->out, &op->k);
    return true;
}

/* Pages [.., end) of c->path, of which `place` says what the host has. */
static bool write_path(rad_swa_hicache *c, uint32_t node, uint32_t end, swa_hi_place place)
{
    uint32_t most = RAD_MAX((uint32_t)SWA_HI_WRITE_TOKENS / c->page_size, 1u);
    uint32_t tail = end > c->window ? end - c->window : 0;
    for (uint32_t at = RAD_MIN(tail, place.pages), from = at; at <= end; at++) {
        bool wanted = at < end && c->path[at];
        if (wanted && at < place.pages)
            wanted = at >= tail && !swa_has(c->host, c->on_host[at]) &&
                     swa_has(c->device, c->path[at]);
        bool cut = !wanted || at - from == most || at == place.pages;
        if (cut && at > from && !begin_write(c, node, place, from, at - from)) {
            drop_write(c, end - from);
            return false;
        }
        if (cut) from = wanted ? at : at + 1;
    }
    return true;
}

bool swa_hi_back_up(rad_swa_hicache *c, uint32_t node, uint32_t end)
{
    const radix_tree *t = &c->device->tree;
    rad_key key = swa_hi_path_key(c, t, node, end);
    swa_hi_place place = swa_hi_find(c->host, &key, end, true);
    if (place.pages) swa_hi_save(c, &key, place.pages);
    swa_hi_path_pages(t, node, end, c->path);
    leave_out_what_is_under_way(c, end);
    /* Its copies must not push out what they go behind. */
    rad_swa_receipt hold = {0};
    if (place.pages) {
        hold = swa_lock_node(c->host, place.node);
        swa_hi_path_pages(&c->host->tree, place.node, place.pages, c->on_host);
    }
    bool ok = write_path(c, node, end, place);
    if (hold.held) (void)rad_swa_cache_dec_lock_ref(c->host, &hold, NULL);
    return ok;
}

/* ---- what is done ---- */

/* Of pages [begin, begin + count) of the key; the pages before are in the tree. */
static bool keep_hashes(rad_swa_hicache *c, const rad_key *key, uint32_t begin,
                        const rad_page *host, uint32_t count, const rad_page_hash *chain)
{
    rad_page_hash prior;
    if (begin && !chain) {
        swa_hi_place place = swa_hi_find(c->host, key, begin, false);
        if (place.pages < begin) return false;
        swa_hi_path_pages(&c->host->tree, place.node, begin, c->on_host);
        prior = c->hashes[c->on_host[begin - 1]];
    }
    return page_chain_keep(&c->chain, key, begin, host, count, chain, &prior, c->hashes) == RAD_OK;
}

uint32_t swa_hi_hang(rad_swa_hicache *c, const rad_key *key, uint32_t begin, const rad_page *host,
                     uint32_t count, const rad_page_hash *chain)
{
    uint32_t ps = c->page_size, lot = c->num_slots / ps, done = 0;
    for (uint32_t n; done < count; done += n) {
        n = RAD_MIN(lot, count - done);
        for (uint32_t k = 0; k < n * ps; k++)
            c->slots[k] = host[done + k / ps] * (rad_slot)ps + (rad_slot)(k % ps);
        rad_key front = swa_hi_front(c, key, begin + done + n);
        if (c->has_identity &&
            !keep_hashes(c, &front, begin + done, host + done, n, chain ? chain + done : NULL))
            return done;
        swa_insertion what = {
            .key = &front, .slots = c->slots, .from = begin + done, .pages = begin + done + n};
        uint32_t end, published;
        rad_status status = swa_insert(c->host, &what, &end, &published, NULL);
        RAD_ASSERT_ENV(&c->env, !end || status == RAD_OK);
        uint32_t hung = published > begin + done ? published - begin - done : 0;
        if (hung < n) return done + hung;
    }
    return done;
}

static uint32_t count_windows(const rad_swa_hicache *c, const rad_page *host, uint32_t count)
{
    uint32_t windows = 0;
    for (uint32_t i = 0; i < count; i++)
        windows += rad_swa_has_swa(c->host_kv, host[i]) != 0;
    return windows;
}

void swa_hi_write_done(void *cache, hi_ticket *k)
{
    rad_swa_hicache *c = cache;
    swa_op *op = (swa_op *)k;
    uint32_t hung = 0, end = k->begin + k->count, windows = op->num_swa;
    if (k->t.status == RAD_OK) {
        rad_key key = swa_hi_path_key(c, &c->device->tree, op->on_device.node.index, end);
        if (op->on_host.held) (void)rad_swa_cache_dec_lock_ref(c->host, &op->on_host, NULL);
        hung = swa_hi_hang(c, &key, k->begin, k->host, k->count, NULL);
        windows -= count_windows(c, k->host + hung, k->count - hung);
        c->stats.written_tokens[SIDE_FULL] += (uint64_t)hung * c->page_size;
        c->stats.written_tokens[SIDE_SWA] += (uint64_t)windows * c->page_size;
        if (hung) swa_hi_save(c, &key, k->begin + hung);
    } else {
        c->stats.failed_writes += k->t.status != RAD_NONE;
        c->epoch += k->t.status == RAD_NONE; /* what failed would fail again */
    }
    if (hung < k->count) {
        swa_hi_free_host(c, k->host + hung, k->count - hung);
        drop_write(c, k->count - hung);
    }
    tickets_give(&c->out, k);
}

/* ---- demotion ---- */

/* Nodes that a side will soon be evicted from, the coldest first. Looks at the top of the heap
 * only, so the order is approximate. */
static uint32_t coldest(const rad_swa_hicache *c, int side, uint32_t nodes[DEMOTE_NODES])
{
    const radix_tree *t = &c->device->tree;
    const heap *h = side == SIDE_FULL ? &t->leaves : &c->device->windows;
    uint32_t count = 0, end = RAD_MIN(h->count, (uint32_t)DEMOTE_LOOKED_AT);
    for (uint32_t i = 0; i < end; i++) {
        uint32_t id = heap_entry_id(&h->entries[i]), at;
        const radix_node *n = &t->nodes[id];
        if (!slab_is_live(&t->ids, id) || !n->parent) continue;
        if (side == SIDE_FULL ? !radix_is_evictable_leaf(n) : t->window_lock[id] != 0) continue;
        if (count == DEMOTE_NODES && n->last_access >= t->nodes[nodes[count - 1]].last_access)
            continue;
        at = count < DEMOTE_NODES ? count++ : count - 1;
        for (; at && t->nodes[nodes[at - 1]].last_access > n->last_access; at--)
            nodes[at] = nodes[at - 1];
        nodes[at] = id;
    }
    return count;
}

static bool demote_side(rad_swa_hicache *c, int side, uint64_t room)
{
    const radix_tree *t = &c->device->tree;
    uint32_t nodes[DEMOTE_NODES], count = coldest(c, side, nodes);
    for (uint32_t i = 0; i < count && room < c->demote_pages[side]; i++) {
        uint32_t id = nodes[i];
        const radix_node *n = &t->nodes[id];
        room += side == SIDE_FULL ? n->pages : swa_pages_of(c->device, id);
        uint64_t mark = (uint64_t)c->epoch << 32 | t->ids.generation[id];
        if (c->looked_at[id] == mark) continue; /* has its copy, and nothing was dropped since */
        bool wanted = c->params.write_policy != RAD_WRITE_THROUGH_SELECTIVE || n->hit_count;
        if (wanted && !swa_hi_back_up(c, id, swa_depth(t, id))) return false; /* no room for now */
        c->looked_at[id] = (uint64_t)c->epoch << 32 | t->ids.generation[id];
    }
    return true;
}

void swa_hi_demote(void *cache)
{
    rad_swa_hicache *c = cache;
    const rad_swa_allocator *kv = c->device->kv;
    uint64_t full = rad_swa_full_available_size(kv) / c->page_size;
    uint64_t swa = rad_swa_swa_available_size(kv) / c->page_size;
    bool full_is_short = full < c->demote_pages[SIDE_FULL];
    bool swa_is_short = swa < c->demote_pages[SIDE_SWA];
    if ((!full_is_short && !swa_is_short) || c->demoted_at == c->device->tree.clock) return;
    c->demoted_at =
        c->device->tree.clock; /* with nothing new it would copy what it copied before */
    if (full_is_short && !demote_side(c, SIDE_FULL, full)) return;
    if (swa_is_short) (void)demote_side(c, SIDE_SWA, swa);
}
