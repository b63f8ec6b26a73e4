/* device_cuda_impl.h - the inside of a GPU as a device, for its files.
 *
 *     device_cuda.c        create, memory, order against other streams, info
 *     device_cuda_lane.c   a lane: what a thread copies by
 *     device_cuda_copy.c   which way rows go, and their kernel
 *
 * A thread that copies takes a lane and has it until its fence: a stream, a ring for the numbers of
 * rows, and, once plain memory is copied, pinned memory to stage it in. So what copies take
 * does not grow with the threads that come and go. When all lanes are out, a thread copies by
 * the common one, which is for one call at a time and done on return. */
#ifndef DEVICE_DEVICE_CUDA_IMPL_H
#define DEVICE_DEVICE_CUDA_IMPL_H

#include <radish/device_cuda.h>

#include <pthread.h>
#include <stdatomic.h>

#include "device/cuda_driver.h"
#include "device/device.h"

enum {
    LANES = 16,
    LANE_HALVES = 2,      /* of the ring, and of the stage: one is filled while one is used */
    INDEX_HALF = 1 << 14, /* numbers of rows: 64 KB */
    STAGE_HALF = 1 << 19, /* bytes */
    LARGE_COPY = 1 << 16  /* bytes in a row: as fast by the copy engines as by a kernel */
};

/* What was uploaded last for a side: planes of a pool are copied by the same numbers. */
typedef struct lane_upload {
    uint32_t half, at, count; /* 0: nothing that is there still */
} lane_upload;

typedef struct cuda_lane {
    pthread_t thread; /* who has it, while taken; both under the device's lock */
    bool taken;
    bool made;
    cuda_stream stream;
    cuda_event done;
    uint64_t after; /* of the device's `order`: what the stream waits for already */

    int32_t *numbers; /* pinned: [LANE_HALVES][INDEX_HALF] */
    cuda_ptr on_gpu;  /* their copy, where a kernel reads them */
    uint32_t half, used;
    cuda_event uploaded[LANE_HALVES]; /* the half may be written again then */
    bool uploading[LANE_HALVES];
    lane_upload last[2]; /* of the destination, of the source */

    char *stage; /* pinned: [LANE_HALVES][STAGE_HALF], or NULL: not needed so far */
    cuda_event staged[LANE_HALVES];
    bool staging[LANE_HALVES];
} cuda_lane;

typedef struct device_cuda {
    rad_device base;
    rad_env env;
    cuda_driver cu;
    cuda_gpu gpu;
    cuda_module module;
    cuda_function copy_rows;
    uint32_t copy_blocks;
    int priority;       /* of streams that copy: before kernels that compute */
    cuda_stream memset; /* zeroes new memory */

    pthread_mutex_t lock; /* who has which lane */
    pthread_mutex_t common;
    cuda_lane lanes[LANES + 1]; /* the last one is the common one */

    pthread_mutex_t order_lock;
    cuda_stream order_stream; /* waits for each stream that copies are to wait for */
    cuda_event order_in, order_event;
    atomic_uint_fast64_t order; /* grows whenever order_event was recorded */

    atomic_uint_fast64_t copy_calls, copied_bytes, failures;
} device_cuda;

/* RAD_OK for CUDA_OK; else RAD_E_IO, and the log has been told of the first one. */
rad_status device_cuda_check(device_cuda *d, int result, const char *what);
rad_status device_cuda_failed(device_cuda *d, const rad_error *why); /* the same, with its words */

/* The lane of this thread, made and behind what copies are to wait for; NULL: *status says why.
 * lane_leave once the call has enqueued what it copies. The context is current. */
cuda_lane *lane_enter(device_cuda *d, rad_status *status);
/* What `status` is then, as copies by the common lane are waited for. */
rad_status lane_leave(device_cuda *d, cuda_lane *lane, rad_status status);

/* The lane that this thread copied by since its last fence, or NULL. lane_release gives it up. */
cuda_lane *lane_of_thread(device_cuda *d);
void lane_release(device_cuda *d, cuda_lane *lane);

/* Returns when everything is done that the lane's stream has. */
rad_status lane_wait(device_cuda *d, cuda_lane *lane);
rad_status lane_wait_event(device_cuda *d, cuda_event event);
void lane_fini(device_cuda *d, cuda_lane *lane);

/* Sees to room for `count` (at most INDEX_HALF) numbers, of both sides together: what was uploaded
 * for the one must not be written over for the other, before the kernel that reads both. */
rad_status lane_reserve(device_cuda *d, cuda_lane *lane, uint32_t count);
/* Uploads numbers of rows for side 0 or 1, unless they are there. */
rad_status lane_upload_numbers(device_cuda *d, cuda_lane *lane, int side, const int32_t *numbers,
                               uint32_t count, cuda_ptr *out);

/* Sees to memory to stage in. A half is free to be written where it is not `staging`. */
rad_status lane_stage(device_cuda *d, cuda_lane *lane);

rad_status device_cuda_copy_rows(rad_device *self, const rad_device_rows *dst,
                                 const rad_device_rows *src, size_t row_bytes, uint32_t count);

#endif
