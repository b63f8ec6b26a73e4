/* replay_tiers.c - a record's operations of the host tier.
 *
 * Calls look at how many pages of the device are free. Here requests take theirs when they publish
 * them, so more are free than in the server: the record brings its number, and the rest is kept
 * while such a call runs (record_cache_keep).
 *
 * Transfers copy nothing and end when the record says so: RECORD_COMPLETED stands before the
 * operation that finds them done (hicache/completion.h). */
#include "replay/replay_private.h"

#include "hicache/completion.h"

#include <radish/hicache.h>

static void keep(replay *p, const record_op *op, uint64_t free_pages)
{
    if (!record_cache_keep(&p->c, free_pages))
        replay_differ(p, op, "%u pages are free here, %llu recorded",
                      rad_kv_available_pages(p->c.alloc), (unsigned long long)free_pages);
}

void replay_load_back(replay *p, live *q, const record_op *op, const rad_key *key)
{
    rad_load_result loaded = {0};
    keep(p, op, op->field[3]);
    (void)rad_hicache_load_back(p->c.tiers, &q->kv, key, op->field[2], &loaded);
    replay_compare(p, op, "tokens loaded", loaded.tokens, op->field[4]);
    replay_compare(p, op, "why not more", loaded.why, op->field[5]);
}

static void completed(replay *p, const record_op *op)
{
    const hi_completion done = {.look = op->field[1],
                                .ticket = (uint32_t)RAD_MIN(op->field[0], UINT32_MAX),
                                .status = (int32_t)record_unzigzag(op->field[2])};
    if (hi_add_to_script(p->c.tiers, &done) != RAD_OK)
        replay_differ(p, op, "more transfers end than there can be");
}

void replay_count_tiers(replay *p)
{
    rad_hicache_stats s;
    (void)rad_hicache_get_stats(p->c.tiers, &s);
    p->result->has_tiers = true;
    p->result->ours.written_tokens = s.written_tokens;
    p->result->ours.loaded_tokens = s.loaded_tokens;
    p->result->ours.host_evicted_tokens = s.host_evicted_tokens;
}

static void compare_tiers(replay *p, const record_op *op)
{
    static const char *const names[] = {"tokens written to the host",
                                        "tokens loaded",
                                        "tokens evicted on the host",
                                        "tokens not written",
                                        "tokens on the host",
                                        "failed loads",
                                        "failed writes",
                                        "transfers"};
    rad_hicache_stats s;
    (void)rad_hicache_get_stats(p->c.tiers, &s);
    const uint64_t ours[] = {
        s.written_tokens,     s.loaded_tokens, s.host_evicted_tokens, s.dropped_write_tokens,
        s.host_cached_tokens, s.failed_loads,  s.failed_writes,       s.tickets};
    record_counters *recorded = &p->result->recorded;
    recorded->written_tokens = op->field[0];
    recorded->loaded_tokens = op->field[1];
    recorded->host_evicted_tokens = op->field[2];
    for (size_t i = 0; i < RAD_COUNT(names); i++)
        replay_compare(p, op, names[i], ours[i], op->field[i]);
}

/* Others stand between a transfer's end and the call that found it: what is told of a request
 * before its call, for one. */
static bool is_a_call(record_kind kind)
{
    switch (kind) {
    case RECORD_COMPLETED:
    case RECORD_NAMESPACE:
    case RECORD_ARRIVE:
    case RECORD_GROW:
    case RECORD_ADMIT:
    case RECORD_LEAVE:
    case RECORD_COUNTERS:
    case RECORD_TIER_COUNTERS:
    case RECORD_PRICES:
    case RECORD_LOST:
    case RECORD_INEXACT: return false;
    default: return true;
    }
}

void replay_end_of_call(replay *p, const record_op *op)
{
    if (!p->c.tiers || !is_a_call(op->kind)) return;
    const uint32_t missed = hi_end_of_call(p->c.tiers);
    if (missed) replay_differ(p, op, "%u transfers that end were not under way", missed);
}

bool replay_of_tiers(replay *p, const record_op *op)
{
    if (!p->c.tiers) /* the record says that it is not exact */
        return op->kind >= RECORD_POLL && op->kind <= RECORD_TIER_COUNTERS;
    switch (op->kind) {
    case RECORD_POLL:
        keep(p, op, op->field[0]);
        rad_cache_poll(p->c.cache);
        return true;
    case RECORD_COMPLETED: completed(p, op); return true;
    case RECORD_READY: (void)rad_hicache_ready_to_load(p->c.tiers); return true;
    case RECORD_CLEAR:
        replay_compare_status(
            p, op, rad_hicache_clear(p->c.cache, (uint32_t)RAD_MIN(op->field[0], UINT32_MAX), NULL),
            op->field[1]);
        return true;
    case RECORD_TIER_COUNTERS: compare_tiers(p, op); return true;
    default: return false;
    }
}
