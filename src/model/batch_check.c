/* batch_check.c - see batch_check.h. Nothing of a batch is believed: every sum is
 * taken in 64 bits and compared before an index is formed from it. */
#include "model/batch_check.h"

#include "attn/attn_backend.h"

#include <stdbool.h>

/* `layers`: that the runner wants of this pool. None: there need not be one. `own`: they are those
 * with heads of their own. */
static rad_status check_pool(const runner_info *info, const char *name, uint32_t layers, bool own,
                             const rad_token_to_kv_pool *pool, rad_error *err)
{
    if (!pool && !layers) return RAD_OK;
    if (!pool) return rad_fail(err, RAD_E_INVAL, "batch: the %s is missing", name);
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(pool);
    const uint32_t heads = own ? info->window_kv_heads : info->num_kv_heads;
    const uint32_t head_dim = own ? info->window_head_dim : info->head_dim;
    const uint32_t v_head_dim = own ? info->window_v_head_dim : info->v_head_dim;
    if (p->num_layers < layers || p->num_kv_heads != heads || p->head_dim != head_dim ||
        p->v_head_dim != v_head_dim)
        return rad_fail(err, RAD_E_INVAL,
                        "batch: the %s has %u layers, %u heads, dims %u and %u, but the "
                        "model wants %u, %u, %u and %u",
                        name, p->num_layers, p->num_kv_heads, p->head_dim, p->v_head_dim, layers,
                        heads, head_dim, v_head_dim);
    return RAD_OK;
}

