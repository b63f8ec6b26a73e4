/* device.h - a place where KV memory lives.
 *
 * The pools say what they want from memory and not how it is done: today the host's
 * own memory, in tests a device with delays and faults, later CUDA. A device is placed
 * by its owner, begins with its table, and outlives every pool that uses it.
 *
 * The table is small on purpose: streams and events join it with the first device
 * that copies behind the caller's back. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "base/base.h"

typedef struct device device;

typedef struct device_ops {
    const char *name; /* "cpu" */

    /* Zeroed memory aligned to 64 bytes; NULL when there is none or bytes is 0. */
    void *(*alloc)(device *self, size_t bytes);
    void (*free)(device *self, void *memory, size_t bytes); /* NULL is fine */

    /* Copies between any two of: this device's memory, host memory. Done on return.
     * RAD_E_IO when the device failed; dst is then undefined. */
    rad_status (*copy)(device *self, void *dst, const void *src, size_t bytes);

    /* Sees to it that writing `memory` need not wait for the system to provide it; what is in it
     * stays, and others may read and write it meanwhile. RAD_E_UNSUPPORTED: it comes when it is
     * written. RAD_E_NOMEM: the system gave none. NULL: never supported. */
    rad_status (*populate)(device *self, void *memory, size_t bytes);
} device_ops;

struct device {
    const device_ops *ops;
};

static inline void *device_alloc(device *d, size_t bytes)
{
    return d->ops->alloc(d, bytes);
}

static inline void device_free(device *d, void *memory, size_t bytes)
{
    d->ops->free(d, memory, bytes);
}

static inline rad_status device_copy(device *d, void *dst, const void *src, size_t bytes)
{
    return d->ops->copy(d, dst, src, bytes);
}

static inline rad_status device_populate(device *d, void *memory, size_t bytes)
{
    return d->ops->populate ? d->ops->populate(d, memory, bytes) : RAD_E_UNSUPPORTED;
}

/* The host itself: memory of the env. Nothing to tear down. */
typedef struct device_cpu {
    device base;
    rad_env env;
} device_cpu;

void device_cpu_init(device_cpu *d, const rad_env *env);

#endif
