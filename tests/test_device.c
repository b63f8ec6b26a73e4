/* test_device.c - pools whose memory only their device reaches have the bytes of pools on the host,
 * whatever is asked of them. */
#include "device_pools.h"

#include "gear/device_guarded.h"
#include "gear/device_sim.h"

#include <errno.h>
#include <unistd.h>

static void same_on_both(bool mla, uint32_t dtype, uint32_t layout)
{
    device_guarded gpu;
    device_guarded_init(&gpu);
    device_pools p = device_pools_make(&gpu.base, mla, dtype, layout);
    CHECK(gpu.bytes > 0 && gpu.pinned_bytes > 0);
    device_pools_use(&p, mla, dtype + 10 * mla);

    /* A call moves a plane of all pages, with one fence for a layer. */
    rad_page there[3] = {1, 2, 9}, to[3] = {3, 4, 6};
    uint64_t planes = (dtype == RAD_I8 ? 2 : 1) * (mla ? 1 : 2), calls = gpu.calls;
    uint64_t fences = gpu.fences;
    CHECK_OK(host_kv_pool_load_layer(p.hosts[1], 0, there, to, 3));
    CHECK(gpu.calls - calls == planes && gpu.fences - fences == 1);
    device_pools_end(&p);
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
    rad_token_to_kv_pool *pool = device_pool_make(&gpu.base, false, RAD_F32);
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
    rad_token_to_kv_pool *pool = device_pool_make(&sim.base, false, RAD_BF16), *none = NULL;
    float k[POOL_HEADS * POOL_DIM] = {1}, v[POOL_HEADS * POOL_V_DIM] = {2};
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
