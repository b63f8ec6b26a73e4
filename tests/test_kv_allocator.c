/* test_kv_allocator.c - pages leave once, come back once, and slots follow positions. */
#include "test.h"

#include <radish/kv_allocator.h>

static rad_kv_allocator *make(uint32_t num_pages, uint32_t page_size)
{
    rad_kv_allocator_params params = {
        .struct_size = sizeof params, .num_pages = num_pages, .page_size = page_size};
    rad_kv_allocator *a = NULL;
    CHECK_OK(rad_kv_allocator_create(NULL, &params, &a, NULL));
    return a;
}

/* An allocator whose next pages are next[0..count) and whose other pages are taken. */
static rad_kv_allocator *make_with_next(uint32_t page_size, const rad_page *next, uint32_t count)
{
    rad_kv_allocator *a = make(64, page_size);
    rad_page all[64];
    CHECK_OK(rad_kv_alloc(a, all, 64));
    for (uint32_t i = count; i-- > 0;)
        CHECK_OK(rad_kv_free(a, &next[i], 1, NULL));
    return a;
}

TEST(pages_leave_in_order_and_all_or_nothing)
{
    rad_kv_allocator *a = make(4, 1);
    rad_page pages[5] = {-7, -7, -7, -7, -7};
    CHECK(rad_kv_alloc(a, pages, 5) == RAD_FULL);
    CHECK(pages[0] == -7 && rad_kv_available_pages(a) == 4);
    CHECK_OK(rad_kv_alloc(a, pages, 4));
    for (int i = 0; i < 4; i++)
        CHECK(pages[i] == i + 1 && rad_kv_is_taken(a, pages[i]));
    CHECK(rad_kv_alloc(a, pages, 1) == RAD_FULL);
    CHECK_OK(rad_kv_alloc(a, pages, 0));
    CHECK_OK(rad_kv_free(a, pages, 4, NULL));
    CHECK_OK(rad_kv_check(a, NULL));
    rad_page again[4];
    CHECK_OK(rad_kv_alloc(a, again, 4));
    CHECK(memcmp(again, pages, sizeof again) == 0); /* a run comes back as a run */
    rad_kv_clear(a);
    CHECK(rad_kv_available_size(a) == 4);
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
}

TEST(the_highest_page_that_was_out_is_known)
{
    rad_kv_allocator *a = make(64, 4);
    rad_page pages[20];
    CHECK(rad_kv_highest_page(a) == 0);
    CHECK_OK(rad_kv_alloc(a, pages, 20));
    CHECK(rad_kv_highest_page(a) == 20);
    CHECK_OK(rad_kv_free(a, pages, 20, NULL));
    rad_slot slots[9], last = -1;
    uint32_t prefix = 0, seq = 9;
    CHECK_OK(rad_kv_alloc_extend(a, 1, &prefix, &seq, &last, slots, NULL));
    CHECK(rad_kv_highest_page(a) == 20); /* these were out before */
    CHECK(rad_kv_alloc(a, pages, 64) == RAD_FULL && rad_kv_highest_page(a) == 20);
    CHECK_OK(rad_kv_alloc(a, pages, 18));
    CHECK(rad_kv_highest_page(a) == 21);
    rad_kv_clear(a);
    CHECK(rad_kv_highest_page(a) == 21);
    rad_kv_allocator_destroy(a);
}

TEST(a_double_free_and_a_foreign_page_are_refused_by_name)
{
    rad_kv_allocator *a = make(8, 16);
    rad_page pages[3];
    rad_error err;
    CHECK_OK(rad_kv_alloc(a, pages, 3));
    CHECK(rad_kv_available_size(a) == 5 * 16);

    rad_page twice[3] = {pages[0], pages[1], pages[0]};
    CHECK(rad_kv_free(a, twice, 3, &err) == RAD_E_STATE);
    CHECK(strstr(err.text, "page 1 ") != NULL);
    CHECK(rad_kv_is_taken(a, pages[0]) && rad_kv_is_taken(a, pages[1]));
    CHECK_OK(rad_kv_check(a, NULL));

    rad_page foreign[] = {0, -1, 9, INT32_MAX, INT32_MIN, 7};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        rad_page list[2] = {pages[2], foreign[i]};
        CHECK(rad_kv_free(a, list, 2, &err) == RAD_E_STATE);
        CHECK(!rad_kv_is_taken(a, foreign[i]) && rad_kv_is_taken(a, pages[2]));
    }
    CHECK_OK(rad_kv_free(a, pages, 3, NULL));
    CHECK(rad_kv_free(a, pages, 3, &err) == RAD_E_STATE);
    CHECK(rad_kv_available_pages(a) == 8);
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
}

