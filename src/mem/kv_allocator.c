/* kv_allocator.c - a stack of free pages and a bit per page.
 *
 * Most pages come back soon after they left, so the free list is a plain array used
 * as a stack: the page freed last is handed out next, still warm.
 *
 *     free[]   | 7 | 3 | 9 | 4 |     |     |     |     | 8 | 5 |
 *                num_free    ^                       num_grouped
 *                            next alloc
 *
 * The far end of the array records what an open free group was given.
 *
 * A stack alone cannot see a page freed twice, and a page owned by two requests is
 * silent corruption. So `taken` keeps one bit per page, and every alloc and free
 * checks the bit it flips. Beside each word of it stands one to lend, for a cache's own
 * bit per page: who looks at one mostly looks at the other. A list of pages is pushed from its end,
 * so that the next alloc hands it out in the same order: runs of pages stay runs.
 *
 * With need_sort the bits are the sorted list: a freed page is only counted as staged, and
 * when an allocation runs short the stack is written anew from a walk over the bits. No
 * list is ever sorted.
 *
 * A window side (kv_window.c) is asked for room before a page is popped, and follows each change.
 *
 * Invariant, verified by rad_kv_check():
 *   each page 1..num_pages is taken, or on the stack, recorded by a group, or staged, and
 *   only one of these; num_staged pages are none of the first three. */
#include "base/params.h"
#include "mem/kv_allocator_impl.h"
#include "mem/kv_bits.h"
#include "mem/kv_runs.h"
#include "mem/kv_window.h"

static size_t bits_bytes(const rad_kv_allocator *a)
{
    return bits_words((size_t)a->num_pages + 1) * KV_LANES * sizeof *a->bits;
}

rad_status rad_kv_allocator_create(const rad_env *env, const rad_kv_allocator_params *params,
                                   rad_kv_allocator **out, rad_error *err)
{
    rad_kv_allocator_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "kv_allocator: no place for the result");
    *out = NULL;
    rad_status status = rad_params_read(&p, sizeof p, params, "kv_allocator", err);
    if (status) return status;
    if (!p.page_size) p.page_size = 1;
    if (p.need_sort > 1 || p.reserved || p.swa_reserved)
        return rad_fail(err, RAD_E_INVAL, "kv_allocator: need_sort is %u, reserved %u and %u",
                        p.need_sort, p.reserved, p.swa_reserved);
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
    a->need_sort = p.need_sort;
    a->free = rad_alloc(&full, rad_mul(p.num_pages, sizeof *a->free));
    a->bits = rad_alloc(&full, bits_bytes(a));
    if (!a->free || !a->bits) goto nomem;
    if (p.swa_num_pages && (status = kv_window_init(a, &p, err))) {
        rad_kv_allocator_destroy(a);
        return status;
    }
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
    kv_window_fini(a);
    rad_free(&env, a->free, (size_t)a->num_pages * sizeof *a->free);
    rad_free(&env, a->bits, bits_bytes(a));
    rad_free(&env, a, sizeof *a);
}

static void flip_grouped(rad_kv_allocator *a)
{
    for (uint32_t i = 1; i <= a->num_grouped; i++)
        lane_flip(kv_taken(a), (size_t)a->free[a->num_pages - i]);
}

/* Writes the stack anew, lowest page on top, from the bits: what is not taken is free,
 * staged pages included; a group's pages count as taken meanwhile. O(pages / 64 + pages that
 * are free). */
static void sort_free(rad_kv_allocator *a)
{
    uint32_t at = a->num_free + a->num_staged;
    a->num_free = at;
    a->num_staged = 0;
    flip_grouped(a); /* they are free by their bits, but the group's until it ends */
    size_t words = bits_words((size_t)a->num_pages + 1);
    /* Pages in ascending order fill the stack from its top down. `at` reaches 0 with the last free
     * page, so the bits behind it are not read. */
    for (size_t w = 0; at; w++) {
        while (w < words && a->bits[w * KV_LANES] == ~(uint64_t)0) /* all 64 are taken */
            w++;
        RAD_ASSERT_ENV(&a->env, w < words);
        for (uint64_t open = ~a->bits[w * KV_LANES]; open; open &= open - 1) {
            RAD_ASSERT_ENV(&a->env, at); /* as many bits are 0 as the counts say */
            a->free[--at] = (rad_page)(w * 64 + (size_t)__builtin_ctzll(open));
        }
    }
    flip_grouped(a);
}

