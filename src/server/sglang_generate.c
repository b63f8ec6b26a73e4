/* sglang_generate.c - POST /generate, SGLang's native form.
 *
 * In a stream each event carries all of the text and ids so far, so a client needs only
 * the last one it saw; the prompt's logprobs, which may be many, come in that alone. */
#include "server/api_fields.h"
#include "server/api_prediction.h"
#include "server/api_sampling.h"
#include "server/cached_tokens.h"
#include "server/server_priv.h"

static bool parse_sampling_params(api_request *r, const json_t *object, engine_request *item,
                                  api_error *err)
{
    int64_t max_new_tokens = 128;
    if (object && !json_is_object(object))
        return api_fail(err, 400, "sampling_params", "'sampling_params' must be an object");
    if (!api_check_fields(object, IN_SAMPLING, err) || !api_parse_sampling(r, object, item, err) ||
        !json_in_int(object, "max_new_tokens", 0, INT32_MAX, &max_new_tokens, err))
        return false;
    item->max_new_tokens = max_new_tokens;
    return true;
}

/* Of all items the same list. */
static bool parse_logprob_ids(api_request *r, api_error *err)
{
    static const char key[] = "token_ids_logprob";
    const json_t *list = json_in_get(r->root, key);
    rad_token *ids = NULL;
    uint32_t count = 0;
    if (!list || json_is_false(list) || !r->logprobs) return true;
    if (!json_is_array(list) || json_array_size(list) > ENGINE_MAX_ID_LOGPROBS)
        return api_fail(err, 400, key, "'%s' must be a list of at most %d token ids", key,
                        ENGINE_MAX_ID_LOGPROBS);
    if (!api_parse_ids(r, list, key, &ids, &count, err)) return false;
    r->num_id_logprobs = count;
    for (uint32_t i = 0; i < r->num_items; i++) {
        r->items[i].sampling.id_logprobs = ids;
        r->items[i].sampling.num_id_logprobs = count;
    }
    return true;
}

static bool parse_logprobs(api_request *r, api_error *err)
{
    int64_t start = -1;
    if (!json_in_bool(r->root, "return_logprob", &r->logprobs, err) ||
        !json_in_bool(r->root, "return_text_in_logprobs", &r->text_in_logprobs, err) ||
        !api_parse_top_logprobs(r, r->root, "top_logprobs_num", err) ||
        !json_in_int(r->root, "logprob_start_len", -1, INT32_MAX, &start, err))
        return false;
    r->prompt_logprobs = r->logprobs && start >= 0;
    if (r->prompt_logprobs) r->prompt_logprobs_from = (uint32_t)start;
    return true;
}

bool generate_parse(api_request *r, api_error *err)
{
    const json_t *text = json_in_get(r->root, "text");
    const json_t *ids = json_in_get(r->root, "input_ids");
    if (!text == !ids)
        return api_fail(err, 400, text ? "input_ids" : "text",
                        "give either 'text' or 'input_ids'%s", text ? ", not both" : "");
    if (!api_parse_prompts(r, text ? text : ids, text ? "text" : "input_ids", text != NULL,
                           ids != NULL, err) ||
        !api_parse_routing(r, r->root, err) || !json_in_bool(r->root, "stream", &r->stream, err) ||
        !parse_logprobs(r, err) ||
        !api_parse_key(r->root, "rid", &r->rid, err)) /* of a list of prompts, too: one for all */
        return false;

    const json_t *params = json_in_get(r->root, "sampling_params");
    if (json_is_array(params) && json_array_size(params) != r->num_items)
        return api_fail(err, 400, "sampling_params",
                        "'sampling_params' has %zu entries for %u prompts", json_array_size(params),
                        r->num_items);
    if (!json_is_array(params)) {
        if (!parse_sampling_params(r, params, &r->items[0], err)) return false;
        api_share_settings(r);
        return api_parse_prediction(r, err) && parse_logprob_ids(r, err);
    }
    for (uint32_t i = 0; i < r->num_items; i++)
        if (!parse_sampling_params(r, json_array_get(params, i), &r->items[i], err)) return false;
    return api_parse_prediction(r, err) && parse_logprob_ids(r, err);
}

