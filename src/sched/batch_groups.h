/* batch_groups.h - which requests of a step hold the same tree nodes.
 *
 * Tree-driven attention (attn/forward_batch.h) reads the K/V that requests share once for
 * all of them. What is shared is read off the rows: the tree owns the slots of protected
 * positions, and a slot of the tree lies at one place on one path. So two rows with the
 * same slot at a protected position have the same slots at all positions before it: one
 * comparison tells a whole block, and a binary search finds where two rows part. That is
 * exact, and needs neither the tree nor its nodes.
 *
 * Sharing is said where reading once saves more than it costs: a short prefix of few requests,
 * or of many new tokens, whose arithmetic hides the reading, is left to each of them. That
 * decides over time alone; the answers are the same bits.
 *
 * A batch mostly decodes on as it was: the groups are kept until a request joins, leaves,
 * has more protected or computes another number of tokens. */
#ifndef SCHED_BATCH_GROUPS_H
#define SCHED_BATCH_GROUPS_H

#include "sched/schedule_batch.h"

typedef struct group_member { /* of a batch, as it was when the groups were made */
    uint64_t arrival;
    uint32_t admission; /* of all retractions: the same request may come back elsewhere */
    uint32_t protected_len;
    uint32_t num_new; /* tokens of the step */
    uint32_t reserved;
} group_member;

typedef struct group_entry { /* of a sort */
    rad_slot slot;
    uint32_t req;
} group_entry;

typedef struct batch_groups {
    uint32_t max_reqs;
    uint32_t num_reqs; /* that the groups were made for */
    uint32_t num_groups;
    uint32_t member_cost;   /* of saying a group, in tokens read: for each of its members */
    uint32_t token_cost;    /* and for each of the new tokens */
    uint32_t num_spans;     /* scratch: sets of requests still to be divided */
    uint64_t num_computed;  /* times that groups were made anew */
    uint64_t shared_tokens; /* context tokens of a step that groups spare reading */
    forward_group *groups;  /* [max_reqs] */
    forward_group *spans;   /* [max_reqs]; shared up to `end`, in groups up to `begin` */
    uint32_t *order;        /* [max_reqs] group_reqs */
    group_entry *entries;   /* [max_reqs] */
    group_member *members;  /* [max_reqs] */
} batch_groups;

rad_status batch_groups_init(batch_groups *g, const rad_env *env, uint32_t max_reqs);
void batch_groups_fini(batch_groups *g, const rad_env *env);

/* Fills the groups of a prepared batch into `out`; they are good until the next call.
 * O(num_reqs) when nothing changed, else O(num_reqs log(context)) for each level. */
void batch_groups_update(batch_groups *g, const schedule_batch *b, const schedule_pools *pools,
                         forward_batch *out);

#endif
