/* cuda_rig.h - kernels for tests: launched on the emulator, and, where RADISH_TEST_GPU is set, on
 * this machine's GPU as well, whose memory must then hold the same bits as the emulator's.
 *
 *     cuda_rig rig = rig_open();
 *     float *x = rig_alloc(&rig, bytes);               0xa5 all over; host memory
 *     rig_launch(&rig, "gemm_few", (emulation){...});  args hold addresses inside such memory
 *     ... x is what the kernel left
 *     rig_map(&rig, &args.x, x, rows, k, 64);          a tensor map, of the emulator
 *     rig_close(&rig);
 *
 * RADISH_TEST_GPU names the driver's library (libcuda.so.1); kernels are those of src/cuda/ptx. All
 * memory of the rig goes to the GPU before a launch and comes back to be compared behind it; NaNs
 * differ as they like. A launch by a model that is not the GPU's is emulated alone. A kernel that
 * there is for Hopper alone is called "sm90:NAME". */
#ifndef TESTS_CUDA_CUDA_RIG_H
#define TESTS_CUDA_CUDA_RIG_H

#include "../test.h"
#include "base/base.h"
#include "cuda/cuda_ptx.h"
#include "device/cuda_driver.h"
#include "emulator.h"

enum { RIG_BUFFERS = 24, RIG_MAPS = 4 };
typedef struct cuda_rig {
    struct {
        unsigned char *host;
        cuda_ptr device;
        size_t bytes;
    } buffers[RIG_BUFFERS];
    uint32_t num_buffers;
    struct {
        uint64_t emulated[16];
        cuda_tensor_map gpu;
    } maps[RIG_MAPS]; /* of the latest launches */
    uint32_t num_maps;
    bool has_gpu;
    cuda_driver cu;
    cuda_gpu gpu;
    cuda_stream stream;
    uint64_t compared; /* launches */
} cuda_rig;

static inline void rig_did(const cuda_rig *rig, int result, const char *what)
{
    rad_error err = {0};
    CHECKF(cuda_ok(&rig->cu, result, what, &err) == RAD_OK, "%s\n", err.text);
}

static inline cuda_rig rig_open(void)
{
    cuda_rig rig = {0};
    const char *library = getenv("RADISH_TEST_GPU");
    rad_error err = {0};
    if (!library || !*library) return rig;
    CHECKF(cuda_driver_open(library, &rig.cu, &err) == RAD_OK, "%s\n", err.text);
    rig.has_gpu = true;
    return rig;
}

/* The GPU's context belongs to the driver's table, which must not move: opened at the first use. */
static inline void rig_enter(cuda_rig *rig)
{
    rad_error err = {0};
    if (rig->stream) return;
    CHECKF(cuda_gpu_open(&rig->cu, 0, NULL, &rig->gpu, &err) == RAD_OK, "%s\n", err.text);
    CHECKF(cuda_gpu_enter(&rig->gpu, &err) == RAD_OK, "%s\n", err.text);
    rig_did(rig, rig->cu.stream_create(&rig->stream, CUDA_STREAM_NON_BLOCKING), "stream");
}

/* As many bytes as asked for, so that sanitizers see what is read behind them. */
static inline void *rig_alloc(cuda_rig *rig, size_t bytes)
{
    CHECK(rig->num_buffers < RIG_BUFFERS);
    const uint32_t i = rig->num_buffers++;
    rig->buffers[i].host = malloc(bytes); /* aligned to 16 */
    rig->buffers[i].bytes = bytes;
    memset(rig->buffers[i].host, 0xa5, bytes);
    if (rig->has_gpu) {
        rig_enter(rig);
        rig_did(rig, rig->cu.mem_alloc(&rig->buffers[i].device, bytes), "memory");
    }
    return rig->buffers[i].host;
}

/* What bulk copies read a matrix [rows][k] of bf16 by, in boxes of 64 columns. */
static inline void rig_map(cuda_rig *rig, void *map, void *memory, uint32_t rows, uint32_t k,
                           uint32_t box_rows)
{
    CHECK(emulator_tensor_map(map, memory, k, rows, (uint64_t)k * 2, 64, box_rows));
    if (!rig->has_gpu) return;
    enum { BF16 = 9, SWIZZLE_128 = 3 };
    const uint64_t sizes[] = {k, rows}, strides[] = {(uint64_t)k * 2};
    const uint32_t box[] = {64, box_rows}, steps[] = {1, 1}, m = rig->num_maps++ % RIG_MAPS;
    memcpy(rig->maps[m].emulated, map, sizeof rig->maps[m].emulated);
    for (uint32_t b = 0; b < rig->num_buffers; b++) {
        const uint64_t at = (uintptr_t)memory - (uintptr_t)rig->buffers[b].host;
        if (at < rig->buffers[b].bytes)
            rig_did(rig,
                    rig->cu.tensor_map_tiled(&rig->maps[m].gpu, BF16, 2,
                                             (void *)(uintptr_t)(rig->buffers[b].device + at),
                                             sizes, strides, box, steps, 0, SWIZZLE_128, 0, 0),
                    "tensor map");
    }
}

/* Gives all memory back that was taken after the first `keep` buffers. */
static inline void rig_free(cuda_rig *rig, uint32_t keep)
{
    while (rig->num_buffers > keep) {
        const uint32_t i = --rig->num_buffers;
        free(rig->buffers[i].host);
        if (rig->has_gpu) rig->cu.mem_free(rig->buffers[i].device);
    }
}

