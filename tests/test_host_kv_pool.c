/* test_host_kv_pool.c - pages that went to the host and came back are the same bytes. */
#include "test.h"

#include <radish/host_kv_pool.h>
#include <radish/mla_kv_pool.h>
#include <radish/storage.h>

#include "gear/device_sim.h"
#include "mem/host_kv_pool.h"

enum { PAGES = 6, LAYERS = 3, FIRST_LAYER = 2 };

static rad_token_to_kv_pool *make_device(bool mla, uint32_t dtype, uint32_t page_size)
{
    rad_token_to_kv_pool *pool = NULL;
    if (mla) {
        rad_mla_kv_pool_params p = {.struct_size = sizeof p,
                                    .num_pages = PAGES,
                                    .page_size = page_size,
                                    .num_layers = LAYERS,
                                    .start_layer = FIRST_LAYER,
                                    .kv_lora_rank = 10,
                                    .rope_dim = 6,
                                    .dtype = dtype};
        CHECK_OK(rad_mla_kv_pool_create(NULL, &p, &pool, NULL));
        return pool;
    }
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = PAGES,
                                     .page_size = page_size,
                                     .num_layers = LAYERS,
                                     .num_kv_heads = 2,
                                     .head_dim = 6,
                                     .v_head_dim = 4,
                                     .dtype = dtype,
                                     .start_layer = FIRST_LAYER};
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
    return pool;
}

static rad_host_kv_pool *make_host(rad_token_to_kv_pool *pool, uint32_t layout, double ratio)
{
    rad_host_kv_pool *host = NULL;
    rad_host_kv_pool_params p = {
        .struct_size = sizeof p, .device_pool = pool, .layout = layout, .ratio = ratio};
    CHECK_OK(rad_host_kv_pool_create(NULL, &p, &host, NULL));
    return host;
}

static size_t page_bytes(rad_token_to_kv_pool *pool)
{
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(pool);
    return rad_kv_pool_bytes_per_token(p) * p->page_size;
}

static void fill_page(rad_token_to_kv_pool *pool, rad_page page, uint8_t *bytes, uint64_t *rng)
{
    size_t n = page_bytes(pool);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)test_random(rng);
    CHECK_OK(rad_kv_pool_set_page(pool, page, bytes, n));
}

/* Whatever the shape: out, wiped, back layer by layer to other pages, in runs or not. */
static void round_trip(bool mla, uint32_t dtype, uint32_t page_size, uint32_t layout)
{
    uint64_t rng = dtype * 64 + page_size * 4 + layout * 2 + mla;
    rad_token_to_kv_pool *pool = make_device(mla, dtype, page_size);
    rad_host_kv_pool *host = make_host(pool, layout, 1.5);
    size_t bytes = page_bytes(pool);
    uint8_t *want = calloc(PAGES, bytes), *got = calloc(1, bytes), *zero = calloc(1, bytes);
    rad_page from[4] = {2, 3, 4, 1}, to[4] = {5, 6, 1, 3}, there[4];
    CHECK(host_kv_pool_num_pages(host) == PAGES * 3 / 2);
    CHECK(host_kv_pool_page_bytes(host) == bytes);
    CHECK_OK(rad_kv_alloc(host_kv_pool_allocator(host), there, 4));
    for (int i = 0; i < 4; i++)
        fill_page(pool, from[i], want + i * bytes, &rng);
    CHECK_OK(host_kv_pool_backup(host, from, there, 4));
    for (rad_page p = 1; p <= PAGES; p++)
        CHECK_OK(rad_kv_pool_set_page(pool, p, zero, bytes));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(host_kv_pool_get_page(host, there[i], got, bytes));
        CHECK(memcmp(got, want + i * bytes, bytes) == 0);
        char *record = host_kv_pool_record(host, there[i]);
        CHECK(!record == (layout == RAD_HOST_LAYER_FIRST));
        if (record) CHECK(memcmp(record + RAD_STORAGE_HEADER_BYTES, got, bytes) == 0);
    }
    for (uint32_t layer = FIRST_LAYER; layer < FIRST_LAYER + LAYERS; layer++)
        CHECK_OK(host_kv_pool_load_layer(host, layer, there, to, 4));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(rad_kv_pool_get_page(pool, to[i], got, bytes));
        CHECK(memcmp(got, want + i * bytes, bytes) == 0);
    }
    CHECK_OK(rad_kv_pool_get_page(pool, 4, got, bytes)); /* nobody's target */
    CHECK(memcmp(got, zero, bytes) == 0);

    CHECK_OK(host_kv_pool_set_page(host, there[0], want + bytes, bytes));
    CHECK_OK(host_kv_pool_get_page(host, there[0], got, bytes));
    CHECK(memcmp(got, want + bytes, bytes) == 0);
    free(want);
    free(got);
    free(zero);
    rad_host_kv_pool_destroy(host);
    rad_token_to_kv_pool_destroy(pool);
}

