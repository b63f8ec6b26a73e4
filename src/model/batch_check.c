/* batch_check.c - see batch_check.h. Nothing of a batch is believed: every sum is
 * taken in 64 bits and compared before an index is formed from it. */
#include "model/batch_check.h"

#include "attn/attn_backend.h"

#include <stdbool.h>

/* `layers`: that the runner wants of this pool. None: there need not be one. */
static rad_status check_pool(const runner_info *info, const char *name, uint32_t layers,
                             const rad_token_to_kv_pool *pool, rad_error *err)
{
    if (!pool && !layers) return RAD_OK;
    if (!pool) return rad_fail(err, RAD_E_INVAL, "batch: the %s is missing", name);
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(pool);
    if (p->num_layers < layers || p->num_kv_heads != info->num_kv_heads ||
        p->head_dim != info->head_dim || p->v_head_dim != info->v_head_dim)
        return rad_fail(err, RAD_E_INVAL,
                        "batch: the %s has %u layers, %u heads, dims %u and %u, but the "
                        "model wants %u, %u, %u and %u",
                        name, p->num_layers, p->num_kv_heads, p->head_dim, p->v_head_dim, layers,
                        info->num_kv_heads, info->head_dim, info->v_head_dim);
    return RAD_OK;
}

static rad_status check_pools(const runner_info *info, const forward_batch *batch, rad_error *err)
{
    const bool window = batch->window_kv_pool;
    uint32_t layers = info->num_layers - (window ? info->window_layers : 0);
    if (!batch->req_to_token_pool) return rad_fail(err, RAD_E_INVAL, "batch: the rows are missing");
    rad_status status = check_pool(info, "KV pool", layers, batch->token_to_kv_pool, err);
    if (status != RAD_OK || !window) return status;
    if (!info->window_layers || !batch->window_rows || !batch->window_out_cache_loc)
        return rad_fail(err, RAD_E_INVAL, "batch: window memory without %s",
                        info->window_layers ? "rows or slots" : "a layer that has a window");
    return check_pool(info, "window KV pool", info->window_layers, batch->window_kv_pool, err);
}

static uint64_t slots_of(const rad_token_to_kv_pool *pool)
{
    if (!pool) return (uint64_t)INT32_MAX + 1; /* indices alone: nothing lies behind them */
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(pool);
    return ((uint64_t)p->num_pages + 1) * p->page_size;
}

/* What the request's new tokens see lies in window memory, and not in its dummy page: K and V
 * that were given back too early show here. */
static rad_status check_window(const runner_info *info, const forward_batch *batch, uint32_t r,
                               uint32_t start, rad_error *err)
{
    const uint32_t prefix = batch->extend_prefix_lens[r], seq_len = batch->seq_lens[r];
    const uint32_t window = info->sliding_window, first = prefix < window ? 0 : prefix + 1 - window;
    const uint32_t dummy = rad_kv_pool_params(batch->window_kv_pool)->page_size;
    const uint64_t num_slots = slots_of(batch->window_kv_pool);
    const rad_row row = batch->req_pool_indices[r];
    const rad_slot *slots = rad_req_to_token_row(batch->window_rows, row);
    if (!slots || seq_len > rad_req_to_token_row_tokens(batch->window_rows))
        return rad_fail(err, RAD_E_INVAL, "batch: request %u with %u tokens is on window row %u", r,
                        seq_len, row);
    for (uint32_t i = first; i < seq_len; i++) {
        if (slots[i] < 0 || (uint32_t)slots[i] < dummy || (uint64_t)slots[i] >= num_slots)
            return rad_fail(err, RAD_E_INVAL, "batch: row %u has window slot %d at position %u",
                            row, slots[i], i);
        if (i >= prefix && batch->window_out_cache_loc[start + i - prefix] != slots[i])
            return rad_fail(err, RAD_E_INVAL,
                            "batch: position %u goes to window slot %d, but row %u has %d", i,
                            batch->window_out_cache_loc[start + i - prefix], row, slots[i]);
    }
    return RAD_OK;
}

