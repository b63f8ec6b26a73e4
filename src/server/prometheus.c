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

/* A label can say in words what it computes on; its value is always 1. */
static void write_device(struct evbuffer *out, const engine_info *info)
{
    const char *name = "radish:device_info";
    write_head(out, name, "gauge", "Where the model computes.");
    evbuffer_add_printf(out, "%s{model_name=\"", name);
    write_label(out, info->model_name);
    evbuffer_add_printf(out, "\",device=\"%s\",device_name=\"", info->device);
    write_label(out, info->device_name);
    evbuffer_add_printf(out, "\"} 1\n");
}

void prometheus_write(struct evbuffer *out, const engine_info *info, const server_figures *f,
                      bool cache_figures)
{
    size_t count;
    const figure *rows = figures_table(&count);
    for (size_t i = 0; i < count; i++) {
        const figure *row = &rows[i];
        bool hidden = (row->tells && !cache_figures) || (row->tiers && !info->hierarchical_cache) ||
                      (row->window && !info->window_total_tokens) ||
                      (row->states && !info->max_states) || (row->gpu && !info->device_bytes) ||
                      (row->events && !info->kv_events);
        if (!row->metric || hidden) continue;
        if (row->type) write_head(out, row->metric, row->type, row->help);
        write_value(out, row->metric, row->label, info->model_name, figure_value(row, f));
    }
    write_device(out, info);
}
