/* figures.h - every figure of a running server, once: its names, its help, where it lies.
 *
 * /server_info (admin.c) and /metrics (prometheus.c) both go through this table, so a new figure
 * is a field in engine_stats and a row in figures.c. */
#ifndef SERVER_FIGURES_H
#define SERVER_FIGURES_H

#include "engine/engine.h"
#include "server/otlp.h"
#include "server/process_figures.h"

typedef struct server_figures {
    engine_stats engine;
    latency_histogram latency[LATENCY_KINDS];
    process_figures process;
    otlp_stats otlp;
    uint64_t http_requests, http_failed;

    /* Made of the others by figures_derive. */
    uint64_t device_hits, host_hits;   /* cached tokens by tier; storage: fetched_tokens */
    uint64_t used_tokens, busy_tokens; /* not free; and not even evictable */
    uint64_t used_window_tokens, busy_window_tokens;
    double token_usage, full_usage, window_usage, state_usage, hit_rate, spec_accept_length,
        spec_accept_rate;
} server_figures;

void figures_derive(server_figures *f);

typedef struct figure {
    const char *name;   /* in /server_info; NULL: not there */
    const char *metric; /* in /metrics; NULL: not there */
    const char *label;  /* ",tier=\"host\"", or "" */
    const char *type;   /* "counter", "gauge"; NULL: another value of the metric above */
    const char *help;
    uint16_t at; /* in struct server_figures */
    uint8_t kind;
    bool seconds; /* nanoseconds there, seconds in /metrics */
    bool tells;   /* read before and after a request of one's own it tells what that found */
    bool tiers;   /* in /metrics only where there are tiers */
    bool window;  /* likewise, where layers with a window have memory of their own */
    bool states;  /* likewise, where there are recurrent layers */
    bool gpu;     /* likewise, where it computes on a GPU */
    bool events;  /* likewise, where KV events are published */
    bool record;  /* and where the cache's operations are recorded */
} figure;

const figure *figures_table(size_t *count);

bool figure_is_real(const figure *row);                            /* else a count */
uint64_t figure_count(const figure *row, const server_figures *f); /* as it is stored */
/* The histograms beside the table (prometheus.c). */
typedef struct latency_metric {
    const char *metric, *help;
} latency_metric;
extern const latency_metric latency_metrics[LATENCY_KINDS];

double figure_value(const figure *row, const server_figures *f);   /* as /metrics has it */

#endif
