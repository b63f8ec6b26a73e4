/* ollama_in.c - the bodies of Ollama's /api/chat, /api/generate, /api/embed and /api/embeddings.
 *
 * The first two are conversations, but for `"raw": true`, whose prompt is the text itself. Settings
 * stand in `options` under names of their own. Without a message or a prompt there is nothing to
 * answer: clients ask so whether the model is there. */
#include "server/api_fields.h"
#include "server/api_forms.h"
#include "server/talk.h"

#include <string.h>

typedef struct reader {
    talk talk;
    api_error *err;
} reader;

static bool refuse_images(reader *in, const json_t *object)
{
    const json_t *images = json_in_get(object, "images");
    if (!images || !json_array_size(images)) return true;
    return api_fail(in->err, 400, "images", "images are not supported: this server reads text");
}

static bool read_calls(reader *in, const json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = json_array_get(calls, i), *function = json_object_get(call, "function");
        json_t *name = json_object_get(function, "name");
        if (!json_is_string(name))
            return api_fail(in->err, 400, "messages", "a tool call has no function with a name");
        talk_call(&in->talk, json_in_get(call, "id"), name, json_in_get(function, "arguments"));
    }
    return true;
}

static bool read_message(reader *in, json_t *message, size_t index)
{
    const char *role = NULL;
    json_t *content = json_in_get(message, "content"), *thinking = json_in_get(message, "thinking");
    if (!json_is_object(message) || !json_in_string(message, "role", &role, in->err) || !role)
        return api_fail(in->err, 400, "messages", "messages[%zu] has no 'role'", index);
    if ((content && !json_is_string(content)) || (thinking && !json_is_string(thinking)))
        return api_fail(in->err, 400, "messages",
                        "messages[%zu]: 'content' and 'thinking' are strings", index);
    if (!refuse_images(in, message)) return false;
    if (strcmp(role, "tool") == 0) {
        json_t *name = json_in_get(message, "tool_name");
        talk_result(&in->talk, json_in_get(message, "tool_call_id"),
                    name ? name : json_in_get(message, "name"), content);
        return true;
    }
    talk_close(&in->talk);
    talk_role(&in->talk, role);
    if (thinking) talk_reasoning(&in->talk, thinking);
    if (content) talk_text(&in->talk, content);
    return read_calls(in, json_in_get(message, "tool_calls"));
}

static bool read_tools(reader *in, const json_t *tools)
{
    if (tools && !json_is_array(tools))
        return api_fail(in->err, 400, "tools", "'tools' must be a list");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        json_t *name = json_object_get(function, "name");
        if (!json_is_string(name))
            return api_fail(in->err, 400, "tools", "tools[%zu] has no function with a name", i);
        talk_tool(&in->talk, name, json_in_get(function, "description"),
                  json_in_get(function, "parameters"), NULL, false);
    }
    return true;
}

/* Under the names that api_parse_sampling knows; r->root keeps it. */
static bool read_options(api_request *r, api_error *err)
{
    static const struct {
        const char *theirs, *ours;
    } names[] = {{"temperature", "temperature"},
                 {"top_k", "top_k"},
                 {"top_p", "top_p"},
                 {"min_p", "min_p"},
                 {"seed", "seed"},
                 {"stop", "stop"},
                 {"repeat_penalty", "repetition_penalty"},
                 {"presence_penalty", "presence_penalty"},
                 {"frequency_penalty", "frequency_penalty"}};
    const json_t *options = json_in_get(r->root, "options");
    json_t *object = json_object();
    bool kept = object != NULL;
    int64_t most = -1;
    if (options && !json_is_object(options)) {
        json_decref(object);
        return api_fail(err, 400, "options", "'options' must be an object");
    }
    for (size_t i = 0; i < RAD_COUNT(names); i++) {
        json_t *value = json_in_get(options, names[i].theirs);
        if (value && kept) kept = json_object_set(object, names[i].ours, value) == 0;
    }
    if (json_object_set_new(r->root, "sampling", object) != 0 || !kept)
        return api_fail(err, 503, NULL, "no memory for this request");
    if (!api_check_fields(options, IN_OLLAMA_OPTIONS, err) ||
        !json_in_int(options, "num_predict", -2, INT32_MAX, &most, err) ||
        !api_parse_sampling(r, object, &r->items[0], err))
        return false;
    r->items[0].max_new_tokens = most < 0 ? -1 : most;
    return api_parse_ollama_format(r, json_in_get(r->root, "format"), &r->items[0], err);
}

