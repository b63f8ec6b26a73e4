/* openai_completions.c - POST /v1/completions. */
#include "server/server_priv.h"

bool completions_parse(api_request *r, api_error *err)
{
    const json_t *prompt = json_in_get(r->root, "prompt");
    if (!prompt) return api_fail(err, 400, "prompt", "'prompt' is missing");
    int64_t max_tokens = 16;
    const json_t *logprobs = json_in_get(r->root, "logprobs"); /* a number, 0 too asks for them */
    r->logprobs = logprobs && !json_is_false(logprobs);
    if (r->logprobs && !api_parse_top_logprobs(r, r->root, "logprobs", err)) return false;
    if (!api_parse_prompts(r, prompt, "prompt", true, true, err) || !api_parse_openai(r, err) ||
        !json_in_int(r->root, "max_tokens", 0, INT32_MAX, &max_tokens, err))
        return false;
    for (uint32_t i = 0; i < r->num_items; i++)
        r->items[i].max_new_tokens = max_tokens;
    return true;
}

/* "stop_reason" is what vLLM calls the stop string or token that ended it. */
static json_t *choice(const call *c, call_item *item, size_t from_text, size_t from_ids)
{
    json_t *json = json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)item->index, "text",
                             item_text(item, from_text), "logprobs",
                             json_completion_logprobs(item, from_ids), "finish_reason",
                             openai_finish_reason(item->finish));
    if (json && item->matched_stop)
        json_object_set_new(json, "stop_reason",
                            json_text(item->matched_stop, strlen(item->matched_stop)));
    if (json && c->request.return_token_ids)
        json_object_set_new(json, "token_ids", json_ids(&item->ids, from_ids));
    return json;
}

static json_t *envelope(const call *c, json_t *choices, json_t *usage)
{
    json_t *json = json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", c->id, "object", "text_completion",
                             "created", (json_int_t)c->created_unix, "model",
                             call_model(c), "choices", choices);
    if (json && usage)
        json_object_set_new(json, "usage", usage);
    else
        json_decref(usage);
    return json;
}

static json_t *chunk(const call *c, call_item *item)
{
    bool news = item->finished || item->text.len > item->text_sent ||
                (call_tells_ids(c) && item->ids.len > item->ids_sent);
    if (!news) return NULL;
    return envelope(c, json_pack("[o]", choice(c, item, item->text_sent, item->ids_sent)),
                    c->request.include_usage ? json_null() : NULL);
}

static json_t *usage_chunk(const call *c)
{
    return c->request.include_usage ? envelope(c, json_array(), json_usage(c)) : NULL;
}

static void answer(call *c)
{
    json_t *choices = json_array();
    for (uint32_t i = 0; i < c->num_items; i++)
        json_array_append_new(choices, choice(c, &c->items[i], 0, 0));
    call_reply_json(c, 200, envelope(c, choices, json_usage(c)));
}

const call_ops completions_ops = {
    .id_prefix = "cmpl-", .chunk = chunk, .usage_chunk = usage_chunk, .answer = answer};
