/* test_scheduler.c - the scheduler step by step over runner_fake, which reads every
 * context back through the pool: a wrong slot anywhere changes the answer. */
#include "gear/retract.h"
#include "gear/swap_pages.h"
#include "scheduler_rig.h"

#include "sched/scheduler_impl.h"

#include <math.h>

static const uint32_t page_sizes[] = {1, 16};

TEST(one_request_answers_like_the_oracle)
{
    for (size_t p = 0; p < 2; p++) {
        rig g;
        rad_token ids[40];
        rig_prompt(ids, 40, 1);
        rig_start(&g, rig_params(256, page_sizes[p], 64));
        CHECK(!rig_step(&g)); /* idle: nothing to do */
        rig_req *q = rig_add(&g, ids, 40, 20);
        rig_run(&g);
        CHECK(q->cached_tokens == 0);
        CHECK(g.steps == 1 + 20); /* one prefill, which gives the first token, then 19 */
        rig_expect(q, 20);
        rig_stop(&g);
    }
}

TEST(a_finished_request_is_found_by_the_next_turn)
{
    for (size_t p = 0; p < 2; p++) {
        uint32_t page = page_sizes[p];
        rig g;
        rad_token ids[100];
        rig_prompt(ids, 40, 2);
        rig_start(&g, rig_params(512, page, 64));
        rig_req *first = rig_add(&g, ids, 40, 20);
        rig_run(&g);

        memcpy(ids + 40, first->out, 20 * sizeof *ids);
        rig_prompt(ids + 60, 10, 3);
        rig_req *second = rig_add(&g, ids, 70, 8);
        rig_req *same = rig_add(&g, ids, 40, 20); /* the very same prompt again */
        rig_run(&g);
        /* The last output id never got K/V; of a prompt the last token is computed. */
        CHECK(second->cached_tokens == 59 / page * page);
        uint32_t whole = 59 / page * page; /* the last page is copied as far as it is the same */
        CHECK(same->cached_tokens == RAD_MIN(39, whole));
        CHECK(same->r.hits.copied == same->cached_tokens % page);
        rig_expect(first, 20);
        rig_expect(second, 8);
        rig_expect(same, 20);
        rig_stop(&g);
    }
}

TEST(a_long_prompt_is_computed_in_chunks_beside_decoding_requests)
{
    for (size_t p = 0; p < 2; p++) {
        rig g;
        rad_token a[10], b[200];
        rig_prompt(a, 10, 4);
        rig_prompt(b, 200, 5);
        rig_start(&g, rig_params(1024, page_sizes[p], 32));
        rig_req *quick = rig_add(&g, a, 10, 30);
        rig_step(&g);
        CHECK(quick->num_out == 1);
        rig_req *slow = rig_add(&g, b, 200, 5);
        /* The decoding token counts: 31 are left, of which whole pages are taken. */
        uint32_t chunk = 31 - 31 % page_sizes[p];
        for (uint32_t i = 0; i < 6; i++) {
            rig_step(&g);
            CHECK(slow->num_out == 0 && slow->r.state == REQ_PREFILL);
            CHECK(slow->r.kv.committed_len == (i + 1) * chunk);
            CHECK(quick->num_out == 2 + i); /* decoding goes on meanwhile */
        }
        rig_run(&g);
        rig_expect(quick, 30);
        rig_expect(slow, 5);
        rig_stop(&g);
    }
}

