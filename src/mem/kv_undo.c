/* kv_undo.c - back to an earlier state of an allocator.
 *
 *     backup     | 7 | 3 | 9 | 4 | 2 | 6 |       taken_pages
 *     alloc 2    | 7 | 3 | 9 | 4 | 2   6         the two still stand above the top
 *     restore    | 7 | 3 | 9 | 4 | 2 | 6 |       the top moves, their bits are flipped
 *
 * Nothing is logged: what was popped since the last free is still there. A free writes over it,
 * so it begins a new epoch, and states of another epoch are refused.
 *
 * Invariant: of the same epoch, num_undo is at least what was handed out since the backup. */
#include "mem/kv_undo.h"

#include "mem/kv_allocator_impl.h"

void rad_kv_backup_state(const rad_kv_allocator *a, rad_kv_state *state)
{
    *state = (rad_kv_state){
        .owner = a, .epoch = a->epoch, .taken_pages = kv_num_taken(a), .sorts = a->sorts};
}

rad_status kv_undo_pages(const rad_kv_allocator *a, const rad_kv_state *state,
                         const rad_page **pages, uint32_t *count, rad_error *err)
{
    if (state->owner != a)
        return rad_fail(err, RAD_E_STATE, "kv_restore_state: the state is of another allocator");
    if (state->epoch != a->epoch)
        return rad_fail(err, RAD_E_STATE,
                        "kv_restore_state: pages came back since the backup, it is stale");
    *pages = a->free + a->num_free;
    *count = kv_num_taken(a) - state->taken_pages;
    RAD_ASSERT_ENV(&a->env, *count <= a->num_undo);
    return RAD_OK;
}

rad_status rad_kv_restore_state(rad_kv_allocator *a, rad_kv_state *state, rad_error *err)
{
    const rad_page *pages;
    uint32_t back;
    rad_status status = kv_undo_pages(a, state, &pages, &back, err);
    if (status) return status;
    for (uint32_t i = 0; i < back; i++) {
        RAD_ASSERT_ENV(&a->env, kv_is_taken(a, pages[i]));
        lane_flip(kv_taken(a), (size_t)pages[i]);
    }
    a->num_free += back;
    a->num_undo -= back;
    if (state->sorts != a->sorts) kv_sort_free(a); /* runs of two sorts stand on the stack */
    a->epoch++;
    state->epoch = a->epoch;
    state->sorts = a->sorts;
    return RAD_OK;
}
