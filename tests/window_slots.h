/* window_slots.h - an allocator's window side in slots. */
#ifndef TESTS_WINDOW_SLOTS_H
#define TESTS_WINDOW_SLOTS_H

#include <radish/kv_allocator.h>

static inline uint64_t window_size(const rad_kv_allocator *a)
{
    return (uint64_t)rad_kv_window_available_pages(a) * rad_kv_page_size(a);
}

/* The window layers' slots of these, 0 for those without a window side. */
static inline void window_slots(const rad_kv_allocator *a, const rad_slot *slots, uint32_t count,
                                rad_slot *there)
{
    rad_slot ps = (rad_slot)rad_kv_page_size(a);
    for (uint32_t i = 0; i < count; i++) {
        rad_page page = rad_kv_window_page_map(a)[slots[i] / ps];
        there[i] = page ? page * ps + slots[i] % ps : 0;
    }
}

#endif
