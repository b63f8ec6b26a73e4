/* api_request.c - what the dialects share. */
#include "server/api_fields.h"
#include "server/api_forms.h"
#include "server/api_prediction.h"
#include "server/api_sampling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct block {
    struct block *next;
    max_align_t data[];
};

void *api_request_alloc(api_request *r, size_t count, size_t size, api_error *err)
{
    size_t bytes;
    struct block *b = NULL;
    if (!__builtin_mul_overflow(count, size, &bytes) && bytes < SIZE_MAX / 2 &&
        memory_budget_take(r->room.budget, sizeof *b + bytes)) {
        r->room.taken += sizeof *b + bytes;
        b = calloc(1, sizeof *b + bytes);
    }
    if (!b) {
        api_fail(err, 503, NULL, "no memory for this request");
        return NULL;
    }
    b->next = r->blocks;
    r->blocks = b;
    return b->data;
}

void api_request_forget(api_request *r)
{
    while (r->blocks) {
        struct block *b = r->blocks;
        r->blocks = b->next;
        free(b);
    }
    json_decref(r->messages);
    json_decref(r->called.tools);
    json_decref(r->root);
    json_room_give_back(&r->room);
    r->root = r->messages = NULL;
    r->items = NULL;
    r->rid = r->model = NULL;
    r->session = (api_session){0};
    r->history.ids = NULL;
    r->history.rendering = NULL;
    r->called = (api_called){0};
}

void api_request_fini(api_request *r)
{
    api_request_forget(r);
    memory_budget_give(r->room.budget, r->output.types_bytes);
    tool_types_destroy(r->output.types);
    memory_budget_give(r->kept.budget, r->kept.bytes);
    free(r->kept.echo);
    free(r->kept.items);
    free(r->kept.ids);
    free(r->kept.tool_names);
    memset(r, 0, sizeof *r);
}

static bool parse_model(api_request *r, api_error *err)
{
    const char *user = NULL; /* of the OpenAI dialects; only its type is looked at */
    return json_in_string(r->root, "model", &r->model, err) &&
           json_in_string(r->root, "user", &user, err);
}

bool api_request_parse(api_kind kind, const char *body, size_t len, memory_budget *budget,
                       api_request *out, api_error *err)
{
    api_context at = {.budget = budget};
    return api_request_parse_at(kind, body, len, &at, out, err);
}

bool api_request_parse_at(api_kind kind, const char *body, size_t len, const api_context *at,
                          api_request *out, api_error *err)
{
    static const struct {
        bool (*parse)(api_request *, api_error *);
        unsigned place;
    } dialects[] = {
        [API_COMPLETIONS] = {completions_parse, IN_COMPLETIONS},
        [API_CHAT] = {chat_parse, IN_CHAT},
        [API_GENERATE] = {generate_parse, IN_GENERATE},
        [API_TOKENIZE] = {tokenize_parse, IN_TOKENIZE},
        [API_DETOKENIZE] = {detokenize_parse, IN_DETOKENIZE},
        [API_MESSAGES] = {messages_parse, IN_MESSAGES},
        [API_COUNT_TOKENS] = {count_tokens_parse, IN_MESSAGES},
        [API_RESPONSES] = {responses_parse, IN_RESPONSES},
        [API_OLLAMA_CHAT] = {ollama_chat_parse, IN_OLLAMA_CHAT},
        [API_OLLAMA_GENERATE] = {ollama_generate_parse, IN_OLLAMA_GENERATE},
        [API_PIN] = {pin_parse, IN_PIN},
        [API_EMBEDDINGS] = {embeddings_parse, IN_EMBEDDINGS},
        [API_OLLAMA_EMBED] = {ollama_embed_parse, IN_OLLAMA_EMBED},
        [API_OLLAMA_EMBEDDINGS] = {ollama_embeddings_parse, IN_OLLAMA_EMBEDDINGS},
    };
    memset(out, 0, sizeof *out);
    out->kind = kind;
    out->room.budget = at->budget;
    out->context = at;
    out->root = json_in_object(body, len, &out->room, err);
    bool done = out->root && api_check_fields(out->root, dialects[kind].place, err) &&
                parse_model(out, err) && dialects[kind].parse(out, err) &&
                api_expand_choices(out, err) && api_parse_session(out, err);
    out->context = NULL;
    if (!done) api_request_fini(out);
    return done;
}

