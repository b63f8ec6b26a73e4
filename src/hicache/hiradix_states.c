/* hiradix_states.c - snapshots of recurrent states between the tiers.
 *
 * A snapshot goes with the end of a node, so a transfer moves one of them, or, of a load or fetch,
 * the one at its end besides its pages:
 *
 *     write     device -> host     a ticket of its own, behind those of the pages before it
 *     load      host -> device     into the request's spare state, before the first layer; where
 *                                  the device has the pages still it comes alone
 *     storage   host -> storage    the record of the state, then a mark: a small record that says
 *                                  that there is one behind this page
 *     fetch     storage -> host    the last mark of the pages that are stored says where it ends
 *
 *     pages     o o o o o o o o o o          stored, a record each, under the hash of all before
 *     marks         m       m                under the same hashes and a fingerprint of their own:
 *                           ^                a call finds the last of 128 pages
 *
 * What a load brought is hung in on the device when its request publishes the pages before it
 * (hi_unfinished_req): the next one finds it there. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"
#include "cache/radix_path.h"
#include "mem/state_pool.h"

/* ---- states of the host ---- */

rad_state hi_take_host_state(hiradix_cache *c)
{
    rad_state state;
    if (!rad_state_available(c->host_states)) (void)radix_state_evict(c->tree, RADIX_HOST, 1);
    if (rad_state_alloc(c->host_states, &state) != RAD_OK) return 0;
    if (c->state_store.states) bits_clear(c->state_store.saved, (size_t)state);
    return state;
}

void hi_drop_host_state(void *cache, rad_state state)
{
    hiradix_cache *c = cache;
    rad_status status = rad_state_free(c->host_states, state);
    RAD_ASSERT_ENV(&c->base.env, status == RAD_OK);
}

void hi_lock_state(hiradix_cache *c, radix_tier tier, hi_hold *hold)
{
    RAD_ASSERT_ENV(&c->base.env, hold->node.index && !hold->state_held);
    if (c->tree->states[tier]) hold->state_held = radix_state_lock(c->tree, tier, hold->node.index);
}

/* ---- device -> host ---- */

static bool begin_write(hiradix_cache *c, uint32_t node, uint32_t depth)
{
    hi_op *op = hi_op_take(c, TRANSFER_WRITE, 0);
    if (!op) return false;
    op->on_device = hi_lock_device(c, node, depth);
    hi_lock_state(c, RADIX_DEVICE, &op->on_device);
    op->device_state = radix_state_of(c->tree, RADIX_DEVICE, node);
    op->host_state = hi_take_host_state(c);
    if (!op->host_state) {
        tickets_give(&c->out, &op->k);
        return false;
    }
    hi_states(c)->nodes[node].promised = 1;
    tickets_submit(&c->out, &op->k);
    return true;
}

/* Whether the host has all pages before the node's end, or gets them. */
static bool is_promised(const hiradix_cache *c, uint32_t node)
{
    return c->tree->host.of[node].promised == c->tree->nodes[node].pages;
}

void hi_write_states(hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t end)
{
    radix_tree *t = c->tree;
    if (!hi_states(c)) return;
    radix_lock(t, node); /* making room on the host joins nodes */
    for (radix_path p = radix_path_of(t, node, depth); radix_path_is(t, &p); radix_path_up(t, &p)) {
        if (p.end > end || !radix_state_of(t, RADIX_DEVICE, p.node)) continue;
        if (!radix_state_is_unsaved(t, p.node)) break; /* with it, those above were looked at */
        if (!t->states[RADIX_DEVICE]->nodes[p.node].live || !is_promised(c, p.node)) continue;
        if (!begin_write(c, p.node, p.end)) {
            c->stats.dropped_states++;
            break;
        }
        p = radix_path_of(t, p.node, p.end); /* its front may be another node's now, or its own */
    }
    radix_unlock(t, node);
}

