/* schedule_policy.c - orders the waiting queue and holds siblings back.
 *
 *     leader    | system prompt ....... | question 1 |      in flight, published to here
 *                            ^ published ^ hold_until                 |
 *     sibling   | system prompt ....... | question 2 |      waits until published >=
 *                                                           hold_until, then matches it
 *
 * Why nobody waits for ever: a leader is in its prefill, which goes on in every step
 * or ends by retraction, failure or abort; a request waits for SCHEDULE_MAX_HOLDS
 * different leaders at most; and under lpm whoever was passed over often enough goes by
 * arrival. */
#include "sched/schedule_policy.h"

#include <stdlib.h>

static int by_prefix(const void *a, const void *b)
{
    const req *x = *(req *const *)a, *y = *(req *const *)b;
    if (x->sort_key != y->sort_key) return x->sort_key > y->sort_key ? -1 : 1;
    return x->arrival < y->arrival ? -1 : x->arrival > y->arrival;
}

void schedule_policy_order(schedule_policy policy, const rad_cache *cache, req **waiting,
                           uint32_t num_waiting)
{
    if (policy == SCHEDULE_FCFS || num_waiting < 2) return; /* the queue is by arrival */
    for (uint32_t i = 0; i < num_waiting; i++) {
        rad_key key = req_key(waiting[i], req_num_fill(waiting[i]) - 1);
        rad_match match = {0};
        rad_cache_lookup(cache, &key, &match);
        bool aged = waiting[i]->passed_over >= SCHEDULE_MAX_PASSED_OVER;
        waiting[i]->sort_key = aged ? UINT32_MAX : match.prefix_tokens;
    }
    qsort(waiting, num_waiting, sizeof *waiting, by_prefix);
}

bool schedule_policy_hold_back(const rad_cache *cache, req *r, req *const *prefills,
                               uint32_t num_prefills, uint32_t page_size)
{
    for (uint32_t i = 0; i < num_prefills && r->hold_leader; i++)
        if (prefills[i]->arrival == r->hold_leader)
            if (prefills[i]->kv.protected_len < r->hold_until) return true;
    r->hold_leader = 0; /* it is published, or the leader is gone */
    if (r->num_holds >= SCHEDULE_MAX_HOLDS) return false;

    uint32_t most = req_num_fill(r) - 1; /* the last token is always computed */
    uint32_t best = 0;
    const req *leader = NULL;
    for (uint32_t i = 0; i < num_prefills; i++) {
        /* Only what goes beyond this is a reason to wait, so one look at that place spares
         * the comparison with most: siblings share what is published already. */
        const req *p = prefills[i];
        uint32_t beyond = RAD_MAX(best, p->kv.protected_len);
        if (beyond >= RAD_MIN(most, req_num_fill(p)) || p->fill_ids[beyond] != r->fill_ids[beyond])
            continue;
        uint32_t common = RAD_MIN(req_common_prefix(r, p), most);
        common -= common % page_size;
        if (common > beyond) {
            best = common;
            leader = p;
        }
    }
    if (!leader || best < SCHEDULE_HOLD_TOKENS) return false;

    rad_key key = req_key(r, most);
    rad_match match = {0};
    rad_cache_lookup(cache, &key, &match);
    if (best < match.prefix_tokens + SCHEDULE_HOLD_TOKENS) return false;
    r->hold_leader = leader->arrival;
    r->hold_until = best;
    r->num_holds++;
    return true;
}
