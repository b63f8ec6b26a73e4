/* anthropic_in.c - the body of POST /v1/messages as a conversation.
 *
 *     system                       one message, before all others
 *     user: text, tool_result      messages of user and tool, in their order
 *     assistant: thinking, text, tool_use    one message
 *
 * A block that cannot be read as text is refused by its type. `cache_control` asks that the prompt
 * up to it be kept: where the last one stands is remembered in terms of the conversation, and found
 * in the prompt's ids later (pins.c).
 *
 * A tool with `defer_loading` does not reach the template: the model reads its definition where the
 * history refers to it first. So the front of the prompt, which the cache has, stays as it was. */
#include "server/api_fields.h"
#include "server/api_forms.h"
#include "server/talk.h"

#include <stdlib.h>
#include <string.h>

#define NS_A_SECOND UINT64_C(1000000000)

typedef struct reader {
    talk talk;
    api_error *err;
    uint64_t pin_ns;
    json_t *deferred; /* {name: definition as text} of those that nothing has referred to yet */
    bool marked;      /* by the block that is being read */
    api_mark mark;
} reader;

static bool is(const json_t *value, const char *word)
{
    size_t len = strlen(word);
    return json_string_length(value) == len && !memcmp(json_string_value(value), word, len);
}

/* {"type": "ephemeral", "ttl": "5m" or "1h"} */
static bool read_marker(reader *in, const json_t *object)
{
    const json_t *marker = json_in_get(object, "cache_control");
    const json_t *ttl = json_in_get(marker, "ttl");
    if (!marker) return true;
    if (!is(json_object_get(marker, "type"), "ephemeral") ||
        (ttl && !is(ttl, "5m") && !is(ttl, "1h")))
        return api_fail(in->err, 400, "cache_control",
                        "'cache_control' is {\"type\": \"ephemeral\"}, with a ttl of 5m or 1h");
    uint64_t minutes = ttl && is(ttl, "1h") ? 60 : 5;
    in->pin_ns = RAD_MAX(in->pin_ns, minutes * 60 * NS_A_SECOND);
    in->marked = true;
    return true;
}

static uint64_t words_of(const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    uint64_t bytes = json_string_length(content);
    for (size_t i = 0; i < json_array_size(content); i++)
        bytes += json_string_length(json_object_get(json_array_get(content, i), "text"));
    return bytes;
}

/* Where the conversation ends so far. */
static api_mark end_of(const talk *t)
{
    size_t n = json_array_size(t->messages);
    return (api_mark){.tools = (uint32_t)json_array_size(t->tools),
                      .messages = (uint32_t)n,
                      .bytes = n ? words_of(json_array_get(t->messages, n - 1)) : 0};
}

/* The block has been read. */
static void note_mark(reader *in)
{
    if (in->marked) in->mark = end_of(&in->talk);
    in->marked = false;
}

/* The text of a block that must be one; NULL and words. */
static json_t *text_of(reader *in, json_t *block, const char *where)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    json_t *text = json_object_get(block, "text");
    if (!json_is_object(block) || !type) {
        api_fail(in->err, 400, where, "%s: a block is an object with a type", where);
        return NULL;
    }
    if (strcmp(type, "image") == 0 || strcmp(type, "document") == 0) {
        api_fail(in->err, 400, where,
                 "%s: images and documents are not supported: this server "
                 "reads text",
                 where);
        return NULL;
    }
    if (strcmp(type, "text") != 0) {
        char word[48];
        api_fail(in->err, 400, where, "%s: a block of type '%s' is not supported here", where,
                 api_shown(type, word, sizeof word));
        return NULL;
    }
    if (!json_is_string(text)) {
        api_fail(in->err, 400, where, "%s: a text block has no 'text'", where);
        return NULL;
    }
    return api_check_fields(block, IN_BLOCK, in->err) && read_marker(in, block) ? text : NULL;
}

/* ---- tools that are told of in the history ---- */

static json_t *definition_of(reader *in, json_t *tool)
{
    json_t *object = json_pack("{s:O, s:O*, s:O*}", "name", json_object_get(tool, "name"),
                               "description", json_in_get(tool, "description"), "parameters",
                               json_in_get(tool, "input_schema"));
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_t *line = text ? json_sprintf("\nThis tool can be called from here on: "
                                       "{\"type\":\"function\",\"function\":%s}\n",
                                       text)
                        : NULL;
    if (!line) in->talk.failed = true;
    free(text);
    json_decref(object);
    return line;
}

