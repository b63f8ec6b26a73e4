/* test_kv_window.c - both sides or neither, and the window side freed on its own.
 *
 * Where radish differs from SGLang on purpose: freeing the window side twice is nothing
 * (there it frees another's slot); whole pages only; a double free is refused. */
#include "test.h"
#include "window_slots.h"

#include "mem/kv_window.h"

static rad_kv_allocator *make(uint32_t full, uint32_t window, uint32_t page_size, uint32_t sort)
{
    rad_kv_allocator_params params = {.struct_size = sizeof params,
                                      .num_pages = full,
                                      .swa_num_pages = window,
                                      .page_size = page_size,
                                      .need_sort = sort};
    rad_kv_allocator *a = NULL;
    CHECK_OK(rad_kv_allocator_create(NULL, &params, &a, NULL));
    return a;
}

TEST(pages_come_with_a_window_side_or_not_at_all)
{
    rad_kv_allocator *a = make(8, 3, 4, 0);
    rad_page pages[8] = {-7, -7, -7, -7};
    CHECK(window_size(a) == 12 && rad_kv_available_size(a) == 32);
    CHECK(rad_kv_alloc(a, pages, 4) == RAD_FULL && pages[0] == -7);
    CHECK_OK(rad_kv_alloc(a, pages, 3));
    for (int i = 0; i < 3; i++)
        CHECK(rad_kv_is_taken(a, pages[i]) && rad_kv_has_window(a, pages[i]));
    CHECK(window_size(a) == 0 && rad_kv_available_size(a) == 20);
    CHECK(rad_kv_alloc(a, pages + 3, 1) == RAD_FULL);
    CHECK_OK(rad_kv_check(a, NULL));

    CHECK_OK(rad_kv_free_window(a, pages, 2, NULL)); /* two left the window */
    CHECK(window_size(a) == 8 && rad_kv_available_size(a) == 20);
    CHECK(rad_kv_is_taken(a, pages[0]) && !rad_kv_has_window(a, pages[0]));
    CHECK_OK(rad_kv_check(a, NULL));
    CHECK_OK(rad_kv_alloc(a, pages + 3, 2));
    CHECK_OK(rad_kv_free(a, pages, 5, NULL)); /* with and without a window side */
    CHECK(rad_kv_available_size(a) == 32 && window_size(a) == 12);
    CHECK_OK(rad_kv_check(a, NULL));

    rad_kv_allocator *b = make(2, 8, 1, 0); /* here the full side is the short one */
    CHECK(rad_kv_alloc(b, pages, 3) == RAD_FULL && window_size(b) == 8);
    CHECK(rad_kv_available_size(b) == 2);
    rad_kv_allocator_destroy(b);
    rad_kv_allocator_destroy(a);
}

TEST(only_the_tail_gets_a_window_side_when_so_asked)
{
    rad_kv_allocator *a = make(8, 3, 2, 0);
    rad_page pages[8] = {-7};
    CHECK(rad_kv_window_num_pages(a) == 3);
    CHECK(rad_kv_alloc_tail(a, pages, 2, 3) == RAD_E_INVAL);
    CHECK(rad_kv_alloc_tail(a, pages, 8, 4) == RAD_FULL);
    CHECK(rad_kv_alloc_tail(a, pages, 9, 0) == RAD_FULL && pages[0] == -7);
    CHECK(window_size(a) == 6);
    CHECK_OK(rad_kv_alloc_tail(a, pages, 5, 2));
    for (int i = 0; i < 5; i++)
        CHECK(rad_kv_is_taken(a, pages[i]) && rad_kv_has_window(a, pages[i]) == (i >= 3));
    CHECK(rad_kv_available_size(a) == 6 && window_size(a) == 2);
    CHECK_OK(rad_kv_check(a, NULL));
    CHECK_OK(rad_kv_free(a, pages, 5, NULL)); /* fewer window sides than pages */
    CHECK(rad_kv_available_size(a) == 16 && window_size(a) == 6);
    CHECK_OK(rad_kv_check(a, NULL));
    CHECK_OK(rad_kv_alloc_tail(a, pages, 5, 0));
    CHECK_OK(rad_kv_free(a, pages, 5, NULL));
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
}

