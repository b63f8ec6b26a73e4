/* id_stack.h - ids 1..count that are handed out and come back: rows, recurrent states.
 *
 *     free[]    | 5 | 4 | 3 | 1 |    the id freed last leaves first; at the start 1 does
 *                       ^ num_fresh = 2: nobody has had those below yet
 *     taken     . 0 1 0 0 0 ...    a bit per id: it catches one that is freed twice
 *
 * Invariant, verified by id_stack_check: each id is on the stack or taken, never both.
 *
 * After init nothing but the check touches the heap. */
#ifndef MEM_ID_STACK_H
#define MEM_ID_STACK_H

#include "base/bits.h"

#include <radish/env.h>

typedef struct id_stack {
    uint32_t count;
    uint32_t num_free;
    uint32_t num_fresh; /* of these, at the bottom */
    uint32_t *free;  /* [count] */
    uint64_t *taken; /* a bit for each of 0..count */
} id_stack;

/* False: no memory; fini in any case. count < UINT32_MAX. */
bool id_stack_init(id_stack *s, const rad_env *env, uint32_t count);
void id_stack_fini(id_stack *s, const rad_env *env);

static inline bool id_stack_is_out(const id_stack *s, uint32_t id)
{
    return id >= 1 && id <= s->count && bits_get(s->taken, id);
}

/* 0: all are out. */
static inline uint32_t id_stack_take(id_stack *s, const rad_env *env)
{
    if (!s->num_free) return 0;
    uint32_t id = s->free[--s->num_free];
    s->num_fresh = RAD_MIN(s->num_fresh, s->num_free);
    RAD_ASSERT_ENV(env, !id_stack_is_out(s, id));
    bits_set(s->taken, id);
    return id;
}

/* One that nobody has had, while there are any; the one that was freed last takes its place. */
static inline uint32_t id_stack_take_fresh(id_stack *s, const rad_env *env)
{
    if (s->num_fresh) {
        uint32_t *fresh = &s->free[s->num_fresh - 1], *top = &s->free[s->num_free - 1];
        const uint32_t id = *fresh;
        *fresh = *top;
        *top = id;
        s->num_fresh--;
    }
    return id_stack_take(s, env);
}

/* False, and nothing happened: it is not out. */
static inline bool id_stack_give(id_stack *s, uint32_t id)
{
    if (!id_stack_is_out(s, id)) return false;
    bits_clear(s->taken, id);
    s->free[s->num_free++] = id;
    return true;
}

/* RAD_E_CORRUPT names the id, as a `what` of `pool`; RAD_E_NOMEM: no scratch memory. O(count). */
rad_status id_stack_check(const id_stack *s, const rad_env *env, const char *pool, const char *what,
                          rad_error *err);

#endif
