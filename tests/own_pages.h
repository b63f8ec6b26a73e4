/* own_pages.h - an engine's own free list (radish/free_list.h), naive: whose each page is, and
 * whether it has a window side, page by page. What the cache tells is compared with that at once.
 */
#ifndef TESTS_OWN_PAGES_H
#define TESTS_OWN_PAGES_H

#include "test.h"

#include <radish/free_list.h>

enum { OWN_MOST = 256 };

typedef enum own_owner { OWN_FREE, OWN_HELD, OWN_CACHED } own_owner;

typedef struct own_pages {
    uint32_t num_pages;
    uint32_t num_free;
    uint32_t window_free; /* how many more pages may have a window side */
    uint32_t calls;       /* how often the cache told of something, */
    uint32_t told;        /* of how many pages that left it */
    uint32_t moved;       /* and of how many window sides that changed the page */
    own_owner of[OWN_MOST];
    bool has_window[OWN_MOST];
} own_pages;

static void own_drop_window(own_pages *o, rad_page page)
{
    o->window_free += o->has_window[page];
    o->has_window[page] = false;
}

static void own_pass(own_pages *o, const rad_page *pages, uint32_t count, own_owner from,
                     own_owner to)
{
    for (uint32_t i = 0; i < count; i++) {
        CHECK(pages[i] >= 0 && (uint32_t)pages[i] < o->num_pages && o->of[pages[i]] == from);
        o->of[pages[i]] = to;
        if (to == OWN_FREE) own_drop_window(o, pages[i]);
    }
    if (to == OWN_FREE) o->num_free += count;
}

static void own_on_free(void *user, const rad_page *pages, uint32_t count)
{
    own_pages *o = user;
    CHECK(count);
    o->calls++;
    o->told += count;
    own_pass(o, pages, count, OWN_CACHED, OWN_FREE);
}

static void own_on_free_windows(void *user, const rad_page *pages, uint32_t count)
{
    own_pages *o = user;
    CHECK(count);
    o->calls++;
    for (uint32_t i = 0; i < count; i++) {
        CHECK(o->of[pages[i]] == OWN_CACHED && o->has_window[pages[i]]);
        own_drop_window(o, pages[i]);
    }
}

static void own_on_move_window(void *user, rad_page from, rad_page to)
{
    own_pages *o = user;
    CHECK(o->of[from] == OWN_HELD && o->has_window[from]);
    CHECK(o->of[to] == OWN_CACHED && !o->has_window[to]);
    o->calls++;
    o->moved++;
    o->has_window[from] = false;
    o->has_window[to] = true;
}

/* window_pages 0: there are no windows. */
static rad_free_list own_init(own_pages *o, uint32_t num_pages, uint32_t window_pages)
{
    CHECK(num_pages <= OWN_MOST);
    *o = (own_pages){.num_pages = num_pages, .num_free = num_pages, .window_free = window_pages};
    return (rad_free_list){.struct_size = sizeof(rad_free_list),
                           .num_pages = num_pages,
                           .user = o,
                           .free_pages = own_on_free,
                           .free_windows = window_pages ? own_on_free_windows : NULL,
                           .move_window = window_pages ? own_on_move_window : NULL};
}

/* All or nothing; with windows each page gets a window side. */
static rad_status own_alloc(own_pages *o, rad_page *pages, uint32_t count, bool windows)
{
    if (count > o->num_free || (windows && count > o->window_free)) return RAD_FULL;
    for (uint32_t page = 0, i = 0; i < count; page++) {
        if (o->of[page] != OWN_FREE) continue;
        o->of[page] = OWN_HELD;
        o->has_window[page] = windows;
        pages[i++] = (rad_page)page;
    }
    o->num_free -= count;
    if (windows) o->window_free -= count;
    return RAD_OK;
}

#endif