/* However many decode, half of the chunk is for prompts: these do not starve in turn. */
TEST(decoding_requests_take_at_most_half_of_the_budget)
{
    enum { MOST_DECODES = 16, PROMPT = 60 };
    for (uint32_t chunk = 7; chunk <= 8; chunk++)
        for (uint32_t d = 0; d <= MOST_DECODES; d++) {
            rig g;
            rad_token first[MOST_DECODES], ids[PROMPT];
            rig_req *decoding[MOST_DECODES];
            scheduler_params params = rig_params(2048, 1, chunk);
            params.max_running_requests = MOST_DECODES + 1;
            rig_start(&g, params);
            for (uint32_t i = 0; i < d; i++) {
                first[i] = (rad_token)i;
                decoding[i] = rig_add(&g, &first[i], 1, 40);
            }
            while (d && !decoding[d - 1]->num_out) /* a few at a time */
                rig_step(&g);
            rig_prompt(ids, PROMPT, 6);
            ids[0] = MOST_DECODES; /* nobody's prefix */
            rig_req *slow = rig_add(&g, ids, PROMPT, 3);
            uint32_t left = chunk > d ? chunk - d : 0;
            uint32_t want = RAD_MAX(left, (chunk + 1) / 2);
            for (uint32_t done = 0; done + want < PROMPT; done += want) {
                uint32_t before = d ? decoding[0]->num_out : 0;
                rig_step(&g);
                CHECKF(slow->r.kv.committed_len == done + want,
                       "chunk %u, %u decode: %u prompt tokens, not %u\n", chunk, d,
                       slow->r.kv.committed_len - done, want);
                CHECK(!d || decoding[0]->num_out == before + 1);
            }
            rig_run(&g);
            for (uint32_t i = 0; i < d; i++)
                rig_expect(decoding[i], 40);
            rig_expect(slow, 3);
            rig_stop(&g);
        }
}

TEST(several_prompts_share_the_budget_of_a_step)
{
    rig g;
    rad_token ids[4][20];
    rig_req *q[4];
    rig_start(&g, rig_params(1024, 1, 50));
    for (int i = 0; i < 4; i++) {
        rig_prompt(ids[i], 20, 10 + i);
        q[i] = rig_add(&g, ids[i], 20, 3);
    }
    rig_step(&g); /* 20 + 20 + a chunk of 10 */
    CHECK(q[0]->num_out == 1 && q[1]->num_out == 1 && q[2]->num_out == 0);
    CHECK(q[2]->r.state == REQ_PREFILL && q[2]->r.kv.committed_len == 10);
    CHECK(q[3]->r.state == REQ_WAITING);
    rig_run(&g);
    for (int i = 0; i < 4; i++)
        rig_expect(q[i], 3);
    rig_stop(&g);
}

/* SGLang's in-batch prefix caching: of siblings that arrive together one computes what
 * they share, and the others find it. */
TEST(siblings_compute_their_shared_prefix_once)
{
    for (size_t p = 0; p < 4; p++) {
        uint32_t page = page_sizes[p % 2], chunk = p < 2 ? 64 : 0;
        rig g;
        rad_token ids[8][208];
        rig_req *q[8];
        rig_start(&g, rig_params(4096, page, chunk));
        for (int i = 0; i < 8; i++) {
            rig_prompt(ids[i], 192, 20);
            rig_prompt(ids[i] + 192, 16, 21 + i);
            q[i] = rig_add(&g, ids[i], 208, 4);
        }
        rig_run(&g);
        scheduler_stats st = rig_stats(&g);
        CHECKF(st.prefill_tokens == 192 + 8 * 16, "%llu computed\n",
               (unsigned long long)st.prefill_tokens);
        /* With small chunks the leader fills its steps alone: nobody had to be held. */
        CHECK(st.num_held_back == 7);
        for (int i = 0; i < 8; i++) {
            CHECK(q[i]->cached_tokens == (i ? 192 : 0));
            rig_expect(q[i], 4);
        }
        rig_stop(&g);
    }
}

TEST(namespaces_neither_share_nor_wait_for_each_other)
{
    rig g;
    rad_token ids[100];
    rig_req *q[3];
    const char *salts[3] = {NULL, "", "a"};
    rig_prompt(ids, 100, 30);
    rig_start(&g, rig_params(1024, 1, 0));
    for (int i = 0; i < 3; i++) {
        q[i] = malloc(sizeof *q[i]);
        memset(q[i], 0, sizeof *q[i]);
        req_params params = {.ids = ids,
                             .num_ids = 100,
                             .max_new_tokens = 5,
                             .user = q[i],
                             .sampling = {.top_p = 1},
                             .cache_salt = salts[i]};
        CHECK_OK(req_init(&q[i]->r, NULL, &params, NULL));
        CHECK_OK(scheduler_add(g.s, &q[i]->r, NULL));
    }
    rig_step(&g);
    for (int i = 0; i < 3; i++)
        CHECK(q[i]->num_out == 1 && q[i]->cached_tokens == 0);
    rig_run(&g);
    CHECK(rig_stats(&g).prefill_tokens == 300 && rig_stats(&g).num_held_back == 0);
    for (int i = 0; i < 3; i++)
        rig_expect(q[i], 5);
    rig_stop(&g);
}