static rad_status check_pools(const runner_info *info, const forward_batch *batch, rad_error *err)
{
    const bool window = batch->window_kv_pool;
    uint32_t layers = info->num_layers - (window ? info->window_layers : 0);
    if (!batch->req_to_token_pool) return rad_fail(err, RAD_E_INVAL, "batch: the rows are missing");
    if (!window && runner_layers_differ(info))
        return rad_fail(err, RAD_E_INVAL, "batch: the window KV pool is missing");
    rad_status status = check_pool(info, "KV pool", layers, false, batch->token_to_kv_pool, err);
    if (status != RAD_OK || !window) return status;
    if (!info->window_layers || !batch->window_rows || !batch->window_out_cache_loc)
        return rad_fail(err, RAD_E_INVAL, "batch: window memory without %s",
                        info->window_layers ? "rows or slots" : "a layer that has a window");
    return check_pool(info, "window KV pool", info->window_layers, runner_layers_differ(info),
                      batch->window_kv_pool, err);
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

/* The states of [first, first + STATES_AT_A_TIME) that requests read, once or more than once, and
 * that are written. */
enum { STATES_AT_A_TIME = 32768 };
typedef struct state_marks {
    uint32_t first;
    uint64_t read[STATES_AT_A_TIME / 64], shared[STATES_AT_A_TIME / 64];
    uint64_t written[STATES_AT_A_TIME / 64];
} state_marks;

/* Sets the state's bit and says whether it was set. */
static bool mark(uint64_t *bits, uint32_t at)
{
    const uint64_t bit = 1ull << (at % 64);
    const bool was = bits[at / 64] & bit;
    bits[at / 64] |= bit;
    return was;
}

static bool is_marked(const uint64_t *bits, uint32_t at)
{
    return bits[at / 64] >> (at % 64) & 1;
}

/* `own`: of the request, which may write to it. */
static rad_status check_written(state_marks *m, uint32_t req, rad_state state, rad_state own,
                                rad_error *err)
{
    const uint32_t at = (uint32_t)state - m->first;
    if (at >= STATES_AT_A_TIME) return RAD_OK; /* in another round */
    if (is_marked(state == own ? m->shared : m->read, at))
        return rad_fail(err, RAD_E_INVAL, "batch: request %u writes to state %d, which is read",
                        req, state);
    if (mark(m->written, at))
        return rad_fail(err, RAD_E_INVAL, "batch: request %u writes to state %d once more", req,
                        state);
    return RAD_OK;
}

/* What is written is named once and read by nobody but its own request. */
static rad_status check_sharing(const forward_batch *batch, state_marks *m, rad_error *err)
{
    rad_status status = RAD_OK;
    for (uint32_t r = 0; r < batch->num_reqs; r++) {
        const uint32_t at = (uint32_t)batch->state_in[r] - m->first;
        if (!batch->state_in[r] || at >= STATES_AT_A_TIME) continue;
        if (mark(m->read, at)) mark(m->shared, at);
    }
    for (uint32_t r = 0; r < batch->num_reqs && status == RAD_OK; r++)
        status = check_written(m, r, batch->state_out[r], batch->state_in[r], err);
    for (uint32_t i = 0; i < batch->num_state_saves && status == RAD_OK; i++)
        status = check_written(m, batch->state_saves[i].req, batch->state_saves[i].state, 0, err);
    return status;
}

static rad_status check_state(const forward_batch *batch, uint32_t req, rad_state state,
                              rad_error *err)
{
    if (rad_state_is_taken(batch->state_pool, state)) return RAD_OK;
    return rad_fail(err, RAD_E_INVAL, "batch: request %u has state %d, which is not taken", req,
                    state);
}

static rad_status check_saves(const forward_batch *batch, rad_error *err)
{
    const forward_state_save *s = batch->state_saves;
    if (batch->num_state_saves && !s)
        return rad_fail(err, RAD_E_INVAL, "batch: the saves are missing");
    for (uint32_t i = 0; i < batch->num_state_saves; i++) {
        if (s[i].req >= batch->num_reqs || !s[i].tokens ||
            s[i].tokens > batch->extend_seq_lens[s[i].req] ||
            (i && (s[i].req < s[i - 1].req ||
                   (s[i].req == s[i - 1].req && s[i].tokens <= s[i - 1].tokens))))
            return rad_fail(err, RAD_E_INVAL,
                            "batch: save %u is of request %u behind %u of its new tokens", i,
                            s[i].req, s[i].tokens);
        rad_status status = check_state(batch, s[i].req, s[i].state, err);
        if (status != RAD_OK) return status;
    }
    return RAD_OK;
}

/* extend_seq_lens was looked at. */
static rad_status check_states(const runner_info *info, const forward_batch *batch, rad_error *err)
{
    if (!info->state_bytes && (batch->state_pool || batch->num_state_saves))
        return rad_fail(err, RAD_E_INVAL, "batch: states, but the model has none");
    if (!info->state_bytes || !batch->num_reqs) return RAD_OK;
    if (!batch->state_pool || !batch->state_in || !batch->state_out)
        return rad_fail(err, RAD_E_INVAL, "batch: the states are missing");
    if (rad_state_bytes(batch->state_pool) < info->state_bytes)
        return rad_fail(err, RAD_E_INVAL,
                        "batch: the pool has states of %zu bytes, but the model wants %zu",
                        rad_state_bytes(batch->state_pool), info->state_bytes);
    rad_status status = RAD_OK;
    for (uint32_t r = 0; r < batch->num_reqs && status == RAD_OK; r++) {
        const rad_state in = batch->state_in[r];
        if (!in != !batch->extend_prefix_lens[r])
            return rad_fail(err, RAD_E_INVAL, "batch: request %u has state %d behind %u tokens", r,
                            in, batch->extend_prefix_lens[r]);
        if (in) status = check_state(batch, r, in, err);
        if (status == RAD_OK) status = check_state(batch, r, batch->state_out[r], err);
    }
    if (status == RAD_OK) status = check_saves(batch, err);
    const uint32_t last = rad_state_pool_num_states(batch->state_pool);
    for (uint32_t first = 0; first <= last && status == RAD_OK; first += STATES_AT_A_TIME) {
        state_marks marks = {.first = first};
        status = check_sharing(batch, &marks, err);
    }
    return status;
}

static rad_status check_hidden(const runner_info *info, const forward_batch *batch, rad_error *err)
{
    if (batch->num_pools && !(batch->pools && info->hidden_dim))
        return rad_fail(err, RAD_E_INVAL, "batch: hidden states of %u ranges, but %s",
                        batch->num_pools, batch->pools ? "the model gives none" : "which");
    for (uint32_t i = 0, end = 0; i < batch->num_pools; i++) {
        const forward_pool *p = &batch->pools[i];
        if (!p->sum || !p->count || p->first < end || p->first > batch->num_tokens ||
            p->count > batch->num_tokens - p->first)
            return rad_fail(err, RAD_E_INVAL,
                            "batch: hidden states of %u tokens from %u on are range %u", p->count,
                            p->first, i);
        end = p->first + p->count;
    }
    return RAD_OK;
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
    status = check_states(info, batch, err);
    if (status != RAD_OK) return status;
    for (uint32_t i = 0; i < batch->num_logits; i++)
        if (batch->logits_indices[i] >= batch->num_tokens ||
            (i && batch->logits_indices[i] <= batch->logits_indices[i - 1]))
            return rad_fail(err, RAD_E_INVAL, "batch: logits_indices[%u] is %u", i,
                            batch->logits_indices[i]);
    status = check_hidden(info, batch, err);
    if (status != RAD_OK) return status;
    return forward_batch_check_groups(batch, err);
}
