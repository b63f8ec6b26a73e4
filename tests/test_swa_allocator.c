/* test_swa_allocator.c - both sides or neither, and the window side freed on its own.
 *
 * Where radish differs from SGLang on purpose: freeing the window side twice is nothing
 * (there it frees another's slot); whole pages only; a double free is refused. */
#include "test.h"

#include <radish/swa_allocator.h>

static rad_swa_allocator *make(uint32_t full, uint32_t swa, uint32_t page_size, uint32_t sort)
{
    rad_swa_allocator_params params = {.struct_size = sizeof params,
                                       .num_pages = full,
                                       .swa_num_pages = swa,
                                       .page_size = page_size,
                                       .need_sort = sort};
    rad_swa_allocator *a = NULL;
    CHECK_OK(rad_swa_allocator_create(NULL, &params, &a, NULL));
    return a;
}

TEST(pages_come_with_a_window_side_or_not_at_all)
{
    rad_swa_allocator *a = make(8, 3, 4, 0);
    rad_page pages[8] = {-7, -7, -7, -7};
    CHECK(rad_swa_available_size(a) == 12 && rad_swa_full_available_size(a) == 32);
    CHECK(rad_swa_alloc(a, pages, 4) == RAD_FULL && pages[0] == -7);
    CHECK_OK(rad_swa_alloc(a, pages, 3));
    for (int i = 0; i < 3; i++)
        CHECK(rad_swa_is_taken(a, pages[i]) && rad_swa_has_swa(a, pages[i]));
    CHECK(rad_swa_available_size(a) == 0 && rad_swa_full_available_size(a) == 20);
    CHECK(rad_swa_alloc(a, pages + 3, 1) == RAD_FULL);
    CHECK_OK(rad_swa_check(a, NULL));

    CHECK_OK(rad_swa_free_swa(a, pages, 2, NULL)); /* two left the window */
    CHECK(rad_swa_swa_available_size(a) == 8 && rad_swa_full_available_size(a) == 20);
    CHECK(rad_swa_is_taken(a, pages[0]) && !rad_swa_has_swa(a, pages[0]));
    CHECK_OK(rad_swa_check(a, NULL));
    CHECK_OK(rad_swa_alloc(a, pages + 3, 2));
    CHECK_OK(rad_swa_free(a, pages, 5, NULL)); /* with and without a window side */
    CHECK(rad_swa_full_available_size(a) == 32 && rad_swa_swa_available_size(a) == 12);
    CHECK_OK(rad_swa_check(a, NULL));

    rad_swa_allocator *b = make(2, 8, 1, 0); /* here the full side is the short one */
    CHECK(rad_swa_alloc(b, pages, 3) == RAD_FULL && rad_swa_swa_available_size(b) == 8);
    CHECK(rad_swa_available_size(b) == 2);
    rad_swa_allocator_destroy(b);
    rad_swa_allocator_destroy(a);
}

TEST(only_the_tail_gets_a_window_side_when_so_asked)
{
    rad_swa_allocator *a = make(8, 3, 2, 0);
    rad_page pages[8] = {-7};
    rad_swa_state state;
    CHECK(rad_swa_swa_num_pages(a) == 3);
    CHECK(rad_swa_alloc_tail(a, pages, 2, 3) == RAD_E_INVAL);
    CHECK(rad_swa_alloc_tail(a, pages, 8, 4) == RAD_FULL);
    CHECK(rad_swa_alloc_tail(a, pages, 9, 0) == RAD_FULL && pages[0] == -7);
    CHECK(rad_swa_swa_available_size(a) == 6);
    rad_swa_backup_state(a, &state);
    CHECK_OK(rad_swa_alloc_tail(a, pages, 5, 2));
    for (int i = 0; i < 5; i++)
        CHECK(rad_swa_is_taken(a, pages[i]) && rad_swa_has_swa(a, pages[i]) == (i >= 3));
    CHECK(rad_swa_full_available_size(a) == 6 && rad_swa_swa_available_size(a) == 2);
    CHECK_OK(rad_swa_check(a, NULL));
    CHECK_OK(rad_swa_restore_state(a, &state, NULL)); /* fewer window sides than pages */
    CHECK(rad_swa_full_available_size(a) == 16 && rad_swa_swa_available_size(a) == 6);
    CHECK_OK(rad_swa_check(a, NULL));
    CHECK_OK(rad_swa_alloc_tail(a, pages, 5, 0));
    CHECK_OK(rad_swa_free(a, pages, 5, NULL));
    CHECK_OK(rad_swa_check(a, NULL));
    rad_swa_allocator_destroy(a);
}

