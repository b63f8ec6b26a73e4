/* kv_allocator.c - a stack of free pages and a bit per page.
 *
 * Most pages come back soon after they left, so the free list is a plain array used
 * as a stack: the page freed last is handed out next, still warm.
 *
 *     free[]   | 7 | 3 | 9 | 4 |   |   |      num_free = 4
 *                            ^ next alloc
 *
 * A stack alone cannot see a page freed twice, and a page owned by two requests is
 * silent corruption. So `taken` keeps one bit per page, and every alloc and free
 * checks the bit it flips. A list of pages is pushed from its end, so that the next
 * alloc hands it out in the same order: runs of pages stay runs.
 *
 * Invariant, verified by rad_kv_check():
 *   each page 1..num_pages is on the stack or taken, never both. */
#include <radish/kv_allocator.h>

#include "base/bits.h"
#include "base/params.h"

struct rad_kv_allocator {
    rad_env env;
    uint32_t num_pages;
    uint32_t page_size;
    uint32_t num_free;
    rad_page *free;  /* [num_pages] */
    uint64_t *taken; /* a bit for each of 0..num_pages */
};

rad_status rad_kv_allocator_create(const rad_env *env, const rad_kv_allocator_params *params,
                                   rad_kv_allocator **out, rad_error *err)
{
    rad_kv_allocator_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "kv_allocator: no place for the result");
    *out = NULL;
    rad_status status = rad_params_read(&p, sizeof p, params, "kv_allocator", err);
    if (status) return status;
    if (!p.page_size) p.page_size = 1;
    if (!p.num_pages) return rad_fail(err, RAD_E_INVAL, "kv_allocator: num_pages is 0");
    if (((uint64_t)p.num_pages + 1) * p.page_size > INT32_MAX)
        return rad_fail(err, RAD_E_LIMIT,
                        "kv_allocator: %u pages of %u tokens do not fit 31-bit slots", p.num_pages,
                        p.page_size);

    rad_env full = rad_env_or_default(env);
    rad_kv_allocator *a = rad_alloc(&full, sizeof *a);
    if (!a) goto nomem;
    a->env = full;
    a->num_pages = p.num_pages;
    a->page_size = p.page_size;
    a->free = rad_alloc(&full, rad_mul(p.num_pages, sizeof *a->free));
    a->taken = rad_alloc(&full, bits_words((size_t)p.num_pages + 1) * sizeof *a->taken);
    if (!a->free || !a->taken) goto nomem;
    rad_kv_clear(a);
    *out = a;
    return RAD_OK;
nomem:
    rad_kv_allocator_destroy(a);
    return rad_fail(err, RAD_E_NOMEM, "kv_allocator: no memory for the lists of %u pages",
                    p.num_pages);
}

void rad_kv_allocator_destroy(rad_kv_allocator *a)
{
    if (!a) return;
    rad_env env = a->env;
    rad_free(&env, a->free, (size_t)a->num_pages * sizeof *a->free);
    rad_free(&env, a->taken, bits_words((size_t)a->num_pages + 1) * sizeof *a->taken);
    rad_free(&env, a, sizeof *a);
}

static bool is_page(const rad_kv_allocator *a, rad_page page)
{
    return page >= 1 && (uint32_t)page <= a->num_pages;
}

static bool is_taken(const rad_kv_allocator *a, rad_page page)
{
    return is_page(a, page) && bits_get(a->taken, (size_t)page);
}

/* The caller has made sure that there is one. */
static rad_page pop(rad_kv_allocator *a)
{
    rad_page page = a->free[--a->num_free];
    RAD_ASSERT_ENV(&a->env, !bits_get(a->taken, (size_t)page));
    bits_flip(a->taken, (size_t)page);
    return page;
}

rad_status rad_kv_alloc(rad_kv_allocator *a, rad_page *pages, uint32_t count)
{
    if (count > a->num_free) return RAD_FULL;
    for (uint32_t i = 0; i < count; i++)
        pages[i] = pop(a);
    return RAD_OK;
}

/* Frees the pages that stand at entries[0], entries[stride], ..., each divided by
 * `unit`: pages themselves, or the first slots of pages. All or nothing: the bits are
 * flipped first, which finds a page that stands here twice, and flipped back when one
 * does not belong. */
static rad_status free_pages(rad_kv_allocator *a, const int32_t *entries, uint32_t count,
                             uint32_t stride, uint32_t unit, rad_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        rad_page page = entries[(size_t)i * stride] / (int32_t)unit;
        if (is_taken(a, page)) {
            bits_flip(a->taken, (size_t)page);
            continue;
        }
        while (i-- > 0)
            bits_flip(a->taken, (size_t)(entries[(size_t)i * stride] / (int32_t)unit));
        if (!is_page(a, page))
            return rad_fail(err, RAD_E_STATE, "kv_free: page %d is not one of 1..%u", page,
                            a->num_pages);
        return rad_fail(err, RAD_E_STATE, "kv_free: page %d is not handed out (freed twice?)",
                        page);
    }
    RAD_ASSERT_ENV(&a->env, count <= a->num_pages - a->num_free);
    for (uint32_t i = count; i-- > 0;)
        a->free[a->num_free++] = entries[(size_t)i * stride] / (int32_t)unit;
    return RAD_OK;
}

rad_status rad_kv_free(rad_kv_allocator *a, const rad_page *pages, uint32_t count, rad_error *err)
{
    return free_pages(a, pages, count, 1, 1, err);
}

