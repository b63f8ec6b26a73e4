/* kv_events_config.h - --kv-events-config: where KV events go, as SGLang and vLLM have it. */
#ifndef ENGINE_KV_EVENTS_CONFIG_H
#define ENGINE_KV_EVENTS_CONFIG_H

#include "engine/kv_wire.h"

/* What a key that is not there stands for. */
enum {
    KV_EVENTS_BUFFER_STEPS = 10000,
    KV_EVENTS_HWM = 100000,
    KV_EVENTS_MAX_QUEUE = 100000,
    KV_EVENTS_MOST_HWM = 4096 /* in force: what slow subscribers keep is bounded by that */
};

typedef struct kv_events_config {
    bool on;                   /* publisher "zmq"; else nothing is published */
    char endpoint[256];        /* with the rank's port, as the next */
    char replay_endpoint[256]; /* "": none */
    char topic[256];
    bool bind;         /* else it connects to where a router has bound */
    bool replay_topic; /* replies to replay requests have the topic, too, as vLLM's newer ones */
    kv_wire_form form; /* of events */
    uint32_t dp_rank;
    uint32_t buffer_steps;   /* batches kept for replays */
    uint32_t hwm;            /* of a subscriber that does not read: newer ones pass it by */
    uint32_t max_queue_size; /* batches on their way to the thread */
} kv_events_config;

/* A JSON object: publisher, endpoint, replay_endpoint, topic, buffer_steps, hwm, max_queue_size,
 * enable_kv_cache_events, and ours: bind, data_parallel_rank, event_format, replay_topic. NULL or
 * "" is off. RAD_E_INVAL in words. */
rad_status kv_events_config_parse(const char *json, kv_events_config *out, rad_error *err);

#endif
