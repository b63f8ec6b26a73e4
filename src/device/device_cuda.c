/* device_cuda.c - a GPU as a device: its memory, pinned memory of the host, and order.
 *
 * copy_after: any number of streams may be named, by any threads. So they are all waited for by one
 * stream that does nothing else, and its event stands for them; what was recorded later
 * is behind what was recorded before, so a copy that waits for a newer one waits for enough.
 *
 *     engine's stream  --kernels--x order_in
 *     order_stream     -----------o--x order_event                    (grows: order)
 *     a lane's stream  --------------o--copies--                      (lane->after == order) */
#include "device/device_cuda_impl.h"

#include "base/params.h"
#include "device/kernels/copy_rows_args.h"
#include "device/ptx_text.h"

PTX_TEXT(copy_rows_ptx, "device/ptx/copy_rows.sm80.ptx");

enum { COPY_BLOCKS = 32 };

rad_status device_cuda_failed(device_cuda *d, const rad_error *why)
{
    if (atomic_fetch_add(&d->failures, 1) == 0) rad_log(&d->env, RAD_LOG_ERROR, "%s", why->text);
    return RAD_E_IO;
}

rad_status device_cuda_check(device_cuda *d, int result, const char *what)
{
    rad_error err;
    return cuda_ok(&d->cu, result, what, &err) ? device_cuda_failed(d, &err) : RAD_OK;
}

/* Pools rely on zeros; memory of the driver has what was there. */
static bool zero(device_cuda *d, cuda_ptr memory, size_t bytes)
{
    int result = d->cu.set_bytes(memory, 0, bytes, d->memset);
    if (result == CUDA_OK) result = d->cu.stream_synchronize(d->memset);
    return device_cuda_check(d, result, "cuMemsetD8Async") == RAD_OK;
}

static void *gpu_alloc(rad_device *self, size_t bytes)
{
    device_cuda *d = (device_cuda *)self;
    rad_error err;
    cuda_ptr memory = 0;
    if (!bytes) return NULL;
    if (cuda_gpu_enter(&d->gpu, &err)) {
        (void)device_cuda_failed(d, &err);
        return NULL;
    }
    int result = d->cu.mem_alloc(&memory, bytes); /* aligned to 256 bytes */
    if (result) memory = 0;
    if (result && result != CUDA_OUT_OF_MEMORY) (void)device_cuda_check(d, result, "cuMemAlloc");
    if (memory && !zero(d, memory, bytes)) {
        (void)d->cu.mem_free(memory);
        memory = 0;
    }
    cuda_gpu_leave(&d->gpu);
    return (void *)(uintptr_t)memory;
}

static void gpu_free(rad_device *self, void *memory, size_t bytes)
{
    device_cuda *d = (device_cuda *)self;
    rad_error err;
    (void)bytes;
    if (!memory || cuda_gpu_enter(&d->gpu, &err)) return;
    (void)device_cuda_check(d, d->cu.mem_free((cuda_ptr)(uintptr_t)memory), "cuMemFree");
    cuda_gpu_leave(&d->gpu);
}

static void *gpu_alloc_pinned(rad_device *self, size_t bytes)
{
    device_cuda *d = (device_cuda *)self;
    rad_error err;
    void *memory = NULL;
    if (!bytes) return NULL;
    if (cuda_gpu_enter(&d->gpu, &err)) {
        (void)device_cuda_failed(d, &err);
        return NULL;
    }
    int result = d->cu.host_alloc(&memory, bytes, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED);
    if (result) memory = NULL;
    if (result && result != CUDA_OUT_OF_MEMORY)
        (void)device_cuda_check(d, result, "cuMemHostAlloc");
    cuda_gpu_leave(&d->gpu);
    return memory ? memset(memory, 0, bytes) : NULL;
}

static void gpu_free_pinned(rad_device *self, void *memory, size_t bytes)
{
    device_cuda *d = (device_cuda *)self;
    rad_error err;
    (void)bytes;
    if (!memory || cuda_gpu_enter(&d->gpu, &err)) return;
    (void)device_cuda_check(d, d->cu.host_free(memory), "cuMemFreeHost");
    cuda_gpu_leave(&d->gpu);
}

