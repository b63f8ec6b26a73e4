/* fake_libcuda.c - the driver's functions over the emulator: fake_libcuda.h tells what they hold
 * their callers to.
 *
 * Every function goes through `enter`, which counts it, takes the one lock, and says what it is to
 * return if it is to do nothing. */
#include "fake_libcuda.h"
#include "fake_memory.h"
#include "fake_module.h"
#include "fake_work.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DECLARE(member, symbol, parameters)                                                        \
    __attribute__((visibility("default"))) int symbol parameters;
CUDA_DRIVER_FUNCTIONS(DECLARE, DECLARE)
#undef DECLARE

enum {
    FAKE_NOT_INITIALIZED = 3,
    MOST_CONTEXTS = 16,  /* that a thread has pushed */
    MULTIPROCESSORS = 8, /* few, so that grids that depend on it are small */
    SHARED_WITHOUT_ASKING = 48 << 10
};

struct CUctx_st {
    int retained;
};

typedef struct machine {
    long driver, capability, devices, init, memory, order, early, fences, fail_at, fail, arithmetic;
} machine;

static const machine default_machine = {
    .driver = 12040, .capability = 90, .devices = 1, .memory = 1 << 30, .fail_at = -1, .fail = 999};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static machine now;
static bool configured, initialized;
static long calls;
static struct CUctx_st primary;
static _Thread_local cuda_context contexts[MOST_CONTEXTS];
static _Thread_local int num_contexts;
static _Thread_local bool inside; /* this thread holds the lock */

/* ---- the machine ---- */

static void configure(void)
{
    static const struct {
        const char *name;
        size_t offset;
    } words[] = {
        {"driver", offsetof(machine, driver)},   {"capability", offsetof(machine, capability)},
        {"devices", offsetof(machine, devices)}, {"init", offsetof(machine, init)},
        {"memory", offsetof(machine, memory)},   {"order", offsetof(machine, order)},
        {"early", offsetof(machine, early)},     {"fences", offsetof(machine, fences)},
        {"fail_at", offsetof(machine, fail_at)}, {"fail", offsetof(machine, fail)},
        {"arithmetic", offsetof(machine, arithmetic)}};
    now = default_machine;
    for (const char *at = getenv("RADISH_FAKE_CUDA"); at && *at; at += strcspn(at, " ,")) {
        at += strspn(at, " ,");
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            size_t length = strlen(words[i].name);
            if (strncmp(at, words[i].name, length) == 0 && at[length] == '=')
                *(long *)((char *)&now + words[i].offset) = strtol(at + length + 1, NULL, 0);
        }
    }
    configured = true;
}

static void apply(void)
{
    memory_set_total((size_t)now.memory);
    const long of = now.arithmetic ? now.arithmetic : now.capability;
    work_set_machine((uint64_t)now.order,
                     of >= 90   ? TENSOR_CORE_SM90
                     : of >= 80 ? TENSOR_CORE_SM80
                                : TENSOR_CORE_OTHER,
                     now.early, now.fences);
}

static void lock_machine(void)
{
    if (inside) { /* a handler of signals jumped out */
        fprintf(stderr, "libcuda-emulated: a kernel or a copy crashed, nothing goes on after it\n");
        abort();
    }
    pthread_mutex_lock(&lock);
    inside = true;
    if (!configured) {
        configure();
        apply();
    }
}

static int leave(int result)
{
    inside = false;
    pthread_mutex_unlock(&lock);
    return result;
}

/* The machine is locked; other than CUDA_OK: the caller leaves with it. */
static int enter_any(void)
{
    lock_machine();
    return calls++ == now.fail_at ? (int)now.fail : CUDA_OK;
}

static int enter_initialized(void)
{
    int result = enter_any();
    return result ? result : initialized ? CUDA_OK : FAKE_NOT_INITIALIZED;
}

static int enter(void)
{
    int result = enter_initialized();
    return result                                       ? result
           : num_contexts && contexts[num_contexts - 1] ? CUDA_OK
                                                        : CUDA_INVALID_CONTEXT;
}

#define ENTER_AS(function)                                                                         \
    do {                                                                                           \
        int entered_ = function();                                                                 \
        if (entered_) return leave(entered_);                                                      \
    } while (0)
