/* talk.c - see talk.h. */
#include "server/talk.h"

#include <string.h>

bool talk_begin(talk *t, api_request *r, api_error *err)
{
    *t = (talk){.r = r};
    if (!memory_budget_take(r->room.budget, r->room.taken))
        return api_fail(err, 503, NULL, "no memory for this request now; try again soon");
    r->room.taken *= 2;
    r->items = api_request_alloc(r, 1, sizeof *r->items, err);
    if (!r->items) return false;
    r->num_items = 1;
    t->messages = json_array();
    t->tools = json_array();
    t->later = json_array();
    if (!t->messages || !t->tools || !t->later) t->failed = true;
    return true;
}

static void set(talk *t, json_t *object, const char *key, json_t *value)
{
    if (value && json_object_set(object, key, value) != 0) t->failed = true;
}

static void set_new(talk *t, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0) t->failed = true;
}

static json_t *add_message(talk *t, const char *role)
{
    json_t *message = json_pack("{s:s}", "role", role);
    if (json_array_append_new(t->messages, message) != 0) t->failed = true;
    return t->failed ? NULL : message;
}

void talk_role(talk *t, const char *role)
{
    const char *now = json_string_value(json_object_get(t->last, "role"));
    if (!now || strcmp(now, role) != 0) t->last = add_message(t, role);
}

void talk_close(talk *t)
{
    t->last = NULL;
}

bool talk_add_part(json_t *parts, json_t *text)
{
    return json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text)) == 0;
}

void talk_text(talk *t, json_t *text)
{
    json_t *parts = json_object_get(t->last, "content");
    if (!t->last) return;
    if (!parts) {
        set_new(t, t->last, "content", json_array());
        parts = json_object_get(t->last, "content");
    }
    if (!talk_add_part(parts, text)) t->failed = true;
}

void talk_reasoning(talk *t, json_t *text)
{
    const json_t *before = json_object_get(t->last, "reasoning_content");
    if (!t->last) return;
    if (before)
        set_new(t, t->last, "reasoning_content",
                json_sprintf("%s%s", json_string_value(before), json_string_value(text)));
    else
        set(t, t->last, "reasoning_content", text);
}

void talk_call(talk *t, json_t *id, json_t *name, json_t *arguments)
{
    json_t *calls = json_object_get(t->last, "tool_calls");
    if (!t->last) return;
    if (!calls) {
        set_new(t, t->last, "tool_calls", json_array());
        calls = json_object_get(t->last, "tool_calls");
    }
    if (json_array_append_new(calls,
                              json_pack("{s:O*, s:s, s:{s:O, s:O*}}", "id", id, "type", "function",
                                        "function", "name", name, "arguments", arguments)) != 0)
        t->failed = true;
}

void talk_result(talk *t, json_t *id, json_t *name, json_t *content)
{
    json_t *message = add_message(t, "tool");
    t->last = NULL;
    set(t, message, "tool_call_id", id);
    set(t, message, "name", name);
    if (message && content)
        set(t, message, "content", content);
    else if (message)
        set_new(t, message, "content", json_string(""));
}

void talk_tool(talk *t, json_t *name, json_t *description, json_t *parameters, json_t *strict,
               bool later)
{
    if (json_array_append_new(later ? t->later : t->tools,
                              json_pack("{s:s, s:{s:O, s:O*, s:O*, s:O*}}", "type", "function",
                                        "function", "name", name, "description", description,
                                        "parameters", parameters, "strict", strict)) != 0)
        t->failed = true;
}

bool talk_end(talk *t, conversation *c, api_error *err)
{
    if (t->failed) return api_fail(err, 503, NULL, "no memory for this request");
    c->messages = t->messages;
    c->tools = json_array_size(t->tools) ? t->tools : NULL;
    c->later = t->later;
    return conversation_set(t->r, c, err);
}

void talk_fini(talk *t)
{
    json_decref(t->messages);
    json_decref(t->tools);
    json_decref(t->later);
}
