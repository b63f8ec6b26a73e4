/* session_turns.c - /open_session, /close_session, and a request that is a turn of a session.
 *
 * What the turn sends is encoded by itself, a chat's new messages behind a stand-in for the history
 * (prompt_ids.h), and put behind the history's ids. */
#include "server/api_fields.h"
#include "server/prompt_ids.h"
#include "server/server_priv.h"

#include <stdlib.h>
#include <string.h>

/* ---- the turn ---- */

/* What the turn adds to the history. A BOS in front of it would stand in the middle. */
static bool encode_own(call *c, const engine_request *q, const token_buf *history, token_buf *own)
{
    const tokenizer *tok = engine_tokenizer(c->server->engine);
    rad_token last = history->len ? history->ids[history->len - 1] : -1;
    bool ended = last >= 0 && tok && tokenizer_is_eog(tok, last);
    if ((q->messages || q->chat_json) && ended &&
        prompt_ids_behind(c->server->engine, q, &c->request.room, last, own))
        return true;
    own->len = 0;
    for (uint32_t i = 0; i < q->num_ids; i++)
        if (token_buf_push(own, q->ids[i]))
            return api_fail(&c->error, 503, NULL, "no memory for this turn");
    if (!q->ids && !call_encode(c, q, c->items[0].refused_param, own)) return false;
    if (history->len && own->len > 1 && tok && own->ids[0] == tokenizer_bos(tok))
        memmove(own->ids, own->ids + 1, --own->len * sizeof *own->ids);
    return true;
}

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
