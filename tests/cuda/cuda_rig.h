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
 * differ as they like. A kernel that there is for Hopper alone is called "sm90:NAME".
 *
 * Which of the emulator's models the GPU's matrix instructions follow is tried out, by one product
 * that each of them rounds otherwise. Launches that multiplied by another model are not compared;
 * on a GPU that follows none they are held to be near, and everything else to the bit. Nor are
 * those compared that want more shared memory than the GPU has. */
#ifndef TESTS_CUDA_CUDA_RIG_H
#define TESTS_CUDA_CUDA_RIG_H

#include "../test.h"
#include "base/base.h"
#include "cuda/cuda_ptx.h"
#include "cuda/kernels/kernel_args.h"
#include "device/cuda_driver.h"
#include "emulator.h"

#include <math.h>

enum { RIG_BUFFERS = 24, RIG_MAPS = 4, RIG_MODULES = 16 };
enum { RIG_NO_MODEL = -1 };
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
    bool hopper; /* the sm_90 form of a kernel runs there */
    int model;   /* tensor_core_model, or RIG_NO_MODEL */
    cuda_driver cu;
    cuda_gpu gpu;
    cuda_stream stream;
    struct {
        char file[32];
        cuda_module module;
    } modules[RIG_MODULES];
    uint32_t num_modules;
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

static inline void rig_find_model(cuda_rig *rig);

/* The GPU's context belongs to the driver's table, which must not move: opened at the first use. */
static inline void rig_enter(cuda_rig *rig)
{
    rad_error err = {0};
    if (rig->stream) return;
    CHECKF(cuda_gpu_open(&rig->cu, 0, NULL, &rig->gpu, &err) == RAD_OK, "%s\n", err.text);
    CHECKF(cuda_gpu_enter(&rig->gpu, &err) == RAD_OK, "%s\n", err.text);
    rig_did(rig, rig->cu.stream_create(&rig->stream, CUDA_STREAM_NON_BLOCKING), "stream");
    /* As cuda_kernels_arch: PTX for sm_90a is for no other GPU. */
    rig->hopper = rig->gpu.capability == 90 && rig->cu.version >= 12000;
    rig_find_model(rig);
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
    if (!rig->has_gpu || !rig->hopper) return;
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
        while (rig->num_modules)
            rig->cu.module_unload(rig->modules[--rig->num_modules].module);
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

/* Compiled once: a driver whose cache of compiled PTX is off takes seconds for each. */
static inline cuda_module rig_module(cuda_rig *rig, const char *file)
{
    char path[256], *text;
    rad_error err = {0};
    FILE *in = NULL;
    for (uint32_t i = 0; i < rig->num_modules; i++)
        if (!strcmp(rig->modules[i].file, file)) return rig->modules[i].module;
    CHECK(rig->num_modules < RIG_MODULES && strlen(file) < sizeof rig->modules[0].file);
    if (rig->hopper) {
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
    if (rig->hopper && strstr(text, "//griddepcontrol")) cuda_ptx_for_sm90(text);
    const uint32_t i = rig->num_modules++;
    snprintf(rig->modules[i].file, sizeof rig->modules[i].file, "%s", file);
    CHECKF(cuda_module_load(&rig->cu, file, text, &rig->modules[i].module, &err) == RAD_OK, "%s\n",
           err.text);
    free(text);
    return rig->modules[i].module;
}

static inline void rig_launch_gpu(cuda_rig *rig, const char *file, const emulation *e,
                                  size_t args_bytes)
{
    const cuda_driver *cu = &rig->cu;
    rad_error err = {0};
    const char *kernel = strncmp(e->kernel, "sm90:", 5) == 0 ? e->kernel + 5 : e->kernel;
    uint64_t args[64];
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
    cuda_function function;
    CHECKF(cuda_function_get(cu, rig_module(rig, file), kernel, args_bytes, e->shared_bytes,
                             &function, &err) == RAD_OK,
           "%s\n", err.text);
    CHECKF(cuda_launch(cu, function, e->grid, e->threads, e->shared_bytes, rig->stream, false, args,
                       args_bytes, &err) == RAD_OK,
           "%s\n", err.text);
    rig_did(rig, cu->stream_synchronize(rig->stream), e->kernel);
}

/* Numbers of f32, or pairs of bf16, that are as good as equal beside the largest of the buffer. */
static inline float rig_number(const unsigned char *words, size_t i, int bf16)
{
    uint32_t word;
    float f;
    memcpy(&word, words + i / 4 * 4, 4);
    if (bf16) word = i / 2 % 2 ? word & 0xffff0000 : word << 16;
    memcpy(&f, &word, 4);
    return f;
}
static inline bool rig_near(const unsigned char *theirs, const unsigned char *ours, size_t i,
                            size_t bytes)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const float a = rig_number(theirs, i, bf16), b = rig_number(ours, i, bf16);
        float most = 0;
        for (size_t at = 0; at + 4 <= bytes; at += bf16 ? 2 : 4) {
            const float size = fabsf(rig_number(ours, at, bf16));
            if (size < INFINITY) most = fmaxf(most, size);
        }
        if (fabsf(a - b) <= 0x1p-6f * most || (isnan(a) && isnan(b))) return true;
    }
    return false;
}

