/* bench_device_cuda.c - what copies of a GPU as a device cost (radish/device_cuda.h), beside what
 * the machine can do: one large copy by the copy engines in each direction, which is PCIe's
 * ceiling, and one on the GPU, which is its memory's.
 *
 *     bench_device_cuda [--library PATH] [--json FILE] [--mb N] [--blocks N]
 *
 * Rows lie at random places of buffers four times as large as what is copied. --mb: what a copy
 * moves (64); --blocks: of the GPU, at most, for copies to and from the host; without it several
 * are tried. Every row that was copied is compared at the end. Without a GPU it says so and
 * ends with 0. */
#define _GNU_SOURCE
#include "bench.h"

#include <radish/device_cuda.h>
#include <radish/token_to_kv_pool.h>

#include "device/cuda_driver.h"
#include "device/device.h"
#include "mem/host_kv_pool.h"

typedef struct bench {
    cuda_driver cu;
    cuda_gpu gpu;
    cuda_stream stream;
    rad_device *device;
    const char *library;
    FILE *json;
    uint32_t blocks, figures;
    size_t bytes;           /* that a copy moves */
    char *on_gpu[2], *host; /* 4 * bytes each; host: pinned */
    char *plain;
    double to_gpu, to_host, memory; /* ceilings, GB/s */
} bench;

static void must(rad_status status, const rad_error *err)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "%s: %s\n", rad_status_name(status), err ? err->text : "");
    exit(1);
}

static void did(const bench *b, int result, const char *what)
{
    rad_error err;
    must(cuda_ok(&b->cu, result, what, &err), &err);
}

static void figure(bench *b, const char *name, double value, const char *unit, double ceiling)
{
    printf("%-44s %9.2f %s", name, value, unit);
    if (ceiling > 0) printf("   %5.1f%% of %.1f", 100 * value / ceiling, ceiling);
    printf("\n");
    fflush(stdout);
    if (!b->json) return;
    fprintf(b->json, "%s\n  {\"name\": \"%s\", \"value\": %.5g, \"unit\": \"%s\"",
            b->figures++ ? "," : "", name, value, unit);
    if (ceiling > 0) fprintf(b->json, ", \"ceiling\": %.5g", ceiling);
    fprintf(b->json, "}");
}

/* ---- ceilings ---- */

static void engine_copy(void *arg, int way)
{
    bench *b = arg;
    cuda_ptr to = (cuda_ptr)(uintptr_t)b->on_gpu[0], from = (cuda_ptr)(uintptr_t)b->on_gpu[1];
    if (way == 0)
        did(b, b->cu.copy_to_device(to, b->host, b->bytes, b->stream), "cuMemcpyHtoDAsync");
    else if (way == 1)
        did(b, b->cu.copy_to_host(b->host, from, b->bytes, b->stream), "cuMemcpyDtoHAsync");
    else
        did(b, b->cu.copy_on_device(to, from, b->bytes, b->stream), "cuMemcpyDtoDAsync");
    did(b, b->cu.stream_synchronize(b->stream), "cuStreamSynchronize");
}

static void engine_to_gpu(void *arg)
{
    engine_copy(arg, 0);
}

static void engine_to_host(void *arg)
{
    engine_copy(arg, 1);
}

static void engine_on_gpu(void *arg)
{
    engine_copy(arg, 2);
}

static void measure_ceilings(bench *b)
{
    double gb = (double)b->bytes * 1e-9;
    b->to_gpu = gb / bench_measure(engine_to_gpu, b, 0.15).p10;
    b->to_host = gb / bench_measure(engine_to_host, b, 0.15).p10;
    b->memory = 2 * gb / bench_measure(engine_on_gpu, b, 0.15).p10;
    figure(b, "one copy, host to GPU", b->to_gpu, "GB/s", 0);
    figure(b, "one copy, GPU to host", b->to_host, "GB/s", 0);
    figure(b, "one copy on the GPU, read and written", b->memory, "GB/s", 0);
}

/* ---- rows ---- */

typedef struct rows_bench {
    bench *b;
    rad_device_rows dst, src;
    size_t row_bytes;
    uint32_t count;
} rows_bench;

