/* page_store.c - see the header. */
#include "hicache/page_store.h"

#include "base/bits.h"
#include "mem/host_kv_pool.h"
#include "mem/kv_pool.h"

#include <stdio.h>

rad_status page_store_check_backend(const rad_storage *backend, rad_error *err)
{
    const rad_storage_ops *ops = backend->ops;
    if (!ops || ops->struct_size < offsetof(rad_storage_ops, remove) || !ops->batch_get ||
        !ops->batch_set || !ops->batch_exists)
        return rad_fail(err, RAD_E_INVAL, "hicache: a storage backend lacks its functions");
    return RAD_OK;
}

/* As many records as pay for the call; of those that pass through staging, which is read again
 * at once, so few that a core's cache still has them. */
static uint32_t pages_of_call(size_t record_bytes, bool staged)
{
    size_t fit = ((size_t)(staged ? 1 : 8) << 20) / record_bytes;
    return (uint32_t)RAD_MIN(RAD_MAX(fit, (size_t)1), (size_t)STORE_LOT_PAGES);
}

static size_t saved_bytes(const page_store *s)
{
    return bits_words((size_t)s->num_pages + 1) * sizeof *s->saved;
}

bool page_store_init(page_store *s, const rad_env *env, rad_host_kv_pool *pool, uint32_t num_pages,
                     const controller_params *workers, store_trouble *trouble)
{
    if (!pool) return true;
    bool staged = !host_kv_pool_record(pool, 1), one = workers->deterministic;
    s->pool = pool;
    s->num_pages = num_pages;
    s->trouble = trouble;
    s->page_size = host_kv_pool_device_pool(pool)->params.page_size;
    s->record_bytes = RAD_STORAGE_HEADER_BYTES + host_kv_pool_page_bytes(pool);
    s->call_pages = pages_of_call(s->record_bytes, staged);
    s->first_worker = one ? 0 : workers->copy_threads;
    s->num_workers = one ? 1 : workers->store_threads;
    s->saved = rad_alloc(env, saved_bytes(s));
    if (!staged) return s->saved != NULL;
    s->staging_bytes = rad_mul(rad_mul(s->num_workers, s->call_pages), s->record_bytes);
    s->staging = rad_alloc(env, s->staging_bytes);
    return s->saved && s->staging;
}

/* Handed to the store as they lie, one at a time: each is large. */
bool page_store_init_states(page_store *s, const rad_env *env, rad_state_pool *states,
                            uint32_t page_size, store_trouble *trouble)
{
    s->states = states;
    s->num_pages = rad_state_pool_num_states(states);
    s->trouble = trouble;
    s->page_size = page_size;
    s->record_bytes = state_pool_record_bytes(states);
    s->call_pages = 1;
    s->saved = rad_alloc(env, saved_bytes(s));
    return s->saved != NULL;
}

enum { MARK_BYTES = 64 }; /* zeros */

bool page_store_init_marks(page_store *s, const rad_env *env, uint32_t page_size,
                           const controller_params *workers, store_trouble *trouble)
{
    bool one = workers->deterministic;
    s->trouble = trouble;
    s->page_size = page_size;
    s->record_bytes = RAD_STORAGE_HEADER_BYTES + MARK_BYTES;
    s->call_pages = STORE_LOT_PAGES;
    s->first_worker = one ? 0 : workers->copy_threads;
    s->num_workers = one ? 1 : workers->store_threads;
    s->staging_bytes = (size_t)s->num_workers * s->call_pages * s->record_bytes;
    s->staging = rad_alloc(env, s->staging_bytes);
    return s->staging != NULL;
}

void page_store_fini(page_store *s, const rad_env *env)
{
    if (!s->record_bytes) return;
    rad_free(env, s->saved, saved_bytes(s));
    rad_free(env, s->staging, s->staging_bytes);
}

size_t page_store_bytes(const page_store *s)
{
    return (s->saved ? saved_bytes(s) : 0) + s->staging_bytes;
}

void page_store_forget(page_store *s)
{
    if (!s->saved) return;
    memset(s->saved, 0, saved_bytes(s));
}

/* ---- lots ---- */

bool store_lot_chain(const page_store *s, store_lot *l, const rad_page_hash *chain, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (rad_storage_key_of(&s->fingerprint, &chain[i], &l->keys[i]) != RAD_OK) return false;
    l->batch = (rad_storage_batch){.keys = l->keys,
                                   .records = l->records,
                                   .record_bytes = s->record_bytes,
                                   .count = count,
                                   .done = l->done};
    return true;
}

static void *record_of(const page_store *s, int32_t host)
{
    if (s->states) return state_pool_record(s->states, host);
    return s->pool ? host_kv_pool_record(s->pool, host) : NULL;
}

