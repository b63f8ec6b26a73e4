/* swa_allocator.h - pages for models in which some layers see only a window.
 *
 * Layers with full attention need a token's K/V for the whole context, layers with
 * sliding-window attention only for the last few hundred tokens. So there are two KV
 * pools, a full one and a smaller window one (SWA), and this allocator hands out pages of
 * both together:
 *
 *     position     0 . . 1 . . 2 . . 3 . .     (pages)
 *     full page    5     6     9     7         what everybody names: rows, tree, callers
 *     SWA page     0     0     2     4         0: out of the window, given back
 *
 * Pages and slots are always those of the full pool, except where a name says swa. The
 * page size is the same in both, so a page as a whole is on the window side or not, and a
 * slot keeps its place in the page.
 *
 * One thread owns an allocator. Nothing here blocks, and once created an allocator does
 * not touch the heap (but the checker does). */
#ifndef RADISH_SWA_ALLOCATOR_H
#define RADISH_SWA_ALLOCATOR_H

#include <radish/kv_allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_swa_allocator rad_swa_allocator;

typedef struct rad_swa_allocator_params {
    size_t struct_size;     /* sizeof(rad_swa_allocator_params) */
    uint32_t num_pages;     /* of the full pool, page 0 not counted */
    uint32_t swa_num_pages; /* of the SWA pool, page 0 not counted */
    uint32_t page_size;     /* tokens per page, in both; 0 means 1 */
    uint32_t need_sort;     /* as in rad_kv_allocator_params, for both */
} rad_swa_allocator_params;

/* RAD_E_INVAL, RAD_E_LIMIT or RAD_E_NOMEM in words; *out is NULL then. Memory: 4 bytes a
 * full page for the map, 4 bytes an SWA page of scratch, and two allocators. */
RAD_API rad_status rad_swa_allocator_create(const rad_env *env,
                                            const rad_swa_allocator_params *params,
                                            rad_swa_allocator **out, rad_error *err);
RAD_API void rad_swa_allocator_destroy(rad_swa_allocator *a); /* NULL is fine */

/* Takes `count` full pages and an SWA page for each; pages[0..count) are the full ones.
 * All or nothing: RAD_FULL when either pool is short (the two available sizes tell which),
 * then no page changed hands and `pages` is untouched. O(count). */
RAD_API rad_status rad_swa_alloc(rad_swa_allocator *a, rad_page *pages, uint32_t count);

/* The same, but only the last num_swa <= count of them get a window side: for pages that are
 * filled from a copy, of which the window layers need no more. RAD_E_INVAL for more. */
RAD_API rad_status rad_swa_alloc_tail(rad_swa_allocator *a, rad_page *pages, uint32_t count,
                                      uint32_t num_swa);

/* As rad_kv_alloc_extend and rad_kv_alloc_decode, each new page with its SWA page. Adds
 * RAD_E_STATE: the partial page that a request would go on filling has lost its SWA side.
 * All or nothing; O(tokens) and O(num_reqs). */
RAD_API rad_status rad_swa_alloc_extend(rad_swa_allocator *a, uint32_t num_reqs,
                                        const uint32_t *prefix_lens, const uint32_t *seq_lens,
                                        const rad_slot *last_loc, rad_slot *slots);
RAD_API rad_status rad_swa_alloc_decode(rad_swa_allocator *a, uint32_t num_reqs,
                                        const uint32_t *seq_lens, const rad_slot *last_loc,
                                        rad_slot *slots);

/* Gives full pages back, and the SWA side of those that still have one. All or nothing,
 * errors as rad_kv_free and rad_kv_free_slots; O(count). */
RAD_API rad_status rad_swa_free(rad_swa_allocator *a, const rad_page *pages, uint32_t count,
                                rad_error *err);
RAD_API rad_status rad_swa_free_slots(rad_swa_allocator *a, const rad_slot *slots, uint32_t count,
                                      rad_error *err);

/* Gives back only the window side, when tokens have left the window; the full pages stay
 * handed out. A page that has none any more, or stands here twice, is passed over: freeing
 * the window side again is nothing. RAD_E_STATE names the first page that is not handed
 * out; then nothing was freed. O(count).
 *
 * The second form takes slots in any order and frees the whole page of each: round a
 * window's edge down to a page before asking. */
RAD_API rad_status rad_swa_free_swa(rad_swa_allocator *a, const rad_page *pages, uint32_t count,
                                    rad_error *err);
RAD_API rad_status rad_swa_free_swa_slots(rad_swa_allocator *a, const rad_slot *slots,
                                          uint32_t count, rad_error *err);

/* The window layers' slots for full slots: swa_slots[i] is slots[i]'s place in the SWA
 * pool; 0 (the dummy page) when it has none, -1 for -1. The arrays may be the same.
 * RAD_E_INVAL, and nothing written, when a slot is not one of the full pool. O(count). */
RAD_API rad_status rad_swa_translate(const rad_swa_allocator *a, const rad_slot *slots,
                                     uint32_t count, rad_slot *swa_slots);

/* The same as an array for a device: map[full page] is the SWA page or 0, num_pages + 1
 * entries (page 0 maps to 0). The allocator's own; it changes with every call above. */
RAD_API const rad_page *rad_swa_page_map(const rad_swa_allocator *a);

/* As rad_kv_free_group_*, for both sides together. The map forgets at once. */
RAD_API rad_status rad_swa_free_group_begin(rad_swa_allocator *a);
RAD_API rad_status rad_swa_free_group_end(rad_swa_allocator *a);

/* Tokens that can be allocated: the lesser of both sides. All O(1). */
RAD_API uint64_t rad_swa_available_size(const rad_swa_allocator *a);
RAD_API uint64_t rad_swa_full_available_size(const rad_swa_allocator *a);
RAD_API uint64_t rad_swa_swa_available_size(const rad_swa_allocator *a);
RAD_API uint32_t rad_swa_page_size(const rad_swa_allocator *a);
RAD_API uint32_t rad_swa_num_pages(const rad_swa_allocator *a); /* of the full pool */
RAD_API uint32_t rad_swa_swa_num_pages(const rad_swa_allocator *a);
RAD_API int rad_swa_is_taken(const rad_swa_allocator *a, rad_page page); /* full side */
RAD_API int rad_swa_has_swa(const rad_swa_allocator *a, rad_page page);  /* 0: none */

/* Everything free again. O(num_pages + swa_num_pages). */
RAD_API void rad_swa_clear(rad_swa_allocator *a);

/* Checks both allocators, and that each taken SWA page belongs to exactly one taken full
 * page. RAD_E_CORRUPT names the first page that does not; RAD_E_NOMEM without scratch. */
RAD_API rad_status rad_swa_check(const rad_swa_allocator *a, rad_error *err);

#ifdef __cplusplus
}
#endif
#endif
