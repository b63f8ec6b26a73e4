/* prometheus.c - the figures as SGLang's metrics, so that its dashboards work. */
#include "server/server_priv.h"

#include <radish/radish.h>
#include <stdio.h>

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

/* The process is not the model: its metrics are everybody's, and have no label. */
static void write_value(struct evbuffer *out, const char *name, const char *label,
                        const char *model, double value)
{
    if (strncmp(name, "process_", 8) == 0) {
        evbuffer_add_printf(out, "%s %.17g\n", name, value);
        return;
    }
    evbuffer_add_printf(out, "%s{model_name=\"", name);
    write_label(out, model);
    evbuffer_add_printf(out, "\"%s} %.17g\n", label, value);
}

static bool is_hidden(const figure *row, const engine_info *info, bool cache_figures)
{
    return (row->tells && !cache_figures) || (row->tiers && !info->hierarchical_cache) ||
           (row->window && !info->window_total_tokens) || (row->states && !info->max_states) ||
           (row->gpu && !info->device_bytes) || (row->events && !info->kv_events) ||
           (row->record && !info->record);
}

static void write_figures(struct evbuffer *out, const engine_info *info, const server_figures *f,
                          bool cache_figures)
{
    size_t count;
    const figure *rows = figures_table(&count);
    for (size_t i = 0; i < count; i++) {
        const figure *row = &rows[i];
        if (!row->metric || is_hidden(row, info, cache_figures)) continue;
        if (row->type) write_head(out, row->metric, row->type, row->help);
        write_value(out, row->metric, row->label, info->model_name, figure_value(row, f));
    }
}

const latency_metric latency_metrics[LATENCY_KINDS] = {
    [LATENCY_QUEUE] = {"sglang:queue_time_seconds", "Time to the first admission."},
    [LATENCY_FIRST_TOKEN] = {"sglang:time_to_first_token_seconds", "Time to the first token."},
    [LATENCY_INTER_TOKEN] = {"sglang:inter_token_latency_seconds",
                             "Time from a token to the next one."},
    [LATENCY_END_TO_END] = {"sglang:e2e_request_latency_seconds",
                            "Time to the end, of requests that ended well."}};

static void write_latency(struct evbuffer *out, const latency_metric *m, const latency_histogram *h,
                          const char *model)
{
    char name[80], label[32];
    uint64_t below = 0;
    write_head(out, m->metric, "histogram", m->help);
    snprintf(name, sizeof name, "%s_bucket", m->metric);
    for (uint32_t i = 0; i <= LATENCY_BOUNDS; i++) {
        below += h->counts[i];
        if (i < LATENCY_BOUNDS)
            snprintf(label, sizeof label, ",le=\"%g\"", latency_bounds[i]);
        else
            snprintf(label, sizeof label, ",le=\"+Inf\"");
        write_value(out, name, label, model, (double)below);
    }
    snprintf(name, sizeof name, "%s_sum", m->metric);
    write_value(out, name, "", model, (double)h->sum_ns * 1e-9);
    snprintf(name, sizeof name, "%s_count", m->metric);
    write_value(out, name, "", model, (double)below);
}

static void write_answers(struct evbuffer *out, const engine_info *info, const answer_counts *c)
{
    const char *name = "radish_http_responses_total";
    write_head(out, name, "counter", "Answers, by endpoint and status; 0: the client had left.");
    for (uint32_t e = 0; e < ANSWER_ENDPOINTS; e++)
        for (uint32_t code = 0; code < ANSWER_CODES; code++) {
            if (!c->of[e][code]) continue;
            evbuffer_add_printf(out, "%s{model_name=\"", name);
            write_label(out, info->model_name);
            evbuffer_add_printf(out, "\",endpoint=\"%s\",code=\"%s\"} %llu\n",
                                server_endpoint_name(e), answer_code_name(code),
                                (unsigned long long)c->of[e][code]);
        }
}

/* Labels say in words what it computes on, and what was built; their values are always 1. */
static void write_device(struct evbuffer *out, const engine_info *info)
{
    const char *name = "radish_device_info";
    write_head(out, name, "gauge", "Where the model computes.");
    evbuffer_add_printf(out, "%s{model_name=\"", name);
    write_label(out, info->model_name);
    evbuffer_add_printf(out, "\",device=\"%s\",device_name=\"", info->device);
    write_label(out, info->device_name);
    evbuffer_add_printf(out, "\"} 1\n");
    name = "radish_build_info";
    write_head(out, name, "gauge", "What was built, and what for.");
    evbuffer_add_printf(out, "%s{version=\"%s\",compiler=\"", name, rad_version_string());
    write_label(out, __VERSION__);
    evbuffer_add_printf(out, "\",attention_backend=\"");
    write_label(out, info->attn_backend);
    evbuffer_add_printf(out, "\",dtype=\"");
    write_label(out, info->dtype);
    evbuffer_add_printf(out, "\"} 1\n");
}

void prometheus_write(struct evbuffer *out, const engine_info *info, const server_figures *f,
                      const answer_counts *answers, bool cache_figures)
{
    write_figures(out, info, f, cache_figures);
    /* They tell how long others' prompts took to compute, to the nanosecond. */
    for (int kind = 0; cache_figures && kind < LATENCY_KINDS; kind++)
        write_latency(out, &latency_metrics[kind], &f->latency[kind], info->model_name);
    write_answers(out, info, answers);
    write_device(out, info);
}
