/* device_cuda.h - an NVIDIA GPU as a device (device.h): its memory for pools, and their tiers.
 *
 * A program needs no SDK for it: the driver's libcuda.so.1 is opened when a device is created, and
 * where there is none create says so in words.
 *
 *     rad_device *gpu;
 *     rad_device_cuda_create(NULL, &params, &gpu, &err);
 *     pool_params.device = gpu;         K/V in the GPU's memory, 256-byte aligned
 *     host_params.device_pool = pool;   a tier in pinned host memory, copied by the GPU
 *
 * copy_rows is one kernel for all rows of a call, whichever way they go: it reads and writes
 * pinned memory where it is. Rows of 64 KB and more, and neighbours that make as much, go by the
 * copy engines. Plain host memory is staged through pinned memory; a copy from the GPU to there
 * is done on return.
 *
 * Order. Each thread's copies are a stream of their own, which begins when it copies and ends with
 * its fence:
 *
 *     kernels wrote -> copied         Copies wait for what an engine's stream does when it says so,
 *                                     rad_device_cuda_copy_after(gpu, stream, ...) behind each step
 *                                     (or it synchronizes the stream before it publishes or frees
 *                                     what the step wrote or read).
 *     copied -> kernels read          A fence returns when the copies are there: kernels that are
 *                                     launched after it see them. All that pools and tiers copy
 *                                     ends with one, so a layer that has been waited for is there.
 *                                     rad_device_cuda_stream_after is the same without waiting on
 *                                     the CPU, for copies of the engine's own.
 *
 * So a load of many layers runs beside an engine's kernels: launch those of layer 0 when the wait
 * for layer 0 is over, and so on.
 *
 * Who captures a stream into a graph does it with CU_STREAM_CAPTURE_MODE_THREAD_LOCAL (or RELAXED):
 * other threads allocate, copy and wait meanwhile.
 *
 * Any thread may call everything but create and destroy. A thread's current CUDA context is what
 * it was when a call returns. */
#ifndef RADISH_DEVICE_CUDA_H
#define RADISH_DEVICE_CUDA_H

#include <radish/device.h>
#include <radish/env.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_device_cuda_params {
    size_t struct_size;   /* sizeof(rad_device_cuda_params) */
    uint32_t ordinal;     /* which GPU, as the driver counts; not looked at with a context */
    uint32_t copy_blocks; /* blocks of the GPU that a copy to or from the host takes at most:
                           * the fewer, the more of it computes meanwhile; 0: 32 */
    void *context;        /* a CUcontext of the caller's, which outlives the device; NULL: the
                           * GPU's primary one, as the runtime API has it */
    const char *library;  /* the driver's; NULL: $RADISH_LIBCUDA, or libcuda.so.1 */
} rad_device_cuda_params;

/* RAD_E_UNSUPPORTED: there is no driver, none that we can use, or the GPU is older than sm_80
 * (Ampere); RAD_E_INVAL: there is no such GPU; RAD_E_NOMEM or RAD_E_IO: it failed. In words, and
 * *out is NULL then. What fails later, the env's log is told once. */
RAD_API rad_status rad_device_cuda_create(const rad_env *env, const rad_device_cuda_params *params,
                                          rad_device **out, rad_error *err);
/* Every pool that uses it is gone. Copies that were not fenced are waited for. NULL is fine. */
RAD_API void rad_device_cuda_destroy(rad_device *device);

typedef struct rad_device_cuda_info {
    size_t struct_size;       /* sizeof(rad_device_cuda_info), set by the caller */
    char name[64];            /* "NVIDIA H100 80GB HBM3", cut where it is longer */
    uint32_t ordinal;         /* as the driver counts */
    uint32_t capability;      /* 90: sm_90 */
    uint32_t multiprocessors; /* its cores */
    uint32_t driver_version;  /* 12040: it is for CUDA 12.4 */
    size_t free_bytes;        /* of its memory now, for the whole process and others */
    size_t total_bytes;
    void *context;         /* CUcontext: make it current to launch kernels on pools' memory */
    uint64_t copy_calls;   /* copy_rows so far, */
    uint64_t copied_bytes; /* what they moved, */
    uint64_t failures;     /* and calls of the driver that failed */
} rad_device_cuda_info;

/* RAD_E_INVAL: no device of this kind, or no room for the result; RAD_E_IO in words: the driver
 * failed. */
RAD_API rad_status rad_device_cuda_get_info(rad_device *device, rad_device_cuda_info *info,
                                            rad_error *err);

/* Copies that any thread begins from now on wait for what has been enqueued so far in `stream`
 * (a CUstream, which is a cudaStream_t; NULL: the default one). They wait on the GPU: nobody's
 * CPU does. Not for a stream that is being captured. */
RAD_API rad_status rad_device_cuda_copy_after(rad_device *device, void *stream, rad_error *err);

/* What is enqueued in `stream` from now on waits for the copies that this thread has begun, on the
 * GPU. It takes the place of the thread's fence; host memory of those copies stays as it is until
 * the stream has come so far. */
RAD_API rad_status rad_device_cuda_stream_after(rad_device *device, void *stream, rad_error *err);

#ifdef __cplusplus
}
#endif
#endif