TEST(the_window_side_is_freed_once_however_often_it_is_asked)
{
    rad_kv_allocator *a = make(8, 8, 2, 0);
    rad_page pages[4];
    rad_error err;
    CHECK_OK(rad_kv_alloc(a, pages, 4));
    CHECK_OK(rad_kv_free_window(a, (rad_page[]){pages[0], pages[0], pages[1]}, 3, NULL));
    CHECK_OK(rad_kv_free_window(a, pages, 2, NULL));
    CHECK(window_size(a) == 6 * 2);

    /* The freed side went to somebody else: asking again must not take it from them. */
    rad_page others[2];
    CHECK_OK(rad_kv_alloc(a, others, 2));
    CHECK_OK(rad_kv_free_window(a, pages, 2, NULL));
    CHECK(rad_kv_has_window(a, others[0]) && rad_kv_has_window(a, others[1]));

    rad_page foreign[] = {0, -1, -3, 9, 7, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        rad_page list[2] = {pages[2], foreign[i]};
        CHECK(rad_kv_free_window(a, list, 2, &err) == RAD_E_STATE);
        CHECK(rad_kv_free(a, list, 2, &err) == RAD_E_STATE);
        CHECK(rad_kv_has_window(a, pages[2]) && !rad_kv_has_window(a, foreign[i]));
    }
    CHECK(rad_kv_free(a, (rad_page[]){pages[2], pages[2]}, 2, &err) == RAD_E_STATE);
    CHECK_OK(rad_kv_check(a, NULL));

    /* By a row's slots: the whole page of each. */
    rad_slot row[3] = {pages[3] * 2, pages[3] * 2 + 1, pages[2] * 2};
    CHECK_OK(kv_free_window_slots(a, row, 3, NULL));
    CHECK(!rad_kv_has_window(a, pages[2]) && !rad_kv_has_window(a, pages[3]));
    CHECK(kv_free_window_slots(a, (rad_slot[]){-1}, 1, &err) == RAD_E_STATE);
    CHECK(kv_free_window_slots(a, (rad_slot[]){1}, 1, &err) == RAD_E_STATE);
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
}

TEST(the_map_names_the_window_page_of_each_page)
{
    rad_kv_allocator *a = make(6, 6, 4, 0);
    rad_page burnt[2], pages[2];
    CHECK_OK(rad_kv_alloc(a, burnt, 2));
    CHECK_OK(rad_kv_free_window(a, (rad_page[]){1}, 1, NULL));
    CHECK_OK(rad_kv_alloc(a, pages, 2)); /* pages 3, 4; window pages 1 (just freed), 3 */
    const rad_page *map = rad_kv_window_page_map(a);
    CHECK(map[3] == 1 && map[4] == 3 && map[2] == 2);
    CHECK(map[0] == 0 && map[1] == 0 && map[5] == 0);
    rad_kv_allocator_destroy(a);
}

