/* engine_record.c - the scheduler's cache operations on their way to the recorder. */
#include "engine/engine_impl.h"
#include "sched/step_cost.h"

#include <time.h>

rad_status engine_record_open(engine *e, rad_error *err)
{
    const engine_params *p = &e->params;
    if (!p->record) return RAD_OK;
    const recorder_params r = {.path = p->record, .limit_bytes = p->record_limit};
    return recorder_create(&e->env, &r, &e->recorder, err);
}

void engine_on_cache_op(void *user, const cache_tap_op *op)
{
    engine *e = user;
    recorder_tap(e->recorder, op);
}

static void tell_inexact(engine *e, const record_head *head)
{
    const bool why[RECORD_INEXACT_REASONS] = {
        [RECORD_INEXACT_TIERS] = e->tiers.enabled &&
                                 (e->tiers.has_store || head->window_tokens || head->states),
        [RECORD_INEXACT_CHUNK] = head->chunk,
        [RECORD_INEXACT_TURNS] = head->streaming_sessions && (head->page_size > 1 || head->states),
    };
    for (unsigned i = 0; i < RECORD_INEXACT_REASONS; i++)
        if (why[i]) recorder_inexact(e->recorder, i);
}

rad_status engine_record_start(engine *e, rad_error *err)
{
    const engine_params *p = &e->params;
    if (!e->recorder) return RAD_OK;
    scheduler_stats pool;
    scheduler_get_stats(e->scheduler, &pool);
    const rad_hicache_params *tiers = &e->tiers.hicache; /* all 0 without */
    const record_head head = {
        .started_s = (uint64_t)time(NULL),
        .max_total_tokens = pool.max_total_tokens,
        .max_pinned_tokens = p->max_pinned_tokens,
        .host_tokens = pool.tiers.host_tokens,
        .write_policy = tiers->write_policy,
        .load_back_threshold = tiers->load_back_threshold,
        .max_transfers = tiers->max_transfers,
        .demote_tokens = tiers->demote_tokens,
        .prefetch_tokens = tiers->prefetch_tokens,
        .host_max_pinned_tokens = tiers->host_max_pinned_tokens,
        .host_policy = tiers->host_eviction.policy,
        .host_protected_threshold = tiers->host_eviction.protected_threshold,
        .host_cost_half_life_percent = tiers->host_eviction.cost_half_life_percent,
        .host_cost_attention_tokens = tiers->host_eviction.cost_attention_tokens,
        .page_size = p->page_size,
        .chunk = p->disable_radix_cache,
        .policy = p->eviction.policy,
        .protected_threshold = p->eviction.protected_threshold,
        .cost_half_life_percent = p->eviction.cost_half_life_percent,
        .cost_attention_tokens = p->eviction.cost_attention_tokens,
        .max_namespaces = p->max_namespaces,
        .max_sessions = p->max_sessions,
        .streaming_sessions = p->streaming_sessions,
        .retention = p->retention,
        .max_rows = p->max_running_requests,
        .row_tokens = scheduler_context_length(e->scheduler),
        .window = scheduler_window(e->scheduler),
        .window_tokens = pool.window_total_tokens,
        .states = pool.states_total};
    rad_status status = recorder_start(e->recorder, &head, err);
    if (status == RAD_OK) tell_inexact(e, &head);
    return status;
}

static recorder_prices prices_of(const step_cost *cost)
{
    enum { TOKENS = 256, CONTEXT = 4096 };
    if (!cost->most_prompt_tokens) return (recorder_prices){0};
    const double near = step_cost_prompt_ns(cost, 0, TOKENS);
    const double far = step_cost_prompt_ns(cost, CONTEXT, TOKENS);
    const double one = step_cost_ns(cost, &(step_work){.num_decodes = 1});
    const double two = step_cost_ns(cost, &(step_work){.num_decodes = 2});
    return (recorder_prices){.prompt_token = near / TOKENS,
                             .pair = (far - near) / TOKENS / CONTEXT,
                             .decode = two - one,
                             .step = 2 * one - two};
}

void engine_record_counters(engine *e)
{
    if (!e->recorder || !e->scheduler) return;
    scheduler_stats stats;
    rad_cache_stats cache;
    scheduler_get_stats(e->scheduler, &stats);
    rad_cache_get_stats(scheduler_cache(e->scheduler), &cache);
    const recorder_prices prices = prices_of(scheduler_step_cost(e->scheduler));
    recorder_counters(e->recorder, &stats, &cache, &prices);
}

void engine_record_step(engine *e)
{
    if (!e->recorder) return;
    if (recorder_wants_counters(e->recorder, scheduler_forward_steps(e->scheduler)))
        engine_record_counters(e);
    recorder_flush(e->recorder);
}
