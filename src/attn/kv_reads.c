/* kv_reads.c - what attention reads of the pool, for those who ask (forward_batch.h). */
#include "attn/forward_batch.h"
#include "base/base.h"

/* Positions in [begin, end) that any new token of a request sees. */
static uint64_t seen_within(const forward_batch *batch, uint32_t request, uint32_t window,
                            uint32_t begin, uint32_t end)
{
    const uint32_t first = forward_first_key(window, batch->extend_prefix_lens[request]);
    return end > RAD_MAX(begin, first) ? end - RAD_MAX(begin, first) : 0;
}

/* What the group's members need not read again. */
static uint64_t saved_by(const forward_batch *batch, const forward_group *g, uint32_t window)
{
    uint64_t all = 0, most = 0;
    for (uint32_t m = 0; m < g->count; m++) {
        const uint64_t seen =
            seen_within(batch, batch->group_reqs[g->first + m], window, g->begin, g->end);
        all += seen;
        most = RAD_MAX(most, seen);
    }
    return all - most;
}

void forward_batch_count_reads(const forward_batch *batch, uint32_t window, uint32_t num_groups,
                               uint64_t token_bytes)
{
    if (!batch->kv_reads) return;
    uint64_t unshared = 0, saved = 0;
    for (uint32_t i = 0; i < batch->num_reqs; i++)
        unshared += seen_within(batch, i, window, 0, batch->seq_lens[i]);
    for (uint32_t g = 0; g < num_groups; g++)
        saved += saved_by(batch, &batch->groups[g], window);
    batch->kv_reads->unshared_bytes += unshared * token_bytes;
    batch->kv_reads->bytes += (unshared - saved) * token_bytes;
}
