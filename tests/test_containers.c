/* test_containers.c - heap, list, map, slab and span arena against naive models. */
#include "test.h"

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "base/slab.h"
#include "base/span.h"
#include "cache/namespace.h"
#include "cache/page_runs.h"

#include <setjmp.h>

struct listed {
    struct listed *prev, *next;
    bool in;
};

/* Taken out from anywhere, put in at the end: in both directions as an array has them. */
TEST(a_list_keeps_the_order_in_which_things_were_appended)
{
    enum { THINGS = 6 };
    uint64_t state = test_seed();
    struct listed all[THINGS] = {0}, *order[THINGS];
    struct {
        struct listed *first, *last;
    } list = {0};
    size_t count = 0;
    for (uint64_t step = 0; step < test_scale(20000, 2000000); step++) {
        struct listed *x = &all[test_random(&state) % THINGS];
        if (x->in) {
            size_t at = 0;
            while (order[at] != x)
                at++;
            memmove(order + at, order + at + 1, (--count - at) * sizeof *order);
            LIST_REMOVE(&list, x, prev, next);
            CHECK(!x->prev && !x->next);
        } else {
            order[count++] = x;
            LIST_APPEND(&list, x, prev, next);
        }
        x->in = !x->in;
        CHECK(list.first == (count ? order[0] : NULL));
        CHECK(list.last == (count ? order[count - 1] : NULL));
        for (size_t i = 0; i < count; i++) {
            CHECK(order[i]->prev == (i ? order[i - 1] : NULL));
            CHECK(order[i]->next == (i + 1 < count ? order[i + 1] : NULL));
        }
    }
}

TEST(the_heap_gives_the_lowest_key_then_the_lowest_id)
{
    enum { IDS = 60 };
    uint64_t seed = test_seed(), state = seed;
    heap_key key[IDS + 1];
    bool in[IDS + 1] = {false};
    rad_env env = rad_env_or_default(NULL);
    heap h;
    CHECK(heap_init(&h, &env, IDS));
    for (uint64_t step = 0; step < test_scale(20000, 2000000); step++) {
        uint32_t id = 1 + (uint32_t)(test_random(&state) % IDS), op = test_random(&state) % 3;
        heap_key k = test_random(&state) % 20; /* all 96 bits count */
        k = k << (test_random(&state) % 3 * 45);
        CHECK(heap_contains(&h, id) == in[id]);
        if (!in[id]) {
            heap_push(&h, id, k);
            in[id] = true;
            key[id] = k;
        } else if (op) {
            heap_rekey(&h, id, k);
            key[id] = k;
        } else {
            heap_remove(&h, id);
            heap_remove(&h, id); /* absent is fine */
            in[id] = false;
        }
        CHECK(heap_check(&h));
        uint32_t best = 0;
        for (uint32_t i = IDS; i >= 1; i--)
            if (in[i] && (!best || key[i] <= key[best])) best = i;
        CHECKF(h.count ? heap_entry_id(&h.entries[0]) == best : !best, "seed %llu",
               (unsigned long long)seed);
    }
    heap_clear(&h);
    CHECK(heap_check(&h) && h.count == 0);
    heap_fini(&h);
}

TEST(the_map_finds_what_is_in_it_and_nothing_else)
{
    enum { IDS = 100 };
    uint64_t seed = test_seed(), state = seed;
    uint32_t hash[IDS + 1] = {0};
    bool in[IDS + 1] = {false};
    rad_env env = rad_env_or_default(NULL);
    map m;
    CHECK(map_init(&m, &env, IDS));
    for (uint64_t step = 0; step < test_scale(20000, 2000000); step++) {
        uint32_t id = 1 + (uint32_t)(test_random(&state) % IDS);
        if (!in[id]) { /* few hashes, and some that wrap around the end */
            hash[id] = (uint32_t)(0 - test_random(&state) % 12) * (1 + (id & 1) * 255);
            map_insert(&m, hash[id], id);
        } else {
            CHECK(!map_remove(&m, hash[id], IDS + 1));
            CHECK(map_remove(&m, hash[id], id));
        }
        in[id] = !in[id];
        uint32_t probe = 1 + (uint32_t)(test_random(&state) % IDS), found = 0;
        uint32_t at = map_start(&m, hash[probe]);
        for (uint32_t i; (i = map_next(&m, hash[probe], &at));) {
            CHECKF(in[i] && hash[i] == hash[probe], "seed %llu", (unsigned long long)seed);
            found += i == probe;
        }
        CHECKF(found == in[probe], "seed %llu", (unsigned long long)seed);
    }
    map_clear(&m);
    CHECK(m.count == 0);
    map_fini(&m);
}

