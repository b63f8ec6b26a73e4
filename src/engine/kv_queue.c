/* kv_queue.c - a ring of pointers with two counters.
 *
 * `pushed` is written by the one that pushes, after the slot; `popped` by the one that pops, after
 * it has read the slot. Each reads the other's before it touches a slot: acquire and release. */
#include "engine/kv_queue.h"

#include <string.h>

void kv_batch_free(kv_batch *b)
{
    if (b) rad_free(b->env, b, sizeof *b + b->len);
}

rad_status kv_queue_init(kv_queue *q, const rad_env *env, uint32_t capacity, uint64_t max_bytes)
{
    *q = (kv_queue){.env = rad_env_or_default(env), .capacity = capacity, .max_bytes = max_bytes};
    q->slots = rad_alloc_sparse(&q->env, rad_mul(capacity, sizeof *q->slots));
    return q->slots ? RAD_OK : RAD_E_NOMEM;
}

void kv_queue_fini(kv_queue *q)
{
    if (!q->slots) return;
    for (kv_batch *b; (b = kv_queue_pop(q));)
        kv_batch_free(b);
    rad_free_sparse(&q->env, q->slots, q->capacity * sizeof *q->slots);
    q->slots = NULL;
}

bool kv_queue_push(kv_queue *q, uint64_t seq, const uint8_t *bytes, size_t len)
{
    const uint64_t at = atomic_load_explicit(&q->pushed, memory_order_relaxed);
    if (at - atomic_load_explicit(&q->popped, memory_order_acquire) >= q->capacity) return false;
    if (atomic_load_explicit(&q->bytes, memory_order_relaxed) + len > q->max_bytes) return false;
    kv_batch *b = q->env.alloc(q->env.user, sizeof *b + len);
    if (!b) return false;
    b->env = &q->env;
    b->seq = seq;
    b->len = len;
    memcpy(b->bytes, bytes, len);
    atomic_fetch_add_explicit(&q->bytes, len, memory_order_relaxed);
    q->slots[at % q->capacity] = b;
    atomic_store_explicit(&q->pushed, at + 1, memory_order_release);
    return true;
}

kv_batch *kv_queue_pop(kv_queue *q)
{
    const uint64_t at = atomic_load_explicit(&q->popped, memory_order_relaxed);
    if (at == atomic_load_explicit(&q->pushed, memory_order_acquire)) return NULL;
    kv_batch *b = q->slots[at % q->capacity];
    atomic_fetch_sub_explicit(&q->bytes, b->len, memory_order_relaxed);
    atomic_store_explicit(&q->popped, at + 1, memory_order_release);
    return b;
}

uint32_t kv_queue_count(const kv_queue *q)
{
    const uint64_t popped = atomic_load_explicit(&q->popped, memory_order_acquire);
    return (uint32_t)(atomic_load_explicit(&q->pushed, memory_order_acquire) - popped);
}
