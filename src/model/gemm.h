/* gemm.h - out[m][n] = sum over k of x[m][k] * W[n][k], for weights that stay.
 *
 * A gemm_weight is a matrix of N rows (outputs) and K columns (inputs), packed
 * once into panels of GEMM_PANEL rows, as f32 or bf16. N and K may be any size
 * >= 1; the panels are padded with zeros.
 *
 * Promise P1: an output is one chain of operations over ascending k, started at
 * 0 (or at out[m][n], when accumulating). So a row's result depends on that row
 * of x, on W and on the instruction set; never on M, on the neighbours in the
 * batch, on the number of threads or on who computed which tile.
 *
 *     f32    acc = fma(x[k], w[k], acc); equal bits on every instruction set
 *     bf16   x is rounded to bf16 (nearest even) first. With AVX512_BF16 one
 *            VDPBF16PS per pair of k; else both sides are widened to f32 and
 *            the chain is the one above. The two differ in the last bits.
 *
 * A weight is immutable once its rows are set; many threads may then run it. */
#ifndef MODEL_GEMM_H
#define MODEL_GEMM_H

#include "base/compute_pool.h"

#include <radish/token_to_kv_pool.h>
#include <stdbool.h>

enum { GEMM_PANEL = 64 };

typedef struct gemm_weight gemm_weight;
typedef struct gemm_isa gemm_isa;

/* The kernels of one instruction set: "avx512bf16", "avx512", "avx2", "scalar", or
 * NULL for the best that this CPU has. NULL when the CPU lacks it or it is unknown. */
const gemm_isa *gemm_isa_find(const char *name);
const char *gemm_isa_name(const gemm_isa *isa);

/* An N x K weight of zeros; dtype is RAD_F32 or RAD_BF16, isa NULL means the best.
 * RAD_E_INVAL for n or k of 0 or another dtype; RAD_E_NOMEM with the bytes wanted. */
rad_status gemm_weight_create(const rad_env *env, rad_dtype dtype, uint32_t n, uint32_t k,
                              const gemm_isa *isa, gemm_weight **out, rad_error *err);
void gemm_weight_destroy(gemm_weight *w); /* NULL is fine */

/* Bytes that create would allocate (0: too many to count). */
size_t gemm_weight_bytes(rad_dtype dtype, uint32_t n, uint32_t k);

/* Packs rows [first, first + count): `rows` is [count][K] with `ldr` floats from one
 * row to the next, rounded to the weight's dtype. Different rows may be set from
 * different threads at one time. Several matrices that read the same x (Q, K, V)
 * can be stacked in one weight this way. Whole panels of rows are fastest. */
void gemm_weight_set_rows(gemm_weight *w, uint32_t first, uint32_t count, const float *rows,
                          size_t ldr);

/* Row `n` as the weight holds it, K floats: an embedding table that is also the
 * output matrix needs no second copy. O(K), strided. */
void gemm_weight_get_row(const gemm_weight *w, uint32_t n, float *row);

uint32_t gemm_weight_n(const gemm_weight *w);
uint32_t gemm_weight_k(const gemm_weight *w);

/* Scratch memory that gemm_run wants for `m` rows of x; may be 0 (f32). It grows
 * with m, and with k only: one buffer for the largest of a model serves all. */
size_t gemm_scratch_bytes(const gemm_weight *w, uint32_t m);

/* out[i][0..N) for i < m, from x[i][0..K); rows lie ldx and ldo floats apart. With
 * `accumulate` the products are added to what out holds (a residual). x and out
 * must not overlap. `scratch`: gemm_scratch_bytes, aligned to 64; not shared with a
 * gemm_run at the same time. `pool` NULL: this thread alone. m = 0 does nothing.
 * Cannot fail. */
void gemm_run(const gemm_weight *w, const float *x, size_t ldx, uint32_t m, float *out, size_t ldo,
              bool accumulate, compute_pool *pool, void *scratch);

#endif
