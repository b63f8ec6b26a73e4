/* engine_tiers.h - the options of the tiers as words, and the store that they name. */
#ifndef ENGINE_ENGINE_TIERS_H
#define ENGINE_ENGINE_TIERS_H

#include <radish/hicache.h>

#include "base/base.h"
#include "engine/engine.h"
#include "gguf/gguf_source.h"

typedef struct engine_tiers {
    bool enabled;
    bool has_store;
    rad_hicache_params hicache;
    rad_host_kv_pool_params host_pool;
    rad_storage_identity identity;
    rad_storage store;   /* open and ours while has_store */
    gguf_source *source; /* what the model was loaded from; NULL: it was made in memory */
    bool identified;     /* `model` is what pages are filed under; else it is a name for now */
    char model[80];      /* a digest of the file, or a name */
    char build[320];     /* whose arithmetic */
    char spec[1024];     /* "file:DIR", as it was given; "" without a store */
    uint32_t mode;       /* of the files of any store in a directory; 0: the store's default */
} engine_tiers;

/* Whether the words make sense, before anything is loaded. RAD_E_INVAL in words. */
rad_status engine_tiers_check(const engine_params *p, rad_error *err);

/* Fills t and opens the store that the params name. The source is the engine's from then on (NULL:
 * pages are filed under the name); the guarantee says whose arithmetic a page is. */
rad_status engine_tiers_init(engine_tiers *t, const rad_env *env, const engine_params *p,
                             gguf_source *source, const char *name, const char *guarantee,
                             rad_error *err);

/* Makes sure that `identity` names the very bytes that were loaded: reads the whole model file
 * when a store is first attached, unless that was done before the load. RAD_E_IO in words when it
 * cannot be read or has been changed. Any one thread at a time. */
rad_status engine_tiers_identify(engine_tiers *t, rad_error *err);
void engine_tiers_fini(engine_tiers *t); /* closes the store; after the scheduler is gone */

/* A store in words. */
typedef struct engine_store_words {
    const char *spec;         /* "SCHEME:WHERE", see storage/backends.h */
    const char *extra_config; /* options in a JSON object; NULL: none */
    uint32_t mode;            /* of files in a directory */
    bool from_client;         /* not from who started the server: no secret of ours goes with it */
} engine_store_words;

rad_status engine_store_open(const rad_env *env, const engine_store_words *words, rad_storage *out,
                             rad_error *err);

#endif
