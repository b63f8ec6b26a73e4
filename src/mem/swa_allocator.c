/* swa_allocator.c - two page allocators and a map from one to the other.
 *
 *     full   | 5 | 6 | 9 | 7 |          map[5] = 0   map[9] = 2
 *     SWA            | 2 | 4 |          map[6] = 0   map[7] = 4
 *
 * The map is per page, since both pools have one page size. "Both or neither" is kept by
 * looking before taking: the SWA side is asked for its room first, then the full allocator
 * decides (it validates everything), then the SWA side cannot say no.
 *
 * Invariant, verified by rad_swa_check():
 *   map[page] != 0 only for a taken full page; the values that are not 0 are all
 *   different, and they are exactly the taken SWA pages. */
#include <radish/swa_allocator.h>

#include "base/bits.h"
#include "base/params.h"

struct rad_swa_allocator {
    rad_env env;
    uint32_t num_pages;
    uint32_t swa_num_pages;
    uint32_t page_size;
    uint32_t reserved;
    rad_kv_allocator *full;
    rad_kv_allocator *swa;
    rad_page *map;     /* [num_pages + 1] */
    rad_page *scratch; /* [swa_num_pages]: SWA pages on their way in or out */
};

rad_status rad_swa_allocator_create(const rad_env *env, const rad_swa_allocator_params *params,
                                    rad_swa_allocator **out, rad_error *err)
{
    rad_swa_allocator_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "swa_allocator: no place for the result");
    *out = NULL;
    rad_status status = rad_params_read(&p, sizeof p, params, "swa_allocator", err);
    if (status) return status;

    rad_kv_allocator_params side = {.struct_size = sizeof side,
                                    .num_pages = p.num_pages,
                                    .page_size = p.page_size,
                                    .need_sort = p.need_sort};
    rad_env full_env = rad_env_or_default(env);
    rad_swa_allocator *a = rad_alloc(&full_env, sizeof *a);
    if (!a) return rad_fail(err, RAD_E_NOMEM, "swa_allocator: no memory");
    a->env = full_env;
    a->num_pages = p.num_pages;
    a->swa_num_pages = p.swa_num_pages;
    a->page_size = p.page_size ? p.page_size : 1;
    status = rad_kv_allocator_create(&full_env, &side, &a->full, err);
    if (status) goto fail;
    side.num_pages = p.swa_num_pages;
    status = rad_kv_allocator_create(&full_env, &side, &a->swa, err);
    if (status) goto fail;
    a->map = rad_alloc(&full_env, ((size_t)p.num_pages + 1) * sizeof *a->map);
    a->scratch = rad_alloc(&full_env, (size_t)p.swa_num_pages * sizeof *a->scratch);
    if (!a->map || !a->scratch) {
        status = rad_fail(err, RAD_E_NOMEM, "swa_allocator: no memory for the map of %u pages",
                          p.num_pages);
        goto fail;
    }
    *out = a;
    return RAD_OK;
fail:
    rad_swa_allocator_destroy(a);
    return status;
}

void rad_swa_allocator_destroy(rad_swa_allocator *a)
{
    if (!a) return;
    rad_env env = a->env;
    rad_kv_allocator_destroy(a->full);
    rad_kv_allocator_destroy(a->swa);
    rad_free(&env, a->map, ((size_t)a->num_pages + 1) * sizeof *a->map);
    rad_free(&env, a->scratch, (size_t)a->swa_num_pages * sizeof *a->scratch);
    rad_free(&env, a, sizeof *a);
}

static bool swa_has_room(const rad_swa_allocator *a, uint64_t pages)
{
    return pages <= rad_kv_available_pages(a->swa);
}

/* Takes `count` SWA pages into scratch; the caller has asked for room. */
static void take_swa(rad_swa_allocator *a, uint32_t count)
{
    rad_status status = rad_kv_alloc(a->swa, a->scratch, count);
    RAD_ASSERT_ENV(&a->env, status == RAD_OK);
}

static void bind(rad_swa_allocator *a, rad_page page, rad_page swa_page)
{
    RAD_ASSERT_ENV(&a->env, a->map[page] == 0 && swa_page > 0);
    a->map[page] = swa_page;
}

rad_status rad_swa_alloc_tail(rad_swa_allocator *a, rad_page *pages, uint32_t count,
                              uint32_t num_swa)
{
    if (num_swa > count) return RAD_E_INVAL;
    if (!swa_has_room(a, num_swa)) return RAD_FULL;
    rad_status status = rad_kv_alloc(a->full, pages, count);
    if (status) return status;
    take_swa(a, num_swa);
    for (uint32_t i = 0; i < num_swa; i++)
        bind(a, pages[count - num_swa + i], a->scratch[i]);
    return RAD_OK;
}

rad_status rad_swa_alloc(rad_swa_allocator *a, rad_page *pages, uint32_t count)
{
    return rad_swa_alloc_tail(a, pages, count, count);
}