TEST(the_window_side_is_freed_once_however_often_it_is_asked)
{
    rad_swa_allocator *a = make(8, 8, 2, 0);
    rad_page pages[4];
    rad_error err;
    CHECK_OK(rad_swa_alloc(a, pages, 4));
    CHECK_OK(rad_swa_free_swa(a, (rad_page[]){pages[0], pages[0], pages[1]}, 3, NULL));
    CHECK_OK(rad_swa_free_swa(a, pages, 2, NULL));
    CHECK(rad_swa_swa_available_size(a) == 6 * 2);

    /* The freed side went to somebody else: asking again must not take it from them. */
    rad_page others[2];
    CHECK_OK(rad_swa_alloc(a, others, 2));
    CHECK_OK(rad_swa_free_swa(a, pages, 2, NULL));
    CHECK(rad_swa_has_swa(a, others[0]) && rad_swa_has_swa(a, others[1]));

    rad_page foreign[] = {0, -1, -3, 9, 7, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        rad_page list[2] = {pages[2], foreign[i]};
        CHECK(rad_swa_free_swa(a, list, 2, &err) == RAD_E_STATE);
        CHECK(rad_swa_free(a, list, 2, &err) == RAD_E_STATE);
        CHECK(rad_swa_has_swa(a, pages[2]) && !rad_swa_has_swa(a, foreign[i]));
    }
    CHECK(rad_swa_free(a, (rad_page[]){pages[2], pages[2]}, 2, &err) == RAD_E_STATE);
    CHECK_OK(rad_swa_check(a, NULL));

    /* By slots: the whole page of each, in any order. */
    rad_slot some[3] = {pages[3] * 2 + 1, pages[2] * 2 + 1, pages[3] * 2};
    CHECK_OK(rad_swa_free_swa_slots(a, some, 3, NULL));
    CHECK(!rad_swa_has_swa(a, pages[2]) && !rad_swa_has_swa(a, pages[3]));
    CHECK(rad_swa_free_swa_slots(a, (rad_slot[]){-1}, 1, &err) == RAD_E_STATE);
    CHECK(rad_swa_free_swa_slots(a, (rad_slot[]){1}, 1, &err) == RAD_E_STATE);
    CHECK_OK(rad_swa_check(a, NULL));
    rad_swa_allocator_destroy(a);
}

TEST(translate_follows_the_window_side_slot_by_slot)
{
    rad_swa_allocator *a = make(6, 6, 4, 0);
    rad_page burnt[2], pages[2];
    CHECK_OK(rad_swa_alloc(a, burnt, 2));
    CHECK_OK(rad_swa_free_swa(a, (rad_page[]){1}, 1, NULL));
    CHECK_OK(rad_swa_alloc(a, pages, 2)); /* full 3, 4; window 1 (just freed), 3 */
    CHECK(rad_swa_page_map(a)[3] == 1 && rad_swa_page_map(a)[4] == 3);
    CHECK(rad_swa_page_map(a)[0] == 0 && rad_swa_page_map(a)[1] == 0);
    const rad_slot full[8] = {12, 15, 16, 19, -1, 0, 4, 9};
    const rad_slot want[8] = {4, 7, 12, 15, -1, 0, 0, 9};
    rad_slot got[8];
    CHECK_OK(rad_swa_translate(a, full, 8, got));
    CHECK(memcmp(got, want, sizeof want) == 0);
    memcpy(got, full, sizeof full);
    CHECK_OK(rad_swa_translate(a, got, 8, got)); /* in place */
    CHECK(memcmp(got, want, sizeof want) == 0);
    CHECK(rad_swa_translate(a, (rad_slot[]){12, 28}, 2, got) == RAD_E_INVAL);
    CHECK(rad_swa_translate(a, (rad_slot[]){12, -2}, 2, got) == RAD_E_INVAL);
    CHECK(got[0] == 4);
    rad_swa_allocator_destroy(a);
}

