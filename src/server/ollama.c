/* ollama.c - answers of /api/chat and /api/generate: lines of JSON.
 *
 *     {..., "message": {"content": "Hel"}, "done": false}     or "response": "Hel"
 *     {..., "message": {"content": "lo"}, "done": false}
 *     {..., "message": {"content": ""}, "done": true, "done_reason": "stop", counts and times}
 *
 * An answer that is no stream is one line of the last kind, with all in it. Calls come whole. */
#include "server/answer_parts.h"
#include "server/rfc3339.h"
#include "server/server_priv.h"

#include <time.h>

static bool is_chat(const call *c)
{
    return c->ops->kind == API_OLLAMA_CHAT;
}

static void put_head(json_writer *w, const call *c)
{
    struct timespec now;
    char text[RFC3339_BYTES];
    clock_gettime(CLOCK_REALTIME, &now);
    jw_open(w, '{');
    jw_name(w, "model"), jw_word(w, call_model(c));
    jw_name(w, "created_at"), jw_word(w, rfc3339(now, text));
}

static void put_call(json_writer *w, const answer_part *part)
{
    jw_open(w, '{');
    jw_name(w, "id"), jw_word(w, part->id);
    jw_name(w, "function"), jw_open(w, '{');
    jw_name(w, "index"), jw_int(w, part->index);
    jw_name(w, "name"), jw_word(w, part->name);
    jw_name(w, "arguments");
    if (part->text.len)
        jw_spliced(w, part->text.data, part->text.len);
    else
        jw_open(w, '{'), jw_close(w, '}');
    jw_close(w, '}');
    jw_close(w, '}');
}

static void put_from(json_writer *w, const byte_buf *text, size_t from)
{
    if (text->len > from)
        jw_text(w, text->data + from, text->len - from);
    else
        jw_text(w, "", 0);
}

/* A call that can be told: whole, and JSON. */
static bool is_call(const answer_part *part)
{
    return part->kind == PART_CALL && part->ended && !part->broken;
}

/* All parts of one kind as one text. */
static void put_all(json_writer *w, const call_item *item, part_kind kind)
{
    const answer_parts *p = &item->parts;
    struct evbuffer *text = evbuffer_new();
    for (uint32_t i = 0; text && i < p->count; i++)
        if (p->list[i].kind == kind && p->list[i].text.len)
            evbuffer_add(text, p->list[i].text.data, p->list[i].text.len);
    if (text && kind == PART_CONTENT && !p->count) /* a raw prompt's */
        evbuffer_add(text, item->text.data, item->text.len);
    size_t len = text ? evbuffer_get_length(text) : 0;
    jw_text(w, len ? (const char *)evbuffer_pullup(text, -1) : "", len);
    if (text)
        evbuffer_free(text);
    else
        w->failed = true;
}

static bool has_kind(const call_item *item, part_kind kind)
{
    for (uint32_t i = 0; i < item->parts.count; i++)
        if (item->parts.list[i].kind == kind) return true;
    return false;
}

/* Of an answer that is no stream. */
static void put_whole(json_writer *w, const call *c, const call_item *item)
{
    bool chat = is_chat(c);
    if (chat) jw_name(w, "message"), jw_open(w, '{'), jw_name(w, "role"), jw_word(w, "assistant");
    jw_name(w, chat ? "content" : "response"), put_all(w, item, PART_CONTENT);
    if (has_kind(item, PART_REASONING)) jw_name(w, "thinking"), put_all(w, item, PART_REASONING);
    if (item->parts.num_calls) {
        jw_name(w, "tool_calls"), jw_open(w, '[');
        for (uint32_t i = 0; i < item->parts.count; i++)
            if (is_call(&item->parts.list[i])) put_call(w, &item->parts.list[i]);
        jw_close(w, ']');
    }
    if (chat) jw_close(w, '}');
}

static void put_end(json_writer *w, const call *c, const call_item *item)
{
    /* The model is there: what is left of loading is what comes before the prompt's turn. */
    const int64_t load_ns = call_load_ns(c), engine_ns = (int64_t)(item->e2e_latency_s * 1e9);
    int64_t first_ns = item->first_ns > c->given_ns ? (int64_t)(item->first_ns - c->given_ns) : 0;
    first_ns = RAD_MIN(first_ns, engine_ns);
    jw_name(w, "done"), jw_spliced(w, "true", 4);
    jw_name(w, "done_reason");
    jw_word(w, item->finish == ENGINE_FINISH_LENGTH ? "length" : "stop");
    jw_name(w, "total_duration"), jw_int(w, load_ns + engine_ns);
    jw_name(w, "load_duration"), jw_int(w, load_ns);
    jw_name(w, "prompt_eval_count"), jw_int(w, item->prompt_tokens);
    jw_name(w, "prompt_eval_duration"), jw_int(w, first_ns);
    jw_name(w, "eval_count"), jw_int(w, item->completion_tokens);
    jw_name(w, "eval_duration"), jw_int(w, engine_ns - first_ns);
}