/* Whether `count` pages can be popped; makes them poppable. */
static bool make_ready(rad_kv_allocator *a, uint64_t count)
{
    if (count > (uint64_t)a->num_free + a->num_staged) return false;
    if (count > a->num_free) sort_free(a);
    return true;
}

/* Whether both sides have `need` pages; makes them poppable. */
static bool both_ready(rad_kv_allocator *a, uint64_t need)
{
    return (!a->window || kv_window_has_room(a, need)) && make_ready(a, need);
}

/* to[i] = from[count - 1 - i]. */
static void copy_backwards(rad_page *restrict to, const rad_page *restrict from, uint32_t count)
{
    uint32_t i = 0;
#if defined(__SSE2__)
    for (; i + 8 <= count; i += 8) {
        __m128i a = _mm_loadu_si128((const __m128i *)(from + count - i - 4));
        __m128i b = _mm_loadu_si128((const __m128i *)(from + count - i - 8));
        _mm_storeu_si128((__m128i *)(to + i), _mm_shuffle_epi32(a, 0x1b));
        _mm_storeu_si128((__m128i *)(to + i + 4), _mm_shuffle_epi32(b, 0x1b));
    }
#endif
    for (; i < count; i++)
        to[i] = from[count - 1 - i];
}

/* The caller has made sure that they are there. */
static void pop(rad_kv_allocator *a, rad_page *pages, uint32_t count)
{
    a->num_free -= count;
    copy_backwards(pages, a->free + a->num_free, count);
    for (uint32_t run; count; pages += run, count -= run) {
        run = bits_run(pages, count);
        RAD_ASSERT_ENV(&a->env, lane_range_is(kv_taken(a), (size_t)*pages, run, false));
        lane_flip_range(kv_taken(a), (size_t)*pages, run);
        a->highest = RAD_MAX(a->highest, *pages + (rad_page)run - 1);
    }
}

/* The same of both sides. */
static void pop_both(rad_kv_allocator *a, rad_page *pages, uint32_t count)
{
    pop(a, pages, count);
    if (a->window) kv_window_bind(a, pages, count);
}

/* The first slot of a page. */
static rad_slot pop_slot(rad_kv_allocator *a)
{
    rad_page page;
    pop_both(a, &page, 1);
    return page * (rad_slot)a->page_size;
}

rad_status rad_kv_alloc(rad_kv_allocator *a, rad_page *pages, uint32_t count)
{
    if (!both_ready(a, count)) return RAD_FULL;
    pop_both(a, pages, count);
    return RAD_OK;
}

rad_status rad_kv_alloc_tail(rad_kv_allocator *a, rad_page *pages, uint32_t count,
                             uint32_t num_window)
{
    if (num_window > count) return RAD_E_INVAL;
    if (num_window && !a->window) return RAD_E_UNSUPPORTED;
    if (num_window && !kv_window_has_room(a, num_window)) return RAD_FULL;
    if (!make_ready(a, count)) return RAD_FULL;
    pop(a, pages, count);
    if (num_window) kv_window_bind(a, pages + (count - num_window), num_window);
    return RAD_OK;
}

/* Marks pages as free, run by run; returns how many, fewer than `count` when the one
 * there is not taken. */
static uint32_t untake_runs(rad_kv_allocator *a, const rad_page *pages, uint32_t count)
{
    for (uint32_t done = 0, run; done < count; done += run) {
        rad_page page = pages[done];
        run = bits_run(pages + done, count - done);
        if (page < 1 || (uint32_t)page > a->num_pages || run > a->num_pages - (uint32_t)page + 1 ||
            !lane_range_is(kv_taken(a), (size_t)page, run, true))
            return done;
        lane_flip_range(kv_taken(a), (size_t)page, run);
    }
    return count;
}

