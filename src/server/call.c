/* call.c - what a call says next, and when it is over.
 *
 * Three things can end first: the engine's requests, the client, or the server. So the call
 * counts what the engine still owes (num_open) and knows whether evhttp still waits (http);
 * `release` frees it when both are over. A client that leaves aborts its requests, and
 * what they still say is merged and thrown away.
 *
 * Work that is too much for one turn of the loop (turn.c) is a worker's: reading a body and
 * giving its prompts to the engine, writing an answer or a stream's next events.
 *
 *     call_start -> parse, submit ---> on_submitted ---> hear, progress ---> answer, say
 *                   here or there                          ^       |          here or there
 *                                                          +-------+
 *
 * Meanwhile the call is `busy`: nothing of it is touched here, and items with news are put into
 * `deferred`, until end_busy.
 *
 * Invariants: every call is in s->calls once, from `create` to `release`; one that is busy is in
 * one list of a worker, or in its hands, or `own` is in the ready list; an item is in the ready
 * list or among the deferred, never both. */
#include "base/list.h"
#include "server/call_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LARGE_BODY = 256 << 10 }; /* bytes */

/* While a worker has the call its items are the worker's; they are aborted when it is through. */
static void abort_items(call *c)
{
    if (c->busy) return;
    for (uint32_t i = 0; i < c->num_items; i++)
        if (c->items[i].submitted && !c->items[i].finished)
            engine_abort(c->server->engine, c->items[i].id);
}

static void log_call(call *c)
{
    uint64_t prompt = 0, cached = 0, completion = 0;
    char id[201], more[320] = "";
    for (uint32_t i = 0; i < c->num_items; i++) {
        prompt += c->items[i].prompt_tokens;
        cached += c->items[i].hits.cached;
        completion += c->items[i].completion_tokens;
    }
    /* A client may have chosen it: in quotes nothing of it reads as the server's words. */
    snprintf(id, sizeof id, "%.200s", c->id);
    for (char *quote = id; (quote = strchr(quote, '"'));)
        *quote = '\'';
    if (c->num_items) /* not for admin calls, nor for what never came to a prompt */
        snprintf(more, sizeof more, "\"%s\": %llu prompt tokens, %llu cached, %llu out", id,
                 (unsigned long long)prompt, (unsigned long long)cached,
                 (unsigned long long)completion);
    access_record *a = &c->access;
    a->has_tokens = c->num_items > 0;
    a->prompt_tokens = prompt;
    a->cached_tokens = cached;
    a->output_tokens = completion;
    a->admitted_ns = c->num_items ? c->items[0].admitted_ns : 0;
    a->first_ns = c->num_items && completion ? c->items[0].first_ns : 0;
    access_end(c->server, a, more);
}

/* Frees a call that neither evhttp nor the engine nor a worker waits for any more. */
static void release(call *c)
{
    if (c->http || c->num_open || c->busy || c->deferred) return;
    log_call(c);
    server *s = c->server;
    LIST_REMOVE(&s->calls, c, prev, next);
    s->num_calls--;
    call_client_end(c);
    s->passed_bytes += c->bytes + c->num_items * sizeof *c->items;
    for (uint32_t i = 0; i < c->num_items; i++)
        inbox_item_fini(&c->items[i]);
    memory_budget_give(s->params.request_memory, c->num_items * sizeof *c->items);
    session_turn_free(c->turn);
    api_request_fini(&c->request);
    if (c->body) evbuffer_free(c->body);
    if (c->out) evbuffer_free(c->out);
    free(c->work_arg);
    free(c->model_name);
    free(c->items);
    free(c);
}

/* The call is the worker's until `done` runs here. */
static void give_to_worker(call *c, worker *w, call_progress (*work)(call *), void (*done)(call *))
{
    c->busy = true;
    c->work = work;
    c->done = done;
    worker_push(w, &c->own);
}

/* ---- failures ---- */

/* One prompt failed: the whole call does, in words, and its other prompts stop. */
static void fail_call(call *c, const call_item *item)
{
    api_error err;
    call_error_of(item, &err);
    call_reply_error(c, &err);
    abort_items(c);
}

/* A 503: it is not the request's fault. */
static void turn_away(call *c, const char *why)
{
    api_error err;
    api_fail(&err, 503, NULL, "%s", why);
    call_reply_error(c, &err);
}

static void fail_for_memory(call *c)
{
    turn_away(c, "no memory for the answer");
    abort_items(c);
}

/* ---- answers ---- */

