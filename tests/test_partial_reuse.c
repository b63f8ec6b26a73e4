/* test_partial_reuse.c - with pages of several tokens, the front of one that begins like a prompt
 * goes on is copied and not computed: counted, and the same answers as without (P1). */
#include "scheduler_rig.h"

#include "sched/scheduler_impl.h"

enum { PAGE = 16, OUT = 8 };

/* A fork within a page: what is shared is all that is not computed. */
TEST(the_front_of_a_page_is_copied)
{
    for (uint32_t shared = 33; shared < 64; shared += 5) {
        rig g;
        rad_token a[80], b[80];
        rig_prompt(a, 80, 1);
        rig_prompt(b, 80, 2);
        memcpy(b, a, shared * sizeof *a);
        b[shared] = (a[shared] + 1) % RIG_VOCAB;
        rig_start(&g, rig_params(512, PAGE, 64));
        rig_req *first = rig_add(&g, a, 80, OUT);
        rig_run(&g);
        uint64_t computed = rig_stats(&g).prefill_tokens;
        rig_req *fork = rig_add(&g, b, 80, OUT);
        rig_run(&g);
        CHECKF(fork->cached_tokens == shared, "%u of %u\n", fork->cached_tokens, shared);
        CHECK(fork->r.hits.copied == shared % PAGE);
        scheduler_stats st = rig_stats(&g);
        CHECK(st.prefill_tokens - computed == 80 - shared);
        CHECK(st.copied_tokens == shared % PAGE && st.cached_tokens == shared);
        rig_expect(first, OUT);
        rig_expect(fork, OUT);
        rig_req *again = rig_add(&g, a, 80, OUT); /* the page that was copied is as it was */
        rig_run(&g);
        CHECK(again->cached_tokens == 79 && again->r.hits.copied == 15);
        rig_expect(again, OUT);
        rig_stop(&g);
    }
}

TEST(it_can_be_switched_off_and_single_tokens_have_no_front)
{
    for (uint32_t page = 1; page <= PAGE; page *= PAGE) {
        rig g;
        rad_token a[80], b[80];
        scheduler_params params = rig_params(512, page, 64);
        params.disable_partial_reuse = page > 1;
        rig_prompt(a, 80, 1);
        memcpy(b, a, sizeof b);
        b[40] ^= 1;
        rig_start(&g, params);
        rig_req *first = rig_add(&g, a, 80, OUT);
        rig_run(&g);
        rig_req *fork = rig_add(&g, b, 80, OUT);
        rig_run(&g);
        CHECK(fork->cached_tokens == 40 / page * page && fork->r.hits.copied == 0);
        CHECK(rig_stats(&g).copied_tokens == 0);
        rig_expect(first, OUT);
        rig_expect(fork, OUT);
        rig_stop(&g);
    }
}

/* A pool that is full: the private page comes from what can be evicted, never from what the step
 * has planned with; whatever happens every answer is the oracle's and no slot is lost. */
TEST(copies_in_a_small_pool_lose_nothing)
{
    uint64_t copied = 0, retracted = 0;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        uint64_t rng = seed;
        rig g;
        rig_req *q[24];
        rad_token root[120];
        rig_prompt(root, 120, seed);
        scheduler_params params = rig_params(PAGE * (14 + seed % 8), PAGE, seed % 2 ? 40 : 0);
        params.verify_rate = seed % 3 == 0;
        rig_start(&g, params);
        for (uint32_t i = 0; i < 24; i++) {
            rad_token ids[120];
            uint32_t n = 20 + (uint32_t)(test_random(&rng) % 90);
            memcpy(ids, root, n * sizeof *ids);
            uint32_t at = (uint32_t)(test_random(&rng) % n);
            ids[at] = (rad_token)(test_random(&rng) % 4);
            q[i] = rig_add(&g, ids, n, 1 + (uint32_t)(test_random(&rng) % 30));
            for (uint64_t steps = test_random(&rng) % 6; steps && !scheduler_is_idle(g.s); steps--)
                rig_step(&g);
        }
        rig_run(&g);
        while (scheduler_has_background(g.s))
            rig_step(&g);
        for (uint32_t i = 0; i < 24; i++)
            rig_expect(q[i], q[i]->r.max_new_tokens);
        scheduler_stats st = rig_stats(&g);
        CHECK(st.verify.num_mismatches == 0);
        copied += st.copied_tokens;
        retracted += st.num_retractions;
        rig_stop(&g);
    }
    CHECK(copied > 500 && retracted > 0);
}

/* What the pool copies is what it holds, rows apart or not; anything else is refused. */
TEST(a_pool_copies_its_slots)
{
    for (int dtype = 0; dtype < 2; dtype++) {
        rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                         .num_pages = 4,
                                         .page_size = 4,
                                         .num_layers = 3,
                                         .num_kv_heads = 2,
                                         .head_dim = 8,
                                         .v_head_dim = 4,
                                         .dtype = dtype ? RAD_I8 : RAD_F32};
        rad_token_to_kv_pool *pool;
        CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
        size_t page_bytes = 4 * rad_kv_pool_bytes_per_token(&p);
        char a[4096], b[4096], was[4096];
        CHECK(page_bytes <= sizeof a);
        for (size_t i = 0; i < page_bytes; i++)
            a[i] = (char)(i * 7 + 1), was[i] = (char)(i * 5 + 2);
        CHECK_OK(rad_kv_pool_set_page(pool, 1, a, page_bytes));
        CHECK_OK(rad_kv_pool_set_page(pool, 3, was, page_bytes));
        CHECK_OK(rad_kv_pool_copy_slots(pool, 4, 12, 3));
        for (rad_slot i = 0; i < 4; i++) { /* three of a, the last as it was */
            size_t bytes = rad_kv_pool_bytes_per_token(&p);
            rad_slot from = i < 3 ? 4 + i : 15, to = 12 + i;
            if (i == 3) CHECK_OK(rad_kv_pool_set_page(pool, 1, was, page_bytes));
            if (i == 3) from = 7;
            CHECK_OK(rad_kv_pool_get_cpu_copy(pool, &from, 1, a, bytes));
            CHECK_OK(rad_kv_pool_get_cpu_copy(pool, &to, 1, b, bytes));
            CHECK(memcmp(a, b, bytes) == 0);
        }
        CHECK(rad_kv_pool_copy_slots(pool, 4, 6, 3) == RAD_E_INVAL); /* they overlap */
        CHECK(rad_kv_pool_copy_slots(pool, 4, 18, 3) == RAD_E_INVAL);
        CHECK(rad_kv_pool_copy_slots(pool, -1, 8, 1) == RAD_E_INVAL);
        CHECK_OK(rad_kv_pool_copy_slots(pool, 4, 17, 3));
        CHECK_OK(rad_kv_pool_copy_slots(pool, 4, 4, 0));
        rad_token_to_kv_pool_destroy(pool);
    }
}

TEST_MAIN()