TEST(whoever_waits_for_a_leader_goes_on_when_the_leader_is_gone)
{
    rig g;
    rad_token ids[2][200];
    rig_prompt(ids[0], 200, 31);
    rig_prompt(ids[1], 200, 31);
    ids[1][199] ^= 1;
    rig_start(&g, rig_params(1024, 1, 32));
    rig_req *leader = rig_add(&g, ids[0], 200, 5);
    rig_req *sibling = rig_add(&g, ids[1], 200, 5);
    rig_step(&g);
    rig_step(&g);
    CHECK(sibling->r.state == REQ_WAITING);
    scheduler_cancel(g.s, &leader->r, REQ_FINISH_ABORT);
    rig_step(&g);
    CHECK(leader->finish == REQ_FINISH_ABORT && sibling->r.state == REQ_PREFILL);
    rig_run(&g);
    CHECK(sibling->cached_tokens == 64); /* the leader's chunks were published */
    rig_expect(sibling, 5);
    rig_drop(leader);
    rig_stop(&g);
}

TEST(short_memory_retracts_and_the_answers_stay)
{
    for (size_t p = 0; p < 2; p++) {
        rig g;
        rad_token ids[6][20];
        rig_req *q[6];
        rig_start(&g, rig_params(192, page_sizes[p], 32));
        for (int i = 0; i < 6; i++) {
            rig_prompt(ids[i], 20, 40 + i);
            q[i] = rig_add(&g, ids[i], 20, 90);
        }
        rig_run(&g);
        CHECK(rig_stats(&g).num_retractions > 0);
        CHECK(rig_stats(&g).prompt_tokens == 120); /* retractions do not count twice */
        for (int i = 0; i < 6; i++)
            rig_expect(q[i], 90);
        rig_stop(&g);
    }
}

/* First come, first served: who does not fit yet is not overtaken by who would. */
TEST(small_requests_do_not_starve_a_large_one)
{
    rig g;
    rad_token ids[80], small[8];
    rig_prompt(ids, 80, 45);
    rig_prompt(small, 8, 46);
    scheduler_params params = rig_params(100, 1, 0);
    params.policy = SCHEDULE_FCFS;
    rig_start(&g, params);
    rig_req *first = rig_add(&g, small, 8, 40);
    rig_step(&g);
    rig_req *large = rig_add(&g, ids, 80, 10);
    rig_req *others[5];
    for (int i = 0; i < 5; i++)
        others[i] = rig_add(&g, small, 8 - i, 4);
    while (!large->admissions) {
        rig_step(&g);
        for (int i = 0; i < 5 && !large->admissions; i++)
            CHECK(!others[i]->admissions);
    }
    rig_run(&g);
    rig_expect(first, 40);
    rig_expect(large, 10);
    for (int i = 0; i < 5; i++)
        rig_expect(others[i], 4);
    rig_stop(&g);
}

/* What a retracted request has computed stays in the tree until the memory is wanted:
 * coming back costs the partial page and the last token, not the prompt. */
TEST(a_retracted_request_finds_what_it_had_computed)
{
    for (size_t p = 0; p < 2; p++) {
        uint32_t page = page_sizes[p];
        rig g;
        rad_token ids[200];
        rig_prompt(ids, 200, 47);
        scheduler_params params = rig_params(1024, page, 0);
        gear_retract_every(4);
        rig_start(&g, params);
        rig_req *q = rig_add(&g, ids, 200, 40);
        rig_run(&g);
        scheduler_stats st = rig_stats(&g);
        CHECK(st.num_retractions >= 8 && q->r.num_retractions == st.num_retractions);
        CHECK(st.prefill_tokens <= 200 + st.num_retractions * page);
        rig_expect(q, 40);
        rig_stop(&g);
    }
    gear_retract_every(0);
}

