/* page_runs.c - regions read, cut, joined and written anew.
 *
 * A region is rewritten by way of a list of its runs on the stack: so it does not matter
 * that the old form and the new one overlap. */
#include "cache/page_runs.h"

#include "base/bits.h"
#include "cache/page_runs_loops.h"

uint32_t page_runs_find(const rad_slot *slots, uint32_t num_pages, uint32_t page_size,
                        kv_run runs[PAGE_RUNS])
{
    uint32_t ps = page_size, count = num_pages * ps, n = 0;
    for (uint32_t i = 0, run; i < count; i += run) {
        run = bits_run(slots + i, count - i);
        uint32_t first = (uint32_t)slots[i];
        if (slots[i] < 0 || n == PAGE_RUNS) return 0;
        if (ps > 1) {
            if (first % ps || run % ps) return 0;
            first /= ps;
        }
        runs[n++] = (kv_run){(rad_page)first, ps > 1 ? run / ps : run};
    }
    return n;
}

/* numbers[i] = first + i. */
static inline void fill(int32_t *numbers, int32_t first, uint32_t count)
{
    uint32_t i = 0;
#if defined(__GNUC__)
    typedef int32_t four __attribute__((vector_size(16)));
    four a = (four){0, 1, 2, 3} + first, b = a + 4;
    for (; i + 8 <= count; i += 8, a += 8, b += 8) {
        memcpy(numbers + i, &a, sizeof a);
        memcpy(numbers + i + 4, &b, sizeof b);
    }
#endif
    for (; i < count; i++)
        numbers[i] = first + (int32_t)i;
}

void page_runs_put(rad_page *region, uint32_t count, const kv_run *runs, uint32_t num_runs)
{
    if (num_runs <= PAGE_RUNS && 1 + 2 * (uint64_t)num_runs <= count) {
        region[0] = -(rad_page)num_runs;
        memcpy(region + 1, runs, num_runs * sizeof *runs);
        return;
    }
    for (uint32_t i = 0; i < num_runs; region += runs[i++].count)
        fill(region, runs[i].first, runs[i].count);
}

/* The first `kept` pages of the region as runs; it has runs. */
static uint32_t head(const rad_page *region, uint32_t kept, kv_run *runs)
{
    uint32_t n = 0;
    for (uint32_t left = kept; left; n++) {
        runs[n] = page_runs_get(region, n);
        runs[n].count = RAD_MIN(runs[n].count, left);
        left -= runs[n].count;
    }
    return n;
}

uint32_t page_runs_tail(const rad_page *region, uint32_t kept, kv_run runs[PAGE_RUNS])
{
    uint32_t n = page_runs_count(region), done = 0;
    for (uint32_t i = 0; i < n; i++) {
        kv_run run = page_runs_get(region, i);
        uint32_t before = RAD_MIN(kept, run.count);
        kept -= before;
        if (before == run.count) continue;
        runs[done++] = (kv_run){run.first + (rad_page)before, run.count - before};
    }
    return done;
}

void page_runs_cut(rad_page *region, uint32_t kept)
{
    uint32_t n = page_runs_count(region), i = 0, left = kept;
    if (!n) return;
    while (left > page_runs_get(region, i).count)
        left -= page_runs_get(region, i++).count;
    if (3 + 2 * (uint64_t)i <= kept) { /* the runs up to this one still fit where they are */
        kv_run last = {page_runs_get(region, i).first, left};
        memcpy(region + 1 + 2 * (size_t)i, &last, sizeof last);
        region[0] = -(rad_page)(i + 1);
        return;
    }
    kv_run runs[PAGE_RUNS];
    page_runs_put(region, kept, runs, head(region, kept, runs));
}

void page_runs_split(rad_page *region, uint32_t count, uint32_t at)
{
    kv_run upper[PAGE_RUNS], lower[PAGE_RUNS];
    if (!page_runs_count(region)) return;
    uint32_t num_upper = head(region, at, upper), num_lower = page_runs_tail(region, at, lower);
    page_runs_put(region, at, upper, num_upper);
    page_runs_put(region + at, count - at, lower, num_lower);
}

void page_runs_make_plain(rad_page *region, uint32_t count)
{
    kv_run runs[PAGE_RUNS];
    uint32_t n = page_runs_count(region);
    if (!n) return;
    head(region, count, runs);
    for (uint32_t i = 0; i < n; region += runs[i++].count)
        fill(region, runs[i].first, runs[i].count);
}

