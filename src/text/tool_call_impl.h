/* tool_call_impl.h - what the files of the parser share. Private to this room.
 *
 *     feed -> raw: reasoning apart -> in: text, or a call of the format -> say
 *
 * The text of an answer lies in `in`, behind what was said or dropped. A format's step looks at it
 * from `at` on and answers what it is; it may be asked again with more text at any byte:
 *
 *     in   ....................|<tool_call>{"name": "f", "argu
 *           said                start                at     end, so far
 *
 * Invariant: what was decided does not depend on where the text was cut. A step that needs more
 * text to decide leaves `at` and `state` where they can be taken up. */
#ifndef TEXT_TOOL_CALL_IMPL_H
#define TEXT_TOOL_CALL_IMPL_H

#include "text/detokenize.h"
#include "text/json_scan.h"
#include "text/literal.h"
#include "text/tool_call.h"

typedef enum step {
    STEP_MORE,  /* undecided; at the answer's end it is text */
    STEP_AGAIN, /* something was found; go on */
    STEP_TEXT,  /* no call after all, or what was one is broken */
    STEP_DONE   /* the calls have ended: text follows */
} step;

typedef enum tool_flags {
    TOOL_BARE_JSON = 1,     /* an answer that begins with { may be a call, */
    TOOL_BARE_LIST = 2,     /* or with [ */
    TOOL_ENDS_THINKING = 4, /* its marker in reasoning ends that: nobody else writes it */
    TOOL_ENDS_BEFORE = 8,   /* the same, but only in front of { or <: it is text as well */
    TOOL_SHORT_IDS = 16,
    TOOL_CHANNELS = 32,    /* it tells reasoning and content apart itself */
    TOOL_TOOL_NAME = 64,   /* JSON objects have "tool_name" for "name", */
    TOOL_NAME_IS_KEY = 128 /* or are {name: arguments} */
} tool_flags;

struct tool_format {
    const char *names; /* "hermes qwen qwen25" */
    const char *opens[3];
    const char *shows[4];    /* what its templates say, any of them, */
    const char *never_shows; /* and what they do not; NULL: nothing */
    const char *markers[16]; /* tokens that it needs besides `opens` */
    step (*step)(tool_parser *p);
    unsigned flags;
    const void *words; /* of the step's kind */
};

struct reasoning_format {
    const char *names;
    const char *open, *close;
    const char *shows[2]; /* what its templates say, any of them */
    bool always;          /* an answer begins inside unless the prompt has ended it */
};

extern const tool_format tool_formats[];
extern const size_t tool_num_formats;

typedef struct text_queue { /* bytes that come at the end and go at the beginning */
    text_buf buf;
    size_t start;
} text_queue;

struct tool_parser {
    tool_parser_params params;
    const tool_format *format;
    said_fn say; /* of the feed that is going on */
    void *user;
    bool at_end, failed, over;

    enum { THINK_START, THINK_START_INSIDE, THINK_INSIDE, THINK_OVER } thinking;
    text_queue raw; /* while thinking is not over */
    bool trim_thought;

    text_queue in;
    size_t at;      /* in in.buf */
    bool in_call;   /* the format's step is asked */
    bool trim;      /* whitespace that comes next is dropped */
    bool said_text; /* content other than whitespace */
    uint8_t opened; /* by which of `opens`; 255: bare */

    /* A call that is being read: */
    bool call_open;
    uint32_t num_calls;      /* begun */
    text_buf name, id, args; /* with whole_calls */
    size_t retry_at;         /* before in.buf.len is there a header is not looked at again */

    /* The format's own: */
    uint8_t state;
    uint8_t channel, last_channel; /* harmony: a said_kind; one more than that, or 0 */
    bool first;                    /* of a list's items, or an object's members */
    json_scan json;
    literal lit;
    text_buf scratch;
    char type;                          /* of an XML value; see tool_types_find */
    char value_of[TOOL_CALL_MOST_NAME]; /* the function whose values come */
};

/* ---- looking ---- */

static inline size_t left(const tool_parser *p)
{
    return p->in.buf.len - p->at;
}

static inline const char *here(const tool_parser *p)
{
    return p->in.buf.data + p->at;
}

