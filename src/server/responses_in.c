/* responses_in.c - the body of POST /v1/responses as a conversation.
 *
 *     instructions                      one message, before all others
 *     the items of previous_response_id, and of those before it, then `input`:
 *       message                         a message of its role
 *       reasoning, function_call        the assistant's, until another role speaks
 *       function_call_output            a tool's
 *
 * A custom tool takes free text: the model is told of a function with one argument, `input`, and
 * what it gives for that is what the client gets. A namespace is functions whose names, for the
 * model, begin with its own (tool_names.h). Tools that OpenAI's servers would run are refused
 * by their type. */
#include "server/api_fields.h"
#include "server/api_forms.h"
#include "server/response_store.h"
#include "server/talk.h"
#include "server/tool_names.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    talk talk;
    api_error *err;
    json_t *free_text; /* the parameters of a custom tool */
} reader;

static bool is(const json_t *value, const char *word)
{
    size_t len = strlen(word);
    return json_string_length(value) == len && !memcmp(json_string_value(value), word, len);
}

static bool refuse(reader *in, const char *param, const char *what, const json_t *type)
{
    char word[48];
    const char *name = json_string_value(type);
    return api_fail(in->err, 400, param, "%s of type '%s' is not supported", what,
                    api_shown(name ? name : "", word, sizeof word));
}

static bool is_unseen(const json_t *part)
{
    const json_t *type = json_object_get(part, "type");
    return is(type, "input_image") || is(type, "input_file") || is(type, "input_audio");
}

/* The text of a part of a content; NULL and words. */
static json_t *part_text(reader *in, json_t *part)
{
    const json_t *type = json_object_get(part, "type");
    json_t *text = json_object_get(part, is(type, "refusal") ? "refusal" : "text");
    if (is_unseen(part))
        api_fail(in->err, 400, "input",
                 "images, files and audio are not supported: this server reads text");
    else if (!is(type, "input_text") && !is(type, "output_text") && !is(type, "refusal") &&
             !is(type, "text"))
        refuse(in, "input", "a part", type);
    else if (!json_is_string(text))
        api_fail(in->err, 400, "input", "a part has no text");
    else
        return text;
    return NULL;
}

static bool read_content(reader *in, json_t *content)
{
    if (json_is_string(content)) {
        talk_text(&in->talk, content);
        return true;
    }
    if (!json_is_array(content))
        return api_fail(in->err, 400, "input", "the 'content' of a message is a string or a list");
    for (size_t i = 0; i < json_array_size(content); i++) {
        json_t *text = part_text(in, json_array_get(content, i));
        if (!text) return false;
        talk_text(&in->talk, text);
    }
    return true;
}

static bool read_message(reader *in, json_t *item)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const json_t *role = json_object_get(item, "role");
    const char *known = NULL;
    for (size_t i = 0; i < RAD_COUNT(roles); i++)
        if (is(role, roles[i])) known = roles[i];
    if (!known)
        return api_fail(in->err, 400, "input",
                        "the role of a message is user, assistant, system or developer");
    if (strcmp(known, "assistant") != 0) talk_close(&in->talk);
    talk_role(&in->talk, known);
    return read_content(in, json_in_get(item, "content"));
}

/* What a tool gave back; `output` is a string or a list of parts. */
static bool read_output(reader *in, json_t *item)
{
    json_t *output = json_in_get(item, "output"), *parts = NULL;
    if (!json_is_string(json_object_get(item, "call_id")))
        return api_fail(in->err, 400, "input", "an output of a call has no 'call_id'");
    if (json_is_array(output)) {
        parts = json_array();
        for (size_t i = 0; i < json_array_size(output); i++) {
            json_t *part = json_array_get(output, i);
            json_t *text = is_unseen(part) ? json_string(UNSEEN_RESULT)
                                           : json_incref(part_text(in, part));
            if (!text && !is_unseen(part)) {
                json_decref(parts);
                return false;
            }
            if (!talk_add_part(parts, text)) in->talk.failed = true;
            json_decref(text);
        }
    } else if (output && !json_is_string(output)) {
        return api_fail(in->err, 400, "input",
                        "the 'output' of a call is a string or a list of texts");
    }
    talk_result(&in->talk, json_object_get(item, "call_id"), NULL, parts ? parts : output);
    json_decref(parts);
    return true;
}