/* What writing it costs, in units of a turn: from those bytes of text and ids on. */
static uint64_t cost_of(const call_item *item, size_t from_text, size_t from_ids)
{
    const api_request *r = &item->call->request;
    uint64_t ids = (item->ids.len - from_ids) / sizeof(rad_token), units = UNITS_EVENT;
    if (r->logprobs) units += ids * item_num_logprobs(item) * UNITS_LOGPROB;
    units += item->prompt_logprobs.len / sizeof(token_logprob) * UNITS_LOGPROB;
    units += item->hidden.len / sizeof(double);
    size_t text = item->parser ? answer_parts_unsent(&item->parts) : item->text.len - from_text;
    return units + ids + text / 64;
}

static uint64_t cost_of_news(const call_item *item)
{
    const call *c = item->call;
    bool all = c->ops->chunk_says_all;
    if (item->said_finish || !item->submitted || !c->ops->has_news(c, item)) return 0;
    return cost_of(item, all ? 0 : item->text_sent, all ? 0 : item->ids_sent);
}

/* Writes what the item has to say as an event of the stream. */
static void write_event(call *c, call_item *item, json_writer *w)
{
    if (item->said_finish || !item->submitted) return;
    if (c->ops->has_news(c, item)) {
        if (!c->ops->frames) jw_raw(w, "data: ", 6);
        c->ops->write_chunk(c, item, w);
        if (!c->ops->frames) jw_raw(w, "\n\n", 2);
    }
    item->text_sent = item->text.len;
    item->ids_sent = item->ids.len;
    item->prompt_sent = item->prompt_logprobs.len;
    if (item->finished) item->said_finish = true;
}

/* A turn's worth of it: the items from next_item on. */
static call_progress write_piece(call *c, bool stream)
{
    json_writer w;
    size_t before = evbuffer_get_length(c->out);
    if (atomic_load(&c->unwanted)) return CALL_DONE;
    json_writer_begin(&w, c->out);
    w.comma = c->out_comma;
    if (!stream && !c->next_item) choices_rank(c), c->ops->write_head(c, &w);
    while (c->next_item < c->num_items && w.values < TURN_UNITS) {
        call_item *item = choices_nth(c, c->next_item++);
        if (!item)
            continue;
        else if (stream)
            write_event(c, item, &w);
        else
            c->ops->write_item(c, item, &w);
    }
    bool last = c->next_item == c->num_items;
    if (!stream && last) c->ops->write_tail(c, &w);
    c->out_comma = w.comma;
    if (!json_writer_end(&w)) c->out_failed = true;
    c->bytes += evbuffer_get_length(c->out) - before;
    c->values += w.values;
    return last || c->out_failed ? CALL_DONE : CALL_GO_ON;
}

static call_progress write_answer(call *c)
{
    return write_piece(c, false);
}

static call_progress write_events(call *c)
{
    return write_piece(c, true);
}

/* Begins c->out. False: no memory, and the call has failed. */
static bool begin_writing(call *c)
{
    c->next_item = 0;
    c->values = 0;
    c->out_comma = c->out_failed = false;
    if (!c->out) c->out = evbuffer_new();
    if (!c->out) fail_for_memory(c);
    return c->out != NULL;
}

static void on_answer_written(call *c)
{
    if (!c->http) return;
    if (c->out_failed)
        fail_for_memory(c);
    else
        call_reply_text(c, "application/json", c->out);
}

static void on_events_written(call *c)
{
    if (!c->http) return;
    if (c->out_failed)
        fail_for_memory(c);
    else if (evbuffer_get_length(c->out))
        call_send(c, c->out);
}

static void answer(call *c)
{
    uint64_t units = UNITS_REQUEST;
    for (uint32_t i = 0; i < c->num_items; i++)
        units += cost_of(&c->items[i], 0, 0);
    if (!begin_writing(c)) return;
    c->must_finish = true;
    if (!turn_has(c->server, units)) {
        give_to_worker(c, &c->server->workers[WORKER_WRITER], write_answer, on_answer_written);
        return;
    }
    while (write_answer(c) == CALL_GO_ON)
        ;
    turn_spend(c->server, RAD_MAX(units, c->values));
    on_answer_written(c);
}

/* What the item has to say, or all (NULL). False: a worker is at it, or it failed. */
static bool say(call *c, call_item *item)
{
    uint64_t units = item ? cost_of_news(item) : 0;
    for (uint32_t i = 0; !item && i < c->num_items; i++)
        units += cost_of_news(&c->items[i]);
    if (!begin_writing(c)) return false;
    c->must_finish = true;
    if (!turn_has(c->server, units)) {
        give_to_worker(c, &c->server->workers[WORKER_WRITER], write_events, on_events_written);
        return false;
    }
    if (item) {
        json_writer w;
        json_writer_begin(&w, c->out);
        write_event(c, item, &w);
        if (!json_writer_end(&w)) c->out_failed = true;
        c->values = w.values;
    } else {
        while (write_events(c) == CALL_GO_ON)
            ;
    }
    turn_spend(c->server, RAD_MAX(units, c->values));
    on_events_written(c);
    return c->http != NULL;
}