#define ENTER() ENTER_AS(enter)

/* Of calls that may not stand in a capture. */
#define ENTER_UNCAPTURED()                                                                         \
    do {                                                                                           \
        ENTER();                                                                                   \
        int refused_ = capture_refuses();                                                          \
        if (refused_) return leave(refused_);                                                      \
    } while (0)

void fake_cuda_machine(int driver_version, int capability, int devices, int init_result)
{
    lock_machine();
    now.driver = driver_version;
    now.capability = capability;
    now.devices = devices;
    now.init = init_result;
    apply();
    leave(0);
}

void fake_cuda_memory(size_t bytes)
{
    lock_machine();
    now.memory = (long)bytes;
    apply();
    leave(0);
}

void fake_cuda_order(uint64_t order)
{
    lock_machine();
    now.order = (long)order;
    apply();
    leave(0);
}

void fake_cuda_early(int on)
{
    lock_machine();
    now.early = on;
    apply();
    leave(0);
}

void fake_cuda_fences(int on)
{
    lock_machine();
    now.fences = on;
    apply();
    leave(0);
}

void fake_cuda_fail_at(long nth, int result)
{
    lock_machine();
    now.fail_at = nth;
    now.fail = result;
    leave(0);
}

long fake_cuda_calls(void)
{
    lock_machine();
    long count = calls;
    leave(0);
    return count;
}

long fake_cuda_launches(void)
{
    lock_machine();
    long count = work_launches();
    leave(0);
    return count;
}

void fake_cuda_reset(void)
{
    lock_machine();
    work_reset();
    modules_reset();
    memory_reset();
    primary.retained = 0;
    initialized = false;
    calls = 0;
    configure();
    apply();
    leave(0);
}

void fake_cuda_live(size_t *device_bytes, size_t *pinned_bytes, size_t *objects)
{
    lock_machine();
    *device_bytes = memory_used();
    *pinned_bytes = memory_pinned();
    *objects = work_objects() + modules_count() + (size_t)primary.retained;
    leave(0);
}

/* ---- driver and devices ---- */

