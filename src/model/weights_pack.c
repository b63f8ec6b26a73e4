/* weights_pack.c - see weights_pack.h.
 *
 * Rows are packed in tiles of GEMM_PANEL. Those that keep their type go straight from the file,
 * others through a scratch buffer per thread:
 *     file (any type) -> f32 panel -> packed type */
#include "model/weights_pack.h"

#include "base/base.h"
#include "gguf/quant.h"
#include "model/tensor_rows.h"

gemm_type weights_native_type(uint32_t type)
{
    static const uint8_t native[] = {
        [GGML_Q8_0] = GEMM_Q8_0,    [GGML_Q4_0] = GEMM_Q4_0, [GGML_Q4_1] = GEMM_Q4_1,
        [GGML_Q5_0] = GEMM_Q5_0,    [GGML_Q5_1] = GEMM_Q5_1, [GGML_IQ4_NL] = GEMM_IQ4_NL,
        [GGML_MXFP4] = GEMM_MXFP4,  [GGML_Q2_K] = GEMM_Q2_K, [GGML_Q3_K] = GEMM_Q3_K,
        [GGML_Q4_K] = GEMM_Q4_K,    [GGML_Q5_K] = GEMM_Q5_K, [GGML_Q6_K] = GEMM_Q6_K,
        [GGML_IQ4_XS] = GEMM_IQ4_XS};
    return type < RAD_COUNT(native) && native[type] ? (gemm_type)native[type] : GEMM_NUM_TYPES;
}

/* Where x stays f32, numbers of 16 bits can stay what they are: the bits are those of f32. Returns
 * what they are held as, or GEMM_NUM_TYPES. */
static gemm_type stay_16_bits(const weights_part *parts, uint32_t num_parts)
{
    const uint32_t type = parts[0].tensor->type;
    for (uint32_t i = 0; i < num_parts; i++)
        if (parts[i].tensor->type != type || parts[i].tensor->dims[0] % 2) return GEMM_NUM_TYPES;
    return type == GGML_BF16 ? GEMM_BF16W : type == GGML_F16 ? GEMM_F16W : GEMM_NUM_TYPES;
}

uint32_t weights_choose_types(weights_policy policy, gemm_type dtype, const weights_part *parts,
                              uint32_t num_parts, gemm_part out[WEIGHTS_MOST_PARTS])
{
    gemm_type all = GEMM_NUM_TYPES;
    if (policy == WEIGHTS_AS_DTYPE) all = dtype;
    if (policy == WEIGHTS_AS_Q8_0) all = GEMM_Q8_0;
    if (policy == WEIGHTS_AS_FILE && dtype == GEMM_F32) all = stay_16_bits(parts, num_parts);
    for (uint32_t i = 0; i < num_parts && all == GEMM_NUM_TYPES; i++)
        if (weights_native_type(parts[i].tensor->type) == GEMM_NUM_TYPES) all = dtype;
    uint32_t count = 0;
    for (uint32_t i = 0; i < num_parts; i++) {
        gemm_type type = all == GEMM_NUM_TYPES ? weights_native_type(parts[i].tensor->type) : all;
        if (!count || out[count - 1].type != type) out[count++] = (gemm_part){type, 0};
        out[count - 1].n += parts[i].rows;
    }
    return count;
}

/* Whether a tensor's bytes are those of the weight's rows from `to` on, in another order. */
static bool same_type(const gguf_tensor *t, const gemm_weight *w, uint32_t to)
{
    gemm_type type = gemm_weight_type_of_row(w, to);
    if (t->type == GGML_BF16)
        return type == GEMM_BF16W || (type == GEMM_BF16 && gemm_weight_k(w) % 2 == 0);
    if (t->type == GGML_F16) return type == GEMM_F16W;
    return weights_native_type(t->type) == type;
}

/* `count` rows of one tensor from its row `from` on become rows `to` ... of the weight. */
static void pack_rows(gemm_weight *w, uint32_t to, const gguf_tensor *t, uint64_t from,
                      uint32_t count, float *scratch)
{
    uint32_t k = gemm_weight_k(w);
    if (same_type(t, w, to)) {
        const char *first = tensor_row_bytes(t, from), *second = tensor_row_bytes(t, from + 1);
        gemm_weight_set_blocks(w, to, count, first, (size_t)(second - first));
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        tensor_row(t, from + i, scratch + (size_t)i * k);
    gemm_weight_set_rows(w, to, count, scratch, k);
}

typedef struct pack_job {
    gemm_weight *weight;
    const weights_part *parts;
    float *scratch;
    size_t scratch_floats;
    weights_ahead *ahead;
} pack_job;

/* Rows [tile * GEMM_PANEL, ...) of the stack, which may come from several parts. */
static void pack_tile(void *arg, uint32_t tile, uint32_t thread)
{
    const pack_job *job = arg;
    float *scratch = job->scratch + thread * job->scratch_floats;
    uint32_t first = tile * GEMM_PANEL;
    uint32_t end = RAD_MIN(first + GEMM_PANEL, gemm_weight_n(job->weight));
    const weights_part *p = job->parts;
    uint32_t row = first;
    uint64_t bytes = 0;
    while (row >= p->rows)
        row -= p++->rows;
    while (first < end) {
        uint32_t count = RAD_MIN(end - first, p->rows - row);
        pack_rows(job->weight, first, p->tensor, p->first + row, count, scratch);
        bytes += count * tensor_row_size(p->tensor);
        first += count;
        p++, row = 0;
    }
    weights_ahead_advance(job->ahead, bytes);
}

void weights_pack(gemm_weight *w, const weights_part *parts, float *scratch, size_t scratch_floats,
                  weights_ahead *ahead, compute_pool *pool)
{
    pack_job job = {w, parts, scratch, scratch_floats, ahead};
    compute_pool_run(pool, (gemm_weight_n(w) + GEMM_PANEL - 1) / GEMM_PANEL, pack_tile, &job);
}