static bool read_call(reader *in, json_t *item, bool custom)
{
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name");
    json_t *space = json_in_get(item, "namespace"), *joined = NULL;
    json_t *arguments = json_object_get(item, custom ? "input" : "arguments"), *made = NULL;
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments))
        return api_fail(in->err, 400, "input", "a call has a 'call_id', a 'name' and '%s'",
                        custom ? "input" : "arguments");
    if (custom) made = json_pack("{s:O}", "input", arguments);
    if (json_string_length(space)) joined = tool_name_join(space, name);
    talk_role(&in->talk, "assistant");
    talk_call(&in->talk, id, joined ? joined : name, custom ? made : arguments);
    if ((custom && !made) || (json_string_length(space) && !joined)) in->talk.failed = true;
    json_decref(made);
    json_decref(joined);
    return true;
}

/* Its content, or the summary where that is all there is. */
static bool read_reasoning(reader *in, json_t *item)
{
    const json_t *parts = json_in_get(item, "content");
    if (!json_array_size(parts)) parts = json_in_get(item, "summary");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        json_t *text = json_object_get(json_array_get(parts, i), "text");
        if (!json_is_string(text)) continue;
        talk_role(&in->talk, "assistant");
        talk_reasoning(&in->talk, text);
    }
    return true;
}

static bool read_item(reader *in, json_t *item)
{
    const json_t *type = json_in_get(item, "type");
    if (!json_is_object(item)) return api_fail(in->err, 400, "input", "an item is no object");
    if (!type || is(type, "message")) return read_message(in, item);
    if (is(type, "function_call")) return read_call(in, item, false);
    if (is(type, "custom_tool_call")) return read_call(in, item, true);
    if (is(type, "function_call_output") || is(type, "custom_tool_call_output"))
        return read_output(in, item);
    if (is(type, "reasoning")) return read_reasoning(in, item);
    return refuse(in, "input", "an item", type);
}

static bool read_tool(reader *in, api_request *r, json_t *tool, const json_t *space)
{
    json_t *name = json_object_get(tool, "name");
    const json_t *type = json_object_get(tool, "type"), *inner = json_in_get(tool, "tools");
    bool custom = is(type, "custom") && !space, functions = is(type, "namespace") && !space;
    if (!custom && !functions && !is(type, "function")) {
        char word[48];
        const char *shown = json_string_value(type);
        return api_fail(in->err, 400, "tools",
                        "a tool of type '%s' is one that OpenAI's servers run; this server runs "
                        "none: switch it off in the client",
                        api_shown(shown ? shown : "", word, sizeof word));
    }
    if (!tool_name_is_fine(name))
        return api_fail(in->err, 400, "tools", "a tool has no 'name', or one with line breaks");
    if (!api_check_fields(tool, IN_RESPONSES_TOOL, in->err)) return false;
    if (functions) {
        for (size_t i = 0; i < json_array_size(inner); i++)
            if (!read_tool(in, r, json_array_get(inner, i), name)) return false;
        return true;
    }
    json_t *joined = space ? tool_name_join(space, name) : json_incref(name);
    bool kept = joined && ((!custom && !space) || tool_names_add(&r->kept, space, name));
    if (kept)
        talk_tool(&in->talk, joined, json_in_get(tool, "description"),
                  custom ? in->free_text : json_in_get(tool, "parameters"),
                  json_in_get(tool, "strict"), false);
    json_decref(joined);
    return kept || api_fail(in->err, 503, NULL, "no memory for this request");
}

