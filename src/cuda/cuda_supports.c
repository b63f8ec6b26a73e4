/* cuda_supports.c - which models the GPU runner has kernels for. The others are refused by the name
 * of what is missing, before anything is loaded. */
#include "cuda/attention_plan.h"
#include "cuda/cuda_layout.h"
#include "cuda/cuda_state.h"
#include "cuda/kernels/experts_args.h"
#include "mem/kv_codec.h"
#include "model/weights.h"

static rad_status lacks(const model_config *c, const char *what, rad_error *err)
{
    return rad_fail(err, RAD_E_UNSUPPORTED,
                    "cuda: %s has %s, for which there are no kernels yet; --device cpu runs it",
                    c->arch->name, what);
}

static rad_status layer_supported(const model_config *c, const layer_config *l, rad_error *err)
{
    const layer_config *first = &c->layers[0];
    const struct {
        bool lacking;
        const char *what;
    } features[] = {
        {l->mixer == MIXER_LATENT, "latent attention (MLA)"},
        {layer_is_recurrent(l), "recurrent layers"},
        {l->mixer == MIXER_NONE || l->no_ffn, "layers of one block"},
        {l->experts && c->experts.count > EXPERTS_MOST, "more than 256 experts"},
        {l->experts && c->experts.used > EXPERTS_MOST_USED, "tokens that use more than 32 experts"},
        {l->experts && c->arch->experts_beside, "mixtures of experts beside dense blocks"},
        {l->experts && c->arch->ffn == FFN_GEGLU, "experts with GELU"},
        {l->gated, "gated attention"},
        {l->shares_kv || l->v_is_k, "layers without K or V of their own"},
        {l->scaled, "scaled layers"},
        {l->head_dim != l->v_head_dim, "heads of V that are not as wide as those of K"},
        {l->head_dim != first->head_dim || l->num_heads != first->num_heads ||
             l->num_kv_heads != first->num_kv_heads,
         "layers with other heads than the first"},
    };
    for (size_t i = 0; i < RAD_COUNT(features); i++)
        if (features[i].lacking) return lacks(c, features[i].what, err);
    if (cuda_attention_kernel(l->head_dim, ATTN_KV_BF16)) return RAD_OK;
    return rad_fail(err, RAD_E_UNSUPPORTED,
                    "cuda: %s has heads of %u numbers; there are kernels for 16, 32, 64, 96, 128 "
                    "and 256; --device cpu runs it",
                    c->arch->name, l->head_dim);
}

rad_status cuda_config_supported(const model_config *c, rad_error *err)
{
    const model_arch *a = c->arch;
    const struct {
        bool lacking;
        const char *what;
    } features[] = {
        {a->ffn == FFN_RELU2, "feed-forward blocks without gates"},
        {a->v_norm, "norms of V"},
        {c->layer_embd > 0, "second embeddings"},
        {c->dim > ADD_NORM_WIDE_DIM, "rows of more than 16384 numbers"},
    };
    for (size_t i = 0; i < RAD_COUNT(features); i++)
        if (features[i].lacking) return lacks(c, features[i].what, err);
    for (uint32_t i = 0; i < c->num_layers; i++) {
        rad_status status = layer_supported(c, &c->layers[i], err);
        if (status != RAD_OK) return status;
    }
    return RAD_OK;
}

static rad_status check_tensors(void *user, const cuda_field *f, rad_error *err)
{
    const gguf_tensor *tensors[CUDA_MOST_PARTS];
    return cuda_field_tensors(user, f, tensors, err);
}

rad_status cuda_params_supported(const cuda_runner_params *p, rad_error *err)
{
    if (p->model.dtype != RAD_BF16)
        return rad_fail(
            err, RAD_E_UNSUPPORTED,
            "cuda: a GPU computes with weights of bf16 or quantised ones; --device cpu has f32");
    const rad_dtype kv = cuda_kv_dtype(p);
    if (kv == RAD_BF16 || kv_dtype_is_fp8(kv)) return RAD_OK;
    return rad_fail(err, RAD_E_UNSUPPORTED,
                    "cuda: a GPU stores K and V as bf16, fp8_e4m3 or fp8_e5m2, not as %s; "
                    "--device cpu does",
                    kv_dtype_name(kv));
}

rad_status cuda_runner_read(const gguf_file *file, const cuda_runner_params *params,
                            model_config *out, rad_error *err)
{
    cuda_layout layout;
    rad_status status = cuda_params_supported(params, err);
    if (status == RAD_OK) status = model_config_read(file, params->model.context_length, out, err);
    if (status == RAD_OK) status = cuda_config_supported(out, err);
    if (status == RAD_OK) status = model_tensors_check(file, out, err);
    const rad_env env = rad_env_or_default(NULL);
    if (status == RAD_OK)
        status = cuda_layout_init(&env, out, file, params->model.weights, 1, &layout, err);
    if (status != RAD_OK) return status;
    /* The cast: the visitor only reads. */
    status = cuda_layout_visit(out, &layout, check_tensors, (void *)(uintptr_t)file, err);
    cuda_layout_fini(&env, out, &layout);
    return status;
}

rad_status cuda_runner_supports(const gguf_file *file, const cuda_runner_params *params,
                                rad_error *err)
{
    model_config config;
    return cuda_runner_read(file, params, &config, err);
}
