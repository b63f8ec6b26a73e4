/* runner.c - KV pools of runners whose layers are all alike. */
#include "model/runner.h"

#include <radish/mla_kv_pool.h>

static rad_token_to_kv_pool_params kv_params(const runner_info *info, uint32_t num_layers,
                                             bool window)
{
    const bool own = window && runner_layers_differ(info);
    return (rad_token_to_kv_pool_params){
        .struct_size = sizeof(rad_token_to_kv_pool_params),
        .num_layers = num_layers,
        .num_kv_heads = own ? info->window_kv_heads : info->num_kv_heads,
        .head_dim = own ? info->window_head_dim : info->head_dim,
        .v_head_dim = own ? info->window_v_head_dim : info->v_head_dim,
        .kind = info->kv_lora_rank ? RAD_KV_MLA : RAD_KV_MHA,
        .dtype = info->kv_dtype};
}

static size_t token_bytes(const runner_info *info, uint32_t num_layers, bool window)
{
    const rad_token_to_kv_pool_params p = kv_params(info, num_layers, window);
    return num_layers ? rad_kv_pool_bytes_per_token(&p) : 0;
}

runner_info runner_with_token_bytes(runner_info info)
{
    info.full_token_bytes = token_bytes(&info, info.num_layers - info.window_layers, false);
    info.window_token_bytes = token_bytes(&info, info.window_layers, true);
    return info;
}

rad_status runner_make_pool(const runner_info *info, rad_device *device, const rad_env *env,
                            const runner_pool_params *params, rad_token_to_kv_pool **out,
                            rad_error *err)
{
    uint32_t num_layers = info->num_layers;
    if (params->layers == RUNNER_FULL_LAYERS) num_layers -= info->window_layers;
    if (params->layers == RUNNER_WINDOW_LAYERS) num_layers = info->window_layers;
    *out = NULL;
    if (!num_layers) return RAD_OK;
    if (params->layers == RUNNER_ALL_LAYERS && runner_layers_differ(info))
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "model: layers with a window have heads of %u and others of %u: no pool "
                        "holds K and V of both",
                        info->window_head_dim, info->head_dim);
    if (info->kv_lora_rank) {
        const rad_mla_kv_pool_params latent = {.struct_size = sizeof latent,
                                               .num_pages = params->num_pages,
                                               .page_size = params->page_size,
                                               .num_layers = num_layers,
                                               .kv_lora_rank = info->kv_lora_rank,
                                               .rope_dim = info->head_dim - info->kv_lora_rank,
                                               .dtype = info->kv_dtype,
                                               .device = device};
        return rad_mla_kv_pool_create(env, &latent, out, err);
    }
    rad_token_to_kv_pool_params p =
        kv_params(info, num_layers, params->layers == RUNNER_WINDOW_LAYERS);
    p.num_pages = params->num_pages;
    p.page_size = params->page_size;
    p.device = device;
    return rad_token_to_kv_pool_create(env, &p, out, err);
}

rad_status runner_make_state_pool(const runner_info *info, rad_device *device, const rad_env *env,
                                  uint32_t num_states, rad_state_pool **out, rad_error *err)
{
    const rad_state_pool_params params = {.struct_size = sizeof params,
                                          .state_bytes = info->state_bytes,
                                          .num_states = num_states,
                                          .device = device};
    return rad_state_pool_create(env, &params, out, err);
}
