/* attn_kv.c - looks a layer up in its pool, and reads rows through the pool's own codec. */
#include "attn/attn_kv.h"

attn_kv attn_kv_of(rad_token_to_kv_pool *pool, uint32_t layer)
{
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(pool);
    rad_kv_buffers b;
    rad_status status = rad_kv_pool_get_buffers(pool, layer, &b);
    RAD_ASSERT(status == RAD_OK);
    uint32_t index = layer - p->start_layer, number = kv_dtype_bytes(p->dtype);
    bool mla = p->kind == RAD_KV_MLA;
    attn_kv kv = {.codec = kv_codec_for(NULL), .dtype = p->dtype};
    kv.plane[ATTN_K] = (attn_kv_plane){.base = b.k,
                                       .stride = b.k_stride,
                                       .head_bytes = (size_t)p->head_dim * number,
                                       .dim = p->head_dim,
                                       .scale = p->k_scales ? p->k_scales[index] : 1,
                                       .scales = (const char *)b.k_scale,
                                       .scale_stride = b.k_scale_stride,
                                       .split = mla ? p->v_head_dim : p->head_dim};
    kv.plane[ATTN_V] = (attn_kv_plane){.base = b.v,
                                       .stride = b.v_stride,
                                       .head_bytes = (size_t)p->v_head_dim * number,
                                       .dim = p->v_head_dim,
                                       .scale = p->v_scales ? p->v_scales[index] : 1,
                                       .scales = (const char *)b.v_scale,
                                       .scale_stride = b.v_scale_stride,
                                       .split = p->v_head_dim};
    if (mla) { /* V is K's beginning, with K's scales */
        attn_kv_plane v = kv.plane[ATTN_K];
        v.dim = p->v_head_dim;
        kv.plane[ATTN_V] = v;
    }
    kv.token_bytes = rad_kv_pool_bytes_per_token(p) / p->num_layers;
    return kv;
}

void attn_kv_read(const attn_kv *kv, attn_kv_side side, rad_slot slot, uint32_t head, float *dst)
{
    const attn_kv_plane *p = &kv->plane[side];
    const char *row = p->base + (size_t)slot * p->stride + head * p->head_bytes;
    if (!p->scales) {
        kv->codec->decode(kv->dtype, dst, row, p->dim, p->scale);
        return;
    }
    const float *scales = (const float *)(const void *)(p->scales + (size_t)slot * p->scale_stride);
    uint32_t first = RAD_MIN(p->dim, p->split);
    kv->codec->decode(kv->dtype, dst, row, first, scales[head]);
    if (first < p->dim)
        kv->codec->decode(kv->dtype, dst + first, row + first, p->dim - first, scales[head + 1]);
}

kv_rows attn_kv_rows(const attn_kv *kv, attn_kv_side side, const rad_slot *slots, uint32_t head)
{
    const attn_kv_plane *p = &kv->plane[side];
    return (kv_rows){.base = p->base + head * p->head_bytes,
                     .slots = slots,
                     .stride = p->stride,
                     .scale = p->scale,
                     .scales = p->scales ? p->scales + head * sizeof(float) : NULL,
                     .scale_stride = p->scale_stride};
}

bool attn_kv_has_one_scale(const attn_kv *kv, attn_kv_side side)
{
    return !kv->plane[side].scales || kv->plane[side].dim <= kv->plane[side].split;
}

void attn_kv_read_rows(const attn_kv *kv, attn_kv_side side, const rad_slot *slots, uint32_t first,
                       uint32_t count, uint32_t head, float *dst)
{
    const uint32_t dim = kv->plane[side].dim;
    const uint32_t split = attn_kv_has_one_scale(kv, side) ? dim : kv->plane[side].split;
    kv_rows rows = attn_kv_rows(kv, side, slots, head);
    kv->codec->decode_rows(kv->dtype, dst, dim, &rows, first, count, split);
    if (split == dim) return;
    rows.base += split; /* int8: a number is a byte */
    rows.scales += sizeof(float);
    kv->codec->decode_rows(kv->dtype, dst + split, dim, &rows, first, count, dim - split);
}
