/* config_latent.c - multi-head latent attention (DeepSeek-V2's paper), in the form whose K and V
 * are one latent row a token: attn_k_b takes q to the latent's space and attn_v_b what was attended
 * to out of it, so that attention itself sees one KV head. */
#include "base/base.h"
#include "model/config_reader.h"

#include <math.h>

enum { MOST_RANK = 1 << 16 };

rad_status config_read_latent(config_reader *r, model_config *c)
{
    latent_config *x = &c->latent;
    const uint32_t key = config_u32(r, "attention.key_length_mla", 0, MOST_RANK);
    x->value = config_u32(r, "attention.value_length_mla", 0, MOST_RANK);
    x->q_rank = config_u32_or_0(r, "attention.q_lora_rank", MOST_RANK);
    x->kv_rank = config_u32(r, "attention.kv_lora_rank", 0, MOST_RANK);
    if (r->status != RAD_OK) return r->status;
    for (uint32_t i = 0; i < c->num_layers; i++) {
        layer_config *l = &c->layers[i];
        if (l->num_kv_heads != 1 || l->head_dim != x->kv_rank + c->rope_dim ||
            l->v_head_dim != x->kv_rank)
            return rad_fail(r->err, RAD_E_FORMAT,
                            "model: %u KV heads of %u and %u (%s.attention.key_length, "
                            "value_length), expected 1 of %u and %u",
                            l->num_kv_heads, l->head_dim, l->v_head_dim, r->arch,
                            x->kv_rank + c->rope_dim, x->kv_rank);
        l->mixer = MIXER_LATENT;
    }
    if (key <= c->rope_dim)
        return rad_fail(r->err, RAD_E_FORMAT,
                        "model: key %s.attention.key_length_mla is %u, expected more than %u",
                        r->arch, key, c->rope_dim);
    x->plain = key - c->rope_dim;
    return RAD_OK;
}

/* YaRN's temperature is not in what is rotated, which is a part of a head only, but in the scale of
 * all: its multiplier stands in the file times 0.1. Without one it is in both, as others have it.
 */
float config_latent_scale(config_reader *r, const model_config *c)
{
    const rope_scaling *s = &c->ropes[0].scaling;
    const float key = (float)(c->latent.plain + c->rope_dim);
    if (!s->yarn || s->factor <= 1 || !(s->ext_factor > 0)) return 1 / sqrtf(key);
    const float by = config_f32_or_0(r, "rope.scaling.yarn_log_multiplier", 0);
    const float temperature = 1 + (by > 0 ? by : 0.1f) * logf(s->factor);
    return temperature * temperature / sqrtf(key);
}
