/* cuda_places.c - see cuda_places.h. */
#include "cuda/cuda_places.h"

#include "cuda/quant_pack.h"

static quantise_places_args args_of(const cuda_places *p, const cuda_matrix *m, uint32_t from,
                                    const void *x, uint32_t ldx, const float *bias)
{
    return (quantise_places_args){.x = x,
                                  .bias = bias,
                                  .by = p->by,
                                  .k = m->k,
                                  .ldx = ldx,
                                  .ld_places = p->ld,
                                  .from = from,
                                  .gathered = from == QUANTISE_F32};
}

void cuda_places_round(cuda_queue *q, const cuda_places *p, const cuda_matrix *m, uint32_t from,
                       const void *x, uint32_t ldx, const float *bias)
{
    quantise_places_args a = args_of(p, m, from, x, ldx, bias);
    a.q = p->rounded;
    a.scales = p->scales;
    a.padded_k = m->ld;
    launch_quantise_places(q, &a, p->most_tiles);
}

void cuda_places_activate(cuda_queue *q, const cuda_places *p, const cuda_matrix *m, uint32_t from,
                          const void *x, uint32_t ldx, const float *bias, u16 *act)
{
    quantise_places_args a = args_of(p, m, from, x, ldx, bias);
    a.act = act;
    a.padded_k = m->x_ld;
    launch_quantise_places(q, &a, p->most_tiles);
}

void cuda_places_multiply(cuda_queue *q, const cuda_places *p, const cuda_matrix *m,
                          cuda_ptr weights, float *out)
{
    for (uint32_t i = 0; i < m->num_pieces; i++) {
        const cuda_piece *piece = &m->pieces[i];
        const gemm_quant_experts_args a = {.w = (const u8 *)(uintptr_t)(weights + piece->at),
                                           .w_bytes = m->bytes,
                                           .x = p->rounded,
                                           .scales = p->scales,
                                           .out = out,
                                           .by = p->by,
                                           .n = cuda_pad(piece->rows, 16),
                                           .n_out = piece->rows,
                                           .k = m->ld,
                                           .ld_places = p->ld,
                                           .ld_out = m->rows,
                                           .last_bytes = cuda_quant_last_bytes(piece->type, m->k)};
        launch_gemm_quant_experts(q, piece->type, &a, p->most_tiles);
        out += piece->rows;
    }
}
