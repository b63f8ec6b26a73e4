/* config_experts.c - mixtures of experts: how many there are, how a router chooses and weighs. */
#include "base/base.h"
#include "model/config_reader.h"

#include <stdio.h>

enum { MOST_EXPERTS = 4096, MOST_FFN = 1 << 24 };

/* Of any layer: all have it then. */
static bool has_tensor(const config_reader *r, const model_config *c, const char *which)
{
    char name[64];
    for (uint32_t i = 0; i < c->num_layers; i++) {
        snprintf(name, sizeof name, "blk.%u.%s", i, which);
        if (gguf_find_tensor(r->file, name)) return true;
    }
    return false;
}

static void read_router(config_reader *r, model_config *c)
{
    const model_arch *a = c->arch;
    experts_config *x = &c->experts;
    x->router = a->router ? a->router : ROUTER_SOFTMAX;
    const uint32_t kind = config_u32_or_0(r, "expert_gating_func", UINT32_MAX);
    if (kind > ROUTER_SOFTMAX_OF_CHOSEN) config_refuse(r, "expert_gating_func", 0);
    if (kind) x->router = (router_kind)kind;
    x->select_bias = a->select_bias && has_tensor(r, c, "exp_probs_b.bias");
    /* Files of DeepSeek-V3's kind that do not say how: a bias to choose by goes with sigmoids. */
    if (!kind && !a->router && x->select_bias) x->router = ROUTER_SIGMOID;
    x->normed = config_bool(r, "expert_weights_norm", !a->raw_weights);
    if (x->router == ROUTER_SOFTMAX_OF_CHOSEN) x->normed = true;
    x->scale = config_f32_or_0(r, "expert_weights_scale", 1);
    if (x->scale == 0) x->scale = 1; /* 0 is how files say none */
    x->groups = config_u32(r, "expert_group_count", 1, x->count);
    x->groups_used = config_u32(r, "expert_group_used_count", x->groups, x->groups);
    if (r->status == RAD_OK &&
        (x->count % x->groups || (x->groups > 1 && x->count / x->groups < 2) ||
         x->count / x->groups * x->groups_used < x->used))
        r->status = rad_fail(r->err, RAD_E_FORMAT,
                             "model: %u of %u experts out of %u of %u groups (%s)", x->used,
                             x->count, x->groups_used, x->groups, r->arch);
}

static void read_shared(config_reader *r, model_config *c)
{
    static const char key[] = "expert_shared_feed_forward_length";
    if (c->arch->shared == SHARED_NEVER) {
        config_refuse(r, key, 0);
        config_refuse(r, "expert_shared_count", 0);
    } else if (c->arch->shared == SHARED_COUNT) {
        const uint32_t one = config_u32(r, key, c->experts.dim, MOST_FFN);
        const uint32_t count = config_u32_or_0(r, "expert_shared_count", MOST_EXPERTS);
        if (r->status == RAD_OK && (uint64_t)count * one > MOST_FFN)
            r->status = config_misfit(r, "fewer");
        c->experts.shared_dim = count * one;
    } else if (c->arch->shared == SHARED_MAYBE) {
        c->experts.shared_dim = config_u32_or_0(r, key, MOST_FFN);
    } else {
        c->experts.shared_dim = config_u32(r, key, c->layers[0].ffn_dim, MOST_FFN);
    }
}

void config_read_experts(config_reader *r, model_config *c)
{
    experts_config *x = &c->experts;
    const model_arch *a = c->arch;
    if (a->experts == EXPERTS_ALWAYS)
        x->count = config_u32(r, "expert_count", 0, MOST_EXPERTS);
    else if (a->experts == EXPERTS_MAYBE)
        x->count = config_u32_or_0(r, "expert_count", MOST_EXPERTS);
    if (!x->count || r->status != RAD_OK) return;
    x->used = config_u32(r, "expert_used_count", 0, x->count);
    if (r->status != RAD_OK) return;
    const uint32_t ffn = c->layers[0].ffn_dim;
    const uint32_t absent = a->ffn_of_all ? RAD_MAX(ffn / x->used, 1u) : ffn;
    x->dim = config_u32(r, "expert_feed_forward_length", absent, MOST_FFN);
    read_router(r, c);
    read_shared(r, c);
    x->pairs = a->experts_beside && has_tensor(r, c, "ffn_gate_up_exps.weight");
    x->scaled = a->experts_beside && has_tensor(r, c, "ffn_down_exps.scale");
    const uint32_t dense = config_u32_or_0(r, "leading_dense_block_count", c->num_layers);
    const uint32_t step = config_u32(r, "interleave_moe_layer_step", 1, MODEL_MOST_LAYERS);
    for (uint32_t i = dense; i < c->num_layers; i++)
        c->layers[i].experts = r->status == RAD_OK && (i + 1) % step == 0 && !c->layers[i].no_ffn;
}
