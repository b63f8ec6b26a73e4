/* serve_options_tiers.c - what clients may have kept, and what lies below the KV cache. */
#include "cli/serve_options.h"

#include <radish/hicache.h>

unsigned serve_options_tiers(serve_values *v, cli_option *out, unsigned room)
{
    const cli_option options[] = {
        {.kind = CLI_HEADING, .help = "What clients may have kept:"},
        {.kind = CLI_U64,
         .name = "max-pinned-tokens",
         .arg = "N",
         .target = &v->engine.max_pinned_tokens,
         .help = "Tokens of the KV cache that requests may ask to be kept (/pin_prefix,\n"
                 "cache_control, prompt_cache_key): they are evicted after all others. Of what is\n"
                 "too much the front is kept. Default: a quarter of the cache; 0 = none."},
        {.kind = CLI_U32,
         .name = "max-sessions",
         .arg = "N",
         .target = &v->engine.max_sessions,
         .max = 65535,
         .help = "Sessions (/open_session) that may be open at one time; their pages are evicted\n"
                 "after those of no session. Default " NUMBER(ENGINE_NUM_SESSIONS) "; 0 = none."},
        {.kind = CLI_FLAG,
         .name = "enable-streaming-session",
         .target = &v->engine.streaming_sessions,
         .help =
             "Sessions may be opened with streaming: true: they only go on, one turn at a time,\n"
             "and keep all K and V between turns, the partial last page too, until room is\n"
             "short. Takes 8 bytes for each session and token of a context. Pages of other\n"
             "sessions have no place of their own then."},
        {.kind = CLI_U32,
         .name = "session-timeout",
         .arg = "S",
         .target = &v->server.session_timeout_s,
         .help =
             "Seconds after which an idle session ends, unless it was opened with a timeout of\n"
             "its own. Default 3600; 0 = default."},
        {.kind = CLI_HEADING, .help = "Host memory and storage below the KV cache:"},
        {.kind = CLI_FLAG,
         .name = "enable-hierarchical-cache",
         .target = &v->engine.enable_hierarchical_cache,
         .help = "Copy prefixes to host memory, and to a store if one is given, where they survive "
                 "being\n"
                 "evicted; --hicache-write-policy says which."},
        {.kind = CLI_F64,
         .name = "hicache-ratio",
         .arg = "F",
         .target = &v->engine.hicache_ratio,
         .max = 1e6,
         .help = "Host tokens for each token of the KV cache. Default " NUMBER(
             ENGINE_HICACHE_RATIO) "; 0 = default."},
        {.kind = CLI_F64,
         .name = "hicache-size",
         .arg = "GB",
         .target = &v->engine.hicache_size,
         .max = 1e6,
         .help = "Host memory in GB instead of the ratio; 0 = by the ratio."},
        {.kind = CLI_TEXT,
         .name = "hicache-write-policy",
         .arg = "NAME",
         .values = "write_through, write_through_selective or write_back",
         .target = &v->engine.hicache_write_policy,
         .help =
             "When a prefix is copied to the host: write_through (default; when it is computed),\n"
             "write_through_selective (when a second request comes back to it; others are lost\n"
             "when they are evicted) or write_back (when it is about to be evicted)."},
        {.kind = CLI_TEXT,
         .name = "hicache-mem-layout",
         .arg = "NAME",
         .values = "page_first or layer_first",
         .target = &v->engine.hicache_mem_layout,
         .help = "page_first (default; pages go to storage without a copy) or layer_first."},
        {.kind = CLI_TEXT,
         .name = "hicache-eviction-policy",
         .arg = "NAME",
         .values = v->eviction_names,
         .target = &v->engine.hicache_eviction_policy,
         .help = "What the host gives up first: lru (default), or another of the names of\n"
                 "--radix-eviction-policy."},
        {.kind = CLI_TEXT,
         .name = "hicache-storage-backend",
         .arg = "STORE",
         .target = &v->engine.hicache_storage_backend,
         .help =
             "file:DIR, or redis:HOST:PORT,... for a Redis or a Redis Cluster: prefixes survive\n"
             "a restart, and servers of one model share them."},
        {.kind = CLI_TEXT,
         .name = "hicache-storage-prefetch-policy",
         .arg = "NAME",
         .values = "timeout, wait_complete or best_effort",
         .target = &v->engine.hicache_storage_prefetch_policy,
         .help = "How long a request waits for the store: timeout (default), wait_complete or\n"
                 "best_effort (not at all). None waits longer than computing would pay for."},
        {.kind = CLI_TEXT,
         .name = "hicache-storage-backend-extra-config",
         .arg = "JSON",
         .target = &v->engine.hicache_storage_backend_extra_config,
         .help =
             "prefetch_threshold (256 tokens), prefetch_timeout_base (2 s), _per_ki_token (0.1),\n"
             "_max (30); file: max_size (bytes, 8 GiB), fsync (default, never, always), threads,\n"
             "lock_timeout_ms; redis: user, password_file (or password, which a list of processes\n"
             "shows, or RADISH_REDIS_PASSWORD in the environment), allowed_hosts, prefix,\n"
             "ttl_seconds, connect_timeout_ms, timeout_ms, threads."},
        {.kind = CLI_TEXT,
         .name = "hicache-storage-mode",
         .arg = "MODE",
         .values = "0600, 0640 or 0660",
         .target = &v->engine.hicache_storage_mode,
         .help = "Of the files in file:DIR: 0600 (default; this user's alone), 0640 (a group may\n"
                 "read them) or 0660 (users of the directory's group share the store)."},
        {.kind = CLI_U32,
         .name = "hicache-load-back-threshold",
         .arg = "N",
         .target = &v->engine.hicache_load_back_threshold,
         .help = "Tokens: what the host has less of is computed. Default " NUMBER(
             RAD_HICACHE_LOAD_BACK_THRESHOLD) "; 0 = default."},
        {.kind = CLI_U32,
         .name = "hicache-prefetch-threshold",
         .arg = "N",
         .target = &v->engine.hicache_prefetch_threshold,
         .help = "Tokens: what a store has less of is not fetched; the extra config's\n"
                 "prefetch_threshold by another name. Default " NUMBER(
                     RAD_HICACHE_PREFETCH_THRESHOLD) "; 0 = default."},
        {.kind = CLI_U32,
         .name = "hicache-max-transfers",
         .arg = "N",
         .target = &v->engine.hicache_max_transfers,
         .max = 65535,
         .help = "Most copies under way at one time. Default " NUMBER(
             RAD_HICACHE_MAX_TRANSFERS) "; 0 = default."},
        {.kind = CLI_U32,
         .name = "hicache-copy-threads",
         .arg = "N",
         .target = &v->engine.hicache_copy_threads,
         .max = 64,
         .help = "Threads that copy to the host and back. Default " NUMBER(
             RAD_HICACHE_COPY_THREADS) "; 0 = default."},
        {.kind = CLI_U32,
         .name = "hicache-store-threads",
         .arg = "N",
         .target = &v->engine.hicache_store_threads,
         .max = 64,
         .help = "Threads that read and write the store. Default " NUMBER(
             RAD_HICACHE_STORE_THREADS) "; 0 = default."},
        {.kind = CLI_FLAG,
         .name = "hicache-pin-memory",
         .target = &v->engine.hicache_pin_memory,
         .help = "Lock the host's memory (mlock), so that a machine short of memory does not swap\n"
                 "out what was meant to be faster than a store. Wants the right to lock so much\n"
                 "(ulimit -l)."},
        {.kind = CLI_FLAG,
         .name = "hicache-storage-admin",
         .target = &v->server.storage_admin,
         .help = "Clients may attach a store of their choice, or detach it, while nothing runs:\n"
                 "PUT and DELETE /hicache/storage-backend; give --admin-api-key with it."},
    };
    RAD_ASSERT(RAD_COUNT(options) <= room);
    memcpy(out, options, sizeof options);
    return RAD_COUNT(options);
}
