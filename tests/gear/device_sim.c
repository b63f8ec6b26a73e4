/* device_sim.c - copies that fail, tear and take their time; see the header. */
#include "gear/device_sim.h"

#include <stdlib.h>
#include <time.h>

static void *sim_alloc(rad_device *self, size_t bytes)
{
    return rad_alloc(&((device_sim *)self)->env, bytes);
}

static void sim_free(rad_device *self, void *memory, size_t bytes)
{
    rad_free(&((device_sim *)self)->env, memory, bytes);
}

static void put(device_sim *d, char *dst, const char *src, size_t bytes)
{
    if (!d->inner) {
        memcpy(dst, src, bytes);
        return;
    }
    rad_device_rows to = {dst, 0, NULL}, from = {(void *)(uintptr_t)src, 0, NULL};
    if (device_fence(d->inner, device_copy_rows(d->inner, to, from, bytes, 1))) abort();
}

static rad_status copy_row(device_sim *d, char *dst, const char *src, size_t bytes)
{
    uint64_t number = atomic_fetch_add(&d->copies, 1);
    sim_fate fate = d->script ? d->script(d->user, number) : SIM_COPY;
    if (d->delay_us) {
        struct timespec pause = {d->delay_us / 1000000, (long)(d->delay_us % 1000000) * 1000};
        nanosleep(&pause, NULL);
    }
    if (fate == SIM_FAIL) return RAD_E_IO;
    size_t whole = fate == SIM_TORN ? bytes / 2 : bytes;
    put(d, dst, src, whole);
    for (size_t at = whole; fate == SIM_TORN && at < bytes; at++)
        put(d, dst + at, "\xa5", 1);
    return fate == SIM_COPY ? RAD_OK : RAD_E_IO;
}

static rad_status sim_copy_rows(rad_device *self, const rad_device_rows *dst,
                                const rad_device_rows *src, size_t row_bytes, uint32_t count)
{
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < count && !status; i++) {
        size_t to = (size_t)(dst->indices ? (uint32_t)dst->indices[i] : i) * dst->stride;
        size_t from = (size_t)(src->indices ? (uint32_t)src->indices[i] : i) * src->stride;
        status = copy_row((device_sim *)self, (char *)dst->base + to,
                          (const char *)src->base + from, row_bytes);
    }
    return status;
}

static const rad_device_ops sim_ops = {.struct_size = sizeof sim_ops,
                                       .name = "sim",
                                       .alloc = sim_alloc,
                                       .free = sim_free,
                                       .copy_rows = sim_copy_rows};

void device_sim_init(device_sim *d, const rad_env *env)
{
    *d = (device_sim){.base.ops = &sim_ops, .env = rad_env_or_default(env)};
}
