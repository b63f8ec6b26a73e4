/* api_sampling.c - how the next token shall be chosen, in the words of all dialects. */
#include "server/api_sampling.h"

#include "server/api_forms.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool parse_stop(api_request *r, const json_t *object, engine_request *item, api_error *err)
{
    const json_t *stop = json_in_get(object, "stop");
    if (!stop) return true;
    size_t n = json_is_array(stop) ? json_array_size(stop) : 1;
    if (n > API_MAX_STOP)
        return api_fail(err, 400, "stop", "'stop' holds %zu strings; at most %d are taken", n,
                        API_MAX_STOP);
    const char **list = api_request_alloc(r, n, sizeof *list, err);
    if (!list) return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(stop) ? json_array_get(stop, i) : stop;
        size_t len = json_string_length(s);
        if (!json_is_string(s))
            return api_fail(err, 400, "stop", "'stop' must be a string or a list of strings");
        if (!len || len > API_MAX_STOP_BYTES || strlen(json_string_value(s)) != len)
            return api_fail(err, 400, "stop",
                            "a stop string must have 1 to %d bytes and no NUL character",
                            API_MAX_STOP_BYTES);
        list[i] = json_string_value(s);
    }
    item->stop = list;
    item->num_stop = (uint32_t)n;
    return true;
}

static bool parse_stop_token_ids(api_request *r, const json_t *object, engine_request *item,
                                 api_error *err)
{
    const json_t *list = json_in_get(object, "stop_token_ids");
    rad_token *ids = NULL;
    if (!list) return true;
    if (!json_is_array(list) || json_array_size(list) > API_MAX_STOP_TOKENS)
        return api_fail(err, 400, "stop_token_ids",
                        "'stop_token_ids' must be a list of at most %d token ids",
                        API_MAX_STOP_TOKENS);
    if (!api_parse_ids(r, list, "stop_token_ids", &ids, &item->num_stop_token_ids, err))
        return false;
    item->stop_token_ids = ids;
    return true;
}

/* The engine would refuse these numbers as well, but only here we know whose fault it is. */
static bool check_sampling(const sampling_params *p, api_error *err)
{
    const struct {
        const char *key;
        sampling_params only; /* this one, the others neutral */
    } parts[] = {
        {"temperature", {.temperature = p->temperature, .top_p = 1}},
        {"top_p", {.top_p = p->top_p}},
        {"min_p", {.top_p = 1, .min_p = p->min_p}},
        {"repetition_penalty", {.top_p = 1, .repetition_penalty = p->repetition_penalty}},
        {"presence_penalty", {.top_p = 1, .presence_penalty = p->presence_penalty}},
        {"frequency_penalty", {.top_p = 1, .frequency_penalty = p->frequency_penalty}},
        {"logit_bias", {.top_p = 1, .num_bias = p->num_bias, .bias = p->bias}},
    };
    rad_error why = {0};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (sampling_params_check(&parts[i].only, &why) != RAD_OK)
            return api_fail(err, 400, parts[i].key, "%s", why.text);
    return true;
}

/* {"15043": -100, ...}: keys are token ids, written as JSON has them. */
static bool parse_logit_bias(api_request *r, const json_t *object, sampling_params *p,
                             api_error *err)
{
    static const char key[] = "logit_bias";
    json_t *map = json_in_get(object, key), *value;
    const char *name;
    if (!map) return true;
    if (!json_is_object(map))
        return api_fail(err, 400, key, "'logit_bias' must be an object of token ids and numbers");
    size_t count = json_object_size(map);
    if (count > ENGINE_MAX_LOGIT_BIAS)
        return api_fail(err, 400, key, "'logit_bias' has %zu entries; at most %d are taken", count,
                        ENGINE_MAX_LOGIT_BIAS);
    logit_bias *list = api_request_alloc(r, count, sizeof *list, err);
    if (!list) return false;
    json_object_foreach(map, name, value)
    {
        char *end = NULL;
        unsigned long id = *name >= '0' && *name <= '9' ? strtoul(name, &end, 10) : ULONG_MAX;
        bool canonical = end && !*end && (*name != '0' || !name[1]); /* no id comes twice */
        if (!canonical || id > INT32_MAX)
            return api_fail(err, 400, key, "'logit_bias': '%.40s' is not a token id", name);
        if (!json_is_number(value))
            return api_fail(err, 400, key, "'logit_bias': the bias of %lu is not a number", id);
        list[p->num_bias++] = (logit_bias){(rad_token)id, (float)json_number_value(value)};
    }
    p->bias = list;
    return true;
}

