/* conversation.c - checks, and the two forms in which a conversation goes on.
 *
 * Roles and texts alone go on as they are. A conversation with more (tools, tool calls, names,
 * variables for the template) goes on as JSON, with its contents as plain strings, the arguments
 * of tool calls as objects and a name at every tool's result, which is what templates are written
 * for. */
#include "server/conversation.h"

#include "server/api_fields.h"

#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

static bool is_unseen(const json_t *part)
{
    static const char *const types[] = {"image_url", "input_audio", "file"};
    for (size_t i = 0; i < RAD_COUNT(types); i++)
        if (json_in_says(json_object_get(part, "type"), types[i])) return true;
    return false;
}

static bool parse_parts(api_request *r, const json_t *parts, size_t index, bool by_tool,
                        chat_message *out, api_error *err)
{
    size_t len = 0, n = json_array_size(parts);
    for (size_t i = 0; i < n; i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *text = json_object_get(part, "text");
        if (is_unseen(part) && by_tool) {
            len += strlen(UNSEEN_RESULT);
            continue;
        }
        if (is_unseen(part))
            return api_fail(err, 400, "messages",
                            "messages[%zu]: part %zu is not text: images, files and audio are not "
                            "supported here",
                            index, i);
        if (!json_in_says(json_object_get(part, "type"), "text") || !json_is_string(text))
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
        const json_t *part = json_array_get(parts, i), *text = json_object_get(part, "text");
        const char *words = is_unseen(part) ? UNSEEN_RESULT : json_string_value(text);
        size_t more = is_unseen(part) ? strlen(words) : json_string_length(text);
        memcpy(joined, words, more);
        joined += more;
    }
    return true;
}

/* What a tool gave may be any JSON; the model reads it as text. */
static bool parse_result(api_request *r, const json_t *content, chat_message *out, api_error *err)
{
    size_t len = json_dumpb(content, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
    char *text = api_request_alloc(r, len + 1, 1, err);
    if (!text) return false;
    json_dumpb(content, text, len, JSON_COMPACT | JSON_ENCODE_ANY);
    out->content = text;
    out->content_len = len;
    return true;
}

static bool is_list_of_parts(const json_t *content)
{
    return json_is_array(content) && (!json_array_size(content) ||
                                      json_object_get(json_array_get(content, 0), "type") != NULL);
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
    bool tool = strcmp(out->role, "tool") == 0, answer = strcmp(out->role, "assistant") == 0;
    if (tool && content && !json_is_string(content) && !is_list_of_parts(content))
        return parse_result(r, content, out, err);
    if (json_is_array(content)) return parse_parts(r, content, index, tool, out, err);
    if (content && !json_is_string(content))
        return api_fail(err, 400, "messages",
                        "messages[%zu]: 'content' must be a string or a list of text parts", index);
    if (!content && !answer && !tool)
        return api_fail(err, 400, "messages", "messages[%zu] has no 'content'", index);
    out->content = content ? json_string_value(content) : "";
    out->content_len = json_string_length(content);
    return true;
}

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

/* OpenAI's arguments are JSON in a string; templates want the object. None at all is an empty
 * one; what is no object stays as it is. Its values count as the body's do. */
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
        if (arguments && !json_is_string(arguments) && !json_is_null(arguments)) continue;
        const char *text = arguments ? json_string_value(arguments) : NULL;
        size_t len = json_string_length(arguments);
        json_t *object = NULL;
        if (!text || !text[strspn(text, " \t\r\n")]) {
            object = json_object();
        } else if (text[strspn(text, " \t\r\n")] == '{') {
            api_error ignored;
            if (!json_room_take(&r->room, text, len, err)) return false;
            object = json_in_object(text, len, NULL, &ignored);
        }
        if (object && json_object_set_new(function, "arguments", object) != 0)
            return api_fail(err, 503, NULL, "no memory for this request");
    }
    return true;
}

