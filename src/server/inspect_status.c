/* inspect_status.c - GET /inspect/status: pools, counters, times, requests, evictions, in one look.
 *
 * Counters grow from the start: who asks twice has rates, and of the histograms' differences the
 * quantiles of just that time. Names of requests are the loop's, so they are noted down before the
 * worker looks. */
#include "server/cached_tokens.h"
#include "server/server_priv.h"
#include <radish/radish.h>

#include <stdlib.h>
#include <time.h>

enum { MOST_NAMES = 512, RECENT_EVICTIONS = 32 };

typedef struct request_name {
    uint64_t id; /* the engine's */
    char name[48];
} request_name;

typedef struct status_work {
    uint64_t http_requests, http_failed;
    uint32_t num_names;
    request_name names[MOST_NAMES];
    engine_look look;
} status_work;

static void write_int(json_writer *w, const char *name, uint64_t value)
{
    jw_name(w, name);
    jw_int(w, (int64_t)value);
}

static void write_real(json_writer *w, const char *name, double value)
{
    jw_name(w, name);
    jw_real(w, value);
}

static void write_word(json_writer *w, const char *name, const char *word)
{
    jw_name(w, name);
    jw_word(w, word);
}

static void write_bool(json_writer *w, const char *name, bool value)
{
    jw_name(w, name);
    jw_json(w, json_boolean(value));
}

/* ---- pools ---- */

typedef struct pool_figures {
    const char *component, *tier, *unit;
    uint64_t total, used, protected, evictable, available, unit_bytes;
} pool_figures;

static void write_pool(json_writer *w, const pool_figures *p)
{
    if (!p->total) return;
    jw_open(w, '{');
    write_word(w, "component", p->component);
    write_word(w, "tier", p->tier);
    write_word(w, "unit", p->unit);
    write_int(w, "total", p->total);
    write_int(w, "held", p->used);
    write_int(w, "protected", p->protected);
    write_int(w, "evictable", p->evictable);
    write_int(w, "available", p->available);
    write_int(w, "unit_bytes", p->unit_bytes);
    jw_close(w, '}');
}

/* Of a lower tier nobody but the cache has anything. */
static pool_figures lower(const char *component, const char *tier, const char *unit, uint64_t total,
                          uint64_t used, uint64_t unit_bytes)
{
    return (pool_figures){.component = component,
                          .tier = tier,
                          .unit = unit,
                          .total = total,
                          .evictable = RAD_MIN(used, total),
                          .available = total - RAD_MIN(used, total),
                          .unit_bytes = unit_bytes};
}

static void write_pools(json_writer *w, server *s, const scheduler_stats *f)
{
    const engine_info *i = engine_get_info(s->engine);
    const rad_hicache_stats *t = &f->tiers;
    const pool_figures pools[] = {
        {"full", "device", "tokens", f->max_total_tokens, f->held_tokens, f->protected_tokens,
         f->evictable_tokens, f->available_tokens, i->kv_bytes_per_token},
        {"window", "device", "tokens", f->window_total_tokens, f->window_held_tokens,
         f->window_protected_tokens, f->window_evictable_tokens, f->window_available_tokens,
         i->window_kv_bytes_per_token},
        {"state", "device", "states", f->states_total, f->states_held, f->states_protected,
         f->states_evictable, f->states_available, i->state_bytes},
        lower("full", "host", "tokens", t->host_tokens, t->host_used_tokens, i->kv_bytes_per_token),
        lower("window", "host", "tokens", t->host_window_tokens, t->host_window_used_tokens,
              i->window_kv_bytes_per_token),
        lower("state", "host", "states", t->host_states, t->host_used_states, i->state_bytes)};
    jw_name(w, "pools");
    jw_open(w, '[');
    for (size_t k = 0; k < RAD_COUNT(pools); k++)
        write_pool(w, &pools[k]);
    engine_storage_status store;
    engine_get_storage_status(s->engine, &store);
    if (store.attached) {
        const pool_figures kept =
            lower("full", "storage", "bytes", store.store.max_bytes, store.store.bytes, 1);
        write_pool(w, &kept);
    }
    jw_close(w, ']');
    jw_name(w, "storage");
    if (!store.attached) {
        jw_null(w);
        return;
    }
    jw_open(w, '{');
    write_word(w, "backend", store.spec);
    write_bool(w, "down", store.store.down);
    write_int(w, "pages", store.store.pages);
    write_int(w, "hits", store.store.hits);
    write_int(w, "gets", store.store.gets);
    write_int(w, "sets", store.store.sets);
    write_int(w, "errors", store.store.errors);
    write_real(w, "age_s", (double)store.store_age_ns * 1e-9);
    jw_close(w, '}');
}

/* ---- counters ---- */

