/* page_runs_avx2.c - page_runs_loops.h for AVX2; page_runs.c asks the machine. */
#include "cache/page_runs_loops.h"

#if defined(__x86_64__) && defined(__GNUC__)
void page_runs_expand_avx2(const rad_page *region, uint32_t from, uint32_t num_slots,
                           uint32_t page_size, rad_slot *slots)
{
    expand_runs(region, from, num_slots, page_size, slots);
}
#endif