/* The function that messages[index], a tool's result, is of: what the calls before it say. */
static const json_t *name_of_result(const json_t *messages, size_t index)
{
    enum { MOST_BETWEEN = 256 };
    const json_t *id = json_object_get(json_array_get(messages, index), "tool_call_id");
    for (size_t back = 1; back <= RAD_MIN(index, (size_t)MOST_BETWEEN); back++) {
        const json_t *calls = json_object_get(json_array_get(messages, index - back), "tool_calls");
        size_t n = json_array_size(calls);
        for (size_t i = 0; i < RAD_MIN(n, (size_t)MOST_BETWEEN); i++) {
            const json_t *call = json_array_get(calls, i);
            if (json_equal(json_object_get(call, "id"), id))
                return json_object_get(json_object_get(call, "function"), "name");
        }
        if (n) break; /* a result follows its call */
    }
    return NULL;
}

static bool set_text(json_t *message, const char *key, const char *text, size_t len, api_error *err)
{
    if (json_object_set_new(message, key, json_stringn(len ? text : "", len)) == 0) return true;
    return api_fail(err, 503, NULL, "no memory for this request");
}

static bool normalise(api_request *r, json_t *messages, const chat_message *read, api_error *err)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i), *calls = json_in_get(message, "tool_calls");
        if (calls && !open_arguments(r, calls, i, err)) return false;
        bool result = strcmp(read[i].role, "tool") ==
                      0; /* set_text lets go of what read points to */
        if (!set_text(message, "role", read[i].role, strlen(read[i].role), err) ||
            !set_text(message, "content", read[i].content, read[i].content_len, err))
            return false;
        if (!result || json_in_get(message, "name")) continue;
        const json_t *name = name_of_result(messages, i);
        if (json_is_string(name) &&
            !set_text(message, "name", json_string_value(name), json_string_length(name), err))
            return false;
    }
    return true;
}

/* ---- tools ---- */

static bool check_tools(const conversation *c, api_error *err)
{
    if (c->tools && !json_is_array(c->tools))
        return api_fail(err, 400, "tools", "'tools' must be a list");
    for (size_t i = 0; i < json_array_size(c->tools); i++)
        if (!json_is_object(json_array_get(c->tools, i)))
            return api_fail(err, 400, "tools", "'tools': tool %zu is not an object", i);
    const bool must = c->choice == TOOLS_REQUIRED || c->choice == TOOLS_NAMED;
    if (must && !json_array_size(c->tools) && !json_array_size(c->later))
        return api_fail(err, 400, "tool_choice",
                        "'tool_choice' wants a call, and there are no 'tools'");
    if (c->choice == TOOLS_NAMED && !c->named)
        return api_fail(err, 400, "tool_choice", "'tool_choice' names no function");
    return true;
}

/* ---- variables of the template ---- */

static bool set_default(json_t *kwargs, const char *key, json_t *value)
{
    if (json_object_get(kwargs, key)) {
        json_decref(value);
        return true;
    }
    return json_object_set_new(kwargs, key, value) == 0;
}

static bool is_effort(const char *effort)
{
    size_t len = strlen(effort);
    return len && len <= 16 && strspn(effort, "abcdefghijklmnopqrstuvwxyz") == len;
}

/* The request's own, and what the other fields say about reasoning under the names that templates
 * have for it; one that does not read them is not concerned. *kwargs is to be given back. */
static bool make_kwargs(const conversation *c, json_t **kwargs, api_error *err)
{
    if (c->kwargs && !json_is_object(c->kwargs))
        return api_fail(err, 400, "chat_template_kwargs",
                        "'chat_template_kwargs' must be an object");
    if (c->effort && !is_effort(c->effort))
        return api_fail(err, 400, "reasoning_effort",
                        "'reasoning_effort' is a word as none, minimal, low, medium or high");
    bool none = c->effort && !strcmp(c->effort, "none");
    int think = c->think >= 0 ? c->think : c->effort ? !none : -1;
    *kwargs = c->kwargs ? json_copy(c->kwargs) : json_object();
    if (*kwargs &&
        (!c->effort || none || set_default(*kwargs, "reasoning_effort", json_string(c->effort))) &&
        (think < 0 || (set_default(*kwargs, "enable_thinking", json_boolean(think)) &&
                       set_default(*kwargs, "thinking", json_boolean(think)))))
        return true;
    json_decref(*kwargs);
    return api_fail(err, 503, NULL, "no memory for this request");
}

