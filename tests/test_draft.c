/* test_draft.c - what is guessed, from recent answers, a prediction and the tree, and how much of a
 * guess is tried: by what rows cost and how often the guess was right, on a clock that only a
 * script moves. */
#include "draft_rig.h"

#include "sched/draft_recent.h"

#include <math.h>

/* ---- recent answers ---- */

/* Namespaces whose answers begin with words that all have and go on with words of their own: more
 * than there are places for names, so that they come and go. */
TEST(nothing_is_proposed_from_another_namespace)
{
    enum { SPACES = 11, COMMON = 6, OWN = 50, ANSWER = 30 };
    static const char *const names[] = {NULL, "a", "b", "ab", "c", ""};
    uint64_t seed = test_told_seed();
    const rad_env env = rad_env_or_default(NULL);
    draft_recent d;
    uint32_t found = 0, foreign = 0;
    CHECK(draft_recent_init(&d, &env, 4096)); /* of 8 names */
    for (int round = 0; round < 4000; round++) {
        const uint32_t space = (uint32_t)(test_random(&seed) % SPACES);
        const char *extra = names[space % 6], *salt = space < 6 ? NULL : names[space - 5];
        rad_token ids[ANSWER], out[16];
        uint32_t match;
        for (uint32_t i = 0; i < ANSWER; i++)
            ids[i] = (rad_token)(i % 10 < COMMON ? i % 10
                                                 : 1000 * (space + 1) + test_random(&seed) % OWN);
        const uint32_t n = 1 + (uint32_t)(test_random(&seed) % ANSWER);
        const uint32_t count = draft_recent_propose(&d, extra, salt, ids, n, out, 16, &match);
        CHECK(!count == !match && count <= 16);
        for (uint32_t i = 0; i < count; i++)
            foreign += out[i] >= 1000 && (uint32_t)out[i] / 1000 != space + 1;
        found += count > 0;
        draft_recent_add(&d, extra, salt, ids, ANSWER, (uint32_t)(test_random(&seed) % 4));
        if (round % 1000 == 999) {
            draft_recent_clear(&d);
            CHECK(!draft_recent_propose(&d, extra, salt, ids, n, out, 16, &match));
        }
    }
    CHECKF(!foreign && found > 2000, "%u foreign, %u found\n", foreign, found);
    char longest[1000];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0; /* a name that is not kept */
    draft_recent_add(&d, longest, NULL, (rad_token[]){1, 2, 3, 4}, 4, 0);
    CHECK(!draft_recent_propose(&d, longest, NULL, (rad_token[]){1, 2}, 2, (rad_token[4]){0}, 4,
                                &(uint32_t){0}));
    draft_recent_fini(&d, &env);
}

/* Ten million tokens of answers take the memory that was there at first; the newest are found, and
 * what the ring has overwritten is not. */
TEST(recent_answers_stay_within_their_memory)
{
    enum { ANSWER = 500, CAPACITY = 1 << 14 };
    const uint32_t answers = (uint32_t)test_scale(200, 20000);
    test_env t;
    const rad_env counted = test_env_init(&t), env = rad_env_or_default(&counted);
    draft_recent d;
    CHECK(draft_recent_capacity(CAPACITY - 5) == CAPACITY);
    CHECK(draft_recent_capacity(0) == RECENT_LEAST);
    CHECK(draft_recent_init(&d, &env, CAPACITY));
    const size_t bytes = t.bytes;
    CHECKF(bytes <= draft_recent_bytes(CAPACITY), "%zu of %zu\n", bytes,
           draft_recent_bytes(CAPACITY));
    for (uint32_t k = 0; k < answers; k++) {
        rad_token ids[ANSWER], out[8];
        uint32_t match;
        char salt[16];
        snprintf(salt, sizeof salt, "%u", k % 50);
        for (uint32_t i = 0; i < ANSWER; i++)
            ids[i] = (rad_token)(i + k * ANSWER);
        draft_recent_add(&d, NULL, salt, ids, ANSWER, 0);
        CHECK(draft_recent_propose(&d, NULL, salt, ids, ANSWER - 4, out, 8, &match) == 4);
        CHECK(match == SUFFIX_LONGEST && out[3] == ids[ANSWER - 1]);
        const uint32_t ago = CAPACITY / ANSWER + 1;
        if (k < ago) continue;
        for (uint32_t i = 0; i < ANSWER; i++)
            ids[i] -= (rad_token)(ago * ANSWER);
        snprintf(salt, sizeof salt, "%u", (k - ago) % 50);
        CHECK(!draft_recent_propose(&d, NULL, salt, ids, ANSWER / 2, out, 8, &match));
        CHECK(t.bytes == bytes);
    }
    CHECK(d.names.given_up > 0);
    draft_recent_fini(&d, &env);
    CHECK(t.bytes == 0);
}

