/* server.c - listening, routes, limits, and the end.
 *
 * One event loop owns evhttp, all connections and all calls. Other threads reach it in one
 * way: they put something under `lock` and write to the eventfd.
 *
 * Limits on what strangers can make us hold: connections, in number and time, and the bytes of
 * headers and body (connection.c), all bodies together (buffer_limit.c), what their JSON takes and
 * what is kept of them (json_in.c, the engine's and the answers' share of one memory_budget), and
 * the engine's queue. On what they can make us do between two looks at others: turn.c. */
#include "server/dashboard.h"
#include "server/server_priv.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

enum { TRIM_BYTES = 32 << 20 };
enum { SPARE_CLIENTS = 8192 }; /* records beside those of clients that are there: all keys, too */
enum { BACKLOG = 4096, SPARE_FDS = 512 }; /* those that linger are spare ones too */

uint64_t server_now_ns(const server *s)
{
    return s->env.now_ns(s->env.user);
}

void server_wake(server *s)
{
    uint64_t one = 1;
    ssize_t n = write(s->wake_fd, &one, sizeof one);
    (void)n; /* a full counter wakes as well */
}

uint16_t server_port(const server *s)
{
    return s->port;
}

/* ---- routes ---- */

void handle_completions(server *s, struct evhttp_request *http)
{
    call_start(s, &completions_ops, http);
}

void handle_chat(server *s, struct evhttp_request *http)
{
    call_start(s, &chat_ops, http);
}

void handle_generate(server *s, struct evhttp_request *http)
{
    call_start(s, &generate_ops, http);
}

struct route {
    const char *path;
    unsigned methods;
    void (*handle)(server *s, struct evhttp_request *http);
};

#define ROUTE(path, methods, handle) {path, methods, handle},
static const struct route routes[] = {SERVER_ROUTES(ROUTE)};
static const struct route named_routes[] = {SERVER_NAMED_ROUTES(ROUTE)};
#undef ROUTE

static_assert(sizeof routes + sizeof named_routes < ANSWER_ENDPOINTS * sizeof routes[0],
              "and others");

const char *server_endpoint_name(uint32_t i)
{
    const uint32_t plain = RAD_COUNT(routes);
    if (i < plain) return routes[i].path;
    return i - plain < RAD_COUNT(named_routes) ? named_routes[i - plain].path : "other";
}

static uint32_t endpoint_of(const struct route *r)
{
    if (!r) return ANSWER_ENDPOINTS - 1;
    const bool plain = r >= routes && r < routes + RAD_COUNT(routes);
    return plain ? (uint32_t)(r - routes)
                 : (uint32_t)(RAD_COUNT(routes) + (size_t)(r - named_routes));
}

/* "GET, HEAD, PUT", as the header Allow has it. */
static void allowed_methods(const struct route *route, char *text, size_t size)
{
    static const struct {
        unsigned bit;
        const char *name;
    } methods[] = {{EVHTTP_REQ_GET, "GET"},
                   {EVHTTP_REQ_HEAD, "HEAD"},
                   {EVHTTP_REQ_POST, "POST"},
                   {EVHTTP_REQ_PUT, "PUT"},
                   {EVHTTP_REQ_DELETE, "DELETE"}};
    size_t used = 0;
    for (size_t i = 0; i < RAD_COUNT(methods); i++)
        if (route->methods & methods[i].bit)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                     methods[i].name);
}

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < RAD_COUNT(routes); i++)
        if (strcmp(routes[i].path, path) == 0) return &routes[i];
    for (size_t i = 0; i < RAD_COUNT(named_routes); i++)
        if (strncmp(named_routes[i].path, path, strlen(named_routes[i].path)) == 0)
            return &named_routes[i];
    return NULL;
}

/* For answers that come at once; calls have their own. */
static void on_answered(struct evhttp_request *http, void *arg)
{
    connection_done(arg, evhttp_request_get_connection(http));
}

