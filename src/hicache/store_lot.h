/* store_lot.h - how many records go through one call of a store: as many as pay for the call,
 * and of those that pass through staging, which is read again at once, so few that a core's
 * cache still has them. */
#ifndef HICACHE_STORE_LOT_H
#define HICACHE_STORE_LOT_H

#include "base/base.h"

static inline uint32_t store_lot_pages(size_t record_bytes, bool staged, uint32_t most)
{
    size_t fit = ((size_t)(staged ? 1 : 8) << 20) / record_bytes;
    return (uint32_t)RAD_MIN(RAD_MAX(fit, (size_t)1), (size_t)most);
}

#endif
