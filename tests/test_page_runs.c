/* test_page_runs.c - a region of pages against a plain list of them. */
#include "test.h"

#include "cache/page_runs.h"

#include <radish/kv_allocator.h>

enum { MOST = 2000 };

static uint64_t state;

static uint32_t dice(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

/* Pages in runs of about `len`; runs may happen to follow each other. */
static void make_list(rad_page *list, uint32_t count, uint32_t len)
{
    rad_page page = 0;
    for (uint32_t i = 0, left = 0; i < count; i++, left--) {
        if (!left) {
            left = 1 + dice(2 * len);
            page = (rad_page)dice(1000000);
        }
        list[i] = page++;
    }
}

static void put(rad_page *region, const rad_page *list, uint32_t count, uint32_t ps)
{
    static rad_slot slots[MOST * 4];
    kv_run runs[PAGE_RUNS];
    for (uint32_t i = 0; i < count * ps; i++)
        slots[i] = list[i / ps] * (rad_slot)ps + (rad_slot)(i % ps);
    uint32_t n = page_runs_find(slots, count, ps, runs);
    if (n)
        page_runs_put(region, count, runs, n);
    else
        memcpy(region, list, count * sizeof *list);
}

static void holds(const rad_page *region, const rad_page *list, uint32_t count, uint32_t ps)
{
    static rad_slot slots[MOST * 4 + 1];
    kv_run tail[PAGE_RUNS];
    CHECK(page_runs_check(region, count));
    uint32_t i = dice(count), len = dice(count - i) + 1;
    CHECK(page_runs_at(NULL, region, i) == list[i]);
    slots[len * ps] = -7; /* nothing is written behind the end */
    page_runs_expand(region, i, len, ps, slots);
    CHECK(slots[len * ps] == -7);
    for (uint32_t k = 0; k < len * ps; k++)
        CHECK(slots[k] == list[i + k / ps] * (rad_slot)ps + (rad_slot)(k % ps));
    uint32_t from = dice(count * ps), part = dice(count * ps - from) + 1;
    slots[part] = -7;
    page_runs_expand_part(NULL, region, from, part, ps, slots);
    CHECK(slots[part] == -7);
    for (uint32_t k = 0; k < part; k++)
        CHECK(slots[k] == list[(from + k) / ps] * (rad_slot)ps + (rad_slot)((from + k) % ps));
    uint32_t n = page_runs_tail(region, i, tail);
    CHECK(!n == !page_runs_count(region));
    for (uint32_t k = 0; k < n; i += tail[k++].count)
        for (uint32_t j = 0; j < tail[k].count; j++)
            CHECK(tail[k].first + (rad_page)j == list[i + j]);
    CHECK(!n || i == count);
}

TEST(regions_are_cut_split_and_joined_like_lists)
{
    static rad_page list[MOST], region[MOST + 1], moved[MOST + 200];
    uint32_t with_runs = 0;
    state = test_seed();
    fprintf(stderr, "seed %llu\n", (unsigned long long)state);
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t count = 1 + dice(round % 50 ? 200 : MOST), ps = 1 + dice(4);
        make_list(list, count, 1 + dice(round % 3 ? 60 : 3));
        region[count] = -9;
        put(region, list, count, ps);
        CHECK(region[count] == -9);
        with_runs += page_runs_count(region) != 0;
        holds(region, list, count, ps);
        if (count > 1) {
            uint32_t at = 1 + dice(count - 1), kept = 1 + dice(count - at);
            page_runs_split(region, count, at);
            holds(region, list, at, ps);
            holds(region + at, list + at, count - at, ps);
            page_runs_cut(region + at, kept);
            holds(region + at, list + at, kept, ps);
            uint32_t down = dice(200);
            memmove(moved + down, region, (at + kept) * sizeof *region);
            page_runs_move(NULL, moved, moved + down, at + kept);
            holds(moved, list, at, ps);
            holds(moved + at, list + at, kept, ps);
            if (at > 1) {
                uint32_t front = 1 + dice(at - 1);
                page_runs_shift(region, at, kept, front);
                holds(region, list, front, ps);
                holds(region + front, list + front, at - front + kept, ps);
                kept += at - front;
                at = front;
            }
            page_runs_join(region, at, kept);
            count = at + kept;
            holds(region, list, count, ps);
        }
        if (dice(2)) {
            page_runs_make_plain(region, count);
            CHECK(memcmp(region, list, count * sizeof *list) == 0);
        }
    }
    CHECK(with_runs > 1000);
}

