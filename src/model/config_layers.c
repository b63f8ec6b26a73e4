/* config_layers.c - what each layer is: heads, widths, window, RoPE table, place in its KV pool.
 *
 * GGUF's keys of a layer are one number for all of them or an array with one for each. */
#include "base/base.h"
#include "model/config_reader.h"

#include <stdio.h>

enum { MOST_HEADS = 4096, MOST_HEAD_DIM = 4096, MOST_FFN = 1 << 24 };

/* A KV pool has one shape of head for all its layers: there is one for those that see a window, and
 * one for the others. */
static rad_status check_shapes(const config_reader *r, const model_config *c)
{
    for (uint32_t i = 0; i < c->num_layers; i++) {
        const layer_config *l = &c->layers[i], *first = config_attention(c);
        if (!l->num_kv_heads) continue;
        if (c->arch->window_heads) first = config_attention_of(c, l->window > 0);
        if (l->num_kv_heads != first->num_kv_heads)
            return rad_fail(r->err, RAD_E_UNSUPPORTED,
                            "model: key %s.attention.head_count_kv has %u in layer %u and %u in "
                            "layer %u, which is not supported",
                            r->arch, first->num_kv_heads, (uint32_t)(first - c->layers),
                            l->num_kv_heads, i);
        if (l->head_dim != first->head_dim)
            return rad_fail(r->err, RAD_E_UNSUPPORTED,
                            "model: heads of %u in layer %u and of %u in layer %u (%s), which see "
                            "as far, are not supported",
                            first->head_dim, (uint32_t)(first - c->layers), l->head_dim, i,
                            r->arch);
    }
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
    return RAD_OK;
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

/* Heads of layers that slide, where they are not as wide as the others'. */
static rad_status read_window_heads(config_reader *r, model_config *c, const bool *slides)
{
    const layer_config *any = config_attention(c);
    if (!c->arch->window_heads) return RAD_OK;
    const uint32_t width = config_u32(r, "attention.key_length_swa", any->head_dim, MOST_HEAD_DIM);
    const uint32_t v_width =
        config_u32(r, "attention.value_length_swa", any->v_head_dim, MOST_HEAD_DIM);
    for (uint32_t i = 0; i < c->num_layers; i++) {
        layer_config *l = &c->layers[i];
        if (slides[i] && l->num_kv_heads) l->head_dim = width, l->v_head_dim = v_width;
        if (r->status == RAD_OK && l->head_dim != l->v_head_dim)
            return rad_fail(r->err, RAD_E_UNSUPPORTED,
                            "model: heads of %u and %u in layer %u (%s), which is not supported",
                            l->head_dim, l->v_head_dim, i, r->arch);
    }
    return r->status;
}

/* Which layers read another's K/V: the last ones, each the last before them that sees as far. */
static rad_status read_shared_kv(config_reader *r, model_config *c)
{
    if (!c->arch->shared_kv) return RAD_OK;
    const uint32_t shared = config_u32_or_0(r, "attention.shared_kv_layers", c->num_layers - 1);
    const uint32_t own = c->num_layers - shared;
    for (uint32_t i = own; i < c->num_layers && r->status == RAD_OK; i++) {
        layer_config *l = &c->layers[i];
        uint32_t from = own;
        while (from && !c->layers[from - 1].window != !l->window)
            from--;
        if (!from)
            return rad_fail(r->err, RAD_E_FORMAT,
                            "model: layer %u has no K and V (key %s), and none of the %u before "
                            "sees as far",
                            i, r->key, own);
        l->shares_kv = true;
        l->kv_layer = c->layers[from - 1].kv_layer;
        l->attn_layer = c->layers[from - 1].attn_layer;
        c->num_attention--;
    }
    return r->status;
}

/* What only the tensors say. */
static void look_at_tensors(const config_reader *r, model_config *c)
{
    char name[64];
    for (uint32_t i = 0; i < c->num_layers; i++) {
        layer_config *l = &c->layers[i];
        snprintf(name, sizeof name, "blk.%u.attn_v.weight", i);
        l->v_is_k = c->arch->v_norm && !l->shares_kv && !gguf_find_tensor(r->file, name);
        snprintf(name, sizeof name, "blk.%u.layer_output_scale.weight", i);
        l->scaled = c->arch->output_scale && gguf_find_tensor(r->file, name);
    }
}

/* A window that no context reaches masks nothing; but where layers that slide have heads of their
 * own, their K/V lie apart all the same. */
static rad_status read_windows(config_reader *r, model_config *c)
{
    bool slides[MODEL_MOST_LAYERS] = {false};
    uint32_t window = config_u32_or_0(r, "attention.sliding_window", UINT32_MAX);
    if (r->status != RAD_OK) return r->status;
    if (!gguf_find_kv(r->file, r->key)) window = c->arch->window_absent;
    if (window && window < c->context_length && c->arch->window == WINDOW_NONE)
        config_refuse(r, "attention.sliding_window", 0);
    rad_status status = r->status == RAD_OK ? read_pattern(r, c, slides) : r->status;
    if (status == RAD_OK) status = read_window_heads(r, c, slides);
    if (status != RAD_OK) return status;
    if (c->arch->window_heads) window = RAD_MIN(window, c->context_length);

    uint32_t sliding = 0, others = 0;
    for (uint32_t i = 0; i < c->num_layers; i++) {
        layer_config *l = &c->layers[i];
        /* How a layer rotates is as it was trained, whether or not the window masks anything. */
        l->rope = window && slides[i] && c->arch->window_rope ? 1 : 0;
        if (l->num_kv_heads && slides[i] && (window < c->context_length || c->arch->window_heads))
            l->window = window;
        if (!l->num_kv_heads) continue;
        l->kv_layer = l->window ? sliding++ : others++;
    }
    if (sliding) c->sliding_window = window;
    status = check_shapes(r, c);
    if (status == RAD_OK) status = read_shared_kv(r, c);
    if (status == RAD_OK) look_at_tensors(r, c);
    return status;
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

const layer_config *config_attention_of(const model_config *c, bool window)
{
    for (uint32_t i = 0; i < c->num_layers; i++)
        if (c->layers[i].num_kv_heads && (c->layers[i].window > 0) == window) return &c->layers[i];
    return NULL;
}

uint32_t config_window_layers(const model_config *c)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->num_layers; i++)
        count += c->layers[i].window > 0 && !c->layers[i].shares_kv;
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
    for (uint32_t i = 0; i < config_all_layers(c); i++) {
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
        const bool sparse = l->experts && !c->arch->experts_beside;
        w.ffn = RAD_MAX(w.ffn, sparse ? c->experts.shared_dim : l->ffn_dim);
    }
    return w;
}
