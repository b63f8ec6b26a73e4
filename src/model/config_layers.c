/* config_layers.c - what each layer is: heads, widths, window, RoPE table, place in its KV pool.
 *
 * GGUF's keys of a layer are one number for all of them or an array with one for each. */
#include "base/base.h"
#include "model/config_reader.h"

#include <stdio.h>

enum { MOST_HEADS = 4096, MOST_HEAD_DIM = 4096, MOST_FFN = 1 << 24 };

/* The KV pools have one shape of head for all layers. */
static rad_status check_one_shape(const config_reader *r, const model_config *c)
{
    const layer_config *first = config_attention(c);
    for (uint32_t i = 0; i < c->num_layers; i++)
        if (c->layers[i].num_kv_heads && c->layers[i].num_kv_heads != first->num_kv_heads)
            return rad_fail(r->err, RAD_E_UNSUPPORTED,
                            "model: key %s.attention.head_count_kv has %u in layer %u and %u in "
                            "layer %u, which is not supported",
                            r->arch, first->num_kv_heads, (uint32_t)(first - c->layers),
                            c->layers[i].num_kv_heads, i);
    return RAD_OK;
}

/* Which layers are recurrent: those without KV heads, or by their number. */
static void read_kinds(config_reader *r, const model_config *c, uint32_t *kv)
{
    const model_arch *a = c->arch;
    if (!a->attention_period) return;
    const uint32_t period =
        config_u32(r, "full_attention_interval", a->attention_period, MODEL_MOST_LAYERS);
    for (uint32_t i = 0; r->status == RAD_OK && i < c->num_layers; i++)
        if (i % period != period - 1) kv[i] = 0;
}

static rad_status read_heads(config_reader *r, model_config *c)
{
    const bool by_kv = c->arch->recurrent && !c->arch->attention_period;
    uint32_t heads[MODEL_MOST_LAYERS], kv[MODEL_MOST_LAYERS], n = c->num_layers;
    config_u32s(r, "attention.head_count", 0, !c->arch->one_block, MOST_HEADS, heads, n);
    if (r->status != RAD_OK) return r->status;
    config_key(r, "attention.head_count_kv");
    if (gguf_find_kv(r->file, r->key))
        config_u32s(r, "attention.head_count_kv", 0, !by_kv, MOST_HEADS, kv, n);
    else
        memcpy(kv, heads, n * sizeof *kv);
    read_kinds(r, c, kv);
    if (r->status != RAD_OK) return r->status;
    for (uint32_t i = 0; i < n; i++)
        if (kv[i] && (!heads[i] || heads[i] % kv[i]))
            return rad_fail(r->err, RAD_E_FORMAT,
                            "model: %u heads do not divide by %u KV heads (%s)", heads[i], kv[i],
                            r->key);

    uint32_t first = 0;
    while (first < n && !kv[first])
        first++;
    if (first == n)
        return rad_fail(r->err, RAD_E_UNSUPPORTED,
                        "model: no layer of %u has attention (%s), which is not supported", n,
                        r->arch);
    uint32_t share = c->dim % heads[first] ? 0 : c->dim / heads[first];
    uint32_t head_dim = config_u32(r, "attention.key_length", share, MOST_HEAD_DIM);
    uint32_t v_head_dim =
        config_u32(r, "attention.value_length", share ? share : head_dim, MOST_HEAD_DIM);
    c->rope_dim = config_u32(r, "rope.dimension_count", head_dim, MOST_HEAD_DIM);
    if (r->status != RAD_OK) return r->status;
    if (c->rope_dim % 2 || c->rope_dim > head_dim)
        return rad_fail(r->err, RAD_E_FORMAT,
                        "model: key %s is %u, expected an even number up to %u", r->key,
                        c->rope_dim, head_dim);
    for (uint32_t i = 0; i < n; i++) {
        layer_config *l = &c->layers[i];
        l->mixer = kv[i] ? MIXER_ATTENTION : c->arch->recurrent;
        if (!kv[i]) continue;
        l->gated = c->arch->gated_attention;
        l->num_heads = heads[i];
        l->num_kv_heads = kv[i];
        l->head_dim = head_dim;
        l->v_head_dim = v_head_dim;
        l->attn_layer = c->num_attention++;
    }
    if (c->arch->gated_attention && head_dim != v_head_dim)
        return rad_fail(r->err, RAD_E_FORMAT,
                        "model: heads of %u and %u (%s.attention.key_length, value_length), and "
                        "gates as wide as both",
                        head_dim, v_head_dim, r->arch);
    return check_one_shape(r, c);
}

/* Which layers slide where the file has a window: the architecture's rule, or the file's own, a
 * period or a bool for each layer. */
static rad_status read_pattern(config_reader *r, const model_config *c, bool *slides)
{
    const model_arch *a = c->arch;
    uint32_t period = a->window == WINDOW_ALL ? 0 : a->window_period;
    config_key(r, "attention.sliding_window_pattern");
    const gguf_kv *kv = gguf_find_kv(r->file, r->key);
    if (kv && a->window != WINDOW_BUT_LAST) {
        config_refuse(r, "attention.sliding_window_pattern", 0);
        return r->status;
    }
    if (kv && kv->type == GGUF_ARR) {
        if (kv->arr.type != GGUF_BOOL || kv->arr.count != c->num_layers)
            return config_misfit(r, "a period, or a bool for each layer");
        for (uint32_t i = 0; i < c->num_layers; i++)
            slides[i] = kv->arr.data[i] != 0;
        return RAD_OK;
    }
    if (kv) period = config_u32(r, "attention.sliding_window_pattern", 0, MODEL_MOST_LAYERS);
    for (uint32_t i = 0; i < c->num_layers; i++)
        slides[i] = !period || i % period != period - 1;
    return r->status;
}

