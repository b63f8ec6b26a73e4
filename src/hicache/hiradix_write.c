/* hiradix_write.c - device -> host: what gets a copy, and when the copy can be found.
 *
 *     hi_write_backup   owner: what of a path the host lacks; tickets and host pages for it
 *     hi_run_write      worker: copies
 *     hi_write_done     owner: the copies become the nodes' host pages; storage is next
 *
 *     path       | on the host | being written | to be written ...... |
 *                0             H               covered                end
 *     writes                   | op 3  | op 4  | op 5 | op 6 | ...        HI_WRITE_TOKENS each
 *
 * A write locks the node at the path's end on the device, so that nobody evicts what is copied, and
 * the one at H on the host, so that its place there stays. Both are names of nodes with their
 * depths: from there everything is found by going up, and no key is looked at. `covered` is written
 * down in the nodes (promised). When a write is acknowledged its pages are the nodes' host pages;
 * in the order in which writes began, since each goes on behind the one before. What would leave a
 * gap is dropped.
 *
 * Demotion. A copy made ahead costs an eviction nothing: while few device pages are free, poll
 * looks at the leaves that go next, and at some beyond them, and begins to copy those that the host
 * lacks. It catches what write_through could not copy, or what the host has dropped since.
 *
 * write_back loses nothing that the host has room for: a leaf that demotion has not come to is
 * copied when it is evicted, by the one who evicts, before its pages are given away. That is the
 * one place where a call waits for a copy. */
#include "hicache/hiradix_impl.h"

#include "cache/radix_path.h"
#include "mem/host_kv_pool.h"