bool api_parse_sampling(api_request *r, const json_t *object, engine_request *item, api_error *err)
{
    sampling_params *p = &item->sampling;
    int64_t top_k = 0, seed = 0, n = 1, min_new_tokens = 0;
    bool skip_special = true;
    p->temperature = p->top_p = p->repetition_penalty = 1;
    if (!json_in_int(object, "n", 1, API_MAX_CHOICES, &n, err) ||
        !json_in_float(object, "temperature", &p->temperature, err) ||
        !json_in_float(object, "top_p", &p->top_p, err) ||
        !json_in_float(object, "min_p", &p->min_p, err) ||
        !json_in_float(object, "repetition_penalty", &p->repetition_penalty, err) ||
        !json_in_float(object, "presence_penalty", &p->presence_penalty, err) ||
        !json_in_float(object, "frequency_penalty", &p->frequency_penalty, err) ||
        !json_in_int(object, "top_k", -1, INT32_MAX, &top_k, err) ||
        !json_in_int(object, "min_tokens", 0, INT32_MAX, &min_new_tokens, err) ||
        !json_in_int(object, "min_new_tokens", 0, INT32_MAX, &min_new_tokens, err) ||
        !json_in_int(object, "seed", INT64_MIN, INT64_MAX, &seed, err) ||
        !json_in_int(object, "sampling_seed", INT64_MIN, INT64_MAX, &seed, err) ||
        !json_in_bool(object, "ignore_eos", &item->ignore_eos, err) ||
        !json_in_bool(object, "skip_special_tokens", &skip_special, err) ||
        !json_in_bool(object, "no_stop_trim", &item->no_stop_trim, err) ||
        !json_in_bool(object, "include_stop_str_in_output", &item->no_stop_trim, err) ||
        !parse_logit_bias(r, object, p, err))
        return false;
    p->top_k = (int32_t)top_k;
    p->min_new_tokens = (uint32_t)min_new_tokens;
    if (p->repetition_penalty == 0)
        return api_fail(err, 400, "repetition_penalty", "repetition_penalty must be in (0, 2]");
    if (!check_sampling(p, err)) return false;
    if (r->n && r->n != n)
        return api_fail(err, 400, "n", "'n' must be the same for all prompts of a request");
    r->n = (uint32_t)n;
    p->seed = (uint64_t)seed;
    item->has_seed = json_in_get(object, "seed") || json_in_get(object, "sampling_seed");
    item->keep_special = !skip_special;
    return parse_stop(r, object, item, err) && parse_stop_token_ids(r, object, item, err) &&
           api_parse_forms(r, object, item, err);
}

bool api_parse_top_logprobs(api_request *r, const json_t *object, const char *key, api_error *err)
{
    int64_t top = 0;
    if (!json_in_int(object, key, 0, API_MAX_TOP_LOGPROBS, &top, err)) return false;
    r->num_top_logprobs = r->num_told_top = (uint32_t)top;
    return true;
}

bool api_parse_vllm_logprobs(api_request *r, api_error *err)
{
    static const char key[] = "prompt_logprobs";
    const json_t *asked = json_in_get(r->root, key);
    int64_t top = 0;
    if (!asked || json_is_false(asked)) return true;
    if (!json_in_int(r->root, key, 0, API_MAX_TOP_LOGPROBS, &top, err)) return false;
    if (r->stream) return api_fail(err, 400, key, "'prompt_logprobs' are not told in a stream");
    r->prompt_logprobs = r->vllm_prompt = true;
    r->num_vllm_top = (uint32_t)top;
    if (r->num_top_logprobs < r->num_vllm_top) r->num_top_logprobs = r->num_vllm_top;
    return true;
}

/* Choices of a prompt are requests of their own, which find its K/V in the cache. The first
 * is what a request for one would be; the others draw from seeds of their own. */
bool api_expand_choices(api_request *r, api_error *err)
{
    for (uint32_t i = 0; i < r->num_items; i++) {
        engine_request *item = &r->items[i];
        item->sampling.logprobs = r->logprobs || r->best; /* by which the best are found */
        item->sampling.num_top_logprobs = r->num_top_logprobs;
        item->prompt_logprobs = r->prompt_logprobs;
        item->prompt_logprobs_from = r->prompt_logprobs_from;
        if (item->max_new_tokens >= 0 && item->sampling.min_new_tokens > item->max_new_tokens)
            return api_fail(err, 400, r->kind == API_GENERATE ? "min_new_tokens" : "min_tokens",
                            "at least %u tokens are asked for, but at most %lld",
                            item->sampling.min_new_tokens, (long long)item->max_new_tokens);
    }
    if (r->n <= 1) return true;
    if (r->num_items * r->n > API_MAX_PROMPTS)
        return api_fail(err, 400, "n",
                        "%u prompts with n = %u; at most %d answers fit in one request",
                        r->num_items, r->n, API_MAX_PROMPTS);
    engine_request *all = api_request_alloc(r, (size_t)r->num_items * r->n, sizeof *all, err);
    if (!all) return false;
    for (uint32_t i = 0; i < r->num_items * r->n; i++) {
        all[i] = r->items[i / r->n];
        all[i].sampling.seed += i % r->n * UINT64_C(0x9e3779b97f4a7c15);
        if (i % r->n && api_shares_prompt(r)) all[i].prompt_logprobs = false;
    }
    r->items = all;
    r->num_items *= r->n;
    r->batch = true;
    return true;
}
