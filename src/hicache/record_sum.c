/* record_sum.c - chooses among XXH3 compiled for several instruction sets; see record_sum.h. */
#include "hicache/record_sum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t record_sum(const void *bytes, size_t count)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return record_sum_avx512(bytes, count);
    if (__builtin_cpu_supports("avx2")) return record_sum_avx2(bytes, count);
#endif
    return XXH3_64bits(bytes, count);
}