static void write_counters(json_writer *w, const status_work *q)
{
    const engine_stats *e = &q->look.stats;
    const scheduler_stats *f = &e->sched;
    const struct {
        const char *name;
        uint64_t value;
    } counters[] = {
        {"http_requests", q->http_requests},
        {"http_failed", q->http_failed},
        {"requests", e->requests.num_requests},
        {"finished", e->requests.num_finished},
        {"aborted", e->requests.num_aborted},
        {"failed", e->requests.num_failed},
        {"retractions", f->num_retractions},
        {"held_back", f->num_held_back},
        {"prompt_tokens", f->prompt_tokens},
        {"computed_tokens", f->prompt_tokens - RAD_MIN(f->prompt_tokens, f->cached_tokens)},
        {"cached_device_tokens", f->cached_tokens - f->loaded_tokens},
        {"cached_host_tokens", f->loaded_tokens - f->fetched_tokens},
        {"cached_storage_tokens", f->fetched_tokens},
        {"prefill_tokens", f->prefill_tokens},
        {"generated_tokens", f->generated_tokens},
        {"evicted_tokens", f->evicted_tokens},
        {"host_evicted_tokens", f->tiers.host_evicted_tokens},
        {"forward_steps", f->forward_steps},
        {"kv_read_bytes", f->kv_read_bytes},
        {"kv_unshared_bytes", f->kv_unshared_bytes},
        {"self_checks", f->self_check.num_checks},
        {"self_check_violations", f->self_check.num_violations}};
    jw_name(w, "counters");
    jw_open(w, '{');
    for (size_t i = 0; i < RAD_COUNT(counters); i++)
        write_int(w, counters[i].name, counters[i].value);
    write_real(w, "forward_s", (double)f->forward_ns * 1e-9);
    write_real(w, "schedule_s", (double)f->schedule_ns * 1e-9);
    jw_close(w, '}');
    jw_name(w, "now");
    jw_open(w, '{');
    write_int(w, "running", f->num_running);
    write_int(w, "waiting", f->num_waiting);
    write_int(w, "sessions_open", f->sessions.open);
    write_int(w, "pinned_tokens", f->pinned_tokens);
    write_int(w, "namespaces", f->namespaces.used);
    write_int(w, "transfers", f->tiers.tickets);
    write_real(w, "self_check_age_s", (double)f->self_check.age_ns * 1e-9);
    jw_close(w, '}');
}

static void write_latency(json_writer *w, const engine_look *look)
{
    jw_name(w, "latency");
    jw_open(w, '{');
    jw_name(w, "bounds_s");
    jw_open(w, '[');
    for (int i = 0; i < LATENCY_BOUNDS; i++)
        jw_real(w, latency_bounds[i]);
    jw_close(w, ']');
    for (int kind = 0; kind < LATENCY_KINDS; kind++) {
        const latency_histogram *h = &look->latency[kind];
        jw_name(w, latency_names[kind]);
        jw_open(w, '{');
        write_int(w, "count", h->count);
        write_real(w, "sum_s", (double)h->sum_ns * 1e-9);
        jw_name(w, "counts");
        jw_open(w, '[');
        for (int i = 0; i <= LATENCY_BOUNDS; i++)
            jw_int(w, (int64_t)h->counts[i]);
        jw_close(w, ']');
        jw_close(w, '}');
    }
    jw_close(w, '}');
}

/* ---- requests ---- */

static const char *name_of(const status_work *q, uint64_t id)
{
    for (uint32_t i = 0; i < q->num_names; i++)
        if (q->names[i].id == id) return q->names[i].name;
    return NULL;
}

static void write_request(json_writer *w, const status_work *q, const engine_request_look *r)
{
    static const char *const states[] = {"waiting", "fetching", "prefill", "decode"};
    jw_open(w, '{');
    write_int(w, "id", r->id);
    write_word(w, "name", name_of(q, r->id));
    write_word(w, "state", states[r->state]);
    write_real(w, "age_s", (double)r->age_ns * 1e-9);
    write_int(w, "prompt_tokens", r->prompt_tokens);
    write_int(w, "computed_tokens", r->computed_tokens);
    write_int(w, "output_tokens", r->output_tokens);
    jw_name(w, "max_new_tokens");
    if (r->max_new_tokens == UINT32_MAX)
        jw_null(w);
    else
        jw_int(w, r->max_new_tokens);
    write_int(w, "cached_tokens", r->hits.cached);
    write_int(w, "node", r->node.index);
    write_int(w, "session", r->session);
    jw_name(w, "priority");
    jw_int(w, r->priority);
    write_int(w, "retractions", r->retractions);
    jw_name(w, "explanation");
    if (r->why.known)
        jw_json(w, json_explain_hits(&r->hits, &r->why));
    else
        jw_null(w);
    jw_close(w, '}');
}

/* ---- evictions ---- */

