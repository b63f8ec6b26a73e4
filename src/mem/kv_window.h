/* kv_window.h - the window side of an allocator, for the allocator and for the cache.
 *
 * A page may have a page of the window pool beside it: the K/V of the layers that see only the last
 * few hundred tokens. Every call here needs an allocator that has a window side. */
#ifndef MEM_KV_WINDOW_H
#define MEM_KV_WINDOW_H

#include "mem/kv_allocator_impl.h"
#include "mem/kv_runs.h"

/* RAD_E_INVAL, RAD_E_LIMIT or RAD_E_NOMEM in words; what there is then goes with kv_window_fini. */
rad_status kv_window_init(rad_kv_allocator *a, const rad_kv_allocator_params *p, rad_error *err);
void kv_window_fini(rad_kv_allocator *a);

static inline bool kv_window_has_room(const rad_kv_allocator *a, uint64_t pages)
{
    return pages <= rad_kv_available_pages(a->window->side);
}

/* Gives these pages, which were just handed out, a window side; the caller has asked for room. */
void kv_window_bind(rad_kv_allocator *a, const rad_page *pages, uint32_t count);

/* Whether position `len` of a request, in the page of `last_loc`, may not be filled: the page has
 * lost its window side. What is no page of the allocator's has lost nothing. */
bool kv_window_is_lost(const rad_kv_allocator *a, uint32_t len, rad_slot last_loc);

/* The window sides of the pages that stand at entries[0], entries[stride], ..., each divided by
 * `unit`, go back; pages without one are passed over. */
void kv_window_drop(rad_kv_allocator *a, const int32_t *entries, uint32_t count, uint32_t stride,
                    uint32_t unit);
void kv_window_drop_runs(rad_kv_allocator *a, const kv_run *runs, uint32_t num_runs);

void kv_window_clear(rad_kv_allocator *a);
rad_status kv_window_check(const rad_kv_allocator *a, rad_error *err);

/* For a cache: `to`, a handed-out page without a window side, gets that of `from`. Both hold the
 * K/V of the same tokens, so nothing is copied. */
void kv_window_move(rad_kv_allocator *a, rad_page from, rad_page to);

/* For a cache that fills window pages before they are a page's: takes `count` of them (RAD_FULL:
 * all or nothing), gives such back, and makes one the window side of a handed-out page that has
 * none. */
rad_status kv_window_take_loose(rad_kv_allocator *a, rad_page *window_pages, uint32_t count);
void kv_window_free_loose(rad_kv_allocator *a, const rad_page *window_pages, uint32_t count);
void kv_window_bind_loose(rad_kv_allocator *a, rad_page page, rad_page window_page);

/* For a cache: as rad_kv_free_window for the pages of slots[0..count), the slots of consecutive
 * positions of a row of which the first starts a page. */
rad_status kv_free_window_slots(rad_kv_allocator *a, const rad_slot *slots, uint32_t count,
                                rad_error *err);

#endif
