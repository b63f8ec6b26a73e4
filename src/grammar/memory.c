/* memory.c - arrays that grow within a limit, and work that is counted. */
#include "grammar/memory.h"

#include <stdarg.h>
#include <stdio.h>

rad_status gr_fail(gr_mem *mem, rad_status status, const char *fmt, ...)
{
    if (mem->status) return mem->status;
    mem->status = status;
    if (!mem->err) return status;
    char text[sizeof mem->err->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return rad_fail(mem->err, status, "%s", text);
}

bool gr_work(gr_mem *mem, uint64_t steps)
{
    mem->steps += steps;
    if (mem->steps > mem->most_steps)
        gr_fail(mem, RAD_E_LIMIT, "the grammar takes more than %llu steps to compile",
                (unsigned long long)mem->most_steps);
    return !mem->status;
}

static bool resize(gr_mem *mem, void **array, uint32_t *cap, uint64_t new_cap, uint64_t keep,
                   size_t element)
{
    size_t bytes = rad_mul((size_t)new_cap, element), old = (size_t)*cap * element;
    if (mem->status) return false;
    if (new_cap > UINT32_MAX || !bytes || bytes > mem->limit || mem->used > mem->limit - bytes) {
        gr_fail(mem, RAD_E_LIMIT, "the grammar takes more than %llu MiB",
                (unsigned long long)(mem->limit >> 20));
        return false;
    }
    void *memory = rad_alloc(&mem->env, bytes);
    if (!memory) {
        gr_fail(mem, RAD_E_NOMEM, "no memory for a grammar");
        return false;
    }
    mem->used += bytes;
    mem->peak = RAD_MAX(mem->peak, mem->used);
    if (*array) memcpy(memory, *array, (size_t)keep * element);
    rad_free(&mem->env, *array, old);
    mem->used -= old;
    *array = memory;
    *cap = (uint32_t)new_cap;
    return true;
}

bool gr_grow(gr_mem *mem, void *array, uint32_t *cap, uint64_t want, size_t element)
{
    if (want <= *cap) return !mem->status;
    void *old;
    memcpy(&old, array, sizeof old); /* a pointer to some type, not to void */
    uint64_t doubled = RAD_MAX((uint64_t)*cap * 2, 16u);
    bool ok = resize(mem, &old, cap, RAD_MAX(want, doubled), *cap, element);
    memcpy(array, &old, sizeof old);
    return ok;
}

bool gr_trim(gr_mem *mem, void *array, uint32_t *cap, uint32_t used, size_t element)
{
    if (used == *cap || !*cap) return !mem->status;
    void *old;
    memcpy(&old, array, sizeof old);
    bool ok = resize(mem, &old, cap, RAD_MAX(used, 1u), RAD_MAX(used, 1u), element);
    memcpy(array, &old, sizeof old);
    return ok;
}

void gr_drop(gr_mem *mem, void *array, uint32_t cap, size_t element)
{
    void *old;
    memcpy(&old, array, sizeof old);
    if (!old) return;
    rad_free(&mem->env, old, (size_t)cap * element);
    mem->used -= (size_t)cap * element;
    old = NULL;
    memcpy(array, &old, sizeof old);
}

bool gr_slots_room(gr_mem *mem, gr_slots *s, uint32_t from, uint32_t to, gr_hash *hash,
                   const void *owner)
{
    gr_slots more = {0};
    if ((uint64_t)(to - from) * 2 < s->cap) return true;
    if (!GR_GROW(mem, more.at, more.cap, RAD_MAX((uint64_t)s->cap * 2, 64u))) return false;
    for (uint32_t id = from; id < to; id++) {
        uint64_t h = hash(owner, id);
        while (*gr_slot(&more, h))
            h++;
        *gr_slot(&more, h) = id + 1;
    }
    gr_slots_drop(mem, s);
    *s = more;
    return true;
}
