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
 * A model with layers that see a window has two pools: `tokens` of the others' K/V, and fewer of
 * theirs (--swa-full-tokens-ratio). Per token of context, with a full context of C tokens and a
 * window of W:
 *
 *     masked       full layers + window layers
 *     here         full layers + window layers * W / C        the default ratio is W / C
 *
 * So contexts of C tokens fill both pools at the same time. Shorter ones need more of the window
 * side for each token (those below W as much as of the other), longer ones less: the default is for
 * the context in force, but not below LEAST_RATIO, from where on it wins little and a mix of short
 * ones loses much. Where memory is not what limits the pool, the window side gets of the rest as
 * much as the other has: nothing is lost then. A chunk of a prompt comes on top, which holds window
 * pages for all of its tokens until its step has ended.
 *
 * A model with recurrent layers has a pool of states besides (sched/state_memory.h), each as large
 * as K/V of thousands of tokens or of a few. By default their pool gets STATE_RATIO bytes for each
 * of K/V, but no more states than there is use for: three for each request that may run, and one
 * for each interval of the tokens cached. K/V of one context come first, and so does a
 * max_total_tokens that was asked for.
 *
 * On a GPU all of this is the GPU's memory: "available" is what the driver says (cuMemGetInfo), as
 * SGLang has it. The pools' index and the host tier, which is pinned there, are this machine's.
 *
 * Rows (requests that may run at one time) follow the pool, and a part of memory of their own: a
 * row is a line of the table of slots, and a line of every buffer of a batch. */
#include "engine/engine_impl.h"
#include "sched/state_memory.h"
#include "sched/window_memory.h"

#include <math.h>

enum {
    STATE_ALIGN = 64, /* radish/state_pool.h */
    LEAST_ROWS = 64,
    MOST_ROWS = 4096,
    ROW_TOKENS = 512, /* of the pool for each row: usual requests hold no more */
    CHEAP_ROWS = 256, /* whatever they cost */
    ROWS_SHARE = 32,  /* one part in so many of the memory for weights and KV is for rows */
    MAX_CONTEXTS = 64,
    MIN_POOL_TOKENS = 64,
    INDEX_BYTES = 32,        /* of keys, rows and allocator a token, roughly; KV is far more */
    WINDOW_INDEX_BYTES = 16, /* of the allocator's window side and its rows, likewise */
    FEWEST_STATES = 4, /* of a pool by default: a request, what it goes on from, what it leaves */
    STATES_A_ROW = 3,  /* that a request holds at most: its own two, and what it locks */
    NODE_BYTES = 188   /* of the tree, which may have a node for each page (cache.h) */
};

/* That a fraction nobody asked for leaves free, beside buffers; and what is neither weights nor KV:
 * the vocabulary, threads, tables. */
static const uint64_t SPARE_BYTES = 1000000000, BESIDE_BYTES = 100000000;

static const double LEAST_RATIO = 1.0 / 8;
static const double STATE_RATIO = 0.9;
static const double HOST_SHARE = 0.8; /* of the machine's memory, which a GPU's host tier may pin */

/* Enough rows that the pool, not their number, is the limit for usual requests. */
uint32_t default_max_running(uint64_t max_total_tokens)
{
    uint64_t rows = max_total_tokens / ROW_TOKENS;
    return (uint32_t)RAD_MIN(RAD_MAX(rows, (uint64_t)LEAST_ROWS), (uint64_t)MOST_ROWS);
}

uint32_t engine_max_sessions(const engine_params *p)
{
    if (p->max_sessions != ENGINE_USUAL_SESSIONS) return p->max_sessions;
    return p->disable_radix_cache ? 0 : ENGINE_NUM_SESSIONS;
}

uint32_t rows_for(const kv_sizes *sizes)
{
    uint32_t rows = default_max_running(sizes->tokens);
    if (!sizes->states) return rows;
    return (uint32_t)RAD_MAX(RAD_MIN(sizes->states / STATES_A_ROW, (uint64_t)rows), 1ull);
}

static double fraction_of(const engine_params *p)
{
    return p->mem_fraction_static ? p->mem_fraction_static : 0.8;
}

