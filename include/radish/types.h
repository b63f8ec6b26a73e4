/* types.h - the integers of the cache.
 *
 * A page, a slot and a row are three different things and are never converted
 * in passing:
 *
 *     row   a request's line in req_to_token: position -> slot
 *     slot  one token's place in the KV pool; slot = page * page_size + offset
 *     page  page_size consecutive slots; page 0 is the dummy page, where padded
 *           rows of a batch write and nobody reads
 *
 * A state is none of them: one place in a state pool (state_pool.h). */
#ifndef RADISH_TYPES_H
#define RADISH_TYPES_H

#include <radish/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t rad_token; /* token id, >= 0 */
typedef int32_t rad_slot;  /* >= 0; 0 is in the dummy page */
typedef int32_t rad_page;  /* >= 1 when handed out */
typedef uint32_t rad_row;  /* >= 1 when handed out; row 0 is the dummy row */
typedef int32_t rad_state; /* >= 1 when handed out; 0 is the beginning, all zeros */

/* Names a tree node from outside. The generation changes when the node's place
 * is used again, so a stale ref is refused (RAD_E_STATE) instead of followed.
 * All zero names nothing (the cache's root, or "no node"). */
typedef struct rad_ref {
    uint32_t index;
    uint32_t generation;
} rad_ref;

#ifdef __cplusplus
}
#endif
#endif
