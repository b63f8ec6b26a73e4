/* tool_call_marked.c - calls whose name stands between markers in front of the arguments.
 *
 *     <｜tool▁call▁begin｜>f<｜tool▁sep｜>{...}<｜tool▁call▁end｜>       DeepSeek
 *     <function=f>{...}</function>                                   Functionary
 *     [TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{...}                     Mistral, from v11 on
 *     <|tool_call>call:f{key:<|"|>text<|"|>}<tool_call|>             Gemma 4
 *
 * A header is read anew until it is whole: it is short, or none. */
#include "text/tool_call_impl.h"

#define DS(x)      "<\uff5ctool\u2581" x "\uff5c>"
#define DS_BEGIN   DS("call\u2581begin")
#define DS_SEP     DS("sep")
#define KIMI_BEGIN "<|tool_call_begin|>"
#define KIMI_ARGS  "<|tool_call_argument_begin|>"

enum { MOST_HEADER = 3 * TOOL_CALL_MOST_NAME };

/* A reader's place in a header. `got` stays at what ended it: 0, more is needed, or -1. */
typedef struct reader {
    const char *text;
    size_t len, at;
    int got;
} reader;

static void r_space(reader *r)
{
    while (r->got > 0 && r->at < r->len && is_space(r->text[r->at]))
        r->at++;
}

/* False: the word is not there, and nothing happened. */
static bool r_may(reader *r, const char *word)
{
    if (r->got <= 0) return false;
    match m = match_word(r->text + r->at, r->len - r->at, word);
    if (m == MATCH_PART) r->got = 0;
    if (m == MATCH_YES) r->at += strlen(word);
    return m == MATCH_YES;
}

static void r_must(reader *r, const char *word)
{
    if (!r_may(r, word) && r->got > 0) r->got = -1;
}

static void r_at(reader *r, char c)
{
    r_space(r);
    if (r->got > 0) r->got = r->at == r->len ? 0 : r->text[r->at] == c ? 1 : -1;
}

/* What stands before the next of the words, but for space around it; *which of them, at which the
 * reader is then. */
static span r_until(reader *r, const char *const *words, int *which)
{
    *which = -1;
    if (r->got <= 0) return (span){0, 0};
    size_t n = find_words(r->text + r->at, r->len - r->at, words, which), at = r->at;
    if (*which < 0) r->got = n > MOST_HEADER ? -1 : 0;
    if (n > MOST_HEADER) r->got = -1;
    r->at += n;
    while (n && is_space(r->text[at]))
        at++, n--;
    while (n && is_space(r->text[at + n - 1]))
        n--;
    return (span){at, n};
}

/* The header, when its name is one and it ends with a {. */
static int r_end(reader *r, call_header *h)
{
    r_at(r, '{');
    if (r->got <= 0) return r->got;
    h->behind = r->at;
    return is_name(r->text + h->name.at, h->name.len) ? 1 : -1;
}

/* ---- families ---- */

static int header_deepseek(const tool_parser *p, const char *text, size_t len, call_header *h)
{
    static const char *const sep[] = {DS_SEP, NULL}, *const fence[] = {"```json", NULL};
    reader r = {text, len, 0, 1};
    int which;
    if (p->opened == 0) {
        r_space(&r);
        r_must(&r, DS_BEGIN);
    }
    h->name = r_until(&r, sep, &which);
    r_must(&r, DS_SEP);
    r_space(&r);
    if (r.got <= 0 || r.at == len) return RAD_MIN(r.got, 0);
    if (text[r.at] != '{') { /* v3 and r1: what stood in front was the word function */
        h->name = r_until(&r, fence, &which);
        r_must(&r, "```json");
    }
    return r_end(&r, h);
}

const call_marks marks_deepseek = {.header = header_deepseek,
                                   .closers = {"```", DS("call\u2581end"), DS("calls\u2581end")}};

