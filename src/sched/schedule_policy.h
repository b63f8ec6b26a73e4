/* schedule_policy.h - the orders in which waiting requests are admitted, and their names. */
#ifndef SCHED_SCHEDULE_POLICY_H
#define SCHED_SCHEDULE_POLICY_H

#include "base/base.h"

/* Longest prefix first is the default (0): what is cached now is used before it is evicted,
 * so that the same memory computes fewer tokens; without hits it is first come, first
 * served, and its fairness is bounded (SCHEDULE_MAX_PASSED_OVER). */
typedef enum schedule_policy {
    SCHEDULE_LPM = 0,        /* longest prefix match first */
    SCHEDULE_FCFS = 1,       /* first come, first served */
    SCHEDULE_DFS_WEIGHT = 2, /* along the tree, branches where most wait first */
    SCHEDULE_LOF = 3,        /* longest output (max_new_tokens) first */
    SCHEDULE_PRIORITY = 4,   /* highest priority first, then by arrival */
    SCHEDULE_RANDOM = 5,     /* a shuffle that --random-seed decides */
    SCHEDULE_NUM_POLICIES
} schedule_policy;

enum {
    SCHEDULE_HOLD_TOKENS = 32, /* hold back for a gain of at least so many tokens */
    SCHEDULE_MAX_HOLDS = 8,    /* leaders that the oldest request waits for, at most */

    /* Fairness of every policy: after so many admissions in a row that passed the oldest
     * waiting request over, the next one is its. So whoever has n older ones before it is
     * admitted after at most (n + 1) * (SCHEDULE_MAX_PASSED_OVER + 1) admissions, whatever
     * comes later. At 10,000 waiting this still leaves 15 of 16 choices to the policy. */
    SCHEDULE_MAX_PASSED_OVER = 15
};

const char *schedule_policy_name(schedule_policy policy);
const char *schedule_policy_about(schedule_policy policy); /* in a few words, who goes first */
/* RAD_E_INVAL for another name, with words that list them. */
rad_status schedule_policy_parse(const char *name, schedule_policy *out, rad_error *err);

#endif
