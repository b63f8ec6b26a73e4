/* cuda_memory.h - blocks of a GPU's memory and of pinned host memory, as a runner takes them: all
 * at its start, each with words for who is short of it. */
#ifndef CUDA_CUDA_MEMORY_H
#define CUDA_CUDA_MEMORY_H

#include "device/cuda_driver.h"

typedef struct cuda_block {
    cuda_ptr at;
    size_t bytes;
} cuda_block;

/* The context is current. RAD_E_NOMEM says how much was wanted, for `what`, and how much is free.
 * What is there is undefined. */
rad_status cuda_block_alloc(const cuda_gpu *gpu, size_t bytes, const char *what, cuda_block *out,
                            rad_error *err);
void cuda_block_free(const cuda_gpu *gpu, cuda_block *block); /* one of no bytes is fine */

typedef struct cuda_pinned {
    void *at;
    size_t bytes;
} cuda_pinned;

rad_status cuda_pinned_alloc(const cuda_gpu *gpu, size_t bytes, const char *what, cuda_pinned *out,
                             rad_error *err);
void cuda_pinned_free(const cuda_gpu *gpu, cuda_pinned *pinned); /* one of no bytes is fine */

#endif
