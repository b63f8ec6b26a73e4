/* device.h - a place where KV memory lives, in an engine's own words.
 *
 * A pool says what it wants from memory and not how it is done. Without a device that is the
 * host's own memory. An engine whose K/V lie elsewhere (a GPU) gives the pools a table of
 * functions, and everything that moves K/V, tiers included, moves them by it: the library itself
 * never touches memory of a device.
 *
 *     typedef struct my_gpu { rad_device base; ... } my_gpu;      begins with its table
 *
 * The device is its owner's and outlives every pool that uses it. Its functions are called from
 * the threads that call the pools, and from those that copy between tiers, at the same time. */
#ifndef RADISH_DEVICE_H
#define RADISH_DEVICE_H

#include <radish/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_device rad_device;

/* Rows of one table: the i-th of them is at base + (indices ? indices[i] : i) * stride bytes.
 * `indices` is host memory and good until the call returns. This struct does not grow. */
typedef struct rad_device_rows {
    void *base;
    size_t stride;
    const int32_t *indices;
} rad_device_rows;

typedef struct rad_device_ops {
    size_t struct_size; /* sizeof(rad_device_ops) */
    const char *name;   /* "cpu"; lives as long as the table */

    /* Zeroed memory of the device, aligned to 64 bytes; NULL when there is none or bytes is 0. */
    void *(*alloc)(rad_device *self, size_t bytes);
    void (*free)(rad_device *self, void *memory, size_t bytes); /* NULL is fine */

    /* Optional: host memory that copies to and from the device like best (pinned), zeroed and
     * aligned likewise. NULL: plain memory does. */
    void *(*alloc_pinned)(rad_device *self, size_t bytes);
    void (*free_pinned)(rad_device *self, void *memory, size_t bytes);

    /* Copies `count` rows of row_bytes each, the i-th of src to the i-th of dst; in either
     * direction between this device's memory and host memory, or within one. The rows of dst do
     * not overlap. What a thread copied is there after its next fence; it keeps both sides as
     * they are until then. RAD_E_IO when the device failed: the rows of dst are undefined. */
    rad_status (*copy_rows)(rad_device *self, const rad_device_rows *dst,
                            const rad_device_rows *src, size_t row_bytes, uint32_t count);

    /* Optional: returns when the copies are done that this thread began; RAD_E_IO when one of
     * them failed. NULL: copy_rows is done on return. */
    rad_status (*fence)(rad_device *self);

    /* Optional: sees to it that writing `memory` need not wait for the system to provide it; what
     * is in it stays, and others may read and write it meanwhile. RAD_E_UNSUPPORTED: it comes when
     * it is written. RAD_E_NOMEM: the system gave none. */
    rad_status (*populate)(rad_device *self, void *memory, size_t bytes);
} rad_device_ops;

struct rad_device {
    const rad_device_ops *ops;
};

#ifdef __cplusplus
}
#endif
#endif
