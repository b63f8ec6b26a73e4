/* ollama_models.c - what Ollama's clients ask before they ask for an answer: which models there
 * are, of what kind, and whether this is a server of theirs at all. Read-only. */
#include "server/memory_reserve.h"
#include "server/rfc3339.h"
#include "server/server_priv.h"
#include <radish/radish.h>

#include <stdio.h>
#include <sys/stat.h>

enum { MAX_BODY = 64 << 10 }; /* it is read between two events of others */

static json_t *details(const server *s)
{
    const engine_info *i = engine_get_info(s->engine);
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "gguf",
                     "family", i->architecture, "families", i->architecture, "parameter_size", "",
                     "quantization_level", i->dtype);
}

static json_t *model_json(const server *s, const char *name, bool loaded)
{
    const engine_info *i = engine_get_info(s->engine);
    struct stat file = {0};
    char text[RFC3339_BYTES];
    (void)stat(i->model_path, &file);
    json_t *json = json_pack("{s:s, s:s, s:s, s:I, s:s, s:o}", "name", name, "model", name,
                             "modified_at", rfc3339(file.st_mtim, text), "size",
                             (json_int_t)file.st_size, "digest", s->model_digest, "details",
                             details(s));
    if (json && loaded) {
        json_object_set_new(json, "expires_at", json_string("9999-12-31T23:59:59.000000000Z"));
        json_object_set_new(json, "size_vram", json_integer(0));
        json_object_set_new(json, "context_length", json_integer(i->context_length));
    }
    return json;
}

static void reply_models(server *s, struct evhttp_request *http, bool loaded)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < models_count(s); i++)
        json_array_append_new(list, model_json(s, models_name(s, i), loaded));
    reply_json(http, 200, json_pack("{s:o}", "models", list));
}

void handle_ollama_tags(server *s, struct evhttp_request *http)
{
    reply_models(s, http, false);
}

void handle_ollama_ps(server *s, struct evhttp_request *http)
{
    reply_models(s, http, true);
}

void handle_ollama_version(server *s, struct evhttp_request *http)
{
    (void)s;
    reply_json(http, 200, json_pack("{s:s}", "version", RAD_VERSION_STRING));
}

static json_t *show_json(const server *s)
{
    const engine_info *i = engine_get_info(s->engine);
    const chat_template *chat = engine_chat_template(s->engine);
    char key[128];
    json_t *capabilities = json_pack("[s]", "completion");
    if (chat && chat_template_reads(chat, "tools"))
        json_array_append_new(capabilities, json_string("tools"));
    if (chat && chat_template_reads(chat, "enable_thinking"))
        json_array_append_new(capabilities, json_string("thinking"));
    json_t *about = json_pack("{s:s}", "general.architecture", i->architecture);
    snprintf(key, sizeof key, "%.100s.context_length", i->architecture);
    json_object_set_new(about, key, json_integer(i->context_length));
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "modelfile", "", "parameters", "",
                     "template", i->chat_template, "details", details(s), "model_info", about,
                     "capabilities", capabilities);
}

void handle_ollama_show(server *s, struct evhttp_request *http)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(http);
    size_t len = evbuffer_get_length(body);
    const char *name = NULL, *model = NULL;
    api_error err;
    json_t *json = NULL;
    if (len > MAX_BODY)
        api_fail(&err, 413, NULL, "the body is longer than %d bytes", MAX_BODY);
    else
        json = json_in_object(len ? (const char *)evbuffer_pullup(body, -1) : "", len, NULL, &err);
    bool known = json && json_in_string(json, "name", &name, &err) &&
                 json_in_string(json, "model", &model, &err) &&
                 models_check_tagged(s, model ? model : name, &err);
    if (known)
        reply_json(http, 200, show_json(s));
    else
        reply_error(http, &err);
    json_decref(json);
}
