/* kv_allocator_impl.h - the struct behind an allocator, for its files.
 *
 *     kv_allocator.c   the stack and the bits: alloc, free, groups
 *     kv_window.c      the window side
 *     kv_check.c       check
 *
 * What pops and pushes pages stays in one file: it is called for every token. */
#ifndef MEM_KV_ALLOCATOR_IMPL_H
#define MEM_KV_ALLOCATOR_IMPL_H

#include <radish/kv_allocator.h>

#include "base/base.h"
#include "base/bits.h"

/* The pages of window layers, and which page has which. */
typedef struct kv_window {
    rad_kv_allocator *side; /* hands out window pages */
    rad_page *map;          /* [num_pages + 1]: the page's window page, 0 for none */
    rad_page *scratch;      /* [window pages]: on their way in or out */
    uint32_t loose;         /* window pages that are handed out and no page's yet */
    uint32_t reserved;
} kv_window;

struct rad_kv_allocator {
    rad_env env;
    uint32_t num_pages;
    uint32_t page_size;
    uint32_t num_free;    /* on the stack */
    uint32_t num_staged;  /* free, not on the stack; 0 without need_sort */
    uint32_t num_grouped; /* recorded by the open free group */
    bool need_sort;
    bool in_group;
    rad_page highest;  /* that was ever handed out */
    rad_page *free;    /* [num_pages] */
    uint64_t *bits;    /* for 0..num_pages, words of two lanes in turns: taken, and one to lend */
    kv_window *window; /* NULL: there is no window side */
    bool lent;
};

enum { KV_LANES = 2 };

/* A bit for each page that is handed out, and for what is not a page. */
static inline bits_lane kv_taken(const rad_kv_allocator *a)
{
    return (bits_lane){a->bits, KV_LANES};
}

static inline bool kv_is_page(const rad_kv_allocator *a, rad_page page)
{
    return page >= 1 && (uint32_t)page <= a->num_pages;
}

static inline bool kv_is_taken(const rad_kv_allocator *a, rad_page page)
{
    return kv_is_page(a, page) && lane_get(kv_taken(a), (size_t)page);
}

#endif
