/* bench_cuda_ceilings.c - what this GPU can do at most, for other figures to stand beside.
 *
 *     bench_cuda_ceilings [--library PATH] [--ptx DIR] [--gpu N] [--small] [--json FILE]
 *
 * Memory is read by a kernel and copied by the driver; pinned host memory is copied both ways; the
 * tensor cores run mma.sync from registers and, on sm_90, wgmma from shared memory; launches are
 * counted one by one, behind each other in a graph, and there as dependent ones. Each is repeated,
 * the median is told. `--small`: bytes and rounds of a test. DIR (bench/ptx) has
 * bench_ceilings.sm80.ptx and bench_ceilings.sm90.ptx. */
#include "bench.h"
#include "device/cuda_driver.h"
#include "kernels/bench_ceilings_args.h"

#include <jansson.h>

enum { RUNS = 9, MOST_LAUNCHES = 1000 };

typedef struct ceilings {
    cuda_driver cu;
    cuda_gpu gpu;
    cuda_module sm80, sm90;
    cuda_stream stream;
    cuda_event begin, end;
    cuda_ptr from, to;
    size_t bytes; /* of each */
    bool small;
    json_t *json;
} ceilings;

static void must(rad_status status, const rad_error *err, const char *what)
{
    if (status >= 0) return;
    fprintf(stderr, "bench_cuda_ceilings: %s: %s %s\n", what, rad_status_name(status), err->text);
    exit(1);
}

static void call(const ceilings *c, int result, const char *what)
{
    rad_error err = {0};
    must(cuda_ok(&c->cu, result, what, &err), &err, what);
}

/* NULL: there is no such file. To be freed. */
static char *read_text(const char *dir, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    enum { MOST = 1 << 20 };
    char *text = calloc(1, MOST);
    if (text && fread(text, 1, MOST - 1, f) == 0) text[0] = 0;
    fclose(f);
    return text;
}

static cuda_module load(const ceilings *c, const char *dir, const char *name)
{
    rad_error err = {0};
    cuda_module module = NULL;
    char *text = read_text(dir, name);
    if (!text) {
        fprintf(stderr, "bench_cuda_ceilings: %s/%s is not there (--ptx DIR)\n", dir, name);
        exit(1);
    }
    must(cuda_module_load(&c->cu, name, text, &module, &err), &err, name);
    free(text);
    return module;
}

static void launch(const ceilings *c, cuda_function f, uint32_t blocks, uint32_t threads,
                   uint32_t shared, bool dependent, const ceiling_args *args)
{
    rad_error err = {0};
    const uint32_t grid[3] = {blocks, 1, 1};
    must(cuda_launch(&c->cu, f, grid, threads, shared, c->stream, dependent, args, sizeof *args,
                     &err),
         &err, "launch");
}

typedef void work(const ceilings *c, void *arg);

/* Seconds of the GPU, the median of RUNS behind one that warms up. */
static double seconds_of(const ceilings *c, work *fn, void *arg)
{
    double seconds[RUNS];
    const int runs = c->small ? 1 : RUNS;
    for (int i = -1; i < runs; i++) {
        float ms = 0;
        call(c, c->cu.event_record(c->begin, c->stream), "cuEventRecord");
        fn(c, arg);
        call(c, c->cu.event_record(c->end, c->stream), "cuEventRecord");
        call(c, c->cu.event_synchronize(c->end), "cuEventSynchronize");
        call(c, c->cu.event_elapsed(&ms, c->begin, c->end), "cuEventElapsedTime");
        if (i >= 0) seconds[i] = ms > 0 ? ms * 1e-3 : 1e-9;
    }
    return bench_median(seconds, runs);
}

static void tell(ceilings *c, const char *name, double value, const char *unit)
{
    printf("%-28s %10.2f %s\n", name, value, unit);
    fflush(stdout);
    json_object_set_new(c->json, name, json_real(value));
}

/* ---- memory ---- */

typedef struct kernel_run {
    cuda_function f;
    ceiling_args args;
    uint32_t blocks, threads, shared;
} kernel_run;

static void run_kernel(const ceilings *c, void *arg)
{
    const kernel_run *k = arg;
    launch(c, k->f, k->blocks, k->threads, k->shared, false, &k->args);
}

static void run_copy(const ceilings *c, void *arg)
{
    (void)arg;
    call(c, c->cu.copy_on_device(c->to, c->from, c->bytes, c->stream), "cuMemcpyDtoDAsync");
}

typedef struct host_copy {
    void *host;
    size_t bytes;
    bool to_device;
} host_copy;