/* Another request of the same namespace has guesses of what was answered, one of another has none;
 * what a model says goes its own way. */
TEST(answers_of_a_namespace_are_recent_for_that_one_alone)
{
    static const char *const salts[] = {NULL, NULL, "other", "other"};
    rig g;
    for (uint32_t off = 0; off < 2; off++) { /* no drafts, and none of these: nothing is kept */
        scheduler_params without = rig_params(8192, 1, 64);
        without.draft_sources = draft_bit(DRAFT_RECENT);
        without.draft_recent_tokens = off ? 0 : RECENT_LEAST;
        without.max_draft_tokens = off ? 8 : 0;
        rig_start(&g, without);
        rig_req *q = rig_add(&g, (rad_token[]){1, 2, 3}, 3, 20);
        rig_run(&g);
        rig_expect(q, 20);
        rig_stop(&g);
    }
    rad_token ids[40];
    scheduler_params params = rig_params(8192, 1, 64);
    params.max_draft_tokens = 8;
    params.draft_sources = draft_bit(DRAFT_RECENT);
    params.draft_recent_tokens = RECENT_LEAST;
    rig_start(&g, params);
    g.s->drafts.at_any_price = true;
    for (int i = 0; i < 4; i++) {
        const uint64_t before = rig_stats(&g).drafts.proposed[DRAFT_RECENT];
        rig_prompt(ids, 40, (uint64_t)i);
        rig_req *q = rig_add_as(&g, (req_params){.ids = ids,
                                                 .num_ids = 40,
                                                 .max_new_tokens = 200,
                                                 .sampling = {.top_p = 1},
                                                 .cache_salt = salts[i]});
        rig_run(&g);
        const uint64_t proposed = rig_stats(&g).drafts.proposed[DRAFT_RECENT] - before;
        CHECKF(!proposed == (i % 2 == 0), "%d: %llu\n", i, (unsigned long long)proposed);
        rig_expect(q, 200);
    }
    rig_stop(&g);
}

/* ---- what a client foretold ---- */

/* A file as it was, and as it becomes: a token changed, some put in, some left out, and a part
 * moved to the end. All but what stands right behind an edit is foretold, and nothing is counted
 * twice. */
TEST(a_prediction_is_found_again_behind_each_edit)
{
    enum { FILE_TOKENS = 600, MOVED = 40 };
    const rad_env env = rad_env_or_default(NULL);
    rad_token file[FILE_TOKENS], answer[2 * FILE_TOKENS], out[8];
    uint64_t seed = test_told_seed();
    uint32_t num = 0, changed = 0;
    for (uint32_t i = 0; i < FILE_TOKENS; i++)
        file[i] = (rad_token)(test_random(&seed) % 200);
    for (uint32_t i = 0; i < FILE_TOKENS; i++) {
        if (i >= 200 && i < 200 + MOVED) continue;
        if (i % 100 == 50) {
            answer[num++] = 1000; /* instead of this one */
            changed++;
            continue;
        }
        if (i % 100 == 75) i += 5, changed += 5; /* six are left out */
        if (i % 100 == 25)
            for (int k = 0; k < 7; k++)
                answer[num++] = 2000 + k;
        answer[num++] = file[i];
    }
    memcpy(answer + num, file + 200, MOVED * sizeof *file);
    num += MOVED;

    prediction *p;
    CHECK_OK(prediction_create(&env, file, FILE_TOKENS, &p, NULL));
    prediction_cursor c = {0};
    uint32_t right = 0, wrong = 0, silent = 0, match;
    for (uint32_t i = 0; i < num; i++) {
        uint32_t count = prediction_propose(p, &c, answer, i, out, 8, &match);
        CHECK(c.at <= FILE_TOKENS && (count || !match || c.at == FILE_TOKENS));
        if (!count)
            silent++;
        else if (out[0] == answer[i])
            right++;
        else
            wrong++;
    }
    /* 18 edits, of which 6 are 7 tokens long. */
    CHECKF(right > num - 18 * 4 - 6 * 7 && wrong < 18 * 4, "%u right, %u wrong, %u silent of %u\n",
           right, wrong, silent, num);
    const uint32_t accepted = prediction_accepted(&env, p, answer, num);
    CHECKF(accepted <= FILE_TOKENS - changed + 12 && accepted >= FILE_TOKENS - changed - 24,
           "%u accepted, %u unchanged\n", accepted, FILE_TOKENS - changed);
    CHECK(prediction_accepted(&env, p, answer, 0) == 0);
    CHECK(prediction_accepted(&env, p, file, FILE_TOKENS) == FILE_TOKENS);
    prediction_destroy(&env, p);
}

