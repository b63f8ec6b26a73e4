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

#include "base/heap.h"
#include "base/slab.h"

struct radix_tree;

typedef struct session_tag {
    uint32_t node; /* where the session ends, 0: nowhere */
    uint32_t next; /* sessions that end there */
    uint32_t prev;
} session_tag;

typedef struct radix_tags {
    slab ids;
    session_tag *sessions; /* [max_sessions + 1] */
    uint32_t *refs;        /* [num_nodes + 1], or NULL: there are no sessions */
    uint32_t *first;       /* [num_nodes + 1]: the sessions that end at a node */
} radix_tags;

/* Adds the part to a tree without nodes. False: no memory. When all nodes go, sessions stay open
 * and refer to nothing. */
bool tags_init(struct radix_tree *t, uint32_t max_sessions);

/* A session's turn ended at `node`; not open: nothing. O(depth). */
void tags_move(struct radix_tree *t, rad_session session, uint32_t node);

#endif
