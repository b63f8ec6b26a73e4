/* http_get.h - what a server says at a path: for the commands that look at a running one. */
#ifndef CLI_HTTP_GET_H
#define CLI_HTTP_GET_H

#include "base/base.h"

#include <jansson.h>

typedef struct http_server http_server;

/* url: "http://host:port", "https://...", or without a scheme; without a port SGLang's 30000, or
 * 443 for https. A path behind it is the prefix of all paths. key: sent as "Authorization: Bearer",
 * NULL: none. ca_file: whom an https server must be signed by, NULL: whom this machine trusts.
 * insecure: anybody. Nothing is connected yet. */
rad_status http_server_open(const char *url, const char *key, const char *ca_file, bool insecure,
                            http_server **out, rad_error *err);
void http_server_close(http_server *s); /* NULL is fine */

/* The JSON at a path, to be given back with json_decref (out NULL: it is not looked at); one
 * connection a call, 64 MiB and 10 seconds at most. Answers other than 200 are errors in the
 * server's words. */
rad_status http_get_json(http_server *s, const char *path, json_t **out, rad_error *err);

/* The options of the commands that look at a server. */
typedef struct server_options {
    const char *key, *ca_file;
    bool insecure;
} server_options;

#define SERVER_URL "http://127.0.0.1:30000"

#define SERVER_OPTIONS(o)                                                                          \
    {.kind = CLI_HEADING, .help = "Server:"},                                                      \
        {.kind = CLI_TEXT,                                                                         \
         .name = "api-key",                                                                        \
         .arg = "KEY",                                                                             \
         .target = &(o)->key,                                                                      \
         .help = "The administrator's key, where the server has one. Default: $RADISH_API_KEY."},  \
        {.kind = CLI_TEXT,                                                                         \
         .name = "ca-file",                                                                        \
         .arg = "FILE",                                                                            \
         .target = &(o)->ca_file,                                                                  \
         .help = "Certificates (PEM) that may sign an https server's. Default: this machine's."},  \
    {                                                                                              \
        .kind = CLI_FLAG, .name = "insecure", .target = &(o)->insecure,                            \
        .help = "Believe any certificate."                                                         \
    }

rad_status server_options_open(const server_options *o, const char *url, http_server **out,
                               rad_error *err);

#endif
