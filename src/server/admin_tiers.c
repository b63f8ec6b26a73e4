/* admin_tiers.c - the store behind the tiers: which one is attached, another, none, an empty one.
 *
 *     GET     /hicache/storage-backend   what there is, and its figures
 *     PUT     {"hicache_storage_backend": "file:DIR",
 *              "hicache_storage_backend_extra_config_json": {...} or "..."}
 *     DELETE  none; nothing that is stored is deleted
 *     POST    /flush_cache?tiers=storage
 *
 * PUT and DELETE only while nothing is running: 400 otherwise. A store is a path or an address
 * of the client's choice and nobody is authenticated, so both want --hicache-storage-admin.
 *
 * The engine has a thread for what a store takes its time for; here a worker only asks now and
 * then whether that is through. One change at a time: 409 for the next. Who has waited for
 * storage_timeout_ms gets 504, and the change goes on; GET says so, and never waits long: it
 * has the figures that were heard last where the store is busy or dead. */
#include "server/api_fields.h"
#include "server/cached_tokens.h"
#include "server/memory_reserve.h"
#include "server/server_priv.h"

#include <stdlib.h>

enum { DEFAULT_TIMEOUT_MS = 30000, LOOK_MS = 1000, MAX_BODY = 64 << 10 };

typedef struct storage_work {
    engine_store_change change; /* its words in the same block */
    uint64_t ticket;            /* of the change, or of the look */
    bool begun;
    engine_storage_status status;
} storage_work;

static uint64_t waited_ms(const call *c)
{
    return (server_now_ns(c->server) - c->created_ns) / 1000000;
}

static call_progress work_look(call *c)
{
    storage_work *w = c->work_arg;
    if (!w->begun) w->ticket = engine_store_look(c->server->engine);
    w->begun = true;
    engine_get_storage_status(c->server->engine, &w->status);
    bool ended = engine_store_looked(c->server->engine, w->ticket);
    return ended || call_is_overdue(c, server_now_ns(c->server)) ? CALL_DONE : CALL_WAIT;
}

static const char *name_of(engine_store_kind kind)
{
    static const char *const names[] = {"", "clear", "attach", "detach"};
    return names[kind];
}

/* What the store says no to is the client's business, what it fails at is not. */
static int http_status_of(const storage_work *w, rad_status status)
{
    if (status == RAD_FULL) return 409;
    if (status == RAD_E_NOMEM) return 503;
    return w->change.kind == ENGINE_STORE_CLEAR && status == RAD_E_IO ? 500 : 400;
}

static call_progress work_change(call *c)
{
    storage_work *w = c->work_arg;
    rad_error why = {0};
    bool ended = true;
    if (!w->begun) c->status = engine_store_begin(c->server->engine, &w->change, &w->ticket, &why);
    w->begun = true;
    if (w->ticket) ended = engine_store_ended(c->server->engine, w->ticket, &c->status, &why);
    if (ended) {
        if (c->status == RAD_NONE) c->status = RAD_OK; /* there was none: as asked for */
        if (c->status != RAD_OK)
            api_fail(&c->error, http_status_of(w, c->status), NULL, "%s", why.text);
        return CALL_DONE;
    }
    c->status = RAD_AGAIN;
    api_fail(&c->error, 504, NULL,
             "the store has not answered in %llu ms; it is still at it (%s), see GET "
             "/hicache/storage-backend",
             (unsigned long long)waited_ms(c), name_of(w->change.kind));
    return call_is_overdue(c, server_now_ns(c->server)) ? CALL_DONE : CALL_WAIT;
}

static void answer_look(call *c)
{
    const engine_storage_status *s = &((storage_work *)c->work_arg)->status;
    json_t *json =
        json_pack("{s:b, s:b}", "enable_hierarchical_cache", s->enabled, "attached", s->attached);
    bool figures_too = cached_figures(&c->server->params);
    if (json && s->attached) {
        const rad_storage_stats *t = &s->store;
        const struct {
            const char *name;
            uint64_t value;
        } figures[] = {{"pages", t->pages},         {"bytes", t->bytes},
                       {"max_bytes", t->max_bytes}, {"gets", t->gets},
                       {"hits", t->hits},           {"sets", t->sets},
                       {"evicted", t->evicted},     {"quarantined", t->quarantined},
                       {"errors", t->errors},       {"retries", t->retries}};
        json_object_set_new(json, "hicache_storage_backend", json_string(s->spec));
        json_object_set_new(json, "down", json_boolean(t->down));
        for (size_t i = 0; figures_too && i < RAD_COUNT(figures); i++)
            json_object_set_new(json, figures[i].name, json_integer((json_int_t)figures[i].value));
        json_object_set_new(json, "age_s", json_real((double)s->store_age_ns * 1e-9));
    }
    if (json && s->busy) {
        json_object_set_new(json, "under_way", json_string(name_of(s->busy)));
        json_object_set_new(json, "under_way_s", json_real((double)s->busy_ns * 1e-9));
    }
    call_reply_json(c, 200, json);
}

