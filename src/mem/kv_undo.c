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
    if (!a->window) return;
    const rad_kv_allocator *w = a->window->side;
    state->window_epoch = w->epoch;
    state->window_taken_pages = kv_num_taken(w);
    state->window_sorts = w->sorts;
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

/* Takes back what kv_undo_pages names. */
static void put_back(rad_kv_allocator *a, const rad_page *pages, uint32_t back, bool sorted)
{
    for (uint32_t i = 0; i < back; i++) {
        RAD_ASSERT_ENV(&a->env, kv_is_taken(a, pages[i]));
        lane_flip(kv_taken(a), (size_t)pages[i]);
    }
    a->num_free += back;
    a->num_undo -= back;
    if (sorted) kv_sort_free(a); /* runs of two sorts stand on the stack */
    a->epoch++;
}

/* The window side of what goes back. Nothing was freed, so each window page that was handed out
 * since has its page among pages[0..count). */
static rad_status restore_window(rad_kv_allocator *a, rad_kv_state *state, const rad_page *pages,
                                 uint32_t count, rad_error *err)
{
    kv_window *w = a->window;
    rad_kv_state side = {.owner = w->side,
                         .epoch = state->window_epoch,
                         .taken_pages = state->window_taken_pages,
                         .sorts = state->window_sorts};
    const rad_page *window_pages;
    uint32_t window_count, paired = 0;
    rad_status status = kv_undo_pages(w->side, &side, &window_pages, &window_count, err);
    if (status) return status;
    for (uint32_t i = 0; i < count; i++)
        paired += w->map[pages[i]] != 0;
    if (paired != window_count)
        return rad_fail(err, RAD_E_STATE, "kv_restore_state: a state of two halves that differ");
    for (uint32_t i = 0; i < count; i++)
        w->map[pages[i]] = 0;
    put_back(w->side, window_pages, window_count, side.sorts != w->side->sorts);
    state->window_epoch = w->side->epoch;
    state->window_sorts = w->side->sorts;
    return RAD_OK;
}

rad_status rad_kv_restore_state(rad_kv_allocator *a, rad_kv_state *state, rad_error *err)
{
    const rad_page *pages;
    uint32_t back;
    rad_status status = kv_undo_pages(a, state, &pages, &back, err);
    if (!status && a->window) status = restore_window(a, state, pages, back, err);
    if (status) return status;
    put_back(a, pages, back, state->sorts != a->sorts);
    state->epoch = a->epoch;
    state->sorts = a->sorts;
    return RAD_OK;
}
