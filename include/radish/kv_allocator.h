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

/* need_sort: freed pages are only counted (staged) until an allocation asks for more
 * than the sorted list holds; then all free pages are sorted anew, in one walk over a
 * bit per page. So the pages that one call hands out ascend, across its requests too,
 * and neighbours lie in runs that one transfer can move. Staged pages are available. */
typedef struct rad_kv_allocator_params {
    size_t struct_size; /* sizeof(rad_kv_allocator_params) */
    uint32_t num_pages; /* pages to hand out, page 0 not counted */
    uint32_t page_size; /* tokens per page; 0 means 1 */
    uint32_t need_sort; /* 1: pages leave in ascending order, see above; 0: last freed first */
    uint32_t reserved;  /* 0 */
} rad_kv_allocator_params;

/* Memory: 4 bytes and two bits per page, all taken here. RAD_E_INVAL (num_pages is 0, a flag is
 * none), RAD_E_LIMIT (slots past 31 bits) or RAD_E_NOMEM in words; *out is NULL then. */
RAD_API rad_status rad_kv_allocator_create(const rad_env *env,
                                           const rad_kv_allocator_params *params,
                                           rad_kv_allocator **out, rad_error *err);
/* NULL is fine. Caches that use it are destroyed first. */
RAD_API void rad_kv_allocator_destroy(rad_kv_allocator *a);

/* Takes `count` pages and writes them to pages[0..count).
 *
 * All or nothing: on RAD_FULL no page changed hands and `pages` is untouched.
 * RAD_FULL is an answer, not an error; callers evict and ask again. O(count); with
 * need_sort, a call that runs short also walks num_pages / 64 words and the free pages. */
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
 * already count it). A new page is taken when that position starts one. All or nothing,
 * answers as rad_kv_alloc_extend; O(num_reqs). */
RAD_API rad_status rad_kv_alloc_decode(rad_kv_allocator *a, uint32_t num_reqs,
                                       const uint32_t *seq_lens, const rad_slot *last_loc,
                                       rad_slot *slots);

/* The same two, which say why they refuse: RAD_E_INVAL names the request, by its place in the
 * arrays, and what does not fit; RAD_FULL how many pages were wanted and how many there are. */
RAD_API rad_status rad_kv_alloc_extend_why(rad_kv_allocator *a, uint32_t num_reqs,
                                           const uint32_t *prefix_lens, const uint32_t *seq_lens,
                                           const rad_slot *last_loc, rad_slot *slots,
                                           rad_error *err);
RAD_API rad_status rad_kv_alloc_decode_why(rad_kv_allocator *a, uint32_t num_reqs,
                                           const uint32_t *seq_lens, const rad_slot *last_loc,
                                           rad_slot *slots, rad_error *err);

/* Between begin and end frees are recorded (copied: the caller may change its row at
 * once) and end makes them available together; until then nobody is handed one of these
 * pages. A free is checked when it is made, so a double free is refused at once and not
 * at the end; a recorded page counts as not handed out and not yet available. Groups do
 * not nest: RAD_E_STATE for a second begin or an end without one. begin O(1), end one
 * memmove of what was recorded. */
RAD_API rad_status rad_kv_free_group_begin(rad_kv_allocator *a);
RAD_API rad_status rad_kv_free_group_end(rad_kv_allocator *a);

/* Which pages are out, as a value of the caller's: for a speculative step that takes
 * pages and may have to put them all back. Nothing has to be given back for a state that
 * is no longer wanted. Fields are the allocator's business. */
typedef struct rad_kv_state {
    const rad_kv_allocator *owner;
    uint64_t epoch;
    uint32_t taken_pages;
    uint32_t sorts;
} rad_kv_state;

/* O(1). */
RAD_API void rad_kv_backup_state(const rad_kv_allocator *a, rad_kv_state *state);

/* Takes back every page that was handed out since the backup; the next allocations hand
 * them out again (without need_sort, or when nothing was sorted between: in the same
 * order). The state stays good and may be restored again; all other states become stale.
 *
 * RAD_E_STATE, and nothing happens, when the state is another allocator's, or when since
 * the backup a page was freed, a free group that held pages ended, another state was
 * restored, or the allocator was cleared. O(pages taken back), plus a sort when there was
 * one between. */
RAD_API rad_status rad_kv_restore_state(rad_kv_allocator *a, rad_kv_state *state, rad_error *err);

RAD_API uint32_t rad_kv_page_size(const rad_kv_allocator *a);
RAD_API uint32_t rad_kv_num_pages(const rad_kv_allocator *a);       /* page 0 not counted */
RAD_API uint32_t rad_kv_available_pages(const rad_kv_allocator *a); /* staged ones count */
RAD_API uint64_t rad_kv_available_size(const rad_kv_allocator *a);  /* in tokens */
/* The highest page that was handed out since create, 0 for none: those above it were never written.
 */
RAD_API rad_page rad_kv_highest_page(const rad_kv_allocator *a);
/* Whether the page is handed out; 0 for what is not a page. O(1), like the five above. */
RAD_API int rad_kv_is_taken(const rad_kv_allocator *a, rad_page page);

/* Every page free again; whoever held one holds it no more. An open free group is
 * closed and states become stale. O(num_pages). */
RAD_API void rad_kv_clear(rad_kv_allocator *a);

/* Walks everything: each page 1..num_pages is on the free stack, staged, recorded by a
 * free group or taken, and only one of these. RAD_E_CORRUPT with the first offending
 * page; RAD_E_NOMEM when there is no scratch memory (num_pages / 8 bytes). */
RAD_API rad_status rad_kv_check(const rad_kv_allocator *a, rad_error *err);

#ifdef __cplusplus
}
#endif
#endif
