/* kv_allocator.h - hands out pages of the KV pool.
 *
 * An allocator knows indices, never memory: page p names the token slots
 * [p * page_size, (p + 1) * page_size) of every layer. Page 0 is never handed
 * out; padded rows of a batch write there. With page_size 1 a page is a slot
 * (SGLang's token allocator); with more it is SGLang's paged allocator.
 *
 * One thread owns an allocator. Nothing here blocks, and once created an
 * allocator does not touch the heap. */
#ifndef RADISH_KV_ALLOCATOR_H
#define RADISH_KV_ALLOCATOR_H

#include <radish/env.h>
#include <radish/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_kv_allocator rad_kv_allocator;

typedef struct rad_kv_allocator_params {
    size_t struct_size; /* sizeof(rad_kv_allocator_params) */
    uint32_t num_pages; /* pages to hand out, page 0 not counted */
    uint32_t page_size; /* tokens per page; 0 means 1 */
} rad_kv_allocator_params;

RAD_API rad_status rad_kv_allocator_create(const rad_env *env,
                                           const rad_kv_allocator_params *params,
                                           rad_kv_allocator **out, rad_error *err);
RAD_API void rad_kv_allocator_destroy(rad_kv_allocator *a); /* NULL is fine */

/* Takes `count` pages and writes them to pages[0..count).
 *
 * All or nothing: on RAD_FULL no page changed hands and `pages` is untouched.
 * RAD_FULL is an answer, not an error; callers evict and ask again. O(count). */
RAD_API rad_status rad_kv_alloc(rad_kv_allocator *a, rad_page *pages, uint32_t count);

/* Gives pages back. RAD_E_STATE names the first page that is out of range or
 * not handed out (also when it stands twice in `pages`); then nothing was
 * freed. O(count). */
RAD_API rad_status rad_kv_free(rad_kv_allocator *a, const rad_page *pages, uint32_t count,
                               rad_error *err);

/* Frees the pages under slots[0..count), the slots of consecutive positions of
 * one row of which the first starts a page (slots[0] % page_size == 0). The
 * last page may be partial and is freed whole. Errors as rad_kv_free; O(count). */
RAD_API rad_status rad_kv_free_slots(rad_kv_allocator *a, const rad_slot *slots, uint32_t count,
                                     rad_error *err);

/* Slots for extending `num_reqs` requests from prefix_lens[i] to seq_lens[i]
 * tokens. last_loc[i] is the slot of position prefix_lens[i] - 1, or -1 for an
 * empty prefix. Each request first fills its old partial page, then takes whole
 * new pages, then a new partial page. `slots` gets sum(seq_lens - prefix_lens)
 * entries, request after request.
 *
 * All or nothing, RAD_FULL as above. RAD_E_INVAL when last_loc does not fit
 * prefix_lens or seq_lens < prefix_lens. O(tokens). */
RAD_API rad_status rad_kv_alloc_extend(rad_kv_allocator *a, uint32_t num_reqs,
                                       const uint32_t *prefix_lens, const uint32_t *seq_lens,
                                       const rad_slot *last_loc, rad_slot *slots);

/* One slot per request for the token at position seq_lens[i] - 1 (seq_lens
 * already count it). A new page is taken when that position starts one. */
RAD_API rad_status rad_kv_alloc_decode(rad_kv_allocator *a, uint32_t num_reqs,
                                       const uint32_t *seq_lens, const rad_slot *last_loc,
                                       rad_slot *slots);

RAD_API uint32_t rad_kv_page_size(const rad_kv_allocator *a);
RAD_API uint32_t rad_kv_num_pages(const rad_kv_allocator *a);      /* page 0 not counted */
RAD_API uint32_t rad_kv_available_pages(const rad_kv_allocator *a);
RAD_API uint64_t rad_kv_available_size(const rad_kv_allocator *a); /* in tokens */
RAD_API int rad_kv_is_taken(const rad_kv_allocator *a, rad_page page);

/* Every page free again; whoever held one holds it no more. */
RAD_API void rad_kv_clear(rad_kv_allocator *a);

/* Walks everything: each page 1..num_pages is on the free stack or taken, never
 * both, never neither. RAD_E_CORRUPT with the first offending page. */
RAD_API rad_status rad_kv_check(const rad_kv_allocator *a, rad_error *err);

#ifdef __cplusplus
}
#endif
#endif
