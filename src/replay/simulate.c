/* simulate.c - servers, a router before them, and what each request finds. */
#include "replay/simulate.h"

#include "base/bits.h"
#include "replay/sim_cache.h"

#include <stdlib.h>

enum { HASHED_PAGES = 4, DEFAULT_ATTENTION = 16384 };

typedef struct sim_server {
    sim_cache *device, *host; /* host: NULL, none */
    double free_at, busy_s;
    uint64_t load;  /* prompt tokens that it computed */
    uint64_t *seen; /* a bit for each page that it ever had; NULL: there is one server */
} sim_server;

typedef struct sim {
    rad_env env;
    const trace *t;
    const simulate_params *p;
    simulate_result *sum;
    sim_server servers[SIMULATE_MOST_SERVERS];
    uint32_t num_servers, page_size, attention_tokens;
    sim_cache *storage;
    rad_token *scratch;
    float *first_tokens; /* seconds to the first token, of each request; NULL: nothing is timed */
    uint64_t first_ms, last_ms;
} sim;

const char *simulate_router_name(unsigned router)
{
    static const char *const names[ROUTERS] = {
        [ROUTE_ROUND_ROBIN] = "round-robin", [ROUTE_HASH] = "hash", [ROUTE_CACHE] = "cache"};
    return router < ROUTERS ? names[router] : NULL;
}

static rad_status make_cache(const sim *s, const rad_eviction_options *eviction, uint64_t elements,
                             sim_cache **out, rad_error *err)
{
    const sim_cache_params c = {.eviction = *eviction,
                                .num_pages = elements / s->page_size,
                                .page_size = s->page_size,
                                .longest = trace_longest(s->t)};
    return sim_cache_create(&s->env, &c, out, err);
}

/* Never more than there is: what is larger than all pages of the trace evicts nothing either. */
static uint64_t enough(const sim *s, uint64_t elements)
{
    const uint64_t all = s->p->chains ? (s->p->chains->num_ids + 1) * (uint64_t)s->page_size +
                                            trace_longest(s->t)
                                      : elements;
    return RAD_MIN(elements, RAD_MAX(all, s->p->capacity_elements));
}

static rad_status sim_init(sim *s, rad_error *err)
{
    const simulate_params *p = s->p;
    rad_eviction_options eviction = p->eviction;
    if (p->policy && rad_eviction_policy_parse(p->policy, &eviction.policy, err))
        return RAD_E_INVAL;
    if (s->num_servers > SIMULATE_MOST_SERVERS)
        return rad_fail(err, RAD_E_INVAL, "%u servers are more than %d", s->num_servers,
                        SIMULATE_MOST_SERVERS);
    s->attention_tokens = eviction.cost_attention_tokens ? eviction.cost_attention_tokens
                                                         : DEFAULT_ATTENTION;
    eviction.cost_attention_tokens =
        RAD_MAX(s->attention_tokens / trace_tokens_per_element(s->t), 1u);
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < s->num_servers && status == RAD_OK; i++) {
        status = make_cache(s, &eviction, p->capacity_elements, &s->servers[i].device, err);
        if (status == RAD_OK && p->host_elements)
            status =
                make_cache(s, &eviction, enough(s, p->host_elements), &s->servers[i].host, err);
        if (s->num_servers < 2 || !p->chains) continue;
        s->servers[i].seen = rad_alloc(&s->env, bits_words(p->chains->num_ids + 1) * 8);
        if (!s->servers[i].seen) status = rad_fail(err, RAD_E_NOMEM, "no memory for a server");
    }
    if (status == RAD_OK && p->storage_elements)
        status = make_cache(s, &eviction, enough(s, p->storage_elements), &s->storage, err);
    if (status != RAD_OK) return status;
    const uint64_t n = trace_num_requests(s->t);
    s->scratch = rad_alloc(&s->env, ((size_t)trace_longest(s->t) + 1) * sizeof *s->scratch);
    if (p->prices.prompt_token_s > 0)
        s->first_tokens = rad_alloc(&s->env, (n + 1) * sizeof *s->first_tokens);
    if (!s->scratch || (p->prices.prompt_token_s > 0 && !s->first_tokens))
        return rad_fail(err, RAD_E_NOMEM, "no memory for a request");
    trace_request r;
    if (n) trace_get(s->t, 0, NULL, &r);
    s->first_ms = s->last_ms = n ? r.timestamp_ms : 0;
    if (n) trace_get(s->t, n - 1, NULL, &r);
    s->last_ms = n ? RAD_MAX(r.timestamp_ms, s->first_ms) : 0;
    return RAD_OK;
}

