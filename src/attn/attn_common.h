/* attn_common.h - what the backends share: limits, and which keys a query sees. */
#ifndef ATTN_ATTN_COMMON_H
#define ATTN_ATTN_COMMON_H

#include "attn/attn_backend.h"
#include "base/base.h"
#include "base/bf16.h"

/* Longest head of K or V that the backends have room for (MLA's absorbed heads are
 * 576); radix_attention_forward refuses longer ones. */
enum { ATTN_MOST_DIM = 1024 };

/* Groups are taken in batches of at most so many requests. */
enum { ATTN_MOST_GROUP_REQS = 1024 };

static inline uint32_t attn_v_dim(const radix_attention *layer)
{
    return layer->v_head_dim ? layer->v_head_dim : layer->head_dim;
}

/* Tokens that a query sees, itself included; 0: all. */
static inline uint32_t attn_window(const radix_attention *layer)
{
    return layer->sliding_window > 0 ? (uint32_t)layer->sliding_window : 0;
}

/* The first position that a query at `position` sees. */
static inline uint32_t attn_first_key(const radix_attention *layer, uint32_t position)
{
    return forward_first_key(attn_window(layer), position);
}

#endif
