/* radix_attention.c - the layer: K/V of the new tokens into the pool, then attention.
 *
 * The checks live here, once, so that backends may rely on them: a layer that does not
 * fit the pool, or a batch whose rows cannot hold its requests, is refused in words
 * before anything is written. A model has many layers and one batch, so it asks for the checks once
 * a step and runs its layers without. */
#include "attn/attn_common.h"

#include <math.h>

rad_status radix_attention_check(const radix_attention *layer, const rad_token_to_kv_pool *kv,
                                 rad_error *err)
{
    const rad_token_to_kv_pool_params *pool = rad_kv_pool_params(kv);
    uint32_t id = layer->layer_id;
    if (id < pool->start_layer || id - pool->start_layer >= pool->num_layers)
        return rad_fail(err, RAD_E_INVAL, "attention: layer %u, the pool has %u from %u on", id,
                        pool->num_layers, pool->start_layer);
    if (!layer->num_heads || layer->num_kv_heads != pool->num_kv_heads ||
        layer->num_heads % layer->num_kv_heads)
        return rad_fail(err, RAD_E_INVAL,
                        "attention: layer %u has %u heads and %u KV heads, the pool %u KV heads",
                        id, layer->num_heads, layer->num_kv_heads, pool->num_kv_heads);
    if (layer->head_dim != pool->head_dim || attn_v_dim(layer) != pool->v_head_dim)
        return rad_fail(err, RAD_E_INVAL,
                        "attention: layer %u has heads of %u and %u, the pool of %u and %u", id,
                        layer->head_dim, attn_v_dim(layer), pool->head_dim, pool->v_head_dim);
    if (layer->head_dim > ATTN_MOST_DIM || attn_v_dim(layer) > ATTN_MOST_DIM)
        return rad_fail(err, RAD_E_UNSUPPORTED, "attention: heads of %u and %u, at most %d",
                        layer->head_dim, attn_v_dim(layer), ATTN_MOST_DIM);
    if (!isfinite(layer->scaling) || !isfinite(layer->logit_cap) || layer->logit_cap < 0)
        return rad_fail(err, RAD_E_INVAL, "attention: layer %u with scaling %g and logit cap %g",
                        id, (double)layer->scaling, (double)layer->logit_cap);
    for (uint32_t h = 0; layer->sinks && h < layer->num_heads; h++)
        if (isnan(layer->sinks[h]))
            return rad_fail(err, RAD_E_INVAL, "attention: layer %u: the sink of head %u is %g", id,
                            h, (double)layer->sinks[h]);
    if (layer->sliding_window == 0 || layer->sliding_window < -1)
        return rad_fail(err, RAD_E_INVAL, "attention: layer %u with a window of %d tokens", id,
                        layer->sliding_window);
    return RAD_OK;
}

static rad_status check_batch(const forward_batch *batch, rad_error *err)
{
    uint32_t row_tokens = rad_req_to_token_row_tokens(batch->req_to_token_pool);
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < batch->num_reqs; i++) {
        uint32_t prefix = batch->extend_prefix_lens[i], fresh = batch->extend_seq_lens[i];
        if (!fresh || batch->seq_lens[i] != (uint64_t)prefix + fresh ||
            batch->seq_lens[i] > row_tokens)
            return rad_fail(
                err, RAD_E_INVAL,
                "attention: request %u has %u tokens, %u old and %u new, in a row of %u", i,
                batch->seq_lens[i], prefix, fresh, row_tokens);
        if (!rad_req_to_token_row(batch->req_to_token_pool, batch->req_pool_indices[i]))
            return rad_fail(err, RAD_E_INVAL, "attention: request %u has no row %u", i,
                            batch->req_pool_indices[i]);
        if (batch->extend_start_loc[i] != tokens)
            return rad_fail(err, RAD_E_INVAL, "attention: request %u starts at token %u, not %u", i,
                            batch->extend_start_loc[i], (unsigned)tokens);
        tokens += fresh;
    }
    if (tokens != batch->num_tokens)
        return rad_fail(err, RAD_E_INVAL, "attention: %u tokens in the batch, %llu in its requests",
                        batch->num_tokens, (unsigned long long)tokens);
    return RAD_OK;
}

