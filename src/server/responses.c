/* responses.c - POST /v1/responses: answers, and GET and DELETE of stored ones.
 *
 *     response.created, response.in_progress
 *     response.output_item.added, ... , response.output_item.done       for each part
 *     response.completed, or response.incomplete
 *
 * A part of the answer (reasoning, words, a call) is an item, and its place among the parts is its
 * output_index. Items are named by the answer's own name, so that an item has one name in all
 * events. The whole object is written once, and stored as it was written. */
#include "server/answer_parts.h"
#include "server/cached_tokens.h"
#include "server/server_priv.h"
#include "server/tool_names.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- items ---- */

static const char *prefix_of(const call_item *item, const answer_part *part);

/* A call whose tool takes free text. */
static bool is_custom(const call_item *item, const answer_part *part)
{
    return part->kind == PART_CALL && tool_names_is_custom(&item->call->request.kept, part->name);
}

/* The name that the client knows, and its namespace where it has one. */
static void put_name(json_writer *w, const call_item *item, const answer_part *part)
{
    size_t len = 0;
    const char *space = tool_names_space(&item->call->request.kept, part->name, &len);
    jw_name(w, "name"), jw_word(w, space ? part->name + len + strlen(TOOL_NAME_JOIN) : part->name);
    if (space) jw_name(w, "namespace"), jw_text(w, space, len);
}

static const char *prefix_of(const call_item *item, const answer_part *part)
{
    if (part->kind == PART_REASONING) return "rs";
    if (part->kind == PART_CONTENT) return "msg";
    return is_custom(item, part) ? "ctc" : "fc";
}

static void put_id(json_writer *w, const call_item *item, uint32_t index, const char *name)
{
    char id[sizeof item->call->id + 32];
    const char *own = strchr(item->call->id, '_');
    snprintf(id, sizeof id, "%s_%s_%u", prefix_of(item, &item->parts.list[index]),
             own ? own + 1 : item->call->id, index);
    jw_name(w, name), jw_word(w, id);
}

static void put_text(json_writer *w, const byte_buf *text, size_t from, bool any)
{
    bool more = any && text->len > from;
    jw_text(w, more ? text->data + from : "", more ? text->len - from : 0);
}

/* {"type": ..., "text": ...}, with no text yet where `any` is false. */
static void put_part(json_writer *w, const answer_part *part, bool any)
{
    bool words = part->kind == PART_CONTENT;
    jw_open(w, '{');
    jw_name(w, "type"), jw_word(w, words ? "output_text" : "reasoning_text");
    jw_name(w, "text"), put_text(w, &part->text, 0, any);
    if (words) {
        jw_name(w, "annotations"), jw_open(w, '['), jw_close(w, ']');
        jw_name(w, "logprobs"), jw_open(w, '['), jw_close(w, ']');
    }
    jw_close(w, '}');
}

/* What the model wrote as the one argument of a custom tool; as it is where that is no JSON. */
static void put_free_text(json_writer *w, const answer_part *part)
{
    json_t *object = part->text.len ? json_loadb(part->text.data, part->text.len, 0, NULL) : NULL;
    const json_t *input = json_object_get(object, "input");
    if (json_is_string(input))
        jw_text(w, json_string_value(input), json_string_length(input));
    else
        put_text(w, &part->text, 0, true);
    json_decref(object);
}

static void put_call(json_writer *w, const call_item *item, const answer_part *part, bool whole)
{
    bool custom = is_custom(item, part);
    jw_name(w, "call_id"), jw_word(w, part->id);
    put_name(w, item, part);
    jw_name(w, custom ? "input" : "arguments");
    if (custom && whole)
        put_free_text(w, part);
    else
        put_text(w, &part->text, 0, whole);
}

/* As it is in the end (`whole`), or as it begins. */
static void put_item(json_writer *w, const call_item *item, uint32_t index, bool whole)
{
    static const char *const types[] = {[PART_REASONING] = "reasoning", [PART_CONTENT] = "message"};
    const answer_part *part = &item->parts.list[index];
    bool cut = part->broken || item->finish == ENGINE_FINISH_LENGTH;
    bool last = index + 1 == item->parts.count;
    jw_open(w, '{');
    put_id(w, item, index, "id");
    jw_name(w, "type");
    if (part->kind == PART_CALL)
        jw_word(w, is_custom(item, part) ? "custom_tool_call" : "function_call");
    else
        jw_word(w, types[part->kind]);
    jw_name(w, "status");
    jw_word(w, !whole ? "in_progress" : cut && last ? "incomplete" : "completed");
    if (part->kind == PART_CALL) {
        put_call(w, item, part, whole);
    } else {
        if (part->kind == PART_REASONING)
            jw_name(w, "summary"), jw_open(w, '['), jw_close(w, ']');
        else
            jw_name(w, "role"), jw_word(w, "assistant");
        jw_name(w, "content"), jw_open(w, '[');
        if (whole) put_part(w, part, true);
        jw_close(w, ']');
    }
    jw_close(w, '}');
}

