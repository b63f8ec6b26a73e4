/* pins.c - prefixes that are asked to be kept: /pin_prefix, /unpin_prefix, and a cache_control in
 * the middle of a prompt.
 *
 * Where a template puts a block's end only the template knows. So the conversation is rendered a
 * second time, cut behind the marked block, and the ids that both have in common are pinned. A
 * conversation whose last block is marked, as agents do, is to be kept whole and needs none of
 * this.
 *
 * What is pinned must be cached, which takes a request. Pins are for a namespace: a key's own, or
 * the one that all share, where an administrator's key is wanted if there is such a thing. */
#include "server/api_fields.h"
#include "server/cached_tokens.h"
#include "server/call_parts.h"
#include "server/prompt_ids.h"
#include "server/server_priv.h"

#include <string.h>

/* ---- a marker in the middle ---- */

static void cut_list(json_t *list, uint32_t count)
{
    while (json_array_size(list) > count)
        json_array_remove(list, json_array_size(list) - 1);
}

/* The conversation up to the mark. A template may want a user's message: it is an empty one. */
static bool cut_at(json_t *talk, const api_mark *mark)
{
    json_t *messages = json_object_get(talk, "messages");
    cut_list(json_object_get(talk, "tools"), mark->tools);
    cut_list(messages, RAD_MAX(mark->messages, 1u));
    json_object_del(talk, "continue_final_message");
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *words = json_object_get(last, "content");
    uint64_t bytes = mark->messages ? mark->bytes : 0;
    if (json_is_string(words) && bytes < json_string_length(words) &&
        json_object_set_new(last, "content", json_stringn(json_string_value(words), bytes)) != 0)
        return false;
    if (!json_in_says(json_object_get(last, "role"), "system")) return true;
    return json_array_append_new(messages,
                                 json_pack("{s:s, s:s}", "role", "user", "content", "")) == 0;
}

static uint32_t common(const token_buf *a, const token_buf *b)
{
    uint32_t i = 0, most = RAD_MIN(a->len, b->len);
    while (i < most && a->ids[i] == b->ids[i])
        i++;
    return i;
}

void call_find_mark(call *c)
{
    api_request *r = &c->request;
    engine_request *q = &r->items[0];
    engine *e = c->server->engine;
    token_buf all = {0}, front = {0};
    api_error ignored;
    json_t *talk = prompt_talk(q, &r->room);
    bool found = talk && engine_encode(e, q, &all, NULL) == RAD_OK && cut_at(talk, &r->mark) &&
                 prompt_ids_of(e, talk, &front);
    rad_token *ids = found ? api_request_alloc(r, all.len, sizeof *ids, &ignored) : NULL;
    r->pin_tokens = found ? common(&all, &front) : 0;
    if (ids) { /* so that they are not made once more */
        memcpy(ids, all.ids, all.len * sizeof *ids);
        q->text = q->chat_json = NULL;
        q->messages = NULL;
        q->num_messages = 0;
        q->ids = ids;
        q->num_ids = all.len;
    }
    json_decref(talk);
    token_buf_fini(&all);
    token_buf_fini(&front);
}

/* ---- /pin_prefix, /unpin_prefix ---- */

/* Seconds, whole or not. */
static bool parse_ttl(api_request *r, api_error *err)
{
    enum { USUAL_S = 300, MOST_S = 366 * 86400 };
    const json_t *ttl = json_in_get(r->root, "ttl_seconds");
    double seconds = ttl ? json_number_value(ttl) : USUAL_S;
    if ((ttl && !json_is_number(ttl)) || !(seconds >= 0 && seconds <= MOST_S))
        return api_fail(err, 400, "ttl_seconds",
                        "'ttl_seconds' is a number of seconds, up to a year; 0: no longer");
    r->pin_ns = (uint64_t)(seconds * 1e9);
    return true;
}

bool pin_parse(api_request *r, api_error *err)
{
    const json_t *ids = json_in_get(r->root, "token_ids"), *text = json_in_get(r->root, "text");
    const json_t *messages = json_in_get(r->root, "messages");
    if ((ids != NULL) + (text != NULL) + (messages != NULL) != 1)
        return api_fail(err, 400, NULL, "give 'token_ids', 'text' or 'messages': one of them");
    if (!parse_ttl(r, err)) return false;
    uint64_t pin_ns = r->pin_ns; /* which is no field of a chat's */
    bool parsed = messages ? chat_parse(r, err)
                           : api_parse_prompts(r, ids ? ids : text, ids ? "token_ids" : "text",
                                               text != NULL, ids != NULL, err) &&
                                 api_parse_routing(r, r->root, err);
    r->pin_ns = pin_ns;
    if (parsed && r->num_items != 1)
        return api_fail(err, 400, ids ? "token_ids" : "text", "one prefix at a time");
    return parsed;
}

static bool answer_json(call *c, uint32_t pinned, uint32_t num_tokens)
{
    prompt_hits shown = cached_shown(&c->server->params, (prompt_hits){.cached = pinned});
    json_t *json = json_pack("{s:o, s:I, s:f}", "pinned_tokens", json_cached_tokens(c, shown),
                             "tokens", (json_int_t)num_tokens, "ttl_seconds",
                             (double)c->request.pin_ns / 1e9); /* 60 comes back as 60 */
    c->out = evbuffer_new();
    bool written = c->out && json_to_buffer(json, c->out);
    json_decref(json);
    return written || api_fail(&c->error, 503, NULL, "no memory for this request");
}

static bool pin(call *c)
{
    const engine_request *q = &c->request.items[0];
    token_buf ids = {0};
    rad_error why = {0};
    uint32_t pinned = 0;
    rad_key key = {.tokens = q->ids,
                   .num_tokens = q->num_ids,
                   .extra_key = q->extra_key,
                   .cache_salt = q->cache_salt};
    bool done = q->ids || call_encode(c, q, q->text ? "text" : "messages", &ids);
    if (done && !q->ids) {
        key.tokens = ids.ids;
        key.num_tokens = ids.len;
    }
    rad_status status = RAD_OK;
    if (done) status = engine_pin_prefix(c->server->engine, &key, c->request.pin_ns, &pinned, &why);
    token_buf_fini(&ids);
    if (!done) return false;
    if (status) return fail_by_status(&c->error, status, NULL, why.text);
    return answer_json(c, pinned, key.num_tokens);
}

static bool unpin(call *c)
{
    c->request.pin_ns = 0;
    return pin(c);
}

static void answer(call *c)
{
    call_reply_text(c, "application/json", c->out);
}

static const call_ops pin_ops = {
    .kind = API_PIN, .id_prefix = "", .compute = pin, .answer = answer};
static const call_ops unpin_ops = {
    .kind = API_PIN, .id_prefix = "", .compute = unpin, .answer = answer};

static void start(server *s, struct evhttp_request *http, const call_ops *ops)
{
    const api_keys *keys = s->params.api_keys;
    bool own = s->owner && !s->params.shared_cache; /* nobody else's prefixes are touched */
    api_error err;
    if (own || s->is_admin || !keys || !api_keys_has_admin(keys)) {
        call_start(s, ops, http);
        return;
    }
    api_fail(&err, 403, NULL, "prefixes that all share are pinned with an administrator's key");
    reply_error(http, &err);
}

void handle_pin_prefix(server *s, struct evhttp_request *http)
{
    start(s, http, &pin_ops);
}

void handle_unpin_prefix(server *s, struct evhttp_request *http)
{
    start(s, http, &unpin_ops);
}
