/* session.c - the door to sessions: hands each call to the cache that has them. */
#include "cache/cache_impl.h"

rad_status rad_session_open(rad_cache *cache, rad_session *session)
{
    if (!session) return RAD_E_INVAL;
    *session = 0;
    return cache->ops->session_open ? cache->ops->session_open(cache, session) : RAD_E_UNSUPPORTED;
}

rad_status rad_session_close(rad_cache *cache, rad_session session)
{
    if (!cache->ops->session_close) return RAD_E_UNSUPPORTED;
    return cache->ops->session_close(cache, session);
}

rad_status rad_session_begin(rad_cache *cache, rad_req_kv *req, rad_error *err)
{
    if (!req) return rad_fail(err, RAD_E_INVAL, "session: no request");
    if (!req->key.session) return RAD_OK;
    if (!cache->ops->session_begin)
        return rad_fail(err, RAD_E_UNSUPPORTED, "session: this cache has no sessions");
    return cache->ops->session_begin(cache, req, err);
}

uint32_t rad_session_release_idle(rad_cache *cache, uint32_t count)
{
    return cache->ops->session_release_idle ? cache->ops->session_release_idle(cache, count) : 0;
}

void rad_session_get_stats(const rad_cache *cache, rad_session_stats *stats)
{
    *stats = (rad_session_stats){0};
    if (cache->ops->session_stats) cache->ops->session_stats(cache, stats);
}