/* One token repeated, and texts of few kinds of tokens: proposals are of the prediction, and each
 * token of it counts once at most. */
TEST(a_prediction_stands_any_text)
{
    const rad_env env = rad_env_or_default(NULL);
    uint64_t seed = test_told_seed();
    for (int round = 0; round < 60; round++) {
        rad_token ids[300], answer[400], out[4];
        const uint32_t count = (uint32_t)(test_random(&seed) % 300), kinds = 1 + round % 7;
        uint32_t match, before = 0;
        for (uint32_t i = 0; i < 400; i++) {
            answer[i] = (rad_token)(test_random(&seed) % kinds);
            if (i < 300) ids[i] = (rad_token)(test_random(&seed) % kinds);
        }
        prediction *p;
        CHECK_OK(prediction_create(&env, ids, count, &p, NULL));
        CHECK(prediction_tokens(p) == count);
        prediction_cursor c = {0};
        for (uint32_t n = 0; n <= 400; n += 1 + round % 3) {
            const uint32_t got = prediction_propose(p, &c, answer, n, out, 4, &match);
            CHECK(c.seen == n && c.at <= count && match == c.same && c.same <= n);
            CHECK(got <= 4 && (!got || !memcmp(out, ids + c.at, got * sizeof *ids)));
            for (uint32_t i = 0; i < RAD_MIN(match, (uint32_t)PREDICTION_LONGEST); i++)
                CHECK(ids[c.at - 1 - i] == answer[n - 1 - i]);
            const uint32_t accepted = prediction_accepted(&env, p, answer, n);
            CHECK(accepted >= before && accepted <= RAD_MIN(n * PREDICTION_LONGEST, count));
            before = accepted;
        }
        prediction_destroy(&env, p);
    }
    test_env t; /* no memory */
    rad_env failing = test_env_failing_at(&t, 0);
    prediction *p;
    CHECK(prediction_create(&failing, (const rad_token[]){1}, 1, &p, NULL) == RAD_E_NOMEM && !p);
}

/* ---- how many ---- */

enum { NEW = 400 };

/* Rows that see a long context, or read experts of their own, cost what they cost: found from noisy
 * steps of two requests with contexts of any length, some with drafts. */
TEST(the_price_of_a_row_follows_its_context)
{
    static const struct {
        double row, at;
    } cases[] = {{2e5, 0}, {2e5, 40}, {2e6, 0}, {0, 100}};
    uint64_t rng = test_told_seed();
    for (size_t k = 0; k < RAD_COUNT(cases); k++) {
        draft_prices p;
        draft_price price;
        draft_prices_init(&p);
        CHECK(!draft_prices_get(&p, 2, 0, &price));
        for (uint32_t i = 0; i < 2000; i++) {
            const uint32_t context = 100 + (uint32_t)(test_random(&rng) % 16000),
                           rows = i % 4 == 0 ? 0 : i % 7;
            const double noise = 1 + 0.1 * ((double)(test_random(&rng) >> 11) * 0x1p-53 - 0.5);
            const step_work w = {.num_decodes = 2,
                                 .draft_rows = rows,
                                 .pairs = (2.0 + rows) * context,
                                 .draft_pairs = (double)rows * context};
            double ns = 4e6 + 30.0 * 2 * context + rows * (cases[k].row + cases[k].at * context);
            ns *= i % 50 == 9 ? 8 : noise; /* some are interrupted */
            draft_prices_observe(&p, &w, ns);
        }
        for (uint32_t context = 1000; context <= 16000; context *= 4) {
            CHECK(draft_prices_get(&p, 2, 2.0 * context, &price));
            const double step = 4e6 + 60.0 * context, row = cases[k].row + cases[k].at * context;
            const double found = draft_price_of_row(&price, context);
            CHECKF(price.step > 0.8 * step && price.step < 1.3 * step, "step %.0f, not %.0f\n",
                   price.step, step);
            CHECKF(found > 0.7 * row - 2e5 && found < 1.4 * row + 2e5, "row %.0f, not %.0f\n",
                   found, row);
        }
        /* Tried again it is the same, and so is the price; or half of it, and that is believed. */
        for (int dear = 1; cases[k].row > 1e6 && dear >= 0; dear--) {
            const step_work w = {
                .num_decodes = 2, .draft_rows = 2, .pairs = 4.0, .draft_pairs = 2.0};
            CHECK(draft_prices_get(&p, 2, 2, &price) && !price.unsure);
            draft_prices_doubt_rows(&p, 2);
            for (int tries = 0; draft_prices_get(&p, 2, 2, &price) && price.unsure; tries++) {
                CHECK(tries < (dear ? 1 : 4));
                draft_prices_observe(&p, &w, 4e6 + 2 * cases[k].row * (dear ? 1 : 0.5));
            }
            CHECKF(fabs(price.row / cases[k].row - (dear ? 1 : 0.5)) < 0.2, "%.0f\n", price.row);
        }
    }
}