rad_status hi_run_write_state(hiradix_cache *c, const hi_op *op)
{
    return state_pool_move(c->host_states, op->host_state, c->base.states, op->device_state, false);
}

void hi_state_written(hiradix_cache *c, hi_op *op)
{
    radix_tree *t = c->tree;
    uint32_t node = op->on_device.node.index, depth = op->on_device.depth;
    rad_status status = op->k.t.status;
    hi_states(c)->nodes[node].promised = 0;
    if (status == RAD_OK && radix_on_host(t, node) && !radix_state_of(t, RADIX_HOST, node)) {
        radix_state_put(t, RADIX_HOST, node, op->host_state);
        op->host_state = 0;
        c->stats.written_states++;
        hi_write_backup_storage_state(c, node, depth);
    } else {
        c->stats.failed_writes += status < 0;
        c->epoch += status == RAD_NONE; /* what failed would fail again */
        c->stats.dropped_states++;
        hi_drop_host_state(c, op->host_state);
        op->host_state = 0;
    }
    c->stats.device_releases++;
    tickets_give(&c->out, &op->k);
}

void hi_save_states(hiradix_cache *c, uint32_t leaf, uint32_t depth)
{
    radix_tree *t = c->tree;
    if (!hi_states(c)) return;
    radix_lock(t, leaf);
    for (radix_path p = radix_path_of(t, leaf, depth); radix_path_is(t, &p); radix_path_up(t, &p)) {
        if (!radix_state_of(t, RADIX_DEVICE, p.node)) continue;
        if (!radix_state_is_unsaved(t, p.node)) break;
        bool has_room = hi_states(c)->there < hi_states(c)->num_states;
        if (!t->states[RADIX_DEVICE]->nodes[p.node].live && !has_room) continue;
        rad_state state = hi_take_host_state(c), from = radix_state_of(t, RADIX_DEVICE, p.node);
        if (!state) break;
        p = radix_path_of(t, p.node, p.end);
        if (state_pool_move(c->host_states, state, c->base.states, from, false) != RAD_OK) {
            c->stats.failed_writes++;
            hi_drop_host_state(c, state);
            break;
        }
        radix_state_put(t, RADIX_HOST, p.node, state);
        c->stats.written_states++;
        hi_write_backup_storage_state(c, p.node, p.end);
    }
    radix_unlock(t, leaf);
}

/* ---- host -> device ---- */

uint32_t hi_extend_prefix(hiradix_cache *c, const rad_req_kv *req, radix_pos pos,
                          rad_receipt *receipt)
{
    uint32_t from = req->protected_len / c->page_size;
    *receipt = (rad_receipt){0};
    if (!hi_states(c) || hi_windows(c)) return from;
    radix_to_tier(c->tree, &pos, RADIX_DEVICE);
    if (pos.child || pos.pages <= from) return from;
    *receipt = (rad_receipt){.node = radix_cache_ref(c->nodes, pos.node),
                             .held = 1,
                             .stamp = req->lock.held ? req->lock.stamp : (uint32_t)c->tree->clock};
    radix_cache_hold(c->nodes, receipt);
    radix_cache_let_go_state(c->nodes, receipt);
    return pos.pages;
}

void hi_move_prefix(hiradix_cache *c, rad_req_kv *req, const rad_receipt *receipt, uint32_t pages)
{
    enum { LOT = 128 };
    rad_page lot[LOT];
    uint32_t ps = c->page_size, at = req->protected_len / ps, node = receipt->node.index;
    uint32_t depth = radix_depth(c->tree, node);
    rad_slot *row = rad_req_to_token_row(c->base.rows, req->row);
    for (uint32_t n; at < pages; at += n) {
        n = RAD_MIN((uint32_t)LOT, pages - at);
        radix_path_pages(c->tree, false, node, depth, at, n, lot);
        radix_expand(c->tree, lot, n, row + (size_t)at * ps);
    }
    if (req->lock.held && req->lock.node.index) radix_cache_let_go(c->nodes, &req->lock);
    req->lock = *receipt;
    req->protected_len = req->committed_len = req->allocated_len = pages * ps;
}