static void write_causes(json_writer *w, const char *tier, const uint64_t tokens[2])
{
    jw_name(w, tier);
    jw_open(w, '{');
    for (uint32_t cause = 0; cause < 2; cause++)
        write_int(w, json_eviction_cause(cause), tokens[cause]);
    jw_close(w, '}');
}

static void write_evictions(json_writer *w, server *s, const engine_look *look)
{
    const eviction_notes *e = &look->evictions;
    jw_name(w, "evictions");
    jw_open(w, '{');
    write_word(w, "policy", engine_get_info(s->engine)->eviction_policy);
    write_int(w, "count", e->count);
    jw_name(w, "tokens");
    jw_open(w, '{');
    write_causes(w, "device", e->tokens[0]);
    write_causes(w, "host", e->tokens[1]);
    jw_close(w, '}');
    jw_name(w, "recent");
    jw_open(w, '[');
    for (uint64_t i = 0; i < RAD_MIN(e->count, (uint64_t)RECENT_EVICTIONS); i++) {
        const eviction_note *n = &e->last[(e->count - 1 - i) % EVICTION_NOTES];
        jw_open(w, '{');
        write_real(w, "age_s", (double)(look->now_ns - RAD_MIN(look->now_ns, n->time_ns)) * 1e-9);
        write_int(w, "node", n->node);
        write_int(w, "namespace", n->namespace_id);
        write_int(w, "tokens", n->tokens);
        write_int(w, "hits", n->hit_count);
        write_int(w, "idle_operations", n->idle_operations);
        write_word(w, "tier", n->on_host ? "host" : "device");
        write_word(w, "cause", json_eviction_cause(n->cause));
        write_bool(w, "whole", n->whole);
        jw_close(w, '}');
    }
    jw_close(w, ']');
    jw_close(w, '}');
}

static call_progress work_status(call *c)
{
    status_work *q = c->work_arg;
    server *s = c->server;
    const engine_info *i = engine_get_info(s->engine);
    struct timespec now;
    rad_status status = engine_look_at(s->engine, &q->look);
    if (status || !inspect_begin(c)) {
        inspect_fail(c, status ? status : RAD_E_NOMEM);
        return CALL_DONE;
    }
    json_writer w;
    clock_gettime(CLOCK_REALTIME, &now);
    json_writer_begin(&w, c->out);
    jw_open(&w, '{');
    write_word(&w, "radish", RAD_VERSION_STRING);
    write_word(&w, "model", models_name(s, 0));
    write_word(&w, "architecture", i->architecture);
    write_word(&w, "computes_on", i->computes_on);
    write_word(&w, "schedule_policy", i->schedule_policy);
    write_int(&w, "context_length", i->context_length);
    write_int(&w, "page_size", i->page_size);
    write_bool(&w, "radix_cache", i->radix_cache);
    write_bool(&w, "tiers", i->hierarchical_cache);
    write_bool(&w, "chat", i->chat_template[0] != 0);
    write_bool(&w, "text", s->params.dashboard_text);
    write_real(&w, "uptime_s", (double)(server_now_ns(s) - s->started_ns) * 1e-9);
    write_int(&w, "unix_ms", (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
    write_pools(&w, s, &q->look.stats.sched);
    write_counters(&w, q);
    write_latency(&w, &q->look);
    jw_name(&w, "requests");
    jw_open(&w, '[');
    for (uint32_t k = 0; k < q->look.num_requests; k++)
        write_request(&w, q, &q->look.requests[k]);
    jw_close(&w, ']');
    write_bool(&w, "more_requests", q->look.more_requests);
    write_evictions(&w, s, &q->look);
    jw_close(&w, '}');
    if (!json_writer_end(&w)) inspect_fail(c, RAD_E_NOMEM);
    return CALL_DONE;
}

static void note_names(const server *s, status_work *q)
{
    for (const call *c = s->calls.first; c; c = c->next)
        for (uint32_t i = 0; !c->busy && c->id[0] && i < c->num_items; i++) {
            if (q->num_names == MOST_NAMES) return;
            if (!c->items[i].submitted || c->items[i].finished) continue;
            request_name *to = &q->names[q->num_names++];
            to->id = c->items[i].id;
            snprintf(to->name, sizeof to->name, "%.*s", (int)sizeof to->name - 1, c->id);
        }
}

static const call_ops status_ops = {.answer = inspect_answer, .work = work_status};

void handle_inspect_status(server *s, struct evhttp_request *http)
{
    api_error err;
    status_work *work = NULL;
    if (inspect_may(s, &err) && inspect_query(http, "", &err) && !(work = malloc(sizeof *work)))
        api_fail(&err, 503, NULL, "no memory for this request");
    if (!work) {
        reply_error(http, &err);
        return;
    }
    work->http_requests = s->num_http_requests;
    work->http_failed = s->num_failed_requests;
    work->num_names = 0;
    note_names(s, work);
    call_start_work(s, &s->workers[WORKER_INSPECT], &status_ops, http, 0, work);
}
