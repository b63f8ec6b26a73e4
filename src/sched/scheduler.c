/* scheduler.c - the step, and the scheduler's life.
 *
 * Everything that a step needs is allocated in create; the steady state touches the
 * heap only where a request's own ids grow.
 *
 * Nothing here overlaps the forward pass, since there is nothing to win: a decode step of 32
 * requests costs 2 us here, of 256 14 us, one that admits two of 10,000 waiting requests some 50 us
 * (bench_sched). Reading llama-110m's bf16 weights once takes 5 ms, so a decode step of 32 is less
 * than 0.1% ours. Choosing tokens is the runner's where it can (next_token.c). Not in these
 * figures: what on_output does, which in a server wakes other threads; on busy cores schedule_ns
 * then counts their turn as well.
 *
 * Invariant between two steps: every request is in `waiting` and holds nothing, or in
 * `running` with a row, a lock and allocated_len == committed_len. */
#include "sched/verify_run.h"

enum { MOST_SORTED_PAGES = 2 << 20 }; /* of more, the last freed is taken first */

/* ---- the step ---- */

/* Both queues, but only when somebody asked. */
static bool release_cancelled(scheduler *s)
{
    if (!atomic_exchange(&s->cancels, false)) return false;
    for (req *r = s->waiting.first, *next; r; r = next) {
        next = r->wait_next;
        int why = atomic_load(&r->cancel);
        if (why) finish_req(s, r, (req_finish)why, -1, true);
    }
    for (uint32_t i = s->tiers.num_fetching; i-- > 0;) {
        int why = atomic_load(&s->tiers.fetching[i]->cancel);
        if (why) finish_req(s, s->tiers.fetching[i], (req_finish)why, -1, true);
    }
    for (uint32_t i = s->num_running; i-- > 0;) {
        int why = atomic_load(&s->running[i]->cancel);
        if (why) finish_req(s, s->running[i], (req_finish)why, -1, true);
    }
    return true;
}

/* Must come before the results are processed: those change the requests' states. */
static void tell_step(scheduler *s, const attn_kv_reads *reads, uint64_t forward_ns)
{
    const schedule_batch *b = &s->batch;
    step_info step = {.forward_ns = forward_ns,
                      .logits_rows = b->num_logits,
                      .kv_read_bytes = reads->bytes,
                      .kv_unshared_bytes = reads->unshared_bytes};
    for (uint32_t i = 0; i < b->num_reqs; i++) {
        uint64_t prefix = b->extend_prefix_lens[i], fresh = b->extend_seq_lens[i];
        uint64_t context = prefix * fresh + fresh * (fresh + 1) / 2;
        if (b->reqs[i]->state == REQ_DECODE) {
            step.decode_tokens++;
            step.decode_context += prefix + 1;
            step.draft_tokens += (uint32_t)fresh - 1;
            step.draft_context += context - (prefix + 1);
        } else {
            step.prefill_tokens += (uint32_t)fresh;
            step.prefill_context += context;
        }
    }
    s->params.on_step(s->params.step_user, &step);
}

/* What the requests of this step share, and what that saves. */
static void find_groups(scheduler *s)
{
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < s->batch.num_reqs; i++)
        tokens += s->batch.seq_lens[i];
    s->stats.context_tokens += tokens;
    s->stats.distinct_context_tokens += tokens;
    if (s->params.disable_tree_attention || s->params.cache_kind == RAD_CACHE_CHUNK) return;
    batch_groups_update(&s->groups, &s->batch, &s->pools, &s->forward);
    s->stats.distinct_context_tokens -= s->groups.shared_tokens;
}

