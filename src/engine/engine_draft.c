/* engine_draft.c - see the header.
 *
 * Two vocabularies are the same if each id has the same text in both. Some families pad the larger
 * models' embeddings, and so their list of tokens, by some rows that nothing is ever encoded to: so
 * one list may be a little longer than the other. How a text becomes tokens is of no account, as
 * the draft model never sees one. */
#include "engine/engine_draft.h"

#include "sched/draft_model.h"
#include "sched/draft_source.h"

enum { MOST_PADDING = 128 }; /* qwen2.5: 151936 and 152064 */

rad_status draft_sources_wanted(const engine_params *params, uint32_t *bits, rad_error *err)
{
    *bits = 0;
    if (!params->speculative_algorithm || !params->speculative_num_draft_tokens) return RAD_OK;
    return draft_sources_parse(params->speculative_algorithm, bits, err);
}

static rad_status no_vocabulary(const char *which, rad_error *err)
{
    return rad_fail(err, RAD_E_UNSUPPORTED,
                    "draft model: %s has no list of tokens, so the two cannot be compared", which);
}

static rad_status check_vocabulary(const gguf_file *small, const gguf_file *large, rad_error *err)
{
    static const char key[] = "tokenizer.ggml.tokens";
    gguf_array a, b;
    if (gguf_get_arr(small, key, GGUF_STR, &a, err) != RAD_OK) return no_vocabulary("it", err);
    if (gguf_get_arr(large, key, GGUF_STR, &b, err) != RAD_OK)
        return no_vocabulary("the model", err);
    for (uint64_t i = 0; i < RAD_MIN(a.count, b.count); i++)
        if (a.strs[i].len != b.strs[i].len || memcmp(a.strs[i].data, b.strs[i].data, a.strs[i].len))
            return rad_fail(err, RAD_E_UNSUPPORTED,
                            "draft model: another vocabulary: token %llu is '%s', and '%s' in the "
                            "model",
                            (unsigned long long)i, gguf_show(a.strs[i]).text,
                            gguf_show(b.strs[i]).text);
    if (RAD_MAX(a.count, b.count) - RAD_MIN(a.count, b.count) > MOST_PADDING)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "draft model: another vocabulary: it has %llu tokens, the model %llu",
                        (unsigned long long)a.count, (unsigned long long)b.count);
    return RAD_OK;
}

static rad_status check_model(const model_config *c, rad_error *err)
{
    if (c->num_recurrent)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "draft model: %u of its layers are recurrent, and their states would have "
                        "to be kept for each place of a text; one of attention layers is needed",
                        c->num_recurrent);
    if (c->pooling != POOL_NONE)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "draft model: it is for embeddings and says nothing");
    return RAD_OK;
}

static rad_status plan_file(const rad_env *env, const gguf_file *small, const gguf_file *large,
                            const engine_params *p, const model_runner_params *beside,
                            draft_plan *plan, rad_error *err)
{
    model_config config;
    rad_status status = model_config_read(small, p->context_length, &config, err);
    if (status == RAD_OK) status = check_model(&config, err);
    if (status == RAD_OK) status = check_vocabulary(small, large, err);
    if (status != RAD_OK) return status;
    *plan = (draft_plan){.on = true, .context_length = config.context_length, .model = *beside};
    plan->model.max_batch_tokens = DRAFT_MODEL_TOKENS;
    plan->model.max_batch_logits = DRAFT_MODEL_LOGITS;
    plan->model.progress = NULL;
    plan->model.nextn = false;
    const runner_info info =
        model_runner_info(&config, beside->set_kv_dtype ? beside->kv_dtype : beside->dtype);
    plan->token_bytes = draft_model_token_bytes(&info);
    return model_runner_measure(env, small, &plan->model, &plan->sizes, err);
}

rad_status draft_plan_load(const rad_env *env, const gguf_file *file, const engine_params *params,
                           const model_runner_params *beside, draft_plan *plan, rad_error *err)
{
    gguf_file *small;
    *plan = (draft_plan){0};
    if (!params->speculative_draft_model_path) return RAD_OK;
    rad_status status = gguf_open(env, params->speculative_draft_model_path, &small, err);
    if (status != RAD_OK) return status;
    status = plan_file(env, small, file, params, beside, plan, err);
    gguf_close(small);
    return status;
}

rad_status draft_load(const rad_env *env, const engine_params *params, const draft_plan *plan,
                      const runner *large, runner **out, rad_error *err)
{
    gguf_file *small;
    *out = NULL;
    if (!plan->on) return RAD_OK;
    rad_status status = gguf_open(env, params->speculative_draft_model_path, &small, err);
    if (status != RAD_OK) return status;
    model_runner_params model = plan->model;
    model.threads_of = large;
    status = model_runner_create(env, small, &model, out, err);
    gguf_close(small);
    if (status == RAD_OK && plan->context_length < large->info.context_length)
        rad_log(env, RAD_LOG_WARN,
                "engine: the draft model's context is %u tokens: of longer texts it guesses "
                "nothing",
                plan->context_length);
    return status;
}