static void copy_rows(void *arg)
{
    const rows_bench *r = arg;
    must(device_fence(r->b->device,
                      device_copy_rows(r->b->device, r->dst, r->src, r->row_bytes, r->count)),
         NULL);
}

static uint64_t next_random(uint64_t *rng)
{
    *rng ^= *rng << 13, *rng ^= *rng >> 7, *rng ^= *rng << 17;
    return *rng;
}

/* `count` of `range` numbers, each once. */
static int32_t *shuffled(uint32_t count, uint32_t range, uint64_t seed)
{
    int32_t *all = malloc(range * sizeof *all);
    if (!all) exit(1);
    for (uint32_t i = 0; i < range; i++)
        all[i] = (int32_t)i;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = i + (uint32_t)(next_random(&seed) % (range - i));
        int32_t t = all[i];
        all[i] = all[j], all[j] = t;
    }
    return all;
}

/* What is at `from` is read to the CPU by the driver's own copy and compared with the rows there.
 */
static void compare(const rows_bench *r)
{
    const bench *b = r->b;
    char *to = malloc(4 * b->bytes), *from = malloc(4 * b->bytes);
    if (!to || !from) exit(1);
    const struct {
        char *copy;
        const void *of;
    } sides[] = {{to, r->dst.base}, {from, r->src.base}};
    for (int i = 0; i < 2; i++)
        if (sides[i].of == b->host || sides[i].of == b->plain)
            memcpy(sides[i].copy, sides[i].of, 4 * b->bytes);
        else
            did(b,
                b->cu.copy_to_host(sides[i].copy, (cuda_ptr)(uintptr_t)sides[i].of, 4 * b->bytes,
                                   b->stream),
                "cuMemcpyDtoHAsync");
    did(b, b->cu.stream_synchronize(b->stream), "cuStreamSynchronize");
    for (uint32_t i = 0; i < r->count; i++)
        if (memcmp(to + (size_t)r->dst.indices[i] * r->row_bytes,
                   from + (size_t)r->src.indices[i] * r->row_bytes, r->row_bytes) != 0) {
            fprintf(stderr, "row %u of %zu bytes is not what was copied\n", i, r->row_bytes);
            exit(1);
        }
    free(to);
    free(from);
}

static void measure_rows(bench *b, void *to, void *from, size_t row_bytes, const char *name,
                         double ceiling, double bytes_a_byte)
{
    uint32_t count = (uint32_t)(b->bytes / row_bytes), range = 4 * count;
    int32_t *dst = shuffled(count, range, 88172645463325252u + row_bytes);
    int32_t *src = shuffled(count, range, 362436069u + row_bytes);
    rows_bench r = {b, {to, row_bytes, dst}, {from, row_bytes, src}, row_bytes, count};
    bench_times t = bench_measure(copy_rows, &r, 0.15);
    char line[64];
    snprintf(line, sizeof line, "%s, rows of %zu", name, row_bytes);
    figure(b, line, bytes_a_byte * (double)b->bytes * 1e-9 / t.p50, "GB/s", ceiling);
    compare(&r);
    free(dst);
    free(src);
}

static void make_device(bench *b, uint32_t blocks)
{
    rad_error err;
    rad_device_cuda_params p = {.struct_size = sizeof p,
                                .copy_blocks = blocks,
                                .context = b->gpu.context,
                                .library = b->library};
    must(rad_device_cuda_create(NULL, &p, &b->device, &err), &err);
    b->on_gpu[0] = b->device->ops->alloc(b->device, 4 * b->bytes);
    b->on_gpu[1] = b->device->ops->alloc(b->device, 4 * b->bytes);
    b->host = b->device->ops->alloc_pinned(b->device, 4 * b->bytes);
    if (!b->on_gpu[0] || !b->on_gpu[1] || !b->host) {
        fprintf(stderr, "no memory for buffers of %zu bytes\n", 4 * b->bytes);
        exit(1);
    }
    uint64_t rng = 2463534242u;
    for (size_t i = 0; i < 4 * b->bytes / 8; i++)
        ((uint64_t *)(void *)b->plain)[i] = next_random(&rng);
    memcpy(b->host, b->plain, 4 * b->bytes);
    cuda_ptr there = (cuda_ptr)(uintptr_t)b->on_gpu[1];
    did(b, b->cu.copy_to_device(there, b->plain, 4 * b->bytes, b->stream), "cuMemcpyHtoDAsync");
    did(b, b->cu.stream_synchronize(b->stream), "cuStreamSynchronize");
}

