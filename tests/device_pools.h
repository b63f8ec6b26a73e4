/* device_pools.h - a pool on some device beside one on the host: both are asked for the same, and
 * have the same bytes. */
#ifndef TESTS_DEVICE_POOLS_H
#define TESTS_DEVICE_POOLS_H

#include "test.h"

#include <radish/mla_kv_pool.h>

#include "base/base.h"
#include "mem/host_kv_pool.h"

enum {
    POOL_PAGES = 7,
    POOL_PAGE = 4,
    POOL_LAYERS = 2,
    POOL_HEADS = 3,
    POOL_DIM = 6,
    POOL_V_DIM = 4,
    POOL_COUNT = 5
};

static inline rad_token_to_kv_pool *device_pool_make(rad_device *device, bool mla, uint32_t dtype)
{
    rad_token_to_kv_pool *pool = NULL;
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = POOL_PAGES,
                                     .page_size = POOL_PAGE,
                                     .num_layers = POOL_LAYERS,
                                     .num_kv_heads = POOL_HEADS,
                                     .head_dim = POOL_DIM,
                                     .v_head_dim = POOL_V_DIM,
                                     .dtype = dtype,
                                     .device = device};
    rad_mla_kv_pool_params m = {.struct_size = sizeof m,
                                .num_pages = POOL_PAGES,
                                .page_size = POOL_PAGE,
                                .num_layers = POOL_LAYERS,
                                .kv_lora_rank = POOL_DIM,
                                .rope_dim = POOL_V_DIM,
                                .dtype = dtype,
                                .device = device};
    CHECK_OK(mla ? rad_mla_kv_pool_create(NULL, &m, &pool, NULL)
                 : rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
    return pool;
}

/* The host's, then the device's. */
typedef struct device_pools {
    rad_token_to_kv_pool *pools[2];
    rad_host_kv_pool *hosts[2];
} device_pools;

static inline device_pools device_pools_make(rad_device *device, bool mla, uint32_t dtype,
                                             uint32_t layout)
{
    device_pools p = {
        .pools = {device_pool_make(NULL, mla, dtype), device_pool_make(device, mla, dtype)}};
    for (int i = 0; i < 2; i++) {
        rad_host_kv_pool_params host = {
            .struct_size = sizeof host, .device_pool = p.pools[i], .layout = layout};
        CHECK_OK(rad_host_kv_pool_create(NULL, &host, &p.hosts[i], NULL));
    }
    return p;
}

static inline void device_pools_end(device_pools *p)
{
    for (int i = 0; i < 2; i++) {
        rad_host_kv_pool_destroy(p->hosts[i]);
        rad_token_to_kv_pool_destroy(p->pools[i]);
    }
}

/* What the two pools hold is the same. */
static inline void device_pools_compare(const device_pools *p)
{
    static char one[4096], other[4096];
    size_t bytes = POOL_PAGE * rad_kv_pool_bytes_per_token(rad_kv_pool_params(p->pools[0]));
    CHECK(bytes <= sizeof one);
    for (rad_page page = 0; page <= POOL_PAGES; page++) {
        CHECK_OK(rad_kv_pool_get_page(p->pools[0], page, one, bytes));
        CHECK_OK(rad_kv_pool_get_page(p->pools[1], page, other, bytes));
        CHECK(memcmp(one, other, bytes) == 0);
    }
}

/* Fills both pools and moves what they hold, in every way there is; `seed` draws the numbers. The
 * host pools have pages 1, 2 and 9 afterwards. */
static inline void device_pools_use(const device_pools *p, bool mla, uint64_t seed)
{
    rad_slot loc[POOL_COUNT] = {5, 9, 28, 31, 6}, others[POOL_COUNT] = {20, 21, 22, 23, 16};
    float k[POOL_COUNT * POOL_HEADS * POOL_DIM], v[POOL_COUNT * POOL_HEADS * POOL_DIM];
    float back[2][2][POOL_COUNT * POOL_HEADS * POOL_DIM] = {{{0}}};
    char copy[2][POOL_COUNT * 1024];
    size_t copied = POOL_COUNT * rad_kv_pool_bytes_per_token(rad_kv_pool_params(p->pools[0]));
    for (size_t i = 0; i < RAD_COUNT(k); i++)
        k[i] = (float)(int64_t)test_random(&seed) * 0x1p-60f, v[i] = (float)i - 7;
    rad_page from[3] = {7, 2, 1}, there[3] = {1, 2, 9}, to[3] = {3, 4, 6};
    for (int i = 0; i < 2; i++) {
        rad_token_to_kv_pool *pool = p->pools[i];
        for (uint32_t layer = 0; layer < POOL_LAYERS; layer++) {
            CHECK_OK(rad_kv_pool_set_kv_buffer(pool, layer, loc, POOL_COUNT, k, v));
            CHECK_OK(rad_kv_pool_get_kv(pool, layer, loc, POOL_COUNT, back[i][0], back[i][1]));
        }
        if (mla) CHECK_OK(rad_mla_kv_pool_set_kv_buffer(pool, 1, loc + 1, 2, v, k));
        CHECK_OK(rad_kv_pool_copy_slots(pool, 5, 13, 2));
        CHECK_OK(rad_kv_pool_get_cpu_copy(pool, loc, POOL_COUNT, copy[i], copied));
        CHECK_OK(rad_kv_pool_load_cpu_copy(pool, others, POOL_COUNT, copy[i], copied));
        CHECK_OK(host_kv_pool_backup(p->hosts[i], from, there, 3));
        for (uint32_t layer = 0; layer < POOL_LAYERS; layer++)
            CHECK_OK(host_kv_pool_load_layer(p->hosts[i], layer, there, to, 3));
    }
    CHECK(memcmp(back[0], back[1], sizeof back[0]) == 0);
    CHECK(memcmp(copy[0], copy[1], copied) == 0);
    device_pools_compare(p);
}

#endif