static void run_host_copy(const ceilings *c, void *arg)
{
    const host_copy *h = arg;
    if (h->to_device)
        call(c, c->cu.copy_to_device(c->from, h->host, h->bytes, c->stream), "cuMemcpyHtoDAsync");
    else
        call(c, c->cu.copy_to_host(h->host, c->from, h->bytes, c->stream), "cuMemcpyDtoHAsync");
}

static kernel_run kernel(const ceilings *c, cuda_module module, const char *name, uint32_t shared)
{
    rad_error err = {0};
    kernel_run k = {.args = {.from = (const void *)c->from, .to = (void *)c->to}, .shared = shared};
    must(cuda_function_get(&c->cu, module, name, sizeof k.args, shared, &k.f, &err), &err, name);
    return k;
}

static void measure_memory(ceilings *c)
{
    kernel_run read = kernel(c, c->sm80, "read_all", 0);
    read.args.pieces = c->bytes / 16;
    read.threads = CEILING_THREADS;
    double best = 0;
    for (uint32_t each = 1; each <= 4; each *= 2) { /* blocks of a multiprocessor */
        read.blocks = (uint32_t)c->gpu.multiprocessors * each;
        best = RAD_MAX(best, (double)c->bytes / seconds_of(c, run_kernel, &read));
    }
    tell(c, "read_gb_s", best * 1e-9, "GB/s");
    tell(c, "copy_gb_s", 2e-9 * (double)c->bytes / seconds_of(c, run_copy, NULL),
         "GB/s, read and written");
    host_copy h = {.bytes = c->bytes / 4, .to_device = true};
    call(c, c->cu.host_alloc(&h.host, h.bytes, CUDA_HOST_PORTABLE), "cuMemHostAlloc");
    memset(h.host, 0x5a, h.bytes);
    tell(c, "host_to_device_gb_s", 1e-9 * (double)h.bytes / seconds_of(c, run_host_copy, &h),
         "GB/s, pinned");
    h.to_device = false;
    tell(c, "device_to_host_gb_s", 1e-9 * (double)h.bytes / seconds_of(c, run_host_copy, &h),
         "GB/s, pinned");
    call(c, c->cu.host_free(h.host), "cuMemFreeHost");
}

/* ---- arithmetic ---- */

static void measure_products(ceilings *c)
{
    kernel_run mma = kernel(c, c->sm80, "mma_loop", 0);
    mma.threads = CEILING_MMA_THREADS;
    mma.args.rounds = c->small ? 4 : 20000;
    double best = 0;
    for (uint32_t each = 1; each <= 4; each *= 2) {
        mma.blocks = (uint32_t)c->gpu.multiprocessors * each;
        const double flops = ceiling_mma_flops(mma.blocks, mma.args.rounds);
        best = RAD_MAX(best, flops / seconds_of(c, run_kernel, &mma));
        if (c->small) break;
    }
    tell(c, "mma_sync_tflops", best * 1e-12, "TFLOP/s");
    if (!c->sm90) return;
    kernel_run wgmma = kernel(c, c->sm90, "wgmma_loop", CEILING_WGMMA_SHARED);
    wgmma.threads = CEILING_WGMMA_THREADS;
    wgmma.blocks = (uint32_t)c->gpu.multiprocessors;
    wgmma.args.rounds = c->small ? 2 : 2500;
    const double flops = ceiling_wgmma_flops(wgmma.blocks, wgmma.args.rounds);
    tell(c, "wgmma_tflops", 1e-12 * flops / seconds_of(c, run_kernel, &wgmma), "TFLOP/s");
}

/* ---- launches ---- */

typedef struct launches {
    kernel_run nothing;
    cuda_graph_exec graph;
    uint32_t count;
} launches;

static void run_launches(const ceilings *c, void *arg)
{
    const launches *l = arg;
    for (uint32_t i = 0; i < l->count; i++)
        run_kernel(c, (void *)(uintptr_t)&l->nothing);
}

static void run_graph(const ceilings *c, void *arg)
{
    call(c, c->cu.graph_launch(((const launches *)arg)->graph, c->stream), "cuGraphLaunch");
}

/* Microseconds of a launch in a graph of them. */
static double in_a_graph(const ceilings *c, launches *l, bool dependent)
{
    cuda_graph graph = NULL;
    call(c, c->cu.capture_begin(c->stream, CUDA_CAPTURE_THREAD_LOCAL), "cuStreamBeginCapture");
    for (uint32_t i = 0; i < l->count; i++)
        launch(c, l->nothing.f, l->nothing.blocks, l->nothing.threads, 0, dependent,
               &l->nothing.args);
    call(c, c->cu.capture_end(c->stream, &graph), "cuStreamEndCapture");
    call(c, c->cu.graph_instantiate(&l->graph, graph, 0), "cuGraphInstantiate");
    const double seconds = seconds_of(c, run_graph, l);
    call(c, c->cu.graph_exec_destroy(l->graph), "cuGraphExecDestroy");
    call(c, c->cu.graph_destroy(graph), "cuGraphDestroy");
    return seconds * 1e6 / l->count;
}

