/* kv_bits.h - the allocator's bit per page, for a cache that checks whole runs of them. */
#ifndef MEM_KV_BITS_H
#define MEM_KV_BITS_H

#include <radish/kv_allocator.h>

/* Bit p is set while page p is handed out, and for every p that is no page. As long as the
 * allocator lives; not to be written. */
const uint64_t *kv_taken_bits(const rad_kv_allocator *a);

#endif
