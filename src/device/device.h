/* device.h - calls of a device's table (<radish/device.h>), and the host as a device.
 *
 * What a caller gave may be of an older size and lack what is optional: these know. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <radish/device.h>

#include "base/base.h"

/* RAD_E_INVAL in words: what no pool can do without is not there. NULL is fine. */
rad_status device_check(const rad_device *d, rad_error *err);

static inline void *device_alloc(rad_device *d, size_t bytes)
{
    return d->ops->alloc(d, bytes);
}

static inline void device_free(rad_device *d, void *memory, size_t bytes)
{
    d->ops->free(d, memory, bytes);
}

/* Whether the table has both of the pair that makes host memory. */
static inline bool device_pins(const rad_device *d)
{
    return d->ops->alloc_pinned && d->ops->free_pinned;
}

/* The rows are there on return, unless a fence follows (device_fence). */
static inline rad_status device_copy_rows(rad_device *d, rad_device_rows dst, rad_device_rows src,
                                          size_t row_bytes, uint32_t count)
{
    return count ? d->ops->copy_rows(d, &dst, &src, row_bytes, count) : RAD_OK;
}

/* The same between rows of a device, `there`, and rows in host memory, either way. */
static inline rad_status device_move_rows(rad_device *d, rad_device_rows there,
                                          rad_device_rows here, size_t row_bytes, uint32_t count,
                                          bool to_device)
{
    return to_device ? device_copy_rows(d, there, here, row_bytes, count)
                     : device_copy_rows(d, here, there, row_bytes, count);
}

/* Ends what device_copy_rows began. `status` is what that answered; it waits in any case, since
 * the caller's memory must not be written later. */
static inline rad_status device_fence(rad_device *d, rad_status status)
{
    bool has = d->ops->struct_size > offsetof(rad_device_ops, fence) && d->ops->fence;
    rad_status done = has ? d->ops->fence(d) : RAD_OK;
    return status ? status : done;
}

static inline rad_status device_populate(rad_device *d, void *memory, size_t bytes)
{
    bool has = d->ops->struct_size > offsetof(rad_device_ops, populate) && d->ops->populate;
    return has ? d->ops->populate(d, memory, bytes) : RAD_E_UNSUPPORTED;
}

/* The host itself: memory of the env. Nothing to tear down. */
typedef struct device_cpu {
    rad_device base;
    rad_env env;
} device_cpu;

void device_cpu_init(device_cpu *d, const rad_env *env);
bool device_is_cpu(const rad_device *d);

#endif
