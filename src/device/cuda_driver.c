/* cuda_driver.c - libcuda.so.1 opened, one GPU of it, modules and launches.
 *
 * The library is never unloaded: threads and exit handlers of its own may outlive whoever used it,
 * and another part of the process (an embedder's engine) may have it open as well. */
#define _GNU_SOURCE /* secure_getenv */
#include "device/cuda_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { OLDEST_CUDA = 11040, OLDEST_CAPABILITY = 80, JIT_LOG_BYTES = 4096 };

static const struct {
    const char *symbol;
    size_t offset;
    bool optional;
} symbols[] = {
#define NEED(member, symbol, parameters) {#symbol, offsetof(cuda_driver, member), false},
#define MAY(member, symbol, parameters)  {#symbol, offsetof(cuda_driver, member), true},
    CUDA_DRIVER_FUNCTIONS(NEED, MAY)
#undef NEED
#undef MAY
};

/* The table of what the library has; the name of the first function that it lacks, or NULL. */
static const char *look_up(cuda_driver *cu)
{
    for (size_t i = 0; i < RAD_COUNT(symbols); i++) {
        void *function = dlsym(cu->library, symbols[i].symbol);
        if (!function && !symbols[i].optional) return symbols[i].symbol;
        memcpy((char *)cu + symbols[i].offset, &function, sizeof function);
    }
    return NULL;
}

/* What cuInit said, for a person. */
static rad_status init_failed(const cuda_driver *cu, int result, rad_error *err)
{
    switch (result) {
    case CUDA_STUB_LIBRARY:
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "cuda: no NVIDIA driver on this machine: libcuda.so.1 is the stub that "
                        "the CUDA toolkit links with");
    case CUDA_NO_DEVICE:
        return rad_fail(err, RAD_E_UNSUPPORTED, "cuda: the NVIDIA driver finds no GPU");
    case CUDA_DRIVER_MISMATCH:
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "cuda: libcuda.so.1 and the kernel's NVIDIA driver are of different "
                        "versions (after an update the machine has to be started anew)");
    default: return cuda_ok(cu, result, "cuInit", err);
    }
}

static rad_status begin_driver(cuda_driver *cu, rad_error *err)
{
    const char *missing = look_up(cu);
    /* Before anything else is said: what an old driver lacks is a matter of its version. */
    if (cu->driver_version && cu->driver_version(&cu->version) == CUDA_OK &&
        cu->version < OLDEST_CUDA && cu->version > 0)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "cuda: the NVIDIA driver is too old: it is for CUDA %d.%d, and radish "
                        "needs one for CUDA %d.%d or newer (470)",
                        cu->version / 1000, cu->version % 1000 / 10, OLDEST_CUDA / 1000,
                        OLDEST_CUDA % 1000 / 10);
    if (missing)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "cuda: libcuda.so.1 has no %s: the NVIDIA driver is too old, or this is "
                        "none",
                        missing);
    int result = cu->init(0), count = 0;
    if (result) return init_failed(cu, result, err);
    rad_status status = cuda_ok(cu, cu->device_count(&count), "cuDeviceGetCount", err);
    if (!status && count < 1)
        return rad_fail(err, RAD_E_UNSUPPORTED, "cuda: the NVIDIA driver finds no GPU");
    return status;
}

rad_status cuda_driver_open(const char *library, cuda_driver *out, rad_error *err)
{
    *out = (cuda_driver){0};
    if (!library) library = secure_getenv("RADISH_LIBCUDA");
    if (!library || !*library) library = "libcuda.so.1";
    out->library = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!out->library) {
        const char *why = dlerror();
        return rad_fail(err, RAD_E_UNSUPPORTED, "cuda: no NVIDIA driver on this machine: %s",
                        why ? why : library);
    }
    rad_status status = begin_driver(out, err);
    if (status) cuda_driver_close(out);
    return status;
}

void cuda_driver_close(cuda_driver *cu)
{
    if (cu->library) (void)dlclose(cu->library);
    *cu = (cuda_driver){0};
}

