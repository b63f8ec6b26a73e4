/* config_describe.c - what sets a model apart, in words. */
#include "base/base.h"
#include "model/config.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct words {
    char *text;
    size_t room, len;
} words;

__attribute__((format(printf, 2, 3))) static void say(words *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(w->text + w->len, w->room - w->len, format, args);
    va_end(args);
    if (n > 0) w->len = RAD_MIN(w->len + (size_t)n, w->room - 1);
}

static void describe_scaling(words *w, const rope_config *r)
{
    const rope_scaling *s = &r->scaling;
    say(w, ", base %g", (double)r->base);
    if (s->yarn)
        say(w, ", YaRN x%g from %u", (double)s->factor, s->original_context);
    else if (s->factor != 1)
        say(w, ", linear x%g", (double)s->factor);
    if (s->divisors) say(w, ", divisors %s", s->divisors);
    if (s->magnitude != 1) say(w, ", magnitude %.6g", (double)s->magnitude);
}

/* How much of a head the table turns; where no layer turns by it, of the first head there is. */
static void describe_turns(words *w, const model_config *c, uint32_t rope)
{
    const layer_config *l = config_attention(c);
    for (uint32_t i = c->num_layers; i--;)
        if (c->layers[i].num_kv_heads && c->layers[i].rope == rope) l = &c->layers[i];
    say(w, "%u of %u", c->ropes[rope].dim, l->head_dim);
}

static void describe_rope(words *w, const model_config *c)
{
    uint32_t without = 0;
    for (uint32_t i = 0; i < c->num_layers; i++)
        without += c->layers[i].num_kv_heads && c->layers[i].rope == ROPE_NONE;
    if (without == c->num_attention) {
        say(w, "no RoPE");
        return;
    }
    say(w, "%s RoPE over ", c->arch->rope == ROPE_NEOX ? "NEOX" : "interleaved");
    describe_turns(w, c, 0);
    describe_scaling(w, &c->ropes[0]);
    if (c->num_ropes > 1) {
        say(w, " (sliding layers");
        if (c->arch->window_heads) {
            say(w, " over ");
            describe_turns(w, c, 1);
        }
        describe_scaling(w, &c->ropes[1]);
        say(w, ")");
    }
    if (without) say(w, "; no RoPE in %u of %u layers", without, c->num_attention);
}

static void describe_window(words *w, const model_config *c)
{
    uint32_t sliding = 0; /* those that read others' K/V, too */
    bool even = true;
    for (uint32_t i = 0; i < c->num_layers; i++) {
        sliding += c->layers[i].window > 0;
        even = even && (c->layers[i].window > 0) == (i % 2 == 0);
    }
    say(w, "; sliding window of %u in ", c->sliding_window);
    if (sliding == c->num_layers)
        say(w, "all layers");
    else if (even)
        say(w, "even layers");
    else
        say(w, "%u of %u layers", sliding, c->num_layers);
}

static void describe_recurrent(words *w, const model_config *c)
{
    const recurrent_config *x = &c->recurrent;
    say(w, "; %s in %u of %u layers",
        c->arch->recurrent == MIXER_DELTA   ? "gated delta rule"
        : c->arch->recurrent == MIXER_MAMBA ? "Mamba 2"
                                            : "short convolution",
        c->num_recurrent, c->num_layers);
    if (x->heads) say(w, ", %u heads of %u x %u", x->heads, x->key, x->value);
    say(w, ", %u taps", x->taps);
}

static void describe_experts(words *w, const experts_config *e)
{
    say(w, "; %u of %u experts of %u a token", e->used, e->count, e->dim);
    if (e->router == ROUTER_SIGMOID) say(w, ", sigmoid router");
    if (e->shared_dim) say(w, ", a shared one of %u", e->shared_dim);
}

void model_config_describe(const model_config *c, char *text, size_t room)
{
    if (!room) return;
    words w = {.text = text, .room = room};
    const model_arch *a = c->arch;
    text[0] = 0;
    describe_rope(&w, c);
    say(&w, "; %s",
        a->ffn == FFN_GEGLU            ? "GEGLU"
        : a->ffn == FFN_RELU2          ? "squared ReLU"
        : a->ffn == FFN_SWIGLU_CLAMPED ? "SwiGLU with limits"
                                       : "SwiGLU");
    if (c->state_floats) describe_recurrent(&w, c);
    if (c->latent.kv_rank)
        say(&w, "; latent attention of %u + %u for heads of %u and %u", c->latent.kv_rank,
            c->rope_dim, c->latent.plain + c->rope_dim, c->latent.value);
    if (c->experts.count) describe_experts(&w, &c->experts);
    if (a->qkv_bias) say(&w, "; q/k/v biases");
    if (a->biases) say(&w, "; biases");
    if (a->gated_attention) say(&w, "; gated attention");
    if (a->sinks) say(&w, "; attention sinks");
    if (a->qk_norm) say(&w, "; q/k norms%s", a->qk_norm == QK_NORM_ROW ? " over all heads" : "");
    if (a->fused_qkv) say(&w, "; fused q/k/v%s", a->fused_ffn ? " and gate/up" : "");
    if (a->post_norms) say(&w, "; %spost-norms", a->no_pre_norms ? "only " : "");
    if (a->scale_embedding) say(&w, "; embedding x sqrt(dim)");
    if (a->v_norm) say(&w, "; V norms");
    if (c->layer_embd) say(&w, "; %u numbers of the token for each layer", c->layer_embd);
    if (a->scales)
        say(&w, "; embedding x %g, residual x %g, logits / %g", (double)c->embedding_scale,
            (double)c->residual_scale, (double)c->logit_scale);
    if (c->q_temperature > 0)
        say(&w, "; queries grow by %g ln of every %u positions", (double)c->q_temperature,
            c->q_period);
    if (c->attn_logit_cap > 0) say(&w, "; scores capped at %g", (double)c->attn_logit_cap);
    if (c->final_logit_cap > 0) say(&w, "; logits capped at %g", (double)c->final_logit_cap);
    if (c->sliding_window) describe_window(&w, c);
    if (c->arch->shared_kv && c->num_attention < c->num_layers)
        say(&w, "; %u layers read others' K/V", c->num_layers - c->num_attention);
    if (c->tied) say(&w, "; tied embedding");
    if (c->num_skipped)
        say(&w, "; %u layer%s of next-token prediction left out", c->num_skipped,
            c->num_skipped > 1 ? "s" : "");
}
