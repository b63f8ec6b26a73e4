/* device_sim.h - the host as a device whose copies go wrong on request, for tests.
 *
 * Every row asks `script` what is to become of it. Late and reordered copies are made by
 * whoever runs the transfers (cache_controller.h); what one copy can do wrong is here. */
#ifndef GEAR_DEVICE_SIM_H
#define GEAR_DEVICE_SIM_H

#include <stdatomic.h>

#include "device/device.h"

typedef enum sim_fate {
    SIM_COPY = 0, /* as it should be */
    SIM_FAIL,     /* nothing is copied, RAD_E_IO */
    SIM_TORN      /* the first half is copied, the rest becomes garbage, RAD_E_IO */
} sim_fate;

typedef struct device_sim {
    rad_device base;
    rad_env env;
    sim_fate (*script)(void *user, uint64_t copy); /* `copy` counts from 0; any thread */
    void *user;
    uint32_t delay_us; /* of each copy */
    rad_device *inner; /* copies what is copied; NULL: the host */
    atomic_uint_fast64_t copies;
} device_sim;

void device_sim_init(device_sim *d, const rad_env *env);

#endif
