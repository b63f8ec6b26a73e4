/* test_draft_ngram.c - what is guessed from a request's own text: the index of it. */
#include "draft_rig.h"

#include "sched/draft_ngram.h"

/* The most tokens before the end that stood somewhere before, looked for in the plain way. */
static uint32_t naive_match(const rad_token *ids, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t end = 1; end < n; end++) {
        uint32_t same = 0;
        while (same < end && same < SUFFIX_LONGEST && ids[end - 1 - same] == ids[n - 1 - same])
            same++;
        best = RAD_MAX(best, same);
    }
    return best;
}

/* Whether out[0..16) stood behind `match` of the last tokens, or runs on behind the end. */
static bool stood_somewhere(const rad_token *ids, uint32_t n, uint32_t match, const rad_token *out)
{
    for (uint32_t end = match; end < n; end++) {
        bool here = !memcmp(ids + end - match, ids + n - match, match * sizeof *ids);
        for (uint32_t i = 0; i < 16 && here; i++)
            here = out[i] == (end + i < n ? ids[end + i] : out[end + i - n]);
        if (here) return true;
    }
    return false;
}

/* Few kinds of tokens, so that nearly everything stood there before. What is found is never wrong,
 * and longer than half of the longest unless another text's slot is in the way. */
TEST(a_proposal_is_what_stood_behind_the_same_tokens)
{
    uint64_t seed = test_told_seed();
    const rad_env env = rad_env_or_default(NULL);
    ngram_pool pool = {0};
    uint32_t asked = 0, far = 0;
    for (int round = 0; round < 40; round++) {
        ngram_index *index = ngram_take(&pool, &env);
        rad_token ids[400], out[16];
        uint32_t n = 1 + (uint32_t)(test_random(&seed) % 50), kinds = 2 + round % 20;
        for (uint32_t i = 0; i < 400; i++) {
            ids[i] = (rad_token)(test_random(&seed) % kinds);
            if (i > 60 && test_random(&seed) % 8) ids[i] = ids[i - 50];
        }
        for (; n < 400; n += 1 + (uint32_t)(test_random(&seed) % 3)) {
            uint32_t match = 99, place, want = naive_match(ids, n);
            uint32_t count = ngram_propose(index, ids, n, out, 16, &match, &place);
            CHECK(match <= want && count == (match ? 16 : 0));
            far += 2 * match > want;
            asked += want > 0;
            CHECKF(!match || stood_somewhere(ids, n, match, out), "round %d, %u\n", round, n);
        }
        ngram_put_back(&pool, index);
    }
    CHECKF(far > asked - asked / 50, "%u of %u\n", far, asked);
    ngram_pool_fini(&pool, &env);
}

/* Until all of the text is entered. */
static uint32_t propose_at_last(ngram_index *index, const rad_token *ids, uint32_t n,
                                rad_token *out, uint32_t room, uint32_t *match)
{
    uint32_t count = 0, place;
    for (uint32_t entered = 0; entered < n; entered += NGRAM_AT_ONCE)
        count = ngram_propose(index, ids, n, out, room, match, &place);
    return count;
}

/* A step enters so many of its tokens, so the last ones are found some steps later; of a very long
 * one the front is never entered. */
TEST(a_long_text_is_entered_over_some_steps)
{
    enum { LENGTH = NGRAM_TOKENS + 1000, COPY = 8 };
    static rad_token ids[LENGTH + COPY];
    const rad_env env = rad_env_or_default(NULL);
    ngram_pool pool = {0};
    ngram_index *index = ngram_take(&pool, &env);
    for (uint32_t i = 0; i < LENGTH; i++)
        ids[i] = (rad_token)i;
    memcpy(ids + LENGTH, ids + LENGTH - 100, COPY * sizeof *ids);
    for (uint32_t step = 0; step < NGRAM_TOKENS / NGRAM_AT_ONCE; step++) {
        rad_token out[4];
        uint32_t match, place;
        const bool last = step == NGRAM_TOKENS / NGRAM_AT_ONCE - 1;
        CHECK(ngram_propose(index, ids, LENGTH + COPY, out, 4, &match, &place) == (last ? 4 : 0));
        CHECK(match == (last ? COPY : 0) && (!last || out[0] == LENGTH - 100 + COPY));
        CHECK(place == (last ? LENGTH - 100 + COPY : 0));
    }
    ids[LENGTH + COPY - 1] = 0; /* stood before all that is entered */
    uint32_t match, place;
    CHECK(!ngram_propose(index, ids, LENGTH + COPY, (rad_token[4]){0}, 4, &match, &place));
    ngram_put_back(&pool, index);
    ngram_pool_fini(&pool, &env);
}

