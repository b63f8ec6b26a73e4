/* slab.h - ids 1..capacity with generations; the things themselves lie in arrays that
 * the owner indexes by id.
 *
 * A generation is odd while its id is in use and even while it is free: a name made of
 * both is live exactly when the numbers agree, so a stale one is caught. The id freed
 * last is used next; ids never used before are touched only when needed. */
#ifndef BASE_SLAB_H
#define BASE_SLAB_H

#include "base/base.h"

typedef struct slab {
    uint32_t *generation; /* [capacity + 1] */
    uint32_t *free;       /* [capacity] */
    uint32_t num_free;    /* in free[] */
    uint32_t num_fresh;   /* ids 1..num_fresh were used at some time */
    uint32_t capacity;
    uint32_t num_live;
    rad_env env; /* of its memory, and for its panic */
} slab;

static inline bool slab_init(slab *s, const rad_env *env, uint32_t capacity)
{
    *s = (slab){.capacity = capacity, .env = *env};
    s->generation = rad_alloc_sparse(env, ((size_t)capacity + 1) * sizeof *s->generation);
    s->free = rad_alloc_sparse(env, (size_t)capacity * sizeof *s->free);
    return s->generation && s->free;
}

static inline void slab_fini(slab *s)
{
    rad_free_sparse(&s->env, s->generation, ((size_t)s->capacity + 1) * sizeof *s->generation);
    rad_free_sparse(&s->env, s->free, (size_t)s->capacity * sizeof *s->free);
    *s = (slab){0};
}

static inline size_t slab_bytes(uint32_t capacity)
{
    return ((size_t)capacity * 2 + 1) * sizeof(uint32_t);
}

static inline uint32_t slab_available(const slab *s)
{
    return s->capacity - s->num_live;
}

/* 0 when none is left. */
static inline uint32_t slab_alloc(slab *s)
{
    uint32_t id = 0;
    if (s->num_free)
        id = s->free[--s->num_free];
    else if (s->num_fresh < s->capacity)
        id = ++s->num_fresh;
    if (id) {
        s->generation[id]++;
        s->num_live++;
    }
    return id;
}

static inline bool slab_is_live(const slab *s, uint32_t id)
{
    return id >= 1 && id <= s->num_fresh && (s->generation[id] & 1);
}

/* A name of 32 bits for a live id of at most 16: stale once its place was used 32768 times more.
 * slab_find: what it names, 0 when that is not live any more. */
static inline uint32_t slab_name(const slab *s, uint32_t id)
{
    return s->generation[id] << 16 | id;
}
static inline uint32_t slab_find(const slab *s, uint32_t name)
{
    uint32_t id = name & 0xffff;
    return slab_is_live(s, id) && slab_name(s, id) == name ? id : 0;
}

static inline void slab_free(slab *s, uint32_t id)
{
    RAD_ASSERT_ENV(&s->env, slab_is_live(s, id));
    s->generation[id]++;
    s->free[s->num_free++] = id;
    s->num_live--;
}

#endif
