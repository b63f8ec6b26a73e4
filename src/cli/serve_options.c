/* serve_options.c - where a server listens and as what, its memory, who goes first; and all
 * defaults. */
#include "cli/serve_options.h"

#include "text/tool_call.h"

/* A server has somebody waiting for the next token: on a slow machine a whole chunk of somebody
 * else's prompt would take seconds. The engine's own default is no limit. */
#define DEFAULT_MAX_ITL_MS   500
#define DEFAULT_SELF_CHECK_S 60

/* Texts of --help that are made of tables elsewhere. */
static void write_choices(serve_values *v)
{
    char names_of[400];
    cli_wrap(
        v->call_parsers, sizeof v->call_parsers,
        "How the model writes calls of tools: auto (default; by its chat template), none (calls "
        "are text), or one of %s.",
        tool_format_names(names_of, sizeof names_of));
    snprintf(v->call_names, sizeof v->call_names, "auto, none, %s", names_of);
    cli_wrap(
        v->reasoning_parsers, sizeof v->reasoning_parsers,
        "How it writes reasoning, which answers have apart: auto (default), none (it is text), "
        "or one of %s.",
        reasoning_format_names(names_of, sizeof names_of));
    snprintf(v->reasoning_names, sizeof v->reasoning_names, "auto, none, %s", names_of);
    cli_wrap(v->order, sizeof v->order,
             "Who goes first: %s. Under each the oldest waiting request gets every 16th admission.",
             engine_schedule_policies(v->order_names, sizeof v->order_names));
    cli_wrap(v->gives_up, sizeof v->gives_up,
             "What the cache gives up first: %s (decayed hits times what recomputing costs).",
             cli_eviction_names(v->eviction_names, sizeof v->eviction_names));
}

void serve_values_init(serve_values *v)
{
    *v = (serve_values){
        .engine = {.max_itl_ms = DEFAULT_MAX_ITL_MS,
                   .speculative_algorithm = CLI_DRAFT_SOURCES,
                   .speculative_num_draft_tokens = CLI_DRAFT_TOKENS,
                   .speculative_ngram_capacity = CLI_RECENT_TOKENS,
                   .self_check_interval_s = DEFAULT_SELF_CHECK_S,
                   .max_pinned_tokens = ENGINE_PIN_QUARTER,
                   .max_sessions = ENGINE_USUAL_SESSIONS,
                   .request_memory = &v->request_memory},
        .server = {.port = 30000, .request_memory = &v->request_memory},
        .populate_gb = 1,
        .drain_s = SERVE_DRAIN_S,
    };
    write_choices(v);
}

