/* figures.c - the table; see the header. */
#include "server/figures.h"

#include "base/base.h"

enum { FIGURE_U32, FIGURE_U64, FIGURE_F64 };

#define SIZE_OF(field) sizeof(((server_figures *)0)->field)
#define AT(field)                                                                                  \
    .at = offsetof(server_figures, field), .kind = SIZE_OF(field) == 4 ? FIGURE_U32 : FIGURE_U64
#define AT_F64(field)      .at = offsetof(server_figures, field), .kind = FIGURE_F64
#define SCHED(field)       AT(engine.sched.field)
#define DRAFTS(what, kind) AT(engine.sched.drafts.what[kind]), TELLS
#define TIER(field)        AT(engine.sched.tiers.field), .tells = true, .tiers = true

#define COUNTER(metric, help) metric, "", "counter", help
#define GAUGE(metric, help)   metric, "", "gauge", help
#define NO_METRIC             NULL, NULL, NULL, NULL
#define TELLS                 .tells = true
#define NS                    .seconds = true
#define WINDOW(field)         SCHED(window_##field), TELLS, .window = true

#define STATES(field) SCHED(states_##field), .states = true
#define EVENTS(field) AT(engine.kv_events.field), TELLS, .events = true
#define RECORD(field) AT(engine.record.field), TELLS, .record = true

