/* block.h - what the blocks of a forward pass share: the step, its rows, norms, and how a block
 * adds to the residual stream.
 *
 *     block_attention.c   grouped-query attention
 *     block_latent.c      multi-head latent attention
 *     block_delta.c       the gated delta rule,
 *     block_mamba.c       Mamba 2,
 *     block_conv.c        short convolutions: what these share is block_state.h
 *     block_ffn.c         a gated feed-forward block
 *     block_moe.c         a mixture of such blocks
 *     block_embd.c        a part of the token's second embedding
 *
 * A block reads rms(x) and adds to x. Matrix products and attention parallelise themselves; what
 * lies between works on rows, a few per tile. Rows are rounded for the product that reads them
 * where they are made: a norm or a glu leaves them in scratch memory, and the product begins at
 * once.
 *
 * Invariant (P1): each region maps a row to a row by operations that depend on that row
 * alone, so batching, chunking and threads do not change a bit. */
#ifndef MODEL_BLOCK_H
#define MODEL_BLOCK_H

#include "model/forward.h"

typedef struct step {
    const forward_pass *m;
    const model_config *c;
    const forward_buffers *b;
    const forward_batch *batch;
    forward_batch window; /* of layers with a window, where they have memory of their own */
    uint32_t rows;
    uint64_t experts_read; /* by the layers so far */

    const layer_config *l;
    const layer_weights *w;

    /* What the mixer has left of each row for the product that adds to x: */
    float *said;
    size_t said_ld;
    uint32_t said_dim;

    /* Of the region that runs: */
    const float *norm_weight;
    const float *bias;         /* of what a block adds; NULL: none */
    const gemm_weight *reader; /* of the norm's rows */
    void (*row)(const struct step *s, uint32_t row);
} step;

/* Calls `row` for each of the step's rows. */
void block_for_rows(step *s, void (*row)(const step *, uint32_t));

/* b->norm = rms(x), and rounded for `reader` unless NULL; without a weight x as it is. */
void block_norm(step *s, const float *weight, const gemm_weight *reader);

/* out = the reader . what block_norm left */
void block_gemm_of_norm(const step *s, float *out);

/* x += what a block has left in b->norm, with a bias and a norm of its own, unless these are
 * NULL, and the residual scale. For block_for_rows, with s->bias and s->norm_weight set. */
void block_add_row(const step *s, uint32_t row);

/* x += w . in: at once, or, where more is to be done to what is added, by block_add_row. `in` is
 * rounded where `rounded` is NULL. */
void block_project(step *s, const gemm_weight *w, const float *in, size_t ld, void *rounded,
                   const float *bias, const float *post_norm);

/* Before anything of a step is computed, for each layer that attends (s->l): RAD_E_INVAL in words
 * when it does not fit the batch's pool. */
rad_status block_attention_check(const step *s, rad_error *err);
rad_status block_attention(step *s, rad_error *err);
/* Its first part alone: K and V of the rows, in b->k and b->v. */
void block_attention_kv(step *s);
/* The layer's attention, and the batch as the layer sees it. */
radix_attention block_attention_of(const step *s);
const forward_batch *block_batch_of(const step *s);

rad_status block_delta(step *s, rad_error *err);
rad_status block_mamba(step *s, rad_error *err);
rad_status block_conv(step *s, rad_error *err);
/* x += attn_output . said */
void block_mixer_project(step *s);

rad_status block_latent(step *s, rad_error *err);
void block_latent_kv(step *s); /* K alone */
void block_latent_project(step *s);

/* What layers add of the tokens, for the whole step, when x is the embedding; a row of it is
 * another one's from now on; and a layer adds its part. */
void block_embd_begin(step *s);
void block_embd_move_row(const step *s, uint32_t from, uint32_t to);
void block_embd(step *s);

gemm_glu *block_glu(const step *s);
/* x = relu2(x), rounded as row `row` of what `then` reads. */
void block_relu2(const step *s, const gemm_weight *then, float *x, uint32_t n, uint32_t row,
                 void *scratch);
void block_ffn(step *s);
void block_moe(step *s);

/* forward.c: pieces of a pass that a head's layer has, too. A token's embedding; the angles of row
 * i, which is at `position`; a layer's mixer, and what stands behind it; the logits of what
 * block_norm left. */
void forward_embed(const step *s, rad_token token, float *x);
void forward_rope(const step *s, uint32_t i, uint32_t position);
rad_status forward_mixer(step *s, rad_error *err);
void forward_rest_of_layer(step *s);
void forward_logits(step *s);

#endif
