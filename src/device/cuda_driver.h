/* cuda_driver.h - NVIDIA's driver, libcuda.so.1, opened at run time: no SDK is needed to build.
 *
 * The prototypes are our own, of the documented binary interface: CUresult is an int (0: success),
 * CUdevice an int, CUdeviceptr an address of 64 bits, the rest are pointers to what only the
 * driver knows. Names that end in _v2 are what programs have called since CUDA 4; the plain ones
 * beside them take 32-bit sizes.
 *
 *     cuda_driver cu;             a table of functions, one for each library that is opened: the
 *     cuda_driver_open(...)       real one and an emulated one may be open at the same time
 *     cuda_gpu gpu;
 *     cuda_gpu_open(&cu, ...)     one GPU and a context on it
 *     cuda_gpu_enter(&gpu, ...)   what follows in this thread is done on that GPU
 *     cuda_module_load(...)       PTX text, compiled by the driver
 *     cuda_function_get(...)
 *     cuda_launch(...)
 *     cuda_gpu_leave(&gpu)        the thread has the context that it had before
 *
 * Everything here may be called from any thread; only open and close are for one at a time. A
 * failed call of the driver is words: cuda_ok(cu, cu->mem_alloc(&p, n), "cuMemAlloc", err). */
#ifndef DEVICE_CUDA_DRIVER_H
#define DEVICE_CUDA_DRIVER_H

#include "base/base.h"

typedef struct CUctx_st *cuda_context;
typedef struct CUmod_st *cuda_module;
typedef struct CUfunc_st *cuda_function;
typedef struct CUstream_st *cuda_stream;
typedef struct CUevent_st *cuda_event;
typedef struct CUgraph_st *cuda_graph;
typedef struct CUgraphExec_st *cuda_graph_exec;
typedef uint64_t cuda_ptr; /* CUdeviceptr; also the address that a kernel sees */

enum cuda_result {
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_STUB_LIBRARY = 34,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_UNSUPPORTED_PTX = 222,
    CUDA_NOT_FOUND = 500,
    CUDA_NOT_READY = 600,
    CUDA_ILLEGAL_ADDRESS = 700,
    CUDA_LAUNCH_FAILED = 719,
    CUDA_NOT_SUPPORTED = 801,
    CUDA_DRIVER_MISMATCH = 803
};

enum cuda_device_attribute {
    CUDA_ATTR_MULTIPROCESSORS = 16,
    CUDA_ATTR_L2_BYTES = 38,
    CUDA_ATTR_UNIFIED_ADDRESSING = 41,
    CUDA_ATTR_CAPABILITY_MAJOR = 75,
    CUDA_ATTR_CAPABILITY_MINOR = 76,
    CUDA_ATTR_SHARED_PER_BLOCK = 97 /* at most, by CUDA_FUNC_DYNAMIC_SHARED */
};

enum cuda_function_attribute {
    CUDA_FUNC_DYNAMIC_SHARED = 8 /* bytes at most; beyond 48 KB only what was set */
};

enum cuda_pointer_attribute { CUDA_POINTER_MEMORY_TYPE = 2, CUDA_POINTER_DEVICE_ADDRESS = 3 };
enum cuda_memory_type { CUDA_MEMORY_HOST = 1, CUDA_MEMORY_DEVICE = 2 };

enum {
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_BLOCKING_SYNC = 1,
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_HOST_PORTABLE = 1, /* pinned for every context */
    CUDA_HOST_MAPPED = 2,   /* kernels may read and write it */
    CUDA_CAPTURE_GLOBAL = 0,
    CUDA_CAPTURE_THREAD_LOCAL = 1,
    CUDA_CAPTURE_RELAXED = 2,
    CUDA_JIT_ERROR_LOG = 5,
    CUDA_JIT_ERROR_LOG_BYTES = 6,
    CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION = 6
};

typedef struct cuda_launch_attribute { /* CUlaunchAttribute */
    int32_t id;
    int32_t reserved;
    union {
        int32_t allowed; /* CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION */
        uint64_t words[8];
    } value;
} cuda_launch_attribute;

typedef struct cuda_launch_config { /* CUlaunchConfig */
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    cuda_stream stream;
    cuda_launch_attribute *attributes;
    uint32_t num_attributes;
} cuda_launch_config;

typedef struct cuda_tensor_map { /* CUtensorMap: what it holds is the driver's */
    _Alignas(64) uint64_t words[16];
} cuda_tensor_map;

/* The functions that are used: NEED(member, symbol, parameters), of CUDA 11.4 or older; MAY where a
 * driver may lack it, which is NULL then. Every one of them returns a CUresult. */
