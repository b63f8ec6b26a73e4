/* api_keys.h - who may ask: the keys that a server takes, and whose request one is.
 *
 * A key comes as "Authorization: Bearer KEY" or as "x-api-key: KEY". Of each only a hash is kept,
 * and every one is compared with all of them, in a time that does not tell which began alike. Each
 * key's owner has a name, made of the key, by which the cache keeps what is his apart: the same key
 * finds its prefixes after a restart too. Constant after create; any thread. */
#ifndef SERVER_API_KEYS_H
#define SERVER_API_KEYS_H

#include <radish/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct api_keys api_keys;

enum { API_KEYS_MOST = 4096, API_KEY_MAX_BYTES = 512, API_OWNER_BYTES = 20 };

rad_status api_keys_create(api_keys **out, rad_error *err);
void api_keys_destroy(api_keys *k); /* NULL is fine */

/* RAD_E_INVAL in words: empty, too long, of bytes that no header has, or one too many. A key that
 * is there already becomes an administrator's too where `admin`. */
rad_status api_keys_add(api_keys *k, const char *key, bool admin, rad_error *err);

/* A key a line; empty lines and those that begin with '#' are none. Errors as those above, with the
 * line; RAD_E_IO. What was read is wiped from memory. */
rad_status api_keys_read(api_keys *k, const char *path, rad_error *err);

bool api_keys_wanted(const api_keys *k); /* false for NULL, and where all are administrators' */
bool api_keys_has_admin(const api_keys *k);

/* The owner of the key in one of these headers (NULL: not there), or NULL: no key of ours. The name
 * lives as long as k. */
const char *api_keys_owner(const api_keys *k, const char *authorization, const char *x_api_key,
                           bool *admin);

#endif