static void put_items(json_writer *w, const call_item *item)
{
    for (uint32_t i = 0; i < item->parts.count; i++)
        put_item(w, item, i, true);
}

/* ---- the object ---- */

static const char *status_of(const call_item *item)
{
    if (!item->finished) return "in_progress";
    if (item->finish == ENGINE_FINISH_LENGTH) return "incomplete";
    return item->finish == ENGINE_FINISH_ABORT ? "cancelled" : "completed";
}

static void put_usage(json_writer *w, const call *c, const call_item *item)
{
    prompt_hits shown = cached_shown(&c->server->params, item->hits);
    jw_open(w, '{');
    jw_name(w, "input_tokens"), jw_int(w, item->prompt_tokens);
    jw_name(w, "input_tokens_details"), jw_open(w, '{');
    jw_name(w, "cached_tokens"), jw_json(w, json_cached_tokens(c, shown));
    json_t *why = c->request.history.told ? json_cache_explanation(item) : NULL;
    if (why) jw_name(w, "cache_explanation"), jw_json(w, why);
    jw_close(w, '}');
    jw_name(w, "output_tokens"), jw_int(w, item->completion_tokens);
    jw_name(w, "output_tokens_details"), jw_open(w, '{');
    jw_name(w, "reasoning_tokens"), jw_int(w, item->reasoning_tokens);
    jw_close(w, '}');
    jw_name(w, "total_tokens"), jw_int(w, (int64_t)item->prompt_tokens + item->completion_tokens);
    jw_close(w, '}');
}

static void put_object(json_writer *w, const call *c, const call_item *item)
{
    const api_kept *kept = &c->request.kept;
    bool cut = item->finished && item->finish == ENGINE_FINISH_LENGTH;
    jw_open(w, '{');
    jw_name(w, "id"), jw_word(w, c->id);
    jw_name(w, "object"), jw_word(w, "response");
    jw_name(w, "created_at"), jw_int(w, (int64_t)c->created_unix);
    jw_name(w, "status"), jw_word(w, status_of(item));
    jw_name(w, "background"), jw_spliced(w, "false", 5);
    jw_name(w, "error"), jw_null(w);
    jw_name(w, "incomplete_details");
    if (cut) {
        jw_open(w, '{');
        jw_name(w, "reason"), jw_word(w, "max_output_tokens");
        jw_close(w, '}');
    } else {
        jw_null(w);
    }
    jw_name(w, "model"), jw_word(w, call_model(c));
    jw_name(w, "output"), jw_open(w, '[');
    if (item->finished) put_items(w, item);
    jw_close(w, ']');
    if (kept->echo_len > 2) { /* its members, without their braces */
        jw_raw(w, ",", 1);
        jw_raw(w, kept->echo + 1, kept->echo_len - 2);
        w->comma = true;
    }
    jw_name(w, "usage");
    if (item->finished)
        put_usage(w, c, item);
    else
        jw_null(w);
    jw_close(w, '}');
}

/* Its text is part of *out where it was written. */
static void store(const call *c, const call_item *item, struct evbuffer *object)
{
    const api_kept *kept = &c->request.kept;
    json_writer w;
    if (!kept->store || !kept->items || kept->items_len < 4) return;
    struct evbuffer *items = evbuffer_new();
    json_writer_begin(&w, items);
    /* {"items":[...]} grows by the output, behind a comma where it was not empty. */
    jw_raw(&w, kept->items, kept->items_len - 2);
    w.comma = kept->items[kept->items_len - 3] != '[';
    put_items(&w, item);
    jw_raw(&w, "]}", 2);
    struct evbuffer *generated = evbuffer_new();
    if (generated) response_ids_write(item, generated);
    if (json_writer_end(&w) && object) {
        stored_text of = {(const char *)evbuffer_pullup(object, -1), evbuffer_get_length(object)};
        stored_text with = {(const char *)evbuffer_pullup(items, -1), evbuffer_get_length(items)};
        stored_text ids = {0};
        if (generated)
            ids = (stored_text){(const char *)evbuffer_pullup(generated, -1),
                                evbuffer_get_length(generated)};
        if (of.data && with.data)
            response_store_put(c->server->responses, c->owner, c->id, of, with, ids,
                               server_now_ns(c->server));
    }
    if (generated) evbuffer_free(generated);
    if (items) evbuffer_free(items);
}

