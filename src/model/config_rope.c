/* config_rope.c - what a file says about RoPE, in the ways GGUF has for it.
 *
 *     rope.scaling.type     none, linear, yarn, longrope; absent: linear
 *     rope.scaling.factor   how far the context was stretched; rope.scale_linear in old files
 *     rope_freqs.weight     a divisor for each rotation (Llama 3 comes like this)
 *     rope_factors_long.weight, rope_factors_short.weight   two such lists (longrope): one
 *                           for contexts past the original one, one for those up to it
 *     rope.scaling.attn_factor, .yarn_attn_factor   what rotated vectors are multiplied by
 *
 * longrope's choice is made once, by the context in force, not request by request: K that
 * lies in the cache was rotated with one list, and a longer request must be able to use it. */
#include "base/base.h"
#include "model/config_reader.h"

#include <math.h>

static bool has_tensor(const config_reader *r, const char *name)
{
    return gguf_find_tensor(r->file, name) != NULL;
}

static rad_status choose_divisors(config_reader *r, uint32_t context, const model_config *c,
                                  rope_scaling *s)
{
    static const char long_name[] = "rope_factors_long.weight",
                      short_name[] = "rope_factors_short.weight";
    bool has_long = has_tensor(r, long_name), has_short = has_tensor(r, short_name);
    if (has_tensor(r, "rope_freqs.weight")) {
        if (has_long || has_short)
            return rad_fail(r->err, RAD_E_FORMAT,
                            "model: rope_freqs.weight and rope_factors_*.weight in one file");
        s->divisors = "rope_freqs.weight";
    }
    if (!has_long && !has_short) return RAD_OK;
    if (!has_long || !has_short)
        return rad_fail(r->err, RAD_E_FORMAT, "model: tensor %s is missing",
                        has_long ? short_name : long_name);
    if (!context) context = c->context_length;
    s->divisors = context > s->original_context ? long_name : short_name;
    return RAD_OK;
}

/* Only "longrope" without its tensors would be a model we cannot run. */
static rad_status read_type(config_reader *r, bool *none, bool *longrope, bool *yarn)
{
    gguf_str type = {0};
    config_key(r, "rope.scaling.type");
    rad_status status = gguf_get_str(r->file, r->key, &type, r->err);
    if (status == RAD_NONE) return RAD_OK;
    if (status != RAD_OK) return status;
    *none = config_str_is(type, "none");
    *longrope = config_str_is(type, "longrope");
    *yarn = config_str_is(type, "yarn");
    if (*none || *longrope || *yarn || config_str_is(type, "linear")) return RAD_OK;
    return rad_fail(r->err, RAD_E_UNSUPPORTED,
                    "model: RoPE scaling \"%s\" (%s) is not supported (these are: none, linear, "
                    "yarn, longrope)",
                    gguf_show(type).text, r->key);
}

static float read_factor(config_reader *r)
{
    float factor = config_f32_or_0(r, "rope.scaling.factor", 0);
    if (!factor) factor = config_f32_or_0(r, "rope.scale_linear", 0);
    return factor ? factor : 1;
}

/* The paper's temperature: sqrt(1/t) = 0.1 ln(s) + 1, for q and for k. DeepSeek's variant of it
 * multiplies the logarithm. */
static float temperature(float factor, float log_multiplier)
{
    return factor > 1 ? 1 + 0.1f * log_multiplier * logf(factor) : 1;
}

static void read_yarn(config_reader *r, const model_arch *arch, float base, rope_scaling *s)
{
    s->ext_factor = config_f32_or_0(r, "rope.scaling.yarn_ext_factor", 1);
    s->beta_fast = config_f32(r, "rope.scaling.yarn_beta_fast", 32);
    s->beta_slow = config_f32(r, "rope.scaling.yarn_beta_slow", 1);
    if (s->factor < 1 && r->status == RAD_OK)
        r->status = rad_fail(r->err, RAD_E_FORMAT, "model: YaRN shrinks the context by %g (%s)",
                             (double)s->factor, r->arch);
    if (!(base > 1) && r->status == RAD_OK) /* all rotations turn alike: none is slow */
        r->status = rad_fail(r->err, RAD_E_FORMAT, "model: YaRN with a base of %g (%s)",
                             (double)base, r->arch);
    /* With a multiplier the temperature is in the scale of attention instead. */
    float multiplier = config_f32_or_0(r, "rope.scaling.yarn_log_multiplier", 0);
    if (s->ext_factor > 0) s->magnitude *= temperature(s->factor, 1);
    if (s->ext_factor > 0 && multiplier > 0)
        s->magnitude /= temperature(s->factor, arch->latent ? 1 : multiplier);
}

/* Multi-axis RoPE turns some rotations by a picture's row or column instead of the position. A
 * text's three numbers are one, so it is plain RoPE, if every rotation belongs to an axis. */
