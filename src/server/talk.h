/* talk.h - another protocol's conversation becomes one in OpenAI's shape.
 *
 * Anthropic's blocks, Responses' items and Ollama's messages say the same things in other
 * places: a role and its texts, reasoning, calls of tools and what those gave back. Each protocol
 * walks over its own and calls these; what they make is what conversation_set takes.
 *
 * Texts are shared with the body, not copied. Memory that is short is remembered (talk_end). */
#ifndef SERVER_TALK_H
#define SERVER_TALK_H

#include "server/conversation.h"

typedef struct talk {
    api_request *r;
    json_t *messages, *tools, *later;
    json_t *last; /* the newest message, borrowed; NULL: the next text begins one */
    bool failed;  /* no memory */
} talk;

/* Room for as much again as the body took. r->items gets its one item. False: 503 in err. */
bool talk_begin(talk *t, api_request *r, api_error *err);

/* The newest message if it has that role and is still open, else a new one. */
void talk_role(talk *t, const char *role);
void talk_close(talk *t); /* the next text begins a new message, whatever its role */

void talk_text(talk *t, json_t *text); /* borrowed, as all of these; a string */
void talk_reasoning(talk *t, json_t *text);
void talk_call(talk *t, json_t *id, json_t *name, json_t *arguments);
/* A message of its own; `content` is a string or a list of text parts. `id` or `name` may be
 * NULL. */
void talk_result(talk *t, json_t *id, json_t *name, json_t *content);
/* `strict`: true, false or NULL. `later`: the chat template is not told of it, the history tells the model where it needs it. */
void talk_tool(talk *t, json_t *name, json_t *description, json_t *parameters,
               json_t *strict, bool later);

/* Of a list of text parts in OpenAI's shape: one more. */
bool talk_add_part(json_t *parts, json_t *text);

/* Gives the conversation to conversation_set: *c is complete but for messages and tools. */
bool talk_end(talk *t, conversation *c, api_error *err);
void talk_fini(talk *t); /* in any case */

#endif