TEST(retracting_all_the_time_changes_nothing_but_the_work)
{
    for (uint32_t every = 1; every <= 3; every++) {
        rig g;
        rad_token ids[4][50];
        rig_req *q[4];
        scheduler_params params = rig_params(1024, every == 2 ? 16 : 1, 16);
        gear_retract_every(every);
        rig_start(&g, params);
        for (int i = 0; i < 4; i++) {
            rig_prompt(ids[i], 50, 50 + i / 2); /* two pairs of twins */
            q[i] = rig_add(&g, ids[i], 50, 12);
        }
        rig_run(&g);
        CHECK(rig_stats(&g).num_retractions > 3);
        for (int i = 0; i < 4; i++)
            rig_expect(q[i], 12);
        rig_stop(&g);
    }
    gear_retract_every(0);
}

/* Sampling depends on (seed, position) alone: batching, chunks and retraction do not
 * show. */
TEST(a_seed_gives_one_answer_however_it_is_scheduled)
{
    rad_token ids[60], first[30];
    rig_prompt(ids, 60, 60);
    for (uint32_t run = 0; run < 3; run++) {
        rig g;
        scheduler_params params = rig_params(2048, run == 1 ? 16 : 1, run ? 16 : 0);
        gear_retract_every(run * 2);
        rig_start(&g, params);
        rig_req *other = run ? rig_add(&g, ids, 30, 40) : NULL;
        rig_req *q = rig_add_as(
            &g, (req_params){.ids = ids,
                             .num_ids = 60,
                             .max_new_tokens = 30,
                             .sampling = {.temperature = 1.5f, .top_p = 0.99f, .seed = 7}});
        rig_run(&g);
        CHECK(q->num_out == 30);
        if (!run) memcpy(first, q->out, sizeof first);
        CHECK(memcmp(first, q->out, sizeof first) == 0);
        rig_drop(q);
        if (other) rig_expect(other, 40);
        rig_stop(&g);
    }
    gear_retract_every(0);
}

TEST(an_abort_is_fine_at_any_moment)
{
    for (size_t p = 0; p < 2; p++)
        for (uint32_t at = 0; at < 24; at++) {
            rig g;
            rad_token ids[3][70];
            rig_req *q[3];
            scheduler_params params = rig_params(256, page_sizes[p], 16);
            params.max_running_requests = 2;
            rig_start(&g, params);
            for (int i = 0; i < 3; i++) {
                rig_prompt(ids[i], 70, 70 + i);
                q[i] = rig_add(&g, ids[i], 70, 10);
            }
            for (uint32_t i = 0; i < at && !scheduler_is_idle(g.s); i++)
                rig_step(&g);
            rig_req *victim = q[at % 3];
            if (!victim->finish) {
                scheduler_cancel(g.s, &victim->r, REQ_FINISH_ABORT);
                CHECK(scheduler_has_cancels(g.s));
                rig_step(&g);
                CHECK(victim->finish == REQ_FINISH_ABORT);
            }
            rig_run(&g);
            for (int i = 0; i < 3; i++) {
                rig_check_answer(q[i]);
                CHECK(q[i] == victim || q[i]->num_out == 10);
                rig_drop(q[i]);
            }
            rig_stop(&g);
        }
}

TEST(a_request_cancelled_before_it_is_added_ends_at_once)
{
    rig g;
    rad_token ids[5] = {1, 2, 3, 4, 5};
    rig_start(&g, rig_params(64, 1, 16));
    rig_req *q = malloc(sizeof *q);
    rig_req_init(q, ids, 5, 5);
    scheduler_cancel(g.s, &q->r, REQ_FINISH_STOP);
    rig_step(&g);
    CHECK_OK(scheduler_add(g.s, &q->r, NULL));
    rig_step(&g);
    CHECK(q->finish == REQ_FINISH_STOP && q->num_out == 0 && q->admissions == 0);
    rig_drop(q);
    rig_stop(&g);
}

