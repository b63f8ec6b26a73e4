/* radix_claim.c - pages become the tree's: they must be whole, handed out, and nobody's yet.
 *
 * A bit for each page of the allocator, or of the engine's free list, says whether the tree has
 * it; which pages a free list has handed out only the engine knows. Whole runs of pages are
 * looked at and marked 64 at a time; only when something is wrong are they walked one by one,
 * to name the slot. */
#include "base/bits.h"
#include "cache/radix_cache.h"
#include "mem/kv_bits.h"

/* Behind the last slot that a page can have. */
static uint32_t slots_end(const radix_cache *c)
{
    uint32_t ps = c->base.page_size;
    return c->cached_pages ? c->cached_pages * ps : INT32_MAX / ps * ps;
}

/* The allocator's bits of pages that are handed out; of none where nobody knows them. */
static bits_lane taken_lane(const radix_cache *c)
{
    return c->base.kv ? kv_taken_lane(c->base.kv) : (bits_lane){0};
}

/* Whether the pages of a run are handed out, as far as that is known, and not the tree's. */
static inline bool may_claim(const radix_cache *c, bits_lane taken, size_t first, size_t count)
{
    return (!taken.words || lane_range_is(taken, first, count, true)) &&
           lane_range_is(c->cached, first, count, false);
}

/* Whether slots[0..count) are whole pages that this cache may own. Without branches, so
 * that the compiler turns it into vectors. */
RAD_VECTORIZE static bool slots_are_pages(const radix_cache *c, const rad_slot *slots,
                                          uint32_t count)
{
    uint32_t ps = c->base.page_size;
    uint32_t low = c->base.kv ? ps : 0;
    uint32_t high = slots_end(c);
    uint32_t wrong = 0;
    if (ps == 1) {
        for (uint32_t i = 0; i < count; i++)
            wrong |= (uint32_t)slots[i] - low >= high - low;
        return !wrong;
    }
    for (uint32_t i = 0; i < count; i += ps) {
        uint32_t first = (uint32_t)slots[i];
        wrong |= (first - low >= high - low) | (first % ps != 0);
        for (uint32_t k = 1; k < ps; k++)
            wrong |= (uint32_t)slots[i + k] ^ (first + k);
    }
    return !wrong;
}

/* Marks the pages under slots[0..count) as the tree's, up to `count` or the first one
 * that is not handed out or is marked already; returns how many slots were passed. */
static uint32_t claim_pages(radix_cache *c, const rad_slot *slots, uint32_t count)
{
    uint32_t ps = c->base.page_size, i = 0;
    bits_lane taken = taken_lane(c);
    if (!c->cached.words) return count;
    for (uint32_t run; ps == 1 && i < count; i += run) { /* a slot is a page: 64 at a time */
        run = bits_run(slots + i, count - i);
        if (!may_claim(c, taken, (size_t)slots[i], run)) break; /* page by page, to find which */
        lane_flip_range(c->cached, (size_t)slots[i], run);
    }
    for (; i < count; i += ps) {
        rad_page page = radix_page_of(&c->tree, slots[i]);
        if (!may_claim(c, taken, (size_t)page, 1)) return i;
        lane_flip(c->cached, (size_t)page);
    }
    return count;
}

static void unclaim_pages(radix_cache *c, const rad_slot *slots, uint32_t count)
{
    for (uint32_t i = 0; c->cached.words && i < count; i += c->base.page_size)
        lane_flip(c->cached, (size_t)radix_page_of(&c->tree, slots[i]));
}

/* The same for whole runs, all or nothing: RAD_E_INVAL for pages that this cache may not own,
 * RAD_E_STATE for one that is not handed out or is marked already. */
static rad_status claim_runs(radix_cache *c, const kv_run *runs, uint32_t num_runs)
{
    bits_lane taken = taken_lane(c);
    uint32_t low = c->base.kv ? 1 : 0, done = 0, high = slots_end(c) / c->base.page_size - 1;
    for (uint32_t i = 0; i < num_runs; i++)
        if ((uint32_t)runs[i].first < low || (uint32_t)runs[i].first > high ||
            runs[i].count - 1 > high - (uint32_t)runs[i].first)
            return RAD_E_INVAL;
    for (; c->cached.words && done < num_runs; done++) {
        size_t first = (size_t)runs[done].first, count = runs[done].count;
        if (!may_claim(c, taken, first, count)) break;
        lane_flip_range(c->cached, first, count);
    }
    if (!c->cached.words || done == num_runs) return RAD_OK;
    while (done-- > 0)
        lane_flip_range(c->cached, (size_t)runs[done].first, runs[done].count);
    return RAD_E_STATE;
}

/* The first slot that is in no page's place, in words. */
static rad_status refuse_places(const radix_cache *c, const rad_slot *slots, uint32_t count,
                                uint32_t position, rad_error *err)
{
    int64_t ps = c->base.page_size, low = c->base.kv ? ps : 0, bad = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t first = slots[i - i % ps];
        if (first >= low && first < slots_end(c) && first % ps == 0 && slots[i] == first + i % ps)
            continue;
        bad = i;
        break;
    }
    return rad_fail(err, RAD_E_INVAL,
                    "cache: slot %d at position %lld is not in its page's place, or of no page",
                    slots[bad], (long long)(position + bad));
}

/* The first page that is not the caller's to give, in words. */
static rad_status refuse_pages(radix_cache *c, const rad_slot *slots, uint32_t count,
                               uint32_t position, rad_error *err)
{
    uint32_t at = claim_pages(c, slots, count);
    unclaim_pages(c, slots, at);
    RAD_ASSERT_ENV(&c->base.env, at < count);
    size_t page = (size_t)radix_page_of(&c->tree, slots[at]);
    bool free = c->base.kv && !rad_kv_is_taken(c->base.kv, (rad_page)page);
    const char *why = free                        ? "not handed out"
                      : lane_get(c->cached, page) ? "the cache's already"
                                                  : "of a page that stands there twice";
    return rad_fail(err, RAD_E_STATE, "cache: slot %d at position %u is %s", slots[at],
                    position + at, why);
}

rad_status radix_claim(radix_cache *c, const rad_slot *slots, uint32_t num_pages, uint32_t position,
                       kv_run runs[PAGE_RUNS], uint32_t *num_runs, rad_error *err)
{
    uint32_t count = num_pages * c->base.page_size;
    rad_status status = RAD_OK;
    *num_runs = page_runs_find(slots, num_pages, c->base.page_size, runs);
    if (*num_runs) {
        status = claim_runs(c, runs, *num_runs);
    } else if (!slots_are_pages(c, slots, count)) {
        status = RAD_E_INVAL;
    } else {
        uint32_t claimed = claim_pages(c, slots, count);
        if (claimed < count) {
            unclaim_pages(c, slots, claimed);
            status = RAD_E_STATE;
        }
    }
    if (status == RAD_E_INVAL) return refuse_places(c, slots, count, position, err);
    return status ? refuse_pages(c, slots, count, position, err) : RAD_OK;
}

void radix_unclaim(radix_cache *c, const rad_slot *slots, uint32_t num_pages)
{
    unclaim_pages(c, slots, num_pages * c->base.page_size);
}
