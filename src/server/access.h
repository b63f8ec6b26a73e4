/* access.h - a line in the log for every request, and a name for it.
 *
 *     POST /v1/completions 200 0.123 s, request 5f0c..., from 127.0.0.1, cmpl-...: 22 prompt
 *     tokens, 0 cached, 3 out
 *
 * A request is called what its header X-Request-Id says, if that is one word of printable ASCII,
 * else by a random number; the answer has it in the same header. Where it belongs to a trace
 * (traceparent), or spans are sent (otlp.h), "trace" and its id stand behind that. Answers with an error, whoever
 * gave them, are counted. The server's thread only. */
#ifndef SERVER_ACCESS_H
#define SERVER_ACCESS_H

#include "base/base.h"

#include "server/trace_context.h"

#include <event2/http.h>

struct server;

enum { ACCESS_MAX_ID = 128 }; /* bytes of an X-Request-Id that we take over */

typedef struct access_record {
    uint64_t begun_ns;
    int status;  /* of the answer, 0: none yet */
    bool failed; /* a stream that ended with an error, whatever its status */
    uint32_t endpoint; /* see server_endpoint_name */
    char id[ACCESS_MAX_ID + 1];
    char peer[48];  /* the address; "-": unknown */
    char what[144]; /* method and path, without the query */
    trace_context trace;

    /* Of a request that came to a prompt: all of its prompts together, */
    bool has_tokens;
    uint64_t prompt_tokens, cached_tokens, output_tokens;
    uint64_t admitted_ns, first_ns; /* and when the first one was taken, and had its first token; 0:
                                     * it did not come so far */
} access_record;

/* A whole request is there: names it in s->access, and in the header of its answer. */
void access_begin(struct server *s, struct evhttp_request *http);

/* The line of a request that is over; `more` (or "") stands at its end. */
void access_end(struct server *s, const access_record *a, const char *more);

/* The line of a request, or a connection, that was refused before it was whole, with the reason;
 * its name in id[0..ACCESS_MAX_ID]. */
void access_refused(struct server *s, int fd, int status, const char *why, char *id);

#endif
