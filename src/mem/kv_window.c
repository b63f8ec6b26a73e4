/* kv_window.c - the window side: a second allocator, and a map from the pages of the first.
 *
 *     page          | 5 | 6 | 9 | 7 |          map[5] = 0   map[9] = 2
 *     window side           | 2 | 4 |          map[6] = 0   map[7] = 4
 *
 * The map is per page, since both pools have one page size. An allocation takes both or neither:
 * the window side is asked for room first, then the allocator decides (it validates everything),
 * then the window side cannot say no.
 *
 * Invariant, verified by rad_kv_check():
 *   map[page] != 0 only for a page that is handed out; the values that are not 0 are all
 *   different, and with the loose ones they are exactly the window pages that are handed out. */
#include "mem/kv_window.h"

#include "base/params.h"

rad_status kv_window_init(rad_kv_allocator *a, const rad_kv_allocator_params *p, rad_error *err)
{
    kv_window *w = a->window = rad_alloc(&a->env, sizeof *w);
    if (!w) return rad_fail(err, RAD_E_NOMEM, "kv_allocator: no memory for a window side");
    rad_kv_allocator_params side = {.struct_size = sizeof side,
                                    .num_pages = p->swa_num_pages,
                                    .page_size = a->page_size,
                                    .need_sort = p->need_sort};
    rad_status status = rad_kv_allocator_create(&a->env, &side, &w->side, err);
    if (status) return status;
    w->map = rad_alloc(&a->env, ((size_t)a->num_pages + 1) * sizeof *w->map);
    w->scratch = rad_alloc(&a->env, (size_t)p->swa_num_pages * sizeof *w->scratch);
    if (!w->map || !w->scratch)
        return rad_fail(err, RAD_E_NOMEM,
                        "kv_allocator: no memory for the map of %u pages to their window side",
                        a->num_pages);
    return RAD_OK;
}

void kv_window_fini(rad_kv_allocator *a)
{
    kv_window *w = a->window;
    if (!w) return;
    size_t side_pages = w->side ? w->side->num_pages : 0;
    rad_free(&a->env, w->map, ((size_t)a->num_pages + 1) * sizeof *w->map);
    rad_free(&a->env, w->scratch, side_pages * sizeof *w->scratch);
    rad_kv_allocator_destroy(w->side);
    rad_free(&a->env, w, sizeof *w);
    a->window = NULL;
}

/* --- taking --- */

static void bind(rad_kv_allocator *a, rad_page page, rad_page window_page)
{
    RAD_ASSERT_ENV(&a->env, a->window->map[page] == 0 && window_page > 0);
    a->window->map[page] = window_page;
}

void kv_window_bind(rad_kv_allocator *a, const rad_page *pages, uint32_t count)
{
    rad_status status = rad_kv_alloc(a->window->side, a->window->scratch, count);
    RAD_ASSERT_ENV(&a->env, status == RAD_OK);
    for (uint32_t i = 0; i < count; i++)
        bind(a, pages[i], a->window->scratch[i]);
}

bool kv_window_is_lost(const rad_kv_allocator *a, uint32_t len, rad_slot last_loc)
{
    rad_page page = last_loc / (rad_slot)a->page_size;
    return len % a->page_size && kv_is_taken(a, page) && !a->window->map[page];
}

/* --- giving back --- */

static void give_back(rad_kv_allocator *a, uint32_t count)
{
    rad_status status = rad_kv_free(a->window->side, a->window->scratch, count, NULL);
    RAD_ASSERT_ENV(&a->env, status == RAD_OK);
}

/* Moves the page's window side to scratch; returns how many stand there then. */
static uint32_t unbind(kv_window *w, rad_page page, uint32_t found)
{
    if (!w->map[page]) return found;
    w->scratch[found] = w->map[page];
    w->map[page] = 0;
    return found + 1;
}

void kv_window_drop(rad_kv_allocator *a, const int32_t *entries, uint32_t count, uint32_t stride,
                    uint32_t unit)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        found = unbind(a->window, entries[(size_t)i * stride] / (int32_t)unit, found);
    give_back(a, found);
}

void kv_window_drop_runs(rad_kv_allocator *a, const kv_run *runs, uint32_t num_runs)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < num_runs; i++)
        for (uint32_t k = 0; k < runs[i].count; k++)
            found = unbind(a->window, runs[i].first + (rad_page)k, found);
    give_back(a, found);
}

static rad_status free_window(rad_kv_allocator *a, const int32_t *entries, uint32_t count,
                              uint32_t stride, uint32_t unit, rad_error *err)
{
    if (!a->window)
        return rad_fail(err, RAD_E_UNSUPPORTED, "kv_free_window: the allocator has no window side");
    for (uint32_t i = 0; i < count; i++) {
        int32_t entry = entries[(size_t)i * stride];
        if (entry < 0 || !kv_is_taken(a, entry / (int32_t)unit))
            return rad_fail(err, RAD_E_STATE, "kv_free_window: page %d is not handed out",
                            entry / (int32_t)unit);
    }
    kv_window_drop(a, entries, count, stride, unit);
    return RAD_OK;
}

