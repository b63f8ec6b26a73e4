/* test_workload.c - the suite has the lengths that its definition states, and the
 * arithmetic of sharing is right. */
#include "test.h"

#include "workload/py_random.h"
#include "workload/workload.h"

/* random.Random(7): the first numbers of each kind, as Python prints them. */
TEST(the_generator_is_pythons)
{
    py_random r;
    py_random_seed(&r, 7);
    CHECK(py_random_random(&r) == 0.32383276483316237);
    CHECK(py_random_random(&r) == 0.15084917392450192);
    py_random_seed(&r, 7);
    CHECK(py_random_randint(&r, 1, 100) == 42);
    uint32_t items[5] = {0, 1, 2, 3, 4}, shuffled[5] = {2, 3, 4, 0, 1};
    py_random_seed(&r, 1);
    py_random_shuffle(&r, items, 5);
    CHECK(memcmp(items, shuffled, sizeof items) == 0);
}

TEST(the_suite_has_the_lengths_of_its_definition)
{
    static const struct {
        const char *name;
        uint32_t calls;
        uint64_t prompt, out;
        uint32_t longest;
        double best;
    } expected[] = {
        {"mmlu_5shot", 192, 60888, 192, 419, 0.8193},
        {"hellaswag", 240, 120167, 0, 514, 0.9782},
        {"react", 129, 69343, 2064, 690, 0.9297},
        {"generative_agents", 100, 22000, 800, 228, 0.8636},
        {"tree_of_thought", 234, 27864, 6480, 162, 0.9574},
        {"skeleton_of_thought", 120, 9240, 2280, 144, 0.8606},
        {"llm_judge", 56, 16240, 1552, 460, 0.6927},
        {"json_decode", 24, 10766, 768, 506, 0.8545},
        {"multi_turn_short", 80, 20138, 227, 463, 0.6085},
        {"multi_turn_long", 80, 30251, 7778, 909, 0.7502},
        {"dspy_rag", 40, 13600, 640, 356, 0.8669},
        {"self_consistency", 128, 8192, 6144, 112, 0.8750},
        {"no_reuse", 48, 4247, 2305, 221, 0.0000},
        {"generated_shared_prefix", 128, 69632, 8192, 608, 0.8235},
        {"bench_multiturn", 160, 66560, 2560, 720, 0.6923},
        {"hicache_blog", 192, 83616, 192, 776, 0.7796},
    };
    for (uint32_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        workload w;
        workload_sums sums;
        CHECK_OK(workload_suite_make(NULL, i, false, &w, NULL));
        CHECK_OK(workload_sum(&w, &sums, NULL));
        CHECK(strcmp(w.name, expected[i].name) == 0);
        CHECK(strcmp(w.name, workload_suite_name(i)) == 0);
        CHECK(w.num_calls == expected[i].calls);
        CHECKF(sums.prompt_tokens == expected[i].prompt, "%s: %llu prompt tokens", w.name,
               (unsigned long long)sums.prompt_tokens);
        CHECK(sums.output_tokens == expected[i].out);
        CHECK(sums.longest == expected[i].longest);
        double best = (double)sums.cached_tokens / (double)sums.prompt_tokens;
        CHECK(best > expected[i].best - 0.00006 && best < expected[i].best + 0.00006);
        workload_fini(&w);
    }
    CHECK(workload_suite_name(16) == NULL);
    workload w;
    CHECK(workload_suite_make(NULL, 16, false, &w, NULL) == RAD_NONE);
}

/* A call waits only for earlier ones, and reads only outputs of calls it waits for,
 * directly or through others. */
TEST(every_workload_is_in_a_legal_order)
{
    for (uint32_t i = 0; workload_suite_name(i); i++)
        for (int paper = 0; paper < 2; paper++) {
            workload w;
            CHECK_OK(workload_suite_make(NULL, i, paper, &w, NULL));
            for (uint32_t c = 0; c < w.num_calls; c++) {
                const workload_call *call = &w.calls[c];
                for (uint32_t a = 0; a < call->num_after; a++)
                    CHECK(w.afters[call->after_at + a] < c);
                for (uint32_t s = 0; s < call->num_segs; s++) {
                    uint32_t from = w.segments[w.prompts[call->segs_at + s]].output_of;
                    CHECK(from <= c); /* call + 1 */
                    CHECK(!from || call->num_after > 0);
                }
            }
            workload_fini(&w);
        }
}

TEST(sharing_is_counted_in_whole_leading_segments)
{
    workload w;
    workload_sums sums;
    workload_init(&w, NULL, "by hand", "");
    uint32_t a = workload_add_segment(&w, 10), b = workload_add_segment(&w, 5);
    uint32_t first[] = {a, b}, second[] = {b, a};
    uint32_t c0 = workload_add_call(&w, 0, first, 2, 3, NULL, 0);
    workload_add_call(&w, 1, second, 2, 0, NULL, 0);       /* nothing: other order */
    uint32_t third[] = {a, b, workload_output(&w, c0), a}; /* 10 + 5 + 3 are there */
    workload_add_call(&w, 0, third, 4, 1, &c0, 1);
    CHECK_OK(workload_sum(&w, &sums, NULL));
    CHECK(sums.prompt_tokens == 15 + 15 + 28 && sums.cached_tokens == 18);
    CHECK(sums.least_computed == 15 + 15 + 10);
    CHECK(sums.output_tokens == 4 && sums.longest == 29);
    workload_fini(&w);
}

TEST_MAIN()
