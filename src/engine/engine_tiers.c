/* engine_tiers.c - from SGLang's options to HiRadixCache's, and stores by name.
 *
 * What a stored page is filed under: a digest of the whole model file, so that a finetune with
 * the same name and shapes never meets the original; what weights were made of it and which
 * kernels computed, since bits depend on that; and the pool's shape. */
#define _GNU_SOURCE
#include "engine/engine_tiers.h"

#include <radish/radish.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/word_list.h"
#include "engine/engine_secret.h"
#include "storage/backends.h"

static const char *const write_policies[] = {"write_through", "write_through_selective",
                                             "write_back", NULL};
static const char *const prefetch_policies[] = {"best_effort", "wait_complete", "timeout", NULL};
static const char *const layouts[] = {"layer_first", "page_first", NULL};

/* The place of a word in a list, which NULL ends; no word is the first. -1: it is not there. */
static int find_word(const char *const *words, const char *word)
{
    for (int i = 0; word && words[i]; i++)
        if (strcmp(words[i], word) == 0) return i;
    return word ? -1 : 0;
}

/* ---- options in JSON ---- */

typedef struct extra_option {
    const char *name;
    enum { EXTRA_U32, EXTRA_U64, EXTRA_TEXT, EXTRA_WORD, EXTRA_SECONDS } type;
    void *target;
    const char *const *words; /* EXTRA_WORD: a uint32_t, the place of one of these; then NULL */
} extra_option;

static bool read_value(const json_t *value, const extra_option *o)
{
    if (o->type == EXTRA_TEXT || o->type == EXTRA_WORD) {
        if (!json_is_string(value)) return false;
        const char *word = json_string_value(value);
        if (o->type == EXTRA_TEXT) {
            *(const char **)o->target = word;
            return true;
        }
        int place = find_word(o->words, word);
        if (place >= 0) *(uint32_t *)o->target = (uint32_t)place;
        return place >= 0;
    }
    if (!json_is_number(value) || json_is_true(value)) return false;
    double number = json_number_value(value);
    if (o->type == EXTRA_SECONDS) {
        if (!(number >= 0 && number < 1e9)) return false;
        *(uint64_t *)o->target = (uint64_t)(number * 1e9);
        return true;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    if (o->type == EXTRA_U32 && json_integer_value(value) > UINT32_MAX) return false;
    if (o->type == EXTRA_U32)
        *(uint32_t *)o->target = (uint32_t)json_integer_value(value);
    else
        *(uint64_t *)o->target = (uint64_t)json_integer_value(value);
    return true;
}

static rad_status refuse_value(const extra_option *o, rad_error *err)
{
    char words[128];
    if (o->type != EXTRA_WORD)
        return rad_fail(err, RAD_E_INVAL, "hicache: the extra config's '%s' has a wrong value",
                        o->name);
    return rad_fail(err, RAD_E_INVAL, "hicache: the extra config's '%s' is %s", o->name,
                    word_list(words, sizeof words, o->words, "or"));
}

/* Takes what `options` name out of the object; what is left is nobody's. */
static rad_status take_options(json_t *object, const extra_option *options, size_t count,
                               rad_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, options[i].name);
        if (value && !read_value(value, &options[i])) return refuse_value(&options[i], err);
    }
    return RAD_OK;
}

static bool is_named(const extra_option *options, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(options[i].name, key) == 0) return true;
    return false;
}

static rad_status parse_object(const char *text, json_t **out, rad_error *err)
{
    json_error_t why;
    *out = text ? json_loads(text, JSON_REJECT_DUPLICATES, &why) : json_object();
    if (json_is_object(*out)) return RAD_OK;
    json_decref(*out);
    *out = NULL;
    return rad_fail(err, RAD_E_INVAL, "hicache: the extra config is no JSON object: %.200s",
                    text ? text : "");
}

/* The options of the prefetch, which stand in the same object as the store's. */
enum { PREFETCH_OPTIONS = 4 };

static void prefetch_options(rad_hicache_params *p, extra_option out[PREFETCH_OPTIONS])
{
    out[0] = (extra_option){"prefetch_threshold", EXTRA_U32, &p->prefetch_threshold, NULL};
    out[1] = (extra_option){"prefetch_timeout_base", EXTRA_SECONDS, &p->timeout_base_ns, NULL};
    out[2] =
        (extra_option){"prefetch_timeout_per_ki_token", EXTRA_SECONDS, &p->timeout_per_ki_ns, NULL};
    out[3] = (extra_option){"prefetch_timeout_max", EXTRA_SECONDS, &p->timeout_max_ns, NULL};
}

/* ---- stores ---- */

/* The password from the config, a file, or the environment; *password is NULL without one. One that
 * clients' words name a store for is theirs to give: ours would go to any host they like. */
