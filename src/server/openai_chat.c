/* openai_chat.c - POST /v1/chat/completions.
 *
 * What a message may hold: a string, or a list of text parts, which are joined. The roles are
 * the template's business, but that "developer" is read as "system"; it names the message
 * that it cannot render.
 *
 * A conversation with more than roles and texts (tools, tool calls, names, variables for the
 * template) goes on as JSON, with its contents as plain strings and the arguments of tool
 * calls as objects, which is what templates are written for. */
#include "server/api_fields.h"
#include "server/server_priv.h"

#include <stdlib.h>

/* Whether it is this string, whole: not what has more behind a NUL character. */
static bool says(const json_t *value, const char *word)
{
    size_t len = strlen(word);
    return json_string_length(value) == len && !memcmp(json_string_value(value), word, len);
}

static bool parse_parts(api_request *r, const json_t *parts, size_t index, chat_message *out,
                        api_error *err)
{
    size_t len = 0, n = json_array_size(parts);
    for (size_t i = 0; i < n; i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *text = json_object_get(part, "text");
        if (!says(json_object_get(part, "type"), "text") || !json_is_string(text))
            return api_fail(err, 400, "messages",
                            "messages[%zu]: part %zu is not {\"type\": \"text\", \"text\": ...}",
                            index, i);
        if (!api_check_fields(part, IN_PART, err)) return false;
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
    if (!api_check_fields(message, IN_MESSAGE, err)) return false;
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

/* ---- conversations with more ---- */

static bool is_plain(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const char *key;
        json_t *value, *message = json_array_get(messages, i);
        json_object_foreach(message, key, value) if (strcmp(key, "role") != 0 &&
                                                     strcmp(key, "content") != 0 &&
                                                     !json_is_null(value)) return false;
    }
    return true;
}

/* OpenAI's arguments are JSON in a string; templates want the object. What is no object
 * stays as it is. Its values count as the body's do. */
static bool open_arguments(api_request *r, json_t *calls, size_t index, api_error *err)
{
    if (!json_is_array(calls))
        return api_fail(err, 400, "messages", "messages[%zu]: 'tool_calls' must be a list", index);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *arguments = json_object_get(function, "arguments");
        if (!json_is_string(json_object_get(function, "name")))
            return api_fail(err, 400, "messages",
                            "messages[%zu]: tool call %zu has no function with a name", index, i);
        if (!json_is_string(arguments)) continue;
        const char *text = json_string_value(arguments);
        size_t len = json_string_length(arguments);
        if (text[strspn(text, " \t\r\n")] != '{') continue;
        api_error ignored;
        if (!json_room_take(&r->room, text, len, err)) return false;
        json_t *object = json_in_object(text, len, NULL, &ignored);
        if (object && json_object_set_new(function, "arguments", object) != 0)
            return api_fail(err, 503, NULL, "no memory for this request");
    }
    return true;
}

/* tool_choice says whether the template hears of the tools; making it call one is not ours. */
static bool parse_tools(const api_request *r, json_t **tools, api_error *err)
{
    const json_t *choice = json_in_get(r->root, "tool_choice");
    bool none = says(choice, "none");
    *tools = json_in_get(r->root, "tools");
    if (*tools && !json_is_array(*tools))
        return api_fail(err, 400, "tools", "'tools' must be a list");
    for (size_t i = 0; i < json_array_size(*tools); i++)
        if (!json_is_object(json_array_get(*tools, i)))
            return api_fail(err, 400, "tools", "'tools': tool %zu is not an object", i);
    if (choice && !none && !says(choice, "auto"))
        return api_fail(err, 400, "tool_choice", "'tool_choice' must be \"auto\" or \"none\"");
    bool parallel = true;
    if (!json_in_bool(r->root, "parallel_tool_calls", &parallel, err)) return false;
    if (!json_array_size(*tools) || none) *tools = NULL;
    if (*tools && !parallel)
        return api_fail(err, 400, "parallel_tool_calls",
                        "'parallel_tool_calls': false is not supported: nothing limits what a "
                        "model calls");
    return true;
}

