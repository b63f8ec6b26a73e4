/* test_sched_groups.c - the groups that are handed to attention, in plain cases, and in the
 * steps of random histories, where each is held against the rows (group_checker.h). */
#include "gear/retract.h"
#include "group_checker.h"

/* Requests that share as the picture in batch_groups.c shows, at three levels. */
TEST(three_levels_are_three_groups)
{
    for (uint32_t page = 1; page <= 16; page += 15) {
        rig g;
        rad_token ids[6][700], stem[700], a[700];
        rig_req *q[6];
        rig_prompt(stem, 700, 700);
        rig_prompt(a, 700, 701);
        scheduler_params params = rig_params(8192, page, 1024);
        rig_start(&g, params);
        say_all_groups(&g);
        for (int i = 0; i < 6; i++) {
            rig_prompt(ids[i], 700, 710 + i);
            ids[i][0] = stem[0] ^ (i == 5);                            /* 5 is a stranger */
            if (i < 5) memcpy(ids[i], stem, 200 * sizeof *stem);       /* 0 1 2 3 4 */
            if (i < 3) memcpy(ids[i] + 200, a, 250 * sizeof *a);       /* 0 1 2 */
            if (i < 2) memcpy(ids[i] + 450, a + 450, 240 * sizeof *a); /* 0 1 */
            ids[i][i < 2 ? 690 : i < 3 ? 450 : 200] = i;
            q[i] = rig_add(&g, ids[i], 700, 1); /* makes its path known */
            rig_run(&g);
            rig_expect(q[i], 1);
        }
        check_groups_of(&g, false);
        for (int i = 0; i < 6; i++)
            q[i] = rig_add(&g, ids[i], 700, 10);
        rig_run(&g);
        CHECKF(checker.deepest == 3 && checker.steps_with_groups >= 9,
               "%llu levels, %llu steps, %llu groups\n", (unsigned long long)checker.deepest,
               (unsigned long long)checker.steps_with_groups, (unsigned long long)checker.groups);
        CHECK(checker.groups == 3 * checker.steps_with_groups);
        /* 192 of 5, 256 or 192 more of 3 (450 -> 448), 192 to 256 more of 2 (690 -> 640). */
        scheduler_stats st;
        scheduler_get_stats(g.s, &st);
        uint64_t saved = (st.context_tokens - st.distinct_context_tokens);
        CHECK(checker.context - checker.distinct ==
              checker.steps_with_groups * (4 * 192 + 2 * 256 + 192));
        CHECK(saved >= checker.context - checker.distinct);
        for (int i = 0; i < 6; i++)
            rig_expect(q[i], 10);
        rig_stop(&g);
    }
}

/* The groups of the step that computes num_new tokens of each request behind `shared`
 * positions of all. */
static void count_groups_behind(uint32_t num_reqs, uint32_t shared, uint32_t num_new,
                                uint64_t *groups, uint32_t *begin, uint32_t *end)
{
    enum { MOST = 1024 };
    rig g;
    static rad_token ids[MOST];
    rig_req *q[8];
    rig_start(&g, rig_params(16384, 1, 4096));
    rig_prompt(ids, MOST, 735);
    q[0] = rig_add(&g, ids, shared + 1, 1);
    rig_run(&g);
    rig_expect(q[0], 1);
    check_groups_of(&g, false);
    checker.some_may_miss = true;
    for (uint32_t i = 0; i < num_reqs; i++) {
        rig_prompt(ids + shared, num_new, 740 + i);
        q[i] = rig_add(&g, ids, shared + num_new, 2);
    }
    rig_step(&g); /* all prompts */
    *groups = checker.groups;
    *begin = checker.last.begin, *end = checker.last.end;
    rig_run(&g);
    for (uint32_t i = 0; i < num_reqs; i++)
        rig_expect(q[i], 2);
    rig_stop(&g);
}

/* Two that decode must share two blocks, many one; with new tokens it takes more. */
TEST(a_group_is_said_where_it_pays)
{
    uint64_t groups;
    uint32_t begin, end;
    count_groups_behind(2, 64, 1, &groups, &begin, &end);
    CHECK(groups == 0);
    count_groups_behind(2, 128, 1, &groups, &begin, &end);
    CHECK(groups == 1 && begin == 0 && end == 128);
    count_groups_behind(8, 64, 1, &groups, &begin, &end);
    CHECK(groups == 1 && begin == 0 && end == 64);
    count_groups_behind(2, 320, 16, &groups, &begin, &end);
    CHECK(groups == 0);
    count_groups_behind(8, 320, 16, &groups, &begin, &end);
    CHECK(groups == 1 && end == 320);
    count_groups_behind(2, 640, 64, &groups, &begin, &end);
    CHECK(groups == 0);
}

/* With ten new tokens each: 128 positions do not pay for four, 512 do for two of them. */
TEST(what_does_not_pay_for_all_is_read_by_its_parts)
{
    enum { TOKENS = 600, NEW = 10 };
    rig g;
    static rad_token ids[4][TOKENS];
    rig_req *q[4];
    rig_start(&g, rig_params(8192, 1, 4096));
    for (int i = 0; i < 4; i++) {
        rig_prompt(ids[i], TOKENS, 760 + (i + 1) / 2);
        rig_prompt(ids[i], 130, 759);
        ids[i][550 + i] ^= 1;
        q[i] = rig_add(&g, ids[i], TOKENS - NEW, 1);
        rig_run(&g);
        rig_expect(q[i], 1);
    }
    check_groups_of(&g, false);
    checker.some_may_miss = true;
    for (int i = 0; i < 4; i++)
        q[i] = rig_add(&g, ids[i], TOKENS, 5);
    rig_step(&g);
    CHECK(checker.groups == 1 && checker.last.count == 2);
    CHECK(checker.last.begin == 0 && checker.last.end == 512);
    rig_run(&g);
    for (int i = 0; i < 4; i++)
        rig_expect(q[i], 5);
    rig_stop(&g);
}

