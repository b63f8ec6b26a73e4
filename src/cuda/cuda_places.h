/* cuda_places.h - what quantised experts multiply, and their products: launches for the places of a
 * step's tiles (experts_quant_args.h). */
#ifndef CUDA_CUDA_PLACES_H
#define CUDA_CUDA_PLACES_H

#include "cuda/cuda_kernels.h"
#include "cuda/cuda_layout.h"

typedef struct cuda_places {
    expert_tiles by;
    uint32_t most_tiles; /* that there can be in this step */
    uint32_t ld;         /* places that `scales` has a row of, a multiple of 8 */
    i8 *rounded;         /* [ld][m->ld] */
    float *scales;       /* [2][m->ld / 32][ld] */
} cuda_places;

/* What m multiplies next: of f32 a row of each token, or else of each place; see quantise_from.
 * `bias`: of gated units, for each expert, or NULL. */
void cuda_places_round(cuda_queue *q, const cuda_places *p, const cuda_matrix *m, uint32_t from,
                       const void *x, uint32_t ldx, const float *bias);

/* The gated unit of each place's row of x as bf16, for a matrix that is not quantised. */
void cuda_places_activate(cuda_queue *q, const cuda_places *p, const cuda_matrix *m, uint32_t from,
                          const void *x, uint32_t ldx, const float *bias, u16 *act);

/* out[place] = m of the place's expert . what was rounded last, piece beside piece; m->rows floats.
 */
void cuda_places_multiply(cuda_queue *q, const cuda_places *p, const cuda_matrix *m,
                          cuda_ptr weights, float *out);

#endif