static void end_device(bench *b)
{
    b->device->ops->free(b->device, b->on_gpu[0], 4 * b->bytes);
    b->device->ops->free(b->device, b->on_gpu[1], 4 * b->bytes);
    b->device->ops->free_pinned(b->device, b->host, 4 * b->bytes);
    rad_device_cuda_destroy(b->device);
}

/* ---- a prompt's K/V from host memory, a layer at a time, as tiers load it ---- */

enum { KV_HEADS = 8, HEAD_DIM = 128, LAYERS = 32 };

typedef struct load_bench {
    rad_host_kv_pool *host;
    rad_page *pages;
    uint32_t count, layers;
} load_bench;

static void load_layers(void *arg)
{
    const load_bench *l = arg;
    for (uint32_t layer = 0; layer < l->layers; layer++)
        must(host_kv_pool_load_layer(l->host, layer, l->pages, l->pages, l->count), NULL);
}

static void back_up(void *arg)
{
    const load_bench *l = arg;
    must(host_kv_pool_backup(l->host, l->pages, l->pages, l->count), NULL);
}

/* The shape of an 8B model, whose prompt is as long as fits 8 * bytes, in pages of page_size. */
static void measure_load(bench *b, uint32_t page_size, uint32_t layout)
{
    rad_error err;
    load_bench l = {.layers = LAYERS};
    size_t token = (size_t)LAYERS * 2 * KV_HEADS * HEAD_DIM * 2;
    l.count = (uint32_t)(8 * b->bytes / token / page_size);
    if (!l.count) return;
    rad_token_to_kv_pool *pool = NULL;
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = l.count,
                                     .page_size = page_size,
                                     .num_layers = LAYERS,
                                     .num_kv_heads = KV_HEADS,
                                     .head_dim = HEAD_DIM,
                                     .dtype = RAD_BF16,
                                     .device = b->device};
    must(rad_token_to_kv_pool_create(NULL, &p, &pool, &err), &err);
    rad_host_kv_pool_params h = {
        .struct_size = sizeof h, .device_pool = pool, .ratio = 1, .layout = layout};
    must(rad_host_kv_pool_create(NULL, &h, &l.host, &err), &err);
    l.pages = shuffled(l.count, l.count, 1234567 + page_size);
    for (uint32_t i = 0; i < l.count; i++)
        l.pages[i]++; /* pages count from 1 */
    double gb = (double)l.count * page_size * (double)token * 1e-9;
    const char *form = layout == RAD_HOST_PAGE_FIRST ? "page first" : "layer first";
    char line[80];
    double s = bench_measure(load_layers, &l, 0.15).p50;
    snprintf(line, sizeof line, "8B shape, page %u, %s: load", page_size, form);
    figure(b, line, gb / s, "GB/s", b->to_gpu);
    snprintf(line, sizeof line, "8B shape, page %u, %s: load of 8192 tokens", page_size, form);
    figure(b, line, s * 1e3 * 8192 / ((double)l.count * page_size), "ms", 0);
    s = bench_measure(back_up, &l, 0.15).p50;
    snprintf(line, sizeof line, "8B shape, page %u, %s: backup", page_size, form);
    figure(b, line, gb / s, "GB/s", b->to_host);
    free(l.pages);
    rad_host_kv_pool_destroy(l.host);
    rad_token_to_kv_pool_destroy(pool);
}

static void measure_latency(bench *b)
{
    static int32_t rows[16];
    for (int i = 0; i < 16; i++)
        rows[i] = 31 - 2 * i;
    rows_bench r = {b, {b->on_gpu[0], 4096, rows}, {b->host, 4096, rows}, 4096, 16};
    figure(b, "16 rows of 4096 to the GPU and a fence", bench_measure(copy_rows, &r, 0.1).p50 * 1e6,
           "us", 0);
}