TEST(pages_of_every_shape_come_back_as_they_went)
{
    for (int mla = 0; mla < 2; mla++)
        for (uint32_t dtype = RAD_F32; dtype <= RAD_I8; dtype++)
            for (uint32_t page_size = 1; page_size <= 16; page_size += page_size == 1 ? 2 : 13)
                for (uint32_t layout = 0; layout < 2; layout++)
                    round_trip(mla, dtype, page_size, layout);
}

TEST(memory_with_gaps_between_tokens_is_copied_without_them)
{
    enum { SLOTS = (PAGES + 1) * 2, STEP = 32 };
    static float memory[SLOTS * STEP];
    rad_kv_buffers buffer = {.k = memory,
                             .v = memory + 8,
                             .k_stride = STEP * sizeof(float),
                             .v_stride = STEP * sizeof(float)};
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = PAGES,
                                     .page_size = 2,
                                     .num_layers = 1,
                                     .num_kv_heads = 1,
                                     .head_dim = 8,
                                     .buffers = &buffer};
    rad_token_to_kv_pool *pool = NULL;
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
    for (int i = 0; i < SLOTS * STEP; i++)
        memory[i] = (float)i;
    for (uint32_t layout = 0; layout < 2; layout++) {
        rad_host_kv_pool *host = make_host(pool, layout, 1);
        rad_page from = 3, to = 5, there = 2;
        float out[2 * 2 * 8], back[2 * 2 * 8];
        CHECK_OK(host_kv_pool_backup(host, &from, &there, 1));
        CHECK_OK(host_kv_pool_load_layer(host, 0, &there, &to, 1));
        CHECK_OK(rad_kv_pool_get_page(pool, 3, out, sizeof out));
        CHECK_OK(rad_kv_pool_get_page(pool, 5, back, sizeof back));
        CHECK(memcmp(out, back, sizeof out) == 0);
        CHECK((int)memory[(5 * 2 + 1) * STEP + 16] == (5 * 2 + 1) * STEP + 16); /* the gap */
        rad_host_kv_pool_destroy(host);
    }
    rad_token_to_kv_pool_destroy(pool);
}

