/* test_device.c - pools whose memory only their device reaches have the bytes of pools on the host,
 * whatever is asked of them. */
#include "test.h"

#include <radish/mla_kv_pool.h>

#include "gear/device_guarded.h"
#include "gear/device_sim.h"
#include "mem/host_kv_pool.h"

#include <errno.h>
#include <unistd.h>

enum { PAGES = 7, PAGE = 4, LAYERS = 2, HEADS = 3, DIM = 6, V_DIM = 4, COUNT = 5 };

static rad_token_to_kv_pool *make(rad_device *device, bool mla, uint32_t dtype)
{
    rad_token_to_kv_pool *pool = NULL;
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = PAGES,
                                     .page_size = PAGE,
                                     .num_layers = LAYERS,
                                     .num_kv_heads = HEADS,
                                     .head_dim = DIM,
                                     .v_head_dim = V_DIM,
                                     .dtype = dtype,
                                     .device = device};
    rad_mla_kv_pool_params m = {.struct_size = sizeof m,
                                .num_pages = PAGES,
                                .page_size = PAGE,
                                .num_layers = LAYERS,
                                .kv_lora_rank = DIM,
                                .rope_dim = V_DIM,
                                .dtype = dtype,
                                .device = device};
    CHECK_OK(mla ? rad_mla_kv_pool_create(NULL, &m, &pool, NULL)
                 : rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
    return pool;
}

static rad_host_kv_pool *make_host(rad_token_to_kv_pool *pool, uint32_t layout)
{
    rad_host_kv_pool *host = NULL;
    rad_host_kv_pool_params p = {.struct_size = sizeof p, .device_pool = pool, .layout = layout};
    CHECK_OK(rad_host_kv_pool_create(NULL, &p, &host, NULL));
    return host;
}

/* What the two pools hold, and what their host pools do, is the same. */
static void compare(rad_token_to_kv_pool *a, rad_token_to_kv_pool *b)
{
    static char one[4096], other[4096];
    size_t bytes = PAGE * rad_kv_pool_bytes_per_token(rad_kv_pool_params(a));
    CHECK(bytes <= sizeof one);
    for (rad_page page = 0; page <= PAGES; page++) {
        CHECK_OK(rad_kv_pool_get_page(a, page, one, bytes));
        CHECK_OK(rad_kv_pool_get_page(b, page, other, bytes));
        CHECK(memcmp(one, other, bytes) == 0);
    }
}

static void same_on_both(bool mla, uint32_t dtype, uint32_t layout)
{
    device_guarded gpu;
    device_guarded_init(&gpu);
    rad_token_to_kv_pool *pools[2] = {make(NULL, mla, dtype), make(&gpu.base, mla, dtype)};
    rad_host_kv_pool *hosts[2] = {make_host(pools[0], layout), make_host(pools[1], layout)};
    CHECK(gpu.bytes > 0 && gpu.pinned_bytes > 0);
    uint64_t rng = dtype + 10 * mla;
    rad_slot loc[COUNT] = {5, 9, 28, 31, 6};
    float k[COUNT * HEADS * DIM], v[COUNT * HEADS * DIM], back[2][2][COUNT * HEADS * DIM] = {{{0}}};
    char copy[2][COUNT * 1024];
    size_t copied = COUNT * rad_kv_pool_bytes_per_token(rad_kv_pool_params(pools[0]));
    for (size_t i = 0; i < RAD_COUNT(k); i++)
        k[i] = (float)(int64_t)test_random(&rng) * 0x1p-60f, v[i] = (float)i - 7;
    rad_page from[3] = {7, 2, 1}, there[3] = {1, 2, 9}, to[3] = {3, 4, 6};
    for (int i = 0; i < 2; i++) {
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            CHECK_OK(rad_kv_pool_set_kv_buffer(pools[i], layer, loc, COUNT, k, v));
            CHECK_OK(rad_kv_pool_get_kv(pools[i], layer, loc, COUNT, back[i][0], back[i][1]));
        }
        if (mla) CHECK_OK(rad_mla_kv_pool_set_kv_buffer(pools[i], 1, loc + 1, 2, v, k));
        CHECK_OK(rad_kv_pool_copy_slots(pools[i], 5, 13, 2));
        CHECK_OK(rad_kv_pool_get_cpu_copy(pools[i], loc, COUNT, copy[i], copied));
        rad_slot others[COUNT] = {20, 21, 22, 23, 16};
        CHECK_OK(rad_kv_pool_load_cpu_copy(pools[i], others, COUNT, copy[i], copied));
        CHECK_OK(host_kv_pool_backup(hosts[i], from, there, 3));
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            CHECK_OK(host_kv_pool_load_layer(hosts[i], layer, there, to, 3));
    }
    CHECK(memcmp(back[0], back[1], sizeof back[0]) == 0);
    CHECK(memcmp(copy[0], copy[1], copied) == 0);
    compare(pools[0], pools[1]);

    /* A call moves a plane of all pages, with one fence for a layer. */
    uint64_t planes = (dtype == RAD_I8 ? 2 : 1) * (mla ? 1 : 2), calls = gpu.calls;
    uint64_t fences = gpu.fences;
    CHECK_OK(host_kv_pool_load_layer(hosts[1], 0, there, to, 3));
    CHECK(gpu.calls - calls == planes && gpu.fences - fences == 1);
    for (int i = 0; i < 2; i++) {
        rad_host_kv_pool_destroy(hosts[i]);
        rad_token_to_kv_pool_destroy(pools[i]);
    }
    CHECK(gpu.bytes == 0 && gpu.pinned_bytes == 0);
}