rad_status cuda_ok(const cuda_driver *cu, int result, const char *what, rad_error *err)
{
    if (result == CUDA_OK) return RAD_OK;
    const char *name = NULL, *text = NULL;
    if (cu->error_name && cu->error_name(result, &name) != CUDA_OK) name = NULL;
    if (cu->error_string && cu->error_string(result, &text) != CUDA_OK) text = NULL;
    rad_status status = result == CUDA_OUT_OF_MEMORY ? RAD_E_NOMEM : RAD_E_IO;
    if (!name) return rad_fail(err, status, "cuda: %s: error %d", what, result);
    return rad_fail(err, status, "cuda: %s: %s (%s)", what, name, text ? text : "no words");
}

/* Of the device that `gpu` names; what cannot be asked is an error. */
static rad_status read_gpu(cuda_gpu *gpu, rad_error *err)
{
    const cuda_driver *cu = gpu->cu;
    int major = 0, minor = 0, unified = 0;
    const struct {
        int attribute;
        int *to;
    } wanted[] = {{CUDA_ATTR_CAPABILITY_MAJOR, &major},
                  {CUDA_ATTR_CAPABILITY_MINOR, &minor},
                  {CUDA_ATTR_MULTIPROCESSORS, &gpu->multiprocessors},
                  {CUDA_ATTR_SHARED_PER_BLOCK, &gpu->shared_bytes},
                  {CUDA_ATTR_L2_BYTES, &gpu->l2_bytes},
                  {CUDA_ATTR_UNIFIED_ADDRESSING, &unified}};
    for (size_t i = 0; i < RAD_COUNT(wanted); i++) {
        int result = cu->device_attribute(wanted[i].to, wanted[i].attribute, gpu->device);
        if (result) return cuda_ok(cu, result, "cuDeviceGetAttribute", err);
    }
    gpu->capability = major * 10 + minor;
    int result = cu->device_name(gpu->name, (int)sizeof gpu->name, gpu->device);
    if (result) return cuda_ok(cu, result, "cuDeviceGetName", err);
    gpu->name[sizeof gpu->name - 1] = 0;
    result = cu->device_total_memory(&gpu->memory_bytes, gpu->device);
    if (result) return cuda_ok(cu, result, "cuDeviceTotalMem", err);
    if (gpu->capability < OLDEST_CAPABILITY || !unified)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "cuda: GPU %d (%s) is sm_%d%s; radish needs sm_%d (Ampere) or newer",
                        gpu->ordinal, gpu->name, gpu->capability,
                        unified ? "" : " and has no unified addresses", OLDEST_CAPABILITY);
    return RAD_OK;
}

static rad_status find_ordinal(cuda_gpu *gpu, rad_error *err)
{
    const cuda_driver *cu = gpu->cu;
    int count = 0;
    rad_status status = cuda_ok(cu, cu->device_count(&count), "cuDeviceGetCount", err);
    if (status) return status;
    if (gpu->ordinal < 0 || gpu->ordinal >= count)
        return rad_fail(err, RAD_E_INVAL, "cuda: there is no GPU %d: this machine has %d, from 0",
                        gpu->ordinal, count);
    return cuda_ok(cu, cu->device_get(&gpu->device, gpu->ordinal), "cuDeviceGet", err);
}

/* The device of a caller's context, and its number among all. */
static rad_status find_context(cuda_gpu *gpu, rad_error *err)
{
    const cuda_driver *cu = gpu->cu;
    rad_status status = cuda_gpu_enter(gpu, err);
    if (status) return status;
    status = cuda_ok(cu, cu->context_device(&gpu->device), "cuCtxGetDevice", err);
    cuda_gpu_leave(gpu);
    int count = 0;
    if (!status) status = cuda_ok(cu, cu->device_count(&count), "cuDeviceGetCount", err);
    for (int i = 0, device; i < count && !status; i++) {
        status = cuda_ok(cu, cu->device_get(&device, i), "cuDeviceGet", err);
        if (!status && device == gpu->device) gpu->ordinal = i;
    }
    return status;
}

rad_status cuda_gpu_open(const cuda_driver *cu, int ordinal, cuda_context use, cuda_gpu *out,
                         rad_error *err)
{
    *out = (cuda_gpu){.cu = cu, .ordinal = ordinal, .context = use};
    rad_status status = use ? find_context(out, err) : find_ordinal(out, err);
    if (!status) status = read_gpu(out, err);
    if (!status && !use) {
        status = cuda_ok(cu, cu->primary_retain(&out->context, out->device),
                         "cuDevicePrimaryCtxRetain", err);
        out->retained = !status;
    }
    if (status) cuda_gpu_close(out);
    return status;
}