static void sim_fini(sim *s)
{
    for (uint32_t i = 0; i < RAD_MIN(s->num_servers, (uint32_t)SIMULATE_MOST_SERVERS); i++) {
        sim_cache_destroy(s->servers[i].device);
        sim_cache_destroy(s->servers[i].host);
        if (s->servers[i].seen)
            rad_free(&s->env, s->servers[i].seen, bits_words(s->p->chains->num_ids + 1) * 8);
    }
    sim_cache_destroy(s->storage);
    rad_free(&s->env, s->scratch, ((size_t)trace_longest(s->t) + 1) * sizeof *s->scratch);
    rad_free(&s->env, s->first_tokens, (trace_num_requests(s->t) + 1) * sizeof *s->first_tokens);
}

/* ---- the router ---- */

static uint32_t least_busy(const sim *s)
{
    uint32_t best = 0;
    for (uint32_t k = 1; k < s->num_servers; k++)
        if (s->servers[k].load < s->servers[best].load) best = k;
    return best;
}

static uint32_t by_hash(const sim *s, const trace_request *r)
{
    const uint32_t count = RAD_MIN(r->num_elements, HASHED_PAGES * s->page_size);
    uint64_t hash = 14695981039346656037u + r->number; /* FNV-1a, so that a run is repeatable */
    for (uint32_t i = 0; i < count; i++)
        hash = (hash ^ (uint32_t)r->elements[i]) * 1099511628211u;
    return (uint32_t)((hash ^ hash >> 32) % s->num_servers);
}

static uint32_t by_cache(const sim *s, const trace_request *r)
{
    uint32_t best = 0, most = 0;
    for (uint32_t k = 0; k < s->num_servers; k++) {
        uint32_t there = sim_cache_lookup(s->servers[k].device, r);
        if (s->servers[k].host) there = RAD_MAX(there, sim_cache_lookup(s->servers[k].host, r));
        if (there > most) {
            most = there;
            best = k;
        }
    }
    const uint32_t least = least_busy(s);
    const uint64_t far = s->servers[least].load + s->servers[least].load / 10 +
                         8 * r->prompt_tokens;
    return 2 * (uint64_t)most >= r->num_match && most && s->servers[best].load <= far ? best
                                                                                      : least;
}

static uint32_t route(const sim *s, const trace_request *r, uint64_t i)
{
    switch (s->p->router) {
    case ROUTE_HASH: return by_hash(s, r);
    case ROUTE_CACHE: return by_cache(s, r);
    default: return (uint32_t)(i % s->num_servers);
    }
}

/* ---- a request ---- */

/* Of computing the first `tokens` of a prompt. */
static double cost_of(const sim *s, uint64_t tokens)
{
    return (double)tokens * (1 + 0.5 * (double)tokens / s->attention_tokens);
}

static double seconds_of(const sim *s, uint64_t tokens)
{
    const double n = (double)tokens;
    return n * (s->p->prices.prompt_token_s + 0.5 * n * s->p->prices.pair_s);
}

/* Why the pages behind the first `hit` elements had to be computed. */
static void count_misses(sim *s, sim_server *server, uint64_t i, const trace_request *r,
                         uint32_t hit, uint64_t hit_tokens)
{
    const page_chains *c = s->p->chains;
    simulate_misses *m = &s->sum->misses;
    const uint64_t page_tokens = (uint64_t)s->page_size * trace_tokens_per_element(s->t);
    const uint32_t pages = r->num_match / s->page_size;
    uint64_t told = hit_tokens;
    for (uint32_t k = hit / s->page_size; k < pages; k++) {
        const uint32_t id = c->ids[c->start[i] + k];
        const uint64_t tokens = RAD_MIN(page_tokens, r->prompt_tokens - told);
        told += tokens;
        if (c->first_use[id] < i)
            *(server->seen && !bits_get(server->seen, id) ? &m->other_server : &m->evicted) +=
                tokens;
        else
            *(c->first_any[c->content[id]] < i ? &m->other_namespace : &m->first_seen) += tokens;
    }
    m->rounded += r->prompt_tokens - told;
    for (uint64_t at = c->start[i]; server->seen && at < c->start[i + 1]; at++)
        bits_set(server->seen, c->ids[at]);
}

/* When the server gets to it, and how long it takes. */
static void take_time(sim *s, sim_server *server, uint64_t i, const trace_request *r,
                      uint64_t device, uint64_t host, uint64_t storage)
{
    const simulate_prices *price = &s->p->prices;
    const uint64_t hit = device + host + storage;
    const double cold = seconds_of(s, r->prompt_tokens);
    const double prefill = cold - seconds_of(s, hit) + (double)host * price->load_token_s +
                           (double)storage * price->fetch_token_s;
    const double arrival = 1e-3 * (double)(r->timestamp_ms - RAD_MIN(s->first_ms, r->timestamp_ms));
    const double begin = RAD_MAX(arrival, server->free_at);
    const double work = prefill + (double)r->output_tokens * price->decode_s;
    server->free_at = begin + work;
    server->busy_s += work;
    s->sum->compute_s += cold;
    s->sum->saved_s += cold - prefill;
    s->first_tokens[i] = (float)(begin - arrival + prefill);
}