/* Values of one metric stand together, its help at the first, and tell alike. */
static const figure table[] = {
    /* requests */
    {"num_requests", COUNTER("sglang:num_requests_total", "Requests submitted."),
     AT(engine.requests.num_requests)},
    {"num_finished", COUNTER("radish_num_finished_requests_total", "Requests that ended well."),
     AT(engine.requests.num_finished)},
    {"num_aborted", COUNTER("sglang:num_aborted_requests_total", "Requests cancelled."),
     AT(engine.requests.num_aborted)},
    {"num_failed", COUNTER("radish_num_failed_generations_total", "Requests that failed."),
     AT(engine.requests.num_failed)},
    {NULL,
     COUNTER("radish_num_failed_requests_total",
             "HTTP requests answered with an error, and streams that ended with one."),
     AT(http_failed)},
    {NULL, COUNTER("radish_num_http_requests_total", "HTTP requests."), AT(http_requests)},
    {"num_running_reqs", GAUGE("sglang:num_running_reqs", "Requests running."), SCHED(num_running)},
    {"num_queue_reqs", GAUGE("sglang:num_queue_reqs", "Requests waiting."), SCHED(num_waiting)},
    {"num_retractions", COUNTER("sglang:num_retracted_requests_total", "Retractions."),
     SCHED(num_retractions)},

    /* tokens */
    {"prompt_tokens", COUNTER("sglang:prompt_tokens_total", "Prompt tokens."),
     SCHED(prompt_tokens)},
    {"generated_tokens", COUNTER("sglang:generation_tokens_total", "Generated tokens."),
     SCHED(generated_tokens)},
    {NULL, "sglang:cached_tokens_total", ",cache_source=\"device\"", "counter",
     "Prompt tokens found in the cache.", AT(device_hits), TELLS},
    {NULL, "sglang:cached_tokens_total", ",cache_source=\"host\"", NULL, NULL, AT(host_hits),
     TELLS},
    {"fetched_tokens", "sglang:cached_tokens_total", ",cache_source=\"storage\"", NULL, NULL,
     SCHED(fetched_tokens), TELLS},
    {"copied_tokens",
     COUNTER("radish_copied_tokens_total",
             "Of the device's, tokens copied out of a page that begins alike."),
     SCHED(copied_tokens), TELLS},
    {"loaded_tokens", NO_METRIC, SCHED(loaded_tokens), TELLS},
    {"prefill_tokens", "sglang:realtime_tokens_total", ",mode=\"prefill_compute\"", "counter",
     "Tokens by where they came from.", SCHED(prefill_tokens), TELLS},
    {"cached_tokens", "sglang:realtime_tokens_total", ",mode=\"prefill_cache\"", NULL, NULL,
     SCHED(cached_tokens), TELLS},
    {NULL, "sglang:realtime_tokens_total", ",mode=\"decode\"", NULL, NULL, SCHED(generated_tokens),
     TELLS},
    {NULL, GAUGE("sglang:cache_hit_rate", "Cached part of all prompt tokens."), AT_F64(hit_rate),
     TELLS},
    {"evicted_tokens", COUNTER("sglang:evicted_tokens_total", "Tokens evicted."),
     SCHED(evicted_tokens), TELLS},

    {NULL,
     GAUGE("sglang:gen_throughput", "Tokens generated a second; 0 while nothing runs."),
     AT_F64(engine.gen_throughput), TELLS},
    {"evicted_wanted_tokens", "radish_evicted_wanted_tokens_total", ",tier=\"device\"", "counter",
     "Prompt tokens that this tier had once, had evicted, and was asked for.",
     SCHED(evicted_wanted_tokens), TELLS},
    {"host_evicted_wanted_tokens", "radish_evicted_wanted_tokens_total", ",tier=\"host\"", NULL, NULL,
     SCHED(host_evicted_wanted_tokens), TELLS},
    {"page_rounded_tokens",
     COUNTER("radish_page_rounded_tokens_total",
             "Prompt tokens that were cached, but in a page that goes on otherwise."),
     SCHED(page_rounded_tokens), TELLS},
    {"other_namespace_tokens",
     COUNTER("radish_other_namespace_tokens_total",
             "Prompt tokens that only other namespaces have cached, see --explain-namespaces."),
     SCHED(other_namespace_tokens), TELLS},

    {"draft_tokens_forced", "radish_draft_tokens_total", ",source=\"forced\"", "counter",
     "Tokens computed before they were known to be right, by who guessed them.",
     DRAFTS(proposed, DRAFT_FORCED)},
    {"draft_tokens_prediction", "radish_draft_tokens_total", ",source=\"prediction\"", NULL, NULL,
     DRAFTS(proposed, DRAFT_PREDICTION)},
    {"draft_tokens_tree", "radish_draft_tokens_total", ",source=\"tree\"", NULL, NULL,
     DRAFTS(proposed, DRAFT_TREE)},
    {"draft_tokens_ngram", "radish_draft_tokens_total", ",source=\"ngram\"", NULL, NULL,
     DRAFTS(proposed, DRAFT_NGRAM)},
    {"draft_tokens_recent", "radish_draft_tokens_total", ",source=\"recent\"", NULL, NULL,
     DRAFTS(proposed, DRAFT_RECENT)},
    {"draft_tokens_model", "radish_draft_tokens_total", ",source=\"model\"", NULL, NULL,
     DRAFTS(proposed, DRAFT_MODEL)},
    {"draft_tokens_nextn", "radish_draft_tokens_total", ",source=\"nextn\"", NULL, NULL,
     DRAFTS(proposed, DRAFT_NEXTN)},
    {"accepted_draft_tokens_forced", "radish_accepted_draft_tokens_total", ",source=\"forced\"",
     "counter", "Of these, tokens that the answers have.", DRAFTS(accepted, DRAFT_FORCED)},
    {"accepted_draft_tokens_prediction", "radish_accepted_draft_tokens_total",
     ",source=\"prediction\"", NULL, NULL, DRAFTS(accepted, DRAFT_PREDICTION)},
    {"accepted_draft_tokens_tree", "radish_accepted_draft_tokens_total", ",source=\"tree\"", NULL,
     NULL, DRAFTS(accepted, DRAFT_TREE)},
    {"accepted_draft_tokens_ngram", "radish_accepted_draft_tokens_total", ",source=\"ngram\"", NULL,
     NULL, DRAFTS(accepted, DRAFT_NGRAM)},
    {"accepted_draft_tokens_recent", "radish_accepted_draft_tokens_total", ",source=\"recent\"",
     NULL, NULL, DRAFTS(accepted, DRAFT_RECENT)},
    {"accepted_draft_tokens_model", "radish_accepted_draft_tokens_total", ",source=\"model\"", NULL,
     NULL, DRAFTS(accepted, DRAFT_MODEL)},
    {"accepted_draft_tokens_nextn", "radish_accepted_draft_tokens_total", ",source=\"nextn\"", NULL,
     NULL, DRAFTS(accepted, DRAFT_NEXTN)},
    {"avg_spec_accept_length",
     GAUGE("sglang:spec_accept_length", "Tokens that a decoding request said in a step, so far."),
     AT_F64(spec_accept_length), TELLS},
    {NULL, GAUGE("sglang:spec_accept_rate", "Of drafted tokens, those that were right, so far."),
     AT_F64(spec_accept_rate), TELLS},
    {"guess_ns", "radish_guess_seconds_total", ",how=\"looked_up\"", "counter",
     "Time that guesses of tokens took, beside the rows that they are computed in.",
     SCHED(drafts.guess_ns), NS, TELLS},
    {"guess_prepare_ns", "radish_guess_seconds_total", ",how=\"computed\"", NULL, NULL,
     SCHED(drafts.prepare_ns), NS, TELLS},
    {"masks", COUNTER("radish_masks_total", "Masks of what constrained requests may say next."),
     SCHED(masks)},
    {"mask_ns",
     COUNTER("radish_mask_seconds_total", "Of a core, for masks beside the model's work."),
     SCHED(mask_ns), NS},
    {"mask_wait_ns",
     COUNTER("radish_mask_wait_seconds_total", "That steps waited for masks after the model."),
     SCHED(mask_wait_ns), NS},

    /* the KV pool */
    {"max_total_num_tokens", GAUGE("sglang:max_total_num_tokens", "Size of the KV pool."),
     SCHED(max_total_tokens)},
    {NULL, GAUGE("sglang:num_used_tokens", "KV slots in use by requests."), AT(busy_tokens), TELLS},
    {"available_tokens", GAUGE("sglang:kv_available_tokens", "KV slots free."),
     SCHED(available_tokens), TELLS},
    {"evictable_tokens", GAUGE("sglang:kv_evictable_tokens", "KV slots cached and evictable."),
     SCHED(evictable_tokens), TELLS},
    {"protected_tokens", GAUGE("radish_kv_protected_tokens", "KV slots cached and held."),
     SCHED(protected_tokens), TELLS},
    {"held_tokens", GAUGE("radish_kv_held_tokens", "KV slots of requests alone."),
     SCHED(held_tokens), TELLS},
    {NULL, GAUGE("sglang:kv_used_tokens", "KV slots not free."), AT(used_tokens), TELLS},
    {NULL,
     GAUGE("sglang:token_usage", "Part of the pool in use by requests, of two the fuller one's."),
     AT_F64(token_usage), TELLS},
    {NULL,
     GAUGE("sglang:full_token_usage", "Of the pool of layers without a window: the part in use."),
     AT_F64(full_usage), TELLS, .window = true},
    {"swa_max_total_num_tokens",
     GAUGE("sglang:swa_max_total_num_tokens", "Size of the pool of layers with a window."),
     SCHED(window_total_tokens), .window = true},
    {NULL, GAUGE("sglang:swa_num_used_tokens", "Window slots in use by requests."),
     AT(busy_window_tokens), TELLS, .window = true},
    {"swa_available_tokens", GAUGE("sglang:swa_available_tokens", "Window slots free."),
     WINDOW(available_tokens)},
    {"swa_evictable_tokens",
     GAUGE("sglang:swa_evictable_tokens", "Window slots cached and evictable."),
     WINDOW(evictable_tokens)},
    {"swa_protected_tokens", GAUGE("radish_swa_protected_tokens", "Window slots cached and held."),
     WINDOW(protected_tokens)},
    {"swa_held_tokens", GAUGE("radish_swa_held_tokens", "Window slots of requests alone."),
     WINDOW(held_tokens)},
    {NULL, GAUGE("sglang:swa_used_tokens", "Window slots not free."), AT(used_window_tokens), TELLS,
     .window = true},
    {NULL, GAUGE("sglang:swa_token_usage", "Part of the window slots in use by requests."),
     AT_F64(window_usage), TELLS, .window = true},
    {"max_mamba_cache_size",
     GAUGE("sglang:max_mamba_cache_size", "States of recurrent layers that their pool has."),
     STATES(total)},
    {"states_available", GAUGE("radish_states_available", "States free."), STATES(available),
     TELLS},
    {"states_evictable", GAUGE("radish_states_evictable", "Snapshots cached and evictable."),
     STATES(evictable), TELLS},
    {"states_protected", GAUGE("radish_states_protected", "Snapshots cached and held."),
     STATES(protected), TELLS},
    {"states_held", GAUGE("radish_states_held", "States that requests work with."), STATES(held),
     TELLS},
    {NULL, GAUGE("sglang:mamba_usage", "Part of the states in use by requests."),
     AT_F64(state_usage), TELLS, .states = true},
    {"states_saved", COUNTER("radish_states_saved_total", "Snapshots that requests left cached."),
     STATES(saved), TELLS},
    {"states_unsaved",
     COUNTER("radish_states_unsaved_total",
             "Snapshots that prompts were to leave, and no state was to be had."),
     STATES(unsaved), TELLS},
    {"states_evicted", COUNTER("radish_states_evicted_total", "Snapshots evicted for others."),
     STATES(evicted), TELLS},
    {"states_dropped",
     COUNTER("radish_states_dropped_total",
             "Snapshots that went with the tokens they stood behind."),
     STATES(dropped), TELLS},
    {"kv_populated_bytes",
     GAUGE("radish_kv_populated_bytes",
           "KV pool that was written or made ready, 0 without --kv-populate-ahead."),
     AT(engine.kv_populated_bytes), TELLS},
    {"gpu_memory_total_bytes", "radish_gpu_memory_bytes", ",kind=\"total\"", "gauge",
     "Of the GPU's memory: all of it, and what nobody has taken.", AT(engine.gpu_total_bytes),
     .gpu = true},
    {"gpu_memory_free_bytes", "radish_gpu_memory_bytes", ",kind=\"free\"", NULL, NULL,
     AT(engine.gpu_free_bytes), .gpu = true},
    {"kv_errors",
     COUNTER("radish_kv_errors_total", "Calls of the cache that should not fail and did."),
     SCHED(kv_errors)},
    {"self_checks",
     COUNTER("radish_self_checks_total", "Checks of all slots and structures, see "
                                         "--self-check-interval."),
     SCHED(self_check.num_checks)},
    {"self_check_violations",
     COUNTER("radish_self_check_violations_total",
             "Pages lost or owned twice, and structures at odds, that they found."),
     SCHED(self_check.num_violations)},
    {"self_check_age_ns",
     GAUGE("radish_self_check_age_seconds", "Since the last one ended, or since the start."),
     SCHED(self_check.age_ns), NS},
    {"self_check_longest_ns",
     GAUGE("radish_self_check_longest_seconds", "The longest that one let a request wait."),
     SCHED(self_check.longest_ns), NS},

    /* namespaces */
    {"namespaces", "radish_namespaces", ",tier=\"device\"", "gauge",
     "Namespaces (cache_salt and the like) that have something cached.", SCHED(namespaces.used),
     TELLS},
    {"host_namespaces", "radish_namespaces", ",tier=\"host\"", NULL, NULL,
     SCHED(namespaces.host_used), TELLS},
    {"max_namespaces", GAUGE("radish_max_namespaces", "Places for them, see --max-namespaces."),
     SCHED(namespaces.most)},
    {"namespaces_given_up", "radish_namespaces_given_up_total", ",tier=\"device\"", "counter",
     "Namespaces given up for want of a place, see --max-namespaces.", SCHED(namespaces.given_up),
     TELLS},
    {"host_namespaces_given_up", "radish_namespaces_given_up_total", ",tier=\"host\"", NULL, NULL,
     SCHED(namespaces.host_given_up), TELLS},

    /* what is kept longer */
    {"sessions_open", GAUGE("radish_sessions_open", "Sessions open."), SCHED(sessions.open), TELLS},
    {"sessions_held",
     GAUGE("radish_sessions_held", "Of these, idle ones that have something in the cache."),
     SCHED(sessions.held), TELLS},
    {"pinned_tokens", GAUGE("radish_pinned_tokens", "KV slots that requests have pinned."),
     SCHED(pinned_tokens), TELLS},

    /* steps */
    {"forward_steps", COUNTER("radish_forward_steps_total", "Forward passes."),
     SCHED(forward_steps), TELLS},
    {"forward_ns", COUNTER("radish_forward_seconds_total", "Time in the model."), SCHED(forward_ns),
     NS, TELLS},
    {"sample_ns", COUNTER("radish_sample_seconds_total", "Time in choosing tokens."),
     SCHED(sample_ns), NS},
    {"output_ns", COUNTER("radish_output_seconds_total", "Time in handing outputs over."),
     SCHED(output_ns), NS},
    {"schedule_ns", COUNTER("radish_schedule_seconds_total", "Time in tree and scheduler."),
     SCHED(schedule_ns), NS, TELLS},
    {"context_tokens",
     COUNTER("radish_context_tokens_total",
             "K/V positions of all requests, summed over the steps."),
     SCHED(context_tokens), TELLS},
    {NULL,
     COUNTER("radish_distinct_context_tokens_total",
             "The same, positions that tree attention reads once counted once."),
     SCHED(distinct_context_tokens), TELLS},
    {"kv_read_bytes", COUNTER("radish_kv_read_bytes_total", "K/V that attention read."),
     SCHED(kv_read_bytes), TELLS},
    {"kv_unshared_bytes",
     COUNTER("radish_kv_unshared_bytes_total",
             "K/V that it would have read without tree attention."),
     SCHED(kv_unshared_bytes), TELLS},

    /* verifying */
    {"verify_requests",
     COUNTER("radish_verify_requests_total",
             "Requests computed once more without the cache, see --verify."),
     SCHED(verify.num_verified)},
    {"verify_mismatches",
     COUNTER("radish_verify_mismatches_total", "Of these, requests whose logits were different."),
     SCHED(verify.num_mismatches)},
    {"verify_skipped",
     COUNTER("radish_verify_skipped_total",
             "Requests that were chosen for --verify and that there was no time or room for."),
     SCHED(verify.num_skipped)},
    {"verify_given_up",
     COUNTER("radish_verify_given_up_total",
             "Times that a request was put off because others needed the pages it was computed "
             "in."),
     SCHED(verify.num_given_up)},
    {"verify_pending", GAUGE("radish_verify_pending", "Requests that wait to be verified."),
     SCHED(verify.num_pending)},

    /* tiers */
    {"host_used_tokens", GAUGE("sglang:hicache_host_used_tokens", "Tokens in host memory."),
     TIER(host_used_tokens)},
    {"host_total_tokens",
     GAUGE("sglang:hicache_host_total_tokens", "Tokens that host memory can have."),
     SCHED(tiers.host_tokens), .tiers = true},
    {"host_window_used_tokens",
     GAUGE("radish_hicache_host_window_used_tokens", "Tokens in the host's window memory."),
     TIER(host_window_used_tokens), .window = true},
    {"host_window_total_tokens",
     GAUGE("radish_hicache_host_window_total_tokens",
           "Tokens that the host's window memory can have."),
     SCHED(tiers.host_window_tokens), .tiers = true, .window = true},
    {NULL,
     COUNTER("radish_hicache_written_window_tokens_total",
             "Tokens of window memory copied to the host."),
     TIER(written_window_tokens), .window = true},
    {NULL,
     COUNTER("radish_load_back_window_tokens_total",
             "Tokens of window memory copied from the host."),
     TIER(loaded_window_tokens), .window = true},
    {NULL,
     COUNTER("radish_prefetched_window_tokens_total", "Tokens of window memory read from storage."),
     TIER(fetched_window_tokens), .window = true},
    {NULL,
     COUNTER("radish_backuped_window_tokens_total",
             "Tokens of window memory that storage has acknowledged."),
     TIER(backed_up_window_tokens), .window = true},
    {NULL,
     COUNTER("radish_hicache_dropped_window_tokens_total",
             "Tokens of window memory that were not copied to the host or to storage."),
     TIER(dropped_window_tokens), .window = true},
    {"host_states_used", GAUGE("radish_hicache_host_states_used", "Snapshots in host memory."),
     TIER(host_used_states), .states = true},
    {"host_states_total",
     GAUGE("radish_hicache_host_total_states", "Snapshots that host memory can have."),
     SCHED(tiers.host_states), .tiers = true, .states = true},
    {NULL, COUNTER("radish_hicache_written_states_total", "Snapshots copied to the host."),
     TIER(written_states), .states = true},
    {NULL, COUNTER("radish_load_back_states_total", "Snapshots copied from the host."),
     TIER(loaded_states), .states = true},
    {NULL, COUNTER("radish_prefetched_states_total", "Snapshots read from storage."),
     TIER(fetched_states), .states = true},
    {NULL, COUNTER("radish_backuped_states_total", "Snapshots that storage has acknowledged."),
     TIER(backed_up_states), .states = true},
    {NULL,
     COUNTER("radish_hicache_dropped_states_total",
             "Snapshots that were not copied to the host or to storage."),
     TIER(dropped_states), .states = true},
    {"host_written_tokens",
     COUNTER("radish_hicache_written_tokens_total", "Tokens copied to the host."),
     TIER(written_tokens)},
    {NULL, COUNTER("sglang:load_back_tokens_total", "Tokens copied from the host."),
     TIER(loaded_tokens)},
    {NULL, COUNTER("sglang:prefetched_tokens_total", "Tokens read from storage."),
     TIER(fetched_tokens)},
    {"storage_written_tokens",
     COUNTER("sglang:backuped_tokens_total", "Tokens that storage has acknowledged."),
     TIER(backed_up_tokens)},
    {NULL,
     COUNTER("radish_hicache_stored_anew_tokens_total",
             "Tokens that storage had lost and that were stored again."),
     TIER(stored_anew_tokens)},
    {"host_evicted_tokens",
     COUNTER("radish_hicache_host_evicted_tokens_total", "Tokens evicted on the host."),
     TIER(host_evicted_tokens)},
    {NULL, "sglang:hicache_dropped_tokens_total", ",reason=\"write\"", "counter",
     "Tokens that were to be copied and were not.", TIER(dropped_write_tokens)},
    {NULL, "sglang:hicache_dropped_tokens_total", ",reason=\"backup\"", NULL, NULL,
     TIER(dropped_backup_tokens)},
    {NULL, "radish_hicache_failed_transfers_total", ",kind=\"load\"", "counter",
     "Copies that failed.", TIER(failed_loads)},
    {NULL, "radish_hicache_failed_transfers_total", ",kind=\"write\"", NULL, NULL,
     TIER(failed_writes)},
    {NULL, "radish_hicache_loads_total", ",answer=\"taken\"", "counter",
     "Admissions that found more on the host than on the device, by what became of it.",
     TIER(refused_loads[RAD_LOAD_TAKEN])},
    {NULL, "radish_hicache_loads_total", ",answer=\"below_threshold\"", NULL, NULL,
     TIER(refused_loads[RAD_LOAD_BELOW_THRESHOLD])},
    {NULL, "radish_hicache_loads_total", ",answer=\"over_quota\"", NULL, NULL,
     TIER(refused_loads[RAD_LOAD_OVER_QUOTA])},
    {NULL, "radish_hicache_loads_total", ",answer=\"no_device_pages\"", NULL, NULL,
     TIER(refused_loads[RAD_LOAD_NO_DEVICE_PAGES])},
    {NULL, "radish_hicache_loads_total", ",answer=\"no_ticket\"", NULL, NULL,
     TIER(refused_loads[RAD_LOAD_NO_TICKET])},
    {"storage_bad_pages",
     COUNTER("radish_hicache_bad_pages_total", "Stored pages that did not verify."),
     TIER(bad_pages)},
    {"storage_errors",
     COUNTER("radish_hicache_storage_errors_total", "Calls of the store that failed."),
     TIER(storage_errors)},
    {"lost_loads",
     COUNTER("radish_hicache_lost_loads_total", "Requests computed again because a load failed."),
     SCHED(lost_loads), TELLS, .tiers = true},
    {"transfers_under_way", GAUGE("radish_hicache_transfers", "Transfers under way."),
     TIER(tickets)},

    /* spans */
    {NULL, "radish_otlp_requests_total", ",result=\"sent\"", "counter",
     "Requests as spans, see --otlp-endpoint: what became of them.", AT(otlp.sent)},
    {NULL, "radish_otlp_requests_total", ",result=\"failed\"", NULL, NULL, AT(otlp.failed)},
    {NULL, "radish_otlp_requests_total", ",result=\"dropped\"", NULL, NULL, AT(otlp.dropped)},

    /* the process */
    {NULL, COUNTER("process_cpu_seconds_total", "CPU time, of all cores."), AT_F64(process.cpu_s),
     TELLS},
    {NULL, GAUGE("process_resident_memory_bytes", "Memory that is there."),
     AT(process.resident_bytes), TELLS},
    {NULL, GAUGE("process_virtual_memory_bytes", "Memory that is mapped."),
     AT(process.virtual_bytes)},
    {NULL, GAUGE("process_start_time_seconds", "When the process began, since 1970."),
     AT_F64(process.start_unix_s)},
    {NULL, GAUGE("process_open_fds", "Files and connections that are open."),
     AT(process.open_fds)},
    {NULL, GAUGE("process_max_fds", "How many may be."), AT(process.max_fds)},
    {NULL, GAUGE("process_threads", "Threads."), AT(process.threads)},

    /* KV events */
    {"kv_event_batches",
     COUNTER("radish_kv_event_batches_total", "Batches of KV events that were published."),
     EVENTS(batches)},
    {"kv_event_bytes", COUNTER("radish_kv_event_bytes_total", "Of these, bytes."), EVENTS(bytes)},
    {"kv_event_dropped_batches",
     COUNTER("radish_kv_event_dropped_batches_total",
             "Batches that the queue had no room for: a gap in the numbers."),
     EVENTS(dropped_batches)},
    {"kv_event_restatements",
     COUNTER("radish_kv_event_restatements_total",
             "Times that all that is cached was told anew, for those who lost events."),
     EVENTS(restatements)},
    {"kv_event_replays",
     COUNTER("radish_kv_event_replays_total", "Replays that were asked for."), EVENTS(replays)},
    {"kv_event_queued",
     GAUGE("radish_kv_event_queued_batches", "Batches on their way to the socket."),
     EVENTS(queued)},

    /* --record */
    {"record_bytes", COUNTER("radish_record_bytes_total", "Bytes of the record."), RECORD(bytes)},
    {"record_operations",
     COUNTER("radish_record_operations_total", "Operations of the cache that are in it."),
     RECORD(operations)},
    {"record_dropped",
     COUNTER("radish_record_dropped_operations_total",
             "Operations that are not: it is at its limit, or the disk is too slow."),
     RECORD(dropped)},
};

