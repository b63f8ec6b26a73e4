/* kv_bits.h - bits per page in an allocator, for a cache that checks whole runs of them. */
#ifndef MEM_KV_BITS_H
#define MEM_KV_BITS_H

#include <radish/kv_allocator.h>

#include "base/bits.h"

/* Bit p is set while page p is handed out, and for every p that is no page. As long as the
 * allocator lives; not to be written. */
bits_lane kv_taken_lane(const rad_kv_allocator *a);

/* A bit for each page that is the borrower's to use, all 0, in the same cache lines; words is
 * NULL when somebody has it already. The allocator never looks at it. */
bits_lane kv_borrow_lane(rad_kv_allocator *a);
void kv_return_lane(rad_kv_allocator *a);

#endif