static void run_batch(scheduler *s)
{
    rad_error err = {0}, why = {0};
    const float *logits = NULL;
    rad_status status;
    /* A session that was emptied for these pages publishes them first, and the host may be getting
     * its copy: they are free when that has ended. */
    for (uint32_t i = 0; s->pools.states.pool && i < s->batch.num_reqs; i++) {
        req *r = s->batch.reqs[i];
        r->num_forks = r->state == REQ_PREFILL ? wait_queue_forks(&s->waiting, r, r->forks) : 0;
    }
    do
        status = schedule_batch_prepare_for_extend(&s->batch, &s->pools, &s->forward, &why);
    while (status == RAD_FULL && tiers_wait_for_pages(s));
    if (status != RAD_OK) {
        s->stats.kv_errors++;
        rad_fail(&err, RAD_E_STATE, "scheduler: %llu pages were promised and could not be had: %s",
                 (unsigned long long)s->batch.num_pages, why.text);
        rad_log(&s->env, RAD_LOG_ERROR, "%s", err.text);
        fail_batch(s, &err);
        return;
    }

    find_groups(s);
    tiers_ready_to_load(s);
    attn_kv_reads reads = {0};
    s->forward.kv_reads = &reads;
    draft_nextn_tell(s);
    begin_masks(s);
    uint64_t start = s->env.now_ns(s->env.user);
    status = runner_forward(s->params.runner, &s->forward, wants_logits(s) ? &logits : NULL, &err);
    uint64_t sampling = s->env.now_ns(s->env.user), forward_ns = sampling - start;
    wait_for_masks(s);
    s->stats.forward_ns += forward_ns;
    s->stats.forward_steps++;
    s->stats.kv_read_bytes += reads.bytes;
    s->stats.kv_unshared_bytes += reads.unshared_bytes;
    if (status == RAD_OK) status = sample_batch(s, logits, &err);
    s->stats.sample_ns += s->env.now_ns(s->env.user) - sampling;
    if (status != RAD_OK) {
        err.status = status;
        rad_log(&s->env, RAD_LOG_ERROR, "scheduler: a step of %u requests failed: %s",
                s->batch.num_reqs, err.text);
        fail_batch(s, &err);
        return;
    }
    if (s->params.on_step) tell_step(s, &reads, forward_ns);
    process_batch_result(s, logits);
}

static step_work batch_work(const scheduler *s)
{
    const schedule_batch *b = &s->batch;
    step_work work = {0};
    for (uint32_t i = 0; i < b->num_reqs; i++) {
        work.pairs += step_pairs(b->extend_prefix_lens[i], b->extend_seq_lens[i]);
        if (b->reqs[i]->state == REQ_DECODE)
            work.num_decodes++;
        else
            work.prompt_tokens += b->extend_seq_lens[i];
        work.draft_rows += b->num_drafts[i];
        work.draft_pairs += step_pairs(b->extend_prefix_lens[i] + 1, b->num_drafts[i]);
    }
    const uint32_t decodes = work.num_decodes + work.draft_rows;
    work.prompt_ends = b->num_logits - RAD_MIN(b->num_logits, decodes);
    return work;
}

bool scheduler_step(scheduler *s)
{
    uint64_t start = s->env.now_ns(s->env.user);
    s->drafts.prepare_ns = 0;
    uint64_t forward_ns = s->stats.forward_ns, model_ns = forward_ns + s->stats.sample_ns;

    tiers_poll(s);
    bool busy = release_cancelled(s), verified = false;
    tiers_admit_fetched(s);
    step_work work = {0};
    if (get_next_batch_to_run(s)) {
        work = batch_work(s);
        run_batch(s);
        busy = true;
    } else if (scheduler_is_idle(s)) {
        verified = verify_idle_step(s); /* a forward pass that is in no figure of ours */
    }
    if (s->num_outputs) busy = true;
    uint64_t handing = s->env.now_ns(s->env.user);
    flush_outputs(s); /* wakes other threads, which may take this one's turn */
    uint64_t output_ns = s->env.now_ns(s->env.user) - handing;
    s->stats.output_ns += output_ns;
    if (!busy && !verified && tiers_wait(s)) busy = true;

    uint64_t step_ns = s->env.now_ns(s->env.user) - start;
    model_ns = s->stats.forward_ns + s->stats.sample_ns - model_ns;
    const uint64_t prepare_ns = s->drafts.prepare_ns;
    if (busy && !verified) s->stats.schedule_ns += step_ns - model_ns - output_ns - prepare_ns;
    if (busy || verified) s->check.quiet_ns = start + step_ns;
    if (s->stats.forward_ns != forward_ns) {
        const double ns = (double)(step_ns - prepare_ns);
        step_cost_observe(&s->cost, &work, ns);
        draft_observe(&s->drafts, &work, ns);
        verify_busy_step(s);
    }
    return busy || verified;
}

/* ---- requests come and go ---- */

