/* conversation.h - what any dialect says of messages, tools and reasoning becomes one prompt.
 *
 * The form is OpenAI's, which chat templates are written for: a dialect brings its own into it
 * and calls conversation_set. */
#ifndef SERVER_CONVERSATION_H
#define SERVER_CONVERSATION_H

#include "server/api_request.h"

/* What stands for an image, a file or sound in a tool's result: agents' tools read such files
 * without being asked, and a history that holds one would be refused for ever. */
#define UNSEEN_RESULT                                                                              \
    "[The tool gave an image, a file or sound here, which this model cannot read.]"

typedef enum tool_choice { TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED, TOOLS_NAMED } tool_choice;

typedef struct conversation {
    json_t *messages; /* [{role, content, tool_calls, tool_call_id, name, reasoning_content, ...}],
                       * content a string, a list of text parts or null. Changed in place. */
    json_t *tools;    /* [{type: "function", function: {name, description, parameters}}], or NULL */
    json_t *later;    /* tools of which the messages tell the model, not the template; or NULL */
    json_t *kwargs;   /* chat_template_kwargs, or NULL */
    tool_choice choice;
    const char *named; /* with TOOLS_NAMED: the function */
    bool go_on;       /* the answer continues the last message, which is the assistant's */
    bool one_call;    /* the answer ends with its first call */
    bool whole_calls; /* calls come in one piece; for answers that are no stream it is so anyway */
    bool plain_text;  /* reasoning stays in the content */
    int8_t think;     /* 1: shall, 0: shall not, -1: not said. kwargs win, as over effort. */
    const char *effort; /* of reasoning: "none", "low", ...; NULL: not said */
} conversation;

/* r->items[0] gets the prompt and r->output how the answer is to be read. r->stream and r->items
 * must be set. What it reads of c's JSON is copied; its words name OpenAI's fields. */
bool conversation_set(api_request *r, conversation *c, api_error *err);

#endif
