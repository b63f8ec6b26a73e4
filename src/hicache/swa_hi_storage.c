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

#include "base/bits.h"
#include "mem/kv_pool.h"

/* ---- stores come and go ---- */

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

rad_status swa_hi_open_storage(rad_swa_hicache *c, const rad_swa_hicache_params *p, rad_error *err)
{
    static const char words[2][33] = {"the full side of sliding windows",
                                      "the tail side of sliding windows"};
    const rad_storage *stores[2] = {p->storage, p->swa_storage};
    rad_status status = rad_page_hasher_create(&c->env, &c->chain.hasher, err);
    c->chain.page_size = c->page_size;
    c->hashes = rad_alloc(&c->env, ((size_t)c->num_host_pages + 1) * sizeof *c->hashes);
    c->fetched = rad_alloc(&c->env, bits_words((size_t)c->num_host_pages + 1) * sizeof *c->fetched);
    if (!status && (!c->hashes || !c->fetched))
        status = rad_fail(err, RAD_E_NOMEM, "swa_hicache: no memory");
    for (int i = 0; i < 2 && !status; i++) {
        swa_side *s = &c->side[i];
        status = stores[i] ? page_store_check_backend(stores[i], "swa_hicache", err) : RAD_OK;
        if (!status) status = print_of(s, p->identity, words[i], &s->store.fingerprint, err);
        if (!status && !page_store_init(&s->store, &c->env, s->pool, &c->out.workers,
                                        SWA_HI_STORE_PAGES, &c->out.trouble))
            status = rad_fail(err, RAD_E_NOMEM, "swa_hicache: no memory to talk to a store");
        if (!status && stores[i]) s->store.backend = *stores[i];
    }
    return status;
}

void swa_hi_close_storage(rad_swa_hicache *c)
{
    rad_page_hasher_destroy(c->chain.hasher);
    rad_free(&c->env, c->hashes, ((size_t)c->num_host_pages + 1) * sizeof *c->hashes);
    rad_free(&c->env, c->fetched, bits_words((size_t)c->num_host_pages + 1) * sizeof *c->fetched);
    for (int i = 0; i < 2; i++)
        page_store_fini(&c->side[i].store, &c->env);
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
        rad_status status = page_store_check_backend(stores[i], "swa_hicache", err);
        if (status) return status;
    }
    if (c->side[SIDE_FULL].store.backend.ops || c->out.storage_ops)
        return rad_fail(err, RAD_AGAIN, "swa_hicache: stores are attached, or are being let go");
    for (int i = 0; i < 2; i++) {
        c->side[i].store.backend = *stores[i];
        page_store_forget(&c->side[i].store);
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
        if (was) was[i] = c->side[i].store.backend;
        c->side[i].store.backend = (rad_storage){0};
    }
    return RAD_OK;
}

/* ---- host -> storage ---- */

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
        bits_set(c->side[side].store.saved, (size_t)op->k.host[i]);
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
        bool wanted = page && !bits_get(c->side[side].store.saved, (size_t)page);
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
    if (!c->side[SIDE_FULL].store.backend.ops) return;
    swa_hi_place place = swa_hi_find(c->host, key, end, false);
    if (!place.pages) return;
    swa_hi_path_pages(&c->host->tree, place.node, place.pages, c->on_host);
    uint64_t digest;
    if (page_chain_digest(&c->chain, key, &digest)) {
        c->stats.dropped_backup_tokens += (uint64_t)place.pages * c->page_size;
        return; /* it has no name to be stored under */
    }
    if (save_side(c, SIDE_FULL, place.node, place.pages, digest))
        (void)save_side(c, SIDE_SWA, place.node, place.pages, digest);
}

rad_status swa_hi_run_backup(void *cache, hi_ticket *k, uint32_t worker)
{
    rad_swa_hicache *c = cache;
    swa_op *op = (swa_op *)k;
    store_lot l;
    const page_store *s = &c->side[op->side].store;
    const rad_page_hash *hashes[STORE_LOT_PAGES];
    for (uint32_t at = 0, n; at < k->count; at += n) {
        n = RAD_MIN(s->call_pages, k->count - at);
        if (atomic_load(&k->t.cancelled)) return RAD_NONE;
        for (uint32_t i = 0; i < n; i++)
            hashes[i] = &c->hashes[k->device[at + i]];
        if (!store_lot_keys(s, &l, hashes, n)) return RAD_E_UNSUPPORTED;
        rad_status status = store_lot_set(s, &l, k->host + at, worker, k->namespace_digest);
        for (uint32_t i = 0; i < n; i++)
            op->swa_host[at + i] = l.done[i];
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
            bits_flip(c->side[op->side].store.saved, (size_t)k->host[i]);
        }
    tickets_give(&c->out, k);
}