static bool read_tools(reader *in, api_request *r, const json_t *tools)
{
    if (tools && !json_is_array(tools))
        return api_fail(in->err, 400, "tools", "'tools' must be a list");
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!read_tool(in, r, json_array_get(tools, i), NULL)) return false;
    return true;
}

static bool read_choice(reader *in, const json_t *choice, conversation *c)
{
    if (!choice || is(choice, "auto")) return true;
    if (is(choice, "none"))
        c->choice = TOOLS_NONE;
    else if (is(choice, "required"))
        c->choice = TOOLS_REQUIRED;
    else if (json_is_object(choice))
        c->choice = TOOLS_NAMED, c->named = json_string_value(json_object_get(choice, "name"));
    else
        return api_fail(in->err, 400, "tool_choice",
                        "'tool_choice' is auto, none, required, or names a function");
    return true;
}

static bool read_settings(reader *in, const json_t *root, conversation *c)
{
    const json_t *reasoning = json_in_get(root, "reasoning"), *text = json_in_get(root, "text");
    const json_t *format = json_in_get(text, "format"), *include = json_in_get(root, "include");
    bool parallel = true;
    if (!api_parse_format(in->talk.r, format, "text.format", &in->talk.r->items[0], in->err))
        return false;
    for (size_t i = 0; i < json_array_size(include); i++)
        if (is(json_array_get(include, i), "message.output_text.logprobs"))
            return api_fail(in->err, 400, "include", "logprobs are told by /v1/chat/completions");
    if (!api_check_fields(reasoning, IN_REASONING, in->err) ||
        !api_check_fields(text, IN_RESPONSES_TEXT, in->err) ||
        !json_in_string(reasoning, "effort", &c->effort, in->err) ||
        !json_in_bool(root, "parallel_tool_calls", &parallel, in->err))
        return false;
    c->one_call = !parallel;
    return true;
}

/* ---- references ----
 *
 * {"type": "item_reference", "id": "fc_ID_0"} stands for an item of the answer resp_ID: clients
 * that know it stored send back no more of it. */

enum { MOST_ID = 120 };

/* "resp_ID" of an item's id; false: it is none of ours. */
static bool response_of(const char *item, char *id, size_t size)
{
    const char *from = item ? strchr(item, '_') : NULL, *to = from ? strrchr(item, '_') : NULL;
    if (!to || to == from) return false;
    const int len = snprintf(id, size, "resp_%.*s", (int)RAD_MIN(to - from - 1, MOST_ID), from + 1);
    return len > 0 && (size_t)len < size;
}

/* A reference to its item, or NULL and words. *answer: the one that was read last, as *id. */
static json_t *referred(api_request *r, const json_t *item, json_t **answer, char *id, size_t size,
                        api_error *err)
{
    const char *name = json_string_value(json_object_get(item, "id"));
    const api_context *at = r->context;
    char wanted[MOST_ID + 8], word[80];
    stored_copy object;
    if (response_of(name, wanted, sizeof wanted)) {
        if (strcmp(wanted, id) != 0 && at && at->store &&
            response_store_get(at->store, at->owner, wanted, at->now_ns, &object, NULL, NULL)) {
            json_decref(*answer);
            *answer = json_in_object(object.data, object.len, &r->room, err);
            free(object.data);
            if (!*answer) return NULL;
            snprintf(id, size, "%s", wanted);
        }
        const json_t *output = strcmp(wanted, id) ? NULL : json_object_get(*answer, "output");
        for (size_t i = 0; i < json_array_size(output); i++)
            if (is(json_object_get(json_array_get(output, i), "id"), name))
                return json_incref(json_array_get(output, i));
    }
    api_fail(err, 400, "input",
             "the item '%s' is not here: its answer was not stored, is over an hour old, or had to "
             "make room",
             api_shown(name ? name : "", word, sizeof word));
    return NULL;
}

