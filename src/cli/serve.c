/* serve.c - `radish serve`: load, say what is served, and serve. */
#include "cli/serve_options.h"

#include "server/access.h"
#include "server/server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* --max-request-memory, and the least that a server is of use with. */
#define MAX_REQUEST_MEMORY (UINT64_C(1) << 30)
#define MIN_REQUEST_MEMORY (UINT64_C(16) << 20)

/* --log-format json: what the line of a request says, field by field. */
static void log_access(void *user, const access_record *a, double seconds)
{
    const model_options *model = user;
    const char *path = strchr(a->what, ' ');
    if (model->parsed_log_level < RAD_LOG_INFO) return;
    json_t *more = json_pack("{s:s%, s:s, s:i, s:b, s:f, s:s, s:s}", "method", a->what,
                             path ? (size_t)(path - a->what) : strlen(a->what), "path",
                             path ? path + 1 : "", "status", a->status, "failed", a->failed,
                             "seconds", seconds, "request_id", a->id, "client", a->peer);
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
    signal(SIGXFSZ, SIG_IGN); /* a file at the limit of its size is an EFBIG of its own */
    if (engine_create(&env, engine_p, &e, &err) != RAD_OK ||
        server_create(&env, e, server_p, &s, &err) != RAD_OK ||
        server_catch_signals(s, &err) != RAD_OK) {
        code = cli_fail("%s", err.text);
    } else {
        serve_print_banner(e, s, server_p,
                           engine_p->max_itl_ms); /* who reads it may send a signal */
        if (server_run(s, &err) != RAD_OK) code = cli_fail("%s", err.text);
    }
    server_destroy(s);
    engine_destroy(e);
    return code;
}

/* From the words of the command line to the server's end. */
static int run_command(int argc, char **argv, serve_values *v)
{
    const char *positional = NULL;
    cli_option options[SERVE_MOST_OPTIONS];
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
    unsigned count = serve_options_model(v, options, SERVE_MOST_OPTIONS);
    count += serve_options_tiers(v, options + count, SERVE_MOST_OPTIONS - count);
    count += serve_options_clients(v, options + count, SERVE_MOST_OPTIONS - count);
    int code = cli_parse(&manual, options, count, argc, argv, &positional);
    if (positional && config_file_holds(&v->config, v->model.model)) v->model.model = NULL;
    if (code == CLI_GO_ON) code = model_options_check("serve", &v->model, positional);
    if (code == CLI_GO_ON)
        code = cli_eviction("serve", v->policy, v->policy_config, &v->engine.eviction);
    if (code == CLI_GO_ON) code = serve_read_report(v->report, &v->server);
    if (code == CLI_GO_ON) code = serve_read_log_format(v->log_format, &v->model.log_json);
    v->server.served_model_names = v->names.texts;
    v->server.num_served_model_names = v->names.count;
    for (uint32_t i = v->names.count; i-- > 0;)
        if (strcmp(v->names.texts[i], "*") != 0) v->engine.served_model_name = v->names.texts[i];
    if (code == CLI_GO_ON) code = serve_check(&v->engine, &v->server);
    if (code != CLI_GO_ON) return code;
    if (v->max_request_memory && v->max_request_memory < MIN_REQUEST_MEMORY)
        return cli_usage("serve", "--max-request-memory must be at least 16777216");
    if (!v->max_request_memory) v->max_request_memory = MAX_REQUEST_MEMORY;
    v->request_memory.limit = v->max_request_memory / 2;
    if (!v->itl_given && v->engine.chunked_prefill_size == -1)
        v->engine.max_itl_ms = 0; /* whole prompts cannot be cut */
    v->engine.kv_populate_ahead = (uint64_t)(v->populate_gb * 1e9);
    v->engine.record_limit = (uint64_t)(v->record_gb * 1e9);
    v->server.request_timeout_ms = v->timeout_request * 1000;
    v->server.answer_timeout_ms = v->request_timeout * 1000;
    v->server.drain_ms = v->drain_s * 1000;
    v->server.keep_alive_ms = v->timeout_keep_alive * 1000;
    v->server.send_timeout_ms = v->timeout_send * 1000;
    v->server.allow_origins = v->origins.texts;
    v->server.num_allow_origins = v->origins.count;
    v->server.allow_hosts = v->hosts.texts;
    v->server.num_allow_hosts = v->hosts.count;
    code = serve_check_names(&v->server);
    api_keys *taken = NULL;
    if (code == CLI_GO_ON) code = serve_read_keys(&v->keys, &taken);
    v->server.api_keys = taken;
    if (code == CLI_GO_ON) code = serve_check_certificate(&v->server.tls);
    if (code == CLI_GO_ON) code = serve(&v->model, &v->engine, &v->server);
    api_keys_destroy(taken);
    return code;
}

int cmd_serve(int argc, char **argv)
{
    serve_values values;
    serve_values_init(&values);
    const int code = run_command(argc, argv, &values);
    config_file_close(&values.config);
    return code;
}
