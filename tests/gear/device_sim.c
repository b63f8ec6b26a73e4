/* device_sim.c - copies that fail, tear and take their time; see the header. */
#include "gear/device_sim.h"

#include <time.h>

static void *sim_alloc(device *self, size_t bytes)
{
    return rad_alloc(&((device_sim *)self)->env, bytes);
}

static void sim_free(device *self, void *memory, size_t bytes)
{
    rad_free(&((device_sim *)self)->env, memory, bytes);
}

static rad_status sim_copy(device *self, void *dst, const void *src, size_t bytes)
{
    device_sim *d = (device_sim *)self;
    uint64_t number = atomic_fetch_add(&d->copies, 1);
    sim_fate fate = d->script ? d->script(d->user, number) : SIM_COPY;
    if (d->delay_us) {
        struct timespec pause = {d->delay_us / 1000000, (long)(d->delay_us % 1000000) * 1000};
        nanosleep(&pause, NULL);
    }
    if (fate == SIM_FAIL) return RAD_E_IO;
    size_t whole = fate == SIM_TORN ? bytes / 2 : bytes;
    memcpy(dst, src, whole);
    if (fate == SIM_COPY) return RAD_OK;
    memset((char *)dst + whole, 0xA5, bytes - whole);
    return RAD_E_IO;
}

static const device_ops sim_ops = {
    .name = "sim", .alloc = sim_alloc, .free = sim_free, .copy = sim_copy};

void device_sim_init(device_sim *d, const rad_env *env)
{
    *d = (device_sim){.base.ops = &sim_ops, .env = rad_env_or_default(env)};
}
