/* kv_undo.h - what restoring a state would take back, for allocators made of others. */
#ifndef MEM_KV_UNDO_H
#define MEM_KV_UNDO_H

#include <radish/kv_allocator.h>

/* The pages handed out since the backup, *count of them, until the next call on the
 * allocator. RAD_E_STATE when rad_kv_restore_state would refuse the state. O(1). */
rad_status kv_undo_pages(const rad_kv_allocator *a, const rad_kv_state *state,
                         const rad_page **pages, uint32_t *count, rad_error *err);

#endif
