/* scan.h - the recurrences behind linear attention, token by token.
 *
 * A head's state is a matrix of sums with a row for each number of a key. Of all that is computed,
 * no column depends on another, so a job is a strip of STATE_STRIP columns, which stays in the L1
 * cache from token to token. With the token's key k, query q, value v, decay d and weight w:
 *
 *     delta rule    u = w (v - d k.S)    S = d S + k u    out = q.S  (which is d q.S' + (q.k) u,
 *     Mamba 2       u = w v              S = d S + k u    out = q.S   S' being S before the token)
 *
 * So the delta rule needs two products of S before it changes S; both for the token to come are
 * taken while S is written for the one before: each number is loaded and stored once a token.
 *
 * Promise P1: a column's sums run over ascending rows, one fma each, so its bits depend on its
 * state and its tokens alone: a text may be cut into jobs anywhere. The bits are equal on every
 * instruction set. */
#ifndef MODEL_SCAN_H
#define MODEL_SCAN_H

#include "model/config.h"

typedef struct scan_job {
    uint32_t tokens;          /* >= 1 */
    uint32_t rows;            /* numbers of a key */
    uint32_t columns;         /* of value and out, <= STATE_STRIP; the state has all of them */
    const float *key, *query; /* of the first token; the next one's is so many floats on: */
    size_t key_ld;
    const float *value;
    size_t value_ld;
    const float *decay, *weight, *product; /* numbers; product is q.k and the delta rule's alone */
    size_t gate_ld;
    float *out;
    size_t out_ld;
    const float *from; /* [rows][STATE_STRIP] before the first token, aligned to 64 bytes; */
    float *to;         /* behind the last one. May be `from` */
} scan_job;

typedef void scan_run(const scan_job *job);

typedef struct scan_isa {
    const char *name; /* "avx512", "avx2", "neon", "scalar" */
    scan_run *delta, *mamba;
} scan_isa;

/* The kernels of that name, or NULL for the best that this CPU has. NULL when the CPU lacks it or
 * the name is unknown. */
const scan_isa *scan_find(const char *name);

extern const scan_isa scan_scalar, scan_avx2, scan_avx512, scan_neon;

#endif
