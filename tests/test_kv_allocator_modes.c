/* test_kv_allocator_modes.c - sorted runs and free groups. */
#include "test.h"

#include <radish/kv_allocator.h>

static rad_kv_allocator *make(uint32_t num_pages, uint32_t page_size, uint32_t need_sort)
{
    rad_kv_allocator_params params = {.struct_size = sizeof params,
                                      .num_pages = num_pages,
                                      .page_size = page_size,
                                      .need_sort = need_sort};
    rad_kv_allocator *a = NULL;
    CHECK_OK(rad_kv_allocator_create(NULL, &params, &a, NULL));
    return a;
}

TEST(sorted_pages_leave_in_ascending_runs_once_the_list_runs_short)
{
    rad_kv_allocator *a = make(8, 4, 1);
    rad_page pages[8], more[8];
    CHECK_OK(rad_kv_alloc(a, pages, 6));
    for (int i = 0; i < 6; i++)
        CHECK(pages[i] == i + 1);
    CHECK_OK(rad_kv_free(a, (rad_page[]){5, 2, 4}, 3, NULL));
    CHECK(rad_kv_available_pages(a) == 5 && rad_kv_available_size(a) == 20);
    CHECK_OK(rad_kv_check(a, NULL));

    CHECK_OK(rad_kv_alloc(a, more, 1)); /* the sorted list still has 7 and 8 */
    CHECK(more[0] == 7);
    CHECK_OK(rad_kv_alloc(a, more, 3)); /* now it runs short: 8 joins the staged ones */
    CHECK(more[0] == 2 && more[1] == 4 && more[2] == 5);
    CHECK(rad_kv_alloc(a, more, 2) == RAD_FULL);
    CHECK_OK(rad_kv_alloc(a, more, 1));
    CHECK(more[0] == 8 && rad_kv_available_pages(a) == 0);
    CHECK_OK(rad_kv_check(a, NULL));

    /* Freed twice while staged: the bit tells, though no list holds the page. */
    CHECK_OK(rad_kv_free(a, (rad_page[]){3}, 1, NULL));
    CHECK(rad_kv_free(a, (rad_page[]){3}, 1, NULL) == RAD_E_STATE);
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_clear(a);
    CHECK(rad_kv_available_pages(a) == 8);
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
}

/* SGLang's vectors (test_kv_allocator.c) hold with the free pages staged in any order. */
TEST(extend_and_decode_keep_their_vectors_when_sorted)
{
    rad_kv_allocator *a = make(64, 4, 1);
    rad_page all[64], staged[4] = {12, 10, 13, 11};
    CHECK_OK(rad_kv_alloc(a, all, 64));
    CHECK_OK(rad_kv_free(a, staged, 4, NULL));
    rad_slot slots[12], want[12] = {40, 41, 42, 9, 44, 45, 46, 47, 48, 49, 50, 51};
    CHECK_OK(rad_kv_alloc_extend(a, 3, (uint32_t[]){0, 5, 8}, (uint32_t[]){3, 6, 16},
                                 (rad_slot[]){-1, 8, 31}, slots, NULL));
    CHECK(memcmp(slots, want, sizeof want) == 0);
    CHECK(rad_kv_available_pages(a) == 1);
    CHECK_OK(rad_kv_free(a, (rad_page[]){22, 21, 20}, 3, NULL));
    CHECK_OK(rad_kv_alloc(a, all, 1)); /* page 13, left over */
    CHECK(all[0] == 13);
    CHECK_OK(rad_kv_alloc_decode(a, 3, (uint32_t[]){5, 6, 9}, (rad_slot[]){7, 8, 11}, slots, NULL));
    CHECK(slots[0] == 80 && slots[1] == 9 && slots[2] == 84);
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
}

