/* group_checker.h - a runner around runner_fake that holds every step's groups against
 * the rows and against brute force: they share what they say, and (unless some_may_miss) all
 * that is shared. */
#ifndef TESTS_GROUP_CHECKER_H
#define TESTS_GROUP_CHECKER_H

#include "scheduler_rig.h"

typedef struct group_checker {
    uint64_t groups, steps_with_groups, deepest;
    uint64_t context, distinct; /* tokens, summed over the steps */
    const runner_ops *real;
    runner_ops ops;
    bool expect_none;
    bool some_may_miss; /* groups that do not pay are left out */
    forward_group last;
} group_checker;

static group_checker checker;

/* Positions that rows a and b share, in whole blocks, none of them new in this step. */
static inline uint32_t shared_blocks(const forward_batch *b, uint32_t i, uint32_t k)
{
    const rad_slot *x = rad_req_to_token_row(b->req_to_token_pool, b->req_pool_indices[i]);
    const rad_slot *y = rad_req_to_token_row(b->req_to_token_pool, b->req_pool_indices[k]);
    uint32_t most = RAD_MIN(b->extend_prefix_lens[i], b->extend_prefix_lens[k]), n = 0;
    while (n < most && x[n] == y[n])
        n++;
    return n / 64 * 64;
}

static inline void check_groups(const forward_batch *b)
{
    uint32_t *covered = calloc(b->num_reqs * (size_t)b->num_reqs, sizeof *covered);
    uint32_t *place = calloc(b->num_reqs, sizeof *place);
    uint32_t *depth = calloc(b->num_reqs, sizeof *depth);
    uint64_t distinct = 0;
    for (uint32_t i = 0; b->num_groups && i < b->num_reqs; i++) /* each once */
        CHECK(b->group_reqs[i] < b->num_reqs && place[b->group_reqs[i]]++ == 0);
    for (uint32_t i = 0; i < b->num_reqs; i++)
        distinct += b->seq_lens[i];
    checker.context += distinct;
    memset(place, 0, b->num_reqs * sizeof *place); /* where each one's last group ended */
    for (uint32_t g = 0; g < b->num_groups; g++) {
        const forward_group *group = &b->groups[g];
        checker.last = *group;
        CHECK(group->count >= 2 && group->first + group->count <= b->num_reqs);
        CHECK(group->begin < group->end && group->begin % 64 == 0 && group->end % 64 == 0);
        distinct -= (uint64_t)(group->count - 1) * (group->end - group->begin);
        const uint32_t *members = b->group_reqs + group->first;
        for (uint32_t m = 0; m < group->count; m++) {
            uint32_t r = members[m];
            CHECK(b->extend_prefix_lens[r] >= group->end);
            CHECK(place[r] == group->begin); /* no gap, no overlap, parents first */
            place[r] = group->end;
            depth[r]++;
            checker.deepest = RAD_MAX(checker.deepest, depth[r]);
            for (uint32_t k = 0; k < m; k++) {
                CHECK(shared_blocks(b, r, members[k]) >= group->end);
                covered[r * b->num_reqs + members[k]] = group->end;
                covered[members[k] * b->num_reqs + r] = group->end;
            }
        }
    }
    for (uint32_t i = 0; i < b->num_reqs; i++) /* all that is shared is in groups */
        for (uint32_t k = 0; k < i; k++)
            CHECK(checker.expect_none || checker.some_may_miss
                      ? !checker.expect_none || !b->num_groups
                      : covered[i * b->num_reqs + k] == shared_blocks(b, i, k));
    checker.groups += b->num_groups;
    checker.steps_with_groups += b->num_groups > 0;
    checker.distinct += distinct;
    free(covered);
    free(place);
    free(depth);
}

static inline rad_status checking_forward(runner *self, const forward_batch *batch,
                                          const float **logits, rad_error *err)
{
    check_groups(batch);
    return checker.real->forward(self, batch, logits, err);
}

/* From now on the rig's runner checks. */
static inline void check_groups_of(rig *g, bool expect_none)
{
    checker = (group_checker){.real = g->runner->ops, .expect_none = expect_none};
    checker.ops = *checker.real;
    checker.ops.forward = checking_forward;
    g->runner->ops = &checker.ops;
}

/* The scheduler's own figures agree with what was seen. */
static inline void check_group_stats(const rig *g)
{
    scheduler_stats st;
    scheduler_get_stats(g->s, &st);
    CHECK(st.context_tokens == checker.context);
    CHECK(st.distinct_context_tokens == checker.distinct);
}

#endif
