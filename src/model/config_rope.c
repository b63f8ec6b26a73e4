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

static rad_status choose_divisors(config_reader *r, uint32_t context, model_config *c)
{
    static const char long_name[] = "rope_factors_long.weight",
                      short_name[] = "rope_factors_short.weight";
    bool has_long = has_tensor(r, long_name), has_short = has_tensor(r, short_name);
    if (has_tensor(r, "rope_freqs.weight")) {
        if (has_long || has_short)
            return rad_fail(r->err, RAD_E_FORMAT,
                            "model: rope_freqs.weight and rope_factors_*.weight in one file");
        c->scaling.divisors = "rope_freqs.weight";
    }
    if (!has_long && !has_short) return RAD_OK;
    if (!has_long || !has_short)
        return rad_fail(r->err, RAD_E_FORMAT, "model: tensor %s is missing",
                        has_long ? short_name : long_name);
    if (!context) context = c->context_length;
    c->scaling.divisors = context > c->scaling.original_context ? long_name : short_name;
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

static void read_yarn(config_reader *r, const model_config *c, rope_scaling *s)
{
    s->ext_factor = config_f32_or_0(r, "rope.scaling.yarn_ext_factor", 1);
    s->beta_fast = config_f32(r, "rope.scaling.yarn_beta_fast", 32);
    s->beta_slow = config_f32(r, "rope.scaling.yarn_beta_slow", 1);
    if (s->factor < 1 && r->status == RAD_OK)
        r->status = rad_fail(r->err, RAD_E_FORMAT, "model: YaRN shrinks the context by %g (%s)",
                             (double)s->factor, r->arch);
    if (!(c->rope_base > 1) && r->status == RAD_OK) /* all rotations turn alike: none is slow */
        r->status = rad_fail(r->err, RAD_E_FORMAT, "model: YaRN with a base of %g (%s)",
                             (double)c->rope_base, r->arch);
    /* The paper's temperature: sqrt(1/t) = 0.1 ln(s) + 1, for q and for k. */
    if (s->ext_factor > 0) s->magnitude *= 1 + 0.1f * logf(s->factor);
}

rad_status config_read_rope(config_reader *r, uint32_t context, model_config *c)
{
    rope_scaling *s = &c->scaling;
    bool none = false, longrope = false, yarn = false;
    rad_status status = read_type(r, &none, &longrope, &yarn);
    if (status != RAD_OK) return status;
    config_refuse(r, "rope.scaling.yarn_log_multiplier", 0);
    config_refuse(r, "rope.scaling.alpha", 0);
    config_refuse(r, "rope.dimension_sections", NAN);

    c->rope_base = config_f32(r, "rope.freq_base", 10000.0f);
    s->original_context =
        config_u32(r, "rope.scaling.original_context_length", c->context_length, INT32_MAX);
    s->factor = read_factor(r);
    s->magnitude = config_f32(r, "rope.scaling.attn_factor", 1) *
                   config_f32(r, "rope.scaling.yarn_attn_factor", 1);
    if (none) s->factor = 1;
    s->yarn = yarn;
    if (yarn) read_yarn(r, c, s);
    if (r->status != RAD_OK) return r->status;

    if (longrope && s->factor != 1)
        return rad_fail(r->err, RAD_E_UNSUPPORTED,
                        "model: longrope with a factor of %g (%s.rope.scaling.factor) is not "
                        "supported",
                        (double)s->factor, r->arch);
    status = choose_divisors(r, context, c);
    if (status == RAD_OK && longrope && !s->divisors)
        return rad_fail(r->err, RAD_E_FORMAT,
                        "model: longrope, but tensor rope_factors_long.weight is missing");
    return status;
}