/* The checked conversation as text in *out, kept by r. Changes r->root, which owns it all. */
static bool write_json(api_request *r, const chat_message *messages, json_t *tools, json_t *kwargs,
                       api_error *err)
{
    json_t *list = json_object_get(r->root, "messages");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *message = json_array_get(list, i), *calls = json_in_get(message, "tool_calls");
        if (calls && !open_arguments(r, calls, i, err)) return false;
        if (json_object_set_new(message, "role", json_string(messages[i].role)) != 0 ||
            json_object_set_new(message, "content",
                                json_stringn(messages[i].content_len ? messages[i].content : "",
                                             messages[i].content_len)) != 0)
            return api_fail(err, 503, NULL, "no memory for this request");
    }
    json_t *talk = json_pack("{s:O, s:O*, s:O*}", "messages", list, "tools", tools,
                             "chat_template_kwargs", kwargs);
    if (!talk) return api_fail(err, 503, NULL, "no memory for this request");
    size_t len = json_dumpb(talk, NULL, 0, JSON_COMPACT);
    char *text = api_request_alloc(r, len, 1, err);
    if (text) json_dumpb(talk, text, len, JSON_COMPACT);
    json_decref(talk);
    if (!text) return false;
    r->items[0].chat_json = text;
    r->items[0].chat_json_len = len;
    return true;
}

/* Messages, or JSON where there is more to say. */
static bool set_conversation(api_request *r, chat_message *messages, size_t n, api_error *err)
{
    json_t *tools, *kwargs = json_in_get(r->root, "chat_template_kwargs");
    if (!parse_tools(r, &tools, err)) return false;
    if (kwargs && !json_is_object(kwargs))
        return api_fail(err, 400, "chat_template_kwargs",
                        "'chat_template_kwargs' must be an object");
    if (tools || json_object_size(kwargs) || !is_plain(json_object_get(r->root, "messages")))
        return write_json(r, messages, tools, kwargs, err);
    r->items[0].messages = messages;
    r->items[0].num_messages = (uint32_t)n;
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
    if (!set_conversation(r, messages, n, err)) return false;
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

/* ---- answers ---- */

static const char CHUNK[] = "chat.completion.chunk";

static bool has_news(const call *c, const call_item *item)
{
    return item->finished || !item->said_role || item->text.len > item->text_sent ||
           (call_tells_ids(c) && item->ids.len > item->ids_sent);
}

static void write_chunk(const call *c, call_item *item, json_writer *w)
{
    bool text = item->text.len > item->text_sent;
    put_openai_head(w, c, CHUNK);
    jw_open(w, '{');
    jw_name(w, "index"), jw_int(w, item->index);
    jw_name(w, "delta"), jw_open(w, '{');
    if (!item->said_role) jw_name(w, "role"), jw_word(w, "assistant");
    if (!item->said_role || text) jw_name(w, "content"), put_item_text(w, item, item->text_sent);
    jw_close(w, '}');
    item->said_role = true;
    jw_name(w, "logprobs"), put_chat_logprobs(w, item, item->ids_sent);
    put_openai_extras(w, item, item->ids_sent);
    jw_close(w, '}');
    put_openai_tail(w, c->request.include_usage ? json_null() : NULL);
}

static void write_usage_chunk(const call *c, json_writer *w)
{
    put_openai_head(w, c, CHUNK);
    write_openai_tail(c, w);
}

static void write_head(const call *c, json_writer *w)
{
    put_openai_head(w, c, "chat.completion");
}

static void write_item(const call *c, call_item *item, json_writer *w)
{
    (void)c;
    jw_open(w, '{');
    jw_name(w, "index"), jw_int(w, item->index);
    jw_name(w, "message"), jw_open(w, '{');
    jw_name(w, "role"), jw_word(w, "assistant");
    jw_name(w, "content"), put_item_text(w, item, 0);
    jw_close(w, '}');
    jw_name(w, "logprobs"), put_chat_logprobs(w, item, 0);
    put_openai_extras(w, item, 0);
    jw_close(w, '}');
}

const call_ops chat_ops = {.kind = API_CHAT,
                           .id_prefix = "chatcmpl-",
                           .has_news = has_news,
                           .write_chunk = write_chunk,
                           .write_usage_chunk = write_usage_chunk,
                           .write_head = write_head,
                           .write_item = write_item,
                           .write_tail = write_openai_tail};