static uint64_t round_up(const rad_swa_allocator *a, uint32_t tokens)
{
    return ((uint64_t)tokens + a->page_size - 1) / a->page_size * a->page_size;
}

/* Whether `last_loc` is in a page of ours that may not be filled any further. What is not
 * a slot, or not handed out, is the full allocator's to refuse. */
static bool lost_its_window(const rad_swa_allocator *a, rad_slot last_loc)
{
    rad_page page = last_loc / (rad_slot)a->page_size;
    return rad_kv_is_taken(a->full, page) && !a->map[page];
}

rad_status rad_swa_alloc_extend(rad_swa_allocator *a, uint32_t num_reqs,
                                const uint32_t *prefix_lens, const uint32_t *seq_lens,
                                const rad_slot *last_loc, rad_slot *slots)
{
    uint64_t need = 0;
    for (uint32_t i = 0; i < num_reqs; i++) {
        if (seq_lens[i] < prefix_lens[i]) return RAD_E_INVAL;
        if (seq_lens[i] > prefix_lens[i] && prefix_lens[i] % a->page_size &&
            lost_its_window(a, last_loc[i]))
            return RAD_E_STATE;
        need += (round_up(a, seq_lens[i]) - round_up(a, prefix_lens[i])) / a->page_size;
    }
    if (!swa_has_room(a, need)) return RAD_FULL;
    rad_status status =
        rad_kv_alloc_extend(a->full, num_reqs, prefix_lens, seq_lens, last_loc, slots, NULL);
    if (status) return status;

    take_swa(a, (uint32_t)need);
    const rad_page *next = a->scratch;
    for (uint32_t i = 0; i < num_reqs; i++) {
        for (uint64_t at = round_up(a, prefix_lens[i]); at < seq_lens[i]; at += a->page_size)
            bind(a, slots[at - prefix_lens[i]] / (rad_slot)a->page_size, *next++);
        slots += seq_lens[i] - prefix_lens[i];
    }
    return RAD_OK;
}

rad_status rad_swa_alloc_decode(rad_swa_allocator *a, uint32_t num_reqs, const uint32_t *seq_lens,
                                const rad_slot *last_loc, rad_slot *slots)
{
    uint32_t need = 0;
    for (uint32_t i = 0; i < num_reqs; i++) {
        if (!seq_lens[i]) return RAD_E_INVAL;
        if ((seq_lens[i] - 1) % a->page_size == 0)
            need++;
        else if (lost_its_window(a, last_loc[i]))
            return RAD_E_STATE;
    }
    if (!swa_has_room(a, need)) return RAD_FULL;
    rad_status status = rad_kv_alloc_decode(a->full, num_reqs, seq_lens, last_loc, slots, NULL);
    if (status) return status;

    take_swa(a, need);
    const rad_page *next = a->scratch;
    for (uint32_t i = 0; i < num_reqs; i++)
        if ((seq_lens[i] - 1) % a->page_size == 0)
            bind(a, slots[i] / (rad_slot)a->page_size, *next++);
    return RAD_OK;
}

/* Gives back the SWA sides of the pages under entries[0], entries[stride], ...; pages
 * without one are passed over. */
static void drop_swa(rad_swa_allocator *a, const int32_t *entries, uint32_t count, uint32_t stride,
                     uint32_t unit)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        rad_page page = entries[(size_t)i * stride] / (int32_t)unit;
        if (!a->map[page]) continue;
        a->scratch[found++] = a->map[page];
        a->map[page] = 0;
    }
    rad_status status = rad_kv_free(a->swa, a->scratch, found, NULL);
    RAD_ASSERT_ENV(&a->env, status == RAD_OK);
}

rad_status rad_swa_free(rad_swa_allocator *a, const rad_page *pages, uint32_t count, rad_error *err)
{
    rad_status status = rad_kv_free(a->full, pages, count, err);
    if (status == RAD_OK) drop_swa(a, pages, count, 1, 1);
    return status;
}

rad_status rad_swa_free_slots(rad_swa_allocator *a, const rad_slot *slots, uint32_t count,
                              rad_error *err)
{
    uint32_t ps = a->page_size;
    rad_status status = rad_kv_free_slots(a->full, slots, count, err);
    if (status == RAD_OK) drop_swa(a, slots, count / ps + (count % ps != 0), ps, ps);
    return status;
}

static rad_status free_swa(rad_swa_allocator *a, const int32_t *entries, uint32_t count,
                           uint32_t unit, rad_error *err)
{
    for (uint32_t i = 0; i < count; i++)
        if (entries[i] < 0 || !rad_kv_is_taken(a->full, entries[i] / (int32_t)unit))
            return rad_fail(err, RAD_E_STATE, "free_swa: page %d is not handed out",
                            entries[i] / (int32_t)unit);
    drop_swa(a, entries, count, 1, unit);
    return RAD_OK;
}

