/* test_clients.c - the table of clients: who is whom, how many it remembers, and what it counts. */
#include "test.h"

#include "base/base.h"
#include "server/clients.h"

#include <pthread.h>

#define SECOND UINT64_C(1000000000)

static clients *table(uint32_t most, client_limits limits)
{
    rad_env env = rad_env_or_default(NULL);
    clients *all;
    CHECK_OK(clients_create(&env, &limits, most, &all));
    return all;
}

static client *named(clients *all, unsigned n)
{
    char name[20];
    snprintf(name, sizeof name, "%u", n);
    return clients_by_key(all, name);
}

TEST(the_same_name_is_the_same_client_and_the_longest_alone_makes_room)
{
    clients *all = table(3, (client_limits){.tokens_per_minute = 60});
    client *a = named(all, 1), *b = named(all, 2), *c = named(all, 3);
    CHECK(a && b && c && a != b && b != c);
    CHECK(!named(all, 4)); /* all are there */
    CHECK(named(all, 1) == a);
    client_spend(a, 100, SECOND);
    client_spend(b, 100, SECOND);
    client_let_go(a), client_let_go(b), client_let_go(a); /* the last was a's second hold */
    CHECK(named(all, 4) == b);                            /* b's record; of a something is known */
    CHECK(client_wait_s(named(all, 1), SECOND) == 41);
    CHECK(!named(all, 2));
    clients_destroy(all);
}

/* Against a list that is searched: whoever is held stays whom he was, and is counted right. */
TEST(a_random_crowd_is_told_apart)
{
    enum { NAMES = 300, MOST = 64, STEPS = 20000 };
    struct {
        client *is;
        uint32_t holds, connections;
    } known[NAMES] = {0};
    uint64_t random = test_told_seed();
    uint32_t held = 0;
    clients *all = table(MOST, (client_limits){.connections = 3});
    for (int step = 0; step < STEPS; step++) {
        unsigned n = (unsigned)(test_random(&random) % NAMES);
        if (test_random(&random) % 2) {
            client *c = named(all, n);
            CHECK((c != NULL) == (known[n].holds || held < MOST));
            if (!c) continue;
            CHECK(!known[n].holds || known[n].is == c);
            for (int i = 0; i < NAMES; i++)
                CHECK(i == (int)n || !known[i].holds || known[i].is != c);
            held += !known[n].holds++;
            known[n].is = c;
            client_connect(c);
            known[n].connections++;
            CHECK(client_is_crowded(c) == (known[n].connections > 3));
        } else if (known[n].holds) {
            client_disconnect(known[n].is);
            known[n].connections--;
            client_let_go(known[n].is);
            held -= !--known[n].holds;
        }
    }
    clients_destroy(all);
}

TEST(a_minute_has_so_many_tokens)
{
    clients *all = table(8, (client_limits){.tokens_per_minute = 600}); /* 10 a second */
    client *c = named(all, 1);
    uint64_t now = 5 * SECOND;
    CHECK(client_wait_s(c, now) == 0);
    client_spend(c, 599, now);
    CHECK(client_wait_s(c, now) == 0); /* one is left */
    client_spend(c, 401, now);
    CHECK(client_wait_s(c, now) == 41); /* 400 are owed, and one is wanted */
    CHECK(client_wait_s(c, now + 40 * SECOND) == 1);
    CHECK(client_wait_s(c, now + 41 * SECOND) == 0);
    client_spend(c, -5, now + 41 * SECOND);
    client_spend(c, 5, now + 41 * SECOND);
    CHECK(client_wait_s(c, now + 41 * SECOND) == 0);
    CHECK(client_wait_s(c, now) == 0); /* a clock that goes back gives nothing and takes nothing */
    client_spend(c, 600, now + 3600 * SECOND);
    CHECK(client_wait_s(c, now + 3600 * SECOND) == 1); /* an hour saves up no more than a minute */
    client_spend(c, INT64_MAX, now + 3600 * SECOND);
    CHECK(client_wait_s(c, now + 3600 * SECOND) == 86400);
    CHECK(client_wait_s(NULL, now) == 0);
    clients_destroy(all);
}

static client *shared;
static _Atomic uint32_t most_queued;

static void *queue_and_unqueue(void *arg)
{
    (void)arg;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        if (client_queue(shared, i % 4)) taken += i % 4;
        if (taken > most_queued) most_queued = taken;
        if (taken >= 8) client_unqueue(shared, taken), taken = 0;
    }
    client_unqueue(shared, taken);
    return NULL;
}

TEST(no_more_wait_than_may)
{
    clients *all = table(8, (client_limits){.queued = 10});
    pthread_t threads[3];
    shared = named(all, 1);
    CHECK(client_queue(shared, 10) && !client_queue(shared, 1));
    client_unqueue(shared, 10);
    CHECK(!client_queue(shared, 11) && !client_queue(shared, UINT32_MAX));
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, queue_and_unqueue, NULL) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK(most_queued <= 10);
    CHECK(client_queue(shared, 10) && !client_queue(shared, 1));
    client_unqueue(shared, 10);
    client_let_go(shared);
    clients_destroy(all);
}

TEST_MAIN()
