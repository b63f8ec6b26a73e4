/* hiradix_write.c - device -> host: what gets a copy, and when the copy can be found.
 *
 *     path       | on the host | being written | to be written ...... |
 *                0             H               covered                end
 *     writes                   | op 3  | op 4  | op 5 | op 6 | ...        HI_WRITE_TOKENS each
 *
 * A write locks its end on the device, so that nobody evicts what is copied, and H on the
 * host, so that its place there stays. When it is acknowledged its pages enter the host
 * tree; in the order in which writes began, since each hangs below the one before. What
 * cannot be hung any more is dropped.
 *
 * Demotion. An eviction never waits for a copy, so a page must have its copy before its
 * turn comes: while few device pages are free, poll looks at the leaves that go next, and at
 * some beyond them, and begins to copy those that the host lacks. This is all that write_back does,
 * and it catches what the other policies could not copy, or what the host has dropped since. */
#include "hicache/hiradix_impl.h"

#include "mem/host_kv_pool.h"

enum {
    DEMOTE_LEAVES = 16, /* looked at in one poll: the coldest, */
    SWEEP_PLACES = 64,  /* and beyond them; */
    SWEEP_LEAVES = 8    /* of those so many that may lack a copy */
};

rad_status hi_run_write(void *cache, hi_ticket *k, uint32_t worker)
{
    hiradix_cache *c = cache;
    (void)worker;
    enum { LOT = 32 }; /* pages between two looks at `cancelled` */
    for (uint32_t at = 0; at < k->count; at += LOT) {
        if (atomic_load(&k->t.cancelled)) return RAD_NONE;
        rad_status status = rad_host_kv_pool_backup(c->pool, k->device + at, k->host + at,
                                                    RAD_MIN(LOT, k->count - at));
        if (status) return status;
    }
    return RAD_OK;
}

static void drop_write(hiradix_cache *c, uint64_t pages)
{
    c->stats.dropped_write_tokens += pages * c->page_size;
}

/* How far the path is on the host, or will be when the writes under way are through. */
static uint32_t covered_by_writes(hiradix_cache *c, const rad_match_handle *path, uint32_t on_host)
{
    uint32_t covered = on_host, ps = c->page_size;
    for (const hi_ticket *k = c->out.oldest_write; k; k = k->newer) {
        uint32_t common = 0;
        rad_match_handle end = {.node = ((const hi_op *)k)->on_device.node,
                                .num_tokens = (k->begin + k->count) * ps};
        if (k->begin > covered || end.num_tokens <= covered * ps) continue;
        if (rad_match_handle_common(c->device, path, &end, &common) == RAD_OK)
            covered = RAD_MAX(covered, common / ps);
    }
    return covered;
}

static bool begin_write(hiradix_cache *c, const rad_match_handle *path, const rad_key *key,
                        uint32_t on_host, uint32_t begin, uint32_t count, uint64_t pin_ttl)
{
    uint32_t ps = c->page_size;
    hi_op *op = hi_op_take(c, TRANSFER_WRITE, count);
    if (!op) return false;
    op->k.begin = begin;
    op->pin_ttl = pin_ttl;
    rad_match_handle end = {.node = path->node, .num_tokens = (begin + count) * ps}, host;
    rad_key front = hi_key_front(c, key, on_host);
    bool ok = rad_match_handle_lock(c->device, &end, &op->on_device, NULL) == RAD_OK;
    if (ok && on_host)
        ok = rad_cache_match_handle(c->host, &front, &host) == RAD_OK &&
             host.num_tokens == on_host * ps &&
             rad_match_handle_lock(c->host, &host, &op->on_host, NULL) == RAD_OK;
    if (!ok || !hi_take_host_pages(c, op->k.host, count)) {
        tickets_give(&c->out, &op->k);
        return false;
    }
    hi_pages_of(c, c->device, &end, begin, count, op->k.device);
    tickets_submit(&c->out, &op->k);
    return true;
}