/* Frees the pages that stand at entries[0], entries[stride], ..., each divided by
 * `unit`: pages themselves, or the first slots of pages. All or nothing: the bits are
 * flipped first, which finds a page that stands here twice, and flipped back when one
 * does not belong. */
static rad_status free_pages(rad_kv_allocator *a, const int32_t *entries, uint32_t count,
                             uint32_t stride, uint32_t unit, rad_error *err)
{
    uint32_t quick = stride == 1 && unit == 1 ? untake_runs(a, entries, count) : 0;
    for (uint32_t i = quick; i < count; i++) {
        rad_page page = entries[(size_t)i * stride] / (int32_t)unit;
        if (kv_is_taken(a, page)) {
            lane_flip(kv_taken(a), (size_t)page);
            continue;
        }
        while (i-- > 0)
            lane_flip(kv_taken(a), (size_t)(entries[(size_t)i * stride] / (int32_t)unit));
        if (!kv_is_page(a, page))
            return rad_fail(err, RAD_E_STATE, "kv_free: page %d is not one of 1..%u", page,
                            a->num_pages);
        return rad_fail(err, RAD_E_STATE, "kv_free: page %d is not handed out (freed twice?)",
                        page);
    }
    if (!count) return RAD_OK;
    if (a->window) kv_window_drop(a, entries, count, stride, unit);
    if (a->in_group)
        for (uint32_t i = 0; i < count; i++)
            a->free[a->num_pages - ++a->num_grouped] = entries[(size_t)i * stride] / (int32_t)unit;
    else if (a->need_sort)
        a->num_staged += count;
    else if (stride == 1 && unit == 1)
        copy_backwards(a->free + a->num_free, entries, count), a->num_free += count;
    else
        for (uint32_t i = count; i-- > 0;)
            a->free[a->num_free++] = entries[(size_t)i * stride] / (int32_t)unit;
    return RAD_OK;
}

rad_status rad_kv_free(rad_kv_allocator *a, const rad_page *pages, uint32_t count, rad_error *err)
{
    return free_pages(a, pages, count, 1, 1, err);
}

/* pages[i] = first - i. */
static void fill_down(rad_page *pages, rad_page first, uint32_t count)
{
    uint32_t i = 0;
#if defined(__SSE2__)
    __m128i a = _mm_sub_epi32(_mm_set1_epi32(first), _mm_setr_epi32(0, 1, 2, 3));
    for (; i + 8 <= count; i += 8) {
        _mm_storeu_si128((__m128i *)(pages + i), a);
        _mm_storeu_si128((__m128i *)(pages + i + 4), _mm_sub_epi32(a, _mm_set1_epi32(4)));
        a = _mm_sub_epi32(a, _mm_set1_epi32(8));
    }
#endif
    for (; i < count; i++)
        pages[i] = first - (rad_page)i;
}

static rad_status refuse_run(const rad_kv_allocator *a, kv_run run, rad_error *err)
{
    for (uint32_t i = 0; i < run.count; i++) {
        rad_page page = (rad_page)((uint32_t)run.first + i);
        if (!kv_is_page(a, page))
            return rad_fail(err, RAD_E_STATE, "kv_free: page %d is not one of 1..%u", page,
                            a->num_pages);
        if (!kv_is_taken(a, page))
            return rad_fail(err, RAD_E_STATE, "kv_free: page %d is not handed out (freed twice?)",
                            page);
    }
    RAD_ASSERT_ENV(&a->env, false);
    return RAD_E_STATE;
}