/* Puts the items in the place of references to them. */
static bool resolve(api_request *r, json_t *items, api_error *err)
{
    json_t *answer = NULL;
    char id[MOST_ID + 8] = "";
    bool done = true;
    for (size_t i = 0; i < json_array_size(items) && done; i++) {
        const json_t *item = json_array_get(items, i);
        if (!is(json_object_get(item, "type"), "item_reference")) continue;
        json_t *meant = referred(r, item, &answer, id, sizeof id, err);
        done = meant && json_array_set_new(items, i, meant) == 0;
        if (meant && !done) api_fail(err, 503, NULL, "no memory for this request");
    }
    json_decref(answer);
    return done;
}

/* The items so far, anew: those of the answer before this one, which are *num_before, then the
 * input's. NULL and words. */
static json_t *gather_items(api_request *r, json_t *input, const char *previous, size_t *num_before,
                            api_error *err)
{
    stored_copy text, ids;
    json_t *before = NULL;
    if (previous) {
        const api_context *at = r->context;
        if (!at || !at->store ||
            !response_store_get(at->store, at->owner, previous, at->now_ns, NULL, &text, &ids)) {
            char word[80];
            api_fail(err, 400, "previous_response_id",
                     "the response '%s' is not here: it was not stored, is over an hour old, or "
                     "had to make room",
                     api_shown(previous, word, sizeof word));
            err->code = "previous_response_not_found";
            return NULL;
        }
        before = json_in_object(text.data, text.len, &r->room, err);
        bool read = before && response_ids_read(r, ids.data, ids.len, err);
        free(text.data);
        free(ids.data);
        if (!read) {
            json_decref(before);
            return NULL;
        }
    }
    *num_before = json_array_size(json_object_get(before, "items"));
    json_t *items = json_array();
    bool kept = items &&
                (!before || json_array_extend(items, json_object_get(before, "items")) == 0);
    if (kept && json_is_string(input))
        kept = json_array_append_new(items, json_pack("{s:s, s:s, s:O}", "type", "message", "role",
                                                      "user", "content", input)) == 0;
    else if (kept && input)
        kept = json_array_extend(items, input) == 0;
    json_decref(before);
    if (kept && resolve(r, items, err)) return items;
    json_decref(items);
    if (!kept) api_fail(err, 503, NULL, "no memory for this request");
    return NULL;
}

/* Until the answer is out; its bytes count as the answer's do. */
static bool keep_json(api_request *r, char **out, size_t *len, const json_t *json)
{
    size_t bytes = json ? json_dumpb(json, NULL, 0, JSON_COMPACT) : 0;
    if (!bytes || !memory_budget_take(r->room.budget, bytes)) return false;
    r->kept.budget = r->room.budget;
    r->kept.bytes += bytes;
    *out = malloc(bytes);
    *len = *out ? json_dumpb(json, *out, bytes, JSON_COMPACT) : 0;
    return *len == bytes;
}

/* What the answer says again of its request: members of an object, as JSON. */
static bool keep_echo(api_request *r, api_error *err)
{
    static const struct {
        const char *name, *value; /* where it was not said, as JSON */
    } echoed[] = {{"instructions", "null"},
                  {"max_output_tokens", "null"},
                  {"metadata", "{}"},
                  {"parallel_tool_calls", "true"},
                  {"previous_response_id", "null"},
                  {"prompt_cache_key", "null"},
                  {"reasoning", "{\"effort\":null,\"summary\":null}"},
                  {"store", "true"},
                  {"temperature", "1.0"},
                  {"text", "{\"format\":{\"type\":\"text\"}}"},
                  {"tool_choice", "\"auto\""},
                  {"tools", "[]"},
                  {"top_p", "1.0"},
                  {"truncation", "\"disabled\""},
                  {"user", "null"}};
    json_t *object = json_object();
    bool kept = object != NULL;
    for (size_t i = 0; i < RAD_COUNT(echoed); i++) {
        json_t *value = json_in_get(r->root, echoed[i].name);
        json_t *given = value ? json_incref(value)
                              : json_loads(echoed[i].value, JSON_DECODE_ANY, NULL);
        if (json_object_set_new(object, echoed[i].name, given) != 0) kept = false;
    }
    kept = kept && keep_json(r, &r->kept.echo, &r->kept.echo_len, object);
    json_decref(object);
    return kept || api_fail(err, 503, NULL, "no memory for this request");
}

