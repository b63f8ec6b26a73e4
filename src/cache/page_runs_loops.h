/* page_runs_loops.h - a region's runs written out as slots; compiled once for every machine
 * and once for AVX2, where a step is two stores instead of four. */
#ifndef CACHE_PAGE_RUNS_LOOPS_H
#define CACHE_PAGE_RUNS_LOOPS_H

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "cache/page_runs.h"

/* numbers[i] = first + i, in steps that may write past `count`, up to `room`: so a run costs
 * no loop over its odd rest. What is written too much is written again by the next run. */
static inline void fill_over(int32_t *numbers, int32_t first, uint32_t count, uint32_t room)
{
    uint32_t i = 0;
    (void)room; /* without vectors nothing is written past `count` */
#if defined(__AVX2__)
    __m256i low =
        _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
    for (; i < count && room - i >= 16; i += 16) {
        __m256i high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
        _mm256_storeu_si256((__m256i *)(numbers + i), low);
        _mm256_storeu_si256((__m256i *)(numbers + i + 8), high);
        low = _mm256_add_epi32(high, _mm256_set1_epi32(8));
    }
#elif defined(__SSE2__)
    __m128i low = _mm_add_epi32(_mm_setr_epi32(0, 1, 2, 3), _mm_set1_epi32(first));
    for (; i < count && room - i >= 8; i += 8) {
        __m128i high = _mm_add_epi32(low, _mm_set1_epi32(4));
        _mm_storeu_si128((__m128i *)(numbers + i), low);
        _mm_storeu_si128((__m128i *)(numbers + i + 4), high);
        low = _mm_add_epi32(high, _mm_set1_epi32(4));
    }
#endif
    for (; i < count; i++)
        numbers[i] = first + (int32_t)i;
}

/* page_runs_expand of a region that has runs. */
static inline void expand_runs(const rad_page *region, uint32_t from, uint32_t num_slots,
                               uint32_t page_size, rad_slot *slots)
{
    for (uint32_t i = 0, left = num_slots; left; i++) {
        kv_run run = page_runs_get(region, i);
        uint32_t skip = RAD_MIN(from, run.count),
                 take = RAD_MIN((run.count - skip) * page_size, left);
        from -= skip;
        fill_over(slots, (run.first + (rad_page)skip) * (rad_slot)page_size, take, left);
        slots += take;
        left -= take;
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
void page_runs_expand_avx2(const rad_page *region, uint32_t from, uint32_t num_slots,
                           uint32_t page_size, rad_slot *slots);
#endif

#endif