/* `told`: the history tells of it. */
static bool read_tool(reader *in, json_t *tool, bool told)
{
    json_t *name = json_object_get(tool, "name");
    const json_t *type = json_in_get(tool, "type");
    char word[48];
    if (!json_string_length(name))
        return api_fail(in->err, 400, "messages", "a tool_definition has no 'name'");
    if (type && !is(type, "custom"))
        return api_fail(
            in->err, 400, "tools",
            "the tool '%s' is one that Anthropic's servers run; this server runs "
            "none: give tools with an 'input_schema'",
            api_shown(json_string_value(type) ? json_string_value(type) : "", word, sizeof word));
    bool deferred = false;
    if (!api_check_fields(tool, IN_MESSAGES_TOOL, in->err) || !read_marker(in, tool) ||
        !json_in_bool(tool, "defer_loading", &deferred, in->err))
        return false;
    if ((deferred || told) && !in->talk.failed) {
        json_t *line = definition_of(in, tool);
        if (!line || json_object_set_new(in->deferred, json_string_value(name), line) != 0)
            in->talk.failed = true;
    }
    talk_tool(&in->talk, name, json_in_get(tool, "description"), json_in_get(tool, "input_schema"),
              json_in_get(tool, "strict"), deferred || told);
    return true;
}

static bool read_tools(reader *in, const json_t *tools)
{
    if (tools && !json_is_array(tools))
        return api_fail(in->err, 400, "tools", "'tools' must be a list");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *tool = json_array_get(tools, i);
        if (!json_string_length(json_object_get(tool, "name")))
            return api_fail(in->err, 400, "tools", "tools[%zu] has no 'name'", i);
        if (!read_tool(in, tool, false)) return false;
        note_mark(in);
    }
    if (json_array_size(tools) && !json_array_size(in->talk.tools) && !in->talk.failed)
        return api_fail(in->err, 400, "tools",
                        "'defer_loading' is true for all tools: one at least must be there from "
                        "the beginning, to find the others with");
    return true;
}

/* What the model reads where a tool is referred to: its definition, which stands there once, so
 * that a short body cannot make a long prompt. */
static json_t *told_of(reader *in, const json_t *name, const char *where)
{
    const char *word = json_string_value(name);
    json_t *line = word ? json_incref(json_object_get(in->deferred, word)) : NULL;
    if (!word) {
        api_fail(in->err, 400, where, "%s: a reference to a tool has no name", where);
        return NULL;
    }
    if (line && json_is_string(line)) {
        if (json_object_set_new(in->deferred, word, json_null()) != 0) in->talk.failed = true;
        return line;
    }
    line = line ? json_sprintf("\nThe tool %s can be called.\n", word)
                : json_sprintf("\nThe tool %s is in the list of tools, or is not there.\n", word);
    if (!line) in->talk.failed = true;
    return line;
}

/* A block of a system message in the middle: tools come and go. */
static bool read_change(reader *in, json_t *block, bool added)
{
    json_t *tool = json_object_get(block, "tool"), *line = NULL;
    const json_t *type = json_object_get(tool, "type"), *name = json_object_get(tool, "name");
    if (!api_check_fields(block, IN_BLOCK, in->err) || !api_check_fields(tool, IN_BLOCK, in->err))
        return false;
    if (added && is(type, "tool_definition")) {
        json_t *definition = json_object_get(tool, "definition");
        if (!read_tool(in, definition, true)) return false;
        name = json_object_get(definition, "name");
    } else if (!is(type, "tool_reference")) {
        return api_fail(in->err, 400, "messages",
                        "the 'tool' of a tool_addition is a tool_definition or a tool_reference, "
                        "that of a tool_removal a tool_reference");
    }
    if (added || !json_is_string(name)) {
        line = told_of(in, name, "messages");
        if (!line && !in->talk.failed) return false;
    } else {
        line = json_sprintf("\nThe tool %s cannot be called any more.\n", json_string_value(name));
        if (!line) in->talk.failed = true;
    }
    talk_role(&in->talk, "system");
    if (line) talk_text(&in->talk, line);
    json_decref(line);
    return true;
}

/* ---- messages ---- */

/* A line that some clients put first, other in each request: it is about them, and everything
 * behind it would be computed anew. */
static bool is_clients_own(const json_t *text)
{
    static const char words[] = "x-anthropic-billing-header:";
    return json_string_length(text) >= strlen(words) &&
           !memcmp(json_string_value(text), words, strlen(words));
}

