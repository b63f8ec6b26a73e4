/* access.c - who asked for what, and what became of it. */
#include "server/access.h"

#include "server/server_priv.h"

#include <arpa/inet.h>
#include <event2/bufferevent.h>
#include <event2/keyvalq_struct.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>

static const char *method_name(enum evhttp_cmd_type command)
{
    switch (command) {
    case EVHTTP_REQ_GET: return "GET";
    case EVHTTP_REQ_POST: return "POST";
    case EVHTTP_REQ_HEAD: return "HEAD";
    case EVHTTP_REQ_PUT: return "PUT";
    case EVHTTP_REQ_DELETE: return "DELETE";
    case EVHTTP_REQ_OPTIONS: return "OPTIONS";
    case EVHTTP_REQ_TRACE: return "TRACE";
    case EVHTTP_REQ_CONNECT: return "CONNECT";
    case EVHTTP_REQ_PATCH: return "PATCH";
    default: return "-";
    }
}

/* One word that may stand in a header, a log and a shell: not what would end or quote it. */
static bool is_id(const char *text)
{
    size_t len = text ? strlen(text) : 0;
    if (!len || len > ACCESS_MAX_ID) return false;
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~' || strchr("\"'`\\<>", text[i])) return false;
    return true;
}

static void make_id(const server *s, char *id)
{
    uint64_t word = 0;
    if (getrandom(&word, sizeof word, GRND_NONBLOCK) != sizeof word) word = server_now_ns(s);
    snprintf(id, ACCESS_MAX_ID + 1, "%016llx", (unsigned long long)word);
}

static void find_peer(int fd, char *peer, size_t size)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    const void *address = NULL;
    snprintf(peer, size, "-");
    if (fd < 0 || getpeername(fd, (struct sockaddr *)&a, &len) != 0) return;
    if (a.ss_family == AF_INET) address = &((struct sockaddr_in *)&a)->sin_addr;
    if (a.ss_family == AF_INET6) address = &((struct sockaddr_in6 *)&a)->sin6_addr;
    if (address) inet_ntop(a.ss_family, address, peer, (socklen_t)size);
}

void access_begin(server *s, struct evhttp_request *http)
{
    access_record *a = &s->access;
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(http);
    const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
    const char *given = evhttp_find_header(evhttp_request_get_input_headers(http), "X-Request-Id");
    *a = (access_record){.begun_ns = server_now_ns(s), .endpoint = ANSWER_ENDPOINTS - 1};
    if (is_id(given))
        snprintf(a->id, sizeof a->id, "%s", given);
    else
        make_id(s, a->id);
    const char *trace = evhttp_find_header(evhttp_request_get_input_headers(http), "traceparent");
    if (!trace_context_read(trace, &a->trace) && s->otlp) trace_context_begin(&a->trace);
    find_peer(
        bufferevent_getfd(evhttp_connection_get_bufferevent(evhttp_request_get_connection(http))),
        a->peer, sizeof a->peer);
    bool cut = path && strlen(path) > 120;
    snprintf(a->what, sizeof a->what, "%s %.120s%s", method_name(evhttp_request_get_command(http)),
             path && *path ? path : "-", cut ? "..." : "");
    evhttp_add_header(evhttp_request_get_output_headers(http), "X-Request-Id", a->id);
    if (dialect_of_request(http) == &anthropic_dialect) /* as their clients look for it */
        evhttp_add_header(evhttp_request_get_output_headers(http), "request-id", a->id);
}

void access_end(server *s, const access_record *a, const char *more)
{
    if (a->status >= 400 || a->failed) s->num_failed_requests++;
    answer_counts_add(&s->answers, a->endpoint, a->status);
    char status[32] = "- (the client left)";
    if (a->status) snprintf(status, sizeof status, "%d%s", a->status, a->failed ? " failed" : "");
    const uint64_t now_ns = server_now_ns(s);
    const double seconds = (double)(now_ns - a->begun_ns) * 1e-9;
    if (s->otlp && a->trace.sampled) otlp_push(s->otlp, &(otlp_span){.access = *a, .end_ns = now_ns});
    if (s->params.on_access) {
        s->params.on_access(s->params.access_user, a, seconds);
        return;
    }
    rad_log(&s->env, RAD_LOG_INFO, "%s %s %.3f s, request %s%s%s, from %s%s%s", a->what, status,
            seconds, a->id, a->trace.trace_id[0] ? ", trace " : "", a->trace.trace_id, a->peer,
            *more ? ", " : "", more);
}

void access_refused(server *s, int fd, int status, const char *why, char *id)
{
    access_record a = {.begun_ns = server_now_ns(s), .status = status, .what = "- -"};
    a.endpoint = ANSWER_ENDPOINTS - 1;
    make_id(s, a.id);
    memcpy(id, a.id, sizeof a.id);
    find_peer(fd, a.peer, sizeof a.peer);
    s->num_http_requests++;
    access_end(s, &a, why);
}
