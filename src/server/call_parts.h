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

/* Of what was taken, the rest from `first` on: for the next turn, before what came meanwhile. */
void inbox_put_back(server *s, call_item *first);

/* Without merging: it may be put into the ready list again. */
call_item *inbox_unlink(call_item *item);

void inbox_item_fini(call_item *item);

/* ---- call_http.c; the server's thread ---- */

/* evhttp's request becomes the call's: a client that leaves is noticed. */
void call_watch(call *c);

/* What we have to say should wait until the client has read what we said. */
bool call_lags(const call *c);

/* Events of a stream as they go out, drained; the first ones bring the headers. */
void call_send(call *c, struct evbuffer *events);
void call_end_stream(call *c);
void call_reply_error(call *c, const api_error *err); /* as an event once a stream has begun */

/* ---- call.c: what evhttp tells ---- */
void call_client_left(call *c); /* c->http is NULL; may free c */
void call_client_read(call *c); /* everything; may free c */

#endif