/* The records of these host pages or states, or the worker's staging for them. */
static void place(const page_store *s, store_lot *l, const rad_page *host, uint32_t worker)
{
    size_t first = (size_t)(worker - s->first_worker) * s->call_pages;
    for (uint32_t i = 0; i < l->batch.count; i++) {
        void *record = host ? record_of(s, host[i]) : NULL;
        l->records[i] = record ? record : s->staging + (first + i) * s->record_bytes;
        l->done[i] = 0;
    }
}

rad_status store_lot_exists(const page_store *s, store_lot *l, uint64_t deadline_ns,
                            uint32_t *present)
{
    rad_error why = {0};
    rad_storage_batch batch = l->batch;
    batch.records = NULL;
    batch.done = NULL;
    batch.deadline_ns = deadline_ns;
    rad_status status = s->backend.ops->batch_exists(s->backend.self, &batch, present, &why);
    store_trouble_note(s->trouble, status, &why);
    *present = RAD_MIN(*present, batch.count);
    return status;
}

rad_status store_lot_get(const page_store *s, store_lot *l, const rad_page *host, uint32_t worker,
                         uint64_t deadline_ns)
{
    rad_error why = {0};
    place(s, l, host, worker);
    l->batch.deadline_ns = deadline_ns;
    rad_status status = s->backend.ops->batch_get(s->backend.self, &l->batch, &why);
    store_trouble_note(s->trouble, status, &why);
    return status;
}

void store_lot_remove(const page_store *s, const store_lot *l, uint32_t i)
{
    const rad_storage_ops *ops = s->backend.ops;
    if (STORE_HAS(ops, remove)) (void)ops->remove(s->backend.self, &l->keys[i], NULL);
}

bool store_lot_accept(const page_store *s, const store_lot *l, uint32_t i, rad_page host)
{
    rad_storage_record about;
    if (rad_storage_verify(l->records[i], s->record_bytes, &l->keys[i], &s->fingerprint, &about,
                           NULL) != RAD_OK ||
        about.num_tokens != s->page_size) {
        atomic_fetch_add(&s->trouble->bad_records, 1);
        store_lot_remove(s, l, i);
        return false;
    }
    if (!s->staging || !s->pool) return true;
    const char *payload = (const char *)l->records[i] + RAD_STORAGE_HEADER_BYTES;
    return host_kv_pool_set_page(s->pool, host, payload,
                                 s->record_bytes - RAD_STORAGE_HEADER_BYTES) == RAD_OK;
}

rad_status store_lot_set(const page_store *s, store_lot *l, const rad_page *host, uint32_t worker,
                         uint64_t namespace_digest)
{
    size_t payload = s->record_bytes - RAD_STORAGE_HEADER_BYTES;
    place(s, l, host, worker);
    for (uint32_t i = 0; i < l->batch.count; i++) {
        char *record = l->records[i];
        rad_storage_record about = {.key = l->keys[i],
                                    .fingerprint = s->fingerprint,
                                    .namespace_digest = namespace_digest,
                                    .num_tokens = s->page_size,
                                    .payload_bytes = payload};
        if (s->staging && !s->pool)
            memset(record + RAD_STORAGE_HEADER_BYTES, 0, payload);
        else if (s->staging)
            (void)host_kv_pool_get_page(s->pool, host[i], record + RAD_STORAGE_HEADER_BYTES,
                                        payload);
        rad_storage_seal(record, &about);
    }
    rad_error why = {0};
    rad_status status = s->backend.ops->batch_set(s->backend.self, &l->batch, &why);
    store_trouble_note(s->trouble, status, &why);
    return status;
}

/* ---- trouble ---- */

enum { NONE, BEING_PUT_DOWN, THERE, QUIET_S = 30 };

void store_trouble_note(store_trouble *t, rad_status status, const rad_error *err)
{
    unsigned none = NONE;
    if (status < 0) atomic_fetch_add(&t->failed_calls, 1);
    if (status >= 0 && status != RAD_FULL) return;
    if (!atomic_compare_exchange_strong(&t->state, &none, BEING_PUT_DOWN)) return;
    snprintf(t->text, sizeof t->text, "%.199s",
             status == RAD_FULL ? "it is full, and nothing in it can be evicted"
             : err->text[0]     ? err->text
                                : "it does not say why");
    atomic_store(&t->state, THERE);
}

void store_trouble_tell(store_trouble *t, const rad_env *env, const char *who)
{
    if (atomic_load(&t->state) != THERE) return;
    uint64_t now = env->now_ns(env->user);
    if (now >= t->quiet_until_ns) {
        t->quiet_until_ns = now + (uint64_t)QUIET_S * 1000000000;
        rad_log(env, RAD_LOG_WARN, "%s: the store fails, and is a miss where it does: %s", who,
                t->text);
    }
    atomic_store(&t->state, NONE);
}