/* Whose request it is, in s->owner. False: he may not. */
static bool key_admit(server *s, struct evhttp_request *http, const struct route *route,
                      api_error *err)
{
    const struct evkeyvalq *in = evhttp_request_get_input_headers(http);
    const api_keys *keys = s->params.api_keys;
    unsigned marks = route ? route->methods : 0;
    bool admin = false;
    s->is_admin = false;
    s->owner = keys ? api_keys_owner(keys, evhttp_find_header(in, "Authorization"),
                                     evhttp_find_header(in, "x-api-key"), &admin)
                    : NULL;
    s->is_admin = admin;
    bool wanted = !(marks & ROUTE_OPEN) && api_keys_wanted(keys);
    bool admin_wanted = marks & ROUTE_ADMIN && api_keys_has_admin(keys);
    if ((wanted || admin_wanted) && !s->owner) {
        evhttp_add_header(evhttp_request_get_output_headers(http), "WWW-Authenticate", "Bearer");
        return api_fail(err, 401, NULL, "%s: Authorization: Bearer KEY, or x-api-key: KEY",
                        evhttp_find_header(in, "Authorization") ||
                                evhttp_find_header(in, "x-api-key")
                            ? "the API key is none of this server's"
                            : "this server wants an API key");
    }
    if (admin_wanted && !admin)
        return api_fail(err, 403, NULL, "%s wants an administrator's key", route->path);
    return true;
}

/* Its connections are not too many. What everybody may ask is answered all the same. */
static bool client_admit(server *s, struct evhttp_request *http, const struct route *route,
                         api_error *err)
{
    client *by_key = NULL;
    if (s->clients && s->owner && !(by_key = clients_by_key(s->clients, s->owner)))
        return api_fail(err, 503, NULL, "too many clients at once");
    bool fine = connection_admit(s, evhttp_request_get_connection(http), by_key, err);
    client_let_go(by_key);
    if (fine || (route && route->methods & ROUTE_OPEN)) return true;
    evhttp_add_header(evhttp_request_get_output_headers(http), "Connection", "close");
    return false;
}

static void on_request(struct evhttp_request *http, void *arg)
{
    server *s = arg;
    bool watched = connection_busy(s, evhttp_request_get_connection(http));
    evhttp_request_set_on_complete_cb(http, on_answered, s); /* `s`, always: reply.c relies on it */
    access_begin(s, http);
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(http);
    const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
    const struct route *route = find_route(path ? path : "");
    api_error err;
    s->num_http_requests++;
    s->access.endpoint = endpoint_of(route);
    if (!watched) {
        evhttp_add_header(evhttp_request_get_output_headers(http), "Connection", "close");
        api_fail(&err, 503, NULL, "no memory for this connection");
    } else if (!browser_admit(s, http, &err)) {
        ; /* err has words */
    } else if (browser_preflight(s, http)) {
        return;
    } else if (!key_admit(s, http, route, &err) || !client_admit(s, http, route, &err)) {
        ; /* likewise */
    } else if (!route) {
        api_fail(&err, 404, NULL,
                 "there is nothing at this path; see /v1/models, /v1/completions, "
                 "/v1/chat/completions, /v1/responses, /v1/messages, /v1/embeddings, /generate, "
                 "/api/chat");
    } else if (!(route->methods & evhttp_request_get_command(http))) {
        char allow[64];
        allowed_methods(route, allow, sizeof allow);
        evhttp_add_header(evhttp_request_get_output_headers(http), "Allow", allow);
        api_fail(&err, 405, NULL, "%s takes %s", route->path, allow);
    } else if (s->stopping) {
        evhttp_add_header(evhttp_request_get_output_headers(http), "Connection", "close");
        api_fail(&err, 503, NULL, "the server is stopping");
    } else {
        route->handle(s, http);
        return;
    }
    reply_error(http, &err);
}

/* ---- the loop's own events ---- */

static void begin_stop(server *s)
{
    s->stop_at_ns = server_now_ns(s) + s->params.drain_ms * UINT64_C(1000000);
    if (s->stopping) {
        pthread_mutex_lock(&s->lock);
        s->hurry = true;
        for (int i = 0; i < NUM_WORKERS; i++)
            worker_wake(&s->workers[i]);
        pthread_mutex_unlock(&s->lock);
        s->aborted = true;
        calls_abort_all(s);
    } else {
        s->stopping = true;
        /* Closed, not only disabled: the kernel would go on connecting clients to a backlog that
         * nobody empties. */
        evhttp_del_accept_socket(s->http, s->bound);
        s->bound = NULL;
        s->listener = NULL;
    }
}