static rad_status gpu_fence(rad_device *self)
{
    device_cuda *d = (device_cuda *)self;
    cuda_lane *lane = lane_of_thread(d);
    rad_error err;
    if (!lane) return RAD_OK;
    if (cuda_gpu_enter(&d->gpu, &err)) return device_cuda_failed(d, &err);
    rad_status status = lane_wait(d, lane);
    cuda_gpu_leave(&d->gpu);
    lane_release(d, lane);
    return status;
}

/* The driver gives memory that is there. */
static rad_status gpu_populate(rad_device *self, void *memory, size_t bytes)
{
    (void)self, (void)memory, (void)bytes;
    return RAD_OK;
}

static const rad_device_ops cuda_ops = {.struct_size = sizeof cuda_ops,
                                        .name = "cuda",
                                        .alloc = gpu_alloc,
                                        .free = gpu_free,
                                        .alloc_pinned = gpu_alloc_pinned,
                                        .free_pinned = gpu_free_pinned,
                                        .copy_rows = device_cuda_copy_rows,
                                        .fence = gpu_fence,
                                        .populate = gpu_populate};

/* Kernel, streams and events; the context is current. */
static rad_status make_parts(device_cuda *d, rad_error *err)
{
    const cuda_driver *cu = &d->cu;
    int least = 0;
    rad_status status = cuda_module_load(cu, "copy_rows.ptx", copy_rows_ptx, &d->module, err);
    if (!status)
        status = cuda_function_get(cu, d->module, "copy_rows", sizeof(copy_rows_args), 0,
                                   &d->copy_rows, err);
    if (!status)
        status = cuda_ok(cu, cu->stream_priorities(&least, &d->priority),
                         "cuCtxGetStreamPriorityRange", err);
    if (!status)
        status = cuda_ok(cu, cu->stream_create(&d->memset, CUDA_STREAM_NON_BLOCKING),
                         "cuStreamCreate", err);
    if (!status)
        status = cuda_ok(cu, cu->stream_create(&d->order_stream, CUDA_STREAM_NON_BLOCKING),
                         "cuStreamCreate", err);
    if (!status)
        status = cuda_ok(cu, cu->event_create(&d->order_in, CUDA_EVENT_DISABLE_TIMING),
                         "cuEventCreate", err);
    if (!status)
        status = cuda_ok(cu, cu->event_create(&d->order_event, CUDA_EVENT_DISABLE_TIMING),
                         "cuEventCreate", err);
    return status;
}

static rad_status open_gpu(device_cuda *d, const rad_device_cuda_params *p, rad_error *err)
{
    rad_status status = cuda_driver_open(p->library, &d->cu, err);
    if (!status) status = cuda_gpu_open(&d->cu, (int)p->ordinal, p->context, &d->gpu, err);
    if (!status) status = cuda_gpu_enter(&d->gpu, err);
    if (status) return status;
    status = make_parts(d, err);
    cuda_gpu_leave(&d->gpu);
    return status;
}

rad_status rad_device_cuda_create(const rad_env *env, const rad_device_cuda_params *params,
                                  rad_device **out, rad_error *err)
{
    rad_device_cuda_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "device_cuda: no place for the result");
    *out = NULL;
    rad_status status = rad_params_read(&p, sizeof p, params, "device_cuda", err);
    if (status) return status;
    if (p.ordinal > INT32_MAX)
        return rad_fail(err, RAD_E_INVAL, "device_cuda: there is no GPU %u", p.ordinal);
    rad_env full = rad_env_or_default(env);
    device_cuda *d = rad_alloc(&full, sizeof *d);
    if (!d) return rad_fail(err, RAD_E_NOMEM, "device_cuda: no memory");
    d->base.ops = &cuda_ops;
    d->env = full;
    d->copy_blocks = p.copy_blocks ? p.copy_blocks : COPY_BLOCKS;
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->common, NULL);
    pthread_mutex_init(&d->order_lock, NULL);
    status = open_gpu(d, &p, err);
    if (status)
        rad_device_cuda_destroy(&d->base);
    else
        *out = &d->base;
    return status;
}

static void free_parts(device_cuda *d)
{
    const cuda_driver *cu = &d->cu;
    for (uint32_t i = 0; i < RAD_COUNT(d->lanes); i++)
        lane_fini(d, &d->lanes[i]);
    if (d->order_event) (void)cu->event_destroy(d->order_event);
    if (d->order_in) (void)cu->event_destroy(d->order_in);
    if (d->order_stream) (void)cu->stream_destroy(d->order_stream);
    if (d->memset) (void)cu->stream_destroy(d->memset);
    if (d->module) (void)cu->module_unload(d->module);
}