TEST(slots_that_are_no_whole_pages_have_no_runs)
{
    kv_run runs[PAGE_RUNS];
    CHECK(page_runs_find((rad_slot[]){4, 5, 6, 7, 8, 9, 10, 11}, 2, 4, runs) == 1);
    CHECK(runs[0].first == 1 && runs[0].count == 2);
    CHECK(page_runs_find((rad_slot[]){5, 6, 7, 8}, 1, 4, runs) == 0);
    CHECK(page_runs_find((rad_slot[]){4, 5, 8, 9}, 1, 4, runs) == 0);
    CHECK(page_runs_find((rad_slot[]){-4, -3, -2, -1}, 1, 4, runs) == 0);
    CHECK(page_runs_find((rad_slot[]){3, 4, -1}, 3, 1, runs) == 0);
}

TEST(a_region_that_holds_no_pages_is_found_out)
{
    CHECK(page_runs_check((rad_page[]){7, 3, 0}, 3));
    CHECK(!page_runs_check((rad_page[]){7, 3, -1}, 3));
    CHECK(page_runs_check((rad_page[]){-1, 9, 4, 0}, 4));
    CHECK(!page_runs_check((rad_page[]){-1, 9, 3, 0}, 4));
    CHECK(!page_runs_check((rad_page[]){-1, -9, 4, 0}, 4));
    CHECK(!page_runs_check((rad_page[]){-1, INT32_MAX - 2, 4, 0}, 4));
    CHECK(!page_runs_check((rad_page[]){-2, 9, 2, 1, 2}, 4)); /* more than there is room for */
    CHECK(!page_runs_check((rad_page[]){INT32_MIN, 9, 4, 0}, 4));
}

/* The runs go back in the order in which single pages would, in every mode. */
TEST(runs_are_freed_like_their_pages)
{
    enum { PAGES = 300 };
    for (uint32_t mode = 0; mode < 4; mode++) {
        rad_kv_allocator_params p = {
            .struct_size = sizeof p, .num_pages = PAGES, .need_sort = mode & 1};
        rad_kv_allocator *one = NULL, *many = NULL;
        rad_page a[PAGES], b[PAGES];
        rad_error err = {0};
        CHECK_OK(rad_kv_allocator_create(NULL, &p, &one, NULL));
        CHECK_OK(rad_kv_allocator_create(NULL, &p, &many, NULL));
        CHECK_OK(rad_kv_alloc(one, a, PAGES));
        CHECK_OK(rad_kv_alloc(many, a, PAGES));
        kv_run runs[] = {{17, 70}, {5, 1}, {100, 30}, {6, 3}, {250, 51}};
        for (int i = 0; mode & 2 && i < 2; i++)
            CHECK_OK(rad_kv_free_group_begin(i ? one : many));
        for (int i = 0; i < 5; i += 2) {
            uint32_t n = 0, len = i < 4 ? 2 : 1;
            for (uint32_t k = 0; k < len; k++)
                for (uint32_t j = 0; j < runs[(uint32_t)i + k].count; j++)
                    b[n++] = runs[(uint32_t)i + k].first + (rad_page)j;
            CHECK_OK(rad_kv_free(one, b, n, NULL));
            CHECK_OK(kv_free_runs(many, runs + i, len, NULL));
        }
        CHECK(kv_free_runs(many, (kv_run[]){{200, 3}, {16, 2}}, 2, &err) == RAD_E_STATE);
        CHECK(strstr(err.text, "page 17 ")); /* free already; 200..202 and 16 are not freed */
        CHECK(kv_free_runs(many, (kv_run[]){{240, 5}, {299, 3}}, 2, &err) == RAD_E_STATE);
        CHECK(kv_free_runs(many, (kv_run[]){{0, 1}}, 1, &err) == RAD_E_STATE);
        CHECK(strstr(err.text, "page 0 "));
        CHECK(kv_free_runs(many, (kv_run[]){{240, 2}, {241, 1}}, 2, &err) == RAD_E_STATE);
        CHECK(strstr(err.text, "page 241 "));
        CHECK_OK(rad_kv_check(many, NULL));
        for (int i = 0; mode & 2 && i < 2; i++)
            CHECK_OK(rad_kv_free_group_end(i ? one : many));
        uint32_t left = rad_kv_available_pages(one);
        CHECK(left == 155 && rad_kv_available_pages(many) == left);
        CHECK_OK(rad_kv_alloc(one, a, left));
        CHECK_OK(rad_kv_alloc(many, b, left));
        CHECK(memcmp(a, b, left * sizeof *a) == 0);
        rad_kv_allocator_destroy(one);
        rad_kv_allocator_destroy(many);
    }
}

TEST_MAIN()
