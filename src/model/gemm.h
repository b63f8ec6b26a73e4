/* gemm.h - out[m][n] = sum over k of x[m][k] * W[n][k], for weights that stay.
 *
 * A gemm_weight is a matrix of N rows (outputs) and K columns (inputs), packed
 * once into panels of GEMM_PANEL rows, as f32, bf16 or blocks of small integers. N and
 * K may be any size >= 1; the panels are padded with zeros.
 *
 * Promise P1: an output is one chain of operations over ascending k, started at
 * 0 (or at out[m][n], when accumulating). So a row's result depends on that row
 * of x, on W and on the instruction set; never on M, on the neighbours in the
 * batch, on the number of threads or on who computed which tile.
 *
 *     f32    acc = fma(x[k], w[k], acc); equal bits on every instruction set
 *     bf16   x is rounded to bf16 (nearest even) first. With AMX one TDPBF16PS per
 *            32 k; with AVX512_BF16 one VDPBF16PS per pair of k; else both sides are
 *            widened to f32 and the chain is the one above. The three differ in the
 *            last bits.
 *     bf16w  x stays as it is, and w is widened: the chain of f32 over the same numbers, so
 *            the bits of an f32 weight that holds them, at half the bytes; f16w likewise
 *     the quantised ones
 *            x is rounded to int8 in blocks of 32 with an f32 scale each (gemm_quant.h).
 *            The sum of 32 products (q2_K, q3_K, q6_K: 16) is an integer and exact; one
 *            fma a block adds it, scaled (of types with a minimum: a second one that). Equal bits
 *            on every instruction set. The rounding of x moves an output by about
 *            0.5% of |x| |w|, 1% at most for x that is not made to hurt.
 *
 * A weight is immutable once its rows are set; many threads may then run it. */
#ifndef MODEL_GEMM_H
#define MODEL_GEMM_H

#include "base/compute_pool.h"

#include <stdbool.h>
#include <stddef.h>

enum { GEMM_PANEL = 64 };

/* How a weight is held; bytes per value. The quantised ones are the GGUF types of
 * that name, and their bits are the file's. */
typedef enum gemm_type {
    GEMM_F32,    /* 4 */
    GEMM_BF16,   /* 2 */
    GEMM_BF16W,  /* 2 */
    GEMM_F16W,   /* 2 */
    GEMM_Q8_0,   /* 1.06: 34 per 32 */
    GEMM_Q4_0,   /* 0.56: 18 per 32 */
    GEMM_Q4_1,   /* 0.63: 20 per 32 */
    GEMM_Q5_0,   /* 0.69: 22 per 32 */
    GEMM_Q5_1,   /* 0.75: 24 per 32 */
    GEMM_IQ4_NL, /* 0.56: 18 per 32 */
    GEMM_MXFP4,  /* 0.53: 17 per 32 */
    GEMM_Q2_K,   /* 0.33: 84 per 256 */
    GEMM_Q3_K,   /* 0.45: 114 per 256 */
    GEMM_Q4_K,   /* 0.58: 148 per 256 */
    GEMM_Q5_K,   /* 0.70: 180 per 256 */
    GEMM_Q6_K,   /* 0.82: 210 per 256 */
    GEMM_IQ4_XS, /* 0.54: 138 per 256 */
    GEMM_NUM_TYPES
} gemm_type;

typedef struct gemm_weight gemm_weight;
typedef struct gemm_isa gemm_isa;

/* The kernels of one instruction set: "amx", "avx512bf16", "avx512vnni", "avx512",
 * "avxvnni", "avx2", on aarch64 "i8mm", "dotprod", "neon", "scalar", or NULL for the best that this
 * CPU has. NULL when the CPU lacks it or it is unknown. */
const gemm_isa *gemm_isa_find(const char *name);
const char *gemm_isa_name(const gemm_isa *isa);

/* Why a CPU with AMX does without, in words; NULL when it is used or there is none. The
 * second is of quantised weights alone: "amx" then computes these as "avx512vnni" does. */
