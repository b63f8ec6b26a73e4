/* test_stop_matcher.c - stop strings against the obvious search, and the ring. */
#include "test.h"

#include "engine/message_ring.h"
#include "engine/stop_matcher.h"

/* The obvious answer: the smallest end, and of those the longest string. */
static size_t naive(const char *text, char (*stops)[8], uint32_t n, uint32_t *which)
{
    for (size_t end = 1; end <= strlen(text); end++) {
        size_t best = 0;
        for (uint32_t k = 0; k < n; k++) {
            size_t len = strlen(stops[k]);
            if (len <= end && len > best && memcmp(text + end - len, stops[k], len) == 0) {
                best = len;
                *which = k;
            }
        }
        if (best) return end;
    }
    return 0;
}

/* How much of text's end could begin a stop string. */
static uint32_t naive_held(const char *text, size_t len, char (*stops)[8], uint32_t n)
{
    uint32_t held = 0;
    for (uint32_t k = 0; k < n; k++)
        for (size_t part = 1; part < strlen(stops[k]) && part <= len; part++)
            if (memcmp(text + len - part, stops[k], part) == 0)
                held = RAD_MAX(held, (uint32_t)part);
    return held;
}

static rad_status init(stop_matcher *m, const rad_env *env, const char *const *strings, uint32_t n,
                       rad_error *err)
{
    stop_set *set;
    *m = (stop_matcher){0};
    rad_status status = stop_set_create(env, NULL, strings, n, &set, err);
    if (status == RAD_OK) status = stop_matcher_init(m, env, set, err);
    stop_set_unref(set); /* the matcher has its own */
    return status;
}

TEST(any_pieces_of_any_text_match_as_the_obvious_search_does)
{
    uint64_t seed = test_seed(), rng = seed;
    for (int round = 0; round < 20000; round++) {
        char stops[3][8] = {{0}}, text[40] = {0};
        const char *list[3] = {stops[0], stops[1], stops[2]};
        uint32_t n = 1 + test_random(&rng) % 3;
        for (uint32_t k = 0; k < n; k++)
            for (uint64_t i = 1 + test_random(&rng) % 6; i > 0; i--)
                stops[k][i - 1] = "ab"[test_random(&rng) % 2];
        for (uint64_t i = test_random(&rng) % 39; i > 0; i--)
            text[i - 1] = "abc"[test_random(&rng) % 5 % 3];

        stop_matcher m;
        CHECK_OK(init(&m, NULL, list, n, NULL));
        uint32_t which = 0;
        size_t want = naive(text, stops, n, &which), done = 0;
        const stop_string *found = NULL;
        while (!found && done < strlen(text)) {
            size_t piece = 1 + test_random(&rng) % 5, end = 0;
            piece = RAD_MIN(piece, strlen(text) - done);
            found = stop_matcher_feed(&m, text + done, piece, &end);
            done += found ? end : piece;
            if (!found) CHECK(stop_matcher_held(&m) == naive_held(text, done, stops, n));
        }
        CHECKF(found ? want == done : want == 0, "seed %llu: <%s>: %zu, not %zu\n",
               (unsigned long long)seed, text, done, want);
        if (found) CHECK(strcmp(found->text, stops[which]) == 0);
        stop_matcher_fini(&m);
    }
}

TEST(limits_are_checked_and_memory_may_fail)
{
    stop_matcher m;
    rad_error err;
    static char longest[STOP_MATCHER_MOST_BYTES + 2];
    memset(longest, 'x', STOP_MATCHER_MOST_BYTES + 1);
    const char *one[1] = {longest}, *many[STOP_MATCHER_MOST + 1];
    CHECK(init(&m, NULL, one, 1, &err) == RAD_E_INVAL);
    longest[STOP_MATCHER_MOST_BYTES] = 0;
    CHECK_OK(init(&m, NULL, one, 1, &err));
    size_t end;
    CHECK(stop_matcher_feed(&m, longest, STOP_MATCHER_MOST_BYTES, &end) != NULL);
    stop_matcher_fini(&m);
    for (int i = 0; i <= STOP_MATCHER_MOST; i++)
        many[i] = "stop";
    CHECK(init(&m, NULL, many, STOP_MATCHER_MOST + 1, &err) == RAD_E_INVAL);
    CHECK_OK(init(&m, NULL, NULL, 0, &err));
    CHECK(stop_matcher_feed(&m, "abc", 3, &end) == NULL && stop_matcher_held(&m) == 0);
    stop_matcher_fini(&m);

    rad_status status = RAD_E_NOMEM;
    for (long n = 0; status != RAD_OK; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        status = init(&m, &env, many, 3, NULL);
        CHECK(status == RAD_OK || status == RAD_E_NOMEM);
        stop_matcher_fini(&m);
        CHECK(t.bytes == 0);
    }
}

enum { MESSAGES = 5000, PUSHERS = 3 };

static void *push_numbers(void *arg)
{
    message_ring *ring = arg;
    for (uint64_t i = 1; i <= MESSAGES; i++)
        if (!message_ring_push(ring, &i, 1)) break;
    return NULL;
}

TEST(a_ring_loses_nothing_and_keeps_each_senders_order)
{
    message_ring ring;
    pthread_t threads[PUSHERS];
    CHECK_OK(message_ring_init(&ring, NULL, 7, sizeof(uint64_t)));
    uint64_t none;
    CHECK(message_ring_pop(&ring, &none, 1, 0) == 0);
    for (int i = 0; i < PUSHERS; i++)
        CHECK(pthread_create(&threads[i], NULL, push_numbers, &ring) == 0);
    uint64_t sum = 0, seen = 0;
    while (seen < (uint64_t)PUSHERS * MESSAGES) {
        uint64_t got[5];
        uint32_t n = message_ring_pop(&ring, got, 5, RING_FOR_EVER);
        CHECK(n >= 1 && n <= 5);
        for (uint32_t i = 0; i < n; i++)
            sum += got[i];
        seen += n;
    }
    for (int i = 0; i < PUSHERS; i++)
        pthread_join(threads[i], NULL);
    CHECK(sum == (uint64_t)PUSHERS * MESSAGES * (MESSAGES + 1) / 2);
    CHECK(message_ring_count(&ring) == 0);

    uint64_t last[3] = {1, 2, 3};
    CHECK(message_ring_push(&ring, last, 3)); /* a lot at once, in order */
    message_ring_close(&ring);
    CHECK(!message_ring_push(&ring, last, 1));
    uint64_t got[7];
    CHECK(message_ring_pop(&ring, got, 7, RING_FOR_EVER) == 3 &&
          memcmp(got, last, sizeof last) == 0);
    CHECK(message_ring_pop(&ring, got, 7, RING_FOR_EVER) == 0);
    message_ring_fini(&ring);
}

TEST_MAIN()
