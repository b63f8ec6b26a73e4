/* swa_hi_storage.c - host -> storage: a record for each side of a page.
 *
 *     page of the host    | full K/V |      | window K/V |   while it lives
 *     record              | header, full K/V |   | header, window K/V |
 *     key                 H(full print || hash)  H(window print || hash)
 *
 * The hash of a page is one, the sides' fingerprints are two: each is made of the model's identity,
 * of the side's own pool and of a word for the side. So a record can be found only as what it is,
 * and a window record that comes later, when the page has got its window side again, is a new one
 * and not a change of another. Backups lock what they read. */
#include "hicache/swa_hi_impl.h"

#include "hicache/store_call.h"
#include "mem/host_kv_pool.h"
#include "mem/kv_pool.h"

/* ---- stores come and go ---- */

static rad_status check_store(const rad_storage *s, rad_error *err)
{
    if (!s->ops || s->ops->struct_size < offsetof(rad_storage_ops, remove) || !s->ops->batch_get ||
        !s->ops->batch_set || !s->ops->batch_exists)
        return rad_fail(err, RAD_E_INVAL, "swa_hicache: a storage backend lacks its functions");
    return RAD_OK;
}

/* The print of a side: that of a model with this pool only, and then of what it is here. */
static rad_status print_of(const swa_side *s, const rad_storage_identity *identity,
                           const char words[33], rad_storage_fingerprint *print, rad_error *err)
{
    const rad_token_to_kv_pool_params *d = &s->device_pool->params;
    rad_storage_identity own = {.struct_size = sizeof own,
                                .model = identity->model,
                                .build = identity->build,
                                .dtype = d->dtype,
                                .kind = d->kind,
                                .page_size = d->page_size,
                                .num_layers = d->num_layers,
                                .start_layer = d->start_layer,
                                .num_kv_heads = d->num_kv_heads,
                                .head_dim = d->head_dim,
                                .v_head_dim = d->v_head_dim};
    rad_page_hash as;
    rad_storage_key mixed;
    memcpy(as.bytes, words, sizeof as.bytes);
    rad_status status = rad_storage_fingerprint_of(&own, print, err);
    if (!status && rad_storage_key_of(print, &as, &mixed) != RAD_OK)
        status = rad_fail(err, RAD_E_UNSUPPORTED, "swa_hicache: libcrypto failed");
    if (!status) memcpy(print->bytes, mixed.bytes, sizeof print->bytes);
    return status;
}

static bool make_room(rad_swa_hicache *c, swa_side *s)
{
    s->record_bytes = RAD_STORAGE_HEADER_BYTES + rad_host_kv_pool_page_bytes(s->pool);
    bool staged = !rad_host_kv_pool_record(s->pool, 1);
    s->store_pages = store_lot_pages(s->record_bytes, staged, SWA_HI_STORE_PAGES);
    s->saved = rad_alloc(&c->env, bits_words((size_t)s->num_host_pages + 1) * sizeof *s->saved);
    if (!staged) return s->saved != NULL;
    uint32_t workers = c->params.deterministic ? 1 : c->params.store_threads;
    s->staging_bytes = rad_mul(rad_mul(workers, s->store_pages), s->record_bytes);
    s->staging = rad_alloc(&c->env, s->staging_bytes);
    return s->saved && s->staging;
}

rad_status swa_hi_open_storage(rad_swa_hicache *c, const rad_swa_hicache_params *p, rad_error *err)
{
    static const char words[2][33] = {"the full side of sliding windows",
                                      "the tail side of sliding windows"};
    const rad_storage *stores[2] = {p->storage, p->swa_storage};
    rad_status status = rad_page_hasher_create(&c->env, &c->hasher, err);
    c->hashes = rad_alloc(&c->env, ((size_t)c->num_host_pages + 1) * sizeof *c->hashes);
    c->fetched = rad_alloc(&c->env, bits_words((size_t)c->num_host_pages + 1) * sizeof *c->fetched);
    if (!status && (!c->hashes || !c->fetched))
        status = rad_fail(err, RAD_E_NOMEM, "swa_hicache: no memory");
    for (int i = 0; i < 2 && !status; i++) {
        swa_side *s = &c->side[i];
        status = stores[i] ? check_store(stores[i], err) : RAD_OK;
        if (!status) status = print_of(s, p->identity, words[i], &s->fingerprint, err);
        if (!status && !make_room(c, s))
            status = rad_fail(err, RAD_E_NOMEM, "swa_hicache: no memory to talk to a store");
        if (!status && stores[i]) s->storage = *stores[i];
    }
    return status;
}

