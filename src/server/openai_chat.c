/* openai_chat.c - POST /v1/chat/completions.
 *
 * What a message may hold: a string, or a list of text parts, which are joined. The roles are
 * the template's business, but that "developer" is read as "system"; it names the message
 * that it cannot render. */
#include "server/server_priv.h"

static bool parse_parts(api_request *r, const json_t *parts, size_t index, chat_message *out,
                        api_error *err)
{
    size_t len = 0, n = json_array_size(parts);
    for (size_t i = 0; i < n; i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type || strcmp(type, "text") != 0 || !json_is_string(text))
            return api_fail(err, 400, "messages",
                            "messages[%zu]: part %zu is not {\"type\": \"text\", \"text\": ...}",
                            index, i);
        len += json_string_length(text); /* parts of one body: cannot overflow */
    }
    char *joined = api_request_alloc(r, len + 1, 1, err);
    if (!joined) return false;
    out->content = joined;
    out->content_len = len;
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_object_get(json_array_get(parts, i), "text");
        memcpy(joined, json_string_value(text), json_string_length(text));
        joined += json_string_length(text);
    }
    return true;
}

static bool parse_message(api_request *r, const json_t *message, size_t index, chat_message *out,
                          api_error *err)
{
    const json_t *role = json_object_get(message, "role");
    const json_t *content = json_in_get(message, "content");
    if (!json_is_object(message))
        return api_fail(err, 400, "messages", "messages[%zu] is not an object", index);
    if (!json_is_string(role) || !json_string_length(role) ||
        strlen(json_string_value(role)) != json_string_length(role))
        return api_fail(err, 400, "messages", "messages[%zu] has no 'role'", index);
    if (json_array_size(json_in_get(message, "tool_calls")))
        return api_fail(err, 400, "messages", "messages[%zu]: tool calls are not supported", index);
    out->role = json_string_value(role);
    if (strcmp(out->role, "developer") == 0) out->role = "system"; /* OpenAI's newer name for it */
    if (json_is_array(content)) return parse_parts(r, content, index, out, err);
    if (content && !json_is_string(content))
        return api_fail(err, 400, "messages",
                        "messages[%zu]: 'content' must be a string or a list of text parts", index);
    if (!content && strcmp(out->role, "assistant") != 0)
        return api_fail(err, 400, "messages", "messages[%zu] has no 'content'", index);
    out->content = content ? json_string_value(content) : "";
    out->content_len = json_string_length(content);
    return true;
}

bool chat_parse(api_request *r, api_error *err)
{
    const json_t *list = json_in_get(r->root, "messages");
    size_t n = json_array_size(list);
    if (!json_is_array(list) || !n)
        return api_fail(err, 400, "messages",
                        "'messages' must be a list with at least one message");
    chat_message *messages = api_request_alloc(r, n, sizeof *messages, err);
    if (!messages) return false;
    for (size_t i = 0; i < n; i++)
        if (!parse_message(r, json_array_get(list, i), i, &messages[i], err)) return false;

    r->items = api_request_alloc(r, 1, sizeof *r->items, err);
    if (!r->items) return false;
    r->num_items = 1;
    r->items[0].messages = messages;
    r->items[0].num_messages = (uint32_t)n;
    int64_t max_tokens = -1; /* as many as the context allows */
    if (!json_in_bool(r->root, "logprobs", &r->logprobs, err) ||
        !api_parse_top_logprobs(r, r->root, "top_logprobs", err))
        return false;
    if (r->num_top_logprobs && !r->logprobs)
        return api_fail(err, 400, "top_logprobs", "'top_logprobs' wants 'logprobs': true");
    if (!api_parse_openai(r, err) ||
        !json_in_int(r->root, "max_tokens", 0, INT32_MAX, &max_tokens, err) ||
        !json_in_int(r->root, "max_completion_tokens", 0, INT32_MAX, &max_tokens, err))
        return false;
    r->items[0].max_new_tokens = max_tokens;
    return true;
}

static json_t *envelope(const call *c, const char *object, json_t *choices, json_t *usage)
{
    json_t *json = json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", c->id, "object", object, "created",
                             (json_int_t)c->created_unix, "model",
                             engine_get_info(c->server->engine)->model_name, "choices", choices);
    if (json && usage)
        json_object_set_new(json, "usage", usage);
    else
        json_decref(usage);
    return json;
}

static void add_extras(const call *c, const call_item *item, size_t from_ids, json_t *choice)
{
    if (choice && item->matched_stop)
        json_object_set_new(choice, "stop_reason",
                            json_text(item->matched_stop, strlen(item->matched_stop)));
    if (choice && c->request.return_token_ids)
        json_object_set_new(choice, "token_ids", json_ids(&item->ids, from_ids));
}

static json_t *chunk(const call *c, call_item *item)
{
    bool text = item->text.len > item->text_sent;
    bool ids = call_tells_ids(c) && item->ids.len > item->ids_sent;
    if (!text && !ids && !item->finished && item->said_role) return NULL;
    json_t *delta = json_object();
    if (!item->said_role) json_object_set_new(delta, "role", json_string("assistant"));
    if (!item->said_role || text)
        json_object_set_new(delta, "content", item_text(item, item->text_sent));
    item->said_role = true;
    json_t *choice = json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)item->index, "delta",
                               delta, "logprobs", json_chat_logprobs(item, item->ids_sent),
                               "finish_reason", openai_finish_reason(item->finish));
    add_extras(c, item, item->ids_sent, choice);
    return envelope(c, "chat.completion.chunk", json_pack("[o]", choice),
                    c->request.include_usage ? json_null() : NULL);
}

static json_t *usage_chunk(const call *c)
{
    if (!c->request.include_usage) return NULL;
    return envelope(c, "chat.completion.chunk", json_array(), json_usage(c));
}

static json_t *whole_choice(const call *c, const call_item *item)
{
    json_t *choice = json_pack("{s:I, s:{s:s, s:o}, s:o, s:s?}", "index", (json_int_t)item->index,
                               "message", "role", "assistant", "content", item_text(item, 0),
                               "logprobs", json_chat_logprobs(item, 0), "finish_reason",
                               openai_finish_reason(item->finish));
    add_extras(c, item, 0, choice);
    return choice;
}

static void answer(call *c)
{
    json_t *choices = json_array();
    for (uint32_t i = 0; i < c->num_items; i++)
        json_array_append_new(choices, whole_choice(c, &c->items[i]));
    call_reply_json(c, 200, envelope(c, "chat.completion", choices, json_usage(c)));
}

const call_ops chat_ops = {
    .id_prefix = "chatcmpl-", .chunk = chunk, .usage_chunk = usage_chunk, .answer = answer};