/* Filled past each of its sizes, with runs that go over the end of the part in use, and with some
 * that leave on the way: whatever doubles under an entry, it is found under its hash, once. */
TEST(a_map_that_is_kept_small_loses_nothing_when_it_grows)
{
    enum { IDS = 20000 };
    uint64_t seed = test_seed(), state = seed;
    static uint32_t hash[IDS + 1];
    static bool in[IDS + 1];
    rad_env env = rad_env_or_default(NULL);
    map m;
    CHECK(map_init(&m, &env, IDS));
    for (int round = 0; round < 2; round++) {
        map_keep_small(&m);
        uint32_t part = m.mask + 1, count = 0;
        CHECK(part < m.slots / 4);
        for (uint32_t id = 1; id <= IDS; id++) {
            uint32_t random = (uint32_t)test_random(&state), gone = 1 + random % IDS;
            hash[id] = random % 16 ? (uint32_t)test_random(&state) : 0 - (random >> 4) % 40;
            map_insert(&m, hash[id], id);
            in[id] = true;
            if (in[gone] && random % 3 == 0) {
                CHECK(map_remove(&m, hash[gone], gone));
                in[gone] = false;
            }
            if (m.mask + 1 == part && id < IDS) continue;
            part = m.mask + 1;
            count = 0;
            for (uint32_t k = 1; k <= id; k++) {
                uint32_t at = map_start(&m, hash[k]), found = 0;
                for (uint32_t i; (i = map_next(&m, hash[k], &at));)
                    found += i == k;
                CHECKF(found == in[k], "id %u of %u, seed %llu", k, id, (unsigned long long)seed);
                count += in[k];
            }
            CHECKF(m.count == count, "seed %llu", (unsigned long long)seed);
        }
        CHECK(m.mask + 1 == m.slots);
        map_clear(&m);
        memset(in, 0, sizeof in);
    }
    map_fini(&m);
}

TEST(a_map_that_moves_takes_all_with_it_or_stays)
{
    enum { IDS = 1000 };
    uint64_t seed = test_seed(), state = seed;
    uint32_t hash[IDS + 1];
    test_env counted;
    rad_env env = test_env_failing_at(&counted, -1), none;
    map m = {0};
    for (uint32_t id = 1, room = 0; id <= IDS; id++) {
        if (id > room) {
            test_env failing;
            none = test_env_failing_at(&failing, 0);
            CHECK(!map_move(&m, &none, room + room / 2 + 4));
            CHECK(map_move(&m, &env, room += room / 2 + 4) && m.count == id - 1);
        }
        hash[id] = (uint32_t)(0 - test_random(&state) % 300); /* with runs over the end */
        map_insert(&m, hash[id], id);
        for (uint32_t k = 1; k <= id; k++) {
            uint32_t at = map_start(&m, hash[k]), found = 0;
            for (uint32_t i; (i = map_next(&m, hash[k], &at));)
                found += i == k;
            CHECKF(found == 1, "id %u of %u, seed %llu", k, id, (unsigned long long)seed);
        }
    }
    map_fini(&m);
    CHECK(counted.bytes == 0);
}

TEST(a_slab_name_is_live_once)
{
    rad_env env = rad_env_or_default(NULL);
    slab s;
    CHECK(slab_init(&s, &env, 3));
    uint32_t a = slab_alloc(&s), b = slab_alloc(&s), c = slab_alloc(&s);
    CHECK(a == 1 && b == 2 && c == 3 && slab_alloc(&s) == 0 && slab_available(&s) == 0);
    uint32_t generation = s.generation[b];
    slab_free(&s, b);
    CHECK(!slab_is_live(&s, b) && slab_alloc(&s) == b && s.generation[b] != generation);
    CHECK(!slab_is_live(&s, 0) && !slab_is_live(&s, 4));
    slab_fini(&s);
}

static uint8_t arena_bytes[512];

static void move_bytes(void *user, uint32_t to, uint32_t from, uint32_t len)
{
    (void)user;
    CHECK(to < from);
    memmove(arena_bytes + to, arena_bytes + from, len);
}

