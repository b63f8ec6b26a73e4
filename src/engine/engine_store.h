/* engine_store.h - the thread that does what a store takes its time for.
 *
 *     any thread     begin -> change ---+          ended <- results[]
 *                    look  -> wanted -+ |          status <- what was heard last
 *                                     v v
 *     store thread        one change, one look, in turn
 *                                     |
 *     scheduler           hold, identify, attach, detach, release: between two steps
 *
 * Which store is attached is this thread's to know: nobody else opens, closes or asks one
 * once the engine runs (its transfers do, and the cache keeps those apart). */
#ifndef ENGINE_ENGINE_STORE_H
#define ENGINE_ENGINE_STORE_H

#include <pthread.h>

#include "base/base.h"
#include "engine/engine.h"

enum { STORE_RESULTS = 16 };

typedef struct engine_store {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;  /* the thread has work, or is to stop */
    pthread_cond_t ended; /* a change or a look has */
    bool started, stop;

    engine_store_change change; /* spec and extra_config in `words` */
    char *words;
    size_t words_bytes;
    uint64_t ticket;   /* of the newest change */
    bool busy;         /* it has not ended */
    uint64_t busy_since_ns;
    struct {
        uint64_t ticket;
        rad_status status;
        rad_error err;
    } results[STORE_RESULTS]; /* ticket % STORE_RESULTS */

    uint64_t wanted, heard; /* looks */
    engine_storage_status known;
    uint64_t heard_ns;
} engine_store;

void engine_store_init(engine *e);
rad_status engine_store_start(engine *e, rad_error *err); /* the last thread; without tiers none */
/* What is under way ends first; a change that has not begun does not. One that never started
 * is fine. While the scheduler runs. */
void engine_store_stop(engine *e);
void engine_store_fini(engine *e);

#endif