rad_status rad_kv_free_slots(rad_kv_allocator *a, const rad_slot *slots, uint32_t count,
                             rad_error *err)
{
    uint32_t ps = a->page_size;
    for (uint32_t i = 0; ps > 1 && i < count; i++) {
        rad_slot first = slots[i - i % ps];
        if (first < 0 || (uint32_t)first % ps || (int64_t)slots[i] != (int64_t)first + i % ps)
            return rad_fail(err, RAD_E_STATE,
                            "kv_free_slots: slot %d at position %u is not in its page's place",
                            slots[i], i);
    }
    return free_pages(a, slots, count / ps + (count % ps != 0), ps, ps, err);
}

static uint32_t pages_for(const rad_kv_allocator *a, uint32_t tokens)
{
    return tokens / a->page_size + (tokens % a->page_size != 0);
}

/* Whether `last_loc` can be the slot of position prefix - 1. */
static bool last_loc_fits(const rad_kv_allocator *a, uint32_t prefix, rad_slot last_loc)
{
    if (prefix == 0) return last_loc == -1;
    if (last_loc < 0 || (uint32_t)last_loc % a->page_size != (prefix - 1) % a->page_size)
        return false;
    return is_taken(a, last_loc / (int32_t)a->page_size);
}

rad_status rad_kv_alloc_extend(rad_kv_allocator *a, uint32_t num_reqs, const uint32_t *prefix_lens,
                               const uint32_t *seq_lens, const rad_slot *last_loc, rad_slot *slots)
{
    uint32_t ps = a->page_size;
    uint64_t need = 0;
    for (uint32_t i = 0; i < num_reqs; i++) {
        if (seq_lens[i] < prefix_lens[i] || !last_loc_fits(a, prefix_lens[i], last_loc[i]))
            return RAD_E_INVAL;
        need += pages_for(a, seq_lens[i]) - pages_for(a, prefix_lens[i]);
    }
    if (need > a->num_free) return RAD_FULL;

    for (uint32_t i = 0; i < num_reqs; i++) {
        rad_slot slot = last_loc[i];
        for (uint32_t at = prefix_lens[i]; at < seq_lens[i];) {
            slot = at % ps ? slot + 1 : pop(a) * (rad_slot)ps;
            uint32_t run = RAD_MIN(ps - at % ps, seq_lens[i] - at);
            for (uint32_t k = 0; k < run; k++)
                *slots++ = slot + (rad_slot)k;
            slot += (rad_slot)run - 1;
            at += run;
        }
    }
    return RAD_OK;
}

rad_status rad_kv_alloc_decode(rad_kv_allocator *a, uint32_t num_reqs, const uint32_t *seq_lens,
                               const rad_slot *last_loc, rad_slot *slots)
{
    uint32_t need = 0;
    for (uint32_t i = 0; i < num_reqs; i++) {
        if (!seq_lens[i] || !last_loc_fits(a, seq_lens[i] - 1, last_loc[i])) return RAD_E_INVAL;
        need += (seq_lens[i] - 1) % a->page_size == 0;
    }
    if (need > a->num_free) return RAD_FULL;
    for (uint32_t i = 0; i < num_reqs; i++)
        slots[i] = (seq_lens[i] - 1) % a->page_size ? last_loc[i] + 1
                                                    : pop(a) * (rad_slot)a->page_size;
    return RAD_OK;
}

uint32_t rad_kv_page_size(const rad_kv_allocator *a)
{
    return a->page_size;
}

uint32_t rad_kv_num_pages(const rad_kv_allocator *a)
{
    return a->num_pages;
}

uint32_t rad_kv_available_pages(const rad_kv_allocator *a)
{
    return a->num_free;
}

uint64_t rad_kv_available_size(const rad_kv_allocator *a)
{
    return (uint64_t)a->num_free * a->page_size;
}

int rad_kv_is_taken(const rad_kv_allocator *a, rad_page page)
{
    return is_taken(a, page);
}

void rad_kv_clear(rad_kv_allocator *a)
{
    memset(a->taken, 0, bits_words((size_t)a->num_pages + 1) * sizeof *a->taken);
    for (uint32_t i = 0; i < a->num_pages; i++)
        a->free[i] = (rad_page)(a->num_pages - i); /* page 1 leaves first */
    a->num_free = a->num_pages;
}

rad_status rad_kv_check(const rad_kv_allocator *a, rad_error *err)
{
    size_t words = bits_words((size_t)a->num_pages + 1);
    uint64_t *seen = rad_alloc(&a->env, words * sizeof *seen);
    rad_status status = RAD_OK;
    if (!seen) return rad_fail(err, RAD_E_NOMEM, "kv_check: no scratch memory");
    if (a->num_free > a->num_pages) {
        status = rad_fail(err, RAD_E_CORRUPT, "kv_check: %u of %u pages are free", a->num_free,
                          a->num_pages);
        goto done;
    }
    for (uint32_t i = 0; i < a->num_free; i++) {
        rad_page page = a->free[i];
        if (!is_page(a, page))
            status = rad_fail(err, RAD_E_CORRUPT, "kv_check: page %d on the free stack is not one",
                              page);
        else if (bits_get(seen, (size_t)page))
            status =
                rad_fail(err, RAD_E_CORRUPT, "kv_check: page %d is on the free stack twice", page);
        else if (bits_get(a->taken, (size_t)page))
            status = rad_fail(err, RAD_E_CORRUPT, "kv_check: page %d is free and taken", page);
        if (status) goto done;
        bits_set(seen, (size_t)page);
    }
    for (uint32_t page = 1; page <= a->num_pages; page++) {
        if (bits_get(seen, page) || bits_get(a->taken, page)) continue;
        status = rad_fail(err, RAD_E_CORRUPT, "kv_check: page %u is neither free nor taken", page);
        goto done;
    }
done:
    rad_free(&a->env, seen, words * sizeof *seen);
    return status;
}