bool api_parse_ids(api_request *r, const json_t *list, const char *key, rad_token **ids,
                   uint32_t *num_ids, api_error *err)
{
    size_t n = json_array_size(list); /* at most JSON_IN_MAX_VALUES */
    rad_token *out = api_request_alloc(r, n, sizeof *out, err);
    if (!out) return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id))
            return api_fail(err, 400, key, "'%s': token %zu is not an integer", key, i);
        json_int_t value = json_integer_value(id);
        if (value < 0 || value > INT32_MAX)
            return api_fail(err, 400, key, "'%s': token %zu (%lld) is not a token id", key, i,
                            (long long)value);
        out[i] = (rad_token)value;
    }
    *ids = out;
    *num_ids = (uint32_t)n;
    return true;
}

static bool parse_prompt(api_request *r, const json_t *value, const char *key, bool text_ok,
                         bool ids_ok, engine_request *item, api_error *err)
{
    if (text_ok && json_is_string(value)) {
        item->text = json_string_value(value);
        item->text_len = json_string_length(value);
        return true;
    }
    if (ids_ok && json_is_array(value)) {
        rad_token *ids = NULL;
        if (!json_array_size(value))
            return api_fail(err, 400, key, "'%s' holds an empty prompt", key);
        if (!api_parse_ids(r, value, key, &ids, &item->num_ids, err)) return false;
        item->ids = ids;
        return true;
    }
    return api_fail(err, 400, key, "'%s' must be %s%s%s, or a list of either", key,
                    text_ok ? "a string" : "", text_ok && ids_ok ? " or " : "",
                    ids_ok ? "a list of token ids" : "");
}

