/* token_to_kv_pool.c - K and V of every layer, one buffer per layer and side.
 *
 *     layer 0:  K | page 0 (dummy) | page 1 | page 2 | ...     V | ... likewise
 *               page = page_size tokens, token = num_kv_heads x head_dim numbers
 *
 * One buffer per layer and side rather than one for all: attention of a layer walks
 * one compact block, and no single allocation has to be as large as the whole pool.
 * Numbers are rounded once, when they are stored; fresh K/V are read back from here
 * like cached ones, so that a hit and a computation see the same bits. */
#include <radish/token_to_kv_pool.h>

#include "base/params.h"
#include "device/device.h"

struct rad_token_to_kv_pool {
    rad_env env;
    device_cpu device;
    rad_token_to_kv_pool_params params;
    size_t num_slots; /* with the dummy page */
    size_t k_token;   /* bytes of one token in one layer */
    size_t v_token;
    void **k; /* [num_layers] */
    void **v;
};

static size_t dtype_bytes(uint32_t dtype)
{
    return dtype == RAD_F32 ? 4 : 2;
}

/* Bytes of one token in one layer, 0 when that does not fit. */
static size_t token_bytes(const rad_token_to_kv_pool_params *p, uint32_t dim)
{
    return rad_mul(rad_mul(p->num_kv_heads, dim), dtype_bytes(p->dtype));
}

size_t rad_kv_pool_bytes_per_token(const rad_token_to_kv_pool_params *p)
{
    size_t k = token_bytes(p, p->head_dim);
    size_t v = token_bytes(p, p->v_head_dim ? p->v_head_dim : p->head_dim);
    return k + v < k ? 0 : rad_mul(p->num_layers, k + v);
}

rad_status rad_token_to_kv_pool_create(const rad_env *env,
                                       const rad_token_to_kv_pool_params *params,
                                       rad_token_to_kv_pool **out, rad_error *err)
{
    rad_token_to_kv_pool_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "token_to_kv_pool: no place for the result");
    *out = NULL;
    rad_status status = rad_params_read(&p, sizeof p, params, "token_to_kv_pool", err);
    if (status) return status;
    p.struct_size = sizeof p;
    if (!p.page_size) p.page_size = 1;
    if (!p.v_head_dim) p.v_head_dim = p.head_dim;
    if (!p.num_pages || !p.num_layers || !p.num_kv_heads || !p.head_dim)
        return rad_fail(err, RAD_E_INVAL,
                        "token_to_kv_pool: %u pages, %u layers, %u KV heads of %u: none may be 0",
                        p.num_pages, p.num_layers, p.num_kv_heads, p.head_dim);
    if (p.dtype != RAD_F32 && p.dtype != RAD_BF16)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "token_to_kv_pool: dtype %u is neither f32 nor bf16", p.dtype);
    if (((uint64_t)p.num_pages + 1) * p.page_size > INT32_MAX)
        return rad_fail(err, RAD_E_LIMIT,
                        "token_to_kv_pool: %u pages of %u tokens do not fit 31-bit slots",
                        p.num_pages, p.page_size);

    rad_env full = rad_env_or_default(env);
    rad_token_to_kv_pool *pool = rad_alloc(&full, sizeof *pool);
    if (!pool) goto nomem;
    pool->env = full;
    device_cpu_init(&pool->device, &full);
    pool->params = p;
    pool->num_slots = ((size_t)p.num_pages + 1) * p.page_size;
    pool->k_token = token_bytes(&p, p.head_dim);
    pool->v_token = token_bytes(&p, p.v_head_dim);
    pool->k = rad_alloc(&full, (size_t)p.num_layers * sizeof *pool->k);
    pool->v = rad_alloc(&full, (size_t)p.num_layers * sizeof *pool->v);
    if (!pool->k || !pool->v) goto nomem;
    for (uint32_t layer = 0; layer < p.num_layers; layer++) {
        pool->k[layer] = device_alloc(&pool->device.base, rad_mul(pool->num_slots, pool->k_token));
        pool->v[layer] = device_alloc(&pool->device.base, rad_mul(pool->num_slots, pool->v_token));
        if (!pool->k[layer] || !pool->v[layer]) goto nomem;
    }
    *out = pool;
    return RAD_OK;
nomem:
    rad_token_to_kv_pool_destroy(pool);
    return rad_fail(err, RAD_E_NOMEM,
                    "token_to_kv_pool: no memory for %u pages of %u tokens at %zu bytes a token",
                    p.num_pages, p.page_size, rad_kv_pool_bytes_per_token(&p));
}

