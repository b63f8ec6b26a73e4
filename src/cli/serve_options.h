/* serve_options.h - what `radish serve` is told: the tables of its options, by what they are about,
 * and where their values go. */
#ifndef CLI_SERVE_OPTIONS_H
#define CLI_SERVE_OPTIONS_H

#include "cli/serve.h"

/* Texts in it point into argv, into `config`, and into each other: it stays where it is. */
typedef struct serve_values {
    model_options model;
    engine_params engine;
    server_params server;
    config_file config;
    memory_budget request_memory;
    uint64_t max_request_memory;
    double populate_gb, record_gb;
    const char *policy, *policy_config, *report, *log_format;
    cli_list names, origins, hosts;
    serve_keys keys;
    uint32_t timeout_request, request_timeout, timeout_keep_alive, timeout_send, drain_s;
    bool itl_given;
    char order[600], gives_up[300], call_parsers[700], reasoning_parsers[700]; /* of --help */
    char order_names[400], eviction_names[160], call_names[420],
        reasoning_names[420]; /* of shells */
} serve_values;

enum { SERVE_MOST_OPTIONS = 192 };

/* Defaults, where zero is none of them. */
void serve_values_init(serve_values *v);

/* Each writes its part of the table, headings and all, into out[0..room), and returns how many rows
 * that are. */

/* Where, as what, memory, scheduling. */
unsigned serve_options_model(serve_values *v, cli_option *out, unsigned room);

/* What is kept, host memory, storage. */
unsigned serve_options_tiers(serve_values *v, cli_option *out, unsigned room);

/* Limits, keys, TLS, what watches it. */
unsigned serve_options_clients(serve_values *v, cli_option *out, unsigned room);

#endif
