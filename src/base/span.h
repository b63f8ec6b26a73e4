/* span.h - counted runs of units in a fixed arena.
 *
 * The arena is [0, capacity) units of something the owner stores (here: pages of token
 * keys). A span is a run of units with a count of its users; it can lose units at
 * either end. This file knows offsets only; the owner holds the bytes.
 *
 * Descriptors lie outside the arena, one per span and one per hole, linked in address
 * order: no unit is spent on bookkeeping, and neighbours of a freed run are at hand.
 * Holes are kept in bins by size (eight steps to a power of two) with a bitmap, so
 * alloc and free are O(1). When no hole is long enough although enough units are free,
 * the owner compacts: where it costs the fewest moves, neighbouring spans slide down
 * until their holes are one that is long enough. Hence the worst case: no unit is ever
 * unusable, at the price of moving at most the arena. */
#ifndef BASE_SPAN_H
#define BASE_SPAN_H

#include "base/base.h"

enum { SPAN_BINS = 256 };

typedef struct span_run {
    uint32_t at;
    uint32_t len;
    uint32_t prev; /* in address order; 0 = none */
    uint32_t next;
    uint32_t refs; /* 0 = a hole */
    uint32_t bin_prev;
    uint32_t bin_next; /* in a used span: how far the last compaction moved it down */
} span_run;

typedef struct span_arena {
    span_run *spans;    /* [num_spans + 1]; id 0 is none */
    uint32_t num_spans; /* descriptors */
    uint32_t num_fresh; /* descriptors 1..num_fresh were used since the last clear */
    uint32_t spare;     /* first unused one of these, linked by next */
    uint32_t first;     /* lowest address */
    uint32_t capacity;  /* units */
    uint32_t free_units;
    uint32_t used_spans;
    uint64_t compactions;
    uint32_t bins[SPAN_BINS];
    uint64_t bin_bits[SPAN_BINS / 64];
    rad_env env; /* of its memory, and for its panic */
} span_arena;

/* Room for max_spans spans at a time. False when there is no memory. */
bool span_arena_init(span_arena *a, const rad_env *env, uint32_t capacity, uint32_t max_spans);
void span_arena_fini(span_arena *a);
size_t span_arena_bytes(uint32_t max_spans);
void span_arena_clear(span_arena *a); /* everything free again */

/* A span of `len` > 0 units with one user, or 0 when no hole is long enough. */
uint32_t span_alloc(span_arena *a, uint32_t len);

static inline void span_ref(span_arena *a, uint32_t id)
{
    a->spans[id].refs++;
}
void span_unref(span_arena *a, uint32_t id);                  /* the last user frees it */
void span_cut_tail(span_arena *a, uint32_t id, uint32_t len); /* the last `len` units; not all */
void span_cut_head(span_arena *a, uint32_t id, uint32_t len); /* the first `len` units; not all */

/* Makes a hole of `len` units (0 < len <= free_units), which the next span_alloc finds.
 * `move` copies the units of each span that slides down, lowest first; ranges may
 * overlap. Until the next one span_moved() says how far each span went. O(descriptors +
 * units moved). */
typedef void (*span_move_fn)(void *user, uint32_t to, uint32_t from, uint32_t len);
void span_compact(span_arena *a, uint32_t len, span_move_fn move, void *user);
static inline uint32_t span_moved(const span_arena *a, uint32_t id)
{
    return a->spans[id].bin_next;
}

/* Whether the list covers the arena without gaps and bins and counts agree. O(n). */
bool span_arena_check(const span_arena *a);

#endif
