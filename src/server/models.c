/* models.c - the names that the model answers to.
 *
 * One model under one or several names (--served-model-name): a request that asks for another
 * is refused, lest somebody takes this model's answers for that one's. A request that names
 * none is taken: it can only mean the one there is. Agents ask for a second, small model by a name
 * of their own: the name "*" stands for all of them. */
#include "server/api_fields.h"
#include "server/memory_reserve.h"
#include "server/rfc3339.h"
#include "server/server_priv.h"

#include <stdio.h>

static bool is_any(const char *name)
{
    return strcmp(name, "*") == 0;
}

/* Of the list, but for "*", which is no name. */
static uint32_t num_given(const server *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->params.num_served_model_names; i++)
        n += !is_any(s->params.served_model_names[i]);
    return n;
}

const char *models_name(const server *s, uint32_t i)
{
    for (uint32_t k = 0; k < s->params.num_served_model_names; k++)
        if (!is_any(s->params.served_model_names[k]) && !i--)
            return s->params.served_model_names[k];
    return engine_get_info(s->engine)->model_name;
}

uint32_t models_count(const server *s)
{
    return RAD_MAX(num_given(s), 1u);
}

bool models_any(const server *s)
{
    return num_given(s) < s->params.num_served_model_names;
}

const char *models_find(const server *s, const char *name)
{
    for (uint32_t i = 0; i < models_count(s); i++)
        if (strcmp(name, models_name(s, i)) == 0) return models_name(s, i);
    return NULL;
}

bool models_check(const server *s, const char *name, api_error *err)
{
    if (!name || models_find(s, name) || models_any(s)) return true;
    char word[128];
    api_fail(err, 404, "model", "the model '%s' is not here; see /v1/models: '%.200s'%s",
             api_shown(name, word, sizeof word), models_name(s, 0),
             models_count(s) > 1 ? " and others" : "");
    err->type = "invalid_request_error"; /* as OpenAI has it */
    err->code = "model_not_found";
    return false;
}

/* "story:latest" is "story". */
bool models_check_tagged(const server *s, const char *name, api_error *err)
{
    static const char tag[] = ":latest";
    size_t len = name ? strlen(name) : 0, cut = strlen(tag);
    if (len <= cut || len > 1024 || strcmp(name + len - cut, tag) != 0)
        return models_check(s, name, err);
    char plain[1024];
    snprintf(plain, sizeof plain, "%.*s", (int)(len - cut), name);
    return models_check(s, plain, err);
}

static json_t *model_json(const server *s, const char *name, const dialect *d)
{
    const engine_info *info = engine_get_info(s->engine);
    char created[RFC3339_BYTES];
    if (d == &anthropic_dialect)
        return json_pack("{s:s, s:s, s:s, s:s}", "type", "model", "id", name, "display_name", name,
                         "created_at",
                         rfc3339((struct timespec){.tv_sec = (time_t)info->created_unix}, created));
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:I}", "id", name, "object", "model", "created",
                     (json_int_t)info->created_unix, "owned_by", "radish", "root", info->model_path,
                     "max_model_len", (json_int_t)info->context_length);
}

void handle_models(server *s, struct evhttp_request *http)
{
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(http));
    const dialect *d = dialect_of_request(http);
    size_t prefix = strlen("/v1/models");
    if (!path[prefix]) {
        json_t *list = json_array();
        uint32_t n = models_count(s);
        for (uint32_t i = 0; i < n; i++)
            json_array_append_new(list, model_json(s, models_name(s, i), d));
        reply_json(http, 200,
                   d == &anthropic_dialect
                       ? json_pack("{s:o, s:b, s:s, s:s}", "data", list, "has_more", 0, "first_id",
                                   models_name(s, 0), "last_id", models_name(s, n - 1))
                       : json_pack("{s:s, s:o}", "object", "list", "data", list));
        return;
    }
    size_t len = 0;
    char *name = evhttp_uridecode(path + prefix + 1, 0, &len);
    api_error err;
    bool known = false;
    if (!name)
        api_fail(&err, 503, NULL, "no memory for this request");
    else if (strlen(name) < len) /* models_check would compare what stands before it */
        api_fail(&err, 404, NULL, "no model has a NUL character in its name");
    else
        known = models_check(s, name, &err);
    if (known)
        reply_json(http, 200, model_json(s, name, d));
    else
        reply_error(http, &err);
    memory_reserve_free(name); /* libevent made it */
}