/* The finished object as a value of `w`, and into the store. */
static void put_and_store(json_writer *w, const call *c, const call_item *item)
{
    json_writer own;
    struct evbuffer *object = evbuffer_new();
    json_writer_begin(&own, object);
    put_object(&own, c, item);
    const char *text = json_writer_end(&own) ? (const char *)evbuffer_pullup(object, -1) : NULL;
    if (text)
        jw_spliced(w, text, evbuffer_get_length(object));
    else
        w->failed = true;
    if (text && item->finish != ENGINE_FINISH_ABORT) store(c, item, object);
    if (object) evbuffer_free(object);
}

/* ---- streams ---- */

static void begin_event(json_writer *w, call_item *item, const char *type)
{
    jw_raw(w, "event: ", 7);
    jw_raw(w, type, strlen(type));
    jw_raw(w, "\ndata: ", 7);
    jw_open(w, '{');
    jw_name(w, "type"), jw_word(w, type);
    jw_name(w, "sequence_number"), jw_int(w, item->sequence++);
}

static void end_event(json_writer *w)
{
    jw_close(w, '}');
    jw_raw(w, "\n\n", 2);
}

static void begin_item_event(json_writer *w, call_item *item, const char *type, uint32_t index)
{
    begin_event(w, item, type);
    put_id(w, item, index, "item_id");
    jw_name(w, "output_index"), jw_int(w, index);
    if (item->parts.list[index].kind != PART_CALL) jw_name(w, "content_index"), jw_int(w, 0);
}

static void say_item(json_writer *w, call_item *item, const char *type, uint32_t index, bool whole)
{
    begin_event(w, item, type);
    jw_name(w, "output_index"), jw_int(w, index);
    jw_name(w, "item"), put_item(w, item, index, whole);
    end_event(w);
}

static void say_part(json_writer *w, call_item *item, const char *type, uint32_t index, bool any)
{
    begin_item_event(w, item, type, index);
    jw_name(w, "part"), put_part(w, &item->parts.list[index], any);
    end_event(w);
}

typedef struct part_events {
    const char *delta, *done, *member;
} part_events;

static const part_events *events_of(const call_item *item, const answer_part *part)
{
    static const part_events kinds[] = {
        [PART_REASONING] = {"response.reasoning_text.delta", "response.reasoning_text.done",
                            "text"},
        [PART_CONTENT] = {"response.output_text.delta", "response.output_text.done", "text"},
        [PART_CALL] = {"response.function_call_arguments.delta",
                       "response.function_call_arguments.done", "arguments"}};
    static const part_events custom = {"response.custom_tool_call_input.delta",
                                       "response.custom_tool_call_input.done", "input"};
    return is_custom(item, part) ? &custom : &kinds[part->kind];
}

static void put_no_logprobs(json_writer *w, const answer_part *part)
{
    if (part->kind != PART_CONTENT) return;
    jw_name(w, "logprobs"), jw_open(w, '['), jw_close(w, ']');
}

/* Free text is said when it is whole: until then it is a piece of a JSON string. */
static void say_text(json_writer *w, call_item *item, uint32_t index)
{
    answer_part *part = &item->parts.list[index];
    bool custom = is_custom(item, part);
    if (part->text.len <= part->sent || (custom && !part->ended)) return;
    begin_item_event(w, item, events_of(item, part)->delta, index);
    jw_name(w, "delta");
    if (custom)
        put_free_text(w, part);
    else
        put_text(w, &part->text, part->sent, true);
    put_no_logprobs(w, part);
    end_event(w);
    part->sent = part->text.len;
}

static void say_end(json_writer *w, call_item *item, uint32_t index)
{
    answer_part *part = &item->parts.list[index];
    const part_events *events = events_of(item, part);
    begin_item_event(w, item, events->done, index);
    if (part->kind == PART_CALL) put_name(w, item, part);
    jw_name(w, events->member);
    if (is_custom(item, part))
        put_free_text(w, part);
    else
        put_text(w, &part->text, 0, true);
    put_no_logprobs(w, part);
    end_event(w);
    if (part->kind == PART_CONTENT) say_part(w, item, "response.content_part.done", index, true);
    say_item(w, item, "response.output_item.done", index, true);
    part->said_end = true;
}

