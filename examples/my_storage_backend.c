/* my_storage_backend.c - your own storage backend: pages in a table in memory.
 *
 * A backend is a table of functions over records that it need not understand. This one keeps
 * as many as fit into a budget, in an open-addressing table whose places are given to the
 * newest page that hashes there, and it could as well ask a service of yours. What matters:
 *
 *   - Calls come from several threads at a time: here, one lock.
 *   - `done` says for each record whether it came, or is kept. Nothing else is believed.
 *   - No call waits for ever; a failure is a status and words, and becomes a miss.
 *   - Whoever asks verifies what comes (rad_storage_verify), so a damaged record is a miss.
 *
 * main() stores pages, asks for them, and lets a bit rot. */
#include <radish/storage.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 64 };

typedef struct my_store {
    pthread_mutex_t lock;
    struct {
        rad_storage_key key;
        void *record; /* NULL: free */
        size_t bytes;
    } places[PLACES];
    rad_storage_stats stats;
} my_store;

static unsigned place_of(const rad_storage_key *key)
{
    return key->bytes[0] % PLACES; /* a key is a SHA-256: any byte is as good */
}

static int holds(const my_store *s, unsigned place, const rad_storage_key *key, size_t bytes)
{
    return s->places[place].record && s->places[place].bytes == bytes &&
           memcmp(&s->places[place].key, key, sizeof *key) == 0;
}

static rad_status my_exists(void *self, const rad_storage_batch *b, uint32_t *present,
                            rad_error *err)
{
    my_store *s = self;
    (void)err;
    pthread_mutex_lock(&s->lock);
    for (*present = 0; *present < b->count; ++*present)
        if (!holds(s, place_of(&b->keys[*present]), &b->keys[*present], b->record_bytes)) break;
    pthread_mutex_unlock(&s->lock);
    return RAD_OK;
}

static rad_status my_get(void *self, const rad_storage_batch *b, rad_error *err)
{
    my_store *s = self;
    (void)err;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < b->count; i++) {
        unsigned place = place_of(&b->keys[i]);
        int there = holds(s, place, &b->keys[i], b->record_bytes);
        if (there) memcpy(b->records[i], s->places[place].record, b->record_bytes);
        if (b->done) b->done[i] = (uint8_t)there;
        s->stats.gets++;
        s->stats.hits += (uint64_t)there;
    }
    pthread_mutex_unlock(&s->lock);
    return RAD_OK;
}

static void drop(my_store *s, unsigned place)
{
    if (!s->places[place].record) return;
    free(s->places[place].record);
    s->places[place].record = NULL;
    s->stats.pages--;
    s->stats.bytes -= s->places[place].bytes;
}

static rad_status my_set(void *self, const rad_storage_batch *b, rad_error *err)
{
    my_store *s = self;
    rad_status status = RAD_OK;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < b->count; i++) {
        unsigned place = place_of(&b->keys[i]);
        int there = holds(s, place, &b->keys[i], b->record_bytes);
        void *copy = there ? NULL : malloc(b->record_bytes);
        if (copy) {
            if (s->places[place].record) s->stats.evicted++;
            drop(s, place);
            memcpy(copy, b->records[i], b->record_bytes);
            s->places[place].key = b->keys[i];
            s->places[place].record = copy;
            s->places[place].bytes = b->record_bytes;
            s->stats.sets++;
            s->stats.pages++;
            s->stats.bytes += b->record_bytes;
        } else if (!there)
            status = rad_fail(err, RAD_E_NOMEM, "my_store: no memory for a page");
        if (b->done) b->done[i] = there || copy;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void my_get_stats(void *self, rad_storage_stats *stats)
{
    my_store *s = self;
    pthread_mutex_lock(&s->lock);
    *stats = s->stats;
    pthread_mutex_unlock(&s->lock);
}

static void my_close(void *self)
{
    my_store *s = self;
    for (unsigned i = 0; i < PLACES; i++)
        drop(s, i);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* remove, clear and flush are optional. */
static const rad_storage_ops my_ops = {
    .struct_size = sizeof(rad_storage_ops),
    .name = "mine",
    .batch_exists = my_exists,
    .batch_get = my_get,
    .batch_set = my_set,
    .get_stats = my_get_stats,
    .close = my_close,
};

static rad_storage my_open(void)
{
    rad_storage store = {&my_ops, calloc(1, sizeof(my_store))};
    if (!store.self) exit(1);
    pthread_mutex_init(&((my_store *)store.self)->lock, NULL);
    return store;
}

/* From here on, what radish does with a backend. */
enum { PAGES = 8, PAYLOAD = 4096, RECORD = RAD_STORAGE_HEADER_BYTES + PAYLOAD };

static unsigned char memory[PAGES][RECORD];

static unsigned count_good(rad_storage store, const rad_storage_key *keys)
{
    void *records[PAGES];
    uint8_t done[PAGES];
    unsigned good = 0;
    for (unsigned i = 0; i < PAGES; i++)
        records[i] = memset(memory[i], 0, RECORD);
    rad_storage_batch b = {
        .keys = keys, .records = records, .record_bytes = RECORD, .count = PAGES, .done = done};
    if (store.ops->batch_get(store.self, &b, NULL)) return 0;
    for (unsigned i = 0; i < PAGES; i++)
        good += done[i] && !rad_storage_verify(memory[i], RECORD, &keys[i], NULL, NULL, NULL);
    return good;
}

int main(void)
{
    rad_storage_identity identity = {.struct_size = sizeof identity,
                                     .model = "an example",
                                     .page_size = 16,
                                     .num_layers = 2,
                                     .num_kv_heads = 1,
                                     .head_dim = 16,
                                     .v_head_dim = 16};
    rad_storage_fingerprint fingerprint;
    rad_storage_key keys[PAGES];
    void *records[PAGES];
    uint8_t done[PAGES];
    rad_error err;
    if (rad_storage_fingerprint_of(&identity, &fingerprint, &err)) return 1;
    for (unsigned i = 0; i < PAGES; i++) {
        rad_page_hash page = {{(uint8_t)i}};
        if (rad_storage_key_of(&fingerprint, &page, &keys[i])) return 1;
        rad_storage_record about = {
            .key = keys[i], .fingerprint = fingerprint, .num_tokens = 16, .payload_bytes = PAYLOAD};
        memset(memory[i] + RAD_STORAGE_HEADER_BYTES, (int)i, PAYLOAD);
        rad_storage_seal(memory[i], &about);
        records[i] = memory[i];
    }
    rad_storage store = my_open();
    rad_storage_batch b = {
        .keys = keys, .records = records, .record_bytes = RECORD, .count = PAGES, .done = done};
    uint32_t present;
    if (store.ops->batch_set(store.self, &b, &err) ||
        store.ops->batch_exists(store.self, &b, &present, &err))
        return 1;

    rad_storage_stats stats;
    store.ops->get_stats(store.self, &stats);
    unsigned kept = (unsigned)stats.pages, good = count_good(store, keys), after;
    my_store *mine = store.self;
    for (unsigned i = 0; i < PLACES; i++)
        if (mine->places[i].record) {
            ((unsigned char *)mine->places[i].record)[200] ^= 1;
            break;
        }
    after = count_good(store, keys);
    store.ops->close(store.self);
    printf("%u pages stored, %u found whole, %u after a bit of one has changed\n", kept, good,
           after);
    return kept > 0 && good == kept && after == kept - 1 ? 0 : 1;
}