TEST(what_cannot_be_is_refused_in_words)
{
    rig g;
    rad_token ids[200] = {0};
    rig_req q;
    rad_error err;
    scheduler_params params = rig_params(100, 1, 16);
    params.max_queued_requests = 2;
    rig_start(&g, params);
    CHECK(scheduler_context_length(g.s) == 100); /* the pool is smaller than the model's */

    rig_req_init(&q, ids, 101, 1);
    CHECK(scheduler_add(g.s, &q.r, &err) == RAD_E_LIMIT && strstr(err.text, "101"));
    req_fini(&q.r);
    ids[3] = RIG_VOCAB;
    rig_req_init(&q, ids, 10, 1);
    CHECK(scheduler_add(g.s, &q.r, &err) == RAD_E_INVAL && strstr(err.text, "256"));
    req_fini(&q.r);
    ids[3] = -1;
    rig_req_init(&q, ids, 10, 1);
    CHECK(scheduler_add(g.s, &q.r, &err) == RAD_E_INVAL && strstr(err.text, "-1"));
    req_fini(&q.r);
    req_params none = {.ids = ids, .num_ids = 0, .max_new_tokens = 1};
    CHECK(req_init(&q.r, NULL, &none, &err) == RAD_E_INVAL && strstr(err.text, "empty"));

    ids[3] = 0;
    rig_req *a = rig_add(&g, ids, 10, 1), *b = rig_add(&g, ids, 10, 1);
    rig_req_init(&q, ids, 10, 1);
    CHECK(scheduler_add(g.s, &q.r, &err) == RAD_FULL);
    req_fini(&q.r);
    rig_run(&g);
    rig_expect(a, 1);
    rig_expect(b, 1);
    rig_stop(&g);

    scheduler_params wrong = rig_params(15, 16, 0);
    wrong.runner = NULL;
    scheduler *s;
    CHECK(scheduler_create(NULL, &wrong, &s, &err) == RAD_E_INVAL && !s);
}

TEST(the_context_and_the_pool_end_a_request_by_length)
{
    for (size_t p = 0; p < 2; p++) {
        rig g;
        rad_token ids[96];
        rig_prompt(ids, 96, 80);
        rig_start(&g, rig_params(96, page_sizes[p], 32));
        rig_req *endless = rig_add(&g, ids, 50, UINT32_MAX);
        rig_run(&g);
        rig_req *full = rig_add(&g, ids, 96, 10); /* no room for a single id */
        rig_run(&g);
        rig_req *none = rig_add(&g, ids + 10, 20, 0); /* prefill only */
        rig_run(&g);
        rig_req *after = rig_add(&g, ids + 10, 21, 1);
        rig_run(&g);
        CHECK(after->cached_tokens == 20 / page_sizes[p] * page_sizes[p]);
        rig_expect(endless, 46);
        rig_expect(full, 0);
        rig_expect(none, 0);
        rig_expect(after, 1);
        rig_stop(&g);
    }
}

