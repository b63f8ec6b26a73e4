/* test_sched_slots.c - which slots a decoding request gets. With n others it gets one of every
 * n: an odd distance, or its K/V compete for the same few places of the caches. */
#include "sched/scheduler_impl.h"
#include "scheduler_rig.h"

enum { PROMPT = 5, OUT = 40 };

/* `n` requests of one length, until each has slots for all but its last output. */
static void decode_together(rig *g, rig_req **q, uint32_t n, uint32_t page_size)
{
    rad_token ids[PROMPT];
    rig_start(g, rig_params(2048, page_size, 256));
    for (uint32_t i = 0; i < n; i++) {
        rig_prompt(ids, PROMPT, 700 + i);
        q[i] = rig_add(g, ids, PROMPT, OUT);
    }
    while (q[0]->num_out < OUT - 1)
        CHECK(rig_step(g));
    CHECK(g->s->num_running == n);
}

static const rad_slot *row_of(const rig *g, const rig_req *q)
{
    return rad_req_to_token_row(g->s->pools.req_to_token_pool, q->r.kv.row);
}

static void end(rig *g, rig_req **q, uint32_t n)
{
    rig_run(g);
    for (uint32_t i = 0; i < n; i++)
        rig_expect(q[i], OUT);
    rig_stop(g);
}

TEST(the_next_slot_of_a_decoding_request_is_at_an_odd_distance)
{
    for (uint32_t n = 1; n <= 8; n++) {
        rig g;
        rig_req *q[8];
        decode_together(&g, q, n, 1);
        for (uint32_t i = 0; i < n; i++) {
            const rad_slot *row = row_of(&g, q[i]);
            for (uint32_t at = PROMPT + 1; at < PROMPT + OUT - 2; at++)
                CHECKF((row[at] - row[at - 1]) % 2 != 0, "%u requests, %u: slots %d and %d\n", n, i,
                       row[at - 1], row[at]);
        }
        end(&g, q, n);
    }
}

/* A chunk of prompt makes a step take as many slots each time, mostly a power of two. (Of an odd
 * number of requests one a step is at an even distance, who comes to the front again.) */
TEST(beside_chunks_of_a_prompt_it_is_not_their_size)
{
    for (uint32_t n = 2; n <= 5; n++) {
        rig g;
        rig_req *q[8];
        rad_token ids[600];
        rig_start(&g, rig_params(2048, 1, 64));
        for (uint32_t i = 0; i < n; i++) {
            rig_prompt(ids, PROMPT, 720 + i);
            q[i] = rig_add(&g, ids, PROMPT, OUT);
        }
        CHECK(rig_step(&g));
        rig_prompt(ids, 600, 740);
        rig_req *longest = rig_add(&g, ids, 600, 1);
        CHECK(rig_step(&g));
        for (uint32_t steps = 0; steps < 6; steps++) {
            uint32_t at = req_num_fill(&q[0]->r) - 1; /* has no slot yet */
            CHECK(rig_step(&g));
            CHECK(g.s->batch.num_tokens == 64 && longest->num_out == 0);
            for (uint32_t i = 0; i < n; i++)
                CHECK(row_of(&g, q[i])[at] - row_of(&g, q[i])[at - 1] != 64);
        }
        rig_run(&g);
        rig_expect(longest, 1);
        end(&g, q, n);
    }
}

/* Who takes whose slot would tear pages apart. */
TEST(slots_of_a_page_stay_side_by_side)
{
    rig g;
    rig_req *q[8];
    decode_together(&g, q, 4, 16);
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t at = 1; at < PROMPT + OUT - 2; at++)
            if (at % 16) CHECK(row_of(&g, q[i])[at] == row_of(&g, q[i])[at - 1] + 1);
    end(&g, q, 4);
}

TEST_MAIN()
