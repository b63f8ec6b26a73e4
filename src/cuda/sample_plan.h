/* sample_plan.h - runner_sample's rows as the kernels of sample.cu want them.
 *
 * All that a launch needs is one block of memory, which is filled on the host and uploaded at once;
 * its places do not move, so a launch can be replayed. Words are ids, biases and masks:
 *
 *     | sample_row [max_rows] | words of row 0 | words of row 1 | ...     up to max_words
 *
 * Rows that do not fit go with the next launch. What the kernels keep between them is device memory
 * of the same plan. */
#ifndef CUDA_SAMPLE_PLAN_H
#define CUDA_SAMPLE_PLAN_H

#include "cuda/kernels/kernel_args.h"
#include "model/runner.h"

typedef struct cuda_sample_limits {
    uint32_t vocab_size;
    uint32_t ld; /* numbers from one row of logits to the next */
    uint32_t max_rows;
    uint32_t max_words;
} cuda_sample_limits;

/* Room for any row that says up to context_length tokens, and for masks of all rows. max_rows is
 * cut to what a launch may have. */
cuda_sample_limits cuda_sample_limits_of(uint32_t vocab_size, uint32_t ld, uint32_t context_length,
                                         uint32_t max_rows);

/* Of the block, and of device memory for the kernels, whose first *zero_bytes are to be zero before
 * the first launch. */
size_t cuda_sample_block_bytes(const cuda_sample_limits *limits);
size_t cuda_sample_scratch_bytes(const cuda_sample_limits *limits, size_t *zero_bytes);

typedef struct cuda_sample_pack {
    uint32_t num_rows;  /* so many of the rows are in the block */
    uint32_t num_drawn; /* of these are not greedy; 0: sample_adjust does it all */
    size_t bytes;       /* of the block, to upload */
} cuda_sample_pack;

/* Fills the block with as many of rows[num_rows] as fit; row i's logits are first_logits_row + i.
 * RAD_E_INVAL: the first does not fit by itself, in words. */
rad_status cuda_sample_fill(const cuda_sample_limits *limits, const runner_sample *rows,
                            uint32_t num_rows, uint32_t first_logits_row, void *block,
                            cuda_sample_pack *out, rad_error *err);

/* What the three kernels are launched with; `block` and all others are the device's. num_rows is
 * GRID_Y of the launch, and may be more than were filled if those are marked by
 * cuda_sample_clear. */
sample_args cuda_sample_args(const cuda_sample_limits *limits, const float *logits,
                             const void *block, void *scratch, int32_t *tokens, uint32_t num_rows);

/* Rows from `first` on ask for no token. */
void cuda_sample_clear(const cuda_sample_limits *limits, void *block, uint32_t first);

#endif