TEST(right_drafts_of_cheap_rows_take_fewer_steps)
{
    draft_stats drafts;
    for (uint32_t num_reqs = 1; num_reqs <= 4; num_reqs += 3) {
        const draft_script s = {
            .num_reqs = num_reqs, .num_new = NEW, .row = 2e5, .wrong_from = UINT32_MAX};
        const uint64_t steps = run_script(&s, &drafts);
        CHECKF(steps < NEW / 6, "%llu steps for %u\n", (unsigned long long)steps, num_reqs);
        CHECK(drafts.proposed[DRAFT_GIVEN] == drafts.accepted[DRAFT_GIVEN]);
    }
}

/* Time is what matters: with these prices it must not be more than without drafts, and a try. */
TEST(drafts_that_do_not_pay_are_hardly_tried)
{
    static const struct {
        double row;
        uint32_t num_reqs, wrong_from;
    } cases[] = {
        {2e5, 1, 0},                  /* always wrong */
        {8e6, 1, UINT32_MAX},         /* right, and dearer than steps */
        {3e6, 1, 1},                  /* one of each right, at three quarters of a step */
        {2e5, DRAFT_FULL, UINT32_MAX} /* a full batch */
    };
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        draft_stats drafts;
        const uint32_t num_new = cases[i].num_reqs == 1 ? NEW : 40;
        const draft_script s = {.num_reqs = cases[i].num_reqs,
                                .num_new = num_new,
                                .row = cases[i].row,
                                .wrong_from = cases[i].wrong_from};
        run_script(&s, &drafts);
        const double step = script.of.step;
        double without = (num_new - 1) * (step + s.row * (s.num_reqs - 1)) + step +
                         s.row * (IDS * s.num_reqs - 1);
        double share = (double)script.clock.now / without;
        print_message("  case %zu: %llu of %llu right, %.3f of the time without\n", i,
                      (unsigned long long)drafts.accepted[DRAFT_GIVEN],
                      (unsigned long long)drafts.proposed[DRAFT_GIVEN], share);
        CHECK(share < 1.06);
        CHECK(i < 3 || !script.asked);
    }
}

/* ---- from the tree ---- */

enum { TEXTS = 24, LENGTH = 120 };

/* Whether some text begins with ids[0..n) and goes on with out[0..count), or ends before that. */
static bool goes_on(rad_token texts[TEXTS][LENGTH], const rad_token *ids, uint32_t n,
                    const rad_token *out, uint32_t count)
{
    for (int i = 0; i < TEXTS; i++) {
        const uint32_t more = RAD_MIN(count, LENGTH - n);
        if (!memcmp(texts[i], ids, n * sizeof *ids) &&
            !memcmp(texts[i] + n, out, more * sizeof *out) && more == count)
            return true;
    }
    return false;
}

/* Texts that fork at any place, in two namespaces; whatever is asked is answered as one of them in
 * its namespace goes on, or not at all where there is none. */