TEST(misuse_is_refused)
{
    rad_error err = {0};
    rad_token_to_kv_pool *pool = make_device(false, RAD_BF16, 2);
    rad_host_kv_pool *host = NULL;
    rad_host_kv_pool_params p = {.struct_size = sizeof p, .device_pool = pool, .bytes = 10};
    CHECK(rad_host_kv_pool_create(NULL, &p, &host, &err) == RAD_E_LIMIT && !host && *err.text);
    p.bytes = 0;
    p.ratio = -1;
    CHECK(rad_host_kv_pool_create(NULL, &p, &host, &err) == RAD_E_INVAL && !host);
    p.ratio = 1e30;
    CHECK(rad_host_kv_pool_create(NULL, &p, &host, &err) == RAD_E_LIMIT && !host);
    p.device_pool = NULL;
    CHECK(rad_host_kv_pool_create(NULL, &p, &host, &err) == RAD_E_INVAL && !host);
    p = (rad_host_kv_pool_params){
        .struct_size = sizeof p, .device_pool = pool, .bytes = 5 * page_bytes(pool)};
    CHECK_OK(rad_host_kv_pool_create(NULL, &p, &host, &err));
    CHECK(host_kv_pool_num_pages(host) == 4);

    rad_page page = 0, bad[2] = {1, 5}, good[2] = {1, 2}, outside = 0;
    CHECK(host_kv_pool_backup(host, good, bad, 2) == RAD_E_INVAL);
    CHECK(host_kv_pool_load_layer(host, FIRST_LAYER, bad, good, 2) == RAD_E_INVAL);
    CHECK(host_kv_pool_load_layer(host, FIRST_LAYER - 1, good, good, 2) == RAD_E_INVAL);
    CHECK(host_kv_pool_load_layer(host, FIRST_LAYER + LAYERS, good, good, 2) == RAD_E_INVAL);
    CHECK(host_kv_pool_backup(host, &outside, good, 1) == RAD_E_INVAL);
    CHECK(host_kv_pool_get_page(host, 1, bad, sizeof bad) == RAD_E_INVAL);

    rad_kv_allocator *ids = host_kv_pool_allocator(host);
    CHECK_OK(rad_kv_alloc(ids, &page, 1));
    CHECK_OK(rad_kv_free(ids, &page, 1, NULL));
    CHECK(rad_kv_free(ids, &page, 1, &err) == RAD_E_STATE);
    rad_host_kv_pool_destroy(host);
    rad_host_kv_pool_destroy(NULL);
    rad_token_to_kv_pool_destroy(pool);
}

TEST(locked_memory_is_locked_or_refused_in_words)
{
    rad_error err = {0};
    rad_token_to_kv_pool *pool = make_device(false, RAD_F32, 2);
    rad_host_kv_pool *host = NULL;
    rad_host_kv_pool_params p = {.struct_size = sizeof p, .device_pool = pool, .pinned = 1};
    rad_status status = rad_host_kv_pool_create(NULL, &p, &host, &err);
    CHECK(status == RAD_OK || (status == RAD_E_LIMIT && !host && strstr(err.text, "locked")));
    rad_host_kv_pool_destroy(host);
    rad_token_to_kv_pool_destroy(pool);
}

static sim_fate third_fails(void *user, uint64_t copy)
{
    return copy == *(uint64_t *)user ? SIM_TORN : SIM_COPY;
}

TEST(a_copy_that_fails_says_so_wherever_it_is)
{
    rad_token_to_kv_pool *pool = make_device(false, RAD_I8, 2);
    for (uint32_t layout = 0; layout < 2; layout++) {
        device_sim sim;
        device_sim_init(&sim, NULL);
        rad_host_kv_pool_params p = {.struct_size = sizeof p,
                                     .device_pool = pool,
                                     .ratio = 1,
                                     .layout = layout,
                                     .device = &sim.base};
        rad_host_kv_pool *host = NULL;
        CHECK_OK(rad_host_kv_pool_create(NULL, &p, &host, NULL));
        rad_page pages[2] = {2, 5};
        uint64_t at = 0, copies = 0;
        sim.script = third_fails;
        sim.user = &at;
        for (rad_status status = RAD_E_IO; status; at++) {
            atomic_store(&sim.copies, 0);
            status = host_kv_pool_backup(host, pages, pages, 2);
            copies = atomic_load(&sim.copies);
            CHECK(status == (copies > at ? RAD_E_IO : RAD_OK));
        }
        CHECK(copies == LAYERS * 4 * 2);
        rad_host_kv_pool_destroy(host);
    }
    rad_token_to_kv_pool_destroy(pool);
}

TEST(create_survives_every_allocation_failing)
{
    rad_token_to_kv_pool *pool = make_device(false, RAD_F32, 2);
    rad_host_kv_pool_params p = {.struct_size = sizeof p, .device_pool = pool};
    rad_host_kv_pool *host = NULL;
    for (long n = 0; !host; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = rad_host_kv_pool_create(&env, &p, &host, NULL);
        CHECK(status == (host ? RAD_OK : RAD_E_NOMEM));
        rad_host_kv_pool_destroy(host);
        CHECK(t.bytes == 0);
    }
    rad_token_to_kv_pool_destroy(pool);
}

TEST_MAIN()
