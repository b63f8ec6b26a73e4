/* kv_publisher.h - the thread that publishes KV events over ZeroMQ, for routers that follow a
 * fleet.
 *
 *     scheduler --add, flush--> kv_wire --> kv_queue --> thread --PUB----> subscribers
 *         ^                                                |
 *         +--------------------- restate ------------------+----ROUTER--> who asks for a replay
 *
 *     PUB     topic | sequence number, 8 bytes big-endian | batch (kv_wire.h)
 *     ROUTER  asked: "" | first number wanted, 8 bytes      answered: "" | (topic |) number | batch
 *             for each batch that is kept from there on, then the number -1 and an empty batch
 *
 * Numbers begin at 0 and go up by one a batch. The scheduler never waits: what does not fit into
 * the queue is dropped, and its number with it, so that a subscriber sees the gap.
 *
 * Whoever has lost more than is kept cannot catch up by himself. So everything that is cached is
 * then told anew, as AllBlocksCleared and stores: after a drop, and when a replay is asked for from
 * a batch that is gone; but no more often than every RESTATE_S seconds. The protocol has no word
 * for this, and needs none: it is a batch like others. */
#ifndef ENGINE_KV_PUBLISHER_H
#define ENGINE_KV_PUBLISHER_H

#include "engine/kv_events_config.h"

typedef struct kv_publisher kv_publisher;

typedef struct kv_publisher_stats {
    uint64_t batches, bytes;  /* sent */
    uint64_t dropped_batches; /* numbers that nobody will see */
    uint64_t restatements;
    uint64_t replays; /* asked for */
    uint32_t queued;
    uint32_t reserved;
} kv_publisher_stats;

typedef struct kv_publisher_params {
    const kv_events_config *config; /* on */
    uint32_t block_tokens;          /* token ids of the largest block */
    uint64_t max_queue_bytes;
    /* Called on the publisher's thread: on the scheduler's thread kv_publisher_begin_restating, all
     * that is cached as events, kv_publisher_flush. May wait for that thread. */
    void (*restate)(void *user);
    void *user;
} kv_publisher_params;

bool kv_publisher_is_built(void); /* there was a libzmq to build with */

/* Binds or connects. RAD_E_UNSUPPORTED: this build cannot; RAD_E_IO names the endpoint. */
rad_status kv_publisher_create(const rad_env *env, const kv_publisher_params *params,
                               kv_publisher **out, rad_error *err);

/* The thread begins, once `restate` can be called. RAD_E_NOMEM in words. */
rad_status kv_publisher_start(kv_publisher *p, rad_error *err);

/* Sends what is queued, within a second. NULL is fine. */
void kv_publisher_destroy(kv_publisher *p);

/* Where it listens (or has connected), with the ports that were chosen; constant. */
const char *kv_publisher_endpoint(const kv_publisher *p);
const char *kv_publisher_replay_endpoint(const kv_publisher *p); /* "": none */

/* ---- the scheduler's thread ---- */

void kv_publisher_add(void *publisher, const rad_kv_event *event); /* a rad_kv_event_fn */
void kv_publisher_flush(kv_publisher *p); /* what was added becomes visible */
void kv_publisher_begin_restating(kv_publisher *p);
uint64_t kv_publisher_next_seq(const kv_publisher *p); /* of the next batch */

void kv_publisher_get_stats(kv_publisher *p, kv_publisher_stats *stats); /* any thread */

#endif
