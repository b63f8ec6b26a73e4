/* test_compute_pool.c - every tile runs exactly once, and a region is over when it
 * says so, however short it is and however late a thread wakes. */
#define _GNU_SOURCE /* pthread_setattr_default_np */
#include "test.h"

#include "base/compute_pool.h"

#include <stdatomic.h>
#include <unistd.h>

enum { MOST_TILES = 300 };

typedef struct region {
    uint32_t num_tiles;
    uint32_t num_threads;
    uint32_t stamp;             /* what each tile must leave behind */
    uint32_t marks[MOST_TILES]; /* plain memory on purpose: run() must make it visible */
    uint32_t times[MOST_TILES];
    uint32_t *uneven; /* spins per tile, or NULL */
    bool near;
} region;

static void mark(void *arg, uint32_t tile, uint32_t thread)
{
    region *r = arg;
    if (tile >= r->num_tiles || thread >= r->num_threads) abort();
    if (r->uneven)
        for (volatile uint32_t i = 0; i < r->uneven[tile]; i++) {
        }
    r->marks[tile] = r->stamp ^ tile;
    r->times[tile]++;
}

static void run_and_check(compute_pool *pool, region *r)
{
    memset(r->times, 0, sizeof r->times);
    r->num_threads = compute_pool_num_threads(pool);
    (r->near ? compute_pool_run_near : compute_pool_run)(pool, r->num_tiles, mark, r);
    for (uint32_t i = 0; i < r->num_tiles; i++)
        if (r->marks[i] != (r->stamp ^ i) || r->times[i] != 1)
            fail_msg("tile %u of %u ran %u times", i, r->num_tiles, r->times[i]);
}

TEST(many_tiny_regions_run_each_tile_once)
{
    for (uint32_t threads = 1; threads <= 4; threads++) {
        compute_pool *pool;
        CHECK_OK(compute_pool_create(NULL, threads, &pool, NULL));
        CHECK(compute_pool_num_threads(pool) == threads);
        region r = {0};
        for (uint32_t i = 0; i < 5000; i++) {
            r.num_tiles = i % 9;
            r.near = i % 2; /* one kind after the other: a late thread must not mix them up */
            r.stamp = i * 2654435761u;
            run_and_check(pool, &r);
        }
        compute_pool_destroy(pool);
    }
}

TEST(uneven_tiles_and_sleeps_between_regions)
{
    uint64_t seed = test_told_seed();
    uint32_t uneven[MOST_TILES];
    for (uint32_t threads = 1; threads <= 4; threads++) {
        compute_pool *pool;
        CHECK_OK(compute_pool_create(NULL, threads, &pool, NULL));
        region r = {.uneven = uneven};
        for (uint32_t i = 0; i < 200; i++) {
            r.num_tiles = 1 + (uint32_t)(test_random(&seed) % MOST_TILES);
            r.near = test_random(&seed) % 2;
            r.stamp = (uint32_t)test_random(&seed);
            for (uint32_t t = 0; t < r.num_tiles; t++)
                uneven[t] = test_random(&seed) % 16 ? 10 : 5000;
            run_and_check(pool, &r);
            if (i % 20 == 0) usleep(200); /* long enough for workers to fall asleep */
        }
        compute_pool_destroy(pool);
    }
}

/* Who ran which tile, and when: places in the order of all tiles. */
typedef struct order {
    _Atomic uint32_t next;
    uint32_t thread[MOST_TILES], place[MOST_TILES];
} order;

static void note_order(void *arg, uint32_t tile, uint32_t thread)
{
    order *o = arg;
    o->thread[tile] = thread;
    o->place[tile] = atomic_fetch_add(&o->next, 1);
}

/* A thread's own tiles go up from the first, what it takes of another's comes from the end. */
TEST(near_tiles_go_up_in_ranges_and_are_taken_over_from_the_end)
{
    for (uint32_t threads = 1; threads <= 4; threads++) {
        compute_pool *pool;
        CHECK_OK(compute_pool_create(NULL, threads, &pool, NULL));
        for (uint32_t n = 2; n < MOST_TILES; n += 13) {
            order o = {0};
            compute_pool_run_near(pool, n, note_order, &o);
            CHECK(compute_pool_near(n, threads, 0) == 0 &&
                  compute_pool_near(n, threads, threads) == n);
            for (uint32_t t = 0; t < threads; t++) {
                uint32_t end = compute_pool_near(n, threads, t + 1), own = 0;
                for (uint32_t i = compute_pool_near(n, threads, t); i < end; i++) {
                    if (o.thread[i] != t) continue;
                    if (own != i - compute_pool_near(n, threads, t))
                        fail_msg("thread %u left out tile %u of %u", t, i - 1, n);
                    if (own++ && o.place[i] < o.place[i - 1])
                        fail_msg("tile %u of %u came before the one before it", i, n);
                }
            }
        }
        compute_pool_destroy(pool);
    }
}

TEST(near_ranges_cover_the_largest_regions)
{
    CHECK(compute_pool_near(UINT32_MAX - 1, 256, 256) == UINT32_MAX - 1);
    CHECK(compute_pool_near(3, 256, 255) == 2);
}