/* A window that no context reaches masks nothing. */
static rad_status read_windows(config_reader *r, model_config *c)
{
    bool slides[MODEL_MOST_LAYERS] = {false};
    uint32_t window = config_u32_or_0(r, "attention.sliding_window", UINT32_MAX);
    if (r->status != RAD_OK) return r->status;
    if (!gguf_find_kv(r->file, r->key)) window = c->arch->window_absent;
    if (window && window < c->context_length && c->arch->window == WINDOW_NONE)
        config_refuse(r, "attention.sliding_window", 0);
    rad_status status = r->status == RAD_OK ? read_pattern(r, c, slides) : r->status;
    if (status != RAD_OK) return status;

    uint32_t sliding = 0, others = 0;
    for (uint32_t i = 0; i < c->num_layers; i++) {
        layer_config *l = &c->layers[i];
        /* How a layer rotates is as it was trained, whether or not the window masks anything. */
        l->rope = window && slides[i] && c->arch->window_rope ? 1 : 0;
        if (l->num_kv_heads && slides[i] && window < c->context_length) l->window = window;
        if (!l->num_kv_heads) continue;
        l->kv_layer = l->window ? sliding++ : others++;
    }
    if (sliding) c->sliding_window = window;
    return RAD_OK;
}

static void read_no_rope(config_reader *r, model_config *c)
{
    const uint32_t period = c->arch->no_rope_period;
    const bool none = c->arch->no_rope ||
                      (c->arch->scales && !config_bool(r, "rope.scaling.finetuned", true));
    for (uint32_t i = 0; i < c->num_layers; i++)
        if (none || (period && i % period == period - 1)) c->layers[i].rope = ROPE_NONE;
}

rad_status config_read_layers(config_reader *r, model_config *c)
{
    uint32_t ffn[MODEL_MOST_LAYERS];
    rad_status status = read_heads(r, c);
    if (status == RAD_OK) status = read_windows(r, c);
    if (status != RAD_OK) return status;
    read_no_rope(r, c);
    /* Files of mixtures need not have it. */
    uint32_t absent = 0;
    if (c->arch->experts == EXPERTS_ALWAYS)
        absent = config_u32_or_0(r, "expert_feed_forward_length", MOST_FFN);
    const bool one_block = c->arch->one_block;
    config_u32s(r, "feed_forward_length", absent, !one_block, MOST_FFN, ffn, c->num_layers);
    if (r->status != RAD_OK) return r->status;
    for (uint32_t i = 0; i < c->num_layers; i++) {
        layer_config *l = &c->layers[i];
        l->ffn_dim = ffn[i];
        l->no_ffn = !ffn[i];
        if (one_block && ffn[i] && l->num_kv_heads)
            return rad_fail(r->err, RAD_E_FORMAT,
                            "model: layer %u has KV heads and a feed-forward block (%s)", i,
                            r->arch);
        if (one_block && ffn[i]) l->mixer = MIXER_NONE;
    }
    return RAD_OK;
}

const layer_config *config_attention(const model_config *c)
{
    const layer_config *l = c->layers;
    while (!l->num_kv_heads)
        l++;
    return l;
}

uint32_t config_window_layers(const model_config *c)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->num_layers; i++)
        count += c->layers[i].window > 0;
    return count;
}

/* What is convolved, and what the convolution leaves in the place of q; decays and the like in that
 * of k. */
static void widen_by_recurrent(const model_config *c, const layer_config *l, config_widths *w)
{
    const recurrent_config *x = &c->recurrent;
    const uint32_t inner = l->mixer == MIXER_CONV ? c->dim : state_inner(x);
    const uint32_t in = l->mixer == MIXER_CONV ? 3 * c->dim : x->conv_dim + inner + x->heads;
    w->qkv = RAD_MAX(w->qkv, in);
    w->q = RAD_MAX(w->q, x->conv_dim);
    w->k = RAD_MAX(w->k, 2 * x->heads + x->groups);
    w->v = RAD_MAX(w->v, 2 * x->heads);
    w->unpacked = RAD_MAX(w->unpacked, inner);
}

config_widths config_widest(const model_config *c)
{
    config_widths w = {0};
    for (uint32_t i = 0; i < c->num_layers; i++) {
        const layer_config *l = &c->layers[i];
        w.q = RAD_MAX(w.q, layer_q_dim(l));
        w.k = RAD_MAX(w.k, layer_k_dim(l));
        w.v = RAD_MAX(w.v, layer_v_dim(l));
        w.attn = RAD_MAX(w.attn, layer_attn_dim(l));
        w.qkv = RAD_MAX(w.qkv, layer_qkv_dim(l));
        if (l->mixer == MIXER_LATENT) {
            const latent_config *x = &c->latent;
            const uint32_t key = x->plain + c->rope_dim;
            const uint32_t first = x->q_rank ? x->q_rank : l->num_heads * key;
            w.qkv = RAD_MAX(w.qkv, first + l->head_dim);
            w.unpacked = RAD_MAX(w.unpacked, l->num_heads * RAD_MAX(key, x->value));
        }
        if (l->gated) w.unpacked = RAD_MAX(w.unpacked, layer_q_dim(l));
        if (layer_is_recurrent(l)) widen_by_recurrent(c, l, &w);
        w.ffn = RAD_MAX(w.ffn, l->experts ? c->experts.shared_dim : l->ffn_dim);
    }
    return w;
}