enum {
    MOST_LOOKED_AT = 64,
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

static bool begin_write(hiradix_cache *c, uint32_t node, uint32_t depth, const radix_covered *path,
                        uint32_t begin, uint32_t count)
{
    hi_op *op = hi_op_take(c, TRANSFER_WRITE, count);
    if (!op) return false;
    op->k.begin = begin;
    op->on_device = hi_lock_device(c, node, depth);
    op->on_host = hi_lock_host(c, path->node, path->on_host);
    if (!hi_take_host_pages(c, op->k.host, count)) {
        tickets_give(&c->out, &op->k);
        return false;
    }
    radix_path_pages(c->tree, false, node, depth, begin, count, op->k.device);
    tickets_submit(&c->out, &op->k);
    return true;
}

/* How many of the first `end` pages of the path have been hit since they came. */
static uint32_t hit_pages(const radix_tree *t, uint32_t node, uint32_t depth, uint32_t end)
{
    for (radix_path p = radix_path_of(t, node, depth); radix_path_is(t, &p); radix_path_up(t, &p))
        if (t->nodes[p.node].hit_count) return RAD_MIN(p.end, end);
    return 0;
}

bool hi_write_backup(hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t end, bool force)
{
    if (!force && c->params.write_policy == RAD_WRITE_BACK) return true;
    if (!force && c->params.write_policy == RAD_WRITE_THROUGH_SELECTIVE)
        end = hit_pages(c->tree, node, depth, end);
    if (!end) return true;
    radix_covered path = radix_host_covered(c->tree, node, depth);
    if (path.on_host && c->store.backend.ops)
        hi_write_backup_storage(c, path.node, path.on_host, 0, RAD_MIN(path.on_host, end));
    uint32_t at = path.promised;
    uint32_t most = RAD_MAX((uint32_t)HI_WRITE_TOKENS / c->page_size, 1u);
    bool ok = true;
    for (uint32_t count; ok && at < end; at += ok ? count : 0) {
        count = RAD_MIN(most, end - at);
        ok = begin_write(c, node, depth, &path, at, count);
    }
    if (at > path.promised) radix_host_promise(c->tree, node, depth, at);
    if (!ok) drop_write(c, end - at);
    return ok;
}

void hi_write_done(void *cache, hi_ticket *k)
{
    hiradix_cache *c = cache;
    hi_op *op = (hi_op *)k;
    uint32_t node = op->on_device.node.index, depth = op->on_device.depth;
    uint32_t done = 0, last, last_depth;
    if (k->t.status == RAD_OK) {
        done =
            radix_host_fill(c->tree, node, depth, k->begin, k->host, k->count, &last, &last_depth);
        c->stats.written_tokens += (uint64_t)done * c->page_size;
        if (done && c->store.backend.ops)
            hi_write_backup_storage(c, last, last_depth, k->begin, k->begin + done);
    } else {
        c->stats.failed_writes += k->t.status != RAD_NONE;
        c->epoch += k->t.status == RAD_NONE; /* what failed would fail again */
    }
    if (done < k->count) {
        radix_host_unpromise(c->tree, node, depth, k->begin + done);
        hi_free_host_pages(c, k->host + done, k->count - done);
        drop_write(c, k->count - done);
    }
    c->stats.device_releases++;
    tickets_give(&c->out, k);
}

/* ---- at the last moment ---- */

/* Copies the node's pages into host pages that are already its region's; there is room for them. */
static rad_status copy_node(hiradix_cache *c, uint32_t node)
{
    enum { LOT = 128 };
    radix_tree *t = c->tree;
    const radix_node *n = &t->nodes[node];
    rad_page *host = t->host.regions + n->at, from[LOT];
    if (rad_kv_alloc(c->host_pages, host, n->pages) != RAD_OK) return RAD_FULL;
    hi_note_taken(c, host, n->pages);
    rad_status status = RAD_OK;
    for (uint32_t at = 0, lot; !status && at < n->pages; at += lot) {
        lot = RAD_MIN((uint32_t)LOT, n->pages - at);
        page_runs_expand(t->regions + n->at, at, lot, 1, from);
        status = rad_host_kv_pool_backup(c->pool, from, host + at, lot);
    }
    if (!status) {
        radix_host_put(t, node, NULL);
        c->stats.written_tokens += (uint64_t)n->pages * c->page_size;
        return RAD_OK;
    }
    c->stats.failed_writes++;
    hi_free_host_pages(c, host, n->pages);
    host[0] = 0;
    return status;
}

void hi_save_leaf(void *cache, uint32_t leaf, uint32_t pages)
{
    hiradix_cache *c = cache;
    radix_tree *t = c->tree;
    uint32_t depth = radix_depth(c->tree, leaf);
    radix_covered path = radix_host_covered(t, leaf, depth);
    hi_hold front = hi_lock_host(c, path.node, path.on_host);
    bool ok = hi_make_host_room(c, depth - path.on_host);
    for (uint32_t id = leaf, below = 0; !radix_on_host(t, id); id = t->nodes[id].parent) {
        t->host.of[id].below = below; /* evicting on the host may have joined some of them */
        below = id;
        path.node = id;
    }
    for (uint32_t id = path.node; ok && id; id = t->host.of[id].below)
        ok = copy_node(c, id) == RAD_OK;
    hi_unlock_host(c, &front);
    if (!ok) drop_write(c, pages);
    if (ok && c->store.backend.ops) hi_write_backup_storage(c, leaf, depth, path.on_host, depth);
}

/* Whether the leaf was found to have its copy, and nothing was dropped since. */
static bool was_covered(const hiradix_cache *c, rad_ref leaf)
{
    return c->looked_at[leaf.index] == c->epoch && c->looked_gen[leaf.index] == leaf.generation;
}

/* The leaf gets its copy, unless it has one or is not worth it. False: no room for now. */
static bool demote_leaf(hiradix_cache *c, rad_ref leaf)
{
    uint32_t hits = c->tree->nodes[leaf.index].hit_count;
    if (c->params.write_policy != RAD_WRITE_THROUGH_SELECTIVE || hits) {
        uint32_t end = radix_depth(c->tree, leaf.index);
        if (!hi_write_backup(c, leaf.index, end, end, true)) return false;
    }
    c->looked_at[leaf.index] = c->epoch;
    c->looked_gen[leaf.index] = leaf.generation;
    return true;
}

static uint32_t pages_of(const hiradix_cache *c, rad_ref leaf)
{
    return c->tree->nodes[leaf.index].pages;
}

/* Names of unlocked device leaves that will be evicted soon, the coldest first. Looks at the top of
 * the heap only, so the order is approximate. */
static uint32_t coldest_leaves(const hiradix_cache *c, rad_ref leaves[DEMOTE_LEAVES])
{
    const radix_tree *t = c->tree;
    heap_key keys[DEMOTE_LEAVES];
    uint32_t count = 0, end = RAD_MIN(t->leaves.count, (uint32_t)MOST_LOOKED_AT);
    for (uint32_t i = 0; i < end; i++) {
        uint32_t id = heap_entry_id(&t->leaves.entries[i]);
        if (!radix_is_evictable_leaf(t, id)) continue;
        heap_key key = t->policy->grows ? radix_leaf_key(t, id, RADIX_DEVICE)
                                        : heap_key_of(&t->leaves, id);
        if (count == DEMOTE_LEAVES && key >= keys[count - 1]) continue;
        uint32_t at = count < DEMOTE_LEAVES ? count++ : count - 1;
        for (; at && keys[at - 1] > key; at--) {
            keys[at] = keys[at - 1];
            leaves[at] = leaves[at - 1];
        }
        keys[at] = key;
        leaves[at] = radix_cache_ref(c->nodes, id);
    }
    return count;
}

static bool demote_coldest(hiradix_cache *c, uint64_t room)
{
    rad_ref leaves[DEMOTE_LEAVES];
    uint32_t count = coldest_leaves(c, leaves);
    for (uint32_t i = 0; i < count && room < c->demote_pages; i++) {
        if (!radix_is_ref(c->tree, leaves[i])) continue; /* joined with another meanwhile */
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
    uint32_t places = c->tree->leaves.count, begun = 0;
    uint64_t dropped_writes, dropped_backups;
    for (uint32_t i = 0; i < SWEEP_PLACES && begun < SWEEP_LEAVES && c->sweeping; i++) {
        c->sweeping = c->sweep_place < places && room + c->sweep_pages / 2 < c->demote_pages &&
                      c->sweep_pages < c->num_host_pages / 8;
        if (!c->sweeping) return;
        uint32_t id = heap_entry_id(&c->tree->leaves.entries[c->sweep_place]);
        rad_ref leaf = radix_cache_ref(c->nodes, id);
        bool evictable = radix_is_evictable_leaf(c->tree, id);
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
    uint64_t moved = c->nodes->inserted + c->nodes->evicted;
    if (room >= c->demote_pages) {
        c->sweeping = false;
        return;
    }
    bool is_new = moved != c->demoted_at;
    c->demoted_at = moved; /* with nothing new it would copy what it copied before */
    if (is_new && !demote_coldest(c, room)) return;
    sweep(c, room, moved);
}