static json_t *finish_reason(const call_item *item)
{
    switch (item->finish) {
    case ENGINE_FINISH_LENGTH:
        return json_pack("{s:s, s:I}", "type", "length", "length",
                         (json_int_t)item->completion_tokens);
    case ENGINE_FINISH_STOP:
        if (item->matched_stop)
            return json_pack("{s:s, s:o}", "type", "stop", "matched",
                             json_text(item->matched_stop, strlen(item->matched_stop)));
        if (item->matched_token >= 0)
            return json_pack("{s:s, s:I}", "type", "stop", "matched",
                             (json_int_t)item->matched_token);
        return json_pack("{s:s, s:n}", "type", "stop", "matched");
    case ENGINE_FINISH_ABORT:
        return json_pack("{s:s, s:s}", "type", "abort", "message", "the request was aborted");
    default: return json_null();
    }
}

/* Under SGLang's names, where something may be guessed. Steps that decoded without drafts count as
 * well: their length is 1. */
static void put_drafts(json_writer *w, const call_item *item)
{
    const engine_info *info = engine_get_info(item->call->server->engine);
    const draft_counts *d = &item->drafts;
    const uint64_t proposed = draft_counts_sum(d->proposed), right = draft_counts_sum(d->accepted);
    if (!d->steps || !info->speculative_num_draft_tokens) return;
    jw_name(w, "spec_accept_rate"), jw_real(w, proposed ? (double)right / (double)proposed : 0);
    jw_name(w, "spec_accept_length"), jw_real(w, (double)(d->steps + right) / d->steps);
    jw_name(w, "spec_accept_token_num"), jw_int(w, (int64_t)right);
    jw_name(w, "spec_draft_token_num"), jw_int(w, (int64_t)proposed);
    jw_name(w, "spec_verify_ct"), jw_int(w, d->steps);
}

static void put_output(json_writer *w, const call *c, const call_item *item)
{
    const server_params *p = &c->server->params;
    prompt_hits hits = cached_shown(p, item->hits);
    jw_open(w, '{');
    jw_name(w, "text"), put_item_text(w, item, 0);
    jw_name(w, "output_ids"), put_ids(w, &item->ids, 0);
    jw_name(w, "meta_info"), jw_open(w, '{');
    jw_name(w, "id");
    jw_json(w, c->request.batch ? json_sprintf("%s_%u", c->id, item->index) : json_string(c->id));
    jw_name(w, "finish_reason"), jw_json(w, finish_reason(item));
    jw_name(w, "prompt_tokens"), jw_int(w, item->prompt_tokens);
    jw_name(w, "completion_tokens"), jw_int(w, item->completion_tokens);
    jw_name(w, "cached_tokens"), jw_json(w, json_cached_tokens(c, hits));
    json_t *by_tier = json_cached_details(c, hits);
    if (by_tier) jw_name(w, "cached_tokens_details"), jw_json(w, by_tier);
    json_t *why = item->finished ? json_cache_explanation(item) : NULL;
    if (why) jw_name(w, "cache_explanation"), jw_json(w, why);
    if (item->finished && cached_exact(p)) put_drafts(w, item);
    if (item->finished && c->request.predicts) {
        jw_name(w, "accepted_prediction_tokens"), jw_int(w, item->accepted_prediction_tokens);
        jw_name(w, "rejected_prediction_tokens");
        jw_int(w, item->prediction_tokens - item->accepted_prediction_tokens);
    }
    if (item->finished) jw_name(w, "e2e_latency"), jw_real(w, item->e2e_latency_s);
    if (c->request.logprobs) put_sglang_logprobs(w, item);
    jw_close(w, '}');
    if (c->request.batch) jw_name(w, "index"), jw_int(w, item->index);
    jw_close(w, '}');
}

static bool has_news(const call *c, const call_item *item)
{
    (void)c;
    return item->finished || item->ids.len > item->ids_sent || item->text.len > item->text_sent;
}

static void write_chunk(const call *c, call_item *item, json_writer *w)
{
    put_output(w, c, item);
}

static void write_head(const call *c, json_writer *w)
{
    if (c->request.batch) jw_open(w, '[');
}

static void write_item(const call *c, call_item *item, json_writer *w)
{
    put_output(w, c, item);
}

static void write_tail(const call *c, json_writer *w)
{
    if (c->request.batch) jw_close(w, ']');
}

const call_ops generate_ops = {.kind = API_GENERATE,
                               .id_prefix = "",
                               .chunk_says_all = true,
                               .has_news = has_news,
                               .write_chunk = write_chunk,
                               .write_head = write_head,
                               .write_item = write_item,
                               .write_tail = write_tail};
