/* engine_size.c - how many tokens of KV fit into this machine.
 *
 *     available before loading |=================================================|
 *     mem_fraction_static      |.............. weights and KV ..............|     |
 *                              | weights |        KV: what is left          | rest:
 *                                                               buffers, other programs
 *
 * "Available" is what base/available.h says. max_total_tokens may ask for less, not for more: what
 * it asks for beyond is left out, with a warning. Where nothing is said of memory at all, the pool
 * is not made larger than MAX_CONTEXTS full contexts: a small model would otherwise take most of a
 * large machine for tokens that nobody asks for.
 *
 * Rows (requests that may run at one time) follow the pool, and a part of memory of their own: a
 * row is a line of the table of slots, and a line of every buffer of a batch. */
#include "base/available.h"
#include "engine/engine_impl.h"

enum {
    LEAST_ROWS = 64,
    MOST_ROWS = 4096,
    ROW_TOKENS = 512, /* of the pool for each row: usual requests hold no more */
    CHEAP_ROWS = 256, /* whatever they cost */
    ROWS_SHARE = 32,  /* one part in so many of the memory for weights and KV is for rows */
    MAX_CONTEXTS = 64,
    MIN_POOL_TOKENS = 64,
    INDEX_BYTES = 32, /* of keys, rows and allocator a token, roughly; KV is far more */
    NODE_BYTES = 188  /* of the tree, which may have a node for each page (cache.h) */
};

/* Enough rows that the pool, not their number, is the limit for usual requests. */
uint32_t default_max_running(uint64_t max_total_tokens)
{
    uint64_t rows = max_total_tokens / ROW_TOKENS;
    return (uint32_t)RAD_MIN(RAD_MAX(rows, (uint64_t)LEAST_ROWS), (uint64_t)MOST_ROWS);
}

static double fraction_of(const engine_params *p)
{
    return p->mem_fraction_static ? p->mem_fraction_static : 0.8;
}

/* What the pool is not made larger than, as far as the params say; UINT64_MAX: as memory has it. */
static uint64_t asked_tokens(const engine_params *p, uint32_t model_context, bool memory_known)
{
    uint32_t context = p->context_length ? p->context_length : model_context;
    uint64_t contexts = RAD_MAX(p->max_running_requests, (uint32_t)MAX_CONTEXTS);
    if (p->max_total_tokens) return p->max_total_tokens;
    return p->mem_fraction_static && memory_known ? UINT64_MAX : contexts * context;
}

/* With a node to each page: short branches may fill the pool with them. */
static uint64_t bytes_of_token(const engine_params *p, const runner_info *model)
{
    rad_token_to_kv_pool_params kv = runner_kv_params(model, 0, p->page_size);
    return rad_kv_pool_bytes_per_token(&kv) + INDEX_BYTES + NODE_BYTES / RAD_MAX(p->page_size, 1u);
}

uint32_t rows_to_load_for(const engine_params *p, const runner_info *model, uint64_t row_bytes,
                          uint64_t available)
{
    if (p->max_running_requests) return p->max_running_requests;
    uint64_t token_bytes = bytes_of_token(p, model);
    double fraction = fraction_of(p);
    double memory = (double)available * (fraction > 0 && fraction < 1 ? fraction : 0);
    uint64_t tokens = asked_tokens(p, model->context_length, available != 0);
    if (available) tokens = RAD_MIN(tokens, (uint64_t)(memory / (double)token_bytes));
    uint64_t paid = (uint64_t)(memory / ROWS_SHARE / (double)RAD_MAX(row_bytes, 1u));
    uint64_t rows = default_max_running(tokens);
    return (uint32_t)RAD_MIN(rows, RAD_MAX(paid, (uint64_t)CHEAP_ROWS));
}

rad_status size_kv_pool(const rad_env *env, const engine_params *p, const runner_info *model,
                        uint64_t available_before, uint64_t *max_total_tokens, rad_error *err)
{
    uint64_t token_bytes = bytes_of_token(p, model);
    double fraction = fraction_of(p);
    if (!(fraction > 0 && fraction < 1))
        return rad_fail(err, RAD_E_INVAL, "mem_fraction_static %g is not between 0 and 1",
                        fraction);
    /* What others gave back meanwhile is no part of the fraction. */
    uint64_t available = RAD_MIN(memory_available(), available_before);
    /* The host tier is memory of the same machine. */
    uint64_t host_bytes = p->enable_hierarchical_cache ? (uint64_t)(p->hicache_size * 1e9) : 0;
    double ratio = p->hicache_ratio > 0 ? p->hicache_ratio : 2;
    if (p->enable_hierarchical_cache && !host_bytes)
        token_bytes += (uint64_t)(ratio * (double)token_bytes);
    if (available && available <= host_bytes)
        return rad_fail(err, RAD_E_NOMEM,
                        "hicache_size %g GB: only %.2f GB are available, for the KV pool as well",
                        p->hicache_size, (double)available / 1e9);
    available -= host_bytes * (available != 0);
    double rest = (double)available - (double)available_before * (1 - fraction);
    uint64_t fits = rest > 0 ? (uint64_t)rest / token_bytes : 0;

    uint64_t tokens = asked_tokens(p, model->context_length, available != 0);
    const char *and_host = p->enable_hierarchical_cache && !host_bytes ? " and the host tier" : "";
    bool short_of = available && tokens > fits;
    if (p->max_total_tokens && !short_of) {
        *max_total_tokens = tokens;
        return RAD_OK;
    }
    if (available) tokens = RAD_MIN(tokens, fits);
    tokens = RAD_MIN(tokens, (uint64_t)INT32_MAX / 2);
    tokens -= tokens % RAD_MAX(p->page_size, 1u);
    if (tokens < MIN_POOL_TOKENS)
        return rad_fail(err, RAD_E_NOMEM,
                        "mem_fraction_static %.2f of %.2f GB leaves no room for the KV pool%s "
                        "beside the model (%llu bytes a token); %.2f GB are available now",
                        fraction, (double)available_before / 1e9, and_host,
                        (unsigned long long)token_bytes, (double)available / 1e9);
    rad_log(env, RAD_LOG_INFO,
            "engine: %.2f GB available before loading, %.2f GB after; mem_fraction_static %.2f "
            "has room for %llu tokens of KV",
            (double)available_before / 1e9, (double)available / 1e9, fraction,
            (unsigned long long)fits);
    if (p->max_total_tokens)
        rad_log(env, RAD_LOG_WARN,
                "engine: max_total_tokens %llu is more than what mem_fraction_static %.2f has room "
                "for in the KV pool%s: it has %llu tokens",
                (unsigned long long)p->max_total_tokens, fraction, and_host,
                (unsigned long long)tokens);
    *max_total_tokens = tokens;
    return RAD_OK;
}
