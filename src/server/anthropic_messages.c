/* anthropic_messages.c - POST /v1/messages and /v1/messages/count_tokens: answers.
 *
 *     message_start
 *     content_block_start, content_block_delta ..., content_block_stop      for each part
 *     message_delta, message_stop
 *
 * A part of the answer (reasoning, words, a call) is a block, and its place among the parts is
 * the block's index. The prompt counts in three: what was read from the cache, what the request
 * asked to keep (cache_control) and computed, and what was computed only. */
#include "server/answer_parts.h"
#include "server/cached_tokens.h"
#include "server/server_priv.h"

typedef struct prompt_counts {
    uint32_t plain, read, written;
} prompt_counts;

static prompt_counts counts_of(const call *c, const call_item *item)
{
    uint32_t cached =
        RAD_MIN(cached_shown(&c->server->params, item->hits).cached, item->prompt_tokens);
    uint32_t rest = item->prompt_tokens - cached;
    uint32_t kept = c->request.pin_tokens ? c->request.pin_tokens : item->prompt_tokens;
    uint32_t written = c->request.pin_ns && kept > cached ? RAD_MIN(kept - cached, rest) : 0;
    return (prompt_counts){.read = cached, .written = written, .plain = rest - written};
}

static void put_usage(json_writer *w, const call *c, const call_item *item, uint32_t output)
{
    prompt_counts n = counts_of(c, item);
    bool told = cached_told(&c->server->params);
    jw_open(w, '{');
    jw_name(w, "input_tokens"), jw_int(w, n.plain);
    if (told || n.written) jw_name(w, "cache_creation_input_tokens"), jw_int(w, n.written);
    if (told) jw_name(w, "cache_read_input_tokens"), jw_int(w, n.read);
    jw_name(w, "output_tokens"), jw_int(w, output);
    jw_close(w, '}');
}

static const char *stop_reason(const call_item *item)
{
    if (!item->finished) return NULL;
    if (item_called(item)) return "tool_use";
    if (item->finish == ENGINE_FINISH_LENGTH) return "max_tokens";
    return item->matched_stop ? "stop_sequence" : "end_turn";
}

static void put_stop(json_writer *w, const call_item *item)
{
    jw_name(w, "stop_reason"), jw_word(w, stop_reason(item));
    jw_name(w, "stop_sequence"), jw_word(w, item->finished ? item->matched_stop : NULL);
}

static void put_head(json_writer *w, const call *c)
{
    jw_open(w, '{');
    jw_name(w, "id"), jw_word(w, c->id);
    jw_name(w, "type"), jw_word(w, "message");
    jw_name(w, "role"), jw_word(w, "assistant");
    jw_name(w, "model"), jw_word(w, call_model(c));
    jw_name(w, "content"), jw_open(w, '[');
}

/* ---- blocks ---- */

/* What a client that checks signatures keeps and sends back; nobody here looks at it. */
#define SIGNATURE "radish"

static void put_text_member(json_writer *w, const char *name, const byte_buf *text, size_t from)
{
    jw_name(w, name), jw_text(w, text->len > from ? text->data + from : "", text->len - from);
}

/* As it begins: without a word yet. */
static void put_empty_block(json_writer *w, const answer_part *part)
{
    static const byte_buf nothing;
    jw_open(w, '{');
    switch (part->kind) {
    case PART_REASONING:
        jw_name(w, "type"), jw_word(w, "thinking");
        put_text_member(w, "thinking", &nothing, 0);
        jw_name(w, "signature"), jw_word(w, "");
        break;
    case PART_CALL:
        jw_name(w, "type"), jw_word(w, "tool_use");
        jw_name(w, "id"), jw_word(w, part->id);
        jw_name(w, "name"), jw_word(w, part->name);
        jw_name(w, "input"), jw_open(w, '{'), jw_close(w, '}');
        break;
    default: jw_name(w, "type"), jw_word(w, "text"); put_text_member(w, "text", &nothing, 0);
    }
    jw_close(w, '}');
}

/* The whole block of an answer that is no stream. */
static void put_block(json_writer *w, const answer_part *part)
{
    jw_open(w, '{');
    switch (part->kind) {
    case PART_REASONING:
        jw_name(w, "type"), jw_word(w, "thinking");
        put_text_member(w, "thinking", &part->text, 0);
        jw_name(w, "signature"), jw_word(w, SIGNATURE);
        break;
    case PART_CALL:
        jw_name(w, "type"), jw_word(w, "tool_use");
        jw_name(w, "id"), jw_word(w, part->id);
        jw_name(w, "name"), jw_word(w, part->name);
        jw_name(w, "input");
        if (part->text.len)
            jw_spliced(w, part->text.data, part->text.len);
        else
            jw_open(w, '{'), jw_close(w, '}');
        break;
    default: jw_name(w, "type"), jw_word(w, "text"); put_text_member(w, "text", &part->text, 0);
    }
    jw_close(w, '}');
}

/* ---- streams ---- */

