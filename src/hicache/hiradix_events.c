/* hiradix_events.c - KV events of all tiers, in one ring and in the order of what happened.
 *
 *     device, host -- the tree's journal --+--> its ring --> take, snapshot
 *     storage ------- acknowledgements ----+
 *
 * The tree tells what enters and leaves its tiers itself, and a copy becomes a node's only when
 * it is complete: so the host's events are P3's moments. Storage is in no tree. What
 * it acknowledged is told when the owner takes the acknowledgement, while the page is still
 * locked on the host, and its hash and tokens are read there. A bit for each host page
 * says that storage has it, as far as is known: a snapshot tells so much of storage.
 *
 * The formats that consumers read have no "cleared" of one tier. So when one goes, all is
 * cleared and what is left is stored anew. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"
#include "cache/radix_journal.h"
#include "cache/radix_path.h"

enum { FEWEST_PAGES = 1 << 16, MOST_PAGES = 1 << 20 }; /* of a ring whose size was not said */

void hi_events_params(const hiradix_cache *c, rad_cache_params *params)
{
    if (!c->params.tier_events || params->kv_event_pages) return;
    uint64_t pages = rad_kv_num_pages(params->kv_allocator) + 2 * (uint64_t)c->num_host_pages;
    params->kv_event_pages =
        (uint32_t)RAD_MIN(RAD_MAX(pages, (uint64_t)FEWEST_PAGES), (uint64_t)MOST_PAGES);
}

static event_medium storage_medium(const hiradix_cache *c)
{
    const rad_storage_ops *ops = c->store.backend.ops;
    bool on_disk = ops && STORE_HAS(ops, medium) && ops->medium == RAD_STORAGE_DISK;
    return on_disk ? EVENT_DISK : EVENT_EXTERNAL;
}

static void push_stored(hiradix_cache *c, uint32_t node, uint32_t at, const journal_seed *seed)
{
    const radix_tree *t = c->tree;
    event_page page = radix_journal_page(t->journal, t, node, at, seed);
    page.entry.medium = (uint8_t)storage_medium(c);
    event_ring_push(&t->journal->events, &page);
}

/* What storage has of what the host has. */
static void push_storage(hiradix_cache *c, rad_kv_event_fn visit, void *user)
{
    const radix_tree *t = c->tree;
    event_ring *ring = &t->journal->events;
    uint32_t depth;
    for (uint32_t id = 0; c->in_storage && (id = radix_next(t, id, &depth));) {
        const radix_node *n = &t->nodes[id];
        if (!radix_on_host(t, id)) continue;
        journal_seed seed = radix_journal_seed_of(t->journal, t, id);
        for (uint32_t i = 0; i < n->pages; i++) {
            if (!bits_get(c->in_storage, (size_t)radix_host_page_at(t, n, i))) continue;
            if (visit && ring->count == ring->capacity) event_ring_take(ring, visit, user);
            push_stored(c, id, i, &seed);
        }
    }
}

static void tell_all(void *user, rad_kv_event_fn visit, void *visit_user)
{
    hiradix_cache *c = user;
    radix_journal *journal = c->tree->journal;
    event_ring *ring = &journal->events;
    event_page cleared = {.entry = {.type = RAD_KV_CLEARED}};
    event_ring_forget(ring);
    event_ring_push(ring, &cleared);
    radix_journal_push_all(journal, c->tree, false, visit, visit_user);
    radix_journal_push_all(journal, c->tree, true, visit, visit_user);
    push_storage(c, visit, visit_user);
    if (visit) event_ring_take(ring, visit, visit_user);
}

rad_status hi_events_begin(hiradix_cache *c, rad_error *err)
{
    if (!c->params.tier_events) return RAD_OK;
    if (c->has_identity) {
        c->in_storage = rad_alloc(&c->base.env, hi_events_bytes(c));
        if (!c->in_storage) return rad_fail(err, RAD_E_NOMEM, "hicache: no memory for events");
    }
    c->tree->journal->tell_all = tell_all;
    c->tree->journal->tell_user = c;
    return RAD_OK;
}

size_t hi_events_bytes(const hiradix_cache *c)
{
    if (!c->params.tier_events || !c->has_identity) return 0;
    return bits_words((size_t)c->num_host_pages + 1) * sizeof *c->in_storage;
}

void hi_events_cleared(hiradix_cache *c, uint32_t tiers)
{
    if ((tiers & RAD_TIER_STORAGE) && c->in_storage) memset(c->in_storage, 0, hi_events_bytes(c));
    if (c->params.tier_events && tiers) tell_all(c, NULL, NULL);
}

void hi_events_taken(hiradix_cache *c, const rad_page *pages, uint32_t count)
{
    for (uint32_t i = 0; c->in_storage && i < count; i++)
        bits_clear(c->in_storage, (size_t)pages[i]);
}

void hi_events_stored(hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t begin,
                      uint32_t count, const rad_page *done)
{
    if (!c->in_storage || !count) return;
    const radix_tree *t = c->tree;
    RAD_ASSERT_ENV(&c->base.env, begin + count <= depth);
    journal_seed seed = radix_journal_seed_of(t->journal, t, node);
    radix_path p = {0};
    for (uint32_t at = begin; at < begin + count; at++) {
        if (at == begin || at == p.end) /* the next node down */
            for (p = radix_path_of(t, node, depth); p.begin > at;)
                radix_path_up(t, &p);
        if (done && done[at - begin] != HI_STORED) continue; /* a check tells nothing new */
        rad_page page = radix_host_page_at(t, &t->nodes[p.node], at - p.begin);
        bits_set(c->in_storage, (size_t)page);
        push_stored(c, p.node, at - p.begin, &seed);
    }
}

void hi_events_note_space(hiradix_cache *c, hi_op *op, const rad_key *key)
{
    if (!c->in_storage) return;
    journal_seed seed = radix_journal_seed(c->tree->journal, key->extra_key, key->cache_salt);
    op->k.namespace_digest = seed.id;
    op->event_spaces = seed.spaces;
}

void hi_events_lost(hiradix_cache *c, const hi_op *op)
{
    if (!c->in_storage || !op->lost_page) return;
    event_page gone = {.hash = rad_page_hash_event(&op->k.chain[op->lost_page - 1]),
                       .entry = {.type = RAD_KV_REMOVED, .space = op->k.namespace_digest}};
    gone.entry.spaces = (uint8_t)op->event_spaces;
    gone.entry.medium = (uint8_t)storage_medium(c);
    event_ring_push(&c->tree->journal->events, &gone);
}