void rad_device_cuda_destroy(rad_device *device)
{
    device_cuda *d = (device_cuda *)device;
    if (!d) return;
    rad_env env = d->env;
    if (d->gpu.context && cuda_gpu_enter(&d->gpu, NULL) == RAD_OK) {
        free_parts(d);
        cuda_gpu_leave(&d->gpu);
    }
    cuda_gpu_close(&d->gpu);
    cuda_driver_close(&d->cu);
    pthread_mutex_destroy(&d->order_lock);
    pthread_mutex_destroy(&d->common);
    pthread_mutex_destroy(&d->lock);
    rad_free(&env, d, sizeof *d);
}

static device_cuda *gpu_of(rad_device *device)
{
    return device && device->ops == &cuda_ops ? (device_cuda *)device : NULL;
}

rad_status rad_device_cuda_get_info(rad_device *device, rad_device_cuda_info *info, rad_error *err)
{
    device_cuda *d = gpu_of(device);
    rad_device_cuda_info i = {.struct_size = sizeof i};
    if (!d || !info || info->struct_size < sizeof i)
        return rad_fail(err, RAD_E_INVAL,
                        "device_cuda: no such device, or no room for what is told of it");
    rad_status status = cuda_gpu_enter(&d->gpu, err);
    if (status) return status;
    status = cuda_ok(&d->cu, d->cu.mem_info(&i.free_bytes, &i.total_bytes), "cuMemGetInfo", err);
    cuda_gpu_leave(&d->gpu);
    if (status) return status;
    memcpy(i.name, d->gpu.name, sizeof i.name - 1);
    i.ordinal = (uint32_t)d->gpu.ordinal;
    i.capability = (uint32_t)d->gpu.capability;
    i.multiprocessors = (uint32_t)d->gpu.multiprocessors;
    i.driver_version = (uint32_t)d->cu.version;
    i.context = d->gpu.context;
    i.copy_calls = atomic_load(&d->copy_calls);
    i.copied_bytes = atomic_load(&d->copied_bytes);
    i.failures = atomic_load(&d->failures);
    i.struct_size = info->struct_size;
    memcpy(info, &i, sizeof i);
    return RAD_OK;
}

/* Under order_lock. */
static rad_status order_after(device_cuda *d, cuda_stream stream, rad_error *err)
{
    const cuda_driver *cu = &d->cu;
    rad_status status = cuda_ok(cu, cu->event_record(d->order_in, stream), "cuEventRecord", err);
    if (!status)
        status = cuda_ok(cu, cu->stream_wait_event(d->order_stream, d->order_in, 0),
                         "cuStreamWaitEvent", err);
    if (!status)
        status =
            cuda_ok(cu, cu->event_record(d->order_event, d->order_stream), "cuEventRecord", err);
    if (!status) atomic_fetch_add(&d->order, 1);
    return status;
}

rad_status rad_device_cuda_copy_after(rad_device *device, void *stream, rad_error *err)
{
    device_cuda *d = gpu_of(device);
    if (!d) return rad_fail(err, RAD_E_INVAL, "device_cuda: no such device");
    rad_status status = cuda_gpu_enter(&d->gpu, err);
    if (status) return status;
    pthread_mutex_lock(&d->order_lock);
    status = order_after(d, stream, err);
    pthread_mutex_unlock(&d->order_lock);
    cuda_gpu_leave(&d->gpu);
    return status;
}

rad_status rad_device_cuda_stream_after(rad_device *device, void *stream, rad_error *err)
{
    device_cuda *d = gpu_of(device);
    if (!d) return rad_fail(err, RAD_E_INVAL, "device_cuda: no such device");
    cuda_lane *lane = lane_of_thread(d);
    if (!lane) return RAD_OK;
    rad_status status = cuda_gpu_enter(&d->gpu, err);
    if (status) return status;
    status = cuda_ok(&d->cu, d->cu.event_record(lane->done, lane->stream), "cuEventRecord", err);
    if (!status)
        status = cuda_ok(&d->cu, d->cu.stream_wait_event(stream, lane->done, 0),
                         "cuStreamWaitEvent", err);
    cuda_gpu_leave(&d->gpu);
    if (!status) lane_release(d, lane);
    return status;
}
