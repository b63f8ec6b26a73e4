/* config_nextn.c - the head that predicts a further token: whether the file's is one that we can
 * use, and its layer, which is as the last one with attention. */
#include "base/base.h"
#include "model/tensor_rows.h"
#include "model/tensors.h"

#include <stdio.h>
#include <string.h>

static bool has(const gguf_file *file, uint32_t layer, const char *which)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", layer, which);
    return gguf_find_tensor(file, name);
}

/* What tensor_find says, behind the "model: " that it begins with. */
static const char *tensor_words(const rad_error *err)
{
    static const char begin[] = "model: ";
    const size_t len = sizeof begin - 1;
    return strncmp(err->text, begin, len) ? err->text : err->text + len;
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

/* Whether the file has this tensor as weights.c is going to look for it. */
static rad_status check_tensor(const gguf_file *file, const model_config *c, const layer_config *l,
                               const tensor_def *def, rad_error *err)
{
    const uint32_t count = tensor_size_of(c, l, def->count);
    const uint32_t cols = tensor_size_of(c, l, def->cols);
    const bool matrices = def->form == TENSOR_MATRICES;
    const uint32_t rows = !tensor_is_vector(def->form) ? tensor_size_of(c, l, def->rows)
                          : def->form == TENSOR_VECTOR ? 1
                                                       : count;
    const gguf_tensor *found;
    return tensor_find_many(file, tensor_name_of(c->num_layers, def).text, matrices ? count : 1,
                            rows, cols, &found, err);
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
                        "model: the head that predicts a further token (layer %u) is left out: it "
                        "has experts, and %s.expert_count is 0",
                        c->num_layers, c->arch->name);
    for (uint32_t r = 0; r < num_tensor_defs; r++) {
        rad_error why = {0};
        if (!(set & tensor_defs[r].when) ||
            check_tensor(file, c, &l, &tensor_defs[r], &why) == RAD_OK)
            continue;
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "model: the head that predicts a further token (layer %u) is left out: %s",
                        c->num_layers, tensor_words(&why));
    }
    c->layers[c->num_layers] = l;
    c->num_nextn = 1;
    c->num_skipped--;
    return RAD_OK;
}