TEST(extend_and_decode_take_both_or_neither)
{
    rad_swa_allocator *a = make(8, 3, 4, 0);
    rad_slot slots[16] = {-9}, swa[16], last = -1;
    CHECK_OK(rad_swa_alloc_extend(a, 1, (uint32_t[]){0}, (uint32_t[]){6}, &last, slots));
    for (int i = 0; i < 6; i++)
        CHECK(slots[i] == 4 + i);
    CHECK_OK(rad_swa_translate(a, slots, 6, swa));
    for (int i = 0; i < 6; i++)
        CHECK(swa[i] == 4 + i);

    rad_slot out[16] = {-9};
    last = slots[5];
    CHECK(rad_swa_alloc_extend(a, 1, (uint32_t[]){6}, (uint32_t[]){13}, &last, out) == RAD_FULL);
    CHECK(out[0] == -9 && rad_swa_full_available_size(a) == 24);
    CHECK_OK(rad_swa_check(a, NULL));

    /* The first page leaves the window; the partial one goes on being filled. */
    CHECK_OK(rad_swa_free_swa_slots(a, slots, 4, NULL));
    CHECK_OK(rad_swa_alloc_extend(a, 1, (uint32_t[]){6}, (uint32_t[]){13}, &last, out));
    CHECK(out[0] == 10 && out[1] == 11 && out[2] == 12 && out[6] == 16);
    CHECK_OK(rad_swa_check(a, NULL));
    CHECK_OK(rad_swa_alloc_decode(a, 1, (uint32_t[]){14}, &out[6], out + 7));
    CHECK(out[7] == 17);
    CHECK(rad_swa_alloc_decode(a, 2, (uint32_t[]){15, 1}, (rad_slot[]){17, -1}, out) == RAD_FULL);

    /* A partial page without its window side cannot be filled further. */
    CHECK_OK(rad_swa_free_swa_slots(a, (rad_slot[]){17}, 1, NULL));
    CHECK(rad_swa_alloc_decode(a, 1, (uint32_t[]){15}, (rad_slot[]){17}, out) == RAD_E_STATE);
    CHECK(rad_swa_alloc_extend(a, 1, (uint32_t[]){14}, (uint32_t[]){15}, (rad_slot[]){17}, out) ==
          RAD_E_STATE);
    CHECK(rad_swa_alloc_decode(a, 1, (uint32_t[]){0}, &last, out) == RAD_E_INVAL);
    CHECK(rad_swa_alloc_decode(a, 1, (uint32_t[]){15}, (rad_slot[]){-5}, out) == RAD_E_INVAL);
    CHECK(rad_swa_alloc_extend(a, 1, (uint32_t[]){5}, (uint32_t[]){4}, &last, out) == RAD_E_INVAL);
    CHECK_OK(rad_swa_check(a, NULL));

    CHECK_OK(rad_swa_alloc_decode(a, 1, (uint32_t[]){1}, (rad_slot[]){-1}, out));
    CHECK_OK(rad_swa_translate(a, out, 1, swa));
    CHECK(swa[0] >= 4 && swa[0] % 4 == 0);
    rad_swa_allocator_destroy(a);
}

TEST(a_group_holds_both_sides_back_until_its_end)
{
    rad_swa_allocator *a = make(4, 4, 1, 1);
    rad_page pages[4];
    CHECK(rad_swa_free_group_end(a) == RAD_E_STATE);
    CHECK_OK(rad_swa_alloc(a, pages, 4));
    CHECK_OK(rad_swa_free_group_begin(a));
    CHECK(rad_swa_free_group_begin(a) == RAD_E_STATE);
    CHECK_OK(rad_swa_free_swa(a, pages, 2, NULL));
    CHECK_OK(rad_swa_free(a, pages + 1, 2, NULL));
    CHECK(rad_swa_full_available_size(a) == 0 && rad_swa_swa_available_size(a) == 0);
    CHECK(rad_swa_free(a, pages + 1, 1, NULL) == RAD_E_STATE);
    CHECK_OK(rad_swa_check(a, NULL));
    CHECK_OK(rad_swa_free_group_end(a));
    CHECK(rad_swa_full_available_size(a) == 2 && rad_swa_swa_available_size(a) == 3);
    CHECK_OK(rad_swa_check(a, NULL));
    rad_swa_clear(a);
    CHECK(rad_swa_available_size(a) == 4 && !rad_swa_is_taken(a, pages[0]));
    CHECK_OK(rad_swa_check(a, NULL));
    rad_swa_allocator_destroy(a);
}

