/* device_cpu.c - the host as a device: memory of the env, copies are memcpy.
 *
 * A KV pool is one of the largest blocks of a process and is read in strides of a
 * token, so large blocks ask the kernel for huge pages before they are touched (a
 * hint; where it is refused nothing changes). Zeroing touches every page in create:
 * a pool that does not fit fails at the start rather than in the middle of a day. */
#include "device/device.h"

#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

static void *cpu_alloc(device *self, size_t bytes)
{
    device_cpu *d = (device_cpu *)self;
    if (!bytes) return NULL;
    void *memory = d->env.alloc(d->env.user, bytes);
    if (!memory) return NULL;
    uintptr_t first = ((uintptr_t)memory + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)memory + bytes) & ~(uintptr_t)(HUGE_PAGE - 1);
    if (first < end) (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
    return memset(memory, 0, bytes);
}

static void cpu_free(device *self, void *memory, size_t bytes)
{
    rad_free(&((device_cpu *)self)->env, memory, bytes);
}

static rad_status cpu_copy(device *self, void *dst, const void *src, size_t bytes)
{
    (void)self;
    memcpy(dst, src, bytes);
    return RAD_OK;
}

static const device_ops cpu_ops = {
    .name = "cpu", .alloc = cpu_alloc, .free = cpu_free, .copy = cpu_copy};

void device_cpu_init(device_cpu *d, const rad_env *env)
{
    *d = (device_cpu){.base.ops = &cpu_ops, .env = rad_env_or_default(env)};
}
