/* test_draft_budget.c - what drafts may cost that come to nothing, in rows: whatever guesses are
 * like and rows cost, and also of sources that take long to ask. */
#include "draft_rig.h"

/* ---- the account ---- */

/* Steps in which as much is asked and tried as it pays for: no more than that, and of rows that
 * could pay no less than their half of the share. */
TEST(a_budget_is_never_spent_twice)
{
    uint64_t rng = test_told_seed();
    for (int round = 0; round < 50; round++) {
        draft_budget b;
        const double asking = (double)(test_random(&rng) % 200) * 1e-3;
        const double row = (double)(100 + test_random(&rng) % 800) * 1e-3;
        double spent = 0, asked = 0, gained = 0;
        uint32_t steps = 0, rows = 0;
        draft_budget_init(&b);
        for (; steps < 5000; steps++) {
            if (!draft_budget_step(&b)) continue;
            const uint32_t wanted = (uint32_t)(test_random(&rng) % 32);
            const uint32_t n = draft_budget_rows(&b, wanted, row);
            CHECK(n <= wanted && (n == wanted || (n + 1) * row > b.left - 1e-9));
            rows += n;
            spent += n * row;
            draft_budget_spend(&b, n * row);
            draft_budget_asked(&b, asking); /* how long it took is known when all is planned */
            asked += RAD_MIN(asking, 0.125);
            const double right = steps % 1000 < 20 ? (double)n * 0.5 : 0;
            gained += right;
            draft_budget_spend(&b, -right);
            CHECK(b.left <= BUDGET_MOST);
        }
        CHECKF(asked + spent <= gained + BUDGET_SHARE * steps + BUDGET_MOST + 0.125,
               "asking %.3f, a row %.3f: %.2f and %.2f spent, %.2f gained\n", asking, row, asked,
               spent, gained);
        CHECKF(rows * row > BUDGET_SHARE / 2 * steps - 2 * row, "%u rows of %.3f\n", rows, row);
    }
}

/* ---- rows ---- */

/* Guesses that are wrong; that are right now and then; and such that earn trust and lose it. */
TEST(rows_in_vain_are_a_hundredth_of_the_steps_and_a_few)
{
    static const draft_script guesses[] = {{.wrong_from = 0},
                                           {.wrong_from = 1},
                                           {.wrong_from = 8, .permille = 500},
                                           {.wrong_from = 8, .moods = 3},
                                           {.wrong_from = 8, .moods = 60}};
    static const struct {
        uint32_t num_reqs;
        double row;
    } prices[] = {{1, 3e6}, {1, 8e6}, {4, 2e5}, {16, 1e6}};
    for (size_t i = 0; i < RAD_COUNT(guesses) * RAD_COUNT(prices); i++) {
        draft_script s = guesses[i % RAD_COUNT(guesses)];
        draft_stats drafts;
        s.num_reqs = prices[i / RAD_COUNT(guesses)].num_reqs;
        s.row = prices[i / RAD_COUNT(guesses)].row;
        s.num_new = s.num_reqs == 1 ? 400 : 40;
        s.rounds = (uint32_t)test_scale(1, 10);
        const double steps = (double)run_script(&s, &drafts);
        const double step = script.of.step + s.row * (s.num_reqs - 1.0);
        const double rows = (double)drafts.proposed[DRAFT_GIVEN] * s.row / step;
        const double right = (double)drafts.accepted[DRAFT_GIVEN] / s.num_reqs;
        /* Two are tried before it is known what they cost. */
        const double unknown = RAD_MAX(2 * (s.row / step - BUDGET_ROW), 0);
        const double most = BUDGET_SHARE * steps + BUDGET_MOST + unknown;
        print_message("  %u requests, a row %.3f steps, %u %u %u: %llu of %llu right, %.2f steps "
                      "lost, at most %.2f\n",
                      s.num_reqs, s.row / step, s.wrong_from, s.permille, s.moods,
                      (unsigned long long)drafts.accepted[DRAFT_GIVEN],
                      (unsigned long long)drafts.proposed[DRAFT_GIVEN], rows - right, most);
        CHECK(rows - right <= most);
    }
}

/* ---- asking ---- */

/* A source that takes a tenth of a step to ask: in vain it is asked now and then, and where it is
 * right, each time. */
TEST(who_takes_long_to_ask_and_is_wrong_is_asked_now_and_then)
{
    const uint32_t rounds = (uint32_t)test_scale(2, 10);
    draft_script s = {.num_reqs = 1, .rounds = rounds, .num_new = 400, .row = 2e5, .asking = 4e5};
    draft_stats drafts;
    double steps = (double)run_script(&s, &drafts);
    const double asking = s.asking / script.of.step, most = BUDGET_SHARE * steps + BUDGET_MOST;
    CHECKF((double)script.asked * asking <= most + asking, "asked %llu times in %.0f steps\n",
           (unsigned long long)script.asked, steps);
    const double told = (double)drafts.guess_ns / ((double)script.asked * s.asking);
    CHECKF(told >= 1 && told < 1.01, "%.3f of what it took is told\n", told);
    s.wrong_from = 8;
    steps = (double)run_script(&s, &drafts);
    CHECKF(steps < rounds * 400 / 5.0, "%.0f steps\n", steps);
}

TEST_MAIN()
