/* store_call.h - what is asked of a store: which of the optional calls its table has (a table
 * compiled against an older header is shorter), and how much in one call. */
#ifndef HICACHE_STORE_CALL_H
#define HICACHE_STORE_CALL_H

#include <radish/storage.h>

#include "base/base.h"

#define STORE_HAS(ops, call)                                                                       \
    ((ops)->struct_size >= offsetof(rad_storage_ops, call) + sizeof(ops)->call && (ops)->call)

/* As many records as pay for the call; of those that pass through staging, which is read again
 * at once, so few that a core's cache still has them. */
static inline uint32_t store_lot_pages(size_t record_bytes, bool staged, uint32_t most)
{
    size_t fit = ((size_t)(staged ? 1 : 8) << 20) / record_bytes;
    return (uint32_t)RAD_MIN(RAD_MAX(fit, (size_t)1), (size_t)most);
}

#endif
