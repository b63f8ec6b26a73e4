/* api_keys.c - SHA-256 of each key, and of what a request brought. */
#include "server/api_keys.h"

#include "base/base.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

typedef struct api_key {
    unsigned char hash[SHA256_DIGEST_LENGTH];
    char owner[API_OWNER_BYTES];
    bool admin;
} api_key;

struct api_keys {
    uint32_t count, cap;
    bool has_plain, has_admin;
    api_key *list;
};

rad_status api_keys_create(api_keys **out, rad_error *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? RAD_OK : rad_fail(err, RAD_E_NOMEM, "no memory for API keys");
}

void api_keys_destroy(api_keys *k)
{
    if (!k) return;
    free(k->list);
    free(k);
}

bool api_keys_wanted(const api_keys *k)
{
    return k && k->has_plain;
}

bool api_keys_has_admin(const api_keys *k)
{
    return k && k->has_admin;
}

static void hash_of(const char *key, size_t len, unsigned char hash[SHA256_DIGEST_LENGTH])
{
    SHA256((const unsigned char *)key, len, hash);
}

/* All are looked at, whichever it is. */
static const api_key *find(const api_keys *k, const unsigned char *hash)
{
    const api_key *found = NULL;
    for (uint32_t i = 0; i < k->count; i++)
        if (CRYPTO_memcmp(k->list[i].hash, hash, SHA256_DIGEST_LENGTH) == 0) found = &k->list[i];
    return found;
}

/* A name that tells nothing of the key: a hash of its hash. */
static void name_owner(api_key *key)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    char *at = key->owner;
    hash_of((const char *)key->hash, sizeof key->hash, hash);
    for (int i = 0; i < 8; i++)
        at += snprintf(at, 3, "%02x", hash[i]);
}

rad_status api_keys_add(api_keys *k, const char *key, bool admin, rad_error *err)
{
    api_key made = {.admin = admin};
    size_t len = strlen(key);
    if (!len || len > API_KEY_MAX_BYTES)
        return rad_fail(err, RAD_E_INVAL, "an API key has 1 to %d bytes, not %zu",
                        API_KEY_MAX_BYTES, len);
    for (size_t i = 0; i < len; i++)
        if (key[i] <= ' ' || key[i] > '~')
            return rad_fail(err, RAD_E_INVAL, "an API key is printable ASCII without spaces");
    hash_of(key, len, made.hash);
    k->has_plain = k->has_plain || !admin;
    k->has_admin = k->has_admin || admin;
    for (uint32_t i = 0; i < k->count; i++) {
        if (memcmp(k->list[i].hash, made.hash, sizeof made.hash) != 0) continue;
        k->list[i].admin = k->list[i].admin || admin;
        return RAD_OK;
    }
    if (k->count == API_KEYS_MOST)
        return rad_fail(err, RAD_E_INVAL, "more than %d API keys", API_KEYS_MOST);
    if (k->count == k->cap) {
        uint32_t cap = RAD_MAX(16u, 2 * k->cap);
        api_key *list = realloc(k->list, cap * sizeof *list);
        if (!list) return rad_fail(err, RAD_E_NOMEM, "no memory for API keys");
        k->list = list;
        k->cap = cap;
    }
    name_owner(&made);
    k->list[k->count++] = made;
    return RAD_OK;
}

static rad_status add_line(api_keys *k, char *line, const char *path, uint32_t number,
                           rad_error *err)
{
    rad_error why = {0};
    line[strcspn(line, "\r\n")] = 0;
    if (!*line || *line == '#') return RAD_OK;
    rad_status status = api_keys_add(k, line, false, &why);
    return status ? rad_fail(err, status, "%s, line %u: %s", path, number, why.text) : RAD_OK;
}

/* What of a line found no room is a comment's, or of what is too long for a key: none by itself. */
static void skip_rest(FILE *file, const char *line, size_t room)
{
    size_t len = strlen(line);
    bool cut = len + 1 == room && line[len - 1] != '\n';
    for (int c = 0; cut && c != '\n' && c != EOF;)
        c = fgetc(file);
}

rad_status api_keys_read(api_keys *k, const char *path, rad_error *err)
{
    char line[API_KEY_MAX_BYTES + 64];
    FILE *file = fopen(path, "r");
    rad_status status = RAD_OK;
    if (!file) return rad_fail(err, RAD_E_IO, "%s: %s", path, strerror(errno));
    for (uint32_t number = 1; !status && fgets(line, sizeof line, file); number++) {
        skip_rest(file, line, sizeof line);
        status = add_line(k, line, path, number, err);
    }
    if (!status && ferror(file)) status = rad_fail(err, RAD_E_IO, "%s: cannot be read", path);
    OPENSSL_cleanse(line, sizeof line);
    fclose(file);
    return status;
}

const char *api_keys_owner(const api_keys *k, const char *authorization, const char *x_api_key,
                           bool *admin)
{
    static const char bearer[] = "Bearer ";
    unsigned char hash[SHA256_DIGEST_LENGTH];
    const char *key = x_api_key;
    if (authorization && strncasecmp(authorization, bearer, strlen(bearer)) == 0) {
        key = authorization + strlen(bearer);
        key += strspn(key, " ");
    }
    *admin = false;
    if (!key) return NULL;
    hash_of(key, strlen(key), hash);
    const api_key *found = find(k, hash);
    if (!found) return NULL;
    *admin = found->admin;
    return found->owner;
}