static bool read_system(reader *in, json_t *system)
{
    if (!system) return true;
    if (json_is_string(system)) {
        talk_role(&in->talk, "system");
        talk_text(&in->talk, system);
        return true;
    }
    if (!json_is_array(system))
        return api_fail(in->err, 400, "system", "'system' is a string or a list of text blocks");
    for (size_t i = 0; i < json_array_size(system); i++) {
        json_t *block = json_array_get(system, i), *text;
        const json_t *type = json_object_get(block, "type");
        if (is(type, "tool_addition") || is(type, "tool_removal")) {
            if (!read_change(in, block, is(type, "tool_addition"))) return false;
            continue;
        }
        text = text_of(in, block, "system");
        if (!text) return false;
        if (!is_clients_own(text)) {
            talk_role(&in->talk, "system");
            talk_text(&in->talk, text);
        }
        note_mark(in);
    }
    return true;
}

static bool read_result(reader *in, json_t *block)
{
    json_t *content = json_in_get(block, "content"), *parts = NULL;
    if (!json_is_string(json_object_get(block, "tool_use_id")))
        return api_fail(in->err, 400, "messages", "a tool_result has no 'tool_use_id'");
    if (json_is_array(content)) {
        parts = json_array();
        for (size_t i = 0; i < json_array_size(content); i++) {
            json_t *part = json_array_get(content, i), *text;
            if (is(json_object_get(part, "type"), "tool_reference"))
                text = told_of(in, json_object_get(part, "tool_name"), "tool_result");
            else if (is(json_object_get(part, "type"), "image") ||
                     is(json_object_get(part, "type"), "document"))
                text = json_string(UNSEEN_RESULT);
            else
                text = json_incref(text_of(in, part, "tool_result"));
            if (!text && !in->talk.failed) {
                json_decref(parts);
                return false;
            }
            if (!talk_add_part(parts, text)) in->talk.failed = true;
            json_decref(text);
        }
    } else if (content && !json_is_string(content)) {
        return api_fail(in->err, 400, "messages",
                        "the 'content' of a tool_result is a string or a list of text blocks");
    }
    talk_result(&in->talk, json_object_get(block, "tool_use_id"), NULL, parts ? parts : content);
    json_decref(parts);
    return true;
}

static bool read_use(reader *in, json_t *block)
{
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name");
    json_t *input = json_in_get(block, "input");
    if (!json_is_string(id) || !json_is_string(name) || (input && !json_is_object(input)))
        return api_fail(in->err, 400, "messages",
                        "a tool_use has an 'id', a 'name' and an object as 'input'");
    json_t *none = input ? NULL : json_object();
    talk_call(&in->talk, id, name, input ? input : none);
    json_decref(none);
    return true;
}

static bool read_block(reader *in, json_t *block, bool by_user)
{
    const json_t *type = json_object_get(block, "type");
    json_t *thinking = json_object_get(block, "thinking"), *text;
    const char *role = by_user ? "user" : "assistant";
    if (is(type, by_user ? "tool_result" : "tool_use")) {
        if (!api_check_fields(block, IN_BLOCK, in->err) || !read_marker(in, block)) return false;
        if (by_user) return read_result(in, block);
        talk_role(&in->talk, role);
        return read_use(in, block);
    }
    if (!by_user && is(type, "redacted_thinking")) return true; /* nobody here can read it */
    if (!by_user && is(type, "thinking")) {
        if (!json_is_string(thinking))
            return api_fail(in->err, 400, "messages", "a thinking block has no 'thinking'");
        talk_role(&in->talk, role);
        talk_reasoning(&in->talk, thinking);
        return api_check_fields(block, IN_BLOCK, in->err);
    }
    text = text_of(in, block, "messages");
    if (!text) return false;
    talk_role(&in->talk, role);
    talk_text(&in->talk, text);
    return true;
}

static bool read_message(reader *in, json_t *message, size_t index)
{
    const json_t *role = json_object_get(message, "role");
    json_t *content = json_in_get(message, "content");
    bool by_user = is(role, "user");
    if (!by_user && !is(role, "assistant") && !is(role, "system"))
        return api_fail(in->err, 400, "messages",
                        "messages[%zu]: the role is user or assistant, and 'system' stands beside "
                        "'messages'",
                        index);
    talk_close(&in->talk);
    if (json_is_string(content)) {
        talk_role(&in->talk, json_string_value(role));
        talk_text(&in->talk, content);
        return true;
    }
    if (!json_is_array(content))
        return api_fail(in->err, 400, "messages",
                        "messages[%zu]: 'content' is a string or a list of blocks", index);
    if (is(role, "system")) return read_system(in, content);
    for (size_t i = 0; i < json_array_size(content); i++) {
        if (!read_block(in, json_array_get(content, i), by_user)) return false;
        note_mark(in);
    }
    return true;
}

