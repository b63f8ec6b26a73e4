/* openai_chat.c - POST /v1/chat/completions.
 *
 * What messages may hold and what becomes of tools is conversation.c's. An answer's parts become
 * the fields of one message: reasoning_content, content, tool_calls. In a stream each chunk has
 * news of one part, the last one how the answer ended. */
#include "server/api_fields.h"
#include "server/conversation.h"
#include "server/server_priv.h"

#include <stdlib.h>

/* A word, or {"type": "function", "function": {"name": ...}}. */
static bool parse_choice(const api_request *r, conversation *c, api_error *err)
{
    const json_t *choice = json_in_get(r->root, "tool_choice");
    if (json_is_object(choice)) {
        c->choice = TOOLS_NAMED;
        c->named = json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    } else if (json_in_says(choice, "none"))
        c->choice = TOOLS_NONE;
    else if (json_in_says(choice, "required"))
        c->choice = TOOLS_REQUIRED;
    else if (choice && !json_in_says(choice, "auto"))
        return api_fail(err, 400, "tool_choice",
                        "'tool_choice' is \"auto\", \"none\", \"required\", or names a function");
    return true;
}

static bool parse_conversation(api_request *r, api_error *err)
{
    bool parallel = true, separate = true, prompt = true;
    conversation c = {.messages = json_in_get(r->root, "messages"),
                      .tools = json_in_get(r->root, "tools"),
                      .kwargs = json_in_get(r->root, "chat_template_kwargs"),
                      .think = -1};
    if (!parse_choice(r, &c, err) ||
        !json_in_bool(r->root, "parallel_tool_calls", &parallel, err) ||
        !json_in_bool(r->root, "separate_reasoning", &separate, err) ||
        !json_in_bool(r->root, "continue_final_message", &c.go_on, err) ||
        !json_in_bool(r->root, "add_generation_prompt", &prompt, err) ||
        !json_in_string(r->root, "reasoning_effort", &c.effort, err))
        return false;
    if (!prompt && !c.go_on)
        return api_fail(err, 400, "add_generation_prompt",
                        "'add_generation_prompt': false wants 'continue_final_message': true");
    c.one_call = !parallel;
    c.plain_text = !separate;
    return conversation_set(r, &c, err);
}

bool chat_parse(api_request *r, api_error *err)
{
    r->items = api_request_alloc(r, 1, sizeof *r->items, err);
    if (!r->items) return false;
    r->num_items = 1;
    int64_t max_tokens = -1; /* as many as the context allows */
    if (!json_in_bool(r->root, "stream", &r->stream, err) || !parse_conversation(r, err) ||
        !json_in_bool(r->root, "logprobs", &r->logprobs, err) ||
        !api_parse_top_logprobs(r, r->root, "top_logprobs", err))
        return false;
    if (r->num_top_logprobs && !r->logprobs)
        return api_fail(err, 400, "top_logprobs", "'top_logprobs' wants 'logprobs': true");
    if (!api_parse_openai(r, err) ||
        !json_in_int(r->root, "max_tokens", 0, INT32_MAX, &max_tokens, err) ||
        !json_in_int(r->root, "max_completion_tokens", 0, INT32_MAX, &max_tokens, err) ||
        !api_parse_vllm_logprobs(r, err))
        return false;
    r->items[0].max_new_tokens = max_tokens;
    return true;
}

/* ---- answers ---- */

static const char CHUNK[] = "chat.completion.chunk";

static bool has_news(const call *c, const call_item *item)
{
    return item->finished || !item->said_role || answer_parts_have_news(&item->parts) ||
           (call_tells_ids(c) && item->ids.len > item->ids_sent);
}

static void begin_chunk(const call *c, call_item *item, json_writer *w)
{
    put_openai_head(w, c, CHUNK);
    jw_open(w, '{');
    jw_name(w, "index"), jw_int(w, item->index);
    jw_name(w, "delta"), jw_open(w, '{');
    if (!item->said_role) jw_name(w, "role"), jw_word(w, "assistant");
}

/* All but the last chunk of what there is to say. */
static void end_chunk(const call *c, json_writer *w)
{
    jw_close(w, '}');
    jw_name(w, "logprobs"), jw_null(w);
    jw_name(w, "finish_reason"), jw_null(w);
    jw_close(w, '}');
    put_openai_tail(w, c->request.include_usage ? json_null() : NULL);
    jw_raw(w, "\n\ndata: ", 8);
}

static void put_piece(json_writer *w, const answer_part *part, size_t from)
{
    size_t len = part->text.len - from;
    jw_text(w, len ? part->text.data + from : "", len);
}

/* A call begins with its id and name; what follows has its index alone. */
static void put_call_delta(json_writer *w, const answer_part *part)
{
    jw_name(w, "tool_calls"), jw_open(w, '['), jw_open(w, '{');
    jw_name(w, "index"), jw_int(w, part->index);
    if (!part->said_begin) {
        jw_name(w, "id"), jw_word(w, part->id);
        jw_name(w, "type"), jw_word(w, "function");
    }
    jw_name(w, "function"), jw_open(w, '{');
    if (!part->said_begin) jw_name(w, "name"), jw_word(w, part->name);
    jw_name(w, "arguments"), put_piece(w, part, part->sent);
    jw_close(w, '}'), jw_close(w, '}'), jw_close(w, ']');
}