void server_leave_when_done(server *s)
{
    if (s->stopping && !s->num_calls && !s->num_unsent) event_base_loopbreak(s->base);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    server *s = arg;
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof count);
    (void)n; /* nothing to read is fine: the lists are what counts */
    pthread_mutex_lock(&s->lock);
    bool stop = s->stop_asked;
    s->stop_asked = false;
    pthread_mutex_unlock(&s->lock);
    if (stop) begin_stop(s);
    calls_drain(s);
    server_leave_when_done(s);
}

/* Large requests leave their memory in malloc's hands: it goes back to the system when some of
 * them are over, and once more when their answers are out. */
static void give_memory_back(server *s)
{
    bool much = s->passed_bytes >= TRIM_BYTES;
    if (much || s->trim_again) worker_trim(&s->workers[WORKER_LARGE_PARSER]);
    if (much) s->passed_bytes = 0;
    s->trim_again = much;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    server *s = arg;
    uint64_t now_ns = server_now_ns(s);
    calls_end_overdue(s, now_ns);
    calls_ping(s, now_ns);
    connections_tick(s, now_ns);
    give_memory_back(s);
    if (s->stopping && now_ns >= s->stop_at_ns) {
        if (!s->aborted)
            begin_stop(s);
        else if (!s->num_calls)
            s->num_unsent = 0; /* clients that do not read had their time */
    }
    server_leave_when_done(s);
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    server *s = arg;
    begin_stop(s);
    server_leave_when_done(s);
}

/* A certificate that was renewed. With one that cannot be used the one before stays. */
static void on_hangup(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    server *s = arg;
    rad_error err = {0};
    if (tls_reload(s->tls, &err) == RAD_OK)
        rad_log(&s->env, RAD_LOG_INFO, "the certificate was read again");
    else
        rad_log(&s->env, RAD_LOG_ERROR, "the certificate before stays: %s", err.text);
}

/* Out of file descriptors: accepting again at once would only spin. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    server *s = arg;
    struct timeval pause = {.tv_usec = 100000};
    rad_log(&s->env, RAD_LOG_WARN, "cannot accept a connection: %s", strerror(errno));
    evconnlistener_disable(listener);
    event_add(s->accept_event, &pause);
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    server *s = arg;
    if (!s->stopping && s->connections.num_busy < s->params.max_connections)
        evconnlistener_enable(s->listener);
}

/* ---- life ---- */

static bool is_loopback(const struct sockaddr_storage *a)
{
    if (a->ss_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)a)->sin6_addr;
        bool mapped = IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == IN_LOOPBACKNET;
        return mapped || IN6_IS_ADDR_LOOPBACK(v6);
    }
    return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

/* Descriptors for max_connections, or fewer connections where there are not so many. */
static void limit_connections(server *s)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    rlim_t want = (rlim_t)s->params.max_connections + SPARE_FDS, had = limit.rlim_cur;
    if (had == RLIM_INFINITY || had >= want) return;
    if (limit.rlim_max != RLIM_INFINITY && want > limit.rlim_max) want = limit.rlim_max;
    limit.rlim_cur = want;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) want = had;
    rlim_t most = want > 2 * SPARE_FDS ? want - SPARE_FDS : want / 2;
    if (most >= s->params.max_connections) return;
    s->params.max_connections = (uint32_t)RAD_MAX(most, 1);
    rad_log(&s->env, RAD_LOG_WARN, "the limit of file descriptors leaves room for %u connections",
            s->params.max_connections);
}

static rad_status bind_listener(server *s, rad_error *err)
{
    const char *host = s->params.host;
    struct sockaddr_storage address = {0};
    int len = sizeof address;
    if (strcmp(host, "localhost") == 0) host = "127.0.0.1";
    if (evutil_parse_sockaddr_port(host, (struct sockaddr *)&address, &len) != 0)
        return rad_fail(err, RAD_E_INVAL, "server: '%s' is not a numeric address", s->params.host);
    if (address.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&address)->sin6_port = htons(s->params.port);
    else
        ((struct sockaddr_in *)&address)->sin_port = htons(s->params.port);
    s->listener = evconnlistener_new_bind(
        s->base, NULL, NULL, LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_CLOSE_ON_FREE,
        BACKLOG, (struct sockaddr *)&address, len);
    if (!s->listener)
        return rad_fail(err, RAD_E_IO, "server: cannot listen on %s port %u: %s%s", host,
                        s->params.port, strerror(errno),
                        errno == EADDRINUSE ? "; try --port 0" : "");

    s->browsers = (browser_rules){.allow_origins = s->params.allow_origins,
                                  .allow_hosts = s->params.allow_hosts,
                                  .num_allow_origins = s->params.num_allow_origins,
                                  .num_allow_hosts = s->params.num_allow_hosts,
                                  .loopback = is_loopback(&address)};
    socklen_t size = sizeof address;
    getsockname(evconnlistener_get_fd(s->listener), (struct sockaddr *)&address, &size);
    s->port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                  : ((struct sockaddr_in *)&address)->sin_port);
    s->bound = evhttp_bind_listener(s->http, s->listener);
    if (!s->bound) {
        evconnlistener_free(s->listener);
        s->listener = NULL;
        return rad_fail(err, RAD_E_NOMEM, "server: no memory to listen");
    }
    evconnlistener_set_error_cb(s->listener, on_accept_error);
    return RAD_OK;
}

