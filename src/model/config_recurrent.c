/* config_recurrent.c - sizes of layers that keep a state: the convolution before them and the
 * heads whose sums they are. */
#include "base/base.h"
#include "model/config_reader.h"

enum { MOST_STATE_HEADS = 4096, MOST_STATE_WIDTH = 4096, MOST_INNER = 1 << 24 };

/* Keys of delta rule and Mamba: heads are "time_step_rank", their values together "inner_size". */
static rad_status read_heads(config_reader *r, model_config *c)
{
    recurrent_config *x = &c->recurrent;
    x->taps = config_u32(r, "ssm.conv_kernel", 0, MOST_TAPS);
    x->key = config_u32(r, "ssm.state_size", 0, MOST_STATE_WIDTH);
    x->groups = config_u32(r, "ssm.group_count", 0, MOST_STATE_HEADS);
    x->heads = config_u32(r, "ssm.time_step_rank", 0, MOST_STATE_HEADS);
    const uint32_t inner = config_u32(r, "ssm.inner_size", 0, MOST_INNER);
    if (r->status != RAD_OK) return r->status;
    if (inner % x->heads || inner / x->heads > MOST_STATE_WIDTH || x->heads % x->groups ||
        inner % x->groups)
        return rad_fail(r->err, RAD_E_FORMAT,
                        "model: %u values (%s.ssm.inner_size) do not divide by %u heads "
                        "(ssm.time_step_rank) and %u groups (ssm.group_count)",
                        inner, r->arch, x->heads, x->groups);
    x->value = inner / x->heads;
    x->conv_dim = inner + 2 * x->groups * x->key;
    return RAD_OK;
}

static rad_status read_sizes(config_reader *r, model_config *c)
{
    if (c->arch->recurrent != MIXER_CONV) return read_heads(r, c);
    c->recurrent.taps = config_u32(r, "shortconv.l_cache", 0, MOST_TAPS);
    c->recurrent.conv_dim = c->dim;
    return r->status;
}

rad_status config_read_recurrent(config_reader *r, model_config *c)
{
    const recurrent_config *x = &c->recurrent;
    for (uint32_t i = 0; i < c->num_layers; i++)
        c->num_recurrent += layer_is_recurrent(&c->layers[i]);
    if (!c->num_recurrent) return RAD_OK;
    rad_status status = read_sizes(r, c);
    if (status != RAD_OK) return status;
    for (uint32_t i = 0; i < c->num_layers; i++) {
        layer_config *l = &c->layers[i];
        if (!layer_is_recurrent(l)) continue;
        l->state_at = c->state_floats;
        c->state_floats += state_conv_floats(x) + x->heads * state_head_floats(x);
    }
    /* One tap and no heads: nothing to remember, and a pool of nothing is none. */
    if (!c->state_floats)
        return rad_fail(r->err, RAD_E_UNSUPPORTED,
                        "model: %s.shortconv.l_cache = 1 is not supported", r->arch);
    return RAD_OK;
}
