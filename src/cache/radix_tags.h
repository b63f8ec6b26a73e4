/* radix_tags.h - which nodes open sessions refer to.
 *
 * Behind <radish/session.h> for the RadixCache. A session refers to the whole path from
 * the root to the node where its last turn ended; refs[node] counts the sessions whose
 * path goes through it, as lock_ref does for locks. So a tag costs one record for each
 * session and not one for each node:
 *
 *     root -- [system] 2 -+- [question] 1 -- [answer] 1  <- session a ends here
 *                         +- [question] 1                <- session b
 *                         +- [question] 0                   nobody's: evicted first
 *
 * Tags order eviction and hold nothing: when the end of a session is evicted, it ends at
 * the node above. */
#ifndef CACHE_RADIX_TAGS_H
#define CACHE_RADIX_TAGS_H

#include <radish/session.h>

#include <stdbool.h>

struct radix_tree;

/* Adds the part to a tree without nodes. False: no memory. When all nodes go, sessions stay open
 * and refer to nothing. */
bool tags_init(struct radix_tree *t, uint32_t max_sessions);

/* A session's turn ended at `node`; not open, or no such part: nothing. O(depth). */
void tags_move(struct radix_tree *t, rad_session session, uint32_t node);

/* How many open sessions' paths go through the node. */
uint32_t tags_refs(const struct radix_tree *t, uint32_t node);

#endif