static rad_status check_sections(config_reader *r, const model_config *c)
{
    if (!c->arch->rope_sections) {
        config_refuse(r, "rope.dimension_sections", NAN);
        return r->status;
    }
    config_key(r, "rope.dimension_sections");
    const gguf_kv *kv = gguf_find_kv(r->file, r->key);
    if (!kv) return r->status;
    if (kv->type != GGUF_ARR || (kv->arr.type != GGUF_I32 && kv->arr.type != GGUF_U32))
        return config_misfit(r, "an array of integers");
    int64_t covered = 0;
    for (uint64_t i = 0; i < RAD_MIN(kv->arr.count, (uint64_t)4); i++)
        covered += gguf_arr_i32(&kv->arr, i);
    if (covered < (int64_t)c->rope_dim / 2)
        return rad_fail(r->err, RAD_E_UNSUPPORTED,
                        "model: key %s covers %lld of %u rotations, which is not supported", r->key,
                        (long long)covered, c->rope_dim / 2);
    return r->status;
}

static void read_window_rope(config_reader *r, model_config *c)
{
    c->num_ropes = 1;
    c->ropes[0].dim = c->ropes[1].dim = c->rope_dim;
    if (c->arch->window_rope == WINDOW_ROPE_SAME) return;
    for (uint32_t i = 0; i < c->num_layers; i++)
        if (c->layers[i].rope == 1) c->num_ropes = 2;
    if (c->num_ropes == 1) return;
    const float absent = c->arch->window_rope == WINDOW_ROPE_OWN_BASE ? 10000 : c->ropes[0].base;
    c->ropes[1].base = config_f32(r, "rope.freq_base_swa", absent);
    c->ropes[1].scaling = (rope_scaling){.factor = 1, .magnitude = 1};
    const layer_config *slides = config_attention_of(c, true),
                       *full = config_attention_of(c, false);
    if (!c->arch->window_heads || !slides) return;
    /* Where all slide rope_dim is of heads that no layer has. */
    const bool alike = full ? slides->head_dim == full->head_dim : c->rope_dim <= slides->head_dim;
    const uint32_t width = alike ? c->rope_dim : slides->head_dim / 2 * 2;
    const uint32_t dim = c->ropes[1].dim =
        config_u32(r, "rope.dimension_count_swa", RAD_MAX(width, 2u), slides->head_dim);
    if (r->status == RAD_OK && dim % 2) r->status = config_misfit(r, "an even number");
    c->rope_dim = RAD_MAX(c->rope_dim, dim);
}

/* Heads are rotated by a layer's table, whose width another layer's heads may have given. */
static rad_status check_turns(const config_reader *r, const model_config *c)
{
    for (uint32_t i = 0; i < c->num_layers; i++) {
        const layer_config *l = &c->layers[i];
        if (!l->num_kv_heads || l->rope == ROPE_NONE || c->ropes[l->rope].dim <= l->head_dim)
            continue;
        return rad_fail(r->err, RAD_E_FORMAT,
                        "model: RoPE turns %u numbers of a head, but layer %u has heads of %u (%s)",
                        c->ropes[l->rope].dim, i, l->head_dim, r->arch);
    }
    return RAD_OK;
}

rad_status config_read_rope(config_reader *r, uint32_t context, model_config *c)
{
    rope_scaling *s = &c->ropes[0].scaling;
    bool none = false, longrope = false, yarn = false;
    rad_status status = read_type(r, &none, &longrope, &yarn);
    if (status != RAD_OK) return status;
    if (!c->arch->q_temperature && !c->arch->latent)
        config_refuse(r, "rope.scaling.yarn_log_multiplier", 0);
    config_refuse(r, "rope.scaling.alpha", 0);
    status = check_sections(r, c);
    if (status != RAD_OK) return status;

    c->ropes[0].base = config_f32(r, "rope.freq_base", 10000.0f);
    s->original_context =
        config_u32(r, "rope.scaling.original_context_length", c->context_length, INT32_MAX);
    s->factor = read_factor(r);
    s->magnitude = config_f32(r, "rope.scaling.attn_factor", 1) *
                   config_f32(r, "rope.scaling.yarn_attn_factor", 1);
    if (none) s->factor = 1;
    s->yarn = yarn;
    if (yarn) read_yarn(r, c->arch, c->ropes[0].base, s);
    if (r->status != RAD_OK) return r->status;

    if (longrope && s->factor != 1)
        return rad_fail(r->err, RAD_E_UNSUPPORTED,
                        "model: longrope with a factor of %g (%s.rope.scaling.factor) is not "
                        "supported",
                        (double)s->factor, r->arch);
    status = choose_divisors(r, context, c, s);
    if (status == RAD_OK && longrope && !s->divisors)
        return rad_fail(r->err, RAD_E_FORMAT,
                        "model: longrope, but tensor rope_factors_long.weight is missing");
    read_window_rope(r, c);
    if (status == RAD_OK) status = r->status;
    return status == RAD_OK ? check_turns(r, c) : status;
}