rad_status scheduler_add(scheduler *s, req *r, rad_error *err)
{
    uint32_t vocab_size = s->params.runner->info.vocab_size;
    if (r->num_input > s->context_length)
        return rad_fail(err, RAD_E_LIMIT, "the prompt has %u tokens, the context is %u tokens long",
                        r->num_input, s->context_length);
    for (uint32_t i = 0; i < r->num_input; i++)
        if (r->fill_ids[i] < 0 || (uint32_t)r->fill_ids[i] >= vocab_size)
            return rad_fail(err, RAD_E_INVAL, "token id %d at %u is not in the vocabulary of %u",
                            r->fill_ids[i], i, vocab_size);
    if (s->waiting.count + s->tiers.num_fetching >= s->params.max_queued_requests)
        return rad_fail(err, RAD_FULL, "%u requests are waiting",
                        s->waiting.count + s->tiers.num_fetching);

    r->max_new_tokens = RAD_MIN(r->max_new_tokens, s->context_length - r->num_input);
    state_find_turns(&s->pools.states, r);
    r->state = REQ_WAITING;
    r->arrival = ++s->num_arrivals;
    CACHE_TAP(&s->pools.tap, TAP_ARRIVE, r);
    if (!tiers_arrive(s, r)) wait_queue_add(&s->waiting, r);
    if (atomic_load(&r->cancel)) atomic_store(&s->cancels, true);
    return RAD_OK;
}

void scheduler_cancel(scheduler *s, req *r, req_finish why)
{
    int none = 0;
    atomic_compare_exchange_strong(&r->cancel, &none, (int)why);
    atomic_store(&s->cancels, true);
}

bool scheduler_is_idle(const scheduler *s)
{
    return s->waiting.count == 0 && s->num_running == 0 && s->tiers.num_fetching == 0;
}

bool scheduler_has_background(const scheduler *s)
{
    rad_hicache_stats stats;
    return s->verify.first ||
           (rad_hicache_get_stats(s->pools.inner_cache, &stats) == RAD_OK && stats.tickets);
}

bool scheduler_has_cancels(const scheduler *s)
{
    return atomic_load(&s->cancels);
}

uint32_t scheduler_context_length(const scheduler *s)
{
    return s->context_length;
}

schedule_policy scheduler_policy(const scheduler *s)
{
    return s->params.policy;
}

rad_token_to_kv_pool *scheduler_kv_pool(const scheduler *s)
{
    return s->pools.token_to_kv_pool;
}

size_t scheduler_used_slots(const scheduler *s)
{
    return ((size_t)rad_kv_highest_page(s->pools.kv_allocator) + 1) * s->pools.page_size;
}

rad_token_to_kv_pool *scheduler_window_pool(const scheduler *s)
{
    return s->pools.window.kv_pool;
}

size_t scheduler_used_window_slots(const scheduler *s)
{
    return s->pools.window.used;
}

void begin_anew(scheduler *s)
{
    rad_kv_allocator *kv = s->pools.kv_allocator;
    if (rad_kv_available_pages(kv) == rad_kv_num_pages(kv)) rad_kv_clear(kv);
}

rad_status reset_cache(scheduler *s)
{
    rad_status status = rad_cache_reset(s->pools.tree_cache);
    CACHE_TAP(&s->pools.tap, TAP_RESET);
    draft_recent_clear(&s->drafts.recent);
    begin_anew(s);
    return status;
}

/* ---- create and destroy ---- */