static void end_stream(call *c)
{
    json_writer w;
    if (!begin_writing(c)) return;
    json_writer_begin(&w, c->out);
    if (c->ops->write_usage_chunk && c->request.include_usage) {
        jw_raw(&w, "data: ", 6);
        c->ops->write_usage_chunk(c, &w);
        jw_raw(&w, "\n\n", 2);
    }
    if (json_writer_end(&w) && evbuffer_get_length(c->out)) call_send(c, c->out);
    call_end_stream(c);
}

/* ---- events ---- */

/* `item` has news, or NULL: any may have (an error never waits for a slow reader). */
static void progress(call *c, call_item *item)
{
    if (!c->http) return;
    if (item && item->finish == ENGINE_FINISH_ERROR) {
        fail_call(c, item);
        return;
    }
    if (!c->request.stream) {
        if (!c->num_open) answer(c);
        return;
    }
    if (call_lags(c) && !c->server->aborted) { /* else nobody waits for it */
        c->stalled = true;
        return;
    }
    if (say(c, item) && !c->num_open) end_stream(c);
}

void call_client_left(call *c)
{
    atomic_store(&c->unwanted, true);
    abort_items(c);
    release(c);
}

/* Says what gathered meanwhile. */
void call_client_read(call *c)
{
    if (!c->stalled || !c->http || c->busy) return;
    c->stalled = false;
    progress(c, NULL);
    release(c);
}

/* The item's news; what comes after it in its list comes back. */
static call_item *hear(call *c, call_item *item)
{
    call_item *next = inbox_merge(item);
    if (c->turn) call_hear_turn(c, item); /* before the client does: it may go on from it at once */
    call_client_heard(c, item);
    if (!item->first_ns) item->first_ns = server_now_ns(c->server);
    if (item->finished)
        c->num_open--;
    else if (item->lost || item->unread)
        engine_abort(c->server->engine, item->id);
    progress(c, item);
    return next;
}

/* Clients of OpenAI's and Anthropic's would send a request anew that ended with a 504: it would
 * take as long again. */
static void end_overdue(call *c)
{
    api_error err;
    api_fail(&err, 504, NULL, "the request took longer than %u s (--request-timeout)",
             (c->server->params.answer_timeout_ms + 999) / 1000);
    err.type = "timeout_error";
    if (!c->started)
        evhttp_add_header(evhttp_request_get_output_headers(c->http), "x-should-retry", "false");
    call_reply_error(c, &err);
    abort_items(c);
}

/* The worker is through: what it was for goes on, then what the engine said meanwhile. */
static void end_busy(call *c)
{
    bool wrote_events = c->done == on_events_written;
    c->busy = false;
    if (c->overdue && c->http) end_overdue(c);
    c->done(c);
    /* Nobody waits any more, or a stop could not abort it while it was busy. */
    if (!c->http || c->server->aborted || c->abort_asked) abort_items(c);
    call_item *item = c->deferred;
    c->deferred = NULL;
    while (item && !c->busy)
        item = hear(c, item);
    c->deferred = item;
    if (wrote_events && c->http && !c->busy) progress(c, NULL); /* it may have been the last */
}

/* Each item is in the ready list once; one whose call is a worker's moves to the call's own. */
void calls_drain(server *s)
{
    bool first = true;
    for (call_item *item = inbox_take(s), *next; item; item = next, first = false) {
        call *c = item->call;
        if (!first && !turn_has(s, UNITS_EVENT)) {
            inbox_put_back(s, item);
            break;
        }
        turn_spend(s, UNITS_EVENT);
        if (item == &c->own) {
            next = inbox_unlink(item);
            end_busy(c);
        } else if (c->busy) {
            next = item->next;
            item->next = c->deferred;
            c->deferred = item;
        } else {
            next = hear(c, item);
        }
        release(c);
    }
}

/* ---- starting ---- */

static call *create(server *s, const call_ops *ops, struct evhttp_request *http)
{
    call *c = calloc(1, sizeof *c);
    if (!c) {
        api_error err;
        api_fail(&err, 503, NULL, "no memory for this request");
        reply_error(http, &err);
        return NULL;
    }
    c->server = s;
    c->access = s->access;
    c->owner = s->owner;
    c->ops = ops;
    c->http = http;
    c->own.call = c;
    c->created_unix = (uint64_t)time(NULL);
    c->created_ns = c->last_sent_ns = server_now_ns(s);
    LIST_APPEND(&s->calls, c, prev, next);
    s->num_calls++;
    call_watch(c);
    call_client_begin(c);
    return c;
}

