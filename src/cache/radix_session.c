/* radix_session.c - sessions of the RadixCache: names on the nodes of radix_tags.c. */
#include "cache/radix_cache.h"
#include "cache/session_names.h"

rad_status radix_session_open(rad_cache *cache, rad_session *session)
{
    radix_tags *g = &((radix_cache *)cache)->tree.tags;
    if (!g->refs) return RAD_E_UNSUPPORTED;
    uint32_t id = slab_alloc(&g->ids);
    if (!id) return RAD_FULL;
    *session = session_name(&g->ids, id);
    return RAD_OK;
}

rad_status radix_session_begin(rad_cache *cache, rad_req_kv *req, rad_error *err)
{
    const radix_tags *g = &((radix_cache *)cache)->tree.tags;
    if (g->refs && session_find(&g->ids, req->key.session)) return RAD_OK;
    return rad_fail(err, RAD_E_STATE, "session %u is not open", req->key.session);
}

rad_status radix_session_close(rad_cache *cache, rad_session session)
{
    radix_tree *t = &((radix_cache *)cache)->tree;
    if (!t->tags.refs) return RAD_E_UNSUPPORTED;
    return tags_close(t, session) ? RAD_OK : RAD_E_STATE;
}

void radix_session_stats(const rad_cache *cache, rad_session_stats *stats)
{
    const radix_tags *g = &((const radix_cache *)cache)->tree.tags;
    stats->open = g->ids.num_live;
    for (uint32_t id = 1; id <= g->ids.num_fresh; id++)
        stats->held += g->sessions[id].node != 0;
}