TEST(slots_are_freed_by_whole_pages_and_must_lie_in_order)
{
    rad_kv_allocator *a = make(8, 4);
    rad_slot slots[10], last = -1;
    uint32_t prefix = 0, seq = 10;
    CHECK_OK(rad_kv_alloc_extend(a, 1, &prefix, &seq, &last, slots, NULL));
    CHECK(rad_kv_available_pages(a) == 5);

    rad_error err;
    CHECK(rad_kv_free_slots(a, slots + 1, 4, &err) == RAD_E_STATE); /* starts inside a page */
    rad_slot mixed[4] = {slots[0], slots[1], slots[3], slots[2]};
    CHECK(rad_kv_free_slots(a, mixed, 4, &err) == RAD_E_STATE);
    CHECK(rad_kv_available_pages(a) == 5);

    CHECK_OK(rad_kv_free_slots(a, slots + 4, 6, NULL)); /* one whole page and a part */
    CHECK(rad_kv_available_pages(a) == 7);
    CHECK_OK(rad_kv_free_slots(a, slots, 0, NULL));
    CHECK_OK(rad_kv_free_slots(a, slots, 4, NULL));
    CHECK(rad_kv_free_slots(a, slots, 4, NULL) == RAD_E_STATE);
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
}

/* What SGLang's paged allocator hands out, page size 4. */
TEST(extend_and_decode_give_the_reference_slots)
{
    {
        rad_kv_allocator *a = make_with_next(4, (rad_page[]){3, 4, 5}, 3);
        rad_slot slots[9];
        CHECK_OK(rad_kv_alloc_extend(a, 1, (uint32_t[]){5}, (uint32_t[]){14}, (rad_slot[]){8},
                                     slots, NULL));
        /* Position 5 is the second of its page: slot 9 of page 2, then pages 3 and 4. */
        for (int i = 0; i < 9; i++)
            CHECKF(slots[i] == 9 + i, "slot %d is %d", i, slots[i]);
        CHECK(rad_kv_available_pages(a) == 1);
        rad_kv_allocator_destroy(a);
    }
    {
        rad_kv_allocator *a = make_with_next(4, (rad_page[]){10, 11, 12, 13}, 4);
        rad_slot slots[12], want[12] = {40, 41, 42, 9, 44, 45, 46, 47, 48, 49, 50, 51};
        CHECK_OK(rad_kv_alloc_extend(a, 3, (uint32_t[]){0, 5, 8}, (uint32_t[]){3, 6, 16},
                                     (rad_slot[]){-1, 8, 31}, slots, NULL));
        CHECK(memcmp(slots, want, sizeof want) == 0);
        CHECK(rad_kv_available_pages(a) == 1);
        rad_kv_allocator_destroy(a);
    }
    {
        rad_kv_allocator *a = make_with_next(4, (rad_page[]){1, 2, 3}, 3);
        rad_slot slots[8];
        CHECK_OK(rad_kv_alloc_extend(a, 1, (uint32_t[]){0}, (uint32_t[]){8}, (rad_slot[]){-1},
                                     slots, NULL));
        for (int i = 0; i < 8; i++)
            CHECK(slots[i] == 4 + i);
        rad_kv_allocator_destroy(a);
    }
    {
        rad_kv_allocator *a = make_with_next(4, (rad_page[]){9}, 1);
        rad_slot slot;
        CHECK_OK(rad_kv_alloc_extend(a, 1, (uint32_t[]){4}, (uint32_t[]){5}, (rad_slot[]){7}, &slot,
                                     NULL));
        CHECK(slot == 36 && rad_kv_available_pages(a) == 0);
        rad_kv_allocator_destroy(a);
    }
    {
        rad_kv_allocator *a = make_with_next(4, (rad_page[]){20, 21, 22}, 3);
        rad_slot slots[3];
        CHECK_OK(
            rad_kv_alloc_decode(a, 3, (uint32_t[]){5, 6, 9}, (rad_slot[]){7, 8, 11}, slots, NULL));
        CHECK(slots[0] == 80 && slots[1] == 9 && slots[2] == 84);
        CHECK(rad_kv_available_pages(a) == 1);
        rad_kv_allocator_destroy(a);
    }
}

