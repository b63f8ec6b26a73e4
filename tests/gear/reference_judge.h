/* reference_judge.h - what the files of the scalar reference share (model_reference.h): a text that
 * is being judged, and the steps that all kinds of layers are made of. */
#ifndef TESTS_GEAR_REFERENCE_JUDGE_H
#define TESTS_GEAR_REFERENCE_JUDGE_H

#include "base/base.h"
#include "gguf/gguf.h"
#include "model/config.h"

#include <math.h>

typedef struct judge {
    const gguf_file *file;
    model_config c;
    uint32_t num_tokens;
    rad_error *err;
    double *x, *normed, *added, *q, *k, *v, *attended, *gate, *up, *scores, *router;
    double *kept_k[2], *kept_v[2]; /* of the last layer with its own, without a window and with */
    double *embd;                  /* what layers add of each token */
    double *wide;                  /* what a recurrent layer makes of a token; q with its gates */
    double *sums;                  /* of one of its heads */
    float *row;                    /* of a weight */
    double *clear;                 /* see model_reference_routed */
    void *memory;                  /* all of these */
    size_t bytes;
} judge;

static inline double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Limits x softly; 0: not at all. */
static inline double capped(double x, double cap)
{
    return cap > 0 ? cap * tanh(x / cap) : x;
}

/* Where the tensor is; the layer's number goes into the name. */
rad_status judge_find(const judge *j, const char *fmt, uint32_t layer, uint64_t rows, uint64_t cols,
                      const gguf_tensor **out);

/* out[t][n] = sum over k of W[n][k] * in[t][k] */
rad_status judge_matmul(const judge *j, const char *name, uint32_t layer, uint32_t rows,
                        uint32_t cols, const double *in, double *out);

/* The same of W's rows [from, from + rows), W having `all`. */
rad_status judge_matmul_part(const judge *j, const char *name, uint32_t layer, uint32_t all,
                             uint32_t from, uint32_t rows, uint32_t cols, const double *in,
                             double *out);

/* To each token's n numbers. */
rad_status judge_add_bias(const judge *j, const char *name, uint32_t layer, uint32_t n,
                          double *out);

/* `count` vectors of n elements, each divided by its root mean square and weighted. */
rad_status judge_rms_norm(const judge *j, const char *name, uint32_t layer, uint32_t n,
                          size_t count, const double *in, double *out);

/* normed = x, normed where the family norms a block's input. */
rad_status judge_read_residual(const judge *j, const char *norm, uint32_t l);

/* x += scale * what a block has left in `added`, normed first where the family does so. */
rad_status judge_add_to_residual(const judge *j, const char *post_norm, uint32_t l);

/* Blocks of layers: x += scale * what they make of x. */
rad_status judge_attention_block(const judge *j, uint32_t l);
rad_status judge_latent_block(const judge *j, uint32_t l);
rad_status judge_delta_block(const judge *j, uint32_t l);
rad_status judge_mamba_block(const judge *j, uint32_t l);
rad_status judge_conv_block(const judge *j, uint32_t l);

/* The same of what stands behind each of them. */
rad_status judge_feed_forward_block(const judge *j, uint32_t l);

/* The gated unit: SwiGLU, GEGLU, or gpt-oss's own with limits (its model card's swiglu). */
double judge_activated(const judge *j, double g, double up);

#endif