/* Each span is filled with its own byte, which must still be there at the end. */
TEST(spans_keep_their_units_through_cuts_and_compactions)
{
    enum { UNITS = 512, SPANS = 40 };
    uint64_t seed = test_seed(), state = seed;
    rad_env env = rad_env_or_default(NULL);
    span_arena a;
    CHECK(span_arena_init(&a, &env, UNITS, SPANS));
    uint32_t ids[SPANS] = {0}, refs[SPANS] = {0}, num = 0, used = 0;
    uint64_t compacted = 0;
    for (uint64_t step = 0; step < test_scale(20000, 1000000); step++) {
        uint32_t op = (uint32_t)(test_random(&state) % 8);
        uint32_t i = num ? (uint32_t)(test_random(&state) % num) : 0;
        if (op < 3 && num < SPANS) {
            uint32_t len = 1 + (uint32_t)(test_random(&state) % 60);
            uint32_t id = span_alloc(&a, len);
            if (!id && len <= a.free_units) {
                span_compact(&a, len, move_bytes, NULL);
                compacted++;
                CHECK(span_arena_check(&a));
                id = span_alloc(&a, len);
                CHECKF(id != 0, "seed %llu", (unsigned long long)seed);
            }
            CHECK((id != 0) == (len <= UNITS - used));
            if (id) {
                memset(arena_bytes + a.spans[id].at, (int)id, len);
                used += len;
                ids[num] = id;
                refs[num++] = 1;
            }
        } else if (num && op < 5) {
            span_ref(&a, ids[i]);
            refs[i]++;
        } else if (num && op < 7) {
            uint32_t len = a.spans[ids[i]].len;
            span_unref(&a, ids[i]);
            if (--refs[i] == 0) {
                used -= len;
                ids[i] = ids[--num];
                refs[i] = refs[num];
            }
        } else if (num && a.spans[ids[i]].len > 1) {
            uint32_t cut = (uint32_t)(test_random(&state) % a.spans[ids[i]].len);
            used -= cut;
            (test_random(&state) & 1 ? span_cut_tail : span_cut_head)(&a, ids[i], cut);
        }
        CHECKF(span_arena_check(&a), "seed %llu", (unsigned long long)seed);
        CHECK(a.free_units == UNITS - used && a.used_spans == num);
        for (uint32_t k = 0; k < num; k++)
            for (uint32_t u = 0; u < a.spans[ids[k]].len; u++)
                CHECK(arena_bytes[a.spans[ids[k]].at + u] == (uint8_t)ids[k]);
    }
    CHECK(compacted > 0 && a.compactions == compacted);
    span_arena_clear(&a);
    CHECK(span_arena_check(&a) && a.free_units == UNITS);
    span_arena_fini(&a);
}

static jmp_buf panicked;

static void jump(void *user, const char *message)
{
    (void)user;
    (void)message;
    longjmp(panicked, 1);
}

#define CHECK_PANICS(call)                                                                         \
    do {                                                                                           \
        if (setjmp(panicked) == 0) {                                                               \
            call;                                                                                  \
            CHECK(!"panicked");                                                                    \
        }                                                                                          \
    } while (0)

/* The default env's panic would end this process. */
TEST(misuse_asks_the_panic_of_the_env_that_each_was_made_with)
{
    static heap h;
    static map m;
    static slab s;
    static span_arena a;
    static namespaces n;
    rad_env env = rad_env_or_default(&(rad_env){.struct_size = sizeof env, .panic = jump});
    CHECK(heap_init(&h, &env, 4) && map_init(&m, &env, 4) && slab_init(&s, &env, 4));
    CHECK(span_arena_init(&a, &env, 16, 4) && namespaces_init(&n, &env, 1));
    CHECK_PANICS(heap_push(&h, 5, 1));
    CHECK_PANICS(heap_rekey(&h, 1, 1));
    CHECK_PANICS(slab_free(&s, 1));
    CHECK_PANICS(for (uint32_t i = 1; i; i++) map_insert(&m, i, i));
    CHECK_PANICS(span_unref(&a, 1));
    CHECK(namespace_add(&n, "a", NULL, 1));
    CHECK_PANICS(namespace_add(&n, "b", NULL, 1));

    rad_page region[6] = {-2, 7, 1, 12, 4}; /* 7, then 12 .. 15 */
    CHECK(page_runs_check(region, 5) && page_runs_at(&env, region, 4) == 15);
    CHECK_PANICS((void)page_runs_at(&env, region, 5));
    CHECK_PANICS(page_runs_move(&env, region, region, 4));
    namespaces_fini(&n);
    span_arena_fini(&a);
    slab_fini(&s);
    map_fini(&m);
    heap_fini(&h);
}

TEST_MAIN()