static uint32_t span_of(const sim *s, uint64_t i, const trace_request *r)
{
    const uint64_t length = s->last_ms - s->first_ms + 1;
    const uint64_t at =
        RAD_MIN(r->timestamp_ms - RAD_MIN(s->first_ms, r->timestamp_ms), length - 1);
    if (length > 1) return (uint32_t)((double)at / (double)length * SIMULATE_SPANS);
    return (uint32_t)(i * SIMULATE_SPANS / trace_num_requests(s->t));
}

static rad_status play(sim *s, uint64_t i, const trace_request *r, rad_error *err)
{
    simulate_result *sum = s->sum;
    sim_server *server = &s->servers[s->num_servers > 1 ? route(s, r, i) : 0];
    const uint64_t per_element = trace_tokens_per_element(s->t);
    uint32_t device = 0, host = 0, storage = 0;
    bool kept, below;
    rad_status status = sim_cache_play(server->device, r, &device, &kept, err);
    if (status == RAD_OK && server->host)
        status = sim_cache_play(server->host, r, &host, &below, err);
    if (status == RAD_OK && s->storage)
        status = sim_cache_play(s->storage, r, &storage, &below, err);
    if (status != RAD_OK) return status;
    host = RAD_MAX(host, device);
    const uint32_t hit = RAD_MAX(storage, host);
    const uint64_t device_tokens = RAD_MIN(device * per_element, r->prompt_tokens);
    const uint64_t host_tokens = RAD_MIN(host * per_element, r->prompt_tokens);
    const uint64_t hit_tokens = RAD_MIN(hit * per_element, r->prompt_tokens);
    sum->requests++;
    sum->too_large += !kept;
    sum->prompt_blocks += (r->num_prompt + s->page_size - 1) / s->page_size;
    sum->prompt_tokens += r->prompt_tokens;
    sum->hit_blocks += hit / s->page_size;
    sum->hit_tokens += hit_tokens;
    sum->host_tokens += host_tokens - device_tokens;
    sum->storage_tokens += hit_tokens - host_tokens;
    sum->prompt_cost += cost_of(s, r->prompt_tokens);
    sum->hit_cost += cost_of(s, hit_tokens);
    server->load += r->prompt_tokens - hit_tokens;
    const uint32_t span = span_of(s, i, r);
    sum->span_prompt[span] += r->prompt_tokens;
    sum->span_hit[span] += hit_tokens;
    if (s->p->chains) count_misses(s, server, i, r, hit, hit_tokens);
    if (s->first_tokens)
        take_time(s, server, i, r, device_tokens, host_tokens - device_tokens,
                  hit_tokens - host_tokens);
    return RAD_OK;
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void sum_up_times(sim *s)
{
    simulate_result *r = s->sum;
    const uint64_t n = r->requests;
    double sum = 0, end = 1e-3 * (double)(s->last_ms - s->first_ms), busiest = 0;
    if (!s->first_tokens || !n) return;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)s->first_tokens[i];
    qsort(s->first_tokens, n, sizeof *s->first_tokens, by_size);
    r->first_token_s = sum / (double)n;
    r->first_token_p95_s = (double)s->first_tokens[(n - 1) * 95 / 100];
    for (uint32_t k = 0; k < s->num_servers; k++) {
        end = RAD_MAX(end, s->servers[k].free_at);
        busiest = RAD_MAX(busiest, s->servers[k].busy_s);
    }
    r->busiest = end > 0 ? busiest / end : 0;
}

rad_status simulate(const rad_env *env, const trace *t, const simulate_params *params,
                    simulate_result *result, rad_error *err)
{
    sim s = {.env = rad_env_or_default(env),
             .t = t,
             .p = params,
             .sum = result,
             .num_servers = RAD_MAX(params->num_servers, 1u),
             .page_size = RAD_MAX(params->page_size, 1u)};
    *result = (simulate_result){0};
    rad_status status = sim_init(&s, err);
    uint64_t start = s.env.now_ns(s.env.user);
    for (uint64_t i = 0; !status && i < trace_num_requests(t); i++) {
        trace_request r;
        trace_get(t, i, s.scratch, &r);
        status = play(&s, i, &r, err);
    }
    result->seconds = 1e-9 * (double)(s.env.now_ns(s.env.user) - start);
    for (uint32_t k = 0; !status && k < s.num_servers; k++) {
        status = sim_cache_check(s.servers[k].device, err);
        result->evicted_elements += sim_cache_evicted(s.servers[k].device);
    }
    if (status == RAD_OK) sum_up_times(&s);
    sim_fini(&s);
    return status;
}
