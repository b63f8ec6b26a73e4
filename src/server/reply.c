/* reply.c - JSON and errors onto the wire. */
#include "server/dialect.h"
#include "server/server_priv.h"

#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <stdio.h>

const char *http_reason(int http_status)
{
    switch (http_status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Payload Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 529: return "Overloaded";
    case 505: return "HTTP Version Not Supported";
    default: return "Error";
    }
}

static int add_bytes(const char *bytes, size_t len, void *out)
{
    return evbuffer_add(out, bytes, len);
}

bool json_to_buffer(const json_t *json, struct evbuffer *out)
{
    return json && json_dump_callback(json, add_bytes, out, JSON_COMPACT | JSON_ENCODE_ANY) == 0;
}

json_t *error_json(const api_error *err)
{
    return json_pack("{s:{s:o, s:s, s:s?, s:s?}}", "error", "message",
                     json_text(err->message, strlen(err->message)), "type", err->type, "param",
                     err->param[0] ? err->param : NULL, "code", err->code);
}

void send_bytes(struct evhttp_request *http, int http_status, struct evbuffer *body)
{
    if (body && evhttp_request_get_command(http) == EVHTTP_REQ_HEAD) {
        char len[24];
        snprintf(len, sizeof len, "%zu", evbuffer_get_length(body));
        evhttp_add_header(evhttp_request_get_output_headers(http), "Content-Length", len);
        evbuffer_drain(body, evbuffer_get_length(body));
    }
    evhttp_send_reply(http, http_status, http_reason(http_status), body);
}

int send_json(struct evhttp_request *http, int http_status, json_t *json)
{
    struct evbuffer *body = evbuffer_new();
    if (!body || !json_to_buffer(json, body)) http_status = 503;
    json_decref(json);
    struct evkeyvalq *headers = evhttp_request_get_output_headers(http);
    evhttp_add_header(headers, "Content-Type", "application/json");
    if (http_status == 429 && !evhttp_find_header(headers, "Retry-After"))
        evhttp_add_header(headers, "Retry-After", "1");
    send_bytes(http, http_status, body);
    if (body) evbuffer_free(body);
    return http_status;
}

void reply_json(struct evhttp_request *http, int http_status, json_t *json)
{
    server *s = http->on_complete_cb_arg; /* of every request, see on_request */
    s->access.status = send_json(http, http_status, json);
    access_end(s, &s->access, "");
}

void reply_body(struct evhttp_request *http, const char *content_type, struct evbuffer *body)
{
    server *s = http->on_complete_cb_arg;
    evhttp_add_header(evhttp_request_get_output_headers(http), "Content-Type", content_type);
    s->access.status = body ? 200 : 503;
    send_bytes(http, s->access.status, body);
    if (body) evbuffer_free(body);
    access_end(s, &s->access, "");
}

void reply_text(struct evhttp_request *http, const char *json, size_t len)
{
    struct evbuffer *body = evbuffer_new();
    if (body && evbuffer_add(body, json, len) != 0) {
        evbuffer_free(body);
        body = NULL;
    }
    reply_body(http, "application/json", body);
}

const dialect *dialect_of_request(struct evhttp_request *http)
{
    static const char models[] = "/v1/models"; /* OpenAI's and Anthropic's */
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(http);
    const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
    size_t len = strlen(models);
    bool both = path && strncmp(path, models, len) == 0 && (!path[len] || path[len] == '/');
    if (both && evhttp_find_header(evhttp_request_get_input_headers(http), "anthropic-version"))
        return &anthropic_dialect;
    return dialect_of_path(path);
}

void reply_error(struct evhttp_request *http, const api_error *err)
{
    const server *s = http->on_complete_cb_arg;
    const dialect *d = dialect_of_request(http);
    reply_json(http, dialect_http_status(d, err->http_status),
               dialect_error_json(d, err, s->access.id));
}