bool api_parse_prompts(api_request *r, const json_t *value, const char *key, bool text_ok,
                       bool ids_ok, api_error *err)
{
    const json_t *first = json_is_array(value) ? json_array_get(value, 0) : NULL;
    size_t count = 1;
    if (json_is_array(value) && !first)
        return api_fail(err, 400, key, "'%s' must not be an empty list", key);
    r->batch = first && !json_is_number(first); /* a list of numbers is one prompt */
    if (r->batch) count = json_array_size(value);
    if (count > API_MAX_PROMPTS)
        return api_fail(err, 400, key, "'%s' holds %zu prompts; at most %d fit in one request", key,
                        count, API_MAX_PROMPTS);
    r->items = api_request_alloc(r, count, sizeof *r->items, err);
    if (!r->items) return false;
    r->num_items = (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        if (!parse_prompt(r, r->batch ? json_array_get(value, i) : value, key, text_ok, ids_ok,
                          &r->items[i], err))
            return false;
    return true;
}

bool api_parse_key(const json_t *object, const char *key, const char **out, api_error *err)
{
    if (!json_in_string(object, key, out, err)) return false;
    if (*out && strlen(*out) > API_MAX_KEY_BYTES)
        return api_fail(err, 400, key, "'%s' is longer than %d bytes", key, API_MAX_KEY_BYTES);
    return true;
}

/* Inside the namespace of its owner's key a client still has his own. */
static bool add_space(api_request *r, const char **cache_salt, api_error *err)
{
    const char *space = r->context ? r->context->space : NULL;
    const char *own = *cache_salt ? *cache_salt : "";
    if (!space) return true;
    size_t len = strlen(space) + strlen(own) + 6;
    char *both = api_request_alloc(r, len, 1, err);
    if (both) snprintf(both, len, "key:%s:%s", space, own);
    *cache_salt = both;
    return both != NULL;
}

bool api_parse_routing(api_request *r, const json_t *object, api_error *err)
{
    int64_t priority = 0;
    const char *extra_key = NULL, *cache_salt = NULL;
    if (!json_in_int(object, "priority", INT32_MIN, INT32_MAX, &priority, err) ||
        !api_parse_key(object, "extra_key", &extra_key, err) ||
        !api_parse_key(object, "cache_salt", &cache_salt, err))
        return false;
    if (cache_salt && !*cache_salt)
        return api_fail(err, 400, "cache_salt",
                        "'cache_salt' must not be empty; leave it out to share with everybody");
    if (!add_space(r, &cache_salt, err)) return false;
    for (uint32_t i = 0; i < r->num_items; i++) {
        r->items[i].priority = (int32_t)priority;
        r->items[i].extra_key = extra_key;
        r->items[i].cache_salt = cache_salt;
    }
    return true;
}

bool api_parse_session(api_request *r, api_error *err)
{
    const json_t *params = json_in_get(r->root, "session_params");
    api_session *s = &r->session;
    if (!params) return true;
    if (!json_is_object(params))
        return api_fail(err, 400, "session_params", "'session_params' must be an object");
    if (!api_check_fields(params, IN_SESSION_PARAMS, err) ||
        !api_parse_key(params, "id", &s->id, err) || !api_parse_key(params, "rid", &s->rid, err) ||
        !json_in_int(params, "offset", -INT32_MAX, INT32_MAX, &s->offset, err) ||
        !json_in_bool(params, "replace", &s->replace, err) ||
        !json_in_bool(params, "drop_previous_output", &s->drop_previous_output, err))
        return false;
    if (!s->id && json_object_size(params))
        return api_fail(err, 400, "session_params", "'session_params' has no 'id'");
    if (s->id && (r->batch || r->num_items != 1))
        return api_fail(err, 400, "session_params",
                        "'session_params' is for one prompt with one answer");
    return true;
}

static bool parse_response_format(api_request *r, api_error *err)
{
    const json_t *format = json_in_get(r->root, "response_format");
    if (!json_is_object(format))
        return api_parse_format(r, format, "response_format", &r->items[0], err);
    return api_check_fields(format, IN_RESPONSE_FORMAT, err) &&
           api_parse_format(r, format, "response_format", &r->items[0], err);
}

static bool parse_stream_options(api_request *r, api_error *err)
{
    const json_t *options = json_in_get(r->root, "stream_options");
    if (options && !json_is_object(options))
        return api_fail(err, 400, "stream_options", "'stream_options' must be an object");
    if (options && !r->stream)
        return api_fail(err, 400, "stream_options", "'stream_options' wants 'stream': true");
    return api_check_fields(options, IN_STREAM_OPTIONS, err) &&
           json_in_bool(options, "include_usage", &r->include_usage, err);
}

void api_share_settings(api_request *r)
{
    for (uint32_t i = 1; i < r->num_items; i++) {
        engine_request copy = r->items[0];
        copy.text = r->items[i].text;
        copy.text_len = r->items[i].text_len;
        copy.ids = r->items[i].ids;
        copy.num_ids = r->items[i].num_ids;
        r->items[i] = copy;
    }
}

bool api_parse_pin(api_request *r, api_error *err)
{
    const char *key = NULL, *retention = NULL;
    if (!json_in_string(r->root, "prompt_cache_key", &key, err) ||
        !json_in_string(r->root, "prompt_cache_retention", &retention, err))
        return false;
    bool day = retention && strcmp(retention, "24h") == 0;
    if (key) r->pin_ns = (day ? UINT64_C(86400) : UINT64_C(300)) * 1000000000;
    return true;
}

bool api_parse_openai(api_request *r, api_error *err)
{
    if (!api_parse_pin(r, err)) return false;
    if (!json_in_bool(r->root, "stream", &r->stream, err) ||
        !json_in_bool(r->root, "return_token_ids", &r->return_token_ids, err) ||
        !parse_response_format(r, err) || !parse_stream_options(r, err) ||
        !api_parse_sampling(r, r->root, &r->items[0], err))
        return false;
    api_share_settings(r);
    return api_parse_prediction(r, err) && api_parse_routing(r, r->root, err);
}
