/* hiradix_storage.c - clears tiers; attaches and detaches a store. What moves to and from it is in
 * hiradix_backup_storage.c and hiradix_fetch.c. */
#include "hicache/hiradix_impl.h"

/* Nothing but idle sessions of `front` holds the device's prefixes; what these have of them goes.
 */
static rad_status release_device(hiradix_cache *c, rad_cache *front, rad_error *err)
{
    if (front->ops->session_empty_idle) front->ops->session_empty_idle(front);
    uint64_t held = c->device->ops->sizes(c->device).protected_;
    if (!held) return RAD_OK;
    return rad_fail(err, RAD_AGAIN, "hicache: requests or sessions hold %llu tokens",
                    (unsigned long long)held);
}

rad_status rad_hicache_clear(rad_cache *cache, uint32_t tiers, rad_error *err)
{
    rad_cache *front = cache;
    while (cache && !hiradix_of(cache))
        cache = cache->inner;
    hiradix_cache *c = hiradix_of(cache);
    if (!c) return rad_fail(err, RAD_E_UNSUPPORTED, "hicache: this cache has one tier");
    if (tiers & ~(uint32_t)(RAD_TIER_DEVICE | RAD_TIER_HOST | RAD_TIER_STORAGE))
        return rad_fail(err, RAD_E_INVAL, "hicache: there are no tiers %u", tiers);
    tickets_take_done(&c->out);
    if (c->out.ids.num_live)
        return rad_fail(err, RAD_AGAIN, "hicache: %u transfers are under way", c->out.ids.num_live);
    if ((tiers & RAD_TIER_STORAGE) && c->store_held)
        return rad_fail(err, RAD_AGAIN, "hicache: the store is held");
    if ((tiers & RAD_TIER_STORAGE) &&
        (!c->store.backend.ops || !STORE_HAS(c->store.backend.ops, clear)))
        return rad_fail(err, RAD_E_UNSUPPORTED, "hicache: no storage, or none that can be cleared");
    rad_status status = tiers & RAD_TIER_DEVICE ? release_device(c, front, err) : RAD_OK;
    if (status) return status;
    if ((tiers & RAD_TIER_DEVICE) && (tiers & RAD_TIER_HOST))
        status = rad_cache_reset(c->device);
    else if (tiers & RAD_TIER_DEVICE)
        status = radix_cache_clear_device(c->nodes);
    else if (tiers & RAD_TIER_HOST)
        radix_host_clear(c->tree);
    if (!status && (tiers & RAD_TIER_STORAGE)) {
        status = c->store.backend.ops->clear(c->store.backend.self, err);
        hi_forget_stored(c);
    }
    c->epoch++;
    hi_events_cleared(c, tiers);
    return status;
}

rad_status rad_hicache_attach_storage(rad_cache *cache, const rad_storage *storage, rad_error *err)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!c || !c->has_identity)
        return rad_fail(err, RAD_E_UNSUPPORTED, "hicache: this cache was made without an identity");
    rad_status status = storage ? page_store_check_backend(storage, err) : RAD_E_INVAL;
    if (status) return status;
    if (c->store.backend.ops || c->out.storage_ops)
        return rad_fail(err, RAD_AGAIN, "hicache: a store is attached, or is being let go");
    hi_set_store(c, storage);
    hi_forget_stored(c);
    return RAD_OK;
}

rad_status rad_hicache_detach_storage(rad_cache *cache, rad_storage *was, rad_error *err)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!c) return rad_fail(err, RAD_E_UNSUPPORTED, "hicache: this cache has one tier");
    tickets_take_done(&c->out);
    if (c->out.storage_ops)
        return rad_fail(err, RAD_AGAIN, "hicache: %u transfers with the store are under way",
                        c->out.storage_ops);
    if (was) *was = c->store.backend;
    hi_set_store(c, &(rad_storage){0});
    c->store_held = false;
    hi_events_cleared(c, RAD_TIER_STORAGE);
    return RAD_OK;
}

rad_status rad_hicache_hold_storage(rad_cache *cache, rad_storage *store, rad_error *err)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!c) return rad_fail(err, RAD_E_UNSUPPORTED, "hicache: this cache has one tier");
    if (!c->store.backend.ops) return rad_fail(err, RAD_NONE, "hicache: there is no storage");
    tickets_take_done(&c->out);
    c->store_held = true;
    if (store) *store = c->store.backend;
    if (!c->out.storage_ops) return RAD_OK;
    return rad_fail(err, RAD_AGAIN, "hicache: %u transfers with the store are under way",
                    c->out.storage_ops);
}

rad_status rad_hicache_release_storage(rad_cache *cache, int cleared)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!c) return RAD_E_UNSUPPORTED;
    c->store_held = false;
    if (cleared && c->has_identity) {
        hi_forget_stored(c);
        hi_events_cleared(c, RAD_TIER_STORAGE);
    }
    return RAD_OK;
}

rad_status rad_hicache_identify(rad_cache *cache, const rad_storage_identity *identity,
                                rad_error *err)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!c || !c->has_identity)
        return rad_fail(err, RAD_E_UNSUPPORTED, "hicache: this cache was made without an identity");
    if (c->store.backend.ops || c->out.storage_ops)
        return rad_fail(err, RAD_AGAIN, "hicache: a store is attached, or is being let go");
    rad_storage_fingerprint fingerprint;
    if (!identity) return rad_fail(err, RAD_E_INVAL, "hicache: no identity");
    rad_status status = rad_storage_fingerprint_of(identity, &fingerprint, err);
    if (!status) status = hi_set_fingerprint(c, &fingerprint, err);
    return status;
}
