/* block_state.h - what blocks of recurrent layers share: states, the short convolution, the scan.
 *
 *     rows       each row's product of all that its mixer needs (block_norm, block_gemm_of_norm)
 *     rows       the convolution over a row and those before it, of this batch or out of the
 *                request's state; what the scan reads is made of it
 *     (request, head)   the scan, from state_in to state_out, copied where a save wants it;
 *     (request)         what the convolution will still read goes there, too
 *     rows       what is made of the scan's values
 *
 * Invariant (P1): a row depends on the row, the inputs of the few before it and the state, which
 * the scan computes token by token; where a text is cut into batches decides only where these come
 * from. */
#ifndef MODEL_BLOCK_STATE_H
#define MODEL_BLOCK_STATE_H

#include "model/block.h"

/* What the convolution reads: `conv_dim` channels of each row, ld floats apart. */
typedef struct state_inputs {
    const float *at;
    size_t ld;
} state_inputs;

/* out = the convolution's channels behind row i, with the layer's bias, if it has one. */
void block_convolve(const step *s, const state_inputs *in, uint32_t i, float *out);

/* How a scan finds its numbers in a row of b->q, ld conv_dim: where k, q and v begin, and which k
 * and q a head has. In a row of b->k, ld gate_ld, decays come first, then weights, then products
 * of k and q. It leaves values in b->unpacked, ld state_inner. */
typedef struct state_scan {
    scan_run *run;
    uint32_t key_at, query_at, value_at;
    uint32_t gate_ld;
    bool tiled; /* head h has k and q h % groups; else heads of one group are neighbours */
} state_scan;

/* Runs it (NULL: there is none) and leaves the states. */
void block_scan(step *s, const state_inputs *in, const state_scan *scan);

#endif
