/* session_turns.c - /open_session, /close_session, and a request that is a turn of a session.
 *
 * What the turn sends is encoded by itself and put behind the history's ids. Of a conversation it
 * sends the new messages alone. A template writes something between an answer and what follows it
 * (a line's end, and not the system prompt of an empty conversation), so what is new is rendered
 * behind a stand-in for the history, and taken from behind that one's end token:
 *
 *     history, as ids          ... the answer <|im_end|>
 *     the stand-in             <|im_start|>user\n0<|im_end|>\n<|im_start|>assistant\n1<|im_end|>
 *     what is new behind it    \n<|im_start|>tool\n...<|im_end|>\n<|im_start|>assistant\n
 *
 * Where the history does not end with an end token, or a template does something else with it, what
 * is new is rendered by itself. */
#include "server/api_fields.h"
#include "server/server_priv.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is new ---- */

static const char ASKED[] = "0 1 2", ANSWERED[] = "2 1 0";

/* The end of `ids` behind its n-th `end`, 0: it has fewer. */
static uint32_t behind(const token_buf *ids, rad_token end, uint32_t n)
{
    for (uint32_t i = 0; n && i < ids->len; i++)
        if (ids->ids[i] == end && !--n) return i + 1;
    return 0;
}

static uint32_t count(const token_buf *ids, rad_token id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ids->len; i++)
        n += ids->ids[i] == id;
    return n;
}

/* The same tokens before a[..at_a] and b[..at_b], the end token included. */
static bool ends_alike(const token_buf *a, uint32_t at_a, const token_buf *b, uint32_t at_b)
{
    enum { ALIKE = 4 };
    return at_a >= ALIKE && at_b >= ALIKE &&
           !memcmp(a->ids + at_a - ALIKE, b->ids + at_b - ALIKE, ALIKE * sizeof *a->ids);
}

/* The stand-in before `messages`: its answer is a call where a tool's result comes next. */
static bool put_stand_in(json_t *messages)
{
    const json_t *first = json_array_get(messages, 0);
    const json_t *name = json_object_get(first, "name");
    json_t *asked = json_pack("{s:s, s:s}", "role", "user", "content", ASKED);
    json_t *answered = json_pack("{s:s, s:s}", "role", "assistant", "content", ANSWERED);
    if (answered && json_in_says(json_object_get(first, "role"), "tool"))
        json_object_set_new(answered, "tool_calls",
                            json_pack("[{s:s, s:s, s:{s:s, s:{}}}]", "type", "function", "id",
                                      "call_0", "function", "name",
                                      json_is_string(name) ? json_string_value(name) : "tool",
                                      "arguments"));
    bool put = json_array_insert_new(messages, 0, answered) == 0;
    return json_array_insert_new(messages, 0, asked) == 0 && put;
}

/* The conversation as an object, whichever form it has. */
static json_t *conversation_of(const engine_request *q)
{
    if (q->chat_json) return json_loadb(q->chat_json, q->chat_json_len, 0, NULL);
    json_t *messages = json_array();
    for (uint32_t i = 0; i < q->num_messages; i++)
        (void)json_array_append_new(messages,
                                    json_pack("{s:s, s:s%}", "role", q->messages[i].role, "content",
                                              q->messages[i].content, q->messages[i].content_len));
    return json_pack("{s:o}", "messages", messages);
}

static bool encode_json(call *c, const json_t *talk, token_buf *out)
{
    char *text = json_dumps(talk, JSON_COMPACT);
    const engine_request q = {.chat_json = text, .chat_json_len = text ? strlen(text) : 0};
    bool done = text && engine_encode(c->server->engine, &q, out, NULL) == RAD_OK;
    free(text);
    return done;
}

/* What a template writes behind an answer that ended with `end`; false: it does not say. */
static bool encode_behind(call *c, const engine_request *q, rad_token end, token_buf *out)
{
    token_buf before = {0}, all = {0};
    json_t *talk = conversation_of(q);
    json_t *messages = json_object_get(talk, "messages");
    bool done = talk && put_stand_in(messages) && encode_json(c, talk, &all);
    while (done && json_array_size(messages) > 2)
        json_array_remove(messages, json_array_size(messages) - 1);
    if (done) json_object_del(talk, "continue_final_message");
    done = done && encode_json(c, talk, &before);
    uint32_t ends = count(&before, end), at = behind(&all, end, ends);
    done = done && at && ends_alike(&before, behind(&before, end, ends), &all, at);
    for (uint32_t i = at; done && i < all.len; i++)
        done = token_buf_push(out, all.ids[i]) == RAD_OK;
    json_decref(talk);
    token_buf_fini(&before);
    token_buf_fini(&all);
    return done && out->len;
}

/* What the turn adds to the history. A BOS in front of it would stand in the middle. */
static bool encode_own(call *c, const engine_request *q, const token_buf *history, token_buf *own)
{
    const tokenizer *tok = engine_tokenizer(c->server->engine);
    rad_token last = history->len ? history->ids[history->len - 1] : -1;
    bool ended = last >= 0 && tok && tokenizer_is_eog(tok, last);
    if ((q->messages || q->chat_json) && ended && encode_behind(c, q, last, own)) return true;
    own->len = 0;
    for (uint32_t i = 0; i < q->num_ids; i++)
        if (token_buf_push(own, q->ids[i]))
            return api_fail(&c->error, 503, NULL, "no memory for this turn");
    if (!q->ids && !call_encode(c, q, q->text ? "prompt" : "messages", own)) return false;
    if (history->len && own->len > 1 && tok && own->ids[0] == tokenizer_bos(tok))
        memmove(own->ids, own->ids + 1, --own->len * sizeof *own->ids);
    return true;
}

/* ---- the turn ---- */

