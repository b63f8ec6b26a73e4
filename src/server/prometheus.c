/* prometheus.c - the figures as SGLang's metrics, so that its dashboards work. */
#include "server/server_priv.h"

/* A label's value: backslash, quote and newline are escaped. */
static void write_label(struct evbuffer *out, const char *value)
{
    for (; *value; value++) {
        if (*value == '\n')
            evbuffer_add(out, "\\n", 2);
        else if (*value == '"' || *value == '\\')
            evbuffer_add_printf(out, "\\%c", *value);
        else
            evbuffer_add(out, value, 1);
    }
}

static void write_head(struct evbuffer *out, const char *name, const char *type, const char *help)
{
    evbuffer_add_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_value(struct evbuffer *out, const char *name, const char *label,
                        const char *model, double value)
{
    evbuffer_add_printf(out, "%s{model_name=\"", name);
    write_label(out, model);
    evbuffer_add_printf(out, "\"%s} %.17g\n", label, value);
}

static void write_tiers(struct evbuffer *out, const char *model, const engine_stats *t)
{
    const rad_hicache_stats *h = &t->tiers;
    const struct {
        const char *name, *label, *type, *help;
        double value;
    } rows[] = {
        {"sglang:hicache_host_used_tokens", "", "gauge", "Tokens in host memory.",
         h->host_used_tokens},
        {"sglang:hicache_host_total_tokens", "", "gauge", "Tokens that host memory can have.",
         h->host_tokens},
        {"radish:hicache_written_tokens_total", "", "counter", "Tokens copied to the host.",
         h->written_tokens},
        {"sglang:load_back_tokens_total", "", "counter", "Tokens copied from the host.",
         h->loaded_tokens},
        {"sglang:prefetched_tokens_total", "", "counter", "Tokens read from storage.",
         h->fetched_tokens},
        {"sglang:backuped_tokens_total", "", "counter", "Tokens that storage has acknowledged.",
         h->backed_up_tokens},
        {"radish:hicache_stored_anew_tokens_total", "", "counter",
         "Tokens that storage had lost and that were stored again.", h->stored_anew_tokens},
        {"radish:hicache_host_evicted_tokens_total", "", "counter", "Tokens evicted on the host.",
         h->host_evicted_tokens},
        {"sglang:hicache_dropped_tokens_total", ",reason=\"write\"", "counter",
         "Tokens that were to be copied and were not.", h->dropped_write_tokens},
        {"sglang:hicache_dropped_tokens_total", ",reason=\"backup\"", NULL, NULL,
         h->dropped_backup_tokens},
        {"radish:hicache_failed_transfers_total", ",kind=\"load\"", "counter",
         "Copies that failed.", h->failed_loads},
        {"radish:hicache_failed_transfers_total", ",kind=\"write\"", NULL, NULL, h->failed_writes},
        {"radish:hicache_loads_total", ",answer=\"taken\"", "counter",
         "Admissions that found more on the host than on the device, by what became of it.",
         h->refused_loads[RAD_LOAD_TAKEN]},
        {"radish:hicache_loads_total", ",answer=\"below_threshold\"", NULL, NULL,
         h->refused_loads[RAD_LOAD_BELOW_THRESHOLD]},
        {"radish:hicache_loads_total", ",answer=\"over_quota\"", NULL, NULL,
         h->refused_loads[RAD_LOAD_OVER_QUOTA]},
        {"radish:hicache_loads_total", ",answer=\"no_device_pages\"", NULL, NULL,
         h->refused_loads[RAD_LOAD_NO_DEVICE_PAGES]},
        {"radish:hicache_loads_total", ",answer=\"no_ticket\"", NULL, NULL,
         h->refused_loads[RAD_LOAD_NO_TICKET]},
        {"radish:hicache_bad_pages_total", "", "counter", "Stored pages that did not verify.",
         h->bad_pages},
        {"radish:hicache_storage_errors_total", "", "counter", "Calls of the store that failed.",
         h->storage_errors},
        {"radish:hicache_lost_loads_total", "", "counter",
         "Requests computed again because a load failed.", t->lost_loads},
        {"radish:hicache_transfers", "", "gauge", "Transfers under way.", h->tickets},
    };
    for (size_t i = 0; i < RAD_COUNT(rows); i++) {
        if (rows[i].type) write_head(out, rows[i].name, rows[i].type, rows[i].help);
        write_value(out, rows[i].name, rows[i].label, model, rows[i].value);
    }
}

void prometheus_write(struct evbuffer *out, const engine_info *info, const engine_stats *t,
                      uint64_t num_http_requests, uint64_t num_failed_requests, bool cache_figures)
{
    const char *model = info->model_name;
    uint64_t used = t->max_total_tokens - RAD_MIN(t->max_total_tokens, t->available_tokens);
    uint64_t busy = used - RAD_MIN(used, t->evictable_tokens);
    /* TELLS: who reads it before and after a request of his own learns what that found. */
    enum { TELLS = 1 };
    const struct {
        const char *name, *label, *type, *help;
        double value;
        int tells;
    } rows[] = {
        {"sglang:num_requests_total", "", "counter", "Requests submitted.", t->num_requests},
        {"sglang:num_aborted_requests_total", "", "counter", "Requests cancelled.", t->num_aborted},
        {"radish:num_failed_requests_total", "", "counter",
         "HTTP requests answered with an error, and streams that ended with one.",
         num_failed_requests},
        {"radish:num_http_requests_total", "", "counter", "HTTP requests.", num_http_requests},
        {"sglang:prompt_tokens_total", "", "counter", "Prompt tokens.", t->prompt_tokens},
        {"sglang:generation_tokens_total", "", "counter", "Generated tokens.", t->generated_tokens},
        {"sglang:cached_tokens_total", ",cache_source=\"device\"", "counter",
         "Prompt tokens found in the cache.", t->cached_tokens - t->loaded_tokens, TELLS},
        {"sglang:cached_tokens_total", ",cache_source=\"host\"", NULL, NULL,
         t->loaded_tokens - t->fetched_tokens, TELLS},
        {"sglang:cached_tokens_total", ",cache_source=\"storage\"", NULL, NULL, t->fetched_tokens,
         TELLS},
        {"sglang:realtime_tokens_total", ",mode=\"prefill_compute\"", "counter",
         "Tokens by where they came from.", t->prefill_tokens, TELLS},
        {"sglang:realtime_tokens_total", ",mode=\"prefill_cache\"", NULL, NULL, t->cached_tokens,
         TELLS},
        {"sglang:realtime_tokens_total", ",mode=\"decode\"", NULL, NULL, t->generated_tokens,
         TELLS},
        {"sglang:evicted_tokens_total", "", "counter", "Tokens evicted.", t->evicted_tokens, TELLS},
        {"radish:namespaces", ",tier=\"device\"", "gauge",
         "Namespaces (cache_salt and the like) that have something cached.", t->namespaces.used,
         TELLS},
        {"radish:namespaces", ",tier=\"host\"", NULL, NULL, t->namespaces.host_used, TELLS},
        {"radish:namespaces_given_up_total", ",tier=\"device\"", "counter",
         "Namespaces given up for want of a place, see --max-namespaces.", t->namespaces.given_up,
         TELLS},
        {"radish:namespaces_given_up_total", ",tier=\"host\"", NULL, NULL,
         t->namespaces.host_given_up, TELLS},
        {"sglang:num_retracted_requests_total", "", "counter", "Retractions.", t->num_retractions},
        {"radish:forward_steps_total", "", "counter", "Forward passes.", t->forward_steps, TELLS},
        {"radish:forward_seconds_total", "", "counter", "Time in the model.",
         (double)t->forward_ns * 1e-9, TELLS},
        {"radish:output_seconds_total", "", "counter", "Time in handing outputs over.",
         (double)t->output_ns * 1e-9},
        {"radish:sample_seconds_total", "", "counter", "Time in choosing tokens.",
         (double)t->sample_ns * 1e-9},
        {"radish:schedule_seconds_total", "", "counter", "Time in tree and scheduler.",
         (double)t->schedule_ns * 1e-9, TELLS},
        {"radish:context_tokens_total", "", "counter",
         "K/V positions of all requests, summed over the steps.", t->context_tokens, TELLS},
        {"radish:distinct_context_tokens_total", "", "counter",
         "The same, positions that tree attention reads once counted once.",
         t->distinct_context_tokens, TELLS},
        {"radish:kv_read_bytes_total", "", "counter", "K/V that attention read.", t->kv_read_bytes,
         TELLS},
        {"radish:kv_unshared_bytes_total", "", "counter",
         "K/V that it would have read without tree attention.", t->kv_unshared_bytes, TELLS},
        {"radish:kv_populated_bytes", "", "gauge",
         "KV pool that was written or made ready, 0 without --kv-populate-ahead.",
         t->kv_populated_bytes, TELLS},
        {"radish_verify_requests_total", "", "counter",
         "Requests computed once more without the cache, see --verify.", t->num_verified},
        {"radish_verify_mismatches_total", "", "counter",
         "Of these, requests whose logits were different.", t->num_mismatches},
        {"radish_verify_skipped_total", "", "counter",
         "Requests that were chosen for --verify and that there was no time or room for.",
         t->num_verify_skipped},
        {"radish_verify_given_up_total", "", "counter",
         "Times that a request was put off because others needed the pages it was computed in.",
         t->num_verify_given_up},
        {"sglang:num_running_reqs", "", "gauge", "Requests running.", t->num_running},
        {"sglang:num_queue_reqs", "", "gauge", "Requests waiting.", t->num_waiting},
        {"sglang:max_total_num_tokens", "", "gauge", "Size of the KV pool.", t->max_total_tokens},
        {"sglang:num_used_tokens", "", "gauge", "KV slots in use by requests.", busy, TELLS},
        {"sglang:kv_available_tokens", "", "gauge", "KV slots free.", t->available_tokens, TELLS},
        {"sglang:kv_evictable_tokens", "", "gauge", "KV slots cached and evictable.",
         t->evictable_tokens, TELLS},
        {"sglang:kv_used_tokens", "", "gauge", "KV slots not free.", used, TELLS},
        {"sglang:token_usage", "", "gauge", "Part of the pool in use by requests.",
         t->max_total_tokens ? (double)busy / (double)t->max_total_tokens : 0, TELLS},
        {"sglang:cache_hit_rate", "", "gauge", "Cached part of all prompt tokens.",
         t->prompt_tokens ? (double)t->cached_tokens / (double)t->prompt_tokens : 0, TELLS},
    };
    for (size_t i = 0; i < RAD_COUNT(rows); i++) {
        if (rows[i].tells && !cache_figures) continue;
        if (rows[i].type) write_head(out, rows[i].name, rows[i].type, rows[i].help);
        write_value(out, rows[i].name, rows[i].label, model, rows[i].value);
    }
    if (info->hierarchical_cache && cache_figures) write_tiers(out, model, t);
}
