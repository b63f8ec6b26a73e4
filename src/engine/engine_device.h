/* engine_device.h - where a model is computed: on this CPU, or on a GPU (cuda/cuda_runner.h). */
#ifndef ENGINE_ENGINE_DEVICE_H
#define ENGINE_ENGINE_DEVICE_H

#include "cuda/cuda_runner.h"
#include "model/model_runner.h"

typedef enum engine_device_kind {
    ENGINE_DEVICE_CPU = 0,
    ENGINE_DEVICE_CUDA,
    ENGINE_DEVICE_AUTO /* a GPU where one can be used, else the CPU */
} engine_device_kind;

typedef struct engine_device {
    engine_device_kind kind;
    uint32_t ordinal; /* of the GPU */
} engine_device;

/* auto, cpu, cuda or cuda:N; NULL is cpu. RAD_E_INVAL in words. */
rad_status engine_device_parse(const char *word, engine_device *out, rad_error *err);

/* "cuda:0"; of NULL "cpu". */
void engine_device_name(const cuda_gpu_info *gpu, char *name, size_t size);

/* What an error says of a GPU, behind words that name it as the device. */
const char *engine_gpu_words(const rad_error *err);

/* The same as an error, where the device `word` was asked for by name. */
rad_status engine_gpu_refuse(const char *word, rad_status status, const rad_error *why,
                             rad_error *err);

/* What is asked of a GPU that is to compute a model. */
typedef struct engine_gpu_wish {
    uint32_t ordinal;
    bool dtype_by_device; /* `model.dtype` is only what the CPU computes with best */
    bool attn_ref;
    model_runner_params model;
} engine_gpu_wish;

/* Whether a GPU can compute this model, from metadata alone: *params that cuda_runner_create takes,
 * but for their max_requests. RAD_E_UNSUPPORTED in words: what it lacks. Errors of the model file
 * as model_config_read's. */
rad_status engine_gpu_params(const gguf_file *file, const engine_gpu_wish *wish,
                             cuda_runner_params *params, rad_error *err);

/* A runner without an engine around it, where the word says. */
rad_status engine_make_runner(const rad_env *env, const gguf_file *file, const char *device,
                              bool dtype_by_device, const model_runner_params *params, runner **out,
                              rad_error *err);

#endif