static void answer_change(call *c)
{
    const storage_work *w = c->work_arg;
    bool cleared = w->change.kind == ENGINE_STORE_CLEAR;
    if (c->status == RAD_OK)
        call_reply_json(c, 200,
                        json_pack("{s:s}", "status", cleared ? "the cache is empty" : "done"));
    else
        call_reply_json(c, c->error.http_status, error_json(&c->error));
}

static const call_ops look_ops = {.answer = answer_look, .work = work_look};
static const call_ops change_ops = {.answer = answer_change, .work = work_change};

static void start_change(server *s, struct evhttp_request *http, storage_work *w)
{
    uint64_t timeout = s->params.storage_timeout_ms;
    uint64_t wait_ms = w->change.wait_ns / 1000000; /* for requests, before the store's own time */
    if (!timeout) timeout = DEFAULT_TIMEOUT_MS;
    call_start_work(s, &s->workers[WORKER_WAITER], &change_ops, http, timeout + wait_ms, w);
}

/* The body's words, moved into one block; NULL and err. */
static storage_work *read_body(struct evhttp_request *http, api_error *err)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(http);
    size_t len = evbuffer_get_length(body);
    if (len > MAX_BODY) { /* it is read between two events of others */
        api_fail(err, 413, NULL, "the body is longer than %d bytes", MAX_BODY);
        return NULL;
    }
    const char *bytes = (const char *)evbuffer_pullup(body, -1), *spec = NULL;
    json_t *json = json_in_object(bytes ? bytes : "", len, NULL, err);
    if (!json) return NULL;
    char *extra = NULL;
    storage_work *w = NULL;
    const json_t *config = json_in_get(json, "hicache_storage_backend_extra_config_json");
    if (json_is_string(config))
        extra = strdup(json_string_value(config));
    else if (config)
        extra = json_dumps(config, JSON_COMPACT);
    if (!api_check_fields(json, IN_STORE, err) ||
        !json_in_string(json, "hicache_storage_backend", &spec, err)) {
        /* says what is wrong */
    } else if (!spec) {
        api_fail(err, 400, "hicache_storage_backend", "file:DIR or redis:HOST:PORT,... is needed");
    } else if (config && !extra) {
        api_fail(err, 503, NULL, "no memory for this request");
    } else {
        size_t spec_len = strlen(spec) + 1, extra_len = extra ? strlen(extra) + 1 : 0;
        w = calloc(1, sizeof *w + spec_len + extra_len);
        if (w) {
            char *words = memcpy((char *)(w + 1), spec, spec_len);
            w->change = (engine_store_change){.kind = ENGINE_STORE_ATTACH, .spec = words};
            if (extra) w->change.extra_config = memcpy(words + spec_len, extra, extra_len);
        } else {
            api_fail(err, 503, NULL, "no memory for this request");
        }
    }
    memory_reserve_free(extra); /* jansson made it, or strdup */
    json_decref(json);
    return w;
}

void flush_storage(server *s, struct evhttp_request *http, uint32_t tiers, uint64_t wait_ms)
{
    storage_work *w = calloc(1, sizeof *w);
    if (w) {
        w->change = (engine_store_change){
            .kind = ENGINE_STORE_CLEAR, .tiers = tiers, .wait_ns = wait_ms * 1000000};
        start_change(s, http, w);
        return;
    }
    api_error err;
    api_fail(&err, 503, NULL, "no memory for this request");
    reply_error(http, &err);
}

void handle_storage_backend(server *s, struct evhttp_request *http)
{
    api_error err;
    enum evhttp_cmd_type command = evhttp_request_get_command(http);
    bool look = command & (EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
    storage_work *w = NULL;
    if (!look && !s->params.storage_admin) {
        api_fail(&err, 403, NULL, "the server was not started with --hicache-storage-admin");
    } else if (command == EVHTTP_REQ_PUT) {
        w = read_body(http, &err);
    } else {
        w = calloc(1, sizeof *w);
        if (!w) api_fail(&err, 503, NULL, "no memory for this request");
    }
    if (!w) {
        reply_error(http, &err);
    } else if (look) {
        call_start_work(s, &s->workers[WORKER_WAITER], &look_ops, http, LOOK_MS, w);
    } else {
        if (command == EVHTTP_REQ_DELETE) w->change.kind = ENGINE_STORE_DETACH;
        start_change(s, http, w);
    }
}
