/* serve.h - the parts of `radish serve`. */
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

#include "cli/cli.h"
#include "server/api_keys.h"
#include "server/server.h"

#define SERVE_DRAIN_S 30 /* --drain-timeout, where it is not given */

/* On stdout, with a line to try. */
void serve_print_banner(engine *e, const server *s, const server_params *where,
                        uint32_t max_itl_ms);

/* Each: CLI_GO_ON, or the exit code after a line on stderr. */

/* --log-format (NULL: not given) into *json. */
int serve_read_log_format(const char *text, bool *json);

/* Options that want another one, names of the model, and where spans go. */
int serve_check(const engine_params *e, const server_params *s);

/* --allow-origin and --allow-host: names that no browser sends would silently allow nothing. */
int serve_check_names(const server_params *s);

/* --report-cached-tokens (NULL: not given) into *p. */
int serve_read_report(const char *text, server_params *p);

/* Reads the files and gives them back: what is wrong with them is said before a model is read. */
int serve_check_certificate(const tls_files *files);

typedef struct serve_keys {
    cli_list plain;
    const char *file, *admin;
} serve_keys;

/* *out: to be destroyed; it stays NULL where everybody may ask. */
int serve_read_keys(const serve_keys *o, api_keys **out);

#endif
