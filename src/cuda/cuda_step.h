/* cuda_step.h - what of a step is the host's: one block of tables, which is uploaded as a whole.
 *
 *     counts | ids | positions | slots | rows | patches | for each view: parts_at, units | ...
 *                                                              ... | tokens of units | new slots
 *
 * What stands before the dots is where it is in every step of as many tokens, so that a graph can
 * be replayed with other numbers; behind them things lie one after the other, named by their index
 * from the block's beginning. A step may be padded to more tokens than it has: those are token 0 at
 * position 0, whose K and V go to the dummy page and which nothing attends for.
 *
 * Where layers with a window have memory of their own there are slots and rows of two kinds: one
 * block and one table of rows have both.
 *
 * A view is attention of the layers that see as far: without a window, or with one. */
#ifndef CUDA_CUDA_STEP_H
#define CUDA_CUDA_STEP_H

#include "cuda/attention_plan.h"
#include "cuda/cuda_slots.h"
#include "cuda/sample_plan.h"

enum { CUDA_VIEWS = 2 };

/* What a step can have, and what its buffers were made for. */
typedef struct cuda_step_limits {
    uint32_t tokens, logits, requests, context;
    uint32_t most_parts; /* of attention */
    uint32_t most_values;
    cuda_attention_launch attention;
    uint32_t num_views;
    cuda_attention_shape views[CUDA_VIEWS];
    uint32_t window; /* of the layers that have one; 0: none has. Their rows of slots, where they
                      * have memory of their own, lie behind those of the others */
    cuda_sample_limits sample;
} cuda_step_limits;

typedef struct cuda_step_view {
    uint32_t window;                          /* 0: none */
    uint32_t at_count, at_parts_at, at_units; /* bytes from the block's beginning */
    uint32_t num_units;
    bool merges; /* there are parts, or may be when it is replayed */
} cuda_step_view;

typedef struct cuda_step {
    uint32_t tokens, logits, patches; /* of which kernels are launched, padding counted */
    uint32_t at_ids, at_positions, at_slots, at_window_slots, at_rows, at_patches;
    uint32_t at_num_tokens; /* how many there are, padding not counted */
    cuda_step_view views[CUDA_VIEWS];
    size_t bytes; /* to be uploaded */
} cuda_step;

/* Rows of slots that the device has: of requests, and of their windows. */
static inline uint32_t cuda_step_slot_rows(const cuda_step_limits *l)
{
    return l->window ? 2 * l->requests : l->requests;
}

/* The largest block, and host memory that building takes besides. */
size_t cuda_step_block_bytes(const cuda_step_limits *l);
size_t cuda_step_scratch_bytes(const cuda_step_limits *l);

/* Fills `block` for a batch that batch_check has let through, padded to `padded` tokens and as many
 * logits (0: not at all). What does not fit among the new slots goes to the device at once, by
 * `send`. RAD_E_LIMIT: a request on a row that the device has not; RAD_FULL: padded, but more units
 * than a graph may have. */
typedef rad_status cuda_send_slots(void *user, uint64_t offset, const rad_slot *slots,
                                   uint32_t count, rad_error *err);
rad_status cuda_step_build(const cuda_step_limits *l, const forward_batch *batch, uint32_t padded,
                           cuda_slots *slots, cuda_send_slots *send, void *user, void *scratch,
                           char *block, cuda_step *out, rad_error *err);

#endif