/* An index that is taken again says nothing of the text before; there are so many and no more. */
TEST(an_index_forgets_the_text_before)
{
    enum { LENGTH = 40000, COPY = 40 };
    static rad_token ids[LENGTH + COPY];
    const rad_env env = rad_env_or_default(NULL);
    ngram_pool pool = {0};
    ngram_index *index = ngram_take(&pool, &env);
    rad_token out[4];
    uint32_t match;
    for (uint32_t back = 64; back <= 4096; back *= 4) {
        for (uint32_t i = 0; i < LENGTH; i++)
            ids[i] = (rad_token)(i + back);
        CHECK(!propose_at_last(index, ids, LENGTH / 2, out, 4, &match) && !match);
        memcpy(ids + LENGTH, ids + LENGTH - back, COPY * sizeof *ids);
        CHECK(propose_at_last(index, ids, LENGTH + COPY, out, 4, &match) == 4);
        CHECK(match == SUFFIX_LONGEST && out[3] == (rad_token)(LENGTH + COPY + 3));
        ngram_put_back(&pool, index); /* the text is another one */
        CHECK(ngram_take(&pool, &env) == index);
    }
    ngram_put_back(&pool, index);
    ngram_index *all[NGRAM_INDEXES];
    for (int i = 0; i < NGRAM_INDEXES; i++)
        CHECK((all[i] = ngram_take(&pool, &env)));
    CHECK(!ngram_take(&pool, &env)); /* bounded */
    for (int i = 0; i < NGRAM_INDEXES; i++)
        ngram_put_back(&pool, all[i]);
    ngram_pool_fini(&pool, &env);
}

/* Of texts that make suffix trees deep and hash chains long: one token, two in turn, all strings of
 * some length one after the other (de Bruijn), a long period. */
static rad_token hostile(int kind, uint32_t i)
{
    if (kind == 0) return 7;
    if (kind == 1) return (rad_token)(i & 1);
    if (kind == 2) { /* a shift register of 16 bits with all its states */
        static uint32_t state = 1;
        state = state >> 1 | ((state ^ state >> 2 ^ state >> 3 ^ state >> 5) & 1) << 15;
        return (rad_token)(state & 1);
    }
    return (rad_token)(i % 1000 / 3);
}

TEST(no_text_costs_more_than_so_many_looks_a_token)
{
    enum { LENGTH = 1 << 14 };
    static rad_token ids[LENGTH];
    const rad_env env = rad_env_or_default(NULL);
    for (int kind = 0; kind < 4; kind++) {
        suffix_index x;
        draft_recent recent;
        uint32_t at = 0, found = 0, match;
        rad_token out[8];
        CHECK(suffix_index_init(&x, &env, 16));
        CHECK(draft_recent_init(&recent, &env, RECENT_LEAST));
        for (uint32_t i = 0; i < LENGTH; i++) {
            const suffix_text text = {.ids = ids, .mask = UINT32_MAX, .end = i + 1};
            uint64_t before = x.work;
            ids[i] = hostile(kind, i);
            suffix_index_enter(&x, 0, &text, i, i + 1);
            CHECK(x.work - before <= SUFFIX_WORK_TOKEN + SUFFIX_WORK_ENTER);
            before = x.work;
            found += suffix_index_find(&x, 0, &text, ids, i + 1, &at) > 0;
            CHECK(x.work - before <= SUFFIX_WORK_FIND);
            before = recent.suffixes.work;
            draft_recent_propose(&recent, NULL, NULL, ids, i + 1, out, 8, &match);
            CHECK(recent.suffixes.work - before <= SUFFIX_WORK_FIND);
            if (i % 100) continue;
            before = recent.suffixes.work;
            draft_recent_add(&recent, NULL, NULL, ids, i + 1, 0); /* also more than there is room */
            CHECK(recent.suffixes.work - before <=
                  SUFFIX_WORK_ENTER + SUFFIX_WORK_TOKEN * RAD_MIN(i + 1, (uint32_t)RECENT_LEAST));
        }
        CHECKF(found > LENGTH - 1100, "%d: %u\n", kind, found);
        suffix_index_fini(&x, &env);
        draft_recent_fini(&recent, &env);
    }
}

TEST_MAIN()