TEST(groups_are_made_anew_only_when_the_batch_changes)
{
    rig g;
    rad_token ids[4][300];
    rig_req *q[4];
    scheduler_params params = rig_params(4096, 1, 1024);
    rig_start(&g, params);
    say_all_groups(&g);
    check_groups_of(&g, false);
    for (int i = 0; i < 4; i++) {
        rig_prompt(ids[i], 300, 720);
        ids[i][299 - i] ^= 1;
        q[i] = rig_add(&g, ids[i], 300, 100);
    }
    rig_run(&g);
    scheduler_stats st;
    scheduler_get_stats(g.s, &st);
    CHECKF(st.forward_steps > 99 && st.group_updates <= 6, "%llu of %llu steps\n",
           (unsigned long long)st.group_updates, (unsigned long long)st.forward_steps);
    CHECK(checker.steps_with_groups >= 99);
    check_group_stats(&g);
    for (int i = 0; i < 4; i++)
        rig_expect(q[i], 100);
    rig_stop(&g);
}

TEST(tree_attention_can_be_switched_off_and_needs_a_tree)
{
    for (int chunk_cache = 0; chunk_cache < 2; chunk_cache++) {
        rig g;
        rad_token ids[200];
        rig_req *q[4];
        rig_prompt(ids, 200, 730);
        scheduler_params params = rig_params(4096, 1, 1024);
        params.disable_tree_attention = !chunk_cache;
        params.cache_kind = chunk_cache ? RAD_CACHE_CHUNK : RAD_CACHE_RADIX;
        rig_start(&g, params);
        check_groups_of(&g, true);
        for (int i = 0; i < 4; i++)
            q[i] = rig_add(&g, ids, 200, 10);
        rig_run(&g);
        CHECK(checker.groups == 0 && checker.context == checker.distinct);
        check_group_stats(&g);
        for (int i = 0; i < 4; i++)
            rig_expect(q[i], 10);
        rig_stop(&g);
    }
}

/* Prompts from a small tree of documents, pools that are too small, retractions, chunks,
 * aborts: whatever the rows hold, the groups say exactly what they share. */
TEST(groups_are_what_the_rows_share_in_every_step)
{
    enum { REQS = 60, DOC = 400 };
    uint64_t seed = test_told_seed(), rng = seed, rounds = test_scale(6, 60), groups = 0,
             deepest = 0;
    static rad_token docs[4][DOC];
    for (uint64_t round = 0; round < rounds; round++) {
        for (int d = 0; d < 4; d++) {
            rig_prompt(docs[d], DOC, test_random(&rng));
            if (d) memcpy(docs[d], docs[d - 1], (uint32_t)(60 + 70 * d) * sizeof **docs);
        }
        rig g;
        static const uint32_t chunks[] = {0, 50, 64, 200, 1024};
        scheduler_params params = rig_params(1500 + test_random(&rng) % 3000, round % 2 ? 16 : 1,
                                             chunks[test_random(&rng) % 5]);
        params.policy = test_random(&rng) % SCHEDULE_NUM_POLICIES;
        gear_retract_every(test_random(&rng) % 2 ? 0 : 5);
        rig_start(&g, params);
        if (round % 3) say_all_groups(&g);
        check_groups_of(&g, false);
        checker.some_may_miss = round % 3 == 0;
        rig_req *q[REQS];
        uint32_t added = 0;
        while (added < REQS || !scheduler_is_idle(g.s)) {
            for (uint64_t k = test_random(&rng) % 3; k && added < REQS; k--) {
                rad_token ids[DOC + 20];
                uint32_t shared = 1 + (uint32_t)(test_random(&rng) % DOC);
                memcpy(ids, docs[test_random(&rng) % 4], shared * sizeof *ids);
                uint32_t own = (uint32_t)(test_random(&rng) % 20);
                rig_prompt(ids + shared, own, test_random(&rng));
                q[added++] = rig_add(&g, ids, shared + own, 1 + (uint32_t)(test_random(&rng) % 60));
            }
            rig_step(&g);
            if (added && test_random(&rng) % 20 == 0) {
                rig_req *victim = q[test_random(&rng) % added];
                if (!victim->finish) scheduler_cancel(g.s, &victim->r, REQ_FINISH_ABORT);
            }
        }
        for (uint32_t i = 0; i < REQS; i++) {
            rig_check_answer(q[i]);
            rig_drop(q[i]);
        }
        check_group_stats(&g);
        groups += checker.groups;
        deepest = RAD_MAX(deepest, checker.deepest);
        rig_stop(&g);
    }
    gear_retract_every(0);
    CHECKF(groups > 100 && deepest >= 3, "%llu groups, %llu levels\n", (unsigned long long)groups,
           (unsigned long long)deepest);
}

TEST_MAIN()
