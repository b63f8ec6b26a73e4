/* record_sum.h - the checksum of a stored page's payload, XXH3's 64 bits, as fast as this CPU
 * computes it. The value is the same everywhere. */
#ifndef HICACHE_RECORD_SUM_H
#define HICACHE_RECORD_SUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t record_sum(const void *bytes, size_t count);

uint64_t record_sum_avx2(const void *bytes, size_t count);
uint64_t record_sum_avx512(const void *bytes, size_t count);

#endif