static void begin_event(json_writer *w, const char *type)
{
    jw_raw(w, "event: ", 7);
    jw_raw(w, type, strlen(type));
    jw_raw(w, "\ndata: ", 7);
    jw_open(w, '{');
    jw_name(w, "type"), jw_word(w, type);
}

static void end_event(json_writer *w)
{
    jw_close(w, '}');
    jw_raw(w, "\n\n", 2);
}

static void begin_block_event(json_writer *w, const char *type, uint32_t index)
{
    begin_event(w, type);
    jw_name(w, "index"), jw_int(w, index);
}

static void say_delta(json_writer *w, uint32_t index, const char *type, const char *name,
                      const byte_buf *text, size_t from)
{
    begin_block_event(w, "content_block_delta", index);
    jw_name(w, "delta"), jw_open(w, '{');
    jw_name(w, "type"), jw_word(w, type);
    put_text_member(w, name, text, from);
    jw_close(w, '}');
    end_event(w);
}

static void say_part(json_writer *w, uint32_t index, answer_part *part)
{
    static const char *const types[] = {[PART_REASONING] = "thinking_delta",
                                        [PART_CONTENT] = "text_delta",
                                        [PART_CALL] = "input_json_delta"};
    static const char *const names[] = {
        [PART_REASONING] = "thinking", [PART_CONTENT] = "text", [PART_CALL] = "partial_json"};
    static char words[] = SIGNATURE;
    static const byte_buf signature = {.data = words, .len = sizeof words - 1};
    if (!part->said_begin) {
        begin_block_event(w, "content_block_start", index);
        jw_name(w, "content_block"), put_empty_block(w, part);
        end_event(w);
        part->said_begin = true;
    }
    if (part->text.len > part->sent)
        say_delta(w, index, types[part->kind], names[part->kind], &part->text, part->sent);
    part->sent = part->text.len;
    if (!part->ended || part->said_end) return;
    if (part->kind == PART_REASONING)
        say_delta(w, index, "signature_delta", "signature", &signature, 0);
    begin_block_event(w, "content_block_stop", index);
    end_event(w);
    part->said_end = true;
}

static void say_start(json_writer *w, const call *c, call_item *item)
{
    begin_event(w, "message_start");
    jw_name(w, "message"), put_head(w, c);
    jw_close(w, ']');
    jw_name(w, "stop_reason"), jw_null(w);
    jw_name(w, "stop_sequence"), jw_null(w);
    jw_name(w, "usage"), put_usage(w, c, item, 0);
    jw_close(w, '}');
    end_event(w);
    item->said_role = true;
}

static bool has_news(const call *c, const call_item *item)
{
    (void)c;
    return item->finished || answer_parts_have_news(&item->parts);
}

static void write_chunk(const call *c, call_item *item, json_writer *w)
{
    if (!item->said_role) say_start(w, c, item);
    for (uint32_t i = item->parts.first_unsaid; i < item->parts.count; i++) {
        say_part(w, i, &item->parts.list[i]);
        if (item->parts.list[i].said_end) item->parts.first_unsaid = i + 1;
    }
    if (!item->finished) return;
    begin_event(w, "message_delta");
    jw_name(w, "delta"), jw_open(w, '{'), put_stop(w, item), jw_close(w, '}');
    jw_name(w, "usage"), put_usage(w, c, item, item->completion_tokens);
    end_event(w);
    begin_event(w, "message_stop");
    end_event(w);
}

/* ---- whole answers ---- */

static void write_head(const call *c, json_writer *w)
{
    put_head(w, c);
}

static void write_item(const call *c, call_item *item, json_writer *w)
{
    (void)c;
    for (uint32_t i = 0; i < item->parts.count; i++)
        put_block(w, &item->parts.list[i]);
}

static void write_tail(const call *c, json_writer *w)
{
    const call_item *item = &c->items[0];
    jw_close(w, ']');
    put_stop(w, item);
    jw_name(w, "usage"), put_usage(w, c, item, item->completion_tokens);
    jw_close(w, '}');
}

static const call_ops messages_ops = {.kind = API_MESSAGES,
                                      .id_prefix = "msg_",
                                      .dialect = &anthropic_dialect,
                                      .frames = true,
                                      .has_news = has_news,
                                      .write_chunk = write_chunk,
                                      .write_head = write_head,
                                      .write_item = write_item,
                                      .write_tail = write_tail};

void handle_messages(server *s, struct evhttp_request *http)
{
    call_start(s, &messages_ops, http);
}

/* ---- count_tokens ---- */

static bool count(call *c)
{
    token_buf ids = {0};
    bool done = call_encode(c, &c->request.items[0], "messages", &ids);
    c->values = ids.len;
    token_buf_fini(&ids);
    return done;
}

static void answer_count(call *c)
{
    call_reply_json(c, 200, json_pack("{s:I}", "input_tokens", (json_int_t)c->values));
}

static const call_ops count_ops = {.kind = API_COUNT_TOKENS,
                                   .id_prefix = "",
                                   .dialect = &anthropic_dialect,
                                   .compute = count,
                                   .answer = answer_count};

void handle_count_tokens(server *s, struct evhttp_request *http)
{
    call_start(s, &count_ops, http);
}