static rad_status create_sessions(server *s, rad_error *err)
{
    enum { HISTORY_BYTES = 64 << 20, IDLE_S = 3600 };
    const engine_info *info = engine_get_info(s->engine);
    if (!s->params.session_history_bytes) s->params.session_history_bytes = HISTORY_BYTES;
    if (!s->params.session_timeout_s) s->params.session_timeout_s = IDLE_S;
    const sessions_params p = {.engine = s->engine,
                               .max_sessions = info->max_sessions,
                               .streaming = info->streaming_sessions,
                               .idle_ns = s->params.session_timeout_s * UINT64_C(1000000000),
                               .max_bytes = s->params.session_history_bytes};
    rad_status status = sessions_create(&p, &s->sessions);
    return status ? rad_fail(err, status, "server: no memory, or no thread, for sessions") : RAD_OK;
}

rad_status server_create(const rad_env *env, engine *e, const server_params *params, server **out,
                         rad_error *err)
{
    *out = NULL;
    server *s = calloc(1, sizeof *s);
    if (!s) return rad_fail(err, RAD_E_NOMEM, "server: no memory");
    s->env = rad_env_or_default(env);
    s->engine = e;
    s->started_ns = server_now_ns(s);
    s->can_pin = engine_get_info(e)->max_pinned_tokens > 0;
    model_digest(engine_get_info(e)->model_path, s->model_digest);
    s->params = *params;
    if (!s->params.host) s->params.host = "127.0.0.1";
    if (!s->params.max_connections) s->params.max_connections = 4096;
    if (!s->params.max_body_bytes) s->params.max_body_bytes = 64 << 20;
    if (!s->params.ping_ms) s->params.ping_ms = 10000;
    if (!s->params.drain_ms) s->params.drain_ms = 5000;
    if (!s->params.min_bytes_per_s) s->params.min_bytes_per_s = 16 << 10;
    if (!s->params.max_header_bytes) s->params.max_header_bytes = 16 << 10;
    if (!s->params.request_timeout_ms) s->params.request_timeout_ms = 30000;
    if (!s->params.keep_alive_ms) s->params.keep_alive_ms = 120000;
    if (!s->params.send_timeout_ms) s->params.send_timeout_ms = 120000;
    if (!s->params.cached_tokens_grain) s->params.cached_tokens_grain = REPORT_CACHED_GRAIN;
    rad_status formats = output_formats_choose(s, err);
    if (formats) {
        free(s);
        return formats;
    }
    s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&s->lock, NULL);
    limit_connections(s);

    s->base = event_base_new();
    s->http = s->base ? evhttp_new(s->base) : NULL;
    if (s->base && s->wake_fd >= 0) {
        s->wake_event = event_new(s->base, s->wake_fd, EV_READ | EV_PERSIST, on_wake, s);
        s->tick_event = event_new(s->base, -1, EV_PERSIST, on_tick, s);
        s->accept_event = event_new(s->base, -1, 0, on_accept_again, s);
        s->sigint_event = evsignal_new(s->base, SIGINT, on_signal, s);
        s->sigterm_event = evsignal_new(s->base, SIGTERM, on_signal, s);
        s->sighup_event = evsignal_new(s->base, SIGHUP, on_hangup, s);
    }
    if (!s->http || !s->wake_event || !s->tick_event || !s->accept_event || !s->sigint_event ||
        !s->sigterm_event || !s->sighup_event) {
        server_destroy(s);
        return rad_fail(err, RAD_E_NOMEM, "server: no memory for the event loop");
    }
    evhttp_set_gencb(s->http, on_request, s);
    evhttp_set_allowed_methods(s->http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD |
                                            EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
                                            EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH |
                                            EVHTTP_REQ_TRACE | EVHTTP_REQ_CONNECT);
    /* What evhttp reads was written anew, a little longer at most. */
    evhttp_set_max_headers_size(s->http, 2 * (ev_ssize_t)s->params.max_header_bytes + 4096);
    evhttp_set_max_body_size(s->http, (ev_ssize_t)s->params.max_body_bytes);
    if (!s->params.response_store_bytes) s->params.response_store_bytes = 64 << 20;
    if (!s->params.response_store_s) s->params.response_store_s = 3600;
    rad_status status = response_store_create(s->params.response_store_bytes,
                                              s->params.response_store_s * UINT64_C(1000000000),
                                              &s->responses);
    if (status != RAD_OK) rad_fail(err, status, "server: no memory for answers");
    const client_limits *own = &s->params.per_client;
    if (status == RAD_OK && (own->connections || own->queued || own->tokens_per_minute)) {
        status = clients_create(&s->env, own, 2 * s->params.max_connections + SPARE_CLIENTS,
                                &s->clients);
        if (status != RAD_OK) rad_fail(err, status, "server: no memory for clients");
    }
    if (status == RAD_OK && s->params.tls.certificate)
        status = tls_create(&s->params.tls, &s->tls, err);
    if (status == RAD_OK && s->params.otlp_endpoint)
        status = otlp_create(&s->env, s->params.otlp_endpoint, engine_get_info(s->engine)->model_name,
                             &s->otlp, err);
    if (status == RAD_OK) status = create_sessions(s, err);
    if (status == RAD_OK) status = connections_init(s, err);
    if (status == RAD_OK) status = bind_listener(s, err);
    if (status == RAD_OK) status = turn_init(s, err);
    for (int i = 0; i < NUM_WORKERS && status == RAD_OK; i++)
        status = worker_start(s, &s->workers[i], err);
    if (status != RAD_OK) {
        server_destroy(s);
        return status;
    }
    *out = s;
    return RAD_OK;
}

