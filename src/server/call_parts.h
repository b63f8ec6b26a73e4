/* call_parts.h - what the three files of a call ask of each other.
 *
 *     engine -> call_inbox.c -> call.c -> call_http.c -> client
 *               hears            decides   says */
#ifndef SERVER_CALL_PARTS_H
#define SERVER_CALL_PARTS_H

#include "server/server_priv.h"

/* ---- call_inbox.c ---- */

/* The engine's on_event; `user` is the item. Any thread. */
void inbox_on_event(void *user, const engine_event *event);

/* All items that have news, linked by `next`; then each in turn: what came for it is in the item,
 * and the next one comes back. The server's thread. */
call_item *inbox_take(server *s);
call_item *inbox_merge(call_item *item);

void inbox_item_fini(call_item *item);

/* ---- call_http.c; the server's thread ---- */

/* evhttp's request becomes the call's: a client that leaves is noticed. */
void call_watch(call *c);

/* Gives the request away unanswered; its connection is not watched any more. */
struct evhttp_request *call_unwatch(call *c);

/* What we have to say should wait until the client has read what we said. */
bool call_lags(const call *c);

/* An event of a stream; takes json, NULL says nothing. The first one brings the headers. */
void call_send_event(call *c, json_t *json);
void call_end_stream(call *c);
void call_reply_error(call *c, const api_error *err); /* as an event once a stream has begun */

/* ---- call.c: what evhttp tells ---- */
void call_client_left(call *c); /* c->http is NULL; may free c */
void call_client_read(call *c); /* everything; may free c */

#endif
