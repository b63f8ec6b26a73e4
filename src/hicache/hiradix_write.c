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
 * Windows. Behind the pages go the window sides of those before the path's end, as far as the host
 * has them neither nor gets them; only where the device has the whole window, since nobody can go
 * on with less, and a page more if it has that: who comes with the same prompt computes its last
 * token again, so his window ends a page before. A node's window side ends where the node does. So
 * they go in lots from the back, and each of them, as it comes, makes the window side of a node
 * longer towards its front:
 *
 *     path       ............. | w w w w w w w w w |       window = 9
 *     writes                   | op 9  | op 8  | 7 |
 *
 * Their host pages are loose until then: the pages that they go with may not be there yet.
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
#include "mem/kv_window.h"

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
    if (((const hi_op *)k)->host_state) return hi_run_write_state(c, (const hi_op *)k);
    for (uint32_t at = 0; c->full.host && at < k->count; at += LOT) {
        if (atomic_load(&k->t.cancelled)) return RAD_NONE;
        rad_status status = host_kv_pool_backup(c->full.host, k->device + at, k->host + at,
                                                RAD_MIN(LOT, k->count - at));
        if (status) return status;
    }
    for (uint32_t at = 0; at < k->num_windows; at += LOT) {
        if (atomic_load(&k->t.cancelled)) return RAD_NONE;
        rad_status status = host_kv_pool_backup(c->window.host, k->device_windows + at,
                                                k->host_windows + at,
                                                RAD_MIN(LOT, k->num_windows - at));
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

/* ---- window sides ---- */

/* Copies the window side of a run, or begins to. False: it comes to nothing. */
typedef bool (*window_copy)(hiradix_cache *c, const hi_run *run);

/* The device pages' window pages, for those of the run. */
static void device_windows(const hiradix_cache *c, const hi_run *run, rad_page *pages)
{
    const rad_page *window_of = rad_kv_window_page_map(c->base.kv);
    uint32_t count = run->end - run->begin;
    radix_path_pages(c->tree, false, run->node, run->depth, run->begin, count, pages);
    for (uint32_t i = 0; i < count; i++) {
        pages[i] = window_of[pages[i]];
        RAD_ASSERT_ENV(&c->base.env, pages[i]);
    }
}

static void promise_windows(hiradix_cache *c, const hi_run *run)
{
    const radix_tree *t = c->tree;
    for (radix_path p = radix_path_of(t, run->node, run->depth); p.end > run->begin;
         radix_path_up(t, &p)) {
        window_node *wn = &t->windows[RADIX_HOST]->nodes[p.node];
        uint32_t from = RAD_MAX(p.begin, run->begin) - p.begin;
        if (p.begin < run->end) wn->promised = RAD_MIN(wn->promised, from);
    }
}

static bool begin_windows(hiradix_cache *c, const hi_run *run)
{
    uint32_t count = run->end - run->begin;
    hi_op *op = (hi_op *)tickets_take(&c->out, TRANSFER_WRITE, 0, count);
    if (!op) return false;
    op->k.window_begin = run->begin;
    op->on_device = hi_lock_device(c, run->node, run->depth);
    hi_lock_window(c, RADIX_DEVICE, &op->on_device, run->begin);
    if (!hi_take_host_windows(c, op->k.host_windows, count)) {
        op->k.num_windows = 0;
        tickets_give(&c->out, &op->k);
        return false;
    }
    device_windows(c, run, op->k.device_windows);
    promise_windows(c, run);
    tickets_submit(&c->out, &op->k);
    return true;
}

uint32_t hi_fill_windows(hiradix_cache *c, const hi_run *run, const rad_page *windows)
{
    radix_tree *t = c->tree;
    uint64_t filled = 0, lost = 0;
    uint32_t end = run->end;
    for (radix_path p = radix_path_of(t, run->node, run->depth); end > run->begin;
         radix_path_up(t, &p)) {
        if (p.begin >= end) continue;
        uint32_t begin = RAD_MAX(p.begin, run->begin), from = begin - p.begin, to = end - p.begin;
        uint32_t first = radix_window_of(t, RADIX_HOST, p.node)->first;
        bool fits = radix_on_host(t, p.node) && to >= first;
        const rad_page *of_run = windows + (begin - run->begin);
        for (uint32_t i = from; i < to; i++) {
            if (fits && i < first)
                kv_window_bind_loose(c->host_pages, radix_host_page_at(t, &t->nodes[p.node], i),
                                     of_run[i - from]);
            else
                kv_window_free_loose(c->host_pages, &of_run[i - from], 1);
        }
        if (fits && from < first) {
            radix_window_grow(t, RADIX_HOST, p.node, from);
            filled += RAD_MIN(first, to) - from;
        } else if (!fits) {
            t->windows[RADIX_HOST]->nodes[p.node].promised = first;
            lost += to - from;
        }
        end = begin;
    }
    c->stats.dropped_window_tokens += lost * c->page_size;
    return (uint32_t)filled;
}

/* What was promised to the run's nodes does not come. */
static void unpromise_windows(hiradix_cache *c, const hi_run *run)
{
    const radix_tree *t = c->tree;
    for (radix_path p = radix_path_of(t, run->node, run->depth); p.end > run->begin;
         radix_path_up(t, &p)) {
        uint32_t first = radix_window_of(t, RADIX_HOST, p.node)->first;
        if (p.begin < run->end) t->windows[RADIX_HOST]->nodes[p.node].promised = first;
    }
}

/* Here and now, for what is about to be evicted on the device. */
static bool copy_windows(hiradix_cache *c, const hi_run *run)
{
    rad_page to[HI_WRITE_TOKENS], from[HI_WRITE_TOKENS];
    uint32_t count = run->end - run->begin;
    if (!hi_take_host_windows(c, to, count)) return false;
    device_windows(c, run, from);
    if (host_kv_pool_backup(c->window.host, from, to, count) == RAD_OK) {
        c->stats.written_window_tokens += (uint64_t)hi_fill_windows(c, run, to) * c->page_size;
        return true;
    }
    c->stats.failed_writes++;
    kv_window_free_loose(c->host_pages, to, count);
    return false;
}

/* In lots, from the back. */
static bool copy_run(hiradix_cache *c, hi_run run, window_copy copy)
{
    uint32_t most = RAD_MAX((uint32_t)HI_WRITE_TOKENS / c->page_size, 1u), begin = run.begin;
    for (; run.end > begin; run.end = run.begin) {
        run.begin = run.end - begin > most ? run.end - most : begin;
        if (copy(c, &run)) continue;
        c->stats.dropped_window_tokens += (uint64_t)(run.end - begin) * c->page_size;
        return false;
    }
    return true;
}

/* Where the window before page `depth`, at which `node` ends, begins on the two tiers together;
 * `depth` where that is not a whole one. */
static uint32_t whole_window(const hiradix_cache *c, uint32_t node, uint32_t depth)
{
    const radix_tree *t = c->tree;
    const radix_window *w = hi_windows(c);
    uint32_t low = depth > w->pages ? depth - w->pages : 0, wanted = low ? low - 1 : 0;
    for (radix_path p = radix_path_of(t, node, depth); p.end > wanted; radix_path_up(t, &p)) {
        uint32_t first = radix_window_of(t, RADIX_DEVICE, p.node)->first;
        uint32_t from = p.begin + RAD_MIN(first, w->nodes[p.node].promised);
        if (from > RAD_MAX(wanted, p.begin)) return from <= low ? from : depth;
    }
    return wanted;
}

/* What of the window before the end of `node`, at page `depth`, the host neither has nor gets. */
static bool write_windows(hiradix_cache *c, uint32_t node, uint32_t depth, window_copy copy)
{
    const radix_tree *t = c->tree;
    uint32_t low = whole_window(c, node, depth);
    hi_run run = {.node = node, .depth = depth, .begin = depth, .end = depth};
    for (radix_path p = radix_path_of(t, node, depth); p.end > low; radix_path_up(t, &p)) {
        uint32_t from = RAD_MAX(p.begin, low);
        uint32_t to = p.begin + hi_windows(c)->nodes[p.node].promised;
        /* Copies of what is behind it have made room where the host had it and the device has not.
         */
        if (to > from && radix_window_of(t, RADIX_DEVICE, p.node)->first > from - p.begin) break;
        if (to == p.end && run.begin == p.end) { /* all of it, like what is behind it */
            run.begin = from;
            continue;
        }
        if (!copy_run(c, run, copy)) return false;
        run.begin = from;
        run.end = RAD_MAX(to, from);
    }
    return copy_run(c, run, copy);
}

/* The node that ends the path's first `end` pages; 0: they end within one. */
static uint32_t node_ending_at(const radix_tree *t, uint32_t node, uint32_t depth, uint32_t end)
{
    radix_path p = radix_path_of(t, node, depth);
    while (p.begin >= end && radix_path_is(t, &p))
        radix_path_up(t, &p);
    return p.end == end ? p.node : 0;
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
    if (path.on_host) hi_write_backup_storage_state(c, path.node, path.on_host);
    uint32_t at = path.promised;
    uint32_t most = RAD_MAX((uint32_t)HI_WRITE_TOKENS / c->page_size, 1u);
    bool ok = true;
    for (uint32_t count; ok && at < end; at += ok ? count : 0) {
        count = RAD_MIN(most, end - at);
        ok = begin_write(c, node, depth, &path, at, count);
    }
    if (at > path.promised) radix_host_promise(c->tree, node, depth, at);
    if (!ok) drop_write(c, end - at);
    hi_write_states(c, node, depth, end);
    uint32_t last = ok && hi_windows(c) ? node_ending_at(c->tree, node, depth, end) : 0;
    if (last && radix_on_host(c->tree, last)) hi_write_backup_storage_windows(c, last, end);
    return last ? write_windows(c, last, end, begin_windows) : ok;
}

void hi_write_put_state(hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t end)
{
    if (c->params.write_policy == RAD_WRITE_BACK) return;
    if (c->params.write_policy == RAD_WRITE_THROUGH_SELECTIVE)
        end = hit_pages(c->tree, node, depth, end);
    hi_write_states(c, node, depth, end);
}

void hi_write_shared_window(hiradix_cache *c, const rad_req_kv *req)
{
    const radix_tree *t = c->tree;
    uint32_t node = req->lock.node.index, depth = req->protected_len / c->page_size;
    if (!hi_windows(c) || !req->lock.held || !depth || c->params.write_policy == RAD_WRITE_BACK)
        return;
    if (!radix_is_ref(t, req->lock.node) || radix_depth(t, node) != depth) return;
    /* The end of this request's own last chunk has nothing behind it yet; and what is still on its
     * way to the host is there when the next one comes. */
    if (!t->nodes[node].num_children || !radix_on_host(t, node)) return;
    if (c->params.write_policy == RAD_WRITE_THROUGH_SELECTIVE && !t->nodes[node].hit_count) return;
    (void)write_windows(c, node, depth, begin_windows);
}

void hi_write_done(void *cache, hi_ticket *k)
{
    hiradix_cache *c = cache;
    hi_op *op = (hi_op *)k;
    uint32_t node = op->on_device.node.index, depth = op->on_device.depth;
    uint32_t done = 0, last, last_depth;
    if (op->host_state) {
        hi_state_written(c, op);
        return;
    }
    hi_run windows = {node, depth, k->window_begin, k->window_begin + k->num_windows};
    if (k->t.status == RAD_OK && !k->count) {
        uint64_t filled = hi_fill_windows(c, &windows, k->host_windows);
        c->stats.written_window_tokens += filled * c->page_size;
        if (radix_on_host(c->tree, node)) hi_write_backup_storage_windows(c, node, depth);
    } else if (k->t.status == RAD_OK) {
        done =
            radix_host_fill(c->tree, node, depth, k->begin, k->host, k->count, &last, &last_depth);
        c->stats.written_tokens += (uint64_t)done * c->page_size;
        if (done && c->store.backend.ops)
            hi_write_backup_storage(c, last, last_depth, k->begin, k->begin + done);
    } else {
        c->stats.failed_writes += k->t.status != RAD_NONE;
        c->epoch += k->t.status == RAD_NONE; /* what failed would fail again */
    }
    if (k->t.status && k->num_windows) {
        unpromise_windows(c, &windows);
        kv_window_free_loose(c->host_pages, k->host_windows, k->num_windows);
        c->stats.dropped_window_tokens += (uint64_t)k->num_windows * c->page_size;
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
    if (rad_kv_alloc_tail(c->host_pages, host, n->pages, 0) != RAD_OK) return RAD_FULL;
    hi_note_taken(c, host, n->pages);
    rad_status status = RAD_OK;
    for (uint32_t at = 0, lot; !status && at < n->pages; at += lot) {
        lot = RAD_MIN((uint32_t)LOT, n->pages - at);
        page_runs_expand(t->regions + n->at, at, lot, 1, from);
        if (c->full.host) status = host_kv_pool_backup(c->full.host, from, host + at, lot);
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
    /* For its window it may be no leaf: then evicting on the host could join it with its child. */
    if (!pages) radix_lock(t, leaf);
    bool ok = hi_make_host_room(c, depth - path.on_host);
    uint32_t top = 0;
    for (uint32_t id = leaf, below = 0; !radix_on_host(t, id); id = t->nodes[id].parent) {
        t->host.of[id].below = below; /* evicting on the host may have joined some of them */
        below = id;
        top = id;
    }
    for (uint32_t id = top; ok && id; id = t->host.of[id].below)
        ok = copy_node(c, id) == RAD_OK;
    hi_unlock_host(c, &front);
    if (!ok) drop_write(c, pages);
    if (ok) hi_save_states(c, leaf, depth);
    if (ok && hi_windows(c)) {
        (void)write_windows(c, leaf, depth, copy_windows);
        hi_write_backup_storage_windows(c, leaf, depth);
    }
    if (ok && c->store.backend.ops) hi_write_backup_storage(c, leaf, depth, path.on_host, depth);
    if (!pages) radix_unlock(t, leaf);
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