static rad_status check_params(const scheduler_params *p, rad_error *err)
{
    if (!p->runner || !p->on_output || !p->max_running_requests || !p->max_queued_requests)
        return rad_fail(err, RAD_E_INVAL,
                        "scheduler: runner, on_output, max_running_requests and "
                        "max_queued_requests are needed");
    uint64_t pages = p->max_total_tokens / RAD_MAX(p->page_size, 1u);
    if (pages < 1)
        return rad_fail(err, RAD_E_INVAL,
                        "max_total_tokens %llu is less than one page of %u tokens",
                        (unsigned long long)p->max_total_tokens, RAD_MAX(p->page_size, 1u));
    if ((pages + 1) * RAD_MAX(p->page_size, 1u) > INT32_MAX)
        return rad_fail(err, RAD_E_INVAL, "max_total_tokens %llu is more than 2^31 slots",
                        (unsigned long long)p->max_total_tokens);
    if (p->max_running_requests > 1u << 20 || p->max_queued_requests > 1u << 24)
        return rad_fail(err, RAD_E_INVAL, "too many requests at one time: %u running, %u queued",
                        p->max_running_requests, p->max_queued_requests);
    if (p->cache_kind == RAD_CACHE_CHUNK &&
        (p->max_sessions || p->max_pinned_tokens || p->retention))
        return rad_fail(
            err, RAD_E_INVAL,
            "scheduler: sessions, pins and retention need a cache that keeps something");
    if (p->cache_kind == RAD_CACHE_CHUNK && p->kv_events)
        return rad_fail(err, RAD_E_INVAL,
                        "scheduler: KV events need a cache that keeps something");
    if (p->streaming_sessions && !p->max_sessions)
        return rad_fail(err, RAD_E_INVAL, "scheduler: streaming_sessions without max_sessions");
    if (!(p->verify_rate >= 0 && p->verify_rate <= 1))
        return rad_fail(err, RAD_E_INVAL, "verify rate %g is not a share, 0 to 1", p->verify_rate);
    if ((unsigned)p->policy >= SCHEDULE_NUM_POLICIES)
        return rad_fail(err, RAD_E_INVAL, "there is no schedule policy %u", (unsigned)p->policy);
    if (p->max_draft_tokens > DRAFT_MOST)
        return rad_fail(err, RAD_E_INVAL, "%u tokens are drafted at one time, %d can be",
                        p->max_draft_tokens, DRAFT_MOST);
    if (p->chunked_prefill_size > 1u << 24)
        return rad_fail(err, RAD_E_INVAL, "chunked_prefill_size %u is too large",
                        p->chunked_prefill_size);
    return RAD_OK;
}

/* How many evicted pages are remembered, 56 bytes each: some times what the pool has. */
static uint32_t explain_pages(const scheduler *s)
{
    enum { FEWEST = 1 << 10, MOST = 1 << 16, TIMES = 4 };
    uint64_t pages = (uint64_t)s->max_total_pages * TIMES;
    return (uint32_t)RAD_MIN(RAD_MAX(pages, (uint64_t)FEWEST), (uint64_t)MOST);
}

/* The cache's copy_slots: full slots, if there are layers without a window, and what stands under
 * the same positions in window memory. */
static rad_status copy_slots(void *user, rad_slot from, rad_slot to, uint32_t count)
{
    const schedule_pools *pools = &((const scheduler *)user)->pools;
    rad_status status = RAD_OK;
    if (pools->token_to_kv_pool)
        status = rad_kv_pool_copy_slots(pools->token_to_kv_pool, from, to, count);
    if (status != RAD_OK) return status;
    return window_copy_slots(&pools->window, pools->kv_allocator, from, to, count);
}

static rad_cache_params tree_params(scheduler *s)
{
    return (rad_cache_params){
        .struct_size = sizeof(rad_cache_params),
        .kind = s->params.cache_kind,
        .page_size = s->pools.page_size,
        .kv_allocator = s->pools.kv_allocator,
        .req_to_token_pool = s->pools.req_to_token_pool,
        .window_tokens = s->pools.window.tokens,
        .max_namespaces = s->params.max_namespaces,
        .eviction = s->params.eviction,
        .enable_kv_events = s->params.kv_events,
        .explain_namespaces = s->params.explain_namespaces,
        .explain_pages = explain_pages(s),
        .state_pool = s->pools.states.pool,
        /* Behind the front of a page no state is kept. */
        .copy_slots = s->params.disable_partial_reuse || s->pools.states.pool ? NULL : copy_slots,
        .copy_user = s,
        .max_pinned_tokens = s->params.max_pinned_tokens,
        .retention = s->params.retention,
        .max_sessions = s->params.streaming_sessions ? 0 : s->params.max_sessions};
}

/* Where no context is longer than the window, every layer keeps every key in any case; and where
 * the whole pool is hardly longer, one request would need more of the window side than there are
 * pages. */
static uint32_t window_pages(const scheduler *s)
{
    const runner_info *model = &s->params.runner->info;
    uint32_t page_size = s->pools.page_size, window = model->sliding_window;
    uint64_t pages = s->params.window_total_tokens / page_size;
    const bool apart = runner_layers_differ(model); /* whatever the context is */
    if (!model->window_layers || (window >= s->context_length && !apart)) return 0;
    if (pages < s->max_total_pages && (pages || !apart)) return (uint32_t)pages;
    if (apart) return s->max_total_pages;
    bool fits = s->max_total_pages >= window_memory_least_pages(window, page_size);
    return fits ? s->max_total_pages : 0;
}

