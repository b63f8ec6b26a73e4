/* serve_banner.c - what a server prints when it is ready: what it serves, in which memory, how it
 * is asked. */
#include "cli/serve.h"

#include <stdio.h>

/* On which GPU, or why on none. */
static void print_device(engine *e)
{
    const engine_info *i = engine_get_info(e);
    if (i->why_no_gpu[0]) printf("  computes on the CPU: %s\n", i->why_no_gpu);
    if (!i->device_bytes) return;
    engine_stats stats;
    engine_get_stats(e, &stats);
    printf("  GPU memory %.1f GB, %.1f GB of it free beside weights, buffers and pool\n",
           (double)i->device_bytes / 1e9, (double)stats.gpu_free_bytes / 1e9);
}

void serve_print_banner(engine *e, const server *s, const server_params *where, uint32_t max_itl_ms)
{
    const engine_info *i = engine_get_info(e);
    const char *host = where->host ? where->host : "127.0.0.1";
    bool v6 = strchr(host, ':') != NULL;
    char url[128];
    snprintf(url, sizeof url, "%s://%s%s%s:%u", where->tls.certificate ? "https" : "http",
             v6 ? "[" : "", host, v6 ? "]" : "", server_port(s));
    printf("radish %s serves %s (%s, %s, %s KV, attention %s, %s) on %s\n", RADISH_VERSION,
           i->model_name, i->architecture, i->dtype, i->kv_cache_dtype, i->attn_backend,
           i->computes_on, url);
    print_device(e);
    printf("  KV pool %llu tokens (%.1f MiB), page size %u, radix cache %s%s%s\n",
           (unsigned long long)i->max_total_tokens,
           (double)i->max_total_tokens * (double)i->kv_bytes_per_token / (1 << 20), i->page_size,
           i->radix_cache ? "on" : "off", i->radix_cache ? ", evicts by " : "",
           i->radix_cache ? i->eviction_policy : "");
    if (i->window_total_tokens)
        printf("  window memory %llu tokens (%.1f MiB) for the layers that see %u tokens\n",
               (unsigned long long)i->window_total_tokens,
               (double)i->window_total_tokens * (double)i->window_kv_bytes_per_token / (1 << 20),
               i->sliding_window);
    if (i->draft_model_path[0])
        printf("  draft model %s (%.1f MiB, and %.1f MiB of KV)\n", i->draft_model_path,
               (double)i->draft_weights_bytes / (1 << 20),
               (double)i->max_total_tokens * (double)i->draft_bytes_per_token / (1 << 20));
    if (i->max_states)
        printf("  states        %llu of the %u recurrent layers (%.1f MiB), a snapshot every %u "
               "tokens\n",
               (unsigned long long)i->max_states, i->state_layers,
               (double)i->max_states * (double)i->state_bytes / (1 << 20), i->state_interval);
    if (i->hierarchical_cache) {
        engine_storage_status store;
        engine_get_storage_status(e, &store);
        double beside_bytes = (double)i->host_window_tokens * (double)i->window_kv_bytes_per_token +
                              (double)i->host_states * (double)i->state_bytes;
        printf("  host tier %llu tokens (%.1f MiB), storage %s%s\n",
               (unsigned long long)i->host_tokens,
               ((double)i->host_tokens * (double)i->kv_bytes_per_token + beside_bytes) / (1 << 20),
               store.attached ? store.spec : "none",
               store.attached && store.store.down ? " (out of reach for now)" : "");
    }
    printf("  context %u tokens, at most %u requests running, ", i->context_length,
           i->max_running_requests);
    if (i->chunked_prefill_size)
        printf("prefill in chunks of %u", i->chunked_prefill_size);
    else
        printf("prefill not chunked");
    if (max_itl_ms)
        printf(", less where others' next tokens would wait longer than %u ms\n", max_itl_ms);
    else
        printf("\n");
    printf("  %s\n", i->guarantee);
    if (i->record) printf("  records what the cache is asked to %s\n", i->record);
    const char *key = api_keys_wanted(where->api_keys) ? "-H 'Authorization: Bearer KEY' " : "";
    printf("  try:\n");
    if (i->chat_template[0])
        printf("  curl -s %s/v1/chat/completions %s-H 'Content-Type: application/json' "
               "-d '{\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of "
               "France?\"}],\"max_tokens\":32,\"temperature\":0}'\n",
               url, key);
    else
        printf("  curl -s %s/v1/completions %s-H 'Content-Type: application/json' "
               "-d '{\"prompt\":\"Once upon a time\",\"max_tokens\":32,\"temperature\":0}'\n",
               url, key);
    fflush(stdout);
}
