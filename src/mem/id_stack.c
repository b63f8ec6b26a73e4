/* id_stack.c - making, ending and checking a stack of ids. */
#include "mem/id_stack.h"

static size_t free_bytes(const id_stack *s)
{
    return rad_mul(s->count, sizeof *s->free);
}

static size_t taken_bytes(const id_stack *s)
{
    return bits_words((size_t)s->count + 1) * sizeof *s->taken;
}

bool id_stack_init(id_stack *s, const rad_env *env, uint32_t count)
{
    *s = (id_stack){.count = count};
    s->free = rad_alloc(env, free_bytes(s));
    s->taken = rad_alloc(env, taken_bytes(s));
    if (!s->free || !s->taken) return false;
    for (uint32_t i = 0; i < count; i++)
        s->free[i] = count - i; /* 1 leaves first */
    s->num_free = s->num_fresh = count;
    return true;
}

void id_stack_fini(id_stack *s, const rad_env *env)
{
    rad_free(env, s->free, free_bytes(s));
    rad_free(env, s->taken, taken_bytes(s));
}

rad_status id_stack_check(const id_stack *s, const rad_env *env, const char *pool, const char *what,
                          rad_error *err)
{
    uint64_t *seen = rad_alloc(env, taken_bytes(s));
    rad_status status = RAD_OK;
    if (!seen) return rad_fail(err, RAD_E_NOMEM, "%s_check: no scratch memory", pool);
    for (uint32_t i = 0; i < s->num_free && !status; i++) {
        uint32_t id = s->free[i];
        if (!id || id > s->count || bits_get(seen, id))
            status = rad_fail(err, RAD_E_CORRUPT,
                              "%s: %s %u on the free stack is none or stands twice", pool, what,
                              id);
        else
            bits_set(seen, id);
    }
    for (uint32_t i = 0; i < s->num_fresh && !status; i++)
        if (s->num_fresh > s->num_free || s->free[i] != s->count - i)
            status = rad_fail(err, RAD_E_CORRUPT,
                              "%s: %u of %u free ones were never out, and %s %u is not", pool,
                              s->num_fresh, s->num_free, what, s->count - i);
    for (uint32_t id = 1; id <= s->count && !status; id++)
        if (bits_get(seen, id) == id_stack_is_out(s, id))
            status = rad_fail(err, RAD_E_CORRUPT, "%s: %s %u is %s", pool, what, id,
                              bits_get(seen, id) ? "free and taken" : "neither free nor taken");
    rad_free(env, seen, taken_bytes(s));
    return status;
}
