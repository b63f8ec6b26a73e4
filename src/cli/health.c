/* health.c - `radish health`: does a server answer? For what watches containers and services. */
#include "cli/cli.h"
#include "cli/http_get.h"

#include <stdio.h>

int cmd_health(int argc, char **argv)
{
    server_options o = {0};
    const char *url = NULL;
    http_server *server = NULL;
    rad_error err = {0};
    const cli_manual manual = {
        .command = "health",
        .words = "",
        .usage = "health [URL] [options]",
        .about =
            "Asks a server whether it is well (/health), and says so: exit 0 when it is, 1 when\n"
            "it says no, or nobody answers within 10 seconds. URL: http://127.0.0.1:30000.",
        .after = "Example:\n"
                 "  radish health https://llm.example.org && echo it is there",
    };
    const cli_option options[] = {SERVER_OPTIONS(&o)};
    const int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &url);
    if (code != CLI_GO_ON) return code;
    if (!url) url = SERVER_URL;
    if (server_options_open(&o, url, &server, &err) != RAD_OK)
        return cli_usage("health", "%s", err.text);
    const rad_status status = http_get_json(server, "/health", NULL, &err);
    http_server_close(server);
    if (status != RAD_OK) return cli_fail("%s", err.text);
    printf("%s is well\n", url);
    return 0;
}