static inline void rig_close(cuda_rig *rig)
{
    rig_free(rig, 0);
    if (rig->has_gpu) printf("%llu launches compared\n", (unsigned long long)rig->compared);
    if (rig->stream) {
        rig->cu.stream_destroy(rig->stream);
        cuda_gpu_leave(&rig->gpu);
        cuda_gpu_close(&rig->gpu);
    }
    if (rig->has_gpu) cuda_driver_close(&rig->cu);
}

static inline bool rig_is_nan(uint32_t word)
{
    return (word & 0x7fffffff) > 0x7f800000;
}

static inline void rig_launch_gpu(cuda_rig *rig, const char *file, const emulation *e,
                                  size_t args_bytes)
{
    const cuda_driver *cu = &rig->cu;
    rad_error err = {0};
    char path[256], *text;
    const char *kernel = strncmp(e->kernel, "sm90:", 5) == 0 ? e->kernel + 5 : e->kernel;
    uint64_t args[64];
    FILE *in = NULL;
    CHECK(args_bytes <= sizeof args);
    memcpy(args, e->args, args_bytes);
    for (uint32_t b = 0; b < rig->num_buffers; b++)
        for (size_t i = 0; i < args_bytes / 8; i++) {
            const uint64_t at = ((const uint64_t *)e->args)[i] - (uintptr_t)rig->buffers[b].host;
            if (at < rig->buffers[b].bytes) args[i] = rig->buffers[b].device + at;
        }
    for (uint32_t m = 0; m < RIG_MAPS && m < rig->num_maps; m++)
        for (size_t i = 0; i + 16 <= args_bytes / 8; i += 8)
            if (memcmp((const uint64_t *)e->args + i, rig->maps[m].emulated, 128) == 0)
                memcpy(&args[i], &rig->maps[m].gpu, 128);
    if (rig->gpu.capability >= 90) {
        snprintf(path, sizeof path, "src/cuda/ptx/%s.sm90.ptx", file);
        in = fopen(path, "rb");
    }
    if (!in) {
        snprintf(path, sizeof path, "src/cuda/ptx/%s.sm80.ptx", file);
        in = fopen(path, "rb");
    }
    CHECKF(in != NULL, "%s: not there\n", path);
    fseek(in, 0, SEEK_END);
    const long bytes = ftell(in);
    rewind(in);
    text = calloc((size_t)bytes + 1, 1);
    CHECK(fread(text, 1, (size_t)bytes, in) == (size_t)bytes);
    fclose(in);
    if (rig->gpu.capability >= 90 && strstr(text, "//griddepcontrol")) cuda_ptx_for_sm90(text);

    cuda_module module;
    cuda_function function;
    CHECKF(cuda_module_load(cu, file, text, &module, &err) == RAD_OK, "%s\n", err.text);
    CHECKF(cuda_function_get(cu, module, kernel, args_bytes, e->shared_bytes, &function, &err) ==
               RAD_OK,
           "%s\n", err.text);
    CHECKF(cuda_launch(cu, function, e->grid, e->threads, e->shared_bytes, rig->stream, false, args,
                       args_bytes, &err) == RAD_OK,
           "%s\n", err.text);
    rig_did(rig, cu->stream_synchronize(rig->stream), e->kernel);
    cu->module_unload(module);
    free(text);
}

static inline void rig_compare(cuda_rig *rig, const emulation *e)
{
    for (uint32_t b = 0; b < rig->num_buffers; b++) {
        const size_t bytes = rig->buffers[b].bytes;
        unsigned char *back = malloc(bytes);
        rig_did(rig, rig->cu.copy_to_host(back, rig->buffers[b].device, bytes, rig->stream),
                "copy");
        rig_did(rig, rig->cu.stream_synchronize(rig->stream), "copy");
        uint32_t theirs, ours;
        for (size_t i = 0; i < bytes; i++) {
            if (back[i] == rig->buffers[b].host[i]) continue;
            if ((i | 3) < bytes) {
                memcpy(&theirs, back + i / 4 * 4, 4);
                memcpy(&ours, rig->buffers[b].host + i / 4 * 4, 4);
                if (rig_is_nan(theirs) && rig_is_nan(ours)) continue;
            }
            CHECKF(false, "%s: byte %zu of buffer %u is 0x%02x on the GPU, 0x%02x here\n",
                   e->kernel, i, b, back[i], rig->buffers[b].host[i]);
        }
        free(back);
    }
    rig->compared++;
}

/* `file`: NAME of src/cuda/kernels/NAME.cu. */
static inline void rig_launch(cuda_rig *rig, const char *file, emulation e, size_t args_bytes)
{
    const bool both = rig->has_gpu && (rig->gpu.capability >= 90) == (e.model == TENSOR_CORE_SM90);
    if (both) {
        for (uint32_t b = 0; b < rig->num_buffers; b++)
            rig_did(rig,
                    rig->cu.copy_to_device(rig->buffers[b].device, rig->buffers[b].host,
                                           rig->buffers[b].bytes, rig->stream),
                    "copy");
        rig_launch_gpu(rig, file, &e, args_bytes);
    }
    const char *wrong = emulate(&e);
    CHECKF(!wrong, "%s: %s\n", e.kernel, wrong);
    if (both) rig_compare(rig, &e);
}

#endif
