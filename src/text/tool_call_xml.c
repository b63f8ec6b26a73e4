/* tool_call_xml.c - calls whose parameters stand between tags, their values as plain text.
 *
 *     <tool_call>                        <tool_call>f
 *     <function=f>                       <arg_key>p</arg_key>
 *     <parameter=p>                      <arg_value>value</arg_value>
 *     value                              </tool_call>
 *     </parameter>                                                   GLM
 *     </function>
 *     </tool_call>      Qwen3-Coder
 *
 *     <tool_calls>                       <|DSML|tool_calls>
 *     <tool_call>f<tool_sep>             <|DSML|invoke name="f">
 *     <arg_key>p</arg_key>               <|DSML|parameter name="p" string="true">value</|DSML|...>
 *     <arg_value>value</arg_value>       </|DSML|invoke>
 *     </tool_call>                       </|DSML|tool_calls>      DeepSeek v3.2, v4
 *     </tool_calls>     Hunyuan
 *
 * Nothing in a value is escaped, so that it is a string or something else the tool's schema alone
 * can tell (tool_types_find), or in DSML an attribute. Strings go through as they come; the rest
 * waits for its end. */
#include "text/tool_call_impl.h"

#include <stdio.h>

typedef struct xml_style {
    const char *function, *name_end; /* around the function's name */
    const char *sep;                 /* what may stand for name_end; NULL: nothing */
    const char *param, *param_end;   /* around a parameter's */
    const char *value;               /* in front of its value; NULL: nothing */
    const char *value_end;
    const char *end;      /* of the call */
    const char *ends[2];  /* of all calls */
    uint8_t num_wrappers; /* of the format's `opens`: the function's tag follows */
    bool trims;           /* a newline on each side of a value is not part of it */
    bool says_type;       /* an attribute string="true" or "false" stands behind a name */
    bool several;         /* calls between one pair of wrappers */
} xml_style;

static const xml_style qwen = {.function = "<function=",
                               .name_end = ">",
                               .param = "<parameter=",
                               .param_end = ">",
                               .value_end = "</parameter>",
                               .end = "</function>",
                               .ends = {"</tool_call>", "</seed:tool_call>"},
                               .num_wrappers = 1,
                               .trims = true};
static const xml_style glm = {.param = "<arg_key>",
                              .param_end = "</arg_key>",
                              .value = "<arg_value>",
                              .value_end = "</arg_value>",
                              .end = "</tool_call>",
                              .ends = {"</tool_call>"}};

#define DSML "\uff5cDSML\uff5c"
static const xml_style dsml = {.function = "<" DSML "invoke name=\"",
                               .name_end = "\">",
                               .param = "<" DSML "parameter name=\"",
                               .param_end = "\"",
                               .value_end = "</" DSML "parameter>",
                               .end = "</" DSML "invoke>",
                               .ends = {"</" DSML "function_calls>", "</" DSML "tool_calls>"},
                               .num_wrappers = 2,
                               .says_type = true,
                               .several = true};
static const xml_style minimax = {.function = "<invoke name=\"",
                                  .name_end = "\">",
                                  .param = "<parameter name=\"",
                                  .param_end = "\">",
                                  .value_end = "</parameter>",
                                  .end = "</invoke>",
                                  .ends = {"</minimax:tool_call>"},
                                  .num_wrappers = 1,
                                  .several = true};

/* Of Hunyuan's checkpoints some have a suffix in all their tags. */
#define HUNYUAN(suffix)                                                                            \
    {                                                                                              \
        .function = "<tool_call" suffix ">", .sep = "<tool_sep" suffix ">",                        \
        .param = "<arg_key" suffix ">", .param_end = "</arg_key" suffix ">",                       \
        .value = "<arg_value" suffix ">", .value_end = "</arg_value" suffix ">",                   \
        .end = "</tool_call" suffix ">", .ends = {"</tool_calls" suffix ">"}, .num_wrappers = 2,   \
        .several = true                                                                            \
    }
static const xml_style hunyuan[] = {HUNYUAN(":opensource"), HUNYUAN("")};

enum { XML_HEADER, XML_PARAM, XML_VALUE, XML_STRING, XML_OTHER, XML_NEXT, XML_CLOSERS };

static span trimmed(const char *text, size_t at, size_t len)
{
    while (len && is_space(text[at]))
        at++, len--;
    while (len && is_space(text[at + len - 1]))
        len--;
    return (span){at, len};
}

