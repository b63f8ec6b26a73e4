/* tool_call.h - what a model says becomes reasoning, content and calls of tools.
 *
 *     <think>so ...</think>Let me look.<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>
 *            reasoning      content                      call f        {"x": 1}
 *
 * Models write calls and reasoning as text, each family in its own way. A parser is fed that text
 * in any pieces and says what it finds as soon as it is certain: the pieces of one kind join to the
 * same text however the answer was cut, no part of a marker is ever in the content, and the
 * arguments of a call that ended join to one JSON object, whatever notation the model has for it.
 *
 * What only looks like a call (a marker without a call behind it, JSON that is none) comes back as
 * content, byte for byte. Once a call has begun it cannot be taken back: where its arguments turn
 * out to be no JSON, or the answer ends, it ends `broken`, its arguments a beginning that does not
 * parse, and what follows is content. With whole_calls a call begins only when it has ended: then
 * no call is broken, and all of such a text is content.
 *
 * Whitespace between content and calls, and around reasoning, is the format's and left out.
 *
 * A parser is one answer's, and used by one thread at a time. It holds what is undecided: at most
 * TOOL_CALL_MOST_HELD bytes, past which it is content, and with whole_calls the call. Linear in the
 * text. */
#ifndef TEXT_TOOL_CALL_H
#define TEXT_TOOL_CALL_H

#include "text/tokenizer.h"

#include <jansson.h>

typedef struct tool_format tool_format;           /* how a family writes calls */
typedef struct reasoning_format reasoning_format; /* and reasoning */

/* By one of SGLang's names; NULL: no such. */
const tool_format *tool_format_find(const char *name);
const reasoning_format *reasoning_format_find(const char *name);

/* Of a model whose chat template this is; NULL: it has none that is known. */
const tool_format *tool_format_detect(const char *template_text, size_t len);
const reasoning_format *reasoning_format_detect(const char *template_text, size_t len);

/* The first of its names; NULL is "none". */
const char *tool_format_name(const tool_format *f, char *text, size_t size);
const char *reasoning_format_name(const reasoning_format *f, char *text, size_t size);

/* "deepseekv3, deepseekv31, ...": all that find knows, for manuals. */
const char *tool_format_names(char *text, size_t size);
const char *reasoning_format_names(char *text, size_t size);

/* What stands around reasoning; NULL where a family has channels instead. *always: an answer begins
 * inside unless the prompt has ended it. */
void reasoning_format_markers(const reasoning_format *f, const char **open, const char **close,
                              bool *always);

/* Control tokens that must stay in the text for the parser to see. The first `room` are written;
 * how many there are. */
enum { TOOL_CALL_MOST_IDS = 32 };
uint32_t tool_call_marker_ids(const tokenizer *tok, const tool_format *calls,
                              const reasoning_format *reasoning, rad_token *ids, uint32_t room);

/* Ids of calls: 9 letters or digits, as Mistral's templates demand. */
bool tool_format_wants_short_ids(const tool_format *f);

/* What a request's tools are called and what their parameters are: formats that write values
 * without quotes need to know which are strings. Copied out of OpenAI's `tools`. */
typedef struct tool_types tool_types;
rad_status tool_types_create(const json_t *tools, tool_types **out); /* RAD_E_NOMEM */
void tool_types_destroy(tool_types *t);                              /* NULL is fine */
size_t tool_types_bytes(const tool_types *t);

typedef enum said_kind {
    SAID_CONTENT,
    SAID_REASONING,
    SAID_CALL,      /* text: the name of the function */
    SAID_ARGUMENTS, /* text: the next piece of that call's JSON */
    SAID_CALL_END
} said_kind;

typedef struct said {
    said_kind kind;
    bool broken;    /* CALL_END: see above */
    uint32_t index; /* of the call, from 0 */
    const char *text;
    size_t len;
    const char *id; /* CALL: what the model called it, or NULL */
    size_t id_len;
} said;

/* False: there is no memory, and the parser fails. */
typedef bool (*said_fn)(void *user, const said *what);

enum {
    TOOL_CALL_MOST_HELD = 80 << 10, /* bytes that a parser holds undecided */
    TOOL_CALL_MOST_NAME = 256       /* bytes of a function's name, and of an id */
};

typedef struct tool_parser_params {
    const tool_format *calls;          /* NULL: calls are text */
    const reasoning_format *reasoning; /* NULL: reasoning is text */
    const tool_types *types;           /* NULL: nothing is known. Outlives the parser. */
    bool whole_calls;                  /* each call in one piece, when it has ended */
    bool one_call;                     /* what follows the first call is dropped */
} tool_parser_params;

typedef struct tool_parser tool_parser;

rad_status tool_parser_create(const tool_parser_params *params, tool_parser **out);
void tool_parser_destroy(tool_parser *p); /* NULL is fine */

/* The end of the prompt's text, control tokens included, before the first feed: whether the
 * answer goes on inside of reasoning. */
enum { TOOL_CALL_PROMPT_TAIL = 128 };
void tool_parser_begin(tool_parser *p, const char *tail, size_t len);

/* RAD_E_NOMEM, also where `say` said so: nothing more is to be fed. */
rad_status tool_parser_feed(tool_parser *p, const char *text, size_t len, said_fn say, void *user);
rad_status tool_parser_finish(tool_parser *p, said_fn say, void *user);

/* What comes next is reasoning, as far as is known. */
bool tool_parser_thinks(const tool_parser *p);

/* With one_call: the call has ended, and nothing that follows will be said. */
bool tool_parser_is_over(const tool_parser *p);
size_t tool_parser_bytes(const tool_parser *p); /* of memory that it holds now */

#endif
