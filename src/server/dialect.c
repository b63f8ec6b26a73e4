/* dialect.c - see dialect.h. */
#include "server/dialect.h"

#include "server/server_priv.h"

#include <stdio.h>

static json_t *openai_error(const api_error *err, const char *request_id)
{
    (void)request_id;
    return error_json(err);
}

/* Agents compact their history on these very words. */
static json_t *anthropic_error(const api_error *err, const char *request_id)
{
    static const struct {
        int http_status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"},
                 {404, "not_found_error"},      {413, "request_too_large"},
                 {429, "rate_limit_error"},     {503, "overloaded_error"},
                 {504, "timeout_error"}};
    const char *type = err->http_status >= 500 ? "api_error" : "invalid_request_error";
    char words[sizeof err->message];
    for (size_t i = 0; i < RAD_COUNT(types); i++)
        if (types[i].http_status == err->http_status) type = types[i].type;
    snprintf(words, sizeof words, "%s", err->message);
    if (err->prompt_tokens)
        snprintf(words, sizeof words, "prompt is too long: %u tokens > %u maximum",
                 err->prompt_tokens, err->context_tokens);
    return json_pack("{s:s, s:{s:s, s:o}, s:s}", "type", "error", "error", "type", type, "message",
                     json_text(words, strlen(words)), "request_id", request_id);
}

/* "Overloaded" has a number of its own there, which clients wait and try again on. */
static int anthropic_status(int http_status)
{
    return http_status == 503 ? 529 : http_status;
}

static json_t *ollama_error(const api_error *err, const char *request_id)
{
    (void)request_id;
    return json_pack("{s:o}", "error", json_text(err->message, strlen(err->message)));
}

#define EVENTS "text/event-stream; charset=utf-8"

const dialect openai_dialect = {.stream_type = EVENTS,
                                .stream_end = "data: [DONE]\n\n",
                                .ping = ": ping\n\n",
                                .error_before = "data: ",
                                .error_after = "\n\n",
                                .error_json = openai_error};
const dialect responses_dialect = {.stream_type = EVENTS,
                                   .stream_end = "",
                                   .ping = ": ping\n\n",
                                   .error_before = "event: error\ndata: ",
                                   .error_after = "\n\n",
                                   .error_json = openai_error};
const dialect anthropic_dialect = {.stream_type = EVENTS,
                                   .stream_end = "",
                                   .ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n",
                                   .error_before = "event: error\ndata: ",
                                   .error_after = "\n\n",
                                   .error_json = anthropic_error,
                                   .http_status = anthropic_status};
const dialect ollama_dialect = {.stream_type = "application/x-ndjson",
                                .stream_end = "",
                                .ping = "",
                                .error_before = "",
                                .error_after = "\n",
                                .error_json = ollama_error};

const dialect *dialect_of_path(const char *path)
{
    static const struct {
        const char *path; /* and what is below it */
        const dialect *dialect;
    } rooms[] = {{"/v1/messages", &anthropic_dialect},
                 {"/v1/responses", &responses_dialect},
                 {"/api", &ollama_dialect}};
    for (size_t i = 0; path && i < RAD_COUNT(rooms); i++) {
        size_t len = strlen(rooms[i].path);
        if (strncmp(path, rooms[i].path, len) == 0 && (!path[len] || path[len] == '/'))
            return rooms[i].dialect;
    }
    return &openai_dialect;
}

json_t *dialect_error_json(const dialect *d, const api_error *err, const char *request_id)
{
    return d->error_json(err, request_id);
}

int dialect_http_status(const dialect *d, int http_status)
{
    return d->http_status ? d->http_status(http_status) : http_status;
}