/* ---- streams ---- */

static void end_line(json_writer *w)
{
    jw_close(w, '}');
    jw_raw(w, "\n", 1);
}

static void begin_line(json_writer *w, const call *c)
{
    put_head(w, c);
    if (is_chat(c)) {
        jw_name(w, "message"), jw_open(w, '{');
        jw_name(w, "role"), jw_word(w, "assistant");
    }
}

static void put_nothing(json_writer *w, const call *c)
{
    jw_name(w, is_chat(c) ? "content" : "response"), jw_word(w, "");
}

static void end_message(json_writer *w, const call *c, bool done)
{
    if (is_chat(c)) jw_close(w, '}');
    if (!done) jw_name(w, "done"), jw_spliced(w, "false", 5);
}

static void say_part(json_writer *w, const call *c, answer_part *part)
{
    bool call_now = is_call(part) && !part->said_begin;
    bool more = part->kind != PART_CALL && part->text.len > part->sent;
    if (call_now || more) {
        begin_line(w, c);
        if (part->kind == PART_CONTENT) {
            jw_name(w, is_chat(c) ? "content" : "response"), put_from(w, &part->text, part->sent);
        } else {
            put_nothing(w, c);
            if (more) jw_name(w, "thinking"), put_from(w, &part->text, part->sent);
            if (call_now)
                jw_name(w, "tool_calls"), jw_open(w, '['), put_call(w, part), jw_close(w, ']');
        }
        end_message(w, c, false);
        end_line(w);
    }
    part->sent = part->text.len;
    part->said_begin = part->kind != PART_CALL || part->ended;
    part->said_end = part->ended;
}

static bool has_news(const call *c, const call_item *item)
{
    (void)c;
    return item->finished || item->text.len > item->text_sent ||
           answer_parts_have_news(&item->parts);
}

static void write_chunk(const call *c, call_item *item, json_writer *w)
{
    for (uint32_t i = item->parts.first_unsaid; i < item->parts.count; i++) {
        say_part(w, c, &item->parts.list[i]);
        if (item->parts.list[i].said_end) item->parts.first_unsaid = i + 1;
    }
    if (!item->parts.count && item->text.len > item->text_sent) {
        begin_line(w, c);
        jw_name(w, "response"), put_item_text(w, item, item->text_sent);
        end_message(w, c, false);
        end_line(w);
    }
    if (!item->finished) return;
    begin_line(w, c);
    put_nothing(w, c);
    end_message(w, c, true);
    put_end(w, c, item);
    end_line(w);
}

/* A line that says nothing: some clients take an empty one for a broken one. */
static void write_ping(const call *c, json_writer *w)
{
    begin_line(w, c);
    put_nothing(w, c);
    end_message(w, c, false);
    end_line(w);
}

/* ---- whole answers ---- */

static void write_nothing(const call *c, json_writer *w)
{
    (void)c;
    (void)w;
}

static void write_item(const call *c, call_item *item, json_writer *w)
{
    put_head(w, c);
    put_whole(w, c, item);
    put_end(w, c, item);
    jw_close(w, '}');
}

/* Of a request without a prompt: the model is there. */
static void answer_load(call *c)
{
    json_writer w;
    struct evbuffer *body = evbuffer_new();
    json_writer_begin(&w, body);
    begin_line(&w, c);
    put_nothing(&w, c);
    end_message(&w, c, true);
    jw_name(&w, "done"), jw_spliced(&w, "true", 4);
    jw_name(&w, "done_reason"), jw_word(&w, "load");
    end_line(&w);
    if (json_writer_end(&w))
        call_reply_text(c, c->request.stream ? "application/x-ndjson" : "application/json", body);
    else
        call_reply_json(c, 503, NULL);
    if (body) evbuffer_free(body);
}

#define OLLAMA_OPS(what)                                                                           \
    {                                                                                              \
        .kind = what, .id_prefix = "ollama-", .dialect = &ollama_dialect, .frames = true,          \
        .has_news = has_news, .write_chunk = write_chunk, .write_ping = write_ping,                \
        .write_head = write_nothing, .write_item = write_item, .write_tail = write_nothing,        \
        .answer = answer_load                                                                      \
    }
static const call_ops ollama_chat_ops = OLLAMA_OPS(API_OLLAMA_CHAT);
static const call_ops ollama_generate_ops = OLLAMA_OPS(API_OLLAMA_GENERATE);

void handle_ollama_chat(server *s, struct evhttp_request *http)
{
    call_start(s, &ollama_chat_ops, http);
}

void handle_ollama_generate(server *s, struct evhttp_request *http)
{
    call_start(s, &ollama_generate_ops, http);
}
