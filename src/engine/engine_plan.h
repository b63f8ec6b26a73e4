/* engine_plan.h - what is loaded for a model and params, and what that takes; for engine_load.c. */
#ifndef ENGINE_ENGINE_PLAN_H
#define ENGINE_ENGINE_PLAN_H

#include "engine/engine_impl.h"
#include "model/model_runner.h"

typedef struct load_plan {
    uint32_t context; /* in force */
    uint32_t rows;
    runner_info info;
    model_runner_params model; /* without progress */
    model_sizes sizes;
    memory_need need;
    double fraction; /* mem_fraction_static in force */
} load_plan;
/* Errors as model_runner_measure's and fit_memory's. `available`: bytes, 0: unknown. The params'
 * kv_cache_dtype was looked at. */
rad_status plan_load(const rad_env *env, const gguf_file *file, const engine_params *params,
                     uint64_t available, load_plan *plan, rad_error *err);

#endif