/* The function's name, and behind it a parameter or the end: else it is no call. */
static step xml_header(tool_parser *p, const xml_style *x)
{
    const char *const name_ends[] = {x->name_end ? x->name_end : x->param, x->end, x->sep, NULL};
    const char *const next[] = {x->param, x->end, NULL};
    int which;
    size_t at = 0, len = left(p);
    const char *text = here(p);
    if (x->function && p->opened < x->num_wrappers) { /* <tool_call>, and the function in it */
        while (at < len && is_space(text[at]))
            at++;
        match m = match_word(text + at, len - at, x->function);
        if (m != MATCH_YES) return m == MATCH_PART ? STEP_MORE : STEP_TEXT;
        at += strlen(x->function);
    }
    size_t end = at + find_words(text + at, len - at, name_ends, &which);
    span name = trimmed(text, at, end - at);
    if (name.len && !is_name(text + name.at, name.len)) return STEP_TEXT;
    if (end - at > TOOL_CALL_MOST_NAME) return STEP_TEXT;
    if (which < 0) return STEP_MORE;
    if (!name.len || (which == 1 && x->name_end)) return STEP_TEXT;
    if (x->name_end || which == 2) {
        end += strlen(which == 2 ? x->sep : x->name_end);
        while (end < len && is_space(text[end]))
            end++;
        bool part = false, found = false;
        for (int i = 0; next[i]; i++) {
            match m = match_word(text + end, len - end, next[i]);
            part = part || m == MATCH_PART;
            found = found || m == MATCH_YES;
        }
        if (!found) return part ? STEP_MORE : STEP_TEXT;
    }
    snprintf(p->value_of, sizeof p->value_of, "%.*s", (int)name.len, text + name.at);
    call_begin(p, text + name.at, name.len, NULL, 0);
    p->at += end;
    settle(p);
    p->first = true;
    p->state = XML_PARAM;
    return STEP_AGAIN;
}

static void say_key(tool_parser *p, const char *key, size_t len)
{
    p->scratch.len = 0;
    keep(p, &p->scratch, p->first ? "{\"" : ", \"", p->first ? 2 : 3);
    if (json_escape(&p->scratch, key, len) != RAD_OK) p->failed = true;
    keep(p, &p->scratch, "\": ", 3);
    call_args(p, p->scratch.data, p->scratch.len);
    p->first = false;
}

static void say_escaped(tool_parser *p, const char *text, size_t len)
{
    p->scratch.len = 0;
    if (json_escape(&p->scratch, text, len) != RAD_OK) p->failed = true;
    call_args(p, p->scratch.data, p->scratch.len);
}

/* A parameter's name, or the call's end. */
static step xml_param(tool_parser *p, const xml_style *x)
{
    if (!skip_space(p)) return STEP_MORE;
    const char *text = here(p);
    size_t len = left(p), at = strlen(x->param);
    match m = match_word(text, len, x->end);
    if (m == MATCH_YES) {
        p->at += strlen(x->end);
        call_args(p, p->first ? "{}" : "}", p->first ? 2 : 1);
        call_end(p);
        p->state = x->several ? XML_NEXT : XML_CLOSERS;
        return STEP_AGAIN;
    }
    if (m == MATCH_PART) return STEP_MORE;
    m = match_word(text, len, x->param);
    if (m != MATCH_YES) return m == MATCH_PART ? STEP_MORE : STEP_TEXT;
    const char *const ends[] = {x->param_end, NULL};
    int which;
    size_t end = at + find_words(text + at, len - at, ends, &which);
    if (end - at > TOOL_CALL_MOST_NAME) return STEP_TEXT;
    if (which < 0) return STEP_MORE;
    span name = trimmed(text, at, end - at);
    end += strlen(x->param_end);
    if (x->value) {
        while (end < len && is_space(text[end]))
            end++;
        m = match_word(text + end, len - end, x->value);
        if (m != MATCH_YES) return m == MATCH_PART ? STEP_MORE : STEP_TEXT;
        end += strlen(x->value);
    }
    if (!name.len) return STEP_TEXT;
    p->type = tool_types_find(p->params.types, p->value_of, text + name.at, name.len);
    if (x->says_type) {
        static const char *const types[] = {" string=\"true\">", " string=\"false\">", ">"};
        size_t i = 0;
        while (i < RAD_COUNT(types) &&
               (m = match_word(text + end, len - end, types[i])) == MATCH_NO)
            i++;
        if (m != MATCH_YES) return m == MATCH_PART ? STEP_MORE : STEP_TEXT;
        end += strlen(types[i]);
        if (i < 2) p->type = i ? 'j' : 's'; /* else it is as the schema says */
    }
    say_key(p, text + name.at, name.len);
    p->at += end;
    settle(p);
    p->retry_at = 0;
    p->state = XML_VALUE;
    return STEP_AGAIN;
}

static void say_other(tool_parser *p, const char *text, size_t len)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    span value = trimmed(text, 0, len);
    const char *at = text + value.at;
    bool null = value.len == 4 && (!memcmp(at, "null", 4) || !memcmp(at, "None", 4));
    if (null) {
        call_args(p, "null", 4);
        return;
    }
    for (size_t i = 0; i < RAD_COUNT(words) && p->type == 'j'; i++)
        if (value.len == strlen(words[i][0]) && !memcmp(at, words[i][0], value.len)) {
            call_args(p, words[i][1], strlen(words[i][1]));
            return;
        }
    if (p->type == 'j' && args_value(p, at, value.len)) return;
    call_args(p, "\"", 1);
    say_escaped(p, text, len);
    call_args(p, "\"", 1);
}

