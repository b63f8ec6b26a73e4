/* kv_check.c - the free lists against the bits: each page 1..num_pages is taken, or on
 * the stack, recorded by the open group, or staged, and only one of these. */
#include "mem/kv_window.h"

/* One page of the stack or of a group's record. */
static rad_status check_listed(const rad_kv_allocator *a, rad_page page, uint64_t *seen,
                               rad_error *err)
{
    if (!kv_is_page(a, page))
        return rad_fail(err, RAD_E_CORRUPT, "kv_check: page %d on a free list is not one", page);
    if (bits_get(seen, (size_t)page))
        return rad_fail(err, RAD_E_CORRUPT, "kv_check: page %d is on the free lists twice", page);
    if (lane_get(kv_taken(a), (size_t)page))
        return rad_fail(err, RAD_E_CORRUPT, "kv_check: page %d is free and taken", page);
    bits_set(seen, (size_t)page);
    return RAD_OK;
}

static rad_status check_lists(const rad_kv_allocator *a, uint64_t *seen, rad_error *err)
{
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < a->num_free && !status; i++) {
        if (a->need_sort && i && a->free[i] >= a->free[i - 1])
            return rad_fail(err, RAD_E_CORRUPT, "kv_check: page %d is out of order", a->free[i]);
        status = check_listed(a, a->free[i], seen, err);
    }
    for (uint32_t i = 1; i <= a->num_grouped && !status; i++)
        status = check_listed(a, a->free[a->num_pages - i], seen, err);
    if (status) return status;

    uint32_t staged = 0;
    for (uint32_t page = 1; page <= a->num_pages; page++) {
        if (bits_get(seen, page) || lane_get(kv_taken(a), page)) continue;
        if (++staged > a->num_staged)
            return rad_fail(err, RAD_E_CORRUPT, "kv_check: page %u is neither free nor taken",
                            page);
    }
    if (staged != a->num_staged)
        return rad_fail(err, RAD_E_CORRUPT, "kv_check: %u pages are staged, %u are counted", staged,
                        a->num_staged);
    return RAD_OK;
}

rad_status rad_kv_check(const rad_kv_allocator *a, rad_error *err)
{
    if ((uint64_t)a->num_free + a->num_staged + a->num_grouped > a->num_pages ||
        (a->num_staged && !a->need_sort) || (a->num_grouped && !a->in_group))
        return rad_fail(err, RAD_E_CORRUPT,
                        "kv_check: %u free, %u staged, %u in a group of %u pages", a->num_free,
                        a->num_staged, a->num_grouped, a->num_pages);
    size_t bytes = bits_words((size_t)a->num_pages + 1) * sizeof(uint64_t);
    uint64_t *seen = rad_alloc(&a->env, bytes);
    if (!seen) return rad_fail(err, RAD_E_NOMEM, "kv_check: no scratch memory");
    rad_status status = check_lists(a, seen, err);
    rad_free(&a->env, seen, bytes);
    return !status && a->window ? kv_window_check(a, err) : status;
}