static call_progress work_parse(call *c)
{
    if (atomic_load(&c->unwanted)) return CALL_DONE;
    if (c->body) {
        size_t len = evbuffer_get_length(c->body);
        call_parse(c, (const char *)evbuffer_pullup(c->body, -1), len);
        evbuffer_free(c->body);
        c->body = NULL;
    }
    if (c->parsed && c->ops->compute)
        c->parsed = c->ops->compute(c);
    else if (c->parsed)
        call_submit(c);
    return CALL_DONE;
}

static void on_submitted(call *c)
{
    for (uint32_t i = 0; i < c->num_items; i++)
        c->num_open += c->items[i].submitted;
    if (c->server->aborted || c->abort_asked) abort_items(c);
    if (!c->http) return;
    if (c->not_done)
        turn_away(c, "the server is stopping");
    else if (!c->parsed)
        call_reply_error(c, &c->error);
    else if (c->failed)
        fail_call(c, c->failed);
    else if (c->ops->compute || !c->request.num_items)
        c->ops->answer(c);
}

/* A body that this turn has no place for: a worker parses it, and one for large ones, so that
 * those behind it do not wait for seconds. */
static void start_elsewhere(call *c, struct evbuffer *body, size_t len)
{
    c->body = evbuffer_new();
    if (!c->body || evbuffer_add_buffer(c->body, body) != 0) {
        turn_away(c, "no memory for this request");
        return;
    }
    int parser = len > LARGE_BODY ? WORKER_LARGE_PARSER : WORKER_PARSER;
    give_to_worker(c, &c->server->workers[parser], work_parse, on_submitted);
}

static void start_here(call *c, struct evbuffer *body, size_t len)
{
    server *s = c->server;
    call_parse(c, len ? (const char *)evbuffer_pullup(body, -1) : "", len);
    evbuffer_drain(body, len);
    if (c->request.room.values > len / BYTES_A_UNIT)
        turn_spend(s, c->request.room.values - len / BYTES_A_UNIT);
    uint64_t units = c->parsed ? (uint64_t)c->request.num_items * UNITS_PROMPT : 0;
    if (!turn_has(s, units) || (c->parsed && call_is_encoded(c))) {
        give_to_worker(c, &s->workers[WORKER_PARSER], work_parse, on_submitted);
        return;
    }
    turn_spend(s, units);
    if (c->parsed) call_submit(c);
    on_submitted(c);
}

void call_start(server *s, const call_ops *ops, struct evhttp_request *http)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(http);
    size_t len = evbuffer_get_length(body);
    uint64_t units = UNITS_REQUEST + len / BYTES_A_UNIT;
    call *c = call_client_may(s, ops, http) ? create(s, ops, http) : NULL;
    if (!c) return;
    char name[RANDOM_ID_BYTES];
    random_id(name);
    snprintf(c->id, sizeof c->id, "%s%s", ops->id_prefix, name);
    c->bytes = len;
    if (turn_has(s, units) && !ops->compute) {
        start_here(c, body, len);
        turn_spend(s, units);
    } else {
        start_elsewhere(c, body, len);
    }
    release(c);
}

static void on_worked(call *c)
{
    if (!c->http) return;
    if (c->not_done)
        turn_away(c, "the server is stopping");
    else
        c->ops->answer(c);
}

void call_start_work(server *s, worker *w, const call_ops *ops, struct evhttp_request *http,
                     uint64_t timeout_ms, void *work_arg)
{
    call *c = create(s, ops, http);
    if (!c) {
        free(work_arg);
        return;
    }
    c->work_arg = work_arg;
    c->timeout_ms = timeout_ms;
    give_to_worker(c, w, ops->work, on_worked);
}

uint32_t calls_abort(server *s, const char *id, const char *owner)
{
    uint32_t count = 0;
    for (call *c = s->calls.first; c; c = c->next) {
        bool his = owner == c->owner || (owner && c->owner && strcmp(owner, c->owner) == 0);
        if (!his || (id && strcmp(id, c->id) != 0) || c->ops->work) continue;
        c->abort_asked = true;
        abort_items(c);
        count++;
    }
    return count;
}

void calls_end_overdue(server *s, uint64_t now_ns)
{
    uint64_t most_ns = s->params.answer_timeout_ms * UINT64_C(1000000);
    if (!most_ns) return;
    for (call *c = s->calls.first, *next; c; c = next) {
        next = c->next;
        if (!c->http || c->ops->work || c->overdue || now_ns - c->created_ns < most_ns) continue;
        c->overdue = true;
        if (c->busy)
            atomic_store(&c->unwanted, true); /* what the worker is at stops, then end_busy */
        else
            end_overdue(c);
        release(c);
    }
}

/* Also what only waited for a slow reader is over now: nothing else would wake it. */
void calls_abort_all(server *s)
{
    for (call *c = s->calls.first, *next; c; c = next) {
        next = c->next;
        abort_items(c);
        if (c->stalled && !c->busy) progress(c, NULL);
        release(c);
    }
}