static rad_status create_states(scheduler *s, rad_error *err)
{
    const scheduler_params *p = &s->params;
    state_memory *m = &s->pools.states;
    const uint32_t interval = p->state_interval ? p->state_interval
                                                : state_default_interval(&p->runner->info);
    uint64_t count = p->max_states;
    if (!count)
        count = state_default_count(interval, p->max_running_requests, s->stats.max_total_tokens);
    rad_status status = state_memory_init(m, &s->env, p->runner,
                                          (uint32_t)RAD_MIN(count, (uint64_t)INT32_MAX - 1),
                                          s->pools.page_size, err);
    m->interval = interval;
    m->turn_token = p->turn_token ? p->turn_token : -1;
    m->keeps = p->cache_kind != RAD_CACHE_CHUNK;
    if (status == RAD_OK) state_expect_drafts(m, s->drafts.rows);
    m->tap = s->pools.tap;
    return status;
}

static rad_status create_pools(scheduler *s, rad_error *err)
{
    const scheduler_params *p = &s->params;
    uint32_t page_size = s->pools.page_size, num_window = window_pages(s);
    const uint32_t scratch = draft_nextn_pages(p->runner, s->drafts.rows, page_size);

    rad_req_to_token_pool_params rows = {.struct_size = sizeof rows,
                                         .num_rows = scheduler_num_rows(p),
                                         .row_tokens = s->context_length};
    /* Ascending pages: what a step reads of a prompt then lies in runs, which memory likes. When
     * they run short all bits are looked at: 2 us per million pages, in each step of a full pool.
     */
    rad_kv_allocator_params pages = {.struct_size = sizeof pages,
                                     .num_pages = s->max_total_pages,
                                     .page_size = page_size,
                                     .need_sort = s->max_total_pages <= MOST_SORTED_PAGES,
                                     .swa_num_pages = num_window};
    rad_status status =
        rad_req_to_token_pool_create(&s->env, &rows, &s->pools.req_to_token_pool, err);
    if (status == RAD_OK)
        status = rad_kv_allocator_create(&s->env, &pages, &s->pools.kv_allocator, err);
    if (status == RAD_OK)
        status = runner_create_pool(p->runner, &s->env,
                                    num_window ? RUNNER_FULL_LAYERS : RUNNER_ALL_LAYERS,
                                    s->max_total_pages + scratch, page_size,
                                    &s->pools.token_to_kv_pool, err);
    if (status == RAD_OK && num_window)
        status = window_memory_init(&s->pools.window, &s->env, p->runner, num_window, page_size,
                                    &rows, err);
    if (status == RAD_OK) status = create_states(s, err);
    if (status == RAD_OK) status = draft_model_init(s, err);
    if (status == RAD_OK) status = draft_nextn_init(s, err);
    if (status != RAD_OK) return status;

    rad_cache_params tree = tree_params(s);
    return tiers_create_cache(s, &tree, err);
}

static size_t sample_bytes(const scheduler *s)
{
    return sampler_scratch_bytes(s->params.runner->info.vocab_size);
}

static rad_status init_waiting(const scheduler *s, const rad_cache *cache, wait_queue *out)
{
    const scheduler_params *p = &s->params;
    /* Retracted requests return to a queue that may be full by then. */
    wait_queue_params queue = {.policy = p->policy,
                               .by_priority = p->enable_priority_scheduling,
                               .low_priority_values_first = p->schedule_low_priority_values_first,
                               .shares = p->cache_kind != RAD_CACHE_CHUNK,
                               .page_size = s->pools.page_size,
                               .max_waiting = p->max_queued_requests + p->max_running_requests,
                               .max_running = p->max_running_requests,
                               .random_seed = p->random_seed};
    return wait_queue_init(out, &s->env, &queue, cache);
}

