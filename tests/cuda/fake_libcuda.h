/* fake_libcuda.h - libcuda-emulated.so: NVIDIA's driver over the emulator of kernels.
 *
 * It exports the functions of cuda_driver.h's table, as libcuda.so.1 does. One GPU of one chip;
 * more may be claimed, they share memory. What it is strict about:
 *
 *   - Device memory has no access rights, except while the work of a stream is done: a CPU that
 *     touches it faults. It is 0xa5 at first, up to 1 MB of an allocation.
 *   - Work is done as late as the rules allow: when something waits for it, in the waiting thread.
 *     A copy from pinned memory reads it then, not when it was enqueued. Streams go on only as far
 *     as they must, so a dependency that was forgotten shows as old bytes. A query carries out one
 *     piece of work, so that who polls gets somewhere.
 *   - PTX is refused when its .target is newer than the chip, its .version than the driver; a
 *     kernel must be an .entry of the module's text. The emulated form is found by its name, for
 *     sm_90a by "sm90:NAME" if there is one.
 *   - A kernel that goes wrong says so on stderr, and every later call fails, as on a GPU.
 *
 *   - Shared memory counts with what the PTX declares of it, and with the gap that stands before
 *     dynamic memory aligned to 1 KB: beyond 48 KB in all, or what was asked for, no launch.
 *   - What may not be called while the thread captures is refused and breaks the capture; so are
 *     launches of functions that were not loaded (lazily, as drivers do) nor launched before, and,
 *     before driver 12.3, launches that may begin early.
 *
 * Launches that may begin early (programmatic serialization) run in order; one whose PTX has no
 * griddepcontrol.wait is refused, one whose threads never come to it is a kernel that goes wrong.
 *
 * A process that cannot call the functions below sets RADISH_FAKE_CUDA to words of NAME=NUMBER:
 * capability, driver, devices, init, memory, order, early, fences, fail_at, fail; arithmetic (80,
 * 90, or 1: neither's) where matrix instructions are to round otherwise than the capability says.
 */
#ifndef TESTS_CUDA_FAKE_LIBCUDA_H
#define TESTS_CUDA_FAKE_LIBCUDA_H

#include <stddef.h>
#include <stdint.h>

/* Found by dlsym in the opened library; all may be called from any thread. */
#define FAKE_CUDA_FUNCTIONS(F)                                                                     \
    /* As new: whatever is out is freed, RADISH_FAKE_CUDA is read again. */                        \
    F(void, fake_cuda_reset, (void))                                                               \
    /* Calls since the reset, of all but cuGetError*, cuDriverGetVersion, cuCtxPopCurrent. */      \
    F(long, fake_cuda_calls, (void))                                                               \
    /* The nth of them (from 0) returns `result` and does nothing; -1: none. */                    \
    F(void, fake_cuda_fail_at, (long nth, int result))                                             \
    /* What is out: bytes; streams, events, modules, contexts and graphs. */                       \
    F(void, fake_cuda_live, (size_t * device_bytes, size_t * pinned_bytes, size_t * objects))      \
    /* A driver of 12040, capability 90, 1 device, cuInit 0 are the default. */                    \
    F(void, fake_cuda_machine, (int driver_version, int capability, int devices, int init_result)) \
    F(void, fake_cuda_memory, (size_t bytes)) /* in all; the default is 1 GiB */                   \
    /* The order in which threads and blocks run: emulator.h. A seed differs from launch to        \
     * launch. */                                                                                  \
    F(void, fake_cuda_order, (uint64_t order))                                                     \
    /* What overlaps on a GPU, one or the other; slow, since all memory is compared. Early:        \
     * launches that may begin early (programmatic serialization) see, in some of their blocks,    \
     * memory as it was before those before them, until wait_previous. */                          \
    F(void, fake_cuda_early, (int on))                                                             \
    /* Fences: blocks see of another what it wrote before a fence_device and an atomic behind it,  \
     * the rest when the launch has ended. */                                                      \
    F(void, fake_cuda_fences, (int on))                                                            \
    /* Launches that were carried out since the reset. */                                          \
    F(long, fake_cuda_launches, (void))

#define FAKE_CUDA_DECLARE(type, name, parameters)                                                  \
    __attribute__((visibility("default"))) type name parameters;
FAKE_CUDA_FUNCTIONS(FAKE_CUDA_DECLARE)
#undef FAKE_CUDA_DECLARE

#endif