TEST(a_group_gives_its_pages_back_at_the_end_and_checks_them_at_once)
{
    for (uint32_t sort = 0; sort < 2; sort++) {
        rad_kv_allocator *a = make(8, 2, sort);
        rad_page pages[8], again[8];
        CHECK_OK(rad_kv_alloc(a, pages, 8));
        CHECK(rad_kv_free_group_end(a) == RAD_E_STATE);
        CHECK_OK(rad_kv_free_group_begin(a));
        CHECK(rad_kv_free_group_begin(a) == RAD_E_STATE); /* groups do not nest */
        CHECK_OK(rad_kv_free(a, (rad_page[]){2, 5}, 2, NULL));
        CHECK_OK(rad_kv_free_slots(a, (rad_slot[]){6, 7, 8}, 3, NULL)); /* pages 3 and 4 */
        CHECK(rad_kv_available_pages(a) == 0 && !rad_kv_is_taken(a, 5));
        CHECK(rad_kv_alloc(a, again, 1) == RAD_FULL);
        CHECK_OK(rad_kv_check(a, NULL));

        rad_error err;
        CHECK(rad_kv_free(a, (rad_page[]){1, 5}, 2, &err) == RAD_E_STATE);
        CHECK(strstr(err.text, "page 5 ") && rad_kv_is_taken(a, 1));

        CHECK_OK(rad_kv_free_group_end(a));
        CHECK(rad_kv_available_pages(a) == 4);
        CHECK_OK(rad_kv_check(a, NULL));
        CHECK_OK(rad_kv_alloc(a, again, 4));
        const rad_page given[2][4] = {{2, 5, 3, 4}, {2, 3, 4, 5}};
        CHECK(memcmp(again, given[sort], sizeof given[0]) == 0);

        CHECK_OK(rad_kv_free_group_begin(a)); /* an empty group is fine */
        CHECK_OK(rad_kv_free_group_end(a));
        CHECK_OK(rad_kv_free_group_begin(a));
        CHECK_OK(rad_kv_free(a, again, 4, NULL));
        rad_kv_clear(a); /* closes the group */
        CHECK(rad_kv_available_pages(a) == 8 && rad_kv_free_group_end(a) == RAD_E_STATE);
        CHECK_OK(rad_kv_check(a, NULL));
        rad_kv_allocator_destroy(a);
    }
}

/* Pages recorded by an open group look free in the bits; a sort must not take them. */
TEST(a_sort_under_an_open_group_leaves_its_pages_alone)
{
    rad_kv_allocator *a = make(130, 1, 1);
    rad_page pages[130], one;
    CHECK_OK(rad_kv_alloc(a, pages, 130));
    CHECK_OK(rad_kv_free(a, (rad_page[]){130, 64}, 2, NULL));
    CHECK_OK(rad_kv_free_group_begin(a));
    CHECK_OK(rad_kv_free(a, (rad_page[]){1, 63, 65, 129}, 4, NULL));
    CHECK_OK(rad_kv_alloc(a, &one, 1));
    CHECK(one == 64);
    CHECK_OK(rad_kv_check(a, NULL));
    CHECK_OK(rad_kv_alloc(a, &one, 1));
    CHECK(one == 130 && rad_kv_alloc(a, &one, 1) == RAD_FULL);
    CHECK_OK(rad_kv_free_group_end(a));
    CHECK_OK(rad_kv_alloc(a, pages, 4));
    CHECK(pages[0] == 1 && pages[1] == 63 && pages[2] == 65 && pages[3] == 129);
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
}

/* The naive model: a set of taken pages and a set recorded by the group. */
enum { PAGES = 150, MOST = 12 };

typedef struct world {
    rad_kv_allocator *a;
    uint32_t sort, num_free;
    bool group;
    char where[PAGES + 1]; /* 0 free, 1 taken, 2 in the group */
    uint64_t seed, dice;
} world;

static uint32_t draw(world *w, uint32_t sides)
{
    return (uint32_t)(test_random(&w->dice) % sides);
}

static void holds(const world *w, bool fact, const char *what)
{
    CHECKF(fact, "%s, seed %llu\n", what, (unsigned long long)w->seed);
}

static void step_take(world *w, uint32_t count)
{
    rad_page list[MOST];
    rad_status status = rad_kv_alloc(w->a, list, count);
    holds(w, status == (count > w->num_free ? RAD_FULL : RAD_OK), "alloc");
    for (uint32_t i = 0; !status && i < count; i++) {
        holds(w, list[i] >= 1 && list[i] <= PAGES && !w->where[list[i]], "a page that is not free");
        holds(w, !w->sort || !i || list[i] > list[i - 1], "not in order");
        w->where[list[i]] = 1;
        w->num_free--;
    }
}

