/* memory.h - the memory and the work of one compilation, both within limits.
 *
 * Arrays grow through it by doubling, and whoever computes counts steps. The first "no" stays: all
 * that follows fails too, so a parser may go on to its next look at `status` and leave there. The
 * words of the failure are in `err`, and where none were written, status alone says what it was.
 * Private to this room. */
#ifndef GRAMMAR_MEMORY_H
#define GRAMMAR_MEMORY_H

#include "base/base.h"

typedef struct gr_mem {
    rad_env env;
    uint64_t used, peak, limit; /* bytes */
    uint64_t steps, most_steps;
    uint32_t most_states;
    rad_status status;
    rad_error *err; /* may be NULL */
} gr_mem;

/* Room for `want` elements in *array, of which *cap are there; false: there is none. What is new is
 * zero. */
bool gr_grow(gr_mem *mem, void *array, uint32_t *cap, uint64_t want, size_t element);

/* Gives an array of `cap` elements back; *array is NULL then. */
void gr_drop(gr_mem *mem, void *array, uint32_t cap, size_t element);

/* Exactly as long as is used, for what is kept. */
bool gr_trim(gr_mem *mem, void *array, uint32_t *cap, uint32_t used, size_t element);

/* False once the work is more than the limit. */
bool gr_work(gr_mem *mem, uint64_t steps);

/* Words for a failure, unless there was one before. Returns its status. */
rad_status gr_fail(gr_mem *mem, rad_status status, const char *fmt, ...) RAD_PRINTF(3, 4);

#define GR_GROW(mem, array, cap, want) gr_grow((mem), &(array), &(cap), (want), sizeof *(array))
#define GR_DROP(mem, array, cap)       gr_drop((mem), &(array), (cap), sizeof *(array))
#define GR_TRIM(mem, array, cap, used) gr_trim((mem), &(array), &(cap), (used), sizeof *(array))

/* ---- numbers by hash ---- */

/* An open table of numbers 0, 1, 2 ... for things that its owner keeps and compares. */
typedef struct gr_slots {
    uint32_t *at; /* number + 1; 0: free */
    uint32_t cap; /* a power of two, or 0 */
} gr_slots;

/* Of the owner's thing with this number. */
typedef uint64_t gr_hash(const void *owner, uint32_t id);

/* Room for one more than the things [from, to), which are all that are in it; where it has to grow
 * they are hashed again. False: there is no memory. */
bool gr_slots_room(gr_mem *mem, gr_slots *s, uint32_t from, uint32_t to, gr_hash *hash,
                   const void *owner);

static inline uint32_t *gr_slot(const gr_slots *s, uint64_t hash)
{
    return &s->at[hash & (s->cap - 1)];
}

/* Of a name that a user chose. */
static inline uint64_t gr_hash_text(const char *text, size_t len)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)text[i]) * 1099511628211u;
    return h ^ h >> 32;
}

static inline void gr_slots_drop(gr_mem *mem, gr_slots *s)
{
    GR_DROP(mem, s->at, s->cap);
    s->cap = 0;
}

#endif