/* functions.NAME:0 is the id as well. */
static int header_kimi(const tool_parser *p, const char *text, size_t len, call_header *h)
{
    static const char *const args[] = {KIMI_ARGS, NULL};
    reader r = {text, len, 0, 1};
    int which;
    if (p->opened == 0) {
        r_space(&r);
        r_must(&r, KIMI_BEGIN);
    }
    h->name = h->id = r_until(&r, args, &which);
    r_must(&r, KIMI_ARGS);
    if (r.got <= 0) return r.got;
    while (h->name.len && text[h->name.at + h->name.len - 1] >= '0' &&
           text[h->name.at + h->name.len - 1] <= '9')
        h->name.len--;
    if (h->name.len && text[h->name.at + h->name.len - 1] == ':')
        h->name.len--;
    else
        h->name.len = h->id.len; /* digits of the name's own */
    if (h->name.len > 10 && memcmp(text + h->name.at, "functions.", 10) == 0)
        h->name = (span){h->name.at + 10, h->name.len - 10};
    return r_end(&r, h);
}

const call_marks marks_kimi = {.header = header_kimi,
                               .closers = {"<|tool_call_end|>", "<|tool_calls_section_end|>"}};

static int header_functionary(const tool_parser *p, const char *text, size_t len, call_header *h)
{
    static const char *const end[] = {">", NULL};
    reader r = {text, len, 0, 1};
    int which;
    (void)p;
    h->name = r_until(&r, end, &which);
    r_must(&r, ">");
    return r_end(&r, h);
}

const call_marks marks_functionary = {.header = header_functionary, .closers = {"</function>"}};

static int header_gemma(const tool_parser *p, const char *text, size_t len, call_header *h)
{
    static const char *const brace[] = {"{", NULL};
    reader r = {text, len, 0, 1};
    int which;
    (void)p;
    r_space(&r);
    r_must(&r, "call:");
    h->name = r_until(&r, brace, &which);
    return r_end(&r, h);
}

static const literal_style gemma_style = {
    .close = '}', .assign = ':', .bare = true, .quote = "<|\"|>"};
static const literal_style functiongemma_style = {
    .close = '}', .assign = ':', .bare = true, .quote = "<escape>"};

const call_marks marks_gemma = {
    .header = header_gemma, .style = &gemma_style, .closers = {"<tool_call|>"}};
const call_marks marks_functiongemma = {
    .header = header_gemma, .style = &functiongemma_style, .closers = {"<end_function_call>"}};

static int header_mistral(const tool_parser *p, const char *text, size_t len, call_header *h)
{
    static const char *const behind_name[] = {"[CALL_ID]", "[ARGS]", "{", NULL},
                             *const behind_id[] = {"[ARGS]", "{", NULL};
    reader r = {text, len, 0, 1};
    int which;
    (void)p;
    h->name = r_until(&r, behind_name, &which);
    if (which == 0) {
        r_must(&r, "[CALL_ID]");
        h->id = r_until(&r, behind_id, &which);
        if (r.got > 0 && !is_name(text + h->id.at, h->id.len)) return -1;
    }
    if (r.got > 0) r_may(&r, "[ARGS]");
    return r_end(&r, h);
}

static const call_marks marks_mistral = {.header = header_mistral};

/* ---- steps ---- */

static step args_literal(tool_parser *p)
{
    const char *text = here(p);
    size_t len = left(p), i = 0;
    json_scanned got = JSON_MORE;
    p->scratch.len = 0;
    for (; i < len && !got; i++)
        got = literal_push(&p->lit, text[i], &p->scratch, &p->failed);
    if (got == JSON_BAD) i--;
    call_args(p, p->scratch.data, p->scratch.len);
    p->at += i;
    settle(p);
    return got == JSON_DONE ? STEP_DONE : got ? STEP_TEXT : STEP_MORE;
}

static step step_marks(tool_parser *p, const call_marks *m)
{
    enum { HEADER, ARGS, CLOSERS };
    if (p->state == HEADER) {
        call_header h = {0};
        const char *text = here(p);
        int got = m->header(p, text, left(p), &h);
        if (got <= 0) return got ? STEP_TEXT : STEP_MORE;
        call_begin(p, text + h.name.at, h.name.len, text + h.id.at, h.id.len);
        p->at += h.behind + (m->style ? 1 : 0);
        settle(p);
        json_scan_begin(&p->json);
        if (m->style) literal_begin(&p->lit, m->style);
        p->state = ARGS;
    }
    if (p->state == ARGS) {
        step s = m->style ? args_literal(p) : args_json(p);
        if (s != STEP_DONE) return s;
        call_end(p);
        p->state = CLOSERS;
    }
    return skip_words(p, m->closers) == MATCH_PART && !p->at_end ? STEP_MORE : STEP_DONE;
}