/* The request's prompt becomes both. */
static bool set_prompt(call *c, const token_buf *history, const token_buf *own)
{
    engine_request *q = &c->request.items[0];
    uint32_t len = history->len + own->len;
    rad_token *ids = api_request_alloc(&c->request, len, sizeof *ids, &c->error);
    if (!ids) return false;
    if (history->len) memcpy(ids, history->ids, history->len * sizeof *ids);
    memcpy(ids + history->len, own->ids, own->len * sizeof *ids);
    q->text = q->chat_json = NULL;
    q->messages = NULL;
    q->num_messages = 0;
    q->ids = ids;
    q->num_ids = len;
    q->session = c->turn->engine_session;
    return true;
}

bool call_begin_turn(call *c)
{
    token_buf history = {0}, own = {0};
    c->turn = sessions_begin(c->server->sessions, c->owner, &c->request.session, c->id, &history,
                             &c->error);
    bool begun = c->turn && encode_own(c, &c->request.items[0], &history, &own) &&
                 session_turn_input(c->turn, own.ids, own.len, &c->error) &&
                 set_prompt(c, &history, &own);
    token_buf_fini(&history);
    token_buf_fini(&own);
    if (!begun && c->turn) session_turn_end(c->turn, ENGINE_FINISH_ERROR);
    return begun;
}

void call_hear_turn(call *c, const call_item *item)
{
    session_turn_heard(c->turn, (const rad_token *)(const void *)item->ids.data,
                       (uint32_t)(item->ids.len / sizeof(rad_token)));
    if (item->finished) session_turn_end(c->turn, item->finish);
}

json_t *json_session(const call *c)
{
    const session_turn *t = c->turn;
    if (!t) return NULL;
    return json_pack("{s:s, s:b, s:s, s:s?, s:I, s:I, s:I}", "id", t->id, "streaming", t->streaming,
                     "step", session_step_name(t->step), "from", t->from[0] ? t->from : NULL,
                     "history_tokens", (json_int_t)t->history_tokens, "left_tokens",
                     (json_int_t)t->left_tokens, "new_tokens", (json_int_t)t->input_tokens);
}

/* ---- open and close ---- */

typedef struct session_wish {
    bool streaming, made_up;
    uint64_t idle_ns;
    char id[SESSION_ID_BYTES];
} session_wish;

static call_progress work_open(call *c)
{
    session_wish *w = c->work_arg;
    char name[SESSION_ID_BYTES];
    bool open = sessions_open(c->server->sessions, c->owner, w->made_up ? NULL : w->id,
                              w->streaming, w->idle_ns, name, &c->error);
    c->status = open ? RAD_OK : RAD_E_INVAL;
    if (open) memcpy(w->id, name, sizeof name);
    return CALL_DONE;
}

static call_progress work_close(call *c)
{
    const session_wish *w = c->work_arg;
    bool closed = sessions_close(c->server->sessions, c->owner, w->id, &c->error);
    c->status = closed ? RAD_OK : RAD_E_INVAL;
    return CALL_DONE;
}

static void answer_error(call *c)
{
    call_reply_json(c, c->error.http_status, error_json(&c->error));
}

/* SGLang's answer: the name alone. */
static void answer_open(call *c)
{
    const session_wish *w = c->work_arg;
    if (c->status)
        answer_error(c);
    else
        call_reply_json(c, 200, json_string(w->id));
}

static void answer_close(call *c)
{
    const session_wish *w = c->work_arg;
    if (c->status)
        answer_error(c);
    else
        call_reply_json(c, 200, json_pack("{s:s, s:b}", "session_id", w->id, "closed", 1));
}

static const call_ops open_ops = {.answer = answer_open, .work = work_open};
static const call_ops close_ops = {.answer = answer_close, .work = work_close};

/* Seconds, whole or not. */
static bool read_timeout(const json_t *body, uint64_t *ns, api_error *err)
{
    const json_t *timeout = json_in_get(body, "timeout");
    double seconds = json_number_value(timeout);
    if (!timeout) return true;
    if (!json_is_number(timeout) || !(seconds > 0 && seconds <= 1e9))
        return api_fail(err, 400, "timeout", "'timeout' is a number of seconds above 0");
    *ns = (uint64_t)(seconds * 1e9);
    return true;
}

static session_wish *read_wish(struct evhttp_request *http, unsigned place, api_error *err)
{
    const char *id = NULL;
    json_t *body = read_small_body(http, err);
    session_wish *w = body ? calloc(1, sizeof *w) : NULL;
    if (body && !w) api_fail(err, 503, NULL, "no memory for this request");
    bool fine = w && api_check_fields(body, place, err) &&
                api_parse_key(body, "session_id", &id, err) &&
                json_in_bool(body, "streaming", &w->streaming, err) &&
                read_timeout(body, &w->idle_ns, err);
    if (fine && !id && place == IN_CLOSE_SESSION)
        fine = api_fail(err, 400, "session_id", "'session_id' is missing");
    if (fine && id) memcpy(w->id, id, strlen(id) + 1);
    if (fine) w->made_up = !id;
    json_decref(body);
    if (fine) return w;
    free(w);
    return NULL;
}

static void start(server *s, struct evhttp_request *http, const call_ops *ops, unsigned place)
{
    api_error err;
    session_wish *w = read_wish(http, place, &err);
    if (w)
        call_start_work(s, &s->workers[WORKER_WAITER], ops, http, 0, w);
    else
        reply_error(http, &err);
}

void handle_open_session(server *s, struct evhttp_request *http)
{
    start(s, http, &open_ops, IN_OPEN_SESSION);
}

void handle_close_session(server *s, struct evhttp_request *http)
{
    start(s, http, &close_ops, IN_CLOSE_SESSION);
}