static void measure_launches(ceilings *c)
{
    launches l = {.nothing = kernel(c, c->sm90 ? c->sm90 : c->sm80, "nothing", 0),
                  .count = c->small ? 4 : MOST_LAUNCHES};
    l.nothing.threads = 32;
    l.nothing.blocks = (uint32_t)c->gpu.multiprocessors;
    tell(c, "launch_us", seconds_of(c, run_launches, &l) * 1e6 / l.count,
         "us a launch, one behind the other");
    tell(c, "graph_launch_us", in_a_graph(c, &l, false), "us a launch in a graph");
    if (c->sm90)
        tell(c, "dependent_launch_us", in_a_graph(c, &l, true), "us a dependent launch in a graph");
}

static int usage(FILE *to)
{
    fputs("usage: bench_cuda_ceilings [--library PATH] [--ptx DIR] [--gpu N] [--small] "
          "[--json FILE]\n",
          to);
    return to == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    const char *library = NULL, *ptx = "bench/ptx", *out = NULL;
    ceilings c = {.json = json_object()};
    int ordinal = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(word, "--help")) return usage(stdout);
        if (!strcmp(word, "--small")) {
            c.small = true;
            continue;
        }
        if (!value) return usage(stderr);
        i++;
        if (!strcmp(word, "--library"))
            library = value;
        else if (!strcmp(word, "--ptx"))
            ptx = value;
        else if (!strcmp(word, "--json"))
            out = value;
        else if (!strcmp(word, "--gpu"))
            ordinal = atoi(value);
        else
            return usage(stderr);
    }
    rad_error err = {0};
    must(cuda_driver_open(library, &c.cu, &err), &err, "driver");
    must(cuda_gpu_open(&c.cu, ordinal, NULL, &c.gpu, &err), &err, "GPU");
    must(cuda_gpu_enter(&c.gpu, &err), &err, "GPU");
    c.sm80 = load(&c, ptx, "bench_ceilings.sm80.ptx");
    if (c.gpu.capability == 90) c.sm90 = load(&c, ptx, "bench_ceilings.sm90.ptx");
    c.bytes = c.small ? 1 << 16 : (size_t)2 << 30;
    const size_t room = RAD_MAX(c.bytes, (size_t)16 << 20);
    call(&c, c.cu.mem_alloc(&c.from, room), "cuMemAlloc");
    call(&c, c.cu.mem_alloc(&c.to, room), "cuMemAlloc");
    call(&c, c.cu.stream_create(&c.stream, CUDA_STREAM_NON_BLOCKING), "cuStreamCreate");
    call(&c, c.cu.event_create(&c.begin, 0), "cuEventCreate");
    call(&c, c.cu.event_create(&c.end, 0), "cuEventCreate");
    call(&c, c.cu.set_bytes(c.from, 0x5a, room, c.stream), "cuMemsetD8Async");
    printf("%s, sm_%d, %d multiprocessors, %.1f GB, L2 %.0f MB, driver %d.%d\n", c.gpu.name,
           c.gpu.capability, c.gpu.multiprocessors, (double)c.gpu.memory_bytes * 1e-9,
           c.gpu.l2_bytes * 1e-6, c.cu.version / 1000, c.cu.version % 1000 / 10);
    json_object_set_new(c.json, "gpu", json_string(c.gpu.name));
    json_object_set_new(c.json, "arch", json_integer(c.gpu.capability));
    json_object_set_new(c.json, "multiprocessors", json_integer(c.gpu.multiprocessors));
    json_object_set_new(c.json, "memory_gb", json_real((double)c.gpu.memory_bytes * 1e-9));
    json_object_set_new(c.json, "driver", json_integer(c.cu.version));
    measure_memory(&c);
    measure_launches(&c);
    measure_products(&c);
    if (out && json_dump_file(c.json, out, JSON_INDENT(1)) != 0) {
        fprintf(stderr, "bench_cuda_ceilings: cannot write %s\n", out);
        return 1;
    }
    json_decref(c.json);
    cuda_gpu_leave(&c.gpu);
    cuda_gpu_close(&c.gpu);
    cuda_driver_close(&c.cu);
    return 0;
}
