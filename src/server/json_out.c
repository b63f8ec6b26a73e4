/* json_out.c - the pieces of an answer that the dialects share. */
#include "server/cached_tokens.h"
#include "server/server_priv.h"

#include <string.h>

/* The engine sends whole characters only; should that ever fail, an answer with a
 * replacement character is better than none. */
json_t *json_text(const char *bytes, size_t len)
{
    json_t *text = json_stringn(len ? bytes : "", len);
    return text ? text : json_string("\xef\xbf\xbd");
}

void put_item_text(json_writer *w, const call_item *item, size_t from_byte)
{
    const byte_buf *text = &item->text;
    if (text->len > from_byte)
        jw_text(w, text->data + from_byte, text->len - from_byte);
    else
        jw_text(w, "", 0);
}

void put_ids(json_writer *w, const byte_buf *ids, size_t from_byte)
{
    jw_open(w, '[');
    for (size_t at = from_byte; at < ids->len; at += sizeof(rad_token)) {
        rad_token id;
        memcpy(&id, ids->data + at, sizeof id);
        jw_int(w, id);
    }
    jw_close(w, ']');
}

const char *call_model(const call *c)
{
    return c->request.model ? c->request.model : models_name(c->server, 0);
}

json_t *json_cached_tokens(const call *c, prompt_hits shown)
{
    return cached_told(&c->server->params) ? json_integer(shown.cached) : json_null();
}

json_t *json_cached_details(const call *c, prompt_hits shown)
{
    if (!cached_told(&c->server->params)) return NULL;
    if (!engine_get_info(c->server->engine)->hierarchical_cache) return NULL;
    return json_pack("{s:I, s:I, s:I}", "device", (json_int_t)(shown.cached - shown.loaded), "host",
                     (json_int_t)(shown.loaded - shown.fetched), "storage",
                     (json_int_t)shown.fetched);
}

/* NULL: there is nothing to tell. */
static json_t *output_details(const call *c)
{
    const bool reasons = c->request.output.reasoning && c->server->output.reasoning;
    json_int_t reasoning = 0, foretold = 0, accepted = 0;
    for (uint32_t i = 0; i < c->num_items; i++) {
        reasoning += c->items[i].reasoning_tokens;
        foretold += c->items[i].prediction_tokens;
        accepted += c->items[i].accepted_prediction_tokens;
    }
    if (!reasons && !c->request.predicts) return NULL;
    json_t *json = json_object();
    if (reasons) json_object_set_new(json, "reasoning_tokens", json_integer(reasoning));
    if (!c->request.predicts) return json;
    json_object_set_new(json, "accepted_prediction_tokens", json_integer(accepted));
    json_object_set_new(json, "rejected_prediction_tokens", json_integer(foretold - accepted));
    return json;
}

json_t *json_usage(const call *c)
{
    const server_params *p = &c->server->params;
    json_int_t prompt = 0, completion = 0;
    prompt_hits sum = {0}; /* a body has fewer tokens than 2^32 */
    uint32_t n = c->request.n ? c->request.n : 1;
    for (uint32_t i = 0; i < c->num_items; i++) {
        completion += c->items[i].completion_tokens;
        if (i % n) continue; /* a prompt counts once, however many choices it has */
        prompt += c->items[i].prompt_tokens;
        /* each for itself: the same prompt 256 times would tell the count of one */
        prompt_hits one = cached_shown(p, c->items[i].hits);
        sum.cached += one.cached;
        sum.loaded += one.loaded;
        sum.fetched += one.fetched;
    }
    json_t *details = cached_told(p)
                          ? json_pack("{s:o}", "cached_tokens", json_cached_tokens(c, sum))
                          : json_null();
    json_t *by_tier = json_cached_details(c, sum);
    if (details && by_tier) json_object_set_new(details, "cached_tokens_details", by_tier);
    bool explains = (by_tier || c->turn) && c->num_items == n;
    json_t *why = explains ? json_cache_explanation(&c->items[0]) : NULL;
    if (why) json_object_set_new(details, "cache_explanation", why);
    return json_pack("{s:I, s:I, s:I, s:o, s:o*}", "prompt_tokens", prompt, "completion_tokens",
                     completion, "total_tokens", prompt + completion, "prompt_tokens_details",
                     details, "completion_tokens_details", output_details(c));
}

bool item_called(const call_item *item)
{
    return item->finish == ENGINE_FINISH_STOP && item->parts.num_calls > 0;
}

const char *openai_finish_reason(const call_item *item)
{
    switch (item->finish) {
    case ENGINE_FINISH_STOP: return item_called(item) ? "tool_calls" : "stop";
    case ENGINE_FINISH_LENGTH: return "length";
    case ENGINE_FINISH_ABORT: return "abort";
    default: return NULL;
    }
}

void put_openai_head(json_writer *w, const call *c, const char *object)
{
    jw_open(w, '{');
    jw_name(w, "id"), jw_word(w, c->id);
    jw_name(w, "object"), jw_word(w, object);
    jw_name(w, "created"), jw_int(w, (int64_t)c->created_unix);
    jw_name(w, "model"), jw_word(w, call_model(c));
    jw_name(w, "choices"), jw_open(w, '[');
}

void put_openai_tail(json_writer *w, json_t *usage)
{
    jw_close(w, ']');
    if (usage) jw_name(w, "usage"), jw_json(w, usage);
    jw_close(w, '}');
}

void write_openai_tail(const call *c, json_writer *w)
{
    put_openai_tail(w, json_usage(c));
}

void put_openai_extras(json_writer *w, const call_item *item, size_t from_ids)
{
    jw_name(w, "finish_reason"), jw_word(w, openai_finish_reason(item));
    if (item->matched_stop) jw_name(w, "stop_reason"), jw_word(w, item->matched_stop);
    if (item->call->request.return_token_ids)
        jw_name(w, "token_ids"), put_ids(w, &item->ids, from_ids);
}
