/* engine_device.c - from --device to a GPU, or to the words why not. */
#include "engine/engine_device.h"

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rad_status engine_device_parse(const char *word, engine_device *out, rad_error *err)
{
    enum { MOST_GPUS = 1024 };
    *out = (engine_device){0};
    if (!word || !strcmp(word, "cpu")) return RAD_OK;
    out->kind = !strcmp(word, "auto") ? ENGINE_DEVICE_AUTO : ENGINE_DEVICE_CUDA;
    if (out->kind == ENGINE_DEVICE_AUTO || !strcmp(word, "cuda")) return RAD_OK;
    const bool numbered = !strncmp(word, "cuda:", 5) && word[5] >= '0' && word[5] <= '9';
    char *end = NULL;
    const unsigned long n = numbered ? strtoul(word + 5, &end, 10) : MOST_GPUS;
    if (n >= MOST_GPUS || *end)
        return rad_fail(err, RAD_E_INVAL,
                        "device is auto, cpu, cuda or cuda:N (the GPU's number), not '%.60s'",
                        word);
    out->ordinal = (uint32_t)n;
    return RAD_OK;
}

void engine_device_name(const cuda_gpu_info *gpu, char *name, size_t size)
{
    snprintf(name, size, "cpu");
    if (gpu) snprintf(name, size, "cuda:%u", gpu->ordinal);
}

const char *engine_gpu_words(const rad_error *err)
{
    static const char place[] = "cuda: "; /* that said it */
    const size_t len = sizeof place - 1;
    return strncmp(err->text, place, len) == 0 ? err->text + len : err->text;
}

rad_status engine_gpu_refuse(const char *word, rad_status status, const rad_error *why,
                             rad_error *err)
{
    return rad_fail(err, status, "device %.20s: %.470s", word, engine_gpu_words(why));
}

/* What is asked for by name and computed on the CPU alone. */
static rad_status refuse_wishes(const engine_gpu_wish *wish, rad_error *err)
{
    if (wish->attn_ref)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "the reference attention (attn-ref) is the CPU's alone");
    return RAD_OK;
}

rad_status engine_gpu_params(const gguf_file *file, const engine_gpu_wish *wish,
                             cuda_runner_params *params, rad_error *err)
{
    *params = (cuda_runner_params){.model = wish->model, .ordinal = wish->ordinal};
    params->model.attn = NULL;
    if (wish->dtype_by_device) params->model.dtype = RAD_BF16;
    if (!wish->model.set_kv_dtype) params->model.kv_dtype = params->model.dtype;
    rad_status status = refuse_wishes(wish, err);
    return status == RAD_OK ? cuda_runner_supports(file, params, err) : status;
}

rad_status engine_make_runner(const rad_env *env, const gguf_file *file, const char *word,
                              bool dtype_by_device, const model_runner_params *model, runner **out,
                              rad_error *err)
{
    engine_device device;
    cuda_gpu_info gpu;
    cuda_runner_params params;
    rad_error why = {0};
    *out = NULL;
    rad_status status = engine_device_parse(word, &device, err);
    if (status != RAD_OK) return status;
    if (device.kind == ENGINE_DEVICE_CPU) return model_runner_create(env, file, model, out, err);
    const engine_gpu_wish wish = {
        .ordinal = device.ordinal, .dtype_by_device = dtype_by_device, .model = *model};
    status = cuda_gpu_look(NULL, device.ordinal, &gpu, &why);
    if (status == RAD_OK) status = engine_gpu_params(file, &wish, &params, &why);
    if (status == RAD_OK) status = cuda_runner_create(env, file, &params, out, &why);
    if (status == RAD_OK) return RAD_OK;
    if (device.kind == ENGINE_DEVICE_CUDA) return engine_gpu_refuse(word, status, &why, err);
    const rad_env full = rad_env_or_default(env);
    rad_log(&full, RAD_LOG_INFO, "computes on the CPU: %s", engine_gpu_words(&why));
    return model_runner_create(env, file, model, out, err);
}