bool hi_back_up(hiradix_cache *c, const rad_key *key, rad_ref node, uint32_t end, bool force,
                uint64_t pin_ttl)
{
    rad_match match;
    if (!force && c->params.write_policy == RAD_WRITE_BACK) return true;
    if (!force && c->params.write_policy == RAD_WRITE_THROUGH_SELECTIVE)
        end = tree_path_hit(c->device_tree, node, end);
    rad_key front = hi_key_front(c, key, end);
    if (!end || rad_cache_lookup(c->host, &front, &match) != RAD_OK) return true;
    uint32_t on_host = match.prefix_tokens / c->page_size;
    if (on_host && c->counted) tree_path_carry(c->device_tree, node, c->counted, match.last_node);
    if (on_host && c->store.backend.ops) hi_save(c, &front, 0, on_host);
    if (on_host == end) return true;
    rad_match_handle path = {.node = node, .num_tokens = end * c->page_size};
    uint32_t at = covered_by_writes(c, &path, on_host);
    uint32_t most = RAD_MAX((uint32_t)HI_WRITE_TOKENS / c->page_size, 1u);
    for (uint32_t count; at < end; at += count) {
        count = RAD_MIN(most, end - at);
        if (!begin_write(c, &path, key, on_host, at, count, pin_ttl)) {
            drop_write(c, end - at);
            return false;
        }
    }
    return true;
}

uint32_t hi_hang(hiradix_cache *c, const rad_key *key, uint32_t begin, const rad_page *host,
                 uint32_t count, const rad_page_hash *chain)
{
    uint32_t ps = c->page_size, had = 0, lot = c->num_slots / ps;
    rad_key front = hi_key_front(c, key, begin);
    rad_match_handle at = {0};
    rad_page before = 0;
    if (begin &&
        (rad_cache_match_handle(c->host, &front, &at) != RAD_OK || at.num_tokens != begin * ps))
        return 0;
    if (begin && c->has_identity) hi_pages_of(c, c->host, &at, begin - 1, 1, &before);
    rad_page_hash prior = c->has_identity ? c->hashes[before] : (rad_page_hash){{0}};
    for (uint32_t i = 0, n; i < count; i += n) {
        n = RAD_MIN(lot, count - i);
        for (uint32_t k = 0; k < n * ps; k++)
            c->slots[k] = host[i + k / ps] * (rad_slot)ps + (rad_slot)(k % ps);
        if (c->has_identity && page_chain_keep(&c->chain, key, begin + i, host + i, n,
                                               chain ? chain + i : NULL, &prior, c->hashes))
            return i;
        front = hi_key_front(c, key, begin + i + n);
        rad_insert_params how = {.chunked = 1};
        if (rad_cache_insert_from(c->host, &at, &front, c->slots, &how, &had, NULL) != RAD_OK)
            return i;
        /* Somebody else's copy came first: ours of the front are not needed. */
        uint32_t fresh = begin + i + n - had / ps;
        if (n > fresh) hi_free_host_pages(c, host + i, n - fresh);
    }
    return count;
}

void hi_write_done(void *cache, hi_ticket *k)
{
    hiradix_cache *c = cache;
    hi_op *op = (hi_op *)k;
    uint32_t hung = 0, end = k->begin + k->count;
    if (k->t.status == RAD_OK) {
        rad_key key;
        tree_path_key(c->device_tree, op->on_device.node, end, c->tokens, &key);
        hung = hi_hang(c, &key, k->begin, k->host, k->count, NULL);
        c->stats.written_tokens += (uint64_t)hung * c->page_size;
        rad_match match;
        if (hung && c->counted && rad_cache_lookup(c->host, &key, &match) == RAD_OK)
            tree_path_carry(c->device_tree, op->on_device.node, c->counted, match.last_node);
        if (hung && op->pin_ttl) (void)rad_cache_pin_prefix(c->host, &key, op->pin_ttl, NULL);
        if (hung && c->store.backend.ops) hi_save(c, &key, k->begin, k->begin + hung);
    } else {
        c->stats.failed_writes += k->t.status != RAD_NONE;
        c->epoch += k->t.status == RAD_NONE; /* what failed would fail again */
    }
    if (hung < k->count) {
        hi_free_host_pages(c, k->host + hung, k->count - hung);
        drop_write(c, k->count - hung);
    }
    c->stats.device_releases++;
    tickets_give(&c->out, k);
}