TEST(a_restored_state_takes_both_sides_back)
{
    for (uint32_t sort = 0; sort < 2; sort++) {
        rad_swa_allocator *a = make(9, 7, 2, sort), *b = make(9, 7, 2, sort);
        rad_page pages[9], draft[4], again[4];
        rad_swa_state state, foreign;
        rad_error err;
        CHECK_OK(rad_swa_alloc(a, pages, 5));
        CHECK_OK(rad_swa_free(a, pages, 2, NULL));
        CHECK_OK(rad_swa_free_swa(a, pages + 4, 1, NULL));
        rad_swa_backup_state(a, &state);
        for (int round = 0; round < 3; round++) {
            CHECK_OK(rad_swa_alloc(a, draft, 1));
            CHECK_OK(rad_swa_alloc(a, draft + 1, 3));
            for (int i = 0; i < 4 && round; i++)
                CHECK(sort || draft[i] == again[i]);
            memcpy(again, draft, sizeof draft);
            CHECK_OK(rad_swa_restore_state(a, &state, &err));
            CHECK(rad_swa_full_available_size(a) == 12 && rad_swa_swa_available_size(a) == 10);
            for (int i = 0; i < 4; i++)
                CHECK(!rad_swa_is_taken(a, draft[i]) && !rad_swa_has_swa(a, draft[i]));
            CHECK(rad_swa_has_swa(a, pages[2]) && !rad_swa_has_swa(a, pages[4]));
            CHECK_OK(rad_swa_check(a, NULL));
        }
        rad_swa_backup_state(b, &foreign);
        CHECK(rad_swa_restore_state(a, &foreign, &err) == RAD_E_STATE);

        CHECK_OK(rad_swa_alloc(a, draft, 1));
        rad_swa_backup_state(a, &foreign);
        foreign.full = state.full; /* put together by hand */
        CHECK(rad_swa_restore_state(a, &foreign, &err) == RAD_E_STATE);
        CHECK_OK(rad_swa_restore_state(a, &state, &err));

        /* A window side that went in between: refused on both sides. */
        CHECK_OK(rad_swa_alloc(a, draft, 2));
        CHECK_OK(rad_swa_free_swa(a, pages + 3, 1, NULL));
        CHECK(rad_swa_restore_state(a, &state, &err) == RAD_E_STATE);
        CHECK(rad_swa_has_swa(a, draft[0]) && rad_swa_full_available_size(a) == 8);
        CHECK_OK(rad_swa_check(a, NULL));
        /* A full page without a window side: only the full allocator saw it go. */
        rad_swa_backup_state(a, &state);
        CHECK_OK(rad_swa_alloc(a, draft + 2, 1));
        CHECK_OK(rad_swa_free(a, pages + 3, 1, NULL));
        CHECK(rad_swa_restore_state(a, &state, &err) == RAD_E_STATE);
        CHECK(rad_swa_has_swa(a, draft[2]));
        CHECK_OK(rad_swa_check(a, NULL));
        rad_swa_allocator_destroy(a);
        rad_swa_allocator_destroy(b);
    }
}

/* The naive model: per full page an owner and whether the window side is there. Requests
 * grow, decode, slide their window forward and end at random. */
