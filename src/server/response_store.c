/* response_store.c - a list by age, and buckets by name.
 *
 * Invariant, under the lock: `bytes` is the sum over the list, at most max_bytes; each entry is in
 * the list and in its bucket's. */
#include "server/response_store.h"

#include "base/base.h"
#include "base/list.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_BUCKETS = 4096 };

typedef struct entry {
    struct entry *prev, *next; /* by age, the oldest first */
    struct entry *below;       /* in its bucket */
    uint64_t put_ns;
    size_t bytes, object_len, items_len, ids_len;
    char *owner, *id, *object, *items, *ids; /* in this block */
} entry;

struct response_store {
    pthread_mutex_t lock;
    struct {
        entry *first, *last;
    } list;
    uint64_t bytes, max_bytes, max_age_ns;
    entry *buckets[NUM_BUCKETS];
};

rad_status response_store_create(uint64_t max_bytes, uint64_t max_age_ns, response_store **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return RAD_E_NOMEM;
    (*out)->max_bytes = max_bytes;
    (*out)->max_age_ns = max_age_ns;
    pthread_mutex_init(&(*out)->lock, NULL);
    return RAD_OK;
}

/* Names are random: their own bytes are spread well enough. */
static entry **bucket_of(response_store *s, const char *id)
{
    uint32_t hash = 2166136261u;
    for (; *id; id++)
        hash = (hash ^ (unsigned char)*id) * 16777619u;
    return &s->buckets[hash % NUM_BUCKETS];
}

static void drop(response_store *s, entry *e)
{
    entry **at = bucket_of(s, e->id);
    while (*at != e)
        at = &(*at)->below;
    *at = e->below;
    LIST_REMOVE(&s->list, e, prev, next);
    s->bytes -= e->bytes;
    free(e);
}

static void drop_old(response_store *s, uint64_t now_ns)
{
    while (s->list.first && now_ns - s->list.first->put_ns >= s->max_age_ns)
        drop(s, s->list.first);
}

static entry *find(response_store *s, const char *owner, const char *id)
{
    for (entry *e = *bucket_of(s, id); e; e = e->below)
        if (strcmp(e->id, id) == 0 && strcmp(e->owner, owner) == 0) return e;
    return NULL;
}

static char *put(char **at, const char *bytes, size_t len)
{
    char *to = *at;
    if (len) memcpy(to, bytes, len);
    to[len] = 0;
    *at += len + 1;
    return to;
}

void response_store_put(response_store *s, const char *owner, const char *id, stored_text object,
                        stored_text items, stored_text ids, uint64_t now_ns)
{
    if (!owner) owner = "";
    size_t bytes = sizeof(entry) + strlen(owner) + strlen(id) + object.len + items.len + ids.len +
                   5; /* NULs */
    if (bytes > s->max_bytes) return;
    entry *e = malloc(bytes);
    if (!e) return;
    char *at = (char *)(e + 1);
    *e = (entry){.put_ns = now_ns,
                 .bytes = bytes,
                 .object_len = object.len,
                 .items_len = items.len,
                 .ids_len = ids.len};
    e->owner = put(&at, owner, strlen(owner));
    e->id = put(&at, id, strlen(id));
    e->object = put(&at, object.data, object.len);
    e->items = put(&at, items.data, items.len);
    e->ids = put(&at, ids.data, ids.len);

    pthread_mutex_lock(&s->lock);
    drop_old(s, now_ns);
    while (s->list.first && s->bytes + bytes > s->max_bytes)
        drop(s, s->list.first);
    entry **bucket = bucket_of(s, id);
    e->below = *bucket;
    *bucket = e;
    LIST_APPEND(&s->list, e, prev, next);
    s->bytes += bytes;
    pthread_mutex_unlock(&s->lock);
}

static bool copy(const char *bytes, size_t len, stored_copy *out)
{
    if (!out) return true;
    *out = (stored_copy){malloc(len + 1), len};
    if (out->data) memcpy(out->data, bytes, len + 1);
    return out->data != NULL;
}

static void drop_copy(stored_copy *c)
{
    if (!c) return;
    free(c->data);
    *c = (stored_copy){0};
}

bool response_store_get(response_store *s, const char *owner, const char *id, uint64_t now_ns,
                        stored_copy *object, stored_copy *items, stored_copy *ids)
{
    stored_copy *copies[] = {object, items, ids};
    for (size_t i = 0; i < RAD_COUNT(copies); i++)
        if (copies[i]) *copies[i] = (stored_copy){0};
    pthread_mutex_lock(&s->lock);
    drop_old(s, now_ns);
    const entry *e = find(s, owner ? owner : "", id);
    bool found = e && copy(e->object, e->object_len, object) &&
                 copy(e->items, e->items_len, items) && copy(e->ids, e->ids_len, ids);
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; !found && i < RAD_COUNT(copies); i++)
        drop_copy(copies[i]);
    return found;
}

bool response_store_delete(response_store *s, const char *owner, const char *id, uint64_t now_ns)
{
    pthread_mutex_lock(&s->lock);
    drop_old(s, now_ns);
    entry *e = find(s, owner ? owner : "", id);
    if (e) drop(s, e);
    pthread_mutex_unlock(&s->lock);
    return e != NULL;
}

uint64_t response_store_bytes(response_store *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t bytes = s->bytes;
    pthread_mutex_unlock(&s->lock);
    return bytes;
}

void response_store_destroy(response_store *s)
{
    if (!s) return;
    while (s->list.first)
        drop(s, s->list.first);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
