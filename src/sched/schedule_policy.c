/* schedule_policy.c - the policies' names, as SGLang spells them. */
#include "sched/schedule_policy.h"

#include "base/word_list.h"

static const struct {
    const char *name, *about;
} policies[SCHEDULE_NUM_POLICIES] = {
    [SCHEDULE_LPM] = {"lpm", "the longest cached prefix"},
    [SCHEDULE_FCFS] = {"fcfs", "by arrival"},
    [SCHEDULE_DFS_WEIGHT] = {"dfs-weight", "along the tree, where most wait"},
    [SCHEDULE_LOF] = {"lof", "the longest output"},
    [SCHEDULE_PRIORITY] = {"priority", "the highest priority"},
    [SCHEDULE_RANDOM] = {"random", "a shuffle"},
};

const char *schedule_policy_name(schedule_policy policy)
{
    return (unsigned)policy < SCHEDULE_NUM_POLICIES ? policies[policy].name : "?";
}

const char *schedule_policy_about(schedule_policy policy)
{
    return (unsigned)policy < SCHEDULE_NUM_POLICIES ? policies[policy].about : "?";
}

rad_status schedule_policy_parse(const char *name, schedule_policy *out, rad_error *err)
{
    char names[128];
    for (unsigned i = 0; i < SCHEDULE_NUM_POLICIES; i++) {
        word_list_add(names, sizeof names, i, SCHEDULE_NUM_POLICIES, "and", policies[i].name);
        if (strcmp(name, policies[i].name) != 0) continue;
        *out = (schedule_policy)i;
        return RAD_OK;
    }
    return rad_fail(err, RAD_E_INVAL, "no schedule policy '%.40s'; there are %s", name, names);
}
