/* kv_allocator.h - hands out pages of the KV pool.
 *
 * An allocator knows indices, never memory: page p names the token slots
 * [p * page_size, (p + 1) * page_size) of every layer. Page 0 is never handed
 * out; padded rows of a batch write there. With page_size 1 a page is a slot
 * (SGLang's token allocator); with more it is SGLang's paged allocator.
 *
 * Models in which some layers see only a window of the last few hundred tokens keep the K/V of
 * these layers in a second, smaller pool. An allocator with a window side (swa_num_pages) hands out
 * pages of both together:
 *
 *     position       0 . . 1 . . 2 . . 3 . .     (pages)
 *     page           5     6     9     7         what everybody names: rows, tree, callers
 *     window page    0     0     2     4         0: out of the window, given back
 *
 * Pages and slots are always those of the full pool, except where a name says window. The page size
 * is the same in both, so a page as a whole has a window side or not, and a slot keeps its place in
 * the page.
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
    size_t struct_size;     /* sizeof(rad_kv_allocator_params) */
    uint32_t num_pages;     /* pages to hand out, page 0 not counted */
    uint32_t page_size;     /* tokens per page; 0 means 1 */
    uint32_t need_sort;     /* 1: pages leave in ascending order, see above; 0: last freed first */
    uint32_t reserved;      /* 0 */
    uint32_t swa_num_pages; /* of the window side, page 0 not counted; 0: there is none */
    uint32_t swa_reserved;  /* 0 */
} rad_kv_allocator_params;

/* Memory: 4 bytes and two bits per page, all taken here; with a window side 4 more per page, and 8
 * and two bits per window page. RAD_E_INVAL (num_pages is 0, a flag is
 * none), RAD_E_LIMIT (slots past 31 bits) or RAD_E_NOMEM in words; *out is NULL then. */
RAD_API rad_status rad_kv_allocator_create(const rad_env *env,
                                           const rad_kv_allocator_params *params,
                                           rad_kv_allocator **out, rad_error *err);
/* NULL is fine. Caches that use it are destroyed first. */
RAD_API void rad_kv_allocator_destroy(rad_kv_allocator *a);

/* Takes `count` pages and writes them to pages[0..count).
 *
 * All or nothing: on RAD_FULL no page changed hands and `pages` is untouched.
 * RAD_FULL is an answer, not an error; callers evict and ask again. With a window side each page
 * comes with a window page, and RAD_FULL is also the answer when those are short
 * (rad_kv_window_available_pages tells which). O(count); with need_sort, a call that runs short
 * also walks num_pages / 64 words and the free pages. */
RAD_API rad_status rad_kv_alloc(rad_kv_allocator *a, rad_page *pages, uint32_t count);

/* The same, but only the last num_window <= count of them get a window side: for pages that are
 * filled from a copy, of which the window layers need no more. RAD_E_INVAL for more than count,
 * RAD_E_UNSUPPORTED without a window side when num_window is not 0. */
RAD_API rad_status rad_kv_alloc_tail(rad_kv_allocator *a, rad_page *pages, uint32_t count,
                                     uint32_t num_window);

/* Gives pages back, and the window side of those that have one. RAD_E_STATE names the first page
 * that is out of range or not handed out (also when it stands twice in `pages`); then nothing was
 * freed. O(count). */
RAD_API rad_status rad_kv_free(rad_kv_allocator *a, const rad_page *pages, uint32_t count,
                               rad_error *err);

/* Gives back only the window side, when tokens have left the window; the pages stay handed out. A
 * page that has none any more, or stands here twice, is passed over: freeing the window side again
 * is nothing. RAD_E_STATE names the first page that is not handed out; then nothing was freed.
 * RAD_E_UNSUPPORTED without a window side. O(count). */
RAD_API rad_status rad_kv_free_window(rad_kv_allocator *a, const rad_page *pages, uint32_t count,
                                      rad_error *err);

/* `to`, a handed-out page without a window side, gets that of `from`, which has none then: both
 * hold the K/V of the same tokens. For who keeps a tree over a free list (free_list.h, move_window)
 * and its pages here. RAD_E_STATE in words, and nothing changed: a page is not handed out, `from`
 * has no window side, `to` has one. RAD_E_UNSUPPORTED without a window side. O(1). */
RAD_API rad_status rad_kv_move_window(rad_kv_allocator *a, rad_page from, rad_page to,
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
 * All or nothing. RAD_FULL as above, in words that say how many pages were wanted and how many
 * there are. Others in words that name the request by its place in the arrays: RAD_E_INVAL when
 * last_loc does not fit prefix_lens or seq_lens < prefix_lens; RAD_E_STATE when the partial page
 * that a request would go on filling has lost its window side. `err` may be NULL. O(tokens). */
RAD_API rad_status rad_kv_alloc_extend(rad_kv_allocator *a, uint32_t num_reqs,
                                       const uint32_t *prefix_lens, const uint32_t *seq_lens,
                                       const rad_slot *last_loc, rad_slot *slots, rad_error *err);

/* One slot per request for the token at position seq_lens[i] - 1 (seq_lens
 * already count it). A new page is taken when that position starts one. All or nothing,
 * answers as rad_kv_alloc_extend; O(num_reqs). */
RAD_API rad_status rad_kv_alloc_decode(rad_kv_allocator *a, uint32_t num_reqs,
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

RAD_API uint32_t rad_kv_page_size(const rad_kv_allocator *a);
RAD_API uint32_t rad_kv_num_pages(const rad_kv_allocator *a);       /* page 0 not counted */
RAD_API uint32_t rad_kv_available_pages(const rad_kv_allocator *a); /* staged ones count */
RAD_API uint64_t rad_kv_available_size(const rad_kv_allocator *a);  /* in tokens */
/* The highest page that was handed out since create, 0 for none. Nobody wrote those above it. */
RAD_API rad_page rad_kv_highest_page(const rad_kv_allocator *a);
/* Whether the page is handed out; 0 for what is not a page. O(1), like the five above. */
RAD_API int rad_kv_is_taken(const rad_kv_allocator *a, rad_page page);

/* The window side. All 0 or NULL without one; O(1). The map is the one a device needs:
 * map[page] is the page's window page or 0, num_pages + 1 entries (page 0 maps to 0). It is the
 * allocator's own and changes with every call above. */
RAD_API uint32_t rad_kv_window_num_pages(const rad_kv_allocator *a); /* page 0 not counted */
RAD_API uint32_t rad_kv_window_available_pages(const rad_kv_allocator *a);
RAD_API const rad_page *rad_kv_window_page_map(const rad_kv_allocator *a);
RAD_API int rad_kv_has_window(const rad_kv_allocator *a, rad_page page); /* 0 for no page, too */

/* Every page free again; whoever held one holds it no more. An open free group is
 * closed. O(num_pages). */
RAD_API void rad_kv_clear(rad_kv_allocator *a);

/* Walks everything: each page 1..num_pages is on the free stack, staged, recorded by a
 * free group or taken, and only one of these; the same of the window side, and each window page
 * that is taken belongs to exactly one taken page. RAD_E_CORRUPT with the first offending
 * page; RAD_E_NOMEM when there is no scratch memory (num_pages / 8 bytes). */
RAD_API rad_status rad_kv_check(const rad_kv_allocator *a, rad_error *err);

#ifdef __cplusplus
}
#endif
#endif