void server_stop(server *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop_asked = true;
    pthread_mutex_unlock(&s->lock);
    server_wake(s);
}

rad_status server_catch_signals(server *s, rad_error *err)
{
    if (event_add(s->sigint_event, NULL) != 0 || event_add(s->sigterm_event, NULL) != 0 ||
        (s->tls && event_add(s->sighup_event, NULL) != 0))
        return rad_fail(err, RAD_E_IO, "server: cannot watch signals");
    return RAD_OK;
}

rad_status server_run(server *s, rad_error *err)
{
    struct timeval second = {.tv_sec = 1};
    signal(SIGPIPE, SIG_IGN); /* a broken connection is an EPIPE of its own */
    if (s->params.ping_ms < 2000 || s->params.request_timeout_ms < 2000 ||
        (s->params.answer_timeout_ms && s->params.answer_timeout_ms < 2000))
        second = (struct timeval){.tv_usec = 100000};
    if (event_add(s->wake_event, NULL) != 0 || event_add(s->tick_event, &second) != 0)
        return rad_fail(err, RAD_E_IO, "server: cannot watch events");
    if (event_base_dispatch(s->base) < 0)
        return rad_fail(err, RAD_E_IO, "server: the event loop failed");
    return RAD_OK;
}

void server_destroy(server *s)
{
    if (!s) return;
    for (int i = 0; i < NUM_WORKERS; i++)
        worker_join(&s->workers[i]);
    s->listener = NULL;
    if (s->http) evhttp_free(s->http); /* the listener too */
    connections_fini(s);
    struct event *events[] = {s->wake_event,   s->tick_event,    s->accept_event,
                              s->sigint_event, s->sigterm_event, s->sighup_event};
    for (size_t i = 0; i < RAD_COUNT(events); i++)
        if (events[i]) event_free(events[i]);
    turn_fini(s);
    tls_destroy(s->tls);
    otlp_destroy(s->otlp);
    clients_destroy(s->clients);
    response_store_destroy(s->responses);
    sessions_destroy(s->sessions);
    picture_destroy(s->picture);
    dashboard_destroy(s->dashboard);
    if (s->base) event_base_free(s->base);
    if (s->wake_fd >= 0) close(s->wake_fd);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