static void measure(bench *b)
{
    static const size_t sizes[] = {256, 1024, 4096};
    static const uint32_t tried[] = {8, 16, 32, 64, 128};
    make_device(b, b->blocks);
    measure_ceilings(b);
    measure_latency(b);
    for (size_t i = 0; i < RAD_COUNT(sizes); i++)
        measure_rows(b, b->on_gpu[0], b->on_gpu[1], sizes[i], "on the GPU", b->memory, 2);
    for (size_t i = 0; i < RAD_COUNT(sizes); i++) {
        measure_rows(b, b->on_gpu[0], b->plain, sizes[i], "plain host to GPU", b->to_gpu, 1);
        measure_rows(b, b->plain, b->on_gpu[1], sizes[i], "GPU to plain host", b->to_host, 1);
    }
    for (uint32_t page_size = 1; page_size <= 16; page_size *= 16)
        for (uint32_t layout = 0; layout < 2; layout++)
            measure_load(b, page_size, layout);
    end_device(b);
    for (size_t k = 0; k < RAD_COUNT(tried); k++) {
        uint32_t blocks = b->blocks ? b->blocks : tried[k];
        make_device(b, blocks);
        for (size_t i = 0; i < RAD_COUNT(sizes); i++) {
            char name[64];
            snprintf(name, sizeof name, "%u blocks, host to GPU", blocks);
            measure_rows(b, b->on_gpu[0], b->host, sizes[i], name, b->to_gpu, 1);
            snprintf(name, sizeof name, "%u blocks, GPU to host", blocks);
            measure_rows(b, b->host, b->on_gpu[1], sizes[i], name, b->to_host, 1);
        }
        end_device(b);
        if (b->blocks) break;
    }
}

int main(int argc, char **argv)
{
    bench b = {.bytes = 64 << 20};
    const char *json = NULL;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value && strcmp(argv[i], "--library") == 0)
            b.library = argv[++i];
        else if (value && strcmp(argv[i], "--json") == 0)
            json = argv[++i];
        else if (value && strcmp(argv[i], "--mb") == 0)
            b.bytes = (size_t)RAD_MAX(atol(argv[++i]), 1) << 20;
        else if (value && strcmp(argv[i], "--blocks") == 0)
            b.blocks = (uint32_t)atol(argv[++i]);
        else {
            fprintf(stderr, "%s [--library PATH] [--json FILE] [--mb N] [--blocks N]\n", argv[0]);
            return 2;
        }
    }
    rad_error err;
    rad_status status = cuda_driver_open(b.library, &b.cu, &err);
    if (!status) status = cuda_gpu_open(&b.cu, 0, NULL, &b.gpu, &err);
    if (status == RAD_E_UNSUPPORTED) {
        printf("nothing is measured: %s\n", err.text);
        return 0;
    }
    must(status, &err);
    must(cuda_gpu_enter(&b.gpu, &err), &err);
    did(&b, b.cu.stream_create(&b.stream, CUDA_STREAM_NON_BLOCKING), "cuStreamCreate");
    b.plain = malloc(4 * b.bytes);
    if (!b.plain) return 1;
    if (json && !(b.json = fopen(json, "w"))) {
        fprintf(stderr, "%s: cannot be written\n", json);
        return 1;
    }
    printf("# %s, sm_%d, %d multiprocessors, driver for CUDA %d.%d; copies of %zu MB\n", b.gpu.name,
           b.gpu.capability, b.gpu.multiprocessors, b.cu.version / 1000, b.cu.version % 1000 / 10,
           b.bytes >> 20);
    if (b.json) fprintf(b.json, "{\"gpu\": \"%s\", \"figures\": [", b.gpu.name);
    measure(&b);
    if (b.json) {
        fprintf(b.json, "\n]}\n");
        fclose(b.json);
    }
    free(b.plain);
    (void)b.cu.stream_destroy(b.stream);
    cuda_gpu_leave(&b.gpu);
    cuda_gpu_close(&b.gpu);
    cuda_driver_close(&b.cu);
    return 0;
}
