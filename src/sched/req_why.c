/* req_why.c - asking the cache why; see the header. */
#include "sched/scheduler_impl.h"

static req_tier_end end_of(const scheduler *s, uint32_t why, uint32_t evicted_tokens,
                           const rad_eviction *eviction)
{
    /* Whether others have it is none of a client's business (explain.h). */
    if (why == RAD_END_OTHER_NAMESPACE) why = RAD_END_NEVER_SEEN;
    req_tier_end end = {.why = why, .evicted_tokens = evicted_tokens};
    if (why != RAD_END_EVICTED) return end;
    uint64_t now = s->env.now_ns(s->env.user);
    end.evicted_ns_ago = now > eviction->time_ns ? now - eviction->time_ns : 0;
    end.policy = eviction->policy;
    end.cause = eviction->cause;
    return end;
}

void req_why_prefetched(scheduler *s, req *r)
{
    rad_prefetch_report report = {.struct_size = sizeof report};
    if (r->admitted || rad_hicache_last_prefetch(s->pools.inner_cache, &report) != RAD_OK) return;
    r->why.prefetch = report.why;
    r->why.asked_tokens = report.asked_tokens;
    r->why.present_tokens = report.present_tokens;
}

/* Hits that there could have been. What of a page was copied is none that was lost. */
static void count_lost(scheduler *s, const req *r, const rad_key *key)
{
    const req_why *w = &r->why;
    rad_explanation e = {0};
    s->stats.evicted_wanted_tokens += w->device.evicted_tokens;
    s->stats.host_evicted_wanted_tokens += w->host.evicted_tokens;
    if (s->pools.page_size == 1 && !s->params.explain_namespaces) return;
    if (rad_cache_explain(s->pools.inner_cache, key, &e) != RAD_OK) return;
    s->stats.page_rounded_tokens += e.rounded_tokens - RAD_MIN(e.rounded_tokens, r->hits.copied);
    if (e.other_namespace_tokens > r->hits.cached)
        s->stats.other_namespace_tokens += e.other_namespace_tokens - r->hits.cached;
}

void req_why_admitted(scheduler *s, req *r, const rad_key *key, const rad_load_result *load)
{
    req_why *w = &r->why;
    w->is_cut = key->num_tokens + 1 < req_num_fill(r);
    w->cut_from = key->num_tokens;
    if (s->tiers.on) {
        rad_tier_explanation e = {.struct_size = sizeof e};
        if (rad_hicache_explain(s->pools.inner_cache, key, &e) != RAD_OK) return;
        w->has_tiers = true;
        w->device = end_of(s, e.device_why, e.device_evicted_tokens, &e.device_eviction);
        w->host = end_of(s, e.host_why, e.host_evicted_tokens, &e.host_eviction);
        w->host_tokens = e.host_tokens;
        w->load = load->why;
    } else {
        rad_explanation e;
        if (rad_cache_explain(s->pools.inner_cache, key, &e) != RAD_OK) return;
        w->device = end_of(s, e.why, e.evicted_tokens, &e.eviction);
    }
    w->known = true;
    count_lost(s, r, key);
}