uint32_t prefill_chunk(const engine_params *p)
{
    int32_t size = p->chunked_prefill_size;
    return size ? (uint32_t)RAD_MAX(size, 0) : ENGINE_CHUNKED_PREFILL_SIZE;
}

/* What the pool is not made larger than, as far as the params say; UINT64_MAX: as memory has it. */
static uint64_t asked_tokens(const engine_params *p, uint32_t model_context, bool memory_known)
{
    uint32_t context = p->context_length ? p->context_length : model_context;
    uint64_t contexts = RAD_MAX(p->max_running_requests, (uint32_t)MAX_CONTEXTS);
    if (p->max_total_tokens) return p->max_total_tokens;
    return p->mem_fraction_static && memory_known ? UINT64_MAX : contexts * context;
}

/* What the sides of the pool cost a token; without window memory `window` is 0. */
typedef struct token_cost {
    uint64_t full, window;
    double ratio;    /* window tokens for each */
    uint64_t beside; /* window tokens beside those */
    uint64_t least;  /* of the window side */
    bool exact;      /* the ratio was asked for */

    uint64_t state;        /* one; 0: there are none */
    uint64_t first_tokens; /* K/V that come before states */
    uint64_t most_tokens;  /* that the pool is not made larger than */
    double state_ratio;    /* of their bytes; 0: by use */
    uint64_t asked_states; /* 0: as many as there is room and use for */
    uint32_t interval, rows;
} token_cost;

static bool has_window_memory(const engine_params *p, const runner_info *model, uint32_t context)
{
    if (runner_layers_differ(model)) return true; /* there is no pool of both */
    return model->window_layers && model->sliding_window < context && !p->disable_hybrid_swa_memory;
}