static rad_status find_password(const engine_store_words *words, const char *file,
                                char buffer[ENGINE_SECRET_BYTES], const char **password,
                                rad_error *err)
{
    if (file && words->from_client)
        return rad_fail(err, RAD_E_INVAL,
                        "hicache: password_file is for who starts the server, not for clients");
    if (file && *password)
        return rad_fail(err, RAD_E_INVAL, "hicache: password or password_file, not both");
    if (file) {
        rad_status status = engine_secret_read(file, buffer, err);
        if (status) return status;
        *password = buffer;
    }
    if (!*password && !words->from_client) *password = getenv(ENGINE_SECRET_ENV);
    if (*password && !**password) *password = NULL;
    return RAD_OK;
}

enum { MOST_STORE_OPTIONS = 16, PASSWORD_OPTIONS = 2 };

/* The backend's own options, and those of a password where it takes one. Returns how many. */
static size_t store_options(const storage_backend *b, storage_params *params, const char **password,
                            const char **password_file, extra_option out[MOST_STORE_OPTIONS])
{
    size_t count = RAD_MIN(b->num_options, (size_t)MOST_STORE_OPTIONS - PASSWORD_OPTIONS);
    for (size_t i = 0; i < count; i++) {
        const storage_option *o = &b->options[i];
        out[i] = (extra_option){.name = o->name,
                                .type = o->type == STORAGE_U32    ? EXTRA_U32
                                        : o->type == STORAGE_U64  ? EXTRA_U64
                                        : o->type == STORAGE_TEXT ? EXTRA_TEXT
                                                                  : EXTRA_WORD,
                                .target = (char *)params + o->offset,
                                .words = o->words};
    }
    if (!b->takes_password) return count;
    out[count++] = (extra_option){"password", EXTRA_TEXT, password, NULL};
    out[count++] = (extra_option){"password_file", EXTRA_TEXT, password_file, NULL};
    return count;
}

static rad_status open_with(const rad_env *env, const engine_store_words *words, json_t *extra,
                            rad_storage *out, rad_error *err)
{
    char forms[256], secret[ENGINE_SECRET_BYTES];
    const char *password_file = NULL, *key;
    storage_place place = {.mode = words->mode};
    const storage_backend *b = storage_backend_find(words->spec, &place.where);
    if (!b)
        return rad_fail(err, RAD_E_INVAL, "hicache: a storage backend is %s, not %.200s",
                        storage_backend_forms(forms, sizeof forms), words->spec);
    storage_params params = {0};
    rad_hicache_params unused = {0};
    extra_option own[MOST_STORE_OPTIONS], prefetch[PREFETCH_OPTIONS];
    size_t count = store_options(b, &params, &place.password, &password_file, own);
    prefetch_options(&unused, prefetch);
    json_t *value;
    /* clang-format off: it takes the loop for a call */
    json_object_foreach(extra, key, value)
    {
        if (!is_named(own, count, key) && !is_named(prefetch, PREFETCH_OPTIONS, key))
            return rad_fail(err, RAD_E_INVAL,
                            "hicache: the extra config has an unknown option '%.60s'", key);
    }
    /* clang-format on */
    rad_status status = take_options(extra, own, count, err);
    if (!status && b->takes_password)
        status = find_password(words, password_file, secret, &place.password, err);
    if (!status) status = b->open(env, &place, &params, out, err);
    explicit_bzero(secret, sizeof secret);
    return status;
}

rad_status engine_store_open(const rad_env *env, const engine_store_words *words, rad_storage *out,
                             rad_error *err)
{
    json_t *extra;
    rad_status status = parse_object(words->extra_config, &extra, err);
    if (status != RAD_OK) return status;
    status = open_with(env, words, extra, out, err);
    json_decref(extra);
    return status;
}

/* ---- the options ---- */

/* An option of the tiers that asks for something, where there are none; NULL: there is none such.
 * The defaults in words are no wish. */
