/* admin_tiers.c - /hicache/storage-backend: which store is attached, another one, none.
 *
 *     GET     what there is, and its figures
 *     PUT     {"hicache_storage_backend": "file:DIR",
 *              "hicache_storage_backend_extra_config_json": {...} or "..."}
 *     DELETE  none; nothing that is stored is deleted
 *
 * Only while nothing is running: 400 otherwise. A store is a path or an address of the
 * client's choice and nobody is authenticated, so PUT and DELETE want
 * --hicache-storage-admin. Opening and closing may take its time: a worker does it. */
#include "server/server_priv.h"

#include <stdlib.h>

typedef struct storage_work {
    char *spec;  /* PUT; in the same block */
    char *extra; /* or NULL */
    engine_storage_status status;
} storage_work;

static bool work_get(call *c)
{
    storage_work *w = c->work_arg;
    engine_get_storage_status(c->server->engine, &w->status);
    return true;
}

static bool work_put(call *c)
{
    storage_work *w = c->work_arg;
    rad_error why = {0};
    c->status = engine_attach_storage(c->server->engine, w->spec, w->extra, &why);
    if (c->status != RAD_OK) api_fail(&c->error, 400, NULL, "%s", why.text);
    return true;
}

static bool work_delete(call *c)
{
    rad_error why = {0};
    c->status = engine_detach_storage(c->server->engine, &why);
    if (c->status == RAD_NONE) c->status = RAD_OK; /* there was none: as asked for */
    if (c->status != RAD_OK) api_fail(&c->error, 400, NULL, "%s", why.text);
    return true;
}

static void answer_get(call *c)
{
    const engine_storage_status *s = &((storage_work *)c->work_arg)->status;
    json_t *json =
        json_pack("{s:b, s:b}", "enable_hierarchical_cache", s->enabled, "attached", s->attached);
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
        for (size_t i = 0; i < RAD_COUNT(figures); i++)
            json_object_set_new(json, figures[i].name, json_integer((json_int_t)figures[i].value));
    }
    call_reply_json(c, 200, json);
}

static void answer_change(call *c)
{
    if (c->status == RAD_OK)
        call_reply_json(c, 200, json_pack("{s:s}", "status", "done"));
    else
        call_reply_json(c, c->error.http_status, error_json(&c->error));
}

static const call_ops get_ops = {.answer = answer_get, .work = work_get};
static const call_ops put_ops = {.answer = answer_change, .work = work_put};
static const call_ops delete_ops = {.answer = answer_change, .work = work_delete};

/* The body's words, moved into one block; NULL and err. */
static storage_work *read_body(struct evhttp_request *http, api_error *err)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(http);
    size_t len = evbuffer_get_length(body);
    const char *bytes = (const char *)evbuffer_pullup(body, -1), *spec = NULL;
    json_t *json = json_in_object(bytes ? bytes : "", len, err);
    if (!json) return NULL;
    char *extra = NULL;
    storage_work *w = NULL;
    const json_t *config = json_in_get(json, "hicache_storage_backend_extra_config_json");
    if (json_is_string(config))
        extra = strdup(json_string_value(config));
    else if (config)
        extra = json_dumps(config, JSON_COMPACT);
    if (!json_in_string(json, "hicache_storage_backend", &spec, err)) {
        /* says what is wrong */
    } else if (!spec) {
        api_fail(err, 400, "hicache_storage_backend", "file:DIR or redis:HOST:PORT,... is needed");
    } else if (config && !extra) {
        api_fail(err, 503, NULL, "no memory for this request");
    } else {
        size_t spec_len = strlen(spec) + 1, extra_len = extra ? strlen(extra) + 1 : 0;
        w = calloc(1, sizeof *w + spec_len + extra_len);
        if (w) {
            w->spec = memcpy((char *)(w + 1), spec, spec_len);
            if (extra) w->extra = memcpy(w->spec + spec_len, extra, extra_len);
        } else {
            api_fail(err, 503, NULL, "no memory for this request");
        }
    }
    free(extra);
    json_decref(json);
    return w;
}

void handle_storage_backend(server *s, struct evhttp_request *http)
{
    api_error err;
    enum evhttp_cmd_type command = evhttp_request_get_command(http);
    if (command & (EVHTTP_REQ_GET | EVHTTP_REQ_HEAD)) {
        storage_work *w = calloc(1, sizeof *w);
        if (w) {
            call_start_work(s, &s->admin, &get_ops, http, 0, w);
            return;
        }
        api_fail(&err, 503, NULL, "no memory for this request");
    } else if (!s->params.storage_admin) {
        api_fail(&err, 403, NULL, "the server was not started with --hicache-storage-admin");
    } else if (command == EVHTTP_REQ_DELETE) {
        call_start_work(s, &s->admin, &delete_ops, http, 0, NULL);
        return;
    } else {
        storage_work *w = read_body(http, &err);
        if (w) {
            call_start_work(s, &s->admin, &put_ops, http, 0, w);
            return;
        }
    }
    reply_error(http, &err);
}