unsigned serve_options_model(serve_values *v, cli_option *out, unsigned room)
{
    const cli_option options[] = {
        {.kind = CLI_HEADING, .help = "Where and as what:"},
        {.kind = CLI_TEXT,
         .name = "host",
         .arg = "ADDRESS",
         .target = &v->server.host,
         .help =
             "Address to listen on: numeric, or localhost. Default 127.0.0.1: this machine only.\n"
             "Without --api-key everybody who reaches it may ask."},
        {.kind = CLI_U16,
         .name = "port",
         .arg = "N",
         .target = &v->server.port,
         .help = "Default 30000; 0 = any free one, printed at start."},
        {.kind = CLI_LIST,
         .name = "served-model-name",
         .arg = "NAME",
         .target = &v->names,
         .help = "What clients call the model; may be given several times. A request that names\n"
                 "another model gets 404, one that names none is answered; with * any name is\n"
                 "served (agents ask for a second, small model). Default: the name in the file."},
        {.kind = CLI_TEXT,
         .name = "chat-template",
         .arg = "NAME",
         .target = &v->engine.chat_template,
         .help = "chatml, llama-3, radish, the name of one of the model file's templates (radish\n"
                 "info lists them), a Jinja file, or none. Default: the model file's own, and\n"
                 "its tool_use for requests with tools; one that cannot be read is an error at\n"
                 "start. See radish render."},
        {.kind = CLI_TEXT,
         .name = "tool-call-parser",
         .arg = "NAME",
         .values = v->call_names,
         .target = &v->server.tool_call_parser,
         .help = v->call_parsers},
        {.kind = CLI_TEXT,
         .name = "reasoning-parser",
         .arg = "NAME",
         .values = v->reasoning_names,
         .target = &v->server.reasoning_parser,
         .help = v->reasoning_parsers},
        {.kind = CLI_TEXT,
         .name = "pooling",
         .arg = "HOW",
         .target = &v->engine.pooling,
         .help = "Which hidden states make an embedding (/v1/embeddings): last, that of the last\n"
                 "token; mean, of all. auto (default): what the model's file says, else last."},
        {.kind = CLI_CONFIG,
         .name = "config",
         .arg = "FILE",
         .target = &v->config,
         .help = "Read options from FILE first, one a line: their names here without the leading\n"
                 "dashes, as port = 8000, or a flag's name alone; a line that begins with # is a\n"
                 "comment. What the command line gives as well is taken from there, or, where\n"
                 "several are possible, added."},
        MODEL_OPTIONS(&v->model),
        DEVICE_OPTION(&v->model),
        {.kind = CLI_HEADING, .help = "Memory and scheduling:"},
        {.kind = CLI_F64,
         .name = "mem-fraction-static",
         .arg = "F",
         .target = &v->engine.mem_fraction_static,
         .max = 1,
         .help =
             "Weights and KV cache may take this part of the available memory. Default 0.8, or\n"
             "as much more as a large model needs for one context while 1 GB stays free (a\n"
             "warning says how much); 0 = default. A model that does not fit is refused before\n"
             "it is read."},
        {.kind = CLI_U64,
         .name = "max-total-tokens",
         .arg = "N",
         .target = &v->engine.max_total_tokens,
         .help =
             "Size of the KV cache in tokens; more than what --mem-fraction-static leaves is a\n"
             "warning and that. Default: all that it leaves where it is given, else not more than\n"
             "64 full contexts (--max-running-requests of them, if that is more). 0 = default."},
        {.kind = CLI_F64,
         .name = "swa-full-tokens-ratio",
         .arg = "F",
         .target = &v->engine.swa_full_tokens_ratio,
         .max = 1,
         .help =
             "Models whose layers (all or some) see a sliding window keep K and V of these layers\n"
             "in a pool of their own, which has F tokens for each token of --max-total-tokens.\n"
             "Default: the window divided by the context length, 0.125 at least, and as much more\n"
             "as there is memory for where neither flag above says how much; 0 = default. 1 is\n"
             "for requests that are mostly shorter than the window."},
        {.kind = CLI_FLAG,
         .name = "disable-hybrid-swa-memory",
         .target = &v->engine.disable_hybrid_swa_memory,
         .help = "Keep K and V of the whole context in layers with a sliding window, too; for\n"
                 "comparison."},
        {.kind = CLI_U32,
         .name = "max-mamba-cache-size",
         .arg = "N",
         .target = &v->engine.max_mamba_cache_size,
         .max = 1 << 24,
         .help =
             "States of a model with recurrent layers (delta rule, Mamba, short convolutions): "
             "one\n"
             "or two for each running request, the rest are snapshots that later requests go on\n"
             "from. Default: by the ratio below, as far as there is use for them; 0 = default."},
        {.kind = CLI_F64,
         .name = "mamba-full-memory-ratio",
         .arg = "F",
         .target = &v->engine.mamba_full_memory_ratio,
         .max = 100,
         .help = "Bytes of states for each byte of K and V. Default 0.9, less where fewer states\n"
                 "are enough for all requests and for a snapshot every so many cached tokens, or\n"
                 "where one context would not fit; 0 = default."},
        {.kind = CLI_U32,
         .name = "mamba-track-interval",
         .arg = "N",
         .target = &v->engine.mamba_track_interval,
         .max = 1 << 24,
         .help =
             "Tokens between snapshots of a long prompt, besides those where messages begin, "
             "where\n"
             "requests branch off and where answers end. Default: as many as have K and V of a\n"
             "state's size, from 256 to 4096; 0 = default."},
        {.kind = CLI_F64,
         .name = "kv-populate-ahead",
         .arg = "GB",
         .target = &v->populate_gb,
         .max = 1e6,
         .help = "Memory of the KV cache that is taken beyond what was used so far, while no\n"
                 "request runs: else a step waits for the kernel when it first writes there, in\n"
                 "a virtual machine for a tenth of a second at times. Default 1; 0 = none: memory\n"
                 "is taken when it is written."},
        {.kind = CLI_U32,
         .name = "max-namespaces",
         .arg = "N",
         .target = &v->engine.max_namespaces,
         .max = 1 << 20,
         .help =
             "Different cache_salt (and extra_key) that may have something cached at one time;\n"
             "past it the least useful one is given up. Default: one for each page of the\n"
             "pool, 65536 at most; 0 = default."},
        {.kind = CLI_U32,
         .name = "max-running-requests",
         .arg = "N",
         .target = &v->engine.max_running_requests,
         .help =
             "How many requests may run at once. Default: one for 512 tokens of the KV cache, 64 "
             "to\n"
             "4096, as far as a 32nd of the memory for weights and KV has room for their buffers\n"
             "(256 in any case); 0 = default."},
        {.kind = CLI_U32,
         .name = "max-queued-requests",
         .arg = "N",
         .target = &v->engine.max_queued_requests,
         .help = "How many may wait; past it the answer is 429. Default " NUMBER(
             ENGINE_MAX_QUEUED_REQUESTS) "; 0 = default."},
        {.kind = CLI_I32,
         .name = "chunked-prefill-size",
         .arg = "N",
         .target = &v->engine.chunked_prefill_size,
         .min = -1,
         .max = INT32_MAX,
         .help = "Most prompt tokens computed in one step. Default " NUMBER(
             ENGINE_CHUNKED_PREFILL_SIZE) "; 0 = default, -1 = no limit."},
        {.kind = CLI_TEXT,
         .name = "kv-cache-dtype",
         .arg = "TYPE",
         .values = CLI_KV_TYPES,
         .target = &v->engine.kv_cache_dtype,
         .help = "What K and V are stored as: auto (as --dtype), f32, bf16, f16, fp8_e4m3,\n"
                 "fp8_e5m2 (no scales: small numbers lose much) or int8 (with a scale per token\n"
                 "and head). Smaller ones hold more tokens and change answers a little, but\n"
                 "never from one run to another. A GPU has auto (bf16), bf16 and the fp8 ones."},
        {.kind = CLI_U32,
         .name = "page-size",
         .arg = "N",
         .target = &v->engine.page_size,
         .max = 1024,
         .help = "Tokens per page of the KV cache: the grain of sharing. Default 1; 0 = default."},
        {.kind = CLI_FLAG,
         .name = "disable-partial-reuse",
         .target = &v->engine.disable_partial_reuse,
         .help =
             "With larger pages: share whole ones only. Else the front of one that begins like\n"
             "a prompt goes on is copied; the answers are the same. For comparison."},
        {.kind = CLI_U32,
         .name = "context-length",
         .arg = "N",
         .target = &v->engine.context_length,
         .help = "Most tokens of a prompt and its answer. Default: the model's; 0 = default."},
        {.kind = CLI_TEXT,
         .name = "schedule-policy",
         .arg = "NAME",
         .values = v->order_names,
         .target = &v->engine.schedule_policy,
         .help = v->order},
        {.kind = CLI_FLAG,
         .name = "enable-priority-scheduling",
         .target = &v->engine.enable_priority_scheduling,
         .help = "A request's priority goes before the policy's own order (--schedule-policy\n"
                 "priority has no other)."},
        {.kind = CLI_FLAG,
         .name = "schedule-low-priority-values-first",
         .target = &v->engine.schedule_low_priority_values_first,
         .help = "With either of the two: the lowest priority goes first instead of the highest."},
        {.kind = CLI_U32,
         .name = "max-itl-ms",
         .arg = "N",
         .target = &v->engine.max_itl_ms,
         .given = &v->itl_given,
         .help =
             "Cut the prompts of a step so that answers in progress get their next token within\n"
             "N ms, as far as can be told from the steps before; 16 prompt tokens a step are\n"
             "always computed. Default " NUMBER(
                 DEFAULT_MAX_ITL_MS) " (none with --chunked-prefill-size -1); 0 = no limit:\n"
                                     "larger chunks compute more tokens a second."},
        {.kind = CLI_TEXT,
         .name = "speculative-algorithm",
         .arg = "NAME",
         .target = &v->engine.speculative_algorithm,
         .help =
             "Who guesses tokens that are computed in one step and kept as far as they are what\n"
             "the model says; no answer depends on it. none: only the text that the grammar of a\n"
             "constrained request forces; tree: besides, what requests of the same namespace that\n"
             "began alike went on with; ngram: what stood behind the same tokens earlier in the\n"
             "request's own text; recent: and in recent answers of its namespace; prediction: "
             "what\n"
             "a request's 'prediction' foretells; nextn: a head of the model itself, where its "
             "file\n"
             "carries one (qwen35, qwen35moe, deepseek2); or several of these with commas between\n"
             "them. Nothing is guessed where it was measured not to pay. "
             "Default\n" CLI_DRAFT_SOURCES "."},
        {.kind = CLI_TEXT,
         .name = "speculative-draft-model-path",
         .arg = "FILE",
         .target = &v->engine.speculative_draft_model_path,
         .help =
             "A small model with the same vocabulary, which guesses, too: it computes beside the\n"
             "other one, and keeps K/V of its own for each token of the KV cache."},
        {.kind = CLI_U32,
         .name = "speculative-num-draft-tokens",
         .arg = "N",
         .target = &v->engine.speculative_num_draft_tokens,
         .max = 64,
         .help = "At most so many tokens of a request are guessed at one time. Default " NUMBER(
             CLI_DRAFT_TOKENS) ";\n0 = nothing is guessed."},
        {.kind = CLI_U32,
         .name = "speculative-ngram-capacity",
         .arg = "N",
         .target = &v->engine.speculative_ngram_capacity,
         .max = 1 << 28,
         .help =
             "Tokens of recent answers that are kept for guesses (--speculative-algorithm "
             "recent),\n"
             "a power of two or the next, 26 bytes each, the oldest going first. Default\n" NUMBER(
                 CLI_RECENT_TOKENS) "; 0 = none."},
        {.kind = CLI_FLAG,
         .name = "disable-tree-attention",
         .target = &v->engine.disable_tree_attention,
         .help =
             "Read the KV of a shared prefix once for each request of a step instead of once for\n"
             "all; the answers are the same. For comparison."},
        {.kind = CLI_TEXT,
         .name = "radix-eviction-policy",
         .arg = "NAME",
         .values = v->eviction_names,
         .target = &v->policy,
         .help = v->gives_up},
        {.kind = CLI_TEXT,
         .name = "radix-eviction-policy-config",
         .arg = "JSON",
         .target = &v->policy_config,
         .help = "Its options: '{\"protected_threshold\":4}' for slru (default " NUMBER(
             RAD_EVICT_PROTECTED_THRESHOLD) ");\n"
                                            "cost_half_life_percent (" NUMBER(RAD_EVICT_COST_HALF_LIFE_PERCENT) ") and cost_attention_tokens (" NUMBER(
                                                RAD_EVICT_COST_ATTENTION_TOKENS) ") for cost."},
        {.kind = CLI_FLAG,
         .name = "disable-radix-cache",
         .target = &v->engine.disable_radix_cache,
         .help = "Share nothing between requests; for comparison."},
        {.kind = CLI_U64,
         .name = "random-seed",
         .arg = "N",
         .target = &v->engine.random_seed,
         .help = "Seeds of requests that bring none derive from it, and the order under\n"
                 "--schedule-policy random. Default: the clock; 0 = default."},
        {.kind = CLI_F64,
         .name = "verify",
         .arg = "RATE",
         .target = &v->engine.verify_rate,
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
         .target = &v->engine.self_check_interval_s,
         .max = 1e6,
         .help =
             "How often an idle server checks that each KV slot has exactly one owner, and all\n"
             "its structures: in pieces, between which requests are served. What is wrong is\n"
             "logged and counted (/metrics), and serving goes on. Default " NUMBER(
                 DEFAULT_SELF_CHECK_S) "; 0 = never."},
    };
    RAD_ASSERT(RAD_COUNT(options) <= room);
    memcpy(out, options, sizeof options);
    return RAD_COUNT(options);
}
