/* config_nextn.c - the head that predicts a further token: whether the file's is one that we can
 * use, and its layer, which is as the last one with attention. */
#include "base/base.h"
#include "model/tensors.h"

#include <stdio.h>

static bool has(const gguf_file *file, uint32_t layer, const char *which)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", layer, which);
    return gguf_find_tensor(file, name);
}

static layer_config layer_of_head(const gguf_file *file, const model_config *c)
{
    uint32_t like = c->num_layers - 1;
    while (!c->layers[like].num_kv_heads)
        like--;
    layer_config l = c->layers[like];
    l.kv_layer = l.attn_layer = c->num_attention; /* there are no windows */
    l.experts = has(file, c->num_layers, "ffn_gate_inp.weight");
    l.guesses = true;
    l.own_last_norm = has(file, c->num_layers, "nextn.shared_head_norm.weight");
    return l;
}

rad_status model_config_use_nextn(const gguf_file *file, model_config *c, rad_error *err)
{
    if (!c->num_skipped || c->num_nextn) return RAD_NONE;
    if (!c->arch->nextn || c->sliding_window)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "model: heads that predict further tokens are not supported for %s%s",
                        c->arch->name, c->arch->nextn ? " with a window" : "");
    const layer_config l = layer_of_head(file, c);
    const tensor_when set = tensors_of_layer(c, &l);
    if (l.experts && !c->experts.count)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "model: the head that predicts a further token (layer %u) has experts, and "
                        "%s.expert_count is 0: it is left out",
                        c->num_layers, c->arch->name);
    for (uint32_t r = 0; r < num_tensor_defs; r++) {
        if (!(set & tensor_defs[r].when) || has(file, c->num_layers, tensor_defs[r].name)) continue;
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "model: the head that predicts a further token lacks tensor %s: it is left "
                        "out",
                        tensor_name_of(c->num_layers, &tensor_defs[r]).text);
    }
    c->layers[c->num_layers] = l;
    c->num_nextn = 1;
    c->num_skipped--;
    return RAD_OK;
}