TEST(random_requests_agree_with_two_flags_per_page)
{
    enum { FULL = 40, SWA = 18, REQS = 5, MOST = 400 };
    uint64_t seed = test_seed(), state = seed;
    for (uint32_t round = 0; round < 4; round++) {
        uint32_t ps = round < 2 ? 1 : 4;
        rad_swa_allocator *a = make(FULL, SWA, ps, round & 1);
        int owner[FULL + 1] = {0};
        bool window[FULL + 1] = {false};
        rad_slot rows[REQS][MOST], swa[MOST];
        uint32_t lens[REQS] = {0}, evicted[REQS] = {0};
        uint32_t full_free = FULL, swa_free = SWA;

        for (uint64_t step = 0; step < test_scale(5000, 300000); step++) {
            uint32_t r = (uint32_t)(test_random(&state) % REQS);
            uint32_t pick = (uint32_t)(test_random(&state) % 10);
            rad_slot last = lens[r] ? rows[r][lens[r] - 1] : -1;
            if (pick == 0) {
                CHECK_OK(rad_swa_free_slots(a, rows[r], lens[r], NULL));
                for (int p = 1; p <= FULL; p++)
                    if (owner[p] == (int)r + 1) {
                        owner[p] = 0, full_free++;
                        swa_free += window[p];
                        window[p] = false;
                    }
                lens[r] = evicted[r] = 0;
            } else if (pick < 4) {
                /* Free [from, to) of the row, whole pages behind the window's edge; `from`
                 * may lie before what was freed already. */
                uint32_t to = lens[r] > 6 ? (lens[r] - 6) / ps * ps : 0;
                uint32_t from = (uint32_t)(test_random(&state) % (evicted[r] + 1));
                if (from > to) continue;
                CHECK_OK(rad_swa_free_swa_slots(a, rows[r] + from, to - from, NULL));
                for (uint32_t i = from; i < to; i++) {
                    int page = rows[r][i] / (int)ps;
                    swa_free += window[page];
                    window[page] = false;
                }
                evicted[r] = to > evicted[r] ? to : evicted[r];
            } else {
                uint32_t more = pick < 7 ? (uint32_t)(test_random(&state) % (3 * ps + 2)) : 1;
                uint32_t seq = lens[r] + more;
                if (seq > MOST) continue;
                uint32_t need = (seq + ps - 1) / ps - (lens[r] + ps - 1) / ps;
                rad_status want = need > full_free || need > swa_free ? RAD_FULL : RAD_OK;
                rad_status status =
                    pick < 7 ? rad_swa_alloc_extend(a, 1, &lens[r], &seq, &last, rows[r] + lens[r])
                             : rad_swa_alloc_decode(a, 1, &seq, &last, rows[r] + lens[r]);
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
                    full_free--, swa_free--;
                }
                lens[r] = seq;
            }
            CHECKF(rad_swa_full_available_size(a) == (uint64_t)full_free * ps &&
                       rad_swa_swa_available_size(a) == (uint64_t)swa_free * ps,
                   "seed %llu", (unsigned long long)seed);
            for (int p = 0; p <= FULL; p++)
                CHECKF(rad_swa_is_taken(a, p) == (owner[p] != 0) &&
                           rad_swa_has_swa(a, p) == window[p],
                       "page %d seed %llu", p, (unsigned long long)seed);
            CHECK_OK(rad_swa_translate(a, rows[r], lens[r], swa));
            for (uint32_t i = 0; i < lens[r]; i++)
                CHECK(window[rows[r][i] / (int)ps] ? swa[i] % (int)ps == (int)(i % ps) && swa[i]
                                                   : swa[i] == 0);
            CHECK_OK(rad_swa_check(a, NULL));
        }
        rad_swa_allocator_destroy(a);
    }
}

TEST(create_refuses_nonsense_and_survives_every_allocation_failing)
{
    rad_error err;
    rad_swa_allocator *a = NULL;
    rad_swa_allocator_params p = {.struct_size = sizeof p, .num_pages = 100, .swa_num_pages = 20};
    CHECK(rad_swa_allocator_create(NULL, &p, NULL, &err) == RAD_E_INVAL);
    CHECK(rad_swa_allocator_create(NULL, NULL, &a, &err) == RAD_E_INVAL);
    p.swa_num_pages = 0;
    CHECK(rad_swa_allocator_create(NULL, &p, &a, &err) == RAD_E_INVAL && !a);
    p.swa_num_pages = UINT32_MAX;
    CHECK(rad_swa_allocator_create(NULL, &p, &a, &err) == RAD_E_LIMIT && !a);
    p.swa_num_pages = 20;
    for (long n = 0; !a; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = rad_swa_allocator_create(&env, &p, &a, &err);
        CHECK(status == (a ? RAD_OK : RAD_E_NOMEM));
        if (a) {
            CHECK(rad_swa_page_size(a) == 1);
            t.fail_at = 0;
            CHECK(rad_swa_check(a, NULL) == RAD_E_NOMEM);
        }
        rad_swa_allocator_destroy(a);
        CHECK(t.bytes == 0);
    }
    rad_swa_allocator_destroy(NULL);
}

TEST_MAIN()
