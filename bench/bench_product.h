/* bench_product.h - a matrix product as a step has it: its weight comes out of memory. */
#ifndef BENCH_BENCH_PRODUCT_H
#define BENCH_BENCH_PRODUCT_H

#include "bench.h"

#include "model/gemm.h"

enum { PRODUCT_MOST_COPIES = 256 };

/* Each run takes the next copy of the weight, as a model's layers follow one another. */
typedef struct bench_product {
    gemm_type type;
    uint32_t m, n, k; /* m may change between runs, up to what begin was told */
    compute_pool *pool;
    gemm_weight *copies[PRODUCT_MOST_COPIES];
    uint32_t num_copies, next;
    float *x, *out;
    void *scratch;
} bench_product;

static inline void *product_zeroed(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 127) & ~(size_t)63);
    if (!memory) abort();
    return memset(memory, 0, bytes);
}

/* Type, m (the most), n, k and pool are set. 64 MB of copies, at most `most` and one at least.
 * `isa` as gemm_weight_create has it. Rows do not matter to the time: the same one n times, or
 * blocks of one byte, which makes scales that are normal numbers. Ends the process in words where
 * it cannot. */
static inline void product_begin(bench_product *p, const gemm_isa *isa, uint32_t most)
{
    static char blocks[1 << 16];
    rad_error err;
    p->num_copies =
        RAD_MIN((uint32_t)(64000000 / gemm_weight_bytes(p->type, p->n, p->k)) + 1, most);
    p->x = product_zeroed((size_t)p->m * p->k * sizeof *p->x);
    p->out = product_zeroed((size_t)p->m * p->n * sizeof *p->out);
    for (size_t i = 0; i < (size_t)p->m * p->k; i++)
        p->x[i] = (float)(i % 251) / 251 - 0.5f;
    memset(blocks, 0x2c, sizeof blocks);
    for (uint32_t i = 0; i < p->num_copies; i++) {
        if (gemm_weight_create(NULL, p->type, p->n, p->k, isa, &p->copies[i], &err) != RAD_OK) {
            fprintf(stderr, "%s\n", err.text);
            exit(1);
        }
        if (p->type >= GEMM_Q4_0)
            gemm_weight_set_blocks(p->copies[i], 0, p->n, blocks, 0);
        else
            gemm_weight_set_rows(p->copies[i], 0, p->n, p->x, 0);
    }
    p->scratch = product_zeroed(gemm_scratch_bytes(p->copies[0], p->m));
}

static inline void product_end(bench_product *p)
{
    for (uint32_t i = 0; i < p->num_copies; i++)
        gemm_weight_destroy(p->copies[i]);
    free(p->scratch);
    free(p->out);
    free(p->x);
}

/* For bench_measure. */
static inline void product_run(void *arg)
{
    bench_product *p = arg;
    gemm_run(p->copies[p->next++ % p->num_copies], p->x, p->k, p->m, p->out, p->n, false, p->pool,
             p->scratch);
}

#endif