TEST(a_window_side_moves_to_another_page_of_the_same_tokens)
{
    rad_kv_allocator *a = make(4, 4, 2, 0);
    rad_page pages[3];
    CHECK_OK(rad_kv_alloc(a, pages, 3));
    rad_page window = rad_kv_window_page_map(a)[pages[2]];
    CHECK_OK(rad_kv_free_window(a, pages, 1, NULL));
    CHECK_OK(rad_kv_move_window(a, pages[2], pages[0], NULL));
    CHECK(rad_kv_window_page_map(a)[pages[0]] == window && !rad_kv_has_window(a, pages[2]));
    CHECK_OK(rad_kv_check(a, NULL));
    CHECK_OK(rad_kv_free(a, pages + 2, 1, NULL));
    CHECK(rad_kv_has_window(a, pages[0]) && window_size(a) == 4);

    rad_error err = {0};
    rad_page taken = pages[0], other = pages[1], freed = pages[2];
    rad_page wrong[][2] = {{taken, other}, {taken, taken}, {freed, taken}, {taken, freed},
                           {taken, 0},     {0, taken},     {-1, taken},    {taken, 99}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(rad_kv_move_window(a, wrong[i][0], wrong[i][1], &err) == RAD_E_STATE && *err.text);
    CHECK(rad_kv_has_window(a, taken) && rad_kv_has_window(a, other));
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
}

/* What is copied to a tier is a page's only once it is there: until then its window page is
 * nobody's, and the check knows how many those are. */
TEST(a_window_page_can_be_taken_before_its_page_is_there)
{
    rad_kv_allocator *a = make(8, 4, 2, 0);
    rad_page pages[3], loose[4];
    CHECK_OK(rad_kv_alloc_tail(a, pages, 3, 1));
    CHECK(kv_window_take_loose(a, loose, 4) == RAD_FULL);
    CHECK_OK(kv_window_take_loose(a, loose, 3));
    CHECK(window_size(a) == 0);
    CHECK_OK(rad_kv_check(a, NULL));
    kv_window_bind_loose(a, pages[0], loose[0]);
    CHECK(rad_kv_window_page_map(a)[pages[0]] == loose[0]);
    CHECK_OK(rad_kv_check(a, NULL));
    kv_window_free_loose(a, loose + 1, 1);
    CHECK_OK(rad_kv_check(a, NULL));
    CHECK_OK(rad_kv_free(a, pages, 3, NULL)); /* with the one that was loose */
    CHECK(window_size(a) == 6);
    CHECK_OK(rad_kv_check(a, NULL));
    a->window->loose = 0;
    CHECK(rad_kv_check(a, NULL) == RAD_E_CORRUPT);
    a->window->loose = 2;
    CHECK(rad_kv_check(a, NULL) == RAD_E_CORRUPT);
    a->window->loose = 1;
    rad_kv_clear(a);
    CHECK(window_size(a) == 8);
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
}

TEST(runs_of_pages_go_with_their_window_sides)
{
    rad_kv_allocator *a = make(16, 12, 1, 1);
    rad_page pages[12];
    CHECK_OK(rad_kv_alloc(a, pages, 12)); /* 1..12 */
    CHECK_OK(rad_kv_free_window(a, (rad_page[]){2, 3, 11}, 3, NULL));
    CHECK_OK(kv_free_runs(a, (kv_run[]){{2, 4}, {10, 3}}, 2, NULL));
    CHECK(rad_kv_available_size(a) == 11 && window_size(a) == 7);
    CHECK(kv_free_runs(a, (kv_run[]){{1, 2}}, 1, NULL) == RAD_E_STATE);
    CHECK(rad_kv_has_window(a, 1) && rad_kv_has_window(a, 9) && !rad_kv_has_window(a, 12));
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
}

TEST(what_is_refused_says_why)
{
    rad_kv_allocator *a = make(8, 2, 4, 0), *plain = make(8, 0, 4, 0);
    rad_page page = 1;
    rad_slot slots[12], last = -1;
    rad_error err = {0};
    uint32_t from = 0, to = 12;
    CHECK(rad_kv_alloc_extend(a, 1, &from, &to, &last, slots, &err) == RAD_FULL);
    CHECK(strstr(err.text, "3 window pages are wanted, 2 are free"));
    to = 6;
    CHECK_OK(rad_kv_alloc_extend(a, 1, &from, &to, &last, slots, NULL));
    CHECK_OK(kv_free_window_slots(a, slots + 4, 2, NULL));
    last = slots[5], from = 6, to = 7;
    CHECK(rad_kv_alloc_extend(a, 1, &from, &to, &last, slots + 6, &err) == RAD_E_STATE);
    CHECK(strstr(err.text, "window side was given back"));
    CHECK(rad_kv_alloc_decode(a, 1, &to, &last, slots + 6, &err) == RAD_E_STATE);

    CHECK(rad_kv_free_window(plain, &page, 1, &err) == RAD_E_UNSUPPORTED);
    CHECK(rad_kv_alloc_tail(plain, &page, 1, 1) == RAD_E_UNSUPPORTED);
    CHECK_OK(rad_kv_alloc_tail(plain, &page, 1, 0));
    CHECK(!rad_kv_has_window(plain, page) && !rad_kv_window_page_map(plain));
    CHECK(!rad_kv_window_num_pages(plain) && !rad_kv_window_available_pages(plain));
    rad_kv_allocator_destroy(plain);
    rad_kv_allocator_destroy(a);
}

TEST(extend_and_decode_take_both_or_neither)
{
    rad_kv_allocator *a = make(8, 3, 4, 0);
    rad_slot slots[16] = {-9}, there[16], last = -1;
    CHECK_OK(rad_kv_alloc_extend(a, 1, (uint32_t[]){0}, (uint32_t[]){6}, &last, slots, NULL));
    for (int i = 0; i < 6; i++)
        CHECK(slots[i] == 4 + i);
    window_slots(a, slots, 6, there);
    for (int i = 0; i < 6; i++)
        CHECK(there[i] == 4 + i);

    rad_slot out[16] = {-9};
    last = slots[5];
    CHECK(rad_kv_alloc_extend(a, 1, (uint32_t[]){6}, (uint32_t[]){13}, &last, out, NULL) ==
          RAD_FULL);
    CHECK(out[0] == -9 && rad_kv_available_size(a) == 24);
    CHECK_OK(rad_kv_check(a, NULL));

    /* The first page leaves the window; the partial one goes on being filled. */
    CHECK_OK(kv_free_window_slots(a, slots, 4, NULL));
    CHECK_OK(rad_kv_alloc_extend(a, 1, (uint32_t[]){6}, (uint32_t[]){13}, &last, out, NULL));
    CHECK(out[0] == 10 && out[1] == 11 && out[2] == 12 && out[6] == 16);
    CHECK_OK(rad_kv_check(a, NULL));
    CHECK_OK(rad_kv_alloc_decode(a, 1, (uint32_t[]){14}, &out[6], out + 7, NULL));
    CHECK(out[7] == 17);
    CHECK(rad_kv_alloc_decode(a, 2, (uint32_t[]){15, 1}, (rad_slot[]){17, -1}, out, NULL) ==
          RAD_FULL);

    /* A partial page without its window side cannot be filled further. */
    CHECK_OK(kv_free_window_slots(a, (rad_slot[]){17}, 1, NULL));
    CHECK(rad_kv_alloc_decode(a, 1, (uint32_t[]){15}, (rad_slot[]){17}, out, NULL) == RAD_E_STATE);
    CHECK(rad_kv_alloc_extend(a, 1, (uint32_t[]){14}, (uint32_t[]){15}, (rad_slot[]){17}, out,
                              NULL) == RAD_E_STATE);
    CHECK(rad_kv_alloc_decode(a, 1, (uint32_t[]){0}, &last, out, NULL) == RAD_E_INVAL);
    CHECK(rad_kv_alloc_decode(a, 1, (uint32_t[]){15}, (rad_slot[]){-5}, out, NULL) == RAD_E_INVAL);
    CHECK(rad_kv_alloc_extend(a, 1, (uint32_t[]){5}, (uint32_t[]){4}, &last, out, NULL) ==
          RAD_E_INVAL);
    CHECK_OK(rad_kv_check(a, NULL));

    CHECK_OK(rad_kv_alloc_decode(a, 1, (uint32_t[]){1}, (rad_slot[]){-1}, out, NULL));
    window_slots(a, out, 1, there);
    CHECK(there[0] >= 4 && there[0] % 4 == 0);
    rad_kv_allocator_destroy(a);
}

TEST(a_group_holds_both_sides_back_until_its_end)
{
    rad_kv_allocator *a = make(4, 4, 1, 1);
    rad_page pages[4];
    CHECK(rad_kv_free_group_end(a) == RAD_E_STATE);
    CHECK_OK(rad_kv_alloc(a, pages, 4));
    CHECK_OK(rad_kv_free_group_begin(a));
    CHECK(rad_kv_free_group_begin(a) == RAD_E_STATE);
    CHECK_OK(rad_kv_free_window(a, pages, 2, NULL));
    CHECK_OK(rad_kv_free(a, pages + 1, 2, NULL));
    CHECK(rad_kv_available_size(a) == 0 && window_size(a) == 0);
    CHECK(rad_kv_free(a, pages + 1, 1, NULL) == RAD_E_STATE);
    CHECK_OK(rad_kv_check(a, NULL));
    CHECK_OK(rad_kv_free_group_end(a));
    CHECK(rad_kv_available_size(a) == 2 && window_size(a) == 3);
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_clear(a);
    CHECK(rad_kv_available_size(a) == 4 && window_size(a) == 4 && !rad_kv_is_taken(a, pages[0]));
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
}

/* The naive model: per full page an owner and whether the window side is there. Requests
 * grow, decode, slide their window forward and end at random. */
TEST(random_requests_agree_with_two_flags_per_page)
{
    enum { FULL = 40, WINDOW = 18, REQS = 5, MOST = 400 };
    uint64_t seed = test_seed(), state = seed;
    for (uint32_t round = 0; round < 4; round++) {
        uint32_t ps = round < 2 ? 1 : 4;
        rad_kv_allocator *a = make(FULL, WINDOW, ps, round & 1);
        int owner[FULL + 1] = {0};
        bool window[FULL + 1] = {false};
        rad_slot rows[REQS][MOST], there[MOST];
        uint32_t lens[REQS] = {0}, evicted[REQS] = {0};
        uint32_t full_free = FULL, window_free = WINDOW;

        for (uint64_t step = 0; step < test_scale(5000, 300000); step++) {
            uint32_t r = (uint32_t)(test_random(&state) % REQS);
            uint32_t pick = (uint32_t)(test_random(&state) % 10);
            rad_slot last = lens[r] ? rows[r][lens[r] - 1] : -1;
            if (pick == 0) {
                CHECK_OK(rad_kv_free_slots(a, rows[r], lens[r], NULL));
                for (int p = 1; p <= FULL; p++)
                    if (owner[p] == (int)r + 1) {
                        owner[p] = 0, full_free++;
                        window_free += window[p];
                        window[p] = false;
                    }
                lens[r] = evicted[r] = 0;
            } else if (pick < 4) {
                /* Free [from, to) of the row, whole pages behind the window's edge; `from`
                 * may lie before what was freed already. */
                uint32_t to = lens[r] > 6 ? (lens[r] - 6) / ps * ps : 0;
                uint32_t from = (uint32_t)(test_random(&state) % (evicted[r] + 1)) / ps * ps;
                if (from > to) continue;
                CHECK_OK(kv_free_window_slots(a, rows[r] + from, to - from, NULL));
                for (uint32_t i = from; i < to; i++) {
                    int page = rows[r][i] / (int)ps;
                    window_free += window[page];
                    window[page] = false;
                }
                evicted[r] = to > evicted[r] ? to : evicted[r];
            } else {
                uint32_t more = pick < 7 ? (uint32_t)(test_random(&state) % (3 * ps + 2)) : 1;
                uint32_t seq = lens[r] + more;
                if (seq > MOST) continue;
                uint32_t need = (seq + ps - 1) / ps - (lens[r] + ps - 1) / ps;
                rad_status want = need > full_free || need > window_free ? RAD_FULL : RAD_OK;
                rad_status status =
                    pick < 7
                        ? rad_kv_alloc_extend(a, 1, &lens[r], &seq, &last, rows[r] + lens[r], NULL)
                        : rad_kv_alloc_decode(a, 1, &seq, &last, rows[r] + lens[r], NULL);
                CHECKF(status == want, "seed %llu", (unsigned long long)seed);
                if (status) continue;
                for (uint32_t i = lens[r]; i < seq; i++) {
                    int page = rows[r][i] / (int)ps;
                    CHECKF(rows[r][i] % (int)ps == (int)(i % ps), "seed %llu",
                           (unsigned long long)seed);
                    if (i % ps) continue;
                    CHECKF(!owner[page], "seed %llu", (unsigned long long)seed);
                    owner[page] = (int)r + 1;
                    window[page] = true;
                    full_free--, window_free--;
                }
                lens[r] = seq;
            }
            CHECKF(rad_kv_available_size(a) == (uint64_t)full_free * ps &&
                       window_size(a) == (uint64_t)window_free * ps,
                   "seed %llu", (unsigned long long)seed);
            for (int p = 0; p <= FULL; p++)
                CHECKF(rad_kv_is_taken(a, p) == (owner[p] != 0) &&
                           rad_kv_has_window(a, p) == window[p],
                       "page %d seed %llu", p, (unsigned long long)seed);
            window_slots(a, rows[r], lens[r], there);
            for (uint32_t i = 0; i < lens[r]; i++)
                CHECK(window[rows[r][i] / (int)ps] ? there[i] % (int)ps == (int)(i % ps) && there[i]
                                                   : there[i] == 0);
            CHECK_OK(rad_kv_check(a, NULL));
        }
        rad_kv_allocator_destroy(a);
    }
}

TEST(create_refuses_nonsense_and_survives_every_allocation_failing)
{
    rad_error err;
    rad_kv_allocator *a = NULL;
    rad_kv_allocator_params p = {.struct_size = sizeof p, .num_pages = 100, .swa_num_pages = 20};
    CHECK(rad_kv_allocator_create(NULL, &p, NULL, &err) == RAD_E_INVAL);
    CHECK(rad_kv_allocator_create(NULL, NULL, &a, &err) == RAD_E_INVAL);
    p.swa_reserved = 1;
    CHECK(rad_kv_allocator_create(NULL, &p, &a, &err) == RAD_E_INVAL && !a);
    p.swa_reserved = 0;
    p.swa_num_pages = UINT32_MAX;
    CHECK(rad_kv_allocator_create(NULL, &p, &a, &err) == RAD_E_LIMIT && !a);
    p.swa_num_pages = 20;
    for (long n = 0; !a; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = rad_kv_allocator_create(&env, &p, &a, &err);
        CHECK(status == (a ? RAD_OK : RAD_E_NOMEM));
        if (a) {
            CHECK(rad_kv_page_size(a) == 1);
            t.fail_at = 0;
            CHECK(rad_kv_check(a, NULL) == RAD_E_NOMEM);
        }
        rad_kv_allocator_destroy(a);
        CHECK(t.bytes == 0);
    }
    rad_kv_allocator_destroy(NULL);
}

TEST_MAIN()