/* ---- all of it ---- */

/* The checked conversation as text, kept by r. */
static bool write_json(api_request *r, const conversation *c, json_t *tools, json_t *kwargs,
                       api_error *err)
{
    json_t *talk = json_pack("{s:O, s:O*, s:O, s:o*}", "messages", c->messages, "tools", tools,
                             "chat_template_kwargs", kwargs, "continue_final_message",
                             c->go_on ? json_true() : NULL);
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

/* Takes the reference of `all`. */
static void set_called(api_request *r, const conversation *c, json_t *all)
{
    r->called = (api_called){.tools = all,
                             .required = c->choice == TOOLS_REQUIRED || c->choice == TOOLS_NAMED,
                             .only = c->choice == TOOLS_NAMED ? c->named : NULL};
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *function = json_object_get(json_array_get(all, i), "function");
        if (json_is_true(json_object_get(function, "strict"))) r->called.strict = true;
    }
    if (c->choice == TOOLS_NAMED) r->output.one_call = true;
}

static bool set_output(api_request *r, const conversation *c, json_t *tools, api_error *err)
{
    bool later = json_array_size(c->later) && c->choice != TOOLS_NONE;
    r->output = (api_output){.parts = true,
                             .calls = tools || later,
                             .reasoning = !c->plain_text,
                             .whole_calls = c->whole_calls || !r->stream,
                             .one_call = c->one_call};
    if (!r->output.calls) return true;
    json_t *all = json_array();
    bool made = all && (!tools || json_array_extend(all, tools) == 0) &&
                (!later || json_array_extend(all, c->later) == 0) &&
                tool_types_create(all, &r->output.types) == RAD_OK;
    set_called(r, c, all);
    if (!made) return api_fail(err, 503, NULL, "no memory for this request");
    size_t bytes = tool_types_bytes(r->output.types);
    if (memory_budget_take(r->room.budget, bytes)) {
        r->output.types_bytes = bytes;
        return true;
    }
    tool_types_destroy(r->output.types);
    r->output.types = NULL;
    return api_fail(err, 503, NULL, "no memory for this request");
}

/* What is to be gone on from is the assistant's words. */
static bool check_last(const conversation *c, const chat_message *last, api_error *err)
{
    const json_t *message = json_array_get(c->messages, json_array_size(c->messages) - 1);
    if (!strcmp(last->role, "assistant") && last->content_len &&
        !json_array_size(json_object_get(message, "tool_calls")))
        return true;
    return api_fail(err, 400, "continue_final_message",
                    "the last message cannot be gone on from: it is not the assistant's, or has no "
                    "words, or calls a tool");
}

bool conversation_set(api_request *r, conversation *c, api_error *err)
{
    size_t n = json_array_size(c->messages);
    if (!json_is_array(c->messages) || !n)
        return api_fail(err, 400, "messages",
                        "'messages' must be a list with at least one message");
    chat_message *read = api_request_alloc(r, n, sizeof *read, err);
    if (!read) return false;
    for (size_t i = 0; i < n; i++)
        if (!parse_message(r, json_array_get(c->messages, i), i, &read[i], err)) return false;
    json_t *kwargs = NULL, *tools = NULL;
    if (!check_tools(c, err)) return false;
    if (json_array_size(c->tools) && c->choice != TOOLS_NONE) tools = c->tools;
    if (!set_output(r, c, tools, err) || !make_kwargs(c, &kwargs, err)) return false;
    if (c->go_on && !check_last(c, &read[n - 1], err)) {
        json_decref(kwargs);
        return false;
    }
    bool fine = true;
    if (c->go_on || tools || json_object_size(kwargs) || !is_plain(c->messages)) {
        fine = normalise(r, c->messages, read, err) && write_json(r, c, tools, kwargs, err);
    } else {
        r->items[0].messages = read;
        r->items[0].num_messages = (uint32_t)n;
        r->messages = json_incref(c->messages); /* which they point into */
    }
    json_decref(kwargs);
    return fine;
}
