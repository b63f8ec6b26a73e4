/* kv_queue.h - batches of KV events, or of a record's messages (recorder.h), on their way from the
 * scheduler to the thread that sends or writes them.
 *
 * One thread pushes and one pops, neither waits for the other: no lock. Bounded in number and in
 * bytes; what does not fit is refused, and the owner counts it. */
#ifndef ENGINE_KV_QUEUE_H
#define ENGINE_KV_QUEUE_H

#include "base/base.h"

#include <stdatomic.h>

/* Whose turn it is to free it may be any thread. */
typedef struct kv_batch {
    const rad_env *env; /* the queue's, which outlives it */
    uint64_t seq;       /* what the pusher said; a record has none */
    size_t len;
    uint8_t bytes[];
} kv_batch;

void kv_batch_free(kv_batch *b); /* NULL is fine */

typedef struct kv_queue {
    rad_env env;
    kv_batch **slots;
    uint32_t capacity;
    uint64_t max_bytes;
    _Atomic uint64_t pushed, popped; /* ever; between them: slots[popped % capacity ...] */
    _Atomic uint64_t bytes;
} kv_queue;

rad_status kv_queue_init(kv_queue *q, const rad_env *env, uint32_t capacity, uint64_t max_bytes);
void kv_queue_fini(kv_queue *q); /* with what is left in it; a zeroed one is fine */

/* A copy. False: the queue is full, or there is no memory. */
bool kv_queue_push(kv_queue *q, uint64_t seq, const uint8_t *bytes, size_t len);

/* The oldest, which is the caller's to free; NULL: there is none. */
kv_batch *kv_queue_pop(kv_queue *q);

uint32_t kv_queue_count(const kv_queue *q); /* any thread */

#endif
