/* cuda_sample.c - tokens out of the logits of the last step. */
#include "cuda/cuda_state.h"

rad_status cuda_runner_fetch_logits(cuda_runner *r, rad_error *err)
{
    const cuda_driver *cu = &r->cu;
    const size_t vocab = r->config.vocab_size;
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < r->num_logits && status == RAD_OK; i++)
        status = cuda_ok(
            cu,
            cu->copy_to_host(r->logits + i * vocab,
                             r->buffers.logits + (uint64_t)i * r->buffers.logits_ld * sizeof(float),
                             vocab * sizeof(float), r->stream),
            "cuMemcpyDtoHAsync", err);
    if (status == RAD_OK) status = cuda_runner_synchronize(r, err);
    return status;
}

/* Launches what chooses the tokens of as many rows as go with one launch, from `first` on. */
static rad_status launch_rows(cuda_runner *r, const runner_sample *rows, uint32_t first,
                              uint32_t num_rows, uint32_t *done, rad_error *err)
{
    const cuda_driver *cu = &r->cu;
    const cuda_buffers *b = &r->buffers;
    cuda_sample_pack pack;
    rad_status status = cuda_sample_fill(&r->limits.sample, rows + first, num_rows - first, first,
                                         r->sample_block.at, &pack, err);
    if (status == RAD_OK)
        status = cuda_ok(
            cu, cu->copy_to_device(b->sample_block, r->sample_block.at, pack.bytes, r->stream),
            "cuMemcpyHtoDAsync", err);
    if (status != RAD_OK) return status;
    const sample_args a = cuda_sample_args(
        &r->limits.sample, (const float *)(uintptr_t)b->logits,
        (const void *)(uintptr_t)b->sample_block, (void *)(uintptr_t)b->sample_scratch,
        (int32_t *)(uintptr_t)(b->tokens + first * sizeof(rad_token)), pack.num_rows);
    cuda_queue queue = {
        .kernels = &r->kernels, .stream = r->stream, .dependent = r->dependent, .err = err};
    launch_sample(&queue, &a, pack.num_drawn);
    *done = pack.num_rows;
    return queue.status;
}

static rad_status choose(cuda_runner *r, const runner_sample *rows, uint32_t num_rows,
                         rad_token *tokens, rad_error *err)
{
    const cuda_driver *cu = &r->cu;
    rad_status status = RAD_OK;
    for (uint32_t first = 0, n = 0; first < num_rows && status == RAD_OK; first += n) {
        if (first) status = cuda_runner_synchronize(r, err); /* the block is filled anew */
        if (status == RAD_OK) status = launch_rows(r, rows, first, num_rows, &n, err);
    }
    if (status == RAD_OK)
        status = cuda_ok(
            cu,
            cu->copy_to_host(r->tokens.at, r->buffers.tokens, num_rows * sizeof *tokens, r->stream),
            "cuMemcpyDtoHAsync", err);
    if (status == RAD_OK) status = cuda_runner_synchronize(r, err);
    if (status == RAD_OK) memcpy(tokens, r->tokens.at, num_rows * sizeof *tokens);
    return status;
}

rad_status cuda_runner_sample(runner *self, const runner_sample *rows, uint32_t num_rows,
                              rad_token *tokens, rad_error *err)
{
    cuda_runner *r = (cuda_runner *)self;
    rad_error words = {0};
    if (num_rows != r->num_logits)
        return rad_fail(err, RAD_E_INVAL, "cuda: %u tokens are to be chosen behind %u rows",
                        num_rows, r->num_logits);
    rad_status status = cuda_gpu_enter(&r->gpu, &words);
    if (status == RAD_OK) {
        status = choose(r, rows, num_rows, tokens, &words);
        if (status != RAD_OK) cuda_runner_failed(r, status, &words);
        cuda_gpu_leave(&r->gpu);
    }
    return status == RAD_OK ? status : rad_fail(err, status, "%s", words.text);
}