void rad_token_to_kv_pool_destroy(rad_token_to_kv_pool *pool)
{
    if (!pool) return;
    rad_env env = pool->env;
    uint32_t num_layers = pool->params.num_layers;
    for (uint32_t layer = 0; layer < num_layers; layer++) {
        if (pool->k)
            device_free(&pool->device.base, pool->k[layer], pool->num_slots * pool->k_token);
        if (pool->v)
            device_free(&pool->device.base, pool->v[layer], pool->num_slots * pool->v_token);
    }
    rad_free(&env, pool->k, (size_t)num_layers * sizeof *pool->k);
    rad_free(&env, pool->v, (size_t)num_layers * sizeof *pool->v);
    rad_free(&env, pool, sizeof *pool);
}

const rad_token_to_kv_pool_params *rad_kv_pool_params(const rad_token_to_kv_pool *pool)
{
    return &pool->params;
}

static void wait_layer(rad_token_to_kv_pool *pool, uint32_t layer)
{
    if (pool->params.wait_layer) pool->params.wait_layer(pool->params.wait_user, layer);
}

void *rad_kv_pool_key_buffer(rad_token_to_kv_pool *pool, uint32_t layer)
{
    RAD_ASSERT_ENV(&pool->env, layer < pool->params.num_layers);
    wait_layer(pool, layer);
    return pool->k[layer];
}

void *rad_kv_pool_value_buffer(rad_token_to_kv_pool *pool, uint32_t layer)
{
    RAD_ASSERT_ENV(&pool->env, layer < pool->params.num_layers);
    wait_layer(pool, layer);
    return pool->v[layer];
}

/* Round to nearest even; NaN stays NaN (its payload is cut, so one bit is set). No
 * branches, so that the compiler turns it into vectors. */
__attribute__((optimize("O3"))) static void to_bf16(uint16_t *restrict dst,
                                                    const float *restrict src, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, src + i, sizeof bits);
        uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
        uint32_t nan = (bits & 0x7fffffff) > 0x7f800000 ? 0xffffffffu : 0;
        dst[i] = (uint16_t)(((rounded & ~nan) | ((bits | 0x400000) & nan)) >> 16);
    }
}

static void store(void *buffer, size_t token, uint32_t dtype, rad_slot slot, const float *src)
{
    char *dst = (char *)buffer + (size_t)slot * token;
    if (dtype == RAD_F32)
        memcpy(dst, src, token);
    else
        to_bf16((uint16_t *)(void *)dst, src, token / 2);
}

void rad_kv_pool_set_kv_buffer(rad_token_to_kv_pool *pool, uint32_t layer, const rad_slot *loc,
                               uint32_t count, const float *k, const float *v)
{
    const rad_token_to_kv_pool_params *p = &pool->params;
    size_t k_numbers = (size_t)p->num_kv_heads * p->head_dim;
    size_t v_numbers = (size_t)p->num_kv_heads * p->v_head_dim;
    RAD_ASSERT_ENV(&pool->env, layer < p->num_layers);
    for (uint32_t i = 0; i < count; i++) {
        RAD_ASSERT_ENV(&pool->env, loc[i] >= 0 && (size_t)loc[i] < pool->num_slots);
        store(pool->k[layer], pool->k_token, p->dtype, loc[i], k + i * k_numbers);
        store(pool->v[layer], pool->v_token, p->dtype, loc[i], v + i * v_numbers);
    }
}

/* Copies one page between the pool and `flat`, in either direction. */
static rad_status copy_page(rad_token_to_kv_pool *pool, rad_page page, char *flat, size_t bytes,
                            bool into_pool)
{
    const rad_token_to_kv_pool_params *p = &pool->params;
    if (page < 0 || (uint32_t)page > p->num_pages ||
        bytes != rad_mul(p->page_size, rad_kv_pool_bytes_per_token(p)))
        return RAD_E_INVAL;
    for (uint32_t layer = 0; layer < p->num_layers; layer++) {
        if (!into_pool) wait_layer(pool, layer);
        for (int side = 0; side < 2; side++) {
            size_t page_bytes = (side ? pool->v_token : pool->k_token) * p->page_size;
            char *here = (char *)(side ? pool->v : pool->k)[layer] + (size_t)page * page_bytes;
            rad_status status = device_copy(&pool->device.base, into_pool ? here : flat,
                                            into_pool ? flat : here, page_bytes);
            if (status) return status;
            flat += page_bytes;
        }
    }
    return RAD_OK;
}

rad_status rad_kv_pool_get_page(rad_token_to_kv_pool *pool, rad_page page, void *dst, size_t bytes)
{
    return copy_page(pool, page, dst, bytes, false);
}

rad_status rad_kv_pool_set_page(rad_token_to_kv_pool *pool, rad_page page, const void *src,
                                size_t bytes)
{
    return copy_page(pool, page, (char *)(uintptr_t)src, bytes, true); /* only read */
}