static rad_status create_queues(scheduler *s, rad_error *err)
{
    const scheduler_params *p = &s->params;
    uint32_t max_tokens = scheduler_max_batch_tokens(p, s->context_length);
    const rad_state_pool *states = s->pools.states.pool;
    uint32_t max_saves = states ? rad_state_pool_num_states(states) : 0;
    rad_status queued = init_waiting(s, s->pools.inner_cache, &s->waiting);
    s->running = rad_alloc(&s->env, rad_mul(p->max_running_requests, sizeof *s->running));
    rad_status grouped = batch_groups_init(&s->groups, &s->env, p->max_running_requests);
    if (!p->runner->ops->sample) s->sample_scratch = rad_alloc(&s->env, sample_bytes(s));
    const uint32_t max_logits = scheduler_max_batch_logits(p->max_running_requests);
    s->samples = rad_alloc(&s->env, rad_mul(max_logits, sizeof *s->samples));
    s->next_tokens = rad_alloc(&s->env, rad_mul(max_logits, sizeof *s->next_tokens));
    rad_status status = schedule_batch_init(&s->batch, &s->env, p->max_running_requests, max_tokens,
                                            max_logits, max_saves);
    rad_status masked = rule_masks_init(&s->masks, &s->env, max_logits, p->runner->info.vocab_size);
    if (status != RAD_OK || queued != RAD_OK || grouped != RAD_OK || masked != RAD_OK ||
        !s->running || !s->samples || !s->next_tokens ||
        (!p->runner->ops->sample && !s->sample_scratch))
        return rad_fail(err, RAD_E_NOMEM,
                        "scheduler: no memory for %u running and %u waiting requests",
                        p->max_running_requests, p->max_queued_requests);
    return RAD_OK;
}

static rad_status create_recent(scheduler *s, rad_error *err)
{
    drafter *d = &s->drafts;
    if (!(d->sources & draft_bit(DRAFT_RECENT)) || !d->most) return RAD_OK;
    const uint32_t capacity = draft_recent_capacity(s->params.draft_recent_tokens);
    if (draft_recent_init(&d->recent, &s->env, capacity)) return RAD_OK;
    return rad_fail(err, RAD_E_NOMEM, "scheduler: no memory for %u tokens of recent answers (%zu)",
                    capacity, draft_recent_bytes(capacity));
}

/* Those asked for, less what this model, this cache and these limits have nothing for. */
static uint32_t sources_of(const scheduler_params *p)
{
    uint32_t sources = p->draft_sources | draft_bit(DRAFT_FORCED);
    if (p->draft_runner) sources |= draft_bit(DRAFT_MODEL);
    if (p->draft_given.propose) sources |= draft_bit(DRAFT_GIVEN);
    if (!p->runner->info.nextn_layers) sources &= ~draft_bit(DRAFT_NEXTN);
    if (p->cache_kind == RAD_CACHE_CHUNK) sources &= ~draft_bit(DRAFT_TREE);
    if (!p->draft_recent_tokens) sources &= ~draft_bit(DRAFT_RECENT);
    for (draft_kind kind = 0; kind < DRAFT_KINDS; kind++)
        if (!draft_source_of(kind)) sources &= ~draft_bit(kind);
    return sources;
}

rad_status scheduler_create(const rad_env *env, const scheduler_params *params, scheduler **out,
                            rad_error *err)
{
    *out = NULL;
    rad_status status = check_params(params, err);
    if (status != RAD_OK) return status;
    rad_env full = rad_env_or_default(env);
    scheduler *s = rad_alloc(&full, sizeof *s);
    if (!s) return rad_fail(err, RAD_E_NOMEM, "scheduler: no memory");

    s->env = full;
    s->params = *params;
    s->pools.page_size = RAD_MAX(params->page_size, 1u);
    s->pools.tap = params->tap;
    step_cost_init(&s->cost);
    s->drafts = (drafter){.most = params->max_draft_tokens,
                          .rows = draft_max_rows(params->max_draft_tokens),
                          .sources = sources_of(params),
                          .given = params->draft_given};
    draft_prices_init(&s->drafts.prices);
    draft_budget_init(&s->drafts.budget);
    draft_budget_init(&s->drafts.computed);
    s->check.last_ns = s->check.quiet_ns = full.now_ns(full.user);
    verify_init(&s->verify, &s->env, params->verify_rate, params->random_seed);
    s->max_total_pages = (uint32_t)(params->max_total_tokens / s->pools.page_size);
    s->stats.max_total_tokens = (uint64_t)s->max_total_pages * s->pools.page_size;
    uint32_t context = params->runner->info.context_length;
    if (params->context_length) context = params->context_length;
    s->context_length = (uint32_t)RAD_MIN((uint64_t)context, s->stats.max_total_tokens);

    status = create_pools(s, err);
    if (status == RAD_OK) status = create_queues(s, err);
    if (status == RAD_OK) status = create_recent(s, err);
    if (status != RAD_OK) {
        scheduler_destroy(s);
        return status;
    }
    *out = s;
    return RAD_OK;
}

