/* store_trouble.h - what a store says when it fails, as far as a person wants to read it.
 *
 *     worker: none -> being put down -> there        owner: there -> logged -> none
 *
 * Workers meet the trouble, but only the owner's thread logs. A store that is down fails with
 * every page: what finds older words there is not told, and the owner tells no more than one of
 * them in half a minute. */
#ifndef HICACHE_STORE_TROUBLE_H
#define HICACHE_STORE_TROUBLE_H

#include <stdatomic.h>

#include "base/base.h"

typedef struct store_trouble {
    atomic_uint_fast64_t failed_calls;
    atomic_uint_fast64_t bad_records; /* that did not verify; counted by who finds one */
    atomic_uint state;
    char text[200];
    uint64_t quiet_until_ns;
} store_trouble;

/* A store answered `status`. Any thread. */
void store_trouble_note(store_trouble *t, rad_status status, const rad_error *err);

/* Logs what is there, as `who`. The owner's thread. */
void store_trouble_tell(store_trouble *t, const rad_env *env, const char *who);

#endif
