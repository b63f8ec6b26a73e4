/* batch_groups.c - divides the batch block by block.
 *
 *     all, from 0:   | 0 1 2 3 4 5 |                  by the slot that ends the next block:
 *                    | 1 3 4 | 0 5 | 2 |              buckets; of each, how far it goes on
 *     {0, 2048: 1 3 4}   {0, 512: 0 5}                together is a group; then divide it
 *        | 3 4 | 1 |                                  again from its end
 *     {2048, 3072: 3 4}
 *
 * A set that is divided is a range of `order`, so members lie side by side, and a group
 * comes before its children. Each group is a different set of two or more requests, and
 * two such sets are one inside the other or apart: there are fewer than requests.
 *
 * Not every group pays: its members' rows are taken up and put down once more, between the
 * group's blocks and their own. One that does not is left out, and its children, if they
 * pay, begin where it would have. */
#include "sched/batch_groups.h"

enum {
    BLOCK = 64, /* ATTN_BLOCK: boundaries are whole blocks */

    /* What a member costs a group, in positions that it could have read meanwhile: once, and
     * for each of its new tokens. From heads 12/4 x 64 with 2 to 32 requests, 1 to 64 new
     * tokens and 64 to 1024 shared positions; wrong by a factor of two for other models it
     * would cost some percent of attention. */
    MEMBER_COST = 32,
    TOKEN_COST = 12
};

rad_status batch_groups_init(batch_groups *g, const rad_env *env, uint32_t max_reqs)
{
    *g = (batch_groups){.max_reqs = max_reqs, .member_cost = MEMBER_COST, .token_cost = TOKEN_COST};
    g->groups = rad_alloc(env, rad_mul(max_reqs, sizeof *g->groups));
    g->spans = rad_alloc(env, rad_mul(max_reqs, sizeof *g->spans));
    g->order = rad_alloc(env, rad_mul(max_reqs, sizeof *g->order));
    g->entries = rad_alloc(env, rad_mul(max_reqs, sizeof *g->entries));
    g->members = rad_alloc(env, rad_mul(max_reqs, sizeof *g->members));
    bool ok = g->groups && g->spans && g->order && g->entries && g->members;
    return ok ? RAD_OK : RAD_E_NOMEM;
}

void batch_groups_fini(batch_groups *g, const rad_env *env)
{
    rad_free(env, g->groups, g->max_reqs * sizeof *g->groups);
    rad_free(env, g->spans, g->max_reqs * sizeof *g->spans);
    rad_free(env, g->order, g->max_reqs * sizeof *g->order);
    rad_free(env, g->entries, g->max_reqs * sizeof *g->entries);
    rad_free(env, g->members, g->max_reqs * sizeof *g->members);
    *g = (batch_groups){0};
}

static const rad_slot *row_of(const schedule_batch *b, const schedule_pools *pools, uint32_t i)
{
    return rad_req_to_token_row(pools->req_to_token_pool, b->reqs[i]->kv.row);
}

/* What may be shared of a request, in whole blocks. */
static uint32_t shareable(const schedule_batch *b, uint32_t i)
{
    uint32_t most = RAD_MIN(b->reqs[i]->kv.protected_len, b->extend_prefix_lens[i]);
    return most - most % BLOCK;
}

/* By slot, then by request, so that the order is one of a kind. Shell sort: small, in
 * place, and a batch has some hundred requests. */