static rad_status check_req(const runner_info *info, const forward_batch *batch, uint32_t r,
                            uint64_t num_slots, uint32_t start, rad_error *err)
{
    uint32_t prefix = batch->extend_prefix_lens[r], extend = batch->extend_seq_lens[r];
    uint32_t seq_len = batch->seq_lens[r];
    rad_row row = batch->req_pool_indices[r];

    if (!extend || (uint64_t)prefix + extend != seq_len)
        return rad_fail(err, RAD_E_INVAL, "batch: request %u extends %u tokens by %u to %u", r,
                        prefix, extend, seq_len);
    if (batch->extend_start_loc[r] != start || extend > batch->num_tokens - start)
        return rad_fail(err, RAD_E_INVAL,
                        "batch: request %u has tokens %u+%u, expected to start at %u of %u", r,
                        batch->extend_start_loc[r], extend, start, batch->num_tokens);
    if (seq_len > info->context_length)
        return rad_fail(err, RAD_E_LIMIT, "batch: request %u has %u tokens, the context holds %u",
                        r, seq_len, info->context_length);
    const rad_slot *slots = rad_req_to_token_row(batch->req_to_token_pool, row);
    if (!slots || seq_len > rad_req_to_token_row_tokens(batch->req_to_token_pool))
        return rad_fail(err, RAD_E_INVAL, "batch: request %u with %u tokens is on row %u", r,
                        seq_len, row);

    for (uint32_t i = 0; i < prefix; i++)
        if (slots[i] < 0 || (uint64_t)slots[i] >= num_slots)
            return rad_fail(err, RAD_E_INVAL, "batch: row %u has slot %d at position %u", row,
                            slots[i], i);
    for (uint32_t i = 0; i < extend; i++) {
        uint32_t t = start + i;
        rad_token id = batch->input_ids[t];
        rad_slot slot = batch->out_cache_loc[t];
        if (id < 0 || (uint32_t)id >= info->vocab_size)
            return rad_fail(err, RAD_E_INVAL, "batch: token id %d, the vocabulary has %u", id,
                            info->vocab_size);
        if (batch->positions[t] != prefix + i)
            return rad_fail(err, RAD_E_INVAL, "batch: token %u is at position %u, expected %u", t,
                            batch->positions[t], prefix + i);
        if (slot < 0 || (uint64_t)slot >= num_slots || slots[prefix + i] != slot)
            return rad_fail(err, RAD_E_INVAL,
                            "batch: token %u goes to slot %d, but row %u has %d at position %u", t,
                            slot, row, slots[prefix + i], prefix + i);
    }
    return batch->window_kv_pool ? check_window(info, batch, r, start, err) : RAD_OK;
}

rad_status batch_check(const runner_info *info, const forward_batch *batch,
                       uint32_t max_batch_tokens, uint32_t max_batch_logits, rad_error *err)
{
    if (batch->num_tokens > max_batch_tokens)
        return rad_fail(err, RAD_E_LIMIT, "batch: %u tokens, at most %u are possible",
                        batch->num_tokens, max_batch_tokens);
    if (batch->num_logits > max_batch_logits)
        return rad_fail(err, RAD_E_LIMIT, "batch: logits of %u tokens, at most %u are possible",
                        batch->num_logits, max_batch_logits);
    rad_status status = check_pools(info, batch, err);
    if (status != RAD_OK) return status;

    uint64_t num_slots = slots_of(batch->token_to_kv_pool);
    uint32_t start = 0;
    for (uint32_t r = 0; r < batch->num_reqs; r++) {
        status = check_req(info, batch, r, num_slots, start, err);
        if (status != RAD_OK) return status;
        start += batch->extend_seq_lens[r];
    }
    if (start != batch->num_tokens)
        return rad_fail(err, RAD_E_INVAL, "batch: the requests have %u tokens, the batch %u", start,
                        batch->num_tokens);
    for (uint32_t i = 0; i < batch->num_logits; i++)
        if (batch->logits_indices[i] >= batch->num_tokens ||
            (i && batch->logits_indices[i] <= batch->logits_indices[i - 1]))
            return rad_fail(err, RAD_E_INVAL, "batch: logits_indices[%u] is %u", i,
                            batch->logits_indices[i]);
    return forward_batch_check_groups(batch, err);
}
