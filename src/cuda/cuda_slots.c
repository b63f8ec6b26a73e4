/* cuda_slots.c - see cuda_slots.h. A row that changed nowhere costs a memcmp. */
#include "cuda/cuda_slots.h"

enum { PIECE = 1024, NO_SLOT = -1 /* in the shadow: differs from all that is compared */ };

rad_status cuda_slots_init(const rad_env *env, uint32_t rows, uint32_t ld, cuda_slots *out,
                           rad_error *err)
{
    *out = (cuda_slots){.rows = rows, .ld = ld};
    if ((uint64_t)rows * ld > UINT32_MAX) /* of which patches tell the place */
        return rad_fail(err, RAD_E_LIMIT, "cuda: %u requests of %u tokens each are too many", rows,
                        ld);
    out->shadow = rad_alloc_sparse(env, cuda_slots_bytes(rows, ld));
    out->known = rad_alloc(env, rows * sizeof *out->known);
    if (out->shadow && out->known) return RAD_OK;
    cuda_slots_fini(env, out);
    return rad_fail(err, RAD_E_NOMEM, "cuda: no memory for %u rows of %u slots", rows, ld);
}

void cuda_slots_fini(const rad_env *env, cuda_slots *s)
{
    rad_free_sparse(env, s->shadow, cuda_slots_bytes(s->rows, s->ld));
    rad_free(env, s->known, s->rows * sizeof *s->known);
    *s = (cuda_slots){0};
}

void cuda_slots_forget(cuda_slots *s)
{
    memset(s->known, 0, s->rows * sizeof *s->known);
}

static uint32_t first_difference(const rad_slot *a, const rad_slot *b, uint32_t count)
{
    uint32_t i = 0;
    while (i + PIECE <= count && !memcmp(a + i, b + i, PIECE * sizeof *a))
        i += PIECE;
    while (i < count && a[i] == b[i])
        i++;
    return i;
}

/* So many of the first `count` slots are known; at least `from`, those that nobody looked at as
 * NO_SLOT. */
static uint32_t known_from(cuda_slots *s, uint32_t row, uint32_t from, uint32_t count)
{
    rad_slot *shadow = s->shadow + (size_t)row * s->ld;
    for (; s->known[row] < from; s->known[row]++)
        shadow[s->known[row]] = NO_SLOT;
    return RAD_MIN(s->known[row], count);
}

uint32_t cuda_slots_compare(cuda_slots *s, uint32_t row, const rad_slot *slots, uint32_t from,
                            uint32_t count, rad_slot *values, uint32_t at, uint32_t room,
                            slot_patch *patch)
{
    rad_slot *shadow = s->shadow + (size_t)row * s->ld;
    const uint32_t known = known_from(s, row, from, count);
    const uint32_t first = from + first_difference(slots + from, shadow + from, known - from);
    s->compared += known - from;
    if (first == count) return 0;
    uint32_t end = count;
    while (end <= known && slots[end - 1] == shadow[end - 1]) /* `first` differs */
        end--;
    const uint32_t changed = end - first;
    if (changed > room) return UINT32_MAX;
    memcpy(shadow + first, slots + first, changed * sizeof *slots);
    memcpy(values + at, slots + first, changed * sizeof *slots);
    s->known[row] = RAD_MAX(s->known[row], count);
    s->patched += changed;
    *patch = (slot_patch){.to = row * s->ld + first, .from = at, .count = changed};
    return changed;
}

uint32_t cuda_slots_take(cuda_slots *s, uint32_t row, const rad_slot *slots, uint32_t from,
                         uint32_t count)
{
    rad_slot *shadow = s->shadow + (size_t)row * s->ld;
    const uint32_t known = known_from(s, row, from, count);
    const uint32_t first = from + first_difference(slots + from, shadow + from, known - from);
    memcpy(shadow + first, slots + first, (count - first) * sizeof *slots);
    s->known[row] = RAD_MAX(s->known[row], count);
    s->patched += count - first;
    return first;
}
