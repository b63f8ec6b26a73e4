/* engine_plan.h - what is loaded for a model and params, and what that takes; for engine_load.c. */
#ifndef ENGINE_ENGINE_PLAN_H
#define ENGINE_ENGINE_PLAN_H

#include "engine/engine_device.h"
#include "engine/engine_draft.h"
#include "engine/engine_impl.h"

typedef struct load_plan {
    uint32_t context; /* in force */
    uint32_t rows;
    runner_info info;
    model_runner_params model; /* without progress */
    model_sizes sizes;
    memory_need need;
    draft_plan draft;
    double fraction;    /* mem_fraction_static in force */
    uint64_t available; /* where it computes, before it is loaded; 0: unknown */

    bool on_gpu;
    bool gpu_or_cpu;         /* device was auto */
    cuda_gpu_info gpu;       /* the rest of on_gpu */
    cuda_runner_params cuda; /* without progress */
    char why_no_gpu[400];    /* of device auto, on the CPU; else "" */
    char why_no_nextn[400];  /* see engine_memory */
} load_plan;
/* Errors as model_runner_measure's, fit_memory's, cuda_gpu_look's and engine_gpu_params'.
 * `available`: bytes of this machine, 0: unknown. The params' kv_cache_dtype was looked at. */
rad_status plan_load(const rad_env *env, const gguf_file *file, const engine_params *params,
                     uint64_t available, load_plan *plan, rad_error *err);
/* The same where the GPU that was planned for has failed with these words. */
rad_status plan_load_on_cpu(const rad_env *env, const gguf_file *file, const engine_params *params,
                            uint64_t available, const char *why_no_gpu, load_plan *plan,
                            rad_error *err);
/* The params as they are for sizing pools where the plan computes. */
engine_params params_where(const engine_params *params, const load_plan *plan);

#endif