static void say_news(json_writer *w, call_item *item, uint32_t index)
{
    answer_part *part = &item->parts.list[index];
    if (!part->said_begin) {
        say_item(w, item, "response.output_item.added", index, false);
        if (part->kind == PART_CONTENT)
            say_part(w, item, "response.content_part.added", index, false);
        part->said_begin = true;
    }
    say_text(w, item, index);
    if (part->ended && !part->said_end) say_end(w, item, index);
}

static void say_object(json_writer *w, const call *c, call_item *item, const char *type)
{
    begin_event(w, item, type);
    jw_name(w, "response");
    if (item->finished && item->said_role)
        put_and_store(w, c, item);
    else
        put_object(w, c, item);
    end_event(w);
}

static bool has_news(const call *c, const call_item *item)
{
    (void)c;
    return item->finished || answer_parts_have_news(&item->parts);
}

static void say_begin(json_writer *w, const call *c, call_item *item)
{
    bool finished = item->finished;
    item->finished = false; /* as it was a moment ago, where all came at once */
    say_object(w, c, item, "response.created");
    say_object(w, c, item, "response.in_progress");
    item->finished = finished;
    item->said_role = true;
}

static void write_chunk(const call *c, call_item *item, json_writer *w)
{
    if (!item->said_role) say_begin(w, c, item);
    for (uint32_t i = item->parts.first_unsaid; i < item->parts.count; i++) {
        say_news(w, item, i);
        if (item->parts.list[i].said_end) item->parts.first_unsaid = i + 1;
    }
    if (!item->finished) return;
    bool cut = item->finish == ENGINE_FINISH_LENGTH;
    say_object(w, c, item, cut ? "response.incomplete" : "response.completed");
}

static json_t *stream_error(call *c, const api_error *err)
{
    return json_pack("{s:s, s:I, s:s?, s:o, s:s?}", "type", "error", "sequence_number",
                     (json_int_t)c->items[0].sequence++, "code", err->code ? err->code : err->type,
                     "message", json_text(err->message, strlen(err->message)), "param",
                     err->param[0] ? err->param : NULL);
}

/* ---- whole answers ---- */

static void write_head(const call *c, json_writer *w)
{
    (void)c;
    (void)w;
}

static void write_item(const call *c, call_item *item, json_writer *w)
{
    put_and_store(w, c, item);
}

static const call_ops responses_ops = {.kind = API_RESPONSES,
                                       .id_prefix = "resp_",
                                       .dialect = &responses_dialect,
                                       .frames = true,
                                       .has_news = has_news,
                                       .write_chunk = write_chunk,
                                       .stream_error = stream_error,
                                       .write_head = write_head,
                                       .write_item = write_item,
                                       .write_tail = write_head};

void handle_responses(server *s, struct evhttp_request *http)
{
    call_start(s, &responses_ops, http);
}

/* ---- stored ones ---- */

static void reply_not_found(struct evhttp_request *http, const char *id)
{
    api_error err;
    api_fail(&err, 404, NULL, "the response '%.100s' is not here", id);
    reply_error(http, &err);
}

static void reply_stored(server *s, struct evhttp_request *http, const char *id)
{
    stored_copy object;
    if (!response_store_get(s->responses, s->owner, id, server_now_ns(s), &object, NULL, NULL)) {
        reply_not_found(http, id);
        return;
    }
    reply_text(http, object.data, object.len);
    free(object.data);
}

/* GET, DELETE, and POST .../cancel, which is for requests in the background. */
void handle_stored_response(server *s, struct evhttp_request *http)
{
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(http));
    const char *id = path + strlen("/v1/responses/");
    enum evhttp_cmd_type command = evhttp_request_get_command(http);
    api_error err;
    if (command == EVHTTP_REQ_POST) {
        api_fail(&err, 400, NULL,
                 "only a response in the background can be cancelled, and there are none here; "
                 "close the connection");
        reply_error(http, &err);
    } else if (command != EVHTTP_REQ_DELETE) {
        reply_stored(s, http, id);
    } else if (response_store_delete(s->responses, s->owner, id, server_now_ns(s))) {
        reply_json(http, 200,
                   json_pack("{s:s, s:s, s:b}", "id", id, "object", "response", "deleted", 1));
    } else {
        reply_not_found(http, id);
    }
}
