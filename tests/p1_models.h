/* p1_models.h - the tiny models that P1 is held on: of each kind of layer, one at least. */
#ifndef TESTS_P1_MODELS_H
#define TESTS_P1_MODELS_H

#include "test.h"
#include "tiny_models.h"

enum { CONTEXT = 320 }; /* of each of them */

static const tiny_model p1_llama = {.arch = "llama",
                                    .vocab = 300,
                                    .layers = 2,
                                    .dim = 64,
                                    .ffn = 96,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = 16,
                                    .v_head_dim = 16,
                                    .rope_dim = 16,
                                    .context = CONTEXT};
static const tiny_model p1_qwen3 = {.arch = "qwen3",
                                    .vocab = 200,
                                    .layers = 3,
                                    .dim = 64,
                                    .ffn = 128,
                                    .heads = 4,
                                    .kv_heads = 1,
                                    .head_dim = 32,
                                    .v_head_dim = 32,
                                    .rope_dim = 32,
                                    .context = CONTEXT,
                                    .tied = true};

/* What the small ones below agree in. */
#define P1_SMALL                                                                                   \
    .vocab = 200, .dim = 64, .ffn = 64, .head_dim = 16, .v_head_dim = 16, .rope_dim = 16,          \
    .context = CONTEXT
#define P1_HEADS   .heads = 4, .kv_heads = 2
#define P1_STATE   .taps = 4, .state_heads = 4, .state_groups = 2, .state_key = 16, .state_value = 16
#define P1_EXPERTS .experts = 6, .used = 2, .expert_ffn = 64

/* With layers that keep a state: delta rule, Mamba 2, short convolutions; then with experts, and
 * one whose layers are a block each. */
static const tiny_model p1_recurrent[] = {
    {.arch = "qwen35", P1_SMALL, P1_HEADS, P1_STATE, .layers = 4, .attention = 4},
    {.arch = "granitehybrid",
     P1_SMALL,
     P1_HEADS,
     P1_STATE,
     .layers = 3,
     .attention = 3,
     .embedding_scale = 2,
     .residual_scale = 0.5f,
     .logit_scale = 0.5f},
    {.arch = "lfm2", P1_SMALL, P1_HEADS, .layers = 3, .taps = 3, .attention = 3},
    {.arch = "qwen35moe",
     P1_SMALL,
     P1_HEADS,
     P1_STATE,
     P1_EXPERTS,
     .layers = 4,
     .attention = 4,
     .shared_ffn = 32},
    {.arch = "lfm2moe",
     P1_SMALL,
     P1_HEADS,
     P1_EXPERTS,
     .layers = 3,
     .taps = 3,
     .attention = 3,
     .dense = 1,
     .gating = 2},
    {.arch = "nemotron_h", P1_SMALL, P1_HEADS, P1_STATE, .layers = 3}};

static const tiny_model p1_moe = {.arch = "qwen3moe",
                                  .vocab = 200,
                                  .layers = 3,
                                  .dim = 64,
                                  .ffn = 96,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 16,
                                  .v_head_dim = 16,
                                  .rope_dim = 16,
                                  .context = CONTEXT,
                                  .experts = 9,
                                  .used = 3,
                                  .expert_ffn = 64};

/* Whose layers, all or some, see 40 or 70 tokens: Mistral, phi3, gemma2, gemma3, gpt-oss
 * with its sinks and experts, OLMo 3, gemma4 whose windows have wider heads and whose last layers
 * have no K/V. */
static const tiny_model p1_windowed[] = {
    {.arch = "llama",
     .vocab = 300,
     .layers = 2,
     .dim = 64,
     .ffn = 96,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 32,
     .v_head_dim = 32,
     .rope_dim = 32,
     .window = 40,
     .context = CONTEXT},
    {.arch = "phi3", P1_SMALL, .layers = 2, .heads = 4, .kv_heads = 4, .window = 70},
    {.arch = "gemma2",
     P1_SMALL,
     P1_HEADS,
     .layers = 3,
     .window = 70,
     .attn_cap = 5,
     .final_cap = 10,
     .tied = true},
    {.arch = "gemma3",
     P1_SMALL,
     .layers = 7,
     .heads = 2,
     .kv_heads = 1,
     .window = 40,
     .tied = true},
    {.arch = "gpt-oss",
     P1_SMALL,
     P1_HEADS,
     P1_EXPERTS,
     .layers = 4,
     .window = 40,
     .rope_type = "yarn",
     .rope_factor = 8,
     .original_context = 64},
    {.arch = "olmo2", P1_SMALL, .layers = 5, .heads = 4, .kv_heads = 4, .window = 70},
    {.arch = "gemma4",
     P1_SMALL,
     P1_HEADS,
     P1_EXPERTS,
     .layers = 6,
     .window = 40,
     .window_head_dim = 32,
     .window_kv_heads = 1,
     .shared_kv = 3,
     .layer_embd = 16,
     .v_is_k = true,
     .output_scale = true,
     .expert_scales = true,
     .tied = true}};

/* One latent row a token (MLA), experts in groups and one that all use. */
static const tiny_model p1_latent = {.arch = "deepseek2",
                                     .vocab = 200,
                                     .layers = 3,
                                     .dim = 64,
                                     .ffn = 96,
                                     .heads = 4,
                                     .kv_heads = 1,
                                     .head_dim = 48,
                                     .v_head_dim = 32,
                                     .rope_dim = 16,
                                     .context = CONTEXT,
                                     .q_rank = 40,
                                     .kv_rank = 32,
                                     .key = 40,
                                     .value = 24,
                                     .experts = 8,
                                     .used = 2,
                                     .expert_ffn = 64,
                                     .shared_experts = 1,
                                     .dense = 1,
                                     .groups = 4,
                                     .groups_used = 2,
                                     .gating = 2};

/* The writer is the caller's to end after the file. */
static inline gguf_file *p1_open(const tiny_model *m, tiny_writer *writer)
{
    uint64_t state = 5;
    return tiny_model_open(writer, m, &state);
}

#endif
