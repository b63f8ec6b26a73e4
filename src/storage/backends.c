/* backends.c - the table of the stores that come with radish; see the header. */
#include "storage/backends.h"

#include <radish/storage_file.h>
#include <radish/storage_redis.h>

#include <assert.h>
#include <string.h>

#include "base/word_list.h"

static const char *const fsyncs[] = {"default", "never", "always", NULL};

static const storage_option file_options[] = {
    {"max_size", STORAGE_U64, offsetof(rad_storage_file_params, max_bytes), NULL},
    {"fsync", STORAGE_WORD, offsetof(rad_storage_file_params, fsync), fsyncs},
    {"threads", STORAGE_U32, offsetof(rad_storage_file_params, threads), NULL},
    {"lock_timeout_ms", STORAGE_U32, offsetof(rad_storage_file_params, lock_timeout_ms), NULL}};

static rad_status open_file(const rad_env *env, const storage_place *place, void *params,
                            rad_storage *out, rad_error *err)
{
    static_assert(sizeof(rad_storage_file_params) <= sizeof(storage_params), "");
    rad_storage_file_params *p = params;
    p->struct_size = sizeof *p;
    p->dir = place->where;
    p->mode = place->mode;
    return rad_storage_file_open(env, p, out, err);
}

static const storage_option redis_options[] = {
    {"user", STORAGE_TEXT, offsetof(rad_storage_redis_params, user), NULL},
    {"allowed_hosts", STORAGE_TEXT, offsetof(rad_storage_redis_params, allowed_hosts), NULL},
    {"prefix", STORAGE_TEXT, offsetof(rad_storage_redis_params, prefix), NULL},
    {"ttl_seconds", STORAGE_U32, offsetof(rad_storage_redis_params, ttl_seconds), NULL},
    {"connect_timeout_ms", STORAGE_U32, offsetof(rad_storage_redis_params, connect_timeout_ms),
     NULL},
    {"timeout_ms", STORAGE_U32, offsetof(rad_storage_redis_params, timeout_ms), NULL},
    {"threads", STORAGE_U32, offsetof(rad_storage_redis_params, threads), NULL}};

static rad_status open_redis(const rad_env *env, const storage_place *place, void *params,
                             rad_storage *out, rad_error *err)
{
    static_assert(sizeof(rad_storage_redis_params) <= sizeof(storage_params), "");
    rad_storage_redis_params *p = params;
    p->struct_size = sizeof *p;
    p->nodes = place->where;
    p->password = place->password;
    return rad_storage_redis_open(env, p, out, err);
}

static const storage_backend backends[] = {
    {.scheme = "file",
     .form = "file:DIR",
     .options = file_options,
     .num_options = RAD_COUNT(file_options),
     .open = open_file},
    {.scheme = "redis",
     .form = "redis:HOST:PORT,...",
     .options = redis_options,
     .num_options = RAD_COUNT(redis_options),
     .takes_password = true,
     .open = open_redis},
};

const storage_backend *storage_backend_find(const char *spec, const char **where)
{
    for (size_t i = 0; i < RAD_COUNT(backends); i++) {
        size_t n = strlen(backends[i].scheme);
        if (strncmp(spec, backends[i].scheme, n) != 0 || spec[n] != ':') continue;
        *where = spec + n + 1;
        return &backends[i];
    }
    return NULL;
}

const char *storage_backend_forms(char *text, size_t size)
{
    *text = 0;
    for (uint32_t i = 0; i < RAD_COUNT(backends); i++)
        word_list_add(text, size, i, RAD_COUNT(backends), "or", backends[i].form);
    return text;
}