const figure *figures_table(size_t *count)
{
    *count = RAD_COUNT(table);
    return table;
}

static double ratio(uint64_t part, uint64_t of)
{
    return of ? (double)part / (double)of : 0;
}

void figures_derive(server_figures *f)
{
    const scheduler_stats *s = &f->engine.sched;
    f->device_hits = s->cached_tokens - s->loaded_tokens;
    f->host_hits = s->loaded_tokens - s->fetched_tokens;
    f->used_tokens = s->max_total_tokens - RAD_MIN(s->max_total_tokens, s->available_tokens);
    f->busy_tokens = f->used_tokens - RAD_MIN(f->used_tokens, s->evictable_tokens);
    f->full_usage = ratio(f->busy_tokens, s->max_total_tokens);
    f->used_window_tokens = s->window_total_tokens -
                            RAD_MIN(s->window_total_tokens, s->window_available_tokens);
    f->busy_window_tokens = f->used_window_tokens -
                            RAD_MIN(f->used_window_tokens, s->window_evictable_tokens);
    f->window_usage = ratio(f->busy_window_tokens, s->window_total_tokens);
    const uint64_t busy_states = s->states_held + s->states_protected;
    f->state_usage = ratio(busy_states, s->states_total);
    f->token_usage = RAD_MAX(f->full_usage, f->window_usage);
    f->hit_rate = ratio(s->cached_tokens, s->prompt_tokens);
    uint64_t proposed = 0, accepted = 0;
    for (int kind = 0; kind < DRAFT_KINDS; kind++) {
        proposed += s->drafts.proposed[kind];
        accepted += s->drafts.accepted[kind];
    }
    f->spec_accept_rate = ratio(accepted, proposed);
    f->spec_accept_length = ratio(s->drafts.req_steps + accepted, s->drafts.req_steps);
}

bool figure_is_real(const figure *row)
{
    return row->kind == FIGURE_F64;
}

uint64_t figure_count(const figure *row, const server_figures *f)
{
    const void *at = (const char *)f + row->at;
    switch (row->kind) {
    case FIGURE_U32: return *(const uint32_t *)at;
    case FIGURE_U64: return *(const uint64_t *)at;
    default: return (uint64_t) * (const double *)at;
    }
}

double figure_value(const figure *row, const server_figures *f)
{
    if (row->kind == FIGURE_F64) return *(const double *)((const char *)f + row->at);
    return (double)figure_count(row, f) * (row->seconds ? 1e-9 : 1);
}