/* How much of a value may be said while it goes on: not the newline at its end. */
static size_t without_newline(const xml_style *x, const char *text, size_t len)
{
    return x->trims && len && text[len - 1] == '\n' ? len - 1 : len;
}

/* Where the value's closing tag begins, as find_words says it. One within a string of JSON is text
 * of that, if the value is JSON up to another one; else the first ends it. */
static size_t find_value_end(const tool_parser *p, const char *text, size_t len,
                             const char *const *ends, int *which)
{
    size_t first = find_words(text, len, ends, which), end = first, read = 0;
    const int first_which = *which;
    json_scan scan;
    json_scanned got = JSON_MORE;
    if (p->state == XML_STRING || p->type != 'j') return end;
    json_scan_begin(&scan);
    while (*which >= 0) {
        for (; read < end && got == JSON_MORE; read++)
            got = json_scan_push(&scan, text[read]);
        if (got != JSON_MORE || !json_scan_in_string(&scan)) {
            if (got == JSON_DONE && !trimmed(text, read, end - read).len) return end;
            *which = first_which;
            return first;
        }
        end += strlen(ends[*which]);
        end += find_words(text + end, len - end, ends, which);
    }
    if (end == first || !p->at_end) return end;
    *which = first_which;
    return first;
}

static step xml_value(tool_parser *p, const xml_style *x)
{
    const char *const ends[] = {x->value_end, NULL};
    if (p->state == XML_VALUE) {
        if (!left(p)) return STEP_MORE;
        if (x->trims && *here(p) == '\n') p->at++;
        p->state = p->type == 'j' || p->type == 'n' ? XML_OTHER : XML_STRING;
        if (p->state == XML_STRING) call_args(p, "\"", 1);
        settle(p);
    }
    if (p->state == XML_OTHER && p->in.buf.len < p->retry_at && !p->at_end) return STEP_MORE;
    int which;
    const char *text = here(p);
    size_t len = left(p), end = find_value_end(p, text, len, ends, &which);
    size_t value = without_newline(x, text, end);
    if (p->state == XML_STRING) {
        say_escaped(p, text, value);
        p->at += value;
        settle(p);
        if (which < 0) return STEP_MORE;
        call_args(p, "\"", 1);
        p->at += end - value;
    } else {
        if (which < 0) {
            p->retry_at = p->in.buf.len + len / 64;
            return end > TOOL_CALL_MOST_HELD ? STEP_TEXT : STEP_MORE;
        }
        if (end > TOOL_CALL_MOST_HELD) return STEP_TEXT;
        say_other(p, text, value);
        p->at += end;
    }
    p->at += strlen(x->value_end);
    settle(p);
    p->state = XML_PARAM;
    return STEP_AGAIN;
}

/* Behind a call: another one between the same wrappers, or their end. */
static step xml_next(tool_parser *p, const xml_style *x)
{
    if (!skip_space(p)) return p->at_end ? STEP_DONE : STEP_MORE;
    match m = match_word(here(p), left(p), x->function);
    if (m == MATCH_PART && !p->at_end) return STEP_MORE;
    if (m == MATCH_PART) p->at = p->in.buf.len; /* a cut tag is no text */
    p->state = m == MATCH_YES ? XML_HEADER : XML_CLOSERS;
    if (m == MATCH_YES) p->in.start = p->at;
    return STEP_AGAIN;
}

static step step_style(tool_parser *p, const xml_style *x)
{
    const char *const closers[] = {x->ends[0], x->ends[1], NULL};
    switch (p->state) {
    case XML_HEADER: return xml_header(p, x);
    case XML_PARAM: return xml_param(p, x);
    case XML_NEXT: return xml_next(p, x);
    case XML_CLOSERS:
        return skip_words(p, closers) == MATCH_PART && !p->at_end ? STEP_MORE : STEP_DONE;
    default: return xml_value(p, x);
    }
}

step step_xml(tool_parser *p)
{
    return step_style(p, &qwen);
}

step step_glm(tool_parser *p)
{
    return step_style(p, &glm);
}

step step_dsml(tool_parser *p)
{
    return step_style(p, &dsml);
}

step step_minimax(tool_parser *p)
{
    return step_style(p, &minimax);
}

/* Older ones write a JSON list between the same tags. */
step step_hunyuan(tool_parser *p)
{
    enum { JSON = 20 };
    static const char *const closers[] = {"</tool_calls>", NULL};
    if (p->state == XML_HEADER && p->opened == 1) {
        if (!skip_space(p)) return STEP_MORE;
        if (*here(p) == '[' || *here(p) == '{') p->state = JSON;
    }
    if (p->state < JSON) return step_style(p, &hunyuan[p->opened]);
    p->state -= JSON;
    step s = call_list_closed(p, closers);
    p->state += JSON;
    return s;
}
