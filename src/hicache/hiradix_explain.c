/* hiradix_explain.c - where a match over the tiers ends, and what became of a prefetch.
 *
 * Each tier is explained by itself (explain.c); here the two answers are laid side by side. What
 * became of a prefetch is written down when it is refused or ends, on the owner's thread; one
 * report is kept, the last. */
#include <radish/hicache_explain.h>

#include "hicache/hiradix_impl.h"

#include "base/bits.h"
#include "cache/radix_path.h"

/* Writes as much of a struct that begins with its size as the caller knows. */
static rad_status give(void *to, const void *from, size_t known)
{
    size_t given;
    memcpy(&given, to, sizeof given);
    if (given < sizeof given || given > 65536) return RAD_E_INVAL;
    memset((char *)to + sizeof given, 0, given - sizeof given);
    memcpy((char *)to + sizeof given, (const char *)from + sizeof given,
           RAD_MIN(given, known) - sizeof given);
    return RAD_OK;
}

/* How many of the host's pages [from, end) of the key were fetched and not loaded yet. */
static uint32_t fetched_pages(const hiradix_cache *c, const rad_key *key, uint32_t from,
                              uint32_t end)
{
    uint32_t count = 0;
    if (!c->has_identity || from >= end) return 0;
    const radix_tree *t = c->tree;
    radix_pos pos = hi_follow(c, key, hi_key_pages(c, key), 0, 0, 0);
    if (!pos.node) return 0;
    radix_to_tier(t, &pos, RADIX_HOST);
    for (radix_path p = radix_path_to(t, &pos); radix_path_is(t, &p) && p.end > from;
         radix_path_up(t, &p))
        for (uint32_t at = RAD_MAX(p.begin, from); at < RAD_MIN(p.end, end); at++) {
            rad_page page = radix_host_page_at(t, &t->nodes[p.node], at - p.begin);
            count += bits_get(c->fetched, (size_t)page);
        }
    return count;
}

rad_status rad_hicache_explain(const rad_cache *cache, const rad_key *key,
                               rad_tier_explanation *explanation)
{
    const hiradix_cache *c = hiradix_of(cache);
    rad_explanation device, host;
    if (!explanation) return RAD_E_INVAL;
    if (!c) return RAD_E_UNSUPPORTED;
    if (!cache_key_is_sound(key)) return RAD_E_INVAL;
    rad_status status = radix_cache_explain(c->nodes, key, false, &device);
    if (!status) status = radix_cache_explain(c->nodes, key, true, &host);
    if (status) return status;
    uint32_t ps = c->page_size;
    rad_tier_explanation e = {.device_tokens = device.prefix_tokens,
                              .host_end = host.prefix_tokens,
                              .device_why = device.why,
                              .host_why = host.why,
                              .device_evicted_tokens = device.evicted_tokens,
                              .host_evicted_tokens = host.evicted_tokens,
                              .device_eviction = device.eviction,
                              .host_eviction = host.eviction};
    if (e.host_end > e.device_tokens) e.host_tokens = e.host_end - e.device_tokens;
    e.fetched_tokens = fetched_pages(c, key, e.device_tokens / ps, e.host_end / ps) * ps;
    e.load = !e.host_tokens                                  ? RAD_LOAD_NOTHING
             : e.host_tokens < c->params.load_back_threshold ? RAD_LOAD_BELOW_THRESHOLD
             : !slab_available(&c->out.ids)                  ? RAD_LOAD_NO_TICKET
                                                             : RAD_LOAD_TAKEN;
    return give(explanation, &e, sizeof e);
}

rad_status rad_hicache_last_prefetch(const rad_cache *cache, rad_prefetch_report *report)
{
    const hiradix_cache *c = hiradix_of(cache);
    if (!report) return RAD_E_INVAL;
    if (!c) return RAD_E_UNSUPPORTED;
    rad_status status = give(report, &c->last_prefetch, sizeof c->last_prefetch);
    return status ? status : c->last_prefetch.struct_size ? RAD_OK : RAD_NONE;
}

/* ---- writing it down ---- */

rad_status hi_prefetch_note(hiradix_cache *c, rad_prefetch_end why, rad_status status)
{
    c->last_prefetch =
        (rad_prefetch_report){.struct_size = sizeof c->last_prefetch, .why = (uint32_t)why};
    return status;
}

static rad_prefetch_end end_of(const hiradix_cache *c, const hi_op *op, uint32_t present,
                               uint32_t came)
{
    if (!op->k.ended) return RAD_PREFETCH_LATE;
    if (op->lost_page) return RAD_PREFETCH_BAD_PAGE;
    if (op->k.t.status < 0) return RAD_PREFETCH_STORE_FAILED;
    if (came && came == op->asked) return RAD_PREFETCH_ALL;
    if (op->k.gets && came < op->k.count) return RAD_PREFETCH_LATE;
    if (!op->k.gets && op->k.t.status) return RAD_PREFETCH_LATE;
    if (op->k.gets) return op->k.count < present ? RAD_PREFETCH_NO_HOST_PAGES : RAD_PREFETCH_MISSED;
    if (!present) return RAD_PREFETCH_MISSED;
    bool few = (uint64_t)present * c->page_size < c->params.prefetch_threshold;
    return few ? RAD_PREFETCH_TOO_LITTLE : RAD_PREFETCH_NO_HOST_PAGES;
}

void hi_prefetch_ended(hiradix_cache *c, const hi_op *op, bool revoked)
{
    uint32_t ps = c->page_size, present = atomic_load(&op->present);
    uint32_t came = op->k.gets ? atomic_load(&op->fetched) : 0;
    c->last_prefetch =
        (rad_prefetch_report){.struct_size = sizeof c->last_prefetch,
                              .why = revoked ? RAD_PREFETCH_REVOKED : end_of(c, op, present, came),
                              .asked_tokens = op->asked * ps,
                              .present_tokens = present * ps,
                              .tokens = op->of_use * ps,
                              .waited_ns = c->base.env.now_ns(c->base.env.user) - op->k.start_ns};
}
