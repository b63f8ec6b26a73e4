/* memory_reserve.c - two stacks of free pieces; see the header. */
#include "server/memory_reserve.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { SMALL = 256, NUM_SMALL = 4096, LARGE = MEMORY_RESERVE_PIECE, NUM_LARGE = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *small_pieces, *large_pieces; /* NULL: not filled */
static uint16_t free_small[NUM_SMALL], free_large[NUM_LARGE];
static uint32_t num_small, num_large;
static _Atomic uint64_t lost;

bool memory_reserve_fill(void)
{
    pthread_mutex_lock(&lock);
    bool filled = small_pieces != NULL;
    char *memory = filled ? NULL : malloc((size_t)SMALL * NUM_SMALL + (size_t)LARGE * NUM_LARGE);
    if (memory) { /* written, so that the kernel has given it */
        memset(memory, 0x5a, (size_t)SMALL * NUM_SMALL + (size_t)LARGE * NUM_LARGE);
        large_pieces = memory + (size_t)SMALL * NUM_SMALL;
        while (num_small < NUM_SMALL)
            free_small[num_small] = (uint16_t)num_small, num_small++;
        while (num_large < NUM_LARGE)
            free_large[num_large] = (uint16_t)num_large, num_large++;
        small_pieces = memory;
    }
    filled |= memory != NULL;
    pthread_mutex_unlock(&lock);
    return filled;
}

static size_t size_in_reserve(const void *memory)
{
    const char *at = memory;
    if (!small_pieces || at < small_pieces) return 0;
    if (at < large_pieces) return SMALL;
    return at < large_pieces + (size_t)LARGE * NUM_LARGE ? LARGE : 0;
}

bool memory_reserve_owns(const void *memory)
{
    return memory && size_in_reserve(memory) != 0;
}

uint32_t memory_reserve_left(bool large)
{
    pthread_mutex_lock(&lock);
    uint32_t left = large ? num_large : num_small;
    pthread_mutex_unlock(&lock);
    return left;
}

uint64_t memory_reserve_lost(void)
{
    return atomic_load(&lost);
}

static void *take(size_t bytes)
{
    void *memory = NULL;
    pthread_mutex_lock(&lock);
    if (bytes <= SMALL && num_small)
        memory = small_pieces + (size_t)SMALL * free_small[--num_small];
    else if (bytes <= LARGE && num_large)
        memory = large_pieces + (size_t)LARGE * free_large[--num_large];
    pthread_mutex_unlock(&lock);
    if (!memory) {
        atomic_fetch_add(&lost, 1);
        errno = ENOMEM;
    }
    return memory;
}

void *memory_reserve_malloc(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    return memory ? memory : take(bytes);
}

void memory_reserve_free(void *memory)
{
    size_t size = memory ? size_in_reserve(memory) : 0;
    if (!size) {
        free(memory);
        return;
    }
    pthread_mutex_lock(&lock);
    if (size == SMALL)
        free_small[num_small++] = (uint16_t)((size_t)((char *)memory - small_pieces) / SMALL);
    else
        free_large[num_large++] = (uint16_t)((size_t)((char *)memory - large_pieces) / LARGE);
    pthread_mutex_unlock(&lock);
}

void *memory_reserve_realloc(void *memory, size_t bytes)
{
    if (!memory) return memory_reserve_malloc(bytes);
    size_t size = size_in_reserve(memory);
    if (!size) {
        void *grown = realloc(memory, bytes ? bytes : 1);
        if (grown) return grown;
        size = malloc_usable_size(memory);
    } else if (bytes <= size)
        return memory;
    void *other = memory_reserve_malloc(bytes);
    if (!other) return NULL;
    memcpy(other, memory, RAD_MIN(size, bytes));
    memory_reserve_free(memory);
    return other;
}
