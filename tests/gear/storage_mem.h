/* storage_mem.h - a store in memory whose calls go wrong on request, for tests.
 *
 * Every record of every call asks `script` what is to become of it. Any thread. */
#ifndef GEAR_STORAGE_MEM_H
#define GEAR_STORAGE_MEM_H

#include <radish/storage.h>

#include <pthread.h>

#include "base/map.h"

typedef enum storage_call { STORAGE_EXISTS, STORAGE_GET, STORAGE_SET, STORAGE_REMOVE } storage_call;

typedef enum storage_fate {
    STORAGE_WELL = 0,
    STORAGE_MISSING, /* not there, not taken; the call goes on */
    STORAGE_FAILS,   /* the call ends here, RAD_E_IO */
    STORAGE_TORN,    /* a byte of what is read or stored is another one */
    STORAGE_CUT      /* the second half of what is read or stored is zero */
} storage_fate;

typedef struct storage_mem {
    rad_env env;
    pthread_mutex_t lock;
    map by_key; /* the key's first 4 bytes -> entry */
    rad_storage_key *keys;
    char **records;
    uint32_t capacity, count;
    size_t record_bytes;
    rad_storage_stats stats;
    storage_fate (*script)(void *user, storage_call call, uint64_t number); /* NULL: all well */
    void *user;
    uint64_t calls;
    uint32_t delay_us; /* of each call */
    uint32_t closed;
} storage_mem;

/* Room for `capacity` records of record_bytes; more are RAD_FULL. */
rad_status storage_mem_init(storage_mem *s, const rad_env *env, uint32_t capacity,
                            size_t record_bytes);
void storage_mem_fini(storage_mem *s);
rad_storage storage_mem_open(storage_mem *s);

/* Flips a bit in the payload of record number `pick % count`, as a failing disk would. */
void storage_mem_spoil(storage_mem *s, uint32_t pick, size_t byte);

#endif