#define CUDA_DRIVER_FUNCTIONS(NEED, MAY)                                                           \
    NEED(init, cuInit, (unsigned flags))                                                           \
    NEED(driver_version, cuDriverGetVersion, (int *version))                                       \
    NEED(error_name, cuGetErrorName, (int result, const char **name))                              \
    NEED(error_string, cuGetErrorString, (int result, const char **text))                          \
    NEED(device_count, cuDeviceGetCount, (int *count))                                             \
    NEED(device_get, cuDeviceGet, (int *device, int ordinal))                                      \
    NEED(device_name, cuDeviceGetName, (char *name, int bytes, int device))                        \
    NEED(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, int device))          \
    NEED(device_total_memory, cuDeviceTotalMem_v2, (size_t * bytes, int device))                   \
    NEED(primary_retain, cuDevicePrimaryCtxRetain, (cuda_context * context, int device))           \
    NEED(primary_release, cuDevicePrimaryCtxRelease_v2, (int device))                              \
    NEED(context_get, cuCtxGetCurrent, (cuda_context * context))                                   \
    NEED(context_push, cuCtxPushCurrent_v2, (cuda_context context))                                \
    NEED(context_pop, cuCtxPopCurrent_v2, (cuda_context * context))                                \
    NEED(context_device, cuCtxGetDevice, (int *device)) /* of the current one */                   \
    NEED(module_load, cuModuleLoadDataEx,                                                          \
         (cuda_module * module, const void *image, unsigned num_options, int *options,             \
          void **values))                                                                          \
    NEED(module_unload, cuModuleUnload, (cuda_module module))                                      \
    NEED(module_function, cuModuleGetFunction,                                                     \
         (cuda_function * function, cuda_module module, const char *name))                         \
    NEED(function_set, cuFuncSetAttribute, (cuda_function function, int attribute, int value))     \
    MAY(function_param, cuFuncGetParamInfo, /* 12.4 */                                             \
        (cuda_function function, size_t index, size_t * offset, size_t * bytes))                   \
    MAY(function_load, cuFuncLoad, (cuda_function function)) /* 12.4 */                            \
    NEED(launch, cuLaunchKernel,                                                                   \
         (cuda_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,               \
          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,             \
          cuda_stream stream, void **params, void **extra))                                        \
    MAY(launch_ex, cuLaunchKernelEx, /* 11.8 */                                                    \
        (const cuda_launch_config *config, cuda_function function, void **params, void **extra))   \
    NEED(stream_create, cuStreamCreate, (cuda_stream * stream, unsigned flags))                    \
    NEED(stream_create_priority, cuStreamCreateWithPriority,                                       \
         (cuda_stream * stream, unsigned flags, int priority))                                     \
    NEED(stream_priorities, cuCtxGetStreamPriorityRange, (int *least, int *greatest))              \
    NEED(stream_destroy, cuStreamDestroy_v2, (cuda_stream stream))                                 \
    NEED(stream_synchronize, cuStreamSynchronize, (cuda_stream stream))                            \
    NEED(stream_query, cuStreamQuery, (cuda_stream stream))                                        \
    NEED(stream_wait_event, cuStreamWaitEvent,                                                     \
         (cuda_stream stream, cuda_event event, unsigned flags))                                   \
    NEED(event_create, cuEventCreate, (cuda_event * event, unsigned flags))                        \
    NEED(event_destroy, cuEventDestroy_v2, (cuda_event event))                                     \
    NEED(event_record, cuEventRecord, (cuda_event event, cuda_stream stream))                      \
    NEED(event_query, cuEventQuery, (cuda_event event))                                            \
    NEED(event_synchronize, cuEventSynchronize, (cuda_event event))                                \
    NEED(event_elapsed, cuEventElapsedTime,                                                        \
         (float *milliseconds, cuda_event begin, cuda_event end))                                  \
    NEED(capture_begin, cuStreamBeginCapture_v2, (cuda_stream stream, int mode))                   \
    NEED(capture_end, cuStreamEndCapture, (cuda_stream stream, cuda_graph * graph))                \
    NEED(graph_instantiate, cuGraphInstantiateWithFlags, /* 11.4 */                                \
         (cuda_graph_exec * exec, cuda_graph graph, unsigned long long flags))                     \
    NEED(graph_launch, cuGraphLaunch, (cuda_graph_exec exec, cuda_stream stream))                  \
    NEED(graph_exec_destroy, cuGraphExecDestroy, (cuda_graph_exec exec))                           \
    NEED(graph_destroy, cuGraphDestroy, (cuda_graph graph))                                        \
    NEED(mem_alloc, cuMemAlloc_v2, (cuda_ptr * memory, size_t bytes))                              \
    NEED(mem_free, cuMemFree_v2, (cuda_ptr memory))                                                \
    NEED(mem_info, cuMemGetInfo_v2, (size_t * free, size_t * total))                               \
    NEED(host_alloc, cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                \
    NEED(host_free, cuMemFreeHost, (void *memory))                                                 \
    NEED(pointer_attribute, cuPointerGetAttribute, (void *value, int attribute, cuda_ptr memory))  \
    NEED(copy_to_device, cuMemcpyHtoDAsync_v2,                                                     \
         (cuda_ptr to, const void *from, size_t bytes, cuda_stream stream))                        \
    NEED(copy_to_host, cuMemcpyDtoHAsync_v2,                                                       \
         (void *to, cuda_ptr from, size_t bytes, cuda_stream stream))                              \
    NEED(copy_on_device, cuMemcpyDtoDAsync_v2,                                                     \
         (cuda_ptr to, cuda_ptr from, size_t bytes, cuda_stream stream))                           \
    NEED(set_bytes, cuMemsetD8Async,                                                               \
         (cuda_ptr memory, unsigned char value, size_t bytes, cuda_stream stream))                 \
    MAY(tensor_map_tiled, cuTensorMapEncodeTiled, /* 12.0 */                                       \
        (cuda_tensor_map * map, int type, uint32_t rank, void *memory, const uint64_t *sizes,      \
         const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,            \
         int interleave, int swizzle, int promotion, int out_of_bounds))

typedef struct cuda_driver {
    void *library;
    int version; /* 12040: CUDA 12.4 */
    int reserved;
#define CUDA_DRIVER_MEMBER(member, symbol, parameters) int(*member) parameters;
    CUDA_DRIVER_FUNCTIONS(CUDA_DRIVER_MEMBER, CUDA_DRIVER_MEMBER)
#undef CUDA_DRIVER_MEMBER
} cuda_driver;

/* Opens and initializes the driver; `library` NULL: what RADISH_LIBCUDA names, or libcuda.so.1.
 * RAD_E_UNSUPPORTED: this machine has none, or none that we can use; RAD_E_IO: it failed. The
 * words say which. */
rad_status cuda_driver_open(const char *library, cuda_driver *out, rad_error *err);
void cuda_driver_close(cuda_driver *cu); /* one that was never opened is fine */

/* RAD_OK for 0; else words, "cuda: WHAT: CUDA_ERROR_... (what the driver says of it)", and
 * RAD_E_NOMEM where memory ran out, RAD_E_IO in every other case. */
rad_status cuda_ok(const cuda_driver *cu, int result, const char *what, rad_error *err);

typedef struct cuda_gpu {
    const cuda_driver *cu;
    cuda_context context;
    int ordinal;         /* as the driver counts */
    int device;          /* CUdevice */
    int capability;      /* 90: sm_90 */
    int multiprocessors; /* its cores */
    int shared_bytes;    /* of a block, at most */
    int l2_bytes;
    bool retained; /* the primary context, by us */
    char name[256];
    size_t memory_bytes; /* in all */
} cuda_gpu;

/* GPU number `ordinal` with its primary context, or, where `use` is not NULL, with that context on
 * whatever GPU it is. `cu` outlives it. RAD_E_UNSUPPORTED for one below sm_80, RAD_E_INVAL where
 * there is no such GPU. The calling thread's current context is as before. */
rad_status cuda_gpu_open(const cuda_driver *cu, int ordinal, cuda_context use, cuda_gpu *out,
                         rad_error *err);
void cuda_gpu_close(cuda_gpu *gpu); /* one that was never opened is fine */

/* Makes the context current in this thread until the matching leave. They nest. */
rad_status cuda_gpu_enter(const cuda_gpu *gpu, rad_error *err);
void cuda_gpu_leave(const cuda_gpu *gpu);

/* Compiles PTX (text that ends in NUL) for the current context; what the compiler says of an error
 * is in the words, which begin with `name`. */
rad_status cuda_module_load(const cuda_driver *cu, const char *name, const char *ptx,
                            cuda_module *out, rad_error *err);

/* A kernel by its name, whose one parameter has args_bytes (checked where the driver can tell),
 * to be launched with up to shared_bytes of dynamic shared memory. It is on the GPU then, also
 * where the driver would load it at its first launch, which may wait for all that runs, or be in a
 * capture. */
rad_status cuda_function_get(const cuda_driver *cu, cuda_module module, const char *name,
                             size_t args_bytes, uint32_t shared_bytes, cuda_function *out,
                             rad_error *err);

/* Enqueues grid[0] x grid[1] x grid[2] blocks of `threads` threads. `args` is read before the call
 * returns. `dependent`: the kernel may begin before those before it in the stream have ended
 * (wait_previous of the dialect); a driver or GPU that cannot runs it behind them. */
rad_status cuda_launch(const cuda_driver *cu, cuda_function function, const uint32_t grid[3],
                       uint32_t threads, uint32_t shared_bytes, cuda_stream stream, bool dependent,
                       const void *args, size_t args_bytes, rad_error *err);

#endif
