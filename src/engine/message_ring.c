/* message_ring.c - an array, a mutex, two conditions.
 *
 *     items  |   |   | a | b | c |   |      head = 2, count = 3
 *
 * A step of the scheduler pushes all its outputs under one lock, so a lock-free ring
 * would save nothing that can be measured.
 *
 * Invariant: count <= capacity, head < capacity. */
#include "engine/message_ring.h"

#include "base/timed_wait.h"

rad_status message_ring_init(message_ring *ring, const rad_env *env, uint32_t capacity,
                             size_t item_bytes)
{
    memset(ring, 0, sizeof *ring);
    rad_env full = rad_env_or_default(env);
    ring->items = rad_alloc(&full, rad_mul(capacity, item_bytes));
    if (!ring->items) return RAD_E_NOMEM;
    ring->env = full;
    ring->capacity = capacity;
    ring->item_bytes = item_bytes;
    pthread_mutex_init(&ring->lock, NULL);
    cond_init_monotonic(&ring->not_empty);
    pthread_cond_init(&ring->not_full, NULL);
    return RAD_OK;
}

void message_ring_fini(message_ring *ring)
{
    if (!ring->items) return;
    pthread_cond_destroy(&ring->not_full);
    pthread_cond_destroy(&ring->not_empty);
    pthread_mutex_destroy(&ring->lock);
    rad_free(&ring->env, ring->items, ring->capacity * ring->item_bytes);
    ring->items = NULL;
}

static char *item_at(const message_ring *ring, uint32_t i)
{
    return ring->items + (size_t)((ring->head + i) % ring->capacity) * ring->item_bytes;
}

bool message_ring_push(message_ring *ring, const void *items, uint32_t count)
{
    const char *from = items;
    pthread_mutex_lock(&ring->lock);
    for (uint32_t i = 0; i < count; i++) {
        while (ring->count == ring->capacity && !ring->closed) {
            pthread_cond_signal(&ring->not_empty);
            pthread_cond_wait(&ring->not_full, &ring->lock);
        }
        if (ring->closed) {
            pthread_mutex_unlock(&ring->lock);
            return false;
        }
        memcpy(item_at(ring, ring->count), from + i * ring->item_bytes, ring->item_bytes);
        ring->count++;
    }
    pthread_cond_signal(&ring->not_empty);
    pthread_mutex_unlock(&ring->lock);
    return true;
}

uint32_t message_ring_pop(message_ring *ring, void *items, uint32_t most, uint64_t wait_ns)
{
    char *to = items;
    bool late = wait_ns == 0;
    const uint64_t end = late || wait_ns == RING_FOR_EVER ? 0 : monotonic_in(wait_ns);
    pthread_mutex_lock(&ring->lock);
    while (!late && !ring->count && !ring->closed)
        if (wait_ns == RING_FOR_EVER)
            pthread_cond_wait(&ring->not_empty, &ring->lock);
        else
            late = !wait_until(&ring->not_empty, &ring->lock, end);
    uint32_t n = RAD_MIN(most, ring->count);
    for (uint32_t i = 0; i < n; i++)
        memcpy(to + i * ring->item_bytes, item_at(ring, i), ring->item_bytes);
    ring->head = (ring->head + n) % ring->capacity;
    ring->count -= n;
    if (n) pthread_cond_broadcast(&ring->not_full);
    pthread_mutex_unlock(&ring->lock);
    return n;
}

void message_ring_close(message_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    ring->closed = true;
    pthread_cond_broadcast(&ring->not_empty);
    pthread_cond_broadcast(&ring->not_full);
    pthread_mutex_unlock(&ring->lock);
}

uint32_t message_ring_count(message_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    uint32_t count = ring->count;
    pthread_mutex_unlock(&ring->lock);
    return count;
}

bool message_ring_is_closed(message_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    bool closed = ring->closed;
    pthread_mutex_unlock(&ring->lock);
    return closed;
}