static void step_free(world *w, uint32_t count)
{
    rad_page list[MOST], from = (rad_page)draw(w, PAGES);
    uint32_t found = 0;
    for (int i = 0; i < PAGES && found < count; i++) {
        rad_page page = (from + i * 37) % PAGES + 1; /* 37 and 150 share nothing */
        if (w->where[page] == 1) list[found++] = page;
    }
    CHECK_OK(rad_kv_free(w->a, list, found, NULL));
    for (uint32_t i = 0; i < found; i++)
        w->where[list[i]] = w->group ? 2 : 0;
    if (!w->group) w->num_free += found;
}

static void step_group_end(world *w)
{
    CHECK(rad_kv_free_group_end(w->a) == (w->group ? RAD_OK : RAD_E_STATE));
    w->group = false;
    for (int page = 1; page <= PAGES; page++)
        if (w->where[page] == 2) {
            w->where[page] = 0;
            w->num_free++;
        }
}

static void step_misuse(world *w)
{
    rad_page wrong = (rad_page)draw(w, PAGES + 4) - 2;
    bool taken = wrong >= 1 && wrong <= PAGES && w->where[wrong] == 1;
    if (!taken) CHECK(rad_kv_free(w->a, &wrong, 1, NULL) == RAD_E_STATE);
}

static void step(world *w)
{
    uint32_t count = draw(w, MOST + 1), what = draw(w, 14);
    if (what < 6) {
        step_free(w, count);
    } else if (what == 6) {
        CHECK(rad_kv_free_group_begin(w->a) == (w->group ? RAD_E_STATE : RAD_OK));
        w->group = true;
    } else if (what == 7) {
        step_group_end(w);
    } else if (what == 8) {
        step_misuse(w);
    } else {
        step_take(w, count);
    }
}

TEST(random_modes_agree_with_sets)
{
    uint64_t seed = test_seed(), dice = seed;
    for (uint32_t sort = 0; sort < 2; sort++) {
        world w = {
            .a = make(PAGES, 1, sort), .sort = sort, .num_free = PAGES, .seed = seed, .dice = dice};
        for (uint64_t i = 0; i < test_scale(20000, 2000000); i++) {
            step(&w);
            holds(&w, rad_kv_available_pages(w.a) == w.num_free, "available");
            for (int page = 1; page <= PAGES; page++)
                holds(&w, rad_kv_is_taken(w.a, page) == (w.where[page] == 1), "taken");
            CHECK_OK(rad_kv_check(w.a, NULL));
        }
        dice = w.dice;
        rad_kv_allocator_destroy(w.a);
    }
}

TEST(params_of_an_older_program_and_nonsense_flags)
{
    rad_error err;
    rad_kv_allocator *a = NULL;
    rad_kv_allocator_params p = {.struct_size = offsetof(rad_kv_allocator_params, need_sort),
                                 .num_pages = 3,
                                 .need_sort = 9};
    CHECK_OK(rad_kv_allocator_create(NULL, &p, &a, &err)); /* did not know need_sort */
    rad_page pages[3];
    CHECK_OK(rad_kv_alloc(a, pages, 3));
    CHECK_OK(rad_kv_free(a, (rad_page[]){3, 1}, 2, NULL));
    CHECK_OK(rad_kv_alloc(a, pages, 2));
    CHECK(pages[0] == 3 && pages[1] == 1);
    rad_kv_allocator_destroy(a);
    p.struct_size = sizeof p;
    CHECK(rad_kv_allocator_create(NULL, &p, &a, &err) == RAD_E_INVAL && !a);
    CHECK(strstr(err.text, "need_sort"));
}

/* The checker itself needs memory: when there is none it says so. */
TEST(check_without_memory_says_so)
{
    test_env t;
    rad_env env = test_env_init(&t);
    rad_kv_allocator_params p = {.struct_size = sizeof p, .num_pages = 3, .need_sort = 1};
    rad_kv_allocator *a = NULL;
    CHECK_OK(rad_kv_allocator_create(&env, &p, &a, NULL));
    t.fail_at = 0;
    CHECK(rad_kv_check(a, NULL) == RAD_E_NOMEM);
    t.fail_at = -1;
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
    CHECK(t.bytes == 0);
}

TEST_MAIN()
