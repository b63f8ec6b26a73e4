/* kv_events.c - handing over events, and all that is cached as events. */
#include <radish/kv_events.h>

#include "cache/radix_cache.h"
#include "cache/radix_journal.h"
#include "cache/radix_path.h"

static radix_journal *journal_of(const rad_cache *cache)
{
    const radix_cache *c = radix_cache_of(cache);
    return c ? c->tree.journal : NULL;
}

rad_status rad_cache_take_events(rad_cache *cache, rad_kv_event_fn visit, void *user)
{
    if (!cache || !visit) return RAD_E_INVAL;
    radix_journal *j = journal_of(cache);
    if (!j || !j->has_events) return RAD_E_STATE;
    event_ring_take(&j->events, visit, user);
    return RAD_OK;
}

/* The ring, emptied, is the place where the stores are put together. */
rad_status rad_cache_snapshot_events(rad_cache *cache, rad_kv_event_fn visit, void *user)
{
    if (!cache || !visit) return RAD_E_INVAL;
    radix_journal *j = journal_of(cache);
    if (!j || !j->has_events) return RAD_E_STATE;
    if (j->tell_all) {
        j->tell_all(j->tell_user, visit, user);
        return RAD_OK;
    }
    event_page cleared = {.entry = {.type = RAD_KV_CLEARED}};
    event_ring_forget(&j->events);
    event_ring_push(&j->events, &cleared);
    radix_journal_push_all(j, &radix_cache_of(cache)->tree, false, visit, user);
    event_ring_take(&j->events, visit, user);
    return RAD_OK;
}

/* Copies hashes upwards from where the walk ended. */
rad_status rad_cache_get_page_hashes(const rad_cache *cache, const rad_key *key,
                                     rad_page_hash *hashes, uint32_t room, uint32_t *count)
{
    if (!cache || !count || (!hashes && room)) return RAD_E_INVAL;
    *count = 0;
    rad_match match;
    rad_status status = rad_cache_lookup(cache, key, &match);
    if (status) return status;
    const radix_journal *j = journal_of(cache);
    if (!j || !j->hashes) return RAD_E_STATE;
    const radix_cache *c = radix_cache_of(cache);
    uint32_t pages = match.prefix_tokens / cache->page_size, id = match.last_node.index;
    *count = RAD_MIN(pages, room);
    const radix_tree *t = &c->tree;
    for (radix_path p = radix_path_of(t, id, radix_depth(t, id)); radix_path_is(t, &p);
         radix_path_up(t, &p)) {
        uint32_t to = RAD_MIN(p.end, *count);
        if (p.begin >= to) continue;
        memcpy(hashes + p.begin, j->hashes + t->nodes[p.node].at, (to - p.begin) * sizeof *hashes);
    }
    return RAD_OK;
}
