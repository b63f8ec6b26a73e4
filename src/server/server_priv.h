/* server_priv.h - the server's inside, for the files of this room. */
#ifndef SERVER_SERVER_PRIV_H
#define SERVER_SERVER_PRIV_H

#include "base/base.h"
#include "server/call.h"

#include <event2/event.h>
#include <pthread.h>

struct evconnlistener;

struct server {
    rad_env env;
    engine *engine;
    server_params params;
    uint16_t port;
    struct event_base *base;
    struct evhttp *http;
    struct evconnlistener *listener;
    struct event *wake_event, *tick_event, *accept_event, *sigint_event, *sigterm_event;
    int wake_fd;

    /* The server's thread: */
    call *calls;
    uint32_t num_calls;
    uint32_t num_unsent; /* answers that evhttp is still writing */
    bool stopping;
    bool aborted;
    uint64_t stop_at_ns;
    uint64_t next_id;
    uint64_t num_http_requests;

    /* Under `lock`: */
    pthread_mutex_t lock;
    call_item *ready, *ready_last;
    bool stop_asked;

    /* The admin thread, its list under `lock`: */
    pthread_t admin_thread;
    bool admin_started, admin_stop;
    pthread_cond_t admin_wake;
    call_item *admin_list, *admin_last;
};

uint64_t server_now_ns(const server *s);
void server_wake(server *s);
void server_leave_when_done(server *s); /* ends the loop when a stop has nothing to wait for */

/* ---- replies for requests that never become calls ---- */
void reply_json(struct evhttp_request *http, int http_status, json_t *json); /* takes json */
void reply_error(struct evhttp_request *http, const api_error *err);
json_t *error_json(const api_error *err);
bool json_to_buffer(const json_t *json, struct evbuffer *out);
const char *http_reason(int http_status);

/* ---- admin ---- */
rad_status admin_start(server *s, rad_error *err);
void admin_join(server *s);
void admin_push(server *s, call_item *item);
void handle_health(server *s, struct evhttp_request *http);
void handle_models(server *s, struct evhttp_request *http);
void handle_model_info(server *s, struct evhttp_request *http);
void handle_server_info(server *s, struct evhttp_request *http);
void handle_metrics(server *s, struct evhttp_request *http);
void handle_flush_cache(server *s, struct evhttp_request *http);
void prometheus_write(struct evbuffer *out, const engine_info *info, const engine_stats *stats,
                      uint64_t num_http_requests);

#endif
