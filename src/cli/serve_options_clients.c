/* serve_options_clients.c - what clients may take, who they are, and what watches a server. */
#include "cli/serve_options.h"

unsigned serve_options_clients(serve_values *v, cli_option *out, unsigned room)
{
    const cli_option options[] = {
        {.kind = CLI_HEADING, .help = "Clients, and what each may take:"},
        {.kind = CLI_TEXT,
         .name = "report-cached-tokens",
         .arg = "HOW",
         .target = &v->report,
         .help =
             "What answers say of the prompt tokens that were found in the cache: exact "
             "(default),\n"
             "rounded:N (down to a multiple of N, without a word on where the match ended; "
             "rounded\n"
             "is rounded:256) or off. Who shares a namespace (no extra_key, no cache_salt) can\n"
             "guess others' prompts token by token from exact counts. How long the first token\n"
             "takes still says something. Without exact ones /metrics, /server_info and\n"
             "/hicache/storage-backend have no figures of the cache."},
        {.kind = CLI_FLAG,
         .name = "report-cache-figures",
         .target = &v->server.report_cache_figures,
         .help = "They have them all the same: keep strangers from these paths then."},
        {.kind = CLI_U32,
         .name = "max-connections",
         .arg = "N",
         .target = &v->server.max_connections,
         .help = "How many may be open. Past it the one that has waited longest without a request\n"
                 "is closed; while all have one, new ones wait. Default 4096; 0 = default."},
        {.kind = CLI_U32,
         .name = "max-connections-per-client",
         .arg = "N",
         .target = &v->server.per_client.connections,
         .help =
             "Of these a client, which is an API key, or an address (of IPv6 its first 64 bits)\n"
             "where none is wanted, may have so many; past it its own one that has waited longest\n"
             "is closed, or the answer is 429. Default 0: any number, as of the next two."},
        {.kind = CLI_U32,
         .name = "max-queued-per-client",
         .arg = "N",
         .target = &v->server.per_client.queued,
         .help = "So many prompts of a client may wait for their first token; past it 429."},
        {.kind = CLI_U64,
         .name = "max-tokens-per-minute",
         .arg = "N",
         .target = &v->server.per_client.tokens_per_minute,
         .max = 1e15,
         .help =
             "So many tokens, of prompts (cached ones too) and answers, a client gets in a "
             "minute.\n"
             "A request begins while any are left and goes on to its end; what it takes beyond\n"
             "them is missing later. Past it 429, and Retry-After says when."},
        {.kind = CLI_U64,
         .name = "max-body-bytes",
         .arg = "N",
         .target = &v->server.max_body_bytes,
         .max = 1e12,
         .help = "Longest body of a request; past it the answer is 413. Default 64 MiB;\n"
                 "0 = default."},
        {.kind = CLI_U64,
         .name = "max-request-memory",
         .arg = "BYTES",
         .target = &v->max_request_memory,
         .max = 1e15,
         .help =
             "What all requests together may hold outside of the KV cache: half for bodies and\n"
             "answers on their way, past it their connections are dropped; half for what is\n"
             "made of them (parsed JSON, prompts, ids, answers so far), past it 503 or 429,\n"
             "and 413 for a body that alone would need more. JSON can take 125 times its\n"
             "length. Default 1 GiB; at least 16 MiB; 0 = default."},
        {.kind = CLI_U32,
         .name = "max-header-bytes",
         .arg = "N",
         .target = &v->server.max_header_bytes,
         .max = 1 << 20,
         .help = "Longest head of a request; past it 431. Default 16384; 0 = default."},
        {.kind = CLI_U32,
         .name = "timeout-request",
         .arg = "SECONDS",
         .target = &v->timeout_request,
         .max = 86400,
         .help =
             "A request must be whole so soon after its first byte, and a second later for each\n"
             "16 KiB of it; past it 408. Default 30; 0 = default."},
        {.kind = CLI_U32,
         .name = "request-timeout",
         .arg = "SECONDS",
         .target = &v->request_timeout,
         .max = 86400,
         .help =
             "A request that is not answered to its end so long after it was whole ends with an\n"
             "error, 504 or in its stream, and gives its memory back. Default 0: any time."},
        {.kind = CLI_U32,
         .name = "timeout-keep-alive",
         .arg = "SECONDS",
         .target = &v->timeout_keep_alive,
         .max = 86400,
         .help = "How long a connection may stay without a request. Default 120; 0 = default."},
        {.kind = CLI_U32,
         .name = "timeout-send",
         .arg = "SECONDS",
         .target = &v->timeout_send,
         .max = 86400,
         .help =
             "How long an answer may wait for its client, in all, and a second longer for each\n"
             "16 KiB that were taken; past it the client is dropped, its request aborted. While\n"
             "all connections are taken at most 10. Default 120; 0 = default."},
        {.kind = CLI_U32,
         .name = "drain-timeout",
         .arg = "SECONDS",
         .target = &v->drain_s,
         .min = 1,
         .max = 86400,
         .help = "How long running requests may go on after SIGINT or SIGTERM. Default " NUMBER(
             SERVE_DRAIN_S) "."},
        {.kind = CLI_HEADING, .help = "Who may ask, and over what:"},
        {.kind = CLI_TEXT,
         .name = "ssl-certfile",
         .arg = "FILE",
         .target = &v->server.tls.certificate,
         .help =
             "Speak HTTPS (TLS 1.2 or 1.3), with this certificate, PEM, and those of its chain\n"
             "behind it. SIGHUP reads this and the next files again."},
        {.kind = CLI_TEXT,
         .name = "ssl-keyfile",
         .arg = "FILE",
         .target = &v->server.tls.key,
         .help = "Its private key, PEM. Default: in the certificate's file."},
        {.kind = CLI_TEXT,
         .name = "ssl-keyfile-password",
         .arg = "PASSWORD",
         .target = &v->server.tls.password,
         .help = "Opens an encrypted key. A list of processes shows it."},
        {.kind = CLI_TEXT,
         .name = "ssl-ca-certs",
         .arg = "FILE",
         .target = &v->server.tls.client_ca,
         .help = "Only clients with a certificate that one of these, PEM, has signed may connect."},
        {.kind = CLI_LIST,
         .name = "api-key",
         .arg = "KEY",
         .target = &v->keys.plain,
         .help = "Only requests with this key are answered (Authorization: Bearer KEY, or\n"
                 "x-api-key: KEY), but for /health. May be given more than once. A list of\n"
                 "processes shows it: --api-key-file does not. Each key has a namespace of the\n"
                 "cache of its own."},
        {.kind = CLI_TEXT,
         .name = "api-key-file",
         .arg = "FILE",
         .target = &v->keys.file,
         .help = "Keys, one a line; lines that begin with # are none."},
        {.kind = CLI_TEXT,
         .name = "admin-api-key",
         .arg = "KEY",
         .target = &v->keys.admin,
         .help =
             "/flush_cache, /kv_events, /hicache/storage-backend and /inspect/... want this key."},
        {.kind = CLI_FLAG,
         .name = "no-dashboard",
         .target = &v->server.no_dashboard,
         .help =
             "No page at / for browsers, and no /inspect/..., which tell what the cache holds, "
             "for\n"
             "whom and why. They are for whoever has --admin-api-key; without keys for everybody,\n"
             "on loopback alone."},
        {.kind = CLI_FLAG,
         .name = "dashboard-text",
         .target = &v->server.dashboard_text,
         .help = "They show and search prompts, everybody's, as text and as token ids."},
        {.kind = CLI_FLAG,
         .name = "shared-cache",
         .target = &v->server.shared_cache,
         .help = "All keys share what is cached: for keys of people who trust each other."},
        {.kind = CLI_LIST,
         .name = "allow-origin",
         .arg = "ORIGIN",
         .target = &v->origins,
         .help =
             "Pages of this origin, as http://localhost:3000, may use the server from a browser;\n"
             "* = all, null = files. May be given more than once. Default: only pages that\n"
             "the server itself gave. Programs that are no browsers are not concerned."},
        {.kind = CLI_LIST,
         .name = "allow-host",
         .arg = "NAME",
         .target = &v->hosts,
         .help =
             "A name or address that requests may have as Host, with a port or for any; * = all.\n"
             "May be given more than once. Names of loopback are always right; where the server\n"
             "listens on loopback, others are refused (a proxy in front may send its own), and\n"
             "elsewhere once a name is given."},
        {.kind = CLI_HEADING, .help = "Watching it:"},
        {.kind = CLI_TEXT,
         .name = "kv-events-config",
         .arg = "JSON",
         .target = &v->engine.kv_events_config,
         .help =
             "Publishes what enters and leaves the cache, for cache-aware routers: an object as\n"
             "SGLang's and vLLM's, {\"publisher\": \"zmq\", \"endpoint\": \"tcp://*:5557\",\n"
             "\"replay_endpoint\": \"tcp://*:5558\"}; docs/kv-events.md has all keys. Who can\n"
             "connect there reads the token ids of all prompts. Default: nothing is published."},
        {.kind = CLI_TEXT,
         .name = "record",
         .arg = "FILE",
         .target = &v->engine.record,
         .help =
             "Writes down what the cache is asked, for radish replay: when requests come, how "
             "long\n"
             "they are, salted hashes of their pages, and every match, insertion and eviction in\n"
             "order; no text. A file that is there is kept: the record becomes FILE.1, or .2 ...;\n"
             "a pipe, a device or a directory is refused."},
        {.kind = CLI_F64,
         .name = "record-limit",
         .arg = "GB",
         .target = &v->record_gb,
         .min = 0.0001,
         .max = 1e6,
         .help = "Where it ends; serving goes on. Default 1."},
        {.kind = CLI_TEXT,
         .name = "log-format",
         .arg = "text|json",
         .target = &v->log_format,
         .help = "Lines of the log as text (default), or each a JSON object: time, level, message; "
                 "of a\n"
                 "request also its fields, trace_id among them where it has one."},
        {.kind = CLI_TEXT,
         .name = "otlp-endpoint",
         .arg = "URL",
         .target = &v->server.otlp_endpoint,
         .help =
             "Sends a span of each request, with its time in the queue, in prefill and in decode, "
             "to\n"
             "an OpenTelemetry collector, as http://127.0.0.1:4318 (OTLP over HTTP, JSON). A "
             "request\n"
             "with a traceparent is a part of that trace. Without a collector spans are counted\n"
             "and dropped (/metrics)."},
        {.kind = CLI_FLAG,
         .name = "explain-namespaces",
         .target = &v->engine.explain_namespaces,
         .help =
             "Counts prompt tokens that are cached for another cache_salt, extra_key or API key\n"
             "(radish_other_namespace_tokens_total). For who owns all of them: whoever reads\n"
             "/metrics can test guesses of others' prompts then."},
        {.kind = CLI_HEADING, .help = "For tests:"},
        {.kind = CLI_FLAG,
         .name = "attn-ref",
         .target = &v->engine.use_attn_ref,
         .help = "The slow, obvious attention instead of the fast one."},
    };
    RAD_ASSERT(RAD_COUNT(options) <= room);
    memcpy(out, options, sizeof options);
    return RAD_COUNT(options);
}