static const char *idle_option(const engine_params *p)
{
    const struct {
        const char *name, *word, *usual; /* usual NULL: any word is a wish */
    } words[] = {
        {"hicache_write_policy", p->hicache_write_policy, write_policies[0]},
        {"hicache_mem_layout", p->hicache_mem_layout, layouts[RAD_HOST_PAGE_FIRST]},
        {"hicache_eviction_policy", p->hicache_eviction_policy, "lru"},
        {"hicache_storage_prefetch_policy", p->hicache_storage_prefetch_policy,
         prefetch_policies[RAD_PREFETCH_TIMEOUT]},
        {"hicache_storage_backend", p->hicache_storage_backend, NULL},
        {"hicache_storage_backend_extra_config", p->hicache_storage_backend_extra_config, NULL},
        {"hicache_storage_mode", p->hicache_storage_mode, "0600"}};
    const struct {
        const char *name;
        double value, usual;
    } numbers[] = {{"hicache_ratio", p->hicache_ratio, ENGINE_HICACHE_RATIO},
                   {"hicache_size", p->hicache_size, 0},
                   {"hicache_load_back_threshold", p->hicache_load_back_threshold,
                    RAD_HICACHE_LOAD_BACK_THRESHOLD},
                   {"hicache_prefetch_threshold", p->hicache_prefetch_threshold,
                    RAD_HICACHE_PREFETCH_THRESHOLD},
                   {"hicache_max_transfers", p->hicache_max_transfers, RAD_HICACHE_MAX_TRANSFERS},
                   {"hicache_copy_threads", p->hicache_copy_threads, RAD_HICACHE_COPY_THREADS},
                   {"hicache_store_threads", p->hicache_store_threads, RAD_HICACHE_STORE_THREADS},
                   {"hicache_pin_memory", p->hicache_pin_memory, 0}};
    for (size_t i = 0; i < RAD_COUNT(numbers); i++)
        if (numbers[i].value != 0 && numbers[i].value != numbers[i].usual) return numbers[i].name;
    for (size_t i = 0; i < RAD_COUNT(words); i++)
        if (words[i].word && (!words[i].usual || strcmp(words[i].word, words[i].usual) != 0))
            return words[i].name;
    return NULL;
}

static rad_status host_eviction(const engine_params *p, rad_eviction_options *out, rad_error *err)
{
    *out = (rad_eviction_options){0};
    if (!p->hicache_eviction_policy) return RAD_OK;
    rad_error why = {0};
    rad_status status = rad_eviction_policy_parse(p->hicache_eviction_policy, &out->policy, &why);
    if (status != RAD_OK) return rad_fail(err, status, "hicache_eviction_policy: %s", why.text);
    if (out->policy == RAD_EVICT_USER)
        return rad_fail(err, RAD_E_INVAL, "hicache_eviction_policy 'user' is the library's only");
    return status;
}

/* In octal, with or without a zero in front; UINT32_MAX: it is none that a store takes. */
static uint32_t storage_mode(const engine_params *p)
{
    static const char *const modes[] = {"0600", "0640", "0660", "600", "640", "660", NULL};
    static const uint32_t bits[] = {0600, 0640, 0660};
    int at = find_word(modes, p->hicache_storage_mode);
    return at < 0 ? UINT32_MAX : bits[at % 3];
}

rad_status engine_tiers_check(const engine_params *p, rad_error *err)
{
    if (storage_mode(p) == UINT32_MAX)
        return rad_fail(err, RAD_E_INVAL,
                        "hicache_storage_mode '%.40s' is none of 0600, 0640, 0660",
                        p->hicache_storage_mode);
    const struct {
        const char *name, *word;
        const char *const *words;
    } choices[] = {
        {"hicache_write_policy", p->hicache_write_policy, write_policies},
        {"hicache_storage_prefetch_policy", p->hicache_storage_prefetch_policy, prefetch_policies},
        {"hicache_mem_layout", p->hicache_mem_layout, layouts}};
    for (size_t i = 0; i < RAD_COUNT(choices); i++) {
        char names[128];
        if (find_word(choices[i].words, choices[i].word) >= 0) continue;
        return rad_fail(err, RAD_E_INVAL, "%s '%.40s': there are %s", choices[i].name,
                        choices[i].word, word_list(names, sizeof names, choices[i].words, "and"));
    }
    rad_eviction_options unused;
    rad_status status = host_eviction(p, &unused, err);
    if (status != RAD_OK) return status;
    if (!(p->hicache_ratio >= 0 && p->hicache_ratio < 1e6) ||
        !(p->hicache_size >= 0 && p->hicache_size < 1e6))
        return rad_fail(err, RAD_E_INVAL, "hicache_ratio %g, hicache_size %g GB", p->hicache_ratio,
                        p->hicache_size);
    if (p->hicache_max_transfers > 65535 || p->hicache_copy_threads > 64 ||
        p->hicache_store_threads > 64)
        return rad_fail(err, RAD_E_INVAL,
                        "hicache_max_transfers %u (65535 at most), hicache_copy_threads %u, "
                        "hicache_store_threads %u (64 at most)",
                        p->hicache_max_transfers, p->hicache_copy_threads,
                        p->hicache_store_threads);
    if (p->enable_hierarchical_cache && p->disable_radix_cache)
        return rad_fail(err, RAD_E_INVAL, "a hierarchical cache needs the radix cache");
    const char *idle = p->enable_hierarchical_cache ? NULL : idle_option(p);
    if (idle)
        return rad_fail(err, RAD_E_INVAL,
                        "%s needs enable_hierarchical_cache: without "
                        "it there is no host tier, and nothing behind it",
                        idle);
    return RAD_OK;
}