/* true, false, or how much. */
static bool read_think(const json_t *root, conversation *c, api_error *err)
{
    const json_t *think = json_in_get(root, "think");
    if (!think) return true;
    if (json_is_boolean(think))
        c->think = json_is_true(think);
    else if (!json_in_string(root, "think", &c->effort, err))
        return api_fail(err, 400, "think", "'think' is true, false, or how much, in a word");
    return true;
}

/* "story:latest" is "story". */
static bool read_model(api_request *r, api_error *err)
{
    static const char tag[] = ":latest";
    size_t len = r->model ? strlen(r->model) : 0, cut = strlen(tag);
    if (len <= cut || strcmp(r->model + len - cut, tag) != 0) return true;
    char *name = api_request_alloc(r, len - cut + 1, 1, err);
    if (name) r->model = memcpy(name, r->model, len - cut);
    return name != NULL;
}

/* Nothing will be asked of the engine. */
static bool ask_nothing(api_request *r)
{
    r->num_items = 0;
    return true;
}

static bool finish(reader *in, api_request *r, conversation *c)
{
    c->whole_calls = true;
    return read_think(r->root, c, in->err) && read_options(r, in->err) &&
           api_parse_routing(r, r->root, in->err) && talk_end(&in->talk, c, in->err);
}

static bool read_chat(reader *in, api_request *r)
{
    const json_t *messages = json_in_get(r->root, "messages");
    conversation c = {.think = -1};
    if (messages && !json_is_array(messages))
        return api_fail(in->err, 400, "messages", "'messages' must be a list");
    if (!read_tools(in, json_in_get(r->root, "tools"))) return false;
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!read_message(in, json_array_get(messages, i), i)) return false;
    if (!json_array_size(messages)) return ask_nothing(r);
    return finish(in, r, &c);
}

static bool read_generate(reader *in, api_request *r)
{
    json_t *prompt = json_in_get(r->root, "prompt"), *system = json_in_get(r->root, "system");
    conversation c = {.think = -1};
    bool raw = false;
    if ((prompt && !json_is_string(prompt)) || (system && !json_is_string(system)))
        return api_fail(in->err, 400, prompt ? "prompt" : "system",
                        "'prompt' and 'system' are strings");
    if (!refuse_images(in, r->root) || !json_in_bool(r->root, "raw", &raw, in->err)) return false;
    if (!json_string_length(prompt)) return ask_nothing(r);
    if (raw) {
        r->items[0].text = json_string_value(prompt);
        r->items[0].text_len = json_string_length(prompt);
        return read_options(r, in->err) && api_parse_routing(r, r->root, in->err);
    }
    if (json_string_length(system)) {
        talk_role(&in->talk, "system");
        talk_text(&in->talk, system);
    }
    talk_role(&in->talk, "user");
    talk_text(&in->talk, prompt);
    return finish(in, r, &c);
}

static bool parse(api_request *r, bool (*read)(reader *, api_request *), api_error *err)
{
    reader in = {.err = err};
    r->stream = true;
    bool done = talk_begin(&in.talk, r, err) && json_in_bool(r->root, "stream", &r->stream, err) &&
                read_model(r, err) && read(&in, r);
    talk_fini(&in.talk);
    return done;
}

/* Nothing of the options changes an embedding, but a misspelt one is refused here, too. An input
 * that does not fit is refused whatever `truncate` says: half a text has another meaning. */
static bool parse_embed(api_request *r, const char *key, api_error *err)
{
    const json_t *options = json_in_get(r->root, "options"), *input = json_in_get(r->root, key);
    bool truncate = true;
    if (options && !json_is_object(options))
        return api_fail(err, 400, "options", "'options' must be an object");
    if (!read_model(r, err) || !api_check_fields(options, IN_OLLAMA_OPTIONS, err) ||
        !json_in_bool(r->root, "truncate", &truncate, err))
        return false;
    const bool empty = (json_is_string(input) && !json_string_length(input)) ||
                       (json_is_array(input) && !json_array_size(input));
    if (!input || empty) return ask_nothing(r);
    return api_parse_embeddings(r, key, false, err);
}

bool ollama_embed_parse(api_request *r, api_error *err)
{
    return parse_embed(r, "input", err);
}

bool ollama_embeddings_parse(api_request *r, api_error *err)
{
    const json_t *prompt = json_in_get(r->root, "prompt");
    if (prompt && !json_is_string(prompt))
        return api_fail(err, 400, "prompt", "'prompt' must be a string");
    return parse_embed(r, "prompt", err);
}

bool ollama_chat_parse(api_request *r, api_error *err)
{
    return parse(r, read_chat, err);
}

bool ollama_generate_parse(api_request *r, api_error *err)
{
    return parse(r, read_generate, err);
}