/* exact: else what differs is to be near. */
static inline void rig_compare(cuda_rig *rig, const emulation *e, bool exact)
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
                if (!exact && rig_near(back, rig->buffers[b].host, i, bytes)) continue;
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
    enum { STATIC_SHARED = 1024 };
    const bool both = rig->has_gpu && (rig->hopper || strncmp(e.kernel, "sm90:", 5) != 0) &&
                      e.shared_bytes + STATIC_SHARED <= (uint32_t)rig->gpu.shared_bytes;
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
    if (!both) return;
    const bool exact = !emulator_rounded() || (int)e.model == rig->model;
    if (exact || rig->model == RIG_NO_MODEL) rig_compare(rig, &e, exact);
}

/* One product [8][64] by [16][64], of numbers that are up to 2^16 times as large as others. */
static inline void rig_find_model(cuda_rig *rig)
{
    enum { N = 16, K = 64, TOKENS = 8, STAGES = 3, STAGE = (N + TOKENS) * (256 + 16) };
    _Alignas(16) uint16_t w[N * K + TOKENS * K];
    uint16_t *const x = w + N * K;
    float theirs[TOKENS * N], ours[TOKENS * N];
    cuda_ptr at[3];
    const size_t sizes[3] = {N * K * sizeof *w, TOKENS * K * sizeof *x, sizeof theirs};
    uint64_t random = 1;
    for (uint32_t i = 0; i < N * K + TOKENS * K; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const uint16_t bits = (uint16_t)(random >> 48);
        w[i] = (uint16_t)((bits & 0x807f) | (120 + (bits >> 7) % 16) << 7);
    }
    gemm_args a = {.n = N,
                   .n_out = N,
                   .k = K,
                   .tokens = TOKENS,
                   .splits = 1,
                   .ld_out = N,
                   .epilogue = GEMM_PARTS,
                   .warps = 1,
                   .stages = STAGES};
    emulation e = {.kernel = "gemm_few_8",
                   .grid = {1, 1, 1},
                   .threads = 64,
                   .shared_bytes = STAGES * STAGE,
                   .args = &a};
    for (int i = 0; i < 3; i++)
        rig_did(rig, rig->cu.mem_alloc(&at[i], sizes[i]), "memory");
    rig_did(rig, rig->cu.copy_to_device(at[0], w, sizes[0], rig->stream), "copy");
    rig_did(rig, rig->cu.copy_to_device(at[1], x, sizes[1], rig->stream), "copy");
    a.w = (const u16 *)(uintptr_t)at[0];
    a.x = (const u16 *)(uintptr_t)at[1];
    a.out = (void *)(uintptr_t)at[2];
    rig_launch_gpu(rig, "gemm_few", &e, sizeof a);
    rig_did(rig, rig->cu.copy_to_host(theirs, at[2], sizeof theirs, rig->stream), "copy");
    rig_did(rig, rig->cu.stream_synchronize(rig->stream), "copy");
    for (int i = 0; i < 3; i++)
        rig->cu.mem_free(at[i]);
    a.w = w, a.x = x, a.out = ours;
    rig->model = RIG_NO_MODEL;
    for (int model = TENSOR_CORE_SM90; model <= TENSOR_CORE_SM80; model++) {
        e.model = (tensor_core_model)model;
        const char *wrong = emulate(&e);
        CHECKF(!wrong, "%s\n", wrong);
        if (!memcmp(ours, theirs, sizeof ours)) rig->model = model;
    }
    if (rig->model == RIG_NO_MODEL)
        printf("%s (sm_%d): its mma rounds as neither sm_80's nor sm_90's; products are held to "
               "be near\n",
               rig->gpu.name, rig->gpu.capability);
}

#endif
