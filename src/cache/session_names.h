/* session_names.h - what a session is called: outside a number made of place and
 * generation, and as a node (of a match, of a receipt) a number that no tree uses. */
#ifndef CACHE_SESSION_NAMES_H
#define CACHE_SESSION_NAMES_H

#include <radish/session.h>

#include "base/slab.h"

enum { SESSION_MOST = 0xffff };
#define SESSION_NODE 0x80000000u /* trees have at most INT32_MAX / 2 nodes */

/* Whether a match's last_node is a session's and not a node of the tree. */
static inline bool session_is_kept(rad_ref last_node)
{
    return (last_node.index & SESSION_NODE) != 0;
}

static inline rad_session session_name(const slab *ids, uint32_t id)
{
    return id | ids->generation[id] << 16;
}

/* The place of an open session, 0 when it is not open. */
static inline uint32_t session_find(const slab *ids, rad_session session)
{
    uint32_t id = session & SESSION_MOST;
    return slab_is_live(ids, id) && session_name(ids, id) == session ? id : 0;
}

#endif