static inline bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Moves over whitespace; whether something else comes. */
static inline bool skip_space(tool_parser *p)
{
    while (left(p) && is_space(*here(p)))
        p->at++;
    return left(p) > 0;
}

typedef enum match { MATCH_NO, MATCH_YES, MATCH_PART } match;

/* Whether `word` stands at text[0..len), or as much of it as there is. */
match match_word(const char *text, size_t len, const char *word);

/* The first of the words in text[0..len): its index, and *which. Where there is none the index of
 * what may be the beginning of one at the end, or len, and *which is -1. NULL ends the list. */
size_t find_words(const char *text, size_t len, const char *const *words, int *which);

/* At `at`: MATCH_YES moves behind it. At the answer's end a part is MATCH_NO. */
match take_word(tool_parser *p, const char *word);

/* ---- saying ---- */

void call_begin(tool_parser *p, const char *name, size_t len, const char *id, size_t id_len);
void call_args(tool_parser *p, const char *json, size_t len);
void call_end(tool_parser *p);
void say_text(tool_parser *p, said_kind kind, const char *text, size_t len);
void keep(tool_parser *p, text_buf *buf, const char *bytes, size_t len); /* append, or fail */

/* What was looked at is decided; with whole_calls not before the call's end. */
static inline void settle(tool_parser *p)
{
    if (!p->call_open || !p->params.whole_calls) p->in.start = p->at;
}

/* The call that is open is none after all: it ends broken, or nothing is said of it. */
void call_break(tool_parser *p);

/* ---- pieces of formats ---- */

typedef struct span {
    size_t at, len; /* 0, 0: none */
} span;

/* What stands in front of a call's arguments. */
typedef struct call_header {
    span name, id;
    span whole;    /* the arguments, where the name came behind them or they are no object */
    size_t behind; /* where it ends: at the {, or behind the whole call */
} call_header;

/* Arguments as a JSON object from `at` on, said as they come; p->json was begun. STEP_DONE: whole.
 */
step args_json(tool_parser *p);

/* Says text[0..len) as a value where it is one of JSON's, without space around it. */
bool args_value(tool_parser *p, const char *text, size_t len);

/* One {"name": ..., "arguments": {...}} from `at` on: p->state goes from 0 to 2, and the call has
 * ended with STEP_DONE. `strict`: it has no other members. */
step call_object(tool_parser *p, bool strict);

/* As many of them as [ ... ] holds, behind the [: p->state from 0 to 4. */
step call_list(tool_parser *p);

/* [ ... ] and behind it the words, which NULL ends: p->state from 0. */
step call_list_closed(tool_parser *p, const char *const *closers);

/* f(a=1), g()] behind the [: p->state from 0 to 4. */
step call_python(tool_parser *p);

/* Moves over whitespace and the words, which NULL ends, as often as they come. MATCH_NO: something
 * else follows. */
match skip_words(tool_parser *p, const char *const *words);

/* Whether it may be a function's name. */
bool is_name(const char *text, size_t len);

/* How the parameter's values are written: 's' as they are, 'n' likewise but for null, 'j' as
 * JSON where it parses. 0: nothing is known of it. */
char tool_types_find(const tool_types *t, const char *function, const char *name, size_t len);
char tool_value_kind(const json_t *schema); /* of a parameter with this schema */
bool tool_types_has(const tool_types *t, const char *function, size_t len);

step step_hermes(tool_parser *p);
step step_llama3(tool_parser *p);
step step_list(tool_parser *p); /* words: what closes it, NULL at the end; or NULL */
step step_mistral(tool_parser *p);
step step_marked(tool_parser *p); /* words: a call_marks */
step step_python(tool_parser *p);
step step_xml(tool_parser *p);
step step_glm(tool_parser *p);
step step_dsml(tool_parser *p);
step step_minimax(tool_parser *p);
step step_hunyuan(tool_parser *p);
step step_harmony(tool_parser *p);

/* A call that is a header, arguments, and words behind them. */
typedef struct call_marks {
    int (*header)(const tool_parser *p, const char *text, size_t len, call_header *h);
    const literal_style *style; /* of the arguments; NULL: JSON */
    const char *closers[4];
} call_marks;

extern const call_marks marks_deepseek, marks_kimi, marks_functionary, marks_gemma,
    marks_functiongemma;

#endif