rad_status engine_tiers_identify(engine_tiers *t, rad_error *err)
{
    const char *digest;
    if (t->identified) return RAD_OK;
    rad_status status = gguf_source_digest(t->source, &digest, err);
    if (status) return status;
    snprintf(t->model, sizeof t->model, "%s", digest);
    t->identified = true;
    return RAD_OK;
}

/* Prefetches' options; the rest is the store's, if there is one. */
static rad_status read_extra_config(engine_tiers *t, const engine_params *p, rad_error *err)
{
    json_t *extra;
    extra_option options[PREFETCH_OPTIONS];
    rad_status status = parse_object(p->hicache_storage_backend_extra_config, &extra, err);
    if (status != RAD_OK) return status;
    prefetch_options(&t->hicache, options);
    if (p->hicache_prefetch_threshold && json_object_get(extra, options[0].name))
        status = rad_fail(err, RAD_E_INVAL,
                          "hicache_prefetch_threshold %u, and the extra config has another: say it "
                          "once",
                          p->hicache_prefetch_threshold);
    if (status == RAD_OK) status = take_options(extra, options, PREFETCH_OPTIONS, err);
    const char *key;
    json_t *value;
    json_object_foreach(extra, key, value)
    {
        if (status == RAD_OK && !p->hicache_storage_backend &&
            !is_named(options, PREFETCH_OPTIONS, key))
            status = rad_fail(err, RAD_E_INVAL,
                              "hicache: the extra config's '%.60s' is for a storage backend, and "
                              "there is none",
                              key);
    }
    json_decref(extra);
    return status;
}

/* What pages are filed under, but for the digest of the file. */
static void name_model(engine_tiers *t, const char *name, const char *guarantee)
{
    snprintf(t->model, sizeof t->model, "%.79s", name ? name : "");
    t->identified = !t->source;
    snprintf(t->build, sizeof t->build, "%s, %.255s", rad_version_string(), guarantee);
    t->identity = (rad_storage_identity){
        .struct_size = sizeof t->identity, .model = t->model, .build = t->build};
    t->hicache.identity = &t->identity;
}

rad_status engine_tiers_init(engine_tiers *t, const rad_env *env, const engine_params *p,
                             gguf_source *source, const char *name, const char *guarantee,
                             rad_error *err)
{
    *t = (engine_tiers){.source = source};
    rad_status status = engine_tiers_check(p, err);
    if (status != RAD_OK || !p->enable_hierarchical_cache) return status;
    t->enabled = true;
    t->mode = storage_mode(p);
    int layout = find_word(layouts, p->hicache_mem_layout);
    if (!p->hicache_mem_layout) layout = RAD_HOST_PAGE_FIRST; /* a store may come later */
    t->host_pool = (rad_host_kv_pool_params){.struct_size = sizeof t->host_pool,
                                             .ratio = p->hicache_ratio > 0 ? p->hicache_ratio
                                                                           : ENGINE_HICACHE_RATIO,
                                             .bytes = (uint64_t)(p->hicache_size * 1e9),
                                             .layout = (uint32_t)layout,
                                             .pinned = p->hicache_pin_memory};
    int writes = find_word(write_policies, p->hicache_write_policy);
    int waits = find_word(prefetch_policies, p->hicache_storage_prefetch_policy);
    if (!p->hicache_storage_prefetch_policy) waits = RAD_PREFETCH_TIMEOUT;
    t->hicache = (rad_hicache_params){.struct_size = sizeof t->hicache,
                                      .write_policy = (uint32_t)writes,
                                      .prefetch_policy = (uint32_t)waits,
                                      .load_back_threshold = p->hicache_load_back_threshold,
                                      .prefetch_threshold = p->hicache_prefetch_threshold,
                                      .max_transfers = p->hicache_max_transfers,
                                      .copy_threads = p->hicache_copy_threads,
                                      .store_threads = p->hicache_store_threads};
    status = host_eviction(p, &t->hicache.host_eviction, err);
    if (status == RAD_OK) status = read_extra_config(t, p, err);
    name_model(t, name, guarantee);
    if (status != RAD_OK || !p->hicache_storage_backend) return status;
    status = engine_tiers_identify(t, err);
    if (status == RAD_OK)
        status = engine_store_open(
            env,
            &(engine_store_words){.spec = p->hicache_storage_backend,
                                  .extra_config = p->hicache_storage_backend_extra_config,
                                  .mode = t->mode},
            &t->store, err);
    if (status != RAD_OK) return status;
    t->has_store = true;
    t->hicache.storage = &t->store;
    snprintf(t->spec, sizeof t->spec, "%s", p->hicache_storage_backend);
    return RAD_OK;
}

void engine_tiers_fini(engine_tiers *t)
{
    if (t->has_store && t->store.ops->close) t->store.ops->close(t->store.self);
    t->has_store = false;
    gguf_source_destroy(t->source);
    t->source = NULL;
}