static bool keep_items(api_request *r, json_t *items, api_error *err)
{
    json_t *object = json_pack("{s:O}", "items", items);
    bool kept = !r->kept.store || keep_json(r, &r->kept.items, &r->kept.items_len, object);
    json_decref(object);
    return kept || api_fail(err, 503, NULL, "no memory for this request");
}

/* Where what is new begins, after one item of it; nowhere where it went on with a message. */
static void note_new(const reader *in, api_request *r, size_t messages)
{
    size_t now = json_array_size(in->talk.messages);
    r->history.num_messages = now > messages ? (uint32_t)messages : 0;
}

static bool read_talk(reader *in, api_request *r, json_t *items, size_t num_before, conversation *c)
{
    json_t *instructions = json_in_get(r->root, "instructions");
    if (instructions && !json_is_string(instructions))
        return api_fail(in->err, 400, "instructions", "'instructions' must be a string");
    if (instructions) {
        talk_role(&in->talk, "system");
        talk_text(&in->talk, instructions);
        talk_close(&in->talk);
    }
    if (!read_tools(in, r, json_in_get(r->root, "tools"))) return false;
    for (size_t i = 0; i < json_array_size(items); i++) {
        size_t messages = json_array_size(in->talk.messages);
        if (!read_item(in, json_array_get(items, i))) return false;
        if (num_before && i == num_before) note_new(in, r, messages);
    }
    if (!json_array_size(in->talk.messages))
        return api_fail(in->err, 400, "input", "there is nothing to answer");
    return read_choice(in, json_in_get(r->root, "tool_choice"), c) && read_settings(in, r->root, c);
}

bool responses_parse(api_request *r, api_error *err)
{
    reader in = {.err = err};
    conversation c = {.think = -1};
    json_t *input = json_in_get(r->root, "input");
    const char *previous = NULL;
    int64_t max_tokens = -1;
    r->kept.store = true;
    if (!input || (!json_is_string(input) && !json_is_array(input)))
        return api_fail(err, 400, "input", "'input' must be a string or a list of items");
    if (!talk_begin(&in.talk, r, err) || !json_in_bool(r->root, "stream", &r->stream, err) ||
        !json_in_bool(r->root, "store", &r->kept.store, err) ||
        !json_in_int(r->root, "max_output_tokens", 1, INT32_MAX, &max_tokens, err) ||
        !json_in_string(r->root, "previous_response_id", &previous, err)) {
        talk_fini(&in.talk);
        return false;
    }
    c.whole_calls = !r->stream;
    in.free_text = json_pack("{s:s, s:{s:{s:s}}, s:[s]}", "type", "object", "properties", "input",
                             "type", "string", "required", "input");
    size_t num_before = 0;
    json_t *items = gather_items(r, input, previous, &num_before, err);
    bool done = items && read_talk(&in, r, items, num_before, &c) && keep_items(r, items, err) &&
                keep_echo(r, err) && api_parse_pin(r, err) &&
                api_parse_sampling(r, r->root, &r->items[0], err) &&
                api_parse_routing(r, r->root, err) && talk_end(&in.talk, &c, err);
    json_decref(items);
    json_decref(in.free_text);
    talk_fini(&in.talk);
    r->items[0].max_new_tokens = max_tokens;
    return done;
}