void cuda_gpu_close(cuda_gpu *gpu)
{
    if (gpu->retained) (void)gpu->cu->primary_release(gpu->device);
    *gpu = (cuda_gpu){0};
}

rad_status cuda_gpu_enter(const cuda_gpu *gpu, rad_error *err)
{
    return cuda_ok(gpu->cu, gpu->cu->context_push(gpu->context), "cuCtxPushCurrent", err);
}

void cuda_gpu_leave(const cuda_gpu *gpu)
{
    cuda_context popped;
    (void)gpu->cu->context_pop(&popped);
}

/* The compiler's words as one line. */
static void flatten(char *log)
{
    size_t length = strlen(log);
    while (length && (unsigned char)log[length - 1] <= ' ')
        log[--length] = 0;
    for (char *c = log; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
}

rad_status cuda_module_load(const cuda_driver *cu, const char *name, const char *ptx,
                            cuda_module *out, rad_error *err)
{
    char log[JIT_LOG_BYTES] = "";
    int options[] = {CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log}; /* numbers go as pointers */
    *out = NULL;
    int result = cu->module_load(out, ptx, RAD_COUNT(options), options, values);
    if (result == CUDA_OK) return RAD_OK;
    *out = NULL;
    log[sizeof log - 1] = 0;
    flatten(log);
    char what[400];
    (void)snprintf(what, sizeof what, "%s: cuModuleLoadDataEx%s%.300s", name, *log ? ": " : "",
                   log);
    return cuda_ok(cu, result, what, err);
}

/* Whether the kernel's one parameter is as large as the struct that it will be given. A module
 * that was compiled with other headers would read past it. */
static rad_status check_params(const cuda_driver *cu, cuda_function function, const char *name,
                               size_t args_bytes, rad_error *err)
{
    size_t offset, bytes = 0;
    if (!cu->function_param) return RAD_OK;
    int result = cu->function_param(function, 0, &offset, &bytes);
    if (result == CUDA_NOT_SUPPORTED) return RAD_OK;
    if (result || bytes != args_bytes)
        return rad_fail(err, RAD_E_IO,
                        "cuda: kernel %s takes %zu bytes, and the program has %zu for it", name,
                        bytes, args_bytes);
    return RAD_OK;
}

rad_status cuda_function_get(const cuda_driver *cu, cuda_module module, const char *name,
                             size_t args_bytes, uint32_t shared_bytes, cuda_function *out,
                             rad_error *err)
{
    *out = NULL;
    rad_status status = cuda_ok(cu, cu->module_function(out, module, name), name, err);
    if (!status) status = check_params(cu, *out, name, args_bytes, err);
    if (!status && shared_bytes)
        status = cuda_ok(cu, cu->function_set(*out, CUDA_FUNC_DYNAMIC_SHARED, (int)shared_bytes),
                         name, err);
    if (!status && cu->function_load) status = cuda_ok(cu, cu->function_load(*out), name, err);
    if (status) *out = NULL;
    return status;
}

rad_status cuda_launch(const cuda_driver *cu, cuda_function function, const uint32_t grid[3],
                       uint32_t threads, uint32_t shared_bytes, cuda_stream stream, bool dependent,
                       const void *args, size_t args_bytes, rad_error *err)
{
    (void)args_bytes; /* of the kernel's parameter, which was compared in cuda_function_get */
    void *params[] = {(void *)(uintptr_t)args}; /* only read */
    if (dependent && cu->launch_ex) {
        cuda_launch_attribute attribute = {.id = CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION,
                                           .value.allowed = 1};
        cuda_launch_config config = {.grid = {grid[0], grid[1], grid[2]},
                                     .block = {threads, 1, 1},
                                     .shared_bytes = shared_bytes,
                                     .stream = stream,
                                     .attributes = &attribute,
                                     .num_attributes = 1};
        return cuda_ok(cu, cu->launch_ex(&config, function, params, NULL), "cuLaunchKernelEx", err);
    }
    return cuda_ok(cu,
                   cu->launch(function, grid[0], grid[1], grid[2], threads, 1, 1, shared_bytes,
                              stream, params, NULL),
                   "cuLaunchKernel", err);
}
