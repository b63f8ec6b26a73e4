/* kv_events.c - where KV events are published, and what a router that follows them must know. */
#include "server/server_priv.h"

#include <stdio.h>
#include <stdlib.h>

/* "tcp://127.0.0.1:5557" -> "127.0.0.1", 5557; of others all of it, and 0. */
static json_int_t split_endpoint(const char *endpoint, char *host, size_t size)
{
    const char *colon = strrchr(endpoint, ':');
    const bool tcp = strncmp(endpoint, "tcp://", 6) == 0 && colon > endpoint + 5;
    if (!tcp) {
        snprintf(host, size, "%s", endpoint);
        return 0;
    }
    snprintf(host, size, "%.*s", (int)(colon - endpoint - 6), endpoint + 6);
    return strtol(colon + 1, NULL, 10);
}

/* SGLang's fields, which routers read to find the socket; and the endpoints as they are. */
json_t *json_kv_events(const engine_info *info)
{
    const kv_events_config *c = info->kv_events;
    char host[sizeof c->endpoint];
    const json_int_t port = split_endpoint(c->endpoint, host, sizeof host);
    const bool tcp = strncmp(c->endpoint, "tcp://", 6) == 0;
    return json_pack("{s:s, s:s, s:I, s:s, s:I, s:i, s:s, s:s?, s:I}", "publisher", "zmq",
                     "endpoint_host", host, "endpoint_port_base",
                     port - (tcp ? (json_int_t)c->dp_rank : 0), "topic", c->topic, "block_size",
                     (json_int_t)info->page_size, "dp_size", 1, "endpoint", c->endpoint,
                     "replay_endpoint", c->replay_endpoint[0] ? c->replay_endpoint : NULL,
                     "data_parallel_rank", (json_int_t)c->dp_rank);
}

/* The scheduler's thread copies the hashes; they become text here, on the worker's. */
static call_progress work_index(call *c)
{
    engine_kv_index index;
    json_writer w;
    c->status = engine_get_kv_index(c->server->engine, &index);
    c->out = c->status == RAD_OK ? evbuffer_new() : NULL;
    if (c->status == RAD_OK && !c->out) c->status = RAD_E_NOMEM;
    if (c->status == RAD_OK) {
        const engine_info *info = engine_get_info(c->server->engine);
        json_writer_begin(&w, c->out);
        jw_open(&w, '{');
        jw_name(&w, "next_seq");
        jw_int(&w, (int64_t)index.next_seq);
        jw_name(&w, "block_size");
        jw_int(&w, info->page_size);
        jw_name(&w, "data_parallel_rank");
        jw_int(&w, info->kv_events->dp_rank);
        jw_name(&w, "blocks");
        jw_open(&w, '{');
        const char *medium = NULL;
        for (size_t i = 0; i < index.count; i++) {
            const engine_kv_block *b = &index.blocks[i];
            if (b->medium != medium) {
                if (medium) jw_close(&w, ']');
                medium = b->medium;
                jw_name(&w, medium);
                jw_open(&w, '[');
            }
            jw_int(&w, b->hash);
        }
        if (medium) jw_close(&w, ']');
        jw_close(&w, '}');
        jw_close(&w, '}');
        if (!json_writer_end(&w)) c->status = RAD_E_NOMEM;
    }
    engine_kv_index_fini(&index);
    return CALL_DONE;
}

static void answer_index(call *c)
{
    api_error err;
    if (c->status == RAD_OK) {
        call_reply_text(c, "application/json", c->out);
        return;
    }
    if (c->status == RAD_E_STATE)
        api_fail(&err, 404, NULL, "no KV events are published (--kv-events-config)");
    else
        api_fail(&err, 503, NULL, "no memory for the answer");
    call_reply_json(c, err.http_status, error_json(&err));
}

static const call_ops index_ops = {.answer = answer_index, .work = work_index};

void handle_kv_events(server *s, struct evhttp_request *http)
{
    call_start_work(s, &s->workers[WORKER_ADMIN], &index_ops, http, 0, NULL);
}