static void add_states(const engine_params *p, const runner_info *model, token_cost *cost,
                       uint32_t context)
{
    cost->state = (model->state_bytes + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN;
    cost->first_tokens = p->max_total_tokens ? p->max_total_tokens : context;
    cost->most_tokens = asked_tokens(p, context, true);
    cost->state_ratio = p->mamba_full_memory_ratio;
    cost->asked_states = p->max_mamba_cache_size;
    cost->interval = p->mamba_track_interval ? p->mamba_track_interval
                                             : state_default_interval(model);
    cost->rows = p->max_running_requests;
}

/* With a node to each page: short branches may fill the pool with them. */
static token_cost cost_of_token(const engine_params *p, const runner_info *model)
{
    uint32_t page_size = RAD_MAX(p->page_size, 1u), window = model->sliding_window;
    uint32_t context = p->context_length ? p->context_length : model->context_length;
    const bool apart = has_window_memory(p, model, context);
    /* Of a pool on a GPU the index is not there but on the host. */
    token_cost cost = {.full = p->on_gpu ? 0 : INDEX_BYTES + NODE_BYTES / page_size};
    cost.full += runner_token_bytes(model, apart ? RUNNER_FULL_LAYERS : RUNNER_ALL_LAYERS);
    cost.full += p->draft_token_bytes;
    if (model->state_bytes) add_states(p, model, &cost, context);
    if (!apart) return cost;
    uint32_t chunk = prefill_chunk(p);
    cost.window = runner_token_bytes(model, RUNNER_WINDOW_LAYERS);
    if (!p->on_gpu) cost.window += WINDOW_INDEX_BYTES;
    cost.exact = p->swa_full_tokens_ratio > 0;
    cost.ratio = cost.exact ? p->swa_full_tokens_ratio
                            : RAD_MAX((double)(window + page_size) / context, LEAST_RATIO);
    cost.ratio = RAD_MIN(cost.ratio, 1.0);
    cost.beside = chunk ? RAD_MIN(chunk, context) : context;
    cost.least = (uint64_t)window_memory_least_pages(window, page_size) * page_size + cost.beside;
    return cost;
}

/* Of the window side, when the other has so many: never more than that. */
static uint64_t window_tokens_for(const token_cost *cost, uint64_t tokens)
{
    if (!cost->window) return 0;
    uint64_t window = (uint64_t)(cost->ratio * (double)tokens) + cost->beside;
    return RAD_MIN(RAD_MAX(window, cost->least), tokens);
}

static uint64_t bytes_of(const token_cost *cost, uint64_t tokens)
{
    return tokens * cost->full + window_tokens_for(cost, tokens) * cost->window;
}

/* How many states there is use for. */
static uint64_t states_for(const token_cost *cost, uint64_t tokens)
{
    if (!cost->state || cost->asked_states) return cost->asked_states;
    const uint32_t rows = cost->rows ? cost->rows : default_max_running(tokens);
    return state_default_count(cost->interval, rows, tokens);
}

/* States that are paid out of so much memory. */
static uint64_t states_in(const token_cost *cost, uint64_t bytes)
{
    if (!cost->state || cost->asked_states) return cost->asked_states;
    const double ratio = cost->state_ratio > 0 ? cost->state_ratio : STATE_RATIO;
    const uint64_t share = (uint64_t)((double)bytes * ratio / (1 + ratio) / (double)cost->state);
    if (cost->state_ratio > 0) return RAD_MAX(share, (uint64_t)STATE_LEAST);
    const uint64_t tokens = RAD_MIN(cost->most_tokens, bytes / (cost->full + cost->window));
    const uint64_t first = bytes_of(cost, RAD_MIN(cost->first_tokens, tokens));
    const uint64_t left = (bytes - RAD_MIN(bytes, first)) / cost->state;
    const uint64_t paid = cost->first_tokens == cost->most_tokens ? left : RAD_MIN(left, share);
    return RAD_MAX(RAD_MIN(paid, states_for(cost, tokens)), (uint64_t)FEWEST_STATES);
}

/* The most tokens for which there is memory on both sides, beside the states. */
static uint64_t tokens_in(const token_cost *cost, uint64_t bytes)
{
    bytes -= RAD_MIN(bytes, states_in(cost, bytes) * cost->state);
    uint64_t both = bytes / (cost->full + cost->window); /* as many window tokens */
    if (!cost->window || both <= window_tokens_for(cost, both)) return both;
    double beside = (double)(cost->beside * cost->window);
    double each = (double)cost->full + cost->ratio * (double)cost->window;
    uint64_t tokens = (double)bytes > beside ? (uint64_t)(((double)bytes - beside) / each) : 0;
    if (window_tokens_for(cost, tokens) > cost->least) return tokens;
    return (bytes - RAD_MIN(bytes, cost->least * cost->window)) / cost->full;
}

kv_sizes kv_sizes_in(const engine_params *p, const runner_info *model, uint64_t bytes)
{
    token_cost cost = cost_of_token(p, model);
    uint64_t tokens = tokens_in(&cost, bytes);
    tokens -= tokens % RAD_MAX(p->page_size, 1u);
    return (kv_sizes){.tokens = tokens,
                      .window_tokens = window_tokens_for(&cost, tokens),
                      .states = states_in(&cost, bytes)};
}

uint32_t rows_to_load_for(const engine_params *p, const runner_info *model, uint64_t row_bytes,
                          uint64_t available)
{
    if (p->max_running_requests) return p->max_running_requests;
    token_cost cost = cost_of_token(p, model);
    double fraction = fraction_of(p);
    double memory = (double)available * (fraction > 0 && fraction < 1 ? fraction : 0);
    uint64_t tokens = asked_tokens(p, model->context_length, available != 0);
    if (available) tokens = RAD_MIN(tokens, tokens_in(&cost, (uint64_t)memory));
    uint64_t paid = (uint64_t)(memory / ROWS_SHARE / (double)RAD_MAX(row_bytes, 1u));
    uint64_t rows = default_max_running(tokens);
    return (uint32_t)RAD_MIN(rows, RAD_MAX(paid, (uint64_t)CHEAP_ROWS));
}

static double host_ratio(const engine_params *p)
{
    return p->hicache_ratio > 0 ? p->hicache_ratio : ENGINE_HICACHE_RATIO;
}

/* The host tier is memory of the same machine: bytes of their own, or so much more of each token.
 * A GPU's is not: see fit_host_tier. */
static uint64_t host_tier(const engine_params *p, token_cost *cost)
{
    if (!p->enable_hierarchical_cache || p->on_gpu) return 0;
    if (p->hicache_size > 0) return (uint64_t)(p->hicache_size * 1e9);
    double ratio = host_ratio(p);
    cost->full += (uint64_t)(ratio * (double)cost->full);
    cost->window += (uint64_t)(ratio * (double)cost->window);
    cost->state += (uint64_t)(ratio * (double)cost->state);
    return 0;
}

static rad_status check_fractions(const engine_params *p, rad_error *err)
{
    double fraction = fraction_of(p);
    if (!(fraction > 0 && fraction < 1))
        return rad_fail(err, RAD_E_INVAL, "mem_fraction_static %g is not between 0 and 1",
                        fraction);
    if (!(p->swa_full_tokens_ratio >= 0 && p->swa_full_tokens_ratio <= 1))
        return rad_fail(err, RAD_E_INVAL, "swa_full_tokens_ratio %g is not from 0 to 1",
                        p->swa_full_tokens_ratio);
    if (!(p->mamba_full_memory_ratio >= 0 && p->mamba_full_memory_ratio <= 100))
        return rad_fail(err, RAD_E_INVAL, "mamba_full_memory_ratio %g is not from 0 to 100",
                        p->mamba_full_memory_ratio);
    return RAD_OK;
}

/* The fewest that a server is started with. */
static uint64_t least_states(const token_cost *cost)
{
    if (!cost->state) return 0;
    return cost->asked_states ? cost->asked_states : FEWEST_STATES;
}

/* The fraction with which so many bytes beside the weights are the pool's. */
static double fraction_for(uint64_t weights, uint64_t pool, uint64_t available)
{
    return ((double)weights + (double)pool) / (double)available;
}

static rad_status no_room_beside_host(double gb, uint64_t available, rad_error *err)
{
    return rad_fail(err, RAD_E_NOMEM,
                    "hicache_size %g GB: only %.2f GB are available, for the KV pool as well", gb,
                    (double)available / 1e9);
}

/* "...; --dtype q8_0 would: its weights take 11.20 GB" */
static void say_what_fits(char *text, size_t size, const memory_need *need, uint64_t least,
                          double fraction, uint64_t available, bool asked)
{
    const double most = 1 - (double)(SPARE_BYTES + need->buffers) / (double)available;
    const double wanted = fraction_for(need->weights + BESIDE_BYTES, least, available);
    size_t used = 0;
    if (asked && wanted <= most)
        used = (size_t)snprintf(text, size, "; --mem-fraction-static %.3f would do",
                                ceil(wanted * 1000) / 1000);
    if (need->least_weights && fraction_for(need->least_weights, least, available) <= fraction)
        snprintf(text + used, size - used, "; --dtype %s would do, with %.2f GB of weights",
                 need->least_type, (double)need->least_weights / 1e9);
    else if (!used)
        snprintf(text, size, "; a model of %.2f GB would do, no smaller context would",
                 RAD_MAX(0.0, fraction * (double)available - (double)least) / 1e9);
}

rad_status fit_memory(const rad_env *env, const engine_params *p, const runner_info *model,
                      const memory_need *need, uint64_t available, double *fraction, rad_error *err)
{
    token_cost cost = cost_of_token(p, model);
    *fraction = fraction_of(p);
    rad_status status = check_fractions(p, err);
    if (status != RAD_OK || !available) return status;
    const uint64_t host = host_tier(p, &cost);
    if (available <= host) return no_room_beside_host(p->hicache_size, available, err);
    uint64_t context = p->context_length ? p->context_length : model->context_length;
    uint64_t fewest = MIN_POOL_TOKENS;
    if (p->max_total_tokens) {
        context = RAD_MIN(context, p->max_total_tokens);
        fewest = RAD_MIN(fewest, p->max_total_tokens);
    }
    const uint32_t page = RAD_MAX(p->page_size, 1u);
    const uint64_t states = least_states(&cost) * cost.state;
    const uint64_t whole = bytes_of(&cost, context + page) + states;
    const uint64_t least = bytes_of(&cost, fewest) + states;
    /* A GPU's buffers are taken before its pool, a CPU's as they are used. */
    const uint64_t first = p->on_gpu ? need->buffers : 0;
    const uint64_t taken = need->weights + first;
    const double wanted = fraction_for(taken + BESIDE_BYTES, whole + host, available);
    const double most = 1 - (double)(SPARE_BYTES + need->buffers - first) / (double)available;
    const double before = *fraction;
    if (!p->mem_fraction_static && wanted > before && most > before)
        *fraction = RAD_MIN(wanted, most);
    if (fraction_for(taken, least + host, available) > *fraction) {
        char would[160] = "";
        say_what_fits(would, sizeof would, need, least + host, *fraction, available,
                      p->mem_fraction_static > 0);
        return rad_fail(err, RAD_E_NOMEM,
                        "engine: the model does not fit%s: %.2f GB of weights, %.2f GB for batches "
                        "and %.2f GB for a context of %llu tokens (%llu bytes a token); %.2f GB "
                        "are available, of which mem_fraction_static %.3g leaves %.2f GB for "
                        "weights and for the KV pool%s%s",
                        p->on_gpu ? " on the GPU" : "", (double)need->weights / 1e9,
                        (double)need->buffers / 1e9, (double)whole / 1e9,
                        (unsigned long long)context, (unsigned long long)(cost.full + cost.window),
                        (double)available / 1e9, *fraction, *fraction * (double)available / 1e9,
                        p->enable_hierarchical_cache && !p->on_gpu ? " and the host tier" : "",
                        would);
    }
    if (*fraction > before)
        rad_log(env, RAD_LOG_WARN,
                "engine: mem_fraction_static is %.3f in place of %.2f: %.2f GB of weights and %.2f "
                "GB for a context of %llu tokens of %.2f GB that are available; %.2f GB stay free",
                *fraction, before, (double)need->weights / 1e9, (double)whole / 1e9,
                (unsigned long long)context, (double)available / 1e9,
                (1 - *fraction) * (double)available / 1e9 - (double)need->buffers / 1e9);
    return RAD_OK;
}

/* What the pools get of so much memory; `known`: that is all there is for them. */
static kv_sizes divide(const engine_params *p, const runner_info *model, const token_cost *cost,
                       uint64_t memory, bool known)
{
    uint64_t tokens = asked_tokens(p, model->context_length, known), fits = tokens_in(cost, memory);
    const bool short_of = known && tokens > fits;
    const uint64_t states = known ? states_in(cost, memory) : states_for(cost, tokens);
    kv_sizes sizes = {
        .tokens = tokens, .window_tokens = window_tokens_for(cost, tokens), .states = states};
    if (p->max_total_tokens && !short_of) return sizes;
    if (known) tokens = RAD_MIN(tokens, fits);
    tokens = RAD_MIN(tokens, (uint64_t)INT32_MAX / 2);
    tokens -= tokens % RAD_MAX(p->page_size, 1u);
    sizes = (kv_sizes){
        .tokens = tokens, .window_tokens = window_tokens_for(cost, tokens), .states = states};
    memory -= RAD_MIN(memory, states * cost->state);
    if (cost->window && !cost->exact && !short_of && known) { /* there is memory left */
        uint64_t left = (memory - RAD_MIN(memory, tokens * cost->full)) / cost->window;
        sizes.window_tokens = RAD_MAX(sizes.window_tokens, RAD_MIN(left, tokens));
    }
    return sizes;
}

kv_sizes kv_sizes_foretold(const engine_params *p, const runner_info *model, uint64_t taken,
                           uint64_t available, double fraction)
{
    token_cost cost = cost_of_token(p, model);
    const double memory = fraction * (double)available - (double)taken;
    return divide(p, model, &cost, memory > 0 ? (uint64_t)memory : 0, available != 0);
}

uint64_t kv_window_tokens_for_context(const engine_params *p, const runner_info *model,
                                      uint32_t context)
{
    const token_cost cost = cost_of_token(p, model);
    return cost.window ? RAD_MIN((uint64_t)context, model->sliding_window + cost.beside) : 0;
}

rad_status size_kv_pool(const rad_env *env, const engine_params *p, const runner_info *model,
                        uint64_t available_before, uint64_t available_now, double fraction,
                        kv_sizes *sizes, rad_error *err)
{
    token_cost cost = cost_of_token(p, model);
    rad_status status = check_fractions(p, err);
    if (status != RAD_OK) return status;
    if (fraction == 0) fraction = fraction_of(p);
    /* What others gave back meanwhile is no part of the fraction. */
    uint64_t available = RAD_MIN(available_now, available_before);
    uint64_t host_bytes = host_tier(p, &cost);
    if (available && available <= host_bytes)
        return no_room_beside_host(p->hicache_size, available, err);
    available -= host_bytes * (available != 0);
    double rest = (double)available - (double)available_before * (1 - fraction);
    uint64_t memory = rest > 0 ? (uint64_t)rest : 0, fits = tokens_in(&cost, memory);
    const bool with_host = p->enable_hierarchical_cache && !host_bytes && !p->on_gpu;
    const char *and_host = with_host ? " and the host tier" : "";
    *sizes = divide(p, model, &cost, memory, available != 0);
    if (available && cost.asked_states && cost.asked_states * cost.state > memory)
        return rad_fail(err, RAD_E_NOMEM,
                        "max_mamba_cache_size %llu: states of %.2f MB each; mem_fraction_static "
                        "%.2f has %.2f GB for them and the KV pool",
                        (unsigned long long)cost.asked_states, (double)cost.state / 1e6, fraction,
                        (double)memory / 1e9);
    if (p->max_total_tokens && sizes->tokens == p->max_total_tokens) return RAD_OK;
    if (sizes->tokens < MIN_POOL_TOKENS)
        return rad_fail(err, RAD_E_NOMEM,
                        "mem_fraction_static %.2f of %.2f GB leaves no room for the KV pool%s "
                        "beside the model (%llu bytes a token); %.2f GB are available now",
                        fraction, (double)available_before / 1e9, and_host,
                        (unsigned long long)(cost.full + cost.window), (double)available / 1e9);
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
                (unsigned long long)sizes->tokens);
    return RAD_OK;
}

