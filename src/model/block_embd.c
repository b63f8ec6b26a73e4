/* block_embd.c - what a layer adds of the token's second embedding (Gemma 3n, Gemma 4).
 *
 *     begin     e = (rms(proj . x / sqrt(dim)) + embedding * sqrt(width)) / sqrt(2), in which each
 *               layer has `width` numbers; x is the first embedding
 *     a layer   x += rms(embd_proj . (gelu(embd_gate . x) * its part of e)) */
#include "model/block.h"

#include <math.h>

static uint32_t embd_numbers(const model_config *c)
{
    return c->num_layers * c->layer_embd;
}

static void mix_row(const step *s, uint32_t i)
{
    const model_config *c = s->c;
    const uint32_t width = c->layer_embd, all = embd_numbers(c);
    const float down = (float)(1 / sqrt(c->dim)), up = (float)sqrt(width), half = (float)sqrt(0.5);
    float *e = s->b->embd + (size_t)i * all, *own = s->b->wide + (size_t)i * all;
    model_weights_embed_layers(s->m->weights, s->batch->input_ids[i], own);
    for (uint32_t n = 0; n < all; n++)
        e[n] *= down;
    for (uint32_t n = 0; n < all; n += width)
        s->m->ops->rms_norm(e + n, e + n, s->m->weights->layer_embd_norm, width, c->rms_eps);
    for (uint32_t n = 0; n < all; n++)
        e[n] = (e[n] + own[n] * up) * half;
}

void block_embd_begin(step *s)
{
    const uint32_t all = embd_numbers(s->c);
    gemm_run(s->m->weights->layer_embd_proj, s->b->x, s->c->dim, s->rows, s->b->embd, all, false,
             s->m->pool, s->b->gemm_scratch);
    block_for_rows(s, mix_row);
}

void block_embd_move_row(const step *s, uint32_t from, uint32_t to)
{
    const size_t all = embd_numbers(s->c);
    if (all) memcpy(s->b->embd + to * all, s->b->embd + from * all, all * sizeof(float));
}

static void gate_row(const step *s, uint32_t i)
{
    const uint32_t width = s->c->layer_embd, layer = (uint32_t)(s->l - s->c->layers);
    const float *own = s->b->embd + (size_t)i * embd_numbers(s->c) + (size_t)layer * width;
    s->m->ops->geglu(s->b->wide + (size_t)i * width, own, width);
}

void block_embd(step *s)
{
    block_norm(s, NULL, s->w->embd_gate);
    block_gemm_of_norm(s, s->b->wide);
    block_for_rows(s, gate_row);
    block_project(s, s->w->embd_proj, s->b->wide, s->c->layer_embd, NULL, NULL, s->w->embd_norm);
}