TEST(a_continuation_is_one_of_a_text_that_began_alike)
{
    uint64_t seed = test_told_seed();
    for (uint32_t page_size = 1; page_size <= 4; page_size += 3) {
        static rad_token texts[2][TEXTS][LENGTH];
        rad_slot slots[LENGTH];
        rad_cache *cache;
        rad_kv_allocator *kv;
        const rad_kv_allocator_params pages = {
            .struct_size = sizeof pages, .num_pages = 8192, .page_size = page_size};
        CHECK_OK(rad_kv_allocator_create(NULL, &pages, &kv, NULL));
        const rad_cache_params params = {.struct_size = sizeof params,
                                         .kind = RAD_CACHE_RADIX,
                                         .page_size = page_size,
                                         .kv_allocator = kv};
        CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
        for (uint32_t i = 0; i < 2 * TEXTS; i++) {
            rad_token *ids = texts[i % 2][i / 2];
            const uint32_t fork = (uint32_t)(test_random(&seed) % LENGTH);
            memcpy(ids, texts[i % 2][test_random(&seed) % (i / 2 + 1)], fork * sizeof *ids);
            for (uint32_t k = fork; k < LENGTH; k++)
                ids[k] = (rad_token)(test_random(&seed) % 200 + 1000 * (i % 2));
            const rad_key key = {
                .tokens = ids, .num_tokens = LENGTH, .cache_salt = i % 2 ? "other" : NULL};
            rad_inserted in;
            const uint32_t none = 0, all = LENGTH;
            CHECK_OK(rad_kv_alloc_extend(kv, 1, &none, &all, &(rad_slot){-1}, slots, NULL));
            CHECK_OK(rad_cache_insert(cache, &key, slots, NULL, &in, NULL));
            CHECK_OK(rad_kv_free_slots(kv, slots, in.prefix_tokens, NULL));
        }
        uint32_t found = 0;
        for (int ask = 0; ask < 2000; ask++) {
            const uint32_t ns = ask % 2, n = (uint32_t)(test_random(&seed) % (LENGTH - 1));
            rad_token ids[LENGTH], out[16];
            uint32_t count = 99;
            memcpy(ids, texts[ns][test_random(&seed) % TEXTS], sizeof ids);
            const bool foreign = n && ask % 8 > 5;
            if (foreign) ids[test_random(&seed) % n] = 5000;
            const rad_key key = {.tokens = ids, .num_tokens = n, .cache_salt = ns ? "other" : NULL};
            rad_match match = {0};
            if (n && ask % 3) CHECK_OK(rad_cache_lookup(cache, &key, &match));
            rad_node_info info = {.struct_size = sizeof info};
            CHECK_OK(rad_cache_get_node_info(cache, match.last_node, &info, NULL));
            const bool ends = info.depth_tokens == match.prefix_tokens; /* not within its edge */
            CHECK_OK(rad_cache_continuation(cache, &key, ends ? match.last_node : (rad_ref){0},
                                            ends ? match.prefix_tokens : 0, out, 16, &count));
            CHECK(count <= 16 && (foreign ? !count : count > 0));
            CHECK(!count || goes_on(texts[ns], ids, n, out, count));
            found += count == 16;
        }
        CHECK(found > 500);
        rad_key key = {.tokens = texts[0][0], .num_tokens = 8, .cache_salt = "nobody's"};
        rad_token out[4];
        uint32_t count = 99;
        CHECK_OK(rad_cache_continuation(cache, &key, (rad_ref){0}, 0, out, 4, &count));
        CHECK(count == 0);
        CHECK(rad_cache_continuation(cache, &key, (rad_ref){7, 99}, 4, out, 4, &count) ==
              RAD_E_STATE);
        rad_cache_destroy(cache);
        rad_kv_allocator_destroy(kv);
    }
}

/* What measures drafts tells the answer: the model's own word does not count, a draft that agrees
 * with the telling does, and behind it the model goes on. */