static bool read_choice(reader *in, const json_t *choice, conversation *c)
{
    const json_t *type = json_object_get(choice, "type");
    if (!choice) return true;
    if (is(type, "none"))
        c->choice = TOOLS_NONE;
    else if (is(type, "any"))
        c->choice = TOOLS_REQUIRED;
    else if (is(type, "tool"))
        c->choice = TOOLS_NAMED, c->named = json_string_value(json_object_get(choice, "name"));
    else if (!is(type, "auto"))
        return api_fail(in->err, 400, "tool_choice",
                        "the 'type' of 'tool_choice' is auto, any, tool or none");
    return json_in_bool(choice, "disable_parallel_tool_use", &c->one_call, in->err);
}

static bool read_thinking(reader *in, const json_t *root, conversation *c)
{
    const json_t *thinking = json_in_get(root, "thinking");
    const json_t *type = json_object_get(thinking, "type");
    const json_t *output = json_in_get(root, "output_config");
    if (is(type, "enabled"))
        c->think = 1;
    else if (is(type, "disabled"))
        c->think = 0;
    else if (thinking && !is(type, "adaptive"))
        return api_fail(in->err, 400, "thinking",
                        "the 'type' of 'thinking' is enabled, disabled or adaptive");
    return api_check_fields(output, IN_OUTPUT_CONFIG, in->err) &&
           json_in_string(output, "effort", &c->effort, in->err) &&
           api_parse_format(in->talk.r, json_in_get(output, "format"), "output_config.format",
                            &in->talk.r->items[0], in->err) &&
           api_parse_format(in->talk.r, json_in_get(root, "output_format"), "output_format",
                            &in->talk.r->items[0], in->err);
}

/* Under the names that api_parse_sampling knows; r->root keeps it. */
static bool read_sampling(api_request *r, api_error *err)
{
    static const char *const same[] = {"temperature", "top_p", "top_k"};
    json_t *object = json_object(), *stop = json_in_get(r->root, "stop_sequences");
    bool kept = object && (!stop || json_object_set(object, "stop", stop) == 0);
    for (size_t i = 0; i < RAD_COUNT(same); i++) {
        json_t *value = json_in_get(r->root, same[i]);
        if (value && kept) kept = json_object_set(object, same[i], value) == 0;
    }
    if (json_object_set_new(r->root, "sampling", object) != 0 || !kept)
        return api_fail(err, 503, NULL, "no memory for this request");
    return api_parse_sampling(r, object, &r->items[0], err);
}

static bool read_talk(reader *in, const json_t *root, conversation *c)
{
    const json_t *messages = json_in_get(root, "messages");
    if (!json_is_array(messages) || !json_array_size(messages))
        return api_fail(in->err, 400, "messages",
                        "'messages' must be a list with at least one message");
    if (!read_tools(in, json_in_get(root, "tools")) ||
        !read_system(in, json_in_get(root, "system")))
        return false;
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!read_message(in, json_array_get(messages, i), i)) return false;
    /* A prefill: the answer goes on from it. */
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    c->go_on = is(json_object_get(last, "role"), "assistant");
    return read_choice(in, json_in_get(root, "tool_choice"), c) && read_thinking(in, root, c);
}

/* Both endpoints; `counts`: nothing will be computed. */
static bool parse(api_request *r, bool counts, api_error *err)
{
    reader in = {.err = err};
    conversation c = {.think = -1};
    int64_t max_tokens = -1;
    if (!talk_begin(&in.talk, r, err)) return false;
    in.deferred = json_object();
    if (!in.deferred) in.talk.failed = true;
    bool done = read_talk(&in, r->root, &c) && read_marker(&in, r->root) &&
                json_in_bool(r->root, "stream", &r->stream, err) &&
                json_in_int(r->root, "max_tokens", 1, INT32_MAX, &max_tokens, err) &&
                (counts || read_sampling(r, err));
    if (done && max_tokens < 0 && !counts)
        done = api_fail(err, 400, "max_tokens", "'max_tokens' is missing");
    note_mark(&in);
    api_mark end = end_of(&in.talk);
    in.mark.inside = in.pin_ns && (in.mark.messages != end.messages || in.mark.bytes != end.bytes);
    r->mark = in.mark;
    c.whole_calls = !r->stream;
    if (done) done = api_parse_routing(r, r->root, err) && talk_end(&in.talk, &c, err);
    talk_fini(&in.talk);
    json_decref(in.deferred);
    r->items[0].max_new_tokens = max_tokens;
    r->pin_ns = in.pin_ns;
    return done;
}

bool messages_parse(api_request *r, api_error *err)
{
    return parse(r, false, err);
}

bool count_tokens_parse(api_request *r, api_error *err)
{
    return parse(r, true, err);
}