/* False: its end alone is no news in this dialect. */
static bool put_delta(json_writer *w, const answer_part *part)
{
    if (part->said_begin && part->text.len == part->sent) return false;
    switch (part->kind) {
    case PART_REASONING: jw_name(w, "reasoning_content"), put_piece(w, part, part->sent); break;
    case PART_CONTENT: jw_name(w, "content"), put_piece(w, part, part->sent); break;
    default: put_call_delta(w, part);
    }
    return true;
}

static void write_chunk(const call *c, call_item *item, json_writer *w)
{
    bool begun = false;
    answer_parts *parts = &item->parts;
    begin_chunk(c, item, w);
    for (uint32_t i = parts->first_unsaid; i < parts->count; i++) {
        answer_part *part = &parts->list[i];
        if (part->said_begin && part->text.len == part->sent) {
            answer_part_said(parts, part);
            continue;
        }
        if (begun) {
            end_chunk(c, w);
            item->said_role = true;
            begin_chunk(c, item, w);
        }
        begun = put_delta(w, part);
        answer_part_said(parts, part);
    }
    if (!begun && !item->said_role) jw_name(w, "content"), jw_text(w, "", 0);
    jw_close(w, '}');
    item->said_role = true;
    jw_name(w, "logprobs"), put_chat_logprobs(w, item, item->ids_sent);
    put_openai_extras(w, item, item->ids_sent);
    jw_close(w, '}');
    put_openai_tail(w, c->request.include_usage ? json_null() : NULL);
}

static void write_usage_chunk(const call *c, json_writer *w)
{
    put_openai_head(w, c, CHUNK);
    write_openai_tail(c, w);
}

static void write_head(const call *c, json_writer *w)
{
    put_openai_head(w, c, "chat.completion");
}

/* All parts of a kind as one text. */
static void put_joined(json_writer *w, const answer_parts *parts, part_kind kind)
{
    size_t len = 0, at = 0;
    uint32_t count = 0, last = 0;
    for (uint32_t i = 0; i < parts->count; i++) {
        if (parts->list[i].kind != kind) continue;
        len += parts->list[i].text.len;
        last = i;
        count++;
    }
    if (count <= 1) {
        jw_text(w, count ? parts->list[last].text.data : "", len);
        return;
    }
    char *all = malloc(len + 1);
    if (!all) w->failed = true;
    for (uint32_t i = 0; i < parts->count && all; i++) {
        const answer_part *part = &parts->list[i];
        if (part->kind != kind || !part->text.len) continue;
        memcpy(all + at, part->text.data, part->text.len);
        at += part->text.len;
    }
    if (all) jw_text(w, all, len);
    free(all);
}

static void put_calls(json_writer *w, const answer_parts *parts)
{
    jw_name(w, "tool_calls"), jw_open(w, '[');
    for (uint32_t i = 0; i < parts->count; i++) {
        const answer_part *part = &parts->list[i];
        if (part->kind != PART_CALL) continue;
        jw_open(w, '{');
        jw_name(w, "id"), jw_word(w, part->id);
        jw_name(w, "type"), jw_word(w, "function");
        jw_name(w, "function"), jw_open(w, '{');
        jw_name(w, "name"), jw_word(w, part->name);
        jw_name(w, "arguments"), put_piece(w, part, 0);
        jw_close(w, '}'), jw_close(w, '}');
    }
    jw_close(w, ']');
}

static void write_item(const call *c, call_item *item, json_writer *w)
{
    bool has[3] = {false};
    (void)c;
    for (uint32_t i = 0; i < item->parts.count; i++)
        has[item->parts.list[i].kind] = true;
    jw_open(w, '{');
    jw_name(w, "index"), jw_int(w, item->index);
    jw_name(w, "message"), jw_open(w, '{');
    jw_name(w, "role"), jw_word(w, "assistant");
    jw_name(w, "content");
    if (has[PART_CONTENT] || !(has[PART_CALL] || has[PART_REASONING]))
        put_joined(w, &item->parts, PART_CONTENT);
    else
        jw_null(w);
    if (has[PART_REASONING])
        jw_name(w, "reasoning_content"), put_joined(w, &item->parts, PART_REASONING);
    if (has[PART_CALL]) put_calls(w, &item->parts);
    jw_close(w, '}');
    jw_name(w, "logprobs"), put_chat_logprobs(w, item, 0);
    put_openai_extras(w, item, 0);
    jw_close(w, '}');
}

static void write_tail(const call *c, json_writer *w)
{
    jw_close(w, ']');
    if (c->request.vllm_prompt)
        jw_name(w, "prompt_logprobs"), put_vllm_prompt_logprobs(w, &c->items[0]);
    jw_name(w, "usage"), jw_json(w, json_usage(c));
    jw_close(w, '}');
}

const call_ops chat_ops = {.kind = API_CHAT,
                           .id_prefix = "chatcmpl-",
                           .has_news = has_news,
                           .write_chunk = write_chunk,
                           .write_usage_chunk = write_usage_chunk,
                           .write_head = write_head,
                           .write_item = write_item,
                           .write_tail = write_tail};