const char *gemm_amx_refusal(void);
const char *gemm_amx_int8_refusal(void);

/* "f32", "q4_K". */
const char *gemm_type_name(gemm_type type);

/* An N x K weight; isa NULL means the best. Every row must be set before it is run.
 * RAD_E_INVAL for n or k of 0, an unknown type, or a k that the file's blocks of 256 do
 * not divide (the K types), or pairs (bf16w, f16w); RAD_E_NOMEM with the bytes wanted. The memory
 * is not touched but for the padding, so that the threads that set the rows share the page faults.
 */
rad_status gemm_weight_create(const rad_env *env, gemm_type type, uint32_t n, uint32_t k,
                              const gemm_isa *isa, gemm_weight **out, rad_error *err);

typedef struct gemm_part {
    gemm_type type;
    uint32_t n; /* rows */
} gemm_part;

/* A weight of the rows of parts[0], then of parts[1] ... for matrices of different types that
 * read the same x: N is the sum of theirs. Either all types are quantised or all are one; else
 * RAD_E_INVAL, otherwise as above. Parts of whole panels are fastest. `memory`: where the rows
 * are to lie, gemm_weight_bytes of all parts, aligned to 64, the caller's for as long as the
 * weight lives; NULL: memory of its own. */
rad_status gemm_weight_create_stack(const rad_env *env, void *memory, const gemm_part *parts,
                                    uint32_t num_parts, uint32_t k, const gemm_isa *isa,
                                    gemm_weight **out, rad_error *err);

/* A weight of which there is the shape alone, for what asks how large something must be. Errors as
 * gemm_weight_create's. */
rad_status gemm_weight_create_shape(const rad_env *env, gemm_type type, uint32_t n, uint32_t k,
                                    const gemm_isa *isa, gemm_weight **out, rad_error *err);
void gemm_weight_destroy(gemm_weight *w); /* NULL is fine */

/* Memory for weights: untouched, and in huge pages where the system grants them. rad_free gives
 * it back; NULL when there is none. */
void *gemm_alloc(const rad_env *env, size_t bytes);

/* Tells that `next` is run after w, as one layer follows another: a run of few rows fetches
 * the beginning of what comes next. Only a matter of time; NULL: nothing is known. `next`
 * must live as long as w is run. Not while w is run. */
void gemm_weight_set_next(gemm_weight *w, const gemm_weight *next);

/* Bytes that create would allocate (0: too many to count). */
size_t gemm_weight_bytes(gemm_type type, uint32_t n, uint32_t k);

/* Packs rows [first, first + count): `rows` is [count][K] with `ldr` floats from one
 * row to the next, rounded to the weight's type: f32, bf16, bf16w, f16w or q8_0. Different rows may
 * be set from different threads at one time. Several matrices that read the same x (Q, K, V) can be
 * stacked in one weight this way. Whole panels of rows are fastest. Here and below, all rows of one
 * call are of one part. */
void gemm_weight_set_rows(gemm_weight *w, uint32_t first, uint32_t count, const float *rows,
                          size_t ldr);

/* The same for rows that lie in the weight's own type in a GGUF file, `pitch` bytes apart, at
 * any alignment: bf16, f16w and the quantised ones. A step (2, 32 or 256 values) must divide K. */
void gemm_weight_set_blocks(gemm_weight *w, uint32_t first, uint32_t count, const void *rows,
                            size_t pitch);

/* Row `n` as the weight holds it, K floats: an embedding table that is also the
 * output matrix needs no second copy. O(K), strided. */
void gemm_weight_get_row(const gemm_weight *w, uint32_t n, float *row);

uint32_t gemm_weight_n(const gemm_weight *w);
uint32_t gemm_weight_k(const gemm_weight *w);
gemm_type gemm_weight_type(const gemm_weight *w); /* of its first row */
gemm_type gemm_weight_type_of_row(const gemm_weight *w, uint32_t row);

/* Whether its products read x itself: f32, bf16w and f16w. Others read x as rounded to scratch. */
bool gemm_weight_reads_x(const gemm_weight *w);