TEST(end_tokens_and_stop_ids_end_a_request_unless_told_otherwise)
{
    rig g;
    rad_token ids[20], answer[10];
    rig_prompt(ids, 20, 90);
    rig_start(&g, rig_params(512, 1, 0));
    rig_req *plain = rig_add(&g, ids, 20, 10);
    rig_run(&g);
    memcpy(answer, plain->out, sizeof answer);
    rig_expect(plain, 10);
    uint32_t first = 4; /* where the id of output 4 appears for the first time */
    for (uint32_t i = 4; i-- > 0;)
        if (answer[i] == answer[4]) first = i;

    g.end_token = answer[4];
    rig_req *ends = rig_add(&g, ids, 20, 10);
    rig_run(&g);
    CHECK(ends->finish == REQ_FINISH_STOP && ends->num_out == first + 1);
    CHECK(ends->r.matched_token == answer[4]);
    rig_drop(ends);

    for (int stop_ids = 0; stop_ids < 2; stop_ids++) {
        rig_req *q = rig_add_as(&g, (req_params){.ids = ids,
                                                 .num_ids = 20,
                                                 .max_new_tokens = 10,
                                                 .ignore_eos = true,
                                                 .sampling = {.top_p = 1},
                                                 .stop_token_ids = &answer[4],
                                                 .num_stop_token_ids = stop_ids});
        rig_run(&g);
        CHECK(q->num_out == (stop_ids ? first + 1 : 10));
        CHECK(q->finish == (stop_ids ? REQ_FINISH_STOP : REQ_FINISH_LENGTH));
        rig_drop(q);
    }
    rig_stop(&g);
}

/* A runner_fake whose logits are no numbers after prompts that begin with 255. */
static runner_ops real_ops;
static rad_status forward_with_nans(runner *self, const forward_batch *batch, const float **logits,
                                    rad_error *err)
{
    rad_status status = real_ops.forward(self, batch, logits, err);
    uint32_t vocab = self->info.vocab_size;
    for (uint32_t r = 0, n = 0; status == RAD_OK && r < batch->num_reqs; r++) {
        uint32_t last = batch->extend_start_loc[r] + batch->extend_seq_lens[r] - 1;
        if (n == batch->num_logits || batch->logits_indices[n] != last) continue;
        float *row = (float *)(uintptr_t)*logits + (size_t)vocab * n++;
        bool bad = !batch->extend_prefix_lens[r] &&
                   batch->input_ids[batch->extend_start_loc[r]] == 255;
        for (uint32_t i = 0; bad && i < vocab; i++)
            row[i] = NAN;
    }
    return status;
}

/* A file may hold NaNs. Who meets them fails alone and in words: the id -1 used to go into
 * the next step, which then failed for everybody in it. */
TEST(logits_that_are_no_numbers_fail_their_request_alone)
{
    rig g;
    rad_token ids[4][20];
    rig_req *q[4];
    rig_start(&g, rig_params(512, 1, 64));
    real_ops = *g.runner->ops;
    runner_ops ops = real_ops;
    ops.forward = forward_with_nans;
    g.runner->ops = &ops;
    for (int i = 0; i < 4; i++) {
        rig_prompt(ids[i], 20, 300 + i);
        ids[i][0] = i == 2 ? 255 : i;
        q[i] = rig_add(&g, ids[i], 20, 5);
    }
    rig_run(&g);
    CHECK(q[2]->finish == REQ_FINISH_ERROR && q[2]->num_out == 0);
    CHECK(q[2]->r.error.status == RAD_E_CORRUPT && q[2]->r.error.text[0]);
    rig_drop(q[2]);
    for (int i = 0; i < 4; i++)
        if (i != 2) rig_expect(q[i], 5);
    rig_stop(&g);
}

/* P3: a failed forward ends its batch with the error and leaves nothing that a later
 * hit could read. */
TEST(a_failed_forward_fails_its_batch_and_poisons_nothing)
{
    for (size_t p = 0; p < 2; p++)
        for (uint32_t every = 2; every < 9; every++) {
            rig g;
            rad_token ids[6][40];
            rig_req *q[24];
            rig_start_failing(&g, rig_params(512, page_sizes[p], 32), every);
            for (int i = 0; i < 24; i++) {
                rig_prompt(ids[i % 6], 20, 100);
                rig_prompt(ids[i % 6] + 20, 20, 101 + i % 6);
                q[i] = rig_add(&g, ids[i % 6], 40, 1 + i % 4);
                if (i % 3 == 0) rig_step(&g);
            }
            rig_run(&g);
            uint32_t failed = 0;
            for (int i = 0; i < 24; i++) {
                rig_check_answer(q[i]);
                CHECK(q[i]->finish == REQ_FINISH_ERROR || q[i]->finish == REQ_FINISH_LENGTH);
                if (q[i]->finish == REQ_FINISH_ERROR) {
                    failed++;
                    CHECK(q[i]->r.error.status == RAD_E_IO && q[i]->r.error.text[0]);
                }
                rig_drop(q[i]);
            }
            CHECK(failed > 0 && failed == rig_stats(&g).num_failed);
            rig_stop(&g);
        }
}

