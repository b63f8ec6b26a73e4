/* engine_size.c - how many tokens of KV fit into this machine.
 *
 *     available before loading |=================================================|
 *     mem_fraction_static      |.............. weights and KV ..............|     |
 *                              | weights |        KV: what is left          | rest:
 *                                                               buffers, other programs
 *
 * "Available" is what base/available.h says. Unless max_total_tokens is given, the pool is not
 * made larger than MAX_CONTEXTS full contexts: a small model would otherwise take most of a large
 * machine for tokens that nobody asks for. */
#include "base/available.h"
#include "engine/engine_impl.h"

enum {
    MAX_CONTEXTS = 64,
    MIN_POOL_TOKENS = 64,
    INDEX_BYTES = 32 /* of tree, rows and allocator a token, roughly; KV is far more */
};

/* Enough rows that the pool, not their number, is the limit for usual requests. */
uint32_t default_max_running(uint64_t max_total_tokens)
{
    uint64_t rows = max_total_tokens / 512;
    return (uint32_t)RAD_MIN(RAD_MAX(rows, 64u), 256u);
}

rad_status size_kv_pool(const rad_env *env, const engine_params *p, const runner_info *model,
                        uint64_t available_before, uint64_t *max_total_tokens, rad_error *err)
{
    rad_token_to_kv_pool_params kv = runner_kv_params(model, 0, p->page_size);
    uint64_t token_bytes = rad_kv_pool_bytes_per_token(&kv) + INDEX_BYTES;
    double fraction = p->mem_fraction_static ? p->mem_fraction_static : 0.8;
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

    if (p->max_total_tokens) {
        *max_total_tokens = p->max_total_tokens;
        uint64_t most = available / token_bytes; /* all of it: the user knows best */
        if (available && p->max_total_tokens > most)
            return rad_fail(err, RAD_E_NOMEM,
                            "max_total_tokens %llu needs %.1f GB for the KV pool%s; %.1f GB are "
                            "available, enough for %llu tokens",
                            (unsigned long long)p->max_total_tokens,
                            (double)p->max_total_tokens * (double)token_bytes / 1e9,
                            p->enable_hierarchical_cache && !host_bytes ? " and the host tier" : "",
                            (double)available / 1e9, (unsigned long long)most);
        return RAD_OK;
    }

    uint32_t context = p->context_length ? p->context_length : model->context_length;
    uint64_t contexts = RAD_MAX(p->max_running_requests, (uint32_t)MAX_CONTEXTS);
    uint64_t tokens = contexts * context;
    if (available) tokens = RAD_MIN(tokens, fits);
    tokens = RAD_MIN(tokens, (uint64_t)INT32_MAX / 2);
    tokens -= tokens % RAD_MAX(p->page_size, 1u);
    if (tokens < MIN_POOL_TOKENS)
        return rad_fail(err, RAD_E_NOMEM,
                        "mem_fraction_static %.2f of %.2f GB leaves no room for a KV pool beside "
                        "the model (%llu bytes a token); %.2f GB are available now",
                        fraction, (double)available_before / 1e9, (unsigned long long)token_bytes,
                        (double)available / 1e9);
    rad_log(env, RAD_LOG_INFO,
            "engine: %.2f GB available before loading, %.2f GB after; mem_fraction_static %.2f "
            "has room for %llu tokens of KV",
            (double)available_before / 1e9, (double)available / 1e9, fraction,
            (unsigned long long)fits);
    *max_total_tokens = tokens;
    return RAD_OK;
}
