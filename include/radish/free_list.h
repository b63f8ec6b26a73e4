/* free_list.h - an engine's own free pages, in the place of a rad_kv_allocator.
 *
 * Many engines have a free list already: a tensor of indices on a GPU, a stack in Python. A cache
 * that is given this table (rad_cache_params.free_list) takes pages from its engine by
 * rad_cache_insert and tells it of every page that leaves the tree:
 *
 *     free -- the engine hands it out --> held by a request
 *       ^                                   |  rad_cache_insert: what lies behind prefix_tokens
 *       |                                   v
 *       +--------- free_pages ---------- the tree's: found by matches, kept by locks
 *
 * A page has one owner. The engine's are those that it has not inserted, and those that it was told
 * of; a page that it is told of is its own from that moment on. Pages 0 to num_pages - 1 may come
 * in, each once: a page that the tree has already is refused (RAD_E_STATE). Which of them the
 * engine keeps for itself, as a dummy for padded rows, is not the cache's business.
 *
 * With windows (rad_cache_params.window_tokens) a page has a window side besides, the K/V of the
 * layers that see a window, until it is told by free_windows that it has lost it. A page that is
 * told of by free_pages takes its window side with it, if it has one.
 *
 * What takes pages by itself needs an allocator: the calls for requests (rad_cache_unfinished_req
 * and its kin), tiers (hicache.h) and partial pages (partial_page.h).
 *
 * The functions are called by the thread that owns the cache, within rad_cache_insert and
 * rad_cache_insert_from (when the limits of the metadata make room for it), rad_cache_evict,
 * rad_cache_evict_window and rad_cache_reset, and by nothing else; not by destroy. They cannot
 * refuse and must not call the cache. Arrays are good until the function returns. An eviction makes
 * a call for each leaf that it cuts, or several: O(pages) in all, and no memory is taken. */
#ifndef RADISH_FREE_LIST_H
#define RADISH_FREE_LIST_H

#include <radish/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_free_list {
    size_t struct_size; /* sizeof(rad_free_list) */
    uint32_t num_pages; /* 0 .. num_pages - 1 are pages */
    uint32_t reserved;  /* 0 */
    void *user;         /* handed to all of them */

    /* These pages left the tree. Each is told of once. */
    void (*free_pages)(void *user, const rad_page *pages, uint32_t count);

    /* With windows, else NULL. These pages stay in the tree without their window side. */
    void (*free_windows)(void *user, const rad_page *pages, uint32_t count);

    /* With windows, else NULL. An insert brings `from`, a duplicate of the tree's page `to`, which
     * has lost its window side: what was the window side of `from` is that of `to` from now on, and
     * `from`, which stays the engine's, has none. Both are of the same tokens, so an engine moves
     * an entry of its map and copies nothing. */
    void (*move_window)(void *user, rad_page from, rad_page to);
} rad_free_list;

#ifdef __cplusplus
}
#endif
#endif