rad_status rad_kv_free_window(rad_kv_allocator *a, const rad_page *pages, uint32_t count,
                              rad_error *err)
{
    return free_window(a, pages, count, 1, 1, err);
}

rad_status kv_free_window_slots(rad_kv_allocator *a, const rad_slot *slots, uint32_t count,
                                rad_error *err)
{
    uint32_t ps = a->page_size;
    return free_window(a, slots, count / ps + (count % ps != 0), ps, ps, err);
}

void kv_window_move(rad_kv_allocator *a, rad_page from, rad_page to)
{
    kv_window *w = a->window;
    RAD_ASSERT_ENV(&a->env, kv_is_taken(a, from) && kv_is_taken(a, to));
    RAD_ASSERT_ENV(&a->env, w->map[from] != 0 && w->map[to] == 0);
    w->map[to] = w->map[from];
    w->map[from] = 0;
}

rad_status rad_kv_move_window(rad_kv_allocator *a, rad_page from, rad_page to, rad_error *err)
{
    if (!a->window)
        return rad_fail(err, RAD_E_UNSUPPORTED, "kv_move_window: the allocator has no window side");
    if (!rad_kv_has_window(a, from))
        return rad_fail(err, RAD_E_STATE, "kv_move_window: page %d has no window side", from);
    if (!rad_kv_is_taken(a, to) || rad_kv_has_window(a, to))
        return rad_fail(err, RAD_E_STATE,
                        "kv_move_window: page %d is not handed out, or has a "
                        "window side",
                        to);
    kv_window_move(a, from, to);
    return RAD_OK;
}

rad_status kv_window_take_loose(rad_kv_allocator *a, rad_page *window_pages, uint32_t count)
{
    rad_status status = rad_kv_alloc(a->window->side, window_pages, count);
    if (!status) a->window->loose += count;
    return status;
}

void kv_window_free_loose(rad_kv_allocator *a, const rad_page *window_pages, uint32_t count)
{
    rad_status status = rad_kv_free(a->window->side, window_pages, count, NULL);
    RAD_ASSERT_ENV(&a->env, status == RAD_OK && count <= a->window->loose);
    a->window->loose -= count;
}

void kv_window_bind_loose(rad_kv_allocator *a, rad_page page, rad_page window_page)
{
    RAD_ASSERT_ENV(&a->env, kv_is_taken(a, page) && a->window->loose);
    bind(a, page, window_page);
    a->window->loose--;
}

void kv_window_clear(rad_kv_allocator *a)
{
    a->window->loose = 0;
    rad_kv_clear(a->window->side);
    memset(a->window->map, 0, ((size_t)a->num_pages + 1) * sizeof *a->window->map);
}

/* --- looking --- */

uint32_t rad_kv_window_num_pages(const rad_kv_allocator *a)
{
    return a->window ? a->window->side->num_pages : 0;
}

uint32_t rad_kv_window_available_pages(const rad_kv_allocator *a)
{
    return a->window ? rad_kv_available_pages(a->window->side) : 0;
}

const rad_page *rad_kv_window_page_map(const rad_kv_allocator *a)
{
    return a->window ? a->window->map : NULL;
}

int rad_kv_has_window(const rad_kv_allocator *a, rad_page page)
{
    return a->window && kv_is_page(a, page) && a->window->map[page] != 0;
}

static rad_status check_map(const rad_kv_allocator *a, uint64_t *seen, rad_error *err)
{
    const kv_window *w = a->window;
    uint32_t loose = 0;
    for (uint32_t page = 0; page <= a->num_pages; page++) {
        rad_page window_page = w->map[page];
        if (!window_page) continue;
        if (!kv_is_taken(a, (rad_page)page))
            return rad_fail(err, RAD_E_CORRUPT, "kv_check: page %u is free and has window page %d",
                            page, window_page);
        if (!kv_is_taken(w->side, window_page) || bits_get(seen, (size_t)window_page))
            return rad_fail(err, RAD_E_CORRUPT,
                            "kv_check: window page %d of page %u is free or stands twice",
                            window_page, page);
        bits_set(seen, (size_t)window_page);
    }
    for (uint32_t page = 1; page <= w->side->num_pages; page++) {
        if (!kv_is_taken(w->side, (rad_page)page) || bits_get(seen, page)) continue;
        if (++loose > w->loose)
            return rad_fail(err, RAD_E_CORRUPT, "kv_check: window page %u belongs to no page",
                            page);
    }
    if (loose < w->loose)
        return rad_fail(err, RAD_E_CORRUPT, "kv_check: %u window pages are loose, not %u", loose,
                        w->loose);
    return RAD_OK;
}

rad_status kv_window_check(const rad_kv_allocator *a, rad_error *err)
{
    rad_status status = rad_kv_check(a->window->side, err);
    if (status) return status;
    size_t bytes = bits_words((size_t)a->window->side->num_pages + 1) * sizeof(uint64_t);
    uint64_t *seen = rad_alloc(&a->env, bytes);
    if (!seen) return rad_fail(err, RAD_E_NOMEM, "kv_check: no scratch memory");
    status = check_map(a, seen, err);
    rad_free(&a->env, seen, bytes);
    return status;
}
