/* dialect.h - how each protocol says what all of them have to say: that something is wrong, that
 * a stream is still alive, that it has ended.
 *
 *     OpenAI, SGLang   {"error": {"message", "type", "param", "code"}}   data: ...   data: [DONE]
 *     Responses        the same                                event: ... data: ...
 *     Anthropic        {"type": "error", "error": {...}}       event: ... data: ...
 *     Ollama           {"error": "words"}                      a line of JSON for each event
 *
 * Which one a path speaks is known before anything else is, so that a request which is refused
 * (401, 403, 404, 405) hears it in its client's own words. */
#ifndef SERVER_DIALECT_H
#define SERVER_DIALECT_H

#include "server/json_in.h"

#include <event2/http.h>

typedef struct dialect {
    const char *stream_type;                /* Content-Type of a stream */
    const char *stream_end;                 /* what ends one, or "" */
    const char *ping;                       /* what says nothing in it */
    const char *error_before, *error_after; /* around an error in it */
    json_t *(*error_json)(const api_error *err, const char *request_id);
    int (*http_status)(int http_status); /* NULL: as it is */
} dialect;

extern const dialect openai_dialect, responses_dialect, anthropic_dialect, ollama_dialect;

const dialect *dialect_of_path(const char *path); /* openai_dialect where it is none of ours */
/* The same, but where two have one path by what only one's clients send. */
const dialect *dialect_of_request(struct evhttp_request *http);

/* Of an error, in its words; NULL: no memory. */
json_t *dialect_error_json(const dialect *d, const api_error *err, const char *request_id);
int dialect_http_status(const dialect *d, int http_status);

#endif
