/* attn_ref.c - the judge: one query and one head at a time, as one would write it down.
 *
 * For every block of ATTN_BLOCK absolute positions that the query sees:
 *
 *     s[j] = scaling * q . k[j]           (capped)
 *     m = max s,  l = sum exp(s[j] - m),  a = sum exp(s[j] - m) * v[j]
 *
 * and blocks are merged in ascending order: whichever of the two maxima is smaller,
 * its l and a are scaled down by exp(difference). out = a / l, where a sink has added
 * exp(sink - m) to l. Numbers of the pool are read
 * as f32; groups are not looked at. */
#include "attn/attn_kv.h"

#include <math.h>

typedef struct ref_job {
    const radix_attention *layer;
    const forward_batch *batch;
    attn_kv kv;
    const float *q;
    float *out;
} ref_job;

static float score(const ref_job *job, const float *q, rad_slot slot, uint32_t kv_head)
{
    const radix_attention *layer = job->layer;
    float key[ATTN_MOST_DIM], dot = 0;
    attn_kv_read(&job->kv, ATTN_K, slot, kv_head, key);
    for (uint32_t d = 0; d < layer->head_dim; d++)
        dot += q[d] * key[d];
    float s = dot * layer->scaling;
    return layer->logit_cap > 0 ? layer->logit_cap * tanhf(s / layer->logit_cap) : s;
}

/* One head of the query at `position` of a request with these slots. */
static void attend(const ref_job *job, const rad_slot *slots, uint32_t position, uint32_t head,
                   const float *q, float *out)
{
    const radix_attention *layer = job->layer;
    uint32_t kv_head = head / (layer->num_heads / layer->num_kv_heads);
    uint32_t v_dim = attn_v_dim(layer), first = attn_first_key(layer, position);
    float max = -INFINITY, sum = 0, total[ATTN_MOST_DIM] = {0};

    for (uint32_t block = first / ATTN_BLOCK; block <= position / ATTN_BLOCK; block++) {
        uint32_t begin = RAD_MAX(first, block * ATTN_BLOCK);
        uint32_t end = RAD_MIN(position, block * ATTN_BLOCK + ATTN_BLOCK - 1) + 1;
        float s[ATTN_BLOCK], block_max = -INFINITY, block_sum = 0, weighted[ATTN_MOST_DIM] = {0};
        for (uint32_t j = begin; j < end; j++) {
            s[j - begin] = score(job, q, slots[j], kv_head);
            block_max = fmaxf(block_max, s[j - begin]);
        }
        for (uint32_t j = begin; j < end; j++) {
            float weight = expf(s[j - begin] - block_max);
            float value[ATTN_MOST_DIM];
            attn_kv_read(&job->kv, ATTN_V, slots[j], kv_head, value);
            block_sum += weight;
            for (uint32_t d = 0; d < v_dim; d++)
                weighted[d] += weight * value[d];
        }
        float larger = fmaxf(max, block_max);
        float scale = expf(max - larger), block_scale = expf(block_max - larger);
        max = larger;
        sum = sum * scale + block_sum * block_scale;
        for (uint32_t d = 0; d < v_dim; d++)
            total[d] = total[d] * scale + weighted[d] * block_scale;
    }
    if (layer->sinks) sum += expf(layer->sinks[head] - max);
    for (uint32_t d = 0; d < v_dim; d++)
        out[d] = total[d] / sum;
}

static void ref_request(void *arg, uint32_t i, uint32_t thread)
{
    const ref_job *job = arg;
    const forward_batch *batch = job->batch;
    const radix_attention *layer = job->layer;
    const rad_slot *slots =
        rad_req_to_token_row(batch->req_to_token_pool, batch->req_pool_indices[i]);
    (void)thread;
    for (uint32_t t = 0; t < batch->extend_seq_lens[i]; t++)
        for (uint32_t head = 0; head < layer->num_heads; head++) {
            size_t token = (size_t)batch->extend_start_loc[i] + t;
            size_t line = token * layer->num_heads + head;
            attend(job, slots, batch->extend_prefix_lens[i] + t, head,
                   job->q + line * layer->head_dim, job->out + line * attn_v_dim(layer));
        }
}

static void ref_forward(const attn_backend *self, const radix_attention *layer,
                        const forward_batch *batch, const float *q, float *out, compute_pool *pool)
{
    (void)self;
    ref_job job = {.layer = layer,
                   .batch = batch,
                   .kv = attn_kv_of(batch->token_to_kv_pool, layer->layer_id),
                   .q = q,
                   .out = out};
    forward_batch_count_reads(batch, attn_window(layer), 0, job.kv.token_bytes);
    compute_pool_run(pool, batch->num_reqs, ref_request, &job);
}

const attn_backend *attn_ref(void)
{
    static const attn_backend ref = {.name = "ref", .forward = ref_forward};
    return &ref;
}
