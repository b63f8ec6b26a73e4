/* kv_events_config.c - see the header. */
#include "engine/kv_events_config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    json_t *json; /* what was read is taken out of it */
    rad_error *err;
    rad_status status;
} reader;

static void refuse(reader *r, const char *key, const char *wanted)
{
    if (r->status != RAD_OK) return;
    r->status = rad_fail(r->err, RAD_E_INVAL, "kv_events_config: '%s' is %s", key, wanted);
}

static void read_text(reader *r, const char *key, char *to, size_t size)
{
    const json_t *value = json_object_get(r->json, key);
    if (json_is_string(value) && json_string_length(value) < size)
        memcpy(to, json_string_value(value), json_string_length(value) + 1);
    else if (value && !json_is_null(value))
        refuse(r, key, "a text of less than 256 bytes, or null");
    json_object_del(r->json, key);
}

static void read_bool(reader *r, const char *key, bool *to)
{
    const json_t *value = json_object_get(r->json, key);
    if (json_is_boolean(value))
        *to = json_is_true(value);
    else if (value)
        refuse(r, key, "true or false");
    json_object_del(r->json, key);
}

static void read_number(reader *r, const char *key, uint32_t least, uint32_t most, uint32_t *to)
{
    const json_t *value = json_object_get(r->json, key);
    const json_int_t n = json_integer_value(value);
    char wanted[80];
    snprintf(wanted, sizeof wanted, "a number from %u to %u", least, most);
    if (json_is_integer(value) && n >= (json_int_t)least && n <= (json_int_t)most)
        *to = (uint32_t)n;
    else if (value)
        refuse(r, key, wanted);
    json_object_del(r->json, key);
}

/* The rank's own: of tcp the port and the rank, of others the name and "_dp" and the rank. */
static void add_rank(reader *r, char *endpoint, size_t size, uint32_t rank)
{
    char *colon = strrchr(endpoint, ':');
    if (!rank || !*endpoint) return;
    if (strncmp(endpoint, "tcp://", 6) != 0) {
        size_t len = strlen(endpoint);
        if (snprintf(endpoint + len, size - len, "_dp%u", rank) >= (int)(size - len))
            refuse(r, "endpoint", "too long");
        return;
    }
    if (strcmp(colon, ":*") == 0) return; /* any free port */
    const unsigned long port = strtoul(colon + 1, NULL, 10) + rank;
    if (port > UINT16_MAX)
        refuse(r, "endpoint", "on a port that the rank cannot be added to");
    else
        snprintf(colon, size - (size_t)(colon - endpoint), ":%lu", port);
}

/* ZeroMQ takes a port of 99999 for another one. */
static bool has_port(const char *endpoint)
{
    char *end = NULL;
    const char *port = strrchr(endpoint, ':') + 1;
    if (strcmp(port, "*") == 0) return true;
    return *port >= '0' && *port <= '9' && strtoul(port, &end, 10) <= UINT16_MAX && !*end;
}

static void check_endpoint(reader *r, const char *key, const char *endpoint)
{
    static const char *const kinds[] = {"ipc://", "inproc://"};
    for (size_t i = 0; i < RAD_COUNT(kinds); i++)
        if (strncmp(endpoint, kinds[i], strlen(kinds[i])) == 0 && endpoint[strlen(kinds[i])])
            return;
    if (strncmp(endpoint, "tcp://", 6) == 0 && has_port(endpoint)) return;
    if (*endpoint) refuse(r, key, "like tcp://127.0.0.1:5557, ipc://PATH or inproc://NAME");
}

/* As SGLang and vLLM decide it: what names no host in particular is bound. */
static bool is_bound(const char *endpoint)
{
    return strchr(endpoint, '*') || strstr(endpoint, "::") || strncmp(endpoint, "tcp://", 6) != 0;
}

static void read_config(reader *r, kv_events_config *c)
{
    char publisher[256] = "zmq", format[256] = "array";
    bool enabled = true;
    uint32_t rank = 0;
    read_text(r, "publisher", publisher, sizeof publisher);
    read_text(r, "endpoint", c->endpoint, sizeof c->endpoint);
    read_text(r, "replay_endpoint", c->replay_endpoint, sizeof c->replay_endpoint);
    read_text(r, "topic", c->topic, sizeof c->topic);
    read_text(r, "event_format", format, sizeof format);
    read_bool(r, "enable_kv_cache_events", &enabled);
    read_bool(r, "replay_topic", &c->replay_topic);
    read_number(r, "data_parallel_rank", 0, 4095, &rank);
    read_number(r, "buffer_steps", 1, 1000000, &c->buffer_steps);
    read_number(r, "hwm", 1, 1000000000, &c->hwm);
    read_number(r, "max_queue_size", 1, 1000000, &c->max_queue_size);
    check_endpoint(r, "endpoint", c->endpoint);
    check_endpoint(r, "replay_endpoint", c->replay_endpoint);
    c->bind = is_bound(c->endpoint);
    read_bool(r, "bind", &c->bind);
    if (strcmp(publisher, "zmq") != 0 && strcmp(publisher, "null") != 0)
        refuse(r, "publisher", "zmq or null");
    if (strcmp(format, "array") != 0 && strcmp(format, "map") != 0)
        refuse(r, "event_format", "array or map");
    c->form = strcmp(format, "map") == 0 ? KV_WIRE_MAP : KV_WIRE_ARRAY;
    if (r->status == RAD_OK) add_rank(r, c->endpoint, sizeof c->endpoint, rank);
    if (r->status == RAD_OK) add_rank(r, c->replay_endpoint, sizeof c->replay_endpoint, rank);
    c->dp_rank = rank;
    c->on = enabled && strcmp(publisher, "zmq") == 0;
    c->hwm = RAD_MIN(c->hwm, (uint32_t)KV_EVENTS_MOST_HWM);
    const char *unknown;
    json_t *value;
    json_object_foreach(r->json, unknown, value)
    {
        if (r->status == RAD_OK)
            r->status = rad_fail(r->err, RAD_E_INVAL,
                                 "kv_events_config: there is no key '%.60s'; publisher, endpoint, "
                                 "replay_endpoint, topic, buffer_steps, hwm, max_queue_size, "
                                 "enable_kv_cache_events, bind, data_parallel_rank, event_format "
                                 "and replay_topic are",
                                 unknown);
    }
}

rad_status kv_events_config_parse(const char *json, kv_events_config *out, rad_error *err)
{
    *out = (kv_events_config){.endpoint = "tcp://*:5557",
                              .buffer_steps = KV_EVENTS_BUFFER_STEPS,
                              .hwm = KV_EVENTS_HWM,
                              .max_queue_size = KV_EVENTS_MAX_QUEUE};
    if (!json || !*json) return RAD_OK;
    json_error_t why;
    reader r = {.json = json_loads(json, JSON_REJECT_DUPLICATES, &why), .err = err};
    if (!json_is_object(r.json)) {
        json_decref(r.json);
        return rad_fail(err, RAD_E_INVAL, "kv_events_config is a JSON object, not '%.60s'", json);
    }
    read_config(&r, out);
    json_decref(r.json);
    if (r.status == RAD_OK && out->on && !*out->endpoint)
        return rad_fail(err, RAD_E_INVAL, "kv_events_config: 'endpoint' is missing");
    return r.status;
}
