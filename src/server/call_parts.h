/* call_parts.h - what the files of a call ask of each other.
 *
 *     call.c -> call_submit.c -> engine -> call_inbox.c -> call.c -> call_http.c -> client
 *     begins    asks                       hears            decides   says
 *
 * and beside them call_client.c, a client's limits, and call_refused.c, why there is no answer. */
#ifndef SERVER_CALL_PARTS_H
#define SERVER_CALL_PARTS_H

#include "server/server_priv.h"

/* ---- call_inbox.c ---- */

/* The engine's on_event; `user` is the item. Any thread. */
void inbox_on_event(void *user, const engine_event *event);

/* inbox_take unlinks the whole ready list and returns its first item. inbox_merge moves the events
 * that were queued for an item into the item and returns the next item of the list. The server's
 * thread. */
call_item *inbox_take(server *s);
call_item *inbox_merge(call_item *item);

/* Puts the items from `first` on back at the head of the ready list, for the next turn. */
void inbox_put_back(server *s, call_item *first);

/* Like inbox_merge without merging; the item may be put into the ready list again. */
call_item *inbox_unlink(call_item *item);

void inbox_item_fini(call_item *item);

/* ---- call_http.c; the server's thread ---- */

/* evhttp's request becomes the call's: a client that leaves is noticed. */
void call_watch(call *c);

/* Back-pressure: true while too many bytes of this stream wait in the socket's buffer. */
bool call_lags(const call *c);

/* Events of a stream as they go out, drained; the first ones bring the headers. */
void call_send(call *c, struct evbuffer *events);
void call_end_stream(call *c);
void call_reply_error(call *c, const api_error *err); /* as an event once a stream has begun */

/* ---- call_form.c; a worker ---- */

/* Once the body is parsed: the form of its answers with the calls that they may or must have.
 * False: why not is in c->error. */
bool call_finish_form(call *c);

/* ---- choices.c ---- */

/* All have ended: which of them are told, and where (item->place). What is told as the nth, or
 * NULL: nothing any more. */
void choices_rank(call *c);
call_item *choices_nth(call *c, uint32_t nth);

/* The item's text begins with its prompt, where the request wants it. False: no memory. */
bool choices_echo(call_item *item, const engine_request *r);

/* ---- call_client.c ---- */

/* Before a call is made. False: its client has no tokens left, and is answered. */
bool call_client_may(server *s, const call_ops *ops, struct evhttp_request *http);
void call_client_begin(call *c);
/* Its prompts wait from now on. False: too many, a 429 in c->error. Any thread. */
bool call_client_queue(call *c);
/* News of an item were merged; first_ns is still 0 with its first. */
void call_client_heard(call *c, call_item *item);
void call_client_end(call *c);

/* ---- embeddings.c ---- */

/* What the request wants of embeddings this model has. False: the reason is in c->error. */
bool embeddings_check(call *c);

/* ---- call_submit.c; whoever has the call ---- */

/* Reads the body into c->request. c->parsed is false where it cannot be served: c->error. */
void call_parse(call *c, const char *bytes, size_t len);

/* Whether its prompt is encoded before it is submitted: too much for a turn of the loop. */
bool call_is_encoded(const call *c);

/* An item for each answer, and their prompts are the engine's. What fails is in c->error (c->parsed
 * is false then) or in the item c->failed. */
void call_submit(call *c);

/* ---- call_refused.c ---- */

/* What the engine says no with, in HTTP's terms. False. */
bool fail_by_status(api_error *err, rad_status status, const char *param, const char *words);

/* Why this item has failed. */
void call_error_of(const call_item *item, api_error *err);

/* ---- call.c: what evhttp tells ---- */
void call_client_left(call *c); /* c->http is NULL; may free c */
void call_client_read(call *c); /* everything; may free c */

#endif
