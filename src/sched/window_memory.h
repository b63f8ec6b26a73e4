/* window_memory.h - K and V of the layers that see a window of tokens alone.
 *
 * They lie in a pool of their own, whose pages the allocator hands out beside the others
 * (radish/kv_allocator.h) and gets back while the request runs. Rows, tree and everybody else name
 * full slots; what attention of these layers reads is a second table of rows:
 *
 *     row           | 5 | 6 | 9 | 7 | 3 |      full slots of positions 0, 1, ...
 *     window row    | . | . | 2 | 4 | 1 |      their window slots, from where the next token sees
 *
 * A row is translated where it has grown, and again where publishing exchanged pages: a decoding
 * request costs one look into the allocator's map a step. What stands before the first position
 * that is seen is whatever was there once, and is never read.
 *
 * Without window memory (`tokens` is 0) the functions do nothing. */
#ifndef SCHED_WINDOW_MEMORY_H
#define SCHED_WINDOW_MEMORY_H

#include "base/base.h"
#include "model/runner.h"
#include <radish/cache.h>

typedef struct window_memory {
    uint32_t tokens; /* of the window, the newest included; 0: there is none */
    uint32_t page_size;
    uint32_t num_pages;
    uint32_t num_rows;
    rad_req_to_token_pool *rows; /* [row][position]; rows are handed out by the other table */
    rad_token_to_kv_pool *kv_pool;
    uint32_t *mapped; /* [num_rows + 1] positions of a row before it are translated */
    size_t used;      /* no slot from this one on was ever written */
} window_memory;

/* Takes all its memory. RAD_E_NOMEM and the like in words; fini in any case. */
rad_status window_memory_init(window_memory *w, const rad_env *env, runner *model,
                              uint32_t num_pages, uint32_t page_size,
                              const rad_req_to_token_pool_params *rows, rad_error *err);
void window_memory_fini(window_memory *w, const rad_env *env);

/* The fewest pages with which one request alone gets on. */
uint32_t window_memory_least_pages(uint32_t window, uint32_t page_size);

/* The first position that a token with `before` others before it sees. */
static inline uint32_t window_first_seen(const window_memory *w, uint32_t before)
{
    return before < w->tokens ? 0 : before + 1 - w->tokens;
}

/* A row changes hands; its positions from `from` on may have other slots now. */
static inline void window_row_changed(window_memory *w, rad_row row, uint32_t from)
{
    if (w->tokens) w->mapped[row] = RAD_MIN(w->mapped[row], from);
}

/* Positions [prefix, seq_len) were given full slots: translates what they see, and writes where
 * their own K and V go to `out`. O(what was not translated yet). */
void window_row_extend(window_memory *w, const rad_kv_allocator *kv, rad_row row,
                       const rad_slot *slots, uint32_t prefix, uint32_t seq_len, rad_slot *out);

/* Copies what stands under `count` full slots of a page to under those of another. */
rad_status window_copy_slots(const window_memory *w, const rad_kv_allocator *kv, rad_slot from,
                             rad_slot to, uint32_t count);

/* Gives back what no token to come sees, when it is enough to be worth the call. A page more than
 * the window stays, so that a sibling which computes this request's last token again finds all
 * that it needs. *upto: the position before which the call gave back; 0: there was none. */
rad_status window_release(const window_memory *w, rad_cache *cache, rad_req_kv *kv, uint32_t *upto,
                          rad_error *err);

/* Window pages that a request holds, its own and what it locks; and those that one of num_tokens
 * tokens holds at most between two steps. */
uint64_t window_held_pages(const window_memory *w, const rad_req_kv *kv);
uint64_t window_most_pages(const window_memory *w, uint64_t num_tokens);

/* What a row says between two steps is what the allocator's map says. RAD_E_CORRUPT in words. */
rad_status window_row_check(const window_memory *w, const rad_kv_allocator *kv,
                            const rad_req_kv *req, const rad_slot *slots, rad_error *err);

#endif