TEST(an_answer_that_is_told_is_said)
{
    enum { TOLD = 60, MORE = 20 };
    static uint64_t steps[2];
    for (int drafts = 0; drafts < 2; drafts++) {
        rig g;
        rad_token ids[IDS], told[TOLD];
        scheduler_params params = rig_params(2048, 1, 64);
        params.max_draft_tokens = drafts ? 8 : 0;
        params.draft_sources = draft_bit(DRAFT_NGRAM);
        rig_start(&g, params);
        g.s->drafts.at_any_price = true;
        rig_prompt(ids, IDS, 1);
        for (uint32_t i = 0; i < TOLD; i++)
            told[i] = (rad_token)(5 + i % 12);
        rig_req *q = rig_add_as(&g, (req_params){.ids = ids,
                                                 .num_ids = IDS,
                                                 .max_new_tokens = TOLD + MORE,
                                                 .sampling = {.top_p = 1},
                                                 .told = told,
                                                 .num_told = TOLD});
        rig_run(&g);
        CHECK(q->finish == REQ_FINISH_LENGTH && q->num_out == TOLD + MORE);
        CHECK(!memcmp(q->out, told, sizeof told));
        for (uint32_t i = TOLD; i < TOLD + MORE; i++) /* the model's, behind what was told */
            CHECK(q->out[i] == runner_fake_next_of(&rig_fake, q->r.fill_ids, IDS + i));
        steps[drafts] = q->r.draft.counts.steps;
        CHECK(steps[drafts] + draft_counts_sum(q->r.draft.counts.accepted) == TOLD + MORE - 1);
        scheduler_set_drafts(g.s, false);
        CHECK(!g.s->drafts.most);
        scheduler_set_drafts(g.s, true);
        CHECK(g.s->drafts.most == params.max_draft_tokens);
        rig_drop(q);
        rig_stop(&g);
    }
    CHECK(steps[1] < steps[0] * 2 / 3);
}

/* Who can say nothing is not among those who guess, and with no room for drafts nobody is. */
TEST(who_has_nothing_to_say_does_not_guess)
{
    const struct {
        uint32_t asked, cache_kind, recent_tokens, max_tokens, want;
    } cases[] = {
        {draft_bit(DRAFT_TREE) | draft_bit(DRAFT_NGRAM), RAD_CACHE_RADIX, 0, 4,
         draft_bit(DRAFT_TREE) | draft_bit(DRAFT_NGRAM)},
        {draft_bit(DRAFT_TREE) | draft_bit(DRAFT_NGRAM), RAD_CACHE_CHUNK, 0, 4,
         draft_bit(DRAFT_NGRAM)},
        {draft_bit(DRAFT_RECENT), RAD_CACHE_RADIX, RECENT_LEAST, 4, draft_bit(DRAFT_RECENT)},
        {draft_bit(DRAFT_RECENT), RAD_CACHE_RADIX, 0, 4, 0},
        {draft_bit(DRAFT_NEXTN), RAD_CACHE_RADIX, 0, 4, 0}, /* the model has no head */
        {draft_bit(DRAFT_NGRAM), RAD_CACHE_RADIX, 0, 0, 0},
    };
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        rig g;
        scheduler_params params = rig_params(2048, 1, 64);
        params.draft_sources = cases[i].asked;
        params.cache_kind = cases[i].cache_kind;
        params.draft_recent_tokens = cases[i].recent_tokens;
        params.max_draft_tokens = cases[i].max_tokens;
        rig_start(&g, params);
        const uint32_t got = scheduler_draft_sources(g.s);
        CHECKF((got & ~draft_bit(DRAFT_FORCED)) == cases[i].want, "case %zu: %x\n", i, got);
        rig_stop(&g);
    }
}

/* A prompt that was asked before is answered in a few steps; in another namespace it is not. */
TEST(a_repeated_prompt_goes_the_way_that_it_went_before)
{
    for (uint32_t page_size = 1; page_size <= 16; page_size += 15) {
        rig g;
        rad_token ids[IDS];
        scheduler_params params = rig_params(8192, page_size, 64);
        params.max_draft_tokens = 15;
        params.draft_sources = draft_bit(DRAFT_TREE);
        rig_start(&g, params);
        g.s->drafts.at_any_price = true;
        rig_prompt(ids, IDS, 1);
        for (int time = 0; time < 3; time++) {
            const uint64_t steps = g.steps;
            rig_req *q = rig_add_as(&g, (req_params){.ids = ids,
                                                     .num_ids = IDS,
                                                     .max_new_tokens = 160,
                                                     .sampling = {.top_p = 1},
                                                     .cache_salt = time == 1 ? "other" : NULL});
            rig_run(&g);
            CHECK(time < 2 ? g.steps - steps >= 160 : g.steps - steps < 160 / 8);
            rig_expect(q, 160);
        }
        const draft_stats d = rig_stats(&g).drafts;
        CHECK(d.accepted[DRAFT_TREE] > 120 && d.proposed[DRAFT_TREE] < 160);
        rig_stop(&g);
    }
}

TEST_MAIN()
