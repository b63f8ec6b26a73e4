/* cuda_weights.h - a model's weights, brought to the places that a layout has for them.
 *
 *     file -> threads convert a few MB of rows to bf16 -> pinned buffer -> copy -> device memory
 *             or put their blocks in the order of lanes   (two, in turn: one is copied while the
 *                                                          other is filled)
 *
 * The other source are random numbers, for benchmarks of shapes that nobody has a file of. */
#ifndef CUDA_CUDA_WEIGHTS_H
#define CUDA_CUDA_WEIGHTS_H

#include "base/compute_pool.h"
#include "cuda/cuda_layout.h"
#include "cuda/cuda_memory.h"

typedef struct cuda_weights_source {
    const gguf_file *file;                                       /* NULL: random numbers, */
    uint64_t seed;                                               /* by this */
    void (*progress)(void *user, uint64_t done, uint64_t total); /* of tensor bytes; may be NULL */
    void *progress_user;
    compute_pool *pool; /* may be NULL */
} cuda_weights_source;

/* Fills `block`, layout->bytes large, in `stream`, and returns when all is there. The context is
 * current, and cuda_runner_supports has let a file through. RAD_E_FORMAT: as model_weights_load. */
rad_status cuda_weights_load(const rad_env *env, const cuda_gpu *gpu, cuda_stream stream,
                             const model_config *config, cuda_layout *layout,
                             const cuda_weights_source *source, cuda_ptr block, rad_error *err);

#endif