static void sort_entries(group_entry *e, uint32_t n)
{
    for (uint32_t gap = n / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (uint32_t i = gap; i < n; i++) {
            group_entry x = e[i];
            uint32_t k = i;
            for (; k >= gap && (e[k - gap].slot > x.slot ||
                                (e[k - gap].slot == x.slot && e[k - gap].req > x.req));
                 k -= gap)
                e[k] = e[k - gap];
            e[k] = x;
        }
}

/* The end of the last block that rows a and b share; they share up to `from`. */
static uint32_t part_at(const rad_slot *a, const rad_slot *b, uint32_t from, uint32_t to)
{
    while (from < to) {
        uint32_t middle = from + ((to - from) / BLOCK + 1) / 2 * BLOCK;
        if (a[middle - 1] == b[middle - 1])
            from = middle;
        else
            to = middle - BLOCK;
    }
    return from;
}

/* What the members of a group need not read is more than what it costs them. */
static bool pays(const batch_groups *g, const schedule_batch *b, const forward_group *group)
{
    uint64_t cost = 0;
    for (uint32_t i = 0; i < group->count; i++)
        cost += g->member_cost +
                (uint64_t)g->token_cost * b->extend_seq_lens[g->order[group->first + i]];
    return (uint64_t)(group->count - 1) * (group->end - group->begin) > cost;
}

/* Entries [first, first + count) have the same slot at the end of the block behind `begin`:
 * a group, and then a set to be divided again. No group has them from `from` on. */
static void add_group(batch_groups *g, const schedule_batch *b, const schedule_pools *pools,
                      uint32_t from, uint32_t begin, uint32_t first, uint32_t count)
{
    const rad_slot *row = row_of(b, pools, g->order[first]);
    uint32_t end = shareable(b, g->order[first]);
    for (uint32_t i = 1; i < count; i++) {
        uint32_t other = g->order[first + i];
        end =
            part_at(row, row_of(b, pools, other), begin + BLOCK, RAD_MIN(end, shareable(b, other)));
    }
    forward_group group = {.begin = from, .end = end, .first = first, .count = count};
    if (pays(g, b, &group)) {
        g->groups[g->num_groups++] = group;
        g->shared_tokens += (uint64_t)(count - 1) * (end - from);
        group.begin = end;
    }
    g->spans[g->num_spans++] = group;
}

/* Splits order[first, first + count) by what they share next. All of them share the positions
 * before `begin`; those before `from` are read by a group that has been found already. */
static void divide(batch_groups *g, const schedule_batch *b, const schedule_pools *pools,
                   uint32_t from, uint32_t begin, uint32_t first, uint32_t count)
{
    group_entry *e = g->entries;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t r = g->order[first + i];
        /* One slot per request stands for the whole block: two requests have the same page at a
         * position only if they share everything before it. -1: too short, shares nothing more. */
        bool more = shareable(b, r) > begin;
        e[i] = (group_entry){more ? row_of(b, pools, r)[begin + BLOCK - 1] : -1, r};
    }
    sort_entries(e, count);
    /* Members of a bucket now lie side by side, so a group is a range of `order`. Later divisions
     * permute within the range only, and its groups stay right. `entries` is free again. */
    for (uint32_t i = 0; i < count; i++)
        g->order[first + i] = e[i].req;
    for (uint32_t i = 0, run; i < count; i += run) {
        for (run = 1; i + run < count && e[i + run].slot == e[i].slot;)
            run++;
        if (run > 1 && e[i].slot >= 0) add_group(g, b, pools, from, begin, first + i, run);
    }
}

static bool is_as_before(const batch_groups *g, const schedule_batch *b)
{
    if (g->num_reqs != b->num_reqs) return false;
    for (uint32_t i = 0; i < b->num_reqs; i++) {
        const req *r = b->reqs[i];
        const group_member *m = &g->members[i];
        if (m->arrival != r->arrival || m->admission != r->num_retractions ||
            m->protected_len != r->kv.protected_len || m->num_new != b->extend_seq_lens[i])
            return false;
    }
    return true;
}

void batch_groups_update(batch_groups *g, const schedule_batch *b, const schedule_pools *pools,
                         forward_batch *out)
{
    if (!is_as_before(g, b)) {
        g->num_computed++;
        g->num_reqs = b->num_reqs;
        g->num_groups = g->num_spans = 0;
        g->shared_tokens = 0;
        for (uint32_t i = 0; i < b->num_reqs; i++) {
            const req *r = b->reqs[i];
            g->members[i] = (group_member){r->arrival, r->num_retractions, r->kv.protected_len,
                                           b->extend_seq_lens[i]};
            g->order[i] = i;
        }
        divide(g, b, pools, 0, 0, 0, b->num_reqs);
        while (g->num_spans) { /* a stack instead of a recursion: parents before their children */
            forward_group s = g->spans[--g->num_spans];
            divide(g, b, pools, s.begin, s.end, s.first, s.count);
        }
    }
    out->num_groups = g->num_groups;
    out->groups = g->num_groups ? g->groups : NULL;
    out->group_reqs = g->num_groups ? g->order : NULL;
}
