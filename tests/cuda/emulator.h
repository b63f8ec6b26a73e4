/* emulator.h - runs CUDA kernels without a GPU: each CUDA thread is a fiber of one CPU thread.
 *
 * A kernel written in src/device/kernels/dialect.h and compiled as C registers itself by name. The
 * blocks of a launch run one after another. A thread of a block runs until it waits for others (a
 * barrier, a shuffle, a matrix instruction); which one runs next is what hardware leaves open, and
 * a launch chooses it by `order`, so that a forgotten barrier shows as other results:
 *
 *     0       the lowest warp runs until it can not, then the next; lanes ascending
 *     1       the same, from the highest to the lowest
 *     else    at random, by this seed; a warp is changed at every meeting of its lanes
 *
 * Shared memory is 0xa5 when a block begins, and where a copy goes on until it is waited for. What
 * a GPU would answer with an error or leave undefined ends the launch with words: lanes that meet
 * at different instructions, barriers that not all threads reach, misaligned addresses.
 *
 * What the emulator does not see: races between blocks but those below, bank conflicts. NaNs have
 * the CPU's bits, except those that matrix instructions make. Blocks that wait for one another
 * hang.
 *
 * Memory outside arrays is found by the sanitizers, with which kernels are compiled as all tests.
 */
#ifndef TESTS_CUDA_EMULATOR_H
#define TESTS_CUDA_EMULATOR_H

#include "tensor_core.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A kernel, as the KERNEL macro registers it. The sm_90a form of NAME is called "sm90:NAME". */
typedef struct emulated_kernel {
    const char *name;
    void (*entry)(const void *args);
    uint32_t threads; /* at most */
    size_t args_bytes;
    char *shared_begin, *shared_end; /* static shared memory; both NULL under ASan */
    struct emulated_kernel *next;
} emulated_kernel;

void emulator_register(emulated_kernel *kernel);
const emulated_kernel *emulator_find(const char *name); /* NULL: there is none */

/* Memory that kernels before have written, and what it was before them. */
typedef struct emulator_stale {
    char *at;
    const char *then;
    size_t bytes;
} emulator_stale;

/* Memory that blocks share, and room for twice as many bytes. */
typedef struct emulator_shared {
    char *at;
    char *fenced; /* as it was at the block's last fence_device */
    char *seen;   /* by other blocks */
    size_t bytes;
} emulator_shared;

/* With `stale`, the launch began early: in some of its blocks that memory is as it was then until
 * every thread waits or has ended, those in wait_previous go on with what it is now. What has been
 * written there by then ends the launch, and so does a load16 from there at any time. With
 * `shared`, others see of what a block writes there only what stood before a fence_device and an
 * atomic behind that; all of it when the launch has ended. Not both. */
typedef struct emulation {
    const char *kernel;
    uint32_t grid[3], threads, shared_bytes;
    const void *args;
    uint64_t order;
    tensor_core_model model;
    uint32_t num_stale, num_shared;
    const emulator_stale *stale;
    const emulator_shared *shared;
} emulation;

/* Runs a launch to its end. NULL, or what went wrong: valid until the next call of this thread. */
const char *emulate(const emulation *launch);

/* Fills the 128 bytes of a tensor map, aligned to 64: a bf16 matrix of so many columns and rows, of
 * `stride` bytes a row, of which a copy takes a box, with the swizzle of 128 bytes. false: there is
 * no such map. */
bool emulator_tensor_map(void *map, const void *memory, uint64_t columns, uint64_t rows,
                         uint64_t stride, uint32_t box_columns, uint32_t box_rows);

/* How many threads of the last launch called wait_previous. */
uint64_t emulator_waits_for_previous(void);

/* Whether it multiplied by instructions that round as its model says. */
bool emulator_rounded(void);

#endif