static const struct {
    int result;
    const char *name, *text;
} results[] = {
    {CUDA_OK, "CUDA_SUCCESS", "no error"},
    {CUDA_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {FAKE_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {FAKE_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_UNSUPPORTED_PTX, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {FAKE_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {FAKE_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {FAKE_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {FAKE_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {FAKE_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
};

static int describe(int result, const char **to, bool name)
{
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].result == result) {
            *to = name ? results[i].name : results[i].text;
            return CUDA_OK;
        }
    *to = NULL;
    return CUDA_INVALID_VALUE;
}

int cuGetErrorName(int result, const char **name)
{
    return describe(result, name, true);
}
int cuGetErrorString(int result, const char **text)
{
    return describe(result, text, false);
}

int cuInit(unsigned flags)
{
    ENTER_AS(enter_any);
    if (flags) return leave(CUDA_INVALID_VALUE);
    if (now.init) return leave((int)now.init);
    initialized = true;
    return leave(now.devices ? CUDA_OK : CUDA_NO_DEVICE);
}

int cuDriverGetVersion(int *version)
{
    lock_machine();
    *version = (int)now.driver;
    return leave(CUDA_OK);
}

int cuDeviceGetCount(int *count)
{
    ENTER_AS(enter_initialized);
    *count = (int)now.devices;
    return leave(CUDA_OK);
}

int cuDeviceGet(int *device, int ordinal)
{
    ENTER_AS(enter_initialized);
    if (ordinal < 0 || ordinal >= now.devices) return leave(CUDA_INVALID_DEVICE);
    *device = ordinal;
    return leave(CUDA_OK);
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    ENTER_AS(enter_initialized);
    if (device < 0 || device >= now.devices) return leave(CUDA_INVALID_DEVICE);
    (void)snprintf(name, (size_t)bytes, "emulated GPU (sm_%ld)", now.capability);
    return leave(CUDA_OK);
}

static int most_shared(void)
{
    const long c = now.capability;
    return c >= 90 && c < 120 ? 227 << 10 : c == 80 || c == 87 ? 163 << 10 : 99 << 10;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    ENTER_AS(enter_initialized);
    if (device < 0 || device >= now.devices) return leave(CUDA_INVALID_DEVICE);
    switch (attribute) {
    case CUDA_ATTR_MULTIPROCESSORS: *value = MULTIPROCESSORS; break;
    case CUDA_ATTR_L2_BYTES: *value = 32 << 20; break;
    case CUDA_ATTR_UNIFIED_ADDRESSING: *value = 1; break;
    case CUDA_ATTR_CAPABILITY_MAJOR: *value = (int)now.capability / 10; break;
    case CUDA_ATTR_CAPABILITY_MINOR: *value = (int)now.capability % 10; break;
    case CUDA_ATTR_SHARED_PER_BLOCK: *value = most_shared(); break;
    default: return leave(CUDA_INVALID_VALUE);
    }
    return leave(CUDA_OK);
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    ENTER_AS(enter_initialized);
    if (device < 0 || device >= now.devices) return leave(CUDA_INVALID_DEVICE);
    *bytes = memory_total();
    return leave(CUDA_OK);
}

/* ---- contexts ---- */

int cuDevicePrimaryCtxRetain(cuda_context *context, int device)
{
    ENTER_AS(enter_initialized);
    if (device < 0 || device >= now.devices) return leave(CUDA_INVALID_DEVICE);
    primary.retained++;
    *context = &primary;
    return leave(CUDA_OK);
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    ENTER_AS(enter_initialized);
    if (device < 0 || device >= now.devices || !primary.retained)
        return leave(CUDA_INVALID_CONTEXT);
    primary.retained--;
    return leave(CUDA_OK);
}

static bool is_context(cuda_context context)
{
    return context == &primary && primary.retained;
}

int cuCtxGetCurrent(cuda_context *context)
{
    ENTER_AS(enter_initialized);
    *context = num_contexts ? contexts[num_contexts - 1] : NULL;
    return leave(CUDA_OK);
}

int cuCtxPushCurrent_v2(cuda_context context)
{
    ENTER_AS(enter_initialized);
    if (!is_context(context) || num_contexts == MOST_CONTEXTS) return leave(CUDA_INVALID_CONTEXT);
    contexts[num_contexts++] = context;
    return leave(CUDA_OK);
}

int cuCtxPopCurrent_v2(cuda_context *context)
{
    if (!num_contexts) return CUDA_INVALID_CONTEXT;
    num_contexts--;
    if (context) *context = contexts[num_contexts];
    return CUDA_OK;
}

int cuCtxGetDevice(int *device)
{
    ENTER();
    *device = 0;
    return leave(CUDA_OK);
}

int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER();
    *least = 0;
    *greatest = -5;
    return leave(CUDA_OK);
}

/* ---- modules ---- */

/* What the compiler says of a module goes where the caller has room for it. */
static void fill_log(const char *why, unsigned num_options, const int *options, void **values)
{
    char *log = NULL;
    size_t bytes = 0;
    for (unsigned i = 0; i < num_options; i++) {
        if (options[i] == CUDA_JIT_ERROR_LOG) log = values[i];
        if (options[i] == CUDA_JIT_ERROR_LOG_BYTES) bytes = (size_t)values[i];
    }
    if (log && bytes) (void)snprintf(log, bytes, "%s", why);
}

int cuModuleLoadDataEx(cuda_module *module, const void *image, unsigned num_options, int *options,
                       void **values)
{
    ENTER_UNCAPTURED();
    char why[200];
    int result = module_load(image, now.driver, now.capability, why, module);
    if (result) fill_log(why, num_options, options, values);
    return leave(result);
}

int cuModuleUnload(cuda_module module)
{
    ENTER_UNCAPTURED();
    (void)streams_finish_all();
    return leave(module_unload(module));
}

int cuModuleGetFunction(cuda_function *function, cuda_module module, const char *name)
{
    ENTER();
    return leave(module_find(module, name, function));
}

int cuFuncSetAttribute(cuda_function function, int attribute, int value)
{
    ENTER();
    if (attribute != CUDA_FUNC_DYNAMIC_SHARED || value < 0 ||
        value > most_shared() - function->static_shared)
        return leave(CUDA_INVALID_VALUE);
    function->dynamic_shared = value;
    return leave(CUDA_OK);
}

int cuFuncLoad(cuda_function function)
{
    ENTER_UNCAPTURED();
    function->loaded = true;
    return leave(CUDA_OK);
}

int cuFuncGetParamInfo(cuda_function function, size_t index, size_t *offset, size_t *bytes)
{
    ENTER();
    if (index) return leave(CUDA_INVALID_VALUE);
    *offset = 0;
    *bytes = function->kernel->args_bytes;
    return leave(CUDA_OK);
}

/* ---- launches ---- */

static int launch(cuda_function function, const cuda_launch_config *config, void **params,
                  void **extra)
{
    const emulated_kernel *kernel = function->kernel;
    int allowed = function->dynamic_shared ? function->dynamic_shared
                                           : SHARED_WITHOUT_ASKING - function->static_shared;
    if (!stream_exists(config->stream)) return FAKE_INVALID_HANDLE;
    if (extra || !params || config->block[1] != 1 || config->block[2] != 1 ||
        (int)config->shared_bytes > allowed)
        return CUDA_INVALID_VALUE;
    for (int i = 0; i < 3; i++)
        if (!config->grid[i] || config->grid[i] > (i ? 65535u : (uint32_t)INT32_MAX))
            return CUDA_INVALID_VALUE;
    if (!config->block[0] || config->block[0] > kernel->threads) return CUDA_INVALID_VALUE;
    bool dependent = false;
    for (uint32_t i = 0; i < config->num_attributes; i++)
        if (config->attributes[i].id == CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION)
            dependent = config->attributes[i].value.allowed;
        else
            return CUDA_NOT_SUPPORTED;
    if (dependent && now.capability < 90) return CUDA_NOT_SUPPORTED;
    if (!function->loaded && stream_is_captured(config->stream))
        return capture_breaks(config->stream);
    function->loaded = true;
    if (dependent && stream_is_captured(config->stream) && now.driver < 12030)
        return capture_breaks(config->stream);
    if (dependent && !function->waits) {
        fprintf(stderr,
                "libcuda-emulated: %s may begin early, and its PTX has no griddepcontrol.wait\n",
                kernel->name);
        return CUDA_LAUNCH_FAILED;
    }
    work *w = work_create(WORK_LAUNCH, params[0], kernel->args_bytes);
    w->launch.run = (emulation){.kernel = kernel->name,
                                .grid = {config->grid[0], config->grid[1], config->grid[2]},
                                .threads = config->block[0],
                                .shared_bytes = config->shared_bytes};
    w->launch.dependent = dependent;
    return stream_enqueue(config->stream, w);
}

int cuLaunchKernel(cuda_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   cuda_stream stream, void **params, void **extra)
{
    ENTER();
    cuda_launch_config config = {.grid = {grid_x, grid_y, grid_z},
                                 .block = {block_x, block_y, block_z},
                                 .shared_bytes = shared_bytes,
                                 .stream = stream};
    return leave(launch(function, &config, params, extra));
}

int cuLaunchKernelEx(const cuda_launch_config *config, cuda_function function, void **params,
                     void **extra)
{
    ENTER();
    return leave(launch(function, config, params, extra));
}

/* ---- streams, events, graphs ---- */

#define CHECK_STREAM(stream)                                                                       \
    if (!stream_exists(stream)) return leave(FAKE_INVALID_HANDLE)

int cuStreamCreate(cuda_stream *stream, unsigned flags)
{
    ENTER();
    return leave(stream_create(stream, !(flags & CUDA_STREAM_NON_BLOCKING)));
}

int cuStreamCreateWithPriority(cuda_stream *stream, unsigned flags, int priority)
{
    (void)priority;
    ENTER();
    return leave(stream_create(stream, !(flags & CUDA_STREAM_NON_BLOCKING)));
}

int cuStreamDestroy_v2(cuda_stream stream)
{
    ENTER();
    return leave(stream_destroy(stream));
}

int cuStreamSynchronize(cuda_stream stream)
{
    ENTER_UNCAPTURED();
    CHECK_STREAM(stream);
    return leave(stream_finish(stream));
}

int cuStreamQuery(cuda_stream stream)
{
    ENTER_UNCAPTURED();
    CHECK_STREAM(stream);
    return leave(stream_progress(stream));
}

int cuStreamWaitEvent(cuda_stream stream, cuda_event event, unsigned flags)
{
    ENTER();
    CHECK_STREAM(stream);
    return leave(flags ? CUDA_INVALID_VALUE : event_wait(stream, event));
}

int cuEventCreate(cuda_event *event, unsigned flags)
{
    ENTER();
    return leave(event_create(event, !(flags & CUDA_EVENT_DISABLE_TIMING)));
}

int cuEventDestroy_v2(cuda_event event)
{
    ENTER();
    return leave(event_destroy(event));
}

int cuEventRecord(cuda_event event, cuda_stream stream)
{
    ENTER();
    CHECK_STREAM(stream);
    return leave(event_record(event, stream));
}

int cuEventQuery(cuda_event event)
{
    ENTER_UNCAPTURED();
    return leave(event_progress(event));
}

int cuEventSynchronize(cuda_event event)
{
    ENTER_UNCAPTURED();
    return leave(event_finish(event));
}

int cuEventElapsedTime(float *milliseconds, cuda_event begin, cuda_event end)
{
    ENTER();
    return leave(event_elapsed(begin, end, milliseconds));
}

int cuStreamBeginCapture_v2(cuda_stream stream, int mode)
{
    ENTER();
    CHECK_STREAM(stream);
    return leave(capture_begin(stream, mode));
}

int cuStreamEndCapture(cuda_stream stream, cuda_graph *graph)
{
    ENTER();
    CHECK_STREAM(stream);
    return leave(capture_end(stream, graph));
}

int cuGraphInstantiateWithFlags(cuda_graph_exec *exec, cuda_graph graph, unsigned long long flags)
{
    ENTER();
    return leave(flags ? CUDA_INVALID_VALUE : graph_instantiate(graph, exec));
}

int cuGraphLaunch(cuda_graph_exec exec, cuda_stream stream)
{
    ENTER();
    CHECK_STREAM(stream);
    return leave(graph_launch(exec, stream));
}

int cuGraphExecDestroy(cuda_graph_exec exec)
{
    ENTER();
    return leave(graph_exec_destroy(exec));
}

int cuGraphDestroy(cuda_graph graph)
{
    ENTER();
    return leave(graph_destroy(graph));
}

/* ---- memory ---- */

int cuMemAlloc_v2(cuda_ptr *memory, size_t bytes)
{
    ENTER_UNCAPTURED();
    if (!bytes) return leave(CUDA_INVALID_VALUE);
    void *allocated = memory_alloc(bytes);
    if (!allocated) return leave(CUDA_OUT_OF_MEMORY);
    *memory = (cuda_ptr)(uintptr_t)allocated;
    return leave(CUDA_OK);
}

/* Freeing waits for the device, as the driver does. */
int cuMemFree_v2(cuda_ptr memory)
{
    ENTER_UNCAPTURED();
    if (!memory) return leave(CUDA_OK);
    (void)streams_finish_all();
    return leave(memory_free((void *)(uintptr_t)memory) ? CUDA_OK : CUDA_INVALID_VALUE);
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    ENTER();
    *total = memory_total();
    *free_bytes = memory_total() - memory_used();
    return leave(CUDA_OK);
}

int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    ENTER_UNCAPTURED();
    if (!bytes || flags & ~(unsigned)(CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED))
        return leave(CUDA_INVALID_VALUE);
    *memory = pinned_alloc(bytes);
    return leave(*memory ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

int cuMemFreeHost(void *memory)
{
    ENTER_UNCAPTURED();
    (void)streams_finish_all();
    return leave(pinned_free(memory) ? CUDA_OK : CUDA_INVALID_VALUE);
}

int cuPointerGetAttribute(void *value, int attribute, cuda_ptr memory)
{
    ENTER();
    memory_kind kind = memory_kind_of((void *)(uintptr_t)memory, 1);
    if (kind == MEMORY_OTHER) return leave(CUDA_INVALID_VALUE);
    switch (attribute) {
    case CUDA_POINTER_MEMORY_TYPE:
        *(unsigned *)value = kind == MEMORY_DEVICE ? CUDA_MEMORY_DEVICE : CUDA_MEMORY_HOST;
        return leave(CUDA_OK);
    case CUDA_POINTER_DEVICE_ADDRESS: *(cuda_ptr *)value = memory; return leave(CUDA_OK);
    default: return leave(CUDA_INVALID_VALUE);
    }
}

static bool is_device(cuda_ptr memory, size_t bytes)
{
    return memory_kind_of((void *)(uintptr_t)memory, bytes) == MEMORY_DEVICE;
}

/* Memory of the host that is not pinned may lie in a buffer of the driver's meanwhile: it is read
 * before the call returns. (A graph reads it when it is launched.) */
int cuMemcpyHtoDAsync_v2(cuda_ptr to, const void *from, size_t bytes, cuda_stream stream)
{
    ENTER();
    CHECK_STREAM(stream);
    if (!bytes) return leave(CUDA_OK);
    if (!is_device(to, bytes) || memory_is_arena(from)) return leave(CUDA_INVALID_VALUE);
    bool late = stream_is_captured(stream) || memory_kind_of(from, bytes) == MEMORY_PINNED;
    work *w = work_create(WORK_COPY, from, late ? 0 : bytes);
    w->copy.to = (void *)(uintptr_t)to;
    w->copy.from = late ? from : NULL;
    w->copy.bytes = bytes;
    return leave(stream_enqueue(stream, w));
}

/* To memory that is not pinned it is done when the call returns. */
int cuMemcpyDtoHAsync_v2(void *to, cuda_ptr from, size_t bytes, cuda_stream stream)
{
    ENTER();
    CHECK_STREAM(stream);
    if (!bytes) return leave(CUDA_OK);
    if (!is_device(from, bytes) || memory_is_arena(to)) return leave(CUDA_INVALID_VALUE);
    work *w = work_create(WORK_COPY, NULL, 0);
    w->copy.to = to;
    w->copy.from = (const void *)(uintptr_t)from;
    w->copy.bytes = bytes;
    int result = stream_enqueue(stream, w);
    bool late = stream_is_captured(stream) || memory_kind_of(to, bytes) == MEMORY_PINNED;
    return leave(result || late ? result : stream_finish(stream));
}

int cuMemcpyDtoDAsync_v2(cuda_ptr to, cuda_ptr from, size_t bytes, cuda_stream stream)
{
    ENTER();
    CHECK_STREAM(stream);
    if (!bytes) return leave(CUDA_OK);
    if (!is_device(to, bytes) || !is_device(from, bytes)) return leave(CUDA_INVALID_VALUE);
    work *w = work_create(WORK_COPY, NULL, 0);
    w->copy.to = (void *)(uintptr_t)to;
    w->copy.from = (const void *)(uintptr_t)from;
    w->copy.bytes = bytes;
    return leave(stream_enqueue(stream, w));
}

int cuMemsetD8Async(cuda_ptr memory, unsigned char value, size_t bytes, cuda_stream stream)
{
    ENTER();
    CHECK_STREAM(stream);
    if (!bytes) return leave(CUDA_OK);
    if (!is_device(memory, bytes)) return leave(CUDA_INVALID_VALUE);
    work *w = work_create(WORK_SET, NULL, 0);
    w->set.to = (void *)(uintptr_t)memory;
    w->set.bytes = bytes;
    w->set.value = value;
    return leave(stream_enqueue(stream, w));
}

int cuTensorMapEncodeTiled(cuda_tensor_map *map, int type, uint32_t rank, void *memory,
                           const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *element_strides, int interleave, int swizzle,
                           int promotion, int out_of_bounds)
{
    enum { BFLOAT16 = 9, SWIZZLE_128 = 3 };
    (void)promotion;
    ENTER_AS(enter_initialized);
    if (now.capability < 90 || type != BFLOAT16 || rank != 2 || swizzle != SWIZZLE_128 ||
        interleave || out_of_bounds || element_strides[0] != 1 || element_strides[1] != 1)
        return leave(CUDA_NOT_SUPPORTED);
    bool done = emulator_tensor_map(map, memory, sizes[0], sizes[1], strides[0], box[0], box[1]);
    return leave(done ? CUDA_OK : CUDA_INVALID_VALUE);
}
