/* cuda_memory.c - see cuda_memory.h. */
#include "cuda/cuda_memory.h"

rad_status cuda_block_alloc(const cuda_gpu *gpu, size_t bytes, const char *what, cuda_block *out,
                            rad_error *err)
{
    *out = (cuda_block){0};
    if (!bytes) return RAD_OK;
    cuda_ptr at = 0;
    const int result = gpu->cu->mem_alloc(&at, bytes);
    if (result == CUDA_OUT_OF_MEMORY) {
        size_t available = 0, total = 0;
        gpu->cu->mem_info(&available, &total);
        return rad_fail(err, RAD_E_NOMEM,
                        "cuda: no memory for %s: %.1f MB wanted, %.1f of %.1f MB are free on GPU "
                        "%d (%s)",
                        what, (double)bytes * 1e-6, (double)available * 1e-6, (double)total * 1e-6,
                        gpu->ordinal, gpu->name);
    }
    const rad_status status = cuda_ok(gpu->cu, result, "cuMemAlloc", err);
    if (status == RAD_OK) *out = (cuda_block){at, bytes};
    return status;
}

void cuda_block_free(const cuda_gpu *gpu, cuda_block *block)
{
    if (block->bytes) gpu->cu->mem_free(block->at);
    *block = (cuda_block){0};
}

rad_status cuda_pinned_alloc(const cuda_gpu *gpu, size_t bytes, const char *what, cuda_pinned *out,
                             rad_error *err)
{
    *out = (cuda_pinned){0};
    if (!bytes) return RAD_OK;
    void *at = NULL;
    const int result = gpu->cu->host_alloc(&at, bytes, 0);
    if (result == CUDA_OUT_OF_MEMORY)
        return rad_fail(err, RAD_E_NOMEM,
                        "cuda: no pinned memory of the host for %s: %.1f MB wanted", what,
                        (double)bytes * 1e-6);
    const rad_status status = cuda_ok(gpu->cu, result, "cuMemHostAlloc", err);
    if (status == RAD_OK) *out = (cuda_pinned){at, bytes};
    return status;
}

void cuda_pinned_free(const cuda_gpu *gpu, cuda_pinned *pinned)
{
    if (pinned->bytes) gpu->cu->host_free(pinned->at);
    *pinned = (cuda_pinned){0};
}