TEST(without_a_tree_everything_is_computed_and_right)
{
    for (size_t p = 0; p < 2; p++) {
        rig g;
        rad_token ids[100];
        rig_req *q[5];
        rig_prompt(ids, 100, 110);
        scheduler_params params = rig_params(300, page_sizes[p], 32);
        params.cache_kind = RAD_CACHE_CHUNK;
        rig_start(&g, params);
        for (int i = 0; i < 5; i++)
            q[i] = rig_add(&g, ids, 100, 10);
        rig_run(&g);
        scheduler_stats st = rig_stats(&g);
        CHECK(st.cached_tokens == 0 && st.prefill_tokens >= 500 && st.num_held_back == 0);
        CHECK(st.available_tokens == st.max_total_tokens);
        for (int i = 0; i < 5; i++)
            rig_expect(q[i], 10);
        rig_stop(&g);
    }
}

TEST(longest_prefix_first_passes_nobody_over_for_ever)
{
    rig g;
    rad_token warm[64], cold[64];
    rig_prompt(warm, 64, 120);
    rig_prompt(cold, 64, 121);
    scheduler_params params = rig_params(1024, 1, 64);
    params.policy = SCHEDULE_LPM;
    params.max_running_requests = 1;
    rig_start(&g, params);
    rig_req *first = rig_add(&g, warm, 64, 1);
    rig_run(&g);
    rig_expect(first, 1);

    rig_req *waits = rig_add(&g, cold, 64, 1);
    rig_req *busy[SCHEDULE_MAX_PASSED_OVER + 8];
    uint32_t n = 0;
    rig_req *pair[2] = {rig_add(&g, warm, 64, 1), rig_add(&g, warm, 64, 1)};
    while (!waits->finish) { /* there is always a friendlier one */
        CHECK(n < SCHEDULE_MAX_PASSED_OVER + 4);
        rig_step(&g);
        for (int i = 0; i < 2; i++)
            if (pair[i]->finish) {
                busy[n++] = pair[i];
                pair[i] = rig_add(&g, warm, 64, 1);
            }
    }
    CHECK(n >= SCHEDULE_MAX_PASSED_OVER - 1);
    rig_run(&g);
    rig_expect(waits, 1);
    for (uint32_t i = 0; i < n; i++)
        rig_expect(busy[i], 1);
    rig_expect(pair[0], 1);
    rig_expect(pair[1], 1);
    rig_stop(&g);
}

/* What the shipped model's test does with real weights: damage must show. */
TEST(a_swapped_page_changes_the_answer)
{
    rig g;
    rad_token a[64], b[64];
    rig_prompt(a, 64, 130);
    rig_prompt(b, 64, 131);
    rig_start(&g, rig_params(1024, 16, 0));
    rig_req *qa = rig_add(&g, a, 64, 20), *qb = rig_add(&g, b, 64, 20);
    rig_run(&g);
    rad_key ka = {.tokens = a, .num_tokens = 64}, kb = {.tokens = b, .num_tokens = 64};
    CHECK(gear_swap_pages(g.s, &ka, 64, &kb, 40) == RAD_NONE);
    CHECK_OK(gear_swap_pages(g.s, &ka, 47, &kb, 40));
    rig_req *again = rig_add(&g, a, 64, 20);
    rig_run(&g);
    CHECK(again->cached_tokens == 63 && again->r.hits.copied == 15);
    CHECK(memcmp(again->out, qa->out, 20 * sizeof(rad_token)) != 0);
    rig_expect(qa, 20);
    rig_expect(qb, 20);
    rig_drop(again);
    rig_stop(&g);
}

