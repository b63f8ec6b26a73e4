/* mla_kv_pool.c - an MLA pool is a KV pool with one side, whose V is the head of K.
 *
 * So everything that moves slots works on it unseen, and this file only translates the
 * words: latent and rope are the two groups of a row. */
#include <radish/mla_kv_pool.h>

#include "base/params.h"
#include "mem/kv_pool.h"

rad_status rad_mla_kv_pool_create(const rad_env *env, const rad_mla_kv_pool_params *params,
                                  rad_token_to_kv_pool **out, rad_error *err)
{
    rad_mla_kv_pool_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "mla_kv_pool: no place for the result");
    *out = NULL;
    rad_status status = rad_params_read(&p, sizeof p, params, "mla_kv_pool", err);
    if (status) return status;
    if (!p.kv_lora_rank || p.rope_dim > UINT32_MAX - p.kv_lora_rank)
        return rad_fail(err, RAD_E_INVAL, "mla_kv_pool: a row of %u latent and %u rope numbers",
                        p.kv_lora_rank, p.rope_dim);
    const rad_token_to_kv_pool_params general = {.struct_size = sizeof general,
                                                 .num_pages = p.num_pages,
                                                 .page_size = p.page_size,
                                                 .num_layers = p.num_layers,
                                                 .num_kv_heads = 1,
                                                 .head_dim = p.kv_lora_rank + p.rope_dim,
                                                 .v_head_dim = p.kv_lora_rank,
                                                 .dtype = p.dtype,
                                                 .kind = RAD_KV_MLA,
                                                 .start_layer = p.start_layer,
                                                 .k_scales = p.scales,
                                                 .buffers = p.buffers,
                                                 .device = p.device};
    return rad_token_to_kv_pool_create(env, &general, out, err);
}

rad_status rad_mla_kv_pool_set_kv_buffer(rad_token_to_kv_pool *pool, uint32_t layer,
                                         const rad_slot *loc, uint32_t count, const float *latent,
                                         const float *rope)
{
    uint32_t index = kv_layer_index(pool, layer);
    RAD_ASSERT_ENV(&pool->env, pool->params.kind == RAD_KV_MLA);
    RAD_ASSERT_ENV(&pool->env, index < pool->params.num_layers);
    kv_plane plane = kv_plane_of(pool, index, 0);
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < count && !status; i++) {
        RAD_ASSERT_ENV(&pool->env, kv_is_slot(pool, loc[i]));
        if (latent)
            status =
                kv_plane_store(pool, &plane, loc[i], 0, 1, latent + (size_t)i * plane.side->dim);
        if (!status && rope && plane.side->groups == 2)
            status =
                kv_plane_store(pool, &plane, loc[i], 1, 1, rope + (size_t)i * plane.side->last_dim);
    }
    return status;
}