rad_status kv_free_runs(rad_kv_allocator *a, const kv_run *runs, uint32_t num_runs, rad_error *err)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < num_runs; i++) {
        kv_run r = runs[i];
        if (kv_is_page(a, r.first) && r.count <= a->num_pages - (uint32_t)r.first + 1 &&
            lane_range_is(kv_taken(a), (size_t)r.first, r.count, true)) {
            lane_flip_range(kv_taken(a), (size_t)r.first, r.count);
            count += r.count;
            continue;
        }
        rad_status status = refuse_run(a, r, err);
        while (i-- > 0)
            lane_flip_range(kv_taken(a), (size_t)runs[i].first, runs[i].count);
        return status;
    }
    if (!count) return RAD_OK;
    if (a->window) kv_window_drop_runs(a, runs, num_runs);
    if (a->need_sort && !a->in_group) {
        a->num_staged += count;
        return RAD_OK;
    }
    for (uint32_t i = 0; a->in_group && i < num_runs; i++) { /* backwards from the end */
        a->num_grouped += runs[i].count;
        fill_down(a->free + a->num_pages - a->num_grouped,
                  runs[i].first + (rad_page)runs[i].count - 1, runs[i].count);
    }
    for (uint32_t i = num_runs; !a->in_group && i-- > 0; a->num_free += runs[i].count)
        fill_down(a->free + a->num_free, runs[i].first + (rad_page)runs[i].count - 1,
                  runs[i].count);
    return RAD_OK;
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
    return kv_is_taken(a, last_loc / (int32_t)a->page_size);
}

/* Request i of an allocation, whose position before the new ones is not at last_loc. */
static rad_status refuse_last_loc(const rad_kv_allocator *a, uint32_t i, uint32_t prefix,
                                  rad_slot last_loc, rad_error *err)
{
    if (!prefix)
        return rad_fail(err, RAD_E_INVAL,
                        "kv_alloc: request %u: last_loc is %d, but nothing is before its first "
                        "token (-1)",
                        i, last_loc);
    if (last_loc < 0 || (uint32_t)last_loc % a->page_size != (prefix - 1) % a->page_size)
        return rad_fail(err, RAD_E_INVAL,
                        "kv_alloc: request %u: last_loc %d is not the place of position %u in a "
                        "page of %u",
                        i, last_loc, prefix - 1, a->page_size);
    return rad_fail(err, RAD_E_INVAL,
                    "kv_alloc: request %u: last_loc %d of position %u is in a page that is not "
                    "handed out",
                    i, last_loc, prefix - 1);
}

static rad_status refuse_full(const rad_kv_allocator *a, uint64_t need, rad_error *err)
{
    if (a->window && !kv_window_has_room(a, need))
        return rad_fail(err, RAD_FULL, "kv_alloc: %llu window pages are wanted, %u are free",
                        (unsigned long long)need, rad_kv_window_available_pages(a));
    return rad_fail(err, RAD_FULL, "kv_alloc: %llu pages are wanted, %u are free",
                    (unsigned long long)need, rad_kv_available_pages(a));
}

static rad_status refuse_lost(uint32_t i, rad_slot last_loc, rad_error *err)
{
    return rad_fail(err, RAD_E_STATE,
                    "kv_alloc: request %u: the page of last_loc %d cannot be filled further: its "
                    "window side was given back",
                    i, last_loc);
}

