/* config_arch.c - the architectures: a row each, in which what it does unlike the first. */
#include "base/base.h"
#include "model/config_reader.h"

#include <stdio.h>

static const model_arch archs[] = {
    {.name = "llama", /* Mistral has a window, Mixtral experts */
     .rope = ROPE_INTERLEAVED,
     .window = WINDOW_ALL,
     .experts = EXPERTS_MAYBE},
    {.name = "qwen2", .rope = ROPE_NEOX, .qkv_bias = true},
    {.name = "qwen3", .rope = ROPE_NEOX, .qk_norm = QK_NORM_HEAD},
    {.name = "phi3", .rope = ROPE_NEOX, .window = WINDOW_ALL, .fused = true},
    {.name = "gemma2",
     .rope = ROPE_NEOX,
     .ffn = FFN_GEGLU,
     .window = WINDOW_BUT_LAST,
     .window_period = 2,
     .window_absent = 4096,
     .post_norms = true,
     .scale_embedding = true,
     .logit_caps = true,
     .layers_of_dim = 46},
    {.name = "gemma3",
     .rope = ROPE_NEOX,
     .ffn = FFN_GEGLU,
     .window = WINDOW_BUT_LAST,
     .window_period = 6,
     .window_rope = WINDOW_ROPE_OWN_BASE,
     .qk_norm = QK_NORM_HEAD,
     .post_norms = true,
     .scale_embedding = true,
     .layers_of_dim = 62},
    {.name = "deepseek2",
     .rope = ROPE_INTERLEAVED,
     .latent = true,
     .experts = EXPERTS_MAYBE,
     .raw_weights = true,
     .shared = SHARED_COUNT,
     .select_bias = true},
    {.name = "gpt-oss",
     .rope = ROPE_NEOX,
     .ffn = FFN_SWIGLU_CLAMPED,
     .window = WINDOW_BUT_LAST,
     .window_period = 2,
     .biases = true,
     .sinks = true,
     .late_ffn_norm = true,
     .experts = EXPERTS_ALWAYS,
     .router = ROUTER_SOFTMAX_OF_CHOSEN},
    {.name = "granite", .rope = ROPE_INTERLEAVED, .scales = true},
    {.name = "granitemoe",
     .rope = ROPE_INTERLEAVED,
     .scales = true,
     .experts = EXPERTS_ALWAYS,
     .shared = SHARED_MAYBE},
    {.name = "granitehybrid",
     .rope = ROPE_INTERLEAVED,
     .recurrent = MIXER_MAMBA,
     .scales = true,
     .experts = EXPERTS_MAYBE,
     .shared = SHARED_MAYBE},
    {.name = "lfm2",
     .rope = ROPE_NEOX,
     .recurrent = MIXER_CONV,
     .qk_norm = QK_NORM_HEAD,
     .last_norm = "token_embd_norm.weight"},
    {.name = "lfm2moe",
     .rope = ROPE_NEOX,
     .recurrent = MIXER_CONV,
     .qk_norm = QK_NORM_HEAD,
     .last_norm = "token_embd_norm.weight",
     .experts = EXPERTS_ALWAYS,
     .router = ROUTER_SIGMOID,
     .select_bias = true},
    {.name = "mistral3", .rope = ROPE_INTERLEAVED, .q_temperature = true},
    {.name = "olmo2", /* with a window it is OLMo 3 */
     .rope = ROPE_NEOX,
     .window = WINDOW_BUT_LAST,
     .window_period = 4,
     .window_rope = WINDOW_ROPE_PLAIN,
     .qk_norm = QK_NORM_ROW,
     .no_pre_norms = true,
     .post_norms = true},
    {.name = "olmoe",
     .rope = ROPE_NEOX,
     .qk_norm = QK_NORM_ROW,
     .experts = EXPERTS_ALWAYS,
     .raw_weights = true},
    {.name = "qwen2moe",
     .rope = ROPE_NEOX,
     .qkv_bias = true,
     .experts = EXPERTS_ALWAYS,
     .ffn_of_all = true,
     .raw_weights = true,
     .shared = SHARED_GATED},
    {.name = "qwen35",
     .rope = ROPE_NEOX,
     .recurrent = MIXER_DELTA,
     .attention_period = 4,
     .gated_attention = true,
     .qk_norm = QK_NORM_HEAD,
     .late_ffn_norm = true,
     .rope_sections = true},
    {.name = "qwen35moe",
     .rope = ROPE_NEOX,
     .recurrent = MIXER_DELTA,
     .attention_period = 4,
     .gated_attention = true,
     .qk_norm = QK_NORM_HEAD,
     .late_ffn_norm = true,
     .rope_sections = true,
     .experts = EXPERTS_ALWAYS,
     .shared = SHARED_GATED},
    {.name = "qwen3moe",
     .rope = ROPE_NEOX,
     .qk_norm = QK_NORM_HEAD,
     .experts = EXPERTS_ALWAYS,
     .ffn_of_all = true},
    {.name = "qwen3vl", .rope = ROPE_NEOX, .qk_norm = QK_NORM_HEAD, .rope_sections = true},
    {.name = "smollm3", .rope = ROPE_INTERLEAVED, .no_rope_period = 4},
};

rad_status config_find_arch(const gguf_file *file, const model_arch **out, rad_error *err)
{
    gguf_str name = {0};
    rad_status status = gguf_get_str(file, "general.architecture", &name, err);
    if (status == RAD_NONE)
        return rad_fail(err, RAD_E_FORMAT, "model: key general.architecture is missing");
    if (status != RAD_OK) return status;
    char known[400] = "";
    for (size_t i = 0; i < RAD_COUNT(archs); i++) {
        if (config_str_is(name, archs[i].name)) {
            *out = &archs[i];
            return RAD_OK;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", archs[i].name);
    }
    return rad_fail(err, RAD_E_UNSUPPORTED,
                    "model: architecture \"%s\" is not supported (these are: %s)",
                    gguf_show(name).text, known);
}
