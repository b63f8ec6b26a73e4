/* serve.c - `radish serve`: its options; then load, say what is served, and serve. */
#include "cli/serve.h"

#include "server/access.h"
#include "server/otlp.h"
#include "server/server.h"
#include "text/tool_call.h"

#include <stdio.h>
#include <stdlib.h>

/* --max-request-memory, and the least that a server is of use with. */
#define MAX_REQUEST_MEMORY (UINT64_C(1) << 30)
#define MIN_REQUEST_MEMORY (UINT64_C(16) << 20)

/* A server has somebody waiting for the next token: on a slow machine a whole chunk of somebody
 * else's prompt would take seconds. The engine's own default is no limit. */
#define DEFAULT_MAX_ITL_MS   500
#define DEFAULT_SELF_CHECK_S 60
#define DEFAULT_DRAIN_S      30

/* --log-format json: what the line of a request says, field by field. */
static void log_access(void *user, const access_record *a, double seconds)
{
    const model_options *model = user;
    const char *path = strchr(a->what, ' ');
    if (model->parsed_log_level < RAD_LOG_INFO) return;
    json_t *more =
        json_pack("{s:s%, s:s, s:i, s:b, s:f, s:s, s:s}", "method", a->what,
                  path ? (size_t)(path - a->what) : strlen(a->what), "path", path ? path + 1 : "",
                  "status", a->status, "failed", a->failed, "seconds", seconds, "request_id", a->id,
                  "client", a->peer);
    if (more && a->trace.trace_id[0]) {
        json_object_set_new(more, "trace_id", json_string(a->trace.trace_id));
        json_object_set_new(more, "span_id", json_string(a->trace.span_id));
    }
    if (more && a->has_tokens) {
        json_object_set_new(more, "prompt_tokens", json_integer((json_int_t)a->prompt_tokens));
        json_object_set_new(more, "cached_tokens", json_integer((json_int_t)a->cached_tokens));
        json_object_set_new(more, "output_tokens", json_integer((json_int_t)a->output_tokens));
    }
    cli_log_json(RAD_LOG_INFO, "request", more);
}

/* Until a signal ends it. */
static int serve(model_options *model, engine_params *engine_p, server_params *server_p)
{
    rad_env env = cli_env(model);
    rad_error err = {0};
    engine *e = NULL;
    server *s = NULL;
    int code = 0;
    model->log_times = true;
    if (model->log_json) {
        server_p->on_access = log_access;
        server_p->access_user = model;
    }
    engine_p->model_path = model->model;
    engine_p->dtype = model->parsed_dtype;
    engine_p->dtype_by_device = model->dtype_auto;
    engine_p->device = model->device;
    engine_p->weights = model->parsed_weights;
    engine_p->num_threads = model->threads;
    engine_p->progress = cli_progress;
    engine_p->progress_user = (void *)(uintptr_t)model->model;
    server_limit_buffers(engine_p->request_memory->limit);
    if (engine_create(&env, engine_p, &e, &err) != RAD_OK ||
        server_create(&env, e, server_p, &s, &err) != RAD_OK ||
        server_catch_signals(s, &err) != RAD_OK) {
        code = cli_fail("%s", err.text);
    } else {
        serve_print_banner(e, s, server_p, engine_p->max_itl_ms); /* who reads it may send a signal */
        if (server_run(s, &err) != RAD_OK) code = cli_fail("%s", err.text);
    }
    server_destroy(s);
    engine_destroy(e);
    return code;
}

