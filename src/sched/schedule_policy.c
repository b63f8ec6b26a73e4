/* schedule_policy.c - the policies' names, as SGLang spells them. */
#include "sched/schedule_policy.h"

static const char *const names[SCHEDULE_NUM_POLICIES] = {"lpm", "fcfs",     "dfs-weight",
                                                         "lof", "priority", "random"};

const char *schedule_policy_name(schedule_policy policy)
{
    return (unsigned)policy < SCHEDULE_NUM_POLICIES ? names[policy] : "?";
}

bool schedule_policy_parse(const char *name, schedule_policy *out)
{
    for (unsigned i = 0; i < SCHEDULE_NUM_POLICIES; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (schedule_policy)i;
        return true;
    }
    return false;
}
