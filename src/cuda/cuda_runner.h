/* cuda_runner.h - a GGUF model on an NVIDIA GPU behind the runner interface: weights, K/V,
 * activations and logits stay there, a step is one upload, and tokens are chosen where the logits
 * are.
 *
 *     cuda_kernels.h   what is launched, with which grid
 *     cuda_layout.h    which matrices a model has and where they lie on the device
 *     cuda_weights.h   brings them there, out of a file or out of thin air
 *     cuda_step.h      what of a step is the host's: tables, the block that is uploaded
 *     cuda_buffers.h   the memory of its activations
 *     cuda_forward.h   the launches of a step; graphs of those that only decode
 *     cuda_sample.h    tokens out of logits
 *
 * What the kernels lack is refused by name before anything is loaded. Any error of the driver is
 * RAD_E_IO with the call's and the error's name; one that leaves the GPU's context unusable makes
 * the runner refuse all further steps. */
#ifndef CUDA_CUDA_RUNNER_H
#define CUDA_CUDA_RUNNER_H

#include "gguf/gguf.h"
#include "model/config.h"
#include "model/model_runner.h"
#include "model/runner.h"

typedef struct cuda_gpu_info {
    char name[96];
    uint32_t ordinal;
    uint32_t arch; /* of our kernels: 80 or 90 */
    uint32_t multiprocessors;
    uint32_t driver_version; /* 12040: 12.4 */
    uint64_t total_bytes, free_bytes;
} cuda_gpu_info;

/* The GPU `ordinal` behind `library` (NULL: RADISH_LIBCUDA or libcuda.so.1). RAD_E_UNSUPPORTED in
 * words: no driver, no GPU of that number, or one older than sm_80. */
rad_status cuda_gpu_look(const char *library, uint32_t ordinal, cuda_gpu_info *out, rad_error *err);

typedef struct cuda_runner_params {
    /* dtype: RAD_BF16, else refused; kv_dtype: that or fp8. weights: those of types that there are
     * kernels for stay (cuda_layout.h), others become bf16. attn and gemm are not looked at.
     * num_threads convert weights while they are loaded. */
    model_runner_params model;
    uint32_t ordinal;
    uint32_t max_requests; /* rows of slots on the device; 0: 256. Past it a step is refused */
    const char *library;   /* NULL: RADISH_LIBCUDA or libcuda.so.1 */
    bool no_graphs;        /* steps that only decode are launched as others are */
    bool no_dependent;     /* no kernel begins before the one before it has ended */
} cuda_runner_params;

/* RAD_E_UNSUPPORTED by name: what of this model or these params the GPU runner lacks, from
 * metadata alone. */
rad_status cuda_runner_supports(const gguf_file *file, const cuda_runner_params *params,
                                rad_error *err);
rad_status cuda_config_supported(const model_config *config, rad_error *err);

/* What a runner takes of the GPU's memory; supports() included. */
rad_status cuda_runner_measure(const rad_env *env, const gguf_file *file,
                               const cuda_runner_params *params, model_sizes *out, rad_error *err);

/* Loads the model. Errors as supports', cuda_gpu_look's and the file's; RAD_E_NOMEM says how much
 * was wanted and how much is free. */
rad_status cuda_runner_create(const rad_env *env, const gguf_file *file,
                              const cuda_runner_params *params, runner **out, rad_error *err);

/* The same of a model that is in no file, with weights drawn from `seed`, in bf16 or, where the
 * policy is WEIGHTS_AS_Q8_0, in q8_0: for benchmarks. */
rad_status cuda_runner_create_random(const rad_env *env, const model_config *config, uint64_t seed,
                                     const cuda_runner_params *params, runner **out,
                                     rad_error *err);

/* What the runner of a model like this will say of itself, before it is loaded: all but names. */
runner_info cuda_runner_info(const model_config *config, rad_dtype kv_dtype);

/* Of the GPU, now. */
rad_status cuda_runner_memory(const runner *r, uint64_t *free_bytes, uint64_t *total_bytes);

/* "cuda-sm90": what the bits of its attention are filed under. By the capability, as it is:
 * that 8.9 adds as 8.0, and 10.0 as 9.0, nobody has seen, and one store may serve both. */
const char *cuda_runner_attn(const runner *r);

/* What steps cost the host so far. */
typedef struct cuda_runner_stats {
    uint64_t steps, graph_steps, captured;
    uint64_t uploaded_bytes;
    uint64_t compared_slots, patched_slots; /* of request rows: looked at, and found changed */
} cuda_runner_stats;
cuda_runner_stats cuda_runner_get_stats(const runner *r);

#endif