TEST(a_last_slot_that_does_not_fit_is_refused_and_full_changes_nothing)
{
    rad_kv_allocator *a = make(4, 4);
    rad_slot slots[32] = {-9}, last = -1;
    CHECK_OK(rad_kv_alloc_extend(a, 1, (uint32_t[]){0}, (uint32_t[]){5}, &last, slots, NULL));

    const struct {
        uint32_t prefix, seq;
        rad_slot last;
    } wrong[] = {{5, 4, slots[4]}, {5, 6, -1},      {5, 6, slots[3]}, {0, 1, slots[4]},
                 {5, 6, 4 * 4},    {5, 6, 1000000}, {1, 2, 0},        {1, 2, -4}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECKF(rad_kv_alloc_extend(a, 1, &wrong[i].prefix, &wrong[i].seq, &wrong[i].last, slots,
                                   NULL) == RAD_E_INVAL,
               "case %zu", i);
    CHECK(rad_kv_alloc_decode(a, 1, (uint32_t[]){0}, &last, slots, NULL) == RAD_E_INVAL);
    CHECK(rad_kv_alloc_decode(a, 1, (uint32_t[]){7}, &slots[4], slots, NULL) == RAD_E_INVAL);

    rad_slot tail = slots[4], out[32] = {-9};
    CHECK(rad_kv_alloc_extend(a, 1, (uint32_t[]){5}, (uint32_t[]){17}, &tail, out, NULL) ==
          RAD_FULL);
    CHECK(out[0] == -9 && rad_kv_available_pages(a) == 2);
    CHECK_OK(rad_kv_alloc_extend(a, 1, (uint32_t[]){5}, (uint32_t[]){16}, &tail, out, NULL));
    tail = out[10];
    CHECK(rad_kv_available_pages(a) == 0);
    CHECK(rad_kv_alloc_decode(a, 1, (uint32_t[]){17}, &tail, out, NULL) == RAD_FULL);
    CHECK_OK(rad_kv_check(a, NULL));
    rad_kv_allocator_destroy(a);
}

/* The naive model: an owner per page. Requests grow, decode and end at random. */
TEST(random_requests_agree_with_an_owner_per_page)
{
    uint64_t seed = test_seed(), state = seed;
    for (uint32_t ps = 1; ps <= 16; ps = ps == 1 ? 3 : ps == 3 ? 16 : 17) {
        enum { PAGES = 40, REQS = 6, MOST = 400 };
        rad_kv_allocator *a = make(PAGES, ps);
        int owner[PAGES + 1] = {0};
        rad_slot rows[REQS][MOST];
        uint32_t lens[REQS] = {0}, free_pages = PAGES;

        for (uint64_t step = 0; step < test_scale(3000, 300000); step++) {
            int r = (int)(test_random(&state) % REQS);
            uint32_t pick = (uint32_t)(test_random(&state) % 8);
            rad_slot last = lens[r] ? rows[r][lens[r] - 1] : -1;
            if (pick == 0) {
                CHECK_OK(rad_kv_free_slots(a, rows[r], lens[r], NULL));
                for (int p = 1; p <= PAGES; p++)
                    if (owner[p] == r + 1) owner[p] = 0, free_pages++;
                lens[r] = 0;
            } else {
                uint32_t more = pick < 4 ? (uint32_t)(test_random(&state) % (3 * ps + 2)) : 1;
                uint32_t seq = lens[r] + more;
                if (seq > MOST) continue;
                uint32_t need = (seq + ps - 1) / ps - (lens[r] + ps - 1) / ps;
                rad_status status =
                    pick < 4
                        ? rad_kv_alloc_extend(a, 1, &lens[r], &seq, &last, rows[r] + lens[r], NULL)
                        : rad_kv_alloc_decode(a, 1, &seq, &last, rows[r] + lens[r], NULL);
                CHECKF(status == (need > free_pages ? RAD_FULL : RAD_OK), "seed %llu",
                       (unsigned long long)seed);
                if (status) continue;
                for (uint32_t i = lens[r]; i < seq; i++) {
                    int page = rows[r][i] / (int)ps;
                    CHECKF(rows[r][i] % ps == i % ps, "seed %llu", (unsigned long long)seed);
                    if (i % ps == 0) {
                        CHECKF(owner[page] == 0, "page %d, seed %llu", page,
                               (unsigned long long)seed);
                        owner[page] = r + 1;
                        free_pages--;
                    } else {
                        CHECK(page == rows[r][i - 1] / (int)ps);
                    }
                }
                lens[r] = seq;
            }
            CHECK(rad_kv_available_pages(a) == free_pages);
            for (int p = 0; p <= PAGES; p++)
                CHECK(rad_kv_is_taken(a, p) == (owner[p] != 0));
            CHECK_OK(rad_kv_check(a, NULL));
        }
        rad_kv_allocator_destroy(a);
    }
}

TEST(create_refuses_what_makes_no_sense)
{
    rad_kv_allocator *a = (rad_kv_allocator *)1;
    rad_error err;
    rad_kv_allocator_params p = {.struct_size = sizeof p};
    CHECK(rad_kv_allocator_create(NULL, &p, &a, &err) == RAD_E_INVAL && !a);
    CHECK(rad_kv_allocator_create(NULL, NULL, &a, &err) == RAD_E_INVAL);
    p.num_pages = 1u << 28;
    p.page_size = 16;
    CHECK(rad_kv_allocator_create(NULL, &p, &a, &err) == RAD_E_LIMIT);
    p.struct_size = 0;
    CHECK(rad_kv_allocator_create(NULL, &p, &a, &err) == RAD_E_INVAL);

    /* A newer program: unknown fields are fine as long as they are zero. */
    struct {
        rad_kv_allocator_params known;
        uint64_t later;
    } newer = {.known = {.struct_size = sizeof newer, .num_pages = 4}};
    CHECK_OK(rad_kv_allocator_create(NULL, &newer.known, &a, &err));
    CHECK(rad_kv_page_size(a) == 1);
    rad_kv_allocator_destroy(a);
    newer.later = 1;
    CHECK(rad_kv_allocator_create(NULL, &newer.known, &a, &err) == RAD_E_INVAL);

    /* An older one: what it does not give is the default. */
    p = (rad_kv_allocator_params){.struct_size = offsetof(rad_kv_allocator_params, page_size),
                                  .num_pages = 4,
                                  .page_size = 99};
    CHECK_OK(rad_kv_allocator_create(NULL, &p, &a, &err));
    CHECK(rad_kv_page_size(a) == 1 && rad_kv_num_pages(a) == 4);
    rad_kv_allocator_destroy(a);
}

TEST(create_survives_every_allocation_failing)
{
    rad_kv_allocator_params params = {.struct_size = sizeof params, .num_pages = 100};
    rad_kv_allocator *a = NULL;
    for (long n = 0; !a; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = rad_kv_allocator_create(&env, &params, &a, NULL);
        CHECK(status == (a ? RAD_OK : RAD_E_NOMEM));
        rad_kv_allocator_destroy(a);
        CHECK(t.bytes == 0);
    }
}

/* A refusal said RAD_E_INVAL for half a dozen causes in any of the requests of a batch. */
TEST(extend_and_decode_say_why_they_refuse)
{
    rad_kv_allocator_params params = {.struct_size = sizeof params, .num_pages = 4, .page_size = 4};
    rad_kv_allocator *kv;
    CHECK_OK(rad_kv_allocator_create(NULL, &params, &kv, NULL));
    rad_slot slots[64], first[2] = {-1, -1};
    CHECK_OK(
        rad_kv_alloc_extend(kv, 2, (uint32_t[]){0, 0}, (uint32_t[]){4, 3}, first, slots, NULL));
    const struct {
        uint32_t prefix, len;
        rad_slot last;
        rad_status status;
        const char *extend, *decode; /* of request 1; decode asks for position len - 1 */
    } cases[] = {
        {3, 2, slots[6], RAD_E_INVAL, "request 1: seq_len 2 is less than its prefix_len 3", NULL},
        {0, 1, 5, RAD_E_INVAL, "request 1: last_loc is 5", "request 1: last_loc is 5"},
        {3, 4, -1, RAD_E_INVAL, "last_loc -1 is not the place of position 2", "position 2"},
        {3, 4, 5, RAD_E_INVAL, "last_loc 5 is not the place of position 2", "position 2"},
        {3, 4, 14, RAD_E_INVAL, "last_loc 14 of position 2 is in a page that is not", "position 2"},
        {3, 400, slots[6], RAD_FULL, "99 pages are wanted, 2 are free", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rad_error err = {0};
        uint32_t prefix[2] = {4, cases[i].prefix}, len[2] = {4, cases[i].len};
        rad_slot last[2] = {slots[3], cases[i].last}, out[8];
        rad_status status = rad_kv_alloc_extend(kv, 2, prefix, len, last, out, &err);
        CHECKF(status == cases[i].status && err.status == status &&
                   strstr(err.text, cases[i].extend),
               "%zu: %d: %s\n", i, status, err.text);
        if (!cases[i].decode) continue;
        err = (rad_error){0};
        len[0] = 5;
        CHECK(rad_kv_alloc_decode(kv, 2, len, last, out, &err) == RAD_E_INVAL);
        CHECKF(strstr(err.text, cases[i].decode), "%zu: %s\n", i, err.text);
    }
    rad_error err = {0};
    CHECK(rad_kv_alloc_decode(kv, 1, (uint32_t[]){0}, first, slots, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "request 0: seq_len 0"));
    uint32_t fives[3] = {5, 5, 5};
    rad_slot lasts[3] = {slots[3], slots[3], slots[3]};
    CHECK(rad_kv_alloc_decode(kv, 3, fives, lasts, slots, &err) == RAD_FULL);
    CHECK(strstr(err.text, "3 pages are wanted, 2 are free"));
    CHECK_OK(rad_kv_check(kv, NULL));
    rad_kv_allocator_destroy(kv);
}

TEST_MAIN()