/* The last tile is long: the owner has nothing left to claim and goes to sleep. */
static void one_long_tile(void *arg, uint32_t tile, uint32_t thread)
{
    if (thread != 0) usleep(tile == 0 ? 100 : 1500);
    atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

TEST(the_owner_sleeps_until_the_last_tile_is_done)
{
    compute_pool *pool;
    CHECK_OK(compute_pool_create(NULL, 3, &pool, NULL));
    for (int i = 0; i < 50; i++) {
        _Atomic uint32_t count = 0;
        compute_pool_run(pool, 4, one_long_tile, (void *)&count);
        CHECK(atomic_load(&count) == 4);
    }
    compute_pool_destroy(pool);
}

/* Tiles that wait for each other: none is done before as many threads as tiles have come. */
typedef struct meeting {
    uint32_t num_threads;
    _Atomic uint32_t came, missed;
} meeting;

static void meet(void *arg, uint32_t tile, uint32_t thread)
{
    meeting *m = arg;
    (void)tile, (void)thread;
    atomic_fetch_add(&m->came, 1);
    for (int i = 0; atomic_load(&m->came) < m->num_threads; i++) {
        if (i < 1000) continue;
        usleep(100);
        if (i == 100000) atomic_fetch_add(&m->missed, 1); /* after ten seconds */
        if (i == 100000) return;
    }
}

/* Results alone do not tell: the owner would do all of it if nobody came. */
TEST(every_thread_comes_to_every_region)
{
    for (uint32_t threads = 2; threads <= 4; threads++) {
        compute_pool *pool;
        CHECK_OK(compute_pool_create(NULL, threads, &pool, NULL));
        for (uint32_t i = 0; i < 60; i++) {
            meeting m = {.num_threads = threads};
            if (i % 5 == 4) usleep(300); /* they sleep */
            (i / 2 % 2 ? compute_pool_run_near : compute_pool_run)(pool, threads, meet, &m);
            CHECKF(!atomic_load(&m.missed), "region %u of %u threads\n", i, threads);
        }
        compute_pool_destroy(pool);
    }
}

TEST(destroy_while_idle_spinning_or_asleep)
{
    for (uint32_t i = 0; i < 60; i++) {
        compute_pool *pool;
        CHECK_OK(compute_pool_create(NULL, 1 + i % 4, &pool, NULL));
        region r = {.num_tiles = i % 7};
        if (i % 3) run_and_check(pool, &r);
        if (i % 5 == 0) usleep(300);
        compute_pool_destroy(pool);
    }
    compute_pool_destroy(NULL);
}

static _Atomic uint32_t deep_count;

/* Touches most of the stack that a worker is promised, a page at a time. */
static void deep_tile(void *arg, uint32_t tile, uint32_t thread)
{
    volatile char deep[COMPUTE_STACK_BYTES / 4 * 3];
    (void)tile, (void)thread;
    for (size_t i = 0; i < sizeof deep; i += 4096)
        deep[i] = 1;
    atomic_fetch_add((_Atomic uint32_t *)arg, (uint32_t)deep[0]);
    usleep(1000); /* lest one thread takes all tiles */
}

static void *deep_run(void *arg)
{
    compute_pool_run(arg, 12, deep_tile, (void *)&deep_count);
    return NULL;
}

/* Attention's workspaces lie on the stack: under `ulimit -s 256` a worker, and the thread that
 * owns the pool, must not die of it. */
TEST(stacks_are_large_whatever_the_limit_is)
{
    pthread_attr_t usual, tight;
    pthread_attr_init(&tight);
    CHECK(pthread_getattr_default_np(&usual) == 0);
    CHECK(pthread_attr_setstacksize(&tight, 256 << 10) == 0);
    CHECK(pthread_setattr_default_np(&tight) == 0); /* what the limit at start would be */

    compute_pool *pool;
    pthread_t owner;
    CHECK_OK(compute_pool_create(NULL, 3, &pool, NULL));
    CHECK(compute_thread_create(&owner, deep_run, pool) == 0);
    CHECK(pthread_join(owner, NULL) == 0);
    CHECK(atomic_load(&deep_count) == 12);
    compute_pool_destroy(pool);
    CHECK(pthread_setattr_default_np(&usual) == 0);
}

TEST(no_pool_means_this_thread_in_order)
{
    region r = {.num_tiles = 17, .stamp = 5};
    run_and_check(NULL, &r);
    CHECK(compute_pool_num_threads(NULL) == 1);
}

TEST(zero_threads_means_the_cpus_we_may_use)
{
    compute_pool *pool;
    CHECK_OK(compute_pool_create(NULL, 0, &pool, NULL));
    CHECK(compute_pool_num_threads(pool) >= 1);
    compute_pool_destroy(pool);
    rad_error err = {0};
    CHECK(compute_pool_create(NULL, 257, &pool, &err) == RAD_E_INVAL && !pool);
    CHECK(strstr(err.text, "257") != NULL);
}

TEST(create_survives_every_allocation_failing)
{
    compute_pool *pool = NULL;
    for (long n = 0; !pool; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = compute_pool_create(&env, 3, &pool, NULL);
        CHECK(status == (pool ? RAD_OK : RAD_E_NOMEM));
        compute_pool_destroy(pool);
        CHECK(t.bytes == 0);
    }
}

TEST_MAIN()
