/* hiradix_storage.c - stores come and go, and what backups (hiradix_backup.c) and fetches
 * (hiradix_fetch.c) have in common.
 *
 * Pages are hashed on the owner's thread, keys are made of the hashes by the workers. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"
#include "hicache/store_call.h"

/* ---- hashes ---- */

bool hi_prior_hash(hiradix_cache *c, const rad_key *key, uint32_t begin, rad_page before,
                   rad_page_hash *prior)
{
    if (begin) {
        *prior = c->hashes[before];
        return true;
    }
    return rad_page_hash_seed(c->hasher, key->extra_key, key->cache_salt, prior) == RAD_OK;
}

void hi_hash_pages(hiradix_cache *c, const rad_key *key, uint32_t begin, uint32_t count,
                   const rad_page_hash *prior, rad_page_hash *hashes)
{
    uint32_t ps = c->page_size;
    for (uint32_t i = 0; i < count; i++, prior = &hashes[i - 1]) {
        const rad_token *page = key->tokens + (size_t)(begin + i) * ps;
        rad_status status =
            c->bigram ? rad_page_hash_bigrams(c->hasher, prior, page[0], page + 1, ps, &hashes[i])
                      : rad_page_hash_tokens(c->hasher, prior, page, ps, &hashes[i]);
        RAD_ASSERT_ENV(&c->base.env, status == RAD_OK);
    }
}

/* ---- records ---- */

bool hi_lot_keys(const hiradix_cache *c, hi_lot *l, const rad_page_hash *const *hashes,
                 uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (rad_storage_key_of(&c->fingerprint, hashes[i], &l->keys[i]) != RAD_OK) return false;
    l->batch = (rad_storage_batch){.keys = l->keys,
                                   .records = l->records,
                                   .record_bytes = c->record_bytes,
                                   .count = count,
                                   .done = l->done};
    return true;
}

void hi_lot_records(hiradix_cache *c, hi_lot *l, const rad_page *host, uint32_t count,
                    uint32_t worker)
{
    uint32_t lane = c->out.workers.deterministic ? 0 : worker - c->out.workers.copy_threads;
    size_t first = (size_t)lane * c->store_pages;
    for (uint32_t i = 0; i < count; i++) {
        void *record = rad_host_kv_pool_record(c->pool, host[i]);
        l->records[i] = record ? record : c->staging + (first + i) * c->record_bytes;
        l->done[i] = 0;
    }
}

void hi_note_trouble(hiradix_cache *c, rad_status status, const rad_error *err)
{
    if (status < 0) atomic_fetch_add(&c->storage_errors, 1);
    store_trouble_note(&c->out.trouble, status, err);
}

/* ---- stores come and go ---- */

rad_status hi_check_storage(const rad_storage *s, rad_error *err)
{
    if (!s->ops || s->ops->struct_size < offsetof(rad_storage_ops, remove) || !s->ops->batch_get ||
        !s->ops->batch_set || !s->ops->batch_exists)
        return rad_fail(err, RAD_E_INVAL, "hicache: a storage backend lacks its functions");
    return RAD_OK;
}

rad_status rad_hicache_clear(rad_cache *cache, uint32_t tiers, rad_error *err)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!c) return rad_fail(err, RAD_E_UNSUPPORTED, "hicache: this cache has one tier");
    if (tiers & ~(uint32_t)(RAD_TIER_DEVICE | RAD_TIER_HOST | RAD_TIER_STORAGE))
        return rad_fail(err, RAD_E_INVAL, "hicache: there are no tiers %u", tiers);
    tickets_take_done(&c->out);
    if (c->out.ids.num_live)
        return rad_fail(err, RAD_AGAIN, "hicache: %u transfers are under way", c->out.ids.num_live);
    if ((tiers & RAD_TIER_STORAGE) && c->store_held)
        return rad_fail(err, RAD_AGAIN, "hicache: the store is held");
    if ((tiers & RAD_TIER_STORAGE) && (!c->storage.ops || !STORE_HAS(c->storage.ops, clear)))
        return rad_fail(err, RAD_E_UNSUPPORTED, "hicache: no storage, or none that can be cleared");
    rad_status status = RAD_OK;
    if (tiers & RAD_TIER_DEVICE) status = rad_cache_reset(c->device);
    if (!status && (tiers & RAD_TIER_HOST)) status = rad_cache_reset(c->host);
    if (!status && (tiers & RAD_TIER_STORAGE)) {
        status = c->storage.ops->clear(c->storage.self, err);
        memset(c->saved, 0, bits_words((size_t)c->num_host_pages + 1) * sizeof *c->saved);
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
    rad_status status = storage ? hi_check_storage(storage, err) : RAD_E_INVAL;
    if (status) return status;
    if (c->storage.ops || c->out.storage_ops)
        return rad_fail(err, RAD_AGAIN, "hicache: a store is attached, or is being let go");
    c->storage = *storage;
    memset(c->saved, 0, bits_words((size_t)c->num_host_pages + 1) * sizeof *c->saved);
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
    if (was) *was = c->storage;
    c->storage = (rad_storage){0};
    c->store_held = false;
    hi_events_cleared(c, RAD_TIER_STORAGE);
    return RAD_OK;
}

rad_status rad_hicache_hold_storage(rad_cache *cache, rad_storage *store, rad_error *err)
{
    hiradix_cache *c = hiradix_of(cache);
    if (!c) return rad_fail(err, RAD_E_UNSUPPORTED, "hicache: this cache has one tier");
    if (!c->storage.ops) return rad_fail(err, RAD_NONE, "hicache: there is no storage");
    tickets_take_done(&c->out);
    c->store_held = true;
    if (store) *store = c->storage;
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
        memset(c->saved, 0, bits_words((size_t)c->num_host_pages + 1) * sizeof *c->saved);
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
    if (c->storage.ops || c->out.storage_ops)
        return rad_fail(err, RAD_AGAIN, "hicache: a store is attached, or is being let go");
    rad_storage_fingerprint fingerprint;
    if (!identity) return rad_fail(err, RAD_E_INVAL, "hicache: no identity");
    rad_status status = rad_storage_fingerprint_of(identity, &fingerprint, err);
    if (!status) c->fingerprint = fingerprint;
    return status;
}