/* A request's groups must follow each other. More requests than the table holds: backends
 * do without groups, and so does this. */
rad_status forward_batch_check_groups(const forward_batch *batch, rad_error *err)
{
    enum { MOST_REQS = ATTN_MOST_GROUP_REQS };
    if (batch->num_groups == 0 || batch->num_reqs > MOST_REQS) return RAD_OK;
    if (!batch->groups || !batch->group_reqs)
        return rad_fail(err, RAD_E_INVAL, "attention: %u groups that are not given",
                        batch->num_groups);
    bool listed[MOST_REQS] = {false};
    uint32_t done[MOST_REQS] = {0};
    for (uint32_t i = 0; i < batch->num_reqs; i++) {
        uint32_t request = batch->group_reqs[i];
        if (request >= batch->num_reqs || listed[request])
            return rad_fail(err, RAD_E_INVAL, "attention: group_reqs names request %u %s", request,
                            request < batch->num_reqs ? "twice" : "that is not in the batch");
        listed[request] = true;
    }
    for (uint32_t i = 0; i < batch->num_groups; i++) {
        const forward_group *g = &batch->groups[i];
        if (g->begin >= g->end || g->begin % ATTN_BLOCK || g->end % ATTN_BLOCK || g->count < 2 ||
            g->first > batch->num_reqs || g->count > batch->num_reqs - g->first)
            return rad_fail(err, RAD_E_INVAL,
                            "attention: group %u is positions %u to %u of %u requests from %u on",
                            i, g->begin, g->end, g->count, g->first);
        for (uint32_t m = 0; m < g->count; m++) {
            uint32_t request = batch->group_reqs[g->first + m];
            if (g->begin < done[request] || g->end > batch->extend_prefix_lens[request])
                return rad_fail(err, RAD_E_INVAL,
                                "attention: group %u, positions %u to %u, of request %u, which has "
                                "%u old ones and groups up to %u",
                                i, g->begin, g->end, request, batch->extend_prefix_lens[request],
                                done[request]);
            done[request] = g->end;
        }
    }
    return RAD_OK;
}

rad_status radix_attention_forward(const radix_attention *layer, const attn_backend *backend,
                                   const forward_batch *batch, const float *q, const float *k,
                                   const float *v, int save_kv_cache, float *out,
                                   compute_pool *pool, rad_error *err)
{
    const rad_token_to_kv_pool *kv = batch->token_to_kv_pool;
    bool mla = rad_kv_pool_params(kv)->kind == RAD_KV_MLA;
    rad_status status = radix_attention_check(layer, kv, err);
    if (status == RAD_OK) status = check_batch(batch, err);
    if (status == RAD_OK) status = forward_batch_check_groups(batch, err);
    if (status != RAD_OK) return status;
    if (!k != !v && !(mla && k))
        return rad_fail(err, RAD_E_INVAL, "attention: layer %u got one of K and V",
                        layer->layer_id);
    return radix_attention_run(layer, backend, batch, q, k, v, save_kv_cache, out, pool, err);
}

rad_status radix_attention_run(const radix_attention *layer, const attn_backend *backend,
                               const forward_batch *batch, const float *q, const float *k,
                               const float *v, int save_kv_cache, float *out, compute_pool *pool,
                               rad_error *err)
{
    rad_token_to_kv_pool *kv = batch->token_to_kv_pool;
    rad_status status = RAD_OK;
    if (batch->num_tokens == 0) return RAD_OK;
    if (save_kv_cache && k)
        status = rad_kv_pool_set_kv_buffer(kv, layer->layer_id, batch->out_cache_loc,
                                           batch->num_tokens, k, v);
    if (status != RAD_OK)
        return rad_fail(err, status, "attention: layer %u: K and V could not be stored",
                        layer->layer_id);
    backend->forward(backend, layer, batch, q, out, pool);
    return RAD_OK;
}