void page_runs_join(rad_page *region, uint32_t upper, uint32_t lower)
{
    /* The lower region stands at region + upper, whichever form either has. Making one plain stays
     * inside its own numbers, so neither overwrites the other. */
    kv_run runs[2 * PAGE_RUNS];
    uint32_t n = page_runs_count(region), m = page_runs_count(region + upper);
    if (!n || !m || n + m > PAGE_RUNS) { /* a region is runs or plain as a whole */
        page_runs_make_plain(region + upper, lower);
        page_runs_make_plain(region, upper);
        return;
    }
    head(region, upper, runs); /* copied out: page_runs_put writes over both regions */
    head(region + upper, lower, runs + n);
    if (runs[n - 1].first + (rad_page)runs[n - 1].count == runs[n].first) {
        /* A split cut a run here: one again, or each split and merge would leave one run more. */
        runs[n - 1].count += runs[n].count;
        memmove(runs + n, runs + n + 1, --m * sizeof *runs);
    }
    page_runs_put(region, upper + lower, runs, n + m);
}

void page_runs_shift(rad_page *region, uint32_t upper, uint32_t lower, uint32_t kept)
{
    bool runs = page_runs_count(region) == 1 && page_runs_count(region + upper) == 1;
    rad_page first = runs ? page_runs_get(region, 0).first : 0;
    if (runs && page_runs_get(region + upper, 0).first == first + (rad_page)upper) {
        kv_run front = {first, kept}, back = {first + (rad_page)kept, upper - kept + lower};
        page_runs_put(region + kept, back.count, &back, 1);
        page_runs_put(region, kept, &front, 1);
        return; /* what stood between is inside one of the two */
    }
    page_runs_join(region, upper, lower);
    page_runs_split(region, upper + lower, kept);
}

void page_runs_move(const rad_env *env, rad_page *to, const rad_page *from, uint32_t count)
{
    for (uint32_t n, pages; count && (n = page_runs_count(from)); count -= pages) {
        pages = 0;
        for (uint32_t i = 0; i < n; i++)
            pages += page_runs_get(from, i).count;
        RAD_ASSERT_ENV(env, pages <= count);
        memmove(to, from, (1 + 2 * (size_t)n) * sizeof *to);
        to += pages;
        from += pages;
    }
    memmove(to, from, count * sizeof *to); /* plain, and as far as we know all of the rest */
}

void page_runs_visit(const rad_page *region, uint32_t count,
                     void (*visit)(void *user, rad_page page), void *user)
{
    uint32_t num_runs = page_runs_count(region);
    for (uint32_t i = 0; !num_runs && i < count; i++)
        visit(user, region[i]);
    for (uint32_t r = 0; r < num_runs; r++) {
        kv_run run = page_runs_get(region, r);
        for (uint32_t i = 0; i < run.count; i++)
            visit(user, run.first + (rad_page)i);
    }
}

bool page_runs_check(const rad_page *region, uint32_t count)
{
    uint32_t n = page_runs_count(region);
    uint64_t sum = 0;
    if (!n) {
        for (uint32_t i = 0; i < count; i++)
            if (region[i] < 0) return false;
        return true;
    }
    if (n > PAGE_RUNS || 1 + 2 * (uint64_t)n > count) return false;
    for (uint32_t i = 0; i < n; i++) {
        kv_run run = page_runs_get(region, i);
        if (run.first < 0 || !run.count ||
            run.count > (uint32_t)INT32_MAX - (uint32_t)run.first + 1)
            return false;
        sum += run.count;
    }
    return sum == count;
}

static void expand_plain(const rad_page *pages, uint32_t num_pages, uint32_t ps, rad_slot *slots)
{
    if (ps == 1) {
        memcpy(slots, pages, (size_t)num_pages * sizeof *slots);
        return;
    }
    for (uint32_t i = 0; i < num_pages; i++, slots += ps)
        fill(slots, pages[i] * (rad_slot)ps, ps);
}

void page_runs_expand(const rad_page *region, uint32_t from, uint32_t num_pages, uint32_t page_size,
                      rad_slot *slots)
{
    if (!num_pages) return;
    if (region[0] >= 0) {
        expand_plain(region + from, num_pages, page_size, slots);
        return;
    }
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        page_runs_expand_avx2(region, from, num_pages * page_size, page_size, slots);
        return;
    }
#endif
    expand_runs(region, from, num_pages * page_size, page_size, slots);
}

void page_runs_expand_part(const rad_env *env, const rad_page *region, uint32_t from,
                           uint32_t count, uint32_t page_size, rad_slot *slots)
{
    uint32_t ps = page_size;
    for (uint32_t part; count; from += part, slots += part, count -= part) {
        part = RAD_MIN(ps - from % ps, count);
        if (part == ps) { /* from here on whole pages, but for the last one */
            part = count / ps * ps;
            page_runs_expand(region, from / ps, count / ps, ps, slots);
        } else {
            fill(slots, page_runs_at(env, region, from / ps) * (rad_slot)ps + (rad_slot)(from % ps),
                 part);
        }
    }
}
