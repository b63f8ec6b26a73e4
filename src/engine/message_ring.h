/* message_ring.h - a bounded queue between threads.
 *
 * Messages are small plain structs and are copied in and out. Any number of threads may
 * push and pop. Who pushes into a full ring waits, so a ring must drain towards a thread
 * that never waits for its own senders. */
#ifndef ENGINE_MESSAGE_RING_H
#define ENGINE_MESSAGE_RING_H

#include "base/base.h"
#include <pthread.h>

typedef struct message_ring {
    rad_env env;
    pthread_mutex_t lock;
    pthread_cond_t not_empty;
    pthread_cond_t not_full;
    char *items;
    size_t item_bytes;
    uint32_t capacity;
    uint32_t head; /* the oldest */
    uint32_t count;
    bool closed;
} message_ring;

rad_status message_ring_init(message_ring *ring, const rad_env *env, uint32_t capacity,
                             size_t item_bytes);
void message_ring_fini(message_ring *ring); /* a zeroed ring is fine */

/* Appends `count` messages in order, waiting for room as often as need be. False: the
 * ring was closed and the rest is not in it. */
bool message_ring_push(message_ring *ring, const void *items, uint32_t count);

/* Takes up to `most` messages, and waits for the first one as long as wait_ns says. 0: none came,
 * or the ring is closed and empty; with RING_FOR_EVER it is the latter. */
#define RING_FOR_EVER UINT64_MAX
uint32_t message_ring_pop(message_ring *ring, void *items, uint32_t most, uint64_t wait_ns);

/* No more pushes; what is inside can still be taken. */
void message_ring_close(message_ring *ring);

uint32_t message_ring_count(message_ring *ring);
bool message_ring_is_closed(message_ring *ring);

#endif