/* Whether the leaf was found to have its copy, and nothing was dropped since. */
static bool was_covered(const hiradix_cache *c, rad_ref leaf)
{
    return c->looked_at[leaf.index] == c->epoch && c->looked_gen[leaf.index] == leaf.generation;
}

/* The leaf gets its copy, unless it has one or is not worth it. False: no room for now. */
static bool demote_leaf(hiradix_cache *c, rad_ref leaf)
{
    uint32_t hits = c->device_tree->tree.nodes[leaf.index].hit_count;
    if (c->params.write_policy != RAD_WRITE_THROUGH_SELECTIVE || hits) {
        rad_key key;
        uint32_t end = radix_cache_depth(c->device_tree, leaf.index);
        tree_path_key(c->device_tree, leaf, end, c->tokens, &key);
        if (!hi_back_up(c, &key, leaf, end, true, 0)) return false;
    }
    c->looked_at[leaf.index] = c->epoch;
    c->looked_gen[leaf.index] = leaf.generation;
    return true;
}

static uint32_t pages_of(const hiradix_cache *c, rad_ref leaf)
{
    return c->device_tree->tree.nodes[leaf.index].pages;
}

static bool demote_coldest(hiradix_cache *c, uint64_t room)
{
    rad_ref leaves[DEMOTE_LEAVES];
    uint32_t count = tree_coldest_leaves(c->device_tree, leaves, DEMOTE_LEAVES);
    for (uint32_t i = 0; i < count && room < c->demote_pages; i++) {
        room += pages_of(c, leaves[i]);
        if (!was_covered(c, leaves[i]) && !demote_leaf(c, leaves[i])) return false;
    }
    return true;
}

/* The top of the heap may hold nothing but leaves that are locked, or small ones that have their
 * copies. So a cursor goes on where the coldest end, a few places in a poll, until what it has
 * seen would make the room that is wanted: twice that, since places follow coldness roughly; and
 * not so far that a small host gives up copies for it that were wanted sooner. */
static void sweep(hiradix_cache *c, uint64_t room, uint64_t moved)
{
    if (!c->sweeping) {
        if (moved == c->swept_at) return; /* and nothing has come since */
        c->swept_at = moved;
        c->sweep_place = 0;
        c->sweep_pages = 0;
        c->sweeping = true;
    }
    uint32_t places = tree_num_leaf_places(c->device_tree), begun = 0;
    uint64_t dropped_writes, dropped_backups;
    for (uint32_t i = 0; i < SWEEP_PLACES && begun < SWEEP_LEAVES && c->sweeping; i++) {
        c->sweeping = c->sweep_place < places && room + c->sweep_pages / 2 < c->demote_pages &&
                      c->sweep_pages < c->num_host_pages / 8;
        if (!c->sweeping) return;
        bool evictable;
        rad_ref leaf = tree_leaf_at(c->device_tree, c->sweep_place, &evictable);
        bool covered = was_covered(c, leaf); /* also one that is locked for being copied */
        if (evictable && !covered) {
            dropped_writes = c->stats.dropped_write_tokens;
            dropped_backups = c->stats.dropped_backup_tokens;
            if (!demote_leaf(c, leaf)) { /* here again with the next poll: nothing was dropped */
                c->stats.dropped_write_tokens = dropped_writes;
                c->stats.dropped_backup_tokens = dropped_backups;
                return;
            }
            begun++;
        }
        if (evictable || covered) c->sweep_pages += pages_of(c, leaf);
        c->sweep_place++;
    }
}

void hi_demote(void *cache)
{
    hiradix_cache *c = cache;
    uint64_t room = rad_kv_available_pages(c->base.kv);
    uint64_t moved = c->device_tree->inserted + c->device_tree->evicted;
    if (room >= c->demote_pages) {
        c->sweeping = false;
        return;
    }
    bool is_new = moved != c->demoted_at;
    c->demoted_at = moved; /* with nothing new it would copy what it copied before */
    if (is_new && !demote_coldest(c, room)) return;
    sweep(c, room, moved);
}