/* Bytes of the host tier, where it lies beside a GPU's pools. */
static uint64_t host_tier_bytes(const engine_params *p, const runner_info *model,
                                const kv_sizes *sizes)
{
    const token_cost cost = cost_of_token(p, model);
    if (p->hicache_size > 0) return (uint64_t)(p->hicache_size * 1e9);
    return (uint64_t)(host_ratio(p) *
                      (double)(sizes->tokens * cost.full + sizes->window_tokens * cost.window +
                               sizes->states * cost.state));
}

rad_status fit_host_tier(const rad_env *env, engine_params *p, const runner_info *model,
                         const kv_sizes *sizes, uint64_t available, rad_error *err)
{
    if (!p->enable_hierarchical_cache || !p->on_gpu || !available) return RAD_OK;
    const uint64_t wanted = host_tier_bytes(p, model, sizes);
    const double most = HOST_SHARE * (double)available;
    if ((double)wanted <= most) return RAD_OK;
    if (p->hicache_size > 0 || p->hicache_ratio > 0)
        return rad_fail(
            err, RAD_E_NOMEM,
            "hicache: the host tier would take %.2f GB of pinned memory, and %.2f GB "
            "are available, of which %.0f%% may be pinned; --hicache-size %.0f would do",
            (double)wanted / 1e9, (double)available / 1e9, 100 * HOST_SHARE, floor(most / 1e9));
    p->hicache_size = most / 1e9;
    rad_log(env, RAD_LOG_WARN,
            "engine: the host tier has %.2f GB of pinned memory in place of %.2f: %.2f GB are "
            "available",
            most / 1e9, (double)wanted / 1e9, (double)available / 1e9);
    return RAD_OK;
}