/* All that is new is made first, so that what fails leaves the old one in place. */
static rad_status change_cache(scheduler *s, uint32_t cache_kind, rad_error *err)
{
    uint32_t old_kind = s->params.cache_kind;
    rad_cache *cache = NULL;
    wait_queue waiting = {0};
    s->params.cache_kind = cache_kind;
    rad_cache_params tree = tree_params(s);
    rad_status status = rad_cache_create(&s->env, &tree, &cache, err);
    if (status == RAD_OK && init_waiting(s, cache, &waiting) != RAD_OK)
        status = rad_fail(err, RAD_E_NOMEM, "scheduler: no memory for another waiting queue");
    if (status == RAD_OK) status = reset_cache(s);
    if (status != RAD_OK) {
        s->params.cache_kind = old_kind;
        wait_queue_fini(&waiting, &s->env);
        rad_cache_destroy(cache);
        return status;
    }
    wait_queue_fini(&s->waiting, &s->env);
    rad_cache_destroy(s->pools.tree_cache);
    s->waiting = waiting;
    s->pools.tree_cache = s->pools.inner_cache = cache;
    s->pools.states.keeps = cache_kind != RAD_CACHE_CHUNK;
    return RAD_OK;
}

rad_status scheduler_set_cache(scheduler *s, uint32_t cache_kind, bool tree_attention,
                               rad_error *err)
{
    if (!scheduler_is_idle(s) || scheduler_has_background(s))
        return rad_fail(err, RAD_AGAIN, "scheduler: requests are running");
    if (s->tiers.on || s->params.max_sessions)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "scheduler: a cache with tiers or sessions stays as it is");
    if (cache_kind != RAD_CACHE_RADIX && cache_kind != RAD_CACHE_CHUNK)
        return rad_fail(err, RAD_E_INVAL, "scheduler: there is no cache kind %u", cache_kind);
    rad_status status = RAD_OK;
    if (cache_kind == s->params.cache_kind)
        status = reset_cache(s);
    else
        status = change_cache(s, cache_kind, err);
    if (status == RAD_OK) s->params.disable_tree_attention = !tree_attention;
    return status;
}

uint32_t scheduler_draft_sources(const scheduler *s)
{
    return s->drafts.most ? s->drafts.sources : 0;
}

void scheduler_set_drafts(scheduler *s, bool on)
{
    s->drafts.most = on ? s->params.max_draft_tokens : 0;
}

void scheduler_destroy(scheduler *s)
{
    if (!s) return;
    for (uint32_t i = 0; i < s->num_running; i++) {
        req_release_kv(s, s->running[i], false);
        verify_submit(&s->verify, s->running[i], false);
    }
    for (req *r = s->waiting.first; r; r = r->wait_next)
        verify_submit(&s->verify, r, false);
    ngram_pool_fini(&s->drafts.ngrams, &s->env);
    draft_model_fini(s);
    draft_nextn_fini(s);
    draft_recent_fini(&s->drafts.recent, &s->env);
    verify_release(s);
    verify_fini(&s->verify);
    wait_queue_fini(&s->waiting, &s->env);
    for (uint32_t i = s->tiers.num_fetching; i-- > 0;)
        tiers_leave(s, s->tiers.fetching[i]);
    tiers_fini(s);
    window_memory_fini(&s->pools.window, &s->env);
    state_memory_fini(&s->pools.states);
    rad_token_to_kv_pool_destroy(s->pools.token_to_kv_pool);
    rad_kv_allocator_destroy(s->pools.kv_allocator);
    rad_req_to_token_pool_destroy(s->pools.req_to_token_pool);
    schedule_batch_fini(&s->batch, &s->env);
    batch_groups_fini(&s->groups, &s->env);
    rule_masks_fini(&s->masks);
    rad_free(&s->env, s->running, s->params.max_running_requests * sizeof *s->running);
    rad_free(&s->env, s->sample_scratch, sample_bytes(s));
    const uint32_t max_logits = scheduler_max_batch_logits(s->params.max_running_requests);
    rad_free(&s->env, s->samples, max_logits * sizeof *s->samples);
    rad_free(&s->env, s->next_tokens, max_logits * sizeof *s->next_tokens);
    rad_env env = s->env;
    rad_free(&env, s, sizeof *s);
}