rad_status rad_swa_free_swa(rad_swa_allocator *a, const rad_page *pages, uint32_t count,
                            rad_error *err)
{
    return free_swa(a, pages, count, 1, err);
}

rad_status rad_swa_free_swa_slots(rad_swa_allocator *a, const rad_slot *slots, uint32_t count,
                                  rad_error *err)
{
    return free_swa(a, slots, count, a->page_size, err);
}

rad_status rad_swa_translate(const rad_swa_allocator *a, const rad_slot *slots, uint32_t count,
                             rad_slot *swa_slots)
{
    rad_slot ps = (rad_slot)a->page_size;
    int64_t num_slots = ((int64_t)a->num_pages + 1) * ps;
    for (uint32_t i = 0; i < count; i++)
        if (slots[i] < -1 || slots[i] >= num_slots) return RAD_E_INVAL;
    for (uint32_t i = 0; i < count; i++) {
        rad_slot slot = slots[i];
        if (slot >= 0) {
            rad_page swa_page = a->map[slot / ps];
            slot = swa_page ? swa_page * ps + slot % ps : 0;
        }
        swa_slots[i] = slot;
    }
    return RAD_OK;
}

const rad_page *rad_swa_page_map(const rad_swa_allocator *a)
{
    return a->map;
}

rad_status rad_swa_free_group_begin(rad_swa_allocator *a)
{
    rad_status status = rad_kv_free_group_begin(a->full);
    return status ? status : rad_kv_free_group_begin(a->swa);
}

rad_status rad_swa_free_group_end(rad_swa_allocator *a)
{
    rad_status status = rad_kv_free_group_end(a->full);
    return status ? status : rad_kv_free_group_end(a->swa);
}

uint64_t rad_swa_available_size(const rad_swa_allocator *a)
{
    return RAD_MIN(rad_kv_available_size(a->full), rad_kv_available_size(a->swa));
}

uint64_t rad_swa_full_available_size(const rad_swa_allocator *a)
{
    return rad_kv_available_size(a->full);
}

uint64_t rad_swa_swa_available_size(const rad_swa_allocator *a)
{
    return rad_kv_available_size(a->swa);
}

uint32_t rad_swa_num_pages(const rad_swa_allocator *a)
{
    return a->num_pages;
}

uint32_t rad_swa_swa_num_pages(const rad_swa_allocator *a)
{
    return a->swa_num_pages;
}

uint32_t rad_swa_page_size(const rad_swa_allocator *a)
{
    return a->page_size;
}

int rad_swa_is_taken(const rad_swa_allocator *a, rad_page page)
{
    return rad_kv_is_taken(a->full, page);
}

int rad_swa_has_swa(const rad_swa_allocator *a, rad_page page)
{
    return page >= 1 && (uint32_t)page <= a->num_pages && a->map[page] != 0;
}

void rad_swa_clear(rad_swa_allocator *a)
{
    rad_kv_clear(a->full);
    rad_kv_clear(a->swa);
    memset(a->map, 0, ((size_t)a->num_pages + 1) * sizeof *a->map);
}

static rad_status check_map(const rad_swa_allocator *a, uint64_t *seen, rad_error *err)
{
    for (uint32_t page = 0; page <= a->num_pages; page++) {
        rad_page swa_page = a->map[page];
        if (!swa_page) continue;
        if (!rad_kv_is_taken(a->full, (rad_page)page))
            return rad_fail(err, RAD_E_CORRUPT, "swa_check: page %u is free and has SWA page %d",
                            page, swa_page);
        if (!rad_kv_is_taken(a->swa, swa_page) || bits_get(seen, (size_t)swa_page))
            return rad_fail(err, RAD_E_CORRUPT,
                            "swa_check: SWA page %d of page %u is free or stands twice", swa_page,
                            page);
        bits_set(seen, (size_t)swa_page);
    }
    for (uint32_t page = 1; page <= a->swa_num_pages; page++)
        if (rad_kv_is_taken(a->swa, (rad_page)page) && !bits_get(seen, page))
            return rad_fail(err, RAD_E_CORRUPT, "swa_check: SWA page %u belongs to no page", page);
    return RAD_OK;
}

rad_status rad_swa_check(const rad_swa_allocator *a, rad_error *err)
{
    rad_status status = rad_kv_check(a->full, err);
    if (!status) status = rad_kv_check(a->swa, err);
    if (status) return status;
    size_t bytes = bits_words((size_t)a->swa_num_pages + 1) * sizeof(uint64_t);
    uint64_t *seen = rad_alloc(&a->env, bytes);
    if (!seen) return rad_fail(err, RAD_E_NOMEM, "swa_check: no scratch memory");
    status = check_map(a, seen, err);
    rad_free(&a->env, seen, bytes);
    return status;
}
