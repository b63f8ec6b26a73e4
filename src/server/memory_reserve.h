/* memory_reserve.h - memory that is put aside at the start, for libraries that cannot bear a no.
 *
 * evhttp looks at few of its allocations: where one fails a header is missing in silence, or a
 * null pointer is followed. jansson says no, but a member that could not be added is a wrong
 * answer. So small pieces that malloc refuses come from here, and the answer in hand stays right;
 * large ones (bodies) fail, and cost their connection. What was given from the reserve comes back
 * with the request. What such a library makes for us to free (json_dumps, evhttp_uridecode) is freed
 * with memory_reserve_free, never with free. Any thread.
 *
 *     4,096 pieces of 256 bytes, 256 of 8 KiB: about 60 requests at a time, 3 MiB */
#ifndef SERVER_MEMORY_RESERVE_H
#define SERVER_MEMORY_RESERVE_H

#include "base/base.h"

enum { MEMORY_RESERVE_PIECE = 8192 }; /* the largest */

/* Puts the memory aside, once; false: there is none. Until then the functions below are malloc's.
 */
bool memory_reserve_fill(void);

/* As malloc and its kin. NULL: neither malloc nor the reserve has it; *_lost() counts these. */
void *memory_reserve_malloc(size_t bytes);
void *memory_reserve_realloc(void *memory, size_t bytes);
void memory_reserve_free(void *memory);

/* Whether this came from the reserve, and so not from malloc. */
bool memory_reserve_owns(const void *memory);

/* Pieces of 256 bytes and of 8 KiB that are left. */
uint32_t memory_reserve_left(bool large);

/* Allocations that failed all the same: whatever was being built may lack a part. */
uint64_t memory_reserve_lost(void);

/* Test hook: malloc says no to everything that is asked for here. */
void memory_reserve_test_dry(bool dry);

#endif
