/* response_store.h - answers of /v1/responses, kept so that the next request can go on from them.
 *
 * Of each: the object that was answered, and the conversation up to its end, both as JSON text, and
 * the ids of that conversation as they were generated (response_ids.c).
 * Bounded by bytes and by age: the oldest goes first. An answer belongs to who asked for it: nobody
 * else finds it. Any thread. */
#ifndef SERVER_RESPONSE_STORE_H
#define SERVER_RESPONSE_STORE_H

#include <radish/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct response_store response_store;

rad_status response_store_create(uint64_t max_bytes, uint64_t max_age_ns, response_store **out);
void response_store_destroy(response_store *s); /* NULL is fine */

typedef struct stored_text {
    const char *data;
    size_t len;
} stored_text;

typedef struct stored_copy {
    char *data; /* NUL behind it */
    size_t len;
} stored_copy;

/* Copies all. What has no room even alone is not kept. */
void response_store_put(response_store *s, const char *owner, const char *id, stored_text object,
                        stored_text items, stored_text ids, uint64_t now_ns);

/* malloc'ed copies, any pointer may be NULL; false: there is none of that owner's, or no
 * memory. */
bool response_store_get(response_store *s, const char *owner, const char *id, uint64_t now_ns,
                        stored_copy *object, stored_copy *items, stored_copy *ids);
bool response_store_delete(response_store *s, const char *owner, const char *id, uint64_t now_ns);

uint64_t response_store_bytes(response_store *s);

#endif