/* What the options say points into argv and *config. */
static int run_command(int argc, char **argv, config_file *config)
{
    model_options model = {0};
    memory_budget request_memory = {0};
    uint64_t max_request_memory = 0;
    engine_params engine_p = {.max_itl_ms = DEFAULT_MAX_ITL_MS,
                              .speculative_algorithm = CLI_DRAFT_SOURCES,
                              .speculative_num_draft_tokens = CLI_DRAFT_TOKENS,
                              .speculative_ngram_capacity = CLI_RECENT_TOKENS,
                              .self_check_interval_s = DEFAULT_SELF_CHECK_S,
                              .max_pinned_tokens = ENGINE_PIN_QUARTER,
                              .max_sessions = ENGINE_USUAL_SESSIONS,
                              .request_memory = &request_memory};
    server_params server_p = {.port = 30000, .request_memory = &request_memory};
    bool itl_given = false;
    cli_list names = {0};
    const char *report = NULL, *log_format = NULL;
    const char *positional = NULL, *policy = NULL, *policy_config = NULL;
    double populate_gb = 1;
    double record_gb = 0;
    uint32_t timeout_request = 0, request_timeout = 0, timeout_keep_alive = 0, timeout_send = 0;
    cli_list origins = {0}, hosts = {0};
    serve_keys keys = {0};
    uint32_t drain_s = DEFAULT_DRAIN_S;
    char names_of[400], order[600], gives_up[300], call_parsers[700], reasoning_parsers[700];
    cli_wrap(
        call_parsers, sizeof call_parsers,
        "How the model writes calls of tools: auto (default; by its chat template), none (calls "
        "are text), or one of %s.",
        tool_format_names(names_of, sizeof names_of));
    cli_wrap(
        reasoning_parsers, sizeof reasoning_parsers,
        "How it writes reasoning, which answers have apart: auto (default), none (it is text), "
        "or one of %s.",
        reasoning_format_names(names_of, sizeof names_of));
    cli_wrap(order, sizeof order,
             "Who goes first: %s. Under each the oldest waiting request gets every 16th admission.",
             engine_schedule_policies(names_of, sizeof names_of));
    cli_wrap(gives_up, sizeof gives_up,
             "What the cache gives up first: %s (decayed hits times what recomputing costs).",
             cli_eviction_names(names_of, sizeof names_of));
    const cli_manual manual = {
        .command = "serve",
        .usage = "serve MODEL [options]",
        .about =
            "Serves a GGUF model over HTTP. What requests have in common at their start (system\n"
            "prompts, few-shot examples, a conversation's history) is computed once; every answer\n"
            "says how many prompt tokens were found in the cache.\n"
            "\n"
            "  POST /v1/completions, /v1/chat/completions    OpenAI's; plain and streaming\n"
            "  POST /v1/responses                            OpenAI's, with answers to go on from\n"
            "  POST /v1/messages, /v1/messages/count_tokens  Anthropic's\n"
            "  POST /v1/embeddings                           OpenAI's: texts as vectors\n"
            "  POST /api/chat, /api/generate, /api/embed     Ollama's; /api/tags, show, ps as "
            "well\n"
            "  POST /generate                                SGLang's native form\n"
            "  POST /tokenize, /detokenize                   text or messages to ids, and back\n"
            "  POST /open_session, /close_session            turns that go on from token ids\n"
            "  POST /pin_prefix, /unpin_prefix               what is cached of a prefix is kept\n"
            "  GET  /v1/models, /health, /model_info, /server_info, /metrics\n"
            "  POST /flush_cache[?tiers=device,host,storage]\n"
            "  GET  /, /inspect/status, /inspect/tree        what it holds: a page, and JSON\n"
            "  GET  /kv_events                               which blocks are cached\n"
            "  GET, PUT, DELETE /hicache/storage-backend\n"
            "\n"
            "With --log-level info every request leaves a line on stderr: when, method and path,\n"
            "status, seconds, its X-Request-Id (one is made up where there is none; the answer "
            "has\n"
            "it too), tokens. Texts are never logged.\n"
            "\n"
            "SIGINT or SIGTERM: new connections are refused, running requests may finish for\n"
            "--drain-timeout; a second one stops at once. SIGHUP reads certificates again.",
        .after = "Example:\n"
                 "  radish serve model.gguf --port 8000 --max-total-tokens 100000",
    };
    const cli_option options[] = {
        {.kind = CLI_HEADING, .help = "Where and as what:"},
        {.kind = CLI_TEXT,
         .name = "host",
         .arg = "ADDRESS",
         .target = &server_p.host,
         .help =
             "Address to listen on: numeric, or localhost. Default 127.0.0.1: this machine only.\n"
             "Without --api-key everybody who reaches it may ask."},
        {.kind = CLI_U16,
         .name = "port",
         .arg = "N",
         .target = &server_p.port,
         .help = "Default 30000; 0 = any free one, printed at start."},
        {.kind = CLI_LIST,
         .name = "served-model-name",
         .arg = "NAME",
         .target = &names,
         .help = "What clients call the model; may be given several times. A request that names\n"
                 "another model gets 404, one that names none is answered; with * any name is\n"
                 "served (agents ask for a second, small model). Default: the name in the file."},
        {.kind = CLI_TEXT,
         .name = "chat-template",
         .arg = "NAME",
         .target = &engine_p.chat_template,
         .help = "chatml, llama-3, radish, the name of one of the model file's templates (radish\n"
                 "info lists them), a Jinja file, or none. Default: the model file's own, and\n"
                 "its tool_use for requests with tools; one that cannot be read is an error at\n"
                 "start. See radish render."},
        {.kind = CLI_TEXT,
         .name = "tool-call-parser",
         .arg = "NAME",
         .target = &server_p.tool_call_parser,
         .help = call_parsers},
        {.kind = CLI_TEXT,
         .name = "reasoning-parser",
         .arg = "NAME",
         .target = &server_p.reasoning_parser,
         .help = reasoning_parsers},
        {.kind = CLI_TEXT,
         .name = "pooling",
         .arg = "HOW",
         .target = &engine_p.pooling,
         .help = "Which hidden states make an embedding (/v1/embeddings): last, that of the last\n"
                 "token; mean, of all. auto (default): what the model's file says, else last."},
        {.kind = CLI_CONFIG,
         .name = "config",
         .arg = "FILE",
         .target = config,
         .help = "Read options from FILE first, one a line: their names here without the leading\n"
                 "dashes, as port = 8000, or a flag's name alone; a line that begins with # is a\n"
                 "comment. What the command line gives as well is taken from there, or, where\n"
                 "several are possible, added."},
        MODEL_OPTIONS(&model),
        DEVICE_OPTION(&model),
        {.kind = CLI_HEADING, .help = "Memory and scheduling:"},
        {.kind = CLI_F64,
         .name = "mem-fraction-static",
         .arg = "F",
         .target = &engine_p.mem_fraction_static,
         .max = 1,
         .help =
             "Weights and KV cache may take this part of the available memory. Default 0.8, or\n"
             "as much more as a large model needs for one context while 1 GB stays free (a\n"
             "warning says how much); 0 = default. A model that does not fit is refused before\n"
             "it is read."},
        {.kind = CLI_U64,
         .name = "max-total-tokens",
         .arg = "N",
         .target = &engine_p.max_total_tokens,
         .help =
             "Size of the KV cache in tokens; more than what --mem-fraction-static leaves is a\n"
             "warning and that. Default: all that it leaves where it is given, else not more than\n"
             "64 full contexts (--max-running-requests of them, if that is more). 0 = default."},
        {.kind = CLI_F64,
         .name = "swa-full-tokens-ratio",
         .arg = "F",
         .target = &engine_p.swa_full_tokens_ratio,
         .max = 1,
         .help =
             "Models whose layers (all or some) see a sliding window keep K and V of these layers\n"
             "in a pool of their own, which has F tokens for each token of --max-total-tokens.\n"
             "Default: the window divided by the context length, 0.125 at least, and as much more\n"
             "as there is memory for where neither flag above says how much; 0 = default. 1 is\n"
             "for requests that are mostly shorter than the window."},
        {.kind = CLI_FLAG,
         .name = "disable-hybrid-swa-memory",
         .target = &engine_p.disable_hybrid_swa_memory,
         .help = "Keep K and V of the whole context in layers with a sliding window, too; for\n"
                 "comparison."},
        {.kind = CLI_U32,
         .name = "max-mamba-cache-size",
         .arg = "N",
         .target = &engine_p.max_mamba_cache_size,
         .max = 1 << 24,
         .help =
             "States of a model with recurrent layers (delta rule, Mamba, short convolutions): "
             "one\n"
             "or two for each running request, the rest are snapshots that later requests go on\n"
             "from. Default: by the ratio below, as far as there is use for them; 0 = default."},
        {.kind = CLI_F64,
         .name = "mamba-full-memory-ratio",
         .arg = "F",
         .target = &engine_p.mamba_full_memory_ratio,
         .max = 100,
         .help = "Bytes of states for each byte of K and V. Default 0.9, less where fewer states\n"
                 "are enough for all requests and for a snapshot every so many cached tokens, or\n"
                 "where one context would not fit; 0 = default."},
        {.kind = CLI_U32,
         .name = "mamba-track-interval",
         .arg = "N",
         .target = &engine_p.mamba_track_interval,
         .max = 1 << 24,
         .help =
             "Tokens between snapshots of a long prompt, besides those where messages begin, "
             "where\n"
             "requests branch off and where answers end. Default: as many as have K and V of a\n"
             "state's size, from 256 to 4096; 0 = default."},
        {.kind = CLI_F64,
         .name = "kv-populate-ahead",
         .arg = "GB",
         .target = &populate_gb,
         .max = 1e6,
         .help = "Memory of the KV cache that is taken beyond what was used so far, while no\n"
                 "request runs: else a step waits for the kernel when it first writes there, in\n"
                 "a virtual machine for a tenth of a second at times. Default 1; 0 = none: memory\n"
                 "is taken when it is written."},
        {.kind = CLI_U32,
         .name = "max-namespaces",
         .arg = "N",
         .target = &engine_p.max_namespaces,
         .max = 1 << 20,
         .help =
             "Different cache_salt (and extra_key) that may have something cached at one time;\n"
             "past it the least useful one is given up. Default: one for each page of the\n"
             "pool, 65536 at most; 0 = default."},
        {.kind = CLI_U32,
         .name = "max-running-requests",
         .arg = "N",
         .target = &engine_p.max_running_requests,
         .help =
             "How many requests may run at once. Default: one for 512 tokens of the KV cache, 64 "
             "to\n"
             "4096, as far as a 32nd of the memory for weights and KV has room for their buffers\n"
             "(256 in any case); 0 = default."},
        {.kind = CLI_U32,
         .name = "max-queued-requests",
         .arg = "N",
         .target = &engine_p.max_queued_requests,
         .help = "How many may wait; past it the answer is 429. Default " NUMBER(
             ENGINE_MAX_QUEUED_REQUESTS) "; 0 = default."},
        {.kind = CLI_I32,
         .name = "chunked-prefill-size",
         .arg = "N",
         .target = &engine_p.chunked_prefill_size,
         .min = -1,
         .max = INT32_MAX,
         .help = "Most prompt tokens computed in one step. Default " NUMBER(
             ENGINE_CHUNKED_PREFILL_SIZE) "; 0 = default, -1 = no limit."},
        {.kind = CLI_TEXT,
         .name = "kv-cache-dtype",
         .arg = "TYPE",
         .target = &engine_p.kv_cache_dtype,
         .help = "What K and V are stored as: auto (as --dtype), f32, bf16, f16, fp8_e4m3,\n"
                 "fp8_e5m2 (no scales: small numbers lose much) or int8 (with a scale per token\n"
                 "and head). Smaller ones hold more tokens and change answers a little, but\n"
                 "never from one run to another."},
        {.kind = CLI_U32,
         .name = "page-size",
         .arg = "N",
         .target = &engine_p.page_size,
         .max = 1024,
         .help = "Tokens per page of the KV cache: the grain of sharing. Default 1; 0 = default."},
        {.kind = CLI_FLAG,
         .name = "disable-partial-reuse",
         .target = &engine_p.disable_partial_reuse,
         .help =
             "With larger pages: share whole ones only. Else the front of one that begins like\n"
             "a prompt goes on is copied; the answers are the same. For comparison."},
        {.kind = CLI_U32,
         .name = "context-length",
         .arg = "N",
         .target = &engine_p.context_length,
         .help = "Most tokens of a prompt and its answer. Default: the model's; 0 = default."},
        {.kind = CLI_TEXT,
         .name = "schedule-policy",
         .arg = "NAME",
         .target = &engine_p.schedule_policy,
         .help = order},
        {.kind = CLI_FLAG,
         .name = "enable-priority-scheduling",
         .target = &engine_p.enable_priority_scheduling,
         .help = "A request's priority goes before the policy's own order (--schedule-policy\n"
                 "priority has no other)."},
        {.kind = CLI_FLAG,
         .name = "schedule-low-priority-values-first",
         .target = &engine_p.schedule_low_priority_values_first,
         .help = "With either of the two: the lowest priority goes first instead of the highest."},
        {.kind = CLI_U32,
         .name = "max-itl-ms",
         .arg = "N",
         .target = &engine_p.max_itl_ms,
         .given = &itl_given,
         .help =
             "Cut the prompts of a step so that answers in progress get their next token within\n"
             "N ms, as far as can be told from the steps before; 16 prompt tokens a step are\n"
             "always computed. Default " NUMBER(
                 DEFAULT_MAX_ITL_MS) " (none with --chunked-prefill-size -1); 0 = no limit:\n"
                                     "larger chunks compute more tokens a second."},
        {.kind = CLI_TEXT,
         .name = "speculative-algorithm",
         .arg = "NAME",
         .target = &engine_p.speculative_algorithm,
         .help =
             "Who guesses tokens that are computed in one step and kept as far as they are what\n"
             "the model says; no answer depends on it. none: only the text that the grammar of a\n"
             "constrained request forces; tree: besides, what requests of the same namespace that\n"
             "began alike went on with; ngram: what stood behind the same tokens earlier in the\n"
             "request's own text; recent: and in recent answers of its namespace; prediction: what\n"
             "a request's 'prediction' foretells; nextn: a head of the model itself, where its file\n"
             "carries one (qwen35, qwen35moe, deepseek2); or several of these with commas between\n"
             "them. Nothing is guessed where it was measured not to pay. Default\n" CLI_DRAFT_SOURCES
             "."},
        {.kind = CLI_TEXT,
         .name = "speculative-draft-model-path",
         .arg = "FILE",
         .target = &engine_p.speculative_draft_model_path,
         .help =
             "A small model with the same vocabulary, which guesses, too: it computes beside the\n"
             "other one, and keeps K/V of its own for each token of the KV cache."},
        {.kind = CLI_U32,
         .name = "speculative-num-draft-tokens",
         .arg = "N",
         .target = &engine_p.speculative_num_draft_tokens,
         .max = 64,
         .help = "At most so many tokens of a request are guessed at one time. Default " NUMBER(
             CLI_DRAFT_TOKENS) ";\n0 = nothing is guessed."},
        {.kind = CLI_U32,
         .name = "speculative-ngram-capacity",
         .arg = "N",
         .target = &engine_p.speculative_ngram_capacity,
         .max = 1 << 28,
         .help =
             "Tokens of recent answers that are kept for guesses (--speculative-algorithm "
             "recent),\n"
             "a power of two or the next, 26 bytes each, the oldest going first. Default\n" NUMBER(
                 CLI_RECENT_TOKENS) "; 0 = none."},
        {.kind = CLI_FLAG,
         .name = "disable-tree-attention",
         .target = &engine_p.disable_tree_attention,
         .help =
             "Read the KV of a shared prefix once for each request of a step instead of once for\n"
             "all; the answers are the same. For comparison."},
        {.kind = CLI_TEXT,
         .name = "radix-eviction-policy",
         .arg = "NAME",
         .target = &policy,
         .help = gives_up},
        {.kind = CLI_TEXT,
         .name = "radix-eviction-policy-config",
         .arg = "JSON",
         .target = &policy_config,
         .help = "Its options: '{\"protected_threshold\":4}' for slru (default " NUMBER(
             RAD_EVICT_PROTECTED_THRESHOLD) ");\n"
                                            "cost_half_life_percent (" NUMBER(RAD_EVICT_COST_HALF_LIFE_PERCENT) ") and cost_attention_tokens (" NUMBER(
                                                RAD_EVICT_COST_ATTENTION_TOKENS) ") for cost."},
        {.kind = CLI_FLAG,
         .name = "disable-radix-cache",
         .target = &engine_p.disable_radix_cache,
         .help = "Share nothing between requests; for comparison."},
        {.kind = CLI_U64,
         .name = "random-seed",
         .arg = "N",
         .target = &engine_p.random_seed,
         .help = "Seeds of requests that bring none derive from it, and the order under\n"
                 "--schedule-policy random. Default: the clock; 0 = default."},
        {.kind = CLI_F64,
         .name = "verify",
         .arg = "RATE",
         .target = &engine_p.verify_rate,
         .max = 1,
         .help =
             "Compute this share of the requests once more, alone and without the cache, and\n"
             "compare all logits bit by bit: 0.01 is one in a hundred. When nothing else runs,\n"
             "and at most 64 tokens after every 16th step of a busy server. Differences are "
             "logged\n"
             "and counted; requests that there is no time or room for are counted (/metrics).\n"
             "Default 0."},
        {.kind = CLI_F64,
         .name = "self-check-interval",
         .arg = "SECONDS",
         .target = &engine_p.self_check_interval_s,
         .max = 1e6,
         .help =
             "How often an idle server checks that each KV slot has exactly one owner, and all\n"
             "its structures: in pieces, between which requests are served. What is wrong is\n"
             "logged and counted (/metrics), and serving goes on. Default " NUMBER(
                 DEFAULT_SELF_CHECK_S) "; 0 = never."},
        {.kind = CLI_HEADING, .help = "What clients may have kept:"},
        {.kind = CLI_U64,
         .name = "max-pinned-tokens",
         .arg = "N",
         .target = &engine_p.max_pinned_tokens,
         .help = "Tokens of the KV cache that requests may ask to be kept (/pin_prefix,\n"
                 "cache_control, prompt_cache_key): they are evicted after all others. Of what is\n"
                 "too much the front is kept. Default: a quarter of the cache; 0 = none."},
        {.kind = CLI_U32,
         .name = "max-sessions",
         .arg = "N",
         .target = &engine_p.max_sessions,
         .max = 65535,
         .help = "Sessions (/open_session) that may be open at one time; their pages are evicted\n"
                 "after those of no session. Default " NUMBER(ENGINE_NUM_SESSIONS) "; 0 = none."},
        {.kind = CLI_FLAG,
         .name = "enable-streaming-session",
         .target = &engine_p.streaming_sessions,
         .help =
             "Sessions may be opened with streaming: true: they only go on, one turn at a time,\n"
             "and keep all K and V between turns, the partial last page too, until room is\n"
             "short. Takes 8 bytes for each session and token of a context. Pages of other\n"
             "sessions have no place of their own then."},
        {.kind = CLI_U32,
         .name = "session-timeout",
         .arg = "S",
         .target = &server_p.session_timeout_s,
         .help =
             "Seconds after which an idle session ends, unless it was opened with a timeout of\n"
             "its own. Default 3600; 0 = default."},
        {.kind = CLI_HEADING, .help = "Host memory and storage below the KV cache:"},
        {.kind = CLI_FLAG,
         .name = "enable-hierarchical-cache",
         .target = &engine_p.enable_hierarchical_cache,
         .help = "Copy prefixes to host memory, and to a store if one is given, where they survive "
                 "being\n"
                 "evicted; --hicache-write-policy says which."},
        {.kind = CLI_F64,
         .name = "hicache-ratio",
         .arg = "F",
         .target = &engine_p.hicache_ratio,
         .max = 1e6,
         .help = "Host tokens for each token of the KV cache. Default " NUMBER(
             ENGINE_HICACHE_RATIO) "; 0 = default."},
        {.kind = CLI_F64,
         .name = "hicache-size",
         .arg = "GB",
         .target = &engine_p.hicache_size,
         .max = 1e6,
         .help = "Host memory in GB instead of the ratio; 0 = by the ratio."},
        {.kind = CLI_TEXT,
         .name = "hicache-write-policy",
         .arg = "NAME",
         .target = &engine_p.hicache_write_policy,
         .help =
             "When a prefix is copied to the host: write_through (default; when it is computed),\n"
             "write_through_selective (when a second request comes back to it; others are lost\n"
             "when they are evicted) or write_back (when it is about to be evicted)."},
        {.kind = CLI_TEXT,
         .name = "hicache-mem-layout",
         .arg = "NAME",
         .target = &engine_p.hicache_mem_layout,
         .help = "page_first (default; pages go to storage without a copy) or layer_first."},
        {.kind = CLI_TEXT,
         .name = "hicache-eviction-policy",
         .arg = "NAME",
         .target = &engine_p.hicache_eviction_policy,
         .help = "What the host gives up first: lru (default), or another of the names of\n"
                 "--radix-eviction-policy."},
        {.kind = CLI_TEXT,
         .name = "hicache-storage-backend",
         .arg = "STORE",
         .target = &engine_p.hicache_storage_backend,
         .help =
             "file:DIR, or redis:HOST:PORT,... for a Redis or a Redis Cluster: prefixes survive\n"
             "a restart, and servers of one model share them."},
        {.kind = CLI_TEXT,
         .name = "hicache-storage-prefetch-policy",
         .arg = "NAME",
         .target = &engine_p.hicache_storage_prefetch_policy,
         .help = "How long a request waits for the store: timeout (default), wait_complete or\n"
                 "best_effort (not at all). None waits longer than computing would pay for."},
        {.kind = CLI_TEXT,
         .name = "hicache-storage-backend-extra-config",
         .arg = "JSON",
         .target = &engine_p.hicache_storage_backend_extra_config,
         .help =
             "prefetch_threshold (256 tokens), prefetch_timeout_base (2 s), _per_ki_token (0.1),\n"
             "_max (30); file: max_size (bytes, 8 GiB), fsync (default, never, always), threads,\n"
             "lock_timeout_ms; redis: user, password_file (or password, which a list of processes\n"
             "shows, or RADISH_REDIS_PASSWORD in the environment), allowed_hosts, prefix,\n"
             "ttl_seconds, connect_timeout_ms, timeout_ms, threads."},
        {.kind = CLI_TEXT,
         .name = "hicache-storage-mode",
         .arg = "MODE",
         .target = &engine_p.hicache_storage_mode,
         .help = "Of the files in file:DIR: 0600 (default; this user's alone), 0640 (a group may\n"
                 "read them) or 0660 (users of the directory's group share the store)."},
        {.kind = CLI_U32,
         .name = "hicache-load-back-threshold",
         .arg = "N",
         .target = &engine_p.hicache_load_back_threshold,
         .help = "Tokens: what the host has less of is computed. Default " NUMBER(
             RAD_HICACHE_LOAD_BACK_THRESHOLD) "; 0 = default."},
        {.kind = CLI_U32,
         .name = "hicache-prefetch-threshold",
         .arg = "N",
         .target = &engine_p.hicache_prefetch_threshold,
         .help = "Tokens: what a store has less of is not fetched; the extra config's\n"
                 "prefetch_threshold by another name. Default " NUMBER(
                     RAD_HICACHE_PREFETCH_THRESHOLD) "; 0 = default."},
        {.kind = CLI_U32,
         .name = "hicache-max-transfers",
         .arg = "N",
         .target = &engine_p.hicache_max_transfers,
         .max = 65535,
         .help = "Most copies under way at one time. Default " NUMBER(
             RAD_HICACHE_MAX_TRANSFERS) "; 0 = default."},
        {.kind = CLI_U32,
         .name = "hicache-copy-threads",
         .arg = "N",
         .target = &engine_p.hicache_copy_threads,
         .max = 64,
         .help = "Threads that copy to the host and back. Default " NUMBER(
             RAD_HICACHE_COPY_THREADS) "; 0 = default."},
        {.kind = CLI_U32,
         .name = "hicache-store-threads",
         .arg = "N",
         .target = &engine_p.hicache_store_threads,
         .max = 64,
         .help = "Threads that read and write the store. Default " NUMBER(
             RAD_HICACHE_STORE_THREADS) "; 0 = default."},
        {.kind = CLI_FLAG,
         .name = "hicache-pin-memory",
         .target = &engine_p.hicache_pin_memory,
         .help = "Lock the host's memory (mlock), so that a machine short of memory does not swap\n"
                 "out what was meant to be faster than a store. Wants the right to lock so much\n"
                 "(ulimit -l)."},
        {.kind = CLI_FLAG,
         .name = "hicache-storage-admin",
         .target = &server_p.storage_admin,
         .help = "Clients may attach a store of their choice, or detach it, while nothing runs:\n"
                 "PUT and DELETE /hicache/storage-backend; give --admin-api-key with it."},
        {.kind = CLI_HEADING, .help = "Clients, and what each may take:"},
        {.kind = CLI_TEXT,
         .name = "report-cached-tokens",
         .arg = "HOW",
         .target = &report,
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
         .target = &server_p.report_cache_figures,
         .help = "They have them all the same: keep strangers from these paths then."},
        {.kind = CLI_U32,
         .name = "max-connections",
         .arg = "N",
         .target = &server_p.max_connections,
         .help = "How many may be open. Past it the one that has waited longest without a request\n"
                 "is closed; while all have one, new ones wait. Default 4096; 0 = default."},
        {.kind = CLI_U32,
         .name = "max-connections-per-client",
         .arg = "N",
         .target = &server_p.per_client.connections,
         .help =
             "Of these a client, which is an API key, or an address (of IPv6 its first 64 bits)\n"
             "where none is wanted, may have so many; past it its own one that has waited longest\n"
             "is closed, or the answer is 429. Default 0: any number, as of the next two."},
        {.kind = CLI_U32,
         .name = "max-queued-per-client",
         .arg = "N",
         .target = &server_p.per_client.queued,
         .help = "So many prompts of a client may wait for their first token; past it 429."},
        {.kind = CLI_U64,
         .name = "max-tokens-per-minute",
         .arg = "N",
         .target = &server_p.per_client.tokens_per_minute,
         .max = 1e15,
         .help =
             "So many tokens, of prompts (cached ones too) and answers, a client gets in a "
             "minute.\n"
             "A request begins while any are left and goes on to its end; what it takes beyond\n"
             "them is missing later. Past it 429, and Retry-After says when."},
        {.kind = CLI_U64,
         .name = "max-body-bytes",
         .arg = "N",
         .target = &server_p.max_body_bytes,
         .max = 1e12,
         .help = "Longest body of a request; past it the answer is 413. Default 64 MiB;\n"
                 "0 = default."},
        {.kind = CLI_U64,
         .name = "max-request-memory",
         .arg = "BYTES",
         .target = &max_request_memory,
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
         .target = &server_p.max_header_bytes,
         .max = 1 << 20,
         .help = "Longest head of a request; past it 431. Default 16384; 0 = default."},
        {.kind = CLI_U32,
         .name = "timeout-request",
         .arg = "SECONDS",
         .target = &timeout_request,
         .max = 86400,
         .help =
             "A request must be whole so soon after its first byte, and a second later for each\n"
             "16 KiB of it; past it 408. Default 30; 0 = default."},
        {.kind = CLI_U32,
         .name = "request-timeout",
         .arg = "SECONDS",
         .target = &request_timeout,
         .max = 86400,
         .help =
             "A request that is not answered to its end so long after it was whole ends with an\n"
             "error, 504 or in its stream, and gives its memory back. Default 0: any time."},
        {.kind = CLI_U32,
         .name = "timeout-keep-alive",
         .arg = "SECONDS",
         .target = &timeout_keep_alive,
         .max = 86400,
         .help = "How long a connection may stay without a request. Default 120; 0 = default."},
        {.kind = CLI_U32,
         .name = "timeout-send",
         .arg = "SECONDS",
         .target = &timeout_send,
         .max = 86400,
         .help =
             "How long an answer may wait for its client, in all, and a second longer for each\n"
             "16 KiB that were taken; past it the client is dropped, its request aborted. While\n"
             "all connections are taken at most 10. Default 120; 0 = default."},
        {.kind = CLI_U32,
         .name = "drain-timeout",
         .arg = "SECONDS",
         .target = &drain_s,
         .min = 1,
         .max = 86400,
         .help = "How long running requests may go on after SIGINT or SIGTERM. Default " NUMBER(
             DEFAULT_DRAIN_S) "."},
        {.kind = CLI_HEADING, .help = "Who may ask, and over what:"},
        {.kind = CLI_TEXT,
         .name = "ssl-certfile",
         .arg = "FILE",
         .target = &server_p.tls.certificate,
         .help =
             "Speak HTTPS (TLS 1.2 or 1.3), with this certificate, PEM, and those of its chain\n"
             "behind it. SIGHUP reads this and the next files again."},
        {.kind = CLI_TEXT,
         .name = "ssl-keyfile",
         .arg = "FILE",
         .target = &server_p.tls.key,
         .help = "Its private key, PEM. Default: in the certificate's file."},
        {.kind = CLI_TEXT,
         .name = "ssl-keyfile-password",
         .arg = "PASSWORD",
         .target = &server_p.tls.password,
         .help = "Opens an encrypted key. A list of processes shows it."},
        {.kind = CLI_TEXT,
         .name = "ssl-ca-certs",
         .arg = "FILE",
         .target = &server_p.tls.client_ca,
         .help = "Only clients with a certificate that one of these, PEM, has signed may connect."},
        {.kind = CLI_LIST,
         .name = "api-key",
         .arg = "KEY",
         .target = &keys.plain,
         .help = "Only requests with this key are answered (Authorization: Bearer KEY, or\n"
                 "x-api-key: KEY), but for /health. May be given more than once. A list of\n"
                 "processes shows it: --api-key-file does not. Each key has a namespace of the\n"
                 "cache of its own."},
        {.kind = CLI_TEXT,
         .name = "api-key-file",
         .arg = "FILE",
         .target = &keys.file,
         .help = "Keys, one a line; lines that begin with # are none."},
        {.kind = CLI_TEXT,
         .name = "admin-api-key",
         .arg = "KEY",
         .target = &keys.admin,
         .help =
             "/flush_cache, /kv_events, /hicache/storage-backend and /inspect/... want this key."},
        {.kind = CLI_FLAG,
         .name = "no-dashboard",
         .target = &server_p.no_dashboard,
         .help =
             "No page at / for browsers, and no /inspect/..., which tell what the cache holds, for\n"
             "whom and why. They are for whoever has --admin-api-key; without keys for everybody,\n"
             "on loopback alone."},
        {.kind = CLI_FLAG,
         .name = "dashboard-text",
         .target = &server_p.dashboard_text,
         .help = "They show and search prompts, everybody's, as text and as token ids."},
        {.kind = CLI_FLAG,
         .name = "shared-cache",
         .target = &server_p.shared_cache,
         .help = "All keys share what is cached: for keys of people who trust each other."},
        {.kind = CLI_LIST,
         .name = "allow-origin",
         .arg = "ORIGIN",
         .target = &origins,
         .help =
             "Pages of this origin, as http://localhost:3000, may use the server from a browser;\n"
             "* = all, null = files. May be given more than once. Default: only pages that\n"
             "the server itself gave. Programs that are no browsers are not concerned."},
        {.kind = CLI_LIST,
         .name = "allow-host",
         .arg = "NAME",
         .target = &hosts,
         .help =
             "A name or address that requests may have as Host, with a port or for any; * = all.\n"
             "May be given more than once. Names of loopback are always right; where the server\n"
             "listens on loopback, others are refused (a proxy in front may send its own), and\n"
             "elsewhere once a name is given."},
        {.kind = CLI_HEADING, .help = "Watching it:"},
        {.kind = CLI_TEXT,
         .name = "kv-events-config",
         .arg = "JSON",
         .target = &engine_p.kv_events_config,
         .help =
             "Publishes what enters and leaves the cache, for cache-aware routers: an object as\n"
             "SGLang's and vLLM's, {\"publisher\": \"zmq\", \"endpoint\": \"tcp://*:5557\",\n"
             "\"replay_endpoint\": \"tcp://*:5558\"}; docs/kv-events.md has all keys. Who can\n"
             "connect there reads the token ids of all prompts. Default: nothing is published."},
        {.kind = CLI_TEXT,
         .name = "record",
         .arg = "FILE",
         .target = &engine_p.record,
         .help =
             "Writes down what the cache is asked, for radish replay: when requests come, how long\n"
             "they are, salted hashes of their pages, and every match, insertion and eviction in\n"
             "order; no text. A file that is there is kept: the record becomes FILE.1, or .2 ..."},
        {.kind = CLI_F64,
         .name = "record-limit",
         .arg = "GB",
         .target = &record_gb,
         .min = 0.0001,
         .max = 1e6,
         .help = "Where it ends; serving goes on. Default 1."},
        {.kind = CLI_TEXT,
         .name = "log-format",
         .arg = "text|json",
         .target = &log_format,
         .help = "Lines of the log as text (default), or each a JSON object: time, level, message; of a\n"
                 "request also its fields, trace_id among them where it has one."},
        {.kind = CLI_TEXT,
         .name = "otlp-endpoint",
         .arg = "URL",
         .target = &server_p.otlp_endpoint,
         .help =
             "Sends a span of each request, with its time in the queue, in prefill and in decode, to\n"
             "an OpenTelemetry collector, as http://127.0.0.1:4318 (OTLP over HTTP, JSON). A request\n"
             "with a traceparent is a part of that trace. Without a collector spans are counted\n"
             "and dropped (/metrics)."},
        {.kind = CLI_FLAG,
         .name = "explain-namespaces",
         .target = &engine_p.explain_namespaces,
         .help =
             "Counts prompt tokens that are cached for another cache_salt, extra_key or API key\n"
             "(radish_other_namespace_tokens_total). For who owns all of them: whoever reads\n"
             "/metrics can test guesses of others' prompts then."},
        {.kind = CLI_HEADING, .help = "For tests:"},
        {.kind = CLI_FLAG,
         .name = "attn-ref",
         .target = &engine_p.use_attn_ref,
         .help = "The slow, obvious attention instead of the fast one."},
    };
    int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &positional);
    if (positional && config_file_holds(config, model.model)) model.model = NULL;
    if (code == CLI_GO_ON) code = model_options_check("serve", &model, positional);
    if (code == CLI_GO_ON) code = cli_eviction("serve", policy, policy_config, &engine_p.eviction);
    if (code == CLI_GO_ON) code = serve_read_report(report, &server_p);
    model.log_json = log_format && !strcmp(log_format, "json");
    if (code == CLI_GO_ON && log_format && !model.log_json && strcmp(log_format, "text") != 0)
        code = cli_usage("serve", "--log-format is text or json, not '%s'", log_format);
    rad_error wrong = {0};
    if (code == CLI_GO_ON && server_p.otlp_endpoint && otlp_check(server_p.otlp_endpoint, &wrong))
        code = cli_usage("serve", "--%s", wrong.text);
    server_p.served_model_names = names.texts;
    server_p.num_served_model_names = names.count;
    for (uint32_t i = names.count; i-- > 0;)
        if (strcmp(names.texts[i], "*") != 0) engine_p.served_model_name = names.texts[i];
    if (code == CLI_GO_ON) code = serve_check(&engine_p, &server_p);
    if (code != CLI_GO_ON) return code;
    if (max_request_memory && max_request_memory < MIN_REQUEST_MEMORY)
        return cli_usage("serve", "--max-request-memory must be at least 16777216");
    if (!max_request_memory) max_request_memory = MAX_REQUEST_MEMORY;
    request_memory.limit = max_request_memory / 2;
    if (!itl_given && engine_p.chunked_prefill_size == -1)
        engine_p.max_itl_ms = 0; /* whole prompts cannot be cut */
    engine_p.kv_populate_ahead = (uint64_t)(populate_gb * 1e9);
    engine_p.record_limit = (uint64_t)(record_gb * 1e9);
    server_p.request_timeout_ms = timeout_request * 1000;
    server_p.answer_timeout_ms = request_timeout * 1000;
    server_p.drain_ms = drain_s * 1000;
    server_p.keep_alive_ms = timeout_keep_alive * 1000;
    server_p.send_timeout_ms = timeout_send * 1000;
    server_p.allow_origins = origins.texts;
    server_p.num_allow_origins = origins.count;
    server_p.allow_hosts = hosts.texts;
    server_p.num_allow_hosts = hosts.count;
    code = serve_check_names(&server_p);
    api_keys *taken = NULL;
    if (code == CLI_GO_ON) code = serve_read_keys(&keys, &taken);
    server_p.api_keys = taken;
    if (code == CLI_GO_ON) code = serve_check_certificate(&server_p.tls);
    if (code == CLI_GO_ON) code = serve(&model, &engine_p, &server_p);
    api_keys_destroy(taken);
    return code;
}

int cmd_serve(int argc, char **argv)
{
    config_file config = {0};
    const int code = run_command(argc, argv, &config);
    config_file_close(&config);
    return code;
}