TEST(flushing_wants_an_idle_scheduler)
{
    rig g;
    rad_token ids[30];
    rig_prompt(ids, 30, 140);
    rig_start(&g, rig_params(256, 1, 0));
    rig_req *q = rig_add(&g, ids, 30, 3);
    CHECK(scheduler_flush_cache(g.s) == RAD_AGAIN);
    rig_step(&g);
    CHECK(scheduler_flush_cache(g.s) == RAD_AGAIN);
    rig_run(&g);
    CHECK(rig_stats(&g).evictable_tokens > 0);
    CHECK_OK(scheduler_flush_cache(g.s));
    CHECK(rig_stats(&g).evictable_tokens == 0);
    rig_req *again = rig_add(&g, ids, 30, 3);
    rig_run(&g);
    CHECK(again->cached_tokens == 0);
    rig_expect(q, 3);
    rig_expect(again, 3);
    rig_stop(&g);
}

TEST(destroy_lets_go_of_what_still_runs)
{
    rig g;
    rad_token ids[50];
    rig_prompt(ids, 50, 150);
    rig_start(&g, rig_params(256, 1, 16));
    rig_req *q[3];
    for (int i = 0; i < 3; i++)
        q[i] = rig_add(&g, ids, 50 - i, 30);
    for (int i = 0; i < 6; i++)
        rig_step(&g);
    scheduler_destroy(g.s);
    runner_destroy(g.runner);
    for (int i = 0; i < 3; i++)
        rig_drop(q[i]);
}

TEST(create_survives_every_allocation_failing)
{
    rig_create_failing(rig_params(256, 16, 32));
}

TEST(a_request_that_cannot_grow_fails_alone)
{
    rig g;
    rad_token ids[30];
    rig_prompt(ids, 30, 160);
    rig_start(&g, rig_params(1024, 1, 0));
    rig_req *fine = rig_add(&g, ids, 30, 100);

    for (long n = 0; n < 3; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rig_req q = {0};
        req_params p = {.ids = ids,
                        .num_ids = 29,
                        .max_new_tokens = 200,
                        .user = &q,
                        .sampling = {.top_p = 1},
                        .extra_key = "lora"};
        rad_status status = req_init(&q.r, &env, &p, NULL);
        CHECK(status == (n < 2 ? RAD_E_NOMEM : RAD_OK));
        if (status == RAD_OK) {
            CHECK_OK(scheduler_add(g.s, &q.r, NULL));
            rig_run(&g);
            CHECK(q.finish == REQ_FINISH_ERROR && q.r.error.status == RAD_E_NOMEM);
            CHECK(q.num_out == 64);
            rig_check_answer(&q);
        }
        req_fini(&q.r);
        CHECK(t.bytes == 0);
    }
    rig_expect(fine, 100);
    rig_stop(&g);
}

/* After whatever came and went the slots of a prompt ascend: memory is read in runs. */
TEST(a_prompts_slots_ascend)
{
    rig g;
    rad_token ids[300];
    rig_start(&g, rig_params(600, 1, 512));
    for (uint64_t round = 0; round < 5; round++) {
        rig_req *q[8];
        for (int i = 0; i < 8; i++) { /* ends at different times; decoding interleaves them */
            rig_prompt(ids, 30, 100 * round + (uint64_t)i);
            q[i] = rig_add(&g, ids, 30, 5 + 7 * ((uint32_t)i * 5 % 8));
        }
        rig_run(&g);
        for (int i = 0; i < 8; i++)
            rig_drop(q[i]);
        rig_prompt(ids, 300, 1000 + round);
        rig_req *last = rig_add(&g, ids, 300, 2);
        rig_step(&g);
        const rad_slot *row = rad_req_to_token_row(g.s->pools.req_to_token_pool, last->r.kv.row);
        for (int p = 1; p < 300; p++)
            CHECKF(row[p] > row[p - 1], "round %llu, position %d\n", (unsigned long long)round, p);
        rig_run(&g);
        rig_expect(last, 2);
    }
    rig_stop(&g);
}

TEST_MAIN()
