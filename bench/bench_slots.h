/* bench_slots.h - slots as a pool of pages hands them out after a while.
 *
 *     SLOTS_SERVED    a server's history: waves of requests take their prompt at once and a
 *                     page per decoded token in turn, stay cached when they end, and are
 *                     evicted from their tails, oldest first, when pages run short
 *     SLOTS_SHUFFLED  pages in random order: the worst that can be */
#ifndef BENCH_BENCH_SLOTS_H
#define BENCH_BENCH_SLOTS_H

#include <radish/kv_allocator.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef enum slots_kind { SLOTS_SERVED, SLOTS_SHUFFLED } slots_kind;

static inline uint32_t slots_random(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % below);
}

/* A finished request that the cache still holds. */
typedef struct slots_cached {
    rad_page *pages;
    uint32_t count;
} slots_cached;

typedef struct slots_history {
    rad_kv_allocator *a;
    slots_cached *cached; /* a ring, oldest first */
    uint32_t capacity, first, count;
    uint64_t random;
} slots_history;

static inline void slots_check(rad_status status)
{
    if (status != RAD_OK) abort();
}

static inline void slots_make_room(slots_history *h, uint32_t pages)
{
    while (rad_kv_available_pages(h->a) < pages) {
        slots_cached *c = &h->cached[h->first];
        if (!h->count) abort();
        uint32_t want = pages - rad_kv_available_pages(h->a);
        uint32_t some = c->count < want ? c->count : want;
        c->count -= some;
        slots_check(rad_kv_free(h->a, c->pages + c->count, some, NULL));
        if (c->count) return;
        free(c->pages);
        h->first = (h->first + 1) % h->capacity;
        h->count--;
    }
}

/* Some requests side by side: each its prompt in chunks of 512 tokens at most, then all
 * together one page after the other. */
static inline void slots_wave(slots_history *h, rad_page **pages, const uint32_t *prompt,
                              const uint32_t *total, uint32_t reqs)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < reqs; i++) {
        for (uint32_t at = 0, some; at < prompt[i]; at += some) {
            some = prompt[i] - at < 512 ? prompt[i] - at : 512;
            slots_make_room(h, some);
            slots_check(rad_kv_alloc(h->a, pages[i] + at, some));
        }
        if (total[i] > most) most = total[i];
    }
    for (uint32_t at = 0; at < most; at++)
        for (uint32_t i = 0; i < reqs; i++)
            if (at >= prompt[i] && at < total[i]) {
                slots_make_room(h, 1);
                slots_check(rad_kv_alloc(h->a, pages[i] + at, 1));
            }
}

static inline void slots_live(slots_history *h, uint64_t pages)
{
    enum { REQS = 16 };
    while (pages > 0) {
        rad_page *taken[REQS];
        uint32_t prompt[REQS], total[REQS], sum = 0;
        for (uint32_t i = 0; i < REQS; i++) {
            prompt[i] = 20 + slots_random(&h->random, 400);
            total[i] = prompt[i] + 10 + slots_random(&h->random, 120);
            taken[i] = malloc(total[i] * sizeof *taken[i]);
            sum += total[i];
        }
        slots_wave(h, taken, prompt, total, REQS);
        for (uint32_t i = 0; i < REQS; i++) { /* they end in some order */
            uint32_t other = slots_random(&h->random, REQS);
            rad_page *keep = taken[i];
            taken[i] = taken[other], taken[other] = keep;
            uint32_t count = total[i];
            total[i] = total[other], total[other] = count;
        }
        for (uint32_t i = 0; i < REQS; i++)
            h->cached[(h->first + h->count++) % h->capacity] = (slots_cached){taken[i], total[i]};
        pages -= sum < pages ? sum : pages;
    }
}

/* pages[i][0..count) for i < reqs out of a pool of num_pages > reqs * count. */
static inline void slots_make(slots_kind kind, uint32_t num_pages, rad_page **pages, uint32_t reqs,
                              uint32_t count)
{
    uint64_t random = 1;
    if (kind == SLOTS_SHUFFLED) {
        rad_page *all = malloc(num_pages * sizeof *all);
        for (uint32_t i = 0; i < num_pages; i++) {
            uint32_t at = slots_random(&random, i + 1);
            all[i] = all[at];
            all[at] = (rad_page)(i + 1);
        }
        for (uint32_t i = 0; i < reqs; i++)
            for (uint32_t j = 0; j < count; j++)
                pages[i][j] = all[i * count + j];
        free(all);
        return;
    }
    rad_kv_allocator_params p = {.struct_size = sizeof p, .num_pages = num_pages};
    slots_history h = {.capacity = num_pages / 30 + 32, .random = 1};
    h.cached = calloc(h.capacity, sizeof *h.cached);
    slots_check(rad_kv_allocator_create(NULL, &p, &h.a, NULL));
    uint32_t *prompt = malloc(reqs * 4), *total = malloc(reqs * 4);
    if (num_pages > 16 * 600) slots_live(&h, 4 * (uint64_t)num_pages);
    for (uint32_t i = 0; i < reqs; i++) {
        prompt[i] = count - count / 8;
        total[i] = count;
    }
    slots_wave(&h, pages, prompt, total, reqs);
    while (h.count--) {
        free(h.cached[h.first].pages);
        h.first = (h.first + 1) % h.capacity;
    }
    free(prompt);
    free(total);
    free(h.cached);
    rad_kv_allocator_destroy(h.a);
}

#endif