void swa_hi_close_storage(rad_swa_hicache *c)
{
    rad_page_hasher_destroy(c->hasher);
    rad_free(&c->env, c->hashes, ((size_t)c->num_host_pages + 1) * sizeof *c->hashes);
    rad_free(&c->env, c->fetched, bits_words((size_t)c->num_host_pages + 1) * sizeof *c->fetched);
    for (int i = 0; i < 2; i++) {
        swa_side *s = &c->side[i];
        rad_free(&c->env, s->saved, bits_words((size_t)s->num_host_pages + 1) * sizeof *s->saved);
        rad_free(&c->env, s->staging, s->staging_bytes);
    }
}

rad_status rad_swa_hicache_attach_storage(rad_swa_hicache *c, const rad_storage *storage,
                                          const rad_storage *swa_storage, rad_error *err)
{
    const rad_storage *stores[2] = {storage, swa_storage};
    if (!c->has_identity)
        return rad_fail(err, RAD_E_UNSUPPORTED, "swa_hicache: these tiers have no identity");
    if (!storage || !swa_storage)
        return rad_fail(err, RAD_E_INVAL, "swa_hicache: a store for each side is needed");
    for (int i = 0; i < 2; i++) {
        rad_status status = check_store(stores[i], err);
        if (status) return status;
    }
    if (c->side[SIDE_FULL].storage.ops || c->out.storage_ops)
        return rad_fail(err, RAD_AGAIN, "swa_hicache: stores are attached, or are being let go");
    for (int i = 0; i < 2; i++) {
        swa_side *s = &c->side[i];
        s->storage = *stores[i];
        memset(s->saved, 0, bits_words((size_t)s->num_host_pages + 1) * sizeof *s->saved);
    }
    return RAD_OK;
}

rad_status rad_swa_hicache_detach_storage(rad_swa_hicache *c, rad_storage *was, rad_error *err)
{
    tickets_take_done(&c->out);
    if (c->out.storage_ops)
        return rad_fail(err, RAD_AGAIN, "swa_hicache: %u transfers with the stores are under way",
                        c->out.storage_ops);
    for (int i = 0; i < 2; i++) {
        if (was) was[i] = c->side[i].storage;
        c->side[i].storage = (rad_storage){0};
    }
    return RAD_OK;
}

void swa_hi_note_trouble(rad_swa_hicache *c, rad_status status, const rad_error *err)
{
    if (status < 0) atomic_fetch_add(&c->storage_errors, 1);
    store_trouble_note(&c->out.trouble, status, err);
}

/* ---- records ---- */

void swa_hi_hash(rad_swa_hicache *c, const rad_key *key, uint32_t begin, uint32_t count,
                 const rad_page_hash *prior, rad_page_hash *hashes)
{
    rad_page_hash seed;
    uint32_t ps = c->page_size;
    if (!prior && rad_page_hash_seed(c->hasher, key->extra_key, key->cache_salt, &seed) == RAD_OK)
        prior = &seed;
    for (uint32_t i = 0; i < count; i++, prior = &hashes[i - 1]) {
        rad_status status = rad_page_hash_tokens(
            c->hasher, prior, key->tokens + (size_t)(begin + i) * ps, ps, &hashes[i]);
        RAD_ASSERT_ENV(&c->env, status == RAD_OK);
    }
}

bool swa_lot_keys(const swa_side *s, swa_lot *lot, const rad_page_hash *const *hashes,
                  uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (rad_storage_key_of(&s->fingerprint, hashes[i], &lot->keys[i]) != RAD_OK) return false;
    lot->batch = (rad_storage_batch){.keys = lot->keys,
                                     .records = lot->records,
                                     .record_bytes = s->record_bytes,
                                     .count = count,
                                     .done = lot->done};
    return true;
}

void swa_lot_records(const rad_swa_hicache *c, const swa_side *s, swa_lot *lot,
                     const rad_page *host, uint32_t worker)
{
    uint32_t lane = c->out.workers.deterministic ? 0 : worker - c->out.workers.copy_threads;
    size_t first = (size_t)lane * s->store_pages;
    for (uint32_t i = 0; i < lot->batch.count; i++) {
        void *record = rad_host_kv_pool_record(s->pool, host[i]);
        lot->records[i] = record ? record : s->staging + (first + i) * s->record_bytes;
        lot->done[i] = 0;
    }
}

/* ---- host -> storage ---- */

static uint64_t digest_of(rad_swa_hicache *c, const rad_key *key)
{
    rad_page_hash seed;
    if (rad_page_hash_seed(c->hasher, key->extra_key, key->cache_salt, &seed) != RAD_OK) return 0;
    return (uint64_t)rad_page_hash_event(&seed);
}