TEST(a_pool_on_a_device_has_the_bytes_of_one_on_the_host)
{
    for (uint32_t dtype = RAD_F32; dtype <= RAD_I8; dtype++)
        for (uint32_t layout = 0; layout < 2; layout++)
            for (int mla = 0; mla < 2; mla++)
                same_on_both(mla, dtype, layout);
}

/* The guard guards: not even the kernel reads there for us. */
TEST(a_touch_of_the_devices_memory_is_a_fault)
{
    device_guarded gpu;
    device_guarded_init(&gpu);
    rad_token_to_kv_pool *pool = make(&gpu.base, false, RAD_F32);
    rad_kv_buffers b;
    int ends[2];
    CHECK_OK(rad_kv_pool_get_buffers(pool, 0, &b));
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], b.k, 1) == -1 && errno == EFAULT);
    close(ends[0]);
    close(ends[1]);
    rad_token_to_kv_pool_destroy(pool);
}

/* A row that is longer than what is converted at a time, in pieces of whole heads. */
TEST(long_rows_go_in_pieces)
{
    enum { MANY = 40, WIDE = 160 };
    static float k[MANY * WIDE], back[MANY * WIDE];
    device_guarded gpu;
    device_guarded_init(&gpu);
    for (uint32_t dtype = RAD_F32; dtype <= RAD_I8; dtype += RAD_I8) {
        rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                         .num_pages = 2,
                                         .num_layers = 1,
                                         .num_kv_heads = MANY,
                                         .head_dim = WIDE,
                                         .dtype = dtype,
                                         .device = &gpu.base};
        rad_token_to_kv_pool *pool = NULL;
        CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
        for (int i = 0; i < MANY * WIDE; i++)
            k[i] = (float)(i % 127 == 0 ? 127 : i % 127);
        rad_slot slot = 2;
        CHECK_OK(rad_kv_pool_set_kv_buffer(pool, 0, &slot, 1, k, k));
        CHECK_OK(rad_kv_pool_get_kv(pool, 0, &slot, 1, NULL, back));
        for (int i = 0; i < MANY * WIDE; i++)
            CHECK(back[i] == k[i]);
        rad_token_to_kv_pool_destroy(pool);
    }
    CHECK(gpu.bytes == 0);
}

static sim_fate all_fail(void *user, uint64_t copy)
{
    (void)user;
    (void)copy;
    return SIM_FAIL;
}

TEST(a_device_that_fails_says_so_and_one_without_functions_is_refused)
{
    device_sim sim;
    device_sim_init(&sim, NULL);
    sim.script = all_fail;
    rad_token_to_kv_pool *pool = make(&sim.base, false, RAD_BF16), *none = NULL;
    float k[HEADS * DIM] = {1}, v[HEADS * V_DIM] = {2};
    rad_slot slot = 3;
    CHECK(rad_kv_pool_set_kv_buffer(pool, 0, &slot, 1, k, v) == RAD_E_IO);
    CHECK(rad_kv_pool_get_kv(pool, 0, &slot, 1, k, v) == RAD_E_IO);
    CHECK(rad_kv_pool_copy_slots(pool, 1, 3, 2) == RAD_E_IO);
    CHECK(rad_kv_pool_populate(pool, 0, 0, 1) == RAD_E_UNSUPPORTED);
    rad_token_to_kv_pool_destroy(pool);

    rad_error err;
    rad_device_ops ops = *sim.base.ops;
    rad_device lame = {&ops};
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = 1,
                                     .num_layers = 1,
                                     .num_kv_heads = 1,
                                     .head_dim = 4096,
                                     .device = &lame};
    CHECK(rad_token_to_kv_pool_create(NULL, &p, &none, &err) == RAD_E_UNSUPPORTED && !none);
    ops.copy_rows = NULL;
    p.head_dim = 4;
    CHECK(rad_token_to_kv_pool_create(NULL, &p, &none, &err) == RAD_E_INVAL && !none);
    CHECK(strstr(err.text, "copy_rows"));
    ops = *sim.base.ops;
    ops.struct_size = 16;
    CHECK(rad_token_to_kv_pool_create(NULL, &p, &none, &err) == RAD_E_INVAL && !none);
}

TEST_MAIN()
