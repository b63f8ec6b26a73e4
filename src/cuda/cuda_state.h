/* cuda_state.h - the inside of a runner on a GPU, for its files. */
#ifndef CUDA_CUDA_STATE_H
#define CUDA_CUDA_STATE_H

#include "cuda/cuda_graphs.h"
#include "cuda/cuda_runner.h"

enum { CUDA_STEP_BLOCKS = 2 }; /* one is filled while the other may still be uploaded */

typedef struct cuda_step_block {
    cuda_pinned pinned;
    cuda_event uploaded;
} cuda_step_block;

typedef struct cuda_runner {
    runner base;
    rad_env env;
    cuda_driver cu;
    cuda_gpu gpu;
    cuda_stream stream;
    rad_device *device; /* of pools */
    model_config config;
    cuda_layout layout;
    cuda_block weights;
    cuda_kernels kernels;
    cuda_step_limits limits;
    cuda_buffers buffers;
    cuda_slots slots;
    cuda_graphs graphs;
    cuda_step_block blocks[CUDA_STEP_BLOCKS];
    uint32_t next_block;
    void *scratch;
    size_t scratch_bytes;
    bool dependent;
    char attn[16]; /* cuda_runner_attn */
    rad_error broken; /* status 0: it is not. Else why it refuses */

    /* Of the last step: */
    uint32_t num_logits;
    float *logits; /* [limits.logits][vocab_size] of the host */
    cuda_pinned sample_block;
    cuda_pinned tokens; /* [limits.logits] that were chosen */
    cuda_runner_stats stats;
} cuda_runner;

/* What steps can have on a GPU of so many multiprocessors, whose blocks have so much shared memory;
 * sizes do not depend on these two. RAD_E_UNSUPPORTED: there is no kernel for its attention. */
rad_status cuda_limits_find(const model_config *c, const cuda_runner_params *p,
                            uint32_t multiprocessors, uint32_t shared_bytes, cuda_step_limits *out,
                            rad_error *err);

/* After a call that failed: waits for what was enqueued, so that nothing is written any more, and
 * finds out whether the GPU's context still works. Returns `status`. */
rad_status cuda_runner_failed(cuda_runner *r, rad_status status, const rad_error *why);

/* Waits for all that was enqueued. */
static inline rad_status cuda_runner_synchronize(const cuda_runner *r, rad_error *err)
{
    return cuda_ok(&r->cu, r->cu.stream_synchronize(r->stream), "cuStreamSynchronize", err);
}

/* Copies the logits of the last step to r->logits and waits for them. */
rad_status cuda_runner_fetch_logits(cuda_runner *r, rad_error *err);

rad_status cuda_runner_sample(runner *self, const runner_sample *rows, uint32_t num_rows,
                              rad_token *tokens, rad_error *err);

/* What K and V are stored as. */
static inline rad_dtype cuda_kv_dtype(const cuda_runner_params *p)
{
    return p->model.set_kv_dtype ? p->model.kv_dtype : RAD_BF16;
}

/* RAD_E_UNSUPPORTED: what params ask for and the GPU runner lacks. */
rad_status cuda_params_supported(const cuda_runner_params *p, rad_error *err);

/* cuda_runner_supports, and the model's config. */
rad_status cuda_runner_read(const gguf_file *file, const cuda_runner_params *p, model_config *out,
                            rad_error *err);

#endif