step step_marked(tool_parser *p)
{
    return step_marks(p, p->format->words);
}

/* Both generations; which it is shows in the first character behind the marker. */
step step_mistral(tool_parser *p)
{
    enum { LIST = 100 };
    if (p->state >= LIST) {
        p->state -= LIST;
        step s = call_list(p);
        p->state += LIST;
        return s;
    }
    if (p->state == 0) {
        if (!skip_space(p)) return STEP_MORE;
        size_t at = *here(p) == '[';
        while (at < left(p) && is_space(here(p)[at]))
            at++;
        if (at == left(p)) return STEP_MORE;
        if (here(p)[at] == '{') {
            p->at += at;
            p->state = LIST;
            return STEP_AGAIN;
        }
        if (at) return STEP_TEXT;
    }
    return step_marks(p, &marks_mistral);
}

/* ---- Python ---- */

static const literal_style python_style = {.close = ')', .assign = '='};

/* NAME( and what shows that arguments with names follow, or none. */
static int header_python(const tool_parser *p, const char *text, size_t len, call_header *h)
{
    static const char *const bracket[] = {"(", NULL}, *const assign[] = {"=", ")", NULL};
    reader r = {text, len, 0, 1};
    int which;
    h->name = r_until(&r, bracket, &which);
    if (r.got > 0 && !is_name(text + h->name.at, h->name.len)) return -1;
    if (r.got > 0 && p->opened == 255 && p->params.types &&
        !tool_types_has(p->params.types, text + h->name.at, h->name.len))
        return -1;
    r_must(&r, "(");
    h->behind = r.at;
    span first = r_until(&r, assign, &which);
    if (r.got <= 0) return r.got;
    return which == 0 ? (is_name(text + first.at, first.len) ? 1 : -1) : first.len ? -1 : 1;
}

step call_python(tool_parser *p)
{
    enum { HEADER, ARGS, AFTER, NEXT };
    if (p->state == HEADER) {
        call_header h = {0};
        if (!skip_space(p)) return STEP_MORE;
        const char *text = here(p);
        int got = header_python(p, text, left(p), &h);
        if (got <= 0) return got ? STEP_TEXT : STEP_MORE;
        call_begin(p, text + h.name.at, h.name.len, NULL, 0);
        p->at += h.behind;
        settle(p);
        literal_begin(&p->lit, &python_style);
        p->state = ARGS;
    }
    if (p->state == ARGS) {
        step s = args_literal(p);
        if (s != STEP_DONE) return s;
        call_end(p);
        p->state = AFTER;
    }
    if (!skip_space(p)) return p->at_end ? STEP_DONE : STEP_MORE;
    char c = *here(p);
    if (p->state == NEXT && c != ']') {
        p->state = HEADER;
        p->in.start = p->at;
        return STEP_AGAIN;
    }
    if (c != ',' && c != ']') return STEP_DONE;
    p->at++;
    p->in.start = p->at;
    p->state = NEXT;
    return c == ']' ? STEP_DONE : STEP_AGAIN;
}

/* [f(a=1), g()], between markers or alone, or a list of JSON objects between them. */
step step_python(tool_parser *p)
{
    enum { OPEN, LIST = 50, PYTHON = 100, CLOSE = 200 };
    static const char *const closers[] = {"<|python_end|>", "<|tool_call_end|>", NULL};
    if (p->state == OPEN) {
        if (!skip_space(p)) return STEP_MORE;
        if (*here(p) != '[') return STEP_TEXT;
        size_t at = 1;
        while (at < left(p) && is_space(here(p)[at]))
            at++;
        if (at == left(p)) return STEP_MORE;
        p->state = here(p)[at] == '{' ? LIST : PYTHON;
        if (p->state == LIST && p->opened == 255) return STEP_TEXT;
        p->at += at;
    }
    if (p->state < CLOSE) {
        uint8_t base = p->state < PYTHON ? LIST : PYTHON;
        p->state -= base;
        step s = base == LIST ? call_list(p) : call_python(p);
        p->state += base;
        if (s != STEP_DONE) return s;
        p->state = CLOSE;
    }
    return skip_words(p, closers) == MATCH_PART && !p->at_end ? STEP_MORE : STEP_DONE;
}