rad_status rad_kv_alloc_extend(rad_kv_allocator *a, uint32_t num_reqs, const uint32_t *prefix_lens,
                               const uint32_t *seq_lens, const rad_slot *last_loc, rad_slot *slots,
                               rad_error *err)
{
    uint32_t ps = a->page_size;
    uint64_t need = 0;
    for (uint32_t i = 0; i < num_reqs; i++) {
        if (seq_lens[i] < prefix_lens[i])
            return rad_fail(err, RAD_E_INVAL,
                            "kv_alloc: request %u: seq_len %u is less than its prefix_len %u", i,
                            seq_lens[i], prefix_lens[i]);
        if (!last_loc_fits(a, prefix_lens[i], last_loc[i]))
            return refuse_last_loc(a, i, prefix_lens[i], last_loc[i], err);
        if (a->window && seq_lens[i] > prefix_lens[i] &&
            kv_window_is_lost(a, prefix_lens[i], last_loc[i]))
            return refuse_lost(i, last_loc[i], err);
        need += pages_for(a, seq_lens[i]) - pages_for(a, prefix_lens[i]);
    }
    if (!both_ready(a, need)) return refuse_full(a, need, err);

    for (uint32_t i = 0; i < num_reqs; i++) {
        rad_slot slot = last_loc[i];
        uint32_t count = seq_lens[i] - prefix_lens[i];
        if (ps == 1) { /* a page is a slot */
            pop_both(a, slots, count);
            slots += count;
            continue;
        }
        for (uint32_t at = prefix_lens[i]; at < seq_lens[i];) {
            slot = at % ps ? slot + 1 : pop_slot(a);
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
                               const rad_slot *last_loc, rad_slot *slots, rad_error *err)
{
    uint32_t need = 0;
    for (uint32_t i = 0; i < num_reqs; i++) {
        if (!seq_lens[i])
            return rad_fail(err, RAD_E_INVAL,
                            "kv_alloc: request %u: seq_len 0 does not count the new token", i);
        if (!last_loc_fits(a, seq_lens[i] - 1, last_loc[i]))
            return refuse_last_loc(a, i, seq_lens[i] - 1, last_loc[i], err);
        if (a->window && kv_window_is_lost(a, seq_lens[i] - 1, last_loc[i]))
            return refuse_lost(i, last_loc[i], err);
        need += (seq_lens[i] - 1) % a->page_size == 0;
    }
    if (!both_ready(a, need)) return refuse_full(a, need, err);
    for (uint32_t i = 0; i < num_reqs; i++)
        slots[i] = (seq_lens[i] - 1) % a->page_size ? last_loc[i] + 1 : pop_slot(a);
    return RAD_OK;
}

rad_status rad_kv_free_group_begin(rad_kv_allocator *a)
{
    if (a->in_group) return RAD_E_STATE;
    a->in_group = true;
    return a->window ? rad_kv_free_group_begin(a->window->side) : RAD_OK;
}

/* The record lies backwards at the array's end, so moved onto the stack it leaves in the
 * order in which it was given. */
rad_status rad_kv_free_group_end(rad_kv_allocator *a)
{
    if (!a->in_group) return RAD_E_STATE;
    a->in_group = false;
    if (a->window) (void)rad_kv_free_group_end(a->window->side);
    if (!a->num_grouped) return RAD_OK;
    if (a->need_sort) {
        a->num_staged += a->num_grouped;
    } else {
        memmove(a->free + a->num_free, a->free + a->num_pages - a->num_grouped,
                (size_t)a->num_grouped * sizeof *a->free);
        a->num_free += a->num_grouped;
    }
    a->num_grouped = 0;
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
    return a->num_free + a->num_staged;
}

uint64_t rad_kv_available_size(const rad_kv_allocator *a)
{
    return (uint64_t)rad_kv_available_pages(a) * a->page_size;
}

rad_page rad_kv_highest_page(const rad_kv_allocator *a)
{
    return a->highest;
}

int rad_kv_is_taken(const rad_kv_allocator *a, rad_page page)
{
    return kv_is_taken(a, page);
}

bits_lane kv_taken_lane(const rad_kv_allocator *a)
{
    return kv_taken(a);
}

bits_lane kv_borrow_lane(rad_kv_allocator *a)
{
    if (a->lent) return (bits_lane){0};
    a->lent = true;
    return (bits_lane){a->bits + 1, KV_LANES};
}

void kv_return_lane(rad_kv_allocator *a)
{
    for (size_t w = 0; w < bits_words((size_t)a->num_pages + 1); w++)
        a->bits[w * KV_LANES + 1] = 0;
    a->lent = false;
}

void rad_kv_clear(rad_kv_allocator *a)
{
    size_t words = bits_words((size_t)a->num_pages + 1);
    for (size_t w = 0; w < words; w++)
        a->bits[w * KV_LANES] = 0;
    lane_flip(kv_taken(a), 0); /* never handed out, and never found free by a sort */
    for (size_t i = (size_t)a->num_pages + 1; i < words * 64; i++)
        lane_flip(kv_taken(a), i);
    for (uint32_t i = 0; i < a->num_pages; i++)
        a->free[i] = (rad_page)(a->num_pages - i); /* page 1 leaves first */
    a->num_free = a->num_pages;
    a->num_staged = a->num_grouped = 0;
    a->in_group = false;
    if (a->window) kv_window_clear(a);
}