rad_state hi_take_spare(hiradix_cache *c, const rad_req_kv *req)
{
    rad_state state = req->spare_state;
    if (state) return state;
    if (!rad_state_available(c->base.states)) (void)rad_cache_evict_state(c->device, 1, NULL);
    return rad_state_alloc(c->base.states, &state) == RAD_OK ? state : 0;
}

rad_status hi_run_load_state(hiradix_cache *c, const hi_op *op)
{
    return state_pool_move(c->host_states, op->host_state, c->base.states, op->device_state, true);
}

/* ---- the cache's table ---- */

rad_status hi_put_state(rad_cache *cache, rad_ref node, uint32_t depth_tokens, rad_state state,
                        rad_error *err)
{
    hiradix_cache *c = (hiradix_cache *)cache;
    rad_status status = c->device->ops->put_state(c->device, node, depth_tokens, state, err);
    if (status || !hi_states(c) || !radix_on_device(c->tree, node.index)) return status;
    hi_write_put_state(c, node.index, radix_depth(c->tree, node.index),
                       depth_tokens / c->page_size);
    return RAD_OK;
}

static bool holds_state(const hi_ticket *k)
{
    return ((const hi_op *)k)->host_state != 0;
}

rad_status hi_evict_state(rad_cache *cache, uint64_t count, uint64_t *evicted)
{
    return hi_evict_by((hiradix_cache *)cache, rad_cache_evict_state, holds_state, count, evicted);
}

/* Loads whose requests went own the states that they bring. */
static rad_state orphaned_state(const hi_ticket *k)
{
    return k->t.kind == TRANSFER_LOAD && k->orphan ? ((const hi_op *)k)->device_state : 0;
}

bool hi_owns_state(const rad_cache *cache, rad_state state)
{
    const hiradix_cache *c = (const hiradix_cache *)cache;
    if (c->device->ops->owns_state(c->device, state)) return true;
    for (const hi_ticket *k = NULL; c->out.orphans && (k = tickets_next(&c->out, k));)
        if (state && orphaned_state(k) == state) return true;
    return false;
}

void hi_visit_states(const rad_cache *cache, cache_state_fn visit, void *user)
{
    const hiradix_cache *c = (const hiradix_cache *)cache;
    c->device->ops->visit_states(c->device, visit, user);
    for (const hi_ticket *k = NULL; c->out.orphans && (k = tickets_next(&c->out, k));)
        if (orphaned_state(k)) visit(user, orphaned_state(k));
}

uint64_t hi_orphaned_states(const hiradix_cache *c)
{
    uint64_t count = 0;
    for (const hi_ticket *k = NULL; c->out.orphans && (k = tickets_next(&c->out, k));)
        count += orphaned_state(k) != 0;
    return count;
}

typedef struct host_state_check {
    const rad_state_pool *pool;
    uint64_t there;
    bool is_free;
} host_state_check;

static void check_host_state(void *user, rad_state state)
{
    host_state_check *check = user;
    check->there++;
    check->is_free |= !rad_state_is_taken(check->pool, state);
}

rad_status hi_check_states(const hiradix_cache *c, rad_error *err)
{
    host_state_check check = {.pool = c->host_states};
    if (!check.pool) return RAD_OK;
    radix_state_visit(c->tree, RADIX_HOST, check_host_state, &check);
    for (const hi_ticket *k = NULL; (k = tickets_next(&c->out, k));)
        if (hi_loose_state(k)) check_host_state(&check, hi_loose_state(k));
    uint64_t taken = rad_state_pool_num_states(check.pool) - rad_state_available(check.pool);
    if (check.is_free || check.there != taken)
        return rad_fail(err, RAD_E_CORRUPT,
                        "hicache_check: %llu states of the host are taken, %llu have an owner",
                        (unsigned long long)taken, (unsigned long long)check.there);
    return rad_state_pool_check(check.pool, err);
}
