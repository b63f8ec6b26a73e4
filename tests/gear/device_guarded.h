/* device_guarded.h - a device whose memory only its own table reaches, as a GPU's: a touch by
 * anybody else is a fault.
 *
 * Memory is mapped twice: where the pools see it, nobody may read or write; the device copies by
 * the other mapping. Copies are late, too: they are made at the fence of the thread that began
 * them. */
#ifndef GEAR_DEVICE_GUARDED_H
#define GEAR_DEVICE_GUARDED_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/device.h"

enum { GUARDED_BLOCKS = 256 };

typedef struct device_guarded {
    rad_device base;
    pthread_mutex_t lock;
    struct {
        char *seen, *real; /* the same memory; NULL: free */
        size_t bytes;
    } blocks[GUARDED_BLOCKS];
    uint32_t num_blocks; /* none from this one on was ever used */
    atomic_uint_fast64_t rows, calls, fences;
    atomic_size_t bytes, pinned_bytes; /* out now */
} device_guarded;

void device_guarded_init(device_guarded *d);

/* Whether the test is to run over such a device: RADISH_TEST_GUARDED is set, as for the tests whose
 * names end in _guarded. */
bool device_guarded_asked(void);

#endif