/* Pages [begin, begin + count) of the path in c->on_host, which ends in `node`. */
static bool begin_backup(rad_swa_hicache *c, uint32_t side, uint32_t node, uint64_t digest,
                         uint32_t begin, uint32_t count)
{
    const rad_page *window_of = rad_swa_page_map(c->host_kv);
    swa_op *op = swa_op_take(c, TRANSFER_BACKUP, count);
    if (!op) return false;
    op->k.begin = begin;
    op->side = side;
    op->k.namespace_digest = digest;
    for (uint32_t i = 0; i < count; i++) {
        op->k.device[i] = c->on_host[begin + i];
        op->k.host[i] = side == SIDE_FULL ? op->k.device[i] : window_of[op->k.device[i]];
        op->swa_host[i] = 0;
        bits_set(c->side[side].saved, (size_t)op->k.host[i]);
    }
    op->on_host = swa_lock_from(c->host, node, begin);
    tickets_submit(&c->out, &op->k);
    return true;
}

static bool save_side(rad_swa_hicache *c, uint32_t side, uint32_t node, uint32_t end,
                      uint64_t digest)
{
    const rad_page *window_of = rad_swa_page_map(c->host_kv);
    uint32_t most = RAD_MAX((uint32_t)SWA_HI_WRITE_TOKENS / c->page_size, 1u);
    for (uint32_t at = 0, from = 0; at <= end; at++) {
        rad_page page = at == end           ? 0
                        : side == SIDE_FULL ? c->on_host[at]
                                            : window_of[c->on_host[at]];
        bool wanted = page && !bits_get(c->side[side].saved, (size_t)page);
        bool cut = !wanted || at - from == most;
        if (cut && at > from && !begin_backup(c, side, node, digest, from, at - from)) {
            c->stats.dropped_backup_tokens += (uint64_t)(end - from) * c->page_size;
            return false; /* the next request that comes this way tries again */
        }
        if (cut) from = wanted ? at : at + 1;
    }
    return true;
}

void swa_hi_save(rad_swa_hicache *c, const rad_key *key, uint32_t end)
{
    if (!c->side[SIDE_FULL].storage.ops) return;
    swa_hi_place place = swa_hi_find(c->host, key, end, false);
    if (!place.pages) return;
    swa_hi_path_pages(&c->host->tree, place.node, place.pages, c->on_host);
    uint64_t digest = digest_of(c, key);
    if (save_side(c, SIDE_FULL, place.node, place.pages, digest))
        (void)save_side(c, SIDE_SWA, place.node, place.pages, digest);
}

rad_status swa_hi_run_backup(void *cache, hi_ticket *k, uint32_t worker)
{
    rad_swa_hicache *c = cache;
    swa_op *op = (swa_op *)k;
    swa_lot lot;
    const swa_side *s = &c->side[op->side];
    const rad_page_hash *hashes[SWA_HI_STORE_PAGES];
    size_t payload = s->record_bytes - RAD_STORAGE_HEADER_BYTES;
    for (uint32_t at = 0, n; at < k->count; at += n) {
        n = RAD_MIN(s->store_pages, k->count - at);
        if (atomic_load(&k->t.cancelled)) return RAD_NONE;
        for (uint32_t i = 0; i < n; i++)
            hashes[i] = &c->hashes[k->device[at + i]];
        if (!swa_lot_keys(s, &lot, hashes, n)) return RAD_E_UNSUPPORTED;
        swa_lot_records(c, s, &lot, k->host + at, worker);
        for (uint32_t i = 0; i < n; i++) {
            char *record = lot.records[i];
            rad_storage_record about = {.key = lot.keys[i],
                                        .fingerprint = s->fingerprint,
                                        .namespace_digest = k->namespace_digest,
                                        .num_tokens = c->page_size,
                                        .payload_bytes = payload};
            if (s->staging)
                (void)rad_host_kv_pool_get_page(s->pool, k->host[at + i],
                                                record + RAD_STORAGE_HEADER_BYTES, payload);
            rad_storage_seal(record, &about);
        }
        rad_error why = {0};
        rad_status status = s->storage.ops->batch_set(s->storage.self, &lot.batch, &why);
        for (uint32_t i = 0; i < n; i++)
            op->swa_host[at + i] = lot.done[i];
        swa_hi_note_trouble(c, status, &why);
        if (status) return status;
    }
    return RAD_OK;
}

void swa_hi_backup_done(void *cache, hi_ticket *k)
{
    rad_swa_hicache *c = cache;
    const swa_op *op = (swa_op *)k;
    for (uint32_t i = 0; i < k->count; i++)
        if (op->swa_host[i]) {
            c->stats.backed_up_tokens[op->side] += c->page_size;
        } else {
            c->stats.dropped_backup_tokens += c->page_size;
            bits_flip(c->side[op->side].saved, (size_t)k->host[i]);
        }
    tickets_give(&c->out, k);
}