/* Scratch memory that gemm_run wants for `m` rows of x. It grows with m and k, and does
 * not depend on the type: one buffer for the largest of a model serves all. */
size_t gemm_scratch_bytes(const gemm_weight *w, uint32_t m);

/* out[i][0..N) for i < m, from x[i][0..K); rows lie ldx and ldo floats apart. With
 * `accumulate` the products are added to what out holds (a residual). x and out
 * must not overlap. `scratch`: gemm_scratch_bytes, aligned to 64; not shared with a
 * gemm_run at the same time. `pool` NULL: this thread alone. m = 0 does nothing.
 * Cannot fail. */
void gemm_run(const gemm_weight *w, const float *x, size_t ldx, uint32_t m, float *out, size_t ldo,
              bool accumulate, compute_pool *pool, void *scratch);

/* The rounding that gemm_run begins with, for those who make the rows and have them in
 * their cache: row number `row` goes to its place in `scratch`. For weights that read x itself
 * nothing is rounded, and nothing happens. Different rows may be rounded by different threads. */
void gemm_round_row(const gemm_weight *w, const float *x, uint32_t row, void *scratch);

/* A rounded row once more: what row `from` is becomes row `to`. Nothing
 * happens for weights that read x itself. */
void gemm_copy_rounded(const gemm_weight *w, uint32_t from, uint32_t to, void *scratch);

/* gemm_run for m rows that are in `scratch` already. x is read by weights that read x alone. */
void gemm_run_rounded(const gemm_weight *w, const float *x, size_t ldx, uint32_t m, float *out,
                      size_t ldo, bool accumulate, compute_pool *pool, void *scratch);

/* gate[i] = some function of gate[i] and up[i], i < n, the same for every i. */
typedef void gemm_glu(float *gate, const float *up, uint32_t n);

/* One of several products that run together, each by a weight of its own over rows of its own. */
typedef struct gemm_item {
    const gemm_weight *w;
    const float *x; /* read by weights that read x only, as `out` of a gated item is written */
    float *out;
    uint32_t rows;
    uint32_t first; /* where its rounded rows begin in the scratch memory that all items share */
    const gemm_weight *then; /* gated items only: what reads glu(gate, up), */
    const float *bias;       /* and what is added to its gates, then ups, before; or NULL */
    uint32_t unit;           /* the run's: its first unit of work */
} gemm_item;

/* gemm_run_rounded for all items in one parallel region. Their weights have one depth and are
 * rounded for alike (f32, bf16, bf16w, f16w, or any quantised types). Rows lie ldx and ldo floats
 * apart, in scratch as if they were one product's. */
void gemm_run_items(gemm_item *items, uint32_t num_items, size_t ldx, size_t ldo,
                    compute_pool *pool, void *scratch);

/* gemm_run_glu likewise; the shapes of all items are one. */
void gemm_run_items_glu(gemm_item *items, uint32_t num_items, size_t ldx, size_t ldo, gemm_glu *glu,
                        void *then_scratch, compute_pool *pool, void *scratch);

/* The first half of a gated feed-forward layer: w's outputs are N/2 gates, then N/2 ups,
 * and glu(gate, up) is what gemm_run_rounded(then, out, ...) reads: it is left in
 * `then_scratch` (gemm_scratch_bytes of `then`; not `scratch`), or, where `then` reads x itself,
 * in out[i][0..N/2). The rest of `out`, m rows of N floats, may have been written to.
 * The rows of x are in `scratch` already, as for gemm_run_rounded.
 *
 * The bits are those of gemm_run, glu and gemm_run; gate and up just do not travel through
 * memory in between. K of `then` is N/2, and multiples of GEMM_PANEL are fastest. */
void gemm_run_glu(const gemm_weight *w, const float *x, size_t ldx, uint32_t m, gemm_glu *glu,
                  float *out, size_t ldo, const gemm_weight *then, void *then_scratch,
                  compute_pool *pool, void *scratch);

#endif
