/* weights_pack.h - tensors that read the same x, as one packed weight: in which types, and how
 * their rows get there. For weights.c. */
#ifndef MODEL_WEIGHTS_PACK_H
#define MODEL_WEIGHTS_PACK_H

#include "base/compute_pool.h"
#include "gguf/gguf.h"
#include "model/gemm.h"
#include "model/weights_ahead.h"
#include "model/weights_policy.h"

enum { WEIGHTS_MOST_PARTS = WEIGHTS_AHEAD_PARTS };

/* A tensor, or its share of a stacked weight. */
typedef struct weights_part {
    const char *name;
    uint32_t rows;
    uint64_t first;            /* of the tensor's rows */
    const gguf_tensor *tensor; /* tensor_find has looked at it */
} weights_part;

/* The quantised type that holds the very numbers of a tensor of GGUF's type `type`; or
 * GEMM_NUM_TYPES. */
gemm_type weights_native_type(uint32_t type);

/* Each part's type (`dtype` is f32 or bf16), neighbours of one type as one. Where a part has to
 * be converted to `dtype`, so are the others: they read one x, and x is rounded for all of them
 * in one way. Returns how many there are in `out`, num_parts at most. */
uint32_t weights_choose_types(weights_policy policy, gemm_type dtype, const weights_part *parts,
                              uint32_t num_parts, gemm_part out[WEIGHTS_MOST_PARTS]);

/* Sets all rows of `w`, a stack of what weights_choose_types said. `scratch`: GEMM_PANEL rows of
 * floats for each thread of the pool, `scratch_floats` of them a thread. `ahead` is told of each
 * panel. */
void weights_pack(gemm_weight *w, const weights_part *parts, float *scratch, size_t scratch_floats,
                  weights_ahead *ahead, compute_pool *pool);

#endif
