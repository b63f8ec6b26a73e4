/* storage_mem.c - records in a table; see the header. */
#include "gear/storage_mem.h"

#include <time.h>

rad_status storage_mem_init(storage_mem *s, const rad_env *env, uint32_t capacity,
                            size_t record_bytes)
{
    *s = (storage_mem){
        .env = rad_env_or_default(env), .capacity = capacity, .record_bytes = record_bytes};
    pthread_mutex_init(&s->lock, NULL);
    s->keys = rad_alloc(&s->env, capacity * sizeof *s->keys);
    s->records = rad_alloc(&s->env, capacity * sizeof *s->records);
    if (s->keys && s->records && map_init(&s->by_key, &s->env, capacity)) return RAD_OK;
    storage_mem_fini(s);
    return RAD_E_NOMEM;
}

void storage_mem_fini(storage_mem *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        rad_free(&s->env, s->records[i], s->record_bytes);
    rad_free(&s->env, s->keys, s->capacity * sizeof *s->keys);
    rad_free(&s->env, s->records, s->capacity * sizeof *s->records);
    map_fini(&s->by_key);
    pthread_mutex_destroy(&s->lock);
}

static uint32_t hash_of(const rad_storage_key *key)
{
    uint32_t hash;
    memcpy(&hash, key->bytes, sizeof hash);
    return hash;
}

/* The entry, plus one; 0: there is none. */
static uint32_t find(const storage_mem *s, const rad_storage_key *key)
{
    uint32_t hash = hash_of(key), at = map_start(&s->by_key, hash);
    for (uint32_t id; (id = map_next(&s->by_key, hash, &at));)
        if (memcmp(&s->keys[id - 1], key, sizeof *key) == 0) return id;
    return 0;
}

static storage_fate fate_of(storage_mem *s, storage_call call)
{
    return s->script ? s->script(s->user, call, s->calls++) : STORAGE_WELL;
}

static void damage(char *record, size_t bytes, storage_fate fate)
{
    if (fate == STORAGE_TORN) record[bytes - 1 - bytes / 3] ^= 0x10;
    if (fate == STORAGE_CUT) memset(record + bytes / 2, 0, bytes / 2);
}

static storage_mem *enter(void *self)
{
    storage_mem *s = self;
    if (s->delay_us) {
        struct timespec pause = {s->delay_us / 1000000, (long)(s->delay_us % 1000000) * 1000};
        nanosleep(&pause, NULL);
    }
    pthread_mutex_lock(&s->lock);
    return s;
}

static rad_status leave(storage_mem *s, rad_status status, rad_error *err)
{
    s->stats.errors += status < 0;
    pthread_mutex_unlock(&s->lock);
    return status ? rad_fail(err, status, "storage_mem: it fails, as was asked for") : RAD_OK;
}

static rad_status mem_exists(void *self, const rad_storage_batch *b, uint32_t *present,
                             rad_error *err)
{
    storage_mem *s = enter(self);
    rad_status status = RAD_OK;
    *present = 0;
    for (uint32_t i = 0; i < b->count && !status; i++) {
        storage_fate fate = fate_of(s, STORAGE_EXISTS);
        if (fate == STORAGE_FAILS) status = RAD_E_IO;
        if (fate == STORAGE_MISSING || !find(s, &b->keys[i])) break;
        *present += status == RAD_OK;
    }
    return leave(s, status, err);
}

static rad_status mem_get(void *self, const rad_storage_batch *b, rad_error *err)
{
    storage_mem *s = enter(self);
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < b->count && !status; i++) {
        storage_fate fate = fate_of(s, STORAGE_GET);
        uint32_t id = find(s, &b->keys[i]);
        if (fate == STORAGE_FAILS) status = RAD_E_IO;
        s->stats.gets++;
        if (status || fate == STORAGE_MISSING || !id) continue;
        memcpy(b->records[i], s->records[id - 1], b->record_bytes);
        damage(b->records[i], b->record_bytes, fate);
        b->done[i] = 1;
        s->stats.hits++;
    }
    return leave(s, status, err);
}

static rad_status mem_set(void *self, const rad_storage_batch *b, rad_error *err)
{
    storage_mem *s = enter(self);
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < b->count && !status; i++) {
        storage_fate fate = fate_of(s, STORAGE_SET);
        if (fate == STORAGE_FAILS) status = RAD_E_IO;
        if (status || fate == STORAGE_MISSING) continue;
        uint32_t id = find(s, &b->keys[i]);
        if (!id) {
            bool fits = s->count < s->capacity && b->record_bytes <= s->record_bytes;
            char *record = fits ? rad_alloc(&s->env, s->record_bytes) : NULL;
            if (!record) {
                status = RAD_FULL;
                break;
            }
            s->keys[s->count] = b->keys[i];
            s->records[s->count] = record;
            id = ++s->count;
            map_insert(&s->by_key, hash_of(&b->keys[i]), id);
            memcpy(record, b->records[i], b->record_bytes);
            damage(record, b->record_bytes, fate);
            s->stats.sets++;
        }
        b->done[i] = 1;
    }
    return leave(s, status, err);
}

/* The last entry takes the place of the one that goes. */
static rad_status mem_remove(void *self, const rad_storage_key *key, rad_error *err)
{
    storage_mem *s = enter(self);
    uint32_t id = find(s, key), last = s->count;
    if (id && fate_of(s, STORAGE_REMOVE) == STORAGE_WELL) {
        map_remove(&s->by_key, hash_of(key), id);
        rad_free(&s->env, s->records[id - 1], s->record_bytes);
        if (id != last) {
            map_replace(&s->by_key, hash_of(&s->keys[last - 1]), last, id);
            s->keys[id - 1] = s->keys[last - 1];
            s->records[id - 1] = s->records[last - 1];
        }
        s->count--;
        s->stats.quarantined++;
    }
    return leave(s, RAD_OK, err);
}

static rad_status mem_clear(void *self, rad_error *err)
{
    storage_mem *s = enter(self);
    for (uint32_t i = 0; i < s->count; i++)
        rad_free(&s->env, s->records[i], s->record_bytes);
    s->count = 0;
    map_clear(&s->by_key);
    return leave(s, RAD_OK, err);
}

static void mem_stats(void *self, rad_storage_stats *stats)
{
    storage_mem *s = enter(self);
    *stats = s->stats;
    stats->pages = s->count;
    stats->bytes = (uint64_t)s->count * s->record_bytes;
    (void)leave(s, RAD_OK, NULL);
}

static void mem_close(void *self)
{
    storage_mem *s = self;
    s->closed++;
}

static const rad_storage_ops mem_ops = {.struct_size = sizeof mem_ops,
                                        .name = "mem",
                                        .batch_exists = mem_exists,
                                        .batch_get = mem_get,
                                        .batch_set = mem_set,
                                        .remove = mem_remove,
                                        .clear = mem_clear,
                                        .get_stats = mem_stats,
                                        .close = mem_close};

rad_storage storage_mem_open(storage_mem *s)
{
    return (rad_storage){.ops = &mem_ops, .self = s};
}

void storage_mem_spoil(storage_mem *s, uint32_t pick, size_t byte)
{
    pthread_mutex_lock(&s->lock);
    if (s->count) s->records[pick % s->count][RAD_STORAGE_HEADER_BYTES + byte] ^= 1;
    pthread_mutex_unlock(&s->lock);
}
