/* memory_reserve.h - memory set aside at start for libraries that do not handle failed allocations.
 *
 * evhttp checks few of its allocations: where one fails a header is silently missing, or a null
 * pointer is dereferenced. jansson returns an error, but a member that could not be added is a
 * wrong answer. So small allocations that malloc refuses are served from this pool, and the answer
 * being built stays right; large ones (bodies) fail, and cost their connection. Blocks return to
 * the pool with their request. What such a library makes for us to free (json_dumps,
 * evhttp_uridecode) is freed with memory_reserve_free, never with free. Any thread.
 *
 *     4,096 pieces of 256 bytes, 256 of 8 KiB: about 60 requests at a time, 3 MiB */
#ifndef SERVER_MEMORY_RESERVE_H
#define SERVER_MEMORY_RESERVE_H

#include "base/base.h"

enum { MEMORY_RESERVE_PIECE = 8192 }; /* the largest */

/* Allocates the pool, once; false: there is no memory. Until then the functions below are malloc's.
 */
bool memory_reserve_fill(void);

/* As malloc and its kin. NULL: neither malloc nor the reserve has it; *_lost() counts these. */
void *memory_reserve_malloc(size_t bytes);
void *memory_reserve_realloc(void *memory, size_t bytes);
void memory_reserve_free(void *memory);

/* Whether this block is of the pool, and so not of malloc. */
bool memory_reserve_owns(const void *memory);

/* Free blocks of 256 bytes, or of 8 KiB. */
uint32_t memory_reserve_left(bool large);

/* Allocations that failed in spite of the pool: whatever was being built may lack a part. */
uint64_t memory_reserve_lost(void);

#endif
