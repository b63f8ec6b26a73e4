/* device_cpu.c - the host as a device: memory of the env, copies are memcpy.
 *
 * A KV pool is one of the largest blocks of a process and is read in strides of a
 * token, so large blocks ask the kernel for huge pages before they are touched (a
 * hint; where it is refused nothing changes).
 *
 * Zeroed memory without touching it: memory of the default env is private to this process,
 * and of such the kernel can be told to forget whole pages; they then read as zeros and
 * take no room until they are written. So a start does not wait for a pool of many
 * gigabytes to be zeroed, and its owner is the one who sees to it that it fits; who does not
 * want to wait at the first write either asks for the pages before (populate). Memory of
 * a caller's env may be anything (shared, registered with a device): it is written. */
#include "device/device.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { HUGE_PAGE = 2 << 20, LARGE = 1 << 20 };

static void advise(uintptr_t start, uintptr_t end, uintptr_t page, int advice, bool *done)
{
    start = (start + page - 1) & -page;
    end &= -page;
    *done = start < end && madvise((void *)start, end - start, advice) == 0;
}

/* Zeroes `bytes` at `memory` by forgetting the whole pages in it; false: not done. */
static bool zero_by_forgetting(char *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)memory;
    bool done;
    advise(at, at + bytes, page, MADV_DONTNEED, &done);
    if (!done) return false;
    size_t head = -at & (page - 1), tail = (at + bytes) & (page - 1);
    memset(memory, 0, head);
    memset(memory + bytes - tail, 0, tail);
    return true;
}

static void *cpu_alloc(rad_device *self, size_t bytes)
{
    device_cpu *d = (device_cpu *)self;
    if (!bytes) return NULL;
    char *memory = d->env.alloc(d->env.user, bytes);
    if (!memory) return NULL;
    bool huge;
    advise((uintptr_t)memory, (uintptr_t)memory + bytes, HUGE_PAGE, MADV_HUGEPAGE, &huge);
    bool ours = d->env.alloc == rad_env_or_default(NULL).alloc;
    if (!ours || bytes < LARGE || !zero_by_forgetting(memory, bytes)) memset(memory, 0, bytes);
    return memory;
}

static void cpu_free(rad_device *self, void *memory, size_t bytes)
{
    rad_free(&((device_cpu *)self)->env, memory, bytes);
}

static char *row_at(const rad_device_rows *r, uint32_t i)
{
    return (char *)r->base + (size_t)(r->indices ? (uint32_t)r->indices[i] : i) * r->stride;
}

/* Neighbouring rows without gaps on both sides go as one block. */
static rad_status cpu_copy_rows(rad_device *self, const rad_device_rows *dst,
                                const rad_device_rows *src, size_t row_bytes, uint32_t count)
{
    (void)self;
    bool packed = dst->stride == row_bytes && src->stride == row_bytes;
    for (uint32_t i = 0, run; i < count; i += run) {
        char *to = row_at(dst, i);
        const char *from = row_at(src, i);
        for (run = 1; packed && i + run < count; run++)
            if (row_at(dst, i + run) != to + run * row_bytes ||
                row_at(src, i + run) != from + run * row_bytes)
                break;
        memcpy(to, from, run * row_bytes);
    }
    return RAD_OK;
}

/* By the pages that the bytes lie in: those exist, for the bytes do. */
static rad_status cpu_populate(rad_device *self, void *memory, size_t bytes)
{
    (void)self;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)memory;
    uintptr_t start = at & -page, end = (at + bytes + page - 1) & -page;
    while (madvise((void *)start, end - start, MADV_POPULATE_WRITE) != 0) {
        if (errno == EINVAL) return RAD_E_UNSUPPORTED; /* Linux before 5.14, or a special mapping */
        if (errno != EAGAIN && errno != EINTR) return RAD_E_NOMEM;
    }
    return RAD_OK;
}

static const rad_device_ops cpu_ops = {.struct_size = sizeof cpu_ops,
                                       .name = "cpu",
                                       .alloc = cpu_alloc,
                                       .free = cpu_free,
                                       .copy_rows = cpu_copy_rows,
                                       .populate = cpu_populate};

void device_cpu_init(device_cpu *d, const rad_env *env)
{
    *d = (device_cpu){.base.ops = &cpu_ops, .env = rad_env_or_default(env)};
}

bool device_is_cpu(const rad_device *d)
{
    return d->ops == &cpu_ops;
}

rad_status device_check(const rad_device *d, rad_error *err)
{
    if (!d) return RAD_OK;
    if (!d->ops || d->ops->struct_size < offsetof(rad_device_ops, fence) || !d->ops->alloc ||
        !d->ops->free || !d->ops->copy_rows)
        return rad_fail(err, RAD_E_INVAL,
                        "device: a table without alloc, free or copy_rows, or of a size that has "
                        "none");
    return RAD_OK;
}
