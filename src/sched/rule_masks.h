/* rule_masks.h - the masks of a step, computed beside its forward pass.
 *
 * What may come next depends on tokens that are known before the step, so a thread of its own asks
 * the rules while the model computes; sampling then finds the masks there:
 *
 *     scheduler   | add, add, begin | forward .......... | wait | sample, accept |
 *     helper                        | mask, mask |
 *
 * Between wait and the next begin the rules are the scheduler's thread's. The helper starts with
 * the first mask, so a server without constraints has no such thread; where it cannot be started
 * the masks are computed in wait. So they are where they have lately taken less than it takes to
 * wake the helper: few requests, a small vocabulary. Memory: rows * vocab_size / 8 bytes, untouched
 * until they are used. */
#ifndef SCHED_RULE_MASKS_H
#define SCHED_RULE_MASKS_H

#include "base/base.h"
#include "sched/token_rule.h"
#include <pthread.h>

/* The masks of rows [row, row + num_drafts], of which each but the first stands behind one draft
 * token more. */
typedef struct mask_job {
    token_rule *rule;
    const rad_token *drafts; /* [num_drafts] the rule accepts them */
    uint32_t num_drafts;
    uint32_t row;
} mask_job;

typedef struct rule_masks {
    rad_env env;
    uint32_t max_rows;
    uint32_t words;   /* of a mask */
    uint32_t *bits;   /* [max_rows][words] */
    token_mask *kind; /* [max_rows] */
    mask_job *jobs;   /* [max_rows] of this step */
    uint32_t num_jobs;

    bool started; /* there is a helper */
    pthread_t helper;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool busy, stop; /* under the lock */
    uint64_t ns;     /* that the masks of this step took */
    uint64_t job_ns; /* what one has lately taken at most */
    bool helped;     /* the helper has this step's jobs */
} rule_masks;

/* RAD_E_NOMEM; fini in any case. */
rad_status rule_masks_init(rule_masks *m, const rad_env *env, uint32_t max_rows,
                           uint32_t vocab_size);
void rule_masks_fini(rule_masks *m);

/* A step: what is wanted, begin, wait. */
void rule_masks_clear(rule_masks *m);
void rule_masks_add(rule_masks *m, mask_job job);
void rule_masks_begin(rule_masks *m);
/* Returns the ns that the rules took, on whatever thread; 0 when nothing was wanted. */
uint64_t rule_masks_wait(rule_masks *m);

/* Of a row that was added, until the next clear. */
static inline token_mask rule_masks_kind(const rule_masks *m, uint32_t row)
{
    return m->kind[row];
}

static inline uint32_t *rule_masks_bits(const rule_masks *m, uint32_t row)
{
    return m->bits + (size_t)row * m->words;
}

#endif
